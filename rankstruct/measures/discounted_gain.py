"""Measures of the form `sum over ranks of discount[rank] x gain[label]`: nDCG, DCG, P, WTA, ERU, a user's own; and their kin.

Under ties the expected value is exact and simple: each rank of a group of tied documents gets the group's mean gain.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankstruct.measures.base import Measure, register_measure
from rankstruct.measures.ranked import RankedLists, is_relevant
from rankstruct.measures.rounding import by_label, elementwise, exponential_gain, row_sums

__all__ = ["ARP", "DCG", "ERU", "RBP", "WTA", "DiscountedGain", "MeanNDCG", "P", "Rprec", "mWTA", "nDCG", "nERU"]

Function = Callable[[Tensor], Tensor]


DISCOUNTS: dict[str, Function] = {
    "log2": lambda ranks: 1 / torch.log2(1 + ranks),
    "letor": lambda ranks: 1 / torch.log2(ranks.clamp(min=2)),
}
GAINS: dict[str, Function] = {"exponential": exponential_gain, "linear": Tensor.double}


@dataclass(frozen=True)
class DiscountedGain(Measure):
    """Base of the measures that are declared by two functions, `discounts` and `gains`.

    A subclass that defines these two has everything: values, cut-off, ties, best values, and the library's oracles.
    With `normalized = True` values are divided by that of the best ranking. Who needs the two with cut-off and
    `min_relevant` applied, takes `position_weights` and `document_gains`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class RankBiased(DiscountedGain):
    ...     '''Rank-biased precision (Moffat and Zobel, TOIS 2008).'''
    ...     patience: float = 0.5
    ...     def discounts(self, ranks):
    ...         return (1 - self.patience) * self.patience ** (ranks - 1)
    ...     def gains(self, labels):
    ...         return (labels > 0).double()
    >>> RankBiased(patience=0.8)([3.0, 2.0, 1.0], [1, 0, 1])
    tensor(0.3280, dtype=torch.float64)
    """

    normalized: ClassVar[bool] = False
    under_ties: ClassVar[str] = "closed form"
    takes_item_weights: ClassVar[bool] = True

    @abstractmethod
    def discounts(self, ranks: Tensor) -> Tensor:
        """What a rank is worth, elementwise: float64 ranks 1, 2, ... to finite numbers that never increase, uncut."""

    @abstractmethod
    def gains(self, labels: Tensor) -> Tensor:
        """What a label is worth, elementwise: float64 labels to finite numbers >= 0; a gain of 0 is irrelevance."""

    def position_weights(self, size: int, device: torch.device | None = None) -> Tensor:
        """The discounts of ranks 1 to `size`, `[size]` float64, 0 below the cut-off.

        Raises:
            ValueError: they increase somewhere, or are not finite.
        """
        weights = self.unchecked_weights(size, device)
        if not bool(weights.isfinite().all()) or bool((weights.diff() > 0).any()):
            raise ValueError(
                f"discounts of {self.name} must be finite and never increase with the rank, got {weights.tolist()}"
            )
        return weights

    def unchecked_weights(self, size: int, device: torch.device | None = None) -> Tensor:
        """`position_weights` without a look at the values, so that `torch.compile` can trace it."""
        kept = size if self.cutoff is None else min(size, self.cutoff)
        ranks = torch.arange(1, kept + 1, dtype=torch.float64, device=device)
        return pad(elementwise(self.discounts, ranks), (0, size - kept))

    def document_gains(self, labels: Tensor) -> Tensor:
        """The gains of labels of any shape, float64; `min_relevant` makes the labels 0 or 1 before.

        Equal labels have equal gains, whatever tensor they stand in.
        """
        labels = labels.double()
        if self.min_relevant is not None:
            labels = is_relevant(labels, self.min_relevant).double()
        return by_label(self.gains, labels)

    def worth(self, labels: Tensor) -> Tensor:
        """The gains."""
        return self.document_gains(labels)

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """Discounts times mean gains of the tied documents, divided by the best ranking's if normalised."""
        gains = self.ranked_gains(lists)
        kept = gains.shape[-1] if self.cutoff is None else min(self.cutoff, gains.shape[-1])
        values = row_sums(lists.over_ties(gains)[:, :kept] * self.position_weights(kept, gains.device))
        if not self.normalized and lists.num_relevant is not None:
            return values, lists.num_relevant > 0
        best_gains = self.best_gains(lists, gains)
        if not self.normalized:
            return values, (best_gains > 0).any(-1)
        best = row_sums(best_gains * self.position_weights(best_gains.shape[-1], gains.device))
        return values / best, best > 0

    def ranked_gains(self, lists: RankedLists) -> Tensor:
        """The gain at each rank, `[lists, list_size]`, 0 in the padding.

        Raises:
            ValueError: a gain is negative or not finite.
        """
        return lists.weighted(self._checked_gains("labels", lists.labels, lists.where, lists.place))

    def best_gains(self, lists: RankedLists, gains: Tensor) -> Tensor:
        """The gains that the best ranking puts into the ranks that count, largest first; `gains` are the ranking's own.

        Raises:
            ValueError: a gain of `ideal_labels` is negative or not finite; or the measure is normalised, and
                the caller gave the number of relevant documents but not their labels.
        """
        if lists.weights is not None and (lists.ideal_labels is not None or lists.num_relevant is not None):
            raise ValueError(
                "item_weights go without ideal_labels and num_relevant: documents not given have no weights"
            )
        if lists.ideal_labels is not None:
            ideal = lists.ideal_labels
            gains = self._checked_gains(
                "ideal_labels",
                ideal.nan_to_num(),
                ~ideal.isnan(),
                lambda row, column: f"list {int(lists.index[row])}, position {column}",
            )
        elif self.normalized and lists.num_relevant is not None:
            raise ValueError(
                f"{self.name} is divided by the value of the best ranking, which num_relevant does not tell; "
                "pass ideal_labels, the labels of all judged documents of each list"
            )
        if self.cutoff is not None and self.cutoff < gains.shape[-1]:
            return gains.topk(self.cutoff, dim=-1).values
        return gains.sort(dim=-1, descending=True).values

    def _checked_gains(self, argument: str, labels: Tensor, where: Tensor, place: Callable[[int, int], str]) -> Tensor:
        gains = self.document_gains(labels).masked_fill(~where, 0)
        wrong = ~((gains >= 0) & gains.isfinite())
        if bool(wrong.any()):
            row, column = wrong.nonzero()[0].tolist()
            label, gain = float(labels[row, column]), float(gains[row, column])
            raise ValueError(
                f"{argument} must have finite gains >= 0 under {self.name}; {place(row, column)} has label {label:g} with "
                f"gain {gain:g}; shift the labels{self._instead(label)}"
            )
        return gains

    def _instead(self, label: float) -> str:
        """What else may be done where the gain of a label is negative or too large."""
        return ""


@dataclass(frozen=True)
class _Graded(DiscountedGain):
    """The options of DCG and nDCG."""

    discount: str | Function = field(default="log2", kw_only=True)
    gain: str | Function = field(default="exponential", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, known in (("discount", DISCOUNTS), ("gain", GAINS)):
            value = getattr(self, option)
            if not callable(value) and value not in list(known):
                raise ValueError(
                    f"{option} of {type(self).__name__} must be {' or '.join(map(repr, known))} or a function, "
                    f"got {value!r}"
                )

    under_ties: ClassVar[str] = "closed form"
    takes_item_weights: ClassVar[bool] = True

    def discounts(self, ranks: Tensor) -> Tensor:
        """The chosen discount."""
        return (DISCOUNTS[self.discount] if isinstance(self.discount, str) else self.discount)(ranks)

    def gains(self, labels: Tensor) -> Tensor:
        """The chosen gain."""
        return (GAINS[self.gain] if isinstance(self.gain, str) else self.gain)(labels)

    @property
    def takes_negative_labels(self) -> bool:
        """Also under a function for a gain, which says what a label is worth."""
        return not isinstance(self.gain, str) or (self.min_relevant is not None and self.min_relevant <= 0)

    def document_gains(self, labels: Tensor) -> Tensor:
        """The chosen gain of labels of any shape, float64; `min_relevant` makes the labels 0 or 1 before."""
        if not isinstance(self.gain, str):
            return super().document_gains(labels)
        # The library's own gains depend on the label alone, and convert it themselves.
        return self.gains(labels if self.min_relevant is None else is_relevant(labels, self.min_relevant))

    def _instead(self, label: float) -> str:
        if not isinstance(self.gain, str):
            return ", or give min_relevant= to make them binary"
        others = [replace(self, gain="linear"), replace(self, min_relevant=1)] if label >= 0 else []
        return "".join(f", or take {other.name}" for other in others if other != self)

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """As every discounted gain, with the LETOR tool's rules where they are asked for."""
        if not lists.letor:
            return super().compute(lists)
        values, relevant = DiscountedGain.compute(self.with_letor_discount(), lists)
        if self.normalized and self.cutoff is not None:
            values = values.masked_fill(lists.lengths < self.cutoff, 0)
        return values, relevant

    def with_letor_discount(self) -> Any:
        """The measure with the LETOR tool's discount, unless another than the default was chosen."""
        return replace(self, discount="letor") if self.discount == "log2" else self


@register_measure
@dataclass(frozen=True)
class DCG(_Graded):
    """Discounted cumulative gain, DCG or DCG@k.

    Args:
        min_relevant: labels from this grade on count 1, the others 0; None for graded labels.
        discount: `"log2"`, 1/log2(1 + rank); `"letor"`, 1 at ranks 1 and 2 and 1/log2(rank) after; or a function of the
            ranks 1, 2, ... in float64 that never increases.
        gain: `"exponential"`, 2^label - 1; `"linear"`, the label; or an elementwise function of float64 labels, >= 0.

    Source: Järvelin and Kekäläinen, "Cumulated Gain-Based Evaluation of IR Techniques", TOIS 2002; the gain is that of
    Burges et al., "Learning to Rank Using Gradient Descent", ICML 2005.

    >>> DCG()([3.0, 2.0, 1.0], [0, 2, 1])
    tensor(2.3928, dtype=torch.float64)
    """


@register_measure
@dataclass(frozen=True)
class nDCG(_Graded):
    """DCG divided by that of the best ranking, nDCG or nDCG@k. The arguments are those of `DCG`.

    Source: as `DCG`.

    >>> nDCG(10)([3.0, 2.0, 1.0], [0, 2, 1])
    tensor(0.6590, dtype=torch.float64)
    >>> nDCG(10, gain="linear").name
    "nDCG(gain='linear')@10"
    """

    normalized: ClassVar[bool] = True


@dataclass(frozen=True)
class _OfNDCG(Measure):
    """What is made of nDCG without a cut-off: it takes nDCG's options, and none."""

    cutoff: int | None = field(default=None, init=False)
    discount: str | Function = field(default="log2", kw_only=True)
    gain: str | Function = field(default="exponential", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each()

    def _each(self, letor: bool = False) -> nDCG:
        each = nDCG(min_relevant=self.min_relevant, discount=self.discount, gain=self.gain)
        return each.with_letor_discount() if letor else each

    def document_gains(self, labels: Tensor) -> Tensor:
        """The gains of labels of any shape, float64, as those of `nDCG`."""
        return self._each().document_gains(labels)

    worth = document_gains

    def ranked_gains(self, lists: RankedLists) -> Tensor:
        """The gain at each rank, as that of `nDCG`."""
        return self._each().ranked_gains(lists)


@register_measure
@dataclass(frozen=True)
class mWTA(_OfNDCG):
    """Winner takes all for several grades: nDCG with a cut-off of its own for each list.

    The cut-off is 3 if the three highest labels hold at least two different grades, otherwise the first rank, in the
    order of the labels, at which a lower grade stands; with one grade there is none, and any ranking has the value 1. Grades
    are told apart by their gains. The arguments are those of `DCG`, but for the cut-off.

    Source: Le and Smola, "Direct Optimization of Ranking Measures", 2007, section 6.4.

    >>> mWTA()([4.0, 3.0, 2.0, 1.0], [0, 2, 1, 2])  # nDCG@3
    tensor(0.4437, dtype=torch.float64)
    >>> mWTA()([5.0, 4.0, 3.0, 2.0, 1.0], [1, 1, 0, 1, 1])  # nDCG@5, which the last relevant document enters
    tensor(0.9558, dtype=torch.float64)
    """

    least_cutoff: ClassVar[int] = 3
    normalized: ClassVar[bool] = True
    under_ties: ClassVar[str] = "closed form"

    def unchecked_weights(self, size: int, device: torch.device | None = None) -> Tensor:
        """The discounts of ranks 1 to `size`, `[size]` float64, before the cut-off of any list, not looked at."""
        return self._each().unchecked_weights(size, device)

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """As nDCG, with what stands behind each list's cut-off left out, in the ranking and in the best one."""
        each = self._each(lists.letor)
        gains = each.ranked_gains(lists)
        best = each.best_gains(lists, gains)
        size = max(gains.shape[-1], best.shape[-1])
        gains = pad(lists.over_ties(gains), (0, size - gains.shape[-1]))
        best = pad(best, (0, size - best.shape[-1]))
        # As many ranks as have the highest gain, and the next one; in a list of one grade that is padding, of gain 0.
        highest = (best == best[:, :1]).sum(-1, keepdim=True)
        kept = torch.arange(size, device=gains.device) < (highest + 1).clamp(min=self.least_cutoff)
        weights = kept * each.position_weights(size, gains.device)
        best_value = row_sums(best * weights)
        return row_sums(gains * weights) / best_value, best_value > 0


@register_measure
@dataclass(frozen=True)
class MeanNDCG(_OfNDCG):
    """The mean of nDCG@i over i = 1, ..., n for a list of n documents, as the LETOR tool reports it.

    The arguments are those of `DCG`, but for the cut-off.

    Source: Qin, Liu, Xu, Li, "LETOR: A Benchmark Collection for Research on Learning to Rank for Information
    Retrieval", Information Retrieval 2010.

    >>> MeanNDCG()([2.0, 1.0], [0, 1])  # nDCG@1 = 0, nDCG@2 = 1/log2(3)
    tensor(0.3155, dtype=torch.float64)
    """

    under_ties: ClassVar[str] = "closed form"

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """Running sums of the ranking over running sums of the best one."""
        each = self._each(lists.letor)
        gains = each.ranked_gains(lists)
        best = each.best_gains(lists, gains)
        size = gains.shape[-1]
        best = pad(best, (0, max(size - best.shape[-1], 0)))[:, :size]
        weights = each.position_weights(size, gains.device)
        running = (lists.over_ties(gains) * weights).cumsum(-1)
        best = (best * weights).cumsum(-1)
        values = row_sums(running / best * lists.where)
        return values / lists.lengths, (best > 0).any(-1)


class _Hits(DiscountedGain):
    """The share of relevant documents in the first ranks."""

    under_ties: ClassVar[str] = "closed form"
    takes_item_weights: ClassVar[bool] = True

    def gains(self, labels: Tensor) -> Tensor:
        """1 for a relevant document."""
        return (labels > 0).double()

    def document_gains(self, labels: Tensor) -> Tensor:
        """1 for a relevant document, of labels of any shape."""
        return is_relevant(labels, self.min_relevant).double()

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """Hits are counted whole: only of a group of tied documents that rank k divides, a share is expected."""
        depth = self.cutoff or 1
        relevant = lists.relevant(self.min_relevant)
        defined = (relevant if lists.ideal_labels is None else is_relevant(lists.ideal_labels, self.min_relevant)) > 0
        defined = defined.any(-1) if lists.num_relevant is None else lists.num_relevant > 0
        relevant = lists.weighted(relevant)
        last = min(depth, relevant.shape[-1]) - 1
        if last < 0:
            return relevant.sum(-1), defined
        hits = relevant.cumsum(-1)
        if lists.first is None or lists.last is None:
            return hits[:, last] / depth, defined
        start, end = lists.first[:, last : last + 1], lists.last[:, last : last + 1]
        before = (hits - relevant).gather(-1, start)
        tied = hits.gather(-1, end) - before
        return (before + tied * (last - start + 1) / (end - start + 1)).squeeze(-1) / depth, defined


@register_measure
@dataclass(frozen=True)
class P(_Hits):
    """Precision at k, P@k: the share of relevant documents in the first k ranks; divided by k also for shorter lists.

    Raises:
        ValueError: no cut-off.

    Source: Manning, Raghavan, Schütze, "Introduction to Information Retrieval", Cambridge University Press 2008,
    section 8.4.

    >>> P(2)([3.0, 2.0, 1.0], [0, 1, 1])
    tensor(0.5000, dtype=torch.float64)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cutoff is None:
            raise ValueError("P needs a cut-off; write P(10) or 'P@10'")

    def discounts(self, ranks: Tensor) -> Tensor:
        """1/k at every rank."""
        assert self.cutoff is not None  # __post_init__ saw to it
        return torch.full_like(ranks, 1 / self.cutoff)


@register_measure
@dataclass(frozen=True)
class Rprec(Measure):
    """R-precision: precision at R, the number of relevant documents, retrieved or not. There is no cut-off.

    Source: Manning, Raghavan, Schütze, "Introduction to Information Retrieval", Cambridge University Press 2008, section 8.4;
    trec_eval's Rprec.

    >>> Rprec()([3.0, 2.0, 1.0], [0, 1, 1])
    tensor(0.5000, dtype=torch.float64)
    """

    cutoff: int | None = field(default=None, init=False)

    under_ties: ClassVar[str] = "closed form"

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """The mean of relevance in a group of tied documents, added up over the first R ranks."""
        relevant = lists.relevant(self.min_relevant)
        total = lists.total_relevant(self.min_relevant)
        kept = lists.ranks <= total.unsqueeze(-1)
        return row_sums(lists.over_ties(relevant) * kept) / total, total > 0


@register_measure
@dataclass(frozen=True)
class RBP(_Hits):
    """Rank-biased precision, RBP or RBP@k: (1 - p) x the sum over relevant documents of p^(rank - 1), p being the patience.

    Args:
        patience: the chance that a user goes on to the next rank, above 0 and below 1.

    Source: Moffat and Zobel, "Rank-Biased Precision for Measurement of Retrieval Effectiveness", TOIS 2008.

    >>> RBP(patience=0.5)([3.0, 2.0, 1.0], [1, 0, 1])
    tensor(0.6250, dtype=torch.float64)
    """

    patience: float = field(default=0.8, kw_only=True)

    under_ties: ClassVar[str] = "closed form"
    takes_item_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_number("patience", above=0)
        if self.patience >= 1:
            raise ValueError(f"patience of RBP must be below 1, got {self.patience!r}")

    def discounts(self, ranks: Tensor) -> Tensor:
        """(1 - p) p^(rank - 1)."""
        return (1 - self.patience) * self.patience ** (ranks - 1)

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """As every discounted gain."""
        return DiscountedGain.compute(self, lists)


@register_measure
@dataclass(frozen=True)
class ARP(Measure):
    """Average relevance position with its sign turned, so that higher is better: - the mean rank, weighted by the labels.

    The value of the best ranking is below 0, so a list with nothing relevant, which counts 0, is better left out of means:
    `empty="skip"`. With `min_relevant` labels are 0 or 1. There is no cut-off.

    Source: Zhu, "Recall, Precision and Average Precision", 2004; TensorFlow Ranking's ARPMetric.

    >>> ARP()([3.0, 2.0, 1.0], [0, 2, 1])  # - (2 x 2 + 3 x 1) / 3
    tensor(-2.3333, dtype=torch.float64)
    """

    cutoff: int | None = field(default=None, init=False)

    under_ties: ClassVar[str] = "closed form"
    takes_item_weights: ClassVar[bool] = True

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """The mean gain of a group at each of its ranks."""
        gains = lists.labels if self.min_relevant is None else lists.relevant(self.min_relevant)
        gains = lists.over_ties(lists.weighted(gains))
        total = row_sums(gains)
        return -row_sums(gains * lists.ranks) / total, total > 0


@register_measure
@dataclass(frozen=True)
class WTA(_Hits):
    """Winner takes all: 1 if the first document is relevant, and else 0.

    Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", 2010, section 3.

    >>> WTA()([3.0, 2.0], [0, 1])
    tensor(0., dtype=torch.float64)
    """

    cutoff: int | None = field(default=None, init=False)

    def discounts(self, ranks: Tensor) -> Tensor:
        """1 at the first rank."""
        return (ranks == 1).double()


@register_measure
@dataclass(frozen=True)
class ERU(DiscountedGain):
    """Expected rank utility, for ratings: sum of max(rating - d, 0) / 2^((rank - 1)/(half_life - 1)).

    Args:
        d: the neutral vote; what is rated no higher gains nothing.
        half_life: the rank whose weight is one half, above 1.

    Source: Breese, Heckerman, Kadie, "Empirical Analysis of Predictive Algorithms for Collaborative Filtering", UAI
    1998.

    >>> ERU(d=3, half_life=5)([3.0, 2.0, 1.0], [2, 5, 4])
    tensor(2.3889, dtype=torch.float64)
    """

    min_relevant: float | None = field(default=None, init=False)
    d: float = field(kw_only=True)
    half_life: float = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_number("d")
        self._check_number("half_life", above=1)

    def discounts(self, ranks: Tensor) -> Tensor:
        """Exponential decay, one half at the half-life."""
        return torch.exp2((1 - ranks) / (self.half_life - 1))

    @property
    def takes_negative_labels(self) -> bool:
        """Whether votes below the neutral one may be."""
        return self.d <= 0

    def gains(self, labels: Tensor) -> Tensor:
        """The part of a rating above the neutral vote."""
        return (labels - self.d).clamp(min=0)

    def document_gains(self, labels: Tensor) -> Tensor:
        """What exceeds the neutral vote, of labels of any shape."""
        return self.gains(labels.double())  # exact wherever a label stands


@register_measure
@dataclass(frozen=True)
class nERU(ERU):
    """Expected rank utility divided by that of the best ranking. The arguments are those of `ERU`.

    Source: as `ERU`.

    >>> nERU(d=3, half_life=5)([3.0, 2.0, 1.0], [2, 5, 4])
    tensor(0.8409, dtype=torch.float64)
    """

    normalized: ClassVar[bool] = True
