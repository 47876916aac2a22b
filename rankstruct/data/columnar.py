"""Lists from CSV, Parquet and Arrow files, one document per row, read by pyarrow.

Columns are `label`, `qid` and optionally `docid`, or have another usual name, such as `relevance` and `query_id`: see
`rankstruct.roles`. All others are features, in the order of the file: numbers, and strings or dictionaries, which are categories;
or a single column of lists of numbers of the same length. Documents of a query are contiguous. Null features, NaN and empty
strings are missing values, read as NaN; their number by column is logged, as are the categorical columns.

Names of queries and documents are the same in all formats, see `rankstruct.data.tables`; in CSV files, `1.0` is `1` if the first
rows of the column are all so. A column of a CSV file is categorical if no cell in the first rows is a number or date.

Several Parquet files may be one table, see `rankstruct.data.shards`: all but their features is then read and kept, and features
are decoded when they are used.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rankstruct.arrays import LARGEST_SINGLE
from rankstruct.checks import check_choice
from rankstruct.columns import Columns, check_number, coded, codes_of, difference, is_category, is_text, plain
from rankstruct.data.assembly import Assembly, DocumentBlock, Stream
from rankstruct.data.cache import assemble, described
from rankstruct.data.dataset import RankingData, register_format
from rankstruct.data.errors import REAL, DataError
from rankstruct.data.shards import ShardedFeatures
from rankstruct.data.tables import TableReader, as_names, check_columns, find_columns, is_number, named, null_words
from rankstruct.messages import Way, shortened
from rankstruct.progress import Progress

__all__ = ["read_arrow"]

_log = logging.getLogger(__name__)
_FORMAT = 5  # increment when the same file would result in other arrays


@register_format(".parquet", ".arrow", ".feather")
def read_arrow(
    path: str | os.PathLike[str],
    *,
    num_features: int | None = None,
    labels: Literal["grades", "real", "optional"] = "grades",
    label: str | None = None,
    qid: str | None = None,
    docid: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    cache: bool | str | os.PathLike[str] = True,
) -> RankingData:
    """Read a Parquet, Arrow (Feather) or CSV file of lists; or Parquet files that are one table, with features left in the files.

    Args:
        path: the file; or a folder, a pattern such as `part-*.parquet`, or a URL such as `s3://bucket/train`.
        num_features: the least number of features of the result; features missing in the file are 0.
        labels: `"grades"` for integers from 0, `"real"` for any finite number; `"optional"` also for missing ones, or a missing
            column, which are read as 0.
        label: the column of labels; None for the one with a usual name.
        qid: the column of queries, numbers or strings; likewise.
        docid: the column of document names, which may be missing; likewise.
        features: the feature columns, in the order of the result, such as those that a model was trained on; further columns are
            left out, which is logged as a warning. None for those of the file, in its order.
        categorical: feature columns whose values are categories, in addition to those of strings, such as numbers of shops.
        cache: as for `read_svmlight`.

    Raises:
        DataError: the file is missing or of another format; a column is missing, has other values, or more than 1000 categories;
            the documents of a query are not contiguous, or in two files.

    >>> read_arrow("train.parquet").summary()  # doctest: +SKIP
    """
    roles = {"label": label, "qid": qid, "docid": docid}
    rows = ListReader(Path(path), num_features, labels, roles, features, categorical)
    data = assemble(Path(path), rows.fill, cache, rows.options, rows if rows.table.shards else None)
    rows.log_columns()
    return data


class ListReader:
    """The reader of the lists of one CSV, Parquet or Arrow file; arguments are those of `read_arrow`."""

    def __init__(
        self,
        path: Path,
        num_features: int | None,
        labels: str,
        roles: Mapping[str, str | None],
        features: Sequence[str] | None = None,
        categorical: Sequence[str] = (),
        progress: bool = False,
    ) -> None:
        check_choice("labels", labels, ("grades", "real", "optional"))
        features = None if features is None else [str(name) for name in features]  # such as an index of pandas
        self.path, self.num_features, self.labels, self.wanted = path, num_features, labels, roles
        self.progress = progress
        categorical = [categorical] if isinstance(categorical, str) else [str(name) for name in categorical]
        #: What, with the content of the file, determines the arrays.
        self.options = [_FORMAT, num_features, labels, roles, features, categorical]
        text = "{} names another column, or use 0 for unknown labels"
        self.table = TableReader(
            path,
            roles,
            absent=("docid", "label") if labels == "optional" else ("docid",),
            features=features or (),
            advice={
                "qid": Way("qid", None, "{} names another column", "give it the name 'qid'"),
                "label": Way("label", None, text, "give it the name 'label'"),
            },
        )
        check_columns(path, self.table.names)
        self.roles = {role: self.table.columns.get(role) for role in roles}
        own = [name for name in self.table.names if name not in self.roles.values()]
        self.names = own if features is None else features
        self.left_out = [name for name in own if name not in self.names]
        if len(self.names) + len(self.left_out) > len(own):
            wanted = shortened(", ".join(self.names), 200)
            raise DataError(f"{path}: expected the features {wanted}, in any order; {difference(self.names, own)}")
        if unknown := [name for name in categorical if name not in self.names]:
            raise DataError(
                f"{path}: categorical must name feature columns, got {named(unknown)}; there are {named(self.names)}"
            )
        #: The categories by column, once they are read.
        self.categories: dict[str, Any] = {
            name: None for name in self.names if name in categorical or self._has_words(name)
        }
        self.texts = list(self.categories)  # columns of CSV files that are not parsed as numbers
        if (header := self.table.header) is not None:
            ids = (self.roles["qid"], self.roles["docid"])
            self.texts += [name for name in ids if name is not None and not header.are_whole(name)]
        self.width: int | None = None  # of lists of numbers
        self.missing: dict[str, int] = {}

    def _has_words(self, name: str) -> bool:
        header = self.table.header
        return is_category(self.table.kinds[name]) if header is None else header.are_words(name)

    def fill(self, assembly: Assembly) -> dict[str, Stream]:
        """Add all documents, and return the resulting arrays."""
        columns = self._find_categories()
        for batch in self.batches([name for name in self.table.names if name not in self.left_out]):
            assembly.add(self._part(batch, assembly.rows))
        if not assembly.rows:
            raise DataError(f"{self.path}: expected documents, one per row, got none")
        width = max(self.num_features or 0, assembly.width)
        place = None if self.table.shards is None else self.table.place
        arrays = assembly.finish(self.path, "row", num_features=width, sparse=False, place=place)
        if self.table.shards is not None:
            self.table.shards.check_whole(arrays["offsets"].array(), assembly.qids)
        # A column of lists, and features that are missing in the file, have no names.
        named = columns if columns.categorical or len(columns.names) == width else None
        return described(arrays, math.nan, self.missing, named)

    def batches(self, names: Sequence[str] | None = None) -> Iterator[Any]:
        """The rows as Arrow batches with some columns, None for all, under a progress bar."""
        with Progress(
            unit=" rows", unit_scale=True, desc=self.path.name, disable=not self.progress, leave=False
        ) as bar:
            for batch in self.table.batches(names, self.texts, self._advice):
                if len(batch):
                    yield batch
                    bar.update(len(batch))

    @property
    def version(self) -> str:
        """Of shards, what changes when one of them is written."""
        assert self.table.shards is not None
        return self.table.shards.version

    def features(self, offsets: np.ndarray, width: int, columns: Columns | None, incomplete: bool) -> ShardedFeatures:
        """The features of shards, given the arrays of `fill` that they depend on."""
        assert self.table.shards is not None
        if columns is not None:
            self.categories = {name: columns.categories[name] for name in self.categories}

        def read(first: int, last: int) -> Iterator[np.ndarray]:
            for batch in self.table.batches(self.names, rows=(first, last)):
                part = self._features(batch, first)
                first += len(part)
                yield part if part.shape[1] == width else np.pad(part, [(0, 0), (0, width - part.shape[1])])

        return ShardedFeatures(read, width, offsets, self.table.shards.groups, incomplete)

    def log_columns(self) -> None:
        """Warn of columns that were taken for a role or left out, whether the data were read from the file or from the cache."""
        for role, column in self.roles.items():
            if column not in (None, self.wanted[role] or role):
                _log.warning("%s: column %r is used as %r", self.path, column, role)
        if self.left_out:
            shown = ", ".join(self.left_out)[:200]
            _log.warning("%s: columns that are no features of training are left out: %s", self.path, shown)

    def _find_categories(self) -> Columns:
        """The columns of features, with the categories that are read."""
        found: dict[str, set[str]] = {name: set() for name in self.categories}
        for batch in self.table.batches(list(found), self.texts, self._advice) if found else ():
            for name, known in found.items():
                names, numbers = self._coded(name, batch.column(name))
                known.update(each for at in np.unique(numbers).tolist() if (each := names[at]) is not None)
                try:
                    check_number(name, known, f"{self.path}: ")
                except ValueError as error:
                    raise DataError(str(error)) from None
        self.categories = {name: tuple(sorted(known)) for name, known in found.items()}
        return Columns({name: self.categories.get(name) for name in self.names})

    def _advice(self, name: str, kind: str, got: str) -> str | Way:
        if kind == "string":
            return "save the file as UTF-8"
        if re.fullmatch(r"'[-+]?\d+,\d+'", got):
            return "write it with a decimal point"
        if kind == "bool" or got.strip("'").casefold() in ("true", "false"):
            return "a column of True and False may not have other values"
        if name == self.roles["label"]:
            return "use 0 for unknown labels"
        if name in self.roles.values():
            return "the first rows have integers, written as 1.0"
        if re.fullmatch(r"'\d{4}-\d\d-\d\d.*'", got):
            return "convert dates to numbers, such as days since one, or remove the column"
        return Way("categorical", [name], "if its cells are categories, name it: {}")

    def check(self, batch: Any, before: int) -> None:
        """Raise DataError for numbers that `read_arrow` refuses whatever its options, in the label or in features."""
        names = [*self.names, self.roles["label"]]
        numeric = [name for name in names if name not in (None, *self.categories)]
        self._features(batch, before, [str(name) for name in numeric if not is_text(plain(batch.column(name)).type)])

    def _part(self, batch: Any, before: int) -> DocumentBlock:
        qid, docid, label = str(self.roles["qid"]), self.roles["docid"], self.roles["label"]
        labels = np.zeros(len(batch), np.float32)
        if label is not None:
            labels = self._labels(label, batch.column(label), before)
        qids = self.table.ids(qid, batch.column(qid), before)
        features = self._features(batch, before)
        missing = np.isnan(features)
        counts = missing.sum(axis=0).tolist() if len(self.names) > 1 else [int(missing.sum())]
        for name, count in zip(self.names, counts, strict=True):
            if count:
                self.missing[name] = self.missing.get(name, 0) + count
        changes = np.ones(len(batch), bool)
        changes[1:] = np.diff(qids.indices.to_numpy()) != 0
        starts = np.flatnonzero(changes)
        return DocumentBlock(
            labels=labels,
            values=features.reshape(-1),
            indices=None,
            counts=None,
            width=features.shape[1],
            starts=starts,
            qids=as_names(qids.take(starts)),
            places=starts + before + 1,
            docids=None if docid is None else as_names(self.table.ids(docid, batch.column(docid), before)),
            missing=missing.sum(axis=1, dtype=np.int32) if missing.any() else None,
        )

    def _labels(self, name: str, column: Any, before: int) -> np.ndarray:
        if is_text(kind := plain(column).type) and "binary" not in str(kind):  # such as "1.0"
            try:
                words = plain(column).to_pylist()
            except UnicodeDecodeError as error:  # of a damaged file
                raise DataError(f"{self.path}: expected text in UTF-8 in column {name!r}, got: {error}") from None
            wrong = np.array([word is not None and not is_number(word) for word in words], bool)
            self.table.refuse(wrong, name, "a number", before, words)
            column = plain(column).cast("float64")
        labels, refuse = self.table.numbers(name, column), self.table.refuse
        if self.labels == "optional":
            labels = np.where(np.isnan(labels), 0, labels)
        refuse(np.isnan(labels), name, "a number", before, labels, "use 0 for unknown labels")
        refuse(~np.isfinite(labels), name, "a finite number", before, labels)
        single = labels.astype(np.float32)
        if self.labels == "grades":
            refuse((labels < 0) | (labels % 1 != 0), name, "a grade, an integer from 0", before, labels, REAL)
            most = f"a grade that is exact in float32, up to {LARGEST_SINGLE},"
            refuse(labels.astype(np.float64) > LARGEST_SINGLE, name, most, before, labels)
        refuse(~np.isfinite(single), name, "a number in the range of float32", before, labels)
        return single

    def _features(self, batch: Any, before: int, names: Sequence[str] | None = None) -> np.ndarray:
        """Features `[n, d]` float32, NaN if missing; of some columns, if named."""
        if not self.names:
            wanted = ", ".join(name or role for role, name in self.wanted.items())
            raise DataError(f"{self.path}: expected feature columns in addition to {wanted}, got none")
        names = self.names if names is None else names
        with np.errstate(over="ignore"):  # reported below as infinite
            if self.of_lists(batch):
                features = self.lists(self.names[0], batch.column(self.names[0]), before)
            else:
                features = np.empty((len(batch), len(names)), np.float32)
                for at, name in enumerate(names):
                    features[:, at] = self._column(name, batch.column(name))
        wrong = np.isinf(features)
        if wrong.any():
            row, at = np.argwhere(wrong)[0].tolist()
            raise DataError(
                f"{self.table.place(before + row)}: expected finite numbers (in the range of float32) in "
                f"{names[min(at, len(names) - 1)]!r}, got a larger one"
            )
        return features

    def _column(self, name: str, column: Any) -> np.ndarray:
        """Numbers or codes `[n]`, NaN if missing."""
        if name not in self.categories:
            return self.table.numbers(name, column, _advice_on(column.type))
        names, numbers = self._coded(name, column)
        codes: np.ndarray = codes_of(names, self.categories[name])[numbers]
        return codes

    def _coded(self, name: str, column: Any) -> tuple[list[str | None], np.ndarray]:
        """The distinct names of categories in a column, None if missing, and the index of each row's."""
        try:
            names, numbers = coded(f"{self.path}: ", name, column)
        except ValueError as error:
            raise DataError(str(error)) from None
        nothing = null_words() if self.table.header is not None else ()
        return [None if each in nothing else each for each in names], numbers

    def of_lists(self, batch: Any) -> bool:
        """Whether the features of a batch are a column of lists."""
        kinds = ("list", "large_list", "fixed_size_list")
        return len(self.names) == 1 and str(plain(batch.column(self.names[0])).type).startswith(kinds)

    def lists(self, name: str, column: Any, before: int) -> np.ndarray:
        """A column of lists as numbers `[n, d]`, NaN if missing."""
        import pyarrow.compute as pc

        column, refuse = plain(column), self.table.refuse
        refuse(column.is_null().to_numpy(zero_copy_only=False), name, "a list of numbers", before)
        lengths = np.asarray(pc.list_value_length(column).to_pylist())
        self.width = int(lengths[0]) if self.width is None else self.width
        expected = f"lists of the same length, {self.width} as in row 1,"
        refuse(lengths != self.width, name, expected, before, lengths)
        if not self.width:
            raise DataError(f"{self.path}: expected lists of numbers in column {name!r}, got empty ones")
        return self._column(name, column.flatten()).astype(np.float32).reshape(len(column), -1)


def column_names(path: str | os.PathLike[str], known: Mapping[str, str | None]) -> list[str]:
    """The names of the feature columns, in the order of the file, with the others by role, None to find them.

    Raises:
        DataError: a file of another format, or several columns for a role.
    """
    names = TableReader(path, {"qid": known["qid"]}, optional=("qid",)).names
    roles = find_columns(path, names, known).values()
    return [name for name in names if name not in roles]


def _advice_on(kind: Any) -> str:
    """What a message advises for a column of features of another Arrow type than numbers and strings."""
    if str(kind).startswith(("date", "time", "duration", "month")):
        return "; convert it to numbers, such as days since a date, or remove the column"
    if "list" in str(kind).partition("<")[0]:
        return "; a column of lists must be the only feature column"
    return "; remove the column"
