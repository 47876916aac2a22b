"""Oracle of the first-relevant feature map: reciprocal rank (SVMmrr).

Only the irrelevant documents above the top-ranked relevant one matter, and that one should score low: for each r, the r
highest irrelevant documents and then the lowest relevant one. `ideal` and `ideal-tied` are the same reference, psi(r*) = 0; F
itself prefers the lowest relevant document with all irrelevant ones that score above it in front.
"""

from __future__ import annotations

from rankstruct.feature_maps import FirstRelevant
from rankstruct.kernels.binary import Method
from rankstruct.measures import RR
from rankstruct.oracles.pairwise import binary_oracle, only
from rankstruct.oracles.registry import register_oracle

_METHOD = Method(
    "every rank of the lowest-scored relevant document",
    "O(n log n)",
    "first_relevant_cpu.reciprocal_rank_lists",
    "first_relevant_device.reciprocal_rank_padded",
)

# SVMmrr: Chakrabarti, Khanna, Sawant, Bhattacharyya, "Structured Learning for Non-Smooth Ranking Losses", KDD 2008; the loss
# at rank r + 1 is 1 - 1/(1 + r), and fewer than k irrelevant documents are no exception here.
register_oracle(RR, FirstRelevant, binary_oracle("first_relevant_reciprocal_rank", only(_METHOD)))
