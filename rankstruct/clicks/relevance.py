"""Relevance estimated from clicks: labels whose expected values are those of the true ones."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rankstruct.arrays import as_numbers
from rankstruct.clicks.log import ClickLog
from rankstruct.clicks.propensities import Propensities

__all__ = ["estimate_relevance"]


def estimate_relevance(
    log: ClickLog,
    propensities: Any,
    *,
    base: Any = None,
    clip: float | None = None,
    policy_aware: bool = False,
    normalize: Literal["sessions", "weights", "none"] = "sessions",
) -> np.ndarray:
    """Estimate the attraction of each document from its clicks, `[documents]`: inverse propensity scoring and its like.

    `AdditiveRankLoss` takes the estimates as labels; losses that multiply gains take `estimates > 0` as labels and the estimates,
    with 1 for the others, as item weights. A document without clicks has estimate 0, or less with `base`.

    With propensities p of the ranks, the estimate is the mean over the sessions of the query of click / p: its expected value is
    the attraction times the share of sessions in which the document was shown.

    Args:
        log: the log.
        propensities: `[ranks]`, above 0 and at most 1, or the result of an estimator, whose values above 1 count as 1.
        base: `[ranks]`, b of a model of clicks with probability p x attraction + b, trust bias: the estimate is the mean of
            (click - b) / p over the sessions that show the document (the affine correction).
        clip: propensities below this number, above 0, are replaced by it, which lowers the variance and biases low ranks.
        policy_aware: whether to divide by the mean propensity of the document over all sessions of its query, 0 where it was not
            shown, instead of that of the rank: the right expected value where a cut-off hides documents at times, if the
            rankings are random and independent of the clicks. A document that was never shown has the estimate 0.
        normalize: `"sessions"`, divide by the number of sessions of the query; `"none"`, add up over the sessions; `"weights"`,
            self-normalised: add up, divided by the mean of 1 / p over all clicks, so that all estimates add up to the number of
            clicks.

    Raises:
        ValueError: a propensity that is not above 0 and at most 1, fewer propensities than ranks in the log, or options that do
            not go together.

    Source: Joachims, Swaminathan, Schnabel, WSDM 2017; Swaminathan and Joachims, "The Self-Normalized Estimator for
    Counterfactual Learning", NIPS 2015; Oosterhuis and de Rijke, "Policy-Aware Unbiased Learning to Rank for Top-k Rankings",
    SIGIR 2020; Vardasbi, Oosterhuis, de Rijke, CIKM 2020 (affine).

    >>> log = ClickLog.from_arrays(query=[1, 1, 1, 1], document=[5, 6, 5, 6], position=[1, 2, 1, 2], click=[1, 0, 0, 1],
    ...                            session=[0, 0, 1, 1])
    >>> estimate_relevance(log, [1.0, 0.5])
    array([0.5, 1. ])
    >>> estimate_relevance(log, [1.0, 0.5], clip=0.8)
    array([0.5  , 0.625])
    """
    known = _checked_propensities(propensities, clip, log)
    _check_normalization(normalize, plain=base is None and not policy_aware)
    rank = log.position - 1
    clicks = log.click.astype(np.float64)
    if base is not None:
        clicks -= _checked(base, "base", log)[rank]
    if policy_aware:
        found = _mean_ratios(log, clicks, known[rank])
        return found if normalize == "sessions" else found * _sessions(log)
    each = clicks / known[rank]
    found = np.bincount(log.document, each, minlength=len(log.documents))
    if normalize == "weights":
        return found * log.click.sum() / max(each.sum(), 1e-300)
    return found if normalize == "none" else found / np.maximum(_sessions(log), 1)


def _check_normalization(normalize: str, plain: bool) -> None:
    if normalize not in ("sessions", "weights", "none"):
        raise ValueError(f"normalize must be 'sessions', 'weights' or 'none', got {normalize!r}")
    if normalize == "weights" and not plain:
        raise ValueError("normalize='weights' is for plain inverse propensities, without base= and policy_aware=True")


def _mean_ratios(log: ClickLog, clicks: np.ndarray, propensities: np.ndarray) -> np.ndarray:
    """The mean clicks of each document over its mean propensity; the number of sessions cancels."""
    total, seen = (np.bincount(log.document, each, minlength=len(log.documents)) for each in (clicks, propensities))
    return np.divide(total, seen, out=np.zeros(len(seen)), where=seen > 0)


def _sessions(log: ClickLog) -> np.ndarray:
    """The number of sessions of the query of each document; 0 if it was never shown."""
    query = log.query_of_document
    return np.where(query >= 0, log.sessions_of_queries()[query] if len(log.queries) else 0, 0)


def _checked(values: Any, name: str, log: ClickLog) -> np.ndarray:
    found = np.minimum(values.values, 1) if isinstance(values, Propensities) else as_numbers(name, values).astype(float)
    longest = int(log.position.max(initial=0))
    if found.ndim != 1 or len(found) < longest or not np.isfinite(found).all():
        raise ValueError(
            f"{name} must be finite numbers for ranks 1 to {longest}, which the log has; got {len(np.atleast_1d(found))}"
        )
    return found


def _checked_propensities(propensities: Any, clip: float | None, log: ClickLog) -> np.ndarray:
    known = _checked(propensities, "propensities", log)
    wrong = ~((known > 0) & (known <= 1))
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(f"propensities must be above 0 and at most 1; that of rank {at + 1} is {known[at]:g}")
    if clip is None:
        return known
    if not 0 < clip <= 1:
        raise ValueError(f"clip must be above 0 and at most 1, got {clip}")
    return np.maximum(known, clip)
