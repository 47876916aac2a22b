"""The one reader of tables: CSV, Parquet and Arrow files, and data frames, as Arrow batches whose columns are found by role.

A CSV file has column names in the first line, from which the separator (comma, semicolon, tab or bar) is inferred; UTF-16 is
detected by its byte order mark. Numbers have a decimal point, True and False are 1 and 0, and an empty cell or NaN is a null. It
may be compressed: `.gz`, `.bz2`, `.xz` or `.zst`. Files of other formats and data frames have types.

Ids are integers or strings, as they are written: in a CSV file without surrounding blanks, and whole floats as integers.
"""

from __future__ import annotations

import codecs
import csv
import datetime
import io
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rankstruct.arrays import LARGEST
from rankstruct.columns import USUAL, as_arrow, as_table, find_column, is_text, named_columns, numbers, plain
from rankstruct.data.errors import DataError
from rankstruct.data.names import Names
from rankstruct.data.shards import Shards, is_shards
from rankstruct.data.text import SPACE, check_file, parse_number, read_blocks, text_lines, unpacked_name
from rankstruct.data.times import as_times, is_date, seconds
from rankstruct.messages import Way, did_you_mean, shortened

__all__: list[str] = []

_CELLS = 2**22  # in memory at once
_TYPED = (".parquet", ".pq", ".arrow", ".feather")
_WHOLE = r"^(-?[1-9]\d*|0)\.0$"  # integers in a column of floats, as pandas writes those next to missing ones
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_MARKS = (  # UTF-32 first, since UTF-16's are prefixes
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_HEAD = 2**16  # characters of a CSV file that tell its dialect
_DATES = "; write dates as 2024-01-31 or 2024-01-31T10:00:00, all with a time zone or none"


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Whether a file is CSV by its name, with any separator: `.csv`, `.tsv`, or RecBole's `.inter`."""
    return unpacked_name(Path(path).name).casefold().endswith((".csv", ".tsv", ".inter"))


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a file is CSV, Parquet or Arrow by its name."""
    return is_csv(path) or _is_typed(path)


def _is_typed(path: str | os.PathLike[str]) -> bool:
    return Path(unpacked_name(Path(path).name)).suffix.casefold() in _TYPED


def find_columns(
    source: object, names: Sequence[str], given: Mapping[str, str | None], argument: str | None = None
) -> dict[str, str | None]:
    """The column of each role, None if there is none, as `find_column` does; raises DataError if there are several."""
    try:
        return {role: find_column(names, role, name, argument) for role, name in given.items()}
    except ValueError as error:
        raise DataError(f"{source}: {error}") from None


def missing_column(
    source: object, role: str, given: str | None, names: Sequence[str], advice: str | Way = ""
) -> DataError:
    """The error for a table without the column of a role, `given` or with a usual name, with those that it has."""
    near = did_you_mean(given or role, names)
    told = f"{source}: there is no column {given or role!r}; there are {named(names)}{near}"
    return DataError(told, "" if given else advice)


def named(names: Iterable[str], most: int = 200) -> str:
    """Column names for a message."""
    return shortened(", ".join(names), most)


def check_columns(path: object, names: Sequence[str]) -> None:
    """Raise DataError for unnamed or duplicate columns, and for the index of a pandas data frame."""
    for at, name in enumerate(names):
        if not name or name in names[:at] or re.fullmatch(r"__index_level_\d+__|Unnamed: 0", name):
            raise DataError(
                f"{path}: expected columns with unique names, got {name!r} for column {at + 1}; the row number "
                "(the index of a pandas data frame) is not a feature: write the table without it"
            )


class Ids(NamedTuple):
    """A column of ids.

    Attributes:
        names: the distinct ids, sorted: integers, strings or dates.
        places: int32 `[rows]`, the index of each row's id in `names`.
    """

    names: np.ndarray
    places: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """`[rows]`, the id of each row."""
        return self.names[self.places]


class TableReader:
    """A table in a file or in memory: its columns, and those that have a role, such as a user or a click.

    Args:
        source: a CSV, Parquet or Arrow file, CSV unless its name is that of another format; the folder, pattern or URL of
            Parquet files; or a data frame.
        roles: the name of each role's column, None for the one with a usual name.
        optional: roles that may be missing, unless they are named.
        absent: roles that may be missing even if they are named.
        argument: "" if callers cannot name columns, for messages.
        names: the columns of a CSV file without names in the first line.
        features: columns that have no role, though their names may be usual ones.
        advice: the ends of messages about missing roles.

    Attributes:
        names: all columns, in order.
        columns: the column of each role.
        header: the dialect of a CSV file; None for others. Columns of Parquet and Arrow files have `kinds`, their types by name.
        shards: several Parquet files; None for one file.

    Raises:
        DataError: the file is missing, damaged or of another format, or a column is missing.
    """

    def __init__(
        self,
        source: Any,
        roles: Mapping[str, str | None],
        *,
        optional: Collection[str] = (),
        absent: Collection[str] = (),
        argument: str | None = None,
        names: Sequence[str] = (),
        features: Collection[str] = (),
        advice: Mapping[str, str | Way] | None = None,
    ) -> None:
        self.header: Header | None = None
        self.shards: Shards | None = None
        self.kinds: dict[str, Any] = {}
        self.path = Path(source) if isinstance(source, str | os.PathLike) else None
        if self.path is None:
            with self._data_errors():
                self._frame = named_columns(as_table("X", source))
            self.names = list(self._frame)
        elif is_shards(self.path):
            self.shards = Shards(self.path)
            self.names, self.kinds = self.shards.schema.names, {field.name: field.type for field in self.shards.schema}
        else:
            check_file(self.path)
            if not _is_typed(self.path):
                self.header = read_header(self.path, [name or role for role, name in roles.items()])
                if names:
                    self.header = self.header._replace(
                        names=list(names),
                        rows=[self.header.names, *self.header.rows],
                        first=self.header.first - 1,
                    )
                self.names = self.header.names
            else:
                with self._errors():
                    schema = _schema(self.path)
                self.names, self.kinds = schema.names, {field.name: field.type for field in schema}
        if not self.names:
            raise DataError(f"{self}: expected column names in the first line, got an empty file")
        found = find_columns(self, [name for name in self.names if name not in features], roles, argument)
        if several := [name for name in found.values() if self.names.count(str(name)) > 1]:
            raise DataError(f"{self}: expected one column {several[0]!r}, got several")
        for role, name in found.items():
            if name is None and role not in absent and (role not in optional or roles[role] is not None):
                way = "" if argument == "" else Way(role, None, "{} names another column")
                raise missing_column(self, role, roles[role], self.names, (advice or {}).get(role, way))
        self.columns = {role: name for role, name in found.items() if name is not None}

    def __str__(self) -> str:
        """The path, or "the data frame", for messages."""
        return "the data frame" if self.path is None else str(self.path)

    def read(self, numeric: Collection[str] = ()) -> dict[str, Any]:
        """The columns by role: `Ids`; for roles that are `numeric`, numbers, which may be NaN; for `"time"`, see `seconds`.

        Raises:
            DataError: a missing id, or a value that is no number.
        """
        parts: dict[str, list[Any]] = {role: [] for role in self.columns}
        dated = self.header is not None and "time" in self.columns and self.header.are_dates(self.columns["time"])
        texts = [name for role, name in self.columns.items() if role not in numeric and (role != "time" or dated)]
        before = 0
        for batch in self.batches(list(self.columns.values()), texts):
            for role, name in self.columns.items():
                column = batch.column(name)
                if role == "time":
                    part = self._times(name, column)
                else:
                    part = self.numbers(name, column) if role in numeric else self.ids(name, column, before)
                parts[role].append(part)
            before += len(batch)
        return {role: self._joined(role, each, numeric) for role, each in parts.items()}

    def _joined(self, role: str, parts: list[Any], numeric: Collection[str]) -> Any:
        name = self.columns[role]
        if role == "time" and parts:
            if len({part.dtype.kind == "M" for part in parts}) > 1:
                raise DataError(f"{self}: expected numbers or dates in column {name!r}, got both{_DATES}")
            return seconds(f"{self}: column {name!r}", np.concatenate(parts))
        if role in (*numeric, "time"):
            return np.concatenate(parts) if parts else np.zeros(0)
        return self._numbered(parts)

    def _numbered(self, parts: list[Any]) -> Ids:
        """Ids of Arrow arrays."""
        if not parts:
            return Ids(np.zeros(0, object), np.zeros(0, np.int32))
        import pyarrow as pa
        import pyarrow.compute as pc

        whole = pa.chunked_array(parts).unify_dictionaries()
        known = whole.chunk(0).dictionary
        if self.header is not None and pc.all(pc.match_substring_regex(known, _WHOLE)).as_py():
            known = pc.utf8_slice_codeunits(known, 0, -2)
        names = known.to_numpy(zero_copy_only=False)
        order = np.argsort(names)
        new = np.empty(len(order), np.int32)
        new[order] = np.arange(len(order))
        return Ids(names[order], new[np.concatenate([each.indices.to_numpy() for each in whole.chunks])])

    def batches(
        self,
        names: Sequence[str] | None = None,
        texts: Sequence[str] = (),
        advise: Callable[[str, str, str], str | Way] = lambda *_: "",
        rows: tuple[int, int] | None = None,
    ) -> Iterator[Any]:
        """The rows as Arrow batches with some columns, None for all.

        Args:
            names: the columns.
            texts: the columns of a CSV file that are not parsed as numbers.
            advise: the end of the message about a cell of a CSV file that is no number, given the column, the type and the cell.
            rows: of shards, the first row and that after the last; None for all.
        """
        with self._errors(names, texts, advise):
            if self.path is None:
                import pyarrow as pa

                chosen = self.names if names is None else names
                yield pa.RecordBatch.from_arrays([self._column(name, name in texts) for name in chosen], list(chosen))
            elif self.shards is not None:
                yield from self.shards.batches(names, *(rows or ()))
            elif self.header is None:
                yield from _typed_batches(self.path, names)
            else:
                yield from _csv_batches(self.path, self.header, names, texts)

    def _column(self, name: str, text: bool) -> Any:
        """A column of a data frame as an Arrow array; with `text`, numbers among strings are strings."""
        with self._data_errors():
            try:
                return as_arrow(name, self._frame[name], where=f"{self}: ")
            except ValueError:
                if not text:
                    raise
                return as_arrow(name, self._frame[name], text=True, where=f"{self}: ")

    def place(self, row: int) -> str:
        """The place of a row, from 0, for messages."""
        return f"{self}, row {row + 1}" if self.shards is None else self.shards.place(row)

    def refuse(
        self, wrong: np.ndarray, name: str, expected: str, before: int, values: Any = None, advice: str | Way = ""
    ) -> None:
        """Raise DataError for the first row, counted from `before`, with a wrong value in a column."""
        if wrong.any():
            at = int(wrong.argmax())
            value = None if values is None else values[at]
            value = value.item() if isinstance(value, np.generic) else value
            got = "none" if value is None or value != value else shortened(value)
            raise DataError(f"{self.place(before + at)}: expected {expected} in column {name!r}, got {got}", advice)

    def numbers(self, name: str, column: Any, advice: str = "") -> np.ndarray:
        """An Arrow array as numbers, NaN if missing."""
        with self._data_errors():
            return numbers(f"{self}: ", name, column, advice)

    def ids(self, name: str, column: Any, before: int) -> Any:
        """An Arrow array of ids as a dictionary of integers, strings or dates; a missing id is a DataError with its row."""
        import pyarrow as pa
        import pyarrow.compute as pc

        shown, types = str(column.type)[:100], pa.types
        if shown.startswith("extension<arrow.uuid"):
            column = pa.array([None if each is None else str(each) for each in column.to_pylist()], pa.string())
        found = plain(column)
        kind = found.type
        try:
            if types.is_floating(kind):
                values = found.to_numpy(zero_copy_only=False).astype(np.float64)
                wrong = ~np.isnan(values) & ((np.floor(values) != values) | (np.abs(values) > LARGEST))
                self.refuse(wrong, name, "an id (a string or an integer)", before, values)
                found = pa.array(values, from_pandas=True).cast(pa.int64())
            elif types.is_decimal(kind) and kind.scale == 0:
                found = found.cast(pa.string())
            elif is_text(kind) or types.is_fixed_size_binary(kind):
                found = found if "string" in str(kind) else found.cast(pa.large_string())
            elif types.is_boolean(kind):
                found = pc.if_else(found, "True", "False")
            elif types.is_null(kind):
                found = found.cast(pa.string())
            elif not (types.is_integer(kind) or types.is_timestamp(kind) or types.is_date(kind)):
                raise TypeError
            if is_text(found.type):
                found.validate(full=True)  # UTF-8, of which a Parquet file may have anything
        except (TypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise DataError(f"{self}: expected ids (strings or integers) in column {name!r}, got {shown}") from None
        found = found.dictionary_encode()
        places, known = found.indices, found.dictionary
        if is_text(known.type):
            trimmed = pc.utf8_trim(known, SPACE)
            blank = pc.take(pc.equal(trimmed, ""), places)
            self.refuse(blank.fill_null(True).to_numpy(zero_copy_only=False), name, "an id", before)
            if self.header is not None and not trimmed.equals(known):  # as in runs and qrels
                found = trimmed.take(places).dictionary_encode()
        self.refuse(places.is_null().to_numpy(zero_copy_only=False), name, "an id", before)
        return found

    def _times(self, name: str, column: Any) -> np.ndarray:
        """An Arrow array of times, as numbers or datetime64."""
        column = as_times(column)
        if not is_date(column.type):
            return self.numbers(name, column, _DATES)
        dates: np.ndarray = column.to_numpy(zero_copy_only=False)
        return dates

    @contextmanager
    def _data_errors(self) -> Iterator[None]:
        """Errors of values as DataError."""
        try:
            yield
        except DataError:
            raise
        except (TypeError, ValueError) as error:
            raise DataError(str(error)) from None

    @contextmanager
    def _errors(
        self,
        names: Sequence[str] | None = None,
        texts: Sequence[str] = (),
        advise: Callable[[str, str, str], str | Way] = lambda *_: "",
    ) -> Iterator[None]:
        """Errors of pyarrow as DataError."""
        import pyarrow as pa

        try:
            yield
        except UnicodeDecodeError as error:  # from a CSV file in UTF-16
            assert self.header is not None
            raise wrong_encoding(self, self.header.encoding, error) from None
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, DataError):
                raise
            if self.path is not None and self.header is not None:
                raise _csv_error(self.path, self.header, names, texts, error, advise) from None
            raise DataError(f"{self}: expected a Parquet or Arrow file, got: {_first_line(error)}") from None


def as_names(ids: Any) -> Names:
    """Ids of `TableReader.ids` as names: integers in digits, dates as `id_text` writes them."""
    import pyarrow as pa

    known = ids.dictionary
    if not (is_text(known.type) or pa.types.is_integer(known.type)):
        known = pa.array([id_text("ids", each) for each in known.to_numpy(zero_copy_only=False)], pa.large_string())
    ids = known.cast(pa.large_string()).take(ids.indices)
    if not len(ids):
        return Names.of([])
    _, places, text = ids.buffers()
    offsets = np.frombuffer(places, np.int64)[ids.offset : ids.offset + len(ids) + 1]
    content = np.frombuffer(text, np.uint8) if text else np.zeros(0, np.uint8)
    return Names(content[offsets[0] : offsets[-1]].copy(), offsets - offsets[0])


def id_text(what: str, value: Any) -> str:
    """An id of any type as text; raises DataError for bytes that are no text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise DataError(f"{what} must be text in UTF-8, got {shortened(value)}") from None
    if isinstance(value, datetime.datetime) and value.tzinfo is not None and not hasattr(value, "to_datetime64"):
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    if isinstance(value, np.datetime64 | datetime.date):  # pandas' ones, which are in UTC then, may have nanoseconds
        moment = value.to_datetime64() if hasattr(value, "to_datetime64") else np.datetime64(value)
        day, _, clock = str(moment).partition("T")
        clock = clock.rstrip("0").rstrip(".") if "." in clock else clock
        if len(clock) in (2, 5):  # dates in hours or minutes
            clock += ":00" * (2 if len(clock) == 2 else 1)
        return day if clock in ("", "00:00:00") else f"{day} {clock}"
    return str(value)


# Parquet and Arrow


def _schema(path: Path) -> Any:
    """The names and types of a Parquet or Arrow file's columns."""
    import pyarrow as pa
    import pyarrow.parquet

    with open(path, "rb") as file:
        begins = _begins(path, file)
        if begins[:4] == b"PAR1":
            return pa.parquet.ParquetFile(file).schema_arrow
        return (pa.ipc.open_file if begins == b"ARROW1" else pa.ipc.open_stream)(file).schema


def _begins(path: Path, file: Any) -> bytes:
    """The first bytes of a file, which is rewound."""
    begins: bytes = file.read(6)
    file.seek(0)
    if unpacked_name(path.name) != path.name:
        raise DataError(
            f"{path}: expected an uncompressed Parquet or Arrow file, since these compress internally; decompress the file"
        )
    return begins


def _typed_batches(path: Path, names: Sequence[str] | None) -> Iterator[Any]:
    """The rows of a Parquet or Arrow file."""
    import pyarrow as pa
    import pyarrow.parquet

    with open(path, "rb") as file:
        begins = _begins(path, file)
        if begins[:4] == b"PAR1":
            parquet = pa.parquet.ParquetFile(file)
            width = max(1, parquet.metadata.num_columns if names is None else len(names))
            yield from parquet.iter_batches(max(1, min(2**16, _CELLS // width)), columns=names)
            return
        if begins == b"ARROW1":
            reader = pa.ipc.open_file(file)
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            batches = iter(pa.ipc.open_stream(file))
        for batch in batches:
            batch.validate(full=True)  # the offsets of a damaged file point anywhere in memory
            yield batch if names is None else batch.select(names)


# CSV


class Header(NamedTuple):
    """The dialect of a CSV file.

    Attributes:
        names: the cells of the first line that is not blank, stripped; empty if it is not CSV.
        separator: the separator of cells.
        encoding: Python's name of the encoding, by the byte order mark; UTF-8 without one.
        rows: the first rows after it.
        quotes: whether cells may be in quotation marks, as in all files but RecBole's `.inter`.
        first: the line of the first row, from 1.
    """

    names: list[str]
    separator: str
    encoding: str
    rows: list[list[str]]
    quotes: bool = True
    first: int = 2

    @property
    def between(self) -> str:
        """The name of the separator, such as "comma"."""
        return SEPARATORS.get(self.separator, repr(self.separator))

    def first_cells(self, name: str) -> set[str]:
        """The cells of a column in the first rows."""
        at = self.names.index(name)
        return {row[at] for row in self.rows if at < len(row)}

    def are_flags(self, name: str) -> bool:
        """Whether the first rows of a column have only True and False."""
        cells = self.first_cells(name) - {""}
        return bool(cells) and {cell.casefold() for cell in cells} <= {"true", "false"}

    def are_whole(self, name: str) -> bool:
        """Whether the first rows of a column of names are integers written as floats, as pandas does beside missing ones."""
        cells = self.first_cells(name)
        return bool(cells) and all(re.match(_WHOLE, cell) for cell in cells)

    def are_words(self, name: str) -> bool:
        """Whether no cell in the first rows of a column is like a number or a date, and some are not empty."""
        cells = self.first_cells(name) - null_words()
        looks_so = re.compile(r"[-+]?\d+,\d+|\d{4}-\d\d-\d\d.*|true|false", re.IGNORECASE)
        return bool(cells) and not any(looks_so.fullmatch(cell) or is_number(cell) for cell in cells)

    def are_dates(self, name: str) -> bool:
        """Whether the first rows of a column are dates, or integers that float64 may not represent."""
        cells = self.first_cells(name) - {""}
        return bool(cells) and all(re.match(r"\d{4}-\d\d-\d\d|[-+]?\d{16,}$", cell) for cell in cells)


def read_header(path: str | os.PathLike[str], wanted: Sequence[str] = ("qid",), separator: str | None = None) -> Header:
    """Infer the dialect of a CSV file, plain or compressed, from its first lines; blank lines before the names are skipped.

    The separator (comma, semicolon, tab or bar), if not given, is one with which a `wanted` column exists, otherwise the one with
    the most columns.

    Raises:
        DataError: the file cannot be read, or its encoding is not that of its byte order mark.
    """
    begins = next(read_blocks(path, 16), b"")
    encoding = next((name for mark, name in _MARKS if begins.startswith(mark)), "utf-8")
    lines: list[str] = []
    size = blank = 0
    for line in decoded_lines(path, encoding):
        if not lines and not line.strip(" \r\n"):
            blank += 1
            continue
        size += len(line)
        if lines and size > _HEAD:
            break
        lines.append(line)
    recbole = Path(unpacked_name(str(path))).suffix.casefold() == ".inter"

    def rows(separator: str) -> Iterator[list[str]]:
        quoting: Literal[0, 3] = csv.QUOTE_NONE if recbole else csv.QUOTE_MINIMAL
        with suppress(csv.Error):  # the reader of the file reports the error
            for row in csv.reader(lines, delimiter=separator, quoting=quoting):
                yield [cell.strip() for cell in row]

    def suits(separator: str) -> tuple[bool, int]:
        names = {name.casefold() for name in first[separator]}
        return any(names & {*USUAL.get(name, (name.casefold(),))} for name in wanted), len(first[separator])

    first = {each: next(rows(each), []) for each in ([separator] if separator else SEPARATORS)}
    chosen = max(first, key=suits)  # ties go to the first
    # with types: user_id:token
    names = [name.partition(":")[0] for name in first[chosen]] if recbole else first[chosen]
    return Header(names, chosen, encoding, [*rows(chosen)][1:], not recbole, blank + 2)


def check_quotes(path: object, header: Header) -> None:
    """Raise DataError for a quotation mark that is never closed, since the rest of the file would be one cell."""
    lines = chain(decoded_lines(str(path), header.encoding), ["\n"])  # a row of its own, unless within quotation marks
    reader, start, following, is_open = csv.reader(lines, delimiter=header.separator), 1, 1, True
    try:
        for row in reader:
            start, following, is_open = following, reader.line_num + 1, bool(row)
    except csv.Error:  # for a cell that is too long
        start, is_open = following, True
    if is_open:
        raise DataError(
            f"{path}, line {start}: a cell begins with a quotation mark that is not closed; close or remove it"
        )


def open_unpacked(path: str | os.PathLike[str]) -> io.BufferedReader[_Blocks]:
    """Open a file for reading its decompressed bytes; reading raises DataError as `read_blocks` does."""
    return io.BufferedReader(_Blocks(read_blocks(path)), 2**20)


def decoded_lines(path: str | os.PathLike[str], encoding: str) -> Iterator[str]:
    """The lines of a text file with their line ends; raises DataError for bytes invalid in the encoding."""
    if encoding.startswith("utf-8"):
        yield from (line for _, line in text_lines(path, newline=""))
        return
    try:
        yield from io.TextIOWrapper(open_unpacked(path), encoding, newline="")
    except UnicodeDecodeError as error:
        raise wrong_encoding(path, encoding, error) from None


def wrong_encoding(path: object, encoding: str, error: UnicodeDecodeError) -> DataError:
    """The error for a file whose bytes are not in the encoding that its byte order mark names."""
    return DataError(
        f"{path}: expected {encoding.upper()} text, by its byte order mark, got: {error.reason}; save the file as UTF-8"
    )


class _Blocks(io.RawIOBase):
    """A file object over an iterator of blocks, which counts quotation marks."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        super().__init__()
        self._blocks, self._rest, self.quotes = blocks, memoryview(b""), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not len(self._rest):
            block = next(self._blocks, b"")
            self._rest, self.quotes = memoryview(block), self.quotes + block.count(b'"')
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _csv_batches(
    path: Path, header: Header, names: Sequence[str] | None, texts: Sequence[str], *, use_threads: bool = True
) -> Iterator[Any]:
    """The rows of a CSV file; all columns except `texts` are parsed as numbers, without type inference."""
    import pyarrow as pa
    import pyarrow.csv

    kinds = {name: pa.bool_() if header.are_flags(name) else pa.float64() for name in header.names}
    kinds |= dict.fromkeys(texts, pa.string())
    options = {
        "read_options": pa.csv.ReadOptions(
            column_names=header.names,
            skip_rows=header.first - 1,
            encoding=header.encoding.removesuffix("-sig"),
            use_threads=use_threads,
        ),
        "parse_options": pa.csv.ParseOptions(delimiter=header.separator, quote_char='"' if header.quotes else False),
        "convert_options": pa.csv.ConvertOptions(column_types=kinds, include_columns=names),
    }
    with open_unpacked(path) as stream, pa.csv.open_csv(stream, **options) as reader:
        yield from reader
        if header.quotes and stream.raw.quotes % 2:
            check_quotes(path, header)


def _csv_error(
    path: Path,
    header: Header,
    names: Sequence[str] | None,
    texts: Sequence[str],
    error: Exception,
    advise: Callable[[str, str, str], str | Way],
) -> DataError:
    """The error of a CSV file with column names and row number."""
    import pyarrow as pa

    said = _first_line(error)
    try:  # a single thread reports row numbers
        for _ in _csv_batches(path, header, names, texts, use_threads=False):
            pass
    except (pa.ArrowException, OSError, UnicodeDecodeError) as again:
        said = _first_line(again)
    if header.quotes and ('"' in said or "out of sync" in said):  # by a line end within quotation marks
        check_quotes(path, header)
    row = re.search(r"Row #(\d+): ", said)
    place = f"{path}, row {int(row[1]) - header.first + 1}" if row else str(path)
    if value := re.search(r"CSV column #(\d+): .*CSV conversion error to (\w+): (?:invalid value )?(.*)", said):
        name, kind, got = header.names[int(value[1])], value[2], value[3]
        expected = {"bool": "True or False, as in the rows before,", "string": "text in UTF-8"}.get(kind, "a number")
        advice, got = advise(name, kind, got), shortened(got.strip("'"))
        return DataError(f"{place}: expected {expected} in column {name!r}, got {got}", advice)
    if cells := re.search(r"Expected (\d+) columns, got (\d+): ?(.*)", said):
        return DataError(
            f"{place}: expected {cells[1]} cells separated by {header.between}s, one for each of "
            f"{named(header.names)}, got {cells[2]}: {shortened(cells[3])}"
        )
    return DataError(f"{place}: expected a CSV file, got: {said}")


def null_words() -> set[str]:
    """The cells of CSV files that are nulls."""
    import pyarrow.csv

    return set(pyarrow.csv.ConvertOptions().null_values)


def is_number(cell: str) -> bool:
    """Whether a cell is a number, see `parse_number`."""
    try:
        parse_number(cell)
    except ValueError:
        return False
    return True


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]
