"""Labels, lists, positions and documents that are columns of a data frame, which estimators take out of its features."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from rankstruct.columns import LIST_ROLES, find_column, names_of, usual_columns
from rankstruct.messages import did_you_mean, warn_caller

__all__: list[str] = []

#: The arguments of estimators that name the columns.
_ARGUMENTS = {"label": "y", "qid": "qid", "docid": "docid", "position": "position"}


class TableParts(NamedTuple):
    """A table divided into features, labels and lists.

    Attributes:
        X: the features.
        y: labels `[documents]`, or None.
        qid: the list of each document, or None.
        position: the position of each document, or None.
        roles: the columns that were taken out of the features, by role.
        caller_named: whether the caller named all of them.
        docid: the name of each document, or None.
    """

    X: Any
    y: Any
    qid: Any
    position: Any
    roles: dict[str, str]
    caller_named: bool
    docid: Any = None


def split_table(
    X: Any,
    y: Any = None,
    qid: Any = None,
    position: Any = None,
    docid: Any = None,
    *,
    by_names: bool = False,
    has_sizes: bool = False,
    features: Collection[str] = (),
    known: Mapping[str, str] | None = None,
) -> TableParts:
    """Take labels and lists that are columns of a data frame out of its features; anything else is returned unchanged.

    Args:
        X: a data frame of pandas or polars, or an Arrow table.
        y: labels, the name of their column, a pandas or polars column of `X`, or None to find the column.
        qid: the same for lists.
        position: the same for positions, which are only found if they are named.
        docid: the same for names of documents, which are only found next to other roles, or if `by_names`.
        by_names: whether documents are found by their names, as those of a click log are.
        has_sizes: whether lists are given by their sizes: a column of lists is then only left out, next to one of labels.
        features: columns that are features, by earlier training.
        known: columns that are not, by earlier training.

    Raises:
        ValueError: an unknown name, a name for something without named columns, or several columns with usual names.
    """
    names, given, known = names_of(X), {"label": y, "qid": qid, "position": position, "docid": docid}, known or {}
    _refuse_swapped(y, qid)
    if not names:
        _refuse_names(given)
        return TableParts(X, y, qid, position, {}, True, docid)
    free, roles, caller_named = [name for name in names if name not in features], {}, True
    for role, value in given.items():
        if isinstance(value, str):
            if value not in names:
                there = did_you_mean(value, names) or f"; there are {', '.join(map(repr, names))[:200]}"
                raise ValueError(f"{_ARGUMENTS[role]}: X has no column {value!r}{there}")
            roles[role] = value
        elif value is None:
            if role not in LIST_ROLES or role == "docid":
                continue
            features_only = role == "qid" and has_sizes and not roles
            found = None if features_only else _found(free, role, known)
            roles |= {} if found is None else {role: found}
            caller_named = caller_named and found is None
        elif (name := getattr(value, "name", None)) in names and _is_equal(column_of(X, str(name)), value):
            roles[role], caller_named = str(name), False
    if docid is None and (roles or known or by_names) and (found := _found(free, "docid", known)) is not None:
        roles["docid"], caller_named = found, False
    taken = {
        role: column_of(X, name) for role, name in roles.items() if not (role == "qid" and has_sizes and qid is None)
    }
    dropped = {*roles.values(), *(name for name in known.values() if name in free)}
    if dropped:
        X = columns_at(X, [at for at, name in enumerate(names) if name not in dropped])
    labels, lists, positions, names = (taken.get(role, value) for role, value in given.items())
    return TableParts(X, labels, lists, positions, roles, caller_named, names)


def warn_of_told_labels(parts: TableParts) -> None:
    """Warn if a feature has a usual name of labels, and its values tell the labels."""
    if "label" in parts.roles:
        return
    for name in usual_columns(names_of(parts.X), "label"):
        if _tells(column_of(parts.X, name), parts.y):
            warn_caller(
                f"the column {name!r}, which is a feature, tells the labels: leave it out, or pass y={name!r} if it has them"
            )


def _tells(column: Any, labels: Any) -> bool:
    """Whether each of the values of a column, which repeat, comes with one label only, and labels differ."""
    values, labels = np.unique(np.asarray(column).astype(str), return_inverse=True)[1], np.asarray(labels)
    if len(values) != len(labels) or 2 * len(np.unique(values)) > len(values) or labels.ndim != 1:
        return False
    _, first = np.unique(values, return_index=True)
    return len(np.unique(labels)) > 1 and bool((labels == labels[first][values]).all())


def _refuse_swapped(y: Any, qid: Any) -> None:
    """Raise ValueError if labels have a usual name of lists, and lists one of labels."""
    names = [each if isinstance(each, str) else getattr(each, "name", None) for each in (y, qid)]
    roles = zip(names, ("qid", "label"), strict=True)
    if all(isinstance(name, str) and usual_columns([name], role) for name, role in roles):
        raise ValueError(
            f"y is the column {names[0]!r} and qid the column {names[1]!r}: they are swapped; pass the labels as y, the lists as "
            "qid"
        )


def _refuse_names(given: Mapping[str, Any]) -> None:
    """Raise ValueError for a name of a column, where there are none."""
    for role, value in given.items():
        if isinstance(value, str):
            raise ValueError(
                f"{_ARGUMENTS[role]} is {value!r}, the name of a column, but X has no named columns; pass a data frame of "
                "pandas or polars or an Arrow table, or one value per document"
            )


def column_of(table: Any, name: str) -> Any:
    """A column of such a table, a pandas or polars series or an array."""
    if hasattr(table, "iloc"):
        return table.iloc[:, names_of(table).index(name)]
    column = table[name]
    return column if hasattr(table, "get_columns") else np.array(column.to_pylist())


def columns_at(table: Any, chosen: list[int]) -> Any:
    """Some columns of such a table, by number."""
    if hasattr(table, "iloc"):
        return table.iloc[:, chosen]
    return table.select([names_of(table)[at] for at in chosen])


def _found(names: Collection[str], role: str, known: Mapping[str, str]) -> str | None:
    """The column of a role in earlier training, or else the one with a usual name."""
    if known.get(role) in names:
        return known[role]
    return find_column(names, role, argument=_ARGUMENTS.get(role))


def _is_equal(one: Any, other: Any) -> bool:
    return len(one) == len(other) and np.array_equal(np.asarray(one), np.asarray(other))
