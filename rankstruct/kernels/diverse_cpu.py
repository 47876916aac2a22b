"""Most violated diverse rankings on the CPU: at most one document of a group among the first k ranks.

With G groups, m = min(k, G) documents are shown, at the ranks 1 to m; all others have no discount and no decay. The most
violated ranking is an assignment of the m ranks to groups, where rank i gets from a group the document with the largest
c_i s - a_i b. Reciprocal rank is no sum over ranks: there is an assignment for each number of irrelevant documents that lead.
Scores are taken relative to the list's highest: every diverse ranking has the same sum of coefficients. `solve_list` takes its
scratch from the loop around it, and on a CUDA device from `diverse_device`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rankstruct.kernels.compilation import compile_kernel, compile_part, unsigned
from rankstruct.kernels.group_assignment_cpu import Problem, assign, worth
from rankstruct.kernels.positional_cpu import IDEAL, IDEAL_TIED, PREDICTED, WIDEST, number_gains, partition
from rankstruct.kernels.sorting import longest_list, sort_space

INTEGERS, REALS = 15, 6  # rows of scratch
# By which the halves of a group's number are multiplied, so that its hash has bits of all: odd, from the golden ratio and e.
_SPREAD, _SPREAD_HIGH = np.uint64(0x9E3779B9), np.uint64(0xB7E15163)
_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)


class Space(NamedTuple):
    """Scratch for one list after another; every row is at least as long as the list.

    Attributes:
        integers: int64 `[INTEGERS, documents]`.
        reals: float64 `[REALS, documents]`.
        table: float64 `[rows, documents]`, of the ranks' values; see `kept_rows`.
        sort: for `number_gains`.
    """

    integers: Any
    reals: Any
    table: Any
    sort: Any


@compile_part
def problem_of(batch, by_group, ends, top, highest_gain, unit, candidates, group, reals):
    """The documents that may be the best of their group at some rank: no other of it has no lower score and no higher gain.

    `candidates`, `group` [documents] and `reals` [2, documents] are filled. O(n).
    """
    score, gain, count, begin = reals[0], reals[1], 0, 0
    for g in range(ends.shape[0]):
        highest, last = -np.inf, -1.0
        for i in range(ends[g] - 1, begin - 1, -1):
            at = unsigned(by_group[i])
            its_score, its_gain = batch.scores[at], batch.gains[at]
            if its_score <= highest:
                continue
            count += its_gain > last
            highest, last = its_score, its_gain
            place = count - 1
            candidates[place], group[place] = at, g
            score[place], gain[place] = its_score - top, its_gain / unit
        begin = ends[g]
    known = candidates[:count], group[:count], score[:count], gain[:count]
    return Problem(*known, batch.decay, batch.weights, ends.shape[0], highest_gain / unit)


@compile_part
def _assign_reciprocal(problem, m, scratch, reals, table):
    """The most violated ranking of reciprocal rank: the best over how many irrelevant documents lead; returns how many.

    With `lead` of them, the next rank is charged as if a relevant document stood there, and any may: where it is an irrelevant
    one, the ranking was charged too much, and is charged less when one more of them leads. Some assignment is allowed if
    `lead` groups have an irrelevant document. The groups come to `scratch[0]`. O(n m + m^3 G).
    """
    irrelevant, largest, best = 0, -np.inf, 0  # a group's candidate of gain 0 is one alone
    for j in range(problem.gain.shape[0]):
        irrelevant += problem.gain[j] <= 0.0
    for lead in range(min(m, irrelevant) + 1):
        total = assign(problem, lead, scratch[1, :m], scratch[2:], reals, table)
        total -= problem.a[lead] if lead < m else 0.0
        if total > largest:
            largest, best = total, lead
            for i in range(m):
                scratch[0, i] = scratch[1, i]
    return best


@compile_part
def _show_most_violated(batch, problem, shown, scratch, reals, table):
    """Fill `shown` with the documents of the best assignment of ranks to groups. O(n) after it. `scratch` [7, groups]."""
    m, lead, column = shown.shape[0], -1, scratch[0]
    scratch[6, :m] = -1  # no row of the table is of this list
    if batch.reciprocal:
        lead = _assign_reciprocal(problem, m, scratch, reals, table)
    else:
        assign(problem, lead, column[:m], scratch[2:], reals, table)
    rank, best = scratch[1], reals[0]
    for g in range(problem.groups):
        rank[g] = -1
    for i in range(m):
        rank[column[i]], best[i], shown[i] = i, -np.inf, problem.candidates[0]
    for j in range(problem.group.shape[0]):
        i = rank[problem.group[j]]
        if i != -1 and worth(problem, lead, i, j) > best[i]:
            best[i], shown[i] = worth(problem, lead, i, j), problem.candidates[j]


@compile_part
def _before(batch, one, other, reference):
    """Whether a document comes before another in a reference: by gain, chosen score or both, and then as in the list."""
    gains, chosen, one, other = batch.gains, batch.chosen, unsigned(one), unsigned(other)
    if reference != PREDICTED and gains[one] != gains[other]:
        return gains[one] > gains[other]
    if reference != IDEAL and chosen[one] != chosen[other]:
        return chosen[one] > chosen[other]
    return gains[one] > gains[other] or (gains[one] == gains[other] and one < other)


@compile_part
def _find_first(batch, by_group, ends, reference, first):
    """Fill `first` [groups] with the document of each group that comes first in a reference. O(n)."""
    gains, chosen, begin = batch.gains, batch.chosen, 0
    for g in range(ends.shape[0]):
        at = unsigned(by_group[begin])
        for i in range(begin + 1, begin + 1 if reference == IDEAL else ends[g]):
            its = unsigned(by_group[i])
            if reference == IDEAL_TIED and gains[its] != gains[at]:
                break
            if chosen[its] > chosen[at]:
                at = its
        first[g], begin = at, ends[g]


@compile_part
def _show_first(batch, by_group, ends, reference, first, shown):
    """Fill `shown` with the documents that come first in a reference, one of a group, and `first` [groups]. O(n + m G)."""
    _find_first(batch, by_group, ends, reference, first)
    m, count = shown.shape[0], 0
    for at in first:
        if count == m and not _before(batch, at, shown[m - 1], reference):
            continue
        count = min(count + 1, m)
        i = count - 1
        while i > 0 and _before(batch, at, shown[i - 1], reference):
            shown[i] = shown[i - 1]
            i -= 1
        shown[i] = at


@compile_part
def _lead_with_relevant(batch, start, group, first, heads, result):
    """Fill `result` with the ranking that F prefers, by the chosen scores, of those that begin with a relevant document.

    `heads` are the first documents shown by these scores, `first` those of each group by gain and then by them: the highest
    relevant document of all need not lead, since it hides the others of its group. O(m G).
    """
    chosen, c, m = batch.chosen, batch.decay, heads.shape[0]
    top, best, lead = chosen[heads[0]], -np.inf, -1
    for g in range(first.shape[0]):
        at = first[g]
        if batch.gains[at] <= 0.0:
            continue
        total, rank = c[0] * (chosen[at] - top), 1
        for head in heads:
            if rank < m and group[head - start] != g:
                total += c[rank] * (chosen[head] - top)
                rank += 1
        if lead == -1 or total > best:
            best, lead = total, at
    result[0], rank = lead, 1
    for head in heads:
        if rank < m and group[head - start] != group[lead - start]:
            result[rank] = head
            rank += 1


@compile_part
def _sort_blocks(chosen, weights, shown):
    """Sort the documents shown at ranks of equal discount by score alone, those of one score as they are. O(m^2)."""
    for i in range(1, shown.shape[0]):
        at, j = shown[i], i
        while j > 0 and weights[j - 1] == weights[i] and chosen[shown[j - 1]] < chosen[at]:
            shown[j] = shown[j - 1]
            j -= 1
        shown[j] = at


@compile_part
def _show_reference(batch, start, group, by_group, ends, reference, chosen, first, scratch):
    """Turn `chosen`, an ideal diverse ranking with `first` of `_show_first`, into the one that the scores choose."""
    if reference == PREDICTED:
        _show_first(batch, by_group, ends, PREDICTED, first, chosen)
    elif reference == IDEAL_TIED and batch.reciprocal:
        heads = scratch[0, : chosen.shape[0]]
        _show_first(batch, by_group, ends, PREDICTED, scratch[1, : first.shape[0]], heads)
        _lead_with_relevant(batch, start, group, first, heads, chosen)
    elif reference == IDEAL_TIED:
        _sort_blocks(batch.chosen, batch.weights, chosen)


@compile_part
def _check(batch, start, stop):
    """How many documents are real, the highest score, and -1 or the position of a score or gain that is wrong."""
    scores, gains, where = batch.scores, batch.gains, batch.where
    n, top, lowest = 0, -np.inf, np.inf
    for at in range(start, stop):
        if where.size and not where[at]:
            continue
        if not -np.inf < scores[at] < np.inf or not gains[at] >= 0.0:
            return n, top, at
        n += 1
        top, lowest = max(top, scores[at]), min(lowest, scores[at])
    widest = WIDEST / max(batch.decay[0], 1.0)  # of scores times decay too
    if lowest - top >= -widest:
        return n, top, np.int64(-1)
    at = start
    while (where.size and not where[at]) or scores[at] - top >= -widest:
        at += 1
    return n, top, at


@compile_part
def _number_groups(batch, start, stop, n, group, ends, scratch):
    """Fill `group` from 0 on, and `ends` with how many documents are of each group or one before it; returns how many there are.

    By a hash table of chains, of 2^b <= n heads. `scratch` [3, n]. About O(n).
    """
    heads, following, first = scratch[0], scratch[1], scratch[2]
    names, where = batch.groups, batch.where
    size, shift = 1, _HALF
    while 2 * size <= n:
        size *= 2
        shift -= np.uint64(1)
    last = np.uint64(size - 1)
    for h in range(size):
        heads[h] = -1
    groups = 0
    for at in range(start, stop):
        if where.size and not where[at]:
            continue
        name = names[at]
        h = ((((name & _LOW) * _SPREAD) ^ ((name >> _HALF) * _SPREAD_HIGH)) >> shift) & last
        g = heads[h]
        while g != -1 and names[unsigned(first[unsigned(g)])] != name:
            g = following[unsigned(g)]
        if g == -1:
            g = groups
            groups += 1
            first[unsigned(g)], following[unsigned(g)], heads[h], ends[unsigned(g)] = at, heads[h], g, 0
        ends[unsigned(g)] += 1
        group[at - start] = g
    for g in range(1, groups):
        ends[g] += ends[g - 1]
    return groups


@compile_part
def _sort_by_group(batch, start, stop, n, group, by_group, ends, scratch, gain, space):
    """Fill `by_group` with the documents group by group, by descending gain and then as in the list; returns how many groups
    there are, or 0 if the gains are all equal. `group` and `ends` as `_number_groups` says; `scratch` [4, documents] and `gain`
    [documents] are filled.
    """
    number, behind, by_gain, pointer = scratch[0, : stop - start], scratch[1], scratch[2, :n], scratch[3]
    real = batch.where[start:stop] if batch.where.size else batch.where
    classes = number_gains(batch.gains[start:stop], real, number, gain, behind, space)
    if classes == 1:
        return 0
    partition(number, behind, classes, start, by_gain, pointer)
    groups = _number_groups(batch, start, stop, n, group, ends, (scratch[0], scratch[1], scratch[3]))
    for g in range(groups):
        pointer[g] = ends[g - 1] if g else 0
    for at in by_gain:
        its = unsigned(group[unsigned(at - start)])
        by_group[unsigned(pointer[its])] = at
        pointer[its] += 1
    return groups


@compile_part
def _count_shown(batch, by_group, ends):
    """How many documents are shown; mWTA counts the groups that have the highest gain."""
    groups = ends.shape[0]
    m = min(batch.cutoff, groups)
    if not batch.least_cutoff:
        return m
    highest, count = -1.0, 0
    for g in range(groups):
        gain = batch.gains[by_group[ends[g - 1] if g else 0]]
        if gain > highest:
            highest, count = gain, 0
        count += gain == highest
    return min(m, max(count + 1, batch.least_cutoff))


@compile_part
def _is_alike(gains, by_group, ends):
    """Whether the documents of each group have one gain."""
    begin = 0
    for end in ends:
        if gains[by_group[begin]] != gains[by_group[end - 1]]:
            return False
        begin = end
    return True


@compile_part
def solve_list(batch, index, reference, task_loss, value, direction, space):
    """Task loss, hinge and direction of one list; returns -1, or the position of what is wrong, as `diverse_lists` says."""
    scores, gains, c, a = batch.scores, batch.gains, batch.decay, batch.weights
    start, stop, integers, reals = batch.offsets[index], batch.offsets[index + 1], space.integers, space.reals
    task_loss[index], value[index] = 0.0, 0.0
    direction[start:stop] = 0.0
    n, top, wrong = _check(batch, start, stop)
    if wrong != -1 or n < 2:
        return wrong
    group, by_group, scratch = integers[0], integers[1, :n], integers[6:]
    groups = _sort_by_group(batch, start, stop, n, group, by_group, integers[2], scratch, reals[0], space.sort)
    if groups == 0:
        return wrong
    ends, first = integers[2, :groups], integers[3, :groups]
    m = _count_shown(batch, by_group, ends)
    if m == 0 or (m == groups and a[0] == a[m - 1] and _is_alike(gains, by_group, ends)):
        return wrong
    chosen, shown = integers[4, :m], integers[5, :m]
    _show_first(batch, by_group, ends, IDEAL if reference == PREDICTED else reference, first, chosen)
    best = 0.0
    for i in range(m):
        best += a[i] * gains[chosen[i]]
    if batch.reciprocal and best > 0.0:
        best = 1.0
    if best <= 0.0:
        return wrong
    unit = best if batch.normalized else 1.0
    problem = problem_of(batch, by_group, ends, top, gains[chosen[0]], unit, scratch[0], scratch[1], reals)
    _show_most_violated(batch, problem, shown, scratch[2:], reals[2:], space.table)
    _show_reference(batch, start, group, by_group, ends, reference, chosen, first, scratch)

    found, difference = 0.0, 0.0
    for i in range(m):
        if not batch.reciprocal:
            found += a[i] * gains[shown[i]]
        elif found == 0.0 and gains[shown[i]] > 0.0:
            found = a[i]
        difference += c[i] * (scores[shown[i]] - scores[chosen[i]])
        direction[shown[i]] += c[i]
        direction[chosen[i]] -= c[i]
    loss = max(best - found, 0.0) / unit
    task_loss[index], value[index] = loss, max(loss + difference, 0.0)
    return wrong


@compile_kernel
def diverse_lists(batch, first, last, reference, rows, task_loss, value, direction):
    """Task loss, hinge and direction of the most violated diverse ranking of each list; 0 where none can be wrong.

    At worst O(n m + m^2 G) a list, for reciprocal rank O(n m + m^3 G), with `rows` of `kept_rows`. Returns -1, or the
    position of a score that is not finite or too far below the highest, or of a gain below 0.
    """
    longest = longest_list(batch.offsets, first, last)
    sort = sort_space(batch.groups, longest)
    space = Space(np.empty((INTEGERS, longest), np.int64), np.empty((REALS, longest)), np.empty((rows, longest)), sort)
    for index in range(first, last):
        wrong = solve_list(batch, index, reference, task_loss, value, direction, space)
        if wrong != -1:
            return wrong
    return -1
