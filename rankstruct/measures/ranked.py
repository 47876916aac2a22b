"""Lists of documents in rank order, the input of every measure.

`rank_lists` checks the values of `Lists`, sorts each list by its scores once for all measures, and yields `RankedLists`:
two-dimensional batches with the best-scored document first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from rankstruct.lists import Lists, at_positions, check_entries, length_buckets, positions

__all__ = ["RankedLists"]

Ties = Literal["expected", "input", "worst", "docid"]
TIES = get_args(Ties)
Empty = Literal[0, 1, "skip", "error"]
Convention = Literal["letor"]


_CELLS = 2**21  # of a batch, padding included
_PER_DOCUMENT = ("diversity_groups", "judged", "pooled", "weights")


@dataclass(frozen=True)
class RankedLists:
    """Lists sorted by score, real documents first. Labels are float64, and 0 in the padding.

    Attributes:
        labels: `[lists, list_size]`, by rank.
        where: `[lists, list_size]` bool, by rank.
        order: `[lists, list_size]`, the index in the input of the document at each rank.
        index: `[lists]`, the number of each list in the input, leading dimensions flattened.
        first: `[lists, list_size]`, for each 0-based rank the first rank of its group of tied documents; None without ties, or
            unless `ties="expected"`.
        last: likewise, the last rank of the group.
        letor: whether the LETOR tool's convention applies.
        num_relevant: `[lists]` float64, the number of relevant documents, or None.
        ideal_labels: `[lists, judged]` float64, NaN as padding, the labels of all judged documents, or None.
        diversity_groups: `[lists, list_size]` int64, by rank, the group of each document, or None.
        positive: `[lists]`, the number of documents that score above 0.
        judged: `[lists, list_size]` bool, by rank, which documents were judged; None for all. The others have label 0.
        pooled: likewise, which documents were in the pool; None for the judged ones.
        weights: `[lists, list_size]` float64, by rank, the item weights, 0 in the padding, or None.

    >>> lists = next(rank_lists(torch.tensor([1.0, 3.0, 2.0]), Lists(torch.tensor([2, 0, 1]))))
    >>> lists.labels, lists.order
    (tensor([[0., 1., 2.]], dtype=torch.float64), tensor([[1, 2, 0]]))
    """

    labels: Tensor
    where: Tensor
    order: Tensor
    index: Tensor
    positive: Tensor
    first: Tensor | None = None
    last: Tensor | None = None
    letor: bool = False
    num_relevant: Tensor | None = None
    ideal_labels: Tensor | None = None
    diversity_groups: Tensor | None = None
    judged: Tensor | None = None
    pooled: Tensor | None = None
    weights: Tensor | None = None

    @property
    def ranks(self) -> Tensor:
        """The ranks 1, 2, ..., `[list_size]` float64."""
        return torch.arange(1, self.labels.shape[-1] + 1, dtype=torch.float64, device=self.labels.device)

    @property
    def lengths(self) -> Tensor:
        """The number of real documents, `[lists]`."""
        return self.where.sum(-1)

    def relevant(self, min_relevant: float | None) -> Tensor:
        """1 for a relevant document, by rank, otherwise 0, `[lists, list_size]` float64."""
        return (is_relevant(self.labels, min_relevant) & self.where).double()

    def total_relevant(self, min_relevant: float | None) -> Tensor:
        """The number of relevant documents, whether in the list or not, `[lists]` float64.

        Raises:
            ValueError: `num_relevant` is smaller than the number in the list.
        """
        here = self.relevant(min_relevant).sum(-1)
        if self.ideal_labels is not None and self.num_relevant is None:
            every = is_relevant(self.ideal_labels, min_relevant).sum(-1).double()  # NaN compares as False
            if bool((here > every).any()):
                at = int((here > every).nonzero()[0])
                raise ValueError(
                    f"ideal_labels must have all documents of a list; those of list {int(self.index[at])} have {every[at]:g} "
                    f"relevant documents, and the list itself has {here[at]:g}"
                )
            return every
        if self.num_relevant is None:
            return here
        if bool((here > self.num_relevant).any()):
            at = int((here > self.num_relevant).nonzero()[0])
            raise ValueError(
                f"num_relevant must count all relevant documents of a list; it is {self.num_relevant[at]:g} for list "
                f"{int(self.index[at])}, which has {here[at]:g}; count with the same min_relevant, or pass ideal_labels"
            )
        return self.num_relevant

    def over_ties(self, values: Tensor) -> Tensor:
        """Replace `values` `[lists, list_size]`, functions of the labels, by their means over each group of tied documents."""
        if self.first is None or self.last is None:
            return values
        # Sums of whole numbers are exact. Others are summed in the order of the labels, not of the input.
        exact = bool(((values == values.round()) & (values.abs() < 2**32)).all())
        if not exact:
            values = values.gather(-1, self._by_label)
        sums = torch.zeros_like(values).scatter_add(-1, self.first, values)
        means = sums.gather(-1, self.first) / (self.last - self.first + 1)
        if exact:
            return means
        if self.weights is not None:
            return means
        labels = self.labels.gather(-1, self._by_label)
        return torch.where(labels.gather(-1, self.first) == labels.gather(-1, self.last), values, means)

    @cached_property
    def _by_label(self) -> Tensor:
        """Indices `[lists, list_size]` that order each group of tied documents by label, lowest first."""
        assert self.first is not None
        order = self.labels.argsort(dim=-1, stable=True)
        return order.gather(-1, self.first.gather(-1, order).argsort(dim=-1, stable=True))

    def reordered(self, places: Tensor) -> RankedLists:
        """The lists reordered by the indices `places` `[lists, list_size]`, without ties."""
        given = {name: getattr(self, name) for name in ("labels", "where", "order", *_PER_DOCUMENT)}
        changed: dict[str, Any] = {name: value.gather(-1, places) for name, value in given.items() if value is not None}
        return replace(self, **changed, first=None, last=None)

    def lowest_first(self) -> RankedLists:
        """The lists with ties broken by label, lowest first."""
        return self if self.first is None else self.reordered(self._by_label)

    def select(self, rows: Tensor) -> RankedLists:
        """Select lists by index; a list may be selected several times."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        changed: dict[str, Any] = {name: value[rows] for name, value in found.items() if isinstance(value, Tensor)}
        return replace(self, **changed)

    def weighted(self, values: Tensor) -> Tensor:
        """`values` `[lists, list_size]`, by rank, times the item weights if given."""
        return values if self.weights is None else values * self.weights

    def refuse_missing(self) -> None:
        """Raise ValueError if there are item weights and relevant documents that were not retrieved."""
        if self.weights is not None and (self.ideal_labels is not None or self.num_relevant is not None):
            raise ValueError(
                "item_weights cannot be combined with ideal_labels or num_relevant: missing documents have no weights"
            )

    def place(self, row: int, rank: int) -> str:
        """The location of a document in the input, for messages."""
        return f"list {int(self.index[row])}, document {int(self.order[row, rank])}"


def is_relevant(labels: Any, min_relevant: float | None) -> Any:
    """Whether labels are relevant: above 0, or at least the grade `min_relevant`.

    Labels are a tensor or an array, and so is the result. They are compared in float32, so that a label 0.7 of any precision
    reaches the grade 0.7.
    """
    if min_relevant is None:
        return labels > 0
    single = labels.float() if isinstance(labels, Tensor) else labels.astype(np.float32, copy=False)
    return single >= min_relevant


def rank_lists(
    scores: Tensor, lists: Lists, ties: Ties = "expected", *, letor: bool = False, signed: bool = False
) -> Iterator[RankedLists]:
    """Check the values of lists and sort them: batches in rank order.

    Padded lists are one batch; flat ones are padded in groups of similar length. Negative labels raise ValueError unless
    `signed`. See `evaluate` for the rest.
    """
    if ties == "docid" and lists.docids is None:
        raise ValueError("ties='docid' breaks ties by document id; pass docids, in the shape of scores")
    for index, real, arrange in lay_out(scores, lists):
        ranked = _rank(arrange(scores), lists.documents(arrange), real, index, ties, signed)
        ideal = lists.ideal_labels
        if ideal is not None:
            places = None if lists.ideal_offsets is None else positions(lists.ideal_offsets, index)
            ideal = ideal[index] if places is None else at_positions(ideal, places, torch.nan)
        counts = None if lists.num_relevant is None else lists.num_relevant[index]
        yield replace(ranked, letor=letor, num_relevant=counts, ideal_labels=ideal)


def lay_out(scores: Tensor, lists: Lists) -> Iterator[tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]]:
    """Yield batches: list numbers, mask, and a function that arranges per-document tensors as `[lists, list_size]`.

    Padded lists are one batch, flat ones a batch for each group of similar length, also of the ideal labels.
    """
    if lists.offsets is None:
        rows = (scores.shape[:-1].numel(), scores.shape[-1])
        real = torch.ones_like(scores, dtype=torch.bool) if lists.where is None else lists.where
        yield torch.arange(rows[0], device=scores.device), real.reshape(rows), lambda values: values.reshape(rows)
        return
    offsets = lists.offsets.to(scores.device)
    others = () if lists.ideal_offsets is None else (lists.ideal_offsets,)
    for index in length_buckets(offsets, *others, cells=_CELLS):
        places = positions(offsets, index)
        yield index, places >= 0, partial(torch.take, index=places.clamp(min=0))


def _rank(scores: Tensor, lists: Lists, where: Tensor, index: Tensor, ties: Ties, signed: bool) -> RankedLists:
    """Check the values of one padded batch and sort it."""
    labels, weights = lists.labels.double(), lists.item_weights

    def place(row: int, column: int) -> str:
        return f"list {int(index[row])}, document {column}"

    if lists.judged is not None:
        labels = labels.masked_fill(~lists.judged, 0)
    if weights is not None:
        check_entries("item_weights", weights, where, 0.0, place)
        where = where & (weights > 0)
        weights = weights.masked_fill(~where, 0)
    check_entries("labels", labels, where, -torch.inf if signed else 0.0, place)
    check_entries("scores", scores, where, -torch.inf, place)
    if ties == "docid":  # trec_eval stores scores as C floats
        scores = scores.float().clamp(torch.finfo(torch.float32).min, torch.finfo(torch.float32).max)
    if not bool(where.all()):
        scores = scores.masked_fill(~where, -torch.inf)
        labels = labels.masked_fill(~where, 0)
    order = None
    if ties == "worst":
        order = labels.argsort(dim=-1, stable=True)
    elif ties == "docid":
        assert lists.docids is not None
        order = lists.docids.argsort(dim=-1, descending=True, stable=True)
    if order is not None:
        scores = scores.gather(-1, order)
    # A stable sort keeps the order from above, or the input order, among equal scores; padding is last.
    ranked_scores, by_score = scores.sort(dim=-1, descending=True, stable=True)
    order = by_score if order is None else order.gather(-1, by_score)
    where = where.gather(-1, order)
    first, last = _tie_groups(ranked_scores, where) if ties == "expected" else (None, None)
    columns = {
        "diversity_groups": lists.diversity_groups,
        "judged": lists.judged,
        "pooled": lists.pooled,
        "weights": weights,
    }
    by_rank: dict[str, Any] = {name: value.gather(-1, order) for name, value in columns.items() if value is not None}
    positive = (ranked_scores > 0).sum(-1)
    return RankedLists(labels.gather(-1, order), where, order, index, positive, first, last, **by_rank)


def _tie_groups(scores: Tensor, where: Tensor) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """First and last 0-based rank of each rank's group of equal scores, or Nones if no real documents tie."""
    same = (scores[:, 1:] == scores[:, :-1]) & where[:, 1:]
    if not bool(same.any()):
        return None, None
    size = scores.shape[-1]
    columns = torch.arange(size, device=scores.device).expand_as(scores)
    alone = torch.ones_like(where[:, :1])
    starts = torch.cat([alone, ~same], dim=-1)
    ends = torch.cat([~same, alone], dim=-1)
    first = columns.where(starts, 0).cummax(-1).values
    last = columns.where(ends, size - 1).flip(-1).cummin(-1).values.flip(-1)
    return first, last
