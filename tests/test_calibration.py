"""Calibration: probabilities of scores, their measures, and how they travel with a ranker."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss

import rankstruct as rs
from rankstruct.calibration import METHODS, reliability
from rankstruct.metric import CalibrationMetric
from rankstruct.models import export_scorer, load_scorer, save_scorer
from rankstruct.models.scorers import ProbabilityScorer

SIZES = np.full(100, 20)


def drawn(seed=0, lists=100):
    """Features, labels and lists, of which the first feature says how probable relevance is."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20 * lists, 3))
    y = (rng.random(len(X)) < 1 / (1 + np.exp(2 - 2 * X[:, 0]))).astype(int)
    return X, y, np.repeat(np.arange(lists), 20)


def test_each_method_increases_and_finds_the_truth():
    scores, labels, _ = drawn(lists=1000)
    scores = scores[:, 0]
    truth = 1 / (1 + np.exp(2 - 2 * scores))
    for method in METHODS:
        given = 2 * scores - 2 if method == "temperature" else scores
        step = rs.Calibration(method).fit(given, labels, group=np.full(1000, 20))
        found = step.predict(given).numpy()
        assert (np.diff(found[np.argsort(given)]) >= 0).all()
        assert np.abs(found - truth).mean() < 0.02
        assert found.min() > 0
        assert found.max() < 1
        assert step.predict([-np.inf, np.inf]).isfinite().all() or method != "isotonic"


@pytest.mark.parametrize("method", METHODS)
def test_probabilities_do_not_depend_on_the_unit_of_scores(method):
    scores, labels, _ = drawn()
    scores = scores[:, 0]
    expected = rs.Calibration(method).fit(scores, labels, group=SIZES).predict(scores)
    for power in (-660, 660, 1020):
        given = np.ldexp(scores, power)
        torch.testing.assert_close(rs.Calibration(method).fit(given, labels, group=SIZES).predict(given), expected)


def test_values_are_those_of_scikit_learn():
    scores, labels, _ = drawn()
    scores, grid = scores[:, 0], np.linspace(-5, 5, 101)
    n = len(scores)
    isotonic = IsotonicRegression(y_min=1 / (n + 2), y_max=(n + 1) / (n + 2), out_of_bounds="clip").fit(scores, labels)
    step = rs.Calibration("isotonic").fit(scores, labels, group=SIZES)
    np.testing.assert_allclose(step.predict(grid), isotonic.predict(grid), atol=1e-6)
    # Platt's smoothed targets as weights of both classes.
    good = labels.sum()
    t = np.where(labels, (good + 1) / (good + 2), 1 / (n - good + 2))
    logistic = LogisticRegression(C=np.inf, tol=1e-10).fit(
        np.tile(scores, 2)[:, None], np.repeat([1, 0], n), sample_weight=np.concatenate([t, 1 - t])
    )
    step = rs.Calibration("sigmoid").fit(scores, labels, group=SIZES)
    np.testing.assert_allclose(step.predict(grid), logistic.predict_proba(grid[:, None])[:, 1], atol=1e-5)


def test_scores_that_say_nothing_or_the_opposite_give_the_mean_and_no_order():
    scores, labels, _ = drawn()
    for method in ("isotonic", "sigmoid", "beta"):
        found = rs.Calibration(method).fit(-scores[:, 0], labels, group=SIZES).predict(scores[:, 0])
        assert float(found.max() - found.min()) < 1e-6
        assert float(found.mean()) == pytest.approx(labels.mean(), abs=1e-3)


def test_padding_grades_and_precision():
    scores, labels = torch.tensor([[3.0, 1.0, 2.0, 9.0]]), torch.tensor([[2, 1, 0, 2]])
    where = torch.tensor([[True, True, True, False]])
    padded = rs.Calibration("sigmoid", min_relevant=2).fit(scores, labels, where=where)
    flat = rs.Calibration("sigmoid", min_relevant=2).fit(scores[where], labels[where], group=[3])
    assert torch.equal(padded.fitted, flat.fitted)
    assert padded.predict([1.0]) < padded.predict([3.0])
    found = padded.half()(torch.tensor([2.5], dtype=torch.float16))  # the step itself keeps its precision
    assert found.dtype == torch.float16
    assert padded.fitted.dtype == torch.float64


def test_log_loss_brier_and_ece_are_those_of_scikit_learn_and_of_a_loop():
    rng = np.random.default_rng(3)
    p = rng.random(2000).round(3)
    y = (rng.random(2000) < p**2).astype(int)
    found = rs.calibration.evaluate_probabilities(p, y, group=SIZES, bins=7, resamples=300)
    assert found["log loss"][0] == pytest.approx(log_loss(y, np.clip(p, 1e-15, 1 - 1e-15)), rel=1e-9)
    assert found["Brier"][0] == pytest.approx(brier_score_loss(y, p), rel=1e-12)
    table = reliability(p, y, bins=7, group=SIZES)
    assert table[:, 0].sum() == 2000
    assert np.ptp(table[:, 0]) < 10
    assert found["ECE"][0] == pytest.approx(np.sum(table[:, 0] / 2000 * np.abs(table[:, 1] - table[:, 2])))
    for value, low, high in found.values():
        assert low < value < high
    metric = CalibrationMetric(bins=7)
    for at in range(0, 2000, 500):
        metric.update(torch.tensor(p[at : at + 500]).reshape(-1, 20), torch.tensor(y[at : at + 500]).reshape(-1, 20))
    assert {name: float(value) for name, value in metric.compute().items()} == pytest.approx(
        {name: value[0] for name, value in found.items()}
    )


def test_a_tie_of_most_documents_has_a_bin_of_its_own():
    """As isotonic regression ties the worst; above and below it are others."""
    p = np.concatenate([[0.01], np.full(90, 0.1), [0.6] * 5, [0.9] * 4])
    found = reliability(p, p > 0.5, group=[100])
    np.testing.assert_allclose(found, [[1, 0.01, 0], [90, 0.1, 0], [9, (0.6 * 5 + 0.9 * 4) / 9, 1]])


def test_the_interval_is_of_lists_and_not_of_documents():
    p, y = np.full(2000, 0.5), np.repeat(np.arange(100) % 2, 20)  # of each list all, or none
    narrow = rs.calibration.evaluate_probabilities(p, y, group=np.ones(2000, int), resamples=500)["ECE"]
    wide = rs.calibration.evaluate_probabilities(p, y, group=SIZES, resamples=500)["ECE"]
    assert wide[2] > 3 * narrow[2]


RANKERS = {
    "linear": lambda: rs.LinearRanker(calibrate="isotonic"),
    "raw linear": lambda: rs.LinearRanker(calibrate="beta", prepare=()),
    "MLP": lambda: rs.MLPRanker(calibrate=rs.Calibration("sigmoid", share=0.4), max_epochs=2, device="cpu"),
    "ensemble": lambda: rs.EnsembleRanker([rs.LinearRanker()], calibrate="temperature"),
}


@pytest.mark.parametrize("make", RANKERS.values(), ids=RANKERS)
def test_the_step_travels_with_the_ranker(make, tmp_path):
    X, y, qid = drawn()
    ranker = clone(make()).fit(X, y, qid)
    both = ranker.predict_proba(X, qid)
    assert both.shape == (len(X), 2)
    assert np.allclose(both.sum(1), 1)
    order = np.argsort(ranker.predict(X, qid))
    assert (np.diff(both[order, 1]) >= 0).all()
    again = pickle.loads(pickle.dumps(ranker))
    assert np.array_equal(again.predict_proba(X, qid), both)
    save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    scorer, features = load_scorer(tmp_path / "scorer.pt"), torch.tensor(X, dtype=torch.float32).reshape(100, 20, 3)
    with torch.inference_mode():
        np.testing.assert_allclose(scorer.calibration(scorer(features)).reshape(-1), both[:, 1], atol=2e-3)
        probability = ProbabilityScorer(scorer)
        save_scorer(probability, tmp_path / "probability.pt")
        expected = probability(features)
        assert torch.equal(load_scorer(tmp_path / "probability.pt")(features), expected)


@pytest.mark.parametrize("method", ["isotonic", "beta"])
def test_probabilities_are_exported_to_onnx_and_refused_for_other_engines(method, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y, qid = drawn()
    scorer = ProbabilityScorer(rs.LinearRanker(calibrate=method, prepare=()).fit(X, y, qid).to_scorer())
    export_scorer(scorer, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    features = X.astype(np.float32).reshape(100, 20, 3)
    (found,) = session.run(None, {session.get_inputs()[0].name: features})
    np.testing.assert_allclose(found, scorer(torch.from_numpy(features)).detach(), atol=1e-5)
    with pytest.raises(ValueError, match="engines compute scores, whose order is that of the probabilities"):
        export_scorer(scorer, tmp_path / "model.json", "solr")


def test_the_lists_that_calibrate_train_nothing():
    X, y, qid = drawn()
    X_valid, y_valid, qid_valid = drawn(1, 30)
    valid = {"X_valid": X_valid, "y_valid": y_valid, "qid_valid": qid_valid}
    plain = rs.LinearRanker().fit(X, y, qid, **valid)
    given = rs.LinearRanker(calibrate="isotonic").fit(X, y, qid, **valid)
    assert np.array_equal(plain.coef_, given.coef_)
    by_hand = rs.Calibration().fit(plain.predict(X_valid), y_valid, qid=qid_valid)
    assert torch.equal(given.calibration_.fitted, by_hand.fitted)
    held = np.isin(qid, np.random.default_rng(0).permutation(100)[:20])
    rest = rs.LinearRanker().fit(X[~held], y[~held], qid[~held])
    drawn_by_seed = rs.LinearRanker(calibrate="sigmoid").fit(X, y, qid)
    assert np.array_equal(rest.coef_, drawn_by_seed.coef_)
    by_hand = rs.Calibration("sigmoid").fit(rest.predict(X[held]), y[held], qid=qid[held])
    assert torch.equal(drawn_by_seed.calibration_.fitted, by_hand.fitted)


def test_errors_name_what_is_wrong():
    X, y, qid = drawn()
    cases = {
        r"calibrate must be one of 'isotonic', .* got 'isotonc'; did you mean": lambda: rs.LinearRanker(
            calibrate="isotonc"
        ),
        "calibrate holds lists out, and there is only one": lambda: rs.LinearRanker(calibrate="isotonic"),
    }
    for (message, make), lists in zip(cases.items(), (qid, np.zeros(len(y), int)), strict=True):
        with pytest.raises(ValueError, match=message):
            make().fit(X, y, lists)
    with pytest.raises(ValueError, match="calibrate needs labels, and clicks by position are none"):
        rs.LinearRanker(calibrate="isotonic").fit(
            X, y, qid, position=np.tile(np.arange(1, 21), 100), propensity=1 / np.arange(1, 21)
        )
    with pytest.raises(AttributeError, match="calibrate='isotonic' makes them probabilities"):
        rs.LinearRanker().fit(X, y, qid).predict_proba(X)
    with pytest.raises(ValueError, match=r"^method must be one of 'isotonic'"):
        rs.Calibration("platt")
    with pytest.raises(ValueError, match="bins must be an integer"):
        CalibrationMetric(bins=0)
    with pytest.raises(ValueError, match="not fitted"):
        rs.Calibration().predict([1.0])
    with pytest.raises(ValueError, match="got 0 relevant of 3"):
        rs.Calibration().fit([1.0, 2.0, 3.0], [0, 0, 0], group=[3])
    with pytest.raises(ValueError, match=r"probabilities must be from 0 to 1, got 2; pass predict_proba"):
        rs.calibration.evaluate_probabilities([0.5, 2.0], [0, 1], group=[2])
    with pytest.raises(ValueError, match="scores must be finite, got nan"):
        rs.Calibration().fit([1.0, np.nan, 3.0], [0, 1, 0], group=[3])
    with pytest.raises(ValueError, match="bins must be an integer"):
        rs.calibration.evaluate_probabilities([0.5], [0], bins=0, group=[1])


def test_a_metric_without_documents_is_nan_and_padding_adds_nothing():
    metric, p, labels = CalibrationMetric(bins=2), torch.tensor([[0.9, 0.2]]), torch.tensor([[1, 0]])
    padding = torch.zeros(1, 2, dtype=torch.bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchmetrics', of compute before update
        assert {name: value.isnan().item() for name, value in metric.compute().items()} == {
            "ECE": True,
            "log loss": True,
            "Brier": True,
        }
    metric.update(p, labels, padding)
    assert metric.compute()["ECE"].isnan()
    metric.update(p, labels)
    whole = metric.compute()
    assert whole["Brier"] == pytest.approx((0.1**2 + 0.2**2) / 2)
    metric.reset()
    metric.update(p, labels)
    assert metric.compute() == whole
