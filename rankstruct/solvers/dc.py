"""DC programming: a difference of convex risks P - N by rounds of convex problems.

At a point v the concave part is linearised, N(w) >= N(v) + <g, w - v> with g a subgradient of N at v. A round minimises

    1/(2 C) ||w - w0||^2 + P(w) - N(v) - <g, w - v>

starting at w = v. This is an upper bound of the true objective, tight at v, so the objective never increases. For ranking, g
comes from the rankings that v predicts, fixed as the reference. Planes of P are reused in every round: only the linear term
changes.

Source: Le and Smola, "Direct Optimization of Ranking Measures", 2007, Algorithm 2; Yuille and Rangarajan, "The Concave-Convex
Procedure", Neural Computation 2003.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rankstruct.solvers.base import OptimizationMethod, Problem, Solver, check_point
from rankstruct.solvers.bundle import Bundle
from rankstruct.solvers.risk import Risk
from rankstruct.solvers.solution import Planes, Solution, Status

__all__ = ["DC"]

Concave = Callable[[np.ndarray], tuple[float, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class DC(OptimizationMethod):
    """Rounds of convex problems, each solved by `solver`.

    Args:
        solver: for the convex problems.
        tolerance: stop after a round that lowers the objective by no more than this fraction of it; 0 is allowed.
        max_rounds: the maximum number of rounds.
        max_seconds: as in `OptimizationMethod`, like `progress` and `callback`, with a round as an iteration.

    >>> from rankstruct.solvers import Bundle
    >>> DC(solver=Bundle(tolerance=1e-6), max_rounds=5).max_rounds
    5
    """

    solver: Solver = field(default_factory=Bundle)
    max_rounds: int = 50

    _least: ClassVar[dict[str, int]] = {"max_rounds": 1}
    _to_the_end: ClassVar[bool] = True

    def minimise(
        self, convex: Risk, concave: Concave, C: float, *, w0: np.ndarray | None = None, start: np.ndarray | None = None
    ) -> Solution:
        """Lower `1/(2 C) ||w - w0||^2 + P(w) - N(w)` round by round.

        Args:
            convex: P.
            concave: maps w to N(w) and a subgradient `[d]` of the convex N.
            C: positive, 1/lambda.
            w0: `[d]`, the centre of the regulariser; None for 0.
            start: `[d]`, the initial point; None for w0. Least-squares regression on the gains is a good one.

        Returns:
            The best point; `iterations` counts rounds, `history` has one record for the start and one per round. There is no
            lower bound: another start may lead to a better point.

        >>> class Distance:                               # |w| - |w - 1| / 2, lowest at 0, and at every start to its left
        ...     terms, dimension = 1, 1
        ...     def __call__(self, w):
        ...         return abs(w[0]), np.sign(w)
        >>> def half(w):
        ...     return abs(w[0] - 1) / 2, np.sign(w - 1) / 2
        >>> DC().minimise(Distance(), half, C=100.0, start=np.array([3.0])).w.round(3) + 0.0
        array([0.])
        """
        w0 = np.zeros(convex.dimension) if w0 is None else check_point("w0", w0, convex.dimension)
        start = w0.copy() if start is None else check_point("start", start, convex.dimension)
        problem = Problem(convex, C, w0)
        return self._drive(problem, self._rounds(problem, concave, start), self.max_rounds, "round")

    def minimise_bounds(
        self,
        risk: Risk,
        bound_at: Callable[[np.ndarray], Risk],
        C: float,
        *,
        w0: np.ndarray | None = None,
        start: np.ndarray | None = None,
    ) -> Solution:
        """Lower `1/(2 C) ||w - w0||^2 + R(w)` round by round, where R has a convex upper bound that touches it at any point.

        For a concave function of convex ones, the tangent of the outer function gives a tighter bound than a difference P - N.

        Args:
            risk: R.
            bound_at: maps w to a convex risk that is nowhere below R, and equal to it at w.
            C, w0, start: as in `minimise`.

        Returns:
            As `minimise`.

        >>> class Root:                                   # sqrt(1 + |w - 1|)
        ...     terms, dimension = 1, 1
        ...     def __call__(self, w):
        ...         return (1 + abs(w[0] - 1)) ** 0.5, np.sign(w - 1) / 2 / (1 + abs(w[0] - 1)) ** 0.5
        >>> class Tangent(Root):
        ...     def __init__(self, at):
        ...         self.at = (1 + abs(at[0] - 1)) ** 0.5
        ...     def __call__(self, w):
        ...         return self.at / 2 + (1 + abs(w[0] - 1)) / 2 / self.at, np.sign(w - 1) / 2 / self.at
        >>> DC().minimise_bounds(Root(), Tangent, C=100.0).w.round(3)
        array([1.])
        """
        w0 = np.zeros(risk.dimension) if w0 is None else check_point("w0", w0, risk.dimension)
        start = w0.copy() if start is None else check_point("start", start, risk.dimension)
        problem = Problem(risk, C, w0)
        return self._drive(problem, self._bounds(problem, bound_at, start), self.max_rounds, "round")

    def _bounds(self, problem: Problem, bound_at: Callable[[np.ndarray], Risk], start: np.ndarray) -> Iterator[int]:
        _observe(problem, start)
        problem.note(0)
        while True:
            w, before = problem.w, problem.objective
            assert w is not None
            inner = self.solver.minimise(bound_at(w), problem.C, w0=problem.w0, warm_start=w)
            _observe(problem, inner.w)
            yield self._end_round(problem, before, inner)

    def _end_round(self, problem: Problem, before: float, inner: Solution) -> int:
        """Record the costs of a round's convex problem, and whether to stop; returns the number of its planes."""
        last = inner.history[-1] if inner.history else problem.history[0]
        problem.oracle_seconds += last.oracle_seconds
        problem.qp_seconds += last.qp_seconds
        problem.passes += last.passes
        if inner.status is Status.INTERRUPTED:
            problem.status = Status.INTERRUPTED
        elif before - problem.objective <= self.tolerance * abs(problem.objective):
            problem.status = Status.CONVERGED
        return last.planes

    def _rounds(self, problem: Problem, concave: Concave, start: np.ndarray) -> Iterator[int]:
        value, gradient = _linearise(problem, concave, start)
        problem.note(0)
        planes: Planes | None = None
        while True:
            w, before = problem.w, problem.objective
            assert w is not None
            tilted = _Tilted(problem.risk, gradient, value - float(gradient @ w))
            begin = Solution(w, 0.0, -math.inf, math.inf, 0, Status.CONVERGED, planes=tilted.moved(planes, -1.0))
            inner = self.solver.minimise(tilted, problem.C, w0=problem.w0, warm_start=begin)
            planes = tilted.moved(inner.planes, 1.0)
            found = _linearise(problem, concave, inner.w)
            if problem.objective < before:
                value, gradient = found
            yield self._end_round(problem, before, inner)


def _observe(problem: Problem, w: np.ndarray) -> None:
    """Record the objective at w in the problem."""
    with problem.timed("oracle"):
        found = problem.risk(w)[0]
    problem.passes += 1
    if not math.isfinite(found):
        raise ValueError(f"the risk must be finite, got {found}")
    problem.observe(w, found)


def _linearise(problem: Problem, concave: Concave, w: np.ndarray) -> tuple[float, np.ndarray]:
    """N and its subgradient at w; records the objective there in the problem."""
    with problem.timed("oracle"):
        value, gradient = concave(w)
        risk = problem.risk(w)[0] - float(value)
    problem.passes += 2
    gradient = np.asarray(gradient, float)
    if not (math.isfinite(risk) and np.isfinite(gradient).all()):
        raise ValueError(f"the concave part must be finite, with a finite subgradient; got {value}")
    problem.observe(w, risk)
    return float(value), gradient


class _Tilted:
    """P(w) - <g, w> - intercept, and the conversion of planes."""

    def __init__(self, risk: Risk, gradient: np.ndarray, intercept: float) -> None:
        self.risk, self.gradient, self.intercept = risk, gradient, intercept
        self.terms, self.dimension = risk.terms, risk.dimension

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self.risk(w)
        return value - float(self.gradient @ w) - self.intercept, gradient - self.gradient

    def term_planes(self, w: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = self.risk.term_planes(w, indices)
        return values - float(self.gradient @ w) - self.intercept, gradients - self.gradient

    def moved(self, planes: Planes | None, sign: float) -> Planes | None:
        """Convert planes of P to planes of this (sign -1) or back (sign 1)."""
        if planes is None:
            return None
        gradients, intercepts = planes.gradients + sign * self.gradient, planes.intercepts + sign * self.intercept
        return planes._replace(gradients=gradients, intercepts=intercepts)
