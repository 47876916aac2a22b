"""Fusion of runs: one ranking from those of several systems, from their ranks or their scores.

Runs are `{query: {docid: score}}`, as `rankstruct.data.read_run` returns them; a higher score is better. A document that a run
did not retrieve adds nothing; a query that a run lacks is fused from the others. Tied documents of a run stay in its order.

Sources: reciprocal rank fusion, Cormack, Clarke and Büttcher, SIGIR 2009; CombSUM and CombMNZ, Fox and Shaw, TREC-2, 1993. The
values are those of ranx for runs of the same queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from rankstruct.data.errors import check_numbers
from rankstruct.messages import did_you_mean

__all__ = ["fuse_runs"]

Method = Literal["rrf", "combsum", "combmnz"]
Normalisation = Literal["min-max", "z-score", "max", "sum", "rank", "none"]
_LEAST = 1e-9  # of what scores are divided by

Run = Mapping[str, Mapping[str, float]]


def fuse_runs(
    runs: Sequence[Run], method: Method = "rrf", *, normalisation: Normalisation = "min-max", k: float = 60.0
) -> dict[str, dict[str, float]]:
    """Fuse two or more runs; returns a run, with the documents of each query from the best to the worst.

    Args:
        runs: of the same documents; their queries may differ.
        method: `"rrf"`, the sum of 1 / (k + rank) over the runs; `"combsum"`, the sum of the normalised scores; `"combmnz"`, that
            sum times the number of runs that retrieved the document.
        normalisation: of the scores of a query in a run, for combsum and combmnz. `"min-max"`, to 0 ... 1; `"z-score"`, mean 0
            and standard deviation 1; `"max"`, divided by the largest; `"sum"`, less the least, divided by their sum; `"rank"`,
            1 - (rank - 1) / n; or `"none"`. Numbers to divide by are at least 1e-9, so that equal scores become 0, but 1e9 times
            larger by `"max"` if none is above 0.
        k: of reciprocal rank fusion, above 0; the larger, the less the first ranks count.

    Raises:
        ValueError: fewer than two runs, an unknown method or normalisation, or a score that is not finite.

    >>> a, b = {"q": {"x": 9.0, "y": 7.0, "z": 1.0}}, {"q": {"y": 0.9, "x": 0.8}}
    >>> {docid: round(score, 4) for docid, score in fuse_runs([a, b])["q"].items()}
    {'x': 0.0325, 'y': 0.0325, 'z': 0.0159}
    >>> fuse_runs([a, b], "combsum")["q"]
    {'y': 1.75, 'x': 1.0, 'z': 0.0}
    """
    for name, value, known in (
        ("method", method, get_args(Method)),
        ("normalisation", normalisation, get_args(Normalisation)),
    ):
        if value not in known:
            raise ValueError(
                f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}{did_you_mean(str(value), known)}"
            )
    check_numbers("a number above 0", lambda value: value > 0, k=k)
    if isinstance(runs, Mapping) or len(runs) < 2:
        raise ValueError(f"runs must be two or more, as a list, got {1 if isinstance(runs, Mapping) else len(runs)}")
    fused: dict[str, dict[str, float]] = {}
    for query in dict.fromkeys(query for run in runs for query in run):
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for number, run in enumerate(runs):
            names = list(run.get(query, {}))
            scores = np.fromiter(run.get(query, {}).values(), np.float64, len(names))
            if not np.isfinite(scores).all():
                at = int(np.flatnonzero(~np.isfinite(scores))[0])
                raise ValueError(
                    f"scores must be finite, got {scores[at]} of document {names[at]} in query {query} of run {number + 1}"
                )
            values = 1 / (k + _ranks(scores)) if method == "rrf" else _normalised(scores, normalisation)
            for name, value in zip(names, values.tolist(), strict=True):
                sums[name] = sums.get(name, 0.0) + value
                counts[name] = counts.get(name, 0) + 1
        if method == "combmnz":
            sums = {name: value * counts[name] for name, value in sums.items()}
        if not all(map(math.isfinite, sums.values())):
            raise ValueError(f"the scores of query {query} overflow float64 when they are fused; rescale the runs")
        fused[query] = dict(sorted(sums.items(), key=lambda item: -item[1]))
    return fused


def _ranks(scores: np.ndarray) -> np.ndarray:
    """1-based ranks of scores `[documents]`; tied ones in their order."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks


def _normalised(scores: np.ndarray, how: Normalisation) -> np.ndarray:
    """The scores `[documents]` of a query, normalised."""
    if how == "none" or not len(scores):
        return scores
    with np.errstate(over="ignore", invalid="ignore"):  # reported for the sum
        if how == "rank":
            return 1 - (_ranks(scores) - 1) / len(scores)
        if how == "max":
            return scores / max(scores.max(), _LEAST)
        if how == "z-score":
            return (scores - scores.mean()) / max(scores.std(), _LEAST)
        above = scores - scores.min()
        return above / max(above.max() if how == "min-max" else above.sum(), _LEAST)
