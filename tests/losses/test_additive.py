"""The additive losses of ranks: by definition, their tangents, and unbiased over all patterns of clicks."""

import itertools
import math

import numpy as np
import pytest
import torch

import rankstruct as rs
from rankstruct.losses import AdditiveRankLoss


def by_loop(scores, labels, weights, discount="log2", margin=1.0):
    """The loss of one list from its definition."""
    total = 0.0
    for i, (label, weight) in enumerate(zip(labels, weights, strict=True)):
        others = [1 - (scores[i] - s) / margin for j, s in enumerate(scores) if j != i]
        rank = 1 + math.fsum(max(0.0, each) for each in others)
        total += weight * label * (rank - 1 if discount == "linear" else 1 - 1 / math.log2(1 + rank))
    return total


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("discount", ["log2", "linear"])
def test_values_are_those_of_the_definition(discount, dtype):
    rng = np.random.default_rng(0)
    for _ in range(50):
        n, margin = int(rng.integers(0, 30)), float(rng.choice([0.3, 1.0, 2.0]))
        scores = np.round(rng.normal(size=n) * 3, int(rng.integers(0, 3))).astype(np.float32)
        labels, weights = rng.integers(0, 3, n) * 1.0, rng.random(n) + 0.1
        expected = by_loop(scores.tolist(), labels, weights, discount, margin)
        given = torch.tensor(scores, dtype=dtype), torch.tensor(labels, dtype=dtype)
        loss = AdditiveRankLoss(discount, margin=margin)
        found = loss(*given, item_weights=torch.tensor(weights, dtype=dtype)).item()
        assert found == pytest.approx(expected, rel=1e-10 if dtype == torch.float64 else 3e-5, abs=1e-9)


def draw(seed=0, lists=7, size=9):
    generator = torch.Generator().manual_seed(seed)
    scores, fixed = torch.randn(2, lists, size, generator=generator, dtype=torch.float64)
    return scores, torch.randint(0, 2, (lists, size), generator=generator), fixed


def test_it_bounds_what_dcg_and_the_sum_of_ranks_lose():
    scores, labels, _ = draw()
    for factor in (0.1, 1.0, 30.0):
        found = AdditiveRankLoss(reduction="none")(factor * scores, labels)
        dcg = rs.evaluate(factor * scores, labels, "DCG")["DCG"]
        assert (found >= labels.sum(-1) - dcg - 1e-9).all()
        ranks = rs.evaluate(factor * scores, labels, "ARP")["ARP"].abs() * labels.sum(-1)
        assert (AdditiveRankLoss("linear", reduction="none")(factor * scores, labels) >= ranks - labels.sum(-1)).all()
    separated = torch.where(
        labels > 0, scores - scores.min() + 30, scores - 30
    )  # one relevant document: nothing is lost
    alone = labels * (labels.cumsum(-1) == 1)
    assert AdditiveRankLoss()(torch.where(alone > 0, 99.0, separated), alone).item() == 0


def test_tangents_bound_the_loss_and_touch_it():
    scores, labels, fixed = draw(1)
    loss, ideal = AdditiveRankLoss(reduction="none"), AdditiveRankLoss(reference="ideal", reduction="none")
    assert (loss.convex, ideal.convex, AdditiveRankLoss("linear").convex) == (False, True, True)
    found = loss(scores, labels)
    assert (loss(scores, labels, reference_scores=fixed) > found).all()
    assert (ideal(scores, labels) > found).all()
    leaf = scores.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(leaf, labels).sum(), leaf)
    tangent = loss(leaf, labels, reference_scores=scores)
    torch.testing.assert_close(tangent.detach(), found)
    torch.testing.assert_close(torch.autograd.grad(tangent.sum(), leaf)[0], slope)
    offsets = torch.arange(0, 64, 9)
    flat = loss(scores.flatten(), labels.flatten(), offsets=offsets, reference_scores=fixed.flatten())
    torch.testing.assert_close(flat, loss(scores, labels, reference_scores=fixed))
    along = [(1 - t) * scores + t * fixed for t in (0.0, 0.5, 1.0)]
    ends = [loss(each, labels, reference_scores=fixed) for each in along]
    assert (ends[1] <= (ends[0] + ends[2]) / 2 + 1e-9).all()


def test_wrong_references_are_refused():
    scores, labels, fixed = draw()
    with pytest.raises(ValueError, match="does not depend on reference_scores"):
        AdditiveRankLoss("linear")(scores, labels, reference_scores=fixed)
    with pytest.raises(ValueError, match="reference_scores must have the shape and device of scores"):
        AdditiveRankLoss()(scores, labels, reference_scores=fixed[:2])
    with pytest.raises(ValueError, match="margin must be a finite number above 0"):
        AdditiveRankLoss(margin=0)


CLICKS = list(itertools.product([0.0, 1.0], repeat=5))


def expectation(loss, scores, chance, labels, weights):
    """The expected loss over all patterns of clicks, where a document is clicked with a probability of its own."""
    patterns = torch.tensor(CLICKS, dtype=torch.float64)
    probability = torch.where(patterns > 0, chance, 1 - chance).prod(-1)
    found = loss(scores.expand(len(patterns), -1), labels(patterns), item_weights=weights(patterns))
    return (probability * found).sum()


UNBIASED = [
    *(AdditiveRankLoss(discount, reference=r) for discount in ("log2", "linear") for r in ("predicted", "ideal")),
    rs.SoftmaxLoss(),
]


@pytest.mark.parametrize("loss", UNBIASED, ids=repr)
def test_the_expected_loss_over_clicks_is_that_of_the_true_labels(loss):
    """Enumerated: examined at ranks by their propensity, clicked if relevant; and with trust bias, by the affine correction."""
    rng = np.random.default_rng(4)
    loss = loss.with_options(reduction="none")
    for _ in range(40):
        scores = torch.tensor(np.round(rng.normal(size=5), 1))
        relevance, propensity = torch.tensor(rng.random(5)), torch.tensor(1.0 / (1 + rng.permutation(5)))
        relevance = torch.where(torch.tensor(rng.random(5)) < 0.5, relevance.round(), relevance)
        relevance[4] *= loss.takes_negative_labels  # the softmax loss of a list whose labels are all 1 is 0
        truth = loss(scores, relevance)
        inverse = expectation(
            loss,
            scores,
            propensity * relevance,
            lambda c: c,
            lambda c: torch.where(c > 0, 1 / propensity, 1.0),  # noqa: B023
        )
        assert inverse.item() == pytest.approx(truth.item(), abs=1e-9)
        if not loss.takes_negative_labels:
            continue
        a, b = propensity * torch.tensor(rng.random(5) * 0.6 + 0.2), propensity * 0.1
        corrected = expectation(loss, scores, a * relevance + b, lambda c: (c - b) / a, torch.ones_like)  # noqa: B023
        assert corrected.item() == pytest.approx(truth.item(), abs=1e-9)
        naive = expectation(loss, scores, propensity * relevance, lambda c: c, torch.ones_like)
        if relevance[propensity < 1].any():
            assert naive < truth - 1e-3


BIASED = [
    rs.StructuredHingeLoss("AUC"),
    rs.StructuredHingeLoss("DCG@3"),
    rs.StructuredHingeLoss("nDCG@3"),
    rs.StructuredHingeLoss("R@2"),
    rs.RankSVMLoss(),
    rs.ApproxNDCGLoss(ranks="hinge", temperature=1.0),
    rs.ListNetLoss(),
]


@pytest.mark.parametrize("loss", BIASED, ids=repr)
def test_other_losses_are_not_linear_in_the_labels(loss):
    """As their documentation says: with inverse propensities the expected loss is another."""
    loss = loss.with_options(reduction="none")
    scores, relevance = torch.tensor([0.5, 0.1, 0.0, -0.2, -0.3]).double(), torch.tensor([0.0, 1, 0, 1, 0]).double()
    propensity = torch.tensor([1.0, 0.5, 0.3, 0.25, 0.2]).double()
    inverse = expectation(
        loss, scores, propensity * relevance, lambda c: c, lambda c: torch.where(c > 0, 1 / propensity, 1.0)
    )
    assert abs(inverse - loss(scores, relevance)) > 1e-2
