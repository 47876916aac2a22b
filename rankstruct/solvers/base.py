"""What all solvers of a convex risk share: options, the clock, the best point, the bound, and why to stop.

minimise  1/(2 C) ||w - w0||^2 + R(w)
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from rankstruct.solvers.qp import PlaneQP
from rankstruct.solvers.risk import Risk
from rankstruct.solvers.solution import Planes, Record, Solution, Status, relative_gap

Callback = Callable[[Record, np.ndarray], object]


class Problem:
    """One problem while it is being solved: asks the risk, and remembers the best point and the highest bound."""

    def __init__(self, risk: Risk, C: float, w0: np.ndarray) -> None:
        self.risk, self.C, self.w0 = risk, C, w0
        self.w: np.ndarray | None = None
        self.objective = math.inf
        self.planes: Callable[[], Planes | None] = lambda: None  # what the method holds, for a later warm start
        self._bound = -math.inf
        self.start = time.perf_counter()
        self.oracle_seconds = self.qp_seconds = self.passes = 0.0
        self.history: list[Record] = []

    def evaluate(self, w: np.ndarray) -> tuple[float, np.ndarray, float]:
        """R(w), a subgradient and the objective at w."""
        with self.in_oracle():
            value, gradient = self.risk(w)
        self.passes += 1
        gradient = _checked("the subgradient", gradient, (len(w),))
        value = float(_checked("the value", value, ()))
        return value, gradient, self.observe(w, value)

    def evaluate_terms(self, w: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """h_q(w) `[k]` and subgradients `[k, d]` of some terms."""
        with self.in_oracle():
            values, gradients = self.risk.term_planes(w, indices)
        self.passes += len(indices) / self.risk.terms
        shape = (len(indices),)
        return _checked("values of terms", values, shape), _checked(
            "subgradients of terms", gradients, (*shape, len(w))
        )

    def observe(self, w: np.ndarray, risk: float) -> float:
        """The objective at w, whose risk is known; kept if it is the best so far."""
        away = w - self.w0
        objective = float(away @ away) / (2 * self.C) + risk
        if objective < self.objective:
            self.w, self.objective = w.copy(), objective
        return objective

    def raise_bound(self, lower_bound: float) -> None:
        """Take in a lower bound of the optimum."""
        self._bound = max(self._bound, lower_bound)

    @property
    def lower_bound(self) -> float:
        """The highest so far; one that rounding put above the best objective is cut."""
        return min(self._bound, self.objective)

    @property
    def gap(self) -> float:
        """Of the best point, relative."""
        return relative_gap(self.objective, self.lower_bound)

    @contextmanager
    def in_oracle(self) -> Iterator[None]:
        """Count the time as the oracle's."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.oracle_seconds += time.perf_counter() - start

    @contextmanager
    def in_qp(self) -> Iterator[None]:
        """Count the time as the quadratic programme's."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.qp_seconds += time.perf_counter() - start


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """A method with its options; it holds no state, so one object may solve many problems.

    Args:
        tolerance: the relative gap `(objective - lower_bound) / |objective|` to stop at.
        max_iterations: stop after so many.
        max_seconds: stop after the iteration in which so many have passed.
        progress: show a bar with the gap.
        callback: called with `(record, w)` after every iteration, w the best so far, not to be changed; a true answer stops.
    """

    tolerance: float = 1e-3
    max_iterations: int = 10_000
    max_seconds: float = math.inf
    progress: bool = False
    callback: Callback | None = None

    def __post_init__(self) -> None:
        if not self.tolerance > 0:
            raise ValueError(f"tolerance must be positive, got {self.tolerance}")
        if self.max_iterations < 1:
            raise ValueError(f"max_iterations must be at least 1, got {self.max_iterations}")
        if not self.max_seconds > 0:
            raise ValueError(f"max_seconds must be positive, got {self.max_seconds}")

    def minimise(
        self,
        risk: Risk,
        C: float,
        *,
        w0: np.ndarray | None = None,
        warm_start: Solution | np.ndarray | None = None,
    ) -> Solution:
        """Minimise `1/(2 C) ||w - w0||^2 + R(w)`.

        Args:
            risk: R, convex; see `Risk`.
            C: positive, 1/lambda.
            w0: `[d]`, where the regulariser is 0; None for 0.
            warm_start: where to begin: a point `[d]`, or a solution of a problem with the same risk, whatever its C and w0, whose
                planes are taken over where the method can use them. None begins at w0.

        Returns:
            The best point found, with `lower_bound <= optimum <= objective`. A `KeyboardInterrupt` ends the search and
            returns what was found, if anything was.

        Raises:
            ValueError: C or a shape is wrong, or the risk returned something that is not finite.
        """
        check_C(C)
        dimension = risk.dimension
        w0 = np.zeros(dimension) if w0 is None else check_point("w0", w0, dimension)
        planes = None
        start = w0
        if isinstance(warm_start, Solution):
            start, planes = check_point("warm_start.w", warm_start.w, dimension), warm_start.planes
            if planes is not None and planes.gradients.shape[1] != dimension:
                planes = None
        elif warm_start is not None:
            start = check_point("warm_start", warm_start, dimension)
        problem = Problem(risk, float(C), w0)
        method = self._method(problem, start, planes)
        status = Status.STALLED
        with tqdm(disable=not self.progress, unit="iteration", desc=f"C = {C:g}") as bar:
            try:
                for held in method:
                    record = Record(
                        time.perf_counter() - problem.start,
                        problem.objective,
                        problem.lower_bound,
                        held,
                        problem.oracle_seconds,
                        problem.qp_seconds,
                        problem.passes,
                    )
                    problem.history.append(record)
                    bar.update()
                    bar.set_postfix(objective=f"{problem.objective:.6g}", gap=f"{problem.gap:.1e}", refresh=False)
                    if self.callback is not None and self.callback(record, problem.w):  # type: ignore[arg-type]
                        status = Status.CALLBACK
                    elif problem.gap <= self.tolerance:
                        status = Status.CONVERGED
                    elif len(problem.history) >= self.max_iterations:
                        status = Status.ITERATIONS
                    elif record.seconds >= self.max_seconds:
                        status = Status.TIME
                    else:
                        continue
                    break
            except KeyboardInterrupt:
                if problem.w is None:
                    raise
                status = Status.INTERRUPTED
        assert problem.w is not None  # every method evaluates the risk before its first iteration ends
        return Solution(
            problem.w,
            problem.objective,
            problem.lower_bound,
            problem.gap,
            len(problem.history),
            status,
            tuple(problem.history),
            problem.planes(),
        )

    @abstractmethod
    def _method(self, problem: Problem, start: np.ndarray, planes: Planes | None) -> Iterator[int]:
        """One iteration a step, which yields the number of planes held; it ends where no progress is possible.

        It tells `problem` of points, bounds and planes.
        """


def start_qp(dimension: int, groups: int, planes: Planes | None) -> PlaneQP:
    """A programme of `groups` groups of mass 1/groups, with the planes of an earlier solution if they fit."""
    qp = PlaneQP(dimension, np.full(groups, 1 / groups))
    if planes is not None and planes.num_groups == groups:
        qp.add(planes.gradients, planes.intercepts, planes.groups)
        qp.restore(planes.multipliers)
    return qp


def planes_of(qp: PlaneQP) -> Planes:
    """Copies of a programme's planes."""
    return Planes(qp.gradients.copy(), qp.intercepts.copy(), qp.groups.copy(), qp.multipliers.copy(), len(qp.masses))


def check_C(C: float) -> None:
    """Raise ValueError unless C is a positive number."""
    if not (isinstance(C, int | float | np.number) and math.isfinite(C) and C > 0):
        raise ValueError(f"C must be a positive number (1/lambda), got {C!r}")


def check_point(name: str, point: np.ndarray, dimension: int) -> np.ndarray:
    """`point` as float64 `[dimension]`; raises ValueError for another shape or a number that is not finite."""
    values = np.array(point, float)
    if values.shape != (dimension,):
        raise ValueError(f"{name} must have shape [d] = ({dimension},), got {values.shape}")
    if not np.isfinite(values).all():
        at = int(np.argmin(np.isfinite(values)))
        raise ValueError(f"{name} must be finite, got {values[at]} at {name}[{at}]")
    return values


def _checked(name: str, given: object, shape: tuple[int, ...]) -> np.ndarray:
    values = np.asarray(given, float)
    if values.shape != shape:
        raise ValueError(f"{name} of the risk must have shape {shape}, got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(
            f"{name} of the risk must be finite, got {values[~np.isfinite(values)][0]}; "
            "check the features for NaN and infinity, and that C is not so large that scores overflow"
        )
    return values
