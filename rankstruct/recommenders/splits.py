"""Splits of ratings into training ratings, known ratings of test users, and test ratings.

`num_train` random ratings of each test user, such as 10, 20 or 50, are known, and the others are predicted; users with fewer than
`num_train + min_test` ratings are not tested, and counted. Splits depend only on `seed`. A number out of range, or no user with
enough ratings, raises ValueError. Instead of `Ratings`, all splits take the SciPy matrix or table of `interactions`.

Source: Weimer, Karatzoglou, Le, Smola, "CoFiRank", NIPS 2007; Marlin, "Collaborative Filtering: A Machine Learning
Perspective", 2004.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from rankstruct.checks import check_integers, check_numbers
from rankstruct.recommenders.ratings import Ratings, as_ratings

__all__ = ["RatingsParts", "RatingsSplit", "hold_out", "split_by_time", "strong_split", "weak_split"]


class RatingsSplit(NamedTuple):
    """Training ratings `train` and test ratings `test`.

    `given` are the known ratings of the test users, equal to `train` in weak generalisation; `left_out` is the number of users
    with ratings, but too few to be tested.

    >>> from rankstruct.recommenders import synthetic_ratings
    >>> split = weak_split(synthetic_ratings(users=20, rated=30), num_train=10)
    >>> split.train.num_ratings, split.test.num_ratings, split.left_out
    (200, 400, 0)
    """

    train: Ratings
    given: Ratings
    test: Ratings
    left_out: int


def weak_split(ratings: Any, num_train: int, *, min_test: int = 10, seed: int = 0) -> RatingsSplit:
    """Weak generalisation: train on the known ratings of the test users; users with too few ratings are left out."""
    ratings = as_ratings(ratings)
    users, left_out = _judged(ratings, num_train, min_test)
    known = _rank(ratings, seed) < num_train
    among = np.isin(ratings.user, users)
    train = ratings.select(known & among)
    return RatingsSplit(train, train, ratings.select(~known & among), left_out)


def strong_split(
    ratings: Any, num_train: int, *, test_users: float = 0.1, min_test: int = 10, seed: int = 0
) -> RatingsSplit:
    """Strong generalisation: train on some users, and test on the others, which are new.

    `test_users` is the fraction of the users with enough ratings that are new; at least one is.
    """
    check_numbers("> 0 and < 1", test_users=test_users)
    ratings = as_ratings(ratings)
    users, left_out = _judged(ratings, num_train, min_test)
    rng = np.random.default_rng([seed, 1])
    new = rng.permutation(users)[: max(1, round(test_users * len(users)))]
    among, known = np.isin(ratings.user, new), _rank(ratings, seed) < num_train
    return RatingsSplit(ratings.select(~among), ratings.select(among & known), ratings.select(among & ~known), left_out)


def hold_out(ratings: Any, share: float, *, latest: bool = False, seed: int = 0) -> tuple[Ratings, Ratings]:
    """Hold out some of each user's ratings, at random or the latest, for validation or test: `(training, held out)`.

    `share` is a fraction in (0, 1), or an integer, the number held out of each user with more ratings than that:
    `hold_out(ratings, 1)` is leave-one-out. A fraction of a user's ratings that is not whole is rounded up or down at random, so
    that it is exact in expectation, unless that would hold out all: .1 of 6 ratings is 1 with probability .6, otherwise 0. One
    rating of each user is never held out. `latest` requires times.

    >>> from rankstruct.recommenders import interactions
    >>> train, held = hold_out(interactions([0, 0, 1], [0, 1, 0], times=[1, 3, 2]), 1, latest=True)
    >>> train.item, held.item
    (array([0, 0]), array([1]))
    """
    whole = isinstance(share, Integral) and not isinstance(share, bool)
    if whole:
        check_integers(1, share=share)
    else:
        check_numbers("> 0 and < 1", share=share)
    ratings = as_ratings(ratings)
    counts = np.diff(ratings.offsets)
    # differs from that of a split of the rest
    drawn = np.random.default_rng([seed, 2, ratings.num_ratings]).random(len(counts))
    number = np.where(counts > share, share, 0) if whole else np.minimum(np.floor(share * counts + drawn), counts - 1)
    held = _rank(ratings, seed, latest) < number[ratings.user]
    return ratings.select(~held), ratings.select(held)


def split_by_time(ratings: Any, share: float) -> tuple[Ratings, Ratings]:
    """Hold out the latest `share` of all ratings, in (0, 1), those after a common moment: `(training, held out)`.

    >>> from rankstruct.recommenders import interactions
    >>> train, test = split_by_time(interactions([0, 0, 1], [0, 1, 0], times=[1, 3, 2]), 0.4)
    >>> test.user, test.item
    (array([0]), array([1]))
    """
    check_numbers("> 0 and < 1", share=share)
    ratings = as_ratings(ratings)
    times = _times(ratings)
    held = times > np.quantile(times, 1 - share, method="lower")
    return ratings.select(~held), ratings.select(held)


class RatingsParts(NamedTuple):
    """The parts of a split, with common user and item indices.

    Attributes:
        train: training ratings.
        vali_given: known ratings of validation users that are not in `train`; empty in weak generalisation.
        vali: validation ratings.
        test_given: as `vali_given`, for the test users.
        test: test ratings.
        left_out: number of users with too few ratings to be tested.

    >>> from rankstruct.recommenders import RatingsSource
    >>> parts = RatingsSource(builtin="synthetic").read()
    >>> parts.train.num_users == parts.test.num_users
    True
    """

    train: Ratings
    vali_given: Ratings
    vali: Ratings
    test_given: Ratings
    test: Ratings
    left_out: int


def nothing(ratings: Ratings) -> Ratings:
    """The same users and items without ratings."""
    return ratings.select(np.zeros(ratings.num_ratings, bool))


def without(ratings: Ratings, *known: Ratings) -> Ratings:
    """The ratings of users and items that are not in `known`, which have the same indices."""
    keys = ratings.user * max(ratings.num_items, 1) + ratings.item
    return ratings.select(~np.isin(keys, np.concatenate([each.keys() for each in known])))


def _times(ratings: Ratings) -> np.ndarray:
    """The rank of each time from 0: times may be numbers or dates, and integers that float64 would merge."""
    if ratings.time is None:
        raise ValueError("a split by time requires times, such as a column time; the ratings have none")
    return np.unique(ratings.time, return_inverse=True)[1]


def _rank(ratings: Ratings, seed: int, latest: bool = False) -> np.ndarray:
    """`[ratings]`: the position of each rating among its user's, in random order, or the latest first."""
    drawn = np.random.default_rng([seed, 0]).random(ratings.num_ratings)
    order = np.lexsort((drawn, -_times(ratings), ratings.user) if latest else (drawn, ratings.user))
    return np.argsort(order) - ratings.offsets[ratings.user]


def _judged(ratings: Ratings, num_train: int, min_test: int) -> tuple[np.ndarray, int]:
    """Users with enough ratings, and the number of users with too few."""
    check_integers(1, num_train=num_train, min_test=min_test)
    counts = np.diff(ratings.offsets)
    users = np.flatnonzero(counts >= num_train + min_test)
    if not len(users):
        raise ValueError(
            f"expected users with {num_train} + {min_test} ratings (num_train + min_test), "
            f"got at most {counts.max(initial=0)} per user"
        )
    return users, int((counts > 0).sum()) - len(users)
