"""Ratings of items by users, or interactions, which are ratings of 1: validation, merging, and conversion to one list per user.

Labels of ranking measures are grades from 0, with gain 2^grade - 1; ratings are not. Each scale defines the grade of a rating,
and the neutral rating (the vote d of expected rank utility):

- `"stars"`, ratings 1 to 5 (MovieLens): grade = rating - 1, so the gains are 0, 1, 3, 7, 15. With raw ratings, 2^rating - 1, even
  the worst rating would have a gain, and no item would be irrelevant. Neutral is 3.
- `"half-stars"`, ratings 0.5 to 5 in steps of 0.5 (MovieLens since 2003): rounded up, the same grades. Neutral is 3.
- `"centred"`, ratings in [-10, 10] (Jester): 0 up to rating 0, then one grade per 2.5, rounded up, so (0, 2.5] is 1 and (7.5, 10]
  is 4. Disliked items have no gain, gains are again 0, 1, 3, 7, 15, and there are few distinct ones, which keeps oracles fast.
  Neutral is 0.
- `"binary"`, ratings 0 and 1 (implicit feedback): grade = rating. Neutral is 0. `interactions` makes such ratings from pairs of
  users and items, all 1.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from rankstruct.checks import check_integers, check_numbers
from rankstruct.columns import as_table, names_of
from rankstruct.data import DataError, Names, RankingData
from rankstruct.data.tables import Ids, TableReader, find_columns, id_text
from rankstruct.data.text import SPACE
from rankstruct.data.times import seconds
from rankstruct.ids import known_ids
from rankstruct.messages import shortened

__all__ = ["Ratings", "align", "implicit", "interactions", "k_core", "merge", "standardised", "synthetic_ratings"]

Labels = Literal["grade", "rating"] | Callable[[np.ndarray], np.ndarray]


class Scale(NamedTuple):
    """A rating scale: the least, the greatest and the neutral rating, the map to grades, and the step, 0 for any number."""

    lowest: float
    highest: float
    neutral: float
    grades: Callable[[np.ndarray], np.ndarray]
    step: float = 0


SCALES = {
    "stars": Scale(1, 5, 3, lambda rating: rating - 1, step=1),
    "half-stars": Scale(0.5, 5, 3, lambda rating: np.ceil(rating) - 1, step=0.5),
    "centred": Scale(-10, 10, 0, lambda rating: np.ceil(np.maximum(rating, 0) / 2.5)),
    "binary": Scale(0, 1, 0, lambda rating: rating),
}


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings sorted by user; validated on creation and immutable.

    Args:
        user: `[ratings]` int64, user indices in nondecreasing order; users without ratings are allowed.
        item: `[ratings]` int64, item indices; a user rates an item at most once.
        rating: `[ratings]` float32, finite and within the scale.
        user_names: `[users]` unique strings, stored as `rankstruct.data.Names`.
        item_names: `[items]` unique strings, likewise.
        scale: `"stars"`, `"half-stars"`, `"centred"` or `"binary"`, as described in the module.
        time: `[ratings]`, finite numbers or dates by which splits order the ratings; None if unknown.

    Raises:
        DataError: one of these conditions is violated.

    >>> ratings = Ratings.from_arrays(["ann", "bob", "ann"], ["x", "x", "y"], [5, 3, 1], scale="stars")
    >>> ratings.num_users, ratings.num_items, ratings.offsets, ratings.grades()
    (2, 2, array([0, 2, 3]), array([4., 0., 2.], dtype=float32))
    """

    user: np.ndarray
    item: np.ndarray
    rating: np.ndarray
    user_names: Names
    item_names: Names
    scale: str
    time: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ("user_names", "item_names"):
            object.__setattr__(self, name, Names.of(getattr(self, name)))
        if self.scale not in SCALES:
            raise DataError(f"scale must be one of {', '.join(SCALES)}, got {self.scale!r}")
        if not len(self.user) == len(self.item) == len(self.rating):
            raise DataError(
                f"user, item and rating must have one entry per rating; "
                f"got {len(self.user)}, {len(self.item)}, {len(self.rating)}"
            )
        if self.time is not None and not (len(self.time) == len(self.user) and np.isfinite(self.time).all()):
            raise DataError(f"time must have one finite number per rating, {len(self.user)}")
        for name, values, names in (("user", self.user, self.user_names), ("item", self.item, self.item_names)):
            if len(values) and not (values.min() >= 0 and values.max() < len(names)):
                raise DataError(
                    f"{name} must be indices from 0 to {len(names) - 1}, got {values.min()} to {values.max()}"
                )
            if names.repeated() is not None:
                raise DataError(f"{name}_names must be unique")
        if (np.diff(self.user) < 0).any():
            raise DataError("user must be sorted; use Ratings.from_arrays, which sorts")
        lowest, highest = SCALES[self.scale][:2]
        wrong = ~((self.rating >= lowest) & (self.rating <= highest))
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"ratings on the scale {self.scale!r} must be from {lowest} to {highest}; "
                f"user {shortened(self.user_names[self.user[at]])} gave item {shortened(self.item_names[self.item[at]])} "
                f"{self.rating[at]:g}; use another scale, or rescale the ratings"
            )
        step = SCALES[self.scale].step
        if step and (between := self.rating % step != 0).any():
            value = self.rating[between][0]
            others = "; use the scale 'half-stars'" if value % 0.5 == 0 else "; round them"
            raise DataError(f"ratings on the scale {self.scale!r} must be multiples of {step:g}, got {value:g}{others}")
        if self.scale == "binary" and not np.isin(self.rating, (0, 1)).all():
            raise DataError("ratings on the scale 'binary' must be 0 or 1; use implicit(ratings, threshold) to convert")
        twice = first_repeated(self.user, self.item, self.num_items)
        if twice is not None:
            raise DataError(
                f"a user may rate an item only once; user {shortened(self.user_names[self.user[twice]])} rated "
                f"{shortened(self.item_names[self.item[twice]])} twice"
            )

    @classmethod
    def from_arrays(
        cls,
        users: Sequence | np.ndarray,
        items: Sequence | np.ndarray,
        ratings: Sequence | np.ndarray,
        *,
        scale: str,
        time: Sequence | np.ndarray | None = None,
        user_names: Names | np.ndarray | None = None,
        item_names: Names | np.ndarray | None = None,
    ) -> Ratings:
        """Build ratings from names, one entry per rating in any order; names are sorted, integers by value.

        Names may be of any type that converts to strings, see `interactions`; `user_names` and `item_names` define their order
        and may have additional names; None collects them from the ratings. Times are numbers or dates.

        Raises:
            DataError: a name or a time is missing, a name is not among those given, or as `Ratings`.
        """
        user, user_names = _number_names("users", users, user_names)
        item, item_names = _number_names("items", items, item_names)
        values = np.asarray(ratings, np.float32)
        if not len(user) == len(item) == len(values):
            raise DataError(
                f"users, items and ratings must have one entry per rating; got {len(user)}, {len(item)}, {len(values)}"
            )
        order = np.argsort(user, kind="stable")
        when = None if time is None else _times("time", time, len(user))[order]
        return cls(user[order], item[order], values[order], user_names, item_names, scale, when)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}  # nothing that is computed from them

    @classmethod
    def _unchecked(cls, **fields: Any) -> Ratings:
        """Ratings of valid fields."""
        made = object.__new__(cls)
        made.__dict__.update(fields)
        return made

    def _with(self, **parts: Any) -> Ratings:
        """These ratings with other parts, which are as valid as these: they are not checked again."""
        return self._unchecked(**(self.__getstate__() | parts))

    @cached_property
    def num_users(self) -> int:
        """Number of users, including those without ratings."""
        return len(self.user_names)

    @cached_property
    def num_items(self) -> int:
        """Number of items, including those without ratings."""
        return len(self.item_names)

    @property
    def num_ratings(self) -> int:
        """Number of ratings."""
        return len(self.rating)

    @cached_property
    def offsets(self) -> np.ndarray:
        """`[users + 1]` int64: the ratings of user u are `[offsets[u], offsets[u + 1])`."""
        return np.searchsorted(self.user, np.arange(self.num_users + 1)).astype(np.int64)

    @property
    def neutral(self) -> float:
        """The neutral rating of the scale."""
        return SCALES[self.scale].neutral

    @property
    def num_grades(self) -> int:
        """Number of grades of the scale, including unused ones."""
        return int(SCALES[self.scale].grades(np.array(SCALES[self.scale].highest))) + 1

    def grades(self) -> np.ndarray:
        """The ratings as grades from 0, `[ratings]` float32."""
        return SCALES[self.scale].grades(self.rating).astype(np.float32)

    def labels(self, kind: Labels = "grade") -> np.ndarray:
        """Labels `[ratings]` float32: grades, raw ratings, or a function of the ratings; raises ValueError for another kind."""
        if callable(kind):
            return np.asarray(kind(self.rating), np.float32)
        if kind == "grade":
            return self.grades()
        if kind == "rating":
            return self.rating
        raise ValueError(f"labels must be 'grade', 'rating' or a function of the ratings, got {kind!r}")

    def select(self, chosen: np.ndarray) -> Ratings:
        """Select ratings by a boolean mask `[ratings]`; user and item indices are unchanged."""
        time = None if self.time is None else self.time[chosen]
        return self._with(user=self.user[chosen], item=self.item[chosen], rating=self.rating[chosen], time=time)

    def select_users(self, users: np.ndarray) -> Ratings:
        """Select all ratings of some users; user and item indices are unchanged."""
        return self.select(np.isin(self.user, users))

    def items_of(self, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The items of some users `[n]`, one user after another, and their numbers `[n]`."""
        first = self.offsets[users]
        counts = self.offsets[users + 1] - first
        return self.item[np.arange(counts.sum()) + np.repeat(first - (counts.cumsum() - counts), counts)], counts

    def keys(self) -> np.ndarray:
        """`[ratings]` int64, sorted: `user * num_items + item` of each rating, for lookups."""
        return np.sort(self.user * max(self.num_items, 1) + self.item)

    def to_csr(self) -> sp.csr_array:
        """The ratings as a sparse matrix `[users, items]`."""
        return sp.csr_array((self.rating, self.item, self.offsets), shape=(self.num_users, self.num_items))

    def to_lists(self, labels: Labels = "grade") -> RankingData:
        """Convert to one list per user with ratings, whose documents are the rated items.

        The features of a document are the indices of its user and item, the input of `MatrixFactorization`. `qids` and `docids`
        are the names. More than 2^24 users or items, whose indices are not exact in float32, raise DataError.

        >>> Ratings.from_arrays(["ann", "bob", "ann"], ["x", "x", "y"], [5, 3, 1], scale="stars").to_lists().features
        array([[0., 0.],
               [0., 1.],
               [1., 0.]], dtype=float32)
        """
        offsets = self.offsets
        rated = np.flatnonzero(np.diff(offsets))
        return self._lists(self.labels(labels), np.append(offsets[rated], offsets[-1]), self.user_names[rated])

    def to_pairs(self) -> RankingData:
        """Convert to one list per rating, of one document; `qids` are numbers."""
        every = np.arange(self.num_ratings + 1)
        return self._lists(self.labels(), every, Names.of(every[:-1]))

    def _lists(self, labels: np.ndarray, offsets: np.ndarray, qids: Names) -> RankingData:
        if max(self.num_users, self.num_items) > 2**24:
            raise DataError(f"expected at most 2^24 users and items, got {self.num_users} and {self.num_items}")
        features = np.stack([self.user, self.item], axis=1).astype(np.float32)
        return RankingData(features, labels, offsets, qids, self.item_names[self.item])


def implicit(ratings: Ratings, threshold: float) -> Ratings:
    """Binarise ratings: 1 from `threshold`, 0 below; raises ValueError if it is not a number.

    >>> implicit(Ratings.from_arrays(["ann", "ann"], ["x", "y"], [5, 3], scale="stars"), 4).rating
    array([1., 0.], dtype=float32)
    """
    check_numbers(threshold=threshold)
    return ratings._with(rating=(ratings.rating >= threshold).astype(np.float32), scale="binary")


def interactions(
    users: Any,
    items: Any = None,
    *,
    times: Any = None,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    min_rating: float | None = None,
    user_names: Any = None,
    item_names: Any = None,
) -> Ratings:
    """Build interactions (clicks, purchases, listens), which are ratings of 1 on the scale `"binary"`; repeated ones count once.

    An id has one name, however it is written: 1, 1.0 and "1" are the same user, as are "1.0" in a column where all ids end with
    `.0`, bytes and their text in UTF-8, a date of any type, and ids with blanks around them, which is a warning.

    Args:
        users: `[interactions]` names or ids of users (strings, integers, also as floats, or dates), in any order; or, without
            `items`, a SciPy sparse matrix `[users, items]` of counts (zeros are no interactions), or a table with columns `user`,
            `item` and optionally `time`, or other usual names of these, such as `userId`, `item_id`, `timestamp` and `datetime`.
            Other columns are ignored; if there is a column `rating` with different values, a warning says so.
        items: `[interactions]` names or ids of items.
        times: `[interactions]` numbers, of which integers are kept exactly, or dates, in seconds from 1970, or as they are if
            float64 would merge different ones; the last one of repeated interactions is kept.
        user, item, time: the columns of a table, if they have other names.
        min_rating: only rows of a table whose `rating` is at least this count; None for all.
        user_names, item_names: the names and their order, for matrices those of rows and columns, otherwise possibly more than
            those that occur, such as `range(100)` if items are indices from 0 to 99.

    Raises:
        DataError: a negative count, a missing or empty id, a missing time, arrays of different lengths, a name that is not among
            those given, an argument that does not go with the others.

    >>> import scipy.sparse as sp
    >>> interactions(sp.csr_array([[2, 0, 1], [0, 0, 0]])).item
    array([0, 2])
    >>> interactions(["bob", "ann", "ann"], ["x", "y", "y"]).num_ratings
    2
    """
    columns = {"user": user, "item": item, "time": time}
    if items is not None or isinstance(users, Ratings) or not names_of(users):
        way = "" if time is None else "; times of arrays are for interactions(users, items, times=...)"
        _refuse(f"rows and columns of a table; got {type(users).__name__}{way}", **columns, min_rating=min_rating)
    if isinstance(users, Ratings):
        own = {"items": items, "times": times, "user_names": user_names, "item_names": item_names}
        _refuse("arrays of users, not for interactions, which have their own", **own)
        return _of_ratings(users)
    if sp.issparse(users):
        _refuse("arrays of users, not for a matrix, whose rows are users and columns items", items=items, times=times)
        return _of_matrix(users, user_names, item_names)
    if items is None:
        users, items, times = columns_of(users, times, columns, min_rating)
    user_index, user_names = _number_names("users", users, user_names)
    item_index, item_names = _number_names("items", items, item_names)
    if len(user_index) != len(item_index):
        raise DataError(f"users, items must have one entry per interaction, got {len(user_index)}, {len(item_index)}")
    when = None if times is None else _times("times", times, len(user_index))
    return of_indices(user_index, item_index, user_names, item_names, when)


def _refuse(those: str, **others: Any) -> None:
    """Raise DataError for arguments that are only for those."""
    if given := [name for name, value in others.items() if value is not None]:
        raise DataError(f"{', '.join(given)} {'is' if len(given) == 1 else 'are'} for {those}")


def _of_ratings(ratings: Ratings) -> Ratings:
    """The ratings of 1 on the scale "binary"."""
    if ratings.scale != "binary":
        raise DataError(
            f"expected interactions, got ratings on the scale {ratings.scale!r}; use implicit(ratings, threshold)"
        )
    return ratings if (ratings.rating > 0).all() else ratings.select(ratings.rating > 0)


def as_ratings(given: Any) -> Ratings:
    """Ratings as they are; a SciPy matrix or a table as `interactions`."""
    return given if isinstance(given, Ratings) else interactions(given)


def columns_of(
    table: Any, times: Any = None, named: dict[str, str | None] | None = None, min_rating: float | None = None
) -> tuple[Ids, Ids, Any]:
    """The users, items and times of the rows of a data frame that count; `times` instead of those of the frame."""
    if isinstance(table, str | PurePath):
        raise TypeError(
            f"expected interactions, got a path, {str(table)!r}: pass rankstruct.recommenders.read_interactions(path)"
        )
    if not names_of(as_table("users", table)):
        raise DataError(
            "expected arrays of users and items, a SciPy sparse matrix, or a table with columns user and item; got "
            f"{type(table).__name__}; of arrays, interactions(users, items) is one argument"
        )
    named = named or dict.fromkeys(("user", "item", "time"))
    found, own = rows_that_count(TableReader(table, named, optional=("time",)), min_rating)
    return found["user"], found["item"], own if times is None else times


def rows_that_count(table: TableReader, min_rating: float | None) -> tuple[dict[str, Ids], np.ndarray | None]:
    """The users and items of the rows of a table whose rating is at least `min_rating`, and their times, if there are any.

    None is for all rows, and a warning if their ratings differ.

    Raises:
        ValueError: `min_rating` is not a number.
        DataError: an id or a time is missing; there are no ratings, or none that counts.
    """
    check_numbers(optional=True, min_rating=min_rating)
    found = table.read()
    time = found.pop("time", None)
    if time is not None and not (known := np.isfinite(time)).all():
        at = int(known.argmin())
        got = "none" if np.isnan(time[at]) else time[at]
        raise DataError(f"{table.place(at)}: expected a time, got {got}")
    name = find_columns(table, [each for each in table.names if each not in table.columns.values()], {"rating": None})[
        "rating"
    ]
    values = None
    if name is not None:
        with suppress(*[DataError] * (min_rating is None)):  # not of numbers
            values = np.concatenate(
                [np.zeros(0), *(table.numbers(name, each.column(0)) for each in table.batches([name]))]
            )
    rows = len(found["user"].places)
    if min_rating is not None:
        if values is None:
            raise DataError(f"{table}: min_rating is set, but there is no column of ratings, such as 'rating'")
        return of_those_that_count(found, time, values, min_rating, str(table))
    known = np.zeros(0) if values is None else values[np.isfinite(values)]
    if name is not None and (values is None or (len(known) and known.min() < known.max())):
        within = "" if values is None else f", from {known.min():g} to {known.max():g}"
        warnings.warn(
            f"{table} has a column of ratings, {name!r}{within}: all {rows} rows count as interactions, whatever their rating; "
            "pass min_rating=, such as 4 of 5 stars, to fit or interactions (data.min_rating in a config), or remove the column",
            stacklevel=4,
        )
    return found, time


def of_those_that_count(
    found: dict[str, Ids],
    time: np.ndarray | None,
    values: np.ndarray,
    min_rating: float,
    source: str,
) -> tuple[dict[str, Ids], np.ndarray | None]:
    """The users, items and times of the rows whose rating is at least `min_rating`; a warning tells how many.

    Raises:
        DataError: there are none.
    """
    counted, said = values >= min_rating, f"of the {len(values)} rows of {source}"
    if not counted.any():
        raise DataError(f"none {said} has a rating of at least {min_rating:g}")
    if counted.all():
        return found, time
    said = f"{int(counted.sum())} {said} have a rating of at least {min_rating:g} and count as interactions"
    warnings.warn(said, stacklevel=5)
    found = {role: Ids(ids.names, ids.places[counted]) for role, ids in found.items()}
    return found, None if time is None else time[counted]


def _of_matrix(given: Any, user_names: Any, item_names: Any) -> Ratings:
    if len(given.shape) != 2:
        raise DataError(
            "expected a matrix [users, items], got one dimension; the items of one new user are for recommend_new, and "
            "X.reshape(1, -1) is a matrix"
        )
    if given.dtype.kind not in "biuf":
        raise DataError(f"counts of interactions must be real numbers, got {given.dtype}")
    matrix = sp.csr_array(given.astype(np.float64))  # first, since sums of small integers would overflow
    matrix.sum_duplicates()
    if len(matrix.data) and not float(matrix.data.min()) >= 0:  # NaN too
        raise DataError(f"counts of interactions must be numbers >= 0, got {matrix.data.min():g}")
    matrix.eliminate_zeros()
    rows, columns = matrix.shape
    for what, names, number in (("user_names", user_names, rows), ("item_names", item_names, columns)):
        if names is not None and len(names) != number:
            raise DataError(f"{what} must have {number} names, as the matrix has rows or columns, got {len(names)}")
    of_rows = _names("user_names", np.arange(rows) if user_names is None else user_names)
    of_columns = _names("item_names", np.arange(columns) if item_names is None else item_names)
    return of_indices(np.repeat(np.arange(rows), np.diff(matrix.indptr)), matrix.indices, of_rows, of_columns)


def of_indices(
    users: np.ndarray, items: np.ndarray, user_names: Names, item_names: Names, times: np.ndarray | None = None
) -> Ratings:
    """Interactions by index, in any order, of users and items with unique names; of repeated ones the last is kept."""
    width = max(len(item_names), 1)
    keys = users * width + items
    order = np.argsort(keys, kind="stable") if times is None else np.lexsort((times, keys))
    last = order[np.append(np.diff(keys[order]) > 0, True)] if len(order) else order
    user, item = np.divmod(keys[last], width)
    rating, time = np.ones(len(last), np.float32), None if times is None else times[last]
    names = {"user_names": user_names, "item_names": item_names}
    return Ratings._unchecked(user=user, item=item, rating=rating, **names, scale="binary", time=time)


def k_core(ratings: Any, k: int, *, user_k: int | None = None) -> Ratings:
    """Drop users with fewer than `user_k` (k if None) and items with fewer than k ratings, until all have enough.

    The names of dropped users and items are dropped too, so that indices change. `ratings` may also be a SciPy matrix or a table,
    as in `interactions`. If none are left, this raises DataError.

    >>> k_core(interactions(["ann", "ann", "bob", "bob", "eve"], ["x", "y", "x", "y", "z"]), 2).item_names.tolist()
    ['x', 'y']
    """
    check_integers(1, k=k, user_k=k if user_k is None else user_k)
    ratings = as_ratings(ratings)
    kept = np.ones(ratings.num_ratings, bool)
    while True:
        enough = kept.copy()
        for index, number, least in (
            (ratings.user, ratings.num_users, user_k or k),
            (ratings.item, ratings.num_items, k),
        ):
            enough &= (np.bincount(index[kept], minlength=number) >= least)[index]
        if np.array_equal(enough, kept):
            break
        kept = enough
    left = ratings.select(kept)
    if ratings.num_ratings and not left.num_ratings:
        raise DataError(
            f"no users with {user_k or k} and items with {k} ratings are left; use a smaller core (k, data.core)"
        )
    users, user = np.unique(left.user, return_inverse=True)
    items, item = np.unique(left.item, return_inverse=True)
    names = {"user_names": ratings.user_names[users], "item_names": ratings.item_names[items]}
    return left._with(user=user, item=item, **names)


def merge(parts: Sequence[Ratings]) -> Ratings:
    """Merge parts with the same user and item indices, such as those of splits or `align`.

    Different indices or scales, or a rating of the same user and item in two parts, raise DataError.

    >>> ratings = synthetic_ratings(users=5, rated=10)
    >>> merge([ratings.select_users([0, 1]), ratings.select_users([4])]).num_ratings
    30
    """
    first = parts[0]
    for part in parts[1:]:
        same = np.array_equal(part.user_names, first.user_names) and np.array_equal(part.item_names, first.item_names)
        if not same or part.scale != first.scale:
            raise DataError(
                "parts must have the same user and item names and the same scale; use align(parts) for common names"
            )
    times = [part.time for part in parts if part.time is not None]
    users, items, ratings = ([getattr(part, name) for part in parts] for name in ("user", "item", "rating"))
    return _joined(first, users, items, ratings, times if len(times) == len(parts) else None)


def _joined(
    like: Ratings,
    users: Sequence[np.ndarray],
    items: Sequence[np.ndarray],
    ratings: Sequence[np.ndarray],
    times: Sequence[np.ndarray] | None = None,
) -> Ratings:
    """Concatenate ratings and sort them by user, with the names and the scale of `like`."""
    user = np.concatenate(users)
    order = np.argsort(user, kind="stable")
    if times is not None and len({each.dtype.kind == "M" for each in times}) > 1:
        raise DataError("parts must have times of one kind, got numbers and dates of nanoseconds")
    rating, time = np.concatenate(ratings)[order], None if times is None else np.concatenate(times)[order]
    return replace(like, user=user[order], item=np.concatenate(items)[order], rating=rating, time=time)


def standardised(ratings: Ratings) -> Callable[[np.ndarray], np.ndarray]:
    """A function for `labels` that standardises ratings by the mean and standard deviation of these.

    No ratings, or equal ones, raise DataError.

    >>> ratings = Ratings.from_arrays(["ann", "bob"], ["x", "y"], [5, 3], scale="stars")
    >>> ratings.labels(standardised(ratings))
    array([ 1., -1.], dtype=float32)
    """
    mean, deviation = (float(ratings.rating.mean()), float(ratings.rating.std())) if ratings.num_ratings else (0.0, 0.0)
    if not deviation:
        raise DataError(f"expected ratings with different values to standardise, got {ratings.num_ratings} equal ones")
    return lambda rating: (rating - mean) / deviation


def align(parts: Sequence[Ratings]) -> list[Ratings]:
    """Convert parts to common user and item indices; raises DataError if their scales differ."""
    if len({part.scale for part in parts}) > 1:
        raise DataError(f"parts must be on the same scale, got {', '.join(part.scale for part in parts)}")
    users, items = (
        ordered_names([name for part in parts for name in getattr(part, kind)]) for kind in ("user_names", "item_names")
    )
    of_users, of_items = numbers_of(users), numbers_of(items)
    found = []
    for part in parts:
        user, item = places_of(part.user_names, of_users)[part.user], places_of(part.item_names, of_items)[part.item]
        order = np.lexsort((item, user)) if part.scale == "binary" else np.argsort(user, kind="stable")
        time = None if part.time is None else part.time[order]
        names = {"user_names": users, "item_names": items}
        found.append(part._with(user=user[order], item=item[order], rating=part.rating[order], time=time, **names))
    return found


def synthetic_ratings(
    *, users: int = 300, items: int = 120, rank: int = 4, rated: int = 40, noise: float = 0.5, seed: int = 0
) -> Ratings:
    """Synthetic ratings from 1 to 5, from a known factorisation plus noise.

    User and item factors are standard normal; the utility of an item is their inner product over sqrt(rank), plus a popularity
    (standard deviation 0.5), plus noise. Users rate differently: the utilities of each are scaled and shifted before they are
    rounded to stars, so that one user's 3 is another's 5. Popular items are rated more often.

    Raises:
        ValueError: a number below 1, more rated than there are items, or negative noise.

    >>> ratings = synthetic_ratings(users=5, rated=10)
    >>> ratings.num_users, ratings.num_ratings, ratings.scale
    (5, 50, 'stars')
    """
    check_integers(1, users=users, items=items, rank=rank)
    check_integers(1, items, rated=rated)
    check_numbers(">= 0", noise=noise)
    rng = np.random.default_rng(seed)
    U, V = rng.standard_normal((users, rank)), rng.standard_normal((items, rank))
    liked = 0.5 * rng.standard_normal(items)
    utility = U @ V.T / np.sqrt(rank) + liked + noise * rng.standard_normal((users, items))
    stretch, shift = np.exp(0.4 * rng.standard_normal((users, 1))), rng.standard_normal((users, 1))
    stars = np.clip(np.round(3 + stretch * utility + shift), 1, 5)
    drawn = np.argsort(-(liked + rng.gumbel(size=(users, items))), axis=1)[:, :rated]
    user = np.repeat(np.arange(users), rated)
    item = drawn.ravel()
    user_names, item_names = (Names.of(np.arange(number)) for number in (users, items))
    return Ratings(user, item, stars[user, item].astype(np.float32), user_names, item_names, "stars")


def ordered_names(names: Iterable[str]) -> Names:
    """The unique names, sorted: by value if all are integers, otherwise as strings."""
    different = sorted(set(names))
    plain = all(name.isascii() and name.isdigit() and len(name) < 19 for name in different)
    return Names.of(sorted(different, key=int) if plain else different)


def _number_names(
    what: str, given: Sequence | np.ndarray | Names, names: Names | np.ndarray | None
) -> tuple[np.ndarray, Names]:
    """The indices of names, and the unique names in order."""
    ids = given if isinstance(given, Ids) else _distinct(ids_of(what, given))
    if ids.names.dtype.kind in "iu" and names is None:
        return ids.places.astype(np.int64), Names.of(ids.names)
    written = _texts(what, ids.names).tolist() if ids is given else Names.of(ids.names).tolist()
    if names is None:
        plain = plain_names(written)
        texts = written if isinstance(given, Names) else [plain[each] for each in written]
        known = ordered_names(texts)
        at = places_of(Names.of(texts), numbers_of(known))
    else:
        known = _names(f"{what[:-1]}_names", names)
        at = places_of(Names.of(written), numbers_of(known))
    if (at < 0).any():
        raise DataError(f"{what} has the name {shortened(written[int(at.argmin())])}, which is not among those given")
    return at[ids.places], known


def _distinct(ids: np.ndarray | Names) -> Ids:
    """The distinct ids of `ids_of`, integers sorted, and their places."""
    if not isinstance(ids, Names) and ids.dtype.kind in "iu":
        return Ids(*np.unique(ids, return_inverse=True))
    numbers: dict[str, int] = {}
    places = np.array([numbers.setdefault(each, len(numbers)) for each in ids.tolist()], np.int64)
    return Ids(np.array([*numbers, None], object)[:-1], places)


def _names(what: str, given: Any) -> Names:
    """Unique names in the order given; raises DataError if one is repeated."""
    ids = ids_of(what, given)
    if not isinstance(ids, Names) and ids.dtype.kind not in "iu":
        name_of = plain_names(ids.tolist())
        ids = np.array([name_of[each] for each in ids.tolist()], object)
    names = Names.of(ids)
    if names.repeated() is not None:
        raise DataError(f"{what} must be unique")
    return names


def ids_of(what: str, given: Any) -> np.ndarray | Names:
    """Ids `[n]` as integers, or as strings without blanks around them, as `Names` or objects; see `interactions`.

    Args:
        what: what messages call them.
        given: the ids; `Names` are returned as they are.

    Raises:
        DataError: an id is missing or empty, or of a type that has no one name.
    """
    if isinstance(given, Names):
        return given
    one = "name" if what.endswith("names") else "interaction"
    try:
        found = known_ids(what, given)
    except (TypeError, ValueError) as error:
        raise DataError(str(error).replace("document", one)) from None
    if found.ndim != 1 or found.dtype.kind == "f":
        got = f"shape {found.shape}" if found.ndim != 1 else f"{found[(found % 1 != 0) | (abs(found) > 2**53)][0]}"
        raise DataError(f"{what} must be one-dimensional strings or integers, got {got}")
    if found.dtype.kind in "iu":
        return found
    return _texts(what, found, one)


def _texts(what: str, ids: np.ndarray, one: str = "interaction") -> np.ndarray:
    """Ids as strings without blanks around them, as objects; raises DataError for an empty one."""
    written = [
        each if type(each) is str else id_text(what, each) for each in (ids if ids.dtype.kind == "M" else ids.tolist())
    ]
    texts = np.empty(len(written), object)
    texts[:] = [each.strip(SPACE) for each in written]
    if empty := [at for at, each in enumerate(texts) if not each]:
        raise DataError(f"{what} must not be empty; that of {one} {empty[0]} is")
    if around := next((each for each, text in zip(written, texts, strict=True) if each != text), None):
        warnings.warn(
            f"{what} has names with blanks around them, such as {shortened(around)}, which are removed", stacklevel=5
        )
    return texts


_WHOLE = re.compile(r"(-?[1-9][0-9]*|0)\.0")


def plain_names(texts: Collection[str]) -> dict[str, str]:
    """The name of each id that is written as these texts: integers if all end with ".0", as a column of floats is written.

    >>> plain_names(["1.0", "20.0"]), plain_names(["1.0", "1.1"])
    ({'1.0': '1', '20.0': '20'}, {'1.0': '1.0', '1.1': '1.1'})
    """
    whole = bool(texts) and all(map(_WHOLE.fullmatch, texts))
    return {text: text[:-2] if whole else text for text in texts}


def numbers_of(names: Names) -> dict[str, int]:
    """The index of each name, for `places_of`."""
    return {name: number for number, name in enumerate(names)}


def places_of(ids: np.ndarray | Names, numbers: Mapping[str, int]) -> np.ndarray:
    """`[n]` int64: the index of each of `ids_of`, -1 if it is not there; "1.0" is "1" if it is not a name itself.

    >>> places_of(ids_of("items", ["y", "z", "1.0"]), numbers_of(Names.of(["x", "y", "1"])))
    array([ 1, -1,  2])
    """
    written = ids.tolist() if isinstance(ids, Names) or ids.dtype.kind == "O" else Names.of(ids).tolist()

    def place(text: str) -> int:
        at = numbers.get(text, -1)
        return numbers.get(text[:-2], -1) if at < 0 and _WHOLE.fullmatch(text) else at

    at = {text: place(text) for text in set(written)}
    return np.array([at[text] for text in written], np.int64)


def _times(what: str, given: Any, number: int) -> np.ndarray:
    """Times `[number]`, see `seconds`, of which none is missing."""
    found = seconds(what, given)
    if found.shape != (number,):
        raise DataError(f"{what} must have one entry per interaction, {number}, got shape {found.shape}")
    if not (known := np.isfinite(found)).all():
        raise DataError(f"{what} must not be missing; that of interaction {int(known.argmin())} is")
    return found


def first_repeated(user: np.ndarray, item: np.ndarray, num_items: int) -> int | None:
    """The index of the first repeated pair of user and item, or None."""
    pairs = user * max(num_items, 1) + item
    if (np.diff(pairs) > 0).all():
        return None
    order = np.argsort(pairs, kind="stable")
    again = order[1:][np.diff(pairs[order]) == 0]
    return int(again.min()) if len(again) else None
