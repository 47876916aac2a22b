"""Click logs: what was shown to users, where, and what they clicked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rankstruct.arrays import as_array, as_numbers
from rankstruct.checks import check_choice
from rankstruct.columns import find_column, names_of, usual_columns
from rankstruct.data import DataError
from rankstruct.data.errors import check_matched
from rankstruct.data.tables import TableReader, check_columns
from rankstruct.ids import known_ids
from rankstruct.messages import ArgumentError
from rankstruct.roles import column_of

__all__ = ["ClickLog"]

_NUMBERS = ("position", "click")
_ONLY_NUMBERS = "features must be numbers, remove other columns"


@dataclass(frozen=True, eq=False)
class ClickLog:
    """A click log: one row per document that was shown, sorted by session and position.

    A session is one ranking shown to one user; the sessions of a query are kept apart. Create a log with `from_arrays` or `read`.

    Attributes:
        session: `[rows]`, the number of the session, from 0.
        query: `[rows]`, the number of the query, from 0.
        document: `[rows]`, the number of the document, from 0; equal ids of two queries are two documents.
        position: `[rows]`, from 1.
        click: bool `[rows]`.
        queries: `[queries]`, the id of each query.
        documents: `[documents]`, the id of each document.
        of_table: whether the numbers of the documents are rows of a table that the caller has, as `with_documents` makes them.
            Only then do rankers match features without names by row.

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
    of_table: bool = False

    def __new__(cls, *values: Any, **fields: Any) -> ClickLog:
        """Refuse a data frame, which `read` takes."""
        if len(values) == 1 and not fields:
            raise TypeError(
                f"ClickLog has no constructor for a {type(values[0]).__name__}: ClickLog.read takes files and data frames, "
                "ClickLog.from_arrays columns"
            )
        return super().__new__(cls)

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
        return cls._of_columns(
            {
                name: as_array(name, values) if name in _NUMBERS else known_ids(name, values, "row")
                for name, values in given.items()
            },
            longest,
        )

    @classmethod
    def _of_columns(cls, columns: dict[str, Any], longest: int | None) -> ClickLog:
        """From arrays, or ids and their numbers by row."""
        sizes = {name: np.shape(each[1] if isinstance(each, tuple) else each) for name, each in columns.items()}
        if len(set(sizes.values())) > 1 or len(sizes["query"]) != 1:
            raise ValueError(f"the columns of a log must have one value per row, shape [rows]; got {sizes}")
        clicks = _checked_clicks(columns["click"])
        most = np.iinfo(np.int32).max if longest is None else longest
        positions, shown = checked_positions(columns["position"], clicks, most)
        _refuse(~shown, "position must not be missing, that of row {row} is; leave out documents that were not shown")
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
        path: str | os.PathLike[str] | Any,
        *,
        query: str | None = None,
        document: str | None = None,
        position: str | None = None,
        click: str | None = None,
        session: str | None = None,
        longest: int | None = None,
    ) -> ClickLog:
        """Read a log from a CSV, Parquet or Arrow file, or a frame, with one row per document shown; other columns are ignored.

        Args:
            path: the file, or a data frame of pandas or polars or an Arrow table; a CSV file has column names in its first line;
                its ids are strings, without `.0` if all end with it.
            query, document, position, click, session: the columns; None for those with usual names, such as `query_id`, `docid`
                and `rank`. There may be none of sessions if each query was shown once.
            longest: as in `from_arrays`.

        Raises:
            DataError: a missing column, or what `from_arrays` refuses.
        """
        given = {"query": query, "document": document, "position": position, "click": click, "session": session}
        optional = ("session",) if session is None else ()
        table = TableReader(path, given, optional=optional)
        try:
            return cls._of_columns(table.read(_NUMBERS), longest)
        except ValueError as error:
            raise error if isinstance(error, DataError) else DataError(f"{table}: {error}") from None

    def read_features(
        self,
        path: str | os.PathLike[str] | Any,
        *,
        query: str | None = None,
        document: str | None = None,
        others: Sequence[str] | None = None,
    ) -> tuple[list[str], np.ndarray]:
        """The features of the documents, from the other columns of the file or frame that the log was read from.

        Rankers take them as `ranker.fit(features, log.with_documents())`, which says that they are in this order.

        Args:
            path: the file or frame.
            query, document: the columns of the ids, as in `read`.
            others: columns that are not features; None for those of positions, clicks and sessions with usual names.

        Returns:
            The names of the features, and `[documents, d]` float32, the features by the number of the document.

        Raises:
            DataError: there are no features, one is not a number, or differs between the rows of a document.
        """
        table = TableReader(path, {"query": query, "document": document})
        check_columns(table, table.names)
        if others is None:
            others = [name for role in ("position", "click", "session") for name in usual_columns(table.names, role)]
        features = [name for name in table.names if name not in (*table.columns.values(), *others)]
        if not features:
            no = ", ".join(map(repr, (*table.columns.values(), *others)))
            raise DataError(f"{table}: there are no columns of features, besides {no}")
        queries, documents = table.read().values()
        pairs = queries.places.astype(np.int64) * max(len(documents.names), 1) + documents.places
        _, first, of_row = np.unique(pairs, return_index=True, return_inverse=True)  # in the order of `documents`
        names = documents.names[documents.places[first]]
        if not (np.array_equal(queries.names, self.queries) and np.array_equal(names, self.documents)):
            raise DataError(f"{table} is not the file of the log: it has other documents")
        found, row = np.empty((len(first), len(features)), np.float32), 0
        for batch in table.batches(features, advise=lambda *_: _ONLY_NUMBERS):
            columns = [table.numbers(name, batch.column(name), f"; {_ONLY_NUMBERS}") for name in features]
            values = np.stack(columns, 1).astype(np.float32)
            its = of_row[row : row + len(values)]
            new = first[its] == np.arange(row, row + len(values))
            found[its[new]] = values[new]
            wrong = ~((values == found[its]) | np.isnan(values) & np.isnan(found[its]))
            if wrong.any():
                at, number = np.argwhere(wrong)[0].tolist()
                owner, earlier = its[at], found[its[at], number]
                raise DataError(
                    f"{table}: feature {features[number]!r} of document {names[owner]} of query "
                    f"{queries.names[queries.places[row + at]]} is {earlier:g} in row {first[owner]} and "
                    f"{values[at, number]:g} in row {row + at}; features belong to documents, so remove columns that differ "
                    "between sessions"
                )
            row += len(values)
        return features, found

    def with_documents(
        self, query: Any = None, document: Any = None, *, missing: Literal["error", "drop"] = "error"
    ) -> ClickLog:
        """The log with documents numbered by the rows of a table, which may have others that were never shown.

        This says which row is which document. Rankers then find the features of the documents by row: `ranker.fit(X, log)`.

        Args:
            query, document: `[rows]`, the ids of the table's rows, compared with those of the log; numbers and strings are equal
                if they are written alike. Neither for a table in the order of `documents`, as `read_features` returns it.
            missing: what happens if the table lacks documents of the log: `"error"`, or `"drop"` them with their clicks, which a
                warning counts. A session that showed no others is gone, too.

        Raises:
            ValueError: the table has a document twice, lacks one of the log without `missing="drop"`, or has none of them.

        Warns:
            UserWarning: documents of the table were never shown; or documents of the log are dropped.

        >>> log = ClickLog.from_arrays(query=[1, 1], document=["a", "b"], position=[1, 2], click=[1, 0])
        >>> log.with_documents([1, 1], ["b", "a"]).document
        array([1, 0], dtype=int32)
        """
        check_choice("missing", missing, ("error", "drop"))
        if (query is None) != (document is None):
            raise ValueError("pass both query= and document=, the ids of each row of the table, or neither")
        if query is None:
            return replace(self, of_table=True)
        ids = known_ids("query", query, "row"), known_ids("document", document, "row")
        place = self.rows_of_documents(*ids)
        owner = self.query_of_document
        shown = np.flatnonzero(owner >= 0)
        known = place[shown] >= 0
        lost = ~known[np.searchsorted(shown, self.document)] if len(shown) else np.zeros(0, bool)

        def name(at: int) -> str:
            return f"document {self.documents[shown[at]]} of query {self.queries[owner[shown[at]]]}"

        if missing == "error" and known.any() and not known.all():
            raise ArgumentError(
                f"{int((~known).sum())} of {len(shown)} documents of the log are missing, such as {name(int(known.argmin()))}",
                "add them to the table, or leave out their clicks by log.with_documents(query, document, missing='drop')",
            )
        if len(shown):
            check_matched(
                known,
                {int(known.argmin()): name(int(known.argmin()))},
                what="documents of the log",
                source="the table",
                advice=f"their {int(lost.sum())} rows with {int(self.click[lost].sum())} clicks are left out",
            )
        _report_never_shown(ids, place[shown][known])
        place = place.astype(np.int32)
        found = replace(self, document=place[self.document], documents=ids[1], of_table=True)
        return found._rows(~lost) if lost.any() else found

    def rows_of_documents(
        self, query: np.ndarray, document: np.ndarray, number: np.ndarray | None = None
    ) -> np.ndarray:
        """`[documents]`, the row of each document in a table with these ids by row; -1 for what it lacks or was never shown.

        `number` `[rows]` is how messages number the rows, from 0 if None.

        Raises:
            ValueError: the table has a document twice.
        """
        if query.shape != document.shape or query.ndim != 1:
            raise ValueError(
                f"query and document must have one id per row of the table; got {query.shape} and {document.shape}"
            )
        (own, of_row), (names, named) = common_numbers(self.queries, query), common_numbers(self.documents, document)
        many = int(max(names.max(initial=-1), named.max(initial=-1))) + 1
        keys = of_row * many + named
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        if twice := np.flatnonzero(ordered[1:] == ordered[:-1]).tolist():
            first, second = order[twice[0] : twice[0] + 2]
            rows = (first, second) if number is None else number[[first, second]]
            raise ValueError(
                f"document {document[first]} of query {query[first]} occurs twice in the table, in rows {rows[0]} and {rows[1]}; "
                "a table must have one row per document of a query"
            )
        found = np.full(len(self.documents), -1)
        owner = self.query_of_document
        shown = np.flatnonzero(owner >= 0)
        if len(keys) and len(shown):
            wanted = own[owner[shown]] * many + names[shown]
            at = np.minimum(np.searchsorted(ordered, wanted), len(keys) - 1)
            found[shown] = np.where(ordered[at] == wanted, order[at], -1)
        return found

    def of_features(self, features: Any) -> tuple[ClickLog, np.ndarray]:
        """The log with documents numbered by the rows of a table of features, and the features `[rows, d]`.

        A data frame with columns of queries and documents, with usual names, is matched by them; one of labels is no feature.

        Raises:
            ValueError: features that are neither named nor in an order that `with_documents` has stated, or of a wrong shape.
        """
        log, names = self, names_of(features) or []
        roles = {role: find_column(names, role) for role in ("query", "document")}
        if any(roles.values()):
            if missing := [role for role, name in roles.items() if name is None]:
                raise ValueError(
                    f"features have no column {missing[0]!r}, without which their documents are not known; add it"
                )
            log = self.with_documents(*(column_of(features, str(name)) for name in roles.values()))
            others = {*roles.values(), *usual_columns(names, "label")}
            found = np.stack([_feature(name, column_of(features, name)) for name in names if name not in others], 1)
        else:
            self.check_order("features")
            found = as_numbers("features", features)
        if found.ndim != 2 or len(found) != len(log.documents):
            raise ValueError(
                f"features must have a row for each document of the log, {len(log.documents)}; got {found.shape}"
            )
        return log, found

    def check_order(self, name: str) -> None:
        """Raise ValueError unless the order of `documents`, to which an argument refers by position, was stated."""
        if not self.of_table:
            raise ValueError(
                f"{name} does not say which entry is which document of the log: pass log.with_documents(query, document), with "
                f"the ids of each entry, as the log; log.with_documents() says that {name} has the order of log.documents"
            )

    def _rows(self, kept: np.ndarray) -> ClickLog:
        """The log of some of its rows; sessions without any are gone."""
        session = np.unique(self.session[kept], return_inverse=True)[1].astype(np.int32)
        rows = {name: getattr(self, name)[kept] for name in ("query", "document", "position", "click")}
        return replace(self, session=session, **rows)

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


def _report_never_shown(ids: tuple[np.ndarray, np.ndarray], rows: np.ndarray) -> None:
    """Report the documents of a table that are not in a log, which has those of `rows`."""
    seen = np.zeros(len(ids[0]), bool)
    seen[rows] = True
    if not seen.all():
        never = int(seen.argmin())
        check_matched(
            seen,
            {never: f"document {ids[1][never]} of query {ids[0][never]}"},
            what="documents of the table",
            source="the log",
            advice="they were never shown, so training leaves them out",
        )


def _feature(name: str, values: Any) -> np.ndarray:
    try:
        return as_numbers(name, values, exact=False).astype(np.float32)
    except TypeError as error:
        raise DataError(f"the data frame: {error}{_ONLY_NUMBERS}") from None


def _refuse(wrong: np.ndarray, told: str, values: np.ndarray | None = None) -> None:
    """Raise ValueError for the first wrong row, `{row}` of the message, with its value."""
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(told.format(row=at) + ("" if values is None else f" {values[at]:g}"))


def _checked_clicks(values: np.ndarray) -> np.ndarray:
    numbers = as_numbers("click", values, exact=False)
    wrong = ~((numbers == 0) | (numbers == 1))
    _refuse(wrong, "a row is one document of one session; click must be 0 or 1, that of row {row} is", numbers)
    return numbers.astype(bool)


def checked_positions(
    values: Any, clicks: np.ndarray, most: int, what: str = "row", why: str = "the longest ranking"
) -> tuple[np.ndarray, np.ndarray]:
    """Ranks from 1 to `most`, which is `why`, 1 for documents that were not shown, and whether each was."""
    numbers = as_numbers("position", values, exact=False)
    shown, its = ~np.isnan(numbers), f"that of {what} {{row}} is"
    said = f"{what} {{row}} has a click and no position: only documents that were shown can be clicked"
    _refuse(~shown & clicks, said)
    _refuse(shown & (numbers != np.floor(numbers)), f"position must be a whole number, {its}", numbers)
    _refuse(numbers < 1, f"position must be 1 or more, since the first is 1; {its}", numbers)
    _refuse(numbers > most, f"position must be at most {most}, {why}; {its}", numbers)
    return np.where(shown, numbers, 1).astype(np.int32), shown


def _numbered(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ids and their numbers by row, int32."""
    if isinstance(values, tuple):
        return values
    try:
        ids, numbers = np.unique(values, return_inverse=True)
    except TypeError:  # strings and numbers
        ids, numbers = np.unique(values.astype(str), return_inverse=True)
    return ids, numbers.astype(np.int32)


def common_numbers(ids: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal numbers for equal ids, int64; of numbers and strings, numbers count as they are written.

    >>> common_numbers(np.array([7, 8]), np.array(["8", "x"]))
    (array([0, 1]), array([1, 2]))
    """
    if (ids.dtype.kind in "iufb") != (others.dtype.kind in "iufb"):
        ids, others = ids.astype(str), others.astype(str)
    both = np.concatenate([ids, others])
    try:
        number = np.unique(both, return_inverse=True)[1]
    except TypeError:  # strings and numbers
        number = np.unique(both.astype(str), return_inverse=True)[1]
    return number[: len(ids)], number[len(ids) :]
