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

from rankstruct.kernels.compilation import compile_kernel, compile_part, compile_vectorised, unsigned
from rankstruct.kernels.group_assignment_cpu import PRECISE, Problem, assign, value_of_score, worth
from rankstruct.kernels.positional_cpu import IDEAL, IDEAL_TIED, PREDICTED, WIDEST, number_gains, partition
from rankstruct.kernels.sorting import copy_into, longest_list, sort_space

INTEGERS, REALS = 14, 10  # rows of scratch
# By which the halves of a group's number are multiplied, so that its hash has bits of all: odd, from the golden ratio and e.
_SPREAD, _SPREAD_HIGH = np.uint64(0x9E3779B9), np.uint64(0xB7E15163)
_COUNTED = 8  # groups a rank; of more it is faster to keep the first ranks sorted
_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)


class Space(NamedTuple):
    """Scratch for one list after another; every row is at least as long as the list.

    Attributes:
        integers: int64 `[INTEGERS, documents]`.
        reals: float64 `[REALS, documents]`.
        table: float64 `[rows x documents]`, of the ranks' values; see `kept_rows`.
        sort: for `number_gains`.
    """

    integers: Any
    reals: Any
    table: Any
    sort: Any


@compile_part
def problem_of(batch, by_group, ends, top, highest_gain, unit, candidates, group, reals):
    """The documents that may be the best of their group at some rank: no other of it has no lower score and no higher gain.

    `candidates`, `group` [documents] and the first two rows of `reals` [4, documents] are filled. O(n).
    """
    score, gain, count, begin = reals[0], reals[1], np.int64(0), 0
    for g in range(ends.shape[0]):
        highest, last = -np.inf, -1.0
        for i in range(ends[g] - 1, begin - 1, -1):
            at = by_group[i]
            its_score, its_gain = batch.scores[unsigned(at)], batch.gains[unsigned(at)]
            # Without a branch, which a processor would guess wrong for every other document; the next one takes its place if
            # it is no candidate.
            better = np.int64(its_score > highest)
            count += better * np.int64(its_gain > last)
            place = unsigned(count - better)
            candidates[place], group[place] = at, g
            score[place], gain[place] = its_score - top, its_gain / unit
            highest = max(its_score, highest)
            last = its_gain if better else last
        begin = ends[g]
    known = candidates[:count], group[:count], score[:count], gain[:count]
    groups = ends.shape[0]
    return Problem(*known, batch.decay, batch.weights, groups, highest_gain / unit, reals[2:4, :groups])


@compile_part
def _find_top_scores(problem):
    """Fill `top_score` with the highest score of each group and of its irrelevant documents; returns how many have one."""
    top, irrelevant = problem.top_score, 0
    for g in range(problem.groups):
        top[0, g] = top[1, g] = -np.inf
    for j in range(problem.group.shape[0]):  # of a group by ascending score, the first alone may be irrelevant
        its = unsigned(problem.group[j])
        top[0, its] = problem.score[j]
        if problem.gain[j] <= 0.0:
            top[1, its] = problem.score[j]
            irrelevant += 1
    return irrelevant


@compile_vectorised
def _count_higher(score, its):
    """How many scores are higher."""
    count = 0.0
    for j in range(score.shape[0]):
        count += 1.0 if score[j] > its else 0.0
    return count


@compile_part
def _show_all_distinct(documents, score, shown):
    """`_show_highest` by counting, for each document, those of a higher `score`; returns False, with nothing to be relied on, if
    two are equal. O(documents^2), some of them at a time.
    """
    n, m, total = documents.shape[0], shown.shape[0], np.int64(0)
    for i in range(n):
        rank = np.int64(_count_higher(score, score[i]))
        total += rank
        place = unsigned(min(rank, m - 1))  # without a branch, which a processor would often guess wrong
        shown[place] = documents[i] if rank < m else shown[place]
    return 2 * total == n * (n - 1)


@compile_part
def _insert_highest(names, score, order):
    """Fill `order` with those of the highest scores, one after another, of equal ones the first. O(names rows)."""
    rows, count = order.shape[0], 0
    for j in range(names.shape[0]):
        its = score[unsigned(j)]
        i = count
        while i > 0 and score[unsigned(order[i - 1])] < its:
            if i < rows:
                order[i] = order[i - 1]
            i -= 1
        if i < rows:
            order[i] = j
            count = min(count + 1, rows)
    for i in range(rows):
        order[i] = names[unsigned(order[i])]


@compile_part
def _find_lowest(problem, never, m, names, order, score):
    """The m-th highest score of the groups whose highest document is irrelevant, or, `never`, that have no irrelevant one."""
    top, count = problem.top_score, np.int64(0)
    for g in range(problem.groups):
        names[unsigned(count)], score[unsigned(count)] = g, top[0, g]
        count += np.int64(top[1, g] == (-np.inf if never else top[0, g]))
    if count <= m:
        return -WIDEST
    _insert_highest(names[:count], score, order[:m])
    return top[0, order[m - 1]]


@compile_part
def _order_groups(names, score, rows, order):
    """Fill `order` with at least so many groups of the highest scores; fast where `rows` are no small part of them."""
    count = names.shape[0]
    if count > _COUNTED * rows or not _show_all_distinct(names, score, order[:count]):
        _insert_highest(names, score, order[: rows if count > _COUNTED * rows else count])


@compile_part
def _split_groups(problem, m, names, order, plain, others, score):
    """Fill `plain` with the groups whose highest document is irrelevant, by descending score, and `others` with the others, both
    without some that no best ranking needs; returns how many either are. `names` and `order` are filled.
    """
    top, count, more = problem.top_score, np.int64(0), np.int64(0)
    total, lowest, its_lowest = np.int64(0), -WIDEST, -WIDEST
    if problem.groups > _COUNTED * m:
        lowest = _find_lowest(problem, False, m, names, order, score)
        its_lowest = max(lowest, _find_lowest(problem, True, m, names, order, score))
    for g in range(problem.groups):
        names[unsigned(total)], score[unsigned(total)] = g, top[0, g]
        total += np.int64(top[0, g] >= (its_lowest if top[1, g] == -np.inf else lowest))
    _order_groups(names[:total], score[:total], total, order)
    for g in order[:total]:
        plain[unsigned(count)], others[unsigned(more)] = g, g
        irrelevant = np.int64(top[0, unsigned(g)] == top[1, unsigned(g)])
        count, more = count + irrelevant, more + 1 - irrelevant
    return count, more


@compile_part
def _lead_with_all(top, others, names, order, score, column):
    """Fill `column` with the highest irrelevant documents, and if too few groups have one, with the highest of the others."""
    count, m = np.int64(0), column.shape[0]
    for g in range(top.shape[1]):
        names[unsigned(count)], score[unsigned(count)] = g, top[1, g]
        count += np.int64(top[1, g] > -np.inf)
    lead = min(count, m)
    _order_groups(names[:count], score[:count], lead, order)
    copy_into(order[:lead], column[:lead])
    for g in others:
        if lead < m and top[1, g] == -np.inf:
            column[lead] = g
            lead += 1


@compile_part
def _merge(top, lead, joined, plain, others, column):
    """Fill `column` with the best ranking where `lead` of the groups `plain` lead, or one less and of the others `joined`."""
    left = 0 if joined == -1 else 1  # to join
    p = q = 0
    for i in range(column.shape[0]):
        if i < lead:
            joins = left == 1 and (p == lead - 1 or top[1, joined] > top[0, plain[p]])
            if joins:
                column[i], left = joined, 0
            else:
                column[i], p = plain[p], p + 1
            continue
        if q < others.shape[0] and others[q] == joined:
            q += 1
        other = q < others.shape[0] and (p == plain.shape[0] or top[0, others[q]] > top[0, plain[p]])
        if other:
            column[i], q = others[q], q + 1
        else:
            column[i], p = plain[p], p + 1


@compile_part
def _look_for_joining(c, m, lead, count, score, irrelevant, gained, last, before):
    """What the best of some groups gains by leading, at least 0, which that is, or -1, the sum of all gains above 0, and what the
    first is worth as a follower.

    As `_bound_leads` says: `gained` is what each is worth as a leader, for one less up to now, where `before` was the last score.
    """
    follows, below, best, joins, total = 0.0, last, 0.0, -1, 0.0
    for at in range(count):
        which, j = count - 1 - at, unsigned(count - 1 - at)
        follows += (c[unsigned(lead + which)] if lead + which < m else 0.0) * (score[j] - below)
        below, its = score[j], irrelevant[j]
        gained[j] = (gained[j] if its > before else 0.0) + c[unsigned(lead - 1)] * (min(its, before) - last)
        more = gained[j] - follows
        total += max(more, 0.0)
        joins = which if more > best else joins
        best = max(best, more)
    return best, joins, total, follows


@compile_part
def _bound_leads(problem, m, plain, others, bound, reals):
    """The best of the rankings of `_merge` for 0 to `bound.shape[0] - 2` leaders: how many lead, which of the others has joined,
    or -1, and its value. `bound` is filled with what no ranking of so many leaders exceeds before it is charged.

    A group of `plain` is worth the same on either side of the last leader, so that these stand by score throughout, and the best
    ranking with none of the others among the leaders is known. Prices show what it lacks. With t the last leader's score, a
    leader of score s is worth the integral from t to s of the decay of the next leader above, and a follower that of the next
    follower below; what a group gains by leading is the difference. For one group that is had, and for several no more than the
    sum; only those above t can gain. Values are those above the best ranking without leaders: one leader more takes its rank from
    the first of the others, which all move down. The others come by descending score. O(leaders others). `reals` [3, documents]
    are filled.
    """
    top, c, a, count, lead, joined, above = problem.top_score, problem.c, problem.a, others.shape[0], 0, -1, 0
    score, irrelevant, gained = reals[0, :count], reals[1, :count], reals[2, :count]
    for j in range(count):
        score[j], irrelevant[j], gained[j] = top[0, others[j]], max(top[1, others[j]], -WIDEST), 0.0
    end = min(plain.shape[0], bound.shape[0] - 2)
    while lead < end and (count == 0 or top[0, plain[lead]] >= score[0]):  # these lead anyway
        lead += 1
        bound[lead] = 0.0
    total, most, before, largest, n = 0.0, 0.0, np.inf, -a[lead], lead + 1
    while n <= end and most > largest:
        last = top[0, plain[n - 1]]
        if last < -PRECISE * a[0]:  # sums that rounding may have changed
            break
        while above < count and score[above] > last:
            above += 1
        best, which, room, follows = _look_for_joining(c, m, n, above, score, irrelevant, gained, last, before)
        total += follows - c[n - 1] * (score[0] - last)
        before, most = last, min(most, total + room)
        bound[n] = most
        if total + best - a[n] > largest:
            largest, lead, joined = total + best - a[n], n, others[which] if which != -1 else -1
        n += 1
    bound[n:] = most
    return lead, joined, largest


@compile_part
def _sum_above(problem, lead, column, base):
    """The value of a ranking of which `lead` irrelevant documents lead, less `base` rank by rank."""
    total = 0.0
    for i in range(column.shape[0]):
        total += value_of_score(problem, lead, i, column[i]) - base[i]
    return total


@compile_part
def _assign_reciprocal(problem, m, scratch, reals, table):
    """The most violated ranking of reciprocal rank: the best over how many irrelevant documents lead; returns how many.

    With `lead` of them, the next rank is charged as if a relevant document stood there, and any may: where it is an irrelevant
    one, the ranking was charged too much, and is charged less when one more of them leads. Some assignment is allowed if
    `lead` groups have an irrelevant document. The more of them lead, the fewer rankings are allowed, so that the sum for fewer
    bounds that for more: of all but the rankings of `_merge` few promise anything. As many as can be are solved first, where the
    highest groups are the best.
    Sums are compared with that of none, rank by rank, in which far lower scores that all rankings show cancel. The groups come
    to `scratch[0]`. `scratch` [7, groups], `reals` [6, groups]. O(n + m G), or for each that is solved O(m^2 G) more.
    """
    top, a, last = problem.top_score, problem.a, min(m, _find_top_scores(problem))
    chosen, found, base, bound = scratch[0, :m], scratch[1, :m], reals[0], reals[1]
    count, more = _split_groups(problem, m, scratch[2], scratch[3], scratch[4], scratch[5], reals[2])
    plain, others = scratch[4, :count], scratch[5, :more]
    _merge(top, 0, -1, plain, others, chosen)
    for i in range(m):
        base[i] = value_of_score(problem, 0, i, chosen[i])
    best, joined, largest = _bound_leads(problem, m, plain, others, bound[: last + 1], reals[2:])
    if best:
        _merge(top, best, joined, plain, others, chosen)
    most = 0.0
    for step in range(last):
        lead = step if step else last
        charge = a[lead] if lead < m else 0.0
        if min(most, bound[lead]) - charge <= largest:
            continue
        if lead == last:
            _lead_with_all(top, others, scratch[2], scratch[3], reals[2], found)
        else:
            assign(problem, lead, found, scratch[2:], reals[2:], table)
        total = _sum_above(problem, lead, found, base)
        most = total if lead < last else most
        if total - charge > largest:
            largest, best = total - charge, lead
            copy_into(found, chosen)
    return best


@compile_part
def _show_most_violated(batch, problem, shown, scratch, reals, table):
    """Fill `shown` with the documents of the best assignment of ranks to groups. O(n) after it. `scratch` [7, groups]."""
    m, lead, column = shown.shape[0], -1, scratch[0]
    if batch.reciprocal:
        lead = _assign_reciprocal(problem, m, scratch, reals, table)
    else:
        assign(problem, -1, column[:m], scratch[2:], reals, table)
    rank, best = scratch[1], reals[0]
    for g in range(problem.groups):
        rank[g] = -1
    for i in range(m):
        rank[column[i]], best[i], shown[i] = i, -np.inf, problem.candidates[0]
    for j in range(problem.group.shape[0]):
        i = rank[unsigned(problem.group[j])]
        if i != -1:
            found = worth(problem, lead, i, j)
            if found > best[i]:
                best[i], shown[i] = found, problem.candidates[j]


@compile_part
def _show_highest(batch, documents, score, shown):
    """Fill `shown`, or its begin, with the documents of the highest chosen scores, of equal ones those of the highest gains.

    `score` float64 has the chosen scores of `documents`.
    """
    gains, chosen, n, m, count = batch.gains, batch.chosen, documents.shape[0], shown.shape[0], 0
    if n <= _COUNTED * m and _show_all_distinct(documents, score, shown):
        return
    for at in documents:
        score, gain = chosen[unsigned(at)], gains[unsigned(at)]
        i = count
        while i > 0:
            its = unsigned(shown[i - 1])
            if chosen[its] > score or (chosen[its] == score and gains[its] >= gain):
                break
            if i < m:
                shown[i] = shown[i - 1]
            i -= 1
        if i < m:
            shown[i] = at
            count = min(count + 1, m)


@compile_part
def _find_others(batch, by_group, ends, slot, count, found, score):
    """`_show_ideal` for the lowest gain, which all documents of the groups without a slot have; returns how many have one now."""
    begin = 0
    for g in range(ends.shape[0]):
        end = ends[g]
        if slot[g] == -1:
            found[count], score[count] = _highest_of(batch.chosen, by_group, begin, end)
            slot[g] = count
            count += 1
        begin = end
    return count


@compile_part
def _highest_of(chosen, documents, begin, end):
    """The first of some documents with the highest chosen score, and that score."""
    at = documents[begin]
    highest = chosen[unsigned(at)]
    for i in range(begin + 1, end):
        its = documents[i]
        score = chosen[unsigned(its)]
        at = its if score > highest else at
        highest = max(highest, score)
    return at, highest


@compile_part
def _show_ideal(batch, start, by_group, ends, by_gain, group, tied, slot, found, score, shown):
    """Fill `shown` with the documents that come first by gain, one of a group, and then as in the list or, `tied`, by the chosen
    scores. `slot`, `found` and `score` [groups] are filled. O(n + m G), mostly less.
    """
    gains, chosen, n, m = batch.gains, batch.chosen, by_gain.shape[0], shown.shape[0]
    slot[:] = -1
    behind = count = i = np.int64(0)
    while behind < m:
        gain = gains[unsigned(by_gain[i])]
        if tied and gain == gains[unsigned(by_gain[n - 1])]:
            count, i = _find_others(batch, by_group, ends, slot, count, found, score), n
        while i < n and gains[unsigned(by_gain[i])] == gain and (tied or count < m):
            at = by_gain[i]
            g, its = unsigned(group[unsigned(at - start)]), chosen[unsigned(at)]
            # Without a branch, which a processor would guess wrong for every other document.
            new = slot[g] == -1
            slot[g] = count if new else slot[g]
            place = unsigned(slot[g])
            count += np.int64(new)
            better = new | (tied & (its > score[place]))  # of groups that are shown already nothing is read again
            found[place], score[place] = at if better else found[place], its if better else score[place]
            i += 1
        if tied:
            _show_highest(batch, found[behind:count], score[behind:count], shown[behind:])
        else:
            for j in range(behind, count):
                shown[j] = found[j]
        behind = count


@compile_part
def _raise_to_highest(batch, start, group, documents, found, score):
    """Raise `found`, -1 where there is none, and `score` of each group to the first of some documents of the highest chosen score
    where that is higher.
    """
    for at in documents:
        g, its = unsigned(group[unsigned(at - start)]), batch.chosen[unsigned(at)]
        better = (its > score[g]) | (found[g] == -1)
        found[g], score[g] = at if better else found[g], its if better else score[g]


@compile_part
def _show_predicted(batch, start, group, by_gain, relevant, leaders, found, score, shown):
    """Fill `shown` with the documents that come first by the chosen scores, one of a group, and `found`, `score` [groups].

    `leaders` [groups] are filled with the highest of the first `relevant` documents, -1 where there is none.
    """
    score[:] = -np.inf
    found[:] = -1
    _raise_to_highest(batch, start, group, by_gain[:relevant], found, score)
    copy_into(found, leaders)
    _raise_to_highest(batch, start, group, by_gain[relevant:], found, score)
    _show_highest(batch, found, score, shown)


@compile_part
def _lead_with_relevant(batch, start, group, leaders, heads, result):
    """Fill `result` with the ranking that F prefers, by the chosen scores, of those that begin with a relevant document.

    `heads` are the first documents shown by these scores, `leaders` the highest relevant document of each group, or -1: the
    highest of all need not lead, since it hides the others of its group.
    What a leader adds to F is counted from `heads`: those before the one that it hides move down by a rank. O(m^2 + G), or
    O(m G) if one after another is better.
    """
    chosen, c, m = batch.chosen, batch.decay, heads.shape[0]
    top, best, lead, moved = chosen[heads[0]], -np.inf, -1, 0.0
    for i in range(m):
        at = leaders[group[heads[i] - start]]
        if at != -1:
            total = c[0] * (chosen[at] - top) + moved
            if lead == -1 or total > best:
                best, lead = total, at
        if i + 1 < m:
            moved += c[i + 1] * (chosen[heads[i]] - chosen[heads[i + 1]])
    for at in leaders:
        if at == -1:
            continue
        total = c[0] * (chosen[at] - top) + moved
        if lead != -1 and total <= best:
            continue
        hides = False
        for head in heads:
            hides |= group[head - start] == group[at - start]
        if not hides:
            best, lead = total, at
    result[0], rank = lead, 1
    for head in heads:
        if rank < m and group[head - start] != group[lead - start]:
            result[rank] = head
            rank += 1


@compile_part
def _sort_blocks(chosen, weights, documents, score, shown):
    """Sort the documents shown at ranks of equal discount by score alone, those of one score as they are. O(m^2).

    `documents` and `score` [m] are filled.
    """
    m = shown.shape[0]
    if m > 1 and weights[0] == weights[m - 1]:
        for i in range(m):
            documents[i], score[i] = shown[i], chosen[unsigned(shown[i])]
        if _show_all_distinct(documents, score, shown):
            return
        copy_into(documents, shown)
    for i in range(1, m):
        at, j = shown[i], i
        while j > 0 and weights[j - 1] == weights[i] and chosen[shown[j - 1]] < chosen[at]:
            shown[j] = shown[j - 1]
            j -= 1
        shown[j] = at


@compile_part
def _show_reference(batch, start, group, by_group, ends, reference, scratch, spare, shown):
    """Fill `shown` with the reference, and return the best value. `scratch[2]` has the documents by descending gain; of four rows
    [documents] the others are filled, and `spare` [documents].
    """
    gains, groups, m = batch.gains, ends.shape[0], shown.shape[0]
    slot, found, score = scratch[0, :groups], scratch[1, :groups], spare[:groups]
    by_gain = scratch[2, : by_group.shape[0]]
    tied, relevant = reference == IDEAL_TIED, np.int64(0)
    if batch.reciprocal and reference != IDEAL:  # what is relevant is enough
        while relevant < by_gain.shape[0] and gains[unsigned(by_gain[relevant])] > 0.0:
            relevant += 1
        best = batch.weights[0]
    else:
        _show_ideal(batch, start, by_group, ends, by_gain, group, tied, slot, found, score, shown)
        best = batch.weights[0] * gains[shown[0]]
        for i in range(1, 1 if batch.reciprocal else m):
            best += batch.weights[i] * gains[shown[i]]
    if best <= 0.0:
        return best
    if reference == PREDICTED:
        _show_predicted(batch, start, group, by_gain, relevant, slot, found, score, shown)
    elif relevant:
        heads = scratch[3, :m]
        _show_predicted(batch, start, group, by_gain, relevant, slot, found, score, heads)
        _lead_with_relevant(batch, start, group, slot, heads, shown)
    elif tied:
        _sort_blocks(batch.chosen, batch.weights, scratch[3, :m], score[:m], shown)
    return best


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
    [documents] are filled, `scratch[2]` with the documents by descending gain.
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
    group, by_group, scratch = integers[0], integers[1, :n], integers[5:]
    groups = _sort_by_group(batch, start, stop, n, group, by_group, integers[2], scratch, reals[0], space.sort)
    if groups == 0:
        return wrong
    ends, highest_gain = integers[2, :groups], gains[scratch[2, 0]]
    m = _count_shown(batch, by_group, ends)
    if m == 0 or (m == groups and a[0] == a[m - 1] and _is_alike(gains, by_group, ends)):
        return wrong
    chosen, shown = integers[3, :m], integers[4, :m]
    best = _show_reference(batch, start, group, by_group, ends, reference, scratch, reals[0], chosen)
    if best <= 0.0:
        return wrong
    unit = best if batch.normalized else 1.0
    problem = problem_of(batch, by_group, ends, top, highest_gain, unit, scratch[0], scratch[1], reals)
    _show_most_violated(batch, problem, shown, scratch[2:], reals[4:], space.table)

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

    At worst O(n m + m^2 G) a list, for reciprocal rank O(n + m^3 G), with `rows` of `kept_rows`. Returns -1, or the
    position of a score that is not finite or too far below the highest, or of a gain below 0.
    """
    longest = longest_list(batch.offsets, first, last)
    sort = sort_space(batch.groups, longest)
    space = Space(np.empty((INTEGERS, longest), np.int64), np.empty((REALS, longest)), np.empty(rows * longest), sort)
    for index in range(first, last):
        wrong = solve_list(batch, index, reference, task_loss, value, direction, space)
        if wrong != -1:
            return wrong
    return -1
