"""Most violated diverse rankings on the CPU: at most one document of a group among the first k ranks.

With G groups, m = min(k, G) documents are shown, at the ranks 1 to m; all others have no discount and no decay. The most
violated ranking is an assignment of the m ranks to groups, where rank i gets from a group the document with the largest
c_i s - a_i b. Reciprocal rank is no sum over ranks: there is an assignment for each number of irrelevant documents that lead.
Scores are taken relative to the list's highest: every diverse ranking has the same sum of coefficients.
"""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.compilation import compile_kernel, unsigned
from rankstruct.kernels.positional_cpu import IDEAL, IDEAL_TIED, WIDEST, break_ties
from rankstruct.kernels.sorting import longest_list, sort_descending, sort_space


@compile_kernel
def assign(value, column):
    """Fill `column` [rows] with a different column for each row, so that the sum of `value` [rows, columns] is largest.

    Shortest augmenting paths, for rows <= columns. Invariant after each row: the rows so far are matched, row_price +
    column_price >= value everywhere with equality where matched, and column_price is >= 0, and 0 for free columns.
    O(rows^2 columns). A value of minus infinity forbids; some choice must be allowed.
    """
    rows, columns = value.shape
    row_price, column_price = np.zeros(rows), np.zeros(columns)
    owner = np.full(columns, -1)
    distance, before, done = np.empty(columns), np.empty(columns, np.int64), np.empty(columns, np.bool_)
    for row in range(rows):
        distance[:] = np.inf
        before[:] = -1  # also of columns out of reach, so that the walk back ends whatever the values
        done[:] = False
        current, at, length = row, -1, 0.0
        while current != -1:  # until a free column is the nearest
            nearest = -1
            for j in range(columns):
                if done[j]:
                    continue
                reach = length + row_price[current] + column_price[j] - value[current, j]
                if reach < distance[j]:
                    distance[j], before[j] = reach, at
                if nearest == -1 or distance[j] < distance[nearest]:
                    nearest = j
            at, length = nearest, distance[nearest]
            done[at] = True
            current = owner[at]
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


@compile_kernel
def _keep_first(order, start, group, most, seen, shown):
    """Walk down `order` and fill `shown` with the first document of each group, until `most` are kept. O(n)."""
    seen[:] = False
    count = 0
    for at in order:
        if count == most:
            break
        if not seen[group[at - start]]:
            seen[group[at - start]] = True
            shown[count] = at
            count += 1


@compile_kernel
def _lead_with_relevant(by_chosen, batch, start, group, seen, heads, result):
    """Fill `result` with the ranking that F prefers, by the chosen scores, of those that begin with a relevant document.

    `heads` are the first documents shown by these scores. The relevant document need not be the highest-scored one, since it
    hides the others of its group. O(n + m G).
    """
    chosen, c = batch.chosen, batch.decay
    m, top = heads.shape[0], chosen[by_chosen[0]]
    best, lead = -np.inf, -1
    seen[:] = False
    for at in by_chosen:
        if batch.gains[at] <= 0.0 or seen[group[at - start]]:
            continue
        seen[group[at - start]] = True
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


@compile_kernel
def _assign_reciprocal(batch, by_group, start, group, groups, top, shown):
    """Fill `shown` with the most violated ranking of reciprocal rank: the best over how many irrelevant documents lead.

    With `lead` of them, the next rank is charged as if a relevant document stood there, and any may: where it is an irrelevant
    one, the ranking was charged too much, and is charged less when one more of them leads. Some assignment is allowed if
    `lead` groups have an irrelevant document. O(n + m^3 G).
    """
    scores, c, a = batch.scores, batch.decay, batch.weights
    m = shown.shape[0]
    best = np.full((2, groups), -1)  # the highest-scored document of each group: irrelevant, any
    for at in by_group:
        g = group[at - start]
        for kind in range(2):
            if (kind or batch.gains[at] <= 0.0) and (best[kind, g] == -1 or scores[at] > scores[best[kind, g]]):
                best[kind, g] = at
    irrelevant = 0
    for g in range(groups):
        irrelevant += best[0, g] != -1
    table, column = np.empty((m, groups)), np.empty(m, np.int64)
    largest = -np.inf
    for lead in range(min(m, irrelevant) + 1):
        for i in range(m):
            kind = 0 if i < lead else 1
            for g in range(groups):
                at = best[kind, g]
                table[i, g] = -np.inf if at == -1 else c[i] * (scores[at] - top)
        assign(table, column)
        total = -a[lead] if lead < m else 0.0
        for i in range(m):
            total += table[i, column[i]]
        if total > largest:
            largest = total
            for i in range(m):
                shown[i] = best[0 if i < lead else 1, column[i]]


@compile_kernel
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


@compile_kernel
def diverse_lists(batch, first, last, reference, task_loss, value, direction):
    """Task loss, hinge and direction of the most violated diverse ranking of each list; 0 where none can be wrong.

    O(n m + m^2 G) a list after its sorts, for reciprocal rank O(n + m^3 G). Returns -1, or the position of a score
    that is not finite or too far below the highest, or of a gain below 0.
    """
    scores, gains, where, offsets = batch.scores, batch.gains, batch.where, batch.offsets
    c, a = batch.decay, batch.weights
    gain_bits, chosen_bits = gains.view(np.uint64), batch.chosen.view(np.uint64)
    longest = longest_list(offsets, first, last)
    space = sort_space(gain_bits, longest)
    sorted_by = np.empty((4, longest), np.int64)
    group, begins, pointer = np.empty(longest, np.int64), np.empty(longest, np.int64), np.empty(longest, np.int64)
    seen = np.empty(longest, np.bool_)
    for index in range(first, last):
        start, stop = offsets[index], offsets[index + 1]
        task_loss[index], value[index] = 0.0, 0.0
        direction[start:stop] = 0.0
        n, order = sort_descending(gain_bits, where, start, stop, space)
        by_gain, by_group = sorted_by[0, :n], sorted_by[1, :n]
        by_gain[:] = order[:n]
        top = -np.inf
        for at in by_gain:
            if not np.isfinite(scores[at]) or not gains[at] >= 0.0:
                return at
            top = max(top, scores[at])
        for at in by_gain:
            if not scores[at] - top >= -WIDEST:
                return at
        if n < 2 or gains[by_gain[0]] == gains[by_gain[n - 1]]:
            continue

        _, order = sort_descending(batch.groups, where, start, stop, space)
        by_group[:] = order[:n]
        groups, alike = 0, True
        for i in range(n):
            at = by_group[i]
            if i == 0 or batch.groups[at] != batch.groups[by_group[i - 1]]:
                groups += 1
            elif gains[at] != gains[by_group[i - 1]]:
                alike = False
            group[at - start] = groups - 1
        m = min(batch.cutoff, groups)
        if batch.least_cutoff:
            highest = 0
            seen[:groups] = False
            for at in by_gain:
                if gains[at] == gains[by_gain[0]] and not seen[group[at - start]]:
                    seen[group[at - start]] = True
                    highest += 1
            m = min(m, max(highest + 1, batch.least_cutoff))
        ideal, shown = np.empty(m, np.int64), np.empty(m, np.int64)
        _keep_first(by_gain, start, group, m, seen[:groups], ideal)
        best = 0.0
        for i in range(m):
            best += a[i] * gains[ideal[i]]
        if batch.reciprocal and best > 0.0:
            best = 1.0
        if best <= 0.0 or (m == groups and alike and a[0] == a[m - 1]):
            continue
        unit = 1.0 / best if batch.normalized else 1.0

        if batch.reciprocal:
            _assign_reciprocal(batch, by_group, start, group, groups, top, shown)
        else:
            table, who = np.full((m, groups), -np.inf), np.empty((m, groups), np.int64)
            for i in range(m):
                for at in by_group:
                    g = group[at - start]
                    worth = c[i] * (scores[at] - top) - a[i] * gains[at] * unit
                    if worth > table[i, g]:
                        table[i, g], who[i, g] = worth, at
            assign(table, shown)
            for i in range(m):
                shown[i] = who[i, shown[i]]

        chosen = ideal
        if reference != IDEAL:
            by_chosen, by_both = sorted_by[2, :n], sorted_by[3, :n]
            _, order = sort_descending(chosen_bits, where, start, stop, space)
            break_ties(order[:n], batch.chosen[start:stop], by_gain, start, begins, pointer, by_chosen)
            if reference == IDEAL_TIED and batch.reciprocal:
                heads = np.empty(m, np.int64)
                _keep_first(by_chosen, start, group, m, seen[:groups], heads)
                _lead_with_relevant(by_chosen, batch, start, group, seen[:groups], heads, chosen)
            elif reference == IDEAL_TIED:
                break_ties(by_gain, gains[start:stop], by_chosen, start, begins, pointer, by_both)
                _keep_first(by_both, start, group, m, seen[:groups], chosen)
                reorder_blocks(by_chosen, start, a, begins[: stop - start], pointer, chosen)
            else:
                _keep_first(by_chosen, start, group, m, seen[:groups], chosen)

        found, difference = 0.0, 0.0
        for i in range(m):
            if not batch.reciprocal:
                found += a[i] * gains[shown[i]]
            elif found == 0.0 and gains[shown[i]] > 0.0:
                found = a[i]
            difference += c[i] * (scores[shown[i]] - scores[chosen[i]])
            direction[shown[i]] += c[i]
            direction[chosen[i]] -= c[i]
        task_loss[index] = max(best - found, 0.0) * unit
        value[index] = max(task_loss[index] + difference, 0.0)
    return -1
