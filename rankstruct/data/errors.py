"""The error of everything that is read from a file."""

from __future__ import annotations

__all__ = ["DataError"]


class DataError(ValueError):
    """Data that break a rule; the message names the place (file and line, if any), the rule and the way out."""
