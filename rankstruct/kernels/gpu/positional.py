"""The positional map: see positional.hpp and assignment.hpp for the mathematics. One program a list, after one sort.

Ranks by gain take a pass over the documents for each distinct gain before the cut-off. Only the front, the leading documents by
score that compete for the ranks before the cut-off, has an assignment problem. Each of its documents bisects for the first
boundary whose best set, considered alone, contains it; its rank there is a bisection in each class. If those sets are nested, as
without a cut-off they mostly are, this is the optimum. Otherwise thresholds between what is inside and outside give prices of
the positions, each document takes the position it prefers, and the few that want the same one follow shortest augmenting paths,
with a lane for each position. So O(passes n / lanes) for the list, and for a front of f documents with L classes O(f L log^2 f /
lanes), plus O(f / lanes) for each step of a path. Reciprocal rank has a lane for each rank of the highest relevant document.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from rankstruct.kernels.call import Call
from rankstruct.kernels.gpu.batch import DeviceBatch, on_device
from rankstruct.kernels.gpu.common import AT_MOST, as_double, bisect, bounds, document, is_finite, zero

IDEAL, IDEAL_TIED, PREDICTED = (tl.constexpr(number) for number in range(3))


@triton.jit
def numbered(order, t, n):
    """The document, by rank in the list, that is the t-th of an order, and whether there is one."""
    q = t
    if order is not None:  # else by score
        q = tl.load(order + t, t < n, other=-1)
    return q, (t < n) & (q >= 0)


@triton.jit
def fill(values, n, number, BLOCK: tl.constexpr):
    """Set numbers of scratch."""
    for begin in range(0, n, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        tl.store(values + t, tl.zeros_like(t) + number, t < n)


@triton.jit
def rank_by_gain(gain, order, n, highest, until, found, ends, discount, cut, BLOCK: tl.constexpr):
    """Write which numbers of an order have the `until` highest gains, equal ones as in the order, and where each class ends.

    Returns their discounted gains up to a cut-off.
    """
    count = 0
    value = highest
    total = zero()
    while count < until:
        below = zero() - float("inf")
        first = count
        for begin in range(0, n, BLOCK):
            t = begin + tl.arange(0, BLOCK)
            q, inside = numbered(order, t, n)
            own = tl.load(gain + q, inside, other=-float("inf"))
            here = inside & (own == value)
            rank = count + tl.cumsum(tl.cast(here, tl.int32), 0) - 1
            tl.store(found + rank, t, here)
            counted = here & (rank < cut)
            total += tl.sum(tl.where(counted, tl.load(discount + rank, counted, other=0.0) * own, 0.0), 0)
            below = tl.maximum(below, tl.max(tl.where(own < value, own, -float("inf")), 0))
            count += tl.sum(tl.cast(here, tl.int32), 0)
        if ends is not None:
            tl.store(ends + first, count)
        value = below
    return total


@triton.jit
def fill_open(position, order, n, behind, BLOCK: tl.constexpr):
    """Give the positions from `behind` on, as in the order, to the documents without one, -1."""
    for begin in range(0, n, BLOCK):
        q, inside = numbered(order, begin + tl.arange(0, BLOCK), n)
        open = inside & (tl.load(position + q, inside, other=0) < 0)
        tl.store(position + q, behind + tl.cumsum(tl.cast(open, tl.int32), 0) - 1, open)
        behind += tl.sum(tl.cast(open, tl.int32), 0)


@triton.jit
def key_of(key, by, t, mask):
    """The keys of the t-th documents `by` them."""
    at = t
    if by is not None:
        at = tl.cast(tl.load(by + t, mask, other=0), tl.int32)
    return tl.load(key + at, mask, other=0.0)


@triton.jit
def is_tied(key, by, t, at, n):
    """Whether the keys of the t-th and another document are equal."""
    inside = (t < n) & (at >= 0) & (at < n)
    return inside & (key_of(key, by, at, inside) == key_of(key, by, t, inside))


@triton.jit
def head(key, by, t, n):
    """The first document with the same key."""
    at = t
    more = 1
    while more > 0:
        same = is_tied(key, by, t, at - 1, n)
        at = at - tl.cast(same, tl.int32)
        more = tl.max(tl.cast(same, tl.int32), 0)
    return at


@triton.jit
def rank_tied(found, order, n, discount, cut, position, TIED: tl.constexpr, BLOCK: tl.constexpr):
    """By gain, as `found`; with TIED at ranks of equal discount, and after the cut-off always, only as in the order."""
    for begin in range(0, cut, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        t = tl.load(found + i, i < cut, other=0)
        rank = i
        if TIED:
            at = head(discount, None, i, cut)
            rank = at
            more = 1
            while more > 0:
                same = is_tied(discount, None, i, at, cut)
                rank = rank + tl.cast(same & (tl.load(found + at, same, other=0) < t), tl.int32)
                at = at + 1
                more = tl.max(tl.cast(same, tl.int32), 0)
        q, inside = numbered(order, t, n)
        tl.store(position + q, rank, inside & (i < cut))
    tl.debug_barrier()  # the positions
    fill_open(position, order, n, cut, BLOCK)


@triton.jit
def rank_predicted(gain, key, by, order, n, position, BLOCK: tl.constexpr):
    """As in the order, which is by descending key, with ties by gain."""
    for begin in range(0, n, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        q, inside = numbered(order, t, n)
        own = tl.load(gain + q, inside, other=0.0)
        at = head(key, by, t, n)
        rank = at
        more = 1
        while more > 0:
            same = is_tied(key, by, t, at, n)
            its = tl.load(gain + numbered(order, at, n)[0], same, other=0.0)
            rank = rank + tl.cast(same & ((its > own) | ((its == own) & (at < t))), tl.int32)
            at = at + 1
            more = tl.max(tl.cast(same, tl.int32), 0)
        tl.store(position + q, rank, inside)


@triton.jit
def front_of(gain, lowest, cut, n, BLOCK: tl.constexpr):
    """How many leading documents compete for the ranks before the cut-off: as many of the lowest gain are among them."""
    size = n
    count = 0
    begin = 0
    while (begin < n) & (count < cut) & (cut < n):
        t = begin + tl.arange(0, BLOCK)
        low = (t < n) & (tl.load(gain + t, t < n, other=0.0) == lowest)
        counts = count + tl.cumsum(tl.cast(low, tl.int32), 0)
        size = tl.min(tl.where((t < n) & (counts >= cut), t + 1, size), 0)
        count += tl.sum(tl.cast(low, tl.int32), 0)
        begin += BLOCK
    return size


@triton.jit
def falls(problem, i, n):
    """By how much c and a fall after positions."""
    score, gain, ends, c, a = problem
    at = tl.minimum(i, n - 2)
    return tl.load(c + at) - tl.load(c + at + 1), tl.load(a + at) - tl.load(a + at + 1)


@triton.jit
def rank_inside(problem, r, i, n, steps):
    """The rank of documents r by what they are worth inside boundaries i."""
    score, gain, ends, c, a = problem
    fall_c, fall_a = falls(problem, i, n)
    own = fall_c * tl.load(score + r, r < n, other=0.0) - fall_a * tl.load(gain + r, r < n, other=0.0)
    rank = tl.zeros_like(r)
    begin = 0
    while begin < n:
        end = tl.load(ends + begin)
        cost = fall_a * tl.load(gain + begin)
        low = tl.zeros_like(r) + begin
        high = tl.zeros_like(r) + end
        for _ in range(steps):
            middle = (low + high) // 2
            open = low < high
            worth = fall_c * tl.load(score + middle, open, other=0.0) - cost
            more = (worth > own) | ((worth == own) & (middle < r))
            low = tl.where(open & more, middle + 1, low)
            high = tl.where(open & ~more, middle, high)
        rank += low - begin
        begin = end
    return rank


@triton.jit
def place_alone(problem, n, place, steps, BLOCK: tl.constexpr):
    """The first boundary whose best set contains each document."""
    for begin in range(0, n, BLOCK):
        r = begin + tl.arange(0, BLOCK)
        low = tl.zeros_like(r)
        high = low + n - 1
        for _ in range(steps):
            i = (low + high) // 2
            outside = (low < high) & (rank_inside(problem, r, i, n, steps) > i)
            high = tl.where(outside, high, i)
            low = tl.where(outside, i + 1, low)
        tl.store(place + r, low, r < n)


@triton.jit
def set_thresholds(problem, n, place, price, steps, BLOCK: tl.constexpr):
    """Between what is inside and outside each boundary; returns how many boundaries would have other documents inside."""
    score, gain, ends, c, a = problem
    wrong = 0
    for start in range(0, n - 1, BLOCK):
        i = start + tl.arange(0, BLOCK)
        fall_c, fall_a = falls(problem, i, n)
        lowest = zero() + float("inf") + tl.zeros_like(fall_c)
        highest = -lowest
        inside = tl.zeros_like(i)
        begin = 0
        while begin < n:
            end = tl.load(ends + begin)
            cost = fall_a * tl.load(gain + begin)
            at = bisect(place, end, i, begin, steps, AT_MOST)
            inside += at - begin
            kept = fall_c * tl.load(score + at - 1, at > begin, other=0.0) - cost
            left = fall_c * tl.load(score + at, at < end, other=0.0) - cost
            lowest = tl.minimum(lowest, tl.where(at > begin, kept, float("inf")))
            highest = tl.maximum(highest, tl.where(at < end, left, -float("inf")))
            begin = end
        wrong += tl.sum(tl.cast((i < n - 1) & ((inside != i + 1) | (lowest < highest)), tl.int32), 0)
        lowest = tl.where(is_finite(lowest), lowest, highest)
        highest = tl.where(is_finite(highest), highest, lowest)
        tl.store(price + i, 0.5 * (lowest + highest), i < n - 1)
    return wrong


@triton.jit
def choose(problem, n, place, price, holder, BLOCK: tl.constexpr):
    """Give documents the position they prefer, if no document before prefers it; -1 for those without one."""
    score, gain, ends, c, a = problem
    carry = zero()
    for block in range((n + BLOCK - 1) // BLOCK):
        i = n - 1 - block * BLOCK - tl.arange(0, BLOCK)  # from the last one
        own = tl.load(price + i, (i >= 0) & (i < n - 1), other=0.0)
        tl.store(price + i, carry + tl.cumsum(own, 0), i >= 0)
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
    tl.debug_barrier()  # where each wants to be
    for begin in range(0, n, BLOCK):
        j = begin + tl.arange(0, BLOCK)
        own = tl.zeros_like(j) - 1
        for r in range(n):
            own = tl.where((own < 0) & (tl.load(place + r) == j), r, own)
        tl.store(holder + j, own, j < n)
    tl.debug_barrier()  # who is there
    for begin in range(0, n, BLOCK):
        r = begin + tl.arange(0, BLOCK)
        at = tl.load(place + r, r < n, other=0)
        tl.store(place + r, tl.where(tl.load(holder + at) == r, at, -1), r < n)
    tl.debug_barrier()  # who has a place


@triton.jit
def augment(problem, n, document, place, price, holder, paths, BLOCK: tl.constexpr):
    """Give a document without a position one along a shortest augmenting path, and update the prices: see `Prices`."""
    score, gain, ends, c, a = problem
    cost, settled, previous = paths
    for begin in range(0, n, BLOCK):
        j = begin + tl.arange(0, BLOCK)
        tl.store(cost + j, zero() + float("inf") + tl.zeros_like(as_double(j)), j < n)
        tl.store(settled + j, zero() + float("inf") + tl.zeros_like(as_double(j)), j < n)
    by = document
    at = n
    distance = zero()
    shift = zero()
    while by >= 0:
        tl.debug_barrier()  # the step before
        its_score = tl.load(score + by)
        its_gain = tl.load(gain + by)
        nearest = zero() + float("inf")
        key = 2 * n  # the nearest position, plus n if it is held
        for begin in range(0, n, BLOCK):
            j = begin + tl.arange(0, BLOCK)
            inside = j < n
            known = tl.where(j == at, distance, tl.load(settled + j, inside, other=0.0))
            tl.store(settled + j, known, inside)
            open = inside & (known == float("inf"))
            own = tl.load(cost + j, open, other=0.0)
            way = its_gain * tl.load(a + j, open, other=0.0) - its_score * tl.load(c + j, open, other=0.0)
            way = way + tl.load(price + j, open, other=0.0) - shift
            tl.store(previous + j, tl.zeros_like(j) + by, open & (way < own))
            own = tl.minimum(way, own)
            tl.store(cost + j, own, open)
            here = tl.min(tl.where(open, own, float("inf")), 0)
            held = tl.load(holder + j, open, other=0) >= 0
            its = tl.min(tl.where(open & (own == here), tl.where(held, j + n, j), 2 * n), 0)
            key = tl.where(here < nearest, its, tl.where(here == nearest, tl.minimum(key, its), key))
            nearest = tl.minimum(nearest, here)
        at = key % n
        distance = nearest
        by = tl.load(holder + at)
        held = tl.maximum(by, 0)
        way = tl.load(gain + held) * tl.load(a + at) - tl.load(score + held) * tl.load(c + at)
        shift = way + tl.load(price + at) - distance
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
    tl.debug_barrier()  # prices and places


@triton.jit
def assign(documents, cut, scale, tables, ints, reals, position, BLOCK: tl.constexpr):
    """Solve the assignment problem of the n leading documents; writes their positions."""
    score, gain, n, highest = documents
    decay, discount = tables
    members, ends, place, holder, previous = ints
    its_score, its_gain, c, a, price, cost, settled = reals
    last = n - 1
    least_c = tl.load(decay + last)
    least_a = tl.where(last < cut, tl.load(discount + last), 0.0)
    fall_c = tl.load(decay) - least_c
    fall_a = tl.load(discount) - least_a
    bound = tl.maximum(fall_c * tl.maximum(tl.abs(tl.load(score)), tl.abs(tl.load(score + last))), fall_a * (highest / scale))
    if (bound > 1e-280) & (bound < float("inf")) & (n > 1):  # else there is no choice
        rank_by_gain(gain, None, n, highest, n, members, ends, discount, 0, BLOCK)
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
                if tl.load(place + r) < 0:
                    tl.debug_barrier()  # all have read it
                    augment(problem, n, r, place, price, holder, (cost, settled, previous), BLOCK)
        for begin in range(0, n, BLOCK):
            r = begin + tl.arange(0, BLOCK)
            tl.store(position + tl.load(members + r, r < n, other=0), tl.load(place + r, r < n, other=0), r < n)


@triton.jit
def rank_reciprocal(documents, k, decay, members, before, position, BLOCK: tl.constexpr):
    """The best rank of the highest relevant document, or none up to rank k: see `Positional::rank_reciprocal`.

    Returns how many irrelevant documents are above it, at most k.
    """
    score, p, n = documents
    lead = tl.load(members)
    first = tl.minimum(lead, k)
    tl.store(before, 0.0)
    carry = zero()
    for begin in range(0, n, BLOCK):  # prefix sums of the documents' terms at their ranks by score
        q = begin + tl.arange(0, BLOCK)
        own = tl.load(decay + q, q < n, other=0.0) * tl.load(score + q, q < n, other=0.0)
        tl.store(before + q + 1, carry + tl.cumsum(own, 0), q < n)
        carry += tl.sum(own, 0)
    tl.debug_barrier()  # the sums
    best = zero() + float("inf")  # of what is lost
    best_r = first
    above = tl.load(before + first)
    begin = first
    end = tl.minimum(n - p, k)
    while begin <= end:
        r = begin + tl.arange(0, BLOCK)
        inside = (r <= end) & (r > 0)
        its = tl.load(members + p + r - 1, inside, other=0)  # the last irrelevant one above
        term = tl.load(decay + r - 1, inside, other=0.0) * tl.load(score + its, inside, other=0.0)
        sums = above + tl.cumsum(tl.where(r > first, term, 0.0), 0)
        over = tl.where(inside, its - r + 1, 0)  # relevant documents above that one
        moved = tl.where(r < k, tl.maximum(over, 1), over)
        last = tl.where(inside & ((r > lead) | (r == k)), its, lead)
        value = sums + carry - tl.load(before + last + 1)
        most = tl.max(tl.where(r <= end, moved, 0), 0)
        for j in range(most):
            real = (r <= end) & (j < moved)
            value += tl.load(decay + r + j, real, other=0.0) * tl.load(score + tl.load(members + j))
        value = tl.where(r <= end, value, -float("inf"))
        lost = tl.where(r < k, 1.0 / as_double(r + 1), 0.0) - value
        here = tl.min(lost, 0)
        if here < best:
            best_r = tl.min(tl.where(lost == here, r, n), 0)
            best = here
        above = tl.max(tl.where(r == tl.minimum(begin + BLOCK - 1, end), sums, -float("inf")), 0)
        final = tl.max(tl.where(r == tl.minimum(begin + BLOCK - 1, end), value, -float("inf")), 0)
        begin = tl.where(final <= 0.0 - best, end, begin + BLOCK - 1) + 1  # even without the credit nothing is better
    for begin in range(0, n, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        own = tl.load(members + p + i, i < best_r, other=0)
        tl.store(position + own, i, i < best_r)
    if best_r < k:
        tl.store(position + lead, best_r)
    tl.debug_barrier()  # those positions
    fill_open(position, None, n, best_r + tl.cast(best_r < k, tl.int32), BLOCK)
    return best_r


@triton.jit
def mean_of_tied(coefficient, score, gain, chosen, order, t, n):
    """The mean of the coefficients of documents with the same score and gain, and score that determines the reference."""
    own_gain = tl.load(gain + t, t < n, other=0.0)
    at = head(score, None, t, n)
    total = tl.zeros_like(own_gain)
    many = tl.zeros_like(t)
    more = 1
    while more > 0:
        same = is_tied(score, None, t, at, n)
        alike = same & (tl.load(gain + at, same, other=-1.0) == own_gain)
        if chosen is not None:
            alike = alike & is_tied(chosen, order, t, at, n)
        total += tl.load(coefficient + at, alike, other=0.0)
        many += tl.cast(alike, tl.int32)
        at = at + 1
        more = tl.max(tl.cast(same, tl.int32), 0)
    return tl.where(many == 1, tl.load(coefficient + t, t < n, other=0.0), total / as_double(tl.maximum(many, 1)))


@triton.jit
def solve_positional(
    scores, gains, where, weights, chosen, order, chosen_order, offsets, decay, discount, whole, real,
    task_loss, value, direction, size, stride, cutoff, least_cutoff,
    REFERENCE: tl.constexpr, NORMALIZED: tl.constexpr, RECIPROCAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Solve one list: its documents are numbered by descending score."""
    index = tl.cast(tl.program_id(0), tl.int64)
    start, places = bounds(offsets, size)
    scores += start
    gains += start
    order += start
    direction += start
    if where is not None:
        where += start
    if weights is not None:
        weights += start
    if chosen is not None:
        chosen += start
    if chosen_order is not None:
        chosen_order += start
    real += start + index
    whole += start + index
    score, gain = real, real + stride
    reals = (real + 2 * stride, real + 3 * stride, real + 4 * stride, real + 5 * stride, real + 6 * stride,
             real + 7 * stride, real + 8 * stride)  # fmt: skip
    position, reference, found, given = whole, whole + stride, whole + 2 * stride, whole + 3 * stride
    asked, coefficient = whole + 4 * stride, reals[0]
    ints = (found, whole + 5 * stride, whole + 6 * stride, given, asked)

    first, exists = document(order, where, 0, places)
    top = tl.cast(tl.load(scores + first, exists, other=0.0), tl.float64)
    n = 0
    wrong = 0
    highest = zero() - float("inf")
    lowest = zero() + float("inf")
    fill(given, places, -1, BLOCK)
    tl.debug_barrier()  # padding
    for begin in range(0, places, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        at, inside = document(order, where, t, places)
        its_score = tl.cast(tl.load(scores + at, inside, other=0.0), tl.float64) - top
        its_gain = tl.cast(tl.load(gains + at, inside, other=0.0), tl.float64)
        if weights is not None:
            its_gain *= tl.load(weights + at, inside, other=0.0)
        valid = (its_score >= -1e301) & is_finite(its_score) & is_finite(its_gain) & (its_gain >= 0.0)
        if chosen is not None:
            valid = valid & is_finite(tl.load(chosen + at, inside, other=0.0))
        wrong += tl.sum(tl.cast(inside & ~valid, tl.int32), 0)
        n += tl.sum(tl.cast(inside, tl.int32), 0)
        highest = tl.maximum(highest, tl.max(tl.where(inside, its_gain, -float("inf")), 0))
        lowest = tl.minimum(lowest, tl.min(tl.where(inside, its_gain, float("inf")), 0))
        tl.store(score + t, its_score, inside)
        tl.store(gain + t, its_gain, inside)
        tl.store(given + at, t, inside)
        tl.store(position + t, t, inside)  # by score
        tl.store(reference + t, tl.zeros_like(t) - 1, inside)
    tl.debug_barrier()  # the list

    loss = zero()
    total = zero()
    if (wrong == 0) & (highest > lowest):
        cut = tl.minimum(cutoff, n)
        if least_cutoff > 0:
            many = 0
            for begin in range(0, n, BLOCK):
                t = begin + tl.arange(0, BLOCK)
                many += tl.sum(tl.cast((t < n) & (tl.load(gain + t, t < n, other=0.0) == highest), tl.int32), 0)
            cut = tl.minimum(cut, tl.maximum(many + 1, least_cutoff))
        in_order = None
        key = score
        key_order = None
        by = n
        until = cut
        if REFERENCE == IDEAL:
            in_order = given
            by = places
            until = n
        elif chosen is not None:
            in_order = asked
            key = chosen
            key_order = chosen_order
            for begin in range(0, n, BLOCK):
                t = begin + tl.arange(0, BLOCK)
                own = tl.cast(tl.load(chosen_order + t, t < n, other=0), tl.int32)
                tl.store(asked + t, tl.load(given + own, t < n, other=0), t < n)
            tl.debug_barrier()  # the order
        best = rank_by_gain(gain, in_order, by, highest, until, found, None, discount, cut, BLOCK)
        tl.debug_barrier()  # what was found
        if (best > 0.0) & (tl.load(discount) != tl.where(cut == n, tl.load(discount + n - 1), 0.0)):
            if REFERENCE == PREDICTED:
                rank_predicted(gain, key, key_order, in_order, n, reference, BLOCK)
            else:
                if (REFERENCE == IDEAL_TIED) & RECIPROCAL:
                    until = 1
                rank_tied(found, in_order, by, discount, until, reference, REFERENCE == IDEAL_TIED, BLOCK)
            tl.debug_barrier()  # what was found and the orders have been read
            if RECIPROCAL:
                rank_by_gain(gain, None, n, highest, n, found, ints[1], discount, 0, BLOCK)
                fill(position, n, -1, BLOCK)
                tl.debug_barrier()  # the classes
                above = rank_reciprocal((score, tl.load(ints[1]), n), cutoff, decay, found, reals[0], position, BLOCK)
                loss = 1.0 - tl.load(discount + above, above < cutoff, other=0.0)
            else:
                scale = zero() + 1.0
                if NORMALIZED:
                    scale = best
                front = front_of(gain, lowest, cut, n, BLOCK)
                assign((score, gain, front, highest), cut, scale, (decay, discount), ints, reals, position, BLOCK)
            tl.debug_barrier()  # the positions
            earned = zero()
            for begin in range(0, n, BLOCK):
                t = begin + tl.arange(0, BLOCK)
                its = tl.load(position + t, t < n, other=0)
                worth = tl.load(discount + its, (t < n) & (its < cut), other=0.0)
                earned += tl.sum(worth * tl.load(gain + t, t < n, other=0.0), 0)
                own = tl.load(decay + its, t < n, other=0.0)
                own -= tl.load(decay + tl.load(reference + t, t < n, other=0), t < n, other=0.0)
                tl.store(coefficient + t, own, t < n)
                total += tl.sum(own * tl.load(score + t, t < n, other=0.0), 0)
            if not RECIPROCAL:
                loss = tl.maximum(best - earned, 0.0)
                if NORMALIZED:
                    loss /= best
            total = tl.maximum(loss + total, 0.0)
            tl.debug_barrier()  # the coefficients
            for begin in range(0, n, BLOCK):
                t = begin + tl.arange(0, BLOCK)
                at, inside = document(order, None, t, n)
                own = tl.load(coefficient + t, inside, other=0.0)
                if REFERENCE != IDEAL:  # documents that are alike have their mean
                    own = mean_of_tied(coefficient, score, gain, chosen, order, t, n)
                tl.store(direction + at, own, inside)
    nothing = tl.where(wrong > 0, float("nan"), 0.0)
    tl.store(task_loss + index, loss + nothing)
    tl.store(value + index, total + nothing)


def solve(call: Call, batch: DeviceBatch) -> bool:
    """Solve a call of the loop."""
    options = call.options
    decay, discount = (on_device(table, batch.scores.device) for table in options._arrays)
    solve_positional[(batch.lists,)](
        batch.scores, batch.labels, batch.where, batch.weights, batch.chosen, batch.order, batch.chosen_order, batch.offsets,
        decay, discount, batch.space(7, torch.int32), batch.space(9, torch.float64), batch.task_loss, batch.value,
        batch.direction, batch.size, batch.stride, options.cutoff, options.least_cutoff,
        REFERENCE=options.reference, NORMALIZED=bool(options.normalized), RECIPROCAL=bool(options.reciprocal),
        BLOCK=batch.block, num_warps=batch.block // 64, enable_fp_fusion=False,
    )  # fmt: skip
    return True
