"""The tensors of a call on a device."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.lists import copied_to, list_of_each

MOST_SPACE = 2**30  # bytes of one array of scratch
_BLOCKS = (128, 512)  # documents that a program takes at once; few sizes, because each is compiled


class DeviceBatch(NamedTuple):
    """Lists on one device, as the kernels take them.

    Attributes:
        scores, labels, where, chosen, weights: flat or `[..., size]`, contiguous; `chosen` determine the reference.
        offsets: int64 on the device, or None.
        order, chosen_order: int64, each list's documents by descending score, and by `chosen`.
        lists, size: their number, and documents of each, or 0 for flat lists.
        longest: at most so many documents in a list.
        least_label: labels below are invalid.
        task_loss, value, direction: float64, the results; the direction is 0 so far.
    """

    scores: Tensor
    labels: Tensor
    where: Tensor | None
    chosen: Tensor | None
    weights: Tensor | None
    offsets: Tensor | None
    order: Tensor
    chosen_order: Tensor | None
    lists: int
    size: int
    longest: int
    least_label: float
    task_loss: Tensor
    value: Tensor
    direction: Tensor

    @property
    def block(self) -> int:
        """How many documents a program takes at once."""
        usual = self.longest if self.offsets is None else min(self.longest, 2 * self.scores.numel() // self.lists)
        return next((block for block in _BLOCKS if usual <= block and self.longest <= block**2), _BLOCKS[-1])

    @property
    def stride(self) -> int:
        """The entries of an array of scratch, with one more than documents for each list."""
        return self.scores.numel() + self.lists

    @property
    def bounds(self) -> Tensor:
        """The offsets, of padded lists too."""
        each = torch.arange(self.lists + 1, device=self.scores.device)
        return each * self.size if self.offsets is None else self.offsets

    def in_batch(self, order: Tensor) -> Tensor:
        """Positions `[documents]` in the batch, of an order of positions in their lists."""
        bounds, order = self.bounds, order.view(-1)
        return order + bounds[list_of_each(bounds, len(order))]

    def space(self, rows: int, dtype: torch.dtype) -> Tensor:
        """So many arrays of scratch."""
        return torch.empty(rows * self.stride, dtype=dtype, device=self.scores.device)


def order_of(values: Tensor, where: Tensor | None, offsets: Tensor | None) -> Tensor:
    """Positions in each list: real documents by descending value, ties in input order, then padding."""
    keys = (values if where is None else torch.where(where, values, -math.inf)) + 0.0  # -0.0 is 0.0
    order = keys.sort(dim=-1, descending=True, stable=True).indices
    if offsets is not None:
        its_list = list_of_each(offsets, len(keys))
        order = order[its_list[order].sort(stable=True).indices]
        order = order - offsets[its_list[order]]
    return order


def on_device(numbers: Any, device: torch.device) -> Tensor:
    """A float64 table, copied to the device once."""
    return _table(np.ascontiguousarray(numbers, np.float64).tobytes(), device)


@lru_cache(maxsize=64)
def _table(numbers: bytes, device: torch.device) -> Tensor:
    return copied_to(device, torch.from_numpy(np.frombuffer(numbers).copy()))
