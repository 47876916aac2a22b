"""The structured hinge loss: max over rankings of (task loss + score difference), by any oracle.

hinge(s) = Delta(y, r^) + <s, psi(r^) - psi(r*)>,   r^ = argmax_r Delta(y, r) + F(r)
gradient = psi(r^) - psi(r*)
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import Unpack

from rankstruct.feature_maps import FeatureMap
from rankstruct.losses.base import AllOptions, HingeLoss, HingeOptions, hinge, quick_hinge
from rankstruct.measures import Measure
from rankstruct.oracles.registry import Reference, resolve

__all__ = ["StructuredHingeLoss", "structured_hinge_loss"]


def structured_hinge_loss(
    scores: Tensor,
    labels: Tensor,
    measure: str | Measure = "AP",
    *,
    feature_map: str | FeatureMap | None = None,
    reference: Reference | None = None,
    **lists: Unpack[HingeOptions],
) -> Tensor:
    """Structured hinge loss of a ranking measure: an upper bound of `best measure - measure`, per list; never negative.

    With measure `AP` this is the loss of SVMmap, with `AUC` that of SVMauc. The bound is convex with reference `"ideal"`;
    `"ideal-tied"` is tighter, `"predicted"` the tightest (a ramp), and neither is convex; nor is `"below-window"`, the mean
    hinge over the pairs in the window of a partial ROC area. Given `reference_scores` they are
    convex again, but bounds only from above their nonconvex selves: this is what a round of DC programming minimises.

    Args:
        scores, labels, where, offsets, weights, reduction: the list contract of `rankstruct.losses.base`.
        measure: a measure or its name, such as `"AP"`.
        feature_map, reference, reference_scores, groups: as in `most_violated`; `reference_scores` get no gradient.

    Raises:
        TypeError, ValueError: as `most_violated`; also for an unknown reduction or weights of another shape.

    Source: Yue, Finley, Radlinski, Joachims, SIGIR 2007 (AP); Joachims, ICML 2005 (AUC); Le, Smola,
    Chapelle, Teo, "Optimization of Ranking Measures", equations 20 to 22 (the references).

    >>> import torch
    >>> scores = torch.tensor([2.0, 0.5, 0.0], requires_grad=True)
    >>> loss = structured_hinge_loss(scores, torch.tensor([0, 1, 0]), "AP")
    >>> loss.backward()
    >>> loss.item(), scores.grad
    (2.0, tensor([ 1., -1.,  0.]))
    """
    resolved = resolve(measure, feature_map)
    return hinge(scores, labels, resolved, reference=resolved.reference(reference), **lists)


class StructuredHingeLoss(HingeLoss):
    """`structured_hinge_loss` as a module; see there for the arguments, the errors and the sources.

    >>> import torch
    >>> loss = StructuredHingeLoss("AP")                                            # SVMmap
    >>> loss
    StructuredHingeLoss(AP, feature_map=pairwise, reference=ideal, reduction=mean)
    >>> loss(torch.tensor([[0.2, 0.1]]), torch.tensor([[1, 0]]))
    tensor(0.3000)
    >>> loss = StructuredHingeLoss("diverse_nDCG@5")                                # at most one document of a group
    >>> loss(torch.tensor([[0.2, 0.1]]), torch.tensor([[0, 1]]), groups=torch.tensor([[3, 3]]))
    tensor(1.1000)
    """

    function = staticmethod(hinge)

    def forward(self, scores: Tensor, labels: Tensor, **lists: Unpack[AllOptions]) -> Tensor:
        """The loss, by the function with its options; a scalar, or one value a list with reduction `"none"`."""
        value = quick_hinge(self, scores, labels, **lists)
        return super().forward(scores, labels, **lists) if value is None else value
