"""Diversity: each document has a group (host, topic), and a good result list shows several groups.

`rankstruct.rerank_diverse` makes a list diverse at test time; `Diverse` measures the resulting list. These measures require
`diversity_groups=`, one id per document, in `evaluate`. Expected values over tied documents have no closed form here, so all of
them declare `under_ties = "worst"`: even with `ties="expected"`, tied documents are ordered lowest labels first, so that ties
never help.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from rankstruct.measures.base import Measure, parse_measure, register_measure, register_prefix
from rankstruct.measures.discounted_gain import WTA, DiscountedGain, Function, mWTA, nDCG
from rankstruct.measures.ranked import RankedLists
from rankstruct.measures.reciprocal_rank import RR
from rankstruct.measures.rounding import elementwise, row_sums
from rankstruct.messages import needs_groups

__all__ = ["Diverse", "StRecall", "alpha_DCG", "alpha_nDCG", "diverse_nDCG", "require_diverse"]


def first_of_groups(diversity_groups: Tensor, where: Tensor) -> Tensor:
    """Whether each document, by rank, is the first real one of its group, `[..., list_size]`.

    >>> first_of_groups(torch.tensor([1, 1, 2, 3]), torch.ones(4, dtype=torch.bool))
    tensor([ True, False,  True,  True])
    """
    return where & (_earlier_of_group(diversity_groups, where.double()) == 0)


def _groups_of(lists: RankedLists, measure: Measure) -> Tensor:
    """The groups of the lists, by rank; ValueError if there are none, or with incompatible arguments."""
    if lists.diversity_groups is None:
        raise needs_groups(measure.name, "id per document: its host or topic")
    if lists.letor:
        raise ValueError(f"the LETOR tool has no {measure.name}; omit convention")
    if lists.num_relevant is not None or lists.ideal_labels is not None:
        raise ValueError(
            f"{measure.name} cannot be combined with num_relevant or ideal_labels, since its best ranking depends on the "
            "groups of the documents"
        )
    return lists.diversity_groups


def require_diverse(measure: Measure) -> None:
    """Raise ValueError for a measure that does not support diverse rankings.

    Raises:
        ValueError: the measure is not a discounted gain or reciprocal rank with a cut-off, WTA or mWTA.
    """
    ends = measure.cutoff is not None or isinstance(measure, WTA | mWTA)
    if not ends or not isinstance(measure, DiscountedGain | mWTA | RR):
        raise ValueError(
            "diverse rankings require a discounted gain or reciprocal rank with a cut-off k, such as nDCG@10, P@10 or "
            f"RR@10, or WTA or mWTA; got {measure.name}"
        )


@dataclass(frozen=True)
class Diverse(Measure):
    """A measure of the diversified list: only the first document of each group, by score.

    A normalised measure is divided by the value of the best diverse ranking, which shows the best documents of the best
    groups. The list-specific cut-off of mWTA is that of the groups' best documents: 3 if there are two grades among the three
    best, otherwise one more than the number of groups with a document of the highest grade. With one document per group, the
    value is that of the measure itself.

    Its name is `diverse_` followed by the name of the measure, such as `diverse_RR@10`.

    Args:
        measure: a discounted gain or `RR` with a cut-off, `WTA` or `mWTA`; or its name.

    Raises:
        ValueError: an unsupported measure.

    Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 7.1.

    >>> measure = Diverse("RR@2")
    >>> measure([3.0, 2.0, 1.0], [0, 0, 1], diversity_groups=["a", "a", "b"])  # shows the first document and the last
    tensor(0.5000, dtype=torch.float64)
    >>> measure.name
    'diverse_RR@2'
    """

    measure: str | Measure
    cutoff: int | None = field(default=None, init=False)
    min_relevant: float | None = field(default=None, init=False)

    takes_groups: ClassVar[bool] = True
    under_ties: ClassVar[str] = "worst"

    def __post_init__(self) -> None:
        plain = parse_measure(self.measure)
        require_diverse(plain)
        for name, value in (("measure", plain), ("cutoff", plain.cutoff), ("min_relevant", plain.min_relevant)):
            object.__setattr__(self, name, value)

    @property
    def plain(self) -> Measure:
        """The measure applied to the diversified list."""
        return parse_measure(self.measure)

    @property
    def name(self) -> str:
        """`diverse_` and the measure's name."""
        return f"diverse_{self.plain.name}"

    @property
    def takes_negative_labels(self) -> bool:
        """Whether the plain measure accepts negative labels."""
        return self.plain.takes_negative_labels

    def worth(self, labels: Tensor) -> Tensor:
        """The sort key of the measure's best ranking."""
        return self.plain.worth(labels)

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """The measure of the documents shown; if it is normalised, relative to the best document of each group."""
        groups = _groups_of(lists, self)
        plain = self.plain
        gains = lists.relevant(plain.min_relevant) if isinstance(plain, RR) else plain.ranked_gains(lists)  # type: ignore[attr-defined]
        by_gain = gains.masked_fill(~lists.where, -1).argsort(dim=-1, descending=True, stable=True)
        heads = first_of_groups(groups.gather(-1, by_gain), lists.where.gather(-1, by_gain))
        ideal = lists.labels.gather(-1, by_gain).masked_fill(~heads, torch.nan)
        shown = first_of_groups(groups, lists.where)
        shown_first = (~shown).long().argsort(dim=-1, stable=True)
        shown = shown.gather(-1, shown_first)
        labels = lists.labels.gather(-1, shown_first).masked_fill(~shown, 0)
        order = lists.order.gather(-1, shown_first)
        return plain.compute(
            replace(lists, labels=labels, where=shown, order=order, diversity_groups=None, ideal_labels=ideal)
        )


register_prefix("diverse_", Diverse)


def diverse_nDCG(
    cutoff: int | None = None,
    *,
    min_relevant: float | None = None,
    discount: str | Function = "log2",
    gain: str | Function = "exponential",
) -> Diverse:
    """`Diverse(nDCG(...))`: DCG@k of the diversified list, divided by that of the best diverse ranking.

    The arguments are those of `nDCG`.

    Raises:
        ValueError: no cut-off.

    Source: as `Diverse`.

    >>> diverse_nDCG(2)([3.0, 2.0, 1.0], [1, 3, 2], diversity_groups=["a", "a", "b"])  # shows 1 and 2; the best shows 3 and 2
    tensor(0.3253, dtype=torch.float64)
    """
    return Diverse(nDCG(cutoff, min_relevant=min_relevant, discount=discount, gain=gain))


@register_measure
@dataclass(frozen=True)
class alpha_DCG(Measure):
    """alpha-DCG or alpha-DCG@k: a relevant document has gain (1 - alpha)^r, with r relevant ones of its group above it.

    The ranking by score is evaluated without diversification.

    Args:
        alpha: the penalty for a repeated group, from 0 (DCG with gains 0 and 1) to 1 (only the first of each group counts).

    Raises:
        ValueError: alpha is not from 0 to 1.

    Source: Clarke, Kolla, Cormack, Vechtomova, Ashkan, Büttcher, MacKinnon, "Novelty and Diversity in Information Retrieval
    Evaluation", SIGIR 2008.

    >>> alpha_DCG(2)([3.0, 2.0, 1.0], [1, 1, 1], diversity_groups=["a", "a", "b"])  # gains 1, 1/2
    tensor(1.3155, dtype=torch.float64)
    """

    alpha: float = field(default=0.5, kw_only=True)

    normalized: ClassVar[bool] = False
    takes_groups: ClassVar[bool] = True
    under_ties: ClassVar[str] = "worst"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_number("alpha", ">= 0 and <= 1")

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """Discounted gains, if normalised divided by those of the greedy ranking: all gains of all groups, largest first."""
        groups = _groups_of(lists, self)
        relevant = lists.relevant(self.min_relevant)
        # A document's r does not depend on how the groups are interleaved, so neither does the set of gains.
        kept = 1.0 - self.alpha
        gains = relevant * elementwise(lambda earlier: kept**earlier, _earlier_of_group(groups, relevant))
        weights = nDCG(self.cutoff).position_weights(gains.shape[-1], gains.device)
        best = row_sums(gains.sort(dim=-1, descending=True).values * weights)
        values = row_sums(gains * weights)
        return values / best if self.normalized else values, best > 0


@register_measure
@dataclass(frozen=True)
class alpha_nDCG(alpha_DCG):
    """alpha-nDCG or alpha-nDCG@k: `alpha_DCG` divided by that of the best ranking. The arguments are those of `alpha_DCG`.

    The best ranking is the greedy one, as in the paper, where exact search is hard; with one group per document, as here, the
    greedy ranking is optimal.

    Source: as `alpha_DCG`.

    >>> alpha_nDCG(2)([3.0, 2.0, 1.0], [1, 1, 1], diversity_groups=["a", "a", "b"])  # gains 1, 1/2; the best has 1, 1
    tensor(0.8066, dtype=torch.float64)
    """

    normalized: ClassVar[bool] = True


def _earlier_of_group(groups: Tensor, relevant: Tensor) -> Tensor:
    """The number of relevant documents of the same group above each document; `relevant` is 0 in the padding."""
    alike = groups.argsort(dim=-1, stable=True)
    sorted_groups, counted = groups.gather(-1, alike), relevant.gather(-1, alike)
    above = counted.cumsum(-1) - counted
    new = torch.ones_like(sorted_groups, dtype=torch.bool)
    new[..., 1:] = sorted_groups[..., 1:] != sorted_groups[..., :-1]
    base = torch.where(new, above, 0.0).cummax(-1).values if above.shape[-1] else above
    return torch.zeros_like(above).scatter(-1, alike, above - base)


@register_measure
@dataclass(frozen=True)
class StRecall(Measure):
    """Subtopic recall at k: of the groups with a relevant document, the share with one among the first k ranks.

    The ranking by score is evaluated without diversification.

    Raises:
        ValueError: no cut-off.

    Source: Zhai, Cohen, Lafferty, "Beyond Independent Relevance: Methods and Evaluation Metrics for Subtopic Retrieval", SIGIR
    2003.

    >>> StRecall(2)([3.0, 2.0, 1.0], [1, 1, 1], diversity_groups=["a", "a", "b"])
    tensor(0.5000, dtype=torch.float64)
    """

    takes_groups: ClassVar[bool] = True
    under_ties: ClassVar[str] = "worst"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cutoff is None:
            raise ValueError("StRecall needs a cut-off; write StRecall(5) or 'StRecall@5'")

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """First relevant documents of their groups among the first k ranks, divided by their total number."""
        groups = _groups_of(lists, self)
        relevant = lists.relevant(self.min_relevant)
        first = first_of_groups(groups, relevant > 0).double()
        total = first.sum(-1)
        return first[:, : self.cutoff].sum(-1) / total, total > 0
