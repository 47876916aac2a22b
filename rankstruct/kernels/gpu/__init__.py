"""Kernels for CUDA and ROCm devices, in Triton, which comes with PyTorch for these; nothing else is needed.

They take the same `Call` of a loop as the compiled core, and solve the same problems with what suits a device: lanes in place of
one fast thread. The lists are sorted by torch, then one program solves each list. Nothing is read back, so no step waits for the
device: a list with an invalid number has the value NaN. `binary.py` has the kernel of binary relevance and calls `pairwise.py`,
`partial_auc.py`, `f1.py`, `reciprocal_rank.py` and `top_surrogate.py`; `positional.py` has that of the positional map, `pairs.py`
that of losses over pairs, which calls `pair_loss.py` and `pair_sums.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rankstruct.kernels.call import Answer, Call
from rankstruct.kernels.gpu import binary, pairs, positional, soft_rank
from rankstruct.kernels.gpu.batch import DeviceBatch, order_of
from rankstruct.kernels.gpu.plackett_luce import log_sums as log_sums  # of rows, not of a loop
from rankstruct.lists import Lists, copied_to, longest_list

_log = logging.getLogger(__name__)

#: By the name of a loop of the core: from a `Call` and a `DeviceBatch` to whether it was solved.
SOLVERS: dict[str, Callable[[Call, DeviceBatch], bool]] = {
    **dict.fromkeys(binary.METHODS, binary.solve),
    **dict.fromkeys(pairs.METHODS, pairs.solve),
    "positional": positional.solve,
    "soft_rank": soft_rank.solve,
}


def solve(
    scores: Tensor, lists: Lists, least_label: float, compiled: Callable[..., Call], options: Sequence[Any]
) -> Answer | None:
    """The results for tensors of one device, with offsets there or on the CPU; None if there is no kernel, or no room.

    Task loss and value are NaN for lists with an invalid number or a label below `least_label`, and for all lists if offsets on
    the device are out of order.
    """
    offsets, documents, device, in_order = lists.offsets, scores.numel(), scores.device, None
    many: tuple[int, ...]
    if offsets is None:
        many, longest = scores.shape[:-1], scores.shape[-1]
    else:
        many, longest = (offsets.shape[0] - 1,), documents
        if is_known(offsets):
            longest = longest_list(offsets, documents)
            offsets = copied_to(device, offsets.long())
        else:
            in_order = (offsets[0] == 0) & (offsets[-1] == documents) & (offsets.diff() >= 0).all()
            offsets = torch.where(in_order, offsets, 0).long()
    call = compiled(longest, *options)
    solver = SOLVERS.get(call.loop.name)
    if solver is None:
        return None
    task_loss, value, direction = (
        torch.zeros(shape, dtype=torch.float64, device=device) for shape in (many, many, scores.shape)
    )
    if documents and value.numel():
        results = task_loss, value, direction
        batch = _batch(scores, lists._replace(offsets=offsets), longest, least_label, results)
        start = time.perf_counter()
        if not solver(call, batch):
            return None
        if (seconds := time.perf_counter() - start) > 1:  # launches do not wait
            _log.warning(
                "compiled the kernel of %s for %s in %.0f s; Triton caches it", call.loop.name, device, seconds
            )
    if in_order is not None:
        task_loss, value = (torch.where(in_order, each, torch.nan) for each in (task_loss, value))
    return task_loss, value, direction


def _batch(scores: Tensor, lists: Lists, longest: int, least_label: float, results: Answer) -> DeviceBatch:
    where, offsets, chosen, weights = lists.where, lists.offsets, lists.reference_scores, lists.item_weights
    if weights is not None:  # as an invalid score
        scores = torch.where((weights >= 0) & weights.isfinite(), scores, torch.nan)
    scores = scores.contiguous()
    where = None if where is None else where.contiguous()
    chosen = None if chosen is None else chosen.double().contiguous()
    return DeviceBatch(
        scores,
        lists.labels.contiguous(),
        where,
        chosen,
        None if weights is None else weights.double().contiguous(),
        offsets,
        order_of(scores, where, offsets),
        None if chosen is None else order_of(chosen, where, offsets),
        results[1].numel(),
        0 if offsets is not None else longest,
        longest,
        least_label,
        *results,
    )


def is_known(offsets: Tensor) -> bool:
    """Whether offsets can be read without waiting for a device; tests override this."""
    return offsets.device.type == "cpu"
