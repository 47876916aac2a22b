"""Base class of the rankers: input checks, preparation, grouping of documents by list, scoring and serialisation."""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_array, check_random_state, check_X_y
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn
from typing_extensions import Self

from rankstruct import losses
from rankstruct._lazy import public_names
from rankstruct.arrays import as_array, as_single
from rankstruct.blocks import Blocks
from rankstruct.calibration import Calibration, as_calibration
from rankstruct.clicks import ClickLog
from rankstruct.columns import USUAL, Columns, EncodedTable, check_same_names, names_of, say_once
from rankstruct.constraints.pages import PageRules, packed_groups
from rankstruct.data import RankingData
from rankstruct.data.clean import keep_documents
from rankstruct.data.dataset import columns_for_rules
from rankstruct.data.errors import check_selecting
from rankstruct.data.shards import ShardedFeatures
from rankstruct.estimators.arguments import OF_METHODS, explaining, lacking, with_inherited
from rankstruct.estimators.from_clicks import find_documents, lists_of_log, weigh_clicks
from rankstruct.estimators.training_data import (
    ROUTING,
    TrainingData,
    as_labels,
    check_column,
    check_ids,
    check_item_weights,
    check_list_weights,
    dense,
    gather,
    open_data,
    warn_of_swap,
    whole,
)
from rankstruct.ids import group_documents, list_ids
from rankstruct.losses import AdditiveRankLoss, GradedLoss, takes_groups
from rankstruct.measures import Diverse, Measure, evaluate, parse_measure
from rankstruct.messages import did_you_mean
from rankstruct.models.engines import export_scorer
from rankstruct.models.explain import Contributions, explain_scorer
from rankstruct.models.saving import build_module, describe_module
from rankstruct.models.scorers import with_preparation
from rankstruct.preparation import Preparation, encoded_first, has_missing, missing_columns, takes_sparse
from rankstruct.processes import Team
from rankstruct.roles import TableParts, columns_at, split_table, warn_of_told_labels
from rankstruct.solvers import RowsOf
from rankstruct.table_scorer import ScoresTables, TableScorer, feature_columns, matrix

__all__: list[str] = []

#: Seeds of estimators; None and random states of NumPy draw one in `fit`.
RandomState = int | np.random.RandomState | np.random.Generator | None

_DTYPES = [np.float64, np.float32, np.float16]  # used without conversion
FROM_CLICKS = "DCG@10"  # the measure where nothing else is given and labels are clicks
PREPARE = ("append-quantile", "standardize")  # where nothing else is given
_MOST_GRADES = 8  # thresholds of a `GradedLoss` where labels are not whole numbers
GROUPS = "one id per document, such as its host or topic"

_explaining = explaining(OF_METHODS)


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Within it, `fit` begins without what an earlier one found; if it is left by an exception, all attributes are restored.

    So a fit that fails leaves the earlier model as it was, or the estimator unfitted, but never parts of both.

    >>> ranker = Ranker()
    >>> ranker.lists_ = 3
    >>> try:
    ...     with all_or_nothing(ranker):
    ...         ranker.lists_, ranker.longest_list_ = 4, int("seven")
    ... except ValueError:
    ...     print(ranker.lists_, hasattr(ranker, "longest_list_"))
    3 False
    """
    before = dict(vars(estimator))
    for name in before:
        if name.endswith("_") and not name.startswith("_"):
            delattr(estimator, name)
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


@contextmanager
def recording_gradients() -> Iterator[None]:
    """Within it, losses have gradients, also where the caller has turned them off.

    >>> with torch.no_grad(), recording_gradients():
    ...     torch.is_grad_enabled()
    True
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield


class Ranker(ScoresTables, BaseEstimator):
    """A ranker with the conventions of scikit-learn; a custom one has `measure`, `loss`, `prepare` and `drop_empty`.

    `fit` accepts lists as `qid`, one id per document, or as `group`, the sizes of consecutive lists. Features may be a table
    with categorical columns and missing cells, see `rankstruct.columns`, which the step "encode" of `prepare` turns into numbers.
    It is put in front if there are any in training, unless the class supports them itself.

    Labels and lists may be columns of a data frame, named or found by their usual names (`fit(frame)`): `label`, `relevance`,
    `rel`, `y` or `target`; `qid`, `query_id`, `query` or `group`. They are not features, and `predict` and `score` take frames
    with or without them.

    A `fit` that fails or is interrupted leaves an earlier model as it was, or the ranker unfitted. (Only Ctrl-C while the solver
    of a `LinearRanker` runs keeps the best weights so far, with their own preparation and names, and raises KeyboardInterrupt.)

    Clicks take the place of labels: `fit(X, clicks, qid, position=..., propensity=...)`, where each list is what one user was
    shown (sessions of one query are different lists), or `fit(X, log)` with a `rankstruct.clicks.ClickLog` and, in `X`, the
    features of its documents, a row each in any order. They are found by name, if the frame `X` has columns of queries and
    documents, or `qid` and `docid` are passed. `log.with_documents(query, document)` says for features without names which row
    is which document, and `log.with_documents()` that they have the log's own order; otherwise they are refused. Documents that
    were never shown are left out, with a warning.

        position    `[documents]`, the rank at which each was shown, from 1, NaN if it was not; or a column of the frame `X`
        propensity  `[ranks]`, the probability that users examine each rank, above 0 and at most 1, or the result of an estimator
                    of `rankstruct.clicks`, of a log also by query; without `position` `[documents]`. None harvests the
                    propensities of a log, see `harvest_propensities`, and is an error for arrays
        clip        lower propensities are replaced by this one, against large weights; None for none
        qid, docid  of a log, the query and the name of each document, to find it; or columns of the frame `X`

    A clicked document gets its inverse propensity as item weight; the others, shown or not, count as irrelevant to that user and
    weigh 1. In a log the weight is the number of clicks, divided by that of the sessions that examined the document, by the ranks
    at which it was shown (`estimate_relevance`). Arrays do not tell which documents are the same, so what a cut-off hides at
    times weighs less there. Lists without clicks are left out, unless `drop_empty` is False. Where `loss` is None it is
    `AdditiveRankLoss`, whose expected value over clicks is that of the true labels; where `measure` is None it is DCG@10, of
    which the same is true. Lists that the ranker holds out, and those of a log as `y_valid`, are judged by the measure with these
    weights, which it must accept. A log is added up over sessions, so that in the end most documents were clicked: losses that
    compare these with the rest, such as the hinge of AUC, need sessions as lists. ValueError is raised for no clicks, clicks on
    documents that were not shown, and wrong positions or propensities. The guide "Clicks" says when this helps.

    `calibrate` fits a last step that turns scores into probabilities, see `rankstruct.Calibration`: `predict` still returns the
    scores, which keep their order where isotonic probabilities tie, and `predict_proba` the probabilities. The step is fitted to
    the validation lists passed to `fit`; if there are none, or if they train the model too (`AutoRanker`, and `EnsembleRanker`
    with `folds`), to a fifth of the lists, drawn with the ranker's seed, which train and select nothing.

    Attributes:
        measure_: `measure`, or where it is None, the measure of a loss over diverse rankings, and otherwise `usual_measure`.
        calibration_: the fitted step of `calibrate`, if there is one.
        preparation_: the fitted preparation of raw features; `preparation_.columns` has the categories found in training.
        lists_: number of training lists.
        longest_list_: number of documents in the longest of them.
        propensities_: from clicks, the propensities used, `[ranks]` or `[documents]`; None otherwise.
        thresholds_: the `grades` that a `GradedLoss` without its own gets where labels are not whole numbers: all labels above
            the lowest, or 8 of their quantiles; None where they are, and the loss finds them.
        n_features_in_: number of raw features.
        feature_names_in_: their names, if `fit` was given a DataFrame.
        roles_: the columns of that frame that are not features, `{"label": ..., "qid": ..., "docid": ...}`; empty for arrays.
    """

    measure: str | Measure | None
    measure_: str | Measure
    loss: str | nn.Module | None
    prepare: Sequence[str] | None
    drop_empty: bool
    preparation_: Preparation
    lists_: int
    longest_list_: int
    propensities_: np.ndarray | None
    thresholds_: list[float] | None
    n_features_in_: int
    roles_: dict[str, str]
    calibration_: Calibration
    calibrate: str | Calibration | None = None  # for classes with a constructor of their own
    #: Whether missing features and codes of categories reach the model itself, instead of the step "encode".
    takes_missing: bool = False
    #: Whether the ranking depends on the other documents of the list; without `qid`, all documents are one list.
    by_list: bool = False
    #: Whether the processes of `torch.distributed` fit one ranker, each with its share of the lists.
    distributed: bool = False
    #: Whether `fit` reads the features of shards as training goes, instead of loading them.
    reads_shards: bool = False
    #: Whether `fit` takes `columns`, for a loss under rules.
    trains_under_rules: bool = False
    #: What to say of options of other libraries.
    other_options: ClassVar[Mapping[str, str]] = {}

    __metadata_request__fit: ClassVar[dict] = {"qid": True, "diversity_groups": True, "columns": True}
    __metadata_request__predict: ClassVar[dict] = {"qid": True}
    __metadata_request__score: ClassVar[dict] = {"qid": True, "diversity_groups": True, "sample_weight": True}

    def __init__(self, *, calibrate: str | Calibration | None = None) -> None:
        self.calibrate = calibrate

    def __init_subclass__(cls, **options: Any) -> None:
        """Let the constructor name the right option for one that there is not; `**options` of its are those of the base class."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = explaining(cls.other_options)(with_inherited(cls))  # type: ignore[method-assign]

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError, which for a name of another library's estimators says what there is here."""
        if said := lacking(type(self), name):
            raise AttributeError(said)
        return object.__getattribute__(self, name)  # raises the error of before

    def __getstate__(self) -> dict[str, Any]:
        """Convert fitted modules to plain data, which serialisers other than pickle can write too."""
        state = super().__getstate__()
        return {name: as_plain(value) if name.endswith("_") else value for name, value in state.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Rebuild the modules; a ranker of an earlier version has no preparation."""
        found = {name: from_plain(value) if name.endswith("_") else value for name, value in state.items()}
        super().__setstate__({"prepare": ()} | found)
        if hasattr(self, "n_features_in_") and not hasattr(self, "preparation_"):
            self.preparation_ = Preparation()

    def __sklearn_tags__(self) -> Tags:
        """Declare required, nonnegative labels and the supported features."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.positive_only = True
        tags.input_tags.sparse = self._takes_sparse()
        tags.input_tags.allow_nan = tags.input_tags.categorical = self._takes_tables()
        return tags

    def _takes_sparse(self) -> bool:
        """Whether features may be sparse."""
        return takes_sparse(self.prepare or ())

    def _takes_tables(self) -> bool:
        """Whether features may be missing or categories."""
        return True

    @_explaining
    def fit(
        self,
        X: Any,
        y: Any = None,
        qid: Any = None,
        *,
        group: Any = None,
        docid: Any = None,
        diversity_groups: Any = None,
        columns: Mapping[str, Any] | None = None,
        sample_weight: Any = None,
        item_weights: Any = None,
        position: Any = None,
        propensity: Any = None,
        clip: float | None = None,
        X_valid: Any = None,
        y_valid: Any = None,
        qid_valid: Any = None,
        diversity_groups_valid: Any = None,
        item_weights_valid: Any = None,
    ) -> Self:
        """Fit the ranker to labels or clicks.

        Args:
            X: `[documents, d]`, an array, a data frame of pandas or polars, an Arrow table or a SciPy sparse matrix; float32 and
                CSR are used without a copy if the documents of each list are contiguous. Or `RankingData`, with its lists,
                groups, columns and, unless `y` is passed, labels.
            y: `[documents]`, graded relevance, 0 or more; or the name of a column of the frame `X`, None to find it; or clicks.
            qid: `[documents]`, the list of each document: integers or strings; or a column, likewise. Without lists and `group`,
                all documents are one list, with a warning. Next to `docid`, their names, it finds those of a click log.
            group: `[lists]`, the sizes of consecutive lists, in place of `qid`; as in LightGBM.
            diversity_groups: `[documents]`, the group (host, topic) of each document, for a loss over diverse rankings.
            columns: of Linear-, MLP- and BoostedRanker, for a loss under rules, by name groups `[documents]`; `score` knows none.
            sample_weight: `[lists]`, the weight of each list's loss, in order of first appearance; or `[documents]`, equal within
                each list. 0 or more. Ignored by preparation and validation, as are `item_weights`.
            item_weights: `[documents]`, the weight of each document in the loss of its list, 0 or more. Other weights than 1, and
                0, which removes documents, need a loss that accepts them.
            position, propensity, clip: for clicks, how they are corrected for the ranks; see the class.
            X_valid, y_valid, qid_valid: validation lists, used for selection as the class describes; or `X_valid` alone, of the
                kinds that have labels and lists. A warning says if in half of them the measure is the same for every ranking.
            diversity_groups_valid, item_weights_valid: their groups and weights, for the measure, which knows no rules.

        Raises:
            ValueError: wrong shapes, values or options, such as a label below 0 or one that the measure does not accept, missing
                groups or validation lists, too few lists, validation lists of which every ranking is equally good, a loss that
                cannot be minimised here, or columns that are not found.
            TypeError: item weights other than 0 and 1, or clicks, with a loss that does not accept item weights; X is no table.
        """
        with all_or_nothing(self), recording_gradients():
            self._check_fit_options(X_valid is not None)
            clicks = {"position": position, "propensity": propensity, "clip": clip, "docid": docid}
            train = self._take(X, y, qid, group, diversity_groups, sample_weight, item_weights, clicks, columns)
            valid = self._take_valid(X_valid, y_valid, qid_valid, diversity_groups_valid, item_weights_valid)
            train, held_out = self._held_out(train, valid)
            stopped = self._fit(train, valid)
            self._calibrate(held_out)
        if stopped:
            raise KeyboardInterrupt(stopped)
        return self

    def _calibrate(self, held_out: TrainingData | None) -> None:
        if held_out is not None:
            scores = self._scores(whole(held_out.features), held_out.ids)
            self.calibration_ = as_calibration(self.calibrate).fit(scores, held_out.labels, offsets=held_out.offsets)

    def _held_out(self, train: Any, valid: TrainingData | None) -> tuple[Any, TrainingData | None]:
        """Training lists, and the lists that calibrate, if any: validation lists that do not train, or some of `train`."""
        if self.calibrate is None:
            return train, None
        step = as_calibration(self.calibrate)
        if self.from_clicks:
            raise ValueError(
                "calibrate needs labels, and clicks by position are none; omit it, or fit rankstruct.Calibration to lists with "
                "labels"
            )
        if self.distributed:
            raise ValueError("calibrate is of one process; omit distributed=True or calibrate")
        if valid is not None and not self._trains_on_validation:
            return train, valid
        number = max(1, round(step.share * train.num_lists))
        if train.num_lists < 2:
            raise ValueError("calibrate holds lists out, and there is only one; pass X_valid, y_valid and qid_valid")
        drawn = np.random.default_rng(as_seed(getattr(self, "random_state", 0))).permutation(train.num_lists)[:number]
        held = np.repeat(np.isin(train.places, drawn), train.lengths)
        return keep_documents(train, ~held), keep_documents(train, held)

    @property
    def _trains_on_validation(self) -> bool:
        """Whether validation lists are training lists too."""
        return False

    def _take_from_dask(self, X: Any, y: Any, qid: Any, others: Mapping[str, Any], suffix: str = "") -> Any:
        """Lists of Dask collections; `others` are the other arguments of `fit`, and `suffix` that of the names of these."""
        raise TypeError(
            "X is a Dask collection, which only BoostedRanker takes: pass X.compute(), y.compute(), qid.compute()"
        )

    def _take(
        self,
        X: Any,
        y: Any,
        qid: Any,
        group: Any,
        diversity_groups: Any,
        sample_weight: Any,
        item_weights: Any,
        clicks: dict[str, Any],
        columns: Mapping[str, Any] | None,
    ) -> TrainingData:
        """Training lists from the arguments of `fit`; sets what depends on them alone."""
        if not (columns is None or diversity_groups is None):
            raise ValueError("columns= are for a loss under rules, which diversity_groups= are not; omit one of them")
        if hasattr(X, "__dask_graph__"):
            others = {"diversity_groups": diversity_groups, "group": group, "columns": columns, **clicks}
            others |= {"sample_weight": sample_weight, "item_weights": item_weights}
            return self._take_from_dask(X, y, qid, others)
        loading = (item_weights, self.calibrate, *clicks.values(), qid, group)
        if self._reads(X, y) and all(each is None for each in loading):
            return self._begin_with_shards(X, y, diversity_groups, columns, sample_weight)
        columns = self._columns_of(X, columns)
        X, y, qid, diversity_groups = open_data("X", X, y, qid, group, diversity_groups)
        X, y, qid, position, docid = self._take_columns(X, y, qid, group, clicks["position"], clicks["docid"])
        propensity, clip, self.propensities_ = clicks["propensity"], clicks["clip"], None
        by_position = not (position is None and propensity is None and clip is None)
        if (by_position or isinstance(y, ClickLog)) and item_weights is not None:
            raise ValueError(
                "item_weights follow from clicks and propensity: omit them, or position, propensity and clip"
            )
        if isinstance(y, ClickLog):
            if not (position is None and group is None):
                raise ValueError("y is a log, which has positions and lists: omit position and group")
            log = lists_of_log(find_documents(y, X, qid, docid), propensity, clip)
            y, qid, item_weights, self.propensities_ = log.labels, log.qid, log.item_weights, log.propensities
            sample_weight = log.sample_weight if sample_weight is None else sample_weight
        X, y = self._check(X, y, reset=True)
        if qid is None and group is None:
            if diversity_groups is not None and not self._measure().takes_groups:
                raise ValueError(
                    "diversity_groups= are hosts or topics, which only measures of diversity use; pass the list of each "
                    f"document as qid=; {ROUTING}"
                )
            warnings.warn(
                f"qid is missing, so all {len(y)} documents are one list: pass qid=, one id per document, or group=, the sizes "
                f"of the lists; {ROUTING}",
                stacklevel=4,
            )
        ids = list_ids(X.shape[0], qid, group, np.zeros(len(y), np.int64))
        ids, diversity_groups = check_ids(X, ids, diversity_groups)
        diversity_groups = self._packed(columns, ids, diversity_groups)
        warn_of_swap(y, ids, "fit")
        if by_position and self.propensities_ is None:
            y, item_weights, self.propensities_ = weigh_clicks(y, ids, position, propensity, clip)
        each = None if item_weights is None else check_item_weights(item_weights, len(y))
        lists = gather(X, y, ids, diversity_groups, sample_weight, each)
        self._begin(lists := lists if each is None else self._without_weight_zero(lists))
        return lists

    def _reads(self, X: Any, y: Any) -> bool:
        """Whether the features of X are read as training goes."""
        is_shards = isinstance(X, RankingData) and isinstance(X.features, Blocks) and X.num_lists > 1
        return self.reads_shards and is_shards and not isinstance(y, ClickLog)

    def _begin_with_shards(
        self, X: RankingData, y: Any, diversity_groups: Any, columns: Mapping[str, Any] | None, sample_weight: Any
    ) -> TrainingData:
        """Training lists whose features stay in shards, see `_take`."""
        self.roles_, self.propensities_ = {}, None
        lists = self._take_shards(X, y, diversity_groups, sample_weight, reset=True)
        columns = self._columns_of(X, columns)
        lists = replace(lists, diversity_groups=self._packed(columns, lists.ids, lists.diversity_groups))
        self._begin(lists)
        return lists

    def _take_shards(
        self, X: RankingData, y: Any, diversity_groups: Any, sample_weight: Any = None, *, reset: bool
    ) -> TrainingData:
        """Lists whose features stay in shards, and are checked as they are decoded."""
        if not reset:
            known, names = self.preparation_.columns, getattr(self, "feature_names_in_", None)
            X = X.recoded(Columns(dict.fromkeys(names)) if known is None and names is not None else known)
        X = X if y is None else replace(X, labels=as_single("y", check_column("y", y)))
        X = X if diversity_groups is None else X.with_groups(diversity_groups)
        first = X.features[:2]
        self._check(first if X.columns is None else EncodedTable(first, X.columns), reset=reset)
        weights = None if sample_weight is None else check_list_weights(sample_weight, None, X.offsets)
        groups, qids = X.diversity_groups, np.arange(X.num_lists)
        return TrainingData(X.features, X.labels, X.offsets, qids, diversity_groups=groups, weights=weights)

    @property
    def _rules(self) -> list[PageRules]:
        """The rules that the loss is under, or those that it consists of."""
        loss = getattr(self, "loss", None)
        if isinstance(loss, str):
            loss = named_loss(loss) if "constraints" in loss else None
        return losses.rules_of(loss) if isinstance(loss, nn.Module) else []

    def _columns_of(self, X: Any, columns: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The columns passed, or for a loss under rules those of `RankingData`, if it has some."""
        if columns is None and self._rules and isinstance(X, RankingData):
            return columns_for_rules(X) or None
        return columns

    def _packed(self, columns: Mapping[str, Any] | None, ids: np.ndarray, diversity_groups: Any) -> Any:
        """The groups of documents, or for a loss under rules those of the columns, one number for each document.

        `ids` are the lists of the documents.
        """
        rules = self._rules
        if not self.trains_under_rules and (rules or columns is not None):
            raise TypeError(
                f"{type(self).__name__} does not train under rules; use LinearRanker, MLPRanker or BoostedRanker"
            )
        if not rules:
            if columns is not None:
                raise TypeError(
                    "columns= are groups that rules are about; pass loss=StructuredHingeLoss(..., constraints=...)"
                )
            return diversity_groups
        if columns is None:
            names = ", ".join(map(repr, rules[0].columns))
            raise ValueError(f"the loss is under rules about {names}; pass columns=, the groups of each document")
        if self._measure().takes_groups:
            raise ValueError(
                "the loss is under rules, which a measure of diversity knows nothing of; pass another than "
                f"{self._measure().name}, such as measure='nDCG@10'"
            )
        return packed_groups(rules, columns, len(ids), qid=ids).numbers.numpy()

    def _take_columns(
        self, X: Any, y: Any, qid: Any, group: Any, position: Any, docid: Any
    ) -> tuple[Any, Any, Any, Any, Any]:
        """Features, labels, lists, positions and names of training documents; sets `roles_`."""
        log = y if isinstance(y, ClickLog) else None
        if log is None and docid is not None:
            raise ValueError("docid= finds the documents of a click log, and y is none; omit docid")
        found = split_table(
            X, y if log is None else None, qid, position, docid, by_names=log is not None, has_sizes=group is not None
        )
        self.roles_ = found.roles
        if log is None and found.y is None and names_of(X):
            raise ValueError(
                f"y is missing, and X has no column with a usual name of labels, {', '.join(USUAL['label'])}; pass the labels, "
                "[documents], or the name of their column"
            )
        if log is None:
            warn_of_told_labels(found)
        if not found.caller_named:
            said = {"label": "labels", "qid": "lists", "docid": "names of documents", "position": "positions"}
            shown = ", ".join(f"{name!r} ({said[role]})" for role, name in found.roles.items())
            say_once(f"columns that are not features: {shown}")
        return found.X, found.y if log is None else log, found.qid, found.position, found.docid

    def _divide(self, X: Any, y: Any, qid: Any, group: Any = None) -> tuple[Any, Any, Any]:
        """Features, labels and lists of other documents, with the columns of training."""
        return self._parts(X, y, qid, group)[:3]

    def _parts(self, X: Any, y: Any, qid: Any, group: Any, docid: Any = None) -> TableParts:
        """As `_divide`, with the names of documents."""
        features, known = getattr(self, "feature_names_in_", ()), getattr(self, "roles_", {})  # not in earlier versions
        if not len(features):  # fitted to an array
            features = [name for name in names_of(X) if name not in known.values()]
        return split_table(X, y, qid, None, docid, has_sizes=group is not None, features=features, known=known)

    def _take_valid(self, X: Any, y: Any, qid: Any, diversity_groups: Any, item_weights: Any) -> TrainingData | None:
        """Validation lists from the arguments of `fit`, if there are any."""
        if hasattr(X, "__dask_graph__"):
            others = {"diversity_groups_valid": diversity_groups, "item_weights_valid": item_weights}
            return self._take_from_dask(X, y, qid, others, "_valid")
        if self._reads(X, y) and qid is None and item_weights is None:
            valid = self._take_shards(X, y, diversity_groups, reset=False)
            self._check_judged("X_valid", valid)
            return valid
        if X is not None:
            X, y, qid, diversity_groups = open_data("X_valid", X, y, qid, None, diversity_groups)
        if isinstance(y, ClickLog):
            if self.propensities_ is None:
                raise ValueError("y_valid is a log, whose propensities are those of training, so y must be one too")
            features = getattr(self, "feature_names_in_", ())
            parts = split_table(X, None, qid, by_names=True, features=features, known=self.roles_)
            log = lists_of_log(find_documents(y, parts.X, parts.qid, parts.docid, "_valid"), self.propensities_, None)
            X, y, qid, item_weights = parts.X, log.labels, log.qid, log.item_weights
        X, y, qid = (X, y, qid) if X is None else self._divide(X, y, qid)
        if not are_given(X, y, qid):
            for name, value in (("item_weights", item_weights), ("diversity_groups", diversity_groups)):
                if value is not None:
                    raise ValueError(f"{name}_valid needs X_valid, y_valid and qid_valid; pass them too or omit it")
            return None
        if diversity_groups is None and self._measure().takes_groups:
            raise ValueError(
                f"{self._measure().name} needs diversity_groups_valid=, one id per validation document: its host or topic"
            )
        X, y = self._check(X, reset=False), check_column("y_valid", y)
        ids, diversity_groups = check_ids(X, qid, diversity_groups)
        if item_weights is not None:
            item_weights = check_item_weights(item_weights, len(ids), "item_weights_valid")
        if y.shape != ids.shape:
            raise ValueError(f"y_valid must have one label per document, shape {ids.shape}, got {y.shape}")
        valid = gather(X, y, ids, diversity_groups, None, item_weights)
        self._check_judged("y_valid", valid)
        return valid

    def _check_judged(self, name: str, valid: TrainingData, rest: TrainingData | None = None) -> None:
        """Raise ValueError if the measure does not accept the labels of validation lists, or is the same for every ranking of
        each of them, so that nothing could be selected; warn if this holds for half of them.

        Of lists that were held out, the latter is an error only if `rest`, from which they were taken, has better ones.
        """
        measure = self._measure()
        same, lists = map(self._total, self._undecided(name, valid))
        if 0 < same == lists and rest is not None:
            others = (0, 0) if lists == 1 else self._undecided(name, rest)
            if others[0] == others[1]:
                return
        why = f"{measure.name} is the same for every ranking, such as where all labels are equal"
        way_out = "pass validation lists with documents to tell apart"
        check_selecting(same, lists, why, way_out, name=name, stacklevel=6)

    def _undecided(self, name: str, lists: TrainingData) -> tuple[int, int]:
        """The number of lists for which the measure is the same for every ranking, and of all lists."""
        gains = lists.labels if lists.item_weights is None else lists.labels * lists.item_weights
        # no ties: some measures have no value for them
        best = np.argsort(np.argsort(gains, kind="stable")).astype(float)
        measure = self._measure()
        if self._rules:  # whose groups are not those of a measure
            lists = replace(lists, diversity_groups=None)
        try:
            highest, lowest = (measured(scores, lists, [measure])[measure.name] for scores in (best, -best))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        return 0 if measure.takes_groups else int((highest == lowest).sum()), len(highest)

    def _begin(self, train: TrainingData) -> None:
        """Set what depends on the lists and labels alone."""
        self.lists_, self.longest_list_ = train.num_lists, int(train.lengths.max())
        own = self.measure if self.measure is not None else self._measure_of_loss()
        usual = FROM_CLICKS if self.from_clicks else usual_measure(self._grades(train.labels))
        self.measure_ = usual if own is None else own
        self.thresholds_ = self._thresholds(train.labels)
        self._warn_of_indifference(train)

    def _warn_of_indifference(self, train: TrainingData) -> None:
        """Warn of labels that the measure hardly tells apart: all above 0 for AP, or with one gain far above all others."""
        measure, y = self._measure(), train.labels
        if not len(y) or measure.takes_groups:
            return
        with suppress(ValueError):  # of labels that only `score` would refuse
            # warns of a gain that outweighs all others
            evaluate(np.zeros(1), y[[y.argmax()]], [measure], offsets=[0, 1])
        if y.min() <= 0:
            return
        best, worst = (measured(scores, train, [measure])[measure.name] for scores in (y, -y))
        if (y != y[0]).any() and bool((best == worst).all()):
            warnings.warn(
                f"no label is 0, so {measure.name} has the same value for every ranking: use a graded measure, such as 'nDCG', "
                "or one with min_relevant=, or shift the labels to start at 0",
                stacklevel=6,
            )

    def _without_weight_zero(self, lists: TrainingData) -> TrainingData:
        """Drop documents of weight 0; the others have no weights if all are 1."""
        kept = lists.item_weights > 0
        if not kept.any():
            raise ValueError("item_weights must not be zero for all documents")
        lists = replace(lists, item_weights=None) if (lists.item_weights[kept] == 1).all() else lists
        if kept.all():
            return lists
        lists = keep_documents(lists, kept)
        assert lists.rows is not None
        return lists.select(np.argsort(lists.rows[lists.offsets[:-1]]))  # by first appearance of what is left

    def _check_fit_options(self, has_validation: bool) -> None:
        """Raise ValueError for a wrong option, before any work."""

    def _fit(self, train: TrainingData, valid: TrainingData | None) -> str | None:
        """Train on checked documents; returns what to say if Ctrl-C ended it early with a whole model, which is then kept."""
        raise NotImplementedError

    def _check(self, X: Any, *y: Any, reset: bool) -> Any:
        # A single document cannot be ranked, but may be one process's share.
        least = 1 if self.distributed else 2
        labels: dict[str, Any] = {"y": y[0], "y_numeric": True, "ensure_min_samples": least} if y else {}
        if y and y[0] is not None and not sp.issparse(y[0]):
            labels["y"] = as_labels("y", y[0])
        if hasattr(X, "detach") or isinstance(X, np.ma.MaskedArray):
            X = as_array("X", X)
        if len(getattr(X, "shape", (0, 0))) == 1:
            raise ValueError(
                f"X must have shape [documents, d], got {tuple(X.shape)}. Reshape your data: one feature is X.reshape(-1, 1), or "
                "a data frame of one column; one document is X.reshape(1, -1)"
            )
        X = X if isinstance(X, np.ndarray) else self._by_name(X, reset)
        finite = "allow-nan" if self._takes_tables() else True
        kinds: dict[str, Any] = {"accept_sparse": "csr", "dtype": _DTYPES, "ensure_all_finite": finite}
        columns = self._find_columns(X, reset)
        if columns is None and isinstance(X, EncodedTable):  # whose names scikit-learn does not see
            if not reset and hasattr(self, "feature_names_in_"):  # they are those of training
                return check_X_y(X.values, **labels, **kinds) if labels else check_array(X.values, **kinds)
            checked = validate_data(self, X.values, **labels, **kinds, reset=reset)
            if reset:
                self.feature_names_in_ = np.array(X.columns.names, object)
            return checked
        if columns is None:
            return validate_data(self, X, **labels, **kinds, reset=reset)
        validate_data(self, X, skip_check_array=True, reset=reset)  # the names and the number of columns
        X = columns.encode(X)
        return check_X_y(X, **labels, **kinds) if labels else check_array(X, **kinds)

    def _by_name(self, X: Any, reset: bool) -> Any:
        """A frame with the columns of training in their order; names that are not strings become strings.

        Numbers from 0 on, as pandas gives to columns without names, are places: an array has the same columns.
        """
        if not (names := X.columns.names if isinstance(X, EncodedTable) else names_of(X)):
            return X
        places, known = list(map(str, range(len(names)))), None if reset else getattr(self, "feature_names_in_", None)
        expected = names if reset else list(map(str, range(self.n_features_in_))) if known is None else list(known)
        if names != expected and (known is not None or sorted(names) == sorted(expected)):
            check_same_names("X", expected, names)
            at = [names.index(name) for name in expected]
            X = X.select(expected) if isinstance(X, EncodedTable) else columns_at(X, at)
            names = expected
        named = not hasattr(X, "iloc") or all(isinstance(name, str) for name in X.columns)
        return X if named or (names == places and known is None) else X.set_axis(names, axis=1)

    def _find_columns(self, X: Any, reset: bool) -> Columns | None:
        """The columns of a table with categories, which `reset` finds; None if all are numbers."""
        known = None if reset else self.preparation_.columns
        if known is not None:
            return known
        if isinstance(X, EncodedTable):
            found = X.columns if X.columns.categorical else None
        else:
            is_numeric = isinstance(X, np.ndarray) and X.dtype.kind in "biuf"
            found = Columns.find(X) if self._takes_tables() and not is_numeric else None
        if reset:
            self.preparation_ = Preparation(columns=found)
            if found is not None and not isinstance(X, EncodedTable):
                say_once(found.description)
        elif found is not None:
            name = found.names[found.categorical[0]]
            raise ValueError(f"X: column {name!r} had numbers in training, got strings; convert it to numbers")
        return found

    def _table(self, X: Any) -> Any:
        """Checked documents for another ranker to `fit`, which finds the same categories."""
        columns = self.preparation_.columns
        return X if columns is None or self.preparation_.names else EncodedTable(X, columns)

    def steps(self, X: Any) -> Sequence[str]:
        """Return the preparation steps that `fit` would use for features."""
        return self.prepare or ()

    def _fit_preparation(self, lists: TrainingData) -> TrainingData:
        """Fit the preparation and return the prepared training lists."""
        return self._fit_steps(
            lists, self.steps(lists.features.X if isinstance(lists.features, RowsOf) else lists.features)
        )

    def _fit_steps(self, lists: TrainingData, given: Sequence[str]) -> TrainingData:
        """As `_fit_preparation`, by these steps."""
        raw = Preparation(columns=self.preparation_.columns)
        X = lists.features.X if isinstance(lists.features, RowsOf) else lists.features
        steps = list(given)
        if not self.takes_missing or steps:
            needed = encoded_first(steps, X, raw.columns)
            if needed != steps and has_missing(X):
                say_once(
                    f"missing values in {len(missing_columns(X))} of {X.shape[1]} columns: each gets an indicator, and numbers "
                    "are replaced by the median (the step 'encode', put in front of prepare=)"
                )
            steps = needed
        self.preparation_ = raw
        if not steps:
            return lists
        self.preparation_, X = Preparation.fit_transform(steps, whole(lists.features), lists.offsets, raw)
        return replace(lists, features=X)

    def _prepared_lists(self, lists: TrainingData) -> TrainingData:
        """Other lists, prepared."""
        X = whole(lists.features)
        self._check_missing(X)
        return replace(lists, features=self.preparation_.transform(X, lists.offsets))

    def _prepared(self, X: Any, qid: Any) -> Any:
        """Prepared documents; `qid` may be None if no step depends on the lists."""
        self._check_missing(X)
        if not self.preparation_.by_list or qid is None:
            return self.preparation_.transform(X)
        order, offsets = group_documents(qid)
        if order is None:
            return self.preparation_.transform(X, offsets)
        return self.preparation_.transform(X[order], offsets)[np.argsort(order)]

    def _check_missing(self, X: Any) -> None:
        """Raise ValueError if features are missing, and only here."""
        if not (self.takes_missing or self.preparation_.encodes) and has_missing(X):
            names = getattr(self, "feature_names_in_", np.arange(X.shape[1]))[missing_columns(X)[:5]].tolist()
            raise ValueError(
                f"X has missing values, in the columns {', '.join(map(repr, names))}, and the training documents had none; put "
                "the step 'encode' in front of prepare= to replace them by the median of the training documents"
            )

    def prepend(self, preparation: Preparation) -> Self:
        """Let a ranker that was fitted to prepared documents accept raw ones; returns the ranker itself."""
        self.preparation_ = preparation.then(self.preparation_)
        self.prepare = list(self.preparation_.names)
        self.n_features_in_ = self.preparation_.num_features or self.n_features_in_
        return self

    def _training_lists(self, lists: TrainingData) -> TrainingData:
        """The lists without empty ones; the mean weight of the others is 1."""
        kept = self._learned(lists)
        return self._weighed(lists if kept.all() else lists.select(kept))

    def _learned(self, lists: TrainingData, among: Any = True) -> np.ndarray:
        """`[lists]` booleans: the lists `among` some that are not empty, if these are dropped."""
        kept = np.full(lists.num_lists, True) & among
        if self.drop_empty:
            starts, number = lists.offsets[:-1], int(kept.sum())
            # A list of which everything was clicked does not tie everything: its documents compete.
            lowest = 0 if self.from_clicks else np.minimum.reduceat(lists.labels, starts)
            kept &= lowest < np.maximum.reduceat(lists.labels, starts)
            if not self._total(int(kept.sum())):
                raise ValueError(f"no list can be learned from: in each of {number} all labels are equal")
        return kept

    def _weighed(self, lists: TrainingData, learned: Any = slice(None)) -> TrainingData:
        """The lists with weights whose mean is 1 over those that are learned from."""
        if lists.weights is None:
            return lists
        own = lists.weights[learned]
        total, number = self._total(float(own.sum())), self._total(len(own))
        if not total:
            raise ValueError("sample_weight must not be zero for all lists that have different labels")
        return replace(lists, weights=lists.weights * (number / total))

    def _measure(self, labels: np.ndarray | None = None) -> Measure:
        """The measure that selects; `labels` decide if it is None and the ranker was not fitted."""
        own = self.measure if self.measure is not None else self._measure_of_loss()
        if own is None:
            own = getattr(self, "measure_", None) or ("AP" if labels is None else usual_measure(labels))
        return parse_measure(own)

    def _grades(self, labels: np.ndarray) -> np.ndarray:
        """The different labels of all processes."""
        grades = np.unique(labels)
        return np.unique(np.concatenate(self._team().gathered(grades))) if self.distributed else grades

    def _thresholds(self, labels: np.ndarray) -> list[float] | None:
        """`thresholds_` for these labels: whole numbers would skip most labels that are not, and all between 0 and 1."""
        grades = self._grades(labels)  # of all processes, which decide alike
        return quantiles_of(grades) if (grades % 1).any() else None

    def _measure_of_loss(self) -> Diverse | None:
        measure = getattr(named_loss(self.loss), "measure", None)
        return measure if isinstance(measure, Diverse) else None

    @property
    def from_clicks(self) -> bool:
        """Whether the ranker is, or was, fitted to clicks."""
        return getattr(self, "propensities_", None) is not None

    def _loss(self, usual: Callable[[], nn.Module], labels: np.ndarray | None = None) -> nn.Module:
        """A copy of `loss`, or where it is None the usual loss, `AdditiveRankLoss` from clicks; with `thresholds_`, or before
        `fit` those of `labels`.
        """
        loss = copy.deepcopy(named_loss(self.loss))
        if loss is None:
            loss = AdditiveRankLoss() if self.from_clicks else usual()
        given = None if labels is None else self._thresholds(labels)
        thresholds = getattr(self, "thresholds_", given)
        for module in [] if thresholds is None else loss.modules():
            if isinstance(module, GradedLoss) and module.grades is None and module.grade_weights is None:
                module.grades = thresholds
        return loss

    def _team(self) -> Team:
        """The processes that fit one ranker."""
        return Team()

    def _total(self, value: Any) -> Any:
        """The sum of a number over the processes."""
        return type(value)(self._team().sum(np.array([value], float))[0]) if self.distributed else value

    @_explaining
    def score(
        self,
        X: Any,
        y: Any = None,
        qid: Any = None,
        *,
        group: Any = None,
        diversity_groups: Any = None,
        sample_weight: Any = None,
        item_weights: Any = None,
    ) -> float:
        """Return the mean of `measure` over the lists; ties are averaged over, lists without a relevant document count 0.

        Labels, lists, list weights, groups and item weights are passed as in `fit`; see `rankstruct.evaluate` for item weights,
        which some measures do not accept. Without lists, all documents are one list if the ranker was fitted to one. A measure of
        diversity needs `diversity_groups`; a `Diverse` one re-ranks each list first.

        Raises:
            ValueError: no labels; or neither `qid` nor `group`, but the ranker was fitted to several lists. (`cross_val_score`
                and the like pass neither unless routing is on, and turn the error into a warning and NaN unless
                `error_score="raise"`.)
        """
        check_is_fitted(self)
        X, y, qid, diversity_groups = open_data("X", X, y, qid, group, diversity_groups)
        X, y, qid = self._divide(X, y, qid, group)
        if y is None:
            raise ValueError(
                "y is missing: pass the labels, [documents], or the name of their column in the data frame X"
            )
        X = self._check(X, reset=False)
        one = np.zeros(X.shape[0], np.int64) if getattr(self, "lists_", 2) == 1 else None
        if qid is None and group is None and one is None:
            raise ValueError(
                f"qid is missing, but the ranker was fitted to {getattr(self, 'lists_', 'several')} lists: pass qid=, one id per "
                f"document, or group=, the sizes of the lists; {ROUTING}"
            )
        ids, diversity_groups = check_ids(X, list_ids(X.shape[0], qid, group, one), diversity_groups)
        item_weights = None if item_weights is None else check_item_weights(item_weights, len(ids))
        y = check_column("y", y)
        warn_of_swap(y, ids, "score")
        columns = {"diversity_groups": diversity_groups, "item_weights": item_weights}
        values = self._values(self._scores(X, ids), y, qid=ids, **columns)
        if sample_weight is None:
            return float(values.mean())
        return float(np.average(values.numpy(), weights=check_list_weights(sample_weight, *group_documents(ids))))

    def _values(self, scores: np.ndarray, labels: np.ndarray, **lists: Any) -> torch.Tensor:
        """The measure of each list; `lists` are arguments of `evaluate`."""
        measure = self._measure(labels)
        if measure.takes_groups and lists.get("diversity_groups") is None:
            raise ValueError(f"{measure.name} needs diversity_groups=, {GROUPS}")
        return evaluate(scores, labels, [measure], **lists)[measure.name]

    @_explaining
    def predict(self, X: Any, qid: Any = None, *, group: Any = None) -> np.ndarray:
        """Return scores `[documents]`, float64: higher is better, comparable within a list.

        The lists, passed as in `fit`, are needed if a step of `prepare` depends on complete lists. An ensemble standardises
        scores within each list, and an MLP with `context=` compares its documents; without lists they treat all documents as
        one, if they are not more than the longest training list has; otherwise an ensemble warns, and an MLP raises ValueError.
        Shards are scored some lists at a time.
        """
        check_is_fitted(self)
        if isinstance(X, RankingData) and isinstance(X.features, ShardedFeatures) and qid is None and group is None:
            lists = np.arange(X.num_lists)
            return np.concatenate([self.predict(X.select(some)) for some in X.features.windows(lists, lists)])
        X, _, qid, _ = open_data("X", X, None, qid, group)
        X, _, qid = self._divide(X, None, qid, group)
        X = self._check(X, reset=False)
        ids = None if qid is None and group is None else check_ids(X, list_ids(X.shape[0], qid, group), None)[0]
        longest = getattr(self, "longest_list_", X.shape[0])  # not stored by earlier versions
        if ids is None and self.by_list and X.shape[0] > longest:
            self._score_as_one_list(X.shape[0], longest)
        return self._scores(X, ids)

    @available_if(lambda self: self.calibrate is not None)
    def predict_proba(self, X: Any, qid: Any = None, *, group: Any = None) -> np.ndarray:
        """Return the probabilities `[documents, 2]` that documents are irrelevant and relevant, as scikit-learn's classifiers do.

        Only with `calibrate`; arguments are those of `predict`. Rank by `predict`: probabilities may tie where scores do not.
        """
        check_is_fitted(self, "calibration_")
        relevant = self.calibration_.predict(self.predict(X, qid, group=group)).numpy()
        return np.column_stack([1 - relevant, relevant])

    def _as_scorer(self, scorer: nn.Module, preparation: Preparation | None = None) -> nn.Module:
        """A scorer of prepared features as one of raw ones, with `preparation_` in front, and the names of features."""
        found = with_preparation(scorer, self.preparation_ if preparation is None else preparation)
        if (names := getattr(self, "feature_names_in_", None)) is not None:
            setattr(found, "feature_names", tuple(names))  # noqa: B010 - a module may have attributes of any type
        if (step := getattr(self, "calibration_", None)) is not None:
            found.calibration = copy.deepcopy(step)
        return found

    def _table_scorer(self, qid: str | None, features: Sequence[str] | None, output: str) -> TableScorer:
        check_is_fitted(self)
        columns, known = self.preparation_.columns, getattr(self, "feature_names_in_", None)
        known = columns.names if known is None and columns is not None else known
        names = feature_columns(known, features)
        qid = getattr(self, "roles_", {}).get("qid") if qid is None else qid  # not in earlier versions

        def score(table: Any, ids: np.ndarray | None) -> np.ndarray:
            return self.predict(matrix(table) if known is None else table, ids)

        return TableScorer(score, names, self._sees_lists, qid, output)

    @property
    def _sees_lists(self) -> bool:
        """Whether scores depend on the other documents of the list: of the ranker, its preparation, or a ranker within."""
        within = (value for value in vars(self).values() if isinstance(value, Ranker))
        return (
            self.by_list
            or self.preparation_.by_list
            or any(hasattr(w, "preparation_") and w._sees_lists for w in within)
        )

    def _score_as_one_list(self, documents: int, longest: int) -> None:
        """Warn that all documents are one list, although no training list has more than `longest`."""
        warnings.warn(
            f"qid is missing, so all {documents} documents are scored as one list, although no training list has more than "
            f"{longest}; the scores of an ensemble depend on the lists: pass qid=, one id per document, or group=, the sizes "
            f"of the lists (group=[{documents}] for one list)",
            stacklevel=4,
        )

    def export(
        self, path: str | Path, engine: str = "onnx", *, feature_names: Sequence[str] | None = None
    ) -> list[Path]:
        """Write the fitted ranker for a search engine, and the features that it expects; see `rankstruct.models.export_scorer`.

        >>> import tempfile
        >>> from rankstruct import LinearRanker
        >>> ranker = LinearRanker("AP", prepare=()).fit(np.eye(4, 2), [1, 0, 0, 0], group=[4])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     [file.name for file in ranker.export(f"{folder}/ranker.json", "elasticsearch")]
        ['ranker.json', 'ranker.features.json']
        """
        names = getattr(self, "feature_names_in_", None)
        scorer = self._scorer_for("export")
        return export_scorer(scorer, path, engine, feature_names=names if feature_names is None else feature_names)

    def _scorer_for(self, purpose: str) -> nn.Module:
        check_is_fitted(self)
        to_scorer: Callable[[], nn.Module] | None = getattr(self, "to_scorer", None)
        if to_scorer is None:
            raise ValueError(f"{type(self).__name__} has no to_scorer(), which {purpose} needs; define it")
        return to_scorer()

    def explain(
        self, X: Any, a: Any, b: Any, qid: Any = None, *, group: Any = None, docid: Any = None
    ) -> Contributions | list[Contributions]:
        """What each raw feature contributes to the difference of the scores of documents A and B, of the same list.

        Contributions sum to the difference, and a feature that both have alike contributes 0: B is the baseline. They are exact
        for linear rankers and trees, and integrated gradients for MLPs; see `rankstruct.models.explain_scorer`.

        Args:
            X: documents, passed as to `predict`. Scores of an ensemble, and those after `query-` steps, depend on the list, of
                which all documents are then needed.
            a, b: rows of `X` or, as text, names of `docid`; for several pairs, sequences of as many.
            qid, group: the lists, as for `predict`.
            docid: `[documents]`, the names of the documents, or their column.

        Returns:
            `Contributions`, which `print` shows as a table; a list of them for sequences.

        Raises:
            ValueError: unknown or ambiguous documents, or two of different lists; a ranker that compares the documents of a list.

        >>> from rankstruct import LinearRanker
        >>> X = np.array([[3.0, 0.0], [1.0, 2.0], [0.0, 1.0]])
        >>> ranker = LinearRanker("AP", prepare=()).fit(X, [1, 0, 0], group=[3])
        >>> why = ranker.explain(X, "first", "second", group=[3], docid=["first", "second", "third"])
        >>> why.names[0], bool(np.isclose(why.contributions.sum(), why.scores[0] - why.scores[1]))
        ('feature_1', True)
        """
        scorer, given = self._scorer_for("explain"), X
        X, _, qid, _ = open_data("X", X, None, qid, group)
        docid = getattr(given, "docids", None) if docid is None else docid  # of `RankingData`
        found = self._parts(X, None, qid, group, docid)
        X = self._check(found.X, reset=False)
        names = None if found.docid is None else np.asarray(found.docid).astype(str)
        if names is not None and names.shape != (X.shape[0],):
            raise ValueError(f"docid must have one name per document, shape {X.shape[:1]}, got {names.shape}")
        ids = np.zeros(X.shape[0], np.int64)
        if found.qid is not None or group is not None:
            ids = check_ids(X, list_ids(X.shape[0], found.qid, group), None)[0]
        elif self._sees_lists and X.shape[0] > getattr(self, "longest_list_", X.shape[0]):
            self._score_as_one_list(X.shape[0], self.longest_list_)
        one = np.ndim(a) == 0
        pairs = list(zip(*(self._rows(which, names, X.shape[0]) for which in (("a", a), ("b", b))), strict=True))
        for first, second in pairs:
            if ids[first] != ids[second]:
                raise ValueError(f"a and b must be documents of one list, got rows {first} and {second} of two lists")
        together = [int(ids[first]) if self._sees_lists else 0 for first, _ in pairs]
        explanations: list[Any] = [None] * len(pairs)
        for group_id in dict.fromkeys(together):
            chosen = [at for at, each in enumerate(together) if each == group_id]
            rows = np.unique([pairs[at] for at in chosen])
            rows = np.flatnonzero(ids == group_id) if self._sees_lists else rows
            features = dense(X[rows])
            self._prepared(features, np.zeros(len(rows), np.int64))  # refuses missing cells that training did not have
            places = [tuple(np.searchsorted(rows, pairs[at]).tolist()) for at in chosen]
            shown = (rows if names is None else names[rows]).tolist()
            for at, each in zip(chosen, explain_scorer(scorer, features, places, documents=shown), strict=True):
                explanations[at] = each
        return explanations[0] if one else explanations

    @staticmethod
    def _rows(which: tuple[str, Any], names: np.ndarray | None, documents: int) -> list[int]:
        """The rows of documents, given by row or name."""
        found = []
        for each in np.atleast_1d(np.asarray(which[1], object)).tolist():
            rows = [each]
            if isinstance(each, str):
                rows = [] if names is None else np.flatnonzero(names == each).tolist()
            if len(rows) != 1 or not isinstance(rows[0], int | np.integer) or not 0 <= rows[0] < documents:
                there = f"a row from 0 to {documents - 1}, or a name of docid= as text"
                raise ValueError(
                    f"{which[0]} must be {there}, got {each!r}" + (f" {len(rows)} times" if len(rows) > 1 else "")
                )
            found.append(int(rows[0]))
        return found

    def _scores(self, X: Any, qid: np.ndarray | None) -> np.ndarray:
        """`predict` for checked documents."""
        raise NotImplementedError


def as_plain(value: Any) -> Any:
    """A fitted module as plain data, see `from_plain`; anything else unchanged."""
    if not isinstance(value, nn.Module):
        return value
    arrays = {name: tensor.cpu().numpy() for name, tensor in value.state_dict().items()}
    return {"module": _with_arrays(describe_module(value)), "state": arrays}


def _with_arrays(value: Any) -> Any:
    """Plain data with tensors converted to arrays."""
    if isinstance(value, dict):
        return {name: _with_arrays(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_arrays(each) for each in value]
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else value


def from_plain(value: Any) -> Any:
    """The module that `as_plain` has converted; anything else unchanged."""
    if not (isinstance(value, dict) and value.keys() == {"module", "state"}):
        return value
    module = build_module(value["module"])
    state = {name: torch.tensor(array) for name, array in value["state"].items()}
    module.load_state_dict(state, assign=True)  # with their dtypes, whatever the default one is
    return module.eval()


def named_loss(loss: Any) -> nn.Module | None:
    """The loss of an estimator: a module, None, or the name of a loss, optionally with arguments.

    Raises:
        ValueError: anything else, such as an unknown name.

    >>> named_loss("ListNetLoss"), named_loss("ListNetLoss(target='gain')")
    (ListNetLoss(target=grade, reduction=mean), ListNetLoss(target=gain, reduction=mean))
    """
    if loss is None or isinstance(loss, nn.Module):
        return loss
    try:
        call = ast.parse(loss, mode="eval").body
        if not isinstance(call, ast.Call):
            call = ast.Call(call, [], [])
        given = [ast.literal_eval(each) for each in call.args]
        named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        found = getattr(losses, call.func.id)(*given, **named)  # type: ignore[attr-defined]
    except (SyntaxError, AttributeError, TypeError, ValueError) as error:
        name = str(loss).partition("(")[0].strip()
        known = [each for each in public_names(losses) if each.endswith("Loss")]
        if hasattr(losses, name):
            hint = f"; {error}"
        elif isinstance(loss, type):
            hint = f"; create an instance: {loss.__name__}()"
        else:
            hint = did_you_mean(name, known)
        raise ValueError(
            "loss must be a loss module such as rankstruct.RankSVMLoss(), or its name and arguments, such as "
            f"\"LambdaLoss('nDCG@10')\", got {loss!r}{hint}"
        ) from error
    if not isinstance(found, nn.Module):
        raise ValueError(f"loss must be the name of a rankstruct loss, got {loss!r}")
    return found


def usual_measure(labels: np.ndarray) -> str:
    """The measure where none is given: nDCG@10 for graded labels (several grades above 0), AP for binary ones.

    >>> usual_measure(np.array([0, 1, 2])), usual_measure(np.array([0, 1, 0]))
    ('nDCG@10', 'AP')
    """
    return "nDCG@10" if len(np.unique(labels[labels > 0])) > 1 else "AP"


def quantiles_of(grades: np.ndarray) -> list[float]:
    """The thresholds of a `GradedLoss` between grades, ascending: all but the lowest, or 8 quantiles of these.

    Grades that differ by rounding errors are one.

    >>> quantiles_of(np.array([0.0, 0.5, 2.0])), len(quantiles_of(np.arange(100.0)))
    ([0.5, 2.0], 8)
    """
    grades = grades.astype(np.float64)
    found = grades[1:][np.diff(grades) > 1e-6 * (grades[-1] - grades[0])]
    if len(found) > _MOST_GRADES:
        found = np.unique(np.quantile(found, np.linspace(0, 1, _MOST_GRADES)))
    return [float(each) for each in found]


def as_seed(random_state: RandomState) -> int:
    """The seed that an estimator's `random_state` is, or draws.

    Raises:
        ValueError: neither an integer from 0 nor None nor a random state of NumPy.

    >>> as_seed(3), as_seed(np.random.RandomState(0))
    (3, 209652396)
    """
    if isinstance(random_state, Integral) and not isinstance(random_state, bool) and random_state >= 0:
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31))
    raise ValueError(f"random_state must be an integer from 0, None or a random state of NumPy, got {random_state!r}")


def as_device(device: Any) -> torch.device:
    """The device of a name, the CPU if None; raises ValueError for an unknown one, and for a GPU if PyTorch finds none."""
    try:
        found = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device must be a PyTorch device, such as 'cpu' or 'cuda:0', got {device!r}") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r} was requested, but PyTorch finds no GPU; omit device")
    return found


def check_groups_of(loss: nn.Module, diversity_groups: Any) -> None:
    """Raise ValueError if the loss needs groups and there are none."""
    if takes_groups(loss) and diversity_groups is None:
        raise ValueError(f"{type(loss).__name__} needs diversity_groups=, {GROUPS}")


def measured(scores: Any, lists: TrainingData, measures: Sequence[Measure]) -> dict[str, np.ndarray]:
    """Values of the measures per list, for scores `[documents]`."""
    values = evaluate(scores, lists.labels, list(measures), offsets=lists.offsets, **lists.optional)
    return {name: each.numpy() for name, each in values.items()}


def check_labels(name: str, lists: TrainingData, measures: Sequence[Measure]) -> None:
    """Raise ValueError, before training, if a measure that is used after it does not accept the labels."""
    scores = -np.arange(len(lists.labels), dtype=np.float64)  # without ties, for which some measures have no value
    try:
        measured(scores, lists, measures)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def are_given(X_valid: Any, y_valid: Any, qid_valid: Any) -> bool:
    """Whether there are validation lists; raises ValueError if only some of the arguments are given."""
    given = [value is not None for value in (X_valid, y_valid, qid_valid)]
    if any(given) != all(given):
        raise ValueError("pass X_valid, y_valid and qid_valid together, all three or none")
    return any(given)
