"""Oracles of the pairwise feature map: merging two sorted lists.

Documents of the same label never need to be swapped, so a ranking is the number of bads above each good,
b_1 <= ... <= b_p, and with S(b) the sum of the b highest bad scores

    Delta + F(r) - F(r*) = Delta + 2/(p m) sum_i ( S(b_i) - b_i s(g_i) )

`ideal` and `ideal-tied` are the same reference here: all goods above all bads, and F does not see the order within.
"""

from __future__ import annotations

import numpy as np

from rankstruct.feature_maps import Pairwise
from rankstruct.measures import AP, AUC, RR, DiscountedGain, P, nDCG
from rankstruct.oracles.kernels import ListKernel, Method, Parameters
from rankstruct.oracles.kernels import pairwise_cpu as cpu
from rankstruct.oracles.kernels import pairwise_device as device
from rankstruct.oracles.operators import list_operator, list_oracle
from rankstruct.oracles.registry import register_oracle, set_default_feature_map

_AUC = Method("each pair by itself, counted by a merge", "O(n log n)", cpu.auc_lists, device.auc_padded)
_CONVEX = Method(
    "monotone divide and conquer over the irrelevant documents", "O(n log n)", cpu.convex_lists, device.convex_padded
)
_PROGRAMME = Method(
    "running-maximum programme over the irrelevant documents above each relevant one, to the cut-off k",
    "O(n log n + min(k, p) min(k, m))",
    cpu.programme_lists,
    device.programme_padded,
)
_FIRST = Method(
    "every rank of the first relevant document",
    "O(n log n)",
    cpu.reciprocal_rank_lists,
    device.reciprocal_rank_padded,
)
_BY_SCORE = Method("sort by score", "O(n log n)", cpu.by_score_lists, device.by_score_padded)


def is_convex(weights: np.ndarray) -> bool:
    """Whether a discount `[ranks]` falls ever more slowly, so that the divide and conquer is exact."""
    # Rounding makes equal falls differ by as much as the last digit of the weights themselves.
    return bool((np.diff(weights, 2) >= -4e-16 * weights[:1].sum()).all())


def _plan_precision(parameters: Parameters, longest: int) -> tuple[Method, Parameters]:
    return (_CONVEX if parameters.cutoff >= longest else _PROGRAMME), parameters


def _plan_discounted(parameters: Parameters, longest: int) -> tuple[Method, Parameters]:
    if is_convex(parameters.weights):
        return _CONVEX, parameters
    # A discount may be 0 from some rank on without a cut-off.
    return _PROGRAMME, parameters._replace(cutoff=int(np.count_nonzero(parameters.weights)))


# The ranking that F prefers: by score, whatever the measure; relevant documents first where scores tie.
_by_score = list_operator("pairwise_by_score", ListKernel(lambda parameters, longest: (_BY_SCORE, parameters)))

# SVMauc: Joachims, "A Support Vector Method for Multivariate Performance Measures", ICML 2005.
register_oracle(
    AUC,
    Pairwise,
    list_oracle("pairwise_auc", ListKernel(lambda parameters, longest: (_AUC, parameters)), _by_score),
    default=True,
)
# SVMmap: Yue, Finley, Radlinski, Joachims, "A Support Vector Method for Optimizing Average Precision", SIGIR 2007.
register_oracle(
    AP, Pairwise, list_oracle("pairwise_average_precision", ListKernel(_plan_precision), _by_score), default=True
)
# SVMndcg and its like: Chakrabarti, Khanna, Sawant, Bhattacharyya, "Structured Learning for Non-Smooth Ranking Losses",
# KDD 2008. Their greedy method (fact 3.4) is not exact; these are.
register_oracle(
    DiscountedGain,  # type: ignore[type-abstract]  # the oracle of all its subclasses
    Pairwise,
    list_oracle("pairwise_discounted", ListKernel(_plan_discounted), _by_score, discounted=True),
)
for _measure in (nDCG, P):
    set_default_feature_map(_measure, Pairwise())
register_oracle(
    RR,
    Pairwise,
    list_oracle("pairwise_reciprocal_rank", ListKernel(lambda parameters, longest: (_FIRST, parameters)), _by_score),
)
