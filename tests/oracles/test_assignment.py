"""Each method of the positional map's assignment problem by itself, whichever would be chosen: SciPy's value."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

import rankstruct as rs
from rankstruct.oracles import positional
from rankstruct.oracles.kernels.assignment_cpu import by_counts, by_lattice, by_sweep
from rankstruct.oracles.kernels.flat import discount_table
from rankstruct.oracles.kernels.positional_cpu import (
    COUNTS,
    LATTICE,
    PROPORTIONAL,
    SWEEP,
    TOO_MANY_CLASSES,
    choose_method,
)


def problem(rng, n, classes, k):
    """Arguments of the methods but for `classes`; documents by descending score, class 0 with the highest gain."""
    group = np.concatenate([np.arange(classes), rng.integers(0, classes, size=n - classes)])
    rng.shuffle(group)
    scale = 10.0 ** rng.integers(-3, 3)
    noise = rng.normal(size=n) + rng.choice([-1.0, 0.0, 1.0]) * group
    score = np.sort(np.round(noise * 2) / 2 if rng.random() < 0.3 else noise)[::-1] * scale
    gain = np.sort(rng.choice([rng.random(classes) * 3, np.arange(classes) * 0.2]))[::-1].copy()
    i = np.arange(1, n + 1)
    c = np.choose(rng.integers(0, 3), [i**-0.5, i**-2.0, np.maximum(n // 2 + 1.0 - i, 0)])
    a = np.choose(rng.integers(0, 3), [1 / np.log2(1 + i), 1.0 / i, 0.8**i])
    a[k:] = 0.0
    starts = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=classes))])
    return score - score[0], group, np.argsort(group, kind="stable"), starts, gain, c, a


def value(arguments, classes):
    """The objective of a sequence of classes, which must hold every document once."""
    score, _, members, starts, gain, c, a = arguments
    assert (np.bincount(classes, minlength=len(gain)) == np.diff(starts)).all()
    pointer = starts[:-1].copy()
    total = 0.0
    for i, g in enumerate(classes):
        total += c[i] * score[members[pointer[g]]] - a[i] * gain[g]
        pointer[g] += 1
    return total


def best_value(arguments):
    score, group, _, _, gain, c, a = arguments
    cost = np.outer(score, c) - np.outer(gain[group], a)
    return cost[linear_sum_assignment(cost, maximize=True)].sum()


@pytest.mark.parametrize(("classes", "longest"), [(2, 150), (3, 60), (5, 40), (9, 30)])
def test_every_method_has_scipys_value(classes, longest):
    rng = np.random.default_rng(classes)
    for _ in range(150):
        n = int(rng.integers(classes, longest + 1))
        most = {2: n, 3: 12, 5: 8, 9: 3}[classes]
        cut = bool(rng.random() < 0.7)
        k = int(rng.integers(1, min(n, most) + 1)) if cut else n
        arguments = problem(rng, n, classes, k)
        expected, size = best_value(arguments), max(1.0, np.abs(arguments[0]).max())
        score, _, members, starts, gain, c, a = arguments
        found = {}
        if cut or classes == 2:
            by_counts(*arguments, k, found.setdefault("counts", np.empty(n, np.int64)))
        if classes == 2:
            by_lattice(*arguments, found.setdefault("lattice", np.empty(n, np.int64)))
        by_sweep(score, members, starts, gain, c, a, found.setdefault("sweep", np.empty(n, np.int64)))
        for method, order in found.items():
            assert value(arguments, order) == pytest.approx(expected, abs=1e-9 * size), (method, n, k)


def test_the_choice_of_a_method():
    assert choose_method(1000, 5, 0, 10, True) == PROPORTIONAL
    assert choose_method(1000, 5, 0, 10, False) == COUNTS
    assert choose_method(1000, 5, 0, 1000, False) == SWEEP
    assert choose_method(100, 2, 2500, 100, False) == LATTICE
    assert choose_method(1000, 2, 250_000, 1000, False) == SWEEP
    assert choose_method(1000, 2, 250_000, 10, False) == COUNTS
    assert choose_method(1000, 65, 0, 1000, False) == TOO_MANY_CLASSES


def answer(measure, size, decay="i^-0.5"):
    generator = torch.Generator().manual_seed(size)
    scores = torch.randn(3, size, generator=generator, requires_grad=True)
    labels = torch.randint(0, 3, (3, size), generator=generator)
    return rs.structured_hinge_loss(scores, labels, measure, feature_map=rs.Positional(decay)).item()


def test_kept_tables_are_those_of_the_measure_the_map_and_the_size():
    cases = [
        (m, n, d)
        for m in ("nDCG", "nDCG@3", "DCG(discount='letor')", "RR", "RR@3")
        for n in (5, 9)
        for d in ("i^-1", "i^-2")
    ]
    found = []
    for _ in range(2):
        found.append([answer(*case) for case in cases])
        assert len(positional._TABLES) <= positional._MOST_TABLES
    positional._TABLES.clear()
    fresh = []
    for case in cases:
        fresh.append(answer(*case))
        positional._TABLES.clear()
    assert found == [fresh, fresh]


def test_tables_that_would_not_last_are_not_kept():
    from torch._subclasses.fake_tensor import FakeTensorMode

    positional._TABLES.clear()
    with torch.inference_mode():
        inside = answer("nDCG", 7)
    assert not positional._TABLES
    with FakeTensorMode():
        assert rs.most_violated(torch.zeros(7), torch.zeros(7), "nDCG", feature_map="positional").value.shape == ()
    assert not positional._TABLES
    labels = torch.tensor([0, 2, 1])
    torch.func.grad(lambda s: rs.structured_hinge_loss(s, labels, "nDCG", feature_map="positional"))(torch.zeros(3))
    assert not positional._TABLES
    assert answer("nDCG", 7) == inside
    assert len(positional._TABLES) == 1


def test_a_measure_that_cannot_be_a_key_is_served():
    class Unhashable(rs.DCG):
        __hash__ = None

    positional._TABLES.clear()
    assert answer(Unhashable(), 7) == answer("DCG", 7)
    assert len(positional._TABLES) == 1


def test_a_cut_off_of_its_own_decides_under_a_constant_discount():
    measure = rs.mWTA(discount=torch.ones_like)
    found = rs.most_violated(torch.zeros(4), torch.tensor([0, 0, 0, 1]), measure, reference="predicted")
    assert (found.task_loss.item(), found.value.item()) == (1.0, 1.0)
    same = rs.most_violated(torch.zeros(3), torch.tensor([0, 0, 1]), measure, reference="predicted")
    assert same.value.item() == 0.0


@pytest.mark.parametrize(
    "numbers",
    [[1, 2, 1], [1, 0.5, 0.6], [1, np.nan, 0.5], [np.nan], [np.nan, 0], [np.inf, 1], [1, -1], [-1], [1, 0, -1]],
)
def test_what_is_no_discount(numbers):
    with pytest.raises(ValueError, match="discounts must be finite, >= 0 and never increase"):
        discount_table(torch.tensor(numbers, dtype=torch.float64), len(numbers))


def test_what_is_a_discount():
    for numbers in ([1.0, 1.0, 0.5, 0.0], [0.0]):
        assert discount_table(torch.tensor(numbers), len(numbers)).tolist() == numbers
    beyond_the_longest_list = discount_table(torch.tensor([2.0, 1.0, 7.0]), 2)
    assert beyond_the_longest_list.tolist() == [2.0, 1.0]


def test_a_decay_that_is_a_multiple_of_the_discount():
    """Four times the decay is four times the scores; a power of two, so that the decay is proportional to the last bit."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 30, generator=generator, dtype=torch.float64) * 0.2
    labels = torch.randint(0, 4, (20, 30), generator=generator)
    fourfold = rs.Positional(lambda i: 4 / torch.log2(1 + i))
    found = rs.most_violated(scores, labels, "nDCG", feature_map=fourfold, reference="predicted")
    same = rs.most_violated(4 * scores, labels, "nDCG", feature_map=rs.Positional("discount"), reference="predicted")
    torch.testing.assert_close(found.value, same.value)
    assert "sort" in rs.explain_oracle("nDCG", fourfold, grades=4).method
