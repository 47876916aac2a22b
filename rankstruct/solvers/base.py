"""Common parts of the solvers: options, timing, the best point, the lower bound and stopping criteria.

minimise  1/(2 C) ||w - w0||^2 + R(w)
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rankstruct.checks import check_integers, check_numbers
from rankstruct.progress import Progress, announce, is_heard
from rankstruct.solvers.qp import PlaneQP
from rankstruct.solvers.risk import Risk
from rankstruct.solvers.solution import Planes, Record, Solution, Status

__all__ = ["Solver"]

Callback = Callable[[Record, np.ndarray], object]


def relative_gap(objective: float, lower_bound: float) -> float:
    """`(objective - lower_bound) / |objective|`; 0 where both are 0.

    >>> relative_gap(2.0, 1.5), relative_gap(0.0, 0.0), relative_gap(1.0, float("-inf"))
    (0.25, 0.0, inf)
    """
    difference = objective - lower_bound
    if difference <= 0:
        return 0.0
    return difference / abs(objective) if objective else float("inf")


class Problem:
    """The state of a problem being solved: evaluates the risk, and records the best point and the highest bound."""

    def __init__(self, risk: Any, C: float, w0: np.ndarray) -> None:
        check_numbers("> 0", C=C)
        self.risk, self.C, self.w0 = risk, float(C), w0
        self.w: np.ndarray | None = None
        self.objective, self._bound, self.lower_bound, self.gap = math.inf, -math.inf, -math.inf, math.inf
        self.status: Status | None = None  # set by a method that stops by itself
        self.planes: Callable[[], Planes | None] = lambda: None  # the method's planes, for a later warm start
        self.shown: dict[str, str] = {}  # in the progress bar, in addition to objective and gap
        self.start = time.perf_counter()
        self.oracle_seconds = self.qp_seconds = self.passes = 0.0
        self.history: list[Record] = []

    def evaluate(self, w: np.ndarray) -> tuple[float, np.ndarray, float]:
        """Return R(w), a subgradient and the objective at w."""
        with self.timed("oracle"):
            value, gradient = self.risk(w)
        self.passes += 1
        gradient = _checked("the subgradient", gradient, (len(w),))
        value = float(_checked("the value", value, ()))
        return value, gradient, self.observe(w, value)

    def evaluate_terms(self, w: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return h_q(w) `[k]` and subgradients `[k, d]` of some terms."""
        with self.timed("oracle"):
            values, gradients = self.risk.term_planes(w, indices)
        self.passes += len(indices) / self.risk.terms
        values = _checked("values of terms", values, (len(indices),))
        return values, _checked("subgradients of terms", gradients, (len(indices), len(w)))

    def regularised(self, w: np.ndarray, risk: float) -> float:
        """Return the objective at w, given its risk."""
        away = w - self.w0
        return float(away @ away) / (2 * self.C) + risk

    def observe(self, w: np.ndarray, risk: float) -> float:
        """Return the objective at w, given its risk, and record w if it is the best so far."""
        objective = self.regularised(w, risk)
        if objective < self.objective:
            self.w, self.objective = w.copy(), objective
            self.raise_bound(self._bound)
        return objective

    def raise_bound(self, lower_bound: float) -> None:
        """Record a lower bound of the optimum; the highest counts, but no more than the best objective, in spite of rounding."""
        self._bound = max(self._bound, lower_bound)
        self.lower_bound = min(self._bound, self.objective)
        self.gap = relative_gap(self.objective, self.lower_bound)

    def solve_model(self, qp: PlaneQP, *planes: Any) -> np.ndarray:
        """The minimiser of a model, whose value is a lower bound, after `qp.add_at(*planes)` if there are any."""
        with self.timed("qp"):
            if planes:
                qp.add_at(*planes)
            model = qp.solve(self.C, self.w0)
        self.raise_bound(model.lower_bound)
        return model.w

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    def note(self, held: int) -> Record:
        """Append the state, with the number of planes held, to the history."""
        clocks = self.oracle_seconds, self.qp_seconds, self.passes
        self.history.append(Record(self.seconds, self.objective, self.lower_bound, held, *clocks))
        return self.history[-1]

    @contextmanager
    def timed(self, whose: str) -> Iterator[None]:
        """Measure time spent in the `"oracle"` or in the quadratic program, `"qp"`."""
        clock, start = f"{whose}_seconds", time.perf_counter()
        try:
            yield
        finally:
            setattr(self, clock, getattr(self, clock) + time.perf_counter() - start)


@dataclass(frozen=True, kw_only=True)
class OptimizationMethod:
    """Common options of all methods: stopping criteria and progress. Methods are stateless.

    Args:
        tolerance: when to stop; each method defines what it is relative to.
        max_seconds: time limit, checked after each iteration.
        progress: show a progress bar with the objective, and the gap if there is one.
        callback: called with `(record, w)` after every iteration, with w the best so far (read-only); a true return value stops.
    """

    tolerance: float = 1e-3
    max_seconds: float = math.inf
    progress: bool = False
    callback: Callback | None = None

    _least: ClassVar[dict[str, int]] = {}
    """Integer options and their minimum."""
    _to_the_end: ClassVar[bool] = False  # whether the tolerance may be 0

    def __post_init__(self) -> None:
        check_numbers(">= 0" if self._to_the_end else "> 0", tolerance=self.tolerance)
        check_numbers("> 0 and <= inf", max_seconds=self.max_seconds)
        for name, least in self._least.items():
            check_integers(least, **{name: getattr(self, name)})

    def _drive(self, problem: Problem, steps: Iterator[int], limit: int, unit: str) -> Solution:
        """Take steps, each of which yields the number of planes held, until a stopping criterion holds.

        If the method stops by itself, `problem.status` is the reason; without one, no progress is possible.
        """
        count, told = 0, is_heard()
        with Progress(disable=not self.progress, unit=unit, desc=f"C = {problem.C:g}") as bar:
            try:
                for held in steps:
                    count += 1
                    record = problem.note(held)
                    bar.update()
                    if told:
                        announce(f"C = {problem.C:g}, {unit.strip()} {count}")
                    if self.progress:
                        gap = problem.gap
                        shown = problem.shown | ({"gap": f"{gap:.1e}"} if math.isfinite(gap) else {})
                        bar.set_postfix(shown, objective=f"{problem.objective:.6g}", refresh=False)
                    problem.status = self._reason(problem, record, count >= limit)
                    if problem.status is not None:
                        break
            except KeyboardInterrupt:
                if problem.w is None:
                    raise
                problem.status = Status.INTERRUPTED
        assert problem.w is not None  # every method evaluates the risk before its first iteration ends
        status, history = problem.status or Status.STALLED, tuple(problem.history)
        best = problem.w, problem.objective, problem.lower_bound, problem.gap
        return Solution(*best, count, status, history, problem.planes())

    def _reason(self, problem: Problem, record: Record, last: bool) -> Status | None:
        """The reason to stop after this iteration, if any."""
        if problem.status is Status.INTERRUPTED:
            return problem.status
        if self.callback is not None and self.callback(record, problem.w):  # type: ignore[arg-type]
            return Status.CALLBACK
        if problem.status is not None:
            return problem.status
        if problem.gap <= self.tolerance:
            return Status.CONVERGED
        if last:
            return Status.ITERATIONS
        return Status.TIME if record.seconds >= self.max_seconds else None


@dataclass(frozen=True, kw_only=True)
class Solver(OptimizationMethod, ABC):
    """A method for convex risks with its options; one object can solve many problems.

    Args:
        tolerance: the relative gap `(objective - lower_bound) / |objective|` to stop at.
        max_iterations: the maximum number of iterations.
        max_seconds: as in `OptimizationMethod`, like `progress` and `callback`.

    >>> from rankstruct.solvers import Bundle
    >>> class Absolute:  # R(w) = |w - 1|
    ...     terms, dimension = 1, 1
    ...     def __call__(self, w):
    ...         return abs(w[0] - 1), np.sign(w - 1)
    >>> solver = Bundle(tolerance=1e-6)
    >>> isinstance(solver, Solver), solver.minimise(Absolute(), C=10.0).gap < 1e-6
    (True, True)
    """

    max_iterations: int = 10_000

    _least: ClassVar[dict[str, int]] = {"max_iterations": 1}

    def minimise(
        self, risk: Risk, C: float, *, w0: np.ndarray | None = None, warm_start: Solution | np.ndarray | None = None
    ) -> Solution:
        """Minimise `1/(2 C) ||w - w0||^2 + R(w)`.

        Args:
            risk: R, convex; see `Risk`.
            C: positive, 1/lambda.
            w0: `[d]`, the centre of the regulariser; None for 0.
            warm_start: the initial point `[d]`, or a solution for the same risk with any C and w0, whose planes are reused if the
                method supports it. None starts at w0.

        Returns:
            The best point found, with `lower_bound <= optimum <= objective`. A `KeyboardInterrupt` ends the search and
            returns the best point so far, if there is one.

        Raises:
            ValueError: C or a shape is wrong, or the risk returned something that is not finite.
        """
        dimension = risk.dimension
        w0 = np.zeros(dimension) if w0 is None else check_point("w0", w0, dimension)
        problem = Problem(risk, C, w0)
        start, planes = w0, None
        if isinstance(warm_start, Solution):
            start, planes = check_point("warm_start.w", warm_start.w, dimension), warm_start.planes
            if planes is not None and planes.gradients.shape[1] != dimension:
                planes = None
        elif warm_start is not None:
            start = check_point("warm_start", warm_start, dimension)
        return self._drive(problem, self._steps(problem, start, planes), self.max_iterations, "iteration")

    @abstractmethod
    def _steps(self, problem: Problem, start: np.ndarray, planes: Planes | None) -> Iterator[int]:
        """Yield the number of planes held after each iteration; ends if no progress is possible.

        Points, bounds and planes are recorded in `problem`.
        """


def start_qp(problem: Problem, groups: int, planes: Planes | None) -> PlaneQP:
    """The quadratic program of a problem, with `groups` groups of mass 1/groups and, if they fit, planes of a solution."""
    qp = PlaneQP(len(problem.w0), np.full(groups, 1 / groups))
    if planes is not None and planes.num_groups == groups:
        qp.add(planes.gradients, planes.intercepts, planes.groups)
        qp.restore(planes.multipliers)
    problem.planes = lambda: Planes(
        qp.gradients.copy(), qp.intercepts.copy(), qp.groups.copy(), qp.multipliers.copy(), groups
    )
    return qp


def check_point(name: str, point: np.ndarray, dimension: int) -> np.ndarray:
    """`point` as float64 `[dimension]`; raises ValueError for another shape or a nonfinite number."""
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
