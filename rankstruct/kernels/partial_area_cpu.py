"""Most violated rankings of a partial ROC area, on the CPU; see `pairwise_cpu` for what a kernel takes and the notation.

Position j among the irrelevant documents, from 0, is the cell [j, j + 1), and the window of false positives is [low m, high m):
w_j is the part of cell j inside, W(b) that of the first b cells, v_i in the same way the part of the cell of relevant i
behind `min_tpr * p`, V their sum. A ranking with b_i irrelevant documents above relevant i misses sum_i v_i W(b_i) / (V W(m)),
and relevant i gains by b, but for a factor,

    v_i lift W(b) + sum over the first b cells of c_j (s_j - s_i)

with c_j = 1 under the pairwise map, and the part of cell j below high m under the restricted one. The differences fall with b
but where the window begins, so that b_i is one of two: the best before the first cell of the window, or the best from there on.
Neither falls with i, and pointers find them: O(n) after the sort.

With the reference below the window, R(0, high) high - R(0, low) low over high - low is wanted, R the hinge of the restricted map.
In windows that begin at 0 lift is 1/2, so that both rankings are that of the scores with the irrelevant ones raised by 1/2.
"""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.compilation import compile_kernel, compile_part
from rankstruct.kernels.pairwise_cpu import (
    _finish,
    _finish_predicted,
    begin_list,
    share_directions,
    split_by_chosen,
    workspace,
)


@compile_part
def _inside(b, low, high):
    """W(b), the part of the window in the first b cells."""
    return min(max(np.float64(b), low), high) - low


@compile_part
def _weight(i, skipped):
    """v_i of relevant i, from 0."""
    return min(1.0, max(0.0, i + 1 - skipped))


@compile_part
def _partial_sum(b, end, irrelevant_sum, irrelevant_score):
    """The sum over the first b cells of c_j s_j, and that of c_j; `end` is where they end."""
    whole = int(end)
    if b <= whole:
        return irrelevant_sum[b], np.float64(b)
    part = end - whole
    return irrelevant_sum[whole] + part * irrelevant_score[whole], end


@compile_part
def _place_from_start(p, end, skipped, relevant_score, irrelevant_score, above):
    """`_place` under the restricted map in the window of the first `end` cells; returns the sum of v_i W(b_i)."""
    b, last = 0, int(np.ceil(end))
    missed = 0.0
    for i in range(p):
        while b < last and irrelevant_score[b] + 0.5 > relevant_score[i]:
            b += 1
        above[i] = b
        missed += _weight(i, skipped) * min(np.float64(b), end)
    return missed


@compile_part
def _place(p, m, space, irrelevant_sum, parameters):
    """Put above each relevant document what the most violated ranking does; returns its task loss."""
    relevant_score, irrelevant_score, above = space[2][0], space[2][1], space[1][4]
    low, high, skipped = parameters.low * m, parameters.high * m, parameters.min_tpr * p
    whole, rest = high - low, p - skipped
    if parameters.below:
        return _place_from_start(p, high, skipped, relevant_score, irrelevant_score, above) / (whole * rest)
    end = high if parameters.restricted else np.float64(m)
    last = int(np.ceil(end))
    start = int(low) + 1 if low > 0.0 else 0
    lift = 0.5 * high / whole if parameters.restricted else 0.5 * p * m / (rest * whole)
    irrelevant_sum[0] = 0.0
    for j in range(m):
        irrelevant_sum[j + 1] = irrelevant_sum[j] + irrelevant_score[j]
    before, inside, placed = 0, start, 0
    loss = 0.0
    for i in range(p):
        weight, score = _weight(i, skipped), relevant_score[i]
        if parameters.restricted and weight == 0.0:
            above[i] = 0
            continue
        raised = lift if parameters.restricted else weight * lift
        while before < start - 1 and irrelevant_score[before] > score:
            before += 1
        while inside < last:
            part = max(0.0, min(inside + 1.0, high) - inside)
            if parameters.restricted and part > 0.0:
                part = 1.0  # of what counts of the cell
            if irrelevant_score[inside] + part * raised <= score:
                break
            inside += 1
        b = inside
        if start > 0:
            near, near_cells = _partial_sum(before, end, irrelevant_sum, irrelevant_score)
            far, far_cells = _partial_sum(inside, end, irrelevant_sum, irrelevant_score)
            if far - near - (far_cells - near_cells) * score + raised * _inside(inside, low, high) <= 0.0:
                b = before
        placed = max(placed, b)  # rounding might let it fall
        above[i] = placed
        loss += weight * _inside(placed, low, high)
    return loss / (rest * whole)


@compile_part
def _add_restricted(p, m, relevant_at, irrelevant_at, above, parameters, end, whole, direction):
    """Add psi of a ranking under the restricted map, of the first `end` cells over `whole` of them, to the direction."""
    skipped = parameters.min_tpr * p
    scale = 2.0 / (whole * (p - skipped))
    i = 0
    for j in range(m):
        cell = min(j + 1.0, end) - j
        if cell <= 0.0:
            break
        while i < p and above[i] <= j:
            i += 1
        direction[irrelevant_at[j]] += scale * (cell * (p - max(skipped, np.float64(i))))
    for i in range(p):
        direction[relevant_at[i]] -= scale * (_weight(i, skipped) * min(np.float64(above[i]), end))


@compile_part
def _finish_restricted(p, m, space, loss, relevant, where, offsets, index, parameters, task_loss, value, direction):
    """Write the results under the restricted map; psi of an ideal ranking is 0."""
    _, documents, values = space
    above, other = documents[4], documents[5]
    low, high, skipped = parameters.low * m, parameters.high * m, parameters.min_tpr * p
    whole = high - low if parameters.below else high
    _add_restricted(p, m, documents[0], documents[1], above, parameters, high, whole, direction)
    if parameters.predicted or parameters.below:
        row = split_by_chosen(relevant, where, offsets[index], offsets[index + 1], parameters, space)
    if parameters.below:
        missed = _place_from_start(p, low, skipped, values[row], values[row + 1], other)
        loss -= missed / (whole * (p - skipped))
        _add_restricted(p, m, documents[row], documents[row + 1], other, parameters, low, -whole, direction)
    elif parameters.predicted:
        j = 0
        for i in range(p):
            while j < m and values[row][i] < values[row + 1][j]:
                j += 1
            other[i] = j
        _add_restricted(p, m, documents[row], documents[row + 1], other, parameters, high, -whole, direction)
    difference = 0.0
    for i in range(p):
        difference += direction[documents[0][i]] * values[0][i]
    for j in range(m):
        difference += direction[documents[1][j]] * values[1][j]
    task_loss[index] = loss
    value[index] = max(loss + difference, 0.0)
    share_directions(p, m, space, parameters, direction)


@compile_kernel
def partial_area_lists(
    scores, bits, order, relevant, where, offsets, first, last, parameters, task_loss, value, direction
):
    """Partial ROC area (SVMpAUC) under both pairwise maps. O(n) after the sort."""
    space = workspace(offsets, first, last, bits)
    irrelevant_sum = np.empty(space[1].shape[1] + 1, np.float64)
    for index in range(first, last):
        p, m, broken = begin_list(
            scores, bits, order, relevant, where, offsets, index, space, task_loss, value, direction
        )
        if broken >= 0:
            return broken
        if p == 0 or m == 0:
            continue
        loss = _place(p, m, space, irrelevant_sum, parameters)
        if parameters.restricted:
            _finish_restricted(
                p, m, space, loss, relevant, where, offsets, index, parameters, task_loss, value, direction
            )
        elif parameters.predicted:
            _finish_predicted(
                p, m, space, loss, relevant, where, offsets, index, parameters, task_loss, value, direction
            )
        else:
            _finish(p, m, space, loss, index, parameters, task_loss, value, direction)
    return -1
