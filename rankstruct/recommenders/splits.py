"""Splits of ratings into what learns, what is known of those who are judged, and what judges.

Of each user that is judged `num_train` ratings, such as 10, 20 or 50, drawn at random, are known, and the others predicted;
users with fewer than `num_train + min_test` are not judged, and counted. All draws depend on `seed` alone. A number outside its
range, or no user with enough ratings, raises ValueError.

Source: Weimer, Karatzoglou, Le, Smola, "CoFiRank", NIPS 2007; Marlin, "Collaborative Filtering: A Machine Learning
Perspective", 2004.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankstruct.data.errors import check_least
from rankstruct.recommenders.ratings import Ratings

__all__ = ["RatingsParts", "RatingsSplit", "hold_out", "strong_split", "weak_split"]


class RatingsSplit(NamedTuple):
    """Ratings to learn from, `train`, and to be judged by, `test`.

    What is known of the users that are judged is `given`, in weak generalisation the same as `train`; `left_out` is the number of
    users that have ratings, but too few to be judged.
    """

    train: Ratings
    given: Ratings
    test: Ratings
    left_out: int


def weak_split(ratings: Ratings, num_train: int, *, min_test: int = 10, seed: int = 0) -> RatingsSplit:
    """Weak generalisation: users learn from their known ratings; those with too few are left out."""
    users, left_out = _judged(ratings, num_train, min_test)
    known = _random_rank(ratings, seed) < num_train
    among = np.isin(ratings.user, users)
    train = ratings.select(known & among)
    return RatingsSplit(train, train, ratings.select(~known & among), left_out)


def strong_split(
    ratings: Ratings, num_train: int, *, test_users: float = 0.1, min_test: int = 10, seed: int = 0
) -> RatingsSplit:
    """Strong generalisation: some users are new after training, and alone are judged; all others are trained on.

    `test_users` is the share of the users with enough ratings that are new; at least one is.
    """
    if not 0 < test_users < 1:
        raise ValueError(f"test_users must be a share above 0 and below 1, got {test_users}")
    users, left_out = _judged(ratings, num_train, min_test)
    rng = np.random.default_rng([seed, 1])
    new = rng.permutation(users)[: max(1, round(test_users * len(users)))]
    among, known = np.isin(ratings.user, new), _random_rank(ratings, seed) < num_train
    return RatingsSplit(ratings.select(~among), ratings.select(among & known), ratings.select(among & ~known), left_out)


def hold_out(ratings: Ratings, share: float, *, seed: int = 0) -> tuple[Ratings, Ratings]:
    """Take a share of each user's ratings, above 0 and below 1 and rounded down, for validation: `(training, validation)`."""
    if not 0 < share < 1:
        raise ValueError(f"share must be above 0 and below 1, got {share}")
    held = _random_rank(ratings, seed) < np.floor(share * np.diff(ratings.offsets))[ratings.user]
    return ratings.select(~held), ratings.select(held)


class RatingsParts(NamedTuple):
    """Ratings with one numbering of users and items.

    Attributes:
        train: to learn from.
        vali_given: what is known of validation users that training has not seen; without ratings in weak generalisation.
        vali: what steers the training.
        test_given: as `vali_given`, of the test users.
        test: what judges.
        left_out: number of users with too few ratings to be judged.
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


def _random_rank(ratings: Ratings, seed: int) -> np.ndarray:
    """`[ratings]`: the place of each rating in a random order of its user's."""
    drawn = np.random.default_rng([seed, 0]).random(ratings.num_ratings)
    order = np.lexsort((drawn, ratings.user))
    return np.argsort(order) - ratings.offsets[ratings.user]


def _judged(ratings: Ratings, num_train: int, min_test: int) -> tuple[np.ndarray, int]:
    """Users with enough ratings, and how many have some, but too few."""
    check_least(1, num_train=num_train, min_test=min_test)
    counts = np.diff(ratings.offsets)
    users = np.flatnonzero(counts >= num_train + min_test)
    if not len(users):
        raise ValueError(
            f"no user has {num_train} + {min_test} ratings (num_train + min_test); "
            f"the most any has is {counts.max(initial=0)}"
        )
    return users, int((counts > 0).sum()) - len(users)
