"""Oracle of the first-relevant feature map: reciprocal rank (SVMmrr).

Only the irrelevant documents above the top-ranked relevant one matter, and that one should score low: for each r, the r
highest irrelevant documents and then the lowest relevant one. `ideal` and `ideal-tied` are the same reference, psi(r*) = 0; F is
highest with the lowest relevant document after all irrelevant ones that score above it.
"""

from __future__ import annotations

from rankstruct.feature_maps import FeatureMap, FirstRelevant
from rankstruct.kernels import core
from rankstruct.kernels.binary import NO_CUTOFF, ArgmaxMethod, binary_kernel
from rankstruct.measures import RR, Measure
from rankstruct.oracles.pairwise import binary_oracle
from rankstruct.oracles.registry import register_oracle

_METHOD = ArgmaxMethod("every rank of the lowest-scored relevant document", "O(n log n)", core.first_relevant)
_reciprocal_rank = binary_kernel(
    "first_relevant_reciprocal_rank", "int cutoff, bool predicted", lambda longest, *options: (_METHOD, options)
)


def _options(measure: Measure, feature_map: FeatureMap, reference: str) -> tuple[int, bool]:
    return NO_CUTOFF if measure.cutoff is None else measure.cutoff, reference == "predicted"


# SVMmrr: Chakrabarti, Khanna, Sawant, Bhattacharyya, "Structured Learning for Non-Smooth Ranking Losses", KDD 2008; the loss
# at rank r + 1 is 1 - 1/(1 + r), even with fewer than k irrelevant documents.
register_oracle(RR, FirstRelevant, binary_oracle(_reciprocal_rank, _options, lambda measure, size: _METHOD))
