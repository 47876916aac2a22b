"""Distillation: a student learns from the scores of a teacher, such as a cross-encoder or a large language model.

The labels are the teacher's scores, any numbers. All of these losses count every list: if the teacher's scores are equal, the
student's should be too. `SquaredLoss` compares single scores, `SoftmaxLoss("teacher")` the softmaxes of a list. For a teacher
that returns a ranking without scores, use labels n, n - 1, ..., 1.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rankstruct.checks import check_integers, check_numbers
from rankstruct.losses.base import RankingLoss
from rankstruct.losses.listwise import approximate_ranks, cumulative_logsumexp, ranked_by_label
from rankstruct.losses.reduction import relative, weighted_mean

__all__ = ["DiscountedRankMSELoss", "MarginMSELoss", "RankDistilLoss"]


class MarginMSELoss(RankingLoss):
    """MarginMSE: the mean over pairs of ((s_i - s_j) - (y_i - y_j))^2, the margins being those of the teacher's scores y. O(n).

    Args:
        pairs: `"all"` pairs of a list; or `"first"`, the first document (the positive) with each of the others.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Hofstätter, Althammer, Schröder, Sertkan, Hanbury, "Improving Efficient Neural Ranking Models with Cross-Architecture
    Knowledge Distillation", 2020.

    >>> MarginMSELoss("first")(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([2.0, 0.5, 0.0]))
    tensor(0.6250)
    >>> MarginMSELoss()
    MarginMSELoss(pairs=all, reduction=mean)
    """

    pairs: Literal["all", "first"] = "all"
    convex = True
    takes_item_weights = True
    takes_negative_labels = True

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        error = scores - labels
        if self.pairs == "first":
            first = where.long().argmax(-1, keepdim=True)
            others = where & (torch.arange(where.shape[-1], device=where.device) != first)
            off = torch.where(others, error - error.gather(-1, first), 0.0)
            return weighted_mean(off.square(), others, weights)
        each = where.to(scores.dtype) if weights is None else relative(weights)
        off = torch.where(where, error - weighted_mean(error, where, weights).unsqueeze(-1), 0.0)
        total = each.sum(-1)
        products = (each * (total.unsqueeze(-1) - each)).sum(-1)  # of the weights, over ordered pairs
        value = 2 * total * (each * off.square()).sum(-1) / torch.where(products > 0, products, 1.0)
        return torch.where(products > 0, value, 0.0)


class RankDistilLoss(RankingLoss):
    """Coupled RankDistil: the cross entropy of the first k ranks between the Plackett-Luce models of teacher and student,

        mean over rankings r sampled from the teacher of the sum over ranks i <= k of log(sum over j >= i of exp(s_r(j))) - s_r(i)

    Rankings are sampled with torch's global generator, in both training and evaluation. The item weight of the document at a rank
    multiplies its term. O(n log n) per sample.

    Args:
        k: number of top ranks that count; None for all.
        samples: number of rankings sampled for each list; None for the teacher's most likely ranking, which is deterministic:
            documents that tie for the teacher are ordered by the student's scores.
        temperature: divides the teacher's scores before sampling, above 0.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Reddi et al., "RankDistil: Knowledge Distillation for Ranking", AISTATS 2021.

    >>> RankDistilLoss(k=1, samples=None)(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2.0, 1.0, -1.0]))
    tensor(1.8064)
    >>> RankDistilLoss(k=10)
    RankDistilLoss(k=10, samples=8, temperature=1.0, reduction=mean)
    """

    k: int | None = None
    samples: int | None = 8
    temperature: float = 1.0
    takes_item_weights = True
    takes_negative_labels = True

    @property
    def draws(self) -> bool:  # type: ignore[override]
        """Whether rankings are sampled."""
        return self.samples is not None

    def setup(self) -> None:
        """Check the numbers."""
        check_numbers("> 0", temperature=self.temperature)
        check_integers(1, optional=True, k=self.k, samples=self.samples)

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        if self.samples is not None:
            drawn = labels.expand(self.samples, *labels.shape)
            noise = torch.rand_like(drawn).clamp(min=torch.finfo(labels.dtype).tiny)
            labels = drawn / self.temperature - (-noise.log()).log()
            scores, where = scores.expand_as(labels), where.expand_as(labels)
            weights = None if weights is None else weights.expand_as(labels)
        order, ranked, real, _ = ranked_by_label(scores, labels, where, weights)
        each = cumulative_logsumexp(ranked.flip(-1)).flip(-1) - ranked
        each = each if weights is None else each * weights.gather(-1, order)
        value = torch.where(real, each, 0.0)[..., : self.k].sum(-1)
        return value if self.samples is None else value.mean(0)


class DiscountedRankMSELoss(RankingLoss):
    """ADR-MSE: the mean over documents of (r_i - smoothed rank by score)^2 / log2(1 + r_i), r_i being the teacher's rank.

    Documents that tie for the teacher have the mean of their ranks. O(n^2) time; O(n) memory on the CPU and on CUDA and
    ROCm devices, O(n^2) elsewhere.

    Args:
        temperature: temperature of the smoothed ranks, as in `ApproxNDCGLoss`, above 0.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Schlatt et al., "Rank-DistiLLM: Closing the Effectiveness Gap Between Cross-Encoders and LLMs for Passage
    Re-ranking", ECIR 2025.

    >>> loss = DiscountedRankMSELoss(temperature=0.1)
    >>> loss
    DiscountedRankMSELoss(temperature=0.1, reduction=mean)
    >>> loss(torch.tensor([3.0, 0.0, 1.0]), torch.tensor([2.0, 1.0, 0.0]))
    tensor(0.3769)
    """

    temperature: float = 1.0
    takes_item_weights = True
    takes_negative_labels = True

    def setup(self) -> None:
        """Check the temperature."""
        check_numbers("> 0", temperature=self.temperature)

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        ascending = torch.where(where, labels, -torch.inf).sort(dim=-1).values.contiguous()
        below, upto = (torch.searchsorted(ascending, labels.contiguous(), right=right) for right in (False, True))
        wanted = labels.shape[-1] - (below + upto - 1).to(scores.dtype) / 2
        error = (wanted - approximate_ranks(scores, where, self.temperature)).square()
        return weighted_mean(error / torch.log2(1 + wanted), where, weights)
