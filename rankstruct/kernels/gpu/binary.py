"""The kernel of binary relevance: one program a list, for all its thresholds, after one sort. It splits the list by relevance,
calls a method, and writes the coefficients, tied documents sharing theirs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor

from rankstruct.kernels.call import Call
from rankstruct.kernels.gpu import f1, pairwise, partial_auc, reciprocal_rank, top_surrogate
from rankstruct.kernels.gpu.batch import MOST_SPACE, DeviceBatch, on_device
from rankstruct.kernels.gpu.common import (
    as_double,
    bounds,
    clear,
    compiled_once,
    divide,
    document,
    launched_with,
    of_list,
    write,
    zero,
)
from rankstruct.kernels.gpu.f1 import ACCURACY, BREAK_EVEN, SUCCESS

_PAIRWISE = (
    "auc",
    "average_precision",
    "convex_discount",
    "precision_at_cutoff",
    "discount_at_cutoff",
    "reciprocal_rank",
)
_METHODS = (
    *(f"pairwise_{name}" for name in _PAIRWISE),
    "partial_area",
    "partial_area_of_window",
    "first_relevant",
    "contingency",
    "top_surrogate",
)
#: By the names of the loops that do the same in the core.
METHODS = {name: number for number, name in enumerate(_METHODS)}
AUC, AP, CONVEX, AP_AT_CUTOFF, AT_CUTOFF, FIRST, AREA, WINDOW, FIRST_RELEVANT, CONTINGENCY, SURROGATE = (
    tl.constexpr(number) for number in METHODS.values()
)
IDEAL, IDEAL_TIED, PREDICTED, BELOW_WINDOW = (tl.constexpr(number) for number in range(4))


@compiled_once
def solve_binary(
    scores, labels, where, weights, chosen, order, preferred_by, preferred_order, offsets, thresholds, shares, numbers, table,
    slope, real, whole, cells, task_loss, value, direction, size, stride, cell_stride, count, steps, cutoff,
    METHOD: tl.constexpr, REFERENCE: tl.constexpr, MEASURE: tl.constexpr, NORMALIZED: tl.constexpr,
    STRICT: tl.constexpr, ROUND: tl.constexpr, TIED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Solve one list: split it, place its documents or label them, and write the difference from the reference."""
    index = tl.cast(tl.program_id(0), tl.int64)
    start, n = bounds(offsets, size)
    scores, labels = of_list(scores, start), of_list(labels, start)
    where, weights = of_list(where, start), of_list(weights, start)
    order, preferred_order = of_list(order, start), of_list(preferred_order, start)
    chosen, preferred_by = of_list(chosen, start), of_list(preferred_by, start)
    direction += start
    if cells is not None:
        cells += index * cell_stride
    real += start + index
    whole += start + index
    coefficient, own_sums = real + 4 * stride, real + 7 * stride
    sums = (real + 5 * stride, real + 6 * stride)
    decided, heads, ends = whole + 4 * stride, whole + 5 * stride, whole + 6 * stride

    least = tl.load(numbers)
    at, inside = document(order, where, 0, n)
    top = tl.cast(tl.load(scores + at, inside, other=0.0), tl.float64)
    for number in range(count):
        test = (tl.load(thresholds + number), least)
        share = tl.load(shares + number)
        p, m, wrong, low_gain, high_gain = divide(
            scores, labels, where, order, n, top, test, real, whole, stride, ROUND, STRICT, BLOCK
        )
        if (METHOD == CONVEX) | (METHOD == AT_CUTOFF) | (METHOD == SURROGATE):
            wrong += tl.cast((p > 0) & (low_gain != high_gain), tl.int32)
        split = (p, m, real, real + stride, whole, whole + stride)
        preferred = split
        if preferred_by is not None:
            other, others = real + 2 * stride, whole + 2 * stride
            _, _, broken, _, _ = divide(
                preferred_by,
                labels,
                where,
                preferred_order,
                n,
                zero(),
                test,
                other,
                others,
                stride,
                ROUND,
                STRICT,
                BLOCK,
            )
            wrong += broken
            preferred = (p, m, other, other + stride, others, others + stride)
        clear(coefficient, n, BLOCK)
        tl.debug_barrier()  # the split

        can_err = (p > 0) & (m > 0)
        free = (cutoff == 0) & (METHOD == CONTINGENCY) & (MEASURE != BREAK_EVEN)
        k = tl.minimum(cutoff, p + m)
        if METHOD == CONTINGENCY:
            k = tl.where(cutoff > 0, k, p)
            least_wrong = 1
            if MEASURE == SUCCESS:
                least_wrong = k
            can_err = tl.where(free, (p > 0) | (MEASURE == ACCURACY), can_err & (m >= least_wrong) & (k < p + m))
        pairs = as_double(p) * as_double(m)
        loss = zero()
        scale = zero() + 1.0
        shift = zero()
        if wrong > 0:
            tl.store(task_loss + index, float("nan"))
            tl.store(value + index, float("nan"))
        elif can_err:
            if METHOD <= AREA:
                scale = 2.0 / pairs
            own = (scale, sums[0], sums[1], heads, own_sums)
            if METHOD == AUC:
                swapped = pairwise.add_pairs(
                    split, decided, coefficient, weights, sums, 1.0, steps, pairwise.BY_HALF, BLOCK
                )
                if weights is not None:
                    pairs = tl.load(sums[0] + p) * tl.load(sums[1] + m)
                    scale = tl.where(pairs > 0.0, 2.0 / pairs, 0.0)
                loss = tl.where(pairs > 0.0, swapped / pairs, 0.0)
            elif METHOD <= AT_CUTOFF:
                gain = 1.0 / as_double(p)
                best = as_double(tl.minimum(p, k)) / as_double(p)
                if (METHOD == CONVEX) | (METHOD == AT_CUTOFF):
                    gain, best = pairwise.worth(table, p, m, high_gain, NORMALIZED, BLOCK)
                if best == 0.0:
                    scale = zero()  # no ranking can be wrong
                elif METHOD <= CONVEX:
                    level = table
                    discounts = table
                    if METHOD == AP:
                        discounts = None
                    else:
                        level = table - 1  # from rank 1
                    factor = 0.5 * as_double(m) * as_double(p) * gain
                    pairwise.place_convex(split, factor, level, slope, sums[0], ends, decided, BLOCK)
                    tl.debug_barrier()  # the placement
                    loss = best - pairwise.measure_of(
                        split, p + m, gain, discounts, decided, steps, pairwise.BY_IRRELEVANT, BLOCK
                    )
                    pairwise.add_pairs(
                        split, decided, coefficient, None, sums, 1.0, steps, pairwise.BY_IRRELEVANT, BLOCK
                    )
                else:
                    pairwise.place_to_cutoff(split, own, k, gain, table, cells, decided, steps, BLOCK)
                    tl.debug_barrier()  # the placement
                    loss = best - pairwise.measure_of(
                        split, k, gain, table, decided, steps, pairwise.BY_RELEVANT, BLOCK
                    )
                    pairwise.add_pairs(split, decided, coefficient, None, sums, 1.0, steps, pairwise.BY_RELEVANT, BLOCK)
            elif METHOD == FIRST:
                loss = pairwise.place_first(split, own, cutoff, decided, steps, BLOCK)
                tl.debug_barrier()  # the placement
                pairwise.add_pairs(split, decided, coefficient, None, sums, 1.0, steps, pairwise.BY_RELEVANT, BLOCK)
            elif METHOD == FIRST_RELEVANT:
                r = reciprocal_rank.most_above(split, cutoff, BLOCK)
                loss = tl.where(r > 0, reciprocal_rank.first_loss(r, cutoff), 0.0)
                reciprocal_rank.add_above(split, r, coefficient, 1.0, BLOCK)
            elif METHOD == SURROGATE:
                average: tl.constexpr = MEASURE % 2 == 1
                slack: tl.constexpr = MEASURE >= 2
                found = top_surrogate.most_violated(split, cutoff, table, high_gain, NORMALIZED, average, slack, BLOCK)
                _, loss, _ = found
                top_surrogate.add_swaps(split, cutoff, table, found, coefficient, average, slack, BLOCK)
            elif METHOD == CONTINGENCY:
                form = (cutoff, tl.load(numbers + 1))
                shift = tl.where(free, top, 0.0)  # for fixed k only differences matter
                ks = (tl.where(free, 0, k), tl.where(free, p + m, k))
                best_k = tl.where(free, p, k)
                best_a = tl.minimum(p, best_k)
                a, positive = f1.most_violated(split, ks, shift, form, sums, steps, MEASURE, BLOCK)
                loss = f1.value_of(best_a, best_k, p, m, form, MEASURE) - f1.value_of(a, positive, p, m, form, MEASURE)
                f1.add_positive(split, a, positive, coefficient, 1.0, BLOCK)
                tl.debug_barrier()  # the coefficients, and sums that have been read
                if (REFERENCE == PREDICTED) | ((REFERENCE == IDEAL_TIED) & (MEASURE == SUCCESS)):
                    raised = shift
                    if chosen is not None:
                        raised = zero()
                    tied: tl.constexpr = REFERENCE == IDEAL_TIED
                    best_a, best_k = f1.best_labelling(
                        preferred, ks, raised, tied, form, sums, steps, False, MEASURE, BLOCK
                    )
                f1.add_positive(preferred, best_a, best_k, coefficient, -1.0, BLOCK)
            else:  # the partial area
                low = tl.load(numbers + 1) * as_double(m)
                high = tl.load(numbers + 2) * as_double(m)
                skipped = tl.load(numbers + 3) * as_double(p)
                window = (low, high, skipped)
                width = high - low
                rest = as_double(p) - skipped
                if REFERENCE == BELOW_WINDOW:
                    scale = 2.0 / (width * rest)
                    loss = partial_auc.place_from_start(split, high, skipped, decided, steps, BLOCK)
                    partial_auc.add_area(split, decided, high, skipped, 1.0, coefficient, steps, BLOCK)
                    tl.debug_barrier()  # the placement has been read
                    loss -= partial_auc.place_from_start(preferred, low, skipped, decided, steps, BLOCK)
                    partial_auc.add_area(preferred, decided, low, skipped, -1.0, coefficient, steps, BLOCK)
                else:
                    loss = partial_auc.place_area(split, window, sums[1], decided, steps, METHOD == WINDOW, BLOCK)
                    if METHOD == AREA:
                        tl.debug_barrier()  # the placement
                        pairwise.add_pairs(
                            split, decided, coefficient, None, sums, 1.0, steps, pairwise.BY_RELEVANT, BLOCK
                        )
                    else:
                        scale = 2.0 / (high * rest)
                        partial_auc.add_area(split, decided, high, skipped, 1.0, coefficient, steps, BLOCK)
                loss /= rest * width
                if (METHOD == WINDOW) & (REFERENCE == PREDICTED):
                    tl.debug_barrier()  # the placement has been read
                    pairwise.place_by_score(preferred, decided, steps, BLOCK)
                    partial_auc.add_area(preferred, decided, high, skipped, -1.0, coefficient, steps, BLOCK)
            tl.debug_barrier()  # the coefficients
            if (REFERENCE == PREDICTED) & (METHOD <= AREA):
                pairwise.add_pairs(
                    preferred, decided, coefficient, weights, sums, -1.0, steps, pairwise.BY_SCORE, BLOCK
                )
            elif (REFERENCE == PREDICTED) & (METHOD == FIRST_RELEVANT):
                above = pairwise.above_relevant(p - 1, preferred, decided, steps, pairwise.BY_SCORE)
                reciprocal_rank.add_above(preferred, above, coefficient, -1.0, BLOCK)
            tl.debug_barrier()  # the coefficients
            runs = (sums[0], heads, ends)
            how = (scale, share, shift)
            product = zero()
            for turn in range(2):  # relevant documents, then the others; a loop, because both would be compiled
                skipped_by = tl.cast(turn, tl.int64) * stride
                many = tl.where(turn > 0, m, p)
                product += write(
                    coefficient, real + skipped_by, whole + skipped_by, many, chosen, direction, how, runs, TIED, BLOCK
                )
                tl.debug_barrier()  # the scratch has been read
            loss_of_all = tl.load(task_loss + index) + share * loss  # in memory, which costs less than registers
            value_of_all = tl.load(value + index) + share * tl.maximum(loss + product, 0.0)
            tl.debug_barrier()  # all have read them
            tl.store(task_loss + index, loss_of_all)
            tl.store(value + index, value_of_all)
        tl.debug_barrier()  # the next threshold writes the same scratch, and adds to the direction


def solve(call: Call, batch: DeviceBatch) -> bool:
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
        thresholds, shares = (on_device(each, device) for each in (call.thresholds, call.threshold_weights))
    numbers = [given[name] for name in ("low", "high", "min_tpr", "beta") if name in given]
    table = slope = cells = None
    if method == AP.value:
        table, slope = _harmonic(1 << batch.longest.bit_length(), device)
    elif "discounts" in given:
        table = on_device(options._arrays[0], device)
    cutoff = min(given.get("cutoff", batch.longest), 2**30)
    measure = given.get("measure", given.get("average", 0) + 2 * given.get("slack", 0))
    square = 0
    if method in (AP_AT_CUTOFF.value, AT_CUTOFF.value):
        square = (min(cutoff, batch.longest // 2 + 1) + 2) ** 2
        if 8 * square * batch.lists > MOST_SPACE:
            return False
        cells = torch.empty(square * batch.lists, dtype=torch.float64, device=device)
    if batch.longest > batch.block**2:
        return False
    single = call.thresholds is None
    by_input = method == CONTINGENCY.value and reference == IDEAL.value  # the ideal labelling is in input order
    preferred_by = batch.scores if by_input else batch.chosen
    tied = batch.weights is None and not by_input
    solve_binary[(batch.lists,)](
        batch.scores, batch.labels, batch.where, batch.weights, batch.chosen, batch.order, preferred_by,
        batch.chosen_order, batch.offsets, thresholds, shares, on_device([batch.least_label, *numbers], device), table, slope,
        batch.space(8, torch.float64), batch.space(7, torch.int32), cells, batch.task_loss, batch.value, batch.direction,
        batch.size, batch.stride, square, len(thresholds), batch.longest.bit_length() + 1, cutoff,
        METHOD=method, REFERENCE=reference, MEASURE=measure, NORMALIZED=bool(given.get("normalized")),
        STRICT=single and bool(np.isnan(call.min_relevant)), ROUND=single, TIED=tied, BLOCK=batch.block,
        **launched_with(batch.block // 128, 168 if method in (SURROGATE.value, CONTINGENCY.value) else 128),
    )  # fmt: skip
    return True


@lru_cache(maxsize=8)
def _harmonic(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Minus the harmonic numbers, and minus their terms, from 0."""
    terms = -1.0 / np.arange(1, size + 1)
    return on_device(np.append(0.0, np.cumsum(terms)), device), on_device(np.append(0.0, terms), device)
