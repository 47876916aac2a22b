"""Rankings drawn from a Plackett-Luce policy and the derivatives that they estimate, on the CPU.

A few ranks are drawn one after another; of all, exponential noise over exp(s) has the policy's order, ascending. O(n + k log n) a
ranking, or that of a sort, and O(n) for derivatives. All loops stop at a list with scores too far apart for exp of their
differences, and return its number; -1 where there is none.
"""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.compilation import compile_kernel, compile_part, unsigned
from rankstruct.kernels.sorting import sort_descending, sort_space

_WIDEST = 600.0  # that float64 holds exp of it, one over that, and a little more
_WIDEST_CUBED = 200.0  # the same, of the cube of exp of it


@compile_part
def _powers(scores, where, index, widest, power):
    """What exp of the scores is over that of the highest, 0 in the padding; how many are real, or -1 if too far apart."""
    n, real, top = scores.shape[1], 0, -np.inf
    for d in range(n):
        if where[index, d]:
            real += 1
            top = max(top, scores[index, d])
    for d in range(n):
        power[d] = 0.0
        if where[index, d]:
            below = top - scores[index, d]
            if not below <= widest:
                return -1
            power[d] = np.exp(-below)
    return real


@compile_kernel
def draw_few(scores, where, uniform, first, last, placed):
    """Fill `placed`, `[samples, lists, k]`, for the lists `[first, last)`, from as many numbers in [0, 1).

    A document is found by descending a binary tree of sums, the root 1, the leaves behind one another from `leaves` on; what is
    drawn is taken out and the sums above it are added anew, so that no rounding is left of it. O(n + k log n) a ranking.
    """
    n, k = scores.shape[1], placed.shape[2]
    leaves = 1
    while leaves < n:
        leaves *= 2
    whole, tree = np.zeros(2 * leaves), np.empty(2 * leaves)
    for index in range(first, last):
        real = _powers(scores, where, index, _WIDEST, whole[leaves:])
        if real == -1:
            return index
        for node in range(leaves - 1, 0, -1):
            whole[node] = whole[2 * node] + whole[2 * node + 1]
        for sample in range(placed.shape[0]):
            tree[:] = whole
            for r in range(min(real, k)):
                rest, node = uniform[sample, index, r] * tree[1], 1
                while node < leaves:
                    node *= 2
                    if rest >= tree[node] and tree[node + 1] > 0.0:
                        rest -= tree[node]
                        node += 1
                placed[sample, index, r] = node - leaves
                tree[node] = 0.0
                while node > 1:
                    node //= 2
                    tree[node] = tree[2 * node] + tree[2 * node + 1]
            at = real
            for d in range(n):
                if at < k and not where[index, d]:
                    placed[sample, index, at] = d
                    at += 1
    return -1


@compile_kernel
def draw_lists(scores, where, noise, first, last, placed):
    """Fill `placed`, `[samples, lists, k]`, for the lists `[first, last)`, from exponential noise, one number a document."""
    n, k = scores.shape[1], placed.shape[2]
    power, key = np.empty(n), np.empty(n)
    bits = key.view(np.uint64)
    space, everything = sort_space(bits, n), np.empty(0, np.uint8)
    order = space[1][0]
    for index in range(first, last):
        if _powers(scores, where, index, _WIDEST, power) == -1:
            return index
        for sample in range(placed.shape[0]):
            for d in range(n):
                key[d] = -noise[sample, index, d] / power[d] if where[index, d] else -np.inf
            sort_descending(bits, everything, 0, n, space)
            for r in range(k):
                placed[sample, index, r] = order[r]
    return -1


@compile_part
def _look_ahead(ranking, worth, rewards, power, drawn, seen, own, gained, inverse, to_come):
    """What both derivatives need of each rank of a drawn ranking: the power of its document, what it gains, one over the powers
    that are left, and what is gained from there on. Marks its documents in `seen` as of the ranking number `drawn`.
    """
    for r in range(ranking.shape[0]):
        at = unsigned(ranking[r])
        own[r], gained[r] = power[at], worth[r] * rewards[at]
        seen[at] = drawn
    left, rest = 0.0, 0.0
    for d in range(power.shape[0]):
        left += power[d] if seen[d] != drawn else 0.0
    for r in range(ranking.shape[0] - 1, -1, -1):
        left += own[r]
        inverse[r] = 1.0 / left
        rest += gained[r]
        to_come[r] = rest


@compile_kernel
def gradient_lists(scores, where, placed, worth, rewards, first, last, found):
    """Fill `found`, `[lists, n]`, for the lists `[first, last)`; see `losses.policy` for the three terms."""
    n, samples, k = scores.shape[1], placed.shape[0], placed.shape[2]
    power, seen = np.empty(n), np.zeros(n, np.int64)
    own, gained, inverse, to_come = np.empty((4, k))
    drawn = 0
    for index in range(first, last):
        real = _powers(scores, where, index, _WIDEST, power)
        if real == -1:
            return index
        ranks = min(real, k)
        mine = found[index]
        for d in range(n):
            mine[d] = 0.0
        for sample in range(samples):
            drawn += 1
            ranking = placed[sample, index, :ranks]
            _look_ahead(ranking, worth[index], rewards[index], power, drawn, seen, own, gained, inverse, to_come)
            of_worth, of_rest = 0.0, 0.0
            for r in range(ranks):
                at = unsigned(placed[sample, index, r])
                of_worth += worth[index, r] * inverse[r]
                of_rest += to_come[r] * inverse[r]
                mine[at] += to_come[r] - gained[r] + own[r] * (rewards[index, at] * of_worth - of_rest)
            for d in range(n):
                mine[d] += power[d] * (rewards[index, d] * of_worth - of_rest) if seen[d] != drawn else 0.0
        for d in range(n):
            mine[d] /= samples
    return -1


@compile_kernel
def curvature_lists(scores, where, placed, worth, rewards, first, last, found):
    """Fill `found`, `[lists, n]`, for the lists `[first, last)`; see `losses.policy` for A_i, B_i and the terms."""
    n, samples, k = scores.shape[1], placed.shape[0], placed.shape[2]
    power, seen = np.empty(n), np.zeros(n, np.int64)
    own, gained, inverse, to_come = np.empty((4, k))
    drawn = 0
    for index in range(first, last):
        real = _powers(scores, where, index, _WIDEST_CUBED, power)
        if real == -1:
            return index
        ranks = min(real, k)
        mine = found[index]
        for d in range(n):
            mine[d] = 0.0
        for sample in range(samples):
            drawn += 1
            ranking = placed[sample, index, :ranks]
            _look_ahead(ranking, worth[index], rewards[index], power, drawn, seen, own, gained, inverse, to_come)
            once, twice = 0.0, 0.0  # A_r and B_r
            of_others, of_others_squared = 0.0, 0.0
            of_own, of_own_squared, of_own_cubed = 0.0, 0.0, 0.0
            for r in range(ranks):
                at, p = unsigned(placed[sample, index, r]), own[r]
                once += inverse[r]
                twice += inverse[r] * inverse[r]
                squares = once * once + twice
                weight = worth[index, r] * inverse[r]
                of_own += weight
                of_own_squared += weight * once
                of_own_cubed += weight * squares
                if_placed = 1.0 - 3.0 * p * once + p * p * squares
                mine[at] += (to_come[r] - gained[r]) * if_placed + p * (p * of_others_squared - of_others)
                mine[at] += rewards[index, at] * p * (of_own - 3.0 * p * of_own_squared + p * p * of_own_cubed)
                of_others += gained[r] * once
                of_others_squared += gained[r] * squares
            for d in range(n):
                if seen[d] != drawn:
                    p = power[d]
                    mine[d] += p * (p * of_others_squared - of_others)
                    mine[d] += rewards[index, d] * p * (of_own - 3.0 * p * of_own_squared + p * p * of_own_cubed)
        for d in range(n):
            mine[d] /= samples
    return -1
