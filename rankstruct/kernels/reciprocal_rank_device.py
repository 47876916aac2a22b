"""Most violated rankings under the first-relevant feature map, in vectorised torch; see `pairwise_device`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rankstruct.kernels.dispatch import Answer, PaddedLists
from rankstruct.kernels.pairwise_device import Split, pad_front


def reciprocal_rank_padded(lists: PaddedLists, relevant: Tensor, cutoff: int, predicted: bool) -> Answer:
    """Reciprocal rank (SVMmrr): every number r of irrelevant documents above the lowest relevant one at once."""
    split = Split(lists, relevant)
    r = torch.arange(split.shape[1] + 1, device=split.rank.device)
    loss = torch.where(r < cutoff, 1.0 - 1.0 / (1 + r).double(), 1.0)
    loss[0] = 0.0
    lead = pad_front((split.irrelevant_score - _lowest(split)).cumsum(-1))
    total = torch.where((r <= split.m) & (split.p > 0), loss + lead, -math.inf)
    total[:, 0] = 0.0
    value, best_r = total.max(-1, keepdim=True)
    task_loss, value, direction = loss[best_r].squeeze(-1), value.squeeze(-1), _direction(split, best_r)
    if predicted:
        # The predicted ranking has the irrelevant documents that score above the lowest relevant one, then that one.
        other = split.reference
        above = (other.rank < other.m) & (other.irrelevant_score > _lowest(other)) & (other.p > 0)
        direction = direction - _direction(other, above.sum(-1, keepdim=True))
        value = (task_loss + (direction * split.scores).sum(-1)).clamp(min=0.0)
    return task_loss, value, split.shared(direction)


def _lowest(split: Split) -> Tensor:
    """The score of the lowest relevant document, `[lists, 1]`."""
    return split.relevant_score.gather(-1, (split.p - 1).clamp(min=0))


def _direction(split: Split, r: Tensor) -> Tensor:
    """Psi of the r `[lists, 1]` highest irrelevant documents above the lowest relevant one."""
    direction = torch.zeros(split.shape, dtype=torch.float64, device=r.device)
    direction.scatter_add_(-1, split.irrelevant_order, (split.rank < r).double())
    lowest = split.relevant_order.gather(-1, (split.p - 1).clamp(min=0))
    return direction.scatter_add_(-1, lowest, -r.double())
