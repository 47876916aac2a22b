"""Preparation of features: steps from `RankingData` to `RankingData`, by object or by name.

Query-level steps look at one list at a time, so they need no fitting and no training data. Sums are taken in float64,
which adds a float32 number to itself without rounding, so the deviation of a constant feature is exactly 0. A step that
would make numbers of zeros, as all but `LogMagnitude` and `Bins` do, raises DataError for sparse features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
import scipy.stats

from rankstruct.data.clean import Binarize, RemoveNearDuplicates, RemoveZeroRows, UnlabelledAsIrrelevant
from rankstruct.data.dataset import RankingData, Splits
from rankstruct.data.errors import DataError

__all__ = [
    "Append",
    "Bins",
    "Compose",
    "LogMagnitude",
    "QueryMinMax",
    "QueryPercentile",
    "QueryZScore",
    "Standardize",
    "check_preparation",
    "parse_preparation",
    "prepare_splits",
]


#: A preparation step: the same documents with other features.
Step = Callable[[RankingData], RankingData]


class _DenseStep:
    """A step that would make numbers of zeros; `name` is what configs call it."""

    name = ""

    def __call__(self, data: RankingData) -> RankingData:
        """The data with the features changed; raises DataError for sparse ones."""
        _check_dense(data, self.name)
        return data.with_features(self._changed(data))

    def _changed(self, data: RankingData) -> np.ndarray:
        raise NotImplementedError


@dataclass(frozen=True)
class QueryMinMax(_DenseStep):
    """Each feature to [0, 1] within each list, `(x - min) / (max - min)`; 0 where it is constant in the list.

    LETOR's query-level normalisation (Qin, Liu, Xu, Li, "LETOR: A Benchmark Collection for Research on Learning to Rank
    for Information Retrieval", Information Retrieval, 2010).

    >>> data = RankingData.from_arrays([[1.0], [2.0], [3.0], [7.0]], [0, 1, 1, 0], [1, 1, 1, 2])
    >>> QueryMinMax()(data).features.ravel()
    array([0. , 0.5, 1. , 0. ], dtype=float32)
    """

    name = "query-minmax"

    def _changed(self, data: RankingData) -> np.ndarray:
        features, starts, lengths = _by_list(data)
        low, high = np.minimum.reduceat(features, starts), np.maximum.reduceat(features, starts)
        return _divided(features - np.repeat(low, lengths, axis=0), np.repeat(high - low, lengths, axis=0))


@dataclass(frozen=True)
class QueryZScore(_DenseStep):
    """Each feature to mean 0 and standard deviation 1 within each list; 0 where it is constant in the list.

    >>> data = RankingData.from_arrays([[1.0], [3.0], [7.0]], [0, 1, 0], [1, 1, 2])
    >>> QueryZScore()(data).features.ravel()
    array([-1.,  1.,  0.], dtype=float32)
    """

    name = "query-zscore"

    def _changed(self, data: RankingData) -> np.ndarray:
        features, starts, lengths = _by_list(data)
        mean = np.add.reduceat(features, starts) / lengths[:, None]
        centred = features - np.repeat(mean, lengths, axis=0)
        deviation = np.sqrt(np.add.reduceat(centred**2, starts) / lengths[:, None])
        return _divided(centred, np.repeat(deviation, lengths, axis=0))


@dataclass(frozen=True)
class QueryPercentile(_DenseStep):
    """Each feature to the share of the list's documents that have a lower value, equal ones counted half.

    With it a linear SVM is SVMacc3 of Yue, Finley, Radlinski, Joachims, SIGIR 2007, section 5.2.1 (with `QueryMinMax` it is
    SVMacc4).

    >>> data = RankingData.from_arrays([[5.0], [7.0], [7.0], [9.0], [1.0]], [0, 1, 1, 0, 0], [1, 1, 1, 1, 2])
    >>> QueryPercentile()(data).features.ravel()
    array([0.125, 0.5  , 0.5  , 0.875, 0.5  ], dtype=float32)
    """

    name = "query-percentile"

    def _changed(self, data: RankingData) -> np.ndarray:
        result = np.empty_like(data.features)
        for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
            if stop > start:
                ranks = scipy.stats.rankdata(data.features[start:stop], axis=0)
                result[start:stop] = (ranks - 0.5) / (stop - start)
        return result


@dataclass(frozen=True)
class LogMagnitude:
    """sign(x) log(1 + |x|), which keeps 0 and so takes sparse features too.

    >>> LogMagnitude()(RankingData.from_arrays([[0.0], [-1.0]], [0, 1], [1, 1])).features.ravel()
    array([ 0.        , -0.6931472], dtype=float32)
    """

    def __call__(self, data: RankingData) -> RankingData:
        """The data with the features changed."""
        matrix = data.features
        values = matrix.data if data.is_sparse else matrix
        changed = np.sign(values) * np.log1p(np.abs(values))
        if data.is_sparse:
            changed = sp.csr_array((changed, matrix.indices, matrix.indptr), shape=matrix.shape)
        return data.with_features(changed)


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
class Standardize(_DenseStep):
    """Each feature to mean 0 and standard deviation 1 over the documents it was fitted to; constant features become 0.

    Args:
        mean: `[d]`, see `fit`.
        deviation: `[d]`, 0 where the feature is constant.

    Raises:
        DataError: another number of features than in the fit.

    >>> train = RankingData.from_arrays([[1.0], [3.0]], [0, 1], [1, 1])
    >>> test = RankingData.from_arrays([[5.0]], [0], [1])
    >>> Standardize.fit(train)(test).features
    array([[3.]], dtype=float32)
    """

    name = "Standardize"
    mean: np.ndarray = field(repr=False)
    deviation: np.ndarray = field(repr=False)

    @classmethod
    def fit(cls, data: RankingData) -> Standardize:
        """Mean and standard deviation over all documents, those of the training data as a rule."""
        _check_dense(data, cls.name)
        return cls(data.features.mean(axis=0, dtype=np.float64), data.features.std(axis=0, dtype=np.float64))

    def _changed(self, data: RankingData) -> np.ndarray:
        if data.num_features != len(self.mean):
            raise DataError(f"Standardize was fitted to {len(self.mean)} features, got {data.num_features}")
        return _divided(data.features - self.mean, self.deviation)


@dataclass(frozen=True)
class Bins:
    """Each feature to its bins: one indicator a threshold, whether the value is at least that, sparse.

    A linear function of the indicators is any step function of each feature. Thresholds that no training value separates are
    kept, so that feature f's indicators are columns f n to f n + n - 1.

    Args:
        thresholds: `[d, n]`, ascending; see `fit`.

    Raises:
        DataError: another number of features than in the fit.

    Source: Yue, Finley, Radlinski, Joachims, SIGIR 2007, section 4.2 (50 thresholds a feature).

    >>> train = RankingData.from_arrays([[0.0], [1.0]], [0, 1], [1, 1])
    >>> Bins.fit(train, 3)(RankingData.from_arrays([[0.6]], [0], [1])).features.toarray()
    array([[1., 1., 0.]], dtype=float32)
    """

    thresholds: np.ndarray = field(repr=False)

    @classmethod
    def fit(cls, data: RankingData, count: int = 50) -> Bins:
        """`count` thresholds a feature, evenly spaced inside its range over all documents of the training data."""
        if count < 1 or not data.num_documents:
            raise DataError(f"bins need a threshold and documents; got {count} and {data.num_documents}")
        features = data.features.toarray() if data.is_sparse else data.features
        low, high = features.min(axis=0).astype(np.float64), features.max(axis=0).astype(np.float64)
        return cls(low[:, None] + (high - low)[:, None] * (np.arange(count) + 1) / (count + 1))

    def __call__(self, data: RankingData) -> RankingData:
        """The data with the features changed."""
        d, count = self.thresholds.shape
        if data.num_features != d:
            raise DataError(f"Bins was fitted to {d} features, got {data.num_features}")
        features = data.features.toarray() if data.is_sparse else data.features
        places = [np.searchsorted(self.thresholds[f], features[:, f], side="right") for f in range(d)]
        reached = np.stack(places, axis=1)
        flat = reached.ravel()
        before = np.cumsum(flat) - flat
        inside = np.arange(flat.sum()) - np.repeat(before, flat)  # 0, 1, ... within each document and feature
        columns = inside + np.repeat(np.tile(count * np.arange(d), len(features)), flat)
        pointers = np.concatenate([[0], np.cumsum(reached.sum(axis=1))])
        ones = np.ones(len(columns), np.float32)
        return data.with_features(sp.csr_array((ones, columns, pointers), shape=(len(features), d * count)))


@dataclass(frozen=True)
class Compose:
    """Steps one after another; without steps, the data as they are."""

    steps: tuple[Step, ...]

    def __call__(self, data: RankingData) -> RankingData:
        """The data with the features changed."""
        for step in self.steps:
            data = step(data)
        return data


_FEATURES: dict[str, Callable[..., Step]] = {
    **{step.name: step for step in (QueryMinMax, QueryZScore, QueryPercentile)},
    "log": LogMagnitude,
}
_STEPS: dict[str, Callable[..., Step]] = {
    **_FEATURES,
    **{f"append-{name}": lambda step=step: Append(step()) for name, step in _FEATURES.items()},
    "remove-zero-rows": RemoveZeroRows,
    "remove-near-duplicates": RemoveNearDuplicates,
    "binarize": Binarize,
    "unlabelled-as-irrelevant": UnlabelledAsIrrelevant,
    "unlabelled-as-bad": UnlabelledAsIrrelevant,  # as earlier runs name it
}
_FITTED: dict[str, Callable[..., Step]] = {"standardize": Standardize.fit, "bins": Bins.fit}
_NUMBERS: dict[str, type] = {"remove-near-duplicates": float, "binarize": float, "bins": int}


def parse_preparation(names: Sequence[str]) -> Compose:
    """Steps from names, one after another, those that need no training data.

    "query-minmax", "query-zscore", "query-percentile", "log", and each with "append-" in front; "remove-zero-rows",
    "remove-near-duplicates" or "remove-near-duplicates:0.99" (cosine), "binarize" or "binarize:2" (grade),
    "unlabelled-as-irrelevant".

    Raises:
        ValueError: an unknown name, or one that is fitted to training data; the message lists the known ones.

    >>> parse_preparation(["append-log", "binarize:2"])
    Compose(steps=(Append(step=LogMagnitude()), Binarize(grade=2.0)))
    """
    return Compose(tuple(_parse_step(name) for name in _check_names(names)))


def prepare_splits(names: Sequence[str], splits: Splits) -> Splits:
    """Prepare training, validation and test data by steps in turn; what needs fitting is fitted to the training data.

    Names are those of `parse_preparation`, with its errors; also "standardize", and "bins" or "bins:50" (thresholds a feature).

    >>> from rankstruct.data.builtin import digits
    >>> prepare_splits(["bins:2"], digits()).test.num_features
    128
    """
    for name in _check_names(names):
        plain, number = _split_number(name)
        step = _FITTED[plain](splits.train, *number) if plain in _FITTED else _parse_step(name)
        splits = Splits(*map(step, splits))
    return splits


def check_preparation(names: Sequence[str]) -> None:
    """Raise ValueError unless all names are those of steps, fitted ones included."""
    for name in _check_names(names):
        if _split_number(name)[0] not in _FITTED:
            _parse_step(name)


def _check_names(names: Sequence[str]) -> Sequence[str]:
    if isinstance(names, str):
        raise ValueError(f"preparation must be a list of names, got the string {names!r}; write [{names!r}]")
    return names


def _split_number(name: str) -> tuple[str, list]:
    plain, colon, number = name.partition(":")
    if not colon:
        return name, []
    if plain not in _NUMBERS:
        raise ValueError(f"only {', '.join(_NUMBERS)} take a number, got {name!r}")
    try:
        return plain, [_NUMBERS[plain](number)]
    except ValueError:
        raise ValueError(f"expected a number after the colon, got {name!r}") from None


def _parse_step(name: str) -> Step:
    plain, number = _split_number(name)
    if plain not in _STEPS:
        fitted = f"; {', '.join(_FITTED)} are fitted to training data, which experiments do (rankstruct experiment)"
        raise ValueError(f"unknown preparation step {name!r}; known are {', '.join(_STEPS)}{fitted}")
    return _STEPS[plain](*number)


def _check_dense(data: RankingData, step: str) -> None:
    if data.is_sparse:
        raise DataError(
            f"{step} needs dense features, since it moves zeros; got sparse ones: read them with sparse=False, "
            "or use 'log', which keeps zeros"
        )


def _by_list(data: RankingData) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features in float64, and start and length of each list that has documents."""
    filled = data.lengths > 0  # reduceat would give an empty list its neighbour's values
    return data.features.astype(np.float64), data.offsets[:-1][filled], data.lengths[filled]


def _divided(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """`values / scale` in float32, 0 where the scale is 0."""
    return np.divide(values, scale, out=np.zeros_like(values), where=scale > 0).astype(np.float32)
