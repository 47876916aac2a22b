"""Assemble lists from consecutive parts, in memory or on disk.

A reader parses a file into parts of a few megabytes of text and adds them in order. On disk, only one entry per list stays in
memory, so that files may exceed memory: parts are spooled to unnamed temporary files, which are removed when the process ends in
any way, and then written as one file of arrays.
"""

from __future__ import annotations

import glob
import json
import logging
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from rankstruct.columns import Columns
from rankstruct.data.cache import (
    LEFT_BEHIND,
    SUFFIX,
    Stream,
    cache_folder,
    load_arrays,
    map_arrays,
    store_arrays,
    write_arrays,
)
from rankstruct.data.dataset import RankingData, register_format
from rankstruct.data.errors import DataError, shortened
from rankstruct.data.names import Names

__all__ = ["read_rankdata"]

_log = logging.getLogger(__name__)
_STREAMED_FROM = 2**26  # least size of files, in bytes, that are assembled on disk and then memory-mapped
_SPARSE_BELOW = 0.25
_STEP = 2**20  # entries in memory at once when columns are joined
_NAMES = ("qids", "docids", "comments")
_FILLED = (
    "filled"  # stored with the arrays of `RankingData`: the fill value, and the number of missing values by column
)
_COLUMN_CATEGORIES = "columns"  # the names and categories of `RankingData.columns`, as JSON
_NAMED_COLUMNS = 5  # with missing values that messages name
_HALF = float(np.finfo(np.float16).max)


class Column:
    """A growing array `[any]`, in memory or in an unnamed file in `folder`."""

    def __init__(self, folder: Path | None) -> None:
        self.file: IO[bytes] | None = None if folder is None else tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self.parts: list[np.ndarray] = []
        self.size = 0
        self.dtype = np.dtype(np.uint8)

    def append(self, values: np.ndarray) -> None:
        """Append values, always of the same dtype."""
        self.dtype = values.dtype
        self.size += len(values)
        if self.file is not None:
            self.file.seek(0, os.SEEK_END)
            self.file.write(np.ascontiguousarray(values).view(np.uint8).data)
        elif len(values):
            self.parts.append(values)

    def take(self, first: int, last: int) -> np.ndarray:
        """Entries first to last - 1."""
        if self.file is None:
            return self.whole()[first:last]
        self.file.seek(first * self.dtype.itemsize)
        return np.frombuffer(self.file.read((last - first) * self.dtype.itemsize), self.dtype)

    def whole(self) -> np.ndarray:
        """All entries; in memory without copying all at once."""
        if self.file is not None:
            return self.take(0, self.size)
        if len(self.parts) != 1:
            joined, at = np.empty(self.size, self.dtype), 0
            for number, part in enumerate(self.parts):
                joined[at : at + len(part)] = part
                at += len(part)
                self.parts[number] = part[:0]
            self.parts = [joined]
        return self.parts[0]

    def blocks(self) -> Iterator[np.ndarray]:
        """All entries, in blocks."""
        for first in range(0, self.size, _STEP):
            yield self.take(first, min(first + _STEP, self.size))

    def stream(self, *shape: int) -> Stream:
        """The entries as a `Stream` of a shape, or flat."""
        return Stream(self.dtype, shape or (self.size,), self.blocks)


@dataclass(frozen=True)
class DocumentBlock:
    """Consecutive documents.

    Args:
        labels: `[n]` float32.
        values: `[entries]` float32, the stored features, document by document.
        indices: `[entries]` int32, their indices, increasing within a document; None if each document has 0 to `width - 1`.
        counts: `[n]` int32, the number of stored features per document; None if `indices` is.
        width: the number of features per document if `indices` is None.
        starts: `[lists]`, the first row of each list, starting with 0; empty if the lists are defined elsewhere.
        qids: `[lists]`, the names of the lists, or None.
        places: `[lists]` int64, the line (or row) of the start of each list, for messages.
        docids: `[n]` or None.
        comments: `[n]` or None.
        missing: `[n]` int32 or None.
    """

    labels: np.ndarray
    values: np.ndarray
    indices: np.ndarray | None
    counts: np.ndarray | None
    width: int
    starts: np.ndarray
    qids: Names | None
    places: np.ndarray
    docids: Names | None = None
    comments: Names | None = None
    missing: np.ndarray | None = None


class Assembly:
    """Assemble parts to lists; a context manager that removes its temporary files.

    Args:
        folder: the folder of temporary files; None for memory.
        half: whether to store features as float16.
    """

    def __init__(self, folder: Path | None = None, *, half: bool = False) -> None:
        self.folder, self.half = folder, half
        self.columns: dict[str, Column] = {}
        self.rows = self.entries = self.lists = self.width = 0
        self.complete = True  # every document so far has the features 0 to width - 1
        self.places: list[np.ndarray] = []
        self.last_qid: str | None = None
        self.fill_value = 0.0  # the value of missing features
        self.kinds: Columns | None = None
        self.filled: dict[str, int] = {}  # the number of missing values by column name
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Assembly:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with ExitStack() as stack:
            for column in self.columns.values():
                if column.file is not None:
                    stack.callback(column.file.close)

    def column(self, name: str) -> Column:
        """The column of a name, created if needed."""
        if name not in self.columns:
            self.columns[name] = Column(self.folder)
        return self.columns[name]

    def add(self, part: DocumentBlock) -> None:
        """Add the next documents."""
        self.column("labels").append(part.labels)
        self._add_lists(part)
        self._add_features(part)
        for name in ("docids", "comments"):
            self._add_names(name, getattr(part, name), len(part.labels))
        if part.missing is not None or "missing" in self.columns:
            self._fill("missing", self.rows, np.int32)
            self.column("missing").append(
                np.zeros(len(part.labels), np.int32) if part.missing is None else part.missing
            )
        self.rows += len(part.labels)

    def _add_lists(self, part: DocumentBlock) -> None:
        if part.qids is None or not len(part.qids):
            return
        skip = int(self.last_qid is not None and part.qids[0] == self.last_qid)  # the last list continues
        self.last_qid = part.qids[-1]
        self.column("offsets").append((part.starts[skip:] + self.rows).astype(np.int64))
        self.places.append(part.places[skip:])
        self._add_text("qids", part.qids[skip:] if skip else part.qids)
        self.lists += len(part.qids) - skip

    def _add_features(self, part: DocumentBlock) -> None:
        rows = len(part.labels)
        indices, counts, width = part.indices, part.counts, part.width
        if indices is not None and counts is not None:
            width = int(indices.max(initial=-1)) + 1
        if self.complete and (indices is not None or (self.rows and width != self.width)):
            for first in range(0, self.rows, max(1, _STEP // max(self.width, 1))):
                some = min(self.rows - first, max(1, _STEP // max(self.width, 1)))
                self.column("indices").append(np.tile(np.arange(self.width, dtype=np.int32), some))
            self.column("counts").append(np.full(self.rows, self.width, np.int32))
            self.complete = False
        if not self.complete:
            if indices is None or counts is None:
                indices = np.tile(np.arange(width, dtype=np.int32), rows)
                counts = np.full(rows, width, np.int32)
            self.column("indices").append(indices)
            self.column("counts").append(counts)
        self.column("values").append(
            halved(part.values, f"documents from number {self.rows + 1} on") if self.half else part.values
        )
        self.width = max(self.width, width)
        self.entries += len(part.values)

    def _add_names(self, name: str, names: Names | None, rows: int) -> None:
        if names is not None or f"{name}.offsets" in self.columns:
            self._fill(f"{name}.offsets", self.rows, np.int64)
            self._add_text(name, Names(np.zeros(0, np.uint8), np.zeros(rows + 1, np.int64)) if names is None else names)

    def _add_text(self, name: str, names: Names) -> None:
        text = self.column(f"{name}.text")
        self.column(f"{name}.offsets").append(names.offsets[:-1] + text.size)
        text.append(names.text)

    def _fill(self, name: str, rows: int, dtype: Any) -> None:
        """Zeros for the documents before the first one with values."""
        if name not in self.columns:
            self.column(name).append(np.zeros(rows, dtype))

    def check_names(self, path: Path, line: str = ":", began: str = "line") -> None:
        """Raise DataError, with both places, if the documents of a list are not contiguous; `line` separates path and number."""
        if "qids.text" not in self.columns:
            return
        text, offsets = (self.column(f"qids.{of}").whole() for of in ("text", "offsets"))
        qids = Names(text, np.append(offsets, len(text)))
        if (found := qids.repeated()) is not None:
            again, before = (int(np.concatenate(self.places)[at]) for at in found)
            name = qids[found[0]]
            name = name if len(name) <= 60 else f"{name[:60]}..."
            raise DataError(
                f"{path}{line}{again}: expected contiguous documents of each query, got qid:{name} again, which "
                f"started on {began} {before}; sort the file by qid"
            )

    def finish(
        self, lengths: np.ndarray | None = None, num_features: int | None = None, sparse: bool | str = "auto"
    ) -> dict[str, Stream]:
        """The arrays, after the last part; `lengths` `[lists]` are the list sizes if the parts have no lists."""
        if lengths is not None:
            self.column("offsets").append(
                np.cumsum(np.concatenate([[0], lengths[:-1]])).astype(np.int64)[: len(lengths)]
            )
            self._add_text("qids", Names.of([str(number) for number in range(1, len(lengths) + 1)]))
        self.column("offsets").append(np.array([self.rows], np.int64))
        for name in _NAMES:
            if f"{name}.offsets" in self.columns:
                end = np.array([self.column(f"{name}.text").size], np.int64)
                self.column(f"{name}.offsets").append(end)
        rest = {
            name: column.stream()
            for name, column in self.columns.items()
            if name not in ("values", "indices", "counts")
        }
        if "missing" in rest:
            rest[_FILLED] = Stream.of(_as_bytes([self.fill_value, self.filled]))
        if self.kinds is not None:
            rest[_COLUMN_CATEGORIES] = Stream.of(_as_bytes(self.kinds.categories))
        return self._features(num_features or self.width, sparse) | rest

    def check_dense(self, dense: bool) -> None:
        """Raise DataError for sparse features as float16, which SciPy's matrices do not support."""
        if self.half and not dense:
            raise DataError("float16 requires dense features, and these are sparse; convert to float32")

    def _features(self, width: int, sparse: bool | str) -> dict[str, Stream]:
        values = self.column("values")
        if sparse is True or (sparse == "auto" and self.entries < _SPARSE_BELOW * self.rows * width):
            self.check_dense(False)
            # SciPy copies unless both index arrays have the same dtype
            kind = np.dtype(np.int32 if self.entries < 2**31 else np.int64)
            shape = np.array([self.rows, width])
            return {
                "values": values.stream(),
                "indices": Stream(kind, (self.entries,), lambda: (each.astype(kind) for _, each, _ in self._blocks())),
                "indptr": Stream(kind, (self.rows + 1,), lambda: self._pointers(kind)),
                "shape": Stream.of(shape),
            }
        if self.complete and width == self.width:
            return {"features": values.stream(self.rows, width)}
        return {"features": Stream(values.dtype, (self.rows, width), lambda: self._dense(width))}

    def _blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Values, indices and counts of documents, in blocks."""
        step = max(1, _STEP // max(1, self.width))
        at = 0
        for first in range(0, self.rows, step):
            rows = min(step, self.rows - first)
            if self.complete:
                counts = np.full(rows, self.width, np.int32)
                indices = np.tile(np.arange(self.width, dtype=np.int32), rows)
            else:
                counts = self.column("counts").take(first, first + rows)
                indices = self.column("indices").take(at, at + int(counts.sum()))
            yield self.column("values").take(at, at + len(indices)), indices, counts
            at += len(indices)

    def _pointers(self, kind: np.dtype) -> Iterator[np.ndarray]:
        yield np.zeros(1, kind)
        before = 0
        for _, _, counts in self._blocks():
            ends = before + np.cumsum(counts, dtype=np.int64)
            before = int(ends[-1])
            yield ends.astype(kind)

    def _dense(self, width: int) -> Iterator[np.ndarray]:
        for values, indices, counts in self._blocks():
            rows = np.zeros((len(counts), width), values.dtype)
            rows[np.repeat(np.arange(len(counts)), counts), indices] = values
            yield rows.reshape(-1)


def halved(values: np.ndarray, place: object) -> np.ndarray:
    """Convert to float16; raises DataError if a number is too large."""
    largest = float(np.fmax.reduce(np.abs(values), axis=None, initial=0))  # not NaN, which is a missing value
    if largest > _HALF:
        raise DataError(
            f"{place}: float16 holds numbers up to {_HALF:g}, got {largest:g}; convert to float32, or scale them"
        )
    return values.astype(np.float16)


def as_array(stream: Stream, column: Column | None) -> np.ndarray:
    """A stream as an array, without a copy if a column has it."""
    if column is not None and column.size == np.prod(stream.shape) and column.dtype == stream.dtype:
        return column.whole().reshape(stream.shape)
    array, at = np.empty(math.prod(stream.shape), stream.dtype), 0
    for block in stream.blocks():
        array[at : at + len(block)] = block
        at += len(block)
    return array.reshape(stream.shape)


def to_arrays(data: RankingData) -> dict[str, np.ndarray]:
    """The arrays of lists to store in a file."""
    arrays = {name: value for name, value in vars(data).items() if value is not None}
    for name in _NAMES:
        if name in arrays:
            names = arrays.pop(name)
            arrays |= {f"{name}.text": names.text, f"{name}.offsets": names.offsets}
    if data.columns is not None:
        arrays[_COLUMN_CATEGORIES] = _as_bytes(data.columns.categories)
    if data.is_sparse:
        matrix = arrays.pop("features")
        shape = np.array(matrix.shape)
        arrays |= {"values": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": shape}
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray]) -> RankingData:
    """Lists from the arrays of a file; raises DataError if the arrays are inconsistent."""
    given: dict[str, Any] = dict(arrays)
    given.pop(_FILLED, None)
    try:
        if _COLUMN_CATEGORIES in given:
            given[_COLUMN_CATEGORIES] = Columns(json.loads(given[_COLUMN_CATEGORIES].tobytes()))
        for name in _NAMES:
            if f"{name}.text" in given:
                kind = bytes if name == "comments" else str
                given[name] = Names(given.pop(f"{name}.text"), given.pop(f"{name}.offsets"), kind)
        if "features" not in given:
            given["features"] = _matrix(*(given.pop(name) for name in ("values", "indices", "indptr", "shape")))
        return RankingData(**given)
    except DataError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise DataError(f"expected the arrays of lists, got {', '.join(map(str, arrays))}"[:200]) from error


def _as_bytes(value: Any) -> np.ndarray:
    """Plain data as JSON, in an array of bytes."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _matrix(values: np.ndarray, indices: np.ndarray, pointers: np.ndarray, shape: np.ndarray) -> Any:
    rows, width = (int(each) for each in shape.tolist())
    fits = len(pointers) == rows + 1 and pointers[0] == 0 and pointers[-1] == len(indices) == len(values)
    if (
        not fits
        or (pointers[1:] < pointers[:-1]).any()
        or not (not len(indices) or (indices.min() >= 0 and indices.max() < width))
    ):
        raise DataError("the features are not a valid sparse matrix: pointers or indices are out of range")
    matrix = sp.csr_array((rows, width), dtype=np.float32)
    # The constructor would copy arrays that are a small part of a memory-mapped file.
    matrix.data, matrix.indices, matrix.indptr = values, indices, pointers
    return matrix


@register_format(SUFFIX)
def read_rankdata(
    path: str | os.PathLike[str], *, num_features: int | None = None, labels: str = "real", cache: object = None
) -> RankingData:
    """Read a file written by `convert_lists`, memory-mapped without a copy.

    Args:
        path: the file.
        num_features: the least number of features; a file of dense features must have them.
        labels: `"grades"` rejects labels other than integers from 0.
        cache: ignored, since nothing is parsed.

    Raises:
        DataError: the file is missing, damaged, or has fewer features or other labels than required.
    """
    try:
        arrays = map_arrays(path)
        if num_features is not None and "shape" in arrays and arrays["shape"].shape == (2,):
            arrays["shape"] = np.maximum(arrays["shape"], [0, num_features])  # widening a sparse matrix is free
        data = from_arrays(arrays)
        _log_columns_of_file(path, arrays)
    except DataError as error:
        raise error if str(path) in str(error) else DataError(f"{path}: {error}") from None
    if num_features is not None and data.num_features < num_features:
        raise DataError(
            f"{path}: expected {num_features} features, got {data.num_features}; convert with num_features="
        )
    if labels == "grades" and ((data.labels < 0) | (data.labels % 1 != 0)).any():
        raise DataError(
            f"{path}: expected grades (integers from 0) as labels, got others; labels='real' takes any number"
        )
    return data


Fill = Callable[[Assembly], dict[str, Stream]]


def assemble(path: Path, fill: Fill, cache: bool | str | os.PathLike[str], key: Callable[[], str]) -> RankingData:
    """The lists that `fill` adds to an `Assembly`, cached under `key()` and memory-mapped the next time.

    A large file is streamed to the cache, so that reading it takes no more memory than converting it.
    """
    folder = cache_folder(cache)
    kept = None
    if folder is not None:
        kept = folder / f"{path.stem[:80]}-{key()}.rankdata"
        if (found := _kept(kept, path)) is not None:
            return found
        if path.stat().st_size >= _STREAMED_FROM and (found := _through(kept, path, fill)) is not None:
            return found
    with Assembly() as assembly:
        streams: dict[str, Stream] = {}
        try:
            streams = fill(assembly)
            columns = {**assembly.columns, "features": assembly.columns.get("values")}
            arrays = {name: as_array(stream, columns.get(name)) for name, stream in streams.items()}
            data = from_arrays(arrays)
        except MemoryError:
            shape = streams["features"].shape if "features" in streams else ()
            raise DataError(
                f"{path}: not enough memory for features {' x '.join(map(str, shape))}; use sparse=True if "
                "most are 0, or convert the file"
            ) from None
    _log_columns_of_file(path, arrays)
    if kept is not None:
        store_arrays(kept, to_arrays(data) | ({_FILLED: arrays[_FILLED]} if _FILLED in arrays else {}))
    return data


def _kept(kept: Path, path: Path) -> RankingData | None:
    """The lists of a cached file; None if it is missing or damaged."""
    arrays = load_arrays(kept)
    if arrays is None:
        return None
    try:
        data = from_arrays(arrays)
    except DataError as error:  # a file with a valid checksum from elsewhere
        _log.warning("%s is damaged (%s); it will be rebuilt", kept, error)
        return None
    _log_columns_of_file(path, arrays)
    return data


def _log_columns_of_file(path: object, arrays: Mapping[str, np.ndarray]) -> None:
    """`_log_columns` for all arrays of a file."""
    _log_columns(path, int(arrays["missing"].sum()) if "missing" in arrays else 0, arrays)


def _log_columns(path: object, count: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Log the categorical columns of a file, the number of missing values by column and their fill value."""
    kinds = Columns(json.loads(arrays[_COLUMN_CATEGORIES].tobytes())) if _COLUMN_CATEGORIES in arrays else None
    if kinds is not None and kinds.categorical:
        _log.warning("%s: %s", path, kinds.description)
    if not count:
        return
    try:
        value, columns = json.loads(arrays[_FILLED].tobytes() if _FILLED in arrays else b"")
        columns = sorted(((name, int(number)) for name, number in columns.items()), key=lambda each: -each[1])
        value = "" if math.isnan(value) else f" were read as {float(value):g}"
    except (TypeError, ValueError, AttributeError):  # of an earlier version
        value, columns = " were filled", []
    if not columns:
        _log.warning("%s: %d missing values (NULL)%s (fill=)", path, count, value)
        return
    shown = ", ".join(f"{number} in column {shortened(name)}" for name, number in columns[:_NAMED_COLUMNS])
    more = f" and {len(columns) - _NAMED_COLUMNS} more columns" if len(columns) > _NAMED_COLUMNS else ""
    some = "value" if count == 1 else "values"
    _log.warning("%s: %d missing %s (empty, null or NaN): %s%s", path, count, some, shown, more)


def _through(kept: Path, path: Path, fill: Fill) -> RankingData | None:
    """Stream a large file through the cache; None if that is not writable."""
    try:
        with Assembly(kept.parent) as assembly:
            if store_arrays(kept, fill(assembly)):
                return _kept(kept, path)
    except OSError as error:
        _log.info("nothing is cached: %s", error)
    return None


def write_assembled(target: Path, fill: Fill, *, half: bool = False) -> tuple[int, int, int]:
    """Write the lists that `fill` adds to one file in bounded memory; returns the number of lists, documents and features.

    Raises OSError, and as `fill`.
    """
    for path in target.parent.glob(f"{glob.escape(target.name)}.*.part"):
        if (process := LEFT_BEHIND.search(path.name)) and not _is_running(int(process[1])):
            path.unlink(missing_ok=True)
    with Assembly(target.parent, half=half) as assembly:
        streams = fill(assembly)
        write_arrays(target, streams)
        count = sum(int(block.sum()) for block in streams["missing"].blocks()) if "missing" in streams else 0
        _log_columns(
            target,
            count,
            {name: as_array(streams[name], None) for name in (_FILLED, _COLUMN_CATEGORIES) if name in streams},
        )
    width = streams["features"].shape[1] if "features" in streams else int(next(iter(streams["shape"].blocks()))[1])
    return streams["offsets"].shape[0] - 1, streams["labels"].shape[0], width


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's, or not a process number
        return True
    return True
