"""Pairwise losses: pairs of documents of one list whose grades differ.

A list without such a pair (one document, equal labels, all padding) costs exactly 0 and has zero gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import softplus
from typing_extensions import Unpack

from rankstruct.kernels import circle, pair_loss, pairwise_hinge
from rankstruct.lists import check_lists
from rankstruct.losses.base import (
    ListOptions,
    PerList,
    RankingLoss,
    Reduction,
    check_choice,
    check_positive,
    check_reduction,
    compiled_loss,
    longest_of,
    normalized_gains,
    normalized_measure,
    opened,
    reduce_lists,
    relative,
    with_gradient,
)
from rankstruct.measures import DiscountedGain, Measure

__all__ = [
    "CircleLoss",
    "FidelityLoss",
    "LambdaLoss",
    "RankNetLoss",
    "RankSVMLoss",
    "circle_loss",
    "fidelity_loss",
    "grade_pair_weights",
    "lambda_loss",
    "ranknet_loss",
    "ranksvm_loss",
]

Scheme = Literal["ndcg1", "ndcg2", "ndcg2++", "lambdarank", "uniform"]
PairSurrogate = Literal["logistic", "hinge", "zero-one"]
PairWeights = Sequence[tuple[float, float, float]]
SCHEMES, PAIR_SURROGATES = get_args(Scheme), get_args(PairSurrogate)


@opened
def ranksvm_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    margin: float = 1.0,
    pair_weights: PairWeights | None = None,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
    weights: Tensor | None = None,
    item_weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Pairwise hinge (RankSVM): the mean of max(0, margin - (s_i - s_j)) over all pairs of a list with y_i > y_j.

    O(n log n) time and O(n) memory for n documents, with any number of grades on the CPU, and for each grade elsewhere; with item
    weights O(n^2) time, and elsewhere of both. At a difference of exactly the margin the gradient is that of a pair that costs
    nothing. On binary labels the structured hinge of AUC is twice this loss with margin 1/2.

    Args:
        scores, labels, where, offsets, weights, item_weights, reduction: the list contract of `rankstruct.losses.base`.
        margin: the difference from which a pair costs nothing, above 0.
        pair_weights: for SVM-IR, `(higher grade, lower grade, weight)` of the pairs that count, weights >= 0, such as
            `grade_pair_weights` finds; the cost of a pair is multiplied by it, the mean stays that over all pairs; O(n^2) time.
            All count 1 if None. That each query counts alike, however many pairs it has, SVM-IR's query weights, is the mean's
            doing.

    Source: Herbrich, Graepel, Obermayer, "Large Margin Rank Boundaries for Ordinal Regression", 2000; Joachims, "Optimizing
    Search Engines using Clickthrough Data", KDD 2002. Counting by sorted order: Joachims, "Training Linear SVMs in Linear
    Time", KDD 2006. SVM-IR: Cao, Xu, Liu, Li, Huang, Hon, "Adapting Ranking SVM to Document Retrieval", SIGIR 2006.

    >>> ranksvm_loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(2.)
    >>> ranksvm_loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]), pair_weights=[(2, 0, 1.0), (2, 1, 0.5)])
    tensor(0.9167)
    """
    check_positive("margin", margin)
    check_reduction(reduction)
    if pair_weights is not None:
        _check_pair_weights(pair_weights)
    if item_weights is not None or pair_weights is not None:
        per_list = _mean_over_pairs(lambda differences: torch.relu(margin - differences), pair_weights)
        solve = _ByPairs("hinge", 1 / margin, unit=1 / margin, pair_weights=pair_weights)
        layout: dict[str, Any] = {"where": where, "offsets": offsets, "weights": weights, "reduction": reduction}
        return compiled_loss(per_list, solve, scores, labels, item_weights=item_weights, **layout)
    check_lists(scores, labels, where, offsets)
    lists = (scores.detach(), labels.detach(), where, offsets, None, None, 0.0)
    _, value, direction = pairwise_hinge(*lists, float(margin))
    values = with_gradient(scores, value, direction, offsets)
    return reduce_lists(values, where=where, offsets=offsets, weights=weights, reduction=reduction)


class RankSVMLoss(RankingLoss):
    """`ranksvm_loss` as a module; see there for the arguments, the errors and the sources.

    >>> RankSVMLoss()
    RankSVMLoss(margin=1.0, reduction=mean)
    >>> RankSVMLoss(pair_weights=[(2, 0, 1.0), (1, 0, 0.3)])                             # SVM-IR
    RankSVMLoss(margin=1.0, pair_weights=[(2, 0, 1.0), (1, 0, 0.3)], reduction=mean)
    """

    function: ClassVar[Callable[..., Tensor]] = staticmethod(ranksvm_loss)
    convex = True

    def __init__(
        self, margin: float = 1.0, pair_weights: PairWeights | None = None, *, reduction: Reduction = "mean"
    ) -> None:
        check_positive("margin", margin)
        _check_pair_weights(pair_weights or ())
        pairs = None if pair_weights is None else [(high, low, weight) for high, low, weight in pair_weights]
        super().__init__(reduction, margin=margin, pair_weights=pairs)


def _check_pair_weights(pair_weights: PairWeights) -> None:
    for each in pair_weights:
        if len(each) != 3 or not (each[0] > each[1] and 0 <= each[2] < math.inf):
            raise ValueError(f"pair_weights must be (higher grade, lower grade, weight >= 0) each, got {each!r}")
    if len({tuple(each[:2]) for each in pair_weights}) < len(pair_weights):
        raise ValueError("pair_weights must name two grades once")


def grade_pair_weights(
    labels: Tensor, offsets: Tensor, measure: str | Measure = "nDCG@10"
) -> list[tuple[float, float, float]]:
    """SVM-IR's weights of pairs of grades: what a measure loses if two such documents of a perfect ranking change places.

    The mean over the documents of the two grades, in closed form, and over the lists that have both.

    Args:
        labels: `[documents]`, of the training lists.
        offsets: int64 `[lists + 1]`.
        measure: nDCG with any options and cut-off, or another normalised discounted gain.

    Returns:
        `(higher grade, lower grade, weight)` of each, for `RankSVMLoss(pair_weights=...)`.

    Source: Cao, Xu, Liu, Li, Huang, Hon, SIGIR 2006, which draws the documents.

    >>> grade_pair_weights(torch.tensor([0, 2, 1, 1, 0]), torch.tensor([0, 3, 5]), "nDCG@1")
    [(1.0, 0.0, 0.5), (2.0, 0.0, 1.0), (2.0, 1.0, 0.6666666666666667)]
    """
    chosen = normalized_measure(measure, "grade_pair_weights")
    found: dict[tuple[float, float], list[float]] = {}
    for list_labels in labels.detach().double().split(offsets.diff().tolist()):
        ranked = list_labels.sort(descending=True).values
        where = torch.ones_like(ranked, dtype=torch.bool)
        gains, can_err = normalized_gains(chosen, ranked, where)
        if not bool(can_err):
            continue
        discounts = chosen.unchecked_weights(len(ranked))
        grades = ranked.unique().tolist()
        means = [(float(gains[at].mean()), float(discounts[at].mean())) for at in (ranked == grade for grade in grades)]
        for high in range(1, len(grades)):
            for low in range(high):
                loses = (means[high][0] - means[low][0]) * (means[high][1] - means[low][1])
                found.setdefault((grades[high], grades[low]), []).append(loses)
    return [(*pair, sum(each) / len(each)) for pair, each in sorted(found.items())]


def ranknet_loss(scores: Tensor, labels: Tensor, *, sigma: float = 1.0, **lists: Unpack[ListOptions]) -> Tensor:
    """Pairwise logistic (RankNet): the mean of log(1 + exp(-sigma (s_i - s_j))) over all pairs of a list with y_i > y_j.

    O(n^2) time; O(n) memory on the CPU, O(n^2) elsewhere and for derivatives of higher order.

    Args:
        scores, labels, where, offsets, weights, item_weights, reduction: the list contract of `rankstruct.losses.base`.
        sigma: the steepness, above 0.

    Source: Burges et al., "Learning to Rank using Gradient Descent", ICML 2005.

    >>> ranknet_loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(1.4341)
    """
    check_positive("sigma", sigma)
    per_list = _mean_over_pairs(lambda differences: softplus(-sigma * differences))
    return compiled_loss(per_list, _ByPairs("logistic", sigma), scores, labels, **lists)


class RankNetLoss(RankingLoss):
    """`ranknet_loss` as a module; see there for the arguments, the errors and the source.

    >>> RankNetLoss(sigma=2.0)
    RankNetLoss(sigma=2.0, reduction=mean)
    """

    function = staticmethod(ranknet_loss)
    convex = True
    sigma: float

    def __init__(self, sigma: float = 1.0, *, reduction: Reduction = "mean") -> None:
        check_positive("sigma", sigma)
        super().__init__(reduction, sigma=sigma)

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor:
        """Of the loss of each list, `[documents]`."""
        return _ByPairs("curvature", self.sigma).directions(scores, labels, offsets, item_weights)


def fidelity_loss(scores: Tensor, labels: Tensor, *, sigma: float = 1.0, **lists: Unpack[ListOptions]) -> Tensor:
    """Fidelity (FRank): the mean of 1 - sqrt(P) over all pairs of a list with y_i > y_j, P = 1 / (1 + exp(-sigma (s_i - s_j))).

    That is 1 - sqrt(P* P) - sqrt((1 - P*) (1 - P)) where the order of the pair is certain, P* = 1. At most 1 a pair, so that one
    that is hopelessly wrong pulls no more; not convex. O(n^2) time, O(n) memory on the CPU and O(n^2) elsewhere.

    Args:
        scores, labels, where, offsets, weights, item_weights, reduction: the list contract of `rankstruct.losses.base`.
        sigma: the steepness, above 0.

    Source: Tsai, Liu, Qin, Chen, Ma, "FRank: A Ranking Method with Fidelity Loss", SIGIR 2007. Its generalised additive model is
    `rs.BoostedRanker(loss="FidelityLoss()", num_leaves=2)`, by Newton steps.

    >>> fidelity_loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(0.4796)
    """
    check_positive("sigma", sigma)
    # sqrt(P) by its logarithm: neither overflows, and the slope where P is 0 is 0
    per_list = _mean_over_pairs(lambda differences: -torch.expm1(-0.5 * softplus(-sigma * differences)))
    return compiled_loss(per_list, _ByPairs("fidelity", sigma), scores, labels, **lists)


class FidelityLoss(RankingLoss):
    """`fidelity_loss` as a module; see there for the arguments, the errors and the source.

    >>> FidelityLoss(sigma=2.0)
    FidelityLoss(sigma=2.0, reduction=mean)
    """

    function = staticmethod(fidelity_loss)

    def __init__(self, sigma: float = 1.0, *, reduction: Reduction = "mean") -> None:
        check_positive("sigma", sigma)
        super().__init__(reduction, sigma=sigma)


def _mean_over_pairs(cost: Callable[[Tensor], Tensor], pair_weights: PairWeights | None = None) -> PerList:
    """The mean cost of s_i - s_j over the pairs of a list with y_i > y_j, by the product of their item weights.

    The cost of a pair is multiplied by the weight of its grades, and 0 if they have none, where there are `pair_weights`.
    """

    def per_list(scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        pairs = _ordered_pairs(labels, where)
        each = torch.where(pairs, cost(_differences(scores)), 0.0)
        if pair_weights is not None:
            grades = labels.unsqueeze(-1), labels.unsqueeze(-2)
            each = each * _weights_of_grades(*grades, pair_weights).to(each.dtype)
        if weights is None:
            return each.sum((-2, -1)) / pairs.sum((-2, -1)).clamp(min=1)
        products = _products(pairs, weights)
        total = products.sum((-2, -1))
        return (products * each).sum((-2, -1)) / torch.where(total > 0, total, 1.0)

    return per_list


def _weights_of_grades(better: Tensor, worse: Tensor, pair_weights: PairWeights) -> Tensor:
    """The weight of each pair of grades, shapes that broadcast; 0 where they are not named."""
    found = torch.zeros_like(better) * worse
    for high, low, weight in pair_weights:
        found = torch.where((better == high) & (worse == low), weight, found)
    return found


def _cost(differences: Tensor, surrogate: str, sigma: float) -> Tensor:
    """What a pair with s_i - s_j costs, 1 where they tie (of the zero-one, 1/2)."""
    if surrogate == "hinge":
        return torch.relu(1 - sigma * differences)
    if surrogate == "zero-one":
        return torch.sigmoid(-sigma * differences)
    return softplus(-sigma * differences) / math.log(2)


def lambda_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    measure: str | Measure = "nDCG",
    scheme: Scheme = "ndcg2",
    sigma: float = 1.0,
    mu: float = 10.0,
    surrogate: PairSurrogate = "logistic",
    **lists: Unpack[ListOptions],
) -> Tensor:
    """LambdaLoss: the sum over pairs of w_ij log2(1 + exp(-sigma (s_i - s_j))), weighted by what the pair means for nDCG.

    With G_i the document's gain over the best DCG, d(r) the discount, r_i the document's rank by score and k = |r_i - r_j|:

        lambdarank   w_ij = |G_i - G_j| |d(r_i) - d(r_j)|                                y_i > y_j
        ndcg1        w_ij = G_i d(r_i)                                                   all i, j with i != j
        ndcg2        w_ij = |G_i - G_j| |d(k) - d(k + 1)|                                y_i > y_j
        ndcg2++      w_ij = |G_i - G_j| (|d(r_i) - d(r_j)| + mu |d(k) - d(k + 1)|)       y_i > y_j
        uniform      w_ij = 1 over the number of pairs, whatever the measure             y_i > y_j

    The ranks are those of the current scores and no gradient passes through them; equal scores rank in input order. Without
    a cut-off, ndcg1 and ndcg2 are at least 1 - nDCG. Behind a cut-off d(r) is 0; d(k) knows none, but a pair with both
    documents behind it weighs 0. O(n^2) time, O(n k) with a cut-off k, and O(n) memory on the CPU; O(n^2) of both elsewhere
    and for derivatives of higher order.

    Args:
        scores, labels, where, offsets, weights, item_weights, reduction: the list contract of `rankstruct.losses.base`.
        measure: nDCG with any options and cut-off, or another normalised discounted gain; y_i > y_j means a higher gain.
        scheme: `"ndcg1"`, `"ndcg2"`, `"ndcg2++"`, `"lambdarank"` or `"uniform"`.
        sigma: the steepness, above 0.
        mu: the weight of the second term of `"ndcg2++"`, above 0; the others do not use it.
        surrogate: what a pair with x = sigma (s_i - s_j) costs: `"logistic"`, log2(1 + exp(-x)); `"hinge"`, max(0, 1 - x); or
            `"zero-one"`, sigmoid(-x), which is not convex. `LambdaLoss(scheme="uniform", surrogate="zero-one")` is the pairwise
            soft zero-one loss.

    Source: Wang, Li, Golbandi, Bendersky, Najork, "The LambdaLoss Framework for Ranking Metric Optimization", CIKM 2018.

    >>> lambda_loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(0.9982)
    """
    chosen = _check_lambda(measure, scheme, sigma, mu, surrogate)
    solve = _ByPairs(surrogate, sigma, scheme, mu, chosen, unit=math.log(2) if surrogate == "logistic" else 1.0)
    if scheme == "uniform":
        per_list = _mean_over_pairs(partial(_cost, surrogate=surrogate, sigma=sigma))
        return compiled_loss(per_list, solve, scores, labels, **lists)

    def weighted(scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        pairs, weight, can_err = _weighted_pairs(scores.detach(), labels, where, chosen, scheme, mu, weights)
        each = weight * _cost(_differences(scores), surrogate, sigma)
        return torch.where(can_err, torch.where(pairs, each, 0.0).sum((-2, -1)), 0.0)

    return compiled_loss(weighted, solve, scores, labels, signed=chosen.takes_negative_labels, **lists)


class _ByPairs:
    """Sums over pairs by the compiled loops of `pair_loss`, as `compiled_loss` takes them.

    Args:
        cost, sigma, scheme, mu: of `pair_loss`; `measure` has gains and discounts, but with the scheme "uniform".
        unit: what all is divided by.
        pair_weights: of `ranksvm_loss`.
    """

    def __init__(
        self,
        cost: str,
        sigma: float,
        scheme: str = "uniform",
        mu: float = 0.0,
        measure: DiscountedGain | None = None,
        *,
        unit: float = 1.0,
        pair_weights: PairWeights | None = None,
    ) -> None:
        self.measure = None if scheme == "uniform" else measure
        self.options = scheme, cost, float(sigma), float(mu)
        self.unit, self.pair_weights = unit, pair_weights

    def __call__(
        self, scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None, item_weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        gains = labels if self.measure is None else self.measure.document_gains(labels)
        lists = scores, gains, where, offsets, None, None, item_weights, 0.0
        tables = self._tables(longest_of(scores, offsets))
        _, value, direction = pair_loss(*lists, *tables, *self.options, *self._named(labels.dtype))
        return value / self.unit, direction / self.unit

    def _tables(self, size: int) -> tuple[Tensor, Tensor, int]:
        """Discounts of lists of this size, their falls, and how many ranks have one."""
        if self.measure is None:
            return torch.empty(0), torch.empty(0), 0
        kept = size if self.measure.cutoff is None else min(self.measure.cutoff, size)
        return self.measure.unchecked_weights(size), _steps(self.measure, size), kept

    def _named(self, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """The grades that pair weights name, as labels of the dtype have them, and the weight of any two."""
        if self.pair_weights is None:
            return None, None
        grades = sorted({grade for pair in self.pair_weights for grade in pair[:2]})
        table = torch.zeros(len(grades), len(grades), dtype=torch.float64)
        for high, low, weight in self.pair_weights:
            at, below = grades.index(high), grades.index(low)
            table[at, below] = table[below, at] = weight
        kind = dtype if dtype.is_floating_point else torch.float64
        return torch.tensor(grades, dtype=kind).double(), table

    def directions(self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None) -> Tensor:
        """The directions alone, of flat lists on the CPU whose item weights may be 0."""
        where = None if item_weights is None else item_weights > 0
        return self(scores.detach(), labels, where, offsets, item_weights)[1]


def _weighted_pairs(
    scores: Tensor,
    labels: Tensor,
    where: Tensor,
    measure: DiscountedGain,
    scheme: str,
    mu: float,
    weights: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Which pairs count, `[..., i, j]` bool, their w_ij, and which lists a ranking can get wrong, `[...]` bool."""
    size, device = labels.shape[-1], labels.device
    gains, can_err = normalized_gains(measure, labels, where, weights)
    gains = gains.to(scores.dtype)
    discounts = measure.unchecked_weights(size, device).to(scores.dtype)
    order = torch.where(where, scores, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    ranks = order.argsort(dim=-1)  # from 0
    own = discounts[ranks]
    pairs = where.unsqueeze(-1) & where.unsqueeze(-2)
    if scheme == "ndcg1":
        return pairs & ~torch.eye(size, dtype=torch.bool, device=device), (gains * own).unsqueeze(-1), can_err
    pairs = pairs & (gains.unsqueeze(-1) > gains.unsqueeze(-2))
    swap: Tensor | float = _differences(own).abs() if scheme != "ndcg2" else 0.0
    if scheme != "lambdarank":
        steps = _steps(measure, size, device).to(scores.dtype)
        swap = swap + (mu if scheme == "ndcg2++" else 1.0) * steps[_differences(ranks).abs()]
        if measure.cutoff is not None:
            within = ranks < measure.cutoff
            pairs = pairs & (within.unsqueeze(-1) | within.unsqueeze(-2))
    return pairs, _differences(gains) * swap, can_err


def _steps(measure: DiscountedGain, size: int, device: torch.device | None = None) -> Tensor:
    """d(k) - d(k + 1) for k = 0, 1, ..., size, without a cut-off, and 0 for k = 0; float64 `[size + 1]`."""
    plain = measure.discounts(torch.arange(1, size + 2, dtype=torch.float64, device=device))
    return torch.cat([plain.new_zeros(1), -plain.diff()])


class LambdaLoss(RankingLoss):
    """`lambda_loss` as a module; see there for the arguments, the schemes, the errors and the source.

    >>> LambdaLoss("nDCG@10", scheme="lambdarank")
    LambdaLoss(nDCG@10, scheme=lambdarank, sigma=1.0, mu=10.0, surrogate=logistic, reduction=mean)
    """

    function = staticmethod(lambda_loss)
    measure: DiscountedGain
    scheme: str
    sigma: float
    mu: float
    surrogate: str

    def __init__(
        self,
        measure: str | Measure = "nDCG",
        scheme: Scheme = "ndcg2",
        sigma: float = 1.0,
        mu: float = 10.0,
        surrogate: PairSurrogate = "logistic",
        *,
        reduction: Reduction = "mean",
    ) -> None:
        chosen = _check_lambda(measure, scheme, sigma, mu, surrogate)
        super().__init__(reduction, measure=chosen, scheme=scheme, sigma=sigma, mu=mu, surrogate=surrogate)

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether the loss is a convex function of the scores: with weights that no rank changes."""
        return self.scheme == "uniform" and self.surrogate != "zero-one"

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor | None:
        """Of the loss of each list, `[documents]`, the ranks staying as they are; None but of the logistic surrogate."""
        if self.surrogate != "logistic":
            return None
        found = _ByPairs("curvature", self.sigma, self.scheme, self.mu, self.measure, unit=math.log(2))
        return found.directions(scores, labels, offsets, item_weights)


def _check_lambda(measure: str | Measure, scheme: str, sigma: float, mu: float, surrogate: str) -> DiscountedGain:
    check_choice("scheme", scheme, SCHEMES)
    check_choice("surrogate", surrogate, PAIR_SURROGATES)
    check_positive("sigma", sigma)
    check_positive("mu", mu)
    return normalized_measure(measure, "LambdaLoss")


def _differences(values: Tensor) -> Tensor:
    """`[..., i, j]`: value i less value j."""
    return values.unsqueeze(-1) - values.unsqueeze(-2)


def _ordered_pairs(labels: Tensor, where: Tensor) -> Tensor:
    """`[..., i, j]` bool: both documents are real and i has the higher label."""
    better, worse = torch.where(where, labels, -torch.inf), torch.where(where, labels, torch.inf)
    return better.unsqueeze(-1) > worse.unsqueeze(-2)


def _products(pairs: Tensor, weights: Tensor) -> Tensor:
    """`[..., i, j]`: what a pair weighs by the item weights of its two, over that of the heaviest; 0 for others."""
    weights = relative(weights)
    return torch.where(pairs, weights.unsqueeze(-1) * weights.unsqueeze(-2), 0.0)


def circle_loss(
    scores: Tensor, labels: Tensor, *, gamma: float = 64.0, margin: float = 0.25, **lists: Unpack[ListOptions]
) -> Tensor:
    """Circle loss, for scores that are similarities, about 0 to 1: with a_i = max(0, 1 + m - s_i) and b_j = max(0, s_j + m),

        log(1 + sum over y_i > y_j of exp(gamma (b_j (s_j - m) - a_i (s_i - 1 + m))))

    The gradient holds the weights a and b fixed, as in the paper, so that each score is pulled as hard as it is far from where
    it should be; it is not that of the value. A shift of all scores changes the loss. O(n log n), on other devices O(n^2).

    Args:
        scores, labels, where, offsets, weights, item_weights, reduction: the list contract of `rankstruct.losses.base`.
        gamma: the scale, above 0.
        margin: m; relevant documents should score above 1 - m, others below m.

    Source: Sun et al., "Circle Loss: A Unified Perspective of Pair Similarity Optimization", CVPR 2020, equation 6.

    >>> circle_loss(torch.tensor([0.5, 0.0, 0.8]), torch.tensor([2, 1, 0]), gamma=1.0)
    tensor(2.1783)
    """
    _check_circle(gamma, margin)

    def per_list(scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        pairs = _ordered_pairs(labels, where)
        fixed = scores.detach()
        up = (1 + margin - fixed).relu() * (scores - 1 + margin)
        down = (fixed + margin).relu() * (scores - margin)
        each = gamma * (down.unsqueeze(-2) - up.unsqueeze(-1))
        if weights is not None:
            logs = torch.where(where, weights, 1.0).log()
            each = each + logs.unsqueeze(-1) + logs.unsqueeze(-2)
        lowest = torch.finfo(scores.dtype).min
        total = torch.where(pairs, each, lowest).flatten(-2).logsumexp(-1)
        return torch.where(pairs.any(-1).any(-1), softplus(total), 0.0)

    def solve(scores: Tensor, labels: Tensor, *more: Tensor | None) -> tuple[Tensor, Tensor]:
        where, offsets, weights = more
        return circle(scores, labels, where, offsets, scores, None, weights, 0.0, float(gamma), float(margin))[1:]

    return compiled_loss(per_list, solve, scores, labels, **lists)


class CircleLoss(RankingLoss):
    """`circle_loss` as a module; see there for the arguments, the errors and the source.

    >>> CircleLoss(gamma=32.0)
    CircleLoss(gamma=32.0, margin=0.25, reduction=mean)
    """

    function = staticmethod(circle_loss)

    def __init__(self, gamma: float = 64.0, margin: float = 0.25, *, reduction: Reduction = "mean") -> None:
        _check_circle(gamma, margin)
        super().__init__(reduction, gamma=gamma, margin=margin)


def _check_circle(gamma: float, margin: float) -> None:
    check_positive("gamma", gamma)
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not -math.inf < margin < math.inf:
        raise ValueError(f"margin must be a finite number, got {margin!r}")
