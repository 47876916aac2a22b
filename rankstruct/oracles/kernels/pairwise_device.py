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

from rankstruct.oracles.kernels import Answer, Parameters


def pad_front(values: Tensor) -> Tensor:
    """A zero in front of the last dimension."""
    return torch.nn.functional.pad(values, (1, 0))


class Split:
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

    def bads_over(self, bound: Tensor) -> Tensor:
        """For each sorted good, how many bads score above its `bound`, `[lists, list_size]`."""
        bads = torch.where(self.rank < self.m, -self.bad_score, math.inf)  # ascending; padding behind everything
        bound = torch.where(self.rank < self.p, -bound, math.inf)
        return torch.minimum(torch.searchsorted(bads, bound), self.m)

    def nothing(self) -> Answer:
        """The results where there are no lists, or only empty ones."""
        zero = torch.zeros(self.shape[:1], dtype=torch.float64, device=self.p.device)
        return zero, zero.clone(), torch.zeros(self.shape, dtype=torch.float64, device=self.p.device)

    def finish(self, bads_above: Tensor, task_loss: Tensor, proper: Tensor | None = None) -> Answer:
        """Results from the number of bads above each sorted good (what stands behind the p goods is ignored).

        `proper` `[lists]` is False for lists that no ranking can get wrong, beside those with one kind of document.
        """
        # Goods below a bad are counted from the same numbers, so that rounding cannot swap half a pair.
        bads_above = torch.where(self.rank < self.p, bads_above, self.shape[-1] + 1)
        goods_below = self.p - torch.searchsorted(bads_above, self.rank.expand(self.shape).contiguous(), right=True)
        scale = 2.0 / (self.p * self.m).clamp(min=1).double()
        of_good = torch.where(self.rank < self.p, 0.0 - scale * bads_above, 0.0)
        of_bad = torch.where(self.rank < self.m, scale * goods_below, 0.0)
        difference = (of_good * self.good_score + of_bad * self.bad_score).sum(-1)
        direction = torch.zeros(self.shape, dtype=torch.float64, device=of_good.device)
        direction.scatter_add_(-1, self.good_order, of_good).scatter_add_(-1, self.bad_order, of_bad)
        both = ((self.p > 0) & (self.m > 0)).squeeze(-1)
        proper = both if proper is None else both & proper
        task_loss = torch.where(proper, task_loss, 0.0)
        value = torch.where(proper, (task_loss + difference).clamp(min=0.0), 0.0)
        broken = ~self.finite
        return (
            task_loss.masked_fill(broken, math.nan),
            value.masked_fill(broken, math.nan),
            direction * proper.unsqueeze(-1),
        )


def auc_padded(scores: Tensor, relevant: Tensor, where: Tensor, parameters: Parameters) -> Answer:
    """AUC (SVMauc): a pair is swapped iff its margin is under 1/2; two sorts and a search."""
    split = Split(scores, relevant, where)
    bads_above = split.bads_over(split.good_score - 0.5)
    pairs = (split.p * split.m).clamp(min=1).squeeze(-1).double()
    task_loss = torch.where(split.rank < split.p, bads_above, 0).sum(-1) / pairs
    return split.finish(bads_above, task_loss)


def by_score_padded(scores: Tensor, relevant: Tensor, where: Tensor, parameters: Parameters) -> Answer:
    """The ranking that F prefers, by score with goods first among ties, as if it lost nothing."""
    split = Split(scores, relevant, where)
    bads_above = split.bads_over(split.good_score)
    nothing = torch.zeros(split.shape[:1], dtype=torch.float64, device=scores.device)
    return split.finish(bads_above, nothing, proper=_can_err(split, parameters).squeeze(-1))


def _can_err(split: Split, parameters: Parameters) -> Tensor:
    """Whether the discounts of a list's ranks differ at all, `[lists, 1]`; True for measures without a discount."""
    weights = parameters.weights
    if len(weights) == 0:
        return torch.ones_like(split.p, dtype=torch.bool)
    return weights[0] != weights[(split.p + split.m - 1).clamp(min=0, max=split.shape[-1] - 1)]


def _scaled_gain(split: Split, parameters: Parameters) -> tuple[Tensor, Tensor]:
    """As `pairwise_cpu.scaled_gain`, `[lists, 1]` each; for measures without a discount 1 / p and 1."""
    weights = parameters.weights
    if len(weights) == 0:
        best = split.p.clamp(max=parameters.cutoff).double()
        p = split.p.clamp(min=1).double()
        return 1.0 / p, best / p
    total = torch.where(split.rank < split.p, weights, 0.0).sum(-1, keepdim=True)
    proper = _can_err(split, parameters) & (total > 0)
    if parameters.normalized:
        return torch.where(proper, 1.0 / total, 0.0), proper.double()
    return torch.where(proper, parameters.gains, 0.0), torch.where(proper, parameters.gains * total, 0.0)


def _credit(split: Split, parameters: Parameters, gain: Tensor, i: Tensor | int, bads_above: Tensor) -> Tensor:
    """What good i (1-based) adds to the measure with so many bads above it, cut-off included."""
    ranks = i + bads_above
    if len(parameters.weights) == 0:
        return torch.where(ranks <= parameters.cutoff, gain * i / ranks, 0.0)
    return gain * parameters.weights[(ranks - 1).clamp(max=split.shape[-1] - 1)]


def _finish_measure(split: Split, parameters: Parameters, bads_above: Tensor) -> Answer:
    gain, best = _scaled_gain(split, parameters)
    credit = _credit(split, parameters, gain, split.rank + 1, torch.minimum(bads_above, split.m))
    measure = torch.where(split.rank < split.p, credit, 0.0).sum(-1)
    return split.finish(bads_above, best.squeeze(-1) - measure, proper=best.squeeze(-1) > 0)


def convex_padded(scores: Tensor, relevant: Tensor, where: Tensor, parameters: Parameters) -> Answer:
    """AP without a cut-off and convex discounts: monotone divide and conquer, a level at a time for all lists at once.

    The choices of one level are bracketed by those above it, so all their candidates together are at most
    p + (bads of this level) a list: O(list_size) memory, O(list_size log list_size) work.
    """
    split = Split(scores, relevant, where)
    lists, size = split.shape
    if lists == 0 or size == 0:
        return split.nothing()
    device = scores.device
    if len(parameters.weights) == 0:
        inverse = 1.0 / torch.arange(1, size + 1, dtype=torch.float64, device=device)
        level, slope = -pad_front(inverse.cumsum(0)), -pad_front(inverse)
    else:
        level = pad_front(parameters.weights)
        slope = torch.zeros_like(level)
    gain, _ = _scaled_gain(split, parameters)
    factor = 0.5 * split.m * split.p * gain
    good_sum = pad_front(split.good_score.cumsum(-1))

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
        found = (
            good_sum.gather(-1, k - 1)
            - (k - 1) * split.bad_score.gather(-1, its_j - 1)
            + factor * (level[r] + (its_j - 1) * slope[r])
        )
        found = torch.where(real, found, -math.inf)
        best = torch.full(length.shape, -math.inf, dtype=found.dtype, device=device)
        best.scatter_reduce_(-1, segment, found, "amax")
        first = torch.where(real & (found == best.gather(-1, segment)), k, size + 2)
        choice = torch.full_like(length, size + 2).scatter_reduce_(-1, segment, first, "amin")
        above[:, j] = torch.where(j <= split.m, torch.minimum(choice, split.p + 1), split.p + 1)
        stride //= 2

    above = above[:, 1:].contiguous()
    bads_above = torch.searchsorted(above, (split.rank + 1).expand(lists, -1).contiguous(), right=True)
    return _finish_measure(split, parameters, torch.minimum(bads_above, split.m))


class _OwnOptima:
    """As `pairwise_cpu._own_optima` and `_tail`: what goods gain whose credit no longer depends on their rank."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.scale = 2.0 / (split.p * split.m).clamp(min=1).double()
        self.bad_sum = pad_front(split.bad_score.cumsum(-1))
        self.good_sum = pad_front(split.good_score.cumsum(-1))
        is_good = split.rank < split.p
        self.bads = torch.where(is_good, split.bads_over(split.good_score), split.shape[-1] + 1)
        u = torch.minimum(self.bads, split.m)
        own = torch.where(is_good, self.gain(u, split.good_score), 0.0)
        self.own_sum = torch.nn.functional.pad(own.flip(-1).cumsum(-1).flip(-1), (0, 1))

    def gain(self, b: Tensor, score: Tensor) -> Tensor:
        """h(b) of goods with these scores."""
        return self.scale * (self.bad_sum.gather(-1, b) - b * score)

    def tail(self, t: int, b: Tensor) -> Tensor:
        """What the goods behind the first t gain when each takes max(u_i, b), for b `[lists, any]`."""
        b = torch.minimum(b, self.split.m)
        low = torch.minimum(torch.searchsorted(self.bads, b), self.split.p).clamp(min=t)
        sums = (low - t) * self.bad_sum.gather(-1, b) - b * (
            self.good_sum.gather(-1, low) - self.good_sum[:, t : t + 1]
        )
        return self.scale * sums + self.own_sum.gather(-1, low)


def programme_padded(scores: Tensor, relevant: Tensor, where: Tensor, parameters: Parameters) -> Answer:
    """AP@k and discounted gains of any discount: the running-maximum programme, a row at a time for all lists at once.

    See `pairwise_cpu.programme_lists`. min(k, list_size) steps of O(min(k, list_size)) a list, as much memory together.
    """
    split = Split(scores, relevant, where)
    lists, size = split.shape
    if lists == 0 or size == 0:
        return split.nothing()
    device = scores.device
    goods = _OwnOptima(split)
    gain, _ = _scaled_gain(split, parameters)
    k = (split.p + split.m).clamp(max=parameters.cutoff)
    rows = min(parameters.cutoff, size)
    b = torch.arange(rows + 1, device=device).expand(lists, -1)
    table = torch.zeros(lists, rows + 1, dtype=torch.float64, device=device)
    best = torch.where(k <= split.m, goods.tail(0, k), -math.inf)
    best_t, best_b = torch.zeros_like(k), torch.zeros_like(k)
    origins = []
    for i in range(1, rows + 1):
        running, origin = table.cummax(-1)
        origins.append(origin)
        credit = _credit(split, parameters, gain, i, b)
        score = split.good_score[:, i - 1 : i]
        table = running + goods.gain(torch.minimum(b, split.m), score) - credit
        allowed = (b <= torch.minimum(split.m, k - i)) & (split.p >= i)
        table = torch.where(allowed, table, -math.inf)
        row_best, row_b = table.max(-1, keepdim=True)
        leaves = torch.where(k - i <= split.m, goods.tail(i, (k - i).clamp(min=0)), -math.inf)
        total = row_best + torch.where(split.p == i, 0.0, leaves)
        better = total > best
        best = torch.where(better, total, best)
        best_t, best_b = torch.where(better, i, best_t), torch.where(better, row_b, best_b)

    bads_above = torch.maximum(goods.bads, k - best_t)
    at = best_b
    for i in range(rows, 0, -1):
        inside = best_t >= i
        bads_above[:, i - 1 : i] = torch.where(inside, at, bads_above[:, i - 1 : i])
        at = torch.where(inside, origins[i - 1].gather(-1, at), at)
    return _finish_measure(split, parameters, torch.minimum(bads_above, split.m))


def reciprocal_rank_padded(scores: Tensor, relevant: Tensor, where: Tensor, parameters: Parameters) -> Answer:
    """Reciprocal rank with the pairwise map: every rank of the first good at once."""
    split = Split(scores, relevant, where)
    if split.shape[0] == 0 or split.shape[1] == 0:
        return split.nothing()
    goods = _OwnOptima(split)
    b = torch.arange(split.shape[1] + 1, device=scores.device).expand(split.shape[0], -1).contiguous()
    earned = torch.where(b < parameters.cutoff, 1.0 / (1 + b).double(), 0.0)
    possible = (b <= split.m) & (b >= goods.bads[:, :1])
    total = torch.where(possible, goods.tail(0, b) - earned, -math.inf)
    best_b = total.argmax(-1, keepdim=True)
    task_loss = 1.0 - earned.gather(-1, best_b).squeeze(-1)
    return split.finish(torch.minimum(torch.maximum(goods.bads, best_b), split.m), task_loss)
