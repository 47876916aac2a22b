"""Rankings under any rules: assignments where these are exact, else a relaxation and a mixed-integer programme (HiGHS)."""

from __future__ import annotations

import copy
import math
import time
from typing import Any, NamedTuple

import numpy as np

from rankstruct.constraints.relaxation import CLOSE, EXACT, OneSided, Relaxation
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
) -> Solved | None:
    """The best ranking of one list; None if none keeps the rules.

    Rules about disjoint groups are an assignment problem. Else some page of the largest length is found first, then a better one
    and a bound by a relaxation; if these differ, the programme is solved for the documents that may be on a better page.
    `weights` are the discounts of the positions that there are. Those after all rules follow by score.
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
    relaxation = program.relaxation(gains)
    page = relaxation.repaired(program.by_score()) if program.end <= len(program.kept) else None
    if page is None:
        page = program.longest()
        if page is None or not len(page):  # nothing that the rules are about can be shown
            return None if page is None else Solved(program.ranked(page), 0.0)
        if len(page) < program.end:
            program, gains = program.shortened(len(page)), gains[:, : len(page)]
            relaxation = program.relaxation(gains)
    page, value, bound, below = relaxation.solve(page, time_limit or math.inf)
    left = time_limit - (time.perf_counter() - started)
    if bound - value > EXACT and left > 0:
        allowed = below <= bound - value
        some = np.flatnonzero(allowed.any(1))
        few = program.among(some)
        found = few.solve(gains[some], left, allowed[some])
        if found.x is not None and -found.fun > value:
            page, value = some[few.page(found.x)], -found.fun
        if found.status in (0, 2):  # the optimum of what could be better, or nothing could
            bound = value
        elif found.mip_dual_bound is not None:
            bound = min(bound, max(-found.mip_dual_bound, value))
    return Solved(program.ranked(page), (bound - value) / bound if bound - value > max(EXACT, CLOSE * bound) else 0.0)


def conflict(rules: list[GroupRule], positions: np.ndarray | None, size: int) -> str:
    """The rules of an infeasible list that cannot be kept together, in words: leaving out any of them would do."""
    for text, members, _, lower, _ in rules:
        if lower > members.sum():
            many = int(members.sum())
            return f"'{text}': the list has {many} such document{'' if many == 1 else 's'}"
    if positions is not None and positions.any():
        given, counts = np.unique(positions[positions > 0], return_counts=True)
        if given[-1] > size:
            return f"the given position {given[-1]}: the ranking has {size}"
        if counts.max() > 1:
            return f"the given positions: {counts.max()} documents are to be at position {given[counts.argmax()]}"
    told, pinned = list(dict.fromkeys(text for text, *_ in rules)), positions

    def feasible(texts: list[str], at: np.ndarray | None) -> bool:
        documents = len(rules[0].members) if rules else len(positions if positions is not None else ())
        some = [rule for rule in rules if rule.text in texts]
        return _Program(np.zeros(documents), some, at, size).longest() is not None

    if pinned is not None and pinned.any() and not feasible(told, None):
        pinned = None
    for text in list(told):
        fewer = [other for other in told if other != text]
        if not feasible(fewer, pinned):
            told = fewer
    told = [f"'{text}'" for text in told]
    if pinned is not None and pinned.any():
        told.append("the given positions")
    return " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told) + (
        " together" if len(told) > 1 else ""
    )


class _Program:
    """Variables: document d at position i, for the documents that can matter and the positions that rules are about."""

    def __init__(self, scores: np.ndarray, rules: list[GroupRule], positions: np.ndarray | None, size: int) -> None:
        self.scores, self.rules, self.size = scores, rules, size
        self.positions = np.zeros(len(scores), np.int64) if positions is None else positions
        prefixes = [size if prefix is None else min(prefix, size) for _, _, prefix, _, _ in rules]
        self.end = max([*prefixes, int(self.positions.max(initial=0))], default=0)
        pinned = self.positions[self.positions > 0]
        self.impossible = (
            self.end > size
            or len(np.unique(pinned)) < len(pinned)
            or any(lower > members.sum() for _, members, _, lower, _ in rules)
        )
        self.end = min(self.end, size)
        kinds = np.zeros(len(scores), np.int64)  # of documents that no rule tells apart, and that have no position
        if rules and len(scores):
            told = np.packbits(np.stack([members for _, members, *_ in rules], axis=1), axis=1)
            kinds = np.unique(told.view(f"V{told.shape[1]}").ravel(), return_inverse=True)[1]
        kinds[self.positions > 0] = -1
        order = np.lexsort((-scores, kinds))
        nth = np.arange(len(order)) - np.searchsorted(kinds[order], kinds[order])
        kept = np.zeros(len(scores), bool)
        kept[order] = (nth < self.end) | (kinds[order] < 0)  # the first `end` of each kind
        order = np.argsort(-scores, kind="stable")
        self.kept = order[kept[order]]
        self.kinds = kinds[self.kept]

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

    def by_score(self) -> np.ndarray:
        """The document at each position, among those kept, without rules: there must be as many."""
        at = self.positions[self.kept]
        page = np.full(self.end, -1)
        page[at[at > 0] - 1] = np.flatnonzero(at)
        page[page < 0] = np.flatnonzero(at == 0)[: (page < 0).sum()]
        return page

    def relaxation(self, gains: np.ndarray) -> Relaxation:
        """Of pages with these gains `[kept, end]`."""
        at, places = self.positions[self.kept][:, None], np.arange(1, self.end + 1)
        allowed = np.where(at > 0, at == places, ~np.isin(places, at))
        return Relaxation(np.where(allowed, gains, -np.inf), self.bounds())

    def shortened(self, length: int) -> _Program:
        """The same with so many positions."""
        found = copy.copy(self)
        found.size = found.end = length
        return found

    def longest(self) -> np.ndarray | None:
        """The document at each position, among those kept, of a page with as many as can be shown; None if none keeps the rules.

        A programme of the number of documents of each kind in each segment, the positions between the prefixes of two rules.
        """
        if self.impossible:
            return None
        if self.end == 0:
            return np.zeros(0, np.int64)
        at = self.positions[self.kept]
        prefixes = [self.end if rule.prefix is None else min(rule.prefix, self.end) for rule in self.rules]
        ends = np.unique([*prefixes, self.end])
        free = np.flatnonzero(at == 0)
        kinds = np.unique(self.kinds[free], return_inverse=True)[1]
        counts = self._counts(at, np.array(prefixes, np.int64), ends, free, kinds)
        if counts is None:
            return None
        found, used = np.full(self.end, -1), np.zeros(len(counts), np.int64)
        found[at[at > 0] - 1] = np.flatnonzero(at)
        by_kind = np.split(free[np.argsort(kinds, kind="stable")], np.cumsum(np.bincount(kinds))[:-1])
        for segment, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            then = used + counts[:, segment]
            chosen = np.sort(
                np.concatenate([its[i:j] for its, i, j in zip(by_kind, used, then, strict=False)] or [free])
            )
            found[begin + np.flatnonzero(found[begin:end] < 0)[: len(chosen)]] = chosen
            used = then
        return found[found >= 0]

    def _counts(
        self, at: np.ndarray, prefixes: np.ndarray, ends: np.ndarray, free: np.ndarray, kinds: np.ndarray
    ) -> np.ndarray | None:
        """How many documents of each kind come in each segment, `[kinds, segments]`, besides those with a position."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array, diags_array, eye_array, hstack, kron

        sizes, segments, pinned = np.diff(ends, prepend=0).astype(float), len(ends), at > 0
        supply, first = np.bincount(kinds), free[np.unique(kinds, return_index=True)[1]]
        width = len(supply) * segments
        fixed = np.bincount(np.searchsorted(ends, at[pinned]), minlength=segments)
        each, none = kron(np.ones((1, len(supply))), eye_array(segments)), csr_array((len(supply), segments))
        before = diags_array(sizes[1:], offsets=-1, shape=(segments, segments))
        constraints = [
            LinearConstraint(hstack([kron(eye_array(len(supply)), np.ones((1, segments))), none]), -np.inf, supply),
            LinearConstraint(hstack([each, -diags_array(sizes)]), -fixed, np.inf),  # all of a full segment
            LinearConstraint(hstack([each, -before]), -np.inf, np.where(np.arange(segments), 0, sizes) - fixed),
            LinearConstraint(np.append(np.ones(width), np.zeros(segments)), at.max(initial=0) - pinned.sum(), np.inf),
        ]
        if self.rules:
            members = np.array([rule.members[self.kept] for rule in self.rules])
            there = (members[:, pinned] & (at[pinned] <= prefixes[:, None])).sum(1)
            inside = members[:, first, None] & (ends <= prefixes[:, None])[:, None, :]
            rows = hstack(
                [csr_array(inside.reshape(len(members), width), dtype=float), csr_array((len(members), segments))]
            )
            low = np.array([rule.lower for rule in self.rules])
            high = np.array([np.inf if rule.upper is None else rule.upper for rule in self.rules])
            constraints.append(LinearConstraint(rows, low - there, high - there))
        found = milp(
            np.append(-np.ones(width), np.zeros(segments)),
            integrality=np.ones(width + segments),
            bounds=Bounds(0, np.append(np.repeat(supply, segments), np.ones(segments))),
            constraints=constraints,
            options={"time_limit": 60.0},
        )
        return None if found.x is None else found.x[:width].round().astype(np.int64).reshape(-1, segments)

    def solve(self, gains: np.ndarray, time_limit: float, allowed: np.ndarray) -> Any:
        """Maximise the gains `[kept, end]` of pages with a document at each position, only put where that is `allowed`."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array, eye_array, kron

        many, end = gains.shape
        bounds = self.bounds()
        constraints = [
            LinearConstraint(kron(eye_array(many), np.ones((1, end))), -np.inf, 1),
            LinearConstraint(kron(np.ones((1, many)), eye_array(end)), 1, 1),
        ]
        if len(bounds.members):
            inside = np.array(bounds.members)[:, :, None] & (np.arange(end) < bounds.prefix[:, None])[:, None, :]
            rows = csr_array(inside.reshape(len(inside), -1) * bounds.sign[:, None], dtype=float)
            constraints.append(LinearConstraint(rows, -np.inf, bounds.bound))
        return milp(
            -gains.ravel(),
            integrality=np.ones(many * end),
            bounds=Bounds(0, allowed.ravel()),
            constraints=constraints,
            options={"time_limit": time_limit, "mip_rel_gap": 0.0},
        )

    def page(self, solution: np.ndarray) -> np.ndarray:
        """The document at each position, among those kept, of a solution of the programme."""
        position, row = np.nonzero(solution.reshape(len(self.kept), self.end).T > 0.5)
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
