"""The weighted pairwise logistic loss on the CPU: flat scores, one list after another, in O(n) memory.

In the order of the scores a pair of ranks i < j has x = sigma (s_i - s_j) >= 0, z = exp(-x) in (0, 1], and costs

    w_ij log(1 + z) + w_ji (x + log(1 + z))         with slope sigma (w_ji - (w_ij + w_ji) z / (1 + z)) in s_i, minus that in s_j

Weights depend on ranks, gains and ranks' distance alone, so that a row of pairs is a few loops over neighbours in memory, which
vector instructions take. One exponential a document: z is a ratio of two of them. Where a discount has a cut-off, only the
rows before it count: O(n k).
"""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.compilation import compile_kernel, compile_part, compile_vectorised
from rankstruct.kernels.sorting import longest_list, sort_descending, sort_space

UNIFORM, NDCG1, NDCG2, NDCG2_PLUS, LAMBDARANK = range(5)  # the order of `pairwise_logistic.SCHEMES`

_ONE = np.uint64(1)
_SMALLEST = 1e-150  # of the exponential that a row is divided by
_WIDEST = 1e300  # of x, so that 0 x is 0
_SQRT_2_LESS_1, _SQRT_HALF, _LOG_SQRT_2 = 0.41421356237309515, 0.7071067811865476, 0.34657359027997264


@compile_vectorised
def _weigh(first, last, own_gain, own_discount, gain, discounts, steps, scheme, mu, higher, lower):
    """Fill `higher` and `lower` with the weights of a rank as the better and the worse one of its pairs with `[first, last)`.

    Those are the ranks behind it, as unsigned numbers: a signed index might count from the end, which costs the vector
    instructions.
    """
    if scheme == NDCG1:
        for j in range(first, last):
            higher[j] = own_gain * own_discount
            lower[j] = gain[j] * discounts[j]
    elif scheme == UNIFORM:
        for j in range(first, last):
            higher[j] = 1.0 if own_gain > gain[j] else 0.0
            lower[j] = 1.0 if own_gain < gain[j] else 0.0
    else:
        apart = 0.0 if scheme == NDCG2 else 1.0
        near = 0.0 if scheme == LAMBDARANK else mu if scheme == NDCG2_PLUS else 1.0
        for j in range(first, last):
            swap = apart * (own_discount - discounts[j]) + near * steps[j - first + _ONE]
            difference = own_gain - gain[j]
            higher[j] = max(difference, 0.0) * swap
            lower[j] = max(-difference, 0.0) * swap


@compile_vectorised
def _add_row(first, last, own_x, inverse, x, exponential, higher, lower, sigma, slope):
    """The pairs of a rank with `[first, last)`: returns their cost and its slope, and adds theirs to `slope`.

    `inverse` is one over the rank's own exponential.
    """
    cost, own = 0.0, 0.0
    for j in range(first, last):
        z = exponential[j] * inverse
        # log(1 + z) = 2 artanh(y / (2 + y)), after 1 + z was brought near 1 by a factor 1 / sqrt(2).
        large = z > _SQRT_2_LESS_1
        y = (z - _SQRT_2_LESS_1) * _SQRT_HALF if large else z
        f = y / (2.0 + y)
        s = f * f
        p = 1 / 21 + s * (1 / 23)
        p = 1 / 17 + s * (1 / 19 + s * p)
        p = 1 / 13 + s * (1 / 15 + s * p)
        p = 1 / 9 + s * (1 / 11 + s * p)
        p = 1 / 5 + s * (1 / 7 + s * p)
        p = 1.0 + s * (1 / 3 + s * p)
        log = 2.0 * f * p + (_LOG_SQRT_2 if large else 0.0)
        both = higher[j] + lower[j]
        cost += both * log + lower[j] * (own_x - x[j])
        pull = sigma * (lower[j] - both * (z / (1.0 + z)))
        own += pull
        slope[j] -= pull
    return cost, own


@compile_part
def _unit(gain, by_gain, n, discounts, kept, scheme):
    """What a list's cost is divided by: the best value, of "uniform" the number of pairs; 0 where no ranking can be wrong."""
    if n == 0 or gain[by_gain[0]] == gain[by_gain[n - 1]]:
        return 0.0
    if scheme != UNIFORM:
        best = 0.0
        for i in range(min(kept, n)):
            best += discounts[i] * gain[by_gain[i]]
        falls = discounts[0] > (discounts[n - 1] if n <= kept else 0.0)
        return best if falls else 0.0
    pairs, members = 0.5 * n * (n - 1), 0
    for i in range(n):
        members = members + 1 if i and gain[by_gain[i]] == gain[by_gain[i - 1]] else 1
        pairs -= members - 1
    return pairs


@compile_kernel
def logistic_lists(
    scores,
    bits,
    gains,
    gain_bits,
    where,
    offsets,
    discounts,
    steps,
    kept,
    scheme,
    sigma,
    mu,
    first,
    last,
    value,
    direction,
):
    """The loss of each list `[first, last)` and its gradient.

    `bits` and `gain_bits` are the memory of `scores` and `gains`, both float64, as unsigned integers, `where` is uint8, or empty
    if every document is real; fills `value` [lists] and `direction` [documents]. Returns -1, or the position of a gain below 0.
    """
    size = longest_list(offsets, first, last)
    space, gain_space = sort_space(bits, size), sort_space(gain_bits, size)
    order, by_gain = space[1][0], gain_space[1][0]
    x, gain, exponential, slope = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    higher, lower = np.empty(size), np.empty(size)
    for index in range(first, last):
        start, stop = offsets[index], offsets[index + 1]
        value[index] = 0.0
        direction[start:stop] = 0.0
        n = sort_descending(gain_bits, where, start, stop, gain_space)
        if n and scheme != UNIFORM and gains[by_gain[n - 1]] < 0.0:
            return by_gain[n - 1]
        unit = _unit(gains, by_gain, n, discounts, kept, scheme)
        if unit <= 0.0:
            continue
        sort_descending(bits, where, start, stop, space)
        top = scores[order[0]]
        for i in range(n):
            x[i] = max(sigma * (scores[order[i]] - top), -_WIDEST)
            # Divided before they are multiplied: gains may be as large as their dtype holds.
            gain[i] = gains[order[i]] if scheme == UNIFORM else gains[order[i]] / unit
            exponential[i] = np.exp(x[i])
        slope[:n] = 0.0
        cost = 0.0
        for i in range(n - 1 if scheme == UNIFORM else min(kept, n - 1)):
            if exponential[i] < _SMALLEST:
                for j in range(i, n):
                    exponential[j] = np.exp(x[j] - x[i])
            begin, end = np.uint64(i + 1), np.uint64(n)
            its_own = discounts[i] if scheme != UNIFORM else 0.0
            _weigh(begin, end, gain[i], its_own, gain, discounts, steps, scheme, mu, higher, lower)
            added, own = _add_row(begin, end, x[i], 1.0 / exponential[i], x, exponential, higher, lower, sigma, slope)
            cost += added
            slope[i] += own
        scale = 1.0 / unit if scheme == UNIFORM else 1.0
        value[index] = cost * scale
        for i in range(n):
            direction[order[i]] = slope[i] * scale
    return -1
