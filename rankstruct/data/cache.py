"""Arrays in one file that can be mapped into memory: what was parsed once is not parsed again.

A file is a prefix (magic, CRC-32 of all that follows), the length of a header, the header (JSON: dtype, shape and place
of every array), and the arrays, each at a multiple of 64 bytes after the header.
"""

from __future__ import annotations

import json
import logging
import os
import struct
import zlib
from pathlib import Path

import numpy as np

from rankstruct.files import whole_file

_log = logging.getLogger(__name__)
_MAGIC = b"rankdat1"
_PREFIX = struct.Struct("<8sI")
_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 64


def cache_folder(cache: bool | str | os.PathLike[str]) -> Path | None:
    """The folder that `cache=` asks for: None for False; for True `$RANKSTRUCT_CACHE` or the user's cache folder.

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
    """The arrays of a file, mapped and read-only; None if it is absent or damaged."""
    try:
        content = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
        magic, checksum = _PREFIX.unpack(content[: _PREFIX.size].data)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, struct.error):  # not readable; empty; shorter than the prefix
        magic = b""
    if magic != _MAGIC or zlib.crc32(content[_PREFIX.size :].data) != checksum:
        _log.warning("%s is damaged or cannot be read; it is made anew", path)
        return None
    (length,) = _LENGTH.unpack_from(content.data, _PREFIX.size)
    end = _PREFIX.size + _LENGTH.size + length
    header, body = content[end - length : end], content[_aligned(end) :]
    return {
        name: body[place : place + size].view(dtype).reshape(shape)
        for name, (dtype, shape, place, size) in json.loads(header.tobytes()).items()
    }


def store_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays so that another process sees the whole file or none; where nothing can be written, nothing is."""
    try:
        with whole_file(path, "wb") as file:
            file.writelines(_pieces(arrays))
    except OSError as error:  # no rights, a full disk; on Windows, an old file that is mapped
        _log.info("nothing is cached: %s", error)


def _pieces(arrays: dict[str, np.ndarray]) -> list[bytes | memoryview]:
    places, end = {}, 0
    body: list[bytes | memoryview] = []
    for name, array in arrays.items():
        places[name] = (array.dtype.str, array.shape, end, array.nbytes)
        body += [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, bytes(-array.nbytes % _ALIGNMENT)]
        end += _aligned(array.nbytes)
    header = json.dumps(places).encode()
    before = _PREFIX.size + _LENGTH.size + len(header)
    pieces = [_LENGTH.pack(len(header)), header, bytes(-before % _ALIGNMENT), *body]
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    return [_PREFIX.pack(_MAGIC, checksum), *pieces]


def _aligned(size: int) -> int:
    return size + -size % _ALIGNMENT
