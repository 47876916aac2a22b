"""Shards: Parquet files that are one table, in the order of their names, in a folder or in any store of fsspec or pyarrow.

They are read a row group at a time, from any row on. Only their sizes are kept, and features are decoded when they are used.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np

from rankstruct.blocks import Blocks, let_go
from rankstruct.data.errors import DataError
from rankstruct.messages import shortened

__all__: list[str] = []

_log = logging.getLogger(__name__)
_SUFFIXES = (".parquet", ".pq")
# `Path` makes one slash of two; one letter is a drive
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
_LOCAL = ("file", "local")  # without a host, so that three slashes are in front
_CELLS = 2**22  # in an Arrow batch
_BLOCK = 2**20  # cells, unless a list has more
_HELD = 2**24  # cells that are shuffled together, and in memory: 64 MB
_BUFFER = 2**21  # bytes of a column that are read at once
_WAIT = 4  # seconds for an answer of an HTTP server
_STAMPS = ("size", "mtime", "ino", "ETag", "LastModified", "updated")  # what stores say of a file that is written again


def url_of(path: str | os.PathLike[str]) -> str | None:
    """The URL that a path is, also after conversion to `Path`; None for a local path.

    >>> from pathlib import Path
    >>> url_of(Path("s3://bucket/train")), url_of(Path("file:///train")), url_of("train"), url_of("C:/train")
    ('s3://bucket/train', 'file:///train', None, None)
    """
    text = os.fspath(path)
    found = _URL.fullmatch(text.replace(os.sep, "/"))
    if found is None or os.path.exists(text):
        return None
    return f"{found[1]}:{'///' if found[1] in _LOCAL else '//'}{found[2]}"


def absolute(path: str | os.PathLike[str]) -> str:
    """The absolute form of a path; that of a URL is itself."""
    return url_of(path) or os.path.realpath(path)


def is_shards(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of shards: a folder, a pattern such as `part-*.parquet`, or a URL."""
    text = os.fspath(path)
    return url_of(path) is not None or os.path.isdir(text) or (glob.has_magic(text) and not os.path.exists(text))


def holds_shards(folder: str | os.PathLike[str]) -> bool:
    """Whether there is a folder with Parquet files in it."""
    try:
        return is_shards(folder) and bool(_listed(folder)[2])
    except DataError as error:
        if url_of(folder) is None or any(word in str(error) for word in ("FileNotFoundError", "404")):
            return False
        raise


def local_files(path: str | os.PathLike[str]) -> dict[str, Path]:
    """The Parquet files of a folder or a pattern, by their places in the folder."""
    _, base, names = _listed(path)
    return {name.removeprefix(base): Path(name) for name in names}


class Shards:
    """The Parquet files of a folder, a pattern or a URL. Files without rows are left out, which is logged.

    Attributes:
        path: where they are.
        names: the files.
        places: their names in the folder.
        starts: the first row of each file, and the number of rows.
        groups: the first row of each row group, `[groups]` int64.
        schema: Arrow's schema, that of all.
        content: a digest of their names, sizes and statistics, as Parquet stores them.
        states: of each file, a digest that changes when it is written again, by its size and time.
        version: that of all.

    Raises:
        DataError: there is no such file, the store does not answer, a file is damaged, or its columns are not those of the first.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self._system, base, found = _listed(path)
        if not found and os.path.isdir(path):
            raise DataError(
                f"{path}: expected a file that can be read, got: a folder; give a file in it, or a folder of Parquet files "
                f"({', '.join(_SUFFIXES)})"
            )
        if not found:
            raise DataError(f"{_shown(path)}: expected Parquet files ({', '.join(_SUFFIXES)}), got none")
        self._check_one_table([name.removeprefix(base).strip("/") for name in found])
        self.names: list[str] = []
        self.places: list[str] = []
        self.states: dict[str, str] = {}
        self.schema: Any = None
        counts: list[list[int]] = []
        content, version = hashlib.sha256(), hashlib.sha256()
        for name in found:
            rows, schema, footer, state = self._footer(name)
            if self.schema is None:
                self.schema, first = schema, name
            self._check_alike(first, name, schema)
            if not sum(rows):
                _log.warning("%s has no rows and is left out", self.told(name))
                continue
            self.names.append(name)
            self.places.append(name.removeprefix(base).strip("/"))
            counts.append(rows)
            content.update(name.rpartition("/")[2].encode() + footer)
            version.update(f"{name}{state}".encode())
            self.states[name] = state
        self.content = content.hexdigest()
        self.version = f"{self.content} {version.hexdigest()}"
        self.starts = list(accumulate(map(sum, counts), initial=0))
        self._groups = [list(accumulate(rows, initial=0)) for rows in counts]
        places = [first + row for first, rows in zip(self.starts, self._groups, strict=False) for row in rows[:-1]]
        self.groups = np.array(places, np.int64)

    def _check_one_table(self, places: Sequence[str]) -> None:
        """Raise DataError if files, by their places, are parts of a data set; tell columns that only names of folders have."""
        tops = {place.partition("/")[0].partition(".")[0] for place in places}
        parts = [part for part in ("train", "vali", "test") if part in tops]
        if len(parts) > 1:
            raise DataError(
                f"{_shown(self.path)}: expected the files of one table, got the parts {', '.join(parts)}; give one of them"
            )
        steps = (step for place in places for step in place.split("/")[:-1] if "=" in step)
        if left_out := sorted({step.partition("=")[0] for step in steps}):
            _log.warning(
                "%s: %s left out, which only the names of folders have", _shown(self.path), ", ".join(left_out)
            )

    def _footer(self, name: str) -> tuple[list[int], Any, bytes, str]:
        """The rows of each row group, the schema, all that Parquet stores about a file, and its state."""
        with self._reading(name), self._opened(name) as parquet:
            found = parquet.metadata
            rows = [found.row_group(number).num_rows for number in range(found.num_row_groups)]
            schema = parquet.schema_arrow.remove_metadata()
            return rows, schema, _serialized(parquet), self._state(name, parquet)

    def _state(self, name: str, parquet: Any) -> str:
        """A digest that changes when a file is written again."""
        told = self._system.info(name)
        stamps = [str(told.get(each)) for each in _STAMPS]
        return hashlib.sha256(_serialized(parquet) + " ".join(stamps).encode()).hexdigest()

    @contextmanager
    def _opened(self, name: str) -> Iterator[Any]:
        import pyarrow.parquet

        with self._system.open(name, "rb") as file:
            yield pyarrow.parquet.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False)

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Errors of a file or its store, which have classes of their own, as DataError with its name."""
        try:
            yield
        except (DataError, GeneratorExit, KeyboardInterrupt, MemoryError):
            raise
        except Exception as error:
            raise DataError(
                f"{self.told(name)}: expected a Parquet file that can be read, got: {_reason(error)}"
            ) from None

    def _check_alike(self, first: str, name: str, schema: Any) -> None:
        """Raise DataError, with both files, unless a file has the columns of the first."""
        one, other = ({field.name: _plain(field.type) for field in each} for each in (self.schema, schema))
        told = f"{self.told(name)}: expected the columns of {self.told(first)}"
        if len(schema) > len(other):
            twice = next(each for each in schema.names if schema.names.count(each) > 1)
            raise DataError(f"{told}; it has several {twice!r}; write all shards with the same columns")
        if odd := sorted(one.keys() ^ other.keys()):
            lacks, has = ([each for each in odd if each in side] for side in (one, other))
            kinds = (("lacks", lacks), ("also has", has))
            words = " and ".join(f"it {verb} {shortened(', '.join(some), 200)}" for verb, some in kinds if some)
            raise DataError(f"{told}; {words}; write all shards with the same columns")
        for column, kind in one.items():
            if other[column] != kind:
                raise DataError(
                    f"{told}; {column!r} is {other[column]} instead of {kind}; write all shards with the same types"
                )

    def told(self, name: str) -> str:
        """The name of a file in messages."""
        url = url_of(self.path)
        return name if url is None or "://" in name else url_of(f"{url.partition(':')[0]}:/{name}") or name

    def place(self, row: int) -> str:
        """The place of a row, from 0, for messages."""
        number = bisect_right(self.starts, row, hi=len(self.names)) - 1
        return f"{self.told(self.names[number])}, row {row - self.starts[number] + 1}"

    def check_whole(self, offsets: np.ndarray, qids: Any) -> None:
        """Raise DataError if a file begins within a list."""
        begins = np.array(self.starts[1:-1], np.int64)
        for number in np.flatnonzero(~np.isin(begins, offsets)).tolist():
            qid = qids[int(np.searchsorted(offsets, begins[number], side="right")) - 1]
            before, after = (self.told(name) for name in self.names[number : number + 2])
            raise DataError(
                f"{after}: expected whole lists in each file, but query {shortened(qid)} begins in {before}; "
                "`rankstruct convert --shards` puts the rows of each query in one file"
            )

    def batches(self, names: Sequence[str] | None = None, first: int = 0, last: int | None = None) -> Iterator[Any]:
        """Rows `first` to `last` (exclusive) as Arrow batches with some columns, None for all; a batch is of one file."""
        last = self.starts[-1] if last is None else last
        names = self.schema.names if names is None else names
        size = max(1, min(2**16, _CELLS // max(1, len(names))))
        for number, name in enumerate(self.names):
            start, end = self.starts[number], self.starts[number + 1]
            if end <= first or start >= last:
                continue
            groups = self._groups[number]
            wanted = range(bisect_right(groups, max(first - start, 0)) - 1, len(groups) - 1)
            chosen = [group for group in wanted if groups[group] < last - start]
            at = start + groups[chosen[0]]
            with self._reading(name), self._opened(name) as parquet:
                if self._state(name, parquet) != self.states[name]:
                    raise DataError(f"{self.told(name)} has changed since its rows were counted; start again")
                for batch in parquet.iter_batches(size, row_groups=chosen, columns=list(names)):
                    part = batch.slice(max(first - at, 0), max(min(last - at, len(batch)) - max(first - at, 0), 0))
                    at += len(batch)
                    if len(part):
                        yield part.select(names)
                    if at >= last:
                        break


class ShardedFeatures(Blocks):
    """Features `[documents, d]` of shards, which are decoded when they are used: as rows, or some lists at a time.

    Args:
        read: the features of the rows from one to another, exclusive, in consecutive parts.
        width: d.
        offsets: of the lists, `[lists + 1]`.
        groups: the first row of each row group.
        incomplete: whether some are missing.

    Attributes:
        blocks_of: `[lists]`, the block of each list. A block is lists that begin in the same row group, at most 4 MB of them
            unless one is longer, and is decoded at once.
        groups_of: `[lists]`, the row group of each list.
    """

    def __init__(
        self,
        read: Callable[[int, int], Iterator[np.ndarray]],
        width: int,
        offsets: np.ndarray,
        groups: np.ndarray,
        incomplete: bool | None = None,
    ) -> None:
        self.incomplete = incomplete
        self.shape = (int(offsets[-1]), width)
        self._read, self._offsets = read, offsets
        self._change: Callable[[np.ndarray, np.ndarray], Any] | None = None
        starts = np.asarray(offsets[:-1])
        self.groups_of = (np.searchsorted(groups, starts, side="right") - 1).astype(np.int32)
        parts = (starts - groups[self.groups_of]) // max(1, _BLOCK // max(width, 1)) if len(starts) else starts
        new = np.ones(len(starts), bool)
        new[1:] = (np.diff(self.groups_of) != 0) | (np.diff(parts) != 0)
        self.blocks_of = np.cumsum(new, dtype=np.int32) - 1
        self._lists = np.append(np.flatnonzero(new), len(starts))  # the first of each block
        #: Lists, the first and last documents of those that are held, and their features.
        self._held: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None = None

    def changed(self, change: Callable[[np.ndarray, np.ndarray], Any]) -> ShardedFeatures:
        """See `Blocks`; the new number of features must not depend on the lists."""
        made = ShardedFeatures.__new__(ShardedFeatures)
        vars(made).update(vars(self))
        own = self._change
        made._change = change if own is None else lambda block, offsets: change(own(block, offsets), offsets)
        made._held = made.incomplete = None
        none = np.zeros((0, self.shape[1]), np.float32)
        made.shape = (self.shape[0], int(change(none, np.zeros(1, np.int64)).shape[1]))
        return made

    def shuffled(self, lists: np.ndarray, seed: int) -> np.ndarray:
        """Lists in another order of their row groups, those of a row group together."""
        groups = self.groups_of[lists]
        places = np.random.default_rng(seed).permutation(int(groups.max(initial=-1)) + 1)
        return lists[np.argsort(places[groups], kind="stable")]

    def windows(self, lists: np.ndarray, among: np.ndarray) -> list[np.ndarray]:
        """Consecutive ones of lists, which are some `among` those that are used, whose features may be in memory together."""
        # Blocks are read whole, also if few of their lists are used: each of these has its share of the block.
        documents = np.bincount(self.blocks_of, np.diff(self._offsets))
        used = np.bincount(self.blocks_of[among], minlength=len(documents))
        blocks = self.blocks_of[lists]
        number = np.ceil(np.cumsum(documents[blocks] / used[blocks]) / max(1, _HELD // max(self.shape[1], 1)) - 1e-9)
        return [each for each in np.split(lists, np.flatnonzero(np.diff(number)) + 1) if len(each)]

    def _documents(self, blocks: np.ndarray) -> np.ndarray:
        return np.asarray(self._offsets[self._lists[blocks]])

    def _block(self, number: int, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The features of a block, of its raw ones, and its offsets."""
        offsets = self._offsets[self._lists[number] : self._lists[number + 1] + 1]
        offsets = np.asarray(offsets - offsets[0])
        return (raw if self._change is None else self._change(raw, offsets)), offsets

    def _in_order(self, blocks: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Ascending blocks with their features and offsets; neighbours are read in one go."""
        for run in _runs(blocks):
            ends = self._documents(run + 1)
            at, parts, have = int(self._documents(run[:1])[0]), [], 0
            number = 0
            for part in self._read(at, int(ends[-1])):
                parts.append(part)
                have += len(part)
                while number < len(run) and have >= ends[number] - at:
                    size = int(ends[number]) - at
                    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
                    yield int(run[number]), *self._block(int(run[number]), whole[:size])
                    parts, have, at, number = [whole[size:]], have - size, at + size, number + 1

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See `Blocks`."""
        for _, features, offsets in self._in_order(np.arange(len(self._lists) - 1)):
            yield features, offsets

    def hold(self, lists: np.ndarray) -> None:
        """Keep the features of some lists in memory, and no others, until this is called with another array."""
        if self._held is not None and self._held[0] is lists:
            return
        self._held = None  # before others are read
        let_go(self._offsets)
        blocks = np.unique(self.blocks_of[lists])
        first, last = self._documents(np.array([(run[0], run[-1] + 1) for run in _runs(blocks)])).T
        features = np.empty((int((last - first).sum()), self.shape[1]), np.float32)
        parts = chain.from_iterable(map(self._read, first.tolist(), last.tolist()))  # without blocks in between
        at = 0
        for part in parts if self._change is None else (block for _, block, _ in self._in_order(blocks)):
            features[at : at + len(part)] = part
            at += len(part)
        self._held = lists, first, last, features

    def __getitem__(self, rows: Any) -> np.ndarray:
        """The features of some rows, and of some columns, as of an array."""
        if isinstance(rows, tuple):
            rows, columns = rows
            if rows == slice(None):
                return np.concatenate([block[:, columns] for block, _ in self.blocks()])
            return self[rows][:, columns]
        rows = np.arange(len(self))[rows] if isinstance(rows, slice) else np.asarray(rows)
        if rows.ndim == 0:
            return self[rows[None]][0]
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        if not len(rows):
            return np.empty((0, self.shape[1]), np.float32)
        if self._held is not None:
            _, first, last, features = self._held
            run = np.maximum(np.searchsorted(first, rows, side="right") - 1, 0)
            if ((rows >= first[run]) & (rows < last[run])).all():
                return features[rows - (last - np.cumsum(last - first))[run]]
        blocks = self.blocks_of[np.searchsorted(self._offsets, rows, side="right") - 1]
        found = np.empty((len(rows), self.shape[1]), np.float32)
        order = np.argsort(blocks, kind="stable")
        wanted, first = np.unique(blocks[order], return_index=True)
        for some, (number, block, _) in zip(np.split(order, first[1:]), self._in_order(wanted), strict=True):
            found[some] = block[rows[some] - self._documents(np.array([number]))[0]]
        return found


def _runs(blocks: np.ndarray) -> Iterator[np.ndarray]:
    """Ascending numbers, divided where some are left out."""
    return (run for run in np.split(blocks, np.flatnonzero(np.diff(blocks) != 1) + 1) if len(run))


def _plain(kind: Any) -> str:
    """The name of a type of values, which may be stored as a dictionary or as large."""
    kind = getattr(kind, "value_type", kind) if str(kind).startswith("dictionary") else kind
    return str(kind).removeprefix("large_")


def _serialized(parquet: Any) -> bytes:
    """All that Parquet stores about a file."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    parquet.metadata.write_metadata_file(sink)
    return sink.getvalue().to_pybytes()


def _shown(path: str | os.PathLike[str]) -> str:
    return url_of(path) or os.fspath(path)


def _listed(path: str | os.PathLike[str]) -> tuple[Any, str, list[str]]:
    """The file system of shards, as fsspec has it, their folder, and the files; raises DataError if there is no such place."""
    url = url_of(path)
    try:
        system, place = _store(url or str(path))
        base = place.rstrip("/")
        if glob.has_magic(place) and not system.exists(place):
            found, base = system.glob(place), re.split(r"[*?[]", place)[0].rpartition("/")[0]
        elif url is None or place.endswith("/") or not place.casefold().endswith(_SUFFIXES):
            found = system.find(place) if system.isdir(place) or system.info(place) else []
        else:
            system.info(place)  # raises for one that is gone
            return system, base.rpartition("/")[0], [place]
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{_shown(path)}: expected a place with Parquet files, got: {_reason(error)}") from None
    hidden = re.compile(r"(^|/)[._]")  # such as _metadata, and what is still being written
    names = (str(name) for name in found)
    kept = [n for n in names if n.casefold().endswith(_SUFFIXES) and not hidden.search(n.removeprefix(base))]
    return system, base, sorted(kept)


def _store(place: str) -> tuple[Any, str]:
    """The file system of a place, and its name in it; pyarrow's if fsspec needs a package that is not installed."""
    import fsspec

    options: dict[str, Any] = {}
    if place.startswith(("http://", "https://")):
        import aiohttp

        options["client_kwargs"] = {"timeout": aiohttp.ClientTimeout(sock_connect=_WAIT, sock_read=_WAIT)}
    with suppress(ImportError, ValueError):  # an unknown scheme is a ValueError
        system, name = fsspec.core.url_to_fs(place, **options)
        return system, name
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow.fs import FileSystem

    found, name = FileSystem.from_uri(place)
    return ArrowFSWrapper(found), name


def _reason(error: BaseException) -> str:
    """What went wrong, in one line: that of the first cause, such as an HTTP status, and not what was made of it."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    text = (str(error).splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
