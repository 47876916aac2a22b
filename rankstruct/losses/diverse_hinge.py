"""The structured hinge loss over diverse rankings, named by the measure of the list that is re-ranked.

`StructuredHingeLoss("diverse_nDCG@5")` is the same loss as `DiverseHingeLoss("nDCG@5")`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rankstruct.feature_maps import FeatureMap
from rankstruct.losses.base import Reduction
from rankstruct.losses.structured_hinge import StructuredHingeLoss, structured_hinge_loss
from rankstruct.measures import Diverse, Measure, parse_measure
from rankstruct.oracles.registry import Reference

__all__ = ["DiverseHingeLoss", "diverse_hinge_loss"]


def diverse_hinge_loss(
    scores: Tensor, labels: Tensor, measure: str | Measure, *, groups: Tensor, **options: Any
) -> Tensor:
    """Structured hinge loss of a measure over diverse rankings, an upper bound of what `rerank_diverse` loses, per list.

    The bound is that of `best diverse value - measure` for the ranking that walks down the scores and keeps the first document
    of each group until k are kept, k being the measure's cut-off; `Diverse(measure)` is the measure of that ranking.

    Args:
        scores, labels, where, offsets, weights, reduction: the list contract of `rankstruct.losses.base`.
        measure: a discounted gain or `RR` with a cut-off, `WTA` or `mWTA`, or its name, such as `"nDCG@5"`; or a `Diverse` one.
        groups: integers, the shape of `scores`: documents of a list with the same number are of one group (host, topic).
        options: as in `structured_hinge_loss`; the feature map is positional, and its decay counts as 0 after k.

    Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 7.1.

    >>> import torch
    >>> scores = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
    >>> loss = diverse_hinge_loss(scores, torch.tensor([0, 0, 1]), "nDCG@2", groups=torch.tensor([7, 7, 8]))
    >>> loss.backward()
    >>> loss, scores.grad
    (tensor(0.9549, grad_fn=<MeanHingeBackward>), tensor([ 0.2929,  0.0000, -0.2929]))
    """
    return structured_hinge_loss(scores, labels, _diverse(measure), groups=groups, **options)


class DiverseHingeLoss(StructuredHingeLoss):
    """`diverse_hinge_loss` as a module; see there for the arguments, the errors and the source.

    >>> DiverseHingeLoss("nDCG@5")
    DiverseHingeLoss(diverse_nDCG@5, feature_map=positional(i^-0.5), reference=ideal-tied, reduction=mean)
    """

    def __init__(
        self,
        measure: str | Measure,
        *,
        feature_map: str | FeatureMap | None = None,
        reference: Reference | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(_diverse(measure), feature_map=feature_map, reference=reference, reduction=reduction)


def _diverse(measure: str | Measure) -> Diverse:
    measure = parse_measure(measure)
    return measure if isinstance(measure, Diverse) else Diverse(measure)
