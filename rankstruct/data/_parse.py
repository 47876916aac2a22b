"""Bindings of `kernels/svmlight.hpp` for NumPy arrays: parsing SVMlight lines, and copying spans of bytes."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_longlong, c_void_p

import numpy as np

from rankstruct.kernels.core import library

# Why parsing stopped before the end.
LABEL, FEATURE, VALUE, QID_EMPTY, QID_MISSING, QID_SURPRISE, QID_HASH, ID_ZERO, ID_ORDER, ID_LARGE = range(1, 11)

_ARRAYS = (
    *("labels", "indptr", "starts", "missing", "comment_spans", "docid_spans"),
    *("indices", "values"),
    *("offsets", "qid_spans", "list_lines"),
    "hard",
)


class _Arguments(ctypes.Structure):
    """`Lines` of svmlight.hpp, field by field."""

    _fields_ = [
        ("text", c_void_p),
        *((name, c_longlong) for name in ("size", "base", "limit")),
        *((name, c_void_p) for name in _ARRAYS),
        ("fill", c_float),
        *((name, c_longlong) for name in ("documents", "lists", "hards", "problem", "place")),
    ]


class _Room(ctypes.Structure):
    _fields_ = [("documents", c_longlong), ("entries", c_longlong)]


_read, _measure, _copy = (library[f"rankstruct_{name}"] for name in ("read_svmlight", "svmlight_room", "copy_ranges"))
_read.argtypes, _read.restype = [c_void_p], None
_measure.argtypes, _measure.restype = [c_void_p, c_longlong, c_void_p], None
_copy.argtypes, _copy.restype = [c_void_p, c_void_p, c_longlong, c_void_p], None


def parse_lines(
    text: np.ndarray, base: int, limit: int, fill: float
) -> tuple[dict[str, np.ndarray], tuple[int, int] | None]:
    """Parse all lines of `text` `[bytes]` uint8; `base` is the least feature id, `limit` the greatest one, below 2^31.

    Returns:
        The arrays up to the first problem, by name; and one of the codes above with the byte offset of the problem, or None.
        Spans are `[n, 2]`: bytes first to last - 1 of the text.

        - labels: `[documents]` float32;
        - indptr: `[documents + 1]`, the first entry of each document;
        - starts: `[documents]`, the byte offset of its line;
        - missing: `[documents]` int32, the number of NULL values;
        - comment_spans, docid_spans: `[documents, 2]`, without surrounding blanks;
        - indices: `[entries]` int32, feature indices from 0;
        - values: `[entries]` float32;
        - offsets: `[lists]`, the first document of each list; empty if lines have no qid;
        - qid_spans: `[lists, 2]`;
        - list_lines: `[lists]`, the number of lines before its first;
        - hard: `[tokens, 2]`, numbers left to the caller: the byte offset, and the entry, or -1 - document for a label.
    """
    room = _Room()
    _measure(text.ctypes.data, len(text), byref(room))
    n, entries = room.documents, room.entries
    # These are upper bounds; pages that are never written take no memory.
    arrays = {
        "labels": np.empty(n, np.float32),
        "indptr": np.empty(n + 1, np.int64),
        "starts": np.empty(n, np.int64),
        "missing": np.empty(n, np.int32),
        "comment_spans": np.empty((n, 2), np.int64),
        "docid_spans": np.empty((n, 2), np.int64),
        "indices": np.empty(entries, np.int32),
        "values": np.empty(entries, np.float32),
        "offsets": np.empty(n + 1, np.int64),
        "qid_spans": np.empty((n, 2), np.int64),
        "list_lines": np.empty(n, np.int64),
        "hard": np.empty((n + entries, 2), np.int64),
    }
    places = {name: array.ctypes.data for name, array in arrays.items()}
    lines = _Arguments(text=text.ctypes.data, size=len(text), base=base, limit=limit, fill=fill, **places)
    _read(byref(lines))
    documents, lists = lines.documents, lines.lists
    entries = int(arrays["indptr"][documents])
    ends = dict.fromkeys(("labels", "starts", "missing", "comment_spans", "docid_spans"), documents)
    ends |= dict.fromkeys(("offsets", "qid_spans", "list_lines"), lists)
    ends |= {"indptr": documents + 1, "indices": entries, "values": entries, "hard": lines.hards}
    problem = (lines.problem, lines.place) if lines.problem else None
    return {name: array[: ends[name]] for name, array in arrays.items()}, problem


def copy_spans(text: np.ndarray, spans: np.ndarray, out: np.ndarray) -> None:
    """Copy the bytes of `text` uint8 in `spans` `[n, 2]` int64, one span after another, to `out`, which must be large enough."""
    text, spans = np.ascontiguousarray(text), np.ascontiguousarray(spans)
    _copy(text.ctypes.data, spans.ctypes.data, len(spans), out.ctypes.data)
