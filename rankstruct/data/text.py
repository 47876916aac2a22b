"""Bytes, lines and numbers of files that may hold anything: what every reader of text begins with.

Nothing here takes more memory than a block of the file and its longest line, whatever a packed file unpacks to.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np

from rankstruct.data.errors import DataError, shortened

BLOCK = 2**22  # bytes read at a time
_LONGEST_LINE = 2**28
_UNPACKED, _RATIO = 2**28, 100  # what gzip may unpack to: so many bytes, or as many times its size if that is more
_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


def check_file(path: str | os.PathLike[str]) -> int:
    """The size of a regular file; raises DataError for what is none, such as a pipe, which may never end, or never begin."""
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:  # a zero character in the path is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: expected a file that can be read, got: {reason}") from error
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "a device")
        way_out = "give a file in it" if kind == "a folder" else "write what it gives to a file first"
        raise DataError(f"{path}: expected a file that can be read, got: {kind}; {way_out}")
    return found.st_size


def read_blocks(path: str | os.PathLike[str], block: int = BLOCK) -> Iterator[bytes]:
    """The bytes of a regular file, in blocks; those of a gzip file unpacked.

    Raises:
        DataError: the file cannot be read, is a damaged gzip file, or one that unpacks to over 256 MB and 100 times its size.
    """
    size = check_file(path)
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            most = max(_UNPACKED, _RATIO * size)
            total = 0
            stream: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=file) if packed else file
            while content := stream.read(block):
                total += len(content)
                if packed and total > most:
                    raise DataError(
                        f"{path}: expected a gzip file of lines, got one of {size} bytes that unpacks to more than "
                        f"{most}; unpack it if that is meant"
                    )
                yield content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: expected a whole gzip file, as its first bytes say, got: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: expected a file that can be read, got: {error.strerror or error}") from error


class Piece(NamedTuple):
    """Whole lines of a file, and the number of the first of them, from 1."""

    text: bytes
    line: int


def whole_lines(path: str | os.PathLike[str], block: int = BLOCK) -> Iterator[Piece]:
    """A file in pieces of whole lines of about `block` bytes; raises DataError as `read_blocks`, and for lines over 256 MB."""
    rest: list[bytes] = []
    line, held = 1, 0
    for content in read_blocks(path, block):
        cut = content.rfind(b"\n") + 1
        if cut:
            text = b"".join([*rest, memoryview(content)[:cut]])
            yield Piece(text, line)
            line += int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))  # bytes.count is slow
            rest, held = [], 0
        if cut < len(content):
            rest.append(content[cut:])
            held += len(rest[-1])
        if held > _LONGEST_LINE:
            raise DataError(f"{path}:{line}: expected lines of at most {_LONGEST_LINE} bytes, got a longer one")
    if rest:
        yield Piece(b"".join(rest), line)


def text_lines(
    path: str | os.PathLike[str], encoding: str = "utf-8-sig", errors: str = "strict", newline: str | None = None
) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers, plain or gzip; `newline` is that of `open`.

    Raises DataError as `whole_lines`, and for bytes that are not of the encoding.
    """
    number = 0
    for piece in whole_lines(path, 2**20):
        try:
            text = piece.text.decode(encoding if number == 0 else encoding.removesuffix("-sig"), errors)
        except UnicodeDecodeError as error:
            at = piece.line + piece.text.count(b"\n", 0, error.start)
            raise DataError(
                f"{path}: expected text in UTF-8, got the byte {piece.text[error.start]:#04x} on line {at}, which is not "
                "UTF-8; save the file as UTF-8"
            ) from error
        for line in io.StringIO(text, newline):
            number += 1
            yield number, line


def parse_number(word: str, kind: type = float) -> float:
    """A number in the digits 0 to 9, by `float` or `int`, which also take `1_000` and the digits of other scripts; or ValueError.

    >>> parse_number("1e3")
    1000.0
    >>> parse_number("1_000")
    Traceback (most recent call last):
    ...
    ValueError: not a number: '1_000'
    """
    try:
        if word.isascii() and "_" not in word:
            return kind(word)
    except ValueError:  # whose message has the whole word
        pass
    raise ValueError(f"not a number: {shortened(word)}")
