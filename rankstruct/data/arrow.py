"""Lists from Parquet, Arrow and CSV files, one document a row; pyarrow reads them.

Columns are `label`, `qid` and, where there is one, `docid`; all others are features, numbers in the order of the file, or one
column of lists of numbers, all of one length. Documents of a query are neighbours. A null among features is a missing value.
A CSV file has the names of its columns in the first line; an empty cell, or NaN, is a null.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rankstruct.data.assembly import Assembly, Part, assemble
from rankstruct.data.cache import Stream
from rankstruct.data.dataset import RankingData
from rankstruct.data.errors import DataError, shortened
from rankstruct.data.names import Names
from rankstruct.data.text import check_file, text_lines
from rankstruct.files import add_to_digest
from rankstruct.progress import Progress

__all__ = ["read_arrow"]

_FORMAT = 1  # raise it when the same file would give other arrays
_CELLS = 2**22  # features that are held at a time


def read_arrow(
    path: str | os.PathLike[str],
    *,
    num_features: int | None = None,
    labels: Literal["grades", "real"] = "grades",
    label: str = "label",
    qid: str = "qid",
    docid: str = "docid",
    features: Sequence[str] | None = None,
    cache: bool | str | os.PathLike[str] = True,
) -> RankingData:
    """Read a Parquet, Arrow (Feather) or CSV file of lists.

    Args:
        path: the file.
        num_features: the least number of features of the result; those that the file has not are 0.
        labels: `"grades"` takes integers from 0, `"real"` any finite number.
        label: the column of labels.
        qid: the column of queries, numbers or strings.
        docid: the column of documents' names, which may be absent.
        features: the columns of features, in the order of the result, such as those that a model was trained on; those of the
            file, in its order, if None.
        cache: as for `read_svmlight`.

    Raises:
        DataError: the file is absent or none of these formats, a column is absent or no number, a query returns, or pyarrow is
            not installed.

    >>> read_arrow("train.parquet").summary()  # doctest: +SKIP
    """
    rows = Rows(Path(path), num_features, labels, (label, qid, docid), features)
    return assemble(Path(path), rows.fill, cache, rows.key)


class Rows:
    """One reading of one file."""

    def __init__(
        self,
        path: Path,
        num_features: int | None,
        labels: str,
        columns: tuple[str, ...],
        features: Sequence[str] | None = None,
        progress: bool = False,
    ) -> None:
        self.features = None if features is None else list(features)
        self.path, self.num_features, self.labels, self.columns = path, num_features, labels, columns
        self.progress = progress
        self.is_csv = path.name.removesuffix(".gz").endswith(".csv")
        if labels not in ("grades", "real"):
            raise ValueError(f"labels must be 'grades' or 'real', got {labels!r}")
        check_file(path)

    def key(self) -> str:
        """Thirty-two letters that change with the content of the file and the options."""
        told = [
            _FORMAT,
            self.num_features,
            self.labels,
            self.columns,
            *([] if self.features is None else [self.features]),
        ]
        digest = hashlib.sha256(json.dumps(told).encode())
        add_to_digest(digest, self.path)
        return digest.hexdigest()[:32]

    def fill(self, assembly: Assembly) -> dict[str, Stream]:
        """Add all documents, and return the arrays that they make."""
        arrow = _pyarrow(self.path)
        try:
            with Progress(
                unit=" rows", unit_scale=True, desc=self.path.name, disable=not self.progress, leave=False
            ) as bar:
                for batch in self._batches(arrow):
                    if len(batch):
                        assembly.add(self._part(arrow, batch, assembly.rows))
                        bar.update(len(batch))
        except (arrow.ArrowException, OSError) as error:
            kind = "CSV" if self.is_csv else "Parquet or Arrow"
            said = (str(error).splitlines() or [""])[0][:200]
            if self.is_csv and (at := re.search(r"column #(\d+)", said)):
                said += (
                    f"; that is column {shortened(csv_columns(self.path)[int(at[1])])}, and all are numbers but "
                    f"{self.columns[1]} and {self.columns[2]}, the name of a document: leave others out"
                )
            raise DataError(f"{self.path}: expected a {kind} file, got: {said}") from None
        if not assembly.rows:
            raise DataError(f"{self.path}: expected documents, one a row, got none")
        assembly.check_names(self.path, ", row ", "row")
        return assembly.finish(None, max(self.num_features or 0, assembly.width), False)

    def _batches(self, arrow: Any) -> Iterator[Any]:
        if self.is_csv:
            yield from self._csv_batches(arrow)
            return
        with open(self.path, "rb") as file:
            begins = file.read(6)
            file.seek(0)
            if begins[:4] == b"PAR1":
                parquet = arrow.parquet.ParquetFile(file)
                width = max(1, parquet.metadata.num_columns)
                yield from parquet.iter_batches(max(1, min(2**16, _CELLS // width)))
            elif begins == b"ARROW1":
                reader = arrow.ipc.open_file(file)
                yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
            else:
                yield from arrow.ipc.open_stream(file)

    def _csv_batches(self, arrow: Any) -> Iterator[Any]:
        names, (_, *strings) = csv_columns(self.path), self.columns
        if "" in names or len(set(names)) < len(names):
            wrong = next(at for at, name in enumerate(names) if not name or name in names[:at])
            raise DataError(
                f"{self.path}: expected columns of different names, got {names[wrong]!r} for number {wrong + 1}; a row's number "
                "(the index of a pandas frame) is no feature: write the table without it"
            )
        # Numbers whatever the first rows look like.
        kinds = {name: arrow.string() if name in strings else arrow.float64() for name in names}
        options = {
            "read_options": arrow.csv.ReadOptions(column_names=names, skip_rows=1),
            "convert_options": arrow.csv.ConvertOptions(column_types=kinds, strings_can_be_null=True),
        }
        with arrow.input_stream(str(self.path)) as stream, arrow.csv.open_csv(stream, **options) as reader:
            yield from reader

    def _part(self, arrow: Any, batch: Any, before: int) -> Part:
        label, qid, docid = self.columns
        names = batch.schema.names
        for name in (label, qid):
            if names.count(name) != 1:
                advice = "; where nothing is known, give 0" if name == label else ""
                raise DataError(
                    f"{self.path}: expected one column {name!r}, got {shortened(', '.join(names), 200)}{advice}"
                )
        labels, lost = self._numbers(arrow, label, batch.column(label))
        self._refuse(lost, label, "a number", before)
        if self.labels == "grades":
            self._refuse((labels < 0) | (labels % 1 != 0), label, "a grade, an integer from 0", before)
        qids = self._strings(arrow, qid, batch.column(qid), before)
        features, missing = self._features(arrow, batch, self._columns_of_features(names), before)
        changes = np.array([True, *(one != other for one, other in zip(qids[1:], qids[:-1], strict=True))])
        starts = np.flatnonzero(changes)
        return Part(
            labels=labels,
            values=features.reshape(-1),
            indices=None,
            counts=None,
            width=features.shape[1],
            starts=starts,
            qids=Names.of([qids[at] for at in starts.tolist()]),
            places=starts + before + 1,
            docids=Names.of(self._strings(arrow, docid, batch.column(docid), before)) if docid in names else None,
            missing=missing if missing.any() else None,
        )

    def _columns_of_features(self, names: list[str]) -> list[str]:
        found = [name for name in names if name not in self.columns]
        if self.features is None:
            return found
        gone, new = (
            [name for name in one if name not in other]
            for one, other in ((self.features, found), (found, self.features))
        )
        if gone or new:
            told = [
                f"{what} {shortened(', '.join(each), 200)}"
                for what, each in (("it lacks", gone), ("it has also", new))
                if each
            ]
            wanted = shortened(", ".join(self.features), 200)
            raise DataError(f"{self.path}: expected the features {wanted}, in any order; {', and '.join(told)}")
        return self.features

    def _features(self, arrow: Any, batch: Any, names: list[str], before: int) -> tuple[np.ndarray, np.ndarray]:
        """Features `[n, d]` float32 with 0 for what is missing, and how many of each document are `[n]`."""
        columns = [batch.column(name) for name in names]
        if len(names) == 1 and arrow.types.is_nested(columns[0].type):
            lists = columns[0]
            if lists.null_count or not hasattr(lists, "flatten"):
                raise DataError(
                    f"{self.path}: expected lists of numbers in column {names[0]!r}, got {lists.type} with nulls"
                )
            flat, lost = self._numbers(arrow, names[0], lists.flatten())
            if len(flat) % len(lists) or len(set(arrow.compute.list_value_length(lists).to_pylist())) > 1:
                raise DataError(
                    f"{self.path}: expected lists of one length in column {names[0]!r}, got several lengths"
                )
            features, gone = flat.reshape(len(lists), -1), lost.reshape(len(lists), -1)
        else:
            if not names:
                raise DataError(f"{self.path}: expected columns of features beside {', '.join(self.columns)}, got none")
            features = np.empty((len(batch), len(names)), np.float32)
            gone = np.empty(features.shape, bool)
            for at, (name, column) in enumerate(zip(names, columns, strict=True)):
                features[:, at], gone[:, at] = self._numbers(arrow, name, column)
        wrong = ~np.isfinite(features)
        if wrong.any():
            row, at = np.argwhere(wrong)[0].tolist()
            name = names[min(at, len(names) - 1)]
            raise DataError(
                f"{self.path}, row {before + row + 1}: expected finite numbers (of float32's range) in {name!r}"
            )
        return features, gone.sum(axis=1, dtype=np.int32)

    def _numbers(self, arrow: Any, name: str, column: Any) -> tuple[np.ndarray, np.ndarray]:
        """Float32 numbers, 0 where they are missing, and where that is."""
        kinds = arrow.types
        if not (kinds.is_integer(column.type) or kinds.is_floating(column.type) or kinds.is_boolean(column.type)):
            raise DataError(f"{self.path}: expected numbers in column {name!r}, got {str(column.type)[:100]}")
        lost = column.is_null().to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):  # told as what is not finite
            values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float32)
        return values, lost

    def _strings(self, arrow: Any, name: str, column: Any, before: int) -> list[str]:
        self._refuse(column.is_null().to_numpy(zero_copy_only=False), name, "a name", before)
        return [value if isinstance(value, str) else str(value) for value in column.to_pylist()]

    def _refuse(self, wrong: np.ndarray, name: str, expected: str, before: int) -> None:
        if wrong.any():
            raise DataError(
                f"{self.path}, row {before + int(wrong.argmax()) + 1}: expected {expected} in column {name!r}"
            )


def column_names(path: str | os.PathLike[str], known: Sequence[str]) -> list[str]:
    """The names of the columns of features, in the order of the file; raises DataError where it is none of these formats."""
    if Path(path).name.removesuffix(".gz").endswith(".csv"):
        names = csv_columns(path)
    else:
        arrow = _pyarrow(Path(path))
        try:
            with open(path, "rb") as file:
                begins = file.read(6)
                file.seek(0)
                if begins[:4] == b"PAR1":
                    names = arrow.parquet.ParquetFile(file).schema_arrow.names
                else:
                    names = (arrow.ipc.open_file if begins == b"ARROW1" else arrow.ipc.open_stream)(file).schema.names
        except (arrow.ArrowException, OSError) as error:
            raise DataError(f"{path}: expected a Parquet or Arrow file, got: {str(error)[:200]}") from None
    return [name for name in names if name not in known]


def csv_columns(path: str | os.PathLike[str]) -> list[str]:
    """The cells of the first line of a file; none where it is no CSV."""
    try:
        return [cell.strip() for cell in next(csv.reader([next(text_lines(path, errors="replace"), (0, ""))[1]]), [])]
    except csv.Error:  # who reads the file says what is wrong with it
        return []


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.ipc
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise DataError(
            f"{path}: Parquet, Arrow and CSV files of lists are read by pyarrow, which is not installed; "
            "pip install 'rankstruct[arrow]'"
        ) from None
    return pyarrow
