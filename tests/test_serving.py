"""Serving scorers: export by torch, ONNX and safetensors, loading without Lightning, errors of what cannot be exported."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.export import Dim, export

import rankstruct as rs
from rankstruct.estimators.boosting import _LightGBM, _tree_scorer

ANY_SIZE = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)
BY_LIST = ("query-minmax", "query-zscore", "query-center")
STEPS = ("log", "standardize", "quantile", "bins:4", "piecewise:4", "append-log", "append-quantile", *BY_LIST)
warned = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def draw(lists=20, size=10):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(lists * size, 3))
    X[:, 2] = rng.integers(0, 3, size=lists * size)  # ties with what preparation was fitted to
    return X, (X[:, 0] + rng.normal(size=lists * size) > 1).astype(int), np.repeat(np.arange(lists), size)


def prepared(*steps):
    X, _, qid = draw()
    offsets = np.concatenate([[0], np.bincount(qid).cumsum()])
    preparation = rs.Preparation.fit(steps, X, offsets)
    return rs.models.PreparedScorer(randomised(rs.MLPScorer(preparation.transform(X, offsets).shape[1])), preparation)


def randomised(scorer):
    for values in scorer.parameters():
        torch.nn.init.normal_(values)
    return scorer.eval()


def boosted(library="lightgbm", **options):
    X, y, qid = draw()
    X[::5, 0] = np.nan if "start" not in options else 0
    return rs.BoostedRanker(n_estimators=5, n_jobs=1, library=library, **options).fit(X, y, qid).to_scorer()


def averaged():
    rankers = [rs.LinearRanker(), rs.MLPRanker(max_epochs=2, device="cpu"), rs.BoostedRanker(n_estimators=5, n_jobs=1)]
    return rs.EnsembleRanker(rankers, prepare=["append-quantile", "standardize"]).fit(*draw()).to_scorer()


SCORERS = {
    "linear": lambda: randomised(rs.LinearScorer(3)),
    "mlp": lambda: randomised(rs.MLPScorer(3, normalize=True)),
    "context": lambda: randomised(rs.ContextScorer(3)),
    "deep sets": lambda: randomised(rs.models.DeepSetScorer(3)),
    "default of MLPRanker": lambda: prepared("append-quantile", "standardize"),
    "mean": lambda: rs.models.MeanScorer([randomised(rs.MLPScorer(3)), randomised(rs.MLPScorer(3))]),
    "kernel": lambda: rs.KernelRanker(prepare=["standardize"]).fit(*draw()).to_scorer(),
    "trees": boosted,
    "trees with categories": lambda: boosted(options=CATEGORIES, min_child_samples=2),
    "trees on a start": lambda: boosted(start=rs.LinearRanker(prepare=["log"])),
    "ensemble": averaged,
    **{step: lambda step=step: prepared(step) for step in STEPS},
}
every_scorer = pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in SCORERS.items()])
#: Those that are exported in continuous integration: each kind of operation once.
EXPORTED = ("default of MLPRanker", "context", "deep sets", "trees with categories", "query-zscore", "kernel")
every_export = pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=pytest.mark.slow if name in EXPORTED else pytest.mark.soak)
        for name, make in SCORERS.items()
    ],
)


def other_sizes():
    """Lists of other sizes than a scorer was exported with, some of their features those of the training."""
    X, _, _ = draw()
    fresh = torch.randn(3, 7, 3)
    fresh[:2] = torch.tensor(X[:14]).view(2, 7, 3)
    return [fresh, fresh[:1], fresh[:, :2]]


@every_scorer
def test_every_scorer_is_called_alike(make, tmp_path):
    scorer = make().eval()
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    features = other_sizes()[0]
    expected, real = scorer(features), torch.ones(3, 7, dtype=torch.bool)
    for each in (scorer, rs.load_scorer(tmp_path / "scorer.pt")):
        torch.testing.assert_close(each(features, where=real), expected)
        torch.testing.assert_close(each(features.flatten(0, 1), offsets=torch.arange(0, 22, 7)), expected.flatten())


def test_a_mean_tells_its_scorers_the_lists():
    features, offsets = other_sizes()[0].flatten(0, 1), torch.tensor([0, 4, 21])
    of_lists, alone = prepared("query-zscore"), torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(-2))
    mean = rs.models.MeanScorer([of_lists, alone])(features, offsets=offsets)
    torch.testing.assert_close(mean, (of_lists(features, offsets=offsets) + alone(features)) / 2)


@pytest.mark.sampled(3)
@warned
@every_export
def test_torch_export_of_any_sizes(make, tmp_path):
    scorer = make().eval()
    torch.export.save(export(scorer, (torch.zeros(2, 5, 3),), dynamic_shapes=ANY_SIZE), tmp_path / "scorer.pt2")
    loaded = torch.export.load(tmp_path / "scorer.pt2").module()
    for features in other_sizes():
        torch.testing.assert_close(loaded(features), scorer(features))


@pytest.mark.sampled(2)
@pytest.mark.needs("onnx", "onnxscript", "onnxruntime")
@warned
@every_export
def test_onnx_of_any_sizes(make, tmp_path):
    import onnxruntime

    scorer = make().eval()
    names = {"input_names": ["features"], "output_names": ["scores"]}
    program = torch.onnx.export(
        scorer, (torch.zeros(2, 5, 3),), dynamic_shapes=ANY_SIZE, dynamo=True, verbose=False, **names
    )
    program.save(tmp_path / "scorer.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "scorer.onnx")
    for features in other_sizes():
        (found,) = session.run(["scores"], {"features": features.numpy()})
        torch.testing.assert_close(torch.tensor(found), scorer(features).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.soak
@pytest.mark.needs("onnx", "onnxscript", "onnxruntime")
@warned
def test_exported_bins_of_a_missing_number_are_missing(tmp_path):
    import onnxruntime

    scorer, features = prepared("bins:4").eval(), other_sizes()[0]
    features[0, 1, 2] = torch.nan
    expected = scorer(features).detach()
    assert expected.isnan().nonzero().tolist() == [[0, 1]]
    shapes = {"dynamic_shapes": ANY_SIZE}
    torch.testing.assert_close(
        export(scorer, (torch.zeros(2, 5, 3),), **shapes).module()(features).detach(), expected, equal_nan=True
    )
    program = torch.onnx.export(scorer, (torch.zeros(2, 5, 3),), dynamo=True, verbose=False, **shapes)
    program.save(tmp_path / "scorer.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "scorer.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: features.numpy()})
    torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-4, atol=1e-4, equal_nan=True)


@warned
@pytest.mark.parametrize(
    ("make", "layout", "message"),
    [
        (lambda: prepared("query-percentile"), {}, "query-percentile cannot be exported"),
        (
            lambda: prepared("query-zscore"),
            {"where": torch.ones(2, 5, dtype=torch.bool)},
            "without padding; omit where=",
        ),
        (averaged, {"where": torch.ones(2, 5, dtype=torch.bool)}, "without padding; omit where="),
    ],
)
def test_what_cannot_be_exported_says_so(make, layout, message):
    with pytest.raises(Exception, match=message):
        export(make().eval(), (torch.zeros(2, 5, 3),), layout)


@pytest.mark.needs("safetensors")
def test_safetensors(tmp_path):
    from safetensors.torch import load_file, save_file

    features = other_sizes()[0]
    for make in (SCORERS["linear"], SCORERS["mlp"], SCORERS["default of MLPRanker"]):
        scorer = make()
        save_file(scorer.state_dict(), tmp_path / "scorer.safetensors")
        state = load_file(tmp_path / "scorer.safetensors")
        torch.manual_seed(1)
        other = make()
        assert not torch.equal(other(features), scorer(features))
        other.load_state_dict(state)
        assert torch.equal(other(features), scorer(features))


@pytest.mark.parametrize(
    ("library", "options"),
    [
        ("lightgbm", {}),
        ("lightgbm", {"zero_as_missing": True}),
        ("lightgbm", {"use_missing": False}),
        ("lightgbm", {"boosting": "dart", "drop_rate": 0.5}),
        pytest.param("xgboost", {}, marks=pytest.mark.needs("xgboost")),
        pytest.param("xgboost", {"base_score": 0.5}, marks=pytest.mark.needs("xgboost")),
        pytest.param("xgboost", {"booster": "dart", "rate_drop": 0.5}, marks=pytest.mark.needs("xgboost")),
    ],
)
def test_trees_are_evaluated_as_the_library_does(library, options, tmp_path):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(600, 4)), np.repeat(np.arange(60), 10)
    y = np.digitize(np.square(X[:, :2]).sum(1) + X[:, 2], [1.0, 2.0])
    X[:, 3] = np.where(rng.random(600) < 0.5, 0.0, X[:, 3])
    X[rng.random(X.shape) < 0.1] = np.nan
    options = {"options": options, "seeds": 2, "n_jobs": 1, "library": library, "min_child_samples": 5}
    ranker = rs.BoostedRanker(n_estimators=20, **options).fit(X, y, qid)
    rs.save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    scorer = rs.load_scorer(tmp_path / "scorer.pt")
    at_thresholds = np.tile(scorer.threshold[scorer.threshold.isfinite()].numpy()[:, None], (1, 4))
    for rows in (X, np.full((1, 4), np.nan), np.zeros((1, 4)), at_thresholds, np.nextafter(at_thresholds, np.inf)):
        close = {"atol": 1e-12} if library == "lightgbm" else {"atol": 1e-6}
        np.testing.assert_allclose(scorer(torch.tensor(rows)).numpy(), ranker.predict(rows), **close)
    assert scorer(torch.zeros(0, 4)).shape == (0,)
    assert ranker.feature_importances_.sum() == pytest.approx(1)
    assert ranker.feature_importances_.shape == (4,)
    assert ranker.feature_importances_[:3].min() > ranker.feature_importances_[3]


CATEGORIES = {"categorical_feature": [2], "min_data_per_group": 1, "cat_smooth": 0, "max_cat_to_onehot": 1}


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    leaves=st.integers(2, 40),
    options=st.sampled_from([{}, {"zero_as_missing": True}, {"use_missing": False}]),
    categories=st.booleans(),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_trees_are_those_of_lightgbm_to_the_last_bit(seed, leaves, options, categories, dtype):
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 3)) * 10.0 ** rng.integers(-36, 3, 3)
    X[:, 2] = rng.integers(0, 30, 300)
    X[rng.random(X.shape) < 0.1] = 0.0
    X[rng.random(X.shape) < 0.1] = np.nan
    y = X[:, 0] / np.nanmax(X[:, 0]) + rng.normal(size=30)[np.nan_to_num(X[:, 2]).astype(int)]
    options = {**options, "num_leaves": leaves, "min_data_in_leaf": 1, "verbosity": -1, "num_threads": 1, "seed": 0}
    given = {name: value for name, value in CATEGORIES.items() if categories}
    of_data = {"categorical_feature": given.pop("categorical_feature", "auto")}
    booster = lightgbm.train({**options, **given}, lightgbm.Dataset(X, np.nan_to_num(y), **of_data), 8)
    scorer = _tree_scorer(_LightGBM.as_trees(booster), 3, 1, False)
    edges = [np.nan, np.inf, -np.inf, 0.0, 1e-36, -1e-36, 1e-35, 2e-35, -0.5, -1.0, 31.0, 2.7, 1e9, 1e301]
    values = [*edges, *X[:20].ravel(), *scorer.threshold.tolist()]
    with np.errstate(over="ignore"):
        rows = np.concatenate([X, rng.choice(values, (200, 3))]).astype(dtype)
    found = scorer(torch.tensor(rows)).numpy()
    np.testing.assert_array_equal(found, booster.predict(rows, raw_score=True).astype(dtype))


def test_a_ranker_with_categories_is_one_scorer(tmp_path):
    pytest.importorskip("lightgbm")
    X, y, qid = draw()
    ranker = rs.BoostedRanker(n_estimators=5, n_jobs=1, min_child_samples=2, options=CATEGORIES).fit(X, y, qid)
    rs.save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    scorer = rs.load_scorer(tmp_path / "scorer.pt")
    assert scorer.num_categories > 0
    unseen = X.copy()
    unseen[:6, 2] = [7, -3, np.nan, 1.5, -0.5, 1e12]
    np.testing.assert_array_equal(scorer(torch.tensor(unseen)).numpy(), ranker.predict(unseen))


def test_trees_with_a_start_and_preparation_are_one_scorer(tmp_path):
    pytest.importorskip("lightgbm")
    X, y, qid = draw()
    start = rs.LinearRanker(prepare=["query-zscore"])
    ranker = rs.BoostedRanker(n_estimators=5, n_jobs=1, prepare=["append-log"], start=start).fit(X, y, qid)
    rs.save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    scorer = rs.load_scorer(tmp_path / "scorer.pt")
    expected = ranker.predict(X, qid)
    np.testing.assert_allclose(scorer(torch.tensor(X).float().view(20, 10, 3)).flatten().detach(), expected, atol=1e-5)
    offsets = torch.arange(0, 201, 10)
    np.testing.assert_allclose(scorer(torch.tensor(X).float(), offsets=offsets).detach(), expected, atol=1e-5)
    # With the earlier preparation prepended, it takes raw documents.
    before = rs.Preparation.fit(["log"], X)
    inner = rs.BoostedRanker(n_estimators=5, n_jobs=1, start=rs.LinearRanker()).fit(before.transform(X), y, qid)
    expected = inner.predict(before.transform(X))
    np.testing.assert_allclose(inner.prepend(before).predict(X), expected, atol=1e-12)


def test_trees_that_have_no_scorer_say_so():
    pytest.importorskip("lightgbm")
    ranker = rs.BoostedRanker(n_estimators=3, n_jobs=1, min_child_samples=2, options={"linear_tree": True}).fit(*draw())
    with pytest.raises(ValueError, match="trees with linear models in their leaves have no scorer"):
        ranker.to_scorer()


def test_a_scorer_is_loaded_without_lightning(tmp_path):
    rs.save_scorer(prepared("append-quantile", "query-zscore"), tmp_path / "scorer.pt")
    code = (
        "import sys, torch, rankstruct as rs\n"
        f"rs.load_scorer({str(tmp_path / 'scorer.pt')!r})(torch.zeros(5, 3))\n"
        "print(sorted({'pytorch_lightning', 'tensorboard', 'torchmetrics', 'matplotlib'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.filterwarnings("ignore")
def test_mlflow_logs_what_lightning_logs(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    import pytorch_lightning as pl

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.pytorch.autolog(log_models=False)
    module = rs.training.RankingModule(rs.LinearScorer(20), rs.StructuredHingeLoss("AP"), measures=["AP"])
    data = rs.training.RankingDataModule(builtin="synthetic")
    with mlflow.start_run() as run:
        pl.Trainer(max_epochs=1, logger=False, accelerator="cpu", enable_progress_bar=False).fit(module, data)
    metrics = mlflow.get_run(run.info.run_id).data.metrics
    assert 0 < metrics["val/AP"] <= 1
