"""Most violated rankings under the first-relevant feature map, on the CPU; see `pairwise_cpu` for what a kernel takes."""

from __future__ import annotations

from rankstruct.kernels.compilation import compile_kernel
from rankstruct.kernels.pairwise_cpu import begin_list, share_directions, split_by_chosen, workspace


@compile_kernel
def reciprocal_rank_lists(
    scores, bits, order, relevant, where, offsets, first, last, parameters, task_loss, value, direction
):
    """Reciprocal rank (SVMmrr): for each r, the r highest irrelevant documents, then the lowest relevant one. O(n) then.

    If there are k irrelevant ones at least, one more candidate earns nothing: all that score above that relevant one, but k at
    least.
    """
    space = workspace(offsets, first, last, bits)
    relevant_at, irrelevant_at = space[1][0], space[1][1]
    relevant_score, irrelevant_score = space[2][0], space[2][1]
    for index in range(first, last):
        p, m, broken = begin_list(
            scores, bits, order, relevant, where, offsets, index, space, task_loss, value, direction
        )
        if broken >= 0:
            return broken
        if p == 0 or m == 0:
            continue
        lowest = relevant_score[p - 1]
        best, best_r, best_loss = 0.0, 0, 0.0
        lead = 0.0  # by how much the r highest irrelevant ones together score above it
        for r in range(1, m + 1):
            lead += irrelevant_score[r - 1] - lowest
            loss = 1.0 - 1.0 / (1 + r) if r < parameters.cutoff else 1.0
            if loss + lead > best:
                best, best_r, best_loss = loss + lead, r, loss
        task_loss[index] = best_loss
        start, stop = offsets[index], offsets[index + 1]
        direction[irrelevant_at[:best_r]] = 1.0
        direction[relevant_at[p - 1]] = 0.0 - best_r
        if not parameters.predicted:
            value[index] = best
            share_directions(p, m, space, parameters, direction)
            continue
        # F prefers the irrelevant documents that score above the lowest relevant one, then that one.
        row = split_by_chosen(relevant, where, start, stop, parameters, space)
        lowest = space[2][row][p - 1]
        r = 0
        while r < m and space[2][row + 1][r] > lowest:
            direction[space[1][row + 1][r]] -= 1.0
            r += 1
        direction[space[1][row][p - 1]] += r
        difference = 0.0
        for i in range(p):
            difference += direction[relevant_at[i]] * relevant_score[i]
        for j in range(m):
            difference += direction[irrelevant_at[j]] * irrelevant_score[j]
        value[index] = max(best_loss + difference, 0.0)
        share_directions(p, m, space, parameters, direction)
    return -1
