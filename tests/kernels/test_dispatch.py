"""Calls of the compiled core: no needless copies, any layout and dtype, threads, state after an error."""

import copy
import pickle

import pytest
import torch

import rankstruct as rs
from rankstruct.kernels import core, dispatch
from rankstruct.lists import Lists
from rankstruct.oracles.registry import resolve

LABELS = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
SCORES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: One of each kernel; whether labels are graded.
HINGES = {
    **{name: (rs.StructuredHingeLoss(name), False) for name in ("AUC", "AP", "AP@3", "F1", "R@3", "pAUC(high=0.3)")},
    "pAUC-pairwise": (rs.StructuredHingeLoss("pAUC(low=0.2,high=0.7)", feature_map="pairwise"), False),
    "RR-pairwise": (rs.StructuredHingeLoss("RR@3", feature_map="pairwise", reference="predicted"), False),
    "RR-first": (rs.StructuredHingeLoss("RR@3", feature_map="first-relevant", reference="ideal"), False),
    "DCG-pairwise": (rs.StructuredHingeLoss("DCG@3", feature_map="pairwise"), False),
    **{name: (rs.StructuredHingeLoss(name), True) for name in ("nDCG", "nDCG@3", "RR@3", "mWTA")},
    "nDCG-ideal": (rs.StructuredHingeLoss("nDCG", reference="ideal"), True),
    "graded-AUC": (rs.GradedLoss("AUC", grades=[1, 2]), True),
    "graded-AP": (rs.GradedLoss("AP", grades=[1, 2]), True),
    "RankSVM": (rs.RankSVMLoss(), True),
    "diverse": (rs.StructuredHingeLoss("diverse_nDCG@3"), True),
    "diverse-RR": (rs.StructuredHingeLoss("diverse_RR@3"), True),
}
every_hinge = pytest.mark.parametrize(("loss", "graded"), HINGES.values(), ids=HINGES)


def draw(graded, *shape, seed=0):
    """Scores, labels, which are real, and groups; the first list of several is all padding."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator)
    labels = torch.randint(0, 3 if graded else 2, shape, generator=generator)
    where = torch.rand(shape, generator=generator) < 0.8
    where[..., :2], labels[..., 0], labels[..., 1] = True, 0, 1
    if len(shape) > 1:
        where[(0,) * (len(shape) - 1)] = False
    return scores, labels, where, torch.randint(0, 5, shape, generator=generator)


def answer(loss, scores, labels, reduction="none", **lists):
    """Values and gradient; the mean by the shortest way."""
    leaf = scores.detach().requires_grad_()
    more = {} if reduction == "mean" else {"reduction": reduction}
    values = loss(leaf, labels, **lists, **more)
    return values.detach(), torch.autograd.grad(values.sum(), leaf)[0]


def options_of(loss, diversity_groups):
    return {"diversity_groups": diversity_groups} if loss.takes_groups else {}


def same(found, expected):
    return all(map(torch.equal, found, expected))


@pytest.fixture
def called(monkeypatch):
    """The batches that loops were called with."""
    batches, run = [], dispatch.CpuLists.run

    def spy(lists, call):
        batches.append(lists.batch)
        return run(lists, call)

    monkeypatch.setattr(dispatch.CpuLists, "run", spy)
    return batches


@pytest.mark.parametrize(
    "labels_dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_contiguous_tensors_are_not_copied(dtype, labels_dtype, called):
    scores, labels, where, diversity_groups = draw(False, 4, 9)
    scores, labels, chosen = scores.to(dtype).requires_grad_(), labels.to(labels_dtype), torch.randn(4, 9).double()
    offsets = torch.tensor([0, 10, 36])
    rs.StructuredHingeLoss("AP")(scores, labels, where=where)  # by the shortest way
    rs.most_violated(scores, labels, "AUC", where=where, reference="predicted", reference_scores=chosen)
    rs.most_violated(scores.view(-1), labels.view(-1), "F1", offsets=offsets)
    for batch in called:
        assert (batch.scores, batch.labels) == (scores.data_ptr(), labels.data_ptr())
    assert [batch.where for batch in called] == [where.data_ptr(), where.data_ptr(), None]
    assert [batch.chosen for batch in called] == [None, chosen.data_ptr(), None]
    assert [batch.offsets for batch in called] == [None, None, offsets.data_ptr()]
    called.clear()
    rs.most_violated(scores, labels.long(), "diverse_DCG@3", diversity_groups=diversity_groups)
    assert {batch.groups for batch in called} == {diversity_groups.data_ptr()}


LAYOUTS = {
    "transposed": lambda values: values.mT.contiguous().mT,
    "every second": lambda values: torch.stack([values, values.flip(-1)], -1).flatten(-2)[..., ::2],
    "a part": lambda values: torch.cat([values, values, values], -1)[..., values.shape[-1] : 2 * values.shape[-1]],
    "behind others": lambda values: torch.cat([values[:1], values])[1:],
}


@pytest.mark.sampled(2)
@every_hinge
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_any_layout_is_the_contiguous_one(layout, loss, graded):
    scores, labels, where, diversity_groups = draw(graded, 6, 7)
    more = options_of(loss, diversity_groups)
    expected = answer(loss, scores, labels, where=where, **more)
    laid_out = {name: layout(value) for name, value in more.items()}
    assert same(answer(loss, layout(scores), layout(labels), where=layout(where), **laid_out), expected)
    mean = answer(loss, scores, labels, "mean", where=where, **more)
    assert same(answer(loss, layout(scores), layout(labels), "mean", where=layout(where), **laid_out), mean)


@every_hinge
def test_lists_that_share_their_memory(loss, graded):
    """Expanded tensors have strides of 0, and a gradient that is the sum over what they share."""
    scores, labels, where, diversity_groups = draw(graded, 7)
    more = options_of(loss, diversity_groups)
    value, slope = answer(loss, scores, labels, where=where, **more)
    expanded = {name: each.expand(4, 7) for name, each in more.items()}
    values, slopes = answer(loss, scores.expand(4, 7), labels.expand(4, 7), where=where.expand(4, 7), **expanded)
    assert torch.equal(values, value.expand(4))
    assert torch.equal(slopes, slope.expand(4, 7))
    mean, _ = answer(loss, scores.expand(4, 7), labels.expand(4, 7), "mean", where=where.expand(4, 7), **expanded)
    torch.testing.assert_close(mean, value)


@pytest.mark.sampled(4)
@every_hinge
@pytest.mark.parametrize("dtype", LABELS, ids=str)
def test_labels_of_any_dtype(dtype, loss, graded):
    scores, labels, where, diversity_groups = draw(graded, 3, 5, 6)
    labels = labels.clamp(max=1) if dtype == torch.bool else labels
    more = options_of(loss, diversity_groups)
    for reduction in ("none", "mean"):
        expected = answer(loss, scores, labels.double(), reduction, where=where, **more)
        assert same(answer(loss, scores, labels.to(dtype), reduction, where=where, **more), expected)
    offsets = torch.tensor([0, 7, 7, 30, 90])
    flat = {name: value.flatten() for name, value in more.items()}
    expected = answer(loss, scores.flatten(), labels.double().flatten(), offsets=offsets, **flat)
    for given in (offsets, offsets.int(), offsets.repeat_interleave(2)[::2]):
        assert same(answer(loss, scores.flatten(), labels.to(dtype).flatten(), offsets=given, **flat), expected)


@every_hinge
@pytest.mark.parametrize("dtype", SCORES, ids=str)
def test_scores_of_any_dtype(dtype, loss, graded):
    """Those of half precision are computed with in single precision, and the answer is rounded."""
    scores, labels, where, diversity_groups = draw(graded, 5, 6)
    scores, more = scores.to(dtype), options_of(loss, diversity_groups)
    wide = scores if dtype == torch.float64 else scores.float()
    expected = answer(loss, wide, labels, where=where, **more)
    found = answer(loss, scores, labels, where=where, **more)
    assert [each.dtype for each in found] == [dtype, dtype]
    assert same(found, [each.to(dtype) for each in expected])
    mean = answer(loss, scores, labels, "mean", where=where, **more)[0]
    torch.testing.assert_close(mean, answer(loss, wide, labels, "mean", where=where, **more)[0].to(dtype))


def test_groups_of_any_dtype():
    scores, labels, _, diversity_groups = draw(True, 4, 9)
    expected = rs.most_violated(scores, labels, "diverse_DCG@3", diversity_groups=diversity_groups)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        assert same(
            rs.most_violated(scores, labels, "diverse_DCG@3", diversity_groups=diversity_groups.to(dtype)), expected
        )


@every_hinge
def test_a_batch_of_several_threads_has_the_numbers_of_one(loss, graded):
    """Values, means, sums and gradients, padded and flat, to the last bit."""
    scores, labels, where, diversity_groups = draw(graded, 2, 1500, 32)
    assert scores.numel() >= 4 * dispatch._WORTH_A_THREAD
    more, before = options_of(loss, diversity_groups), torch.get_num_threads()
    offsets = torch.arange(0, 2 * 1500 * 32 + 1, 320)
    flat = [scores.flatten(), labels.flatten()], {name: value.flatten() for name, value in more.items()}

    def answers():
        for reduction in ("none", "mean", "sum"):
            yield answer(loss, scores, labels, reduction, where=where, **more)
            yield answer(loss, *flat[0], reduction, offsets=offsets, **flat[1])

    try:
        torch.set_num_threads(1)
        one = list(answers())
        torch.set_num_threads(3)
        several = list(answers())
    finally:
        torch.set_num_threads(before)
    values = [each[0] for each in one]
    # torch sums by itself, in an order of its own where there are threads.
    for (found, slope), (expected, its), exact in zip(several, one, (True, True, *[False] * 4), strict=True):
        assert torch.equal(slope, its)
        torch.testing.assert_close(found, expected, rtol=0 if exact else 1e-6, atol=0)
    torch.testing.assert_close(values[4], values[0].sum(), rtol=1e-5, atol=0)
    torch.testing.assert_close(values[3], values[1].mean(), rtol=1e-5, atol=0)


BROKEN = {
    "a score": lambda scores, labels, where: scores.masked_fill_(torch.tensor([[False] * 4 + [True]] * 4), torch.nan),
    "a label": lambda scores, labels, where: labels[2].fill_(-1),
    "a label that is no number": lambda scores, labels, where: labels[3].fill_(torch.inf),
    "where": lambda scores, labels, where: where.resize_(3, 5),
}


@every_hinge
@pytest.mark.parametrize("spoil", BROKEN.values(), ids=BROKEN)
def test_an_error_leaves_nothing_broken(spoil, loss, graded):
    scores, labels, where, diversity_groups = draw(graded, 4, 5)
    labels, more = labels.double(), options_of(loss, diversity_groups)
    expected = answer(loss, scores, labels, "mean", where=where, **more)
    wrong = scores.clone(), labels.clone(), where.clone()
    spoil(*wrong)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"finite|0 or more|shape of scores"):
            answer(loss, *wrong[:2], "mean", where=wrong[2], **more)
        assert same(answer(loss, scores, labels, "mean", where=where, **more), expected)


def test_padding_may_hold_anything():
    for loss, graded in HINGES.values():
        scores, labels, where, diversity_groups = draw(graded, 4, 9)
        more = options_of(loss, diversity_groups)
        expected = answer(loss, scores.where(where, 0.0), labels.where(where, 0).double(), where=where, **more)
        for anything in (torch.nan, torch.inf, -100.0):
            given = scores.where(where, anything), labels.double().where(where, anything)
            assert same(answer(loss, *given, where=where, **more), expected)


def test_memory_that_is_not_there_is_an_error(monkeypatch):
    scores, labels, _, _ = draw(False, 4, 9)
    monkeypatch.setattr(core.pairwise_average_precision, "function", lambda *given: core.OUT_OF_MEMORY)
    with pytest.raises(MemoryError, match="no memory for the scratch of lists of 9 documents"):
        rs.StructuredHingeLoss("AP")(scores, labels)


@every_hinge
def test_a_loss_that_was_used_can_be_copied_and_pickled(loss, graded):
    scores, labels, where, diversity_groups = draw(graded, 4, 9)
    more = options_of(loss, diversity_groups)
    expected = loss(scores, labels, where=where, **more)
    for other in (copy.copy(loss), copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert repr(other) == repr(loss)
        assert torch.equal(other(scores, labels, where=where, **more), expected)
        assert torch.equal(
            other(scores[:, :5], labels[:, :5], **{n: v[:, :5] for n, v in more.items()}),
            loss(scores[:, :5], labels[:, :5], **{n: v[:, :5] for n, v in more.items()}),
        )


@pytest.mark.parametrize("name", ["AUC", "F1", "AP"])
@pytest.mark.parametrize("reference", ["ideal", "predicted"])
def test_thresholds_are_read_as_numbers_whatever_their_type(name, reference):
    resolved = resolve(name)
    scores, labels = torch.randn(3, 9), torch.randint(0, 4, (3, 9))
    lists = (scores, Lists(labels), resolved.measure, resolved.feature_map, reference)
    thresholds, weights = torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([1.0, 0.5, 2.0]).double()
    expected = resolved.oracle.solve_grades(*lists, thresholds=thresholds, weights=weights)
    assert expected[1].min() > 0
    apart = torch.stack([thresholds, weights], 1)
    for first, second in ((thresholds.float(), weights.float()), (thresholds.long(), weights), apart.unbind(1)):
        found = resolved.oracle.solve_grades(*lists, thresholds=first, weights=second)
        assert all(map(torch.equal, found, expected))
