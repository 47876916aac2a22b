"""Training and validation lists as rankers hold them: the arguments of `fit`, checked here, once, and trusted from here on."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import column_or_1d
from typing_extensions import Self

from rankstruct.arrays import as_array, as_numbers
from rankstruct.blocks import Blocks
from rankstruct.columns import as_table
from rankstruct.data import RankingData
from rankstruct.ids import group_documents, numbered_ids
from rankstruct.solvers import RowsOf

__all__: list[str] = []

_COPIED = 2**26  # bytes of features up to which a copy is made; larger ones are gathered on each access
ROUTING = (
    "inside GridSearchCV, cross_val_score and the like, turn routing on with sklearn.set_config(enable_metadata_routing=True) "
    "and pass fit(X, y, qid=qid, groups=qid) or params=dict(qid=qid, groups=qid), with cv=GroupKFold()"
)


@dataclass(frozen=True, eq=False)
class TrainingData(RankingData):
    """`RankingData` with weights, for rankers and solvers, in the precision of the caller; its fields are not checked again.

    Args:
        features: `[documents, d]`, an array or a CSR array of floats; large ones are `RowsOf` others, not copies.
        labels: `[documents]`, of any numeric dtype.
        offsets: `[lists + 1]`; lists are in the order of their first appearance.
        qids: `[lists]` integers in the order of the lists' ids, by which lists are numbered where some are drawn at random.
        weights: `[lists]`, the weight of each list's loss, or None.
        item_weights: `[documents]`, the weight of each document, or None.
        rows: `[documents]`, the row of each document in what the caller passed; None if the order is the same.

    The other fields are those of `RankingData`.

    >>> data = TrainingData(np.eye(3), np.array([1, 0, 2]), np.array([0, 2, 3]), np.arange(2), weights=np.array([1.0, 3.0]))
    >>> data.select([1]).labels, data.select([1]).weights
    (array([2]), array([3.]))
    """

    labels: Any
    qids: Any
    weights: Any = None
    item_weights: Any = None
    rows: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Check nothing."""

    @property
    def ids(self) -> np.ndarray:
        """The id of each document's list, `[documents]`."""
        return np.repeat(self.qids, self.lengths)

    @property
    def places(self) -> np.ndarray:
        """The number of each list in the order of the ids, `[lists]`."""
        return np.unique(self.qids, return_inverse=True)[1]

    @property
    def optional(self) -> dict[str, Any]:
        """The columns that losses and measures take beyond labels, where there are any."""
        columns = {"diversity_groups": self.diversity_groups, "item_weights": self.item_weights}
        return {name: column for name, column in columns.items() if column is not None}

    def select_documents(self, rows: Any, offsets: Any, qids: Any) -> Self:
        """As `RankingData.select_documents`, with the weights of lists; neighbouring documents are not copied."""
        rows, X, weights = np.asarray(rows, np.int64), self.features, self.weights
        own = rows if self.rows is None else self.rows[rows]
        taken = slice(rows[0], rows[-1] + 1) if len(rows) and (np.diff(rows) == 1).all() else rows
        # A copy is faster to compute with, but large features should not be held twice.
        large = taken is rows and X.ndim == 2 and not sp.issparse(X) and np.prod(X.shape) * X.dtype.itemsize > _COPIED
        X = RowsOf(X, rows) if large or isinstance(X, RowsOf) else X[taken]
        if weights is not None:
            order = np.argsort(self.qids)
            weights = weights[order[np.searchsorted(self.qids, qids, sorter=order)]]
        columns = {name: column[taken] for name, column in self.optional.items()}
        return type(self)(X, self.labels[taken], np.asarray(offsets), qids, **columns, weights=weights, rows=own)


def gather(
    X: Any,
    y: np.ndarray,
    qid: np.ndarray,
    diversity_groups: np.ndarray | None = None,
    sample_weight: Any = None,
    item_weights: np.ndarray | None = None,
) -> TrainingData:
    """Group checked documents by list, without a copy if they are already grouped; `sample_weight` is that of `fit`."""
    order, offsets = group_documents(qid)
    weights = None if sample_weight is None else check_list_weights(sample_weight, order, offsets)
    qids = np.unique(qid[offsets[:-1] if order is None else order[offsets[:-1]]], return_inverse=True)[1]
    data = TrainingData(X, y, offsets, qids, diversity_groups=diversity_groups, item_weights=item_weights)
    return replace(data if order is None else data.select_documents(order, offsets, qids), weights=weights)


def is_ranker(value: Any) -> bool:
    """Whether a value is what `fit_to` trains: no class, with `fit(X, y, qid)` and `predict(X, qid)`, as a regressor has not.

    >>> from sklearn.linear_model import Ridge
    >>> is_ranker(Ridge())
    False
    """
    methods = [getattr(value, name, None) for name in ("fit", "predict")]
    if isinstance(value, type) or not all(map(callable, methods)):
        return False
    each = [signature(method).parameters for method in methods if method is not None]
    return all("qid" in known or any(one.kind is one.VAR_POSITIONAL for one in known.values()) for known in each)


def fit_to(
    ranker: Any, train: TrainingData, valid: TrainingData | None = None, X: Any = None, X_valid: Any = None
) -> Any:
    """`ranker.fit` to lists, validated by others; `X` and `X_valid` are other features of theirs."""
    given = {"diversity_groups": train.diversity_groups, "item_weights": train.item_weights}
    if train.weights is not None:  # of documents, as other libraries take them
        given["sample_weight"] = np.repeat(train.weights, train.lengths)
    if valid is not None:
        given |= {"X_valid": whole(valid.features) if X_valid is None else X_valid, "y_valid": valid.labels}
        given |= {"qid_valid": valid.ids, "diversity_groups_valid": valid.diversity_groups}
        given |= {"item_weights_valid": valid.item_weights}
    X = whole(train.features) if X is None else X
    return ranker.fit(X, train.labels, train.ids, **{name: value for name, value in given.items() if value is not None})


def whole(X: Any) -> Any:
    """Features that are in memory."""
    return X[:] if isinstance(X, RowsOf) else X


def dense(X: Any) -> np.ndarray:
    """Features as a dense array."""
    return X.toarray() if sp.issparse(X) else whole(X)


def open_data(
    name: str, X: Any, y: Any = None, qid: Any = None, group: Any = None, diversity_groups: Any = None
) -> tuple[Any, Any, Any, Any]:
    """Features, labels, lists and groups: those of `RankingData`; other features that are not a table are refused."""
    if not isinstance(X, RankingData):
        return X if isinstance(X, np.ndarray) else as_table(name, X), y, qid, diversity_groups
    if qid is not None or group is not None:
        raise ValueError(f"{name} is RankingData, which has lists: omit qid and group")
    if isinstance(X.features, Blocks):  # estimators compute with all documents
        X = replace(X, features=_loaded(name, X.features))
    own = X.diversity_groups if diversity_groups is None else diversity_groups
    return X.table, X.labels if y is None else y, X.list_numbers, own


def _loaded(name: str, X: Blocks) -> np.ndarray:
    """The features of shards, in memory; raises MemoryError if they would not fit there with as many prepared ones."""
    needed = 2 * math.prod(X.shape) * X.dtype.itemsize
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else math.inf
    if needed > memory:
        raise MemoryError(
            f"{name} has shards of {len(X)} documents, whose features, raw and prepared, take {needed / 1e9:.1f} GB in "
            f"an estimator; here are {memory / 1e9:.1f} GB: `rankstruct fit` and RankingDataModule read shards as training goes, "
            f"or pass some lists, {name}.select(lists)"
        )
    return np.asarray(X)


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


def check_list_weights(sample_weight: Any, order: np.ndarray | None, offsets: np.ndarray) -> np.ndarray:
    """The weights of grouped lists, `[lists]`, from one per list or one per document, whose order is that of the rows."""
    weights = as_numbers("sample_weight", sample_weight).astype(np.float64)
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError("sample_weight must be finite numbers, 0 or more")
    if weights.shape != (len(offsets) - 1,):
        is_of_documents = weights.shape == (offsets[-1],)
        grouped = weights[order] if is_of_documents and order is not None else weights
        weights = grouped[offsets[:-1]] if is_of_documents else weights
        if not (is_of_documents and np.array_equal(grouped, np.repeat(weights, np.diff(offsets)))):
            raise ValueError(
                f"sample_weight must have one weight per list, shape ({len(offsets) - 1},), or one per document, equal within "
                f"each list; got shape {grouped.shape} (pass weights of single documents as item_weights)"
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


def as_labels(name: str, y: Any) -> np.ndarray:
    """Labels as numbers, in any shape; raises ValueError for words, and for one that is not finite, with its row."""
    labels = as_array(name, y)
    if labels.size and isinstance(labels.flat[0], str):
        raise ValueError(f"labels must be numbers, graded relevance from 0; got {str(labels.flat[0])!r} in {name}")
    if labels.dtype.kind == "c":  # which scikit-learn refuses
        return labels
    labels = as_numbers(name, labels)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        at = int((~np.isfinite(labels).ravel()).argmax())
        kind = "NaN" if np.isnan(labels.flat[at]) else f"infinity or a value too large for dtype({str(labels.dtype)!r})"
        row = at // (labels.size // len(labels))
        raise ValueError(f"Input {name} contains {kind}: labels must be finite numbers; that of document {row} is not")
    return labels


def check_column(name: str, y: Any) -> np.ndarray:
    """Labels as numbers; `[documents, 1]` becomes `[documents]`, with scikit-learn's warning."""
    labels: np.ndarray = as_labels(name, y)
    return column_or_1d(labels, warn=True) if labels.ndim == 2 and labels.shape[1] == 1 else labels


def warn_of_swap(y: np.ndarray, qid: np.ndarray, call: str) -> None:
    """Warn if labels look like lists and lists like labels: only the rows of each label, whole numbers, are contiguous."""
    blocks, scattered = 1 + int((y[1:] != y[:-1]).sum()), 1 + int((qid[1:] != qid[:-1]).sum())
    if blocks >= scattered or (y % 1).any():  # nearly always, at little cost
        return
    labels, lists = len(np.unique(y)), len(np.unique(qid))
    if blocks == labels > lists > 1 and scattered > lists:
        warnings.warn(
            f"y has {labels} labels, each in contiguous rows, and the {lists} lists of qid are scattered over the "
            f"rows: are they swapped? The order is {call}(X, y, qid)",
            stacklevel=5 if call == "fit" else 4,
        )
