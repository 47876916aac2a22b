"""Each method of the positional map's assignment problem by itself, whichever would be chosen: SciPy's value."""

import numpy as np
import pytest
from assignment_problems import (
    HARD,
    Problem,
    draw_group,
    draw_hard_problem,
    draw_long_problem,
    draw_problem,
    draw_uneven_problem,
    solve,
)

PROPORTIONAL, SWEEP, PRICES = 1, 2, 3


@pytest.fixture(scope="module")
def parts(compiled):
    return compiled("assignment.cpp")


def draw_cutoff(rng, n, chance):
    return int(rng.integers(1, n + 1)) if rng.random() < chance else n


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("classes", "longest"), [(2, 150), (3, 150), (5, 120), (9, 60), (25, 60)])
def test_every_method_has_scipys_value(classes, longest, parts):
    rng = np.random.default_rng(classes)
    for _ in range(200):
        n = int(rng.integers(classes, longest + 1))
        k = draw_cutoff(rng, n, 0.7)
        problem = draw_problem(rng, n, classes, k)
        expected, size = problem.best_value(), max(1.0, np.abs(problem.score).max())
        for method, order in solve(parts, problem, k).items():
            assert problem.value(order) == pytest.approx(expected, abs=1e-9 * size), (method, n, k)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", HARD)
def test_hard_lists_have_scipys_value(kind, parts):
    rng = np.random.default_rng(HARD.index(kind))
    for turn in range(600):
        n = int(rng.integers(2, 9)) if turn % 3 else int(rng.integers(2, 90))
        k = int(rng.integers(1, n + 1)) if turn % 2 else n
        problem, size = draw_hard_problem(rng, kind, n, k)
        expected = problem.best_value()
        for method, order in solve(parts, problem, k).items():
            assert problem.value(order) == pytest.approx(expected, abs=1e-11 * size), (method, n, k, turn)


@pytest.mark.parametrize("classes", [2, 3, 4, 6])
def test_discounts_that_fall_unevenly_have_scipys_value(classes, parts):
    rng = np.random.default_rng(classes)
    for turn in range(400):
        problem = draw_uneven_problem(rng, classes, turn)
        expected = problem.best_value()
        for method, order in solve(parts, problem, len(problem.score)).items():
            assert problem.value(order) == pytest.approx(expected, abs=1e-9), (method, turn)


@pytest.mark.parametrize("scale", [1e-150, 1e-5, 1e4, 1e150])
def test_the_scale_of_scores_and_gains_does_not_matter(scale, parts):
    rng = np.random.default_rng(0)
    for _ in range(50):
        n = int(rng.integers(3, 60))
        k = int(rng.integers(1, n + 1))
        problem = draw_problem(rng, n, 3, k)
        scaled = problem._replace(score=problem.score * scale, gain=problem.gain * scale)
        expected = problem.best_value()
        for method, order in solve(parts, scaled, k).items():
            allowed = 1e-11 * max(1.0, np.abs(problem.score).max())
            assert problem.value(order) == pytest.approx(expected, abs=allowed), (method, n, k)


def test_documents_follow_by_score_where_the_discount_hardly_falls(parts):
    """After the position that is found, which exists if scores differ."""
    rng = np.random.default_rng(0)
    found = 0
    for turn in range(300):
        n = int(rng.integers(2, 60))
        k = int(rng.integers(1, n + 1)) if turn % 2 else n
        problem, _ = draw_hard_problem(rng, HARD[turn % len(HARD)], n, k)
        score, group, gain, c, a = problem
        first = parts.by_score_from(*problem.given(k))
        assert 0 < first <= k
        found += first < min(k, n - 1)
        for i in range(first, n - 1):
            liked = (c[i] - c[i + 1]) * score - (a[i] - a[i + 1]) * gain[group]
            assert (np.diff(liked) <= 0).all()
    assert found > 50


def test_a_greedy_ranking_is_an_optimum_where_it_says_so(parts):
    """Its margins say by how much a boundary would like others inside."""
    rng = np.random.default_rng(4)
    nested = 0
    for _ in range(600):
        classes = int(rng.integers(2, 6))
        problem = draw_problem(rng, int(rng.integers(classes, 40)), classes, 1000)
        score, group, gain, c, a = problem
        n, members = len(score), problem.members
        order, margin = np.full(n, -1, np.int32), np.empty(n)
        says = parts.greedily(*problem.given(n), order, margin)
        places = np.argsort(order, kind="stable")
        for i in range(n - 1):
            liked = (c[i] - c[i + 1]) * score[members] - (a[i] - a[i + 1]) * gain[group[members]]
            expected = liked[places <= i].min() - liked[places > i].max()
            assert min(margin[i], 0) == pytest.approx(min(expected, 0), rel=1e-9, abs=1e-12)
        assert says == (margin >= 0).all()
        if says:
            nested += 1
            size = max(1.0, np.abs(score).max())
            assert problem.value(order) == pytest.approx(problem.best_value(), abs=1e-9 * size)
    assert 100 < nested < 500


def test_a_list_that_takes_long_gets_another_start(parts):
    """Scores small relative to the gains, and a cut-off in the middle: the greedy start is far from the optimum."""
    rng = np.random.default_rng(0)
    n, k = 300, 150
    group = draw_group(rng, n, 5)
    i = np.arange(1, n + 1)
    a = np.where(i <= k, 1 / np.log2(1 + i), 0.0)
    problem = Problem.of(rng.normal(size=n) * 0.002, group, np.arange(5)[::-1] / 50, i**-0.5, a)
    expected = problem.best_value()
    for order in solve(parts, problem, k).values():
        assert problem.value(order) == pytest.approx(expected, abs=1e-12)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("half_life", [1.5, 5.0, 50.0])
@pytest.mark.parametrize("k", [1, 40, 150, 300])
def test_two_gains_of_long_lists_far_from_greedy(k, half_life, parts):
    rng = np.random.default_rng(k)
    for kind in range(6):
        problem = draw_long_problem(rng, kind, k, half_life)
        expected = problem.best_value()
        for way, order in solve(parts, problem, k).items():
            assert problem.value(order) == pytest.approx(expected, rel=1e-11, abs=1e-11), way


def test_the_choice_of_a_method(parts):
    for given, method in (
        ((1000, 5, 10, True), PROPORTIONAL),
        ((1000, 5, 10, False), SWEEP),
        ((1000, 5, 1000, False), SWEEP),
        ((20, 2, 20, False), SWEEP),
        ((100_000, 2, 10, False), SWEEP),
        ((100_000, 2, 100_000, False), SWEEP),
        ((1000, 33, 1000, False), PRICES),
        ((1000, 100, 10, False), SWEEP),
        ((1000, 1000, 10, False), PRICES),
    ):
        assert parts.chosen_method(*given) == method, given
