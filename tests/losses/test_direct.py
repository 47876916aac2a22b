"""Direct loss minimisation by enumeration; the perturbed loss by its mean."""

import numpy as np
import pytest
import torch
from brute_force import all_ranks, measure_values, psi

import rankstruct as rs

PAIRS = [
    (rs.AP(), rs.Pairwise()),
    (rs.nDCG(2), rs.Pairwise()),
    (rs.RR(), rs.FirstRelevant()),
    (rs.nDCG(), rs.Positional("i^-1/2")),
    (rs.nDCG(2), rs.Positional("i^-1/2")),
    (rs.DCG(3), rs.Positional("discount")),
    (rs.measures.WTA(), rs.Positional("1/log2(i+1)")),
]


@pytest.mark.parametrize(("measure", "feature_map"), PAIRS, ids=lambda v: v.name)
def test_equals_its_definition(measure, feature_map):
    rng = np.random.default_rng(0)
    positional = isinstance(feature_map, rs.Positional)
    for _ in range(40):
        n = int(rng.integers(2, 6))
        scores, labels = rng.normal(size=n), rng.integers(0, 4 if positional else 2, size=n).astype(float)
        epsilon = float(rng.choice([0.1, 1.0, 5.0]))
        ranks = all_ranks(n)
        values = measure_values(measure, labels, ranks)
        regret = values.max() - values
        ranking_score = psi(feature_map, measure, labels, ranks) @ scores
        highest = ranking_score.max()
        positive = ((ranking_score + epsilon * regret).max() - highest) / epsilon
        negative = (highest - (ranking_score - epsilon * regret).max()) / epsilon
        if regret.max() < 1e-12:
            positive = negative = 0.0
        expected = {"positive": positive, "negative": negative, "both": (positive + negative) / 2}
        for side in expected if positional else ["positive"]:
            leaf = torch.tensor(scores, requires_grad=True)
            found = rs.DirectLoss(measure, epsilon=epsilon, side=side, feature_map=feature_map)(
                leaf, torch.tensor(labels)
            )
            assert found.item() == pytest.approx(expected[side], abs=1e-9), (side, scores, labels, epsilon)
            found.backward()
            assert leaf.grad.isfinite().all()


def test_tends_to_the_regret_from_both_sides():
    scores, labels = torch.randn(10, 12, dtype=torch.float64), torch.randint(0, 4, (10, 12))
    regret = 1 - rs.evaluate(scores, labels, ["nDCG@5"])["nDCG@5"]
    options = {"feature_map": "positional", "reduction": "none"}
    before = (torch.full((10,), -torch.inf), torch.full((10,), torch.inf))
    for epsilon in (10.0, 1.0, 0.1, 1e-5):
        low, high = (
            rs.DirectLoss("nDCG@5", epsilon=epsilon, side=side, **options)(scores, labels)
            for side in ("negative", "positive")
        )
        assert (low <= regret + 1e-9).all()
        assert (high >= regret - 1e-9).all()
        assert (low >= before[0] - 1e-9).all()
        assert (high <= before[1] + 1e-9).all()
        before = (low, high)
    torch.testing.assert_close(low, regret, atol=1e-6, rtol=0)
    torch.testing.assert_close(high, regret, atol=1e-6, rtol=0)


def test_what_is_refused():
    with pytest.raises(ValueError, match="epsilon must be a finite number above 0"):
        rs.DirectLoss("AP", epsilon=0)
    with pytest.raises(ValueError, match="side must be one of"):
        rs.DirectLoss("AP", side="left")
    with pytest.raises(
        ValueError, match="needs a discounted gain such as nDCG and the positional map; got AP and pairwise"
    ):
        rs.DirectLoss("AP", side="both")
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'reference'"):
        rs.DirectLoss("AP", reference="ideal")
    scores, labels = torch.zeros(2, 3), torch.zeros(2, 3)
    for lists, message in (
        ({"mask": labels > 0}, "there is no mask=; pass where="),
        ({"wheer": labels > 0}, "'wheer'"),
    ):
        with pytest.raises(TypeError, match=message):
            rs.PerturbedLoss(rs.StructuredHingeLoss("AP"))(scores, labels, **lists)
    with pytest.raises(TypeError, match="this loss does not support item_weights"):
        rs.PerturbedLoss(rs.StructuredHingeLoss("AP"))(scores, labels, item_weights=torch.ones(2, 3))
    for wrong in ("nDCG@3", None, rs.StructuredHingeLoss, rs.nDCG(3)):
        with pytest.raises(TypeError, match="loss must be a module, such as StructuredHingeLoss"):
            rs.PerturbedLoss(wrong)


def test_perturbed_loss_is_the_mean_over_the_noise():
    torch.manual_seed(0)
    scores, labels = torch.randn(1, 6, dtype=torch.float64), torch.tensor([[0, 1, 0, 0, 1, 0]])
    hinge = rs.StructuredHingeLoss("AP")
    assert torch.equal(rs.PerturbedLoss(hinge, sigma=0.0)(scores, labels), hinge(scores, labels))
    found = rs.PerturbedLoss(hinge, sigma=0.5, samples=2000)(scores, labels)
    many = hinge(scores + 0.5 * torch.randn(2000, 6, dtype=torch.float64), labels.expand(2000, 6))
    assert found.item() == pytest.approx(many.item(), rel=0.05)
    assert found > hinge(scores, labels)  # convex: the mean over noise lies above
    torch.manual_seed(1)
    first = rs.PerturbedLoss(hinge)(scores, labels)
    torch.manual_seed(1)
    assert torch.equal(first, rs.PerturbedLoss(hinge)(scores, labels))
    each = rs.PerturbedLoss(rs.StructuredHingeLoss("AP", reduction="none"), sigma=0.0)
    assert each.reduction == "none"
    assert each(scores, labels).shape == (1,)
    assert torch.equal(each(scores, labels, reduction="sum"), hinge(scores, labels))
    assert repr(each.with_options(samples=2)) == repr(rs.PerturbedLoss(each.loss, sigma=0.0, samples=2))
    with pytest.raises(ValueError, match="samples must be an integer from 1"):
        rs.PerturbedLoss(hinge, samples=0)
