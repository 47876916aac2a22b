"""What the kernels share: the bounds of a list, its split by relevance, bisection, and the coefficients of tied documents.

A program solves one list; its lanes go over the documents a block at a time. What one lane writes for another goes through
scratch in global memory, and `tl.debug_barrier`, which is `__syncthreads`, stands between the two. Sums are in float64 without
fused multiply-adds, as in the core.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

#: The comparisons of `bisect`, of an element x with a bound v.
ABOVE, AT_LEAST, AT_MOST, BELOW, WITHIN_HALF, HALF_ABOVE = (tl.constexpr(number) for number in range(6))


def compiled_once(function: Callable[..., Any]) -> Any:
    """A kernel of which one program serves all sizes, where Triton would compile more for 1 and for multiples of 16."""
    parameters = inspect.signature(function).parameters.values()
    return triton.jit(do_not_specialize=[each.name for each in parameters if each.annotation != "tl.constexpr"])(
        function
    )


def launched_with(warps: int, registers: int = 255) -> dict[str, Any]:
    """The options of a launch, with at most so many registers a thread.

    Without a limit, `ptxas` spills a few so that more programs fit, which other versions of it do elsewhere.
    """
    limit = {} if torch.version.hip else {"maxnreg": registers}
    return {"num_warps": warps, "enable_fp_fusion": False, **limit}


@triton.jit
def zero():
    """A scalar, float64."""
    return tl.full((), 0.0, tl.float64)


@triton.jit
def as_double(value):
    """In float64."""
    return tl.cast(value, tl.float64)


@triton.jit
def bounds(offsets, size):
    """The first document of the program's list and their number."""
    index = tl.cast(tl.program_id(0), tl.int64)
    if offsets is not None:
        start = tl.load(offsets + index)
        stop = tl.load(offsets + index + 1)
    else:
        start = index * size
        stop = start + size
    return start, tl.cast(stop - start, tl.int32)


@triton.jit
def of_list(values, start):
    """Where a list's numbers begin, if there are any."""
    if values is not None:
        values += start
    return values


@triton.jit
def is_finite(value):
    """Whether numbers are neither infinite nor NaN."""
    return tl.abs(value) < float("inf")


@triton.jit
def read_label(labels, at, mask, least):
    """Labels in float64, and whether they are finite and at least `least`; integers that it cannot represent are not."""
    own = tl.load(labels + at, mask, other=0)
    label = as_double(own)
    right = is_finite(label) & (label >= least)
    if own.dtype == tl.int64:
        right = right & (label < 9223372036854775808.0) & (tl.cast(label, tl.int64) == own)
    return label, right


@triton.jit
def later(a, b):
    """The maximum, for `tl.associative_scan`."""
    return tl.maximum(a, b)


@triton.jit
def document(order, where, t, n):
    """The position in its list of the t-th document in an order, and whether it is real."""
    inside = t < n
    at = t
    if order is not None:  # else in input order
        at = tl.cast(tl.load(order + t, inside, other=0), tl.int32)
    if where is not None:
        inside = inside & (tl.load(where + at, inside, other=0) != 0)
    return at, inside


@triton.jit
def divide(values, labels, where, order, n, top, test, score_of, place, stride, ROUND: tl.constexpr, STRICT: tl.constexpr,
           BLOCK: tl.constexpr):  # fmt: skip
    """Write scores, `values` minus `top`, and places of the relevant and, `stride` after them, of the irrelevant documents.

    `test` has the lowest relevant and the lowest valid label. Returns the numbers of both, whether a number is invalid, and the
    extreme labels of the relevant ones.
    """
    threshold, least = test
    p = 0
    m = 0
    wrong = 0
    high = zero() - float("inf")
    low = zero() + float("inf")
    for begin in range(0, n, BLOCK):
        at, real = document(order, where, begin + tl.arange(0, BLOCK), n)
        score = tl.cast(tl.load(values + at, real, other=0.0), tl.float64) - top
        label, right = read_label(labels, at, real, least)
        wrong += tl.sum(tl.cast(real & ~(is_finite(score) & right), tl.int32), 0)
        if STRICT:
            relevant = real & (label > threshold)
        elif ROUND:
            relevant = real & (as_double(tl.cast(label, tl.float32)) >= threshold)
        else:
            relevant = real & (label >= threshold)
        other = real & ~relevant
        high = tl.maximum(high, tl.max(tl.where(relevant, label, -float("inf")), 0))
        low = tl.minimum(low, tl.min(tl.where(relevant, label, float("inf")), 0))
        i = p + tl.cumsum(tl.cast(relevant, tl.int32), 0) - 1
        j = m + tl.cumsum(tl.cast(other, tl.int32), 0) - 1
        tl.store(score_of + i, score, relevant)
        tl.store(place + i, at, relevant)
        tl.store(score_of + stride + j, score, other)
        tl.store(place + stride + j, at, other)
        p += tl.sum(tl.cast(relevant, tl.int32), 0)
        m += tl.sum(tl.cast(other, tl.int32), 0)
    return p, m, wrong, low, high


@triton.jit
def bisect(sorted, size, bound, low, steps, TEST: tl.constexpr):
    """How many leading elements pass a test that, once false, stays false; of those before `low` it is known."""
    low = low + tl.cast(tl.zeros_like(bound), tl.int32)
    high = size + tl.zeros_like(low)
    for _ in range(steps):
        middle = (low + high) // 2
        open = low < high
        x = tl.load(sorted + middle, open, other=0)
        if TEST == ABOVE:
            yes = x > bound
        elif TEST == AT_LEAST:
            yes = x >= bound
        elif TEST == AT_MOST:
            yes = x <= bound
        elif TEST == BELOW:
            yes = x < bound
        elif TEST == WITHIN_HALF:  # an irrelevant document that a relevant one, the bound, leads by less than 1/2
            yes = bound - x < 0.5
        else:  # a relevant document that leads an irrelevant one, the bound, by at least that
            yes = x - bound >= 0.5
        low = tl.where(open & yes, middle + 1, low)
        high = tl.where(open & ~yes, middle, high)
    return low


@triton.jit
def sum_up(values, place, size, shift, sums, BLOCK: tl.constexpr):
    """Prefix sums of values, those at `place` if that is given, plus `shift`, `size + 1`."""
    tl.store(sums, 0.0)
    carry = zero()
    for begin in range(0, size, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        at = t
        if place is not None:
            at = tl.load(place + t, t < size, other=0)
        own = tl.where(t < size, tl.load(values + at, t < size, other=0.0) + shift, 0.0)
        tl.store(sums + t + 1, carry + tl.cumsum(own, 0), t < size)
        carry += tl.sum(own, 0)


@triton.jit
def sum_between(values, first, last, BLOCK: tl.constexpr):
    """The sum of the values from `first` to `last - 1`."""
    total = zero()
    for begin in range(first, last, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(values + t, t < last, other=0.0), 0)
    return total


@triton.jit
def add(coefficient, place, size, t, by):
    """Add to the coefficients, by place, of the t-th documents of a class."""
    at = coefficient + tl.load(place + t, t < size, other=0)
    tl.store(at, tl.load(at, t < size, other=0.0) + by, t < size)


@triton.jit
def clear(coefficient, n, BLOCK: tl.constexpr):
    """Set the coefficients of a list to 0."""
    for begin in range(0, n, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        tl.store(coefficient + t, tl.full((BLOCK,), 0.0, tl.float64), t < n)


@triton.jit
def differ(score, place, chosen, t, size):
    """Whether documents t - 1 and t of a class, by score, differ in score, or in the score that determines the reference."""
    inside = (t > 0) & (t < size)
    found = tl.load(score + t, inside, other=0.0) != tl.load(score + t - 1, inside, other=0.0)
    if chosen is not None:
        own = tl.load(chosen + tl.load(place + t, inside, other=0), inside, other=0.0)
        found = found | (own != tl.load(chosen + tl.load(place + t - 1, inside, other=0), inside, other=0.0))
    return found | ~inside


@triton.jit
def write(coefficient, score, place, size, chosen, direction, how, runs, SHARE: tl.constexpr, BLOCK: tl.constexpr):
    """Add `share` times the coefficients of a class, by `scale`, to the direction: tied documents have their mean.

    Returns the product with the scores, plus `shift`.
    """
    scale, share, shift = how
    sums, heads, ends = runs
    if SHARE:
        carry = zero()
        head = 0
        tl.store(sums, 0.0)
        for begin in range(0, size, BLOCK):
            t = begin + tl.arange(0, BLOCK)
            inside = t < size
            own = tl.load(coefficient + tl.load(place + t, inside, other=0), inside, other=0.0)
            tl.store(sums + t + 1, carry + tl.cumsum(own, 0), inside)
            carry += tl.sum(own, 0)
            begins = tl.where(inside & differ(score, place, chosen, t, size), t, 0)
            its = tl.maximum(tl.associative_scan(begins, 0, later), head)
            tl.store(heads + t, its, inside)
            tl.store(ends + its, t + 1, inside & differ(score, place, chosen, t + 1, size))
            head = tl.max(its, 0)
        tl.debug_barrier()  # sums and ends of a run come from other lanes
    product = zero()
    for begin in range(0, size, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        inside = t < size
        at = tl.load(place + t, inside, other=0)
        mean = tl.load(coefficient + at, inside, other=0.0)
        if SHARE:
            its = tl.load(heads + t, inside, other=0)
            end = tl.load(ends + its, inside, other=1)
            total = tl.load(sums + end, inside, other=0.0) - tl.load(sums + its, inside, other=0.0)
            mean = tl.where(end > its + 1, total / as_double(end - its), mean)
        mean = mean * scale
        product += tl.sum(tl.where(inside, mean * (tl.load(score + t, inside, other=0.0) + shift), 0.0), 0)
        own = tl.load(direction + at, inside, other=0.0)
        tl.store(direction + at, own + share * mean, inside)
    return product
