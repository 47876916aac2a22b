"""Set measures from the contingency table of retrieved and relevant documents: recall, success, F, accuracy.

The set is the first k documents of the ranking; or, for measures without a cut-off, all that score above 0. Documents with equal
scores are then either all in it or all out, so ties do not matter. A scorer trained for one of these needs a constant to place
its threshold at 0: a bias, or for `LinearRanker`, which has none, a column of ones in X and `prepare=()`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from rankstruct.measures.base import Measure, register_measure
from rankstruct.measures.ranked import RankedLists, is_relevant
from rankstruct.measures.reciprocal_rank import first_relevant
from rankstruct.measures.rounding import row_sums

__all__ = ["Accuracy", "F", "R", "Success"]


@dataclass(frozen=True)
class _AtCutoff(Measure):
    """Base class of the measures that require a cut-off."""

    under_ties: ClassVar[str] = "closed form"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cutoff is None:
            name = type(self).__name__
            raise ValueError(f"{name} needs a cut-off; write {name}(10) or '{name}@10'")


@register_measure
@dataclass(frozen=True)
class R(_AtCutoff):
    """Recall at k, R@k: the share of the relevant documents, or of their item weights, that is in the first k ranks.

    Raises:
        ValueError: no cut-off.

    Source: Manning, Raghavan, Schütze, "Introduction to Information Retrieval", Cambridge University Press 2008, section 8.3.

    >>> R(2)([3.0, 2.0, 1.0], [0, 1, 1])
    tensor(0.5000, dtype=torch.float64)
    """

    under_ties: ClassVar[str] = "closed form"
    takes_item_weights: ClassVar[bool] = True

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """Expected hits in the first ranks, divided by the number of relevant documents."""
        relevant = lists.weighted(lists.relevant(self.min_relevant))
        hits = row_sums(lists.over_ties(relevant)[:, : self.cutoff])
        lists.refuse_missing()
        total = lists.total_relevant(self.min_relevant) if lists.weights is None else row_sums(relevant)
        return hits / total, total > 0


@register_measure
@dataclass(frozen=True)
class Success(_AtCutoff):
    """Success (hit) at k, Success@k: 1 if there is a relevant document in the first k ranks, otherwise 0.

    Raises:
        ValueError: no cut-off.

    Source: Craswell and Hawking, "Overview of the TREC-2004 Web Track", TREC 2004.

    >>> Success(2)([3.0, 2.0, 1.0], [0, 1, 1])
    tensor(1., dtype=torch.float64)
    >>> Success(1)([1.0, 1.0, 1.0], [0, 1, 1])  # tied: two of three are relevant
    tensor(0.6667, dtype=torch.float64)
    """

    under_ties: ClassVar[str] = "closed form"

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """The probability that the first relevant document is in the first ranks."""
        found = row_sums(first_relevant(lists, self.min_relevant, self.cutoff))
        return found, lists.total_relevant(self.min_relevant) > 0


@register_measure
@dataclass(frozen=True)
class F(Measure):
    """F-measure of a set of documents: the weighted harmonic mean of its precision and recall; F1 by default.

    With a cut-off k the set is the first k documents, or all of a shorter list; without one, those that score above 0, so that it
    evaluates a classifier. `"F1"` is an alias.

    Args:
        beta: the weight of recall relative to precision, above 0.

    Source: van Rijsbergen, "Information Retrieval", 2nd edition, Butterworths 1979; Joachims, "A Support Vector Method for
    Multivariate Performance Measures", ICML 2005.

    >>> F()([2.0, 1.0, -1.0], [0, 1, 1])
    tensor(0.5000, dtype=torch.float64)
    >>> F(1)([2.0, 1.0, -1.0], [1, 0, 1])
    tensor(0.6667, dtype=torch.float64)
    """

    beta: float = field(default=1.0, kw_only=True)

    under_ties: ClassVar[str] = "closed form"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_number("beta", f"> 0 and <= {2**53}")

    @property
    def name(self) -> str:
        """`F1`, or `F(beta=2)`."""
        return ("F1" if self.beta == 1 else "F") + super().name[1:]

    def worth(self, labels: Tensor) -> Tensor:
        """Scores above 0 for the relevant documents alone."""
        return _signs(labels, self.min_relevant)

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """(1 + beta^2) hits over the size of the set and beta^2 times the number of relevant documents."""
        size = lists.positive if self.cutoff is None else lists.lengths.clamp(max=self.cutoff)
        inside = lists.ranks <= size.unsqueeze(-1)
        hits = row_sums(lists.over_ties(lists.relevant(self.min_relevant)) * inside)
        total = lists.total_relevant(self.min_relevant)
        square = float(self.beta) ** 2
        return (1 + square) * hits / (size + square * total), total > 0


@register_measure
@dataclass(frozen=True)
class Accuracy(Measure):
    """The share of documents on the right side of 0, one less the error rate: relevant ones score above it, others do not.

    Source: Joachims, "A Support Vector Method for Multivariate Performance Measures", ICML 2005.

    >>> Accuracy()([2.0, 1.0, -1.0], [0, 1, 1])
    tensor(0.3333, dtype=torch.float64)
    """

    cutoff: int | None = field(default=None, init=False)

    undefined: ClassVar[str] = "it has no document"
    under_ties: ClassVar[str] = "closed form"

    def worth(self, labels: Tensor) -> Tensor:
        """Scores above 0 for the relevant documents alone."""
        return _signs(labels, self.min_relevant)

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """Documents that score above 0 and are relevant, or neither, over all."""
        above = lists.ranks <= lists.positive.unsqueeze(-1)
        relevant = lists.over_ties(lists.relevant(self.min_relevant))
        right = row_sums((above * relevant + ~above * (1 - relevant)) * lists.where)
        return right / lists.lengths, lists.lengths > 0


def _signs(labels: Tensor, min_relevant: float | None) -> Tensor:
    return 2.0 * is_relevant(labels, min_relevant) - 1
