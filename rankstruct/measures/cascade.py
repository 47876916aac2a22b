"""Expected reciprocal rank: a user walks down the ranking and stops at a satisfying document."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from rankstruct.measures.base import Measure, register_measure
from rankstruct.measures.ranked import RankedLists
from rankstruct.measures.rounding import by_label, elementwise, row_sums

__all__ = ["ERR"]

_NOTHING = 1e-20  # a negligible probability
_MANY, _FEW = 64, 32  # minimum documents and maximum distinct grades of a tie group that is processed by grades


@register_measure
@dataclass(frozen=True)
class ERR(Measure):
    """Expected reciprocal rank, ERR or ERR@k: the sum over ranks of 1/rank times the probability that the user stops there.

    A document of grade y satisfies the user with probability (2^y - 1) / 2^max_grade; otherwise the user continues. O(n), with
    ties O(n m), where m is the cut-off, or without one the number of relevant documents until the probability to continue is
    negligible.

    Args:
        max_grade: the highest possible grade, 4 in most collections. A higher label raises ValueError.

    Source: Chapelle, Metzler, Zhang, Grinspan, "Expected Reciprocal Rank for Graded Relevance", CIKM 2009.

    >>> ERR()([3.0, 2.0, 1.0], [0, 4, 1])
    tensor(0.4701, dtype=torch.float64)
    """

    min_relevant: float | None = field(default=None, init=False)
    max_grade: float = field(default=4, kw_only=True)

    under_ties: ClassVar[str] = "closed form"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_number("max_grade", "> 0 and <= 1023")

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """Without ties, the definition; see `_expected` for the mean over the orders of tied documents."""
        if bool((lists.labels > self.max_grade).any()):
            row, rank = (lists.labels > self.max_grade).nonzero()[0].tolist()
            raise ValueError(
                f"labels must be at most max_grade, {self.max_grade:g}, for {self.name}; {lists.place(row, rank)} has "
                f"{float(lists.labels[row, rank]):g}; write ERR(max_grade=...)"
            )
        # Tied documents in the order of their labels, so that the input order does not affect the last bit.
        ranked = lists.lowest_first()
        stops = torch.where(ranked.where, by_label(self._stop, ranked.labels), 0.0)
        if lists.first is None or lists.last is None:
            going = (1 - stops).cumprod(-1).roll(1, -1)
            going[:, :1] = 1
            chances = going * stops
        else:
            chances = _expected(stops, lists.first, lists.last, self.cutoff)
        kept = slice(None, self.cutoff)
        return row_sums(chances[:, kept] / lists.ranks[kept]), (stops > 0).any(-1)

    def _stop(self, labels: Tensor) -> Tensor:
        return (torch.exp2(labels) - 1) / 2.0**self.max_grade


def _expected(stops: Tensor, first: Tensor, last: Tensor, cutoff: int | None) -> Tensor:
    """The mean probability to stop at each rank up to the cut-off over all orders of tied documents, `[lists, ranks]`.

    In a group, let E_i be the mean over its sets of i stopping documents (those that may satisfy) of the probability to pass all
    of them. The user then stops at the i-th of the r stopping ones with probability E_(i-1) - E_i. Its rank among the n ranks is
    independent of that: it is the j-th with probability C(j-1, i-1) C(n-j, r-i) / C(n, r). O(n) for each i; those beyond the
    cut-off rank after it.
    """
    stopping = stops > 0
    so_far = stopping.double().cumsum(-1)
    before = (so_far - stopping.double()).gather(-1, first)
    count = so_far.gather(-1, last) - before
    passed = (1 - stops).cumprod(-1)
    reached = torch.where(first > 0, passed.gather(-1, (first - 1).clamp(min=0)), 1.0)
    falls = _falls(stops, so_far - before, count, first, last, cutoff)
    seen = (falls > _NOTHING).nonzero()
    most = int((seen[:, 1] - first[seen[:, 0], seen[:, 1]]).max()) + 1 if len(seen) else 0
    whole_numbers = torch.arange(1, stops.shape[-1] + 3, dtype=torch.float64, device=stops.device)
    factorials = elementwise(torch.lgamma, whole_numbers)
    kept = slice(None, cutoff)
    stops, first, last, count, reached = (each[:, kept] for each in (stops, first, last, count, reached))
    size, place = last - first + 1, torch.arange(stops.shape[-1], device=stops.device) - first  # place from 0
    r = count.long()
    whole = factorials[size] - factorials[r] - factorials[size - r]
    chances = torch.zeros_like(stops)
    for i in range(most):  # from 0
        before, behind, room = place - i, r - 1 - i, size - 1 - place
        possible = (before >= 0) & (behind >= 0) & (room >= behind)
        before, behind = before.clamp(min=0), behind.clamp(min=0)
        ways = factorials[place] - factorials[i] - factorials[before]
        ways = ways + factorials[room] - factorials[behind] - factorials[(room - behind).clamp(min=0)]
        fall = falls.gather(-1, (first + i).clamp(max=falls.shape[-1] - 1))
        chances = chances + torch.where(possible, fall * elementwise(torch.exp, ways - whole), 0.0)
    return reached * torch.where(first == last, stops, chances)


def _falls(stops: Tensor, seen: Tensor, count: Tensor, first: Tensor, last: Tensor, cutoff: int | None) -> Tensor:
    """E_(i-1) - E_i for i = 1, 2, ... from the first rank of each group on, `[lists, list_size]`; 0 once they are negligible.

    Documents are added one by one: for t documents, the mean over sets of j is (t - j) / t times that without the new one, plus
    j / t times its probability to pass times that of j - 1. `seen` is t at each rank, `count` is r. Large groups of few grades
    are processed by grades.
    """
    stopping = stops > 0
    most = int(count.max()) if count.numel() else 0
    most = most if cutoff is None else min(most, cutoff)
    least = float(torch.where(stopping, stops, 1.0).min()) if stops.numel() else 1.0
    if least < 1:  # later terms are negligible
        most = min(most, math.ceil(math.log(_NOTHING) / math.log1p(-least)))
    falls = torch.zeros_like(stops)
    places = torch.arange(stops.shape[-1], device=stops.device)
    for row, start in ((count > _MANY) & (first == places)).nonzero().tolist():
        group = slice(start, int(last[row, start]) + 1)
        grades, numbers = stops[row, group][stopping[row, group]].unique(return_counts=True)
        if len(grades) <= _FEW:
            each = _means_by_grade(grades, numbers.tolist(), most)
            falls[row, start : start + len(each) - 1] = -each.diff()
            stopping[row, group] = False
    j = torch.arange(most + 1, device=stops.device)
    means, begin = stops.new_zeros(len(stops), most + 1), (j == 0).double()
    for rank in stopping.any(0).nonzero().view(-1).tolist():
        here, t = stopping[:, rank, None], seen[:, rank, None]
        before = torch.where(t == 1, begin, means)
        shifted = torch.nn.functional.pad(before[:, :-1], (1, 0))
        grown = ((t - j).clamp(min=0) * before + j * (1 - stops[:, rank, None]) * shifted) / t.clamp(min=1)
        means = torch.where(here, torch.where(j <= t, grown, 0.0), means)
        row, i = (here & (t == count[:, rank, None]) & (j[:-1] < t)).nonzero(as_tuple=True)
        falls[row, first[row, rank] + i] = means[row, i] - means[row, i + 1]
    return falls


def _means_by_grade(stops: Tensor, numbers: list[int], most: int) -> Tensor:
    """E_0, ..., E_most for `numbers` documents of each probability `stops`; the count of a grade in a set is hypergeometric."""
    factorials = torch.lgamma(torch.arange(1, sum(numbers) + 2, dtype=torch.float64, device=stops.device))

    def choices(n: int, k: Tensor) -> Tensor:
        return factorials[n] - factorials[k] - factorials[n - k]

    means, before = stops.new_ones(1), 0
    for stop, number in zip(stops, numbers, strict=True):
        total = before + number
        sets = torch.arange(min(most, total) + 1, device=stops.device).unsqueeze(1)
        chosen = torch.arange(min(most, number) + 1, device=stops.device)
        others = sets - chosen
        possible = (others >= 0) & (others <= before)
        others = others.clamp(min=0, max=min(before, most))
        logs = choices(number, chosen) + choices(before, others) - choices(total, sets)
        chance = torch.where(possible, logs.exp(), 0.0)
        means, before = (chance * (1 - stop) ** chosen * means[others]).sum(-1), total
    return means
