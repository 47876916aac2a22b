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
        good, bad = where & (labels == grade), where & (labels < grade)
        # Whoever does not take part stands behind all others.
        bounds = torch.where(good, scores - margin, torch.inf)
        bads, bad_order = torch.where(bad, scores, torch.inf).sort(dim=-1)
        bounds_sorted = bounds.sort(dim=-1).values
        number = bad.sum(-1, keepdim=True)
        under = torch.searchsorted(bads, bounds.contiguous(), right=True)
        sums = torch.nn.functional.pad(torch.where(bad, scores, 0.0).gather(-1, bad_order).cumsum(-1), (1, 0))
        above = sums[:, -1:] - sums.gather(-1, under)
        count = torch.where(good, number - under, 0).double()
        total += torch.where(good, above - count * torch.where(good, bounds, 0.0), 0.0).sum(-1)
        goods = torch.searchsorted(bounds_sorted, torch.where(bad, scores, -torch.inf), right=False)
        direction += torch.where(bad, goods, 0).double() - count
        pairs += good.sum(-1).double() * bad.sum(-1)
    pairs = pairs.clamp(min=1)
    return total.clamp(min=0) / pairs, direction / pairs.unsqueeze(-1)
