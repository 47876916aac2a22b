"""DC programming: a difference of convex functions by rounds of convex problems.

The true risk T is bounded from above by convex risks R_v that touch it, R_v(v) = T(v): its concave part is linearised at v, for
ranking by holding the predicted rankings of v as the reference. A round minimises

    1/(2 C) ||w - w0||^2 + R_v(w)

from w = v on, so that its best point is no worse than v under R_v, and under T then neither: the objective never increases.

Source: Le and Smola, "Direct Optimization of Ranking Measures", 2007, Algorithm 2; Yuille and Rangarajan, "The Concave-Convex
Procedure", Neural Computation 2003.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from tqdm.auto import tqdm

from rankstruct.solvers.base import Callback, Solver, check_C, check_point
from rankstruct.solvers.bundle import Bundle
from rankstruct.solvers.risk import Risk
from rankstruct.solvers.solution import Record, Solution, Status


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
        make_risk: Callable[[np.ndarray], Risk],
        true_risk: Callable[[np.ndarray], float],
        C: float,
        *,
        w0: np.ndarray | None = None,
        start: np.ndarray | None = None,
    ) -> Solution:
        """Lower `1/(2 C) ||w - w0||^2 + true_risk(w)` round by round.

        Args:
            make_risk: the convex risk that bounds the true one from above and touches it at the point `[d]` that it is given.
            true_risk: T(w).
            C: positive, 1/lambda.
            w0: `[d]`, where the regulariser is 0; None for 0.
            start: `[d]`, where to begin; None for w0. Least-squares regression on the gains is a good one.

        Returns:
            The best point; `iterations` counts rounds, `history` has one record a round, after the one of the start. There is no
            lower bound: another start may lead to a better point.
        """
        check_C(C)
        if start is None and w0 is None:
            raise ValueError("DC needs w0 or start, which tell the number of features; w0=np.zeros(d) is the plain one")
        dimension = len(np.asarray(start if w0 is None else w0))
        w0 = np.zeros(dimension) if w0 is None else check_point("w0", w0, dimension)
        w = w0.copy() if start is None else check_point("start", start, dimension)

        def objective_at(w: np.ndarray) -> float:
            value = float(true_risk(w))
            if not math.isfinite(value):
                raise ValueError(f"true_risk must be finite, got {value}")
            return float((w - w0) @ (w - w0)) / (2 * C) + value

        began = time.perf_counter()
        objective = objective_at(w)
        oracle = qp = 0.0
        history = [Record(0.0, objective, -math.inf, 0, 0.0, 0.0)]
        status = Status.ITERATIONS
        with tqdm(disable=not self.progress, unit="round", desc=f"C = {C:g}") as bar:
            try:
                for _ in range(self.max_rounds):
                    inner = self.solver.minimise(make_risk(w), C, w0=w0, warm_start=w)
                    found = objective_at(inner.w)
                    before = objective
                    if found < objective:
                        w, objective = inner.w, found
                    last = inner.history[-1] if inner.history else history[0]
                    oracle, qp = oracle + last.oracle_seconds, qp + last.qp_seconds
                    record = Record(time.perf_counter() - began, objective, -math.inf, last.planes, oracle, qp)
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
