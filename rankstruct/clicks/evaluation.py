"""Evaluation of a new ranker from the clicks on the rankings of another (counterfactual): no new sessions, no judgements.

The value of a session is the sum over documents of the measure's discount at their rank times r, their attraction, in place of
the gain. With the estimates of `estimate_relevance` for r this is

    IPS             the default; with `clip=` of less variance and biased; with `policy_aware=True` or `exposure=` right for
                    random rankings with a cut-off
    SNIPS           `normalize="weights"`: divided by the estimated sum of r, so the mean discount of an attractive document; on
                    this scale, from 0 to the largest discount, its bias vanishes as clicks become more
    doubly robust   `prediction=`, with one of the above; the prediction also stands in for documents never shown

and the estimate is its mean over the sessions, so frequent queries count more. It is unbiased if r is. nDCG is not such a sum,
for it is divided by the value of the ideal ranking, whose estimate from clicks is biased; such measures are refused.

Source: Joachims, Swaminathan, Schnabel, WSDM 2017; Agarwal, Takatsu, Zaitsev, Joachims, SIGIR 2019; Swaminathan and Joachims,
"The Self-Normalized Estimator for Counterfactual Learning", NIPS 2015; Oosterhuis, TOIS 2023 (doubly robust).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankstruct.arrays import as_numbers
from rankstruct.checks import check_choice
from rankstruct.clicks.log import ClickLog, common_numbers
from rankstruct.clicks.relevance import checked_by_document, estimate_relevance
from rankstruct.ids import known_ids
from rankstruct.measures import DiscountedGain, Measure, parse_measure
from rankstruct.statistics import bootstrap_interval

__all__ = ["ClickEvaluation", "evaluate_from_clicks"]


@dataclass(frozen=True, eq=False)
class ClickEvaluation:
    """The value of a ranker, estimated from clicks, and its confidence interval.

    Attributes:
        value: the estimate.
        low: the lower end of the interval, a bootstrap over queries.
        high: the upper end.
        confidence: its level.
        queries: `[queries]`, the ids of the queries with sessions.
        values: `[queries]`, what each contributes; the mean is `value`. Those of two rankers, from the same log, can be compared
            by `rankstruct.statistics.compare_paired`, and their differences by `bootstrap_interval`.

    >>> ClickEvaluation(0.5, 0.25, 0.75, 0.95, np.array(["a", "b"]), np.array([0.25, 0.75]))
    ClickEvaluation(0.5 [0.25, 0.75]; 95 % confidence, 2 queries)
    """

    value: float
    low: float
    high: float
    confidence: float
    queries: np.ndarray
    values: np.ndarray

    def __repr__(self) -> str:
        """Value, interval and the number of queries."""
        interval = f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"
        return f"ClickEvaluation({interval}; {100 * self.confidence:g} % confidence, {len(self.queries)} queries)"


def evaluate_from_clicks(
    log: ClickLog,
    scores: Any,
    measure: str | Measure,
    propensities: Any,
    *,
    query: Any = None,
    document: Any = None,
    prediction: Any = None,
    normalize: str = "sessions",
    confidence: float = 0.95,
    seed: int = 0,
    **options: Any,
) -> ClickEvaluation:
    """Estimate the value of a ranker for users from a log of another one's rankings; see `rankstruct.clicks.evaluation`.

    Args:
        log: the log.
        scores: of the ranker: of all candidates, `[candidates]`, with their ids; or `[documents]`, by the number in a log whose
            order `log.with_documents` has stated. For tied documents the expected discount counts.
        measure: a discounted gain that is not normalised, such as `"DCG@10"`, `"P@5"`, `"RBP(patience=0.8)"`.
        propensities: of the log's rankings, as for `estimate_relevance`.
        query: `[candidates]`, ids as in the log; None for `scores` by number. Necessary if the ranker ranks documents that were
            never shown. Queries without sessions are ignored.
        document: `[candidates]`, ids as in the log. Every document of the log must be a candidate.
        prediction: of the shape of `scores`, the attraction that a regression model predicts.
        normalize: `"sessions"` or `"weights"`.
        confidence: the level of the interval, which takes the queries as a sample, with all their sessions, and the propensities
            for true.
        seed: of the bootstrap.
        options: `base`, `clip`, `policy_aware`, `exposure` (`[documents]`, in a stated order) of `estimate_relevance`.

    Raises:
        ValueError: no rows; no clicks with `normalize="weights"`; a measure that is not such a sum or that needs labels; scores
            or ids that do not match the log; or what `estimate_relevance` refuses.

    >>> given = {"query": [1, 1, 1, 1, 2, 2], "document": [5, 6, 5, 6, 5, 7], "position": [1, 2, 1, 2, 1, 2]}
    >>> log = ClickLog.from_arrays(**given, click=[1, 0, 0, 1, 0, 1], session=[0, 0, 1, 1, 2, 2])
    >>> evaluate_from_clicks(log, [1, 2, 2, 1], "DCG@1", [1.0, 0.5], query=[1, 1, 2, 2], document=[5, 6, 5, 7])
    ClickEvaluation(0.6667 [0.2222, 1.111]; 95 % confidence, 2 queries)
    """
    chosen = _checked_measure(measure)
    if not len(log):
        raise ValueError("the log has no rows")
    check_choice("normalize", normalize, ("sessions", "weights"))
    candidates, sessions = _Candidates.matched(log, scores, query, document), log.sessions_of_queries()
    gains = candidates.gains(log, propensities, prediction, options)
    totals = np.bincount(candidates.query, candidates.discounts(chosen) * gains, len(sessions))
    sizes = sessions if normalize == "sessions" else np.bincount(candidates.query, gains, len(sessions))
    value, values = _ratio(totals[sessions > 0], sizes[sessions > 0])
    low, high = bootstrap_interval(values, confidence, seed=seed)
    return ClickEvaluation(value, low, high, confidence, log.queries[sessions > 0], values)


def _ratio(totals: np.ndarray, sizes: np.ndarray) -> tuple[float, np.ndarray]:
    """The ratio of the sums over queries, and what each contributes, linearised."""
    if not sizes.sum() > 0:
        raise ValueError(
            "normalize='weights' divides by the estimated relevance of all documents, which is not above 0: the log has no "
            "clicks, or too few; use normalize='sessions'"
        )
    value = float(totals.sum() / sizes.sum())
    return value, value + (totals - value * sizes) / sizes.mean()


def _checked_measure(measure: str | Measure) -> DiscountedGain:
    found = parse_measure(measure)
    if not isinstance(found, DiscountedGain) or found.normalized:
        raise ValueError(
            f"{found.name} cannot be estimated from clicks without bias, since it is not a sum over documents of discounts times "
            "gains, or is divided by the value of the best ranking, which is unknown; use DCG, P, RBP or WTA, such as 'DCG@10'"
        )
    if found.min_relevant is not None:
        raise ValueError(f"{found.name} needs grades, which clicks do not have; leave out min_relevant")
    return found


@dataclass(frozen=True)
class _Candidates:
    """The documents that the ranker ranks, of the queries of the log.

    Attributes:
        score: `[candidates]`.
        query: `[candidates]`, the number of the query in the log.
        document: `[candidates]`, the number of the document in the log; -1 if it was never shown.
        kept: `[candidates]`, the indices in what the caller passed.
        given: how many the caller passed.
    """

    score: np.ndarray
    query: np.ndarray
    document: np.ndarray
    kept: np.ndarray
    given: int

    @classmethod
    def matched(cls, log: ClickLog, scores: Any, query: Any, document: Any) -> _Candidates:
        """From scores by the number of the document, or by ids."""
        if (query is None) != (document is None):
            raise ValueError("pass both query= and document=, the ids of each score, or neither")
        if query is None or document is None:
            score = checked_by_document(scores, "scores", log)
            owner, every = log.query_of_document, np.arange(len(score))
            if (owner < 0).any():
                raise ValueError(
                    f"document {log.documents[int((owner < 0).argmax())]} was never shown, so its query is unknown; pass "
                    "query= and document=, the ids of each score"
                )
            return cls(score, owner, every, every, len(score))
        score = as_numbers("scores", scores).astype(np.float64)
        ids = {"query": known_ids("query", query), "document": known_ids("document", document)}
        if score.ndim != 1 or any(each.shape != score.shape for each in ids.values()) or not np.isfinite(score).all():
            shapes = {"scores": score.shape} | {name: each.shape for name, each in ids.items()}
            raise ValueError(f"scores must be finite, and scores, query and document one per candidate; got {shapes}")
        of_log, number = common_numbers(log.queries, ids["query"])
        place = np.full(max(of_log.max(initial=-1), number.max(initial=-1)) + 1, -1)
        place[of_log] = np.arange(len(of_log))
        kept = np.flatnonzero(place[number] >= 0)
        matched = _matching(log, ids["query"][kept], ids["document"][kept], kept)
        return cls(score[kept], place[number][kept], matched, kept, len(score))

    def gains(self, log: ClickLog, propensities: Any, prediction: Any, options: dict[str, Any]) -> np.ndarray:
        """The estimated attraction of each candidate, times the number of sessions of its query."""
        found, own, shown = np.zeros(len(self.query)), None, self.document >= 0
        if prediction is not None:
            predicted = as_numbers("prediction", prediction).astype(np.float64)
            if predicted.shape != (self.given,) or not np.isfinite(predicted).all():
                raise ValueError(
                    f"prediction must be a finite number for each of the {self.given} scores; got shape {predicted.shape}"
                )
            own, found = np.zeros(len(log.documents)), predicted[self.kept] * log.sessions_of_queries()[self.query]
            own[self.document[shown]] = predicted[self.kept][shown]
        if options.get("exposure") is not None:
            log.check_order("exposure")
        # `own` has the order of the log
        relevance = estimate_relevance(log.with_documents(), propensities, prediction=own, normalize="none", **options)
        found[shown] = relevance[self.document[shown]]
        return found

    def discounts(self, measure: DiscountedGain) -> np.ndarray:
        """The discount of the measure at each candidate's rank, the mean over tied documents."""
        order = np.lexsort((-self.score, self.query))
        query, score = self.query[order], self.score[order]
        first = np.diff(query, prepend=-1) != 0
        begins = np.flatnonzero(first)
        rank = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
        weights = measure.position_weights(int(rank.max()) + 1).numpy()[rank]
        starts = np.flatnonzero(first | (np.diff(score, prepend=np.nan) != 0))
        sizes = np.diff(np.append(starts, len(order)))
        found = np.empty(len(order))
        found[order] = np.repeat(np.add.reduceat(weights, starts) / sizes, sizes)
        return found


def _matching(log: ClickLog, query: np.ndarray, document: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The number of each candidate in the log, -1 if it was never shown; `kept` are their indices in the input."""
    place = log.rows_of_documents(query, document, kept)
    owner = log.query_of_document
    if (gone := np.flatnonzero((owner >= 0) & (place < 0))).size:
        raise ValueError(
            f"every document of the log must be a candidate; document {log.documents[gone[0]]} of query "
            f"{log.queries[owner[gone[0]]]} is not: give what the ranker does not retrieve the lowest score"
        )
    found = np.full(len(query), -1)
    found[place[place >= 0]] = np.flatnonzero(place >= 0)
    return found
