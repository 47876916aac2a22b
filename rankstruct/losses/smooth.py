"""SmoothGrad: a measure whose hard ranks are replaced by Gaussian neighbourhoods in the scores.

With position j held by document pi(j) when the documents are sorted by score, discount a and gain b,

    h_ij = exp( -(s_i - s_pi(j))^2 / (2 sigma^2) )
    A    = sum_j a_j ( sum_i b_i h_ij ) / ( sum_i h_ij )              loss = best A - A

Only positions with a discount count: O(list_size * k) time at a cut-off k, and O(list_size) memory on the CPU; elsewhere, and for
derivatives of higher order, O(list_size * k) of both.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from typing_extensions import Self, Unpack

from rankstruct.kernels import smooth_grad
from rankstruct.lists import is_plain
from rankstruct.losses.base import (
    ListOptions,
    RankingLoss,
    Reduction,
    check_positive,
    checked_gains,
    compiled_loss,
    differs,
    list_loss,
    longest_of,
)
from rankstruct.measures import DiscountedGain, Measure, parse_measure

__all__ = ["SmoothLoss", "smooth_loss"]

_BLOCK = 2**24  # numbers of h that are kept for the backward pass; what is beyond is computed again there
_NARROW = 2.0**-60  # the least sigma, over the largest score of a list


def smooth_loss(
    scores: Tensor,
    labels: Tensor,
    measure: str | Measure = "nDCG@10",
    *,
    sigma: float | Tensor = 1.0,
    **lists: Unpack[ListOptions],
) -> Tensor:
    """SmoothGrad: the task loss of a smoothed measure, differentiable everywhere but where scores tie.

    Smooth but not convex: start from a sensible scorer (regression), with a `sigma` of the size of score differences, and
    halve it as training converges (`AnnealSigma`). Where all scores of a list tie, as those of a scorer with zero weights, the
    gradient is zero; there that of the mean score less the mean by label is taken. As sigma goes to 0 the loss tends to the
    measure's regret. Documents with equal scores share their ranks' gains, which is the expected value over their orders; their
    gradient depends on which of them the sort puts first.

    Args:
        scores, labels, where, offsets, weights, item_weights, reduction: the list contract of `rankstruct.losses.base`.
        measure: a discounted gain or its name: nDCG, DCG, P, WTA, ERU, nERU, with or without a cut-off.
        sigma: the width of a document's neighbourhood, in units of the scores; in a list with scores beyond 2^60 sigma, 2^-60 of
            the largest.

    Raises:
        ValueError: a measure that is not discount times gain, or a sigma that is not above 0.

    Source: Chapelle and Wu, "Gradient descent optimization of smoothed information retrieval metrics", Information Retrieval
    2010; Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures" (whose formula lacks the discount).

    >>> scores = torch.tensor([2.0, 1.0, 0.0])
    >>> smooth_loss(scores, torch.tensor([0, 1, 0]), "nDCG", sigma=1.0)
    tensor(0.1926)
    >>> smooth_loss(scores, torch.tensor([0, 1, 0]), "nDCG", sigma=0.01)           # 1 - nDCG = 1 - 1 / log2(3)
    tensor(0.3691)
    """
    measure = checked_smoothing(measure, sigma)

    def per_list(scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        regret = _smoothed_regret(scores, labels, where, weights, measure, sigma)
        return _with_a_way_out(regret, scores, labels, where)

    signed = measure.takes_negative_labels
    if isinstance(sigma, Tensor) and (sigma.numel() > 1 or sigma.requires_grad or not is_plain(sigma)):
        return list_loss(per_list, scores, labels, signed=signed, **lists)

    def solve(scores: Tensor, labels: Tensor, *more: Tensor | None) -> tuple[Tensor, Tensor]:
        (where, offsets, weights), size = more, longest_of(scores, more[1])
        tables = measure.unchecked_weights(size), size if measure.cutoff is None else min(measure.cutoff, size)
        layout = where, offsets, labels, None, weights, 0.0
        return smooth_grad(scores, measure.document_gains(labels), *layout, *tables, measure.normalized, float(sigma))[
            1:
        ]

    return compiled_loss(per_list, solve, scores, labels, signed=signed, **lists)


class SmoothLoss(RankingLoss):
    """`smooth_loss` as a module; see there. `sigma` is a buffer: `AnnealSigma` halves it, checkpoints keep it.

    >>> loss = SmoothLoss("nDCG@10", sigma=0.5)
    >>> loss
    SmoothLoss(nDCG@10, sigma=0.5, reduction=mean)
    >>> loss(torch.tensor([[0.2, 0.1]]), torch.tensor([[1, 0]]))
    tensor(0.1827)
    """

    function = staticmethod(smooth_loss)
    measure: DiscountedGain
    sigma: Tensor

    def __init__(
        self, measure: str | Measure = "nDCG@10", *, sigma: float = 1.0, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction)
        measure = checked_smoothing(measure, sigma)
        self.register_buffer("sigma", torch.tensor(float(sigma)))
        self.set_options(measure=measure, sigma=self.sigma)

    def with_sigma(self, sigma: float) -> Self:
        """Another with the same options and this sigma.

        >>> SmoothLoss("nDCG@10", reduction="sum").with_sigma(0.25)
        SmoothLoss(nDCG@10, sigma=0.25, reduction=sum)
        """
        return type(self)(**{**self.options, "sigma": float(sigma)}, reduction=self.reduction)


def in_sigmas(scores: Tensor, sigma: float | Tensor) -> Tensor:
    """Scores in units of sigma, or of 2^-60 of the largest of the list, so that neither differences nor squares overflow."""
    sigma = torch.as_tensor(sigma, dtype=scores.dtype, device=scores.device)
    largest = torch.linalg.vector_norm(scores.detach(), torch.inf, dim=-1, keepdim=True)
    return scores / torch.maximum(sigma, _NARROW * largest)


def smoothed_gains(
    measure: DiscountedGain, labels: Tensor, where: Tensor, weights: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """`checked_gains`, gains and the best value over the latter if the measure is normalised, in the dtype of the scores."""
    gains, best, can_err = checked_gains(measure, labels, where, weights)
    if measure.normalized:  # in float64: the gain of label 128 is more than float32 can hold
        gains = gains / torch.where(can_err, best, 1.0).unsqueeze(-1)
        best = torch.ones_like(best)
    return gains.to(dtype), best.to(dtype), can_err


def checked_smoothing(measure: str | Measure, sigma: float | Tensor) -> DiscountedGain:
    """The measure, which must be a discounted gain; raises ValueError where it or sigma is none."""
    measure = parse_measure(measure)
    if not isinstance(measure, DiscountedGain):
        raise ValueError(
            f"{measure.name} is not discount times gain, which smoothing needs; such are nDCG, DCG, P, WTA, ERU and nERU"
        )
    if not isinstance(sigma, Tensor):
        check_positive("sigma", sigma)
    return measure


def _with_a_way_out(regret: Tensor, scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
    """Where all scores of a list tie, every ranking is as near as any other and the gradient is 0, for ever: take there that of
    the mean score less the mean score by label. The value stays.
    """
    tied = ~differs(scores.detach(), where)
    if is_plain(tied) and not bool(tied.any()):  # the usual case
        return regret
    tied = tied & differs(labels, where)
    shares = torch.where(where, 1.0, 0.0).to(scores.dtype) / where.sum(-1, keepdim=True).clamp(min=1)
    above = torch.where(where, labels - torch.where(where, labels, torch.inf).amin(-1, keepdim=True), 0.0)
    above = above / above.amax(-1, keepdim=True).clamp(min=torch.finfo(above.dtype).tiny)
    wanted = above / above.sum(-1, keepdim=True).clamp(min=1.0)
    slope = ((shares - wanted) * scores).sum(-1)
    return regret + torch.where(tied, slope - slope.detach(), 0.0)


def _smoothed_regret(
    scores: Tensor,
    labels: Tensor,
    where: Tensor,
    weights: Tensor | None,
    measure: DiscountedGain,
    sigma: float | Tensor,
) -> Tensor:
    gains, best, can_err = smoothed_gains(measure, labels, where, weights, scores.dtype)
    scores = in_sigmas(scores, sigma) * 0.5**0.5  # h is exp of minus a square
    size = scores.shape[-1]
    k = size if measure.cutoff is None else min(measure.cutoff, size)
    discounts = measure.unchecked_weights(size, scores.device).to(scores.dtype)
    order = torch.where(where, scores.detach(), -torch.inf).topk(k, dim=-1).indices
    centres = scores.gather(-1, order)
    discounts = torch.where(torch.arange(k, device=scores.device) < where.sum(-1, keepdim=True), discounts[:k], 0.0)
    step = max(1, _BLOCK // max(scores.numel(), 1))
    if torch.compiler.is_compiling() or k <= step:  # the compiler may not know the size, and plans memory by itself
        smoothed = _smoothed(scores, gains, where, centres, discounts)
    else:
        smoothed = torch.zeros_like(best)
        for a in range(0, k, step):
            part = (scores, gains, where, centres[..., a : a + step], discounts[..., a : a + step])
            smoothed = smoothed + checkpoint(_smoothed, *part, use_reentrant=False)
    return torch.where(can_err, best - smoothed, 0.0)


def _smoothed(scores: Tensor, gains: Tensor, where: Tensor, centres: Tensor, discounts: Tensor) -> Tensor:
    """sum_j a_j (mean gain around centre j); `[..., list_size]` documents and `[..., k]` centres in units of sqrt(2) sigma."""
    near = (scores.unsqueeze(-2) - centres.unsqueeze(-1)).square().neg_().exp_()
    # Padding is near too, but weighs nothing.
    gained, total = (near @ torch.stack([gains, where.to(gains.dtype)], -1)).unbind(-1)
    mean = gained / torch.where(discounts > 0, total, 1.0)
    return torch.where(discounts > 0, discounts * mean, 0.0).sum(-1)
