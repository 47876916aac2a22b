"""Kernels: compiled loops for CPU tensors and their vectorised twins for the others, behind one door, `dispatch.define_kernel`.

What stands above this floor sees custom operators alone: the oracles make theirs, and losses call `pairwise_hinge`,
`pairwise_logistic`, `swap_surrogate`, `expected_discounts`, `draw_few_ranks`, `draw_rankings`, `policy_gradient` and
`policy_curvature`.
"""

from rankstruct.kernels.dispatch import *
from rankstruct.kernels.pairwise_hinge import *
from rankstruct.kernels.pairwise_logistic import *
from rankstruct.kernels.plackett_luce import *
from rankstruct.kernels.rank_binomial import *
from rankstruct.kernels.swap_surrogate import *
