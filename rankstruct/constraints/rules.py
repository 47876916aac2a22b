"""Rules about groups of documents, as text: `"seller <= 2 @ 10"`, at most two documents of each seller in the first ten."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from rankstruct.arrays import LARGEST, as_array, is_missing
from rankstruct.checks import check_integers, check_numbers
from rankstruct.columns import named_columns, names_of
from rankstruct.messages import did_you_mean

__all__ = ["Constraints", "Rule", "fair_quotas"]

#: The group of a document that has none; as in constrained.hpp.
NO_GROUP = np.iinfo(np.int64).min
_TEXT = re.compile(r"\s*([^<>=@]+?)\s*(?:(?<![<>])=\s*([^<>=@]+?)\s*)?(<=|>=|==)\s*(\d+)\s*(?:@\s*(\d+)\s*)?")
_WRITE = 'write "seller <= 2 @ 10", "new=1 >= 3 @ 10" or "seller <= 4"'


@dataclass(frozen=True)
class Rule:
    """A rule about the documents of a group within the first positions.

    Attributes:
        column: the name of the column with each document's group.
        value: the group, as text; None for each group of the column.
        lower: the least number of its documents.
        upper: the largest; None for any. With a least number, the same.
        prefix: how many positions; None for the whole ranking.

    Raises:
        TypeError, ValueError: a number or name of another kind, more documents than positions, or a least number for each group.

    >>> Rule.parse("seller <= 2 @ 10")
    Rule(column='seller', value=None, lower=0, upper=2, prefix=10)
    >>> str(Rule.parse("new=1>=3@10"))
    'new=1 >= 3 @ 10'
    """

    column: str
    value: str | None
    lower: int
    upper: int | None
    prefix: int | None

    @classmethod
    def parse(cls, text: str) -> Rule:
        """The rule that a text is; raises ValueError with an example of how to write one."""
        if not isinstance(text, str):
            raise TypeError(f"a rule is text, got {text!r}; {_WRITE}")
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"not a rule: {text!r}; {_WRITE}")
        column, value, relation, many, prefix = found.groups()
        return cls(
            column,
            value,
            0 if relation == "<=" else int(many),
            None if relation == ">=" else int(many),
            None if prefix is None else int(prefix),
        )

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError for what no text says."""
        if not isinstance(self.column, str) or not self.column:
            raise TypeError(f"the column of a rule must be a name, got {self.column!r}")
        if not isinstance(self.value, str | None):
            raise TypeError(f"the value of a rule must be text, or None for each group, got {self.value!r}")
        for name, least in (("lower", 0), ("upper", 0), ("prefix", 1)):
            given = getattr(self, name)
            if given is None and name != "lower":
                continue
            if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
                unit = "position" if name == "prefix" else "document"
                raise ValueError(f"{name} of a rule must be at least {least} {unit}{'s' * (not least)}, got {given!r}")
            object.__setattr__(self, name, int(given))
        if self.lower and self.upper not in (None, self.lower):
            raise ValueError(
                f"a rule has a least number, a largest, or both alike; write two for {self.lower} to {self.upper}"
            )
        if self.prefix is not None and self.lower > self.prefix:
            raise ValueError(f"the rule '{self}' wants {self.lower} documents in {self.prefix} positions")
        if self.value is None and self.lower:
            raise ValueError(
                f"the rule '{self}' is about each group of {self.column!r}; name the one that needs {self.lower}, as in "
                f'"{self.column}=VALUE{str(self).removeprefix(self.column)}"'
            )

    def __str__(self) -> str:
        relation = "<=" if self.lower == 0 and self.upper is not None else ">=" if self.upper is None else "=="
        count = self.lower if self.upper is None else self.upper
        within = "" if self.prefix is None else f" @ {self.prefix}"
        return f"{self.column}{'' if self.value is None else f'={self.value}'} {relation} {count}{within}"


class Constraints:
    """Rules that a ranking has to keep.

    Each is text: a column of the documents, a relation, a number, and after `@` the number of first positions that it is about,
    the whole ranking if it is left out. Without a value it is about each group of the column.

    - `"seller <= 2 @ 10"`: in the first ten positions at most two documents of each seller;
    - `"new=1 >= 3 @ 10"`: in the first ten at least three whose `new` is 1;
    - `"topic=sports == 1 @ 5"`: in the first five exactly one.

    A rule about more positions than a list has documents is about the whole list.

    Args:
        rules: at least one, or a list of them.

    Raises:
        ValueError: a text is no rule, or two rules contradict each other whatever the list.

    >>> constraints = Constraints("seller <= 2 @ 10", "new=1 >= 3 @ 10")
    >>> constraints
    Constraints('seller <= 2 @ 10', 'new=1 >= 3 @ 10')
    >>> constraints.columns
    ('seller', 'new')
    """

    def __init__(self, *rules: str | Rule | Sequence[str | Rule]) -> None:
        given: Sequence[Any] = rules[0] if len(rules) == 1 and isinstance(rules[0], list | tuple) else rules
        if not given:
            raise ValueError(f"constraints need at least one rule; {_WRITE}")
        self.rules = tuple(rule if isinstance(rule, Rule) else Rule.parse(rule) for rule in given)
        for lower in self.rules:
            for upper in self.rules:
                self._refuse_contradiction(lower, upper)

    @staticmethod
    def _refuse_contradiction(lower: Rule, upper: Rule) -> None:
        alike = upper.column == lower.column and upper.value in (None, lower.value) and upper.upper is not None
        within = math.inf if upper.prefix is None else upper.prefix
        if (
            alike
            and within >= (math.inf if lower.prefix is None else lower.prefix)
            and (upper.upper or 0) < lower.lower
        ):
            raise ValueError(f"the rules '{lower}' and '{upper}' contradict each other")

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that the rules are about, each once."""
        return tuple(dict.fromkeys(rule.column for rule in self.rules))

    @classmethod
    def of(cls, given: Any) -> Constraints:
        """What a function takes as `constraints=`: rules, or the text of one, or a list of several.

        Raises:
            TypeError, ValueError: as the constructor.

        >>> Constraints.of(["seller <= 2 @ 10", "new=1 >= 3 @ 10"]) == Constraints("seller <= 2 @ 10", "new=1 >= 3 @ 10")
        True
        """
        if isinstance(given, Constraints):
            return given
        if isinstance(given, str | Rule | list | tuple):
            return cls(given)
        raise TypeError(f'constraints must be rules, such as "seller <= 2 @ 10" or a list of these, got {given!r}')

    def __repr__(self) -> str:
        return f"Constraints({', '.join(repr(str(rule)) for rule in self.rules)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraints) and self.rules == other.rules

    def __hash__(self) -> int:
        return hash(self.rules)


#: What functions take as `constraints=`, see `Constraints.of`.
RulesLike = Constraints | str | Rule | Sequence[str | Rule]


class Groups(NamedTuple):
    """Groups by number, `NO_GROUP` for none, and the names of the numbers if they are no whole numbers themselves."""

    ids: np.ndarray
    names: list[Any] | None

    def at(self, places: np.ndarray | slice) -> Groups:
        """The groups at these places, of any shape."""
        return Groups(self.ids[places], self.names)

    def padded(self, where: np.ndarray) -> Groups:
        """Flat groups in the order of `where` `[..., list_size]`, none in the padding."""
        ids = np.full(where.shape, NO_GROUP)
        ids[where] = self.ids
        return Groups(ids, self.names)

    @classmethod
    def joined(cls, name: str, parts: Sequence[Groups]) -> Groups:
        """Flat groups one after the other, numbered anew where parts have other names; parts without groups have none."""
        named = [part for part in parts if (part.ids != NO_GROUP).any()] or parts
        if all(part.names == named[0].names for part in named):
            return cls(np.concatenate([part.ids for part in parts]), named[0].names)
        return group_ids(name, [text for part in parts for text in part.texts()])

    def texts(self) -> list[str]:
        """What each is called, "" for none."""
        names = self.names
        return ["" if at == NO_GROUP else str(at) if names is None else names[at] for at in self.ids.tolist()]


def group_ids(name: str, values: Any) -> Groups:
    """Numbers for groups of any kind; None, NaN and "" are none."""
    if isinstance(values, Groups):
        return values
    found = as_array(name, values)
    if found.dtype.kind == "S":  # as HDF5 stores text
        found = np.char.decode(found)
    if found.dtype.kind == "O":  # numbers next to missing cells, which NumPy has no other type for
        gone = np.array([bool(is_missing(value)) for value in found.flat], dtype=bool).reshape(found.shape)
        if not gone.all() and all(isinstance(value, Real | np.bool_) for value in found[~gone]):
            present = np.array([float(value) for value in found[~gone]])
            if (np.abs(present) <= LARGEST).all():  # others are names, so that none is rounded
                found = np.full(found.shape, np.nan)
                found[~gone] = present
    if found.dtype.kind in "biu" and found.size and NO_GROUP < found.min() <= found.max() <= -(NO_GROUP + 1):
        return Groups(found.astype(np.int64), None)
    if found.dtype.kind == "f" and not np.isnan(found).all():  # if none is there, the groups may well be names
        gone = np.isnan(found)
        present = found[~gone]
        if (wrong := present[(present != np.floor(present)) | (np.abs(present) > LARGEST)]).size:
            raise ValueError(f"the groups in {name} must be names or whole numbers, got {wrong[0]}")
        return Groups(np.where(gone, NO_GROUP, np.where(gone, 0, found).astype(np.int64)), None)
    texts = np.array(["" if is_missing(value) else str(value) for value in found.flat], dtype=str)
    names, numbers = np.unique(texts, return_inverse=True)
    numbers = np.where(texts == "", NO_GROUP, numbers).astype(np.int64)
    return Groups(numbers.reshape(found.shape), names.tolist())


def group_of(rule: Rule, names: Sequence[Any] | None) -> int:
    """The number of a rule's group among those of its column; -1 if its name does not occur."""
    assert rule.value is not None
    if names is not None:
        return names.index(rule.value) if rule.value in names else -1
    text = {"true": "1", "false": "0"}.get(rule.value.lower(), rule.value)
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"the groups in {rule.column!r} are whole numbers, and the rule '{rule}' names {rule.value!r}"
        ) from None


def check_shape(name: str, given: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless a column of documents has their shape."""
    if given.shape != shape:
        raise ValueError(f"{name} must have one entry per document, shape {shape}, got {given.shape}")


def checked_columns(names: Sequence[str], columns: Any) -> dict[str, Any]:
    """The columns by name, also those of a data frame; raises ValueError if one that the rules are about is missing."""
    if not isinstance(columns, Mapping) and not names_of(columns):
        raise TypeError(
            f'columns must be a mapping from names to groups, such as {{"{names[0]}": ...}}, or a data frame, got '
            f"{type(columns).__name__}"
        )
    found = named_columns(columns)
    for name in names:
        if name not in found:
            raise ValueError(f"the rules are about {name!r}, which is not in columns{did_you_mean(name, found)}")
    return found


def unknown_groups(constraints: Constraints, groups: Mapping[str, Groups], *, quotas: bool = False) -> list[str]:
    """What to say of the caps, and with `quotas` also of these, whose group no document has."""
    found = []
    for rule in constraints.rules:
        if rule.value is None or (not quotas and (rule.lower or rule.upper is None)):
            continue
        ids, names = groups[rule.column]
        if not (ids == group_of(rule, names)).any():
            known = names if names is not None else map(str, np.unique(ids[ids != NO_GROUP]).tolist())
            found.append(
                f"no document has {rule.column}={rule.value}, as in the rule '{rule}'{did_you_mean(rule.value, known)}"
            )
    return found


def fair_quotas(k: int, share: float, *, alpha: float = 0.1, adjusted: bool = False) -> list[int]:
    """The least number of protected documents in each of the first k positions, by FA*IR's test of ranked group fairness.

    If each position were drawn independently, protected with probability `share`, fewer would be found at a position with
    probability at most `alpha`.

    Args:
        k: the number of positions.
        share: the share of protected documents, between 0 and 1.
        alpha: the significance.
        adjusted: whether `alpha` is lowered so that a ranking drawn in this way passes at all positions together with
            probability 1 - `alpha`.

    Returns:
        k numbers; `"protected=1 >= 3 @ 10"` says the tenth as a rule.

    Raises:
        ValueError: k below 1, or a share or alpha that is not between 0 and 1.

    Source: Zehlike, Bonchi, Castillo, Hajian, Megahed, Baeza-Yates, "FA*IR: A Fair Top-k Ranking Algorithm", CIKM 2017,
    sections 3 and 4.

    >>> fair_quotas(12, 0.5)
    [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 4]
    """
    from scipy.stats import binom

    check_integers(1, k=k)
    check_numbers("> 0 and < 1", share=share, alpha=alpha)
    positions = np.arange(1, k + 1)

    def table(level: float) -> np.ndarray:
        return binom.ppf(level, positions, share).astype(np.int64)

    if not adjusted:
        return table(alpha).tolist()
    low, high = 0.0, alpha
    if _fails(table(high), share) > alpha:
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if _fails(table(middle), share) <= alpha else (low, middle)
    else:
        low = high
    return table(low).tolist() if low > 0 else [0] * k


def _fails(table: np.ndarray, share: float) -> float:
    """The probability that a ranking whose positions are drawn independently has too few protected documents somewhere."""
    passing = np.ones(1)  # by the number of protected documents so far
    for least in table:
        passing = np.append(passing * (1 - share), 0) + np.append(0, passing * share)
        passing[:least] = 0
    return 1 - float(passing.sum())
