"""Most violated rankings under the pairwise feature map, on the CPU: flat scores, one list after another.

Every kernel here takes `scores`, the same memory as unsigned integers `bits`, `order` (of `order_lists`; empty if the kernel is
to sort), `relevant` and `where` (uint8; `where` is empty if every document is real), `offsets`, the lists `[first, last)` to do,
and its `Parameters`; it fills `task_loss` and `value` [lists] and `direction` [documents]. It returns -1, or the position of a
score that is not finite. It trusts its input otherwise and holds no lock, so that threads can share a batch.

Notation: p relevant and m irrelevant documents, each by descending score: relevant i is the i-th of them, irrelevant j the
j-th of those. A ranking is the number of irrelevant documents above each relevant one. Scores are taken relative to the
list's highest, which changes no difference and keeps sums small.
"""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.compilation import compile_kernel, compile_part, unsigned
from rankstruct.kernels.sorting import copy_into, is_tied, longest_list, share_among_tied, sort_descending, sort_space


@compile_kernel
def workspace(offsets, first, last, bits):
    """Scratch for the longest list: that of the sort; documents; their scores.

    The rows of documents are the relevant and the irrelevant ones by score, the same by the scores that choose the reference,
    how many irrelevant ones stand above each relevant one, and what `_finish` counts. Those of the scores are the first four.
    """
    size = longest_list(offsets, first, last)
    return sort_space(bits, size), np.empty((6, size), np.int64), np.empty((4, size), np.float64)


@compile_kernel
def order_lists(bits, where, offsets, first, last, order):
    """Fill `order` int64 `[documents]` from each list's start with its real documents by descending score, and then with -1."""
    sort = sort_space(bits, longest_list(offsets, first, last))
    for index in range(first, last):
        start, stop = offsets[index], offsets[index + 1]
        count = sort_descending(bits, where, start, stop, sort)
        copy_into(sort[1][0, :count], order[start : start + count])
        order[start + count : stop] = -1
    return -1


@compile_part
def split_list(scores, bits, order, relevant, where, start, stop, space, row):
    """Sort a list, if `order` is empty, and split it into relevant and irrelevant documents, in the rows `row` and `row + 1` of
    `space`.

    Returns p, m and the position of a score that is not finite, or -1.
    """
    sort, documents, values = space
    if order.size:
        count, ordered = stop - start, order[start:stop]
        while count > 0 and ordered[count - 1] < 0:
            count -= 1
    else:
        count, ordered = sort_descending(bits, where, start, stop, sort), sort[1][0]
    relevant_at, irrelevant_at = documents[row], documents[row + 1]
    relevant_score, irrelevant_score = values[row], values[row + 1]
    p, m = np.int64(0), np.int64(0)
    top = np.float64(scores[ordered[0]]) if count else 0.0
    for i in range(count):
        at = ordered[i]
        score = np.float64(scores[unsigned(at)]) - top
        if score - score != 0.0:  # NaN for NaN and infinities, which differs from everything
            return p, m, at
        # Without a branch, which a processor would guess wrong for every other document.
        relevant_at[unsigned(p)], relevant_score[unsigned(p)] = at, score
        irrelevant_at[unsigned(m)], irrelevant_score[unsigned(m)] = at, score
        step = np.int64(relevant[unsigned(at)])
        p += step
        m += 1 - step
    return p, m, -1


@compile_part
def begin_list(scores, bits, order, relevant, where, offsets, index, space, task_loss, value, direction):
    """Set a list's results to 0 and `split_list` it."""
    start, stop = offsets[index], offsets[index + 1]
    task_loss[index] = 0.0
    value[index] = 0.0
    direction[start:stop] = 0.0
    return split_list(scores, bits, order, relevant, where, start, stop, space, 0)


@compile_part
def split_by_chosen(relevant, where, start, stop, parameters, space):
    """`split_list` by the scores that choose the reference; returns the first of its two rows, which may be those of the list."""
    if parameters.chosen.size == 0:
        return 0
    unknown = space[1][0, :0]
    split_list(parameters.chosen, parameters.chosen_bits, unknown, relevant, where, start, stop, space, 2)
    return 2


@compile_part
def share_directions(p, m, space, parameters, direction):
    """`share_among_tied` among the relevant documents and among the irrelevant ones."""
    for row, count in ((0, p), (1, m)):
        score = space[2][row, :count]
        if is_tied(score):
            share_among_tied(space[1][row, :count], score, parameters.chosen, direction)


@compile_part
def _finish(p, m, space, loss, index, parameters, task_loss, value, direction):
    """Write the results of the ranking with the irrelevant documents above each relevant one in `space` and its task loss."""
    _, documents, values = space
    relevant_at, irrelevant_at, above = documents[0], documents[1], documents[4]
    relevant_score, irrelevant_score = values[0], values[1]
    scale = 2.0 / (np.float64(p) * np.float64(m))
    difference = 0.0
    j = 0
    for i in range(p):
        coefficient = 0.0 - scale * above[i]  # not -0.0
        direction[unsigned(relevant_at[i])] = coefficient
        difference += coefficient * relevant_score[i]
        # Irrelevant ones that are above relevant i but not above i - 1 are above all relevant ones from i on.
        while j < above[i]:
            coefficient = scale * (p - i)
            direction[unsigned(irrelevant_at[unsigned(j)])] = coefficient
            difference += coefficient * irrelevant_score[unsigned(j)]
            j += 1
    task_loss[index] = loss
    value[index] = max(loss + difference, 0.0)
    share_directions(p, m, space, parameters, direction)


@compile_part
def _finish_predicted(p, m, space, loss, relevant, where, offsets, index, parameters, task_loss, value, direction):
    """`_finish` against the ranking that F prefers. A function of its own: each array that is handed on costs short lists time.

    Pairs that are swapped are counted as integers, so that what two rankings share cancels exactly.
    """
    start, stop = offsets[index], offsets[index + 1]
    documents, values = space[1], space[2]
    relevant_at, irrelevant_at, above, swapped = documents[0], documents[1], documents[4], documents[5]
    relevant_score, irrelevant_score = values[0], values[1]
    scale = 2.0 / (np.float64(p) * np.float64(m))
    difference = 0.0
    i = 0
    if parameters.chosen.size == 0:  # both rankings have one order within the relevant ones, and within the others
        own = 0
        for j in range(m):
            while i < p and above[unsigned(i)] <= j:
                i += 1
            while own < p and relevant_score[unsigned(own)] >= irrelevant_score[j]:
                own += 1
            coefficient = scale * np.float64(own - i)
            direction[unsigned(irrelevant_at[j])] = coefficient
            difference += coefficient * irrelevant_score[j]
        own = 0
        for i in range(p):
            while own < m and relevant_score[i] < irrelevant_score[unsigned(own)]:
                own += 1
            coefficient = scale * np.float64(own - above[i])
            direction[unsigned(relevant_at[i])] = coefficient
            difference += coefficient * relevant_score[i]
    else:
        for j in range(m):
            while i < p and above[unsigned(i)] <= j:
                i += 1
            swapped[unsigned(irrelevant_at[j] - start)] = p - i
        for i in range(p):
            swapped[unsigned(relevant_at[i] - start)] = above[i]
        row = split_by_chosen(relevant, where, start, stop, parameters, space)
        _uncount(p, m, documents[row], documents[row + 1], values[row], values[row + 1], start, swapped)
        for i in range(p):
            coefficient = 0.0 - scale * swapped[unsigned(relevant_at[i] - start)]
            direction[unsigned(relevant_at[i])] = coefficient
            difference += coefficient * relevant_score[i]
        for j in range(m):
            coefficient = scale * swapped[unsigned(irrelevant_at[j] - start)]
            direction[unsigned(irrelevant_at[j])] = coefficient
            difference += coefficient * irrelevant_score[j]
    task_loss[index] = loss
    value[index] = max(loss + difference, 0.0)
    share_directions(p, m, space, parameters, direction)


@compile_part
def _uncount(p, m, relevant_at, irrelevant_at, relevant_score, irrelevant_score, start, swapped):
    """Take off the pairs that the ranking by these scores swaps, which is what F prefers: relevant ones first among ties."""
    j = 0
    for i in range(p):
        while j < m and relevant_score[i] < irrelevant_score[unsigned(j)]:
            j += 1
        swapped[unsigned(relevant_at[i] - start)] -= j
    i = 0
    for j in range(m):
        while i < p and relevant_score[unsigned(i)] >= irrelevant_score[j]:
            i += 1
        swapped[unsigned(irrelevant_at[j] - start)] -= p - i


@compile_part
def _count_above(p, m, relevant_score, irrelevant_score, margin, irrelevant_above):
    """Put above each relevant document what it leads by less than the margin; returns how many pairs that swaps."""
    j = 0
    swapped = 0.0
    for i in range(p):
        while j < m and relevant_score[i] - irrelevant_score[unsigned(j)] < margin:
            j += 1
        irrelevant_above[i] = j
        swapped += j
    return swapped


@compile_kernel
def auc_lists(scores, bits, order, relevant, where, offsets, first, last, parameters, task_loss, value, direction):
    """AUC (SVMauc): a pair is swapped iff its margin is under 1/2, each pair by itself. O(n) after the sort."""
    space = workspace(offsets, first, last, bits)
    irrelevant_above = space[1][4]
    relevant_score, irrelevant_score = space[2][0], space[2][1]
    for index in range(first, last):
        p, m, broken = begin_list(
            scores, bits, order, relevant, where, offsets, index, space, task_loss, value, direction
        )
        if broken >= 0:
            return broken
        if p == 0 or m == 0:
            continue
        loss = _count_above(p, m, relevant_score, irrelevant_score, 0.5, irrelevant_above) / (np.float64(p) * m)
        if parameters.predicted:
            _finish_predicted(
                p, m, space, loss, relevant, where, offsets, index, parameters, task_loss, value, direction
            )
        else:
            _finish(p, m, space, loss, index, parameters, task_loss, value, direction)
    return -1


@compile_kernel
def convex_lists(scores, bits, order, relevant, where, offsets, first, last, parameters, task_loss, value, direction):
    """AP without a cut-off (SVMmap), and discounted gains whose discount is convex (SVMndcg-nc): O(m + p log m).

    Monotone divide and conquer. `above[j]` is the first (1-based) relevant document below irrelevant j, p + 1 for none.
    The best choice of one does not depend on the others' and does not decrease with j, so the choices at distance
    `stride` bracket those between.

    With r = k + j - 1, irrelevant j gains above the relevant k..p, times m p / 2 and less what does not depend on k,

        relevant_sum[k-1] - (k-1) s_j - m/2 (H[r] + (j-1)/r)        for AP, by (j-1) H[r-1] - j H[r] = -H[r] - (j-1)/r
        relevant_sum[k-1] - (k-1) s_j + m/2 p g a[r]                for a discount a and a gain g
    """
    space = workspace(offsets, first, last, bits)
    irrelevant_above = space[1][4]
    relevant_score, irrelevant_score = space[2][0], space[2][1]
    size = irrelevant_above.shape[0]
    weights, gains, normalized = parameters.weights, parameters.gains, parameters.normalized
    is_precision = weights.shape[0] == 0
    above = np.empty(size + 1, np.int64)
    relevant_sum = np.empty(size + 1, np.float64)  # relevant_sum[i]: the scores of the first i relevant ones
    level, slope = np.zeros(size + 1, np.float64), np.zeros(size + 1, np.float64)
    for r in range(1, size + 1):
        if is_precision:
            slope[r] = -1.0 / r
            level[r] = level[r - 1] - 1.0 / r
        else:
            level[r] = weights[r - 1]
    for index in range(first, last):
        p, m, broken = begin_list(
            scores, bits, order, relevant, where, offsets, index, space, task_loss, value, direction
        )
        if broken >= 0:
            return broken
        if p == 0 or m == 0:
            continue
        gain, best_value = 1.0 / p, 1.0
        if not is_precision:
            gain, best_value = scaled_gain(weights, p, m, gains[space[1][0][0]], normalized)
        if best_value == 0.0:
            continue
        factor = 0.5 * m * p * gain
        relevant_sum[0] = 0.0
        for i in range(p):
            relevant_sum[i + 1] = relevant_sum[i] + relevant_score[i]

        stride = 1
        while stride * 2 <= m:
            stride *= 2
        while stride >= 1:
            for j in range(stride, m + 1, 2 * stride):
                low = above[unsigned(j - stride)] if j > stride else 1
                high = above[unsigned(j + stride)] if j + stride <= m else p + 1
                score = irrelevant_score[unsigned(j - 1)]
                best, best_k = -np.inf, low
                for k in range(low, high + 1):
                    r = k + j - 1
                    credit = factor * (level[unsigned(r)] + (j - 1) * slope[unsigned(r)])
                    found = relevant_sum[unsigned(k - 1)] - (k - 1) * score + credit
                    if found > best:
                        best, best_k = found, k
                above[unsigned(j)] = best_k
            stride //= 2

        j = 0
        measure = 0.0
        for i in range(p):
            while j < m and above[unsigned(j + 1)] <= i + 1:
                j += 1
            irrelevant_above[i] = j
            if is_precision:
                measure += gain * (i + 1) / np.float64(i + 1 + j)
            else:
                measure += gain * weights[unsigned(i + j)]
        loss = best_value - measure
        if parameters.predicted:
            _finish_predicted(
                p, m, space, loss, relevant, where, offsets, index, parameters, task_loss, value, direction
            )
        else:
            _finish(p, m, space, loss, index, parameters, task_loss, value, direction)
    return -1


@compile_part
def scaled_gain(weights, p, m, gain, normalized):
    """What a relevant document is worth per unit of discount, and the measure of the best ranking.

    Both are 0 where all of the list's ranks are worth the same, so that no ranking can get it wrong.
    """
    total = 0.0
    for i in range(p):
        total += weights[i]
    if weights[0] == weights[p + m - 1] or total <= 0.0:
        return 0.0, 0.0
    return (1.0 / total, 1.0) if normalized else (gain, gain * total)


@compile_part
def _own_optima(p, m, space, irrelevant_sum, relevant_sum, own_best, own_sum):
    """Relevant documents by themselves: u_i irrelevant ones score above one, own_sum[i] is what those from i on gain by that."""
    relevant_score, irrelevant_score = space[2][0], space[2][1]
    scale = 2.0 / (np.float64(p) * np.float64(m))
    irrelevant_sum[0], relevant_sum[0] = 0.0, 0.0
    for j in range(m):
        irrelevant_sum[j + 1] = irrelevant_sum[j] + irrelevant_score[j]
    j = 0
    for i in range(p):
        relevant_sum[i + 1] = relevant_sum[i] + relevant_score[i]
        while j < m and irrelevant_score[unsigned(j)] > relevant_score[i]:
            j += 1
        own_best[i] = j
    own_sum[p] = 0.0
    for i in range(p - 1, -1, -1):
        own_sum[i] = own_sum[i + 1] + scale * (irrelevant_sum[unsigned(own_best[i])] - own_best[i] * relevant_score[i])
    return scale


@compile_part
def _tail(t, b, p, scale, irrelevant_sum, relevant_sum, own_best, own_sum):
    """What relevant documents behind the first t gain when each takes max(u_i, b) irrelevant ones above it; u_i never falls."""
    low, high = t, p
    while low < high:
        middle = (low + high) // 2
        if own_best[unsigned(middle)] >= b:
            high = middle
        else:
            low = middle + 1
    return scale * ((low - t) * irrelevant_sum[b] - b * (relevant_sum[low] - relevant_sum[t])) + own_sum[low]


@compile_kernel
def programme_lists(
    scores, bits, order, relevant, where, offsets, first, last, parameters, task_loss, value, direction
):
    """AP@k and discounted gains of any discount, which is 0 behind rank k: a programme over what stands above each relevant one.

    O(n + min(k, p) min(k, m)) after the sort. A relevant document behind rank k earns nothing, and then its best number of
    irrelevant ones above is u_i, those that score above it, which does not decrease with i. So only rows with i + b <= k need
    the running maximum T_i(b) = h_i(b) - credit(i, b) + max_{b' <= b} T_{i-1}(b'), h_i(b) = 2/(p m) (S(b) - b s_i). If relevant
    t is the last one within rank k, every later one takes max(u_i, k - t).
    """
    space = workspace(offsets, first, last, bits)
    irrelevant_above = space[1][4]
    relevant_score = space[2][0]
    size = irrelevant_above.shape[0]
    weights, gains = parameters.weights, parameters.gains
    normalized, cutoff = parameters.normalized, parameters.cutoff
    is_precision = weights.shape[0] == 0
    irrelevant_sum, relevant_sum, own_sum = np.empty(size + 1), np.empty(size + 1), np.empty(size + 1)
    own_best = np.empty(size + 1, np.int64)
    width = min(cutoff, size) + 1
    table = np.empty(width, np.float64)
    raised = np.empty(0, np.uint8)
    for index in range(first, last):
        p, m, broken = begin_list(
            scores, bits, order, relevant, where, offsets, index, space, task_loss, value, direction
        )
        if broken >= 0:
            return broken
        if p == 0 or m == 0:
            continue
        k = min(cutoff, p + m)
        if is_precision:
            gain, best_value = 1.0 / p, min(p, k) / np.float64(p)
        else:
            gain, best_value = scaled_gain(weights, p, m, gains[space[1][0][0]], normalized)
        if best_value == 0.0:
            continue
        scale = _own_optima(p, m, space, irrelevant_sum, relevant_sum, own_best, own_sum)
        rows, columns = min(p, k), min(m, k) + 1
        if raised.shape[0] < (rows + 1) * columns:
            raised = np.empty((rows + 1) * columns, np.uint8)
        table[:columns] = 0.0
        best, best_t, best_b = -np.inf, 0, 0
        if k <= m:
            best = _tail(0, k, p, scale, irrelevant_sum, relevant_sum, own_best, own_sum)
        for i in range(1, rows + 1):
            running = -np.inf
            row_best, row_b = -np.inf, 0
            for b in range(min(m, k - i) + 1):
                raised[i * columns + b] = table[b] > running
                running = max(running, table[b])
                credit = gain * i / np.float64(i + b) if is_precision else gain * weights[i + b - 1]
                found = running + scale * (irrelevant_sum[b] - b * relevant_score[i - 1]) - credit
                table[b] = found
                if found > row_best:
                    row_best, row_b = found, b
            if i < p:
                if k - i > m:
                    continue
                row_best += _tail(i, k - i, p, scale, irrelevant_sum, relevant_sum, own_best, own_sum)
            if row_best > best:
                best, best_t, best_b = row_best, i, row_b

        b = best_b
        for i in range(best_t, 0, -1):
            irrelevant_above[i - 1] = b
            while not raised[i * columns + b]:
                b -= 1
        for i in range(best_t, p):
            irrelevant_above[i] = max(own_best[i], k - best_t)
        measure = 0.0
        for i in range(best_t):
            rank = i + 1 + irrelevant_above[i]
            measure += gain * (i + 1) / np.float64(rank) if is_precision else gain * weights[rank - 1]
        loss = best_value - measure
        if parameters.predicted:
            _finish_predicted(
                p, m, space, loss, relevant, where, offsets, index, parameters, task_loss, value, direction
            )
        else:
            _finish(p, m, space, loss, index, parameters, task_loss, value, direction)
    return -1


@compile_kernel
def reciprocal_rank_lists(
    scores, bits, order, relevant, where, offsets, first, last, parameters, task_loss, value, direction
):
    """Reciprocal rank with the pairwise map: only the first relevant document earns anything, and is tried everywhere.

    O(n log n). With b irrelevant ones above it, every other relevant document takes max(u_i, b).
    """
    space = workspace(offsets, first, last, bits)
    irrelevant_above = space[1][4]
    size = irrelevant_above.shape[0]
    irrelevant_sum, relevant_sum, own_sum = np.empty(size + 1), np.empty(size + 1), np.empty(size + 1)
    own_best = np.empty(size + 1, np.int64)
    for index in range(first, last):
        p, m, broken = begin_list(
            scores, bits, order, relevant, where, offsets, index, space, task_loss, value, direction
        )
        if broken >= 0:
            return broken
        if p == 0 or m == 0:
            continue
        scale = _own_optima(p, m, space, irrelevant_sum, relevant_sum, own_best, own_sum)
        best, best_b, loss = -np.inf, 0, 0.0
        for b in range(own_best[0], m + 1):
            earned = 1.0 / (1 + b) if b < parameters.cutoff else 0.0
            found = _tail(0, b, p, scale, irrelevant_sum, relevant_sum, own_best, own_sum) - earned
            if found > best:
                best, best_b, loss = found, b, 1.0 - earned
        for i in range(p):
            irrelevant_above[i] = max(own_best[i], best_b)
        if parameters.predicted:
            _finish_predicted(
                p, m, space, loss, relevant, where, offsets, index, parameters, task_loss, value, direction
            )
        else:
            _finish(p, m, space, loss, index, parameters, task_loss, value, direction)
    return -1
