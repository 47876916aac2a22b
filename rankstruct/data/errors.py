"""The error of everything that is read from a file, what its messages show, and a check of arguments."""

from __future__ import annotations

__all__ = ["DataError"]


class DataError(ValueError):
    """Data that break a rule; the message names the place (file and line, if any), the rule and the way out."""


def shortened(value: object, most: int = 60) -> str:
    """`repr(value)` for a message: cut where a string or bytes is long.

    >>> shortened("qid:1"), len(shortened("x" * 10_000))
    ("'qid:1'", 65)
    """
    if isinstance(value, str | bytes) and len(value) > most:
        return f"{value[:most]!r}..."
    return repr(value)


def check_least(least: float, **values: float | None) -> None:
    """Raise ValueError where an argument, other than None, is below `least`."""
    for name, value in values.items():
        if value is not None and not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
