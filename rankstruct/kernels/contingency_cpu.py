"""Most violated labellings, on the CPU; see `pairwise_cpu` for what a kernel takes, and `labelling` for the measures.

With a relevant documents among k positive ones a labelling is worth, F(a, k) = -slope(k) a - level(k) + the a highest relevant
scores + the k - a highest irrelevant ones. One more relevant document in place of an irrelevant one adds relevant[a] - slope(k) -
irrelevant[k - a - 1], which falls with a and, as slope(k) never rises, never falls with k. So the best a never falls with k, and
one walk finds all of them: O(n) after the sort.
"""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.compilation import compile_kernel, compile_part
from rankstruct.kernels.labelling import ACCURACY, BREAK_EVEN, PRECISION, SUCCESS, F
from rankstruct.kernels.pairwise_cpu import begin_list, share_directions, split_by_chosen, workspace


@compile_part
def _slope(k, p, m, parameters):
    """How much the measure of k positive documents rises with each relevant one among them."""
    kind = parameters.kind
    if kind == PRECISION:
        return 1.0 / parameters.cutoff
    if kind == F:
        square = parameters.beta * parameters.beta
        return (1.0 + square) / (k + square * p)
    if kind == ACCURACY:
        return 2.0 / (p + m)
    return 0.0 if kind == SUCCESS else 1.0 / p


@compile_part
def _measure(a, k, p, m, parameters):
    """The measure of a labelling."""
    if parameters.kind == SUCCESS:
        return 1.0 if a > 0 else 0.0
    level = np.float64(m - k) / (p + m) if parameters.kind == ACCURACY else 0.0
    return _slope(k, p, m, parameters) * a + level


@compile_part
def _walk(p, m, relevant_score, irrelevant_score, zero, first, last, least, weighed, parameters):
    """The best a and k, k from `first` to `last` and a >= `least`, of scores less `zero`; `weighed` by the measure or not.

    Among equals the relevant document comes first where the measure does not weigh.
    """
    a = max(np.int64(0), first - m, least)
    b = first - a
    total = 0.0
    for i in range(a):
        total += relevant_score[i] - zero
    for j in range(b):
        total += irrelevant_score[j] - zero
    best, best_a, best_k = -np.inf, a, first
    for k in range(first, last + 1):
        if k > first:
            if b < m:
                total += irrelevant_score[b] - zero
                b += 1
            else:
                total += relevant_score[a] - zero
                a += 1
        slope = _slope(k, p, m, parameters) if weighed else 0.0
        while a < p and b > 0:
            gain = relevant_score[a] - slope - irrelevant_score[b - 1]
            if gain < 0.0 or (weighed and gain == 0.0):
                break
            total += relevant_score[a] - irrelevant_score[b - 1]
            a += 1
            b -= 1
        found = total - _measure(a, k, p, m, parameters) if weighed else total
        if found > best:
            best, best_a, best_k = found, a, k
    return best_a, best_k


@compile_part
def _most_violated(p, m, space, zero, first, last, parameters):
    """The a and k of the most violated labelling."""
    relevant_score, irrelevant_score = space[2][0], space[2][1]
    if parameters.kind != SUCCESS:
        return _walk(p, m, relevant_score, irrelevant_score, zero, first, last, np.int64(0), True, parameters)
    # With a relevant document, the best one; or none, and a task loss of 1.
    a, k = _walk(p, m, relevant_score, irrelevant_score, zero, first, last, np.int64(1), False, parameters)
    lead = 1.0
    for i in range(a):
        lead += irrelevant_score[k - a + i] - relevant_score[i]
    return (np.int64(0), k) if lead > 0.0 else (a, k)


@compile_part
def _add_reference(p, m, space, zero, first, last, relevant, where, start, stop, parameters, direction):
    """Take psi of the reference off the direction."""
    if parameters.reference == 0:
        a, b = min(p, last), max(last - p, 0)
        if first < last:
            a, b = p, np.int64(0)
        for at in range(start, stop):
            if where.size and not where[at]:
                continue
            if relevant[at] and a > 0:
                direction[at] -= 1.0
                a -= 1
            elif not relevant[at] and b > 0:
                direction[at] -= 1.0
                b -= 1
        return
    row = split_by_chosen(relevant, where, start, stop, parameters, space)
    documents, values = space[1], space[2]
    if parameters.reference == 1 and parameters.kind != SUCCESS:
        a = p if first < last else min(p, last)
        k = p if first < last else last
    else:
        least = np.int64(1) if parameters.reference == 1 else np.int64(0)
        if parameters.chosen.size:
            zero = -_top(p, m, parameters.chosen, documents[row], documents[row + 1], values[row])
            zero = zero if first < last else 0.0
        a, k = _walk(p, m, values[row], values[row + 1], zero, first, last, least, False, parameters)
    for i in range(a):
        direction[documents[row][i]] -= 1.0
    for j in range(k - a):
        direction[documents[row + 1][j]] -= 1.0


@compile_part
def _top(p, m, scores, relevant_at, irrelevant_at, relevant_score):
    """The highest score, which those of `split_list` are relative to."""
    if p > 0 and (m == 0 or relevant_score[0] == 0.0):
        return np.float64(scores[relevant_at[0]])
    return np.float64(scores[irrelevant_at[0]])


@compile_kernel
def contingency_lists(
    scores, bits, order, relevant, where, offsets, first, last, parameters, task_loss, value, direction
):
    """Measures of a contingency table. O(n) after the sort."""
    space = workspace(offsets, first, last, bits)
    relevant_at, irrelevant_at = space[1][0], space[1][1]
    relevant_score, irrelevant_score = space[2][0], space[2][1]
    for index in range(first, last):
        p, m, broken = begin_list(
            scores, bits, order, relevant, where, offsets, index, space, task_loss, value, direction
        )
        if broken >= 0:
            return broken
        free = parameters.cutoff == 0 and parameters.kind != BREAK_EVEN
        least = np.int64(0) if free else min(parameters.cutoff, p + m) if parameters.cutoff else p
        most = p + m if free else least
        if p + m == 0 or (p == 0 and parameters.kind != ACCURACY):
            continue
        if not free and (m == 0 or most == p + m or (parameters.kind == SUCCESS and m < most)):
            continue
        zero = -_top(p, m, scores, relevant_at, irrelevant_at, relevant_score) if free else 0.0
        a, k = _most_violated(p, m, space, zero, least, most, parameters)
        size = p if free else most
        loss = _measure(min(p, size), size, p, m, parameters) - _measure(a, k, p, m, parameters)
        direction[relevant_at[:a]] = 1.0
        direction[irrelevant_at[: k - a]] = 1.0
        start, stop = offsets[index], offsets[index + 1]
        _add_reference(p, m, space, zero, least, most, relevant, where, start, stop, parameters, direction)
        difference = 0.0
        for i in range(p):
            difference += direction[relevant_at[i]] * (relevant_score[i] - zero)
        for j in range(m):
            difference += direction[irrelevant_at[j]] * (irrelevant_score[j] - zero)
        task_loss[index] = loss
        value[index] = max(loss + difference, 0.0)
        if parameters.reference:  # the other one is by input order
            share_directions(p, m, space, parameters, direction)
    return -1
