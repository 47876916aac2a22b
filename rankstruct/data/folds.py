"""Folds: the folders of LETOR benchmarks, `Fold1/train.txt`, `vali.txt` and `test.txt`, and those of cross-validation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rankstruct.columns import Columns
from rankstruct.data.dataset import FORMATS, RankingData, Splits
from rankstruct.data.errors import DataError
from rankstruct.data.formats import CSV, feature_names, read_lists
from rankstruct.data.shards import holds_shards, url_of
from rankstruct.data.svmlight import SUFFIXES
from rankstruct.data.text import PACKED
from rankstruct.messages import Way

__all__ = ["read_folds"]

PARTS = ("train", "vali", "test")
_FILES = ", ".join(f"{part}.txt" for part in PARTS)


def read_folds(path: str | os.PathLike[str], fold: int | None = None, **options: Any) -> Splits:
    """Read the three parts of a fold, with the same number of features.

    Args:
        path: a folder with `Fold1`, `Fold2`, ...; or, with `fold=None`, one with the three files. Their suffix is `.txt` or
            another one of `read_lists`, optionally followed by `.gz`, `.bz2`, `.xz` or `.zst`. A part may be a folder of Parquet
            files, and `path` then a URL.
        fold: the fold number, from 1.
        options: options of `read_lists`.

    Raises:
        DataError: a folder or file is missing (the message lists the files found), or a file is malformed.

    >>> splits = read_folds("OHSUMED", 1)  # doctest: +SKIP
    >>> splits.train.num_lists  # doctest: +SKIP
    63
    """
    return Splits(*read_alike(fold_files(path, fold), **options))


def read_alike(files: Sequence[str | os.PathLike[str]], **options: Any) -> list[RankingData]:
    """Read files of lists with the same number of features; options and errors are those of `read_lists`.

    Named features and their categories are those of the first file.
    """
    names = feature_names(files[0], **options) if files else None
    first = [read_lists(file, **options) for file in files[:1]]
    known = {} if names is None else {"features": names, **chosen_categories(first[0].columns)}
    named = [options if feature_names(file, **options) is None else {**options, **known} for file in files]
    parts = [*first, *(read_lists(file, **more) for file, more in list(zip(files, named, strict=True))[1:])]
    widths = {part.num_features for part in parts}
    if len(widths) > 1:  # sparse files may lack the last features
        _check_tables(files, [part.num_features for part in parts])
        parts = [
            read_lists(file, **{**more, "num_features": max(widths)}) for file, more in zip(files, named, strict=True)
        ]
    return [recoded(part, parts[0].columns, file) for part, file in zip(parts, files, strict=True)]


def chosen_categories(columns: Columns | None) -> dict[str, Any]:
    """The option of `read_lists` for the categorical columns of another file."""
    return {} if columns is None else {"categorical": [columns.names[at] for at in columns.categorical]}


def recoded(data: RankingData, columns: Columns | None, path: object) -> RankingData:
    """`data.recoded`, whose errors name the file."""
    try:
        return data.recoded(columns)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _check_tables(files: Sequence[str | os.PathLike[str]], widths: Sequence[int]) -> None:
    """Raise DataError if a table has fewer features than another file, since a table lists all of its features."""
    most = max(widths)
    if widths[0] < most and feature_names(files[0]) is not None:
        raise DataError(f"{files[widths.index(most)]}: expected {widths[0]} features, as in {files[0]}, got {most}")
    for file, width in zip(files, widths, strict=True):
        if width < most and feature_names(file) is not None:
            raise DataError(f"{file}: expected {most} features, as in the other files, got {width}")


def fold_files(path: str | os.PathLike[str], fold: int | None = None) -> list[Path]:
    """The files of the three parts; raises DataError, with the files found, if the folder or a part is missing."""
    return [file for file in find_parts(path, fold).values() if file is not None]


def find_parts(
    path: str | os.PathLike[str], fold: int | None = None, required: Sequence[str] = PARTS
) -> dict[str, Path | None]:
    """The file of each part, None if missing and not required."""
    folder = Path(path) if fold is None else Path(path) / f"Fold{fold}"
    if not folder.is_dir() and url_of(folder) is None:
        itself = any(map(_found(Path(path)).get, PARTS))
        told, ways = f"{folder}: expected a folder with {_FILES}, got none; {_present(folder.parent)}", []
        if itself:
            told += f"; {path} has such files itself"
            ways = [Way("fold", None, "remove {}"), Way("protocol", "cross-validation", "or split their lists by {}")]
        raise DataError(told, *ways)
    found = _found(folder)
    for part, file in found.items():
        if file is None and part in required:
            told = f"{folder}: expected {_FILES}, got no {part}.txt; {_present(folder)}"
            if fold is None and any(folder.glob("Fold*")):
                raise DataError(told, Way("fold", None, "give {} to select one"))
            raise DataError(f"{told}; or pass single files to rankstruct rank, as --train and --test")
    return found


def has_parts(folder: Path) -> bool:
    """Whether a folder, or its `Fold1`, has a file or a folder of one of the parts."""
    return any(any(_found(each).values()) for each in (folder, folder / "Fold1"))


def _found(folder: Path) -> dict[str, Path | None]:
    """The file of each part, SVMlight files first."""
    endings = [suffix + packed for suffix in (*SUFFIXES, *FORMATS, *CSV) for packed in ("", *PACKED)]
    files = {
        part: next((file for ending in endings if (file := folder / f"{part}{ending}").is_file()), None)
        for part in PARTS
    }
    return {
        part: folder / part if file is None and holds_shards(folder / part) else file for part, file in files.items()
    }


def _present(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} does not exist either" if url_of(folder) is None else "parts are folders of Parquet files"
    names = sorted(entry.name for entry in folder.iterdir())
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"{folder} has {shown or 'nothing'}"


def cross_validation_parts(
    number: int, fold: int, folds: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training, validation and test indices of one fold; over all folds, each index is tested once and validated once.

    `number` items are split at random; `fold` is from 1 to `folds`, at least 3.

    >>> [part.tolist() for part in cross_validation_parts(4, 1, 4)]
    [[1, 3], [0], [2]]
    """
    if not 1 <= fold <= folds or folds < 3 or number < folds:
        raise ValueError(f"fold must be from 1 to {folds}, and folds from 3 to {number}; got fold {fold} of {folds}")
    parts = np.array_split(np.random.default_rng(seed).permutation(number), folds)
    test, vali = fold - 1, fold % folds
    rest = [part for at, part in enumerate(parts) if at not in (test, vali)]
    return np.concatenate(rest), parts[vali], parts[test]
