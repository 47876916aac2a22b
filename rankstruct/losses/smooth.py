"""SmoothGrad: a measure whose hard ranks are replaced by Gaussian neighbourhoods in the scores.

With position j held by document pi(j) when the documents are sorted by score, discount a and gain b,

    h_ij = exp( -(s_i - s_pi(j))^2 / (2 sigma^2) )
    A    = sum_j a_j ( sum_i b_i h_ij ) / ( sum_i h_ij )              loss = best A - A

Only positions with a discount count: O(list_size * k) time at a cut-off k, and O(list_size) memory on the CPU; elsewhere, and for
derivatives of higher order, O(list_size * k) of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from typing_extensions import Self, Unpack

from rankstruct.kernels import smooth_grad
from rankstruct.lists import is_plain
from rankstruct.losses.base import ListOptions
from rankstruct.losses.checks import check_positive
from rankstruct.losses.gains import GainLoss, checked_gains, differs, loop_discounts
from rankstruct.measures import DiscountedGain, Measure

__all__ = ["SmoothLoss"]

_BLOCK = 2**24  # numbers of h that are kept for the backward pass; what is beyond is computed again there
_NARROW = 2.0**-60  # the least sigma, over the largest score of a list


class SmoothLoss(GainLoss):
    """SmoothGrad: the task loss of a smoothed measure, differentiable everywhere but where scores tie.

    Smooth but not convex: start from a sensible scorer (regression), with a `sigma` of the size of score differences, and
    halve it as training converges (`AnnealSigma`). Where all scores of a list tie, as those of a scorer with zero weights, the
    gradient is zero; there that of the mean score less the mean by label is taken. As sigma goes to 0 the loss tends to the
    measure's regret. Documents with equal scores share their ranks' gains, which is the expected value over their orders; their
    gradient depends on which of them the sort puts first.

    Args:
        measure: a discounted gain or its name: nDCG, DCG, P, WTA, ERU, nERU, with or without a cut-off.
        sigma: the width of a document's neighbourhood, in units of the scores; in a list with scores beyond 2^60 sigma, 2^-60 of
            the largest. It becomes a buffer, which `AnnealSigma` halves and checkpoints keep; a tensor with a gradient stays what
            it is, so that a `torch.nn.Parameter` is learned.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: a measure that is not discount times gain, or a sigma that is not above 0.

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
        """Find the measure, check sigma, and make it a buffer."""
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
                f"{measure.name} is not discount times gain, which smoothing needs; such are nDCG, DCG, P, WTA, ERU and nERU"
            )
        return measure

    def with_sigma(self, sigma: float) -> Self:
        """Another with the same options and this sigma.

        >>> SmoothLoss("nDCG@10", reduction="sum").with_sigma(0.25)
        SmoothLoss(nDCG@10, sigma=0.25, reduction=sum)
        """
        return self.with_options(sigma=float(sigma))

    def forward(self, scores: Tensor, labels: Tensor, **lists: Unpack[ListOptions]) -> Tensor:
        """The loss: a scalar, or one value a list with reduction `"none"`."""
        return self.evaluate(scores, labels, {**lists})

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value a list."""
        regret = self._smoothed_regret(scores, labels, where, weights)
        return _with_a_way_out(regret, scores, labels, where)

    @property
    def solve(self) -> Callable[..., tuple[Tensor, Tensor]] | None:  # type: ignore[override]
        """Value and gradient by compiled loops, where sigma is one number that may be looked at."""
        sigma: float | Tensor = self.sigma
        is_number = isinstance(sigma, Tensor) and sigma.numel() == 1 and not sigma.requires_grad and is_plain(sigma)
        return self._by_loops if is_number else None

    def _by_loops(
        self, scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None, item_weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        lists = scores, self.gain.document_gains(labels), where, offsets, labels, None, item_weights, 0.0
        tables = *loop_discounts(self.gain, scores, offsets), self.gain.normalized
        return smooth_grad(*lists, *tables, float(self.sigma))[1:]

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


def check_sigma(sigma: float | Tensor) -> None:
    """Raise ValueError where a number is not above 0."""
    if not isinstance(sigma, Tensor):
        check_positive("sigma", sigma)


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


def _smoothed(scores: Tensor, gains: Tensor, where: Tensor, centres: Tensor, discounts: Tensor) -> Tensor:
    """sum_j a_j (mean gain around centre j); `[..., list_size]` documents and `[..., k]` centres in units of sqrt(2) sigma."""
    near = (scores.unsqueeze(-2) - centres.unsqueeze(-1)).square().neg_().exp_()
    # Padding is near too, but weighs nothing.
    gained, total = (near @ torch.stack([gains, where.to(gains.dtype)], -1)).unbind(-1)
    mean = gained / torch.where(discounts > 0, total, 1.0)
    return torch.where(discounts > 0, discounts * mean, 0.0).sum(-1)
