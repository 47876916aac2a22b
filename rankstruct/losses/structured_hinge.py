"""The structured hinge loss: max over rankings of (task loss + score difference), by any oracle.

hinge(s) = Delta(y, r^) + <s, psi(r^) - psi(r*)>,   r^ = argmax_r Delta(y, r) + F(r)
gradient = psi(r^) - psi(r*)
"""

from __future__ import annotations

import torch
from torch import Tensor

from rankstruct.feature_maps import FeatureMap
from rankstruct.lists import check_lists
from rankstruct.losses.base import with_gradient
from rankstruct.losses.reduction import check_reduction, reduce_lists
from rankstruct.measures import Measure
from rankstruct.oracles import resolve, solve_lists


def structured_hinge_loss(
    scores: Tensor,
    labels: Tensor,
    measure: str | Measure,
    *,
    feature_map: str | FeatureMap | None = None,
    reference: str = "ideal",
    reference_scores: Tensor | None = None,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
    weights: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Structured hinge loss of a ranking measure: an upper bound of `best measure - measure`, per list.

    With measure `AP` this is the loss of SVMmap, with `AUC` that of SVMauc. The bound is convex with reference `"ideal"`;
    `"ideal-tied"` is tighter, `"predicted"` the tightest (a ramp), and neither is convex. Given `reference_scores` they are
    convex again, but bounds only from above their nonconvex selves: this is what a round of DC programming minimises.

    Args:
        scores: `[..., list_size]`, or `[documents]` with `offsets`; any real numbers, from any scorer.
        labels: graded relevance, the shape of `scores`.
        measure: a measure or its name, such as `"AP"`.
        feature_map: how a ranking scores; the measure's own default if None.
        reference: the ranking r* that the bound is relative to: `"ideal"`, `"ideal-tied"` or `"predicted"`; see
            `most_violated`.
        reference_scores: scores that choose r* instead of `scores`, the shape of `scores`; they get no gradient.
        where: bool, the shape of `scores`, True for a real document. Padding may hold anything, even NaN, and has zero gradient.
        offsets: int64 `[lists + 1]`, for flat input: list i is `[offsets[i], offsets[i + 1])`.
        weights: `[...]`, one weight a list.
        reduction: `"mean"` (`sum(w l) / sum(w)` over lists that are not all padding), `"sum"` or `"none"`.

    Returns:
        A scalar, or `[...]` with reduction `"none"`, with the dtype and device of `scores`; never negative. A list that no
        ranking can get wrong costs 0 and has zero gradient.

    Raises:
        TypeError, ValueError: as `most_violated`; also for an unknown reduction or weights of another shape.

    Source: Yue, Finley, Radlinski, Joachims, SIGIR 2007 (AP); Joachims, ICML 2005 (AUC); Le, Smola,
    Chapelle, Teo, "Optimization of Ranking Measures", equations 20 to 22 (the references).

    >>> scores = torch.tensor([2.0, 0.5, 0.0], requires_grad=True)
    >>> loss = structured_hinge_loss(scores, torch.tensor([0, 1, 0]), "AP")
    >>> loss.backward()
    >>> loss.item(), scores.grad
    (2.0, tensor([ 1., -1.,  0.]))
    """
    check_lists(scores, labels, where, offsets)
    measure, feature_map, oracle = resolve(measure, feature_map, reference)
    _, value, direction = solve_lists(
        oracle, scores, labels, where, offsets, measure, feature_map, reference, reference_scores
    )
    values = with_gradient(scores, value, direction, offsets)
    return reduce_lists(values, where=where, offsets=offsets, weights=weights, reduction=reduction)


class StructuredHingeLoss(torch.nn.Module):
    """`structured_hinge_loss` as a module; see there for the arguments, the errors and the sources.

    Args:
        measure: a measure or its name.
        feature_map: how a ranking scores; the measure's own default if None.
        reference: the ranking r* that the bound is relative to.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Shapes:
        scores, labels and where `[..., list_size]`, weights `[...]`; or scores and labels `[documents]`, offsets `[lists + 1]`,
        weights `[lists]`.

    >>> loss = StructuredHingeLoss("AP")                                            # SVMmap
    >>> loss
    StructuredHingeLoss(AP, feature_map=pairwise, reference=ideal, reduction=mean)
    >>> loss(torch.tensor([[0.2, 0.1]]), torch.tensor([[1, 0]]))
    tensor(0.3000)
    """

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
        self.measure, self.feature_map, _ = resolve(measure, feature_map, reference)
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
        return structured_hinge_loss(
            scores,
            labels,
            self.measure,
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
