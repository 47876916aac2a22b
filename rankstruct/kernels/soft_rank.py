"""The expected discounted gain of Gaussian scores, as an operator; see soft_rank.hpp."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from rankstruct.kernels import core
from rankstruct.kernels.call import Call
from rankstruct.kernels.dispatch import ListOperator

#: Gauss-Hermite quadrature for the mean over a standard normal variable.
NODES, SHARES = np.polynomial.hermite_e.hermegauss(32)
SHARES /= SHARES.sum()
_ONE_NODE = np.zeros(1), np.ones(1)


def _compiled(longest: int, discounts: Tensor, kept: int, normalized: bool, sigma: float, ranks: str) -> Call:
    # The difference of two scores has standard deviation sqrt(2) sigma; given one of them, sigma.
    nodes, steepness = ((NODES, SHARES), 0.5**0.5) if ranks == "joint" else (_ONE_NODE, 0.5)
    model = *nodes, steepness, ranks == "normal"
    return Call(core.soft_rank, core.soft_rank.options(discounts.double().numpy(), kept, normalized, sigma, *model))


#: The best value minus the expected value of the scores, and its gradient. Labels are gains.
soft_rank = ListOperator(
    "soft_rank",
    "Tensor discounts, SymInt kept, bool normalized, float sigma, str ranks",
    _compiled,
    gains=True,
    weighted=True,
)
