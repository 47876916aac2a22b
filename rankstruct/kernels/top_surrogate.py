"""The average and the max surrogate of measures of the top, as an operator; see `losses.top_surrogate`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels import core
from rankstruct.kernels.dispatch import Answer, Call, ListOperator, PaddedLists, discount_table
from rankstruct.kernels.pairwise_device import Split, pad_front

__all__ = ["swap_surrogate"]


def _compiled(longest: int, weights: Tensor, normalized: bool, average: bool, slack: bool) -> Call:
    table, loop = discount_table(weights, longest), core.top_surrogate
    return Call(loop, loop.options(table, len(table), int(np.count_nonzero(table)), normalized, average, slack))


def _padded(lists: PaddedLists, weights: Tensor, normalized: bool, average: bool, slack: bool) -> Answer:
    """All numbers of swaps at once, `[lists, 1 + list_size]`."""
    gains = torch.where(lists.where, lists.labels.double(), 0.0)
    split = Split(lists, gains > 0)
    rank, p, m = split.rank, split.p, split.m
    weights = weights[: len(rank)].to(rank.device, torch.float64)
    shown = torch.minimum(p, weights.count_nonzero())
    unit = gains.amax(-1, keepdim=True)
    if normalized:
        unit = torch.where(p > 0, 1 / torch.where(rank < shown, weights, 0.0).sum(-1, keepdim=True), 0.0)
    last = (p + m - 1 - rank).clamp(min=0)
    w = torch.where(rank < torch.minimum(shown, m), weights - weights[last], 0.0) * unit
    regret = pad_front(w.cumsum(-1))
    hits = (shown - torch.arange(len(rank) + 1, device=rank.device)).clamp(min=0)
    from_the_end = (p - 1 - rank).clamp(min=0)
    if average:
        sums = pad_front(split.relevant_score.cumsum(-1))
        missed = (sums.gather(-1, p) - sums.gather(-1, hits)) / (p - hits).clamp(min=1)
        margin = pad_front((w * split.irrelevant_score).cumsum(-1)) - regret * missed
    else:
        margin = pad_front((w * (split.irrelevant_score - split.relevant_score.gather(-1, from_the_end))).cumsum(-1))
    values = regret * (1 + margin) if slack else regret + margin
    swaps = values.argmax(-1, keepdim=True)
    value, regret, hits = (each.gather(-1, swaps) for each in (values, regret, hits))
    factor = regret if slack else torch.ones_like(regret)
    largest = torch.where(rank < swaps, w, 0.0)
    if average:
        missed = torch.where((rank >= hits) & (rank < p), regret / (p - hits).clamp(min=1), 0.0)
    else:
        missed = torch.where(rank < p, largest.gather(-1, from_the_end), 0.0)
    direction = torch.zeros_like(w).scatter_add_(-1, split.irrelevant_order, factor * largest)
    direction = direction.scatter_add_(-1, split.relevant_order, -factor * missed)
    return regret.squeeze(-1), value.squeeze(-1), split.shared(direction)


#: The surrogate of each list, its gradient, and as task loss the regret of its most violated ranking. Labels are the gains of a
#: measure, at most one above 0 per list, and `weights` its discounts.
swap_surrogate = ListOperator(
    "swap_surrogate", "Tensor weights, bool normalized, bool average, bool slack", _compiled, _padded, gains=True
)
