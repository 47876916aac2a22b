"""Custom operators over lists, for `torch.compile`, vmap and fake tensors: the only way to call a kernel.

Every operator takes `(scores, lists, least_label, *options)` and returns `(task_loss, value, direction)`; torch sees the fields
of `Lists`, with item weights if documents may have them. Types and shapes have been checked. The operator converts tensors of
any layout, device and dtype, refuses non-finite numbers and labels below `least_label`, and returns results with the dtype and
device of `scores`. Its implementation makes `(longest, *options)` a `Call` of a loop of the compiled core. On CUDA and ROCm
devices, the kernel of that name in `kernels.gpu` takes the same call; without one, on other devices, without Triton, or with the
environment variable RANKSTRUCT_TRITON=0, the batch is copied to the CPU and the results are copied back.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels import core
from rankstruct.kernels.call import LABELS, SCORES, Answer, Call
from rankstruct.kernels.threads import share_lists
from rankstruct.lists import (
    NOT_NEGATIVE,
    Lists,
    batch_first,
    is_eager,
    longest_list,
    refuse_inexact,
)

__all__ = ["Answer", "Call", "ListOperator", "Prepared"]

_WORTH_A_THREAD = 20_000  # documents; starting a thread costs as much as sorting a few thousand
_LISTS = "Tensor scores, Tensor labels, Tensor? where, Tensor? offsets, Tensor? reference_scores, Tensor? groups"


class Prepared(NamedTuple):
    """A cached call of a loop for lists of one size.

    Attributes:
        call: the loop and its options.
        least_label: labels of real documents below it are refused.
        gains: float64, the gains of integer labels from 0, if known; None to pass labels unchanged.
    """

    call: Call
    least_label: float
    gains: np.ndarray | None = None


#: Scores to values, one per list, and gradients, as the solvers call it; float64.
ArrayOracle = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def solve_at_once(prepared: Prepared, lists: Lists, otherwise: ArrayOracle) -> ArrayOracle:
    """Values and directions of the same flat lists for any scores, by one call of a loop; by `otherwise` if it refuses some."""
    call, least_label, gains = prepared
    batch = CpuLists(torch.zeros(lists.labels.shape, dtype=torch.float64), lists, least_label, gains)

    def solve(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, direction = batch.take(torch.from_numpy(scores))
        done = batch.run(call) == -1 and math.isfinite(batch.batch.sum)
        return (value.numpy(), direction.numpy()) if done else otherwise(scores)

    return solve


class CpuLists:
    """Inputs and outputs of the compiled core for lists on the CPU; copies are avoided.

    Args:
        scores, lists: on the CPU.
        least_label: labels of real documents below it are refused.
        gains: float64, the gains of integer labels from 0, if known.
        longest: size of the longest list, if known.

    Attributes:
        task_loss, value, direction: the outputs of a loop.
        longest: size of the longest list, padding included.
    """

    def __init__(
        self,
        scores: Tensor,
        lists: Lists,
        least_label: float,
        gains: np.ndarray | None = None,
        longest: int | None = None,
    ) -> None:
        labels, where, offsets, reference_scores, groups, item_weights, *_ = lists
        self.shape = shape = scores.shape
        scores = (scores if scores.dtype in SCORES else scores.float()).contiguous()
        labels = (labels if labels.dtype in LABELS else labels.double()).contiguous()
        where = None if where is None else where.contiguous()
        reference_scores = None if reference_scores is None else reference_scores.double().contiguous()
        groups = None if groups is None else groups.long().contiguous()
        item_weights = None if item_weights is None else item_weights.double().contiguous()
        many: tuple[int, ...]
        if offsets is None:
            many, self.longest = shape[:-1], shape[-1]
            count = math.prod(many)
        else:
            offsets = offsets.long().contiguous()
            count = offsets.shape[0] - 1
            many, self.longest = (count,), longest_list(offsets, shape[0]) if longest is None else longest
        size = count if len(many) == 1 else many  # numbers are parsed in half the time
        self.task_loss, self.value = scores.new_empty(size), scores.new_empty(size)
        self.direction = torch.empty_like(scores)
        self.count, self.least_label = count, least_label
        # Kept alive as long as their addresses.
        self.given = (scores, labels, where, offsets, reference_scores, groups, gains, item_weights)
        self.batch = core.CoreBatch(
            *map(_address, (scores, labels, where, offsets, reference_scores, groups)),
            None if gains is None else gains.ctypes.data,
            *(None, None),  # thresholds and their weights
            *map(_address, (item_weights, self.task_loss, self.value, self.direction)),
            count,
            0 if offsets is not None else self.longest,
            0 if gains is None else len(gains),
            0,
            math.nan,
            least_label,
            SCORES[scores.dtype],
            LABELS[labels.dtype],
        )

    def mean(self) -> tuple[float, int] | None:
        """The mean value of the lists that are not all padding, and their number; None if it overflows."""
        count = max(self.batch.real_lists, 1)
        mean = self.batch.sum / count
        return (mean, count) if abs(mean) <= _LARGEST[self.batch.score_type] else None

    def take(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Take other contiguous scores of the same dtype; returns the tensors for their values and directions."""
        self.given = (scores, *self.given[1:])
        self.value, self.direction = torch.empty_like(self.value), torch.empty_like(self.direction)
        self.batch.scores, self.batch.value = scores.data_ptr(), self.value.data_ptr()
        self.batch.direction = self.direction.data_ptr()
        return self.value, self.direction

    def run(self, call: Call, samples: int = 1) -> int:
        """Solve all lists, with up to as many threads as torch uses if the work, by samples of each list, is worth them.

        Returns the position of a refused document, or -1.
        """
        batch = self.batch
        batch.min_relevant = call.min_relevant
        if call.thresholds is not None and call.threshold_weights is not None:
            # One number more, because an empty tensor has no address, and then the loop would use `min_relevant`.
            known = (call.thresholds, call.threshold_weights)
            thresholds, weights = (torch.nn.functional.pad(each.double(), (0, 1)) for each in known)
            batch.threshold_count = len(call.thresholds)
            batch.thresholds, batch.threshold_weights = thresholds.data_ptr(), weights.data_ptr()
            batch.kept = thresholds, weights  # as long as the batch
        work = self.direction.numel() * samples // _WORTH_A_THREAD
        if work < 2 or (threads := min(torch.get_num_threads(), work, self.count)) < 2:
            found = call.loop.function(ctypes.byref(batch), 0, self.count, ctypes.byref(call.options))
        else:
            found = self._share(call, threads)
        if found == core.OUT_OF_MEMORY:
            raise MemoryError(f"no memory for the scratch of lists of {self.longest} documents")
        return found

    def answer(self, dtype: torch.dtype) -> Answer:
        """What the loop filled in, in the dtype of the scores that were given."""
        if dtype in SCORES:
            return self.task_loss, self.value, self.direction
        return self.task_loss.to(dtype), self.value.to(dtype), self.direction.to(dtype)

    def _share(self, call: Call, threads: int) -> int:
        shares: list[core.CoreBatch] = []

        def loop(first: int, last: int) -> int:
            own = core.CoreBatch.from_buffer_copy(self.batch)
            shares.append(own)
            return call.loop(own, first, last, call.options)

        found = share_lists(loop, self.bounds, threads)
        # In the order of one thread, to the last bit.
        self.batch.sum = float(np.add.accumulate(self.value.numpy().ravel(), dtype=np.float64)[-1])
        self.batch.real_lists = sum(share.real_lists for share in shares)
        return found

    @property
    def bounds(self) -> np.ndarray:
        """Where the lists begin and end."""
        offsets = self.given[3]
        return _bounds(self.count, self.longest) if offsets is None else offsets.numpy()

    def place(self, at: int) -> str:
        """The description of a document in errors: its index, or its flat position and its list."""
        offsets = self.given[3]
        if offsets is not None:
            found = int(np.searchsorted(offsets.numpy(), at, side="right")) - 1
            return f"document {at} (list {found})"
        index = [int(i) for i in np.unravel_index(at, self.shape)]
        return f"document {index[0] if len(index) == 1 else index}"

    def refuse(self, at: int, call: Call, gains: bool) -> None:
        """Raise ValueError for the document that a loop refused; labels are gains, or the user's labels."""
        scores, labels, _, _, reference_scores = self.given[:5]
        score, label = float(scores.view(-1)[at]), float(labels.view(-1)[at])
        if not math.isfinite(score):
            raise ValueError(
                f"scores must be finite; {self.place(at)} is {score}. "
                "Is the learning rate too high, or a feature missing? Padding belongs in where"
            )
        if not math.isfinite(label):
            hint = "; 2^label - 1, the gain of a large label, may be no number: give the measure gain='linear'"
            raise ValueError(
                f"labels must be finite; {self.place(at)} is {label}. Padding belongs in where"
                f"{hint if gains and label == math.inf else ''}"
            )
        if label < self.least_label or (gains and label < 0):
            if not gains:
                raise ValueError(f"{NOT_NEGATIVE}; that of {self.place(at)} is {label:g}")
            raise ValueError(
                f"gains must be >= 0; {self.place(at)} has gain {label:g}: shift the labels, or choose another "
                "gain= or min_relevant="
            )
        if reference_scores is not None and not math.isfinite(float(reference_scores.view(-1)[at])):
            raise ValueError(
                f"reference_scores must be finite; {self.place(at)} is {float(reference_scores.view(-1)[at])}. "
                "Padding belongs in where"
            )
        if call.check is not None:
            call.check(self, at)
        raise ValueError(
            f"scores of a list are too far apart for their dtype; {self.place(at)} is {score:g}. Scale them down"
        )


def _address(array: Tensor | None) -> int | None:
    return None if array is None else array.data_ptr()


_LARGEST = [torch.finfo(dtype).max for dtype in SCORES]


@lru_cache(maxsize=8)
def _bounds(lists: int, longest: int) -> np.ndarray:
    return np.arange(lists + 1, dtype=np.int64) * longest


#: All operators by name.
KERNELS: dict[str, ListOperator] = {}


class ListOperator:
    """The custom operator `rankstruct::<name>` of a kernel; in eager mode, it is called directly.

    This replaces `torch.library.custom_op`, whose Python wrappers take as long as sorting a list. They handle mutated arguments
    and gradients, which these operators do not have.

    Args:
        name: its name.
        options: the schema of its options, such as `"float margin"`.
        compiled: from `(longest, *options)` to the call of a loop, for lists of at most `longest` documents.
        gains: whether labels are gains.
        weighted: whether documents have item weights, which must be finite and above 0.
    """

    def __init__(
        self,
        name: str,
        options: str,
        compiled: Callable[..., Call],
        *,
        gains: bool = False,
        weighted: bool = False,
    ) -> None:
        self.name, self.gains = name, gains
        self._fields = 6 if weighted else 5  # of `Lists`
        self.call = compiled
        qualified = f"rankstruct::{name}"
        lists = f"{_LISTS}, Tensor? item_weights" if weighted else _LISTS
        torch.library.define(qualified, f"({lists}, float least_label, {options}) -> (Tensor, Tensor, Tensor)")
        torch.library.impl(qualified, "default", func=self.answer)
        self._operator = getattr(torch.ops.rankstruct, name).default
        KERNELS[name] = self
        torch.library.register_fake(qualified, _fake)
        torch.library.register_vmap(qualified, partial(_vmap, self._operator, 1 + self._fields))

    @classmethod
    def of_loop(cls, loop: core.Loop, **kind: bool) -> ListOperator:
        """The operator with the name and the options of a loop; tables become float64."""

        def compiled(longest: int, *options: Any) -> Call:
            given = (each.double().numpy() if isinstance(each, Tensor) else each for each in options)
            return Call(loop, loop.options(*given))

        schema = ", ".join(f"{kind} {name}" for name, kind in loop.fields.items())
        return cls(loop.name, schema, compiled, **kind)

    def __call__(self, scores: Tensor, lists: Lists, least_label: float, *options: Any) -> Answer:
        """The results for checked lists."""
        if is_eager(scores):
            return self._answer(scores, lists, least_label, options)
        return self._operator(scores, *lists[: self._fields], least_label, *options)

    def answer(self, scores: Tensor, *given: Any) -> Answer:
        """The implementation of the operator, with its arguments as torch passes them."""
        least_label, *options = given[self._fields :]
        return self._answer(scores, Lists(*given[: self._fields]), least_label, options)

    def _answer(self, scores: Tensor, lists: Lists, least_label: float, options: Sequence[Any]) -> Answer:
        device = scores.device
        if has_loops(device):
            return self._solve(scores, lists, least_label, options)
        kernels = kernels_of(device)
        answers = None if kernels is None else kernels.solve(scores, lists, least_label, self.call, options)
        if answers is None:
            there = Lists(*(None if value is None else value.cpu() for value in lists))  # type: ignore[arg-type]
            answers = self._solve_valid(scores.cpu(), there, least_label, options)
        task_loss, value, direction = answers
        return task_loss.to(scores), value.to(scores), direction.to(scores)

    def _solve_valid(self, scores: Tensor, lists: Lists, least_label: float, options: Sequence[Any]) -> Answer:
        """As `_solve`, but invalid numbers are no error: as on devices, task loss and value of their lists are NaN."""
        wrong = ~(scores.isfinite() & lists.labels.isfinite() & (lists.labels >= least_label))
        if lists.labels.dtype == torch.int64:  # two that float64 cannot represent could become equal
            wrong |= lists.labels.double().long() != lists.labels
        if lists.reference_scores is not None:
            wrong |= ~lists.reference_scores.isfinite()
        if lists.item_weights is not None:
            wrong |= ~(lists.item_weights.isfinite() & (lists.item_weights >= 0))
        if lists.where is not None:
            wrong &= lists.where
        if not wrong.any():
            return self._solve(scores, lists, least_label, options)
        clean = {"labels": max(least_label, 0), "reference_scores": 0, "item_weights": 1}
        columns = {name: getattr(lists, name) for name in clean}
        columns = {
            name: None if each is None else each.masked_fill(wrong, clean[name]) for name, each in columns.items()
        }
        answers = self._solve(scores.masked_fill(wrong, 0), lists._replace(**columns), least_label, options)
        if lists.offsets is None:
            broken = wrong.any(-1)
        else:
            broken = torch.nn.functional.pad(wrong.cumsum(0), (1, 0))[lists.offsets.long()].diff() > 0
        task_loss, value, direction = answers
        return task_loss.masked_fill(broken, torch.nan), value.masked_fill(broken, torch.nan), direction

    def _solve(self, scores: Tensor, lists: Lists, least_label: float, options: Sequence[Any]) -> Answer:
        if lists.labels.dtype == torch.int64:
            refuse_inexact(lists.labels, lists.where, torch.float64)
        batch = CpuLists(scores, lists, least_label)
        call = self.call(batch.longest, *options)
        wrong = batch.run(call)
        if wrong != -1:
            batch.refuse(wrong, call, self.gains)
        return batch.answer(scores.dtype)

    def by_grade(self, scores: Tensor, lists: Lists, gains: np.ndarray, options: Sequence[Any]) -> Answer | None:
        """The results for eager tensors on the CPU, with gains from a table; None if a label is not in it."""
        if not has_loops(scores.device):
            return None
        if lists.labels.dtype == torch.int64:
            refuse_inexact(lists.labels, lists.where, torch.float64)
        batch = CpuLists(scores, lists, 0.0, gains)
        found = batch.run(self.call(batch.longest, *options))
        return batch.answer(scores.dtype) if found == -1 else None


def has_loops(device: torch.device) -> bool:
    """Whether the compiled loops are used for the device; tests override this."""
    return device.type == "cpu"


def kernels_of(device: torch.device) -> ModuleType | None:
    """The kernels for a device; None if its lists go to the CPU. Tests override this."""
    return _kernels() if device.type == "cuda" and os.environ.get("RANKSTRUCT_TRITON", "1") != "0" else None


@cache
def _kernels() -> ModuleType | None:
    try:
        from rankstruct.kernels import gpu
    except ImportError:  # no Triton, as in PyTorch for Windows
        return None
    return gpu


def _fake(scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None, *rest: Any) -> Answer:
    lists = scores.shape[:-1] if offsets is None else (offsets.shape[0] - 1,)
    return scores.new_empty(lists), scores.new_empty(lists), scores.new_empty(scores.shape)


def _vmap(
    operator: Callable[..., Answer], count: int, info: Any, in_dims: Any, *given: Any
) -> tuple[Answer, tuple[int, int, int]]:
    size, options = info.batch_size, given[count:]
    pairs = zip(given[:count], in_dims[:count], strict=True)
    lists: list[Any] = [None if value is None else batch_first(value, dim, size) for value, dim in pairs]
    offsets = lists[3]
    if offsets is None:
        return operator(*lists, *options), (0, 0, 0)
    # The same lists repeated one after another.
    documents = lists[0].shape[1]
    if bool((offsets[:, 0] != 0).any() | (offsets[:, -1] != documents).any()):
        raise ValueError(f"offsets must go from 0 to the number of documents, {documents}, for every example of vmap")
    shift = torch.arange(size, device=offsets.device, dtype=offsets.dtype).unsqueeze(1) * documents
    joined = [None if value is None else value.flatten() for value in lists]
    joined[3] = torch.cat([(offsets[:, :-1] + shift).flatten(), offsets.new_full((1,), size * documents)])
    task_loss, value, direction = operator(*joined, *options)
    return (task_loss.view(size, -1), value.view(size, -1), direction.view(size, documents)), (0, 0, 0)


def discount_table(weights: Tensor, longest: int) -> np.ndarray:
    """The first `longest` discounts as float64 `[>= 1]`; raises ValueError if they are not valid.

    A cached tensor stores its table as `checked`, for lists of its own length.
    """
    kept: np.ndarray | None = getattr(weights, "checked", None)
    if kept is not None and kept.shape[0] == longest:
        return kept
    table = np.ascontiguousarray(weights.detach().double().numpy()[: max(longest, 1)])
    # NaN compares False with everything.
    if not (table[0] < np.inf and table[-1] >= 0.0 and (table[1:] <= table[:-1]).all()):
        raise ValueError(f"discounts must be finite, >= 0 and never increase with the rank; got {table.tolist()}")
    return table
