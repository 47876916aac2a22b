"""SVMcombo: several losses of the same lists at once."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import Unpack

from rankstruct.lists import refuse_groups_of_lists
from rankstruct.losses.assignment import AssignmentHingeLoss
from rankstruct.losses.base import (
    AllOptions,
    RankingLoss,
    is_convex,
    second_derivatives,
    takes_groups,
    takes_reference_scores,
)
from rankstruct.losses.checks import check_choice
from rankstruct.losses.hinge import HingeLoss
from rankstruct.losses.reduction import Reduction, reduce_lists
from rankstruct.measures import pAUC

__all__ = ["CombinedLoss", "convex_part"]


class CombinedLoss(RankingLoss):
    """SVMcombo: a weighted sum of losses (a slack each), or the largest of them (one slack for all).

    In the paper the sum did better. The components have different units: the first-relevant map of `RR` is not scaled, the
    pairwise map is, so the weights are worth a search.

    Args:
        losses: loss modules, any mix, each with its own measure, feature map and reference; their own reduction does not count.
            A mapping names them, otherwise they are named by their number and what they print.
        weights: one a loss, >= 0; 1 each if None.
        slack: `"separate"`, the sum of weight times loss; `"shared"`, for each list the largest weight times loss.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Attributes:
        slacks: after each call, the mean loss of every component by name, without its weight and detached;
            `RankingModule` logs them.

    Raises:
        ValueError: no losses, another number of weights or a negative one, or an unknown `slack`.

    Source: Chakrabarti, Khanna, Sawant, Bhattacharyya, "Structured Learning for Non-Smooth Ranking Losses", KDD 2008,
    section 3.5.

    >>> import rankstruct as rs
    >>> loss = CombinedLoss([rs.StructuredHingeLoss("AP"), rs.StructuredHingeLoss("RR@10")], weights=[1.0, 0.1])
    >>> loss(torch.tensor([[0.2, 0.1, 0.3]]), torch.tensor([[0, 1, 0]]))
    tensor(1.0405)
    >>> {name: round(value.item(), 4) for name, value in loss.slacks.items()}
    {'0-AP': 0.9667, '1-RR@10': 0.7382}
    """

    call_options = AllOptions
    takes_item_weights = True  # if all components do; one that does not refuses them

    def __init__(
        self,
        losses: Sequence[torch.nn.Module] | Mapping[str, torch.nn.Module],
        weights: Sequence[float] | None = None,
        *,
        slack: str = "separate",
        reduction: Reduction = "mean",
    ) -> None:
        if isinstance(losses, Mapping):
            names, parts = list(losses), list(losses.values())
        else:
            parts = list(losses)
            names = [f"{number}-{_short_name(part)}" for number, part in enumerate(parts)]
        if not parts:
            raise ValueError("give at least one loss to combine")
        factors = [1.0] * len(parts) if weights is None else [float(weight) for weight in weights]
        if len(factors) != len(parts) or not all(weight >= 0 for weight in factors):
            raise ValueError(f"weights must be {len(parts)} numbers >= 0, one a loss; got {factors}")
        check_choice("slack", slack, ("separate", "shared"))
        parts = [copy.deepcopy(part) for part in parts]
        for part in parts:
            if not hasattr(part, "reduction"):
                raise ValueError(f"{type(part).__name__} has no reduction, so it is no loss of lists")
            part.reduction = "none"  # type: ignore[assignment]
        super().__init__(reduction=reduction)
        self.losses, self.names = torch.nn.ModuleList(parts), names
        self.weights, self.slack = factors, slack
        self.slacks: dict[str, Tensor] = {}

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the constructor, by name."""
        losses = dict(zip(self.names, self.losses, strict=True))
        return {"losses": losses, "weights": self.weights, "slack": self.slack, "reduction": self.reduction}

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether all components are convex functions of the scores."""
        return all(map(is_convex, self.losses))

    @property
    def takes_groups(self) -> bool:  # type: ignore[override]
        """Whether any component does."""
        return any(map(takes_groups, self.losses))

    @property
    def takes_reference_scores(self) -> bool:  # type: ignore[override]
        """Whether any component does."""
        return any(map(takes_reference_scores, self.losses))

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor | None:
        """Of the weighted sum, `[documents]`; None where those of a component are not known, or with one slack for all."""
        total = torch.zeros_like(scores)
        for weight, loss in zip(self.weights, self.losses, strict=True):
            each = second_derivatives(loss, scores, labels, offsets, item_weights)
            if each is None or self.slack == "shared":
                return None
            total += weight * each
        return total

    def forward(self, scores: Tensor, labels: Tensor, **lists: Unpack[AllOptions]) -> Tensor:
        """The loss: a scalar, or one value a list with reduction `"none"`.

        `reference_scores` go to the components whose reference is chosen by scores, `groups` to those that take them,
        `item_weights` to all, and a component that takes none refuses them.
        """
        return self.evaluate(scores, labels, {**lists})

    def of_lists(
        self,
        scores: Tensor,
        labels: Tensor,
        *,
        weights: Tensor | None = None,
        item_weights: Tensor | None = None,
        reduction: Reduction = "mean",
        groups: Tensor | None = None,
        reference_scores: Tensor | None = None,
        **layout: Any,
    ) -> Tensor:
        """The reduced sum, or what is largest."""
        if item_weights is not None and "offsets" not in layout:
            real = layout.get("where")
            layout["where"] = item_weights > 0 if real is None else real & (item_weights > 0)
        if groups is not None and not self.takes_groups and "offsets" not in layout:
            refuse_groups_of_lists(groups, scores.shape[:-1])
        parts = []
        for loss in self.losses:
            chosen = {"groups": groups} if takes_groups(loss) else {}
            if takes_reference_scores(loss) and reference_scores is not None:
                chosen["reference_scores"] = reference_scores
            if item_weights is not None:
                chosen["item_weights"] = item_weights
            parts.append(loss(scores, labels, **layout, **chosen))
        self.slacks = {
            name: reduce_lists(part.detach(), weights=weights, reduction="mean", **layout)
            for name, part in zip(self.names, parts, strict=True)
        }
        weighted = torch.stack([weight * part for weight, part in zip(self.weights, parts, strict=True)])
        values = weighted.sum(0) if self.slack == "separate" else weighted.max(0).values
        return reduce_lists(values, weights=weights, reduction=reduction, **layout)

    def extra_repr(self) -> str:
        """Weights, slack and reduction."""
        return self._shown({name: value for name, value in self.options.items() if name != "losses"})


def _short_name(loss: torch.nn.Module) -> str:
    measure = getattr(loss, "measure", None)
    return type(loss).__name__ if measure is None else str(measure.name)


def convex_part(loss: torch.nn.Module) -> torch.nn.Module:
    """The convex P of a bound P - N whose reference the scores choose: the same loss against the ideal ranking.

    N, the score of the reference rankings less that of the ideal ones, is convex too. With the reference `"below-window"` P is
    the bound of the window from 0 on, times high / (high - low), and N that of what lies below the window.

    Raises:
        ValueError: a combination with one slack for all, or with a component that is no such bound nor convex.

    >>> import rankstruct as rs
    >>> convex_part(rs.StructuredHingeLoss("AP", reference="predicted"))
    StructuredHingeLoss(AP, feature_map=pairwise, reference=ideal, reduction=mean)
    """
    if isinstance(loss, CombinedLoss) and not loss.convex:
        if loss.slack == "shared":
            raise ValueError(
                "a combination with one slack for all is no difference of convex functions; use slack='separate'"
            )
        return loss.with_options(losses=dict(zip(loss.names, map(convex_part, loss.losses), strict=True)))
    if isinstance(loss, HingeLoss) and loss.reference == "below-window":
        measure = cast(pAUC, loss.measure)
        whole = loss.with_options(measure=replace(measure, low=0.0), reference="ideal")
        return CombinedLoss([whole], [measure.high / (measure.high - measure.low)], reduction=loss.reduction)
    part = copy.deepcopy(loss)
    if not is_convex(loss):
        if not (takes_reference_scores(loss) or isinstance(loss, AssignmentHingeLoss)):
            raise ValueError(f"{type(loss).__name__} is no difference of convex functions that is known here")
        part.reference = "ideal"  # type: ignore[assignment]
    return part
