"""The cache of parsed data: arrays in a file that is memory-mapped.

A file is a prefix (magic, CRC-32 of the rest), the length of the header, the header (JSON: dtype, shape and offset of every
array), and the arrays, each at a multiple of 64 bytes after the header. It is written in blocks, so that it may exceed memory,
and atomically, so that a killed process leaves no damaged file.
"""

from __future__ import annotations

import json
import logging
import os
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankstruct.data.errors import DataError
from rankstruct.data.text import check_file
from rankstruct.files import whole_file

_log = logging.getLogger(__name__)
SUFFIX = ".rankdata"
_MAGIC = b"rankdat2"
_PREFIX = struct.Struct("<8sI")
_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 64
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
LEFT_BEHIND = re.compile(
    r"\.rankdata\.(\d{1,9})-[0-9a-f]+\.part$"
)  # temporary files of `whole_file` in a killed process


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


@dataclass(frozen=True)
class Stream:
    """An array that need not be in memory: `blocks()` returns its entries, flat and in order."""

    dtype: np.dtype
    shape: tuple[int, ...]
    blocks: Callable[[], Iterable[np.ndarray]]

    @classmethod
    def of(cls, array: np.ndarray) -> Stream:
        """The stream of an array."""
        return cls(array.dtype, array.shape, lambda: [np.ascontiguousarray(array).reshape(-1)])

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


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
        if magic != _MAGIC or zlib.crc32(content[_PREFIX.size :].data) != checksum:
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
    for each in _listed(folder, "*.part"):
        if LEFT_BEHIND.search(each.path.name) and time.time() - each.used > 3600:
            each.path.unlink(missing_ok=True)
    total, removed = 0, []
    for each in sorted(
        cached_files(folder), key=lambda each: each.path != keep
    ):  # stable: keep first, then the most recently used
        total += each.size
        if total > limit and each.path != keep:
            each.path.unlink(missing_ok=True)  # a process that has it mapped can still use it
            removed.append(each)
    return removed
