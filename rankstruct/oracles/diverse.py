"""Oracle of diverse rankings: documents carry a group (host, topic), and the first k hold at most one of each.

    maximise over diverse rankings   sum_{i <= m} ( c_i s_{r(i)} - a_i b_{r(i)} ),   m = min(k, number of groups)

with the decay c of the positional map, cut to 0 after k, and the discount a and gains b of a measure with a cut-off k. A diverse
ranking shows exactly m documents, one of a group; the rest has no rank. The reference, the best value and the argmax all range
over diverse rankings. With groups of one document this is the positional map with the decay cut to 0 after k.

The argmax is an assignment of ranks to groups, where the value of (rank i, group) is the best over the group's documents of
c_i s - a_i b; solved by shortest augmenting paths, O(n m + m^2 G) after the sorts, for n documents in G groups. Where the
measure's discount reaches 0 before its cut-off, or it is WTA, k is the last rank with a discount; that of mWTA is for each list
as `Diverse` says. Reciprocal rank takes the best of m + 1 assignments, in which 0 to m irrelevant documents lead: O(n + m^3 G).

Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 7.1.

>>> import torch
>>> import rankstruct as rs
>>> scores, labels, hosts = torch.tensor([2.0, 1.0, 0.0]), torch.tensor([0, 0, 1]), torch.tensor([7, 7, 8])
>>> r = rs.most_violated(scores, labels, "diverse_nDCG@2", groups=hosts)
>>> r.task_loss, r.value, r.direction
(tensor(0.3691), tensor(0.9549), tensor([ 0.2929,  0.0000, -0.2929]))
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from rankstruct.feature_maps import Positional
from rankstruct.kernels.dispatch import Answer, FlatLists, define_kernel, discount_table
from rankstruct.measures import RR, Diverse
from rankstruct.oracles.positional import rank_gains, rank_parameters
from rankstruct.oracles.registry import REFERENCES, Oracle, register_oracle


class _Method(NamedTuple):
    name: str
    cost: str


_SUM = _Method("assignment of ranks to groups by shortest augmenting paths", "O(n m + m^2 G) after the sorts")
_RECIPROCAL = _Method("such an assignment for each number of irrelevant documents that lead", "O(n + m^3 G)")


def _solve_flat(
    flat: FlatLists,
    results: tuple[np.ndarray, ...],
    decay: Tensor,
    weights: Tensor,
    least_cutoff: int,
    normalized: bool,
    reciprocal: bool,
    reference: str,
) -> int:
    from rankstruct.kernels import diverse_cpu as cpu

    a = discount_table(weights, flat.longest)
    chosen = flat.chosen if flat.chosen.size else flat.scores
    batch = cpu.DiverseBatch(
        scores=flat.scores,
        chosen=chosen,
        chosen_bits=chosen.view(np.uint64),
        gains=flat.labels,
        gain_bits=flat.labels.view(np.uint64),
        groups=flat.groups,
        where=flat.where,
        offsets=flat.bounds,
        decay=discount_table(decay, flat.longest),
        weights=a,
        cutoff=int(np.count_nonzero(a)),
        least_cutoff=least_cutoff,
        normalized=normalized,
        reciprocal=reciprocal,
    )
    code = REFERENCES.index(reference)
    return flat.run(lambda first, last: cpu.diverse_lists(batch, first, last, code, *results))


# The assignment does not vectorise.
_operator = define_kernel(
    "diverse",
    "Tensor decay, Tensor weights, SymInt least_cutoff, bool normalized, bool reciprocal, str reference",
    _solve_flat,
    precise=True,
)


def _solve(
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    measure: Diverse,
    feature_map: Positional,
    reference: str,
    *,
    groups: Tensor,
    reference_scores: Tensor | None = None,
) -> Answer:
    lists = (scores, rank_gains(measure.plain, labels), where, offsets, reference_scores, groups)
    return _operator(*lists, *rank_parameters(measure.plain, feature_map, scores), reference)


def _explain(measure: Diverse, feature_map: Positional, list_size: int, grades: int) -> _Method:
    return _RECIPROCAL if isinstance(measure.plain, RR) else _SUM


register_oracle(Diverse, Positional, Oracle(_solve, _explain, REFERENCES, takes_reference_scores=True), default=True)
