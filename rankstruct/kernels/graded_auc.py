"""AUC's most violated rankings at every threshold of graded labels, summed, as an operator over lists."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from rankstruct.kernels.binary import NO_CUTOFF, Parameters, refuse_scores, solve_padded_grades
from rankstruct.kernels.dispatch import Answer, FlatLists, PaddedLists, define_kernel, load_kernel

__all__ = ["graded_auc"]


def _flat(lists: FlatLists, results: tuple[np.ndarray, ...], thresholds: Tensor, weights: Tensor) -> int:
    labels = lists.labels.astype(np.float64, copy=False)
    inputs = (lists.scores, lists.bits, labels, lists.where, lists.bounds, thresholds.numpy(), weights.numpy())
    loop = load_kernel("graded_auc_cpu.graded_lists")
    refuse_scores(lists, lists.run(lambda first, last: loop(*inputs, first, last, *results)))
    return -1


def _padded(lists: PaddedLists, thresholds: Tensor, weights: Tensor) -> Answer:
    parameters = Parameters(NO_CUTOFF, np.empty(0))
    return solve_padded_grades("pairwise_device.auc_padded", parameters, lists, thresholds, weights)


#: As `binary.grades_kernel` makes them, with `thresholds` that ascend, by one sweep over all of them.
graded_auc = define_kernel("graded_auc", "Tensor thresholds, Tensor weights", _flat, _padded)
