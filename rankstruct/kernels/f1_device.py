"""Most violated labellings, in vectorised torch; see f1.hpp.

The most violated labelling with k positive documents contains the a highest relevant and the k - a highest irrelevant ones. For
fixed k the measures are linear in a:

    measure(a, k) = slope(k) a + level(k),   slope(k) never increasing with k

except success, which is 1 for a >= 1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankstruct.kernels.dispatch import Answer, PaddedLists
from rankstruct.kernels.pairwise_device import Split, pad_front

PRECISION, RECALL, SUCCESS, F, ACCURACY, BREAK_EVEN = range(6)
"""The measures, by number."""


class Table(NamedTuple):
    """The options of the kernel.

    Attributes:
        kind: the number of the measure.
        cutoff: the number of positive documents; 0 for any number, or the number of relevant documents for `BREAK_EVEN`.
        beta: the parameter of F.
        reference: 0, the ideal one by input order; 1, the ideal one with the highest score; 2, the predicted one.
    """

    kind: int
    cutoff: int
    beta: float
    reference: int


class _Labellings:
    """Labellings of the documents of one split; tensors are `[lists, 1]` unless stated otherwise."""

    def __init__(self, split: Split, scores: Tensor, where: Tensor, table: Table) -> None:
        self.split, self.table = split, table
        self.free = table.cutoff == 0 and table.kind != BREAK_EVEN
        self.p, self.m = split.p, split.m
        self.n = self.p + self.m
        top = torch.where(where, scores.double(), -math.inf).amax(-1, keepdim=True)
        self.zero = torch.where(self.n > 0, -top, 0.0) if self.free else torch.zeros_like(top)
        if self.free:
            self.k = split.rank.new_tensor(range(split.shape[-1] + 1)).expand(split.shape[0], -1)
        else:
            self.k = self.p if table.kind == BREAK_EVEN else self.n.clamp(max=table.cutoff)
        self.relevant_sum = pad_front((split.relevant_score - self.zero).cumsum(-1))
        self.irrelevant_sum = pad_front((split.irrelevant_score - self.zero).cumsum(-1))

    def slope(self, k: Tensor) -> Tensor:
        """The increase of the measure per relevant document among k positive ones."""
        kind, p = self.table.kind, self.p.clamp(min=1).double()
        if kind == PRECISION:
            return torch.full_like(p, 1.0 / self.table.cutoff).expand(k.shape)
        if kind == F:
            return (1 + self.table.beta**2) / (k + self.table.beta**2 * p)
        if kind == ACCURACY:
            return (2.0 / self.n.clamp(min=1).double()).expand(k.shape)
        return torch.zeros(k.shape, dtype=p.dtype, device=p.device) if kind == SUCCESS else (1 / p).expand(k.shape)

    def measure(self, a: Tensor, k: Tensor) -> Tensor:
        """The measure of labellings."""
        if self.table.kind == SUCCESS:
            return (a > 0).double()
        level = (self.m - k) / self.n.clamp(min=1).double() if self.table.kind == ACCURACY else 0.0
        return self.slope(k) * a + level

    def best(self, least: int, weighed: bool) -> tuple[Tensor, Tensor]:
        """The best a >= `least` and k by score, with or without the measure."""
        k = self.k
        low = (k - self.m).clamp(min=least)
        high = torch.maximum(torch.minimum(self.p, k), low)
        slope = self.slope(k) if weighed else 0.0
        for _ in range(self.split.shape[-1].bit_length() + 1):
            middle = (low + high) // 2
            gain = self._at(self.split.relevant_score, middle) - slope
            gain = gain - self._at(self.split.irrelevant_score, k - middle - 1)
            more = ((gain > 0) | (not weighed) & (gain == 0)) & (middle < high)
            low, high = torch.where(more, middle + 1, low), torch.where(more, high, middle)
        found = self._at(self.relevant_sum, low) + self._at(self.irrelevant_sum, k - low)
        found = torch.where(k <= self.n, found - (self.measure(low, k) if weighed else 0.0), -math.inf)
        at = found.argmax(-1, keepdim=True)
        return low.gather(-1, at), k.gather(-1, at)

    def most_violated(self) -> tuple[Tensor, Tensor]:
        """The a and k of the most violated labelling."""
        if self.table.kind != SUCCESS:
            return self.best(0, True)
        a, k = self.best(1, False)
        lead = 1 + self._at(self.irrelevant_sum, k) - self._at(self.irrelevant_sum, k - a)
        return torch.where(lead > self._at(self.relevant_sum, a), 0, a), k

    @staticmethod
    def _at(values: Tensor, place: Tensor) -> Tensor:
        return values.gather(-1, place.clamp(0, values.shape[-1] - 1))

    def psi(self, a: Tensor, k: Tensor) -> Tensor:
        """Which documents are positive, `[lists, list_size]`."""
        split = self.split
        psi = torch.zeros(split.shape, dtype=torch.float64, device=split.rank.device)
        psi.scatter_add_(-1, split.relevant_order, ((split.rank < a) & (split.rank < self.p)).double())
        return psi.scatter_add_(-1, split.irrelevant_order, ((split.rank < k - a) & (split.rank < self.m)).double())

    def can_err(self) -> Tensor:
        """The lists that a labelling can get wrong."""
        if self.table.kind == ACCURACY:
            return self.n > 0
        if self.free:
            return self.p > 0
        least = self.k if self.table.kind == SUCCESS else 1
        return (self.p > 0) & (self.m >= least) & (self.m > 0) & (self.k < self.n)


def contingency_padded(lists: PaddedLists, relevant: Tensor, *options: Any) -> Answer:
    """Measures of a contingency table: every number of positive documents at once, by bisection. Takes the fields of `Table`."""
    table = Table(*options)
    split = Split(lists, relevant)
    labellings = _Labellings(split, lists.scores, lists.where, table)
    reference = lists.scores if lists.reference_scores is None else lists.reference_scores
    other = _Labellings(split.reference, reference, lists.where, table)
    a, k = labellings.most_violated()
    size = labellings.p if labellings.free else labellings.k
    hits = torch.minimum(labellings.p, size)
    if table.reference == 0:
        first = (split.relevant.cumsum(-1) <= hits) & split.relevant
        reference = (first | ((split.irrelevant.cumsum(-1) <= size - hits) & split.irrelevant)).double()
    elif table.reference == 1 and table.kind != SUCCESS:
        reference = other.psi(hits, size)
    else:
        reference = other.psi(*other.best(int(table.reference == 1), False))
    can_err = labellings.can_err()
    direction = torch.where(can_err, labellings.psi(a, k) - reference, 0.0)
    task_loss = torch.where(can_err, labellings.measure(hits, size) - labellings.measure(a, k), 0.0).squeeze(-1)
    difference = (direction * torch.where(lists.where, split.scores - labellings.zero, 0.0)).sum(-1)
    direction = split.shared(direction) if table.reference else direction
    return task_loss, (task_loss + difference).clamp(min=0.0), direction
