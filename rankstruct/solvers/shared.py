"""A risk whose terms are distributed over several processes.

    R(w) = (1/Q) sum_p Q_p R_p(w),      Q = sum_p Q_p

The first process runs the solver. To evaluate R at a point, it sends the point, each process evaluates its own terms, and the
values and subgradients are summed: only vectors of length d are communicated. Stopping criteria, such as time limits, callbacks
and rounding, are therefore decided in one place, and every solver that evaluates the complete risk works unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from rankstruct.solvers.solution import Solution

__all__ = ["NoTerms", "solve_together"]

_FOUND, _FAILED = -1.0, -2.0  # instead of the number of a risk


class Peers(Protocol):
    """Processes that make the same calls in the same order; see `rankstruct.processes.Team`."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""

    @property
    def world_size(self) -> int:
        """The number of processes."""

    def sum(self, vector: np.ndarray) -> np.ndarray:
        """Return the sum of a float64 vector over all processes."""

    def hand_out(self, value: Any) -> Any:
        """Return the value of the first process."""


class NoTerms:
    """The risk of a process that has no terms.

    >>> NoTerms(2)(np.ones(2))
    (0.0, array([0., 0.]))
    """

    terms = 0

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return zeros, the contribution of this process."""
        return 0.0, np.zeros(self.dimension)


def solve_together(risks: Sequence[Any], solve: Callable[[Sequence[Any]], Solution], team: Peers) -> Solution:
    """Let the first process run `solve` on the risks over the terms of all processes; each process returns its solution.

    Args:
        risks: each a `Risk` of this process's terms, or `NoTerms`; the same number in all processes, of the same dimension.
        solve: called only in the first process, with the same number of risks over all terms, which have no `term_planes`.
        team: the processes, all of which must call this; `rankstruct.processes.find_team()`.

    Returns:
        The solution; with planes only in the first process.

    Raises:
        ValueError: `solve` failed, or a risk in any of the processes.

    >>> from rankstruct.processes import find_team
    >>> from rankstruct.data import RankingData
    >>> from rankstruct.solvers import Bundle, LinearRisk
    >>> lists = RankingData.from_arrays([[1.0]], [0], ["a"])
    >>> risk = LinearRisk(lists, lambda scores: (np.abs(scores - 1), np.sign(scores - 1)))
    >>> solve_together([risk], lambda shared: Bundle().minimise(shared[0], C=10.0), find_team()).w.round(3)
    array([1.])
    """
    if team.world_size == 1:
        return solve(risks)
    totals = team.sum(np.array([risk.terms for risk in risks], float))
    shared = [_Shared(number, risk, totals[number], team) for number, risk in enumerate(risks)]
    if team.rank:
        return _serve(shared, team)
    try:
        solution = solve(shared)
    except BaseException as error:
        shared[0].send(_FAILED, None)
        team.hand_out(f"{type(error).__name__}: {error}")
        raise
    shared[0].send(_FOUND, None)
    team.hand_out(replace(solution, planes=None))
    return solution


class _Shared:
    """The risk over all terms, called in the first process, and the contribution of this process."""

    def __init__(self, number: int, own: Any, terms: float, team: Peers) -> None:
        self.number, self.own, self.team = number, own, team
        self.terms, self.dimension = int(terms), own.dimension

    def send(self, number: float, w: np.ndarray | None) -> np.ndarray:
        """The request of the first process, a risk number and a point, as a sum to which the others contribute zeros."""
        message = np.zeros(self.dimension + 1)
        if w is not None:
            message[1:] = w
        message[0] = number
        return self.team.sum(message)

    def answer(self, w: np.ndarray) -> tuple[np.ndarray, BaseException | None]:
        """Sums of values and subgradients; NaN if a process failed, with the error if it was this one."""
        answer, failed = np.full(self.dimension + 1, np.nan), None
        try:
            value, gradient = self.own(w)
            answer[0], answer[1:] = self.own.terms * value, self.own.terms * np.asarray(gradient)
        except BaseException as error:  # the others wait for the sum
            failed = error
        return self.team.sum(answer), failed

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        self.send(self.number, w)
        total, failed = self.answer(w)
        if failed is not None:
            raise failed
        if not np.isfinite(total).all():
            raise ValueError("the risk is not finite or could not be evaluated in one of the processes")
        return float(total[0]) / self.terms, total[1:] / self.terms

    def term_planes(self, w: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raise ValueError(
            "with several processes, only solvers that evaluate the complete risk are supported; use the bundle method"
        )


def _serve(shared: Sequence[_Shared], team: Peers) -> Solution:
    """Serve the first process until it has solved the problem."""
    failed: BaseException | None = None
    while True:
        message = shared[0].send(0.0, None)
        if message[0] < 0:
            break
        failed = shared[int(message[0])].answer(message[1:])[1] or failed
    found = team.hand_out(None)
    if failed is not None:
        raise failed
    if message[0] == _FAILED:
        raise ValueError(f"the first process failed: {found}")
    return found
