"""The exception for invalid data, and helpers for messages and argument checks."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from rankstruct.messages import ArgumentError, Way, shortened

__all__ = ["DataError"]


class DataError(ArgumentError):
    """Invalid data; the message has the place (file and line, if any), what was expected and how to fix it.

    >>> from rankstruct.data import RankingData
    >>> try:
    ...     RankingData.from_arrays([[1.0], [2.0]], [0, 1, 1], ["a", "a"])
    ... except DataError as error:
    ...     print(error)
    y and qid must have shape [documents], one entry per document; got (3,) and (2,)
    """


#: For labels that are no grades.
REAL = Way("labels", "real", "{} takes any number", "correct it")


def naming_lists(message: str, what: str, names: Any) -> str:
    """A message about `list N` with the list's name, such as that of a query or user, in its place.

    >>> naming_lists("no ranking of list 1 keeps 'new=1 >= 2 @ 5'", "query", ["q7", "q9"])
    "no ranking of query 'q9' keeps 'new=1 >= 2 @ 5'"
    """
    return re.sub(r"\blist (\d+)\b", lambda found: f"{what} {shortened(names[int(found[1])])}", message, count=1)


def check_matched(matched: Any, names: Any, *, what: str, source: str, advice: str = "", stacklevel: int = 3) -> None:
    """Report the names that a join of two sources did not match: a warning with their share, an error if it is all of them.

    Every join by name (run and qrels, training and test data, log and table, queries and texts) reports through this function.

    Args:
        matched: `[n]` bool, whether each name occurs in the other source.
        names: `[n]` the names, for an example of one that does not.
        what: the names in words, such as "items of test.csv".
        source: where they were looked up, such as "train.csv".
        advice: what happens to unmatched names, or how to avoid them, such as "they count as misses".
        stacklevel: as in `warnings.warn`, from this function.

    Raises:
        DataError: no name is matched, though there are some.

    >>> check_matched([True, True], ["a", "b"], what="items of test.csv", source="train.csv")
    >>> check_matched([False, False], ["a ", "b "], what="items of test.csv", source="train.csv")
    Traceback (most recent call last):
    ...
    rankstruct.data.errors.DataError: none of the 2 items of test.csv is in train.csv, such as 'a ': are they written alike?
    """
    matched = np.asarray(matched, bool)
    if matched.all():
        return
    example = shortened(names[int(matched.argmin())])
    if not matched.any():
        raise DataError(f"none of the {len(matched)} {what} is in {source}, such as {example}: are they written alike?")
    missing = int((~matched).sum())
    share = (
        f"{missing} of the {len(matched)} {what} ({missing / len(matched):.1%}) are not in {source}, such as {example}"
    )
    warnings.warn(f"{share}{f': {advice}' if advice else ''}", stacklevel=stacklevel)


def check_selecting(
    same: int,
    number: int,
    why: str,
    way_out: str,
    *,
    what: str = "validation lists",
    name: str = "",
    warn: Callable[..., object] = warnings.warn,
    stacklevel: int = 3,
) -> None:
    """Refuse validation data that cannot select a model, since every ranking is equally good; warn if this holds for half of it.

    Args:
        same: of how many lists, or users, every ranking is equally good.
        number: of all.
        why: this, in words.
        way_out: what to pass instead.
        what: how messages call them.
        name: the argument that they came with, for the error.
        warn: called with the warning and its `stacklevel`.
        stacklevel: as in `warnings.warn`, from this function.

    Raises:
        DataError: it is so for all.

    >>> check_selecting(2, 2, "all labels are equal", "pass others", name="y_valid")
    Traceback (most recent call last):
    ...
    rankstruct.data.errors.DataError: y_valid: in each of the 2 validation lists all labels are equal, so they cannot select a
    model; pass others
    """
    if 0 < same == number:
        told = f"in each of the {number} {what} {why}, so they cannot select a model; {way_out}"
        raise DataError(f"{name}: {told}" if name else told)
    if 0 < number <= 2 * same:
        warn(f"in {same} of {number} {what} {why}; the others select the model", stacklevel=stacklevel)
