"""Parts of the oracle of diverse rankings by themselves: SciPy's assignments, bounds that hold, orders as told."""

import numpy as np
import pytest
from diverse_problems import check_assignment, draw_assignment


@pytest.fixture(scope="module")
def parts(compiled):
    return compiled("diverse.cpp")


def test_the_assignment_has_scipys_value(parts):
    """With and without a table; with 0, 1, ... leading ranks that show irrelevant documents."""
    rng, led = np.random.default_rng(3), 0
    for _ in range(250):
        problem = draw_assignment(rng)
        expected = [problem.best(lead) for lead in range(problem.most_leads() + 1)]
        assert check_assignment(rng, parts, problem, expected), problem
        led += len(expected) > 2
    assert led > 40


def test_what_is_lost_by_one_more_leader_is_often_all(parts):
    """The bounds are those of prices, which know what one change costs."""
    rng, bounds, exact = np.random.default_rng(5), 0, 0
    for _ in range(300):
        problem = draw_assignment(rng)
        expected = [problem.best(lead) for lead in range(problem.most_leads() + 1)]
        _, found = problem.found(parts, 2**26, np.ones(len(expected) - 1))
        bounds, exact = bounds + len(found) - 1, exact + (np.abs(found - expected)[1:] < 1e-9 * problem.size()).sum()
    assert exact > 0.3 * bounds > 100


def test_documents_are_sorted_as_told_where_some_tie(parts):
    rng = np.random.default_rng(3)
    for _ in range(300):
        n = int(rng.integers(1, 20))
        m, span = int(rng.integers(1, n + 1)), int(rng.integers(1, 40))
        chosen, gains = rng.integers(0, span, n).astype(float), rng.integers(0, 3, n).astype(float)
        place, order = rng.permutation(n).astype(np.int32), np.full(n, -1, np.int32)
        parts.prefer(chosen, gains, place, order)
        assert [*order] == sorted(range(n), key=lambda at: (-chosen[at], -gains[at], place[at]))
        weights, shown = -np.sort(rng.integers(-2, 0, m)).astype(float), rng.permutation(n)[:m].astype(np.int32)
        given = shown.copy()
        parts.sort_shown(chosen, weights, given)
        by_weight = sorted(range(m), key=lambda i: (-weights[i], -chosen[shown[i]]))
        assert [*given] == [*shown[by_weight]]
