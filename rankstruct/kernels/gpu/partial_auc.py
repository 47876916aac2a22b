"""The partial ROC area; see partial_auc.hpp. Each relevant document finds both of its candidate places by bisection."""

from __future__ import annotations

import triton
import triton.language as tl

from rankstruct.kernels.gpu.common import ABOVE, AT_MOST, add, as_double, bisect, later, sum_up, zero


@triton.jit
def within(b, low, high):
    """The part of the window in the first b cells."""
    return tl.minimum(tl.maximum(as_double(b), low), high) - low


@triton.jit
def weight_of(i, skipped):
    """The part of the cell of relevant i that counts."""
    return tl.minimum(1.0, tl.maximum(0.0, as_double(i + 1) - skipped))


@triton.jit
def first_cells(b, end, last, i_score, sums):
    """The sum of c_j s_j over the first b cells, and that of c_j."""
    whole = tl.cast(end, tl.int32)
    partial = tl.load(sums + whole) + (end - as_double(whole)) * tl.load(i_score + whole, whole < last, other=0.0)
    score = tl.where(b <= whole, tl.load(sums + tl.minimum(b, whole)), partial)
    return score, tl.where(b <= whole, as_double(b), end)


@triton.jit
def bisect_raised(i_score, low, last, own, raised, high, steps, RESTRICTED: tl.constexpr):
    """The end of the cells from `low` on whose scores, raised by their share, are above `own`."""
    last = tl.maximum(last, low) + tl.cast(tl.zeros_like(own), tl.int32)
    low = low + tl.zeros_like(last)
    for _ in range(steps):
        middle = (low + last) // 2
        open = low < last
        share = tl.maximum(0.0, tl.minimum(as_double(middle + 1), high) - as_double(middle))
        if RESTRICTED:
            share = tl.where(share > 0.0, 1.0, 0.0)
        yes = tl.load(i_score + middle, open, other=0.0) + share * raised > own
        low = tl.where(open & yes, middle + 1, low)
        last = tl.where(open & ~yes, middle, last)
    return low


@triton.jit
def place_area(split, window, sums, decided, steps, RESTRICTED: tl.constexpr, BLOCK: tl.constexpr):
    """Place by relevant document; returns the sum of v_i W(b_i)."""
    p, m, r_score, i_score, r_place, i_place = split
    low, high, skipped = window
    rest = as_double(p) - skipped
    if RESTRICTED:
        end = high
        lift = 0.5 * high / (high - low)
    else:
        end = as_double(m)
        lift = 0.5 * (as_double(p) * as_double(m) / rest) / (high - low)
    last = tl.cast(tl.ceil(end), tl.int32)
    start = tl.where(low > 0.0, tl.cast(low, tl.int32) + 1, 0)
    sum_up(i_score, None, m, 0.0, sums, BLOCK)
    tl.debug_barrier()  # the sums
    placed = 0
    missed = zero()
    for begin in range(0, p, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        weight = weight_of(i, skipped)
        own = tl.load(r_score + i, i < p, other=0.0)
        raised = lift * tl.full((BLOCK,), 1.0, tl.float64)
        if not RESTRICTED:
            raised = weight * lift
        before = bisect(i_score, tl.maximum(start - 1, 0), own, 0, steps, ABOVE)
        inside = bisect_raised(i_score, start, last, own, raised, high, steps, RESTRICTED)
        near, near_count = first_cells(before, end, m, i_score, sums)
        far, far_count = first_cells(inside, end, m, i_score, sums)
        gain = far - near - (far_count - near_count) * own + raised * within(inside, low, high)
        best = tl.where((start > 0) & (gain <= 0.0), before, inside)
        counts = i < p
        if RESTRICTED:
            counts = counts & (weight > 0.0)
        best = tl.maximum(
            tl.associative_scan(tl.where(counts, best, 0), 0, later), placed
        )  # rounding might decrease it
        placed = tl.max(best, 0)
        best = tl.where(counts, best, 0)
        tl.store(decided + i, best, i < p)
        missed += tl.sum(tl.where(counts, weight * within(best, low, high), 0.0), 0)
    return missed


@triton.jit
def place_from_start(split, end, skipped, decided, steps, BLOCK: tl.constexpr):
    """The same in the window of the first `end` cells."""
    p, m, r_score, i_score, r_place, i_place = split
    last = tl.cast(tl.ceil(end), tl.int32)
    missed = zero()
    for begin in range(0, p, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        own = tl.load(r_score + i, i < p, other=0.0)
        above = bisect_raised(i_score, 0, last, own, 0.5, end, steps, True)
        tl.store(decided + i, above, i < p)
        missed += tl.sum(tl.where(i < p, weight_of(i, skipped) * tl.minimum(as_double(above), end), 0.0), 0)
    return missed


@triton.jit
def add_area(split, decided, end, skipped, scale, coefficient, steps, BLOCK: tl.constexpr):
    """Add psi of a placement over the first `end` cells."""
    p, m, r_score, i_score, r_place, i_place = split
    tl.debug_barrier()  # the placement
    last = tl.cast(tl.ceil(end), tl.int32)
    for begin in range(0, last, BLOCK):
        j = begin + tl.arange(0, BLOCK)
        i = as_double(bisect(decided, p, j, 0, steps, AT_MOST))
        cell = tl.minimum(as_double(j + 1), end) - as_double(j)
        add(coefficient, i_place, last, j, scale * (cell * (as_double(p) - tl.maximum(skipped, i))))
    for begin in range(0, p, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        above = tl.minimum(tl.cast(tl.load(decided + i, i < p, other=0), tl.float64), end)
        add(coefficient, r_place, p, i, 0.0 - scale * (weight_of(i, skipped) * above))
