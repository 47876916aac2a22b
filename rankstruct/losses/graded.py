"""Graded labels for binary measures: the hinge at every threshold."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rankstruct.feature_maps import FeatureMap
from rankstruct.lists import check_lists
from rankstruct.losses.base import check_values
from rankstruct.losses.reduction import check_reduction, reduce_lists
from rankstruct.losses.structured_hinge import structured_hinge_loss
from rankstruct.measures import Measure, parse_measure
from rankstruct.oracles import resolve


def graded_loss(
    scores: Tensor,
    labels: Tensor,
    measure: str | Measure,
    *,
    grades: Sequence[float] | None = None,
    grade_weights: Sequence[float] | None = None,
    feature_map: str | FeatureMap | None = None,
    reference: str = "ideal",
    reference_scores: Tensor | None = None,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
    weights: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The structured hinge of a binary measure, summed over thresholds: relevant is what has grade 1 or more, 2 or more, ...

    It extends SVMauc, SVMmap and SVMcombo to graded labels: documents of every two grades are told apart, and those far apart
    count at several thresholds. A threshold that all or no documents of a list reach costs 0.

    Args:
        scores: `[..., list_size]`, or `[documents]` with `offsets`.
        labels: graded relevance, the shape of `scores`.
        measure: a measure or its name, without `min_relevant`.
        grades: the thresholds. If None, all whole numbers from 1 to the highest label of the batch, which `torch.compile`
            cannot trace.
        grade_weights: one a threshold, >= 0; 1 each if None.
        feature_map: as in `structured_hinge_loss`.
        reference: as in `structured_hinge_loss`.
        reference_scores: as in `structured_hinge_loss`.
        where: bool, the shape of `scores`, True for a real document.
        offsets: int64 `[lists + 1]`, for flat input.
        weights: `[...]`, one weight a list.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        A scalar, or `[...]` with reduction `"none"`.

    Raises:
        TypeError, ValueError: as `structured_hinge_loss`; a measure with `min_relevant`; not one weight a threshold.

    >>> graded_loss(torch.tensor([0.0, 0.0, 0.0]), torch.tensor([2, 1, 0]), "AUC")  # 1 at each threshold
    tensor(2.)
    """
    check_lists(scores, labels, where, offsets)
    check_reduction(reduction)
    measure = parse_measure(measure)
    if measure.min_relevant is not None:
        raise ValueError(f"the thresholds take the place of min_relevant; give {measure.name} without it")
    check_values(scores.detach(), labels.detach(), where, offsets)
    if grades is None:
        real = labels if where is None else torch.where(where, labels, 0)
        top = int(real.max()) if real.numel() else 1
        if grade_weights is not None and top > len(grade_weights):
            raise ValueError(f"labels go up to {top}, grade_weights to {len(grade_weights)}; give grades= too")
        grades = range(1, top + 1)
        grade_weights = None if grade_weights is None else grade_weights[: max(top, 0)]
    _check_grades(grades, grade_weights, given=True)
    thresholds = torch.tensor([float(grade) for grade in grades], dtype=torch.float64, device=labels.device)
    each = torch.ones(len(thresholds)) if grade_weights is None else torch.tensor([float(w) for w in grade_weights])
    each = each.to(scores)
    count = len(thresholds)

    reached = (labels >= thresholds.view(-1, *[1] * labels.dim())).to(scores.dtype)
    if labels.dtype.is_floating_point:
        reached = torch.where(labels.isfinite(), reached, torch.nan)  # for the oracle to refuse, or in the padding
    if offsets is None:
        shape = (count, *scores.shape)
        layout = {"where": None if where is None else where.expand(shape), "offsets": None}
        many = scores.expand(shape)
        chosen = None if reference_scores is None else reference_scores.expand(shape)
    else:
        documents = scores.shape[0]
        shift = torch.arange(count, device=offsets.device, dtype=offsets.dtype).unsqueeze(1) * documents
        ends = offsets.new_full((1,), count * documents)
        layout = {"where": None, "offsets": torch.cat([(offsets[:-1] + shift).flatten(), ends])}
        many, reached = scores.repeat(count), reached.flatten()
        chosen = None if reference_scores is None else reference_scores.repeat(count)
    values = structured_hinge_loss(
        many,
        reached,
        measure,
        feature_map=feature_map,
        reference=reference,
        reference_scores=chosen,
        reduction="none",
        **layout,
    )
    lists = scores.shape[:-1] if offsets is None else (offsets.shape[0] - 1,)
    values = (values.view(count, *lists) * each.view(-1, *[1] * len(lists))).sum(0)
    return reduce_lists(values, where=where, offsets=offsets, weights=weights, reduction=reduction)


class GradedLoss(torch.nn.Module):
    """`graded_loss` as a module; see there for the arguments, the errors and the source.

    Args:
        measure: a measure or its name, without `min_relevant`.
        grades: the thresholds; all whole numbers up to the batch's highest label if None.
        grade_weights: one a threshold; 1 each if None.
        feature_map: how a ranking scores; the measure's own default if None.
        reference: the ranking r* that the bound is relative to.
        reduction: `"mean"`, `"sum"` or `"none"`.

    >>> GradedLoss("AUC", grades=[1, 2])
    GradedLoss(AUC, grades=[1, 2], feature_map=pairwise, reference=ideal, reduction=mean)
    """

    def __init__(
        self,
        measure: str | Measure,
        *,
        grades: Sequence[float] | None = None,
        grade_weights: Sequence[float] | None = None,
        feature_map: str | FeatureMap | None = None,
        reference: str = "ideal",
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        _check_grades(grades, grade_weights, given=grades is not None)
        self.measure, self.feature_map, _ = resolve(measure, feature_map, reference)
        if self.measure.min_relevant is not None:
            raise ValueError(f"the thresholds take the place of min_relevant; give {self.measure.name} without it")
        self.grades = None if grades is None else list(grades)
        self.grade_weights = None if grade_weights is None else list(grade_weights)
        self.reference = reference
        self.reduction = reduction

    @property
    def convex(self) -> bool:
        """Whether the loss is a convex function of the scores."""
        return self.reference == "ideal"

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        *,
        reference_scores: Tensor | None = None,
        where: Tensor | None = None,
        offsets: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The loss; a scalar, or one value a list with reduction `"none"`."""
        return graded_loss(
            scores,
            labels,
            self.measure,
            grades=self.grades,
            grade_weights=self.grade_weights,
            feature_map=self.feature_map,
            reference=self.reference,
            reference_scores=reference_scores,
            where=where,
            offsets=offsets,
            weights=weights,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """Measure, thresholds, feature map, reference and reduction."""
        weights = "" if self.grade_weights is None else f"grade_weights={self.grade_weights}, "
        return (
            f"{self.measure.name}, grades={self.grades}, {weights}feature_map={self.feature_map.name}, "
            f"reference={self.reference}, reduction={self.reduction}"
        )


def _check_grades(grades: Sequence[float] | None, weights: Sequence[float] | None, *, given: bool) -> None:
    if weights is None:
        return
    if not all(weight >= 0 for weight in weights) or (given and grades is not None and len(weights) != len(grades)):
        count = "" if grades is None else f"{len(grades)} "
        raise ValueError(f"grade_weights must be {count}numbers >= 0, one a threshold; got {list(weights)}")
