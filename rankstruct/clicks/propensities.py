"""Propensities of ranks, estimated from click logs: the probability that a user examines a rank, relative to rank 1.

All estimators here assume the position-based model, in which a document at rank k is clicked with probability p_k a, a its own.
They compare clicks on the same document of the same query at different ranks, so the log must show documents at several: by
randomised swaps, by several rankers, or by one that changes. Regression EM with features needs no such changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtri

from rankstruct.checks import check_numbers
from rankstruct.clicks.conditional import maximise
from rankstruct.clicks.log import ClickLog

__all__ = ["Propensities", "harvest_propensities", "propensities_by_em", "propensities_by_swaps"]


@dataclass(frozen=True, eq=False)
class Propensities:
    """Propensities of ranks, relative to rank 1, and confidence intervals; also several, by query.

    Attributes:
        values: `[ranks]` or `[queries, ranks]`, 1 for rank 1; by noise above 1 for others at times.
        low: likewise, the lower ends of the intervals, which are symmetric in the logarithm.
        high: likewise, the upper ends.
        confidence: their level.
        queries: `[queries]`, the ids of the queries, as in the log, where values differ by query.

    >>> Propensities(np.array([1.0, 0.5]), np.array([1.0, 0.4]), np.array([1.0, 0.625]), 0.95)
    Propensities(1, 0.5 [0.4, 0.625]; 95 % confidence)
    """

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    confidence: float
    queries: np.ndarray | None = None

    def __repr__(self) -> str:
        """Values and intervals; of several, the numbers of queries and ranks."""
        if self.values.ndim > 1:
            queries, ranks = self.values.shape
            return f"Propensities(queries={queries}, ranks={ranks}; {100 * self.confidence:g} % confidence)"
        ranks = zip(self.values[1:], self.low[1:], self.high[1:], strict=True)
        shown = [f"{value:.3g} [{low:.3g}, {high:.3g}]" for value, low, high in ranks]
        return f"Propensities({', '.join(['1', *shown])}; {100 * self.confidence:g} % confidence)"


def propensities_by_swaps(log: ClickLog, *, confidence: float = 0.95) -> Propensities:
    """Estimate propensities by randomised swaps of rank 1 with others: from the documents shown both at rank 1 and at rank k.

    The ratio of the click rates of these documents at the two ranks, a Mantel-Haenszel mean over the documents, with the variance
    of Greenland and Robins, which holds for many documents shown rarely as well as for few shown often.
    Any log that shows documents at rank 1 and elsewhere will do, if what moved
    them is independent of what users want.

    Args:
        log: the log.
        confidence: the level of the intervals.

    Raises:
        ValueError: no document is shown both at rank 1 and at one of the others, or none of them is clicked at one of the two.

    Source: Joachims, Swaminathan, Schnabel, WSDM 2017, section 5.3; Mantel and Haenszel, JNCI 1959; Greenland and Robins,
    "Estimation of a Common Effect Parameter from Sparse Follow-Up Data", Biometrics 1985.

    >>> session = np.repeat(np.arange(20_000), 2)  # each shows a and b, by turns
    >>> position, chance = np.tile([1, 2, 2, 1], 10_000), np.tile([0.8, 0.1, 0.4, 0.2], 10_000)  # rank 2 is seen half as often
    >>> click = np.random.default_rng(0).random(40_000) < chance
    >>> log = ClickLog.from_arrays(["q"] * 40_000, ["a", "b"] * 20_000, position, click, session)
    >>> propensities_by_swaps(log)
    Propensities(1, 0.497 [0.485, 0.51]; 95 % confidence)
    """
    cells = Cells(log)
    logs, errors = np.zeros(cells.ranks), np.zeros(cells.ranks)
    for rank in range(1, cells.ranks):
        found = cells.against_first(rank)
        if found is None:
            raise ValueError(
                f"rank {rank + 1} cannot be compared with rank 1: no document, or none with clicks, is shown at both; "
                "harvest_propensities also compares the other ranks"
            )
        logs[rank], errors[rank] = found[0], np.sqrt(found[1])
    return with_intervals(logs, errors, confidence)


def harvest_propensities(log: ClickLog, *, confidence: float = 0.95) -> Propensities:
    """Estimate propensities from all pairs of ranks at which a log shows the same documents (intervention harvesting).

    The propensities maximise the likelihood of the ranks at which each document is clicked, given the number of its clicks, from
    which its own click probability cancels. They are as good for many documents that are shown rarely as for few shown often.
    `propensities_by_context` does the same with features of the queries.

    Args:
        log: the log, of several rankers, or of one that changes, where users do not depend on the ranker.
        confidence: the level of the intervals.

    Raises:
        ValueError: ranks that no chain of pairs with clicks connects to rank 1, or with too few clicks.

    Source: Agarwal, Zaitsev, Wang, Li, Najork, Joachims, "Estimating Position Bias without Intrusive Interventions", WSDM 2019
    (all pairs; here by conditional likelihood).

    >>> session = np.repeat(np.arange(20_000), 2)  # each shows a and b, by turns
    >>> position, chance = np.tile([1, 2, 2, 1], 10_000), np.tile([0.8, 0.1, 0.4, 0.2], 10_000)  # rank 2 is seen half as often
    >>> click = np.random.default_rng(0).random(40_000) < chance
    >>> log = ClickLog.from_arrays(["q"] * 40_000, ["a", "b"] * 20_000, position, click, session)
    >>> harvest_propensities(log)
    Propensities(1, 0.497 [0.485, 0.51]; 95 % confidence)
    """
    cells = Cells(log)
    cells.check_connected()
    logs, errors = np.zeros(cells.ranks), np.zeros(cells.ranks)
    if cells.ranks > 1:
        found, chances, inverse = maximise(cells.shown, cells.clicked, np.ones((len(cells.shown), 1)))
        logs[1:] = found[:, 0]
        spread = cells.variances(np.exp(logs))
        for rank, weights in enumerate(np.pad(inverse, ((0, 0), (1, 0))), 1):
            influence = weights - (chances @ weights)[:, None]  # of a click on each document at each rank
            errors[rank] = np.sqrt((influence**2 * spread).sum())
    return with_intervals(logs, errors, confidence)


def propensities_by_em(
    log: ClickLog,
    features: Any = None,
    *,
    regressor: Any = None,
    max_iterations: int | None = None,
    tolerance: float = 1e-5,
    confidence: float = 0.95,
) -> Propensities:
    """Estimate propensities by expectation maximisation, with a click probability for each document or from its features.

    Without features each document has a probability of its own, and the log must show documents at several ranks, and often: with
    few clicks per document the estimates are too high, and the intervals miss the true values. With features (regression EM) a
    regressor is fitted to the expected attraction of the documents in each iteration. Relevance must then be a function of the
    features, and not of the rank: what the regressor cannot explain counts as position bias.

    Args:
        log: the log.
        features: a data frame with columns of queries and documents, by which its rows are found; or `[documents, d]`, by the
            number of the document in the log, for a log whose order `log.with_documents` has stated.
        regressor: an object with `fit(X, y, sample_weight)` and `predict_proba(X)`, as scikit-learn's classifiers; None for
            gradient boosting.
        max_iterations: None for 2000 without features and 30 with them.
        tolerance: stop when no log propensity changes by more than this.
        confidence: the level of the intervals, which are those of maximum likelihood: with features they take the regressor for
            true, up to a factor.

    Raises:
        ValueError: no click; ranks that share no documents with the others, without features; features of a wrong shape, or
            without names and stated order.

    Source: Wang, Golbandi, Bendersky, Metzler, Najork, "Position Bias Estimation for Unbiased Learning to Rank in Personal
    Search", WSDM 2018.

    >>> session = np.repeat(np.arange(20_000), 2)  # each shows a and b, by turns
    >>> position, chance = np.tile([1, 2, 2, 1], 10_000), np.tile([0.8, 0.1, 0.4, 0.2], 10_000)  # rank 2 is seen half as often
    >>> click = np.random.default_rng(0).random(40_000) < chance
    >>> log = ClickLog.from_arrays(["q"] * 40_000, ["a", "b"] * 20_000, position, click, session)
    >>> propensities_by_em(log)
    Propensities(1, 0.499 [0.487, 0.511]; 95 % confidence)
    """
    log, rows = (log, None) if features is None else log.of_features(features)
    cells = Cells(log, several=features is None)
    if not log.click.any():
        raise ValueError("the log has no clicks, so nothing can be estimated from it")
    given = None if rows is None else rows[cells.documents]
    if given is None:
        cells.check_connected()
    most = max_iterations or (2000 if given is None else 30)
    examined, attracts = _maximise(cells, given, regressor, most, tolerance)
    errors = _errors_of_maximum(cells, examined, attracts, together=given is not None)
    return with_intervals(np.log(examined / examined[0]), errors, confidence)


def _maximise(
    cells: Cells, features: np.ndarray | None, regressor: Any, most: int, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """The propensities `[ranks]` and attractions `[documents]` that expectation maximisation ends at."""
    shown, clicked = cells.shown, cells.clicked
    examined = np.full(cells.ranks, 0.5)
    rates = np.clip(2 * clicked.sum(1) / shown.sum(1), 0.01, 0.99)
    attracts = rates if features is None else np.full(len(shown), 0.5)
    for _ in range(most):
        chance = np.minimum(examined * attracts[:, None], 1 - 1e-12)
        # In a cell, of the rows without a click: examined and not attractive, attractive and not examined.
        rest, before = (shown - clicked) / (1 - chance), examined
        examined = (clicked + rest * (examined * (1 - attracts)[:, None])).sum(0) / shown.sum(0)
        attracts = (clicked + rest * (attracts[:, None] * (1 - before))).sum(1) / shown.sum(1)
        if features is not None:
            attracts = _regressed(regressor, features, attracts, shown.sum(1))
        attracts = np.clip(attracts, 1e-9, 1 - 1e-9)
        if np.abs(np.log(examined / before) - np.log(examined[0] / before[0])).max() < tolerance:
            break
    return examined, attracts


def _errors_of_maximum(cells: Cells, examined: np.ndarray, attracts: np.ndarray, together: bool) -> np.ndarray:
    """Standard errors of the log propensities, from the Fisher information.

    What is known about the attractions is removed: one of each document, or one factor for all if `together`.
    """
    if cells.ranks == 1:
        return np.zeros(1)
    chance = np.minimum(examined * attracts[:, None], 1 - 1e-9)
    information = cells.shown * chance / (1 - chance)  # of the logarithm of the chance
    information = information.sum(0, keepdims=True) if together else information
    total = np.maximum(information.sum(1, keepdims=True), 1e-300)
    curvature = np.diag(information.sum(0)) - (information / total).T @ information
    return np.concatenate([[0.0], np.sqrt(np.diag(np.linalg.inv(curvature[1:, 1:])))])


class Cells:
    """How often documents were shown and clicked at each rank, `[documents, ranks]`; without those shown at one rank only."""

    def __init__(self, log: ClickLog, several: bool = True) -> None:
        if not len(log):
            raise ValueError("the log has no rows")
        self.ranks = int(log.position.max())
        cell = log.document.astype(np.int64) * self.ranks + (log.position - 1)
        used, place = np.unique(cell, return_inverse=True)
        counts = np.bincount(place), np.bincount(place, log.click)
        its_document, rank = used // self.ranks, used % self.ranks
        if missing := sorted(set(range(self.ranks)) - set(np.unique(rank).tolist())):
            raise ValueError(f"the log shows no document at rank {missing[0] + 1}, but at rank {self.ranks}")
        documents, row = np.unique(its_document, return_inverse=True)
        kept = np.bincount(row) > 1 if several and self.ranks > 1 else np.ones(len(documents), bool)
        self.documents = documents[kept]
        rows = np.cumsum(kept) - 1
        chosen = kept[row]
        self.shown, self.clicked = np.zeros((2, len(self.documents), self.ranks))
        for table, count in zip((self.shown, self.clicked), counts, strict=True):
            table[rows[row[chosen]], rank[chosen]] = count[chosen]

    def against_first(self, rank: int) -> tuple[float, float] | None:
        """The log ratio of the propensities of a rank, from 0, and the first one, and its variance; None if it has none."""
        both = (self.shown[:, rank] > 0) & (self.shown[:, 0] > 0)
        n, m = self.shown[both, rank], self.shown[both, 0]
        c, d = self.clicked[both, rank], self.clicked[both, 0]
        of_rank, of_first = float((c * m / (n + m)).sum()), float((d * n / (n + m)).sum())
        if not (of_rank > 0 and of_first > 0):
            return None
        spread = ((n * m * (c + d) - c * d * (n + m)) / (n + m) ** 2).sum()
        # 0 if everything was clicked
        return float(np.log(of_rank / of_first)), max(spread / (of_rank * of_first), 1e-12)

    def variances(self, propensities: np.ndarray) -> np.ndarray:
        """The variances of the clicks, `[documents, ranks]`, with one click probability for each document."""
        expected = (self.shown * propensities).sum(1)
        chance = np.minimum((self.clicked.sum(1) / expected)[:, None] * propensities, 1)
        # A document's own probability was fitted to its clicks, which takes one degree of freedom of its impressions.
        total = self.shown.sum(1, keepdims=True)
        return self.shown * chance * (1 - chance) * total / np.maximum(total - 1, 1)

    def check_connected(self) -> None:
        """Raise ValueError for ranks without a chain of documents, clicked and shown at two of them, from rank 1."""
        clicked = self.shown[self.clicked.any(1)] > 0
        groups = connected_components(clicked.T.astype(float) @ clicked, directed=False)[1]
        if (groups != groups[0]).any():
            apart = np.flatnonzero(groups != groups[0]) + 1
            raise ValueError(
                f"rank {apart[0]} cannot be compared with rank 1, not even by way of other ranks: no document, or none with "
                "clicks, is shown at both. Log sessions with randomised swaps or another ranker, or use propensities_by_em with "
                "features"
            )


def with_intervals(logs: np.ndarray, errors: np.ndarray, confidence: float, queries: Any = None) -> Propensities:
    """Propensities of these logarithms, with intervals from their standard errors."""
    check_numbers("> 0 and < 1", confidence=confidence)
    wide = ndtri(0.5 + confidence / 2) * errors
    return Propensities(np.exp(logs), np.exp(logs - wide), np.exp(logs + wide), confidence, queries)


def _regressed(regressor: Any, features: np.ndarray, attracts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The attraction that a classifier predicts, fitted to each document as both classes, by its expected attraction."""
    if regressor is None:
        from sklearn.ensemble import HistGradientBoostingClassifier

        regressor = HistGradientBoostingClassifier(max_iter=50, early_stopping=False)
    classes = np.repeat([1, 0], len(features))
    each = np.concatenate([weights * attracts, weights * (1 - attracts)])
    regressor.fit(np.concatenate([features, features]), classes, sample_weight=each)
    return regressor.predict_proba(features)[:, 1]
