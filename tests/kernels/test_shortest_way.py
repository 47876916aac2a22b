"""A hinge by one call of a prepared loop: the numbers of the oracle's operator to the last bit, or none."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from combinations import legal_combinations

import rankstruct as rs
from rankstruct.kernels import dispatch
from rankstruct.oracles import gains
from rankstruct.oracles.registry import REFERENCES, Resolved

DTYPES = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64]


BY_LOOP = Resolved.by_loop


@pytest.fixture
def short(monkeypatch):
    """Whether each call of a loss was one of a prepared loop."""
    taken = []

    def spy(*given, **options):
        found = BY_LOOP(*given, **options)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(Resolved, "by_loop", spy)
    return taken


def usual(loss, *given, **lists):
    """What it is by the oracle's operator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Resolved, "by_loop", lambda *given, **options: None)
        return loss(*given, **lists)


def both(way, scores, labels, upstream=1.0, **lists):
    leaf = scores.detach().requires_grad_()
    value = way(leaf, labels, **lists)
    return value.detach(), torch.autograd.grad(value * upstream, leaf)[0]


def draw(shape, dtype, labels_dtype, graded, seed):
    """Lists of several numbers of real documents, one or more all padding, some tied; whole labels."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    scores = (scores.round() if seed % 3 == 0 else scores).to(dtype)
    labels = torch.randint(0, 5 if graded and labels_dtype != torch.bool else 2, shape, generator=generator)
    where = torch.rand(shape, generator=generator) < torch.rand((*shape[:-1], 1), generator=generator)
    return scores, labels.to(labels_dtype), where


COMBINATIONS = list(legal_combinations((None, 3), ("i^-1/2", "discount")))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_hinge_has_the_usual_numbers_to_the_last_bit(dtype, short):
    """Of every measure, map and reference; over any number of lists, dimensions and label dtypes, with padding and without."""
    shapes, ways = [(7,), (1, 9), (40, 6), (2, 3, 11), (0, 4), (300, 3)], 0
    for turn, (measure, feature_map, reference) in enumerate(COMBINATIONS):
        loss = rs.StructuredHingeLoss(measure, feature_map=feature_map, reference=reference)
        graded = isinstance(feature_map, rs.Positional)
        shape, labels_dtype = shapes[turn % len(shapes)], DTYPES[turn // len(shapes) % len(DTYPES)]
        scores, labels, where = draw(shape, dtype, labels_dtype, graded, turn)
        for lists in ({}, {"where": where}):
            expected = both(lambda *given, its=loss, **lists: usual(its, *given, **lists), scores, labels, 3.0, **lists)
            for _ in range(2):  # the first one may have to learn what grades gain
                found = both(loss, scores, labels, 3.0, **lists)
                assert all(map(torch.equal, found, expected)), (loss, shape, labels_dtype)
                assert found[0].dtype == found[1].dtype == dtype
            ways += short[-1]
            assert short[-1] or scores.numel() == 0 or loss.resolved.oracle.prepare is None, loss
    assert ways > len(COMBINATIONS)


def test_many_lists_have_the_usual_mean(short):
    """Over so many lists that sums in another order differ in the last bit."""
    for dtype in (torch.float32, torch.float64):
        for lists in (1, 7, 8, 9, 100, 1000, 3000):
            scores, labels, where = draw((lists, 5), dtype, torch.int64, True, lists)
            for measure in ("AP", "nDCG", "AUC", "F1"):
                loss = rs.StructuredHingeLoss(measure)
                loss(scores, labels, where=where)
                found = both(loss, scores, labels, where=where)
                assert short[-1]
                expected = both(
                    lambda *given, its=loss, **lists: usual(its, *given, **lists), scores, labels, where=where
                )
                assert all(map(torch.equal, found, expected)), (measure, lists, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("measure", ["AUC", "AP", "AP@3", "RR", "F1@3", "pAUC(high=0.4)"])
def test_sums_over_grades_have_the_usual_numbers_to_the_last_bit(measure, dtype, short):
    """Up to the highest label, which may be a fraction; one of more grades than are prepared takes the usual way."""
    ways = 0
    for turn, (reference, labels_dtype) in enumerate((r, d) for r in REFERENCES for d in DTYPES):
        loss = rs.GradedLoss(measure, feature_map="pairwise" if measure == "RR" else None, reference=reference)
        shape = [(7,), (40, 6), (2, 3, 11)][turn % 3]
        scores, labels, where = draw(shape, dtype, labels_dtype, True, turn)
        labels = labels + 0.7 * (labels == 3) if turn % 4 == 0 and labels.is_floating_point() else labels
        for lists in ({}, {"where": where}):
            expected = both(lambda *given, its=loss, **lists: usual(its, *given, **lists), scores, labels, 3.0, **lists)
            found = both(loss, scores, labels, 3.0, **lists)
            assert all(map(torch.equal, found, expected)), (loss, shape, labels_dtype)
            ways += short[-1]
        padded = torch.where(where, labels.double(), 100.0)
        assert torch.equal(loss(scores, padded, where=where), usual(loss, scores, padded, where=where))
    assert ways > 20
    scores, labels, before = torch.randn(3, 50), torch.arange(150).view(3, 50) % 30, len(short)
    assert torch.equal(loss(scores, labels), usual(loss, scores, labels))
    assert len(short) == before


def test_it_is_taken_for_what_trains(short):
    scores, labels, where = draw((4, 6), torch.float32, torch.int64, False, 0)
    loss = rs.StructuredHingeLoss("AP")
    loss(scores, labels)
    loss(scores, labels, where=where)
    with torch.no_grad():
        loss(scores.requires_grad_(), labels)
    loss(scores, labels.requires_grad_(False))
    (loss(scores, labels) + loss(2 * scores, labels)).backward()
    with torch.inference_mode():
        loss(scores.detach(), labels)
    assert all(short)
    assert len(short) == 7


AP = rs.StructuredHingeLoss("AP")
#: What a loop solves beyond the mean of padded lists: the loss, scores, labels and what else is given.
TAKEN = {
    "weights": (AP, {"weights": torch.tensor([1.0, 2.0, 0.5, 0.0])}),
    "a sum": (rs.StructuredHingeLoss("AP", reduction="sum"), {}),
    "one a list": (rs.StructuredHingeLoss("AP", reduction="none"), {}),
    "a sum asked for": (AP, {"reduction": "sum"}),
    "a mean asked for": (AP, {"reduction": "mean"}),
    "half precision": (AP, {"scores": torch.arange(24.0).view(4, 6).sin().half()}),
    "bfloat16": (AP, {"scores": torch.arange(24.0).view(4, 6).sin().bfloat16()}),
    "small integers": (AP, {"labels": (torch.arange(24).view(4, 6) % 2).to(torch.int16)}),
    "half labels": (AP, {"labels": (torch.arange(24).view(4, 6) % 2).half()}),
    "scores in other order": (AP, {"scores": torch.arange(24.0).view(6, 4).sin().mT}),
    "labels in other order": (AP, {"labels": (torch.arange(24).view(6, 4) % 2).mT}),
    "where in other order": (AP, {"where": (torch.arange(24).view(6, 4) % 5 > 0).mT}),
    "flat lists": (
        AP, {"scores": torch.arange(24.0).cos(), "labels": torch.arange(24) % 2, "offsets": torch.tensor([0, 4, 4, 24])}
    ),
    "flat lists of a list": (AP, {"scores": torch.arange(9.0).cos(), "labels": torch.arange(9) % 2, "offsets": [0, 4, 9]}),
    "diversity_groups": (rs.StructuredHingeLoss("diverse_nDCG@3"), {"diversity_groups": torch.arange(24).view(4, 6) % 5}),
    "groups of reciprocal rank": (rs.StructuredHingeLoss("diverse_RR@3"), {"diversity_groups": torch.arange(24).view(4, 6) % 5}),
    "item weights": (rs.StructuredHingeLoss("nDCG"), {"item_weights": torch.arange(24.0).view(4, 6) % 4}),
    "item weights of pairs": (rs.StructuredHingeLoss("AUC"), {"item_weights": torch.arange(24.0).view(4, 6) % 4 + 1}),
    "item weights of grades": (rs.GradedLoss("AUC"), {"item_weights": torch.arange(24.0).view(4, 6) % 4}),
}  # fmt: skip
#: What is left to the oracle's operator.
OTHERS = {
    "reference scores": (
        rs.StructuredHingeLoss("AP", reference="predicted"), {"reference_scores": torch.arange(24.0).view(4, 6)}
    ),
    "no list": (AP, {"scores": torch.zeros(0, 6), "labels": torch.zeros(0, 6)}),
    "no document": (AP, {"scores": torch.zeros(4, 0), "labels": torch.zeros(4, 0)}),
    "no document of a discounted gain": (
        rs.StructuredHingeLoss("nDCG", feature_map="pairwise"), {"scores": torch.zeros(4, 0), "labels": torch.zeros(4, 0)}
    ),
    "grades that are named": (rs.GradedLoss("AP", grades=[1]), {}),
    "no grade": (rs.GradedLoss("AP"), {"labels": torch.zeros(4, 6)}),
    "a gain of a user's": (rs.StructuredHingeLoss(rs.DCG(gain=lambda labels: labels * 2.0)), {}),
    "fractional labels": (rs.StructuredHingeLoss("nDCG"), {"labels": torch.arange(24.0).view(4, 6) % 3 / 2}),
    "labels beyond the table": (rs.StructuredHingeLoss("DCG(gain='linear')"), {"labels": torch.arange(24).view(4, 6) + 250}),
    "item weights of a cut-off": (rs.StructuredHingeLoss("R@3"), {"item_weights": torch.arange(24.0).view(4, 6) % 4 + 1}),
}  # fmt: skip


def check_both_ways(loss, other):
    lists = {"scores": torch.arange(24.0).view(4, 6).cos(), "labels": torch.arange(24).view(4, 6) % 2, **other}
    scores, labels = lists.pop("scores"), lists.pop("labels")
    for _ in range(2):
        leaf = scores.detach().requires_grad_()
        found, expected = loss(leaf, labels, **lists), usual(loss, leaf, labels, **lists)
        assert torch.equal(found, expected)
        (a,), (b,) = (torch.autograd.grad(each.sum(), leaf) for each in (found, expected))
        assert torch.equal(a, b)


@pytest.mark.parametrize(("loss", "other"), TAKEN.values(), ids=TAKEN)
def test_what_a_loop_solves(loss, other, short):
    check_both_ways(loss, other)
    assert short[-1]


@pytest.mark.parametrize(("loss", "other"), OTHERS.values(), ids=OTHERS)
def test_what_it_leaves_to_the_operator(loss, other, short):
    check_both_ways(loss, other)
    assert not any(short)


def test_threads_change_nothing_to_the_last_bit(short):
    before, (scores, labels, _) = torch.get_num_threads(), draw((50, 1000), torch.float32, torch.int64, False, 0)
    try:
        torch.set_num_threads(2)
        several = both(AP, scores, labels)
        torch.set_num_threads(1)
        assert all(map(torch.equal, both(AP, scores, labels), several))
        assert all(short)
    finally:
        torch.set_num_threads(before)


def test_where_somebody_looks_on_it_is_not_taken(short):
    scores, labels = torch.randn(4, 6), torch.arange(24).view(4, 6) % 2
    expected = usual(AP, scores, labels)
    torch.testing.assert_close(torch.func.grad_and_value(AP)(scores, labels)[1], expected)
    torch.testing.assert_close(torch.vmap(AP)(scores, labels).mean(), expected)
    torch.testing.assert_close(torch.compile(AP, backend="aot_eager", fullgraph=True)(scores, labels), expected)
    assert AP(scores.to("meta"), labels.to("meta")).device.type == "meta"
    torch.testing.assert_close(AP(torch.nn.Parameter(scores), labels), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(AP(scores.bfloat16(), labels), usual(AP, scores.bfloat16().float(), labels))
    assert sum(short) <= 1  # of a parameter


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": torch.tensor([0.0, torch.nan, 1.0])}, "scores must be finite; document 1 is nan"),
        ({"scores": torch.tensor([0, 1, 2])}, "scores must be floating point"),
        ({"scores": torch.tensor(1.0), "labels": torch.tensor(1)}, "at least one dimension"),
        ({"scores": [0.0, 1.0, 2.0]}, "scores must be a torch.Tensor"),
        ({"labels": torch.tensor([0, -1, 1])}, "labels must be 0 or more .*document 1 is -1"),
        ({"labels": torch.tensor([0.0, torch.inf, 1.0])}, "labels must be finite; document 1 is inf"),
        ({"labels": torch.tensor([0, 1])}, "labels must have the shape of scores"),
        ({"labels": torch.tensor([0j, 1j, 0j])}, "labels must be real numbers"),
        ({"labels": np.array([0, 1, 0])}, "labels must be a torch.Tensor"),
        ({"where": torch.tensor([1, 1, 0])}, "where must be boolean"),
        ({"where": torch.tensor([True, False])}, "where must have the shape of scores"),
        ({"where": [True, True, True]}, "where must be a torch.Tensor"),
        ({"mask": torch.tensor([True, True, True])}, "there is no mask=; pass where="),
    ],
)  # fmt: skip
@pytest.mark.parametrize("measure", ["AP", "nDCG", "F1"])
def test_what_is_wrong_is_said_by_the_usual_way(measure, change, message, short):
    loss = rs.StructuredHingeLoss(measure)
    given = {"scores": torch.zeros(3), "labels": torch.tensor([0, 1, 0]), **change}
    with pytest.raises((TypeError, ValueError), match=message):
        loss(**given)
    assert not any(short)
    right = loss(torch.zeros(3), torch.tensor([0, 1, 0]))
    assert torch.equal(right, usual(loss, torch.zeros(3), torch.tensor([0, 1, 0])))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("measure", ["AP", "F1"])
def test_a_loss_that_its_dtype_cannot_hold_is_refused(measure, reduction):
    loss = rs.StructuredHingeLoss(measure, reduction=reduction)
    with pytest.raises(ValueError, match=r"too large for torch\.float32"):
        loss(torch.tensor([3e38, -3e38, 3e38]), torch.tensor([0, 1, 0]))


@pytest.mark.filterwarnings("default:scores .* are lists of one document")
def test_lists_of_one_document_are_warned_of():
    with pytest.warns(UserWarning, match="lists of one document"):
        AP(torch.zeros(5, 1), torch.ones(5, 1))


def test_what_grades_gain_is_learnt_as_they_come(short):
    gains._table.cache_clear()
    loss, scores = rs.StructuredHingeLoss("nDCG"), torch.randn(3, 8)
    grades = torch.arange(24).view(3, 8) % 3
    for labels, known in (
        (grades, False),
        (grades, True),
        (grades % 2, True),
        (grades + 2, False),  # of which some were not seen before
        (grades + 2, True),
        ((grades + 1).float(), True),
        (grades.double() + 0.5, False),  # which is no grade
        (grades.double() + 0.5, False),
        (grades + 255, False),  # the table ends there
        (grades + 255, False),
        (grades.to(torch.uint8), True),
    ):
        assert torch.equal(loss(scores, labels), usual(loss, scores, labels))
        assert short[-1] == known
    padded = torch.where(torch.arange(8) < 5, grades.double(), torch.nan)
    loss(scores, padded, where=torch.arange(24).view(3, 8) % 8 < 5)
    assert short[-1]
    assert torch.equal(rs.StructuredHingeLoss("nDCG")(scores, grades + 2), usual(loss, scores, grades + 2))
    assert short[-1]  # another loss knows them too


def test_threads_may_share_a_loss():
    losses = [rs.StructuredHingeLoss(measure) for measure in ("AP", "nDCG", "AUC", "RR@3")]
    batches = [draw((5, 30), torch.float32, torch.int64, False, seed) for seed in range(8)]
    cases = [(loss, *batch) for loss in losses for batch in batches]
    expected = [both(loss, scores, labels, where=where) for loss, scores, labels, where in cases]
    gains._table.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda case: both(case[0], *case[1:3], where=case[3]), cases * 5))
    for here, there in zip(found, expected * 5, strict=True):
        assert all(map(torch.equal, here, there))


def test_calls_of_more_sizes_than_are_kept(short):
    loss = rs.StructuredHingeLoss("nDCG@3")
    expected = {}
    for _ in range(2):
        for size in range(2, 150):
            scores, labels = torch.arange(float(size)).sin(), torch.arange(size) % 3
            found = loss(scores, labels)
            assert expected.setdefault(size, found) == found
            assert found == usual(loss, scores, labels)
    assert short[-1]


def test_derivatives_of_the_derivative_are_zero():
    scores = torch.randn(3, 5, requires_grad=True)
    value = AP(scores, torch.arange(15).view(3, 5) % 2)
    (slope,) = torch.autograd.grad(value, scores, create_graph=True)
    assert torch.autograd.grad((slope * scores).sum(), scores)[0].equal(slope)


def test_a_test_that_turns_loops_off_turns_it_off(short, monkeypatch):
    monkeypatch.setattr(dispatch, "has_loops", lambda device: False)
    scores, labels = torch.randn(3, 5), torch.arange(15).view(3, 5) % 2
    assert torch.equal(AP(scores, labels), usual(AP, scores, labels))
    assert not any(short)
