"""Losses that rank and calibrate: the sigmoid of a score is the probability that its document is relevant.

Both add a ranking loss to the binary cross entropy such that the two do not pull apart. Like pointwise losses they count every
real document, even in a list whose labels are all equal, and change if all scores of a list are shifted. Estimators need
`drop_empty=False`: without the lists in which nothing is relevant, probabilities are too high.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from rankstruct.checks import check_numbers
from rankstruct.lists import refuse
from rankstruct.losses.base import RankingLoss
from rankstruct.losses.checks import check_grades
from rankstruct.losses.gains import Target, target_of
from rankstruct.losses.reduction import weighted_mean
from rankstruct.measures.ranked import is_relevant

__all__ = ["JRCLoss", "RCRLoss"]


class _CalibratedLoss(RankingLoss):
    """What the two losses share: their options, the target t in [0, 1], and the cross entropy of its documents."""

    ranking: float = 0.5
    grades: int | None = None
    target: Target = "grade"
    min_relevant: float | None = None
    takes_item_weights = True

    def setup(self) -> None:
        """Check the numbers."""
        check_numbers(">= 0 and <= 1", ranking=self.ranking)
        if self.grades is not None:
            check_grades(self.grades)
        if self.grades is not None and self.min_relevant is not None:
            raise ValueError("min_relevant is for binary relevance, and grades= for graded; pass one of them")

    @property
    def takes_negative_labels(self) -> bool:  # type: ignore[override]
        """Whether `min_relevant` is 0 or less, so that labels may be negative."""
        return self.min_relevant is not None and self.min_relevant <= 0

    def targets(self, labels: Tensor, where: Tensor) -> Tensor:
        """Targets t, `[..., list_size]`: 1 for a relevant document and 0 for another, or the share of the highest grade."""
        if self.grades is None:
            return is_relevant(labels, self.min_relevant).to(labels)
        highest = self.grades - 1
        labels = refuse(
            labels, where & (labels > highest), f"labels must be grades from 0 to {highest} (grades= minus 1)"
        )
        return (target_of(labels, self.target) / target_of(labels.new_tensor(highest), self.target)).to(labels)


class RCRLoss(_CalibratedLoss):
    """Regression-compatible ranking (RCR): binary cross entropy, and a softmax loss over the same probabilities p = sigmoid(s).

        (1 - r) 1/n sum_i (- t_i log p_i - (1 - t_i) log(1 - p_i))  -  r sum_i t_i / T log(p_i / sum_j p_j),   T = sum_i t_i

    Both parts are least at p_i = E[t_i] (the second but for the division by T, and up to a common factor), while the softmax of
    the scores themselves is not. The second is 0 for a list without relevant documents. The paper is about binary relevance. For
    `grades`, t is the grade, or the gain, as a share of the highest one, for which the same holds; p is then its expected value
    and no longer a probability. O(n).

    Args:
        ranking: r, the share of the ranking loss, from 0, the cross entropy alone, to 1, which leaves the scale of p open.
        grades: the number of grades, 0 to grades - 1, for graded relevance; if None, relevance is binary.
        target: of grades, t is y or 2^y - 1, divided by the highest: `"grade"` or `"gain"`.
        min_relevant: of binary relevance, the lowest grade that counts as relevant; None for every label above 0.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: wrong options; in a call, on the CPU, a label above `grades` - 1 (on other devices the loss of its list is
            NaN).

    Source: Bai, Jagerman, Qin, Yan, Kar, Lin, Wang, Bendersky, Najork, "Regression Compatible Listwise Objectives for Calibrated
    Ranking with Binary Relevance", CIKM 2023 (arXiv 2211.01494), with means in place of sums over documents.

    >>> loss = RCRLoss()
    >>> loss
    RCRLoss(ranking=0.5, target=grade, reduction=mean)
    >>> loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(1.1882)
    """

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        t = self.targets(labels, where)
        log_p = logsigmoid(scores)
        log_q = torch.where(where, log_p, torch.finfo(scores.dtype).min).log_softmax(-1)
        ranked = -torch.where(where, self._shares(t, where, weights) * log_q, 0.0).sum(-1)
        return (1 - self.ranking) * weighted_mean(softplus(scores) - t * scores, where, weights) + self.ranking * ranked

    @staticmethod
    def _shares(t: Tensor, where: Tensor, weights: Tensor | None) -> Tensor:
        """Shares t / T, with item weights; all 0 if nothing is relevant."""
        found = torch.where(where, t if weights is None else t * weights, 0.0)
        total = found.sum(-1, keepdim=True)
        return found / torch.where(total > 0, total, 1.0)

    def curvature(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """The diagonal of the Hessian of each list, `[..., list_size]`."""
        shares, p = self._shares(self.targets(labels, where), where, weights), scores.sigmoid()
        q = torch.where(where, logsigmoid(scores), torch.finfo(scores.dtype).min).softmax(-1)
        some = shares.sum(-1, keepdim=True)
        ranked = shares * p * (1 - p) + some * q * (1 - p) * ((1 - q) * (1 - p) - p)
        return (1 - self.ranking) * _document_shares(where, weights, scores) * p * (1 - p) + self.ranking * ranked


class JRCLoss(_CalibratedLoss):
    """Joint ranking and calibration (JRC): binary cross entropy, and the cross entropy of documents among those of the list.

        1/n sum_i  (1 - r) (- t_i log p_i - (1 - t_i) log(1 - p_i))  +  r (- t_i log u_i - (1 - t_i) log v_i)

    with p = sigmoid(s), u the softmax of s / 2 over the list, and v that of -s / 2: which of the documents is the relevant one,
    and which the irrelevant one. The paper's model has two outputs for each document, one for each class, and a list is a session
    of clicks. The scorers here have one, s, and the outputs are s / 2 and -s / 2, which leaves the paper's second degree of
    freedom out. A list in which nothing is relevant draws its scores together. For `grades`, t is a share, as in `RCRLoss`. O(n).

    Args:
        ranking: r, the share of the ranking loss, from 0, the cross entropy alone, to 1; 1 - alpha of the paper.
        grades: the number of grades, 0 to grades - 1, for graded relevance; if None, relevance is binary.
        target: of grades, t is y or 2^y - 1, divided by the highest: `"grade"` or `"gain"`.
        min_relevant: of binary relevance, the lowest grade that counts as relevant; None for every label above 0.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: wrong options; in a call, on the CPU, a label above `grades` - 1 (on other devices the loss of its list is
            NaN).

    Source: Sheng, Gao, Cheng, Yang, Han, Deng, Jiang, Xu, Zheng, "Joint Optimization of Ranking and Calibration with
    Contextualized Hybrid Model", KDD 2023 (arXiv 2208.06164).

    >>> loss = JRCLoss(ranking=0.25)
    >>> loss
    JRCLoss(ranking=0.25, target=grade, reduction=mean)
    >>> loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(1.2180)
    """

    convex = True

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        t = self.targets(labels, where)
        lowest = torch.finfo(scores.dtype).min
        log_u, log_v = (torch.where(where, half, lowest).log_softmax(-1) for half in (scores / 2, -scores / 2))
        ranked = -t * log_u - (1 - t) * log_v
        return weighted_mean(
            (1 - self.ranking) * (softplus(scores) - t * scores) + self.ranking * ranked, where, weights
        )

    def curvature(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """The diagonal of the Hessian of each list, `[..., list_size]`."""
        t, p, lowest = self.targets(labels, where), scores.sigmoid(), torch.finfo(scores.dtype).min
        u, v = (torch.where(where, half, lowest).softmax(-1) for half in (scores / 2, -scores / 2))
        relevant = weighted_mean(t, where, weights).unsqueeze(-1)
        ranked = (relevant * u * (1 - u) + (1 - relevant) * v * (1 - v)) / 4
        return (1 - self.ranking) * _document_shares(where, weights, scores) * p * (1 - p) + self.ranking * ranked


def _document_shares(where: Tensor, weights: Tensor | None, scores: Tensor) -> Tensor:
    """The weight of each document in the mean over its list."""
    mass = where.to(scores) if weights is None else torch.where(where, weights.to(scores), 0.0)
    total = mass.sum(-1, keepdim=True)
    return mass / torch.where(total > 0, total, 1.0)
