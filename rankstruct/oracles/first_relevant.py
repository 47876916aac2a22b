"""Oracle of the first-relevant feature map: reciprocal rank (SVMmrr).

Only the irrelevant documents above the top-ranked relevant one matter, and that one should score low: for each r, the r
highest bads and then the lowest good. `ideal` and `ideal-tied` are the same reference, psi(r*) = 0; F itself prefers the lowest
good with all bads that score above it in front.
"""

from __future__ import annotations

from rankstruct.feature_maps import FirstRelevant
from rankstruct.measures import RR
from rankstruct.oracles.kernels import ListKernel, Method
from rankstruct.oracles.kernels.first_relevant_cpu import by_score_lists, reciprocal_rank_lists
from rankstruct.oracles.kernels.first_relevant_device import by_score_padded, reciprocal_rank_padded
from rankstruct.oracles.operators import list_operator, list_oracle
from rankstruct.oracles.registry import register_oracle

_METHOD = Method(
    "every rank of the lowest-scored relevant document", "O(n log n)", reciprocal_rank_lists, reciprocal_rank_padded
)
_BY_SCORE = Method("all bads above the lowest good", "O(n log n)", by_score_lists, by_score_padded)

# SVMmrr: Chakrabarti, Khanna, Sawant, Bhattacharyya, "Structured Learning for Non-Smooth Ranking Losses", KDD 2008; the loss
# at rank r + 1 is 1 - 1/(1 + r), and fewer than k irrelevant documents are no exception here.
register_oracle(
    RR,
    FirstRelevant,
    list_oracle(
        "first_relevant_reciprocal_rank",
        ListKernel(lambda parameters, longest: (_METHOD, parameters)),
        list_operator("first_relevant_by_score", ListKernel(lambda parameters, longest: (_BY_SCORE, parameters))),
    ),
    default=True,
)
