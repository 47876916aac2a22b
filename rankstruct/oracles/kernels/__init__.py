"""The door to the kernels: compiled loops for CPU tensors, vectorised torch for the others, the same answers from both.

What comes in has been checked for types and shapes; values are checked here, where that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.lists import check_offsets, pad
from rankstruct.oracles.kernels.threads import run_lists

_NOTHING = np.empty(0, np.uint8)

Answer = tuple[Tensor, Tensor, Tensor]


class ListKernel(NamedTuple):
    """One oracle's two implementations; see `pairwise_cpu` and `pairwise_device` for what they take."""

    compiled: Callable[..., int]
    padded: Callable[[Tensor, Tensor, Tensor], Answer]

    def __call__(
        self,
        scores: Tensor,
        labels: Tensor,
        min_relevant: float | None,
        where: Tensor | None,
        offsets: Tensor | None,
    ) -> Answer:
        """`(task_loss [...], value [...], direction [..., list_size])` with the dtype and device of `scores`.

        Raises:
            ValueError: on the CPU, a real document's score or label is not finite, or `offsets` are not in order.
                On other devices such a list's loss and value are NaN.
        """
        compute = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
        answer = self._on_cpu if scores.device.type == "cpu" else self._on_device
        task_loss, value, direction = answer(compute, labels, min_relevant, where, offsets)
        return task_loss.to(scores.dtype), value.to(scores.dtype), direction.to(scores.dtype)

    def _on_cpu(
        self,
        scores: Tensor,
        labels: Tensor,
        min_relevant: float | None,
        where: Tensor | None,
        offsets: Tensor | None,
    ) -> Answer:
        # NumPy, not torch, prepares the arrays: torch would wake its own threads, which then spin beside ours.
        shape = scores.shape
        lists: tuple[int, ...]
        if offsets is not None:
            check_offsets(offsets, shape[0])
            bounds, lists = offsets.long().numpy(), (offsets.shape[0] - 1,)
        else:
            lists = tuple(shape[:-1])
            bounds = np.arange(int(np.prod(lists)) + 1, dtype=np.int64) * shape[-1]
        flat = _flat(scores)
        grades = _flat(labels.float() if labels.dtype == torch.bfloat16 else labels)
        mask = _NOTHING if where is None else _flat(where).view(np.uint8)
        if grades.dtype.kind == "f" and not np.isfinite(grades).all():
            broken = np.flatnonzero(~np.isfinite(grades) & (mask == 1 if mask.size else True))
            if broken.size:
                raise ValueError(
                    f"labels must be finite; {_place(int(broken[0]), shape, offsets)} is {grades[broken[0]]}. "
                    "Padding belongs in where"
                )
        arguments: tuple[Any, ...] = (
            flat,
            flat.view(np.uint32 if flat.itemsize == 4 else np.uint64),
            _relevant(grades, min_relevant).view(np.uint8),
            mask,
            bounds,
        )
        task_loss = torch.empty(lists, dtype=scores.dtype)
        value = torch.empty(lists, dtype=scores.dtype)
        direction = torch.empty(shape, dtype=scores.dtype)
        results = tuple(result.view(-1).numpy() for result in (task_loss, value, direction))
        wrong = run_lists(lambda first, last: self.compiled(*arguments, first, last, *results), bounds)
        if wrong != -1:
            raise ValueError(
                f"scores must be finite; {_place(wrong, shape, offsets)} is {flat[wrong]}. "
                "Is the learning rate too high, or a feature missing? Padding belongs in where"
            )
        return task_loss, value, direction

    def _on_device(
        self,
        scores: Tensor,
        labels: Tensor,
        min_relevant: float | None,
        where: Tensor | None,
        offsets: Tensor | None,
    ) -> Answer:
        if labels.dtype.is_floating_point:  # a label that is no number makes the list's value no number
            scores = torch.where(torch.isfinite(labels), scores, torch.nan)
        relevant = _relevant(labels, min_relevant)
        if offsets is not None:
            offsets = offsets.to(scores.device)
            scores, where = pad(scores, offsets)
            relevant, _ = pad(relevant, offsets)
            task_loss, value, direction = self.padded(scores, relevant, where)
            return task_loss, value, direction[where]
        shape = scores.shape
        if where is None:
            where = torch.ones_like(relevant)
        rows = (int(np.prod(shape[:-1])), shape[-1])
        task_loss, value, direction = self.padded(scores.reshape(rows), relevant.reshape(rows), where.reshape(rows))
        return task_loss.view(shape[:-1]), value.view(shape[:-1]), direction.view(shape)


def _relevant(labels: Any, min_relevant: float | None) -> Any:
    """Which documents are relevant; labels are a tensor or an array, and so is the answer."""
    return labels > 0 if min_relevant is None else labels >= min_relevant


def _flat(values: Tensor) -> np.ndarray:
    return values.detach().contiguous().view(-1).numpy()


def _place(flat: int, shape: torch.Size, offsets: Tensor | None) -> str:
    """A document's position as a reader counts it: list and document, or document and its list when flat."""
    if offsets is not None:
        found = int(torch.searchsorted(offsets, flat, right=True)) - 1
        return f"document {flat} (list {found})"
    return f"document {list(map(int, np.unravel_index(flat, shape)))}"
