"""Weighted sums of the costs of pairs: the operator of RankNet, LambdaLoss and others."""

from __future__ import annotations

from torch import Tensor

from rankstruct.kernels import core
from rankstruct.kernels.call import Call
from rankstruct.kernels.dispatch import ListOperator

#: The weight of a pair; see `rankstruct.losses.LambdaLoss`. "uniform" is RankNet's mean over the pairs.
SCHEMES = ("uniform", "ndcg1", "ndcg2", "ndcg2++", "lambdarank")
#: The cost of a pair with x = sigma (s_i - s_j): log(1 + exp(-x)), max(0, 1 - x), sigmoid(-x), 1 - sqrt(sigmoid(x)). "curvature"
#: returns the second derivatives of the first cost in place of the gradient.
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
    named = [None if each is None else each.numpy().ravel() for each in (grades, grade_weights)]
    tables = discounts.double().numpy(), steps.double().numpy()
    loop = COSTS[cost]
    return Call(loop, loop.options(*tables, kept, SCHEMES.index(scheme), sigma, mu, *named))


#: Sum over the pairs of each list of w cost(s_i - s_j), or the mean for "uniform", and its gradient; the task loss is 0. Labels
#: are gains, or grades for "uniform"; `kept` ranks have a discount above 0; `steps` are d(r) - d(r + 1) without a cut-off. For
#: "uniform", the cost of a pair is multiplied by the entry of `grade_weights`, float64 [grades, grades] and symmetric, for its
#: two `grades`, and by 0 if one of them is not listed.
pair_loss = ListOperator(
    "pair_loss",
    "Tensor discounts, Tensor steps, SymInt kept, str scheme, str cost, float sigma, float mu, "
    "Tensor? grades, Tensor? grade_weights",
    _compiled,
    gains=True,
    weighted=True,
)
