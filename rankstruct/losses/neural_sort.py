"""NeuralSort: the permutation that sorts a list, relaxed to a matrix whose rows are softmaxes.

Row i of the permutation that sorts s picks the i-th largest, which is where (n + 1 - 2i) s_j - sum_k |s_j - s_k| is largest:

    P_ij = softmax over j of ( (n + 1 - 2i) s_j - sum_k |s_j - s_k| ) / temperature        O(n^2) time and memory

As the temperature goes to 0, P becomes the permutation; the order of equal scores is shared.

Source: Grover, Wang, Zweig, Ermon, "Stochastic Optimization of Sorting Networks via Continuous Relaxations", ICLR 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Unpack

from rankstruct.kernels import neural_entropy, neural_gain
from rankstruct.losses.base import (
    ListOptions,
    RankingLoss,
    Reduction,
    check_positive,
    compiled_loss,
    differs,
    list_loss,
    longest_of,
    normalized_gains,
    normalized_measure,
)
from rankstruct.measures import DiscountedGain, Measure

__all__ = ["NeuralNDCGLoss", "NeuralSortLoss", "neural_ndcg_loss", "neural_sort", "neural_sort_loss"]


def neural_sort(scores: Tensor, where: Tensor | None = None, *, temperature: float = 1.0) -> Tensor:
    """The logarithms of the relaxed permutation, `[..., ranks, documents]`; `exp` of each row adds up to 1.

    Args:
        scores: `[..., list_size]`.
        where: bool, the shape of `scores`, True for a real document; padding has probability 0. What stands in the rows of ranks
            beyond the length of a list does not count.
        temperature: above 0, in units of the scores.

    Source: as the module says, equation 5.

    >>> neural_sort(torch.tensor([0.0, 2.0, 1.0]), temperature=0.1).exp().round(decimals=3)
    tensor([[0., 1., 0.],
            [0., 0., 1.],
            [1., 0., 0.]])
    """
    check_positive("temperature", temperature)
    size = scores.shape[-1]
    real = torch.ones_like(scores, dtype=torch.bool) if where is None else where
    lowest = torch.finfo(scores.dtype).min
    # Relative to the highest, which changes nothing and keeps the digits of what is close to it.
    top = torch.where(real, scores.detach(), lowest).amax(-1, keepdim=True) if size else scores
    scores = torch.where(real, scores - top, 0.0)
    apart = (scores.unsqueeze(-1) - scores.unsqueeze(-2)).abs()
    apart = torch.where(real.unsqueeze(-2), apart, 0.0).sum(-1)
    ranks = torch.arange(1, size + 1, device=scores.device)
    factors = (real.sum(-1, keepdim=True) + 1 - 2 * ranks).to(scores.dtype)
    logits = (factors.unsqueeze(-1) * scores.unsqueeze(-2) - apart.unsqueeze(-2)) / temperature
    return torch.where(real.unsqueeze(-2), logits, lowest).log_softmax(-1)


def neural_sort_loss(
    scores: Tensor, labels: Tensor, *, temperature: float = 1.0, **lists: Unpack[ListOptions]
) -> Tensor:
    """Cross entropy of NeuralSort: the mean over ranks i of - sum_j P_ij(labels) log P_ij(scores).

    Documents with equal labels share their ranks. An item weight multiplies the terms of the document, and the mean is weighted
    alike. O(n^2) time at most, O(n) memory on the CPU and O(n^2) elsewhere.

    Args:
        scores, labels, where, offsets, weights, item_weights, reduction: the list contract of `rankstruct.losses.base`.
        temperature: of both, above 0.

    Source: Grover, Wang, Zweig, Ermon, ICLR 2019, section 6.1.

    >>> neural_sort_loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(2.4738)
    """
    check_positive("temperature", temperature)

    def per_list(scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        wanted = neural_sort(labels, where, temperature=temperature).exp()
        if weights is not None:
            wanted = wanted * weights.unsqueeze(-2)
        wanted = torch.where(_rows(where), torch.where(where.unsqueeze(-2), wanted, 0.0), 0.0)
        each = torch.where(wanted > 0, wanted * neural_sort(scores, where, temperature=temperature), 0.0)
        total = wanted.sum((-2, -1))
        value = -each.sum((-2, -1)) / torch.where(total > 0, total, 1.0)
        return torch.where(differs(labels, where), value, 0.0)

    def solve(scores: Tensor, labels: Tensor, *more: Tensor | None) -> tuple[Tensor, Tensor]:
        where, offsets, weights = more
        return neural_entropy(scores, labels, where, offsets, None, None, weights, 0.0, float(temperature))[1:]

    return compiled_loss(per_list, solve, scores, labels, **lists)


class NeuralSortLoss(RankingLoss):
    """`neural_sort_loss` as a module; see there for the arguments, the errors and the source.

    >>> NeuralSortLoss()
    NeuralSortLoss(temperature=1.0, reduction=mean)
    """

    function = staticmethod(neural_sort_loss)

    def __init__(self, temperature: float = 1.0, *, reduction: Reduction = "mean") -> None:
        check_positive("temperature", temperature)
        super().__init__(reduction, temperature=temperature)


def neural_ndcg_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    measure: str | Measure = "nDCG",
    temperature: float = 1.0,
    scalings: int = 0,
    **lists: Unpack[ListOptions],
) -> Tensor:
    """1 - nDCG of the gains that NeuralSort puts at each rank (NeuralNDCG, the deterministic one).

    As the temperature goes to 0 the loss goes to 1 - nDCG, which has the mean over the orders of tied documents too. O(n^2) time
    at most; without scalings O(n) memory on the CPU, else O(n^2).

    Args:
        scores, labels, where, offsets, weights, item_weights, reduction: the list contract of `rankstruct.losses.base`.
        measure: nDCG with any options and cut-off, or another normalised discounted gain.
        temperature: above 0.
        scalings: so many times columns and rows are divided by their sums (Sinkhorn), so that no document stands at more than one
            rank in all; the paper does so up to 50 times. Each keeps a matrix in memory.

    Source: Pobrotyn and Bialobrzeski, "NeuralNDCG: Direct Optimisation of a Ranking Metric via Differentiable Relaxation of
    Sorting", SIGIR eCom 2021.

    >>> neural_ndcg_loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(0.2612)
    """
    chosen = _check_neural(measure, temperature, scalings)

    def per_list(scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        gains, can_err = normalized_gains(chosen, labels, where, weights)
        placed = neural_sort(scores, where, temperature=temperature).exp()
        placed = torch.where(_rows(where), torch.where(where.unsqueeze(-2), placed, 0.0), 0.0)
        for _ in range(scalings):
            for side in (-2, -1):
                total = placed.sum(side, keepdim=True)
                placed = placed / torch.where(total > 0, total, 1.0)
        at_rank = (placed @ gains.to(scores.dtype).unsqueeze(-1)).squeeze(-1)
        discounts = chosen.unchecked_weights(labels.shape[-1], labels.device).to(scores.dtype)
        return torch.where(can_err, 1 - (at_rank * discounts).sum(-1), 0.0)

    signed = chosen.takes_negative_labels
    if scalings:
        return list_loss(per_list, scores, labels, signed=signed, **lists)

    def solve(scores: Tensor, labels: Tensor, *more: Tensor | None) -> tuple[Tensor, Tensor]:
        (where, offsets, weights), size = more, longest_of(scores, more[1])
        tables = chosen.unchecked_weights(size), size if chosen.cutoff is None else min(chosen.cutoff, size)
        layout = where, offsets, None, None, weights, 0.0
        return neural_gain(scores, chosen.document_gains(labels), *layout, *tables, float(temperature))[1:]

    return compiled_loss(per_list, solve, scores, labels, signed=signed, **lists)


class NeuralNDCGLoss(RankingLoss):
    """`neural_ndcg_loss` as a module; see there for the arguments, the errors and the source.

    >>> NeuralNDCGLoss("nDCG@10")
    NeuralNDCGLoss(nDCG@10, temperature=1.0, scalings=0, reduction=mean)
    """

    function = staticmethod(neural_ndcg_loss)

    def __init__(
        self,
        measure: str | Measure = "nDCG",
        temperature: float = 1.0,
        scalings: int = 0,
        *,
        reduction: Reduction = "mean",
    ) -> None:
        chosen = _check_neural(measure, temperature, scalings)
        super().__init__(reduction, measure=chosen, temperature=temperature, scalings=scalings)


def _check_neural(measure: str | Measure, temperature: float, scalings: int) -> DiscountedGain:
    check_positive("temperature", temperature)
    if isinstance(scalings, bool) or not isinstance(scalings, int) or scalings < 0:
        raise ValueError(f"scalings must be a whole number >= 0, got {scalings!r}")
    return normalized_measure(measure, "NeuralNDCGLoss")


def _rows(where: Tensor) -> Tensor:
    """`[..., ranks, 1]` bool: the ranks that a list has."""
    ranks = torch.arange(where.shape[-1], device=where.device)
    return (ranks < where.sum(-1, keepdim=True)).unsqueeze(-1)
