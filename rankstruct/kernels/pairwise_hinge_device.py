"""The pairwise hinge in vectorised torch: the same answers as `pairwise_hinge_cpu`, one round of sorting for each grade."""

from __future__ import annotations

import torch
from torch import Tensor


def hinge_padded(scores: Tensor, labels: Tensor, where: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Mean hinge over all pairs of grades, `[lists]`, and its gradient `[lists, list_size]`, both float64.

    For each grade that occurs, its documents against those of lower grades: both sorted, counted by binary search.
    O(n log n) time a grade, O(n) memory. How many grades there are has to be read back.
    """
    scores = scores.double()
    top = torch.where(where, scores, -torch.inf).amax(-1, keepdim=True)
    scores = torch.where(where, scores - top, 0.0)
    total = scores.new_zeros(scores.shape[0])
    pairs = torch.zeros_like(total)
    direction = torch.zeros_like(scores)
    for grade in labels[where].unique()[1:]:
        higher, lower = where & (labels == grade), where & (labels < grade)
        # Whoever does not take part stands behind all others.
        bounds = torch.where(higher, scores - margin, torch.inf)
        lowers, lower_order = torch.where(lower, scores, torch.inf).sort(dim=-1)
        bounds_sorted = bounds.sort(dim=-1).values
        number = lower.sum(-1, keepdim=True)
        under = torch.searchsorted(lowers, bounds.contiguous(), right=True)
        sums = torch.nn.functional.pad(torch.where(lower, scores, 0.0).gather(-1, lower_order).cumsum(-1), (1, 0))
        above = sums[:, -1:] - sums.gather(-1, under)
        count = torch.where(higher, number - under, 0).double()
        total += torch.where(higher, above - count * torch.where(higher, bounds, 0.0), 0.0).sum(-1)
        highers = torch.searchsorted(bounds_sorted, torch.where(lower, scores, -torch.inf), right=False)
        direction += torch.where(lower, highers, 0).double() - count
        pairs += higher.sum(-1).double() * lower.sum(-1)
    pairs = pairs.clamp(min=1)
    return total.clamp(min=0) / pairs, direction / pairs.unsqueeze(-1)
