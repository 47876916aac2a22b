"""Average precision: the mean, over the relevant documents, of the precision at their ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rankstruct.measures.base import Measure, register_measure
from rankstruct.measures.ranked import RankedLists
from rankstruct.measures.rounding import row_sums

__all__ = ["AP"]


@register_measure
@dataclass(frozen=True)
class AP(Measure):
    """Average precision, AP or AP@k; always divided by the number of all relevant documents, even with a cut-off.

    Source: Buckley and Voorhees, "Evaluating Evaluation Measure Stability", SIGIR 2000; for ties McSherry and Najork,
    "Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores", ECIR 2008.

    >>> AP()([3.0, 2.0, 1.0], [0, 1, 1])
    tensor(0.5833, dtype=torch.float64)
    """

    under_ties: ClassVar[str] = "closed form"
    takes_item_weights: ClassVar[bool] = True

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """Sum of precisions at relevant ranks over the number of relevant documents.

        In a group of n tied documents, r of them relevant, after R relevant ones, the i-th rank has a relevant document
        with probability r/n, and then the expected number of relevant ones up to it is R + 1 + (i-1)(r-1)/(n-1).
        """
        relevant = lists.relevant(self.min_relevant)
        total = lists.total_relevant(self.min_relevant)
        lists.refuse_missing()
        hits = relevant.cumsum(-1)
        ranks = lists.ranks
        kept = slice(None, self.cutoff)
        if lists.first is None or lists.last is None:
            credit = relevant[:, kept] * hits[:, kept] / ranks[kept]
        else:
            first, last = lists.first[:, kept], lists.last[:, kept]
            before = (hits - relevant).gather(-1, first)
            tied = (last - first + 1).double()
            tied_relevant = hits.gather(-1, last) - before
            above = (ranks[kept] - 1 - first) * (tied_relevant - 1) / (tied - 1).clamp(min=1)
            credit = tied_relevant / tied * (before + 1 + above) / ranks[kept]
        if lists.weights is None:
            return row_sums(credit) / total, total > 0
        # The precision at a rank does not depend on which of the tied documents is there.
        total = row_sums(relevant * lists.weights)
        shares = lists.over_ties(relevant * lists.weights) / lists.over_ties(relevant).clamp(min=1e-300)
        return row_sums(credit * shares[:, kept]) / total, total > 0
