"""Losses whose terms are sums over the pairs of a list, or softmaxes over it, as operators: O(n) memory; see pair_sums.hpp."""

from __future__ import annotations

from rankstruct.kernels import core
from rankstruct.kernels.dispatch import ListOperator

#: The direction is the sum over j != i of sigmoid((s_j - s_i) / temperature), or max(0, 1 + (s_j - s_i) / temperature), for
#: documents with label 1, and 0 for others; or, given a loss' derivatives in these as `reference_scores`, those in the scores.
smoothed_ranks = ListOperator.of_loop(core.smoothed_ranks)
#: The circle loss and its gradient, with the unshifted scores as `reference_scores`.
circle = ListOperator.of_loop(core.circle, weighted=True)
#: SmoothGrad and its gradient. Labels are gains; the original labels are passed as `reference_scores`.
smooth_grad = ListOperator.of_loop(core.smooth_grad, gains=True, weighted=True)
#: NeuralNDCG and its gradient. The labels are gains.
neural_gain = ListOperator.of_loop(core.neural_gain, gains=True, weighted=True)
#: The cross entropy of NeuralSort and its gradient.
neural_entropy = ListOperator.of_loop(core.neural_entropy, weighted=True)
