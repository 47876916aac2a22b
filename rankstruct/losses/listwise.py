"""Listwise losses: probabilities of rankings, and smoothed ranks.

A list that no ranking can get wrong (one document, equal labels or gains, all padding) costs exactly 0 and has zero gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Unpack

from rankstruct.losses.base import (
    TARGETS,
    ListOptions,
    RankingLoss,
    Reduction,
    Target,
    check_choice,
    check_positive,
    differs,
    document_values,
    list_loss,
    normalized_gains,
    normalized_measure,
    target_of,
)
from rankstruct.measures import DiscountedGain, Measure

__all__ = ["ApproxNDCGLoss", "ListMLELoss", "ListNetLoss", "approx_ndcg_loss", "listmle_loss", "listnet_loss"]


def listnet_loss(scores: Tensor, labels: Tensor, *, target: Target = "grade", **lists: Unpack[ListOptions]) -> Tensor:
    """Top-one cross entropy (ListNet): - sum_i p_i log softmax(s)_i with p the softmax of the labels or of the gains.

    Its least value is the entropy of p, not 0; only a list whose labels are all equal is set to 0. O(n).

    Args:
        scores, labels, where, offsets, weights, reduction: the list contract of `rankstruct.losses.base`.
        target: p is the softmax of `"grade"`, y, or of `"gain"`, 2^y - 1.

    Source: Cao, Qin, Liu, Tsai, Li, "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007.

    >>> listnet_loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(1.7937)
    """
    check_choice("target", target, TARGETS)

    def per_list(scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
        nothing = torch.finfo(scores.dtype).min  # not -inf, so that a list all padding stays finite
        p = torch.where(where, target_of(labels, target), nothing).softmax(-1).to(scores.dtype)
        log_q = torch.where(where, scores, nothing).log_softmax(-1)
        return torch.where(differs(labels, where), -torch.where(where, p * log_q, 0.0).sum(-1), 0.0)

    return list_loss(per_list, scores, labels, **lists)


class ListNetLoss(RankingLoss):
    """`listnet_loss` as a module; see there for the arguments, the errors and the source.

    >>> ListNetLoss()
    ListNetLoss(target=grade, reduction=mean)
    """

    function = staticmethod(listnet_loss)
    convex = True

    def __init__(self, target: Target = "grade", *, reduction: Reduction = "mean") -> None:
        check_choice("target", target, TARGETS)
        super().__init__(reduction, target=target)

    def second_derivatives(self, scores: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
        """Of the loss of each list, `[documents]`: q (1 - q)."""

        def per_list(scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
            q = torch.where(where, scores, torch.finfo(scores.dtype).min).softmax(-1)
            return torch.where(differs(labels, where).unsqueeze(-1), q * (1 - q), 0.0)

        return document_values(per_list, scores, labels, offsets)


def listmle_loss(scores: Tensor, labels: Tensor, **lists: Unpack[ListOptions]) -> Tensor:
    """Likelihood of the ranking by label (ListMLE): the sum over ranks r of log(sum over q >= r of exp(s_q)) - s_r.

    Documents with equal labels stand in the order of their current scores, and of the input where those are equal too. That
    is the likeliest of all rankings that the labels allow, so the loss does not depend on the order of the input. O(n log n).

    Args:
        scores, labels, where, offsets, weights, reduction: the list contract of `rankstruct.losses.base`.

    Source: Xia, Liu, Wang, Zhang, Li, "Listwise Approach to Learning to Rank: Theory and Algorithm", ICML 2008.

    >>> listmle_loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(3.9333)
    """

    def per_list(scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
        _, ranked, real = _ranked_by_label(scores, labels, where)
        rest = ranked.flip(-1).logcumsumexp(-1).flip(-1)
        return torch.where(differs(labels, where), torch.where(real, rest - ranked, 0.0).sum(-1), 0.0)

    return list_loss(per_list, scores, labels, **lists)


def _ranked_by_label(scores: Tensor, labels: Tensor, where: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The order by label and then by score, the scores in it less the highest, and which of them are real."""
    by_score = torch.where(where, scores.detach(), -torch.inf).argsort(dim=-1, descending=True, stable=True)
    graded = torch.where(where, labels, -torch.inf).gather(-1, by_score)
    order = by_score.gather(-1, graded.argsort(dim=-1, descending=True, stable=True))  # padding last
    # Relative to the highest, which changes nothing and keeps the digits of what is close to it.
    ranked = scores.gather(-1, order)
    real = where.gather(-1, order)
    ranked = ranked - torch.where(real, ranked.detach(), torch.finfo(scores.dtype).min).amax(-1, keepdim=True)
    # No more than the dtype can hold below it: what is that far behind adds nothing to a sum, but inf - inf is NaN.
    ranked = torch.where(real, ranked, -torch.inf).clamp(min=torch.finfo(scores.dtype).min)
    return order, ranked, real


class ListMLELoss(RankingLoss):
    """`listmle_loss` as a module; see there for the arguments, ties, the errors and the source.

    >>> ListMLELoss()
    ListMLELoss(reduction=mean)
    """

    function = staticmethod(listmle_loss)

    def __init__(self, *, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)

    def second_derivatives(self, scores: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
        """Of the loss of each list, `[documents]`: the sum of q (1 - q) over the ranks at which the document is left."""

        def per_list(scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
            order, ranked, real = _ranked_by_label(scores, labels, where)
            rest = ranked.flip(-1).logcumsumexp(-1).flip(-1)
            sums = [torch.exp(power * ranked + (-power * rest).logcumsumexp(-1)) for power in (1, 2)]  # of q and of q^2
            each = torch.where(real & differs(labels, where).unsqueeze(-1), (sums[0] - sums[1]).clamp(min=0.0), 0.0)
            return torch.zeros_like(each).scatter(-1, order, each)

        return document_values(per_list, scores, labels, offsets)


def approx_ndcg_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    measure: str | Measure = "nDCG",
    temperature: float = 0.1,
    **lists: Unpack[ListOptions],
) -> Tensor:
    """1 - nDCG at smoothed ranks (ApproxNDCG): r_i = 1 + sum over j != i of sigmoid((s_j - s_i) / temperature).

    A cut-off k multiplies each document's discount by sigmoid((k + 1/2 - r_i) / temperature). As the temperature goes to 0
    the loss goes to 1 - nDCG where no scores are equal. The gradient vanishes where all differences are large beside the
    temperature. O(n^2) time and memory.

    Args:
        scores, labels, where, offsets, weights, reduction: the list contract of `rankstruct.losses.base`.
        measure: nDCG with any options and cut-off, or another normalised discounted gain, whose discount is taken at ranks
            between the whole ones and has to be smooth.
        temperature: above 0, in units of the scores.

    Source: Qin, Liu, Li, "A General Approximation Framework for Direct Optimization of Information Retrieval Measures",
    Information Retrieval 2010.

    >>> approx_ndcg_loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(0.3419)
    """
    chosen = _check_approx(measure, temperature)

    def per_list(scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
        gains, can_err = normalized_gains(chosen, labels, where)
        ahead = ((scores.unsqueeze(-2) - scores.unsqueeze(-1)) / temperature).sigmoid()
        # A document is half ahead of itself.
        ranks = 0.5 + torch.where(where.unsqueeze(-2), ahead, 0.0).sum(-1)
        discounts = chosen.discounts(ranks.double())
        if chosen.cutoff is not None:
            discounts = discounts * ((chosen.cutoff + 0.5 - ranks) / temperature).sigmoid()
        value = 1 - torch.where(where, gains * discounts, 0.0).sum(-1)
        return torch.where(can_err, value, 0.0).to(scores.dtype)

    return list_loss(per_list, scores, labels, signed=chosen.takes_negative_labels, **lists)


class ApproxNDCGLoss(RankingLoss):
    """`approx_ndcg_loss` as a module; see there for the arguments, the errors and the source.

    >>> ApproxNDCGLoss("nDCG@10")
    ApproxNDCGLoss(nDCG@10, temperature=0.1, reduction=mean)
    """

    function = staticmethod(approx_ndcg_loss)

    def __init__(
        self, measure: str | Measure = "nDCG", temperature: float = 0.1, *, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction, measure=_check_approx(measure, temperature), temperature=temperature)


def _check_approx(measure: str | Measure, temperature: float) -> DiscountedGain:
    check_positive("temperature", temperature)
    return normalized_measure(measure, "ApproxNDCGLoss")
