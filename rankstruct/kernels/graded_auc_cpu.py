"""AUC's most violated rankings at every threshold of graded labels, on the CPU: flat scores, one list after another.

At each threshold a pair is swapped iff it is led by less than 1/2, whatever the threshold. So thresholds that tell a pair apart
come together as one weight of the pair. A document costs the weights of those of lower grade that it leads by too little, the
first ones of the order by score, and of those of higher grade that lead it by too little, the last ones: one merge finds how
many, running sums along the order tell what they weigh. O(n log n + n T) with T thresholds.
"""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.compilation import compile_kernel, compile_part, unsigned
from rankstruct.kernels.sorting import longest_list, sort_descending, sort_space

_BLOCK = 4  # thresholds whose running sums are made together, of the five grades of most collections


@compile_part
def _merge(score, n, behind, ahead):
    """Fill `behind[i]`: i leads the first so many by less than 1/2, and `ahead[j]`: those from there on lead j by less.

    Without a branch on scores, which a processor would guess wrong for every other document.
    """
    i, j = np.int64(0), np.int64(0)
    while j < n:  # i < n: nobody leads itself
        takes = np.int64(score[unsigned(i)] - score[unsigned(j)] < 0.5)
        behind[unsigned(i)], ahead[unsigned(j)] = j, i
        j += takes
        i += 1 - takes
    while i < n:
        behind[unsigned(i)] = n
        i += 1


@compile_part
def _weigh(members, n, weights, pair):
    """Fill `pair` `[B + 1, B + 1]`: two documents of grades h < g count 2 w / (p m) at each threshold between, else 0.

    `members` `[B + 1]` are the documents of each grade, the number of the block's thresholds that they reach. Returns whether
    any pair counts.
    """
    p, total = n, 0.0
    pair[:] = 0.0
    for t in range(_BLOCK):
        p -= members[t]
        pairs = np.float64(p) * np.float64(n - p)
        worth = 2.0 * weights[t] / pairs if pairs else 0.0
        total += worth
        for g in range(t + 1, _BLOCK + 1):
            for h in range(t + 1):
                pair[g, h] += worth
    return total > 0.0


@compile_part
def _sum_along(grade, n, pair, lower, higher):
    """Running sums `[n + 1, B]`: what the first documents weigh as the lower ones to each grade above 0, and what those from one
    on weigh as the higher ones to each grade but the highest.
    """
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        g = unsigned(grade[i])
        lower[i, 0], lower[i, 1], lower[i, 2], lower[i, 3] = first, second, third, fourth
        first += pair[1, g]
        second += pair[2, g]
        third += pair[3, g]
        fourth += pair[4, g]
    lower[n, 0], lower[n, 1], lower[n, 2], lower[n, 3] = first, second, third, fourth
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    for i in range(n - 1, -1, -1):
        at, g = unsigned(i), unsigned(grade[i])
        first += pair[g, 0]
        second += pair[g, 1]
        third += pair[g, 2]
        fourth += pair[g, 3]
        higher[at, 0], higher[at, 1], higher[at, 2], higher[at, 3] = first, second, third, fourth


@compile_kernel
def graded_lists(scores, bits, labels, where, offsets, thresholds, weights, first, last, task_loss, value, direction):
    """AUC at every threshold: `[first, last)` as the kernels of `pairwise_cpu` do them, with float64 labels.

    `thresholds` `[T]` ascend, and count `weights` `[T]`. Returns -1, or the position of a score that is not finite.
    """
    size = longest_list(offsets, first, last)
    space = sort_space(bits, size)
    order = space[1][0]
    # By rank, all of them.
    score, label, coefficient = np.empty(size), np.empty(size), np.empty(size)
    behind, ahead, grade = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    lower, higher = np.empty((size + 1, _BLOCK)), np.empty((size + 1, _BLOCK))
    ends, its_weights = np.empty(_BLOCK), np.empty(_BLOCK)
    members, pair = np.empty(_BLOCK + 1, np.int64), np.empty((_BLOCK + 1, _BLOCK + 1))
    for index in range(first, last):
        start, stop = offsets[index], offsets[index + 1]
        task_loss[index] = 0.0
        value[index] = 0.0
        direction[start:stop] = 0.0
        n = sort_descending(bits, where, start, stop, space)
        top = np.float64(scores[order[0]]) if n else 0.0
        for i in range(n):
            at = order[i]
            score[i], label[i], coefficient[i] = np.float64(scores[unsigned(at)]) - top, labels[unsigned(at)], 0.0
            if score[i] - score[i] != 0.0:  # NaN for NaN and infinities, which differs from everything
                return at
        _merge(score, n, behind, ahead)
        loss = 0.0
        for block in range(0, thresholds.shape[0], _BLOCK):
            members[:] = 0
            for t in range(_BLOCK):
                there = block + t < thresholds.shape[0]
                ends[t], its_weights[t] = (thresholds[block + t], weights[block + t]) if there else (np.inf, 0.0)
            for i in range(n):
                reached = np.int64(0)
                for t in range(_BLOCK):
                    reached += np.int64(ends[t] <= label[i])
                grade[i] = reached
                members[unsigned(reached)] += 1
            if not _weigh(members, n, its_weights, pair):
                continue
            _sum_along(grade, n, pair, lower, higher)
            for i in range(n):
                g = grade[i]
                leads = lower[unsigned(behind[i]), unsigned(max(g - 1, 0))] if g else 0.0
                led = higher[unsigned(ahead[i]), unsigned(min(g, _BLOCK - 1))] if g < _BLOCK else 0.0
                coefficient[i] += led - leads
                loss += 0.5 * leads
        difference = 0.0
        for i in range(n):
            direction[unsigned(order[i])] = coefficient[i]
            difference += coefficient[i] * score[i]
        task_loss[index] = loss
        value[index] = max(loss + difference, 0.0)
    return -1
