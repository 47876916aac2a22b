"""Measures of a contingency table; see f1.hpp. Each number k of positive documents has a lane, which finds by bisection the best
number of relevant ones among them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rankstruct.kernels.gpu.common import add, as_double, sum_up, zero

#: The measures, by the numbers of f1.hpp.
PRECISION, RECALL, SUCCESS, F, ACCURACY, BREAK_EVEN = (tl.constexpr(number) for number in range(6))


@triton.jit
def slope_of(k, p, m, form, MEASURE: tl.constexpr):
    """The increase of the measure per relevant document among k positive ones."""
    cutoff, beta = form
    relevant = as_double(tl.maximum(p, 1))
    if MEASURE == PRECISION:
        return 1.0 / as_double(cutoff) + as_double(tl.zeros_like(k))
    if MEASURE == SUCCESS:
        return as_double(tl.zeros_like(k))
    if MEASURE == F:
        return (1.0 + beta * beta) / (as_double(k) + beta * beta * relevant)
    if MEASURE == ACCURACY:
        return 2.0 / as_double(tl.maximum(p + m, 1)) + as_double(tl.zeros_like(k))
    return 1.0 / relevant + as_double(tl.zeros_like(k))


@triton.jit
def value_of(a, k, p, m, form, MEASURE: tl.constexpr):
    """The measure of labellings with a relevant documents among k positive ones."""
    if MEASURE == SUCCESS:
        value = as_double(tl.where(a > 0, 1, 0))
    else:
        value = slope_of(k, p, m, form, MEASURE) * as_double(a)
    if MEASURE == ACCURACY:
        value += as_double(m - k) / as_double(tl.maximum(p + m, 1))
    return value


@triton.jit
def best_labelling(
    split, ks, shift, lowest, form, sums, steps, WEIGHED: tl.constexpr, MEASURE: tl.constexpr, BLOCK: tl.constexpr
):
    """The best numbers of relevant and of positive documents, by score plus `shift`, minus the measure if `WEIGHED`."""
    p, m, r_score, i_score, r_place, i_place = split
    first, last = ks
    r_sums, i_sums = sums
    sum_up(r_score, None, p, shift, r_sums, BLOCK)
    sum_up(i_score, None, m, shift, i_sums, BLOCK)
    tl.debug_barrier()  # the sums
    best = zero() - float("inf")
    best_a = 0
    best_k = first
    for begin in range(first, last + 1, BLOCK):
        k = begin + tl.arange(0, BLOCK)
        real = k <= last
        slope = slope_of(k, p, m, form, MEASURE)
        low = tl.maximum(k - m, lowest)
        high = tl.maximum(tl.minimum(p, k), low)
        for _ in range(steps):
            a = (low + high) // 2
            open = real & (low < high)
            gain = tl.load(r_score + a, open, other=0.0)
            lost = tl.load(i_score + k - a - 1, open, other=0.0)
            if WEIGHED:
                yes = gain - slope > lost
            else:
                yes = gain >= lost
            low = tl.where(open & yes, a + 1, low)
            high = tl.where(open & ~yes, a, high)
        total = tl.load(r_sums + low, real, other=0.0) + tl.load(i_sums + k - low, real, other=0.0)
        if WEIGHED:
            total -= value_of(low, k, p, m, form, MEASURE)
        total = tl.where(real, total, -float("inf"))
        here = tl.max(total, 0)
        if here > best:
            best_k = tl.min(tl.where(total == here, k, last), 0)
            best_a = tl.sum(tl.where(k == best_k, low, 0), 0)
            best = here
    return best_a, best_k


@triton.jit
def most_violated(split, ks, shift, form, sums, steps, MEASURE: tl.constexpr, BLOCK: tl.constexpr):
    """The numbers of relevant and of positive documents of the most violated labelling."""
    if MEASURE != SUCCESS:
        return best_labelling(split, ks, shift, 0, form, sums, steps, True, MEASURE, BLOCK)
    # The best labelling with a relevant document, or the best without, whose task loss is 1.
    a, k = best_labelling(split, ks, shift, 1, form, sums, steps, False, MEASURE, BLOCK)
    lead = 1.0 + tl.load(sums[1] + k) - tl.load(sums[1] + k - a) - tl.load(sums[0] + a)
    return tl.where(lead > 0.0, 0, a), k


@triton.jit
def add_positive(split, a, k, coefficient, sign, BLOCK: tl.constexpr):
    """Add the positive documents of a labelling."""
    p, m, r_score, i_score, r_place, i_place = split
    for begin in range(0, a, BLOCK):
        add(coefficient, r_place, a, begin + tl.arange(0, BLOCK), sign)
    for begin in range(0, k - a, BLOCK):
        add(coefficient, i_place, k - a, begin + tl.arange(0, BLOCK), sign)
