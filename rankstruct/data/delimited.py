"""The dialect of a CSV file: encoding, separator and column names, inferred from its first lines."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rankstruct.columns import USUAL
from rankstruct.data.errors import DataError, shortened
from rankstruct.data.text import read_blocks, text_lines, unpacked_name

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_MARKS = (  # UTF-32 first, since UTF-16's are prefixes
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_HEAD, _LONGEST = 2**16, 2**24  # bytes inspected, and the longest first line


class Header(NamedTuple):
    """The dialect of a CSV file.

    Attributes:
        names: the cells of the first line, stripped; empty if it is not CSV.
        separator: the separator of cells.
        encoding: Python's name of the encoding, by the byte order mark; UTF-8 without one.
        rows: the first rows after it.
        quotes: whether cells may be in quotation marks, as in all files but RecBole's `.inter`.
    """

    names: list[str]
    separator: str
    encoding: str
    rows: list[list[str]]
    quotes: bool = True

    @property
    def between(self) -> str:
        """The name of the separator, such as "comma"."""
        return SEPARATORS.get(self.separator, repr(self.separator))

    def first_cells(self, name: str) -> set[str]:
        """The cells of a column in the first rows."""
        at = self.names.index(name)
        return {row[at] for row in self.rows if at < len(row)}


def read_header(path: str | os.PathLike[str], wanted: Sequence[str] = ("qid",), separator: str | None = None) -> Header:
    """Infer the dialect of a CSV file, plain or compressed, from its first lines.

    The separator (comma, semicolon, tab or bar), if not given, is one with which a `wanted` column exists, otherwise the one with
    the most columns.

    Raises:
        DataError: the file cannot be read, or its encoding is not that of its byte order mark.
    """
    head, encoding = _head(path)
    recbole = Path(unpacked_name(str(path))).suffix.casefold() == ".inter"
    quoting: Literal[0, 3] = csv.QUOTE_NONE if recbole else csv.QUOTE_MINIMAL
    separators = [separator] if separator else SEPARATORS  # ties go to the first
    found = {each: next(_rows(head, each, quoting), []) for each in separators}
    chosen = max(found, key=lambda each: (any(_has(found[each], name) for name in wanted), len(found[each])))
    names = found[chosen]
    if recbole:  # with types: user_id:token
        names = [name.partition(":")[0] for name in names]
    return Header(names, chosen, encoding, [*_rows(head, chosen, quoting)][1:], not recbole)


def _has(names: Sequence[str], wanted: str) -> bool:
    return any(name.casefold() in USUAL.get(wanted, (wanted.casefold(),)) for name in names)


def check_columns(path: object, names: Sequence[str]) -> None:
    """Raise DataError for unnamed or duplicate columns, and for the index of a pandas data frame."""
    for at, name in enumerate(names):
        if not name or name in names[:at] or re.fullmatch(r"__index_level_\d+__|Unnamed: 0", name):
            raise DataError(
                f"{path}: expected columns with unique names, got {name!r} for column {at + 1}; the row number "
                "(the index of a pandas data frame) is not a feature: write the table without it"
            )


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


def _head(path: str | os.PathLike[str]) -> tuple[str, str]:
    """The first complete lines of a file, and the encoding."""
    pieces: list[str] = []
    encoding, size = "utf-8", 0
    decoder: codecs.IncrementalDecoder | None = None
    for block in read_blocks(path, _HEAD):
        if decoder is None:
            encoding = next((name for mark, name in _MARKS if block.startswith(mark)), encoding)
            if encoding == "utf-8" and b"\0" in block[:1000]:
                raise DataError(
                    f"{path}: expected text in UTF-8, got null characters, as in UTF-16 without a byte order mark; save the file "
                    "as UTF-8"
                )
            decoder = codecs.getincrementaldecoder(encoding)("replace")
        pieces.append(decoder.decode(block))
        size += len(block)
        if re.search("[\r\n]", pieces[-1]) or size > _LONGEST:
            break
    text = "".join(pieces)
    last = max(text.rfind("\n"), text.rfind("\r"))
    return text if last < 0 or size < _HEAD else text[: last + 1], encoding


def _rows(text: str, separator: str, quoting: Literal[0, 3]) -> Iterator[list[str]]:
    with suppress(csv.Error):  # the reader of the file reports the error
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, quoting=quoting):
            yield [cell.strip() for cell in row]


def named(names: Iterable[str], most: int = 200) -> str:
    """Column names for a message."""
    return shortened(", ".join(names), most)
