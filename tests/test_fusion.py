"""Fusion of runs by its definitions, against ranx where it is installed, and as a command."""

import numpy as np
import pytest

from rankstruct import cli
from rankstruct.data import read_run
from rankstruct.fusion import fuse_runs

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


def assert_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    for query, found in ours.items():
        assert found.keys() == theirs[query].keys()
        for docid, score in found.items():
            assert score == pytest.approx(theirs[query][docid], rel=1e-9, abs=1e-9)
        assert list(found.values()) == sorted(found.values(), reverse=True)


def test_values_equal_those_of_ranx():
    ranx = pytest.importorskip("ranx", reason="ranx is not installed")
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
        for normalisation in [*NORMALISATIONS, "none"]:
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
        (([{"q": {"a": np.nan}}, {}],), "scores must be finite, got nan of document a in query q of run 1"),
    ],
)
def test_wrong_input_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        fuse_runs(*arguments)
    runs = [{"q": {"a": 1e308}}, {"q": {"a": 1e308}}]
    with pytest.raises(ValueError, match="query q overflow float64"):
        fuse_runs(runs, "combsum", normalisation="none")
    for k in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="k must be a number above 0"):
            fuse_runs(runs, k=k)


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
    with pytest.raises(SystemExit):
        cli.main(["fuse", "a.run"])
    assert "expected two or more runs, got 1" in capsys.readouterr().err
    assert cli.main(["fuse", "a.run", "missing.run"]) == 1
