"""Measures of the form `sum over ranks of discount[rank] x gain[label]`: nDCG, DCG, P, WTA, ERU, custom ones, and related.

The expected value with ties is exact and simple: each rank of a group of tied documents has the group's mean gain.
"""

from __future__ import annotations

import warnings
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
    """Base class of the measures that are defined by two functions, `discounts` and `gains`.

    A subclass needs to define only these two; values, cut-off, ties, best values and oracles follow. With `normalized = True`,
    values are divided by that of the best ranking. `position_weights` and `document_gains` are the two functions with cut-off and
    `min_relevant` applied.

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
        """The discount of each rank, elementwise: float64 ranks 1, 2, ... to finite non-increasing numbers, without cut-off."""

    @abstractmethod
    def gains(self, labels: Tensor) -> Tensor:
        """The gain of each label, elementwise: float64 labels to finite numbers >= 0; a gain of 0 means irrelevant."""

    def position_weights(self, size: int, device: torch.device | None = None) -> Tensor:
        """The discounts of ranks 1 to `size`, `[size]` float64, 0 after the cut-off.

        Raises:
            ValueError: they increase, or are not finite.
        """
        weights = self.unchecked_weights(size, device)
        if not bool(weights.isfinite().all()) or bool((weights.diff() > 0).any()):
            raise ValueError(
                f"discounts of {self.name} must be finite and never increase with the rank, got {weights.tolist()}"
            )
        return weights

    def unchecked_weights(self, size: int, device: torch.device | None = None) -> Tensor:
        """`position_weights` without checking the values, so that `torch.compile` can trace it."""
        kept = size if self.cutoff is None else min(size, self.cutoff)
        ranks = torch.arange(1, kept + 1, dtype=torch.float64, device=device)
        return pad(elementwise(self.discounts, ranks), (0, size - kept))

    def document_gains(self, labels: Tensor) -> Tensor:
        """The gains of labels of any shape, float64; `min_relevant` first makes the labels 0 or 1.

        Equal labels have bitwise equal gains, in any tensor.
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
        if lists.ideal_labels is not None and bool((above := values > best * (1 + 1e-9)).any()):
            raise ValueError(
                "ideal_labels must have all documents of a list; the best ranking of those of list "
                f"{int(lists.index[int(above.nonzero()[0])])} is worth less than the list itself"
            )
        return values / best, best > 0

    def ranked_gains(self, lists: RankedLists) -> Tensor:
        """The gain at each rank, `[lists, list_size]`, 0 in the padding.

        Raises:
            ValueError: a gain is negative or not finite.
        """
        return lists.weighted(self._checked_gains("labels", lists.labels, lists.where, lists.place))

    def best_gains(self, lists: RankedLists, gains: Tensor) -> Tensor:
        """The gains of the best ranking at the ranks that count, largest first; `gains` are those of the ranking.

        Raises:
            ValueError: a gain of `ideal_labels` is negative or not finite; or the measure is normalised, and
                `num_relevant` was passed without `ideal_labels`.
        """
        lists.refuse_missing()
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
                f"{self.name} is divided by the value of the best ranking, which num_relevant does not determine; "
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
        """Other ways to fix a gain that is negative or too large, for the message."""
        return ""


_MOST_GRADES = 30  # the highest label to which LightGBM gives an exponential gain


def warn_of_large_gains(measure: Measure, labels: Tensor, instead: str | None = None) -> None:
    """Warn if a label, such as a percentage, is too high for a grade whose gain is 2^label - 1, and say what to use instead."""
    graded = getattr(measure, "gain", None) == "exponential" and measure.min_relevant is None
    if graded and labels.numel() and (highest := float(labels.max())) > _MOST_GRADES:
        instead = instead or f"gain='linear', such as {replace(measure, gain='linear').name}"  # type: ignore[call-arg]
        warnings.warn(
            f"labels go up to {highest:g}, and the gain 2^label - 1 of the highest outweighs all others: use {instead}; or pass "
            "grades, such as 0 to 4",
            stacklevel=2,
        )


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
        """The selected discount."""
        return (DISCOUNTS[self.discount] if isinstance(self.discount, str) else self.discount)(ranks)

    def gains(self, labels: Tensor) -> Tensor:
        """The selected gain."""
        return (GAINS[self.gain] if isinstance(self.gain, str) else self.gain)(labels)

    def _checked_gains(self, argument: str, labels: Tensor, where: Tensor, place: Callable[[int, int], str]) -> Tensor:
        gains = super()._checked_gains(argument, labels, where, place)
        warn_of_large_gains(self, labels)
        return gains

    @property
    def takes_negative_labels(self) -> bool:
        """Whether labels may be negative, which they may also if the gain is a function."""
        return not isinstance(self.gain, str) or (self.min_relevant is not None and self.min_relevant <= 0)

    def document_gains(self, labels: Tensor) -> Tensor:
        """The selected gain of labels of any shape, float64; `min_relevant` first makes the labels 0 or 1."""
        if not isinstance(self.gain, str):
            return super().document_gains(labels)
        # The built-in gains depend on the label only, and convert it themselves.
        return self.gains(labels if self.min_relevant is None else is_relevant(labels, self.min_relevant))

    def _instead(self, label: float) -> str:
        if not isinstance(self.gain, str):
            return ", or pass min_relevant= to make them binary"
        others = [replace(self, gain="linear"), replace(self, min_relevant=1)] if label >= 0 else []
        return "".join(f", or use {other.name}" for other in others if other != self)

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """As for every discounted gain, with the LETOR tool's rules if requested."""
        if not lists.letor:
            return super().compute(lists)
        values, relevant = DiscountedGain.compute(self.with_letor_discount(), lists)
        if self.normalized and self.cutoff is not None:
            values = values.masked_fill(lists.lengths < self.cutoff, 0)
        return values, relevant

    def with_letor_discount(self) -> Any:
        """The measure with the LETOR tool's discount, unless a discount other than the default is set."""
        return replace(self, discount="letor") if self.discount == "log2" else self


@register_measure
@dataclass(frozen=True)
class DCG(_Graded):
    """Discounted cumulative gain, DCG or DCG@k.

    Args:
        min_relevant: labels from this grade on count as 1, the others as 0; None for graded labels.
        discount: `"log2"`, 1/log2(1 + rank); `"letor"`, 1 at ranks 1 and 2 and 1/log2(rank) after; or a non-increasing
            function of the ranks 1, 2, ... in float64.
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
    """Base class of measures derived from nDCG without a cut-off: nDCG's options, except the cut-off."""

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
        """The gains of labels of any shape, float64, as for `nDCG`."""
        return self._each().document_gains(labels)

    worth = document_gains

    def ranked_gains(self, lists: RankedLists) -> Tensor:
        """The gain at each rank, as for `nDCG`."""
        return self._each().ranked_gains(lists)


@register_measure
@dataclass(frozen=True)
class mWTA(_OfNDCG):
    """Winner takes all for several grades: nDCG with a list-specific cut-off.

    The cut-off is 3 if the three highest labels include at least two different grades, otherwise the first rank, in the order of
    the labels, with a lower grade; with a single grade there is none, and any ranking has the value 1. Grades are distinguished
    by their gains. The arguments are those of `DCG`, except for the cut-off.

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
        """The discounts of ranks 1 to `size`, `[size]` float64, without cut-off and unchecked."""
        return self._each().unchecked_weights(size, device)

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """As nDCG with each list's cut-off, for the ranking and the best one."""
        each = self._each(lists.letor)
        gains = each.ranked_gains(lists)
        best = each.best_gains(lists, gains)
        size = max(gains.shape[-1], best.shape[-1])
        gains = pad(lists.over_ties(gains), (0, size - gains.shape[-1]))
        best = pad(best, (0, size - best.shape[-1]))
        # The ranks with the highest gain, and the next one; in a list of one grade that is padding, with gain 0.
        highest = (best == best[:, :1]).sum(-1, keepdim=True)
        kept = torch.arange(size, device=gains.device) < (highest + 1).clamp(min=self.least_cutoff)
        weights = kept * each.position_weights(size, gains.device)
        best_value = row_sums(best * weights)
        return row_sums(gains * weights) / best_value, best_value > 0


@register_measure
@dataclass(frozen=True)
class MeanNDCG(_OfNDCG):
    """The mean of nDCG@i over i = 1, ..., n for a list of n documents, as the LETOR tool reports it.

    The arguments are those of `DCG`, except for the cut-off.

    Source: Qin, Liu, Xu, Li, "LETOR: A Benchmark Collection for Research on Learning to Rank for Information
    Retrieval", Information Retrieval 2010.

    >>> MeanNDCG()([2.0, 1.0], [0, 1])  # nDCG@1 = 0, nDCG@2 = 1/log2(3)
    tensor(0.3155, dtype=torch.float64)
    """

    under_ties: ClassVar[str] = "closed form"

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """Cumulative sums of the ranking divided by cumulative sums of the best one."""
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
        """1 for a relevant document, for labels of any shape."""
        return is_relevant(labels, self.min_relevant).double()

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """Hits are integers, except for the expected share of a group of tied documents that rank k splits."""
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
    """Precision at k, P@k: the share of relevant documents in the first k ranks; divided by k even for shorter lists.

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
        assert self.cutoff is not None  # checked in __post_init__
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
        """The mean relevance of tied documents, summed over the first R ranks."""
        relevant = lists.relevant(self.min_relevant)
        total = lists.total_relevant(self.min_relevant)
        kept = lists.ranks <= total.unsqueeze(-1)
        return row_sums(lists.over_ties(relevant) * kept) / total, total > 0


@register_measure
@dataclass(frozen=True)
class RBP(_Hits):
    """Rank-biased precision, RBP or RBP@k: (1 - p) x the sum over relevant documents of p^(rank - 1), with patience p.

    Args:
        patience: the probability that a user continues to the next rank, above 0 and below 1.

    Source: Moffat and Zobel, "Rank-Biased Precision for Measurement of Retrieval Effectiveness", TOIS 2008.

    >>> RBP(patience=0.5)([3.0, 2.0, 1.0], [1, 0, 1])
    tensor(0.6250, dtype=torch.float64)
    """

    patience: float = field(default=0.8, kw_only=True)

    under_ties: ClassVar[str] = "closed form"
    takes_item_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_number("patience", "> 0")
        if self.patience >= 1:
            raise ValueError(f"patience of RBP must be below 1, got {self.patience!r}")

    def discounts(self, ranks: Tensor) -> Tensor:
        """(1 - p) p^(rank - 1)."""
        return (1 - self.patience) * self.patience ** (ranks - 1)

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """As for every discounted gain."""
        return DiscountedGain.compute(self, lists)


@register_measure
@dataclass(frozen=True)
class ARP(Measure):
    """Negated average relevance position, so that higher is better: - the mean rank, weighted by the labels.

    The value of the best ranking is negative, so a list with nothing relevant, which counts as 0, is better left out of means:
    `empty="skip"`. With `min_relevant` labels are 0 or 1. There is no cut-off.

    Source: Zhu, "Recall, Precision and Average Precision", 2004; TensorFlow Ranking's ARPMetric.

    >>> ARP()([3.0, 2.0, 1.0], [0, 2, 1])  # - (2 x 2 + 3 x 1) / 3
    tensor(-2.3333, dtype=torch.float64)
    """

    cutoff: int | None = field(default=None, init=False)

    under_ties: ClassVar[str] = "closed form"
    takes_item_weights: ClassVar[bool] = True

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """The mean gain of tied documents at each of their ranks."""
        gains = lists.labels if self.min_relevant is None else lists.relevant(self.min_relevant)
        gains = lists.over_ties(lists.weighted(gains))
        total = row_sums(gains)
        return -row_sums(gains * lists.ranks) / total, total > 0


@register_measure
@dataclass(frozen=True)
class WTA(_Hits):
    """Winner takes all: 1 if the first document is relevant, otherwise 0.

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
        d: the neutral vote; ratings up to it have gain 0.
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
        self._check_number("half_life", "> 1")

    def discounts(self, ranks: Tensor) -> Tensor:
        """Exponential decay, one half at the half-life."""
        return torch.exp2((1 - ranks) / (self.half_life - 1))

    @property
    def takes_negative_labels(self) -> bool:
        """Whether labels may be negative; if the neutral vote is 0 or less."""
        return self.d <= 0

    def gains(self, labels: Tensor) -> Tensor:
        """The part of a rating above the neutral vote."""
        return (labels - self.d).clamp(min=0)

    def document_gains(self, labels: Tensor) -> Tensor:
        """The part of a rating above the neutral vote, for labels of any shape."""
        return self.gains(labels.double())  # exact in any tensor


@register_measure
@dataclass(frozen=True)
class nERU(ERU):
    """Expected rank utility divided by that of the best ranking. The arguments are those of `ERU`.

    Source: as `ERU`.

    >>> nERU(d=3, half_life=5)([3.0, 2.0, 1.0], [2, 5, 4])
    tensor(0.8409, dtype=torch.float64)
    """

    normalized: ClassVar[bool] = True
