"""Measures of rankings under rules, relative to the best ranking that keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.constraints.documents import Documents
from rankstruct.constraints.ranking import PageRanker, warn_of_gaps
from rankstruct.constraints.rules import RulesLike
from rankstruct.lists import as_real
from rankstruct.measures import AP, RR, DiscountedGain, Measure, R, Success, evaluate, nDCG
from rankstruct.measures.base import ByMeasure, parse_measures

__all__ = ["UnderRules", "evaluate_under", "report_under"]

#: Measures that only gain when a relevant document moves up, so that one ranking is best for all of them.
_BY_POSITION = (AP, RR, R, Success)


def evaluate_under(
    scores: Any,
    labels: Any,
    measures: str | Measure | Iterable[str | Measure],
    constraints: RulesLike,
    columns: Mapping[str, Any],
    *,
    k: int | None = None,
    positions: Any = None,
    empty: float = 0.0,
    time_limit: float = 10.0,
    **lists: Any,
) -> dict[str, Tensor]:
    """Evaluate the rankings of `rank_under`, relative to the best ranking of each list that keeps the rules.

    1 is what a perfect scorer would reach on pages with these rules. Documents that the rules keep from being shown count as
    missed. Equal scores are ordered lowest labels first, so that ties never help. Where the ranking by score depends on the
    discount, it is log2.

    Args:
        scores, constraints, columns, k, positions, time_limit, lists: as of `rank_under`.
        labels: graded relevance, 0 or more, in the shape of the scores.
        measures: discounted gains (nDCG, DCG, P, ERU, RBP), AP, RR, R and Success; one or several.
        empty: the value of a list whose best ranking is worth nothing, such as `nan`.

    Returns:
        `{name: [lists] float64}`.

    Raises:
        TypeError, ValueError: as `rank_under`; labels below 0; another measure; or one other than a discounted gain where
            the best ranking depends on the discount: with caps and quotas about several prefixes, or overlapping groups.

    >>> scores, labels, sellers = [0.9, 0.8, 0.7], [1, 2, 1], ["a", "a", "b"]
    >>> evaluate_under(scores, labels, "DCG@2", "seller <= 1 @ 2", {"seller": sellers})  # shows 1, 1; the best 2, 1
    {'DCG@2': tensor([0.4492], dtype=torch.float64)}
    """
    given: dict[str, Any] = {"k": k, "positions": positions, "empty": empty, "time_limit": time_limit}
    return report_under(scores, labels, measures, constraints, columns, **given, **lists).values


class UnderRules(NamedTuple):
    """What rules do to rankings.

    Attributes:
        values: as of `evaluate_under`.
        before: for each rule, as text, the number of lists whose ranking by score breaks it, within the first `k`.
        after: that of lists whose ranking under rules does, which is 0.
        gaps: `[lists]`, how far the least sure of its rankings may be from the best, as of `rank_certified`.

    >>> found = report_under([2.0, 1.0, 0.0], [1, 0, 1], "P@2", "seller <= 1 @ 2", {"seller": ["a", "a", "b"]})
    >>> found.before, found.after
    ({'seller <= 1 @ 2': 1}, {'seller <= 1 @ 2': 0})
    """

    values: dict[str, Tensor]
    before: dict[str, int]
    after: dict[str, int]
    gaps: Tensor


def report_under(
    scores: Any,
    labels: Any,
    measures: str | Measure | Iterable[str | Measure],
    constraints: RulesLike,
    columns: Mapping[str, Any],
    *,
    k: int | None = None,
    positions: Any = None,
    empty: float = 0.0,
    time_limit: float = 10.0,
    **lists: Any,
) -> UnderRules:
    """Measures under rules, and how many lists break each rule before and after.

    Args:
        scores, labels, measures, constraints, columns, k, positions, empty, time_limit, lists: as of `evaluate_under`.

    Raises:
        TypeError, ValueError: as `evaluate_under`.

    >>> scores, labels, sellers = [0.9, 0.8, 0.7], [1, 2, 1], ["a", "a", "b"]
    >>> report_under(scores, labels, "DCG@2", "seller <= 1 @ 2", {"seller": sellers}).before
    {'seller <= 1 @ 2': 1}
    """
    if not isinstance(empty, Real):
        raise TypeError(f"empty must be a number, got {empty!r}")
    parsed = parse_measures(measures)
    for measure in parsed:
        if not isinstance(measure, (DiscountedGain, *_BY_POSITION)):
            raise ValueError(
                f"{measure.name} has no best ranking under rules; use a discounted gain such as nDCG@10, AP, RR, R or Success"
            )
    documents = Documents.of(scores, constraints, columns, lists)
    grades = _grades(labels, documents)
    pinned = None if positions is None else documents.in_order(positions, "positions")
    worst_first = np.lexsort((grades, documents.of_list))
    documents, grades = documents.reordered(worst_first), grades[worst_first]
    ranker = PageRanker(documents, None if pinned is None else pinned[worst_first], k, time_limit)
    shown, found = ranker.rank(documents.scores, nDCG().position_weights), {}
    gaps = [ranker.gaps]
    for measure in parsed:
        worth = measure.worth(torch.from_numpy(grades)).double().numpy()
        discount = measure.position_weights if isinstance(measure, DiscountedGain) else None
        best = ranker.rank(worth, discount, measure.name)
        gaps.append(ranker.gaps)
        value, ideal = (_value(measure, ranks, grades, documents) for ranks in (shown, best))
        found[measure.name] = torch.where(ideal > 0, value / ideal, float(empty))
    largest = np.max(gaps, axis=0)
    warn_of_gaps(largest, time_limit)
    before, after = (documents.broken(ranks) for ranks in (documents.by_score(ranker.length), shown))
    return UnderRules(ByMeasure(found), before, after, torch.from_numpy(largest))


def _grades(labels: Any, documents: Documents) -> np.ndarray:
    """The labels as the documents are."""
    grades = documents.given(as_real("labels", labels), "labels").astype(np.float64)
    if not (grades >= 0).all():
        raise ValueError(f"labels must be 0 or more, got {grades[~(grades >= 0)][0]:g}")
    return grades


def _value(measure: Measure, ranks: np.ndarray, grades: np.ndarray, documents: Documents) -> Tensor:
    """The measure of the documents shown, where the best ranking is that of all documents."""
    shown = ranks > 0
    counts = np.bincount(documents.of_list[shown], minlength=documents.lists)
    labels = torch.from_numpy(grades)
    return evaluate(
        torch.from_numpy(-ranks[shown].astype(np.float64)),
        labels[torch.from_numpy(shown)],
        measure,
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        ideal_labels=labels,
        ideal_offsets=documents.offsets,
    )[measure.name]
