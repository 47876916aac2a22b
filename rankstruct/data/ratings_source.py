"""From what a config says to ratings that learn, steer and judge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rankstruct.data.errors import DataError
from rankstruct.data.ratings import (
    Ratings,
    hold_out,
    read_movielens_fold,
    read_ratings,
    strong_split,
    synthetic_ratings,
    weak_split,
)

__all__ = ["RatingsParts", "read_ratings_parts", "split_ratings"]

SPLITS = ("weak", "strong", "fold")
BUILTIN_RATINGS = ("synthetic",)
_KNOWN_FILES = {"u.data": "movielens100k", "ratings.dat": "movielens1m"}


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


def find_ratings(path: str | os.PathLike[str], format: str | None = None) -> tuple[Path, str]:
    """The file with the ratings and its format, by what names say if `format` is None.

    A folder is searched for `u.data` (MovieLens 100K) and `ratings.dat` (1M), or with another format for `ratings.txt` or
    `ratings.csv`. A file of these names, `u<n>.base`, `u<n>.test` or one that ends in `.csv` says its format itself.

    Raises:
        DataError: there is no such file, or it does not say its format.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; expected ratings, such as u.data of MovieLens or a CSV file")
    if path.is_dir():
        names = [*_KNOWN_FILES, "ratings.csv", "ratings.txt"]
        found = [path / name for name in names if (path / name).is_file()]
        if not found:
            raise DataError(f"{path} has none of {', '.join(names)}; give the file itself")
        path = found[0]
    if format is not None:
        return path, format
    if path.name in _KNOWN_FILES:
        return path, _KNOWN_FILES[path.name]
    if path.suffix in (".base", ".test"):
        return path, "movielens100k"
    if path.suffix == ".csv":
        return path, "csv"
    raise DataError(
        f"{path}: its name does not say its format; give data.format, such as jester, or text with data.scale"
    )


def split_ratings(
    ratings: Ratings,
    split: str = "weak",
    *,
    num_train: int = 20,
    min_test: int = 10,
    validation: float = 0.2,
    new_users: float = 0.1,
    seed: int = 0,
) -> RatingsParts:
    """Split for training with validation.

    Args:
        ratings: all.
        split: `"weak"`: of each user `num_train` ratings are known, of which the share `validation` steers the training, and the
            others are tested. `"strong"`: the share `new_users` of the users is new at the test and as many at validation; of
            each `num_train` ratings are given, and the others predicted.
        num_train: N.
        min_test: users with fewer than `num_train + min_test` ratings are not judged, and with `"weak"` not trained on.
        validation: a share, of ratings.
        new_users: a share, of users.
        seed: of the draws.

    Raises:
        ValueError: an unknown split, a number outside its range, or no user has enough ratings.

    >>> parts = split_ratings(synthetic_ratings(users=20, rated=30), "strong", num_train=10)
    >>> parts.test_given.num_ratings, parts.test.num_ratings, parts.train.num_ratings
    (20, 40, 480)
    """
    if split == "weak":
        found = weak_split(ratings, num_train, min_test=min_test, seed=seed)
        train, vali = hold_out(found.train, validation, seed=seed)
        nothing = ratings.select(np.zeros(ratings.num_ratings, bool))
        return RatingsParts(train, nothing, vali, nothing, found.test, found.left_out)
    if split != "strong":
        raise ValueError(f"split must be 'weak' or 'strong', got {split!r}")
    if not 0 < new_users < 0.5:
        raise ValueError(f"new_users must be a share above 0 and below 0.5, got {new_users}")
    judged = strong_split(ratings, num_train, test_users=new_users, min_test=min_test, seed=seed)
    steered = strong_split(
        judged.train, num_train, test_users=new_users / (1 - new_users), min_test=min_test, seed=seed
    )
    return RatingsParts(steered.train, steered.given, steered.test, judged.given, judged.test, judged.left_out)


def read_ratings_parts(
    path: str | os.PathLike[str] | None = None,
    builtin: str | None = None,
    *,
    format: str | None = None,
    scale: str | None = None,
    split: str = "weak",
    fold: int | None = None,
    num_train: int = 20,
    min_test: int = 10,
    validation: float = 0.2,
    new_users: float = 0.1,
    seed: int = 0,
) -> RatingsParts:
    """Read or make ratings, and split them.

    Args:
        path: see `find_ratings`; or give `builtin`.
        builtin: `"synthetic"`, see `synthetic_ratings`.
        format: see `read_ratings`; None to tell it from the file's name.
        scale: see `read_ratings`.
        split: see `split_ratings`; or `"fold"`, the files `u<fold>.base` and `u<fold>.test` of a folder.
        fold: for the split `"fold"` alone.
        num_train: see `split_ratings`; not used by the split `"fold"`, nor are `min_test` and `new_users`.
        min_test: see `split_ratings`.
        validation: see `split_ratings`.
        new_users: see `split_ratings`.
        seed: of the built-in set and of the split.

    Raises:
        ValueError: options that do not fit together, or what `read_ratings` and `split_ratings` raise.

    >>> read_ratings_parts(builtin="synthetic").train.num_users
    400
    """
    if (path is None) == (builtin is None):
        raise ValueError(
            f"give data.path (ratings, such as u.data of MovieLens or a CSV file) or data.builtin "
            f"({', '.join(BUILTIN_RATINGS)}), one of them; got path {path!r} and builtin {builtin!r}"
        )
    if builtin is not None and builtin not in BUILTIN_RATINGS:
        raise ValueError(f"data.builtin must be one of {', '.join(BUILTIN_RATINGS)}, got {builtin!r}")
    if split not in SPLITS:
        raise ValueError(f"data.split must be one of {', '.join(SPLITS)}, got {split!r}")
    if (split == "fold") != (fold is not None):
        raise ValueError(f"data.fold goes with data.split fold, and with it alone; got fold {fold!r}, split {split!r}")
    if split == "fold":
        if path is None:
            raise ValueError("data.split fold needs data.path, the folder of MovieLens 100K")
        assert fold is not None
        base, test = read_movielens_fold(path, fold)
        train, vali = hold_out(base, validation, seed=seed)
        nothing = base.select(np.zeros(base.num_ratings, bool))
        return RatingsParts(train, nothing, vali, nothing, test, 0)
    if builtin is not None:
        ratings = synthetic_ratings(users=400, items=150, rated=60, seed=seed)
    else:
        assert path is not None
        file, format = find_ratings(path, format)
        ratings = read_ratings(file, format, scale=scale)
    return split_ratings(
        ratings,
        split,
        num_train=num_train,
        min_test=min_test,
        validation=validation,
        new_users=new_users,
        seed=seed,
    )
