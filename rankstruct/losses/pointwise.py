"""Pointwise losses: each document's score against its own label.

Unlike losses that compare documents, these count every real document, even in a list whose labels are all equal, and they change
if all scores of a list are shifted. `ListOrdinalLoss`, whose thresholds shift with the scores, is the exception. The value of a
list is the mean over its real documents.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankstruct.checks import check_numbers
from rankstruct.lists import refuse
from rankstruct.losses.base import RankingLoss
from rankstruct.losses.checks import check_grades
from rankstruct.losses.gains import Target, target_of
from rankstruct.losses.reduction import first_share, weighted_mean
from rankstruct.measures.ranked import is_relevant

__all__ = ["ClassificationLoss", "ListOrdinalLoss", "OrdinalLoss", "SquaredLoss"]


class SquaredLoss(RankingLoss):
    """Squared error of the scores as predictions of the labels: the mean of (s_i - t_i)^2 over the documents of a list.

    This is a regression: labels may be any numbers, such as standardised ratings or the scores of a teacher. Mask padding with
    `where`: labels of -100, which other libraries pad with, raise a warning if no other label is negative. With target `"gain"`
    labels are grades, 0 or more. On gains this loss is consistent for DCG, unlike any convex hinge.

    Args:
        target: the regression target: `"grade"`, t = y; `"gain"`, t = 2^y - 1.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Cossock and Zhang, "Subset Ranking Using Regression", COLT 2006.

    >>> loss = SquaredLoss(target="gain")
    >>> loss
    SquaredLoss(target=gain, reduction=mean)
    >>> loss(torch.tensor([2.0, 0.5, 0.0]), torch.tensor([2, 1, 0]))
    tensor(0.4167)
    """

    target: Target = "grade"
    convex = True
    takes_item_weights = True

    @property
    def takes_negative_labels(self) -> bool:  # type: ignore[override]
        """Whether labels may be any numbers, which they may unless the target is the gain."""
        return self.target == "grade"

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        wanted = target_of(labels, self.target).to(scores.dtype)
        return weighted_mean((scores - wanted).square(), where, weights)

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor:
        """The diagonal of the Hessian of each list's loss, `[documents]`: 2 over the list's length, or by item weights."""
        return 2 * _shares(scores, offsets, item_weights)


class ClassificationLoss(RankingLoss):
    """Classification hinge (SVMacc) for binary relevance: the mean of c_i max(0, margin - t_i (s_i - threshold)).

    t_i is 1 for a relevant document and -1 for an irrelevant one; c_i is `relevant_weight` and 1, respectively. For SVMacc2 set
    `relevant_weight` to the ratio of irrelevant to relevant documents in the data. With balance `"lists"`, both classes have the
    same total weight in each list instead.

    Args:
        min_relevant: the lowest grade that counts as relevant; None for every label above 0.
        balance: `"none"`; or `"lists"`, the average of the means over the relevant and the irrelevant documents, or the mean
            over all documents of a list with only one class.
        relevant_weight: weight of a relevant document, above 0; 1 with balance `"lists"`.
        margin: distance from the threshold at which a score has loss 0, above 0.
        threshold: the score that separates relevant from irrelevant.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: SVMacc and SVMacc2 are the baselines of Yue, Finley, Radlinski, Joachims, SIGIR 2007, section 5.2.

    >>> scores, labels = torch.tensor([0.5, 0.0, -2.0, -3.0]), torch.tensor([1, 0, 0, 0])
    >>> ClassificationLoss()(scores, labels), ClassificationLoss(balance="lists")(scores, labels)
    (tensor(0.3750), tensor(0.4167))
    >>> ClassificationLoss(relevant_weight=3.0)(scores, labels)                           # SVMacc2
    tensor(0.6250)
    """

    min_relevant: float | None = None
    balance: Literal["none", "lists"] = "none"
    relevant_weight: float = 1.0
    margin: float = 1.0
    threshold: float = 0.0
    convex = True
    takes_item_weights = True

    def setup(self) -> None:
        """Check the numbers."""
        check_numbers("> 0", relevant_weight=self.relevant_weight)
        check_numbers("> 0", margin=self.margin)
        check_numbers(threshold=self.threshold)
        if self.balance == "lists" and self.relevant_weight != 1:
            raise ValueError(
                f"balance='lists' sets the weights; leave relevant_weight at 1, got {self.relevant_weight}"
            )

    @property
    def takes_negative_labels(self) -> bool:  # type: ignore[override]
        """Whether `min_relevant` is 0 or less, so that labels may be negative."""
        return self.min_relevant is not None and self.min_relevant <= 0

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        relevant = is_relevant(labels, self.min_relevant)
        hinge = torch.relu(self.margin - torch.where(relevant, 1.0, -1.0) * (scores - self.threshold))
        if self.balance == "none":
            return weighted_mean(torch.where(relevant, self.relevant_weight, 1.0) * hinge, where, weights)
        both = where & relevant, where & ~relevant
        kinds = sum(each.any(-1).to(hinge) for each in both)
        return sum(weighted_mean(hinge, each, weights) for each in both) / kinds.clamp(min=1)


class OrdinalLoss(RankingLoss):
    """Ordinal regression (all thresholds): a binary loss for each threshold between grades. The mean over documents of

        sum over k = 0, 1, ... of phi(t_ik (s_i - theta_k)),   t_ik = 1 if y_i > k, otherwise -1

    with phi(z) = log(1 + exp(-z)) or max(0, 1 - z). Grades y are from 0 to the number of thresholds, which are shared by all
    lists and learned with the scorer: theta_0 is a parameter, and each further threshold is softplus(parameter) above the
    previous one, so they always ascend. They start 1 apart, centred at 0. Pass the parameters of the loss to the optimizer too,
    as `RankingModule` does.

    Args:
        grades: the number of grades, 0 to grades - 1; at least 2.
        surrogate: phi, `"logistic"` or `"hinge"`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: too few grades; in a call, on the CPU, a label below 0 or above the number of thresholds (on other devices
            the loss of its list is NaN).

    Source: Rennie and Srebro, "Loss Functions for Preference Levels", IJCAI 2005 workshop (all-threshold losses); Chu and
    Keerthi, "New Approaches to Support Vector Ordinal Regression", ICML 2005 (hinge).

    >>> loss = OrdinalLoss(grades=3, surrogate="hinge")
    >>> loss
    OrdinalLoss(grades=3, surrogate=hinge, reduction=mean)
    >>> loss.thresholds()
    tensor([-0.5000,  0.5000], grad_fn=<CumsumBackward0>)
    >>> loss(torch.tensor([2.0, 0.0]), torch.tensor([2, 0])).item()
    1.0
    """

    grades: int
    surrogate: Literal["logistic", "hinge"] = "logistic"
    takes_item_weights = True

    def setup(self) -> None:
        """Check the number of grades, and create the parameters."""
        check_grades(self.grades)
        self.first = torch.nn.Parameter(torch.tensor([1 - self.grades / 2]))
        self.steps = torch.nn.Parameter(torch.ones(self.grades - 2).expm1().log())  # softplus of it is 1

    def thresholds(self) -> Tensor:
        """The ascending thresholds theta, `[grades - 1]`; theta_k separates the grades up to k from those above."""
        return torch.cat([self.first, softplus(self.steps)]).cumsum(0)

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        thresholds = self.thresholds().to(scores)
        highest = thresholds.shape[0]
        labels = refuse(
            labels,
            where & ((labels < 0) | (labels > highest)),
            f"labels must be grades from 0 to {highest}, the number of thresholds (grades= minus 1)",
        )
        grades = torch.arange(highest, device=labels.device)
        side = torch.where(labels.unsqueeze(-1) > grades, 1.0, -1.0)
        distance = side * (scores.unsqueeze(-1) - thresholds) + 0 * labels.unsqueeze(-1)  # NaN stays NaN
        each = softplus(-distance) if self.surrogate == "logistic" else torch.relu(1 - distance)
        return weighted_mean(each.sum(-1), where, weights)

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor | None:
        """The diagonal of the Hessian of each list's loss, `[documents]`; None for the hinge."""
        if self.surrogate == "hinge":
            return None
        above = torch.sigmoid(scores.unsqueeze(-1) - self.thresholds().detach().to(scores))
        return (above * (1 - above)).sum(-1) * _shares(scores, offsets, item_weights)


class ListOrdinalLoss(RankingLoss):
    """Ordinal hinge (all thresholds) with optimal thresholds for each list, as in maximum-margin matrix factorisation:

        1/n min over theta of sum over documents i and k = 0, ..., grades - 2 of max(0, 1 - t_ik (s_i - theta_k))

    with t_ik = 1 if y_i > k, otherwise -1. Each theta_k is computed in closed form, for unseen lists too, so only the scorer is
    learned; the value is a convex function of the scores and invariant to shifting all of them. A list whose labels are all equal
    has loss 0. Item weights apply to the mean and to the optimal thresholds.

    Args:
        grades: the number of grades, 0 to grades - 1; at least 2.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: too few grades; in a call, on the CPU, a label below 0 or above `grades` - 1 (on other devices the loss of its
            list is NaN).

    Source: Rennie and Srebro, "Fast Maximum Margin Matrix Factorization for Collaborative Prediction", ICML 2005, where a list
    is a user: per-user thresholds without regularisation.

    >>> loss = ListOrdinalLoss(grades=2)
    >>> loss
    ListOrdinalLoss(grades=2, reduction=mean)
    >>> loss(torch.tensor([9.0, 7.0, 8.0]), torch.tensor([1, 0, 0]))
    tensor(0.3333)
    """

    grades: int = 5
    convex = True
    takes_item_weights = True

    def setup(self) -> None:
        """Check the number of grades."""
        check_grades(self.grades)

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        labels = refuse(
            labels,
            where & ((labels < 0) | (labels >= self.grades)),
            f"labels must be grades from 0 to {self.grades - 1} (grades=)",
        ).unsqueeze(-2)
        low = labels <= torch.arange(self.grades - 1, device=labels.device).unsqueeze(-1)
        kinks = scores.unsqueeze(-2) + torch.where(low, 1.0, -1.0).to(scores)  # of theta_k: [lists, grades - 1, size]
        mass = where.to(scores) if weights is None else torch.where(where, weights.to(scores), 0.0)
        # The slope starts at minus the mass of the low documents, and each kink below theta adds its own mass.
        real, mass = where.unsqueeze(-2), mass.unsqueeze(-2)
        still = torch.where(real, kinks.detach(), 0.0)
        ascending, order = torch.where(real, still, torch.inf).contiguous().sort(dim=-1)
        masses = mass.expand_as(kinks).gather(-1, order)
        below = first_share(ascending, masses, (mass * low).sum(-1, keepdim=True))
        below = torch.zeros_like(below).scatter(-1, order, below)
        thetas = torch.where(real & (below > 0), still, still.amin(-1, keepdim=True)).amax(-1, keepdim=True)
        each = (low.to(scores) - below) * (kinks - thetas) + 0 * labels  # no term is below 0, and NaN stays NaN
        return weighted_mean(each.sum(-2), where, weights)


def _shares(scores: Tensor, offsets: Tensor, item_weights: Tensor | None) -> Tensor:
    """The weight of each document in the mean over its list, `[documents]`, in the dtype of the scores."""
    weights = torch.ones_like(scores) if item_weights is None else item_weights.to(scores.dtype)
    lengths = offsets.diff()
    numbers = torch.arange(len(lengths)).repeat_interleave(lengths)
    total = weights.new_zeros(len(lengths)).index_add(0, numbers, weights)[numbers]
    return weights / torch.where(total > 0, total, 1.0)
