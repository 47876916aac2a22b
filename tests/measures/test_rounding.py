"""Equal labels and rankings have bitwise equal values in every tensor."""

import itertools
import random

import numpy as np
import pytest
import torch
from measures.enumeration import MEASURES

import rankstruct as rs
from rankstruct.measures.rounding import by_label, elementwise

GRADES = [grade / 100 for grade in range(1, 501)]
NAMES = [*MEASURES, "diverse_nDCG@3", "diverse_mWTA", "alpha_nDCG(alpha=0.3)@5", "StRecall@2"]


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def layouts(value):
    """Tensors full of one label: of sizes 1 to 80, many lists, longer than one thread's share, transposed, strided."""
    for shape in [*range(1, 81), (7, 13), (64, 33), (40_001,), (3, 30_000)]:
        yield torch.full(shape if isinstance(shape, tuple) else (shape,), value, dtype=torch.float64)
    yield torch.full((31, 17), value, dtype=torch.float64).T
    yield torch.full((99,), value, dtype=torch.float64)[::3]


@pytest.mark.parametrize(
    "measure",
    [
        rs.nDCG(10),
        rs.measures.mWTA(),
        rs.DCG(gain=lambda labels: torch.exp2(labels) - 1),
        rs.nDCG(gain=lambda labels: labels**1.7),
    ],
    ids=["nDCG", "mWTA", "function", "power"],
)
def test_equal_labels_have_one_gain_anywhere(measure, threads):
    for grade in (0.5, 1.5, *random.Random(0).sample(GRADES, 12)):
        found = {gain for labels in layouts(grade) for gain in measure.document_gains(labels).unique().tolist()}
        assert len(found) == 1, grade
        assert found.pop() == pytest.approx(2**grade - 1 if measure.name != "nDCG(gain=<lambda>)" else grade**1.7)


def test_all_grades_in_one_tensor_and_each_alone():
    together = rs.nDCG().document_gains(torch.tensor(GRADES * 3, dtype=torch.float64)).reshape(3, -1)
    alone = [rs.nDCG().document_gains(torch.tensor(grade, dtype=torch.float64)) for grade in GRADES]
    assert torch.equal(together, torch.stack(alone).expand(3, -1))
    batched = torch.func.vmap(rs.nDCG().document_gains)(torch.tensor(GRADES, dtype=torch.float64).reshape(-1, 4))
    assert torch.equal(batched.flatten(), together[0])
    whole = torch.arange(60)
    assert torch.equal(rs.nDCG().document_gains(whole), 2.0 ** whole.double() - 1)


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32])
def test_gains_of_labels_of_any_kind_are_float64(kind):
    labels = torch.tensor([[0, 1], [1, 0]]).to(kind)
    assert torch.equal(rs.nDCG().document_gains(labels), torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64))


def test_a_function_is_called_once_a_distinct_label_and_may_be_a_table():
    asked = []

    def table(labels):
        asked.append(labels)
        return torch.stack([torch.tensor({0.0: 0.0, 2.0: 1.0, 250.0: 7.0}[float(label)]) for label in labels])

    labels = torch.tensor([[0.0, 250.0], [2.0, 0.0]])
    assert by_label(table, labels).tolist() == [[0, 7], [1, 0]]
    assert len(asked) == 1
    assert by_label(lambda labels: labels, torch.zeros(0, 3)).shape == (0, 3)
    assert by_label(torch.negative, torch.tensor([-1.0, 300.0, 0.5])).tolist() == [1, -300, -0.5]
    assert elementwise(torch.negative, torch.zeros(2, 0)).shape == (2, 0)


@pytest.mark.parametrize("size", [17, 20, 43])
@pytest.mark.parametrize("grade", [0.5, 1.5])
def test_lists_of_one_fractional_grade_cost_nothing(size, grade):
    scores, labels = torch.randn(3, size, generator=torch.Generator().manual_seed(size)), torch.full((3, size), grade)
    loss = rs.StructuredHingeLoss("nDCG@10", feature_map=rs.Positional(), reduction="none")
    assert loss(scores, labels).tolist() == [0, 0, 0]
    if size == 17:  # the tail of a vectorised loop
        assert torch.compile(loss, fullgraph=True, backend="aot_eager")(scores, labels).tolist() == [0, 0, 0]
    labels[:, ::2] = 0
    assert rs.StructuredHingeLoss("nDCG@10", feature_map="pairwise")(scores, labels) > 0  # one grade above zero


def test_mwta_of_one_fractional_grade():
    labels = torch.tensor([0.5] * 10 + [0.0] * 10)
    for scale in (0.5, 1.0, 3.0):  # with one grade the gain cancels
        values = rs.measures.mWTA()(torch.arange(20.0).flip(0), labels * 2 * scale)
        assert values == 1
    scores = torch.randn(20, generator=torch.Generator().manual_seed(0))
    assert rs.measures.mWTA()(scores, labels).item() == pytest.approx(rs.measures.mWTA()(scores, labels * 2).item())


def random_list(draw):
    size = draw.randint(1, 40)
    grades = draw.choice([(0, 1), (0, 1, 2), (0, 0.5), (0, 0.5, 1.5, 2.33)])
    return (
        [float(draw.randrange(draw.choice((4, 1000)))) for _ in range(size)],
        [float(draw.choice(grades)) for _ in range(size)],
        [draw.randrange(5) for _ in range(size)],
    )


def padded(lists, width, at):
    """The lists in one batch, each with padding before, after and between documents."""
    tensors = [torch.full((len(lists), width), torch.nan, dtype=torch.float64) for _ in range(2)]
    diversity_groups, where = (
        torch.zeros(len(lists), width, dtype=torch.int64),
        torch.zeros(len(lists), width, dtype=torch.bool),
    )
    for row, (scores, labels, hosts) in enumerate(lists):
        columns = slice(at % (width - len(scores) + 1), None)
        for tensor, values in zip((*tensors, diversity_groups), (scores, labels, hosts), strict=True):
            tensor[row, columns][: len(values)] = torch.tensor(values, dtype=tensor.dtype)
        where[row, columns][: len(scores)] = True
    return *tensors, diversity_groups, where


#: Some that threads divide, and others.
WIDTHS = ((40, 0, 1), (57, 5, 1), (130, 31, 20))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("ties", "threads", "widths"),
    [*((ties, 1, WIDTHS) for ties in ("expected", "input", "worst")), ("expected", 2, WIDTHS[-1:])],
    indirect=["threads"],
)
def test_neither_padding_nor_batch_nor_layout_changes_a_bit(ties, threads, widths):
    draw = random.Random(ties)
    lists = [random_list(draw) for _ in range(30)]
    wanted = [
        rs.evaluate(scores, labels, NAMES, diversity_groups=diversity_groups, ties=ties)
        for scores, labels, diversity_groups in lists
    ]
    for width, at, copies in widths:
        scores, labels, diversity_groups, where = padded(lists * copies, width, at)
        found = rs.evaluate(scores, labels, NAMES, where=where, diversity_groups=diversity_groups, ties=ties)
        for name in NAMES:
            assert found[name].tolist() == [values[name].item() for values in wanted] * copies, (name, width)
    flat = [np.concatenate([each[part] for each in lists]) for part in range(3)]
    offsets = torch.tensor([0, *itertools.accumulate(len(each[0]) for each in lists)])
    found = rs.evaluate(flat[0], flat[1], NAMES, offsets=offsets, diversity_groups=flat[2], ties=ties)
    for name in NAMES:
        assert found[name].tolist() == [values[name].item() for values in wanted], name


def test_the_order_of_tied_documents_changes_no_bit():
    draw = random.Random(3)
    lists = [random_list(draw) for _ in range(100)]
    shuffled = []
    for values in lists:
        order = draw.sample(range(len(values[0])), len(values[0]))
        shuffled.append([[each[i] for i in order] for each in values])
    found = []
    for each in (lists, shuffled):
        scores, labels, _, where = padded(each, 40, 0)
        found.append(rs.evaluate(scores, labels, list(MEASURES), where=where))
    for name, values in found[0].items():
        assert values.tolist() == found[1][name].tolist(), name


def test_precision_is_hits_over_k_also_where_the_tied_hits_are_known():
    for hits in range(11):
        labels = [1] * hits + [0] * (12 - hits)
        falling, steps = [float(-i) for i in range(12)], [float(-(i >= hits) - (i >= 10)) for i in range(12)]
        for scores in (falling, steps):
            for ties in ("expected", "input"):
                assert rs.measures.P(10)(scores, labels, ties=ties).item() == hits / 10
    # A group that rank k divides: 2 of its 3 documents count, in the mean.
    assert rs.measures.P(3)([2.0, 1.0, 1.0, 1.0], [1, 1, 0, 1]).item() == pytest.approx((1 + 4 / 3) / 3)


def test_a_tie_of_equal_documents_is_no_tie():
    scores, labels = [3.0, 2.0, 2.0, 2.0, 1.0], [0.7, 0.1, 0.1, 0.1, 0.3]
    names = ["AP", "RR", "nDCG", "DCG(gain='linear')", "nDCG@3", "MeanNDCG", "mWTA", "P@3"]
    tied, falling = rs.evaluate(scores, labels, names), rs.evaluate([5.0, 4.0, 3.0, 2.0, 1.0], labels, names)
    assert {name: value.item() for name, value in tied.items()} == {n: v.item() for n, v in falling.items()}
