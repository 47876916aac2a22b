"""Sums of the Plackett-Luce model: the logarithms of cumulative sums of exp, and their gradient; one program a row.

A sum is a pair (m, s) that stands for exp(m) s, where s may be of either sign. Pairs add up in any order, so they are scanned.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from rankstruct.kernels.gpu.common import as_double, compiled_once, launched_with, zero

_BLOCKS = (128, 512)  # numbers that a program takes at once


@triton.jit
def add_scaled(m, s, other_m, other_s):
    """The sum of two pairs."""
    top = tl.maximum(m, other_m)
    by = tl.exp(tl.where(m == top, 0.0, m - top))
    return top, s * by + other_s * tl.exp(tl.where(other_m == top, 0.0, other_m - top))


@compiled_once
def scan_rows(values, sums, slopes, found, size, BACKWARD: tl.constexpr, BLOCK: tl.constexpr):
    """Write log(sum over j <= i of exp(v_j)), L_i; or, from the end, exp(v_j) times the sum over i >= j of g_i exp(-L_i)."""
    row = tl.cast(tl.program_id(0), tl.int64) * size
    lane = tl.arange(0, BLOCK)
    high = zero() - float("inf")
    total = zero()
    for begin in range(0, size, BLOCK):
        t = begin + lane
        inside = t < size
        if BACKWARD:
            t = size - 1 - t
        value = as_double(tl.load(values + row + t, inside, other=0.0))
        m = value
        s = tl.full((BLOCK,), 1.0, tl.float64)
        if BACKWARD:
            m = 0.0 - as_double(tl.load(sums + row + t, inside, other=0.0))
            s = as_double(tl.load(slopes + row + t, inside, other=0.0))
        m, s = tl.associative_scan((tl.where(inside, m, -float("inf")), tl.where(inside, s, 0.0)), 0, add_scaled)
        m, s = add_scaled(tl.zeros_like(m) + high, tl.zeros_like(s) + total, m, s)
        high = tl.max(tl.where(lane == BLOCK - 1, m, -float("inf")), 0)
        total = tl.sum(tl.where(lane == BLOCK - 1, s, 0.0), 0)
        if BACKWARD:
            s = s * tl.exp(value + m)
        else:
            s = m + tl.log(s)
        tl.store(found + row + t, s, inside)


def log_sums(values: Tensor, sums: Tensor | None = None, slopes: Tensor | None = None) -> Tensor:
    """The logarithms of the cumulative sums of exp in each row; or, given these and a gradient in them, that in the values."""
    found, size = torch.empty_like(values, memory_format=torch.contiguous_format), values.shape[-1]
    if values.numel():
        given = (None if each is None else each.contiguous() for each in (values, sums, slopes))
        block = _BLOCKS[size > _BLOCKS[0]]
        options = {"BACKWARD": slopes is not None, "BLOCK": block, **launched_with(block // 64)}
        scan_rows[(values.numel() // size,)](*given, found, size, **options)
    return found
