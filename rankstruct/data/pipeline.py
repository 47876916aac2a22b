"""A pipeline of named preparation steps from `RankingData` to `RankingData`.

Those of `rankstruct.preparation` change features and are saved with a model; others remove documents or change labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankstruct.data.clean import Binarize, RemoveNearDuplicates, RemoveZeroRows, UnlabelledAsIrrelevant
from rankstruct.data.dataset import RankingData, Splits
from rankstruct.preparation import KNOWN, Preparation, check_names, encoded_first, full_name

__all__ = ["Pipeline"]

_CHANGES: dict[str, Callable[..., Callable[[RankingData], RankingData]]] = {
    "remove-zero-rows": RemoveZeroRows,
    "remove-near-duplicates": RemoveNearDuplicates,
    "binarize": Binarize,
    "unlabelled-as-irrelevant": UnlabelledAsIrrelevant,
    "unlabelled-as-bad": UnlabelledAsIrrelevant,  # the name in earlier runs
}
_WITH_NUMBER = ("remove-near-duplicates", "binarize")


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Fitted steps, applied one after another; without steps, the identity.

    Attributes:
        steps: the steps, each a `Preparation` of one step or a function of the data.

    >>> data = RankingData.from_arrays([[1.0], [3.0]], [0, 3], [1, 1])
    >>> steps, _ = fit_preparation(["standardize"], data)
    >>> steps(data).features.ravel()
    array([-1.,  1.], dtype=float32)
    """

    steps: tuple[Preparation | Callable[[RankingData], RankingData], ...] = ()

    def __call__(self, data: RankingData) -> RankingData:
        """Apply the steps; raises ValueError for another number of features, or for sparse ones if a step changes zeros."""
        for step in self.steps:
            if isinstance(step, Preparation):
                data = data.with_features(step.transform(data.features, data.offsets))
            else:
                data = step(data)
        return data

    @property
    def preparation(self) -> Preparation:
        """The steps that change features, which are saved with a model trained on their output."""
        whole = Preparation()
        for step in self.steps:
            whole = whole.then(step) if isinstance(step, Preparation) else whole
        return whole

    @classmethod
    def of(cls, names: Sequence[str], preparation: Preparation) -> Pipeline:
        """Steps by name with the fitted preparation of a model; raises ValueError if those that change features differ.

        >>> data = RankingData.from_arrays([[1.0], [3.0]], [0, 3], [1, 1])
        >>> steps, _ = fit_preparation(["standardize", "binarize:2"], data)
        >>> Pipeline.of(["standardize", "binarize:2"], steps.preparation)(data).features.ravel()
        array([-1.,  1.], dtype=float32)
        """
        check_preparation(names)
        if preparation.encodes and "encode" not in names:
            names = ["encode", *names]
        own = [name for name in names if _changes_features(name)]
        if list(map(_kind, own)) != list(map(_kind, preparation.names)):
            raise ValueError(
                f"the model was trained with preparation {list(preparation.names)}, but the data have "
                f"{full_names(own)}; set data.prepare as in training"
            )
        fitted, width = iter(zip(preparation.names, preparation.fitted, strict=True)), preparation.num_features or 0
        steps: list[Preparation | Callable[[RankingData], RankingData]] = []
        for name in names:
            if _changes_features(name):
                step = Preparation([(state := next(fitted))[0]], width, [state[1]], preparation.columns)
                width = step.width
                steps.append(step)
            else:
                steps.append(_parse_change(name))
        return cls(tuple(steps))


def check_preparation(names: Sequence[str]) -> None:
    """Raise ValueError for an unknown step."""
    for name in check_names(names):
        if not _changes_features(name):
            _parse_change(name)


def fit_preparation(names: Sequence[str], data: RankingData) -> tuple[Pipeline, RankingData]:
    """Fit steps, given by name, to training data, each to the output of those before it; returns the steps and the prepared data.

    Names are those of `Preparation`; "remove-zero-rows", "remove-near-duplicates" or "remove-near-duplicates:0.99" (cosine),
    "binarize" or "binarize:2" (grade), "unlabelled-as-irrelevant". "encode" is put in front if the data have categories or
    missing values.

    Raises:
        ValueError: an unknown name, with the known ones in the message; sparse features if a step changes zeros.

    >>> data = RankingData.from_arrays([[1.0], [3.0]], [0, 3], [1, 1])
    >>> steps, prepared = fit_preparation(["append-standardize", "binarize:2"], data)
    >>> prepared.features, prepared.labels
    (array([[ 1., -1.],
           [ 3.,  1.]], dtype=float32), array([0., 1.], dtype=float32))
    """
    check_preparation(names)
    steps: list[Preparation | Callable[[RankingData], RankingData]] = []
    columns = data.columns if data.columns is not None and data.columns.categorical else None
    before = Preparation(columns=columns)
    for name in encoded_first(names, data.features, columns):
        if _changes_features(name):
            fitted, features = Preparation.fit_transform([name], data.features, data.offsets, before)
            before = before.then(fitted)
            steps.append(fitted)
            data = data.with_features(features)
        else:
            change = _parse_change(name)
            steps.append(change)
            data = change(data)
    return Pipeline(tuple(steps)), data


def prepare_splits(names: Sequence[str], splits: Splits) -> tuple[Splits, Pipeline]:
    """Prepare training, validation and test data by steps fitted to the training data; returns the splits and the steps.

    >>> from rankstruct.data.builtin import digits
    >>> prepare_splits(["bins:2"], digits())[0].test.num_features
    128
    """
    steps, train = fit_preparation(names, splits.train)
    return Splits(train, steps(splits.vali), steps(splits.test)), steps


def parse_steps(names: Sequence[str]) -> Pipeline:
    """A pipeline of steps, given by name, that only change documents or labels; others raise ValueError.

    >>> parse_steps(["binarize:2"])
    Pipeline(steps=(Binarize(grade=2.0),))
    """
    check_preparation(names)
    for name in names:
        if _changes_features(name):
            raise ValueError(f"{name} changes features, so it must be applied to all parts: set it in data.prepare")
    return Pipeline(tuple(_parse_change(name) for name in names))


def full_names(names: Sequence[str]) -> list[str]:
    """Names of steps with their default numbers."""
    return [full_name(name) if _changes_features(name) else name for name in names]


def _kind(name: str) -> str:
    return name.partition(":")[0]


def _changes_features(name: str) -> bool:
    if _kind(name) not in KNOWN:
        return False
    full_name(name)  # raises if its number is invalid
    return True


def _parse_change(name: str) -> Callable[[RankingData], RankingData]:
    plain, colon, number = name.partition(":")
    if plain not in _CHANGES:
        raise ValueError(f"unknown preparation step {name!r}; known steps are {', '.join([*KNOWN, *_CHANGES])}")
    if not colon:
        return _CHANGES[plain]()
    if plain not in _WITH_NUMBER:
        raise ValueError(f"{plain} does not accept a number, got {name!r}")
    try:
        return _CHANGES[plain](float(number))
    except ValueError:
        raise ValueError(f"expected a number after the colon, got {name!r}") from None
