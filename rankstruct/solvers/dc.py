"""DC programming: a difference of convex risks P - N by rounds of convex problems.

At a point v the concave part is linearised, N(w) >= N(v) + <g, w - v> with g a subgradient of N at v. A round minimises

    1/(2 C) ||w - w0||^2 + P(w) - N(v) - <g, w - v>

from w = v on. That lies above the true objective and touches it at v, so the objective never increases. For ranking, g comes from
the rankings that v predicts, held as the reference. Planes of P serve every round: only the linear term changes.

Source: Le and Smola, "Direct Optimization of Ranking Measures", 2007, Algorithm 2; Yuille and Rangarajan, "The Concave-Convex
Procedure", Neural Computation 2003.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from tqdm import tqdm

from rankstruct.solvers.base import Callback, Solver, check_C, check_point
from rankstruct.solvers.bundle import Bundle
from rankstruct.solvers.risk import Risk
from rankstruct.solvers.solution import Planes, Record, Solution, Status


@dataclass(frozen=True, kw_only=True)
class DC:
    """Rounds of convex problems, each solved by `solver`.

    Args:
        solver: of the convex problems.
        tolerance: stop after a round that lowers the objective by no more than this share of it.
        max_rounds: stop after so many.
        max_seconds: stop after the round in which so many have passed.
        progress: show a bar with the objective of each round.
        callback: called with `(record, w)` after every round, w the best so far, not to be changed; a true answer stops.
    """

    solver: Solver = field(default_factory=Bundle)
    tolerance: float = 1e-3
    max_rounds: int = 50
    max_seconds: float = math.inf
    progress: bool = False
    callback: Callback | None = None

    def __post_init__(self) -> None:
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance must be >= 0, got {self.tolerance}")
        if self.max_rounds < 1:
            raise ValueError(f"max_rounds must be at least 1, got {self.max_rounds}")

    def minimise(
        self,
        convex: Risk,
        concave: Callable[[np.ndarray], tuple[float, np.ndarray]],
        C: float,
        *,
        w0: np.ndarray | None = None,
        start: np.ndarray | None = None,
    ) -> Solution:
        """Lower `1/(2 C) ||w - w0||^2 + P(w) - N(w)` round by round.

        Args:
            convex: P.
            concave: w to N(w) and a subgradient `[d]` of the convex N.
            C: positive, 1/lambda.
            w0: `[d]`, where the regulariser is 0; None for 0.
            start: `[d]`, where to begin; None for w0. Least-squares regression on the gains is a good one.

        Returns:
            The best point; `iterations` counts rounds, `history` has one record a round, after the one of the start. There is no
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
        check_C(C)
        dimension = convex.dimension
        w0 = np.zeros(dimension) if w0 is None else check_point("w0", w0, dimension)
        w = w0.copy() if start is None else check_point("start", start, dimension)

        oracle = qp = passes = 0.0

        def linearise(w: np.ndarray) -> tuple[float, np.ndarray, float]:
            """N, its subgradient and the objective at w."""
            nonlocal oracle, passes
            clock = time.perf_counter()
            value, gradient = concave(w)
            gradient = np.asarray(gradient, float)
            objective = float((w - w0) @ (w - w0)) / (2 * C) + convex(w)[0] - float(value)
            oracle, passes = oracle + time.perf_counter() - clock, passes + 2
            if not (math.isfinite(objective) and np.isfinite(gradient).all()):
                raise ValueError(f"the concave part must be finite, with a finite subgradient; got {value}")
            return float(value), gradient, objective

        began = time.perf_counter()
        value, gradient, objective = linearise(w)
        planes: Planes | None = None
        history = [Record(0.0, objective, -math.inf, 0, oracle, 0.0, passes)]
        status = Status.ITERATIONS
        with tqdm(disable=not self.progress, unit="round", desc=f"C = {C:g}") as bar:
            try:
                for _ in range(self.max_rounds):
                    tilted = _Tilted(convex, gradient, value - float(gradient @ w))
                    begin = Solution(w, 0.0, -math.inf, math.inf, 0, status, planes=tilted.tilt(planes))
                    inner = self.solver.minimise(tilted, C, w0=w0, warm_start=begin)
                    planes = tilted.untilt(inner.planes)
                    found = linearise(inner.w)
                    before = objective
                    if found[2] < objective:
                        w, (value, gradient, objective) = inner.w, found
                    last = inner.history[-1] if inner.history else history[0]
                    oracle, qp = oracle + last.oracle_seconds, qp + last.qp_seconds
                    passes += last.passes
                    seconds = time.perf_counter() - began
                    record = Record(seconds, objective, -math.inf, last.planes, oracle, qp, passes)
                    history.append(record)
                    bar.update()
                    bar.set_postfix(objective=f"{objective:.6g}", refresh=False)
                    if inner.status is Status.INTERRUPTED:
                        status = Status.INTERRUPTED
                    elif self.callback is not None and self.callback(record, w):
                        status = Status.CALLBACK
                    elif before - objective <= self.tolerance * abs(objective):
                        status = Status.CONVERGED
                    elif record.seconds >= self.max_seconds:
                        status = Status.TIME
                    else:
                        continue
                    break
            except KeyboardInterrupt:
                status = Status.INTERRUPTED
        return Solution(w, objective, -math.inf, math.inf, len(history) - 1, status, tuple(history))


class _Tilted:
    """P(w) - <g, w> - intercept, and planes there and back."""

    def __init__(self, risk: Risk, gradient: np.ndarray, intercept: float) -> None:
        self.risk, self.gradient, self.intercept = risk, gradient, intercept
        self.terms, self.dimension = risk.terms, risk.dimension

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self.risk(w)
        return value - float(self.gradient @ w) - self.intercept, gradient - self.gradient

    def term_planes(self, w: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = self.risk.term_planes(w, indices)
        return values - float(self.gradient @ w) - self.intercept, gradients - self.gradient

    def tilt(self, planes: Planes | None) -> Planes | None:
        return self._moved(planes, -1.0)

    def untilt(self, planes: Planes | None) -> Planes | None:
        return self._moved(planes, 1.0)

    def _moved(self, planes: Planes | None, sign: float) -> Planes | None:
        if planes is None:
            return None
        return planes._replace(
            gradients=planes.gradients + sign * self.gradient, intercepts=planes.intercepts + sign * self.intercept
        )
