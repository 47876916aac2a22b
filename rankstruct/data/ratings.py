"""Ratings of items by users: read, check, split, and turn into one list a user over the items that it rated.

Labels of ranking measures are grades from 0, and 2^grade - 1 is their gain; ratings are not. Each scale says how they become
grades, and which rating is neutral (the vote d of expected rank utility):

- `"stars"`, ratings 1 to 5 (MovieLens): grade = rating - 1, so the gains are 0, 1, 3, 7, 15. As they come, 2^rating - 1, even the
  worst rating would gain, and no item would be irrelevant. Neutral is 3.
- `"centred"`, ratings in [-10, 10] (Jester): 0 up to rating 0, then one grade for each 2.5 begun, so (0, 2.5] is 1 and (7.5, 10]
  is 4. What is disliked gains nothing, gains are again 0, 1, 3, 7, 15, and there are few different ones, as fast oracles like it.
  Neutral is 0.
- `"binary"`, ratings 0 and 1 (implicit feedback): grade = rating. Neutral is 0.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from rankstruct.data.dataset import RankingData
from rankstruct.data.errors import DataError

__all__ = [
    "Ratings",
    "RatingsSplit",
    "align",
    "hold_out",
    "implicit",
    "merge",
    "read_movielens_fold",
    "read_ratings",
    "read_titles",
    "standardised",
    "strong_split",
    "synthetic_ratings",
    "weak_split",
    "with_negatives",
]

Labels = Literal["grade", "rating"] | Callable[[np.ndarray], np.ndarray]


class Scale(NamedTuple):
    """What ratings mean.

    Attributes:
        lowest: the lowest possible rating.
        highest: the highest possible rating.
        neutral: the rating that says neither yes nor no.
        grades: ratings to grades from 0, elementwise.
    """

    lowest: float
    highest: float
    neutral: float
    grades: Callable[[np.ndarray], np.ndarray]


def _star_grades(rating: np.ndarray) -> np.ndarray:
    return rating - 1


def _centred_grades(rating: np.ndarray) -> np.ndarray:
    return np.ceil(np.maximum(rating, 0) / 2.5)


def _binary_grades(rating: np.ndarray) -> np.ndarray:
    return rating


SCALES = {
    "stars": Scale(1, 5, 3, _star_grades),
    "centred": Scale(-10, 10, 0, _centred_grades),
    "binary": Scale(0, 1, 0, _binary_grades),
}


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings in order of users; checked when made, never changed afterwards.

    Args:
        user: `[ratings]` int64, the number of the user, never decreasing; a user may have none.
        item: `[ratings]` int64, the number of the item; a user rates an item once.
        rating: `[ratings]` float32, finite and within the scale.
        user_names: `[users]` strings, all different.
        item_names: `[items]` strings, all different.
        scale: `"stars"`, `"centred"` or `"binary"`; see the module for what they are.

    Raises:
        DataError: one of these does not hold.

    >>> ratings = Ratings.from_arrays(["ann", "bob", "ann"], ["x", "x", "y"], [5, 3, 1], scale="stars")
    >>> ratings.num_users, ratings.num_items, ratings.offsets, ratings.grades()
    (2, 2, array([0, 2, 3]), array([4., 0., 2.], dtype=float32))
    """

    user: np.ndarray
    item: np.ndarray
    rating: np.ndarray
    user_names: np.ndarray
    item_names: np.ndarray
    scale: str

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise DataError(f"scale must be one of {', '.join(SCALES)}, got {self.scale!r}")
        if not len(self.user) == len(self.item) == len(self.rating):
            raise DataError(
                f"user, item and rating must have one entry a rating; "
                f"got {len(self.user)}, {len(self.item)}, {len(self.rating)}"
            )
        for name, values, names in (("user", self.user, self.user_names), ("item", self.item, self.item_names)):
            if len(values) and not (values.min() >= 0 and values.max() < len(names)):
                raise DataError(
                    f"{name} must be numbers from 0 to {len(names) - 1}, got {values.min()} to {values.max()}"
                )
            if len(np.unique(names)) < len(names):
                raise DataError(f"{name}_names must be all different")
        if (np.diff(self.user) < 0).any():
            raise DataError("user must never decrease; Ratings.from_arrays sorts")
        lowest, highest = SCALES[self.scale][:2]
        wrong = ~((self.rating >= lowest) & (self.rating <= highest))
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"ratings on the scale {self.scale!r} must be from {lowest} to {highest}; "
                f"user {str(self.user_names[self.user[at]])!r} gave item {str(self.item_names[self.item[at]])!r} "
                f"{self.rating[at]:g}; choose another scale, or rescale them"
            )
        if self.scale == "stars" and (self.rating % 1 != 0).any():
            value = self.rating[self.rating % 1 != 0][0]
            raise DataError(f"ratings on the scale 'stars' must be whole, got {value:g}; double them, or round")
        if self.scale == "binary" and not np.isin(self.rating, (0, 1)).all():
            raise DataError("ratings on the scale 'binary' must be 0 or 1; implicit(ratings, threshold) makes them so")
        twice = _first_repeated(self.user, self.item, self.num_items)
        if twice is not None:
            raise DataError(
                f"a user rates an item once; user {str(self.user_names[self.user[twice]])!r} rated "
                f"{str(self.item_names[self.item[twice]])!r} twice"
            )

    @classmethod
    def from_arrays(
        cls,
        users: Sequence | np.ndarray,
        items: Sequence | np.ndarray,
        ratings: Sequence | np.ndarray,
        *,
        scale: str,
        user_names: np.ndarray | None = None,
        item_names: np.ndarray | None = None,
    ) -> Ratings:
        """Ratings from names, one entry a rating in any order; names are numbered in order, whole numbers by size.

        Args:
            users: names of users; anything that has a string.
            items: names of items.
            ratings: numbers.
            scale: see `Ratings`.
            user_names: the names in their order, which may hold more than `users` does; None to find them.
            item_names: as `user_names`.

        Raises:
            DataError: a name is not among those given, or what `Ratings` refuses.
        """
        user, user_names = _numbered("users", users, user_names)
        item, item_names = _numbered("items", items, item_names)
        values = np.asarray(ratings, np.float32)
        if not len(user) == len(item) == len(values):
            raise DataError(
                f"users, items and ratings must have one entry a rating; got {len(user)}, {len(item)}, {len(values)}"
            )
        order = np.argsort(user, kind="stable")
        return cls(user[order], item[order], values[order], user_names, item_names, scale)

    @property
    def num_users(self) -> int:
        """Number of users, those without ratings too."""
        return len(self.user_names)

    @property
    def num_items(self) -> int:
        """Number of items, those without ratings too."""
        return len(self.item_names)

    @property
    def num_ratings(self) -> int:
        """Number of ratings."""
        return len(self.rating)

    @property
    def offsets(self) -> np.ndarray:
        """`[users + 1]` int64: the ratings of user u are `[offsets[u], offsets[u + 1])`."""
        return np.searchsorted(self.user, np.arange(self.num_users + 1)).astype(np.int64)

    @property
    def neutral(self) -> float:
        """The neutral vote of the scale."""
        return SCALES[self.scale].neutral

    def grades(self) -> np.ndarray:
        """`[ratings]` float32, the ratings as grades from 0."""
        return SCALES[self.scale].grades(self.rating).astype(np.float32)

    def labels(self, kind: Labels = "grade") -> np.ndarray:
        """`[ratings]` float32: grades, ratings as they are, or a function of the ratings.

        Raises:
            ValueError: another kind.
        """
        if callable(kind):
            return np.asarray(kind(self.rating), np.float32)
        if kind == "grade":
            return self.grades()
        if kind == "rating":
            return self.rating
        raise ValueError(f"labels must be 'grade', 'rating' or a function of the ratings, got {kind!r}")

    def select(self, chosen: np.ndarray) -> Ratings:
        """Some of the ratings, by a bool mask `[ratings]`; users and items keep their numbers."""
        return replace(self, user=self.user[chosen], item=self.item[chosen], rating=self.rating[chosen])

    def select_users(self, users: np.ndarray) -> Ratings:
        """All ratings of some users; users and items keep their numbers."""
        return self.select(np.isin(self.user, users))

    def to_lists(self, labels: Labels = "grade") -> RankingData:
        """One list for each user with a rating, its documents the rated items.

        The features of a document are the numbers of its user and item, what `MatrixFactorization` scores. `qids` and
        `docids` are the names.

        Raises:
            DataError: more than 2^24 users or items, numbers that float32 does not hold.

        >>> Ratings.from_arrays(["ann", "bob", "ann"], ["x", "x", "y"], [5, 3, 1], scale="stars").to_lists().features
        array([[0., 0.],
               [0., 1.],
               [1., 0.]], dtype=float32)
        """
        if max(self.num_users, self.num_items) > 2**24:
            raise DataError(f"at most 2^24 users and items; got {self.num_users} and {self.num_items}")
        offsets = self.offsets
        rated = np.flatnonzero(np.diff(offsets))
        return RankingData(
            np.stack([self.user, self.item], axis=1).astype(np.float32),
            self.labels(labels),
            np.append(offsets[rated], offsets[-1]),
            self.user_names[rated],
            self.item_names[self.item],
        )


def implicit(ratings: Ratings, threshold: float) -> Ratings:
    """Ratings of at least `threshold` as 1, the others as 0.

    >>> implicit(Ratings.from_arrays(["ann", "ann"], ["x", "y"], [5, 3], scale="stars"), 4).rating
    array([1., 0.], dtype=float32)
    """
    return replace(ratings, rating=(ratings.rating >= threshold).astype(np.float32), scale="binary")


def with_negatives(ratings: Ratings, number: int, *, seed: int = 0) -> Ratings:
    """Add items that a user did not rate, as 0: up to `number` for each user with a rating, drawn at random.

    For feedback that has no dislikes, such as clicks.

    Raises:
        DataError: the scale is not `"binary"`.
    """
    if ratings.scale != "binary":
        raise DataError(
            f"negatives are for the scale 'binary', got {ratings.scale!r}; use implicit(ratings, threshold)"
        )
    rng = np.random.default_rng(seed)
    offsets = ratings.offsets
    users, items = [ratings.user], [ratings.item]
    for rated in np.flatnonzero(np.diff(offsets)).tolist():
        open_items = np.setdiff1d(np.arange(ratings.num_items), ratings.item[offsets[rated] : offsets[rated + 1]])
        drawn = rng.permutation(open_items)[:number]
        users.append(np.full(len(drawn), rated))
        items.append(drawn)
    user, item = np.concatenate(users), np.concatenate(items)
    rating = np.concatenate([ratings.rating, np.zeros(len(user) - ratings.num_ratings, np.float32)])
    order = np.argsort(user, kind="stable")
    return replace(ratings, user=user[order], item=item[order], rating=rating[order])


class RatingsSplit(NamedTuple):
    """Ratings to learn from and to be judged by.

    Attributes:
        train: for the factors of items, and of the users in it.
        given: what is known of the users that are judged; in weak generalisation it is `train`.
        test: what they are judged by.
        left_out: number of users that have ratings, but too few to be judged.
    """

    train: Ratings
    given: Ratings
    test: Ratings
    left_out: int


def weak_split(ratings: Ratings, num_train: int, *, min_test: int = 10, seed: int = 0) -> RatingsSplit:
    """Weak generalisation: of each user `num_train` ratings, drawn at random, are known, and the others predicted.

    Args:
        ratings: all.
        num_train: N, ratings a user to learn from, such as 10, 20 or 50.
        min_test: users with fewer than `num_train + min_test` ratings are left out, and counted.
        seed: of the draw.

    Raises:
        ValueError: a number below 1, or no user has enough ratings.

    Source: Weimer, Karatzoglou, Le, Smola, "CoFiRank", NIPS 2007; Marlin, "Collaborative Filtering: A Machine Learning
    Perspective", 2004.
    """
    users, left_out = _judged(ratings, num_train, min_test)
    known = _drawn(ratings, num_train, seed)
    among = np.isin(ratings.user, users)
    train = ratings.select(known & among)
    return RatingsSplit(train, train, ratings.select(~known & among), left_out)


def strong_split(
    ratings: Ratings, num_train: int, *, test_users: float = 0.1, min_test: int = 10, seed: int = 0
) -> RatingsSplit:
    """Strong generalisation: some users are new after training; of each `num_train` ratings are given, the others predicted.

    Args:
        ratings: all.
        num_train: N, ratings given of a new user.
        test_users: the share of the users with at least `num_train + min_test` ratings that are new; at least one is.
        min_test: see `weak_split`; users with too few ratings are trained on, and not judged.
        seed: of the draws.

    Raises:
        ValueError: a number outside its range, or no user has enough ratings.

    Source: as `weak_split`.
    """
    if not 0 < test_users < 1:
        raise ValueError(f"test_users must be a share above 0 and below 1, got {test_users}")
    users, left_out = _judged(ratings, num_train, min_test)
    rng = np.random.default_rng([seed, 1])
    new = rng.permutation(users)[: max(1, round(test_users * len(users)))]
    among, known = np.isin(ratings.user, new), _drawn(ratings, num_train, seed)
    return RatingsSplit(ratings.select(~among), ratings.select(among & known), ratings.select(among & ~known), left_out)


def hold_out(ratings: Ratings, share: float, *, seed: int = 0) -> tuple[Ratings, Ratings]:
    """Take a share of each user's ratings, rounded down, for validation: `(training, validation)`.

    Raises:
        ValueError: a share outside (0, 1).
    """
    if not 0 < share < 1:
        raise ValueError(f"share must be above 0 and below 1, got {share}")
    rank = _random_rank(ratings, seed)
    counts = np.diff(ratings.offsets)
    held = rank < np.floor(share * counts)[ratings.user]
    return ratings.select(~held), ratings.select(held)


def merge(parts: Sequence[Ratings]) -> Ratings:
    """The ratings of all parts, which have one numbering, as `align` and the splits give it.

    Raises:
        DataError: parts with different numberings or scales, or a user and item that are in two.

    >>> ratings = synthetic_ratings(users=5, rated=10)
    >>> merge(hold_out(ratings, 0.2)).num_ratings
    50
    """
    first = parts[0]
    for part in parts[1:]:
        same = np.array_equal(part.user_names, first.user_names) and np.array_equal(part.item_names, first.item_names)
        if not same or part.scale != first.scale:
            raise DataError("parts must have one numbering and one scale; align(parts) gives one numbering")
    user = np.concatenate([part.user for part in parts])
    order = np.argsort(user, kind="stable")
    item = np.concatenate([part.item for part in parts])
    rating = np.concatenate([part.rating for part in parts])
    return replace(first, user=user[order], item=item[order], rating=rating[order])


def standardised(ratings: Ratings) -> Callable[[np.ndarray], np.ndarray]:
    """A function for `labels` that gives these ratings mean 0 and variance 1, and others by the same measure.

    Raises:
        DataError: there are no ratings, or all are equal.

    >>> ratings = Ratings.from_arrays(["ann", "bob"], ["x", "y"], [5, 3], scale="stars")
    >>> ratings.labels(standardised(ratings))
    array([ 1., -1.], dtype=float32)
    """
    mean, deviation = (float(ratings.rating.mean()), float(ratings.rating.std())) if ratings.num_ratings else (0.0, 0.0)
    if not deviation:
        raise DataError(f"ratings that are all equal cannot be standardised; got {ratings.num_ratings} of them")
    return lambda rating: (rating - mean) / deviation


def align(parts: Sequence[Ratings]) -> list[Ratings]:
    """The same ratings with one numbering of users and items for all parts.

    Raises:
        DataError: parts on different scales.
    """
    if len({part.scale for part in parts}) > 1:
        raise DataError(f"parts must be on one scale, got {', '.join(part.scale for part in parts)}")
    user_names = _ordered(np.concatenate([part.user_names for part in parts]))
    item_names = _ordered(np.concatenate([part.item_names for part in parts]))
    return [
        Ratings.from_arrays(
            part.user_names[part.user],
            part.item_names[part.item],
            part.rating,
            scale=part.scale,
            user_names=user_names,
            item_names=item_names,
        )
        for part in parts
    ]


class _Format(NamedTuple):
    separator: str | None
    columns: tuple[int, ...]  # how many a line may have
    scale: str | None


FORMATS = {
    "movielens100k": _Format("\t", (4,), "stars"),
    "movielens1m": _Format("::", (4,), "stars"),
    "jester": _Format(None, (3,), "centred"),
    "text": _Format(None, (3, 4), None),
    "csv": _Format(",", (3, 4), None),
}


def read_ratings(path: str | os.PathLike[str], format: str = "text", *, scale: str | None = None) -> Ratings:
    r"""Read a file with one rating a line: user, item, rating, and for some a time, which is not kept.

    Args:
        path: the file, UTF-8. Blank lines, and those that start with `#`, say nothing.
        format: `"movielens100k"` (tabs: `u.data`, `u1.base`), `"movielens1m"` (`::`), `"jester"` and `"text"` (white space), or
            `"csv"` (commas; a first line with `user`, `item` and `rating` tells where they are, and without it they come first).
        scale: what ratings mean, see `Ratings`; MovieLens' are `"stars"`, Jester's `"centred"`, others need to be told.

    Raises:
        DataError: the file is absent or has no rating, or a line breaks the format; the message has file and line.
        ValueError: an unknown format, or no scale where it is needed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "ratings.csv"
    ...     _ = path.write_text("item,user,rating\nx,ann,5\ny,ann,2\n")
    ...     read_ratings(path, "csv", scale="stars").item_names.tolist()
    ['x', 'y']
    """
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    scale = FORMATS[format].scale if scale is None else scale
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)} for the format {format!r}, got {scale!r}")
    path = Path(path)
    users: list[str] = []
    items: list[str] = []
    values: list[float] = []
    lines: list[int] = []
    lowest, highest = SCALES[scale][:2]
    for number, user_name, item_name, rating in _rows(path, FORMATS[format]):
        try:
            value = float(rating)
        except ValueError:
            raise DataError(f"{path}, line {number}: expected a number as rating, got {rating!r}") from None
        if not lowest <= value <= highest:
            raise DataError(
                f"{path}, line {number}: expected a rating from {lowest} to {highest} (scale {scale!r}), got {rating}"
            )
        users.append(user_name)
        items.append(item_name)
        values.append(value)
        lines.append(number)
    if not values:
        raise DataError(f"{path} has no ratings")
    user, user_names = _numbered("users", users, None)
    item, item_names = _numbered("items", items, None)
    twice = _first_repeated(user, item, len(item_names))
    if twice is not None:
        raise DataError(f"{path}, line {lines[twice]}: user {users[twice]!r} rates item {items[twice]!r} again")
    order = np.argsort(user, kind="stable")
    try:
        return Ratings(user[order], item[order], np.array(values, np.float32)[order], user_names, item_names, scale)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def read_movielens_fold(folder: str | os.PathLike[str], fold: int) -> tuple[Ratings, Ratings]:
    """`(base, test)` of MovieLens 100K, `u<fold>.base` and `u<fold>.test`, with one numbering.

    Raises:
        DataError: a file is absent, or breaks the format.
    """
    base, test = align([read_ratings(Path(folder) / f"u{fold}.{part}", "movielens100k") for part in ("base", "test")])
    return base, test


def read_titles(path: str | os.PathLike[str]) -> dict[str, str]:
    """Names of the films of MovieLens, by item: lines `item|title|...` (`u.item`) or `item::title::...` (`movies.dat`).

    Raises:
        DataError: the file is absent, or a line has no title.
    """
    path = Path(path)
    try:
        text = path.read_text("latin-1")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        parts = line.split("::" if "::" in line else "|")
        if len(parts) < 2:
            raise DataError(f"{path}, line {number}: expected item|title or item::title, got {line!r}")
        found[parts[0]] = parts[1]
    return found


def synthetic_ratings(
    *, users: int = 300, items: int = 120, rank: int = 4, rated: int = 40, noise: float = 0.5, seed: int = 0
) -> Ratings:
    """Ratings from 1 to 5 of a known factorisation plus noise.

    User and item factors are standard normal; the utility of an item is their product over sqrt(rank), plus how much everybody
    likes it (standard deviation 0.5), plus noise. Every user has habits of its own: its utilities are stretched and shifted
    before they are cut into stars, so that one user's 3 is another's 5. Well-liked items are rated more often.

    Raises:
        ValueError: a number below 1, more rated than there are items, or negative noise.

    >>> ratings = synthetic_ratings(users=5, rated=10)
    >>> ratings.num_users, ratings.num_ratings, ratings.scale
    (5, 50, 'stars')
    """
    for name, value in (("users", users), ("items", items), ("rank", rank), ("rated", rated)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if rated > items or noise < 0:
        raise ValueError(f"rated must be at most items, and noise >= 0; got {rated} of {items}, and {noise}")
    rng = np.random.default_rng(seed)
    U, V = rng.standard_normal((users, rank)), rng.standard_normal((items, rank))
    liked = 0.5 * rng.standard_normal(items)
    utility = U @ V.T / np.sqrt(rank) + liked + noise * rng.standard_normal((users, items))
    stretch, shift = np.exp(0.4 * rng.standard_normal((users, 1))), rng.standard_normal((users, 1))
    stars = np.clip(np.round(3 + stretch * utility + shift), 1, 5)
    drawn = np.argsort(-(liked + rng.gumbel(size=(users, items))), axis=1)[:, :rated]
    user = np.repeat(np.arange(users), rated)
    item = drawn.ravel()
    return Ratings.from_arrays(
        user,
        item,
        stars[user, item],
        scale="stars",
        user_names=np.arange(users).astype(str),
        item_names=np.arange(items).astype(str),
    )


def _rows(path: Path, form: _Format) -> Iterator[tuple[int, str, str, str]]:
    """Line number, user, item and rating of each line with a rating."""
    where = (0, 1, 2)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            first = True
            for number, line in enumerate(file, start=1):
                stripped = line.strip()
                if not stripped or stripped[0] == "#":
                    continue
                if form.separator == ",":
                    parts = [part.strip() for part in next(csv.reader([stripped]))]
                    if first and {"user", "item", "rating"} <= {part.lower() for part in parts}:
                        names = [part.lower() for part in parts]
                        where = (names.index("user"), names.index("item"), names.index("rating"))
                        form = form._replace(columns=(len(names),))
                        first = False
                        continue
                else:
                    parts = stripped.split(form.separator)
                first = False
                if len(parts) not in form.columns:
                    count = " or ".join(map(str, form.columns))
                    separator = "white space" if form.separator is None else repr(form.separator)
                    raise DataError(
                        f"{path}, line {number}: expected user, item, rating in {count} fields "
                        f"separated by {separator}, got {stripped!r}"
                    )
                user, item, rating = (parts[i] for i in where)
                if not user or not item:
                    raise DataError(f"{path}, line {number}: expected a user and an item, got {stripped!r}")
                yield number, user, item, rating
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}") from error


def _ordered(names: np.ndarray) -> np.ndarray:
    """Different names in order: by size if all are whole numbers, else as strings."""
    different = np.unique(names)
    plain = all(name.isascii() and name.isdigit() and len(name) < 19 for name in different.tolist())
    return different[np.argsort(different.astype(np.int64), kind="stable")] if plain and len(different) else different


def _numbered(what: str, given: Sequence | np.ndarray, names: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of names, and the names in order."""
    strings = np.asarray(given).astype(str)
    names = _ordered(strings) if names is None else np.asarray(names).astype(str)
    by_string = np.argsort(names)
    if len(strings) and not len(names):
        raise DataError(f"{what} has names, but none are known")
    at = np.searchsorted(names, strings, sorter=by_string).clip(max=max(len(names) - 1, 0))
    numbers = by_string[at] if len(strings) else np.zeros(0, np.int64)
    unknown = names[numbers] != strings if len(strings) else np.zeros(0, bool)
    if unknown.any():
        raise DataError(f"{what} has the name {str(strings[unknown][0])!r}, which is not among those given")
    return numbers.astype(np.int64), names


def _first_repeated(user: np.ndarray, item: np.ndarray, num_items: int) -> int | None:
    """Where a user rates an item again for the first time, or None."""
    pairs = user * max(num_items, 1) + item
    _, first = np.unique(pairs, return_index=True)
    if len(first) == len(pairs):
        return None
    again = np.ones(len(pairs), bool)
    again[first] = False
    return int(np.flatnonzero(again)[0])


def _random_rank(ratings: Ratings, seed: int) -> np.ndarray:
    """`[ratings]`: the place of each rating in a random order of its user's."""
    drawn = np.random.default_rng([seed, 0]).random(ratings.num_ratings)
    order = np.lexsort((drawn, ratings.user))
    rank = np.empty(ratings.num_ratings, np.int64)
    rank[order] = np.arange(ratings.num_ratings)
    return rank - ratings.offsets[ratings.user]


def _drawn(ratings: Ratings, number: int, seed: int) -> np.ndarray:
    return _random_rank(ratings, seed) < number


def _judged(ratings: Ratings, num_train: int, min_test: int) -> tuple[np.ndarray, int]:
    """Users with enough ratings, and how many have some, but too few."""
    for name, value in (("num_train", num_train), ("min_test", min_test)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    counts = np.diff(ratings.offsets)
    users = np.flatnonzero(counts >= num_train + min_test)
    if not len(users):
        raise ValueError(
            f"no user has {num_train} + {min_test} ratings (num_train + min_test); "
            f"the most any has is {counts.max(initial=0)}"
        )
    return users, int((counts > 0).sum()) - len(users)
