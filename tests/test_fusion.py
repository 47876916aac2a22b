"""Fusion of runs by its definitions, against ranx where it is installed, and as a command."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator

import rankstruct as rs
from rankstruct import cli
from rankstruct.data import DataError, join_run, read_run, run_of, write_run
from rankstruct.fusion import fuse_runs, learn_fusion, run_lists

NORMALISATIONS = {
    "min-max": "min_max_norm",
    "z-score": "zmuv_norm",
    "max": "max_norm",
    "sum": "sum_norm",
    "rank": "rank_norm",
}


def drawn(seed, ties=True):
    """Two to four runs of the same queries, with ties, documents that some lack, and now and then equal scores."""
    rng = np.random.default_rng(seed)
    runs = []
    for _ in range(rng.integers(2, 5)):
        run = {}
        for query in range(3):
            documents = rng.permutation(12)[: rng.integers(1, 12)]
            scores = rng.normal(size=len(documents)) * 5 + 2
            scores = scores.round() if ties and rng.random() < 0.5 else scores
            if ties and rng.random() < 0.1:
                scores[:] = 3.0
            order = np.argsort(-scores, kind="stable")
            run[f"q{query}"] = {f"d{documents[at]}": float(scores[at]) for at in order}
        runs.append(run)
    return runs


def assert_equal(ours, theirs, within=1e-9):
    assert ours.keys() == theirs.keys()
    for query, found in ours.items():
        assert found.keys() == theirs[query].keys()
        for docid, score in found.items():
            assert score == pytest.approx(theirs[query][docid], rel=within, abs=within)
        assert list(found.values()) == sorted(found.values(), reverse=True)


@pytest.mark.soak  # compiled anew for each number of runs
@pytest.mark.needs("ranx")
@pytest.mark.filterwarnings("ignore")  # numba's, of casts
def test_values_equal_those_of_ranx():
    import ranx
    from ranx import fusion, normalization

    for seed in range(100):
        runs = drawn(seed)
        # ranx sorts with an order of its own among ties, which is then also ours
        theirs = [ranx.Run.from_dict(run) for run in runs]
        runs = [run.to_dict() for run in theirs]
        assert_equal(fuse_runs(runs, "rrf"), fusion.rrf(theirs).to_dict())
        for name, other in NORMALISATIONS.items():
            scaled = [getattr(normalization, other)(run) for run in theirs]
            assert_equal(fuse_runs(runs, "combsum", normalisation=name), fusion.comb_sum(scaled).to_dict())
            assert_equal(fuse_runs(runs, "combmnz", normalisation=name), fusion.comb_mnz(scaled).to_dict())


def plain(runs, query, docid, method, normalisation):
    """The fused score of a document by the definitions."""
    parts = []
    for run in runs:
        scores = run.get(query, {})
        if docid not in scores:
            continue
        values, own = np.array(list(scores.values())), scores[docid]
        rank = 1 + sorted(scores, key=lambda name: -scores[name]).index(docid)
        above = values - values.min()
        parts.append(
            1 / (60 + rank)
            if method == "rrf"
            else {
                "min-max": (own - values.min()) / max(np.ptp(values), 1e-9),
                "z-score": (own - values.mean()) / max(values.std(), 1e-9),
                "max": own / max(values.max(), 1e-9),
                "sum": (own - values.min()) / max(above.sum(), 1e-9),
                "rank": 1 - (rank - 1) / len(values),
                "none": own,
            }[normalisation]
        )
    return sum(parts) * (len(parts) if method == "combmnz" else 1)


@pytest.mark.parametrize("method", ["rrf", "combsum", "combmnz"])
def test_values_are_those_of_the_definitions(method):
    for seed in range(2):
        runs = drawn(seed)
        del runs[0]["q1"]
        for normalisation in [*NORMALISATIONS, "none"] if method != "rrf" else [None]:
            found = fuse_runs(runs, method, normalisation=normalisation)
            asked = {
                query: {
                    docid: plain(runs, query, docid, method, normalisation)
                    for run in runs
                    for docid in run.get(query, {})
                }
                for query in ("q0", "q1", "q2")
            }
            assert_equal({query: found[query] for query in asked}, asked)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([{"q": {"a": 1.0}}],), "runs must be two or more, as a list, got 1"),
        (({"q": {"a": 1.0}},), "runs must be two or more"),
        (([{}, {}], "rff"), "method must be one of .*did you mean rrf"),
        (([{"q": {"a": np.nan}}, {}],), "scores must be finite numbers, got nan of document a in query q of run 1"),
        (
            ([{"q": {"a": 1.0}}, {"q": {"a": "1"}}],),
            "scores must be finite numbers, got '1' of document a in query q of run 2",
        ),
        (
            ([{1: {1: 0.5}}, {"1": {"1": 0.5}}],),
            "queries must be of the same type in run 1 and run 2, got int in run 1",
        ),
        (([{"1": {"1": 0.5}}, {"1": {1: 0.5}}],), "documents must be of the same type in run 1 and run 2, got str"),
        ((["a.run", "b.run"],), "run 1 must be .*, got 'a.run'; to read a file, use rankstruct.data.read_run"),
        (("a.run",), "runs must be two or more, as a list, got 'a.run'"),
        ((None,), "runs must be two or more, as a list, got None"),
    ],
)
def test_wrong_input_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        fuse_runs(*arguments)
    runs = [{"q": {"a": 1e308}}, {"q": {"a": 1e308}}]
    with pytest.raises(ValueError, match="query q overflow float64"):
        fuse_runs(runs, "combsum", normalisation="none")
    for k in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="k must be a finite number above 0"):
            fuse_runs(runs, k=k)
    with pytest.raises(ValueError, match="normalisation= is of the methods combsum and combmnz, got it with rrf"):
        fuse_runs(runs, normalisation="sum")
    with pytest.raises(ValueError, match="k= is of the method rrf, got it with combsum"):
        fuse_runs(runs, "combsum", k=10)


def test_features_of_extreme_scores_are_numbers():
    data = run_lists([{"q": {"a": 1.7e308, "b": -1.7e308, "c": 0.0}}, {"q": {"a": 1.0}}])
    assert data.features[:, 0].tolist() == [1.0, 0.0, 0.5]
    with pytest.raises(DataError, match="the runs have no documents"):
        run_lists([{"q": {}}, {}])


def test_the_command_writes_the_fused_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.run").write_text("q1 Q0 x 1 9 a\nq1 Q0 y 2 7 a\nq2 Q0 x 1 3 a\n")
    (tmp_path / "b.run").write_text("q1 Q0 y 1 0.9 b\nq1 Q0 z 2 0.8 b\nq2 Q0 x 1 0.1 b\n")
    (tmp_path / "qrels.txt").write_text("q1 0 y 1\nq2 0 x 1\n")
    assert cli.main(["fuse", "a.run", "b.run", "--qrels", "qrels.txt", "--measures", "RR", "--output", "c.run"]) == 0
    runs = [read_run(f"{name}.run") for name in "ab"]
    assert read_run("c.run") == fuse_runs(runs)
    shown = capsys.readouterr().out
    assert "fused 2 runs of 2 queries, 4 documents: c.run" in shown
    assert shown.count("\n") >= 6
    assert cli.main(["fuse", "a.run", "b.run", "--method", "combmnz", "--normalisation", "rank"]) == 0
    assert read_run("fused.run") == fuse_runs(runs, "combmnz", normalisation="rank")
    (tmp_path / "folder").mkdir()
    for output, said in (
        ("./a.run", "another file than the runs"),
        ("./qrels.txt", "another file than the runs"),
        ("folder", "no folder"),
        ("c.run.gz", "written as plain text"),
    ):
        with pytest.raises(SystemExit):
            cli.main(["fuse", "a.run", "b.run", "--qrels", "qrels.txt", "--method", "learned", "--output", output])
        assert said in capsys.readouterr().err
    assert not (tmp_path / "folder.pt").exists()
    assert (tmp_path / "qrels.txt").read_text().startswith("q1 0 y 1")
    with pytest.raises(SystemExit):
        cli.main(["fuse", "a.run"])
    assert "expected two or more runs, got 1" in capsys.readouterr().err
    assert cli.main(["fuse", "a.run", "missing.run"]) == 1


def judged_runs(queries=40, seed=0, prefix="q"):
    """Judgements, and a good, a bad and a useless run of these queries, each without some documents."""
    rng = np.random.default_rng(seed)
    qrels = {f"{prefix}{at}": {f"d{each}": 1 for each in rng.permutation(15)[:3]} for at in range(queries)}
    runs = []
    for noise in (0.5, 1.5, 100.0):
        runs.append({})
        for query, judged in qrels.items():
            kept = rng.permutation(15)[:12]
            runs[-1][query] = {f"d{at}": (f"d{at}" in judged) + noise * rng.normal() for at in kept}
    return runs, qrels


def value(run, qrels, measure="nDCG@10"):
    return rs.evaluate(measures=[measure], **join_run(run, qrels).arguments)[measure].numpy()


def test_features_of_runs_contain_the_formulas():
    runs, qrels = judged_runs()
    del runs[0]["q3"]
    data = run_lists(runs, {**qrels, "q0": {"d1": -1, "d2": 2}})
    features = data.features.reshape(data.num_documents, len(runs), 3)
    for weights, options in (
        ([1, 0, 0], {"method": "combsum"}),
        ([0, 1 / 61, 0], {"method": "rrf"}),
    ):
        assert_equal(run_of(data, features @ weights @ np.ones(len(runs))), fuse_runs(runs, **options), 1e-6)
    missing = [[f"d{at}" not in run.get("q3", {}) for run in runs] for at in range(15)]
    rows = data.list_numbers == data.qids.tolist().index("q3")
    at = [int(name[1:]) for name, here in zip(data.docids.tolist(), rows, strict=True) if here]
    assert (features[rows, :, 2] == np.array(missing)[at]).all()
    first = data.list_numbers == data.qids.tolist().index("q0")
    labels = dict(zip(data.docids[: first.sum()].tolist(), data.labels[first], strict=True))
    assert {name: label for name, label in labels.items() if label} == ({"d2": 2.0} if "d2" in labels else {})


def test_learned_fusion_weights_the_runs_and_is_evaluated_on_new_queries():
    runs, qrels = judged_runs()
    fused = learn_fusion(runs, qrels).fused
    assert value(fused, qrels).mean() > value(fuse_runs(runs), qrels).mean() + 0.05
    new, judgements = judged_runs(seed=1, prefix="new")
    learned = learn_fusion([{**run, **other} for run, other in zip(runs, new, strict=True)], qrels)
    assert_equal({q: learned.fused[q] for q in new[0]}, fuse_runs(new, learned.ranker), 1e-6)
    assert_equal({q: learned.fused[q] for q in qrels}, fused, 1e-6)
    assert value(fuse_runs(new, learned.ranker), judgements).mean() > value(fuse_runs(new), judgements).mean() + 0.05


class Memory(BaseEstimator):
    """A ranker that scores 1 what it was fitted to, and all else 0."""

    def fit(self, X, y, qid):
        self.known_ = torch.from_numpy(X.values.copy())
        return self

    def to_scorer(self):
        scorer = torch.nn.Module()
        scorer.forward = lambda features, offsets: (features[:, None] == self.known_).all(-1).any(-1).float()
        return scorer


def test_no_query_is_scored_by_a_ranker_that_knows_it():
    runs, qrels = judged_runs(13)
    given = Memory()
    learned = learn_fusion(runs, qrels, given)
    assert not hasattr(given, "known_")
    known, held = (
        np.mean([score for found in fused.values() for score in found.values()])
        for fused in (fuse_runs(runs, learned.ranker), learned.fused)
    )
    assert known == 1
    assert held < 0.1  # first or last of one run alone, as documents of other queries are
    assert learned.fused.keys() == qrels.keys()


def test_the_command_learns_and_applies_the_saved_scorer(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runs, qrels = judged_runs(12)
    for name, run in zip("abc", runs, strict=True):
        write_run(f"{name}.run", run, tag=name)
    (tmp_path / "qrels.txt").write_text("".join(f"{q} 0 {d} 1\n" for q, each in qrels.items() for d in each))
    learn = ["fuse", "a.run", "b.run", "c.run", "--method", "learned", "--qrels", "qrels.txt", "--output", "all.run"]
    assert cli.main(learn) == 0
    learned = learn_fusion(runs, qrels)
    assert_equal(read_run("all.run"), learned.fused, 1e-6)
    assert "judged queries are scored by rankers fitted without them" in capsys.readouterr().out
    assert cli.main(["fuse", "a.run", "b.run", "c.run", "--method", "all.pt"]) == 0
    assert_equal(read_run("fused.run"), fuse_runs(runs, learned.ranker), 1e-6)
    assert cli.main([*learn[:-1], "svm.run", "--loss", "RankSVMLoss"]) == 0
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    capsys.readouterr()
    (tmp_path / "other.txt").write_text("elsewhere 0 d1 1\n")
    for options, said in (
        (["--method", "all.pt"], "cannot score 2 runs: pass the systems that it was fitted to"),
        (["--qrels", "other.txt"], "none of the"),
        (["--method", "learned", "--qrels", "other.txt"], "none of the"),
        (["--method", "learned", "--qrels", "qrels.txt", "--loss", "RankSVM"], "did you mean RankSVMLoss"),
    ):
        assert cli.main(["fuse", "a.run", "b.run", "--output", "new.run", *options]) == 1
        assert said in capsys.readouterr().err
    for options, said in (
        (["--method", "learnt"], "or the file of a scorer, got learnt; did you mean learned"),
        (["--method", "learned"], "--method learned needs --qrels"),
        (["--method", "learned", "--qrels", "qrels.txt", "--output", "a.pt"], "must not end in .pt"),
        (
            ["--method", "learned", "--qrels", "qrels.txt", "--output", "all.run"],
            "all.pt exists, where --method learned",
        ),
    ):
        with pytest.raises(SystemExit):
            cli.main(["fuse", "a.run", "b.run", *options])
        assert said in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == written | {
        "other.txt": b"elsewhere 0 d1 1\n"
    }


def test_too_few_judged_queries_are_refused():
    runs, qrels = judged_runs(1)
    with pytest.raises(ValueError, match=r"two judged queries at least.*got 1"):
        learn_fusion(runs, qrels)
    with pytest.raises(ValueError, match="folds must be"):
        learn_fusion(runs, qrels, folds=1)


def test_learned_fusion_keeps_the_ids_of_the_runs():
    runs = [
        {1: {7: 9.0, 8: 7.0}, 2: {7: 1.0, 9: 3.0}, 3: {7: 2.0}},
        {1: {8: 0.9}, 2: {9: 0.2, 7: 0.3}, 3: {8: 0.4, 7: 0.1}},
    ]
    learned = learn_fusion(runs, {1: {8: 1}, 2: {9: 1}, 3: {7: 1}})
    for fused in (learned.fused, fuse_runs(runs, learned.ranker)):
        assert {query: {*found} for query, found in fused.items()} == {1: {7, 8}, 2: {7, 9}, 3: {7, 8}}
