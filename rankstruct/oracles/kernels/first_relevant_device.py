"""Most violated rankings under the first-relevant feature map, in vectorised torch; see `pairwise_device`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rankstruct.oracles.kernels import Answer, Parameters
from rankstruct.oracles.kernels.pairwise_device import Split, pad_front


def reciprocal_rank_padded(scores: Tensor, relevant: Tensor, where: Tensor, parameters: Parameters) -> Answer:
    """Reciprocal rank (SVMmrr): every number r of bads above the lowest good at once."""
    split = Split(scores, relevant, where)
    lists, size = split.shape
    if lists == 0 or size == 0:
        return split.nothing()
    lowest = _lowest(split)
    r = torch.arange(size + 1, device=scores.device)
    loss = torch.where(r < parameters.cutoff, 1.0 - 1.0 / (1 + r).double(), 1.0)
    loss[0] = 0.0
    lead = pad_front((split.bad_score - lowest).cumsum(-1))
    total = torch.where((r <= split.m) & (split.p > 0), loss + lead, -math.inf)
    total[:, 0] = 0.0
    value, best_r = total.max(-1, keepdim=True)
    direction = _direction(split, best_r)
    broken = ~split.finite
    return (
        loss[best_r].squeeze(-1).masked_fill(broken, math.nan),
        value.squeeze(-1).masked_fill(broken, math.nan),
        direction,
    )


def by_score_padded(scores: Tensor, relevant: Tensor, where: Tensor, parameters: Parameters) -> Answer:
    """The ranking that F prefers: the bads that score above the lowest good, then that good."""
    split = Split(scores, relevant, where)
    if split.shape[0] == 0 or split.shape[1] == 0:
        return split.nothing()
    lead = split.bad_score - _lowest(split)
    above = (split.rank < split.m) & (lead > 0) & (split.p > 0)
    value = torch.where(above, lead, 0.0).sum(-1)
    return torch.zeros_like(value), value, _direction(split, above.sum(-1, keepdim=True))


def _lowest(split: Split) -> Tensor:
    """The score of the lowest good, `[lists, 1]`."""
    return split.good_score.gather(-1, (split.p - 1).clamp(min=0))


def _direction(split: Split, r: Tensor) -> Tensor:
    """Psi of the r `[lists, 1]` highest bads above the lowest good."""
    direction = torch.zeros(split.shape, dtype=torch.float64, device=r.device)
    direction.scatter_add_(-1, split.bad_order, (split.rank < r).double())
    lowest = split.good_order.gather(-1, (split.p - 1).clamp(min=0))
    return direction.scatter_add_(-1, lowest, -r.double())
