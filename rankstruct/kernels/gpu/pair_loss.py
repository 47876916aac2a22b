"""The costs of pairs and their weights; see pair_loss.hpp and pairwise_hinge.hpp.

Each document of a pair has the weight of the cost c(x) if it should be above the other, with x = sigma (s_i - s_j). With most
weights one of both is 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rankstruct.kernels.gpu.common import as_double

LOGISTIC, HINGE, ZERO_ONE, FIDELITY, CURVATURE = (tl.constexpr(number) for number in range(5))
COSTS = {"logistic": LOGISTIC, "hinge": HINGE, "zero_one": ZERO_ONE, "fidelity": FIDELITY}
#: The weights, by the numbers of pair_loss.hpp.
UNIFORM, NDCG1, NDCG2, NDCG2_PLUS, LAMBDARANK = (tl.constexpr(number) for number in range(5))


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
            u = 1.0 + z
            log = tl.where(u == 1.0, z, tl.log(u) * (z / (u - 1.0)))  # of 1 + z, whose rounding is undone
            cost, pull, pushed = log + tl.maximum(0.0 - x, 0.0), q, p
        elif COST == FIDELITY:
            root_p, root_q = tl.sqrt(p), tl.sqrt(q)
            cost, pull, pushed = q / (1.0 + root_p), 0.5 * root_p * q, 0.5 * root_q * p
        elif COST == CURVATURE:
            cost = tl.zeros_like(x)
    return cost, pull, pushed


@triton.jit
def terms_of(own, other, valid, form, COST: tl.constexpr, SCHEME: tl.constexpr):
    """The cost with the row's document as the better one; the slope of both costs in its score; the weight in a mean."""
    x, gain, third, fourth = own
    its_x, its_gain, its_third, its_fourth = other
    margin, near, steps, named_pairs, names = form
    if SCHEME == UNIFORM:
        each = third * its_third
    else:
        each = tl.abs(gain - its_gain)
    forth, back = tl.where(gain > its_gain, each, 0.0), tl.where(gain < its_gain, each, 0.0)
    if SCHEME == NDCG1:
        forth, back = gain * third + 0.0 * each, its_gain * its_third + 0.0 * each
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
    slope = back * pushed - forth * pull
    if COST == CURVATURE:
        slope = back * pushed + forth * pull
    return tl.where(forth > 0.0, forth * cost, 0.0), slope, weight  # the cost of scores far apart may be infinite
