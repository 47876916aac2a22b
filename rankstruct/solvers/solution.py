"""What every solver returns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

__all__ = ["Planes", "Record", "Solution", "Status"]


class Status(str, Enum):
    """Why a solver stopped; `str()` adds what to do about it.

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
        """What to do about it; empty if nothing needs to be done."""
        return _ADVICE.get(self, "")

    def __str__(self) -> str:
        return f"{self.value}: {self.advice}" if self.advice else str(self.value)


_ADVICE = {
    Status.ITERATIONS: "raise max_iterations or loosen tolerance",
    Status.TIME: "raise max_seconds or loosen tolerance",
    Status.INTERRUPTED: "best so far; pass this solution as warm_start to go on",
    Status.CALLBACK: "best so far; pass this solution as warm_start to go on",
    Status.STALLED: "rounding hides any further progress; loosen tolerance, scale the features, or lower C",
    Status.NO_BETTER_THAN_ZERO: "take reference='ideal-tied' or 'predicted', several C with validation lists to choose by, or a "
    "CombinedLoss with GradedLoss('AUC'); of F1 and Accuracy, which look at the sign of scores, give X a column of ones",
}


class Record(NamedTuple):
    """The state after one iteration.

    Attributes:
        seconds: since the start.
        objective: the best so far.
        lower_bound: the highest so far; -inf where there is none.
        planes: number of planes held.
        oracle_seconds: spent in the risk so far.
        qp_seconds: spent in the quadratic programme so far.
        passes: evaluations of the risk over all terms so far; of some terms, that share of one.
    """

    seconds: float
    objective: float
    lower_bound: float
    planes: int
    oracle_seconds: float
    qp_seconds: float
    passes: float = 0.0


class Planes(NamedTuple):
    """Planes `intercepts + gradients w` that no term of the risk falls below anywhere, whatever C and w0.

    Attributes:
        gradients: `[planes, d]`.
        intercepts: `[planes]`, the values at w = 0.
        groups: `[planes]`, the term each belongs to; all 0 for planes of the whole risk.
        multipliers: `[planes]`, >= 0, the dual solution; those of a group add up to 1 / number of groups.
        num_groups: number of terms, or 1.
    """

    gradients: np.ndarray
    intercepts: np.ndarray
    groups: np.ndarray
    multipliers: np.ndarray
    num_groups: int


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """The best point found, and what is known about it.

    Attributes:
        w: `[d]` float64.
        objective: the regularised risk at `w`.
        lower_bound: no point has a lower objective; -inf where the problem is not convex.
        gap: `(objective - lower_bound) / |objective|`.
        iterations: of the outermost loop.
        status: why it stopped; `str(status)` says what to do about it. `CONVERGED` without a lower bound is a point where the
            method gains no more; another start may end lower.
        history: one `Record` an iteration.
        planes: for a warm start on the same risk; None from solvers that have none.

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


def relative_gap(objective: float, lower_bound: float) -> float:
    """`(objective - lower_bound) / |objective|`; 0 where both are 0.

    >>> relative_gap(2.0, 1.5), relative_gap(0.0, 0.0), relative_gap(1.0, float("-inf"))
    (0.25, 0.0, inf)
    """
    difference = objective - lower_bound
    if difference <= 0:
        return 0.0
    return difference / abs(objective) if objective else float("inf")
