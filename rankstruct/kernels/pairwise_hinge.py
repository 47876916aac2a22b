"""The pairwise hinge over all pairs of grades (RankSVM), as an operator over lists.

The implementation in torch reads nothing back from the device. The ranks of two different grades differ in a highest bit. For
each bit, documents that agree in all higher bits form a group, in which those with the bit have a higher grade than the others:
one sort by score and running sums within each group give each document's cost. There is one round per bit.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankstruct.kernels import core
from rankstruct.kernels.dispatch import Answer, Call, ListOperator, PaddedLists

__all__ = ["pairwise_hinge"]


def _compiled(longest: int, margin: float) -> Call:
    return Call(core.pairwise_hinge, core.pairwise_hinge.options(margin))


def _padded(lists: PaddedLists, margin: float) -> Answer:
    value, direction = _hinge_padded(*lists[:3], margin)
    return value.new_zeros(value.shape), value, direction


def _hinge_padded(scores: Tensor, labels: Tensor, where: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Mean hinge over all pairs of grades, `[lists]`, and its gradient `[lists, list_size]`, both float64.

    O(n log^2 n) time, O(n) memory, whatever the number of grades.
    """
    scores = scores.double()
    scores = torch.where(where, scores - torch.where(where, scores, -torch.inf).amax(-1, keepdim=True), 0.0)
    size = scores.shape[-1]
    rank = _ranks(labels)
    # Every document twice: as the lower one by its score, as the higher one by its score minus the margin. Ascending; in
    # ties, which cost nothing, lower ones come first.
    value, order = torch.cat([scores, scores - margin], -1).sort(dim=-1, stable=True)
    document, real = order % size, where.gather(-1, order % size)
    is_lower, rank = real & (order < size), rank.gather(-1, document)
    is_higher = real & ~is_lower
    total, pairs, direction = (
        scores.new_zeros(scores.shape[0]),
        scores.new_zeros(scores.shape[0]),
        torch.zeros_like(scores),
    )
    for bit in range(max(size - 1, 1).bit_length()):
        has_bit = (rank >> bit) % 2 == 1
        group, at = (rank >> (bit + 1)).sort(dim=-1, stable=True)
        higher, lower = (is_higher & has_bit).gather(-1, at), (is_lower & ~has_bit).gather(-1, at)
        here = value.gather(-1, at)
        first, behind = torch.searchsorted(group, group), torch.searchsorted(group, group, right=True)
        lowers, highers = (pad(each.cumsum(-1), (1, 0)) for each in (lower, higher))
        sums = pad(torch.where(lower, here, 0.0).cumsum(-1), (1, 0))
        above = torch.where(higher, lowers.gather(-1, behind) - lowers[:, 1:], 0)  # margin violated
        below = torch.where(lower, highers[:, :-1] - highers.gather(-1, first), 0)
        total += torch.where(higher, sums.gather(-1, behind) - sums[:, 1:] - above * here, 0.0).sum(-1)
        pairs += torch.where(higher, lowers.gather(-1, behind) - lowers.gather(-1, first), 0).sum(-1)
        direction.scatter_add_(-1, document.gather(-1, at), (below - above).double())
    pairs = pairs.clamp(min=1)
    return total.clamp(min=0) / pairs, direction / pairs.unsqueeze(-1)


def _ranks(labels: Tensor) -> Tensor:
    """The number of distinct lower grades of each document, int64."""
    grades, order = labels.sort(dim=-1)
    steps = pad((grades[:, 1:] != grades[:, :-1]).cumsum(-1), (1, 0))
    return torch.zeros_like(steps).scatter_(-1, order, steps)


#: Mean hinge over the pairs of each list with different labels, weighted by the product of their item weights, and its gradient;
#: the task loss is 0.
pairwise_hinge = ListOperator("pairwise_hinge", "float margin", _compiled, _padded, weighted=True)
