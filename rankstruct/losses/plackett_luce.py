"""Plackett-Luce policies: random rankings, and gradients of their expected value.

The policy of scores s puts document d at the next rank with probability exp(s_d) / Z, with Z the sum over all documents not yet
placed. Sorting by the scores plus Gumbel noise samples from it; so does sampling rank by rank from a tree of sums. With discount
a_i at rank i, the exposure of a document is the expected discount of its rank, and an expected discounted gain is the sum of gain
times exposure.

**PL-Rank-3.** For rewards b, one per document, and a sampled ranking y of the first k ranks, with Z_i the Z at rank i,

    d/ds_d E sum_i a_i b_y(i)  =  E [ sum_{i > r(d)} a_i b_y(i) + exp(s_d) ( b_d sum_{i <= r(d)} a_i / Z_i
                                                                        - sum_{i <= r(d)} 1 / Z_i sum_{j >= i} a_j b_y(j) ) ]

where r(d) is the rank of d, or k for a document that is not placed, whose first sum is empty. The terms are cumulative sums over
the ranks: O(n + k) per ranking, in addition to O(n + k log n) to sample it.

**Second derivatives.** With p_i = exp(s_d) / Z_i, A_i = sum_{j <= i} 1 / Z_j, B_i = sum_{j <= i} 1 / Z_j^2, P_i = exp(s_d) A_i
and Q_i = exp(s_d)^2 B_i, the second derivative with respect to s_d of the probability of the first i ranks, divided by that
probability, is f_i = P_i^2 + Q_i - P_i if d comes later, and f*_r = 1 - 3 P_r + P_r^2 + Q_r from its own rank r on. The gain of
rank i depends on the first i ranks only, and that of d can be weighted by the probability p_i of rank i instead of using its
sampled rank:

    d^2/ds_d^2 E sum_i a_i b_y(i)
        =  E [ sum_{i < r} a_i b_y(i) f_i + f*_r sum_{i > r} a_i b_y(i) + b_d sum_{i <= r} a_i p_i f*_i ]

These too are cumulative sums over the ranks, of 1, A_i and A_i^2 + B_i: O(n + k) per ranking.

Sources: Oosterhuis, "Learning-to-Rank at the Speed of Sampling: Plackett-Luce Gradient Estimation With Minimal Computational
Complexity", SIGIR 2022; second derivatives for boosting: Kang, de Rijke, Oosterhuis, "Estimating the Hessian Matrix of Ranking
Objectives for Stochastic Learning to Rank with Gradient Boosted Trees", SIGIR 2024.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.checks import check_integers, check_numbers
from rankstruct.kernels.call import SCORES
from rankstruct.kernels.plackett_luce import (
    PolicyLoss,
    draw_few_ranks,
    draw_rankings,
    policy_curvature,
    policy_gradient,
    policy_loss,
)
from rankstruct.lists import Lists, check_groups, check_lists, is_eager, is_plain, refuse_inexact
from rankstruct.losses.autograd import differentiable_once
from rankstruct.losses.base import HingeOptions, longest_of, takes_loops
from rankstruct.losses.checks import check_values
from rankstruct.losses.gains import GainLoss, differs, document_gains, normalized_gains, normalized_measure, tables_of
from rankstruct.losses.reduction import Reduction, reduce_lists
from rankstruct.measures import DiscountedGain, Measure

__all__ = [
    "ExposureLoss",
    "PLRankLoss",
    "expected_exposure",
    "sample_rankings",
    "target_exposure",
]


_FEW = 2  # k log2(n) / n, up to which ranks are sampled one by one


@torch.no_grad()
def sample_rankings(scores: Tensor, where: Tensor | None = None, *, samples: int = 1, k: int | None = None) -> Tensor:
    """Sample rankings from the Plackett-Luce policy of scores, with torch's global generator.

    Args:
        scores: `[..., list_size]`.
        where: bool, the shape of `scores`, True for a real document.
        samples: number of rankings per list, at least 1.
        k: number of top ranks; all if None.

    Returns:
        int64 `[samples, ..., k]`, the index in its list of the document at each rank; padding is last. O(n + k log n) each.

    Raises:
        TypeError, ValueError: wrong types or shapes; samples or k below 1.

    Source: see the module.

    >>> _ = torch.manual_seed(0)
    >>> sample_rankings(torch.tensor([0.0, 50.0, 30.0]), samples=2)
    tensor([[1, 2, 0],
            [1, 2, 0]])
    """
    check_lists(scores, scores, where)
    check_integers(1, samples=samples)
    check_integers(1, optional=True, k=k)
    size = scores.shape[-1]
    k = size if k is None else min(k, size)
    if is_plain(scores):
        real = torch.ones_like(scores, dtype=torch.bool) if where is None else where
        placed = None
        if _are_few(k, size):
            uniform = torch.rand(samples, *scores.shape[:-1], k, dtype=torch.float64)
            placed = draw_few_ranks(scores.detach(), real, uniform)
        if placed is None:
            noise = torch.rand(samples, *scores.shape, dtype=torch.float64).neg_().log1p_().neg_()
            placed = draw_rankings(scores.detach(), real, noise, k)
        if placed is not None:
            return placed
    else:
        noise = torch.empty_like(scores.expand(samples, *scores.shape)).exponential_()
    noisy = scores - noise.clamp(min=torch.finfo(noise.dtype).tiny).log()
    if where is not None:
        noisy = torch.where(where, noisy, -torch.inf)
    return noisy.topk(k, dim=-1).indices


def _are_few(k: int, size: int) -> bool:
    return k * size.bit_length() <= _FEW * size


def pl_rank_gradient(scores: Tensor, where: Tensor, placed: Tensor, worth: Tensor, rewards: Tensor) -> Tensor:
    """The gradient estimate, the mean over sampled rankings, `[..., list_size]` float64; see the module.

    Args:
        scores, where, rewards: `[..., list_size]`; the rewards are b, 0 in the padding.
        placed: `[samples, ..., k]` indices.
        worth: a, broadcastable to `[..., k]`, 0 after the end of a list.
    """
    if is_plain(scores):
        found = policy_gradient(scores.detach(), where, placed, worth, rewards)
        if found is not None:
            return found
    drawn = _by_logarithms(scores, where, placed, worth, rewards)
    to_come = drawn.gained.flip(-1).cumsum(-1).flip(-1)
    last = drawn.rank.clamp(max=placed.shape[-1] - 1)
    # Cumulative sums in logarithms; exp(s_d) / Z_i is at most 1.
    of_worth, above, below = (
        (((each.log() - drawn.log_z).logcumsumexp(-1)).gather(-1, last) + drawn.scores).exp()
        for each in (drawn.worth, to_come.clamp(min=0), (-to_come).clamp(min=0))
    )
    each = rewards.double() * of_worth - above + below
    return torch.where(where, each.scatter_add(-1, placed, to_come - drawn.gained).mean(0), 0.0)


def pl_rank_curvature(scores: Tensor, where: Tensor, placed: Tensor, worth: Tensor, rewards: Tensor) -> Tensor:
    """Like `pl_rank_gradient`, but the diagonal of the Hessian.

    If the compiled loop does not apply, on another device or with scores very far apart, it takes O(n k) per ranking.
    """
    if is_plain(scores):
        found = policy_curvature(scores.detach(), where, placed, worth, rewards)
        if found is not None:
            return found
    drawn, rewards = _by_logarithms(scores, where, placed, worth, rewards), rewards.double()
    once, twice, total = torch.zeros_like(drawn.scores).expand(3, *drawn.scores.shape)
    for i, (log_z, gained, of_rank) in enumerate(zip(*(each.unbind(-1) for each in drawn[1:4]), strict=True)):
        chance = torch.where(drawn.rank >= i, (drawn.scores - log_z.unsqueeze(-1)).exp(), 0.0)
        once, twice = once + chance, twice + chance.square()
        later = once.square() + twice - once
        placed_then = 1 - 2 * once + later
        others = torch.where(drawn.rank > i, later, torch.where(drawn.rank < i, placed_then, 0.0))
        own = rewards * of_rank.unsqueeze(-1) * chance * placed_then
        total = total + own + gained.unsqueeze(-1) * others
    return torch.where(where, total.mean(0), 0.0)


class _Drawn(NamedTuple):
    """Per sampled ranking: scores and ranks of the documents; log Z, gain and discount of each rank, 0 in the padding."""

    scores: Tensor
    log_z: Tensor
    gained: Tensor
    worth: Tensor
    rank: Tensor


def _by_logarithms(scores: Tensor, where: Tensor, placed: Tensor, worth: Tensor, rewards: Tensor) -> _Drawn:
    """The terms of both derivatives, float64, for scores however far apart; unplaced documents have rank k."""
    scores = torch.where(where, scores.double(), -torch.inf)
    scores = torch.where(where, scores - scores.amax(-1, keepdim=True), -torch.inf)
    scores, rewards, real = (each.expand(*placed.shape[:-1], -1) for each in (scores, rewards.double(), where))
    on_list = real.gather(-1, placed)
    worth = torch.where(on_list, worth.double(), 0.0)
    gained = torch.where(on_list, worth * rewards.gather(-1, placed), 0.0)
    rest = scores.scatter(-1, placed, -torch.inf).logsumexp(-1, keepdim=True)
    left = torch.cat([rest, scores.gather(-1, placed).flip(-1)], -1).logcumsumexp(-1)[..., 1:].flip(-1)
    ranks = torch.arange(placed.shape[-1], device=placed.device).expand_as(placed)
    rank = torch.full_like(scores, placed.shape[-1], dtype=torch.int64).scatter(-1, placed, ranks)
    return _Drawn(scores, torch.where(on_list, left, 0.0), gained, worth, rank)


class _Exposure(torch.autograd.Function):
    """The mean discount of each document's rank over sampled rankings; backward is PL-Rank-3 with the gradient as rewards."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def forward(scores: Tensor, where: Tensor, placed: Tensor, worth: Tensor) -> Tensor:
        each = worth.to(scores.dtype).expand_as(placed).movedim(0, -1).flatten(-2)
        return torch.zeros_like(scores).scatter_add(-1, placed.movedim(0, -1).flatten(-2), each) / len(placed)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        scores, where, placed, worth = ctx.saved_tensors
        with torch.no_grad():
            rewards = torch.where(where, grads[0], 0.0)
            slope = pl_rank_gradient(scores, where, placed, worth, rewards).to(scores.dtype)
        return differentiable_once(slope, scores, grads[0]), None, None, None


# Set once, as in `autograd`.
_Exposure.forward.__signature__ = inspect.signature(_Exposure.forward)  # type: ignore[attr-defined]


def _exposure(scores: Tensor, where: Tensor, measure: DiscountedGain, samples: int) -> Tensor:
    if scores.shape[-1] == 0:
        return scores * 0
    return _Exposure.apply(scores, where, *_draw(scores, where, measure, samples))


def _draw(scores: Tensor, where: Tensor, measure: DiscountedGain, samples: int) -> tuple[Tensor, Tensor]:
    """The first ranks of sampled rankings, `[samples, ..., k]`, and their discounts, `[..., k]`; lists must not be empty."""
    size = scores.shape[-1]
    k = size if measure.cutoff is None else min(measure.cutoff, size)
    placed = sample_rankings(scores.detach(), where, samples=samples, k=k)
    ranks = torch.arange(k, device=scores.device)
    worth = torch.where(ranks < where.sum(-1, keepdim=True), measure.unchecked_weights(k, scores.device), 0.0)
    return placed, worth


def expected_exposure(
    scores: Tensor, where: Tensor | None = None, *, measure: str | Measure = "nDCG", samples: int = 32
) -> Tensor:
    """The exposure of each document under the Plackett-Luce policy of the scores, estimated from samples; differentiable.

    It is the mean over sampled rankings of the measure's discount at the document's rank. The gradient of any function of the
    exposures is by PL-Rank-3; it is unbiased for linear functions.

    Args:
        scores: `[..., list_size]`; where: bool, True for a real document.
        measure: nDCG with any options and cut-off, or another normalised discounted gain, whose discount is used.
        samples: number of rankings sampled per list.

    Returns:
        `[..., list_size]`, 0 in the padding.

    Source: Diaz, Mitra, Ekstrand, Biega, Carterette, "Evaluating Stochastic Rankings with Expected Exposure", CIKM 2020; and
    those of the module.

    >>> _ = torch.manual_seed(0)
    >>> expected_exposure(torch.tensor([9.0, 0.0, -9.0]), measure="nDCG@2")
    tensor([1.0000, 0.6309, 0.0000])
    """
    check_lists(scores, scores, where)
    chosen = _check_policy(measure, samples)
    real = torch.ones_like(scores, dtype=torch.bool) if where is None else where
    return _exposure(torch.where(real, scores, 0.0), real, chosen, samples)


def target_exposure(labels: Tensor, where: Tensor | None = None, *, measure: str | Measure = "nDCG") -> Tensor:
    """The ideal exposure: best documents first, shared equally among documents of equal gain, `[..., list_size]` float64.

    Args:
        labels: `[..., list_size]`; where: bool, True for a real document.
        measure: as in `expected_exposure`; its discount and gains are used.

    Source: as `expected_exposure`.

    >>> target_exposure(torch.tensor([0, 1, 1]))
    tensor([0.5000, 0.8155, 0.8155], dtype=torch.float64)
    """
    chosen = _check_policy(measure, 1)
    real = torch.ones_like(labels, dtype=torch.bool) if where is None else where
    gains = chosen.document_gains(torch.where(real, labels, 0))
    higher = real.unsqueeze(-2) & (gains.unsqueeze(-2) > gains.unsqueeze(-1))
    equal = real.unsqueeze(-2) & (gains.unsqueeze(-2) == gains.unsqueeze(-1))
    sums = torch.nn.functional.pad(chosen.unchecked_weights(labels.shape[-1], labels.device).cumsum(0), (1, 0))
    first, count = higher.sum(-1), equal.sum(-1)
    return torch.where(real, (sums[first + count] - sums[first]) / count.clamp(min=1), 0.0)


class _PolicyLoss(GainLoss):
    """Base class of the losses of a Plackett-Luce policy."""

    samples: int = 32
    takes_item_weights = True
    draws = True

    def checked(self, measure: Measure) -> DiscountedGain:
        """The measure, if it is a normalised discounted gain; samples are checked too."""
        return _check_policy(measure, self.samples)


class PLRankLoss(_PolicyLoss):
    """1 - the expected nDCG of rankings sampled from the Plackett-Luce policy of the scores, by PL-Rank-3.

    Value and gradient are unbiased estimates from `samples` rankings, sampled with torch's global generator in both training and
    evaluation. If the scores are multiplied by a growing factor, the loss tends to 1 - nDCG. A sample costs O(n + k log n) with a
    cut-off k. Autograd does not support second derivatives; `PLRankLoss.second_derivatives` estimates them.

    Args:
        measure: nDCG with any options and cut-off, or another normalised discounted gain.
        samples: number of rankings sampled per list, at least 1.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Oosterhuis, SIGIR 2022.

    >>> _ = torch.manual_seed(0)
    >>> PLRankLoss()(torch.tensor([9.0, 0.0, -9.0]), torch.tensor([0, 1, 0]))
    tensor(0.3691)
    >>> PLRankLoss("nDCG@10")
    PLRankLoss(nDCG@10, samples=32, reduction=mean)
    """

    def of_lists(self, scores: Tensor, lists: Lists, reduction: Reduction) -> Tensor:
        """The reduced loss: for eager tensors in one pass, otherwise by `per_list`, with the same random numbers."""
        value = self._fused(scores, lists, reduction) if is_eager(scores) and takes_loops(scores) else None
        return super().of_lists(scores, lists, reduction) if value is None else value

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        gains, can_err = normalized_gains(self.gain, labels, where, weights)
        exposure = _exposure(scores, where, self.gain, self.samples)
        return torch.where(can_err, 1 - (gains * exposure).sum(-1), 0.0).to(scores.dtype)

    def curvature(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """An unbiased estimate from `samples` rankings; may be negative."""
        gains, can_err = normalized_gains(self.gain, labels, where, weights)
        found = pl_rank_curvature(scores, where, *_draw(scores, where, self.gain, self.samples), gains)
        return torch.where(can_err.unsqueeze(-1), -found, 0.0).to(scores.dtype)

    def _fused(self, scores: Tensor, lists: Lists, reduction: Reduction) -> Tensor | None:
        """The loss in one pass; None if the compiled loop does not apply."""
        if scores.dtype not in SCORES or scores.numel() == 0 or lists.item_weights is not None:
            return None
        measure, size = self.gain, longest_of(scores, lists.offsets)
        known = lists._replace(labels=lists.labels.detach())
        discounts, table = tables_of(measure, size)
        drawn = partial(
            _drawn_loss, scores.detach(), measure=measure, size=size, samples=self.samples, discounts=discounts
        )
        found = None if table is None else drawn(known, gains=table)
        if found is None:
            refuse_inexact(known.labels, lists.where, torch.float64)
            real = check_values(scores, lists, measure.takes_negative_labels)
            gains = document_gains(measure, torch.where(real, known.labels, 0), real)
            found = drawn(known._replace(labels=gains), gains=None)
        if found is None:
            return None
        if reduction == "mean" and lists.weights is None:
            mean = torch.scalar_tensor(found.mean, dtype=scores.dtype)
            return _Estimate.apply(scores, mean, found.direction, None, found.lists)
        return reduce_lists(_Estimate.apply(scores, found.values, found.direction, lists.offsets, 1), lists, reduction)


def _drawn_loss(
    scores: Tensor,
    lists: Lists,
    measure: DiscountedGain,
    size: int,
    samples: int,
    discounts: np.ndarray,
    gains: np.ndarray | None,
) -> PolicyLoss | None:
    """`policy_loss` of the rankings that `sample_rankings` would return; if it is None, the generator's state is restored."""
    offsets = lists.offsets
    k = size if measure.cutoff is None else min(measure.cutoff, size)
    few = _are_few(k, size)
    many = scores.shape[:-1] if offsets is None else (len(offsets) - 1,)
    before = torch.get_rng_state()
    uniform = torch.rand(samples, *many, k if few else size, dtype=torch.float64)
    found = policy_loss(scores, lists, uniform, discounts, k, few, gains)
    if found is None:
        torch.set_rng_state(before)
    return found


class _Estimate(torch.autograd.Function):
    """Values, one per list, or their mean over `lists`, with precomputed gradients; no higher-order derivatives."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, value: Tensor, direction: Tensor, offsets: Tensor | None, lists: int
    ) -> Tensor:
        ctx.save_for_backward(scores, direction, offsets)
        ctx.lists = lists
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        scores, direction, offsets = ctx.saved_tensors
        each = grads[0].unsqueeze(-1) if offsets is None else grads[0].repeat_interleave(offsets.diff())
        return differentiable_once(direction * (each / ctx.lists), scores, grads[0]), None, None, None, None


ExposureTarget = Literal["ideal", "merit", "equal"]


class ExposureLoss(_PolicyLoss):
    """Distance between the exposures e of documents under the Plackett-Luce policy and their targets e*,

        sum_d (e_d^2 x disparity - 2 e_d e*_d + e*_d^2)

    The first term is the disparity (EE-D), the second twice the relevance (EE-R); with disparity 1 it is the squared distance
    (EE-L). The square is estimated as a product over two independent halves of the samples, so that value and gradient are
    unbiased; a value may be negative. Item weights multiply the documents' terms. To trade it against relevance, combine it with
    a ranking loss: `CombinedLoss([PLRankLoss(), ExposureLoss(target="merit")], weights=[1, 0.5])`.

    Args:
        measure: as in `PLRankLoss`; its discount and gains are used.
        samples: number of rankings sampled per list, at least 2.
        disparity: weight of the first term, >= 0.
        target: `"ideal"`, equal exposure of documents of equal gain, better ones first, see `target_exposure`; `"merit"`,
            proportional to the gains; `"equal"`, the same for all documents, whatever their labels.
        groups: whether the exposures of groups of documents are compared instead, each with the sum of its documents' targets,
            and their squares divided by the groups' sizes. The call then takes `diversity_groups=`, whole numbers in the shape of
            the scores.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Diaz, Mitra, Ekstrand, Biega, Carterette, CIKM 2020; Oosterhuis, SIGIR 2022. Targets by merit: Singh, Joachims, KDD
    2018.

    >>> _ = torch.manual_seed(0)
    >>> loss = ExposureLoss()
    >>> loss
    ExposureLoss(nDCG, samples=32, disparity=1.0, target=ideal, groups=False, reduction=mean)
    >>> loss(torch.tensor([9.0, 0.0, -9.0]), torch.tensor([2, 1, 0])).abs() < 1e-6
    tensor(True)
    >>> loss = ExposureLoss(target="equal", groups=True)
    >>> scores, labels = torch.tensor([9.0, 0.0, -9.0]), torch.tensor([2, 1, 0])
    >>> loss(scores, labels, diversity_groups=torch.tensor([0, 1, 0]))  # means of 0.75 and 0.63, both should be 0.71
    tensor(0.0095)
    """

    disparity: float = 1.0
    target: ExposureTarget = "ideal"
    groups: bool = False

    call_options = HingeOptions
    groups_need = "pass ExposureLoss(groups=True) to compare the exposures of groups"

    @property
    def takes_groups(self) -> bool:  # type: ignore[override]
        """Whether exposures of groups are compared."""
        return self.groups

    def checked(self, measure: Measure) -> DiscountedGain:
        """The measure, if it is a normalised discounted gain; samples and disparity are checked too."""
        if not isinstance(self.groups, bool):
            raise TypeError(f"groups must be True or False, got {self.groups!r}; pass diversity_groups= in the call")
        return _check_exposure(measure, self.samples, self.disparity)

    def of_lists(self, scores: Tensor, lists: Lists, reduction: Reduction) -> Tensor:
        """The reduced loss."""
        if lists.reference_scores is not None:
            raise ValueError(f"{self!r} does not depend on reference_scores")
        if self.groups and lists.diversity_groups is None:
            raise ValueError(f"{self!r} requires diversity_groups=, one whole number per document")
        if self.groups:
            check_groups(lists.diversity_groups, scores)  # type: ignore[arg-type]
        return super().of_lists(scores, lists, reduction)

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        where: Tensor,
        weights: Tensor | None = None,
        diversity_groups: Tensor | None = None,
    ) -> Tensor:
        """One value per list."""
        wanted = self._wanted(labels, where).to(scores.dtype)
        one = _exposure(scores, where, self.gain, (self.samples + 1) // 2)
        other = _exposure(scores, where, self.gain, self.samples // 2)
        if diversity_groups is not None:
            wanted, one, other = _group_means(torch.stack([wanted, one, other]), diversity_groups, where)
        each = self.disparity * one * other - (one + other) * wanted + wanted.square()
        each = each if weights is None else each * weights
        counts = where.sum(-1) > 1 if self.target == "equal" else differs(self.gain.document_gains(labels), where)
        return torch.where(counts, torch.where(where, each, 0.0).sum(-1), 0.0)

    def _wanted(self, labels: Tensor, where: Tensor) -> Tensor:
        """The targets, `[..., list_size]` float64."""
        if self.target == "ideal":
            return target_exposure(labels, where, measure=self.gain)
        due = where.double() if self.target == "equal" else document_gains(self.gain, labels, where)
        total, discounts = due.sum(-1, keepdim=True), self.gain.unchecked_weights(labels.shape[-1], labels.device)
        there = torch.arange(labels.shape[-1], device=labels.device) < where.sum(-1, keepdim=True)
        return due * (there * discounts).sum(-1, keepdim=True) / torch.where(total > 0, total, 1.0)


def _group_means(values: Tensor, groups: Tensor, where: Tensor) -> Tensor:
    """For each document the mean of its group in its list, `[m, ..., list_size]`, in linear memory."""
    ordered, order = groups.sort(-1)
    changes = torch.nn.functional.pad((ordered.diff(dim=-1) != 0).long(), (1, 0))
    number = torch.zeros_like(order).scatter(-1, order, changes.cumsum(-1))
    there = torch.where(where, torch.cat([torch.ones_like(values[:1]), values]), 0.0)
    number = number.expand_as(there)
    sums = torch.zeros_like(there).scatter_add(-1, number, there).gather(-1, number)
    return sums[1:] / sums[:1].clamp(min=1)


def _check_policy(measure: str | Measure, samples: int) -> DiscountedGain:
    check_integers(1, samples=samples)
    return normalized_measure(measure, "a Plackett-Luce policy")


def _check_exposure(measure: str | Measure, samples: int, disparity: float) -> DiscountedGain:
    check_integers(2, samples=samples)  # which are split into two halves
    check_numbers(">= 0", disparity=disparity)
    return _check_policy(measure, samples)
