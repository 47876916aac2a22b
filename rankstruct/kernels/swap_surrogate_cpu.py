"""The surrogates of measures of the top, on the CPU; see `losses.top_surrogate` for the mathematics, `pairwise_cpu` for the rest.

Relevant and irrelevant documents each by descending score: swap l puts irrelevant l in the place of the relevant one that is
l-th from the end. O(n) after the sort.
"""

from __future__ import annotations

from rankstruct.kernels.compilation import compile_kernel, compile_part
from rankstruct.kernels.pairwise_cpu import begin_list, workspace


@compile_part
def _most_violated(p, m, space, unit, weights, options):
    """The best number of swaps; its value, its regret, and how many relevant documents it does not miss."""
    relevant_score, irrelevant_score = space[2][0], space[2][1]
    cutoff, average, slack = options.cutoff, options.average, options.slack
    hits = min(p, cutoff)
    missed = 0.0  # sum of the relevant scores behind the hits
    if average:
        for i in range(hits, p):
            missed += relevant_score[i]
    best, swaps, its_regret, its_hits = 0.0, 0, 0.0, hits
    regret, margin = 0.0, 0.0
    for j in range(min(p, m, cutoff)):
        w = unit * (weights[j] - weights[p + m - 1 - j])
        regret += w
        if average:
            margin += w * irrelevant_score[j]
            if hits > 0:
                hits -= 1
                missed += relevant_score[hits]
            total = margin - regret * missed / (p - hits)
        else:
            margin += w * (irrelevant_score[j] - relevant_score[p - 1 - j])
            total = margin
        found = regret * (1.0 + total) if slack else regret + total
        if found > best:
            best, swaps, its_regret, its_hits = found, j + 1, regret, hits
    return swaps, best, its_regret, its_hits


@compile_kernel
def surrogate_lists(
    scores, bits, order, relevant, where, offsets, first, last, gains, weights, options, task_loss, value, direction
):
    """Surrogates of the lists `[first, last)`: `gains` float64 `[documents]`, `weights` the discounts."""
    space = workspace(offsets, first, last, bits)
    relevant_at, irrelevant_at = space[1][0], space[1][1]
    for index in range(first, last):
        p, m, broken = begin_list(
            scores, bits, order, relevant, where, offsets, index, space, task_loss, value, direction
        )
        if broken >= 0:
            return broken
        if p == 0 or m == 0:
            continue
        unit = gains[relevant_at[0]]
        if options.normalized:
            unit = 1.0 / weights[: min(p, options.cutoff)].sum()
        swaps, best, regret, hits = _most_violated(p, m, space, unit, weights, options)
        if swaps == 0:
            continue
        factor = regret if options.slack else 1.0
        for j in range(swaps):
            coefficient = factor * unit * (weights[j] - weights[p + m - 1 - j])
            direction[irrelevant_at[j]] = coefficient
            if not options.average:
                direction[relevant_at[p - 1 - j]] = -coefficient
        if options.average:
            for i in range(hits, p):
                direction[relevant_at[i]] = -factor * regret / (p - hits)
        task_loss[index] = regret
        value[index] = best
    return -1
