"""Sums of what pairs of documents cost, by how their labels weigh them: the operator behind RankNet, LambdaLoss and others."""

from __future__ import annotations

from torch import Tensor

from rankstruct.kernels import core
from rankstruct.kernels.call import Call
from rankstruct.kernels.dispatch import ListOperator

__all__ = ["pair_loss"]

#: How a pair is weighted; see `rankstruct.losses.LambdaLoss`. "uniform" is RankNet's mean over the pairs.
SCHEMES = ("uniform", "ndcg1", "ndcg2", "ndcg2++", "lambdarank")
#: What a pair with x = sigma (s_i - s_j) costs: log(1 + exp(-x)), max(0, 1 - x), sigmoid(-x), 1 - sqrt(sigmoid(x)). "curvature"
#: has the second derivatives of the first, of each document, in the place of the gradient.
COSTS = {
    "logistic": core.logistic_pairs,
    "curvature": core.logistic_curvatures,
    "hinge": core.hinge_pairs,
    "zero-one": core.zero_one_pairs,
    "fidelity": core.fidelity_pairs,
}


def _compiled(
    longest: int,
    discounts: Tensor,
    steps: Tensor,
    kept: int,
    scheme: str,
    cost: str,
    sigma: float,
    mu: float,
    grades: Tensor | None,
    grade_weights: Tensor | None,
) -> Call:
    tables = discounts.double().numpy(), steps.double().numpy()
    named = (
        (None, None, 0)
        if grades is None or grade_weights is None
        else (grades.numpy(), grade_weights.numpy(), len(grades))
    )
    options = COSTS[cost].options(*tables, len(tables[0]), kept, SCHEMES.index(scheme), sigma, mu, *named)
    return Call(COSTS[cost], options)


#: Sum over the pairs of each list of w cost(s_i - s_j), of "uniform" the mean, and its gradient; the task loss is 0. The labels
#: are gains, of "uniform" grades; `kept` ranks have a discount above 0; `steps` are the falls d(r) - d(r + 1) without a cut-off.
#: With "uniform" a pair's cost is multiplied by what `grade_weights`, float64 [grades, grades] and symmetric, has for the
#: `grades` of its two, and by 0 if one of them is not named.
pair_loss = ListOperator(
    "pair_loss",
    "Tensor discounts, Tensor steps, SymInt kept, str scheme, str cost, float sigma, float mu, "
    "Tensor? grades, Tensor? grade_weights",
    _compiled,
    gains=True,
    weighted=True,
)
