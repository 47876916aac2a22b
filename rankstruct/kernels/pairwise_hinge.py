"""The pairwise hinge over all pairs of grades (RankSVM), as an operator over lists."""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.dispatch import Answer, FlatLists, PaddedLists, define_kernel, load_kernel

__all__ = ["pairwise_hinge"]


def _flat(lists: FlatLists, results: tuple[np.ndarray, ...], margin: float) -> int:
    task_loss, value, direction = results
    task_loss[:] = 0.0
    broken = np.flatnonzero(lists.real(~np.isfinite(lists.scores)))
    if broken.size:
        return int(broken[0])
    labels = lists.labels.astype(np.float64)
    inputs = (lists.scores, lists.bits, labels, labels.view(np.uint64), lists.where, lists.bounds)
    loop = load_kernel("pairwise_hinge_cpu.hinge_lists")
    return lists.run(lambda first, last: loop(*inputs, first, last, margin, value, direction))


def _padded(lists: PaddedLists, margin: float) -> Answer:
    value, direction = load_kernel("pairwise_hinge_device.hinge_padded")(*lists[:3], margin)
    return value.new_zeros(value.shape), value, direction


#: Mean hinge over the pairs of each list that differ in their labels, and its gradient; the task loss is 0.
pairwise_hinge = define_kernel("pairwise_hinge", "float margin", _flat, _padded)
