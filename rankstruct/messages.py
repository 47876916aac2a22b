"""What messages have in common: they are one line, and name what may have been meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LONGEST = 600


def one_line(message: str) -> str:
    r"""A message without line breaks and names of types, and without its middle if it is very long.

    >>> one_line("Parser key x:\n  Expected a typing.Literal[1, 2]. Got value: 3")
    'Parser key x: Expected one of 1, 2. Got value: 3'
    >>> len(one_line("x" * 10_000))
    605
    """
    text = re.sub(r"a typing\.Literal\[([^]]*)\]", r"one of \1", " ".join(message.split()))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 200]} ... {text[-200:]}"


def nearest(name: str, known: Iterable[str], *, most: int = 1, least: float = 0.6) -> list[str]:
    """The names that are most like one, the nearest first, whatever their case.

    Args:
        name: what was given.
        known: what there is.
        most: how many are returned at most.
        least: how like they must be, from 0 to 1.

    >>> nearest("lambdaloss", ["LambdaLoss", "ListNetLoss"])
    ['LambdaLoss']
    """
    lower = {each.lower(): each for each in reversed(list(known))}
    return [lower[each] for each in difflib.get_close_matches(name.lower(), lower, most, least)]


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1, least: float = 0.6) -> str:
    """The end of a message on an unknown name: the nearest known ones, or nothing; see `nearest`.

    >>> "unknown measure 'nDGC'" + did_you_mean("nDGC", ["AP", "nDCG"])
    "unknown measure 'nDGC'; did you mean nDCG?"
    """
    near = nearest(name, known, most=most, least=least)
    return f"; did you mean {' or '.join(near)}?" if near else ""
