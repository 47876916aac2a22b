"""The columns of tables: their roles by name, and those of features, with categories and missing cells, as numbers.

A table is a data frame of pandas, whatever has Arrow's C stream protocol (polars, pyarrow, DuckDB), an array of objects, or a
mapping of names to columns.

One rule finds the column of a role, such as labels or users, in files and data frames: a column that is named is taken, in any
case if that is unambiguous; otherwise the one column with a usual name (`USUAL`), in any case. If several columns have usual
names, one must be named; but `y`, which may be a coordinate, is a feature if another column has a usual name of labels.

Features become a matrix `[documents, d]` with one column for each of the table: numbers are unchanged, a category is its index in
the sorted list of those found in training, a category that training did not have is -1, and a missing cell is NaN. Categorical
are columns of strings and Arrow's dictionaries, as which pandas' `category` and polars' `Categorical` and `Enum` come. Numbers
and booleans, 0 and 1, are numeric. A missing cell is None, NaN, pandas' NA, a null or an empty string.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import PurePath
from typing import Any

import numpy as np
from torch import nn

from rankstruct.arrays import is_missing
from rankstruct.messages import ArgumentError, Way

__all__ = ["Columns", "EncodedTable"]

_log = logging.getLogger(__name__)
MOST_CATEGORIES = 1000  #: of a column; text and identifiers have more
UNSEEN = -1.0  #: the code of a category that training did not have
#: The roles of columns in tables of lists, which are not features.
LIST_ROLES = ("label", "qid", "docid")
#: The usual names by role, in lower case.
USUAL = {
    "label": ("label", "relevance", "rel", "y", "target"),
    "qid": ("qid", "query_id", "query", "group"),
    "docid": ("docid", "doc_id", "document_id"),
    "query": ("query", "query_id", "qid"),
    "document": ("document", "document_id", "docid", "doc_id"),
    "position": ("position", "rank"),
    "click": ("click", "clicked"),
    "session": ("session", "session_id"),
    "user": ("user", "user_id", "userid"),
    "item": ("item", "item_id", "itemid", "movie_id", "movieid", "product_id", "productid"),
    "rating": ("rating",),
    "time": ("time", "timestamp", "datetime"),
}


def usual_columns(names: Iterable[str], role: str) -> list[str]:
    """The columns with a usual name of a role, in any case.

    >>> usual_columns(["Query_ID", "rel", "x"], "qid")
    ['Query_ID']
    """
    return [name for name in names if name.casefold() in USUAL[role]]


def find_column(names: Iterable[str], role: str, given: str | None = None, argument: str | None = None) -> str | None:
    """The column of a role; None if there is none.

    Args:
        names: the columns.
        role: one of `USUAL`.
        given: its name; None to find it by its usual names.
        argument: how messages call `given`, the role if None, or "" if it cannot be given.

    Raises:
        ValueError: several columns have such a name, or the same one.

    >>> find_column(["QID", "x"], "qid"), find_column(["x", "rel"], "label"), find_column(["x", "rel"], "label", "X")
    ('QID', 'rel', 'x')
    >>> find_column(["label", "target"], "label")
    Traceback (most recent call last):
    ...
    rankstruct.messages.ArgumentError: columns 'label' and 'target' have usual names of 'label'; name the right one, such as
    label='label', and remove the other if it is not a feature
    """
    names = list(names)
    if given in names:
        return given
    found = usual_columns(names, role) if given is None else [n for n in names if n.casefold() == given.casefold()]
    if repeated := next((name for at, name in enumerate(found) if name in found[:at]), None):
        raise ValueError(f"expected columns with unique names, got {repeated!r} several times")
    if len(found) > 1 and given is None:
        found = [name for name in found if name not in ("y", "Y")]
    if len(found) > 1:
        told = f"columns {' and '.join(map(repr, found))} have {'usual names' if given is None else 'the name'} of {role!r}"
        if argument == "":
            raise ValueError(f"{told}; remove the wrong one")
        text = "name the right one, such as {}, and remove the other if it is not a feature"
        raise ArgumentError(told, Way(argument or role, found[0], text, "remove the wrong one"))
    return found[0] if found else None


class Columns(nn.Module):
    """The columns of a table: their names in order, with the categories of those that are not numeric, if any.

    A module without weights, which is saved with the preparation of a scorer.

    Args:
        categories: `{name: sorted categories, or None for numbers}`.

    >>> columns = Columns.find({"price": [2.5, None], "brand": ["b", "a"]})
    >>> columns.categories
    {'price': None, 'brand': ('a', 'b')}
    >>> columns.encode({"price": [1, 2, 3], "brand": ["a", "new", None]})
    array([[ 1.,  0.],
           [ 2., -1.],
           [ 3., nan]])
    """

    def __init__(self, categories: Mapping[str, Sequence[str] | None]) -> None:
        super().__init__()
        self.categories = {name: None if given is None else tuple(given) for name, given in categories.items()}

    @classmethod
    def find(cls, table: Any) -> Columns | None:
        """The columns of a training table; None if all are numeric, or it is an array of numbers.

        Raises:
            ValueError: repeated names; a column with more than 1000 categories, or with other values than numbers and strings.
            TypeError: a column of lists or structs.
        """
        if hasattr(table, "dtypes") and all(getattr(each, "kind", "O") in "biuf" for each in table.dtypes):
            return None  # the usual frame, at little cost
        columns = {name: as_arrow(name, values) for name, values in named_columns(table).items()}
        for name, column in columns.items():
            check_kind("X: ", name, column.type)
        categorical = [name for name, column in columns.items() if is_category(column.type)]
        if not categorical:
            return None
        return cls(
            {name: categories_of("X: ", name, each) if name in categorical else None for name, each in columns.items()}
        )

    @property
    def description(self) -> str:
        """A sentence about the categorical columns."""
        found = [(name, each) for name, each in self.categories.items() if each is not None]
        shown = [f"{name!r} ({len(each)}{f', such as {each[0][:20]!r}' if each else ''})" for name, each in found[:5]]
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        return f"categorical columns, with the number of categories: {', '.join(shown)}{more}"

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.categories)

    @property
    def categorical(self) -> list[int]:
        """The indices of the categorical columns."""
        return [at for at, each in enumerate(self.categories.values()) if each is not None]

    def encode(self, table: Any) -> np.ndarray:
        """The table as a matrix `[documents, d]`, float64; a matrix of numbers is taken as encoded and returned unchanged.

        Columns of a data frame or mapping are matched by name, those of an array by position.

        Raises:
            ValueError: missing or additional columns, strings in a numeric column, numbers in a column of words, or other values.
        """
        if isinstance(table, EncodedTable):
            return table.recoded(self)
        given = named_columns(table)
        if not given:
            return table
        if {*given} != {*self.names} and list(given) == list(map(str, range(len(self.names)))):
            given = dict(zip(self.names, given.values(), strict=True))
        check_same_names("X", self.names, list(given))
        columns = [
            _encoded(name, as_arrow(name, given[name], text=each is not None), each)
            for name, each in self.categories.items()
        ]
        return np.stack(columns, axis=1) if columns else np.zeros((0, 0))

    def extra_repr(self) -> str:
        """Names and numbers of categories, for `repr`."""
        return ", ".join(f"{name}: {len(each)}" if each is not None else name for name, each in self.categories.items())


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """An encoded table: the matrix `[documents, d]` and its columns; estimators take it like any other table.

    >>> table = EncodedTable(np.array([[1.0], [0.0]]), Columns.find({"brand": ["b", "a"]}))
    >>> table.values.shape, table.columns.categories
    ((2, 1), {'brand': ('a', 'b')})
    """

    values: np.ndarray
    columns: Columns

    @property
    def shape(self) -> tuple[int, ...]:
        """`(documents, d)`."""
        return self.values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype)

    def select(self, names: Sequence[str]) -> EncodedTable:
        """The columns of these names, in this order."""
        own = self.columns.categories
        return EncodedTable(
            self.values[:, [list(own).index(name) for name in names]], Columns({each: own[each] for each in names})
        )

    def recoded(self, columns: Columns) -> np.ndarray:
        """The matrix in the codes of other columns of the same names, such as those of a model.

        Raises:
            ValueError: other names, or a column that is numeric in one and categorical in the other.
        """
        own = self.columns.categories
        if list(own.items()) == list(columns.categories.items()):
            return self.values
        check_same_names("X", columns.names, list(own))
        values = self.select(columns.names).values
        for at, (name, known) in enumerate(columns.categories.items()):
            mine = own[name]
            if (mine is None) != (known is None):
                raise ValueError(_changed(name, known, "numbers" if mine is None else _such_as(mine)))
            if mine != known and mine is not None and known is not None:
                column = values[:, at]
                there = column >= 0
                column[there] = codes_of(mine, known)[column[there].astype(np.int64)]
        return values


def as_table(name: str, X: Any) -> Any:
    """Features as estimators take them: what has Arrow's C stream protocol becomes a table, anything else is unchanged.

    Raises:
        TypeError: an object that is not a table, but can be turned into one, which the message says how to.

    >>> as_table("X", [{"price": 1.0}])
    Traceback (most recent call last):
    ...
    TypeError: X must be an array, a data frame of pandas or polars, an Arrow table or a sparse matrix, got a list of dicts: pass
    pandas.DataFrame(X)
    """
    for kind, way_out, is_one in _OTHER_KINDS:
        if is_one(X):
            got = kind or f"a {type(X).__name__}"
            raise TypeError(
                f"{name} must be an array, a data frame of pandas or polars, an Arrow table or a sparse matrix, got {got}: pass "
                f"{way_out.format(name)}"
            )
    # Frames of pandas and polars, and Arrow's tables, stay what they are, since scikit-learn knows them.
    is_known = hasattr(X, "iloc") or hasattr(X, "get_columns") or hasattr(X, "combine_chunks")
    return X if is_known or not hasattr(X, "__arrow_c_stream__") else _pyarrow().table(X)


#: Kinds of data that are not tables: how messages call them, what to pass instead, and a test.
_OTHER_KINDS: list[tuple[str, str, Callable[[Any], bool]]] = [
    ("a path", "rankstruct.data.read_lists({})", lambda X: isinstance(X, str | PurePath)),
    (
        "a list of dicts",
        "pandas.DataFrame({})",
        lambda X: isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], Mapping),
    ),
    ("", "pandas.DataFrame({})", lambda X: isinstance(X, Mapping)),
    ("records", "pandas.DataFrame({})", lambda X: getattr(getattr(X, "dtype", None), "names", None) is not None),
    ("", "{}.collect()", lambda X: hasattr(X, "collect_schema") and not hasattr(X, "get_columns")),  # polars' LazyFrame
    (
        "",
        "{}.df()",
        lambda X: hasattr(X, "fetchnumpy") and not hasattr(X, "__arrow_c_stream__"),  # an earlier DuckDB
    ),
    ("", "{}.compute()", lambda X: hasattr(X, "compute") and hasattr(X, "dtypes")),  # Dask
    ("", "{}.toPandas()", lambda X: hasattr(X, "toPandas")),  # Spark
    ("", "{}.to_pandas()", lambda X: hasattr(X, "features") and hasattr(X, "to_pandas")),  # Hugging Face's datasets
    ("", "one of its parts, such as {}.train", lambda X: hasattr(X, "train") and hasattr(X, "vali")),  # Splits
]


def _pyarrow() -> Any:
    """The module, imported when a table comes."""
    import pyarrow
    import pyarrow.compute

    return pyarrow


def names_of(table: Any) -> list[str]:
    """The names of the columns of a data frame of pandas or polars or an Arrow table; none for anything else.

    Raises:
        ValueError: a name is repeated, so that it names no one column.
    """
    if hasattr(table, "iloc"):
        names = list(map(str, getattr(table, "columns", ())))
    else:
        names = list(table.columns if hasattr(table, "get_columns") else getattr(table, "column_names", ()))
    if len(set(names)) < len(names):
        again = next(name for at, name in enumerate(names) if name in names[:at])
        raise ValueError(f"expected a table with unique column names, {again!r} is repeated: rename or drop one")
    return names


def named_columns(table: Any) -> dict[str, Any]:
    """The columns of a table by name, those without names by number; none for a matrix of numbers."""
    if isinstance(table, Mapping):
        return dict(table)
    if names := names_of(table):
        if hasattr(table, "iloc"):
            return {name: table.iloc[:, at] for at, name in enumerate(names)}
        return dict(zip(names, _pyarrow().table(table).columns, strict=True))
    if isinstance(table, list | tuple) and np.asarray(table, object).ndim == 2:
        table = np.asarray(table, object)
    if getattr(getattr(table, "dtype", None), "kind", "") != "O" or table.ndim != 2:
        return {}
    return {str(at): column for at, column in enumerate(table.T)}


def as_arrow(name: str, values: Any, *, text: bool = False, where: str = "X: ") -> Any:
    """A column of a table as an Arrow array without chunks, in which missing objects are null; with `text`, numbers may be text.

    Raises:
        ValueError: strings and numbers, or other objects.
        TypeError: lists or other collections.
    """
    pa = _pyarrow()
    if isinstance(values, pa.ChunkedArray):
        return _without_chunks(values)
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    values = np.array([*values, None], object)[:-1] if isinstance(values, list | tuple) else values
    is_object = getattr(getattr(values, "dtype", None), "kind", "") == "O"
    if is_object and hasattr(next((each for each in values if not is_gone(each)), None), "to_datetime64"):
        # Timestamps of pandas, which pyarrow would cut to microseconds.
        stamps = [np.datetime64("NaT") if is_gone(each) else each.to_datetime64() for each in values]
        values, is_object = np.array(stamps, "datetime64[ns]"), False
    found = _as_arrow(values, is_object)
    if found is not None and (is_category(found.type) or not (text and is_object)):
        return found
    cells = [None if is_gone(each) else each for each in values]
    if not text and (found := _as_arrow(cells, True)) is not None:
        return found
    kinds = {type(each) for each in cells if each is not None}
    words, numbers = (
        {kind for kind in kinds if issubclass(kind, some)} for some in ((str, bytes), (Real, Decimal, np.bool_))
    )
    if kinds == numbers and not text:
        return pa.array([None if each is None else float(each) for each in cells])
    if text and kinds == words | numbers:
        return pa.array([category_name(each) for each in cells])
    if kinds == words | numbers:
        raise ValueError(
            f"{where}column {name!r} has strings and numbers; make it one of them, such as with astype(str)"
        )
    other = (kinds - words - numbers).pop().__name__
    if not words:
        raise TypeError(_nested(where, name, f"cells of type {other}"))
    raise ValueError(f"{where}column {name!r} must have numbers, or strings for categories, got {other}")


def _as_arrow(values: Any, is_object: bool) -> Any:
    """Values as an Arrow array; None if it has no one type for them."""
    try:
        found = _pyarrow().array(values, from_pandas=is_object)
        return _without_chunks(found) if hasattr(found, "chunks") else found
    except (ValueError, TypeError, OverflowError, NotImplementedError):
        return None


def _without_chunks(column: Any) -> Any:
    """A chunked Arrow array as one, without a copy of a single chunk."""
    chunks = column.unify_dictionaries().chunks
    pa = _pyarrow()
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def is_gone(value: Any) -> bool:
    """Whether a cell is missing."""
    return value in ("", b"") if isinstance(value, str | bytes) else is_missing(value) if np.ndim(value) == 0 else False


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of strings or bytes."""
    return str(kind).partition("[")[0] in (
        "string",
        "large_string",
        "string_view",
        "binary",
        "large_binary",
        "binary_view",
    )


def is_category(kind: Any) -> bool:
    """Whether the columns of an Arrow type are categorical."""
    return is_text(kind) or str(kind).startswith("dictionary")


def check_kind(where: str, name: str, kind: Any) -> None:
    """Raise for an Arrow type that is neither numbers nor categories: ValueError, or TypeError for lists and structs."""
    types, shown = _pyarrow().types, str(kind)[:100]
    if types.is_nested(kind):
        raise TypeError(_nested(where, name, shown))
    if types.is_temporal(kind):
        raise ValueError(
            f"{where}column {name!r} has {shown}; convert it to numbers, such as days since a date, or remove the column"
        )


def _nested(where: str, name: str, kind: str) -> str:
    # In the words of scikit-learn's check of estimators.
    rule = "an argument must be a string or a number in each cell: make a column of each value"
    return f"{where}column {name!r} has {kind}; {rule}"


def plain(column: Any) -> Any:
    """An Arrow array without an extension type, a dictionary, or a view, which Arrow computes little with."""
    pa, kind = _pyarrow(), column.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(column.storage)
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary).take(column.indices)
    if str(kind).endswith("_view"):
        return column.cast(pa.large_string() if str(kind) == "string_view" else pa.large_binary())
    return column


def numbers(where: str, name: str, column: Any, advice: str = "") -> np.ndarray:
    """An Arrow array of numbers, of their own type, or as floats with NaN for what is missing.

    Raises:
        ValueError: other values; `advice` ends the message.
    """
    types, shown = _pyarrow().types, str(column.type)[:100]
    column = plain(column)
    if types.is_null(column.type):
        return np.full(len(column), np.nan)
    if types.is_decimal(column.type):
        column = column.cast("float64")
    if types.is_boolean(column.type) and column.null_count:
        column = column.cast("uint8")
    if not (types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type)):
        raise ValueError(f"{where}expected numbers in column {name!r}, got {shown}{advice}")
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    return values


def coded(where: str, name: str, column: Any) -> tuple[list[str | None], np.ndarray]:
    """The distinct names of categories in an Arrow array, the last None for what is missing, and the index of each row's.

    Raises:
        ValueError: other values than strings and numbers.
    """
    pa, kind = _pyarrow(), column.type
    try:
        if not pa.types.is_dictionary(kind):
            column = plain(column).dictionary_encode()
        names = [*map(category_name, plain(column.dictionary).to_pylist()), None]
    except (TypeError, pa.ArrowNotImplementedError):
        raise ValueError(f"{where}expected strings or numbers in column {name!r}, got {str(kind)[:100]}") from None
    return names, column.indices.cast("int64").fill_null(len(names) - 1).to_numpy(zero_copy_only=False)


def categories_of(where: str, name: str, column: Any) -> list[str]:
    """The sorted categories that occur in an Arrow array; raises ValueError if there are too many."""
    names, numbers = coded(where, name, column)
    known = {each for at in np.unique(numbers).tolist() if (each := names[at]) is not None}
    check_number(name, known, where)
    return sorted(known)


def codes_of(names: Sequence[str | None], categories: Sequence[str]) -> np.ndarray:
    """The code of each name: its index in `categories`, -1 if it is not one of them, NaN for None.

    >>> codes_of(["b", "c", None], ["a", "b"])
    array([ 1., -1., nan])
    """
    places = {name: float(at) for at, name in enumerate(categories)}
    return np.array([np.nan if name is None else places.get(name, UNSEEN) for name in names], np.float64)


def category_name(value: Any) -> str | None:
    """The name of a category: strings unchanged, whole numbers in digits; None if missing.

    Raises:
        TypeError: other objects.

    >>> category_name("a"), category_name(3.0), category_name(""), category_name(float("nan"))
    ('a', '3', None, None)
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            value = value.decode()
    if isinstance(value, str):
        return value or None
    if is_missing(value):
        return None
    if isinstance(value, float | Decimal):
        return str(int(value)) if value % 1 == 0 else str(value)
    if isinstance(value, int):
        return str(value)
    raise TypeError(type(value).__name__)


def check_number(name: str, categories: Iterable[str], where: str = "") -> None:
    """Raise ValueError if a column has so many categories that it is text or an identifier."""
    if sum(1 for _ in categories) > MOST_CATEGORIES:
        raise ValueError(
            f"{where}column {name!r} has more than {MOST_CATEGORIES} categories, as text and identifiers have: leave the column "
            "out, or replace it by numbers or by fewer categories"
        )


def difference(expected: Sequence[str], got: Sequence[str]) -> str:
    """What a message says of missing and of additional names; "" if there are none.

    >>> difference(["a", "b"], ["b", "c"])
    "missing: 'a'; unknown: 'c'"
    """
    pairs = (("missing", expected, got), ("unknown", got, expected))
    told = [(what, [name for name in one if name not in other]) for what, one, other in pairs]
    return "; ".join(f"{what}: {', '.join(map(repr, names))[:200]}" for what, names in told if names)


def check_same_names(where: str, expected: Sequence[str], given: Sequence[str]) -> None:
    """Raise ValueError, with the names, for missing or additional columns."""
    if told := difference(expected, given):
        raise ValueError(f"{where} must have the columns of training; {told}")


@functools.cache
def say_once(message: str) -> None:
    """Log a message, once in a process."""
    _log.warning("%s", message)


def _encoded(name: str, column: Any, categories: Sequence[str] | None) -> np.ndarray:
    """An Arrow array as float64, numbers or the codes of categories."""
    check_kind("X: ", name, column.type)
    numeric = not is_category(column.type)
    if categories is None:
        if numeric:
            return numbers("X: ", name, column).astype(np.float64)
        if words := categories_of("X: ", name, column):
            raise ValueError(f"X: {_changed(name, None, _such_as(words))}")
        return np.full(len(column), np.nan)
    if numeric and not any(map(_is_number, categories)):
        values = numbers("X: ", name, column)
        if len(known := values[~np.isnan(values)]):
            raise ValueError(f"X: {_changed(name, categories, f'numbers such as {known[0]!s}')}")
    names, places = coded("X: ", name, column)
    codes: np.ndarray = codes_of(names, categories)[places]
    return codes


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _such_as(names: Sequence[str]) -> str:
    return f"text such as {names[0][:20]!r}" if names else "text"


def _changed(name: str, categories: Sequence[str] | None, got: str) -> str:
    """The message for a column that changed its kind."""
    before = "numbers" if categories is None else _such_as(categories)
    return f"column {name!r} had {before} in training, got {got}; convert it, so that it is the same in both"
