"""Labels and weights for training from clicks, by inverse propensities.

A document with estimated relevance r > 0 has label 1 and item weight r, any other label 0 and weight 1: a loss that multiplies
the gains of documents by their weights then has the gain r.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rankstruct.arrays import as_numbers
from rankstruct.clicks import ClickLog, Propensities, estimate_relevance, harvest_propensities
from rankstruct.clicks.log import checked_positions
from rankstruct.clicks.relevance import checked_clip
from rankstruct.ids import known_ids, numbered_ids

__all__: list[str] = []

_ESTIMATE = (
    "estimate them with rankstruct.clicks: propensities_by_swaps(log) or harvest_propensities(log) if documents are shown at "
    "several ranks, propensities_by_em(log, features) otherwise"
)


#: What held-out clicks choose from where neither loss nor C is given: values of C by the discount of `AdditiveRankLoss`. The loss
#: is larger with the linear discount, so that smaller C correspond. The middle of the first ones stands unless another is better.
CLICK_COSTS: dict[str, tuple[float, ...]] = {"linear": (1e-3, 0.01, 0.1, 1.0, 10.0), "log2": (1.0, 10.0, 100.0)}


class LoggedLists(NamedTuple):
    """Training lists of a click log: arguments of `fit`, one value per document of the log.

    Attributes:
        labels: 1 for documents that were clicked.
        qid: their lists.
        sample_weight: how often their queries were shown.
        item_weights: estimated relevance of clicked documents, 1 of others, 0 of those that belong to no list.
        propensities: those of the ranks, after clipping.
    """

    labels: np.ndarray
    qid: Any
    sample_weight: np.ndarray
    item_weights: np.ndarray
    propensities: np.ndarray


def find_documents(log: ClickLog, X: Any, qid: Any, docid: Any, suffix: str = "") -> ClickLog:
    """The log with documents numbered by the rows of `X`, found by name, or as `log.with_documents` has stated.

    Args:
        log: the log.
        X: `[documents, d]`, features without other columns.
        qid, docid: `[documents]`, the names, or None.
        suffix: of the arguments, for messages.

    Raises:
        ValueError: names that are not those of the log, or none and no order stated, or another one.
    """
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    names = "a data frame with columns of queries and documents"
    way = (
        f"pass {names if suffix else f'qid= and docid=, or {names}'}, or y{suffix}=log.with_documents(query, document) with the "
        f"ids of each row; log.with_documents() says that X{suffix} has the order of log.documents"
    )
    if docid is not None:
        if qid is None:
            raise ValueError(f"docid needs qid, since documents of several queries may have equal names: {way}")
        sizes = {"X": rows, "qid": len(qid), "docid": len(docid)}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"X{suffix}, qid and docid must have one row per document; got {sizes}")
        return log.with_documents(qid, docid)
    if not log.of_table:
        raise ValueError(f"X{suffix} does not say which row is which document of the log: {way}")
    if rows != len(log.documents):
        raise ValueError(
            f"X{suffix} must have a row for each of the {len(log.documents)} documents that the log is numbered by, got {rows}: "
            f"{way}"
        )
    if qid is not None:
        _check_lists(log, qid, suffix)
    return log


def _check_lists(log: ClickLog, qid: Any, suffix: str) -> None:
    """Raise ValueError if lists are not the queries of the log."""
    ids, query = numbered_ids(f"qid{suffix}", qid), log.query_of_document
    if ids.shape != query.shape:
        raise ValueError(f"qid{suffix} must have one entry per document, shape {query.shape}; got {ids.shape}")
    lists, queries = (np.unique(each[query >= 0], return_inverse=True)[1] for each in (ids, query))
    pairs = np.unique(np.stack([lists, queries]), axis=1)
    names = known_ids(f"qid{suffix}", qid)[query >= 0].astype(str)
    own = np.asarray(log.queries)[query[query >= 0]].astype(str)
    # lists of other names are compared as groups
    contradicts = bool(np.isin(names, own).any() and (names != own).any())
    if contradicts or any(len(np.unique(each)) < pairs.shape[1] for each in pairs):
        raise ValueError(
            f"qid{suffix} must be the queries of the log, which its documents have already: omit it, or check the order of "
            f"X{suffix}"
        )


def lists_of_log(log: ClickLog, propensity: Any, clip: float | None) -> LoggedLists:
    """The lists of a log: the loss of a query is the mean over its sessions, with their number as weight.

    Args:
        log: the log, numbered by the rows of the features; documents that were never shown have weight 0.
        propensity: what `estimate_relevance` takes; None to harvest them.
        clip: the lowest propensity.

    Raises:
        ValueError: no clicks, wrong propensities, or a log from which they cannot be harvested.
    """
    if not log.click.any():
        raise ValueError("the log has no clicks, so nothing can be learned from it")
    if propensity is None:
        try:
            propensity = harvest_propensities(log)
        except ValueError as error:
            raise ValueError(f"propensity is missing, and cannot be harvested from the log: {error}") from error
    relevance = estimate_relevance(log, propensity, clip=clip)
    known = np.minimum(np.asarray(getattr(propensity, "values", propensity), np.float64), 1)
    known = known if clip is None else np.maximum(known, clip)
    query = log.query_of_document
    shown = query >= 0
    sessions = np.where(shown, log.sessions_of_queries()[query], 0).astype(float)
    weights = np.where(relevance > 0, relevance, shown)
    return LoggedLists((relevance > 0).astype(float), query, sessions, weights, known)


def weigh_clicks(
    clicks: np.ndarray, qid: np.ndarray, position: Any, propensity: Any, clip: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, item weights and propensities of lists of which each was shown once; arguments as in `fit`.

    Raises:
        ValueError: no clicks, wrong positions or propensities.
    """
    if (clicks < 0).any():
        at = int((clicks < 0).argmax())
        raise ValueError(f"y must be clicks, 0 or 1 or their number; that of document {at} is {clicks[at]:g}")
    if not (clicks > 0).any():
        raise ValueError("y has no clicks, so nothing can be learned from it")
    if propensity is None:
        raise ValueError(f"propensity is missing, the probabilities that users examine the ranks: {_ESTIMATE}")
    known = checked_propensities(propensity, clip)
    if position is None:
        if known.shape != clicks.shape:
            raise ValueError(
                f"propensity must have one value per document, shape {clicks.shape}, or one per rank if position= is passed "
                f"too; got {known.shape}"
            )
        each = known
    else:
        ranks, shown = _checked_positions(position, clicks, qid, len(known))
        each = np.where(shown, known[ranks - 1], 1.0)
    return (clicks > 0).astype(clicks.dtype), np.where(clicks > 0, clicks / each, 1.0), known


def checked_propensities(propensity: Any, clip: float | None) -> np.ndarray:
    """Propensities after clipping, float64.

    Raises:
        ValueError: one that is not above 0 and at most 1, or a wrong `clip`.

    >>> checked_propensities([1, 0.5, 0.1], clip=0.2)
    array([1. , 0.5, 0.2])
    """
    if isinstance(propensity, Propensities):
        known = np.minimum(propensity.values, 1)
    else:
        known = as_numbers("propensity", propensity).astype(np.float64)
    wrong = ~((known > 0) & (known <= 1))
    if known.ndim != 1 or wrong.any():
        found = (
            f"that at {int(wrong.argmax())} is {known[wrong][0]:g}" if known.ndim == 1 else f"got shape {known.shape}"
        )
        raise ValueError(f"propensity must be one number above 0 and at most 1 per rank or document; {found}")
    return np.maximum(known, checked_clip(clip))


def _checked_positions(position: Any, clicks: np.ndarray, qid: np.ndarray, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Ranks, 1 for documents that were not shown, and whether each was."""
    if np.shape(position) != clicks.shape:
        raise ValueError(f"position must have one rank per document, shape {clicks.shape}; got {np.shape(position)}")
    found, shown = checked_positions(position, clicks > 0, ranks, "document", "the number of propensities")
    rows = np.flatnonzero(shown)
    order = rows[np.lexsort((found[rows], qid[rows]))]
    same = (qid[order[1:]] == qid[order[:-1]]) & (found[order[1:]] == found[order[:-1]])
    if same.any():
        at = int(same.argmax())
        raise ValueError(
            f"a list must show one document at a position; documents {order[at]} and {order[at + 1]} are at the same one: each "
            "list is what one user was shown, so pass the sessions as qid=, or a rankstruct.clicks.ClickLog as y"
        )
    return found, shown
