"""Smooth objectives by L-BFGS, and annealing: a sequence of ever less smooth ones, each from where the last one ended.

    minimise  1/(2 C) ||w - w0||^2 + S_sigma(w)      for sigma, sigma/2, sigma/4, ...

S_sigma need not be convex; so there is no lower bound, and where one ends depends on the start. A flat S_sigma, of a large sigma,
may lead to a point where the gradients of all its successors are 0, such as w = 0 where all scores tie; so a stage begins a
little on the way back to the very start.

Source: Le and Smola, "Direct Optimization of Ranking Measures", 2007, section 5 (annealing); Liu and Nocedal, "On the
Limited Memory BFGS Method for Large Scale Optimization", Mathematical Programming 1989, as SciPy has it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from tqdm import tqdm

from rankstruct.solvers.base import Callback, check_C, check_point
from rankstruct.solvers.solution import Record, Solution, Status

SmoothRisk = Callable[[np.ndarray], tuple[float, np.ndarray]]


_NUDGE = 1 / 16  # of the way back to the start


class _Stop(Exception):
    pass


@dataclass(frozen=True, kw_only=True)
class Annealing:
    """L-BFGS for a smooth risk, with sigma halved from stage to stage.

    Args:
        sigma: of the first stage.
        stages: how many; sigma is halved between two of them. One is plain L-BFGS.
        tolerance: a stage ends when the largest entry of its gradient is below this, or the relative fall of the objective
            below its square.
        max_iterations: of L-BFGS, a stage.
        max_seconds: stop after the evaluation at which so many have passed.
        memory: pairs of vectors that L-BFGS keeps.
        progress: show a bar with sigma and the objective.
        callback: called with `(record, w)` after every stage, not to be changed; a true answer stops.

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
    max_seconds: float = math.inf
    memory: int = 10
    progress: bool = False
    callback: Callback | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise ValueError(f"sigma must be positive, got {self.sigma}")
        for name in ("stages", "max_iterations", "memory"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.tolerance > 0:
            raise ValueError(f"tolerance must be positive, got {self.tolerance}")

    @property
    def last_sigma(self) -> float:
        """Sigma of the last stage."""
        return self.sigma / 2 ** (self.stages - 1)

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
            make_smooth: sigma to a function of w `[d]` that returns S_sigma(w) and its gradient `[d]`.
            C: positive, 1/lambda.
            w0: `[d]`, where the regulariser is 0.
            start: `[d]`, where to begin; None for w0.
            true_risk: what S_sigma tends to. If given, the best end of a stage (or the start) under it, regularised, is returned.

        Returns:
            The best of the start and the ends of all stages by the last stage's objective, from which L-BFGS then goes on if it
            is not the last one; or the best by `true_risk`, regularised. `objective` is that one, whenever it stops. `iterations`
            are those of L-BFGS; `history` has one record a stage. There is no lower bound.
        """
        check_C(C)
        w0 = check_point("w0", w0, len(np.asarray(w0)))
        w = first = w0.copy() if start is None else check_point("start", start, len(w0))
        began = time.perf_counter()
        oracle, passes, iterations = 0.0, 0, 0
        history: list[Record] = []
        status = Status.CONVERGED

        def regularised(w: np.ndarray, value: float) -> float:
            if not math.isfinite(value):
                raise ValueError(f"the risk must be finite, got {value}")
            return float((w - w0) @ (w - w0)) / (2 * C) + value

        last = make_smooth(self.last_sigma)

        def judge(w: np.ndarray) -> float:
            """The objective that decides: the last stage's, or the true one."""
            return regularised(w, float(last(w)[0] if true_risk is None else true_risk(w)))

        def descend(smooth: SmoothRisk, w: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, Status]:
            """The best point of L-BFGS from `start`, or w itself."""
            nonlocal iterations
            lowest: tuple[float, np.ndarray] = math.inf, w

            def evaluate(at: np.ndarray) -> tuple[float, np.ndarray]:
                nonlocal oracle, passes, lowest
                clock = time.perf_counter()
                if clock - began >= self.max_seconds and math.isfinite(lowest[0]):
                    raise _Stop
                value, gradient = smooth(at)
                oracle, passes = oracle + time.perf_counter() - clock, passes + 1
                value = regularised(at, float(value))
                if value < lowest[0]:
                    lowest = value, at.copy()
                return value, (at - w0) / C + gradient

            status = Status.CONVERGED
            try:
                evaluate(w)
                result = minimize(
                    evaluate,
                    start,
                    jac=True,
                    method="L-BFGS-B",
                    options={
                        "maxiter": self.max_iterations,
                        "maxcor": self.memory,
                        "gtol": self.tolerance,
                        "ftol": self.tolerance**2,
                        "maxfun": 20 * self.max_iterations,
                    },
                )
                iterations += int(result.nit)
                if result.status == 1:
                    status = Status.ITERATIONS
            except _Stop:
                status = Status.TIME
            except KeyboardInterrupt:
                status = Status.INTERRUPTED
            return lowest[1], status

        best, objective = w, judge(w)
        with tqdm(total=self.stages, disable=not self.progress, unit="stage", desc=f"C = {C:g}") as bar:
            for stage in range(self.stages):
                sigma = self.sigma / 2**stage
                w, ended = descend(make_smooth(sigma), w, w + _NUDGE * (first - w))
                status = ended if ended is not Status.CONVERGED else status
                value = judge(w)
                if value < objective:
                    best, objective = w, value
                history.append(Record(time.perf_counter() - began, objective, -math.inf, 0, oracle, 0.0, passes))
                bar.update()
                bar.set_postfix(sigma=f"{sigma:g}", objective=f"{objective:.6g}", refresh=False)
                if status in (Status.TIME, Status.INTERRUPTED):
                    break
                if self.callback is not None and self.callback(history[-1], best):
                    status = Status.CALLBACK
                    break
            else:
                if best is not w and true_risk is None:  # an earlier point is better: go on from there
                    best, ended = descend(last, best, best)
                    status, objective = ended if ended is not Status.CONVERGED else status, judge(best)
                    history.append(Record(time.perf_counter() - began, objective, -math.inf, 0, oracle, 0.0, passes))
        return Solution(best, objective, -math.inf, math.inf, iterations, status, tuple(history))
