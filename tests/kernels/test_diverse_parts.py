"""Parts of the oracle of diverse rankings by themselves: SciPy's assignments, bounds that hold, orders as told."""

import numpy as np
import pytest
from diverse_problems import draw_assignment, draw_leading, find_leaders


@pytest.fixture(scope="module")
def parts(compiled):
    return compiled("diverse.cpp")


@pytest.mark.parametrize("draw", [draw_assignment, draw_leading])
def test_the_assignment_has_scipys_value(draw, parts):
    """Whether its table has room for all ranks, for some, or for one at a time."""
    rng = np.random.default_rng(3)
    for _ in range(400):
        problem = draw(rng)
        ranks = len(problem.value)
        for rows in {0, 1, int(rng.integers(1, ranks + 1)), ranks}:
            assert problem.found(parts, rows) == pytest.approx(problem.best(), abs=1e-9 * problem.size())


def test_the_bounds_for_reciprocal_rank_are_above_scipys_assignments(parts):
    """And where one group at most joins the leaders, no more than that; the best ranking of all is found."""
    rng, joined_by_one, bounds = np.random.default_rng(11), 0, 0
    for _ in range(600):
        found = find_leaders(rng, parts)
        above = found.totals - found.totals[0]
        assert (found.bound[1:] >= above[1:] - 1e-9).all()
        exact = np.abs(found.bound[1:-1] - above[1:-1]) < 1e-9
        joined_by_one, bounds = joined_by_one + (found.known[1] != -1), bounds + exact.sum()
        assert found.value_known == pytest.approx(found.known[2], abs=1e-9)
        assert found.exact == pytest.approx((above - found.charge).max(), abs=1e-9)
    assert joined_by_one > 20
    assert bounds > 1000


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
