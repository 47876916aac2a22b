"""SVMcombo: several losses on the same lists."""

# Without postponed annotations: jsonargparse evaluates them for a dataclass by its fields, not by an `__init__` of its own.

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from rankstruct.argument_names import refuse_groups_of_lists
from rankstruct.checks import check_choice, checked_numbers
from rankstruct.lists import Lists
from rankstruct.losses.assignment import AssignmentHingeLoss
from rankstruct.losses.base import (
    AllOptions,
    RankingLoss,
    is_convex,
    rules_of,
    second_derivatives,
    takes_columns,
    takes_groups,
    takes_reference_scores,
)
from rankstruct.losses.hinge import HingeLoss, StructuredHingeLoss
from rankstruct.losses.reduction import Reduction, reduce_lists
from rankstruct.measures import pAUC

__all__ = ["CombinedLoss", "convex_part"]


class CombinedLoss(RankingLoss):
    """SVMcombo: a weighted sum of losses (a slack each), or the largest of them (one slack for all).

    In the paper the sum was better. The components are on different scales (the first-relevant map of `RR` is not normalised,
    the pairwise map is), so tune the weights. `reference_scores` are passed to the components whose reference depends on scores,
    `diversity_groups` to those that accept them, `columns` to those with rules, and `item_weights` to all, where a component
    without them raises TypeError.

    Args:
        losses: loss modules with measures, feature maps and references of their own; their reduction is ignored. What they learn
            is shared with them. A mapping names them; in a sequence, number and measure are the name.
        weights: one per loss, >= 0, in their order or, of named losses, by name; all 1 if None.
        slack: `"separate"`, the sum of weight times loss; `"shared"`, for each list the maximum of weight times loss.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Attributes:
        slacks: after each call, the mean loss of every component by name, unweighted and detached; `RankingModule` logs them.

    Raises:
        TypeError: `losses` is one loss, or has something that is none.
        ValueError: no losses, a wrong number of weights or a negative one, or an unknown `slack`; (on call) a component that does
            not have one value per list.

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
    takes_item_weights = True  # a component without them raises an error

    def __init__(
        self,
        losses: Sequence[torch.nn.Module] | Mapping[str, torch.nn.Module],
        weights: Sequence[float] | Mapping[str, float] | None = None,
        *,
        slack: str = "separate",
        reduction: Reduction = "mean",
    ) -> None:
        if isinstance(losses, Mapping | torch.nn.ModuleDict):
            names, parts = list(losses.keys()), list(losses.values())
        elif isinstance(losses, Sequence | torch.nn.ModuleList) and not isinstance(losses, str):
            parts = list(losses)
            names = [f"{number}-{_short_name(part)}" for number, part in enumerate(parts)]
        else:
            raise TypeError(f"losses must be a list or mapping of losses, such as [loss, other]; got {losses!r}")
        if not parts:
            raise ValueError("pass at least one loss to combine")
        if isinstance(weights, Mapping):
            if {*weights} != {*names}:
                raise ValueError(f"weights must have a weight for each of {', '.join(names)}; got {weights}")
            weights = [weights[name] for name in names]
        factors = [1.0] * len(parts) if weights is None else [*map(float, checked_numbers(">= 0", weights=weights))]
        if len(factors) != len(parts):
            raise ValueError(f"weights must be {len(parts)} numbers, one per loss; got {factors}")
        check_choice("slack", slack, ("separate", "shared"))
        for part in parts:
            if not hasattr(part, "reduction"):
                raise TypeError(f"{type(part).__name__} has no reduction, so it is not a ranking loss")
        parts = list(map(_sharing, parts))
        for part in parts:
            part.reduction = "none"  # type: ignore[assignment]
        super().__init__(reduction=reduction)
        self.losses, self.names = torch.nn.ModuleList(parts), names
        rules = rules_of(self)
        for each in self.modules():
            if isinstance(each, StructuredHingeLoss) and each.page_rules is not None:
                each._number_with(rules)
        self.weights, self.slack = factors, slack
        self.slacks: dict[str, Tensor] = {}

    @property
    def options(self) -> dict[str, Any]:
        """The constructor's arguments, by name."""
        losses = dict(zip(self.names, self.losses, strict=True))
        return {"losses": losses, "weights": self.weights, "slack": self.slack, "reduction": self.reduction}

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether all components are convex functions of the scores."""
        return all(map(is_convex, self.losses))

    @property
    def takes_groups(self) -> bool:  # type: ignore[override]
        """Whether any component accepts `diversity_groups`."""
        return any(map(takes_groups, self.losses))

    @property
    def takes_columns(self) -> bool:  # type: ignore[override]
        """Whether any component has rules."""
        return any(map(takes_columns, self.losses))

    @property
    def takes_reference_scores(self) -> bool:  # type: ignore[override]
        """Whether any component accepts `reference_scores`."""
        return any(map(takes_reference_scores, self.losses))

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor | None:
        """Second derivatives of the weighted sum, `[documents]`; None if a component has none, or with a shared slack."""
        total = torch.zeros_like(scores)
        for weight, loss in zip(self.weights, self.losses, strict=True):
            each = second_derivatives(loss, scores, labels, offsets, item_weights)
            if each is None or self.slack == "shared":
                return None
            total += weight * each
        return total

    def of_lists(self, scores: Tensor, lists: Lists, reduction: Reduction) -> Tensor:
        """The reduced sum or maximum."""
        given = lists._replace(weights=None).given()
        takes = {"diversity_groups": takes_groups, "columns": takes_columns, "reference_scores": takes_reference_scores}
        chosen = {name: given.pop(name) for name in takes if name in given}
        if lists.offsets is None:
            if lists.item_weights is not None:
                real = lists.item_weights > 0
                given["where"] = real if lists.where is None else lists.where & real
                lists = lists._replace(where=given["where"])
            if not self.takes_groups:
                refuse_groups_of_lists(lists.diversity_groups, scores.shape[:-1])
        parts, shape = [], lists.shape()
        for loss in self.losses:
            own = {name: each for name, each in chosen.items() if takes[name](loss)}
            parts.append(loss(scores, lists.labels, **given, **own))
            if parts[-1].shape != shape:
                raise ValueError(
                    f"{type(loss).__name__} with reduction 'none' must have one value per list, {tuple(shape)}; got "
                    f"{tuple(parts[-1].shape)}"
                )
        self.slacks = {
            name: reduce_lists(part.detach(), lists, "mean") for name, part in zip(self.names, parts, strict=True)
        }
        weighted = torch.stack([weight * part for weight, part in zip(self.weights, parts, strict=True)])
        values = weighted.sum(0) if self.slack == "separate" else weighted.max(0).values
        return reduce_lists(values, lists, reduction)

    def extra_repr(self) -> str:
        """Weights, slack and reduction."""
        return self._shown({name: value for name, value in self.options.items() if name != "losses"})


def _sharing(loss: torch.nn.Module) -> torch.nn.Module:
    """A copy with options of its own, which learns the same parameters."""
    copied = copy.copy(loss)
    copied._parameters = dict(loss._parameters)
    copied._buffers = {
        name: each if each is None or each.requires_grad else each.clone() for name, each in loss._buffers.items()
    }
    copied._modules = {name: None if each is None else _sharing(each) for name, each in loss._modules.items()}
    return copied


def _short_name(loss: torch.nn.Module) -> str:
    measure = getattr(loss, "measure", None)
    return type(loss).__name__ if measure is None else str(measure.name)


def convex_part(loss: torch.nn.Module) -> torch.nn.Module:
    """The convex part P of a bound P - N whose reference depends on the scores: the same loss with the ideal reference.

    N, the score of the reference rankings minus that of the ideal ones, is convex too. With the reference `"below-window"` P is
    the bound for the window from 0 to high, times high / (high - low), and N that for the part below the window.

    Raises:
        ValueError: a combination with a shared slack, or with a component that is neither such a bound nor convex.

    >>> import rankstruct as rs
    >>> convex_part(rs.StructuredHingeLoss("AP", reference="predicted"))
    StructuredHingeLoss(AP, feature_map=pairwise, reference=ideal, reduction=mean)
    """
    if isinstance(loss, CombinedLoss) and not loss.convex:
        if loss.slack == "shared":
            raise ValueError(
                "a combination with a shared slack is not a difference of convex functions; use slack='separate'"
            )
        return loss.with_options(losses=dict(zip(loss.names, map(convex_part, loss.losses), strict=True)))
    if isinstance(loss, HingeLoss) and loss.reference == "below-window":
        measure = cast(pAUC, loss.measure)
        whole = loss.with_options(measure=replace(measure, low=0.0), reference="ideal")
        return CombinedLoss([whole], [measure.high / (measure.high - measure.low)], reduction=loss.reduction)
    part = copy.deepcopy(loss)
    if not is_convex(loss):
        if not (takes_reference_scores(loss) or isinstance(loss, AssignmentHingeLoss)):
            raise ValueError(f"{type(loss).__name__} is not known to be a difference of convex functions")
        part.reference = "ideal"  # type: ignore[assignment]
    return part
