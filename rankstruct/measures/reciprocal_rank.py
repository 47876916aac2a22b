"""Reciprocal rank: one over the rank of the first relevant document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rankstruct.measures.base import Measure, register_measure
from rankstruct.measures.ranked import RankedLists
from rankstruct.measures.rounding import row_sums

__all__ = ["RR"]


@register_measure
@dataclass(frozen=True)
class RR(Measure):
    """Reciprocal rank, RR or RR@k: 1/rank of the first relevant document, 0 if it is below rank k.

    Source: Voorhees, "The TREC-8 Question Answering Track Report", TREC 1999; for ties McSherry and Najork, ECIR 2008.

    >>> RR()([3.0, 2.0, 1.0], [0, 1, 1])
    tensor(0.5000, dtype=torch.float64)
    >>> RR()([1.0, 1.0], [0, 1])  # tied: the mean of 1 and 1/2
    tensor(0.7500, dtype=torch.float64)
    """

    under_ties: ClassVar[str] = "closed form"

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """Sum over ranks of P(first relevant document at this rank) / rank."""
        first = first_relevant(lists, self.min_relevant, self.cutoff)
        return row_sums(first / lists.ranks[: self.cutoff]), lists.total_relevant(self.min_relevant) > 0


def first_relevant(lists: RankedLists, min_relevant: float | None, cutoff: int | None) -> Tensor:
    """The probability that the first relevant document is at each rank, up to the cut-off, `[lists, ranks]`.

    In a group of n tied documents, r of them relevant, the i-th is irrelevant, given that those before it in the
    group are, with probability 1 - r/(n-i+1). The cumulative product of these, over all groups, is the probability
    of no relevant document so far: it is exactly 0 from the first relevant document's group on, and only products
    of numbers in [0, 1] are computed, so groups of any size are safe.
    """
    relevant = lists.relevant(min_relevant)
    kept = slice(None, cutoff)
    hit = relevant[:, kept]
    ranks = lists.ranks[kept]
    if lists.first is not None and lists.last is not None:
        last = lists.last[:, kept]
        hits = relevant.cumsum(-1)
        tied_relevant = hits.gather(-1, last) - (hits - relevant).gather(-1, lists.first[:, kept])
        left_over = last - ranks + 2
        hit = (tied_relevant / left_over).clamp(max=1)
    missed = (1 - hit).cumprod(-1)
    before = missed.roll(1, -1)
    before[:, :1] = 1
    return before * hit
