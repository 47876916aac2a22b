"""Lists of documents in rank order, the input of every measure, and validation of user input.

`rank_lists` accepts padded lists `[..., list_size]` or flat ones with offsets, checks their values, sorts each list by
its scores once for all measures, and yields `RankedLists`: two-dimensional batches with the best-scored document first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from rankstruct.arrays import as_numbers, as_scores
from rankstruct.lists import (
    NOT_NEGATIVE,
    are_single_documents,
    as_offsets,
    check_groups,
    check_lists,
    check_offsets,
    known_ids,
    length_buckets,
    to_tensor,
    warn_of_one_list,
    warn_of_single_documents,
)

__all__ = ["RankedLists"]

Ties = Literal["expected", "input", "worst", "docid"]
TIES = get_args(Ties)
Empty = Literal[0, 1, "skip", "error"]
Convention = Literal["letor"]


_CELLS = 2**21  # of a batch, padding included
_PER_DOCUMENT = ("diversity_groups", "judged", "pooled", "weights")
_WIDE = (torch.int64, torch.uint64)  # dtypes with numbers that float64 does not represent


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

    >>> _, batches = rank_lists(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([2, 0, 1]))
    >>> lists = next(iter(batches))
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
    scores: Any,
    labels: Any,
    where: Any = None,
    *,
    offsets: Any = None,
    ties: Ties = "expected",
    letor: bool = False,
    num_relevant: Any = None,
    ideal_labels: Any = None,
    ideal_offsets: Any = None,
    docids: Any = None,
    diversity_groups: Any = None,
    judged: Any = None,
    pooled: Any = None,
    item_weights: Any = None,
    signed: bool = False,
) -> tuple[torch.Size, Iterator[RankedLists]]:
    """Check and sort the input; returns the shape of the lists and an iterator over batches in rank order.

    Padded input is one batch; flat input is padded in groups of similar length. See `evaluate` for the arguments and errors;
    negative labels raise ValueError unless `signed`. Values are checked during iteration.
    """
    scores, labels = _as_scores(scores, ties), as_real("labels", labels)
    where, offsets = None if where is None else as_tensor("where", where), as_offsets(offsets)
    check_lists(scores, labels, where, offsets)
    _warn_of_shape(scores, where, offsets)
    _check_ties(ties, docids)
    device = scores.device
    scores, labels = scores.detach(), labels.detach().to(device)
    documents = _documents(scores, diversity_groups, judged, pooled, item_weights)
    if "judged" in documents:
        labels = labels.masked_fill(~documents["judged"], 0)
    keys = _docid_keys(docids, scores) if ties == "docid" else None
    lists = scores.shape[:-1] if offsets is None else torch.Size([offsets.shape[0] - 1])
    if num_relevant is not None:
        num_relevant = _check_num_relevant(as_real("num_relevant", num_relevant).to(device), lists)
    ideal_labels, ideal_offsets = _ideal(ideal_labels, ideal_offsets, lists, scores.device, flat=offsets is not None)
    if offsets is not None:
        check_offsets(offsets, scores.shape[0])
    by_list = {"num_relevant": num_relevant, "ideal_labels": ideal_labels if ideal_offsets is None else None}

    def batches() -> Iterator[RankedLists]:
        for index, real, arrange in lay_out(scores, where, offsets, ideal_offsets):
            batch_keys = None if keys is None else arrange(keys)
            given = {name: arrange(each) for name, each in documents.items()}
            if "weights" in given:
                real = real & (_checked_weights(given["weights"], real, index) > 0)
            ranked = _rank(arrange(scores), arrange(labels), real, batch_keys, index, ties, signed)
            by_rank: dict[str, Any] = {name: each.gather(-1, ranked.order) for name, each in given.items()}
            if "weights" in by_rank:
                by_rank["weights"] = by_rank["weights"].masked_fill(~ranked.where, 0)
            of_lists: dict[str, Any] = {name: each[index] for name, each in by_list.items() if each is not None}
            if ideal_offsets is not None:
                of_lists["ideal_labels"] = _rows_of(ideal_labels, ideal_offsets, index)
            yield replace(ranked, letor=letor, **of_lists, **by_rank)

    return lists, batches()


def _ideal(labels: Any, offsets: Any, lists: torch.Size, device: torch.device, *, flat: bool) -> tuple[Any, Any]:
    """Ideal labels as checked tensors, or None."""
    if labels is not None:
        return _check_ideal_labels(as_real("ideal_labels", labels).to(device), as_offsets(offsets), lists, flat=flat)
    if offsets is not None:
        raise ValueError("ideal_offsets require flat ideal_labels; pass these too")
    return None, None


def _warn_of_shape(scores: Tensor, where: Any, offsets: Any) -> None:
    """Warn of shapes that are rarely meant: lists of one document, and one long list."""
    if where is None and are_single_documents(scores):
        warn_of_single_documents(scores)
    warn_of_one_list(scores, where, offsets)


def _check_ties(ties: str, docids: Any) -> None:
    if ties not in TIES:
        raise ValueError(f"ties must be one of {', '.join(map(repr, TIES))}, got {ties!r}")
    if ties == "docid" and docids is None:
        raise ValueError("ties='docid' breaks ties by document id; pass docids, in the shape of scores")


def lay_out(
    scores: Tensor, where: Tensor | None, offsets: Tensor | None, others: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]]:
    """Yield batches: list numbers, mask, and a function that arranges per-document tensors as `[lists, list_size]`.

    Padded lists are one batch, flat ones a batch for each group of similar length, also by other offsets of the lists, `others`;
    none is larger than `_CELLS`, except for a single list.
    """
    if offsets is None:
        rows = (scores.shape[:-1].numel(), scores.shape[-1])
        real = torch.ones_like(scores, dtype=torch.bool) if where is None else where.to(scores.device)
        yield torch.arange(rows[0], device=scores.device), real.reshape(rows), lambda values: values.reshape(rows)
        return
    offsets = offsets.to(scores.device)
    for index in _buckets(offsets, others):
        lengths = offsets.diff()[index].unsqueeze(1)
        columns = torch.arange(int(lengths.max()), device=scores.device)
        real = columns < lengths
        source = torch.where(real, offsets[index].unsqueeze(1) + columns, 0)
        yield index, real, partial(torch.take, index=source)


def _buckets(offsets: Tensor, others: Tensor | None) -> Iterator[Tensor]:
    """Indices of lists of similar lengths, by one or two kinds of offsets."""
    for bucket in length_buckets(offsets):
        size, parts = int(offsets.diff()[bucket].max()), [bucket]
        if others is not None:
            powers = torch.frexp(others.diff()[bucket].double()).exponent
            parts = [bucket[powers == power] for power in powers.unique().tolist()]
        for part in parts:
            most = size if others is None else max(size, int(others.diff()[part].max()))
            yield from part.split(max(1, _CELLS // max(1, most)))


def _rows_of(flat: Tensor, offsets: Tensor, index: Tensor) -> Tensor:
    """Flat values of selected lists as `[lists, longest]`, NaN as padding."""
    lengths = offsets.diff()[index].unsqueeze(1)
    columns = torch.arange(max(1, int(lengths.max())), device=flat.device)
    where = columns < lengths
    source = torch.where(where, offsets[index].unsqueeze(1) + columns, 0)
    return flat.take(source).masked_fill(~where, torch.nan) if flat.numel() else flat.new_full(where.shape, torch.nan)


def _rank(
    scores: Tensor, labels: Tensor, where: Tensor, keys: Tensor | None, index: Tensor, ties: str, signed: bool
) -> RankedLists:
    """Check the values of one padded batch and sort it; `keys` orders tied documents with `docid`, highest first."""
    labels = labels.double()
    for name, values in (("labels", labels), ("scores", scores)):
        above = values > -torch.inf if signed or name == "scores" else values >= 0
        wrong = ~(above & (values < torch.inf)) & where
        if bool(wrong.any()):
            row, column = wrong.nonzero()[0].tolist()
            place, found = f"list {int(index[row])}, document {column}", float(values[row, column])
            if math.isfinite(found):
                raise ValueError(f"{NOT_NEGATIVE}; {place} has {found:g}")
            raise ValueError(f"{name} must be finite; {place} has {found}; fix it, or mask it as padding with where=")
    if keys is not None:  # trec_eval stores scores as C floats
        scores = scores.float().clamp(torch.finfo(torch.float32).min, torch.finfo(torch.float32).max)
    if not bool(where.all()):
        scores = scores.masked_fill(~where, -torch.inf)
        labels = labels.masked_fill(~where, 0)
    order = None
    if ties == "worst":
        order = labels.argsort(dim=-1, stable=True)
    elif keys is not None:
        order = keys.argsort(dim=-1, descending=True, stable=True)
    if order is not None:
        scores = scores.gather(-1, order)
    # A stable sort keeps the order from above, or the input order, among equal scores; padding is last.
    ranked_scores, by_score = scores.sort(dim=-1, descending=True, stable=True)
    order = by_score if order is None else order.gather(-1, by_score)
    where = where.gather(-1, order)
    first, last = _tie_groups(ranked_scores, where) if ties == "expected" else (None, None)
    positive = (ranked_scores > 0).sum(-1)
    return RankedLists(labels.gather(-1, order), where, order, index, positive, first, last)


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


def as_tensor(name: str, values: Any) -> Tensor:
    """Convert arrays and sequences to tensors; tensors are returned unchanged."""
    return values if isinstance(values, Tensor) else to_tensor(as_numbers(name, values))


def as_real(name: str, values: Any) -> Tensor:
    """Convert arrays and sequences to tensors, integers to float64; tensors are returned unchanged."""
    if isinstance(values, Tensor):
        if values.dtype in _WIDE:
            as_numbers(name, values)
        return values
    tensor = as_tensor(name, values)
    return tensor if tensor.is_floating_point() else tensor.double()


def _as_scores(values: Any, ties: str) -> Tensor:
    """Convert scores to floats with the same ties; with `docid` they may be rounded."""
    if isinstance(values, Tensor) and (values.is_floating_point() or values.is_complex() or values.is_nested):
        return values  # checked by `check_lists`
    device = values.device if isinstance(values, Tensor) else None
    found = as_numbers("scores", values, exact=False).astype(np.float64) if ties == "docid" else as_scores(values)
    return to_tensor(found).to(device)


def _docid_keys(docids: Any, scores: Tensor) -> Tensor:
    """Integers in the order of the document ids."""
    if not isinstance(docids, Tensor):
        names = known_ids("docids", docids)
        try:
            docids = torch.as_tensor(np.unique(names, return_inverse=True)[1].reshape(names.shape))
        except TypeError:  # not comparable
            raise TypeError(
                "docids must be all strings or all integers, since they break ties by their order"
            ) from None
    if docids.shape != scores.shape:
        raise ValueError(
            f"docids must have the shape of scores, one id per document; got docids {tuple(docids.shape)} "
            f"and scores {tuple(scores.shape)}"
        )
    return docids.to(scores.device)


def _group_numbers(diversity_groups: Any, scores: Tensor) -> Tensor:
    """Convert groups to int64 in the shape of scores; names are numbered."""
    if not isinstance(diversity_groups, Tensor):
        names = known_ids("diversity_groups", diversity_groups)
        if names.dtype.kind not in "iu":
            names = names.astype(str) if names.dtype.kind == "O" else names
            names = np.unique(names, return_inverse=True)[1].reshape(names.shape)
        diversity_groups = torch.as_tensor(names.astype(np.int64))
    diversity_groups = diversity_groups.to(scores.device)
    check_groups(diversity_groups, scores)
    return diversity_groups.long()


def _documents(scores: Tensor, diversity_groups: Any, judged: Any, pooled: Any, item_weights: Any) -> dict[str, Tensor]:
    """The per-document arguments that were passed, in the shape of scores."""
    found = {}
    if diversity_groups is not None:
        found["diversity_groups"] = _group_numbers(diversity_groups, scores)
    for name, flags in (("judged", judged), ("pooled", pooled)):
        if flags is not None:
            found[name] = _flags(name, flags, scores)
    if item_weights is not None:
        found["weights"] = _item_weights(item_weights, scores)
    return found


def _flags(name: str, flags: Any, scores: Tensor) -> Tensor:
    """One boolean per document, in the shape of scores."""
    flags = as_tensor(name, flags).to(scores.device)
    if flags.dtype != torch.bool:
        raise TypeError(f"{name} must be boolean, one per document, got {flags.dtype}")
    if flags.shape != scores.shape:
        raise ValueError(
            f"{name} must have the shape of scores, one per document; got {name} {tuple(flags.shape)} and scores "
            f"{tuple(scores.shape)}"
        )
    return flags


def _item_weights(weights: Any, scores: Tensor) -> Tensor:
    weights = as_real("item_weights", weights).to(scores.device).double()
    if weights.shape != scores.shape:
        raise ValueError(
            f"item_weights must have the shape of scores, one per document; got item_weights {tuple(weights.shape)} and scores "
            f"{tuple(scores.shape)}"
        )
    return weights


def _checked_weights(weights: Tensor, real: Tensor, index: Tensor) -> Tensor:
    wrong = real & ~((weights >= 0) & weights.isfinite())
    if bool(wrong.any()):
        row, column = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"item_weights must be finite and >= 0; list {int(index[row])}, document {column} has "
            f"{float(weights[row, column]):g}"
        )
    return weights


def _check_num_relevant(num_relevant: Tensor, lists: torch.Size) -> Tensor:
    if num_relevant.shape != lists:
        raise ValueError(f"num_relevant must be one per list, shape {tuple(lists)}; got {tuple(num_relevant.shape)}")
    num_relevant = num_relevant.reshape(-1).double()
    if not bool((num_relevant >= 0).all()):
        at = int((~(num_relevant >= 0)).nonzero()[0])
        raise ValueError(f"num_relevant must be counts >= 0; list {at} has {float(num_relevant[at])}")
    return num_relevant


def _check_ideal_labels(
    ideal_labels: Tensor, offsets: Any, lists: torch.Size, *, flat: bool
) -> tuple[Tensor, Tensor | None]:
    """Labels `[lists, judged]`, or flat with their offsets, in float64."""
    if offsets is not None:
        if not flat:
            raise ValueError("ideal_offsets require flat lists, with offsets, qid or group")
        shape = (lists.numel() + 1,)
        if (
            not isinstance(offsets, Tensor)
            or offsets.dtype != torch.int64
            or offsets.shape != shape
            or ideal_labels.dim() != 1
        ):
            got = f"{tuple(offsets.shape)} {offsets.dtype}" if isinstance(offsets, Tensor) else type(offsets).__name__
            raise ValueError(
                f"ideal_offsets must be int64 {list(shape)}, one more than the number of lists, and ideal_labels flat; got {got} "
                f"and {tuple(ideal_labels.shape)}"
            )
        check_offsets(offsets, ideal_labels.shape[0], "ideal_offsets", "ideal_labels")
        wrong = ~ideal_labels.isfinite()
        if bool(wrong.any()):
            at = int(wrong.nonzero()[0, 0])
            number = int(torch.searchsorted(offsets, at, right=True)) - 1
            raise ValueError(
                f"flat ideal_labels must be finite; those of list {number} contain {float(ideal_labels[at])}"
            )
        return ideal_labels.double(), offsets.to(ideal_labels.device)
    if ideal_labels.dim() != len(lists) + 1 or ideal_labels.shape[:-1] != lists:
        raise ValueError(
            f"ideal_labels must be the labels of all judged documents of each list, NaN as padding, shape "
            f"{(*lists, 'judged')}, or be flat, with ideal_offsets; got {tuple(ideal_labels.shape)}"
        )
    ideal_labels = ideal_labels.reshape(lists.numel(), ideal_labels.shape[-1])
    if bool(ideal_labels.isinf().any()):
        at = int(ideal_labels.isinf().nonzero()[0, 0])
        raise ValueError(f"ideal_labels must be finite, or NaN as padding; those of list {at} contain an infinity")
    return ideal_labels.double(), None
