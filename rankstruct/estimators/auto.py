"""Automatic model selection: a few fixed models are trained and compared by cross-validation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from rankstruct.checks import check_choice, check_integers, check_numbers
from rankstruct.estimators.base import PREPARE, RandomState, Ranker, as_seed, check_labels, measured
from rankstruct.estimators.boosting import BoostedRanker
from rankstruct.estimators.ensemble import EnsembleRanker, bagged_weights, check_folds, deal_lists, fit_by_parts, joined
from rankstruct.estimators.linear import LinearRanker
from rankstruct.estimators.mlp import MLPRanker
from rankstruct.estimators.training_data import TrainingData, dense
from rankstruct.measures import Measure, parse_measure
from rankstruct.preparation import Preparation
from rankstruct.progress import Progress, stage

__all__ = ["AutoRanker"]

#: The note below tables of `results_`.
SELECTION = (
    "selection scores are cross-validated means over the lists that also selected C, epoch and number of trees, so they are "
    "optimistic; only a test set that was not used for selection estimates performance on new lists"
)


def _linear(options: AutoRanker, lists: TrainingData) -> Ranker:
    measure = options._measure(lists.labels)
    return LinearRanker(measure, loss="GradedLoss('AUC')", C=[0.001, 0.01, 0.1, 1.0, 10.0], prepare=(), tolerance=1e-2)


def _mlp(loss: str, prepare: Sequence[str] = ()) -> Callable[[AutoRanker, TrainingData], Ranker]:
    def make(options: AutoRanker, lists: TrainingData) -> Ranker:
        # An epoch of many small steps takes several times as long as one of few large ones; but it should have at least six.
        number = lists.num_lists
        several = max(min(_STEP * number // lists.num_documents, number // 6), _LISTS)
        given: dict[str, Any] = {
            "lists_per_batch": several,
            "learning_rate": 1e-3 * (several / _LISTS) ** 0.5,
            "patience": 10,
            "validate_every": 5,
            "device": options.device,
            "verbose": options.verbose,
        }
        return MLPRanker(options._measure(lists.labels), loss=loss, prepare=prepare, **given)

    return make


def _trees(library: str, loss: str, **more: Any) -> Callable[[AutoRanker, TrainingData], Ranker]:
    def make(options: AutoRanker, lists: TrainingData) -> Ranker:
        given: dict[str, Any] = {"library": library, "loss": loss, "n_jobs": 1}
        if library == "catboost":
            given["options"] = {"ignored_features": _quantiles(options.preparation_)}
        return BoostedRanker(options._measure(lists.labels), **given | more, verbose=options.verbose)

    return make


def _quantiles(preparation: Preparation) -> list[int]:
    """The columns that are appended quantiles of others, which trees divide alike."""
    names = preparation.names
    if "append-quantile" not in names or set(names[(at := names.index("append-quantile")) + 1 :]) - {"standardize"}:
        return []
    number = len(preparation.fitted[at]["values"])
    return list(range(number, 2 * number))


def _of_clicks(make: Callable[[AutoRanker, TrainingData], Ranker], loss: str, **options: Any) -> Callable[..., Ranker]:
    """A model with a loss for clicks, also on lists of which everything was clicked."""

    def made(of: AutoRanker, lists: TrainingData) -> Ranker:
        found: Ranker = make(of, lists).set_params(loss=loss, drop_empty=False, **options)
        return found

    return made


_STEP, _LISTS = 300, 8  # documents and lists per step of an MLP
_PROP_RANK, _PROP_DCG = "AdditiveRankLoss('linear')", "AdditiveRankLoss('log2')"
#: Trees of CatBoost and from clicks; of sums of many features, they would learn for long what the linear ranker has at once.
_SMALL: dict[str, Any] = {"n_estimators": 200, "learning_rate": 0.1, "num_leaves": 7, "noise": 0.5, "patience": 20}
_SMALL |= {"subsample": 0.8, "colsample_bytree": 0.5}
#: LightGBM samples documents in float64 to choose its bins; fewer take less memory, and one layout of the bins less than two.
_BINS = {"bin_construct_sample_cnt": 50_000, "force_col_wise": True}
_TITLES = {"lightgbm": "LightGBM", "catboost": "CatBoost"}

#: The models by name; the first one is trained regardless of the time budget.
MEMBERS: dict[str, Callable[[AutoRanker, TrainingData], Ranker]] = {
    "linear, graded AUC": _linear,
    "MLP, LambdaLoss nDCG": _mlp("LambdaLoss('nDCG')", ("append-piecewise",)),
    "trees, LambdaLoss nDCG@30": _trees("lightgbm", "LambdaLoss('nDCG@30')", options=_BINS),
    "MLP, graded AUC": _mlp("GradedLoss('AUC')"),
    "CatBoost, QueryRMSE": _trees("catboost", "QueryRMSE", **_SMALL | {"num_leaves": 16}),
    "CatBoost, YetiRank": _trees("catboost", "YetiRank", **_SMALL | {"num_leaves": 16}),
}
#: The same for clicks.
FROM_CLICKS: dict[str, Callable[[AutoRanker, TrainingData], Ranker]] = {
    "linear, PropRank": _of_clicks(_linear, _PROP_RANK, C=[1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0]),
    "MLP, PropDCG": _of_clicks(_mlp(_PROP_DCG), _PROP_DCG),
    "trees, PropDCG": _of_clicks(_trees("lightgbm", _PROP_DCG, **_SMALL, options=_BINS), _PROP_DCG),
    "linear, PropDCG": _of_clicks(_linear, _PROP_DCG, C=[0.1, 1.0, 10.0, 100.0, 1000.0]),
}
_FAST = 2  # of them
ENSEMBLE = "ensemble"
#: Seconds of one CPU core: of a linear ranker per value; of an MLP per step, document and value; of a tree, document and value.
_PER_VALUE, _PER_STEP, _PER_DOCUMENT, _PER_WEIGHT = 2e-7, 1e-3, 1e-6, 6e-9
_PER_TREE, _PER_GRADIENT, _PER_BIN, _PER_ORDER = 1e-3, 2e-7, 6e-9, 1.5e-6
_EMBEDDED = 5  # eight bins of each feature that is not a quantile of another, next to both
_EPOCHS, _TREES = 40, (80, 240)  # before early stopping, typically; trees with a limit and without


class AutoRanker(Ranker):
    """The weighted mean of a few fixed models: a linear ranker, MLPs on two losses and boosted trees on three.

    The MLP on LambdaLoss also sees piecewise-linear encodings of the numbers, the step "append-piecewise" of
    `rankstruct.preparation.Preparation`, fitted to all documents as the other steps are.

    The lists are split into `folds` folds. A model is trained once per fold, on the other folds, and the held-out fold selects
    its settings. (The epoch of an MLP is the best one on all folds together.) The model is the ensemble of these copies, see
    `EnsembleRanker`. Its weights are the mean of those that are best on random samples of the lists, each list scored by the
    copy that was not trained on it; a model whose weight is below 1/20 is left out, and so is one that ranks all lists like an
    earlier one. On fewer than 10 lists the weights are equal. The trees need LightGBM and CatBoost, `pip install
    'rankstruct[boosting,catboost]'`. Item weights, `item_weights=`, count in training and not in selection; CatBoost's
    YetiRank, which does not take them, is then left out.

    In `results_`, a list has the ensemble with the weights of the samples without it, so these weights are not optimistic. The
    settings are: the held-out fold of a copy also selects its C or number of trees, and all folds select the epoch of the
    MLPs. On random labels (60 lists of 20 documents) the AP of the linear ranker was 0.007 above chance. Only lists that were
    not passed to `fit` estimate performance on new lists.

    From clicks, all models are trained with `AdditiveRankLoss`, and selected by the measure with inverse propensities.

    Validation lists passed to `fit` are added to the training lists; keep test lists out of both. A single list is split by its
    documents, with a warning: the scores then say nothing about new lists.

    Args:
        measure: the measure, or its name, that selects settings and model and that `score` reports. None is nDCG@10 for graded
            labels and AP for binary ones.
        mode: `"full"`, or `"fast"` for the linear ranker and one MLP, which take less than half of the time.
        time_budget: seconds of one CPU core that training may take; None is no limit. Models that would exceed it are left
            out, and `reason_` begins with them. The time is estimated from the numbers of lists, documents and features, not
            measured, so the same lists give the same model on any machine, idle or busy. The linear ranker is always trained.
        prepare: preparation steps, fitted to the training documents; see `rankstruct.preparation.Preparation`.
        folds: number of folds, 2 or more.
        device: of the MLPs, as in `MLPRanker`.
        random_state: seed of training and of the folds; None or a random state of NumPy draws one.
        verbose: show a progress bar.

    Attributes:
        measure_: the measure, `measure` unless that is None.
        selected_: "ensemble", or the name of the only model with a weight.
        weights_: the weight of each model that was trained, with sum 1.
        ranker_: the ensemble, for prepared features.
        results_: for each model `{"model", "validation", "seconds", "note"}`: its name, its selection scores (cross-validated
            means of measures; empty if it was left out), training time, and why it was left out.
        reason_: an explanation with the weights, which begins with the models that were left out.
        validation_lists_: number of lists that chose the weights.
        preparation_: the fitted preparation.
        n_features_in_: number of raw features.

    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(600, 2)), np.repeat(np.arange(60), 10)
    >>> y = (X[:, 0] > 0.5).astype(int)
    >>> ranker = AutoRanker(time_budget=0).fit(X, y, qid)  # time for the linear ranker only
    >>> ranker.selected_, ranker.score(X, y, qid) > 0.9
    ('linear, graded AUC', True)
    """

    loss, drop_empty, by_list = None, True, True

    def __init__(
        self,
        measure: str | Measure | None = None,
        *,
        mode: Literal["full", "fast"] = "full",
        time_budget: float | None = None,
        prepare: Sequence[str] = PREPARE,
        folds: int = 3,
        device: str | torch.device | None = None,
        random_state: RandomState = 0,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.measure, self.mode, self.time_budget, self.prepare = measure, mode, time_budget, prepare
        self.folds, self.device = folds, device
        self.random_state, self.verbose = random_state, verbose

    @property
    def _trains_on_validation(self) -> bool:
        return True

    def _check_fit_options(self, has_validation: bool) -> None:
        self.check_options()

    def _takes_sparse(self) -> bool:
        return True  # converted to dense

    def _fit(self, train: TrainingData, valid: TrainingData | None) -> None:
        if self.from_clicks and valid is not None:
            raise ValueError(
                "AutoRanker adds validation lists to the training lists, which are clicks here: omit X_valid, y_valid and "
                "qid_valid, or add what was clicked there to the log"
            )
        train = replace(train, diversity_groups=None)
        valid = None if valid is None else replace(valid, diversity_groups=None)
        check_labels("y", self._judged(train), self._measures())
        if valid is not None:
            check_labels("y_valid", valid, self._measures())
        lists = joined(train, valid)
        parts = deal_lists(lists, self.folds, as_seed(self.random_state), self.from_clicks)
        check_folds(self, self._judged(lists), parts)
        order = np.argsort(parts, kind="stable")  # neighbours are not copied once more for their fold
        if lists.num_lists == 1:
            lists = lists.select_documents(order, lists.offsets, lists.qids)
        else:
            lists = lists.select(np.argsort(parts[lists.offsets[:-1]], kind="stable"))
        lists, parts = self._fit_preparation(replace(lists, features=dense(lists.features))), parts[order]
        self.validation_lists_ = lists.num_lists
        copies, scores = self._trained(lists, parts)
        self._take_best(copies, scores, self._judged(lists))

    def _judged(self, lists: TrainingData) -> TrainingData:
        """Lists for evaluation: item weights count if they are those of clicks."""
        return lists if self.from_clicks else replace(lists, item_weights=None)

    def check_options(self) -> None:
        """Raise ValueError for a wrong option, as `fit` does."""
        if self._measure().takes_groups:
            raise ValueError(f"measure must be one without groups, got {self._measure().name}; use LinearRanker")
        check_choice("mode", self.mode, ("full", "fast"))
        check_numbers(">= 0 and <= inf", optional=True, time_budget=self.time_budget)
        check_integers(2, folds=self.folds)

    def _measures(self) -> list[Measure]:
        """The measures of `results_`, the one that selects first."""
        return list({each.name: each for each in (self._measure(), *map(parse_measure, ("AP", "nDCG@10")))}.values())

    def _trained(self, lists: TrainingData, parts: np.ndarray) -> tuple[dict[str, list[Any]], dict[str, np.ndarray]]:
        """Train the models within the budget; returns their copies and held-out scores, and starts `results_`."""
        left = math.inf if self.time_budget is None else self.time_budget
        self.results_: list[dict[str, Any]] = []
        copies: dict[str, list[Any]] = {}
        scores: dict[str, np.ndarray] = {}
        shown = {"disable": not self.verbose, "unit": " models", "leave": False}
        members = list((FROM_CLICKS if self.from_clicks else MEMBERS).items())[: _FAST if self.mode == "fast" else None]
        with Progress(members, **shown) as bar:
            for number, (name, make) in enumerate(bar):
                bar.set_postfix_str(name)
                start, ranker = time.perf_counter(), make(self, lists)
                if "random_state" in ranker.get_params(deep=False):  # every copy of every model has its own
                    ranker.set_params(random_state=as_seed(self.random_state) + number * self.folds)
                needed, note = estimated_seconds(ranker, lists, self.folds), ""
                if isinstance(ranker, BoostedRanker) and find_spec(ranker.library) is None:
                    note = f"{_TITLES[ranker.library]} is not installed"
                elif lists.item_weights is not None and getattr(ranker, "loss", None) == "YetiRank":
                    note = "YetiRank does not take item_weights"
                elif needed > left and copies:
                    note = f"estimated {needed:.3g} s, {left:.3g} s left"
                else:
                    left = max(left - needed, 0.0)
                    with stage(name):
                        found = fit_by_parts(
                            ranker, lists, parts, weigh_valid=self.from_clicks, after=self.preparation_
                        )
                    ids, ranked = lists.ids, np.lexsort((found[1], lists.ids))
                    same = [n for n, each in scores.items() if np.array_equal(np.lexsort((each, ids)), ranked)]
                    if same:
                        note = f"ranks every list as '{same[0]}' does"
                    else:
                        copies[name], scores[name] = found
                self._add(name, time.perf_counter() - start, note)
        return copies, scores

    def _add(self, name: str, seconds: float, note: str = "") -> None:
        self.results_.append({"model": name, "validation": {}, "seconds": seconds, "note": note})

    def _take_best(self, copies: dict[str, list[Any]], scores: dict[str, np.ndarray], lists: TrainingData) -> None:
        """Evaluate the models, and weigh them."""
        columns, start = np.stack(list(scores.values()), axis=1), time.perf_counter()
        weights, unseen = bagged_weights(columns, lists, self._measure(), as_seed(self.random_state))
        self.weights_ = dict(zip(copies, weights.tolist(), strict=True))
        self.selected_ = next((name for name, weight in self.weights_.items() if weight == 1), ENSEMBLE)
        judged = scores
        if len(copies) > 1:
            judged = scores | {ENSEMBLE: unseen}
            self._add(ENSEMBLE, time.perf_counter() - start)
        for row in self.results_:
            if row["model"] in judged:
                found = measured(judged[row["model"]], lists, self._measures())
                row["validation"] = {name: float(each.mean()) for name, each in found.items()}
        taken = [(each, weight) for name, weight in self.weights_.items() if weight for each in copies[name]]
        rankers = EnsembleRanker([FrozenEstimator(each) for each, _ in taken], weights=[w for _, w in taken])
        self.ranker_ = rankers.fit(lists.features, lists.labels, lists.ids)
        self.reason_ = self._explained()

    def _explained(self) -> str:
        measure = self._measure().name
        left_out: dict[str, list[str]] = {}
        for row in self.results_:
            if row["note"]:
                late = row["note"].startswith("estimated")
                why = f" by the time budget of {self.time_budget:g} s" if late else ""
                left_out.setdefault(why, []).append(f"'{row['model']}' ({row['note']})")
        said = "".join(f"left out{why}: {', '.join(rows)}; " for why, rows in left_out.items())
        last = next(row for row in reversed(self.results_) if row["validation"])
        whose = "its" if self.selected_ == last["model"] else f"the {last['model']}'s"
        said += f"selected '{self.selected_}': {whose} selection {measure} is {last['validation'][measure]:.4f}"
        said += " (the same lists selected C, epoch and number of trees)"
        shares = [f"'{n}' {w:.2f}" for n, w in sorted(self.weights_.items(), key=lambda item: -item[1]) if w]
        said += f"; the weights are {', '.join(shares)}" if len(self.weights_) > 1 else ", and no other was trained"
        if self.validation_lists_ == 1:
            said += "; the only list was split by its documents, so this does not estimate performance on new lists"
        return said

    def _scores(self, X: Any, qid: np.ndarray | None) -> np.ndarray:
        prepared = self._prepared(dense(X), qid)
        return self.ranker_.predict(prepared, np.zeros(X.shape[0], np.int64) if qid is None else qid)

    def to_scorer(self) -> nn.Module:
        """Return the ensemble as a PyTorch scorer of raw features, float32; see `save_scorer`."""
        check_is_fitted(self)
        return self._as_scorer(self.ranker_.to_scorer())


def estimated_seconds(ranker: Ranker, lists: TrainingData, folds: int) -> float:
    """About how long a model takes to train on prepared documents, by one CPU core; nothing is measured.

    The same lists have the same estimate everywhere. Early stopping may need half or twice the epochs.
    """
    documents, features = lists.features.shape
    if isinstance(ranker, BoostedRanker):
        trees = _TREES[1] if ranker.n_estimators is None else min(_TREES[0], ranker.n_estimators)
        each = _PER_ORDER if ranker.loss == "YetiRank" else _PER_GRADIENT
        return trees * (
            folds * _PER_TREE + (folds - 1) * documents * (each + ranker.colsample_bytree * features * _PER_BIN)
        )
    if not isinstance(ranker, MLPRanker):
        return _PER_VALUE * (folds - 1) * documents * features
    steps = (folds - 1) / folds * lists.num_lists / ranker.lists_per_batch  # of all copies together
    seen = _EMBEDDED * features if ranker.prepare else features
    epoch = steps * _PER_STEP + (folds - 1) * documents * (_PER_DOCUMENT + seen * _PER_WEIGHT)
    return min(_EPOCHS, ranker.max_epochs) * epoch
