"""Random lists with groups and assignments of ranks to groups, and what enumeration or SciPy makes of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from brute_force import random_groups, random_list
from scipy.optimize import linear_sum_assignment


def draw_grouped(rng: np.random.Generator, most: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Scores, labels and groups of a short list, and the size that errors are measured by."""
    scores, labels, size = random_list(rng, True, most)
    groups, labels = random_groups(rng, labels)
    return scores, labels, groups, size


def draw_reciprocal(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, float]:
    """Scores, labels and groups of a longer list, a k, and the hinge of RR@k and predicted reference.

    SciPy's assignment for each number of irrelevant documents that lead, of which the first, where none leads, has the highest
    score of all rankings.
    """
    n, k = int(rng.integers(6, 30)), int(rng.choice([1, 3, 5, 5]))
    c = np.arange(1, k + 1) ** -0.5
    groups, relevant = rng.integers(0, 10, n), rng.random(n) < rng.choice([0.2, 0.5])
    groups[:k] = np.arange(k)
    scores = rng.normal(size=n) * rng.choice([0.1, 0.5, 1.0])
    relevant[0] = True
    tops = [
        [scores[(groups == g) & some].max(initial=-1e9) for g in {*groups}] for some in (scores < np.inf, ~relevant)
    ]
    hinges = []
    for lead in range(min(k, len({*groups[~relevant]})) + 1):
        value = np.outer(c, tops[0])
        value[:lead] = np.outer(c[:lead], tops[1])
        loss = 1 - 1 / (lead + 1) if lead < k else 1.0
        hinges.append(loss + value[linear_sum_assignment(value, maximize=True)].sum())
    return scores, relevant.astype(np.int64), groups, k, max(hinges) - hinges[0]


class Assignment(NamedTuple):
    """Ranks to be assigned to groups.

    Attributes:
        value: `[ranks, groups]`, minus infinity where a group has no document for a rank.
        given: what the core takes, but for its room and the answer.
        name: of the function that takes it.
    """

    value: np.ndarray
    given: tuple
    name: str

    def best(self) -> float:
        """SciPy's."""
        value = np.where(np.isfinite(self.value), self.value, -1e15)
        return float(self.value[linear_sum_assignment(value, maximize=True)].sum())

    def found(self, parts, rows: int) -> float:
        """The core's value, with room for a table of so many ranks; NaN where a group has two ranks."""
        ranks, groups = self.value.shape
        column = np.full(ranks, -1, np.int32)
        getattr(parts, self.name)(*self.given, rows * groups, column)
        return float(self.value[np.arange(ranks), column].sum()) if len({*column.tolist()}) == ranks else np.nan

    def size(self) -> float:
        """What errors are measured by."""
        return max(1e-9, float(np.abs(self.value[np.isfinite(self.value)]).max()))


def draw_assignment(rng: np.random.Generator) -> Assignment:
    """Of documents of any score and gain, at times all whole numbers, so that many assignments are best."""
    ranks = int(rng.integers(1, 20))
    groups = int(rng.integers(ranks, 40))
    group = np.sort(np.concatenate([np.arange(groups), rng.integers(0, groups, size=rng.integers(0, 40))])).astype(
        np.int32
    )
    score, gain = rng.normal(size=(2, len(group))) * 10.0 ** rng.integers(-3, 4)
    c, a = rng.normal(size=(2, ranks))
    if rng.random() < 0.4:
        c, score, gain = np.round(c), np.round(score), np.round(gain)
    worth = np.outer(c, score) - np.outer(a, gain)
    value = np.array([worth[:, group == g].max(1) for g in range(groups)]).T
    return Assignment(value, (group, score, gain, c, a, groups, float(np.abs(gain).max())), "assign_discounted")


def draw_leading(rng: np.random.Generator) -> Assignment:
    """Some number of irrelevant documents lead, which not every group has."""
    c, top = draw_heads(rng)
    lead = int(rng.integers(0, min(len(c), np.isfinite(top[1]).sum()) + 1))
    with np.errstate(invalid="ignore"):
        value = np.where(np.arange(len(c))[:, None] < lead, *(np.outer(c, each) for each in top[::-1]))
    value[:lead, top[1] == -np.inf] = -np.inf  # c may be 0
    return Assignment(value, (top[0].copy(), top[1].copy(), c, lead, 1.0), "assign_leading")


def draw_heads(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A decay, and `[2, groups]` the highest score of all documents and of the irrelevant ones, none above 0."""
    groups, m = int(rng.integers(2, 26)), int(rng.integers(1, 15))
    c = [np.arange(1, m + 1) ** -0.5, np.sort(rng.random(m))[::-1], np.linspace(1, 0, m), np.ones(m)][rng.integers(4)]
    top = -np.abs(rng.normal(size=(2, groups))) * rng.choice([0.1, 1.0, 10.0])
    top = np.round(top, 1) if rng.random() < 0.3 else top
    top[1] = np.where(rng.random(groups) < rng.choice([0.3, 0.8]), top[0], top.min(0))
    top[1, (rng.random(groups) < 0.1) & (top[1] != top[0])] = -np.inf
    return c[: min(m, groups)].copy(), top


class Leaders(NamedTuple):
    """What the core knows of the ranking of reciprocal rank that is most violated.

    Attributes:
        totals: `[leaders + 1]`, SciPy's sum of scores times decay where so many irrelevant documents lead.
        bound: `[leaders + 1]`, what the core says that these do not exceed; the first is nothing.
        exact: the core's best value over that with no leader, less the charge.
        known: leaders, who joins them, and that value of the best ranking that the core knows from its bounds.
        value_known: what the ranking that it makes of these is worth.
        charge: `[leaders + 1]`.
    """

    totals: np.ndarray
    bound: np.ndarray
    exact: float
    known: tuple[int, int, float]
    value_known: float
    charge: np.ndarray


def find_leaders(rng: np.random.Generator, parts) -> Leaders:
    """Of groups as `draw_heads` draws them."""
    c, top = draw_heads(rng)
    top = top[:, np.argsort(-top[0], kind="stable")]
    m, groups = len(c), top.shape[1]
    documents = [(top[0, g], g, float(top[1, g] != top[0, g])) for g in range(groups)]
    documents += [(top[1, g], g, 0.0) for g in range(groups) if -np.inf < top[1, g] != top[0, g]]
    documents.sort(key=lambda document: -document[0])
    numbers: dict[int, int] = {}
    group = np.array([numbers.setdefault(g, len(numbers)) for _, g, _ in documents], np.int32)
    top = top[:, list(numbers)]
    last = min(m, int(np.isfinite(top[1]).sum()))
    a = 1 / np.arange(1, m + 1) * rng.choice([0.1, 1.0])

    def value_of(lead: int, column: np.ndarray) -> float:
        return float(sum(c[i] * top[int(i < lead), column[i]] for i in range(m)))

    values, totals = np.where(np.isfinite(top), top, -1e6), []
    for lead in range(last + 1):
        value = np.where(np.arange(m)[:, None] < lead, np.outer(c, values[1]), np.outer(c, values[0]))
        value[:lead, top[1] == -np.inf] = -1e6
        totals.append(value[linear_sum_assignment(value, maximize=True)].sum())
    column, merged, bound, told = np.full(m, -1, np.int32), np.full(m, -1, np.int32), np.empty(last + 1), np.empty(3)
    score, gain = (np.array([each[at] for each in documents]) for at in (0, 2))
    lead = parts.lead(group, score, gain, groups, c, a, column, bound, told, merged)
    charge = np.append(a, 0.0)[: last + 1]
    exact, value_known = np.nan, np.nan
    if len({*column.tolist()}) == len({*merged.tolist()}) == m:
        exact = value_of(lead, column) - totals[0] - charge[lead]
        value_known = value_of(int(told[0]), merged) - totals[0] - charge[int(told[0])]
    known = int(told[0]), int(told[1]), float(told[2])
    return Leaders(np.array(totals), bound, exact, known, value_known, charge)
