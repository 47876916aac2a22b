"""Most violated rankings under the first-relevant feature map, on the CPU; see `pairwise_cpu` for what a kernel takes."""

from __future__ import annotations

import numpy as np

from rankstruct._numba import compile_kernel
from rankstruct.oracles.kernels.pairwise_cpu import begin_list, workspace


@compile_kernel
def reciprocal_rank_lists(scores, bits, relevant, where, offsets, first, last, parameters, task_loss, value, direction):
    """Reciprocal rank (SVMmrr): for each r, the r highest bads, then the good with the lowest score. O(n) after the sort.

    If there are k bads at least, one more candidate earns nothing: all bads that score above that good, but at least k.
    """
    space = workspace(offsets, first, last, bits)
    good, bad = space[3][0], space[3][1]
    good_score, bad_score = space[4][0], space[4][1]
    for index in range(first, last):
        p, m, broken = begin_list(scores, bits, relevant, where, offsets, index, space, task_loss, value, direction)
        if broken >= 0:
            return broken
        if p == 0 or m == 0:
            continue
        lowest = good_score[p - 1]
        best, best_r, best_loss = 0.0, 0, 0.0
        lead = 0.0  # by how much the r highest bads together score above the good
        for r in range(1, m + 1):
            lead += bad_score[r - 1] - lowest
            loss = 1.0 - 1.0 / (1 + r) if r < parameters.cutoff else 1.0
            if loss + lead > best:
                best, best_r, best_loss = loss + lead, r, loss
        if best_r:
            direction[good[p - 1]] = -np.float64(best_r)
            direction[bad[:best_r]] = 1.0
        task_loss[index] = best_loss
        value[index] = best
    return -1


@compile_kernel
def by_score_lists(scores, bits, relevant, where, offsets, first, last, parameters, task_loss, value, direction):
    """The ranking that F prefers: the bads that score above the lowest good, then that good. O(n) after the sort."""
    space = workspace(offsets, first, last, bits)
    good, bad = space[3][0], space[3][1]
    good_score, bad_score = space[4][0], space[4][1]
    for index in range(first, last):
        p, m, broken = begin_list(scores, bits, relevant, where, offsets, index, space, task_loss, value, direction)
        if broken >= 0:
            return broken
        r = 0
        while p and r < m and bad_score[r] > good_score[p - 1]:
            value[index] += bad_score[r] - good_score[p - 1]
            direction[bad[r]] = 1.0
            r += 1
        if r:
            direction[good[p - 1]] = -np.float64(r)
    return -1
