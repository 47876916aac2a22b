"""Most violated rankings under the pairwise feature map, in vectorised torch: padded lists on any device.

The same problems and notation as in pairwise.hpp, without Python loops over lists or reading from the device. Every
function takes `PaddedLists`, `relevant` (bool, `[lists, list_size]`) and the options of its loop, and returns
`(task_loss [lists], value [lists], direction [lists, list_size])` in float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels.dispatch import Answer, PaddedLists


class _Worth(NamedTuple):
    """The credit of relevant documents: `discounts` times `gain` `[lists, 1]`, or if None, precision at their ranks."""

    cutoff: int
    discounts: Tensor | None = None
    gain: Tensor | None = None
    normalized: bool = False


def pad_front(values: Tensor) -> Tensor:
    """A zero in front of the last dimension."""
    return torch.nn.functional.pad(values, (1, 0))


class Split:
    """Relevant and irrelevant documents of each list by descending score, padded to `list_size`, and their positions.

    `reference` is the same for the scores that determine the reference.
    """

    def __init__(self, lists: PaddedLists, relevant: Tensor) -> None:
        scores, where = lists.scores.double(), lists.where
        top = torch.where(where, scores, -math.inf).amax(-1, keepdim=True)
        self.shape = scores.shape
        self.relevant = where & relevant
        self.irrelevant = where & ~relevant
        self.p = self.relevant.sum(-1, keepdim=True)
        self.m = self.irrelevant.sum(-1, keepdim=True)
        self.rank = torch.arange(scores.shape[-1], device=scores.device)
        self.scores = torch.where(where, scores - top, 0.0)
        self.relevant_score, self.relevant_order = self._sorted(self.relevant, self.p)
        self.irrelevant_score, self.irrelevant_order = self._sorted(self.irrelevant, self.m)
        other = (
            None if lists.reference_scores is None else PaddedLists(lists.reference_scores, lists.labels, where, None)
        )
        self.reference: Split = self if other is None else Split(other, relevant)

    def _sorted(self, selected: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        ordered, order = torch.where(selected, self.scores, -math.inf).sort(dim=-1, descending=True, stable=True)
        return torch.where(self.rank < count, ordered, 0.0), order

    def irrelevant_over(self, bound: Tensor) -> Tensor:
        """For each sorted relevant document, how many irrelevant ones score above its `bound`, `[lists, list_size]`."""
        ascending = torch.where(self.rank < self.m, -self.irrelevant_score, math.inf)  # padding last
        bound = torch.where(self.rank < self.p, -bound, math.inf)
        return torch.minimum(torch.searchsorted(ascending, bound), self.m)

    def swapped(self, irrelevant_above: Tensor) -> Tensor:
        """The number of swapped pairs of each document, negative for relevant ones, `[lists, list_size]` float64.

        Entries of `irrelevant_above` after the p relevant documents are ignored.
        """
        # Both counts use the same numbers, so that rounding cannot swap half a pair.
        above = torch.where(self.rank < self.p, irrelevant_above, self.shape[-1] + 1)
        below = self.p - torch.searchsorted(above, self.rank.expand(self.shape).contiguous(), right=True)
        counts = torch.zeros(self.shape, dtype=torch.float64, device=above.device)
        counts.scatter_add_(-1, self.relevant_order, torch.where(self.rank < self.p, -above, 0).double())
        return counts.scatter_add_(-1, self.irrelevant_order, torch.where(self.rank < self.m, below, 0).double())

    def shared(self, direction: Tensor) -> Tensor:
        """The mean over documents with the same label, score and reference score; see `share_among_tied` of binary.hpp."""
        for order, count in ((self.relevant_order, self.p), (self.irrelevant_order, self.m)):
            begins = torch.ones(self.shape, dtype=torch.bool, device=direction.device)
            begins[..., 1:] = self.rank[1:] >= count
            for scores in {id(each): each.scores for each in (self, self.reference)}.values():
                ordered = scores.gather(-1, order)
                begins[..., 1:] |= ordered[..., 1:] != ordered[..., :-1]
            run, its = begins.cumsum(-1) - 1, direction.gather(-1, order)
            total = torch.zeros_like(its).scatter_add_(-1, run, its)
            size = torch.zeros_like(its).scatter_add_(-1, run, torch.ones_like(its))
            mean = (total / size.clamp(min=1)).gather(-1, run)
            direction = direction.scatter(-1, order, mean)
        return direction

    def finish(
        self, irrelevant_above: Tensor, task_loss: Tensor, predicted: bool, can_err: Tensor | None = None
    ) -> Answer:
        """Results from the number of irrelevant documents above each sorted relevant one.

        `can_err` `[lists]` is False for lists that no ranking can get wrong; lists with one kind of document are added.
        """
        counts = self.swapped(irrelevant_above)
        if predicted:
            counts = counts - self.reference.swapped(self.reference.irrelevant_over(self.reference.relevant_score))
        direction = 2.0 / (self.p * self.m).clamp(min=1).double() * counts
        difference = (direction * self.scores).sum(-1)
        both = ((self.p > 0) & (self.m > 0)).squeeze(-1)
        can_err = both if can_err is None else both & can_err
        task_loss = torch.where(can_err, task_loss, 0.0)
        value = torch.where(can_err, (task_loss + difference).clamp(min=0.0), 0.0)
        return task_loss, value, self.shared(direction * can_err.unsqueeze(-1))


def auc_padded(lists: PaddedLists, relevant: Tensor, predicted: bool) -> Answer:
    """AUC (SVMauc): a pair is swapped if its margin is below 1/2; two sorts and a search."""
    split = Split(lists, relevant)
    irrelevant_above = split.irrelevant_over(split.relevant_score - 0.5)
    pairs = (split.p * split.m).clamp(min=1).squeeze(-1).double()
    task_loss = torch.where(split.rank < split.p, irrelevant_above, 0).sum(-1) / pairs
    return split.finish(irrelevant_above, task_loss, predicted)


def _scaled_gain(split: Split, worth: _Worth) -> tuple[Tensor, Tensor]:
    """The gain per unit of discount, and the best value, `[lists, 1]` each; 1 / p and 1 for precision."""
    discounts = worth.discounts
    if discounts is None or worth.gain is None:
        best = split.p.clamp(max=worth.cutoff).double()
        p = split.p.clamp(min=1).double()
        return 1.0 / p, best / p
    total = torch.where(split.rank < split.p, discounts, 0.0).sum(-1, keepdim=True)
    last = discounts[(split.p + split.m - 1).clamp(min=0, max=split.shape[-1] - 1)]
    can_err = (discounts[0] != last) & (total > 0)
    if worth.normalized:
        return torch.where(can_err, 1.0 / total, 0.0), can_err.double()
    return torch.where(can_err, worth.gain, 0.0), torch.where(can_err, worth.gain * total, 0.0)


def _credit(split: Split, worth: _Worth, gain: Tensor, i: Tensor | int, irrelevant_above: Tensor) -> Tensor:
    """The term of relevant i (1-based) in the measure, given the number of irrelevant documents above it; 0 after the cut-off."""
    ranks = i + irrelevant_above
    if worth.discounts is None:
        return torch.where(ranks <= worth.cutoff, gain * i / ranks, 0.0)
    return gain * worth.discounts[(ranks - 1).clamp(max=split.shape[-1] - 1)]


def _finish_measure(split: Split, worth: _Worth, irrelevant_above: Tensor, predicted: bool) -> Answer:
    gain, best = _scaled_gain(split, worth)
    credit = _credit(split, worth, gain, split.rank + 1, torch.minimum(irrelevant_above, split.m))
    measure = torch.where(split.rank < split.p, credit, 0.0).sum(-1)
    return split.finish(irrelevant_above, best.squeeze(-1) - measure, predicted, best.squeeze(-1) > 0)


def precision_padded(lists: PaddedLists, relevant: Tensor, predicted: bool) -> Answer:
    """AP without a cut-off."""
    return _convex_padded(lists, relevant, _Worth(lists.scores.shape[-1]), predicted)


def precision_at_cutoff_padded(lists: PaddedLists, relevant: Tensor, cutoff: int, predicted: bool) -> Answer:
    """AP@k."""
    return _to_cutoff_padded(lists, relevant, _Worth(cutoff), predicted)


def convex_discount_padded(
    lists: PaddedLists,
    relevant: Tensor,
    table: np.ndarray,
    longest: int,
    cutoff: int,
    normalized: bool,
    predicted: bool,
) -> Answer:
    """Discounted gains whose discount is convex."""
    worth, mixed = _discounted(lists, relevant, table, cutoff, normalized)
    return _refused(mixed, _convex_padded(lists, relevant, worth, predicted))


def discount_at_cutoff_padded(
    lists: PaddedLists,
    relevant: Tensor,
    table: np.ndarray,
    longest: int,
    cutoff: int,
    normalized: bool,
    predicted: bool,
) -> Answer:
    """Discounted gains of any discount."""
    worth, mixed = _discounted(lists, relevant, table, cutoff, normalized)
    return _refused(mixed, _to_cutoff_padded(lists, relevant, worth, predicted))


def _discounted(
    lists: PaddedLists, relevant: Tensor, table: np.ndarray, cutoff: int, normalized: bool
) -> tuple[_Worth, Tensor]:
    """Relevance by gain, and the lists with several gains, which the CPU refuses."""
    highest = torch.where(lists.where, lists.labels, 0).amax(-1, keepdim=True)
    mixed = (lists.where & relevant & (lists.labels != highest)).any(-1)
    discounts = torch.as_tensor(table, device=lists.labels.device)
    return _Worth(cutoff, discounts, highest.double(), normalized), mixed


def _refused(lists: Tensor, answer: Answer) -> Answer:
    task_loss, value, direction = answer
    return task_loss.masked_fill(lists, torch.nan), value.masked_fill(lists, torch.nan), direction


def _convex_padded(lists: PaddedLists, relevant: Tensor, worth: _Worth, predicted: bool) -> Answer:
    """AP without a cut-off and convex discounts: monotone divide and conquer, one level at a time for all lists.

    The choices of one level are bracketed by those of the level above, so a list has at most
    p + (irrelevant documents of this level) candidates: O(list_size) memory, O(list_size log list_size) work.
    """
    split = Split(lists, relevant)
    count, size = split.shape
    device = split.rank.device
    if worth.discounts is None:
        inverse = 1.0 / torch.arange(1, size + 1, dtype=torch.float64, device=device)
        level, slope = -pad_front(inverse.cumsum(0)), -pad_front(inverse)
    else:
        level = pad_front(worth.discounts)
        slope = torch.zeros_like(level)
    gain, _ = _scaled_gain(split, worth)
    factor = 0.5 * split.m * split.p * gain
    relevant_sum = pad_front(split.relevant_score.cumsum(-1))

    # above[:, j] for irrelevant j = 1..m; column 0 is the lower bracket of the first, those after m the upper one of the last.
    above = (split.p + 1).expand(count, size + 1).clone()
    above[:, 0] = 1
    stride = 1 << (size.bit_length() - 1)
    while stride >= 1:
        j = torch.arange(stride, size + 1, 2 * stride, device=device)
        low = above[:, j - stride]
        high = above[:, (j + stride).clamp(max=size)]
        high = torch.where(j + stride <= size, high, split.p + 1)
        length = torch.where(j <= split.m, high - low + 1, 0)
        ends = length.cumsum(-1)
        candidate = torch.arange(size + 1 + j.numel(), device=device).expand(count, -1).contiguous()
        segment = torch.searchsorted(ends, candidate, right=True)
        real = segment < j.numel()
        segment = segment.clamp(max=j.numel() - 1)
        k = torch.where(real, (low - ends + length).gather(-1, segment) + candidate, 1)
        its_j = torch.where(real, j[segment], 1)
        r = k + its_j - 1
        found = (
            relevant_sum.gather(-1, k - 1)
            - (k - 1) * split.irrelevant_score.gather(-1, its_j - 1)
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
    irrelevant_above = torch.searchsorted(above, (split.rank + 1).expand(count, -1).contiguous(), right=True)
    return _finish_measure(split, worth, torch.minimum(irrelevant_above, split.m), predicted)


class _OwnOptima:
    """As `OwnOptima` of pairwise.hpp: gains of relevant documents whose credit no longer depends on their rank."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.scale = 2.0 / (split.p * split.m).clamp(min=1).double()
        self.irrelevant_sum = pad_front(split.irrelevant_score.cumsum(-1))
        self.relevant_sum = pad_front(split.relevant_score.cumsum(-1))
        is_relevant = split.rank < split.p
        self.above = torch.where(is_relevant, split.irrelevant_over(split.relevant_score), split.shape[-1] + 1)
        u = torch.minimum(self.above, split.m)
        own = torch.where(is_relevant, self.gain(u, split.relevant_score), 0.0)
        self.own_sum = torch.nn.functional.pad(own.flip(-1).cumsum(-1).flip(-1), (0, 1))

    def gain(self, b: Tensor, score: Tensor) -> Tensor:
        """h(b) of relevant documents with these scores."""
        return self.scale * (self.irrelevant_sum.gather(-1, b) - b * score)

    def tail(self, t: int, b: Tensor) -> Tensor:
        """The gain of the relevant documents after the first t if each takes max(u_i, b), for b `[lists, any]`."""
        b = torch.minimum(b, self.split.m)
        low = torch.minimum(torch.searchsorted(self.above, b), self.split.p).clamp(min=t)
        sums = (low - t) * self.irrelevant_sum.gather(-1, b) - b * (
            self.relevant_sum.gather(-1, low) - self.relevant_sum[:, t : t + 1]
        )
        return self.scale * sums + self.own_sum.gather(-1, low)


def _to_cutoff_padded(lists: PaddedLists, relevant: Tensor, worth: _Worth, predicted: bool) -> Answer:
    """AP@k and discounted gains of any discount: the dynamic program, one row at a time for all lists.

    See `PlaceWithCutoff` in pairwise.hpp. min(k, list_size) steps of O(min(k, list_size)) per list, and as much memory in all.
    """
    split = Split(lists, relevant)
    count, size = split.shape
    device = split.rank.device
    own = _OwnOptima(split)
    gain, _ = _scaled_gain(split, worth)
    k = (split.p + split.m).clamp(max=worth.cutoff)
    rows = min(worth.cutoff, size)
    b = torch.arange(rows + 1, device=device).expand(count, -1)
    table = torch.zeros(count, rows + 1, dtype=torch.float64, device=device)
    best = torch.where(k <= split.m, own.tail(0, k), -math.inf)
    best_t, best_b = torch.zeros_like(k), torch.zeros_like(k)
    origins = []
    for i in range(1, rows + 1):
        running, origin = table.cummax(-1)
        origins.append(origin)
        credit = _credit(split, worth, gain, i, b)
        score = split.relevant_score[:, i - 1 : i]
        table = running + own.gain(torch.minimum(b, split.m), score) - credit
        allowed = (b <= torch.minimum(split.m, k - i)) & (split.p >= i)
        table = torch.where(allowed, table, -math.inf)
        row_best, row_b = table.max(-1, keepdim=True)
        leaves = torch.where(k - i <= split.m, own.tail(i, (k - i).clamp(min=0)), -math.inf)
        total = row_best + torch.where(split.p == i, 0.0, leaves)
        better = total > best
        best = torch.where(better, total, best)
        best_t, best_b = torch.where(better, i, best_t), torch.where(better, row_b, best_b)

    irrelevant_above = torch.maximum(own.above, k - best_t)
    at = best_b
    for i in range(rows, 0, -1):
        inside = best_t >= i
        irrelevant_above[:, i - 1 : i] = torch.where(inside, at, irrelevant_above[:, i - 1 : i])
        at = torch.where(inside, origins[i - 1].gather(-1, at), at)
    return _finish_measure(split, worth, torch.minimum(irrelevant_above, split.m), predicted)


def reciprocal_rank_padded(lists: PaddedLists, relevant: Tensor, cutoff: int, predicted: bool) -> Answer:
    """Reciprocal rank with the pairwise map: every rank of the first relevant document at once."""
    split = Split(lists, relevant)
    own = _OwnOptima(split)
    b = torch.arange(split.shape[1] + 1, device=split.rank.device).expand(split.shape[0], -1).contiguous()
    earned = torch.where(b < cutoff, 1.0 / (1 + b).double(), 0.0)
    possible = (b <= split.m) & (b >= own.above[:, :1])
    total = torch.where(possible, own.tail(0, b) - earned, -math.inf)
    best_b = total.argmax(-1, keepdim=True)
    task_loss = 1.0 - earned.gather(-1, best_b).squeeze(-1)
    return split.finish(torch.minimum(torch.maximum(own.above, best_b), split.m), task_loss, predicted)
