"""The exception for invalid data, and helpers for messages and argument checks."""

from __future__ import annotations

from numbers import Integral
from typing import Any

__all__ = ["DataError"]


class DataError(ValueError):
    """Invalid data; the message has the place (file and line, if any), what was expected and how to fix it.

    >>> from rankstruct.data import RankingData
    >>> try:
    ...     RankingData.from_arrays([[1.0], [2.0]], [0, 1, 1], ["a", "a"])
    ... except DataError as error:
    ...     print(error)
    y and qid must have shape [documents], one entry per document; got (3,) and (2,)
    """


def shortened(value: object, most: int = 60) -> str:
    """`repr(value)` for a message, with long strings and bytes truncated.

    >>> shortened("qid:1"), len(shortened("x" * 10_000))
    ("'qid:1'", 65)
    """
    if isinstance(value, str | bytes) and len(value) > most:
        return f"{value[:most]!r}..."
    return repr(value)


def check_integers(least: int, **values: Any) -> None:
    """Raise ValueError if an argument is not an integer of at least `least`; True is none."""
    for name, value in values.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be an integer from {least}, got {value!r}")


def check_least(least: float, **values: float | None) -> None:
    """Raise ValueError if an argument, other than None, is below `least`."""
    for name, value in values.items():
        if value is not None and not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
