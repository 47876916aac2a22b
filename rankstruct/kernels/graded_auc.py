"""AUC's most violated rankings at every threshold of graded labels, summed, as an operator over lists."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels.binary import NO_CUTOFF, Parameters
from rankstruct.kernels.dispatch import Answer, FlatLists, PaddedLists, define_kernel, load_kernel

__all__ = ["graded_auc"]


def _flat(lists: FlatLists, results: tuple[np.ndarray, ...], thresholds: Tensor, weights: Tensor) -> int:
    labels = lists.labels.astype(np.float64, copy=False)
    inputs = (lists.scores, lists.bits, labels, lists.where, lists.bounds, thresholds.numpy(), weights.numpy())
    loop = load_kernel("graded_auc_cpu.graded_lists")
    wrong = lists.run(lambda first, last: loop(*inputs, first, last, *results))
    if wrong != -1:  # a score: labels may be below 0 here
        lists._replace(labels=np.zeros_like(lists.labels)).refuse(wrong)
    return wrong


def _padded(lists: PaddedLists, thresholds: Tensor, weights: Tensor) -> Answer:
    count, device = thresholds.shape[0], lists.scores.device
    if count == 0:
        nothing = lists.scores.new_zeros(lists.scores.shape[0])
        return nothing, nothing.clone(), torch.zeros_like(lists.scores)
    reached = lists.labels >= thresholds.to(device).view(-1, 1, 1)
    scores, labels, where = (each.repeat(count, 1) for each in lists[:3])
    solve = load_kernel("pairwise_device.auc_padded")
    relevant, parameters = reached.flatten(0, 1), Parameters(NO_CUTOFF, np.empty(0))
    answers = solve(PaddedLists(scores, labels, where, None), relevant, parameters)
    # Not a product of matrices, which may be rounded to fewer digits.
    shares = (each.unflatten(0, (count, -1)) for each in answers)
    task_loss, value, direction = (
        (each * weights.to(device).view(-1, *[1] * (each.dim() - 1))).sum(0) for each in shares
    )
    return task_loss, value, direction


#: `thresholds` `[T]` and their `weights` `[T]`, both float64: documents whose label is a threshold or more are relevant, against
#: those below, at the threshold's weight.
graded_auc = define_kernel("graded_auc", "Tensor thresholds, Tensor weights", _flat, _padded)
