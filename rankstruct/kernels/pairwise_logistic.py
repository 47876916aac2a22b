"""The weighted pairwise logistic loss (RankNet, LambdaLoss), as an operator over lists."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from rankstruct.kernels.dispatch import FlatLists, define_kernel, load_kernel

__all__ = ["pairwise_logistic"]

#: How a pair is weighted; see `rankstruct.losses.lambda_loss`. "uniform" is RankNet's mean over the pairs.
SCHEMES = ("uniform", "ndcg1", "ndcg2", "ndcg2++", "lambdarank")


def _flat(
    lists: FlatLists,
    results: tuple[np.ndarray, ...],
    discounts: Tensor,
    steps: Tensor,
    kept: int,
    scheme: str,
    sigma: float,
    mu: float,
) -> int:
    task_loss, value, direction = results
    task_loss[:] = 0.0
    broken = np.flatnonzero(lists.real(~np.isfinite(lists.scores)))
    if broken.size:
        return int(broken[0])
    scores = lists.scores + 0.0  # -0.0 and 0.0 tie, and then stand in input order
    gains = lists.labels.astype(np.float64)
    inputs = (scores, scores.view(np.uint64), gains, gains.view(np.uint64), lists.where, lists.bounds)
    tables = (discounts.double().numpy(), steps.double().numpy(), kept, SCHEMES.index(scheme), sigma, mu)
    loop = load_kernel("pairwise_logistic_cpu.logistic_lists")
    return lists.run(lambda first, last: loop(*inputs, *tables, first, last, value, direction))


#: Sum over the pairs of each list of w log(1 + exp(-sigma (s_i - s_j))), of "uniform" the mean, and its gradient; the task loss
#: is 0. The labels are gains; `kept` ranks have a discount above 0; `steps` are the falls d(r) - d(r + 1) without a cut-off.
pairwise_logistic = define_kernel(
    "pairwise_logistic",
    "Tensor discounts, Tensor steps, SymInt kept, str scheme, float sigma, float mu",
    _flat,
    precise=True,
)
