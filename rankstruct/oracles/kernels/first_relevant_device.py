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
    last_good = (split.p - 1).clamp(min=0)
    lowest = split.good_score.gather(-1, last_good)
    r = torch.arange(size + 1, device=scores.device)
    loss = torch.where(r < parameters.cutoff, 1.0 - 1.0 / (1 + r).double(), 1.0)
    loss[0] = 0.0
    lead = pad_front((split.bad_score - lowest).cumsum(-1))
    total = torch.where((r <= split.m) & (split.p > 0), loss + lead, -math.inf)
    total[:, 0] = 0.0
    value, best_r = total.max(-1, keepdim=True)
    direction = torch.zeros(split.shape, dtype=torch.float64, device=scores.device)
    above = (split.rank < best_r).double()
    direction.scatter_add_(-1, split.bad_order, above)
    direction.scatter_add_(-1, split.good_order.gather(-1, last_good), -best_r.double())
    broken = ~split.finite
    return (
        loss[best_r].squeeze(-1).masked_fill(broken, math.nan),
        value.squeeze(-1).masked_fill(broken, math.nan),
        direction,
    )
