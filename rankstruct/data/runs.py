"""TREC runs and relevance judgements (qrels), and plain files of scores.

A line of a run is `query Q0 docid rank score tag`, a line of qrels `query iteration docid label`; columns are separated
by blanks, what follows the last column is not read, and lines that start with `#` say nothing. Qrels may also have BEIR's three
columns, `query-id corpus-id score`, under a first line that says so. The rank column is not
read either: as for trec_eval, scores alone order a list. Reading raises DataError for a file that is absent or empty, a line
with fewer columns, a label that is not an integer, a score that is not a finite number, and a document twice in a query.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from rankstruct.data.dataset import RankingData
from rankstruct.data.errors import DataError, shortened
from rankstruct.data.names import Names
from rankstruct.data.text import parse_number, text_lines
from rankstruct.files import whole_file

__all__ = ["JoinedRun", "join_run", "read_qrels", "read_run", "read_scores", "write_run", "write_scores"]

_log = logging.getLogger(__name__)

_SCORE = "a finite number as score"
_BEIR = "query-id corpus-id score"

Judgements = dict[str, dict[str, float]]


@dataclass(frozen=True, eq=False)
class JoinedRun:
    """The documents of a run with their judgements: flat, with `offsets`, in the order of the run file within a query.

    Args:
        scores: `[documents]` float64. trec_eval itself keeps 32 bits: `scores.astype("float32")` has its ties.
        labels: `[documents]` float64; 0 for a document that was not judged.
        offsets: `[lists + 1]` int64.
        qids: `[lists]` strings.
        docids: `[documents]` strings.
        num_relevant: `[lists]` int64, relevant (label > 0) documents of the qrels, retrieved or not.
        ideal_labels: `[lists, most judged]` float64, the labels of all judged documents, retrieved or not; NaN is padding.
        judged: `[documents]` bool, which were judged.
        pooled: `[documents]` bool, which the qrels name: those judged, and those in the pool that nobody judged, label -1.
        not_judged: how many documents of the run have no judgement.
        only_in_run: queries of the run that the qrels do not have; they are left out.
        only_in_qrels: queries of the qrels that the run does not have; they are left out, as trec_eval does by default.
    """

    scores: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray
    qids: Names
    docids: Names
    num_relevant: np.ndarray
    ideal_labels: np.ndarray
    judged: np.ndarray
    pooled: np.ndarray
    not_judged: int
    only_in_run: tuple[str, ...]
    only_in_qrels: tuple[str, ...]


def read_qrels(path: str | os.PathLike[str]) -> Judgements:
    """Judgements as `{query: {docid: label}}`; raises as the module says."""
    path = Path(path)
    if next(text_lines(path), (0, ""))[1].split()[:2] == _BEIR.split()[:2]:
        return _read_table(path, _BEIR, 2, int, "an integer as label", document=1, first=2)
    return _read_table(path, "query iteration docid label", 3, int, "an integer as label")


def read_run(path: str | os.PathLike[str]) -> Judgements:
    """A run as `{query: {docid: score}}`; raises as the module says."""
    return _read_table(Path(path), "query Q0 docid rank score tag", 4, float, _SCORE)


def write_run(path: str | os.PathLike[str], data: RankingData, scores: ArrayLike, tag: str = "rankstruct") -> None:
    """Write scores as a TREC run, lists in the order of the data, each sorted by score; the file appears whole or not at all.

    Scores are `[documents]`; ties keep the order of the data. A document without a name is called `<qid>-<k>`, the k-th of its
    list; `tag` is the run's name, one word.

    Raises:
        ValueError: scores of another shape, a score that is not finite, or a name with a blank in it.

    >>> import tempfile
    >>> data = RankingData.from_arrays([[1.0], [2.0]], [1, 0], ["q", "q"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_run(Path(folder) / "run.txt", data, [0.5, 2.0], tag="mine")
    ...     print((Path(folder) / "run.txt").read_text())
    q Q0 q-2 1 2.0 mine
    q Q0 q-1 2 0.5 mine
    """
    values = _checked_scores(scores)
    if values.shape != (data.num_documents,):
        raise ValueError(f"scores must have shape [documents] = ({data.num_documents},), got {values.shape}")

    def lines() -> Iterator[str]:
        for qid, (first, last) in zip(data.qids.tolist(), pairwise(data.offsets.tolist()), strict=True):
            order = np.argsort(-values[first:last], kind="stable")
            for rank, place in enumerate(order.tolist(), 1):
                docid = (str(data.docids[first + place]) if data.docids is not None else "") or f"{qid}-{place + 1}"
                names = (qid, docid, tag)
                if any(len(name.split()) != 1 for name in names):
                    raise ValueError(f"names in a run must be one word each; got query, document and tag {names}")
                # str of a number is the shortest text that reads back as the same number
                yield f"{qid} Q0 {docid} {rank} {values[first + place]!s} {tag}\n"

    with whole_file(path) as file:
        file.writelines(lines())


def read_scores(path: str | os.PathLike[str]) -> np.ndarray:
    """One score a line, the last word of it, `[documents]` float64, as LETOR's baselines and SVMlight write them.

    Raises as the module says, for a blank line too.
    """
    path = Path(path)
    scores = [_number((line.split() or [""])[-1], float, _SCORE, f"{path}:{at}") for at, line in text_lines(path)]
    if not scores:
        raise DataError(f"{path}: expected scores, one a line, got an empty file")
    return np.array(scores)


def write_scores(path: str | os.PathLike[str], scores: ArrayLike) -> None:
    """Write one score a line, `[documents]`, flat and finite, or ValueError; the file appears whole or not at all.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_scores(Path(folder) / "scores.txt", [0.1, 2.0])
    ...     read_scores(Path(folder) / "scores.txt")
    array([0.1, 2. ])
    """
    values = _checked_scores(scores)
    with whole_file(path) as file:
        file.writelines(f"{score!s}\n" for score in values)


def join_run(run: Judgements, qrels: Judgements) -> JoinedRun:
    """Give the documents of a run their judgements.

    Queries that only one of the two has are left out, counted and logged; without a query in common, this raises DataError.
    A label below 0 means in the pool but not judged, as for trec_eval.

    >>> joined = join_run({"1": {"a": 0.5, "b": 2.0}}, {"1": {"b": 1, "c": 2}, "7": {"a": 1}})
    >>> joined.labels, joined.num_relevant, joined.ideal_labels, joined.only_in_qrels
    (array([0., 1.]), array([2]), array([[1., 2.]]), ('7',))
    """
    common = [query for query in run if query in qrels]
    if not common:
        raise DataError(
            f"run and qrels must have queries in common; got run queries {_some(run)} and qrels queries {_some(qrels)}"
        )
    only_in_run = tuple(query for query in run if query not in qrels)
    only_in_qrels = tuple(query for query in qrels if query not in run)
    for names, where in ((only_in_run, "run"), (only_in_qrels, "qrels")):
        if names:
            _log.warning("%d queries that only the %s has are left out: %s", len(names), where, _some(names))
    judged = [{docid: label for docid, label in qrels[query].items() if label >= 0} for query in common]
    ideal_labels = np.full((len(common), max(map(len, judged))), np.nan)
    for row, labels in zip(ideal_labels, judged, strict=True):
        row[: len(labels)] = list(labels.values())
    found = [labels.get(docid) for query, labels in zip(common, judged, strict=True) for docid in run[query]]
    pooled = [docid in qrels[query] for query in common for docid in run[query]]
    return JoinedRun(
        scores=np.array([score for query in common for score in run[query].values()], dtype=np.float64),
        labels=np.array([label or 0 for label in found], dtype=np.float64),
        offsets=np.cumsum([0, *(len(run[query]) for query in common)]),
        qids=Names.of(common),
        docids=Names.of([docid for query in common for docid in run[query]]),
        num_relevant=(ideal_labels > 0).sum(axis=1),
        ideal_labels=ideal_labels,
        judged=np.array([label is not None for label in found], dtype=bool),
        pooled=np.array(pooled, dtype=bool),
        not_judged=found.count(None),
        only_in_run=only_in_run,
        only_in_qrels=only_in_qrels,
    )


def _read_table(
    path: Path, columns: str, column: int, kind: type, what: str, *, document: int = 2, first: int = 1
) -> Judgements:
    table: Judgements = {}
    names = columns.split()
    for line_number, line in text_lines(path):
        if line_number < first or line.startswith("#") or not line.strip():
            continue
        words = line.split(maxsplit=len(names))
        if len(words) < len(names):
            raise DataError(
                f"{path}:{line_number}: expected {len(names)} columns, {columns}; got {len(words)}, "
                f"{line.strip()[:60]!r}; correct or remove the line"
            )
        documents = table.setdefault(words[0], {})
        docid = words[document]
        if docid in documents:
            raise DataError(
                f"{path}:{line_number}: expected each document once in a query, got {_short(docid)} again in "
                f"query {_short(words[0])}; remove one of the lines"
            )
        documents[docid] = _number(words[column], kind, what, f"{path}:{line_number}")
    if not table:
        raise DataError(f"{path}: expected lines of {columns}, got none")
    return table


def _number(word: str, kind: type, what: str, place: str) -> float:
    try:
        value = parse_number(word, kind)
        if math.isfinite(value):
            return value
    except (ValueError, OverflowError):
        pass
    raise DataError(f"{place}: expected {what}, got {shortened(word)}; correct or remove the line")


def _checked_scores(scores: ArrayLike) -> np.ndarray:
    values = np.asarray(scores)
    if values.ndim != 1:
        raise ValueError(f"scores must be flat, shape [documents]; got {values.shape}")
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"scores must be finite, got {values[at]} at scores[{at}]")
    return values


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:60]}..."


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(map(_short, names[:5])) + (", ..." if len(names) > 5 else "")
