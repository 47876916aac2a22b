"""Reference rankings of the positional map that other scores choose, in vectorised torch: padded lists on any device."""

from __future__ import annotations

import torch
from torch import Tensor


def reference_direction(
    scores: Tensor,
    gains: Tensor,
    where: Tensor,
    decay: Tensor,
    weights: Tensor,
    least_cutoff: int,
    reciprocal: bool,
    reference: str,
) -> Tensor:
    """Psi of the reference ranking less psi of the ideal one, `[lists, list_size]`, from sorts alone.

    Args:
        scores: `[lists, list_size]` float64, those that choose the ranking.
        gains: the same shape, >= 0.
        where: bool, the same shape, True for a real document.
        decay: `[>= list_size]` float64, the decay of the map.
        weights: `[>= list_size]` float64, the discount of the measure.
        least_cutoff: 0; or the cut-off of each list is the first rank at which the ideal ranking gains less than at its first,
            but at least this.
        reciprocal: whether the measure is reciprocal rank.
        reference: `"ideal-tied"` or `"predicted"`.

    Among documents that the reference does not tell apart the one with the higher gain comes first, then input order. A list
    that no ranking can get wrong has zeros.
    """
    lists, size = scores.shape
    if lists == 0 or size == 0:
        return torch.zeros_like(scores)
    scores = torch.where(where, scores, -torch.inf)
    gains = torch.where(where, gains, -1.0)
    by_gain = _sorted(gains)
    by_score = by_gain.gather(-1, _sorted(scores.gather(-1, by_gain)))
    last = (where.sum(-1, keepdim=True) - 1).clamp(min=0)
    sorted_gains = gains.gather(-1, by_gain)
    top = sorted_gains[:, :1]
    differ = (top > 0) & (top > sorted_gains.gather(-1, last))
    table = weights[:size].expand(lists, size)
    if least_cutoff:
        cut = (where & (gains == top)).sum(-1, keepdim=True) + 1
        table = torch.where(torch.arange(size, device=scores.device) < cut.clamp(min=least_cutoff), table, 0.0)
    if not reciprocal:
        differ = differ & (table[:, :1] > table.gather(-1, last))
    if reference == "predicted":
        chosen = by_score
    elif reciprocal:  # the highest-scored relevant document, then all others by score
        relevant = gains.gather(-1, by_score) > 0
        lead = relevant & (relevant.cumsum(-1) == 1)
        chosen = by_score.gather(-1, _sorted(lead.double()))
    else:  # by gain, then score; within a block of ranks of one discount by score alone
        place = _ranks(by_score.gather(-1, _sorted(gains.gather(-1, by_score))))
        block = torch.nn.functional.pad((table[:, 1:] != table[:, :-1]).cumsum(-1), (1, 0))
        chosen = by_score.gather(-1, _sorted(-block.gather(-1, place).gather(-1, by_score).double()))
    direction = decay[_ranks(chosen)] - decay[_ranks(by_gain)]
    return torch.where(where & differ, direction, 0.0)


def _sorted(keys: Tensor) -> Tensor:
    return keys.argsort(dim=-1, descending=True, stable=True)


def _ranks(order: Tensor) -> Tensor:
    """The 0-based rank of each document, from the documents by rank."""
    ranks = torch.empty_like(order)
    return ranks.scatter_(-1, order, torch.arange(order.shape[-1], device=order.device).expand_as(order))
