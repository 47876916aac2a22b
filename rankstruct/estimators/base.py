"""What rankers share: documents checked, prepared and brought together by list; scores measured; a state of plain data."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import nn

from rankstruct import losses
from rankstruct.lists import known_ids
from rankstruct.losses import takes_groups
from rankstruct.measures import AP, Diverse, Measure, evaluate, parse_measure
from rankstruct.models.saving import build_module, describe_module
from rankstruct.preparation import Preparation
from rankstruct.processes import Team
from rankstruct.solvers import RowsOf

__all__: list[str] = []

_COPIED = 2**26  # bytes of features that are copied rather than gathered again and again
_DTYPES = [np.float64, np.float32, np.float16]  # what is used as it comes
ROUTING = (
    "inside GridSearchCV and the like, turn routing on with sklearn.set_config(enable_metadata_routing=True) and pass "
    "fit(X, y, qid=qid, groups=qid) with cv=GroupKFold()"
)
GROUPS = (
    "one id a document: its host or topic; inside GridSearchCV and the like, where groups= is the splitter's, ask for them under "
    "another name, ranker.set_fit_request(groups='hosts').set_score_request(groups='hosts'), and pass fit(..., hosts=hosts)"
)


class Lists(NamedTuple):
    """What `ranking_risk` takes: documents of each list side by side, and their groups if there are any."""

    X: Any
    labels: np.ndarray
    offsets: np.ndarray
    groups: np.ndarray | None

    def rows(self, rows: np.ndarray, offsets: np.ndarray) -> Lists:
        """Some documents, or all in another order, which have other offsets."""
        groups = None if self.groups is None else self.groups[rows]
        # A copy is faster to compute with, but of large features there is not to be a second one.
        large = self.X.ndim == 2 and not sp.issparse(self.X) and np.prod(self.X.shape) * self.X.dtype.itemsize > _COPIED
        X = RowsOf(self.X, np.arange(len(self.labels))[rows]) if large else self.X[rows]
        return Lists(X, self.labels[rows], offsets, groups)


def bring_together(X: Any, y: np.ndarray, qid: np.ndarray, groups: np.ndarray | None) -> Lists:
    """The documents of each list side by side, without a copy where they are already."""
    order, offsets = group_documents(qid)
    lists = Lists(X, y, offsets, groups)
    return lists if order is None else lists.rows(order, offsets)


class Ranker(BaseEstimator):
    """A ranker with the conventions of scikit-learn; those of one's own have `measure`, `loss`, `prepare` and `drop_empty`.

    Attributes:
        preparation_: what raw features go through, as fitted.
    """

    measure: str | Measure | None
    loss: str | nn.Module | None
    prepare: Sequence[str]
    drop_empty: bool
    validation_share: float
    random_state: int
    preparation_: Preparation
    n_features_in_: int
    #: What features may be: `ensure_all_finite` of `sklearn.utils.validation.validate_data`.
    finite: bool | str = True

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

    def _check(self, X: Any, y: Any = None, *, reset: bool) -> Any:
        labels = {} if y is None else {"y": y, "y_numeric": True}
        kinds: dict[str, Any] = {"accept_sparse": "csr", "dtype": _DTYPES, "ensure_all_finite": self.finite}
        return validate_data(self, X, **labels, **kinds, reset=reset)

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
        order, offsets = group_documents(check_ids(X, qid, None)[0])
        if order is None:
            return self.preparation_.transform(X, offsets)
        return self.preparation_.transform(X[order], offsets)[np.argsort(order)]

    def behind(self, preparation: Preparation) -> Any:
        """Let a ranker that was fitted to prepared documents take the raw ones from now on; returns the ranker itself."""
        self.preparation_ = preparation.then(self.preparation_)
        self.prepare = list(self.preparation_.names)
        self.n_features_in_ = self.preparation_.num_features or self.n_features_in_
        return self

    def _training_lists(self, X: Any, y: np.ndarray, qid: np.ndarray, groups: np.ndarray | None = None) -> Lists:
        """The documents of each list side by side, empty lists left out."""
        lists = bring_together(X, y, qid, groups)
        if not self.drop_empty:
            return lists
        starts, lengths = lists.offsets[:-1], np.diff(lists.offsets)
        kept = np.minimum.reduceat(lists.labels, starts) < np.maximum.reduceat(lists.labels, starts)
        if not self._total(int(kept.sum())):
            raise ValueError(
                f"there is no list that a ranking can get wrong: in each of {len(kept)} all labels are equal"
            )
        offsets = np.concatenate([[0], np.cumsum(lengths[kept])])
        return lists if kept.all() else lists.rows(np.repeat(kept, lengths), offsets)

    def _measure(self) -> Measure:
        if self.measure is not None:
            return parse_measure(self.measure)
        measure = getattr(named_loss(self.loss), "measure", None)
        return measure if isinstance(measure, Diverse) else AP()

    def _held_out(self, qid: np.ndarray) -> np.ndarray:
        """The documents of the lists that are held out, `[documents]` booleans."""
        names, of_row = np.unique(qid, return_inverse=True)
        number = round(self.validation_share * len(names))
        if not 0 < number < len(names):
            raise ValueError(
                f"validation_share {self.validation_share:g} of {len(names)} lists are {number}; give X_valid, y_valid and "
                "qid_valid, or validation_share=0 to train for max_epochs epochs"
            )
        taken = np.random.default_rng(self.random_state).permutation(len(names))[:number]
        return np.isin(of_row, taken)

    def _has_validation(self, X_valid: Any, y_valid: Any, qid_valid: Any, groups_valid: Any) -> bool:
        given = are_given(X_valid, y_valid, qid_valid)
        if groups_valid is not None and not given:
            raise ValueError("groups_valid goes with X_valid, y_valid and qid_valid; give them too or leave it out")
        if given and groups_valid is None and self._measure().takes_groups:
            raise ValueError(
                f"{self._measure().name} needs groups_valid=, one id a validation document: its host or topic"
            )
        return given

    def _validated(
        self, train: Sequence[Any], given: Sequence[Any] | None
    ) -> tuple[Sequence[Any], Sequence[Any] | None]:
        """Documents to train on and to validate on, each features, labels, lists and groups.

        The latter are those that were given, checked, or lists held out of the former; None without a share of them.
        """
        if given is not None:
            X, y, qid, groups = given
            X = self._check(X, reset=False)
            return train, (X, np.asarray(y), *check_ids(X, qid, groups))
        if not self.validation_share:
            return train, None
        held = self._held_out(train[2])
        return rows_of(~held, *train), rows_of(held, *train)

    def _team(self) -> Team:
        """The processes that fit together."""
        return Team()

    def _total(self, value: Any) -> Any:
        """A number, added up over the processes."""
        return type(value)(self._team().sum(np.array([value], float))[0])

    def score(self, X: Any, y: Any, qid: Any = None, *, groups: Any = None, sample_weight: None = None) -> float:
        """The mean of `measure` over the lists of `qid`; tied scores by expectation, lists with nothing relevant 0.

        A measure of diversity needs `groups`, as in `fit`; a `Diverse` one re-ranks each list before. Pipelines pass
        `sample_weight`; it must be None.
        """
        if sample_weight is not None:
            raise ValueError("sample_weight must be None: every list counts alike")
        return float(self._values(X, y, qid, groups).mean())

    def _values(self, X: Any, y: Any, qid: Any, groups: Any) -> torch.Tensor:
        """The measure of each list."""
        measure = self._measure()
        qid, groups = check_ids(X, qid, groups)
        if measure.takes_groups and groups is None:
            raise ValueError(f"{measure.name} needs groups=, {GROUPS}")
        scores, labels, offsets, groups = bring_together(self.predict(X, qid), np.asarray(y), qid, groups)
        lists = {"offsets": torch.tensor(offsets), "groups": groups}
        return evaluate(torch.tensor(scores), torch.tensor(labels), [measure], **lists)[measure.name]

    def predict(self, X: Any, qid: Any = None) -> np.ndarray:
        """Scores `[documents]`, float64: higher is better, comparable within a list.

        `qid` `[documents]` is needed where a step of preparation looks at whole lists.
        """
        raise NotImplementedError


def rows_of(chosen: np.ndarray, *values: Any) -> list[Any]:
    """The documents of a mask, of everything that has one entry a document."""
    return [None if each is None else each[chosen] for each in values]


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
    module.load_state_dict({name: torch.as_tensor(array) for name, array in value["state"].items()})
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
        raise ValueError(
            "loss must be a loss module such as rankstruct.RankSVMLoss(), or its name and arguments, such as "
            f"\"LambdaLoss('nDCG@10')\", got {loss!r}; a measure goes first ({error})"
        ) from error
    if not isinstance(found, nn.Module):
        raise ValueError(f"loss must name a loss module of rankstruct, got {loss!r}")
    return found


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


def group_documents(qid: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """How rows are brought together by `qid` `[documents]`: `(order, offsets)`, lists by first appearance.

    `order` is None where the rows of every list are neighbours already.

    >>> group_documents(np.array(["b", "a", "b"]))
    (array([0, 2, 1]), array([0, 2, 3]))
    """
    _, first, inverse, counts = np.unique(qid, return_index=True, return_inverse=True, return_counts=True)
    by_appearance = np.argsort(first, kind="stable")
    number = np.empty(len(first), np.intp)
    number[by_appearance] = np.arange(len(first))
    of_row = number[inverse]
    offsets = np.concatenate([[0], np.cumsum(counts[by_appearance])])
    if (np.diff(of_row) >= 0).all():
        return None, offsets
    return np.argsort(of_row, kind="stable"), offsets


def check_ids(X: Any, qid: Any, groups: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """`qid` as it is, numbers or strings, and the groups as int64 or None; both `[documents]`."""
    if qid is None:
        raise ValueError(f"qid is missing: which list each document belongs to, [documents]; {ROUTING}")
    found: list[np.ndarray] = []
    for name, given in (("qid", qid), *([] if groups is None else [("groups", groups)])):
        ids = known_ids(name, given)
        if ids.dtype.kind == "O":  # strings of a frame; mixed kinds have no order
            ids = ids.astype(str)
        if ids.shape != np.shape(X)[:1]:
            raise ValueError(f"{name} must have one entry a document, shape {np.shape(X)[:1]}; got {ids.shape}")
        found.append(ids)
    return found[0], None if groups is None else np.unique(found[1], return_inverse=True)[1].astype(np.int64)
