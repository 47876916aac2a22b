"""SoftRank; see soft_rank.hpp. The rows of a tile are documents with a gain, with `"joint"` one for each node; its lanes, ranks.

All variables of the list are processed one after another, and none is negligible: what a lane adds to the next rank is gathered
in registers. The backward pass reads the probabilities of the ranks that the forward pass has written.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from rankstruct.kernels.call import Call
from rankstruct.kernels.gpu.batch import MOST_SPACE, DeviceBatch, on_device, order_of
from rankstruct.kernels.gpu.common import ABOVE, as_double, bisect, compiled_once, launched_with, zero
from rankstruct.kernels.gpu.pairs import GAIN, prepare
from rankstruct.lists import list_of_each

NARROWEST, LEAST_VARIANCE = tl.constexpr(2.0**-49), tl.constexpr(1e-4)
ONE_OVER_ROOT_PI = tl.constexpr(0.56418958354775628695)
_LANES, _MOST_RANKS, _PROGRAMS = 256, 1024, 1024


@triton.jit
def chances(x, i, n, scale, row):
    """The probabilities that documents i are above those of the rows, and their derivatives in the score."""
    own, centre, shift = row
    z = scale * (tl.load(x + i, i < n, other=0.0) - centre) - shift
    others = (i < n) & (i != own)
    slope = scale * ONE_OVER_ROOT_PI * tl.exp(0.0 - z * z)
    return tl.where(others, 0.5 + 0.5 * tl.erf(z), 0.0), tl.where(others, slope, 0.0)


@compiled_once
def soften(
    scores, order, offsets, columns, discounts, nodes, shares, numbers, counts, up, gained, chance, mine, sums, stride, parts,
    kept, many, steps, NORMAL: tl.constexpr, ROWS: tl.constexpr, RANKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Every `parts`-th tile of a list: the expected gain of its rows, and the sum of their derivatives by document."""
    program = tl.cast(tl.program_id(0), tl.int64)
    index = program // parts
    part = program % parts
    start = tl.load(offsets + index)
    n = tl.load(counts + index)
    highest = as_double(tl.load(scores + tl.load(order + start, n > 0, other=0), n > 0, other=0.0))
    lowest = as_double(tl.load(scores + tl.load(order + start + n - 1, n > 0, other=0), n > 0, other=0.0))
    width, steepness = tl.maximum(tl.load(numbers + 2), (highest - lowest) * NARROWEST), tl.load(numbers + 3)
    scale = steepness / width
    columns += start
    mine += part * stride + start
    up += (part * stride + start) * ROWS
    gained += (part * stride + start) * ROWS
    chance += (part * stride + start) * ROWS * RANKS
    ranks = tl.minimum(kept, n)
    rows = bisect(columns + stride, n, zero(), 0, steps, ABOVE) * many
    d = tl.arange(0, ROWS)
    row = tl.expand_dims(d, 1)
    r = tl.expand_dims(tl.arange(0, RANKS), 0)
    c = tl.expand_dims(tl.arange(0, BLOCK), 0)
    total = width - width  # NaN if the scores are too far apart
    for begin in range(tl.cast(part, tl.int32) * ROWS, rows, parts * ROWS):
        j = begin + d
        share = tl.load(columns + stride + j // many, j < rows, other=0.0) * tl.load(shares + j % many)
        own = tl.expand_dims(j // many, 1)
        centre = tl.load(columns + own, own * many < rows, other=0.0)
        its = (own, centre, steepness * tl.expand_dims(tl.load(nodes + j % many), 1))
        by_mean = tl.zeros_like(share)
        by_variance = tl.zeros_like(share)
        mean = by_mean - 0.5
        variance = tl.zeros_like(share)
        for left in range(0, n, BLOCK):
            higher, _ = chances(columns, left + c, n, scale, its)
            if NORMAL:
                mean += tl.sum(higher, 1)
                variance += tl.sum(higher * (1.0 - higher), 1)
            else:
                tl.store(up + (left + c) * ROWS + row, higher, left + c < n)
        if NORMAL:
            over = tl.sqrt(0.5 / tl.maximum(variance, LEAST_VARIANCE))
            expected = tl.zeros_like(share) + tl.load(discounts)
            for left in range(0, tl.minimum(kept, n - 1), BLOCK):
                rank = left + c
                inside = rank < tl.minimum(kept, n - 1)
                fall = tl.load(discounts + rank + 1, rank + 1 < ranks, other=0.0)
                fall = tl.where(inside, fall - tl.load(discounts + rank, inside, other=0.0), 0.0)
                z = (tl.expand_dims(mean, 1) - as_double(rank)) * tl.expand_dims(over, 1)
                slope = fall * ONE_OVER_ROOT_PI * tl.exp(0.0 - z * z)
                expected += tl.sum(fall * (0.5 + 0.5 * tl.erf(z)), 1)
                by_mean += tl.sum(slope, 1) * over
                by_variance -= tl.sum(slope * z, 1) * over * over
            by_variance = tl.where(variance > LEAST_VARIANCE, by_variance, 0.0)
        else:
            tl.debug_barrier()  # the probabilities
            worth = tl.load(discounts + r, r < ranks, other=0.0) + tl.expand_dims(by_mean, 1)
            q = tl.where(r == 0, 1.0, tl.zeros_like(worth))
            below = tl.maximum(r - 1, 0) + tl.zeros_like(row)
            above = tl.minimum(r + 1, RANKS - 1) + tl.zeros_like(row)
            for i in range(n):
                tl.store(chance + (i * ROWS + row) * RANKS + r, q)
                higher = tl.expand_dims(tl.load(up + i * ROWS + d), 1)
                q += higher * (tl.where(r > 0, tl.gather(q, below, 1), 0.0) - q)
            expected = tl.sum(q * worth, 1)
            tl.debug_barrier()  # the probabilities of the ranks
            for undone in range(n):
                i = n - 1 - undone
                higher = tl.expand_dims(tl.load(up + i * ROWS + d), 1)
                more = tl.where(r < RANKS - 1, tl.gather(worth, above, 1), 0.0) - worth
                tl.store(gained + i * ROWS + d, tl.sum(tl.load(chance + (i * ROWS + row) * RANKS + r) * more, 1))
                worth += higher * more
            tl.debug_barrier()  # the derivatives in the probabilities
        total += tl.sum(share * expected, 0)
        by_own = tl.zeros_like(share)
        for turn in range(2):
            for left in range(0, n, BLOCK):
                other = left + c
                higher, slope = chances(columns, other, n, scale, its)
                if NORMAL:
                    slope *= tl.expand_dims(by_mean, 1) + tl.expand_dims(by_variance, 1) * (1.0 - 2.0 * higher)
                else:
                    slope *= tl.load(gained + other * ROWS + row, other < n, other=0.0)
                slope *= tl.expand_dims(share, 1)
                if turn == 0:
                    by_own += tl.sum(slope, 1)
                else:
                    slope -= tl.where(other == own, tl.expand_dims(by_own, 1), 0.0)
                    at = mine + left + tl.arange(0, BLOCK)
                    inside = left + tl.arange(0, BLOCK) < n
                    tl.store(at, tl.load(at, inside, other=0.0) + tl.sum(slope, 0), inside)
        tl.debug_barrier()  # the next tile writes the same scratch
    tl.store(sums + program, total)


def solve(call: Call, batch: DeviceBatch) -> bool:
    """Solve a call of SoftRank; False if its ranks need too much room."""
    given: Any = call.options
    documents, lists, kept = batch.scores.numel(), batch.lists, min(given.kept, batch.longest)
    table, *nodes = (on_device(each, batch.scores.device) for each in given._arrays)
    ranks = 32 if given.normal else max(2, 1 << (kept - 1).bit_length())
    rows = max(1, _LANES // ranks)
    bytes_of_part = 8 * documents * rows * (1 if given.normal else ranks)
    if ranks > _MOST_RANKS or bytes_of_part > MOST_SPACE:
        return False
    tiles = triton.cdiv(batch.longest * given.nodes_size, rows)
    parts = max(1, min(_PROGRAMS // lists, MOST_SPACE // bytes_of_part, tiles))
    gains = batch.labels.double() if batch.weights is None else batch.labels * batch.weights
    order, by_gain = map(batch.in_batch, (batch.order, order_of(gains, batch.where, batch.offsets)))
    offsets = batch.bounds
    numbers = on_device([batch.least_label, 1.0, given.sigma, given.steepness], gains.device)
    weights = torch.ones_like(gains) if batch.weights is None else batch.weights
    at, counts = (torch.zeros(size, dtype=torch.int32, device=gains.device) for size in (documents, lists))
    columns, sums = gains.new_empty(4 * documents), gains.new_empty(lists * parts)
    up, gained = gains.new_empty(2, parts * documents * rows)
    chance = gains.new_empty(0 if given.normal else parts * documents * rows * ranks)
    mine = gains.new_zeros(parts, documents)
    prepare[(lists,)](
        batch.scores, batch.labels, batch.where, weights, None, gains, order, by_gain, offsets, table, None, numbers, columns,
        at, counts, batch.task_loss, batch.value, documents, kept, 0, WHAT=GAIN.value, BY_KEY=True, BLOCK=batch.block,
        **launched_with(max(batch.block // 64, 1)),
    )  # fmt: skip
    soften[(lists * parts,)](
        batch.scores, order, offsets, columns, table, *nodes, numbers, counts, up, gained, chance, mine, sums, documents, parts,
        kept, given.nodes_size, batch.longest.bit_length() + 1, NORMAL=bool(given.normal), ROWS=rows, RANKS=ranks,
        BLOCK=_LANES // rows, **launched_with(max(4, ranks // 128)),
    )  # fmt: skip
    values, slopes = 1.0 - sums.view(lists, parts).sum(-1), mine.sum(0).neg_()
    if not given.normalized:  # gains are relative to the best value
        first = offsets[:-1].clamp(max=documents - 1)
        best = torch.where(counts > 0, gains.view(-1)[by_gain[first]] / columns[documents + first], 0.0)
        values, slopes = values * best, slopes * best[list_of_each(offsets, documents)]
    batch.value.copy_(torch.where(counts > 0, values, batch.value.view(-1)).view(batch.value.shape))
    batch.direction.view(-1).scatter_(0, by_gain, slopes)
    return True
