"""The n-slack cutting plane method, with a slack and a working set of planes per term.

    model(w) = 1/(2 C) ||w - w0||^2 + (1/Q) sum_q max_{i in W_q} ( b_i + <g_i, w> )

At the model's minimiser, each term that exceeds its slack by epsilon gets a new plane. If none does, the gap is at most
epsilon, here half the tolerance times the objective. It needs far fewer passes over the data than one slack, but each pass
can add Q planes, and the quadratic program grows with them: for cheap oracles use the bundle method.

Source: Tsochantaridis, Joachims, Hofmann, Altun, JMLR 2005; Yue, Finley, Radlinski, Joachims, SIGIR 2007, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankstruct.solvers.base import Problem, Solver, start_qp
from rankstruct.solvers.solution import Planes

__all__ = ["CuttingPlane"]

_PATIENCE = 100  # iterations without progress, after which it is limited by rounding


@dataclass(frozen=True, kw_only=True)
class CuttingPlane(Solver):
    """n-slack cutting plane method; one evaluation of all terms per iteration.

    Args:
        planes_per_term: above this number on average, the least recently used planes are removed; those in use, at most Q + d,
            stay.

    The other arguments are those of `Solver`.

    >>> from rankstruct.data import RankingData
    >>> from rankstruct.solvers import LinearRisk
    >>> lists = RankingData.from_arrays([[1.0], [3.0], [2.0]], [0, 0, 0], ["a", "b", "c"])
    >>> def oracle(scores):  # max(0, 1 - s), one term per document
    ...     return np.maximum(0, 1 - scores), -(scores < 1).astype(float)
    >>> solution = CuttingPlane(tolerance=1e-6).minimise(LinearRisk(lists, oracle), C=1.0)
    >>> solution.w.round(3), solution.gap < 1e-6
    (array([0.5]), True)
    """

    planes_per_term: int = 30

    _least: ClassVar[dict[str, int]] = {**Solver._least, "planes_per_term": 2}

    def _steps(self, problem: Problem, start: np.ndarray, planes: Planes | None) -> Iterator[int]:
        terms = np.arange(problem.risk.terms)
        qp = start_qp(problem, len(terms), planes)
        values, gradients = problem.evaluate_terms(start, terms)
        problem.observe(start, float(values.mean()))
        most = self.planes_per_term * len(terms)
        qp.add_at(start, values, gradients, terms, most)
        idle = 0
        while True:
            before = problem.objective, problem.lower_bound
            w = problem.solve_model(qp)
            if problem.gap <= self.tolerance:
                yield qp.size
                return
            slack = np.full(len(terms), -np.inf)
            np.maximum.at(slack, qp.groups, qp.values(w))
            values, gradients = problem.evaluate_terms(w, terms)
            problem.observe(w, float(values.mean()))
            violated = values - slack > self.tolerance / 2 * abs(problem.objective)
            with problem.timed("qp"):
                qp.add_at(w, values[violated], gradients[violated], terms[violated], most)
            yield qp.size
            idle = 0 if (problem.objective, problem.lower_bound) != before else idle + 1
            if not violated.any() or idle > _PATIENCE:
                return
