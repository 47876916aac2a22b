"""Ensembles of rankers, whose scores are standardised within each list and averaged; cross-fitting."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted
from torch import nn
from typing_extensions import Self

from rankstruct.checks import check_integers
from rankstruct.data.clean import keep_documents
from rankstruct.data.errors import check_selecting
from rankstruct.estimators.base import RandomState, Ranker, as_seed, check_labels, measured
from rankstruct.estimators.mlp import MLPRanker
from rankstruct.estimators.training_data import TrainingData, fit_to, is_ranker, whole
from rankstruct.ids import group_documents
from rankstruct.measures import Measure
from rankstruct.messages import shortened
from rankstruct.models.scorers import EnsembleScorer, check_weights, mean_of_z_scores
from rankstruct.preparation import Preparation, has_missing
from rankstruct.progress import stage

__all__ = ["EnsembleRanker"]

_PARTS = 4  # "validation" tries weights in multiples of 1 / 4
_MOST = 6  # the most members for "validation"
_SAMPLES, _LEAST = 200, 0.05  # of the lists, for weights of which the mean is taken; below it a weight is 0
_FEWEST = 10  # lists from which weights are chosen


class EnsembleRanker(Ranker):
    """The weighted mean of the scores of several rankers, standardised to mean 0 and standard deviation 1 within a list.

    Args:
        rankers: with scikit-learn's conventions; `fit` trains copies. Pass a fitted ranker that is not to be retrained as
            `sklearn.frozen.FrozenEstimator(ranker)`; it must not have been fitted to the validation lists.
        weights: `"equal"`; `"validation"`, the best multiples of 1/4 on the validation lists passed to `fit`, for at most six
            members, with ties resolved in favour of equal weights; or one number per ranker.
        folds: above 1, rankers are cross-fitted: a copy per fold, trained on the other folds with this fold as validation
            lists. Validation lists passed to `fit` are added to the training lists. The mean of the copies counts as one
            ranker; their out-of-fold scores select the weights for `"validation"`. A frozen ranker may have been trained on
            any fold, so `"validation"` is then refused, and there is no `validation_`.
        measure: a measure or its name, which selects the weights and which `score` reports. None is nDCG@10 for graded labels and
            AP for binary ones.
        prepare: preparation steps for the features of all rankers; see `rankstruct.preparation.Preparation`.
        random_state: seed of the folds; None or a random state of NumPy draws one.

    Attributes:
        measure_: the measure, `measure` unless that is None.
        rankers_: the fitted rankers; the copies of one ranker are consecutive.
        weights_: one weight per fitted ranker, with sum 1.
        validation_: the measure on the validation lists, with these weights; None without them. It is optimistic for new
            lists, since the same lists selected the settings and epochs of the rankers and, with `"validation"`, the weights.
        preparation_: the fitted preparation.
        n_features_in_: number of raw features.

    >>> from rankstruct.estimators import LinearRanker, MLPRanker
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 2)), np.repeat(np.arange(40), 10)
    >>> y = (X[:, 0] + np.square(X[:, 1]) > 1.5).astype(int)
    >>> ranker = EnsembleRanker([LinearRanker("AP"), MLPRanker(max_epochs=40, device="cpu")]).fit(X, y, qid)
    >>> ranker.score(X, y, qid) > 0.8, ranker.to_scorer()(torch.zeros(5, 2)).shape
    (True, torch.Size([5]))
    """

    loss, drop_empty, by_list, takes_missing = None, False, True, True

    def __init__(
        self,
        rankers: Sequence[Any],
        *,
        weights: str | Sequence[float] = "equal",
        measure: str | Measure | None = None,
        prepare: Sequence[str] = (),
        folds: int = 1,
        random_state: RandomState = 0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.rankers, self.weights, self.measure, self.prepare = rankers, weights, measure, prepare
        self.folds, self.random_state = folds, random_state

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with `deep`, also those of the rankers, such as `rankers__0__C`."""
        found = super().get_params(deep=False)
        for number, ranker in enumerate(self.rankers if deep and isinstance(self.rankers, list | tuple) else ()):
            options = ranker.get_params() if hasattr(ranker, "get_params") else {}
            found |= {f"rankers__{number}__{name}": value for name, value in options.items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters, by the names that `get_params` returns; returns the ranker itself."""
        nested = {name: value for name, value in params.items() if name.startswith("rankers__")}
        super().set_params(**{name: value for name, value in params.items() if name not in nested})
        known = self.get_params()
        for name, value in nested.items():
            if name not in known:
                raise ValueError(f"invalid parameter {name!r}; valid are {', '.join(map(repr, known))}")
            number, _, option = name.removeprefix("rankers__").partition("__")
            self.rankers[int(number)].set_params(**{option: value})
        return self

    @property
    def _trains_on_validation(self) -> bool:
        return self.folds > 1

    def _takes_tables(self) -> bool:
        return len(self.prepare or ()) > 0 or all(get_tags(ranker).input_tags.allow_nan for ranker in self.rankers)

    def _takes_sparse(self) -> bool:
        return super()._takes_sparse() and all(get_tags(ranker).input_tags.sparse for ranker in self.rankers)

    def _fit(self, train: TrainingData, valid: TrainingData | None) -> None:
        if self.from_clicks:
            raise ValueError(
                "EnsembleRanker cannot be fitted to clicks: fit its rankers to them, and pass FrozenEstimator(ranker) of each; "
                "AutoRanker can"
            )
        if self.folds > 1:
            if not any(map(is_frozen, self.rankers)):
                check_labels("y", replace(train, item_weights=None), [self._measure()])
            train, valid = joined(train, valid), None
        train = self._fit_preparation(train)
        scores: np.ndarray | None = None
        if self.folds > 1:
            parts = deal_lists(train, self.folds, as_seed(self.random_state))
            if any(isinstance(ranker, Ranker) for ranker in self.rankers):  # which are validated by the folds
                check_folds(self, replace(train, item_weights=None), parts)
            fits = [fit_by_parts(ranker, train, parts, self._table, after=self.preparation_) for ranker in self.rankers]
            self.rankers_ = [copy for copies, _ in fits for copy in copies]
            scores, valid = np.stack([column for _, column in fits], axis=1), replace(train, item_weights=None)
        else:
            valid, X = None if valid is None else self._prepared_lists(valid), self._table(whole(train.features))
            self.rankers_ = [fit_to(clone(ranker), train, valid, X) for ranker in self.rankers]
            if valid is not None:
                scores = self._member_scores(valid.features, valid.ids)
        self.validation_: float | None = None
        weights = None if isinstance(self.weights, str) else self.weights
        if valid is None or scores is None or (self.folds > 1 and any(map(is_frozen, self.rankers))):
            found = check_weights(weights, len(self.rankers))
        else:
            candidates = all_weights(len(self.rankers)) if self.weights == "validation" else [weights]
            self.validation_, found = best_weights(candidates, scores, valid, self._measure())
        copies_of_each = len(self.rankers_) // len(self.rankers)
        self.weights_ = tuple(weight / copies_of_each for weight in found for _ in range(copies_of_each))

    def _check_fit_options(self, has_validation: bool) -> None:
        if not len(self.rankers):
            raise ValueError("rankers must not be empty")
        if not isinstance(self.weights, str):
            check_weights(self.weights, len(self.rankers))
        elif self.weights not in ("equal", "validation"):
            raise ValueError(
                f"weights must be 'equal', 'validation' or {len(self.rankers)} numbers, got {self.weights!r}"
            )
        elif self.weights == "validation" and not has_validation and not self.folds > 1:
            raise ValueError(
                "weights='validation' needs X_valid, y_valid and qid_valid; pass them, or folds=, or use 'equal'"
            )
        elif self.weights == "validation" and self.folds > 1 and any(frozen := list(map(is_frozen, self.rankers))):
            raise ValueError(
                "weights='validation' with folds= needs unfitted rankers, since the folds that select the weights must be new to "
                f"each; rankers[{frozen.index(True)}] is frozen and may have been fitted to them: pass weights as numbers, or "
                "omit folds= and pass X_valid, y_valid and qid_valid that it was not fitted to"
            )
        elif self.weights == "validation" and len(self.rankers) > _MOST:
            raise ValueError(
                f"weights='validation' supports at most {_MOST} rankers, got {len(self.rankers)}; use 'equal'"
            )
        check_integers(1, folds=self.folds)
        for ranker in self.rankers:
            if not is_ranker(ranker):
                raise ValueError(
                    "rankers must be a list of unnamed rankers, with fit(X, y, qid) and predict(X, qid), such as "
                    f"[LinearRanker()]; got {shortened(ranker)}"
                )

    def _member_scores(self, X: Any, qid: np.ndarray) -> np.ndarray:
        """Scores `[documents, members]` for prepared documents."""
        return np.stack([ranker.predict(X, qid) for ranker in self.rankers_], axis=1)

    def _scores(self, X: Any, qid: np.ndarray | None) -> np.ndarray:
        qid = np.zeros(X.shape[0], np.int64) if qid is None else qid
        return mean_scores(self._member_scores(self._prepared(X, qid), qid), self.weights_, qid)

    def to_scorer(self) -> nn.Module:
        """Return the ensemble as one PyTorch scorer of raw features, float32; see `save_scorer`.

        Raises:
            ValueError: a ranker that has no scorer, such as one with a precomputed kernel.
        """
        check_is_fitted(self)
        scorers = [ranker.to_scorer() for ranker in self.rankers_]
        return self._as_scorer(EnsembleScorer(scorers, self.weights_))


def is_frozen(part: Any) -> bool:
    """Whether a ranker, or one that it contains, is frozen."""
    options = getattr(part, "get_params", None)
    parts = part if isinstance(part, list | tuple) else ()
    if options is not None and not isinstance(part, type):
        parts = options(deep=False).values()
    return isinstance(part, FrozenEstimator) or any(map(is_frozen, parts))


def joined(train: TrainingData, valid: TrainingData | None) -> TrainingData:
    """The lists of both, renumbered so that equal ids in the two stay different lists."""
    if valid is None:
        return train
    diversity_groups = weights = items = None
    if train.diversity_groups is not None and valid.diversity_groups is not None:
        diversity_groups = np.concatenate([train.diversity_groups, valid.diversity_groups])
    if train.weights is not None:
        mean = np.repeat(train.weights, train.lengths).mean()
        weights = np.concatenate([train.weights, np.full(valid.num_lists, mean)])
    if train.item_weights is not None:
        items = np.concatenate([train.item_weights, np.ones(valid.num_documents)])
    return TrainingData(
        (sp.vstack if sp.issparse(train.features) else np.concatenate)([whole(train.features), whole(valid.features)]),
        np.concatenate([train.labels, valid.labels]),
        np.concatenate([train.offsets, train.offsets[-1] + valid.offsets[1:]]),
        np.concatenate([train.places, train.num_lists + valid.places]),
        diversity_groups=diversity_groups,
        weights=weights,
        item_weights=items,
    )


def deal_lists(lists: TrainingData, folds: int, random_state: int, from_clicks: bool = False) -> np.ndarray:
    """Split lists into folds at random, spreading those with different labels evenly; returns the fold of each document.

    A single list is split by its documents, each label evenly, with a warning: what is held out is then not a new list. From
    clicks, a list of which everything was clicked counts as one with different labels.

    Raises:
        ValueError: fewer than two lists that have different labels.
    """
    number = lists.num_lists
    if number == 1:
        warnings.warn(
            "there is only one list, which is split by its documents, so validation values do not estimate performance on new "
            "lists; pass more lists",
            stacklevel=5,
        )
        places = np.arange(lists.num_documents)
        varied = np.zeros(len(places), bool)
    else:
        lowest = 0 if from_clicks else np.minimum.reduceat(lists.labels, lists.offsets[:-1])
        varied = np.empty(number, bool)
        varied[lists.places] = lowest < np.maximum.reduceat(lists.labels, lists.offsets[:-1])
        places = np.repeat(lists.places, lists.lengths)
        if varied.sum() < 2:
            raise ValueError(
                f"{'no list' if not varied.any() else 'only one list'} can be learned from: in each of "
                f"{number}{'' if not varied.any() else ' but one'} all labels are equal; folds need two"
            )
    order = np.random.default_rng(random_state).permutation(len(varied))
    order = order[np.argsort(lists.labels[order], kind="stable")] if number == 1 else order
    order = order[np.argsort(~varied[order], kind="stable")]
    part = np.empty(len(varied), np.int64)
    part[order] = np.arange(len(varied)) % min(folds, int(varied.sum()) or len(varied))
    return part[places]


def check_folds(ranker: Ranker, judged: TrainingData, parts: np.ndarray) -> None:
    """Raise ValueError if every ranking of a fold is equally good, by the measure of the ranker, so that it selects nothing."""
    folds = int(parts.max()) + 1
    split = "the only list was split by its documents" if judged.num_lists == 1 else "the lists were split"
    way_out = f"{split} into folds={folds}, and this is one of them: pass more lists with different labels"
    way_out += ", or fewer folds" if folds > 2 else ""
    for part in range(folds):
        name = f"fold {part + 1} of {folds} of the training lists"
        same, lists = ranker._undecided(name, keep_documents(judged, parts == part))
        if same == lists:  # otherwise those of other folds judge too
            check_selecting(same, lists, f"{ranker._measure().name} is the same for every ranking", way_out, name=name)


def fit_by_parts(
    ranker: Any,
    lists: TrainingData,
    parts: np.ndarray,
    table: Callable[[Any], Any] = lambda X: X,
    *,
    weigh_valid: bool = False,
    after: Preparation | None = None,
) -> tuple[list[Any], np.ndarray]:
    """Cross-fit a ranker: train a copy per fold on the other folds, with the fold as validation lists and its own seed.

    `table` converts training features to what `fit` is given; `weigh_valid` says whether item weights count in validation;
    `after` prepared the features.

    Returns:
        The copies, and out-of-fold scores `[documents]`.
    """
    copies, scores = [clone(ranker) for _ in range(parts.max() + 1)], np.empty(len(parts))
    X = lists.features
    plain = table(X) is X and isinstance(X, np.ndarray) and not has_missing(X)
    together = plain and type(ranker) is MLPRanker and not ranker._divided_steps()[0] and lists.num_lists > 1
    for part, copy in enumerate(copies):
        if "random_state" in (options := ranker.get_params(deep=False)):
            copy.set_params(random_state=as_seed(options["random_state"]) + part)
    if together:
        MLPRanker._fit_folds(copies, lists, parts, weigh_valid, Preparation() if after is None else after)
    judged = lists if weigh_valid else replace(lists, item_weights=None)
    for part, copy in enumerate(copies):
        valid = keep_documents(judged, parts == part)
        X = whole(valid.features)
        if not together:
            train = keep_documents(lists, parts != part)
            with stage(f"fold {part + 1} of {parts.max() + 1}"), warnings.catch_warnings():
                # those of other folds judge too
                warnings.filterwarnings("ignore", ".* validation lists .* is the same")
                fit_to(copy, train, valid, table(whole(train.features)), X)
        scores[parts == part] = copy.predict(X, valid.ids)
    return copies, scores


def all_weights(members: int) -> Iterator[Any]:
    """Equal weights, and all weights in multiples of 1 / 4."""
    return itertools.chain([None], _divisions(_PARTS, members))


def best_weights(
    candidates: Iterable[Any], scores: np.ndarray, lists: TrainingData, measure: Measure
) -> tuple[float, tuple[float, ...]]:
    """The best value of the measure and its weights, the first ones in a tie, for scores `[documents, members]`."""
    found: tuple[float, tuple[float, ...]] | None = None
    columns = _z_scores(scores, lists.ids)
    for candidate in candidates:
        weights = check_weights(candidate, scores.shape[1])
        value = float(measured(columns @ weights, lists, [measure])[measure.name].mean())
        if found is None or value > found[0] + 1e-12:
            found = value, weights
    assert found is not None
    return found


def bagged_weights(
    scores: np.ndarray, lists: TrainingData, measure: Measure, random_state: int
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of the weights that are best on random samples of the lists, for scores `[documents, members]`.

    A sample has as many lists as there are, drawn with replacement; its weights are those of `all_weights` with the best
    mean of the measure. Where the lists tell members apart, the samples agree; where they do not, the mean is between them.
    A member with less than 1 / 20 is left out. On fewer than 10 lists the best weights would be those of chance: all are equal.

    Source: Breiman, "Bagging Predictors", Machine Learning 1996; of weights as here, Caruana, Niculescu-Mizil, Crew, Ksikes,
    "Ensemble Selection from Libraries of Models", ICML 2004.

    Returns:
        The weights `[members]`, and scores `[documents]` by which the measure of the ensemble can be estimated: each list has
        the mean weights of the samples without it.
    """
    columns, members = _z_scores(scores, lists.ids), scores.shape[1]
    if members == 1 or lists.num_lists < _FEWEST:
        return np.full(members, 1 / members), columns.mean(1)
    candidates = np.array([check_weights(candidate, members) for candidate in all_weights(members)])
    # Of weights that are as good, equal ones are taken, then those of the fewest members.
    candidates = candidates[np.argsort((candidates > 0).sum(1) * (np.ptp(candidates, 1) > 0), kind="stable")]
    values = np.stack([measured(columns @ weights, lists, [measure])[measure.name] for weights in candidates])
    drawn = np.random.default_rng(random_state).multinomial(
        lists.num_lists, np.full(lists.num_lists, 1 / lists.num_lists), _SAMPLES
    )[:, lists.places]  # in the order of the ids, so that the order of the lists does not matter
    means = drawn @ values.T / lists.num_lists
    chosen = candidates[(means >= means.max(1, keepdims=True) - 1e-12).argmax(1)]
    without = drawn == 0
    of_lists = np.where(
        without.any(0)[:, None], without.T @ chosen / np.maximum(without.sum(0), 1)[:, None], 1 / members
    )
    weights = np.where((mean := chosen.mean(0)) < _LEAST, 0.0, mean)
    return weights / weights.sum(), (columns * np.repeat(of_lists, lists.lengths, axis=0)).sum(1)


def _z_scores(scores: np.ndarray, qid: np.ndarray) -> np.ndarray:
    """Scores `[documents, members]`, each standardised within its list."""
    return np.stack([mean_scores(column[:, None], (1.0,), qid) for column in scores.T], axis=1)


def mean_scores(scores: np.ndarray, weights: Sequence[float], qid: np.ndarray) -> np.ndarray:
    """The mean `[documents]` of scores `[documents, members]`; the rows of a list need not be contiguous."""
    order, offsets = group_documents(qid)
    lists = torch.tensor(scores if order is None else scores[order], dtype=torch.float64)
    found: np.ndarray = mean_of_z_scores(lists, weights, torch.tensor(np.diff(offsets))).numpy()
    return found if order is None else found[np.argsort(order)]


def _divisions(parts: int, members: int) -> Iterator[list[int]]:
    """All ways to distribute `parts` units among `members`."""
    for bars in itertools.combinations(range(parts + members - 1), members - 1):
        ends = [-1, *bars, parts + members - 1]
        yield [right - left - 1 for left, right in itertools.pairwise(ends)]
