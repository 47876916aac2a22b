"""Bytes, lines, fields and numbers of files that may hold anything: what every reader of text begins with.

Lines end with LF, CR LF or CR. Between fields stand tabs or blanks (ASCII): a no-break space, a line separator of Unicode or a
vertical tab is a character of the name that it stands in. Files that are packed by gzip, bzip2, xz or Zstandard are unpacked,
whatever they are called; a byte order mark of UTF-8 is skipped. Nothing here takes more memory than a block of the file and its
longest line, whatever a packed file unpacks to.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import logging
import os
import re
import stat
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from rankstruct.data.errors import DataError, shortened

BLOCK = 2**22  # bytes read at a time
#: Suffixes of packed files, which stand behind that of the format.
PACKED = (".gz", ".bz2", ".xz", ".zst")

_log = logging.getLogger(__name__)
_LONGEST_LINE = 2**28
_UNPACKED, _RATIO = (
    2**28,
    100,
)  # what a packed file may unpack to: so many bytes, or as many times its size if that is more
_PIECE = 2**11  # bytes of a packed file that are unpacked at a time: those of Zstandard may become 60,000 times as many
_MEMORY = 2**29  # that unpacking xz may take, by its own count
_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
_MAGIC = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "Zstandard": re.compile(rb"\x28\xb5\x2f\xfd"),
}
_BOM = b"\xef\xbb\xbf"
_UTF_16 = re.compile(rb"\xff\xfe|\xfe\xff|(?:[^\0]\0){2,}\Z|(?:\0[^\0]){2,}\Z")
SPACE = " \t\r\n"  #: What stands around lines and fields.
_LONE_CR = re.compile(rb"\r(?!\n)")


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


def unpacked_name(name: str) -> str:
    """The name of a file without the suffix of a packed one.

    >>> unpacked_name("train.txt.xz"), unpacked_name("train.txt")
    ('train.txt', 'train.txt')
    """
    return next((name.removesuffix(suffix) for suffix in PACKED if name.endswith(suffix)), name)


def read_blocks(path: str | os.PathLike[str], block: int = BLOCK) -> Iterator[bytes]:
    """The bytes of a regular file, in blocks; those of a packed file (gzip, bzip2, xz, Zstandard) unpacked.

    Raises:
        DataError: the file cannot be read, is a damaged packed file, or one that unpacks to over 256 MB and 100 times its size,
            or one that no library here unpacks.
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
            for content in _unpacked(path, file, kind, block):
                total += len(content)
                if kind and total > most:
                    raise DataError(
                        f"{path}: expected a {kind} file of lines, got one of {size} bytes that unpacks to more than "
                        f"{most}; unpack it if that is meant"
                    )
                yield content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: expected a whole {kind} file, as its first bytes say, got: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: expected a file that can be read, got: {error.strerror or error}") from error


def _unpacked(path: object, file: IO[bytes], kind: str | None, block: int) -> Iterator[bytes]:
    if kind in (None, "gzip"):
        stream: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=file) if kind else file
        while content := stream.read(block):
            yield content
        return
    make, wrong = _decoder(path, str(kind))
    decoder, data = make(), file.read(_PIECE)
    while True:
        try:
            content = decoder.decompress(data, block)
        except wrong as error:
            raise EOFError(str(error)) from error
        for first in range(0, len(content), block):
            yield content[first : first + block]
        if decoder.eof:  # another stream may follow, and xz may have zeros before it
            data = decoder.unused_data.lstrip(b"\0")
            while not data:
                if not (data := file.read(_PIECE)):
                    return
                data = data.lstrip(b"\0")
            decoder = make()
        elif decoder.needs_input:
            if not (data := file.read(_PIECE)):
                raise EOFError("it ends before its contents do")
        else:
            data = b""


def _decoder(path: object, kind: str) -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    """What makes a decoder of one stream, by the interface of `bz2.BZ2Decompressor`, and the errors that it raises."""
    try:
        if kind == "bzip2":
            return importlib.import_module("bz2").BZ2Decompressor, (OSError, ValueError)
        if kind == "xz":
            lzma = importlib.import_module("lzma")
            return lambda: lzma.LZMADecompressor(memlimit=_MEMORY), (lzma.LZMAError,)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{path}: {kind} files are read by a Python with the module {error.name}; unpack the file"
        ) from None
    for name in ("compression.zstd", "backports.zstd"):
        try:
            zstd = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        return zstd.ZstdDecompressor, (zstd.ZstdError,)
    try:
        zstandard = importlib.import_module("zstandard")
    except ModuleNotFoundError:
        raise DataError(
            f"{path}: Zstandard files are read by Python 3.14, or by the package zstandard, which is not installed; "
            "pip install zstandard, or unpack the file"
        ) from None
    return lambda: _Zstandard(zstandard.ZstdDecompressor().decompressobj()), (zstandard.ZstdError,)


class _Zstandard:
    """A decoder of the package zstandard by the interface of `bz2.BZ2Decompressor`; it gives all that its piece unpacks to."""

    needs_input = True

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder

    @property
    def eof(self) -> bool:
        return bool(self.decoder.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self.decoder.unused_data)

    def decompress(self, data: bytes, most: int) -> bytes:
        return bytes(self.decoder.decompress(data))


class Piece(NamedTuple):
    """Whole lines of a file, and the number of the first of them, from 1."""

    text: bytes
    line: int


def whole_lines(path: str | os.PathLike[str], block: int = BLOCK) -> Iterator[Piece]:
    """A file in pieces of whole lines of about `block` bytes, with every line end that is a CR alone as LF.

    Raises:
        DataError: as `read_blocks`; a line is longer than 256 MB, or the file is in UTF-16.
    """
    rest: list[bytes] = []
    line, held, begun = 1, 0, False
    for content in read_blocks(path, block):
        if not begun:
            begun, content = True, _without_mark(path, content)
        # A CR at the end may belong to the LF behind it.
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
    """The first block without a byte order mark of UTF-8; raises DataError where it is in UTF-16."""
    if _UTF_16.match(content[:64]):
        raise DataError(
            f"{path}: expected text in UTF-8, got UTF-16 or UTF-32, as its first bytes say ({content[:4].hex(' ')}); save the "
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
    """The lines of a text file with their numbers, plain or packed; `newline` is that of `open`.

    Raises:
        DataError: as `whole_lines`; bytes that are not of the encoding; or a byte order mark that does not begin the file.
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
                    f"{path}:{number}: expected a byte order mark (U+FEFF) at the beginning of the file alone, got one before "
                    f"{shortened(line[1:].strip(SPACE))}, as where files are joined; remove it"
                )
            yield number, line


def split_blanks(line: str) -> list[str]:
    r"""The words of a line, which stand apart by blanks and tabs of ASCII alone, as for trec_eval.

    >>> split_blanks("New\xa0York \t 1\n")
    ['New\xa0York', '1']
    """
    return [word for word in line.rstrip("\r\n").replace("\t", " ").split(" ") if word]


def split_at(line: str, separator: str = "\t") -> list[str]:
    r"""The fields of a line between separators, without blanks around them; none of an empty line.

    >>> split_at("New York\t 1\n")
    ['New York', '1']
    """
    said = line.strip(SPACE)
    return [field.strip(" ") for field in said.split(separator)] if said else []


class Separator(NamedTuple):
    """What stands between fields, in words; how a line is divided; and whether fields may be empty."""

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
    """The fields of each line that says something, separated as those of the first are, and as many.

    Tabs separate where the first line has enough fields between tabs, none of them empty; else blanks do. A line of `#` and a
    blank, or of `#` alone, is a comment, unless it has the fields of a line. Names may begin with `#`, which is logged.

    Args:
        path: for messages.
        lines: with their numbers.
        columns: their names, apart by blanks.
        fits: whether a line's fields are of their kinds, which tells one that begins with `#` and a blank from a comment.
        counts: how many fields a line may have; as many as `columns` if empty.
        separator: of a format that has but one.

    Raises:
        DataError: a line has another number of fields, or an empty one; the message has file and line.
    """
    counts = counts or (len(columns.split()),)
    first, named = 0, 0
    for number, line in lines:
        if line == "\n":  # of which a packed file may hold millions
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
            "%s: %d lines that begin with # are read, since they have %s as the others; put a blank after the # of a comment",
            *(path, named, columns),
        )


def _wrong_fields(fields: list[str], line: str, counts: Collection[int], columns: str, between: str) -> str:
    """What is wrong with a line of another number of fields, or an empty one, and what to do."""
    got = f"{len(fields)}, one of them empty" if len(fields) in counts else str(len(fields))
    advice = "; a name with blanks needs tabs between the columns of all lines" * (len(fields) > max(counts))
    if fields[0][:1] == "#":
        advice = ", or put a blank after the # of a comment"
    return (
        f"expected {' or '.join(map(str, counts))} columns, {columns}, separated by {between}; got {got}, "
        f"{shortened(line.strip(SPACE))}; correct or remove the line{advice}"
    )


def parse_number(word: str, kind: type = float) -> float:
    """A number in the digits 0 to 9, by `float` or `int`, which also take `1_000`, other scripts and blanks; or ValueError.

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
    except ValueError:  # whose message has the whole word
        pass
    raise ValueError(f"not a number: {shortened(word)}")
