"""Ranks assigned to groups of documents, each rank to a different one, so that the sum of their values is largest; on the CPU.

Rank i gets from a group its document with the largest c_i s - a_i b, which a diverse ranking shows there. There are at least as
many groups as ranks. Each rank takes the best group that is left, one after another, and moves it up as long as that is better;
exchanges make of that the best assignment, where it is not yet. Where there is no room for a value of every rank and group, or
rounding might hide an exchange, by shortest augmenting paths.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rankstruct.kernels.compilation import compile_part, compile_vectorised, unsigned

_FEW_SWEEPS = 2  # before circles are looked for: mostly there is none, and no price rises in the second one
_MORE_SWEEPS = 32  # than ranks, before paths are taken: some 2 for each exchange
PRECISE = 2.0**20  # numbers so many times as large still tell 1e-10 of a loss
_MOST_NUMBERS = 2**26  # of the table: half a gigabyte


class Problem(NamedTuple):
    """Whom the ranks of a list may show.

    Attributes:
        candidates: int64 `[candidates]`, documents, group after group, of each by ascending gain and score.
        group: int64 `[candidates]`.
        score, gain: float64 `[candidates]`, relative to the list's highest score and, if normalised, best value.
        c, a: decay and discount.
        groups: how many there are.
        highest: of the gains.
        top_score: float64 `[2, groups]`, for reciprocal rank, of a group's documents and of its irrelevant ones, minus infinity
            where there are none.
    """

    candidates: Any
    group: Any
    score: Any
    gain: Any
    c: Any
    a: Any
    groups: int
    highest: float
    top_score: Any


def kept_rows(cutoff: int, longest: int, documents: int) -> int:
    """Rows of a table for so many documents in all; where there is no room for all ranks, they are computed again and again."""
    return max(1, min(cutoff, longest, _MOST_NUMBERS // max(documents, 1)))


@compile_part
def worth(problem, lead, i, j):
    """c_i s - a_i b of a candidate; if some number of irrelevant documents lead, only these before, and nothing is charged."""
    if lead == -1:
        return problem.c[i] * problem.score[j] - problem.a[i] * problem.gain[j]
    return -np.inf if i < lead and problem.gain[j] > 0.0 else problem.c[i] * problem.score[j]


@compile_part
def value_of_score(problem, lead, i, g):
    """What rank i gets from a group, for reciprocal rank."""
    top = problem.top_score[1 if i < lead else 0, g]
    return top if top == -np.inf else problem.c[i] * top


@compile_part
def _fill_row(problem, lead, i, kept, row):
    """Fill `row` with the value of each group at rank i, minus infinity where it has no document for it. O(candidates).

    `kept[0]` is the rank of which the row is: it may hold this already.
    """
    if kept[0] == i:
        return
    kept[0] = i
    for g in range(problem.groups):
        row[g] = -np.inf if lead == -1 else value_of_score(problem, lead, i, g)
    if lead != -1:
        return
    for j in range(problem.group.shape[0]):
        column = unsigned(problem.group[j])
        row[column] = max(row[column], worth(problem, lead, i, j))


@compile_vectorised
def _highest(value, taken):
    """The highest value of a column that is not taken."""
    highest = -np.inf
    for j in range(taken.shape[0]):
        highest = max(highest, value[j] + taken[j])
    return highest


@compile_part
def _find(highest, value, taken):
    """The first column that is not taken and has the highest value."""
    j = 0
    while j < taken.shape[0] - 1 and value[unsigned(j)] + taken[unsigned(j)] != highest:
        j += 1
    return j


@compile_vectorised
def _set_to_worth(value, c, a, score, gain):
    """Set the value of each rank to what it gets from a candidate."""
    for i in range(value.shape[0]):
        value[i] = c[i] * score - a[i] * gain


@compile_vectorised
def _raise_to_worth(value, c, a, score, gain):
    """Raise the value of each rank to what it gets from a candidate."""
    for i in range(value.shape[0]):
        value[i] = max(value[i], c[i] * score - a[i] * gain)


@compile_vectorised
def _raise_to(value, other):
    """Raise each value to another one."""
    for i in range(value.shape[0]):
        value[i] = max(value[i], other[i])


@compile_part
def _fill_values(problem, lead, rows, table):
    """Fill `table` with the values of each group, one behind the other, at all ranks. O(candidates rows)."""
    c, a, last = problem.c[:rows], problem.a[:rows], -1
    if lead != -1:
        for g in range(problem.groups):
            for i in range(rows):
                table[g * rows + i] = value_of_score(problem, lead, i, g)
        return
    for j in range(problem.group.shape[0]):
        its = problem.group[j]
        value = table[its * rows : (its + 1) * rows]
        if its == last:
            _raise_to_worth(value, c, a, problem.score[j], problem.gain[j])
        else:
            _set_to_worth(value, c, a, problem.score[j], problem.gain[j])
        last = its


@compile_part
def _best_left(i, rows, left, table):
    """Where in `left` the group of the highest value at rank i is, or -1 if no group there has a document for it."""
    highest, place, other, its = -np.inf, -1, -np.inf, -1
    half = left.shape[0] // 2
    for f in range(half):  # two at a time: a comparison waits for the one before it
        value, beside = table[unsigned(left[f] * rows + i)], table[unsigned(left[half + f] * rows + i)]
        place, its = f if value > highest else place, half + f if beside > other else its
        highest, other = max(value, highest), max(beside, other)
    if left.shape[0] > 2 * half:
        value = table[unsigned(left[2 * half] * rows + i)]
        place, highest = 2 * half if value > highest else place, max(value, highest)
    return its if other > highest else place


@compile_part
def _shift(column, before, at, last, its):
    """Give the group `its` to the rank `at`, what that had to the one before it, and so on to `last`; returns what `last` had."""
    for _ in range(column.shape[0]):  # no way is longer, and none is walked for ever
        column[at], its, done = its, column[at], at == last
        at = -1 if done else before[at]
        if at == -1:
            break
    return its


@compile_part
def _begin_sweeps(column, before, above, own, table):
    """What the ranks have; all prices are 0."""
    rows = column.shape[0]
    for k in range(rows):
        own[k], before[k] = table[column[k] * rows + k], -1
        above[k] = -own[k]


@compile_part
def _find_spare(left, spare, table):
    """The most that each rank could have of the groups `left`."""
    rows = spare.shape[0]
    for k in range(rows):
        spare[k] = -np.inf
    for g in left:
        _raise_to(spare, table[g * rows : (g + 1) * rows])


@compile_part
def _find_circle(before, k):
    """A rank of the circle into which the walk from k to the rank before it, and so on, runs; -1 if it ends."""
    for _ in range(before.shape[0]):
        k = before[k]
        if k == -1:
            break
    return k


@compile_part
def _exchange(column, left, most, before, reals, table):
    """Exchange until no assignment is better; returns False where that is not seen: after many sweeps, or if a price is so high
    above `most`, what a document costs at most, that rounding may hide a better one.

    There is none if there are prices for the groups given, not below 0, at which no rank would rather have another group, nor
    one that is `left`, for nothing. The lowest are looked for: the price of rank k's group, `above[k] + own[k]`, is what the
    ranks that lead to it by `before` gain if each takes the next one's group. They do so if the last loses less with the best
    group left, or if they are a circle. `table` is that of `_fill_values`. O(rows groups + rows^2) a sweep.
    """
    rows, begun, turn = column.shape[0], False, 0
    above, own, spare, before = reals[0, :rows], reals[1, :rows], reals[2, :rows], before[:rows]
    _find_spare(left, spare, table)
    for _ in range(rows + _MORE_SWEEPS):
        if not begun:
            _begin_sweeps(column, before, above, own, table)
            turn = 0
        begun, turn, rising = True, turn + 1, False
        for k in range(rows - 1, -1, -1):
            circled = -1
            if above[k] + spare[k] > 0.0:
                circled = _find_circle(before, k)
                if circled == -1:
                    place = _best_left(k, rows, left, table)
                    left[place] = _shift(column, before, k, -1, left[place])
                    _find_spare(left, spare, table)
                    begun = False
                    break
            else:
                wanted = table[column[k] * rows : (column[k] + 1) * rows]
                asked = _highest(wanted, above)
                # The second is False where rounding alone raises it.
                if asked > above[k] + own[k] and asked - own[k] > above[k]:
                    if asked > PRECISE * most:
                        return False
                    above[k], before[k], rising = asked - own[k], _find(asked, wanted, above), True
                    circled = _find_circle(before, k) if turn > _FEW_SWEEPS else -1
            if circled != -1:
                _shift(column, before, before[circled], circled, column[circled])
                begun = False
                break
        if begun and not rising:
            return True
    return False


@compile_part
def _move_up(column, i, table):
    """Exchange the group of rank i with that of the rank before it, and so on, as long as that is better."""
    rows, its = column.shape[0], column[i]
    own = table[unsigned(its * rows + i)]
    while i > 0:
        other = column[i - 1]
        above = table[unsigned(its * rows + i - 1)]
        now, then = own + table[unsigned(other * rows + i - 1)], above + table[unsigned(other * rows + i)]
        if not then > now:
            break
        column[i] = other
        i, own = i - 1, above
    column[i] = its


@compile_part
def _assign_by_exchanges(problem, lead, column, before, left, reals, table):
    """`assign` by exchanges, from the best group left for one rank after another; returns False where that fails."""
    rows, count = column.shape[0], left.shape[0]
    _fill_values(problem, lead, rows, table)
    for g in range(count):
        left[g] = g
    for i in range(rows):
        place = _best_left(i, rows, left[:count], table)
        count -= 1
        column[i], left[place] = left[place], left[count]
        _move_up(column, i, table)
    most = problem.a[0] * (problem.highest if lead == -1 else 1.0)
    return _exchange(column, left[:count], most, before, reals, table)


@compile_part
def _assign_by_paths(problem, lead, column, scratch, reals, table):
    """`assign` by shortest augmenting paths.

    Invariant after each row: the rows so far are matched, row_price + price >= value everywhere with equality where matched,
    and the price of a column is >= 0, and 0 where it is free. Columns are kept in the order in which they are first matched: of
    the free ones only the nearest counts. Minus infinity forbids; some choice must be allowed.
    """
    matched, owner, before, done, kept = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    row_price, price, distance = reals[0], reals[1], reals[2]
    rows, groups, taken = column.shape[0], problem.groups, reals[3, : problem.groups]
    places = min(table.shape[0] // groups, rows)
    kept[:places] = -1
    taken[:] = 0.0
    for row in range(rows):
        for k in range(row):
            distance[k], before[k], done[k] = np.inf, -1, 0  # before: so that the walk back ends whatever the values
        row_price[row], price[row] = 0.0, 0.0
        current, at, length = row, -1, 0.0
        matched[row], before[row], free = 0, -1, np.inf
        while True:  # until a free column is the nearest
            place = current % places
            value = table[place * groups : (place + 1) * groups]
            _fill_row(problem, lead, current, kept[place:], value)
            base, highest = length + row_price[current], _highest(value, taken)
            if base - highest < free:
                free, before[row], matched[row] = base - highest, at, _find(highest, value, taken)
            nearest = -1
            for k in range(row):
                if done[k]:
                    continue
                reach = base + price[k] - value[unsigned(matched[k])]
                if reach < distance[k]:
                    distance[k], before[k] = reach, at
                if nearest == -1 or distance[k] < distance[nearest]:
                    nearest = k
            if nearest == -1 or free <= distance[nearest]:
                break
            at, length = nearest, distance[nearest]
            done[at], current = 1, owner[at]
        row_price[row] -= free
        for k in range(row):
            if done[k]:
                price[k] += free - distance[k]
                row_price[owner[k]] -= free - distance[k]
        taken[matched[row]], at = -np.inf, row
        while before[at] != -1:
            owner[at] = owner[before[at]]
            at = before[at]
        owner[at] = row
    for k in range(rows):
        column[owner[k]] = matched[k]


@compile_part
def assign(problem, lead, column, scratch, reals, table):
    """Fill `column` [rows] with a different group for each rank, so that the sum of values is largest.

    For rows <= groups, and for reciprocal rank if `lead` irrelevant documents lead, some choice being allowed; else `lead` is -1.
    `scratch` [5, groups], `reals` [4, groups]; `table` [>= groups] keeps as many rows of values as it has room for.
    About O(rows groups) and a sweep of O(rows^2) for every few ranks, at worst O(rows^2 groups), or without room rows^2 / 2 rows
    of values.
    """
    before, left = scratch[0], scratch[1, : problem.groups]
    if column.shape[0] * problem.groups <= table.shape[0] and _assign_by_exchanges(
        problem, lead, column, before, left, reals, table
    ):
        return
    _assign_by_paths(problem, lead, column, scratch, reals, table)
