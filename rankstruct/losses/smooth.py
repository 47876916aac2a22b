"""SmoothGrad: a measure whose hard ranks are replaced by Gaussian neighbourhoods in the scores.

With pi(j) the document at position j after sorting by score, discount a and gain b,

    h_ij = exp( -(s_i - s_pi(j))^2 / (2 sigma^2) )
    A    = sum_j a_j ( sum_i b_i h_ij ) / ( sum_i h_ij )              loss = best A - A

Only positions with a discount count: O(list_size * k) time at a cut-off k, and O(list_size) memory on the CPU; elsewhere, and for
higher-order derivatives, O(list_size * k) of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from typing_extensions import Self

from rankstruct.checks import check_numbers
from rankstruct.kernels.pair_sums import smooth_grad
from rankstruct.lists import Lists, is_plain
from rankstruct.losses.gains import GainLoss, checked_gains, differs, loop_discounts
from rankstruct.measures import DiscountedGain, Measure

__all__ = ["SmoothLoss"]

_BLOCK = 2**24  # numbers of h stored for the backward pass; more are recomputed there
_NARROW = 2.0**-60  # the smallest sigma, relative to the largest score of a list


class SmoothLoss(GainLoss):
    """SmoothGrad: the task loss of a smoothed measure, differentiable except if scores tie.

    Smooth but not convex: start from a reasonable scorer (regression), with a `sigma` of the size of score differences, and
    halve it as training converges (`AnnealSigma`). If all scores of a list tie, as for a scorer with zero weights, the
    gradient would be zero; that of the mean score minus the label-weighted mean is used instead. As sigma goes to 0, the loss
    tends to the measure's regret. Documents with equal scores share the gains of their ranks, which is the expected value over
    their orders. Their gradient depends on which of them the sort puts first.

    Args:
        measure: a discounted gain or its name: nDCG, DCG, P, WTA, ERU, nERU, with or without a cut-off.
        sigma: the width of a document's neighbourhood, in units of the scores; in a list with scores beyond 2^60 sigma, 2^-60 of
            the largest. Stored as a buffer, which `AnnealSigma` halves and checkpoints save; pass a `torch.nn.Parameter` or
            another tensor that requires a gradient to learn it.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: a measure that is not a discounted gain, or a sigma that is not above 0.

    Source: Chapelle and Wu, "Gradient descent optimization of smoothed information retrieval metrics", Information Retrieval
    2010; Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures" (whose formula lacks the discount).

    >>> loss = SmoothLoss("nDCG", sigma=1.0)
    >>> loss
    SmoothLoss(nDCG, sigma=1, reduction=mean)
    >>> scores = torch.tensor([2.0, 1.0, 0.0])
    >>> loss(scores, torch.tensor([0, 1, 0]))
    tensor(0.1926)
    >>> loss.with_sigma(0.01)(scores, torch.tensor([0, 1, 0]))                     # 1 - nDCG = 1 - 1 / log2(3)
    tensor(0.3691)
    """

    measure: str | Measure = "nDCG@10"
    _: KW_ONLY
    sigma: float = 1.0
    takes_item_weights = True

    def setup(self) -> None:
        """Parse the measure, check sigma, and store it as a buffer."""
        super().setup()
        sigma: float | Tensor = self.sigma
        check_sigma(sigma)
        if not isinstance(sigma, torch.nn.Parameter):
            del self.sigma
            learned = sigma if isinstance(sigma, Tensor) and sigma.requires_grad else None
            self.register_buffer("sigma", torch.tensor(float(sigma)) if learned is None else learned)

    def checked(self, measure: Measure) -> DiscountedGain:
        """Any discounted gain."""
        if not isinstance(measure, DiscountedGain):
            raise ValueError(
                f"{measure.name} is not a discounted gain, which smoothing requires; use nDCG, DCG, P, WTA, ERU or nERU"
            )
        return measure

    def with_sigma(self, sigma: float) -> Self:
        """A copy of the loss with this sigma.

        >>> SmoothLoss("nDCG@10", reduction="sum").with_sigma(0.25)
        SmoothLoss(nDCG@10, sigma=0.25, reduction=sum)
        """
        return self.with_options(sigma=float(sigma))

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        regret = self._smoothed_regret(scores, labels, where, weights)
        return _with_a_way_out(regret, scores, labels, where)

    @property
    def solve(self) -> Callable[..., tuple[Tensor, Tensor]] | None:  # type: ignore[override]
        """Value and gradient by compiled loops, if sigma is a plain number; otherwise None."""
        sigma: float | Tensor = self.sigma
        is_number = isinstance(sigma, Tensor) and sigma.numel() == 1 and not sigma.requires_grad and is_plain(sigma)
        return self._by_loops if is_number else None

    def _by_loops(self, scores: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
        discounts = loop_discounts(self.gain, scores, lists.offsets)
        lists = lists._replace(labels=self.gain.document_gains(lists.labels), reference_scores=lists.labels)
        return smooth_grad(scores, lists, 0.0, *discounts, self.gain.normalized, float(self.sigma))[1:]

    def _smoothed_regret(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None) -> Tensor:
        gains, best, can_err = smoothed_gains(self.gain, labels, where, weights, scores.dtype)
        scores = in_sigmas(scores, self.sigma) * 0.5**0.5  # h is exp of minus a square
        size = scores.shape[-1]
        k = size if self.gain.cutoff is None else min(self.gain.cutoff, size)
        discounts = self.gain.unchecked_weights(size, scores.device).to(scores.dtype)
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


def in_sigmas(scores: Tensor, sigma: float | Tensor) -> Tensor:
    """Scores in units of sigma, or of 2^-60 of the list's largest, so that neither differences nor squares overflow."""
    sigma = torch.as_tensor(sigma, dtype=scores.dtype, device=scores.device)
    largest = torch.linalg.vector_norm(scores.detach(), torch.inf, dim=-1, keepdim=True)
    return scores / torch.maximum(sigma, _NARROW * largest)


def smoothed_gains(
    measure: DiscountedGain, labels: Tensor, where: Tensor, weights: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """`checked_gains` in the dtype of the scores, divided by the best value if the measure is normalised."""
    gains, best, can_err = checked_gains(measure, labels, where, weights)
    if measure.normalized:  # in float64: the gain of label 128 overflows float32
        gains = gains / torch.where(can_err, best, 1.0).unsqueeze(-1)
        best = torch.ones_like(best)
    return gains.to(dtype), best.to(dtype), can_err


def check_sigma(sigma: float | Tensor) -> None:
    """Raise ValueError for a number that is not above 0."""
    if not isinstance(sigma, Tensor):
        check_numbers("> 0", sigma=sigma)


def _with_a_way_out(regret: Tensor, scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
    """If all scores of a list tie, the gradient is 0 and training would never start: use that of the mean score minus the
    label-weighted mean score. The value is unchanged.
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


def _smoothed(scores: Tensor, gains: Tensor, where: Tensor, centres: Tensor, discounts: Tensor) -> Tensor:
    """sum_j a_j (mean gain around centre j); `[..., list_size]` documents and `[..., k]` centres in units of sqrt(2) sigma."""
    near = (scores.unsqueeze(-2) - centres.unsqueeze(-1)).square().neg_().exp_()
    # Padding is near too, but has weight 0.
    gained, total = (near @ torch.stack([gains, where.to(gains.dtype)], -1)).unbind(-1)
    mean = gained / torch.where(discounts > 0, total, 1.0)
    return torch.where(discounts > 0, discounts * mean, 0.0).sum(-1)
