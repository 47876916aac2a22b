"""Classification data from ARFF and CSV files, and queries sampled from their classes."""

from __future__ import annotations

import csv
import os
from typing import NamedTuple

import numpy as np

from rankstruct.data.dataset import RankingData
from rankstruct.data.errors import DataError
from rankstruct.data.names import Names
from rankstruct.data.tables import check_columns, decoded_lines, read_header
from rankstruct.data.text import parse_number, text_lines
from rankstruct.messages import shortened

__all__ = ["ClassTable", "read_arff", "read_csv", "sample_queries"]


_FLAGS = {"true": 1.0, "false": 0.0}


class ClassTable(NamedTuple):
    """Classification data: features `[rows, d]` float32, classes `[rows]` strings, feature names `[d]`.

    >>> table = ClassTable(np.zeros((2, 1), np.float32), np.array(["cat", "dog"]), ["weight"])
    >>> table.features.shape, table.classes.tolist()
    ((2, 1), ['cat', 'dog'])
    """

    features: np.ndarray
    classes: np.ndarray
    names: list[str]


def read_arff(path: str | os.PathLike[str], target: str | int = -1) -> ClassTable:
    """Read a dense ARFF file with numeric attributes and a class, `target`, by name or index; `%` starts a comment.

    Raises:
        DataError: no `@data`, no such attribute, a row with another number of values, or a feature that is not a finite number,
            such as a missing value (`?`).

    >>> table = read_arff("segment.arff")  # doctest: +SKIP
    """
    names: list[str] = []
    lines = [line for _, line in text_lines(path, errors="replace")]
    for number, line in enumerate(lines, 1):
        words = line.strip()
        if words.lower().startswith("@attribute"):
            rest = words[len("@attribute") :].strip()
            quote = rest[:1]
            try:
                names.append(rest[1 : rest.index(quote, 1)] if quote in ("'", '"') else rest.split()[0])
            except (ValueError, IndexError):
                raise DataError(
                    f"{path}, line {number}: expected @attribute NAME TYPE, got {shortened(words)}"
                ) from None
        elif words.lower() == "@data":
            rows = [
                (at, [cell.strip() for cell in text.split(",")])
                for at, text in enumerate(lines[number:], number + 1)
                if text.strip() and not text.lstrip().startswith("%")
            ]
            return _table(path, rows, names, target)
    raise DataError(f"{path}: expected a line @data, got none in {len(lines)} lines")


def read_csv(
    path: str | os.PathLike[str], target: str | int = -1, *, header: bool = True, delimiter: str | None = None
) -> ClassTable:
    r"""Read a CSV file with numeric columns and a class, `target`, by index or, if the first line has names, by name.

    A `delimiter` of None (comma, semicolon, tab or bar) is inferred from the first line, and UTF-16 is detected by its byte order
    mark. True and False are 1 and 0.

    Raises:
        DataError: no rows, no such column, a row with another number of cells, or a feature that is not a finite number, such as
            an empty cell.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("x,y,kind\n1,2,good\n3,4,bad\n")
    ...     read_csv(f"{folder}/a.csv").classes
    array(['good', 'bad'], dtype='<U4')
    """
    form = read_header(path, (), delimiter)
    reader = csv.reader(decoded_lines(path, form.encoding), delimiter=form.separator)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except csv.Error as error:
        raise DataError(
            f"{path}, line {reader.line_num}: expected {form.between}-separated values, got: {error}"
        ) from None
    if not rows:
        raise DataError(f"{path}: expected rows, got an empty file")
    names = rows.pop(0)[1] if header else [str(i) for i in range(len(rows[0][1]))]
    if header:
        check_columns(path, names)
    return _table(path, rows, names, target)


def _table(path: object, rows: list[tuple[int, list[str]]], names: list[str], target: str | int) -> ClassTable:
    if isinstance(target, str) and target not in names:
        raise DataError(f"{path}: expected an attribute {target!r}, got {shortened(', '.join(names), 200)}")
    at = names.index(target) if isinstance(target, str) else target
    if not -len(names) <= at < len(names):
        raise DataError(f"{path}: target has index {at}, but there are {len(names)} attributes")
    at %= len(names)
    if not rows:
        raise DataError(f"{path}: expected rows, got none")
    features = np.empty((len(rows), len(names) - 1), np.float32)
    classes = []
    for row, (line, cells) in enumerate(rows):
        if len(cells) != len(names):
            raise DataError(f"{path}, line {line}: expected {len(names)} values, got {len(cells)}")
        classes.append(cells.pop(at).strip("'\""))
        with np.errstate(over="ignore"):  # reported below as not finite
            features[row] = list(map(_number, cells))
    names = names[:at] + names[at + 1 :]
    if not np.isfinite(features).all():
        row, column = np.argwhere(~np.isfinite(features))[0].tolist()
        line, cells = rows[row]
        kind = "numbers" if np.isnan(_number(cells[column])) else "finite numbers (in the range of float32)"
        advice = "" if cells[column] else "; fill it in, or remove the row"
        raise DataError(
            f"{path}, line {line}: expected {kind}, got {shortened(cells[column])} in column {names[column]!r}{advice}"
        )
    return ClassTable(features, np.asarray(Names.of(classes)), names)


def _number(cell: str) -> float:
    """Parse a number; NaN if it is not one."""
    try:
        return _FLAGS[cell] if (cell := cell.casefold()) in _FLAGS else parse_number(cell)
    except ValueError:
        return np.nan


def sample_queries(
    table: ClassTable,
    relevant: str | None = None,
    *,
    queries: int = 50,
    documents: int = 100,
    rows: np.ndarray | None = None,
    seed: int | np.random.Generator = 0,
) -> RankingData:
    """Sample queries from classification data: each is a random sample of rows without replacement, with one relevant class.

    The class with label 1 is `relevant`, the same for all queries; None samples one for each. A query has `documents` rows, or
    all if there are fewer, from `rows`, such as those of a training part; None for all. The `seed` may be a generator.

    Raises:
        DataError: no such class, or no rows.

    Source: the UCI protocol of Le and Smola, "Direct Optimization of Ranking Measures", 2007, section 6.

    >>> table = ClassTable(np.arange(6, dtype=np.float32)[:, None], np.array(list("aabbcc")), ["x"])
    >>> data = sample_queries(table, "a", queries=2, documents=4)
    >>> data.num_lists, data.num_documents, set(data.labels[data.features[:, 0] < 2].tolist())
    (2, 8, {1.0})
    """
    known = np.unique(table.classes)
    if relevant is not None and relevant not in known:
        raise DataError(f"relevant must be one of the classes {', '.join(known)}, got {relevant!r}")
    pool = np.arange(len(table.classes)) if rows is None else np.asarray(rows)
    if not len(pool) or queries < 1 or documents < 1:
        raise DataError(f"there must be rows, queries and documents; got {len(pool)}, {queries} and {documents}")
    rng = np.random.default_rng(seed)
    size = min(documents, len(pool))
    chosen = [rng.choice(pool, size, replace=False) for _ in range(queries)]
    wanted = [relevant if relevant is not None else str(rng.choice(known)) for _ in range(queries)]
    labels = [table.classes[each] == kind for each, kind in zip(chosen, wanted, strict=True)]
    picked = np.concatenate(chosen)
    names = np.repeat([str(q) for q in range(1, queries + 1)], size)
    return RankingData.from_arrays(table.features[picked], np.concatenate(labels), names, docids=picked)
