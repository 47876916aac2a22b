"""Losses that are linear in the labels, so that labels estimated from clicks give an unbiased estimate of the loss."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY
from typing import Literal

import torch
from torch import Tensor

from rankstruct.argument_names import refuse_groups_of_lists
from rankstruct.checks import check_numbers
from rankstruct.lists import Lists
from rankstruct.losses.base import HingeOptions, RankingLoss
from rankstruct.losses.listwise import approximate_ranks
from rankstruct.losses.reduction import Reduction
from rankstruct.oracles.registry import checked_reference_scores

__all__ = ["AdditiveRankLoss"]

_FIRST_SLOPE = 0.5 / math.log(2)  # of 1 - 1 / log2(1 + r) at r = 1


class AdditiveRankLoss(RankingLoss):
    """SVM PropRank and SVM PropDCG, for clicks: the sum over documents of weight x label x the cost of a bound of their rank.

        r_i = 1 + sum over j != i of max(0, 1 - (s_i - s_j) / margin)        at least the rank of document i
        cost    r - 1 (`"linear"`), or 1 - 1 / log2(1 + r) (`"log2"`, what DCG loses at rank r)

    The sum is over all documents of the list, j relevant or not, and is not divided by anything, so it is linear in the labels:
    with labels of the right expected values the loss has the right expected value, for all scores. These are

        examination     label 1 for a click and 0 otherwise, item weight 1 / propensity for a click and 1 otherwise; the expected
                        value is the loss whose labels are the probabilities that a document attracts a click
        trust bias      label (click - b) / a if the probability of a click is a x relevance + b, weight 1: the affine correction;
                        labels may be below 0 and then the loss is not convex, and has no lower bound
        several sessions   the mean of these labels

    The weight of a document without clicks changes nothing, except that weight 0 leaves it out as a competitor. Of the other
    losses of lists only `SoftmaxLoss` has this property, for lists with a document that cannot be clicked; see
    `rankstruct.losses.base`. The loss of a list that no ranking can get wrong may be above 0. O(n log n) time and O(n) memory on
    the CPU, O(n^2) elsewhere.

    Args:
        discount: `"log2"` or `"linear"`; the latter is convex.
        margin: the score difference above which a document no longer counts in the rank of another, above 0.
        reference: `"predicted"`; or `"ideal"`, for the tangent of the cost at rank 1, which is convex and an upper bound.
        reduction: `"mean"`, `"sum"` or `"none"`.

    With `reference_scores=` fixed the cost is its tangent at the ranks of these scores: convex for labels of 0 or more, an upper
    bound of the loss, and equal to it at these scores. Each round of the concave-convex procedure minimises one.

    Source: Joachims, Swaminathan, Schnabel, "Unbiased Learning-to-Rank with Biased Feedback", WSDM 2017; Agarwal, Takatsu,
    Zaitsev, Joachims, "A General Framework for Counterfactual Learning-to-Rank", SIGIR 2019; Vardasbi, Oosterhuis, de Rijke,
    "When Inverse Propensity Scoring does not Work", CIKM 2020 (the affine correction).

    >>> scores, clicks = torch.tensor([0.5, 0.0, 2.0]), torch.tensor([0.0, 1.0, 0.0])
    >>> weights = torch.tensor([1.0, 2.0, 1.0])                        # the click was at a rank that half of the users examine
    >>> AdditiveRankLoss("linear")(scores, clicks, item_weights=weights)                     # 2 x (1.5 + 3)
    tensor(9.)
    >>> AdditiveRankLoss()
    AdditiveRankLoss(discount=log2, margin=1.0, reference=predicted, reduction=mean)
    """

    discount: Literal["log2", "linear"] = "log2"
    _: KW_ONLY
    margin: float = 1.0
    reference: Literal["ideal", "predicted"] = "predicted"

    call_options = HingeOptions
    takes_item_weights = True
    takes_negative_labels = True

    def setup(self) -> None:
        """Check the margin."""
        check_numbers("> 0", margin=self.margin)

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether the loss is a convex function of the scores, for labels of 0 or more."""
        return self.discount == "linear" or self.reference == "ideal"

    @property
    def takes_reference_scores(self) -> bool:  # type: ignore[override]
        """Whether `reference_scores=` can fix the tangent."""
        return not self.convex

    def of_lists(self, scores: Tensor, lists: Lists, reduction: Reduction) -> Tensor:
        """The reduced loss."""
        if lists.offsets is None:
            refuse_groups_of_lists(lists.diversity_groups, scores.shape[:-1])
        if lists.reference_scores is not None:
            if self.convex:
                raise ValueError(
                    f"{self!r} does not depend on reference_scores; they need discount='log2' and reference='predicted'"
                )
            lists = lists._replace(reference_scores=checked_reference_scores(lists.reference_scores, scores))
        return self._by_torch(scores, lists, reduction)

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        where: Tensor,
        weights: Tensor | None = None,
        reference_scores: Tensor | None = None,
    ) -> Tensor:
        """One value per list."""
        gains = torch.where(where, labels if weights is None else labels * weights, 0.0).double()
        behind = self._behind(scores, where, gains)
        if self.convex:
            costs = behind if self.discount == "linear" else _FIRST_SLOPE * behind
        elif reference_scores is None:
            costs = _cost(behind)
        else:
            fixed = self._behind(reference_scores, where, gains)
            costs = _cost(fixed) + _slope(fixed) * (behind - fixed)
        return torch.where(gains != 0, gains * costs, 0.0).sum(-1).to(scores.dtype)

    def _behind(self, scores: Tensor, where: Tensor, gains: Tensor) -> Tensor:
        """The bound of the rank, minus 1."""
        found = approximate_ranks(scores, where, self.margin, gains != 0, ranks="hinge")
        return (found.double() - 1).clamp(min=0)


def _cost(behind: Tensor) -> Tensor:
    return 1 - 1 / torch.log2(2 + behind)


def _slope(behind: Tensor) -> Tensor:
    """The derivative of `_cost`."""
    return 1 / ((2 + behind) * math.log(2) * torch.log2(2 + behind).square())
