"""The one door to the kernels: custom operators over lists, which `torch.compile`, vmap and fake tensors understand.

Every operator is called with `(scores, labels, where, offsets, reference_scores, groups, *parameters)` and answers with
`(task_loss, value, direction)`. Types and shapes have been checked; the door brings tensors of any layout, device and dtype into
the form of a body, refuses numbers that are not finite, and gives the answer the dtype and device of `scores`. Three bodies:

    flat    `(FlatLists, results, *parameters)` fills the NumPy arrays `results` by compiled loops, and returns -1 or the
            position of a score that is not finite or of a gain below 0
    padded  `(PaddedLists, *parameters)` in vectorised torch, returns the answer; for other devices
    device  `(DeviceLists, *parameters)` by kernels of numba, returns the answer for each list and document; for CUDA

Without a body for their device, and where numba cannot use it, tensors make a round trip, one copy each way for the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels.threads import share_lists
from rankstruct.lists import batch_first, check_offsets, is_eager, pad, unpad

__all__ = ["Answer", "DeviceLists", "FlatLists", "PaddedLists", "define_kernel", "discount_table", "load_kernel"]

Answer = tuple[Tensor, Tensor, Tensor]

_NOTHING = np.empty(0, np.uint8)
_WORTH_A_THREAD = 20_000  # documents; handing a share to a thread costs as much as sorting some thousands
_BODIES: dict[str, Callable[..., Answer]] = {}  # what an operator does, which tensors without values would not enter
_LISTS = "Tensor scores, Tensor labels, Tensor? where, Tensor? offsets, Tensor? reference_scores, Tensor? groups"


class FlatLists(NamedTuple):
    """Views of CPU tensors, padded or flat; nothing is copied that need not be.

    Attributes:
        scores: `[documents]` float32 or float64, padding included.
        bits: the same memory as unsigned integers.
        labels: `[documents]`.
        where: `[documents]` uint8; empty if every document is real.
        bounds: int64 `[lists + 1]`: list i is `[bounds[i], bounds[i + 1])`.
        chosen: `[documents]` float64, the scores that choose the reference; empty if those are `scores`, else these are float64.
        groups: uint64 `[documents]`, equal for the documents of a list that are of one group; empty if there are none.
        shape: of the scores as they were given.
        lists: shape of one value a list.
        longest: size of the longest list, padding included.
    """

    scores: np.ndarray
    bits: np.ndarray
    labels: np.ndarray
    where: np.ndarray
    bounds: np.ndarray
    chosen: np.ndarray
    groups: np.ndarray
    shape: tuple[int, ...]
    lists: tuple[int, ...]
    longest: int

    @classmethod
    def of(
        cls,
        scores: Tensor,
        labels: Tensor,
        where: Tensor | None,
        offsets: Tensor | None,
        chosen: Tensor | None = None,
        groups: Tensor | None = None,
        *,
        check_labels: bool = True,
    ) -> FlatLists:
        """Flat views of CPU tensors.

        NumPy, not torch, prepares the arrays: torch would wake its own threads, which then spin beside ours.

        Raises:
            ValueError: a real document's label, if they are checked, or reference score is not finite, or offsets are not in
                order.
        """
        shape = tuple(scores.shape)
        lists: tuple[int, ...]
        if offsets is not None:
            check_offsets(offsets, shape[0])
            bounds, lists = offsets.long().numpy(), (offsets.shape[0] - 1,)
            longest = int(np.diff(bounds).max(initial=0))
        else:
            lists, longest = shape[:-1], shape[-1]
            bounds = _bounds(math.prod(lists), longest)
        values = _flat(scores)
        bits = np.uint32 if values.itemsize == 4 else np.uint64
        flat = cls(
            scores=values,
            bits=values.view(bits),
            labels=_flat(labels.float() if labels.dtype == torch.bfloat16 else labels),
            where=_NOTHING if where is None else _flat(where).view(np.uint8),
            bounds=bounds,
            chosen=np.empty(0, values.dtype) if chosen is None else _flat(chosen),
            groups=np.empty(0, np.uint64) if groups is None else _flat(groups.long()).view(np.uint64),
            shape=shape,
            lists=lists,
            longest=longest,
        )
        if check_labels:
            flat._check_finite("labels", flat.labels)
        if chosen is not None:
            flat._check_finite("reference_scores", flat.chosen)
        return flat

    def _check_finite(self, name: str, values: np.ndarray) -> None:
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            broken = np.flatnonzero(self.real(~np.isfinite(values)))
            if broken.size:
                self._refuse_infinite(name, values, int(broken[0]))

    def _refuse_infinite(self, name: str, values: np.ndarray, at: int, hint: str = "") -> None:
        raise ValueError(f"{name} must be finite; {self.place(at)} is {values[at]}. Padding belongs in where{hint}")

    def real(self, chosen: np.ndarray) -> np.ndarray:
        """`chosen` bool `[documents]` without the padding."""
        return chosen & (self.where == 1) if self.where.size else chosen

    def place(self, at: int) -> str:
        """A document as a reader counts it: its index, or its flat position and its list."""
        if len(self.shape) == 1 and self.lists:
            found = int(np.searchsorted(self.bounds, at, side="right")) - 1
            return f"document {at} (list {found})"
        index = [int(i) for i in np.unravel_index(at, self.shape)]
        return f"document {index[0] if len(index) == 1 else index}"

    def run(self, loop: Callable[[int, int], int]) -> int:
        """Do `loop(first, last)` for all lists, by as many threads as torch is set to use where there is enough to do.

        Returns one of its answers that is not -1, or -1.
        """
        lists = len(self.bounds) - 1
        threads = min(torch.get_num_threads(), int(self.bounds[-1]) // _WORTH_A_THREAD, lists)
        return loop(0, lists) if threads < 2 else share_lists(loop, self.bounds, threads)

    def refuse(self, at: int) -> None:
        """Raise ValueError for the document that a loop stumbled over; -1 is none."""
        if at != -1 and not np.isfinite(self.scores[at]):
            raise ValueError(
                f"scores must be finite; {self.place(at)} is {self.scores[at]}. "
                "Is the learning rate too high, or a feature missing? Padding belongs in where"
            )
        if at != -1 and not np.isfinite(self.labels[at]):
            hint = "; 2^label - 1, the gain of a large label, may be no number: give the measure gain='linear'"
            self._refuse_infinite("labels", self.labels, at, hint if self.labels[at] == np.inf else "")
        if at != -1 and self.labels[at] >= 0:
            raise ValueError(
                f"scores of a list are too far apart for their dtype; {self.place(at)} is {self.scores[at]:g}. Scale them down"
            )
        if at != -1:
            raise ValueError(
                f"gains must be >= 0; {self.place(at)} has gain {self.labels[at]:g}: shift the labels, or choose another "
                "gain= or min_relevant="
            )


@lru_cache(maxsize=8)
def _bounds(lists: int, longest: int) -> np.ndarray:
    return np.arange(lists + 1, dtype=np.int64) * longest


class PaddedLists(NamedTuple):
    """Tensors `[lists, list_size]` of any device, both above 0; `chosen` is None if `scores` choose the reference.

    Scores and `chosen` are 0 in the padding and where they are not finite.
    """

    scores: Tensor
    labels: Tensor
    where: Tensor
    chosen: Tensor | None


class DeviceLists(NamedTuple):
    """Flat contiguous tensors of a CUDA device, padded lists with their padding, all in float64.

    Attributes:
        scores: `[documents]`, NaN where a number of the document is not finite.
        labels: `[documents]`.
        where: uint8 `[documents]`, 1 for a real document.
        offsets: int64 `[lists + 1]`.
        chosen: `[documents]`; empty if `scores` choose the reference.
        groups: uint64 `[documents]`, as of `FlatLists`.
        longest: no list is longer.
    """

    scores: Tensor
    labels: Tensor
    where: Tensor
    offsets: Tensor
    chosen: Tensor
    groups: Tensor
    longest: int


def define_kernel(
    name: str,
    parameters: str,
    flat: Callable[..., int],
    padded: Callable[..., Answer] | None = None,
    device: Callable[..., Answer] | None = None,
    *,
    precise: bool = False,
    check_labels: bool = True,
) -> Callable[..., Answer]:
    """The custom operator `rankstruct::<name>` of a kernel; where nobody has to see it, what it does.

    As `torch.library.custom_op` would make it, without its wrappers in Python: for one list they take as long as its sort. No
    argument of ours is changed or needs a gradient, which is what they look after.

    Args:
        name: of the operator.
        parameters: the schema of what comes behind the lists, such as `"float margin"`.
        flat: the body for the CPU.
        padded, device: the bodies for other devices.
        precise: whether the flat body takes float64 alone; otherwise float32 scores stay what they are, unless there are
            reference scores: the difference of two scores of rankings may be small where they are not.
        check_labels: whether labels that are not finite are refused before the flat body, which else returns where one is.
    """
    qualified = f"rankstruct::{name}"

    def answer(scores: Tensor, *given: Any) -> Answer:
        labels, where, offsets, chosen, groups, *parameters = given
        double = precise or chosen is not None or scores.dtype == torch.float64
        wide = scores.to(torch.float64 if double else torch.float32)
        lists = (wide, labels, where, offsets, None if chosen is None else chosen.double(), groups)
        if has_loops(scores.device):
            answers = _answer_flat(flat, lists, parameters, scores.dtype, check_labels)
        elif padded is not None:
            answers = _answer_padded(padded, lists[:5], parameters)
        elif device is not None and has_kernels(scores.device):
            answers = _answer_on_device(device, lists, parameters)
        else:
            there = [None if value is None else value.cpu() for value in lists]
            answers = _answer_flat(flat, there, parameters, scores.dtype, check_labels)
        if answers[0].dtype == scores.dtype and answers[0].device == scores.device:
            return answers
        task_loss, value, direction = answers
        return task_loss.to(scores), value.to(scores), direction.to(scores)

    torch.library.define(qualified, f"({_LISTS}, {parameters}) -> (Tensor, Tensor, Tensor)")
    torch.library.impl(qualified, "default", func=answer)
    _BODIES[name] = answer
    operator = getattr(torch.ops.rankstruct, name).default
    torch.library.register_fake(qualified, _fake)
    torch.library.register_vmap(qualified, partial(_vmap, operator))

    def call(scores: Tensor, *given: Any) -> Answer:
        return (answer if is_eager(scores) else operator)(scores, *given)

    return call


def has_loops(device: torch.device) -> bool:
    """Whether tensors of the device go to the compiled loops; a test may say otherwise."""
    return device.type == "cpu"


def has_kernels(device: torch.device) -> bool:
    """Whether numba's CUDA kernels run on the device; a test may say otherwise."""
    return bool(load_kernel("positional_device.reaches")(device))


@cache
def load_kernel(name: str) -> Callable[..., Any]:
    """`"file.function"` of this folder, imported when it is first needed: numba alone takes a third of a second."""
    file, function = name.split(".")
    return getattr(import_module(f"rankstruct.kernels.{file}"), function)


def _answer_flat(
    body: Callable[..., int], lists: Sequence[Any], parameters: list[Any], wanted: torch.dtype, check_labels: bool
) -> Answer:
    flat = FlatLists.of(*lists, check_labels=check_labels)
    dtype = np.dtype(np.float32) if wanted == torch.float32 else flat.scores.dtype
    arrays = np.empty(flat.lists, dtype), np.empty(flat.lists, dtype), np.empty(flat.shape, dtype)
    flat.refuse(body(flat, tuple(array.reshape(-1) for array in arrays), *parameters))
    return tuple(map(torch.from_numpy, arrays))  # type: ignore[return-value]


def _answer_padded(body: Callable[..., Answer], lists: tuple[Any, ...], parameters: list[Any]) -> Answer:
    scores, labels, where, offsets, chosen = lists
    where = torch.ones(labels.shape, dtype=torch.bool, device=labels.device) if where is None else where
    shape, real = scores.shape, where
    if offsets is not None:
        if offsets.device.type == "cpu":  # which is read without waiting for the device
            check_offsets(offsets, shape[0])
        chosen = None if chosen is None else pad(chosen, offsets)[0]
        (scores, real), (labels, _) = pad(scores, offsets), pad(labels, offsets)
    many = scores.shape[:-1]
    rows = (many.numel(), scores.shape[-1])
    scores, labels, real = scores.reshape(rows), labels.reshape(rows), real.reshape(rows)
    broken = real & ~(scores.isfinite() & labels.isfinite())
    if chosen is not None:
        chosen = chosen.reshape(rows)
        broken = broken | (real & ~chosen.isfinite())
        chosen = torch.where(real & ~broken, chosen, 0.0)
    scores = torch.where(real & ~broken, scores, 0.0)
    if scores.numel():
        task_loss, value, direction = body(PaddedLists(scores, labels, real, chosen), *parameters)
    else:
        task_loss, value, direction = scores.new_zeros(rows[0]), scores.new_zeros(rows[0]), scores
    # Reading the device to raise an error would stall it at every step.
    nothing = broken.any(-1)
    task_loss, value = (values.masked_fill(nothing, math.nan).view(many) for values in (task_loss, value))
    return task_loss, value, direction.view(shape) if offsets is None else unpad(direction, offsets, shape[0])


def _answer_on_device(body: Callable[..., Answer], lists: tuple[Any, ...], parameters: list[Any]) -> Answer:
    scores, labels, where, offsets, chosen, groups = lists
    documents, device = scores.numel(), scores.device
    many = scores.shape[:-1] if offsets is None else (offsets.shape[0] - 1,)
    if documents == 0 or math.prod(many) == 0:
        return scores.new_zeros(many), scores.new_zeros(many), torch.zeros_like(scores)
    if offsets is None:
        longest, no_lists = scores.shape[-1], None
        bounds = torch.arange(math.prod(many) + 1, device=device) * longest
    else:  # which are not read back: one list might have all documents
        longest, bounds = documents, offsets.to(device, torch.int64, non_blocking=True)
        no_lists = (bounds[0] != 0) | (bounds[-1] != documents) | (bounds.diff() < 0).any()
        bounds = torch.where(no_lists, 0, bounds)
    scores, labels, where, chosen, groups = map(_flat_there, (scores, labels, where, chosen, groups))
    finite = scores.isfinite() & labels.isfinite() & (True if chosen is None else chosen.isfinite())
    task_loss, value, direction = body(
        DeviceLists(
            torch.where(finite, scores, math.nan),
            labels.double(),
            torch.ones_like(finite).byte() if where is None else where.byte(),
            bounds,
            scores[:0] if chosen is None else chosen,
            (bounds[:0] if groups is None else groups.long()).view(torch.uint64),
            longest,
        ),
        *parameters,
    )
    if no_lists is not None:
        task_loss, value = (torch.where(no_lists, math.nan, each) for each in (task_loss, value))
    return task_loss.view(many), value.view(many), direction.view(lists[0].shape)


def _flat_there(values: Tensor | None) -> Any:
    return None if values is None else values.detach().reshape(-1).contiguous()


def _fake(scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None, *rest: Any) -> Answer:
    lists = scores.shape[:-1] if offsets is None else (offsets.shape[0] - 1,)
    return scores.new_empty(lists), scores.new_empty(lists), scores.new_empty(scores.shape)


def _vmap(operator: Callable[..., Answer], info: Any, in_dims: Any, *given: Any) -> tuple[Answer, tuple[int, int, int]]:
    size, parameters = info.batch_size, given[6:]
    pairs = zip(given[:6], in_dims[:6], strict=True)
    lists: list[Any] = [None if value is None else batch_first(value, dim, size) for value, dim in pairs]
    scores, labels, where, offsets, chosen, groups = lists
    if offsets is None:
        return operator(scores, labels, where, None, chosen, groups, *parameters), (0, 0, 0)
    # The same lists again and again, one behind the other.
    documents = scores.shape[1]
    if bool((offsets[:, 0] != 0).any() | (offsets[:, -1] != documents).any()):
        raise ValueError(f"offsets must go from 0 to the number of documents, {documents}, for every example of vmap")
    shift = torch.arange(size, device=offsets.device, dtype=offsets.dtype).unsqueeze(1) * documents
    joined = torch.cat([(offsets[:, :-1] + shift).flatten(), offsets.new_full((1,), size * documents)])
    scores, labels, chosen, groups = (
        None if value is None else value.flatten() for value in (scores, labels, chosen, groups)
    )
    task_loss, value, direction = operator(scores, labels, None, joined, chosen, groups, *parameters)
    return (task_loss.view(size, -1), value.view(size, -1), direction.view(size, documents)), (0, 0, 0)


def discount_table(weights: Tensor, longest: int) -> np.ndarray:
    """The first `longest` discounts as float64 `[>= 1]`; raises ValueError if they are no discount.

    A tensor that is kept has its table as `checked`, for lists of its own length.
    """
    kept: np.ndarray | None = getattr(weights, "checked", None)
    if kept is not None and kept.shape[0] == longest:
        return kept
    table = np.ascontiguousarray(weights.detach().double().numpy()[: max(longest, 1)])
    # NaN compares False with everything.
    if not (table[0] < np.inf and table[-1] >= 0.0 and (table[1:] <= table[:-1]).all()):
        raise ValueError(f"discounts must be finite, >= 0 and never increase with the rank; got {table.tolist()}")
    return table


def _flat(values: Tensor) -> np.ndarray:
    return values.detach().numpy().reshape(-1)
