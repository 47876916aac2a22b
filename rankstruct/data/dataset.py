"""Ranking data in memory: flat arrays plus list offsets.

The documents of a list are contiguous: list i is the range `[offsets[i], offsets[i + 1])` of every per-document array.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from typing_extensions import Self

from rankstruct.arrays import LARGEST_SINGLE, as_numbers, as_single
from rankstruct.blocks import Blocks, let_go
from rankstruct.columns import Columns, EncodedTable, named_columns, names_of
from rankstruct.constraints.rules import Groups, group_ids
from rankstruct.data.errors import DataError
from rankstruct.data.names import Names, check_offsets
from rankstruct.ids import known_ids, numbered_ids
from rankstruct.messages import Way, did_you_mean, shortened

__all__ = ["RankingData", "Splits", "Summary", "concatenate", "register_format"]

Features = Any  # numpy.ndarray, scipy.sparse.csr_array or Blocks; scipy's own stubs do not say so
_LISTS = 2**14  # whose labels are in memory at once, if they are memory-mapped


@dataclass(frozen=True, eq=False)
class RankingData:
    """Documents grouped in lists; validated on creation and immutable.

    Args:
        features: `[documents, d]` float32, a C-ordered array or a `scipy.sparse.csr_array`; or a float16 array, as in files
            converted to float16, which batches and solvers convert on the fly; or those of shards, which are in files until they
            are used. NaN is a missing feature.
        labels: `[documents]` float32.
        offsets: `[lists + 1]` int64, from 0 to the number of documents.
        qids: `[lists]` strings, the unique names of the lists; stored as `Names`, as are the next two.
        docids: `[documents]` strings or None; "" for a document without a name.
        comments: `[documents]` bytes or None, the comments after `#` in a file.
        missing: `[documents]` integers or None, the number of missing features per document.
        diversity_groups: `[documents]` int64 or None: documents of a list with the same number form a group (host, topic);
            `with_groups` builds them from names, comments or a column.
        group_columns: by name, the groups of the documents that rules are about, such as sellers; `with_columns` builds them.
        columns: the names of the features, with the categories of those that are codes; None if features have no names.

    Raises:
        DataError: shapes are inconsistent, offsets decrease, a name is repeated, a feature is infinite, or a label is not finite.

    >>> data = RankingData.from_arrays([[0.5], [1.0], [2.0]], [0, 1, 0], ["a", "a", "b"])
    >>> data.num_lists, data.num_documents, data.num_features
    (2, 3, 1)
    """

    features: Features
    labels: np.ndarray
    offsets: np.ndarray
    qids: Names
    docids: Names | None = None
    comments: Names | None = None
    missing: np.ndarray | None = None
    diversity_groups: np.ndarray | None = None
    columns: Columns | None = None
    group_columns: Any = field(default_factory=dict)  # Sphinx cannot read the signature of a mapping with a factory

    def __post_init__(self) -> None:
        _check_types(self.features, self.labels, self.offsets)
        documents = len(self.labels)
        if (rows := self.features.shape[0]) != documents:
            raise DataError(f"labels must have one entry per row of features; got {documents} labels, {rows} rows")
        for name in _per_document()[2:]:
            values = getattr(self, name)
            if values is not None and np.shape(values) != (documents,):
                raise DataError(f"{name} must have shape [documents] = ({documents},), got {np.shape(values)}")
        groups = self.diversity_groups
        if groups is not None and (not isinstance(groups, np.ndarray) or groups.dtype != np.int64):
            raise DataError(
                f"diversity_groups must be an int64 array, got {_kind(groups)}; with_groups converts names and numbers"
            )
        for name, values in self.group_columns.items():
            if np.shape(values.ids) != (documents,):
                raise DataError(
                    f"{name!r} must have one entry per document, shape ({documents},), got {values.ids.shape}"
                )
        check_offsets("offsets", self.offsets, documents, "documents")
        if np.shape(self.qids) != (self.num_lists,):
            raise DataError(f"qids must have shape [lists] = ({self.num_lists},), got {np.shape(self.qids)}")
        for name in ("qids", "docids", "comments"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, Names.of(given))
        if (found := self.qids.repeated()) is not None:
            name = shortened(self.qids[found[0]])
            raise DataError(f"qids must be unique; {name} is repeated at list {found[0]}; sort by qid")
        if self.columns is not None and (named := len(self.columns.names)) != self.num_features:
            raise DataError(f"columns must describe the {self.num_features} features, got {named}")
        if not isinstance(self.features, Blocks):  # which are checked when they are decoded
            self._check_finite()

    def _check_finite(self) -> None:
        stored = self.features.data if sp.issparse(self.features) else self.features
        for name, values in (("features", stored), ("labels", self.labels)):
            # Minimum and maximum need no temporary array of the size of the data; those of features ignore NaN.
            least, most = (np.fmin, np.fmax) if name == "features" else (np.minimum, np.maximum)
            is_wrong = np.isinf if name == "features" else lambda each: ~np.isfinite(each)
            if not values.size or not is_wrong([of.reduce(values, axis=None) for of in (least, most)]).any():
                continue
            at = np.argwhere(is_wrong(values))[0]
            if name == "features" and sp.issparse(self.features):
                entry = int(at[0])
                at = np.array([np.searchsorted(self.features.indptr, entry, "right") - 1, self.features.indices[entry]])
            value = self.features[at[0], at[1]] if name == "features" else values[at[0]]
            raise DataError(
                f"{name} must be finite numbers{' or NaN' if name == 'features' else ''}; got {value} at "
                f"{name}[{', '.join(map(str, at))}] "
                f"(list {shortened(self.qids[self.list_of(int(at[0]))])}); correct or remove such documents"
            )

    @classmethod
    def from_arrays(cls, X: ArrayLike, y: ArrayLike, qid: ArrayLike, *, docids: ArrayLike | None = None) -> RankingData:
        """Build data from one row, one label and one query name per document.

        `X` is `[documents, d]`, any array or a SciPy sparse matrix; the others are `[documents]`. The documents of a query must
        be contiguous.

        Raises:
            DataError: the documents of a query are not contiguous, shapes are inconsistent, an entry is missing, a number is not
                finite, or a label is an integer that is not exact in float32.

        >>> RankingData.from_arrays([[1.0], [2.0], [3.0]], [1, 0, 2], [7, 7, 9]).offsets
        array([0, 2, 3])
        """
        try:
            ids = np.asarray(qid) if isinstance(qid, Names) else known_ids("qid", qid)
            labels = np.ascontiguousarray(as_single("y", y))
            if docids is not None and not isinstance(docids, Names):
                docids = Names.of(known_ids("docids", docids))
            if not sp.issparse(X):
                X = np.ascontiguousarray(as_numbers("X", X, exact=False), dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise DataError(str(error)) from None
        if ids.ndim != 1 or labels.ndim != 1 or len(ids) != len(labels):
            raise DataError(
                f"y and qid must have shape [documents], one entry per document; got {labels.shape} and {ids.shape}"
            )
        names = np.asarray(Names.of(ids)) if ids.dtype.kind == "O" else ids
        starts = np.flatnonzero(names[1:] != names[:-1]) + 1
        offsets = np.concatenate([[0], starts, [len(names)]]) if len(names) else np.zeros(1)
        offsets = offsets.astype(np.int64)
        features = sp.csr_array(X, dtype=np.float32) if sp.issparse(X) else X
        qids = Names.of(
            names[offsets[:-1]].tolist() if names.dtype.kind == "O" else names[offsets[:-1]].astype(np.str_)
        )
        return cls(features, labels, offsets, qids, docids)

    @property
    def num_lists(self) -> int:
        """Number of lists."""
        return len(self.offsets) - 1

    @property
    def num_documents(self) -> int:
        """Total number of documents."""
        return len(self.labels)

    @property
    def num_features(self) -> int:
        """Number of features per document."""
        return int(self.features.shape[1])

    @property
    def lengths(self) -> np.ndarray:
        """Number of documents of each list, `[lists]`."""
        return np.diff(self.offsets)

    @property
    def is_sparse(self) -> bool:
        """Whether features are a sparse matrix."""
        return bool(sp.issparse(self.features))

    @property
    def list_numbers(self) -> np.ndarray:
        """The list index of each document, `[documents]`, as for `qid` of estimators."""
        return np.repeat(np.arange(self.num_lists), self.lengths)

    @property
    def table(self) -> Any:
        """The features as estimators take them, with the names and categories of a table; a matrix without names."""
        return self.features if self.columns is None else EncodedTable(self.features, self.columns)

    def list_of(self, document: int) -> int:
        """The list index of a document, given by its row."""
        return int(np.searchsorted(self.offsets, document, side="right")) - 1

    def same_labels(self) -> np.ndarray:
        """`[lists]` booleans: whether all labels of a list are equal, so that every ranking is right.

        >>> RankingData.from_arrays([[1.0]] * 4, [1, 1, 0, 1], [1, 1, 2, 2]).same_labels()
        array([ True, False])
        """
        same = self.lengths == 0
        filled = np.flatnonzero(~same)
        for some in np.split(filled, range(_LISTS, len(filled), _LISTS)):
            if len(some):
                first = self.offsets[some[0]]
                labels, starts = self.labels[first : self.offsets[some[-1] + 1]], self.offsets[some] - first
                same[some] = np.minimum.reduceat(labels, starts) == np.maximum.reduceat(labels, starts)
                let_go(self.labels)
        return same

    def select(self, lists: ArrayLike) -> Self:
        """Select lists, in the order given, by unique indices or a boolean mask `[lists]`.

        >>> data = RankingData.from_arrays([[1.0], [2.0], [3.0]], [1, 0, 2], ["a", "a", "b"])
        >>> data.select([1]).labels
        array([2.], dtype=float32)
        """
        chosen = np.arange(self.num_lists)[np.asarray(lists, dtype=None if np.size(lists) else np.int64)]
        return self.select_documents(self.documents_of(chosen), self.offsets_of(chosen), self.qids[chosen])

    def offsets_of(self, lists: np.ndarray) -> np.ndarray:
        """The offsets of some lists, put one after the other."""
        return np.append(0, (self.offsets[lists + 1] - self.offsets[lists]).cumsum())

    def documents_of(self, lists: np.ndarray) -> np.ndarray:
        """The rows of the documents of some lists, list by list."""
        offsets = self.offsets_of(lists)
        return np.arange(offsets[-1]) + np.repeat(self.offsets[lists] - offsets[:-1], np.diff(offsets))

    def select_documents(self, rows: ArrayLike, offsets: ArrayLike, qids: Names) -> Self:
        """Select documents, in the order given, with all of their attributes.

        `rows` are document indices, list by list; `offsets` `[lists + 1]` and `qids` `[lists]` describe the new lists.

        >>> data = RankingData.from_arrays([[1.0], [2.0], [3.0]], [1, 0, 2], ["a", "a", "b"])
        >>> data.select_documents([2, 0], [0, 2], Names.of(["c"])).labels
        array([2., 1.], dtype=float32)
        """
        rows = np.asarray(rows, np.int64)
        found = {name: getattr(self, name) for name in _per_document()}
        taken = {name: values[rows] for name, values in found.items() if values is not None}
        groups = {name: values.at(rows) for name, values in self.group_columns.items()}
        return type(self)(
            **taken, offsets=np.asarray(offsets, np.int64), qids=qids, columns=self.columns, group_columns=groups
        )

    def with_features(self, features: Features) -> RankingData:
        """Replace the features by others, `[documents, any]`, which are numbers."""
        return replace(self, features=features, columns=None)

    def recoded(self, columns: Columns | None) -> RankingData:
        """The same lists with the columns, in the order and the codes, of others, such as those of a model.

        None are numbers without names; features without names are taken to be in the order of the columns.

        Raises:
            DataError: other names; or a column has categories here and numbers there, or the reverse.
        """
        if self.columns is None:
            if columns is None or not columns.categorical:
                return self
            names = ", ".join(map(repr, columns.names))[:200]
            raise DataError(f"expected a table with the columns {names}, got numbers")
        try:
            wanted = Columns(dict.fromkeys(self.columns.names)) if columns is None else columns
            return replace(self, features=self._recoded(self.columns, wanted), columns=wanted)
        except ValueError as error:
            raise DataError(str(error)) from None

    def _recoded(self, own: Columns, wanted: Columns) -> Features:
        if not isinstance(self.features, Blocks) or list(own.categories.items()) == list(wanted.categories.items()):
            return EncodedTable(self.features, own).recoded(wanted)
        return self.features.changed(lambda block, _: EncodedTable(block, own).recoded(wanted))

    def comment_values(self, key: str) -> Names:
        """The values of `key` in comments such as `# url = a.org/b host = a.org`, as `[documents]` strings.

        A value ends at the next `word =` or the end of the comment; it is "" if the key is missing. If there are no comments, or
        none has the key, this raises DataError.
        """
        begins = re.compile(rf"(?:^|[ \t]){re.escape(key)}[ \t]*=[ \t]*")
        comments, found = self._search_comments(begins, f"has {key!r}")
        if not any(found):
            first = f"no comment has {key!r}; the first one is {shortened(comments[0])}" if found else "no documents"
            raise DataError(first)
        ends = re.compile(r"[ \t]\w+[ \t]*=|$")
        # Two searches, since a single expression would take quadratic time for long comments.
        values = ((match.string, match.end()) if match else ("", 0) for match in found)
        return Names.of([text[at : ends.search(text, at).start()].rstrip(" \t") for text, at in values])  # type: ignore[union-attr]

    def with_groups(
        self, diversity_groups: ArrayLike | None = None, *, comment: str | None = None, column: int | None = None
    ) -> RankingData:
        r"""Set the groups (hosts, topics) of documents from one of three sources; equal values form a group.

        Args:
            diversity_groups: `[documents]` numbers or strings.
            comment: a regular expression with one capture group, which matches the group in each comment, such as
                `r"host = (\S+)"`.
            column: the index of a feature, from 0, whose value is the group; it remains a feature.

        Raises:
            DataError: none or several of the three are given, the number of documents differs, there is no such column, a
                comment does not match, or a feature is too large to tell groups apart in float32.

        >>> data = RankingData.from_arrays([[5.0], [2.0], [5.0]], [1, 0, 2], ["a", "a", "a"])
        >>> data.with_groups(["b.org", "a.org", "b.org"]).diversity_groups
        array([1, 0, 1])
        >>> data.with_groups(column=0).diversity_groups
        array([1, 0, 1])
        """
        if sum(source is not None for source in (diversity_groups, comment, column)) != 1:
            raise DataError("give exactly one of diversity_groups, comment= and column=")
        if comment is not None:
            values = self._found_in_comments(comment)
        elif column is not None:
            values = self._groups_in(column)
        else:
            try:
                values = numbered_ids("diversity_groups", diversity_groups)
            except ValueError as error:
                raise DataError(str(error)) from None
            if values.shape != (self.num_documents,):
                raise DataError(
                    f"diversity_groups must have shape [documents] = ({self.num_documents},), got {values.shape}"
                )
        return replace(self, diversity_groups=np.unique(values, return_inverse=True)[1].astype(np.int64))

    def grouped_by(self, source: int | str | None) -> RankingData:
        """Set groups from a config value: a column index, a regular expression for the comments, or None for no change.

        >>> data = RankingData.from_arrays([[5.0], [2.0], [5.0]], [1, 0, 2], ["a", "a", "a"])
        >>> data.grouped_by(0).diversity_groups
        array([1, 0, 1])
        """
        if source is None:
            return self
        return self.with_groups(column=source) if isinstance(source, int) else self.with_groups(comment=source)

    def with_columns(self, columns: Mapping[str, Any]) -> RankingData:
        r"""Set columns of groups that rules are about, next to those that are there.

        Args:
            columns: by name, the groups `[documents]`, names or whole numbers, None or NaN for none; a mapping or a data frame.
                Or where to find them: a regular expression with one capture group for the comments, such as
                `r"seller = (\S+)"`, the name of a column of features, or its index from 0; it remains a feature.

        Raises:
            DataError: no mapping, another number of documents, groups that are no names or whole numbers, no such column, a
                feature too large to tell groups apart in float32, a comment that does not match, or the name `diversity_groups`,
                whose groups `with_groups` sets.

        >>> data = RankingData.from_arrays([[5.0], [2.0], [5.0]], [1, 0, 2], ["a", "a", "a"])
        >>> data = data.with_columns({"seller": ["ann", "bob", None], "kind": 0})
        >>> data.group_columns["seller"].texts(), data.group_columns["kind"].ids
        (['ann', 'bob', ''], array([5, 2, 5]))
        """
        if not isinstance(columns, Mapping) and not names_of(columns):
            raise DataError(
                f"columns must be a mapping from names to groups, or a data frame, got {shortened(columns)}"
            )
        found = {}
        for name, given in named_columns(columns).items():
            if name == "diversity_groups":
                raise DataError(
                    "the groups of diverse rankings are set by with_groups, or data.diversity_groups of a config"
                )
            is_source = isinstance(given, int | str) and not isinstance(given, bool)
            values = self._source_of_groups(given) if is_source else given
            try:
                found[name] = group_ids(name, values)
            except (TypeError, ValueError) as error:
                raise DataError(str(error)) from None
        return replace(self, group_columns={**self.group_columns, **found})

    def _source_of_groups(self, source: int | str) -> Any:
        """The groups that a config names, see `with_columns`."""
        names = [] if self.columns is None else self.columns.names
        if isinstance(source, int):
            return self._groups_in(source)
        if source not in names and names and self.comments is None:
            raise DataError(
                f"there is no column {source!r}{did_you_mean(source, names)}; there are {', '.join(names)[:200]}"
            )
        if source not in names:
            return self._found_in_comments(source)
        values = self._groups_in(names.index(source))
        assert self.columns is not None
        known = self.columns.categories[source]
        return values if known is None else [known[int(code)] if code >= 0 else None for code in values.tolist()]

    def _feature(self, column: int) -> np.ndarray:
        """A feature of all documents, by its index."""
        if not 0 <= column < self.num_features:
            raise DataError(f"column must be a feature index from 0 to {self.num_features - 1}; got {column}")
        chosen = self.features[:, [column]]
        return (chosen.toarray() if self.is_sparse else chosen).ravel()

    def _groups_in(self, column: int) -> np.ndarray:
        """A feature as groups, which float32 must not have merged."""
        values = self._feature(column)
        if (large := values[np.abs(values) >= LARGEST_SINGLE]).size:
            raise DataError(
                f"feature {column} has groups such as {large[0]:.0f}: features are float32, exact for whole numbers "
                f"below {LARGEST_SINGLE}, so different groups may be one there; pass the groups as an array, or names"
            )
        return values

    def _found_in_comments(self, expression: str) -> np.ndarray:
        try:
            pattern = re.compile(expression)
        except re.error as error:
            raise DataError(f"comment must be a regular expression, got {expression!r}: {error}") from None
        if pattern.groups != 1:
            raise DataError(f"comment must have one capture group, (...), for the group; got {expression!r}")
        comments, found = self._search_comments(pattern, "names a group")
        if None in found:
            at = found.index(None)
            raise DataError(
                f"{expression!r} does not match the comment of document {at} (list "
                f"{shortened(self.qids[self.list_of(at)])}), {shortened(comments[at])}; "
                f"{found.count(None)} comments do not match"
            )
        return np.asarray(Names.of([match[1] if match else "" for match in found]))

    def _search_comments(self, pattern: re.Pattern[str], wanted: str) -> tuple[Names, list[re.Match[str] | None]]:
        if self.comments is None:
            raise DataError(f"no document has a comment, so none {wanted}; read them from a file with comments")
        return self.comments, [pattern.search(text.decode("utf-8", "replace")) for text in self.comments]

    def summary(self) -> Summary:
        """Counts and statistics, printed as a table.

        >>> print(RankingData.from_arrays([[0.5], [1.0], [2.0]], [0, 1, 0], ["a", "a", "b"]).summary())
        lists                     2
        documents                 3
        features                  1
        list length               1 to 2, median 1.5
        labels                    0: 2, 1: 1
        lists, nothing relevant   1
        values stored             100.0%
        missing values            0
        """
        lengths = self.lengths
        relevant = np.concatenate([[0], np.cumsum(self.labels > 0)])
        values, counts = np.unique(self.labels, return_counts=True)
        cells = self.num_documents * self.num_features
        return Summary(
            lists=self.num_lists,
            documents=self.num_documents,
            features=self.num_features,
            shortest=int(lengths.min(initial=0 if not len(lengths) else lengths[0])),
            median=float(np.median(lengths)) if len(lengths) else 0.0,
            longest=int(lengths.max(initial=0)),
            labels=dict(zip(values.tolist(), counts.tolist(), strict=True)),
            nothing_relevant=int((np.diff(relevant[self.offsets]) == 0).sum()),
            density=(self.features.nnz / cells if cells else 0.0) if self.is_sparse else 1.0,
            missing=0 if self.missing is None else int(self.missing.sum()),
        )


@dataclass(frozen=True)
class Summary:
    """Counts and statistics of a `RankingData`; `str()` formats a table.

    Relevant means label > 0; `density` is the fraction of values that are stored.

    >>> RankingData.from_arrays([[1.0], [2.0]], [0, 1], ["a", "a"]).summary().lists
    1
    """

    lists: int
    documents: int
    features: int
    shortest: int
    median: float
    longest: int
    labels: dict[float, int]
    nothing_relevant: int
    density: float
    missing: int

    def __str__(self) -> str:
        if len(self.labels) <= 10:
            labels = ", ".join(f"{label:g}: {count}" for label, count in self.labels.items())
        else:
            labels = f"{len(self.labels)} values, {min(self.labels):g} to {max(self.labels):g}"
        rows = {
            "lists": self.lists,
            "documents": self.documents,
            "features": self.features,
            "list length": f"{self.shortest} to {self.longest}, median {self.median:g}",
            "labels": labels or "none",
            "lists, nothing relevant": self.nothing_relevant,
            "values stored": f"{self.density:.1%}",
            "missing values": self.missing,
        }
        return "\n".join(f"{name:<25} {value}" for name, value in rows.items())


def columns_for_rules(data: RankingData) -> Mapping[str, Groups]:
    """The columns that rules may be about: the groups of diverse rankings are one."""
    if data.diversity_groups is None:
        return data.group_columns
    return {"diversity_groups": Groups(data.diversity_groups, None), **data.group_columns}


class Splits(NamedTuple):
    """Training, validation and test data.

    >>> from rankstruct.data import digits
    >>> [part.num_lists for part in digits()]
    [50, 50, 50]
    """

    train: RankingData
    vali: RankingData
    test: RankingData


def concatenate(parts: Sequence[RankingData]) -> RankingData:
    """Concatenate the lists of several parts.

    Names, comments, missing counts, groups and columns of groups are kept if all parts have them; categories are in the codes of
    the first part. No parts, different numbers of features, or repeated query names raise DataError.

    >>> one = RankingData.from_arrays([[1.0]], [1], ["a"])
    >>> two = RankingData.from_arrays([[2.0]], [0], ["b"])
    >>> concatenate([one, two]).qids.tolist()
    ['a', 'b']
    """
    if not parts:
        raise DataError("concatenate needs at least one part, got none")
    widths = [part.num_features for part in parts]
    if len(set(widths)) > 1:
        raise DataError(
            f"all parts must have the same number of features, got {widths}",
            Way("num_features", None, "read them with the same {}"),
        )
    parts = [part.recoded(parts[0].columns) for part in parts]

    def joined(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        if any(value is None for value in values):
            return None
        if isinstance(values[0], Names):
            return Names.joined(values)
        return sp.vstack(values, format="csr") if any(map(sp.issparse, values)) else np.concatenate(values)

    lengths = np.concatenate([part.lengths for part in parts])
    return RankingData(
        **{name: joined(name) for name in _per_document()},  # groups are only compared within a list
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        qids=Names.joined([part.qids for part in parts]),
        columns=parts[0].columns,
        group_columns={
            name: Groups.joined(name, [part.group_columns[name] for part in parts])
            for name in parts[0].group_columns
            if all(name in part.group_columns for part in parts)
        },
    )


#: Readers of lists by suffix.
FORMATS: dict[str, Callable[..., RankingData]] = {}
Reader = TypeVar("Reader", bound=Callable[..., RankingData])


def register_format(*suffixes: str) -> Callable[[Reader], Reader]:
    """Decorate a reader of files of these suffixes, in folds, as `predict_path` and as labels of `rankstruct evaluate`.

    Args:
        suffixes: such as `".tsv"`; the files may have `.gz`, `.bz2`, `.xz` or `.zst` after it. The reader is called as
            `reader(path, num_features=None, labels="grades", cache=True)`, with any of the three options; `num_features` is the
            least number of features of the result.

    Raises:
        ValueError: an invalid suffix, or one already in use.
    """
    for suffix in suffixes:
        if not suffix.startswith(".") or suffix in FORMATS:
            raise ValueError(
                f"suffix must start with a dot and differ from {', '.join(FORMATS)}, which are in use; got {suffix!r}"
            )

    def register(reader: Reader) -> Reader:
        FORMATS.update(dict.fromkeys(suffixes, reader))
        return reader

    return register


def _per_document() -> list[str]:
    """The fields of `RankingData` with one entry per document, `features` and `labels` first."""
    return [
        entry.name for entry in fields(RankingData) if entry.name not in ("offsets", "qids", "columns", "group_columns")
    ]


def _check_types(features: Features, labels: np.ndarray, offsets: np.ndarray) -> None:
    wrong = None
    if sp.issparse(features):
        if features.format != "csr" or features.dtype != np.float32:
            wrong = f"features must be float32 in CSR form, got {features.dtype} in {features.format.upper()} form"
    elif (
        not isinstance(features, np.ndarray | Blocks)
        or features.dtype not in (np.float32, np.float16)
        or features.ndim != 2
    ):
        wrong = f"features must be a float32 array [documents, d] or a SciPy CSR array, got {_kind(features)}"
    if not isinstance(labels, np.ndarray) or labels.dtype != np.float32 or labels.ndim != 1:
        wrong = wrong or f"labels must be a float32 array [documents], got {_kind(labels)}"
    if not isinstance(offsets, np.ndarray) or offsets.dtype != np.int64 or offsets.ndim != 1 or not len(offsets):
        wrong = wrong or f"offsets must be an int64 array [lists + 1], got {_kind(offsets)}"
    if wrong:
        raise DataError(f"{wrong}; use RankingData.from_arrays(X, y, qid) to convert")


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}, shape {value.shape}"
    return f"a {type(value).__name__}"
