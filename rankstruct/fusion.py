"""Fusion of runs: one ranking from those of several systems, by a formula or by a ranker that learned from judged queries.

Runs are `{query: {docid: score}}`, as `rankstruct.data.read_run` returns them; a higher score is better. A document that a run
did not retrieve adds nothing; a query that a run lacks is fused from the others. Tied documents of a run stay in its order.

Learned fusion needs no model of its own: `run_lists` makes the runs an ordinary data set, on which any ranker trains, and
`fuse_runs` takes the fitted ranker, or its saved scorer, as its method.

Sources: reciprocal rank fusion, Cormack, Clarke and Büttcher, SIGIR 2009; CombSUM and CombMNZ, Fox and Shaw, TREC-2, 1993. The
values are those of ranx for runs of the same queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from sklearn.base import clone
from torch import nn

from rankstruct.checks import check_choice, check_integers, check_numbers
from rankstruct.columns import Columns
from rankstruct.data import DataError, RankingData, join_run, run_of
from rankstruct.data.names import Names
from rankstruct.data.runs import check_table, check_types, finite_numbers
from rankstruct.estimators import LinearRanker
from rankstruct.messages import shortened

__all__ = ["LearnedFusion", "fuse_runs", "learn_fusion", "run_lists"]

Method = Literal["rrf", "combsum", "combmnz"]
Normalisation = Literal["min-max", "z-score", "max", "sum", "rank", "none"]
_LEAST = 1e-9  # of what scores are divided by
_K = 60.0  # of reciprocal rank fusion
_FEATURES = ("score", "reciprocal rank", "missing")  # of a document in a run

Run = Mapping[str, Mapping[str, float]]


class LearnedFusion(NamedTuple):
    """What `learn_fusion` returns.

    Attributes:
        ranker: fitted to all judged queries; the `method` of `fuse_runs` for new runs.
        fused: the fused run of all queries. Judged ones are scored by rankers that were fitted without them.

    >>> LearnedFusion(None, {"q": {"a": 0.5}}).fused["q"]
    {'a': 0.5}
    """

    ranker: Any
    fused: dict[str, dict[str, float]]


def fuse_runs(
    runs: Sequence[Run],
    method: Method | Any = "rrf",
    *,
    normalisation: Normalisation | None = None,
    k: float | None = None,
) -> dict[str, dict[str, float]]:
    """Fuse two or more runs; returns a run, with the documents of each query from the best to the worst.

    Args:
        runs: of the same documents; their queries may differ.
        method: `"rrf"`, the sum of 1 / (k + rank) over the runs; `"combsum"`, the sum of the normalised scores; `"combmnz"`, that
            sum times the number of runs that retrieved the document; or a ranker fitted to `run_lists` of runs of the same
            systems in the same order, or its scorer.
        normalisation: of the scores of a query in a run, for combsum and combmnz. `"min-max"` (None), to 0 ... 1; `"z-score"`,
            mean 0 and standard deviation 1; `"max"`, divided by the largest; `"sum"`, less the least, divided by their sum;
            `"rank"`, 1 - (rank - 1) / n; or `"none"`. Numbers to divide by are at least 1e-9, so that equal scores become 0, but
            1e9 times larger by `"max"` if none is above 0.
        k: of reciprocal rank fusion, above 0; the larger, the less the first ranks count; 60 if None.

    Raises:
        ValueError: fewer than two runs, names of different types, an unknown method or normalisation, one or a k that the method
            does not use, a score that is not finite, or a ranker of another number of runs.

    >>> a, b = {"q": {"x": 9.0, "y": 7.0, "z": 1.0}}, {"q": {"y": 0.9, "x": 0.8}}
    >>> {docid: round(score, 4) for docid, score in fuse_runs([a, b])["q"].items()}
    {'x': 0.0325, 'y': 0.0325, 'z': 0.0159}
    >>> fuse_runs([a, b], "combsum")["q"]
    {'y': 1.75, 'x': 1.0, 'z': 0.0}
    """
    is_learned = isinstance(method, nn.Module) or hasattr(method, "to_scorer")
    normalisation, k = _options_of("a ranker" if is_learned else method, normalisation, k)
    if is_learned:
        data = run_lists(runs)
        return _with_names(run_of(data, _scores(method, data)), runs)
    _check_runs(runs)
    fused: dict[str, dict[str, float]] = {}
    for query in dict.fromkeys(query for run in runs for query in run):
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for number, run in enumerate(runs):
            names, scores = _retrieved(run, query, number)
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


def run_lists(runs: Sequence[Run], qrels: Run | None = None) -> RankingData:
    """Make two or more runs one data set, on which any ranker trains: a list a query, of the documents of any of the runs.

    A document has three features a run: its score, normalised to 0 ... 1 in the query, 61 / (60 + rank), and whether the run
    lacks it (1), so that the other two are 0. Their linear functions include CombSUM, reciprocal rank fusion with k = 60, and
    both with a weight for each run. Documents are in the order of the first run that has them.

    Args:
        runs: as for `fuse_runs`.
        qrels: `{query: {docid: label}}`, as `rankstruct.data.read_qrels` returns them; queries without judgements are then left
            out. Documents without a judgement, or with a negative label, have label 0, and what no run retrieved is not in the
            lists. If None, all labels are 0.

    Raises:
        ValueError: fewer than two runs, names of different types, or a score that is not finite.
        DataError: runs have no documents, or, with the qrels, no query or no document of one in common.

    >>> a, b = {"q": {"x": 9.0, "y": 7.0, "z": 1.0}}, {"q": {"y": 0.9, "x": 0.8}}
    >>> data = run_lists([a, b], {"q": {"y": 1}})
    >>> data.docids.tolist(), data.labels.tolist()
    (['x', 'y', 'z'], [0.0, 1.0, 0.0])
    >>> data.columns.names
    ['run 1: score', 'run 1: reciprocal rank', 'run 1: missing', 'run 2: score', 'run 2: reciprocal rank', 'run 2: missing']
    >>> data.features[1:].round(2)
    array([[0.75, 0.98, 0.  , 1.  , 1.  , 0.  ],
           [0.  , 0.97, 0.  , 0.  , 0.  , 1.  ]], dtype=float32)
    """
    _check_runs(runs)
    queries = list(dict.fromkeys(query for run in runs for query in run))
    if qrels is not None:
        queries = [query for query in queries if query in qrels] or queries
    places = {
        query: {name: at for at, name in enumerate(dict.fromkeys(name for run in runs for name in run.get(query, {})))}
        for query in queries
    }
    ends = np.cumsum([0, *map(len, places.values())])
    if not ends[-1]:
        raise DataError("the runs have no documents")
    features = np.zeros((ends[-1], len(runs), len(_FEATURES)), np.float32)
    features[..., -1] = 1.0
    for number, run in enumerate(runs):
        for first, (query, place) in zip(ends[:-1], places.items(), strict=True):
            names, scores = _retrieved(run, query, number)
            rows = first + np.array([place[name] for name in names], np.int64)
            values = (_normalised(scores, "min-max"), (_K + 1) / (_K + _ranks(scores)), np.zeros(len(scores)))
            features[rows, number] = np.stack(values, axis=1)
    labels = np.zeros(ends[-1], np.float32)
    if qrels is not None:
        every = {query: dict.fromkeys(place, 0.0) for query, place in places.items()}
        labels = join_run(every, qrels).arguments["labels"].astype(np.float32)
    names = [f"run {number}: {feature}" for number in range(1, len(runs) + 1) for feature in _FEATURES]
    return RankingData(
        features.reshape(ends[-1], -1),
        labels,
        ends,
        Names.of([str(query) for query in queries]),
        Names.of([str(name) for place in places.values() for name in place]),
        columns=Columns(dict.fromkeys(names)),
    )


def learn_fusion(
    runs: Sequence[Run], qrels: Run, ranker: Any = None, *, folds: int = 5, seed: int = 0
) -> LearnedFusion:
    """Fit a ranker to the runs of judged queries, and fuse the runs of all queries without scoring what was learned from.

    The fused run may be evaluated on the same qrels: each judged query is scored by a ranker that was fitted to the other folds.

    Args:
        runs: as for `fuse_runs`.
        qrels: as for `run_lists`.
        ranker: a ranker, which is not changed; `LinearRanker()` if None.
        folds: the number of folds of the judged queries, at least 2; one a query if there are fewer.
        seed: of the folds.

    Raises:
        ValueError: as `run_lists`, fewer than two judged queries, or none from which the ranker can learn.

    >>> rng = np.random.default_rng(0)
    >>> qrels = {f"q{at}": {f"d{rng.integers(20)}": 1} for at in range(40)}
    >>> def drawn(noise):
    ...     names = [f"d{at}" for at in range(20)]
    ...     return {q: {name: (name in judged) + noise * rng.normal() for name in names} for q, judged in qrels.items()}
    >>> runs = [drawn(0.5), drawn(9.0)]
    >>> learned = learn_fusion(runs, qrels)
    >>> sum(next(iter(found)) in qrels[query] for query, found in learned.fused.items()) > 20
    True
    >>> fuse_runs(runs, learned.ranker).keys() == learned.fused.keys()
    True
    """
    check_integers(2, folds=folds)
    data = run_lists(runs, qrels)
    if data.num_lists < 2:
        raise DataError(f"learned fusion needs two judged queries at least, one of them held out; got {data.num_lists}")
    ranker = LinearRanker() if ranker is None else ranker
    fitted = _fitted(ranker, data)
    fused = fuse_runs(runs, fitted)
    order = np.random.default_rng(seed).permutation(data.num_lists)
    for held in np.array_split(order, min(folds, data.num_lists)):
        other = _fitted(ranker, data.select(np.setdiff1d(order, held)))
        part = data.select(np.sort(held))
        fused |= _with_names(run_of(part, _scores(other, part)), runs)
    return LearnedFusion(fitted, fused)


def _options_of(method: str, normalisation: Normalisation | None, k: float | None) -> tuple[Normalisation, float]:
    """The options of a method, those that are None by default; raises ValueError for one that has no effect."""
    check_choice("method", "rrf" if method == "a ranker" else method, get_args(Method))
    if normalisation is not None and method not in ("combsum", "combmnz"):
        raise ValueError(f"normalisation= is of the methods combsum and combmnz, got it with {method}")
    if k is not None and method != "rrf":
        raise ValueError(f"k= is of the method rrf, got it with {method}")
    chosen: Normalisation = "min-max" if normalisation is None else normalisation
    check_choice("normalisation", chosen, get_args(Normalisation))
    if k is not None:
        check_numbers("> 0", k=k)
    return chosen, _K if k is None else k


def _with_names(fused: Run, runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """A fused run with the queries and documents of the runs, which `run_lists` has as text, in place of their texts."""
    queries = {str(query): query for run in runs for query in run}
    names = {str(name): name for run in runs for found in run.values() for name in found}
    return {queries[query]: {names[name]: score for name, score in found.items()} for query, found in fused.items()}


def _fitted(ranker: Any, data: RankingData) -> Any:
    return clone(ranker).fit(data.table, data.labels, data.list_numbers)


def _scores(method: Any, data: RankingData) -> np.ndarray:
    """The scores `[documents]` of a fitted ranker or a scorer."""
    scorer = method if isinstance(method, nn.Module) else method.to_scorer()
    with torch.inference_mode():
        try:
            scores = scorer(torch.from_numpy(data.features), offsets=torch.from_numpy(data.offsets))
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"the ranker cannot score {data.num_features // len(_FEATURES)} runs: pass the systems that it was fitted to, in "
                f"the same order ({error})"
            ) from error
    return scores.double().cpu().numpy()


def _check_runs(runs: Sequence[Run]) -> None:
    one = isinstance(runs, Mapping | str) or not hasattr(runs, "__len__")
    if one or len(runs) < 2:
        got = len(runs) if not one else 1 if isinstance(runs, Mapping) else shortened(runs)
        raise ValueError(f"runs must be two or more, as a list, got {got}")
    named = {f"run {number}": run for number, run in enumerate(runs, 1)}
    for name, run in named.items():
        check_table(name, run)
    check_types("queries", named)
    check_types("documents", {name: chain.from_iterable(run.values()) for name, run in named.items()})


def _retrieved(run: Run, query: str, number: int) -> tuple[list[str], np.ndarray]:
    """The documents of a query in a run, and their finite scores."""
    asked = [query] if query in run else []
    return list(run.get(query, {})), finite_numbers("scores", run, asked, f"run {number + 1}")


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
        if how == "min-max" and np.isinf(np.ptp(scores)):
            scores = scores / 2
        above = scores - scores.min()
        return above / max(above.max() if how == "min-max" else above.sum(), _LEAST)
