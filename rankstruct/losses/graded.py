"""Graded labels for binary measures: the hinge summed over thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Any

import torch
from torch import Tensor

from rankstruct.checks import checked_numbers
from rankstruct.kernels.dispatch import Prepared
from rankstruct.lists import Lists, is_eager, is_plain
from rankstruct.losses.checks import check_values
from rankstruct.losses.hinge import HingeLoss, hinge, reduced_hinge
from rankstruct.losses.reduction import Reduction, reduce_lists
from rankstruct.measures import Measure

__all__ = ["GradedLoss"]

_MOST_GRADES = 10_000  # thresholds found from the labels: each is a copy of the batch
_MOST_PREPARED = 16  # for which a sum over grades is prepared


class GradedLoss(HingeLoss):
    """The structured hinge of a binary measure, summed over thresholds of relevance: grade 1 or more, 2 or more, and so on.

    The loss extends SVMauc, SVMmap and SVMcombo to graded labels. It separates any two grades, and grades that are further
    apart count at several thresholds. A threshold that all or no documents of a list reach adds 0.

    Args:
        measure: a measure or its name, without `min_relevant`.
        feature_map: how a ranking scores; the measure's own default if None.
        reference: as in `StructuredHingeLoss`.
        grades: the thresholds. If None, all whole numbers from 1 to the highest label of the batch.
        grade_weights: one per threshold, >= 0, in their order or as a mapping `{threshold: weight}`; all 1 if None.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        TypeError, ValueError: as `StructuredHingeLoss`; a measure with `min_relevant`; a wrong number of weights.

    >>> loss = GradedLoss("AUC", grades=[1, 2])
    >>> loss
    GradedLoss(AUC, grades=[1, 2], feature_map=pairwise, reference=ideal, reduction=mean)
    >>> loss(torch.tensor([0.0, 0.0, 0.0]), torch.tensor([2, 1, 0]))  # 1 at each threshold
    tensor(2.)
    """

    measure: str | Measure = "AUC"
    _: KW_ONLY
    grades: Sequence[float] | None = None
    grade_weights: Sequence[float] | Mapping[float, float] | None = None

    def setup(self) -> None:
        """Find the oracle, and check the thresholds and their weights."""
        weights = self.grade_weights
        if self.grades is None and isinstance(weights, Mapping):
            self.grades = list(weights)
        if self.grades is not None:
            self.grades = checked_numbers(grades=self.grades)
        if isinstance(weights, Mapping):
            assert self.grades is not None
            if {*weights} != {*self.grades}:
                raise ValueError(
                    f"grade_weights must have a weight for each of the grades {self.grades}, got {weights}"
                )
            weights = [weights[grade] for grade in self.grades]
        if weights is not None:
            self.grade_weights = checked_numbers(">= 0", grade_weights=weights)
            if self.grades is not None and len(self.grade_weights) != len(self.grades):
                raise ValueError(
                    f"grade_weights must be {len(self.grades)} numbers, one per threshold; got {self.grade_weights}"
                )
        super().setup()
        if self.resolved.measure.min_relevant is not None:
            raise ValueError(f"the thresholds replace min_relevant; remove it from {self.resolved.measure.name}")

    def prepared(self, lists: Lists, longest: int) -> Prepared | None:
        """The call of a loop that finds the sums of the hinges, if there is one."""
        oracle, bound = self.resolved.oracle, (self.resolved.measure, self.resolved.feature_map, self.reference)
        if oracle.prepare is None or oracle.solve_grades is None or not bool(lists.labels.isfinite().all()):
            return None
        thresholds, factors = self._thresholds(lists.labels, lists.where)
        thresholds, order = thresholds.sort()
        return oracle.prepare(*bound, longest, thresholds, factors[order])

    def of_lists(self, scores: Tensor, lists: Lists, reduction: Reduction) -> Tensor:
        """The reduced sum of the hinges: by the oracle's `solve_grades`, otherwise one threshold at a time."""
        resolved, reference, given = self.resolved, self.reference, lists
        assert reference is not None
        lists = lists if lists.item_weights is None else resolved.weighted(scores, lists)
        grades = self._prepared_grades(lists)
        value = self.by_loop(scores, lists, reduction, grades) if grades else None
        if value is not None:
            return value
        signed = self.grades is not None and len(self.grades) > 0 and min(self.grades) <= 0
        check_values(scores, given, signed)
        known = resolved.checked(scores, lists, reference)
        thresholds, factors = self._thresholds(known.labels, known.where)
        solve_grades = resolved.oracle.solve_grades
        one_by_one = known.item_weights is not None and not resolved.oracle.loops_take_item_weights
        if solve_grades is None or one_by_one:
            return reduce_lists(self._one_by_one(scores, known, thresholds, factors, signed), lists, reduction)
        if not (signed or is_plain(known.labels)):  # not checked yet
            known = known._replace(labels=torch.where(known.labels >= 0, known.labels.double(), torch.nan))
        thresholds, order = thresholds.sort()
        bound = resolved.measure, resolved.feature_map, reference
        return reduced_hinge(
            scores, solve_grades(scores.detach(), known, *bound, thresholds, factors[order]), lists, reduction
        )

    def _prepared_grades(self, lists: Lists) -> int:
        """The highest whole grade, if a sum over all grades up to it may be prepared, otherwise 0."""
        labels, where = lists.labels, lists.where
        if not (self.grades is None and self.grade_weights is None and is_eager(labels) and labels.numel()):
            return 0
        if labels.dtype == torch.bfloat16:  # which NumPy lacks
            return 0
        highest = labels.detach().numpy().max(initial=0, where=True if where is None else where.numpy())
        return int(highest) if 1 <= highest <= _MOST_PREPARED else 0

    def _thresholds(self, labels: Tensor, where: Tensor | None) -> tuple[Tensor, Tensor]:
        """The grades, and the weight of each, float64 on the CPU."""
        weights = self.grade_weights
        given = None if weights is None else torch.tensor([float(weight) for weight in weights], dtype=torch.float64)
        if self.grades is not None:
            thresholds = torch.tensor([float(grade) for grade in self.grades], dtype=torch.float64)
            return thresholds, torch.ones_like(thresholds) if given is None else given
        count = _count_grades if is_eager(labels) else _whole_grades
        thresholds = count(labels, where, -1 if weights is None else len(weights))
        return thresholds, torch.ones_like(thresholds) if given is None else given[(thresholds - 1).long()]

    def _one_by_one(self, scores: Tensor, lists: Lists, thresholds: Tensor, factors: Tensor, signed: bool) -> Tensor:
        """The hinge of each list, summed over thresholds with their weights: each threshold is a copy of the batch."""
        labels, where, offsets, reference_scores, groups, item_weights, *_ = lists
        count = thresholds.shape[0]
        reached = labels.double() >= thresholds.to(labels.device).view(-1, *[1] * labels.dim())
        if is_eager(labels):  # and so checked
            reached = reached.view(torch.uint8)
        elif labels.dtype.is_floating_point or labels.device.type != "cpu":
            # The oracle rejects invalid labels outside the padding.
            right = labels.isfinite() if signed else labels.isfinite() & (labels >= 0)
            reached = torch.where(right, reached.to(scores.dtype), torch.nan)
        else:
            reached = reached.to(scores.dtype)
        ends = None
        if offsets is not None:
            documents = scores.shape[0]
            shift = torch.arange(count, device=offsets.device, dtype=offsets.dtype).unsqueeze(1) * documents
            ends = torch.cat([(offsets[:-1] + shift).flatten(), offsets.new_full((1,), count * documents)])
            reached = reached.flatten()
        copies, real, reference_scores, groups, item_weights = (
            value
            if value is None
            else value.repeat(count)
            if offsets is not None
            else value.expand(count, *value.shape)
            for value in (scores, where, reference_scores, groups, item_weights)
        )
        assert copies is not None
        assert self.reference is not None
        copied = Lists(reached, real, ends, reference_scores, groups, item_weights)
        values = hinge(copies, copied, self.resolved, self.reference)
        many = scores.shape[:-1] if offsets is None else (offsets.shape[0] - 1,)
        return (values.view(count, *many) * factors.to(scores).view(-1, *[1] * len(many))).sum(0)


def _count_grades(labels: Tensor, where: Tensor | None, weights: int) -> Tensor:
    real = labels if where is None else torch.where(where, labels, 0)
    top = int(real.max()) if real.numel() else 1
    if top > _MOST_GRADES:
        raise ValueError(f"labels go up to {top:g}, too many grades to use each as a threshold; pass grades=")
    if 0 <= weights < top:
        raise ValueError(f"labels go up to {top}, grade_weights to {weights}; pass grades= too")
    return torch.arange(1, max(top, 0) + 1, dtype=torch.float64)


# An operator, so that `torch.compile` need not know their number. A threshold that a list does not reach adds nothing, so vmap
# uses those of the whole batch.
_whole_grades = torch.library.custom_op("rankstruct::whole_grades", _count_grades, mutates_args=())


@_whole_grades.register_fake
def _(labels: Tensor, where: Tensor | None, weights: int) -> Tensor:
    return torch.empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.float64)


@_whole_grades.register_vmap
def _(info: Any, in_dims: Any, labels: Tensor, where: Tensor | None, weights: int) -> tuple[Tensor, None]:
    if where is not None:  # one of the two may not be batched
        labels = labels if in_dims[0] is None else labels.movedim(in_dims[0], 0)
        where = where if in_dims[1] is None else where.movedim(in_dims[1], 0)
    return _whole_grades(labels, where, weights), None
