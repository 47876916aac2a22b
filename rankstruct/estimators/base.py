"""Base class of the rankers: input checks, preparation, grouping of documents by list, scoring and serialisation."""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_array, check_random_state, check_X_y, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn
from typing_extensions import Self

from rankstruct import losses
from rankstruct._lazy import public_names
from rankstruct.arrays import LARGEST, as_array, as_numbers
from rankstruct.clicks import ClickLog
from rankstruct.columns import Columns, EncodedTable, as_table, check_same_names, say_once
from rankstruct.data import RankingData
from rankstruct.estimators.arguments import OF_METHODS, explaining, lacking, with_inherited
from rankstruct.estimators.from_clicks import find_documents, lists_of_log, weigh_clicks
from rankstruct.ids import group_documents, list_ids, numbered_ids
from rankstruct.losses import AdditiveRankLoss, takes_groups
from rankstruct.measures import Diverse, Measure, evaluate, parse_measure
from rankstruct.messages import did_you_mean
from rankstruct.models.saving import build_module, describe_module
from rankstruct.preparation import Preparation, encoded_first, has_missing, takes_sparse
from rankstruct.processes import Team
from rankstruct.roles import USUAL, columns_at, names_of, split_table
from rankstruct.solvers import RowsOf

__all__: list[str] = []

#: Seeds of estimators; None and random states of NumPy draw one in `fit`.
RandomState = int | np.random.RandomState | np.random.Generator | None

_COPIED = 2**26  # bytes of features up to which a copy is made; larger ones are gathered on each access
_DTYPES = [np.float64, np.float32, np.float16]  # used without conversion
FROM_CLICKS = "DCG@10"  # the measure where nothing else is given and labels are clicks
PREPARE = ("append-quantile", "standardize")  # where nothing else is given
ROUTING = (
    "inside GridSearchCV, cross_val_score and the like, turn routing on with sklearn.set_config(enable_metadata_routing=True) "
    "and pass fit(X, y, qid=qid, groups=qid) or params=dict(qid=qid, groups=qid), with cv=GroupKFold()"
)
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
    ...     print(vars(ranker))
    {'lists_': 3}
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


class Documents(NamedTuple):
    """Checked documents in any order, with their lists and, optionally, groups, list weights and item weights."""

    X: Any
    y: np.ndarray
    qid: np.ndarray
    diversity_groups: np.ndarray | None = None
    weights: np.ndarray | None = None
    item_weights: np.ndarray | None = None

    def rows(self, chosen: np.ndarray) -> Documents:
        """The documents selected by a mask; neighbouring ones are not copied."""
        if chosen.dtype == np.bool_ and chosen.any():
            first, last = int(chosen.argmax()), len(chosen) - int(chosen[::-1].argmax())
            chosen = slice(first, last) if chosen[first:last].all() else chosen  # type: ignore[assignment]
        return Documents(*(None if each is None else each[chosen] for each in self))  # type: ignore[arg-type]

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `fit`, other than the first three."""
        found = {
            "diversity_groups": self.diversity_groups,
            "sample_weight": self.weights,
            "item_weights": self.item_weights,
        }
        return {name: each for name, each in found.items() if each is not None}

    @property
    def as_validation(self) -> dict[str, Any]:
        """The arguments of `fit` for validation lists."""
        found = {"X_valid": self.X, "y_valid": self.y, "qid_valid": self.qid}
        more = {"diversity_groups_valid": self.diversity_groups, "item_weights_valid": self.item_weights}
        return found | {name: each for name, each in more.items() if each is not None}


class _Clicks(NamedTuple):
    """The arguments of `fit` for clicks."""

    position: Any = None
    propensity: Any = None
    clip: float | None = None
    docid: Any = None

    @property
    def given(self) -> bool:
        """Whether there are any."""
        return any(each is not None for each in self)

    def check(self, y: Any, group: Any, item_weights: Any) -> None:
        """Raise ValueError for other arguments that do not go with clicks."""
        if (self.given or isinstance(y, ClickLog)) and item_weights is not None:
            raise ValueError(
                "item_weights follow from clicks and propensity: omit them, or position, propensity and clip"
            )
        if isinstance(y, ClickLog) and not (self.position is None and group is None):
            raise ValueError("y is a log, which has positions and lists: omit position and group")


_NO_CLICKS = _Clicks()


class FlatLists(NamedTuple):
    """Documents grouped by list and, optionally, groups, list weights and item weights: the arguments of `ranking_risk`.

    All but the offsets may be tensors on a device; offsets are read by losses on the CPU.
    """

    X: Any
    labels: Any
    offsets: np.ndarray
    diversity_groups: Any = None
    weights: Any = None
    item_weights: Any = None

    @property
    def lengths(self) -> np.ndarray:
        """The number of documents of each list."""
        return np.diff(self.offsets)

    @property
    def optional(self) -> dict[str, Any]:
        """The columns that losses and measures take beyond labels, where there are any."""
        columns = {"diversity_groups": self.diversity_groups, "item_weights": self.item_weights}
        return {name: column for name, column in columns.items() if column is not None}

    def offsets_of(self, numbers: np.ndarray) -> np.ndarray:
        """The offsets of some lists, put one after the other."""
        return np.append(0, (self.offsets[numbers + 1] - self.offsets[numbers]).cumsum())

    def documents_of(self, numbers: np.ndarray) -> np.ndarray:
        """The rows of the documents of some lists, list by list."""
        offsets = self.offsets_of(numbers)
        return np.arange(offsets[-1]) + np.repeat(self.offsets[numbers] - offsets[:-1], np.diff(offsets))

    def rows(self, rows: np.ndarray, offsets: np.ndarray) -> FlatLists:
        """A selection or reordering of the documents, with its offsets."""
        diversity_groups, each = (
            None if given is None else given[rows] for given in (self.diversity_groups, self.item_weights)
        )
        # A copy is faster to compute with, but large features should not be held twice.
        large = self.X.ndim == 2 and not sp.issparse(self.X) and np.prod(self.X.shape) * self.X.dtype.itemsize > _COPIED
        X = RowsOf(self.X, np.arange(len(self.labels))[rows]) if large else self.X[rows]
        return FlatLists(X, self.labels[rows], offsets, diversity_groups, self.weights, each)


def bring_together(
    X: Any,
    y: np.ndarray,
    qid: np.ndarray,
    diversity_groups: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    item_weights: np.ndarray | None = None,
) -> FlatLists:
    """Group documents by list, without a copy if they are already grouped; `weights` has one value per document."""
    order, offsets = group_documents(qid)
    each = None if weights is None else (weights if order is None else weights[order])[offsets[:-1]]
    lists = FlatLists(X, y, offsets, diversity_groups, each, item_weights)
    return lists if order is None else lists.rows(order, offsets)


class Ranker(BaseEstimator):
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

    Attributes:
        measure_: `measure`, or where it is None, the measure of a loss over diverse rankings, and otherwise `usual_measure`.
        preparation_: the fitted preparation of raw features; `preparation_.columns` has the categories found in training.
        lists_: number of training lists.
        longest_list_: number of documents in the longest of them.
        propensities_: from clicks, the propensities used, `[ranks]` or `[documents]`; None otherwise.
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
    n_features_in_: int
    roles_: dict[str, str]
    #: Whether missing features and codes of categories reach the model itself, instead of the step "encode".
    takes_missing: bool = False
    #: Whether the ranking depends on the other documents of the list; without `qid`, all documents are one list.
    by_list: bool = False
    #: What to say of options of other libraries.
    other_options: ClassVar[Mapping[str, str]] = {}

    __metadata_request__fit: ClassVar[dict] = {"qid": True, "diversity_groups": True}
    __metadata_request__predict: ClassVar[dict] = {"qid": True}
    __metadata_request__score: ClassVar[dict] = {"qid": True, "diversity_groups": True, "sample_weight": True}

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
                CSR are used without a copy if the documents of each list are contiguous. Or `RankingData`, with its lists, groups
                and, unless `y` is passed, labels.
            y: `[documents]`, graded relevance, 0 or more; or the name of a column of the frame `X`, None to find it; or clicks.
            qid: `[documents]`, the list of each document: integers or strings; or a column, likewise. Without lists and `group`,
                all documents are one list, with a warning. Next to `docid`, their names, it finds those of a click log.
            group: `[lists]`, the sizes of consecutive lists, in place of `qid`; as in LightGBM.
            diversity_groups: `[documents]`, the group (host, topic) of each document, for a loss over diverse rankings.
            sample_weight: `[lists]`, the weight of each list's loss, in order of first appearance; or `[documents]`, equal within
                each list. 0 or more. Ignored by preparation and validation.
            item_weights: `[documents]`, the weight of each document in the loss of its list, 0 or more. Other weights than 1, and
                0, which removes documents, need a loss that accepts them. Ignored by preparation and validation.
            position, propensity, clip: for clicks, how they are corrected for the ranks; see the class.
            X_valid, y_valid, qid_valid: validation lists, used for selection as the class describes; or `X_valid` alone, of the
                kinds that have labels and lists. A warning says if in half of them the measure is the same for every ranking.
            diversity_groups_valid, item_weights_valid: their groups and weights, for the measure.

        Raises:
            ValueError: wrong shapes, values or options, such as a label below 0 or one that the measure does not accept, missing
                groups or validation lists, too few lists, validation lists of which every ranking is equally good, a loss that
                cannot be minimised here, or columns that are not found.
            TypeError: item weights other than 0 and 1, or clicks, with a loss that does not accept item weights; or X of a kind
                that is not a table.
        """
        lists = X_valid, y_valid, qid_valid, diversity_groups_valid, item_weights_valid
        with all_or_nothing(self):
            documents = _opened("X", X, y, qid, group, diversity_groups)
            clicks = _Clicks(position, propensity, clip, docid)
            stopped = self._fit(*self._taken(*documents, group, sample_weight, item_weights, clicks, lists))
        if stopped:
            raise KeyboardInterrupt(stopped)
        return self

    def _taken(
        self,
        X: Any,
        y: Any,
        qid: Any,
        diversity_groups: Any,
        group: Any,
        sample_weight: Any,
        item_weights: Any,
        clicks: _Clicks,
        lists: Sequence[Any],
    ) -> tuple[Documents, Documents | None]:
        """Checked training documents, and validation documents from the arguments of `fit`, if there are any."""
        X, y, qid, position, docid = self._take_columns(X, y, qid, group, clicks.position, clicks.docid)
        clicks = clicks._replace(position=position, docid=docid)
        y, qid, sample_weight, item_weights = self._take_log(X, y, qid, group, sample_weight, item_weights, clicks)
        clicks = clicks._replace(docid=None)  # which only finds the documents of a log
        valid = self._take_valid(names_of(X), *lists)
        self._check_fit_options(valid is not None)
        train = self._train_documents(X, y, qid, group, diversity_groups, sample_weight, item_weights, clicks)
        return train, None if valid is None else self._valid_documents(*valid)

    def _take_valid(
        self,
        features: Sequence[str],
        X: Any,
        y: Any,
        qid: Any,
        diversity_groups: Any,
        item_weights: Any,
    ) -> tuple[Any, ...] | None:
        """Features, labels, lists, groups and weights of validation documents; `features` are those of training."""
        X, y, qid, diversity_groups = _opened("X_valid", X, y, qid, None, diversity_groups)
        if isinstance(y, ClickLog):
            X, y, qid, item_weights = self._take_valid_log(X, y, qid, features)
        lists = self._divide(X, y, qid, features=features)
        given = are_given(*lists)
        self._check_valid(given, diversity_groups, item_weights)
        return (*lists, diversity_groups, item_weights) if given else None

    def _take_log(
        self, X: Any, y: Any, qid: Any, group: Any, sample_weight: Any, item_weights: Any, clicks: _Clicks
    ) -> tuple[Any, Any, Any, Any]:
        """Labels, lists and weights, of a log if `y` is one; sets `propensities_`."""
        clicks.check(y, group, item_weights)
        self.propensities_ = None
        if not isinstance(y, ClickLog):
            return y, qid, sample_weight, item_weights
        found = lists_of_log(find_documents(y, X, qid, clicks.docid), clicks.propensity, clicks.clip)
        self.propensities_ = found.propensities
        weights = found.sample_weight if sample_weight is None else sample_weight
        return found.labels, found.qid, weights, found.item_weights

    def _take_valid_log(self, X: Any, log: ClickLog, qid: Any, features: Sequence[str]) -> tuple[Any, Any, Any, Any]:
        """Features, labels, lists and item weights of the validation documents of a log."""
        if self.propensities_ is None:
            raise ValueError("y_valid is a log, whose propensities are those of training, so y must be one too")
        parts = split_table(X, None, qid, by_names=True, features=features, known=self.roles_)
        log = find_documents(log, parts.X, parts.qid, parts.docid, "_valid")
        found = lists_of_log(log, self.propensities_, None)
        return parts.X, found.labels, found.qid, found.item_weights

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
        if not found.caller_named:
            said = {"label": "labels", "qid": "lists", "docid": "names of documents", "position": "positions"}
            shown = ", ".join(f"{name!r} ({said[role]})" for role, name in found.roles.items())
            say_once(f"columns that are not features: {shown}")
        return found.X, found.y if log is None else log, found.qid, found.position, found.docid

    def _divide(
        self, X: Any, y: Any, qid: Any, group: Any = None, features: Sequence[str] | None = None
    ) -> tuple[Any, Any, Any]:
        """Features, labels and lists of other documents, with the columns of training; `features` are those of training."""
        if features is None:
            features = getattr(self, "feature_names_in_", ())
        known = getattr(self, "roles_", {})  # not stored by earlier versions
        if not len(features):  # fitted to an array
            features = [name for name in names_of(X) if name not in known.values()]
        return split_table(X, y, qid, has_sizes=group is not None, features=features, known=known)[:3]

    def _valid_documents(self, X: Any, y: Any, qid: Any, diversity_groups: Any, item_weights: Any) -> Documents:
        features, labels = self._check(X, reset=False), check_column("y_valid", y)
        valid = Documents(features, labels, *check_ids(features, qid, diversity_groups))
        if item_weights is not None:
            valid = valid._replace(item_weights=check_item_weights(item_weights, len(valid.qid), "item_weights_valid"))
        if labels.shape != valid.qid.shape:
            raise ValueError(f"y_valid must have one label per document, shape {valid.qid.shape}, got {labels.shape}")
        self._check_judged("y_valid", valid)
        return valid

    def _check_judged(self, name: str, valid: Documents, rest: Documents | None = None) -> None:
        """Raise ValueError if the measure does not accept the labels of validation lists, or is the same for every ranking of
        each of them, so that nothing could be selected; warn if this holds for half of them.

        Of lists that were held out, the latter is an error only if `rest`, from which they were taken, has better ones.
        """
        measure = self._measure()
        same, lists = map(self._total, self._undecided(name, valid))
        told = f"{measure.name} is the same for every ranking, such as where all labels are equal"
        if 0 < lists == same:
            others = None if rest is None or lists == 1 else self._undecided(name, rest)
            if rest is None or (others is not None and others[0] < others[1]):
                raise ValueError(
                    f"{name}: in each of the {lists} validation lists {told}, so they cannot select a model; pass validation "
                    "lists with documents to tell apart"
                )
        elif 2 * same >= lists > 0:
            warnings.warn(f"in {same} of {lists} validation lists {told}; the others select the model", stacklevel=5)

    def _undecided(self, name: str, documents: Documents) -> tuple[int, int]:
        """The number of lists for which the measure is the same for every ranking, and of all lists."""
        gains = documents.y if documents.item_weights is None else documents.y * documents.item_weights
        best = np.argsort(np.argsort(gains, kind="stable")).astype(
            float
        )  # no ties: some measures have no value for them
        measure = self._measure()
        try:
            highest, lowest = (measured(scores, documents, [measure])[measure.name] for scores in (best, -best))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        return 0 if measure.takes_groups else int((highest == lowest).sum()), len(highest)

    def _train_documents(
        self,
        X: Any,
        y: Any,
        qid: Any,
        group: Any,
        diversity_groups: Any,
        sample_weight: Any,
        item_weights: Any,
        clicks: _Clicks = _NO_CLICKS,
    ) -> Documents:
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
                stacklevel=5,
            )
        ids, diversity_groups = check_ids(
            X, list_ids(X.shape[0], qid, group, np.zeros(len(y), np.int64)), diversity_groups
        )
        _warn_of_swap(y, ids, "fit")
        if clicks.given and self.propensities_ is None:
            y, item_weights, self.propensities_ = weigh_clicks(y, ids, clicks.position, clicks.propensity, clicks.clip)
        found = Documents(X, y, ids, diversity_groups, _document_weights(sample_weight, ids))
        if item_weights is not None:
            found = self._with_item_weights(found, check_item_weights(item_weights, len(y)))
        self._begin(found)
        return found

    def _begin(self, train: Documents) -> None:
        """Set what depends on the lists and labels alone."""
        lengths = np.unique(train.qid, return_counts=True)[1]
        self.lists_, self.longest_list_ = len(lengths), int(lengths.max())
        own = self.measure if self.measure is not None else self._measure_of_loss()
        usual = FROM_CLICKS if self.from_clicks else usual_measure(self._grades(train.y))
        self.measure_ = usual if own is None else own
        self._warn_of_indifference(train)

    def _warn_of_indifference(self, train: Documents) -> None:
        """Warn of labels that the measure hardly tells apart: all above 0 for AP, or with one gain far above all others."""
        measure = self._measure()
        if not len(train.y) or measure.takes_groups:
            return
        with suppress(ValueError):  # of labels that only `score` would refuse
            evaluate(
                np.zeros(1), train.y[[train.y.argmax()]], [measure], qid=[0]
            )  # warns of a gain that outweighs all others
        if train.y.min() <= 0:
            return
        best, worst = (
            evaluate(scores, train.y, [measure], qid=train.qid)[measure.name] for scores in (train.y, -train.y)
        )
        if (train.y != train.y[0]).any() and bool((best == worst).all()):
            warnings.warn(
                f"no label is 0, so {measure.name} has the same value for every ranking: use a graded measure, such as 'nDCG', "
                "or one with min_relevant=, or shift the labels to start at 0",
                stacklevel=7,
            )

    def _with_item_weights(self, documents: Documents, item_weights: np.ndarray) -> Documents:
        """Drop documents of weight 0; the others have no weights if all are 1."""
        kept = item_weights > 0
        if not kept.any():
            raise ValueError("item_weights must not be zero for all documents")
        documents = documents._replace(item_weights=None if (item_weights[kept] == 1).all() else item_weights)
        return documents if kept.all() else documents.rows(kept)

    def _check_fit_options(self, has_validation: bool) -> None:
        """Raise ValueError for a wrong option, before any work."""

    def _fit(self, train: Documents, valid: Documents | None) -> str | None:
        """Train on checked documents; returns what to say if Ctrl-C ended it early with a whole model, which is then kept."""
        raise NotImplementedError

    def _check(self, X: Any, *y: Any, reset: bool) -> Any:
        # A single document cannot be ranked, but may be one process's share.
        least = 1 if getattr(self, "distributed", False) else 2
        labels: dict[str, Any] = {"y": y[0], "y_numeric": True, "ensure_min_samples": least} if y else {}
        if y and y[0] is not None and not sp.issparse(y[0]):
            labels["y"] = _labels("y", y[0])
        if hasattr(X, "detach") or isinstance(X, np.ma.MaskedArray):
            X = as_array("X", X)
        if len(getattr(X, "shape", (0, 0))) == 1:
            raise ValueError(
                f"X must have shape [documents, d], got {tuple(X.shape)}. Reshape your data: one feature is X.reshape(-1, 1), or "
                "a data frame of one column; one document is X.reshape(1, -1)"
            )
        X = self._by_name(X, reset)
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
            X = (
                X.select(expected)
                if isinstance(X, EncodedTable)
                else columns_at(X, [names.index(name) for name in expected])
            )
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
            found = Columns.find(X) if self._takes_tables() else None
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

    def _fit_preparation(self, X: Any, qid: np.ndarray) -> Any:
        """Fit the preparation and return the prepared training documents."""
        raw = Preparation(columns=self.preparation_.columns)
        steps = list(self.steps(X))
        if not self.takes_missing or steps:
            needed = encoded_first(steps, X, raw.columns)
            if needed != steps and has_missing(X):
                number = int(np.isnan(dense(X)).any(axis=0).sum())
                say_once(
                    f"missing values in {number} of {X.shape[1]} columns: each gets an indicator, and numbers are replaced by "
                    "the median (the step 'encode', put in front of prepare=)"
                )
            steps = needed
        self.preparation_ = raw
        if not steps:
            return X
        order, offsets = group_documents(qid)
        self.preparation_, found = Preparation.fit_transform(steps, X if order is None else X[order], offsets, raw)
        return found if order is None else found[np.argsort(order)]

    def _prepared(self, X: Any, qid: Any) -> Any:
        """Prepared documents; `qid` may be None if no step depends on the lists."""
        if not (self.takes_missing or self.preparation_.encodes) and has_missing(X):
            at = np.flatnonzero(np.isnan(dense(X)).any(axis=0))[:5]
            names = getattr(self, "feature_names_in_", np.arange(X.shape[1]))[at].tolist()
            raise ValueError(
                f"X has missing values, in the columns {', '.join(map(repr, names))}, and the training documents had none; put "
                "the step 'encode' in front of prepare= to replace them by the median of the training documents"
            )
        if not self.preparation_.by_list or qid is None:
            return self.preparation_.transform(X)
        order, offsets = group_documents(qid)
        if order is None:
            return self.preparation_.transform(X, offsets)
        return self.preparation_.transform(X[order], offsets)[np.argsort(order)]

    def prepend(self, preparation: Preparation) -> Self:
        """Let a ranker that was fitted to prepared documents accept raw ones; returns the ranker itself."""
        self.preparation_ = preparation.then(self.preparation_)
        self.prepare = list(self.preparation_.names)
        self.n_features_in_ = self.preparation_.num_features or self.n_features_in_
        return self

    def _training_lists(
        self,
        X: Any,
        y: np.ndarray,
        qid: np.ndarray,
        diversity_groups: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        item_weights: np.ndarray | None = None,
    ) -> FlatLists:
        """Documents grouped by list, without empty lists; the mean weight of the others is 1."""
        lists = bring_together(X, y, qid, diversity_groups, weights, item_weights)
        lists = self._without_empty(lists) if self.drop_empty else lists
        if lists.weights is None:
            return lists
        total, number = self._total(float(lists.weights.sum())), self._total(len(lists.weights))
        if not total:
            raise ValueError("sample_weight must not be zero for all lists that have different labels")
        return lists._replace(weights=lists.weights * (number / total))

    def _without_empty(self, lists: FlatLists) -> FlatLists:
        starts, lengths = lists.offsets[:-1], np.diff(lists.offsets)
        # A list of which everything was clicked does not tie everything: its documents compete.
        lowest = 0 if self.from_clicks else np.minimum.reduceat(lists.labels, starts)
        kept = lowest < np.maximum.reduceat(lists.labels, starts)
        if not self._total(int(kept.sum())):
            raise ValueError(f"no list can be learned from: in each of {len(kept)} all labels are equal")
        if kept.all():
            return lists
        weights = None if lists.weights is None else lists.weights[kept]
        offsets = np.concatenate([[0], np.cumsum(lengths[kept])])
        return lists._replace(weights=weights).rows(np.repeat(kept, lengths), offsets)

    def _measure(self, labels: np.ndarray | None = None) -> Measure:
        """The measure that selects; `labels` decide if it is None and the ranker was not fitted."""
        own = self.measure if self.measure is not None else self._measure_of_loss()
        if own is None:
            own = getattr(self, "measure_", None) or ("AP" if labels is None else usual_measure(labels))
        return parse_measure(own)

    def _grades(self, labels: np.ndarray) -> np.ndarray:
        """The different labels of all processes."""
        return np.unique(np.concatenate(self._team().gathered(np.unique(labels))))

    def _measure_of_loss(self) -> Diverse | None:
        measure = getattr(named_loss(self.loss), "measure", None)
        return measure if isinstance(measure, Diverse) else None

    def _check_valid(self, given: bool, diversity_groups_valid: Any, item_weights_valid: Any) -> None:
        if item_weights_valid is not None and not given:
            raise ValueError("item_weights_valid needs X_valid, y_valid and qid_valid; pass them too or omit it")
        if diversity_groups_valid is not None and not given:
            raise ValueError("diversity_groups_valid needs X_valid, y_valid and qid_valid; pass them too or omit it")
        if given and diversity_groups_valid is None and self._measure().takes_groups:
            raise ValueError(
                f"{self._measure().name} needs diversity_groups_valid=, one id per validation document: its host or topic"
            )

    @property
    def from_clicks(self) -> bool:
        """Whether the ranker is, or was, fitted to clicks."""
        return getattr(self, "propensities_", None) is not None

    def _loss(self, usual: Callable[[], nn.Module]) -> nn.Module:
        """A copy of `loss`, or where it is None the usual loss, `AdditiveRankLoss` from clicks."""
        loss = copy.deepcopy(named_loss(self.loss))
        return loss if loss is not None else AdditiveRankLoss() if self.from_clicks else usual()

    def _team(self) -> Team:
        """The processes that fit one ranker."""
        return Team()

    def _total(self, value: Any) -> Any:
        """The sum of a number over the processes."""
        return type(value)(self._team().sum(np.array([value], float))[0])

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
        X, y, qid, diversity_groups = _opened("X", X, y, qid, group, diversity_groups)
        X, y, qid = self._divide(X, y, qid, group)
        if y is None:
            raise ValueError(
                "y is missing: pass the labels, [documents], or the name of their column in the data frame X"
            )
        checked = self._check(X, reset=False)
        one = np.zeros(checked.shape[0], np.int64) if getattr(self, "lists_", 2) == 1 else None
        if qid is None and group is None and one is None:
            raise ValueError(
                f"qid is missing, but the ranker was fitted to {getattr(self, 'lists_', 'several')} lists: pass qid=, one id per "
                f"document, or group=, the sizes of the lists; {ROUTING}"
            )
        ids, diversity_groups = check_ids(checked, list_ids(checked.shape[0], qid, group, one), diversity_groups)
        each_weight = None if item_weights is None else check_item_weights(item_weights, len(ids))
        y = check_column("y", y)
        _warn_of_swap(y, ids, "score")
        values = self._values(Documents(checked, y, ids, diversity_groups, item_weights=each_weight))
        weights = _document_weights(sample_weight, ids)
        if weights is None:
            return float(values.mean())
        each = bring_together(ids, ids, ids, None, weights).weights
        return float(np.average(values.numpy(), weights=each))

    def _values(self, documents: Documents) -> torch.Tensor:
        """The measure of each list."""
        measure = self._measure(documents.y)
        if measure.takes_groups and documents.diversity_groups is None:
            raise ValueError(f"{measure.name} needs diversity_groups=, {GROUPS}")
        return torch.from_numpy(measured(self._scores(documents.X, documents.qid), documents, [measure])[measure.name])

    @_explaining
    def predict(self, X: Any, qid: Any = None, *, group: Any = None) -> np.ndarray:
        """Return scores `[documents]`, float64: higher is better, comparable within a list.

        The lists, passed as in `fit`, are needed if a step of `prepare` depends on complete lists. An ensemble standardises
        scores within each list, and an MLP with `context=` compares its documents; without lists they treat all documents as
        one, if they are not more than the longest training list has; otherwise an ensemble warns, and an MLP raises ValueError.
        """
        check_is_fitted(self)
        X, _, qid, _ = _opened("X", X, None, qid, group)
        X, _, qid = self._divide(X, None, qid, group)
        X = self._check(X, reset=False)
        ids = None if qid is None and group is None else check_ids(X, list_ids(X.shape[0], qid, group), None)[0]
        longest = getattr(self, "longest_list_", X.shape[0])  # not stored by earlier versions
        if ids is None and self.by_list and X.shape[0] > longest:
            self._score_as_one_list(X.shape[0], longest)
        return self._scores(X, ids)

    def _score_as_one_list(self, documents: int, longest: int) -> None:
        """Warn that all documents are one list, although no training list has more than `longest`."""
        warnings.warn(
            f"qid is missing, so all {documents} documents are scored as one list, although no training list has more than "
            f"{longest}; the scores of an ensemble depend on the lists: pass qid=, one id per document, or group=, the sizes "
            f"of the lists (group=[{documents}] for one list)",
            stacklevel=4,
        )

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
    module.load_state_dict({name: torch.tensor(array) for name, array in value["state"].items()})
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


def is_number(value: Any, least: float) -> bool:
    """Whether an option is a number of at least `least`.

    >>> is_number(3, 1), is_number("3", 1), is_number(float("nan"), 0)
    (True, False, False)
    """
    if isinstance(value, Integral) and abs(int(value)) > LARGEST:  # which may be more than a float
        return False
    return isinstance(value, Real) and float(value) >= least


def check_groups_of(loss: nn.Module, diversity_groups: Any) -> None:
    """Raise ValueError if the loss needs groups and there are none."""
    if takes_groups(loss) and diversity_groups is None:
        raise ValueError(f"{type(loss).__name__} needs diversity_groups=, {GROUPS}")


def measured(scores: Any, documents: Documents, measures: Sequence[Measure]) -> dict[str, np.ndarray]:
    """Values of the measures per list, for scores `[documents]`."""
    given: dict[str, Any] = {"diversity_groups": documents.diversity_groups, "item_weights": documents.item_weights}
    found = evaluate(scores, documents.y, list(measures), qid=documents.qid, **given)
    return {name: values.numpy() for name, values in found.items()}


def check_labels(name: str, documents: Documents, measures: Sequence[Measure]) -> None:
    """Raise ValueError, before training, if a measure that is used after it does not accept the labels."""
    scores = -np.arange(len(documents.y), dtype=np.float64)  # without ties, for which some measures have no value
    try:
        measured(scores, documents, measures)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def are_given(X_valid: Any, y_valid: Any, qid_valid: Any) -> bool:
    """Whether there are validation lists; raises ValueError if only some of the arguments are given."""
    given = [value is not None for value in (X_valid, y_valid, qid_valid)]
    if any(given) != all(given):
        raise ValueError("pass X_valid, y_valid and qid_valid together, all three or none")
    return any(given)


def _document_weights(sample_weight: Any, qid: np.ndarray) -> np.ndarray | None:
    """The weight of each document's list, from one weight per list or one per document."""
    if sample_weight is None:
        return None
    weights = as_numbers("sample_weight", sample_weight).astype(np.float64)
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError("sample_weight must be finite numbers, 0 or more")
    _, first, of_row = np.unique(qid, return_index=True, return_inverse=True)
    if weights.shape == first.shape:
        by_appearance = np.argsort(np.argsort(first, kind="stable"), kind="stable")
        weights = weights[by_appearance][of_row]
    if weights.shape != qid.shape or not np.array_equal(weights, weights[first][of_row]):
        raise ValueError(
            f"sample_weight must have one weight per list, shape ({len(first)},), or one per document, equal within each list; "
            f"got shape {weights.shape} (pass weights of single documents as item_weights)"
        )
    if not weights.any():
        raise ValueError("sample_weight must not be zero for all lists")
    return weights


def check_item_weights(item_weights: Any, documents: int | None = None, name: str = "item_weights") -> np.ndarray:
    """Weights `[documents]`, float64; raises ValueError if they are invalid."""
    weights = as_numbers(name, item_weights).astype(np.float64)
    if weights.ndim != 1 or documents not in (None, len(weights)):
        raise ValueError(
            f"{name} must have one weight per document, shape ({documents or 'documents'},); got {weights.shape}"
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"{name} must be finite numbers, 0 or more")
    return weights


def _labels(name: str, y: Any) -> np.ndarray:
    """Labels as numbers, in any shape; raises ValueError for words, and for one that is not finite, with its row."""
    found = as_array(name, y)
    words = [each for each in found.flat[:1] if isinstance(each, str)]
    if words:
        raise ValueError(f"labels must be numbers, graded relevance from 0; got {str(words[0])!r} in {name}")
    if found.dtype.kind == "c":  # which scikit-learn refuses
        return found
    found = as_numbers(name, found)
    wrong = ~np.isfinite(found).ravel() if found.dtype.kind == "f" else np.zeros(0, bool)
    if wrong.any():
        at = int(wrong.argmax())
        kind = "NaN" if np.isnan(found.flat[at]) else f"infinity or a value too large for dtype({str(found.dtype)!r})"
        row = at // (found.size // len(found))
        raise ValueError(f"Input {name} contains {kind}: labels must be finite numbers; that of document {row} is not")
    return found


def check_column(name: str, y: Any) -> np.ndarray:
    """Labels as numbers; `[documents, 1]` becomes `[documents]`, with scikit-learn's warning."""
    found: np.ndarray = _labels(name, y)
    return column_or_1d(found, warn=True) if found.ndim == 2 and found.shape[1] == 1 else found


def _opened(
    name: str, X: Any, y: Any = None, qid: Any = None, group: Any = None, diversity_groups: Any = None
) -> tuple[Any, Any, Any, Any]:
    """Features, labels, lists and groups: those of `RankingData`; other features that are not a table are refused."""
    if not isinstance(X, RankingData):
        return as_table(name, X), y, qid, diversity_groups
    if qid is not None or group is not None:
        raise ValueError(f"{name} is RankingData, which has lists: omit qid and group")
    own = X.diversity_groups if diversity_groups is None else diversity_groups
    return X.table, X.labels if y is None else y, X.list_numbers, own


def _warn_of_swap(y: np.ndarray, qid: np.ndarray, call: str) -> None:
    """Warn if labels look like lists and lists like labels: only the rows of each label, whole numbers, are contiguous."""
    blocks, scattered = (1 + int((each[1:] != each[:-1]).sum()) for each in (y, qid))
    if blocks >= scattered or (y % 1).any():  # nearly always, at little cost
        return
    labels, lists = (np.unique(each) for each in (y, qid))
    if blocks == len(labels) > len(lists) > 1 and scattered > len(lists):
        warnings.warn(
            f"y has {len(labels)} labels, each in contiguous rows, and the {len(lists)} lists of qid are scattered over the "
            f"rows: are they swapped? The order is {call}(X, y, qid)",
            stacklevel=6 if call == "fit" else 4,
        )


def dense(X: Any) -> np.ndarray:
    """Features as a dense array."""
    return X.toarray() if sp.issparse(X) else X


def check_ids(X: Any, qid: Any, diversity_groups: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """`qid` unchanged, numbers or strings, and the groups as int64 or None; both `[documents]`."""
    if qid is None:
        raise ValueError(
            f"qid is missing: pass the list of each document, [documents], or group=, the sizes of the lists; {ROUTING}"
        )
    found: list[np.ndarray] = []
    for name, given in (("qid", qid), *([] if diversity_groups is None else [("diversity_groups", diversity_groups)])):
        ids = numbered_ids(name, given)
        if ids.shape != np.shape(X)[:1]:
            sizes = "; pass sizes of lists as group=" if name == "qid" else ""
            sizes = f"; pass {name}.ravel()" if ids.shape == (*np.shape(X)[:1], 1) else sizes
            raise ValueError(
                f"{name} must have one entry per document, shape {np.shape(X)[:1]}; got {ids.shape}{sizes}"
            )
        found.append(ids)
    return found[0], None if diversity_groups is None else np.unique(found[1], return_inverse=True)[1].astype(np.int64)
