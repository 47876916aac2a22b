"""Reading SVMlight and LETOR files.

A line is a document, `label qid:query id:value id:value ... # comment`; documents of a query are neighbours. Feature
ids start at 1 and rise; what is left out is 0. Blank lines and lines that start with `#` say nothing. `NULL`, in any
case, is a missing value. Without `qid:` on the lines, a side file gives the size of each list, one after another.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

import numpy as np
import scipy.sparse as sp

from rankstruct.data import _parse
from rankstruct.data._parse import parse_lines
from rankstruct.data.cache import cache_folder, load_arrays, store_arrays
from rankstruct.data.dataset import RankingData
from rankstruct.data.errors import DataError, check_least

__all__ = ["read_svmlight"]

_log = logging.getLogger(__name__)
_FORMAT = 1  # raise it when the same file would give other arrays
_GROUP_SUFFIXES = (".query", ".group")
_DOCID = re.compile(rb"(?:^|\s)docid\s*=\s*(\S+)")
_WORD = re.compile(rb"[ \t\r]*([^\s#]*)")
_SPARSE_BELOW = 0.25
_MAX_ID = 2**31 - 2


@dataclass(frozen=True)
class _Options:
    """What decides, with the content of the files, about the arrays."""

    num_features: int | None
    labels: str
    fill: float
    sparse: bool | str
    zero_based: bool
    omitted: str

    def __post_init__(self) -> None:
        check_least(1, num_features=self.num_features)
        if self.labels not in ("grades", "real"):
            raise ValueError(f"labels must be 'grades' or 'real', got {self.labels!r}")
        if self.omitted not in ("check", "zero"):
            raise ValueError(f"omitted must be 'check' or 'zero', got {self.omitted!r}")
        if self.sparse not in ("auto", True, False):
            raise ValueError(f"sparse must be 'auto', True or False, got {self.sparse!r}")
        if not np.isfinite(np.float32(self.fill)):
            raise ValueError(f"fill must be a finite number, got {self.fill}")


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
    r"""Read a file of SVMlight or LETOR lines, plain or gzip.

    A document's name is the `docid = name` of its comment, or the comment itself where that is one word. Numbers are
    rounded to the nearest float64 and then to float32, as everywhere in Python.

    Args:
        path: the file.
        num_features: how many features there are; the greatest id in the file if None.
        group_file: sizes of the lists, for lines without `qid:`; if None, `<path>.query` or `<path>.group` where it exists. The
            lists are then named "1", "2" and so on.
        labels: `"grades"` takes integers from 0, `"real"` any finite number.
        fill: what a missing value (`NULL`) becomes. They are counted in `missing` of the result, and a warning is logged.
        sparse: how features are kept; "auto" takes the sparse form where less than a quarter of the values is in the file.
        zero_based: feature ids start at 0.
        omitted: `"check"` refuses a file that writes its zeros, has the same features 1..d on most lines and others on
            some, since that is a damaged file rather than a sparse one; `"zero"` takes what a line leaves out as 0.
        cache: keep the arrays, mapped at the next reading, in the cache folder (`$RANKSTRUCT_CACHE`, or `rankstruct` in
            the user's cache folder), in a folder given here, or (False) not at all. The key is the content of the files
            and the options, so a changed file is read anew. Where nothing can be written, nothing is kept.

    Raises:
        DataError: the file is absent, empty or breaks the format; the message has file and line, and the way out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "train.txt"
    ...     _ = path.write_text("2 qid:a 1:0.5 2:1 # docid = d7\n0 qid:a 1:0.25 2:NULL # docid = d9")
    ...     data = read_svmlight(path, fill=-1.0, cache=False)
    >>> data.features.tolist(), data.labels.tolist(), data.docids.tolist()
    ([[0.5, 1.0], [0.25, -1.0]], [2.0, 0.0], ['d7', 'd9'])
    """
    path = Path(path)
    options = _Options(num_features, labels, float(fill), sparse, zero_based, omitted)
    content = _content(path)
    group = _group_path(path, group_file)
    sizes = None if group is None else bytes(_content(group))

    folder = cache_folder(cache)
    kept = None
    if folder is not None:
        kept = folder / f"{path.stem}-{_key(content, sizes, group_file is not None, options)}.rankdata"
        if (arrays := load_arrays(kept)) is not None:
            return _reported(_from_arrays(arrays), path, options)
    data = _Reader(path, _unpacked(content, path), options).read(group, sizes, required=group_file is not None)
    if kept is not None:
        store_arrays(kept, _to_arrays(data))
    return _reported(data, path, options)


def _content(path: Path) -> np.ndarray:
    """The bytes of a file, mapped."""
    try:
        if path.stat().st_size == 0:
            raise DataError(f"{path}: expected documents, one a line, got an empty file")
        return np.memmap(path, dtype=np.uint8, mode="r")
    except OSError as error:
        raise DataError(f"{path}: expected a file that can be read, got: {error.strerror or error}") from error


def _unpacked(content: np.ndarray, path: Path) -> np.ndarray:
    if content[:2].tobytes() != b"\x1f\x8b":
        return np.asarray(content)
    try:
        return np.frombuffer(gzip.decompress(content.data), dtype=np.uint8)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: expected a whole gzip file, as its first bytes say, got: {error}") from error


def _group_path(path: Path, group_file: str | os.PathLike[str] | None) -> Path | None:
    if group_file is not None:
        return Path(group_file)
    return next((side for suffix in _GROUP_SUFFIXES if (side := Path(f"{path}{suffix}")).is_file()), None)


def _key(content: np.ndarray, sizes: bytes | None, required: bool, options: _Options) -> str:
    # SHA-256: the fastest hash of hashlib where the processor knows it, and no two files will ever share one.
    digest = hashlib.sha256(content.data)
    digest.update(json.dumps([_FORMAT, len(content), required, sizes is None, vars(options)]).encode())
    digest.update(sizes or b"")
    return digest.hexdigest()[:32]


def _reported(data: RankingData, path: Path, options: _Options) -> RankingData:
    if data.missing is not None:
        _log.warning("%s: %d missing values (NULL) were read as %g (fill=)", path, data.missing.sum(), options.fill)
    return data


def _to_arrays(data: RankingData) -> dict[str, np.ndarray]:
    arrays = {name: value for name, value in vars(data).items() if value is not None}
    if not data.is_sparse:
        return arrays
    matrix = arrays.pop("features")
    shape = np.array(matrix.shape)
    return arrays | {"values": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": shape}


def _from_arrays(arrays: dict[str, np.ndarray]) -> RankingData:
    if "features" not in arrays:
        matrix = sp.csr_array(tuple(arrays.pop("shape").tolist()), dtype=np.float32)
        # Given to the constructor, arrays that are a small part of a mapped file would be copied.
        matrix.data, matrix.indices, matrix.indptr = (arrays.pop(name) for name in ("values", "indices", "indptr"))
        arrays["features"] = matrix
    return RankingData(**arrays)


class _Reader:
    """One reading of one file: the compiled loop, what it left open, the checks that need all lines, and the errors."""

    def __init__(self, path: Path, text: np.ndarray, options: _Options) -> None:
        self.path, self.text, self.options = path, text, options
        self.base = 0 if options.zero_based else 1

    def read(self, group: Path | None, sizes: bytes | None, *, required: bool) -> RankingData:
        """The data; `sizes` is the content of the side file `group`, `required` whether the caller named it."""
        self._parse()
        offsets, qids = self._lists(group, sizes, required)
        labels = self._labels()
        features = self._features()
        comments, docids = self._comments()
        missing = self.missing if self.missing.any() else None
        return RankingData(features, labels, offsets, qids, docids, comments, missing)

    def _parse(self) -> None:
        lines = _count(self.text, b"\n") + 1
        colons = _count(self.text, b":")
        limit = _MAX_ID if self.options.num_features is None else self.options.num_features + self.base - 1
        # The sizes are upper bounds; memory that is never written is never claimed from the system.
        labels = np.empty(lines, np.float32)
        indptr, offsets = np.empty(lines + 1, np.int64), np.empty(lines + 1, np.int64)
        indices, values = np.empty(colons, np.int32), np.empty(colons, np.float32)
        starts, missing = np.empty(lines, np.int64), np.empty(lines, np.int32)
        qid_spans, comment_spans = np.empty((lines, 2), np.int64), np.empty((lines, 2), np.int64)
        hard = np.empty((colons + lines, 2), np.int64)
        problem, place, documents, lists, hards = parse_lines(
            self.text, self.base, limit, np.float32(self.options.fill), labels, indptr, indices, values, starts,
            missing, offsets, qid_spans, comment_spans, hard,
        )  # fmt: skip
        if problem:
            self._fail(problem, place)
        if not documents:
            raise DataError(f"{self.path}: expected documents, one a line, got only blank lines and comments")
        entries = int(indptr[documents])
        self.labels, self.starts, self.missing = labels[:documents], starts[:documents], missing[:documents]
        self.indptr, self.indices, self.values = indptr[: documents + 1], indices[:entries], values[:entries]
        self.offsets, self.qid_spans = offsets[: lists + 1], qid_spans[:lists]
        self.comment_spans = comment_spans[:documents]
        for start, target in hard[:hards].tolist():
            self._resolve(start, target)

    def _resolve(self, start: int, target: int) -> None:
        """A token that the compiled loop could not read with certainty."""
        with np.errstate(over="ignore"):
            value = np.float32(float(self._token(start)))
        if not np.isfinite(value):
            if target < 0:
                self._fail(_parse.LABEL, start)
            self._fail(_parse.VALUE, start - len(f"{self.indices[target] + self.base}:"))
        if target >= 0:
            self.values[target] = value
        else:
            self.labels[-1 - target] = value

    def _lists(self, group: Path | None, sizes: bytes | None, required: bool) -> tuple[np.ndarray, np.ndarray]:
        documents = len(self.labels)
        if len(self.qid_spans):
            if required:
                raise DataError(
                    f"{self._at(int(self.starts[0]))}: expected lines without qid:, since group_file= gives the lists; "
                    "leave group_file out, or remove the qids"
                )
            spans = self.qid_spans.tolist()
            names = [self._decoded(self.text[first:last].tobytes(), first, "qid") for first, last in spans]
            qids = np.array(names, np.str_)
            _, first, at = np.unique(qids, return_index=True, return_inverse=True)
            again = np.flatnonzero(first[at] != np.arange(len(qids)))
            if len(again):
                place = int(self.starts[self.offsets[again[0]]])
                before = int(self.starts[self.offsets[first[at[again[0]]]]])
                raise DataError(
                    f"{self._at(place)}: expected the documents of a query to be neighbours, got qid:{qids[again[0]]} "
                    f"again, which began on line {self._line(before)}; sort the file by qid"
                )
            return self.offsets, qids
        if group is None or sizes is None:
            raise DataError(
                f"{self._at(int(self.starts[0]))}: expected qid:<query> after the label, got none; add it, or pass "
                "group_file= with the number of documents of each list "
                f"({self.path.name}{_GROUP_SUFFIXES[0]} is found by itself)"
            )
        counts = _group_sizes(group, sizes)
        if counts.sum() != documents:
            raise DataError(
                f"{group}: expected sizes that sum to the {documents} documents of {self.path}, got {counts.sum()} in "
                f"{len(counts)} lists; pass the side file of this file"
            )
        return np.concatenate([[0], np.cumsum(counts)]), np.arange(1, len(counts) + 1).astype(np.str_)

    def _labels(self) -> np.ndarray:
        if self.options.labels == "grades":
            wrong = np.flatnonzero((self.labels < 0) | (self.labels != np.floor(self.labels)))
            if len(wrong):
                place = int(self.starts[wrong[0]])
                raise DataError(
                    f"{self._at(place)}: expected a grade (an integer from 0) as label, got {self._token(place)!r}; "
                    "labels='real' takes any number"
                )
        return self.labels

    def _features(self) -> np.ndarray | sp.csr_array:
        if not len(self.indices):
            raise DataError(f"{self.path}: expected features (id:value) on the lines, got none in the whole file")
        seen = int(self.indices.max()) + 1
        width = self.options.num_features or seen
        counts = np.diff(self.indptr)
        # Ids rise, so a line whose last id equals its number of values has all features up to there.
        last = np.where(counts > 0, self.indices[np.maximum(self.indptr[1:] - 1, 0)] + 1, 0)
        complete = (last == counts) & (counts > 0)
        usual = int(np.bincount(counts[complete]).argmax()) if complete.any() else 0
        others = np.flatnonzero(~(complete & (counts == usual)))
        if self.options.omitted == "check" and 0 < 2 * len(others) < len(counts) and (self.values == 0).any():
            at = int(others[0])
            raise DataError(
                f"{self._at(int(self.starts[at]))}: expected features {self.base} to {usual + self.base - 1}, as on "
                f"most lines of this file, which writes its zeros; got {counts[at]} features"
                + (f", the last with id {last[at] + self.base - 1}" if counts[at] else "")
                + "; omitted='zero' takes what a line leaves out as 0"
            )
        rows = len(self.labels)
        sparse = self.options.sparse
        if sparse is True or (sparse == "auto" and len(self.values) < _SPARSE_BELOW * rows * width):
            # SciPy copies unless both index arrays have one type
            kind = np.int32 if len(self.values) < 2**31 else np.int64
            matrix = (self.values, self.indices.astype(kind), self.indptr.astype(kind))
            return sp.csr_array(matrix, shape=(rows, width))
        if width == usual and not len(others):
            return self.values.reshape(rows, width)
        features = np.zeros((rows, width), np.float32)
        features[np.repeat(np.arange(rows), counts), self.indices] = self.values
        return features

    def _comments(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        if (self.comment_spans[:, 0] == self.comment_spans[:, 1]).all():
            return None, None
        comments = [self.text[first:last].tobytes().strip() for first, last in self.comment_spans.tolist()]
        docids = []
        for start, comment in zip(self.starts.tolist(), comments, strict=True):
            match = _DOCID.search(comment)
            name = match[1] if match else comment if len(comment.split()) == 1 else b""
            docids.append(self._decoded(name, start, "docid"))
        return np.array(comments, np.bytes_), np.array(docids, np.str_) if any(docids) else None

    def _decoded(self, name: bytes, place: int, what: str) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError:
            where = self._at(place)
            raise DataError(f"{where}: expected a {what} in UTF-8, got {name!r}; save the file as UTF-8") from None

    def _line(self, place: int) -> int:
        return _count(self.text[:place], b"\n") + 1

    def _at(self, place: int) -> str:
        return f"{self.path}:{self._line(place)}"

    def _token(self, place: int) -> str:
        """The word at or after a byte, printable; "" at the end of a line."""
        word = _WORD.match(self.text.data, place)
        return word[1].decode("utf-8", "backslashreplace") if word else ""

    def _fail(self, problem: int, place: int) -> NoReturn:
        token = self._token(place)
        shown = repr(token if len(token) <= 40 else token[:40] + "...") if token else "nothing"
        identifier, _, value = token.partition(":")
        limit = self.options.num_features
        rule = {
            _parse.LABEL: f"a finite number (of float32's range) as label, got {shown}; correct or remove the line",
            _parse.FEATURE: f"a feature as id:value, got {shown}; correct the line, or put remarks behind #",
            _parse.VALUE: f"a finite number (of float32's range) as value of feature {identifier}, got {value!r}; "
            "write NULL where it is missing",
            _parse.QID_EMPTY: "a name after qid:, got nothing; name the query",
            _parse.QID_MISSING: f"qid:<query> after the label, as on the lines before, got {shown}; add it, or remove "
            "it everywhere and pass group_file=",
            _parse.QID_SURPRISE: f"no qid:, as on the lines before, got {shown}; give every line its qid, or none",
            _parse.ID_ZERO: f"feature ids from 1, got {shown}; zero_based=True takes ids from 0",
            _parse.ID_ORDER: f"feature ids that rise along the line, got {shown} after an equal or greater id; sort "
            "the features of the line and remove doubles",
            _parse.ID_LARGE: f"feature ids up to {_MAX_ID if limit is None else limit + self.base - 1}, got {shown}; "
            + ("renumber the features" if limit is None else "pass a greater num_features="),
        }[problem]
        raise DataError(f"{self._at(place)}: expected {rule}")


def _count(text: np.ndarray, byte: bytes) -> int:
    """How often a byte occurs, in pieces, so that the comparison of a large file needs little memory."""
    step = 1 << 22
    return sum(int(np.count_nonzero(text[i : i + step] == byte[0])) for i in range(0, len(text), step))


def _group_sizes(path: Path, content: bytes) -> np.ndarray:
    sizes = []
    for number, line in enumerate(content.decode("utf-8", "backslashreplace").splitlines(), 1):
        for token in line.split():
            if not (token.isascii() and token.isdigit()):
                raise DataError(
                    f"{path}:{number}: expected the number of documents of a list, got {token!r}; correct it"
                )
            sizes.append(int(token))
    return np.array(sizes, np.int64)
