"""The terms of smoothed ranks and NeuralSort; see pair_sums.hpp.

`own` and `other` are what `pairs.read` has of a row and of a column. NeuralSort has four passes: A_j = sum_k |x_j - x_k|; the
softmax of each rank, whose highest logit is that of the document there; the slopes in the logits of each document, over the
ranks; and what they are in the scores, by the signs in A. The cross entropy has the same softmaxes of the labels.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rankstruct.kernels.gpu.common import as_double
from rankstruct.kernels.gpu.pair_loss import shares_of


@triton.jit
def rank_terms(own, other, HINGE: tl.constexpr, BACKWARD: tl.constexpr):
    """The share of the column's document in the rank of the row's; or the slope of all ranks, times the numbers of `own[1]`."""
    lead = other[0] - own[0]
    if HINGE:
        term = tl.maximum(1.0 + lead, 0.0)
        if BACKWARD:
            term = tl.where(1.0 - lead > 0.0, other[1], 0.0) - tl.where(1.0 + lead > 0.0, own[1], 0.0)
    else:
        p, q, z = shares_of(lead)
        term = p
        if BACKWARD:
            term = p * q * (other[1] - own[1])
    if BACKWARD == 0:
        term *= own[1]
    return term, term, 0.0 * own[1]


@triton.jit
def neural_terms(own, other, r, c, n, ENTROPY: tl.constexpr, PASS: tl.constexpr):
    """Numbers by rank are the label there, `[3]`, and results of its softmaxes, `[7]` on."""
    lead = other[0] - own[0]
    if PASS == 0:
        terms = tl.abs(lead), tl.abs(other[1] - own[1]), tl.abs(other[3] - own[3])
    elif PASS == 1:  # the row is a rank
        factor = as_double(n - 1 - 2 * r)
        chance = tl.exp(factor * lead - (other[4] - own[4]))
        terms = chance, chance * other[1], chance
        if ENTROPY:
            wanted = tl.exp(factor * (other[1] - own[3]) - (other[5] - own[6]))
            terms = chance, wanted, wanted * other[2]
    elif PASS == 2:  # the column is
        factor = as_double(n - 1 - 2 * c)
        behind = factor * lead - (other[4] - own[4])
        slope = other[7] * tl.exp(0.0 - behind)
        if ENTROPY:
            wanted = own[2] * other[8] * tl.exp(factor * (own[1] - other[3]) - (own[5] - other[6]))
            slope = slope * other[9] - wanted
            terms = slope, factor * slope, wanted * (behind - tl.log(other[9]))
        else:
            slope *= other[8] - own[1]
            terms = slope, factor * slope, slope
    else:
        slope = tl.where(lead < 0.0, 1.0, tl.where(lead > 0.0, -1.0, 0.0)) * (own[10] + other[10])
        terms = slope, slope, slope
    return terms


@triton.jit
def neural_results(own, sums, ENTROPY: tl.constexpr, PASS: tl.constexpr):
    """What later passes need of a row: by rank the share of its softmax in the slopes, the mean gain, and minus its value."""
    found = sums
    if PASS == 1:
        if ENTROPY:
            found = sums[2] / sums[1], 1.0 / sums[1], 1.0 / sums[0]
        else:
            mean = tl.where(own[2] > 0.0, sums[1] / sums[0], 0.0)
            found = tl.where(own[2] > 0.0, own[2] / sums[0], 0.0), mean, 0.0 - own[2] * mean
    elif PASS == 3:
        found = own[11] - sums[0], sums[1], sums[2]
    return found
