"""Lists of documents, padded or flat: everything that depends on the two layouts.

Padded: a tensor `[..., list_size]`; the last dimension is the list, all others are batch dimensions. `where` (bool, same
shape) is True for a real document. Flat: a tensor `[documents]` with `offsets` `[lists + 1]`; list i is
`[offsets[i], offsets[i + 1])`. No function here modifies its input.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor

from rankstruct.argument_names import TELL_APART
from rankstruct.arrays import LARGEST, LARGEST_SINGLE, as_array, as_numbers, as_scores
from rankstruct.ids import group_documents, known_ids, list_ids, numbered_ids
from rankstruct.messages import did_you_mean

#: The columns with an entry per document that losses and measures take besides scores and labels.
_PER_DOCUMENT = ("docids", "diversity_groups", "judged", "pooled", "item_weights")


class Lists(NamedTuple):
    """What belongs to the scores of lists: one object, checked once, that travels from a loss or measure to its computation.

    Attributes:
        labels: the shape of the scores, `[..., list_size]` or `[documents]`; gains for the operators that take them.
        where: True for a real document; `where` and `offsets` exclude each other.
        offsets: `[lists + 1]`, of flat lists.
        reference_scores: the shape of the scores.
        diversity_groups: the same.
        item_weights: the same.
        weights: one per list.
        judged: for measures, bool, the shape of the scores, True for a judged document.
        pooled: the same, True for a document in the pool.
        docids: for measures, the shape of the scores, whole numbers in the order of the documents' ids.
        num_relevant: for measures, one per list.
        ideal_labels: for measures, the labels of all judged documents, `[lists, judged]`, or flat with `ideal_offsets`.
        ideal_offsets: `[lists + 1]`.
        columns: for losses under rules, by name, the groups of the documents, in the shape of the scores.
    """

    labels: Tensor
    where: Tensor | None = None
    offsets: Tensor | None = None
    reference_scores: Tensor | None = None
    diversity_groups: Tensor | None = None
    item_weights: Tensor | None = None
    weights: Tensor | None = None
    judged: Tensor | None = None
    pooled: Tensor | None = None
    docids: Tensor | None = None
    num_relevant: Tensor | None = None
    ideal_labels: Tensor | None = None
    ideal_offsets: Tensor | None = None
    columns: Any = None

    def given(self) -> dict[str, Any]:
        """What was given beyond the labels, by the name of the argument."""
        return {name: value for name, value in zip(self._fields[1:], self[1:], strict=True) if value is not None}

    def documents(self, change: Callable[[Tensor], Tensor]) -> Lists:
        """The columns with an entry per document, each changed, such as arranged in another layout."""
        values = ((name, getattr(self, name)) for name in ("labels", "where", "reference_scores", *_PER_DOCUMENT))
        return Lists(**{name: change(value) for name, value in values if value is not None})

    def shape(self) -> torch.Size:
        """The batch dimensions of padded lists, or the number of flat ones."""
        return self.labels.shape[:-1] if self.offsets is None else torch.Size([self.offsets.shape[0] - 1])


def check_tensor(name: str, value: Any) -> None:
    """Raise TypeError unless `value` is a tensor."""
    if not isinstance(value, Tensor):
        dtype = ", dtype=torch.float32" if name == "features" else ""  # NumPy's are float64, scorers are not
        raise TypeError(
            f"{name} must be a torch.Tensor, got {type(value).__name__}; use torch.as_tensor({name}{dtype})"
        )


def check_lists(scores: Tensor, labels: Tensor, where: Tensor | None = None, offsets: Tensor | None = None) -> None:
    """Check types and shapes, never values, so that `torch.compile` can trace it.

    Raises:
        TypeError: something is not a tensor, or has the wrong kind of dtype.
        ValueError: shapes do not match, or both `where` and `offsets` are given.
    """
    for name, value in (("scores", scores), ("labels", labels), ("where", where), ("offsets", offsets)):
        if not (value is None or isinstance(value, Tensor)):
            check_tensor(name, value)
    if not scores.dtype.is_floating_point:
        raise TypeError(f"scores must be floating point, got {scores.dtype}; use scores.float()")
    if labels.dtype.is_complex:
        raise TypeError(f"labels must be real numbers, got {labels.dtype}")
    if scores.is_nested or labels.is_nested:
        raise TypeError(
            "nested tensors are not supported; pass scores.values() and labels.values() with offsets=scores.offsets()"
        )
    if scores.dim() == 0:
        raise ValueError("scores must have at least one dimension, the list; got a scalar")
    if labels.shape != scores.shape:
        raise ValueError(
            f"labels must have the shape of scores, one label per document; got labels {tuple(labels.shape)} "
            f"and scores {tuple(scores.shape)}"
        )
    if labels.device != scores.device:
        raise ValueError(f"labels must be on the device of scores, {scores.device}; got {labels.device}")
    if where is not None:
        if where.device != scores.device:
            raise ValueError(f"where must be on the device of scores, {scores.device}; got {where.device}")
        if offsets is not None:
            raise ValueError("pass where (padded lists) or offsets (flat lists), not both")
        if where.dtype != torch.bool:
            raise TypeError(f"where must be boolean (True = a real document), got {where.dtype}; use where.bool()")
        if where.shape != scores.shape:
            raise ValueError(
                f"where must have the shape of scores; got where {tuple(where.shape)} and scores {tuple(scores.shape)}"
            )
    if offsets is not None:
        if offsets.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"offsets must be int64, got {offsets.dtype}; use offsets.long()")
        if offsets.dim() != 1 or offsets.shape[0] < 1:
            raise ValueError(f"offsets must have shape [lists + 1], got {tuple(offsets.shape)}")
        if scores.dim() != 1:
            raise ValueError(f"with offsets, scores must be flat, shape [documents]; got {tuple(scores.shape)}")


def are_single_documents(scores: Tensor) -> bool:
    """Whether the last dimension, after the documents, is 1 (`[..., documents, 1]`), which makes lists of one document."""
    shape = scores.shape
    return len(shape) > 1 and shape[-1] == 1 < shape[-2] and not torch.compiler.is_compiling()


def warn_of_single_documents(scores: Tensor) -> None:
    """Warn that all lists have one document; see `are_single_documents`."""
    warnings.warn(
        f"scores of shape {tuple(scores.shape)} are lists of one document, which have no order: the last dimension is the "
        "list; use scores.squeeze(-1) to remove the dimension that a model's last layer added",
        stacklevel=2,
    )


def to_tensor(array: np.ndarray) -> Tensor:
    """Convert an array of numbers to a tensor, without a copy if torch can share its memory."""
    if array.dtype.kind == "u" and array.itemsize > 1:  # which torch barely supports
        array = array.astype(np.int64)
    if not array.flags.writeable or any(step < 0 for step in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def as_offsets(offsets: Any) -> Any:
    """Convert whole numbers in any kind of array to an int64 tensor; tensors and None are returned unchanged and unchecked."""
    if offsets is None or isinstance(offsets, Tensor):
        return offsets
    if isinstance(offsets, list | tuple) and all(type(each) is int for each in offsets):  # as torch.compile traces it
        return torch.tensor(offsets, dtype=torch.int64)
    if (
        type(offsets) is np.ndarray
        and offsets.dtype == np.int64
        and offsets.flags.writeable
        and offsets.flags.c_contiguous
    ):
        return torch.from_numpy(offsets)
    found = as_numbers("offsets", offsets)
    whole = found.dtype.kind in "iu" or (found.dtype.kind == "f" and bool((found == np.floor(found)).all()))
    return to_tensor(found.astype(np.int64) if whole else found)


#: Scores `[documents]` without offsets may be one result list up to this length, that of deep runs, without a warning.
_ONE_LIST = 1000


def warn_of_one_list(scores: Tensor, where: Any, offsets: Any) -> None:
    """Warn if scores `[documents]` are one list, of many documents, because nothing says where lists begin."""
    if where is None and offsets is None and scores.dim() == 1 and scores.shape[0] > _ONE_LIST:
        documents = scores.shape[0]
        warnings.warn(
            f"scores of shape ({documents},) are one list of {documents} documents: to separate lists, {TELL_APART}; if they are "
            f"one list, pass group=[{documents}]",
            stacklevel=3,
        )


class ListColumns(TypedDict, total=False):
    """What measures may know of lists besides scores and labels, in any kind of array; see `evaluate`."""

    where: Any
    offsets: Any
    qid: Any
    group: Any
    docids: Any
    diversity_groups: Any
    judged: Any
    pooled: Any
    item_weights: Any
    num_relevant: Any
    ideal_labels: Any
    ideal_offsets: Any


def lists_of(scores: Any, labels: Any, columns: Mapping[str, Any], *, by_docid: bool = False) -> tuple[Tensor, Lists]:
    """Scores and lists as tensors without gradient, from any kind of arrays, with types, shapes and offsets checked.

    With `by_docid`, scores may be rounded to float64; otherwise they tie only if they are equal.

    Raises:
        TypeError, ValueError: as `evaluate`.

    >>> scores, lists = lists_of([2.0, 1.0, 3.0], [0, 1, 1], {"qid": ["b", "a", "b"]})
    >>> scores, lists.labels, lists.offsets
    (tensor([2., 3., 1.], dtype=torch.float64), tensor([0., 1., 1.], dtype=torch.float64), tensor([0, 2, 3]))
    """
    given = {name: value for name, value in columns.items() if value is not None}
    for name, value in ("scores", scores), ("labels", labels), *given.items():
        _check_array(name, value)
    for name in given:
        if name not in ListColumns.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}{did_you_mean(name, ListColumns.__annotations__)}")
    qid, group = given.pop("qid", None), given.pop("group", None)
    given |= {"scores": scores, "labels": labels}
    if qid is not None or group is not None:
        given = _by_list(given, qid, group)
    scores, labels = _as_scores(given["scores"], by_docid), as_real("labels", given["labels"])
    where = as_tensor("where", given["where"]) if "where" in given else None
    offsets = as_offsets(given.get("offsets"))
    check_lists(scores, labels, where, offsets)
    if offsets is not None:
        check_offsets(offsets, scores.shape[0])
    if where is None and are_single_documents(scores):
        warn_of_single_documents(scores)
    warn_of_one_list(scores, where, offsets)
    scores = scores.detach()
    lists = Lists(labels.detach().to(scores.device), where, offsets)
    made = {name: column_of(name, given[name], scores) for name in _PER_DOCUMENT if name in given}
    if "num_relevant" in given:
        made["num_relevant"] = _num_relevant(given["num_relevant"], lists)
    if "ideal_labels" in given:
        ideal = as_real("ideal_labels", given["ideal_labels"]).to(scores.device).double()
        made |= _ideal(ideal, as_offsets(given.get("ideal_offsets")), lists)
    elif "ideal_offsets" in given:
        raise ValueError("ideal_offsets require flat ideal_labels; pass these too")
    return scores, lists._replace(**made)


def _check_array(name: str, values: Any) -> None:
    """Raise TypeError for dictionaries, such as runs, and for sparse matrices, whose absent entries mean nothing here."""
    if isinstance(values, Mapping):
        runs = "; pass runs and qrels as evaluate(measures=..., **rankstruct.data.join_run(run, qrels).arguments)"
        raise TypeError(
            f"{name} must be an array, got a {type(values).__name__}{runs if name in ('scores', 'labels') else ''}"
        )
    if hasattr(values, "tocsr") or (
        isinstance(values, Tensor) and values.layout != torch.strided and not values.is_nested
    ):
        dense = f"{name}.to_dense()" if isinstance(values, Tensor) else f"{name}.toarray()"
        raise TypeError(
            f"{name} must be dense, got a sparse {type(values).__name__}; pass {dense}, and where= if absent entries are padding"
        )


def _by_list(given: dict[str, Any], qid: Any, group: Any) -> dict[str, Any]:
    """The arguments with the documents of a list together, and offsets in place of `qid` or `group`."""
    if "where" in given or "offsets" in given:
        raise ValueError("pass only one of qid or group, where, and offsets to define the lists")
    shape = tuple(np.shape(given["scores"]))
    ids = numbered_ids("qid", list_ids(shape[0] if shape else 0, qid, group))
    if len(shape) != 1 or ids.shape != shape:
        raise ValueError(f"qid must have one entry per document, with scores [documents]; got {ids.shape} and {shape}")
    if group is not None:  # sizes of 0 are lists too
        return given | {"offsets": np.concatenate([[0], np.cumsum(as_numbers("group", group), dtype=np.int64)])}
    order, offsets = group_documents(ids)
    for name in ("scores", "labels", *_PER_DOCUMENT) if order is not None else ():
        if name in given:
            values = known_ids(name, given[name]) if name in ("docids", "diversity_groups") else given[name]
            if tuple(np.shape(values)) != shape:
                raise ValueError(f"{name} must be one per document, shape {shape}; got {tuple(np.shape(values))}")
            is_tensor = isinstance(values, Tensor)
            places = torch.from_numpy(order).to(values.device) if is_tensor else order
            given = given | {name: (values if is_tensor else as_array(name, values))[places]}
    return given | {"offsets": offsets}


def real_documents(scores: Tensor, lists: Lists) -> tuple[Tensor, np.ndarray]:
    """The places of the real documents in the flattened scores, list by list, and the offsets `[lists + 1]` of their lists.

    >>> real_documents(torch.zeros(2, 2), Lists(torch.zeros(2, 2), torch.tensor([[True, False], [True, True]])))
    (tensor([0, 2, 3]), array([0, 1, 3]))
    """
    if lists.offsets is not None:
        return torch.arange(scores.shape[0]), lists.offsets.cpu().numpy().astype(np.int64)
    if lists.where is None:
        return torch.arange(scores.numel()), np.arange(math.prod(scores.shape[:-1]) + 1) * scores.shape[-1]
    where = lists.where.cpu()
    ends = np.append(0, np.cumsum(where.sum(-1).reshape(-1).numpy()))
    return where.reshape(-1).nonzero().squeeze(-1), ends


def finite_values(name: str, values: Tensor, rows: Tensor) -> np.ndarray:
    """The values of these places in the flattened tensor, float64; raises ValueError if one is not finite."""
    found: np.ndarray = values.detach().reshape(-1).cpu().double()[rows].numpy()
    if len(wrong := np.flatnonzero(~np.isfinite(found))):
        raise ValueError(f"{name} must be finite, got {found[wrong[0]]} at document {int(rows[wrong[0]])}")
    return found


def as_tensor(name: str, values: Any) -> Tensor:
    """Convert arrays and sequences to tensors; tensors are returned unchanged."""
    return values if isinstance(values, Tensor) else to_tensor(as_numbers(name, values))


def as_real(name: str, values: Any) -> Tensor:
    """Convert arrays and sequences to tensors, integers to float64; tensors are returned unchanged."""
    if isinstance(values, Tensor):
        if values.dtype in (torch.int64, torch.uint64):  # with numbers that float64 does not represent
            as_numbers(name, values)
        return values
    tensor = as_tensor(name, values)
    return tensor if tensor.is_floating_point() else tensor.double()


def _as_scores(values: Any, rounded: bool) -> Tensor:
    """Convert scores to floats, with the same ties unless they may be rounded."""
    if isinstance(values, Tensor) and (values.is_floating_point() or values.is_complex() or values.is_nested):
        return values  # checked by `check_lists`
    device = values.device if isinstance(values, Tensor) else None
    numbers = as_numbers("scores", values, exact=False).astype(np.float64) if rounded else as_scores(values)
    return to_tensor(numbers).to(device)


def column_of(name: str, values: Any, scores: Tensor) -> Tensor:
    """One entry per document, in the shape and on the device of the scores; ids as whole numbers in their order."""
    if name in ("docids", "diversity_groups") and not isinstance(values, Tensor):
        values = _numbers_of_names(name, values)
    values = (as_real if name == "item_weights" else as_tensor)(name, values).to(scores.device)
    if values.shape != scores.shape:
        raise ValueError(
            f"{name} must have the shape of scores, one per document; got {name} {tuple(values.shape)} and scores "
            f"{tuple(scores.shape)}"
        )
    if name in ("judged", "pooled") and values.dtype != torch.bool:
        raise TypeError(f"{name} must be boolean, one per document, got {values.dtype}")
    if name == "diversity_groups":
        check_groups(values, scores)
        return values.long()
    return values.double() if name == "item_weights" else values


def _numbers_of_names(name: str, values: Any) -> Tensor:
    names = known_ids(name, values)
    if name == "diversity_groups" and names.dtype.kind in "iu":
        return torch.as_tensor(names.astype(np.int64))
    if name == "diversity_groups" and names.dtype.kind == "O":
        names = names.astype(str)
    try:
        return torch.as_tensor(np.unique(names, return_inverse=True)[1].reshape(names.shape))
    except TypeError:  # not comparable
        raise TypeError(f"{name} must be all strings or all integers, since they break ties by their order") from None


def _num_relevant(num_relevant: Any, lists: Lists) -> Tensor:
    """Counts `[lists]` float64."""
    counts = as_real("num_relevant", num_relevant).to(lists.labels.device)
    if counts.shape != lists.shape():
        raise ValueError(f"num_relevant must be one per list, shape {tuple(lists.shape())}; got {tuple(counts.shape)}")
    counts = counts.reshape(-1).double()
    whole = (counts >= 0) & counts.isfinite() & (counts == counts.floor())
    if not bool(whole.all()):
        at = int((~whole).nonzero()[0])
        raise ValueError(f"num_relevant must be counts, whole numbers >= 0; list {at} has {float(counts[at])}")
    return counts


def _ideal(labels: Tensor, offsets: Any, lists: Lists) -> dict[str, Tensor]:
    """Ideal labels `[lists, judged]`, NaN as padding, or flat with their offsets."""
    many = lists.shape()
    if offsets is None:
        if labels.dim() != len(many) + 1 or labels.shape[:-1] != many:
            raise ValueError(
                f"ideal_labels must be the labels of all judged documents of each list, NaN as padding, shape "
                f"{(*many, 'judged')}, or be flat, with ideal_offsets; got {tuple(labels.shape)}"
            )
        labels = labels.reshape(many.numel(), labels.shape[-1])
        if bool(labels.isinf().any()):
            at = int(labels.isinf().nonzero()[0, 0])
            raise ValueError(f"ideal_labels must be finite, or NaN as padding; those of list {at} contain an infinity")
        return {"ideal_labels": labels}
    if lists.offsets is None:
        raise ValueError("ideal_offsets require flat lists, with offsets, qid or group")
    shape = (many.numel() + 1,)
    is_tensor = isinstance(offsets, Tensor)
    if not is_tensor or offsets.dtype != torch.int64 or offsets.shape != shape or labels.dim() != 1:
        got = f"{tuple(offsets.shape)} {offsets.dtype}" if is_tensor else type(offsets).__name__
        raise ValueError(
            f"ideal_offsets must be int64 {list(shape)}, one more than the number of lists, and ideal_labels flat; got {got} "
            f"and {tuple(labels.shape)}"
        )
    check_offsets(offsets, labels.shape[0], "ideal_offsets", "ideal_labels")
    wrong = ~labels.isfinite()
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0, 0])
        number = int(torch.searchsorted(offsets, at, right=True)) - 1
        raise ValueError(f"flat ideal_labels must be finite; those of list {number} contain {float(labels[at])}")
    return {"ideal_labels": labels, "ideal_offsets": offsets.to(labels.device)}


def is_under_autocast(values: Tensor) -> bool:
    """Whether autocast is enabled for the tensor's device; some devices do not support it.

    >>> is_under_autocast(torch.zeros(3, device="meta"))
    False
    """
    kind = values.device.type
    return (kind == "cpu" or torch.amp.is_autocast_available(kind)) and torch.is_autocast_enabled(kind)


def is_plain(values: Tensor) -> bool:
    """Whether the values can be read at no cost: on the CPU, not traced and not while a transform of torch.func is active.

    Under a transform even a tensor that it does not wrap cannot be read: what torch computes from it, such as `detach`, may be
    wrapped.

    >>> is_plain(torch.zeros(3)), is_plain(torch.zeros(3, device="meta"))
    (True, False)
    """
    return values.is_cpu and is_concrete(values)


def is_concrete(values: Tensor) -> bool:
    """Whether the values are there, on whatever device: not traced and not while a transform of torch.func is active."""
    if type(values) is not Tensor or torch.compiler.is_compiling():
        return False
    if torch._C._are_functorch_transforms_active():  # torch.func has no public test
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(values)  # what a transform has left behind


def copied_to(device: torch.device, values: Tensor) -> Tensor:
    """The values on a device; a copy from the CPU does not wait until the device has done what it was told before.

    >>> copied_to(torch.device("meta"), torch.zeros(2)).device
    device(type='meta')
    """
    return values.to(device, non_blocking=values.is_cpu)


def is_eager(values: Tensor) -> bool:
    """Whether the values are plain and no transform of torch.func, dispatch mode or `torch.jit.trace` is active."""
    if type(values) is not Tensor or not values.is_cpu or torch.compiler.is_compiling():
        return False
    watched = torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack()
    return not watched and torch._C._get_tracing_state() is None


def check_groups(diversity_groups: Tensor, scores: Tensor) -> None:
    """Check type, shape and device of `diversity_groups`, one whole number per document.

    Raises:
        TypeError: not a tensor, or not of whole numbers.
        ValueError: shape or device differ from those of `scores`.
    """
    if not isinstance(diversity_groups, Tensor):
        raise TypeError(
            f"diversity_groups must be a torch.Tensor, got {type(diversity_groups).__name__}; pass one whole number per "
            "document"
        )
    dtype = diversity_groups.dtype
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        raise TypeError(
            f"diversity_groups must be whole numbers, one per document, got {dtype}; use diversity_groups.long()"
        )
    if diversity_groups.shape != scores.shape:
        raise ValueError(
            f"diversity_groups must have the shape of scores, one per document; got {tuple(diversity_groups.shape)} and "
            f"{tuple(scores.shape)}"
        )
    if diversity_groups.device != scores.device:
        raise ValueError(
            f"diversity_groups must be on the device of scores, {scores.device}; got {diversity_groups.device}"
        )


def check_offsets(offsets: Tensor, documents: int, name: str = "offsets", what: str = "documents") -> None:
    """Check the values of `offsets` `[lists + 1]`: from 0 to `documents`, never decreasing; raises ValueError."""
    first, last = int(offsets[0]), int(offsets[-1])
    if first != 0 or last != documents:
        raise ValueError(f"{name} must start at 0 and end at the number of {what}, {documents}; got {first} to {last}")
    steps = offsets.diff()
    if bool((steps < 0).any()):
        at = int((steps < 0).nonzero()[0])
        raise ValueError(
            f"{name} must not decrease; {name}[{at}] = {int(offsets[at])} > {name}[{at + 1}] = {int(offsets[at + 1])}"
        )


def longest_list(offsets: Tensor, documents: int) -> int:
    """The size of the longest list, of offsets on the CPU; raises ValueError if they are not in order."""
    bounds = offsets.numpy()
    sizes = bounds[1:] - bounds[:-1]
    if bounds[0] != 0 or bounds[-1] != documents or (sizes.size and sizes.min() < 0):
        check_offsets(offsets, documents)
    return int(sizes.max(initial=0))


def positions(offsets: Tensor, lists: Tensor | None = None) -> Tensor:
    """The flat position of each document, `[lists, longest list]`, -1 in the padding; of the lists with these numbers, or of all.

    >>> positions(torch.tensor([0, 2, 3]))
    tensor([[ 0,  1],
            [ 2, -1]])
    """
    first, lengths = offsets[:-1], offsets.diff()
    if lists is not None:
        first, lengths = first[lists], lengths[lists]
    columns = torch.arange(int(lengths.max()) if lengths.numel() else 0, device=offsets.device)
    return torch.where(columns < lengths.unsqueeze(1), first.unsqueeze(1) + columns, -1)


def at_positions(flat: Tensor, places: Tensor, fill: float = 0) -> Tensor:
    """Flat values at the results of `positions`, with `fill` in the padding."""
    shape = (*places.shape, *flat.shape[1:])
    if flat.shape[0] == 0:
        return flat.new_full(shape, fill)
    values = flat.index_select(0, places.clamp(min=0).reshape(-1)).view(shape)
    values[places < 0] = fill
    return values


def pad(flat: Tensor, offsets: Tensor, fill: float = 0) -> tuple[Tensor, Tensor]:
    """Pad flat values `[documents, ...]` to `(padded [lists, longest list, ...], where)`, with `fill` in the padding.

    Offsets may be on another device; those on the CPU are read without synchronising with the values' device.

    >>> pad(torch.tensor([1, 2, 3]), torch.tensor([0, 2, 3]))
    (tensor([[1, 2], [3, 0]]), tensor([[ True,  True], [ True, False]]))
    """
    places = positions(offsets).to(flat.device)
    return at_positions(flat, places, fill), places >= 0


def list_of_each(offsets: Tensor, documents: int) -> Tensor:
    """The list of each document of flat lists, `[documents]` int64 on the device of the offsets; any list if they are wrong.

    >>> list_of_each(torch.tensor([0, 2, 3]), 3)
    tensor([0, 0, 1])
    """
    place = torch.arange(documents, device=offsets.device)
    return torch.searchsorted(offsets[1:], place, right=True).clamp(max=max(offsets.shape[0] - 2, 0))


def unpad(padded: Tensor, offsets: Tensor, documents: int) -> Tensor:
    """The inverse of `pad`: flat values `[documents]` from `padded` `[lists, longest list]`.

    >>> unpad(torch.tensor([[1, 2], [3, 0]]), torch.tensor([0, 2, 3]), 3)
    tensor([1, 2, 3])
    """
    numbers = list_of_each(offsets, documents)
    rows = numbers * padded.shape[-1] + torch.arange(documents, device=offsets.device) - offsets[numbers]
    return padded.reshape(-1)[rows.clamp(0, max(padded.numel() - 1, 0)).to(padded.device)]


def sums_of_lists(values: Tensor, offsets: Tensor | None) -> Tensor:
    """The sum of the document's list for each document, in a shape that broadcasts to that of `values`.

    >>> sums_of_lists(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 3]))
    tensor([3., 3., 4.])
    """
    if offsets is None:
        return values.sum(-1, keepdim=True)
    numbers = list_of_each(copied_to(values.device, offsets), values.shape[0])  # offsets have not been checked
    return values.new_zeros(max(offsets.shape[0] - 1, 1)).index_add(0, numbers, values)[numbers]


def batch_first(value: Tensor, dim: int | None, size: int) -> Tensor:
    """A vmap rule's tensor with its batch dimension first: moved there, or expanded to `size` if it has none.

    >>> batch_first(torch.zeros(2, 3), 1, 3).shape, batch_first(torch.zeros(2), None, 3).shape
    (torch.Size([3, 2]), torch.Size([3, 2]))
    """
    return value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)


def vmap_rule(operator: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, int]]:
    """The vmap rule of an operator that treats the leading dimensions of all its tensors as batch dimensions."""

    def rule(info: Any, in_dims: Any, *given: Any) -> tuple[Tensor, int]:
        pairs = zip(given, in_dims, strict=True)
        front = [batch_first(v, dim, info.batch_size) if isinstance(v, Tensor) else v for v, dim in pairs]
        return operator(*front), 0

    return rule


def refuse(values: Tensor, wrong: Tensor, rule: str, what: str = "document") -> Tensor:
    """`values` if nothing is `wrong` (bool, same shape); otherwise raise ValueError on the CPU, NaN on other devices.

    >>> refuse(torch.tensor([1.0, -2.0]), torch.tensor([False, True]), "weights must be >= 0", "list")
    Traceback (most recent call last):
    ...
    ValueError: weights must be >= 0; that of list 1 is -2
    """
    if is_plain(wrong) and not bool(wrong.any()):  # the usual case, at less than an operator's cost
        return values
    return torch.where(_refuse(values.detach(), wrong, rule, what), torch.nan, values)


# An operator, so that `torch.compile` does not inspect the values.
@torch.library.custom_op("rankstruct::refuse", mutates_args=())
def _refuse(values: Tensor, wrong: Tensor, rule: str, what: str) -> Tensor:
    if values.device.type == "cpu" and bool(wrong.any()):
        at = wrong.nonzero()[0].tolist()
        place = f" {at[0] if len(at) == 1 else at}" if at else ""
        raise ValueError(f"{rule}; that of {what}{place} is {float(values[tuple(at)]):g}")
    return wrong.clone()


@_refuse.register_fake
def _(values: Tensor, wrong: Tensor, rule: str, what: str) -> Tensor:
    return torch.empty_like(wrong)


_refuse.register_vmap(vmap_rule(_refuse))


def are_usual(values: Tensor, least: float) -> bool:
    """Whether all numbers, including padding, are finite and at least `least`, in one pass; False if they cannot be read."""
    if not is_plain(values):
        return False
    if values.numel() == 0:
        return True
    lowest, highest = (each.item() for each in values.aminmax())  # NaN if there is one
    return least <= lowest > -math.inf and highest < math.inf


def check_entries(
    name: str, values: Tensor, real: Tensor, least: float, place: Callable[[int, int], str] | None = None
) -> None:
    """Raise ValueError if the number of a real document is not finite, or less than `least`.

    Args:
        name: what messages call them.
        values, real: the numbers, and the mask of real documents, of the same shape.
        least: the lowest number allowed.
        place: from the indices of a number to where the caller finds it; these indices if None.
    """
    if not values.dtype.is_signed or are_usual(values, least):
        return
    finite, below = f"{name} must be finite", NOT_NEGATIVE
    if name not in ("scores", "labels"):
        finite = below = f"{finite} and >= {least:g}"
    for rule, wrong in ((finite, ~values.isfinite()), (below, values < least)):
        broken = (real & wrong).nonzero()
        if len(broken) == 0:
            continue
        at = broken[0].tolist()
        value = float(values[tuple(at)])
        if place is not None:
            way_out = "" if below in (rule, finite) else "; fix it, or mask it as padding with where="
            raise ValueError(f"{rule}; {place(*at)} has {value:g}{way_out}")
        document = f"document {at[0] if len(at) == 1 else at}"
        if rule == finite:
            raise ValueError(f"{rule}; {document} is {value}. Padding belongs in where")
        raise ValueError(f"{rule}; that of {document} is {value:g}")


def checked_item_weights(
    item_weights: Tensor, scores: Tensor, real: Tensor, dtype: torch.dtype | None = None
) -> Tensor:
    """Item weights, by default with the dtype of the scores; those that are negative or not finite raise ValueError, and are NaN
    on other devices.

    Raises:
        TypeError: not a tensor.
        ValueError: shape or device differ from those of `scores`.
    """
    check_tensor("item_weights", item_weights)
    if item_weights.shape != scores.shape or item_weights.device != scores.device:
        raise ValueError(
            f"item_weights must be one per document, shape {tuple(scores.shape)} on {scores.device}; got "
            f"{tuple(item_weights.shape)} on {item_weights.device}"
        )
    each = item_weights.detach().to(scores.dtype if dtype is None else dtype)
    wrong = real & ~((each >= 0) & each.isfinite())
    return refuse(each, wrong, "item_weights must be finite and >= 0")


def _extremes(values: Tensor) -> tuple[float, float]:
    """The lowest and the highest value, NaN where they cannot be read at no cost or NumPy does not support the dtype."""
    if not is_plain(values) or not values.numel() or values.dtype == torch.bfloat16:
        return math.nan, math.nan
    array = values.detach().numpy()
    return float(array.min()), float(array.max())


def without_weight_zero(scores: Tensor, lists: Lists) -> Lists:
    """Mask documents of item weight 0; flat lists may then have both `where` and `offsets`.

    Item weights are checked; they are removed if all that remain are 1, where that can be read at no cost.
    """
    assert lists.item_weights is not None
    if lists.where is None and is_plain(scores) and getattr(lists.item_weights, "shape", None) == scores.shape:
        lowest, highest = _extremes(lists.item_weights)
        if 0 < lowest <= highest < math.inf:  # the usual case, in two passes
            return lists._replace(item_weights=None if lowest == highest == 1 else lists.item_weights.detach())
    real = torch.ones_like(scores, dtype=torch.bool) if lists.where is None else lists.where
    each = checked_item_weights(lists.item_weights, scores, real, torch.float64)
    kept = real & (each != 0)
    each = torch.where(kept, each, 1.0)
    if not is_plain(each):
        return lists._replace(where=kept, item_weights=each)
    where = lists.where if lists.where is None and bool(kept.all()) else kept
    return lists._replace(where=where, item_weights=None if bool((each == 1).all()) else each)


#: The message for a label below 0.
NOT_NEGATIVE = (
    "labels must be 0 or more (other libraries pad with -1 or -100: mask padding with where=labels >= 0; if -1 means "
    "irrelevant, pass labels > 0; shift labels that are meant to be negative)"
)


def refuse_inexact(labels: Tensor, where: Tensor | None, dtype: torch.dtype) -> None:
    """Raise ValueError if the label of a real document is a whole number that `dtype` cannot represent: two could become equal.

    Checked on the CPU only, at no cost.

    >>> refuse_inexact(torch.tensor([2**24, 2**24 + 1]), None, torch.float32)
    Traceback (most recent call last):
    ...
    ValueError: labels must be whole numbers that float32 represents exactly, up to 16777216; that of document 1 is 16777217: ...
    """
    largest = LARGEST if dtype == torch.float64 else LARGEST_SINGLE
    if labels.dtype not in (torch.int32, torch.int64) or not is_plain(labels) or not labels.numel():
        return
    if labels.numpy().max() <= largest:
        return
    wrong = labels.to(dtype).to(labels.dtype) != labels
    wrong = wrong if where is None else wrong & where
    if bool(wrong.any()):
        at = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"labels must be whole numbers that {str(dtype).removeprefix('torch.')} represents exactly, up to {largest}; that of "
            f"document {at[0] if len(at) == 1 else at} is {int(labels[tuple(at)])}: use their ranks"
            + (", or pass scores.double()" if dtype != torch.float64 else "")
        )


def refuse_negative(labels: Tensor, where: Tensor | None) -> Tensor:
    """`labels` if those of real documents are 0 or more; otherwise raise ValueError on the CPU, NaN on other devices.

    >>> refuse_negative(torch.tensor([1, -100]), torch.tensor([True, False]))
    tensor([   1, -100])
    """
    if not labels.dtype.is_signed:
        return labels
    if is_plain(labels):
        # NumPy's is several times as fast for integers.
        values = labels.detach() if labels.dtype == torch.bfloat16 else labels.detach().numpy()
        if labels.numel() == 0 or not values.min() < 0:
            return labels
    return refuse(labels, labels < 0 if where is None else where & (labels < 0), NOT_NEGATIVE)


def length_buckets(*offsets: Tensor, cells: int | None = None) -> Iterator[Tensor]:
    """Indices of the lists, grouped so that within a group no list is more than twice as long as another, by any of the offsets.

    Padding each group separately at most doubles the memory of the flat layout. No group has more than `cells` documents with
    padding, except for a single list.

    >>> [bucket.tolist() for bucket in length_buckets(torch.tensor([0, 3, 103, 106, 108]))]
    [[0, 2, 3], [1]]
    """
    lengths = torch.stack([each.diff() for each in offsets])
    powers = torch.frexp(lengths.double()).exponent
    kind = powers[0]
    for power in powers[1:]:
        kind = kind * 64 + power
    for each in kind.unique().tolist():
        bucket = (kind == each).nonzero().squeeze(1)
        if cells is None:
            yield bucket
        else:
            yield from bucket.split(max(1, cells // max(1, int(lengths[:, bucket].max()))))
