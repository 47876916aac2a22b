"""Propensities of ranks that depend on the context of a query, such as its kind or the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankstruct.arrays import as_numbers
from rankstruct.checks import check_numbers
from rankstruct.clicks.conditional import maximise, residuals
from rankstruct.clicks.log import ClickLog
from rankstruct.clicks.propensities import Cells, Propensities, with_intervals
from rankstruct.clicks.relevance import rows_of_queries
from rankstruct.ids import known_ids

__all__ = ["ContextPropensities", "propensities_by_context"]


@dataclass(frozen=True, eq=False)
class ContextPropensities:
    """Propensities of ranks, relative to rank 1, as a function of context features x: log p_k = (1, (x - center) / scale) . c_k.

    Attributes:
        coefficients: `[ranks, 1 + d]`, of a constant and the standardised features; 0 for rank 1.
        covariance: `[ranks, 1 + d, ranks, 1 + d]`, of their errors.
        center: `[d]`, the means of the features over the queries.
        scale: `[d]`, their standard deviations.
        confidence: the level of the intervals.

    >>> ContextPropensities(np.log([[1.0], [0.5]]), np.zeros((2, 1, 2, 1)), np.zeros(0), np.ones(0), 0.95)
    ContextPropensities(ranks=2, features=0)
    """

    coefficients: np.ndarray
    covariance: np.ndarray
    center: np.ndarray
    scale: np.ndarray
    confidence: float

    def __repr__(self) -> str:
        """The numbers of ranks and features."""
        ranks, features = self.coefficients.shape
        return f"ContextPropensities(ranks={ranks}, features={features - 1})"

    def predict(self, context: Any, query: Any = None) -> Propensities:
        """The propensities in one context `[d]`, or in several, `[n, d]`, and their intervals.

        Those of the contexts of all queries of a log, with their ids as `query` `[n]`, are what `estimate_relevance` takes.

        Raises:
            ValueError: another number of features, or a value that is not finite.
        """
        given = as_numbers("context", context).astype(np.float64)
        if given.ndim not in (1, 2) or given.shape[-1] != len(self.center) or not np.isfinite(given).all():
            raise ValueError(
                f"context must have {len(self.center)} finite features per query, as in the log; got shape {given.shape}"
            )
        design = _with_constant((given - self.center) / self.scale)
        logs = design @ self.coefficients.T
        errors = np.sqrt(np.maximum(np.einsum("...i,kikj,...j->...k", design, self.covariance, design), 0))
        ids = None if query is None else known_ids("query", query, "row")
        if ids is not None and ids.shape != given.shape[:-1]:
            raise ValueError(f"query must have one id per context, shape {given.shape[:-1]}; got {ids.shape}")
        return with_intervals(logs, errors, self.confidence, ids)


def propensities_by_context(
    log: ClickLog, context: Any, query: Any, *, confidence: float = 0.95
) -> ContextPropensities:
    """Estimate propensities that depend on the context of a query, from documents shown at several ranks (CPBM).

    In the contextual position-based model a document at rank k is clicked with probability p_k(x) a, where x is the context of
    its query and a its own. Here log p_k(x) is linear in x; pass products or bins of features for other functions. The
    coefficients maximise the likelihood of `harvest_propensities`. The errors allow for any dependence within a query, and hold
    for many queries.

    Args:
        log: the log, of several rankers, or of one that changes, where users do not depend on the ranker.
        context: `[queries, d]`, features of each query of the log, in any order. If a feature belongs to the session, such as the
            device, make it a part of the query's id.
        query: `[queries]`, the id of each row; ids that the log does not have are ignored.
        confidence: the level of the intervals.

    Raises:
        ValueError: `context` is not of this shape, not finite, lacks a query of the log, or has a feature that is the
            same for all queries or a combination of others; a single query; ranks that no chain of documents with clicks
            connects to rank 1; too few clicks.

    Source: Fang, Agarwal, Joachims, "Intervention Harvesting for Context-Dependent Examination-Bias Estimation", SIGIR 2019 (the
    model; here log-linear instead of a network).

    >>> session = np.repeat(np.arange(40_000), 2)
    >>> query, mobile = session % 100, session % 2  # the queries with odd numbers are mobile
    >>> position = np.where(np.tile([0, 1], 40_000) == session // 100 % 2, 1, 2)  # two documents, by turns
    >>> chance = np.tile([0.9, 0.2], 40_000) * np.where(position == 1, 1, np.where(mobile, 0.25, 0.7))
    >>> click = np.random.default_rng(0).random(80_000) < chance
    >>> log = ClickLog.from_arrays(query, np.tile([0, 1], 40_000), position, click, session)
    >>> found = propensities_by_context(log, np.arange(100)[:, None] % 2, np.arange(100))
    >>> found.predict([0])
    Propensities(1, 0.695 [0.683, 0.708]; 95 % confidence)
    >>> found.predict([1])
    Propensities(1, 0.247 [0.24, 0.255]; 95 % confidence)
    """
    check_numbers("> 0 and < 1", confidence=confidence)
    cells = Cells(log)
    cells.check_connected()
    features = _checked_context(context, query, log)
    center, scale = features.mean(0), features.std(0)
    constant = scale <= 1e-12 * np.abs(features).max(0)
    if constant.any():
        raise ValueError(f"context feature {int(constant.argmax())} is the same for all queries; leave it out")
    design = _with_constant((features - center) / scale)
    shape = cells.ranks, design.shape[1]
    coefficients, covariance = np.zeros(shape), np.zeros(shape + shape)
    if cells.ranks > 1:
        coefficients[1:], covariance[1:, :, 1:] = _estimate(cells, log.query_of_document[cells.documents], design)
    return ContextPropensities(coefficients, covariance, center, scale, confidence)


def _estimate(cells: Cells, query: np.ndarray, design: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients of ranks from 2 on and their covariance, by the sums of the scores of each query."""
    coefficients, chances, inverse = maximise(cells.shown, cells.clicked, design[query])
    scores = residuals(cells.clicked, chances)[:, 1:, None] * design[query][:, None]
    by_query = np.zeros((len(design), len(inverse)))
    np.add.at(by_query, query, scores.reshape(len(scores), -1))
    queries = len(np.unique(query))
    if queries < 2:
        raise ValueError(
            "errors are estimated from differences between queries, but only one has documents at several ranks"
        )
    spread = inverse @ (by_query.T @ by_query) @ inverse * queries / (queries - 1)
    return coefficients, spread.reshape(coefficients.shape * 2)


def _with_constant(features: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((*features.shape[:-1], 1)), features], -1)


def _checked_context(context: Any, query: Any, log: ClickLog) -> np.ndarray:
    """The features by the number of the query in the log."""
    found, ids = as_numbers("context", context).astype(np.float64), known_ids("query", query, "row")
    if found.ndim != 2 or ids.shape != found.shape[:1] or not np.isfinite(found).all():
        raise ValueError(
            f"context must have a row of finite features for each id of query; got shapes {found.shape} and {ids.shape}"
        )
    return found[rows_of_queries("context", ids, log)]
