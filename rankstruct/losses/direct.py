"""Direct loss minimisation, and smoothing by random perturbation."""

# Without postponed annotations: jsonargparse evaluates them for a dataclass by its fields, not by an `__init__` of its own.

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, cast

import torch
from torch import Tensor

from rankstruct.argument_names import refuse_groups_of_lists
from rankstruct.checks import check_integers, check_numbers
from rankstruct.feature_maps import Positional
from rankstruct.lists import Lists
from rankstruct.losses.base import AllOptions, RankingLoss, takes_columns, takes_groups
from rankstruct.losses.gains import checked_gains
from rankstruct.losses.hinge import HingeLoss, hinge
from rankstruct.losses.reduction import HALVES, Reduction, reduce_lists
from rankstruct.measures import DiscountedGain
from rankstruct.messages import shortened
from rankstruct.oracles.registry import Reference, resolve

__all__ = ["DirectLoss", "PerturbedLoss"]


class DirectLoss(HingeLoss):
    """Direct loss minimisation: the finite difference of `max F` with respect to a small multiple epsilon of the task loss.

    positive  ( max_r [F + epsilon Delta] - max_r F ) / epsilon        moves away from worse rankings
    negative  ( max_r F - max_r [F - epsilon Delta] ) / epsilon        moves towards better rankings
    both      their mean, with the smallest bias

    The positive side is an upper bound of the task loss of the ranking by score, the negative side a lower bound (for feature
    maps that score this ranking highest). Both tend to the task loss as epsilon goes to 0. Neither is convex, and the gradient
    is sparse and noisy for small epsilon. Use the loss to fine-tune, at a small learning rate, a deep scorer that was trained
    with a convex bound. The positive side with epsilon 1 is the nonconvex bound `reference="predicted"`.

    Args:
        measure: a measure or its name.
        feature_map: how a ranking scores; the measure's own default if None.
        epsilon: the factor, above 0.
        side: `"positive"`, for every oracle; `"negative"` or `"both"`, for a discounted gain with the positional map.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        TypeError, ValueError: as `StructuredHingeLoss`; `reference_scores`; epsilon not above 0; a side that measure and feature
            map do not support.

    Source: McAllester, Hazan, Keshet, "Direct Loss Minimization for Structured Prediction", NIPS 2010; Song, Schwing, Zemel,
    Urtasun, "Training Deep Neural Networks via Direct Loss Minimization", ICML 2016.

    >>> DirectLoss("AP", epsilon=0.1)(torch.tensor([2.0, 0.5, 0.0]), torch.tensor([0, 1, 0]))   # 1 - AP
    tensor(0.5000)
    >>> DirectLoss("nDCG@10", epsilon=0.1, side="both", feature_map="positional")
    DirectLoss(nDCG@10, epsilon=0.1, side=both, feature_map=positional(i^-0.5), reference=predicted, reduction=mean)
    """

    _: KW_ONLY
    reference: Reference | None = field(init=False, default="predicted")
    epsilon: float = 1.0
    side: Literal["positive", "negative", "both"] = "positive"
    takes_reference_scores = False
    takes_item_weights = False
    refuse_item_weights = RankingLoss.refuse_item_weights

    def setup(self) -> None:
        """Find the oracle, and check epsilon and the side."""
        super().setup()
        check_numbers("> 0", epsilon=self.epsilon)
        if self.side != "positive":
            measure, feature_map = self.resolved.measure, self.resolved.feature_map
            if not (isinstance(measure, DiscountedGain) and isinstance(feature_map, Positional)):
                raise ValueError(
                    f"side {self.side!r} needs a discounted gain such as nDCG and the positional map; got {measure.name} and "
                    f"{feature_map.name}"
                )
            self._other_side = resolve(_Flipped(measure.cutoff, of=measure), feature_map)

    @property
    def takes_negative_labels(self) -> bool:  # type: ignore[override]
        """Whether the measure defines gains for negative labels."""
        return self.resolved.signed

    def of_lists(self, scores: Tensor, lists: Lists, reduction: Reduction) -> Tensor:
        """The reduced loss: the positive side by the oracle, for any layout, the others by `per_list`."""
        if lists.reference_scores is not None:
            raise TypeError("DirectLoss does not accept reference_scores: its reference is the predicted ranking")
        if self.side != "positive":
            if lists.offsets is None:
                refuse_groups_of_lists(lists.diversity_groups, scores.shape[:-1])
            return self._by_torch(scores, lists, reduction)
        wide = scores.float() if scores.dtype in HALVES else scores
        return reduce_lists(self._positive(wide, lists), lists, reduction, scores.dtype)

    def _positive(self, scores: Tensor, lists: Lists) -> Tensor:
        return hinge(scores / self.epsilon, lists, self.resolved, "predicted")

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
        """One value per list, for the negative side or both."""
        # max [F - Delta] is the same problem with gains (highest - b) in place of b, and Delta negated; the largest regret
        # minus its loss is the loss of the other side.
        measure = self.resolved.measure
        assert isinstance(measure, DiscountedGain)
        flipped, span, can_err = _flip(labels, where, measure)
        other = hinge(scores / self.epsilon, Lists(flipped, where), self._other_side, "predicted")
        found = torch.where(can_err, (span - other).clamp(min=0.0), 0.0)
        return found if self.side == "negative" else (self._positive(scores, Lists(labels, where)) + found) / 2


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
    """Highest gain minus each gain, 0 in the padding; best minus worst value; which lists have rankings of different value."""
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

    The structured hinge is piecewise linear. Its mean over Gaussian noise is smooth, and still convex and a bound if the hinge
    is. The gradient is the mean over the rankings of the perturbed scores. This helps deep scorers if the gradient of a single
    ranking is too sparse. The noise should be about the size of the score differences that matter.

    Noise is sampled from torch's global generator, in both training and evaluation.

    Args:
        loss: the loss module, whose reduction is used.
        sigma: the standard deviation of the noise, in units of the scores; >= 0.
        samples: the number of perturbed copies per call; each evaluates the loss once.

    Raises:
        TypeError: a loss that is not a module.
        ValueError: a sigma or a number of samples out of range.

    Source: Berthet, Blondel, Teboul, Cuturi, Vert, Bach, "Learning with Differentiable Perturbed Optimizers", NeurIPS 2020.

    >>> import rankstruct as rs
    >>> loss = PerturbedLoss(rs.StructuredHingeLoss("AP"), sigma=0.0, samples=2)
    >>> loss(torch.tensor([[2.0, 0.5, 0.0]]), torch.tensor([[0, 1, 0]]))
    tensor(2.)
    """

    call_options = AllOptions
    takes_item_weights = True  # a loss without them raises an error
    draws = True

    def __init__(self, loss: torch.nn.Module, *, sigma: float = 0.1, samples: int = 4) -> None:
        if not isinstance(loss, torch.nn.Module):
            raise TypeError(f"loss must be a module, such as StructuredHingeLoss('nDCG@10'), got {shortened(loss)}")
        check_numbers(">= 0", sigma=sigma)
        check_integers(1, samples=samples)
        self.loss, self.sigma, self.samples = loss, sigma, samples

    @property
    def options(self) -> dict[str, Any]:
        """The constructor's arguments, by name."""
        return {"loss": self.loss, "sigma": self.sigma, "samples": self.samples}

    @property  # type: ignore[misc]
    def reduction(self) -> Reduction:
        """The reduction of the loss."""
        return cast(Reduction, getattr(self.loss, "reduction", "mean"))

    @reduction.setter
    def reduction(self, value: Reduction) -> None:
        self.loss.reduction = value  # type: ignore[assignment]

    @property
    def takes_groups(self) -> bool:  # type: ignore[override]
        """Whether the loss accepts `diversity_groups`."""
        return takes_groups(self.loss)

    @property
    def takes_columns(self) -> bool:  # type: ignore[override]
        """Whether the loss has rules."""
        return takes_columns(self.loss)

    def of_lists(self, scores: Tensor, lists: Lists, reduction: Reduction) -> Tensor:
        """The mean loss; a reduction is passed to the loss only if it differs from its own."""
        more: dict[str, Any] = (
            {**lists.given()} if reduction == self.reduction else {**lists.given(), "reduction": reduction}
        )
        noise = (self.sigma * torch.randn_like(scores) for _ in range(self.samples))
        return torch.stack([self.loss(scores + each, lists.labels, **more) for each in noise]).mean(0)

    def extra_repr(self) -> str:
        """The standard deviation and the number of samples."""
        return f"sigma={self.sigma:g}, samples={self.samples}"
