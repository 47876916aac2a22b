"""Parsers of every format, as plain as they can be: what the library reads is compared with what they read.

Each takes the bytes of a file and gives what it holds in plain lists and dictionaries, or raises `Refused`. They share no code
with the library. `Unsure` is for what no description settles; the library may then take it or refuse it.
"""

import gzip
import re
import zlib

import numpy as np

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
    """UTF-8, after a mark that says so."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise Refused("UTF-16")
    start = content[:64]
    if len(start) > 3 and len(start) % 2 == 0 and (b"\0" in start):
        for zeros, others in ((start[::2], start[1::2]), (start[1::2], start[::2])):
            if not any(zeros) and all(others):
                raise Refused("UTF-16 without a mark")
    return utf8(content.removeprefix(b"\xef\xbb\xbf"))


def fields_of(line: str, separator: str | None) -> list[str]:
    """What stands between separators of one kind; None is blanks and tabs."""
    line = line.strip(" \t\r\n")
    if separator is None:
        return [word for word in re.split("[ \t]+", line) if word]
    return [field.strip(" ") for field in line.split(separator)] if line else []


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
    content: bytes, *, sizes: bytes | None = None, labels: str = "grades", fill: float = 0.0, omitted: str = "check"
) -> dict:
    """Documents of SVMlight and LETOR lines, plain or gzip; `sizes` is the content of a side file."""
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise Refused(str(error)) from None
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
            if not identifier.isdigit() or not max(row, default=0) < int(identifier) <= 2**31 - 2:
                raise Refused(f"feature {word[:40]!r}")
            row[int(identifier)] = fill if value.lower() == b"null" else number(value, np.float32)
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
    """Runs (score in column 4) and qrels (label, whole, in column 3), by query and document."""
    found: dict = {}
    for words in divided(lines(as_text(content)), (columns,), column, ("\t", None), whole=whole):
        value = number(words[column])
        if whole and (value % 1 or too_large(words[column])):
            raise Refused("no whole number")
        documents = found.setdefault(words[0], {})
        if words[2] in documents:
            raise Refused("a document twice")
        documents[words[2]] = value
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


def csv_classes(content: bytes) -> dict:
    """Columns of numbers and at last a class, under a line of names."""
    text = as_text(content)
    lines(text)
    rows = [[cell.strip() for cell in row] for row in csv_rows(re.sub("\r(?!\n)", "\n", text))]
    if not rows:
        raise Refused("empty")
    return _classes(rows[0], rows[1:])


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
    where = [0, 1, 2]
    said = [line.strip(" \t\r\n") for line in lines(as_text(content))]
    if separator == ",":
        first = next((at for at, line in enumerate(said) if line and line[0] != "#"), None)
        names = [] if first is None else [part.strip(" \t\r\n").lower() for part in (csv_rows(said[first]) or [[]])[0]]
        if {"user", "item", "rating"} <= set(names):
            columns, where, said = (
                (len(names),),
                [names.index(name) for name in ("user", "item", "rating")],
                said[first + 1 :],
            )
        if any('"' in line for line in said):
            rows = _csv_ratings(said, columns, where[2])
        else:
            rows = divided(said, columns, where[2], (",",))
    else:
        rows = divided(said, columns, where[2], ("\t", None) if separator is None else (separator,))
    for parts in rows:
        user, item, rating = (parts[i] for i in where)
        value = number(rating)
        lowest, highest = SCALES[scale]
        if not user or not item or (user, item) in found or not lowest <= value <= highest:
            raise Refused("a name, a rating, or both again")
        if scale != "centred" and np.float32(value) % 1:
            raise Refused("not whole")
        found[user, item] = float(np.float32(value))
    if not found:
        raise Refused("empty")
    return found


def _csv_ratings(said: list[str], columns: tuple[int, ...], value: int) -> list[list[str]]:
    """Rows with quotes; what is in them has no separators to `divided`."""
    hidden = ["\x01".join(part.strip(" \t\r\n") for part in (csv_rows(line) or [[]])[0]) for line in said]
    return divided(hidden, columns, value, ("\x01",))


def titles(content: bytes) -> dict[str, str]:
    """Names of films."""
    found = {}
    content = content.removeprefix(b"\xef\xbb\xbf")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise Refused("UTF-16")
    for line in filter(None, (line.strip(" \t\r\n") for line in lines(content.decode("latin-1")))):
        if line[0] == "#":
            continue
        parts = line.split("::" if "::" in line else "|")
        if len(parts) < 2:
            raise Refused("no title")
        found[parts[0]] = parts[1]
    return found
