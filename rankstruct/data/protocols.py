"""Evaluation protocols: official folds, cross-validation, random trials, and queries sampled from classes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from rankstruct.data.classification import ClassTable, sample_queries
from rankstruct.data.dataset import Splits

__all__ = ["cross_validation_parts", "trial_parts"]

Protocol = Literal["folds", "cross-validation", "trials"]
PROTOCOLS = get_args(Protocol)


def cross_validation_parts(
    number: int, fold: int, folds: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training, validation and test indices of one fold; over all folds, each index is tested once and validated once.

    `number` items are split at random; `fold` is from 1 to `folds`, at least 3.

    >>> [part.tolist() for part in cross_validation_parts(4, 1, 4)]
    [[1, 3], [0], [2]]
    """
    if not 1 <= fold <= folds or folds < 3 or number < folds:
        raise ValueError(f"fold must be from 1 to {folds}, and folds from 3 to {number}; got fold {fold} of {folds}")
    parts = np.array_split(np.random.default_rng(seed).permutation(number), folds)
    test, vali = fold - 1, fold % folds
    rest = [part for at, part in enumerate(parts) if at not in (test, vali)]
    return np.concatenate(rest), parts[vali], parts[test]


def trial_parts(
    number: int, trial: int, sizes: Sequence[int], seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training, validation and test indices of one random trial, with balanced use.

    Over the trials 1, 2, ..., the numbers of times that items are used for training differ by at most one; those for validation,
    sampled from the rest, nearly so. Trials are numbered from 1; `sizes` are those of the three parts, at most `number` in total.

    Source: Yue, Finley, Radlinski, Joachims, SIGIR 2007, section 5: 50 trials of 10, 5 and 35 queries.

    >>> [len(part) for part in trial_parts(50, 3, (10, 5, 35))]
    [10, 5, 35]
    """
    if trial < 1 or len(sizes) != 3 or min(sizes) < 1 or sum(sizes) > number:
        raise ValueError(
            f"a trial needs a number from 1 and three sizes of at least 1, at most {number} in total; got trial {trial}, {sizes}"
        )
    rng = np.random.default_rng(seed)
    used = np.zeros((2, number))
    for _ in range(trial):
        rest = np.arange(number)
        parts = []
        for counts, size in zip(used, sizes[:2], strict=True):
            order = np.lexsort((rng.random(len(rest)), counts[rest]))
            chosen = rest[order[:size]]
            counts[chosen] += 1
            parts.append(chosen)
            rest = np.setdiff1d(rest, chosen)
        parts.append(rng.permutation(rest)[: sizes[2]])
    return parts[0], parts[1], parts[2]


def class_splits(
    table: ClassTable,
    fold: int,
    parts: int,
    *,
    relevant: str | None = None,
    queries: int = 50,
    documents: int = 100,
    seed: int = 0,
) -> Splits:
    """Queries of one fold of classification data: rows are split, and queries are sampled within each part.

    Features are scaled to [0, 1] on the training rows. Arguments are those of `rankstruct.data.Source`.
    """
    kinds, counts = np.unique(table.classes, return_counts=True)
    kind = str(kinds[counts.argmin()]) if relevant is None else relevant
    chosen = cross_validation_parts(len(table.classes), fold, parts, seed)
    low, high = (f(table.features[chosen[0]], axis=0) for f in (np.min, np.max))
    scaled = table._replace(features=(table.features - low) / np.where(high > low, high - low, 1))
    sampled = functools.partial(sample_queries, scaled, kind, queries=queries, documents=documents)
    return Splits(*(sampled(rows=rows, seed=10 * fold + at) for at, rows in enumerate(chosen)))
