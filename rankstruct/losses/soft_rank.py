"""SoftRank: the expected value of a measure if each score is the mean of a Gaussian.

Document i is above document j with probability pi_ij = Phi((s_i - s_j) / (sqrt(2) sigma)), and the number above j, its 0-based
rank, is distributed as a sum of independent coin flips, one per document,

    p_j = product over i != j of (1 - pi_ij + pi_ij z)              the coefficient of z^r: rank r; "rank-binomial"
    A   = sum_j b_j sum_r p_j(r) a_r                                loss = best A - A

with discount a and gain b. A compiled loop computes value and gradient on the CPU. Elsewhere, and for higher-order derivatives,
the factors are multiplied in pairs, then the products, in log n steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.special import ndtr
from torch.utils.checkpoint import checkpoint

from rankstruct.checks import check_choice
from rankstruct.kernels.soft_rank import NODES, SHARES, soft_rank
from rankstruct.lists import Lists, is_plain
from rankstruct.losses.gains import loop_discounts
from rankstruct.losses.smooth import SmoothLoss, check_sigma, in_sigmas, smoothed_gains

__all__ = ["SoftRankLoss", "rank_distribution"]

RankModel = Literal["binomial", "normal", "joint"]

_BLOCK = 2**24  # numbers stored for the backward pass; more are recomputed there
_NODES, _POINTS, _SHARES = len(NODES), NODES.tolist(), SHARES.tolist()  # as lists, which torch.compile can trace
_LEAST_VARIANCE = 1e-4  # of a rank; below it, the normal distribution is on a single rank


def rank_distribution(
    scores: Tensor,
    where: Tensor | None = None,
    *,
    sigma: float | Tensor = 1.0,
    ranks: RankModel = "binomial",
    k: int | None = None,
) -> Tensor:
    """The probability of each rank for each document, `[..., documents, ranks]`, if scores are means of Gaussians.

    Each row sums to 1 over all ranks; columns sum to 1 over the documents only with `ranks="joint"`.

    Args:
        scores: `[..., list_size]`.
        where: bool, the shape of `scores`, True for a real document; rows of padding are 0.
        sigma, ranks: as in `SoftRankLoss`.
        k: number of top ranks; all if None.

    Source: Taylor, Guiver, Robertson, Minka, WSDM 2008.

    >>> rank_distribution(torch.tensor([0.0, 2.0, 1.0])).round(decimals=2)
    tensor([[0.0200, 0.2800, 0.7000],
            [0.7000, 0.2800, 0.0200],
            [0.1800, 0.6400, 0.1800]])
    """
    check_choice("ranks", ranks, get_args(RankModel))
    check_sigma(sigma)
    size = scores.shape[-1]
    where = torch.ones_like(scores, dtype=torch.bool) if where is None else where
    k = size if k is None else min(k, size)
    scores = in_sigmas(torch.where(where, scores, 0.0), sigma)
    return torch.where(where.unsqueeze(-1), _distribution(scores, where, _all_rows(scores), k, ranks), 0.0)


class SoftRankLoss(SmoothLoss):
    """SoftRank: the task loss of the expected measure if each score is the mean of a Gaussian; differentiable everywhere.

    Smooth but not convex: start from a reasonable scorer (regression) with a `sigma` of the size of score differences, and halve
    it as training converges (`AnnealSigma`). As sigma goes to 0, the loss tends to the measure's regret if no scores tie; with
    `"joint"` also if they do.

    On the CPU O(n m min(k, sqrt n)) time and O(n min(k, sqrt n)) memory, with n documents, m of them with a gain, and cut-off k
    (n without one); probabilities below 1e-20 are treated as 0. Elsewhere, and for higher-order derivatives, O(n^2 k) time and
    O(n^2 log k) memory; long lists are then recomputed in the backward pass, in blocks.

    Args:
        measure: a discounted gain or its name: nDCG, DCG, P, WTA, ERU, nERU, with or without a cut-off.
        sigma: the standard deviation of a score, above 0; in a list with scores beyond 2^60 sigma, 2^-60 of the largest. A
            buffer, or learned, as in `SmoothLoss`.
        ranks: the distribution of a rank. `"binomial"`, as in the paper: pairs are independent, as if a document's noise were
            sampled again for each comparison. `"normal"`: the normal distribution of the same mean and variance, O(m (n + k)),
            for long lists. `"joint"`: one noisy score per document, which is the exact expected measure, by quadrature; at least
            32 times as slow as `"binomial"`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: a measure that is not a discounted gain, a sigma that is not above 0, an unknown `ranks`.

    Source: Taylor, Guiver, Robertson, Minka, "SoftRank: Optimising Non-Smooth Rank Metrics", WSDM 2008.

    >>> loss = SoftRankLoss("nDCG", sigma=1.0)
    >>> loss
    SoftRankLoss(nDCG, sigma=1, ranks=binomial, reduction=mean)
    >>> scores = torch.tensor([2.0, 1.0, 0.0])
    >>> loss(scores, torch.tensor([0, 1, 0]))
    tensor(0.3257)
    >>> loss.with_sigma(0.01)(scores, torch.tensor([0, 1, 0]))                     # 1 - nDCG = 1 - 1 / log2(3)
    tensor(0.3691)
    """

    _: KW_ONLY
    ranks: RankModel = "binomial"
    on_devices = True

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        gains, best, can_err = smoothed_gains(self.gain, labels, where, weights, scores.dtype)
        return torch.where(can_err, best - self._expected(in_sigmas(scores, self.sigma), gains, where), 0.0)

    @property
    def solve(self) -> Callable[..., tuple[Tensor, Tensor]] | None:  # type: ignore[override]
        """Value and gradient together, unless sigma is learned."""
        sigma: float | Tensor = self.sigma
        there = isinstance(sigma, Tensor) and not is_plain(sigma) and not sigma.requires_grad
        return self._on_device if there else super().solve

    def _on_device(self, scores: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
        """As `_by_loops` for a sigma on a device, which would have to be read: the scores are divided by it."""
        value, direction = self._by_loops(scores.double() / self.sigma, lists, 1.0)
        return value.to(scores.dtype), (direction / self.sigma).to(scores.dtype)

    def _by_loops(self, scores: Tensor, lists: Lists, sigma: float | None = None) -> tuple[Tensor, Tensor]:
        discounts = loop_discounts(self.gain, scores, lists.offsets)
        lists = lists._replace(labels=self.gain.document_gains(lists.labels))
        sigma = float(self.sigma) if sigma is None else sigma
        return soft_rank(scores, lists, 0.0, *discounts, self.gain.normalized, sigma, self.ranks)[1:]

    def _expected(self, scores: Tensor, gains: Tensor, where: Tensor) -> Tensor:
        """The expected measure, `[...]`; scores are in units of sigma."""
        size = scores.shape[-1]
        k = size if self.gain.cutoff is None else min(self.gain.cutoff, size)
        discounts = self.gain.unchecked_weights(size, scores.device).to(scores.dtype)[:k]
        rows = _all_rows(scores)

        def of(scores: Tensor, rows: Tensor, gains: Tensor) -> Tensor:
            return (_distribution(scores, where, rows, k, self.ranks) @ discounts * gains).sum(-1)

        step = max(1, _BLOCK // max(scores.numel() * (_NODES if self.ranks == "joint" else 1), 1))
        if (
            torch.compiler.is_compiling() or size <= step
        ):  # the compiler may not know the size, and plans memory by itself
            return of(scores, rows, gains)
        found = torch.zeros_like(gains[..., 0])
        for a in range(0, size, step):
            part = (scores, rows[..., a : a + step], gains[..., a : a + step])
            found = found + checkpoint(of, *part, use_reentrant=False)
        return found


def _all_rows(scores: Tensor) -> Tensor:
    return torch.arange(scores.shape[-1], device=scores.device).expand(scores.shape)


def _distribution(scores: Tensor, where: Tensor, rows: Tensor, k: int, ranks: str) -> Tensor:
    """The probabilities of the first k ranks for the documents at `rows`, `[..., rows, k]`; scores are in units of sigma."""
    chances = _chances(scores, where, rows, ranks)
    if ranks == "normal":
        return _normal(*chances, where.sum(-1), k)
    each = _binomial(*chances, k)
    return _mean_over_nodes(each.unflatten(-2, (-1, _NODES)), -2) if ranks == "joint" else each


def _mean_over_nodes(values: Tensor, side: int) -> Tensor:
    return values.movedim(side, -1) @ torch.tensor(_SHARES, dtype=values.dtype, device=values.device)


def _chances(scores: Tensor, where: Tensor, rows: Tensor, ranks: str) -> tuple[Tensor, Tensor]:
    """The probabilities that document i is above the row's, and that it is not, `[..., rows, list_size]`.

    Padding and the row's own document are never above. With `"joint"` each document has a row for each node.
    """
    centres = scores.gather(-1, rows).unsqueeze(-1)
    if ranks == "joint":
        nodes = torch.tensor(_POINTS, dtype=scores.dtype, device=scores.device)
        centres, rows = (centres + nodes).flatten(-2).unsqueeze(-1), rows.repeat_interleave(_NODES, dim=-1)
    others = where.unsqueeze(-2) & (torch.arange(where.shape[-1], device=where.device) != rows.unsqueeze(-1))
    away = torch.where(others, scores.unsqueeze(-2) - centres, 0.0)
    away = away if ranks == "joint" else away * 0.5**0.5
    return torch.where(others, ndtr(away), 0.0), torch.where(others, ndtr(-away), 1.0)


def _normal(above: Tensor, below: Tensor, lengths: Tensor, k: int) -> Tensor:
    mean, variance = above.sum(-1, keepdim=True), (above * below).sum(-1, keepdim=True)
    ranks = torch.arange(k, device=above.device)
    lower = ndtr((mean - ranks - 0.5) / variance.clamp(min=_LEAST_VARIANCE).sqrt())  # than rank r
    lower = torch.where(ranks + 1 < lengths[..., None, None], lower, 0.0)
    return torch.cat([torch.ones_like(mean), lower[..., :-1]], -1) - lower


def _binomial(above: Tensor, below: Tensor, k: int) -> Tensor:
    """The probabilities of 0, 1, ..., k - 1 successes in independent trials, `[..., rows, k]`."""
    if torch.compiler.is_compiling():  # the number of steps depends on the size, which may be unknown
        return _counts(above, below, k)
    return _up(above, below, k)[-1].squeeze(-2)


def _up(above: Tensor, below: Tensor, k: int) -> list[Tensor]:
    """Levels of polynomials `[..., rows, factors, coefficients]`, each with the products of pairs of the previous one."""
    levels = [torch.stack([below, above], -1)[..., :k]]
    while levels[-1].shape[-2] > 1:
        left, right = _pairs(levels[-1])
        levels.append(_product(left, right, min(2 * left.shape[-1] - 1, k)))
    levels[-1] = pad(levels[-1], (0, k - levels[-1].shape[-1]))
    return levels


def _pairs(factors: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of neighbouring factors; a last one without a partner is paired with 1."""
    left, right = factors[..., 0::2, :], factors[..., 1::2, :]
    if left.shape[-2] > right.shape[-2]:
        one = torch.zeros_like(left[..., :1, :1]) + 1
        right = torch.cat([right, pad(one, (0, left.shape[-1] - 1))], -2)
    return left, right


def _product(left: Tensor, right: Tensor, size: int) -> Tensor:
    """The first coefficients of the products of polynomials."""
    found: Tensor | None = None
    for power in range(left.shape[-1]):
        width = min(right.shape[-1], size - power)
        each = pad(left[..., power : power + 1] * right[..., :width], (power, size - power - width))
        found = each if found is None else found + each
    assert found is not None
    return found


def _down(slopes: Tensor, levels: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The gradients with respect to `below` and `above`, from that with respect to the top polynomial."""
    slopes = slopes.unsqueeze(-2)[..., : levels[-1].shape[-1]]
    for factors in reversed(levels[:-1]):
        left, right = _pairs(factors)
        both = torch.stack([_correlation(slopes, right), _correlation(slopes, left)], -2).flatten(-3, -2)
        slopes = both[..., : factors.shape[-2], :]
    slopes = pad(slopes, (0, 2 - slopes.shape[-1]))
    return slopes[..., 0], slopes[..., 1]


def _correlation(slopes: Tensor, factors: Tensor) -> Tensor:
    """The gradient with respect to one factor of `_product`, from that of the product and the other factor."""
    size = factors.shape[-1]
    slopes = pad(slopes, (0, max(0, 2 * size - 1 - slopes.shape[-1])))
    return torch.stack([(slopes[..., power : power + size] * factors).sum(-1) for power in range(size)], -1)


@torch.library.custom_op("rankstruct::rank_binomial", mutates_args=())
def _counts(above: Tensor, below: Tensor, k: int) -> Tensor:
    """`_binomial`, as an operator, so that `torch.compile` need not know the size of the lists."""
    return _up(above, below, k)[-1].squeeze(-2).clone()


@_counts.register_fake
def _(above: Tensor, below: Tensor, k: int) -> Tensor:
    return above.new_empty((*above.shape[:-1], k))


@torch.library.custom_op("rankstruct::rank_binomial_slopes", mutates_args=())
def _counts_slopes(slopes: Tensor, above: Tensor, below: Tensor, k: int) -> tuple[Tensor, Tensor]:
    by_below, by_above = _down(slopes, _up(above, below, k))
    return by_above.contiguous(), by_below.contiguous()


@_counts_slopes.register_fake
def _(slopes: Tensor, above: Tensor, below: Tensor, k: int) -> tuple[Tensor, Tensor]:
    return above.new_empty(above.shape), below.new_empty(below.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
    above, below, ctx.k = inputs
    ctx.save_for_backward(above, below)


def _slopes(ctx: Any, slopes: Tensor) -> tuple[Tensor, Tensor, None]:
    return *_counts_slopes(slopes, *ctx.saved_tensors, ctx.k), None


_counts.register_autograd(_slopes, setup_context=_keep)
