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
from torch import Tensor

from rankstruct.kernels.call import Call
from rankstruct.kernels.gpu.batch import DeviceBatch, on_device, order_of
from rankstruct.kernels.gpu.common import as_double, bounds, is_finite, zero
from rankstruct.kernels.gpu.pair_loss import (
    CURVATURE,
    FIDELITY,
    HINGE,
    LOGISTIC,
    NDCG1,
    UNIFORM,
    ZERO_ONE,
    as_document,
    log_one_plus,
    pair_terms,
)
from rankstruct.kernels.gpu.pair_sums import circle_results, circle_terms, neural_results, neural_terms, rank_terms
from rankstruct.lists import list_of_each

PAIRS, RANKS, CIRCLE, GAIN, ENTROPY = (tl.constexpr(number) for number in range(5))
#: By the names of the loops that do the same in the core: what is computed, and the cost of a pair.
METHODS = {
    "logistic_pairs": (PAIRS, LOGISTIC),
    "logistic_curvatures": (PAIRS, CURVATURE),
    "hinge_pairs": (PAIRS, HINGE),
    "pairwise_hinge": (PAIRS, HINGE),
    "zero_one_pairs": (PAIRS, ZERO_ONE),
    "fidelity_pairs": (PAIRS, FIDELITY),
    "smoothed_ranks": (RANKS, LOGISTIC),
    "circle": (CIRCLE, LOGISTIC),
    "neural_gain": (GAIN, LOGISTIC),
    "neural_entropy": (ENTROPY, LOGISTIC),
}
#: The passes of each, and the columns of the value, of the slope and of the weight in a mean; each pass writes three.
_RESULTS = ((1, 4, 5, 6), (1, 0, 4, 0), (2, 7, 8, 0), (4, 9, 13, 0), (4, 12, 13, 7))
_TILE = 32  # rows, and columns, of a tile


@triton.jit
def prepare(
    scores, labels, where, weights, chosen, keys, order, key_order, offsets, discounts, numbers, columns, ranks, state,
    task_loss, value, lists, stride, kept, BY_KEY: tl.constexpr, ALL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write score, key, weight and rank, or, by score, the key of this rank; and numbers of the list.

    These are the number of real documents, 0 if it costs nothing, the best value, the lowest key and the largest weight.
    """
    index = tl.cast(tl.program_id(0), tl.int64)
    start, size = bounds(offsets, 0)
    order += start
    key_order += start
    columns += start
    least = tl.load(numbers)
    n = 0
    wrong = 0
    largest = zero()
    for begin in range(0, size, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        real = t < size
        at = tl.load(order + t, real, other=0)
        if where is not None:
            real = real & (tl.load(where + at, real, other=0) != 0)
        label = as_double(tl.load(labels + at, real, other=0))
        right = is_finite(as_double(tl.load(scores + at, real, other=0.0))) & is_finite(label) & (label >= least)
        if weights is not None:
            weight = tl.load(weights + at, real, other=0.0)
            right = right & is_finite(weight) & (weight >= 0.0)
            largest = tl.maximum(largest, tl.max(weight, 0))
        if chosen is not None:
            right = right & is_finite(tl.load(chosen + at, real, other=0.0))
        wrong += tl.sum(tl.cast(real & ~right, tl.int32), 0)
        n += tl.sum(tl.cast(real, tl.int32), 0)
        tl.store(ranks + at, t, real)
    last = tl.maximum(n - 1, 0)
    highest = tl.load(keys + tl.load(key_order, n > 0, other=0), n > 0, other=0.0)
    lowest = tl.load(keys + tl.load(key_order + last, n > 0, other=0), n > 0, other=0.0)
    can_err = (highest > lowest) | ALL
    best = zero()
    if discounts is not None:
        for begin in range(0, n, BLOCK):
            t = begin + tl.arange(0, BLOCK)
            key = tl.load(keys + tl.load(key_order + t, t < n, other=0), t < n, other=0.0)
            best += tl.sum(key * tl.load(discounts + t, t < tl.minimum(n, kept), other=0.0), 0)
        falls = tl.load(discounts) > tl.load(discounts + last, n <= kept, other=0.0)
        can_err = can_err & falls & (best > 0.0)
    n = tl.where(can_err & (wrong == 0), n, 0)
    tl.debug_barrier()  # the ranks
    for begin in range(0, n, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        at = tl.load(key_order + t, t < n, other=0)
        fourth = tl.load(keys + at, t < n, other=0.0)
        if BY_KEY:
            fourth = as_double(tl.load(ranks + at, t < n, other=0))
        else:
            at = tl.load(order + t, t < n, other=0)
        tl.store(columns + t, as_double(tl.load(scores + at, t < n, other=0.0)), t < n)
        tl.store(columns + stride + t, tl.load(keys + at, t < n, other=0.0), t < n)
        if weights is not None:
            tl.store(columns + 2 * stride + t, tl.load(weights + at, t < n, other=0.0), t < n)
        tl.store(columns + 3 * stride + t, fourth, t < n)
    tl.store(state + index, as_double(n))
    tl.store(state + lists + index, best)
    tl.store(state + 2 * lists + index, lowest)
    tl.store(state + 3 * lists + index, largest)
    nothing = tl.where(wrong > 0, float("nan"), 0.0)
    tl.store(task_loss + index, nothing)
    tl.store(value + index, nothing)


@triton.jit
def read(columns, stride, at, inside, factor, WEIGHTED: tl.constexpr, PASS: tl.constexpr):
    """The columns of documents: the score times a factor, key, weight, rank or key, and those of the passes before."""
    x = tl.load(columns + at, inside, other=0.0) * factor
    key = tl.load(columns + stride + at, inside, other=0.0)
    weight = 0.0 * key + 1.0
    if WEIGHTED:
        weight = tl.load(columns + 2 * stride + at, inside, other=0.0)
    found = (x, key, weight, tl.load(columns + 3 * stride + at, inside, other=0.0))
    for number in tl.static_range(4, 4 + 3 * PASS):
        found = found + (tl.load(columns + number * stride + at, inside, other=0.0),)
    return found


@triton.jit
def sum_pairs(
    offsets, owners, discounts, steps, named, named_pairs, numbers, columns, state, lists, stride, kept, names,
    WHAT: tl.constexpr, PASS: tl.constexpr, COST: tl.constexpr, SCHEME: tl.constexpr, BACKWARD: tl.constexpr,
    WEIGHTED: tl.constexpr, BY_KEY: tl.constexpr, SKIP: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """A pass of a tile of rows: the sums of the terms of their pairs, and what follows from them."""
    program = tl.cast(tl.program_id(0), tl.int64)
    index = tl.load(owners + program)
    start = tl.load(offsets + index)
    top = tl.cast(program - (start // TILE + index), tl.int32) * TILE
    n = tl.cast(tl.load(state + index), tl.int32)
    factor, margin, near = tl.load(numbers + 1), tl.load(numbers + 2), tl.load(numbers + 3)
    best, lowest, largest = (
        tl.load(state + lists + index),
        tl.load(state + 2 * lists + index),
        tl.load(state + 3 * lists + index),
    )
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
        own = read(columns, stride, r, r < n, factor, WEIGHTED, PASS)
        if WHAT == PAIRS:
            own = as_document(own, r, r < n, best, lowest, largest, discounts, named, names, SCHEME, BY_KEY)
        one = tl.full((TILE, TILE), 0.0, tl.float64)
        if (WHAT == CIRCLE) & (PASS == 0):
            one = one - float("inf")
        two = tl.zeros_like(one) + one
        three = tl.zeros_like(one)
        for begin in range(0, stop, TILE):
            needed = True
            if SKIP:  # pairs of documents of one key cost nothing
                key, end = tl.load(keys + top), tl.load(keys + tl.minimum(begin + TILE, n) - 1)
                last = tl.load(keys + tl.minimum(top + TILE, n) - 1)
                needed = (key != last) | (key != end) | (key != tl.load(keys + begin))
            if needed:
                c = tl.expand_dims(begin + tl.arange(0, TILE), 0)
                other = read(columns, stride, c, c < stop, factor, WEIGHTED, PASS)
                valid = (r < n) & (c < stop)
                if WHAT == PAIRS:
                    other = as_document(
                        other, c, c < stop, best, lowest, largest, discounts, named, names, SCHEME, BY_KEY
                    )
                    valid = valid & (r != c) & (tl.minimum(r, c) < kept)
                    terms = pair_terms(own, other, valid, margin, near, steps, named_pairs, names, COST, SCHEME)
                elif WHAT == RANKS:
                    valid = valid & (r != c)
                    terms = rank_terms(own, other, COST == HINGE, BACKWARD)
                elif WHAT == CIRCLE:
                    terms = circle_terms(own, other, factor, margin, PASS)
                else:
                    terms = neural_terms(own, other, r, c, n, WHAT == ENTROPY, PASS)
                if (WHAT == CIRCLE) & (PASS == 0):
                    one = tl.maximum(one, tl.where(valid, terms[0], -float("inf")))
                    two = tl.maximum(two, tl.where(valid, terms[1], -float("inf")))
                else:
                    one += tl.where(valid, terms[0], 0.0)
                    two += tl.where(valid, terms[1], 0.0)
                    three += tl.where(valid, terms[2], 0.0)
        if (WHAT == CIRCLE) & (PASS == 0):
            found = (tl.max(one, 1, keep_dims=True), tl.max(two, 1, keep_dims=True), own[0])
        else:
            found = (
                tl.sum(one, 1, keep_dims=True),
                tl.sum(two, 1, keep_dims=True),
                tl.sum(three, 1, keep_dims=True),
            )
            if (WHAT == RANKS) & (BACKWARD == 0):
                found = (found[0] * own[1], found[1], found[2])
            elif WHAT == CIRCLE:
                found = circle_results(own, found, factor, margin)
            elif WHAT >= GAIN:
                discount = found[0]
                if WHAT == GAIN:
                    discount = tl.load(discounts + r, r < tl.minimum(n, kept), other=0.0) / best
                found = neural_results(own, found, discount, WHAT == ENTROPY, PASS)
        for number in tl.static_range(3):
            tl.store(columns + (4 + 3 * PASS + number) * stride + r, found[number], r < n)


@triton.jit
def finish(
    order, offsets, numbers, columns, state, value, direction, stride, of_value, of_slope, of_weight,
    WHAT: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The value of a list, and the slopes where its documents are."""
    index = tl.cast(tl.program_id(0), tl.int64)
    start, size = bounds(offsets, 0)
    n = tl.cast(tl.load(state + index), tl.int32)
    columns += start
    values, slopes, weights = columns + of_value * stride, columns + of_slope * stride, columns + of_weight * stride
    margin, by = tl.load(numbers + 2), tl.load(numbers + 4)
    if n > 0:
        total = zero()
        weight = zero()
        high = zero()
        if WHAT == CIRCLE:
            for begin in range(0, n, BLOCK):
                t = begin + tl.arange(0, BLOCK)
                high = tl.maximum(high, tl.max(tl.load(values + t, t < n, other=0.0), 0))
        for begin in range(0, n, BLOCK):
            t = begin + tl.arange(0, BLOCK)
            its = tl.load(values + t, t < n, other=0.0)
            if WHAT == CIRCLE:
                its = tl.where(t < n, tl.exp(its - high), 0.0)
            total += tl.sum(its, 0)
            weight += tl.sum(tl.load(weights + t, t < n, other=0.0), 0)
        if WHAT == CIRCLE:
            total = tl.where(high > 0.0, high + tl.log(tl.exp(0.0 - high) + total), log_one_plus(total))
            total = tl.where(total < 1e300, total, float("inf"))
        elif WHAT == GAIN:
            total += 1.0
        elif WHAT == RANKS:
            total = zero()
        if MEAN:
            by = tl.where(weight > 0.0, by / weight, 0.0)
            total = tl.where(weight > 0.0, total / weight, 0.0)
        tl.store(value + index, total)
        for begin in range(0, n, BLOCK):
            t = begin + tl.arange(0, BLOCK)
            slope = tl.load(slopes + t, t < n, other=0.0)
            if WHAT == CIRCLE:
                s = tl.load(columns + t, t < n, other=0.0)
                slope = tl.maximum(s + margin, 0.0) * tl.exp(slope - total)
                slope -= tl.maximum(1.0 + margin - s, 0.0) * tl.exp(tl.load(values + t, t < n, other=0.0) - total)
            tl.store(direction + tl.load(order + start + t, t < n, other=0), by * slope, t < n)


def solve(call: Call, batch: DeviceBatch) -> bool:
    """Solve a call of a loop over pairs."""
    what, cost = (each.value for each in METHODS[call.loop.name])
    device, documents, lists = batch.scores.device, batch.scores.numel(), batch.lists
    given: dict[str, Any] = {name: getattr(call.options, name) for name in call.loop.fields}
    scheme, backward = given.get("scheme", UNIFORM.value), given.get("backward", 0)
    cost = HINGE.value if given.get("hinge") else cost
    sigma, temperature = given.get("sigma", 1.0), given.get("temperature", 1.0)
    factor = given.get("gamma", sigma / temperature)
    uniform, names = what == PAIRS and scheme == UNIFORM.value, given.get("names", 0)
    tables: list[Tensor | None] = [on_device(each, device) for each in getattr(call.options, "_arrays", ())]
    discounts, steps, named, named_pairs = (*tables, None, None, None, None)[:4]
    kept = batch.longest
    if uniform:
        discounts = steps = None
    else:
        kept = min(given.get("kept", kept), kept)
    by_key = what in (RANKS, CIRCLE) or (what == PAIRS and kept == batch.longest)
    skip = (by_key and what == PAIRS and scheme != NDCG1.value) or what == CIRCLE or (backward and cost != HINGE)

    offsets, tile, each_list = batch.offsets, min(_TILE, batch.block), torch.arange(lists + 1, device=device)
    offsets = each_list * batch.size if offsets is None else offsets
    firsts = offsets[list_of_each(offsets, documents)]
    keys = batch.labels.double()
    if what == RANKS and batch.chosen is not None:
        keys = batch.chosen
    elif what in (PAIRS, GAIN) and not uniform and batch.weights is not None:
        keys = keys * batch.weights
    elif what == ENTROPY:
        keys = keys * factor
    order = batch.order.view(-1) + firsts
    key_order = order_of(keys.view(batch.scores.shape), batch.where, batch.offsets).view(-1) + firsts
    programs = torch.arange(documents // tile + lists, device=device)
    owners = torch.searchsorted(offsets // tile + each_list, programs, right=True) - 1

    by = 1.0 if what == RANKS and not backward else factor * (sigma if cost == CURVATURE else 1.0)
    numbers = on_device([batch.least_label, factor, given.get("margin", 1.0), given.get("mu", 1.0), by], device)
    passes, *results = _RESULTS[what]
    columns, state = (
        batch.space(4 + 3 * passes, torch.float64),
        torch.empty(4 * lists, dtype=torch.float64, device=device),
    )
    fixed = {"BLOCK": batch.block, "num_warps": max(batch.block // 64, 1), "enable_fp_fusion": False}
    prepare[(lists,)](
        batch.scores, batch.labels, batch.where, batch.weights, batch.chosen, keys, order, key_order, offsets, discounts, numbers,
        columns, torch.empty_like(order, dtype=torch.int32), state, batch.task_loss, batch.value, lists, batch.stride, kept,
        BY_KEY=by_key, ALL=what == RANKS, **fixed,
    )  # fmt: skip
    for turn in range(passes):
        sum_pairs[(len(programs),)](
            offsets, owners, discounts, steps, named, named_pairs, numbers, columns, state, lists, batch.stride, kept, names,
            WHAT=what, PASS=turn, COST=cost, SCHEME=scheme, BACKWARD=backward, WEIGHTED=batch.weights is not None,
            BY_KEY=by_key, SKIP=bool(skip), TILE=tile, num_warps=8, enable_fp_fusion=False,
        )  # fmt: skip
    finish[(lists,)](
        key_order if by_key else order, offsets, numbers, columns, state, batch.value, batch.direction, batch.stride, *results,
        WHAT=what, MEAN=uniform or what == ENTROPY, **fixed,
    )  # fmt: skip
    return True
