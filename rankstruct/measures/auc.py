"""Area under the ROC curve, and its extension to grades: the share of correctly ordered pairs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from rankstruct.measures.base import Measure, register_measure
from rankstruct.measures.ranked import RankedLists

__all__ = ["AUC", "OPA"]


@register_measure
@dataclass(frozen=True)
class AUC(Measure):
    """Area under the ROC curve of each list: the share of (relevant, irrelevant) pairs in the right order; ties count half.

    A list with only relevant or only irrelevant documents has no pairs. It is treated like a list with nothing relevant. There
    is no cut-off.

    Source: Hanley and McNeil, "The Meaning and Use of the Area under a Receiver Operating Characteristic (ROC) Curve",
    Radiology 1982.

    >>> AUC()([3.0, 2.0, 1.0], [0, 1, 0])
    tensor(0.5000, dtype=torch.float64)
    """

    cutoff: int | None = field(default=None, init=False)

    undefined: ClassVar[str] = "all of it is relevant, or nothing is"
    under_ties: ClassVar[str] = "closed form"
    takes_item_weights: ClassVar[bool] = True

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """1 - the share of pairs in the wrong order. Only halves are summed, so the order of summation does not matter."""
        relevant = lists.relevant(self.min_relevant)
        irrelevant = lists.weighted(lists.where.double() - relevant)
        relevant = lists.weighted(relevant)
        above = irrelevant.cumsum(-1)
        pairs = relevant.sum(-1) * irrelevant.sum(-1)
        if lists.first is not None and lists.last is not None:
            above = 0.5 * ((above - irrelevant).gather(-1, lists.first) + above.gather(-1, lists.last))
        return 1 - (relevant * above).sum(-1) / pairs, pairs > 0


@register_measure
@dataclass(frozen=True)
class OPA(Measure):
    """Ordered pair accuracy: the share of pairs with different labels whose higher label ranks higher; ties count half.

    With labels 0 and 1 it is `AUC`. A list whose labels are all equal is treated as one with nothing relevant. There is no
    cut-off. O(n) for each grade in the data.

    >>> OPA()([3.0, 2.0, 1.0], [1, 2, 0])  # 2 of 3 pairs
    tensor(0.6667, dtype=torch.float64)
    """

    cutoff: int | None = field(default=None, init=False)
    min_relevant: float | None = field(default=None, init=False)

    undefined: ClassVar[str] = "its labels are all equal"
    under_ties: ClassVar[str] = "closed form"
    takes_item_weights: ClassVar[bool] = True

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """1 - the share of pairs in the wrong order: for each grade, the documents above it with a lower one."""
        wrong, pairs = lists.labels.new_zeros(2, len(lists.labels))
        for grade in lists.labels[lists.where].unique()[1:]:
            own = lists.weighted((lists.where & (lists.labels == grade)).double())
            lower = lists.weighted((lists.where & (lists.labels < grade)).double())
            above = lower.cumsum(-1)
            if lists.first is not None and lists.last is not None:
                above = 0.5 * ((above - lower).gather(-1, lists.first) + above.gather(-1, lists.last))
            wrong = wrong + (own * above).sum(-1)
            pairs = pairs + own.sum(-1) * lower.sum(-1)
        return 1 - wrong / pairs, pairs > 0
