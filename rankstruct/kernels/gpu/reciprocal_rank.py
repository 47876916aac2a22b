"""Reciprocal rank with the first-relevant map; see reciprocal_rank.hpp. Each number of documents above has a lane."""

from __future__ import annotations

import triton
import triton.language as tl

from rankstruct.kernels.gpu.common import add, as_double, zero


@triton.jit
def first_loss(r, k):
    """The task loss with r irrelevant documents above the relevant one."""
    return tl.where(r < k, 1.0 - 1.0 / as_double(1 + r), 1.0)


@triton.jit
def most_above(split, k, BLOCK: tl.constexpr):
    """How many irrelevant documents stand above the lowest relevant one."""
    p, m, r_score, i_score, r_place, i_place = split
    lowest = tl.load(r_score + p - 1)
    best = zero()
    found = 0
    carry = zero()
    for begin in range(0, m, BLOCK):
        j = begin + tl.arange(0, BLOCK)
        lead = tl.where(j < m, tl.load(i_score + j, j < m, other=0.0) - lowest, 0.0)
        own = tl.where(j < m, carry + tl.cumsum(lead, 0) + first_loss(j + 1, k), -float("inf"))
        carry += tl.sum(lead, 0)
        here = tl.max(own, 0)
        if here > best:
            found = tl.min(tl.where(own == here, j + 1, m), 0)
            best = here
    return found


@triton.jit
def add_above(split, r, coefficient, sign, BLOCK: tl.constexpr):
    """Add psi of the r highest irrelevant documents above the lowest relevant one."""
    p, m, r_score, i_score, r_place, i_place = split
    for begin in range(0, r, BLOCK):
        add(coefficient, i_place, r, begin + tl.arange(0, BLOCK), sign)
    add(coefficient, r_place, p, p - 1 + tl.arange(0, BLOCK), 0.0 - sign * as_double(r))  # the last one
