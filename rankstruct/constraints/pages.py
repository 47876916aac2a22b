"""Rules about one page, the groups of its documents as one number each, as the oracle of pages takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.constraints.documents import Documents, uncompiled
from rankstruct.constraints.program import GroupRule
from rankstruct.constraints.ranking import PageRanker
from rankstruct.constraints.rules import NO_GROUP, Constraints, Rule, check_shape, checked_columns, group_ids, group_of
from rankstruct.measures import nDCG

_BITS = 62  # of a document's number


class Packed(NamedTuple):
    """One number for the groups of each document, as `PageRules.pack` makes it; losses take it in place of columns."""

    numbers: Tensor


@dataclass(frozen=True)
class PageRules:
    """The rules of a page and how they number groups: 0 is none, the groups that rules name are 1, 2, ..., others follow.

    Attributes:
        constraints: rules about one prefix or several.
        length: the longest prefix, the positions of a page.
        together: the rules that groups are numbered for, also those of other losses, so that all read the same numbers; its own
            if empty.
    """

    constraints: Constraints
    length: int
    together: tuple[Rule, ...] = ()

    @classmethod
    def of(cls, constraints: Constraints, k: int, name: str) -> PageRules:
        """Check that all rules are about a prefix, one of at least k positions; `name` is that of the measure, for errors.

        Raises:
            ValueError: they are about something else.
        """
        for rule in constraints.rules:
            if rule.prefix is None:
                raise ValueError(
                    f"the rule '{rule}' is about the whole ranking; a page has an end: write '{rule} @ {k}'"
                )
        last = max(constraints.rules, key=lambda rule: rule.prefix or 0)
        assert last.prefix is not None
        if last.prefix < k:
            raise ValueError(
                f"the rule '{last}' is about fewer positions than {name} measures, {k}: those after it would not belong "
                f"to the page. Use a cut-off of {last.prefix}, or write @ {k}"
            )
        return cls(constraints, last.prefix)

    @property
    def one_prefix(self) -> bool:
        """Whether all rules are about the same prefix."""
        return all(rule.prefix == self.length for rule in self.constraints.rules)

    @property
    def _numbered(self) -> tuple[Rule, ...]:
        return self.together or self.constraints.rules

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns whose groups are numbered."""
        return tuple(dict.fromkeys(rule.column for rule in self._numbered))

    @cached_property
    def _named(self) -> list[list[str]]:
        """For each column the groups that rules name."""
        rules = self._numbered
        return [
            list(dict.fromkeys(rule.value for rule in rules if rule.column == name and rule.value is not None))
            for name in self.columns
        ]

    @cached_property
    def _about_each(self) -> list[bool]:
        """For each column whether there is a rule about each of its groups."""
        rules = self._numbered
        return [any(rule.column == name and rule.value is None for rule in rules) for name in self.columns]

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
        columns, most = self.columns, np.iinfo(np.int32).max
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
        columns = checked_columns(self.columns, columns)
        packed = np.zeros(tuple(scores.shape), np.int64)
        for name, named, others, bits, (shift, *_) in zip(
            self.columns, self._named, self._about_each, self.bits, self.attributes, strict=True
        ):
            with torch._C._DisableFuncTorch():  # torch.func would wrap these constants
                ids, names = group_ids(name, columns[name])
            check_shape(repr(name), ids, packed.shape)
            numbers = [group_of(rule, names) for rule in self._rules_naming(name, named)]
            packed |= _numbered(name, ids, numbers, bits if others else 0) << shift
        return torch.from_numpy(packed).to(scores.device)

    def _rules_naming(self, name: str, named: list[str]) -> list[Any]:
        rules = [rule for rule in self._numbered if rule.column == name]
        return [next(rule for rule in rules if rule.value == value) for value in named]

    def of_list(self, packed: np.ndarray) -> list[GroupRule]:
        """The rules of a list, each about one group, from the numbers that `pack` made for its documents."""
        found = []
        for rule, (at, which, each, *_) in zip(self.constraints.rules, self.rules, strict=True):
            shift, mask, none = self.attributes[at]
            numbers = (packed >> shift) & mask
            groups = [which] if not each else np.unique(numbers[numbers != none]).tolist()
            found += [GroupRule(str(rule), numbers == group, rule.prefix, rule.lower, rule.upper) for group in groups]
        return found

    def refuse(self, scores: Tensor, columns: Mapping[str, Any], **lists: np.ndarray) -> None:
        """Raise the ValueError that names the first list that has no page, and the rules in conflict, if there is one.

        `lists` are `offsets` or `qid`.
        """
        documents = Documents.of(scores, self.constraints, columns, lists)
        PageRanker(documents, None, self.length).rank(documents.scores, nDCG().position_weights)


def packed_groups(
    rules: Sequence[PageRules], columns: Mapping[str, Any], documents: int, **lists: np.ndarray
) -> Packed:
    """The groups of documents for losses under these rules, which number them together.

    `lists` are `offsets` or `qid`. Raises ValueError for a list without a page, see `PageRules.refuse`.
    """
    scores = torch.zeros(documents)
    for each in rules:
        each.refuse(scores, columns, **lists)
    return Packed(rules[0].pack(columns, scores))


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
