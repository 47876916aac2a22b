"""Most violated rankings under the positional map, on the CPU: flat scores, one list after another.

Two steps, with the same layout as in `pairwise_cpu`: an argmax loop fills `rank` [documents] (0-based position of each real
document in the most violated ranking), then `score_lists` compares it with the reference ranking. Scores are taken relative
to the list's highest: sum_j psi_j is constant, so no difference changes.
"""

from __future__ import annotations

import numpy as np

from rankstruct._numba import compile_kernel
from rankstruct.oracles.kernels.assignment_cpu import by_counts, by_lattice, by_sweep
from rankstruct.oracles.kernels.sorting import sort_descending

IDEAL, IDEAL_TIED, PREDICTED = 0, 1, 2

PROPORTIONAL, COUNTS, LATTICE, SWEEP, TOO_MANY_CLASSES = 0, 1, 2, 3, 4

MOST_CLASSES = 64  # the sweep keeps n L^2 numbers; beyond, SciPy's general assignment takes over
_LATTICE_BELOW = 250_000  # cells p m; above, the sweep is faster


@compile_kernel
def choose_method(n, classes, pairs, k, proportional):
    """The cheapest exact method: for n documents of so many distinct gains (`pairs` is p m if there are two), discount 0
    behind rank k, decay proportional to the discount or not.
    """
    if proportional:
        return PROPORTIONAL
    states, cells = 1.0, 1.0
    for g in range(classes):
        states = states * (min(k, n) + g + 1) / (g + 1)
        cells *= min(k, n) + 1
    sweep_cost = 8.0 * n * classes * classes
    if states * (classes + min(k, n) * classes) + n * min(k, n) <= 2.0 * sweep_cost and cells <= 4e6:
        return COUNTS
    if classes == 2 and pairs <= _LATTICE_BELOW:
        return LATTICE
    return SWEEP if classes <= MOST_CLASSES else TOO_MANY_CLASSES


@compile_kernel
def _workspace(offsets, first, last, bits):
    size = 1
    for i in range(first, last):
        size = max(size, offsets[i + 1] - offsets[i])
    return (
        np.empty((2, size), bits.dtype),
        np.empty((2, size), np.int64),
        np.empty((8, 256), np.int64),
        np.empty((2, size), np.uint64),
        np.empty((2, size), np.int64),
    )


@compile_kernel
def _orders(bits, gain_bits, where, start, stop, space, kept):
    """Number of real documents, and their positions by descending score and by descending gain.

    Also kept for `score_lists`, in `kept` [2, documents], with -1 behind the last.
    """
    keys, orders, histogram, gain_keys, gain_orders = space
    count, by_score = sort_descending(bits, where, start, stop, keys[0], orders[0], keys[1], orders[1], histogram)
    _, by_gain = sort_descending(
        gain_bits, where, start, stop, gain_keys[0], gain_orders[0], gain_keys[1], gain_orders[1], histogram
    )
    for i in range(count):
        kept[0, start + i], kept[1, start + i] = by_score[i], by_gain[i]
    if start + count < stop:
        kept[0, start + count] = -1
    return count, by_score, by_gain


@compile_kernel
def discounted_ranks(
    scores, bits, gains, gain_bits, where, offsets, first, last, decay, weights, k, normalized, rank, unsolved, kept
):
    """Discounted gains: the most violated ranking of each list, by the method that `choose_method` names.

    A list with too many distinct gains is left to the caller: `unsolved` is set. Returns -1, or the position of a score that
    is not finite.
    """
    space = _workspace(offsets, first, last, bits)
    size = space[1].shape[1]
    class_of = np.empty(size, np.int64)
    place = np.empty(size, np.int64)
    for index in range(first, last):
        start, stop = offsets[index], offsets[index + 1]
        n, by_score, by_gain = _orders(bits, gain_bits, where, start, stop, space, kept)
        if n == 0:
            continue
        top = np.float64(scores[by_score[0]])
        s = np.empty(n, np.float64)
        for q in range(n):
            s[q] = np.float64(scores[by_score[q]]) - top
            if s[q] - s[q] != 0.0:
                return by_score[q]
            place[by_score[q] - start] = q
        c, a = decay[:n], weights[:n]
        ideal, highest = 0.0, gains[by_gain[0]]
        groups = 0
        for i in range(n):
            ideal += a[i] * gains[by_gain[i]]
            if i == 0 or gains[by_gain[i]] != gains[by_gain[i - 1]]:
                groups += 1
            class_of[place[by_gain[i] - start]] = groups - 1
        if highest <= 0.0 or groups == 1 or a[0] == a[n - 1] or ideal <= 0.0:
            for q in range(n):  # no ranking can get it wrong; any will do
                rank[by_score[q]] = q
            continue
        gain = np.empty(groups, np.float64)
        starts = np.zeros(groups + 1, np.int64)
        for q in range(n):
            gain[class_of[q]] = gains[by_score[q]] / (ideal if normalized else 1.0)
            starts[class_of[q] + 1] += 1
        pairs = starts[1] * (n - starts[1])
        pointer = np.empty(groups, np.int64)
        for g in range(groups):
            pointer[g] = starts[g]
            starts[g + 1] += starts[g]
        members = np.empty(n, np.int64)
        for q in range(n):
            members[pointer[class_of[q]]] = q
            pointer[class_of[q]] += 1

        proportional = a[n - 1] > 0.0 or c[n - 1] == 0.0
        for i in range(n):
            proportional = proportional and c[i] * a[0] == a[i] * c[0] and c[0] > 0.0
        method = choose_method(n, groups, pairs, k, proportional)
        if method == TOO_MANY_CLASSES:
            unsolved[index] = True
            continue
        if method == PROPORTIONAL:
            for q in range(n):
                s[q] -= gain[class_of[q]] * (a[0] / c[0])
            histogram, keys = space[2], space[3]
            _, order = sort_descending(
                s.view(np.uint64), where[:0], 0, n, keys[0], members, keys[1], class_of, histogram
            )
            for i in range(n):
                rank[by_score[order[i]]] = i
            continue
        classes = np.empty(n, np.int64)
        if method == COUNTS:
            by_counts(s, class_of[:n], members, starts, gain, c, a, k, classes)
        elif method == LATTICE:
            by_lattice(s, class_of[:n], members, starts, gain, c, a, classes)
        else:
            by_sweep(s, members, starts, gain, c, a, classes)
        for g in range(groups):
            pointer[g] = starts[g]
        for i in range(n):
            rank[by_score[members[pointer[classes[i]]]]] = i
            pointer[classes[i]] += 1
    return -1


@compile_kernel
def reciprocal_ranks(
    scores, bits, gains, gain_bits, where, offsets, first, last, decay, weights, k, normalized, rank, unsolved, kept
):
    """Reciprocal rank, one relevant document or several: the r highest bads, the highest good, then all others by score.

    Tried for every r < k from the bads above that good on (with fewer, it would stand higher than its score says, and earn
    more), and, if there are k bads, the k highest bads first and then all others by score, which earns nothing.
    O(n + min(k, m) (goods above the r-th bad)). `gains` are above 0 for goods.
    """
    space = _workspace(offsets, first, last, bits)
    size = space[1].shape[1]
    s, prefix = np.empty(size), np.empty(size + 1)
    goods, bads = np.empty(size, np.int64), np.empty(size, np.int64)
    for index in range(first, last):
        start, stop = offsets[index], offsets[index + 1]
        n, by_score, _ = _orders(bits, gain_bits, where, start, stop, space, kept)
        if n == 0:
            continue
        top = np.float64(scores[by_score[0]])
        p, m = 0, 0
        prefix[0] = 0.0
        for q in range(n):
            s[q] = np.float64(scores[by_score[q]]) - top
            if s[q] - s[q] != 0.0:
                return by_score[q]
            if gains[by_score[q]] > 0.0:
                goods[p] = q
                p += 1
            else:
                bads[m] = q
                m += 1
            prefix[q + 1] = prefix[q] + decay[q] * s[q]  # each at its own rank
            rank[by_score[q]] = q
        if p == 0 or m == 0:
            continue
        lead = goods[0]  # bads 0..lead-1 are the first ones by score
        start_r = min(lead, k)
        best, best_r = -np.inf, start_r
        above = prefix[start_r]  # the r highest bads at the first ranks
        v = 0  # goods that score above bad r - 1
        for r in range(start_r, min(m, k) + 1):
            if r > start_r:
                above += decay[r - 1] * s[bads[r - 1]]
            while r and v < p and goods[v] < bads[r - 1]:
                v += 1
            last_chosen = bads[r - 1] if r > lead or r == k else lead
            found = above + prefix[n] - prefix[last_chosen + 1]
            if r == k:  # no good in the first k: all others by score behind the bads
                for i in range(v):
                    found += decay[r + i] * s[goods[i]]
            else:
                found += decay[r] * s[lead] - 1.0 / (1 + r)
                for i in range(1, v):
                    found += decay[r + i] * s[goods[i]]
            if found > best:
                best, best_r = found, r
        position = best_r
        for i in range(best_r):
            rank[by_score[bads[i]]] = i
        if best_r < k:
            rank[by_score[lead]] = best_r
            position += 1
        taken_bads = 0
        for q in range(n):
            if taken_bads < m and bads[taken_bads] == q:
                taken_bads += 1
                if taken_bads <= best_r:
                    continue
            elif q == lead and best_r < k:
                continue
            rank[by_score[q]] = position
            position += 1
    return -1


@compile_kernel
def score_lists(
    scores,
    gains,
    offsets,
    first,
    last,
    decay,
    weights,
    k,
    normalized,
    is_reciprocal,
    reference,
    rank,
    kept,
    task_loss,
    value,
    direction,
):
    """Task loss, hinge and direction of the rankings `rank` against a reference; 0 where no ranking can be wrong."""
    size = 1
    for i in range(first, last):
        size = max(size, offsets[i + 1] - offsets[i])
    begins, block, pointer = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    reference_rank = np.empty(size, np.int64)
    for index in range(first, last):
        start, stop = offsets[index], offsets[index + 1]
        task_loss[index], value[index] = 0.0, 0.0
        direction[start:stop] = 0.0
        by_score, by_gain = kept[0, start:stop], kept[1, start:stop]
        n = 0
        while n < stop - start and by_score[n] >= 0:
            n += 1
        if n == 0 or gains[by_gain[0]] <= 0.0 or gains[by_gain[0]] == gains[by_gain[n - 1]]:
            continue
        best, found = 0.0, 0.0
        if is_reciprocal:
            best, nearest = 1.0, n
            for i in range(n):
                if gains[by_gain[i]] > 0.0:
                    nearest = min(nearest, rank[by_gain[i]])
            found = 1.0 / (1 + nearest) if nearest < k else 0.0
        else:
            if weights[0] == weights[n - 1]:
                continue
            for i in range(n):
                best += weights[i] * gains[by_gain[i]]
                found += weights[rank[by_gain[i]]] * gains[by_gain[i]]
            if best <= 0.0:
                continue
            if normalized:
                best, found = 1.0, found / best
        loss = max(best - found, 0.0)

        if reference == IDEAL:
            for i in range(n):
                reference_rank[by_gain[i] - start] = i
        elif reference == PREDICTED:
            for i in range(n):
                reference_rank[by_score[i] - start] = i
        elif is_reciprocal:
            # The highest-scored relevant document, then all others by score.
            lead = 0
            while gains[by_score[lead]] <= 0.0:
                lead += 1
            for i in range(n):
                reference_rank[by_score[i] - start] = i + 1 if i < lead else i
            reference_rank[by_score[lead] - start] = 0
        else:
            # By gain, then score; then each block of positions of equal discount by score alone. `begin` is the first position
            # of a block; documents are dealt out to the blocks by descending score.
            begin = 0
            for i in range(n):
                if i and gains[by_gain[i]] != gains[by_gain[i - 1]]:
                    begin = i
                begins[by_gain[i] - start] = begin
                pointer[i] = i
            for i in range(n):
                at = by_score[i] - start
                reference_rank[at] = pointer[begins[at]]
                pointer[begins[at]] += 1
            begin = 0
            for i in range(n):
                if i and weights[i] != weights[i - 1]:
                    begin = i
                block[i] = begin
                pointer[i] = i
            for i in range(n):
                at = by_score[i] - start
                begin = block[reference_rank[at]]
                reference_rank[at] = pointer[begin]
                pointer[begin] += 1

        top = np.float64(scores[by_score[0]])
        difference = 0.0
        for i in range(n):
            at = by_score[i]
            step = decay[rank[at]] - decay[reference_rank[at - start]]
            direction[at] = step
            difference += step * (np.float64(scores[at]) - top)
        task_loss[index] = loss
        value[index] = max(loss + difference, 0.0)
    return -1
