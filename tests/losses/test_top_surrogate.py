"""The average and max surrogates of measures of the top against all rankings, against the paper's words, and as bounds."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from brute_force import surrogates_of_lists

import rankstruct as rs

BINARY = "nDCG(min_relevant=1)"
CASES = [
    *((m, kind, "margin") for m in ("P@1", "P@3", "P@10", "WTA", BINARY, f"{BINARY}@3") for kind in ("average", "max")),
    *((m, "average", "margin") for m in ("DCG@2", "ERU(d=0,half_life=3)", "nDCG(min_relevant=1,discount='letor')@3")),
    *((m, kind, "slack") for m in ("P@1", "P@3", "WTA") for kind in ("average", "max")),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("measure", "kind", "rescaling"), CASES)
def test_the_maximum_is_that_over_all_rankings(measure, kind, rescaling, dtype):
    rng = np.random.default_rng(0)
    for n, p in [(size, p) for size in range(6) for p in range(size + 1)]:
        scores = rng.normal(size=(12, n)) * rng.choice([1e-3, 0.3, 1.0, 100.0], size=(12, 1))
        scores[::3] = scores[::3].round()
        expected = surrogates_of_lists(rs.parse_measure(measure), kind, rescaling, p, scores)
        padded, labels = np.full((12, 7), np.nan), np.full((12, 7), 9.0)
        padded[:, :n], labels[:, :n] = scores, np.arange(n) < p
        places = rng.permuted(np.tile(np.arange(7), (12, 1)), axis=1)
        padded, labels, real = (
            np.take_along_axis(x, places, 1) for x in (padded, labels, np.tile(np.arange(7) < n, (12, 1)))
        )
        tolerance = 1e-9 if dtype == torch.float64 else 1e-5
        found = rs.TopSurrogateLoss(measure, kind, rescaling, reduction="none")(
            torch.tensor(padded, dtype=dtype).view(3, 4, 7),
            torch.tensor(labels).view(3, 4, 7),
            where=torch.tensor(real).view(3, 4, 7),
        )
        atol = tolerance * max(1, np.abs(scores).max(initial=0))
        np.testing.assert_allclose(found.flatten(), expected, atol=atol)


def draw(seed=0, n=9):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(400, n, generator=generator, dtype=torch.float64) * torch.rand(400, 1, generator=generator)
    return scores, torch.randint(0, 2, (400, n), generator=generator)


def ramp(measure):
    return rs.StructuredHingeLoss(measure, feature_map=rs.Positional("discount"), reduction="none")


def by_sets(scores, labels, k):
    """Ramp, average and max surrogate of precision at k, over k, over all sets of k documents of one list with k relevant."""
    relevant = [i for i in range(len(scores)) if labels[i]]
    found = {"ramp": [], "average": [], "max": []}
    for chosen in itertools.combinations(range(len(scores)), k):
        missed = sorted(scores[i] for i in relevant if i not in chosen)
        wrong = [scores[i] for i in chosen if i not in relevant]
        start = len(wrong) + sum(wrong)
        found["average"].append(start - (len(wrong) * sum(missed) / len(missed) if missed else 0))
        found["max"].append(start - sum(missed[: len(wrong)]))
        best = sum(sorted((scores[i] for i in relevant), reverse=True)[:k])
        found["ramp"].append(len(wrong) + sum(scores[i] for i in chosen) - best)
    return {name: max(values) / k for name, values in found.items()}


def test_precision_at_k_is_the_paper_s_over_k():
    scores, labels = draw()
    labels[:, :4] = 1
    for k in (1, 2, 4):
        expected = [by_sets(s, y, k) for s, y in zip(scores[:60].tolist(), labels[:60].tolist(), strict=True)]
        losses = {kind: rs.TopSurrogateLoss(f"P@{k}", kind, reduction="none") for kind in ("average", "max")}
        losses["ramp"] = ramp(f"P@{k}")
        for name, loss in losses.items():
            np.testing.assert_allclose(loss(scores[:60], labels[:60]), [each[name] for each in expected], atol=1e-12)


@pytest.mark.parametrize("measure", ["P@1", "P@3", "P@8", f"{BINARY}@3", BINARY])
def test_they_ascend_from_the_regret(measure):
    scores, labels = draw()
    judged = rs.parse_measure(measure)
    regret = judged.best_value(labels) - judged(scores, labels)
    unit = (
        torch.tensor(1.0)
        if measure.startswith("P")
        else rs.DCG(judged.cutoff).best_value(labels).clamp(min=1).unsqueeze(-1)
    )
    low, options = ramp(judged)(scores / unit, labels), {"reduction": "none"}
    average, most = (rs.TopSurrogateLoss(judged, kind, **options)(scores, labels) for kind in ("average", "max"))
    pairs = [(regret, low), (regret, average), (average, most), (low, most)]
    if measure.startswith("P"):
        slack = [rs.TopSurrogateLoss(judged, kind, "slack", **options)(scores, labels) for kind in ("average", "max")]
        pairs += [(low, average), (regret, slack[0]), tuple(slack)]
    if measure == "P@1":
        pairs += [(rs.RR().best_value(labels) - rs.RR()(scores, labels), average)]
    for lower, higher in pairs:
        assert (lower <= higher + 1e-12).all()
    assert (average < most - 0.01).any() or measure == "P@8"


@pytest.mark.parametrize(("measure", "kind", "rescaling"), CASES)
def test_it_is_convex_and_its_gradient_a_subgradient(measure, kind, rescaling):
    (scores, labels), (others, _) = draw(), draw(1)
    loss = rs.TopSurrogateLoss(measure, kind, rescaling, reduction="none")
    assert loss.convex
    scores.requires_grad_()
    values = loss(scores, labels)
    (gradient,) = torch.autograd.grad(values.sum(), scores)
    assert (loss(others, labels) >= values + (gradient * (others - scores)).sum(-1) - 1e-12).all()


@pytest.mark.parametrize("kind", ["average", "max"])
def test_a_gain_is_its_unit_unless_the_measure_is_normalized(kind):
    scores, labels = draw()
    for measure, unit in (("DCG@3", 3), ("nDCG@3", 1)):
        once, more = (
            rs.TopSurrogateLoss(measure, kind=kind, reduction="none")(scores, y) for y in (labels, 2 * labels)
        )
        torch.testing.assert_close(more, unit * once)


@pytest.mark.filterwarnings("ignore:most lists have more relevant documents")
def test_long_lists_are_summed_in_float64():
    scores, labels = draw(n=5000)
    scores = scores[:20].float()
    found, exact = (rs.TopSurrogateLoss("P@10", reduction="none")(s, labels[:20]) for s in (scores, scores.double()))
    assert torch.equal(found, exact.float())


def test_recall_is_a_discounted_gain_of_one_s_own():
    @dataclass(frozen=True)
    class Recall(rs.DiscountedGain):
        normalized = True

        def discounts(self, ranks):
            return torch.ones_like(ranks)

        def gains(self, labels):
            return (labels > 0).double()

    scores, labels = draw()
    found = rs.TopSurrogateLoss(Recall(4), reduction="none")(scores, labels)
    precision = rs.TopSurrogateLoss("P@4", reduction="none")(scores, labels)
    torch.testing.assert_close(found * labels.sum(-1).clamp(1, 4), 4 * precision)
    assert rs.TopSurrogateLoss(Recall(4), rescaling="slack").rescaling == "slack"


def test_an_exact_fit_learns_and_is_certified():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(1200, 5)), np.repeat(np.arange(40), 30)
    y = (X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=1200) > 1.5).astype(int)
    ranker = rs.LinearRanker("P@5", C=100.0, loss=rs.TopSurrogateLoss("P@5")).fit(X, y, qid)
    assert ranker.solution_.gap < 1e-3
    assert ranker.score(X, y, qid) > 0.9 * rs.LinearRanker("P@5").fit(X, y, qid).score(X, y, qid)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure": "AP"}, "discounted gains, got AP"),
        ({"measure": "RR@10"}, "for RR use P@1"),
        ({"measure": "nDCG@10", "rescaling": "slack"}, "as in P@k and WTA, got nDCG@10; use rescaling='margin'"),
        ({"measure": "P@10", "rescaling": "both"}, "rescaling must be one of 'margin', 'slack', got 'both'"),
        ({"measure": "P@10", "kind": "ramp"}, "kind must be one of 'average', 'max', got 'ramp'"),
    ],
)
def test_what_it_does_not_take_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        rs.TopSurrogateLoss(**options)


def test_several_gains_are_refused_by_place():
    with pytest.raises(
        ValueError, match=r"one gain under nDCG@10: set min_relevant=.*; that of document \[0, 1\] is 1"
    ):
        rs.TopSurrogateLoss("nDCG@10")(torch.zeros(1, 3), torch.tensor([[0, 1, 2]]))
