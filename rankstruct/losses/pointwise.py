"""Pointwise losses: every document by itself, against its own label.

Unlike the losses that compare documents, these count every real document, also those of a list whose labels are all equal,
and they change when all scores of a list are shifted; but not `list_ordinal_loss`, whose thresholds shift with the scores.
The value of a list is the mean over its real documents.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack

from rankstruct.lists import check_tensor, refuse
from rankstruct.losses.base import (
    TARGETS,
    ListOptions,
    RankingLoss,
    Reduction,
    Target,
    check_choice,
    check_positive,
    list_loss,
    target_of,
    weighted_mean,
)
from rankstruct.measures.ranked import is_relevant

__all__ = [
    "ClassificationLoss",
    "ListOrdinalLoss",
    "OrdinalLoss",
    "SquaredLoss",
    "classification_loss",
    "list_ordinal_loss",
    "ordinal_loss",
    "squared_loss",
]

Balance = Literal["none", "lists"]
Surrogate = Literal["logistic", "hinge"]
BALANCES, SURROGATES = get_args(Balance), get_args(Surrogate)


def squared_loss(scores: Tensor, labels: Tensor, *, target: Target = "grade", **lists: Unpack[ListOptions]) -> Tensor:
    """Squared error of the scores as predictions of the labels: the mean of (s_i - t_i)^2 over the documents of a list.

    A regression: labels may be any numbers, such as standardised ratings or the scores of a teacher, and padding has to be in
    `where`: labels of -100, which other libraries pad with, are warned of where no other is below 0. With target `"gain"` they
    are grades, 0 or more. On the gains this is consistent for DCG, which no convex hinge of it is.

    Args:
        scores, labels, where, offsets, weights, item_weights, reduction: the list contract of `rankstruct.losses.base`.
        target: what is predicted: `"grade"`, t = y; `"gain"`, t = 2^y - 1.

    Source: Cossock and Zhang, "Subset Ranking Using Regression", COLT 2006.

    >>> squared_loss(torch.tensor([2.0, 0.5, 0.0]), torch.tensor([2, 1, 0]), target="gain")
    tensor(0.4167)
    """
    check_choice("target", target, TARGETS)

    def per_list(scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        return weighted_mean((scores - target_of(labels, target).to(scores.dtype)).square(), where, weights)

    return list_loss(per_list, scores, labels, signed=target == "grade", **lists)


class SquaredLoss(RankingLoss):
    """`squared_loss` as a module; see there for the arguments, the errors and the source.

    >>> SquaredLoss(target="gain")
    SquaredLoss(target=gain, reduction=mean)
    """

    function = staticmethod(squared_loss)
    convex = True

    def __init__(self, target: Target = "grade", *, reduction: Reduction = "mean") -> None:
        check_choice("target", target, TARGETS)
        super().__init__(reduction, target=target)

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor:
        """Of the loss of each list, `[documents]`: 2 over the length of the list, or by item weights."""
        return 2 * _shares(scores, offsets, item_weights)


def classification_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    min_relevant: float | None = None,
    balance: Balance = "none",
    relevant_weight: float = 1.0,
    margin: float = 1.0,
    threshold: float = 0.0,
    **lists: Unpack[ListOptions],
) -> Tensor:
    """Classification hinge (SVMacc): is a document relevant? The mean of c_i max(0, margin - t_i (s_i - threshold)).

    t_i is 1 for a relevant document and -1 for another. A relevant one weighs c_i = `relevant_weight`, another 1: SVMacc2 is
    the hinge with the data's number of irrelevant documents over that of relevant ones. With balance `"lists"` both kinds
    of each list have the same total weight instead, whatever their numbers.

    Args:
        scores, labels, where, offsets, weights, item_weights, reduction: the list contract of `rankstruct.losses.base`.
        min_relevant: the lowest grade that counts as relevant; None for every label above 0.
        balance: `"none"`; or `"lists"`, the average of the means over the relevant and over the irrelevant documents, or
            the mean over what there is in a list that has only one kind.
        relevant_weight: what a relevant document weighs, above 0; 1 with balance `"lists"`.
        margin: how far from the threshold a score costs nothing, above 0.
        threshold: the score that parts relevant from irrelevant.

    Source: SVMacc and SVMacc2 are the baselines of Yue, Finley, Radlinski, Joachims, SIGIR 2007, section 5.2.

    >>> scores, labels = torch.tensor([0.5, 0.0, -2.0, -3.0]), torch.tensor([1, 0, 0, 0])
    >>> classification_loss(scores, labels), classification_loss(scores, labels, balance="lists")
    (tensor(0.3750), tensor(0.4167))
    """
    _check_classification(balance, relevant_weight, margin)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not math.isfinite(threshold):
        raise ValueError(f"threshold must be a finite number, got {threshold!r}")

    def per_list(scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        relevant = is_relevant(labels, min_relevant)
        hinge = torch.relu(margin - torch.where(relevant, 1.0, -1.0) * (scores - threshold))
        if balance == "none":
            return weighted_mean(torch.where(relevant, relevant_weight, 1.0) * hinge, where, weights)
        both = where & relevant, where & ~relevant
        kinds = sum(each.any(-1).to(hinge) for each in both)
        return sum(weighted_mean(hinge, each, weights) for each in both) / kinds.clamp(min=1)

    signed = min_relevant is not None and min_relevant <= 0
    return list_loss(per_list, scores, labels, signed=signed, **lists)


class ClassificationLoss(RankingLoss):
    """`classification_loss` (SVMacc, SVMacc2) as a module; see there for the errors and the source.

    Args:
        min_relevant: the lowest grade that counts as relevant; None for every label above 0.
        balance: `"none"`, or `"lists"` for the same weight of both kinds in each list.
        relevant_weight: what a relevant document weighs.
        margin: how far from the threshold a score costs nothing.
        threshold: the score that parts relevant from irrelevant.
        reduction: `"mean"`, `"sum"` or `"none"`.

    >>> loss = ClassificationLoss(relevant_weight=2.0)
    >>> loss(torch.tensor([[0.5, 0.0]]), torch.tensor([[1, 0]]))
    tensor(1.)
    """

    function = staticmethod(classification_loss)
    convex = True

    def __init__(
        self,
        min_relevant: float | None = None,
        balance: Balance = "none",
        relevant_weight: float = 1.0,
        margin: float = 1.0,
        threshold: float = 0.0,
        *,
        reduction: Reduction = "mean",
    ) -> None:
        _check_classification(balance, relevant_weight, margin)
        super().__init__(
            reduction,
            min_relevant=min_relevant,
            balance=balance,
            relevant_weight=relevant_weight,
            margin=margin,
            threshold=threshold,
        )


def ordinal_loss(
    scores: Tensor,
    labels: Tensor,
    thresholds: Tensor,
    *,
    surrogate: Surrogate = "logistic",
    **lists: Unpack[ListOptions],
) -> Tensor:
    """Ordinal regression, all thresholds: each asks whether a document's grade is above it. The mean over documents of

        sum over k = 0, 1, ... of phi(t_ik (s_i - theta_k)),   t_ik = 1 if y_i > k and else -1

    with phi(z) = log(1 + exp(-z)) or max(0, 1 - z). All lists share the thresholds.

    Args:
        scores, labels, where, offsets, weights, item_weights, reduction: the list contract of `rankstruct.losses.base`; grades y
            from 0 to the number of thresholds.
        thresholds: theta `[grades - 1]`, ascending; theta_k parts the grades up to k from those above. They may need
            gradients.
        surrogate: phi, `"logistic"` or `"hinge"`.

    Raises:
        ValueError: on the CPU, a label below 0 or above the number of thresholds (on other devices its list costs NaN).

    Source: Rennie and Srebro, "Loss Functions for Preference Levels", IJCAI 2005 workshop (all-threshold losses); Chu and
    Keerthi, "New Approaches to Support Vector Ordinal Regression", ICML 2005 (hinge).

    >>> ordinal_loss(torch.tensor([2.0, 0.0]), torch.tensor([2, 0]), torch.tensor([-0.5, 0.5]), surrogate="hinge")
    tensor(1.)
    """
    check_choice("surrogate", surrogate, SURROGATES)
    check_tensor("thresholds", thresholds)
    if thresholds.dim() != 1:
        raise ValueError(f"thresholds must have shape [grades - 1], got {tuple(thresholds.shape)}")
    highest = thresholds.shape[0]

    def per_list(scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        labels = refuse(
            labels,
            where & ((labels < 0) | (labels > highest)),
            f"labels must be grades from 0 to {highest}, the number of thresholds (grades= less 1)",
        )
        grades = torch.arange(highest, device=labels.device)
        side = torch.where(labels.unsqueeze(-1) > grades, 1.0, -1.0)
        distance = side * (scores.unsqueeze(-1) - thresholds.to(scores)) + 0 * labels.unsqueeze(-1)  # NaN stays NaN
        each = torch.nn.functional.softplus(-distance) if surrogate == "logistic" else torch.relu(1 - distance)
        return weighted_mean(each.sum(-1), where, weights)

    return list_loss(per_list, scores, labels, **lists)


class OrdinalLoss(RankingLoss):
    """`ordinal_loss` with thresholds that are learned beside the scorer; see there for the errors and the sources.

    theta_0 is a parameter, and each next threshold is softplus(parameter) higher, so that they ascend whatever is learned.
    They start 1 apart, around 0. Give the optimizer the parameters of the loss too; `RankingModule` does.

    Args:
        grades: the number of grades, 0 to grades - 1; at least 2.
        surrogate: `"logistic"` or `"hinge"`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    >>> loss = OrdinalLoss(grades=3)
    >>> loss.thresholds()
    tensor([-0.5000,  0.5000], grad_fn=<CumsumBackward0>)
    """

    function = staticmethod(ordinal_loss)

    def __init__(self, grades: int, surrogate: Surrogate = "logistic", *, reduction: Reduction = "mean") -> None:
        check_choice("surrogate", surrogate, SURROGATES)
        _check_grades(grades)
        super().__init__(reduction, surrogate=surrogate)
        self.grades = grades
        self.first = torch.nn.Parameter(torch.tensor([1 - grades / 2]))
        self.steps = torch.nn.Parameter(torch.ones(grades - 2).expm1().log())  # softplus of it is 1

    def thresholds(self) -> Tensor:
        """theta, `[grades - 1]`, ascending."""
        return torch.cat([self.first, torch.nn.functional.softplus(self.steps)]).cumsum(0)

    @property
    def options(self) -> dict[str, Any]:
        """With the thresholds as they are now."""
        return {"thresholds": self.thresholds(), "surrogate": self.surrogate}

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor | None:
        """Of the loss of each list, `[documents]`; None of the hinge."""
        if self.surrogate == "hinge":
            return None
        above = torch.sigmoid(scores.unsqueeze(-1) - self.thresholds().detach().to(scores))
        return (above * (1 - above)).sum(-1) * _shares(scores, offsets, item_weights)

    def extra_repr(self) -> str:
        """The number of grades, the surrogate and the reduction."""
        return f"grades={self.grades}, surrogate={self.surrogate}, reduction={self.reduction}"


def list_ordinal_loss(scores: Tensor, labels: Tensor, *, grades: int = 5, **lists: Unpack[ListOptions]) -> Tensor:
    """Ordinal hinge (all thresholds) with the best thresholds of each list, as maximum-margin matrix factorisation has them:

        1/n min over theta of sum over documents i and k = 0, ..., grades - 2 of max(0, 1 - t_ik (s_i - theta_k))

    with t_ik = 1 if y_i > k and else -1. Each theta_k is found in closed form, so that there is nothing to learn beside the
    scorer, also for lists never seen; the value is a convex function of the scores and does not change when all are shifted. A
    list whose labels are all equal costs 0. Item weights weigh the documents, also where thresholds are sought.

    Args:
        scores, labels, where, offsets, weights, item_weights, reduction: the list contract of `rankstruct.losses.base`; grades y
            from 0 to `grades` - 1.
        grades: the number of grades, at least 2.

    Raises:
        ValueError: too few grades; on the CPU, a label below 0 or above `grades` - 1 (on other devices its list costs NaN).

    Source: Rennie and Srebro, "Fast Maximum Margin Matrix Factorization for Collaborative Prediction", ICML 2005, where a list
    is a user: thresholds of each user that nothing penalises.

    >>> list_ordinal_loss(torch.tensor([9.0, 7.0, 8.0]), torch.tensor([1, 0, 0]), grades=2)
    tensor(0.3333)
    """
    _check_grades(grades)

    def per_list(scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        labels = refuse(
            labels,
            where & ((labels < 0) | (labels >= grades)),
            f"labels must be grades from 0 to {grades - 1} (grades=)",
        ).unsqueeze(-2)
        low = labels <= torch.arange(grades - 1, device=labels.device).unsqueeze(-1)
        kinks = scores.unsqueeze(-2) + torch.where(low, 1.0, -1.0).to(scores)  # of theta_k: [lists, grades - 1, size]
        mass = where.to(scores) if weights is None else torch.where(where, weights.to(scores), 0.0)
        # The slope starts at -mass of the low, and each kink adds its own mass: those that lie below the best theta.
        still = torch.where(where.unsqueeze(-2), kinks.detach(), 0.0)
        below = _lightest(still, where.unsqueeze(-2), mass.unsqueeze(-2), low)
        thetas = torch.where(below > 0, still, still.amin(-1, keepdim=True)).amax(-1, keepdim=True)
        each = (low.to(scores) - below) * (kinks - thetas) + 0 * labels  # no term is below 0, and NaN stays NaN
        return weighted_mean(each.sum(-2), where, weights)

    return list_loss(per_list, scores, labels, **lists)


def _lightest(kinks: Tensor, where: Tensor, mass: Tensor, low: Tensor) -> Tensor:
    """The share of each document, 0 to 1, in the least kinks that together have the mass of the low documents."""
    order = torch.where(where, kinks, torch.inf).argsort(dim=-1, stable=True)
    sizes = mass.expand_as(kinks).gather(-1, order)
    room = (mass * low).sum(-1, keepdim=True) - (sizes.cumsum(-1) - sizes)
    share = (room / torch.where(sizes > 0, sizes, 1.0)).clamp(0, 1)
    return torch.zeros_like(kinks).scatter(-1, order, share)


class ListOrdinalLoss(RankingLoss):
    """`list_ordinal_loss` (the loss of MMMF) as a module; see there for the errors and the source.

    Args:
        grades: the number of grades, 0 to grades - 1.
        reduction: `"mean"`, `"sum"` or `"none"`.

    >>> ListOrdinalLoss(grades=3)
    ListOrdinalLoss(grades=3, reduction=mean)
    """

    function = staticmethod(list_ordinal_loss)
    convex = True

    def __init__(self, grades: int = 5, *, reduction: Reduction = "mean") -> None:
        _check_grades(grades)
        super().__init__(reduction, grades=grades)


_MOST_GRADES = 2**20


def _check_grades(grades: int) -> None:
    if isinstance(grades, bool) or not isinstance(grades, int) or grades < 2:
        raise ValueError(f"grades must be a whole number of at least 2, got {grades!r}")
    if grades > _MOST_GRADES:
        raise ValueError(f"grades must be at most {_MOST_GRADES}, of which each has a threshold")


def _check_classification(balance: str, relevant_weight: float, margin: float) -> None:
    check_choice("balance", balance, BALANCES)
    check_positive("relevant_weight", relevant_weight)
    check_positive("margin", margin)
    if balance == "lists" and relevant_weight != 1:
        raise ValueError(f"balance='lists' sets the weights itself; leave relevant_weight at 1, got {relevant_weight}")


def _shares(scores: Tensor, offsets: Tensor, item_weights: Tensor | None) -> Tensor:
    """What a document counts in the mean over its list, `[documents]`, of the dtype of the scores."""
    weights = torch.ones_like(scores) if item_weights is None else item_weights.to(scores.dtype)
    lengths = offsets.diff()
    numbers = torch.arange(len(lengths)).repeat_interleave(lengths)
    total = weights.new_zeros(len(lengths)).index_add(0, numbers, weights)[numbers]
    return weights / torch.where(total > 0, total, 1.0)
