"""The positional map, one program a list after one sort; see positional.hpp and assignment.hpp for the mathematics.

Ranks by gain take a pass over the documents for each distinct gain before the cut-off. Only the front, the leading documents by
score that compete for the ranks before the cut-off, is an assignment problem. Each of its documents bisects for the first
boundary whose best set contains it; what is inside is a bisection in each class. If these sets are nested, as without a cut-off
they mostly are, that is the optimum. Otherwise the thresholds of the boundaries give prices of the positions, each document takes
the position it prefers, and those that want the same one follow shortest augmenting paths, with a lane for each position. For f
documents of L classes, O(f L log^2 f / lanes), O(f^2 / lanes) if the sets are not nested, and O(f / lanes) a step of a path.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from rankstruct.kernels.call import Call
from rankstruct.kernels.gpu.batch import DeviceBatch, on_device, order_of
from rankstruct.kernels.gpu.common import (
    AT_MOST,
    as_double,
    bisect,
    bounds,
    compiled_once,
    document,
    is_finite,
    launched_with,
    of_list,
    read_label,
    zero,
)

IDEAL, IDEAL_TIED, PREDICTED = (tl.constexpr(number) for number in range(3))


@triton.jit
def rank_by_gain(gain, n, highest, until, found, ends, discount, cut, BLOCK: tl.constexpr):
    """Write which documents have the `until` highest gains, equal ones in order, and where each class ends.

    Returns their discounted gains up to the cut-off.
    """
    count = 0
    value = highest
    total = zero()
    while count < until:
        below = zero() - float("inf")
        first = count
        for begin in range(0, n, BLOCK):
            t = begin + tl.arange(0, BLOCK)
            own = tl.load(gain + t, t < n, other=-float("inf"))
            here = own == value
            rank = count + tl.cumsum(tl.cast(here, tl.int32), 0) - 1
            tl.store(found + rank, t, here)
            total += tl.sum(tl.load(discount + rank, here & (rank < cut), other=0.0) * tl.where(here, own, 0.0), 0)
            below = tl.maximum(below, tl.max(tl.where(own < value, own, -float("inf")), 0))
            count += tl.sum(tl.cast(here, tl.int32), 0)
        tl.store(ends + first, count)
        value = below
    return total


@triton.jit
def walk_run(key, value, amount, also, by, t, n):
    """The ranks of documents by value within their runs of equal keys, equal values in order.

    Also the mean amounts of those in a run with the same value, and the same number of `also` in the order `by`.
    """
    inside = t < n
    its_key = tl.load(key + t, inside, other=0.0)
    its_value = tl.load(value + t, inside, other=0.0)
    at = t
    more = 1
    while more > 0:
        tied = inside & (at > 0)
        tied = tied & (tl.load(key + at - 1, tied, other=0.0) == its_key)
        at = at - tl.cast(tied, tl.int32)
        more = tl.max(tl.cast(tied, tl.int32), 0)
    rank = at + more  # 0; Triton 3.7 fails to compile a `while` of which only some variables are used
    total = tl.zeros_like(its_key)
    many = tl.zeros_like(t)
    more = 1
    while more > 0:
        tied = inside & (at < n)
        tied = tied & (tl.load(key + at, tied, other=0.0) == its_key)
        other = tl.load(value + at, tied, other=0.0)
        alike = tied & (other == its_value)
        rank += tl.cast(tied & ((other > its_value) | (alike & (at < t))), tl.int32)
        if also is not None:
            own = tl.load(also + tl.load(by + t, inside, other=0), inside, other=0.0)
            alike = alike & (tl.load(also + tl.load(by + at, alike, other=0), alike, other=0.0) == own)
        total += tl.load(amount + at, alike, other=0.0)
        many += tl.cast(alike, tl.int32)
        at = at + 1
        more = tl.max(tl.cast(tied, tl.int32), 0)
    return rank + more, tl.where(
        many + more > 1, total / as_double(tl.maximum(many, 1)), tl.load(amount + t, inside, other=0.0)
    )


@triton.jit
def rank_tied(found, by, order, n, discount, cut, minus, position, TIED: tl.constexpr, BLOCK: tl.constexpr):
    """By gain; with TIED at ranks of equal discount, and after the cut-off always, only as in the order."""
    for begin in range(0, cut, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        tl.store(minus + i, 0.0 - as_double(tl.load(found + i, i < cut, other=0)), i < cut)
    tl.debug_barrier()  # their places in the order
    for begin in range(0, cut, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        rank = i
        if TIED:
            rank, _ = walk_run(discount, minus, minus, None, None, i, cut)
        q = document(order, None, tl.load(found + i, i < cut, other=0), n)[0]
        tl.store(position + q, rank, i < cut)
    tl.debug_barrier()  # the positions before the cut-off
    behind = cut
    for begin in range(0, n, BLOCK):
        q, inside = document(order, None, begin + tl.arange(0, BLOCK), n)
        open = inside & (tl.load(position + q, inside, other=0) < 0)
        tl.store(position + q, behind + tl.cumsum(tl.cast(open, tl.int32), 0) - 1, open)
        behind += tl.sum(tl.cast(open, tl.int32), 0)


@triton.jit
def front_of(gain, lowest, cut, n, BLOCK: tl.constexpr):
    """How many leading documents compete for the ranks before the cut-off: until as many have the lowest gain."""
    size = n
    count = 0
    begin = 0
    while (begin < n) & (count < cut) & (cut < n):
        t = begin + tl.arange(0, BLOCK)
        low = tl.cast((t < n) & (tl.load(gain + t, t < n, other=0.0) == lowest), tl.int32)
        size = tl.min(tl.where((t < n) & (count + tl.cumsum(low, 0) >= cut), t + 1, size), 0)
        count += tl.sum(low, 0)
        begin += BLOCK
    return size


@triton.jit
def place_alone(problem, n, place, steps, BLOCK: tl.constexpr):
    """The first boundary whose best set contains each document: there, at most as many are worth more as have positions."""
    score, gain, ends, c, a = problem
    for start in range(0, n, BLOCK):
        r = start + tl.arange(0, BLOCK)
        first = tl.zeros_like(r)
        last = first + n - 1
        for _ in range(steps):
            i = (first + last) // 2
            fall_c = tl.load(c + i) - tl.load(c + i + 1)
            fall_a = tl.load(a + i) - tl.load(a + i + 1)
            own = fall_c * tl.load(score + r, r < n, other=0.0) - fall_a * tl.load(gain + r, r < n, other=0.0)
            above = tl.zeros_like(r)
            begin = 0
            while begin < n:
                end = tl.load(ends + begin)
                low = tl.zeros_like(r) + begin
                high = tl.zeros_like(r) + end
                for _ in range(steps):
                    middle = (low + high) // 2
                    open = low < high
                    worth = fall_c * tl.load(score + middle, open, other=0.0) - fall_a * tl.load(gain + begin)
                    more = (worth > own) | ((worth == own) & (middle < r))
                    low = tl.where(open & more, middle + 1, low)
                    high = tl.where(open & ~more, middle, high)
                above += low - begin
                begin = end
            outside = (first < last) & (above > i)
            last = tl.where(outside, last, i)
            first = tl.where(outside, i + 1, first)
        tl.store(place + r, first, r < n)


@triton.jit
def set_thresholds(problem, n, place, price, steps, BLOCK: tl.constexpr):
    """Between what is inside and outside each boundary; returns how many boundaries prefer other documents inside."""
    score, gain, ends, c, a = problem
    wrong = 0
    for start in range(0, n - 1, BLOCK):
        i = start + tl.arange(0, BLOCK)
        valid = i < n - 1
        fall_c = tl.load(c + i, valid, other=0.0) - tl.load(c + i + 1, valid, other=0.0)
        fall_a = tl.load(a + i, valid, other=0.0) - tl.load(a + i + 1, valid, other=0.0)
        lowest = tl.zeros_like(fall_c) + float("inf")
        highest = tl.zeros_like(fall_c) - float("inf")
        inside = tl.zeros_like(i)
        begin = 0
        while begin < n:
            end = tl.load(ends + begin)
            cost = fall_a * tl.load(gain + begin)
            at = bisect(place, end, i, begin, steps, AT_MOST)
            inside += at - begin
            worth = fall_c * tl.load(score + at - 1, at > begin, other=0.0) - cost
            lowest = tl.minimum(lowest, tl.where(at > begin, worth, float("inf")))
            worth = fall_c * tl.load(score + at, at < end, other=0.0) - cost
            highest = tl.maximum(highest, tl.where(at < end, worth, -float("inf")))
            begin = end
        wrong += tl.sum(tl.cast(valid & ((inside != i + 1) | (lowest < highest)), tl.int32), 0)
        middle = 0.5 * (lowest + highest)
        tl.store(price + i, tl.where(is_finite(middle), middle, 0.0), valid)
    return wrong


@triton.jit
def choose(problem, n, place, price, holder, BLOCK: tl.constexpr):
    """Add up the thresholds to prices, and write the position that each document prefers, its own one if as good."""
    score, gain, ends, c, a = problem
    carry = zero()
    for block in range((n + BLOCK - 1) // BLOCK):
        i = n - 1 - block * BLOCK - tl.arange(0, BLOCK)  # from the last one
        own = tl.load(price + i, (i >= 0) & (i < n - 1), other=0.0)
        tl.store(price + i, carry + tl.cumsum(own, 0), i >= 0)
        tl.store(holder + i, tl.zeros_like(i) - 1, i >= 0)
        carry += tl.sum(own, 0)
    tl.debug_barrier()  # the prices
    for begin in range(0, n, BLOCK):
        r = begin + tl.arange(0, BLOCK)
        its_score = tl.load(score + r, r < n, other=0.0)
        its_gain = tl.load(gain + r, r < n, other=0.0)
        at = tl.load(place + r, r < n, other=0)
        lowest = its_gain * tl.load(a + at) - its_score * tl.load(c + at) + tl.load(price + at)
        for j in range(n):
            cost = its_gain * tl.load(a + j) - its_score * tl.load(c + j) + tl.load(price + j)
            at = tl.where(cost < lowest, j, at)
            lowest = tl.minimum(lowest, cost)
        tl.store(place + r, at, r < n)


@triton.jit
def augment(problem, n, document, place, price, holder, paths, BLOCK: tl.constexpr):
    """Give a document without a position one along a shortest augmenting path, and update the prices: see `Prices`."""
    score, gain, ends, c, a = problem
    cost, settled, previous = paths
    for begin in range(0, n, BLOCK):
        j = begin + tl.arange(0, BLOCK)
        tl.store(cost + j, tl.full((BLOCK,), float("inf"), tl.float64), j < n)
        tl.store(settled + j, tl.full((BLOCK,), float("inf"), tl.float64), j < n)
    by = document
    at = n
    distance = zero()
    shift = zero()
    while by >= 0:
        tl.debug_barrier()  # the step before
        nearest = zero() + float("inf")
        key = 2 * n  # the nearest position, plus n if it is held
        for begin in range(0, n, BLOCK):
            j = begin + tl.arange(0, BLOCK)
            known = tl.where(j == at, distance, tl.load(settled + j, j < n, other=0.0))
            tl.store(settled + j, known, j < n)
            open = (j < n) & (known == float("inf"))
            own = tl.load(cost + j, open, other=float("inf"))
            way = tl.load(gain + by) * tl.load(a + j, open, other=0.0) - tl.load(score + by) * tl.load(
                c + j, open, other=0.0
            )
            way = way + tl.load(price + j, open, other=0.0) - shift
            tl.store(previous + j, tl.zeros_like(j) + by, open & (way < own))
            own = tl.where(open, tl.minimum(way, own), float("inf"))
            tl.store(cost + j, own, open)
            here = tl.min(own, 0)
            held = tl.load(holder + j, open, other=0) >= 0
            its = tl.min(tl.where(open & (own == here), tl.where(held, j + n, j), 2 * n), 0)
            key = tl.where(here < nearest, its, tl.where(here == nearest, tl.minimum(key, its), key))
            nearest = tl.minimum(nearest, here)
        at = key % n
        distance = nearest
        by = tl.load(holder + at)
        held_by = tl.maximum(by, 0)
        shift = tl.load(gain + held_by) * tl.load(a + at) - tl.load(score + held_by) * tl.load(c + at)
        shift = shift + tl.load(price + at) - distance
    tl.debug_barrier()  # the paths, and prices that have been read
    for begin in range(0, n, BLOCK):
        j = begin + tl.arange(0, BLOCK)
        known = tl.load(settled + j, j < n, other=0.0)
        own = tl.load(price + j, j < n, other=0.0)
        tl.store(price + j, tl.where(known < float("inf"), own + distance - known, own), j < n)
    while by != document:
        by = tl.load(previous + at)
        left = tl.load(place + by)
        tl.debug_barrier()  # all have read it
        tl.store(holder + at, by)
        tl.store(place + by, at)
        at = left


@triton.jit
def assign(documents, cut, scale, tables, whole, real, position, stride, BLOCK: tl.constexpr):
    """Solve the assignment problem of the n leading documents; writes their positions."""
    score, gain, n, highest = documents
    decay, discount = tables
    members, ends, place, holder, previous = (
        whole,
        whole + stride,
        whole + 2 * stride,
        whole + 3 * stride,
        whole + 4 * stride,
    )
    its_score, its_gain, c, a = real, real + stride, real + 2 * stride, real + 3 * stride
    price, paths = real + 4 * stride, (real + 5 * stride, real + 6 * stride, previous)
    last = n - 1
    least_c = tl.load(decay + last)
    least_a = tl.where(last < cut, tl.load(discount + last), 0.0)
    fall_c = tl.load(decay) - least_c
    fall_a = tl.load(discount) - least_a
    bound = tl.maximum(fall_c * (0.0 - tl.load(score + last)), fall_a * (highest / scale))
    if (bound > 1e-280) & (bound < float("inf")):  # else there is no choice
        rank_by_gain(gain, n, highest, n, members, ends, discount, 0, BLOCK)
        tl.debug_barrier()  # the members
        for begin in range(0, n, BLOCK):
            i = begin + tl.arange(0, BLOCK)
            q = tl.load(members + i, i < n, other=0)
            tl.store(its_score + i, tl.load(score + q, i < n, other=0.0) * (fall_c / bound), i < n)
            tl.store(its_gain + i, tl.load(gain + q, i < n, other=0.0) / scale * (fall_a / bound), i < n)
            of_c = tl.load(decay + i, i < n, other=0.0) - least_c
            of_a = tl.load(discount + i, i < tl.minimum(n, cut), other=0.0) - least_a
            tl.store(c + i, tl.where(fall_c > 0.0, of_c / fall_c, 0.0), i < n)
            tl.store(a + i, tl.where(fall_a > 0.0, of_a / fall_a, 0.0), i < n)
        tl.debug_barrier()  # the problem
        problem = (its_score, its_gain, ends, c, a)
        steps = 1  # of bisection
        while (n >> steps) > 0:
            steps += 1
        place_alone(problem, n, place, steps, BLOCK)
        tl.debug_barrier()  # the places
        if set_thresholds(problem, n, place, price, steps, BLOCK) > 0:
            tl.debug_barrier()  # the thresholds, and places that have been read
            choose(problem, n, place, price, holder, BLOCK)
            for r in range(n):
                tl.debug_barrier()  # what each prefers, and the paths before
                wanted = tl.load(place + r)
                if tl.load(holder + wanted) < 0:  # its price has not changed, and others have only grown
                    tl.debug_barrier()  # all have read it
                    tl.store(holder + wanted, r)
                else:
                    augment(problem, n, r, place, price, holder, paths, BLOCK)
            tl.debug_barrier()  # the places
        for begin in range(0, n, BLOCK):
            r = begin + tl.arange(0, BLOCK)
            tl.store(position + tl.load(members + r, r < n, other=0), tl.load(place + r, r < n, other=0), r < n)


@triton.jit
def rank_reciprocal(score, gain, n, k, decay, discount, position, BLOCK: tl.constexpr):
    """Reciprocal rank: the best number of irrelevant documents above all relevant ones, k for no relevant one up to rank k.

    With r of them, the document at rank q by score and i irrelevant ones before it has the position max(q, r + q - i) if it is
    relevant, i if it is one of them, else q. Writes positions and returns r; a lane for each.
    """
    best = zero() + float("inf")
    best_r = 0
    begin = 0
    more = 1
    while more > 0:
        r = begin + tl.arange(0, BLOCK)
        moved = tl.full((BLOCK,), 0.0, tl.float64)
        q = 0
        above = 0
        while (q < n) & (above < tl.minimum(begin + BLOCK, k)):
            low = tl.load(gain + q) == 0.0
            at = tl.where(low, tl.where(above < r, above, q), tl.maximum(q, r + q - above))
            moved += (tl.load(decay + at, at < n, other=0.0) - tl.load(decay + q)) * tl.load(score + q)
            above += tl.cast(low, tl.int32)
            q += 1
        end = tl.minimum(above, k)
        lost = tl.where(r <= end, tl.load(discount + r, (r <= end) & (r < k), other=0.0) - moved, float("inf"))
        here = tl.min(lost, 0)
        if here < best:
            best_r = tl.min(tl.where(lost == here, r, n), 0)
            best = here
        begin += BLOCK
        furthest = tl.min(tl.where(r <= end, moved, float("inf")), 0)  # it only decreases
        more = tl.cast((begin <= end) & (furthest > 0.0 - best), tl.int32)
    count = 0
    for start in range(0, n, BLOCK):
        t = start + tl.arange(0, BLOCK)
        low = (t < n) & (tl.load(gain + t, t < n, other=0.0) == 0.0)
        i = count + tl.cumsum(tl.cast(low, tl.int32), 0)
        at = tl.where(low, tl.where(i <= best_r, i - 1, t), tl.maximum(t, best_r + t - i))
        tl.store(position + t, at, t < n)
        count += tl.sum(tl.cast(low, tl.int32), 0)
    return best_r


@compiled_once
def solve_positional(
    scores, gains, where, weights, chosen, order, chosen_order, offsets, decay, discount, whole, real,
    task_loss, value, direction, size, stride, cutoff, least_cutoff,
    REFERENCE: tl.constexpr, NORMALIZED: tl.constexpr, RECIPROCAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Solve one list: its documents are numbered by descending score."""
    index = tl.cast(tl.program_id(0), tl.int64)
    start, places = bounds(offsets, size)
    scores, gains = of_list(scores, start), of_list(gains, start)
    where, weights, chosen = of_list(where, start), of_list(weights, start), of_list(chosen, start)
    order, chosen_order = of_list(order, start), of_list(chosen_order, start)
    direction += start
    real += start + index
    whole += start + index
    score, gain, coefficient, key, its_gain = (
        real,
        real + stride,
        real + 2 * stride,
        real + 3 * stride,
        real + 4 * stride,
    )
    position, reference, found, ends, given, asked = (
        whole, whole + stride, whole + 2 * stride, whole + 3 * stride, whole + 4 * stride, whole + 5 * stride)  # fmt: skip

    first, exists = document(order, where, 0, places)
    top = as_double(tl.load(scores + first, exists, other=0.0))
    n = 0
    wrong = 0
    highest = zero() - float("inf")
    lowest = zero() + float("inf")
    for begin in range(0, places, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        at, inside = document(order, where, t, places)
        own = tl.cast(tl.load(scores + at, inside, other=0.0), tl.float64) - top
        worth, valid = read_label(gains, at, inside, 0.0)
        if weights is not None:
            worth *= tl.load(weights + at, inside, other=0.0)
        valid = valid & (own >= -1e301) & is_finite(own) & is_finite(worth) & (worth >= 0.0)
        if chosen is not None:
            valid = valid & is_finite(tl.load(chosen + at, inside, other=0.0))
        wrong += tl.sum(tl.cast(inside & ~valid, tl.int32), 0)
        n += tl.sum(tl.cast(inside, tl.int32), 0)
        highest = tl.maximum(highest, tl.max(tl.where(inside, worth, -float("inf")), 0))
        lowest = tl.minimum(lowest, tl.min(tl.where(inside, worth, float("inf")), 0))
        tl.store(score + t, own, inside)
        tl.store(gain + t, worth, inside)
        tl.store(given + at, t, inside)
        tl.store(position + t, t, inside)  # by score
        tl.store(reference + t, tl.zeros_like(t) - 1, inside)
    tl.debug_barrier()  # the list

    nothing = tl.where(wrong > 0, float("nan"), 0.0)
    tl.store(task_loss + index, nothing)
    tl.store(value + index, nothing)
    if (wrong == 0) & (highest > lowest):
        cut = tl.minimum(cutoff, n)
        if least_cutoff > 0:
            many = 0
            for begin in range(0, n, BLOCK):
                t = begin + tl.arange(0, BLOCK)
                many += tl.sum(tl.cast((t < n) & (tl.load(gain + t, t < n, other=0.0) == highest), tl.int32), 0)
            cut = tl.minimum(cut, tl.maximum(many + 1, least_cutoff))
        # In the order of the reference, by default that of the scores.
        if chosen_order is None:
            by_key, by_gain, in_order = score, gain, None
        else:
            by_key, by_gain, in_order = key, its_gain, asked
            for begin in range(0, n, BLOCK):
                at, inside = document(chosen_order, None, begin + tl.arange(0, BLOCK), n)
                q = tl.load(given + at, inside, other=0)
                t = begin + tl.arange(0, BLOCK)
                tl.store(asked + t, q, inside)
                tl.store(its_gain + t, tl.load(gain + q, inside, other=0.0), inside)
                if chosen is not None:
                    tl.store(key + t, tl.load(chosen + at, inside, other=0.0), inside)
            tl.debug_barrier()  # the order
        until = cut
        if REFERENCE == IDEAL:
            until = n
        best = rank_by_gain(by_gain, n, highest, until, found, ends, discount, cut, BLOCK)
        tl.debug_barrier()  # what was found
        if (best > 0.0) & (tl.load(discount) != tl.where(cut == n, tl.load(discount + n - 1), 0.0)):
            if REFERENCE == PREDICTED:
                for begin in range(0, n, BLOCK):
                    t = begin + tl.arange(0, BLOCK)
                    rank, _ = walk_run(by_key, by_gain, by_gain, None, None, t, n)
                    tl.store(reference + document(in_order, None, t, n)[0], rank, t < n)
            else:
                if (REFERENCE == IDEAL_TIED) & RECIPROCAL:
                    until = 1
                rank_tied(
                    found, by_gain, in_order, n, discount, until, coefficient, reference, REFERENCE == IDEAL_TIED, BLOCK
                )
            tl.debug_barrier()  # the orders have been read
            if RECIPROCAL:
                above = rank_reciprocal(score, gain, n, cutoff, decay, discount, position, BLOCK)
                loss = 1.0 - tl.load(discount + above, above < cutoff, other=0.0)
            else:
                scale = zero() + 1.0
                if NORMALIZED:
                    scale = best
                front = front_of(gain, lowest, cut, n, BLOCK)
                tables = (decay, discount)
                assign((score, gain, front, highest), cut, scale, tables, found, coefficient, position, stride, BLOCK)
            tl.debug_barrier()  # the positions
            earned = zero()
            total = zero()
            for begin in range(0, n, BLOCK):
                t = begin + tl.arange(0, BLOCK)
                at = tl.load(position + t, t < n, other=0)
                worth = tl.load(discount + at, (t < n) & (at < cut), other=0.0)
                earned += tl.sum(worth * tl.load(gain + t, t < n, other=0.0), 0)
                own = tl.load(decay + at, t < n, other=0.0)
                own -= tl.load(decay + tl.load(reference + t, t < n, other=0), t < n, other=0.0)
                tl.store(coefficient + t, own, t < n)
                total += tl.sum(own * tl.load(score + t, t < n, other=0.0), 0)
            if not RECIPROCAL:
                loss = tl.maximum(best - earned, 0.0) / scale
            tl.store(task_loss + index, loss)
            tl.store(value + index, tl.maximum(loss + total, 0.0))
            tl.debug_barrier()  # the coefficients
            for begin in range(0, n, BLOCK):
                at, inside = document(order, None, begin + tl.arange(0, BLOCK), n)
                t = begin + tl.arange(0, BLOCK)
                own = tl.load(coefficient + t, inside, other=0.0)
                if REFERENCE != IDEAL:  # documents that are alike share theirs
                    _, own = walk_run(score, gain, coefficient, chosen, order, t, n)
                tl.store(direction + at, own, inside)


def solve(call: Call, batch: DeviceBatch) -> bool:
    """Solve a call of the loop."""
    options, chosen_order = call.options, batch.chosen_order
    decay, discount = (on_device(table, batch.scores.device) for table in options._arrays)
    if options.reference == IDEAL.value:  # in input order
        chosen_order = order_of(torch.zeros_like(batch.scores), batch.where, batch.offsets)
    solve_positional[(batch.lists,)](
        batch.scores, batch.labels, batch.where, batch.weights, batch.chosen, batch.order, chosen_order, batch.offsets,
        decay, discount, batch.space(8, torch.int32), batch.space(9, torch.float64), batch.task_loss, batch.value,
        batch.direction, batch.size, batch.stride, options.cutoff, options.least_cutoff,
        REFERENCE=options.reference, NORMALIZED=bool(options.normalized), RECIPROCAL=bool(options.reciprocal),
        BLOCK=batch.block, **launched_with(batch.block // 64, 64 if options.reciprocal else 128),
    )  # fmt: skip
    return True
