"""Pairwise losses: pairs of documents of one list whose grades differ.

A list without such a pair (one document, equal labels, all padding) has loss exactly 0 and zero gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankstruct.checks import check_numbers
from rankstruct.kernels.call import SCORES
from rankstruct.kernels.dispatch import CpuLists, Prepared, has_loops
from rankstruct.kernels.pair_loss import pair_loss
from rankstruct.kernels.pair_sums import circle
from rankstruct.kernels.pairwise_hinge import pairwise_hinge
from rankstruct.lists import Lists, is_eager, longest_list, refuse_inexact, without_weight_zero
from rankstruct.losses.autograd import with_gradient
from rankstruct.losses.base import RankingLoss, longest_of, takes_loops
from rankstruct.losses.gains import GainLoss, loop_discounts, normalized_gains, normalized_measure, tables_of
from rankstruct.losses.reduction import Reduction, reduce_lists, relative
from rankstruct.measures import DiscountedGain, Measure

__all__ = ["CircleLoss", "FidelityLoss", "LambdaLoss", "RankNetLoss", "RankSVMLoss", "grade_pair_weights"]

PairWeights = Sequence[tuple[float, float, float]]


class RankSVMLoss(RankingLoss):
    """Pairwise hinge (RankSVM): the mean of max(0, margin - (s_i - s_j)) over all pairs of a list with y_i > y_j.

    O(n log n) time for n documents, on CUDA and ROCm devices O(n^2), and O(n) memory, with any number of grades. At a difference
    of exactly the margin the gradient is 0. On binary labels the structured hinge of AUC is twice this loss with margin 1/2.

    Args:
        margin: the score difference above which a pair has loss 0, above 0.
        pair_weights: for SVM-IR, `(higher grade, lower grade, weight)` of the pairs that count, weights >= 0, such as from
            `grade_pair_weights`; the loss of a pair is multiplied by its weight, and the mean is still over all pairs; O(n^2)
            time. If None, all pairs have weight 1. SVM-IR's query weights, which make queries count equally whatever their number
            of pairs, are implied by the mean.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Herbrich, Graepel, Obermayer, "Large Margin Rank Boundaries for Ordinal Regression", 2000; Joachims, "Optimizing
    Search Engines using Clickthrough Data", KDD 2002. Counting by sorted order: Joachims, "Training Linear SVMs in Linear
    Time", KDD 2006. SVM-IR: Cao, Xu, Liu, Li, Huang, Hon, "Adapting Ranking SVM to Document Retrieval", SIGIR 2006.

    >>> lists = torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0])
    >>> RankSVMLoss()(*lists)
    tensor(2.)
    >>> loss = RankSVMLoss(pair_weights=[(2, 0, 1.0), (2, 1, 0.5)])                       # SVM-IR
    >>> loss
    RankSVMLoss(margin=1.0, pair_weights=[(2, 0, 1.0), (2, 1, 0.5)], reduction=mean)
    >>> loss(*lists)
    tensor(0.9167)
    """

    margin: float = 1.0
    pair_weights: PairWeights | None = None
    convex = True
    on_devices = True
    takes_item_weights = True

    def setup(self) -> None:
        """Check the margin and the weights."""
        check_numbers("> 0", margin=self.margin)
        if self.pair_weights is not None:
            _check_pair_weights(self.pair_weights)
            self.pair_weights = [(high, low, weight) for high, low, weight in self.pair_weights]

    def of_lists(self, scores: Tensor, lists: Lists, reduction: Reduction) -> Tensor:
        """The reduced loss, by sorting if all pairs have equal weight."""
        if self.pair_weights is not None:
            return super().of_lists(scores, lists, reduction)
        if lists.item_weights is not None:
            lists = without_weight_zero(scores, lists)
        given = scores.detach(), lists._replace(labels=lists.labels.detach()), 0.0
        _, value, direction = pairwise_hinge(*given, float(self.margin))
        return reduce_lists(with_gradient(scores, value, direction, lists.offsets), lists, reduction)

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        costs = torch.relu(self.margin - _differences(scores))
        return _mean_over_pairs(costs, labels, where, weights, self.pair_weights)

    def solve(self, scores: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
        """Value and gradient."""
        return _sum_over_pairs(
            scores, lists, "hinge", 1 / self.margin, unit=1 / self.margin, pair_weights=self.pair_weights
        )


def _check_pair_weights(pair_weights: PairWeights) -> None:
    for each in pair_weights:
        if len(each) != 3 or not (each[0] > each[1] and 0 <= each[2] < math.inf):
            raise ValueError(f"pair_weights must be tuples (higher grade, lower grade, weight >= 0), got {each!r}")
    if len({tuple(each[:2]) for each in pair_weights}) < len(pair_weights):
        raise ValueError("pair_weights must have each pair of grades only once")


def grade_pair_weights(
    labels: Tensor, offsets: Tensor, measure: str | Measure = "nDCG@10"
) -> list[tuple[float, float, float]]:
    """SVM-IR's weights of pairs of grades: the loss of a measure if two such documents of a perfect ranking are swapped.

    A weight is the mean over the documents of the two grades, in closed form, and over the lists that have both grades.

    Args:
        labels: `[documents]`, of the training lists.
        offsets: int64 `[lists + 1]`.
        measure: nDCG with any options and cut-off, or another normalised discounted gain.

    Returns:
        `(higher grade, lower grade, weight)` of each pair of grades, for `RankSVMLoss(pair_weights=...)`.

    Source: Cao, Xu, Liu, Li, Huang, Hon, SIGIR 2006, which samples the documents.

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


class RankNetLoss(RankingLoss):
    """Pairwise logistic (RankNet, BPR): the mean of log(1 + exp(-sigma (s_i - s_j))) over all pairs of a list with y_i > y_j.

    With the items of a user as a list, this is Bayesian personalised ranking (BPR), without its sampling of pairs and with the
    regularisation left to the optimizer. O(n^2) time, on the CPU O(r n) with r documents that have not the most frequent grade;
    O(n) memory there and on CUDA and ROCm devices, O(n^2) elsewhere and for higher-order derivatives.

    Args:
        sigma: the steepness, above 0.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Burges et al., "Learning to Rank using Gradient Descent", ICML 2005; Rendle, Freudenthaler, Gantner, Schmidt-Thieme,
    "BPR: Bayesian Personalized Ranking from Implicit Feedback", UAI 2009.

    >>> RankNetLoss()(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(1.4341)
    >>> RankNetLoss(sigma=2.0)
    RankNetLoss(sigma=2.0, reduction=mean)
    """

    sigma: float = 1.0
    convex = True
    on_devices = True
    takes_item_weights = True

    def setup(self) -> None:
        """Check the steepness."""
        check_numbers("> 0", sigma=self.sigma)

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        return _mean_over_pairs(softplus(-self.sigma * _differences(scores)), labels, where, weights)

    def solve(self, scores: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
        """Value and gradient."""
        return _sum_over_pairs(scores, lists, "logistic", self.sigma)

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor:
        """The diagonal of the Hessian of each list's loss, `[documents]`."""
        return _sum_over_pairs(*_known(scores, labels, offsets, item_weights), "curvature", self.sigma)[1]


class FidelityLoss(RankingLoss):
    """Fidelity (FRank): the mean of 1 - sqrt(P) over all pairs of a list with y_i > y_j, P = 1 / (1 + exp(-sigma (s_i - s_j))).

    This is 1 - sqrt(P* P) - sqrt((1 - P*) (1 - P)) if the order of the pair is certain, P* = 1. The loss of a pair is at most
    1, so the gradient of a hopelessly wrong pair vanishes, and the loss is not convex. O(n^2) time, O(n) memory on the CPU and on
    CUDA and ROCm devices, O(n^2) elsewhere.

    Args:
        sigma: the steepness, above 0.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Tsai, Liu, Qin, Chen, Ma, "FRank: A Ranking Method with Fidelity Loss", SIGIR 2007. Its generalised additive model is
    `rs.BoostedRanker(loss="FidelityLoss()", num_leaves=2)`, by Newton steps.

    >>> FidelityLoss()(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(0.4796)
    >>> FidelityLoss(sigma=2.0)
    FidelityLoss(sigma=2.0, reduction=mean)
    """

    sigma: float = 1.0
    on_devices = True
    takes_item_weights = True

    def setup(self) -> None:
        """Check the steepness."""
        check_numbers("> 0", sigma=self.sigma)

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        # sqrt(P) by its logarithm: neither overflows, and the slope at P = 0 is 0
        costs = -torch.expm1(-0.5 * softplus(-self.sigma * _differences(scores)))
        return _mean_over_pairs(costs, labels, where, weights)

    def solve(self, scores: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
        """Value and gradient."""
        return _sum_over_pairs(scores, lists, "fidelity", self.sigma)


def _mean_over_pairs(
    costs: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None, pair_weights: PairWeights | None = None
) -> Tensor:
    """The mean of costs `[..., i, j]` over the pairs of a list with y_i > y_j, by the product of their item weights.

    With `pair_weights`, the cost of a pair is multiplied by the weight of its grades, 0 if they have none.
    """
    pairs = _ordered_pairs(labels, where)
    each = torch.where(pairs, costs, 0.0)
    if pair_weights is not None:
        grades = labels.unsqueeze(-1), labels.unsqueeze(-2)
        each = each * _weights_of_grades(*grades, pair_weights).to(each.dtype)
    if weights is None:
        return each.sum((-2, -1)) / pairs.sum((-2, -1)).clamp(min=1)
    products = _products(pairs, weights)
    total = products.sum((-2, -1))
    return (products * each).sum((-2, -1)) / torch.where(total > 0, total, 1.0)


def _weights_of_grades(better: Tensor, worse: Tensor, pair_weights: PairWeights) -> Tensor:
    """The weight of each pair of grades, for shapes that broadcast; 0 for pairs without a weight."""
    found = torch.zeros_like(better) * worse
    for high, low, weight in pair_weights:
        found = torch.where((better == high) & (worse == low), weight, found)
    return found


class LambdaLoss(GainLoss):
    """LambdaLoss: the sum over pairs of w_ij log2(1 + exp(-sigma (s_i - s_j))), weighted by the pair's effect on nDCG.

    With G_i the document's gain divided by the best DCG, d(r) the discount, r_i its rank by score and k = |r_i - r_j|:

        lambdarank   w_ij = |G_i - G_j| |d(r_i) - d(r_j)|                                y_i > y_j
        ndcg1        w_ij = G_i d(r_i)                                                   all i, j with i != j
        ndcg2        w_ij = |G_i - G_j| |d(k) - d(k + 1)|                                y_i > y_j
        ndcg2++      w_ij = |G_i - G_j| (|d(r_i) - d(r_j)| + mu |d(k) - d(k + 1)|)       y_i > y_j
        uniform      w_ij = 1 over the number of pairs, whatever the measure             y_i > y_j

    The ranks are those of the current scores, and no gradient flows through them; equal scores rank in input order. Without a
    cut-off, ndcg1 and ndcg2 are at least 1 - nDCG. Beyond a cut-off d(r) is 0; d(k) has no cut-off, but a pair of documents that
    are both beyond it has weight 0. O(n^2) time, O(n k) with a cut-off k, and O(n) memory on the CPU and on CUDA and ROCm
    devices; O(n^2) of both elsewhere and for higher-order derivatives.

    Args:
        measure: nDCG with any options and cut-off, or another normalised discounted gain; y_i > y_j means a higher gain.
        scheme: `"ndcg1"`, `"ndcg2"`, `"ndcg2++"`, `"lambdarank"` or `"uniform"`.
        sigma: the steepness, above 0.
        mu: the weight of the second term of `"ndcg2++"`, above 0; unused by the others.
        surrogate: the loss of a pair with x = sigma (s_i - s_j): `"logistic"`, log2(1 + exp(-x)); `"hinge"`, max(0, 1 - x); or
            `"zero-one"`, sigmoid(-x), which is not convex. `LambdaLoss(scheme="uniform", surrogate="zero-one")` is the pairwise
            soft zero-one loss.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Wang, Li, Golbandi, Bendersky, Najork, "The LambdaLoss Framework for Ranking Metric Optimization", CIKM 2018.

    >>> LambdaLoss()(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(0.9982)
    >>> LambdaLoss("nDCG@10", scheme="lambdarank")
    LambdaLoss(nDCG@10, scheme=lambdarank, sigma=1.0, mu=10.0, surrogate=logistic, reduction=mean)
    """

    scheme: Literal["ndcg1", "ndcg2", "ndcg2++", "lambdarank", "uniform"] = "ndcg2"
    sigma: float = 1.0
    mu: float = 10.0
    surrogate: Literal["logistic", "hinge", "zero-one"] = "logistic"
    on_devices = True
    takes_item_weights = True

    def setup(self) -> None:
        """Check the numbers, and parse the measure."""
        check_numbers("> 0", sigma=self.sigma)
        check_numbers("> 0", mu=self.mu)
        super().setup()

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether the loss is a convex function of the scores, which it is if the weights do not depend on ranks."""
        return self.scheme == "uniform" and self.surrogate != "zero-one"

    @property
    def takes_negative_labels(self) -> bool:  # type: ignore[override]
        """Whether the measure is used and defines gains for negative labels."""
        return self.scheme != "uniform" and self.gain.takes_negative_labels

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        costs = self._cost(_differences(scores))
        if self.scheme == "uniform":
            return _mean_over_pairs(costs, labels, where, weights)
        pairs, weight, can_err = self._weighted_pairs(scores.detach(), labels, where, weights)
        return torch.where(can_err, torch.where(pairs, weight * costs, 0.0).sum((-2, -1)), 0.0)

    def solve(self, scores: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
        """Value and gradient."""
        return self._summed(scores, lists, self.surrogate)

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor | None:
        """The diagonal of each list's Hessian at fixed ranks, `[documents]`; None unless the surrogate is logistic."""
        if self.surrogate != "logistic":
            return None
        return self._summed(*_known(scores, labels, offsets, item_weights), "curvature")[1]

    def at_once(self, lists: Lists, dtype: torch.dtype) -> Callable[[Tensor], Tensor] | None:
        """The gradient of valid flat lists on the CPU as a function of their scores; None if it is not that of a loop.

        Everything else, such as the documents' gains, is found once, here.
        """
        assert lists.offsets is not None
        measure = None if self.scheme == "uniform" else self.gain
        options = self.scheme, self.surrogate, float(self.sigma), float(self.mu)
        longest = max(longest_list(lists.offsets, lists.labels.shape[0]), 1)
        prepared = None
        with suppress(TypeError):  # an unhashable measure
            prepared = _prepared(measure, longest, *options)
        if prepared is None or dtype not in SCORES or not has_loops(lists.labels.device):
            return None
        known = lists if measure is None else lists._replace(labels=measure.document_gains(lists.labels))
        batch = CpuLists(torch.zeros(lists.labels.shape, dtype=dtype), known, prepared.least_label, None, longest)
        unit = math.log(2) if self.surrogate == "logistic" else 1.0

        def gradient(scores: Tensor) -> Tensor:
            if (scores.dtype, scores.shape) == (dtype, lists.labels.shape):
                _, direction = batch.take(scores.contiguous())
                if batch.run(prepared.call) == -1 and math.isfinite(batch.batch.sum):
                    return direction / unit
            return self.solve(scores, lists)[1]

        return gradient

    def _summed(self, scores: Tensor, lists: Lists, cost: str) -> tuple[Tensor, Tensor]:
        measure = None if self.scheme == "uniform" else self.gain
        unit = math.log(2) if self.surrogate == "logistic" else 1.0
        return _sum_over_pairs(scores, lists, cost, self.sigma, self.scheme, self.mu, measure, unit=unit)

    def _cost(self, differences: Tensor) -> Tensor:
        """The loss of a pair with difference s_i - s_j; 1 for a tie (1/2 for zero-one)."""
        if self.surrogate == "hinge":
            return torch.relu(1 - self.sigma * differences)
        if self.surrogate == "zero-one":
            return torch.sigmoid(-self.sigma * differences)
        return softplus(-self.sigma * differences) / math.log(2)

    def _weighted_pairs(
        self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The pairs that count, `[..., i, j]` bool, their w_ij, and which lists have rankings of different value."""
        size, device = labels.shape[-1], labels.device
        gains, can_err = normalized_gains(self.gain, labels, where, weights)
        gains = gains.to(scores.dtype)
        discounts = self.gain.unchecked_weights(size, device).to(scores.dtype)
        order = torch.where(where, scores, -torch.inf).argsort(dim=-1, descending=True, stable=True)
        ranks = order.argsort(dim=-1)  # from 0
        own = discounts[ranks]
        pairs = where.unsqueeze(-1) & where.unsqueeze(-2)
        if self.scheme == "ndcg1":
            return pairs & ~torch.eye(size, dtype=torch.bool, device=device), (gains * own).unsqueeze(-1), can_err
        pairs = pairs & (gains.unsqueeze(-1) > gains.unsqueeze(-2))
        swap: Tensor | float = _differences(own).abs() if self.scheme != "ndcg2" else 0.0
        if self.scheme != "lambdarank":
            steps = _steps(self.gain, size, device).to(scores.dtype)
            swap = swap + (self.mu if self.scheme == "ndcg2++" else 1.0) * steps[_differences(ranks).abs()]
            if self.gain.cutoff is not None:
                within = ranks < self.gain.cutoff
                pairs = pairs & (within.unsqueeze(-1) | within.unsqueeze(-2))
        return pairs, _differences(gains) * swap, can_err


def _sum_over_pairs(
    scores: Tensor,
    lists: Lists,
    cost: str,
    sigma: float,
    scheme: str = "uniform",
    mu: float = 0.0,
    measure: DiscountedGain | None = None,
    *,
    unit: float = 1.0,
    pair_weights: PairWeights | None = None,
) -> tuple[Tensor, Tensor]:
    """Sums over pairs and their gradients by the compiled loops of `pair_loss`.

    Args:
        scores, lists: the arguments of `solve`.
        cost, sigma, scheme, mu: see `pair_loss`; `measure` defines gains and discounts, and is None with the scheme "uniform".
        unit: divides values and gradients.
        pair_weights: see `RankSVMLoss`.
    """
    prepared = None
    if pair_weights is None and is_eager(scores) and takes_loops(scores):
        longest = longest_of(scores, lists.offsets)
        with suppress(TypeError):  # an unhashable measure
            prepared = _prepared(measure, longest, scheme, cost, float(sigma), float(mu))
    if prepared is not None and scores.numel():
        if measure is None:
            refuse_inexact(lists.labels, lists.where, torch.float64)
        batch = CpuLists(scores, lists, prepared.least_label, prepared.gains, longest)
        done = batch.run(prepared.call) == -1
        if not done and measure is not None:  # labels that are not in the table
            known = lists._replace(labels=measure.document_gains(lists.labels))
            batch = CpuLists(scores, known, prepared.least_label, None, longest)
            done = batch.run(prepared.call) == -1
        if done:
            return batch.value / unit, batch.direction / unit
    discounts, steps, kept = torch.empty(0), torch.empty(0), 0
    named = _named_grades(pair_weights, lists.labels.dtype)
    if measure is not None:
        discounts, kept = loop_discounts(measure, scores, lists.offsets)
        lists = lists._replace(labels=measure.document_gains(lists.labels))
        steps = _steps(measure, len(discounts))
    given = scores, lists, 0.0, discounts, steps, kept
    _, value, direction = pair_loss(*given, scheme, cost, float(sigma), float(mu), *named)
    return value / unit, direction / unit


@lru_cache(maxsize=64)
def _prepared(measure: DiscountedGain | None, longest: int, *options: Any) -> Prepared | None:
    """The call for lists of at most `longest` documents; None if the gains are not those of a table."""
    if measure is None:
        nothing = torch.empty(0)
        return Prepared(pair_loss.call(longest, nothing, nothing, 0, *options, None, None), 0.0)
    discounts, gains = tables_of(measure, longest)
    if gains is None:
        return None
    kept = longest if measure.cutoff is None else min(measure.cutoff, longest)
    tables = torch.from_numpy(discounts), _steps(measure, longest), kept
    return Prepared(pair_loss.call(longest, *tables, *options, None, None), 0.0, gains)


def _named_grades(pair_weights: PairWeights | None, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """The grades in the pair weights, rounded like labels of the dtype, and the matrix of their weights."""
    if pair_weights is None:
        return None, None
    grades = sorted({grade for pair in pair_weights for grade in pair[:2]})
    table = torch.zeros(len(grades), len(grades), dtype=torch.float64)
    for high, low, weight in pair_weights:
        at, below = grades.index(high), grades.index(low)
        table[at, below] = table[below, at] = weight
    kind = dtype if dtype.is_floating_point else torch.float64
    return torch.tensor(grades, dtype=kind).double(), table


def _known(scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None) -> tuple[Tensor, Lists]:
    """Flat lists on the CPU as arguments of `solve`; item weights may be 0."""
    real = None if item_weights is None else item_weights > 0
    return scores.detach(), Lists(labels, real, offsets, item_weights=item_weights)


def _steps(measure: DiscountedGain, size: int, device: torch.device | None = None) -> Tensor:
    """d(k) - d(k + 1) for k = 0, 1, ..., size, without a cut-off, and 0 for k = 0; float64 `[size + 1]`."""
    plain = measure.discounts(torch.arange(1, size + 2, dtype=torch.float64, device=device))
    return torch.cat([plain.new_zeros(1), -plain.diff()])


def _differences(values: Tensor) -> Tensor:
    """Value i minus value j, `[..., i, j]`."""
    return values.unsqueeze(-1) - values.unsqueeze(-2)


def _ordered_pairs(labels: Tensor, where: Tensor) -> Tensor:
    """Whether both documents are real and i has the higher label, bool `[..., i, j]`."""
    better, worse = torch.where(where, labels, -torch.inf), torch.where(where, labels, torch.inf)
    return better.unsqueeze(-1) > worse.unsqueeze(-2)


def _products(pairs: Tensor, weights: Tensor) -> Tensor:
    """The product of both item weights of each pair, relative to the largest, `[..., i, j]`; 0 for pairs that do not count."""
    weights = relative(weights)
    return torch.where(pairs, weights.unsqueeze(-1) * weights.unsqueeze(-2), 0.0)


class CircleLoss(RankingLoss):
    """Circle loss, for scores that are similarities, about 0 to 1: with a_i = max(0, 1 + m - s_i) and b_j = max(0, s_j + m),

        log(1 + sum over y_i > y_j of exp(gamma (b_j (s_j - m) - a_i (s_i - 1 + m))))

    The gradient treats the weights a and b as constants, as in the paper, so that a score is pulled in proportion to its distance
    from its target; it is not the gradient of the value. Shifting all scores changes the loss. O(n log n), on other devices
    O(n^2).

    Args:
        gamma: the scale, above 0.
        margin: m; relevant documents should score above 1 - m, others below m.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Sun et al., "Circle Loss: A Unified Perspective of Pair Similarity Optimization", CVPR 2020, equation 6.

    >>> loss = CircleLoss(gamma=1.0)
    >>> loss
    CircleLoss(gamma=1.0, margin=0.25, reduction=mean)
    >>> loss(torch.tensor([0.5, 0.0, 0.8]), torch.tensor([2, 1, 0]))
    tensor(2.1783)
    """

    gamma: float = 64.0
    margin: float = 0.25
    takes_item_weights = True

    def setup(self) -> None:
        """Check the numbers."""
        check_numbers("> 0", gamma=self.gamma)
        check_numbers(margin=self.margin)

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        pairs = _ordered_pairs(labels, where)
        fixed = scores.detach()
        up = (1 + self.margin - fixed).relu() * (scores - 1 + self.margin)
        down = (fixed + self.margin).relu() * (scores - self.margin)
        each = self.gamma * (down.unsqueeze(-2) - up.unsqueeze(-1))
        if weights is not None:
            logs = torch.where(where, weights, 1.0).log()
            each = each + logs.unsqueeze(-1) + logs.unsqueeze(-2)
        lowest = torch.finfo(scores.dtype).min
        total = torch.where(pairs, each, lowest).flatten(-2).logsumexp(-1)
        return torch.where(pairs.any(-1).any(-1), softplus(total), 0.0)

    def solve(self, scores: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
        """Value and gradient."""
        fixed = lists._replace(reference_scores=scores)
        return circle(scores, fixed, 0.0, float(self.gamma), float(self.margin))[1:]
