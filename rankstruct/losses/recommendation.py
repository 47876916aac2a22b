"""Losses from recommendation: a list is a user, the relevant documents are the user's items, all others are irrelevant.

Labels are 0 for irrelevant documents; a relevant one has the share p_i = y_i / sum(y), so labels may be counts. With item weights
p_i is proportional to their product with the label. Lists are whole catalogues or samples of them. Quantiles and ranks, which
the papers estimate by sampling, are those of the list, so they are exact for a whole catalogue.

A list without relevant or without irrelevant documents has loss exactly 0 and zero gradient.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankstruct.checks import check_numbers
from rankstruct.losses.autograd import with_curvature
from rankstruct.losses.base import RankingLoss, takes_loops
from rankstruct.losses.reduction import first_share, relative
from rankstruct.measures.base import check_cutoff

__all__ = [
    "BilateralSoftmaxLoss",
    "LowerLeftAUCLoss",
    "PairwiseSoftmaxLoss",
    "TopKSoftmaxLoss",
    "WARPLoss",
]

_PAIRS = 2**18  # pairs of documents per block: what fits in the caches


class _RecommendationLoss(RankingLoss):
    """Base class: relevant documents against irrelevant ones."""

    takes_item_weights = True

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        each = where.to(scores.dtype) if weights is None else relative(weights)
        p, q = relative(labels) * each, torch.where(labels > 0, 0.0, each)
        counts = (p > 0).any(-1) & (q > 0).any(-1)
        p, q = (share / torch.where(counts, share.sum(-1), 1.0).unsqueeze(-1) for share in (p, q))
        highest = torch.where(where, scores.detach(), -torch.inf).amax(-1, keepdim=True)
        # Relative to the highest, which keeps the precision of scores close to it.
        low = torch.where(where, scores - highest, 0.0).clamp(min=torch.finfo(scores.dtype).min / 4)
        return torch.where(counts, self.compare(low, where, p, q), 0.0)

    def compare(self, scores: Tensor, where: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """One value per list, from scores relative to the highest and the shares p of the relevant and q of the irrelevant
        documents, which add up to 1 each.
        """
        raise NotImplementedError


class TopKSoftmaxLoss(_RecommendationLoss):
    """Softmax cross entropy of the relevant documents near or above rank k (SL@K):

        sum_i p_i sigmoid((s_i - b) / weight_temperature) log(sum_j exp((s_j - s_i) / temperature))

    with b the k-th highest score of the list, the quantile that decides which documents are recommended; the lowest score if the
    list has fewer. The gradient treats the sigmoids as constants, so it is not the gradient of the value; theirs would lower the
    scores of relevant documents, for lower weights. O(n log k).

    Args:
        k: the cut-off of the measure that matters, such as nDCG@k.
        temperature: of the softmax, above 0, in units of the scores.
        weight_temperature: of the weights, above 0, in units of the scores. As it grows, all weights tend to 1/2, so that k does
            not matter; if it is as small as the temperature, relevant documents far below rank k have no weight and are not
            learned. About four times the temperature was best on validation items of MovieLens 1M and Beauty.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Yang, Chen, Zhang, Wu, Sun, Feng, Chen, Wang, "Breaking the Top-K Barrier: Advancing Top-K Ranking Metrics
    Optimization in Recommender Systems", KDD 2025.

    >>> TopKSoftmaxLoss(k=2)(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([1, 1, 0]))
    tensor(0.9922)
    """

    k: int = 20
    temperature: float = 1.0
    weight_temperature: float = 4.0

    def setup(self) -> None:
        """Check the numbers."""
        check_cutoff(self.k, "TopKSoftmaxLoss")
        check_numbers("> 0", temperature=self.temperature)
        check_numbers("> 0", weight_temperature=self.weight_temperature)

    def compare(self, scores: Tensor, where: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """One value per list."""
        highest = torch.where(where, scores.detach(), -torch.inf).topk(min(self.k, scores.shape[-1]), dim=-1).values
        last = (where.sum(-1, keepdim=True) - 1).clamp(min=0, max=highest.shape[-1] - 1)
        weight = ((scores.detach() - highest.gather(-1, last)) / self.weight_temperature).sigmoid()
        nothing = torch.finfo(scores.dtype).min
        log_softmax = torch.where(where, scores / self.temperature, nothing).log_softmax(-1)
        return -torch.where(p > 0, p * weight * log_softmax, 0.0).sum(-1)


class PairwiseSoftmaxLoss(_RecommendationLoss):
    """Softmax loss with another activation of the pairs' differences than exp (PSL), a tighter bound of DCG:

        sum_i p_i log(sum_j a((s_j - s_i) / scale) ^ (1 / temperature))

    over all documents j, with a(x) = 1 + tanh(x), 1 + arctan(x) or 1 + x, and 0 where that is negative. With a(x) = exp(x) it is
    `SoftmaxLoss("share", scale * temperature)`. With r relevant documents O(r n) time and O(n) memory on the CPU; O(n^2) of both
    for higher-order derivatives and on other devices, where lists should be samples of a large catalogue.

    Args:
        activation: `"tanh"`, `"atan"` or `"relu"`.
        temperature: of the softmax, above 0, without a unit.
        scale: divides the scores, above 0. The activations are bounds for differences between -1 and 1: for cosines use 2.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Yang, Chen, Xin, Zhou, Hu, Feng, Chen, Wang, "PSL: Rethinking and Improving Softmax Loss from Pairwise Perspective for
    Recommendation", NeurIPS 2024.

    >>> PairwiseSoftmaxLoss("relu", temperature=0.5)(torch.tensor([0.5, 0.0, 1.0]), torch.tensor([1, 0, 0]))
    tensor(1.2528)
    """

    activation: Literal["tanh", "atan", "relu"] = "tanh"
    temperature: float = 0.1
    scale: float = 1.0

    def setup(self) -> None:
        """Check the numbers."""
        check_numbers("> 0", temperature=self.temperature)
        check_numbers("> 0", scale=self.scale)

    def compare(self, scores: Tensor, where: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """One value per list."""
        if not takes_loops(scores):
            return self._all_pairs(scores, where, p)
        value, direction = self._by_blocks(scores.detach(), where, p)
        return with_curvature(scores, value, direction, None, lambda again: self._all_pairs(again, where, p))

    def _all_pairs(self, scores: Tensor, where: Tensor, p: Tensor) -> Tensor:
        logs = self._log((scores.unsqueeze(-2) - scores.unsqueeze(-1)) / self.scale)
        logs = torch.where(where.unsqueeze(-2), logs, torch.finfo(scores.dtype).min)
        return (p * logs.logsumexp(-1)).sum(-1)

    def _by_blocks(self, scores: Tensor, where: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Values and gradients, from the rows of the pairs whose first document is relevant."""
        shape, size, power = scores.shape, scores.shape[-1], 1 / self.temperature
        low = torch.where(where, scores, torch.finfo(scores.dtype).min / 4).reshape(-1, size)
        p, value, direction = p.reshape(-1, size), low.new_zeros(len(low)), torch.zeros_like(low)
        blocks = (each.split(max(1, _PAIRS // size)) for each in p.nonzero(as_tuple=True))
        for rows, columns in zip(*blocks, strict=True):
            share, given = p[rows, columns], low[rows]
            activated, slope = self._activated((given - given.gather(-1, columns.unsqueeze(-1))) / self.scale)
            highest = activated.amax(-1, keepdim=True)
            powers = (activated / highest) ** power
            total = powers.sum(-1)
            pull = powers.mul_(slope).mul_((share * power / self.scale / total).unsqueeze(-1))
            value.index_add_(0, rows, share * (total.log() + power * highest.squeeze(-1).log()))
            direction.index_add_(0, rows, pull)
            direction.index_put_((rows, columns), -pull.sum(-1), accumulate=True)
        return value.view(shape[:-1]), direction.view(shape)

    def _activated(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """a(x), and a'(x) / a(x), which is large but finite where a(x) is 0."""
        if self.activation == "tanh":  # 1 + tanh(x) = 2 sigmoid(2 x)
            activated = (2 * x).sigmoid_().mul_(2)
            return activated, 2 - activated
        activated = (1 + (x if self.activation == "relu" else x.atan())).clamp_(min=0)
        slope = 1 / activated.clamp(min=torch.finfo(x.dtype).tiny)
        return activated, slope if self.activation == "relu" else slope / (1 + x * x)

    def _log(self, x: Tensor) -> Tensor:
        """The logarithm of the activation, divided by the temperature; the lowest number for 0."""
        if self.activation == "tanh":  # 1 + tanh(x) = 2 sigmoid(2 x)
            return (math.log(2) - softplus(-2 * x)) / self.temperature
        activated = x if self.activation == "relu" else x.atan()
        logs = torch.where(activated > -1, activated, 0.0).log1p() / self.temperature
        return torch.where(activated > -1, logs, torch.finfo(x.dtype).min)


class BilateralSoftmaxLoss(_RecommendationLoss):
    """Soft maxima of the irrelevant and of the relevant scores (BSL), which makes it robust to noise in either kind of label:

        temperature log(sum_j q_j exp(s_j / temperature)) - t log(sum_i p_i exp(s_i / t)),  t = relevant_temperature

    over irrelevant documents j, whose shares q_j are equal unless they have item weights, and relevant i. As t grows, the second
    term tends to the mean of the relevant scores, as in the softmax loss. The loss may be negative. O(n).

    Args:
        temperature: of the irrelevant documents, above 0, in units of the scores.
        relevant_temperature: of the relevant documents; the lower, the less those of low scores matter.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Wu, Chen, Wu, Shi, Zhang, Wang, "BSL: Understanding and Improving Softmax Loss for Recommendation", ICDE 2024.

    >>> BilateralSoftmaxLoss()(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([1, 1, 0]))
    tensor(1.7191)
    """

    temperature: float = 1.0
    relevant_temperature: float = 1.0

    def setup(self) -> None:
        """Check the temperatures."""
        check_numbers("> 0", temperature=self.temperature)
        check_numbers("> 0", relevant_temperature=self.relevant_temperature)

    def compare(self, scores: Tensor, where: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """One value per list."""
        return _soft_maximum(scores, q, self.temperature) - _soft_maximum(scores, p, self.relevant_temperature)


def _soft_maximum(scores: Tensor, shares: Tensor, temperature: float) -> Tensor:
    logs = torch.where(shares > 0, shares, 1.0).log() + scores / temperature
    return temperature * torch.where(shares > 0, logs, torch.finfo(scores.dtype).min).logsumexp(-1)


class LowerLeftAUCLoss(_RecommendationLoss):
    """Squared surrogate of the lower-left partial ROC area (LLPAUC): the mean over pairs (i, j) of

        (margin - s_i + s_j)^2

    with i among the share `relevant` of the relevant documents with the highest scores and j among the share `irrelevant` of the
    irrelevant ones; the last document of a share counts fractionally, as do all those with its score, alike. The paper solves a
    minimax problem over batches to approximate that, for scores between 0 and 1; here the shares are exact, by sorting.
    O(n log n).

    Args:
        relevant: the share of the relevant documents (the true positive rate), above 0, at most 1.
        irrelevant: the share of the irrelevant documents (the false positive rate), above 0, at most 1.
        margin: the difference of the scores at which a pair has loss 0, above 0. As the loss is a square, larger differences cost
            something again, so bounded scores, such as sigmoids or cosines, suit it.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Shi, Wang, Feng, Zhang, Wang, Wu, He, "Lower-Left Partial AUC: An Effective and Efficient Optimization Metric for
    Recommendation", WWW 2024. `StructuredHingeLoss("pAUC(high=0.1)")` bounds the partial area of all relevant documents.

    >>> LowerLeftAUCLoss(0.5, 0.5)(torch.tensor([0.5, 0.0, 0.75, 0.25]), torch.tensor([1, 1, 0, 0]))
    tensor(1.5625)
    """

    relevant: float = 0.7
    irrelevant: float = 0.1
    margin: float = 1.0

    def setup(self) -> None:
        """Check the numbers."""
        check_numbers("> 0", margin=self.margin)
        for name in ("relevant", "irrelevant"):
            check_numbers("> 0 and <= 1", **{name: getattr(self, name)})

    def compare(self, scores: Tensor, where: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """One value per list, by means and variances."""
        descending, order = torch.where(where, scores.detach(), -torch.inf).sort(dim=-1, descending=True)
        ranked, value, means = scores.gather(-1, order), torch.zeros_like(scores[..., 0]), []
        for shares, kept in ((p, self.relevant), (q, self.irrelevant)):
            each = shares.gather(-1, order).double()
            chosen = (first_share(descending, each, kept) * each / kept).to(scores.dtype)
            mean = (chosen * ranked).sum(-1)
            value = value + (chosen * (ranked - mean.unsqueeze(-1)) ** 2).sum(-1)
            means.append(mean)
        return value + (self.margin - means[0] + means[1]) ** 2


class WARPLoss(_RecommendationLoss):
    """Hinge weighted by the rank of each relevant document (WARP, the loss of WSABIE):

        sum_i p_i (1 + 1/2 + ... + 1/r_i) / r_i  sum over irrelevant j of max(0, margin - s_i + s_j)

    with r_i the number of irrelevant documents j with s_j >= s_i - margin; no gradient flows through it. The paper samples until
    it finds such a j, to estimate r_i; on a list r_i is known, so nothing is sampled. With item weights the sum over j divided by
    r_i is a weighted mean. O(n log n).

    Args:
        margin: above 0.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Weston, Bengio, Usunier, "WSABIE: Scaling Up To Large Vocabulary Image Annotation", IJCAI 2011.

    >>> WARPLoss()(torch.tensor([0.5, 0.0, 2.0, 1.0]), torch.tensor([1, 0, 0, 0]))
    tensor(2.7500)
    """

    margin: float = 1.0

    def setup(self) -> None:
        """Check the margin."""
        check_numbers("> 0", margin=self.margin)

    def compare(self, scores: Tensor, where: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """One value per list, by sums over the highest irrelevant scores."""
        ascending, order = torch.where(q > 0, scores, -torch.inf).sort(dim=-1)
        first = torch.searchsorted(ascending.detach().contiguous(), (scores - self.margin).detach().contiguous())
        rank = scores.shape[-1] - first
        share = q.gather(-1, order).double()
        sums = [
            _from(share * terms, first) for terms in (torch.ones_like(share), torch.where(share > 0, ascending, 0.0))
        ]
        mean = (self.margin - scores) + torch.where(rank > 0, sums[1] / torch.where(rank > 0, sums[0], 1.0), 0.0)
        harmonic = (1 / torch.arange(1, scores.shape[-1] + 1, device=scores.device).double()).cumsum(0)
        weight = torch.where(rank > 0, harmonic[(rank - 1).clamp(min=0)], 0.0)
        return torch.where(p > 0, p * weight * mean, 0.0).sum(-1).to(scores.dtype)


def _from(values: Tensor, first: Tensor) -> Tensor:
    """The sum of the values from each place on, `[..., list_size]`; 0 from the end on."""
    sums = torch.nn.functional.pad(values.flip(-1), (1, 0)).cumsum(-1).flip(-1)
    return sums.gather(-1, first)
