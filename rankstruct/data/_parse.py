"""The compiled loop that reads SVMlight lines from bytes.

One pass, no allocation: the caller gives arrays that are surely large enough. A token that the loop cannot read with
certainty (more digits than an integer holds and a value on the edge between two float32 numbers, an extreme exponent)
is left to the caller; a line that breaks the format ends the loop with a problem, one of the numbers below, and its place.

Numbers. A token is w * 10^k with w of at most 18 digits. If w <= 2^53 and |k| <= 22, both w and 10^|k| are doubles, so that one
rounding gives the nearest double (Clinger, "How to Read Floating Point Numbers Accurately", PLDI 1990). Else the product is
wrong by less than 2^-51 of itself; it is taken only where everything within 2^-50 has the same nearest float32.
"""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.compilation import compile_kernel, compile_part

# Why the loop ended, where it was not at the end. Plain integers: numba compiles those, not enumerations, into constants.
LABEL, FEATURE, VALUE, QID_EMPTY, QID_MISSING, QID_SURPRISE, ID_ZERO, ID_ORDER, ID_LARGE = range(1, 10)

_TAB, _NEWLINE, _RETURN, _SPACE, _HASH, _COLON, _ZERO, _NINE = 9, 10, 13, 32, 35, 58, 48, 57
_EQUALS = 61
_NULL = np.frombuffer(b"null", np.uint8)
_DOCID = np.frombuffer(b"docid", np.uint8)
_BAD, _GOOD, _HARD = 0, 1, 2
_MAX_DIGITS = 18
_MAX_POWER = 60
_POWERS = np.array([float(f"1e{k}") for k in range(_MAX_POWER + 1)])
_SLACK = 2.0**-50


@compile_kernel
def _number(text, i):
    """Read a number at `i`: (bad, good or hard; value; the place after it)."""
    end = len(text)
    negative = False
    if i < end and (text[i] == 45 or text[i] == 43):
        negative = text[i] == 45
        i += 1
    w = power = kept = np.int64(0)
    seen = point = False
    while i < end:
        c = np.int64(text[i])
        if _ZERO <= c <= _NINE:
            seen = True
            if kept < _MAX_DIGITS:
                w = w * 10 + (c - _ZERO)
                kept += w > 0
                power -= point
            else:
                power += not point
        elif c == 46 and not point:
            point = True
        else:
            break
        i += 1
    if not seen:
        return _BAD, 0.0, i
    if i < end and (text[i] == 101 or text[i] == 69):
        i += 1
        minus = False
        if i < end and (text[i] == 45 or text[i] == 43):
            minus = text[i] == 45
            i += 1
        exponent, seen = np.int64(0), False
        while i < end and _ZERO <= text[i] <= _NINE:
            seen = True
            if exponent < _MAX_POWER**3:  # more would overflow, and is hard anyway
                exponent = exponent * 10 + (np.int64(text[i]) - _ZERO)
            i += 1
        if not seen:
            return _BAD, 0.0, i
        power += -exponent if minus else exponent
    if w == 0:
        return _GOOD, -0.0 if negative else 0.0, i
    if abs(power) > _MAX_POWER:
        return _HARD, 0.0, i
    value = float(w) * _POWERS[power] if power >= 0 else float(w) / _POWERS[-power]
    exact = w <= 2**53 and abs(power) <= 22  # digits were dropped only where w >= 10^17
    if value > 3.4e38 or (not exact and np.float32(value * (1 - _SLACK)) != np.float32(value * (1 + _SLACK))):
        return _HARD, 0.0, i
    return _GOOD, -value if negative else value, i


@compile_kernel
def _ends(text, i):
    """Whether a token may end before `i`."""
    return i >= len(text) or text[i] in (_SPACE, _NEWLINE, _TAB, _RETURN, _HASH)


@compile_kernel
def _is_null(text, i):
    """Whether the token NULL, in any case, stands at `i`."""
    if i + 4 > len(text):
        return False
    for k in range(4):
        if text[i + k] | 32 != _NULL[k]:  # | 32 makes letters small
            return False
    return _ends(text, i + 4)


@compile_part
def _blank(c):
    """Whether a byte is white space, as for Python's `bytes`."""
    return c == _SPACE or _TAB <= c <= _RETURN


@compile_part
def _find_docid(text, first, last):
    """The word behind the first `docid =` of a comment without blanks at its ends, or the comment if it is one word.

    As a span, empty where there is none; linear in the length of the comment.
    """
    for i in range(first, last - 6):
        if i > first and not _blank(text[i - 1]):
            continue
        k = 0
        while k < 5 and text[i + k] == _DOCID[k]:
            k += 1
        if k < 5:
            continue
        at = i + 5
        while at < last and _blank(text[at]):
            at += 1
        if at >= last or text[at] != _EQUALS:
            continue
        at += 1
        while at < last and _blank(text[at]):
            at += 1
        begin = at
        while at < last and not _blank(text[at]):
            at += 1
        if at > begin:
            return begin, at
    for i in range(first, last):
        if _blank(text[i]):
            return first, first
    return first, last


@compile_kernel
def copy_spans(text, spans, out):
    """The bytes of `text` in `spans` `[n, 2]`, one span after another, to `out`, which has room for them."""
    at = 0
    for n in range(len(spans)):
        for i in range(spans[n, 0], spans[n, 1]):
            out[at] = text[i]
            at += 1


@compile_kernel
def parse_lines(
    text, base, limit, fill, labels, indptr, indices, values, starts, missing, offsets, qid_spans, list_lines,
    comment_spans, docid_spans, hard,
):  # fmt: skip
    """Read all lines of `text` `[bytes]` uint8.

    `base` is the least feature id, `limit` the greatest one. Filled in: per document `labels`, `indptr` (one more),
    `starts` (the byte its line starts at), `missing`, `comment_spans` without blanks at the ends, and `docid_spans`;
    per value `indices` (from 0) and `values`; per list `offsets` (one more), `qid_spans` (none when lines have none: all
    documents are then one list) and `list_lines` (lines before its first); per hard token `hard`: its byte and what it
    is, an index into `values`, or -1 - the document for its label.

    Returns (problem, its byte, documents, lists, hard tokens).
    """
    end = len(text)
    i = documents = entries = lists = hards = lines = 0
    with_qid = False
    indptr[0] = offsets[0] = 0
    while i < end:
        line = i
        while i < end and (text[i] == _SPACE or text[i] == _TAB or text[i] == _RETURN):
            i += 1
        if i >= end:
            break
        if text[i] == _NEWLINE:
            i += 1
            lines += 1
            continue
        if text[i] == _HASH:
            while i < end and text[i] != _NEWLINE:
                i += 1
            continue

        token = i
        kind, value, i = _number(text, i)
        if kind == _BAD or not _ends(text, i):
            return LABEL, token, documents, lists, hards
        if kind == _HARD:
            hard[hards, 0], hard[hards, 1] = token, -1 - documents
            hards += 1
        labels[documents] = value
        starts[documents] = line
        missing[documents] = 0
        while i < end and (text[i] == _SPACE or text[i] == _TAB):
            i += 1

        has_qid = (
            i + 4 <= end and text[i] == 113 and text[i + 1] == 105 and text[i + 2] == 100 and text[i + 3] == _COLON
        )
        if documents == 0:
            with_qid = has_qid
        elif with_qid and not has_qid:
            return QID_MISSING, i, documents, lists, hards
        elif has_qid and not with_qid:
            return QID_SURPRISE, i, documents, lists, hards
        if has_qid:
            i += 4
            first = i
            while not _ends(text, i):
                i += 1
            if i == first:
                return QID_EMPTY, token, documents, lists, hards
            same = lists > 0 and qid_spans[lists - 1, 1] - qid_spans[lists - 1, 0] == i - first
            if same:
                before = qid_spans[lists - 1, 0]
                for k in range(i - first):
                    if text[before + k] != text[first + k]:
                        same = False
                        break
            if not same:
                offsets[lists] = documents
                qid_spans[lists, 0], qid_spans[lists, 1] = first, i
                list_lines[lists] = lines
                lists += 1

        last = base - 1
        while True:
            while i < end and (text[i] == _SPACE or text[i] == _TAB or text[i] == _RETURN):
                i += 1
            if i >= end or text[i] == _NEWLINE or text[i] == _HASH:
                break
            token = i
            feature = np.int64(0)
            while i < end and _ZERO <= text[i] <= _NINE:
                if feature < 10**10:  # more would overflow, and is beyond any limit anyway
                    feature = feature * 10 + (np.int64(text[i]) - _ZERO)
                i += 1
            if i == token or i >= end or text[i] != _COLON:
                return FEATURE, token, documents, lists, hards
            if feature <= last:
                return ID_ZERO if feature < base else ID_ORDER, token, documents, lists, hards
            if feature > limit:
                return ID_LARGE, token, documents, lists, hards
            last = feature
            i += 1
            first = i
            kind, value, i = _number(text, i)
            if kind == _BAD and _is_null(text, first):
                value = fill
                missing[documents] += 1
                i = first + 4
            elif kind == _BAD or not _ends(text, i):
                return VALUE, token, documents, lists, hards
            elif kind == _HARD:
                hard[hards, 0], hard[hards, 1] = first, entries
                hards += 1
            indices[entries] = feature - base
            values[entries] = value
            entries += 1

        first = last = i
        if i < end and text[i] == _HASH:
            first = i + 1
            while i < end and text[i] != _NEWLINE:
                i += 1
            last = i
            while first < last and _blank(text[first]):
                first += 1
            while last > first and _blank(text[last - 1]):
                last -= 1
        comment_spans[documents, 0], comment_spans[documents, 1] = first, last
        docid_spans[documents, 0], docid_spans[documents, 1] = _find_docid(text, first, last)
        i += 1
        lines += 1
        documents += 1
        indptr[documents] = entries
    offsets[lists] = documents
    return 0, end, documents, lists, hards
