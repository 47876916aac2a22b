"""Losses over the pairs of a list, and softmaxes over it by rank; see pair_loss.hpp, pairwise_hinge.hpp and pair_sums.hpp.

A device wants the dense algorithm. `prepare` writes four columns of numbers, one for each document: by score where ranks count,
otherwise so that documents whose pairs cost nothing are neighbours. Each program of `sum_pairs` has a tile of rows, walks over
all columns of the list and adds up three terms of a pair in the lanes of its rows. A row belongs to one program, so nothing is
added twice and sums are the same in every run. It may take several passes: each reads what the one before has written of the
rows. `finish` adds up the values of the rows.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from rankstruct.kernels.call import Call
from rankstruct.kernels.gpu import pair_loss, pair_sums
from rankstruct.kernels.gpu.batch import DeviceBatch, on_device, order_of
from rankstruct.kernels.gpu.common import as_double, bounds, compiled_once, is_finite, launched_with, read_label, zero
from rankstruct.lists import list_of_each

PAIRS, RANKS, GAIN, ENTROPY = (tl.constexpr(number) for number in range(4))
#: By the names of the loops that do the same in the core: what is computed, and the cost of a pair.
METHODS = {f"{name}_pairs": (PAIRS, cost) for name, cost in pair_loss.COSTS.items()} | {
    "logistic_curvatures": (PAIRS, pair_loss.CURVATURE),
    "pairwise_hinge": (PAIRS, pair_loss.HINGE),
    "smoothed_ranks": (RANKS, pair_loss.LOGISTIC),
    "neural_gain": (GAIN, pair_loss.LOGISTIC),
    "neural_entropy": (ENTROPY, pair_loss.LOGISTIC),
}
#: The passes of each, and the columns of the value, of the slope and of the weight in a mean; each pass writes three.
_RESULTS = ((1, 4, 5, 6), (1, 6, 4, 6), (4, 9, 13, 9), (4, 12, 13, 7))
_TILE = 32  # rows, and columns, of a tile


@compiled_once
def prepare(
    scores, labels, where, weights, chosen, keys, order, key_order, offsets, discounts, named, numbers, columns, ranks, counts,
    task_loss, value, stride, kept, names, WHAT: tl.constexpr, BY_KEY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write score, key, discount or weight, and rank, the place of a named key or, by rank, the key there.

    Keys are relative to the best value, weights to the largest. The count of a list that costs nothing is 0.
    """
    index = tl.cast(tl.program_id(0), tl.int64)
    start, size = bounds(offsets, 0)
    order += start
    key_order += start
    columns += start
    least, factor = tl.load(numbers), tl.load(numbers + 1)
    n = 0
    wrong = 0
    largest = zero()
    for begin in range(0, size, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        real = t < size
        at = tl.load(order + t, real, other=0)
        if where is not None:
            real = real & (tl.load(where + at, real, other=0) != 0)
        weight = tl.load(weights + at, real, other=0.0)
        _, right = read_label(labels, at, real, least)
        right = (
            right & is_finite(as_double(tl.load(scores + at, real, other=0.0))) & is_finite(weight) & (weight >= 0.0)
        )
        if chosen is not None:
            right = right & is_finite(tl.load(chosen + at, real, other=0.0))
        wrong += tl.sum(tl.cast(real & ~right, tl.int32), 0)
        n += tl.sum(tl.cast(real, tl.int32), 0)
        largest = tl.maximum(largest, tl.max(weight, 0))
        tl.store(ranks + at, t, real)
    last = tl.maximum(n - 1, 0)
    highest = tl.load(keys + tl.load(key_order, n > 0, other=0), n > 0, other=0.0)
    lowest = tl.load(keys + tl.load(key_order + last, n > 0, other=0), n > 0, other=0.0)
    can_err = (highest > lowest) | (WHAT == RANKS)
    unit = zero() + 1.0
    if discounts is not None:
        best = zero()
        for begin in range(0, n, BLOCK):
            t = begin + tl.arange(0, BLOCK)
            key = tl.load(keys + tl.load(key_order + t, t < n, other=0), t < n, other=0.0)
            best += tl.sum(key * tl.load(discounts + t, t < tl.minimum(n, kept), other=0.0), 0)
        falls = tl.load(discounts) > tl.load(discounts + last, n <= kept, other=0.0)
        can_err = can_err & falls & (best > 0.0)
        unit = tl.where(best > 0.0, best, 1.0)
    n = tl.where(can_err & (wrong == 0), n, 0)
    tl.debug_barrier()  # the ranks
    for begin in range(0, n, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        inside = t < n
        by_key = tl.load(key_order + t, inside, other=0)
        at = by_key
        if not BY_KEY:
            at = tl.load(order + t, inside, other=0)
        rank, key = tl.load(ranks + at, inside, other=0), tl.load(keys + at, inside, other=0.0) / unit
        third, fourth = tl.load(weights + at, inside, other=0.0) / largest, as_double(rank)
        if discounts is not None:
            third = tl.load(discounts + rank, inside & (rank < kept), other=0.0)
        if named is not None:
            fourth = tl.zeros_like(key) - 1.0
            for name in range(names):
                fourth = tl.where(key == tl.load(named + name), as_double(name), fourth)
        elif WHAT == ENTROPY:
            fourth = tl.load(keys + by_key, inside, other=0.0)
        tl.store(columns + t, as_double(tl.load(scores + at, inside, other=0.0)) * factor, inside)
        tl.store(columns + stride + t, key, inside)
        tl.store(columns + 2 * stride + t, third, inside)
        tl.store(columns + 3 * stride + t, fourth, inside)
    tl.store(counts + index, n)
    nothing = tl.where(wrong > 0, float("nan"), 0.0)
    tl.store(task_loss + index, nothing)
    tl.store(value + index, nothing)


@triton.jit
def read(columns, stride, at, inside, PASS: tl.constexpr):
    """The four columns of documents, and those of the passes before."""
    found = (tl.load(columns + at, inside, other=0.0), tl.load(columns + stride + at, inside, other=0.0))
    for number in tl.static_range(2, 4 + 3 * PASS):
        found = found + (tl.load(columns + number * stride + at, inside, other=0.0),)  # type: ignore[assignment]
    return found


@compiled_once
def sum_pairs(
    offsets, owners, steps, named_pairs, numbers, columns, counts, stride, kept, names,
    WHAT: tl.constexpr, PASS: tl.constexpr, COST: tl.constexpr, SCHEME: tl.constexpr, BACKWARD: tl.constexpr,
    SKIP: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """A pass of a tile of rows: the sums of the terms of their pairs, and what follows from them."""
    program = tl.cast(tl.program_id(0), tl.int64)
    index = tl.load(owners + program)
    start = tl.load(offsets + index)
    top = tl.cast(program - (start // TILE + index), tl.int32) * TILE
    n = tl.load(counts + index)
    margin, near = tl.load(numbers + 2), tl.load(numbers + 3)
    columns += start
    keys = columns + stride
    stop = n
    if top < n:
        if (WHAT == GAIN) & (PASS == 2):
            stop = tl.minimum(n, kept)  # columns are ranks
        elif (WHAT == GAIN) & (PASS == 1):
            stop = tl.where(top < kept, n, 0)  # rows are
        elif WHAT == PAIRS:
            stop = tl.where(top < kept, n, tl.minimum(n, kept))  # one of both documents is before the cut-off
        elif (WHAT == RANKS) & (BACKWARD == 0):
            stop = tl.where(tl.load(keys + top) == 0.0, 0, n)  # these ranks are not asked for
        r = tl.expand_dims(top + tl.arange(0, TILE), 1)
        own = read(columns, stride, r, r < n, PASS)
        key, last = tl.load(keys + top), tl.load(keys + tl.minimum(top + TILE, n) - 1)
        one = tl.full((TILE, TILE), 0.0, tl.float64)
        two = tl.zeros_like(one)
        three = tl.zeros_like(one)
        for begin in range(0, stop, TILE):
            needed = True
            if SKIP:  # pairs of documents of one key cost nothing
                end = tl.load(keys + tl.minimum(begin + TILE, n) - 1)
                needed = (key != last) | (key != end) | (key != tl.load(keys + begin))
            if needed:
                c = tl.expand_dims(begin + tl.arange(0, TILE), 0)
                other = read(columns, stride, c, c < stop, PASS)
                valid = (r < n) & (c < stop)
                if WHAT == PAIRS:
                    valid = valid & (r != c) & (tl.minimum(r, c) < kept)
                    form = (margin, near, steps, named_pairs, names)
                    terms = pair_loss.terms_of(own, other, valid, form, COST, SCHEME)
                elif WHAT == RANKS:
                    valid = valid & (r != c)
                    terms = pair_sums.rank_terms(own, other, COST == pair_loss.HINGE, BACKWARD)
                else:
                    terms = pair_sums.neural_terms(own, other, r, c, n, WHAT == ENTROPY, PASS)
                one += tl.where(valid, terms[0], 0.0)
                two += tl.where(valid, terms[1], 0.0)
                three += tl.where(valid, terms[2], 0.0)
        sums = (tl.sum(one, 1, keep_dims=True), tl.sum(two, 1, keep_dims=True), tl.sum(three, 1, keep_dims=True))
        if (WHAT == GAIN) | (WHAT == ENTROPY):
            sums = pair_sums.neural_results(own, sums, WHAT == ENTROPY, PASS)
        for number in tl.static_range(3):
            tl.store(columns + (4 + 3 * PASS + number) * stride + r, sums[number], r < n)


@compiled_once
def finish(
    order, offsets, numbers, columns, counts, value, direction, stride, of_value, of_slope, of_weight,
    WHAT: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The value of a list, and the slopes where its documents are."""
    index = tl.cast(tl.program_id(0), tl.int64)
    start, size = bounds(offsets, 0)
    n = tl.load(counts + index)
    columns += start
    by = tl.load(numbers + 4)
    total = zero()
    weight = zero()
    for begin in range(0, n, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(columns + of_value * stride + t, t < n, other=0.0), 0)
        weight += tl.sum(tl.load(columns + of_weight * stride + t, t < n, other=0.0), 0)
    if WHAT == GAIN:
        total += 1.0
    if MEAN:
        by = tl.where(weight > 0.0, by / weight, 0.0)
        total = tl.where(weight > 0.0, total / weight, 0.0)
    if n > 0:
        tl.store(value + index, total)
    for begin in range(0, n, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        slope = by * tl.load(columns + of_slope * stride + t, t < n, other=0.0)
        tl.store(direction + tl.load(order + start + t, t < n, other=0), slope, t < n)


def solve(call: Call, batch: DeviceBatch) -> bool:
    """Solve a call of a loop over pairs; False for more columns than an index of 32 bits counts."""
    what, cost = (each.value for each in METHODS[call.loop.name])
    device, documents, lists = batch.scores.device, batch.scores.numel(), batch.lists
    if 16 * batch.stride >= 2**31:
        return False
    given: dict[str, Any] = {name: getattr(call.options, name) for name in call.loop.fields}
    scheme, backward, sigma = given.get("scheme", 0), given.get("backward", 0), given.get("sigma", 1.0)
    cost = pair_loss.HINGE.value if given.get("hinge") else cost
    uniform, factor = what == PAIRS and scheme == pair_loss.UNIFORM, sigma / given.get("temperature", 1.0)
    tables = [on_device(each, device) for each in getattr(call.options, "_arrays", ())]
    discounts, steps, named, named_pairs = (*tables, None, None, None, None)[:4]
    discounts, kept = (None, batch.longest) if uniform else (discounts, min(given.get("kept", 2**31), batch.longest))
    by_key = what == RANKS or (what == PAIRS and kept == batch.longest)
    skip = (backward and cost != pair_loss.HINGE) if what == RANKS else by_key and scheme != pair_loss.NDCG1

    tile, each_list, offsets = min(_TILE, batch.block), torch.arange(lists + 1, device=device), batch.bounds
    owners = list_of_each(offsets // tile + each_list, documents // tile + lists)  # the list of each tile
    weights = torch.ones_like(batch.direction) if batch.weights is None else batch.weights
    keys = batch.chosen if what == RANKS and batch.chosen is not None else batch.labels.double()
    if what == GAIN or (what == PAIRS and not uniform):
        keys = keys * weights
    elif what == ENTROPY:
        keys = keys * factor
    order, key_order = map(batch.in_batch, (batch.order, order_of(keys, batch.where, batch.offsets)))
    by = 1.0 if what == RANKS and not backward else factor * (sigma if cost == pair_loss.CURVATURE else 1.0)
    numbers = on_device([batch.least_label, factor, given.get("margin", 1.0), given.get("mu", 1.0), by], device)
    passes, *results = _RESULTS[what]
    columns = batch.space(4 + 3 * passes, torch.float64)
    ranks, counts = torch.empty_like(order, dtype=torch.int32), torch.empty(lists, dtype=torch.int32, device=device)
    fixed = {"BLOCK": batch.block, **launched_with(max(batch.block // 64, 1))}
    sizes = (batch.stride, kept, getattr(call.options, "named_size", 0))
    prepare[(lists,)](
        batch.scores, batch.labels, batch.where, weights, batch.chosen, keys, order, key_order, offsets, discounts, named,
        numbers, columns, ranks, counts, batch.task_loss, batch.value, *sizes, WHAT=what, BY_KEY=by_key, **fixed,
    )  # fmt: skip
    for turn in range(passes):
        sum_pairs[(len(owners),)](
            offsets, owners, steps, named_pairs, numbers, columns, counts, *sizes, WHAT=what, PASS=turn, COST=cost,
            SCHEME=scheme, BACKWARD=backward, SKIP=bool(skip), TILE=tile, **launched_with(8),
        )  # fmt: skip
    finish[(lists,)](
        key_order if by_key else order, offsets, numbers, columns, counts, batch.value, batch.direction, batch.stride, *results,
        WHAT=what, MEAN=uniform or what == ENTROPY, **fixed,
    )  # fmt: skip
    return True
