"""The structured hinge loss over diverse rankings: at most one document of each group among the first k.

As `structured_hinge`, but the most violated ranking, the reference and the best value are those of diverse rankings. A loss
of its own and no option of `structured_hinge_loss`: groups are not optional here, and one feature map goes with them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rankstruct.feature_maps import FeatureMap
from rankstruct.lists import check_groups, check_lists
from rankstruct.losses.base import with_gradient
from rankstruct.losses.reduction import check_reduction, reduce_lists
from rankstruct.measures import Diverse, Measure
from rankstruct.oracles import resolve_diverse, solve_diverse


def diverse_hinge_loss(
    scores: Tensor,
    labels: Tensor,
    measure: str | Measure,
    *,
    groups: Tensor,
    feature_map: str | FeatureMap | None = None,
    reference: str = "ideal",
    reference_scores: Tensor | None = None,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
    weights: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Structured hinge loss of a measure over diverse rankings, an upper bound of what `rerank_diverse` loses, per list.

    The bound is that of `best diverse value - measure` for the ranking that walks down the scores and keeps the first document
    of each group until k are kept, k being the measure's cut-off; `Diverse(measure)` is the measure of that ranking. It is
    convex with reference `"ideal"`; `"ideal-tied"` is tighter, `"predicted"` the tightest, and neither is convex.

    Args:
        scores: `[..., list_size]`, or `[documents]` with `offsets`; any real numbers, from any scorer.
        labels: graded relevance, the shape of `scores`.
        measure: a discounted gain or `RR` with a cut-off, `WTA` or `mWTA`, or its name, such as `"nDCG@5"`.
        groups: integers, the shape of `scores`: documents of a list with the same number are of one group (host, topic).
        feature_map: a positional map; `i^-0.5` if None. Its decay counts as 0 after k.
        reference: `"ideal"`, `"ideal-tied"` or `"predicted"`; see `most_violated_diverse`.
        reference_scores: scores that choose the reference instead of `scores`, the shape of `scores`; they get no gradient.
        where: bool, the shape of `scores`, True for a real document. Padding may hold anything, even NaN, and has zero gradient.
        offsets: int64 `[lists + 1]`, for flat input: list i is `[offsets[i], offsets[i + 1])`.
        weights: `[...]`, one weight a list.
        reduction: `"mean"` (`sum(w l) / sum(w)` over lists that are not all padding), `"sum"` or `"none"`.

    Returns:
        A scalar, or `[...]` with reduction `"none"`, with the dtype and device of `scores`; never negative. A list that no
        diverse ranking can get wrong costs 0 and has zero gradient.

    Raises:
        TypeError, ValueError: as `most_violated_diverse`; also for an unknown reduction or weights of another shape.

    Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 7.1.

    >>> scores = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
    >>> loss = diverse_hinge_loss(scores, torch.tensor([0, 0, 1]), "nDCG@2", groups=torch.tensor([7, 7, 8]))
    >>> loss.backward()
    >>> loss, scores.grad
    (tensor(0.9549, grad_fn=<MeanBackward0>), tensor([ 0.2929,  0.0000, -0.2929]))
    """
    check_lists(scores, labels, where, offsets)
    check_groups(groups, scores)
    measure, feature_map = resolve_diverse(measure, feature_map, reference)
    _, value, direction = solve_diverse(
        scores, labels, where, offsets, groups, measure, feature_map, reference, reference_scores
    )
    values = with_gradient(scores, value, direction, offsets)
    return reduce_lists(values, where=where, offsets=offsets, weights=weights, reduction=reduction)


class DiverseHingeLoss(torch.nn.Module):
    """`diverse_hinge_loss` as a module; see there for the arguments, the errors and the source.

    Args:
        measure: a discounted gain or `RR` with a cut-off, `WTA` or `mWTA`, or its name.
        feature_map: a positional map; `i^-0.5` if None.
        reference: the diverse ranking r* that the bound is relative to.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Shapes:
        scores, labels, groups and where `[..., list_size]`, weights `[...]`; or scores, labels and groups `[documents]`,
        offsets `[lists + 1]`, weights `[lists]`.

    >>> loss = DiverseHingeLoss("nDCG@5")
    >>> loss
    DiverseHingeLoss(nDCG@5, feature_map=positional(i^-0.5), reference=ideal, reduction=mean)
    >>> loss(torch.tensor([[0.2, 0.1]]), torch.tensor([[0, 1]]), groups=torch.tensor([[3, 3]]))
    tensor(1.1000)
    """

    #: It is called with `groups=`; see `takes_groups`.
    takes_groups = True

    def __init__(
        self,
        measure: str | Measure,
        *,
        feature_map: str | FeatureMap | None = None,
        reference: str = "ideal",
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        self.measure, self.feature_map = resolve_diverse(measure, feature_map, reference)
        self.reference = reference
        self.reduction = reduction

    @property
    def convex(self) -> bool:
        """Whether the loss is a convex function of the scores."""
        return self.reference == "ideal"

    @property
    def diverse_measure(self) -> Diverse:
        """What it bounds the loss of: the measure of the list re-ranked diversely."""
        return Diverse(self.measure)

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        *,
        groups: Tensor,
        reference_scores: Tensor | None = None,
        where: Tensor | None = None,
        offsets: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The loss; a scalar, or one value a list with reduction `"none"`."""
        return diverse_hinge_loss(
            scores,
            labels,
            self.measure,
            groups=groups,
            feature_map=self.feature_map,
            reference=self.reference,
            reference_scores=reference_scores,
            where=where,
            offsets=offsets,
            weights=weights,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """The measure, feature map, reference and reduction."""
        return (
            f"{self.measure.name}, feature_map={self.feature_map.name}, "
            f"reference={self.reference}, reduction={self.reduction}"
        )
