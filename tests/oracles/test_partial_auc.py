"""Partial ROC areas with both pairwise maps: exact against all rankings, and what their bounds are worth."""

from functools import partial

import lanes
import numpy as np
import pytest
import torch
from brute_force import hinges_of_lists, overlap

import rankstruct as rs

WINDOWS = [(0, 0.3, 0), (0, 1, 0), (0.2, 0.7, 0), (0.5, 0.6, 0), (1 / 3, 1, 0.5), (0, 0.4, 0.7), (0.1, 0.35, 0.3)]
MAPS = ["pairwise", "partial-pairwise"]


def measure_of(window):
    low, high, min_tpr = window
    return rs.pAUC(low=low, high=high, min_tpr=min_tpr)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("on_device_path", [False, True], ids=["loops", "kernels"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_equals_enumeration_of_all_rankings(window, on_device_path, monkeypatch):
    if on_device_path:
        lanes.use(monkeypatch)
    rng = np.random.default_rng(len(str(window)))
    measure = measure_of(window)
    for p in range(1, 5):
        for m in range(1, 6 - p // 2):
            lists = 2 if on_device_path else 40
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


def hinge_over_the_window(measure, scores, labels):
    """The mean of max(0, 1 - 2 (relevant - irrelevant score)) over the pairs of the window, one list."""
    good, bad = (np.sort(scores[chosen])[::-1] for chosen in (labels > 0, labels <= 0))
    p, m = len(good), len(bad)
    if p == 0 or m == 0:
        return 0.0
    weights = np.outer(
        overlap(np.arange(p), measure.min_tpr * p, p), overlap(np.arange(m), measure.low * m, measure.high * m)
    )
    return (weights * np.maximum(0, 1 - 2 * (good[:, None] - bad))).sum() / weights.sum()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("on_device_path", [False, True], ids=["loops", "kernels"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_below_window_is_the_mean_hinge_over_the_pairs_of_the_window(window, on_device_path, monkeypatch):
    """Padded and flat, ties, lists without pairs, float64 and float32; above the regret; the gradient that differences have."""
    if on_device_path:
        lanes.use(monkeypatch)
    rng = np.random.default_rng(len(str(window)))
    measure = measure_of(window)
    lists = 3 if on_device_path else 30
    for size, share in ((1, 0.5), (2, 0.5), (7, 0.2), (23, 0.4)):
        scores = rng.normal(size=(lists, size)) * 10.0 ** rng.integers(-1, 2, size=(lists, 1))
        scores[: lists // 3] = np.round(scores[: lists // 3] * 2) / 2
        labels = (rng.random(scores.shape) < share) * rng.choice([0.5, 1, 2], size=scores.shape)
        where = rng.random(scores.shape) < 0.9
        expected = [hinge_over_the_window(measure, s[w], y[w]) for s, y, w in zip(scores, labels, where, strict=True)]
        largest = np.abs(scores).max()
        loss = rs.StructuredHingeLoss(measure, reference="below-window", reduction="none")
        real, y = torch.tensor(where), torch.tensor(labels)
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
            given = torch.tensor(np.where(where, scores, np.nan), dtype=dtype)
            found = loss(given, y, where=real)
            assert found.dtype == dtype
            np.testing.assert_allclose(found.double().numpy(), expected, atol=tolerance * max(1, largest))
            offsets = torch.tensor(np.concatenate([[0], where.sum(1).cumsum()]))
            torch.testing.assert_close(loss(given[real], y[real], offsets=offsets), found)
        given = torch.tensor(scores, requires_grad=True)
        regret = rs.evaluate(given.detach().nan_to_num(), y, [measure], where=real)[measure.name]
        both = ((y > 0) & real).any(1) & ((y <= 0) & real).any(1)
        assert (torch.where(both, 1 - regret, 0) <= torch.tensor(expected) + 1e-9).all()
        assert_gradient(lambda s, y=y[10:], w=real[10:], loss=loss: loss(s, y, where=w).sum(), given.detach()[10:])


def assert_gradient(function, at, step=1e-6):
    """By central differences along random directions; at a point without ties."""
    at = at.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(at), at)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        along = torch.randn(at.shape, generator=generator, dtype=at.dtype)
        slope = (function(at.detach() + step * along) - function(at.detach() - step * along)) / (2 * step)
        torch.testing.assert_close((gradient * along).sum(), slope, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("feature_map", MAPS)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_bounds(window, feature_map):
    """Every bound is above the regret of the ranking by score, the ramp is the lowest, a frozen one above it."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(50, 40, generator=generator, dtype=torch.float64)
    labels = (torch.rand(50, 40, generator=generator) < 0.3).long()
    measure, named = measure_of(window), {"feature_map": feature_map, "reduction": "none"}
    loss = partial(rs.StructuredHingeLoss, measure, **named)
    regret = 1 - measure(scores, labels)
    ideal = loss(reference="ideal")(scores, labels)
    ramp = loss(reference="predicted")(scores, labels)
    before = scores + torch.randn(50, 40, generator=generator, dtype=torch.float64)
    frozen = loss(reference="predicted")(scores, labels, reference_scores=before)
    assert (regret <= ramp + 1e-9).all()
    assert (ramp <= ideal + 1e-9).all()
    assert (ramp <= frozen + 1e-9).all()
    if feature_map == "partial-pairwise":
        inside = loss(reference="below-window")(scores, labels)
        held = loss(reference="below-window")(scores, labels, reference_scores=before)
        assert (regret <= inside + 1e-9).all()
        assert (inside <= held + 1e-9).all()
        if window[0] == 0:
            torch.testing.assert_close(inside, ideal)


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
            lanes.use(monkeypatch)
        scores = torch.randn(len(labels))
        for reference in ("ideal", "predicted", *(["below-window"] if feature_map == "partial-pairwise" else [])):
            options = {"feature_map": feature_map, "reference": reference}
            found = rs.most_violated(scores, torch.tensor(labels), "pAUC(low=0.1,high=0.5,min_tpr=0.5)", **options)
            assert found.value == 0
            assert found.task_loss == 0
            assert torch.equal(found.direction, torch.zeros(len(labels)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("feature_map", MAPS)
@pytest.mark.parametrize("window", [(0, 0.1, 0), (0.02, 0.1, 0), (0.05, 0.5, 0.9)], ids=str)
def test_device_path_agrees_on_long_lists(window, feature_map, monkeypatch):
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(3, 3000, generator=generator, dtype=torch.float64)
    labels = (torch.rand(3, 3000, generator=generator) < torch.tensor([[0.001], [0.2], [0.97]])).long()
    where = torch.rand(3, 3000, generator=generator) < 0.9
    for reference in ("ideal", "predicted", *(["below-window"] if feature_map == "partial-pairwise" else [])):
        options = {"feature_map": feature_map, "reference": reference, "where": where}
        found = rs.most_violated(scores, labels, measure_of(window), **options)
        with monkeypatch.context() as patch:
            lanes.use(patch)
            again = rs.most_violated(scores, labels, measure_of(window), **options)
        torch.testing.assert_close(found.value, again.value, atol=1e-10, rtol=1e-10)
        torch.testing.assert_close((again.direction * scores).sum(1) + again.task_loss, again.value, atol=1e-9, rtol=0)
        assert (found.direction[~where] == 0).all()
        assert not torch.signbit(found.direction[found.direction == 0]).any()


@pytest.mark.parametrize(
    ("feature_map", "reference"),
    [*((each, r) for each in MAPS for r in ("ideal", "predicted")), ("partial-pairwise", "below-window")],
)
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


@pytest.mark.parametrize("kind", ["hinge", "graded", "combined"])
def test_rounds_of_dc_never_raise_the_bound_of_a_window(kind):
    rng = np.random.default_rng(5)
    X, qid = rng.normal(size=(400, 3)), np.repeat(np.arange(8), 50)
    y = np.clip((X @ [1.0, -1.0, 0.5] + rng.normal(size=400) - 1).round(), 0, 2)
    measure = rs.pAUC(low=0.1, high=0.35, min_tpr=0.2)
    loss = {
        "hinge": rs.StructuredHingeLoss(measure, reference="below-window"),
        "graded": rs.GradedLoss(measure, grades=[1, 2], reference="below-window"),
        "combined": rs.CombinedLoss([rs.StructuredHingeLoss(measure, reference="below-window"), rs.RankSVMLoss()]),
    }[kind]
    ranker = rs.LinearRanker(measure, C=10.0, loss=loss, prepare=()).fit(X, y, qid)
    objectives = [each.objective for each in ranker.solution_.history]
    assert (np.diff(objectives) <= 1e-12).all()
    assert objectives[-1] < objectives[0]
    assert ranker.objective(ranker.coef_, X, y, qid) == pytest.approx(ranker.solution_.objective)
    scores = torch.tensor(X @ ranker.coef_)
    offsets = torch.arange(0, 401, 50)
    mean = loss(scores, torch.tensor(y), offsets=offsets).item()
    assert ranker.mean_loss(ranker.coef_, X, y, qid) == pytest.approx(mean, rel=1e-6)
    convex, other = rs.losses.convex_part(loss), scores + torch.tensor(rng.normal(size=400))
    assert rs.losses.is_convex(convex)
    convex.reduction = loss.reduction = "none"
    middle, *ends = (
        convex(s, torch.tensor(y), offsets=offsets) - loss(s, torch.tensor(y), offsets=offsets)
        for s in ((scores + other) / 2, scores, other)
    )
    assert (middle <= (ends[0] + ends[1]) / 2 + 1e-9).all()
