"""Terms divided among several processes, here threads with the same interface: the solution of one, and errors told to all."""

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
from solvers.examples import flat_lists

from rankstruct.solvers import (
    DC,
    Annealing,
    Bundle,
    CuttingPlane,
    LinearRisk,
    NoTerms,
    Status,
    group_regression,
    solve_together,
)


@dataclass
class Meeting:
    """Where the threads leave what they send."""

    size: int
    given: dict = field(default_factory=dict)

    def __post_init__(self):
        self.barrier = threading.Barrier(self.size, timeout=20)

    def exchange(self, rank, value):
        self.given[rank] = value
        self.barrier.wait()
        found = [self.given[rank] for rank in range(self.size)]
        self.barrier.wait()
        return found


@dataclass
class Member:
    rank: int
    meeting: Meeting

    @property
    def world_size(self):
        return self.meeting.size

    def sum(self, vector):
        return np.sum(self.meeting.exchange(self.rank, np.array(vector)), axis=0)

    def hand_out(self, value):
        return self.meeting.exchange(self.rank, value)[0]


def together(size, work):
    """`work(team)` in several threads; their results or errors."""
    meeting, found = Meeting(size), [None] * size

    def run(rank):
        try:
            found[rank] = work(Member(rank, meeting))
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


rng = np.random.default_rng(0)
X, TARGETS = rng.normal(size=(60, 4)), rng.normal(size=60)


def absolute(rows):
    """Mean |x w - target| over pairs of rows."""
    rows = np.asarray(rows).ravel()

    def oracle(scores):
        away = scores - TARGETS[rows]
        return np.abs(away).reshape(-1, 2).sum(1), np.sign(away)

    return LinearRisk(flat_lists(X[rows], np.arange(0, len(rows) + 1, 2)), oracle) if len(rows) else NoTerms(4)


PAIRS = np.arange(60).reshape(-1, 2)


def share(team):
    """Uneven: the last of three has nothing."""
    return [PAIRS[:7], PAIRS[7:], PAIRS[:0]][team.rank]


@pytest.mark.parametrize("solver", [Bundle(tolerance=1e-8), DC(solver=Bundle(tolerance=1e-8))])
def test_the_solution_is_that_of_one_process(solver):
    def solve(risks):
        if isinstance(solver, Bundle):
            return solver.minimise(risks[0], 10.0)
        return solver.minimise(risks[0], lambda w: (0.0, np.zeros(4)), 10.0)

    alone = solve([absolute(PAIRS)])
    solutions = together(3, lambda team: solve_together([absolute(share(team))], solve, team))
    for solution in solutions:
        assert solution.objective == pytest.approx(alone.objective, rel=1e-7)
        assert solution.status is Status.CONVERGED
        assert (solution.w == solutions[0].w).all()
        assert solution.lower_bound == solutions[0].lower_bound
        assert solution.history == solutions[0].history
    if isinstance(solver, Bundle):
        assert solutions[0].gap <= 1e-8
        assert solutions[0].planes is not None
        assert solutions[1].planes is None


def test_several_risks():
    """Annealing: one risk a stage."""
    annealing = Annealing(stages=4)

    def smooth(rows, sigma):
        rows = np.asarray(rows).ravel()

        def oracle(scores):
            away = scores - TARGETS[rows]
            length = np.sqrt(away**2 + sigma**2)
            return length.reshape(-1, 2).sum(1), away / length

        return LinearRisk(flat_lists(X[rows], np.arange(0, len(rows) + 1, 2)), oracle) if len(rows) else NoTerms(4)

    def solve(risks):
        return annealing.minimise(dict(zip(annealing.sigmas, risks, strict=True)).__getitem__, 10.0, w0=np.zeros(4))

    alone = solve([smooth(PAIRS, sigma) for sigma in annealing.sigmas])
    found = together(3, lambda team: solve_together([smooth(share(team), s) for s in annealing.sigmas], solve, team))
    assert [each.objective for each in found] == pytest.approx([alone.objective] * 3, rel=1e-7)


def test_what_stops_the_first_process_stops_all():
    """A clock or a callback is asked in one process alone."""
    asked = []

    def solve(risks):
        return Bundle(callback=lambda record, w: asked.append(1) or len(asked) == 3).minimise(risks[0], 10.0)

    found = together(2, lambda team: solve_together([absolute([PAIRS[:7], PAIRS[7:]][team.rank])], solve, team))
    assert [each.status for each in found] == [Status.CALLBACK] * 2
    assert len(asked) == 3


def test_an_error_anywhere_ends_all():
    class Broken:
        terms, dimension = 3, 4

        def __call__(self, w):
            raise OverflowError("too large")

    def solve(risks):
        return Bundle().minimise(risks[0], 10.0)

    for broken in range(2):
        risks = [absolute(PAIRS), absolute(PAIRS)]
        risks[broken] = Broken()
        found = together(2, lambda team, risks=risks: solve_together([risks[team.rank]], solve, team))
        assert isinstance(found[broken], OverflowError)
        assert isinstance(found[1 - broken], ValueError)
    assert "the first process failed: OverflowError: too large" in str(together(
        2, lambda team: solve_together([[Broken(), absolute(PAIRS)][team.rank]], solve, team)
    )[1])  # fmt: skip
    found = together(
        2, lambda team: solve_together([absolute(PAIRS)], lambda risks: CuttingPlane().minimise(risks[0], 10.0), team)
    )
    assert all("only solvers that evaluate the complete risk" in str(error) for error in found)


def test_regression_over_all_groups():
    alone = group_regression(X, TARGETS, np.arange(0, 61, 2))

    def work(team):
        rows = share(team).ravel()
        return group_regression(X[rows], TARGETS[rows], np.arange(0, len(rows) + 1, 2), team)

    for found in together(3, work):
        np.testing.assert_allclose(found, alone, rtol=1e-10)
