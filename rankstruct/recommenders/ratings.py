"""Ratings of items by users: validation, merging, and conversion to one list per user of the rated items.

Labels of ranking measures are grades from 0, with gain 2^grade - 1; ratings are not. Each scale defines the grade of a rating,
and the neutral rating (the vote d of expected rank utility):

- `"stars"`, ratings 1 to 5 (MovieLens): grade = rating - 1, so the gains are 0, 1, 3, 7, 15. With raw ratings, 2^rating - 1, even
  the worst rating would have a gain, and no item would be irrelevant. Neutral is 3.
- `"centred"`, ratings in [-10, 10] (Jester): 0 up to rating 0, then one grade per 2.5, rounded up, so (0, 2.5] is 1 and (7.5, 10]
  is 4. Disliked items have no gain, gains are again 0, 1, 3, 7, 15, and there are few distinct ones, which keeps oracles fast.
  Neutral is 0.
- `"binary"`, ratings 0 and 1 (implicit feedback): grade = rating. Neutral is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from rankstruct.data import DataError, Names, RankingData
from rankstruct.data.errors import check_least, shortened

__all__ = ["Ratings", "align", "implicit", "merge", "standardised", "synthetic_ratings", "with_negatives"]

Labels = Literal["grade", "rating"] | Callable[[np.ndarray], np.ndarray]


class Scale(NamedTuple):
    """A rating scale: the least, the greatest and the neutral rating, and the map from ratings to grades."""

    lowest: float
    highest: float
    neutral: float
    grades: Callable[[np.ndarray], np.ndarray]


SCALES = {
    "stars": Scale(1, 5, 3, lambda rating: rating - 1),
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
        scale: `"stars"`, `"centred"` or `"binary"`, as described in the module.

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
        if self.scale == "stars" and (self.rating % 1 != 0).any():
            value = self.rating[self.rating % 1 != 0][0]
            raise DataError(f"ratings on the scale 'stars' must be integers, got {value:g}; double or round them")
        if self.scale == "binary" and not np.isin(self.rating, (0, 1)).all():
            raise DataError("ratings on the scale 'binary' must be 0 or 1; use implicit(ratings, threshold) to convert")
        twice = _first_repeated(self.user, self.item, self.num_items)
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
        user_names: Names | np.ndarray | None = None,
        item_names: Names | np.ndarray | None = None,
    ) -> Ratings:
        """Build ratings from names, one entry per rating in any order; names are sorted, integers by value.

        Names may be of any type that converts to strings; `user_names` and `item_names` define their order and may have
        additional names; None collects them from the ratings.

        Raises:
            DataError: a name is not among those given, or as `Ratings`.
        """
        user, user_names = _number_names("users", users, user_names)
        item, item_names = _number_names("items", items, item_names)
        values = np.asarray(ratings, np.float32)
        if not len(user) == len(item) == len(values):
            raise DataError(
                f"users, items and ratings must have one entry per rating; got {len(user)}, {len(item)}, {len(values)}"
            )
        order = np.argsort(user, kind="stable")
        return cls(user[order], item[order], values[order], user_names, item_names, scale)

    @property
    def num_users(self) -> int:
        """Number of users, including those without ratings."""
        return len(self.user_names)

    @property
    def num_items(self) -> int:
        """Number of items, including those without ratings."""
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
        return replace(self, user=self.user[chosen], item=self.item[chosen], rating=self.rating[chosen])

    def select_users(self, users: np.ndarray) -> Ratings:
        """Select all ratings of some users; user and item indices are unchanged."""
        return self.select(np.isin(self.user, users))

    def to_lists(self, labels: Labels = "grade") -> RankingData:
        """Convert to one list per user with ratings, whose documents are the rated items.

        The features of a document are the indices of its user and item, the input of `MatrixFactorization`. `qids` and `docids`
        are the names. More than 2^24 users or items, whose indices are not exact in float32, raise DataError.

        >>> Ratings.from_arrays(["ann", "bob", "ann"], ["x", "x", "y"], [5, 3, 1], scale="stars").to_lists().features
        array([[0., 0.],
               [0., 1.],
               [1., 0.]], dtype=float32)
        """
        if max(self.num_users, self.num_items) > 2**24:
            raise DataError(f"expected at most 2^24 users and items, got {self.num_users} and {self.num_items}")
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
    """Binarise ratings: 1 from `threshold`, 0 below.

    >>> implicit(Ratings.from_arrays(["ann", "ann"], ["x", "y"], [5, 3], scale="stars"), 4).rating
    array([1., 0.], dtype=float32)
    """
    return replace(ratings, rating=(ratings.rating >= threshold).astype(np.float32), scale="binary")


def with_negatives(ratings: Ratings, number: int, *, seed: int = 0) -> Ratings:
    """Add random unrated items with rating 0: up to `number` for each user with ratings.

    For feedback without negatives, such as clicks; raises DataError unless the scale is `"binary"`.
    """
    if ratings.scale != "binary":
        raise DataError(
            f"negatives require the scale 'binary', got {ratings.scale!r}; use implicit(ratings, threshold)"
        )
    rng = np.random.default_rng(seed)
    offsets = ratings.offsets
    users, items = [ratings.user], [ratings.item]
    for rated in np.flatnonzero(np.diff(offsets)).tolist():
        open_items = np.setdiff1d(np.arange(ratings.num_items), ratings.item[offsets[rated] : offsets[rated + 1]])
        drawn = rng.permutation(open_items)[:number]
        users.append(np.full(len(drawn), rated))
        items.append(drawn)
    added = sum(map(len, items)) - ratings.num_ratings
    return _joined(ratings, users, items, [ratings.rating, np.zeros(added, np.float32)])


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
    return _joined(first, *([getattr(part, name) for part in parts] for name in ("user", "item", "rating")))


def _joined(
    like: Ratings, users: Sequence[np.ndarray], items: Sequence[np.ndarray], ratings: Sequence[np.ndarray]
) -> Ratings:
    """Concatenate ratings and sort them by user, with the names and the scale of `like`."""
    user = np.concatenate(users)
    order = np.argsort(user, kind="stable")
    return replace(like, user=user[order], item=np.concatenate(items)[order], rating=np.concatenate(ratings)[order])


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
    names = {
        kind: _ordered([name for part in parts for name in getattr(part, kind)])
        for kind in ("user_names", "item_names")
    }
    return [
        Ratings.from_arrays(
            part.user_names[part.user], part.item_names[part.item], part.rating, scale=part.scale, **names
        )
        for part in parts
    ]


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
    check_least(1, users=users, items=items, rank=rank, rated=rated)
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
    user_names, item_names = (Names.of(np.arange(number)) for number in (users, items))
    return Ratings(user, item, stars[user, item].astype(np.float32), user_names, item_names, "stars")


def _ordered(names: Sequence[str]) -> Names:
    """The unique names, sorted: by value if all are integers, otherwise as strings."""
    different = sorted(set(names))
    plain = all(name.isascii() and name.isdigit() and len(name) < 19 for name in different)
    return Names.of(sorted(different, key=int) if plain else different)


def _number_names(
    what: str, given: Sequence | np.ndarray | Names, names: Names | np.ndarray | None
) -> tuple[np.ndarray, Names]:
    """The indices of names, and the unique names in order."""
    strings = Names.of(given).tolist()
    names = _ordered(strings) if names is None else Names.of(names)
    numbers = {name: number for number, name in enumerate(names)}
    try:
        return np.array([numbers[name] for name in strings], np.int64), names
    except KeyError as error:
        raise DataError(f"{what} has the name {shortened(error.args[0])}, which is not among those given") from None


def _first_repeated(user: np.ndarray, item: np.ndarray, num_items: int) -> int | None:
    """The index of the first repeated pair of user and item, or None."""
    pairs = user * max(num_items, 1) + item
    again = np.setdiff1d(np.arange(len(pairs)), np.unique(pairs, return_index=True)[1])
    return int(again[0]) if len(again) else None
