"""NeuralSort: the permutation that sorts a list, relaxed to a matrix whose rows are softmaxes.

Row i of the permutation that sorts s selects the i-th largest, the one that maximises (n + 1 - 2i) s_j - sum_k |s_j - s_k|:

    P_ij = softmax over j of ( (n + 1 - 2i) s_j - sum_k |s_j - s_k| ) / temperature        O(n^2) time and memory

As the temperature goes to 0, P tends to the permutation; equal scores share their ranks.

Source: Grover, Wang, Zweig, Ermon, "Stochastic Optimization of Sorting Networks via Continuous Relaxations", ICLR 2019.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rankstruct.checks import check_integers, check_numbers
from rankstruct.kernels.pair_sums import neural_entropy, neural_gain
from rankstruct.lists import Lists
from rankstruct.losses.base import RankingLoss
from rankstruct.losses.gains import GainLoss, differs, loop_discounts, normalized_gains
from rankstruct.losses.smooth import in_sigmas

__all__ = ["NeuralNDCGLoss", "NeuralSortLoss", "neural_sort"]


def neural_sort(scores: Tensor, where: Tensor | None = None, *, temperature: float = 1.0) -> Tensor:
    """The logarithms of the relaxed permutation, `[..., ranks, documents]`; `exp` of each row sums to 1.

    Args:
        scores: `[..., list_size]`.
        where: bool, the shape of `scores`, True for a real document; padding has probability 0. Rows of ranks beyond the length
            of a list are arbitrary.
        temperature: above 0, in units of the scores; in a list with scores 2^60 temperatures apart, 2^-60 of their range.

    Source: that of the module, equation 5.

    >>> neural_sort(torch.tensor([0.0, 2.0, 1.0]), temperature=0.1).exp().round(decimals=3)
    tensor([[0., 1., 0.],
            [0., 0., 1.],
            [1., 0., 0.]])
    """
    check_numbers("> 0", temperature=temperature)
    size = scores.shape[-1]
    real = torch.ones_like(scores, dtype=torch.bool) if where is None else where
    lowest = torch.finfo(scores.dtype).min
    # Relative to the highest, which keeps the precision of scores close to it; halved, so that no difference overflows.
    top = torch.where(real, scores.detach(), lowest).amax(-1, keepdim=True) if size else scores
    scores = torch.where(real, scores / 2 - top / 2, 0.0)
    scores = in_sigmas(scores, temperature / 2) if size else scores
    apart = (scores.unsqueeze(-1) - scores.unsqueeze(-2)).abs()
    apart = torch.where(real.unsqueeze(-2), apart, 0.0).sum(-1)
    ranks = torch.arange(1, size + 1, device=scores.device)
    factors = (real.sum(-1, keepdim=True) + 1 - 2 * ranks).to(scores.dtype)
    logits = factors.unsqueeze(-1) * scores.unsqueeze(-2) - apart.unsqueeze(-2)
    return torch.where(real.unsqueeze(-2), logits, lowest).log_softmax(-1)


class NeuralSortLoss(RankingLoss):
    """Cross entropy of NeuralSort: the mean over ranks i of - sum_j P_ij(labels) log P_ij(scores).

    Documents with equal labels share their ranks. Item weights multiply the documents' terms and weight the mean. O(n^2) time at
    most, O(n) memory on the CPU and on CUDA and ROCm devices, O(n^2) elsewhere.

    Args:
        temperature: the temperature for both labels and scores, above 0.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Grover, Wang, Zweig, Ermon, ICLR 2019, section 6.1.

    >>> loss = NeuralSortLoss()
    >>> loss
    NeuralSortLoss(temperature=1.0, reduction=mean)
    >>> loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(2.4738)
    """

    temperature: float = 1.0
    on_devices = True
    takes_item_weights = True

    def setup(self) -> None:
        """Check the temperature."""
        check_numbers("> 0", temperature=self.temperature)

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        wanted = neural_sort(labels, where, temperature=self.temperature).exp()
        if weights is not None:
            wanted = wanted * weights.unsqueeze(-2)
        wanted = torch.where(_rows(where), torch.where(where.unsqueeze(-2), wanted, 0.0), 0.0)
        each = torch.where(wanted > 0, wanted * neural_sort(scores, where, temperature=self.temperature), 0.0)
        total = wanted.sum((-2, -1))
        value = -each.sum((-2, -1)) / torch.where(total > 0, total, 1.0)
        return torch.where(differs(labels, where), value, 0.0)

    def solve(self, scores: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
        """Value and gradient."""
        return neural_entropy(scores, lists, 0.0, float(self.temperature))[1:]


class NeuralNDCGLoss(GainLoss):
    """1 - nDCG of the gains that NeuralSort places at each rank (deterministic NeuralNDCG).

    As the temperature goes to 0, the loss tends to 1 - nDCG, the mean over the orders of tied documents. O(n^2) time at most;
    without scalings O(n) memory on the CPU and on CUDA and ROCm devices, otherwise O(n^2).

    Args:
        measure: nDCG with any options and cut-off, or another normalised discounted gain.
        temperature: above 0.
        scalings: number of Sinkhorn iterations, which divide columns and rows by their sums, so that no document is at more
            than one rank in total; the paper uses up to 50. Every iteration keeps a matrix in memory.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Pobrotyn and Bialobrzeski, "NeuralNDCG: Direct Optimisation of a Ranking Metric via Differentiable Relaxation of
    Sorting", SIGIR eCom 2021.

    >>> NeuralNDCGLoss()(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(0.2612)
    >>> NeuralNDCGLoss("nDCG@10")
    NeuralNDCGLoss(nDCG@10, temperature=1.0, scalings=0, reduction=mean)
    """

    temperature: float = 1.0
    scalings: int = 0
    on_devices = True
    takes_item_weights = True

    def setup(self) -> None:
        """Check the numbers, and parse the measure."""
        check_numbers("> 0", temperature=self.temperature)
        check_integers(0, scalings=self.scalings)
        super().setup()

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        gains, can_err = normalized_gains(self.gain, labels, where, weights)
        placed = neural_sort(scores, where, temperature=self.temperature).exp()
        placed = torch.where(_rows(where), torch.where(where.unsqueeze(-2), placed, 0.0), 0.0)
        for _ in range(self.scalings):
            for side in (-2, -1):
                total = placed.sum(side, keepdim=True)
                placed = placed / torch.where(total > 0, total, 1.0)
        at_rank = (placed @ gains.to(scores.dtype).unsqueeze(-1)).squeeze(-1)
        discounts = self.gain.unchecked_weights(labels.shape[-1], labels.device).to(scores.dtype)
        return torch.where(can_err, 1 - (at_rank * discounts).sum(-1), 0.0)

    @property
    def solve(self) -> Callable[..., tuple[Tensor, Tensor]] | None:  # type: ignore[override]
        """Value and gradient by compiled loops; None with scalings, which they do not support."""
        return None if self.scalings else self._by_loops

    def _by_loops(self, scores: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
        discounts = loop_discounts(self.gain, scores, lists.offsets)
        lists = lists._replace(labels=self.gain.document_gains(lists.labels))
        return neural_gain(scores, lists, 0.0, *discounts, float(self.temperature))[1:]


def _rows(where: Tensor) -> Tensor:
    """The ranks up to the length of each list, bool `[..., ranks, 1]`."""
    ranks = torch.arange(where.shape[-1], device=where.device)
    return (ranks < where.sum(-1, keepdim=True)).unsqueeze(-1)
