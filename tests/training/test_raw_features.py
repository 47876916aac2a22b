"""A model takes raw features wherever it was trained, saved and loaded: runs, checkpoints, estimators, for every preparation."""

import contextlib
import io
import json
import pickle

import joblib
import numpy as np
import pytest
import torch
import yaml
from programs import run_in

import rankstruct as rs
from rankstruct.cli import main
from rankstruct.data import RankingData, Source, read_lists, read_scores
from rankstruct.data.pipeline import fit_preparation
from rankstruct.preparation import KNOWN

pytestmark = pytest.mark.usefixtures("no_pictures_here")


def draw(seed, lists=12):
    rng = np.random.default_rng(seed)
    qid = np.sort(rng.integers(0, lists, 70))
    features = (rng.standard_normal((70, 3)) * 10.0 ** rng.integers(-2, 3, (70, 3))).astype(np.float32)
    features[:, 2] = rng.integers(0, 3, 70)
    return RankingData.from_arrays(features, (features[:, 0] + rng.standard_normal(70) > 1).astype(int), qid)


def write(data, path):
    qids = np.repeat(np.asarray(data.qids), data.lengths)
    rows = [
        f"{label:g} qid:{qid} " + " ".join(f"{i + 1}:{value!r}" for i, value in enumerate(row))
        for label, qid, row in zip(data.labels, qids, data.features.tolist(), strict=True)
    ]
    path.write_text("\n".join(rows) + "\n")


def prepared(names, train, data):
    """By the functions that training uses, from the original data."""
    features = fit_preparation(names, train)[0](data).features
    return np.asarray(features.toarray() if hasattr(features, "toarray") else features, np.float64)


CONFIG = {
    "model": {"scorer": "rankstruct.LinearScorer", "measures": ["AP"]},
    "average_weights": True,
    "trainer": {"max_epochs": 1, "enable_progress_bar": False, "enable_model_summary": False},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [name for name in KNOWN if not name.startswith("append-query-")] + ["log:0.5"])
@pytest.mark.needs("pytorch_lightning>=2.6")
def test_a_run_takes_raw_features(name, tmp_path):
    """By load_scorer and by predict --run, although its training lists have changed since."""
    parts = {part: draw(seed) for seed, part in enumerate(("train", "vali", "test", "more"))}
    for part, data in parts.items():
        write(data, tmp_path / f"{part}.txt")
    names = ["remove-zero-rows", name, *([] if "bins" in name else ["append-standardize"])]
    config = {**CONFIG, "output": str(tmp_path / "runs"), "data": {"path": str(tmp_path), "prepare": names}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["fit", "--config", str(tmp_path / "config.yaml")]) == 0
    run = run_in(tmp_path / "runs")
    weight = torch.load(run / "checkpoints" / "best.ckpt")["state_dict"]["scorer.linear.weight"].double().numpy()[0]
    more = parts["more"]
    wanted = prepared(names, parts["train"], more) @ weight
    assert np.ptp(wanted) > 0.01
    write(draw(9), tmp_path / "train.txt")
    scorer = rs.load_scorer(run)
    with torch.no_grad():
        found = scorer(torch.tensor(more.features), offsets=torch.tensor(more.offsets)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["predict", "--run", str(run), "--data.predict_path", str(tmp_path / "more.txt")]) == 0
    np.testing.assert_allclose(read_scores(run / "scores.txt"), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.needs("pytorch_lightning>=2.6")
def test_a_run_of_an_earlier_version_is_prepared_as_it_was(tmp_path):
    """It kept no preparation, and the unit of its logarithm was 1."""
    parts = {part: draw(seed) for seed, part in enumerate(("train", "vali", "test"))}
    for part, data in parts.items():
        write(data, tmp_path / f"{part}.txt")
    config = {**CONFIG, "output": str(tmp_path / "runs"), "data": {"path": str(tmp_path), "prepare": ["append-log"]}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["fit", "--config", str(tmp_path / "config.yaml")]) == 0
    best = run_in(tmp_path / "runs") / "checkpoints" / "best.ckpt"
    content = torch.load(best)
    del content["rankstruct_scorer"]["preparation"]
    torch.save(content, best)
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["predict", "--run", str(best.parents[1])]) == 0
    x = parts["test"].features.astype(float)
    wanted = (
        np.hstack([x, np.sign(x) * np.log1p(np.abs(x))])
        @ content["state_dict"]["scorer.linear.weight"][0].double().numpy()
    )
    np.testing.assert_allclose(read_scores(best.parents[1] / "scores.txt"), wanted, rtol=1e-6, atol=1e-6)
    scorer = rs.load_scorer(best)
    assert isinstance(scorer, rs.LinearScorer)


def arrays(data):
    return data.features, data.labels, data.list_numbers


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", KNOWN)
def test_an_estimator_takes_raw_features_however_it_was_saved(name, tmp_path):
    train, more = draw(0), draw(3)
    rows = np.random.default_rng(0).permutation(train.num_documents)
    names = [name] if "bins" in name else [name, "standardize"]
    ranker = rs.LinearRanker("AP", C=10.0, prepare=names).fit(*(each[rows] for each in arrays(train)))
    wanted = prepared(names, train, more) @ ranker.coef_
    assert np.ptp(wanted) > 0.01
    joblib.dump(ranker, tmp_path / "ranker.joblib")
    rs.save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    scorer = rs.load_scorer(tmp_path / "scorer.pt")
    mixed = np.random.default_rng(1).permutation(more.num_documents)
    X, _, qid = (each[mixed] for each in arrays(more))
    loaded = [ranker, joblib.load(tmp_path / "ranker.joblib"), pickle.loads(pickle.dumps(ranker))]
    for each in [*loaded, rs.LinearRanker.from_scorer(scorer)]:
        np.testing.assert_allclose(each.predict(X, qid), wanted[mixed], rtol=1e-6, atol=1e-6)
        assert each.n_features_in_ == 3
        assert each.score(*arrays(more)) == pytest.approx(ranker.score(*arrays(more)))
    with torch.no_grad():
        found = scorer(torch.tensor(more.features), offsets=torch.tensor(more.offsets)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    if ranker.preparation_.by_list:
        with pytest.raises(ValueError, match=r"needs complete lists.*pass qid="):
            ranker.predict(X)


@pytest.mark.sampled(2)
@pytest.mark.needs("skops")
@pytest.mark.parametrize("name", KNOWN)
def test_an_estimator_goes_through_skops(name, tmp_path):
    import skops.io

    train, more = draw(0), draw(3)
    ranker = rs.LinearRanker("AP", C=10.0, prepare=[name]).fit(*arrays(train))
    skops.io.dump(ranker, tmp_path / "ranker.skops")
    unknown = skops.io.get_untrusted_types(file=tmp_path / "ranker.skops")
    assert all(kind.startswith("rankstruct.") for kind in unknown)
    again = skops.io.load(tmp_path / "ranker.skops", trusted=unknown)
    X, _, qid = arrays(more)
    np.testing.assert_array_equal(again.predict(X, qid), ranker.predict(X, qid))


def test_a_ranker_that_an_earlier_version_saved_has_no_preparation():
    train = draw(0)
    ranker = rs.LinearRanker("AP", C=10.0, prepare=()).fit(*arrays(train))
    state = {name: value for name, value in ranker.__getstate__().items() if not name.startswith("prep")}
    old = rs.LinearRanker.__new__(rs.LinearRanker)
    old.__setstate__(state)
    np.testing.assert_array_equal(old.predict(train.features), ranker.predict(train.features))
    assert isinstance(old.to_scorer(), rs.LinearScorer)


def test_a_kernel_ranker_is_prepared_too():
    train, more = draw(0), draw(3)
    names = ["append-log", "standardize"]
    ranker = rs.KernelRanker("AP", C=10.0, gamma=0.1, prepare=names).fit(*arrays(train))
    X, y = prepared(names, train, train), train.labels
    alone = rs.KernelRanker("AP", C=10.0, gamma=0.1, prepare=()).fit(X, y, train.list_numbers)
    np.testing.assert_allclose(ranker.predict(more.features), alone.predict(prepared(names, train, more)), atol=1e-4)
    loss = ranker.mean_loss(ranker.coef_, *arrays(train))
    assert loss == pytest.approx(ranker.solution_.objective - ranker.coef_ @ ranker.coef_ / 20, rel=1e-6)


def test_what_an_unfitted_ranker_tells_of_its_objective_leaves_it_unfitted():
    train = draw(0)
    ranker = rs.LinearRanker("AP", C=10.0, prepare=["append-standardize"])
    fitted = rs.LinearRanker("AP", C=10.0, prepare=["append-standardize"]).fit(*arrays(train))
    assert ranker.objective(fitted.coef_, *arrays(train)) == pytest.approx(fitted.solution_.objective)
    assert not hasattr(ranker, "preparation_")
    assert not hasattr(ranker, "n_features_in_")
    with pytest.raises(ValueError, match="prepare the documents first"):
        rs.LinearRanker("AP", prepare=["standardize"], distributed=True).fit(*arrays(train))


@pytest.mark.slow
def test_exact_fits_save_what_takes_raw_features(tmp_path):
    """Steps of the data and of the ranker alike."""
    config = {
        "ranker": {
            "class_path": "rankstruct.LinearRanker",
            "init_args": {"measure": "AP", "C": 1.0, "prepare": ["standardize"]},
        },
        "data": {"builtin": "synthetic", "prepare": ["append-log", "remove-zero-rows"]},
        "measures": ["AP"],
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    with contextlib.redirect_stdout(io.StringIO()):
        given = ["--config", str(tmp_path / "c.yaml"), "--output", str(tmp_path / "out"), "--processes", "0"]
        assert main(["fit-exact", *given]) == 0
    cell = tmp_path / "out" / "c" / "all"
    test = Source(builtin="synthetic").read().test
    ranker = pickle.loads((cell / "ranker.pkl").read_bytes())
    found = json.loads((cell / "result.json").read_text())["path"][0]["test"]["AP"]
    assert ranker.score(*arrays(test)) == pytest.approx(found, abs=1e-6)
    scores = rs.load_scorer(cell / "scorer.pt")(torch.tensor(test.features)).detach().numpy()
    np.testing.assert_allclose(scores, ranker.predict(test.features), atol=1e-5)


def test_another_number_of_features_is_refused(tmp_path):
    train = draw(0)
    ranker = rs.LinearRanker("AP", prepare=["standardize"]).fit(*arrays(train))
    with pytest.raises(ValueError, match="3 features"):
        ranker.predict(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="fitted to 3 features"):
        ranker.to_scorer()(torch.zeros(2, 4))
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"documents had none|infinity"):
            ranker.predict(np.full((2, 3), value))
    with pytest.raises(ValueError, match="unknown preparation step 'binarize:1'"):
        rs.LinearRanker("AP", prepare=["binarize:1"]).fit(*arrays(train))
    many = tmp_path / "many.txt"
    many.write_text("1 qid:1 1:1 9:1\n")
    with pytest.raises(ValueError, match="9"):
        read_lists(many, num_features=3)
