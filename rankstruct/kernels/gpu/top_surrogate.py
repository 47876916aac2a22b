"""The surrogates of measures of the top; see top_surrogate.hpp. Each number of swaps has a lane."""

from __future__ import annotations

import triton
import triton.language as tl

from rankstruct.kernels.gpu.common import add, as_double, sum_between, zero


@triton.jit
def lost_by(split, table, unit, swap, inside):
    """What the measure loses by each swap."""
    p, m, r_score, i_score, r_place, i_place = split
    high = tl.load(table + swap, inside, other=0.0)
    return tl.where(inside, unit * (high - tl.load(table + (p + m - 1 - swap), inside, other=0.0)), 0.0)


@triton.jit
def most_violated(
    split, cutoff, table, gain, NORMALIZED: tl.constexpr, AVERAGE: tl.constexpr, SLACK: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The best number of swaps, their regret, and the gain by unit of discount."""
    p, m, r_score, i_score, r_place, i_place = split
    q = tl.minimum(p, cutoff)
    last = tl.minimum(q, m)
    unit = gain
    if NORMALIZED:
        unit = 1.0 / sum_between(table, 0, q, BLOCK)
    missed = zero()
    if AVERAGE:
        missed = sum_between(r_score, q, p, BLOCK)
    best = zero()
    swaps = 0
    its_regret = zero()
    regret = zero()
    margin = zero()
    for begin in range(0, last, BLOCK):
        swap = begin + tl.arange(0, BLOCK)
        inside = swap < last
        lost = lost_by(split, table, unit, swap, inside)
        lead = tl.load(i_score + swap, inside, other=0.0)
        if not AVERAGE:
            lead -= tl.load(r_score + (p - 1 - swap), inside, other=0.0)
        so_far = regret + tl.cumsum(lost, 0)
        total = margin + tl.cumsum(lost * lead, 0)
        margin += tl.sum(lost * lead, 0)
        regret += tl.sum(lost, 0)
        if AVERAGE:
            hit = tl.load(r_score + (q - 1 - swap), inside, other=0.0)
            total -= so_far * (missed + tl.cumsum(hit, 0)) / as_double(p - q + 1 + swap)
            missed += tl.sum(hit, 0)
        if SLACK:
            found = so_far * (1.0 + total)
        else:
            found = so_far + total
        found = tl.where(inside, found, -float("inf"))
        here = tl.max(found, 0)
        if here > best:
            best = here
            swaps = tl.min(tl.where(found == here, swap + 1, last), 0)
            its_regret = tl.sum(tl.where(swap + 1 == swaps, so_far, 0.0), 0)
    return swaps, its_regret, unit


@triton.jit
def add_swaps(
    split, cutoff, table, found, coefficient, AVERAGE: tl.constexpr, SLACK: tl.constexpr, BLOCK: tl.constexpr
):
    """Add the gradient of the surrogate."""
    p, m, r_score, i_score, r_place, i_place = split
    swaps, regret, unit = found
    factor = zero() + 1.0
    if SLACK:
        factor = regret
    for begin in range(0, swaps, BLOCK):
        swap = begin + tl.arange(0, BLOCK)
        by = factor * lost_by(split, table, unit, swap, swap < swaps)
        add(coefficient, i_place, swaps, swap, by)
        if not AVERAGE:
            add(coefficient, r_place, p, tl.where(swap < swaps, p - 1 - swap, p), 0.0 - by)
    if AVERAGE:
        hits = tl.where(swaps > 0, tl.minimum(p, cutoff) - swaps, p)
        by = (zero() - factor * regret) / as_double(tl.maximum(p - hits, 1))
        for begin in range(hits, p, BLOCK):
            t = begin + tl.arange(0, BLOCK)
            add(coefficient, r_place, p, t, by)
