"""The weighted pairwise logistic loss (RankNet, LambdaLoss), as an operator over lists."""

from __future__ import annotations

from torch import Tensor

from rankstruct.kernels import core
from rankstruct.kernels.dispatch import Call, Kernel

__all__ = ["pairwise_logistic"]

#: How a pair is weighted; see `rankstruct.losses.lambda_loss`. "uniform" is RankNet's mean over the pairs.
SCHEMES = ("uniform", "ndcg1", "ndcg2", "ndcg2++", "lambdarank")


def _compiled(longest: int, discounts: Tensor, steps: Tensor, kept: int, scheme: str, sigma: float, mu: float) -> Call:
    tables = discounts.double().numpy(), steps.double().numpy()
    return Call(
        core.pairwise_logistic,
        core.pairwise_logistic.options(*tables, len(tables[0]), kept, SCHEMES.index(scheme), sigma, mu, None, None, 0),
    )


#: Sum over the pairs of each list of w log(1 + exp(-sigma (s_i - s_j))), of "uniform" the mean, and its gradient; the task loss
#: is 0. The labels are gains; `kept` ranks have a discount above 0; `steps` are the falls d(r) - d(r + 1) without a cut-off.
pairwise_logistic = Kernel(
    "pairwise_logistic",
    "Tensor discounts, Tensor steps, SymInt kept, str scheme, float sigma, float mu",
    _compiled,
    gains=True,
)
