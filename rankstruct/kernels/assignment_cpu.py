"""The assignment problem of the positional map, max over rankings of sum_i ( c_i s_{r(i)} - a_i b_{r(i)} ), for one list.

c and a never increase. Documents of one gain b stay in score order, so a ranking is a sequence of classes, one class a
distinct gain. Every function takes the scores class by class, each class by descending score: `class_score` [n] float64
(class g in `[starts[g], starts[g + 1])`), and `gain` [classes]; the decay c and the discount a, both [n]; and fills
`classes` [n], the class at each position. All are exact.

The lattice, of two gains. A ranking is a path over how many documents of either class stand before each rank. The objective is
L-natural-concave in the numbers of class 0: where none that differ by one at some ranks are better, none are at all (Murota,
"Discrete Convex Analysis", 2003). So a narrow band about the greedy path, moved until the best path in it stays inside, has
the optimum.

The residual sweep. By summation by parts the objective is a constant plus

    sum_{i<n} sum_g ( dc_i F_g(N_g(i)) - da_i b_g N_g(i) )

with N_g(i) the documents of class g in positions 0..i, F_g the prefix sums of their scores, dc and da the falls of c and
a: a convex-cost flow of one unit a position on parallel chains. One more document of class g inside boundary i (behind
position i) gains W. An exchange (h, g) at a boundary puts the last document of class h that is inside behind it, and the
first of class g that is not in its place. Position by position, from the last one forwards, the sweep knows

    reach[i, h, g]   the best change of what stands behind boundary i, if h and g are exchanged there
    through[i, h, g] the same with boundary i itself: reach[i, h, g] - W of h + W of g
    reach[i - 1, h, g] = max( through[i, h, g], max_y through[i, h, y] + through[i, x, g] )     x the class at position i:
                         it stays, or becomes y

and through[i, x, y] > 0 is an improvement: position i becomes y. Each position needs one at most (successive longest
paths), after which the positions behind that it touches are looked at again; so the end is a certificate. In 64-bit
integers: floating point has small positive cycles.

Prices. The first i + 1 documents by dc_i s - da_i b are the best set inside boundary i, were there no other. Where each of these
sets holds the one before, as nearly always, they are the optimum; and a threshold t_i between the last inside and the first
outside makes prices, sum over i >= j of t_i for position j, at which every document likes its own position best. Elsewhere some
documents want the same position: shortest augmenting paths move them, and the prices, to the optimum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rankstruct.kernels.compilation import compile_kernel, compile_part, compile_vectorised, unsigned

_IMPOSSIBLE = -(2**60)  # three of these are no overflow, and what is possible stays above half of it
_ROUNDING = 2.0**-50
_FAR = 1e300  # beside costs of at most n, as good as infinity, which what vectorises may not see

_TOGETHER, _COARSEST = 4, 64  # of the multilevel start
_WIDEST_BAND = 31  # a bit for each place and rank
# Positions: of 350 lists of five grades (ERU, half-lives 5 and 20) one wants more, and with 4 it still does.
_BEHIND = 1


class SweepSpace(NamedTuple):
    """Scratch of the sweep, for one list after another.

    Attributes:
        falls: float64 `[5, documents]`, of c and a, and the margins and edges of `greedy`.
        sums: int64 `[2, documents + 1]`.
        of_classes: int64 `[9, classes]`.
        reach: int64 `[classes, classes]`, of the last position.
        tables: int64, at least `[k classes]` twice, `[k classes^2]`, and `[6 k + 6]`; or `[k, classes]` twice,
            `[k, classes, classes]`, and `[2 k + 2, 3]`.
    """

    falls: Any
    sums: Any
    of_classes: Any
    reach: Any
    tables: Any


@compile_kernel
def sweep_space(documents, classes, size):
    """Scratch for lists of at most so many documents and distinct gains, and with the tables of `sweep_tables`."""
    falls, sums = np.empty((5, documents)), np.empty((2, documents + 1), np.int64)
    reach = np.empty((classes, classes), np.int64)
    return SweepSpace(falls, sums, np.empty((9, classes), np.int64), reach, sweep_tables(size))


@compile_kernel
def sweep_tables(size):
    """The tables of `SweepSpace` for `size`: the most ranks k, k classes, and k classes^2. Of large ones only what is used takes
    memory.
    """
    k, rows, numbers = size
    inside, best = np.empty(rows, np.int64), np.empty(rows, np.int64)
    return inside, best, np.empty(numbers, np.int64), np.empty(6 * k + 6, np.int64)


@compile_part
def _tables_of(inside, best, through, stack, k, groups):
    """The tables of k positions, from `SweepSpace.tables`."""
    if through.ndim == 3:  # which numba knows when it compiles
        return inside[:k, :groups], best[:k, :groups], through[:k, :groups, :groups], stack[: 2 * k + 2]
    return (
        inside[: k * groups].reshape(k, groups),
        best[: k * groups].reshape(k, groups),
        through[: k * groups * groups].reshape(k, groups, groups),
        stack[: 6 * k + 6].reshape(2 * k + 2, 3),
    )


@compile_part
def _behind(group, score, gain, c, a, first, second):
    """What the documents behind the best `first` of class 0 and `second` of class 1 add, beside all at their places by score."""
    total, q, position = 0.0, 0, first + second
    while first or second:
        g = group[q]
        here = c[unsigned(q)] * score[unsigned(q)] - a[unsigned(q)] * gain[g]
        if second if g else first:
            total -= here
            first, second = (first, second - 1) if g else (first - 1, second)
        else:
            total += c[unsigned(position)] * score[unsigned(q)] - a[unsigned(position)] * gain[g] - here
            position += 1
        q += 1
    return total


@compile_part
def _greedy_of_two(classes, k, class_score, starts, gain, c, a, margin, places):
    """`greedy` of two classes, where a margin is between the last inside of one and the next of the other."""
    n, size = class_score.shape[0], starts[1]
    first, second = np.int64(0), size  # the next of each
    nested = True
    for i in range(k):
        step_c, step_a = (c[i] - c[i + 1], a[i] - a[i + 1]) if i + 1 < n else (0.0, 0.0)
        lead = step_a * (gain[0] - gain[1])
        liked = np.inf
        if first == size or (
            second < n and step_c * class_score[unsigned(second)] > step_c * class_score[unsigned(first)] - lead
        ):
            classes[i], places[unsigned(second)] = 1, i
            second += 1
            if first and second < n:
                inside, outside = class_score[unsigned(first - 1)], class_score[unsigned(second)]
                liked = (step_c * inside - lead) - step_c * outside
        else:
            classes[i], places[unsigned(first)] = 0, i
            first += 1
            if second > size and first < size:
                inside, outside = class_score[unsigned(second - 1)], class_score[unsigned(first)]
                liked = step_c * inside - (step_c * outside - lead)
        margin[i] = liked
        nested = nested and liked >= 0.0
    return nested


@compile_part
def first_by_score(class_score, starts, group, gain, c, a, pointer):
    """A position, not the first, from which on documents best follow by score, whichever stand before: a hardly falls beside c.

    `pointer` [classes] is scratch. W never rises along the order by score at a boundary behind it, not even by rounding.
    """
    n = group.shape[0]
    for g in range(gain.shape[0]):
        pointer[g] = starts[g]
    highest = np.inf  # of da / dc
    above = 0.0
    for q in range(n):
        g = group[q]
        score = class_score[pointer[g]]
        pointer[g] += 1
        if q and group[q - 1] < g:
            better = gain[group[q - 1]]
            room = above - score - _ROUNDING * abs(score)
            highest = min(highest, room / (better - gain[g] + _ROUNDING * better))
        above = score
    i = n - 1
    while i > 1 and a[i - 1] - a[i] <= highest * (c[i - 1] - c[i]):
        i -= 1
    return i


@compile_part
def _best_split(value, half, t, k, group, score, gain, c, a):
    """The best number of documents of class 0 before the cut-off, `t` more or less `half`, and what it is worth.

    What stands behind it counts. The value is concave in the number, as that of any flow is in what has to go through an edge.
    """
    n = group.shape[0]
    best, split = value[half + 1], half
    if k == n:
        return best, split
    best += _behind(group, score, gain, c, a, t, k - t)
    for step in (1, -1):
        d = half + step
        while value[d + 1] > -np.inf:
            found = value[d + 1] + _behind(group, score, gain, c, a, t + d - half, k - t - d + half)
            if found <= best:
                break
            best, split = found, d
            d += step
    return best, split


@compile_part
def _improve_within(half, classes, k, class_score, starts, group, score, gain, c, a, value, from_first):
    """The best of the sequences with as many documents of class 0 before each rank as `classes`, more or less `half`.

    Puts it in place of `classes`; returns its value, and whether it stays inside the band. `value` [2, at least 2 half + 3] and
    `from_first` [k] are scratch.
    """
    width, size, its_size = 2 * half + 1, starts[1], group.shape[0] - starts[1]
    old, new = value[0], value[1]
    for d in range(width + 2):
        old[d], new[d] = -np.inf, -np.inf
    old[half + 1] = 0.0
    t = 0  # of class 0 in `classes` so far
    for i in range(k):
        step = 1 - classes[i]
        t += step
        weight, credit, its_credit = c[i], a[i] * gain[0], a[i] * gain[1]
        bits = np.uint64(0)
        low, high = max(t - half, i + 1 - its_size, 0), min(t + half, i + 1, size)
        for d in range(width + 2):
            new[unsigned(d)] = -np.inf
        for here in range(low, high + 1):
            d = here - t + half
            down = old[unsigned(d + step)] + weight * class_score[unsigned(max(here - 1, 0))] - credit
            along = old[unsigned(d + step + 1)] + weight * class_score[unsigned(size + max(i - here, 0))] - its_credit
            bits |= np.uint64(down >= along) << np.uint64(d)
            new[unsigned(d + 1)] = max(down, along)
        from_first[i] = bits
        old, new = new, old
    best, d = _best_split(old, half, t, k, group, score, gain, c, a)
    inside = True
    for i in range(k - 1, -1, -1):
        inside = inside and 0 < d < width - 1
        step = 1 - classes[i]
        classes[i] = 1 - np.int64((from_first[i] >> np.uint64(d)) & np.uint64(1))
        d += step + classes[i] - 1
    return best, inside


@compile_kernel
def lattice_space(documents):
    """Scratch of `by_lattice` for lists of at most so many documents."""
    return np.empty((2, 2 * _WIDEST_BAND + 3)), np.empty(documents, np.uint64), np.empty(2, np.int64)


@compile_part
def by_lattice(class_score, starts, group, score, gain, c, a, k, classes, margin, places, space):
    """Two classes: the best path over (how many of the first, how many of the second) are in the first k ranks, from which on
    documents follow by score: `group` and `score` [n] in that order. Returns from which position on, and whether `places` [n]
    hold, class by class, the position of each document. In practice O(n + k), at worst O(k p) for p documents of the first class.
    `margin` [k] and `space` are scratch.
    """
    value, from_first, pointer = space
    if _greedy_of_two(classes, k, class_score, starts, gain, c, a, margin, places) and k == group.shape[0]:
        return k, True
    if k == group.shape[0]:
        k = first_by_score(class_score, starts, group, gain, c, a, pointer)
    half, before = 3, -np.inf
    while True:
        found, inside = _improve_within(
            half, classes, k, class_score, starts, group, score, gain, c, a, value, from_first
        )
        if inside or found <= before:
            return k, False
        half, before = min(2 * half, _WIDEST_BAND), found


@compile_part
def _gain_of_one_more(i, g, t, class_score, starts, steps_c, steps_a, gain, scale):
    """W: what the objective gains when class g has t + 1 instead of t documents in the first i + 1 positions."""
    i, g = unsigned(i), unsigned(g)
    return np.int64(scale * (steps_c[i] * class_score[unsigned(starts[g] + t)] - steps_a[i] * gain[g]))


@compile_part
def _settle(classes, inside, class_score, starts, steps_c, steps_a, gain, scale):
    """Move documents back, from the last position forwards, to where they gain most before the next of their own class:
    most of what the sweep would find, for less.
    """
    k = inside.shape[0]
    for i in range(k - 2, -1, -1):
        x = classes[i]
        total, best, to = np.int64(0), np.int64(0), i
        for j in range(i, k - 1):
            y = classes[j + 1]
            if y == x:
                break
            total += _gain_of_one_more(j, y, inside[j, y], class_score, starts, steps_c, steps_a, gain, scale)
            total -= _gain_of_one_more(j, x, inside[i, x] - 1, class_score, starts, steps_c, steps_a, gain, scale)
            if total > best:
                best, to = total, j + 1
        for j in range(i, to):
            classes[j] = classes[j + 1]
            inside[j, x] -= 1
            inside[j, classes[j]] += 1
        classes[to] = x


@compile_part
def _tail(inside, group, class_score, starts, steps_c, steps_a, gain, scale, forth, back, place, gained, reach):
    """Fill `reach` for the boundary behind which documents follow by score: O(n + L^2).

    `inside` [L] counts the documents before it. `forth` and `back` [n + 1] become the prefix sums, over the documents
    behind, of what each gains one position further forward or back; `place` and `gained` [3, L] are scratch.
    """
    n, groups = group.shape[0], gain.shape[0]
    seen, last, first = place[0], place[1], place[2]
    k = 0
    missing = 0  # classes whose first document behind is still to come
    for g in range(groups):
        seen[g], last[g], first[g] = 0, 0, 0
        k += inside[g]
        missing += inside[g] < starts[g + 1] - starts[g]
    q, t = 0, 0  # place in the order by score, documents behind so far
    forth[0], back[0] = 0, 0
    while q < n and (missing or q - t < k):
        g = group[q]
        if seen[g] < inside[g]:
            last[g] = t
        else:
            if seen[g] == inside[g]:
                first[g] = t
                missing -= 1
            if q - t < k:  # a document before the boundary may yet come, and go behind this one
                nearer = _gain_of_one_more(k + t - 1, g, seen[g], class_score, starts, steps_c, steps_a, gain, scale)
                forth[t + 1] = forth[t] + nearer
            further = _gain_of_one_more(k + t, g, seen[g], class_score, starts, steps_c, steps_a, gain, scale)
            back[t + 1] = back[t] - further
            t += 1
        seen[g] += 1
        q += 1
    # What the last document of each class before the boundary, and the first behind it, gain by standing at position k instead
    # of where the order by score has them; in gained[2] the former, if one document less is before it there.
    for g in range(groups):
        for side in range(2):
            t = inside[g] - 1 + side
            total = np.int64(0)
            one_less = total
            if 0 <= t < starts[g + 1] - starts[g]:
                for i in range(k, k + place[1 + side, g]):
                    one_less = total
                    total += _gain_of_one_more(i, g, t, class_score, starts, steps_c, steps_a, gain, scale)
            gained[side, g] = total
            if side == 0:
                gained[2, g] = one_less
    for h in range(groups):
        for g in range(groups):
            if g == h:
                reach[h, g] = 0
            elif inside[h] == 0 or inside[g] == starts[g + 1] - starts[g]:
                reach[h, g] = _IMPOSSIBLE
            elif first[g] < last[h]:
                reach[h, g] = gained[1, g] - gained[2, h] + forth[last[h]] - forth[first[g] + 1]
            else:
                reach[h, g] = gained[1, g] - gained[0, h] + back[first[g]] - back[last[h]]


@compile_part
def _improve(i, y, k, classes, inside, through, stack):
    """Give position i the class y, and change the positions behind it as `through` says; returns the last one changed.

    k if the order behind the first k positions changes. On the stack are exchanges: a boundary, h, g.
    """
    groups = through.shape[1]
    stack[0, 0], stack[0, 1], stack[0, 2] = i, classes[i], y
    classes[i] = y
    top, changed = 1, i
    while top:
        top -= 1
        j, h, g = stack[top, 0], stack[top, 1], stack[top, 2]
        inside[j, h] -= 1
        inside[j, g] += 1
        j += 1
        changed = max(changed, j)
        if j == k:
            continue
        x, y = classes[j], h
        for other in range(groups):
            if through[j, h, other] > through[j, h, y]:
                y = other
        if through[j, h, g] >= through[j, h, y] + through[j, x, g]:
            stack[top, 0] = j
            top += 1
            continue
        classes[j] = y
        if y != h:
            stack[top, 0], stack[top, 1], stack[top, 2] = j, h, y
            top += 1
        if x != g:
            stack[top, 0], stack[top, 1], stack[top, 2] = j, x, g
            top += 1
    return changed


@compile_part
def _begin_sweep(k, class_score, starts, gain, c, a, space):
    """The problem with the falls of c and a, and last what makes integers of all that is added up, 0 where there is nothing to
    choose; and the tables of k positions.
    """
    n, groups, steps_c, steps_a, kept = (
        class_score.shape[0],
        gain.shape[0],
        space.falls[0],
        space.falls[1],
        space.tables,
    )
    largest_score, largest_gain = 0.0, 0.0
    for g in range(groups):
        largest_gain = max(largest_gain, abs(gain[g]))
        if starts[g] < starts[g + 1]:
            largest_score = max(largest_score, abs(class_score[starts[g]]), abs(class_score[starts[g + 1] - 1]))
    for i in range(n - 1):
        steps_c[i], steps_a[i] = c[i] - c[i + 1], a[i] - a[i + 1]
    steps_c[n - 1], steps_a[n - 1] = 0.0, 0.0
    bound = (c[0] - c[n - 1]) * largest_score + (a[0] - a[n - 1]) * largest_gain
    scale = 2.0**57 / groups / bound if 1e-280 < bound < np.inf else 0.0
    tables = _tables_of(kept[0], kept[1], kept[2], kept[3], k, groups)
    return (class_score, starts, steps_c, steps_a, gain, scale), tables


@compile_part
def _sweep_back(last, first, most, classes, problem, tables, reach, of_classes):
    """Improve the positions from `last` forwards, of which `inside` and `reach` are known: all of them, or until, before `first`
    and all that changed, no exchange is worth anything. `reach` of the others is worked out from `through` and `best`, the
    highest of its rows.

    Returns the next position, which is `last` + 1 if an exchange is wanted behind it, and how many of `most` looks are left:
    below 0 if they were too few.
    """
    inside, best, through, stack = tables
    class_score, starts, steps_c, steps_a, gain, scale = problem
    groups = gain.shape[0]
    enter, leave = of_classes[6], of_classes[7]
    i = last
    while 0 <= i <= last and most >= 0:
        most -= 1
        u, x = unsigned(i), unsigned(classes[i])
        for g in range(groups):
            t, size = inside[u, g], starts[g + 1] - starts[g]
            enter[g], leave[g] = _IMPOSSIBLE, _IMPOSSIBLE
            if t < size:
                enter[g] = _gain_of_one_more(i, g, t, class_score, starts, steps_c, steps_a, gain, scale)
            if t > 0:
                leave[g] = -_gain_of_one_more(i, g, t - 1, class_score, starts, steps_c, steps_a, gain, scale)
        behind, its = unsigned(i + 1 if i < last else i), unsigned(classes[i + 1] if i < last else 0)
        best_of_all = np.int64(0)
        for h in range(groups):
            highest, its_leave, its_best = np.int64(0), leave[h], best[behind, h]
            for g in range(groups):
                far = max(through[behind, h, g], its_best + through[behind, its, g]) if i < last else reach[h, g]
                value = max(its_leave + far + enter[g], _IMPOSSIBLE)
                through[u, h, g] = value
                highest = max(highest, value)
            through[u, h, h] = 0
            best[u, h] = highest
            best_of_all = max(best_of_all, highest)
        if best[u, x] > 0:
            y = classes[i]
            for g in range(groups):
                if through[u, x, g] > through[u, x, unsigned(y)]:
                    y = g
            first = min(first, i)
            i = _improve(i, y, last + 1, classes, inside, through, stack)
            continue
        if i > 0:
            for g in range(groups):
                inside[u - unsigned(1), g] = inside[u, g]
            inside[u - unsigned(1), x] -= 1
        i -= 1
        if i < first and best_of_all <= 0:
            break
    return i, most


@compile_part
def sweep(classes, k, group, class_score, starts, gain, c, a, most, space):
    """Improve the first k of `classes` to an optimum; the others follow by score, `group` [n] the class of each document
    in that order. Without others `group` may be empty.

    Returns whether it came to the end; not if it would look at more than `most` positions.
    """
    problem, tables = _begin_sweep(k, class_score, starts, gain, c, a, space)
    steps_c, steps_a, scale = problem[2], problem[3], problem[5]
    if scale == 0.0:
        return True
    groups, inside = gain.shape[0], tables[0]
    # inside[i, g]: documents of class g in positions 0..i
    for i in range(k):
        for g in range(groups):
            inside[i, g] = (inside[i - 1, g] if i else 0) + (classes[i] == g)
    _settle(classes, inside, class_score, starts, steps_c, steps_a, gain, scale)
    forth, back = space.sums[0], space.sums[1]
    place, gained = space.of_classes[0:3], space.of_classes[3:6]
    i = k
    while i == k and most >= 0:
        most -= group.shape[0] // 32  # about what it takes
        _tail(
            inside[k - 1],
            group,
            class_score,
            starts,
            steps_c,
            steps_a,
            gain,
            scale,
            forth,
            back,
            place,
            gained,
            space.reach,
        )
        i, most = _sweep_back(k - 1, -1, most, classes, problem, tables, space.reach, space.of_classes)
    return most >= 0


@compile_part
def sweep_near(classes, margin, class_score, starts, gain, c, a, most, space):
    """Improve a greedy ranking without a cut-off to an optimum: the sweep of the positions about those boundaries that would like
    other documents inside.

    It begins a few positions behind such a boundary, but not behind where it came to before, as if no exchange cost anything
    there, and goes on forwards to where none is worth anything: boundaries that like what is inside would not begin one, up to
    the next that does not. Returns whether it came to the end: not if an exchange is wanted where it began, or if it would look
    at more than `most` positions. Then `classes` are no ranking any more.
    """
    n, groups = class_score.shape[0], gain.shape[0]
    problem, tables = _begin_sweep(n, class_score, starts, gain, c, a, space)
    if problem[5] == 0.0:
        return True
    inside, reach = tables[0], space.reach
    outside = space.of_classes[8]  # documents of each class behind position at
    for g in range(groups):
        outside[g] = 0
    at = end = i = n - 1
    while i >= 0:
        if margin[i] >= 0.0:
            i -= 1
            continue
        last = min(i + _BEHIND, end)
        while at > last:
            outside[classes[at]] += 1
            at -= 1
        for h in range(groups):
            inside[last, h] = starts[h + 1] - starts[h] - outside[h]
            for g in range(groups):
                reach[h, g] = 0
        i, most = _sweep_back(last, i, most, classes, problem, tables, reach, space.of_classes)
        if i > last or most < 0:
            return False
        end = i
    return True


@compile_part
def greedy(classes, k, class_score, starts, gain, c, a, pointer, margin, places, edges):
    """Fill the first k of `classes` one by one with what the boundary behind the position would like best.

    `margin` [k] becomes by how much each boundary likes every document inside better than every other one, below 0 where it does
    not; `places` [n], class by class, the position of each document that has one. `pointer` [classes] and `edges` [2, at least
    as many] are scratch. Returns whether no margin is below 0: for k = n that is an optimum.
    """
    n, groups = class_score.shape[0], gain.shape[0]
    if groups == 2:
        return _greedy_of_two(classes, k, class_score, starts, gain, c, a, margin, places)
    outside, inside = edges[0], edges[1]  # the scores of the first of each class outside, and of the last inside
    for g in range(groups):
        pointer[g] = starts[g]
        outside[g] = class_score[starts[g]] if starts[g] < starts[g + 1] else -np.inf
        inside[g] = np.inf
    # The class of the lowest gain, of most positions, is kept out of the arrays: what was just written is read back late.
    last = unsigned(groups - 1)
    its_gain, its_next, its_end = gain[last], starts[last], starts[groups]
    its_outside, its_inside = outside[last], np.inf
    nested = True
    for i in range(k):
        here, behind = unsigned(i), unsigned(i + 1)
        step_c, step_a = (c[here] - c[behind], a[here] - a[behind]) if i + 1 < n else (0.0, 0.0)
        chosen, highest, second, lowest = 0, -np.inf, -np.inf, np.inf  # of those outside, and of those inside
        # Without branches, which a processor would guess wrong; comparisons with NaN are False.
        for g in range(groups - 1):
            cost = step_a * gain[unsigned(g)]
            value, kept = step_c * outside[unsigned(g)] - cost, step_c * inside[unsigned(g)] - cost
            better = value > highest
            lower = highest if better else value
            chosen, highest = (g, value) if better else (chosen, highest)
            second = lower if lower > second else second
            lowest = kept if kept < lowest else lowest
        cost = step_a * its_gain
        value, kept = step_c * its_outside - cost, step_c * its_inside - cost
        lowest = kept if kept < lowest else lowest
        if highest == -np.inf and not value > -np.inf:  # all that are left are as bad as numbers can say
            while chosen < groups - 1 and outside[unsigned(chosen)] == -np.inf:
                chosen += 1
        if value > highest or chosen == groups - 1:
            classes[here] = groups - 1
            places[unsigned(its_next)] = i
            its_next += 1
            its_inside, its_outside = its_outside, class_score[unsigned(its_next)] if its_next < its_end else -np.inf
            value, second = step_c * its_outside - cost, highest
        else:
            second = value if value > second else second
            classes[here] = chosen
            at = pointer[unsigned(chosen)]
            places[unsigned(at)] = i
            inside[unsigned(chosen)] = class_score[unsigned(at)]
            at += 1
            pointer[unsigned(chosen)] = at
            score = class_score[unsigned(at)] if at < starts[unsigned(chosen + 1)] else -np.inf
            outside[unsigned(chosen)] = score
            value = step_c * score - step_a * gain[unsigned(chosen)]
        second = value if value > second else second
        margin[here] = lowest - second
        nested = nested and lowest >= second
    return nested


@compile_part
def _coarsen(scores, decays, discounts, level_starts, offset):
    """Write coarser levels behind the problem itself, level 0, and return how many levels there are.

    Each has the means of `_TOGETHER` neighbours within a class, c and a at as many places, evenly spread. Level i has its
    numbers in `[offset[i], offset[i + 1])` and its classes in `level_starts[i]`.
    """
    groups = level_starts.shape[1] - 1
    levels = 1
    while level_starts[levels - 1, groups] > _COARSEST:
        fine, coarse = level_starts[levels - 1], level_starts[levels]
        for g in range(groups):
            coarse[g + 1] = coarse[g] + (fine[g + 1] - fine[g] + _TOGETHER - 1) // _TOGETHER
        size = coarse[groups]
        if size == fine[groups]:
            break
        here, there = offset[levels - 1], offset[levels]
        for g in range(groups):
            for t in range(coarse[g + 1] - coarse[g]):
                total, one = 0.0, here + fine[g] + _TOGETHER * t
                for v in range(_TOGETHER):
                    total += scores[min(one + v, here + fine[g + 1] - 1)]
                scores[there + coarse[g] + t] = total / _TOGETHER
        for i in range(size):
            place = min(max((i + 0.5) * (there - here) / size - 0.5, 0.0), there - here - 1.0)
            low = min(np.int64(place), there - here - 2)
            part, low = place - low, low + here
            decays[there + i] = decays[low] + part * (decays[low + 1] - decays[low])
            discounts[there + i] = discounts[low] + part * (discounts[low + 1] - discounts[low])
        offset[levels + 1] = there + size
        levels += 1
    return levels


@compile_kernel
def _by_levels(class_score, starts, group, gain, c, a, k, classes, space):
    """The sweep from a coarser level's solution, each document `_TOGETHER` times, which leaves little to improve."""
    n, groups = group.shape[0], gain.shape[0]
    room = 2 * n + 32 * groups + 32
    scores, decays, discounts = np.empty(room), np.empty(room), np.empty(room)
    level_starts = np.zeros((32, groups + 1), np.int64)
    offset = np.zeros(33, np.int64)
    for i in range(n):
        scores[i], decays[i], discounts[i] = class_score[i], c[i], a[i]
    for g in range(groups + 1):
        level_starts[0, g] = starts[g]
    offset[1] = n
    placed = np.empty(groups, np.int64)
    level = _coarsen(scores, decays, discounts, level_starts, offset) - 1
    most = max(k, offset[2] - offset[1])  # ranks
    tables = sweep_tables((most, most * groups, most * groups**2))
    space = SweepSpace(space.falls, space.sums, space.of_classes, space.reach, tables)
    for at in range(level, -1, -1):
        here, there = offset[at], offset[at + 1]
        ranks = there - here if at else k
        its_starts = level_starts[at]
        numbers = scores[here:there], its_starts, gain, decays[here:there], discounts[here:there]
        if at == level:
            greedy(
                classes, ranks, *numbers, placed, space.falls[2], space.sums[0], space.falls[3:5]
            )  # only the class counts
        sweep(classes, ranks, group[: 0 if at else n], *numbers, 2**62, space)
        if at == 0:
            break
        # Expand from the back, in place: the last of a class may stand for fewer documents.
        fine = level_starts[at - 1]
        for g in range(groups):
            placed[g] = its_starts[g + 1] - its_starts[g]
        to = fine[groups]
        for i in range(ranks - 1, -1, -1):
            g = classes[i]
            placed[g] -= 1
            for _ in range(min(_TOGETHER, fine[g + 1] - fine[g] - _TOGETHER * placed[g])):
                to -= 1
                classes[to] = g


@compile_part
def by_sweep(class_score, starts, group, gain, c, a, k, most, classes, places, space):
    """Any gains, discount 0 behind rank k (n without a cut-off): the residual sweep of the first k ranks.

    `group` [n] is the class of each document by descending score, the order behind; returns from which position on, and whether
    `places` [n] hold, class by class, the position of each document. Without a cut-off the greedy start is often an optimum
    already, O(n L), or the sweep of a few positions makes it one; else k is the rank behind which the order by score is the
    best one anyway, if there is one. From a greedy start on, in practice O(n + k L^2). A list that would take more than `most`
    steps of the sweep gets a multilevel start. O(n L^2) in practice, at worst O(n^2 L^2).
    """
    n = group.shape[0]
    problem = class_score, starts, gain, c, a
    scratch = space.of_classes[8], space.falls[2], places, space.falls[3:5]
    nested = greedy(classes, k, *problem, *scratch)
    if k == n:
        if nested or sweep_near(classes, space.falls[2], *problem, most, space):
            return n, nested
        greedy(classes, k, *problem, *scratch)
        k = first_by_score(class_score, starts, group, gain, c, a, space.of_classes[8])
    if not sweep(classes, k, group, *problem, most, space):
        _by_levels(class_score, starts, group, gain, c, a, k, classes, space)
    return k, False


@compile_part
def _threshold_prices(score, gain, c, a, price, s, b):
    """Fill `price` [n] of the positions from the best set inside each boundary by itself; scores by descending score.

    `s` and `b` [n] are scratch: scores and gains in the order of the last boundary, which is nearly that of the next.
    """
    n = score.shape[0]
    for q in range(n):
        s[q], b[q] = score[q], gain[q]
    for i in range(n - 1):
        step_c, step_a = c[i] - c[i + 1], a[i] - a[i + 1]
        before = step_c * s[0] - step_a * b[0]
        for q in range(1, n):
            here = step_c * s[q] - step_a * b[q]
            if here <= before:
                before = here
                continue
            its_s, its_b, to = s[q], b[q], q
            while to > 0 and here > step_c * s[to - 1] - step_a * b[to - 1]:
                s[to], b[to] = s[to - 1], b[to - 1]
                to -= 1
            s[to], b[to] = its_s, its_b
        price[i] = 0.5 * (step_c * (s[i] + s[i + 1]) - step_a * (b[i] + b[i + 1]))
    price[n - 1] = 0.0
    for i in range(n - 2, -1, -1):
        price[i] += price[i + 1]


@compile_vectorised
def _least_costs(s, b, c, a, price, shift, cost):
    """Fill `cost` [n] with what each position costs a document, less `shift`; returns the least."""
    least = _FAR
    for j in range(c.shape[0]):
        cost[j] = b * a[j] - s * c[j] + price[j] - shift
        least = min(least, cost[j])
    return least


@compile_vectorised
def _relax(s, b, c, a, price, shift, document, cost, previous):
    """Lower `cost` [n] to that of the way by this document, where it is the shorter one; returns the least."""
    least = _FAR
    for j in range(c.shape[0]):
        way = b * a[j] - s * c[j] + price[j] - shift
        previous[j] = document if way < cost[j] else previous[j]
        cost[j] = min(cost[j], way)
        least = min(least, cost[j])
    return least


@compile_part
def _augment(document, score, gain, c, a, price, holder, place, numbers, indices):
    """Give a document without a position one, along a shortest path of changes, and change the prices accordingly."""
    cost, left, distance = numbers
    previous, known = indices
    for j in range(score.shape[0]):
        previous[j] = document
        left[j] = price[j]  # far for positions whose shortest way is known
    count = 0
    least = _least_costs(score[document], gain[document], c, a, price, 0.0, cost)
    while True:
        j = 0
        while cost[j] != least:
            j += 1
        if holder[j] < 0:
            break
        known[count], distance[count] = j, least
        count += 1
        cost[j] = left[j] = _FAR
        by = holder[j]
        shift = gain[by] * a[j] - score[by] * c[j] + price[j] - least
        least = _relax(score[by], gain[by], c, a, left, shift, by, cost, previous)
    for i in range(count):
        price[known[i]] += least - distance[i]
    while True:
        by = previous[j]
        holder[j] = by
        j, place[by] = place[by], j
        if by == document:
            break


@compile_kernel
def price_space(documents):
    """Scratch of `by_prices` for lists of at most so many documents."""
    return np.empty((8, documents)), np.empty((4, documents), np.int64)


@compile_part
def by_prices(score, group, gain, c, a, classes, space):
    """Any gains: prices from thresholds, then shortest augmenting paths.

    Takes the documents by descending score: `score` [n], and `group` [n], the class of each. O(n^2) where the best sets of the
    boundaries lie in one another, at worst O(n^3); O(n) memory.

    Source of the paths: Jonker and Volgenant, "A shortest augmenting path algorithm for dense and sparse linear assignment
    problems", Computing, 1987.
    """
    n = score.shape[0]
    fall_c, fall_a = c[0] - c[n - 1], a[0] - a[n - 1]
    bound = max(fall_c * max(abs(score[0]), abs(score[n - 1])), fall_a * gain[0])
    numbers, indices = space
    place, holder, previous, known = indices[0, :n], indices[1, :n], indices[2, :n], indices[3, :n]
    if not 1e-280 < bound < np.inf:  # nothing to choose between
        for q in range(n):
            classes[q] = group[q]
        return
    # Relative to the last rank and to the largest, so that no sum overflows.
    decay, discount, s, b = numbers[0, :n], numbers[1, :n], numbers[2, :n], numbers[3, :n]
    price, cost, left, distance = numbers[4, :n], numbers[5, :n], numbers[6, :n], numbers[7, :n]
    for q in range(n):
        decay[q] = (c[q] - c[n - 1]) / fall_c if fall_c > 0.0 else 0.0
        discount[q] = (a[q] - a[n - 1]) / fall_a if fall_a > 0.0 else 0.0
        s[q], b[q] = score[q] * (fall_c / bound), gain[group[q]] * (fall_a / bound)
        place[q], holder[q] = -1, -1
    _threshold_prices(s, b, decay, discount, price, left, distance)
    for q in range(n):
        least = _least_costs(s[q], b[q], decay, discount, price, 0.0, cost)
        j = 0
        while j < n and (cost[j] != least or holder[j] >= 0):
            j += 1
        if j < n:
            holder[j], place[q] = q, j
    for q in range(n):
        if place[q] < 0:
            _augment(q, s, b, decay, discount, price, holder, place, (cost, left, distance), (previous, known))
    for q in range(n):
        classes[place[q]] = group[q]
