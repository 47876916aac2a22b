"""Random lists with groups and assignments of ranks to groups, and what enumeration or SciPy makes of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from brute_force import random_groups, random_list
from scipy.optimize import linear_sum_assignment


def draw_grouped(rng: np.random.Generator, most: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Scores, labels and groups of a short list, and the size that errors are measured by."""
    scores, labels, size = random_list(rng, True, most)
    diversity_groups, labels = random_groups(rng, labels)
    return scores, labels, diversity_groups, size


def draw_reciprocal(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Scores, binary labels and groups of a longer list, and a k."""
    n, k = int(rng.integers(6, 30)), int(rng.choice([1, 3, 5, 5, 9]))
    diversity_groups, labels = rng.integers(0, 10, n), 1.0 * (rng.random(n) < rng.choice([0.2, 0.5]))
    labels[:2] = 1, 0
    return rng.normal(size=n) * rng.choice([0.1, 0.5, 1.0]), labels, diversity_groups, k


def reciprocal_hinges(scores: np.ndarray, labels: np.ndarray, diversity_groups: np.ndarray, k: int) -> dict[str, float]:
    """By reference, from SciPy's assignments: one for each number of irrelevant documents that lead."""
    names = np.unique(diversity_groups)
    m = min(k, len(names))
    c = np.arange(1, m + 1) ** -0.5
    never = -1e9
    heads = [  # of each group: the highest score of an irrelevant document, of a relevant one, of any
        np.array([scores[(diversity_groups == g) & which].max(initial=never) for g in names])
        for which in (labels == 0, labels > 0, labels >= 0)
    ]
    best = -np.inf
    for first in range(m + 1):
        table = np.stack([c[i] * heads[0 if i < first else 1 if i == first else 2] for i in range(m)])
        total = table[linear_sum_assignment(table, maximize=True)].sum()
        best = max(best, total - (1 / (first + 1) if first < m else 0))
    table = np.stack([c[i] * heads[1 if i == 0 else 2] for i in range(m)])
    preferred = table[linear_sum_assignment(table, maximize=True)].sum()
    return {"ideal-tied": 1 + best - preferred, "predicted": 1 + best - np.sort(heads[2])[::-1][:m] @ c}


class Assignment(NamedTuple):
    """Ranks to be assigned to groups: what the core takes, documents by descending score, their groups numbered as they appear.

    Attributes:
        group, score, gain: of each document.
        decay, discount: of each rank.
        led: whether no gain is charged, and the first ranks of some rankings show irrelevant documents alone.
    """

    group: np.ndarray
    score: np.ndarray
    gain: np.ndarray
    decay: np.ndarray
    discount: np.ndarray
    led: bool

    @classmethod
    def of(cls, group, score, gain, decay, discount, led: bool) -> Assignment:
        """That of documents in any order."""
        order = np.argsort(-score, kind="stable")
        numbers: dict[int, int] = {}
        numbered = np.array([numbers.setdefault(g, len(numbers)) for g in group[order].tolist()], np.int32)
        return cls(numbered, score[order], gain[order], decay, discount, led)

    def value(self, lead: int) -> np.ndarray:
        """`[ranks, groups]`, minus infinity if a group has no document for a rank; the first ranks lead."""
        worth = np.outer(self.decay, self.score) - np.outer(self.discount, self.gain) * (not self.led)
        worth[:lead, self.gain > 0] = -np.inf
        return np.array([worth[:, self.group == g].max(1) for g in range(self.group.max() + 1)]).T

    def most_leads(self) -> int:
        """How many ranks can lead."""
        return min(len(self.decay), len({*self.group[self.gain <= 0]})) if self.led else 0

    def best(self, lead: int) -> float:
        """SciPy's."""
        value = self.value(lead)
        shown = linear_sum_assignment(np.where(np.isfinite(value), value, -1e15), maximize=True)
        return float(value[shown].sum())

    def size(self) -> float:
        """What errors are measured by."""
        value = self.value(0)
        return max(1e-9, float(np.abs(value[np.isfinite(value)]).max()))

    def found(self, parts, most_numbers: int, looks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The core's values where no rank leads, where one does, and so on; NaN where it does not look, or a group has two ranks.

        And what it says that these are at most.
        """
        ranks, diversity_groups = len(self.decay), int(self.group.max()) + 1
        columns, lost = np.full((len(looks) + 1, ranks), -1, np.int32), np.empty(len(looks))
        dearest = float(self.discount.max() * self.gain.max())
        scratch = np.full(ranks, -1, np.int32), columns.reshape(-1)
        parts.assign(
            *self[:5], diversity_groups, dearest, int(self.led), most_numbers, looks.astype(np.int32), lost, *scratch
        )
        values, bounds, bound = [], [], np.inf
        for lead, column in enumerate(columns):
            bound -= lost[lead - 1] if lead else 0.0
            bounds.append(bound)
            looked = lead == 0 or looks[lead - 1]
            once = len({*column.tolist()}) == ranks
            values.append(self.value(lead)[np.arange(ranks), column].sum() if looked and once else np.nan)
            bound = values[-1] if looked else bound
        return np.array(values), np.array(bounds)


def draw_assignment(rng: np.random.Generator) -> Assignment:
    """At times of whole numbers, so that many assignments are best; at times of rankings that irrelevant documents lead."""
    ranks = int(rng.integers(1, 20))
    diversity_groups = int(rng.integers(ranks, 40))
    group = np.concatenate([np.arange(diversity_groups), rng.integers(0, diversity_groups, size=rng.integers(0, 60))])
    score, gain = np.abs(rng.normal(size=(2, len(group)))) * 10.0 ** rng.integers(-3, 4, size=(2, 1))
    decay, discount = np.abs(rng.normal(size=(2, ranks)))
    if rng.random() < 0.4:
        decay, discount, score, gain = np.round(decay), np.round(discount), np.round(score), np.round(gain)
    if led := rng.random() < 0.5:
        gain = 1.0 * (rng.random(len(group)) < rng.choice([0.3, 0.7, 0.9]))
        decay = [np.arange(1, ranks + 1) ** -0.5, np.sort(decay)[::-1], np.linspace(1, 0, ranks), np.ones(ranks)][
            rng.integers(4)
        ]
    return Assignment.of(group, score.min() - score, gain, decay.copy(), discount, led)


def check_assignment(rng: np.random.Generator, parts, problem: Assignment, expected: list[float]) -> bool:
    """Whether the core has SciPy's values, for any size of the table, and valid bounds."""
    looks = rng.random(len(expected) - 1) < 0.7
    for most_numbers in (2**26, 0):
        values, bounds = problem.found(parts, most_numbers, looks)
        allowed, looked = 1e-9 * problem.size(), np.array([True, *looks])
        if (
            not (np.abs(values - expected)[looked] <= allowed).all()
            or not (bounds >= np.array(expected) - allowed).all()
        ):
            return False
    return True
