"""A ranker that chooses its own recipe: a few fixed ones are trained, and lists they did not see say which is taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from rankstruct.estimators.base import Documents, Ranker, dense, is_number
from rankstruct.estimators.ensemble import (
    EnsembleRanker,
    all_weights,
    best_weights,
    deal_lists,
    fit_by_parts,
    joined,
    mean_scores,
    measured,
)
from rankstruct.estimators.linear import LinearRanker
from rankstruct.estimators.mlp import MLPRanker
from rankstruct.measures import Measure, parse_measure
from rankstruct.models.scorers import with_preparation
from rankstruct.progress import Progress

__all__ = ["AutoRanker"]

#: What tables of `results_` say under them.
SELECTION = (
    "selection scores are means over the lists that also chose C, epoch and recipe, each judged by models that it did not train: "
    "they are optimistic, and only lists that chose nothing, a test part, tell what new ones will give"
)


def _linear(options: AutoRanker, lists: Documents) -> Ranker:
    return LinearRanker(options.select, loss="GradedLoss('AUC')", C=[0.001, 0.01, 0.1, 1.0, 10.0])


def _mlp(loss: str) -> Callable[[AutoRanker, Documents], Ranker]:
    def make(options: AutoRanker, lists: Documents) -> Ranker:
        # An epoch of many small steps takes several times as long as one of few; but there are to be ten.
        number = len(np.unique(lists.qid))
        several = max(min(_STEP * number // len(lists.y), number // 10), _LISTS)
        given: dict[str, Any] = {
            "lists_per_batch": several,
            "learning_rate": 1e-3 * (several / _LISTS) ** 0.5,
            "device": options.device,
            "random_state": options.random_state,
            "verbose": options.verbose,
        }
        return MLPRanker(options.select, loss=loss, prepare=(), **given)

    return make


_STEP, _LISTS = 300, 8  # documents and lists of a perceptron's step

#: What is trained, by its name, on prepared features, the first one whatever the time.
MEMBERS: dict[str, Callable[[AutoRanker, Documents], Ranker]] = {
    "linear, graded AUC": _linear,
    "MLP, graded AUC": _mlp("GradedLoss('AUC')"),
    "MLP, LambdaLoss nDCG@10": _mlp("LambdaLoss('nDCG@10')"),
    "MLP, LambdaLoss nDCG": _mlp("LambdaLoss('nDCG')"),
}
ENSEMBLE, WEIGHTED = "ensemble of all", "ensemble of all, weights chosen"
_ERRORS = 2.0  # by how many standard errors another recipe is to beat the ensemble
_TRIAL = {"max_epochs": 1}  # options with which a member is timed


class AutoRanker(Ranker):
    """The best of a few fixed recipes: a linear ranker, perceptrons on three losses, ensembles of all of them.

    The lists are dealt into `folds` parts. Each recipe is trained as often, each time without another part, whose lists choose
    its settings and its epoch; the mean of the copies (as in `EnsembleRanker`) is the recipe's ranker. So every list trains some
    of them, and judges the one that it did not train. The ensemble with equal weights is taken unless another recipe is better
    on the lists by more than two standard errors of the difference, list by list.

    These values are selection scores, which are optimistic: the lists that a copy did not train chose its C or epoch, and then
    the recipe. On random labels (60 lists of 20 documents) they were 0.007 above chance for the linear recipe, 0.017 for the
    perceptrons, 0.012 and 0.021 for the ensembles, in AP. Only lists that were not given to `fit` tell what new ones will give.

    Validation lists that are given to `fit` join the training lists: what is to judge the ranker afterwards belongs in neither.
    A single list is divided by its documents, which is warned of: the figures are then no estimate for new lists.

    Args:
        select: the measure that chooses settings and recipe and that `score` reports, or its name.
        time_budget: seconds that `fit` may take; a recipe that might not end in time, by an epoch that is timed, is left out. The
            linear one never is. None is no limit.
        prepare: steps that raw features go through, fitted to the training documents; see `rankstruct.preparation.Preparation`.
        folds: how many parts, 2 or more.
        device: of the perceptrons, as in `MLPRanker`.
        random_state: seed of what is trained and of the parts.
        verbose: show a bar.

    Attributes:
        recipe_: the name of the one that was taken.
        ranker_: that one, of prepared features.
        results_: for each recipe `{"recipe", "validation", "seconds", "note"}`: selection scores, the means of measures on the
            lists, each judged by what was not trained on it (none where it was left out), training time, and why it was left out.
        reason_: a sentence that says what was taken and why.
        validation_lists_: how many chose.
        preparation_: the steps, as fitted.
        n_features_in_: how many a raw document has.

    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(600, 2)), np.repeat(np.arange(60), 10)
    >>> y = (X[:, 0] > 0.5).astype(int)
    >>> ranker = AutoRanker(time_budget=0).fit(X, y, qid)  # no time but for the linear one
    >>> ranker.recipe_, ranker.score(X, y, qid) > 0.9
    ('linear, graded AUC', True)
    """

    loss, drop_empty, by_list = None, True, True

    def __init__(
        self,
        select: str | Measure = "AP",
        *,
        time_budget: float | None = None,
        prepare: Sequence[str] = ("append-quantile", "standardize"),
        folds: int = 3,
        device: str | torch.device | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.select, self.time_budget, self.prepare = select, time_budget, prepare
        self.folds, self.device = folds, device
        self.random_state, self.verbose = random_state, verbose

    def _check_fit_options(self, has_validation: bool) -> None:
        self.check_options()

    def _takes_sparse(self) -> bool:
        return True  # made dense

    def _fit(self, train: Documents, valid: Documents | None) -> None:
        began = time.perf_counter()
        if train.item_weights is not None:
            raise TypeError(
                "AutoRanker takes no item_weights but 0 and 1: its recipes solve hinges, which know no documents of different "
                "weights; take LinearRanker, MLPRanker or BoostedRanker with a pairwise, listwise or pointwise loss"
            )
        lists = joined(train._replace(groups=None), None if valid is None else valid._replace(groups=None))
        lists = lists._replace(X=self._fit_preparation(dense(lists.X), lists.qid))
        self.validation_lists_ = len(np.unique(lists.qid))
        parts = deal_lists(lists, self.folds, self.random_state)
        copies, scores = self._trained(began, lists, parts)
        self._take_best(copies, scores, lists)

    def check_options(self) -> None:
        """Raise ValueError for a wrong option, as `fit` does."""
        if self._measure().takes_groups:
            raise ValueError(f"select must be a measure without groups, got {self._measure().name}; take LinearRanker")
        if self.time_budget is not None and not is_number(self.time_budget, 0):
            raise ValueError(f"time_budget must be 0 or more seconds, or None for no limit; got {self.time_budget!r}")
        if not (isinstance(self.folds, Integral) and self.folds >= 2):
            raise ValueError(f"folds must be a whole number, at least 2, got {self.folds}")

    def _measure(self) -> Measure:
        return parse_measure(self.select)

    def _trained(
        self, began: float, lists: Documents, parts: np.ndarray
    ) -> tuple[dict[str, list[Any]], dict[str, np.ndarray]]:
        """The copies of the members that there is time for, and the scores by which they are judged; begins `results_`."""
        self.results_: list[dict[str, Any]] = []
        copies: dict[str, list[Any]] = {}
        scores: dict[str, np.ndarray] = {}
        shown = {"disable": not self.verbose, "unit": " recipes", "leave": False}
        with Progress(MEMBERS.items(), **shown) as bar:
            for name, make in bar:
                bar.set_postfix_str(name)
                start, ranker = time.perf_counter(), make(self, lists)
                note = self._left_out(began, ranker, lists, parts) if copies else ""
                if not note:
                    copies[name], scores[name] = fit_by_parts(ranker, lists, parts)
                self._add(name, time.perf_counter() - start, note)
        return copies, scores

    def _add(self, name: str, seconds: float, note: str = "") -> None:
        self.results_.append({"recipe": name, "validation": {}, "seconds": seconds, "note": note})

    def _left_out(self, began: float, ranker: Ranker, lists: Documents, parts: np.ndarray) -> str:
        """Why there is no time for a ranker, "" if there is: what its shortest training takes tells that of the longest."""
        if self.time_budget is None:
            return ""
        end, told = began + self.time_budget, f"in the budget of {self.time_budget:g} s"
        if time.perf_counter() >= end:
            return f"no time left {told}"
        options = {name: value for name, value in _TRIAL.items() if name in ranker.get_params()}
        trial = clone(ranker).set_params(**options, verbose=False)
        few = lists.rows(np.isin(lists.qid, _varied_lists(lists.y, lists.qid, 2)))._replace(weights=None)
        clone(trial).fit(*few[:3], **few.as_validation)  # loads what is compiled
        start = time.perf_counter()
        train, valid = lists.rows(parts != 0), lists.rows(parts == 0)
        trial.fit(*train[:3], **train.options, **valid.as_validation)
        most = (time.perf_counter() - start) * (parts.max() + 1)
        for name, value in options.items():
            most *= getattr(ranker, name) / value
        left = end - time.perf_counter()
        return "" if most <= left else f"may take {most:.1f} s, with {max(left, 0):.1f} s left {told}"

    def _take_best(self, copies: dict[str, list[Any]], scores: dict[str, np.ndarray], lists: Documents) -> None:
        """Measure the recipes and take one, by the rule."""
        members, columns = len(copies), np.stack(list(scores.values()), axis=1)
        recipes = {name: np.eye(members)[number] for number, name in enumerate(copies)}
        if members > 1:
            recipes[ENSEMBLE] = np.full(members, 1 / members)
            start = time.perf_counter()
            recipes[WEIGHTED] = np.array(best_weights(all_weights(members), columns, lists, self._measure())[1])
            self._add(ENSEMBLE, 0.0)
            self._add(WEIGHTED, time.perf_counter() - start)
        measures = {measure.name: measure for measure in (self._measure(), *map(parse_measure, ("AP", "nDCG@10")))}
        values = {
            name: measured(mean_scores(columns, tuple(weights), lists.qid), lists, list(measures.values()))
            for name, weights in recipes.items()
        }
        for row in self.results_:
            row["validation"] = {name: float(v.mean()) for name, v in values.get(row["recipe"], {}).items()}
        selected = {name: each[self._measure().name] for name, each in values.items()}
        best = max(selected, key=lambda name: selected[name].mean())
        standing = ENSEMBLE if ENSEMBLE in selected else best
        ahead = selected[best] - selected[standing]
        error = float(ahead.std(ddof=1)) / len(ahead) ** 0.5 if len(ahead) > 1 else 0.0
        self.recipe_ = best if ahead.mean() > _ERRORS * error and len(ahead) > 1 else standing
        taken = [(each, w) for of, w in zip(copies.values(), recipes[self.recipe_], strict=True) if w for each in of]
        rankers = EnsembleRanker([FrozenEstimator(each) for each, _ in taken], weights=[w for _, w in taken])
        self.ranker_ = rankers.fit(*lists[:3])
        self.reason_ = self._explained(best, {name: float(v.mean()) for name, v in selected.items()}, error)

    def _explained(self, best: str, means: dict[str, float], error: float) -> str:
        measure = self._measure().name
        said = f"'{self.recipe_}' was taken: its selection {measure} is {means[self.recipe_]:.4f}"
        said += " (optimistic: the same lists chose C, epoch and recipe)"
        ahead = means[best] - means[self.recipe_]
        if len(means) == 1:
            said += ", and no other was trained"
        elif best != self.recipe_:
            said += (
                f"; that of '{best}' is the highest, but {ahead:.4f} more on {self.validation_lists_} lists is not above two "
                f"standard errors (of {error:.4f})"
            )
        elif best == ENSEMBLE:
            said += f", the highest of {len(means)}"
        else:
            ahead = means[best] - means[ENSEMBLE]
            said += f", higher than the ensemble's by {ahead:.4f}, more than two standard errors (of {error:.4f})"
        if self.validation_lists_ == 1:
            said += "; there is one list, which was divided by its documents, so that this is no estimate for new lists"
        left_out = [f"'{row['recipe']}' ({row['note']})" for row in self.results_ if row["note"]]
        return said + (f"; left out: {', '.join(left_out)}" if left_out else "")

    def _scores(self, X: Any, qid: np.ndarray | None) -> np.ndarray:
        prepared = self._prepared(dense(X), qid)
        return self.ranker_.predict(prepared, np.zeros(X.shape[0], np.int64) if qid is None else qid)

    def to_scorer(self) -> nn.Module:
        """What was taken as a scorer for torch, float32, which takes raw features too; see `save_scorer`."""
        check_is_fitted(self)
        return with_preparation(self.ranker_.to_scorer(), self.preparation_)


def _varied_lists(y: np.ndarray, qid: np.ndarray, number: int) -> np.ndarray:
    """The names of some lists that a ranking can get wrong: those with the most different labels."""
    pairs = np.unique(np.stack([np.unique(qid, return_inverse=True)[1], np.unique(y, return_inverse=True)[1]]), axis=1)
    lists, counts = np.unique(pairs[0], return_counts=True)
    return np.unique(qid)[lists[np.argsort(-counts, kind="stable")[:number]]]
