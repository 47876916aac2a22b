"""Rankings under any rules by mixed-integer programming, with SciPy's HiGHS: exact, and slow."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

_RANGE = 1e6  # of gains, so that HiGHS's absolute tolerances of 1e-6 and 1e-7 are far below the differences of scores
_APART = 1e6  # how many times the other scores' range an outlier may be away


class GroupRule(NamedTuple):
    """A rule about one group of a list: its text, which documents it is about, and its prefix and bounds."""

    text: str
    members: np.ndarray
    prefix: int | None
    lower: int
    upper: int | None


def solve_program(
    scores: np.ndarray,
    rules: list[GroupRule],
    positions: np.ndarray | None,
    weights: np.ndarray,
    time_limit: float,
    name: str,
) -> np.ndarray | None:
    """The ranks of one list's documents `[documents]`, 0 for those not shown; None if no ranking keeps the rules.

    `weights` are the discounts of the positions that there are. Those after all rules follow by score.
    """
    program = _Program(scores, rules, positions, len(weights))
    length = program.length()
    if length is None:
        return None
    return program.best(weights, length, time_limit, name)


def conflict(rules: list[GroupRule], positions: np.ndarray | None, size: int) -> str:
    """The rules of an infeasible list that cannot be kept together, in words: leaving out any of them would do."""
    for text, members, _, lower, _ in rules:
        if lower > members.sum():
            many = int(members.sum())
            return f"'{text}': the list has {many} such document{'' if many == 1 else 's'}"
    kept, pinned = list(rules), positions

    def feasible(some: list[GroupRule], at: np.ndarray | None) -> bool:
        documents = len(rules[0][1]) if rules else len(positions if positions is not None else ())
        return _Program(np.zeros(documents), some, at, size).length() is not None

    if pinned is not None and pinned.any() and not feasible(kept, None):
        pinned = None
    for rule in list(kept):
        fewer = [other for other in kept if other is not rule]
        if not feasible(fewer, pinned):
            kept = fewer
    told = list(dict.fromkeys(f"'{text}'" for text, *_ in kept))
    if pinned is not None and pinned.any():
        told.append("the given positions")
    return " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told) + (
        " together" if len(told) > 1 else ""
    )


class _Program:
    """Variables: document d at position i, for the documents that can matter, and whether there is a document at position i."""

    def __init__(self, scores: np.ndarray, rules: list[GroupRule], positions: np.ndarray | None, size: int) -> None:
        self.scores, self.rules, self.size = scores, rules, size
        self.positions = np.zeros(len(scores), np.int64) if positions is None else positions
        prefixes = [size if prefix is None else min(prefix, size) for _, _, prefix, _, _ in rules]
        self.end = max([*prefixes, int(self.positions.max(initial=0))], default=0)
        self.impossible = self.end > size or any(lower > members.sum() for _, members, _, lower, _ in rules)
        self.end = min(self.end, size)
        order = np.argsort(-scores, kind="stable")
        kinds = (
            np.unique(np.stack([members for _, members, *_ in rules]), axis=1, return_inverse=True)[1].ravel()
            if rules
            else np.zeros(len(scores), int)
        )
        free, kept = np.zeros(kinds.max(initial=0) + 1, np.int64), []
        for document in order:  # of documents that no rule tells apart, the first `end`
            if self.positions[document] or free[kinds[document]] < self.end:
                kept.append(document)
                free[kinds[document]] += not self.positions[document]
        self.kept = np.array(kept, np.int64)

    def _solve(self, gains: np.ndarray | None, length: int | None, time_limit: float) -> Any:
        """Maximise the gains `[kept, end]`, or the number of documents if None; `length` fixes that number."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        many, end = len(self.kept), self.end
        width = many * end
        rows: list[np.ndarray] = []
        columns: list[np.ndarray] = []
        values: list[np.ndarray] = []
        low: list[float] = []
        high: list[float] = []

        def add(places: np.ndarray, weights: Any, least: float, most: float) -> None:
            rows.append(np.full(len(places), len(low)))
            columns.append(places)
            values.append(np.broadcast_to(weights, len(places)))
            low.append(least)
            high.append(most)

        at = np.arange(width).reshape(many, end)
        for document in range(many):
            add(at[document], 1, -np.inf, 1)
        for i in range(end):
            add(np.append(at[:, i], width + i), np.append(np.ones(many), -1), 0, 0)
            if i:
                add(np.array([width + i - 1, width + i]), np.array([1, -1]), 0, np.inf)
        for _, members, prefix, lower, upper in self.rules:
            within = end if prefix is None else min(prefix, end)
            places = at[members[self.kept], :within].ravel()
            add(places, 1, lower, np.inf if upper is None else upper)
        least, most = np.zeros(width + end), np.ones(width + end)
        for row, document in enumerate(self.kept):
            if self.positions[document]:
                least[at[row, self.positions[document] - 1]] = 1
        if length is not None:
            least[width : width + length] = 1
            most[width + length :] = 0
        cost = (
            np.concatenate([np.zeros(width), -np.ones(end)])
            if gains is None
            else np.append(-gains.ravel(), np.zeros(end))
        )
        matrix = csr_array(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(len(low), width + end)
        )
        return milp(
            cost,
            integrality=np.ones(width + end),
            bounds=Bounds(least, most),
            constraints=LinearConstraint(matrix, low, high),
            options={"time_limit": time_limit, "mip_rel_gap": 0.0},
        )

    def length(self) -> int | None:
        """How many of the positions that rules are about can be filled; None if no ranking keeps the rules."""
        if self.impossible:
            return None
        if self.end == 0:
            return 0
        found = self._solve(None, None, 60.0)
        return None if found.x is None else round(float(-found.fun))

    def best(self, weights: np.ndarray, length: int, time_limit: float, name: str) -> np.ndarray:
        """The ranks of the best ranking; warns if time ends first."""
        if not length:  # nothing that the rules are about can be shown
            return self._followed(np.zeros(len(self.scores), np.int64), 0)
        gains = np.outer(_gains(self.scores[self.kept]), weights[: self.end])
        found = self._solve(gains, length, time_limit)
        if found.x is None:
            raise ValueError(f"no ranking of {name} was found within time_limit={time_limit:g} seconds")
        if found.status == 1:
            warnings.warn(
                f"the ranking of {name} may not be the best: its discounted scores are within {found.mip_gap:.2%} of the optimum "
                f"after time_limit={time_limit:g} seconds",
                stacklevel=4,
            )
        ranks = np.zeros(len(self.scores), np.int64)
        row, position = np.nonzero(found.x[: len(self.kept) * self.end].reshape(len(self.kept), self.end) > 0.5)
        ranks[self.kept[row]] = position + 1
        return self._followed(ranks, length)

    def _followed(self, ranks: np.ndarray, length: int) -> np.ndarray:
        """The ranks with those of the documents after the rules' positions, by score, if all of these are filled."""
        if length == self.end:
            rest = np.argsort(-self.scores, kind="stable")
            rest = rest[ranks[rest] == 0][: self.size - length]
            ranks[rest] = length + 1 + np.arange(len(rest))
        return ranks


def _gains(scores: np.ndarray) -> np.ndarray:
    """Scores from 0 to `_RANGE`, in proportion.

    Scores far from all others, also infinite ones, come nearer, since the order of the others would else be lost in rounding.
    """
    known, place = np.unique(scores, return_inverse=True)
    gaps = np.diff(known / 4)  # their sum is finite
    order = np.argsort(gaps, kind="stable")
    smaller = np.append(0.0, np.cumsum(gaps[order]))[:-1]
    far = (gaps[order] / _APART > smaller) | np.isinf(gaps[order])
    for at in range(0 if far.all() else len(far) - int(np.argmin(far[::-1])), len(far)):
        rest = gaps[order[:at]].sum()
        gaps[order[at]] = min(gaps[order[at]], _APART * rest) if rest else 1.0
    values = np.append(0.0, np.cumsum(gaps))
    return values[place.reshape(-1)] / max(values[-1], np.finfo(float).tiny) * _RANGE
