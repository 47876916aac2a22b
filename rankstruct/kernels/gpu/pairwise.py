"""Placements of the pairwise map: how many irrelevant documents stand above each relevant one; see pairwise.hpp.

A device has lanes to spare, so the placements are dense. For AP and convex discounts each irrelevant document has a lane, which
takes the best of all places among the relevant documents: O(p) steps for a block of irrelevant documents. The places never
decrease, so in a list of several blocks those of the last ones of each block come first, and then each block tries only the
places between: O(p + blocks) steps in all. Up to a cut-off, the lanes are the columns of the dynamic program.

All compute `decided`: by irrelevant document the first relevant one below it, from 1, for convex discounts; otherwise by relevant
document the number above it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rankstruct.kernels.gpu.common import (
    ABOVE,
    AT_LEAST,
    AT_MOST,
    BELOW,
    HALF_ABOVE,
    WITHIN_HALF,
    add,
    as_double,
    bisect,
    later,
    sum_up,
    zero,
)


@triton.jit
def worth(table, p, m, gain, NORMALIZED: tl.constexpr, BLOCK: tl.constexpr):
    """The gain by unit of discount and the value of the best ranking; 0 if no ranking can be wrong."""
    total = zero()
    for begin in range(0, p, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(table + t, t < p, other=0.0), 0)
    can_err = (p > 0) & (m > 0) & (total > 0.0)
    can_err = can_err & (tl.load(table) != tl.load(table + p + m - 1, can_err, other=0.0))
    total = tl.where(can_err, total, 1.0)
    if NORMALIZED:
        return tl.where(can_err, 1.0 / total, 0.0), as_double(tl.where(can_err, 1.0, 0.0))
    return tl.where(can_err, gain, 0.0), tl.where(can_err, gain * total, 0.0)


@triton.jit
def walk(low, high, j, valid, score, total, p, factor, r_score, sums, level, slope, STORE: tl.constexpr):
    """The first best of the places low..high for irrelevant documents j, from 1; `total` is of the relevant ones before low."""
    best = tl.zeros_like(score) - float("inf")
    found = tl.zeros_like(j) + low
    for k in range(low, high + 1):
        r = k + j - 1
        own = total - as_double(k - 1) * score
        rest = tl.load(level + r, valid, other=0.0)
        if slope is not None:
            rest += as_double(j - 1) * tl.load(slope + r, valid, other=0.0)
        own += factor * rest
        found = tl.where(own > best, k, found)
        best = tl.maximum(best, own)
        if STORE:
            tl.store(sums + k - 1, total)
        total += tl.load(r_score + k - 1, k <= p, other=0.0)
    return found


@triton.jit
def place_convex(split, factor, level, slope, sums, ends, decided, BLOCK: tl.constexpr):
    """AP without a cut-off and convex discounts, by irrelevant document."""
    p, m, r_score, i_score, r_place, i_place = split
    if m > BLOCK:
        block = tl.arange(0, BLOCK)
        j = tl.minimum((block + 1) * BLOCK, m)
        valid = block * BLOCK < m
        score = tl.load(i_score + j - 1, valid, other=0.0)
        tl.store(
            ends + block, walk(1, p + 1, j, valid, score, zero(), p, factor, r_score, sums, level, slope, True), valid
        )
        tl.debug_barrier()  # each block reads its bounds and where to begin
    low = 1
    for begin in range(0, m, BLOCK):
        j = begin + tl.arange(0, BLOCK) + 1
        valid = j <= m
        high = p + 1
        total = zero()
        if m > BLOCK:
            high = tl.maximum(tl.load(ends + begin // BLOCK), low)
            total = tl.load(sums + low - 1)
        score = tl.load(i_score + j - 1, valid, other=0.0)
        found = walk(low, high, j, valid, score, total, p, factor, r_score, sums, level, slope, False)
        found = tl.associative_scan(found, 0, later)  # rounding might decrease it
        tl.store(decided + j - 1, found, valid)
        low = tl.max(tl.where(valid, found, 1), 0)


@triton.jit
def tail(first, b, p, own, steps):
    """The gain of the relevant documents from `first` on if each takes its own best number, but at least b."""
    scale, r_sums, i_sums, own_best, own_sums = own
    low = bisect(own_best, p, b, first, steps, BELOW)
    of_b = tl.load(i_sums + b)
    moved = tl.load(r_sums + low) - tl.load(r_sums + first)
    return scale * (as_double(low - first) * of_b - as_double(b) * moved) + tl.load(own_sums + low)


@triton.jit
def find_own(split, own, steps, BLOCK: tl.constexpr):
    """How many irrelevant documents score above each relevant one, and sums of the gains from each on."""
    p, m, r_score, i_score, r_place, i_place = split
    scale, r_sums, i_sums, own_best, own_sums = own
    sum_up(r_score, None, p, 0.0, r_sums, BLOCK)
    sum_up(i_score, None, m, 0.0, i_sums, BLOCK)
    tl.debug_barrier()  # the sums
    tl.store(own_sums + p, 0.0)
    carry = zero()
    for block in range((p + BLOCK - 1) // BLOCK):
        i = p - 1 - block * BLOCK - tl.arange(0, BLOCK)  # from the last one
        inside = i >= 0
        score = tl.load(r_score + i, inside, other=0.0)
        b = bisect(i_score, m, score, 0, steps, ABOVE)
        gain = tl.where(inside, scale * (tl.load(i_sums + b) - as_double(b) * score), 0.0)
        tl.store(own_best + i, b, inside)
        tl.store(own_sums + i, carry + tl.cumsum(gain, 0), inside)
        carry += tl.sum(gain, 0)
    tl.debug_barrier()  # their numbers


@triton.jit
def credit(table, gain, i, b, mask):
    """The worth of the i-th relevant document, from 0, below b irrelevant ones."""
    if table is not None:
        return gain * tl.load(table + i + b, mask, other=0.0)
    return gain * as_double(i + 1) / as_double(i + 1 + b)


@triton.jit
def place_to_cutoff(split, own, k, gain, table, cells, decided, steps, BLOCK: tl.constexpr):
    """AP@k and discounted gains up to rank k: row i of the program is T_i(b), and row 0 is 0."""
    p, m, r_score, i_score, r_place, i_place = split
    scale, r_sums, i_sums, own_best, own_sums = own
    find_own(split, own, steps, BLOCK)
    rows = tl.minimum(p, k)
    columns = tl.minimum(m, k) + 1
    for begin in range(0, columns, BLOCK):
        b = begin + tl.arange(0, BLOCK)
        tl.store(cells + b, tl.full((BLOCK,), 0.0, tl.float64), b < columns)
    best = zero() - float("inf")
    if k <= m:
        best = tail(0, k, p, own, steps)
    best_t = 0
    best_b = 0
    for row in range(1, rows + 1):
        tl.debug_barrier()  # the row before
        before = cells + tl.cast(row - 1, tl.int64) * columns
        last = tl.minimum(m, k - row)
        score = tl.load(r_score + row - 1)
        highest = zero() - float("inf")
        row_best = zero() - float("inf")
        row_b = 0
        for begin in range(0, last + 1, BLOCK):
            b = begin + tl.arange(0, BLOCK)
            inside = b <= last
            running = tl.associative_scan(tl.load(before + b, inside, other=-float("inf")), 0, later)
            running = tl.maximum(running, highest)
            highest = tl.max(running, 0)
            value = running + scale * (tl.load(i_sums + b, inside, other=0.0) - as_double(b) * score)
            value = tl.where(inside, value - credit(table, gain, row - 1, b, inside), -float("inf"))
            tl.store(before + columns + b, value, inside)
            here = tl.max(value, 0)
            if here > row_best:
                row_b = tl.min(tl.where(value == here, b, last), 0)
                row_best = here
        if (row == p) | (k - row <= m):
            if row < p:
                row_best += tail(row, k - row, p, own, steps)
            if row_best > best:
                best = row_best
                best_t = row
                best_b = row_b
    tl.debug_barrier()  # the last row
    b_here = best_b
    for back in range(best_t):
        row = best_t - back
        tl.store(decided + row - 1, b_here)
        before = cells + tl.cast(row - 1, tl.int64) * columns
        highest = zero() - float("inf")
        at = 0
        for begin in range(0, b_here + 1, BLOCK):  # the first of the highest up to b
            b = begin + tl.arange(0, BLOCK)
            value = tl.load(before + b, b <= b_here, other=-float("inf"))
            here = tl.max(value, 0)
            if here > highest:
                at = tl.min(tl.where(value == here, b, b_here), 0)
                highest = here
        b_here = at
    for begin in range(best_t, p, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        tl.store(decided + i, tl.maximum(tl.load(own_best + i, i < p, other=0), k - best_t), i < p)


@triton.jit
def place_first(split, own, k, decided, steps, BLOCK: tl.constexpr):
    """Reciprocal rank: all ranks of the first relevant document. Returns the task loss."""
    p, m, r_score, i_score, r_place, i_place = split
    scale, r_sums, i_sums, own_best, own_sums = own
    find_own(split, own, steps, BLOCK)
    best = zero() - float("inf")
    best_b = 0
    for begin in range(tl.load(own_best), m + 1, BLOCK):
        b = begin + tl.arange(0, BLOCK)
        inside = b <= m
        at = tl.where(inside, b, m)
        earned = tl.where(b < k, 1.0 / as_double(1 + b), 0.0)
        value = tl.where(inside, tail(0, at, p, own, steps) - earned, -float("inf"))
        here = tl.max(value, 0)
        if here > best:
            best_b = tl.min(tl.where(value == here, b, m), 0)
            best = here
    for begin in range(0, p, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        tl.store(decided + i, tl.maximum(tl.load(own_best + i, i < p, other=0), best_b), i < p)
    return 1.0 - tl.where(best_b < k, 1.0 / as_double(1 + best_b), 0.0)


#: How `add_pairs` finds the pairs that are swapped: by `decided`, or those within 1/2 (AUC) or below 0 (the predicted ranking).
BY_IRRELEVANT, BY_RELEVANT, BY_HALF, BY_SCORE = (tl.constexpr(number) for number in range(4))


@triton.jit
def above_relevant(i, split, decided, steps, BY: tl.constexpr):
    """The number of irrelevant documents above relevant ones."""
    p, m, r_score, i_score, r_place, i_place = split
    if BY == BY_RELEVANT:
        return tl.load(decided + i, i < p, other=0)
    if BY == BY_IRRELEVANT:
        return bisect(decided, m, i + 1, 0, steps, AT_MOST)
    score = tl.load(r_score + i, i < p, other=0.0)
    if BY == BY_HALF:
        return bisect(i_score, m, score, 0, steps, WITHIN_HALF)
    return bisect(i_score, m, score, 0, steps, ABOVE)


@triton.jit
def place_by_score(split, decided, steps, BLOCK: tl.constexpr):
    """The ranking by score."""
    for begin in range(0, split[0], BLOCK):
        i = begin + tl.arange(0, BLOCK)
        tl.store(decided + i, above_relevant(i, split, decided, steps, BY_SCORE), i < split[0])


@triton.jit
def above_irrelevant(j, split, decided, steps, BY: tl.constexpr):
    """The number of relevant documents above irrelevant ones."""
    p, m, r_score, i_score, r_place, i_place = split
    if BY == BY_RELEVANT:
        return bisect(decided, p, j, 0, steps, AT_MOST)
    if BY == BY_IRRELEVANT:
        return tl.load(decided + j, j < m, other=1) - 1
    score = tl.load(i_score + j, j < m, other=0.0)
    if BY == BY_HALF:
        return bisect(r_score, p, score, 0, steps, HALF_ABOVE)
    return bisect(r_score, p, score, 0, steps, AT_LEAST)


@triton.jit
def add_pairs(split, decided, coefficient, weights, sums, sign, steps, BY: tl.constexpr, BLOCK: tl.constexpr):
    """Add the number, or the weight, of each document's swapped pairs, negative for relevant ones; returns that of all."""
    p, m, r_score, i_score, r_place, i_place = split
    r_sums, i_sums = sums
    if weights is not None:
        sum_up(weights, r_place, p, 0.0, r_sums, BLOCK)
        sum_up(weights, i_place, m, 0.0, i_sums, BLOCK)
        tl.debug_barrier()  # the sums
    swapped = zero()
    for begin in range(0, p, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        above = above_relevant(i, split, decided, steps, BY)
        its = as_double(above)
        if weights is not None:
            own = tl.load(weights + tl.load(r_place + i, i < p, other=0), i < p, other=0.0)
            its = own * tl.load(i_sums + above)
        its = tl.where(i < p, its, 0.0)
        swapped += tl.sum(its, 0)
        add(coefficient, r_place, p, i, 0.0 - sign * its)
    for begin in range(0, m, BLOCK):
        j = begin + tl.arange(0, BLOCK)
        above = above_irrelevant(j, split, decided, steps, BY)
        its = as_double(p - above)
        if weights is not None:
            own = tl.load(weights + tl.load(i_place + j, j < m, other=0), j < m, other=0.0)
            its = own * (tl.load(r_sums + p) - tl.load(r_sums + above))
        add(coefficient, i_place, m, j, sign * its)
    return swapped


@triton.jit
def measure_of(split, k, gain, table, decided, steps, BY: tl.constexpr, BLOCK: tl.constexpr):
    """The value of the measure that a placement leaves."""
    p = split[0]
    total = zero()
    for begin in range(0, p, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        b = above_relevant(i, split, decided, steps, BY)
        inside = (i < p) & (i + 1 + b <= k)
        total += tl.sum(tl.where(inside, credit(table, gain, i, b, inside), 0.0), 0)
    return total
