"""Tables with categories and missing cells as matrices of numbers.

A table is a data frame of pandas or polars, an Arrow table, an array of objects, or a mapping of names to columns. It becomes a
matrix `[documents, d]` with one column for each of its own: numbers are unchanged, a category is its index in the sorted list of
those found in training, a category that training did not have is -1, and a missing cell is NaN.

Categorical are columns of strings, pandas' `category`, polars' `Categorical` and `Enum`, and Arrow's dictionaries. Numbers and
booleans, 0 and 1, are numeric. A missing cell is None, NaN, pandas' NA, a null or an empty string.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import PurePath
from typing import Any

import numpy as np
from torch import nn

from rankstruct.arrays import is_missing
from rankstruct.roles import names_of

__all__ = ["Columns", "Table"]

_log = logging.getLogger(__name__)
MOST_CATEGORIES = 1000  #: of a column; text and identifiers have more
UNSEEN = -1.0  #: the code of a category that training did not have
_MARKED = ("category", "Categorical", "Enum", "dictionary")
_TIMES = ("date", "time", "duration")
_NESTED = ("list", "array", "struct", "large_list", "fixed_size_list", "map")


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
        names, columns = _series(table)
        for name, values in zip(names, columns, strict=True):
            if _kind(values).lower().startswith(_NESTED):
                raise TypeError(_nested(name, _kind(values)))
            if _kind(values).lower().startswith(_TIMES):
                raise ValueError(
                    f"X: column {name!r} has {_kind(values)}; convert it to numbers, such as days since a date"
                )
        chosen = list(map(_is_categorical, names, columns))
        if not any(chosen):
            return None
        found = {}
        for name, values, is_categorical in zip(names, columns, chosen, strict=True):
            found[name] = sorted({each for each in _distinct(name, values)[0] if each}) if is_categorical else None
        return cls(found)

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
        if isinstance(table, Table):
            return table.recoded(self)
        names, given = _series(table)
        if not names:
            return table
        if all(name == str(at) for at, name in enumerate(names)) and len(names) == len(self.names):
            names = self.names
        check_same_names("X", self.names, names)
        series = dict(zip(names, given, strict=True))
        columns = [_codes(name, series[name], each) for name, each in self.categories.items()]
        return np.stack(columns, axis=1) if columns else np.zeros((0, 0))

    def extra_repr(self) -> str:
        """Names and numbers of categories, for `repr`."""
        return ", ".join(f"{name}: {len(each)}" if each is not None else name for name, each in self.categories.items())


@dataclass(frozen=True, eq=False)
class Table:
    """An encoded table: the matrix `[documents, d]` and its columns; estimators take it like any other table.

    >>> table = Table(np.array([[1.0], [0.0]]), Columns.find({"brand": ["b", "a"]}))
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

    def select(self, names: Sequence[str]) -> Table:
        """The columns of these names, in this order."""
        own = self.columns.categories
        return Table(
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
    """Features as estimators take them: an Arrow record batch becomes a table, anything else is returned unchanged.

    Raises:
        TypeError: an object that is not a table, but can be turned into one, which the message says how to.

    >>> as_table("X", [{"price": 1.0}])
    Traceback (most recent call last):
    ...
    TypeError: X must be an array, a data frame of pandas or polars, an Arrow table or a sparse matrix, got a list of dicts: pass
    pandas.DataFrame(X)
    """
    if hasattr(X, "to_struct_array") and hasattr(X, "column_names") and not hasattr(X, "combine_chunks"):
        return importlib.import_module("pyarrow").Table.from_batches([X])
    for kind, way_out, is_one in _OTHER_KINDS:
        if is_one(X):
            got = kind or f"a {type(X).__name__}"
            raise TypeError(
                f"{name} must be an array, a data frame of pandas or polars, an Arrow table or a sparse matrix, got {got}: pass "
                f"{way_out.format(name)}"
            )
    return X


#: Kinds of data that are not tables: how messages call them, what to pass instead, and a test.
_OTHER_KINDS: list[tuple[str, str, Callable[[Any], bool]]] = [
    ("a path", "rankstruct.data.read_lists({})", lambda X: isinstance(X, str | PurePath)),
    (
        "a list of dicts",
        "pandas.DataFrame({})",
        lambda X: isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], Mapping),
    ),
    ("", "pandas.DataFrame({})", lambda X: isinstance(X, Mapping)),
    ("", "{}.collect()", lambda X: hasattr(X, "collect_schema") and not hasattr(X, "get_columns")),  # polars' LazyFrame
    ("", "{}.df()", lambda X: hasattr(X, "fetchnumpy")),  # DuckDB
    ("", "{}.compute()", lambda X: hasattr(X, "compute") and hasattr(X, "dtypes")),  # Dask
    ("", "{}.toPandas()", lambda X: hasattr(X, "toPandas")),  # Spark
    ("", "{}.to_pandas()", lambda X: hasattr(X, "features") and hasattr(X, "to_pandas")),  # Hugging Face's datasets
    ("", "one of its parts, such as {}.train", lambda X: hasattr(X, "train") and hasattr(X, "vali")),  # Splits
]


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
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value or None
    if is_missing(value):
        return None
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
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


def check_same_names(where: str, expected: Sequence[str], given: Sequence[str]) -> None:
    """Raise ValueError, with the names, for missing or additional columns."""
    gone, new = ([name for name in one if name not in other] for one, other in ((expected, given), (given, expected)))
    if gone or new:
        told = [
            f"{what} {', '.join(map(repr, names))[:200]}"
            for what, names in (("missing:", gone), ("unknown:", new))
            if names
        ]
        raise ValueError(f"{where} must have the columns of training; {'; '.join(told)}")


@functools.cache
def say_once(message: str) -> None:
    """Log a message, once in a process."""
    _log.warning("%s", message)


def _series(table: Any) -> tuple[list[str], list[Any]]:
    """The names and the columns of a table, numbers for those without names; nothing for a matrix of numbers."""
    if hasattr(table, "tocsr"):  # sparse
        return [], []
    if isinstance(table, Mapping):
        return list(table), list(table.values())
    if names := names_of(table):
        if hasattr(table, "iloc"):
            return names, [table.iloc[:, at] for at in range(len(names))]
        return names, list(table.get_columns() if hasattr(table, "get_columns") else table.columns)
    if isinstance(table, list | tuple) and np.asarray(table, object).ndim == 2:
        table = np.asarray(table, object)
    if getattr(getattr(table, "dtype", None), "kind", "") != "O" or table.ndim != 2:
        return [], []
    return list(map(str, range(table.shape[1]))), list(table.T)


def _array(values: Any) -> np.ndarray:
    if hasattr(values, "combine_chunks") and _is_marked(values):
        values = values.cast(values.type.value_type)  # of a dictionary, pyarrow's to_numpy loses the nulls
    found = values.to_numpy() if hasattr(values, "to_numpy") else values
    if not isinstance(found, np.ndarray) or found.dtype.kind in "UST":
        found = np.asarray(found, object)
    return found


def _is_marked(values: Any) -> bool:
    """Whether the type of a column is one of categories."""
    return _kind(values).startswith(_MARKED)


def _kind(values: Any) -> str:
    return str(getattr(values, "dtype", getattr(values, "type", "")))


def _is_categorical(name: str, values: Any) -> bool:
    """Whether a column has categories; raises ValueError for numbers among strings."""
    if _is_marked(values):
        return True
    found = _array(values)
    kinds = set(map(type, found)) if found.dtype == object else set()
    if not any(issubclass(kind, str | bytes) for kind in kinds):
        if nested := [kind.__name__ for kind in kinds if issubclass(kind, list | tuple | dict | set | np.ndarray)]:
            raise TypeError(_nested(name, f"cells of type {nested[0]}"))
        return False
    numbers = tuple(kind for kind in kinds if issubclass(kind, Real))
    if any(isinstance(each, numbers) and each == each for each in found):
        raise ValueError(f"X: column {name!r} has strings and numbers; make it one of them, such as with astype(str)")
    return True


def _nested(name: str, kind: str) -> str:
    # In the words of scikit-learn's check of estimators.
    return f"X: column {name!r} has {kind}; an argument must be a string or a number in each cell: make a column of each value"


def _is_gone(value: Any) -> bool:
    """Whether a cell that is not a number is missing."""
    return value in ("", b"") if isinstance(value, str | bytes) else is_missing(value)


def _distinct(name: str, values: Any) -> tuple[list[str | None], np.ndarray]:
    """The distinct names of categories of a column, and the index of each document's."""
    found = _array(values)
    if found.dtype != object:
        given, numbers = np.unique(found, return_inverse=True)
        distinct = given.tolist()
    else:
        places: dict[Any, int] = {}
        keys = ((each, isinstance(each, bool | np.bool_)) for each in found)  # True equals 1
        try:
            numbers = np.fromiter((places.setdefault(each, len(places)) for each in keys), np.int64, len(found))
        except TypeError:
            raise _unknown_kind(name, found) from None
        distinct = [each for each, _ in places]
    try:
        names = [category_name(each) for each in distinct]
    except TypeError:
        raise _unknown_kind(name, found) from None
    check_number(name, {each for each in names if each is not None}, "X: ")
    return names, numbers


def _codes(name: str, values: Any, categories: Sequence[str] | None) -> np.ndarray:
    """A column as float64."""
    if categories is None:
        return _numbers(name, values)
    found = _array(values)
    numeric = found.dtype.kind in "biuf" and not _is_marked(values) and not any(map(_is_number, categories))
    if numeric and not np.isnan(found).all():
        raise ValueError(f"X: {_changed(name, categories, f'numbers such as {found[~np.isnan(found)][0]!s}')}")
    names, numbers = _distinct(name, values)
    codes: np.ndarray = codes_of(names, categories)[numbers]
    return codes


def _numbers(name: str, values: Any) -> np.ndarray:
    found = _array(values)
    if found.dtype.kind in "biuf":
        return found.astype(np.float64)
    if found.dtype != object:
        raise _unknown_kind(name, found)
    numbers = np.full(len(found), np.nan)
    for at, value in enumerate(found):
        if isinstance(value, Real | Decimal):
            numbers[at] = float(value)
        elif isinstance(value, str | bytes) and not _is_gone(value):
            raise ValueError(f"X: {_changed(name, None, _such_as([str(value)]))}")
        elif not _is_gone(value):
            raise _unknown_kind(name, found)
    return numbers


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


def _unknown_kind(name: str, found: np.ndarray) -> ValueError:
    kind = str(found.dtype) if found.dtype != object else type(next(e for e in found if not _is_gone(e))).__name__
    days = (
        "; convert dates to numbers, such as days since one"
        if found.dtype.kind in "mM" or "date" in kind.lower()
        else ""
    )
    return ValueError(f"X: column {name!r} must have numbers, or strings for categories, got {kind}{days}")
