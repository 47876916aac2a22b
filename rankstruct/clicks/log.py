"""Click logs: what was shown to users, where, and what they clicked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rankstruct.arrays import as_array, as_numbers
from rankstruct.data import DataError
from rankstruct.data.columnar import Table
from rankstruct.data.delimited import check_columns
from rankstruct.lists import known_ids
from rankstruct.roles import usual_columns

__all__ = ["ClickLog"]


@dataclass(frozen=True, eq=False)
class ClickLog:
    """A click log: one row per document that was shown, sorted by session and position.

    A session is one ranking shown to one user; the sessions of a query are kept apart. Create a log with `from_arrays`, `read` or
    `simulate_clicks`.

    Attributes:
        session: `[rows]`, the number of the session, from 0.
        query: `[rows]`, the number of the query, from 0.
        document: `[rows]`, the number of the document, from 0; equal ids of two queries are two documents.
        position: `[rows]`, from 1.
        click: bool `[rows]`.
        queries: `[queries]`, the id of each query.
        documents: `[documents]`, the id of each document.

    >>> log = ClickLog.from_arrays(query=[7, 7, 8], document=["a", "b", "a"], position=[2, 1, 1], click=[1, 0, 0])
    >>> log
    ClickLog(sessions=2, queries=2, rows=3, clicks=1, longest=2)
    >>> log.document.tolist(), log.documents.tolist()
    ([1, 0, 2], ['a', 'b', 'a'])
    """

    session: np.ndarray
    query: np.ndarray
    document: np.ndarray
    position: np.ndarray
    click: np.ndarray
    queries: np.ndarray
    documents: np.ndarray

    @classmethod
    def from_arrays(
        cls, query: Any, document: Any, position: Any, click: Any, session: Any = None, *, longest: int | None = None
    ) -> ClickLog:
        """A log of rows in any order.

        A log without clicks, or with clicks on everything, is legal; the estimators refuse what they cannot estimate.

        Args:
            query, document: `[rows]`, ids, numbers or strings; whole floats are integers, and numbers among strings are strings.
            position: `[rows]`, the rank at which the document was shown, from 1.
            click: `[rows]`, 0 or 1.
            session: `[rows]`, ids; None if each query was shown once.
            longest: the length of the longest ranking that can have been shown, to check positions.

        Raises:
            ValueError: arrays of different lengths, a missing id, a missing position, one that is not a whole number from 1 to
                `longest`, a click that is neither 0 nor 1; a session with several queries, or with two documents at one
                position, or with one document at two.
        """
        given = {"query": query, "document": document, "position": position, "click": click}
        given |= {} if session is None else {"session": session}
        numbers = ("position", "click")
        return cls._of_columns(
            {name: (as_array if name in numbers else known_ids)(name, values) for name, values in given.items()},
            longest,
        )

    @classmethod
    def _of_columns(cls, columns: dict[str, Any], longest: int | None) -> ClickLog:
        """From arrays, or ids and their numbers by row."""
        sizes = {name: np.shape(each[1] if isinstance(each, tuple) else each) for name, each in columns.items()}
        if len(set(sizes.values())) > 1 or len(sizes["query"]) != 1:
            raise ValueError(f"the columns of a log must have one value per row, shape [rows]; got {sizes}")
        clicks = _checked_clicks(columns["click"])
        positions = _checked_positions(columns["position"], clicks, longest)
        queries, query_number = _numbered(columns["query"])
        ids, its_id = _numbered(columns["document"])
        pairs, documents = np.unique(query_number.astype(np.int64) * max(len(ids), 1) + its_id, return_inverse=True)
        names = ids[pairs % max(len(ids), 1)] if len(ids) else ids
        del its_id, pairs
        documents = documents.astype(np.int32)
        sessions = _numbered(columns["session"])[1] if "session" in columns else query_number
        order = np.lexsort((positions, sessions))
        log = cls(
            session=sessions[order],
            query=query_number[order],
            document=documents[order],
            position=positions[order],
            click=clicks[order],
            queries=queries,
            documents=names,
        )
        log._check(order, "session" not in columns)
        return log

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        query: str | None = None,
        document: str | None = None,
        position: str | None = None,
        click: str | None = None,
        session: str | None = None,
        longest: int | None = None,
    ) -> ClickLog:
        """Read a log from a CSV, Parquet or Arrow file with one row per document shown; other columns are ignored.

        Args:
            path: the file; a CSV file has column names in its first line; its ids are strings, without `.0` if all end with it.
            query, document, position, click, session: the columns; None for those with usual names, such as `query_id`, `docid`
                and `rank`. There may be none of sessions if each query was shown once.
            longest: as in `from_arrays`.

        Raises:
            DataError: a missing column, or what `from_arrays` refuses.
        """
        given = {"query": query, "document": document, "position": position, "click": click, "session": session}
        optional = ("session",) if session is None else ()
        found = Table(path, given, optional=optional, numbers=("position", "click")).read()
        try:
            return cls._of_columns(found, longest)
        except ValueError as error:
            raise DataError(f"{path}: {error}") from None

    def read_features(
        self,
        path: str | os.PathLike[str],
        *,
        query: str | None = None,
        document: str | None = None,
        others: Sequence[str] | None = None,
    ) -> tuple[list[str], np.ndarray]:
        """The features of the documents, from the other columns of the file that the log was read from.

        Args:
            path: the file.
            query, document: the columns of the ids, as in `read`.
            others: columns that are not features; None for those of positions, clicks and sessions with usual names.

        Returns:
            The names of the features, and `[documents, d]` float32, the features by the number of the document.

        Raises:
            DataError: there are no features, one is not a number, or differs between the rows of a document.
        """
        table = Table(path, {"query": query, "document": document})
        check_columns(path, table.names)
        if others is None:
            others = [name for role in ("position", "click", "session") for name in usual_columns(table.names, role)]
        features = [name for name in table.names if name not in (*table.columns.values(), *others)]
        if not features:
            no = ", ".join(map(repr, (*table.columns.values(), *others)))
            raise DataError(f"{path}: there are no columns of features, besides {no}")
        queries, documents = table.read().values()
        pairs = queries.places.astype(np.int64) * max(len(documents.names), 1) + documents.places
        _, first, of_row = np.unique(pairs, return_index=True, return_inverse=True)  # in the order of `documents`
        names = documents.names[documents.places[first]]
        if not (np.array_equal(queries.names, self.queries) and np.array_equal(names, self.documents)):
            raise DataError(f"{path} is not the file of the log: it has other documents")
        found, row = np.empty((len(first), len(features)), np.float32), 0
        for batch in table.batches(features, "; features must be numbers, remove other columns"):
            values = np.stack([table.numbers_of(name, batch.column(name)) for name in features], 1).astype(np.float32)
            its = of_row[row : row + len(batch)]
            new = first[its] == np.arange(row, row + len(batch))
            found[its[new]] = values[new]
            wrong = ~((values == found[its]) | np.isnan(values) & np.isnan(found[its]))
            if wrong.any():
                at, number = np.argwhere(wrong)[0].tolist()
                owner, earlier = its[at], found[its[at], number]
                raise DataError(
                    f"{path}: feature {features[number]!r} of document {names[owner]} of query "
                    f"{queries.names[queries.places[row + at]]} is {earlier:g} in row {first[owner]} and "
                    f"{values[at, number]:g} in row {row + at}; features belong to documents, so remove columns that differ "
                    "between sessions"
                )
            row += len(batch)
        return features, found

    def with_documents(self, query: Any, document: Any) -> ClickLog:
        """The log with documents numbered as in a table that has all of them, and may have others that were never shown.

        Args:
            query, document: `[documents]`, the ids of the table, compared with those of the log as strings.

        Raises:
            ValueError: the table has a document twice, or lacks one of the log.

        >>> log = ClickLog.from_arrays(query=[1, 1], document=["a", "b"], position=[1, 2], click=[1, 0])
        >>> log.with_documents([1, 1, 1], ["c", "b", "a"]).document
        array([2, 1], dtype=int32)
        """
        known = list(zip(map(str, query), map(str, document), strict=True))
        rows = {pair: row for row, pair in enumerate(known)}
        if len(rows) < len(known):
            twice = next(pair for row, pair in enumerate(known) if rows[pair] != row)
            raise ValueError(f"document {twice[1]} of query {twice[0]} occurs twice")
        owner = self.query_of_document
        shown = np.flatnonzero(owner >= 0)
        own = list(zip(map(str, self.queries[owner[shown]]), map(str, self.documents[shown]), strict=True))
        missing = [pair for pair in own if pair not in rows]
        if missing:
            raise ValueError(
                f"{len(missing)} of {len(own)} documents of the log are missing, such as document {missing[0][1]} of query "
                f"{missing[0][0]}"
            )
        place = np.zeros(len(owner), np.int32)
        place[shown] = [rows[pair] for pair in own]
        return replace(self, document=place[self.document], documents=np.array([pair[1] for pair in known]))

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.session)

    def __repr__(self) -> str:
        """The numbers of sessions, queries, rows and clicks, and the last position."""
        last = int(self.position.max(initial=0))
        return (
            f"ClickLog(sessions={self.sessions}, queries={len(self.queries)}, rows={len(self)}, "
            f"clicks={int(self.click.sum())}, longest={last})"
        )

    @property
    def sessions(self) -> int:
        """The number of sessions."""
        return int(self.session[-1]) + 1 if len(self) else 0

    @property
    def query_of_document(self) -> np.ndarray:
        """`[documents]`, the number of the query of each document; -1 for documents that were never shown."""
        found = np.full(len(self.documents), -1, np.int32)
        found[self.document] = self.query
        return found

    def sessions_of_queries(self) -> np.ndarray:
        """`[queries]`, the number of sessions of each query."""
        first = np.flatnonzero(np.diff(self.session, prepend=-1))
        return np.bincount(self.query[first], minlength=len(self.queries))

    def click_rates(self) -> np.ndarray:
        """`[positions]`, the share of the documents shown at each position that were clicked, NaN where nothing was shown."""
        if not len(self):
            return np.zeros(0)
        shown, clicked = (np.bincount(self.position, weights)[1:] for weights in (None, self.click))
        with np.errstate(invalid="ignore"):
            return clicked / shown

    def _check(self, order: np.ndarray, without_sessions: bool) -> None:
        """Raise ValueError for sessions that are not rankings; rows are named by their place in the input, `order`."""
        same = self.session[1:] == self.session[:-1]
        for wrong, what in (
            (same & (self.query[1:] != self.query[:-1]), "a session must have one query"),
            (same & (self.position[1:] == self.position[:-1]), "a session must have one document at a position"),
        ):
            if wrong.any():
                at = int(wrong.argmax())
                advice = "; pass session= if queries were shown several times" if without_sessions else ""
                raise ValueError(f"{what}; rows {order[at]} and {order[at + 1]} differ{advice}")
        again = np.lexsort((self.document, self.session))
        twice = (np.diff(self.session[again]) == 0) & (np.diff(self.document[again]) == 0)
        if twice.any():
            at = int(twice.argmax())
            first, second = order[again[at]], order[again[at + 1]]
            raise ValueError(
                f"a session must show a document once; rows {first} and {second} have the same document"
                f"{'; pass session= if queries were shown several times' if without_sessions else ''}"
            )


def _checked_clicks(values: np.ndarray) -> np.ndarray:
    if values.dtype == bool:
        return values.copy()
    numbers = as_numbers("click", values, exact=False)
    wrong = ~((numbers == 0) | (numbers == 1))
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(
            f"click must be 0 or 1, that of row {at} is {numbers[at]}; a row is one document of one session"
        )
    return numbers.astype(bool)


def _checked_positions(values: np.ndarray, clicks: np.ndarray, longest: int | None) -> np.ndarray:
    numbers = as_numbers("position", values, exact=False)
    if numbers.dtype.kind == "f":
        missing = np.isnan(numbers)
        if (missing & clicks).any():
            raise ValueError(
                f"row {int((missing & clicks).argmax())} has a click and no position: only documents that were shown can be "
                "clicked"
            )
        if missing.any():
            raise ValueError(
                f"position must not be missing, that of row {int(missing.argmax())} is; leave out documents that were not shown"
            )
        wrong = numbers != np.floor(numbers)
        if wrong.any():
            raise ValueError(
                f"position must be a whole number, that of row {int(wrong.argmax())} is {numbers[wrong][0]:g}"
            )
    wrong = numbers < 1
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(f"position must be 1 or more, since the first is 1; that of row {at} is {numbers[at]:g}")
    most = np.iinfo(np.int32).max if longest is None else longest
    if (numbers > most).any():
        at = int((numbers > most).argmax())
        raise ValueError(f"position must be at most {most}, the longest ranking; that of row {at} is {numbers[at]:g}")
    return numbers.astype(np.int32)


def _numbered(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ids and their numbers by row, int32."""
    if isinstance(values, tuple):
        return values
    try:
        ids, numbers = np.unique(values, return_inverse=True)
    except TypeError:  # strings and numbers
        ids, numbers = np.unique(values.astype(str), return_inverse=True)
    return ids, numbers.astype(np.int32)
