"""Rankings under any rules: assignments where these are exact, else a relaxation and a mixed-integer programme (HiGHS)."""

from __future__ import annotations

import copy
import math
import time
from typing import Any, NamedTuple

import numpy as np

from rankstruct.constraints.relaxation import EXACT, OneSided, Relaxation, Relaxed
from rankstruct.constraints.windows import are_disjoint, best_in_windows

_RANGE = 1e6  # of gains, so that HiGHS's absolute tolerances of 1e-6 and 1e-7 are far below the differences of scores
_APART = 1e6  # how many times the other scores' range an outlier may be away


class GroupRule(NamedTuple):
    """A rule about one group of a list: its text, which documents it is about, and its prefix and bounds."""

    text: str
    members: np.ndarray
    prefix: int | None
    lower: int
    upper: int | None


class Solved(NamedTuple):
    """The ranks `[documents]` of a list, 0 for those not shown, and an upper bound on how much better another ranking may be.

    The bound is relative to the discounted scores, counted from the lowest; 0 if there is none better.
    """

    ranks: np.ndarray
    gap: float


def solve_program(
    scores: np.ndarray,
    rules: list[GroupRule],
    positions: np.ndarray | None,
    weights: np.ndarray,
    time_limit: float,
    name: str,
) -> Solved | None:
    """The best ranking of one list; None if none keeps the rules.

    Rules about disjoint groups are an assignment problem. Else a relaxation finds a page and a bound; if these differ, the
    programme is solved for the documents that may be on a better page, or for all if there is no page with a document at each
    position. `weights` are the discounts of the positions that there are. Those after all rules follow by score.
    """
    started = time.perf_counter()
    program = _Program(scores, rules, positions, len(weights))
    if program.impossible:
        return None
    gains = np.outer(_gains(scores[program.kept]), weights[: program.end])
    bounds = program.bounds()
    if are_disjoint(bounds):
        page = best_in_windows(gains, bounds, program.positions[program.kept])
        return None if page is None else Solved(program.ranked(page), 0.0)
    relaxed = _relaxed(program, gains, bounds, time_limit or math.inf)
    if relaxed is None or relaxed.page is None:
        length = program.length()
        return None if length is None else program.best(gains, length, time_limit, name)
    page, bound, value = relaxed.page, relaxed.bound, relaxed.value
    left = time_limit - (time.perf_counter() - started)
    if bound - value > EXACT and left > 0:
        allowed = relaxed.below <= bound - value
        some = np.flatnonzero(allowed.any(1))
        few = program.among(some)
        found = few.solve(gains[some], program.end, left, allowed[some])
        if found.x is not None and -found.fun > value:
            page, value = some[few.page(found.x)], -found.fun
        if found.status in (0, 2):  # the optimum of what could be better, or nothing could
            bound = value
        elif found.mip_dual_bound is not None:
            bound = min(bound, max(-found.mip_dual_bound, value))
    return Solved(program.ranked(page), (bound - value) / bound if bound - value > EXACT else 0.0)


def _relaxed(program: _Program, gains: np.ndarray, bounds: OneSided, time_limit: float) -> Relaxed | None:
    """What the relaxation finds; None if the positions cannot all be filled, whatever the rules."""
    at = program.positions[program.kept][:, None]
    places = np.arange(1, program.end + 1)
    allowed = np.where(at > 0, at == places, ~np.isin(places, at))
    try:
        return Relaxation(np.where(allowed, gains, -np.inf), bounds).solve(time_limit)
    except ValueError:  # of linear_sum_assignment
        return None


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
        kinds = np.zeros(len(scores), int)
        if rules and len(scores):
            told = np.packbits(np.stack([members for _, members, *_ in rules], axis=1), axis=1)
            kinds = np.unique(told.view(f"V{told.shape[1]}").ravel(), return_inverse=True)[1]
        free, kept = np.zeros(kinds.max(initial=0) + 1, np.int64), []
        for document in order:  # of documents that no rule tells apart, the first `end`
            if self.positions[document] or free[kinds[document]] < self.end:
                kept.append(document)
                free[kinds[document]] += not self.positions[document]
        self.kept = np.array(kept, np.int64)

    def bounds(self) -> OneSided:
        """The rules of the documents kept."""
        return OneSided.of(
            [
                (members[self.kept], self.end if prefix is None else min(prefix, self.end), lower, upper)
                for _, members, prefix, lower, upper in self.rules
            ]
        )

    def among(self, places: np.ndarray) -> _Program:
        """The same with some of the documents kept."""
        found = copy.copy(self)
        found.kept = self.kept[places]
        return found

    def solve(
        self, gains: np.ndarray | None, length: int | None, time_limit: float, allowed: np.ndarray | None = None
    ) -> Any:
        """Maximise the gains `[kept, end]`, or the number of documents if None; `length` fixes that number.

        Documents are only put where that is `allowed`, `[kept, end]`.
        """
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
        if allowed is not None:
            most[:width] = allowed.ravel()
        if length is not None:
            least[width : width + length] = 1
            most[width + length :] = 0
        cost = np.append(np.zeros(width), -np.ones(end)) if gains is None else np.append(-gains.ravel(), np.zeros(end))
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
        found = self.solve(None, None, 60.0)
        return None if found.x is None else round(float(-found.fun))

    def best(self, gains: np.ndarray, length: int, time_limit: float, name: str) -> Solved:
        """The best ranking of the programme with all documents."""
        if not length:  # nothing that the rules are about can be shown
            return Solved(self.ranked(np.zeros(0, np.int64)), 0.0)
        found = self.solve(gains, length, time_limit)
        if found.x is None:
            raise ValueError(f"no ranking of {name} was found within time_limit={time_limit:g} seconds")
        return Solved(self.ranked(self.page(found.x)), float(found.mip_gap) if found.status == 1 else 0.0)

    def page(self, solution: np.ndarray) -> np.ndarray:
        """The document at each position, among those kept, of a solution of the programme."""
        position, row = np.nonzero(solution[: len(self.kept) * self.end].reshape(len(self.kept), self.end).T > 0.5)
        assert (position == np.arange(len(row))).all()
        return row

    def ranked(self, page: np.ndarray) -> np.ndarray:
        """The ranks of a page; documents after the rules' positions follow by score, if all of these are filled."""
        ranks = np.zeros(len(self.scores), np.int64)
        ranks[self.kept[page]] = np.arange(1, len(page) + 1)
        if len(page) == self.end:
            rest = np.argsort(-self.scores, kind="stable")
            rest = rest[ranks[rest] == 0][: self.size - self.end]
            ranks[rest] = self.end + 1 + np.arange(len(rest))
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
