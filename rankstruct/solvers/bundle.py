"""The bundle method, or one-slack cutting plane: one plane of the complete risk per iteration.

    model(w) = 1/(2 C) ||w - w0||^2 + max_i ( b_i + <g_i, w> )  <=  objective(w)

The model's minimum is a lower bound. Its minimiser v is a poor next point, since it oscillates while there are few planes; so
the risk is evaluated at `best + step (v - best)`, step <= 1. The step grows after a better point and shrinks after a worse one.
A worse point still raises the model at v: along the line from best, where the new plane (with the regulariser) is at most the
best objective, to the point, where it is higher, it is convex, so at v it is no lower.

Source: Teo, Vishwanathan, Smola, Le, "Bundle Methods for Regularized Risk Minimization", JMLR 2010; Joachims, Finley, Yu,
"Cutting-Plane Training of Structural SVMs", Machine Learning 2009; the intermediate point from Franc and Sonnenburg, "Optimized
Cutting Plane Algorithm for Large-Scale Risk Minimization", JMLR 2009, with an adaptive step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankstruct.solvers.base import Problem, Solver, start_qp
from rankstruct.solvers.solution import Planes

__all__ = ["Bundle"]

_STEP, _GROW, _SHRINK, _SHORTEST = 0.3, 1.5, 0.7, 0.02
_NOTHING = 1e-15  # of the objective: no progress
_PATIENCE = 100  # iterations without progress, after which it is limited by rounding


@dataclass(frozen=True, kw_only=True)
class Bundle(Solver):
    """Bundle method; one evaluation of the risk per iteration.

    Args:
        max_planes: above this number, and above twice the support, the least recently used planes are removed. The support, of
            at most d + 1 planes, always stays.

    A warm start with the planes of a solution for the same risk makes a path over C cheap. The other arguments are those of
    `Solver`.

    >>> class Absolute:                                   # R(w) = |w - 1|
    ...     terms, dimension = 1, 1
    ...     def __call__(self, w):
    ...         return abs(w[0] - 1), np.sign(w - 1)
    >>> solution = Bundle(tolerance=1e-6).minimise(Absolute(), C=10.0)
    >>> print(solution.w.round(6), round(solution.objective, 6), solution.status)
    [1.] 0.05 converged
    """

    max_planes: int = 400

    _least: ClassVar[dict[str, int]] = {**Solver._least, "max_planes": 2}

    def _steps(self, problem: Problem, start: np.ndarray, planes: Planes | None) -> Iterator[int]:
        qp = start_qp(problem, 1, planes)
        point = start
        value, gradient, _ = problem.evaluate(point)
        step, idle = 1.0, 0
        while True:
            before = problem.objective
            w = problem.solve_model(qp, point, np.array([value]), gradient[None], 0, self.max_planes)
            if problem.gap <= self.tolerance:
                yield qp.size
                return
            point = problem.w + step * (w - problem.w)
            value, gradient, objective = problem.evaluate(point)
            if not problem.history:
                step = _STEP
            elif objective < before:
                step = min(1.0, _GROW * step)
            else:
                step = max(_SHORTEST, _SHRINK * step)
            yield qp.size
            now, last = problem.history[-1], problem.history[-2:][0]
            gained = last.objective - now.objective + now.lower_bound - last.lower_bound
            idle = 0 if now is last or not gained <= _NOTHING * abs(now.objective) else idle + 1
            if idle > _PATIENCE:
                return
