"""The pairwise hinge over all pairs of grades, on the CPU: flat scores, one list after another.

A pair of documents i, j with y_i > y_j costs while s_j > s_i - margin. Both ends of that condition move in one direction as
i goes down the list, so one pass over the documents in order of their scores meets every change of it; a Fenwick tree over
the list's grades counts those of lower (or higher) grade among the documents met. O(n log n) with any number of grades.
"""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.compilation import compile_kernel, compile_part, unsigned
from rankstruct.kernels.sorting import COUNTED_CLASSES, longest_list, number_few, sort_descending, sort_space


@compile_part
def _add(counts, sums, size, grade, value):
    """Put a document of the 1-based grade rank `grade` into the tree."""
    while grade <= size:
        counts[unsigned(grade)] += 1
        sums[unsigned(grade)] += value
        grade += grade & -grade


@compile_part
def _count(counts, sums, grade):
    """Number and summed values of the documents in the tree whose grade rank is at most `grade`."""
    count, total = 0, 0.0
    while grade > 0:
        count += counts[unsigned(grade)]
        total += sums[unsigned(grade)]
        grade -= grade & -grade
    return count, total


@compile_part
def _grade_ranks(labels, label_bits, where, start, stop, grade, behind, space):
    """Fill `grade` with the rank of each document's grade from the lowest, 1, 2, ...; returns the number of documents, of grades,
    and of pairs of different grades. `behind` [at least COUNTED_CLASSES] and `space` are scratch.
    """
    real = where[start:stop] if where.size else where
    bits = space[0][1].view(np.int64)
    grades = number_few(labels[start:stop].view(np.int64), real, grade, bits, behind, space[2].view(np.int64))
    if grades != -1:
        for i in range(stop - start):
            grade[i] = grades - grade[i]
        same = 0.0
        for g in range(grades):
            members = behind[g] - (behind[g - 1] if g else 0)
            same += 0.5 * members * (members - 1)
        n = behind[grades - 1] if grades else 0
        return n, grades, 0.5 * n * (n - 1) - same
    n, by_grade = sort_descending(label_bits, where, start, stop, space), space[1][0]
    # All pairs less those of one grade.
    grades, same, members, before = 1, 0.0, 0, labels[by_grade[n - 1]]
    for i in range(n - 1, -1, -1):
        label = labels[unsigned(by_grade[unsigned(i)])]
        if i < n - 1 and label != before:
            grades += 1
            same += 0.5 * members * (members - 1)
            members = 0
        before = label
        members += 1
        grade[unsigned(by_grade[unsigned(i)] - start)] = grades
    return n, grades, 0.5 * n * (n - 1) - same - 0.5 * members * (members - 1)


@compile_kernel
def hinge_lists(scores, bits, labels, label_bits, where, offsets, first, last, margin, value, direction):
    """Mean hinge over the pairs of each list `[first, last)`, and its gradient.

    `bits` and `label_bits` are the memory of `scores` and `labels` as unsigned integers, `where` is uint8, or empty if every
    document is real; fills `value` [lists] and `direction` [documents]. Returns -1.
    """
    size = longest_list(offsets, first, last)
    space, grade_space = sort_space(bits, size), sort_space(label_bits, size)
    order = space[1][0]
    score = np.empty(size, np.float64)
    grade = np.empty(size, np.int64)  # by position in the list; then by rank in `rank_grade`
    rank_grade = np.empty(size, np.int64)
    counts = np.empty(max(size, COUNTED_CLASSES) + 1, np.int64)
    sums = np.empty(size + 1, np.float64)
    for index in range(first, last):
        start, stop = offsets[index], offsets[index + 1]
        value[index] = 0.0
        direction[start:stop] = 0.0
        n, grades, pairs = _grade_ranks(labels, label_bits, where, start, stop, grade, counts, grade_space)
        if grades < 2:
            continue
        sort_descending(bits, where, start, stop, space)
        top = np.float64(scores[order[0]])
        for i in range(n):
            score[i] = np.float64(scores[unsigned(order[i])]) - top
            rank_grade[i] = grade[unsigned(order[i] - start)]

        # As the higher grade: down the list, the tree holds all j with s_j > s_i - margin.
        counts[: grades + 1] = 0
        sums[: grades + 1] = 0.0
        total = 0.0
        j = 0
        for i in range(n):
            bound = score[i] - margin
            while j < n and score[unsigned(j)] > bound:
                _add(counts, sums, grades, rank_grade[unsigned(j)], score[unsigned(j)])
                j += 1
            count, lower = _count(counts, sums, rank_grade[i] - 1)
            total += lower - count * bound
            direction[unsigned(order[i])] = -count / pairs

        # As the lower grade: up the list, the tree holds all i with s_i - margin < s_j, by grade from the highest.
        counts[: grades + 1] = 0
        i = n - 1
        for j in range(n - 1, -1, -1):
            here = unsigned(j)
            while i >= 0 and score[unsigned(i)] - margin < score[here]:
                _add(counts, sums, grades, grades + 1 - rank_grade[unsigned(i)], 0.0)
                i -= 1
            count, _ = _count(counts, sums, grades - rank_grade[here])
            direction[unsigned(order[here])] += count / pairs
        value[index] = max(total, 0.0) / pairs
    return -1
