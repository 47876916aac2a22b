"""Block-coordinate Frank-Wolfe on the dual: a few terms per step, with the optimal step length in closed form.

With one averaged plane (u_q, l_q) per term, which includes the mass 1/Q, the dual is

    D = sum_q l_q - C/2 ||sum_q u_q||^2,      w = w0 - C sum_q u_q      (l_q is the plane's value at w0)

A step moves (u_q, l_q) of a block towards the planes (u', l') of these terms at w by

    gamma = clip( sum ( l' - l + <u' - u, w - w0> ) / (C ||sum (u' - u)||^2), 0, 1 )

and never lowers D. After each pass over the terms, the objective at w and at the average of the iterates weighted by step number
give the exact gap to D.

Source: Lacoste-Julien, Jaggi, Schmidt, Pletscher, "Block-Coordinate Frank-Wolfe Optimization for Structural SVMs", ICML 2013.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankstruct.solvers.base import Problem, Solver
from rankstruct.solvers.qp import certain_dual, certain_levels
from rankstruct.solvers.solution import Planes

__all__ = ["FrankWolfe"]


@dataclass(frozen=True, kw_only=True)
class FrankWolfe(Solver):
    """Block-coordinate Frank-Wolfe; an iteration is a pass over all terms and two evaluations of the risk.

    It stores one d-vector per term, and needs many passes if C is large.

    Args:
        block_size: terms per step.
        seed: of the order of the terms, which is shuffled in every pass.

    The other arguments are those of `Solver`. A warm start reuses planes of terms, from this method or from `CuttingPlane`.

    >>> from rankstruct.data import RankingData
    >>> from rankstruct.solvers import LinearRisk
    >>> lists = RankingData.from_arrays([[1.0], [3.0], [2.0]], [0, 0, 0], ["a", "b", "c"])
    >>> def oracle(scores):  # max(0, 1 - s), one term per document
    ...     return np.maximum(0, 1 - scores), -(scores < 1).astype(float)
    >>> solution = FrankWolfe(tolerance=1e-3).minimise(LinearRisk(lists, oracle), C=1.0)
    >>> solution.w.round(2), solution.gap < 1e-3
    (array([0.5]), True)
    """

    block_size: int = 1
    seed: int = 0

    _least: ClassVar[dict[str, int]] = {**Solver._least, "block_size": 1}

    def _steps(self, problem: Problem, start: np.ndarray, planes: Planes | None) -> Iterator[int]:
        C, w0, terms = problem.C, problem.w0, problem.risk.terms
        rng = np.random.default_rng(self.seed)
        everything = np.arange(terms)
        if planes is not None and planes.num_groups == terms:
            gradient, level = np.zeros((terms, len(w0))), np.zeros(terms)
            np.add.at(gradient, planes.groups, planes.multipliers[:, None] * planes.gradients)
            np.add.at(level, planes.groups, planes.multipliers * (planes.intercepts + planes.gradients @ w0))
        else:
            values, gradients = problem.evaluate_terms(start, everything)
            problem.observe(start, float(values.mean()))
            gradient, level = gradients / terms, certain_levels(values, gradients, start, w0) / terms
        problem.planes = lambda: Planes(
            gradient * terms, level * terms - (gradient * terms) @ w0, everything, np.full(terms, 1 / terms), terms
        )
        total = gradient.sum(0)
        average, steps = w0 - C * total, 0
        while True:
            order = rng.permutation(terms)
            for first in range(0, terms, self.block_size):
                block = order[first : first + self.block_size]
                w = w0 - C * total
                values, gradients = problem.evaluate_terms(w, block)
                to_gradient = gradients / terms - gradient[block]
                to_level = certain_levels(values, gradients, w, w0) / terms - level[block]
                change = to_gradient.sum(0)
                gain, curvature = to_level.sum() - C * (change @ total), C * (change @ change)
                if gain > 0:
                    gamma = 1.0 if gain >= curvature else gain / curvature
                    gradient[block] += gamma * to_gradient
                    level[block] += gamma * to_level
                    total += gamma * change
                steps += 1
                average += 2 / (steps + 1) * (w0 - C * total - average)
            total = gradient.sum(0)
            problem.evaluate(w0 - C * total)
            problem.evaluate(average)
            problem.raise_bound(certain_dual(level, gradient, total, C))
            yield terms
