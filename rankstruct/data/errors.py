"""The error of everything that is read from a file, and a check of arguments."""

from __future__ import annotations

__all__ = ["DataError"]


class DataError(ValueError):
    """Data that break a rule; the message names the place (file and line, if any), the rule and the way out."""


def check_least(least: float, **values: float | None) -> None:
    """Raise ValueError where an argument, other than None, is below `least`."""
    for name, value in values.items():
        if value is not None and not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
