"""Discounted gains for the losses: checked, weighted, and normalised by the best ranking."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rankstruct.lists import are_usual, is_plain, refuse
from rankstruct.losses.base import RankingLoss, longest_of
from rankstruct.measures import DiscountedGain, Measure, nDCG, parse_measure

Target = Literal["grade", "gain"]

_GRADES = 32  # whole labels whose gains are tabulated


class GainLoss(RankingLoss):
    """Base class of the losses of discounted gains: parses the field `measure`."""

    measure: str | Measure = "nDCG"

    def setup(self) -> None:
        """Parse and check the measure."""
        self.measure = self.gain = self.checked(parse_measure(self.measure))

    @property
    def takes_negative_labels(self) -> bool:  # type: ignore[override]
        """Whether the measure defines gains for negative labels."""
        return self.gain.takes_negative_labels

    def checked(self, measure: Measure) -> DiscountedGain:
        """The measure; raises ValueError if the loss does not support it."""
        return normalized_measure(measure, type(self).__name__)


def normalized_measure(measure: str | Measure, loss: str) -> DiscountedGain:
    """The measure, which must be a normalised discounted gain.

    Raises:
        ValueError: it is not one.
    """
    measure = parse_measure(measure)
    if not isinstance(measure, DiscountedGain) or not measure.normalized:
        raise ValueError(f"{loss} requires nDCG or another normalised discounted gain, got {measure.name}")
    return measure


def document_gains(measure: DiscountedGain, labels: Tensor, where: Tensor) -> Tensor:
    """Gains of the documents, `[..., list_size]` float64, 0 in the padding.

    Raises:
        ValueError: a gain is negative or not finite (on other devices than the CPU it is NaN instead).
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
    """`document_gains`; the value of the best ranking; which lists have rankings of different value.

    Gains are multiplied by the item weights, `[..., list_size]`, if given.

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
    """The `count` highest gains, in descending order; plain tensors by NumPy, in a quarter of the time."""
    if not is_plain(gains):
        return gains.topk(count, dim=-1).values
    return torch.from_numpy(np.sort(gains.numpy(), axis=-1)).flip(-1)[..., :count]


def normalized_gains(
    measure: DiscountedGain, labels: Tensor, where: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Gains divided by the value of the best ranking, `[..., list_size]`, and which lists have rankings of different value."""
    gains, best, can_err = checked_gains(measure, labels, where, weights)
    return gains / torch.where(best > 0, best, 1.0).unsqueeze(-1), can_err


def loop_discounts(measure: DiscountedGain, scores: Tensor, offsets: Tensor | None) -> tuple[Tensor, int]:
    """The discounts for the longest list, for compiled loops, and the number of ranks up to the cut-off."""
    size = longest_of(scores, offsets)
    return measure.unchecked_weights(size), size if measure.cutoff is None else min(measure.cutoff, size)


def tables_of(measure: DiscountedGain, size: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The discounts of `size` ranks, and the gains of the first whole labels, or None if a user's function computes them."""
    try:
        return _tables(measure, size)
    except TypeError:  # an unhashable measure
        return _tables.__wrapped__(measure, size)


@lru_cache(maxsize=64)
def _tables(measure: DiscountedGain, size: int) -> tuple[np.ndarray, np.ndarray | None]:
    ours = type(measure).__module__.startswith("rankstruct.") and not callable(getattr(measure, "gain", None))
    gains = measure.document_gains(torch.arange(_GRADES)).numpy() if ours else None
    return measure.unchecked_weights(size).numpy(), gains


def differs(values: Tensor, where: Tensor | None) -> Tensor:
    """Whether two real documents of a list have different values, bool `[...]`; `where` None if all are real."""
    if where is None:
        return values.amax(-1) > values.amin(-1)
    highest = torch.where(where, values, -torch.inf).amax(-1)
    return highest > torch.where(where, values, torch.inf).amin(-1)


def target_of(labels: Tensor, target: str) -> Tensor:
    """The target of a regression on labels: `"grade"`, the labels; `"gain"`, 2^label - 1, in float64."""
    return nDCG().document_gains(labels) if target == "gain" else labels
