"""Beyond the bounds: direct loss minimisation, and smoothing by random perturbation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack

from rankstruct.feature_maps import FeatureMap, Positional
from rankstruct.lists import check_lists
from rankstruct.losses.base import (
    HingeLoss,
    HingeOptions,
    RankingLoss,
    Reduction,
    check_choice,
    check_positive,
    check_reduction,
    check_size,
    checked_gains,
    hinge,
    list_loss,
    opened,
    reduce_lists,
    takes_groups,
)
from rankstruct.measures import DiscountedGain, Measure
from rankstruct.oracles.registry import Reference, Resolved, resolve

__all__ = ["DirectLoss", "PerturbedLoss", "direct_loss"]

Side = Literal["positive", "negative", "both"]


def direct_loss(
    scores: Tensor,
    labels: Tensor,
    measure: str | Measure = "AP",
    *,
    epsilon: float = 1.0,
    side: Side = "positive",
    feature_map: str | FeatureMap | None = None,
    **lists: Unpack[HingeOptions],
) -> Tensor:
    """Direct loss minimisation: the change of `max F` as the task loss enters with a small factor, per unit of it.

    positive  ( max_r [F + epsilon Delta] - max_r F ) / epsilon        moves away from rankings that are worse
    negative  ( max_r F - max_r [F - epsilon Delta] ) / epsilon        moves towards rankings that are better
    both      their mean, with the smallest bias

    The positive side bounds the task loss of the ranking by score from above, the negative one from below (for the maps that
    prefer it); both tend to it as epsilon goes to 0. Neither is convex, and the gradient is sparse and noisy for small epsilon.
    Take it to finish what a convex bound has started, with a deep scorer and small learning rate; the positive side with
    epsilon 1 is the nonconvex bound `reference="predicted"`.

    Args:
        scores, labels, lists: as in `structured_hinge_loss`, without `reference_scores`.
        measure: a measure or its name.
        epsilon: the factor, above 0.
        side: `"positive"`, for every oracle; `"negative"` or `"both"`, for a discounted gain under the positional map.
        feature_map: how a ranking scores; the measure's own default if None.

    Raises:
        TypeError, ValueError: as `structured_hinge_loss`; epsilon not above 0; a side that the pair does not have.

    Source: McAllester, Hazan, Keshet, "Direct Loss Minimization for Structured Prediction", NIPS 2010; Song, Schwing, Zemel,
    Urtasun, "Training Deep Neural Networks via Direct Loss Minimization", ICML 2016.

    >>> direct_loss(torch.tensor([2.0, 0.5, 0.0]), torch.tensor([0, 1, 0]), "AP", epsilon=0.1)   # 1 - AP
    tensor(0.5000)
    """
    resolved = _checked(resolve(measure, feature_map), epsilon, side)
    resolved.reference("predicted")
    return _direct(scores, labels, resolved, epsilon=epsilon, side=side, **lists)


@opened
def _direct(
    scores: Tensor,
    labels: Tensor,
    resolved: Resolved,
    *,
    epsilon: float,
    side: str,
    reference: Reference = "predicted",
    reference_scores: Tensor | None = None,
    groups: Tensor | None = None,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
    weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    if reference_scores is not None:
        raise TypeError("the direct loss takes no reference_scores: its reference is the predicted ranking")
    bound = partial(hinge, reference="predicted", groups=groups, reduction="none")
    if side == "positive":
        check_reduction(reduction)
        check_lists(scores, labels, where, offsets)
        wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
        values = bound(wide / epsilon, labels, resolved, where=where, offsets=offsets)
        layout: dict[str, Any] = {"where": where, "offsets": offsets, "weights": weights}
        return reduce_lists(values, **layout, reduction=reduction, dtype=scores.dtype)
    measure = resolved.measure
    assert isinstance(measure, DiscountedGain)
    other_side = resolve(_Flipped(measure.cutoff, of=measure), resolved.feature_map)

    def per_list(scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
        # max [F - Delta] has the gains (highest - b) in place of b, and Delta turned round; then what is left of the
        # largest regret is the other side's loss.
        flipped, span, can_err = _flip(labels, where, measure)
        other = bound(scores / epsilon, flipped, other_side, where=where)
        found = torch.where(can_err, (span - other).clamp(min=0.0), 0.0)
        return found if side == "negative" else (bound(scores / epsilon, labels, resolved, where=where) + found) / 2

    given: dict[str, Any] = {"where": where, "offsets": offsets, "weights": weights, "reduction": reduction}
    return list_loss(per_list, scores, labels, signed=measure.takes_negative_labels, **given)


class DirectLoss(HingeLoss):
    """`direct_loss` as a module; see there for the arguments, the errors and the sources.

    >>> DirectLoss("nDCG@10", epsilon=0.1, side="both", feature_map="positional")
    DirectLoss(nDCG@10, epsilon=0.1, side=both, feature_map=positional(i^-0.5), reference=predicted, reduction=mean)
    """

    function = staticmethod(_direct)
    takes_reference_scores = False

    def __init__(
        self,
        measure: str | Measure = "AP",
        *,
        epsilon: float = 1.0,
        side: Side = "positive",
        feature_map: str | FeatureMap | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(measure, feature_map=feature_map, reference="predicted", reduction=reduction)
        _checked(self.resolved, epsilon, side)
        self.set_options(epsilon=epsilon, side=side)


def _checked(resolved: Resolved, epsilon: float, side: str) -> Resolved:
    check_positive("epsilon", epsilon)
    check_choice("side", side, get_args(Side))
    pair = isinstance(resolved.measure, DiscountedGain) and isinstance(resolved.feature_map, Positional)
    if side != "positive" and not pair:
        raise ValueError(
            f"side {side!r} needs a discounted gain such as nDCG and the positional map; got {resolved.measure.name} and "
            f"{resolved.feature_map.name}"
        )
    return resolved


@dataclass(frozen=True)
class _Flipped(DiscountedGain):
    """A measure's discounts; its labels are gains already."""

    of: DiscountedGain | None = None

    def discounts(self, ranks: Tensor) -> Tensor:
        assert self.of is not None
        return self.of.discounts(ranks)

    def gains(self, labels: Tensor) -> Tensor:
        return labels


def _flip(labels: Tensor, where: Tensor, measure: DiscountedGain) -> tuple[Tensor, Tensor, Tensor]:
    """Highest gain less each gain, 0 in the padding; the best less the worst value; which lists a ranking can get wrong."""
    gains, best, can_err = checked_gains(measure, labels, where)
    weights = measure.unchecked_weights(labels.shape[-1], labels.device)
    if measure.normalized:
        gains = gains / torch.where(best > 0, best, 1.0).unsqueeze(-1)
        best = (best > 0).double()
    worst = torch.where(where, gains, torch.inf).sort(-1).values
    worst = (torch.where(worst.isfinite(), worst, 0.0) * weights).sum(-1)
    return torch.where(where, gains.amax(-1, keepdim=True) - gains, 0.0), best - worst, can_err


class PerturbedLoss(RankingLoss):
    """Any loss, averaged over random perturbations of the scores: a smooth function, estimated from samples.

    The structured hinge is piecewise linear; the mean of it over Gaussian noise is smooth, still convex and still a bound where
    the hinge itself is, and its gradient is the mean of the rankings that the noise finds. Deep scorers profit where the
    gradient of single rankings is too sparse; the noise should be about the size of the score differences that matter.

    Args:
        loss: the loss module.
        sigma: the standard deviation of the noise, in units of the scores; >= 0.
        samples: perturbed copies a call; each costs the loss once.

    Noise is drawn from torch's global generator, in training and evaluation alike.

    Source: Berthet, Blondel, Teboul, Cuturi, Vert, Bach, "Learning with Differentiable Perturbed Optimizers", NeurIPS 2020.

    >>> import rankstruct as rs
    >>> loss = PerturbedLoss(rs.StructuredHingeLoss("AP"), sigma=0.0, samples=2)
    >>> loss(torch.tensor([[2.0, 0.5, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor(2.)
    """

    def __init__(self, loss: torch.nn.Module, *, sigma: float = 0.1, samples: int = 4) -> None:
        if not 0 <= sigma < math.inf or samples < 1:
            raise ValueError(f"sigma must be finite and >= 0 and samples >= 1, got {sigma} and {samples}")
        check_size("sigma", sigma)
        torch.nn.Module.__init__(self)
        self.loss = loss
        self.sigma = sigma
        self.samples = samples

    @property
    def reduction(self) -> Reduction:
        """That of the loss."""
        return cast(Reduction, self.loss.reduction)

    @reduction.setter
    def reduction(self, value: str) -> None:
        self.loss.reduction = value  # type: ignore[assignment]

    @property
    def takes_groups(self) -> bool:  # type: ignore[override]
        """Whether the loss does."""
        return takes_groups(self.loss)

    @opened
    def forward(self, scores: Tensor, labels: Tensor, **lists: Any) -> Tensor:
        """The mean loss of the perturbed scores; a scalar, or one value a list with reduction `"none"`."""
        check_lists(scores, labels, lists.get("where"), lists.get("offsets"))
        noise = (self.sigma * torch.randn_like(scores) for _ in range(self.samples))
        return torch.stack([self.loss(scores + each, labels, **lists) for each in noise]).mean(0)

    def extra_repr(self) -> str:
        """The noise."""
        return f"sigma={self.sigma:g}, samples={self.samples}"
