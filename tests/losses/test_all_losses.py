"""What every loss of the package keeps, one test for one property.

A new loss is tested as soon as `rankstruct.losses` exports it: with its defaults and everything that holds for most losses. One
that needs arguments, or for which less holds, is one line in LOSSES.
"""

import pickle
import re
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, fields

import lanes
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import rankstruct as rs
from rankstruct import losses
from rankstruct.kernels import dispatch


@dataclass(frozen=True)
class Case:
    """A loss and what holds for it.

    Attributes:
        make: `(reduction)` to the module.
        shift_invariant: adding a number to all scores of a list changes nothing.
        pairs: a list without two documents that differ costs exactly 0; else every document counts.
        input_order: what stands in input order where it is equal, so that the order of the input matters: "scores", "labels",
            or nothing.
        takes_groups: it is called with the group of each document.
        signed: it is a regression, to which labels below 0 are as good as others.
        item_weights: it knows documents of different weights.
        held: its gradient holds something fixed that its value does not.
    """

    make: Callable[..., torch.nn.Module]
    shift_invariant: bool = True
    pairs: bool = True
    input_order: str = ""
    takes_groups: bool = False
    signed: bool = False
    item_weights: bool = True
    held: bool = False

    def groups(self, groups=None):
        """The arguments besides the lists, with the groups of `draw` by default."""
        return {"diversity_groups": GROUPS if groups is None else groups} if self.takes_groups else {}


#: Losses of an oracle, and surrogates like them: only some know documents of different weights.
ORACLES = {rs.StructuredHingeLoss, rs.GradedLoss, rs.DirectLoss, rs.TopSurrogateLoss}


def case(kind, *args, **options):
    holds = {each.name: options.pop(each.name) for each in fields(Case)[1:] if each.name in options}
    if kind in ORACLES:
        holds["item_weights"] = kind(*args, **options).takes_item_weights
    return Case(lambda **given: kind(*args, **options, **given), **holds)


def combined(reduction="mean", **options):
    """AP and RR at once."""
    parts = [rs.StructuredHingeLoss("AP"), rs.StructuredHingeLoss("RR@10")]
    return rs.CombinedLoss(parts, [1.0, 0.1], reduction=reduction, **options)


ALONE = {"shift_invariant": False, "pairs": False}
TEACHER = {"pairs": False, "signed": True}
GROUPS = torch.randint(0, 5, (6, 12), generator=torch.Generator().manual_seed(2))

LOSSES = [
    *((measure, case(rs.StructuredHingeLoss, measure)) for measure in ("AP", "AUC", "RR@10")),
    *((measure, case(rs.StructuredHingeLoss, measure)) for measure in ("R@4", "Success@3")),
    ("F1@5", case(rs.StructuredHingeLoss, "F1@5", input_order="labels")),
    *((measure, case(rs.StructuredHingeLoss, measure, **ALONE)) for measure in ("F1", "Accuracy")),
    ("pAUC", case(rs.StructuredHingeLoss, "pAUC(low=0.1,high=0.6)", feature_map="pairwise", reference="ideal")),
    *(
        (
            f"pAUC-partial-{r}",
            case(rs.StructuredHingeLoss, "pAUC(high=0.3)", feature_map="partial-pairwise", reference=r),
        )
        for r in ("ideal", "predicted")
    ),
    ("pAUC-below-window", case(rs.StructuredHingeLoss, "pAUC(low=0.1,high=0.6)", reference="below-window")),
    ("nDCG@10-ideal", case(rs.StructuredHingeLoss, "nDCG@10", reference="ideal", input_order="labels")),
    ("SVMmrr", case(rs.StructuredHingeLoss, "RR@10", feature_map="first-relevant", reference="ideal")),
    *(
        (f"nDCG@10-{r}", case(rs.StructuredHingeLoss, "nDCG@10", feature_map="positional", reference=r))
        for r in ("ideal-tied", "predicted")
    ),
    (
        "Diverse-nDCG@3-ideal",
        case(rs.StructuredHingeLoss, "diverse_nDCG@3", reference="ideal", takes_groups=True, input_order="labels"),
    ),
    *(
        (f"Diverse-{m}-{r}", case(rs.StructuredHingeLoss, f"diverse_{m}", reference=r, takes_groups=True))
        for m, r in (("nDCG@3", "ideal-tied"), ("nDCG@3", "predicted"), ("RR@4", "ideal-tied"), ("mWTA", "predicted"))
    ),
    ("Squared-grade", case(rs.SquaredLoss, signed=True, **ALONE)),
    ("Squared-gain", case(rs.SquaredLoss, "gain", **ALONE)),
    ("Classification", case(rs.ClassificationLoss, **ALONE)),
    ("Classification-weighted", case(rs.ClassificationLoss, 2, relevant_weight=3.0, threshold=0.5, **ALONE)),
    ("Classification-lists", case(rs.ClassificationLoss, balance="lists", **ALONE)),
    ("Ordinal-logistic", case(rs.OrdinalLoss, 3, **ALONE)),
    ("Ordinal-hinge", case(rs.OrdinalLoss, 3, "hinge", **ALONE)),
    *((kind.__name__, case(kind, **ALONE)) for kind in (losses.RCRLoss, losses.JRCLoss)),
    ("JRC-gain", case(losses.JRCLoss, grades=5, target="gain", **ALONE)),
    ("RankSVM", case(rs.RankSVMLoss)),
    *(
        (f"Additive-{name}", case(losses.AdditiveRankLoss, pairs=False, signed=True, **options))
        for name, options in (
            ("log2", {}),
            ("linear", {"discount": "linear", "margin": 0.7}),
            ("ideal", {"reference": "ideal"}),
        )
    ),
    ("RankSVM-IR", case(rs.RankSVMLoss, pair_weights=[(2, 0, 1.0), (2, 1, 0.5), (1, 0, 0.2)])),
    ("RankNet", case(rs.RankNetLoss)),
    *((f"Lambda-{s}", case(rs.LambdaLoss, scheme=s, input_order="scores")) for s in ("ndcg1", "ndcg2", "lambdarank")),
    ("Lambda-ndcg2++@3", case(rs.LambdaLoss, "nDCG@3", scheme="ndcg2++", input_order="scores")),
    ("ListNet", case(rs.ListNetLoss)),
    ("ListNet-gain", case(rs.ListNetLoss, "gain")),
    ("ListMLE", case(rs.ListMLELoss)),
    *((f"Smooth-{m}", case(rs.SmoothLoss, m, sigma=0.7)) for m in ("nDCG", "nDCG@3")),
    *((f"SoftRank-{m}", case(rs.SoftRankLoss, m, sigma=0.7)) for m in ("nDCG", "nDCG@3")),
    *((f"SoftRank-{r}", case(rs.SoftRankLoss, "nDCG@3", ranks=r)) for r in ("normal", "joint")),
    *((f"Graded-{m}", case(rs.GradedLoss, m, grades=[1, 2])) for m in ("AUC", "AP")),
    ("Graded-predicted", case(rs.GradedLoss, "AP", grades=[1, 2], reference="predicted")),
    ("Direct-AP", case(rs.DirectLoss, "AP", epsilon=0.5)),
    ("Direct-both", case(rs.DirectLoss, "nDCG@3", feature_map="positional", side="both")),
    *((f"{m}-predicted", case(rs.StructuredHingeLoss, m, reference="predicted")) for m in ("AP", "AUC", "RR")),
    *((f"Top-{kind}", case(rs.TopSurrogateLoss, "P@5", kind)) for kind in ("average", "max")),
    ("Top-slack", case(rs.TopSurrogateLoss, "P@5", "max", "slack")),
    ("Top-nDCG@10", case(rs.TopSurrogateLoss, "nDCG(min_relevant=1)@10")),
    ("Combined", case(combined, item_weights=False)),
    ("Combined-shared", case(combined, slack="shared", item_weights=False)),
    ("ApproxNDCG", case(rs.ApproxNDCGLoss)),
    ("ApproxNDCG@3", case(rs.ApproxNDCGLoss, "nDCG@3", temperature=1.0)),
    ("ApproxMRR", case(rs.ApproxNDCGLoss, "RR", temperature=1.0)),
    ("DCG-hinge", case(rs.ApproxNDCGLoss, temperature=1.0, ranks="hinge")),
    ("SmoothAP", case(rs.SmoothAPLoss)),
    ("SmoothAP-relevant", case(rs.SmoothAPLoss, 1.0, min_relevant=1)),
    ("Softmax", case(rs.SoftmaxLoss)),
    ("Softmax-unique", case(rs.SoftmaxLoss, "gain", against="lower")),
    ("Softmax-poly-1", case(rs.SoftmaxLoss, "share", temperature=0.5, epsilon=1.0)),
    ("Softmax-teacher", case(rs.SoftmaxLoss, "teacher", temperature=2.0, divergence=True, **TEACHER)),
    ("Lambda-zero-one", case(rs.LambdaLoss, scheme="uniform", surrogate="zero-one")),
    ("Lambda-hinge", case(rs.LambdaLoss, scheme="lambdarank", surrogate="hinge", input_order="scores")),
    ("Circle", case(rs.CircleLoss, gamma=4.0, shift_invariant=False, held=True)),
    ("SL@K", case(losses.TopKSoftmaxLoss, 4, held=True)),
    *((f"PSL-{a}", case(losses.PairwiseSoftmaxLoss, a, scale=2.0)) for a in ("tanh", "atan", "relu")),
    ("LLPAUC", case(losses.LowerLeftAUCLoss, 0.6, 0.4)),
    ("NeuralSort", case(rs.NeuralSortLoss)),
    ("NeuralNDCG", case(rs.NeuralNDCGLoss)),
    ("NeuralNDCG@3-scaled", case(rs.NeuralNDCGLoss, "nDCG@3", scalings=3)),
    ("MarginMSE", case(rs.MarginMSELoss, **TEACHER)),
    ("MarginMSE-first", case(rs.MarginMSELoss, "first", input_order="labels", **TEACHER)),
    ("RankDistil", case(rs.RankDistilLoss, k=5, samples=None, **TEACHER)),
    ("ADR-MSE", case(rs.DiscountedRankMSELoss, **TEACHER)),
]
#: Modules that have no case: bases, another contract than that of lists, random ones.
WITHOUT = {"RankingLoss", "HingeLoss", "AssignmentHingeLoss", "PerturbedLoss", "PLRankLoss", "ExposureLoss"}


def exported():
    """The exported loss modules by name."""
    kinds = {name: kind for name, kind in vars(losses).items() if isinstance(kind, type)}
    return {name: kind for name, kind in kinds.items() if issubclass(kind, losses.RankingLoss)}


_covered = {type(its.make()) for _, its in LOSSES}
LOSSES += [(name, case(kind)) for name, kind in exported().items() if kind not in _covered and name not in WITHOUT]
#: What is said of labels below 0.
WAY_OUT = r"labels must be 0 or more \(.* where=labels >= 0; .*\)"
every_loss = pytest.mark.parametrize("its", [its for _, its in LOSSES], ids=[name for name, _ in LOSSES])


def draw(lists=6, size=12, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(lists, size, generator=generator, dtype=dtype)
    labels = torch.randint(0, 3, (lists, size), generator=generator)
    where = torch.rand(lists, size, generator=generator) < 0.8
    return scores, labels, where


def both_ways(loss, scores, labels, **options):
    """The loss and the gradient of its sum."""
    leaf = scores.detach().clone().requires_grad_()
    value = loss(leaf, labels, **options)
    value.sum().backward()
    return value.detach(), leaf.grad


@pytest.mark.sampled(2)
@every_loss
def test_mask_equals_truncation_whatever_the_padding_holds(its):
    scores, labels, where = draw()
    loss = its.make(reduction="none")
    each = [
        both_ways(loss, scores[row, real], labels[row, real], **its.groups(GROUPS[row, real]))
        for row, real in enumerate(where)
    ]
    alone, its_gradient = (torch.stack([value for value, _ in each]), torch.cat([slope for _, slope in each]))
    for junk in (torch.nan, torch.inf, 1e30):
        poisoned = torch.where(where, scores, junk), torch.where(where, labels.double(), -junk)
        diversity_groups = torch.where(where, GROUPS, 2)
        value, gradient = both_ways(loss, *poisoned, where=where, **its.groups(diversity_groups))
        torch.testing.assert_close(value, alone)
        torch.testing.assert_close(gradient[where], its_gradient)
        assert (gradient[~where] == 0).all()


@pytest.mark.sampled(2)
@every_loss
def test_a_list_all_padding_costs_nothing_and_is_not_counted(its):
    scores, labels, where = draw()
    where[2] = False
    scores = torch.where(where, scores, torch.nan)
    each, _ = both_ways(its.make(reduction="none"), scores, labels, where=where, **its.groups())
    mean, gradient = both_ways(its.make(), scores, labels, where=where, **its.groups())
    assert each[2] == 0
    torch.testing.assert_close(mean, each.sum() / 5)
    assert gradient.isfinite().all()
    lists = torch.zeros(2, 3), torch.zeros(2, 3)
    value, gradient = both_ways(its.make(), *lists, where=torch.zeros(2, 3) > 0, **its.groups(GROUPS[:2, :3]))
    assert value == 0
    assert torch.equal(gradient, torch.zeros(2, 3))


@pytest.mark.sampled(3)
@every_loss
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_empty_shapes(its, reduction):
    loss = its.make(reduction=reduction)
    for shape in ((0, 5), (3, 0), (0, 0), (0,), (2, 0, 4), (2, 3, 0)):
        diversity_groups = its.groups(torch.zeros(shape, dtype=torch.int64))
        value, gradient = both_ways(loss, torch.zeros(shape), torch.zeros(shape), **diversity_groups)
        assert value.shape == (shape[:-1] if reduction == "none" else ()), shape
        assert (value == 0).all(), shape
        assert torch.equal(gradient, torch.zeros(shape)), shape


@pytest.mark.sampled(2)
@every_loss
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_lists_without_a_difference(its):
    loss = its.make(reduction="none")
    for scores in (torch.tensor([[0.7], [-2.0]]), torch.tensor([[3.0, -1.0, 2.0], [0.0, 0.0, 1e4]])):
        for label in (0, 1, 2):
            diversity_groups = its.groups(GROUPS[: len(scores), : scores.shape[1]])
            value, gradient = both_ways(loss, scores, torch.full(scores.shape, label), **diversity_groups)
            assert value.isfinite().all()
            assert gradient.isfinite().all()
            if its.pairs:
                assert (value == 0).all()
                assert (gradient == 0).all()


@pytest.mark.sampled(2)
@every_loss
def test_any_leading_dimensions(its):
    scores, labels, where = draw()
    loss = its.make(reduction="none")
    expected = loss(scores, labels, where=where, **its.groups())
    diversity_groups = its.groups(GROUPS.view(2, 3, 12))
    found = loss(scores.view(2, 3, 12), labels.view(2, 3, 12), where=where.view(2, 3, 12), **diversity_groups)
    torch.testing.assert_close(found, expected.view(2, 3))
    alone = loss(scores[0], labels[0], where=where[0], **its.groups(GROUPS[0]))
    assert alone.shape == ()
    torch.testing.assert_close(alone, expected[0])


@pytest.mark.sampled(2)
@every_loss
def test_permuting_a_list_permutes_the_gradient(its):
    if its.input_order == "labels":
        pytest.skip("equal labels stand in input order")
    scores, labels, where = draw()
    loss, order = its.make(), torch.randperm(12, generator=torch.Generator().manual_seed(1))
    value, gradient = both_ways(loss, scores, labels, where=where, **its.groups())
    diversity_groups = its.groups(GROUPS[:, order])
    again, permuted = both_ways(loss, scores[:, order], labels[:, order], where=where[:, order], **diversity_groups)
    torch.testing.assert_close(again, value)
    torch.testing.assert_close(permuted, gradient[:, order])


@pytest.mark.sampled(2)
@every_loss
def test_ties_are_finite_and_do_not_depend_on_the_input_order(its):
    scores, labels, _ = draw()
    loss, order = its.make(reduction="none"), torch.randperm(12, generator=torch.Generator().manual_seed(1))
    for tied in (torch.zeros_like(scores), scores.round()):
        value, gradient = both_ways(loss, tied, labels, **its.groups())
        assert value.isfinite().all()
        assert gradient.isfinite().all()
        if not its.input_order:
            diversity_groups = its.groups(GROUPS[:, order])
            torch.testing.assert_close(loss(tied[:, order], labels[:, order], **diversity_groups), value)


@pytest.mark.sampled(2)
@every_loss
def test_shift_invariance(its):
    scores, labels, where = draw()
    loss = its.make(reduction="none")
    keep = {"where": where, **its.groups()}
    value, gradient = both_ways(loss, scores, labels, **keep)
    shifted, its_gradient = both_ways(loss, scores + torch.arange(6.0).view(6, 1), labels, **keep)
    if its.shift_invariant:
        torch.testing.assert_close(shifted, value)
        torch.testing.assert_close(its_gradient, gradient)
        torch.testing.assert_close(gradient.sum(-1), torch.zeros(6, dtype=torch.float64))
    else:
        assert not torch.allclose(shifted, value)


@pytest.mark.sampled(2)
@every_loss
def test_weights_and_reductions(its):
    scores, labels, where = draw()
    keep = {"where": where, **its.groups()}
    each = its.make(reduction="none")(scores, labels, **keep)
    assert each.shape == (6,)
    torch.testing.assert_close(its.make()(scores, labels, **keep), each.mean())
    torch.testing.assert_close(its.make(reduction="sum")(scores, labels, **keep), each.sum())
    weights = torch.arange(6, dtype=torch.float64)
    keep["weights"] = weights
    torch.testing.assert_close(its.make()(scores, labels, **keep), each @ weights / weights.sum())
    torch.testing.assert_close(its.make(reduction="sum")(scores, labels, **keep), each @ weights)
    torch.testing.assert_close(its.make(reduction="none")(scores, labels, **keep), each * weights)
    assert its.make()(scores, labels, weights=torch.zeros(6), **its.groups()) == 0
    with pytest.raises(ValueError, match=r"weights must be one per list, shape \(6,\); got \(5,\)"):
        its.make()(scores, labels, weights=torch.ones(5), **its.groups())
    for wrong, shown in ((-0.5, "-0.5"), (float("nan"), "nan"), (float("inf"), "inf")):
        bad = torch.ones(6).index_fill(0, torch.tensor([2]), wrong)
        with pytest.raises(ValueError, match=f"weights must be finite and >= 0; that of list 2 is {shown}"):
            its.make()(scores, labels, weights=bad, **its.groups())
    with pytest.raises(ValueError, match="reduction must be one of 'mean', 'sum', 'none', got 'avg'"):
        its.make(reduction="avg")


@pytest.mark.sampled(2)
@every_loss
def test_flat_equals_padded_with_an_empty_list(its):
    scores, labels, where = draw()
    lengths = torch.tensor([5, 0, 12, 1, 12, 7])
    where = torch.arange(12) < lengths.unsqueeze(1)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    for reduction in ("mean", "none"):
        loss = its.make(reduction=reduction)
        value, gradient = both_ways(loss, scores, labels, where=where, **its.groups())
        diversity_groups = its.groups(GROUPS[where])
        flat, its_gradient = both_ways(loss, scores[where], labels[where], offsets=offsets, **diversity_groups)
        torch.testing.assert_close(flat, value)
        torch.testing.assert_close(its_gradient, gradient[where])
    for offsets in (torch.tensor([0]), torch.tensor([0, 0, 0])):
        diversity_groups = its.groups(GROUPS[0, :0])
        value, gradient = both_ways(its.make(), torch.zeros(0), torch.zeros(0), offsets=offsets, **diversity_groups)
        assert value == 0
        assert gradient.shape == (0,)


@pytest.mark.sampled(2)
@every_loss
def test_results_have_the_precision_of_the_scores_and_are_computed_in_more(its):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        scores, labels, where = draw(dtype=dtype)
        keep = {"where": where, **its.groups()}
        value, gradient = both_ways(its.make(), scores, labels, **keep)
        assert value.dtype == gradient.dtype == dtype
        exact, its_gradient = both_ways(its.make(), scores.double(), labels, **keep)
        half = dtype in (torch.bfloat16, torch.float16)
        close = {"rtol": 0.01, "atol": 0.003} if half else {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(value.double(), exact, **close)
        torch.testing.assert_close(gradient.double(), its_gradient, **close)


@pytest.mark.sampled(2)
@every_loss
def test_integer_bool_and_float_labels_are_the_same(its):
    scores, labels, where = draw()
    loss, keep = its.make(), {"where": where, **its.groups()}
    torch.testing.assert_close(loss(scores, labels.double(), **keep), loss(scores, labels.int(), **keep))
    torch.testing.assert_close(loss(scores, labels > 0, **keep), loss(scores, (labels > 0).long(), **keep))


@pytest.mark.sampled(2)
@every_loss
def test_extreme_scores_have_finite_gradients(its):
    for dtype in (torch.float32, torch.float64):
        scores, labels, where = draw(dtype=dtype)
        signs = torch.where(scores > 0, 1e4, -1e4).to(dtype)
        for extreme in (scores * 1e4, signs, -signs, scores * 1e-30, torch.full_like(scores, 1e4)):
            value, gradient = both_ways(its.make(), extreme, labels, where=where, **its.groups())
            assert value.isfinite()
            assert gradient.isfinite().all()


def finite_or_named(loss, scores, labels, **options):
    """The loss is finite and so is its gradient, or a one-line error says that scores or labels are too large for it."""
    try:
        value, gradient = both_ways(loss, scores, labels, **options)
    except ValueError as error:
        if re.fullmatch(".*(too large|too far|finite gains|finite; document|grades from 0 to).*", str(error)):
            return
        raise
    assert value.isfinite().all()
    assert gradient.isfinite().all()


def curved(dtype):
    """Scores, labels and mask of lists in which a formula for curvature may divide 0 by 0, the last four far apart."""
    scores, labels, where = draw(12, 6, dtype=dtype)
    where[:] = True
    where[0, 1:], where[1], where[2, ::2] = False, False, False  # one document; none; some
    scores[3], scores[4] = 0.5, scores[4].round()  # ties
    labels[5], labels[6] = 0, 2
    labels[7], labels[8] = torch.tensor([0, 0, 0, 0, 0, 1]), torch.tensor([2, 2, 2, 2, 2, 0])
    scores[9:] *= torch.tensor([[30.0], [1e4], [1e-30]], dtype=dtype)
    return torch.cat([scores, torch.where(scores[8:9] > 0, 1e3, -1e3).to(dtype)]), *(
        torch.cat([each, each[8:9]]) for each in (labels, where)
    )


@pytest.mark.sampled(2)
@every_loss
@pytest.mark.parametrize("weighted", [False, True], ids=["", "item weights"])
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_second_derivatives_are_finite_and_those_of_finite_differences(its, weighted):
    """By the scores, and by what comes back to each list, which is 0 for some."""
    if weighted and not its.item_weights:
        pytest.skip("it takes no item weights")
    loss = its.make(reduction="none")
    for dtype in (torch.float32, torch.float64):
        scores, labels, where = curved(dtype)
        lists = {"where": where, **its.groups(torch.arange(6).expand(13, 6) % 3)}
        if weighted:
            lists["item_weights"] = torch.arange(6.0, dtype=dtype).expand(13, 6) / 3
        upstream = torch.linspace(0.5, 2, 13, dtype=dtype).index_fill(0, torch.tensor([2, 8, 10]), 0.0).requires_grad_()

        def slope(scores, upstream=upstream, lists=lists, labels=labels):
            scores = scores.requires_grad_()
            return torch.autograd.grad(loss(scores, labels, **lists), scores, upstream, create_graph=True)[0]

        leaf, along = scores.clone(), torch.where(where, scores, 0.0).cos()
        found = slope(leaf)
        if not found.requires_grad:
            return  # linear pieces
        bend, by_upstream = torch.autograd.grad((found * along).sum(), (leaf, upstream), allow_unused=True)
        for each in (bend, by_upstream):
            assert each is None or each.isfinite().all()
        if dtype == torch.float64 and bend is not None and not its.held:
            ahead, behind = (slope(scores + step * along).detach() for step in (1e-5, -1e-5))
            smooth = [row for row in range(13) if row not in (3, 4, 10, 11)]  # ties are kinks of some
            torch.testing.assert_close(bend[smooth], ((ahead - behind) / 2e-5)[smooth], rtol=1e-3, atol=1e-4)


LARGEST = (
    (torch.float32, 1e38),
    (torch.float32, 3e38),
    (torch.float64, 1e300),
    (torch.float64, 1.7e308),
    (torch.bfloat16, 3e38),
    (torch.float16, 6e4),
)


@pytest.mark.sampled(2)
@every_loss
def test_scores_as_large_as_the_dtype_holds_are_finite_or_a_named_error(its):
    scores, labels, where = draw()
    keep = {"where": where, **its.groups()}
    loss = its.make(reduction="none")
    for dtype, largest in LARGEST:
        high = torch.full_like(scores, largest)
        for extreme in (torch.where(scores > 0, high, -high), torch.where(scores > 0.5, high, scores), high):
            for sign in (1, -1):
                finite_or_named(loss, (sign * extreme).to(dtype), labels, **keep)
        if its.pairs and its.shift_invariant:  # all tie, which costs what ties at 0 do
            for tied in (high / 3, -high / 3):
                assert its.make()(tied.to(dtype), labels, **keep).isfinite()


@pytest.mark.sampled(2)
@every_loss
@pytest.mark.filterwarnings("ignore:labels go up to .* outweighs")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_labels_are_finite_or_a_named_error(its, dtype):
    scores, labels, where = draw(dtype=dtype)
    for top in (130, 1000, 1e5, 1e30):
        large = torch.where(labels == 2, top, labels.double())
        finite_or_named(its.make(reduction="none"), scores, large, where=where, **its.groups())
        finite_or_named(its.make(), scores, large, where=where, **its.groups())


@pytest.mark.filterwarnings("ignore:labels go up to .* outweighs")
def test_what_1e38_and_labels_of_1000_gave_as_nan():
    large, labels = torch.tensor([3e38, -3e38]), torch.tensor([1, 0])
    for loss in (rs.ListMLELoss(), rs.SmoothLoss("nDCG")):  # in the right order, however far apart
        value, gradient = both_ways(loss, large, labels)
        assert value == 0
        assert (gradient == 0).all()
    value, gradient = both_ways(rs.SmoothLoss("nDCG"), -large, labels)
    assert 0.36 < value < 0.37
    assert (gradient == 0).all()
    for loss in (rs.SmoothLoss("nDCG"), rs.ListNetLoss("gain")):
        value, gradient = both_ways(loss, torch.tensor([0.5, 0.0]), torch.tensor([0, 1000]))
        assert value.isfinite()
        assert gradient.isfinite().all()
        assert gradient[1] < 0 < gradient[0]
    with pytest.raises(
        ValueError, match=r"the loss of list 1 is inf: scores, labels or weights are too large for torch.float32"
    ):
        rs.SquaredLoss("gain")(torch.zeros(2, 2), torch.tensor([[0, 1], [0, 1000]]))
    with pytest.raises(ValueError, match=r"the loss of all lists together is inf"):
        rs.SquaredLoss(reduction="sum")(torch.full((4, 1), 1.2e19), torch.zeros(4, 1))
    each = rs.SquaredLoss(reduction="none")(torch.full((4, 1), 1.2e19), torch.zeros(4, 1))
    assert each.isfinite().all()
    with pytest.raises(
        ValueError, match="labels go up to 1e\\+09, too many grades to use each as a threshold; pass grades="
    ):
        rs.GradedLoss("AP")(torch.zeros(2), torch.tensor([0, 10**9]))


@pytest.mark.sampled(2)
@every_loss
def test_gradcheck(its):
    if its.held:
        pytest.skip("its gradient is that of another function, which has a test of its own")
    scores, labels, where = draw(lists=3)
    loss = its.make(reduction="none")
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: loss(s, labels, where=where, **its.groups(GROUPS[:3])), scores)
    if its.item_weights:
        each = item_weights_of(scores)
        assert torch.autograd.gradcheck(lambda s: loss(s, labels, where=where, item_weights=each), scores)


def item_weights_of(scores, seed=3):
    """Weights from 0 to 3, some of them 0."""
    drawn = 4 * torch.rand(scores.shape, generator=torch.Generator().manual_seed(seed), dtype=scores.dtype) - 1
    return drawn.clamp(min=0)


@pytest.mark.sampled(2)
@every_loss
def test_item_weights_of_1_change_nothing_and_0_leaves_a_document_out(its):
    scores, labels, where = draw()
    loss = its.make(reduction="none")
    if not its.item_weights:
        with pytest.raises(TypeError, match="this loss does not support item_weights"):
            loss(scores, labels, where=where, item_weights=torch.ones(6, 12), **its.groups())
        expected = loss(scores, labels, where=where, **its.groups())
        assert torch.equal(loss(scores, labels, where=where, item_weights=None, **its.groups()), expected)
        return
    expected, gradient = both_ways(loss, scores, labels, where=where)
    ones = torch.where(where, 1.0, torch.nan)  # padding may hold anything
    found, its_gradient = both_ways(loss, scores, labels, where=where, item_weights=ones)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(its_gradient, gradient)
    kept = where & (torch.rand(6, 12, generator=torch.Generator().manual_seed(4)) < 0.6)
    kept[1] = False
    expected, gradient = both_ways(loss, scores, labels, where=kept)
    found, its_gradient = both_ways(loss, scores, labels, where=where, item_weights=kept.double())
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(its_gradient, gradient)
    assert (its_gradient[~kept] == 0).all()
    mean = its.make()(scores, labels, where=where, item_weights=kept.double())
    torch.testing.assert_close(mean, its.make()(scores, labels, where=kept))


@every_loss
def test_large_item_weights_are_finite_or_a_named_error(its):
    if its.item_weights:
        scores, labels, where = draw()
        for each in (1e-30, 1e30):
            finite_or_named(its.make(), scores, labels, where=where, item_weights=torch.full_like(scores, each))


@pytest.mark.sampled(2)
@every_loss
def test_item_weights_in_every_layout(its):
    if not its.item_weights:
        pytest.skip("takes none")
    scores, labels, where = draw()
    each, loss = item_weights_of(scores), its.make(reduction="none")
    value, gradient = both_ways(loss, scores, labels, where=where, item_weights=each)
    assert value.isfinite().all()
    assert not torch.allclose(value, loss(scores, labels, where=where))
    for row in range(6):
        real = where[row]
        alone, its_gradient = both_ways(loss, scores[row, real], labels[row, real], item_weights=each[row, real])
        torch.testing.assert_close(alone, value[row])
        torch.testing.assert_close(its_gradient, gradient[row, real])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), where.sum(-1).cumsum(0)])
    flat, its_gradient = both_ways(loss, scores[where], labels[where], offsets=offsets, item_weights=each[where])
    torch.testing.assert_close(flat, value)
    torch.testing.assert_close(its_gradient, gradient[where])
    module = loss.requires_grad_(False)
    mapped = torch.func.vmap(lambda s, y, m, w: module(s, y, where=m, item_weights=w))(scores, labels, where, each)
    torch.testing.assert_close(mapped, value)
    low = loss(scores.float(), labels, where=where, item_weights=each.float())
    torch.testing.assert_close(low.double(), value, rtol=1e-3, atol=1e-4)


@every_loss
def test_item_weights_are_checked(its):
    if not its.item_weights:
        pytest.skip("takes none")
    scores, labels, _ = draw()
    loss = its.make()
    for wrong, shown in ((-0.5, "-0.5"), (torch.nan, "nan"), (torch.inf, "inf")):
        each = torch.ones(6, 12)
        each[2, 3] = wrong
        with pytest.raises(
            ValueError, match=rf"item_weights must be finite and >= 0; that of document \[2, 3\] is {shown}"
        ):
            loss(scores, labels, item_weights=each)
    with pytest.raises(ValueError, match=r"item_weights must be one per document, shape \(6, 12\) on cpu; got \(6,\)"):
        loss(scores, labels, item_weights=torch.ones(6))
    with pytest.raises(TypeError, match=r"item_weights must be a torch.Tensor, got list"):
        loss(scores, labels, item_weights=[1.0])


@every_loss
def test_no_tensor_of_the_caller_is_changed(its):
    scores, labels, where = draw()
    given = (scores, labels, where, GROUPS)
    before = [values.clone() for values in given]
    both_ways(its.make(), scores, labels, where=where, **its.groups())
    assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))


@pytest.mark.soak
@every_loss
def test_compiles_as_one_graph(its):
    scores, labels, where = draw(dtype=torch.float32)
    loss = its.make()
    of_items = {"item_weights": item_weights_of(scores)} if its.item_weights else {}
    for given in (
        (scores, labels, {"where": where, "weights": torch.rand(len(scores)), **of_items, **its.groups()}),
        (
            scores.flatten(),
            labels.flatten(),
            {"offsets": torch.tensor([0, 5, 5, 40, 72]), **its.groups(GROUPS.flatten())},
        ),
    ):
        expected, gradient = both_ways(loss, *given[:2], **given[2])
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        found, its_gradient = both_ways(compiled, *given[:2], **given[2])
        torch._dynamo.reset()
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(its_gradient, gradient)


@pytest.mark.sampled(2)
@every_loss
def test_vmap_and_grad_transforms(its):
    scores, labels, where = draw()
    module = its.make(reduction="none").requires_grad_(False)

    def loss(s, y, w, g):
        return module(s, y, where=w, **its.groups(g))

    expected, gradient = both_ways(loss, scores, labels, w=where, g=GROUPS)
    torch.testing.assert_close(torch.func.vmap(loss)(scores, labels, where, GROUPS), expected)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(scores, labels, where, GROUPS), gradient)
    stacked = torch.stack([scores, scores * 2], dim=1)
    both = torch.func.vmap(loss, in_dims=(1, None, None, None), out_dims=1)(stacked, labels, where, GROUPS)
    torch.testing.assert_close(both, torch.stack([expected, loss(scores * 2, labels, where, GROUPS)], dim=1))

    def flat(s, y, g):
        return module(s, y, offsets=torch.tensor([0, 5, 12]), **its.groups(g))

    each = torch.stack([flat(*one) for one in zip(scores, labels, GROUPS, strict=True)])
    torch.testing.assert_close(torch.func.vmap(flat)(scores, labels, GROUPS), each)


@pytest.mark.sampled(2)
@every_loss
def test_pickle_repr_and_deep_copy(its):
    scores, labels, where = draw()
    loss = its.make(reduction="sum")
    again = pickle.loads(pickle.dumps(loss))
    assert repr(again) == repr(loss)
    assert repr(loss).startswith(type(loss).__name__ + "(")
    assert "reduction=sum" in repr(loss)
    assert "object at" not in repr(loss)
    keep = {"where": where, **its.groups()}
    assert torch.equal(again(scores, labels, **keep), loss(scores, labels, **keep))


@every_loss
def test_a_score_that_is_not_finite_is_an_error_that_says_where(its):
    scores, labels, where = draw()
    for broken in (torch.nan, torch.inf, -torch.inf):
        scores[2, 3], where[2, 3] = broken, True
        with pytest.raises(ValueError, match=r"scores must be finite; document \[2, 3\] is"):
            its.make()(scores, labels, where=where, **its.groups())
        with pytest.raises(ValueError, match=r"scores must be finite; document 3"):
            its.make()(scores[2], labels[2], offsets=torch.tensor([0, 12]), **its.groups(GROUPS[2]))


@every_loss
def test_a_label_that_is_not_finite_is_an_error_that_says_where(its):
    scores, labels, where = draw()
    labels = labels.double()
    labels[1, 2], where[1, 2] = torch.nan, True
    with pytest.raises(ValueError, match=r"labels must be finite; document \[1, 2\] is nan"):
        its.make()(scores, labels, where=where, **its.groups())


@pytest.mark.sampled(2)
@every_loss
@pytest.mark.parametrize("padding", [-1, -100])
def test_labels_below_0_are_refused_with_the_way_out(its, padding):
    scores, labels, where = draw()
    row, column = (~where).nonzero()[0].tolist()
    expected = its.make()(scores, labels, where=where, **its.groups())
    way_out = rf"{WAY_OUT}; that of document"
    flat = {"offsets": torch.tensor([0, 12]), **its.groups(GROUPS[row])}
    for dtype in (torch.int64, torch.float32):
        given = torch.where(where, labels, padding).to(dtype)
        torch.testing.assert_close(its.make()(scores, given, where=given >= 0, **its.groups()), expected)
        if its.signed:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".* labels are -100 and no other is negative")
                assert its.make()(scores, given) != expected
            continue
        with pytest.raises(ValueError, match=rf"{way_out} \[{row}, {column}\] is {padding}$"):
            its.make()(scores, given, **its.groups())
        with pytest.raises(ValueError, match=rf"{way_out} {column}( \(list 0\))? is {padding}$"):
            its.make()(scores[row], given[row], **flat)


def test_a_threshold_from_0_down_says_what_labels_below_0_are():
    scores, labels = torch.tensor([2.0, 1.0, 0.0]), torch.tensor([-2, 0, -1])
    for measure in ("AP(min_relevant=-1)", "nDCG(min_relevant=0)", "P(min_relevant=0)@2"):
        loss = rs.StructuredHingeLoss(measure, feature_map="pairwise")
        grades = (labels >= loss.measure.min_relevant).long()
        plain = rs.StructuredHingeLoss(measure.replace("=-1", "=1").replace("=0", "=1"), feature_map="pairwise")
        torch.testing.assert_close(loss(scores, labels), plain(scores, grades))
    shifted = rs.GradedLoss("AUC", grades=[2, 3])(scores, labels + 3)
    torch.testing.assert_close(rs.GradedLoss("AUC", grades=[-1, 0])(scores, labels), shifted)
    ratings = rs.ERU(d=-1.5, half_life=3)
    torch.testing.assert_close(
        rs.StructuredHingeLoss(ratings)(scores, labels),
        rs.StructuredHingeLoss(rs.ERU(d=1.5, half_life=3))(scores, labels + 3),
    )


@pytest.mark.sampled(2)
@every_loss
def test_offsets_may_be_a_list_and_a_mask_is_refused_by_the_name_of_where(its):
    scores, labels, where = draw()
    diversity_groups = its.groups(GROUPS[0])
    tensor = its.make()(scores[0], labels[0], offsets=torch.tensor([0, 5, 12]), **diversity_groups)
    for ends in ([0, 5, 12], np.array([0, 5, 12])):
        assert torch.equal(its.make()(scores[0], labels[0], offsets=ends, **diversity_groups), tensor)
    with pytest.raises(TypeError, match="there is no mask=; pass where=, True for a real document"):
        its.make()(scores, labels, mask=where, **its.groups())
    with pytest.raises(TypeError, match=r"only scores and labels may be given by position, .* a mask as where="):
        its.make()(scores, labels, where, **its.groups())
    with pytest.raises(TypeError, match="there is no indexes=, the list of each document; pass offsets="):
        its.make()(scores[0], labels[0], indexes=torch.zeros(12).long(), **diversity_groups)
    with pytest.raises(TypeError, match="there is no group=, the size of each list; pass offsets="):
        its.make()(scores[0], labels[0], group=[5, 7], **diversity_groups)
    with pytest.raises(TypeError, match="hosts or topics are diversity_groups=; to separate lists, pass offsets="):
        its.make()(scores[0], labels[0], groups=torch.zeros(12).long())


@pytest.mark.parametrize("make", [rs.StructuredHingeLoss, rs.SmoothLoss, rs.GradedLoss, rs.DirectLoss, rs.LambdaLoss])
@pytest.mark.parametrize("name", ["k", "top_k", "at"])
def test_a_cut_off_is_asked_for_by_the_measures_name(make, name):
    with pytest.raises(
        TypeError, match=f"there is no {name}=; append the cut-off to the measure's name, such as 'nDCG@10'"
    ):
        make("nDCG", **{name: 10})


def test_a_loss_of_ones_own_may_take_a_cut_off():
    class Cut(rs.StructuredHingeLoss):
        def __init__(self, measure, k=3):
            super().__init__(f"{measure}@{k}")

    class Popped(rs.SmoothLoss):
        def __init__(self, measure, **options):
            super().__init__(f"{measure}@{options.pop('k')}", **options)

    assert Cut("nDCG", k=5).measure.name == Popped("nDCG", k=5).measure.name == "nDCG@5"
    with pytest.raises(TypeError, match="there is no top_k="):
        Cut("nDCG", top_k=5)


@pytest.mark.parametrize("its", [pytest.param(its, id=name) for name, its in LOSSES if not its.takes_groups])
def test_groups_that_nothing_looks_at_do_not_make_one_list_of_all(its):
    scores, labels, _ = draw()
    with pytest.raises((ValueError, TypeError), match="diversity_groups"):
        its.make()(scores[0], labels[0], diversity_groups=GROUPS[0])


@every_loss
def test_a_trailing_dimension_of_one_warns(its):
    scores, labels, _ = draw()
    with pytest.warns(UserWarning, match=r"lists of one document, which have no order: .* scores.squeeze\(-1\)"):
        its.make()(scores.unsqueeze(-1), labels.unsqueeze(-1), **its.groups(GROUPS.unsqueeze(-1)))


@pytest.mark.sampled(2)
@every_loss
def test_under_autocast_losses_are_computed_in_float32(its):
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        scores, labels, where = draw(dtype=dtype)
        half = dtype in (torch.bfloat16, torch.float16)
        close = {"rtol": 0.01, "atol": 0.003} if half else {"rtol": 1e-4, "atol": 1e-5}
        for layout in (
            {"where": where, **its.groups()},
            {"offsets": torch.tensor([0, 30, 72]), **its.groups(GROUPS.flatten())},
        ):
            given = (scores, labels) if "where" in layout else (scores.flatten(), labels.flatten())
            exact, slope = both_ways(its.make(), given[0].double(), given[1], **layout)
            leaf = given[0].clone().requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                value = its.make()(leaf, given[1], **layout)
            assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
            value.backward()
            assert leaf.grad.dtype == dtype
            torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(leaf.grad.double(), slope, **close)


@every_loss
def test_its_options_make_it_again(its):
    loss = its.make()
    assert repr(loss.with_options()) == repr(loss)
    assert repr(loss.with_options(reduction="sum")) == repr(its.make(reduction="sum"))


@every_loss
def test_what_it_looks_up_or_learns_stays_that_of_the_loss(its):
    loss = its.make()
    for name in ("measure", "feature_map"):
        if isinstance(getattr(loss, name, None), rs.Measure | rs.FeatureMap):
            setattr(loss, name, getattr(loss, name))
            with pytest.raises(AttributeError, match=rf"call with_options\({name}=\.\.\.\)"):
                setattr(loss, name, "P@7")
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.add_(0.5)
    for copied, parameter in zip(loss.with_options(reduction="sum").parameters(), loss.parameters(), strict=True):
        assert torch.equal(copied, parameter)


@every_loss
def test_types_and_shapes_are_checked(its):
    scores, labels, where = draw()
    loss = its.make()
    with pytest.raises(TypeError, match=r"scores must be a torch\.Tensor"):
        loss([1.0], labels, **its.groups())
    with pytest.raises(ValueError, match="labels must have the shape of scores"):
        loss(scores, labels[:3], **its.groups())
    with pytest.raises(ValueError, match="not both"):
        loss(scores[0], labels[0], where=where[0], offsets=torch.tensor([0, 12]), **its.groups(GROUPS[0]))
    with pytest.raises(ValueError, match="offsets must start at 0 and end at the number of documents, 12"):
        loss(scores[0], labels[0], offsets=torch.tensor([0, 11]), **its.groups(GROUPS[0]))


@pytest.mark.parametrize(
    "every", [pytest.param(4, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.soak)], ids=["some", "all"]
)
def test_a_process_compiles_every_kind_of_loss(every):
    """Under autocast too, and what is compiled refuses what the loss does."""
    # torch.compile gives up on a function's code after eight versions of it.
    kinds = {type(its.make()): its for _, its in reversed(LOSSES)}
    some = list(kinds.values())[::every]
    scores, labels, _ = draw(dtype=torch.float32)
    assert len(some) > 8
    torch._dynamo.reset()
    for its in some:
        loss = its.make()
        compiled = torch.compile(loss, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(scores, labels, **its.groups()), loss(scores, labels, **its.groups()))
        if not its.signed:
            with pytest.raises(ValueError, match=WAY_OUT):
                compiled(scores, labels - 1, **its.groups())
        given = (scores.bfloat16(), labels)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value, found = (each(*given, **its.groups()) for each in (loss, compiled))
        assert found.dtype == value.dtype == torch.float32
        torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-6)
    torch._dynamo.reset()


def test_what_is_no_argument_is_refused_by_name():
    scores, labels, where = draw(dtype=torch.float32)
    for loss in (rs.StructuredHingeLoss("AP"), rs.ListNetLoss(), rs.LambdaLoss()):
        with pytest.raises(
            TypeError,
            match="unexpected keyword argument 'were'; in addition to scores and labels, this loss accepts where",
        ):
            loss(scores, labels, were=where)
        with pytest.raises(
            TypeError, match=r"only scores and labels may be given by position, .* a mask as where=, True for a"
        ):
            loss(scores, labels, where)


def test_a_mask_by_position_and_arrays_are_refused_with_the_way_out():
    scores, labels, where = draw(dtype=torch.float32)
    arrays = scores.numpy(), labels.numpy()
    way_out = "a mask as where=, True for a real document and False for padding"
    for mask in (where, where.numpy()):
        with pytest.raises(TypeError, match=f"only scores, labels and measure may be given by position, .*{way_out}"):
            rs.most_violated(scores, labels, "AP", mask)
        with pytest.raises(TypeError, match=f"only scores, labels and measures may be given by position, .*{way_out}"):
            rs.evaluate(scores, labels, ["AP"], mask)
        with pytest.raises(TypeError, match=f"a measure must be a name .*{way_out}"):
            rs.most_violated(scores, labels, mask)
        with pytest.raises(TypeError, match=f"a measure must be a name .*{way_out}"):
            rs.evaluate(scores, labels, mask)
        with pytest.raises(TypeError, match=f"only scores and labels may be given by position, .*{way_out}"):
            rs.RankingMetric("AP").update(scores, labels, mask)
        torch.testing.assert_close(rs.AP()(scores, labels, mask), rs.evaluate(scores, labels, ["AP"], where=mask)["AP"])
    with pytest.raises(TypeError, match="there is no mask=; pass where="):
        rs.most_violated(scores, labels, "AP", mask=where)
    for call in (
        rs.StructuredHingeLoss("AP"),
        rs.ListNetLoss(),
        lambda *lists, **given: rs.most_violated(*lists, "AP", **given),
    ):
        for lists in (arrays, (arrays[0], labels), (scores, arrays[1])):
            with pytest.raises(
                TypeError, match=r"(scores|labels) must be a torch.Tensor, got ndarray; use torch.as_tensor"
            ):
                call(*lists)
        for name in ("where", "item_weights"):
            with pytest.raises(
                TypeError, match=f"{name} must be a torch.Tensor, got ndarray; use torch.as_tensor|item_weights"
            ):
                call(scores, labels, **{name: where.numpy()})


class EnterOperators(TorchDispatchMode):
    """Runs what our operators do on tensors without values too, which would else be asked for the shapes of the answer alone."""

    def __init__(self):
        super().__init__()
        self.entered = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name, kwargs = function.name().removeprefix("rankstruct::"), kwargs or {}
        kernel = dispatch.KERNELS.get(name)
        self.entered += [name] if kernel else []
        if kernel is not None:
            with self:
                return kernel.answer(*args, **kwargs)
        result = function(*args, **kwargs)
        if name.startswith(("aten::to.", "aten::_to_copy")) and args[0].is_cpu and not result.is_cpu:
            assert True in (*args[1:], *kwargs.values()), "a copy to a device waits for it"  # not non_blocking
        return result


#: The operators whose losses go to the CPU: devices have no kernel for them.
WITHOUT_KERNEL = {"page_hinge"}


@pytest.mark.sampled(4)
@every_loss
@pytest.mark.parametrize("flat", [False, True])
def test_nothing_is_read_back_from_a_device(flat, its, monkeypatch):
    """A step that looks at a value waits for the device; tensors without values refuse it."""
    lanes.use(monkeypatch)
    monkeypatch.setattr(lanes.Kernel, "__getitem__", lambda kernel, grid: lambda *given, **constants: None)
    scores, labels, where = (each.to("meta") for each in draw())
    diversity_groups = {name: each.to("meta") for name, each in its.groups().items()}
    lists = [{"where": where}]
    if flat:
        scores, labels = scores.flatten(), labels.flatten()
        diversity_groups = {name: each.flatten() for name, each in diversity_groups.items()}
        known = {"offsets": torch.tensor([0, 3, 3, 20, len(scores)])}
        there = {"offsets": torch.empty(5, dtype=torch.int64, device="meta")}
        loss = its.make()
        lists = (
            [known, there] if isinstance(loss, rs.StructuredHingeLoss) or (loss.solve and loss.on_devices) else [known]
        )
    for each in lists:
        scores = scores.detach().requires_grad_()
        loss = its.make().to("meta")
        with EnterOperators() as mode:
            try:
                loss(scores, labels, **each, **diversity_groups).backward()
            except NotImplementedError:
                assert mode.entered[-1] in WITHOUT_KERNEL
                continue
        assert not WITHOUT_KERNEL & set(mode.entered)
        assert scores.grad.shape == scores.shape


#: The papers' convex bounds of measures that discount ranks are lowest where all documents tie, or nearly so, which is why none
#: is a default; the classifier finds nothing relevant in these data, and F1 labels by a threshold, which a scorer without a bias
#: does not have.
STUCK = {"SVMmrr", "nDCG@10-ideal", "Diverse-nDCG@3-ideal", "Classification-weighted", "F1"}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("scorer", [rs.LinearScorer, pytest.param(rs.MLPScorer, marks=pytest.mark.slow)])
@pytest.mark.parametrize("its", [pytest.param(its, id=name) for name, its in LOSSES if name not in STUCK])
def test_no_loss_stays_where_it_starts(its, scorer):
    """The README's data and loop with the library's scorers as they are built; at random the AP is 0.22."""
    torch.manual_seed(0)
    features = torch.randn(100, 30, 8)
    labels = (features[..., 0] + torch.randn(100, 30) > 1.5).long()
    scorer, loss = scorer(8), its.make()
    diversity_groups = {"diversity_groups": torch.arange(30).expand(100, 30)} if its.takes_groups else {}
    optimizer = torch.optim.Adam(
        [*scorer.parameters(), *loss.parameters()], lr=0.1 if type(scorer) is rs.LinearScorer else 0.01
    )
    for _ in range(60):
        optimizer.zero_grad()
        loss(scorer(features), labels, **diversity_groups).backward()
        optimizer.step()
    assert rs.evaluate(scorer.eval()(features), labels, ["AP"])["AP"].mean() > 0.5


@contextmanager
def not_waited_for():
    """Within, a step that waits for the CUDA device is an error."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_loss
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_a_cuda_device_agrees_with_the_cpu_and_is_not_waited_for(its, dtype):
    """Padded and flat lists, the second time without a step that waits for the device."""
    near = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    for size in (12, 90):
        scores, labels, where = draw(size=size, dtype=dtype)
        groups = torch.randint(0, 5, scores.shape, generator=torch.Generator().manual_seed(2))
        flat = {"offsets": torch.tensor([0, 3, 3, 20, scores.numel()])}
        for lists, shape in (({"where": where}, scores.shape), (flat, (-1,))):
            options = its.groups(groups.view(shape)) | lists
            value, slope = both_ways(its.make(reduction="none"), scores.view(shape), labels.view(shape), **options)
            there = scores.view(shape).cuda(), labels.view(shape).cuda()
            on_device = {name: each if name == "offsets" else each.cuda() for name, each in options.items()}
            loss = its.make(reduction="none").cuda()
            both_ways(loss, *there, **on_device)  # compiles, and copies tables
            with not_waited_for():
                found, gradient = both_ways(loss, *there, **on_device)
            torch.testing.assert_close(found.cpu(), value, **near)
            torch.testing.assert_close(gradient.cpu(), slope, **near)
