"""The result of a solver."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

__all__ = ["Planes", "Record", "Solution", "Status"]


class Status(str, Enum):
    """Why a solver stopped; `str()` adds advice.

    >>> str(Status.ITERATIONS)
    'iteration limit: raise max_iterations or loosen tolerance'
    >>> Status.CONVERGED == "converged"
    True
    """

    CONVERGED = "converged"
    ITERATIONS = "iteration limit"
    TIME = "time limit"
    INTERRUPTED = "interrupted"
    CALLBACK = "stopped by callback"
    STALLED = "stalled"
    NO_BETTER_THAN_ZERO = "no better than w = 0, where all documents tie"

    @property
    def advice(self) -> str:
        """What to do about it; empty if converged."""
        return _ADVICE.get(self, "")

    def __str__(self) -> str:
        return f"{self.value}: {self.advice}" if self.advice else str(self.value)


_ADVICE = {
    Status.ITERATIONS: "raise max_iterations or loosen tolerance",
    Status.TIME: "raise max_seconds or loosen tolerance",
    Status.INTERRUPTED: "best so far; pass this solution as warm_start to continue",
    Status.CALLBACK: "best so far; pass this solution as warm_start to continue",
    Status.STALLED: "progress is limited by rounding; loosen tolerance, scale the features, or lower C",
    Status.NO_BETTER_THAN_ZERO: "use reference='ideal-tied' or 'predicted', several C selected on validation lists, or a "
    "CombinedLoss with GradedLoss('AUC'); for F1 and Accuracy, which depend on the sign of scores, add a column of ones to X "
    "and pass prepare=()",
}


class Record(NamedTuple):
    """The state after one iteration.

    Attributes:
        seconds: since the start.
        objective: the best so far.
        lower_bound: the highest so far; -inf if there is none.
        planes: number of planes held.
        oracle_seconds: spent in the risk so far.
        qp_seconds: spent in the quadratic program so far.
        passes: evaluations of the risk over all terms so far; of some terms, that share of one.

    >>> record = Record(0.1, 2.0, 1.5, 4, 0.05, 0.02, 4.0)
    >>> record.objective - record.lower_bound
    0.5
    """

    seconds: float
    objective: float
    lower_bound: float
    planes: int
    oracle_seconds: float
    qp_seconds: float
    passes: float = 0.0


class Planes(NamedTuple):
    """Planes `intercepts + gradients w`, lower bounds of the terms of the risk for any C and w0.

    Attributes:
        gradients: `[planes, d]`.
        intercepts: `[planes]`, the values at w = 0.
        groups: `[planes]`, the term each belongs to; all 0 for planes of the whole risk.
        multipliers: `[planes]`, >= 0, the dual solution, with sum 1 / number of groups over each group.
        num_groups: number of terms, or 1.

    >>> planes = Planes(np.array([[1.0], [-1.0]]), np.array([0.0, 2.0]), np.zeros(2, int), np.array([0.5, 0.5]), 1)
    >>> planes.gradients @ np.array([0.5]) + planes.intercepts  # w and 2 - w at w = 0.5
    array([0.5, 1.5])
    """

    gradients: np.ndarray
    intercepts: np.ndarray
    groups: np.ndarray
    multipliers: np.ndarray
    num_groups: int


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """The best point found, with certificate and history.

    Attributes:
        w: `[d]` float64.
        objective: the regularised risk at `w`.
        lower_bound: a lower bound of the optimum; -inf if the problem is not convex.
        gap: `(objective - lower_bound) / |objective|`.
        iterations: of the outermost loop.
        status: why the solver stopped; `str(status)` adds advice. `CONVERGED` without a lower bound is a point where the method
            makes no more progress; another start may lead to a lower objective.
        history: one `Record` per iteration.
        planes: for a warm start with the same risk; None from solvers without planes.

    >>> Solution(np.zeros(2), 0.5, -float("inf"), float("inf"), 4, Status.CONVERGED)
    Solution(objective=0.5, no lower bound, iterations=4, status=converged)
    """

    w: np.ndarray
    objective: float
    lower_bound: float
    gap: float
    iterations: int
    status: Status
    history: tuple[Record, ...] = ()
    planes: Planes | None = None

    def __repr__(self) -> str:
        bound = "no lower bound"
        if self.lower_bound > float("-inf"):
            bound = f"lower_bound={self.lower_bound:.6g}, gap={self.gap:.2g}"
        return f"Solution(objective={self.objective:.6g}, {bound}, iterations={self.iterations}, status={self.status.value})"
