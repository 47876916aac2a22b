"""Corrections for multiple tests, and the stars of the papers' tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["holm", "stars"]


def holm(p_values: ArrayLike) -> np.ndarray:
    """Holm's step-down correction: p-values that can be compared with the family-wise level.

    The i-th smallest of m is `max over j <= i of min(1, (m - j + 1) p_j)`. The tests may depend on each other in any way.

    Args:
        p_values: any shape, all in one family; leave out what was not compared.

    Raises:
        ValueError: a value outside 0 to 1, or NaN, since the number of tests affects all of them.

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics, 1979.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p_values, float)
    wrong = ~((p >= 0) & (p <= 1))
    if wrong.any():
        raise ValueError(f"p-values must be between 0 and 1, got {p[wrong][0]}; leave out what was not compared")
    order = np.argsort(p, axis=None, kind="stable")
    corrected = np.empty(p.size)
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, np.arange(p.size, 0, -1) * p.ravel()[order]))
    return corrected.reshape(p.shape)


def stars(p: float) -> str:
    """Significance stars: `**` for p < 0.01, `*` for p < 0.05, otherwise an empty string.

    >>> stars(0.003), stars(0.03), stars(0.3)
    ('**', '*', '')
    """
    return "**" if p < 0.01 else "*" if p < 0.05 else ""
