"""Each method of the positional map's assignment problem by itself, whichever would be chosen: SciPy's value."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from kernel_parts import called_from_python
from scipy.optimize import linear_sum_assignment

import rankstruct as rs
import rankstruct.kernels.assignment_cpu as assignment
import rankstruct.kernels.sorting as sorting
from rankstruct.kernels.dispatch import discount_table
from rankstruct.kernels.positional_cpu import (
    LATTICE,
    PRICES,
    PROPORTIONAL,
    SWEEP,
    choose_method,
)
from rankstruct.oracles import positional

by_lattice, by_prices, by_sweep, first_by_score, number_few = map(
    called_from_python,
    (assignment.by_lattice, assignment.by_prices, assignment.by_sweep, assignment.first_by_score, sorting.number_few),
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


def found_by(arguments, k):
    """The sequence of classes of every method that takes these arguments."""
    score, group, members, starts, gain, c, a = arguments
    found, by_class = {}, score[members]
    if len(gain) == 2:
        order = np.empty(len(score), np.int64)
        scratch = np.empty(k), np.empty(len(score), np.int64)
        space = assignment.lattice_space(len(score))
        first, known = by_lattice(by_class, starts, group, score, gain, c, a, k, order, *scratch, space)
        found["lattice"] = behind_by_score(order, first, group, 2)
        assert not known or (scratch[1] == np.argsort(order, kind="stable")).all()
    order = found.setdefault("prices", np.empty(len(score), np.int64))
    by_prices(score, group, gain, c, a, order, assignment.price_space(len(score)))
    for method, most in (("greedy start", 2**62), ("usual", 3 * len(score)), ("multilevel start", 0)):
        size = (k, k * len(gain), k * len(gain) ** 2)
        order, space = np.empty(len(score), np.int64), assignment.sweep_space(len(score), len(gain), size)
        places = np.empty(len(score), np.int64)
        first, known = by_sweep(by_class, starts, group, gain, c, a, k, most, order, places, space)
        found[method] = behind_by_score(order, first, group, len(gain))
        assert not known or (places == np.argsort(order, kind="stable")).all()
    return found


def behind_by_score(order, first, group, classes):
    """All that the first so many classes leave follows by score."""
    placed, seen, rest = np.bincount(order[:first], minlength=classes), np.zeros(classes, int), []
    for g in group:
        seen[g] += 1
        if seen[g] > placed[g]:
            rest.append(g)
    return np.concatenate([order[:first], rest]).astype(int)


@pytest.mark.parametrize(("classes", "longest"), [(2, 150), (3, 150), (5, 120), (9, 60), (25, 60)])
def test_every_method_has_scipys_value(classes, longest):
    rng = np.random.default_rng(classes)
    for _ in range(200):
        n = int(rng.integers(classes, longest + 1))
        k = int(rng.integers(1, n + 1)) if rng.random() < 0.7 else n
        arguments = problem(rng, n, classes, k)
        expected, size = best_value(arguments), max(1.0, np.abs(arguments[0]).max())
        for method, order in found_by(arguments, k).items():
            assert value(arguments, order) == pytest.approx(expected, abs=1e-9 * size), (method, n, k)


def hard_problem(rng, kind, n, k):
    """Arguments as those of `problem`, of a pattern that a shortcut could get wrong, and the size of their numbers."""
    classes = int(rng.integers(2, min(6, n) + 1))
    shares = rng.dirichlet(np.full(classes, 0.3 if kind == "one gain dominates" else 3.0))
    group = np.concatenate([np.arange(classes), rng.choice(classes, p=shares, size=n - classes)])
    rng.shuffle(group)
    gain = np.sort(rng.choice(np.arange(1, 12), size=classes, replace=False))[::-1] / 7
    i = np.arange(1, n + 1)
    c = i ** -float(rng.choice([0.1, 0.5, 1.0, 3.0]))
    a = [1 / np.log2(1 + i), 2.0 ** -((i - 1) / 4), 2.0**-i, i**-3.0][rng.integers(0, 4)]
    unit = float(rng.choice([1e-6, 1.0, 1e6]))
    noise = rng.normal(size=n)
    score = {
        "constant": np.zeros(n),
        "two values": rng.integers(0, 2, size=n) * 0.3,
        "ties but one": np.where(np.arange(n) == 0, 1e-3, 0.0),
        "nearly tied": np.round(noise) + 1e-9 * rng.integers(-2, 3, size=n),
        "by gain": gain[group] + 0.2 * noise,
        "against gain": -gain[group] + 0.2 * noise,
        "balanced": gain[group] * a[0] / c[0] + 1e-3 * np.round(noise),
        "one gain dominates": noise,
        "far outlier": np.where(np.arange(n) == 0, -1e4, noise),
    }[kind] * unit
    order = np.argsort(-score, kind="stable")
    score, group = score[order], group[order]
    a = np.where(i <= k, a, 0.0)
    starts = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=classes))])
    size = max(np.ptp(score), gain.max())
    return (score - score[0], group, np.argsort(group, kind="stable"), starts, gain, c, a), size


HARD = (
    "constant",
    "two values",
    "ties but one",
    "nearly tied",
    "by gain",
    "against gain",
    "balanced",
    "one gain dominates",
    "far outlier",
)


@pytest.mark.parametrize("kind", HARD)
def test_hard_lists_have_scipys_value(kind):
    rng = np.random.default_rng(HARD.index(kind))
    for turn in range(600):
        n = int(rng.integers(2, 9)) if turn % 3 else int(rng.integers(2, 90))
        k = int(rng.integers(1, n + 1)) if turn % 2 else n
        arguments, size = hard_problem(rng, kind, n, k)
        expected = best_value(arguments)
        for method, order in found_by(arguments, k).items():
            assert value(arguments, order) == pytest.approx(expected, abs=1e-11 * size), (method, n, k, turn)


@pytest.mark.parametrize("classes", [2, 3, 4, 6])
def test_discounts_that_fall_unevenly_have_scipys_value(classes):
    """Boundaries that would like other documents inside stand in several places, often near one another."""
    rng = np.random.default_rng(classes)
    for turn in range(4000):
        n = int(rng.integers(max(8, classes), 40))
        group = np.concatenate([np.arange(classes), rng.integers(0, classes, size=n - classes)])
        rng.shuffle(group)
        score = np.sort(rng.normal(size=n) * rng.choice([0.1, 1.0, 5.0]))[::-1]
        score = np.round(3 * score) if turn % 3 == 0 else score
        gain = np.sort(rng.random(classes))[::-1] if turn % 2 else 2.0 ** -np.arange(classes)
        falls = rng.random((2, n)) ** 3 * [[1.0], [rng.choice([0.2, 1.0, 5.0])]]
        falls[1] *= rng.random(n) < rng.choice([0.3, 1.0])
        c, a = (
            np.cumsum(falls[:, ::-1], axis=1)[:, ::-1]
            if turn % 4
            else (np.arange(1, n + 1) ** -0.5, falls[1].cumsum()[::-1])
        )
        starts = np.concatenate([[0], np.cumsum(np.bincount(group))])
        arguments = (score - score[0], group, np.argsort(group, kind="stable"), starts, gain, c.copy(), a.copy())
        expected = best_value(arguments)
        for method, order in found_by(arguments, n).items():
            assert value(arguments, order) == pytest.approx(expected, abs=1e-9), (method, n, turn)


@pytest.mark.parametrize("scale", [1e-150, 1e-5, 1e4, 1e150])
def test_the_scale_of_scores_and_gains_does_not_matter(scale):
    rng = np.random.default_rng(0)
    for _ in range(50):
        n = int(rng.integers(3, 60))
        k = int(rng.integers(1, n + 1))
        score, group, members, starts, gain, c, a = problem(rng, n, 3, k)
        scaled = (score * scale, group, members, starts, gain * scale, c, a)
        expected = best_value((score, group, members, starts, gain, c, a))
        for method, order in found_by(scaled, k).items():
            found = value((score, group, members, starts, gain, c, a), order)
            assert found == pytest.approx(expected, abs=1e-11 * max(1.0, np.abs(score).max())), (method, n, k)


def test_documents_follow_by_score_where_the_discount_hardly_falls():
    """Behind the position that is found; and it is found, where scores differ."""
    rng = np.random.default_rng(0)
    found = 0
    for turn in range(300):
        arguments, _ = hard_problem(rng, HARD[turn % len(HARD)], int(rng.integers(2, 60)), 1000)
        score, group, members, starts, gain, c, a = arguments
        n = len(score)
        first = first_by_score(score[members], starts, group, gain, c, a, np.empty_like(starts))
        found += first < n - 1
        for i in range(first, n - 1):
            liked = (c[i] - c[i + 1]) * score - (a[i] - a[i + 1]) * gain[group]
            assert (np.diff(liked) <= 0).all()
    assert found > 50


def test_a_list_that_takes_long_gets_another_start():
    """Small scores beside the gains, and a cut-off in the middle: the greedy start is far from the optimum."""
    rng = np.random.default_rng(0)
    n, k = 300, 150
    group = np.concatenate([np.arange(5), rng.integers(0, 5, size=n - 5)])
    score, i = np.sort(rng.normal(size=n))[::-1] * 0.002, np.arange(1, n + 1)
    starts = np.concatenate([[0], np.cumsum(np.bincount(group))])
    a = np.where(i <= k, 1 / np.log2(1 + i), 0.0)
    arguments = (score - score[0], group, np.argsort(group, kind="stable"), starts, np.arange(5)[::-1] / 50, i**-0.5, a)
    expected = best_value(arguments)
    for order in found_by(arguments, k).values():
        assert value(arguments, order) == pytest.approx(expected, abs=1e-12)


def test_the_choice_of_a_method():
    assert choose_method(1000, 5, 10, True) == PROPORTIONAL
    assert choose_method(1000, 5, 10, False) == SWEEP
    assert choose_method(1000, 5, 1000, False) == SWEEP
    assert choose_method(20, 2, 20, False) == LATTICE
    assert choose_method(1000, 2, 1000, False) == LATTICE
    assert choose_method(100_000, 2, 10, False) == LATTICE
    assert choose_method(100_000, 2, 100_000, False) == SWEEP
    assert choose_method(1000, 33, 1000, False) == PRICES
    assert choose_method(1000, 100, 10, False) == SWEEP
    assert choose_method(1000, 1000, 10, False) == PRICES


@pytest.mark.parametrize("half_life", [1.5, 5.0, 50.0])
@pytest.mark.parametrize("k", [1, 40, 150, 300])
def test_two_gains_of_long_lists_far_from_greedy(k, half_life):
    rng = np.random.default_rng(k)
    i = np.arange(1, 301)
    for lead, decay, decimals in [(3, 0.5, 9), (-3, 0.5, 9), (0, 0.1, 1), (3, 0.0, 2), (30, 1.0, 9), (0.5, 0.5, 0)]:
        relevant = rng.random(300) < rng.choice([0.02, 0.2, 0.5, 0.9])
        relevant[:2] = True, False
        score = (rng.normal(size=300) + lead * relevant).round(decimals)
        order = np.argsort(-score, kind="stable")
        score, group = score[order] - score.max(), np.where(relevant[order], 0, 1)
        starts = np.concatenate([[0], np.cumsum(np.bincount(group))])
        a = np.where(i <= k, 2.0 ** (-(i - 1) / half_life), 0.0)
        gain = np.array([rng.choice([0.1, 1.0, 20.0]), 0.0])
        arguments = (score, group, np.argsort(group, kind="stable"), starts, gain, i**-decay, a)
        found = value(arguments, found_by(arguments, k)["lattice"])
        assert found == pytest.approx(best_value(arguments), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("kind", ["random", "by gain", "against gain", "few scores", "few gains", "grades", "tied"])
@pytest.mark.parametrize(
    "measure", ["nDCG(gain='linear')", "nDCG@1", "nDCG@5", "DCG(discount='letor')@20", "ERU(d=0,half_life=5)"]
)
def test_real_valued_targets_have_scipys_value(measure, kind):
    """As many gains as documents: most lists are solved by prices, those with a cut-off by the sweep of what is left of them.

    With grades, of which the lowest is the most frequent, the documents that a cut-off can reach are few.
    """
    rng = np.random.default_rng(5)
    parsed, decay = rs.parse_measure(measure), rs.Positional("i^-1/3")
    for n in (17, 18, 40, 90, 200):
        labels = rng.random((5, n)) * rng.choice([0.3, 3.0], size=(5, 1))
        labels = np.round(labels * 20) / 20 if kind == "few gains" else labels
        if kind == "grades":
            labels = np.maximum(np.floor(rng.random((5, n)) * [[3], [4], [5], [6], [9]]) - 1, 0)
            labels[:, 2:4] = [0, 1]  # no list of one grade, of which no ranking is wrong
        noise = rng.normal(size=(5, n))
        scores = {
            "random": noise,
            "few gains": noise,
            "grades": 0.3 * noise,
            "by gain": labels + 0.2 * noise,
            "against gain": -labels + 0.2 * noise,
            "few scores": np.round(2 * noise) / 2,
            "tied": np.zeros((5, n)),
        }[kind]
        given = torch.tensor(scores), torch.tensor(labels)
        found = rs.most_violated(*given, parsed, feature_map=decay, reference="ideal")
        c, a = decay.weights(n).numpy(), parsed.position_weights(n).numpy()
        for i in range(5):
            gains = parsed.document_gains(given[1][i]).numpy()
            best = np.sort(gains)[::-1] @ a
            unit = best if parsed.normalized else 1.0
            cost = np.outer(scores[i], c) - np.outer(gains, a) / unit
            expected = cost[linear_sum_assignment(cost, maximize=True)].sum() + best / unit
            expected -= scores[i][np.argsort(-labels[i], kind="stable")] @ c
            assert found.value[i].item() == pytest.approx(expected, abs=1e-9), (n, i)


@pytest.mark.parametrize("scale", [0.0, 0.01, 0.2, 3.0])
@pytest.mark.parametrize("measure", ["RR", "RR@10", "RR@1"])
def test_reciprocal_rank_of_longer_lists_has_scipys_value(measure, scale):
    """The best ranking of those whose first r documents are irrelevant, for every r."""
    rng = np.random.default_rng(7)
    k = rs.parse_measure(measure).cutoff or 10**6
    for n in (12, 40):
        c = rs.Positional("i^-0.5").weights(n).numpy()
        labels = (rng.random((4, n)) < [[0.05], [0.2], [0.5], [0.9]]).astype(float)
        labels[:, 3] = 1.0
        scores = scale * rng.normal(size=(4, n))
        given = torch.tensor(scores), torch.tensor(labels)
        found = rs.most_violated(*given, measure, feature_map=rs.Positional("i^-0.5"), reference="predicted").value
        for i in range(4):
            best = -np.inf
            for r in range(min(int((labels[i] == 0).sum()), k) + 1):
                cost = np.outer(scores[i], c) - 1e6 * np.outer(labels[i], np.arange(n) < r)
                worth = 1.0 - (1.0 / (1 + r) if r < k else 0.0)
                best = max(best, worth + cost[linear_sum_assignment(cost, maximize=True)].sum())
            order = np.lexsort((np.arange(n), -labels[i], -scores[i]))
            assert found[i].item() == pytest.approx(best - scores[i][order] @ c, abs=1e-9), (n, i)


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


def test_kept_scratch_belongs_to_one_thread_and_one_call():
    cases = [(measure, size) for measure in ("nDCG@3", "nDCG", "RR", "mWTA") for size in (200, 3, 60, 7)]
    expected = []
    for case in cases:
        positional._SCRATCH = positional._Scratch()
        expected.append(answer(*case))
    assert [answer(*case) for case in cases] == expected
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda case: answer(*case), cases * 20))
    assert found == expected * 20


def test_long_scratch_is_not_kept(monkeypatch):
    monkeypatch.setattr(positional, "_MOST_KEPT", 5)
    scratch = positional._Scratch()

    def shared(sizes, others):
        one, other = list(scratch.arrays(*sizes)), list(scratch.arrays(*others))
        return {bool(np.shares_memory(a, b)) for a, b in zip(one, other, strict=True)}

    assert shared((5, 2), (3, 1)) == shared((3, 2), (5, 2)) == {True}
    assert shared((6, 6), (6, 6)) == {False}
    assert not np.shares_memory(scratch.arrays(6, 1)[0], vars(scratch)["_arrays"][0])
    assert shared((5, 2), (5, 2)) == {True}
    assert [each.shape[0] for each in scratch.arrays(4, 3)] == [4] * 7 + [3] * 7


@pytest.mark.parametrize("name", ["nDCG", "P@2", "RR", "DCG(gain='linear')@3", "mWTA", "nDCG(min_relevant=2)"])
def test_gains_of_grades_that_are_known_are_those_of_the_measure(name):
    positional._TABLES.clear()
    measure = rs.parse_measure(name)
    scores, padding = torch.randn(5, 8), torch.rand(5, 8) < 0.2
    for labels in (
        torch.randint(0, 2, (5, 8)),
        torch.randint(0, 5, (5, 8)),  # grades that were not seen before
        torch.randint(0, 5, (5, 8)).float(),
        torch.randint(0, 5, (5, 8)) + 0.5 * torch.rand(5, 8).round(),
        torch.randint(0, 5, (5, 8)).double(),
        torch.randint(0, 5, (5, 8)).to(torch.uint8),
        torch.randint(0, 400, (5, 8)).clamp(max=300),
    ):
        padded = labels.double().masked_fill(padding, torch.nan)
        for given, where in ((labels, None), (labels, ~padding), (padded, ~padding)):
            table = positional.rank_tables(measure, rs.Positional(), scores).gains
            found = positional._gains_of_grades(measure, given, where, table)
            real = torch.ones_like(padding) if where is None else where
            torch.testing.assert_close(found[real], positional._gains(measure, labels)[real], rtol=0, atol=0)


@pytest.mark.parametrize("bad", [-1.0, torch.nan, torch.inf, -torch.inf])
def test_labels_are_refused_whether_the_others_are_known_or_not(bad):
    scores, good = torch.randn(2, 3), torch.tensor([[0.0, 1, 2], [2, 1, 0]])
    wrong = good.clone()
    wrong[1, 1] = bad
    where = torch.tensor([[True] * 3, [True, False, True]])
    positional._TABLES.clear()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"labels must be .*document \[1, 1\]"):
            rs.most_violated(scores, wrong, "nDCG")
        expected = rs.most_violated(scores, good, "nDCG", where=where)
        found = rs.most_violated(scores, wrong, "nDCG", where=where)
        assert all(map(torch.equal, found, expected))
        rs.most_violated(scores, good, "nDCG")


def test_gains_of_a_users_function_or_measure_are_asked_for_at_each_call():
    class Power(rs.DCG):  # whose option no comparison sees
        def __init__(self, power):
            super().__init__()
            object.__setattr__(self, "power", power)

        def document_gains(self, labels):
            return labels.double() ** self.power

    state, scores, labels = {"power": 1.0}, torch.randn(3, 6), torch.randint(0, 4, (3, 6))
    kept = rs.StructuredHingeLoss(rs.DCG(gain=lambda labels: labels ** state["power"]))
    for power in (1.0, 3.0):
        state["power"] = power
        expected = rs.most_violated(scores, labels, rs.DCG(gain=lambda labels, power=power: labels**power)).value
        torch.testing.assert_close(kept(scores, labels, reduction="none"), expected)
        torch.testing.assert_close(rs.most_violated(scores, labels, Power(power)).value, expected)


def test_discounts_need_not_reach_further_than_the_longest_list():
    scores, labels, offsets = torch.randn(300), torch.randint(0, 3, (300,)), list(range(0, 301, 10))
    falls = {"discount": lambda ranks: 1 - 0.01 * ranks}
    found = rs.most_violated(scores, labels, rs.nDCG(**falls), offsets=offsets)
    expected = rs.most_violated(scores.view(30, 10), labels.view(30, 10), rs.nDCG(**falls))
    torch.testing.assert_close(found.value, expected.value)
    with pytest.raises(ValueError, match="labels must be 0 or more"):
        rs.most_violated(scores, labels - 1, rs.nDCG(**falls), offsets=offsets)


def test_a_decay_that_is_changed_later_does_no_harm():
    decays = torch.arange(12, 0, -1).double()
    loss = rs.StructuredHingeLoss("nDCG", feature_map=rs.Positional(lambda ranks: decays[: len(ranks)]))
    scores, labels = torch.randn(4, 12), torch.randint(0, 4, (4, 12))
    before = loss(scores, labels)
    decays[3] = 100.0
    assert loss(scores, labels) == before


def test_of_wrong_labels_the_first_one_that_is_infinite_or_the_last_below_zero_is_named():
    scores = torch.tensor([3.0, 1.0, 2.0, 0.0])
    with pytest.raises(ValueError, match="labels must be finite; document 0 is inf"):
        rs.most_violated(scores, torch.tensor([torch.inf, 0.0, torch.nan, 1.0]), "nDCG")
    with pytest.raises(ValueError, match="document 2 has gain -1"):
        rs.most_violated(scores, torch.tensor([1.0, 1.0, 1.0, 0.0]), rs.DCG(gain=lambda labels: -labels))


@pytest.mark.parametrize("number", [1, 5, 8, 9])
@pytest.mark.parametrize("padded", [False, True])
def test_few_grades_are_numbered_whatever_they_are(number, padded):
    generator = np.random.default_rng(number)
    for _ in range(300):  # some of which fall into one slot
        grades = np.concatenate([generator.choice(16, number, replace=False), generator.random(number) * 9])
        values = generator.choice(generator.choice(grades, number, replace=False), 60) * generator.choice(
            [1.0, -0.0, 1.0]
        )
        where = (generator.random(60) < 0.8).astype(np.uint8) if padded else np.empty(0, np.uint8)
        real = where == 1 if padded else np.ones(60, bool)
        numbers, grade, behind = np.empty(60, np.int64), np.empty(9, np.int64), np.empty(9, np.int64)
        slots = generator.integers(0, 9, 128)
        found = number_few(values.view(np.int64), where, numbers, grade, behind, slots)
        expected = -np.unique(-values[real] + 0.0)
        if len(expected) > sorting.COUNTED_CLASSES:
            assert found == -1
            continue
        assert np.array_equal(grade[:found].view(np.float64), expected)
        assert np.array_equal(numbers[real], np.searchsorted(-expected, -values[real]))
        assert (numbers[~real] == -1).all()
        assert np.array_equal(behind[:found], [(values[real] >= each).sum() for each in expected])


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


def test_tables_of_the_sweep_are_those_of_its_own_lists():
    """A list of many gains beside a long one of few: the first by prices; one table for both would take more than there is."""
    generator = torch.Generator().manual_seed(0)
    many, few = torch.rand(40_000, dtype=torch.float64, generator=generator), 100_000
    scores = torch.cat([many, torch.randn(few, dtype=torch.float64, generator=generator)])
    labels = torch.cat([many, torch.randint(0, 5, (few,), generator=generator).double()])
    offsets = torch.tensor([0, len(many), len(scores)])
    found = rs.most_violated(scores, labels, "nDCG", offsets=offsets, feature_map="positional")
    alone = rs.most_violated(scores[len(many) :], labels[len(many) :], "nDCG", feature_map="positional")
    assert found.value[1] == alone.value
