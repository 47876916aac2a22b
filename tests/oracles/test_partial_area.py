"""Partial ROC areas with both pairwise maps: exact against all rankings, and what their bounds are worth."""

import numpy as np
import pytest
import torch
from brute_force import hinges_of_lists

import rankstruct as rs
from rankstruct.kernels import dispatch

WINDOWS = [(0, 0.3, 0), (0, 1, 0), (0.2, 0.7, 0), (0.5, 0.6, 0), (1 / 3, 1, 0.5), (0, 0.4, 0.7), (0.1, 0.35, 0.3)]
MAPS = ["pairwise", "partial-pairwise"]


def measure_of(window):
    low, high, min_tpr = window
    return rs.pAUC(low=low, high=high, min_tpr=min_tpr)


@pytest.mark.parametrize("on_device_path", [False, True], ids=["loops", "torch"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_equals_enumeration_of_all_rankings(window, on_device_path, monkeypatch):
    if on_device_path:
        monkeypatch.setattr(dispatch, "has_loops", lambda device: False)
    rng = np.random.default_rng(len(str(window)))
    measure = measure_of(window)
    for p in range(1, 5):
        for m in range(1, 6 - p // 2):
            lists = 40
            scores = rng.normal(size=(lists, p + m)) * 10.0 ** rng.integers(-2, 2, size=(lists, 1))
            scores = np.where(rng.random((lists, 1)) < 0.4, np.round(scores * 2) / 2, scores)
            places = rng.permuted(np.tile(np.arange(p + m), (lists, 1)), axis=1)
            labels = torch.tensor((places < p) * rng.choice([0.5, 1, 2.5], size=places.shape))
            for feature_map in (rs.Pairwise(), rs.PartialPairwise()):
                for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
                    given = torch.tensor(scores, dtype=dtype)
                    expected = hinges_of_lists(measure, feature_map, p, given.double().numpy())
                    allowed = tolerance * np.maximum(1, np.abs(scores).max(1))
                    mixed = given.gather(1, torch.tensor(places))
                    options = {"feature_map": feature_map, "reference": "ideal"}
                    found = rs.most_violated(mixed, labels, measure, **options)
                    assert found.value.dtype == dtype
                    assert (np.abs(found.value.double().numpy() - expected) <= allowed).all()
                    by_direction = found.task_loss + (found.direction * mixed).sum(1)
                    assert (np.abs(by_direction.double().numpy() - expected) <= allowed).all()


@pytest.mark.parametrize("feature_map", MAPS)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_bounds(window, feature_map):
    """Every bound is above the regret of the ranking by score, the ramp is the lowest, a frozen one above it."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(50, 40, generator=generator, dtype=torch.float64)
    labels = (torch.rand(50, 40, generator=generator) < 0.3).long()
    measure, named = measure_of(window), {"feature_map": feature_map, "reduction": "none"}
    regret = 1 - measure(scores, labels)
    ideal = rs.structured_hinge_loss(scores, labels, measure, reference="ideal", **named)
    ramp = rs.structured_hinge_loss(scores, labels, measure, reference="predicted", **named)
    before = scores + torch.randn(50, 40, generator=generator, dtype=torch.float64)
    frozen = rs.structured_hinge_loss(scores, labels, measure, reference="predicted", reference_scores=before, **named)
    assert (regret <= ramp + 1e-9).all()
    assert (ramp <= ideal + 1e-9).all()
    assert (ramp <= frozen + 1e-9).all()


def test_the_whole_window_is_the_roc_area():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(20, 50, generator=generator, dtype=torch.float64)
    labels = torch.randint(2, (20, 50), generator=generator)
    for reference in ("ideal", "predicted"):
        area = rs.most_violated(scores, labels, "AUC", reference=reference)
        for feature_map in MAPS:
            found = rs.most_violated(scores, labels, rs.pAUC(high=1), feature_map=feature_map, reference=reference)
            for each, other in zip(found, area, strict=True):
                torch.testing.assert_close(each, other)


@pytest.mark.parametrize("feature_map", MAPS)
@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 2, 1], [1], [0], []])
def test_lists_that_no_ranking_can_get_wrong(labels, feature_map, monkeypatch):
    for on_device_path in (False, True):
        if on_device_path:
            monkeypatch.setattr(dispatch, "has_loops", lambda device: False)
        scores = torch.randn(len(labels))
        for reference in ("ideal", "predicted"):
            options = {"feature_map": feature_map, "reference": reference}
            found = rs.most_violated(scores, torch.tensor(labels), "pAUC(low=0.1,high=0.5,min_tpr=0.5)", **options)
            assert found.value == 0
            assert found.task_loss == 0
            assert torch.equal(found.direction, torch.zeros(len(labels)))


@pytest.mark.parametrize("feature_map", MAPS)
@pytest.mark.parametrize("window", [(0, 0.1, 0), (0.02, 0.1, 0), (0.05, 0.5, 0.9)], ids=str)
def test_device_path_agrees_on_long_lists(window, feature_map, monkeypatch):
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(3, 3000, generator=generator, dtype=torch.float64)
    labels = (torch.rand(3, 3000, generator=generator) < torch.tensor([[0.001], [0.2], [0.97]])).long()
    where = torch.rand(3, 3000, generator=generator) < 0.9
    for reference in ("ideal", "predicted"):
        options = {"feature_map": feature_map, "reference": reference, "where": where}
        found = rs.most_violated(scores, labels, measure_of(window), **options)
        with monkeypatch.context() as patch:
            patch.setattr(dispatch, "has_loops", lambda device: False)
            again = rs.most_violated(scores, labels, measure_of(window), **options)
        torch.testing.assert_close(found.value, again.value, atol=1e-10, rtol=1e-10)
        torch.testing.assert_close((again.direction * scores).sum(1) + again.task_loss, again.value, atol=1e-9, rtol=0)
        assert (found.direction[~where] == 0).all()
        assert not torch.signbit(found.direction[found.direction == 0]).any()


@pytest.mark.parametrize("reference", ["ideal", "predicted"])
@pytest.mark.parametrize("feature_map", MAPS)
def test_a_linear_ranker_learns_it(feature_map, reference):
    rng = np.random.default_rng(3)
    X, qid = rng.normal(size=(600, 4)), np.repeat(np.arange(6), 100)
    y = (X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=600) > 1.5).astype(int)
    measure = "pAUC(low=0.02,high=0.2)"
    ranker = rs.LinearRanker(measure, C=10.0, feature_map=feature_map, reference=reference).fit(X, y, qid)
    offsets = torch.arange(0, 601, 100)
    reached = rs.evaluate(ranker.predict(X), y, measure, offsets=offsets)["pAUC(low=0.02,high=0.2)"].mean()
    if reference == "ideal":
        assert ranker.solution_.gap <= 1e-2 * ranker.solution_.objective
    assert reached > rs.evaluate(X[:, 0], y, measure, offsets=offsets)["pAUC(low=0.02,high=0.2)"].mean() + 0.1
