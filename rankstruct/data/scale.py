"""Preparation of features: steps from `RankingData` to `RankingData`, by object or by name.

Query-level steps look at one list at a time, so they need no fitting and no training data. Sums are taken in float64,
which adds a float32 number to itself without rounding, so the deviation of a constant feature is exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from rankstruct.data.dataset import RankingData
from rankstruct.data.errors import DataError


class Step(Protocol):
    """A preparation step: the same documents with other features."""

    def __call__(self, data: RankingData) -> RankingData:
        """The data with the features changed."""


@dataclass(frozen=True)
class QueryMinMax:
    """Each feature to [0, 1] within each list, `(x - min) / (max - min)`; 0 where it is constant in the list.

    LETOR's query-level normalisation (Qin, Liu, Xu, Li, "LETOR: A Benchmark Collection for Research on Learning to Rank
    for Information Retrieval", Information Retrieval, 2010).

    Raises:
        DataError: the features are sparse.

    >>> data = RankingData.from_arrays([[1.0], [2.0], [3.0], [7.0]], [0, 1, 1, 0], [1, 1, 1, 2])
    >>> QueryMinMax()(data).features.ravel()
    array([0. , 0.5, 1. , 0. ], dtype=float32)
    """

    def __call__(self, data: RankingData) -> RankingData:
        """The data with the features changed."""
        features, starts, lengths = _by_list(data, "query-minmax")
        low, high = np.minimum.reduceat(features, starts), np.maximum.reduceat(features, starts)
        return data.with_features(_shifted_and_divided(features, low, high - low, lengths))


@dataclass(frozen=True)
class QueryZScore:
    """Each feature to mean 0 and standard deviation 1 within each list; 0 where it is constant in the list.

    Raises:
        DataError: the features are sparse.

    >>> data = RankingData.from_arrays([[1.0], [3.0], [7.0]], [0, 1, 0], [1, 1, 2])
    >>> QueryZScore()(data).features.ravel()
    array([-1.,  1.,  0.], dtype=float32)
    """

    def __call__(self, data: RankingData) -> RankingData:
        """The data with the features changed."""
        features, starts, lengths = _by_list(data, "query-zscore")
        mean = np.add.reduceat(features, starts) / lengths[:, None]
        centred = features - np.repeat(mean, lengths, axis=0)
        deviation = np.sqrt(np.add.reduceat(centred**2, starts) / lengths[:, None])
        return data.with_features(_shifted_and_divided(features, mean, deviation, lengths))


@dataclass(frozen=True)
class LogMagnitude:
    """sign(x) log(1 + |x|), which keeps 0 and so takes sparse features too.

    >>> LogMagnitude()(RankingData.from_arrays([[0.0], [-1.0]], [0, 1], [1, 1])).features.ravel()
    array([ 0.        , -0.6931472], dtype=float32)
    """

    def __call__(self, data: RankingData) -> RankingData:
        """The data with the features changed."""
        if not data.is_sparse:
            return data.with_features(_log_magnitude(data.features))
        matrix = data.features
        return data.with_features(
            sp.csr_array((_log_magnitude(matrix.data), matrix.indices, matrix.indptr), shape=matrix.shape)
        )


@dataclass(frozen=True)
class Append:
    """The features as they come, followed by what `step` makes of them: `[documents, 2 d]` for the steps above.

    >>> Append(QueryMinMax())(RankingData.from_arrays([[4.0], [6.0]], [0, 1], [1, 1])).features
    array([[4., 0.],
           [6., 1.]], dtype=float32)
    """

    step: Step

    def __call__(self, data: RankingData) -> RankingData:
        """The data with the features changed."""
        parts = [data.features, self.step(data).features]
        return data.with_features(sp.hstack(parts, format="csr") if data.is_sparse else np.hstack(parts))


@dataclass(frozen=True)
class Standardize:
    """Each feature to mean 0 and standard deviation 1 over the documents it was fitted to; constant features become 0.

    Args:
        mean: `[d]`, see `fit`.
        deviation: `[d]`, 0 where the feature is constant.

    Raises:
        DataError: the features are sparse, or their number is not that of the fit.

    >>> train = RankingData.from_arrays([[1.0], [3.0]], [0, 1], [1, 1])
    >>> test = RankingData.from_arrays([[5.0]], [0], [1])
    >>> Standardize.fit(train)(test).features
    array([[3.]], dtype=float32)
    """

    mean: np.ndarray = field(repr=False)
    deviation: np.ndarray = field(repr=False)

    @classmethod
    def fit(cls, data: RankingData) -> Standardize:
        """Mean and standard deviation over all documents, those of the training data as a rule."""
        features = _dense(data, "Standardize")
        return cls(features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64))

    def __call__(self, data: RankingData) -> RankingData:
        """The data with the features changed."""
        features = _dense(data, "Standardize")
        if features.shape[1] != len(self.mean):
            raise DataError(f"Standardize was fitted to {len(self.mean)} features, got {features.shape[1]}")
        return data.with_features(_divided(features - self.mean, self.deviation))


@dataclass(frozen=True)
class Compose:
    """Steps one after another; without steps, the data as they are."""

    steps: tuple[Step, ...]

    def __call__(self, data: RankingData) -> RankingData:
        """The data with the features changed."""
        for step in self.steps:
            data = step(data)
        return data


_STEPS: dict[str, Callable[[], Step]] = {
    "query-minmax": QueryMinMax,
    "query-zscore": QueryZScore,
    "log": LogMagnitude,
}


def parse_preparation(names: Sequence[str]) -> Compose:
    """Steps from names: "query-minmax", "query-zscore", "log", and each with "append-" in front, one after another.

    Raises:
        ValueError: an unknown name; the message lists the known ones.

    >>> parse_preparation(["append-log"])
    Compose(steps=(Append(step=LogMagnitude()),))
    """
    if isinstance(names, str):
        raise ValueError(f"preparation must be a list of names, got the string {names!r}; write [{names!r}]")
    return Compose(tuple(_parse_step(name) for name in names))


def _parse_step(name: str) -> Step:
    plain = name.removeprefix("append-")
    if plain not in _STEPS:
        known = ", ".join([*_STEPS, *(f"append-{step}" for step in _STEPS)])
        raise ValueError(f"unknown preparation step {name!r}; known are {known}")
    step = _STEPS[plain]()
    return step if plain == name else Append(step)


def _dense(data: RankingData, step: str) -> np.ndarray:
    if data.is_sparse:
        raise DataError(
            f"{step} needs dense features, since it moves zeros; got sparse ones: read them with sparse=False, "
            "or use 'log', which keeps zeros"
        )
    return data.features


def _by_list(data: RankingData, step: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features in float64, and start and length of each list that has documents."""
    features = _dense(data, step).astype(np.float64)
    filled = data.lengths > 0  # reduceat would give an empty list its neighbour's values
    return features, data.offsets[:-1][filled], data.lengths[filled]


def _shifted_and_divided(features: np.ndarray, shift: np.ndarray, scale: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return _divided(features - np.repeat(shift, lengths, axis=0), np.repeat(scale, lengths, axis=0))


def _divided(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """`values / scale` in float32, 0 where the scale is 0."""
    return np.divide(values, scale, out=np.zeros_like(values), where=scale > 0).astype(np.float32)


def _log_magnitude(values: np.ndarray) -> np.ndarray:
    return np.sign(values) * np.log1p(np.abs(values))
