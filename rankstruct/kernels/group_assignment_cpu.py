"""Ranks assigned to groups of documents, each rank to a different one, so that the sum of their values is largest; on the CPU.

Rank i gets from a group its document with the largest c_i s - a_i b, which a diverse ranking shows there. There are at least as
many groups as ranks. A few ranks take the best group that is left, one after another, which is nearly always best of all, or is
after an exchange or two; otherwise by shortest augmenting paths.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rankstruct.kernels.compilation import compile_part, compile_vectorised, unsigned

_MOST_EXCHANGED, _MOST_EXCHANGES = 16, 4  # ranks, rounds; of more, paths are sooner found
_PRECISE = 2.0**20  # numbers so many times as large still tell 1e-10 of a loss
_MOST_NUMBERS = 2**26  # of the table: half a gigabyte


class Problem(NamedTuple):
    """Whom the ranks of a list may show.

    Attributes:
        candidates: int64 `[candidates]`, documents, of each group by ascending gain and score.
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

    `kept[0]` is the rank of which the row is, if not for reciprocal rank: it may hold this already.
    """
    if lead != -1:
        for g in range(problem.groups):
            row[g] = value_of_score(problem, lead, i, g)
        return
    if kept[0] == i:
        return
    kept[0] = i
    for g in range(problem.groups):
        row[g] = -np.inf
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


@compile_part
def _give_best_left(problem, lead, column, kept, taken, table):
    """Give each rank the best of the groups that are left; returns False where none of them has a document for it."""
    taken[:] = 0.0
    for i in range(column.shape[0]):
        _fill_row(problem, lead, i, kept[i:], table[i])
        highest = _highest(table[i], taken)
        if highest == -np.inf:
            return False
        column[i] = _find(highest, table[i], taken)
        taken[column[i]] = -np.inf
    return True


@compile_part
def _shift(column, before, at, last, its):
    """Give the group `its` to the rank `at`, what that had to the one before it, and so on to `last`; returns what `last` had."""
    while at != -1:
        column[at], its, done = its, column[at], at == last
        at = -1 if done else before[at]
    return its


@compile_part
def _exchange(column, before, price, own, spare, taken, table, most):
    """Look for a better assignment; returns 0 if there is none, 1 if `column` and `taken` now are a better one, -1 if rounding
    may hide it: a price is above `most`, or they rise for ever.

    There is none if there are prices for the groups given, not below 0, at which no rank would rather have another group, nor
    one that is not given, for nothing. The lowest are looked for: `price[k]` is what the ranks that lead to it by `before` gain
    if each takes the next one's group. They do so if the last loses less with the best group not given, or if they are a circle.
    O(rows groups + rows^2) or a little more, at worst O(rows^4).
    """
    rows = column.shape[0]
    for i in range(rows):
        own[i], price[i], before[i] = table[i, column[i]], 0.0, -1
        spare[i] = _highest(table[i], taken)
    for _ in range(rows + 1):
        rising = False
        for i in range(rows - 1, -1, -1):
            if price[i] > own[i] - spare[i]:
                its = _find(spare[i], table[i], taken)
                taken[its] = -np.inf
                taken[_shift(column, before, i, -1, its)] = 0.0
                return 1
            for k in range(rows):
                asked = price[i] - own[i] + table[i, column[k]]
                if asked > price[k] and k != i:
                    if asked > most:
                        return -1
                    j = i
                    while j != -1 and j != k:
                        j = before[j]
                    if j == k:
                        _shift(column, before, i, k, column[k])
                        return 1
                    price[k], before[k], rising = asked, i, True
        if not rising:
            return 0
    return -1


@compile_part
def _assign_by_paths(problem, lead, column, scratch, reals, taken, table):
    """`assign` by shortest augmenting paths.

    Invariant after each row: the rows so far are matched, row_price + price >= value everywhere with equality where matched,
    and the price of a column is >= 0, and 0 where it is free. Columns are kept in the order in which they are first matched: of
    the free ones only the nearest counts.
    """
    matched, owner, before, done, kept = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    row_price, price, distance = reals[0], reals[1], reals[2]
    rows, places = column.shape[0], min(table.shape[0], column.shape[0])
    taken[:] = 0.0
    for row in range(rows):
        for k in range(row):
            distance[k], before[k], done[k] = np.inf, -1, 0  # before: so that the walk back ends whatever the values
        row_price[row], price[row] = 0.0, 0.0
        current, at, length = row, -1, 0.0
        matched[row], before[row], free = 0, -1, np.inf
        while True:  # until a free column is the nearest
            place = current % places
            value = table[place]
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

    For rows <= groups. Minus infinity forbids; some choice must be allowed. `scratch` [5, groups], `reals` [4, groups]; `table`
    [>= 1, groups] keeps rows of values, and `scratch[4]`, -1 at first, which. About O(rows groups + rows^2) for a few ranks, at
    worst O(rows^2 groups) and rows^2 / 2 rows of values.
    """
    rows, taken = column.shape[0], reals[3, : problem.groups]
    if rows <= min(_MOST_EXCHANGED, table.shape[0]) and _give_best_left(
        problem, lead, column, scratch[4], taken, table
    ):
        charge = problem.a[0]  # what a document costs at most
        if lead == -1:
            charge *= problem.highest
        better, rounds = 1, 0
        while better == 1 and rounds < _MOST_EXCHANGES:
            better = _exchange(column, scratch[0], reals[0], reals[1], reals[2], taken, table, _PRECISE * charge)
            rounds += 1
        if better == 0:
            return
    _assign_by_paths(problem, lead, column, scratch, reals, taken, table)
