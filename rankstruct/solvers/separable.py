"""Many small convex problems at once, by a batched bundle method.

    minimise  lambda/2 ||w_q||^2 + f_q(w_q)      independently for q = 1..Q

Each problem has its own planes; all quadratic programs, over the simplex in the dual, are solved in parallel by exact steps
between two multipliers. Any multipliers give a lower bound, so the gap is certified even before these converge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from rankstruct.checks import check_integers, check_numbers

__all__ = ["SeparableSolution", "minimise_separable"]

_QP_STEPS = 300

SeparableOracle = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class SeparableSolution:
    """The best points found.

    Attributes:
        w: `[Q, d]` float64.
        objective: `[Q]`, the regularised values at `w`.
        lower_bound: `[Q]`, lower bounds of the optima.
        iterations: number of evaluations of the oracle.

    >>> def absolute(w, indices):  # f_q(w) = |w - q|
    ...     return np.abs(w[:, 0] - indices), np.sign(w - indices[:, None])
    >>> found = minimise_separable(absolute, np.zeros((3, 1)), 0.8, tolerance=1e-6)
    >>> bool((found.lower_bound <= found.objective).all())
    True
    """

    w: np.ndarray = field(repr=False)
    objective: np.ndarray = field(repr=False)
    lower_bound: np.ndarray = field(repr=False)
    iterations: int

    @property
    def gap(self) -> float:
        """`(sum of objectives - sum of lower bounds) / sum of objectives`, 0 where both are 0."""
        total = float(self.objective.sum())
        return (total - float(self.lower_bound.sum())) / total if total else 0.0


def minimise_separable(
    oracle: SeparableOracle,
    start: np.ndarray,
    regularization: float,
    *,
    tolerance: float = 1e-3,
    max_iterations: int = 60,
) -> SeparableSolution:
    """Minimise `regularization/2 ||w_q||^2 + f_q(w_q)` for every q.

    Args:
        oracle: maps `(w [k, d], indices [k])` to values `[k]` of the convex f_q >= 0 of these problems and subgradients `[k, d]`.
        start: `[Q, d]`, the initial points; the result is no worse.
        regularization: lambda, above 0.
        tolerance: a problem is solved when the gap of its objective is at most this fraction of the objective.
        max_iterations: the maximum number of evaluations of the oracle.

    Raises:
        ValueError: an option outside its range.

    >>> def absolute(w, indices):                                       # f_q(w) = |w - q|
    ...     return np.abs(w[:, 0] - indices), np.sign(w - indices[:, None])
    >>> minimise_separable(absolute, np.zeros((3, 1)), 0.8, tolerance=1e-6).w.round(4).ravel()
    array([0.  , 1.  , 1.25])
    """
    check_numbers("> 0", regularization=regularization, tolerance=tolerance)
    check_integers(1, max_iterations=max_iterations)
    best = np.array(start, float)
    objective, lower = np.full(len(best), np.inf), np.zeros(len(best))
    point, model = best.copy(), _Models(best.shape, max_iterations, regularization)
    at = np.arange(len(best))  # the problems that are not solved yet
    iteration = 0
    while len(at) and iteration < max_iterations:
        values, slopes = oracle(point[at], at)
        totals = values + 0.5 * regularization * np.square(point[at]).sum(1)
        better = totals < objective[at]
        best[at[better]], objective[at[better]] = point[at[better]], totals[better]
        model.add(at, slopes, values - (slopes * point[at]).sum(1))
        bounds, point[at] = model.solve(at, tolerance * objective[at])
        lower[at] = np.maximum(lower[at], bounds)
        at = at[objective[at] - lower[at] > tolerance * objective[at]]
        iteration += 1
    return SeparableSolution(best, objective, np.minimum(lower, objective), iteration)


class _Models:
    """The planes of all problems, the same number for each, and their multipliers."""

    def __init__(self, shape: tuple[int, ...], most: int, regularization: float) -> None:
        problems, dimension = shape
        self.regularization = regularization
        self.planes = 0
        self.gradients = np.zeros((problems, most, dimension))
        self.intercepts = np.zeros((problems, most))
        self.products = np.zeros((problems, most, most))
        self.multipliers = np.zeros((problems, most))

    def add(self, at: np.ndarray, slopes: np.ndarray, intercepts: np.ndarray) -> None:
        """Add a plane to each of the problems `at`."""
        new, self.planes = self.planes, self.planes + 1
        self.gradients[at, new], self.intercepts[at, new] = slopes, intercepts
        inner = np.einsum("qid,qd->qi", self.gradients[at, : self.planes], slopes) / self.regularization
        self.products[at, new, : self.planes] = self.products[at, : self.planes, new] = inner
        if new == 0:
            self.multipliers[at, 0] = 1.0

    def solve(self, at: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lower bounds of the problems `at`, and the minimisers of their models."""
        held = slice(self.planes)
        chosen = self.multipliers[at, held]
        bounds = _solve_duals(self.products[at, held, held], self.intercepts[at, held], chosen, precision)
        self.multipliers[at, held] = chosen
        return bounds, -np.einsum("qi,qid->qd", chosen, self.gradients[at, held]) / self.regularization


def _solve_duals(
    products: np.ndarray, linear: np.ndarray, multipliers: np.ndarray, precision: np.ndarray
) -> np.ndarray:
    """Maximise `<linear, a> - 1/2 <a, products a>` over the simplex for each problem, in place; returns the values reached.

    A step moves the optimal mass from the multiplier of least slope to that of greatest: O(planes) per problem. The
    suboptimality is at most the difference of these slopes.
    """
    rows = np.arange(len(linear))
    reached = np.einsum("qij,qj->qi", products, multipliers)
    for _ in range(_QP_STEPS):
        slope = linear - reached
        up = slope.argmax(1)
        down = np.where(multipliers > 0, slope, np.inf).argmin(1)
        difference = slope[rows, up] - slope[rows, down]
        if (difference <= 0.1 * precision).all():
            break
        curvature = products[rows, up, up] + products[rows, down, down] - 2 * products[rows, up, down]
        step = np.where(curvature > 0, difference / np.where(curvature > 0, curvature, 1.0), np.inf)
        step = np.minimum(step, multipliers[rows, down])
        multipliers[rows, up] += step
        multipliers[rows, down] -= step
        reached += step[:, None] * (products[rows, up] - products[rows, down])
    return (linear * multipliers).sum(1) - 0.5 * (reached * multipliers).sum(1)
