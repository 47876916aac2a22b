"""The kernel of binary relevance: one program a list, for all its thresholds, after one sort. It splits the list by relevance,
calls a method, and writes the coefficients, tied documents sharing theirs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from rankstruct.kernels.call import Call
from rankstruct.kernels.gpu import f1, pairwise, partial_auc, reciprocal_rank
from rankstruct.kernels.gpu.batch import Batch, most_space, on_device
from rankstruct.kernels.gpu.common import as_double, bounds, clear, document, split, write, zero
from rankstruct.kernels.gpu.f1 import ACCURACY, BREAK_EVEN, SUCCESS
from rankstruct.kernels.gpu.pairwise import BY_HALF, BY_IRRELEVANT, BY_RELEVANT, BY_SCORE

#: By the names of the loops that do the same in the core.
METHODS = {
    "pairwise_auc": 0,
    "pairwise_average_precision": 1,
    "pairwise_convex_discount": 2,
    "pairwise_precision_at_cutoff": 3,
    "pairwise_discount_at_cutoff": 4,
    "pairwise_reciprocal_rank": 5,
    "partial_area": 6,
    "partial_area_of_window": 7,
    "first_relevant": 8,
    "contingency": 9,
}
AUC, AP, CONVEX, AP_AT_CUTOFF, AT_CUTOFF, FIRST, AREA, WINDOW, FIRST_RELEVANT, CONTINGENCY = (
    tl.constexpr(number) for number in METHODS.values()
)
IDEAL, IDEAL_TIED, PREDICTED, BELOW_WINDOW = (tl.constexpr(number) for number in range(4))


@triton.jit
def solve_binary(
    scores, labels, where, weights, chosen, order, chosen_order, offsets, thresholds, shares, numbers, table, slope,
    real, whole, cells, task_loss, value, direction,
    size, stride, cell_stride, count, steps, cutoff,
    METHOD: tl.constexpr, REFERENCE: tl.constexpr, MEASURE: tl.constexpr, NORMALIZED: tl.constexpr,
    STRICT: tl.constexpr, ROUND: tl.constexpr, TIED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    index = tl.cast(tl.program_id(0), tl.int64)
    start, n = bounds(offsets, size)
    scores += start
    labels += start
    order += start
    direction += start
    if where is not None:
        where += start
    if weights is not None:
        weights += start
    if chosen is not None:
        chosen += start
        chosen_order += start
    real += start + index
    whole += start + index
    r_score, i_score, q_r_score, q_i_score = real, real + stride, real + 2 * stride, real + 3 * stride
    coefficient, r_sums, i_sums = real + 4 * stride, real + 5 * stride, real + 6 * stride
    own_sums = real + 7 * stride
    r_place, i_place, q_r_place, q_i_place = whole, whole + stride, whole + 2 * stride, whole + 3 * stride
    decided, heads, ends = whole + 4 * stride, whole + 5 * stride, whole + 6 * stride
    if cells is not None:
        cells += index * cell_stride

    lowest_label = tl.load(numbers)
    at, inside = document(order, where, 0, n)
    top = tl.cast(tl.load(scores + at, inside, other=0.0), tl.float64)
    loss_of_all = zero()
    value_of_all = zero()
    wrong = 0
    for number in range(count):
        threshold = tl.load(thresholds + number)
        share = tl.load(shares + number)
        p, m, broken, low_gain, high_gain = split(scores, labels, where, order, n, top, threshold, lowest_label, r_score, r_place,
                                                  i_score, i_place, ROUND, STRICT, BLOCK)  # fmt: skip
        wrong += broken
        if (METHOD == CONVEX) | (METHOD == AT_CUTOFF):
            wrong += tl.cast((p > 0) & (low_gain != high_gain), tl.int32)
        if chosen is not None:
            _, _, broken, _, _ = split(chosen, labels, where, chosen_order, n, zero(), threshold, lowest_label, q_r_score,
                                       q_r_place, q_i_score, q_i_place, ROUND, STRICT, BLOCK)  # fmt: skip
            wrong += broken
        else:
            q_r_score, q_i_score, q_r_place, q_i_place = r_score, i_score, r_place, i_place
        clear(coefficient, n, BLOCK)
        tl.debug_barrier()  # the split

        pairs = as_double(p) * as_double(m)
        can_err = (p > 0) & (m > 0)
        if METHOD == CONTINGENCY:
            free = (cutoff == 0) & (MEASURE != BREAK_EVEN)
            k = tl.where(cutoff > 0, tl.minimum(cutoff, p + m), p)
            least = 1
            if MEASURE == SUCCESS:
                least = k
            can_err = tl.where(free, (p > 0) | (MEASURE == ACCURACY), (p > 0) & (m > 0) & (m >= least) & (k < p + m))
        if wrong > 0:
            can_err = can_err & False
        loss = zero()
        scale = zero() + 1.0
        shift = zero()
        if can_err:
            if METHOD <= FIRST:
                scale = 2.0 / pairs
            elif METHOD == AREA:
                scale = 2.0 / pairs
            k = tl.minimum(cutoff, p + m)
            if METHOD == AUC:
                wrong_pairs = pairwise.add_pairs(p, m, r_score, i_score, r_place, i_place, decided, coefficient, weights, r_sums,
                                                 i_sums, 1.0, steps, BY_HALF, BLOCK)  # fmt: skip
                if weights is not None:
                    pairs = tl.load(r_sums + p) * tl.load(i_sums + m)
                    scale = tl.where(pairs > 0.0, 2.0 / tl.where(pairs > 0.0, pairs, 1.0), 0.0)
                    pairs = tl.where(pairs > 0.0, pairs, float("inf"))
                loss = wrong_pairs / pairs
            elif METHOD <= AT_CUTOFF:
                gain = 1.0 / as_double(p)
                best = as_double(tl.minimum(p, k)) / as_double(p)
                if (METHOD == CONVEX) | (METHOD == AT_CUTOFF):
                    gain, best = pairwise.worth(table, p, m, high_gain, NORMALIZED, BLOCK)
                if best == 0.0:
                    scale = zero()  # no ranking can be wrong
                elif METHOD <= CONVEX:
                    factor = 0.5 * as_double(m) * as_double(p) * gain
                    level = table
                    if METHOD == CONVEX:
                        level = table - 1  # from rank 1
                    pairwise.place_convex(r_score, i_score, p, m, factor, level, slope, r_sums, ends, decided, BLOCK)
                else:
                    pairwise.place_to_cutoff(r_score, i_score, p, m, k, gain, table, 2.0 / pairs, r_sums, i_sums, heads, own_sums,
                                             cells, decided, steps, BLOCK)  # fmt: skip
                tl.debug_barrier()  # the placement
                if best != 0.0:
                    if METHOD <= CONVEX:
                        worths = table
                        if METHOD == AP:
                            worths = None
                        loss = best - pairwise.measure_of(p, m, p + m, gain, worths, r_score, i_score, decided, steps,
                                                          BY_IRRELEVANT, BLOCK)  # fmt: skip
                        pairwise.add_pairs(p, m, r_score, i_score, r_place, i_place, decided, coefficient, None, r_sums, i_sums,
                                           1.0, steps, BY_IRRELEVANT, BLOCK)  # fmt: skip
                    else:
                        loss = best - pairwise.measure_of(p, m, k, gain, table, r_score, i_score, decided, steps, BY_RELEVANT,
                                                          BLOCK)  # fmt: skip
                        pairwise.add_pairs(p, m, r_score, i_score, r_place, i_place, decided, coefficient, None, r_sums, i_sums,
                                           1.0, steps, BY_RELEVANT, BLOCK)  # fmt: skip
            elif METHOD == FIRST:
                loss = pairwise.place_first(r_score, i_score, p, m, cutoff, 2.0 / pairs, r_sums, i_sums, heads, own_sums, decided,
                                            steps, BLOCK)  # fmt: skip
                tl.debug_barrier()  # the placement
                pairwise.add_pairs(p, m, r_score, i_score, r_place, i_place, decided, coefficient, None, r_sums, i_sums, 1.0,
                                   steps, BY_RELEVANT, BLOCK)  # fmt: skip
            elif METHOD == FIRST_RELEVANT:
                r = reciprocal_rank.most_above(r_score, i_score, p, m, cutoff, BLOCK)
                loss = tl.where(r > 0, reciprocal_rank.first_loss(r, cutoff), 0.0)
                reciprocal_rank.add_above(r_place, i_place, p, r, coefficient, 1.0, BLOCK)
            elif METHOD == CONTINGENCY:
                beta = tl.load(numbers + 1)
                free = (cutoff == 0) & (MEASURE != BREAK_EVEN)
                k = tl.where(cutoff > 0, k, p)
                shift = tl.where(free, top, 0.0)  # for fixed k only differences matter
                first = tl.where(free, 0, k)
                last = tl.where(free, p + m, k)
                lowest = 0
                if MEASURE == SUCCESS:
                    lowest = 1
                a, positive = f1.best_labelling(r_score, i_score, p, m, first, last, shift, lowest, cutoff, beta, r_sums, i_sums,
                                                steps, MEASURE != SUCCESS, MEASURE, BLOCK)  # fmt: skip
                if MEASURE == SUCCESS:
                    lead = 1.0 + tl.load(i_sums + positive) - tl.load(i_sums + positive - a) - tl.load(r_sums + a)
                    a = tl.where(lead > 0.0, 0, a)
                best_k = tl.where(free, p, k)
                best_a = tl.minimum(p, best_k)
                loss = f1.value_of(best_a, best_k, p, m, cutoff, beta, MEASURE)
                loss -= f1.value_of(a, positive, p, m, cutoff, beta, MEASURE)
                f1.add_positive(r_place, i_place, a, positive, coefficient, 1.0, BLOCK)
                if REFERENCE == IDEAL:
                    tl.debug_barrier()  # the coefficients
                    f1.take_off_first(r_place, i_place, p, m, n, best_a, best_k, heads, coefficient, BLOCK)
                else:
                    if (REFERENCE == PREDICTED) | (MEASURE == SUCCESS):
                        raised = shift
                        if chosen is not None:
                            raised = zero()
                        tl.debug_barrier()  # the sums have been read
                        lowest = 0
                        if REFERENCE == IDEAL_TIED:
                            lowest = 1
                        best_a, best_k = f1.best_labelling(q_r_score, q_i_score, p, m, first, last, raised, lowest, cutoff, beta,
                                                           r_sums, i_sums, steps, False, MEASURE, BLOCK)  # fmt: skip
                    tl.debug_barrier()  # the coefficients
                    f1.add_positive(q_r_place, q_i_place, best_a, best_k, coefficient, -1.0, BLOCK)
            else:  # the partial area
                low = tl.load(numbers + 1) * as_double(m)
                high = tl.load(numbers + 2) * as_double(m)
                skipped = tl.load(numbers + 3) * as_double(p)
                rest = as_double(p) - skipped
                if METHOD == AREA:
                    missed = partial_auc.place_area(r_score, i_score, p, m, low, high, skipped, i_sums, decided, steps, False, BLOCK)
                    loss = missed / (rest * (high - low))
                    tl.debug_barrier()  # the placement
                    pairwise.add_pairs(p, m, r_score, i_score, r_place, i_place, decided, coefficient, None, r_sums, i_sums, 1.0,
                                       steps, BY_RELEVANT, BLOCK)  # fmt: skip
                elif REFERENCE == BELOW_WINDOW:
                    scale = 2.0 / ((high - low) * rest)
                    loss = partial_auc.place_from_start(r_score, i_score, p, high, skipped, decided, steps, BLOCK)
                    partial_auc.add_area(r_place, i_place, p, decided, high, skipped, 1.0, coefficient, steps, BLOCK)
                    tl.debug_barrier()  # the placement has been read
                    loss -= partial_auc.place_from_start(q_r_score, q_i_score, p, low, skipped, decided, steps, BLOCK)
                    loss /= (high - low) * rest
                    partial_auc.add_area(q_r_place, q_i_place, p, decided, low, skipped, -1.0, coefficient, steps, BLOCK)
                else:
                    scale = 2.0 / (high * rest)
                    missed = partial_auc.place_area(r_score, i_score, p, m, low, high, skipped, i_sums, decided, steps, True, BLOCK)
                    loss = missed / (rest * (high - low))
                    partial_auc.add_area(r_place, i_place, p, decided, high, skipped, 1.0, coefficient, steps, BLOCK)
                    if REFERENCE == PREDICTED:
                        tl.debug_barrier()  # the placement has been read
                        partial_auc.place_by_score(q_r_score, q_i_score, p, m, decided, steps, BLOCK)
                        partial_auc.add_area(q_r_place, q_i_place, p, decided, high, skipped, -1.0, coefficient, steps, BLOCK)
            if REFERENCE == PREDICTED:
                tl.debug_barrier()  # the coefficients
                if METHOD <= AREA:
                    pairwise.add_pairs(p, m, q_r_score, q_i_score, q_r_place, q_i_place, decided, coefficient, weights, r_sums,
                                       i_sums, -1.0, steps, BY_SCORE, BLOCK)  # fmt: skip
                elif METHOD == FIRST_RELEVANT:
                    above = reciprocal_rank.above_lowest(q_r_score, q_i_score, p, m, steps)
                    reciprocal_rank.add_above(q_r_place, q_i_place, p, above, coefficient, -1.0, BLOCK)
            tl.debug_barrier()  # the coefficients
            product = write(coefficient, r_score, r_place, p, chosen, direction, scale, share, shift, r_sums, heads, ends, TIED, BLOCK)
            tl.debug_barrier()  # the scratch has been read
            product += write(coefficient, i_score, i_place, m, chosen, direction, scale, share, shift, i_sums, heads, ends, TIED, BLOCK)
            loss_of_all += share * loss
            value_of_all += share * tl.maximum(loss + product, 0.0)
        tl.debug_barrier()  # the next threshold writes the same scratch, and adds to the direction
    nothing = tl.where(wrong > 0, float("nan"), 0.0)
    tl.store(task_loss + index, loss_of_all + nothing)
    tl.store(value + index, value_of_all + nothing)


def solve(call: Call, batch: Batch) -> bool:
    """Solve a call of a loop of binary relevance; False if its table would need too much room."""
    method, options, device = METHODS[call.loop.name], call.options, batch.scores.device
    given: dict[str, Any] = {name: getattr(options, name) for name in call.loop.fields}
    reference = given.get("reference", PREDICTED.value if given.get("predicted") else IDEAL.value)
    if given.get("below"):
        reference = BELOW_WINDOW.value
    if call.thresholds is None or call.threshold_weights is None:
        from_label = 0.0 if np.isnan(call.min_relevant) else float(np.float32(call.min_relevant))
        thresholds, shares = on_device([from_label], device), on_device([1.0], device)
    else:
        thresholds, shares = (each.to(device, torch.float64) for each in (call.thresholds, call.threshold_weights))
    numbers = [given[name] for name in ("low", "high", "min_tpr", "beta") if name in given]
    table = slope = cells = None
    if method == AP.value:
        table, slope = _harmonic(1 << batch.longest.bit_length(), device)
    elif "discounts" in given:
        table = on_device(options._arrays[0], device)
    cutoff = min(given.get("cutoff", batch.longest), 2**30)
    square = 0
    if method in (AP_AT_CUTOFF.value, AT_CUTOFF.value):
        square = (min(cutoff, batch.longest // 2 + 1) + 2) ** 2
        if most_space(square * batch.lists):
            return False
        cells = torch.empty(square * batch.lists, dtype=torch.float64, device=device)
    if batch.longest > batch.block**2:
        return False
    single = call.thresholds is None
    solve_binary[(batch.lists,)](
        batch.scores, batch.labels, batch.where, batch.weights, batch.chosen, batch.order, batch.chosen_order, batch.offsets,
        thresholds, shares, on_device([batch.least_label, *numbers], device), table, slope,
        batch.space(8, torch.float64), batch.space(7, torch.int32), cells, batch.task_loss, batch.value, batch.direction,
        batch.size, batch.stride, square, len(thresholds), batch.longest.bit_length() + 1, cutoff,
        METHOD=method, REFERENCE=reference, MEASURE=given.get("measure", 0), NORMALIZED=bool(given.get("normalized")),
        STRICT=single and bool(np.isnan(call.min_relevant)), ROUND=single, TIED=batch.weights is None and (method != CONTINGENCY.value or reference != IDEAL.value), BLOCK=batch.block,
        num_warps=batch.block // 128, enable_fp_fusion=False,
    )  # fmt: skip
    return True


@lru_cache(maxsize=8)
def _harmonic(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Minus the harmonic numbers, and minus their terms, from 0."""
    terms = -1.0 / np.arange(1, size + 1)
    return tuple(on_device(np.append(0.0, each), device) for each in (np.cumsum(terms), terms))
