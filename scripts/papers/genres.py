"""Features of films: the genres of MovieLens 100K."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from rankstruct.data import DataError
from rankstruct.data.errors import check_matched
from rankstruct.data.text import SPACE, text_lines
from rankstruct.messages import shortened

__all__ = ["read_genres"]


def read_genres(path: str | os.PathLike[str], items: Iterable[str]) -> np.ndarray:
    """Read film genres of MovieLens 100K, `[items, 19]` of 0 and 1: lines `item|title|date|date|address|0|1|...` (`u.item`).

    Args:
        path: the file.
        items: item names, such as the `item_names` of ratings; items missing in the file have no genres, which is a warning.

    Raises:
        DataError: the file is missing, a line does not end with 19 fields of 0 or 1, or no item is in the file.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file")
    found, items = {}, list(items)
    for number, line in text_lines(path, "latin-1", newline=""):
        line = line.strip(SPACE)
        if not line or line[0] == "#":
            continue
        parts = line.split("|")
        if len(parts) != 24 or not set(parts[5:]) <= {"0", "1"}:
            raise DataError(
                f"{path}, line {number}: expected 24 fields, the last 19 of them 0 or 1, got {shortened(line)}"
            )
        found[parts[0]] = [float(part) for part in parts[5:]]
    matched = [item in found for item in items]
    check_matched(matched, items, what="items", source=str(path), advice="they have no genres")
    return np.array([found.get(item, [0.0] * 19) for item in items]).reshape(-1, 19)
