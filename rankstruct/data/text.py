"""Robust reading of bytes, lines, fields and numbers from untrusted text files.

Lines end with LF, CR LF or CR. Fields are separated by ASCII tabs or blanks: a no-break space, a Unicode line separator or a
vertical tab is part of a name. Files compressed by gzip, bzip2, xz or Zstandard are decompressed, whatever their name; a UTF-8
byte order mark is skipped. Memory is bounded by a block of the file and its longest line, even for compressed files.
"""

from __future__ import annotations

import csv
import gzip
import io
import logging
import os
import re
import stat
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from rankstruct.data.errors import DataError
from rankstruct.messages import shortened

BLOCK = 2**22  # bytes per read
#: Suffixes of compressed files, after that of the format.
PACKED = (".gz", ".bz2", ".xz", ".zst")

_log = logging.getLogger(__name__)
_LONGEST_LINE = 2**28
_UNPACKED, _RATIO = 2**28, 100  # of decompressed files: bytes, or multiples of the compressed size if that is more
_PIECE = 2**11  # compressed bytes per step
_MEMORY = 2**29  # memory limit of xz
_NOT_REGULAR = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
_MAGIC = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "Zstandard": re.compile(rb"\x28\xb5\x2f\xfd"),
}
_CODECS = {"bzip2": "bz2", "Zstandard": "zstd"}  # of Arrow
_BOM = b"\xef\xbb\xbf"
_UTF_16 = re.compile(rb"\xff\xfe|\xfe\xff|(?:[^\0]\0){2,}\Z|(?:\0[^\0]){2,}\Z")
SPACE = " \t\r\n"  #: White space around lines and fields.
_LONE_CR = re.compile(rb"\r(?!\n)")


def check_file(path: str | os.PathLike[str]) -> int:
    """The size of a regular file; raises DataError for others, such as a pipe, which may never end."""
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:  # ValueError for a null character in the path
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: expected a file that can be read, got: {reason}") from error
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for is_kind, name in _NOT_REGULAR if is_kind(found.st_mode)), "a device")
        way_out = "give a file in it" if kind == "a folder" else "write its content to a file first"
        raise DataError(f"{path}: expected a file that can be read, got: {kind}; {way_out}")
    return found.st_size


def add_to_digest(digest: Any, path: str | os.PathLike[str]) -> int:
    """Update a `hashlib` digest with the bytes of a file, block by block; returns their number."""
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
        return file.tell()


def unpacked_name(name: str) -> str:
    """The name of a file without the suffix of its compression.

    >>> unpacked_name("train.txt.xz"), unpacked_name("train.txt")
    ('train.txt', 'train.txt')
    """
    return next((name.removesuffix(suffix) for suffix in PACKED if name.endswith(suffix)), name)


def read_blocks(path: str | os.PathLike[str], block: int = BLOCK) -> Iterator[bytes]:
    """The bytes of a regular file, in blocks, decompressed if needed (gzip, bzip2, xz, Zstandard).

    Raises:
        DataError: the file cannot be read; or a compressed file is damaged, or exceeds both 256 MB and 100 times its size.
    """
    size = check_file(path)
    kind = None
    try:
        with open(path, "rb") as file:
            begins = file.read(16)
            file.seek(0)
            kind = next((name for name, magic in _MAGIC.items() if magic.match(begins)), None)
            most = max(_UNPACKED, _RATIO * size)
            total = 0
            for content in _unpacked(file, kind, block):
                total += len(content)
                if kind and total > most:
                    raise DataError(
                        f"{path}: expected a {kind} file of lines, got one of {size} bytes that decompresses to more than "
                        f"{most}; decompress it first if this is intended"
                    )
                yield content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: expected a complete {kind} file, as its first bytes indicate, got: {error}"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: expected a file that can be read, got: {error.strerror or error}") from error


def _unpacked(file: IO[bytes], kind: str | None, block: int) -> Iterator[bytes]:
    """The content of a file, or of all compressed streams in it; raises EOFError or as gzip for a damaged one."""
    if kind == "xz":
        yield from filter(None, _xz_streams(file, block))
        return
    stream: Any = gzip.GzipFile(fileobj=file) if kind == "gzip" else file
    if kind in _CODECS:
        import pyarrow as pa

        stream = pa.CompressedInputStream(pa.PythonFile(file), _CODECS[kind])
    try:
        while content := stream.read(block):
            yield content
    except OSError as error:
        if kind not in _CODECS:
            raise
        raise EOFError(str(error)) from error


def _xz_streams(file: IO[bytes], block: int) -> Iterator[bytes]:
    """The content of an xz file, of which Arrow has no decoder, and Python's ignores what follows the first stream."""
    import lzma

    data = file.read(_PIECE)
    while data:
        decoder = lzma.LZMADecompressor(memlimit=_MEMORY)
        while not decoder.eof:
            if decoder.needs_input and not data and not (data := file.read(_PIECE)):
                raise EOFError("unexpected end of file")
            try:
                yield decoder.decompress(data, block)
            except lzma.LZMAError as error:
                raise EOFError(str(error)) from error
            data = b""
        data = decoder.unused_data.lstrip(b"\0")  # zeros may come before another stream
        while not data and (more := file.read(_PIECE)):
            data = more.lstrip(b"\0")


class Piece(NamedTuple):
    """Complete lines of a file, and the number of the first one, from 1."""

    text: bytes
    line: int


def whole_lines(path: str | os.PathLike[str], block: int = BLOCK) -> Iterator[Piece]:
    """A file in pieces of complete lines of about `block` bytes, with a lone CR at line ends replaced by LF.

    Raises:
        DataError: as `read_blocks`; a line is longer than 256 MB, or the file is in UTF-16.
    """
    rest: list[bytes] = []
    line, held, begun = 1, 0, False
    for content in read_blocks(path, block):
        if not begun:
            begun, content = True, _without_mark(path, content)
        # A CR at the end may be followed by an LF.
        cut = content.rfind(b"\n") + 1 or content.rfind(b"\r", 0, -1) + 1
        if cut:
            text = _with_line_feeds(b"".join([*rest, memoryview(content)[:cut]]))
            yield Piece(text, line)
            line += int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))  # bytes.count is slow
            rest, held = [], 0
        if cut < len(content):
            rest.append(content[cut:])
            held += len(rest[-1])
        if held > _LONGEST_LINE:
            raise DataError(f"{path}:{line}: expected lines of at most {_LONGEST_LINE} bytes, got a longer one")
    if rest:
        yield Piece(_with_line_feeds(b"".join(rest)), line)


def _without_mark(path: object, content: bytes) -> bytes:
    """The first block without a UTF-8 byte order mark; raises DataError if it is in UTF-16."""
    if _UTF_16.match(content[:64]):
        raise DataError(
            f"{path}: expected text in UTF-8, got UTF-16 or UTF-32, by its first bytes ({content[:4].hex(' ')}); save the "
            "file as UTF-8"
        )
    return content.removeprefix(_BOM)


def _with_line_feeds(text: bytes) -> bytes:
    if b"\r" not in text:
        return text
    values = np.frombuffer(text, np.uint8)
    returns = values == ord("\r")
    if not (returns[:-1] & (values[1:] != ord("\n"))).any() and not returns[-1]:
        return text
    return _LONE_CR.sub(b"\n", text)


def text_lines(
    path: str | os.PathLike[str], encoding: str = "utf-8", errors: str = "strict", newline: str | None = None
) -> Iterator[tuple[int, str]]:
    """The lines of a text file, plain or compressed, with their numbers; `newline` is that of `open`.

    Raises:
        DataError: as `whole_lines`; bytes invalid in the encoding; or a byte order mark that is not at the start of the file.
    """
    number = 0
    for piece in whole_lines(path, 2**20):
        try:
            text = piece.text.decode(encoding, errors)
        except UnicodeDecodeError as error:
            at = piece.line + piece.text.count(b"\n", 0, error.start)
            raise DataError(
                f"{path}: expected text in UTF-8, got the byte {piece.text[error.start]:#04x} on line {at}, which is not "
                "UTF-8; save the file as UTF-8"
            ) from error
        for line in io.StringIO(text, newline):
            number += 1
            if line[0] == "\ufeff":
                raise DataError(
                    f"{path}:{number}: expected a byte order mark (U+FEFF) only at the start of the file, got one before "
                    f"{shortened(line[1:].strip(SPACE))}, as in concatenated files; remove it"
                )
            yield number, line


def split_blanks(line: str) -> list[str]:
    r"""Split a line at ASCII blanks and tabs only, as trec_eval does.

    >>> split_blanks("New\xa0York \t 1\n")
    ['New\xa0York', '1']
    """
    return [word for word in line.rstrip("\r\n").replace("\t", " ").split(" ") if word]


def split_at(line: str, separator: str = "\t") -> list[str]:
    r"""Split a line at a separator, and strip blanks from its fields; an empty line has none.

    >>> split_at("New York\t 1\n")
    ['New York', '1']
    """
    said = line.strip(SPACE)
    return [field.strip(" ") for field in said.split(separator)] if said else []


class Separator(NamedTuple):
    """A separator of fields: its name, how to split a line, and whether fields may be empty."""

    name: str
    split: Callable[[str], list[str]]
    empty: bool = True


TABS, BLANKS = Separator("tabs", split_at, empty=False), Separator("blanks", split_blanks)


def field_rows(
    path: str | os.PathLike[str],
    lines: Iterable[tuple[int, str]],
    columns: str,
    fits: Callable[[list[str]], bool],
    *,
    counts: Collection[int] = (),
    separator: Separator | None = None,
) -> Iterator[tuple[int, list[str]]]:
    """The fields of each line that is not blank or a comment, with the separator and the number of fields of the first.

    The separator is a tab if the first line has enough nonempty fields between tabs, otherwise blanks. A line that is `#`, or
    starts with `#` and a blank, is a comment, unless its fields are valid. Names may start with `#`, which is logged.

    Args:
        path: the file, for messages.
        lines: numbered lines.
        columns: column names, separated by blanks.
        fits: whether the fields of a line are valid, to tell a line that starts with `#` and a blank from a comment.
        counts: allowed numbers of fields; that of `columns` if empty.
        separator: the separator of the format, if fixed.

    Raises:
        DataError: a line has another number of fields, or an empty one; the message has file and line.
    """
    counts = counts or (len(columns.split()),)
    first, named = 0, 0
    for number, line in lines:
        if line == "\n":  # a compressed file may have millions
            continue
        used = separator
        if used is None:
            fields = TABS.split(line)
            used = TABS if len(fields) in counts and all(fields) else BLANKS
        try:
            fields = used.split(line)
        except csv.Error as error:
            raise DataError(f"{path}:{number}: expected values separated by {used.name}, got: {error}") from None
        if not fields:
            continue
        good = len(fields) in counts and (used.empty or all(fields))
        if fields[0][:1] == "#":
            if line.strip(SPACE).lstrip("#")[:1] in ("", " ", "\t") and not (good and fits(fields)):
                continue
            named += 1
        if not good:
            between = f"{used.name}, as on line {first}" if first else used.name if separator else "tabs or blanks"
            raise DataError(f"{path}:{number}: {_wrong_fields(fields, line, counts, columns, between)}")
        if not first:
            separator, first, counts = used, number, (len(fields),)
            columns = " ".join(columns.split()[: len(fields)])
        yield number, fields
    if named:
        _log.warning(
            "%s: %d lines that start with # are read, since they have %s like the others; put a blank after the # of a comment",
            *(path, named, columns),
        )


def _wrong_fields(fields: list[str], line: str, counts: Collection[int], columns: str, between: str) -> str:
    """The message for a line with another number of fields, or an empty one."""
    got = f"{len(fields)}, one of which is empty" if len(fields) in counts else str(len(fields))
    advice = "; names with blanks require tabs between the columns of all lines" * (len(fields) > max(counts))
    if fields[0][:1] == "#":
        advice = ", or put a blank after the # of a comment"
    return (
        f"expected {' or '.join(map(str, counts))} columns, {columns}, separated by {between}; got {got}, "
        f"{shortened(line.strip(SPACE))}; correct or remove the line{advice}"
    )


def parse_number(word: str, kind: type = float) -> float:
    """Parse a number strictly: unlike `float` and `int`, reject `1_000`, non-ASCII digits and blanks by ValueError.

    >>> parse_number("1e3")
    1000.0
    >>> parse_number("1_000")
    Traceback (most recent call last):
    ...
    ValueError: not a number: '1_000'
    """
    try:
        if word.isascii() and "_" not in word and word.strip() == word:
            return kind(word)
    except ValueError:  # whose message has the complete word
        pass
    raise ValueError(f"not a number: {shortened(word)}")
