"""The official layout of a benchmark: `Fold1/train.txt`, `vali.txt` and `test.txt`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rankstruct.data.dataset import Splits
from rankstruct.data.errors import DataError
from rankstruct.data.svmlight import read_svmlight

_NAMES = ("train", "vali", "test")


def read_folds(path: str | os.PathLike[str], fold: int | None = None, **options: Any) -> Splits:
    """Read the three parts of a fold, with the same number of features.

    Args:
        path: a folder with `Fold1`, `Fold2`, ...; or, with `fold=None`, one with the three files.
        fold: the number of the fold, from 1.
        options: those of `read_svmlight`.

    Raises:
        DataError: a folder or file is absent (the message lists what is there), or a file breaks the format.

    >>> splits = read_folds("OHSUMED", 1)  # doctest: +SKIP
    >>> splits.train.num_lists  # doctest: +SKIP
    63
    """
    folder = Path(path) if fold is None else Path(path) / f"Fold{fold}"
    if not folder.is_dir():
        itself = all((Path(path) / f"{name}.txt").is_file() for name in _NAMES)
        advice = f"; {path} has the three files itself: leave out fold (--data.fold null)" if itself else ""
        raise DataError(f"{folder}: expected a folder with {_files()}, got none; {_present(folder.parent)}{advice}")
    paths = [folder / f"{name}.txt" for name in _NAMES]
    for file in paths:
        if not file.is_file():
            advice = "; give fold (--data.fold) to choose one" if fold is None and any(folder.glob("Fold*")) else ""
            raise DataError(f"{folder}: expected {_files()}, got no {file.name}; {_present(folder)}{advice}")
    parts = [read_svmlight(file, **options) for file in paths]
    widths = {part.num_features for part in parts}
    if len(widths) > 1:  # sparse files need not mention the last features
        parts = [read_svmlight(file, **{**options, "num_features": max(widths)}) for file in paths]
    return Splits(*parts)


def _files() -> str:
    return ", ".join(f"{name}.txt" for name in _NAMES)


def _present(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} does not exist either"
    names = sorted(entry.name for entry in folder.iterdir())
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"{folder} has {shown or 'nothing'}"
