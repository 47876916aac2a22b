"""What rankers share: documents checked, prepared and brought together by list; scores measured; a state of plain data."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn
from typing_extensions import Self

from rankstruct import losses
from rankstruct._lazy import public_names
from rankstruct.arrays import as_array, as_numbers
from rankstruct.lists import group_documents, ids_of_sizes, list_ids, numbered_ids, refuse_other_names, refusing
from rankstruct.losses import takes_groups
from rankstruct.measures import AP, Diverse, Measure, evaluate, parse_measure
from rankstruct.messages import did_you_mean
from rankstruct.models.saving import build_module, describe_module
from rankstruct.preparation import Preparation, takes_sparse
from rankstruct.processes import Team
from rankstruct.solvers import RowsOf

__all__: list[str] = []

_COPIED = 2**26  # bytes of features that are copied rather than gathered again and again
_DTYPES = [np.float64, np.float32, np.float16]  # what is used as it comes
ROUTING = (
    "inside GridSearchCV, cross_val_score and the like, turn routing on with sklearn.set_config(enable_metadata_routing=True) "
    "and pass fit(X, y, qid=qid, groups=qid) or params=dict(qid=qid, groups=qid), with cv=GroupKFold()"
)
GROUPS = (
    "one id a document: its host or topic; inside GridSearchCV and the like, where groups= is the splitter's, ask for them under "
    "another name, ranker.set_fit_request(groups='hosts').set_score_request(groups='hosts'), and pass fit(..., hosts=hosts)"
)

_CHOSEN = "the ranker's first argument chooses, stops and scores by itself, such as BoostedRanker('nDCG@10')"
#: What `fit` takes in LightGBM and XGBoost.
_OTHER_NAMES = {
    **{name: f"there is no {name}=; {_CHOSEN}" for name in ("eval_at", "eval_metric", "eval_names")},
    **{
        name: f"there is no {name}=; rankers that stop early have patience=, as BoostedRanker(patience=50)"
        for name in ("early_stopping_rounds", "callbacks")
    },
    "verbose": "there is no verbose= of fit; the ranker takes it, as BoostedRanker(verbose=True)",
}


def _refuse_own_columns(X: Any, given: dict[str, Any]) -> None:
    """Raise ValueError where a frame of features still has a column that is given by itself: labels, or the lists' ids."""
    for what, values in given.items():
        name = getattr(values, "name", None)
        named = name is not None and name in getattr(X, "columns", ()) and len(values) == len(X)
        if named and np.array_equal(np.asarray(X[name]), np.asarray(values)):
            raise ValueError(
                f"X has the {what} among its features, as column {name!r}: leave it out, X.drop(columns={name!r})"
            )


class Documents(NamedTuple):
    """Documents as they were checked, in any order, each with its list; group, weight of the list and own weight if there are."""

    X: Any
    y: np.ndarray
    qid: np.ndarray
    groups: np.ndarray | None = None
    weights: np.ndarray | None = None
    item_weights: np.ndarray | None = None

    def rows(self, chosen: np.ndarray) -> Documents:
        """Those of a mask."""
        return Documents(*(None if each is None else each[chosen] for each in self))  # type: ignore[arg-type]

    @property
    def options(self) -> dict[str, Any]:
        """What `fit` is called with by name beside the first three."""
        found = {"groups": self.groups, "sample_weight": self.weights, "item_weights": self.item_weights}
        return {name: each for name, each in found.items() if each is not None}

    @property
    def as_validation(self) -> dict[str, Any]:
        """The arguments of `fit` for validation lists."""
        names = ("X_valid", "y_valid", "qid_valid", *(() if self.groups is None else ("groups_valid",)))
        return dict(zip(names, self, strict=False))


class Lists(NamedTuple):
    """What `ranking_risk` takes: documents of each list side by side; groups, the lists' weights and the documents' if any."""

    X: Any
    labels: np.ndarray
    offsets: np.ndarray
    groups: np.ndarray | None
    weights: np.ndarray | None = None
    item_weights: np.ndarray | None = None

    def rows(self, rows: np.ndarray, offsets: np.ndarray) -> Lists:
        """Some documents, or all in another order, which have other offsets."""
        groups, each = (None if given is None else given[rows] for given in (self.groups, self.item_weights))
        # A copy is faster to compute with, but of large features there is not to be a second one.
        large = self.X.ndim == 2 and not sp.issparse(self.X) and np.prod(self.X.shape) * self.X.dtype.itemsize > _COPIED
        X = RowsOf(self.X, np.arange(len(self.labels))[rows]) if large else self.X[rows]
        return Lists(X, self.labels[rows], offsets, groups, self.weights, each)


def bring_together(
    X: Any,
    y: np.ndarray,
    qid: np.ndarray,
    groups: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    item_weights: np.ndarray | None = None,
) -> Lists:
    """The documents of each list side by side, without a copy where they are already; `weights` one a document."""
    order, offsets = group_documents(qid)
    each = None if weights is None else (weights if order is None else weights[order])[offsets[:-1]]
    lists = Lists(X, y, offsets, groups, each, item_weights)
    return lists if order is None else lists.rows(order, offsets)


class Ranker(BaseEstimator):
    """A ranker with the conventions of scikit-learn; those of one's own have `measure`, `loss`, `prepare` and `drop_empty`.

    `fit` takes lists as `qid`, one id a document, or as `group`, the sizes of lists that stand one behind the other. Missing
    features (NaN) are an error, unless the class says that it takes them.

    Attributes:
        preparation_: what raw features go through, as fitted.
        lists_: how many lists there were to be fitted to.
        longest_list_: how many documents the longest of them has.
        n_features_in_: how many features a raw document has.
        feature_names_in_: their names, where `fit` was given a frame.
    """

    measure: str | Measure | None
    loss: str | nn.Module | None
    prepare: Sequence[str]
    drop_empty: bool
    validation_share: float
    random_state: int
    preparation_: Preparation
    lists_: int
    longest_list_: int
    n_features_in_: int
    #: What features may be: `ensure_all_finite` of `sklearn.utils.validation.validate_data`.
    finite: bool | str = True
    #: Whether the order of documents depends on which ones are in their list, all of them where nobody says.
    by_list: ClassVar[bool] = False

    # The splitter's groups are lists, ours are hosts.
    __metadata_request__fit: ClassVar[dict] = {"qid": True, "groups": False}
    __metadata_request__predict: ClassVar[dict] = {"qid": True}
    __metadata_request__score: ClassVar[dict] = {"qid": True, "groups": False, "sample_weight": True}

    def __getstate__(self) -> dict[str, Any]:
        """Modules that were fitted as plain data, which others than pickle can write too."""
        state = super().__getstate__()
        return {name: _as_plain(value) if name.endswith("_") else value for name, value in state.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Build them again; a ranker of an earlier version has no preparation."""
        found = {name: _from_plain(value) if name.endswith("_") else value for name, value in state.items()}
        super().__setstate__({"prepare": ()} | found)
        if hasattr(self, "n_features_in_") and not hasattr(self, "preparation_"):
            self.preparation_ = Preparation()

    def __sklearn_tags__(self) -> Tags:
        """Labels are required and 0 or more; which features are taken."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.positive_only = True
        tags.input_tags.sparse = self._takes_sparse()
        tags.input_tags.allow_nan = self.finite == "allow-nan"
        return tags

    def _takes_sparse(self) -> bool:
        """Whether features may be sparse."""
        return takes_sparse(self.prepare)

    @refusing(lambda given: refuse_other_names(given, _OTHER_NAMES))
    def fit(
        self,
        X: Any,
        y: Any,
        qid: Any = None,
        *,
        group: Any = None,
        groups: Any = None,
        sample_weight: Any = None,
        item_weights: Any = None,
        X_valid: Any = None,
        y_valid: Any = None,
        qid_valid: Any = None,
        groups_valid: Any = None,
        eval_set: Any = None,
        eval_group: Any = None,
        eval_qid: Any = None,
    ) -> Self:
        """Train.

        Args:
            X: `[documents, d]`, an array, a DataFrame or a SciPy sparse matrix; float32 and CSR are used without a copy where
                the documents of each list are neighbours.
            y: `[documents]`, graded relevance, 0 or more.
            qid: `[documents]`, the list of each document: integers or strings. Without it and `group` all documents are one list,
                which is warned of.
            group: `[lists]`, the sizes of the lists, which stand one behind the other, in place of `qid`; as for LightGBM.
            groups: `[documents]`, the group (host, topic) of each document, integers or strings, for a loss over diverse
                rankings; others do not look at them.
            sample_weight: `[lists]`, how much the loss of each list counts, in the order in which the lists appear; or
                `[documents]`, the same for all documents of a list. 0 or more. Preparation and validation do not look at it.
            item_weights: `[documents]`, how much each document counts in the loss of its list, such as one over the chance that
                it was seen; 0 or more. Documents of weight 0 are left out, at once; 1 changes nothing. Other weights are for
                losses that take them, pairwise, listwise and pointwise ones mostly. Preparation and validation do not look.
            X_valid: documents of the validation lists, which choose what the class says.
            y_valid: their labels.
            qid_valid: their lists.
            groups_valid: their groups, for a measure of diversity.
            eval_set: `[(X_valid, y_valid)]`, and with it `eval_group`, `[sizes]`, or `eval_qid`, `[qid_valid]`: the same as
                LightGBM's users write it. One pair.
            eval_group: see `eval_set`.
            eval_qid: see `eval_set`.

        Raises:
            ValueError: wrong shapes, values or options, such as a label below 0, groups or validation lists that are missing, too
                few lists, or a loss that cannot be minimised here.
            TypeError: item weights other than 0 and 1, and a loss that takes none.
        """
        given = _validation(X_valid, y_valid, qid_valid, eval_set, eval_group, eval_qid)
        self._check_groups_valid(given is not None, groups_valid)
        self._check_fit_options(given is not None)
        train = self._train_documents(X, y, qid, group, groups, sample_weight, item_weights)
        valid = None
        if given is not None:
            features = self._check(given[0], reset=False)
            valid = Documents(features, as_numbers("y_valid", given[1]), *check_ids(features, given[2], groups_valid))
        self._fit(train, valid)
        return self

    def _train_documents(
        self, X: Any, y: Any, qid: Any, group: Any, groups: Any, sample_weight: Any, item_weights: Any
    ) -> Documents:
        _refuse_own_columns(X, {"labels": y, "lists": qid})
        X, y = self._check(X, y, reset=True)
        if qid is None and group is None:
            if groups is not None and not self._measure().takes_groups:
                raise ValueError(
                    "groups= are hosts or topics, at which measures of diverse rankings alone look; the list of each document is "
                    f"qid=; {ROUTING}"
                )
            warnings.warn(
                f"qid is missing, so that all {len(y)} documents are one list: give qid=, one id a document, or group=, the "
                f"sizes of the lists; {ROUTING}",
                stacklevel=4,
            )
        ids, groups = check_ids(X, list_ids(X.shape[0], qid, group, np.zeros(len(y), np.int64)), groups)
        found = Documents(X, y, ids, groups, _document_weights(sample_weight, ids))
        if item_weights is not None:
            found = self._with_item_weights(found, check_item_weights(item_weights, len(y)))
        lengths = np.unique(found.qid, return_counts=True)[1]
        self.lists_, self.longest_list_ = len(lengths), int(lengths.max())
        self._warn_of_indifference(found)
        return found

    def _warn_of_indifference(self, train: Documents) -> None:
        """Warn where the measure says the same of every ranking, as AP does where all labels are above 0."""
        measure = self._measure()
        if not len(train.y) or train.y.min() <= 0 or measure.takes_groups:
            return
        best, worst = (
            evaluate(scores, train.y, [measure], qid=train.qid)[measure.name] for scores in (train.y, -train.y)
        )
        if (train.y != train.y[0]).any() and bool((best == worst).all()):
            warnings.warn(
                f"no label is 0, and by {measure.name} all documents of a list are equally good, so that it tells no ranking "
                "from another: take a measure of grades, such as 'nDCG', or one with min_relevant=, or let labels begin at 0",
                stacklevel=5,
            )

    def _with_item_weights(self, documents: Documents, item_weights: np.ndarray) -> Documents:
        """Documents of weight 0 left out; those that are left have weights unless all are 1."""
        kept = item_weights > 0
        if not kept.any():
            raise ValueError("item_weights must not be zero for all documents")
        documents = documents._replace(item_weights=None if (item_weights[kept] == 1).all() else item_weights)
        return documents if kept.all() else documents.rows(kept)

    def _check_fit_options(self, has_validation: bool) -> None:
        """Raise ValueError for a wrong option, before anything is done."""

    def _fit(self, train: Documents, valid: Documents | None) -> None:
        """Train on what was checked."""
        raise NotImplementedError

    def _check(self, X: Any, *y: Any, reset: bool) -> Any:
        # One document has no order, but may be a process' share.
        least = 1 if getattr(self, "distributed", False) else 2
        labels: dict[str, Any] = {"y": y[0], "y_numeric": True, "ensure_min_samples": least} if y else {}
        if y and y[0] is not None and not sp.issparse(y[0]):
            labels["y"] = _labels(y[0])
        if hasattr(X, "detach") or isinstance(X, np.ma.MaskedArray):
            X = as_array("X", X)
        kinds: dict[str, Any] = {"accept_sparse": "csr", "dtype": _DTYPES, "ensure_all_finite": self.finite}
        try:
            return validate_data(self, X, **labels, **kinds, reset=reset)
        except ValueError as error:
            said = str(error).partition("\n")[0]
            if "could not convert string" in said and hasattr(X, "select_dtypes"):
                text = ", ".join(map(repr, X.columns.difference(X.select_dtypes("number").columns)[:5]))
                raise ValueError(
                    f"X must hold numbers ({said}); columns that do not: {text}. Leave them out, or make numbers of them, "
                    "such as by sklearn.preprocessing.OrdinalEncoder"
                ) from None
            if "X contains NaN" not in said:
                raise
            if hasattr(X, "isna"):
                gone = [(name, count) for name, count in X.isna().sum().items() if count]
                said += " Missing are " + ", ".join(f"{count} in column {name!r}" for name, count in gone[:5]) + "."
            raise ValueError(
                f"{said} {type(self).__name__}, as it is, takes no missing features; BoostedRanker without prepare= and start= "
                "does, and an EnsembleRanker of such; or fill them in before, such as by sklearn.impute.SimpleImputer"
            ) from None

    def _fit_preparation(self, X: Any, qid: np.ndarray) -> Any:
        """Training documents, prepared by what is fitted to them."""
        self.preparation_ = Preparation()
        if not len(self.prepare):
            return X
        order, offsets = group_documents(qid)
        self.preparation_, found = Preparation.fit_transform(self.prepare, X if order is None else X[order], offsets)
        return found if order is None else found[np.argsort(order)]

    def _prepared(self, X: Any, qid: Any) -> Any:
        """Documents as the weights see them; `qid` may be None where no step looks at lists."""
        if not self.preparation_.by_list or qid is None:
            return self.preparation_.transform(X)
        order, offsets = group_documents(qid)
        if order is None:
            return self.preparation_.transform(X, offsets)
        return self.preparation_.transform(X[order], offsets)[np.argsort(order)]

    def behind(self, preparation: Preparation) -> Self:
        """Let a ranker that was fitted to prepared documents take the raw ones from now on; returns the ranker itself."""
        self.preparation_ = preparation.then(self.preparation_)
        self.prepare = list(self.preparation_.names)
        self.n_features_in_ = self.preparation_.num_features or self.n_features_in_
        return self

    def _training_lists(
        self,
        X: Any,
        y: np.ndarray,
        qid: np.ndarray,
        groups: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        item_weights: np.ndarray | None = None,
    ) -> Lists:
        """The documents of each list side by side, empty lists left out; the mean weight of the others is 1."""
        lists = bring_together(X, y, qid, groups, weights, item_weights)
        lists = self._without_empty(lists) if self.drop_empty else lists
        if lists.weights is None:
            return lists
        total, number = self._total(float(lists.weights.sum())), self._total(len(lists.weights))
        if not total:
            raise ValueError("the weights of all lists that can be learned from are zero; sample_weight must not be")
        return lists._replace(weights=lists.weights * (number / total))

    def _without_empty(self, lists: Lists) -> Lists:
        starts, lengths = lists.offsets[:-1], np.diff(lists.offsets)
        kept = np.minimum.reduceat(lists.labels, starts) < np.maximum.reduceat(lists.labels, starts)
        if not self._total(int(kept.sum())):
            raise ValueError(
                f"there is no list that a ranking can get wrong: in each of {len(kept)} all labels are equal"
            )
        if kept.all():
            return lists
        weights = None if lists.weights is None else lists.weights[kept]
        offsets = np.concatenate([[0], np.cumsum(lengths[kept])])
        return lists._replace(weights=weights).rows(np.repeat(kept, lengths), offsets)

    def _measure(self) -> Measure:
        if self.measure is not None:
            return parse_measure(self.measure)
        measure = getattr(named_loss(self.loss), "measure", None)
        return measure if isinstance(measure, Diverse) else AP()

    def _held_out(self, qid: np.ndarray) -> np.ndarray:
        """The documents of the lists that are held out, `[documents]` booleans; of a single list, some of its documents."""
        names, of_row = np.unique(qid, return_inverse=True)
        if len(names) == 1:
            names = of_row = np.arange(len(qid))
        number = round(self.validation_share * len(names))
        if not 0 < number < len(names):
            raise ValueError(
                f"validation_share {self.validation_share:g} of {len(names)} lists are {number}; give X_valid, y_valid and "
                "qid_valid, or validation_share=0 to train for max_epochs epochs"
            )
        taken = np.random.default_rng(self.random_state).permutation(len(names))[:number]
        return np.isin(of_row, taken)

    def _check_groups_valid(self, given: bool, groups_valid: Any) -> None:
        if groups_valid is not None and not given:
            raise ValueError("groups_valid goes with X_valid, y_valid and qid_valid; give them too or leave it out")
        if given and groups_valid is None and self._measure().takes_groups:
            raise ValueError(
                f"{self._measure().name} needs groups_valid=, one id a validation document: its host or topic"
            )

    def _divided(self, train: Documents, valid: Documents | None) -> tuple[Documents, Documents | None]:
        """Documents to train on and to validate on: those that were given, or lists held out; None without a share of them."""
        if valid is not None or not self.validation_share:
            return train, valid
        held = self._held_out(train.qid)
        return train.rows(~held), train.rows(held)

    def _team(self) -> Team:
        """The processes that fit together."""
        return Team()

    def _total(self, value: Any) -> Any:
        """A number, added up over the processes."""
        return type(value)(self._team().sum(np.array([value], float))[0])

    def score(
        self,
        X: Any,
        y: Any,
        qid: Any = None,
        *,
        group: Any = None,
        groups: Any = None,
        sample_weight: Any = None,
        item_weights: Any = None,
    ) -> float:
        """The mean of `measure` over the lists; tied scores by expectation, lists with nothing relevant 0.

        Lists, their weights, groups and item weights are given as in `fit`; what the latter mean `rankstruct.evaluate` says, and
        some measures take none. Without lists all documents are one, if there was one to be fitted to. A measure of diversity
        needs `groups`; a `Diverse` one re-ranks each list before.

        Raises:
            ValueError: no `qid` nor `group`, but the ranker was fitted to several lists. (`cross_val_score` and the like, which
                pass none unless routing is on, make a warning and NaN of it; `error_score="raise"` lets it through.)
        """
        check_is_fitted(self)
        checked = self._check(X, reset=False)
        one = np.zeros(checked.shape[0], np.int64) if getattr(self, "lists_", 2) == 1 else None
        if qid is None and group is None and one is None:
            raise ValueError(
                f"qid is missing: {getattr(self, 'lists_', 'several')} lists were fitted, and to measure others as one would be "
                f"another measure; give qid=, one id a document, or group=, the sizes of the lists; {ROUTING}"
            )
        ids, groups = check_ids(checked, list_ids(checked.shape[0], qid, group, one), groups)
        each_weight = None if item_weights is None else check_item_weights(item_weights, len(ids))
        values = self._values(Documents(checked, as_numbers("y", y), ids, groups, item_weights=each_weight))
        weights = _document_weights(sample_weight, ids)
        if weights is None:
            return float(values.mean())
        each = bring_together(ids, ids, ids, None, weights).weights
        return float(np.average(values.numpy(), weights=each))

    def _values(self, documents: Documents) -> torch.Tensor:
        """The measure of each list."""
        measure = self._measure()
        if measure.takes_groups and documents.groups is None:
            raise ValueError(f"{measure.name} needs groups=, {GROUPS}")
        given: dict[str, Any] = {"groups": documents.groups, "item_weights": documents.item_weights}
        scores = self._scores(documents.X, documents.qid)
        return evaluate(scores, documents.y, [measure], qid=documents.qid, **given)[measure.name]

    def predict(self, X: Any, qid: Any = None, *, group: Any = None) -> np.ndarray:
        """Scores `[documents]`, float64: higher is better, comparable within a list.

        The lists, as in `fit`, are needed where a step of `prepare` looks at whole lists. An average of rankers standardises
        their scores within each; without lists all documents are one for it, which is warned of where these are more than any
        training list has.
        """
        check_is_fitted(self)
        X = self._check(X, reset=False)
        ids = None if qid is None and group is None else check_ids(X, list_ids(X.shape[0], qid, group), None)[0]
        longest = getattr(self, "longest_list_", X.shape[0])  # an earlier version did not keep it
        if ids is None and self.by_list and X.shape[0] > longest:
            warnings.warn(
                f"qid is missing, so that all {X.shape[0]} documents are scored as one list, and no training list has more than "
                f"{longest}; an average of rankers orders several lists otherwise: give qid=, one id a document, or group=, "
                f"the sizes of the lists, which is group=[{X.shape[0]}] where it is one",
                stacklevel=2,
            )
        return self._scores(X, ids)

    def _scores(self, X: Any, qid: np.ndarray | None) -> np.ndarray:
        """`predict` of what was checked."""
        raise NotImplementedError


def _as_plain(value: Any) -> Any:
    if not isinstance(value, nn.Module):
        return value
    arrays = {name: tensor.cpu().numpy() for name, tensor in value.state_dict().items()}
    return {"module": _with_arrays(describe_module(value)), "state": arrays}


def _with_arrays(value: Any) -> Any:
    """Tensors in plain data as arrays."""
    if isinstance(value, dict):
        return {name: _with_arrays(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_arrays(each) for each in value]
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else value


def _from_plain(value: Any) -> Any:
    if not (isinstance(value, dict) and value.keys() == {"module", "state"}):
        return value
    module = build_module(value["module"])
    module.load_state_dict({name: torch.tensor(array) for name, array in value["state"].items()})
    return module.eval()


def named_loss(loss: Any) -> nn.Module | None:
    """A loss as estimators take it: a module, None, or the name of one, with its arguments if there are any.

    Raises:
        ValueError: anything else, such as a name that is none.

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
        hint = f"; a measure goes first ({error})"
        if near := "" if hasattr(losses, name) else did_you_mean(name, known):
            hint = near
        elif isinstance(loss, type):
            hint = f"; make one of the class: {loss.__name__}()"
        raise ValueError(
            "loss must be a loss module such as rankstruct.RankSVMLoss(), or its name and arguments, such as "
            f"\"LambdaLoss('nDCG@10')\", got {loss!r}{hint}"
        ) from error
    if not isinstance(found, nn.Module):
        raise ValueError(f"loss must name a loss module of rankstruct, got {loss!r}")
    return found


def is_number(value: Any, least: float) -> bool:
    """Whether an option is a number, `least` or more.

    >>> is_number(3, 1), is_number("3", 1), is_number(float("nan"), 0)
    (True, False, False)
    """
    if isinstance(value, Integral) and abs(int(value)) > 2**53:  # which may be more than a float
        return False
    return isinstance(value, Real) and float(value) >= least


def check_groups_of(loss: nn.Module, groups: Any) -> None:
    """Raise ValueError if the loss takes groups and there are none."""
    if takes_groups(loss) and groups is None:
        raise ValueError(f"{type(loss).__name__} needs groups=, {GROUPS}")


def are_given(X_valid: Any, y_valid: Any, qid_valid: Any) -> bool:
    """Whether there are validation lists; raises ValueError if some of what they need is missing."""
    given = [value is not None for value in (X_valid, y_valid, qid_valid)]
    if any(given) != all(given):
        raise ValueError("X_valid, y_valid and qid_valid go together; give all three or none")
    return any(given)


def _validation(
    X_valid: Any, y_valid: Any, qid_valid: Any, eval_set: Any, eval_group: Any, eval_qid: Any
) -> tuple[Any, Any, Any] | None:
    """Features, labels and lists of the validation documents, whichever way they are spelt."""
    if eval_set is None:
        if eval_group is not None or eval_qid is not None:
            raise ValueError(
                "eval_group and eval_qid go with eval_set=[(X_valid, y_valid)]; give it too or leave them out"
            )
        return (X_valid, y_valid, qid_valid) if are_given(X_valid, y_valid, qid_valid) else None
    if X_valid is not None or y_valid is not None or qid_valid is not None:
        raise ValueError("give validation lists once, as X_valid, y_valid and qid_valid or as eval_set")
    pairs = [eval_set] if isinstance(eval_set, tuple) else list(eval_set)
    if len(pairs) != 1 or len(pairs[0]) != 2:
        raise ValueError(
            f"eval_set must be one pair, [(X_valid, y_valid)], got {len(pairs)} of {len(pairs[0]) if pairs else 0}; the "
            "validation lists are one set, told apart by eval_group=[sizes] or eval_qid=[qid_valid]"
        )
    sizes, ids = (None if given is None else list(given) for given in (eval_group, eval_qid))
    found = [*(sizes or ()), *(ids or ())]
    if (sizes is None) == (ids is None) or len(found) != 1:
        raise ValueError(
            "eval_set needs its lists, eval_group=[sizes], the sizes of lists that stand one behind the other, or "
            "eval_qid=[qid_valid], one id a document; one of the two"
        )
    X, y = pairs[0]
    return X, y, found[0] if sizes is None else ids_of_sizes("eval_group", found[0], np.shape(y)[0])


def _document_weights(sample_weight: Any, qid: np.ndarray) -> np.ndarray | None:
    """The weight of its list for each document, of what is one a list or one a document."""
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
            f"sample_weight must be one a list, shape ({len(first)},), or one a document and the same for all documents of a "
            f"list; got shape {weights.shape} (weights of single documents are item_weights)"
        )
    if not weights.any():
        raise ValueError("sample_weight must not be zero for all lists")
    return weights


def check_item_weights(item_weights: Any, documents: int | None = None) -> np.ndarray:
    """One weight a document, float64; raises ValueError where they are none."""
    weights = as_numbers("item_weights", item_weights).astype(np.float64)
    if weights.ndim != 1 or documents not in (None, len(weights)):
        raise ValueError(
            f"item_weights must be one a document, shape ({documents or 'documents'},); got {weights.shape}"
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError("item_weights must be finite numbers, 0 or more")
    return weights


def _labels(y: Any) -> np.ndarray:
    found = as_array("y", y)
    words = [each for each in found.flat[:1] if isinstance(each, str)]
    if words:
        raise ValueError(f"labels must be numbers, graded relevance from 0; got {str(words[0])!r}")
    return found if found.dtype.kind == "c" else as_numbers("y", found)  # complex ones scikit-learn refuses


def dense(X: Any) -> np.ndarray:
    """Features as an array."""
    return X.toarray() if sp.issparse(X) else X


def check_ids(X: Any, qid: Any, groups: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """`qid` as it is, numbers or strings, and the groups as int64 or None; both `[documents]`."""
    if qid is None:
        raise ValueError(
            f"qid is missing: which list each document belongs to, [documents], or group=, sizes; {ROUTING}"
        )
    found: list[np.ndarray] = []
    for name, given in (("qid", qid), *([] if groups is None else [("groups", groups)])):
        ids = numbered_ids(name, given)
        if ids.shape != np.shape(X)[:1]:
            sizes = "; the sizes of lists go as group=" if name == "qid" else ""
            raise ValueError(f"{name} must have one entry a document, shape {np.shape(X)[:1]}; got {ids.shape}{sizes}")
        found.append(ids)
    return found[0], None if groups is None else np.unique(found[1], return_inverse=True)[1].astype(np.int64)
