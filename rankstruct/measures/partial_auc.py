"""Partial area under the ROC curve: AUC restricted to a range of false positive rates.

With m irrelevant documents in rank order, the j-th of them covers the false positive rates from (j - 1)/m to j/m, and the height
of the curve there is the share of the relevant documents above it. A bound of the range may fall inside: that irrelevant document
then counts fractionally.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from rankstruct.measures.base import Measure, register_measure
from rankstruct.measures.ranked import RankedLists
from rankstruct.measures.rounding import row_sums

__all__ = ["pAUC"]

_NARROWEST = 1e-9


@register_measure
@dataclass(frozen=True)
class pAUC(Measure):
    """Partial area under the ROC curve between two false positive rates, divided by the area of the window, so that 1 is best.

    In pairs: the share of (relevant, irrelevant) pairs in the right order, with the irrelevant documents at positions `low * m`
    to `high * m` among the m irrelevant ones of the ranking; documents at the ends count fractionally. `pAUC(low=0, high=1)` is
    `AUC`. With `min_tpr` (two-way), only the area above that true positive rate counts: of the p relevant documents in rank
    order, those after the first `min_tpr * p`. There is no cut-off.

    Args:
        low: the lowest false positive rate.
        high: the highest false positive rate.
        min_tpr: the lowest true positive rate.

    Raises:
        ValueError: not `0 <= low < high <= 1`, or `min_tpr` not in [0, 1).

    A list with only relevant or only irrelevant documents has no pairs. It is treated like a list with nothing relevant.
    `sklearn.metrics.roc_auc_score(max_fpr=high)` standardises this area by McClish's formula.

    Source: McClish, "Analyzing a Portion of the ROC Curve", Medical Decision Making 1989; Narasimhan and Agarwal, "A Structural
    SVM Based Approach for Optimizing Partial AUC", ICML 2013 (the fractional ends); Yang, Lu, Lyu, Hu, "Two-Way Partial AUC and
    Its Properties", Statistical Methods in Medical Research 2019.

    >>> scores, labels = [5.0, 4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0, 0]
    >>> pAUC(high=0.5)(scores, labels)  # the first irrelevant document and half of the second: (1 x 1/2 + 1/2 x 1) / 1.5
    tensor(0.6667, dtype=torch.float64)
    >>> pAUC(high=0.5, min_tpr=0.5)(scores, labels)  # of the second relevant document alone
    tensor(0.3333, dtype=torch.float64)
    """

    cutoff: int | None = field(default=None, init=False)
    low: float = field(default=0.0, kw_only=True)
    high: float = field(kw_only=True)
    min_tpr: float = field(default=0.0, kw_only=True)

    undefined: ClassVar[str] = "all of it is relevant, or nothing is"
    under_ties: ClassVar[str] = "closed form"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("low", "high", "min_tpr"):
            self._check_number(name)
        if not 0 <= self.low <= self.high - _NARROWEST or not self.high <= 1:
            raise ValueError(f"pAUC needs 0 <= low < high <= 1, got low={self.low!r} and high={self.high!r}")
        if not 0 <= self.min_tpr <= 1 - _NARROWEST:
            raise ValueError(f"min_tpr of pAUC must be at least 0 and below 1, got {self.min_tpr!r}")

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """1 - the share of the window above the curve."""
        relevant = lists.relevant(self.min_relevant)
        irrelevant = lists.where.double() - relevant
        p, m = relevant.sum(-1, keepdim=True), irrelevant.sum(-1, keepdim=True)
        number = irrelevant.cumsum(-1)
        inside = irrelevant * (number.minimum(self.high * m) - (number - 1).maximum(self.low * m)).clamp(min=0)
        skipped = self.min_tpr * p
        above = relevant.cumsum(-1)
        counted = (above - skipped).clamp(min=0)
        if lists.first is not None and lists.last is not None:
            counted = _expected_count(above, relevant, number, irrelevant, lists.first, lists.last, skipped)
        area = row_sums(inside) * (p - skipped).squeeze(-1)
        return 1 - row_sums(inside * (p - skipped - counted)) / area, (p * m > 0).squeeze(-1)


def _expected_count(
    above: Tensor, relevant: Tensor, number: Tensor, irrelevant: Tensor, first: Tensor, last: Tensor, skipped: Tensor
) -> Tensor:
    """The number of relevant documents above the irrelevant one at each rank, without the first `skipped` `[lists, 1]`.

    This is the mean over the orders of its group of tied documents. With r relevant and q irrelevant ones in the group, the
    expected number X of relevant ones before its j-th irrelevant one is r j / (q + 1). If `skipped` ends within the group, after
    t of its relevant ones, the result is the mean of max(X - t, 0); X is at least c = ceil(t) with the probability that the c-th
    relevant one comes first. By x P(X_j = x; r, q) = j r / (q + 1) P(X_(j+1) = x - 1; r - 1, q + 1), this also determines the
    part of the mean from c on.
    """
    before, q_before = (each.gather(-1, first) for each in (above - relevant, number - irrelevant))
    r, q = above.gather(-1, last) - before, number.gather(-1, last) - q_before
    j, t = number - q_before, skipped - before
    mean = r * j / (q + 1)
    crosses = (t > 0) & (t < r)
    if not bool(crosses.any()):
        return torch.where(t < r, mean - t, 0.0).clamp(min=0)
    own = crosses * irrelevant
    c = t.ceil()
    reached = (own * _leaders(j - 1, c, r, q)).cumsum(-1)
    part = _leaders(torch.zeros_like(j), c - 1, r - 1, q + 1) + (own * _leaders(j, c - 1, r - 1, q + 1)).cumsum(-1)
    part = torch.where(c == 1, 1.0, part)
    beyond = (mean * part - t * reached).clamp(min=0)
    return torch.where(crosses, beyond, torch.where(t < r, mean - t, 0.0).clamp(min=0))


def _leaders(y: Tensor, c: Tensor, r: Tensor, q: Tensor) -> Tensor:
    """The probability that exactly y of q irrelevant documents precede the c-th of r relevant ones in a random order."""
    logarithm = _log_choose(y + c - 1, y) + _log_choose(q - y + r - c, q - y) - _log_choose(r + q, q)
    return torch.where((y >= 0) & (y <= q) & (c >= 1) & (c <= r), logarithm.exp(), 0.0)


def _log_choose(n: Tensor, k: Tensor) -> Tensor:
    return torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
