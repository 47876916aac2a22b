"""How the papers' sets are divided beside folds: random trials of lists, and queries sampled from classes; and shuffled lists."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from papers.classes import ClassTable, read_arff, read_csv, sample_queries
from rankstruct.data import RankingData, Source, Splits
from rankstruct.data.folds import cross_validation_parts
from rankstruct.data.formats import lacks_lists, suffix_of

__all__ = ["PaperSource", "class_splits", "shuffle_documents", "trial_parts"]

#: Readers of classification data; CSV files with a column `qid` are lists instead.
FORMATS: dict[str, Callable[..., ClassTable]] = {".arff": read_arff, ".csv": read_csv}


@dataclass(frozen=True)
class PaperSource(Source):
    """A `Source` that also divides lists by trials, and makes queries of classification data (ARFF, CSV).

    Args:
        protocol: `"folds"`, `"cross-validation"`, or `"trials"`, which draws from all lists of the first fold (or of the file);
            `fold` is then the number of the trial.
        sizes: number of training, validation and test lists of a trial.
        queries: number of queries per part of classification data, which cross-validation splits by rows.
        documents: number of documents of such a query.
        relevant: the class with label 1; None for the rarest.

    The other arguments are those of `Source`.

    >>> PaperSource(builtin="synthetic").read().train.num_lists
    100
    """

    protocol: Literal["folds", "cross-validation", "trials"] = "folds"  # type: ignore[assignment]
    sizes: tuple[int, ...] = (10, 5, 35)
    queries: int = 50
    documents: int = 100
    relevant: str | None = None
    protocols: ClassVar[tuple[str, ...]] = (*Source.protocols, "trials")

    def _check_path(self, path: str) -> None:
        if self._has_classes and self.protocol != "cross-validation":
            raise ValueError(f"{path}: classification data require protocol 'cross-validation', got {self.protocol!r}")
        super()._check_path(path)

    @property
    def _has_classes(self) -> bool:
        if self.path is None or suffix_of(self.path) not in FORMATS:
            return False
        return suffix_of(self.path) == ".arff" or lacks_lists(self.path, self.qid)

    def _divided(self, read: Callable[[Path], RankingData] | None) -> Splits:
        if not self._has_classes:
            return super()._divided(read)
        table = FORMATS[suffix_of(str(self.path))](self.path)
        wanted = {"relevant": self.relevant, "queries": self.queries, "documents": self.documents}
        return class_splits(table, self.fold or 1, self.parts, seed=self.seed, **wanted)  # type: ignore[arg-type]

    def _parts_of(self, lists: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self.protocol != "trials":
            return super()._parts_of(lists)
        return trial_parts(lists, self.fold or 1, self.sizes, self.seed)

    def feature_names(self) -> list[str] | None:
        """The names of the features, in order; None if they have only numbers, and for classification data."""
        return None if self._has_classes else super().feature_names()


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

    Features are scaled to [0, 1] on the training rows. Arguments are those of `PaperSource`.
    """
    kinds, counts = np.unique(table.classes, return_counts=True)
    kind = str(kinds[counts.argmin()]) if relevant is None else relevant
    chosen = cross_validation_parts(len(table.classes), fold, parts, seed)
    low, high = (f(table.features[chosen[0]], axis=0) for f in (np.min, np.max))
    scaled = table._replace(features=(table.features - low) / np.where(high > low, high - low, 1))
    sampled = functools.partial(sample_queries, scaled, kind, queries=queries, documents=documents)
    return Splits(*(sampled(rows=rows, seed=10 * fold + at) for at, rows in enumerate(chosen)))


def shuffle_documents(data: RankingData, seed: int = 0) -> RankingData:
    """Shuffle the documents of every list.

    In some files the order of documents reveals their labels to trainers and measures that break ties by order.

    >>> data = RankingData.from_arrays(np.arange(6.0)[:, None], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 2, 2])
    >>> shuffle_documents(data, seed=1).features.ravel()
    array([2., 0., 3., 1., 4., 5.], dtype=float32)
    """
    keys = np.random.default_rng(seed).random(data.num_documents)
    return data.select_documents(np.lexsort((keys, data.list_numbers)), data.offsets, data.qids)
