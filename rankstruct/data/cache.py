"""Lists in files of arrays that are memory-mapped: those that `convert_lists` writes, and the cache of parsed files.

A file is a prefix (magic, CRC-32 of the rest), the length of the header, the header (JSON: dtype, shape and offset of every
array), and the arrays, each at a multiple of 64 bytes after the header. It is written in blocks, so that it may exceed memory,
and atomically, so that a killed process leaves no damaged file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from rankstruct.blocks import Blocks
from rankstruct.columns import Columns
from rankstruct.data.assembly import Assembly, Stream
from rankstruct.data.dataset import RankingData, register_format
from rankstruct.data.errors import REAL, DataError
from rankstruct.data.names import Names
from rankstruct.data.text import add_to_digest, check_file
from rankstruct.files import LEFT_BEHIND, remove_left_behind, whole_file
from rankstruct.messages import Way, shortened

__all__ = ["read_rankdata"]

_log = logging.getLogger(__name__)
SUFFIX = ".rankdata"
_MAGIC = b"rankdat2"
_PREFIX = struct.Struct("<8sI")
_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 64
_STREAMED_FROM = 2**26  # least size of files, in bytes, that are assembled on disk and then memory-mapped
_NAMES = ("qids", "docids", "comments")
_FILLED = "filled"  # stored with the arrays of `RankingData`, as JSON: the fill value, and the missing values by column
_COLUMN_CATEGORIES = "columns"  # the names and categories of `RankingData.columns`, as JSON
_NAMED_COLUMNS = 5  # with missing values that messages name
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def cache_folder(cache: bool | str | os.PathLike[str]) -> Path | None:
    """The folder of a `cache` argument: None for False; for True `$RANKSTRUCT_CACHE` or the user's cache folder.

    >>> cache_folder(False) is None
    True
    >>> cache_folder("here").name
    'here'
    """
    if cache is False:
        return None
    if cache is not True:
        return Path(cache)
    if chosen := os.environ.get("RANKSTRUCT_CACHE"):
        return Path(chosen)
    shared = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return Path(shared or Path("~/.cache").expanduser()) / "rankstruct"


def load_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of a cached file, memory-mapped and read-only; None if it is missing or damaged. It is marked as used."""
    if not path.exists():
        return None
    try:
        arrays = map_arrays(path)
        os.utime(path)
    except DataError as error:
        _log.warning("%s; it will be rebuilt", error)
        return None
    except OSError:  # a read-only folder
        pass
    return arrays


def map_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a file, memory-mapped and read-only, verified by its checksum.

    Raises:
        DataError: the file cannot be read, is damaged, or its header does not match its content.
    """
    try:
        size = check_file(path)
        content = np.asarray(np.memmap(path, dtype=np.uint8, mode="r")) if size else np.empty(0, np.uint8)
        magic, checksum = _PREFIX.unpack(content[: _PREFIX.size].data)
        if magic != _MAGIC or _checksum(path) != checksum:
            raise ValueError("wrong magic number or checksum")
        (length,) = _LENGTH.unpack_from(content.data, _PREFIX.size)
        end = _PREFIX.size + _LENGTH.size + length
        if end > size:
            raise ValueError("header beyond the end of the file")
        header, body = content[end - length : end], content[_aligned(end) :]
        return {name: _placed(body, *entry) for name, entry in json.loads(header.tobytes()).items()}
    except DataError:
        raise
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, SyntaxError, struct.error) as error:
        raise DataError(
            f"{path} is damaged or not from this version of rankstruct ({str(error)[:100]}); convert the data again"
        ) from error


def _checksum(path: str | os.PathLike[str]) -> int:
    """The CRC-32 of a file after its prefix, without a page of it in memory that nobody asked for."""
    checksum = 0
    with open(path, "rb", buffering=0) as file:
        file.seek(_PREFIX.size)
        while block := file.read(2**20):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _placed(body: np.ndarray, dtype: Any, shape: Any, place: Any, size: Any) -> np.ndarray:
    """The array of a header entry, which may be malicious."""
    kind = np.dtype(dtype) if isinstance(dtype, str) else None  # a SyntaxError for some
    numbers = [*shape, place, size]
    if kind is None or kind.kind not in "biuf" or not all(type(each) is int and each >= 0 for each in numbers):
        raise ValueError("not a numeric array")
    if int(np.prod(shape, dtype=object)) * kind.itemsize != size or place + size > len(body):
        raise ValueError("array beyond the end of the file")
    return body[place : place + size].view(kind).reshape(shape)


def store_arrays(path: Path, arrays: Mapping[str, np.ndarray | Stream]) -> bool:
    """Write arrays to the cache and evict the least recently used files; False if the cache is not writable."""
    try:
        write_arrays(path, arrays)
    except OSError as error:  # no permission, a full disk or, on Windows, a memory-mapped file
        _log.info("nothing is cached: %s", error)
        return False
    evict(path.parent, cache_limit(), keep=path)
    return True


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray | Stream]) -> None:
    """Write arrays atomically; raises OSError."""
    streams = {name: each if isinstance(each, Stream) else Stream.of(each) for name, each in arrays.items()}
    places, end = {}, 0
    for name, stream in streams.items():
        places[name] = (stream.dtype.str, stream.shape, end, stream.nbytes)
        end += _aligned(stream.nbytes)
    header = json.dumps(places).encode()
    before = _PREFIX.size + _LENGTH.size + len(header)
    with whole_file(path, "wb") as file:
        file.write(bytes(_PREFIX.size))
        checksum = 0

        def put(piece: bytes | memoryview) -> None:
            nonlocal checksum
            checksum = zlib.crc32(piece, checksum)
            file.write(piece)

        put(_LENGTH.pack(len(header)) + header + bytes(-before % _ALIGNMENT))
        for stream in streams.values():
            for block in stream.blocks():
                put(block.view(np.uint8).data)
            put(bytes(-stream.nbytes % _ALIGNMENT))
        if file.tell() != _aligned(before) + end:
            raise AssertionError("a stream does not match its shape")
        file.seek(0)
        file.write(_PREFIX.pack(_MAGIC, checksum))


def _aligned(size: int) -> int:
    return size + -size % _ALIGNMENT


def parse_size(text: str) -> int:
    """Parse a size such as `"500M"` or `"20 GB"` (decimal units) to bytes; raises ValueError.

    >>> parse_size("1.5GB")
    1500000000
    """
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([KMGT]?)B?\s*", text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"expected a number with K, M, G or T as size, such as 20G; got {text[:40]!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def cache_limit() -> int:
    """The maximum size of the cache in bytes: `$RANKSTRUCT_CACHE_SIZE`, or 20 GB; raises ValueError if it is not a size."""
    try:
        return parse_size(os.environ.get("RANKSTRUCT_CACHE_SIZE", "20G"))
    except ValueError as error:
        raise ValueError(f"RANKSTRUCT_CACHE_SIZE: {error}") from None


@dataclass(frozen=True)
class CachedFile:
    """A cached file: its path, size in bytes and time of last use, in seconds since 1970."""

    path: Path
    size: int
    used: float


def cached_files(folder: Path) -> list[CachedFile]:
    """The cached files, most recently used first."""
    return sorted(_listed(folder, f"*{SUFFIX}"), key=lambda each: -each.used)


def _listed(folder: Path, pattern: str) -> Iterator[CachedFile]:
    for path in folder.glob(pattern):
        try:
            state = path.stat()
        except FileNotFoundError:  # another process was faster
            continue
        yield CachedFile(path, state.st_size, state.st_mtime)


def evict(folder: Path, limit: int, *, keep: Path | None = None) -> list[CachedFile]:
    """Remove the least recently used files, except `keep`, until at most `limit` bytes are left; returns the files removed.

    Incomplete files that killed processes left more than an hour ago are removed too.
    """
    for each in _listed(folder, f"*{SUFFIX}.*.part"):
        if LEFT_BEHIND.search(each.path.name) and time.time() - each.used > 3600:
            each.path.unlink(missing_ok=True)
    total, removed = 0, []
    # stable: keep first, then the most recently used
    for each in sorted(cached_files(folder), key=lambda each: each.path != keep):
        total += each.size
        if total > limit and each.path != keep:
            each.path.unlink(missing_ok=True)  # a process that has it mapped can still use it
            removed.append(each)
    return removed


# Lists


def to_arrays(data: RankingData) -> dict[str, np.ndarray]:
    """The arrays of lists to store in a file; raises DataError for columns of groups, which it does not hold."""
    if data.group_columns:
        names = ", ".join(map(repr, data.group_columns))
        raise DataError(
            f"files of lists do not hold columns of groups, got {names}; set them after reading, by with_columns"
        )
    arrays = {name: value for name, value in vars(data).items() if value is not None and name != "group_columns"}
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


def from_arrays(arrays: Mapping[str, np.ndarray], elsewhere: Elsewhere | None = None) -> RankingData:
    """Lists from the arrays of a file, with features that may be elsewhere; raises DataError if the arrays are inconsistent."""
    given: dict[str, Any] = dict(arrays)
    given.pop(_FILLED, None)
    try:
        if _COLUMN_CATEGORIES in given:
            given[_COLUMN_CATEGORIES] = Columns(json.loads(given[_COLUMN_CATEGORIES].tobytes()))
        for name in _NAMES:
            if f"{name}.text" in given:
                kind = bytes if name == "comments" else str
                given[name] = Names(given.pop(f"{name}.text"), given.pop(f"{name}.offsets"), kind)
        if elsewhere is not None:
            width, columns = int(given.pop("shape")[1]), given.get(_COLUMN_CATEGORIES)
            given["features"] = elsewhere.features(given["offsets"], width, columns, "missing" in given)
        if "features" not in given:
            given["features"] = _matrix(*(given.pop(name) for name in ("values", "indices", "indptr", "shape")))
        return RankingData(**given)
    except DataError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise DataError(f"expected the arrays of lists, got {', '.join(map(str, arrays))}"[:200]) from error


def described(
    arrays: Mapping[str, Stream], fill: float, filled: Mapping[str, int], columns: Columns | None = None
) -> dict[str, Stream]:
    """Arrays with what messages say of them: the value of missing features, their number by column, and the columns."""
    more = {} if columns is None else {_COLUMN_CATEGORIES: Stream.of(_as_bytes(columns.categories))}
    if "missing" in arrays:
        more[_FILLED] = Stream.of(_as_bytes([fill, filled]))
    return {**arrays, **more}


def _as_bytes(value: Any) -> np.ndarray:
    """Plain data as JSON, in an array of bytes."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _matrix(values: np.ndarray, indices: np.ndarray, pointers: np.ndarray, shape: np.ndarray) -> Any:
    rows, width = (int(each) for each in shape.tolist())
    fits = len(pointers) == rows + 1 and pointers[0] == 0 and pointers[-1] == len(indices) == len(values)
    fits = fits and not (pointers[1:] < pointers[:-1]).any()
    if not fits or (len(indices) and not 0 <= indices.min() <= indices.max() < width):
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
        _log_columns(path, arrays)
    except DataError as error:
        raise error if str(path) in str(error) else DataError(f"{path}: {error}") from None
    if num_features is not None and data.num_features < num_features:
        raise DataError(
            f"{path}: expected {num_features} features, got {data.num_features}",
            Way("num_features", None, "convert with {}", "convert it with `rankstruct convert --num-features`"),
        )
    if labels == "grades" and ((data.labels < 0) | (data.labels % 1 != 0)).any():
        raise DataError(f"{path}: expected grades (integers from 0) as labels, got others", REAL)
    return data


Fill = Callable[[Assembly], dict[str, Stream]]


class Elsewhere(Protocol):
    """Features that stay where they are, of the lists in a file of arrays; `version` changes when they do."""

    @property
    def version(self) -> str: ...

    def features(self, offsets: np.ndarray, width: int, columns: Columns | None, incomplete: bool) -> Blocks: ...


def assemble(
    path: Path,
    fill: Fill,
    cache: bool | str | os.PathLike[str],
    options: object,
    elsewhere: Elsewhere | None = None,
) -> RankingData:
    """The lists that `fill` adds to an `Assembly`, cached and memory-mapped the next time.

    The key is that of the file's content and the options, plain data that determine the arrays. A large file is streamed to the
    cache, so that reading it takes no more memory than converting it. If the features stay `elsewhere`, the rest is cached, by
    their version.
    """
    folder = cache_folder(cache)
    kept = None
    if folder is not None:
        # SHA-256: the fastest hash of hashlib on processors that support it, and free of collisions.
        digest = hashlib.sha256()
        size: int | str = add_to_digest(digest, path) if elsewhere is None else elsewhere.version
        digest.update(json.dumps([size, options]).encode())
        name = re.sub(r"[^\w.-]", "_", path.stem[:80])  # of a pattern
        kept = folder / f"{name}-{digest.hexdigest()[:32]}{SUFFIX}"
        if (found := _kept(kept, path, elsewhere)) is not None:
            return found
        if elsewhere is not None or path.stat().st_size >= _STREAMED_FROM:
            try:
                with Assembly(kept.parent, features=elsewhere is None) as assembly:
                    if store_arrays(kept, fill(assembly)) and (found := _kept(kept, path, elsewhere)) is not None:
                        return found
            except OSError as error:
                _log.info("nothing is cached: %s", error)
    streams: dict[str, Stream] = {}
    try:
        streams = fill(Assembly(features=elsewhere is None))
        arrays = {name: stream.array() for name, stream in streams.items()}
        data = from_arrays(arrays, elsewhere)
    except MemoryError:
        shape = streams["features"].shape if "features" in streams else ()
        raise DataError(
            f"{path}: not enough memory for features {' x '.join(map(str, shape))}",
            Way(
                "sparse",
                True,
                "use {} if most are 0, or convert the file",
                "convert the file with `rankstruct convert`",
            ),
        ) from None
    _log_columns(path, arrays)
    if kept is not None:
        store_arrays(kept, arrays)
    return data


def _kept(kept: Path, path: Path, elsewhere: Elsewhere | None) -> RankingData | None:
    """The lists of a cached file; None if it is missing or damaged."""
    arrays = load_arrays(kept)
    if arrays is None:
        return None
    try:
        data = from_arrays(arrays, elsewhere)
    except DataError as error:  # a file with a valid checksum from elsewhere
        _log.warning("%s is damaged (%s); it will be rebuilt", kept, error)
        return None
    _log_columns(path, arrays)
    return data


def _log_columns(path: object, arrays: Mapping[str, np.ndarray | Stream]) -> None:
    """Log the categorical columns of a file, the number of missing values by column and their fill value."""

    def blocks(name: str) -> Any:
        array = arrays.get(name)
        return [] if array is None else array.blocks() if isinstance(array, Stream) else [array]

    for text in blocks(_COLUMN_CATEGORIES):
        if (columns := Columns(json.loads(text.tobytes()))).categorical:
            _log.warning("%s: %s", path, columns.description)
    count = sum(int(block.sum()) for block in blocks("missing"))
    if not count:
        return
    try:
        ((value, by_column),) = (json.loads(text.tobytes()) for text in blocks(_FILLED))
        value = "" if math.isnan(value) else f" were read as {float(value):g}"
        filled = sorted(((name, int(number)) for name, number in by_column.items()), key=lambda each: -each[1])
    except (TypeError, ValueError, AttributeError):  # of an earlier version
        value, filled = " were filled", []
    if not filled:
        _log.warning("%s: %d missing values (NULL)%s (fill=)", path, count, value)
        return
    shown = ", ".join(f"{number} in column {shortened(name)}" for name, number in filled[:_NAMED_COLUMNS])
    more = f" and {len(filled) - _NAMED_COLUMNS} more columns" if len(filled) > _NAMED_COLUMNS else ""
    some = "value" if count == 1 else "values"
    _log.warning("%s: %d missing %s (empty, null or NaN): %s%s", path, count, some, shown, more)


def write_assembled(target: Path, fill: Fill, *, half: bool = False) -> tuple[int, int, int]:
    """Write the lists that `fill` adds to one file in bounded memory; returns the number of lists, documents and features.

    Raises OSError, and as `fill`.
    """
    remove_left_behind(target)
    with Assembly(target.parent, half=half) as assembly:
        streams = fill(assembly)
        write_arrays(target, streams)
        _log_columns(target, streams)
    width = streams["features"].shape[1] if "features" in streams else int(streams["shape"].array()[1])
    return streams["offsets"].shape[0] - 1, streams["labels"].shape[0], width
