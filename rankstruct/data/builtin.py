"""Data sets without download: handwritten digits as queries, and synthetic lists from a known scorer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankstruct.checks import check_integers, check_numbers
from rankstruct.data.dataset import RankingData, Splits

__all__ = ["digits", "synthetic", "synthetic_groups"]


def digits(
    seed: int = 0, *, relevant: int = 8, queries: tuple[int, int, int] = (50, 50, 50), documents: int = 100
) -> Splits:
    """Handwritten digits as queries: one class is relevant, the same for every query.

    The 1797 images of 8 x 8 pixels are the test part of OptDigits (Alpaydin and Kaynak, UCI Machine Learning Repository, 1998),
    as scikit-learn ships it. Images are split into training (60%), validation and test (20% each) at random within each class;
    each query is a random sample of images of its part, without replacement, so no image is in two parts. This is the UCI
    protocol of Le and Smola, "Direct Optimization of Ranking Measures", 2007, section 6. The digit 8 is the hardest class for a
    linear scorer: least squares reaches a test AP of about 0.87, a random ranking 0.13.

    Args:
        seed: seed of the split and the samples.
        relevant: the class with label 1; the others have label 0.
        queries: number of training, validation and test queries.
        documents: images per query, at most a fifth of 1797.

    Returns:
        Splits with 64 features, pixels from 0 to 1. Docids are the indices of the images.

    Raises:
        ValueError: `relevant` is not a digit, there are no queries, or more documents than a part has.

    >>> splits = digits()
    >>> splits.train.num_lists, splits.train.num_documents, splits.train.num_features
    (50, 5000, 64)
    """
    from sklearn.datasets import load_digits  # slow to import, and only needed here

    images, classes = load_digits(return_X_y=True)
    if relevant not in range(10):
        raise ValueError(f"relevant must be a digit, 0 to 9; got {relevant}")
    if len(queries) != 3 or min(queries) < 1:
        raise ValueError(f"queries must be three positive numbers (training, validation, test), got {queries}")
    rng = np.random.default_rng(seed)
    cut = []
    for digit in range(10):
        members = rng.permutation(np.flatnonzero(classes == digit))
        cut.append(np.split(members, [round(0.6 * len(members)), round(0.8 * len(members))]))
    pools = [np.concatenate(part) for part in zip(*cut, strict=True)]
    if not 1 <= documents <= min(map(len, pools)):
        raise ValueError(
            f"documents must be from 1 to {min(map(len, pools))}, the images of the smallest part; got {documents}"
        )

    def sampled(pool: np.ndarray, number: int, name: str) -> RankingData:
        rows = np.concatenate([rng.choice(pool, documents, replace=False) for _ in range(number)])
        names = np.repeat([f"{name}{query}" for query in range(1, number + 1)], documents)
        return RankingData.from_arrays(images[rows] / 16, classes[rows] == relevant, names, docids=rows)

    return Splits(*(sampled(*args) for args in zip(pools, queries, Splits._fields, strict=True)))


def synthetic(
    *,
    lists: int = 100,
    documents: tuple[int, int] = (5, 50),
    features: int = 20,
    grades: int = 5,
    noise: float = 0.5,
    seed: int = 0,
    weights: np.ndarray | None = None,
) -> tuple[RankingData, np.ndarray]:
    """Lists with graded labels from a known linear scorer plus noise.

    Features are standard normal; the utility of a document is `features @ weights + noise * normal` with weights of norm 1. A
    document has grade g or more if its utility is in the upper 2^-g of all utilities, so half of the documents have grade 0.

    Args:
        lists: number of lists.
        documents: least and greatest length of a list, sampled uniformly.
        features: number of features.
        grades: number of grades, at least 2.
        noise: standard deviation of the noise, relative to a signal of 1.
        seed: random seed.
        weights: `[features]`, to sample more data from the same scorer; random if None.

    Returns:
        `(data, weights)`, weights `[features]` float32 of norm 1.

    Raises:
        ValueError: a number outside its range, or weights of another shape.

    >>> data, weights = synthetic(lists=3, documents=(4, 4), features=2, seed=1)
    >>> data.lengths.tolist(), weights.shape
    ([4, 4, 4], (2,))
    """
    check_integers(1, lists=lists, features=features)
    check_integers(2, grades=grades)
    check_numbers(">= 0", noise=noise)
    _check_range("documents", documents, 1)
    rng = np.random.default_rng(seed)
    weights = _direction(rng, weights, features, "features")
    lengths = rng.integers(*documents, size=lists, endpoint=True)
    values = rng.standard_normal((lengths.sum(), features)).astype(np.float32)
    utilities = values @ weights + noise * rng.standard_normal(len(values))
    return _graded(values, utilities, grades, lengths), weights


def synthetic_groups(
    *,
    lists: int = 100,
    documents: tuple[int, int] = (15, 40),
    groups: tuple[int, int] = (5, 10),
    features: int = 10,
    grades: int = 3,
    noise: float = 0.5,
    seed: int = 0,
    weights: np.ndarray | None = None,
) -> tuple[RankingData, np.ndarray]:
    """Lists whose documents come in groups, one of which has most of the documents and most of the relevant ones.

    This imitates the web, where one site may have many relevant pages that crowd out those of others. Relevance differs between
    the main group and the others: the utility is `1 / 2 + features @ weights + noise * normal` in the main group, with 7 of 10
    documents, and `features @ weights + noise * normal` elsewhere, with the sign of every other weight reversed, starting with
    the first. So no linear scorer is right about both, and the measure decides which one matters more. Grades are cut from
    utilities as in `synthetic`.

    Arguments are those of `synthetic`, plus `groups`, the least and greatest number of groups of a list, including the main one;
    some may be empty. The first feature is 1 in the main group and 0 elsewhere, the others are standard normal; `weights` are
    `[features - 1]`.

    Returns and raises as `synthetic`; the data have groups, with the main one of each list numbered 0.

    >>> data, weights = synthetic_groups(lists=3, seed=1)
    >>> data.diversity_groups[:8], weights.shape
    (array([0, 7, 0, 0, 0, 0, 0, 0]), (9,))
    """
    check_integers(1, lists=lists)
    check_integers(2, features=features, grades=grades)
    check_numbers(">= 0", noise=noise)
    _check_range("documents", documents, 1)
    _check_range("groups", groups, 2)
    rng = np.random.default_rng(seed)
    weights = _direction(rng, weights, features - 1, "features - 1")
    lengths = rng.integers(*documents, size=lists, endpoint=True)
    numbers = rng.integers(*groups, size=lists, endpoint=True)
    total = int(lengths.sum())
    group = np.where(rng.random(total) < 0.7, 0, 1 + np.floor(rng.random(total) * np.repeat(numbers - 1, lengths)))
    main = group == 0
    values = np.column_stack([main, rng.standard_normal((total, features - 1))]).astype(np.float32)
    elsewhere = weights * np.where(np.arange(features - 1) % 2, 1, -1)
    utilities = np.where(main, 0.5 + values[:, 1:] @ weights, values[:, 1:] @ elsewhere)
    utilities = utilities + noise * rng.standard_normal(total)
    return replace(_graded(values, utilities, grades, lengths), diversity_groups=group.astype(np.int64)), weights


def _check_range(name: str, given: tuple[int, int], least: int) -> None:
    smallest, largest = given
    if not least <= smallest <= largest:
        raise ValueError(f"{name} must be (least, greatest) with {least} <= least <= greatest, got {given}")


def _direction(rng: np.random.Generator, weights: np.ndarray | None, size: int, what: str) -> np.ndarray:
    """Weights of norm 1, random if None."""
    if weights is None:
        weights = rng.standard_normal(size)
    if np.shape(weights) != (size,):
        raise ValueError(f"weights must have shape [{what}] = ({size},), got {np.shape(weights)}")
    return (weights / np.linalg.norm(weights)).astype(np.float32)


def _graded(values: np.ndarray, utilities: np.ndarray, grades: int, lengths: np.ndarray) -> RankingData:
    """Lists of these lengths, with grade g or more if the utility is in the upper 2^-g of all."""
    labels = np.searchsorted(np.quantile(utilities, 1 - 0.5 ** np.arange(1, grades)), utilities)
    return RankingData.from_arrays(values, labels, np.repeat(np.arange(1, len(lengths) + 1), lengths))
