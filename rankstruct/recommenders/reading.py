"""Files of ratings: formats, and one description of where ratings come from and how they are split."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rankstruct.data import DataError
from rankstruct.data.errors import shortened
from rankstruct.data.text import SPACE, Separator, field_rows, parse_number, split_at, text_lines
from rankstruct.recommenders.ratings import SCALES, Ratings, align, synthetic_ratings
from rankstruct.recommenders.splits import RatingsParts, hold_out, nothing, strong_split, weak_split

__all__ = [
    "RatingsFormat",
    "RatingsSource",
    "read_genres",
    "read_movielens_fold",
    "read_ratings",
    "read_titles",
    "register_ratings_format",
]

SPLITS = ("weak", "strong", "fold")
BUILTIN_RATINGS = ("synthetic",)


class RatingsFormat(NamedTuple):
    """How a file of ratings is read.

    Attributes:
        rows: from a path to `(line number, user, item, rating)`, all but the first as text, one for each rating.
        scale: what the ratings mean, see `Ratings`; None where the user has to say it.
        names: patterns of file names that say this format, such as `"*.csv"`; one without `*` is looked for in a folder.
    """

    rows: Callable[[Path], Iterator[tuple[int, str, str, str]]]
    scale: str | None = None
    names: tuple[str, ...] = ()


def _lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Numbers and content of the lines that are not empty."""
    if not path.exists():
        raise DataError(f"{path}: No such file or directory; give a file of ratings")
    for number, line in text_lines(path, encoding, newline=""):
        if stripped := line.strip(SPACE):
            yield number, stripped


def _delimited(path: Path, separator: str | None, *counts: int) -> Iterator[tuple[int, str, str, str]]:
    """Rows of as many fields as the first, one of `counts`: user, item, rating first, or where the first line of CSV says."""
    lines, columns = _lines(path), " ".join(("user", "item", "rating", "time")[: max(counts)])
    where: tuple[int, ...] = (0, 1, 2)
    if separator == ",":
        lines, header = _header(lines)
        if header:
            columns, counts = " ".join(header), (len(header),)
            where = tuple(header.index(name) for name in ("user", "item", "rating"))

    def fits(fields: list[str]) -> bool:
        try:
            return math.isfinite(parse_number(fields[where[2]]))
        except ValueError:
            return False

    split = _SEPARATORS[separator]
    for number, parts in field_rows(path, lines, columns, fits, counts=counts, separator=split):
        user, item, rating = (parts[i] for i in where)
        if not user or not item:
            raise DataError(f"{path}, line {number}: expected a user and an item, got {shortened(', '.join(parts))}")
        yield number, user, item, rating


def _header(lines: Iterator[tuple[int, str]]) -> tuple[Iterator[tuple[int, str]], list[str]]:
    """The lines of a CSV file but for names of columns and remarks before them, and the names; or all, and none."""
    before = []
    for number, line in lines:
        before.append((number, line))
        if line[0] != "#":
            try:
                names = [name.lower() for name in _cells(line)]
            except csv.Error:  # who reads the rows says what is wrong
                break
            if {"user", "item", "rating"} <= set(names):
                return lines, names
            break
    return chain(before, lines), []


def _cells(line: str) -> list[str]:
    return [part.strip(SPACE) for part in next(csv.reader([line]))]


_SEPARATORS = {
    None: None,
    "\t": Separator("tabs", split_at),
    "::": Separator("'::'", partial(split_at, separator="::")),
    ",": Separator("commas", _cells),
}


def _format(
    separator: str | None, *columns: int, scale: str | None = None, names: tuple[str, ...] = ()
) -> RatingsFormat:
    return RatingsFormat(lambda path: _delimited(path, separator, *columns), scale, names)


FORMATS = {
    "movielens100k": _format("\t", 4, scale="stars", names=("u.data", "*.base", "*.test")),
    "movielens1m": _format("::", 4, scale="stars", names=("ratings.dat",)),
    "jester": _format(None, 3, scale="centred"),
    "text": _format(None, 3, 4),
    "csv": _format(",", 3, 4, names=("*.csv",)),
}


def register_ratings_format(name: str, form: RatingsFormat) -> None:
    """Let `format=name`, in Python and in configs, mean a format of one's own; raises ValueError for a name that is taken."""
    if name in FORMATS:
        raise ValueError(f"name must be none of {', '.join(FORMATS)}, which are taken; got {name!r}")
    FORMATS[name] = form


def find_ratings(path: str | os.PathLike[str], format: str | None = None, scale: str | None = None) -> tuple[Path, str]:
    """The file with the ratings and its format, by what names say if `format` is None, else `"text"` if there is a scale.

    A folder is searched for the files that formats name, such as `u.data` (MovieLens 100K) and `ratings.dat` (1M), then for
    `ratings.csv` and `ratings.txt`. Where there is no such file, or it does not say its format, this raises DataError.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; expected ratings, such as u.data of MovieLens or a CSV file")
    if path.is_dir():
        plain = [name for form in FORMATS.values() for name in form.names if "*" not in name]
        names = [*plain, "ratings.csv", "ratings.txt"]
        found = [path / name for name in names if (path / name).is_file()]
        if not found:
            raise DataError(f"{path} has none of {', '.join(names)}; give the file itself")
        path = found[0]
    told = [name for name, form in FORMATS.items() if any(map(path.match, form.names))]
    if not (format or told or scale):
        raise DataError(
            f"{path}: its name does not say its format; give data.format, such as jester, or text with data.scale"
        )
    return path, format or (*told, "text")[0]


def read_ratings(path: str | os.PathLike[str], format: str | None = None, *, scale: str | None = None) -> Ratings:
    r"""Read a file with one rating a line: user, item, rating, and for some a time, which is not kept.

    Args:
        path: the file, UTF-8, or a folder with `u.data`, `ratings.dat`, `ratings.csv` or `ratings.txt`. Blank lines say nothing,
            nor do those of `#` and a blank, unless they have all fields and a number as rating. All lines have as many fields.
        format: `"movielens100k"` (tabs: `u.data`, `u1.base`), `"movielens1m"` (`::`), `"jester"` and `"text"` (tabs or blanks,
            as the first line has),
            `"csv"` (commas; a first line with `user`, `item` and `rating` tells where they are, and without it they come first),
            or one of `register_ratings_format`; None to tell it from the file's name, or `"text"` where that says
            none and there is a scale.
        scale: what ratings mean, see `Ratings`; MovieLens' are `"stars"`, Jester's `"centred"`, others need to be told.

    Raises:
        DataError: the file is absent or has no rating, or a line breaks the format; the message has file and line.
        ValueError: an unknown format, or no scale where it is needed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "ratings.csv"
    ...     _ = path.write_text("item,user,rating\nx,ann,5\ny,ann,2\n")
    ...     read_ratings(path, scale="stars").item_names.tolist()
    ['x', 'y']
    """
    if format is not None and format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    if format is None or Path(path).is_dir():
        path, format = find_ratings(path, format, scale)
    path = Path(path)
    scale = FORMATS[format].scale if scale is None else scale
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)} for the format {format!r}, got {scale!r}")
    lowest, highest = SCALES[scale][:2]
    rows = list(FORMATS[format].rows(path))
    if not rows:
        raise DataError(f"{path} has no ratings")
    values, seen = [], set()
    for line, user, item, text in rows:
        try:
            values.append(parse_number(text))
        except ValueError:
            raise DataError(f"{path}, line {line}: expected a number as rating, got {shortened(text)}") from None
        if not lowest <= values[-1] <= highest:
            expected = f"a rating from {lowest} to {highest} (scale {scale!r})"
            raise DataError(f"{path}, line {line}: expected {expected}, got {shortened(text).strip(chr(39))}")
        if (user, item) in seen:
            raise DataError(f"{path}, line {line}: user {shortened(user)} rates item {shortened(item)} again")
        seen.add((user, item))
    _, users, items, _ = zip(*rows, strict=True)
    try:
        return Ratings.from_arrays(users, items, values, scale=scale)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def read_movielens_fold(folder: str | os.PathLike[str], fold: int) -> tuple[Ratings, Ratings]:
    """`(base, test)` of MovieLens 100K, `u<fold>.base` and `u<fold>.test`, with one numbering; raises as `read_ratings` does."""
    base, test = align([read_ratings(Path(folder) / f"u{fold}.{part}", "movielens100k") for part in ("base", "test")])
    return base, test


def read_titles(path: str | os.PathLike[str]) -> dict[str, str]:
    """Names of the films of MovieLens, by item: lines `item|title|...` (`u.item`) or `item::title::...` (`movies.dat`).

    Raises:
        DataError: the file is absent, or a line has no title.
    """
    found = {}
    for number, line in _lines(Path(path), "latin-1"):
        if line[0] == "#":
            continue
        parts = line.split("::" if "::" in line else "|")
        if len(parts) < 2:
            raise DataError(f"{path}, line {number}: expected item|title or item::title, got {shortened(line)}")
        found[parts[0]] = parts[1]
    return found


def read_genres(path: str | os.PathLike[str], items: Iterable[str]) -> np.ndarray:
    """Genres of the films of MovieLens 100K, `[items, 19]` of 0 and 1: lines `item|title|date|date|address|0|1|...` (`u.item`).

    Args:
        path: the file.
        items: names, such as the `item_names` of ratings; one that is not in the file has no genre.

    Raises:
        DataError: the file is absent, or a line does not end with 19 fields of 0 or 1.
    """
    found = {}
    for number, line in _lines(Path(path), "latin-1"):
        if line[0] == "#":
            continue
        parts = line.split("|")
        if len(parts) != 24 or not set(parts[5:]) <= {"0", "1"}:
            raise DataError(f"{path}, line {number}: expected 24 fields, the last 19 of 0 or 1, got {shortened(line)}")
        found[parts[0]] = [float(part) for part in parts[5:]]
    return np.array([found.get(item, [0.0] * 19) for item in items]).reshape(-1, 19)


@dataclass(frozen=True)
class RatingsSource:
    """Where ratings come from, and how they are split.

    Args:
        path: the ratings: a file, or a folder with `u.data` (MovieLens 100K), `ratings.dat` (1M) or `ratings.csv`; or give
            `builtin`.
        builtin: `"synthetic"`, ratings of a known factorisation, which needs no file.
        format: see `read_ratings`; None to tell it from the file's name.
        scale: what ratings mean: `"stars"` (1 to 5), `"centred"` (-10 to 10) or `"binary"`; None where the format says it.
        split: `"weak"`: of each user `num_train` ratings are known and the others tested. `"strong"`: tested are new users, of
            whom `num_train` ratings are given. `"fold"`: the files `u<fold>.base` and `u<fold>.test` of a folder.
        fold: for the split `"fold"` alone.
        num_train: N, ratings a user that are known; as `min_test` and `new_users` not for the split `"fold"`.
        min_test: users with fewer than `num_train + min_test` ratings are left out, and counted.
        validation: the share of a user's known ratings that steer the training; not for the split `"strong"`.
        new_users: the share of users that are new at the test, and as many at validation, in the split `"strong"`.
        seed: of the built-in set and of the split.

    >>> RatingsSource(builtin="synthetic").read().train.num_users
    400
    """

    path: str | None = None
    builtin: str | None = None
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
        """Look, without reading, whether this can be read.

        Raises:
            ValueError: options that do not fit together, an unknown name, or a path that does not exist; one line.
        """
        if (self.path is None) == (self.builtin is None):
            raise ValueError(
                f"give data.path (ratings, such as u.data of MovieLens or a CSV file) or data.builtin "
                f"({', '.join(BUILTIN_RATINGS)}), one of them; got path {self.path!r} and builtin {self.builtin!r}"
            )
        for name, value, known in (
            ("builtin", self.builtin, (None, *BUILTIN_RATINGS)),
            ("split", self.split, SPLITS),
            ("format", self.format, (None, *FORMATS)),
            ("scale", self.scale, (None, *SCALES)),
        ):
            if value not in known:
                raise ValueError(f"data.{name} must be one of {', '.join(filter(None, known))}, got {value!r}")
        if (self.split == "fold") != (self.fold is not None):
            raise ValueError(
                f"data.fold goes with data.split fold, and with it alone; got fold {self.fold!r}, split {self.split!r}"
            )
        if self.split == "fold" and self.path is None:
            raise ValueError("data.split fold needs data.path, the folder of MovieLens 100K")
        if self.path is not None and self.split != "fold":
            find_ratings(self.path, self.format, self.scale)

    def read(self) -> RatingsParts:
        """Ratings that learn, steer and judge; raises as `check`, `read_ratings` and `divide` do."""
        self.check()
        if self.path is not None and self.fold is not None:
            base, test = read_movielens_fold(self.path, self.fold)
            train, vali = hold_out(base, self.validation, seed=self.seed)
            return RatingsParts(train, nothing(base), vali, nothing(base), test, 0)
        if self.path is None:
            return self.divide(synthetic_ratings(users=400, items=150, rated=60, seed=self.seed))
        return self.divide(read_ratings(self.path, self.format, scale=self.scale))

    def divide(self, ratings: Ratings) -> RatingsParts:
        """Ratings split as this says, for training with validation.

        Raises:
            ValueError: another split than weak and strong, a number outside its range, or no user has enough ratings.

        >>> parts = RatingsSource(split="strong", num_train=10).divide(synthetic_ratings(users=20, rated=30))
        >>> parts.test_given.num_ratings, parts.test.num_ratings, parts.train.num_ratings
        (20, 40, 480)
        """
        counts = {"num_train": self.num_train, "min_test": self.min_test, "seed": self.seed}
        if self.split == "weak":
            found = weak_split(ratings, **counts)
            train, vali = hold_out(found.train, self.validation, seed=self.seed)
            return RatingsParts(train, nothing(ratings), vali, nothing(ratings), found.test, found.left_out)
        if self.split != "strong":
            raise ValueError(f"split must be 'weak' or 'strong' to divide ratings, got {self.split!r}")
        if not 0 < self.new_users < 0.5:
            raise ValueError(f"new_users must be a share above 0 and below 0.5, got {self.new_users}")
        judged = strong_split(ratings, test_users=self.new_users, **counts)
        steered = strong_split(judged.train, test_users=self.new_users / (1 - self.new_users), **counts)
        return RatingsParts(steered.train, steered.given, steered.test, judged.given, judged.test, judged.left_out)
