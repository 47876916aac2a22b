"""Most violated rankings of a partial ROC area, in vectorised torch; see partial_auc.hpp for the notation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rankstruct.kernels.dispatch import Answer, PaddedLists
from rankstruct.kernels.pairwise_device import Split, pad_front


class Window(NamedTuple):
    """The options of the kernel.

    Attributes:
        low, high: the false positive rates.
        min_tpr: the lowest true positive rate.
        restricted: whether the feature map is the partial pairwise one, not the pairwise one.
        predicted: whether the reference is the ranking by reference scores, not the ideal one.
        below: whether the reference is the most violated ranking of the area below `low`, under the restricted map.
    """

    low: float
    high: float
    min_tpr: float
    restricted: bool
    predicted: bool
    below: bool


class _Cells:
    """The window of each list and sums over the first cells; tensors are `[lists, 1]` unless stated otherwise."""

    def __init__(self, split: Split, window: Window) -> None:
        self.split, self.restricted = split, window.restricted
        p, m = split.p.double(), split.m.double()
        self.low, self.high, self.skipped = window.low * m, window.high * m, window.min_tpr * p
        self.whole, self.rest = (self.high - self.low).clamp(min=1e-300), (p - self.skipped).clamp(min=1e-300)
        self.end = self.high if window.restricted else m
        self.last = self.end.ceil().long()
        self.start = torch.where(self.low > 0, self.low.floor() + 1, 0.0).long()
        lift = 0.5 * self.high / self.whole if window.restricted else 0.5 * p * m / (self.rest * self.whole)
        # For each relevant document, [lists, list_size].
        self.weight = torch.where(split.rank < split.p, (split.rank + 1 - self.skipped).clamp(0.0, 1.0), 0.0)
        self.raised = lift.expand(split.shape) if window.restricted else self.weight * lift
        self.sums = pad_front(split.irrelevant_score.cumsum(-1))

    def inside(self, b: Tensor) -> Tensor:
        """W(b), `[lists, list_size]`."""
        return torch.minimum(torch.maximum(b.double(), self.low), self.high) - self.low

    def gain(self, b: Tensor) -> Tensor:
        """The gain of each relevant document with b `[lists, list_size]` irrelevant ones above it."""
        cells = torch.minimum(b.double(), self.end)
        whole = cells.floor().long()
        part = (cells - whole) * self._score(whole)
        score = self.sums.gather(-1, whole) + part - cells * self.split.relevant_score
        return self.raised * self.inside(b) + score

    def _score(self, cell: Tensor) -> Tensor:
        return self.split.irrelevant_score.gather(-1, cell.clamp(max=self.split.shape[-1] - 1))

    def best_inside(self) -> Tensor:
        """The best b of each relevant document that is not before the first cell of the window."""
        split, score = self.split, self.split.relevant_score
        lifted = split.irrelevant_over(score - self.raised)
        if self.restricted:
            return torch.maximum(torch.minimum(lifted, self.last), self.start)
        whole = self.high.floor().long()
        found = torch.minimum(lifted, whole)
        # The cell in which the window ends, and those after it.
        cut = self._score(whole.expand(split.shape)) + self.raised * (self.high - whole) > score
        behind = torch.maximum(split.irrelevant_over(score), whole + 1)
        found = torch.where((found == whole) & cut & (whole < split.m), behind, found)
        return torch.maximum(torch.minimum(found, split.m), self.start)

    def place(self) -> Tensor:
        """The number of irrelevant documents above each relevant one in the most violated ranking, `[lists, list_size]`."""
        inside = self.best_inside()
        before = torch.minimum(self.split.irrelevant_over(self.split.relevant_score), (self.start - 1).clamp(min=0))
        best = torch.where((self.start > 0) & (self.gain(inside) <= self.gain(before)), before, inside)
        if self.restricted:
            best = torch.where(self.weight > 0, best, 0)
        return torch.where(self.split.rank < self.split.p, best, 0).cummax(-1).values

    def place_from_start(self, split: Split, end: Tensor) -> tuple[Tensor, Tensor]:
        """`place` for the documents of `split` in the window of the first `end` cells, and the sum of v_i W(b_i) `[lists]`."""
        above = torch.minimum(split.irrelevant_over(split.relevant_score - 0.5), end.ceil().long())
        return above, (self.weight * torch.minimum(above.double(), end)).sum(-1)

    def psi(self, split: Split, above: Tensor, end: Tensor) -> Tensor:
        """Psi of a ranking of `split` under the restricted map, of the first `end` cells, not divided by their number."""
        cells = (torch.minimum(split.rank + 1.0, end) - split.rank).clamp(min=0.0)
        above = torch.where(split.rank < split.p, above, split.shape[-1] + 1)
        behind = torch.searchsorted(above, split.rank.expand(split.shape).contiguous(), right=True)
        weight = split.p - torch.maximum(self.skipped, behind.double())
        psi = torch.zeros(split.shape, dtype=torch.float64, device=split.rank.device)
        its_own = self.weight * torch.minimum(above.double(), end)
        psi.scatter_add_(-1, split.relevant_order, torch.where(split.rank < split.p, -its_own, 0.0))
        psi.scatter_add_(-1, split.irrelevant_order, torch.where(split.rank < split.m, cells * weight, 0.0))
        return psi * (2.0 / self.rest)


def partial_area_padded(
    lists: PaddedLists, relevant: Tensor, low: float, high: float, min_tpr: float, predicted: bool
) -> Answer:
    """Partial ROC area (SVMpAUC) under the pairwise map."""
    return _solve(lists, relevant, Window(low, high, min_tpr, False, predicted, False))


def partial_area_of_window_padded(
    lists: PaddedLists, relevant: Tensor, low: float, high: float, min_tpr: float, predicted: bool, below: bool
) -> Answer:
    """Partial ROC area under the partial pairwise map."""
    return _solve(lists, relevant, Window(low, high, min_tpr, True, predicted, below))


def _solve(lists: PaddedLists, relevant: Tensor, window: Window) -> Answer:
    """The solution, by two sorts and searches."""
    split = Split(lists, relevant)
    cells, other = _Cells(split, window), split.reference
    if window.below:
        above, missed = cells.place_from_start(split, cells.high)
        below, missed_below = cells.place_from_start(other, cells.low)
        task_loss = (missed - missed_below) / (cells.whole * cells.rest).squeeze(-1)
        direction = (cells.psi(split, above, cells.high) - cells.psi(other, below, cells.low)) / cells.whole
    else:
        above = cells.place()
        task_loss = (cells.weight * cells.inside(above)).sum(-1) / (cells.whole * cells.rest).squeeze(-1)
        if not window.restricted:
            return split.finish(above, task_loss, window.predicted)
        direction = cells.psi(split, above, cells.high)
        if window.predicted:
            direction = direction - cells.psi(other, other.irrelevant_over(other.relevant_score), cells.high)
        direction = direction / cells.high.clamp(min=1e-300)
    can_err = (split.p > 0) & (split.m > 0)
    direction = torch.where(can_err, direction, 0.0)
    task_loss = torch.where(can_err.squeeze(-1), task_loss, 0.0)
    value = (task_loss + (direction * split.scores).sum(-1)).clamp(min=0.0)
    return task_loss, value, split.shared(direction)
