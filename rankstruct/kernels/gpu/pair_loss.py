"""The costs of pairs and their weights; see pair_loss.hpp and pairwise_hinge.hpp.

Each document of a pair has the weight of the cost c(x) if it should be above the other, with x = sigma (s_i - s_j). With most
weights one of both is 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rankstruct.kernels.gpu.common import as_double

#: The costs, and the weights by the numbers of pair_loss.hpp.
LOGISTIC, CURVATURE, HINGE, ZERO_ONE, FIDELITY = (tl.constexpr(number) for number in range(5))
UNIFORM, NDCG1, NDCG2, NDCG2_PLUS, LAMBDARANK = (tl.constexpr(number) for number in range(5))


@triton.jit
def log_one_plus(z):
    """log(1 + z) for z >= 0: the error of 1 + z is undone."""
    u = 1.0 + z
    return tl.where(u == 1.0, z, tl.log(u) * (z / (u - 1.0)))


@triton.jit
def shares_of(x):
    """1 / (1 + exp(-x)), 1 / (1 + exp(x)), and exp(-|x|)."""
    z = tl.exp(0.0 - tl.abs(x))
    most = 1.0 / (1.0 + z)
    return tl.where(x >= 0.0, most, z * most), tl.where(x >= 0.0, z * most, most), z


@triton.jit
def cost_of(x, margin, COST: tl.constexpr):
    """c(x), and minus its slopes at x and at -x; for the curvature, 0 and its second derivatives."""
    if COST == HINGE:
        cost = tl.maximum(margin - x, 0.0)
        pull, pushed = as_double(x < margin), as_double(0.0 - x < margin)
    else:
        p, q, z = shares_of(x)
        cost, pull, pushed = q, p * q, p * q
        if COST == LOGISTIC:
            cost, pull, pushed = log_one_plus(z) + tl.maximum(0.0 - x, 0.0), q, p
        elif COST == FIDELITY:
            root_p, root_q = tl.sqrt(p), tl.sqrt(q)
            cost, pull, pushed = q / (1.0 + root_p), 0.5 * root_p * q, 0.5 * root_q * p
        elif COST == CURVATURE:
            cost = tl.zeros_like(x)
    return cost, pull, pushed


@triton.jit
def as_document(
    found, at, inside, best, lowest, largest, discounts, named, names, SCHEME: tl.constexpr, BY_KEY: tl.constexpr
):
    """x, gain, discount and rank; or, for a mean, x, label, relative weight and the place of the label among the named ones."""
    x, key, weight, rank = found
    if SCHEME == UNIFORM:
        third = tl.where(largest > 0.0, weight / largest, weight)
        fourth = tl.zeros_like(x) - 1.0
        if named is not None:
            for name in range(names):
                fourth = tl.where(key == tl.load(named + name), as_double(name), fourth)
    else:
        fourth = rank
        if not BY_KEY:
            fourth = as_double(at)
        third = tl.load(discounts + tl.cast(fourth, tl.int32), inside, other=0.0)
        if SCHEME == NDCG1:
            key = key / best * third
        else:
            key = key / best - lowest / best  # divided first: gains may be as large as their dtype allows
    return x, key, third, fourth


@triton.jit
def pair_terms(
    own, other, valid, margin, near, steps, named_pairs, names, COST: tl.constexpr, SCHEME: tl.constexpr
):  # fmt: skip
    """The cost with the row's document as the better one; the slope of both costs in its score; the weight in a mean."""
    x, gain, third, fourth = own
    its_x, its_gain, its_third, its_fourth = other
    if SCHEME == UNIFORM:
        each = third * its_third
    else:
        each = tl.abs(gain - its_gain)
    forth, back = tl.where(gain > its_gain, each, 0.0), tl.where(gain < its_gain, each, 0.0)
    if SCHEME == NDCG1:
        forth, back = gain + 0.0 * each, its_gain + 0.0 * each
    weight = 0.0 + forth
    if named_pairs is not None:
        known = valid & (fourth >= 0.0) & (its_fourth >= 0.0)
        swap = tl.load(named_pairs + tl.cast(fourth * names + its_fourth, tl.int32), known, other=0.0)
        forth, back = forth * swap, back * swap
    if SCHEME > NDCG1:
        swap = tl.abs(third - its_third)
        if SCHEME != LAMBDARANK:
            step = tl.load(steps + tl.cast(tl.abs(fourth - its_fourth), tl.int32), valid, other=0.0)
            if SCHEME == NDCG2:
                swap = step
            else:
                swap += near * step
        forth, back = forth * swap, back * swap
    cost, pull, pushed = cost_of(x - its_x, margin, COST)
    cost = tl.where(forth > 0.0, forth * cost, 0.0)  # of scores far apart it may be infinite
    slope = back * pushed - forth * pull
    if COST == CURVATURE:
        slope = back * pushed + forth * pull
    return cost, slope, weight
