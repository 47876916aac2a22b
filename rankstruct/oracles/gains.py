"""What documents gain by their labels, which a measure says in torch: once for each whole grade, then from a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from torch import Tensor

from rankstruct.kernels.dispatch import Answer, ListOperator
from rankstruct.lists import is_eager, refuse_negative
from rankstruct.measures import Measure

_GRADES = 256


def known_gains(measure: Measure) -> np.ndarray | None:
    """The table of a measure, float64 `[grades]`, NaN where a grade has not been seen; None where a grade may gain this and that.

    A function of a user's, or a measure, may remember, and may equal another.
    """
    if not type(measure).__module__.startswith("rankstruct.") or callable(getattr(measure, "gain", None)):
        return None
    try:
        return _table(measure)
    except TypeError:  # a measure that cannot be a key
        return None


@lru_cache(maxsize=64)
def _table(measure: Measure) -> np.ndarray:
    return np.full(_GRADES, np.nan)


def solve_gains(
    operator: ListOperator,
    measure: Measure,
    gains: Callable[[Tensor], Tensor],
    lists: Sequence[Any],
    options: Sequence[Any],
) -> Answer:
    """The answer of an operator whose labels are gains, for `lists` with labels, which `gains` makes float64 gains of.

    Labels below 0 that the measure gives no meaning are refused.
    """
    scores, labels, where, *rest = lists
    known = known_gains(measure) if is_eager(scores) and is_eager(labels) else None
    if known is not None:
        answer = operator.by_grade(lists, known, options)
        if answer is not None:
            return answer
    found = gains(labels if measure.takes_negative_labels else refuse_negative(labels, where))
    if known is not None:
        _learn(known, labels, where, found)
    return operator(scores, found, where, *rest, 0.0, *options)


def _learn(table: np.ndarray, labels: Tensor, where: Tensor | None, gains: Tensor) -> None:
    of_label, of_gain = labels.double().numpy().reshape(-1), gains.double().numpy().reshape(-1)
    here = (of_label >= 0) & (of_label < len(table)) & (of_label == np.floor(of_label)) & np.isfinite(of_gain)
    if where is not None:
        here &= where.numpy().reshape(-1)
    table[of_label[here].astype(np.int64)] = of_gain[here]
