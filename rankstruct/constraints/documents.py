"""The real documents of lists in any layout, with the groups that rules are about."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch

from rankstruct.arrays import as_array
from rankstruct.constraints.program import GroupRule
from rankstruct.constraints.rules import (
    NO_GROUP,
    Constraints,
    Groups,
    Rule,
    RulesLike,
    check_shape,
    checked_columns,
    group_ids,
    group_of,
    unknown_groups,
)
from rankstruct.lists import lists_of, real_documents
from rankstruct.messages import warn_caller

__all__ = ["violations"]

_LISTS = ("where", "offsets", "qid", "group")
_P = ParamSpec("_P")
_T = TypeVar("_T")


def uncompiled(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`torch.compiler.disable`, which takes a second to import, only where torch compiles."""

    @wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        if torch.compiler.is_compiling():
            found: _T = torch.compiler.disable(function)(*args, **kwargs)
            return found
        return function(*args, **kwargs)

    return called


@dataclass(frozen=True)
class Layout:
    """Real documents, list by list.

    Attributes:
        scores: `[documents]` float64.
        offsets: `[lists + 1]`.
        places: where each was given, in the flattened input.
        shape: that of the input.
        device: where the scores were.
    """

    scores: np.ndarray
    offsets: np.ndarray
    places: np.ndarray
    shape: tuple[int, ...]
    device: torch.device

    @staticmethod
    def read(scores: Any, lists: Mapping[str, Any], called: str = "scores") -> Layout:
        """Check and lay out scores, by their name in messages; TypeError and ValueError as `rank_under`."""
        for name in lists:
            if name not in _LISTS:
                raise TypeError(f"unexpected keyword argument {name!r}; lists are given as {', '.join(_LISTS)}")
        shape = tuple(scores.shape) if hasattr(scores, "shape") else np.shape(scores)
        if lists.get("qid") is not None:  # whose documents are brought together, with their places as a column
            lists = {**lists, "item_weights": np.arange(math.prod(shape), dtype=np.float64)}
        flat, given = lists_of(scores, np.zeros(shape), lists)
        rows, offsets = real_documents(flat, given)
        values = flat.cpu().double().reshape(-1)[rows].numpy()
        places = (rows if given.item_weights is None else given.item_weights.long().cpu()).numpy()
        if np.isnan(values).any():
            raise ValueError(f"{called} must not be NaN; that of document {int(places[np.isnan(values)][0])} is")
        return Layout(values, offsets, places, shape, flat.device)

    @property
    def lists(self) -> int:
        """How many there are."""
        return len(self.offsets) - 1

    @property
    def of_list(self) -> np.ndarray:
        """The list of each document."""
        return np.repeat(np.arange(self.lists), np.diff(self.offsets))

    def given(self, values: Any, name: str) -> np.ndarray:
        """A column in the shape of the input, as the documents are."""
        found = as_array(name, values)
        check_shape(name, found, self.shape)
        return found.reshape(-1)[self.places]

    def lengths(self) -> np.ndarray:
        """How many documents each list shows, where the scores are ranks."""
        return np.bincount(self.of_list[self.scores > 0], minlength=self.lists)

    def check_ranks(self) -> None:
        """Raise ValueError if the scores of a list are not 1, 2, ... and 0 for documents not shown."""
        order = np.lexsort((self.scores, self.of_list))
        begins, sizes = self.offsets[:-1], np.diff(self.offsets)
        expected = np.arange(len(order)) - np.repeat(begins + sizes - self.lengths(), sizes) + 1
        if (wrong := self.scores[order] != np.maximum(expected, 0)).any():
            raise ValueError(
                "ranks must be 1, 2, ... for the documents shown and 0 for all others; those of list "
                f"{self.of_list[order][wrong][0]} are not"
            )

    def returned(self, values: np.ndarray) -> torch.Tensor:
        """Numbers in the layout of the input, 0 for padding."""
        found = np.zeros(math.prod(self.shape), values.dtype)
        found[self.places] = values
        return torch.from_numpy(found.reshape(self.shape)).to(self.device)


def whole_ranks(ranks: Any) -> np.ndarray:
    """Ranks as float64, to be read as scores; raises TypeError if they are no whole numbers."""
    found = as_array("ranks", ranks)
    if found.dtype.kind not in "iu" and found.size:
        raise TypeError(f"ranks must be whole numbers, 0 for a document not shown, got {found.dtype}")
    return found.astype(np.float64)


@dataclass(frozen=True)
class Documents(Layout):
    """Real documents, list by list, with their groups.

    Attributes:
        groups: `[columns, documents]` int64.
        which: the number of each rule's group; 0 for rules about each group.
        constraints: the rules.
    """

    groups: np.ndarray
    which: list[int]
    constraints: Constraints

    @classmethod
    def of(cls, scores: Any, constraints: RulesLike, columns: Mapping[str, Any], lists: Mapping[str, Any]) -> Documents:
        """Check and lay out what was given; TypeError and ValueError as `rank_under`."""
        constraints = Constraints.of(constraints)
        columns = checked_columns(constraints.columns, columns)
        layout = Layout.read(scores, lists)
        groups = {}
        for name in constraints.columns:
            ids, names = group_ids(name, columns[name])
            check_shape(repr(name), ids, layout.shape)
            groups[name] = Groups(ids.reshape(-1)[layout.places], names)
        if len(layout.places) and not all(isinstance(columns[name], Groups) for name in constraints.columns):
            for said in unknown_groups(constraints, groups):
                warn_caller(said)  # no error, since lists of one request may well lack a group
        which = [0 if rule.value is None else group_of(rule, groups[rule.column].names) for rule in constraints.rules]
        ids = np.stack([groups[name].ids for name in constraints.columns])
        return cls(**vars(layout), groups=ids, which=which, constraints=constraints)

    def reordered(self, order: np.ndarray) -> Documents:
        """The same documents in another order within their lists."""
        return replace(self, scores=self.scores[order], places=self.places[order], groups=self.groups[:, order])

    def in_order(self, values: Any, name: str) -> np.ndarray:
        """A column of whole numbers as the documents are."""
        found = self.given(values, name)
        if found.dtype.kind not in "iu" or (found < 0).any():
            raise ValueError(f"{name} must be whole numbers >= 0, 0 for any position")
        return found.astype(np.int64)

    def _groups_of(self, rule: Rule) -> np.ndarray:
        return self.groups[self.constraints.columns.index(rule.column)]

    def expanded(self) -> list[np.ndarray]:
        """For each rule the group of each document, numbered from 0; -1 for those that it is not about."""
        found = []
        for rule, which in zip(self.constraints.rules, self.which, strict=True):
            ids = self._groups_of(rule)
            if rule.value is not None:
                found.append(np.where(ids == which, 0, -1))
                continue
            names, numbers = np.unique(ids, return_inverse=True)
            found.append(numbers - int(len(names) > 0 and names[0] == NO_GROUP))
        return found

    def by_score(self, length: int) -> np.ndarray:
        """The ranks `[documents]` of the first `length` of each list by score, 0 for the others."""
        ranks = np.zeros(len(self.scores), np.int64)
        order = np.lexsort((-self.scores, self.of_list))
        ranks[order] = np.arange(len(order)) - np.repeat(self.offsets[:-1], np.diff(self.offsets)) + 1
        return np.where(ranks <= length, ranks, 0)

    def broken(self, ranks: np.ndarray) -> dict[str, int]:
        """For each rule the number of lists whose ranking breaks it; `ranks` are `[documents]`."""
        of_list, shown, every, found = self.of_list, ranks > 0, np.arange(self.lists), {}
        length = np.bincount(of_list[shown], minlength=self.lists)
        for rule, group in zip(self.constraints.rules, self.expanded(), strict=True):
            within = shown & (ranks <= (np.inf if rule.prefix is None else rule.prefix)) & (group >= 0)
            its_list, counts = _counted(of_list[within], group[within])
            too_many = its_list[counts > (len(ranks) if rule.upper is None else rule.upper)]
            broken = np.isin(every, too_many)
            if rule.lower:  # of one group
                broken |= ~np.isin(every, its_list[counts >= rule.lower])
            found[str(rule)] = int((broken & (length > 0)).sum())
        return found

    def rules_of(self, here: slice) -> list[GroupRule]:
        """The rules of a list, each about one group."""
        found = []
        for rule, which in zip(self.constraints.rules, self.which, strict=True):
            ids = self._groups_of(rule)[here]
            groups = [which] if rule.value is not None else np.unique(ids[ids != NO_GROUP]).tolist()
            found += [GroupRule(str(rule), ids == group, rule.prefix, rule.lower, rule.upper) for group in groups]
        return found


def violations(ranks: Any, constraints: RulesLike, columns: Mapping[str, Any], **lists: Any) -> dict[str, int]:
    """Count the lists whose ranking breaks each rule.

    Args:
        ranks: whole numbers, 1 for the first position, 0 for a document that is not shown; `[..., list_size]`, or flat.
        constraints: the rules, or their texts.
        columns: the groups of the documents by column, in the shape of the ranks.
        lists: `where`, `offsets`, `qid` or `group`, as of `rankstruct.evaluate`.

    Returns:
        For each rule, as text, the number of lists. Lists that show nothing break none.

    Raises:
        TypeError, ValueError: as `rank_under`; ranks that are not 1, 2, ... for the documents shown.

    Warns:
        UserWarning: no document is in the group that a cap names.

    >>> violations([[1, 2, 3]], Constraints("seller <= 1 @ 2"), {"seller": [["a", "a", "b"]]})
    {'seller <= 1 @ 2': 1}
    """
    documents = Documents.of(whole_ranks(ranks), constraints, columns, lists)
    documents.check_ranks()
    return documents.broken(documents.scores)


def _counted(of_list: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The list of each group that occurs in it, and how many documents of it there are."""
    groups = int(group.max(initial=0)) + 1
    pairs, counts = np.unique(of_list * groups + group, return_counts=True)
    return pairs // groups, counts
