"""Discounted gains, as losses need them: checked, weighted, and over those of the best ranking."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rankstruct.lists import is_plain, refuse
from rankstruct.losses.base import RankingLoss, longest_of
from rankstruct.losses.checks import are_usual
from rankstruct.measures import DiscountedGain, Measure, nDCG, parse_measure

Target = Literal["grade", "gain"]


class GainLoss(RankingLoss):
    """Base of the losses of discounted gains: the field `measure` becomes one."""

    measure: str | Measure = "nDCG"

    def setup(self) -> None:
        """Find the measure."""
        self.measure = self.gain = self.checked(parse_measure(self.measure))

    @property
    def takes_negative_labels(self) -> bool:  # type: ignore[override]
        """Whether the measure says what labels below 0 are worth."""
        return self.gain.takes_negative_labels

    def checked(self, measure: Measure) -> DiscountedGain:
        """The measure, if it is one that the loss takes; else a ValueError."""
        return normalized_measure(measure, type(self).__name__)


def normalized_measure(measure: str | Measure, loss: str) -> DiscountedGain:
    """The measure, which must be a discounted gain divided by that of the best ranking.

    Raises:
        ValueError: it is another one.
    """
    measure = parse_measure(measure)
    if not isinstance(measure, DiscountedGain) or not measure.normalized:
        raise ValueError(f"{loss} takes nDCG or another normalised discounted gain, got {measure.name}")
    return measure


def document_gains(measure: DiscountedGain, labels: Tensor, where: Tensor) -> Tensor:
    """Gains of the documents, `[..., list_size]` float64, 0 in the padding.

    Raises:
        ValueError: on the CPU, a gain is negative or not finite; on other devices it is NaN.
    """
    gains = torch.where(where, measure.document_gains(labels), 0.0)
    if are_usual(gains, 0.0):
        return gains
    rule = f"labels must have finite gains >= 0 under {measure.name}"
    wrong = ~((gains >= 0) & (gains < math.inf))
    return refuse(gains, wrong, f"{rule} (shift them, or choose another gain= or min_relevant=)")


def checked_gains(
    measure: DiscountedGain, labels: Tensor, where: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`document_gains`; the value of the best ranking; which lists a ranking can get wrong.

    Gains are multiplied by the item weights, `[..., list_size]`, if there are any.

    Returns:
        `[..., list_size]`, `[...]` and bool `[...]`.
    """
    gains = document_gains(measure, labels, where)
    gains = gains if weights is None else gains * weights
    discounts = measure.unchecked_weights(labels.shape[-1], labels.device)
    kept = labels.shape[-1] if measure.cutoff is None else min(measure.cutoff, labels.shape[-1])
    best = _highest(gains, kept) @ discounts[:kept]
    last = (where.sum(-1, keepdim=True) - 1).clamp(min=0)
    falls = discounts.expand(where.shape).gather(-1, last).squeeze(-1) < discounts[0]
    return gains, best, differs(gains, where) & (best > 0) & falls


def _highest(gains: Tensor, count: int) -> Tensor:
    """The `count` highest, highest first; of plain values by NumPy, in a quarter of the time."""
    if not is_plain(gains):
        return gains.topk(count, dim=-1).values
    return torch.from_numpy(np.sort(gains.numpy(), axis=-1)).flip(-1)[..., :count]


def normalized_gains(
    measure: DiscountedGain, labels: Tensor, where: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`checked_gains` over the value of the best ranking, `[..., list_size]`, and which lists a ranking can get wrong."""
    gains, best, can_err = checked_gains(measure, labels, where, weights)
    return gains / torch.where(best > 0, best, 1.0).unsqueeze(-1), can_err


def loop_discounts(measure: DiscountedGain, scores: Tensor, offsets: Tensor | None) -> tuple[Tensor, int]:
    """The discounts of the longest of the lists, as compiled loops take them, and how many of its ranks have one."""
    size = longest_of(scores, offsets)
    return measure.unchecked_weights(size), size if measure.cutoff is None else min(measure.cutoff, size)


def differs(values: Tensor, where: Tensor) -> Tensor:
    """`[...]` bool: whether two real documents of the list have different values."""
    highest = torch.where(where, values, -torch.inf).amax(-1)
    return highest > torch.where(where, values, torch.inf).amin(-1)


def target_of(labels: Tensor, target: str) -> Tensor:
    """What a regression on labels predicts: `"grade"`, the labels; `"gain"`, 2^label - 1, in float64."""
    return nDCG().document_gains(labels) if target == "gain" else labels
