"""Most violated rankings under the positional map, on the CPU: flat scores, one list after another.

Three steps over a `Batch`: `begin_lists` sorts each list, groups its documents by gain and chooses a method; the loop of
each method that occurs fills `rank` for its lists; `score_lists` compares with the reference ranking. One loop a method,
each compiled by itself: a process compiles only what its lists need. `begin`, `solve_reciprocal` and `score` take their scratch
from the loops around them, and on a CUDA device from `positional_device`. Scores are taken relative to the list's highest:
sum_j psi_j is constant, so no difference changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rankstruct.kernels.assignment_cpu import (
    by_lattice,
    by_prices,
    by_sweep,
    greedy,
    lattice_space,
    price_space,
    sweep_space,
)
from rankstruct.kernels.compilation import compile_kernel, compile_part, unsigned
from rankstruct.kernels.sorting import (
    COUNTED_CLASSES,
    copy_into,
    is_tied,
    longest_list,
    number_few,
    share_among_tied,
    sort_descending,
    sort_space,
)

IDEAL, IDEAL_TIED, PREDICTED = range(3)  # the order of `oracles.registry.REFERENCES`

WIDEST = 1e301  # how far scores of a list may be apart, so that no sum of as many as there are ranks overflows

# The order of the methods in `oracles.positional`.
NOTHING, PROPORTIONAL, LATTICE, SWEEP, PRICES, RECIPROCAL = range(6)


class RankLists(NamedTuple):
    """What the loops over lists read, all in float64.

    Attributes:
        scores: `[documents]`.
        gains: `[documents]`. For reciprocal rank 1 or 0.
        groups: uint64 `[documents]`, of diverse rankings: equal for the documents of a list that are of one group.
        where: uint8 `[documents]`, 1 for a real one; empty if every document is real.
        offsets: int64 `[lists + 1]`.
        chosen: `[documents]`, the scores that choose the reference; empty if `scores` do.
        decay, weights: `[longest list]`, c and a.
        cutoff: the number of ranks with a discount above 0.
        least_cutoff: 0; or the cut-off of each list is the first rank at which the ideal ranking gains less than at its first,
            but this number at least (mWTA).
        normalized: whether a list's measure is divided by its best value.
        reciprocal: whether the measure is reciprocal rank: the discount of the first rank with a gain above 0, not a sum.
    """

    scores: Any
    gains: Any
    groups: Any
    where: Any
    offsets: Any
    chosen: Any
    decay: Any
    weights: Any
    cutoff: int
    least_cutoff: int
    normalized: bool
    reciprocal: bool


class Batch(NamedTuple):
    """All of a batch of lists, and what the loops tell each other.

    Attributes:
        lists: what they read.
        by_score: int64 `[documents]`, from each list's start its real documents by descending score.
        rank: int64 `[documents]`, from each list's start the 0-based position in the most violated ranking of each of `members`.
        group: int64 `[documents]`, from each list's start the class of each document by descending score: 0 for the highest gain.
        behind: int64 `[documents]`, from each list's start how many documents each class and those before it have.
        members: int64 `[documents]`, from each list's start its front, as numbers by descending score: class by class, or, of
            PROPORTIONAL and RECIPROCAL, by score.
        score: float64 `[documents]`, by descending score the scores, relative to the highest.
        gain: float64 `[documents]`, from each list's start the gain of each class.
        size, classes, cut, method: int64 `[lists]`: real documents, distinct gains, cut-off, and how it is solved.
        front: int64 `[lists]`: all but so many first documents by score keep their ranks by score.
        merged: int64 `[lists]`, whether some of the distinct gains of the front became one.
        ideal: float64 `[lists]`, the discounted gains of the best ranking.
    """

    lists: RankLists
    by_score: Any
    rank: Any
    group: Any
    behind: Any
    members: Any
    score: Any
    gain: Any
    size: Any
    classes: Any
    cut: Any
    method: Any
    front: Any
    merged: Any
    ideal: Any


# Nanoseconds, of one thread of a 2-core x86 virtual machine, lists of 10 to 3000 documents, decay i^-0.5, cut-offs 1, 10, 50
# and none. The sweep of L gains, 3 to 64, took 4 a document and 40 + 1.4 L^2 a rank before the cut-off; beyond 32 it may need
# its other start, which takes 10 times as long. The prices took 1.4 a pair of documents, 4 to 17 with a cut-off; and of some ten
# documents, which are the front of most lists with a cut-off of 10, 1000 less than the sweep. Of two gains,
# eight discounts and scores drawn or learnt, the lattice took 0.3 to 1.2 of the sweep's time for 100 and 1000 documents, and
# for 10,000 0.1 to 0.4 with cut-offs to 50, 0.6 to 4.6 without.
_LATTICE_RANKS = 1000
_SWEEP_LIST, _SWEEP_DOCUMENT, _SWEEP_RANK, _SWEEP_EXCHANGE = 800.0, 4.0, 40.0, 1.4
_PRICED_PAIR = 4.2
_MOST_CLASSES, _MOST_CUT = 32, 2**21  # of L, and with a cut-off of k L^2, the numbers that the sweep keeps
_FEW_CLASSES = 16  # no fewer are looked for


@compile_kernel
def choose_method(n, classes, k, proportional):
    """The cheapest exact method: for a front of n documents of so many distinct gains, discount 0 behind rank k, decay
    proportional to the discount or not.
    """
    if proportional:
        return PROPORTIONAL
    if classes == 2 and k <= _LATTICE_RANKS:
        return LATTICE
    if k < n:
        sweep = _SWEEP_LIST + _SWEEP_DOCUMENT * n + (_SWEEP_RANK + _SWEEP_EXCHANGE * classes**2) * k
        return SWEEP if classes**2 * k <= _MOST_CUT and sweep <= _PRICED_PAIR * n**2 else PRICES
    return SWEEP if classes <= _MOST_CLASSES else PRICES


@compile_part
def _find_front(group, classes, cut):
    """How many first documents by score the first `cut` ranks are chosen from: until `cut` of the lowest gain are among them.

    A document is not wanted before the cut-off that has as many documents as there are ranks with no lower score and no higher
    gain: one of them is behind, where gains count nothing, and could change places with it.
    """
    count, front = 0, 0
    while front < group.shape[0] and count < cut:
        count += group[front] == classes - 1
        front += 1
    return front


@compile_part
def _merge_classes(group, gain, behind, classes, cut, number, largest):
    """Give those documents that `_find_front` says are not wanted, but stand among others that are, the highest gain.

    With a higher gain they are not wanted either. Returns how many documents are the front, and how many gains are left.
    `group` [n] is the class of each document by descending score, `gain` that of each class, `behind` how many documents it and
    those before it have; all are changed. `number` [classes] and `largest` [cut] are scratch.
    """
    count = 0  # of `largest`, the classes so far, descending
    front = 0
    for g in range(classes):
        number[g] = -1
    number[0] = 0
    for q in range(group.shape[0]):
        g = group[q]
        if count == cut and g <= largest[cut - 1]:
            group[q] = 0
            continue
        number[g] = 0
        front = q + 1
        count = min(count + 1, cut)
        at = count - 1
        while at > 0 and largest[at - 1] < g:
            largest[at] = largest[at - 1]
            at -= 1
        largest[at] = g
    left = 0
    for g in range(classes):
        if number[g] == 0:
            number[g], gain[left] = left, gain[g]
            left += 1
    for g in range(left):
        behind[g] = 0
    for q in range(front):
        group[q] = number[group[q]]
        behind[group[q]] += 1
    for g in range(1, left):
        behind[g] += behind[g - 1]
    return front, left


@compile_part
def partition(number, behind, classes, base, order, pointer):
    """Fill `order` with the places of each class in `number`, counted from `base`. `pointer` [classes] is scratch."""
    for g in range(classes):
        pointer[g] = behind[g - 1] if g else 0
    for i in range(number.shape[0]):
        its = number[i]
        if its >= 0:
            to = pointer[unsigned(its)]
            order[unsigned(to)], pointer[unsigned(its)] = base + i, to + 1


@compile_part
def number_gains(gains, where, number, gain, behind, space):
    """Fill `number` with the class of each document of a list, -1 in the padding, and of each class `gain` and `behind`; returns
    how many classes. `space` is for `sort_descending`.
    """
    classes = number_few(gains.view(np.int64), where, number, gain.view(np.int64), behind, space[2].view(np.int64))
    if classes != -1:
        return classes
    for i in range(gains.shape[0]):
        number[i] = -1
    n, ordered = sort_descending(gains.view(np.uint64), where, 0, gains.shape[0], space), space[1][0]
    classes = 0
    for i in range(n):
        at = unsigned(ordered[i])
        if i == 0 or gains[at] != gain[classes - 1]:
            gain[classes] = gains[at]
            classes += 1
        number[at] = classes - 1
        behind[classes - 1] = i + 1
    return classes


@compile_part
def _best_sum(gain, behind, classes, weights, cut):
    """The discounted gains of the first `cut` ranks of a ranking by gain."""
    total, i = 0.0, 0
    for g in range(classes):
        last = min(behind[g], cut)
        while i < last:
            total += weights[unsigned(i)] * gain[g]
            i += 1
    return total


@compile_kernel
def begin_lists(batch, first, last):
    """`begin` with scratch for the longest of the lists."""
    longest = longest_list(batch.lists.offsets, first, last)
    space = sort_space(batch.lists.scores.view(np.uint64), longest)
    return begin(batch, first, last, space, np.empty((2, max(longest, COUNTED_CLASSES)), np.int64))


@compile_part
def begin(batch, first, last, space, scratch):
    """Sort each list, group its documents by gain, and choose its method: NOTHING where no ranking can be wrong.

    `space` is for `sort_descending`, `scratch` [2, at least the longest list and COUNTED_CLASSES]. Returns -1, or the position
    of a score that is not finite or too far below the highest, or of a gain that is below 0 or not finite.
    """
    lists = batch.lists
    scores, gains, where, offsets = lists.scores, lists.gains, lists.where, lists.offsets
    bits = scores.view(np.uint64)
    its_gain = scratch[0].view(np.float64)
    for index in range(first, last):
        start, stop = offsets[index], offsets[index + 1]
        batch.method[index], batch.size[index], batch.merged[index] = NOTHING, 0, 0
        n, ordered = sort_descending(bits, where, start, stop, space), space[1][0]
        if n == 0:
            continue
        top = scores[ordered[0]]
        score, group, gain = batch.score[start:stop], batch.group[start:stop], batch.gain[start:stop]
        by_score = batch.by_score[start:stop]
        for q in range(n):
            at = ordered[q]
            score[q] = scores[unsigned(at)] - top
            if not score[q] >= -WIDEST:
                return at
            by_score[q], its_gain[q] = at, gains[unsigned(at)]
        behind = batch.behind[start:stop]
        classes = number_gains(its_gain[:n], where[:0], group[:n], gain, behind, space)
        if not (gain[0] < np.inf and gain[classes - 1] >= 0.0):
            first_infinite, last_negative = stop, start
            for q in range(n):
                if not -np.inf < its_gain[q] < np.inf:
                    first_infinite = min(first_infinite, by_score[q])
                elif its_gain[q] < 0.0:
                    last_negative = max(last_negative, by_score[q])
            return first_infinite if first_infinite < stop else last_negative
        if classes == 1:
            continue
        c, a = batch.lists.decay, batch.lists.weights
        cut = min(batch.lists.cutoff, n)
        if batch.lists.least_cutoff:
            cut = min(cut, max(behind[0] + 1, batch.lists.least_cutoff))
        ideal = _best_sum(gain, behind, classes, a, cut)
        last_weight = a[n - 1] if cut == n else 0.0
        if ideal <= 0.0 or a[0] == last_weight:
            continue
        if batch.lists.normalized:
            for g in range(classes):
                gain[g] /= ideal
        batch.size[index], batch.classes[index], batch.cut[index] = n, classes, cut
        batch.front[index], batch.ideal[index] = n, ideal
        if batch.lists.reciprocal:
            batch.method[index] = RECIPROCAL
            continue
        proportional = c[0] > 0.0 and (cut == n or c[n - 1] == 0.0)
        for i in range(n if proportional else 0):
            if c[i] * a[0] != (a[i] * c[0] if i < cut else 0.0):
                proportional = False
                break
        front = n
        if cut < n and not proportional:
            if classes > _FEW_CLASSES:
                front, classes = _merge_classes(group[:n], gain, behind, classes, cut, scratch[0], scratch[1])
                batch.classes[index], batch.merged[index] = classes, 1
            else:
                front = _find_front(group[:n], classes, cut)
            batch.front[index] = front
        batch.method[index] = choose_method(front, classes, cut, proportional)
    return -1


@compile_part
def _most_classes(batch, first, last):
    """Of the lists `[first, last)` that a method solves, or 1."""
    most = 1
    for index in range(first, last):
        if batch.method[index] != NOTHING:
            most = max(most, batch.classes[index])
    return most


@compile_kernel
def _problem_space(batch, first, last):
    """Scratch for `problem_of`: numbers and indices by document, and indices by class."""
    longest, classes = longest_list(batch.lists.offsets, first, last), _most_classes(batch, first, last)
    return np.empty((3, longest)), np.empty(longest, np.int64), np.empty((3, classes + 1), np.int64)


@compile_part
def _fill_discounts(discounts, weights, cut):
    """Fill `discounts` with those of a list with a cut-off of its own."""
    for i in range(discounts.shape[0]):
        discounts[i] = weights[i] if i < cut else 0.0


@compile_part
def problem_of(batch, index, space):
    """The assignment problem of a list's front as in `assignment_cpu`: class_score, starts, gain, c, a; `members` [front], the
    documents of each class, as their numbers by descending score; and `classes` [front], to be filled.
    """
    numbers, documents, by_class = space
    start, n, classes = batch.lists.offsets[index], batch.front[index], batch.classes[index]
    group, score = batch.group[start : start + n], batch.score[start : start + n]
    starts = by_class[0, : classes + 1]
    if n == batch.size[index]:
        starts[0] = 0
        for g in range(classes):
            starts[g + 1] = batch.behind[start + g]
    else:
        for g in range(classes + 1):
            starts[g] = 0
        for q in range(n):
            starts[unsigned(group[q] + 1)] += 1
        for g in range(classes):
            starts[g + 1] += starts[g]
    class_score, members = numbers[1, :n], batch.members[start : start + n]
    partition(group, starts[1:], classes, 0, members, by_class[1])
    for i in range(n):
        class_score[i] = score[unsigned(members[i])]
    a = numbers[0, :n]
    _fill_discounts(a, batch.lists.weights, batch.cut[index])
    gain = batch.gain[start : start + classes]
    return class_score, starts, gain, batch.lists.decay[:n], a, members, documents[:n]


@compile_part
def rank_classes(batch, index, starts, classes, k, pointers):
    """Fill `rank` from the class at each of the first k positions, documents of a class in score order; the others follow by
    score. `pointers` [2, classes] are scratch.
    """
    start, n, count = batch.lists.offsets[index], classes.shape[0], starts.shape[0] - 1
    group, rank = batch.group[start : start + n], batch.rank[start : start + n]
    placed, seen = pointers[0], pointers[1]
    if k == n:
        partition(classes, starts[1:], count, 0, rank, placed)
        return
    for g in range(count):
        placed[g], seen[g] = starts[g], starts[g]
    for i in range(k):
        its = unsigned(classes[i])
        rank[unsigned(placed[its])] = i
        placed[its] += 1
    position = k
    for q in range(n):
        its = unsigned(group[q])
        at = seen[its]
        seen[its] = at + 1
        if at >= placed[its]:
            rank[unsigned(at)] = position
            position += 1


@compile_kernel
def proportional_lists(batch, first, last):
    """`_solve_proportional` with scratch for the longest of the lists."""
    value = np.empty(longest_list(batch.lists.offsets, first, last))
    return _solve_proportional(batch, first, last, value, sort_space(value.view(np.uint64), value.shape[0]))


@compile_part
def _solve_proportional(batch, first, last, value, space):
    """Decay proportional to the discount: sort by s - b a / c."""
    for index in range(first, last):
        if batch.method[index] != PROPORTIONAL:
            continue
        start, n = batch.lists.offsets[index], batch.size[index]
        ratio = batch.lists.weights[0] / batch.lists.decay[0]
        for q in range(n):
            value[q] = batch.score[start + q] - batch.gain[start + batch.group[start + q]] * ratio
        sort_descending(value.view(np.uint64), batch.lists.where[:0], 0, n, space)
        order = space[1][0]
        for i in range(n):
            batch.rank[start + order[i]], batch.members[start + i] = i, i
    return -1


@compile_kernel
def lattice_lists(batch, first, last):
    """`_solve_lattice` with scratch for the longest of the lists."""
    space, band = _problem_space(batch, first, last), lattice_space(longest_list(batch.lists.offsets, first, last))
    return _solve_lattice(batch, first, last, space, band)


@compile_part
def _solve_lattice(batch, first, last, space, band):
    """The lists of the lattice programme."""
    for index in range(first, last):
        if batch.method[index] == LATTICE:
            class_score, starts, gain, c, a, members, classes = problem_of(batch, index, space)
            start, n, k = batch.lists.offsets[index], members.shape[0], batch.cut[index]
            group, score = batch.group[start : start + n], batch.score[start : start + n]
            margin, places = space[0][2], batch.rank[start : start + n]
            k, known = by_lattice(class_score, starts, group, score, gain, c, a, k, classes, margin, places, band)
            if not known:
                rank_classes(batch, index, starts, classes, k, space[2][1:])
    return -1


@compile_kernel
def sweep_lists(batch, first, last):
    """`_solve_sweep` with scratch for the largest of the lists."""
    longest, classes = longest_list(batch.lists.offsets, first, last), _most_classes(batch, first, last)
    sweep = sweep_space(longest, classes, _sweep_size(batch, first, last))
    return _solve_sweep(batch, first, last, _problem_space(batch, first, last), sweep)


@compile_part
def _sweep_size(batch, first, last):
    """Of the lists `[first, last)` that the sweep solves, at most: the ranks k that it looks at, k classes, and k classes^2."""
    most, rows, numbers = np.int64(1), np.int64(1), np.int64(1)
    for index in range(first, last):
        if batch.method[index] == SWEEP:
            k, classes = batch.cut[index], batch.classes[index]
            most, rows, numbers = max(most, k), max(rows, k * classes), max(numbers, k * classes * classes)
    return most, rows, numbers


@compile_part
def _solve_sweep(batch, first, last, space, sweep):
    """The lists of the residual sweep."""
    for index in range(first, last):
        if batch.method[index] == SWEEP:
            class_score, starts, gain, c, a, members, classes = problem_of(batch, index, space)
            start, n = batch.lists.offsets[index], members.shape[0]
            group, places = batch.group[start : start + n], batch.rank[start : start + n]
            k = batch.cut[index]
            k, known = by_sweep(class_score, starts, group, gain, c, a, k, 3 * n, classes, places, sweep)
            if not known:
                rank_classes(batch, index, starts, classes, k, space[2][1:])
    return -1


@compile_kernel
def price_lists(batch, first, last):
    """`_solve_prices` with scratch for the longest of the lists."""
    space, prices = _problem_space(batch, first, last), price_space(longest_list(batch.lists.offsets, first, last))
    return _solve_prices(batch, first, last, space, prices)


@compile_part
def _solve_prices(batch, first, last, space, prices):
    """The lists of the prices."""
    for index in range(first, last):
        if batch.method[index] == PRICES:
            class_score, starts, gain, c, a, members, classes = problem_of(batch, index, space)
            start, n = batch.lists.offsets[index], members.shape[0]
            places, pointers = batch.rank[start : start + n], space[2][1:]
            known = batch.cut[index] == n
            known = known and greedy(
                classes, n, class_score, starts, gain, c, a, pointers[0], space[0][2], places, prices[0][:2]
            )
            if not known:
                by_prices(batch.score[start : start + n], batch.group[start : start + n], gain, c, a, classes, prices)
                rank_classes(batch, index, starts, classes, n, pointers)
    return -1


@compile_kernel
def reciprocal_lists(batch, first, last):
    """`solve_reciprocal` with scratch for the longest of the lists."""
    longest = longest_list(batch.lists.offsets, first, last)
    return solve_reciprocal(batch, first, last, np.empty(longest + 1), np.empty((2, longest), np.int64))


@compile_part
def solve_reciprocal(batch, first, last, prefix, places):
    """Reciprocal rank, one relevant document or several: r irrelevant ones, the highest relevant one, then the rest by score.

    Tried for every r < k from the irrelevant ones above that relevant one on (with fewer, it would stand higher than its score
    says, and earn more), and, if there are k of them, the k highest first and then all others by score, which earns nothing.
    But for what the relevant one earns, more of them are worth less: where even without it nothing better is left, that is all.
    At worst O(n + min(k, m) (relevant ones above the r-th irrelevant one)). Class 0 holds the relevant documents, class 1 the
    others.
    `prefix` [longest list + 1] and `places` [2, longest list] are scratch.
    """
    relevant, irrelevant = places[0], places[1]
    prefix[0] = 0.0
    decay, k = batch.lists.decay, batch.lists.cutoff
    for index in range(first, last):
        if batch.method[index] != RECIPROCAL:
            continue
        start, n = batch.lists.offsets[index], batch.size[index]
        s, rank = batch.score[start : start + n], batch.rank[start : start + n]
        p, m = 0, 0
        for q in range(n):
            batch.members[start + q] = q
            if batch.group[start + q] == 0:
                relevant[p] = q
                p += 1
            else:
                irrelevant[m] = q
                m += 1
            prefix[q + 1] = prefix[q] + decay[q] * s[q]  # each at its own rank
        lead = relevant[0]  # irrelevant 0..lead-1 are the first ones by score
        start_r = min(lead, k)
        best, best_r = -np.inf, start_r
        above = prefix[start_r]  # the r highest irrelevant ones at the first ranks
        v = 0  # relevant ones that score above irrelevant r - 1
        for r in range(start_r, min(m, k) + 1):
            if r > start_r:
                above += decay[r - 1] * s[irrelevant[r - 1]]
            while r and v < p and relevant[v] < irrelevant[r - 1]:
                v += 1
            last_chosen = irrelevant[r - 1] if r > lead or r == k else lead
            found = above + prefix[n] - prefix[last_chosen + 1]
            if r == k:  # nothing relevant in the first k: all others by score behind them
                for i in range(v):
                    found += decay[r + i] * s[relevant[i]]
            else:
                found += decay[r] * s[lead]
                for i in range(1, v):
                    found += decay[r + i] * s[relevant[i]]
            if found <= best:
                break
            found -= 1.0 / (1 + r) if r < k else 0.0
            if found > best:
                best, best_r = found, r
        position = best_r
        for i in range(best_r):
            rank[irrelevant[i]] = i
        if best_r < k:
            rank[lead] = best_r
            position += 1
        taken = 0
        for q in range(n):
            if taken < m and irrelevant[taken] == q:
                taken += 1
                if taken <= best_r:
                    continue
            elif q == lead and best_r < k:
                continue
            rank[q] = position
            position += 1
    return -1


@compile_part
def break_ties(order, key, by_second, start, begins, pointer, result):
    """Documents by `key`, as in `order`, and where it is equal as in `by_second`; keys from the list's start on. O(n)."""
    begin, before = 0, 0.0
    for i in range(order.shape[0]):
        at = unsigned(order[i] - start)
        if i == 0 or key[at] != before:
            begin, before = i, key[at]
        begins[at] = begin
        pointer[i] = i
    for i in range(by_second.shape[0]):
        at = unsigned(begins[unsigned(by_second[i] - start)])
        result[unsigned(pointer[at])] = by_second[i]
        pointer[at] += 1


@compile_part
def rank_tied(by_gain, gains, chosen, start, weights, scratch, rank):
    """Rank documents by gain, those of one gain as in `chosen`, and those at ranks of equal discount as in `chosen` alone. O(n).

    `scratch` [4, at least as long as the list].
    """
    begins, block, free, next_of_gain = scratch[0], scratch[1], scratch[2], scratch[3]
    begin, before, its_block = 0, 0.0, 0
    for i in range(by_gain.shape[0]):
        at = by_gain[i]
        gain = gains[unsigned(at)]
        if i == 0 or gain != before:
            begin, before = i, gain
        if i and weights[i] != weights[i - 1]:
            its_block = i
        begins[unsigned(at - start)] = begin
        block[i], free[i], next_of_gain[i] = its_block, i, i
    for i in range(chosen.shape[0]):
        at = unsigned(chosen[i] - start)
        its_gain = unsigned(begins[at])
        place = unsigned(next_of_gain[its_gain])
        next_of_gain[its_gain] += 1
        rank[at] = free[unsigned(block[place])]
        free[unsigned(block[place])] += 1


@compile_part
def _rank_best(by_score, group, behind, classes, start, cut, equal, pointer, rank):
    """`rank_tied` where no discount is above 0 behind the first `cut` ranks: the best stand there, by gain and then by score if
    discounts fall at each, by score if all are `equal`; the others follow by score. `pointer` [classes] is scratch.
    """
    wanted, before = 0, 0  # of the classes, those that have documents before the cut-off
    while wanted < classes and before < cut:
        pointer[wanted] = before
        before = behind[wanted]
        wanted += 1
    front, after = 0, cut
    for q in range(by_score.shape[0]):
        at, its = unsigned(by_score[q] - start), unsigned(group[q])
        if group[q] < wanted and pointer[its] < cut:
            rank[at] = front if equal else pointer[its]
            front += 1
            pointer[its] += 1
        else:
            rank[at] = after
            after += 1


@compile_part
def _sort_by_gain(batch, index, scratch, gain, space, by_gain):
    """Fill `by_gain` with the real documents of a list by descending gain, those of one gain as they stand in the list.

    `scratch` [3, at least the list's documents], `gain` [so many] too.
    """
    lists, start, stop, n = batch.lists, batch.lists.offsets[index], batch.lists.offsets[index + 1], batch.size[index]
    number = scratch[0, : stop - start]
    real = lists.where[start:stop] if lists.where.size else lists.where
    if batch.merged[index]:  # and classes are not the gains
        classes, behind = number_gains(lists.gains[start:stop], real, number, gain, scratch[1], space), scratch[1]
    else:
        classes, behind = batch.classes[index], batch.behind[start:stop]
        for i in range(real.shape[0]):
            number[i] = -1
        by_score, group = batch.by_score[start : start + n], batch.group[start : start + n]
        for q in range(n):
            number[unsigned(by_score[q] - start)] = group[q]
    partition(number, behind, classes, start, by_gain, scratch[2])


@compile_part
def _share_directions(batch, index, order, pointer, documents, key, direction):
    """`share_among_tied` among the documents of each class, which are the gains. All but the batch and `direction` is scratch."""
    start, n, classes = batch.lists.offsets[index], batch.size[index], batch.classes[index]
    behind, begin = batch.behind[start : start + classes], 0
    partition(batch.group[start : start + n], behind, classes, 0, order[:n], pointer)
    for i in range(n):
        documents[i], key[i] = batch.by_score[start + order[i]], batch.score[start + order[i]]
    for end in behind:
        share_among_tied(documents[begin:end], key[begin:end], batch.lists.chosen, direction)
        begin = end


@compile_kernel
def score_lists(batch, first, last, reference, task_loss, value, direction):
    """`score` with scratch for the longest of the lists."""
    longest = longest_list(batch.lists.offsets, first, last)
    space = sort_space(batch.lists.chosen.view(np.uint64), longest)
    scratch, numbers = np.empty((7, longest), np.int64), np.empty((2, longest))
    return score(batch, first, last, reference, task_loss, value, direction, space, scratch, numbers)


@compile_part
def score(batch, first, last, reference, task_loss, value, direction, space, scratch, numbers):
    """Task loss, hinge and direction of the rankings `rank` against a reference; 0 where no ranking can be wrong.

    `space` is for `sort_descending`, `scratch` [7, longest list] and `numbers` [2, longest list].
    """
    lists = batch.lists
    offsets, decay, weights, gains = lists.offsets, lists.decay, lists.weights, lists.gains
    chosen_bits = lists.chosen.view(np.uint64)
    by_chosen, reference_rank = scratch[0], scratch[1]
    begins, pointer, by_reference, key = scratch[2], scratch[3], scratch[4], numbers[0]
    steep, flat = 1, 1  # first ranks at each of which the discount falls, or at none
    while steep < weights.shape[0] and weights[steep] < weights[steep - 1]:
        steep += 1
    while flat < weights.shape[0] and weights[flat] == weights[0]:
        flat += 1
    for index in range(first, last):
        start, stop = offsets[index], offsets[index + 1]
        task_loss[index], value[index] = 0.0, 0.0
        direction[start:stop] = 0.0
        if batch.method[index] == NOTHING:
            continue
        n, cut, front = batch.size[index], batch.cut[index], batch.front[index]
        by_score, score = batch.by_score[start : start + n], batch.score[start : start + n]
        members, rank = batch.members[start : start + front], batch.rank[start : start + front]
        chosen, ideal, by_gain = by_score, by_reference[:n], scratch[6, :n]
        if reference != IDEAL and lists.chosen.size:
            chosen = by_chosen[:n]
            sort_descending(chosen_bits, lists.where, start, stop, space)
            copy_into(space[1][0, :n], chosen)
        tied = reference == IDEAL_TIED and not lists.reciprocal
        best = tied and max(steep, flat) >= cut and not (lists.chosen.size or batch.merged[index])
        by_class = best and batch.method[index] != PROPORTIONAL and cut == n and flat < cut
        if by_class:
            pass  # the best ranking is `members`
        elif best:
            group, classes = batch.group[start : start + n], batch.classes[index]
            behind = batch.behind[start : start + classes]
            _rank_best(by_score, group, behind, classes, start, cut, flat >= cut, scratch[2], reference_rank)
        elif tied:
            _sort_by_gain(batch, index, scratch[2:5], key, space, by_gain)
            steps = numbers[1, :n]
            _fill_discounts(steps, weights, cut)
            rank_tied(by_gain, gains, chosen, start, steps, scratch[2:6], reference_rank)
        elif reference == IDEAL_TIED:
            # The highest-scored relevant document, then all others by score.
            lead = 0
            while gains[chosen[lead]] <= 0.0:
                lead += 1
            copy_into(chosen, ideal)
            for i in range(lead, 0, -1):
                ideal[i] = ideal[i - 1]
            ideal[0] = chosen[lead]
        elif reference == PREDICTED:
            _sort_by_gain(batch, index, scratch[2:5], key, space, by_gain)
            for i in range(n):
                at = unsigned(chosen[i])
                key[unsigned(chosen[i] - start)] = lists.chosen[at] if lists.chosen.size else score[i]
            break_ties(chosen, key, by_gain, start, begins, pointer, ideal)
        else:
            _sort_by_gain(batch, index, scratch[2:5], key, space, by_gain)
            ideal = by_gain
        for i in range(0 if tied else n):
            reference_rank[unsigned(ideal[i] - start)] = i

        found, difference = 0.0, 0.0
        for i in range(n):
            q, position = (unsigned(members[i]), rank[i]) if i < front else (unsigned(i), i)
            at = unsigned(by_score[q])
            step = decay[unsigned(position)] - decay[unsigned(i if by_class else reference_rank[by_score[q] - start])]
            direction[at] = step
            difference += step * score[q]
            if position < cut:
                found += weights[unsigned(position)] * gains[at]
        if lists.reciprocal:
            # The highest relevant document by score, which is the highest of them in any most violated ranking.
            lead = 0
            while batch.group[start + lead] > 0:
                lead += 1
            nearest = rank[lead]
            loss = 1.0 - (weights[nearest] if nearest < cut else 0.0)
        else:
            loss = max(1.0 - found / batch.ideal[index] if lists.normalized else batch.ideal[index] - found, 0.0)
        task_loss[index] = loss
        value[index] = max(loss + difference, 0.0)
        if reference != IDEAL and not batch.merged[index] and is_tied(score):
            _share_directions(batch, index, begins, pointer, by_reference, key, direction)
    return -1
