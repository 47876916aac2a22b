"""Oracle of diverse rankings: each document has a group (host, topic), and the first k include at most one of each.

    maximise over diverse rankings   sum_{i <= m} ( c_i s_{r(i)} - a_i b_{r(i)} ),   m = min(k, number of groups)

with the decay c of the positional map, cut to 0 after k, and the discount a and gains b of a measure with a cut-off k. A diverse
ranking shows exactly m documents, one per group; the others have no rank. The reference, the best value and the argmax are all
over diverse rankings. With one document per group this is the positional map with the decay cut to 0 after k.

The argmax is an assignment of ranks to groups, where the value of (rank i, group) is the maximum over the group's documents of
c_i s - a_i b; solved by exchanges, rarely by shortest augmenting paths, at worst O(n m + m^2 G) for n documents in G groups.
If the measure's discount reaches 0 before its cut-off, or it is WTA, k is the last rank with a discount; for mWTA it depends on
the list, see `Diverse`. Reciprocal rank uses the best of m + 1 assignments, with 0 to m leading irrelevant documents: O(n m + m^3
G).

Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 7.1.

>>> import torch
>>> import rankstruct as rs
>>> scores, labels, hosts = torch.tensor([2.0, 1.0, 0.0]), torch.tensor([0, 0, 1]), torch.tensor([7, 7, 8])
>>> r = rs.most_violated(scores, labels, "diverse_nDCG@2", diversity_groups=hosts)
>>> r.task_loss, r.value, r.direction
(tensor(0.3691), tensor(0.9549), tensor([ 0.2929,  0.0000, -0.2929]))
"""

from __future__ import annotations

from rankstruct.feature_maps import Positional
from rankstruct.kernels import core
from rankstruct.measures import RR, Diverse
from rankstruct.oracles.positional import RankMethod, rank_operator, rank_oracle
from rankstruct.oracles.registry import register_oracle

_SUM = RankMethod("assignment of ranks to groups by exchanges", "about O(n m + m^2), at worst O(n m + m^2 G)")
_RECIPROCAL = RankMethod(
    "such an assignment for each number of irrelevant documents that lead", "at worst O(n m + m^3 G)"
)


def _explain(measure: Diverse, feature_map: Positional, list_size: int, grades: int) -> RankMethod:
    return _RECIPROCAL if isinstance(measure.plain, RR) else _SUM


register_oracle(Diverse, Positional, rank_oracle(rank_operator(core.diverse), _explain), default="ideal-tied")
