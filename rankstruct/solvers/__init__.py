"""Solvers of regularised convex risks, with a certified gap; they know nothing of ranking.

    minimise  1/(2 C) ||w - w0||^2 + R(w),      R(w) = (1/Q) sum_q h_q(w), each h_q convex and piecewise linear

A solver is an object of options: `Bundle(tolerance=1e-4).minimise(risk, C=100.0)` returns a `Solution` with
`lower_bound <= optimum <= objective`. `DC` and `Annealing` are for what is not convex, and certify nothing.
`minimise_separable` is a bundle method for many small problems at once.
"""

from rankstruct.solvers.base import Solver
from rankstruct.solvers.bundle import Bundle
from rankstruct.solvers.cutting_plane import CuttingPlane
from rankstruct.solvers.dc import DC
from rankstruct.solvers.frank_wolfe import FrankWolfe
from rankstruct.solvers.kernels import Kernel, KernelMap
from rankstruct.solvers.qp import PlaneQP, QPResult
from rankstruct.solvers.regression import group_regression
from rankstruct.solvers.risk import LinearRisk, Risk
from rankstruct.solvers.separable import SeparableSolution, minimise_separable
from rankstruct.solvers.smooth import Annealing
from rankstruct.solvers.solution import Planes, Record, Solution, Status

__all__ = [
    "DC",
    "Annealing",
    "Bundle",
    "CuttingPlane",
    "FrankWolfe",
    "Kernel",
    "KernelMap",
    "LinearRisk",
    "PlaneQP",
    "Planes",
    "QPResult",
    "Record",
    "Risk",
    "SeparableSolution",
    "Solution",
    "Solver",
    "Status",
    "group_regression",
    "minimise_separable",
]
