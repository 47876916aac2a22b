"""Gains of documents for the oracles: computed by the measure once for each whole grade, then looked up in a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels.dispatch import Answer, ListOperator
from rankstruct.lists import Lists, is_eager, refuse_negative
from rankstruct.measures import Measure
from rankstruct.measures.ranked import is_relevant

_GRADES = 256


def known_gains(measure: Measure) -> np.ndarray | None:
    """The table of a measure, float64 `[grades]`, NaN for grades not seen yet; None if the gain of a grade may vary.

    A user's function or measure may be stateful, or compare equal to another.
    """
    if not type(measure).__module__.startswith("rankstruct.") or callable(getattr(measure, "gain", None)):
        return None
    try:
        return _table(measure)
    except TypeError:  # an unhashable measure
        return None


@lru_cache(maxsize=64)
def _table(measure: Measure) -> np.ndarray:
    return np.full(_GRADES, np.nan)


def solve_gains(
    operator: ListOperator,
    measure: Measure,
    gains: Callable[[Tensor], Tensor],
    scores: Tensor,
    lists: Lists,
    options: Sequence[Any],
) -> Answer:
    """Call an operator on gains, to which `gains` converts labels, float64.

    Negative labels raise an error unless the measure supports them.
    """
    labels, where = lists.labels, lists.where
    known = known_gains(measure) if is_eager(scores) and is_eager(labels) else None
    if known is not None:
        answer = operator.by_grade(scores, lists, known, options)
        if answer is not None:
            return answer
    found = gains(labels if measure.takes_negative_labels else refuse_negative(labels, where))
    if known is not None:
        _learn(known, labels, where, found)
    return operator(scores, lists._replace(labels=found), 0.0, *options)


def hits(labels: Tensor, min_relevant: float | None) -> Tensor:
    """1 for relevant documents and 0 for others, float64; NaN if the label is not finite."""
    found = is_relevant(labels, min_relevant).double()
    return torch.where(torch.isfinite(labels), found, torch.nan) if labels.dtype.is_floating_point else found


def _learn(table: np.ndarray, labels: Tensor, where: Tensor | None, gains: Tensor) -> None:
    of_label, of_gain = labels.double().numpy().reshape(-1), gains.double().numpy().reshape(-1)
    here = (of_label >= 0) & (of_label < len(table)) & (of_label == np.floor(of_label)) & np.isfinite(of_gain)
    if where is not None:
        here &= where.numpy().reshape(-1)
    table[of_label[here].astype(np.int64)] = of_gain[here]
