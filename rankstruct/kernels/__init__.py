"""Kernels: compiled loops for CPUs, Triton for devices, and `ListOperator`, which calls them.

Other packages only see custom operators: the oracles define theirs, and losses call `pairwise_hinge`,
`pair_loss`, those of `pair_sums`, `swap_surrogate`, `soft_rank`, `log_sums`, `draw_few_ranks`, `draw_rankings`, `policy_loss`,
`policy_gradient` and `policy_curvature`; the scorer of trees calls `score_trees`.
"""

from rankstruct.kernels.dispatch import *
from rankstruct.kernels.pair_loss import *
from rankstruct.kernels.pair_sums import *
from rankstruct.kernels.pairwise_hinge import *
from rankstruct.kernels.plackett_luce import *
from rankstruct.kernels.soft_rank import *
from rankstruct.kernels.top_surrogate import *
from rankstruct.kernels.trees import *
