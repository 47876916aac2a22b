"""Helpers for error messages: one line each, with suggestions for unknown names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LONGEST = 600


def one_line(message: str) -> str:
    r"""Put a message on one line, without type names; the middle of a very long one is cut out.

    >>> one_line("Parser key x:\n  Expected a typing.Literal[1, 2]. Got value: 3")
    'Parser key x: Expected one of 1, 2. Got value: 3'
    >>> len(one_line("x" * 10_000))
    605
    """
    text = re.sub(r"a typing\.Literal\[([^]]*)\]", r"one of \1", " ".join(message.split()))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 200]} ... {text[-200:]}"


def nearest(name: str, known: Iterable[str], *, most: int = 1, least: float = 0.6) -> list[str]:
    """The known names closest to `name`, closest first, ignoring case.

    Args:
        name: the name given.
        known: the names that exist.
        most: the maximum number returned.
        least: the minimum similarity, from 0 to 1.

    >>> nearest("lambdaloss", ["LambdaLoss", "ListNetLoss"])
    ['LambdaLoss']
    """
    lower = {each.lower(): each for each in reversed(list(known))}
    return [lower[each] for each in difflib.get_close_matches(name.lower(), lower, most, least)]


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1, least: float = 0.6) -> str:
    """The suffix of a message about an unknown name: the closest known names, or nothing; see `nearest`.

    >>> "unknown measure 'nDGC'" + did_you_mean("nDGC", ["AP", "nDCG"])
    "unknown measure 'nDGC'; did you mean nDCG?"
    """
    near = nearest(name, known, most=most, least=least)
    return f"; did you mean {' or '.join(near)}?" if near else ""
