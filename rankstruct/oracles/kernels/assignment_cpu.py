"""The assignment problem of the positional map, max over rankings of sum_i ( c_i s_{r(i)} - a_i b_{r(i)} ), for one list.

c and a never increase. Documents of one gain b stay in score order, so a ranking is a sequence of classes, one class a
distinct gain. Every function takes the list's documents by descending score: `score` [n] float64, `group` [n] the class of
each, `members` [n] their numbers class by class (class g in `[starts[g], starts[g + 1])`), `gain` [classes]; the decay c
and the discount a, both [n]; and fills `classes` [n], the class at each position. All are exact.
"""

from __future__ import annotations

import numpy as np

from rankstruct._numba import compile_kernel

_IMPOSSIBLE = -(2**61)


@compile_kernel
def _late_gains(score, group, limits, c, k, late, most):
    """What the documents that are not chosen gain by each one that is, for by_counts.

    Behind rank k documents follow in score order: one at place q (from 0) of that order, with u chosen ones behind it,
    stands at rank q + u. So total[u] = sum of c[q + u] s over the documents so far, and choosing that one, u chosen ones
    behind it, changes the sum by late[g, j, u] = total[u + 1] - (total[u] + c[q + u] s), for the j-th of class g.
    `most[g, j]` is the sum of the largest such numbers of the first j documents of a class, over all u that can be.
    """
    n, groups = score.shape[0], limits.shape[0]
    beyond = np.zeros(n + k + 1, np.float64)  # c, and 0 where no document can stand
    for q in range(n):  # not by a slice, for which numba compiles the message of a shape error, in seconds
        beyond[q] = c[q]
    total = np.zeros(k + 1, np.float64)
    seen = np.zeros(groups, np.int64)
    above, missing = 0, 0  # candidates so far, candidates to come
    for g in range(groups):
        missing += limits[g]
        most[g, 0] = 0.0
    for q in range(n):
        g = group[q]
        j = seen[g]
        if j < limits[g]:
            highest = -np.inf
            for u in range(max(k - 1 - above, 0), k - j):
                late[g, j, u] = total[u + 1] - (total[u] + beyond[q + u] * score[q])
                highest = max(highest, late[g, j, u])
            most[g, j + 1] = most[g, j] + highest
            seen[g] = j + 1
            above += 1
            missing -= 1
            if missing == 0:
                break
        for u in range(k + 1):
            total[u] += beyond[q + u] * score[q]


@compile_kernel
def _late_gain(counts, members, starts, late, pointer):
    """The sum of `late` over the chosen documents of a count vector whose sum is k: merge the classes by score."""
    groups, k = late.shape[0], late.shape[2]
    pointer[:] = 0
    total = 0.0
    for u in range(k - 1, -1, -1):
        nearest, its_group = 2**62, 0
        for h in range(groups):
            if pointer[h] < counts[h] and members[starts[h] + pointer[h]] < nearest:
                nearest, its_group = members[starts[h] + pointer[h]], h
        total += late[its_group, pointer[its_group], u]
        pointer[its_group] += 1
    return total


@compile_kernel
def by_counts(score, group, members, starts, gain, c, a, k, classes):
    """Discount 0 behind rank k: a programme over how many documents of each class stand in the first k ranks.

    C(k + L, L) states for L classes, and for those that fill the k ranks what the other documents gain behind them. That is
    looked at only where an upper bound of it, a sum of one number a class, could make the state the best: in practice
    for a few. O(n k + states L), at worst O(n k + states k L).
    """
    n, groups = score.shape[0], gain.shape[0]
    k = min(k, n)
    limits, strides, counts = (np.empty(groups, np.int64), np.empty(groups, np.int64), np.zeros(groups, np.int64))
    states, full = 1, 1
    for g in range(groups):
        limits[g] = min(starts[g + 1] - starts[g], k)
        strides[g] = states
        states *= limits[g] + 1
        full *= limits[g] + 1 if g else 1
    late = np.empty((groups, k, k), np.float64)
    most = np.empty((groups, k + 1), np.float64)
    _late_gains(score, group, limits, c, k, late, most)
    early = np.empty((groups, k, k), np.float64)  # what the j-th document of a class adds at position i
    for g in range(groups):
        for j in range(limits[g]):
            for i in range(k):
                early[g, j, i] = c[i] * score[members[starts[g] + j]] - a[i] * gain[g]
    best_of = np.empty(states, np.float64)
    full_states = np.empty(
        full, np.int64
    )  # those that fill the k ranks: at most one for all counts but the first class'
    bounds = np.empty(full, np.float64)
    fulls, highest, first = 0, -np.inf, 0
    best_of[0] = 0.0
    state, placed = 0, 0
    while True:
        # The next count vector with sum <= k, in an order in which every vector comes after those it grows from.
        g = 0
        while g < groups and (counts[g] == limits[g] or placed == k):
            placed -= counts[g]
            state -= counts[g] * strides[g]
            counts[g] = 0
            g += 1
        if g == groups:
            break
        counts[g] += 1
        placed += 1
        state += strides[g]
        value = -np.inf
        for h in range(groups):
            if counts[h] > 0:
                value = max(value, best_of[state - strides[h]] + early[h, counts[h] - 1, placed - 1])
        best_of[state] = value
        if placed == k:
            for h in range(groups):
                value += most[h, counts[h]]
            full_states[fulls], bounds[fulls] = state, value
            if value > highest:
                highest, first = value, fulls
            fulls += 1

    best, best_state = -np.inf, 0
    pointer = np.empty(groups, np.int64)
    for i in range(-1, fulls):
        # The one with the highest bound comes first; little is left to look at after it.
        at = first if i < 0 else i
        if bounds[at] <= best:
            continue
        state = full_states[at]
        for g in range(groups):
            counts[g] = state // strides[g] % (limits[g] + 1)
        value = best_of[state] + _late_gain(counts, members, starts, late, pointer)
        if value > best:
            best, best_state = value, state

    state = best_state
    for g in range(groups):
        counts[g] = state // strides[g] % (limits[g] + 1)
        pointer[g] = counts[g]
    for position in range(k - 1, -1, -1):
        chosen, value = 0, -np.inf
        for g in range(groups):
            if pointer[g] > 0:
                found = best_of[state - strides[g]] + early[g, pointer[g] - 1, position]
                if found > value:
                    chosen, value = g, found
        classes[position] = chosen
        pointer[chosen] -= 1
        state -= strides[chosen]
    position = k
    for q in range(n):
        g = group[q]
        if pointer[g] < counts[g]:
            pointer[g] += 1
        else:
            classes[position] = g
            position += 1


@compile_kernel
def by_lattice(score, group, members, starts, gain, c, a, classes):
    """Two classes: the best path over (how many of the first, how many of the second) are placed. O(p m)."""
    first, second = starts[1], starts[2] - starts[1]
    value = np.empty(second + 1, np.float64)
    from_first = np.empty((first + 1, second + 1), np.bool_)
    for i in range(first + 1):
        for j in range(second + 1):
            if i == 0 and j == 0:
                value[0] = 0.0
                continue
            rank = i + j - 1
            down, along = -np.inf, -np.inf
            if i > 0:
                down = value[j] + c[rank] * score[members[i - 1]] - a[rank] * gain[0]
            if j > 0:
                along = value[j - 1] + c[rank] * score[members[first + j - 1]] - a[rank] * gain[1]
            from_first[i, j] = down >= along
            value[j] = max(down, along)
    i, j = first, second
    while i + j > 0:
        if from_first[i, j]:
            i -= 1
            classes[i + j] = 0
        else:
            j -= 1
            classes[i + j] = 1


@compile_kernel
def _gain_of_one_more(i, g, t, class_score, starts, steps_c, steps_a, gain, scale):
    """W: what the objective gains when class g has t + 1 instead of t documents in the first i + 1 positions."""
    return np.int64(scale * (steps_c[i] * class_score[starts[g] + t] - steps_a[i] * gain[g]))


@compile_kernel
def _column(i, inside, class_score, starts, steps_c, steps_a, gain, scale, direct, reach, left, right):
    """Fill column i of B: left along h, a walk inside the columns before, right along g; nothing for h = g.

    `left` and `right` are scratch, [classes]: what the arcs of the boundary before the column gain.
    """
    groups = gain.shape[0]
    if i == 0:
        for h in range(groups):
            for g in range(groups):
                direct[0, h, g] = 0 if h == g else _IMPOSSIBLE
        return
    for g in range(groups):
        t = inside[i - 1, g]
        left[g], right[g] = _IMPOSSIBLE, _IMPOSSIBLE
        if t > 0:
            left[g] = -_gain_of_one_more(i - 1, g, t - 1, class_score, starts, steps_c, steps_a, gain, scale)
        if t < starts[g + 1] - starts[g]:
            right[g] = _gain_of_one_more(i - 1, g, t, class_score, starts, steps_c, steps_a, gain, scale)
    for h in range(groups):
        for g in range(groups):
            if h == g:
                direct[i, h, g] = 0
            elif left[h] == _IMPOSSIBLE or right[g] == _IMPOSSIBLE or reach[i - 1, h, g] <= _IMPOSSIBLE:
                direct[i, h, g] = _IMPOSSIBLE
            else:
                direct[i, h, g] = left[h] + reach[i - 1, h, g] + right[g]


@compile_kernel
def _close_column(i, x, direct, entry, reach):
    """Fill column i of D: straight, or by way of the vertical arc from x, the class at position i, to the best entry."""
    groups = direct.shape[1]
    for g in range(groups):
        q = g
        for h in range(groups):
            if direct[i, h, g] > direct[i, q, g]:
                q = h
        entry[i, g] = q
        for h in range(groups):
            reach[i, h, g] = direct[i, h, g]
            if direct[i, h, x] > _IMPOSSIBLE:
                reach[i, h, g] = max(direct[i, h, g], direct[i, h, x] + direct[i, q, g])


@compile_kernel
def _apply_walk(i, q, x, classes, direct, entry, reach, inside, stack):
    """Trace the best walk from (q, i) to (x, i) and change `inside` along it; returns its leftmost column.

    A piece on the stack is a walk from h to g at a column: of B (kind 0) or of D (kind 1).
    """
    leftmost = i
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, i, q, x
    top = 1
    while top:
        top -= 1
        kind, at, h, g = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        if kind == 0 and h == g:
            continue
        if kind == 0:
            inside[at - 1, h] -= 1
            inside[at - 1, g] += 1
            leftmost = min(leftmost, at - 1)
            stack[top, 0], stack[top, 1] = 1, at - 1
            top += 1
        elif direct[at, h, g] >= reach[at, h, g]:
            stack[top, 0] = 0
            top += 1
        else:
            stack[top, 0], stack[top, 2] = 0, entry[at, g]
            top += 1
            stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = 0, at, h, classes[at]
            top += 1
    return leftmost


@compile_kernel
def _swap_neighbours(classes, inside, class_score, starts, steps_c, steps_a, gain, scale):
    """Move documents forward past their neighbours while that gains: most of what the sweep would find, for less."""
    for i in range(classes.shape[0] - 1):
        j = i
        while j >= 0 and classes[j] != classes[j + 1]:
            x, y = classes[j], classes[j + 1]
            more = _gain_of_one_more(j, y, inside[j, y], class_score, starts, steps_c, steps_a, gain, scale)
            if more <= _gain_of_one_more(j, x, inside[j, x] - 1, class_score, starts, steps_c, steps_a, gain, scale):
                break
            classes[j], classes[j + 1] = y, x
            inside[j, x] -= 1
            inside[j, y] += 1
            j -= 1


@compile_kernel
def _sweep(classes, class_score, starts, gain, c, a):
    """Improve `classes` to an optimum: column by column, the best positive cycle inside the columns so far, if any.

    By summation by parts the objective is a constant plus sum_{i<n} sum_g ( dc_i F_g(N_g(i)) - da_i b_g N_g(i) ), with N_g(i)
    the documents of class g in the first i positions, F_g the prefix sums of their scores, dc and da the falls of c and a:
    a convex-cost flow of one unit a position on parallel chains. One more document of class g inside boundary i gains W; B
    and D are the best gains of residual walks between two classes of a column that stay in the columns up to it. Each
    column needs one augmentation at most. 64-bit integers: in floating point small positive cycles appear.
    """
    n, groups = classes.shape[0], gain.shape[0]
    steps_c, steps_a = np.empty(n), np.empty(n)
    for i in range(n - 1):
        steps_c[i], steps_a[i] = c[i] - c[i + 1], a[i] - a[i + 1]
    largest_score, largest_gain = 0.0, 0.0
    for i in range(n):
        largest_score = max(largest_score, abs(class_score[i]))
    for g in range(groups):
        largest_gain = max(largest_gain, abs(gain[g]))
    bound = groups * ((c[0] - c[n - 1]) * largest_score + (a[0] - a[n - 1]) * largest_gain)
    if bound <= 0.0:
        return
    scale = 2.0**57 / bound
    inside = np.zeros((n, groups), np.int64)  # inside[i, g]: documents of class g in positions 0..i
    for i in range(n):
        for g in range(groups):
            inside[i, g] = (inside[i - 1, g] if i else 0) + (classes[i] == g)
    _swap_neighbours(classes, inside, class_score, starts, steps_c, steps_a, gain, scale)
    direct = np.empty((n, groups, groups), np.int64)  # B
    reach = np.empty((n, groups, groups), np.int64)  # D
    entry = np.empty((n, groups), np.int64)
    stack = np.empty((2 * n + 2, 4), np.int64)
    left, right = np.empty(groups, np.int64), np.empty(groups, np.int64)
    for i in range(n):
        _column(i, inside, class_score, starts, steps_c, steps_a, gain, scale, direct, reach, left, right)
        x = classes[i]
        q = x
        for h in range(groups):
            if direct[i, h, x] > direct[i, q, x]:
                q = h
        first = i
        if direct[i, q, x] > 0:
            first = _apply_walk(i, q, x, classes, direct, entry, reach, inside, stack)
            for j in range(first, i + 1):
                for g in range(groups):
                    if inside[j, g] > (inside[j - 1, g] if j else 0):
                        classes[j] = g
                _column(j, inside, class_score, starts, steps_c, steps_a, gain, scale, direct, reach, left, right)
                _close_column(j, classes[j], direct, entry, reach)
        else:
            _close_column(i, x, direct, entry, reach)


@compile_kernel
def _shorten(values, size, result):
    """A sequence at `size` evenly spread places, linearly interpolated."""
    n = values.shape[0]
    for i in range(size):
        place = min(max((i + 0.5) * n / size - 0.5, 0.0), n - 1.0)
        low = min(np.int64(place), n - 2)
        result[i] = values[low] + (place - low) * (values[low + 1] - values[low])


@compile_kernel
def by_sweep(score, members, starts, gain, c, a, classes):
    """Any gains, no cut-off or a large one: the residual sweep, from a multilevel start. About O(n L^2) in practice.

    A coarser level has the means of pairs of neighbours within each class; its solution, each document doubled, is a
    start from which little is left to improve.
    """
    n, groups = score.shape[0], gain.shape[0]
    # Level 0 is the problem itself; each level's numbers stand behind those of the one before.
    space = 2 * n + 64 * groups + 64
    scores, decays, discounts = np.empty(space), np.empty(space), np.empty(space)
    level_starts = np.zeros((64, groups + 1), np.int64)
    offset = np.zeros(65, np.int64)
    for i in range(n):
        scores[i], decays[i], discounts[i] = score[members[i]], c[i], a[i]
    for g in range(groups + 1):
        level_starts[0, g] = starts[g]
    offset[1] = n
    levels = 1
    while level_starts[levels - 1, groups] > 16:
        fine, coarse = level_starts[levels - 1], level_starts[levels]
        for g in range(groups):
            coarse[g + 1] = coarse[g] + (fine[g + 1] - fine[g] + 1) // 2
        size = coarse[groups]
        if size == fine[groups]:
            break
        here, there = offset[levels - 1], offset[levels]
        for g in range(groups):
            for t in range(coarse[g + 1] - coarse[g]):
                one = here + fine[g] + 2 * t
                other = min(one + 1, here + fine[g + 1] - 1)
                scores[there + coarse[g] + t] = 0.5 * (scores[one] + scores[other])
        _shorten(decays[here:there], size, decays[there:])
        _shorten(discounts[here:there], size, discounts[there:])
        offset[levels + 1] = there + size
        levels += 1

    coarse = level_starts[levels - 1]
    for g in range(groups):
        for i in range(coarse[g], coarse[g + 1]):
            classes[i] = g
    placed = np.empty(groups, np.int64)
    for level in range(levels - 1, -1, -1):
        here, there = offset[level], offset[level + 1]
        _sweep(
            classes[: there - here],
            scores[here:there],
            level_starts[level],
            gain,
            decays[here:there],
            discounts[here:there],
        )
        if level:
            # Double from the back, in place: a class with an odd number of documents has its last one single.
            fine = level_starts[level - 1]
            for g in range(groups):
                placed[g] = level_starts[level, g + 1] - level_starts[level, g]
            at = fine[groups]
            for i in range(there - here - 1, -1, -1):
                g = classes[i]
                placed[g] -= 1
                for _ in range(min(2, fine[g + 1] - fine[g] - 2 * placed[g])):
                    at -= 1
                    classes[at] = g
