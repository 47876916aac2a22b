"""Lists from CSV, Parquet and Arrow files, one document per row, read by pyarrow.

Columns are `label`, `qid` and optionally `docid`, or have another usual name, such as `relevance` and `query_id`: see
`rankstruct.roles`. All others are features, in the order of the file: numbers, and strings or dictionaries, which are categories;
or a single column of lists of numbers of the same length. Documents of a query are contiguous. Null features, NaN and empty
strings are missing values, read as NaN; their number by column is logged, as are the categorical columns.

Names of queries and documents are the same in all formats: integers in digits, and in CSV files without surrounding blanks, and
`1.0` as `1` if the first rows of the column are all so.

A CSV file has column names in the first line, from which the separator (comma, semicolon, tab or bar) is inferred; UTF-16 is
detected by its byte order mark. Numbers have a decimal point, True and False are 1 and 0, and an empty cell or NaN is a null. A
column is categorical if no cell in the first rows is a number or date. It may be compressed: `.gz`, `.bz2`, `.xz` or `.zst`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rankstruct.arrays import LARGEST, LARGEST_SINGLE, as_array, as_numbers
from rankstruct.columns import Columns, category_name, check_number, codes_of
from rankstruct.data.assembly import Assembly, DocumentBlock, assemble
from rankstruct.data.cache import Stream
from rankstruct.data.dataset import RankingData, register_format
from rankstruct.data.delimited import (
    Header,
    check_columns,
    check_quotes,
    named,
    open_unpacked,
    read_header,
    wrong_encoding,
)
from rankstruct.data.errors import DataError, shortened
from rankstruct.data.names import Names
from rankstruct.data.text import SPACE, check_file, parse_number, unpacked_name
from rankstruct.files import add_to_digest
from rankstruct.messages import did_you_mean
from rankstruct.progress import Progress
from rankstruct.roles import find_column

__all__ = ["read_arrow"]

_log = logging.getLogger(__name__)
_FORMAT = 5  # increment when the same file would result in other arrays
_CELLS = 2**22  # features in memory at once


@register_format(".parquet", ".arrow", ".feather")
def read_arrow(
    path: str | os.PathLike[str],
    *,
    num_features: int | None = None,
    labels: Literal["grades", "real", "optional"] = "grades",
    label: str | None = None,
    qid: str | None = None,
    docid: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    cache: bool | str | os.PathLike[str] = True,
) -> RankingData:
    """Read a Parquet, Arrow (Feather) or CSV file of lists.

    Args:
        path: the file.
        num_features: the least number of features of the result; features missing in the file are 0.
        labels: `"grades"` for integers from 0, `"real"` for any finite number; `"optional"` also for missing ones, or a missing
            column, which are read as 0.
        label: the column of labels; None for the one with a usual name.
        qid: the column of queries, numbers or strings; likewise.
        docid: the column of document names, which may be missing; likewise.
        features: the feature columns, in the order of the result, such as those that a model was trained on; further columns are
            left out, which is logged as a warning. None for those of the file, in its order.
        categorical: feature columns whose values are categories, in addition to those of strings, such as numbers of shops.
        cache: as for `read_svmlight`.

    Raises:
        DataError: the file is missing or of another format; a column is missing, has other values, or more than 1000 categories;
            the documents of a query are not contiguous; pyarrow is not installed.

    >>> read_arrow("train.parquet").summary()  # doctest: +SKIP
    """
    rows = TableReader(Path(path), num_features, labels, Roles(label, qid, docid), features, categorical)
    data = assemble(Path(path), rows.fill, cache, rows.key)
    rows.log_columns()
    return data


class Roles(NamedTuple):
    """The columns of a file that are not features; None if absent, or to be found by their usual names."""

    label: str | None = None
    qid: str | None = None
    docid: str | None = None


class TableReader:
    """The reader of one CSV, Parquet or Arrow file."""

    def __init__(
        self,
        path: Path,
        num_features: int | None,
        labels: str,
        columns: Roles,
        features: Sequence[str] | None = None,
        categorical: Sequence[str] = (),
        progress: bool = False,
    ) -> None:
        self.features = None if features is None else list(features)
        self.categorical = [categorical] if isinstance(categorical, str) else list(categorical)
        self.path, self.num_features, self.labels, self.columns = path, num_features, labels, columns
        self.progress = progress
        self.is_csv = is_csv(path)
        self.roles: Roles
        self.names: list[str] = []  # of the features
        self._begin()
        if labels not in ("grades", "real", "optional"):
            raise ValueError(f"labels must be 'grades', 'real' or 'optional', got {labels!r}")
        check_file(path)

    def _begin(self) -> None:
        self.categories: dict[str, Any] = {}  # of the categorical columns
        self.width: int | None = None  # of lists of numbers
        self.used: list[str] | None = None  # the columns that are read; None for all
        self.left_out: list[str] = []
        self.missing: dict[str, int] = {}

    def key(self) -> str:
        """A cache key of the file's content and the options, 32 characters."""
        parts = [
            _FORMAT,
            self.num_features,
            self.labels,
            self.columns,
            *([] if self.features is None else [self.features]),
            *self.categorical,
        ]
        digest = hashlib.sha256(json.dumps(parts).encode())
        add_to_digest(digest, self.path)
        return digest.hexdigest()[:32]

    def fill(self, assembly: Assembly) -> dict[str, Stream]:
        """Add all documents, and return the resulting arrays."""
        arrow = _pyarrow(self.path)
        self._begin()
        try:
            self._find_columns(arrow)
            columns = self._find_categories(arrow)
            with Progress(
                unit=" rows", unit_scale=True, desc=self.path.name, disable=not self.progress, leave=False
            ) as bar:
                for batch in self._batches(arrow, self.used):
                    if len(batch):
                        assembly.add(self._part(arrow, batch, assembly.rows))
                        bar.update(len(batch))
        except UnicodeDecodeError as error:  # from a CSV file in UTF-16
            raise wrong_encoding(self.path, self._header.encoding, error) from None
        except (arrow.ArrowException, OSError) as error:
            if self.is_csv:
                raise _csv_error(
                    arrow, self.path, self._header, self._strings_of_csv, error, self._advice, self.used
                ) from None
            raise DataError(f"{self.path}: expected a Parquet or Arrow file, got: {_first_line(error)}") from None
        if not assembly.rows:
            raise DataError(f"{self.path}: expected documents, one per row, got none")
        assembly.check_names(self.path, ", row ", "row")
        assembly.filled |= self.missing
        assembly.fill_value = math.nan
        width = max(self.num_features or 0, assembly.width)
        # A column of lists, and features that are missing in the file, have no names.
        assembly.kinds = columns if columns.categorical or len(columns.names) == width else None
        return assembly.finish(None, width, False)

    def log_columns(self) -> None:
        """Warn of columns that were taken for a role or left out, whether the data were read from the file or from the cache."""
        if not self.names:
            self._find_columns(_pyarrow(self.path))
        for role, column in self.roles._asdict().items():
            name = getattr(self.columns, role) or role
            if column not in (None, name):
                _log.warning("%s: column %r is used as %r", self.path, column, name)
        if self.left_out:
            shown = ", ".join(self.left_out)[:200]
            _log.warning("%s: columns that are no features of training are left out: %s", self.path, shown)

    def _find_columns(self, arrow: Any) -> None:
        """Find the roles and the names of the columns that have strings or categories."""
        if self.is_csv:
            header = self._header
            names, words = header.names, [name for at, name in enumerate(header.names) if _are_words(arrow, header, at)]
            check_columns(self.path, names)
        else:
            schema = _schema(arrow, self.path)
            names, words = schema.names, [field.name for field in schema if _is_category(arrow, field.type)]
        self.roles = self._find_roles(names)
        found = self._columns_of_features(names)
        if unknown := [name for name in self.categorical if name not in found]:
            raise DataError(
                f"{self.path}: categorical must name feature columns, got {named(unknown)}; there are {named(found)}"
            )
        self.categories = dict.fromkeys(name for name in found if name in words or name in self.categorical)
        self.names = found

    def _find_categories(self, arrow: Any) -> Columns:
        """The columns of features, with the categories that are read."""
        found: dict[str, set[str]] = {name: set() for name in self.categories}
        for batch in self._batches(arrow, list(found)) if found else ():
            for name, known in found.items():
                known.update(filter(None, self._names(arrow, name, batch.column(name))[0]))
                try:
                    check_number(name, known, f"{self.path}: ")
                except ValueError as error:
                    raise DataError(str(error)) from None
        self.categories = {name: tuple(sorted(known)) for name, known in found.items()}
        return Columns({name: self.categories.get(name) for name in self.names})

    def _batches(self, arrow: Any, only: Sequence[str] | None = None) -> Iterator[Any]:
        return _batches(arrow, self.path, self._header if self.is_csv else None, self._strings_of_csv, only)

    @property
    def _strings_of_csv(self) -> list[str]:
        """The columns of a CSV file that are not parsed as numbers."""
        if not self.is_csv:
            return []
        header = self._header
        ids = [name for name in (self.roles.qid, self.roles.docid) if name and not _are_whole(header, name)]
        return [*ids, *self.categories]

    @property
    def _header(self) -> Header:
        return read_header(self.path, [self.columns.qid or "qid"])

    def _advice(self, name: str, kind: str, got: str) -> str:
        if kind == "string":
            return "; save the file as UTF-8"
        if re.fullmatch(r"'[-+]?\d+,\d+'", got):
            return "; write it with a decimal point"
        if kind == "bool" or got.strip("'").casefold() in ("true", "false"):
            return "; a column of True and False may not have other values"
        if name == self.roles.label:
            return "; use 0 for unknown labels"
        if name in self.roles:
            return "; the first rows have integers, written as 1.0"
        if re.fullmatch(r"'\d{4}-\d\d-\d\d.*'", got):
            return "; convert dates to numbers, such as days since one, or remove the column"
        return f"; if its cells are categories, name it: categorical=[{name!r}]"

    def _part(self, arrow: Any, batch: Any, before: int) -> DocumentBlock:
        qid, docid = str(self.roles.qid), self.roles.docid
        labels, label = np.zeros(len(batch), np.float32), self.roles.label
        if label is not None:
            labels = self._labels(arrow, label, batch.column(label), before)
        qids = self._strings(arrow, qid, batch.column(qid), before)
        features, missing = self._features(arrow, batch, self.names, before)
        changes = np.array([True, *(one != other for one, other in zip(qids[1:], qids[:-1], strict=True))])
        starts = np.flatnonzero(changes)
        return DocumentBlock(
            labels=labels,
            values=features.reshape(-1),
            indices=None,
            counts=None,
            width=features.shape[1],
            starts=starts,
            qids=Names.of([qids[at] for at in starts.tolist()]),
            places=starts + before + 1,
            docids=None if docid is None else Names.of(self._strings(arrow, docid, batch.column(docid), before)),
            missing=missing if missing.any() else None,
        )

    def _find_roles(self, names: list[str]) -> Roles:
        check_columns(self.path, names)
        others = [name for name in names if name not in (self.features or ())]  # a feature may have a usual name
        found = Roles(**find_columns(self.path, others, self.columns._asdict()))
        optional = ("docid", "label") if self.labels == "optional" else ("docid",)
        for role, column in found._asdict().items():
            if column is None and role not in optional:
                advice = f"; {role}= names another column" + ", or use 0 for unknown labels" * (role == "label")
                raise missing_column(self.path, role, getattr(self.columns, role), names, advice)
        return found

    def _columns_of_features(self, names: list[str]) -> list[str]:
        found = [name for name in names if name not in self.roles]
        if self.features is None:
            return found
        missing, unknown = (
            [name for name in one if name not in other]
            for one, other in ((self.features, found), (found, self.features))
        )
        if unknown and not missing:
            self.used, self.left_out = [name for name in names if name not in unknown], unknown
        elif missing:
            differences = [
                f"{what} {named(each)}" for what, each in (("missing:", missing), ("unknown:", unknown)) if each
            ]
            wanted = shortened(", ".join(self.features), 200)
            raise DataError(f"{self.path}: expected the features {wanted}, in any order; {', '.join(differences)}")
        return self.features

    def _labels(self, arrow: Any, name: str, column: Any, before: int) -> np.ndarray:
        plain = _plain(arrow, column)
        if _is_text(arrow, plain.type):  # such as "1.0"
            column = self._parsed(arrow, name, plain, before)
        labels, missing = self._numbers(arrow, name, column)
        if self.labels == "optional":
            labels = np.where(missing | np.isnan(labels), 0, labels)
        else:
            self._refuse(missing, name, "a number", before, advice="; use 0 for unknown labels")
        self._refuse(~np.isfinite(labels), name, "a finite number", before, labels)
        single = labels.astype(np.float32)
        if self.labels == "grades":
            self._refuse((labels < 0) | (labels % 1 != 0), name, "a grade, an integer from 0", before, labels, _REAL)
            most = f"a grade that is exact in float32, up to {LARGEST_SINGLE},"
            self._refuse(labels.astype(np.float64) > LARGEST_SINGLE, name, most, before, labels)
        self._refuse(~np.isfinite(single), name, "a number in the range of float32", before, labels)
        return single

    def _parsed(self, arrow: Any, name: str, column: Any, before: int) -> Any:
        """A column of strings as numbers."""
        words = column.to_pylist()
        found = [None if word is None else _parsed(word) for word in words]
        self._refuse(np.array([each is _WRONG for each in found], bool), name, "a number", before, words)
        return arrow.array(found, arrow.float64())

    def _features(self, arrow: Any, batch: Any, names: list[str], before: int) -> tuple[np.ndarray, np.ndarray]:
        """Features `[n, d]` float32, NaN if missing, and the number of missing ones per document `[n]`."""
        columns = [batch.column(name) for name in names]
        if not names:
            wanted = ", ".join(name or role for role, name in self.columns._asdict().items())
            raise DataError(f"{self.path}: expected feature columns in addition to {wanted}, got none")
        if len(names) == 1 and _is_list(arrow, (column := _plain(arrow, columns[0])).type):
            features = self._lists(arrow, names[0], column, before)
        else:
            features = np.empty((len(batch), len(names)), np.float32)
            for at, (name, column) in enumerate(zip(names, columns, strict=True)):
                with np.errstate(over="ignore"):  # reported below as infinite
                    features[:, at] = self._column(arrow, name, column)
        wrong, missing = np.isinf(features), np.isnan(features)
        if wrong.any():
            row, at = np.argwhere(wrong)[0].tolist()
            name = names[min(at, len(names) - 1)]
            raise DataError(
                f"{self.path}, row {before + row + 1}: expected finite numbers (in the range of float32) in {name!r}, got a "
                "larger one"
            )
        for name, count in zip(
            names, missing.sum(axis=0).tolist() if len(names) > 1 else [int(missing.sum())], strict=True
        ):
            if count:
                self.missing[name] = self.missing.get(name, 0) + count
        return features, missing.sum(axis=1, dtype=np.int32)

    def _column(self, arrow: Any, name: str, column: Any) -> np.ndarray:
        """Numbers or codes `[n]`, NaN if missing."""
        if name in self.categories:
            names, numbers = self._names(arrow, name, column)
            return codes_of(names, self.categories[name])[numbers]
        values, missing = self._numbers(arrow, name, column)
        return np.where(missing, np.nan, values) if missing.any() else values

    def _names(self, arrow: Any, name: str, column: Any) -> tuple[list[str | None], np.ndarray]:
        """The distinct names of categories in a column, None if missing, and the index of each row's."""
        plain = _plain(arrow, column)
        if arrow.types.is_null(plain.type):
            return [None], np.zeros(len(plain), np.int64)
        if str(plain.type).endswith("_view"):
            plain = plain.cast(arrow.large_string())
        try:
            coded = plain.dictionary_encode("encode")
            names = [category_name(each) for each in coded.dictionary.to_pylist()]
        except (TypeError, arrow.ArrowNotImplementedError):
            shown = str(column.type)[:100]
            raise DataError(f"{self.path}: expected strings or numbers in column {name!r}, got {shown}") from None
        if self.is_csv:
            words = arrow.csv.ConvertOptions().null_values
            names = [None if each in words else each for each in names]
        return names, coded.indices.to_numpy(zero_copy_only=False)

    def _lists(self, arrow: Any, name: str, column: Any, before: int) -> np.ndarray:
        """A column of lists as numbers `[n, d]`, NaN if missing."""
        self._refuse(_nulls(column), name, "a list of numbers", before)
        lengths = np.asarray(arrow.compute.list_value_length(column).to_pylist())
        self.width = int(lengths[0]) if self.width is None else self.width
        self._refuse(
            lengths != self.width, name, f"lists of the same length, {self.width} as in row 1,", before, lengths
        )
        if not self.width:
            raise DataError(f"{self.path}: expected lists of numbers in column {name!r}, got empty ones")
        with np.errstate(over="ignore"):
            return self._column(arrow, name, column.flatten()).astype(np.float32).reshape(len(column), -1)

    def _numbers(self, arrow: Any, name: str, column: Any) -> tuple[np.ndarray, np.ndarray]:
        """Numbers, 0 if missing, and a mask of missing ones."""
        return _numbers(arrow, self.path, name, column, "" if name == self.roles.label else None)

    def _strings(self, arrow: Any, name: str, column: Any, before: int) -> list[str]:
        """Names as strings; integers in digits."""
        given, column, kinds = column, _plain(arrow, column), arrow.types
        kind, shown = column.type, str(given.type)[:100]
        self._refuse(_nulls(column), name, "a name", before)
        if shown.startswith("extension<arrow.uuid"):
            return list(map(str, given.to_pylist()))
        if kinds.is_floating(kind) or kinds.is_decimal(kind):
            values, most = column.to_pylist(), LARGEST if kinds.is_floating(kind) else math.inf
            wrong = np.array([value % 1 != 0 or abs(value) > most for value in values], bool)
            self._refuse(wrong, name, "a name or an integer", before, values)
            return [str(int(value)) for value in values]
        if kinds.is_temporal(kind) and not kinds.is_interval(kind):
            return list(column.cast(arrow.string()).to_pylist())
        if _is_bytes(arrow, kind):
            column = self._decoded(arrow, name, column, before)
        elif not (_is_text(arrow, kind) or kinds.is_integer(kind) or kinds.is_boolean(kind)):
            raise DataError(f"{self.path}: expected names (strings or integers) in column {name!r}, got {shown}")
        found = [value if isinstance(value, str) else str(value) for value in column.to_pylist()]
        if self.is_csv:
            found = [value.strip(SPACE) for value in found]  # as in runs and qrels
        self._refuse(np.array([not value for value in found], bool), name, "a name", before)
        return found

    def _decoded(self, arrow: Any, name: str, column: Any, before: int) -> Any:
        """Bytes as strings."""
        values = column.to_pylist()
        found = [value.decode("utf-8", "replace") for value in values]
        wrong = np.array([text.encode() != value for text, value in zip(found, values, strict=True)], bool)
        self._refuse(wrong, name, "a name in UTF-8", before, values)
        return arrow.array(found, arrow.string())

    def _refuse(
        self, wrong: np.ndarray, name: str, expected: str, before: int, values: Any = None, advice: str = ""
    ) -> None:
        if wrong.any():
            at = int(wrong.argmax())
            value = None if values is None else values[at]
            got = "none" if value is None else shortened(value.item() if isinstance(value, np.generic) else value)
            raise DataError(
                f"{self.path}, row {before + at + 1}: expected {expected} in column {name!r}, got {got}{advice}"
            )


def _batches(
    arrow: Any, path: Path, header: Header | None, strings: Sequence[str], only: Sequence[str] | None = None
) -> Iterator[Any]:
    """The rows of a file, and only these columns if given; `header` of a CSV file, None for Parquet and Arrow."""
    if header is not None:
        yield from _csv_batches(arrow, path, header, strings, only)
        return
    with open(path, "rb") as file:
        begins = _begins(path, file)
        if begins[:4] == b"PAR1":
            parquet = arrow.parquet.ParquetFile(file)
            width = max(1, parquet.metadata.num_columns if only is None else len(only))
            yield from parquet.iter_batches(max(1, min(2**16, _CELLS // width)), columns=only)
            return
        if begins == b"ARROW1":
            reader = arrow.ipc.open_file(file)
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            batches = iter(arrow.ipc.open_stream(file))
        for batch in batches:
            batch.validate(full=True)  # the offsets of a damaged file point anywhere in memory
            yield batch if only is None else batch.select(only)


def _csv_error(
    arrow: Any,
    path: Path,
    header: Header,
    strings: Sequence[str],
    error: Exception,
    advise: Callable[[str, str, str], str],
    only: Sequence[str] | None = None,
) -> DataError:
    """The error of a CSV file with column names and row number; `advise` is given a column, its kind and the cell."""
    said = _first_line(error)
    try:  # a single thread reports row numbers
        for _ in _csv_batches(arrow, path, header, strings, only, use_threads=False):
            pass
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as again:
        said = _first_line(again)
    if header.quotes and ('"' in said or "out of sync" in said):  # by a line end within quotation marks
        check_quotes(path, header)
    row = re.search(r"Row #(\d+): ", said)
    place = f"{path}, row {int(row[1]) - 1}" if row else str(path)
    if value := re.search(r"CSV column #(\d+): .*CSV conversion error to (\w+): (?:invalid value )?(.*)", said):
        name, kind, got = header.names[int(value[1])], value[2], value[3]
        expected = {"bool": "True or False, as in the rows before,", "string": "text in UTF-8"}.get(kind, "a number")
        advice, got = advise(name, kind, got), shortened(got.strip("'"))
        return DataError(f"{place}: expected {expected} in column {name!r}, got {got}{advice}")
    if cells := re.search(r"Expected (\d+) columns, got (\d+): ?(.*)", said):
        return DataError(
            f"{place}: expected {cells[1]} cells separated by {header.between}s, one for each of "
            f"{named(header.names)}, got {cells[2]}: {shortened(cells[3])}"
        )
    return DataError(f"{place}: expected a CSV file, got: {said}")


def _numbers(
    arrow: Any, path: Path, name: str, column: Any, advice: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers, 0 if missing, and a mask of missing ones."""
    shown, column = str(column.type)[:100], _plain(arrow, column)
    kind, kinds = column.type, arrow.types
    if kinds.is_null(kind):
        return np.zeros(len(column)), np.ones(len(column), bool)
    if kinds.is_decimal(kind):
        column = column.cast(arrow.float64())
    elif not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)):
        advice = _advice_on(arrow, kind) if advice is None else advice
        raise DataError(f"{path}: expected numbers in column {name!r}, got {shown}{advice}")
    missing = _nulls(column)
    if missing.any():
        column = column.fill_null(False if kinds.is_boolean(kind) else 0)
    return column.to_numpy(zero_copy_only=False), missing


def seconds(name: str, values: Any) -> np.ndarray:
    """Times in memory, numbers or dates as in files, NaN if missing.

    Integers are kept exactly, other numbers are float64. Dates are in seconds from 1970, integers if all are whole; or datetime64
    if float64 would merge different ones, such as those of nanoseconds.

    Raises:
        DataError: other values, or years whose seconds are no 64-bit integers; strings or objects of dates require pyarrow.
    """
    try:
        found = as_array(name, values)
        if found.dtype.kind == "M":
            return _seconds_of_dates(name, found)
        if found.dtype.kind not in "OUS":
            return _of_numbers(name, found)
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from None
    with suppress(TypeError, ValueError):
        return _of_numbers(name, found)
    if all(hasattr(each, "to_datetime64") for each in found.flat):  # of pandas, which pyarrow would cut to microseconds
        return _seconds_of_dates(name, np.array([each.to_datetime64() for each in found.flat]).reshape(found.shape))
    arrow = _pyarrow(name, "dates that are strings or Python objects")
    try:
        column = _as_times(arrow, arrow.array(found.tolist(), from_pandas=True))
        if _is_date(arrow, column.type):
            return _seconds_of_dates(name, column.to_numpy(zero_copy_only=False))
        numbers, missing = _numbers(arrow, Path(name), name, column)
    except (arrow.ArrowException, TypeError, ValueError):
        raise DataError(f"{name} must be numbers or dates, such as '2024-01-31', got {str(values)[:60]}") from None
    return np.where(missing, np.nan, numbers) if missing.any() else numbers


def _of_numbers(name: str, values: np.ndarray) -> np.ndarray:
    numbers = as_numbers(name, values, exact=False)
    return numbers if numbers.dtype.kind in "iu" else numbers.astype(np.float64)


def _seconds_of_dates(name: str, dates: np.ndarray) -> np.ndarray:
    """Dates as `seconds` has them; datetime64 of any unit."""
    missing = np.isnat(dates)
    known = np.where(missing, np.zeros(1, dates.dtype), dates)
    whole = known.astype("datetime64[s]")
    beyond = np.abs(known.astype("datetime64[Y]").astype(np.float64)) > 2.9e11  # years, of which seconds would wrap
    if beyond.any():
        raise DataError(
            f"{name} must be dates whose seconds from 1970 are 64-bit integers, got {known[beyond][0]}, as of entry "
            f"{int(beyond.argmax())}"
        )
    found = whole.astype(np.int64)
    fraction = (known - whole) / np.timedelta64(1, "s") if (whole != known).any() else None
    if fraction is not None:
        exact, found = dates, found + fraction
        if len(np.unique(found)) < len(np.unique(known)):
            return exact
    return np.where(missing, np.nan, found) if missing.any() else found


def _as_times(arrow: Any, column: Any) -> Any:
    """An Arrow array of dates, without the time zone, or of numbers; text is parsed if all of it is one of the two."""
    dates = [arrow.timestamp(unit, zone) for zone in (None, "UTC") for unit in ("us", "ns")]
    for kind in (*dates, arrow.int64(), arrow.float64()):
        if _is_text(arrow, column.type):
            with suppress(arrow.ArrowInvalid):
                column = column.cast(kind)
    if arrow.types.is_timestamp(column.type):
        return column.cast(arrow.timestamp(column.type.unit))
    return column


def _is_date(arrow: Any, kind: Any) -> bool:
    return bool(arrow.types.is_timestamp(kind) or arrow.types.is_date(kind))


_WRONG: Any = object()
_WHOLE = r"^(-?[1-9]\d*|0)\.0$"  # integers in a column of floats, as pandas writes those next to missing ones
_DATES = "; write dates as 2024-01-31 or 2024-01-31T10:00:00, all with a time zone or none"
_TYPED = (".parquet", ".pq", ".arrow", ".feather")
_REAL = "; labels='real' takes any number"


def _csv_batches(
    arrow: Any,
    path: Path,
    header: Header,
    strings: Sequence[str],
    only: Sequence[str] | None = None,
    *,
    use_threads: bool = True,
) -> Iterator[Any]:
    """The rows of a CSV file; all columns except `strings` are parsed as numbers, without type inference."""
    names = header.names
    kinds = {name: arrow.bool_() if _are_flags(header, at) else arrow.float64() for at, name in enumerate(names)}
    kinds |= dict.fromkeys(strings, arrow.string())
    options = {
        "read_options": arrow.csv.ReadOptions(
            column_names=names, skip_rows=1, encoding=header.encoding.removesuffix("-sig"), use_threads=use_threads
        ),
        "parse_options": arrow.csv.ParseOptions(delimiter=header.separator, quote_char='"' if header.quotes else False),
        "convert_options": arrow.csv.ConvertOptions(column_types=kinds, include_columns=only),
    }
    with open_unpacked(path) as stream, arrow.csv.open_csv(stream, **options) as reader:
        yield from reader
        if header.quotes and stream.raw.quotes % 2:
            check_quotes(path, header)


def _are_flags(header: Header, at: int) -> bool:
    """Whether the first rows of a column have only True and False."""
    cells = _first_cells(header, at) - {""}
    return bool(cells) and {cell.casefold() for cell in cells} <= {"true", "false"}


def _are_times(header: Header, at: int) -> bool:
    """Whether the first rows of a column have only dates, or integers that float64 may not represent."""
    cells = _first_cells(header, at) - {""}
    return bool(cells) and all(re.match(r"\d{4}-\d\d-\d\d|[-+]?\d{16,}$", cell) for cell in cells)


def _are_whole(header: Header, name: str) -> bool:
    """Whether the first rows of a column of names are integers written as floats, as pandas does beside missing ones."""
    cells = _first_cells(header, header.names.index(name))
    return bool(cells) and all(re.match(_WHOLE, cell) for cell in cells)


def _first_cells(header: Header, at: int) -> set[str]:
    return {row[at] for row in header.rows if at < len(row)}


def _are_words(arrow: Any, header: Header, at: int) -> bool:
    """Whether no cell in the first rows of a column is like a number or a date, and some are not empty."""
    cells = _first_cells(header, at) - set(arrow.csv.ConvertOptions().null_values)
    numbers = re.compile(r"[-+]?\d+,\d+|\d{4}-\d\d-\d\d.*|true|false", re.IGNORECASE)
    return bool(cells) and all(_parsed(cell) is _WRONG and not numbers.fullmatch(cell) for cell in cells)


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Whether a file is CSV by its name, with any separator: `.csv`, `.tsv`, or RecBole's `.inter`."""
    return unpacked_name(Path(path).name).casefold().endswith((".csv", ".tsv", ".inter"))


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a file is CSV, Parquet or Arrow by its name."""
    return is_csv(path) or Path(unpacked_name(Path(path).name)).suffix.casefold() in _TYPED


def column_names(path: str | os.PathLike[str], known: Mapping[str, str | None]) -> list[str]:
    """The names of the feature columns, in the order of the file, with the others by role, None to find them.

    Raises:
        DataError: a file of another format, or several columns for a role.
    """
    if is_csv(path):
        names = read_header(path, [known["qid"] or "qid"]).names
    else:
        arrow = _pyarrow(Path(path))
        try:
            names = _schema(arrow, Path(path)).names
        except (arrow.ArrowException, OSError) as error:
            raise DataError(f"{path}: expected a Parquet or Arrow file, got: {_first_line(error)}") from None
    roles = find_columns(path, names, known).values()
    return [name for name in names if name not in roles]


def find_columns(
    path: object, names: Sequence[str], given: Mapping[str, str | None], argument: str | None = None
) -> dict[str, str | None]:
    """The column of each role, None if there is none, as `find_column` does; raises DataError if there are several."""
    try:
        return {role: find_column(names, role, name, argument) for role, name in given.items()}
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None


def missing_column(path: object, role: str, given: str | None, names: Sequence[str], advice: str = "") -> DataError:
    """The error for a table without the column of a role, `given` or with a usual name, with those that it has."""
    near = did_you_mean(given or role, names)
    more = "" if given else advice
    return DataError(f"{path}: there is no column {given or role!r}; there are {named(names)}{more}{near}")


class Ids(NamedTuple):
    """A column of ids.

    Attributes:
        names: the distinct ids, sorted; numbers in files that have types, otherwise strings, without ".0" if all end with it.
        places: int32 `[rows]`, the index of each row's id in `names`.
    """

    names: np.ndarray
    places: np.ndarray


class Table:
    """The columns of a CSV, Parquet or Arrow file that have a role, such as a user or a click.

    Args:
        path: the file; it is CSV unless its name is that of a Parquet or Arrow file.
        columns: the name of each role's column, None for the one with a usual name.
        optional: roles that may be missing.
        numbers: roles whose values are numbers, and for `"time"` possibly dates; those of the others are ids.
        argument: "" if callers cannot name columns, for messages.

    Attributes:
        names: all columns, in the order of the file.
        columns: the column of each role.

    Raises:
        DataError: the file is missing, damaged or of another format, or a column is missing; pyarrow is not installed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: Mapping[str, str | None],
        *,
        optional: Collection[str] = (),
        numbers: Collection[str] = (),
        argument: str | None = None,
    ) -> None:
        self.path, self.numbers = Path(path), numbers
        self._arrow = _pyarrow(self.path)
        check_file(self.path)
        wanted = [name or role for role, name in columns.items()]
        self._header = None if self.path.suffix.casefold() in _TYPED else read_header(self.path, wanted)
        with self._errors():
            self.names = _schema(self._arrow, self.path).names if self._header is None else self._header.names
        if not self.names:
            raise DataError(f"{self.path}: expected column names in the first line, got an empty file")
        found = find_columns(self.path, self.names, columns, argument)
        if several := [name for name in found.values() if self.names.count(str(name)) > 1]:
            raise DataError(f"{self.path}: expected one column {several[0]!r}, got several")
        if missing := [role for role, name in found.items() if name is None and role not in optional]:
            raise missing_column(self.path, missing[0], columns[missing[0]], self.names)
        self.columns = {role: name for role, name in found.items() if name is not None}

    def read(self) -> dict[str, Any]:
        """The columns by role, `Ids` or an array of numbers, which may be NaN; times are in seconds.

        Raises:
            DataError: a missing id, or a value that is no number.
        """
        parts: dict[str, list[Any]] = {role: [] for role in self.columns}
        for batch in self.batches(list(self.columns.values())):
            for role, name in self.columns.items():
                read = self._times_of if role == "time" else self.numbers_of if role in self.numbers else self._encoded
                parts[role].append(read(name, batch.column(name)))
        return {
            role: self._joined(role, each) if role in self.numbers else self._ids(role, each)
            for role, each in parts.items()
        }

    def _joined(self, role: str, parts: Sequence[np.ndarray]) -> np.ndarray:
        """The parts of a column of numbers."""
        if not parts:
            return np.zeros(0)
        if role != "time":
            return np.concatenate(parts)
        name = self.columns[role]
        if len({part.dtype.kind == "M" for part in parts}) > 1:
            raise DataError(f"{self.path}: expected numbers or dates in column {name!r}, got both{_DATES}")
        return seconds(f"{self.path}: column {name!r}", np.concatenate(parts))

    def batches(self, names: Sequence[str], advice: str = "") -> Iterator[Any]:
        """The rows of the file as Arrow batches with these columns; of a CSV file, all but ids are numbers.

        `advice` ends the message about a cell of a CSV file that is not.
        """
        header, time = self._header, self.columns.get("time")
        dates = header is not None and time is not None and _are_times(header, self.names.index(time))
        texts = {role for role in self.columns if role not in self.numbers} | ({"time"} if dates else set())
        ids = [name for role, name in self.columns.items() if role in texts]
        with self._errors(ids, names, advice):
            yield from _batches(self._arrow, self.path, self._header, ids, names)

    def numbers_of(self, name: str, column: Any) -> np.ndarray:
        """An Arrow array as numbers, NaN if missing."""
        values, missing = _numbers(
            self._arrow, self.path, name, column, _DATES if name == self.columns.get("time") else None
        )
        return np.where(missing, np.nan, values) if missing.any() else values

    def _times_of(self, name: str, column: Any) -> np.ndarray:
        """An Arrow array of times, as numbers or datetime64."""
        column = _as_times(self._arrow, column)
        if not _is_date(self._arrow, column.type):
            return self.numbers_of(name, column)
        dates: np.ndarray = column.to_numpy(zero_copy_only=False)
        return dates

    def _encoded(self, name: str, column: Any) -> Any:
        """Ids as an Arrow dictionary."""
        plain, arrow, shown = _plain(self._arrow, column), self._arrow, str(column.type)[:100]
        kind = plain.type
        try:
            if shown.startswith("extension<arrow.uuid"):
                plain = arrow.array(
                    [None if each is None else str(each) for each in column.to_pylist()], arrow.string()
                )
            elif arrow.types.is_null(kind) or _is_bytes(arrow, kind) or str(kind).endswith("_view"):
                plain = plain.cast(arrow.string())
            elif arrow.types.is_floating(kind):  # whole numbers, such as those of pandas beside missing ones
                plain = arrow.compute.if_else(arrow.compute.is_finite(plain), plain, None).cast(arrow.int64())
            return plain.dictionary_encode()
        except (TypeError, arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
            raise DataError(
                f"{self.path}: expected ids (strings or integers) in column {name!r}, got {shown}"
            ) from None

    def _ids(self, role: str, parts: list[Any]) -> Ids:
        if not parts:
            return Ids(np.zeros(0, object), np.zeros(0, np.int32))
        whole = self._arrow.chunked_array(parts).unify_dictionaries()
        known, compute = whole.chunk(0).dictionary, self._arrow.compute
        if self._header is not None and compute.all(compute.match_substring_regex(known, _WHOLE)).as_py():
            known = compute.utf8_slice_codeunits(known, 0, -2)
        names = known.to_numpy(zero_copy_only=False)
        places = np.concatenate([each.indices.fill_null(-1).to_numpy() for each in whole.chunks]).astype(np.int32)
        missing = [name == "" for name in names.tolist()]
        wrong = np.array([*missing, True], bool)[places]
        if wrong.any():
            raise DataError(
                f"{self.path}, row {int(wrong.argmax()) + 1}: expected an id in column {self.columns[role]!r}, got none"
            )
        order = np.argsort(names)
        new = np.empty(len(order), np.int32)
        new[order] = np.arange(len(order))
        return Ids(names[order], new[places])

    @contextmanager
    def _errors(self, ids: Sequence[str] = (), names: Sequence[str] | None = None, advice: str = "") -> Iterator[None]:
        """Errors of pyarrow as DataError."""
        try:
            yield
        except (self._arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            if self._header is not None:
                raise _csv_error(self._arrow, self.path, self._header, ids, error, lambda *_: advice, names) from None
            raise DataError(f"{self.path}: expected a Parquet or Arrow file, got: {_first_line(error)}") from None


def _schema(arrow: Any, path: Path) -> Any:
    """The names and types of a Parquet or Arrow file's columns."""
    with open(path, "rb") as file:
        begins = _begins(path, file)
        if begins[:4] == b"PAR1":
            return arrow.parquet.ParquetFile(file).schema_arrow
        return (arrow.ipc.open_file if begins == b"ARROW1" else arrow.ipc.open_stream)(file).schema


def _begins(path: Path, file: Any) -> bytes:
    """The first bytes of a file, which is rewound."""
    begins: bytes = file.read(6)
    file.seek(0)
    if unpacked_name(path.name) != path.name:
        raise DataError(
            f"{path}: expected an uncompressed Parquet or Arrow file, since these compress internally; decompress the file"
        )
    return begins


def _parsed(word: str) -> Any:
    try:
        return parse_number(word)
    except ValueError:
        return _WRONG


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]


def _plain(arrow: Any, column: Any) -> Any:
    """Unwrap a column: extension types, dictionaries and run-end encoding."""
    while True:
        kind = column.type
        if isinstance(kind, arrow.BaseExtensionType):
            column = column.storage
        elif arrow.types.is_dictionary(kind):
            values = column.dictionary
            if str(kind.value_type).endswith("_view"):  # for which pyarrow has no take
                values = values.cast(arrow.large_string() if _is_text(arrow, kind.value_type) else arrow.large_binary())
            column = values.take(column.indices)
        elif str(kind).startswith("run_end_encoded"):
            column = arrow.compute.run_end_decode(column)
        else:
            return column


def _nulls(column: Any) -> np.ndarray:
    found: np.ndarray = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _is_text(arrow: Any, kind: Any) -> bool:
    return arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or str(kind) == "string_view"


def _is_category(arrow: Any, kind: Any) -> bool:
    while str(kind).startswith("run_end_encoded"):
        kind = kind.value_type
    return arrow.types.is_dictionary(kind) or _is_text(arrow, kind)


def _is_bytes(arrow: Any, kind: Any) -> bool:
    plain = arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind) or arrow.types.is_fixed_size_binary(kind)
    return plain or str(kind) == "binary_view"


def _is_list(arrow: Any, kind: Any) -> bool:
    plain = arrow.types.is_list(kind) or arrow.types.is_large_list(kind) or arrow.types.is_fixed_size_list(kind)
    return plain or str(kind).startswith(("list_view", "large_list_view"))


def _advice_on(arrow: Any, kind: Any) -> str:
    if arrow.types.is_temporal(kind):
        return "; convert it to numbers, such as days since a date, or remove the column"
    if _is_list(arrow, kind):
        return "; a column of lists must be the only feature column"
    return "; remove the column"


def _pyarrow(path: object, what: str = "Parquet, Arrow and CSV files") -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.ipc
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise DataError(
            f"{path}: {what} require pyarrow, which is not installed; pip install 'rankstruct[arrow]'"
        ) from None
    return pyarrow
