"""Lists as the compiled loops take them: flat NumPy arrays with bounds, whatever the layout of the tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from rankstruct._numba import compile_kernel
from rankstruct.lists import check_offsets

_NOTHING = np.empty(0, np.uint8)


@dataclass(frozen=True)
class FlatLists:
    """Views of CPU tensors, padded or flat; nothing is copied that need not be.

    Attributes:
        scores: `[documents]` float32 or float64, padding included.
        bits: the same memory as unsigned integers.
        labels: `[documents]`.
        where: `[documents]` uint8; empty if every document is real.
        bounds: int64 `[lists + 1]`: list i is `[bounds[i], bounds[i + 1])`.
        shape: of the scores as they were given.
        lists: shape of one value a list.
        longest: size of the longest list, padding included.
    """

    scores: np.ndarray
    bits: np.ndarray
    labels: np.ndarray
    where: np.ndarray
    bounds: np.ndarray
    shape: tuple[int, ...]
    lists: tuple[int, ...]
    longest: int

    @classmethod
    def of(cls, scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None) -> FlatLists:
        """Flat views of tensors whose types and shapes were checked.

        NumPy, not torch, prepares the arrays: torch would wake its own threads, which then spin beside ours.

        Raises:
            ValueError: a real document's label is not finite, or offsets are not in order.
        """
        shape = tuple(scores.shape)
        lists: tuple[int, ...]
        if offsets is not None:
            check_offsets(offsets, shape[0])
            bounds, lists = offsets.long().numpy(), (offsets.shape[0] - 1,)
            longest = int(np.diff(bounds).max(initial=0))
        else:
            lists, longest = shape[:-1], shape[-1]
            bounds = np.arange(math.prod(lists) + 1, dtype=np.int64) * longest
        values = _flat(scores)
        flat = cls(
            values,
            values.view(np.uint32 if values.itemsize == 4 else np.uint64),
            _flat(labels.float() if labels.dtype == torch.bfloat16 else labels),
            _NOTHING if where is None else _flat(where).view(np.uint8),
            bounds,
            shape,
            lists,
            longest,
        )
        if flat.labels.dtype.kind == "f" and not np.isfinite(flat.labels).all():
            broken = np.flatnonzero(flat.real(~np.isfinite(flat.labels)))
            if broken.size:
                at = int(broken[0])
                raise ValueError(
                    f"labels must be finite; {flat.place(at)} is {flat.labels[at]}. Padding belongs in where"
                )
        return flat

    def real(self, chosen: np.ndarray) -> np.ndarray:
        """`chosen` bool `[documents]` without the padding."""
        return chosen & (self.where == 1) if self.where.size else chosen

    def place(self, at: int) -> str:
        """A document as a reader counts it: its index, or its flat position and its list."""
        if len(self.shape) == 1 and self.lists:
            found = int(np.searchsorted(self.bounds, at, side="right")) - 1
            return f"document {at} (list {found})"
        return f"document {list(map(int, np.unravel_index(at, self.shape)))}"

    def refuse_score(self, at: int) -> NoReturn:
        """Raise ValueError for a score that is not finite."""
        raise ValueError(
            f"scores must be finite; {self.place(at)} is {self.scores[at]}. "
            "Is the learning rate too high, or a feature missing? Padding belongs in where"
        )

    def empty_answer(self) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[np.ndarray, ...]]:
        """Tensors for task loss, value and direction, and flat views of them that a loop can fill."""
        dtype = self.scores.dtype
        arrays = np.empty(self.lists, dtype), np.empty(self.lists, dtype), np.empty(self.shape, dtype)
        task_loss, value, direction = map(torch.from_numpy, arrays)
        return (task_loss, value, direction), tuple(array.reshape(-1) for array in arrays)


def discount_table(weights: Tensor, longest: int) -> np.ndarray:
    """The first `longest` discounts as float64 `[>= 1]`; raises ValueError if they are no discount."""
    table = np.ascontiguousarray(weights.detach().double().numpy()[: max(longest, 1)])
    if not _is_discount(table):
        raise ValueError(f"discounts must be finite, >= 0 and never increase with the rank; got {table.tolist()}")
    return table


@compile_kernel
def _is_discount(table):
    if not table[0] < np.inf or not table[-1] >= 0.0:
        return False
    rises = False
    for i in range(1, table.shape[0]):
        rises |= not table[i] <= table[i - 1]  # NaN among them
    return not rises


def _flat(values: Tensor) -> np.ndarray:
    return values.detach().reshape(-1).numpy()
