"""Most violated rankings under the pairwise feature map, on the CPU: flat scores, one list after another.

Every kernel here takes `scores`, the same memory as unsigned integers `bits`, `relevant` and `where` (uint8; `where` is
empty if every document is real), `offsets`, and the lists `[first, last)` to do; it fills `task_loss` and `value` [lists]
and `direction` [documents]. It returns -1, or the position of a score that is not finite. It trusts its
input otherwise and holds no lock, so that threads can share a batch.

Notation: p relevant ("good") and m irrelevant ("bad") documents, each by descending score; a ranking is the number of
bads above each good. Scores are taken relative to the list's highest, which changes no difference and keeps sums small.
"""

from __future__ import annotations

import numpy as np

from rankstruct._numba import compile_kernel
from rankstruct.oracles.kernels.sorting import sort_descending


@compile_kernel
def _longest(offsets, first, last):
    longest = 1
    for i in range(first, last):
        longest = max(longest, offsets[i + 1] - offsets[i])
    return longest


@compile_kernel
def _split(scores, relevant, order, count, good, good_score, bad, bad_score):
    """Split a sorted list into goods and bads; returns p, m and the position of a score that is not finite, or -1."""
    p, m = 0, 0
    top = np.float64(scores[order[0]]) if count else 0.0
    for i in range(count):
        at = order[i]
        score = np.float64(scores[at]) - top
        if score - score != 0.0:  # NaN for NaN and infinities, which differs from everything
            return p, m, at
        if relevant[at]:
            good[p], good_score[p] = at, score
            p += 1
        else:
            bad[m], bad_score[m] = at, score
            m += 1
    return p, m, -1


@compile_kernel
def _finish(p, m, good, good_score, bad, bad_score, bads_above, direction):
    """Write psi(r^) - psi(r*) of the ranking with `bads_above` each good; returns its score difference F(r^) - F(r*)."""
    scale = 2.0 / (np.float64(p) * np.float64(m))
    difference = 0.0
    for i in range(p):
        coefficient = 0.0 - scale * bads_above[i]  # not -0.0
        direction[good[i]] = coefficient
        difference += coefficient * good_score[i]
    below = p  # goods i with bads_above[i] > j form a suffix, since bads_above does not decrease
    j = 0
    for i in range(p):
        while j < bads_above[i]:
            coefficient = scale * (below - i)
            direction[bad[j]] = coefficient
            difference += coefficient * bad_score[j]
            j += 1
    return difference


@compile_kernel
def auc_lists(scores, bits, relevant, where, offsets, first, last, task_loss, value, direction):
    """AUC (SVMauc): a pair is swapped iff its margin is under 1/2, each pair by itself. O(n) after the sort."""
    size = _longest(offsets, first, last)
    key, spare_key = np.empty(size, bits.dtype), np.empty(size, bits.dtype)
    order, spare_order = np.empty(size, np.int64), np.empty(size, np.int64)
    histogram = np.empty((8, 256), np.int64)
    good, bad, bads_above = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    good_score, bad_score = np.empty(size, np.float64), np.empty(size, np.float64)
    for index in range(first, last):
        count, ordered = sort_descending(
            bits, where, offsets[index], offsets[index + 1], key, order, spare_key, spare_order, histogram
        )
        p, m, broken = _split(scores, relevant, ordered, count, good, good_score, bad, bad_score)
        if broken >= 0:
            return broken
        task_loss[index] = 0.0
        value[index] = 0.0
        direction[offsets[index] : offsets[index + 1]] = 0.0
        if p == 0 or m == 0:
            continue
        j = 0
        swapped = 0.0
        for i in range(p):
            while j < m and good_score[i] - bad_score[j] < 0.5:
                j += 1
            bads_above[i] = j
            swapped += j
        loss = swapped / (np.float64(p) * np.float64(m))
        difference = _finish(p, m, good, good_score, bad, bad_score, bads_above, direction)
        task_loss[index] = loss
        value[index] = max(loss + difference, 0.0)
    return -1


@compile_kernel
def average_precision_lists(scores, bits, relevant, where, offsets, first, last, task_loss, value, direction):
    """Average precision (SVMmap): monotone divide and conquer. O(m + p log m) after the sort.

    `above[j]` is the first (1-based) good that bad j stands above, p + 1 for none. The best choice of one bad does
    not depend on the others' and does not decrease with j, so the choices at distance `stride` bracket those between.
    """
    size = _longest(offsets, first, last)
    key, spare_key = np.empty(size, bits.dtype), np.empty(size, bits.dtype)
    order, spare_order = np.empty(size, np.int64), np.empty(size, np.int64)
    histogram = np.empty((8, 256), np.int64)
    good, bad, bads_above = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    good_score, bad_score = np.empty(size, np.float64), np.empty(size, np.float64)
    above = np.empty(size + 1, np.int64)
    good_sum = np.empty(size + 1, np.float64)  # good_sum[i]: the scores of the first i goods
    inverse, harmonic = np.empty(size + 1, np.float64), np.empty(size + 1, np.float64)
    inverse[0], harmonic[0] = 0.0, 0.0
    for i in range(1, size + 1):
        inverse[i] = 1.0 / i
        harmonic[i] = harmonic[i - 1] + inverse[i]
    for index in range(first, last):
        count, ordered = sort_descending(
            bits, where, offsets[index], offsets[index + 1], key, order, spare_key, spare_order, histogram
        )
        p, m, broken = _split(scores, relevant, ordered, count, good, good_score, bad, bad_score)
        if broken >= 0:
            return broken
        task_loss[index] = 0.0
        value[index] = 0.0
        direction[offsets[index] : offsets[index + 1]] = 0.0
        if p == 0 or m == 0:
            continue
        good_sum[0] = 0.0
        for i in range(p):
            good_sum[i + 1] = good_sum[i] + good_score[i]

        # What bad j gains above the goods k..p, times m p / 2, less what does not depend on k, with r = k + j - 1:
        #     m/2 ((j-1) H[r-1] - j H[r]) - (k-1) s_j + good_sum[k-1],  and  (j-1) H[r-1] - j H[r] = -H[r] - (j-1)/r
        half = 0.5 * m
        stride = 1
        while stride * 2 <= m:
            stride *= 2
        while stride >= 1:
            for j in range(stride, m + 1, 2 * stride):
                low = above[j - stride] if j > stride else 1
                high = above[j + stride] if j + stride <= m else p + 1
                score = bad_score[j - 1]
                best, best_k = -np.inf, low
                for k in range(low, high + 1):
                    r = k + j - 1
                    gain = good_sum[k - 1] - (k - 1) * score - half * (harmonic[r] + (j - 1) * inverse[r])
                    if gain > best:
                        best, best_k = gain, k
                above[j] = best_k
            stride //= 2

        j = 0
        precision = 0.0
        for i in range(p):
            while j < m and above[j + 1] <= i + 1:
                j += 1
            bads_above[i] = j
            precision += np.float64(i + 1) / np.float64(i + 1 + j)
        loss = 1.0 - precision / p
        difference = _finish(p, m, good, good_score, bad, bad_score, bads_above, direction)
        task_loss[index] = loss
        value[index] = max(loss + difference, 0.0)
    return -1
