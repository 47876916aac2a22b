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
from rankstruct.kernels.positional_cpu import IDEAL, IDEAL_TIED, WIDEST, break_ties
from rankstruct.kernels.sorting import longest_list, sort_descending, sort_space

INTEGERS, REALS = 13, 5  # rows of scratch
_MOST_NUMBERS = 2**26  # of the table: half a gigabyte


class Space(NamedTuple):
    """Scratch for one list after another; every row is at least as long as the list.

    Attributes:
        integers: int64 `[INTEGERS, documents]`.
        reals: float64 `[REALS, documents]`.
        table: float64 `[rows, documents]`, of the ranks' values; see `kept_rows`.
        sort: for `sort_descending`.
    """

    integers: Any
    reals: Any
    table: Any
    sort: Any


class Problem(NamedTuple):
    """Whom the ranks of a list may show.

    Attributes:
        candidates: int64 `[candidates]`, documents, of each group by ascending gain and score.
        group: int64 `[candidates]`.
        score, gain: float64 `[candidates]`, relative to the list's highest score and, if normalised, best value.
        c, a: decay and discount.
        groups: how many there are.
    """

    candidates: Any
    group: Any
    score: Any
    gain: Any
    c: Any
    a: Any
    groups: int


def kept_rows(cutoff: int, longest: int, documents: int) -> int:
    """Rows of a table for so many documents in all; where there is no room for all ranks, they are computed again and again."""
    return max(1, min(cutoff, longest, _MOST_NUMBERS // max(documents, 1)))


@compile_part
def _worth(problem, lead, i, j):
    """c_i s - a_i b of a candidate; if some number of irrelevant documents lead, only these before, and nothing is charged."""
    if lead == -1:
        return problem.c[i] * problem.score[j] - problem.a[i] * problem.gain[j]
    return -np.inf if i < lead and problem.gain[j] > 0.0 else problem.c[i] * problem.score[j]


@compile_part
def _fill_row(problem, lead, i, row):
    """The value of each group at rank i, minus infinity where it has no document for it. O(candidates)."""
    for g in range(problem.groups):
        row[g] = -np.inf
    for j in range(problem.group.shape[0]):
        its = unsigned(problem.group[j])
        row[its] = max(row[its], _worth(problem, lead, i, j))


@compile_part
def assign(problem, lead, column, scratch, reals, table):
    """Fill `column` [rows] with a different group for each rank, so that the sum of values is largest; returns the sum.

    Shortest augmenting paths, for rows <= groups. Invariant after each row: the rows so far are matched, row_price +
    column_price >= value everywhere with equality where matched, and column_price is >= 0, and 0 for free columns.
    O(rows^2 groups) and at most rows^2 / 2 rows of values. Minus infinity forbids; some choice must be allowed.
    `scratch` [4, groups], `reals` [3, groups]; `table` [>= 1, groups] keeps rows of values, and `scratch[3]`, -1 at first, which.
    """
    rows, columns = column.shape[0], problem.groups
    owner, before, done, kept = scratch[0], scratch[1], scratch[2], scratch[3]
    row_price, column_price, distance = reals[0], reals[1], reals[2]
    places, total = min(table.shape[0], rows), 0.0
    for j in range(columns):
        owner[j], column_price[j] = -1, 0.0
    for row in range(rows):
        row_price[row] = 0.0
        for j in range(columns):
            distance[j], before[j], done[j] = np.inf, -1, 0  # before: so that the walk back ends whatever the values
        current, at, length = row, -1, 0.0
        while current != -1:  # until a free column is the nearest
            place = current % places
            value = table[place]
            if kept[place] != 2 * current + (current < lead):
                _fill_row(problem, lead, current, value)
                kept[place] = 2 * current + (current < lead)
            nearest, base = -1, length + row_price[current]
            for j in range(columns):
                if done[j]:
                    continue
                reach = base + column_price[j] - value[j]
                if reach < distance[j]:
                    distance[j], before[j] = reach, at
                if nearest == -1 or distance[j] < distance[nearest]:
                    nearest = j
            at, length = nearest, distance[nearest]
            done[at] = 1
            current = owner[at]
        total -= length
        row_price[row] -= length
        for j in range(columns):
            if done[j] and owner[j] != -1:
                column_price[j] += length - distance[j]
                row_price[owner[j]] -= length - distance[j]
        while before[at] != -1:
            owner[at] = owner[before[at]]
            at = before[at]
        owner[at] = row
    for j in range(columns):
        if owner[j] != -1:
            column[owner[j]] = j
    return total


@compile_part
def problem_of(batch, by_gain, start, group, groups, top, unit, latest, scratch, reals):
    """The documents that may be the best of their group at some rank: no other of it has no lower score and no higher gain.

    `latest` [groups], `scratch` [2, documents] and `reals` [2, documents] are filled. O(n).
    """
    scores, gains, candidates = batch.scores, batch.gains, scratch[0]
    latest[:groups] = -1
    count = 0
    for i in range(by_gain.shape[0] - 1, -1, -1):
        at = by_gain[i]
        g = group[at - start]
        j = latest[g]
        if j != -1 and scores[at] <= scores[candidates[j]]:
            continue
        if j == -1 or gains[at] > gains[candidates[j]]:
            j = count
            count += 1
            latest[g], scratch[1, j] = j, g
        candidates[j], reals[0, j], reals[1, j] = at, scores[at] - top, gains[at] * unit
    return Problem(
        candidates[:count], scratch[1, :count], reals[0, :count], reals[1, :count], batch.decay, batch.weights, groups
    )


@compile_part
def _assign_reciprocal(problem, m, scratch, reals, table):
    """The most violated ranking of reciprocal rank: the best over how many irrelevant documents lead; returns how many.

    With `lead` of them, the next rank is charged as if a relevant document stood there, and any may: where it is an irrelevant
    one, the ranking was charged too much, and is charged less when one more of them leads. Some assignment is allowed if
    `lead` groups have an irrelevant document. The groups come to `scratch[0]`. O(n + m^3 G).
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
    """Fill `shown` with the documents of the best assignment of ranks to groups. O(m n) after it."""
    m, lead, column = shown.shape[0], -1, scratch[0]
    scratch[5, :m] = -1  # no row of the table is of this list
    if batch.reciprocal:
        lead = _assign_reciprocal(problem, m, scratch, reals, table)
    else:
        assign(problem, lead, column[:m], scratch[2:], reals, table)
    for i in range(m):
        best = -np.inf
        for j in range(problem.group.shape[0]):
            if problem.group[j] == column[i] and _worth(problem, lead, i, j) > best:
                best, shown[i] = _worth(problem, lead, i, j), problem.candidates[j]


@compile_part
def _keep_first(order, start, group, most, seen, shown):
    """Walk down `order` and fill `shown` with the first document of each group, until `most` are kept. O(n)."""
    seen[:] = 0
    count = 0
    for at in order:
        if count == most:
            break
        if not seen[group[at - start]]:
            seen[group[at - start]] = 1
            shown[count] = at
            count += 1


@compile_part
def _lead_with_relevant(by_chosen, batch, start, group, seen, heads, result):
    """Fill `result` with the ranking that F prefers, by the chosen scores, of those that begin with a relevant document.

    `heads` are the first documents shown by these scores. The relevant document need not be the highest-scored one, since it
    hides the others of its group. O(n + m G).
    """
    chosen, c = batch.chosen, batch.decay
    m, top = heads.shape[0], chosen[by_chosen[0]]
    best, lead = -np.inf, -1
    seen[:] = 0
    for at in by_chosen:
        if batch.gains[at] <= 0.0 or seen[group[at - start]]:
            continue
        seen[group[at - start]] = 1
        total, rank = c[0] * (chosen[at] - top), 1
        for head in heads:
            if rank < m and group[head - start] != group[at - start]:
                total += c[rank] * (chosen[head] - top)
                rank += 1
        if total > best:
            best, lead = total, at
    result[0], rank = lead, 1
    for head in heads:
        if rank < m and group[head - start] != group[lead - start]:
            result[rank] = head
            rank += 1


@compile_part
def reorder_blocks(by_score, start, weights, block, pointer, shown):
    """Sort the documents shown at ranks of equal discount by score alone. O(n)."""
    block[:] = -1
    begin = 0
    for i in range(shown.shape[0]):
        if i and weights[i] != weights[i - 1]:
            begin = i
        block[unsigned(shown[i] - start)] = begin
        pointer[i] = i
    for i in range(by_score.shape[0]):
        begin = block[unsigned(by_score[i] - start)]
        if begin != -1:
            shown[unsigned(pointer[unsigned(begin)])] = by_score[i]
            pointer[unsigned(begin)] += 1


@compile_part
def _show_reference(batch, start, stop, by_gain, group, reference, chosen, seen, scratch, sort):
    """Turn `chosen`, an ideal diverse ranking, into the one that the scores choose. `scratch` [5, documents]."""
    n, m = by_gain.shape[0], chosen.shape[0]
    by_chosen, by_both, begins, pointer, heads = scratch[0, :n], scratch[1, :n], scratch[2], scratch[3], scratch[4, :m]
    sort_descending(batch.chosen.view(np.uint64), batch.where, start, stop, sort)
    break_ties(sort[1][0, :n], batch.chosen[start:stop], by_gain, start, begins, pointer, by_chosen)
    if reference == IDEAL_TIED and batch.reciprocal:
        _keep_first(by_chosen, start, group, m, seen, heads)
        _lead_with_relevant(by_chosen, batch, start, group, seen, heads, chosen)
    elif reference == IDEAL_TIED:
        break_ties(by_gain, batch.gains[start:stop], by_chosen, start, begins, pointer, by_both)
        _keep_first(by_both, start, group, m, seen, chosen)
        reorder_blocks(by_chosen, start, batch.weights, begins[: stop - start], pointer, chosen)
    else:
        _keep_first(by_chosen, start, group, m, seen, chosen)


@compile_part
def _sort_by_gain(batch, start, stop, by_gain, space):
    """Fill `by_gain`; returns how many documents are real, the highest score, and -1 or the position of a wrong one."""
    scores, gains, top = batch.scores, batch.gains, -np.inf
    n, order = sort_descending(gains.view(np.uint64), batch.where, start, stop, space), space[1][0]
    for i in range(n):
        at = order[i]
        if not -np.inf < scores[at] < np.inf or not gains[at] >= 0.0:
            return n, top, at
        top = max(top, scores[at])
        by_gain[i] = at
    for i in range(n):
        if not scores[by_gain[i]] - top >= -WIDEST:
            return n, top, by_gain[i]
    return n, top, np.int64(-1)


@compile_part
def _number_groups(batch, start, stop, group, space):
    """Fill `group` from 0 on; returns how many there are, and whether the documents of each gain alike."""
    groups, alike = 0, True
    n, order = sort_descending(batch.groups, batch.where, start, stop, space), space[1][0]
    for i in range(n):
        at = order[i]
        if i == 0 or batch.groups[at] != batch.groups[order[i - 1]]:
            groups += 1
        elif batch.gains[at] != batch.gains[order[i - 1]]:
            alike = False
        group[at - start] = groups - 1
    return groups, alike


@compile_part
def _count_shown(batch, by_gain, start, group, groups, seen):
    """How many documents are shown; mWTA counts the groups that have the highest gain."""
    m, highest = min(batch.cutoff, groups), 0
    if not batch.least_cutoff:
        return m
    seen[:groups] = 0
    for at in by_gain:
        if batch.gains[at] == batch.gains[by_gain[0]] and not seen[group[at - start]]:
            seen[group[at - start]] = 1
            highest += 1
    return min(m, max(highest + 1, batch.least_cutoff))


@compile_part
def solve_list(batch, index, reference, task_loss, value, direction, space):
    """Task loss, hinge and direction of one list; returns -1, or the position of what is wrong, as `diverse_lists` says."""
    scores, gains, c, a = batch.scores, batch.gains, batch.decay, batch.weights
    start, stop, integers = batch.offsets[index], batch.offsets[index + 1], space.integers
    task_loss[index], value[index] = 0.0, 0.0
    direction[start:stop] = 0.0
    n, top, wrong = _sort_by_gain(batch, start, stop, integers[0], space.sort)
    by_gain, group = integers[0, :n], integers[1]
    if wrong != -1 or n < 2 or gains[by_gain[0]] == gains[by_gain[n - 1]]:
        return wrong
    groups, alike = _number_groups(batch, start, stop, group, space.sort)
    seen, scratch = integers[2, :groups], integers[5:]
    m = _count_shown(batch, by_gain, start, group, groups, seen)
    chosen, shown = integers[3, :m], integers[4, :m]
    _keep_first(by_gain, start, group, m, seen, chosen)
    best = 0.0
    for i in range(m):
        best += a[i] * gains[chosen[i]]
    if batch.reciprocal and best > 0.0:
        best = 1.0
    if best <= 0.0 or (m == groups and alike and a[0] == a[m - 1]):
        return wrong
    unit = 1.0 / best if batch.normalized else 1.0
    problem = problem_of(batch, by_gain, start, group, groups, top, unit, seen, scratch, space.reals)
    _show_most_violated(batch, problem, shown, scratch[2:], space.reals[2:], space.table)
    if reference != IDEAL:
        _show_reference(batch, start, stop, by_gain, group, reference, chosen, seen, scratch, space.sort)

    found, difference = 0.0, 0.0
    for i in range(m):
        if not batch.reciprocal:
            found += a[i] * gains[shown[i]]
        elif found == 0.0 and gains[shown[i]] > 0.0:
            found = a[i]
        difference += c[i] * (scores[shown[i]] - scores[chosen[i]])
        direction[shown[i]] += c[i]
        direction[chosen[i]] -= c[i]
    loss = max(best - found, 0.0) * unit
    task_loss[index], value[index] = loss, max(loss + difference, 0.0)
    return wrong


@compile_kernel
def diverse_lists(batch, first, last, reference, rows, task_loss, value, direction):
    """Task loss, hinge and direction of the most violated diverse ranking of each list; 0 where none can be wrong.

    O(n m + m^2 G) a list after its sorts, for reciprocal rank O(n + m^3 G), with `rows` of `kept_rows`. Returns -1, or the
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
