"""Files of ratings and of interactions: their formats, and their sources with splits."""

from __future__ import annotations

import logging
import math
import os
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from rankstruct.checks import check_choice, check_integers, check_numbers
from rankstruct.columns import USUAL, usual_columns
from rankstruct.data import DataError
from rankstruct.data.errors import check_matched
from rankstruct.data.tables import Ids, TableReader, find_columns, is_csv, is_number, is_table, read_header
from rankstruct.data.text import SPACE, Separator, field_rows, parse_number, split_at, split_blanks, text_lines
from rankstruct.data.times import are_epochs
from rankstruct.messages import Way, shortened
from rankstruct.recommenders.ratings import (
    SCALES,
    Ratings,
    align,
    first_repeated,
    implicit,
    interactions,
    k_core,
    of_those_that_count,
    rows_that_count,
    synthetic_ratings,
)
from rankstruct.recommenders.splits import (
    RatingsParts,
    hold_out,
    nothing,
    split_by_time,
    strong_split,
    weak_split,
    without,
)

__all__ = [
    "InteractionsSource",
    "RatingsFormat",
    "RatingsSource",
    "read_interactions",
    "read_movielens_fold",
    "read_ratings",
    "register_ratings_format",
]

_log = logging.getLogger(__name__)
BUILTIN_RATINGS = ("synthetic",)
_COLUMNS = ("user", "item", "rating", "time")


class RatingsFormat(NamedTuple):
    """A format of files of ratings.

    Attributes:
        rows: a function from a path to an iterator of `(line number, user, item, rating)`, or with a time as the fifth, all but
            the first as text; None for tables.
        scale: the rating scale, see `Ratings`; None if the user must specify it.
        names: file name patterns of the format, such as `"*.csv"`; folders are searched for those without `*`.

    >>> format = RatingsFormat(lambda path: iter([(1, "ann", "x", "5")]), "stars", ("*.stars",))
    >>> next(format.rows("my.stars"))
    (1, 'ann', 'x', '5')
    """

    rows: Callable[[Path], Iterator[tuple[Any, ...]]] | None
    scale: str | None = None
    names: tuple[str, ...] = ()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The stripped nonempty lines with their numbers."""
    if not path.exists():
        raise DataError(f"{path}: no such file; give a file of ratings or interactions")
    return ((number, line) for number, text in text_lines(path, newline="") if (line := text.strip(SPACE)))


def _text_format(
    separator: Separator | None, *counts: int, scale: str | None = None, names: tuple[str, ...] = ()
) -> RatingsFormat:
    """A format of lines with the number of fields of the first, one of `counts`: user, item, rating, and maybe a time."""
    columns = " ".join(_COLUMNS[: max(counts)])

    def rows(path: Path) -> Iterator[tuple[Any, ...]]:
        def fits(fields: list[str]) -> bool:
            return math.isfinite(_number(fields[2]))

        for number, fields in field_rows(path, _lines(path), columns, fits, counts=counts, separator=separator):
            user, item = (_unquoted(f"{path}, line {number}", name) for name in fields[:2])
            if not user or not item:
                raise DataError(
                    f"{path}, line {number}: expected a user and an item, got {shortened(', '.join(fields))}"
                )
            yield number, user, item, *fields[2:]

    return RatingsFormat(rows, scale, names)


def _number(word: str) -> float:
    """A finite number; NaN for anything else."""
    with suppress(ValueError):
        return value if math.isfinite(value := parse_number(word)) else math.nan
    return math.nan


def _unquoted(place: str, name: str) -> str:
    """A name without the quotation marks around it; raises DataError for one that is not closed."""
    if '"' not in name:
        return name
    found = name[1:-1].strip(SPACE) if len(name) > 1 and name[0] == name[-1] == '"' else name
    if found[:1] == '"':
        raise DataError(
            f"{place}: {shortened(found)} begins with a quotation mark that is not closed; close or remove it, and write names "
            "with blanks to a CSV file"
        )
    return found


_TABS = Separator("tabs", split_at)
_COLONS = Separator("'::'", lambda line: [field.strip(SPACE) for field in split_at(line, "::")])
FORMATS = {
    "movielens100k": _text_format(_TABS, 4, scale="stars", names=("u.data", "*.base", "*.test")),
    "movielens1m": _text_format(_COLONS, 4, scale="stars", names=("ratings.dat",)),
    "jester": _text_format(None, 3, scale="centred"),
    "text": _text_format(None, 3, 4),
    "csv": RatingsFormat(None, names=("*.csv", "*.tsv", "*.inter", "*.parquet", "*.feather", "*.arrow")),
}
_BUILTIN_FORMATS = tuple(FORMATS)


def _formats() -> list[tuple[str, RatingsFormat]]:
    """All formats by name, registered ones first."""
    return sorted(FORMATS.items(), key=lambda each: each[0] in _BUILTIN_FORMATS)


def register_ratings_format(name: str, form: RatingsFormat) -> None:
    """Register a custom format as `format=name`, in Python and in configs; raises ValueError if the name is in use.

    Its file name patterns come before those of the built-in formats.
    """
    if name in FORMATS:
        raise ValueError(f"name must differ from {', '.join(FORMATS)}, which are in use; got {name!r}")
    FORMATS[name] = form


def find_ratings(path: str | os.PathLike[str], format: str | None = None, scale: str | None = None) -> tuple[Path, str]:
    """Find the file of ratings and its format, inferred from its name if `format` is None, or `"text"` if a scale is given.

    A folder is searched for the file names of the formats, such as `u.data` (MovieLens 100K) and `ratings.dat` (1M), then for
    `ratings.csv` and `ratings.txt`. If there is no such file, or the format is unknown, this raises DataError.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; expected ratings, such as u.data of MovieLens or a CSV file")
    if path.is_dir():
        plain = [name for _, form in _formats() for name in form.names if "*" not in name]
        names = [*plain, "ratings.csv", "ratings.txt"]
        found = [path / name for name in names if (path / name).is_file()]
        if not found:
            raise DataError(f"{path} has none of {', '.join(names)}; give the file itself")
        path = found[0]
    told = [name for name, form in _formats() if any(map(path.match, form.names))]
    if not (format or told or scale):
        raise DataError(
            f"{path}: cannot infer the format from the file name; set data.format, such as jester, or text with data.scale"
        )
    return path, format or (*told, "text")[0]


def read_ratings(path: str | os.PathLike[str], format: str | None = None, *, scale: str | None = None) -> Ratings:
    r"""Read a file with one rating per line: user, item, rating, and optionally a time, by which splits order them.

    Args:
        path: the file, UTF-8, or a folder with `u.data`, `ratings.dat`, `ratings.csv` or `ratings.txt`. Blank lines are ignored,
            and in text files lines that start with `#` and a blank unless they have all fields and a number as rating. All lines
            have the same number of fields.
        format: `"movielens100k"` (tabs: `u.data`, `u1.base`), `"movielens1m"` (`::`), `"jester"` and `"text"` (tabs or blanks, as
            in the first line), `"csv"` (a table with columns `user`, `item` and `rating`, or other usual names of these: CSV,
            where they are the first columns if there are no names, Parquet or Arrow), or one of `register_ratings_format`; None
            infers it from the file name, or is `"text"` if that is unknown and a scale is given. Times are numbers, or dates in
            tables; if one is neither, the ratings have none.
        scale: the rating scale, see `Ratings`; `"stars"` for MovieLens 100K and 1M and `"centred"` for Jester, required for other
            formats.

    Raises:
        DataError: the file is missing or has no ratings, or a line is malformed; the message has file and line.
        ValueError: an unknown format, or a missing scale.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "ratings.csv"
    ...     _ = path.write_text("item,user,rating\nx,ann,5\ny,ann,2\n")
    ...     read_ratings(path, scale="stars").item_names.tolist()
    ['x', 'y']
    """
    check_choice("format", format, (*FORMATS, None))
    if format is None or Path(path).is_dir():
        path, format = find_ratings(path, format, scale)
    path = Path(path)
    scale = FORMATS[format].scale if scale is None else scale
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)} for the format {format!r}, got {scale!r}")
    lowest, highest = SCALES[scale][:2]
    users, items, values, times, place = _rated(path, format, scale)
    if not len(values):
        raise DataError(f"{path} has no ratings")
    wrong = ~((values >= lowest) & (values <= highest))
    if wrong.any():
        at = int(wrong.argmax())
        expected = f"a rating from {lowest} to {highest} (scale {scale!r})"
        raise DataError(
            f"{place(at)}: expected {expected}, got {'none' if np.isnan(values[at]) else f'{values[at]:g}'}"
        )
    again = first_repeated(users.places.astype(np.int64), items.places, len(items.names))
    if again is not None:
        user, item = (shortened(str(ids.names[ids.places[again]])) for ids in (users, items))
        raise DataError(f"{place(again)}: user {user} rates item {item} more than once")
    try:
        return Ratings.from_arrays(users, items, values, scale=scale, time=times)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


_Read: TypeAlias = "tuple[Ids, Ids, np.ndarray, np.ndarray | None, Callable[[int], str]]"


def _rated(path: Path, format: str, scale: str) -> _Read:
    """The users, items, ratings and times of a file, and the place of a row."""
    rows = FORMATS[format].rows
    return _table_columns(path, scale) if rows is None else _text_columns(path, rows)


def _text_columns(path: Path, rows: Callable[[Path], Iterator[tuple[Any, ...]]]) -> _Read:
    """The users, items, ratings and times of the lines of a format, and the place of a line."""
    fields, times = _gathered((line, parts) for line, *parts in rows(path)), None
    if len(fields.width) and fields.width.min() > 3:
        with suppress(DataError):  # of times, which are optional
            times = fields.numbers(path, 3, "time", finite=True)
    users, items = (fields.ids(fields.place == place) for place in (0, 1))
    return users, items, fields.numbers(path, 2, "rating"), times, partial(fields.at, path)


def _table_columns(path: Path, scale: str) -> _Read:
    """The users, items, ratings and times of a table, and the place of a row; without names, they are its first columns."""
    roles: dict[str, str | None] = dict.fromkeys(_COLUMNS[:3])
    names: Sequence[str] = ()
    advice = ""
    if is_csv(path) or not is_table(path):
        first = read_header(path, _COLUMNS).names
        found_in = _columns_of(path, first, roles)
        if len(first) in (3, 4) and math.isfinite(_number(first[2])):
            names = _COLUMNS[: len(first)] if None in found_in else ()
        elif not any(found_in):
            advice = "without column names, there are 3 or 4 columns: user, item, rating (a number), time"
    table = TableReader(path, roles, argument="", names=names, advice=dict.fromkeys(roles, advice))
    name = table.columns["rating"]
    flags = table.header.are_flags(name) if table.header else str(table.kinds[name]) == "bool"
    if flags and scale != "binary":
        way = Way("scale", "binary", "set {} if they are ratings")
        raise DataError(f"{path}: expected numbers in column {name!r}, got True and False", way)
    timed = usual_columns(table.names, "time")
    if len(timed) == 1:
        table.columns["time"] = timed[0]
    try:
        found = table.read(["rating"])
    except DataError:  # perhaps of times, which are optional
        table.columns.pop("time", None)
        found = table.read(["rating"])
    times = found.get("time")
    if times is not None and not np.isfinite(times).all():
        times = None
    return found["user"], found["item"], found["rating"], times, table.place


def _columns_of(path: Path, names: Sequence[str], roles: Iterable[str]) -> list[str | None]:
    return list(find_columns(path, names, dict.fromkeys(roles), argument="").values())


def read_movielens_fold(folder: str | os.PathLike[str], fold: int) -> tuple[Ratings, Ratings]:
    """Read `(base, test)` of MovieLens 100K, `u<fold>.base` and `u<fold>.test`, aligned; raises as `read_ratings` does.

    Users and items of the test that are not in the base are a warning; DataError is raised if none is.
    """
    paths = [Path(folder) / f"u{fold}.{part}" for part in ("base", "test")]
    base, test = align([read_ratings(path, "movielens100k") for path in paths])
    _check_known(base, test, paths[0], paths[1])
    return base, test


def _check_known(train: Ratings, part: Ratings, source: Path, path: Path, advice: str = "") -> None:
    """Report the users and items of a part, with the same indices, that have no ratings in training; see `check_matched`."""
    for what, names in (("user", part.user_names), ("item", part.item_names)):
        occurring = np.unique(getattr(part, what))
        matched = np.isin(occurring, getattr(train, what))
        check_matched(
            matched,
            names[occurring],
            what=f"{what}s of {path}",
            source=str(source),
            advice=advice or _UNSEEN,
            stacklevel=5,
        )


_UNSEEN = "nothing is learnt about them, and they count in the measures"


def read_interactions(
    *paths: str | os.PathLike[str],
    times: bool | Literal["order"] | None = None,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    min_rating: float | None = None,
) -> Ratings | list[Ratings]:
    r"""Read one or several files of interactions; several have common indices of users and items.

    Args:
        paths: tables with columns `user`, `item` and optionally `time`, or other usual names of these, such as `userId`,
            `item_id` and `timestamp`, of which other columns are ignored: `.parquet`, `.feather`, `.arrow`, and files with a
            header, `.csv`, `.tsv`, RecBole's `.inter` or any other name; or text files of lines `user item item ...`, separated
            by blanks or tabs, where a user may have several lines and a line no item, and those that start with `#` and a blank
            are ignored. CSV and text files are in UTF-8 and may be compressed. Names are without blanks or, in text files,
            quotation marks around them, and ids that all end with `.0` in a file are integers.
        times: whether lines of text files are `user item time`; tables then must have a column of times. If None, they are
            `user item item ...`, and it is an error if the last of three fields of every line looks like a rating (all are
            numbers up to 100, a fraction, a negative number or a few numbers that repeat) or a time since 1990; False reads
            them as items. So does `"order"`, with their places in the file, from 0, as times; it is for text files.
        user, item, time: the columns of tables, if they have other names.
        min_rating: only rows of a table whose `rating` is at least this count, and lines of text files are ratings, `user item
            rating` or `user item rating time` as in `read_ratings`; None for all rows of a table, which is a warning if ratings
            differ.

    Repeated interactions count once. A user or item without interactions in one of several files is in the indices of all.

    Returns:
        The interactions of the file, or a list for several files.

    Raises:
        DataError: a file is missing, empty or malformed, or has ratings; the message has file and line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     train, test = Path(folder) / "train.txt", Path(folder) / "test.txt"
    ...     _ = train.write_text("ann x y\nbob y\n"), test.write_text("bob x\n")
    ...     [part.to_csr().toarray().tolist() for part in read_interactions(train, test)]
    [[[1.0, 1.0], [0.0, 1.0]], [[0.0, 0.0], [1.0, 0.0]]]
    """
    if wrong := [path for path in paths if not isinstance(path, str | os.PathLike)]:
        raise TypeError(
            f"paths must be one or several paths, read_interactions(train, test); got {shortened(wrong[0])}"
        )
    columns = {"user": user, "item": item, "time": time}
    parts = list(map(partial(_interactions_of, times=times, columns=columns, min_rating=min_rating), map(Path, paths)))
    return parts[0] if len(parts) == 1 else align(parts)


def _interactions_of(
    path: Path, times: bool | Literal["order"] | None, columns: dict[str, str | None], min_rating: float | None
) -> Ratings:
    """The interactions of a file."""
    check_choice("times", times, (True, False, None, "order"))
    if min_rating is None and any(map(path.match, ("u.data", "*.base", "ratings.dat"))):
        raise _has_ratings(path)
    if is_table(path) or (
        path.is_file()
        and (any(columns.values()) or None not in _columns_of(path, read_header(path, ["user"]).names, _COLUMNS[:2]))
    ):
        ids, when = rows_that_count(TableReader(path, columns, optional=("time",)), min_rating)
    elif min_rating is not None:
        ids, when = _ratings_that_count(path, min_rating)
    else:
        ids, when = _read_lines(path, False if times == "order" else times)
        if times == "order":
            when, times = np.arange(len(ids["user"].places)), None
    if times == "order":
        raise DataError(
            f"{path}: times='order' is for text files of lines user item item ..., this has ratings or is a table; omit it"
        )
    if when is None and times:
        raise DataError(f"{path}: times is set, but there is no column of times, such as 'time' or 'timestamp'")
    if not len(ids["user"].places):
        raise DataError(f"{path} has no interactions")
    return interactions(ids["user"], ids["item"], times=when)


def _ratings_that_count(path: Path, min_rating: float) -> tuple[dict[str, Ids], np.ndarray | None]:
    """The users, items and times of the lines of a text file of ratings that are at least `min_rating`."""
    check_numbers(optional=True, min_rating=min_rating)
    users, items, values, when, _ = _rated(*find_ratings(path, scale="stars"), "stars")
    return of_those_that_count({"user": users, "item": items}, when, values, min_rating, str(path))


class _Fields(NamedTuple):
    """The fields of all lines of a file.

    Attributes:
        words: the different ones.
        word: `[fields]` the index of each field's word.
        place: `[fields]` the place of each field in its line, from 0.
        width: `[lines]` the number of fields of each line.
        number: `[lines]` the number of each line in the file.
    """

    words: list[str]
    word: np.ndarray
    place: np.ndarray
    width: np.ndarray
    number: np.ndarray

    def at(self, path: Path, line: int) -> str:
        """The place of a line, by its index, for messages."""
        return f"{path}, line {self.number[line]}"

    def ids(self, chosen: np.ndarray) -> Ids:
        """The words of some fields."""
        different, places = np.unique(self.word[chosen], return_inverse=True)
        return Ids(np.array([*(self.words[at] for at in different.tolist()), None], object)[:-1], places)

    def numbers(self, path: Path, place: int, what: str, *, finite: bool = False) -> np.ndarray:
        """The numbers `[lines]` at a place that all lines have, integers if all are."""
        column = self.ids(self.place == place)
        if all(map(_INTEGER.fullmatch, column.names)):
            return np.array(list(map(int, column.names)), np.int64)[column.places]
        is_right = (lambda word: not math.isnan(_number(word))) if finite else is_number
        wrong = next((at for at, word in enumerate(column.names) if not is_right(word)), None)
        if wrong is not None:
            line = self.at(path, int((column.places == wrong).argmax()))
            raise DataError(f"{line}: expected a number as {what}, got {shortened(column.names[wrong])}")
        return np.array(list(map(parse_number, column.names)))[column.places]


def _gathered(lines: Iterable[tuple[int, Sequence[str]]]) -> _Fields:
    """The fields of numbered lines."""
    known: dict[str, int] = {}
    word, width, number = array("q"), array("q"), array("q")
    for at, fields in lines:
        word.extend([known.setdefault(field, len(known)) for field in fields])
        width.append(len(fields))
        number.append(at)
    widths = np.array(width)
    place = np.arange(len(word)) - np.repeat(np.cumsum(widths) - widths, widths)
    return _Fields(list(known), np.array(word), place, widths, np.array(number))


def _read_lines(path: Path, timed: bool | None) -> tuple[dict[str, Ids], np.ndarray | None]:
    """The users, items and times of lines `user item item ...` or, if `timed`, `user item time`.

    Raises:
        DataError: a line is no such line; or, if `timed` is None, the file may be of another format.
    """
    fields = _gathered(_lines_of_items(path, bool(timed)))
    for at, word in enumerate(fields.words):
        if '"' in word:
            line = int(np.searchsorted(fields.width.cumsum(), (fields.word == at).argmax(), "right"))
            fields.words[at] = _unquoted(fields.at(path, line), word)
    users, items = fields.ids(fields.place == 0), fields.ids(fields.place == 1 if timed else fields.place > 0)
    if timed:
        return {"user": users, "item": items}, fields.numbers(path, 2, "time", finite=True)
    if len(users.names) and not len(items.names):
        raise DataError(
            f"{path} has no interactions: every line has one field, such as {shortened(fields.words[0])}; separate users and "
            "items by blanks, or name the file .csv, with column names such as user,item in the first line"
        )
    if timed is None and len(items.names):
        _check_separators(path, fields, items)
        _check_values(path, fields)
    return {"user": users._replace(places=np.repeat(users.places, fields.width - 1)), "item": items}, None


def _lines_of_items(path: Path, timed: bool) -> Iterator[tuple[int, list[str]]]:
    """The fields of all lines that are no comments."""
    first = True
    for number, line in _lines(path):
        if line == "#" or line.startswith(("# ", "#\t")):
            continue
        fields = split_blanks(line)
        if first:
            _refuse_header(path, number, line, fields)
            first = False
        if line[0] in "{[" and not _BRACKETED.fullmatch(fields[0]):
            raise DataError(
                f"{path}, line {number}: expected user item item ..., got what looks like JSON, {shortened(line)}; write a "
                "table with columns user and item, such as pandas.read_json(path, lines=True).to_csv(...)"
            )
        if timed and len(fields) != 3:
            raise DataError(f"{path}, line {number}: expected user item time, got {shortened(line)}")
        yield number, fields


def _check_separators(path: Path, fields: _Fields, items: Ids) -> None:
    """Raise DataError for lines with other separators, or of items with their ratings."""
    inner = fields.ids(fields.place < np.repeat(fields.width - 1, fields.width)).names
    table = "name the file .csv, with column names such as user,item in the first line"
    said = ""
    if mark := next((mark for mark in ",;" if all(word.endswith(mark) for word in inner)), None):
        said = f"every field but the last ends with {mark!r}; {table}"
    elif (
        fields.width.min() > 2 and len(between := fields.ids(fields.place % 2 == 1).names) == 1 and between[0] in _MARKS
    ):
        said = f"every second field is {between[0]!r}; {table}"
    elif fields.width.min() > 1 and all(map(_PAIR.fullmatch, items.names)):
        parts = [word.rpartition(":") for word in items.names]
        values = {_number(part[2]) for part in parts}
        if len({part[0] for part in parts}) > 1 and _are_ratings(values, len(items.places)):
            said = (
                f"every item has the form item:number, such as {shortened(fields.words[1])}; write a table with columns user, "
                f"item and rating; {_ITEMS}"
            )
    if said:
        raise DataError(f"{path}: expected lines user item item ..., but {said}")


def _check_values(path: Path, fields: _Fields) -> None:
    """Raise DataError for lines of a rating or a time after user and item."""
    width, number = int(fields.width[0]), len(fields.width)
    if not (3 <= width <= 5 and (fields.width == width).all()):
        return
    words = [fields.ids(fields.place == place).names.tolist() for place in range(1, width)]
    kinds = [_kind(each, number) for each in words[1:]]
    if any(map(_is_time, words[0])):  # so are items
        kinds = ["item" if kind == "time" else kind for kind in kinds]
    if (len(kinds) == 2 and kinds[0] != "time" == kinds[1]) or (kinds[0] == "rating" and kinds[1:2] == ["date"]):
        raise _has_ratings(path)
    if kinds[0] == "date" or (len(kinds) == 1 and kinds[0] in ("time", "rating")):
        ways: dict[str, Way | str] = {
            "time": Way("times", True, "set {} if it is one", "write a table with columns user, item and time"),
            "date": "write a table with columns user, item and time",
            "rating": "write a table with columns user, item and rating",
        }
        raise DataError(
            f"{path}: expected lines user item item ..., but the third of {width} fields looks like a {kinds[0]}, such as "
            f"{shortened(max(words[1])).strip(chr(39))}",
            ways[kinds[0]],
            _ITEMS,
        )


_ITEMS = Way("times", False, "or set {} if they are items")
_MARKS = (",", ";", "|", "::")
_BRACKETED = re.compile(r"""\{[^\s"':,{}]+\}|\[[^\s"':,\[\]]+\]""")
_PAIR = re.compile(r".+:[-+]?\d+(\.\d+)?")
_INTEGER = re.compile(r"[-+]?\d{1,18}|[-+]?[1-8]\d{18}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?(T.*)?|\d{4}/\d\d?/\d\d?|\d\d?[./]\d\d?[./]\d{4}")


def _kind(words: Collection[str], number: int) -> str:
    """What the words of one field of all lines look like: "date", "time", "rating", or "item"."""
    if all(map(_DATE.fullmatch, words)):
        return "date"
    if all(map(_is_time, words)):
        return "time"
    values = {_number(word) for word in words}
    return "rating" if not any(map(math.isnan, values)) and _are_ratings(values, number) else "item"


def _are_ratings(values: Collection[float], number: int) -> bool:
    """Whether numbers that occur in this number of places are like ratings or counts, not like ids."""
    odd = any(value % 1 or value < 0 for value in values)
    return odd or all(value <= 100 for value in values) or 4 * len(values) <= number


def _is_time(word: str) -> bool:
    """Whether a field looks like a number of `are_epochs`."""
    return bool(are_epochs(np.array(_number(word))))


def _refuse_header(path: Path, number: int, line: str, fields: Collection[str]) -> None:
    """Raise DataError for a first line of column names, or of ratings with another separator."""
    if "::" in line:
        raise _has_ratings(path)
    if all({field.casefold() for field in fields} & set(USUAL[role]) for role in ("user", "item")):
        raise DataError(
            f"{path}, line {number}: expected user item item ..., got column names, {shortened(line)}; separate columns by tabs "
            "or commas, or remove this line"
        )


def _has_ratings(path: Path) -> DataError:
    way = Way("min_rating", 4, "set {} if ratings from 4 count", "write a table with columns user, item and time")
    return DataError(f"{path}: expected interactions, got ratings", way)


@dataclass(frozen=True)
class _Source:
    """Where ratings or interactions come from."""

    path: str | None = None
    builtin: str | None = None

    def _check_choices(self, path: str, **choices: Collection[Any]) -> None:
        """Raise ValueError unless there is a path, told in words, or a built-in set, and options have values of theirs."""
        if (self.path is None) == (self.builtin is None):
            raise ValueError(
                f"give either data.path ({path}) or data.builtin ({', '.join(BUILTIN_RATINGS)}); got path {self.path!r} and "
                f"builtin {self.builtin!r}"
            )
        for name, known in {"builtin": (None, *BUILTIN_RATINGS), **choices}.items():
            check_choice(f"data.{name}", getattr(self, name), known)

    def _synthetic(self, seed: int) -> Ratings:
        return synthetic_ratings(users=400, items=150, rated=60, seed=seed)


@dataclass(frozen=True)
class RatingsSource(_Source):
    """The source of ratings, and their split.

    Args:
        path: a file of ratings, or a folder with `u.data` (MovieLens 100K), `ratings.dat` (1M) or `ratings.csv`; or set
            `builtin`.
        builtin: `"synthetic"`, ratings from a known factorisation, which needs no file.
        format: see `read_ratings`; None infers it from the file name.
        scale: the rating scale: `"stars"` (1 to 5), `"half-stars"` (0.5 to 5), `"centred"` (-10 to 10) or `"binary"`; None
            for that of the format.
        split: `"weak"`: `num_train` ratings of each user are known, and the others are for the test. `"strong"`: the test is on
            new users, of whom `num_train` ratings are known. `"fold"`: the files `u<fold>.base` and `u<fold>.test` of a folder.
        fold: the fold number, for the split `"fold"` only.
        num_train: N, number of known ratings per user; like `min_test` and `new_users` not for the split `"fold"`.
        min_test: users with fewer than `num_train + min_test` ratings are left out, and counted.
        validation: fraction of a user's known ratings for validation; not for the split `"strong"`.
        new_users: fraction of users that are new in the test, and in validation, for the split `"strong"`.
        seed: seed of the built-in set and of the split.

    >>> RatingsSource(builtin="synthetic").read().train.num_users
    400
    """

    format: str | None = None
    scale: str | None = None
    split: str = "weak"
    fold: int | None = None
    num_train: int = 20
    min_test: int = 10
    validation: float = 0.2
    new_users: float = 0.1
    seed: int = 0

    def check(self) -> None:
        """Validate the options and the path without reading data.

        Raises:
            ValueError: inconsistent options, an unknown name, or a missing path; the message is one line.
        """
        choices = {"split": ("weak", "strong", "fold"), "format": (None, *FORMATS), "scale": (None, *SCALES)}
        self._check_choices("ratings, such as u.data of MovieLens or a CSV file", **choices)
        if (self.split == "fold") != (self.fold is not None):
            raise ValueError(
                f"data.fold is for data.split fold only, which requires it; got fold {self.fold!r}, split {self.split!r}"
            )
        if self.split == "fold" and self.path is None:
            raise ValueError("data.split fold requires data.path, the folder of MovieLens 100K")
        if self.split != "fold":
            check_integers(1, **{"data.num_train": self.num_train, "data.min_test": self.min_test})
        if self.split == "strong":
            check_numbers("> 0 and < 0.5", **{"data.new_users": self.new_users})
        else:
            check_numbers("> 0 and < 1", **{"data.validation": self.validation})
        if self.path is not None and self.split != "fold":
            find_ratings(self.path, self.format, self.scale)

    def files(self) -> list[Path]:
        """The files that are read, none of a built-in set; raises DataError if one is missing."""
        if self.path is None:
            return []
        if self.fold is None:
            return [find_ratings(self.path, self.format, self.scale)[0]]
        found = [Path(self.path) / f"u{self.fold}.{part}" for part in ("base", "test")]
        if missing := next((file for file in found if not file.is_file()), None):
            raise DataError(f"{missing}: no such file")
        return found

    def read(self) -> RatingsParts:
        """Read training, validation and test ratings; raises as `check`, `read_ratings` and `divide` do."""
        self.check()
        if self.path is not None and self.fold is not None:
            base, test = read_movielens_fold(self.path, self.fold)
            return _parts(*hold_out(base, self.validation, seed=self.seed), test)
        if self.path is None:
            return self.divide(self._synthetic(self.seed))
        return self.divide(read_ratings(self.path, self.format, scale=self.scale))

    def divide(self, ratings: Ratings) -> RatingsParts:
        """Split ratings for training, validation and test.

        Raises:
            ValueError: another split than weak and strong, a number out of range, an empty part, or no user with enough ratings.

        >>> parts = RatingsSource(split="strong", num_train=10).divide(synthetic_ratings(users=20, rated=30))
        >>> parts.test_given.num_ratings, parts.test.num_ratings, parts.train.num_ratings
        (20, 40, 480)
        """
        counts = {"num_train": self.num_train, "min_test": self.min_test, "seed": self.seed}
        if self.split == "weak":
            found = weak_split(ratings, **counts)
            return _parts(*hold_out(found.train, self.validation, seed=self.seed), found.test, found.left_out)
        check_choice("split", self.split, ("weak", "strong"))
        check_numbers("> 0 and < 0.5", new_users=self.new_users)
        judged = strong_split(ratings, test_users=self.new_users, **counts)
        steered = strong_split(judged.train, test_users=self.new_users / (1 - self.new_users), **counts)
        return RatingsParts(steered.train, steered.given, steered.test, judged.given, judged.test, judged.left_out)


def _parts(train: Ratings, vali: Ratings, test: Ratings, left_out: int = 0) -> RatingsParts:
    """The parts, in which all users are known from training; raises DataError if one is empty."""
    counts = {"training": train.num_ratings, "validation": vali.num_ratings, "test": test.num_ratings}
    for name, count in counts.items():
        if not count:
            found = ", ".join(f"{number} for {part}" for part, number in counts.items())
            raise DataError(
                f"nothing is left for {name}: {found}; one of each user is always for training: use data of users with more, "
                "larger shares, such as data.validation, or a folder with files for training, validation and test"
            )
    return RatingsParts(train, nothing(train), vali, nothing(train), test, left_out)


@dataclass(frozen=True)
class InteractionsSource(_Source):
    """The source of interactions, and their split.

    Args:
        path: a folder with `train`, `valid` (or `vali`) and `test` files of one format, `.txt`, `.csv`, `.tsv`, `.inter` or
            `.parquet`, or without `valid`, which is then held out of training; or one file, which is split. See
            `read_interactions`. Interactions of a folder that are in a file before, in this order, are left out and counted;
            users and items that are not in training are a warning, and an error if none of a file is.
        builtin: `"synthetic"`, the synthetic ratings of 4 and 5 stars, which needs no file; or set `path`.
        times: whether lines of text files are `user item time`, not `user item item ...`; see `read_interactions`.
        core: users and items with fewer interactions are dropped; 1 keeps all. Like `split` and `test_share` not for a folder.
        split: how one file is split. `"ratio"`: `test_share` of each user's interactions, at random. `"leave-one-out"`: the last
            of each user with more, and the one before for validation, or random ones without times, which is logged. `"time"`:
            the latest.
        test_share: fraction of the interactions for the test, for the splits `"ratio"` and `"time"`.
        validation: fraction of the others for validation.
        seed: seed of the built-in set and of the split.
        min_rating: only rows of tables, or lines of ratings, with at least this rating count; see `read_interactions`.

    >>> parts = InteractionsSource(builtin="synthetic").read()
    >>> parts.train.scale, parts.vali.num_ratings > 0
    ('binary', True)
    """

    times: bool | None = None
    core: int = 1
    split: str = "ratio"
    test_share: float = 0.2
    validation: float = 0.1
    seed: int = 0
    min_rating: float | None = None

    def check(self) -> None:
        """Validate the options and the path without reading data; raises ValueError, of one line."""
        path = "a folder with train.txt, valid.txt and test.txt, or one file of interactions"
        self._check_choices(path, split=("ratio", "leave-one-out", "time"))
        check_integers(1, **{"data.core": self.core})
        check_numbers("> 0 and < 1", **{"data.test_share": self.test_share, "data.validation": self.validation})
        if self.path is not None and len(self.files()) > 1:
            for name in ("core", "split", "test_share"):
                if (value := getattr(self, name)) != getattr(InteractionsSource, name):
                    raise ValueError(f"data.{name} is for one file, not for a folder, got {value!r}")

    def files(self) -> list[Path]:
        """The file, or those of the folder: training, validation if there is one, and test; none of a built-in set.

        Raises:
            DataError: one is missing, or there are two for validation.
        """
        if self.path is None:
            return []
        path = Path(self.path)
        if not path.exists():
            raise DataError(
                f"{path}: no such file or folder; expected interactions, such as train.txt, valid.txt and test.txt"
            )
        if path.is_file():
            return [path]
        suffixes = (".txt", ".csv", ".tsv", ".inter", ".parquet")
        suffix = next((each for each in suffixes if (path / f"train{each}").is_file()), None)
        if suffix is None or not (path / f"test{suffix}").is_file():
            raise DataError(
                f"{path} has no train.txt and test.txt (or both {', '.join(suffixes[1:])}); give the file itself"
            )
        names = ("train", "valid", "vali", "test")
        found = [path / f"{name}{suffix}" for name in names if (path / f"{name}{suffix}").is_file()]
        if len(found) == len(names):
            raise DataError(f"{path} has two files for validation, {found[1].name} and {found[2].name}; remove one")
        return found

    def read(self) -> RatingsParts:
        """Read training, validation and test interactions; raises as `check`, `read_interactions` and `divide` do."""
        self.check()
        if self.path is None:
            return self.divide(implicit(self._synthetic(self.seed), 4))
        files = self.files()
        found = read_interactions(*files, times=self.times, min_rating=self.min_rating)
        if isinstance(found, Ratings):
            if self.split == "time" and found.time is None:
                raise DataError(
                    f"{self.path}: the split 'time' requires times, in a column, or in lines with data.times true"
                )
            return self.divide(found)
        parts = found[:1]
        for path, part in zip(files[1:], found[1:], strict=True):
            _check_known(found[0], part, files[0], path)
            parts.append(without(part, *parts))
            if again := part.num_ratings - parts[-1].num_ratings:
                before = " or ".join(file.name for file in files[: files.index(path)])
                if not parts[-1].num_ratings:
                    raise DataError(f"{path}: all {again} interactions are in {before} too, and would be left out")
                _log.warning("%s: %d interactions that are in %s too are left out", path, again, before)
        train, *vali, test = parts
        if not vali:
            train, *vali = hold_out(train, self.validation, seed=self.seed)
        return _parts(train, vali[0], test)

    def divide(self, ratings: Any) -> RatingsParts:
        """Split interactions for training, validation and test; raises ValueError for a number out of range or an empty part."""
        ratings = k_core(interactions(ratings), self.core)
        if self.split == "time":
            known, test = split_by_time(ratings, self.test_share)
            train, vali = split_by_time(known, self.validation)
        else:
            alone = self.split == "leave-one-out"
            if alone and ratings.time is None:
                _log.warning("the interactions have no times: leave-one-out holds out random ones, not the last")
            options: dict[str, Any] = {"latest": alone and ratings.time is not None, "seed": self.seed}
            known, test = hold_out(ratings, 1 if alone else self.test_share, **options)
            train, vali = hold_out(known, 1 if alone else self.validation, **options)
        return _parts(train, vali, test)
