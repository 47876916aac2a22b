"""The expected discounted gain of scores that are means of Gaussians, as an operator; see soft_rank.hpp."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from rankstruct.kernels import core
from rankstruct.kernels.call import Call
from rankstruct.kernels.dispatch import ListOperator

__all__ = ["NODES", "SHARES", "soft_rank"]

#: Of Gauss and Hermite, for the mean over a standard normal variable.
NODES, SHARES = np.polynomial.hermite_e.hermegauss(32)
SHARES /= SHARES.sum()
_ONE_NODE = np.zeros(1), np.ones(1)


def _compiled(longest: int, discounts: Tensor, kept: int, normalized: bool, sigma: float, ranks: str) -> Call:
    table = discounts.double().numpy()
    # The noise of two scores has the standard deviation sqrt(2) sigma, that of one at a node of the other sigma.
    nodes, steepness = ((NODES, SHARES), 0.5**0.5) if ranks == "joint" else (_ONE_NODE, 0.5)
    model = *nodes, len(nodes[0]), steepness, ranks == "normal"
    return Call(core.soft_rank, core.soft_rank.options(table, len(table), kept, normalized, sigma, *model))


#: The best expected value less that of the scores, and its gradient. The labels are gains.
soft_rank = ListOperator(
    "soft_rank",
    "Tensor discounts, SymInt kept, bool normalized, float sigma, str ranks",
    _compiled,
    gains=True,
    weighted=True,
)
