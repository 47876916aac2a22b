"""TREC runs and relevance judgements (qrels), and plain files of scores.

A line of a run is `query Q0 docid rank score tag`, a line of qrels `query iteration docid label`. Columns are separated by tabs
if the first line has all of its fields between tabs, so that names may contain blanks; otherwise by blanks and tabs, as in
trec_eval. All lines have the same number of columns. Blanks are ASCII: a no-break space is part of a name. Qrels may also have
BEIR's three columns, `query-id corpus-id score`, with these names in the first line. The rank column is ignored: as in trec_eval,
lists are ordered by score only. Lines that start with `#` and a blank are comments, unless they have all columns and a valid
number; names may start with `#`, and the number of such lines is logged as a warning. Reading raises DataError for a missing or
empty file, a line with another number of columns, a label that is not an integer (`1.0` is one), a score that is not finite, and
a document repeated in a query.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rankstruct.arrays import LARGEST, as_numbers, as_scores
from rankstruct.data.dataset import RankingData
from rankstruct.data.errors import DataError, check_matched
from rankstruct.data.names import Names
from rankstruct.data.text import (
    BLANKS,
    PACKED,
    SPACE,
    TABS,
    Separator,
    field_rows,
    parse_number,
    split_blanks,
    text_lines,
)
from rankstruct.files import whole_file
from rankstruct.messages import shortened

__all__ = ["join_run", "read_qrels", "read_run", "read_scores", "run_of", "write_run", "write_scores"]

_log = logging.getLogger(__name__)


_NOT_READ_BACK = re.compile(r"\A\Z|\A | \Z|[\t\r\n\ud800-\udfff]")

Judgements = dict[str, dict[str, float]]
Run = Mapping[str, Mapping[str, float]]


class JoinedRun(NamedTuple):
    """What `join_run` returns."""

    qids: Names
    docids: Names
    arguments: dict[str, np.ndarray]


class _Form(NamedTuple):
    """A format with one number per query and document."""

    columns: str
    document: int
    value: int
    parse: Callable[[str], float]
    what: str


def _as_label(word: str) -> float:
    """Parse an integer, possibly written as a decimal number."""
    try:
        return parse_number(word, int)
    except ValueError:
        if (value := parse_number(word)).is_integer():
            return int(value)
        raise


_LABEL = "an integer as label"
_SCORE = "a finite number as score"
_QRELS = _Form("query iteration docid label", 2, 3, _as_label, _LABEL)
_BEIR = _Form("query-id corpus-id score", 1, 2, _as_label, _LABEL)
_RUN = _Form("query Q0 docid rank score tag", 2, 4, parse_number, _SCORE)


def read_qrels(path: str | os.PathLike[str]) -> Judgements:
    """Read judgements as `{query: {docid: label}}`; see the module for the format and its errors."""
    path = Path(path)
    lines = text_lines(path)
    first = next(lines, (0, ""))
    names = split_blanks(first[1].lower())
    if len(names) == 3 and names[:2] == _BEIR.columns.split()[:2]:
        return _read_table(path, lines, _BEIR, TABS if "\t" in first[1] else BLANKS)
    return _read_table(path, chain([first] if first[0] else [], lines), _QRELS)


def read_run(path: str | os.PathLike[str]) -> Judgements:
    """Read a run as `{query: {docid: score}}`; see the module for the format and its errors."""
    path = Path(path)
    return _read_table(path, text_lines(path), _RUN)


def write_run(
    path: str | os.PathLike[str],
    data: RankingData | Run,
    scores: ArrayLike | None = None,
    tag: str = "rankstruct",
) -> None:
    """Write scores as a TREC run, lists in the order of the data, each sorted by score; the file is written atomically.

    `data` are lists, with scores `[documents]`, or a run `{query: {docid: score}}` without. Ties keep the order of the data. A
    document without a name is called `<qid>-<k>`, the k-th of its list; `tag` is the name of the run. Columns are separated by
    blanks, or by tabs if a name or the tag contains a blank: `read_run` reads both, but trec_eval only the former, for which a
    warning is logged.

    Raises:
        ValueError: scores of another shape, or next to those of a run, a score that is not finite, a document repeated in a list,
            a path such as run.gz, or a name that could not be read back: it is empty, contains a tab or a line end, starts or
            ends with a blank, or is not valid Unicode.

    >>> import tempfile
    >>> data = RankingData.from_arrays([[1.0], [2.0]], [1, 0], ["q", "q"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_run(Path(folder) / "run.txt", data, [0.5, 2.0], tag="mine")
    ...     print((Path(folder) / "run.txt").read_text())
    q Q0 q-2 1 2.0 mine
    q Q0 q-1 2 0.5 mine
    """
    if Path(path).suffix in PACKED:
        raise ValueError(f"a run is written as plain text, got {path}; remove {Path(path).suffix}")
    if isinstance(data, Mapping):
        if scores is not None:
            raise ValueError("a run has its own scores: pass it without scores, or lists with them")
        data, scores = _as_lists(data)
    values = _scores_of(data, scores)
    named = [names for names in (data.qids, data.docids) if names is not None]
    blank = " " in tag or any(" " in name for names in named for name in names)
    if blank:
        _log.warning("%s: columns are separated by tabs since names contain blanks; trec_eval cannot read this", path)
    between = "\t" if blank else " "

    def lines() -> Iterator[str]:
        _check_name("tag", tag)
        for qid, docids, found in _sorted_lists(data, values):
            _check_name("query", qid)
            for rank, (docid, score) in enumerate(zip(docids, found, strict=True), 1):
                _check_name("document", docid)
                # str of a number is the shortest text that reads back as the same number
                yield between.join((qid, "Q0", docid, str(rank), str(score), tag)) + "\n"

    with whole_file(path) as file:
        file.writelines(lines())


def run_of(data: RankingData, scores: ArrayLike) -> Judgements:
    """The scores `[documents]` of lists as a run `{query: {docid: score}}`, ordered and named as `write_run` does.

    Raises:
        ValueError: scores of another shape, a score that is not finite, or a document repeated in a list.

    >>> run_of(RankingData.from_arrays([[1.0], [2.0]], [1, 0], ["q", "q"], docids=["a", "b"]), [0.5, 2.0])
    {'q': {'b': 2.0, 'a': 0.5}}
    """
    lists = _sorted_lists(data, _scores_of(data, scores))
    return {qid: dict(zip(docids, found.tolist(), strict=True)) for qid, docids, found in lists}


def _as_lists(run: Run) -> tuple[RankingData, np.ndarray]:
    """A run as lists without features, and their scores."""
    check_table("run", run)
    docids = Names.of([str(name) for found in run.values() for name in found])
    scores = finite_numbers("scores", run, list(run), "the run")
    ends = np.cumsum([0, *map(len, run.values())], dtype=np.int64)
    empty = np.zeros((len(scores), 0), np.float32)
    qids = Names.of([str(query) for query in run])
    return RankingData(empty, np.zeros(len(scores), np.float32), ends, qids, docids), scores


def _scores_of(data: RankingData, scores: ArrayLike | None) -> np.ndarray:
    """Checked scores `[documents]`."""
    if scores is None:
        raise ValueError("scores are missing: pass one per document, or a run in place of the lists")
    values = _checked_scores(scores)
    if values.shape != (data.num_documents,):
        raise ValueError(f"scores must have shape [documents] = ({data.num_documents},), got {values.shape}")
    return values


def _sorted_lists(data: RankingData, values: np.ndarray) -> Iterator[tuple[str, list[str], np.ndarray]]:
    """Each list's name, documents and scores, from the highest score; raises ValueError for a document repeated in one."""
    for qid, (first, last) in zip(data.qids.tolist(), pairwise(data.offsets.tolist()), strict=True):
        docids = data.docids[first:last].tolist() if data.docids is not None else [""] * (last - first)
        docids = [docid or f"{qid}-{place}" for place, docid in enumerate(docids, 1)]
        if len(set(docids)) < len(docids):
            again = next(name for place, name in enumerate(docids) if name in docids[:place])
            raise ValueError(
                f"expected each document once in a query, got {_short(again)} again in query {_short(qid)}"
            )
        order = np.argsort(-as_scores(values[first:last]), kind="stable")
        yield qid, [docids[place] for place in order], values[first:last][order]


def _check_name(what: str, name: str) -> None:
    """Raise ValueError for a name that could not be read back."""
    if _NOT_READ_BACK.search(name) or (what == "query" and name[0] == "\ufeff"):
        raise ValueError(
            f"a run cannot represent the {what} {shortened(name)}: expected text without tabs, line ends, "
            "surrounding blanks and a leading byte order mark; rename it"
        )


def read_scores(path: str | os.PathLike[str]) -> np.ndarray:
    """Read one score per line, its last word, as `[documents]` float64, the format of LETOR's baselines and SVMlight.

    Raises DataError as described in the module, and for a blank line or one with another number of words than the first.
    """
    path = Path(path)
    scores: list[float] = []
    count = 0
    for number, line in text_lines(path):
        words = split_blanks(line) or [""]
        if len(words) == 6 and words[1].upper() == "Q0":
            raise DataError(
                f"{path}:{number}: expected a score as the last word, got a line of a TREC run, {_RUN.columns}, whose last word "
                "is the tag; evaluate a run with --qrels, or write its scores in the order of the labels"
            )
        count = count or len(words)
        if words[0] and len(words) != count:
            raise DataError(
                f"{path}:{number}: expected {count} words, the last one a score, as on line 1, got {len(words)}, "
                f"{shortened(line.strip(SPACE))}; correct the line"
            )
        try:
            scores.append(_finite(parse_number(words[-1])))
        except (ValueError, OverflowError):
            raise _wrong_number(_SCORE, words[-1], f"{path}:{number}") from None
    if not scores:
        raise DataError(f"{path}: expected scores, one per line, got an empty file")
    return np.array(scores)


def write_scores(path: str | os.PathLike[str], scores: ArrayLike) -> None:
    """Write one score per line, `[documents]`, finite or else ValueError; the file is written atomically.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_scores(Path(folder) / "scores.txt", [0.1, 2.0])
    ...     read_scores(Path(folder) / "scores.txt")
    array([0.1, 2. ])
    """
    values = _checked_scores(scores)
    with whole_file(path) as file:
        file.writelines(f"{score!s}\n" for score in values)


def join_run(run: Run, qrels: Run) -> JoinedRun:
    """Join the documents of a run with their judgements.

    Queries that only one of the two has are left out, and a warning gives their share. Documents without judgements are normal,
    and only counted. A negative label means in the pool but not judged, as in trec_eval.

    Returns:
        A named tuple of `qids` `[lists]` and `docids` `[documents]`, strings, with the documents of a query in the order of the
        run; and `arguments`, those of `rankstruct.evaluate`, flat arrays:

        - `scores` `[documents]` float64; trec_eval uses float32: `scores.astype("float32")` has its ties;
        - `labels` `[documents]` float64, 0 for a document without judgement;
        - `offsets` `[lists + 1]`;
        - `ideal_labels` `[judged documents]` and `ideal_offsets` `[lists + 1]`, the labels of all judged documents, retrieved or
          not, list by list;
        - `judged` `[documents]` bool, and `pooled`, whether a document is in the qrels: judged, or in the pool but not judged
          (-1).

    Raises:
        DataError: there is no query in common, none of the retrieved documents is in the qrels, names are of different types in
            run and qrels, so that they are never equal, a score is not a finite number, or a label is not a whole number, as if
            run and qrels were interchanged.

    >>> joined = join_run({"1": {"a": 0.5, "b": 2.0}}, {"1": {"b": 1, "c": 2}})
    >>> list(joined.docids), joined.arguments["labels"], joined.arguments["ideal_labels"]
    (['a', 'b'], array([0., 1.]), array([1., 2.]))
    """
    check_table("run", run)
    check_table("qrels", qrels)
    check_types("queries", {"the run": run, "the qrels": qrels})
    check_queries(run, qrels)
    common = [query for query in run if query in qrels]
    retrieved, known = (chain.from_iterable(map(names.__getitem__, common)) for names in (run, qrels))
    check_types("documents", {"the run": retrieved, "the qrels": known})
    scores, pool = finite_numbers("scores", run, common, "the run"), _labels(run, qrels, common)
    kept, ends = pool >= 0, np.cumsum([0, *(len(qrels[query]) for query in common)])
    offsets = np.cumsum([0, *(len(run[query]) for query in common)])
    found = np.fromiter((qrels[query].get(docid, math.nan) for query in common for docid in run[query]), np.float64)
    judged = found >= 0
    docids = Names.of([docid for query in common for docid in run[query]])
    check_retrieved(~np.isnan(found), docids)
    return JoinedRun(
        qids=Names.of(common),
        docids=docids,
        arguments={
            "scores": scores,
            "labels": np.where(judged, found, 0),
            "offsets": offsets,
            "ideal_labels": pool[kept],
            "ideal_offsets": np.concatenate([[0], np.cumsum(kept)])[ends],
            "judged": judged,
            "pooled": ~np.isnan(found),
        },
    )


def check_table(name: str, table: Any) -> None:
    """Raise DataError unless a run or the qrels, the argument `name`, are dictionaries of numbers by query and document."""
    if isinstance(table, Mapping) and all(isinstance(found, Mapping) for found in table.values()):
        return
    reader, value = ("read_qrels", "label") if name == "qrels" else ("read_run", "score")
    got, advice = f"a {type(table).__name__}", "convert it to dictionaries"
    if isinstance(table, str | os.PathLike):
        got, advice = shortened(os.fspath(table)), f"to read a file, use rankstruct.data.{reader}"
    elif isinstance(table, Mapping):
        query = next(query for query, found in table.items() if not isinstance(found, Mapping))
        got = f"a {type(table[query]).__name__} for query {_short(query)}"
    raise DataError(f"must be {{query: {{docid: {value}}}}}, got {got}; {advice}", argument=name)


def finite_numbers(what: str, table: Run, queries: Sequence[str], owner: str) -> np.ndarray:
    """The numbers of these queries, `[documents]` float64 in order; raises DataError for one that is not finite, or none."""
    values: list[Any] = list(chain.from_iterable(table[query].values() for query in queries))
    plain = set(map(type, values)) <= {float, np.float32, np.float64}
    found = np.array(values if plain else list(map(_number, values)), np.float64)
    wrong = ~np.isfinite(found)
    if wrong.any():
        raise _wrong_value(f"{what} must be finite numbers", table, queries, owner, int(wrong.argmax()))
    return found


def _number(value: Any) -> float:
    """NaN for what is no number, such as text, which NumPy would parse."""
    try:
        return math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _labels(run: Run, qrels: Run, queries: Sequence[str]) -> np.ndarray:
    """The labels of these queries; raises DataError for one that is not a whole number."""
    labels = finite_numbers("labels", qrels, queries, "the qrels")
    wrong = labels != np.floor(labels)
    if wrong.any():
        error = _wrong_value("labels must be whole numbers", qrels, queries, "the qrels", int(wrong.argmax()))
        scores = finite_numbers("scores", run, queries, "the run")
        swapped = "the order is join_run(run, qrels)" if (scores == np.floor(scores)).all() else ""
        raise DataError(str(error), swapped)
    return labels


def _wrong_value(rule: str, table: Run, queries: Sequence[str], owner: str, at: int) -> DataError:
    """The error of the number at this place of the queries, in order."""
    query, docid = next(islice(((query, docid) for query in queries for docid in table[query]), at, None))
    value = shortened(table[query][docid])
    return DataError(f"{rule}, got {value} of document {_short(docid)} in query {_short(query)} of {owner}")


def check_queries(run: Run, qrels: Run) -> None:
    """Report, as `check_matched` does, queries of the run without judgements, and queries of the qrels without results."""
    for mine, other, owner, where, advice in (
        (run, qrels, "run", "qrels", "they are left out"),
        (qrels, run, "qrels", "run", "they are left out, as trec_eval does by default"),
    ):
        matched = np.fromiter((query in other for query in mine), bool, len(mine))
        check_matched(
            matched, list(mine), what=f"queries of the {owner}", source=f"the {where}", advice=advice, stacklevel=4
        )


def check_retrieved(known: np.ndarray, docids: Sequence[str] | Names) -> None:
    """Raise DataError if none of the retrieved documents is in the qrels of its query; some that are not are normal."""
    if not known.any():
        check_matched(known, docids, what="retrieved documents", source="the qrels of their queries")


def check_types(what: str, names: Mapping[str, Iterable[object]]) -> None:
    """Raise DataError if names, by owner, have no type in common with those of the first owner, such as 7 and "7"."""
    (first, mine), *others = ((owner, _kinds(each)) for owner, each in names.items())
    for owner, theirs in others:
        if mine and theirs and not mine & theirs:
            ours, other = (", ".join(sorted(kind.__name__ for kind in each)) for each in (mine, theirs))
            raise DataError(
                f"the names of {what} must be of the same type in {first} and {owner}, got {ours} in {first} and {other} in "
                f"{owner}; convert both to strings"
            )


def _kinds(names: Iterable[object]) -> set[type]:
    """The types of names; NumPy's strings and integers are equal to Python's."""
    return {
        str if issubclass(kind, str) else int if issubclass(kind, Integral) else kind for kind in set(map(type, names))
    }


def _read_table(
    path: Path, lines: Iterable[tuple[int, str]], form: _Form, separator: Separator | None = None
) -> Judgements:
    """The numbers of a file; the separator, unless given, is inferred from its first line."""

    def fits(fields: Sequence[str]) -> bool:
        try:
            _finite(form.parse(fields[form.value]))
        except (ValueError, OverflowError):
            return False
        return True

    table: Judgements = {}
    names: dict[str, str] = {}  # of documents, interned across queries
    for number, fields in field_rows(path, lines, form.columns, fits, separator=separator):
        documents = table.setdefault(fields[0], {})
        docid = names.setdefault(fields[form.document], fields[form.document])
        if docid in documents:
            raise DataError(
                f"{path}:{number}: expected each document once in a query, got {_short(docid)} again in "
                f"query {_short(fields[0])}; remove one of the lines"
            )
        try:
            documents[docid] = _finite(form.parse(fields[form.value]))
        except (ValueError, OverflowError):
            raise _wrong_number(form.what, fields[form.value], f"{path}:{number}") from None
    if not table:
        raise DataError(f"{path}: expected lines of {form.columns}, got none")
    return table


def _finite(value: float) -> float:
    """Return a number; raises ValueError if it is not finite, or an integer that may not be exact in float64."""
    if not -math.inf < value < math.inf or (isinstance(value, int) and abs(value) > LARGEST):
        raise ValueError
    return value


def _wrong_number(what: str, word: str, place: str) -> DataError:
    return DataError(f"{place}: expected {what}, got {shortened(word)}; correct or remove the line")


def _checked_scores(scores: ArrayLike) -> np.ndarray:
    values = as_numbers("scores", scores)
    values = values.astype(np.float64) if values.dtype == bool else values
    if values.ndim != 1:
        raise ValueError(f"scores must have shape [documents], got {values.shape}")
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"scores must be finite, got {values[at]} at scores[{at}]")
    return values


def _short(name: object) -> str:
    name = str(name)
    return name if len(name) <= 60 else f"{name[:60]}..."
