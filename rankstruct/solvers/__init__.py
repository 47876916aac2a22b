"""Solvers for regularised convex risks with a certified gap, independent of ranking.

    minimise  1/(2 C) ||w - w0||^2 + R(w),      R(w) = (1/Q) sum_q h_q(w), each h_q convex and piecewise linear

A solver is an object with options: `Bundle(tolerance=1e-4).minimise(risk, C=100.0)` returns a `Solution` with
`lower_bound <= optimum <= objective`. `DC` and `Annealing` are for nonconvex risks, without certificate.
`minimise_separable` is a bundle method for many small problems at once.
"""

from rankstruct.solvers.annealing import *
from rankstruct.solvers.base import *
from rankstruct.solvers.bundle import *
from rankstruct.solvers.cutting_plane import *
from rankstruct.solvers.dc import *
from rankstruct.solvers.frank_wolfe import *
from rankstruct.solvers.kernel_map import *
from rankstruct.solvers.least_squares import *
from rankstruct.solvers.qp import *
from rankstruct.solvers.risk import *
from rankstruct.solvers.separable import *
from rankstruct.solvers.shared import *
from rankstruct.solvers.solution import *
