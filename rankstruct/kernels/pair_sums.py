"""Losses whose terms are sums over the pairs of a list, or softmaxes over it, as operators: O(n) memory; see pair_sums.hpp."""

from __future__ import annotations

from torch import Tensor

from rankstruct.kernels import core
from rankstruct.kernels.call import Call
from rankstruct.kernels.dispatch import ListOperator

__all__ = ["circle", "neural_entropy", "neural_gain", "smooth_grad", "smoothed_ranks"]


def _smoothed_ranks(longest: int, temperature: float, hinge: bool, backward: bool) -> Call:
    return Call(core.smoothed_ranks, core.smoothed_ranks.options(temperature, hinge, backward))


#: The direction is the sum over j != i of sigmoid((s_j - s_i) / temperature), or max(0, 1 + (s_j - s_i) / temperature), for
#: documents with label 1, and 0 for others; or, given a loss' derivatives in these as `reference_scores`, those in the scores.
smoothed_ranks = ListOperator("smoothed_ranks", "float temperature, bool hinge, bool backward", _smoothed_ranks)


def _circle(longest: int, gamma: float, margin: float) -> Call:
    return Call(core.circle, core.circle.options(gamma, margin))


#: The circle loss and its gradient, with the unshifted scores as `reference_scores`.
circle = ListOperator("circle", "float gamma, float margin", _circle, weighted=True)


def _smooth_grad(longest: int, discounts: Tensor, kept: int, normalized: bool, sigma: float) -> Call:
    table = discounts.double().numpy()
    return Call(core.smooth_grad, core.smooth_grad.options(table, len(table), kept, normalized, sigma))


#: SmoothGrad and its gradient. Labels are gains; the original labels are passed as `reference_scores`.
smooth_grad = ListOperator(
    "smooth_grad",
    "Tensor discounts, SymInt kept, bool normalized, float sigma",
    _smooth_grad,
    gains=True,
    weighted=True,
)


def _neural_gain(longest: int, discounts: Tensor, kept: int, temperature: float) -> Call:
    table = discounts.double().numpy()
    return Call(core.neural_gain, core.neural_gain.options(table, len(table), kept, temperature))


#: NeuralNDCG and its gradient. The labels are gains.
neural_gain = ListOperator(
    "neural_gain", "Tensor discounts, SymInt kept, float temperature", _neural_gain, gains=True, weighted=True
)


def _neural_entropy(longest: int, temperature: float) -> Call:
    return Call(core.neural_entropy, core.neural_entropy.options(temperature))


#: The cross entropy of NeuralSort and its gradient.
neural_entropy = ListOperator("neural_entropy", "float temperature", _neural_entropy, weighted=True)
