"""Rules about one page, the groups of its documents as one number each, as the oracle of pages takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankstruct.constraints.documents import Documents, uncompiled
from rankstruct.constraints.ranking import LEFT, PageRanker
from rankstruct.constraints.rules import NO_GROUP, Constraints, checked_columns, group_ids, group_of

_BITS = 62  # of a document's number


@dataclass(frozen=True)
class PageRules:
    """The rules of a page and how they number groups: 0 is none, the groups that rules name are 1, 2, ..., others follow.

    Attributes:
        constraints: rules about the same prefix.
        length: that prefix, the positions of a page.
    """

    constraints: Constraints
    length: int

    @classmethod
    def of(cls, constraints: Constraints, k: int, name: str) -> PageRules:
        """Check that all rules are about one prefix, of at least k positions; `name` is that of the measure, for errors.

        Raises:
            TypeError, ValueError: they are no `Constraints`, or about something else.
        """
        if not isinstance(constraints, Constraints):
            raise TypeError(
                f'constraints must be Constraints, such as Constraints("seller <= 2 @ {k}"), got {constraints!r}'
            )
        for rule in constraints.rules:
            if rule.prefix is None:
                raise ValueError(
                    f"the rule '{rule}' is about the whole ranking; a page has an end: write '{rule} @ {k}'"
                )
            if rule.prefix < k:
                raise ValueError(
                    f"the rule '{rule}' is about fewer positions than {name} measures, {k}: those after it would not belong "
                    f"to the page. Use a cut-off of {rule.prefix}, or write @ {k}"
                )
        prefixes = sorted({rule.prefix for rule in constraints.rules if rule.prefix is not None})
        if len(prefixes) > 1:
            raise ValueError(
                f"the rules are about several prefixes, {', '.join(map(str, prefixes))}: the most violated page is found for "
                "rules about one, since with several it is no flow"
            )
        return cls(constraints, prefixes[0])

    @cached_property
    def _named(self) -> list[list[str]]:
        """For each column the groups that rules name."""
        rules = self.constraints.rules
        return [
            list(dict.fromkeys(rule.value for rule in rules if rule.column == name and rule.value is not None))
            for name in self.constraints.columns
        ]

    @cached_property
    def _about_each(self) -> list[bool]:
        """For each column whether there is a rule about each of its groups."""
        rules = self.constraints.rules
        return [any(rule.column == name and rule.value is None for rule in rules) for name in self.constraints.columns]

    @cached_property
    def bits(self) -> list[int]:
        """How many bits each column's numbers have; columns with a rule about each group share what others leave."""
        few = [len(named).bit_length() for named in self._named]
        left = _BITS - sum(size for size, each in zip(few, self._about_each, strict=True) if not each)
        return [
            left // sum(self._about_each) if each else size for size, each in zip(few, self._about_each, strict=True)
        ]

    @cached_property
    def attributes(self) -> tuple[tuple[int, int, int], ...]:
        """For each column the shift and the mask of its bits, and the number of no group."""
        ends = np.cumsum([0, *self.bits]).tolist()
        return tuple((shift, 2**bits - 1, 0) for shift, bits in zip(ends[:-1], self.bits, strict=True))

    @cached_property
    def rules(self) -> tuple[tuple[int, int, bool, int, int], ...]:
        """For each rule its column, the number of its group, whether it is about each, and its bounds."""
        columns, most = self.constraints.columns, np.iinfo(np.int32).max
        found = []
        for rule in self.constraints.rules:
            at = columns.index(rule.column)
            which = 0 if rule.value is None else 1 + self._named[at].index(rule.value)
            upper = most if rule.upper is None else min(rule.upper, int(most))
            found.append((at, which, rule.value is None, min(rule.lower, int(most)), int(upper)))
        return tuple(found)

    @uncompiled
    def pack(self, columns: Mapping[str, Any], scores: Tensor) -> Tensor:
        """One number for the groups of each document, int64 in the shape and on the device of the scores.

        Raises:
            TypeError, ValueError: as `rank_under`; or more groups than there are numbers, with many columns.
        """
        columns = checked_columns(self.constraints, columns)
        packed = np.zeros(tuple(scores.shape), np.int64)
        for name, named, others, bits, (shift, *_) in zip(
            self.constraints.columns, self._named, self._about_each, self.bits, self.attributes, strict=True
        ):
            with torch._C._DisableFuncTorch():  # torch.func would wrap these constants
                ids, names = group_ids(name, columns[name])
            if ids.shape != packed.shape:
                raise ValueError(f"{name!r} must have a group for each document, shape {packed.shape}, got {ids.shape}")
            numbers = [group_of(rule, names) for rule in self._rules_naming(name, named)]
            packed |= _numbered(name, ids, numbers, bits if others else 0) << shift
        return torch.from_numpy(packed).to(scores.device)

    def _rules_naming(self, name: str, named: list[str]) -> list[Any]:
        rules = [rule for rule in self.constraints.rules if rule.column == name]
        return [next(rule for rule in rules if rule.value == value) for value in named]

    def refuse(self, scores: Tensor, columns: Mapping[str, Any], **lists: Any) -> None:
        """Raise the ValueError that names the first list that has no page, or whose groups overlap, and the rules, if any.

        `lists` are `where`, `offsets` or `qid`.
        """
        clean = torch.nan_to_num(scores.detach().double())
        given = {name: value for name, value in lists.items() if value is not None}
        documents = Documents.of(clean, self.constraints, columns, given)
        ranker = PageRanker(documents, None, self.length)
        for index in np.flatnonzero(ranker.greedy(documents.scores)[1] == LEFT):
            rules = documents.rules_of(slice(documents.offsets[index], documents.offsets[index + 1]))
            for (first, some, *_), (second, others, *_) in combinations(rules, 2):
                if (some & others).any() and (some & ~others).any() and (others & ~some).any():
                    raise ValueError(
                        f"the groups of '{first}' and '{second}' overlap in list {index}, without one being in the other: the "
                        "most violated page is found for groups that are nested or disjoint, since with others the search is hard"
                    )
        ranker.rank(documents.scores)


def _numbered(name: str, ids: np.ndarray, named: list[int], bits: int) -> np.ndarray:
    """0 for no group, 1, 2, ... for those named, and for all others numbers of so many bits, or 0."""
    found = np.zeros(ids.shape, np.int64)
    if bits and ids.size:
        lowest, highest, real = int(ids.min()), int(ids.max()), None
        if lowest == NO_GROUP:
            real = ids != NO_GROUP
            lowest = int(ids.min(where=real, initial=np.iinfo(np.int64).max))
        if highest - lowest >= 2**bits - len(named) - 1:
            known, numbers = np.unique(ids, return_inverse=True)
            if len(known) >= 2**bits - len(named) - 1:
                raise ValueError(
                    f"{name!r} has {len(known)} groups, too many with as many columns; pass fewer lists at once"
                )
            found = numbers.reshape(ids.shape) + (1 + len(named))
        else:
            found = ids - (lowest - 1 - len(named))
        if real is not None:
            found *= real
    for number, its in enumerate(named, 1):
        found[ids == its] = number
    return found
