"""Kernels: compiled loops for CPUs, Triton for devices, and `ListOperator`, which calls them.

Other packages only see custom operators: the oracles define theirs, and losses call those of `pairwise_hinge`, `pair_loss`,
`pair_sums`, `top_surrogate`, `soft_rank` and `plackett_luce`; the scorer of trees calls `trees.score_trees`.
"""

from rankstruct.kernels.dispatch import *
