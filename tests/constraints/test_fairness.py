"""Measures of group fairness: by their definitions over every ranking of short lists, and layouts and bad input."""

import itertools
import math

import numpy as np
import pytest
import torch

from rankstruct.constraints import attention_fairness, exposure_ratio, fair_quotas, passes_fair_test, rKL, rND


def prefix_sum(name, protected, step):
    """The sum of the definition, for documents in the order of the ranking."""
    share, found = sum(protected) / len(protected), 0.0
    for i in range(step, len(protected) + 1, step):
        here = sum(protected[:i]) / i
        if name == "rND":
            apart = abs(here - share)
        else:
            apart = sum(p * math.log(p / q) for p, q in ((here, share), (1 - here, 1 - share)) if p > 0)
        found += apart / math.log2(i)
    return found


@pytest.mark.parametrize("name", ["rND", "rKL"])
@pytest.mark.parametrize(("flags", "step"), [([1, 1, 0, 0, 0, 0, 0], 2), ([1, 0, 1, 0, 1, 0], 3), ([1, 1, 1, 1, 0], 2)])
def test_prefix_measures_over_every_ranking(name, flags, step):
    measure = {"rND": rND, "rKL": rKL}[name]
    orders = [*dict.fromkeys(itertools.permutations(flags))]
    sums = [prefix_sum(name, order, step) for order in orders]
    groups = np.array(orders)
    ranks = np.broadcast_to(np.arange(1, len(flags) + 1), groups.shape)
    found = measure(ranks, groups, 1, step=step)
    np.testing.assert_allclose(found, np.array(sums) / max(sums), atol=1e-12)
    shuffled = np.random.default_rng(0).permuted(np.arange(len(flags) * len(orders)).reshape(groups.shape), axis=1)
    shuffled = np.argsort(shuffled, axis=1)  # the same rankings with their documents in another order
    moved = [np.take_along_axis(each, shuffled, 1) for each in (ranks, groups)]
    np.testing.assert_allclose(measure(*moved, True, step=step), found)


@pytest.mark.parametrize("name", ["rND", "rKL"])
def test_prefix_measures_by_ten_as_in_their_paper(name):
    rng = np.random.default_rng(0)
    for total in (3, 12, 15, 27):
        protected = rng.permutation(np.arange(30) < total)
        largest = max(  # over the numbers of protected documents in the first ten, twenty and thirty
            prefix_sum(name, [*[1] * a, *[0] * (10 - a), *[1] * b, *[0] * (10 - b), *[1] * c, *[0] * (10 - c)], 10)
            for a, b, c in itertools.product(range(11), repeat=3)
            if a + b + c == total
        )
        found = {"rND": rND, "rKL": rKL}[name](np.arange(1, 31), protected, 1)
        assert found.item() == pytest.approx(prefix_sum(name, protected.tolist(), 10) / largest)


def test_prefix_measures_of_pages_and_of_lists_that_cannot_be_unfair():
    # Two of four are protected; a page shows two documents: the worst shows none, or only them.
    shown = [[1, 2, 0, 0], [1, 0, 2, 0]]
    groups = [["a", "a", "b", "b"]] * 2
    assert rND(shown, groups, "a", step=2).tolist() == [1, 0]
    assert rND([[1, 2], [2, 1]], [[1, 1], [0, 0]], 1, step=2).isnan().all()
    assert rKL([1, 2, 3], [0, 1, 0], 1).isnan().all()  # shorter than the step
    assert rND([], [], 1).isnan().all()
    assert (
        rND([1, 2, 3], [1.0, math.nan, 0.0], True, step=1).item()
        == rND([1, 2, 3], ["a", None, "b"], "a", step=1).item()
    )
    with pytest.raises(ValueError, match="protected must be one, got 'f'"):
        rND([1, 2], [0, 1], "f", step=1)
    flags = [True, False, False]
    assert rND([3, 1, 2], flags, "true", step=1) == rND([3, 1, 2], flags, True, step=1) > 0
    long = np.arange(1, 301)
    protected = long > 150
    assert rND(long, protected, 1).item() == pytest.approx(1)
    assert rND(long, long % 2, 1).item() < 0.01


def test_whole_numbers_are_compared_exactly():
    large = 2**53
    groups = [large, large + 1]  # the same as floats
    assert attention_fairness([1, 2], groups, target={large: 0.9, large + 1: 0.1}) < 1
    assert rND([1, 2], groups, large, step=1) != 0
    assert attention_fairness([1, 2], [0, 1], target={False: 0.5, 1.0: 0.5}) > 0.9


def jensen_shannon(p, q):
    middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    both = [sum(a * math.log2(a / m) for a, m in zip(each, middle, strict=True) if a) for each in (p, q)]
    return sum(both) / 2


def test_attention_of_groups():
    worth = [1, 1 / math.log2(3), 1 / 2, 1 / math.log2(5)]
    total = sum(worth[:3])
    groups = ["x", "y", "z", "x"]
    attention = [worth[1] / total, worth[0] / total, worth[2] / total]
    found = attention_fairness([2, 1, 3, 4], groups, k=3)
    assert found.item() == pytest.approx(1 - jensen_shannon(attention, [0.5, 0.25, 0.25]))
    target = {"x": 1, "y": 1, "z": 1, "w": 1}
    found = attention_fairness([2, 1, 3, 4], groups, target=target, k=3)
    assert found.item() == pytest.approx(1 - jensen_shannon([*attention, 0], [0.25] * 4))
    assert attention_fairness([1, 2], [1, 2], target={1: 0, 2: 0, 3: 1}).item() == pytest.approx(0)
    with_unknown = attention_fairness([1, 2, 3], [0, None, 1])
    assert with_unknown.item() == pytest.approx(1 - jensen_shannon([2 / 3, 1 / 3], [0.5, 0.5]))
    assert attention_fairness([[1, 2], [0, 0]], [[1, 1], [1, 2]]).tolist() == pytest.approx([1, math.nan], nan_ok=True)
    assert attention_fairness([1, 2], [np.nan, np.nan]).isnan().all()
    with pytest.raises(ValueError, match="no share of the group 'y'"):
        attention_fairness([1, 2], ["x", "y"], target={"x": 1.0})
    for wrong in ({"x": -1}, {"x": math.nan}, {"x": 0}):
        with pytest.raises(ValueError, match=r"target must|target\[.* must"):
            attention_fairness([1], ["x"], target=wrong)
    with pytest.raises(TypeError, match="target must be shares by group"):
        attention_fairness([1], ["x"], target=[1.0])


def test_exposure_ratios():
    worth = [1, 1 / math.log2(3), 1 / 2, 0]
    ranks, groups, merits = [3, 1, 4, 2], ["f", "m", "f", "m"], [0.5, 0.75, 0.25, 0.25]
    f, m = (worth[2] + worth[3]) / 2, (worth[0] + worth[1]) / 2
    assert exposure_ratio(ranks, groups, "f", k=3).item() == pytest.approx(f / m)
    treatment = (f / 0.375) / (m / 0.5)
    assert exposure_ratio(ranks, groups, "f", merits=merits, k=3).item() == pytest.approx(treatment)
    clicks = (0.5 * worth[2] / 2 / 0.375) / ((0.75 * worth[0] + 0.25 * worth[1]) / 2 / 0.5)
    assert exposure_ratio(ranks, groups, "f", merits=merits, kind="impact", k=3).item() == pytest.approx(clicks)
    assert exposure_ratio([1, 0], ["f", "m"], "f").item() == math.inf
    assert exposure_ratio([[1, 2], [1, 2]], [[1, 1], [0, 0]], 1).isnan().all()
    assert exposure_ratio([1, 2], [1, 0], 1, merits=[0.0, 1.0]).item() == math.inf  # exposed without merit
    for merits, told in (([-1, 1], "merits must be finite and >= 0, got -1"), ([1], "merits must have one entry")):
        with pytest.raises(ValueError, match=told):
            exposure_ratio([1, 2], [1, 0], 1, merits=merits)
    with pytest.raises(ValueError, match="kind 'impact' requires merits="):
        exposure_ratio([1, 2], [1, 0], 1, kind="impact")
    with pytest.raises(ValueError, match="did you mean impact"):
        exposure_ratio([1, 2], [1, 0], 1, kind="impct")


#: The least number of protected documents at positions 1 to 12 for alpha = 0.1, as in the table of the paper on FA*IR.
PUBLISHED = {
    0.1: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    0.2: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1],
    0.3: [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2],
    0.4: [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3],
    0.5: [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 4],
    0.6: [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5],
    0.7: [0, 1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 6],
}


@pytest.mark.filterwarnings("ignore:no document has the protected group")
@pytest.mark.parametrize("share", PUBLISHED)
def test_published_tables_and_the_test_of_a_ranking(share):
    assert fair_quotas(12, share) == PUBLISHED[share]
    least = np.diff([0, *PUBLISHED[share]])  # protected as late as the table permits
    ranks = np.arange(1, 13)
    assert passes_fair_test(ranks, least, 1, share).tolist() == [True]
    for late in np.flatnonzero(least):
        wrong = least.copy()
        wrong[late] = 0
        assert passes_fair_test(ranks, wrong, 1, share).tolist() == [False]
        assert passes_fair_test(ranks, wrong, 1, share, k=int(late) or None).tolist() == [late > 0]


@pytest.mark.filterwarnings("ignore:no document has the protected group")
def test_fair_test_of_lists_of_several_lengths():
    ranks = torch.tensor([[1, 2, 3, 4], [4, 3, 2, 1], [1, 2, 3, 0], [0, 0, 0, 0]])
    groups = torch.tensor([[0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    assert passes_fair_test(ranks, groups, 1, 0.5).tolist() == [True, True, True, True]
    assert passes_fair_test(ranks, 1 - groups, 1, 0.5).tolist() == [True, True, True, True]
    assert passes_fair_test(ranks, groups, 2, 0.5).tolist() == [False, False, True, True]
    assert passes_fair_test(ranks, groups, 2, 0.5, k=3).tolist() == [True] * 4
    assert passes_fair_test([], [], 1, 0.5).tolist() == [True]
    with pytest.raises(ValueError, match="share must be a finite number above 0 and below 1"):
        passes_fair_test([], [], 1, 2)
    barely = np.diff([0, *fair_quotas(40, 0.5, adjusted=True)])
    assert passes_fair_test(np.arange(1, 41), barely, 1, 0.5, adjusted=True).all()
    assert not passes_fair_test(np.arange(1, 41), barely, 1, 0.5).any()


@pytest.mark.parametrize(
    "measure",
    [
        lambda ranks, groups, **more: rND(ranks, groups, 1, step=2, **more),
        lambda ranks, groups, **more: attention_fairness(ranks, groups, **more),
        lambda ranks, groups, **more: exposure_ratio(ranks, groups, 1, **more),
        lambda ranks, groups, **more: passes_fair_test(ranks, groups, 1, 0.5, **more),
    ],
)
def test_layouts_and_wrong_ranks(measure):
    ranks, groups = torch.tensor([[2, 1, 3, 4], [1, 2, 0, 0]]), torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]])
    where = torch.tensor([[True] * 4, [True, True, False, False]])
    padded = measure(ranks, groups, where=where)
    assert padded.shape == (2,)
    same = {"rtol": 0, "atol": 1e-12, "equal_nan": True}
    torch.testing.assert_close(measure(ranks[where], groups[where], offsets=[0, 4, 6]), padded, **same)
    shuffled = torch.tensor([0, 5, 4, 1, 2, 3])
    qid = torch.tensor([0] * 4 + [1] * 2)[shuffled]
    torch.testing.assert_close(measure(ranks[where][shuffled], groups[where][shuffled], qid=qid), padded, **same)
    for wrong in ([1, 1], [1, 3], [2, 0], [-1, 1]):
        with pytest.raises(ValueError, match="those of list 0 are not"):
            measure(wrong, [1, 0])
    with pytest.raises(TypeError, match="ranks must be whole numbers"):
        measure([1.0, 2.0], [1, 0])
    with pytest.raises(ValueError, match="groups must have one entry per document"):
        measure([1, 2], [1])


def test_a_protected_group_that_no_document_has_is_told():
    ranks, groups = [1, 2, 3, 4], ["women", "men", "women", "men"]
    measures = rND, rKL, exposure_ratio
    for measure in (*measures, lambda *given: passes_fair_test(*given, share=0.5)):
        with pytest.warns(UserWarning, match="no document has the protected group 'woman'; did you mean women?"):
            measure(ranks, groups, "woman")
    with pytest.warns(UserWarning, match="no document has the protected group 7"):
        exposure_ratio(ranks, [0, 1, 0, 1], 7)


def test_shares_of_whole_numbers_of_any_type():
    ranks, columns = [1, 2, 3, 4], ([0, 1, 1, 0], [0.0, 1.0, 1.0, 0.0], [False, True, True, False])
    for target in ({0: 1, 1: 3}, {0.0: 1, 1.0: 3}, {"0": 1, "1": 3}, {False: 1, True: 3}):
        found = {attention_fairness(ranks, groups, target=target).item() for groups in columns}
        assert found == {attention_fairness(ranks, columns[0], target={0: 1, 1: 3}).item()}
    with pytest.raises(ValueError, match=r"no share of the group 'men'; did you mean man\?"):
        attention_fairness(ranks, ["men", "x", "x", "men"], target={"man": 1, "x": 1})
