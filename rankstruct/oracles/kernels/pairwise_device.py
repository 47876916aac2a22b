"""Most violated rankings under the pairwise feature map, in vectorised torch: padded lists on any device.

The twins of `pairwise_cpu`: same problem, same notation, no Python loop over lists and nothing read back from the
device. Every function takes `scores` `[lists, list_size]`, `relevant` and `where` (bool, same shape) and returns
`(task_loss [lists], value [lists], direction [lists, list_size])` in float64. A list that holds a score that is not
finite gets NaN for its loss and value: reading the device to raise an error would stall it at every step.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


class _Split:
    """Goods and bads of each list by descending score, padded to `list_size`, and the way back."""

    def __init__(self, scores: Tensor, relevant: Tensor, where: Tensor) -> None:
        scores = scores.double()
        self.finite = (torch.isfinite(scores) | ~where).all(-1)
        scores = torch.where(where & torch.isfinite(scores), scores, 0.0)
        top = torch.where(where, scores, -math.inf).amax(-1, keepdim=True) if scores.shape[-1] else scores
        self.shape = scores.shape
        self.good = where & relevant
        self.bad = where & ~relevant
        self.p = self.good.sum(-1, keepdim=True)
        self.m = self.bad.sum(-1, keepdim=True)
        self.rank = torch.arange(scores.shape[-1], device=scores.device)
        self.good_score, self.good_order = self._sorted(scores - top, self.good, self.p)
        self.bad_score, self.bad_order = self._sorted(scores - top, self.bad, self.m)

    def _sorted(self, scores: Tensor, chosen: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        ordered, order = torch.where(chosen, scores, -math.inf).sort(dim=-1, descending=True)
        return torch.where(self.rank < count, ordered, 0.0), order

    def finish(self, bads_above: Tensor, task_loss: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Results from the number of bads above each sorted good (what stands behind the p goods is ignored)."""
        # Goods below a bad are counted from the same numbers, so that rounding cannot swap half a pair.
        bads_above = torch.where(self.rank < self.p, bads_above, self.shape[-1] + 1)
        goods_below = self.p - torch.searchsorted(bads_above, self.rank.expand(self.shape).contiguous(), right=True)
        scale = 2.0 / (self.p * self.m).clamp(min=1).double()
        of_good = torch.where(self.rank < self.p, 0.0 - scale * bads_above, 0.0)
        of_bad = torch.where(self.rank < self.m, scale * goods_below, 0.0)
        difference = (of_good * self.good_score + of_bad * self.bad_score).sum(-1)
        direction = torch.zeros(self.shape, dtype=torch.float64, device=of_good.device)
        direction.scatter_add_(-1, self.good_order, of_good).scatter_add_(-1, self.bad_order, of_bad)
        proper = ((self.p > 0) & (self.m > 0)).squeeze(-1)
        task_loss = torch.where(proper, task_loss, 0.0)
        value = torch.where(proper, (task_loss + difference).clamp(min=0.0), 0.0)
        broken = ~self.finite
        return (
            task_loss.masked_fill(broken, math.nan),
            value.masked_fill(broken, math.nan),
            direction * proper.unsqueeze(-1),
        )


def auc_padded(scores: Tensor, relevant: Tensor, where: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """AUC (SVMauc): a pair is swapped iff its margin is under 1/2; two sorts and a search."""
    split = _Split(scores, relevant, where)
    # Searching needs ascending order, and padding that stands behind everything.
    goods = torch.where(split.rank < split.p, -split.good_score, math.inf)
    bads = torch.where(split.rank < split.m, -split.bad_score, math.inf)
    bads_above = torch.searchsorted(bads, goods + 0.5, right=False).clamp(max=split.m)
    pairs = (split.p * split.m).clamp(min=1).squeeze(-1).double()
    task_loss = torch.where(split.rank < split.p, bads_above, 0).sum(-1) / pairs
    return split.finish(bads_above, task_loss)


def average_precision_padded(scores: Tensor, relevant: Tensor, where: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Average precision (SVMmap): monotone divide and conquer, a level at a time for all lists and bads at once.

    The choices of one level are bracketed by those above it, so all their candidates together are at most
    p + (bads of this level) a list: O(list_size) memory, O(list_size log list_size) work.
    """
    split = _Split(scores, relevant, where)
    lists, size = split.shape
    device = scores.device
    if lists == 0 or size == 0:
        zero = torch.zeros(lists, dtype=torch.float64, device=device)
        return split.finish(torch.zeros(split.shape, dtype=torch.int64, device=device), zero)
    inverse = 1.0 / torch.arange(1, size + 1, dtype=torch.float64, device=device)
    harmonic = torch.nn.functional.pad(inverse.cumsum(0), (1, 0))
    inverse = torch.nn.functional.pad(inverse, (1, 0))
    good_sum = torch.nn.functional.pad(split.good_score.cumsum(-1), (1, 0))
    half = 0.5 * split.m

    # above[:, j] for bads j = 1..m; column 0 is the bracket below the first bad, those behind m the one above the last.
    above = (split.p + 1).expand(lists, size + 1).clone()
    above[:, 0] = 1
    stride = 1 << (size.bit_length() - 1)
    while stride >= 1:
        j = torch.arange(stride, size + 1, 2 * stride, device=device)
        low = above[:, j - stride]
        high = above[:, (j + stride).clamp(max=size)]
        high = torch.where(j + stride <= size, high, split.p + 1)
        length = torch.where(j <= split.m, high - low + 1, 0)
        ends = length.cumsum(-1)
        candidate = torch.arange(size + 1 + j.numel(), device=device).expand(lists, -1).contiguous()
        segment = torch.searchsorted(ends, candidate, right=True)
        real = segment < j.numel()
        segment = segment.clamp(max=j.numel() - 1)
        k = torch.where(real, (low - ends + length).gather(-1, segment) + candidate, 1)
        its_j = torch.where(real, j[segment], 1)
        r = k + its_j - 1
        gain = (
            good_sum.gather(-1, k - 1)
            - (k - 1) * split.bad_score.gather(-1, its_j - 1)
            - half * (harmonic[r] + (its_j - 1) * inverse[r])
        )
        gain = torch.where(real, gain, -math.inf)
        best = torch.full(length.shape, -math.inf, dtype=gain.dtype, device=device)
        best.scatter_reduce_(-1, segment, gain, "amax")
        first = torch.where(real & (gain == best.gather(-1, segment)), k, size + 2)
        choice = torch.full_like(length, size + 2).scatter_reduce_(-1, segment, first, "amin")
        above[:, j] = torch.where(j <= split.m, torch.minimum(choice, split.p + 1), split.p + 1)
        stride //= 2

    above = above[:, 1:].contiguous()
    bads_above = torch.searchsorted(above, (split.rank + 1).expand(lists, -1).contiguous(), right=True)
    bads_above = torch.minimum(bads_above, split.m)
    precision = (split.rank + 1).double() / (split.rank + 1 + bads_above)
    precision = torch.where(split.rank < split.p, precision, 0.0).sum(-1)
    task_loss = 1.0 - precision / split.p.clamp(min=1).squeeze(-1)
    return split.finish(bads_above, task_loss)
