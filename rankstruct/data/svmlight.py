"""Reading SVMlight and LETOR files.

A line is a document, `label qid:query id:value id:value ... # comment`; documents of a query are contiguous. Feature ids start
at 1 and increase; omitted features are 0. Blank lines and lines that start with `#` are ignored. `NULL` and `qid` are case
insensitive; `NULL` is a missing value. Without `qid:`, a side file has the sizes of the lists, in order. Fields are separated by
ASCII blanks and tabs; other white space is part of a name, but not allowed at the ends of a query name.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal, NoReturn

import numpy as np
import torch

from rankstruct.checks import check_choice, check_integers, check_numbers
from rankstruct.data import _parse
from rankstruct.data._parse import parse_lines
from rankstruct.data.assembly import Assembly, DocumentBlock, Stream
from rankstruct.data.cache import assemble, described
from rankstruct.data.dataset import RankingData, register_format
from rankstruct.data.errors import REAL, DataError
from rankstruct.data.names import Names
from rankstruct.data.text import Piece, check_file, split_blanks, whole_lines
from rankstruct.messages import Way, shortened
from rankstruct.progress import Progress

__all__ = ["read_svmlight"]

SUFFIXES = (".txt", ".svm", ".libsvm")

_FORMAT = 3  # increment when the same file would result in other arrays
_GROUP_SUFFIXES = (".query", ".group")
_WORD = re.compile(rb"[ \t\r]*([^ \t\r\n#]*)")
_LABEL = re.compile(rb"[ \t\r]*[^ \t\r\n#]*[ \t]*")
_QID_WITH_HASH = re.compile(rb"[^ \t\r\n]*")
_SPACE_OF_A_SLIP = re.compile(r"^\s|\s$|\s\d+:")  # in a query name, which has no ASCII blanks
_MAX_ID = 2**31 - 2
_ALIKE = "write the zeros on such lines too, or omit all zeros of the file"


@dataclass(frozen=True)
class Options:
    """The options that, with the content of the files, determine the arrays."""

    num_features: int | None = None
    labels: str = "grades"
    fill: float = 0.0
    sparse: bool | str = "auto"
    zero_based: bool = False
    omitted: str = "check"

    def __post_init__(self) -> None:
        check_integers(1, optional=True, num_features=self.num_features)
        check_choice("labels", self.labels, ("grades", "real"))
        check_choice("omitted", self.omitted, ("check", "zero"))
        check_choice("sparse", self.sparse, ("auto", True, False))
        most = float(np.finfo(np.float32).max)
        check_numbers(f">= {-most} and <= {most}", fill=self.fill)


@register_format(*SUFFIXES)
def read_svmlight(
    path: str | os.PathLike[str],
    *,
    num_features: int | None = None,
    group_file: str | os.PathLike[str] | None = None,
    labels: Literal["grades", "real"] = "grades",
    fill: float = 0.0,
    sparse: bool | Literal["auto"] = "auto",
    zero_based: bool = False,
    omitted: Literal["check", "zero"] = "check",
    cache: bool | str | os.PathLike[str] = True,
) -> RankingData:
    r"""Read an SVMlight or LETOR file, plain or compressed (gzip, bzip2, xz, Zstandard).

    The name of a document is the `docid = name` of its comment, or the comment itself if that is one word. Numbers are rounded
    to float64 and then to float32, as in Python.

    Args:
        path: the file.
        num_features: the number of features; the greatest id in the file if None.
        group_file: file with the sizes of the lists, for lines without `qid:`; if None, `<path>.query` or `<path>.group` if it
            exists. The lists are then named "1", "2", ...
        labels: `"grades"` for integers from 0, `"real"` for any finite number.
        fill: the value of missing features (`NULL`). They are counted in `missing` of the result, and a warning is logged.
        sparse: whether features are a sparse matrix; "auto" if less than a quarter of the values is in the file.
        zero_based: whether feature ids start at 0.
        omitted: `"check"` rejects a file with explicit zeros and the features 1..d on most lines but not on all, since such a
            file is damaged rather than sparse; `"zero"` reads omitted features as 0.
        cache: whether to cache the arrays, which are memory-mapped the next time, in the cache folder (`$RANKSTRUCT_CACHE`, or
            `rankstruct` in the user's cache folder); or another folder. The key depends on the content of the files and the
            options, so a changed file is parsed again. If the folder is not writable, nothing is cached.

    Raises:
        DataError: the file is missing, empty or malformed; the message has file and line, and how to fix it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "train.txt"
    ...     _ = path.write_text("2 qid:a 1:0.5 2:1 # docid = d7\n0 qid:a 1:0.25 2:NULL # docid = d9")
    ...     data = read_svmlight(path, fill=-1.0, cache=False)
    >>> data.features.tolist(), data.labels.tolist(), data.docids.tolist()
    ([[0.5, 1.0], [0.25, -1.0]], [2.0, 0.0], ['d7', 'd9'])
    """
    path = Path(path)
    options = Options(num_features, labels, float(fill), sparse, zero_based, omitted)
    lines = Lines(path, options, group_file)
    sizes = None if lines.sizes is None else lines.sizes.decode("latin-1")
    return assemble(path, lines.fill, cache, [_FORMAT, vars(options), lines.required, sizes])


class Lines:
    """The reader of one file: its arrays from pieces."""

    def __init__(
        self,
        path: Path,
        options: Options,
        group_file: str | os.PathLike[str] | None = None,
        *,
        progress: bool = False,
    ) -> None:
        self.path, self.options, self.progress = path, options, progress
        if check_file(path) == 0:
            raise DataError(f"{path}: expected documents, one per line, got an empty file")
        self.required = group_file is not None
        sides = (side for suffix in _GROUP_SUFFIXES if (side := Path(f"{path}{suffix}")).is_file())
        self.group = next(sides, None) if group_file is None else Path(group_file)
        self.sizes = None if self.group is None else b"".join(piece.text for piece in whole_lines(self.group))

    def fill(self, assembly: Assembly) -> dict[str, Stream]:
        """Add all documents, and return the resulting arrays."""
        first, shapes = None, _Completeness(self.path, self.options)
        for piece, block in self._parsed():
            if first is None:
                first = block
                self._check_source_of_lists(piece, block)
            elif (block.qids is None) != (first.qids is None):
                piece.refuse_qid(with_qid=block.qids is not None)
            shapes.add(piece, assembly.rows)
            assembly.add(block)
        if first is None:
            raise DataError(f"{self.path}: expected documents, one per line, got only blank lines and comments")
        if not assembly.entries:
            raise DataError(f"{self.path}: expected features (id:value) on the lines, got none in the file")
        shapes.check(assembly.rows)
        options = self.options
        lengths = self._lengths(assembly.rows) if first.qids is None else None
        arrays = assembly.finish(
            self.path, "line", lengths=lengths, num_features=options.num_features, sparse=options.sparse
        )
        return described(arrays, options.fill, {})

    def _parsed(self) -> Iterator[tuple[_Piece, DocumentBlock]]:
        """The pieces with documents in order, parsed in torch's number of threads."""
        threads = torch.get_num_threads()
        size = self.path.stat().st_size
        with (
            ThreadPoolExecutor(threads) as pool,
            Progress(
                total=size, unit="B", unit_scale=True, desc=self.path.name, disable=not self.progress, leave=False
            ) as bar,
        ):
            waiting: deque[tuple[_Piece, Future[DocumentBlock]]] = deque()
            for text in chain(whole_lines(self.path), [None] * (threads + 1)):  # None: to wait for the last ones
                if text is not None:
                    piece = _Piece(self.path, text, self.options)
                    waiting.append((piece, pool.submit(piece.parse)))
                if len(waiting) > (threads if text is not None else 0):
                    piece, future = waiting.popleft()
                    block = future.result()
                    bar.update(len(piece.text))
                    if len(block.labels):
                        yield piece, block

    def _check_source_of_lists(self, piece: _Piece, block: DocumentBlock) -> None:
        place = piece.at(piece.first)
        if block.qids is not None and self.required:
            raise DataError(
                f"{place}: expected lines without qid:, since a file of their sizes defines the lists",
                Way("group_file", None, "remove {}, or the qids", "remove the qids"),
            )
        if block.qids is None and self.sizes is None:
            raise DataError(
                f"{place}: expected qid:<query> after the label, got none; add it, or write the number of documents "
                f"of each list, one per line, to {self.path.name}{_GROUP_SUFFIXES[0]}",
                Way("group_file", None, "{} names another file"),
            )

    def _lengths(self, documents: int) -> np.ndarray:
        """The sizes of the lists from the side file, which must sum to the number of documents."""
        sizes = []
        for number, line in enumerate((self.sizes or b"").decode("utf-8", "backslashreplace").split("\n"), 1):
            for token in split_blanks(line):
                if not (token.isascii() and token.isdigit()) or len(token.lstrip("0")) > len(str(documents)):
                    raise DataError(
                        f"{self.group}:{number}: expected the number of documents of a list, got {shortened(token)}, and "
                        f"{self.path} has {documents} in total; correct it"
                    )
                sizes.append(int(token))
        if sum(sizes) != documents:  # Python integers, which do not overflow
            raise DataError(
                f"{self.group}: expected sizes that sum to the {documents} documents of {self.path}, got {sum(sizes)} in "
                f"{len(sizes)} lists; pass the side file of this file"
            )
        return np.array(sizes, np.int64)


@dataclass(frozen=True)
class _Shape:
    """Documents with the same number of features: how many, and row, line, number of features and last id of the first."""

    number: int
    row: int
    line: int
    features: int
    last: int


class _Completeness:
    """Check that a file with explicit zeros does not omit features, which only damaged files do."""

    def __init__(self, path: Path, options: Options) -> None:
        self.path, self.options, self.zeros = path, options, False
        self.known: dict[int, _Shape] = {}

    def add(self, piece: _Piece, before: int) -> None:
        """Add the next lines, which follow so many."""
        self.zeros = self.zeros or piece.zeros
        for count, (number, row, place, features, last) in piece.shapes.items():
            if (known := self.known.get(count)) is None:
                known = _Shape(0, before + row, piece.line(place), features, last)
            self.known[count] = replace(known, number=known.number + number)

    def check(self, rows: int) -> None:
        """Raise DataError for the first line that differs from most of all lines."""
        usual = max(self.known, key=lambda count: (count > 0, self.known[count].number, -count), default=0)
        others = [shape for count, shape in self.known.items() if count != usual]
        odd = sum(shape.number for shape in others)
        if self.options.omitted == "zero" or not (usual and self.zeros and 0 < 2 * odd < rows):
            return
        first, base = min(others, key=lambda shape: shape.row), int(not self.options.zero_based)
        raise DataError(
            f"{self.path}:{first.line}: expected features {base} to {usual + base - 1}, as on most lines of this file, which "
            f"has explicit zeros; got {first.features} features"
            + (f", the last with id {first.last + base - 1}" if first.features else ""),
            Way("omitted", "zero", "{} reads omitted features as 0", _ALIKE),
        )


class _Piece:
    """Lines of a file: the compiled parser, the tokens that it leaves open, and errors.

    Attributes:
        first: the byte offset of the first document.
        zeros: whether values are 0.
        shapes: how many documents, and row, byte offset, number of features and last id of the first, by the number of features
            of a complete line, whose last id equals it since ids increase; 0 for other lines.
    """

    first = 0
    zeros = False

    def __init__(self, path: Path, piece: Piece, options: Options) -> None:
        self.path, self.options, self.first_line = path, options, piece.line
        self.text = np.frombuffer(piece.text, np.uint8)
        self.base = 0 if options.zero_based else 1
        self.shapes: dict[int, tuple[int, int, int, int, int]] = {}

    def parse(self) -> DocumentBlock:
        """The documents."""
        options = self.options
        limit = _MAX_ID if options.num_features is None else min(_MAX_ID, options.num_features + self.base - 1)
        parsed, problem = parse_lines(self.text, self.base, limit, options.fill)
        if problem is not None:
            self._fail(*problem)
        labels, values, indices, starts = (parsed[name] for name in ("labels", "values", "indices", "starts"))
        for start, target in parsed["hard"].tolist():
            with np.errstate(over="ignore"):
                value = np.float32(float(self._token(start)))
            if not np.isfinite(value):
                before = f"{indices[target] + self.base}:" if target >= 0 else ""
                self._fail(_parse.VALUE if target >= 0 else _parse.LABEL, start - len(before))
            (values if target >= 0 else labels)[target if target >= 0 else -1 - target] = value
        if options.labels == "grades" and len(wrong := np.flatnonzero((labels < 0) | (labels != np.floor(labels)))):
            place = int(starts[wrong[0]])
            got = shortened(self._token(place))
            raise DataError(f"{self.at(place)}: expected a grade (an integer from 0) as label, got {got}", REAL)
        counts = np.diff(parsed["indptr"]).astype(np.int32)
        ends = np.maximum(parsed["indptr"][1:] - 1, 0)
        last = np.where(counts > 0, indices[ends] + 1, 0) if len(indices) else np.zeros_like(counts)
        if not len(labels):
            return DocumentBlock(labels, values, indices, counts, 0, parsed["offsets"], None, parsed["list_lines"])
        self.first = int(starts[0])
        self.zeros = bool((values == 0).any())
        kinds, rows, numbers = np.unique(np.where(last == counts, counts, 0), return_index=True, return_counts=True)
        for kind, row, number in zip(kinds.tolist(), rows.tolist(), numbers.tolist(), strict=True):
            self.shapes[kind] = (number, row, int(starts[row]), int(counts[row]), int(last[row]))
        complete = len(kinds) == 1 and kinds[0] > 0
        lists, docids, comments = (parsed[name] for name in ("offsets", "docid_spans", "comment_spans"))
        return DocumentBlock(
            labels=labels,
            values=values,
            indices=None if complete else indices,
            counts=None if complete else counts,
            width=int(counts[0]),
            starts=lists,
            qids=self._names(parsed["qid_spans"], starts[lists], "qid") if len(lists) else None,
            places=parsed["list_lines"] + self.first_line,
            docids=self._names(docids, starts, "docid") if (docids[:, 0] < docids[:, 1]).any() else None,
            comments=Names.at_spans(self.text, comments, bytes) if (comments[:, 0] < comments[:, 1]).any() else None,
            missing=parsed["missing"] if parsed["missing"].any() else None,
        )

    def _names(self, spans: np.ndarray, places: np.ndarray, what: str) -> Names:
        """Names of documents or lists; `places` are the byte offsets of their lines, for messages."""
        names = Names.at_spans(self.text, spans)
        if what == "qid" and ((names.text >= 0x80) | (names.text < 0x20)).any():
            self._check_spaces(spans, places)
        try:
            names.text.tobytes().decode()
            split = False
        except UnicodeDecodeError:
            split = True
        starts = names.offsets[:-1][np.diff(names.offsets) > 0]
        if not split and not ((names.text[starts] & 0xC0) == 0x80).any():  # no character continues in the next name
            return names
        for (first, last), place in zip(spans.tolist(), places.tolist(), strict=True):
            name = self.text[first:last].tobytes()
            try:
                name.decode()
            except UnicodeDecodeError:
                raise DataError(
                    f"{self.at(place)}: expected a {what} in UTF-8, got {shortened(name)}; save the file as UTF-8"
                ) from None
        return names

    def _check_spaces(self, spans: np.ndarray, places: np.ndarray) -> None:
        """Raise DataError if non-ASCII white space was probably meant to end a query name."""
        for (first, last), place in zip(spans.tolist(), places.tolist(), strict=True):
            name = self.text[first:last].tobytes().decode("utf-8", "replace")
            if found := _SPACE_OF_A_SLIP.search(name):
                space = next(letter for letter in found[0] if letter.isspace())
                raise DataError(
                    f"{self.at(place)}: expected blanks or tabs around the qid, got U+{ord(space):04X} in {shortened(name)}, "
                    "which is not a separator; replace it by a blank, or remove it"
                )

    def refuse_qid(self, *, with_qid: bool) -> NoReturn:
        """Raise DataError for the first line, which has a qid while other pieces have none, or vice versa."""
        match = _LABEL.match(self.text.data, self.first)
        assert match is not None  # it matches nothing too
        self._fail(_parse.QID_SURPRISE if with_qid else _parse.QID_MISSING, match.end())

    def line(self, place: int) -> int:
        """The line number of a byte."""
        return self.first_line + self.text[:place].tobytes().count(b"\n")

    def at(self, place: int) -> str:
        """File and line of a byte, for messages."""
        return f"{self.path}:{self.line(place)}"

    def _token(self, place: int, pattern: re.Pattern[bytes] = _WORD) -> str:
        """The word at or after a byte, as printable text; "" at the end of a line."""
        word = pattern.match(self.text.data, place)
        return word[word.lastindex or 0].decode("utf-8", "backslashreplace") if word else ""

    def _fail(self, problem: int, place: int) -> NoReturn:
        token = self._token(place, _QID_WITH_HASH if problem == _parse.QID_HASH else _WORD)
        shown = shortened(token, 40) if token else "nothing"
        identifier, _, value = token.partition(":")
        limit = self.options.num_features
        rule = {
            _parse.LABEL: f"a finite number (of float32's range) as label, got {shown}; "
            + (
                "add one in front, such as 0 if unknown"
                if identifier.lower() == "qid"
                else "correct or remove the line"
            ),
            _parse.FEATURE: f"a feature as id:value, got {shown}; correct the line, or put comments after #",
            _parse.VALUE: f"a finite number (of float32's range) as value of feature {identifier[:20]}, got "
            f"{shortened(value)}; write NULL if it is missing",
            _parse.QID_EMPTY: "a name after qid:, got nothing; name the query",
            _parse.QID_HASH: f"a query name without #, which starts a comment, got {shown}; put a blank before the comment, or "
            "rename the query",
            _parse.QID_MISSING: f"qid:<query> after the label, as on the lines before, got {shown}; add it, or remove "
            f"it everywhere and write the number of documents of each list to {self.path.name}{_GROUP_SUFFIXES[0]}",
            _parse.QID_SURPRISE: f"no qid:, as on the lines before, got {shown}; add a qid to every line, or remove it",
            _parse.ID_ZERO: f"feature ids from 1, got {shown}",
            _parse.ID_ORDER: f"increasing feature ids on the line, got {shown} after an equal or greater id; sort "
            "the features of the line and remove duplicates",
            _parse.ID_LARGE: f"a feature as id:value with ids up to {_MAX_ID}, got {shown}; renumber the features"
            if limit is None or limit > _MAX_ID
            else f"feature ids up to {limit + self.base - 1}, got {shown}",
        }[problem]
        ways = []
        if problem == _parse.ID_ZERO:
            ways = [Way("zero_based", True, "{} takes ids from 0", "number them from 1")]
        elif problem == _parse.ID_LARGE and limit is not None and limit <= _MAX_ID:
            ways = [Way("num_features", None, "increase {}", "remove the others")]
        raise DataError(f"{self.at(place)}: expected {rule}", *ways)
