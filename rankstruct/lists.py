"""Lists of documents, padded or flat: everything that depends on the two layouts.

Padded: a tensor `[..., list_size]`; the last dimension is the list, all others are batch dimensions. `where` (bool, same
shape) is True for a real document. Flat: a tensor `[documents]` with `offsets` `[lists + 1]`; list i is
`[offsets[i], offsets[i + 1])`. No function here modifies its input.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial, wraps
from inspect import Parameter, signature
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from rankstruct.arrays import LARGEST, LARGEST_SINGLE, as_array, as_numbers, is_missing


class Lists(NamedTuple):
    """What belongs to the scores of lists: one object, checked once, that travels from a loss to the operators.

    Attributes:
        labels: the shape of the scores, `[..., list_size]` or `[documents]`; gains for the operators that take them.
        where: True for a real document; at most one of `where` and `offsets` is given.
        offsets: `[lists + 1]`, of flat lists.
        reference_scores: the shape of the scores.
        diversity_groups: the same.
        item_weights: the same.
        weights: one per list.
    """

    labels: Tensor
    where: Tensor | None = None
    offsets: Tensor | None = None
    reference_scores: Tensor | None = None
    diversity_groups: Tensor | None = None
    item_weights: Tensor | None = None
    weights: Tensor | None = None

    def given(self) -> dict[str, Tensor]:
        """What was given beyond the labels, by the name of the argument."""
        return {name: value for name, value in zip(self._fields[1:], self[1:], strict=True) if value is not None}


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
    return scores.dim() > 1 and scores.shape[-1] == 1 < scores.shape[-2] and not torch.compiler.is_compiling()


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


#: Names of arguments in other libraries, and what to pass here.
_OFFSETS = (
    "pass offsets=, the start of each list of contiguous documents and the end of the last one, such as "
    "[0, *itertools.accumulate(sizes)] with sizes = torch.unique_consecutive(qid, return_counts=True)[1].tolist()"
)
_CUTOFFS = {
    name: f"there is no {name}=; append the cut-off to the measure's name, such as 'nDCG@10'"
    for name in ("k", "top_k", "at")
}
_OTHER_NAMES = _CUTOFFS | {
    "mask": "there is no mask=; pass where=, True for a real document and False for padding",
    **{name: f"there is no {name}=, the list of each document; {_OFFSETS}" for name in ("indexes", "qid", "query_ids")},
    **{name: f"there is no {name}=, the size of each list; {_OFFSETS}" for name in ("group", "lengths")},
    "groups": f"there is no groups=; hosts or topics are diversity_groups=; to separate lists, {_OFFSETS}",
    "sample_weight": "there is no sample_weight=; pass weights=, one per list, or item_weights=, one per document",
    **{
        name: f"there is no {name}=; the arguments are scores and labels"
        for name in ("preds", "target", "y_true", "y_pred")
    },
}


def refuse_groups_of_lists(diversity_groups: Any, lists: Sequence[int], instead: str = _OFFSETS) -> None:
    """Raise ValueError for groups that no measure uses if all documents are one list (the shape `lists` is empty): the caller
    meant to separate lists.
    """
    if diversity_groups is not None and not lists:
        raise ValueError(
            "diversity_groups= are hosts or topics, used by diversity measures only; all documents would be one list. "
            f"To separate lists, {instead}"
        )


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


def refuse_other_names(given: Iterable[str], other_names: Mapping[str, str] = _OTHER_NAMES) -> None:
    """Raise TypeError, with the right argument, for an argument with the name that it has in other libraries."""
    for name in given:
        if name in other_names:
            raise TypeError(other_names[name])


_Called = TypeVar("_Called", bound=Callable[..., Any])


def by_position(function: Callable[..., Any]) -> list[str] | None:
    """The names of the arguments that a function takes by position; None if it takes any number."""
    takes = signature(function).parameters.values()
    if any(each.kind is Parameter.VAR_POSITIONAL for each in takes):
        return None
    return [each.name for each in takes if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]


def refuse_positions(names: Sequence[str], given: Sequence[Any]) -> None:
    """Raise TypeError, with the way out, if more arguments than those with these names were given by position."""
    if len(given) > len(names):
        raise TypeError(
            f"only {' and '.join(filter(None, [', '.join(names[:-1]), *names[-1:]]))} may be given by position, and "
            f"{len(given)} arguments were; pass the others by name, a mask as where=, True for a real document and False for "
            "padding"
        )


def refusing(refuse: Callable[[Iterable[str]], None]) -> Callable[[_Called], _Called]:
    """A decorator that passes a function's keyword arguments to `refuse` first, and refuses too many others with the way out;
    the signature is unchanged.
    """

    def decorate(function: _Called) -> _Called:
        names = by_position(function)

        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            refuse(named)
            if names is not None:
                own = 1 if names[:1] == ["self"] else 0
                refuse_positions(names[own:], given[own:])
            return function(*given, **named)

        return call  # type: ignore[return-value]

    return decorate


#: A decorator for a function that takes lists as losses do: arguments named as in other libraries raise a helpful error.
knows_offsets = refusing(refuse_other_names)
#: The hint for functions that accept `qid` and `group` to separate lists.
TELL_APART = "pass qid=, the list of each document"
_BESIDE_QID = {name: said for name, said in _OTHER_NAMES.items() if name not in ("qid", "group")}
_BESIDE_QID |= {name: f"there is no {name}=; {TELL_APART}" for name in ("indexes", "query_ids")}
_BESIDE_QID["lengths"] = "there is no lengths=; pass group=, the size of each list"
#: The message for an argument `groups=` of a function that accepts `qid`, `group` and `diversity_groups`.
NO_GROUPS = _BESIDE_QID["groups"] = (
    "there is no groups=; hosts or topics are diversity_groups=, sizes of lists group=, the list of each document qid="
)
#: A decorator for a function that accepts `qid` and `group`: arguments named as in other libraries raise a helpful error.
knows_qid = refusing(partial(refuse_other_names, other_names=_BESIDE_QID))


def knows_cutoffs(function: _Called) -> _Called:
    """A decorator that rejects `k=`, `top_k=` and `at=`, unless the function has them: the measure's name has the cut-off."""
    own = signature(function).parameters
    others = {name: said for name, said in _CUTOFFS.items() if name not in own}
    return refusing(partial(refuse_other_names, other_names=others))(function)


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
    if type(values) is not Tensor or not values.is_cpu or torch.compiler.is_compiling():
        return False
    if torch._C._are_functorch_transforms_active():  # torch.func has no public test
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(values)  # what a transform has left behind


def is_eager(values: Tensor) -> bool:
    """Whether the values are plain and no transform of torch.func, dispatch mode or `torch.jit.trace` is active."""
    if type(values) is not Tensor or not values.is_cpu or torch.compiler.is_compiling():
        return False
    watched = torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack()
    return not watched and torch._C._get_tracing_state() is None


def known_ids(name: str, ids: Any, entry: str = "document") -> np.ndarray:
    """Convert ids, numbers or strings, to an array; none may be missing. Whole floats become integers, as in files.

    Raises:
        ValueError: NaN, NaT, None or an infinite number; the message calls the ids `name`, and what has one `entry`.

    >>> known_ids("qid", ["a", float("nan")])
    Traceback (most recent call last):
    ...
    ValueError: qid must not be missing; that of document 1 is
    """
    # As objects: among strings NumPy turns NaN into the string 'nan', and pads all to the length of the longest.
    named = isinstance(ids, list | tuple) and any(isinstance(each, str | bytes) for each in ids)
    found = np.array(ids, dtype=object) if named else as_array(name, ids)
    if found.dtype.kind in "US" and not isinstance(ids, np.ndarray):
        found = np.array(ids, dtype=object)
    if found.dtype.kind == "O":
        gone = np.array([is_missing(value) for value in found.flat], bool)
    elif found.dtype.kind in "mM":
        gone = np.isnat(found).ravel()
    else:
        gone = ~np.isfinite(found).ravel() if found.dtype.kind in "fc" else np.zeros(0, bool)
    if gone.any():
        raise ValueError(f"{name} must not be missing; that of {entry} {int(gone.argmax())} is")
    if found.dtype.kind == "f" and ((np.floor(found) == found) & (np.abs(found.astype(np.float64)) <= LARGEST)).all():
        return found.astype(np.int64)
    if found.dtype.kind == "O" and any(map(_is_whole, found.flat)):
        found = np.frompyfunc(lambda each: int(each) if _is_whole(each) else each, 1, 1)(found)
    return found


def _is_whole(value: Any) -> bool:
    """Whether a value is a whole number of a type of fractions."""
    return isinstance(value, float | np.floating | Decimal) and value == int(value)


def list_ids(documents: int, qid: Any, group: Any, otherwise: Any = None) -> Any:
    """The list of each document, from `qid` or from `group`, the sizes of consecutive lists."""
    if group is None:
        return otherwise if qid is None else qid
    if qid is not None:
        raise ValueError("pass qid, one id per document, or group, the sizes of the lists, not both")
    return ids_of_sizes("group", group, documents)


def ids_of_sizes(name: str, sizes: Any, documents: int) -> np.ndarray:
    """The number of the list of each document, from the sizes of the lists; raises ValueError if they are not valid sizes."""
    try:
        found = as_numbers(name, sizes, exact=False)
        found = found.astype(np.float64) if found.dtype.kind == "f" else found  # half precision adds up to 65504
    except (TypeError, ValueError):
        found = np.asarray(sizes, object)
    numbers = found.dtype.kind in "iuf" and found.ndim == 1
    if not (
        numbers
        and ((found >= 0) & (found <= documents) & (found == np.floor(found))).all()
        and found.sum() == documents
    ):
        raise ValueError(
            f"{name} must be the sizes of consecutive lists, whole numbers that add up to {documents} "
            f"documents; got {found.size}{f' of sum {found.astype(float).sum():g}' if numbers else f', such as {sizes!r}'[:60]}"
        )
    return np.repeat(np.arange(len(found)), found.astype(np.int64))


def numbered_ids(name: str, ids: Any) -> np.ndarray:
    """As `known_ids`, with Python objects numbered in sorted order, or by first appearance if they cannot be sorted.

    >>> numbered_ids("qid", ["b", "a", "b"]), numbered_ids("qid", ["a", 1, "1", "a"])
    (array([1, 0, 1]), array([0, 1, 2, 0]))
    """
    found = known_ids(name, ids)
    if found.dtype.kind != "O":
        return found
    try:
        return np.unique(found, return_inverse=True)[1].reshape(found.shape)
    except TypeError:  # of mixed kinds
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(each, len(numbers)) for each in found.flat], np.int64).reshape(found.shape)


def group_documents(qid: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Group rows by `qid` `[documents]`: `(order, offsets)`, lists by first appearance.

    `order` is None if the rows of every list are already contiguous.

    >>> group_documents(np.array(["b", "a", "b"]))
    (array([0, 2, 1]), array([0, 2, 3]))
    """
    _, first, inverse, counts = np.unique(qid, return_index=True, return_inverse=True, return_counts=True)
    by_appearance = np.argsort(first, kind="stable")
    number = np.empty(len(first), np.intp)
    number[by_appearance] = np.arange(len(first))
    of_row = number[inverse]
    offsets = np.concatenate([[0], np.cumsum(counts[by_appearance])])
    if (np.diff(of_row) >= 0).all():
        return None, offsets
    return np.argsort(of_row, kind="stable"), offsets


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


def pad(flat: Tensor, offsets: Tensor, fill: float = 0) -> tuple[Tensor, Tensor]:
    """Pad flat values `[documents]` to `(padded [lists, longest list], where)`, with `fill` in the padding.

    Offsets may be on another device; those on the CPU are read without synchronising with the values' device.

    >>> pad(torch.tensor([1, 2, 3]), torch.tensor([0, 2, 3]))
    (tensor([[1, 2], [3, 0]]), tensor([[ True,  True], [ True, False]]))
    """
    lengths = offsets.diff()
    longest = int(lengths.max()) if lengths.numel() else 0
    columns = torch.arange(longest, device=offsets.device)
    where = (columns < lengths.unsqueeze(1)).to(flat.device)
    if flat.shape[0] == 0:
        return flat.new_full(where.shape, fill), where
    source = (offsets[:-1].unsqueeze(1) + columns).clamp(max=flat.shape[0] - 1).to(flat.device)
    return torch.where(where, flat[source], torch.as_tensor(fill, dtype=flat.dtype, device=flat.device)), where


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
    its_list = list_of_each(offsets, documents)
    rows = its_list * padded.shape[-1] + torch.arange(documents, device=offsets.device) - offsets[its_list]
    return padded.reshape(-1)[rows.clamp(0, max(padded.numel() - 1, 0)).to(padded.device)]


def sums_of_lists(values: Tensor, offsets: Tensor | None) -> Tensor:
    """The sum of the document's list for each document, in a shape that broadcasts to that of `values`.

    >>> sums_of_lists(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 3]))
    tensor([3., 3., 4.])
    """
    if offsets is None:
        return values.sum(-1, keepdim=True)
    its_list = list_of_each(offsets.to(values.device), values.shape[0])  # offsets have not been checked
    return values.new_zeros(max(offsets.shape[0] - 1, 1)).index_add(0, its_list, values)[its_list]


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


def length_buckets(offsets: Tensor) -> Iterator[Tensor]:
    """Indices of the lists, grouped so that within a group no list is more than twice as long as another.

    Padding each group separately at most doubles the memory of the flat layout.

    >>> [bucket.tolist() for bucket in length_buckets(torch.tensor([0, 3, 103, 106, 108]))]
    [[0, 2, 3], [1]]
    """
    lengths = offsets.diff()
    powers = torch.frexp(lengths.double()).exponent
    for power in powers.unique().tolist():
        yield (powers == power).nonzero().squeeze(1)
