"""L-BFGS for smooth objectives, with annealing: a sequence of less and less smooth objectives, each warm-started.

    minimise  1/(2 C) ||w - w0||^2 + S_sigma(w)      for sigma, sigma/2, sigma/4, ...

S_sigma need not be convex, so there is no lower bound, and the result depends on the start. A flat S_sigma, for a large sigma,
may lead to a point where the gradients of all its successors are 0, such as w = 0, where all scores tie; so each stage starts
slightly moved back towards the initial point.

Source: Le and Smola, "Direct Optimization of Ranking Measures", 2007, section 5 (annealing); Liu and Nocedal, "On the
Limited Memory BFGS Method for Large Scale Optimization", Mathematical Programming 1989, as implemented in SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize

from rankstruct.checks import check_numbers
from rankstruct.solvers.base import OptimizationMethod, Problem, check_point
from rankstruct.solvers.solution import Solution, Status

__all__ = ["Annealing"]

SmoothRisk = Callable[[np.ndarray], tuple[float, np.ndarray]]

_NUDGE = 1 / 16  # of the distance back to the start


class _OutOfTime(Exception):
    pass


@dataclass(frozen=True, kw_only=True)
class Annealing(OptimizationMethod):
    """L-BFGS for a smooth risk, with sigma halved from stage to stage.

    Args:
        sigma: of the first stage.
        stages: number of stages; sigma is halved between them. One is plain L-BFGS.
        tolerance: a stage ends when the largest entry of its gradient is below this, or the relative decrease of the objective
            below its square.
        max_iterations: of L-BFGS, per stage.
        max_seconds: time limit, checked after each evaluation.
        memory: number of vector pairs that L-BFGS stores.
        progress: as in `OptimizationMethod`, like `callback`, with a stage as an iteration.

    >>> def make_smooth(sigma):                           # sqrt((w - 1)^2 + sigma^2)
    ...     def smooth(w):
    ...         length = np.sqrt((w[0] - 1) ** 2 + sigma**2)
    ...         return length, (w - 1) / length
    ...     return smooth
    >>> solution = Annealing(sigma=1.0, stages=12, tolerance=1e-9).minimise(make_smooth, C=10.0, w0=np.zeros(1))
    >>> print(solution.w.round(3), solution.status)
    [1.] converged
    """

    sigma: float = 1.0
    stages: int = 6
    tolerance: float = 1e-6
    max_iterations: int = 500
    memory: int = 10

    _least: ClassVar[dict[str, int]] = {"stages": 1, "max_iterations": 1, "memory": 1}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers("> 0", sigma=self.sigma)

    @property
    def sigmas(self) -> list[float]:
        """Sigma of each stage."""
        return [self.sigma / 2**stage for stage in range(self.stages)]

    @property
    def last_sigma(self) -> float:
        """Sigma of the last stage."""
        return self.sigmas[-1]

    def minimise(
        self,
        make_smooth: Callable[[float], SmoothRisk],
        C: float,
        *,
        w0: np.ndarray,
        start: np.ndarray | None = None,
        true_risk: Callable[[np.ndarray], float] | None = None,
    ) -> Solution:
        """Minimise `1/(2 C) ||w - w0||^2 + S_sigma(w)` for every sigma in turn.

        Args:
            make_smooth: maps sigma to a function of w `[d]` that returns S_sigma(w) and its gradient `[d]`.
            C: positive, 1/lambda.
            w0: `[d]`, the centre of the regulariser.
            start: `[d]`, the initial point; None for w0.
            true_risk: the limit of S_sigma. If given, it selects the result among the start and the ends of the stages.

        Returns:
            The best of the start and the ends of all stages by the last stage's objective, followed by L-BFGS if it is not the
            end of the last stage; or the best by the regularised `true_risk`. `objective` is the value of the deciding objective,
            even if stopped early. `iterations` are those of L-BFGS; `history` has one record per stage. There is no lower
            bound.
        """
        w0 = check_point("w0", w0, len(np.asarray(w0)))
        start = w0.copy() if start is None else check_point("start", start, len(w0))
        problem = Problem(make_smooth, C, w0)
        descent = _Descent(self, problem)
        solution = self._drive(problem, self._run_stages(descent, start, true_risk), self.stages + 2, "stage")
        return replace(solution, iterations=descent.iterations)

    def _run_stages(
        self, descent: _Descent, start: np.ndarray, true_risk: Callable[[np.ndarray], float] | None
    ) -> Iterator[int]:
        problem, make_smooth = descent.problem, descent.problem.risk
        last = make_smooth(self.last_sigma)

        def judge(w: np.ndarray) -> bool:
            """Whether w is the best so far by the deciding objective: the last stage's, or the true one."""
            before = problem.objective
            return problem.observe(w, _finite(last(w)[0] if true_risk is None else true_risk(w))) < before

        judge(start)
        w = start
        for stage, sigma in enumerate(self.sigmas):
            problem.shown = {"sigma": f"{sigma:g}"}
            w = descent(make_smooth(sigma), w, w + _NUDGE * (start - w))
            done = judge(w) or true_risk is not None
            if (done and stage == self.stages - 1) or descent.status in (Status.TIME, Status.INTERRUPTED):
                problem.status = descent.status
            yield 0
        assert problem.w is not None
        judge(descent(last, problem.w, problem.w))  # an earlier point is better: continue from there
        problem.status = descent.status
        yield 0


class _Descent:
    """L-BFGS over the stages, with its status and number of iterations so far."""

    def __init__(self, options: Annealing, problem: Problem) -> None:
        self.options, self.problem = options, problem
        self.status, self.iterations = Status.CONVERGED, 0

    def __call__(self, smooth: SmoothRisk, w: np.ndarray, start: np.ndarray) -> np.ndarray:
        """The best point of L-BFGS from `start`, or w itself."""
        options, problem = self.options, self.problem
        lowest: tuple[float, np.ndarray] = math.inf, w

        def evaluate(at: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal lowest
            if problem.seconds >= options.max_seconds and math.isfinite(lowest[0]):
                raise _OutOfTime
            with problem.timed("oracle"):
                value, gradient = smooth(at)
            problem.passes += 1
            value = problem.regularised(at, _finite(value))
            if value < lowest[0]:
                lowest = value, at.copy()
            return value, (at - problem.w0) / problem.C + gradient

        most = {"maxiter": options.max_iterations, "maxfun": 20 * options.max_iterations, "maxcor": options.memory}
        least = {"gtol": options.tolerance, "ftol": options.tolerance**2}
        try:
            evaluate(w)
            result = minimize(evaluate, start, jac=True, method="L-BFGS-B", options={**most, **least})
            self.iterations += int(result.nit)
            if result.status == 1:
                self.status = Status.ITERATIONS
        except _OutOfTime:
            self.status = Status.TIME
        except KeyboardInterrupt:
            self.status = Status.INTERRUPTED
        return lowest[1]


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"the risk must be finite, got {value}")
    return float(value)
