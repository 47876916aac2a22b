"""The users and items of a fit, and what later calls give, in their terms."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import filterfalse
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from rankstruct.columns import named_columns, names_of, usual_columns
from rankstruct.constraints.rules import Groups, group_ids
from rankstruct.data import DataError, Names
from rankstruct.data.errors import check_matched
from rankstruct.data.tables import Ids
from rankstruct.data.times import are_epochs, is_date
from rankstruct.ids import known_ids
from rankstruct.messages import shortened, warn_caller
from rankstruct.recommenders.ratings import Ratings, columns_of, ids_of, interactions, numbers_of, of_indices, places_of

__all__ = ["Index"]

_OMITTED = "they are left out"
_ORDER = (
    "their order; pass a table with a column of times, or with rows in order of time, or "
    "read_interactions(path, times='order')"
)


@dataclass(frozen=True)
class Index:
    """The users and items of a fit.

    Attributes:
        known: the interactions.
        by_index: whether users and items are rows and columns of a matrix.
        integers: of users and items, whether they were columns of integers.
        columns: the arguments of `interactions` for tables.
        is_ordered: whether interactions have times; the order of rows is that of time if there are none.
    """

    known: Ratings
    by_index: bool
    integers: Mapping[str, bool]
    columns: Mapping[str, Any]
    is_ordered: bool = False

    @classmethod
    def of(cls, X: Any, y: Any, columns: Mapping[str, Any], *, is_ordered: bool = False) -> Index:
        """Those of the interactions that `fit` gets; raises DataError if they must have an order, and have none."""
        if isinstance(X, Ratings) or sp.issparse(X) or (y is None and not names_of(X)):
            known = interactions(X, y, **columns)
            _check_order(known, is_ordered)
            return cls(known, sp.issparse(X), {"users": False, "items": False}, columns, is_ordered)
        if y is None:
            users, items, known = _of_table(X, columns, is_ordered)
        else:
            users, items = X, y
            known = interactions(users, items, times=_order_of(users, is_ordered), **columns)
        return cls(
            known,
            False,
            {what: bool(_which_integers(ids).all()) for what, ids in (("users", users), ("items", items))},
            columns,
            is_ordered,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}  # nothing that is computed from them

    def names(self, what: str) -> Names:
        """The names of `"users"` or `"items"`."""
        return self.known.user_names if what == "users" else self.known.item_names

    @cached_property
    def numbers(self) -> dict[str, dict[str, int]]:
        """The index of each name of users and items."""
        return {what: numbers_of(self.names(what)) for what in ("users", "items")}

    @cached_property
    def seen(self) -> dict[str, np.ndarray]:
        """`[n]` bool: whether users and items have interactions."""
        known = self.known
        return {"users": np.diff(known.offsets) > 0, "items": np.bincount(known.item, minlength=known.num_items) > 0}

    def places(self, what: str, ids: np.ndarray | Names) -> np.ndarray:
        """`[n]`: the indices of `ids_of`, -1 for all that are not exactly those of fit, and for items without interactions,
        which were never learnt.
        """
        found = places_of(ids, self.numbers[what])
        return np.where(self.seen[what][found], found, -1) if what == "items" else found

    def rows(self, what: str, given: Any) -> tuple[bool, list[str], np.ndarray]:
        """Whether one user or item was given, the names, and their indices, see `places`."""
        one = _is_one(given)
        given = [given] if one else given
        try:
            ids = ids_of(what, given)
        except DataError as error:
            raise DataError(str(error).replace("interaction", what[:-1])) from None
        found = self.places(what, ids)
        if self.by_index:
            found[~_which_integers(given)] = -1
        return one, Names.of(ids).tolist(), found

    def groups_of_items(self, name: str, given: Any) -> Groups:
        """The groups `[items]` from a mapping of items, or an array."""
        number = len(self.seen["items"])
        if isinstance(given, Mapping) or hasattr(given, "items"):  # a dictionary or a Series
            pairs = list(given.items())
            _, names, places = self.rows("items", [item for item, _ in pairs])
            check_matched(places >= 0, names, what=f"the items of {name!r}", source="the items of fit", advice=_OMITTED)
            values = np.full(number, None, object)
            for place, (_, group) in zip(places, pairs, strict=True):
                if place >= 0:
                    values[place] = group
            return group_ids(name, values)
        if not self.by_index:
            raise ValueError(
                f"columns must map items to groups, since fit got names, got {type(given).__name__} for {name!r}"
            )
        groups = group_ids(name, given)
        if groups.ids.shape != (number,):
            raise ValueError(f"{name!r} must have a group for each of the {number} items, got shape {groups.ids.shape}")
        return groups

    def ranked(self, among: Any, exclude: Any, what: str = "items") -> np.ndarray | None:
        """The indices of the items (or users) that may be in results, only those with interactions; None for all."""
        chosen = np.flatnonzero(self.seen[what])
        if among is not None:
            chosen = np.intersect1d(chosen, self._chosen(among, what, f"{what} to rank"))
        if exclude is not None:
            chosen = np.setdiff1d(chosen, self._chosen(exclude, what, f"{what} to exclude"))
        return None if len(chosen) == len(self.seen[what]) else chosen

    def _chosen(self, given: Any, what: str, role: str) -> np.ndarray:
        _, names, places = self.rows(what, given)
        if not names and "rank" in role:
            raise ValueError(f"{what} has none; None ranks all")
        source, advice = f"the {what} of fit", _OMITTED
        check_matched(places >= 0, names, what=role, source=source, advice=advice, stacklevel=6)
        return places[places >= 0]

    def answer(self, what: str, indices: Tensor, scores: Tensor, one: bool) -> tuple[np.ndarray, np.ndarray]:
        """The results `[n, k]`, or `[k]` of one, with users or items in the form that `fit` got; indices may be -1."""
        found: Any = indices.cpu().numpy()
        if not self.by_index:
            names: Any = self.names(what).tolist()
            names = list(map(int, names)) if self.integers[what] else names
            whole = self.integers[what] and not (found < 0).any() and max(names, default=0) < 2**63
            found = np.array([*names, None], object)[found]  # the last is that of -1
            found = found.astype(np.int64) if whole else found
        values = scores.cpu().numpy()
        return (found[0], values[0]) if one else (found, values)

    def read(self, X: Any, y: Any = None) -> Ratings:
        """Interactions in the form of `fit`, with names of their own."""
        if self.by_index:
            got = type(X).__name__ if y is None else "users and items"
            if y is None and (sp.issparse(X) or isinstance(X, Ratings)):
                found, got = interactions(X), "interactions with ids"
                if _are_indices(found.user_names) and _are_indices(found.item_names):
                    return found
            raise DataError(f"expected a matrix [users, items], as in fit, got {got}; its rows and columns have no ids")
        if sp.issparse(X):
            raise DataError(
                "expected names of users and items, as in fit, got a matrix, whose rows and columns have none"
            )
        if y is not None or not names_of(X):
            return interactions(X, y, times=None if y is None else _order_of(X, self.is_ordered))
        columns = names_of(X)  # which need not all be there again
        told = {name: value for name, value in self.columns.items() if value in columns or name == "min_rating"}
        if not self.is_ordered:
            return interactions(X, **told)
        return _of_table(X, {**dict.fromkeys(self.columns), **told}, True)[2]

    def _check_sizes(self, given: Ratings, num_users: int) -> None:
        """Raise DataError if a matrix is not of so many users and the items of `fit`."""
        sizes = num_users, self.known.num_items
        if self.by_index and (given.num_users, given.num_items) != sizes:
            raise DataError(
                f"expected {sizes[0]} users and {sizes[1]} items, as in fit, got {given.num_users} and {given.num_items}"
            )

    def held(self, X: Any, name: str, unknown_items: str = "miss") -> tuple[Ratings, np.ndarray]:
        """Interactions of users of `fit` with its items, and the number `[users]` of those with others, if they are misses."""
        given = self.read(X)
        self._check_sizes(given, self.known.num_users)
        counted = "they count as misses" if unknown_items == "miss" else _OMITTED
        user = self._matched("users", given.user, given.user_names, name, _OMITTED)
        item = self._matched("items", given.item, given.item_names, name, counted)
        missed = user[(user >= 0) & (item < 0)] if unknown_items == "miss" else user[:0]
        kept = (user >= 0) & (item >= 0)
        found = of_indices(user[kept], item[kept], self.known.user_names, self.known.item_names)
        return found, np.bincount(missed, minlength=self.known.num_users)

    def _matched(self, what: str, numbers: np.ndarray, names: Names, name: str, advice: str) -> np.ndarray:
        """The indices of users or items, -1 for those that are not in `fit`, which are reported."""
        at, occurring = self.places(what, names), np.unique(numbers)
        options: dict[str, Any] = {"what": f"{what} of {name}", "source": f"the {what} of fit", "advice": advice}
        check_matched(at[occurring] >= 0, names[occurring], **options, stacklevel=7)
        return at[numbers]

    def of_new_users(self, X: Any) -> tuple[bool, Ratings]:
        """Whether X are the items of one user, and the interactions of new users with the items of `fit`."""
        if sp.issparse(X) and len(X.shape) == 1:
            return True, self.of_new_users(sp.csr_array(X.reshape(1, -1)))[1]
        one = False
        if isinstance(X, Ratings) or sp.issparse(X) or names_of(X):
            given = self.read(X)
            _check_order(given, self.is_ordered)
            self._check_sizes(given, given.num_users)
            user, num_users, times = given.user, given.num_users, given.time
            item = self._matched("items", given.item, given.item_names, "X", _OMITTED)
        else:
            if _is_one(X) or isinstance(X, Mapping):
                raise ValueError(f"X must be interactions, a list of items, or of lists of items, got {shortened(X)}")
            _refuse_dense(X, self.known.num_items)
            lists = list(X)
            if not lists:
                raise ValueError("X must have items, or lists of items, got none; [[]] is a user who knows nothing")
            several = [not _is_one(each) for each in lists]
            if any(several) and not all(several):
                raise ValueError(f"X must be a list of items, or of lists of items, got both, such as {shortened(X)}")
            one = not any(several)
            lists = [lists] if one else [list(each) for each in lists]
            user, num_users = np.repeat(np.arange(len(lists)), list(map(len, lists))), len(lists)
            _, asked, item = self.rows("items", [each for items in lists for each in items])
            distinct, first = np.unique(np.array(asked, object), return_index=True)
            options: dict[str, Any] = {"what": "items of X", "source": "the items of fit", "advice": _OMITTED}
            check_matched(item[first] >= 0, distinct, **options, stacklevel=5)
            times = _order_of(item, self.is_ordered)
        names, kept = Names.of(np.arange(num_users)), item >= 0
        times = times[kept] if self.is_ordered and times is not None else None
        return one, of_indices(user[kept], item[kept], names, self.known.item_names, times)

    def extended(self, X: Any, y: Any) -> tuple[Index, np.ndarray]:
        """The index with further interactions, whose new users and items follow those of `fit`, and the users of them."""
        known, given = self.known, self.read(X, y)
        if sp.issparse(X) and (given.num_users < known.num_users or given.num_items < known.num_items):
            raise DataError(
                f"expected a matrix of at least {known.num_users} users and {known.num_items} items, those of fit first, got "
                f"{given.num_users} and {given.num_items}"
            )
        numbers, names = {}, {}
        for what, its, given_at in (
            ("users", given.user_names, given.user),
            ("items", given.item_names, given.item),
        ):
            at = places_of(its, self.numbers[what])
            new = np.flatnonzero(at < 0)
            if self.integers[what] and (odd := next(filterfalse(_INTEGER.fullmatch, its[new]), None)):
                raise DataError(
                    f"{what} must be integers, as in fit, got {shortened(odd)}; fit a model with text as ids for others"
                )
            at[new] = len(self.names(what)) + np.arange(len(new))
            numbers[what] = at[given_at]
            names[what] = Names.joined([self.names(what), its[new]]) if len(new) else self.names(what)
        user = np.concatenate([known.user, numbers["users"]])
        item = np.concatenate([known.item, numbers["items"]])
        whole = of_indices(user, item, names["users"], names["items"])
        return replace(self, known=whole), np.unique(numbers["users"])


def _of_table(table: Any, columns: Mapping[str, Any], is_ordered: bool) -> tuple[Ids, Ids, Ratings]:
    """The users and items of the rows of a table, and the interactions."""
    named = {role: columns[role] for role in ("user", "item", "time")}
    users, items, times = columns_of(table, None, named, columns["min_rating"])
    if times is None and is_ordered:
        times = _order_of(users.places, is_ordered)
        _warn_of_dates(table, (named["user"], named["item"]))
    return users, items, interactions(users, items, times=times)


def _warn_of_dates(table: Any, named: Collection[str | None]) -> None:
    """Warn if rows are taken as in order of time though a column has dates, seconds from 1970, or a name of dates or times.

    Columns that are named as those of users and items have ids.
    """
    columns = named_columns(table)
    ids = {*named, *usual_columns(columns, "user"), *usual_columns(columns, "item")}
    for name, column in columns.items():
        is_named = name.casefold().endswith(("date", "timestamp", "_at", "_time", "reviewtime"))
        if (
            is_named
            or is_date(getattr(column, "type", None) or column.dtype)
            or (name not in ids and len(column) and are_epochs(np.asarray(column)).all())
        ):
            warn_caller(
                f"the table has no column 'time' or 'timestamp', so its rows are taken as in order of time; for the order of "
                f"{name!r} pass time={name!r}, otherwise remove it"
            )
            return


def _order_of(rows: Any, is_ordered: bool) -> np.ndarray | None:
    """The numbers of rows, in place of times."""
    return np.arange(len(rows)) if is_ordered else None


def _check_order(given: Ratings, is_ordered: bool) -> None:
    """Raise DataError for interactions that must have an order, but have none."""
    if is_ordered and given.time is None:
        raise DataError(
            f"expected interactions in an order of time, got a matrix or Ratings, which do not keep {_ORDER}"
        )


def _is_one(given: Any) -> bool:
    """Whether an id was given, not several."""
    return isinstance(given, str | bytes) or not hasattr(given, "__len__") or getattr(given, "ndim", 1) == 0


def _refuse_dense(given: Any, num_items: int) -> None:
    """Raise DataError for a dense matrix `[users, items]`, or a row of one, whose numbers would be read as ids."""
    if not hasattr(given, "ndim") and not (isinstance(given, list | tuple) and len(given) == num_items):
        return
    try:
        values = np.asarray(given)
    except ValueError:  # lists of different lengths
        return
    if values.ndim not in (1, 2) or values.dtype.kind not in "biufc" or (values.ndim == 1 and len(values) != num_items):
        return
    are_flags = values.shape[-1] > 2 and bool(((values == 0) | (values == 1)).all())  # ids would repeat
    if are_flags or values.dtype.kind in "bfc":
        raise DataError(
            f"expected interactions or lists of items, got a dense matrix of shape {values.shape}; pass "
            f"scipy.sparse.csr_array(D{'[None]' * (values.ndim == 1)}) for the matrix D"
        )


_INTEGER = re.compile("0|-?[1-9][0-9]*")  # the one form of an integer as text


def _which_integers(ids: Any) -> np.ndarray:
    """`[n]` bool: whether ids, which are valid, are integers."""
    if isinstance(ids, Ids):
        return _which_integers(ids.names)[ids.places]
    found = known_ids("ids", ids)
    if found.dtype.kind == "O":
        return np.array([isinstance(each, Integral) and not isinstance(each, bool) for each in found], bool)
    return np.full(len(found), found.dtype.kind in "iu")


def _are_indices(names: Names) -> bool:
    """Whether names are the numbers from 0, as those of a matrix are."""
    return names.tolist() == list(map(str, range(len(names))))
