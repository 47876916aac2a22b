"""Ids of lists and documents, and lists from ids or sizes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

from rankstruct.arrays import LARGEST, as_array, as_numbers, is_missing


def known_ids(name: str, ids: Any, entry: str = "document") -> np.ndarray:
    """Convert ids, numbers or strings, to an array; none may be missing. Whole floats become integers, as in files.

    Raises:
        ValueError: NaN, NaT, None or an infinite number; the message calls the ids `name`, and what has one `entry`.

    >>> known_ids("qid", ["a", float("nan")])
    Traceback (most recent call last):
    ...
    ValueError: qid must not be missing; that of document 1 is
    """
    # As objects: among strings NumPy turns NaN into the string 'nan', and pads all to the length of the longest.
    named = isinstance(ids, list | tuple) and any(isinstance(each, str | bytes) for each in ids)
    found = np.array(ids, dtype=object) if named else as_array(name, ids)
    if found.dtype.kind in "US" and not isinstance(ids, np.ndarray):
        found = np.array(ids, dtype=object)
    if found.dtype.kind == "O":
        gone = np.array([is_missing(value) for value in found.flat], bool)
    elif found.dtype.kind in "mM":
        gone = np.isnat(found).ravel()
    else:
        gone = ~np.isfinite(found).ravel() if found.dtype.kind in "fc" else np.zeros(0, bool)
    if gone.any():
        raise ValueError(f"{name} must not be missing; that of {entry} {int(gone.argmax())} is")
    if found.dtype.kind == "f" and ((np.floor(found) == found) & (np.abs(found.astype(np.float64)) <= LARGEST)).all():
        return found.astype(np.int64)
    if found.dtype.kind == "O" and any(map(_is_whole, found.flat)):
        found = np.frompyfunc(lambda each: int(each) if _is_whole(each) else each, 1, 1)(found)
    return found


def _is_whole(value: Any) -> bool:
    """Whether a value is a whole number of a type of fractions."""
    return isinstance(value, float | np.floating | Decimal) and value == int(value)


def list_ids(documents: int, qid: Any, group: Any, otherwise: Any = None) -> Any:
    """The list of each document, from `qid` or from `group`, the sizes of consecutive lists."""
    if group is None:
        return otherwise if qid is None else qid
    if qid is not None:
        raise ValueError("pass qid, one id per document, or group, the sizes of the lists, not both")
    return ids_of_sizes("group", group, documents)


def ids_of_sizes(name: str, sizes: Any, documents: int) -> np.ndarray:
    """The number of the list of each document, from the sizes of the lists; raises ValueError if they are not valid sizes."""
    try:
        found = as_numbers(name, sizes, exact=False)
        found = found.astype(np.float64) if found.dtype.kind == "f" else found  # half precision adds up to 65504
    except (TypeError, ValueError):
        found = np.asarray(sizes, object)
    numbers = found.dtype.kind in "iuf" and found.ndim == 1
    if not (
        numbers
        and ((found >= 0) & (found <= documents) & (found == np.floor(found))).all()
        and found.sum() == documents
    ):
        raise ValueError(
            f"{name} must be the sizes of consecutive lists, whole numbers that add up to {documents} "
            f"documents; got {found.size}{f' of sum {found.astype(float).sum():g}' if numbers else f', such as {sizes!r}'[:60]}"
        )
    return np.repeat(np.arange(len(found)), found.astype(np.int64))


def numbered_ids(name: str, ids: Any) -> np.ndarray:
    """As `known_ids`, with Python objects numbered in sorted order, or by first appearance if they cannot be sorted.

    >>> numbered_ids("qid", ["b", "a", "b"]), numbered_ids("qid", ["a", 1, "1", "a"])
    (array([1, 0, 1]), array([0, 1, 2, 0]))
    """
    found = known_ids(name, ids)
    if found.dtype.kind != "O":
        return found
    try:
        return np.unique(found, return_inverse=True)[1].reshape(found.shape)
    except TypeError:  # of mixed kinds
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(each, len(numbers)) for each in found.flat], np.int64).reshape(found.shape)


def group_documents(qid: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Group rows by `qid` `[documents]`: `(order, offsets)`, lists by first appearance.

    `order` is None if the rows of every list are already contiguous.

    >>> group_documents(np.array(["b", "a", "b"]))
    (array([0, 2, 1]), array([0, 2, 3]))
    """
    _, first, inverse, counts = np.unique(qid, return_index=True, return_inverse=True, return_counts=True)
    by_appearance = np.argsort(first, kind="stable")
    number = np.empty(len(first), np.intp)
    number[by_appearance] = np.arange(len(first))
    of_row = number[inverse]
    offsets = np.concatenate([[0], np.cumsum(counts[by_appearance])])
    if (np.diff(of_row) >= 0).all():
        return None, offsets
    return np.argsort(of_row, kind="stable"), offsets
