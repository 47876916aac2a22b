"""File formats by suffix, for every command that reads lists."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankstruct.columns import LIST_ROLES, usual_columns
from rankstruct.data.cache import read_rankdata
from rankstruct.data.columnar import column_names, read_arrow
from rankstruct.data.dataset import FORMATS, RankingData
from rankstruct.data.errors import DataError
from rankstruct.data.shards import is_shards
from rankstruct.data.svmlight import read_svmlight
from rankstruct.data.tables import missing_column, named, read_header
from rankstruct.data.text import unpacked_name
from rankstruct.messages import Way, shortened

__all__ = ["read_lists"]

CSV = (".csv", ".tsv")  #: suffixes of text tables
TABLE_OPTIONS = ("label", "qid", "docid", "features", "categorical")  #: of `read_arrow` alone


def read_lists(path: str | os.PathLike[str], **options: Any) -> RankingData:
    """Read a file of lists in the format of its suffix; files of unknown suffixes are SVMlight or LETOR files.

    A folder, a pattern or a URL is that of Parquet files, whose features stay there until they are used; see `read_arrow`.

    Options are those of the reader: `num_features`, `labels`, `cache`; see `read_svmlight` for its own, of which `zero_based` is
    accepted, and ignored, for files without feature ids, and `read_arrow` for those of tables, such as `label`, `qid` and
    `categorical`. A malformed file raises DataError.
    """
    optional = options.get("labels") == "optional"
    reader = find_reader(path, options.get("qid"), labelled=not optional)
    if reader is not read_svmlight:
        options.pop("zero_based", None)
    if optional and reader is not read_arrow:
        options["labels"] = "real"  # every document of these formats has one
    if reader in (read_svmlight, read_rankdata) and (given := [name for name in TABLE_OPTIONS if name in options]):
        raise DataError(
            f"{path}: options of tables, {', '.join(given)}, need a CSV, Parquet or Arrow file, got a {suffix_of(path)} file"
        )
    return reader(Path(path), **options)


def find_reader(
    path: str | os.PathLike[str], qid: str | None = None, *, labelled: bool = True
) -> Callable[..., RankingData]:
    """The reader of a file of lists.

    Raises:
        DataError: a CSV file without the column `qid`, or one of its usual names.
    """
    if is_shards(path):
        return read_arrow
    suffix = suffix_of(path)
    if lacks_lists(path, qid, labelled=labelled):
        if not Path(path).is_file():
            raise DataError(f"{path}: no such file")
        found = read_header(path).names
        if not found:
            raise DataError(f"{path}: expected column names in the first line, got an empty file")
        if qid is not None:
            raise missing_column(path, "qid", qid, found)
        raise DataError(
            f"{path}: expected lists, got a {suffix} file without a column 'qid'. A table of lists, CSV or Parquet, has columns "
            f"qid, label and features; this one has {named(found)}",
            Way("qid label", None, "{} and {} name them"),
        )
    return reader_of(suffix)


def reader_of(suffix: str) -> Callable[..., RankingData]:
    """The reader of files of lists of a suffix."""
    return FORMATS.get(suffix, read_arrow if suffix in CSV else read_svmlight)


def feature_names(path: str | os.PathLike[str], **options: Any) -> list[str] | None:
    """The feature names of a file, in its order; None if features have only numbers. Options are those of `read_lists`.

    >>> feature_names("train.txt") is None
    True
    """
    if not is_shards(path) and (reader_of(suffix_of(path)) is not read_arrow or not Path(path).is_file()):
        return None
    return column_names(path, {role: options.get(role) for role in LIST_ROLES})


def options_for_model(
    path: str | os.PathLike[str], names: list[str] | None, num_features: int | None, **options: Any
) -> dict[str, Any]:
    """Options of `read_lists` for the features that a model was trained on, matched by name if both have names.

    `options` are those of `read_lists` that name columns.

    Raises:
        DataError: a table has another number of features.
    """
    there = feature_names(path, **options)
    if there is not None and names is not None:
        return {"features": names}
    if there is not None and num_features is not None and len(there) not in (1, num_features):  # 1: a column of lists
        raise DataError(
            f"{path}: expected {num_features} features, as in training, got {len(there)}: "
            f"{shortened(', '.join(there), 200)}"
        )
    return {"num_features": num_features}


def suffix_of(path: str | os.PathLike[str]) -> str:
    """The suffix of a file's format, before `.gz` and similar."""
    return Path(unpacked_name(Path(path).name)).suffix.lower()


def lacks_lists(path: str | os.PathLike[str], qid: str | None = None, *, labelled: bool = True) -> bool:
    """Whether a file is CSV without queries, or without labels if `labelled`; a column named `qid` is enough."""
    if (suffix := suffix_of(path)) not in CSV or suffix in FORMATS:
        return False
    if not Path(path).is_file():
        return True
    wanted = (qid or "qid").casefold()
    names = read_header(path, [qid or "qid"]).names
    if any(name.casefold() == wanted for name in names):
        return False
    has_labels = not labelled or bool(usual_columns(names, "label"))
    return qid is not None or not (usual_columns(names, "qid") and has_labels)
