"""Relevance estimated from clicks: labels whose expected values are those of the true ones.

With propensities p of the ranks, the estimate of a document is its number of clicks divided by its exposure, the sum of p over
the sessions that showed it. Its expected value is the attraction, also where a cut-off, or one of several rankers, hides the
document at times. Plain inverse propensity scoring is the mean over all sessions of the query of click / p, whose expected value
is the attraction times the share of the sessions in which the document was shown. Doubly robust, with the attraction r that a
regression model predicts, the estimate is

    r + mean over all sessions of the query of (click - p r) / w

where w is the mean exposure over these sessions, or p, clipped, and the fraction is 0 where the document was not shown. If p is
right, the expected value is the attraction where either r or w is right. A right r does not make up for a wrong p. Of plain
estimates without a cut-off and `clip` the prediction cancels; it replaces what clipped propensities and cut-offs leave out.

Under trust bias a click has probability p x attraction + b, and click - b replaces the click (the affine correction).

Source: Joachims, Swaminathan, Schnabel, WSDM 2017; Swaminathan and Joachims, "The Self-Normalized Estimator for Counterfactual
Learning", NIPS 2015; Oosterhuis and de Rijke, "Policy-Aware Unbiased Learning to Rank for Top-k Rankings", SIGIR 2020; Vardasbi,
Oosterhuis, de Rijke, CIKM 2020 (affine); Oosterhuis, "Doubly Robust Estimation for Correcting Position Bias in Click Feedback for
Unbiased Learning to Rank", TOIS 2023.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rankstruct.arrays import as_numbers
from rankstruct.checks import check_choice, check_numbers
from rankstruct.clicks.log import ClickLog, common_numbers
from rankstruct.clicks.propensities import Propensities
from rankstruct.ids import known_ids

__all__ = ["estimate_relevance"]


def estimate_relevance(
    log: ClickLog,
    propensities: Any,
    *,
    base: Any = None,
    clip: float | None = None,
    policy_aware: bool | None = None,
    exposure: Any = None,
    prediction: Any = None,
    normalize: Literal["sessions", "weights", "none"] = "sessions",
) -> np.ndarray:
    """Estimate the attraction of each document from its clicks, `[documents]`: inverse propensity scoring and its like.

    `AdditiveRankLoss` takes the estimates as labels; losses that multiply gains take `estimates > 0` as labels and the estimates,
    with 1 for the others, as item weights. A document without clicks has estimate 0, or less with `base` or `prediction`.
    The formulas and sources are those of `rankstruct.clicks.relevance`.

    Args:
        log: the log.
        propensities: `[ranks]`, above 0 and at most 1; or the result of an estimator, with its queries if they differ by query.
        base: likewise, b of trust bias.
        clip: propensities that divide and are below this number, above 0, are replaced by it, which lowers the variance and
            biases low ranks, unless the prediction is right.
        policy_aware: whether to divide by the mean propensity of the document over all sessions of its query, 0 where it was not
            shown, instead of that of the rank: the right expected value where documents are hidden at times, if the rankings do
            not depend on the clicks; of one that was never shown 0. None is True, but for `exposure` and `normalize="weights"`.
        exposure: `[documents]`, to divide by instead: the expected propensity of each document, counting 0 where it is not shown,
            under the random rankings of the production ranker, where that is known; above 0 for documents in the log.
        prediction: `[documents]`, the attraction of each document that a model predicts, best one that was fitted to other
            queries. A document that was never shown has this as the estimate.
        normalize: `"sessions"`, divide by the number of sessions of the query; `"none"`, add up over them; `"weights"`, add up,
            divided by the mean of 1 / p over all clicks (self-normalised), so that all estimates add up to the number of clicks.

    Raises:
        ValueError: a propensity or exposure that is not above 0 (and at most 1), fewer propensities than ranks in the log,
            propensities that lack a query, predictions or exposures that are not one finite number per document, in an order
            that `log.with_documents` has stated, or options that do not go together.

    >>> log = ClickLog.from_arrays(query=[1, 1, 1, 1], document=[5, 6, 5, 6], position=[1, 2, 1, 2], click=[1, 0, 0, 1],
    ...                            session=[0, 0, 1, 1])
    >>> estimate_relevance(log, [1.0, 0.5])
    array([0.5, 1. ])
    >>> estimate_relevance(log.with_documents(), [1.0, 0.5], clip=0.8, prediction=[0.4, 0.9])
    array([0.5   , 0.9625])
    """
    policy_aware = _is_policy_aware(normalize, policy_aware, exposure, plain=base is None and prediction is None)
    shown, least = rows_of(checked_propensities(propensities, log), log), checked_clip(clip)
    predicted = None if prediction is None else checked_by_document(prediction, "prediction", log)
    excess = _excess(log, shown, base, predicted)
    if policy_aware or exposure is not None:
        found = _of_documents(log, excess, np.maximum(shown, least), exposure, least)
    else:
        found = _sums(log, excess / np.maximum(shown, least))
        if normalize == "weights":
            return found * log.click.sum() / max(found.sum(), 1e-300)
        found /= np.maximum(_sessions(log), 1)
    if predicted is not None:
        found += predicted
    return found * _sessions(log) if normalize == "none" else found


def _excess(log: ClickLog, shown: np.ndarray, base: Any, predicted: np.ndarray | None) -> np.ndarray:
    """Clicks minus those that trust bias and the prediction explain, `[rows]`."""
    found = log.click.astype(np.float64)
    if base is not None:
        found -= rows_of(checked_by_rank(base, "base", log), log)
    if predicted is not None:
        found -= shown * predicted[log.document]
    return found


def _of_documents(log: ClickLog, excess: np.ndarray, divisors: np.ndarray, exposure: Any, least: float) -> np.ndarray:
    """The mean of `excess` over the sessions, divided by the exposure of each document, or the mean of `divisors`."""
    known = None if exposure is None else _checked_exposure(exposure, log)
    seen = _sums(log, divisors) if known is None else _sessions(log) * np.maximum(known, least)
    return np.divide(_sums(log, excess), seen, out=np.zeros(len(seen)), where=seen > 0)


def _is_policy_aware(normalize: str, policy_aware: bool | None, exposure: Any, plain: bool) -> bool:
    """The option, or its default; raises ValueError for options that do not go together."""
    check_choice("normalize", normalize, ("sessions", "weights", "none"))
    if policy_aware and exposure is not None:
        raise ValueError("policy_aware=True estimates the exposure from the log: pass it or exposure=, not both")
    if normalize == "weights" and (policy_aware or exposure is not None or not plain):
        raise ValueError(
            "normalize='weights' is for plain inverse propensities, without base=, prediction=, exposure= and policy_aware=True"
        )
    return exposure is None and normalize != "weights" if policy_aware is None else policy_aware


def _sums(log: ClickLog, values: np.ndarray) -> np.ndarray:
    """The sum of the values of the rows of each document."""
    return np.bincount(log.document, values, minlength=len(log.documents))


def _sessions(log: ClickLog) -> np.ndarray:
    """The number of sessions of the query of each document; 0 if it was never shown."""
    query = log.query_of_document
    return np.where(query >= 0, log.sessions_of_queries()[query] if len(log.queries) else 0, 0)


def rows_of(by_rank: np.ndarray, log: ClickLog) -> np.ndarray:
    """The entry of each row of the log in a table by rank, or by query and rank."""
    return by_rank[log.position - 1] if by_rank.ndim == 1 else by_rank[log.query, log.position - 1]


def checked_by_rank(values: Any, name: str, log: ClickLog) -> np.ndarray:
    """Numbers by rank, or by query of the log and rank."""
    named = isinstance(values, Propensities)
    found = np.minimum(values.values, 1) if named else as_numbers(name, values).astype(float)
    longest = int(log.position.max(initial=0))
    if found.ndim == 2:
        if not named or values.queries is None:
            raise ValueError(
                f"{name} that differ by query need the names of the queries: pass Propensities(values, low, high, confidence, "
                f"queries), one id for each row; got shape {found.shape}"
            )
        found = found[rows_of_queries(name, values.queries, log)]
    if found.ndim not in (1, 2) or found.shape[-1] < longest or not np.isfinite(found).all():
        raise ValueError(
            f"{name} must be finite numbers for ranks 1 to {longest}, which the log has; got {np.atleast_1d(found).shape[-1]}"
        )
    return found


def rows_of_queries(name: str, queries: Any, log: ClickLog) -> np.ndarray:
    """The row of each query of the log."""
    own, other = common_numbers(log.queries, known_ids("queries", queries, "row"))
    row = np.full(max(own.max(initial=-1), other.max(initial=-1)) + 1, -1)
    row[other] = np.arange(len(other))
    if len(np.unique(other)) < len(other) or (row[own] < 0).any():
        lacking = (
            "" if (row[own] >= 0).all() else f", and there is none for {log.queries[int((row[own] < 0).argmax())]}"
        )
        raise ValueError(f"{name} must have one row for each query of the log{lacking}")
    return row[own]


def checked_propensities(propensities: Any, log: ClickLog) -> np.ndarray:
    """Propensities by rank, or by query and rank."""
    known = checked_by_rank(propensities, "propensities", log)
    wrong = ~((known > 0) & (known <= 1))
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        of = f" and query {log.queries[at[0]]}" if known.ndim == 2 else ""
        raise ValueError(f"propensities must be above 0 and at most 1; that of rank {at[-1] + 1}{of} is {known[at]:g}")
    return known


def checked_by_document(values: Any, name: str, log: ClickLog) -> np.ndarray:
    """Finite numbers by document, in an order that was stated."""
    log.check_order(name)
    found = as_numbers(name, values).astype(np.float64)
    if found.shape != (len(log.documents),) or not np.isfinite(found).all():
        raise ValueError(
            f"{name} must be a finite number for each of the {len(log.documents)} documents; got shape {found.shape}"
            + ("" if np.isfinite(found).all() else " with NaN or infinite ones")
        )
    return found


def _checked_exposure(exposure: Any, log: ClickLog) -> np.ndarray:
    found = checked_by_document(exposure, "exposure", log)
    wrong = (found < 0) | (found > 1) | ((found == 0) & (log.query_of_document >= 0))
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(
            f"exposure must be above 0 for documents that were shown, and at most 1; that of document {at} is {found[at]:g}"
        )
    return found


def checked_clip(clip: Any) -> float:
    """The smallest propensity to divide by."""
    if clip is None:
        return 0.0
    check_numbers("> 0 and <= 1", clip=clip)
    return float(clip)
