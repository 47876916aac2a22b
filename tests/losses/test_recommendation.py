"""Losses from recommendation against their definitions by plain loops, and what each is compared with."""

import math

import pytest
import torch

import rankstruct as rs
from rankstruct import losses
from rankstruct.losses import recommendation

ACTIVATIONS = {
    "tanh": lambda x: 1 + math.tanh(x),
    "atan": lambda x: max(0.0, 1 + math.atan(x)),
    "relu": lambda x: max(0.0, 1 + x),
}


def sl_at_k(s, p, q, k, temperature, weight_temperature):
    bar = sorted(s, reverse=True)[: min(k, len(s))][-1]
    terms = []
    for share, score in zip(p, s, strict=True):
        weight = 1 / (1 + math.exp((bar - score) / weight_temperature))
        terms.append(share * weight * math.log(sum(math.exp((other - score) / temperature) for other in s)))
    return sum(terms)


def psl(s, p, q, activation, temperature, scale):
    act = ACTIVATIONS[activation]
    each = [math.log(sum(act((other - score) / scale) ** (1 / temperature) for other in s)) for score in s]
    return sum(share * one for share, one in zip(p, each, strict=True))


def bsl(s, p, q, temperature, relevant_temperature):
    below = sum(share * math.exp(score / temperature) for share, score in zip(q, s, strict=True))
    above = sum(share * math.exp(score / relevant_temperature) for share, score in zip(p, s, strict=True))
    return temperature * math.log(below) - relevant_temperature * math.log(above)


def highest(s, shares, kept):
    """The pairs (score, share) of the highest scores, cut at `kept` of the total."""
    left, found = kept, []
    for score, share in sorted(((score, share) for score, share in zip(s, shares, strict=True) if share), reverse=True):
        found.append((score, min(share, max(left, 0.0)) / kept))
        left -= share
    return found


def llpauc(s, p, q, relevant, irrelevant, margin):
    pairs = [(i, j) for i in highest(s, p, relevant) for j in highest(s, q, irrelevant)]
    return sum(a * b * (margin - high + low) ** 2 for (high, a), (low, b) in pairs)


def warp(s, p, q, margin):
    total = 0.0
    for share, score in zip(p, s, strict=True):
        above = [(margin - score + other, weight) for other, weight in zip(s, q, strict=True) if weight]
        above = [(cost, weight) for cost, weight in above if cost >= 0]
        if share and above:
            harmonic = sum(1 / r for r in range(1, len(above) + 1))
            total += share * harmonic * sum(c * w for c, w in above) / sum(w for _, w in above)
    return total


CASES = {
    "SL@K": (losses.TopKSoftmaxLoss, sl_at_k, (3, 0.7, 0.4)),
    "SL@K-long": (losses.TopKSoftmaxLoss, sl_at_k, (50, 2.0, 1.0)),
    **{f"PSL-{a}": (losses.PairwiseSoftmaxLoss, psl, (a, 0.3, 1.5)) for a in ACTIVATIONS},
    "BSL": (losses.BilateralSoftmaxLoss, bsl, (0.5, 1.3)),
    "LLPAUC": (losses.LowerLeftAUCLoss, llpauc, (0.7, 0.25, 0.8)),
    "LLPAUC-all": (losses.LowerLeftAUCLoss, llpauc, (1.0, 1.0, 1.0)),
    "WARP": (losses.WARPLoss, warp, (0.6,)),
}


def lists(seed=0, grades=2):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(5, 14, generator=generator, dtype=torch.float64)
    scores[3] = scores[3].round()  # ties
    labels = torch.randint(0, grades, (5, 14), generator=generator)
    where = torch.rand(5, 14, generator=generator) < 0.8
    labels[:, :2], where[:, :2] = torch.tensor([1, 0]), True
    weights = 0.2 + torch.rand(5, 14, generator=generator, dtype=torch.float64)
    return scores, labels, where, weights


@pytest.mark.parametrize("grades", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("kind", "expected", "options"), list(CASES.values()), ids=list(CASES))
def test_values_are_those_of_the_definition(kind, expected, options, grades, weighted):
    scores, labels, where, weights = lists(grades=grades)
    given = {"item_weights": weights} if weighted else {}
    found = kind(*options, reduction="none")(scores, labels, where=where, **given)
    for row, real in enumerate(where):
        s, y = scores[row, real], labels[row, real].double()
        w = weights[row, real] if weighted else torch.ones_like(s)
        p, q = y * w, (y == 0) * w
        assert float(found[row]) == pytest.approx(
            expected(s.tolist(), *((e / e.sum()).tolist() for e in (p, q)), *options)
        )


@pytest.mark.parametrize(("kind", "options"), [(kind, options) for kind, _, options in CASES.values()], ids=list(CASES))
def test_without_relevant_or_irrelevant_documents_there_is_nothing_to_lose(kind, options):
    scores = torch.tensor([[2.0, 1.0, 0.5], [2.0, 1.0, 0.5], [1.0, 3.0, 0.0]], requires_grad=True)
    labels = torch.tensor([[0, 0, 0], [1, 2, 1], [1, 0, 0]])
    where = torch.tensor([[True] * 3, [True] * 3, [True, False, False]])
    value = kind(*options, reduction="none")(scores, labels, where=where)
    value.sum().backward()
    assert (value == 0).all()
    assert (scores.grad == 0).all()


def test_the_top_weighted_softmax_holds_its_weights():
    """The gradient is that of the sum with the weights found at these scores; far above k they are 1, far below 0."""
    scores, labels, where, _ = lists()
    leaf = scores.requires_grad_()
    losses.TopKSoftmaxLoss(3, 0.7, 0.4, reduction="sum")(leaf, labels, where=where).backward()
    bars = torch.where(where, scores.detach(), -torch.inf).topk(3).values[:, 2:]
    weights = ((scores.detach() - bars) / 0.4).sigmoid()
    again = scores.detach().clone().requires_grad_()
    logs = torch.where(where, again / 0.7, -torch.inf).log_softmax(-1)
    shares = labels * where / (labels * where).sum(-1, keepdim=True)
    (-torch.where(shares > 0, shares * weights * logs, 0.0)).sum().backward()
    torch.testing.assert_close(leaf.grad, again.grad)
    plain = rs.SoftmaxLoss("share", temperature=0.7)(scores, labels, where=where)
    half = losses.TopKSoftmaxLoss(3, 0.7, 1e9)(scores, labels, where=where)
    torch.testing.assert_close(2 * half, plain)


def test_the_bilateral_softmax_tends_to_the_softmax_over_irrelevant_documents():
    scores, labels, where, _ = lists()
    found = losses.BilateralSoftmaxLoss(0.5, 1e9, reduction="none")(scores, labels, where=where)
    relevant = where & (labels > 0)
    below = torch.where(where & ~relevant, scores / 0.5, -torch.inf).logsumexp(-1) - (where & ~relevant).sum(-1).log()
    mean = (scores * relevant).sum(-1) / relevant.sum(-1)
    torch.testing.assert_close(found, 0.5 * below - mean, atol=1e-6, rtol=1e-6)


def test_pairs_in_blocks_are_those_at_once(monkeypatch):
    scores, labels, where, weights = lists(grades=3)
    loss = losses.PairwiseSoftmaxLoss("atan", 0.2, reduction="none")
    outcomes = []
    for pairs in (2**18, 20, 1):
        monkeypatch.setattr(recommendation, "_PAIRS", pairs)
        leaf = scores.clone().requires_grad_()
        value = loss(leaf, labels, where=where, item_weights=weights)
        value.sum().backward()
        outcomes.append((value.detach(), leaf.grad))
    monkeypatch.setattr(recommendation, "takes_loops", lambda scores: False)
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, labels, where=where, item_weights=weights)
    value.sum().backward()
    for found, gradient in outcomes:
        torch.testing.assert_close(found, value.detach())
        torch.testing.assert_close(gradient, leaf.grad)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.TopKSoftmaxLoss(0), "cut-off of TopKSoftmaxLoss must be an integer from 1 to \\d+, got 0"),
        (lambda: losses.TopKSoftmaxLoss(weight_temperature=0.0), "weight_temperature must be a finite number above 0"),
        (lambda: losses.PairwiseSoftmaxLoss("exp"), "activation must be one of 'tanh', 'atan', 'relu', got 'exp'"),
        (lambda: losses.PairwiseSoftmaxLoss(scale=-1.0), "scale must be a finite number above 0"),
        (lambda: losses.BilateralSoftmaxLoss(relevant_temperature=math.inf), "relevant_temperature must be a finite"),
        (
            lambda: losses.LowerLeftAUCLoss(irrelevant=1.5),
            "irrelevant must be a finite number above 0 and at most 1, got 1.5",
        ),
        (lambda: losses.WARPLoss(margin=0.0), "margin must be a finite number above 0"),
    ],
)
def test_options_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()
