"""Parsers of every format, as plain as they can be: what the library reads is compared with what they read.

Each takes the bytes of a file and gives what it holds in plain lists and dictionaries, or raises `Refused`. They share no code
with the library. `Unsure` is for what no description settles; the library may then take it or refuse it.
"""

import bz2
import gzip
import io
import itertools
import json
import lzma
import math
import re
import zlib
from fractions import Fraction
from typing import Any

import numpy as np
import yaml

try:
    import zstandard
except ModuleNotFoundError:
    zstandard = None

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DOCID = re.compile(rb"(?:^|[ \t\r])docid[ \t\r]*=[ \t\r]*([^ \t\r]+)")
_BLANK = re.compile(rb"[ \t\r]+")
SCALES = {"stars": (1, 5), "centred": (-10, 10), "binary": (0, 1)}


class Refused(Exception):
    """The file breaks its format."""


class Unsure(Exception):
    """No description of the format says what this is."""


def number(word: str | bytes, kind: type = np.float64) -> float:
    """A finite decimal number, of the range of `kind`."""
    text = word.decode("latin-1") if isinstance(word, bytes) else word
    if not _NUMBER.fullmatch(text):
        raise Refused(f"no number: {text[:40]!r}")
    with np.errstate(over="ignore"):
        value = float(kind(float(text)))
    if not np.isfinite(value):
        raise Refused(f"too large: {text[:40]!r}")
    return value


def unpacked(content: bytes) -> bytes:
    """The content of a compressed file, all its streams, with zeros between them; the bytes of any other file."""
    most = max(2**28, 100 * len(content))
    if content[:2] == b"\x1f\x8b":
        try:
            found = gzip.GzipFile(fileobj=io.BytesIO(content)).read(most + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise Refused(str(error)) from None
    elif re.match(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", content):
        found = _streams(content, bz2.BZ2Decompressor, most, (OSError, ValueError))
    elif content[:6] == b"\xfd7zXZ\0":
        found = _streams(content, lambda: lzma.LZMADecompressor(memlimit=2**29), most, (lzma.LZMAError,))
    elif content[:4] == b"\x28\xb5\x2f\xfd":
        if zstandard is None:
            raise Refused("no library for it")
        make = zstandard.ZstdDecompressor().decompressobj
        found = _streams(content, lambda: make(), most, (zstandard.ZstdError,))
    else:
        return content
    if len(found) > most:
        raise Refused("a bomb")
    return found


def _streams(content: bytes, make, most: int, errors: tuple[type[Exception], ...]) -> bytes:
    found, size = [], 0
    while content and size <= most:
        decoder = make()
        try:
            found.append(decoder.decompress(content))
        except errors as error:
            raise Refused(str(error)) from None
        if not decoder.eof:
            raise Refused("it ends too early")
        size += len(found[-1])
        content = decoder.unused_data.lstrip(b"\0")
    return b"".join(found)


def moment(value):
    """A date and time as a name: without a clock of zeros, or zeros at the end of the fraction."""
    day, clock = value.isoformat(" ", "microseconds").split(" ")
    clock = clock.rstrip("0").rstrip(".") if "." in clock else clock
    return day if clock == "00:00:00" else f"{day} {clock}"


def utf8(content: bytes) -> str:
    """Text in UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Refused("no UTF-8") from None


def lines(text: str) -> list[str]:
    """Lines, however they end."""
    found = re.split("\r\n|\r|\n", text)
    if any(line[:1] == "\ufeff" for line in found):
        raise Refused("a byte order mark that does not begin the file")
    return found


def as_text(content: bytes) -> str:
    """UTF-8, with or without a byte order mark, plain or compressed."""
    content = unpacked(content)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise Refused("UTF-16")
    start = content[:64]
    if len(start) > 3 and len(start) % 2 == 0 and (b"\0" in start):
        for zeros, others in ((start[::2], start[1::2]), (start[1::2], start[::2])):
            if not any(zeros) and all(others):
                raise Refused("UTF-16 without a mark")
    return utf8(content.removeprefix(b"\xef\xbb\xbf"))


def fields_of(line: str, separator: str | None) -> list[str]:
    """The fields between separators of one kind; None means blanks and tabs."""
    line = line.strip(" \t\r\n")
    if separator is None:
        return [word for word in re.split("[ \t]+", line) if word]
    return [field.strip(" \t" if separator == "," else " ") for field in line.split(separator)] if line else []


def too_large(word: str) -> bool:
    """Whether a number is beyond the integers that float64 holds."""
    return abs(int(word) if _INTEGER.fullmatch(word) else number(word)) > 2**53


def divided(
    said: list[str], counts: tuple[int, ...], value: int, separators: tuple[str | None, ...], *, whole: bool = False
) -> list[list[str]]:
    """The fields of the lines, which are divided as the first is."""
    found = []
    for line in said:
        for separator in separators:
            fields = fields_of(line, separator)
            good = len(fields) in counts and (len(separators) == 1 or separator is None or all(fields))
            if good:
                break
        if not fields:
            continue
        if fields[0][:1] == "#":
            try:
                fits = good and number(fields[value]) % 1 * whole == 0 and not (whole and too_large(fields[value]))
            except Refused:
                fits = False
            if not fits and line.strip(" \t\r\n").lstrip("#")[:1] in ("", " ", "\t"):
                continue
        if not good:
            raise Refused("fields")
        if not found:
            counts, separators = (
                (len(fields),),
                (separator,) if separator is None or len(separators) == 1 else (separator, separator),
            )
        found.append(fields)
    return found


def svmlight(
    content: bytes,
    *,
    sizes: bytes | None = None,
    labels: str = "grades",
    fill: float = 0.0,
    omitted: str = "check",
    zero_based: bool = False,
) -> dict:
    """Documents of SVMlight and LETOR lines, plain or compressed; `sizes` is the content of a file of group sizes."""
    content = unpacked(content)
    content = re.sub(rb"\r(?!\n)", b"\n", content.removeprefix(b"\xef\xbb\xbf"))
    rows, grades, names, comments, missing, zeros = [], [], [], [], [], False
    for line in content.split(b"\n"):
        line = line.strip(b" \t\r")
        if not line or line[:1] == b"#":
            continue
        body, hash_, comment = line.partition(b"#")
        words = [word for word in _BLANK.split(body) if word]
        grades.append(number(words.pop(0), np.float32))
        names.append(words.pop(0)[4:] if words and words[0][:4].lower() == b"qid:" else None)
        if names[-1] is not None and not words and hash_ and body[-1:] not in b" \t\r":
            raise Refused("a name that goes on behind #")
        row = {}
        for word in words:
            identifier, _, value = word.partition(b":")
            at = int(identifier) + zero_based if identifier.isdigit() else -1
            if not max(row, default=0) < at <= 2**31 - 2 + zero_based:
                raise Refused(f"feature {word[:40]!r}")
            row[at] = fill if value.lower() == b"null" else number(value, np.float32)
        missing.append(sum(word.lower().endswith(b":null") for word in words))
        zeros |= 0 in row.values()
        rows.append(row)
        comments.append(comment.strip(b" \t\r\n") if hash_ else b"")
    if not any(rows):
        raise Refused("no features")
    if labels == "grades" and any(grade < 0 or grade % 1 for grade in grades):
        raise Refused("no grade")
    if omitted == "check" and zeros:
        _refuse_gaps(rows)
    qids, lengths = _lists(names, sizes)
    found = {"rows": [{i: x for i, x in row.items() if x} for row in rows], "labels": grades}
    docids = [utf8(_docid(comment)) for comment in comments]
    return found | {
        "width": max(map(max, filter(None, rows))),
        "missing": missing if any(missing) else None,
        "qids": qids,
        "lengths": lengths,
        "comments": comments if any(comments) else None,
        "docids": docids if any(docids) else None,
    }


def _refuse_gaps(rows: list[dict]) -> None:
    """Where most lines have the features 1..d and zeros are written, all lines have them."""
    widths = [len(row) if row and max(row) == len(row) else 0 for row in rows]
    usual = max(sorted({*widths} - {0}), key=widths.count, default=0)
    if 0 < 2 * sum(width != usual for width in widths) < len(rows):
        raise Refused("a line without some features")


def _lists(names: list[bytes | None], sizes: bytes | None) -> tuple[list[str], list[int]]:
    """Names and lengths of the lists."""
    if names.count(None) == len(names):
        if sizes is None:
            raise Refused("no qid")
        lengths = group_sizes(sizes)
        if sum(lengths) != len(names):
            raise Refused("sizes of other data")
        return [str(i + 1) for i in range(len(lengths))], lengths
    starts = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    qids = [names[i] for i in starts]
    if None in qids or b"" in qids or len(set(qids)) < len(qids) or sizes is not None:
        raise Refused("qids")
    if any(re.search(r"^\s|\s$|\s\d+:", utf8(name)) for name in qids):
        raise Refused("a space of Unicode that was to end a name")
    ends = [*starts[1:], len(names)]
    return [utf8(name) for name in qids], [end - start for start, end in zip(starts, ends, strict=True)]


def _docid(comment: bytes) -> bytes:
    match = _DOCID.search(comment)
    return match[1] if match else comment if not re.search(rb"[ \t\r]", comment) else b""


def group_sizes(content: bytes) -> list[int]:
    """Sizes of lists, apart by blanks."""
    words = [word for word in re.split(rb"[ \t\r\n]+", content.removeprefix(b"\xef\xbb\xbf")) if word]
    if not all(word.isdigit() and len(word.lstrip(b"0")) < 19 for word in words):
        raise Refused("no size")
    return [int(word.lstrip(b"0") or b"0") for word in words]


def table(content: bytes, columns: int, column: int, *, whole: bool) -> dict:
    """Runs (score in column 4) and qrels (label, whole, in column 3, or BEIR's three columns), by query and document."""
    found: dict = {}
    said, document, separators = lines(as_text(content)), 2, ("\t", None)
    head = fields_of(said[0].lower(), None)
    if whole and len(head) == 3 and head[:2] == ["query-id", "corpus-id"]:
        separators = ("\t",) if "\t" in said.pop(0) else (None,)
        columns, column, document = 3, 2, 1
    for words in divided(said, (columns,), column, separators, whole=whole):
        value = number(words[column])
        if whole and (value % 1 or too_large(words[column])):
            raise Refused("no whole number")
        documents = found.setdefault(words[0], {})
        if words[document] in documents:
            raise Refused("a document twice")
        if not all(words):
            raise Refused("an empty field")
        documents[words[document]] = value
    if not found:
        raise Refused("empty")
    return found


def scores(content: bytes) -> list[float]:
    """The last word of each line, of which all have as many."""
    every = lines(as_text(content))
    if every[-1] == "":
        every.pop()
    words = [fields_of(line, None) for line in every]
    if len({len(each) for each in words}) > 1:
        raise Refused("words")
    found = [number(each[-1] if each else "") for each in words]
    if not found:
        raise Refused("empty")
    return found


def csv_rows(text: str, delimiter: str = ",") -> list[list[str]]:
    """Cells of a CSV file; a quote opens a cell at its beginning alone, and two of them are one."""
    rows, row, cell, quoted, begun = [], [], "", False, False
    at = 0
    while at < len(text):
        letter = text[at]
        at += 1
        if quoted:
            if letter != '"':
                cell += letter
            elif text[at : at + 1] == '"':
                cell += '"'
                at += 1
            else:
                quoted = False
        elif letter == '"' and not cell and not begun:
            quoted = begun = True
        elif letter == delimiter:
            row.append(cell)
            cell, begun = "", False
        elif letter in "\r\n":
            if row or cell or begun:
                rows.append([*row, cell])
            row, cell, begun = [], "", False
        else:
            cell, begun = cell + letter, True
    if row or cell or begun:
        rows.append([*row, cell])
    return rows


def csv_text(content: bytes) -> str:
    """The text of a CSV file, plain or compressed, in the encoding of its byte order mark; UTF-8 without one."""
    content = unpacked(content)
    for mark, encoding in MARKS.items():
        if content.startswith(mark):
            try:
                return content[len(mark) :].decode(encoding)
            except UnicodeDecodeError:
                raise Refused(f"no {encoding}") from None
    if b"\0" in content[:1000]:
        raise Refused("UTF-16 without a mark")
    return utf8(content)


MARKS = {
    b"\xff\xfe\0\0": "utf-32-le",
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
    b"\xef\xbb\xbf": "utf-8",
}


def header_of(text: str, *wanted: str | None) -> tuple[str, list[str]]:
    """What separates cells by the first line, and the names in it."""
    found = {}
    for separator in ",;\t|":
        rows = csv_rows(text, separator) if text[:1] not in ("\r", "\n") else []
        found[separator] = [cell.strip() for cell in rows[0]] if rows else []
    best = max(
        found, key=lambda each: (any(column(found[each], name) is not None for name in wanted), len(found[each]))
    )
    return best, found[best]


#: Other names of labels, queries, documents, users and items.
OTHERS = {"label": ["relevance", "rel", "y", "target"], "qid": ["query_id", "query", "group"]}
OTHERS |= {"docid": ["doc_id", "document_id"], "user": ["user_id", "userid"]}
OTHERS |= {"item": ["item_id", "itemid", "movie_id", "movieid", "product_id", "productid"]}


def column(names: list[str], wanted: str | None) -> int | None:
    """The number of the only column with a usual name in any case, where `y` may be a coordinate."""
    usual = [wanted, *OTHERS.get(str(wanted), [])]
    alike = [at for at, name in enumerate(names) if name.lower() in usual]
    if len(alike) > 1:
        alike = [at for at in alike if names[at].lower() != "y"]
    if len(alike) > 1:
        raise Refused("columns with usual names")
    return alike[0] if alike else None


def check_names(names: list[str]) -> None:
    """Columns have names of their own, and none is the index of a frame."""
    wrong = any(not name or name == "Unnamed: 0" or re.fullmatch(r"__index_level_\d+__", name) for name in names)
    if wrong or len(set(names)) < len(names):
        raise Refused("names of columns")


def csv_classes(content: bytes) -> dict:
    """Columns of numbers and at last a class, under a line of names."""
    text = csv_text(content)
    if unpacked(content)[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        lines(text)
    elif '"' in text and "\r" in text:
        raise Unsure("line ends in quotes")
    if len(text) > 60_000:
        raise Unsure("the lines that tell the separator")
    separator, _ = header_of(text, None)
    rows = [[cell.strip() for cell in row] for row in csv_rows(re.sub("\r(?!\n)", "\n", text), separator)]
    if not rows:
        raise Refused("empty")
    check_names(rows[0])
    return _classes(rows[0], [[*map(flag, row[:-1]), row[-1]] for row in rows[1:]])


def flag(cell: str) -> str:
    """True and False as numbers."""
    return {"true": "1", "false": "0"}.get(cell.lower(), cell)


#: Missing values that consist of letters a number may have.
NULLS = {"", "NULL", "null", "nan", "NaN", "-nan", "-NaN", "NA", "N/A", "n/a", "#N/A", "#NA", "#N/A N/A"}
NULLS |= {"1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"}


def csv_lists(content: bytes) -> dict:
    """A table of lists: label, qid and docid by their names, and features."""
    try:
        text = csv_text(content)
    except Refused as error:
        if str(error).lower() == "no utf-8":  # in the first line alone it does no harm
            raise Unsure(str(error)) from None
        raise
    if len(text) > 60_000 or "\0" in text:
        raise Unsure("the lines that tell the separator")
    separator, names = header_of(text, "qid")
    cell = rf'([^"\r\n{re.escape(separator)}]*|"([^"\r\n]|"")*")'
    if '"' in text and not re.fullmatch(rf"({cell}[{re.escape(separator)}\r\n])*{cell}", text):
        raise Unsure("quotes in cells")
    roles = [column(names, name) for name in ("label", "qid", "docid")]
    if None in roles[:2]:
        raise Refused("no label, or no qid")
    check_names(names)
    rows = csv_rows(text, separator)[1:]
    if not rows or any(len(row) != len(names) for row in rows):
        raise Refused("no rows, or cells")
    values = {
        at: _csv_column([row[at] for row in rows], at != roles[0]) for at in range(len(names)) if at not in roles[1:]
    }
    label, qid, docid = roles
    found = [
        [row[at].strip(" \t\r\n") if at in roles[1:] else values[at][number] for at in range(len(names))]
        for number, row in enumerate(rows)
    ]
    return lists(
        [row[label] for row in found],
        [row[qid] for row in found],
        None if docid is None else [row[docid] for row in found],
        [[x for at, x in enumerate(row) if at not in roles] for row in found],
    )


def _csv_column(cells: list[str], is_feature: bool) -> list[Any]:
    words = {cell for cell in cells if cell.strip() not in NULLS}
    if is_feature and words and not any(map(_is_like_a_number, words)):
        if any(cell != cell.strip() for cell in cells):
            raise Unsure("blanks around categories")
        return [None if cell in NULLS else cell for cell in cells]
    flags = {cell.strip().lower() for cell in cells} - {""}
    if flags and flags <= {"true", "false"}:
        if any(cell not in ("", "true", "True", "TRUE", "false", "False", "FALSE") for cell in cells):
            raise Unsure("how True is written")
        return [None if cell == "" else float(flag(cell)) for cell in cells]
    found = []
    for cell in cells:
        word = cell.strip(" \t")
        if word != cell and word in NULLS:
            raise Unsure("blanks around nothing")
        if word[:1] == "+" or (re.fullmatch(r"[-+]?(nan|inf|infinity)", word, re.IGNORECASE) and word not in NULLS):
            raise Unsure("whether this is a number")
        found.append(None if word in NULLS else number(word))
    return found


def _is_like_a_number(cell: str) -> bool:
    word = cell.strip()
    if re.fullmatch(r"[-+]?(nan|inf|infinity)|[-+]?\d+,\d+|\d{4}-\d\d-\d\d.*|true|false", word, re.IGNORECASE):
        return True
    try:
        number(word)
    except Refused:  # also for what is too large
        return re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", word, re.IGNORECASE | re.ASCII) is not None
    return True


def lists(
    labels: list[float | None],
    qids: list[str],
    docids: list[str] | None,
    features: list[list[Any]],
    kind: str = "grades",
) -> dict:
    """Documents as `svmlight` gives them; None and NaN are missing values, a string is the number of its category in order."""
    if not features or not features[0]:
        raise Refused("no features")
    if None in labels or "" in qids or "" in (docids or []):
        raise Refused("a label or a name that is missing")
    with np.errstate(over="ignore"):
        if not np.isfinite(np.array(labels, float).astype(np.float32)).all():
            raise Refused("a label that is too large, or no number")
        codes = [_codes([row[at] for row in features]) for at in range(len(features[0]))]
        features = [list(row) for row in zip(*codes, strict=True)]
        rows = [[None if x is None else float(np.float32(x)) for x in row] for row in features]
    if kind == "grades" and any(grade < 0 or grade % 1 or grade > 2**24 for grade in labels):
        raise Refused("no grade")
    if any(x is not None and math.isinf(x) for row in rows for x in row):
        raise Refused("a feature that is too large, or no number")
    starts = [i for i, name in enumerate(qids) if i == 0 or name != qids[i - 1]]
    if len({qids[i] for i in starts}) < len(starts):
        raise Refused("a query returns")
    missing = [sum(x is None for x in row) for row in features]
    return {
        "rows": [{i: x for i, x in enumerate(row, 1) if x != 0} for row in rows],
        "labels": [float(np.float32(label)) for label in labels],
        "width": len(rows[0]),
        "missing": missing if any(missing) else None,
        "qids": [qids[i] for i in starts],
        "lengths": [end - start for start, end in zip(starts, [*starts[1:], len(qids)], strict=True)],
        "comments": None,
        "docids": docids,
    }


def _codes(column: list[Any]) -> list[float | None]:
    known = sorted({x for x in column if isinstance(x, str) and x})
    return [
        None if x is None or x == "" or x != x else float(known.index(x)) if isinstance(x, str) else x for x in column
    ]


def arff_classes(content: bytes) -> dict:
    """Dense ARFF: names of attributes, and rows after `@data`."""
    names: list[str] = []
    every = lines(content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace"))
    for place, line in enumerate(every):
        said = line.strip()
        if said.lower() == "@data":
            rest = [row for row in every[place + 1 :] if row.strip() and not row.lstrip().startswith("%")]
            return _classes(names, [[cell.strip() for cell in row.split(",")] for row in rest])
        if said.lower().startswith("@attribute"):
            match = re.match(r"""\s*('[^']*'|"[^"]*"|[^\s'"]\S*)""", said[len("@attribute") :])
            if not match:
                raise Refused("no name")
            names.append(match[1][1:-1] if match[1][0] in "'\"" else match[1])
    raise Refused("no @data")


def _classes(names: list[str], rows: list[list[str]]) -> dict:
    if not names or not rows or any(len(row) != len(names) for row in rows):
        raise Refused("no rows, or one of another width")
    features = [[number(cell, np.float32) for cell in row[:-1]] for row in rows]
    return {"names": names[:-1], "classes": [row[-1].strip("'\"") for row in rows], "features": features}


def ratings(content: bytes, separator: str | None, columns: tuple[int, ...], scale: str) -> dict:
    """Ratings by user and item."""
    found: dict = {}
    if separator == ",":
        rows = _csv_ratings(content, columns)
    else:
        said = [line.strip(" \t\r\n") for line in lines(as_text(content))]
        rows = divided(said, columns, 2, ("\t", None) if separator is None else (separator,))
        rows = [[part.strip(" \t\r\n") for part in parts[:3]] for parts in rows]
    users, items = (_rating_ids([row[at] for row in rows], quoted=separator != ",") for at in (0, 1))
    values = _csv_column([row[2] for row in rows], False) if separator == "," else [number(row[2]) for row in rows]
    if separator == "," and scale != "binary" and any(row[2].strip().lower() in ("true", "false") for row in rows):
        raise Refused("flags")
    for user, item, value in zip(users, items, values, strict=True):
        if value is None:
            raise Refused("no rating")
        lowest, highest = SCALES[scale]
        if not user or not item or (user, item) in found or not lowest <= value <= highest:
            raise Refused("a name, a rating, or both again")
        if scale != "centred" and np.float32(value) % 1:
            raise Refused("not whole")
        found[user, item] = float(np.float32(value))
    if not found:
        raise Refused("empty")
    return found


def _csv_ratings(content: bytes, columns: tuple[int, ...]) -> list[list[str]]:
    """User, item and rating of a table, whose first columns they are if the third is a number and there are no names."""
    try:
        text = csv_text(content)
    except Refused as error:
        if str(error).lower() in ("no utf-8", "utf-16 without a mark"):  # where it does no harm, or a name has a zero
            raise Unsure(str(error)) from None
        raise
    if not any(unpacked(content).startswith(mark) for mark, encoding in MARKS.items() if encoding != "utf-8"):
        lines(text)
    if len(text) > 60_000 or "\0" in text:
        raise Unsure("the lines that tell the separator")
    separator, names = header_of(text, "user", "item", "rating")
    cell = rf'([^"\r\n{re.escape(separator)}]*|"([^"\r\n]|"")*")'
    if '"' in text and not re.fullmatch(rf"({cell}[{re.escape(separator)}\r\n])*{cell}", text):
        raise Unsure("quotes in cells")
    rows, where = csv_rows(text, separator), [column(names, name) for name in ("user", "item", "rating")]
    if None not in where:
        rows = rows[1:]
        if any(names.count(names[at]) > 1 for at in where):
            raise Refused("a column twice")
    elif len(names) in columns:
        number(names[2])
        where = [0, 1, 2]
    else:
        raise Refused("no names, and no ratings")
    if not rows or any(len(row) != len(names) for row in rows):
        raise Refused("no rows, or cells")
    return [[*(row[at].strip(" \t\r\n") for at in where[:2]), row[where[2]]] for row in rows]


def _rating_ids(names: list[str], *, quoted: bool) -> list[str]:
    """Names without quotation marks around them, if those are not of the format, and as integers if all are whole floats."""
    if quoted:
        names = [re.sub(r'\A"(.*)"\Z', r"\1", name, flags=re.DOTALL).strip(" \t\r\n") for name in names]
        if any(name.startswith('"') for name in names):
            raise Refused("a quotation mark is not closed")
    whole = all(re.fullmatch(r"(-?[1-9][0-9]*|0)\.0", name) for name in names)
    return [name.removesuffix(".0") if whole else name for name in names]


def config(content: bytes) -> dict:
    """What a config says, by whole names; no name is there twice, however it is written."""
    try:
        root = yaml.compose(utf8(content), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise Refused("no YAML") from None
    found: dict = {}
    _visit(root, (), found, (), itertools.count())
    return found


def _visit(node, above: tuple, found: dict, inside: tuple, steps) -> None:
    if any(node is each for each in inside) or next(steps) > 10_000:
        raise Unsure("an alias of what it is part of, or many of them")
    if isinstance(node, yaml.SequenceNode):
        for at, each in enumerate(node.value):
            _visit(each, (*above, at), found, (*inside, node), steps)
    elif isinstance(node, yaml.MappingNode):
        names = []
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise Unsure("a key of several values")
            name = _key(key)
            if key.tag.endswith(":merge"):
                raise Unsure("what is merged")
            names.append((*above, *(name.split(".") if isinstance(name, str) else (name,))))
            if names[-1] in found:
                raise Refused(f"{names[-1]} is there twice")
            found[names[-1]] = None
            _visit(value, names[-1], found, (*inside, node), steps)


def _key(node):
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError):
        raise Refused("no YAML") from None


def json_value(content: bytes):
    """JSON, in which an object has a key once."""

    def once(pairs):
        if len(dict(pairs)) < len(pairs):
            raise Refused("a key twice")
        return dict(pairs)

    try:
        return json.loads(content.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise Refused("no JSON") from None


def corpus(content: bytes) -> dict[str, str]:
    """Title and text by name, of objects of JSON, one a line."""
    found: dict = {}
    for line in lines(as_text(content)):
        if not line.strip(" \t"):
            continue
        entry = json_value(line.encode())
        try:
            name, title, text = entry["_id"], entry.get("title") or "", entry["text"]
        except (TypeError, KeyError, AttributeError):
            raise Refused("no text") from None
        if (
            type(name) not in (str, int)
            or not isinstance(title, str)
            or not isinstance(text, str)
            or str(name) in found
        ):
            raise Refused("no text, or a name again")
        found[str(name)] = f"{title} {text}".strip()
    if not found:
        raise Refused("empty")
    return found


def exact_auc(scores: list[Fraction], labels: list[Fraction]) -> Fraction:
    """The share of pairs in the right order, a tie being half; 0 where there is no pair."""
    pairs = [
        (a, b) for a, x in zip(scores, labels, strict=True) for b, y in zip(scores, labels, strict=True) if x > 0 >= y
    ]
    return sum((Fraction((a > b) * 2 + (a == b), 2) for a, b in pairs), Fraction(0)) / max(1, len(pairs))


def exact_ap(scores: list[Fraction], labels: list[Fraction]) -> Fraction:
    """The mean over all orders of tied documents, one after another; 0 where nothing is relevant."""
    tied = [
        [y for x, y in zip(scores, labels, strict=True) if x == score] for score in sorted(set(scores), reverse=True)
    ]
    total, orders = Fraction(0), 0
    for order in itertools.product(*map(itertools.permutations, tied)):
        hits, orders = 0, orders + 1
        for rank, label in enumerate(itertools.chain.from_iterable(order), 1):
            if label > 0:
                hits += 1
                total += Fraction(hits, rank)
    return total / max(1, sum(label > 0 for label in labels)) / orders
