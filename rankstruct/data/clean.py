"""Steps that remove or relabel documents. The number of removed documents is logged."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from rankstruct.blocks import Blocks
from rankstruct.data.dataset import RankingData
from rankstruct.data.errors import DataError

__all__: list[str] = []

_log = logging.getLogger(__name__)

_Data = TypeVar("_Data", bound=RankingData)


def keep_documents(data: _Data, kept: ArrayLike) -> _Data:
    """Select documents by a mask `[documents]`; lists that lose all documents are dropped.

    >>> data = RankingData.from_arrays([[1.0], [2.0], [3.0]], [1, 0, 2], ["a", "a", "b"])
    >>> keep_documents(data, [False, True, False]).qids.tolist()
    ['a']
    """
    mask = np.asarray(kept, bool)
    if mask.shape != (data.num_documents,):
        raise DataError(f"kept must have shape [documents] = ({data.num_documents},), got {mask.shape}")
    before = np.concatenate([[0], np.cumsum(mask)])
    lengths = np.diff(before[data.offsets])
    filled = (lengths > 0) | (data.lengths == 0)
    offsets = np.concatenate([[0], np.cumsum(lengths[filled])])
    return data.select_documents(np.flatnonzero(mask), offsets, data.qids[filled])


@dataclass(frozen=True)
class RemoveZeroRows:
    """Remove documents whose features are all 0.

    >>> RemoveZeroRows()(RankingData.from_arrays([[0.0], [1.0]], [1, 0], [1, 1])).labels
    array([0.], dtype=float32)
    """

    def __call__(self, data: RankingData) -> RankingData:
        """Remove them."""
        _check_loaded(data, "remove-zero-rows")
        nonzero = np.asarray((data.features != 0).sum(axis=1)).ravel() > 0
        return _kept(data, nonzero, "whose features are all 0")


@dataclass(frozen=True)
class RemoveNearDuplicates:
    """Remove pairs of a relevant and an irrelevant document of the same list whose cosine is above a threshold.

    Documents of zeros have no direction and are kept. Grades from `min_relevant` are relevant.

    Source: Chakrabarti, Khanna, Sawant, Bhattacharyya, KDD 2008, section 4.1, who apply it to both training and test data;
    results are then not comparable with those of the complete data.

    >>> data = RankingData.from_arrays([[1.0, 1.0], [2.0, 2.001], [1.0, 0.0]], [1, 0, 0], [1, 1, 1])
    >>> RemoveNearDuplicates()(data).features
    array([[1., 0.]], dtype=float32)
    """

    threshold: float = 0.99
    min_relevant: float = 1

    def __call__(self, data: RankingData) -> RankingData:
        """Remove them."""
        _check_loaded(data, "remove-near-duplicates")
        kept = np.ones(data.num_documents, bool)
        pairs = 0
        for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
            rows = data.features[start:stop]
            rows = (rows.toarray() if sp.issparse(rows) else rows).astype(np.float64)
            lengths = np.linalg.norm(rows, axis=1)
            rows = rows / np.where(lengths > 0, lengths, 1.0)[:, None]
            relevant = data.labels[start:stop] >= self.min_relevant
            close = rows[relevant] @ rows[~relevant].T > self.threshold
            pairs += int(close.sum())
            kept[start:stop][relevant] = ~close.any(axis=1)
            kept[start:stop][~relevant] = ~close.any(axis=0)
        return _kept(data, kept, f"of {pairs} relevant-irrelevant pairs with cosine > {self.threshold:g}")


@dataclass(frozen=True)
class Binarize:
    """Set labels to 1 from a grade upwards, 0 below.

    >>> Binarize(2)(RankingData.from_arrays([[0.0]] * 3, [0, 1, 2], [1, 1, 1])).labels
    array([0., 0., 1.], dtype=float32)
    """

    grade: float = 1

    def __call__(self, data: RankingData) -> RankingData:
        """The data with binary labels."""
        return replace(data, labels=(data.labels >= self.grade).astype(np.float32))


@dataclass(frozen=True)
class UnlabelledAsIrrelevant:
    """Set negative labels, which mark unjudged documents in some files, to 0.

    >>> UnlabelledAsIrrelevant()(RankingData.from_arrays([[0.0]] * 2, [-1, 2], [1, 1])).labels
    array([0., 2.], dtype=float32)
    """

    def __call__(self, data: RankingData) -> RankingData:
        """The data without negative labels."""
        return replace(data, labels=np.maximum(data.labels, 0))


def _check_loaded(data: RankingData, name: str) -> None:
    if isinstance(data.features, Blocks):
        raise DataError(
            f"{name} cannot remove rows from shards, which are read as they are; remove them from the files"
        )


def _kept(data: RankingData, kept: np.ndarray, others: str) -> RankingData:
    if not kept.all():
        _log.info("removed %d of %d documents: documents %s", (~kept).sum(), data.num_documents, others)
    return keep_documents(data, kept)
