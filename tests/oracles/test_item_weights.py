"""Oracles with item weights: exact against all rankings, and against SciPy's assignment for long lists."""

import lanes
import numpy as np
import pytest
import torch
from brute_force import hinges, random_list, random_weighted_problem, ranksvm_by_pairs
from combinations import references_of_pairs
from scipy.optimize import linear_sum_assignment

import rankstruct as rs
from rankstruct.oracles.registry import resolve

PAIRS = {
    (measure, feature_map): references
    for (measure, feature_map, diverse), references in references_of_pairs().items()
    if not diverse and resolve(measure, feature_map).takes_item_weights
}


def test_which_measures_have_weights():
    names = {(type(measure).__name__, type(feature_map).__name__) for measure, feature_map in PAIRS}
    assert names == {
        ("AUC", "Pairwise"),
        ("R", "PredictedPositive"),
        ("P", "PredictedPositive"),
        *((name, "Positional") for name in ("nDCG", "DCG", "P", "RBP", "WTA", "ERU", "nERU")),
    }


def errors(rng, measure, feature_map, references, most, dtype):
    """Of the value, and of what task loss and direction add up to, over the size that they are measured by."""
    scores, labels, weights, expected, size = random_weighted_problem(rng, measure, feature_map, most)
    scores = torch.tensor(scores, dtype=dtype)
    if dtype == torch.float32:
        expected = hinges(measure, feature_map, labels, scores.double().numpy(), weights=weights)
    given = scores, torch.tensor(labels), measure
    for reference in references:
        found = rs.most_violated(
            *given, feature_map=feature_map, reference=reference, item_weights=torch.tensor(weights)
        )
        by_direction = found.task_loss.double() + found.direction.double() @ scores.double()
        yield max(abs(value.item() - expected[reference]) for value in (found.value, by_direction)) / size


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_measure_equals_enumeration(dtype):
    rng = np.random.default_rng(0)
    for (measure, feature_map), references in PAIRS.items():
        for _ in range(6 if dtype == torch.float64 else 2):
            worst = max(errors(rng, measure, feature_map, references, 5, dtype))
            assert worst < (4e-9 if dtype == torch.float64 else 4e-5), (measure.name, feature_map.name)


@pytest.mark.parametrize(
    ("where_loops_are_not", "one_in"), [(False, 9), (True, 63), pytest.param(True, 9, marks=pytest.mark.soak)]
)
def test_layouts_and_weights_of_0(where_loops_are_not, one_in, monkeypatch):
    """A document of weight 0 is gone, in ragged padded and flat lists, with reference scores, on other devices too."""
    if where_loops_are_not:
        lanes.use(monkeypatch)
    rng = np.random.default_rng(1)
    for (measure, feature_map), references in list(PAIRS.items())[::one_in]:
        lists = [random_list(rng, isinstance(feature_map, rs.Positional), 5)[:2] for _ in range(8)]
        rows = np.full((8, 7), np.nan), np.full((8, 7), np.nan), np.full((8, 7), np.nan)
        chosen, kept = rng.normal(size=(8, 7)), rng.random((8, 7)) < 0.8
        for row, (scores, labels) in enumerate(lists):
            for values, its in zip(rows, (scores, labels, rng.integers(1, 4, len(scores)) / 2), strict=True):
                values[row, : len(scores)] = its
        where = torch.tensor(~np.isnan(rows[0]))
        each = np.where(kept, rows[2], 0.0)
        kept &= where.numpy()
        scores, labels, weights = map(torch.tensor, (*rows[:2], each))
        fixed = torch.tensor(chosen)
        flat = {"offsets": torch.tensor([0, *where.sum(1).cumsum(0).tolist()])}
        for reference in references:
            how = {"feature_map": feature_map, "reference": reference}
            more = {} if reference == "ideal" else {"reference_scores": fixed}
            found = rs.most_violated(scores, labels, measure, where=where, item_weights=weights, **how, **more)
            assert (found.direction[~torch.tensor(kept)] == 0).all()
            for row in range(8):
                its = kept[row]
                given = rows[1][row, its], rows[0][row, its], None if reference == "ideal" else chosen[row, its]
                expected = hinges(measure, feature_map, *given, weights=each[row, its])[reference]
                size = max(1.0, np.abs(given[1]).max(initial=0))
                assert found.value[row].item() == pytest.approx(expected, abs=4e-9 * size), (measure.name, reference)
            more = {} if reference == "ideal" else {"reference_scores": fixed[where]}
            again = rs.most_violated(
                scores[where], labels[where], measure, item_weights=weights[where], **flat, **how, **more
            )
            torch.testing.assert_close(again.value, found.value)
            torch.testing.assert_close(again.direction, found.direction[where])


@pytest.mark.parametrize("kind", ["random", "tied", "clicks"])
def test_long_lists_have_scipys_value(kind):
    rng = np.random.default_rng(2)
    for measure, feature_map in [pair for pair in PAIRS if isinstance(pair[1], rs.Positional)][::11]:
        n = int(rng.integers(40, 120))
        labels = (rng.random(n) < 0.2).astype(float) if kind == "clicks" else rng.integers(0, 4, n).astype(float)
        scores = np.round(rng.normal(size=n)) if kind == "tied" else rng.normal(size=n)
        weights = np.minimum(rng.permutation(n) + 1.0, 20) if kind == "clicks" else rng.random(n) + 0.1
        a = measure.unchecked_weights(n).numpy()
        c = feature_map.weights(n, torch.tensor(a), measure.cutoff).numpy()
        gains = measure.document_gains(torch.tensor(labels)).numpy() * weights
        best = a @ np.sort(gains)[::-1]
        unit = 1 / best if measure.normalized else 1.0
        value = np.outer(scores, c) - np.outer(gains * unit, a)
        rows, columns = linear_sum_assignment(value, maximize=True)
        expected = best * unit + value[rows, columns].sum() - np.sort(scores)[::-1] @ c
        how = {"feature_map": feature_map, "reference": "predicted", "item_weights": torch.tensor(weights)}
        found = rs.most_violated(torch.tensor(scores), torch.tensor(labels), measure, **how)
        expected = 0.0 if a[0] == a[-1] else expected
        assert found.value.item() == pytest.approx(expected, abs=1e-9 * max(1, best)), (measure.name, feature_map.name)


def auc_by_pairs(scores, labels, weights, thresholds):
    """The hinge of AUC at each threshold, summed, and its gradient, by all pairs."""
    value, gradient = 0.0, np.zeros(len(scores))
    for threshold in thresholds:
        its, slope = ranksvm_by_pairs(scores, (labels >= threshold).astype(float), 0.5, weights)
        value, gradient = value + 2 * its, gradient + 2 * slope
    return value, gradient


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sums_over_pairs_equal_all_pairs(dtype):
    """RankSVM with up to as many grades as documents, AUC and its sum over grades, on lists of 0 to 70."""
    rng = np.random.default_rng(3)
    near = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 3e-5, "atol": 3e-5}
    for turn in range(60):
        n = int(rng.integers(0, 70))
        scores = rng.normal(size=n)
        scores = np.round(4 * scores) / 4 if turn % 3 else scores  # differences of the margin, exactly
        labels = rng.integers(0, rng.choice([2, 5, 90]), n).astype(float)
        weights = rng.choice([0.5, 1.0, 3.0], n) if turn % 2 else rng.random(n) * 10 + 0.1
        given = torch.tensor(scores, dtype=dtype).requires_grad_(), torch.tensor(labels)
        exact, each = given[0].detach().double().numpy(), torch.tensor(weights)
        for loss, (value, gradient) in (
            (rs.RankSVMLoss(0.75), ranksvm_by_pairs(exact, labels, 0.75, weights)),
            (rs.StructuredHingeLoss("AUC"), auc_by_pairs(exact, labels, weights, [0.5])),
            (rs.GradedLoss("AUC", grades=[1, 2, 3, 4, 5, 6]), auc_by_pairs(exact, labels, weights, range(1, 7))),
        ):
            found = loss(*given, item_weights=each)
            torch.testing.assert_close(found.double().item(), value, **near)
            if n:
                (slope,) = torch.autograd.grad(found, given[0])
                torch.testing.assert_close(slope.double(), torch.tensor(gradient), **near)


def test_graded_recall_is_the_sum_of_its_thresholds():
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 9, generator=draw, dtype=torch.float64)
    labels, each = torch.randint(0, 4, (5, 9), generator=draw), torch.rand(5, 9, generator=draw) + 0.1
    expected = sum(
        rs.StructuredHingeLoss(rs.measures.R(3, min_relevant=grade))(scores, labels, item_weights=each)
        for grade in (1, 2, 3)
    )
    torch.testing.assert_close(rs.GradedLoss("R@3", grades=[1, 2, 3])(scores, labels, item_weights=each), expected)
    flat = rs.GradedLoss("R@3")(
        scores.flatten(), labels.flatten(), item_weights=each.flatten(), offsets=torch.arange(0, 46, 9)
    )
    torch.testing.assert_close(flat, expected)


@pytest.mark.parametrize("measure", ["AUC", "R@3", "P@3", "nDCG@3", "DCG", "ERU(d=0,half_life=3)"])
def test_weights_of_1_change_no_bit_and_a_bound_is_that_of_the_weighted_measure(measure):
    draw = torch.Generator().manual_seed(1)
    scores, labels = torch.randn(40, 12, generator=draw), torch.randint(0, 2, (40, 12), generator=draw)
    for reference in ("ideal", "ideal-tied", "predicted"):
        loss = rs.StructuredHingeLoss(measure, reference=reference, reduction="none")
        assert torch.equal(loss(scores, labels, item_weights=torch.ones(40, 12)), loss(scores, labels))
        each = torch.rand(40, 12, generator=draw) * 5 + 0.1
        by_score, best = (
            rs.evaluate(given, labels, [measure], item_weights=each)[loss.measure.name]
            for given in (scores, labels * each)
        )
        assert (loss(scores, labels, item_weights=each) >= best - by_score - 1e-5).all()


@pytest.mark.parametrize(
    ("measure", "feature_map", "why"),
    [
        ("AP", None, "AP with the pairwise feature map compares relevant documents with one another"),
        ("RR", None, "depends on a single relevant document"),
        ("Success@3", None, "depends on a single relevant document"),
        ("F1", None, "is not a sum over the relevant documents"),
        ("pAUC(high=0.5)", None, "counts irrelevant documents to find its window"),
        ("nDCG@10", "pairwise", "use the positional map, feature_map='positional'"),
        ("diverse_nDCG@3", None, r"the nearest is 'nDCG@3', without groups"),
    ],
)
def test_refusals_say_why(measure, feature_map, why):
    given = torch.zeros(2, 3), torch.zeros(2, 3)
    with pytest.raises(TypeError, match=f"this loss does not support item_weights: .*{why}"):
        rs.StructuredHingeLoss(measure, feature_map=feature_map)(*given, item_weights=torch.ones(2, 3))
    with pytest.raises(TypeError, match="this loss does not support item_weights; mask documents"):
        rs.DirectLoss("AUC")(*given, item_weights=torch.ones(2, 3))
