"""Graded labels for binary measures: the hinge at every threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from rankstruct.feature_maps import FeatureMap
from rankstruct.lists import check_lists, is_eager, is_plain, refuse_groups_of_lists
from rankstruct.losses.base import (
    AllOptions,
    HingeLoss,
    HingeOptions,
    Reduction,
    check_reduction,
    check_values,
    hinge,
    opened,
    quick_hinge,
    reduce_lists,
    reduced_hinge,
)
from rankstruct.measures import Measure
from rankstruct.oracles.registry import Reference, Resolved, resolve

__all__ = ["GradedLoss", "graded_loss"]

_MOST_GRADES = 10_000  # thresholds that are taken without being named: each is a copy of the batch


def graded_loss(
    scores: Tensor,
    labels: Tensor,
    measure: str | Measure = "AUC",
    *,
    grades: Sequence[float] | None = None,
    grade_weights: Sequence[float] | None = None,
    feature_map: str | FeatureMap | None = None,
    reference: Reference | None = None,
    **lists: Unpack[HingeOptions],
) -> Tensor:
    """The structured hinge of a binary measure, summed over thresholds: relevant is what has grade 1 or more, 2 or more, ...

    It extends SVMauc, SVMmap and SVMcombo to graded labels: documents of every two grades are told apart, and those far apart
    count at several thresholds. A threshold that all or no documents of a list reach costs 0.

    Args:
        measure: a measure or its name, without `min_relevant`.
        grades: the thresholds. If None, all whole numbers from 1 to the highest label of the batch.
        grade_weights: one a threshold, >= 0; 1 each if None.
        scores, labels, feature_map, reference, lists: as in `structured_hinge_loss`.

    Raises:
        TypeError, ValueError: as `structured_hinge_loss`; a measure with `min_relevant`; not one weight a threshold.

    >>> graded_loss(torch.tensor([0.0, 0.0, 0.0]), torch.tensor([2, 1, 0]), "AUC")  # 1 at each threshold
    tensor(2.)
    """
    resolved = _without_threshold(resolve(measure, feature_map))
    chosen = resolved.reference(reference)
    return _graded(scores, labels, resolved, grades=grades, grade_weights=grade_weights, reference=chosen, **lists)


@opened
def _graded(
    scores: Tensor,
    labels: Tensor,
    resolved: Resolved,
    *,
    grades: Sequence[float] | None,
    grade_weights: Sequence[float] | None,
    reference: str,
    reference_scores: Tensor | None = None,
    groups: Tensor | None = None,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
    weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    check_lists(scores, labels, where, offsets)
    check_reduction(reduction)
    signed = grades is not None and len(grades) > 0 and min(grades) <= 0
    check_values(scores.detach(), labels.detach(), where, offsets, signed)
    if offsets is None and not resolved.measure.takes_groups:
        refuse_groups_of_lists(groups, scores.shape[:-1])
    thresholds, factors = _thresholds(labels.detach(), where, grades, grade_weights)
    solve_grades = resolved.oracle.solve_grades
    if solve_grades is not None:
        if not (signed or is_plain(labels)):  # which nobody has looked at
            labels = torch.where(labels >= 0, labels.double(), torch.nan)
        thresholds, order = thresholds.sort()
        more = {"thresholds": thresholds, "weights": factors[order]}
        if reference_scores is not None:
            more["reference_scores"] = resolved.checked_reference_scores(reference_scores, scores, reference)
        bound = (resolved.measure, resolved.feature_map, reference)
        found = solve_grades(scores.detach(), labels.detach(), where, offsets, *bound, **more)
        return reduced_hinge(scores, found, where=where, offsets=offsets, weights=weights, reduction=reduction)
    values = _one_by_one(
        *(scores, labels, resolved, thresholds, factors, signed, where, offsets),
        reference=reference,
        reference_scores=reference_scores,
        groups=groups,
    )
    return reduce_lists(values, where=where, offsets=offsets, weights=weights, reduction=reduction)


def _one_by_one(
    scores: Tensor,
    labels: Tensor,
    resolved: Resolved,
    thresholds: Tensor,
    factors: Tensor,
    signed: bool,
    where: Tensor | None,
    offsets: Tensor | None,
    *,
    reference: str,
    reference_scores: Tensor | None,
    groups: Tensor | None,
) -> Tensor:
    """The hinge of each list, summed over thresholds with their weights: each threshold is a copy of the batch."""
    count = thresholds.shape[0]
    reached = labels.double() >= thresholds.to(labels.device).view(-1, *[1] * labels.dim())
    if is_eager(labels):  # and so checked
        reached = reached.view(torch.uint8)
    elif labels.dtype.is_floating_point or labels.device.type != "cpu":  # for the oracle to refuse, or in the padding
        right = labels.isfinite() if signed else labels.isfinite() & (labels >= 0)
        reached = torch.where(right, reached.to(scores.dtype), torch.nan)
    else:
        reached = reached.to(scores.dtype)
    flat = offsets is not None

    def repeated(values: Tensor | None) -> Tensor | None:
        if values is None:
            return None
        return values.repeat(count) if flat else values.expand(count, *values.shape)

    ends = None
    if offsets is not None:
        documents = scores.shape[0]
        shift = torch.arange(count, device=offsets.device, dtype=offsets.dtype).unsqueeze(1) * documents
        ends = torch.cat([(offsets[:-1] + shift).flatten(), offsets.new_full((1,), count * documents)])
        reached = reached.flatten()
    many = repeated(scores)
    assert many is not None
    chosen = {"reference_scores": repeated(reference_scores), "groups": repeated(groups)}
    layout = {"where": repeated(where), "offsets": ends}
    values = hinge(many, reached, resolved, reference=reference, reduction="none", **chosen, **layout)
    lists = scores.shape[:-1] if offsets is None else (offsets.shape[0] - 1,)
    return (values.view(count, *lists) * factors.to(scores).view(-1, *[1] * len(lists))).sum(0)


class GradedLoss(HingeLoss):
    """`graded_loss` as a module; see there for the arguments, the errors and the source.

    >>> GradedLoss("AUC", grades=[1, 2])
    GradedLoss(AUC, grades=[1, 2], feature_map=pairwise, reference=ideal, reduction=mean)
    """

    function = staticmethod(_graded)

    def forward(self, scores: Tensor, labels: Tensor, **lists: Unpack[AllOptions]) -> Tensor:
        """The loss, by the function with its options; a scalar, or one value a list with reduction `"none"`."""
        whole = self.grades is None and self.grade_weights is None
        value = quick_hinge(self, scores, labels, graded=True, **lists) if whole else None
        return super().forward(scores, labels, **lists) if value is None else value

    def __init__(
        self,
        measure: str | Measure = "AUC",
        *,
        grades: Sequence[float] | None = None,
        grade_weights: Sequence[float] | None = None,
        feature_map: str | FeatureMap | None = None,
        reference: Reference | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        _check_grades(grades, grade_weights)
        if grades is not None and any(math.isnan(grade) for grade in grades):
            raise ValueError(f"grades must be numbers, got {list(grades)}")
        super().__init__(measure, feature_map=feature_map, reference=reference, reduction=reduction)
        _without_threshold(self.resolved)
        grades = None if grades is None else list(grades)
        self.set_options(grades=grades, grade_weights=None if grade_weights is None else list(grade_weights))


def _without_threshold(resolved: Resolved) -> Resolved:
    if resolved.measure.min_relevant is not None:
        raise ValueError(f"the thresholds take the place of min_relevant; give {resolved.measure.name} without it")
    return resolved


def _thresholds(
    labels: Tensor, where: Tensor | None, grades: Sequence[float] | None, weights: Sequence[float] | None
) -> tuple[Tensor, Tensor]:
    """The grades, and the weight of each, float64 on the CPU."""
    _check_grades(grades, weights)
    given = None if weights is None else torch.tensor([float(weight) for weight in weights], dtype=torch.float64)
    if grades is not None:
        thresholds = torch.tensor([float(grade) for grade in grades], dtype=torch.float64)
        return thresholds, torch.ones_like(thresholds) if given is None else given
    count = _count_grades if is_eager(labels) else _whole_grades
    thresholds = count(labels, where, -1 if weights is None else len(weights))
    return thresholds, torch.ones_like(thresholds) if given is None else given[(thresholds - 1).long()]


def _count_grades(labels: Tensor, where: Tensor | None, weights: int) -> Tensor:
    real = labels if where is None else torch.where(where, labels, 0)
    top = int(real.max()) if real.numel() else 1
    if top > _MOST_GRADES:
        raise ValueError(f"labels go up to {top:g}, too large to take every grade for a threshold; give grades=")
    if 0 <= weights < top:
        raise ValueError(f"labels go up to {top}, grade_weights to {weights}; give grades= too")
    return torch.arange(1, max(top, 0) + 1, dtype=torch.float64)


# An operator, so that `torch.compile` does not ask how many there are. A threshold that a list does not reach costs nothing, so
# that vmap takes those of all.
_whole_grades = torch.library.custom_op("rankstruct::whole_grades", _count_grades, mutates_args=())


@_whole_grades.register_fake
def _(labels: Tensor, where: Tensor | None, weights: int) -> Tensor:
    return torch.empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.float64)


@_whole_grades.register_vmap
def _(info: Any, in_dims: Any, labels: Tensor, where: Tensor | None, weights: int) -> tuple[Tensor, None]:
    if where is not None:  # one of the two may be the same for all
        labels = labels if in_dims[0] is None else labels.movedim(in_dims[0], 0)
        where = where if in_dims[1] is None else where.movedim(in_dims[1], 0)
    return _whole_grades(labels, where, weights), None


def _check_grades(grades: Sequence[float] | None, weights: Sequence[float] | None) -> None:
    if weights is None:
        return
    if not all(weight >= 0 for weight in weights) or (grades is not None and len(weights) != len(grades)):
        count = "" if grades is None else f"{len(grades)} "
        raise ValueError(f"grade_weights must be {count}numbers >= 0, one a threshold; got {list(weights)}")
