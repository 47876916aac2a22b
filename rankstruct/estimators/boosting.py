"""Boosted trees: a ranker, and custom objectives and evaluation functions for LightGBM and XGBoost on any loss.

A round of boosting fits a tree to Newton steps: the value of a leaf is minus the sum of its documents' gradients over the sum of
their second derivatives. These are

    gradient    of the mean loss over lists, times the number of documents: a document weighs as much as in a regression
    Hessian     its diagonal. For a smooth convex loss (squared, logistic, ListNet, ListMLE, LambdaLoss) the exact one; for
                expected gains under a Plackett-Luce policy, which are not convex, the size of an unbiased estimate. Other losses
                are piecewise linear or not convex; smoothed by standard normal noise z, their second derivative is E[g_i z_i],
                by Stein's lemma, and so at most the root mean square of the gradient, E[g_i^2]^(1/2), which is used instead,
                computed once, around equal scores: for the hinge of a pair about the weight of the pair. It is at least |g_i|,
                so that no score changes by more than 1, the margin, in a step.

Source of the Newton step: Chen and Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016, equations 5 and 6.
"""

from __future__ import annotations

import copy
import json
import re
import warnings
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from typing_extensions import Self

from rankstruct.arrays import as_numbers, as_single
from rankstruct.checks import check_choice, check_integers, check_numbers
from rankstruct.columns import check_same_names
from rankstruct.constraints import evaluate_under
from rankstruct.constraints.pages import Packed, packed_groups
from rankstruct.constraints.rules import Constraints, RulesLike, checked_columns
from rankstruct.estimators.arguments import own_name
from rankstruct.estimators.base import (
    Ranker,
    as_seed,
    check_groups_of,
    named_loss,
    recording_gradients,
    usual_measure,
)
from rankstruct.estimators.boosting_on_dask import DaskLists, Seeded, grow_lightgbm, grow_xgboost, whole_lists
from rankstruct.estimators.early_stopping import EarlyStoppingRanker
from rankstruct.estimators.library_options import (
    check_is_dictionary,
    check_library_options,
    refused_arguments,
    rescales_trees,
)
from rankstruct.estimators.linear import LinearRanker
from rankstruct.estimators.training_data import TrainingData, check_item_weights, dense, fit_to, is_ranker, whole
from rankstruct.ids import numbered_ids
from rankstruct.kernels.threads import threads_of_torch
from rankstruct.lists import Lists, to_tensor
from rankstruct.losses import (
    AdditiveRankLoss,
    LambdaLoss,
    PerturbedLoss,
    StructuredHingeLoss,
    rules_of,
    second_derivatives,
    takes_columns,
    takes_groups,
)
from rankstruct.measures import Diverse, Measure, evaluate, parse_measure
from rankstruct.messages import import_extra, needs_groups
from rankstruct.models import SumScorer, TreeScorer
from rankstruct.models.scorers import with_preparation
from rankstruct.preparation import Preparation
from rankstruct.progress import Progress, announce

__all__ = ["BoostedRanker", "BoostingMetric", "BoostingObjective", "boosting_metric", "boosting_objective"]

_WORTH_THREADS = 2**17  # documents
_AS_GROWN, _ROWS = 100.0, 2**14  # the scale of the trees' score as a feature of `leaf_ranker`; documents per block
_NAMES_A_LOSS = re.compile(r"\s*\w+Loss\b")
_TOTAL_RATE, _LARGE_TOTAL_RATE = 10.0, 20.0  # the trees times their rate; for many lists, or labels that are no grades
_MANY_LISTS, _LONGEST, _LOWEST_RATE = 200, 10, 1e-6  # lists; times as many trees with validation lists; rate
_MANY, _NOISE_OF_FEW, _NOISE_OF_MANY = 2**14, 0.5, 0.1  # documents; noise below this number, and from it
_LEAF_SHARE, _LARGEST_MINIMUM = 0.1, 20  # of the documents, in a leaf
_PATIENCE, _LEAVES, _LEAVES_FROM_CLICKS = 50, 10, 7  # trees, leaves
_DRAWS = 16  # noise samples, which documents with the same label in a list share


def boosting_objective(
    loss: nn.Module | Measure | str, *, diversity_groups: Any = None, columns: Any = None, item_weights: Any = None
) -> BoostingObjective:
    """Any loss of the library as a custom objective for LightGBM or XGBoost.

    Args:
        loss: a loss module or its name, such as `"GradedLoss('AUC')"`; or a measure or its name, for its structured hinge.
            Learnable parameters of the loss stay fixed.
        diversity_groups: `[documents]`, the group (host, topic) of each training document, for a loss over diverse rankings.
        columns: for a loss under rules, by column the groups of the training documents, `[documents]`, as the loss takes them.
        item_weights: `[documents]`, the weight of each training document in the loss of its list, if the loss accepts them. A
            document of weight 0 has no gradient, but still counts in the size of leaves; `BoostedRanker.fit` removes it.

    Raises:
        TypeError, ValueError: a loss over diverse rankings without groups, or under rules without a column; an unknown measure;
            item weights below 0 or not finite.

    Pass it as `lightgbm.train({"objective": objective}, data)`, `LGBMRanker(objective=objective)` or `xgboost.train(params,
    data, obj=objective)` with `"base_score": 0`. The data need their lists, `group=` of sizes (or XGBoost's `qid=`), and may
    have one weight per list. XGBRanker does not support custom objectives, and CatBoost passes blocks of documents that split
    lists. Noisy scores improve generalisation, `PerturbedLoss(loss, sigma=0.5, samples=1)`; a `LambdaLoss` of scheme `"ndcg2"`,
    which weighs pairs by their ranks, needs them, since tied documents are ranked in input order. A `SmoothLoss` needs sensible
    initial scores (`init_score`, `base_margin`).

    >>> objective = boosting_objective("AUC")
    >>> gradient, hessian = objective(np.array([1.0, 0.0, 0.0]), np.zeros(3), None, np.array([3]))
    >>> gradient, hessian.round(1)
    (array([-6.,  3.,  3.]), array([6., 3., 3.]))
    """
    return BoostingObjective(loss, diversity_groups=diversity_groups, columns=columns, item_weights=item_weights)


def boosting_metric(
    measure: Measure | str, *, constraints: RulesLike | None = None, columns: Any = None
) -> BoostingMetric:
    """A measure of the library as an evaluation function for LightGBM or XGBoost: its mean over lists, higher is better.

    Args:
        measure: the measure or its name.
        constraints: rules, under which lists are ranked and measured, see `rankstruct.constraints.evaluate_under`.
        columns: for rules, by column the groups of the documents that are evaluated, `[documents]`.

    Pass it as `lightgbm.train(..., feval=metric)`, `LGBMRanker().fit(..., eval_metric=metric)` or
    `xgboost.train(..., custom_metric=metric)`, with `maximize=True` for early stopping.

    >>> boosting_metric("AP")(np.array([1.0, 0.0]), np.array([0.5, 0.7]), None, np.array([2]))
    ('AP', 0.5, True)
    """
    return BoostingMetric(measure, constraints=constraints, columns=columns)


class BoostingObjective:
    """A loss as a custom objective; see `boosting_objective`.

    Called with (predictions, data set) or (labels, predictions, weights, sizes of the lists), it returns gradient and second
    derivatives, `[documents]` each.

    >>> objective = boosting_objective("AP")
    >>> gradient, hessian = objective(np.array([1.0, 0.0, 0.0]), np.zeros(3), None, np.array([3]))
    >>> gradient.shape, hessian.shape
    ((3,), (3,))
    """

    def __init__(
        self,
        loss: nn.Module | Measure | str,
        *,
        diversity_groups: Any = None,
        columns: Any = None,
        item_weights: Any = None,
    ) -> None:
        named: Any = named_loss(loss) if isinstance(loss, str) and _NAMES_A_LOSS.match(loss) else loss
        self.loss = copy.deepcopy(named) if isinstance(named, nn.Module) else StructuredHingeLoss(named)
        ids = None if diversity_groups is None else numbered_ids("diversity_groups", diversity_groups)
        self.diversity_groups = None if ids is None else np.unique(ids, return_inverse=True)[1]
        if takes_groups(self.loss) and diversity_groups is None:
            raise needs_groups(type(self.loss).__name__, "id per training document, such as its host or topic")
        self.columns = self._columns(columns)
        for module in self.loss.modules():
            if hasattr(module, "reduction"):
                module.reduction = "none"  # type: ignore[assignment]
        self.item_weights = None if item_weights is None else check_item_weights(item_weights)
        self.documents_per_list: float | None = None  # those of all workers, so that their sum is one mean
        self._steps: tuple[_NewtonSteps, ...] = ()  # for the lists that were seen last

    def _columns(self, columns: Any) -> Any:
        """The columns that the rules of the loss are about, if there are any; packed ones unchanged."""
        rules = rules_of(self.loss)
        if not rules and columns is not None:
            raise TypeError("columns= are groups that rules are about; pass a loss with constraints=, or omit them")
        if not rules or isinstance(columns, Packed):  # by a ranker
            return columns
        names = rules[0].columns
        if columns is None:
            raise ValueError(
                f"the loss is under rules about {', '.join(map(repr, names))}; pass columns=, the groups of each document"
            )
        found = checked_columns(names, columns)
        return {name: found[name] for name in names}

    def _packed(self, documents: int, offsets: np.ndarray) -> Packed | None:
        """One number for the groups of each document; raises ValueError, as the loss does, for lists without a page."""
        if self.columns is None or isinstance(self.columns, Packed):
            return self.columns
        return packed_groups(rules_of(self.loss), self.columns, documents, offsets=offsets)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is kept of the lists."""
        return {**self.__dict__, "_steps": ()}

    def __repr__(self) -> str:
        """The call that creates it."""
        return f"boosting_objective({self.loss!r})"

    def __call__(self, first: Any, second: Any, weight: Any = None, group: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Return gradient and second derivatives; raises ValueError for invalid lists, labels or weights."""
        predictions, labels, weight, sizes = _given(first, second, weight, group)
        with recording_gradients():
            if not (self._steps and self._steps[0].of(labels, sizes, weight)):
                self._steps = (self._bound(labels, sizes, weight),)
            return self._steps[0](predictions)

    def _bound(self, labels: np.ndarray, sizes: np.ndarray, weight: np.ndarray | None = None) -> _NewtonSteps:
        """Gradient and second derivatives of these lists as a function of the predictions; raises ValueError for invalid ones."""
        optional: dict[str, Any] = {}
        for name in ("diversity_groups", "item_weights"):
            given = getattr(self, name)
            if given is not None:
                if len(given) != len(labels):
                    raise ValueError(
                        f"{name} must have one entry per training document, {len(labels)}; got {len(given)}"
                    )
                optional[name] = to_tensor(given)
        packed = self._packed(len(labels), np.append(0, sizes.cumsum()))
        optional |= {} if packed is None else {"columns": packed}
        scale = self.documents_per_list or len(labels) / len(sizes)
        return _NewtonSteps(self.loss, labels, sizes, weight, optional, scale)


def _given_to(loss: nn.Module, lists: TrainingData) -> dict[str, Any]:
    """What the objective of a loss takes of lists."""
    given = dict(lists.optional)
    if takes_columns(loss):
        given["columns"] = Packed(torch.from_numpy(given.pop("diversity_groups")))
    return given


class _NewtonSteps:
    """Gradient and second derivatives, `[documents]` each, of the same lists for any predictions."""

    def __init__(
        self,
        loss: nn.Module,
        labels: np.ndarray,
        sizes: np.ndarray,
        weight: np.ndarray | None,
        optional: dict[str, Any],
        documents_per_list: float,
    ) -> None:
        self.loss, self.given = loss, (np.array(labels), sizes, None if weight is None else np.array(weight))
        offsets = torch.tensor(np.concatenate([[0], sizes.cumsum()]))
        self.lists = {"labels": to_tensor(self.given[0]), "offsets": offsets, **optional}
        self.factors = np.repeat(_list_weights(weight, sizes) * documents_per_list, sizes)
        self.rms: Tensor | None = None  # of the gradient
        self.loops: Callable[[Tensor], Tensor] | None = None

    def of(self, labels: np.ndarray, sizes: np.ndarray, weight: np.ndarray | None) -> bool:
        """Whether these are the lists, with the same weights."""
        old_labels, old_sizes, old_weight = self.given
        if not (np.array_equal(old_labels, labels) and np.array_equal(old_sizes, sizes)):
            return False
        if old_weight is None or weight is None:
            return old_weight is weight
        return np.array_equal(old_weight, weight)

    def __call__(self, predictions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores = to_tensor(predictions)
        with _threads_for(len(scores)):
            gradient = self.gradient(scores)
            known = second_derivatives(
                self.loss, scores, self.lists["labels"], self.lists["offsets"], self.lists.get("item_weights")
            )
            if known is None:
                if self.rms is None:
                    self.rms = self.gradient_rms(scores)
                known = torch.maximum(self.rms, gradient.abs())
        return gradient.numpy() * self.factors, known.abs().numpy() * self.factors

    def gradient(self, scores: Tensor) -> Tensor:
        """The gradient of the sum of the loss over lists; from the second time on by its loops alone, if it has some."""
        if self.loops is not None:
            return self.loops(scores)
        leaf = scores.detach().clone().requires_grad_()
        given = {
            name: each for name, each in self.lists.items() if name != "diversity_groups" or takes_groups(self.loss)
        }
        (gradient,) = torch.autograd.grad(self.loss(leaf, **given).sum(), leaf)
        self.loops = self._find_loops(scores.dtype)  # the lists have been checked now
        return gradient

    def _find_loops(self, dtype: torch.dtype) -> Callable[[Tensor], Tensor] | None:
        """What finds the same gradient as torch, in a third of the time on small data; None if there is no such loop."""
        noise = self.loss.sigma if type(self.loss) is PerturbedLoss and self.loss.samples == 1 else 0.0
        within = self.loss.loss if noise else self.loss
        if self.lists.keys() != {"labels", "offsets"} or type(within) is not LambdaLoss:
            return None
        solve = within.at_once(Lists(self.lists["labels"], offsets=self.lists["offsets"]), dtype)
        if solve is None or not noise:
            return solve
        return lambda scores: solve(scores + noise * torch.randn_like(scores))

    def gradient_rms(self, scores: Tensor) -> Tensor:
        """The RMS of the gradient at standard normal scores, over samples and documents with equal list, label and weight."""
        noise = torch.randn(_DRAWS, len(scores), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        squares = torch.stack([self.gradient(each.to(scores)) for each in noise]).square().mean(0).numpy()
        labels, sizes, _ = self.given
        weights = [self.lists["item_weights"].numpy()] if "item_weights" in self.lists else []
        columns = np.stack([np.repeat(np.arange(len(sizes)), sizes), labels, *weights])
        _, kind = np.unique(columns, axis=1, return_inverse=True)
        means = np.bincount(kind, squares) / np.bincount(kind)
        return torch.from_numpy(np.sqrt(means[kind])).to(scores)


class BoostingMetric:
    """A measure as an evaluation function; see `boosting_metric`.

    >>> metric = boosting_metric("nDCG@10")
    >>> metric(np.array([1.0, 0.0]), np.array([0.7, 0.5]), None, np.array([2]))
    ('nDCG@10', 1.0, True)
    """

    def __init__(self, measure: Measure | str, *, constraints: RulesLike | None = None, columns: Any = None) -> None:
        self.measure = parse_measure(measure)
        if (constraints is None) != (columns is None):
            raise ValueError("constraints= and columns= belong together: pass both, or neither")
        self.constraints = None if constraints is None else Constraints.of(constraints)
        self.columns = None if self.constraints is None else checked_columns(self.constraints.columns, columns)

    def __repr__(self) -> str:
        """The call that creates it."""
        rules = "" if self.constraints is None else f", constraints={self.constraints!r}, columns=..."
        return f"boosting_metric({self.measure.name!r}{rules})"

    def __call__(self, first: Any, second: Any, weight: Any = None, group: Any = None) -> tuple:
        """Return name, mean over lists and, for LightGBM, True: higher is better."""
        predictions, labels, weight, sizes = _given(first, second, weight, group)
        offsets = np.concatenate([[0], sizes.cumsum()])
        if self.constraints is None:
            values = evaluate(predictions, labels, [self.measure], offsets=offsets)
        else:
            given = self.constraints, self.columns or {}
            values = evaluate_under(predictions, labels, self.measure, *given, offsets=offsets)
        weights = _list_weights(weight, sizes)
        found = self.measure.name, float(np.average(values[self.measure.name].numpy(), weights=weights))
        return found if hasattr(second, "get_base_margin") else (*found, True)


def _given(first: Any, second: Any, weight: Any, group: Any) -> tuple[np.ndarray, np.ndarray, Any, np.ndarray]:
    """Predictions, labels, weights and the sizes of the lists, from either calling convention."""
    labels, predictions = first, second
    if hasattr(second, "get_label"):
        predictions, labels, weight, group = first, second.get_label(), second.get_weight(), second.get_group()
    if group is None or not len(group):
        raise ValueError("the lists are missing; pass group= to the training data, the sizes of the lists in order")
    scores, labels = as_numbers("predictions", predictions), as_numbers("labels", labels)
    sizes = as_numbers("group", group).astype(np.int64)
    if sizes.sum() != len(labels):
        raise ValueError(f"group must be the sizes of the lists, with sum {len(labels)}; got sum {sizes.sum()}")
    return scores if scores.dtype.kind == "f" else scores.astype(np.float64), labels, weight, sizes


def _list_weights(weight: Any, sizes: np.ndarray) -> np.ndarray:
    """Weights `[lists]`, from one per list or one per document, equal within each list."""
    if weight is None or not len(weight):
        return np.ones(len(sizes))
    weight = as_numbers("weights", weight).astype(np.float64)
    if len(weight) == len(sizes):
        return weight
    starts = sizes.cumsum() - sizes
    if len(weight) != sizes.sum() or not np.array_equal(weight, np.repeat(weight[starts], sizes)):
        raise ValueError("weights must have one entry per list, or one per document, equal within each list")
    return weight[starts]


def _threads_for(documents: int) -> AbstractContextManager[None]:
    """A single torch thread for small work, which is then faster, in particular next to other processes."""
    return threads_of_torch(1) if documents < _WORTH_THREADS else nullcontext()


_CHOSEN = "measure= selects the number of trees on validation lists, and loss= is the training objective"


class BoostedRanker(EarlyStoppingRanker):
    """Boosted trees of LightGBM, XGBoost or CatBoost, or the mean score of several such models, trained on a ranking loss.

    Args:
        measure: a measure or its name, which `score` reports, and which selects the number of trees on validation lists. None is
            nDCG@10 for graded labels and AP for binary ones.
        loss: any loss of rankstruct, a module or its name with arguments, such as `"GradedLoss('AUC')"`; None is
            `LambdaLoss("nDCG@30")`, and from clicks `AdditiveRankLoss`. CatBoost takes only its own losses of lists, by their
            names, such as `"YetiRank"`, and no clicks; `"QueryRMSE"` if None.
        noise: the standard deviation of the noise added to the scores before each gradient, see `PerturbedLoss`; 0 for none. None
            is 0.5 below 16,384 documents, and 0.1 from there on; documents of lists that `drop_empty` skips do not count. Without
            noise, validation lists of few documents are worse.
        library: `"lightgbm"` or `"xgboost"`, which must be installed: `pip install 'rankstruct[boosting]'`; or `"catboost"`,
            `pip install 'rankstruct[catboost]'`. CatBoost's trees have the depth log2(`num_leaves`), rounded up, and keep its own
            defaults in place of `noise`, `min_child_samples`, `subsample` and `colsample_bytree`.
        prepare: preparation steps, fitted to the training documents; see `rankstruct.preparation.Preparation`.
        start: an unfitted ranker, such as `LinearRanker()`, fitted to the same raw documents; the trees add to its scores.
        leaf_ranker: an unfitted `LinearRanker`, which refits the leaf values of the grown trees at little cost: its features are
            an indicator per leaf and the score of the trees. Several C are compared on the validation lists. Not with `start`.
        n_estimators: the number of trees per model, with validation lists the maximum. None is 10 / `learning_rate`, so 100;
            from 200 lists on, and for labels that are not whole numbers, 20 / `learning_rate`, so 200, but not from clicks or
            with CatBoost. Lists that `drop_empty` skips do not count. With validation lists, it is ten times as many.
        learning_rate: the factor applied to leaf values, above 0.
        num_leaves: the maximum number of leaves per tree. None is 10, and 7 from clicks.
        min_child_samples: the minimum number of documents in a leaf; in XGBoost the minimum sum of second derivatives. None is a
            tenth of the documents, at least 1 and at most 20, as in LightGBM, whose trees have no split below 40 documents.
        subsample: the fraction of documents sampled for each tree.
        colsample_bytree: the fraction of features sampled for each tree.
        options: further parameters of the library, by its names; not those that are arguments here, except with CatBoost, where
            they replace all but `n_estimators`. `"categorical_feature"` lists the columns of prepared features that LightGBM
            should take as categories, integers from 0. Names that the library does not know are refused, and so are options of
            its own objectives, which have no effect with `loss`; and `"dart"`, where validation lists select the number of
            trees: it changes earlier trees with each new one.
        patience: trees without improvement of the measure on validation lists before training stops; None is 50. An error without
            such lists.
        seeds: number of models whose scores are averaged, with seeds from `random_state` on.
        validation_share: fraction of the lists that are held out for early stopping if `fit` gets no validation lists. None is 0,
            all trees on all lists, since few held-out lists stop at any number of trees; and 0.2 from clicks, which trees learn
            by heart.
        drop_empty: skip training lists whose labels are all equal.
        n_jobs: number of threads; the library's default if None.
        random_state: seed of the samples and the held-out lists; None or a random state of NumPy draws one.
        verbose: show a progress bar with the validation measure.

    Attributes:
        measure_: the measure, `measure` unless that is None.
        preparation_: the fitted preparation.
        start_: the fitted `start`.
        leaf_ranker_: the `leaf_ranker` fitted to the leaves.
        models_: the boosters of the library, truncated to the best iteration.
        feature_importances_: `[prepared features]`, their shares in the total gain of the splits.
        history_: for each model, the validation measure after every tree; empty without validation lists. The maximum selects the
            number of trees, and is optimistic for new lists.
        best_iterations_: the selected number of trees of each model.
        noise_: `noise`, or what was used in its place; 0 with CatBoost.
        num_leaves_: `num_leaves`, or what was used in its place.
        min_child_samples_: `min_child_samples`, or what was used in its place; of no effect with CatBoost.
        zero_is_missing_: whether zeros are missing cells to the trees, as they are to XGBoost in sparse features, and so in bins.
        n_features_in_: number of raw features.

    `fit` takes Dask collections too, `fit(ddf)`, `fit(ddf, "label", "qid")` or `fit(X, y, qid)`, and then trains by LightGBM's or
    XGBoost's own distributed training, on the workers of the current `dask.distributed.Client`; see the guide "Boosted trees".

    Without `prepare`, the library handles missing features and categorical columns itself; `prepare=["encode"]` replaces the
    former by medians and the latter by indicators.

    >>> import pytest
    >>> _ = pytest.importorskip("lightgbm")
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(2000, 2)), np.repeat(np.arange(100), 20)
    >>> y = (np.square(X).sum(1) < 0.5).astype(int)           # documents near the origin are relevant
    >>> BoostedRanker(n_estimators=50).fit(X, y, qid).score(X, y, qid) > 0.9
    True
    """

    takes_missing = True
    trains_under_rules = True
    other_options: ClassVar = {
        **refused_arguments(),
        "": "parameters of the library that trains go into options=, such as options={{'max_depth': 4}}, and {1}",
        **dict.fromkeys(("objective", "metric", "eval_metric", "eval_at"), _CHOSEN),
        **dict.fromkeys(("early_stopping_rounds", "early_stopping_round"), "use patience="),
    }

    def __init__(
        self,
        measure: str | Measure | None = None,
        *,
        noise: float | None = None,
        library: Literal["lightgbm", "xgboost", "catboost"] = "lightgbm",
        start: Ranker | None = None,
        leaf_ranker: LinearRanker | None = None,
        n_estimators: int | None = None,
        learning_rate: float = 0.1,
        num_leaves: int | None = None,
        min_child_samples: int | None = None,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        options: Mapping[str, Any] | None = None,
        patience: int | None = None,
        validation_share: float | None = None,
        n_jobs: int | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(measure, patience=patience, validation_share=validation_share, **shared)
        self.noise, self.library, self.start, self.leaf_ranker = noise, library, start, leaf_ranker
        self.n_estimators, self.learning_rate, self.num_leaves = n_estimators, learning_rate, num_leaves
        self.min_child_samples, self.subsample, self.colsample_bytree = min_child_samples, subsample, colsample_bytree
        self.options, self.n_jobs = options, n_jobs

    def _takes_sparse(self) -> bool:
        return super()._takes_sparse() and (not is_ranker(self.start) or get_tags(self.start).input_tags.sparse)

    def _fit(self, train: Any, valid: Any) -> None:
        self._check_early_stopping(valid is not None or self._share() > 0)
        if isinstance(train, DaskLists) or isinstance(valid, DaskLists):
            if not (isinstance(train, DaskLists) and isinstance(valid, DaskLists | None)):
                raise ValueError("X and X_valid must both be Dask collections, or both in memory")
            self._fit_on_dask(train, valid)
            return
        if self.from_clicks and self.library == "catboost":
            raise ValueError("CatBoost has no loss for clicks; use library='lightgbm' or 'xgboost'")
        loss = None if self.library == "catboost" else self.ranking_loss()
        if loss is not None:
            check_groups_of(loss, train.diversity_groups)
        train, valid = self._divided(train, valid)
        if valid is None and self.patience is not None:
            raise ValueError(
                f"patience={self.patience} needs validation lists: pass X_valid, y_valid and qid_valid, or validation_share=0.2; "
                "or omit patience to train all trees on all lists"
            )
        self._fit_start(train, valid)
        # Rows in place of features: a copy of these takes as much memory as the trees.
        kept = self._training_lists(replace(train, features=np.arange(train.num_documents)))
        start, valid_start = self._scores_of_start(train), None if valid is None else self._scores_of_start(valid)
        X = self._fit_preparation(train).features
        if kept.num_documents < train.num_documents:
            X, start = X[kept.features], None if start is None else start[kept.features]
        self.zero_is_missing_ = self.library == "xgboost" and sp.issparse(X)
        lists = replace(kept, features=self._as_trained(whole(X)))
        held_out = None
        if valid is not None:
            held_out = replace(valid, features=self._as_trained(self._prepared_lists(valid).features))
        loss = self._choose_sizes(lists.num_documents, loss)
        first = as_seed(self.random_state)
        for seed in range(first, first + self.seeds):
            with torch.random.fork_rng([]):
                torch.manual_seed(seed)
                objective = None if loss is None else boosting_objective(loss, **_given_to(loss, lists))
                model = _LIBRARIES[self.library](self, objective, (lists, held_out), (start, valid_start), seed)
                self._train(model, self._most_trees(lists, held_out), held_out)
        if not self.feature_importances_.any():
            scores = "all documents have the same score" if self.start is None else "all scores are those of start"
            warnings.warn(
                f"no tree has a split, so {scores}: no feature varies, or min_child_samples={self.min_child_samples_} is too "
                f"much for {lists.num_documents} documents; pass less, or more documents",
                stacklevel=4,
            )
        self._fit_leaves(lists, held_out)

    def _choose_sizes(self, documents: int, loss: nn.Module | None) -> nn.Module | None:
        """Set what depends on the number of documents; returns the loss with noise."""
        noise = _NOISE_OF_MANY if documents >= _MANY else _NOISE_OF_FEW
        leaves = _LEAVES_FROM_CLICKS if self.from_clicks else _LEAVES
        self.noise_ = 0.0 if loss is None else noise if self.noise is None else self.noise
        self.num_leaves_ = leaves if self.num_leaves is None else self.num_leaves
        if self.library == "catboost":
            depths = [int(value) for name, value in (self.options or {}).items() if name in ("depth", "max_depth")]
            self.num_leaves_ = 2 ** depths[0] if depths else self.num_leaves_
        least = min(max(round(_LEAF_SHARE * documents), 1), _LARGEST_MINIMUM)
        self.min_child_samples_ = least if self.min_child_samples is None else self.min_child_samples
        self.models_: list[Any] = []
        self.history_: list[list[float]] = []
        self.best_iterations_: list[int] = []
        return PerturbedLoss(loss, sigma=self.noise_, samples=1) if self.noise_ and loss is not None else loss

    def _take_from_dask(self, X: Any, y: Any, qid: Any, others: Mapping[str, Any], suffix: str = "") -> DaskLists:
        self._check_dask(bool(suffix), others)
        return whole_lists(X, y, qid, [f"{name}{suffix}" for name in ("X", "y", "qid")], self.drop_empty and not suffix)

    def _fit_on_dask(self, lists: DaskLists, held_out: DaskLists | None) -> None:
        if self.patience is not None and held_out is None:
            raise ValueError(f"patience={self.patience} needs X_valid, y_valid and qid_valid on Dask collections")
        self.measure_ = usual_measure(lists.grades) if self.measure is None else self.measure
        if held_out is not None:
            check_same_names("X_valid", lists.features, held_out.features)
            grades = held_out.grades  # as one list, of which the measure may raise
            self._undecided("y_valid", TrainingData(grades, grades, np.array([0, len(grades)]), np.zeros(1)))
        self.preparation_, self.start_, self.leaf_ranker_, self.propensities_ = Preparation(), None, None, None
        self.roles_, self.n_features_in_ = lists.roles, len(lists.features)
        if lists.named:
            self.feature_names_in_ = np.array(lists.features, object)
        self.lists_, self.longest_list_ = lists.num_lists, int(max(each.max() for each in lists.sizes))
        self.thresholds_ = self._thresholds(lists.grades)
        loss = self._choose_sizes(lists.num_documents, self.ranking_loss())
        first, most = as_seed(self.random_state), self._most_trees(lists, held_out)
        for seed in range(first, first + self.seeds):
            objective = BoostingObjective(loss or self.ranking_loss())
            objective.documents_per_list = lists.num_documents / lists.num_lists
            given = Seeded(objective, seed), _LIBRARIES[self.library].parameters(self, seed)
            history: list[float] = []
            if self.library == "lightgbm":
                model = _LightGBM.read(grow_lightgbm(lists, *given, most))
            else:
                patience = _PATIENCE if self.patience is None else self.patience
                model, history = grow_xgboost(lists, held_out, given[0], self._measure(), given[1], most, patience)
            kept = int(np.argmax(history)) + 1 if history else most
            self.models_.append(model[:kept] if history else model)
            self.history_.append(history)
            self.best_iterations_.append(kept)

    def _check_dask(self, has_validation: bool, others: Mapping[str, Any]) -> None:
        """Raise ValueError for what is not possible on Dask collections."""
        if given := [name for name, value in others.items() if value is not None]:
            raise ValueError(
                f"{given[0]} is not possible on Dask collections, whose fit takes X, y, qid and validation lists"
            )
        if self.library == "catboost":
            raise ValueError("CatBoost does not train on Dask; use library='lightgbm' or 'xgboost'")
        options: dict[str, Any] = {
            "prepare": len(self.prepare or ()),
            "start": self.start,
            "leaf_ranker": self.leaf_ranker,
            "calibrate": self.calibrate,
        }
        options |= {"validation_share": self.validation_share, "n_jobs": self.n_jobs}
        if given := [name for name, value in options.items() if value]:
            raise ValueError(f"{given[0]} is not possible on Dask collections; omit it, or pass what compute() returns")
        if takes_groups(self.ranking_loss()) or takes_columns(self.ranking_loss()):
            raise ValueError(
                "a loss over diverse rankings or under rules is not possible on Dask collections; pass what compute() returns"
            )
        if self.library == "lightgbm" and has_validation:
            raise ValueError(
                "LightGBM does not stop early on Dask: omit X_valid and choose n_estimators, or use library='xgboost', stopped "
                "by the measure"
            )

    def _check_fit_options(self, has_validation: bool) -> None:
        check_choice("library", self.library, _LIBRARIES)
        if self.library == "catboost" and not (self.loss is None or self.loss in _CatBoost.losses):
            raise ValueError(
                f"loss must be one of {', '.join(map(repr, _CatBoost.losses))} with library='catboost', which passes custom "
                f"objectives blocks of documents that split lists; got {self.loss!r}: use library='lightgbm'"
            )
        super()._check_fit_options(has_validation)
        check_is_dictionary(self.options)
        arguments = {"n_estimators"} if self.library == "catboost" else set(self.get_params(deep=False)) - {"verbose"}
        for name in self.options or ():
            # The library would get two values, of which LightGBM ignores one, and grow another number of trees.
            if own := own_name(name, arguments):
                raise ValueError(f"options must not have {name!r}; pass {own}= to BoostedRanker")
        check_numbers(">= 0", optional=True, min_child_samples=self.min_child_samples, noise=self.noise)
        check_integers(1, 2**31 - 1, optional=True, n_estimators=self.n_estimators, patience=self.patience)
        check_integers(2, 2**31 - 1, optional=True, num_leaves=self.num_leaves)
        check_numbers(f">= {_LOWEST_RATE:g}", learning_rate=self.learning_rate)
        check_numbers("> 0 and <= 1", subsample=self.subsample, colsample_bytree=self.colsample_bytree)
        check_integers(-(2**31), 2**31 - 1, optional=True, n_jobs=self.n_jobs)
        if self.start is not None and not is_ranker(self.start):
            raise ValueError(f"start must be an unfitted ranker, such as LinearRanker(), got {self.start!r}")
        if self.leaf_ranker is not None and (self.start is not None or not isinstance(self.leaf_ranker, LinearRanker)):
            raise ValueError(
                f"leaf_ranker must be a LinearRanker, without start; got {self.leaf_ranker!r} and start={self.start!r}"
            )
        if any(each is not None and each._rules for each in (self.start, self.leaf_ranker)):
            raise ValueError(
                "start and leaf_ranker get no columns, so their losses must have no rules; omit constraints="
            )
        if self.leaf_ranker is not None and len(self.leaf_ranker.prepare or ()):
            raise ValueError(f"leaf_ranker must not prepare features, which are leaves; got {self.leaf_ranker!r}")
        _installed(self.library)
        check_library_options(self.library, self.options)

    def _measure_of_loss(self) -> Diverse | None:
        return None if self.library == "catboost" else super()._measure_of_loss()

    def _check_early_stopping(self, has_validation: bool) -> None:
        """Raise ValueError if the best number of trees would be chosen, and the model of so many could not be restored."""
        given = rescales_trees(self.library, self.options)
        if given is not None and has_validation:
            raise ValueError(
                f"{given} changes earlier trees with each new one, so the best number of them cannot be kept: omit X_valid, "
                "y_valid and qid_valid (or folds=), pass validation_share=0 and choose n_estimators, or omit the option"
            )

    def ranking_loss(self) -> nn.Module:
        """Return the loss that `fit` minimises, without noise; raises ValueError if `loss` is invalid, or CatBoost's own."""
        if self.library == "catboost":
            raise ValueError(f"{self.loss or 'QueryRMSE'} is a loss of CatBoost, not of rankstruct")
        return self._loss(lambda: LambdaLoss("nDCG@30"))

    def _share(self) -> float:
        return self.validation_share if self.validation_share is not None else 0.2 if self.from_clicks else 0.0

    def _most_trees(self, train: TrainingData | DaskLists, valid: TrainingData | DaskLists | None) -> int:
        """`n_estimators`, or where it is None, the number for this rate and these lists."""
        if self.n_estimators is not None:
            return self.n_estimators
        total = _TOTAL_RATE
        if self.library != "catboost" and not self.from_clicks:
            labels = train.grades if isinstance(train, DaskLists) else train.labels
            more = train.num_lists >= _MANY_LISTS or bool((labels % 1).any())
            total = _LARGE_TOTAL_RATE if more else _TOTAL_RATE
        usual = max(round(total / self.learning_rate), 1)
        return usual if valid is None else _LONGEST * usual

    def _fit_start(self, train: TrainingData, valid: TrainingData | None) -> None:
        self.start_ = None if self.start is None else self._for_clicks(clone(self.start))
        if self.start_ is not None:
            fit_to(self.start_, self._without_packed(train), valid, self._table(whole(train.features)))

    def _scores_of_start(self, lists: TrainingData) -> np.ndarray | None:
        return None if self.start_ is None else self.start_.predict(whole(lists.features), lists.ids)

    def _without_packed(self, lists: TrainingData) -> TrainingData:
        """The lists without the groups of a loss under rules, which are no groups of a measure of diversity."""
        return replace(lists, diversity_groups=None) if self._rules else lists

    def _for_clicks(self, ranker: Any) -> Any:
        """The ranker with the usual loss for clicks, if there are clicks and it has no loss of its own."""
        if self.from_clicks and ranker.get_params(deep=False).get("loss", ranker) is None:
            ranker.set_params(loss=AdditiveRankLoss(), drop_empty=False)
        return ranker

    def _fit_leaves(self, train: TrainingData, valid: TrainingData | None) -> None:
        self.leaf_ranker_ = None
        if self.leaf_ranker is None:
            return
        self.leaf_ranker_ = self._for_clicks(clone(self.leaf_ranker).set_params(prepare=()))
        scorer = self._as_grown()
        judged = None if valid is None else _leaf_features(scorer, valid.features)
        fit_to(self.leaf_ranker_, self._without_packed(train), valid, _leaf_features(scorer, train.features), judged)

    def _train(self, model: Any, most: int, valid: TrainingData | None) -> None:
        """Add up to `most` trees, with validation lists until their measure stops improving."""
        history: list[float] = []
        patience = _PATIENCE if self.patience is None else self.patience
        with Progress(total=most, unit=" trees", disable=not self.verbose, leave=False) as bar:

            def go_on(scores: np.ndarray | None) -> bool:
                """Record the measure of validation scores, None without such lists; returns whether to add another tree."""
                bar.update()
                announce(f"tree {bar.n + 1}")
                if valid is None or scores is None:
                    return True
                offsets: Any = torch.tensor(valid.offsets)
                with _threads_for(len(scores)):
                    (values,) = evaluate(
                        scores, valid.labels, [self._measure()], offsets=offsets, **valid.optional
                    ).values()
                history.append(float(values.mean()))
                best = int(np.argmax(history)) + 1
                bar.set_postfix_str(f"{self._measure().name} {history[best - 1]:.4f}")
                return len(history) - best < patience

            announce("tree 1")
            model.grow(most, go_on)
        kept = int(np.argmax(history)) + 1 if history else most
        self.models_.append(model.kept(kept))
        self.history_.append(history)
        self.best_iterations_.append(kept)

    def _scores(self, X: Any, qid: np.ndarray | None) -> np.ndarray:
        features, predict = self._as_trained(self._prepared(X, qid)), _LIBRARIES[self.library].predict
        if self.leaf_ranker_ is not None:
            return self._trees()(to_tensor(dense(features)).double()).numpy()
        found = np.stack([predict(model, features) for model in self.models_]).mean(0, dtype=np.float64)
        return found if self.start_ is None else found + self.start_.predict(X, qid)

    def _as_trained(self, X: Any) -> Any:
        """Prepared features as in training: XGBoost takes what sparse ones do not store as missing, and so do dense ones here."""
        X = _features(X)
        if getattr(self, "zero_is_missing_", False):  # not in earlier versions
            if not sp.issparse(X):
                return np.where(X == 0, np.nan, X)
            if not X.data.all():
                X = X.copy()
                X.eliminate_zeros()
        return X

    def prepend(self, preparation: Preparation) -> Self:
        """Let a ranker that was fitted to prepared documents, and its `start_`, accept raw ones; returns the ranker itself."""
        if self.start_ is not None:
            self.start_.prepend(preparation)
        return super().prepend(preparation)

    @property
    def feature_importances_(self) -> np.ndarray:
        """`[prepared features]`, the share of each in the total gain of the splits, mean over the models; 0 without a split."""
        check_is_fitted(self)
        gains = [_LIBRARIES[self.library].gains(model, self._num_prepared) for model in self.models_]
        return np.mean([each / max(each.sum(), np.finfo(float).tiny) for each in gains], axis=0)

    @property
    def _categorical(self) -> list[int]:
        """The indices of the categorical columns that the trees are grown on."""
        found = self.preparation_
        return [] if found.columns is None or found.names else found.columns.categorical

    @property
    def _num_prepared(self) -> int:
        return int(_LIBRARIES[self.library].num_features(self.models_[0]))

    def to_scorer(self) -> nn.Module:
        """Return the trees, and `start_`, as a PyTorch scorer of raw features; see `TreeScorer` and `save_scorer`.

        Raises:
            ValueError: trees with linear models in their leaves, XGBoost's categorical splits, or asymmetric trees of CatBoost.
        """
        check_is_fitted(self)
        if self.start_ is None:
            return self._as_scorer(self._trees())
        both = SumScorer([with_preparation(self._trees(), self.preparation_), self.start_.to_scorer()])
        return self._as_scorer(both, Preparation(columns=self.preparation_.columns))

    def _trees(self) -> TreeScorer:
        """The trees as a scorer of prepared features."""
        scorer = self._as_grown()
        if self.leaf_ranker_ is not None:
            leaves = scorer.leaves
            grown = scorer.threshold[leaves] * self.leaf_ranker_.coef_[0] * _AS_GROWN
            scorer.threshold[leaves] = grown + torch.tensor(self.leaf_ranker_.coef_[1:])
        return scorer

    def _as_grown(self) -> TreeScorer:
        library = _LIBRARIES[self.library]
        trees = (tree for model in self.models_ for tree in library.as_trees(model))
        scorer = _tree_scorer(trees, self._num_prepared, len(self.models_), library.single)
        if getattr(self, "zero_is_missing_", False):
            scorer.at_zero.copy_(scorer.at_missing)
        return scorer

    def __getstate__(self) -> dict[str, Any]:
        """Convert the trees to the library's text format."""
        state = super().__getstate__()
        if "models_" in state:
            state["models_"] = [_LIBRARIES[self.library].text(model) for model in state["models_"]]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read the trees from the library's text format."""
        super().__setstate__(state)
        if "models_" in state:
            self.models_ = [_LIBRARIES[self.library].read(text) for text in state["models_"]]


class _Split(NamedTuple):
    """An inner node: its column, which is a feature, what replaces missing ones and zeros, and the categories on the left; its
    threshold; and its children.
    """

    column: tuple[int, float, float, tuple[int, ...]]
    threshold: float
    below: tuple[Any, Any]


#: The root of a tree, and what its nodes are: a split, or a leaf's score.
_Tree = tuple[Any, Callable[[Any], "_Split | float"]]


def _leaf_features(scorer: TreeScorer, X: Any) -> sp.csr_array:
    """Features for `leaf_ranker`: the score of the trees, scaled up, and an indicator per leaf."""
    rows = to_tensor(dense(X)).double()
    numbers = np.zeros(scorer.num_nodes, np.int64)
    numbers[scorer.leaves] = np.arange(len(scorer.leaves))
    reached = np.concatenate([scorer.reached(part).numpy() for part in rows.split(_ROWS)])
    score = _AS_GROWN * scorer.threshold.numpy()[reached].sum(1, keepdims=True)
    values = np.concatenate([score, np.ones_like(reached, dtype=np.float64)], axis=1)
    columns = np.concatenate([np.zeros((len(reached), 1), np.int64), 1 + numbers[reached]], axis=1)
    starts = np.arange(len(columns) + 1) * columns.shape[1]
    return sp.csr_array((values.ravel(), columns.ravel(), starts), shape=(len(columns), 1 + len(scorer.leaves)))


def _tree_scorer(trees: Iterable[_Tree], num_features: int, models: int, single: bool) -> TreeScorer:
    """The mean of several models, each a sum of trees."""
    columns: dict[tuple, int] = {}
    thresholds: list[float] = []
    branches: list[tuple[int, int]] = []  # -1 for the column of a leaf
    roots: list[int] = []
    depth = 0
    for root, look in trees:
        roots.append(len(thresholds))
        level, steps = [root], 0
        while level:
            below: list[Any] = []  # the next level
            behind = len(thresholds) + len(level)
            for node in map(look, level):
                if isinstance(node, _Split):
                    branches.append((columns.setdefault(node.column, len(columns)), behind + len(below)))
                    thresholds.append(node.threshold)
                    below += node.below
                else:
                    branches.append((-1, len(thresholds)))
                    thresholds.append(node / models)
            depth = max(depth, steps)
            level, steps = below, steps + 1
    feature, at_missing, at_zero, sets = zip(*columns, strict=True) if columns else ((),) * 4
    bounds = np.cumsum([0, *(max(each, default=-1) + 1 for each in sets)])
    member = torch.zeros(bounds[-1], dtype=torch.bool)
    for first, each in zip(bounds, sets, strict=False):
        member[first + np.array(each, np.int64)] = True
    scorer = TreeScorer(num_features, len(roots), len(thresholds), len(columns), depth, single, len(member))
    branch = torch.tensor(branches)
    branch[:, 0] = branch[:, 0].where(branch[:, 0] >= 0, len(columns))
    state = {"threshold": thresholds, "branch": branch, "root": roots}
    state |= {"feature": feature, "at_missing": at_missing, "at_zero": at_zero, "bounds": bounds, "member": member}
    scorer.load_state_dict(
        {name: torch.as_tensor(value, dtype=scorer.get_buffer(name).dtype) for name, value in state.items()}
    )
    return scorer


class _Stepwise:
    """A model in training to which trees are added one at a time."""

    valid: Any

    def grow(self, most: int, go_on: Callable[[np.ndarray | None], bool]) -> None:
        """Add trees while `go_on` wants more, which is given the scores of the validation documents."""
        for _ in range(most):
            self.add_tree()
            if not go_on(self.valid_scores() if self.valid else None):
                break

    def add_tree(self) -> None:
        """Add a tree."""
        raise NotImplementedError

    def valid_scores(self) -> np.ndarray:
        """Scores of the validation documents."""
        raise NotImplementedError


class _LightGBM(_Stepwise):
    """A model of LightGBM in training."""

    single = False  # features are compared in float64

    @staticmethod
    def parameters(ranker: BoostedRanker, seed: int) -> dict[str, Any]:
        """The library's parameters."""
        return {
            "learning_rate": ranker.learning_rate,
            "num_leaves": ranker.num_leaves_,
            "min_data_in_leaf": ranker.min_child_samples_,
            "bagging_fraction": ranker.subsample,
            "bagging_freq": 1,
            "feature_fraction": ranker.colsample_bytree,
            "objective": "none",
            "metric": "none",
            "seed": seed,
            "deterministic": True,
            "num_threads": ranker.n_jobs or 0,
            "verbosity": -1,
            **(ranker.options or {}),
        }

    def __init__(
        self,
        ranker: BoostedRanker,
        objective: BoostingObjective,
        lists: tuple[TrainingData, TrainingData | None],
        starts: tuple[np.ndarray | None, np.ndarray | None],
        seed: int,
    ) -> None:
        library, (train, valid) = _installed("lightgbm"), lists
        options = self.parameters(ranker, seed)
        if (
            len(train.labels) < 2 * ranker.min_child_samples_
        ):  # grow trees of one leaf instead of failing for lack of features
            options["feature_pre_filter"] = False
        lengths = train.lengths
        given = {
            "weight": None if train.weights is None else np.repeat(train.weights, lengths),
            "categorical_feature": options.pop("categorical_feature", ranker._categorical),  # which LightGBM wants here
        }
        data = library.Dataset(
            train.features, as_single("y", train.labels), group=lengths, init_score=starts[0], params=options, **given
        )
        self.booster = library.Booster(options, data)
        steps = objective._bound(data.get_label(), lengths, train.weights)
        self.objective = lambda scores, _: steps(scores)
        self.valid = valid is not None
        if valid is not None:
            given = {"group": valid.lengths, "init_score": starts[1], "reference": data, "params": options}
            self.booster.add_valid(library.Dataset(valid.features, valid.labels, **given), "valid")

    def add_tree(self) -> None:
        try:
            self.booster.update(fobj=self.objective)
        except _installed("lightgbm").basic.LightGBMError as error:
            if "num_features()" not in str(error):
                raise
            raise ValueError("no feature can be split: each is constant, or nearly so") from error

    def valid_scores(self) -> np.ndarray:
        seen: list[np.ndarray] = []

        def look(scores: np.ndarray, _: Any) -> tuple[str, float, bool]:
            seen.append(scores)
            return "seen", 0.0, True

        self.booster.eval_valid(look)
        return seen[0]

    def kept(self, trees: int) -> Any:
        return self.read(self.booster.model_to_string(num_iteration=trees))

    @staticmethod
    def predict(booster: Any, X: Any) -> np.ndarray:
        return booster.predict(X)

    @staticmethod
    def num_features(booster: Any) -> int:
        return booster.num_feature()

    @staticmethod
    def gains(booster: Any, num_features: int) -> np.ndarray:
        return booster.feature_importance("gain")

    @staticmethod
    def as_trees(booster: Any) -> Iterator[_Tree]:
        def look(node: dict[str, Any]) -> _Split | float:
            if "leaf_const" in node:
                raise ValueError("trees with linear models in their leaves have no scorer")
            if "split_feature" not in node:
                return node["leaf_value"]
            below = node["left_child"], node["right_child"]
            if node["decision_type"] == "==":
                categories = tuple(map(int, node["threshold"].split("||")))
                return _Split((node["split_feature"], np.nan, 0.0, categories), 0.0, below)
            missing = -np.inf if node["default_left"] else np.nan
            instead = {"None": (0.0, 0.0), "Zero": (missing, missing), "NaN": (missing, 0.0)}[node["missing_type"]]
            # The dump has 1e300 for infinity, the threshold between all numbers and NaN.
            threshold = node["threshold"] if node["threshold"] < 1e300 else np.inf
            return _Split((node["split_feature"], *instead, ()), threshold, below)

        for info in booster.dump_model()["tree_info"]:
            yield info["tree_structure"], look

    @staticmethod
    def text(booster: Any) -> str:
        return booster.model_to_string()

    @staticmethod
    def read(text: str) -> Any:
        return _installed("lightgbm").Booster(model_str=text)


class _XGBoost(_Stepwise):
    """A model of XGBoost in training."""

    single = True  # features are compared in float32

    @staticmethod
    def parameters(ranker: BoostedRanker, seed: int) -> dict[str, Any]:
        """The library's parameters."""
        return {
            "learning_rate": ranker.learning_rate,
            "grow_policy": "lossguide",
            "max_depth": 0,
            "max_leaves": ranker.num_leaves_,
            "min_child_weight": ranker.min_child_samples_,
            "subsample": ranker.subsample,
            "colsample_bytree": ranker.colsample_bytree,
            "reg_lambda": 0.0,
            "base_score": 0.0,
            "seed": seed,
            "nthread": ranker.n_jobs or 0,
            "verbosity": 0,
            **(ranker.options or {}),
        }

    def __init__(
        self,
        ranker: BoostedRanker,
        objective: BoostingObjective,
        lists: tuple[TrainingData, TrainingData | None],
        starts: tuple[np.ndarray | None, np.ndarray | None],
        seed: int,
    ) -> None:
        library, self.trees = _installed("xgboost"), 0
        options = self.parameters(ranker, seed)
        self.train, *self.valid = [
            self.matrix(
                part.features,
                ranker._categorical,
                as_single("y", part.labels),
                weight=part.weights,
                group=part.lengths,
                base_margin=start,
            )
            for part, start in zip(lists, starts, strict=True)
            if part is not None
        ]
        self.booster = library.Booster(options, [self.train, *self.valid])
        steps = objective._bound(self.train.get_label(), lists[0].lengths, lists[0].weights)
        self.objective = lambda scores, _: steps(scores)

    @staticmethod
    def matrix(X: Any, categorical: Sequence[int], *given: Any, **options: Any) -> Any:
        kinds = ["c" if at in categorical else "q" for at in range(X.shape[1])] if len(categorical) else None
        return _installed("xgboost").DMatrix(
            X, *given, feature_types=kinds, enable_categorical=kinds is not None, **options
        )

    def add_tree(self) -> None:
        self.booster.update(self.train, self.trees, fobj=self.objective)
        self.trees += 1

    def valid_scores(self) -> np.ndarray:
        return self.booster.predict(self.valid[0], output_margin=True)

    def kept(self, trees: int) -> Any:
        return self.booster[:trees]

    @staticmethod
    def predict(booster: Any, X: Any) -> np.ndarray:
        categorical = [at for at, kind in enumerate(booster.feature_types or ()) if kind == "c"]
        return booster.predict(_XGBoost.matrix(X, categorical), output_margin=True)

    @staticmethod
    def num_features(booster: Any) -> int:
        return booster.num_features()

    @staticmethod
    def gains(booster: Any, num_features: int) -> np.ndarray:
        found = np.zeros(num_features)
        for name, gain in booster.get_score(importance_type="total_gain").items():
            found[int(name[1:])] = gain
        return found

    @staticmethod
    def as_trees(booster: Any) -> Iterator[_Tree]:
        learner = json.loads(booster.save_raw("json"))["learner"]
        start, grown = learner["learner_model_param"]["base_score"], learner["gradient_booster"]
        trees = grown.get("gbtree", grown)["model"]["trees"]  # of booster "dart" with a weight each
        yield 0, lambda _: float(start.strip("[]"))
        for tree, weight in zip(trees, grown.get("weight_drop", np.ones(len(trees))), strict=True):
            if tree["categories"]:
                raise ValueError(
                    "XGBoost's trees with categorical splits have no scorer; use library='lightgbm' or "
                    "prepare=['encode']"
                )
            yield 0, partial(_XGBoost._look, tree, weight)

    @staticmethod
    def _look(tree: dict[str, Any], weight: float, node: int) -> _Split | float:
        condition = np.float32(tree["split_conditions"][node])
        if tree["left_children"][node] == -1:
            return float(condition) * weight
        column = (tree["split_indices"][node], -np.inf if tree["default_left"][node] else np.nan, 0.0, ())
        # x < threshold is x <= the preceding float32.
        threshold = np.nextafter(condition, np.float32(-np.inf))
        return _Split(column, float(threshold), (tree["left_children"][node], tree["right_children"][node]))

    @staticmethod
    def text(booster: Any) -> str:
        return booster.save_raw("json").decode()

    @staticmethod
    def read(text: str) -> Any:
        booster = _installed("xgboost").Booster()
        booster.load_model(bytearray(text.encode()))
        return booster


class _CatBoost:
    """A model of CatBoost in training, on one of its own losses."""

    single = True  # features are compared in float32
    losses: ClassVar = ("QueryRMSE", "YetiRank", "QuerySoftMax")
    aliases: ClassVar = {
        "eta": "learning_rate",
        "max_depth": "depth",
        "random_state": "random_seed",
        "objective": "loss_function",
    }

    def __init__(
        self,
        ranker: BoostedRanker,
        objective: None,
        lists: tuple[TrainingData, TrainingData | None],
        starts: tuple[np.ndarray | None, np.ndarray | None],
        seed: int,
    ) -> None:
        (train, valid), loss = lists, ranker.loss or "QueryRMSE"
        if ranker._categorical:
            raise ValueError(
                "with library='catboost', categorical columns need prepare=['encode']; LightGBM and XGBoost take them"
            )
        if train.item_weights is not None and loss == "YetiRank":
            raise ValueError("CatBoost's YetiRank does not take item_weights; use loss='QueryRMSE'")
        options = {
            "loss_function": loss,
            "learning_rate": ranker.learning_rate,
            "depth": int(np.ceil(np.log2(ranker.num_leaves_))),
            "random_seed": seed,
            "thread_count": ranker.n_jobs or -1,
            "verbose": False,
            "allow_writing_files": False,
            **{self.aliases.get(name, name): value for name, value in (ranker.options or {}).items()},
        }
        self.train, self.valid, self.watch = self.pool(train, starts[0]), None, _Watch()
        if valid is not None:
            self.valid = self.pool(valid, starts[1])
            options |= {"eval_metric": self.watch, "use_best_model": False}
        self.options = options

    @staticmethod
    def pool(part: TrainingData, start: np.ndarray | None) -> Any:
        lengths = part.lengths
        given = {
            "group_id": np.repeat(np.arange(len(lengths)), lengths),
            "weight": part.item_weights,
            "group_weight": None if part.weights is None else np.repeat(part.weights, lengths),
            "baseline": start,
        }
        return _installed("catboost").Pool(part.features, part.labels, **given)

    def grow(self, most: int, go_on: Callable[[np.ndarray | None], bool]) -> None:
        """Add trees while `go_on` wants more, which is given the scores of the validation documents."""
        library, self.watch.go_on = _installed("catboost"), go_on
        self.booster = library.CatBoost({**self.options, "iterations": most})
        try:
            self.booster.fit(self.train, eval_set=self.valid, callbacks=[self.watch])
        except library.CatBoostError as error:
            if "constant" not in str(error):
                raise
            raise ValueError("no feature can be split: each is constant, or nearly so") from error

    def kept(self, trees: int) -> Any:
        self.booster.shrink(trees)
        return self.read(self.text(self.booster))  # without the data

    @staticmethod
    def predict(booster: Any, X: Any) -> np.ndarray:
        return booster.predict(X)

    @staticmethod
    def num_features(booster: Any) -> int:
        return len(booster.feature_names_)

    @staticmethod
    def gains(booster: Any, num_features: int) -> np.ndarray:
        return np.asarray(booster.get_feature_importance(type="PredictionValuesChange"))

    @staticmethod
    def as_trees(booster: Any) -> Iterator[_Tree]:
        model = json.loads(_CatBoost._file(booster, "json"))
        if "oblivious_trees" not in model:
            raise ValueError("asymmetric trees of CatBoost have no scorer; omit grow_policy in options")
        scale, (bias,) = model["scale_and_bias"]
        yield (0, 0), lambda _: float(bias)
        columns = {}
        for feature in model["features_info"]["float_features"]:
            missing = np.nan if feature["nan_value_treatment"] == "AsTrue" else -np.inf
            columns[feature["feature_index"]] = feature["flat_feature_index"], missing, 0.0, ()
        for tree in model["oblivious_trees"]:
            yield (0, 0), partial(_CatBoost._look, columns, tree, scale)

    @staticmethod
    def _look(
        columns: Mapping[int, tuple], tree: dict[str, Any], scale: float, node: tuple[int, int]
    ) -> _Split | float:
        level, leaf = node  # bit i of a leaf's number is the side of split i
        if level == len(tree["splits"] or ()):
            return scale * tree["leaf_values"][leaf]
        split = tree["splits"][level]
        below = (level + 1, leaf), (level + 1, leaf | 1 << level)
        return _Split(columns[split["float_feature_index"]], split["border"], below)

    @staticmethod
    def _file(booster: Any, kind: str) -> bytes:
        with TemporaryDirectory() as folder:
            booster.save_model(str(Path(folder) / "model"), kind)
            return (Path(folder) / "model").read_bytes()

    @staticmethod
    def text(booster: Any) -> str:
        return b64encode(_CatBoost._file(booster, "cbm")).decode()

    @staticmethod
    def read(text: str) -> Any:
        booster = _installed("catboost").CatBoost()
        booster.load_model(blob=b64decode(text))
        return booster


class _Watch:
    """A callback of CatBoost, and its evaluation function, which keeps scores: at last those of the validation documents."""

    no_jit = True  # otherwise CatBoost warns that it cannot compile the method
    go_on: Callable[[np.ndarray | None], bool]
    scores: np.ndarray | None = None

    def after_iteration(self, info: Any) -> bool:
        """Whether to add another tree."""
        return self.go_on(self.scores)

    def __deepcopy__(self, memo: Any) -> _Watch:
        """Itself: CatBoost copies its options."""
        return self

    def is_max_optimal(self) -> bool:
        return True

    def get_final_error(self, error: float, weight: float) -> float:
        return error

    def evaluate(self, approxes: Sequence[np.ndarray], target: Any, weight: Any) -> tuple[float, float]:
        self.scores = np.array(approxes[0])
        return 0.0, 1.0


_LIBRARIES: dict[str, Any] = {"lightgbm": _LightGBM, "xgboost": _XGBoost, "catboost": _CatBoost}


def _installed(library: str) -> Any:
    """The library; raises ImportError if it is not installed."""
    return import_extra(library, "catboost" if library == "catboost" else "boosting")


def _features(X: Any) -> Any:
    """Convert float16, which no library supports, and sparse arrays, which LightGBM's predict does not accept."""
    X = X.astype(np.float32) if X.dtype == np.float16 else X
    return sp.csr_matrix(X) if sp.issparse(X) else X
