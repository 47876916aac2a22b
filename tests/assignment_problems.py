"""The assignment problem of the positional map: random ones, what SciPy makes of them, and what each method of the core does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment


class Problem(NamedTuple):
    """Documents by descending score, the highest 0; class 0 has the highest gain.

    Attributes:
        score, group: `[n]`, the class of each document.
        gain: `[classes]`.
        c, a: `[n]`, never increasing.
    """

    score: np.ndarray
    group: np.ndarray
    gain: np.ndarray
    c: np.ndarray
    a: np.ndarray

    @classmethod
    def of(cls, score: np.ndarray, group: np.ndarray, gain: np.ndarray, c: np.ndarray, a: np.ndarray) -> Problem:
        """That of documents in any order."""
        order = np.argsort(-score, kind="stable")
        return cls(
            score[order] - score.max(), group[order].astype(np.int32), *(np.array(each, float) for each in (gain, c, a))
        )

    @property
    def members(self) -> np.ndarray:
        """The documents class by class, each class by descending score."""
        return np.argsort(self.group, kind="stable")

    @property
    def starts(self) -> np.ndarray:
        """`[classes + 1]`, where each class begins among `members`."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.group, minlength=len(self.gain)))]).astype(np.int32)

    def given(self, k: int) -> tuple:
        """What the core takes, for a discount that is 0 from position k on, wherefore it does not look at it there."""
        behind = self.a[k - 1] if k else 1.0
        a = np.where(np.arange(len(self.a)) < k, self.a, behind)
        return self.score[self.members], self.starts, self.group, self.gain, self.c, a, k

    def best_value(self) -> float:
        """SciPy's."""
        cost = np.outer(self.score, self.c) - np.outer(self.gain[self.group], self.a)
        return float(cost[linear_sum_assignment(cost, maximize=True)].sum())

    def value(self, classes: np.ndarray) -> float:
        """The objective of a sequence of classes; NaN unless it holds every document once."""
        if not np.array_equal(np.bincount(classes, minlength=len(self.gain)), np.diff(self.starts)):
            return np.nan
        placed = np.empty_like(self.group)
        placed[np.argsort(classes, kind="stable")] = self.members
        return float(self.c @ self.score[placed] - self.a @ self.gain[classes])


def draw_group(rng: np.random.Generator, n: int, classes: int, shares: np.ndarray | None = None) -> np.ndarray:
    """`[n]`, every class once at least."""
    group = np.concatenate([np.arange(classes), rng.choice(classes, p=shares, size=n - classes)])
    return rng.permutation(group)


def draw_problem(rng: np.random.Generator, n: int, classes: int, k: int) -> Problem:
    """Scores that go with the gains, against them or neither, of any scale."""
    group = draw_group(rng, n, classes)
    scale = 10.0 ** rng.integers(-3, 3)
    noise = rng.normal(size=n) + rng.choice([-1.0, 0.0, 1.0]) * group
    noise = np.round(noise * 2) / 2 if rng.random() < 0.3 else noise
    score = rng.permutation(noise) * scale  # then classes mean nothing
    gain = np.sort(rng.choice([rng.random(classes) * 3, np.arange(classes) * 0.2]))[::-1]
    i = np.arange(1, n + 1)
    c = np.choose(rng.integers(0, 3), [i**-0.5, i**-2.0, np.maximum(n // 2 + 1.0 - i, 0)])
    a = np.choose(rng.integers(0, 3), [1 / np.log2(1 + i), 1.0 / i, 0.8**i])
    return Problem.of(score if rng.random() < 0.3 else noise * scale, group, gain, c, np.where(i <= k, a, 0.0))


#: Patterns that a shortcut could get wrong.
HARD = (
    "constant",
    "two values",
    "ties but one",
    "nearly tied",
    "by gain",
    "against gain",
    "balanced",
    "one gain dominates",
    "far outlier",
)


def draw_hard_problem(rng: np.random.Generator, kind: str, n: int, k: int) -> tuple[Problem, float]:
    """A problem of such a pattern, and the size of its numbers."""
    classes = int(rng.integers(2, min(6, n) + 1))
    group = draw_group(rng, n, classes, rng.dirichlet(np.full(classes, 0.3 if kind == "one gain dominates" else 3.0)))
    gain = np.sort(rng.choice(np.arange(1, 12), size=classes, replace=False))[::-1] / 7
    i = np.arange(1, n + 1)
    c = i ** -float(rng.choice([0.1, 0.5, 1.0, 3.0]))
    a = [1 / np.log2(1 + i), 2.0 ** -((i - 1) / 4), 2.0**-i, i**-3.0][rng.integers(0, 4)]
    noise = rng.normal(size=n)
    score = {
        "constant": np.zeros(n),
        "two values": rng.integers(0, 2, size=n) * 0.3,
        "ties but one": np.where(np.arange(n) == 0, 1e-3, 0.0),
        "nearly tied": np.round(noise) + 1e-9 * rng.integers(-2, 3, size=n),
        "by gain": gain[group] + 0.2 * noise,
        "against gain": -gain[group] + 0.2 * noise,
        "balanced": gain[group] * a[0] / c[0] + 1e-3 * np.round(noise),
        "one gain dominates": noise,
        "far outlier": np.where(np.arange(n) == 0, -1e4, noise),
    }[kind] * float(rng.choice([1e-6, 1.0, 1e6]))
    return Problem.of(score, group, gain, c, np.where(i <= k, a, 0.0)), max(np.ptp(score), gain.max())


def draw_uneven_problem(rng: np.random.Generator, classes: int, turn: int) -> Problem:
    """Discounts and decays that fall unevenly: several boundaries, often adjacent ones, prefer other documents."""
    n = int(rng.integers(max(8, classes), 40))
    score = rng.normal(size=n) * rng.choice([0.1, 1.0, 5.0])
    score = np.round(3 * score) if turn % 3 == 0 else score
    gain = np.sort(rng.random(classes))[::-1] if turn % 2 else 2.0 ** -np.arange(classes)
    falls = rng.random((2, n)) ** 3 * [[1.0], [rng.choice([0.2, 1.0, 5.0])]]
    falls[1] *= rng.random(n) < rng.choice([0.3, 1.0])
    c, a = falls[:, ::-1].cumsum(1)[:, ::-1]
    c, a = (c, a) if turn % 4 else (np.arange(1, n + 1) ** -0.5, falls[1].cumsum()[::-1])
    return Problem.of(score, draw_group(rng, n, classes), gain, c, a)


def draw_long_problem(rng: np.random.Generator, kind: int, k: int, half_life: float) -> Problem:
    """Of 300 documents and two gains, one of six kinds of scores, most of which are far from a greedy ranking."""
    lead, decay, decimals = [(3, 0.5, 9), (-3, 0.5, 9), (0, 0.1, 1), (3, 0.0, 2), (30, 1.0, 9), (0.5, 0.5, 0)][kind]
    i, relevant = np.arange(1, 301), rng.random(300) < rng.choice([0.02, 0.2, 0.5, 0.9])
    relevant[:2] = True, False
    score = (rng.normal(size=300) + lead * relevant).round(decimals)
    a = np.where(i <= k, 2.0 ** (-(i - 1) / half_life), 0.0)
    return Problem.of(score, np.where(relevant, 0, 1), np.array([rng.choice([0.1, 1.0, 20.0]), 0.0]), i**-decay, a)


#: All that solve a problem, by name; `near` not each.
WAYS = ("usual", "whole", "near", "levels", "prices")


def solve(parts, problem: Problem, k: int) -> dict[str, np.ndarray]:
    """The classes at all positions by every way that solves the problem."""
    given, found = problem.given(k), {}
    for way in WAYS:
        classes = np.full(len(problem.score), -1, np.int32)
        first = getattr(parts, way)(*given, classes)
        if first >= 0 or way != "near":
            found[way] = _behind_by_score(classes, first, problem.group, len(problem.gain))
    return found


def _behind_by_score(classes: np.ndarray, first: int, group: np.ndarray, count: int) -> np.ndarray:
    """The documents after the first positions follow by score."""
    placed = np.bincount(classes[:first].clip(0), minlength=count)
    rest = np.ones(len(group), bool)
    for g in range(count):
        rest[np.flatnonzero(group == g)[: placed[g]]] = False
    return np.concatenate([classes[:first], group[rest]])
