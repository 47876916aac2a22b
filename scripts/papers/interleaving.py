"""Interleaving: which of two rankers users prefer, from clicks on lists that mix their rankings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rankstruct.arrays import as_numbers
from rankstruct.ids import known_ids
from rankstruct.statistics import bootstrap_interval, paired_p_value

__all__ = ["Interleaved", "Preference", "compare_interleaved", "interleave"]


@dataclass(frozen=True, eq=False)
class Interleaved:
    """A list to show to a user, mixed from the rankings of two rankers.

    Attributes:
        documents: `[length]`, the documents by rank.
        teams: `[length]`, which ranker contributed each, 1 or 2.
        chances: `[length]`, the probability that the first ranker contributed it, given the list; 1 or 0 for team drafts.

    >>> shown = Interleaved(np.array(["a", "b", "c"]), np.array([1, 2, 1]), np.array([0.75, 0.5, 0.5]))
    >>> shown.outcome([1, 0, 1]), shown.outcome([0, 1, 0]), shown.outcome([1, 1, 0])
    (1, -1, 0)
    >>> shown.expected_outcome([1, 0, 0])
    0.5
    """

    documents: np.ndarray
    teams: np.ndarray
    chances: np.ndarray

    def outcome(self, clicks: Any) -> int:
        """1 if the first ranker contributed more of the clicked documents, -1 if the second did, 0 if both did alike.

        Args:
            clicks: `[length]`, 0 or 1, of the documents shown.

        Raises:
            ValueError: another number of clicks, or one that is neither 0 nor 1.
        """
        clicked = self._clicked(clicks)
        return int(np.sign((self.teams[clicked] == 1).sum() - (self.teams[clicked] == 2).sum()))

    def expected_outcome(self, clicks: Any) -> float:
        """The expected outcome over all ways in which the rankers can have contributed the documents, from -1 to 1.

        For probabilistic interleaving, where either ranker can have contributed a document; it varies less than the outcome. For
        team drafts it is the outcome.

        Raises:
            ValueError: as for `outcome`.
        """
        clicked = self._clicked(clicks)
        balance = np.ones(1)  # probabilities of the number of clicks of the first ranker
        for chance in self.chances[clicked]:
            balance = np.convolve(balance, [1 - chance, chance])
        return float(balance @ np.sign(2 * np.arange(len(balance)) - (len(balance) - 1)))

    def _clicked(self, clicks: Any) -> np.ndarray:
        found = as_numbers("clicks", clicks)
        if found.shape != self.teams.shape or not ((found == 0) | (found == 1)).all():
            raise ValueError(
                f"clicks must be 0 or 1 for each of the {len(self.teams)} documents shown; got shape {found.shape}"
            )
        return found.astype(bool)


def interleave(
    first: Any,
    second: Any,
    *,
    length: int | None = None,
    method: Literal["team-draft", "probabilistic"] = "team-draft",
    decay: float = 3.0,
    seed: Any = None,
) -> Interleaved:
    """Mix the rankings of two rankers to a list that favours neither.

    `"team-draft"`: the rankers pick in turn, and a coin decides before each pair of picks who is first; each picks the highest
    document of its ranking that is not in the list. `"probabilistic"`: a coin decides at each rank who picks, and the ranker
    draws a document that is not in the list, the one at rank r of its ranking with probability proportional to r^-decay, so each
    document can have come from either. If clicks depend on ranks alone, and not on documents, either ranker is as likely to win.

    Args:
        first: the documents of the first ranker's ranking, ids, the best first.
        second: those of the second's, of the same query; some of the documents may be others.
        length: the number of documents of the list; None for the length of the shorter ranking.
        method: as above.
        decay: of probabilistic interleaving, above 0; high values keep the order of the rankings.
        seed: an integer or a `numpy.random.Generator`; None for a list that differs in each call.

    Raises:
        ValueError: a document twice in a ranking, an empty ranking, a length that is not from 1 to the number of documents of the
            shorter ranking, an unknown method, or a decay that is not above 0.

    Source: Radlinski, Kurup, Joachims, "How Does Clickthrough Data Reflect Retrieval Quality?", CIKM 2008 (team draft); Hofmann,
    Whiteson, de Rijke, "A Probabilistic Method for Inferring Preferences from Clicks", CIKM 2011.

    >>> shown = interleave(["a", "b", "c"], ["b", "d", "a"], seed=0)
    >>> shown.documents.tolist(), shown.teams.tolist()
    (['b', 'a', 'd'], [2, 1, 2])
    """
    rankings = [_checked_ranking(name, ids) for name, ids in (("first", first), ("second", second))]
    longest = min(map(len, rankings))
    size = longest if length is None else length
    if not 1 <= size <= longest:
        raise ValueError(f"length must be from 1 to {longest}, the length of the shorter ranking; got {length}")
    if method not in ("team-draft", "probabilistic"):
        raise ValueError(f"method must be 'team-draft' or 'probabilistic', got {method!r}")
    if not 0 < decay < np.inf:
        raise ValueError(f"decay must be a finite number above 0, got {decay}")
    rng = np.random.default_rng(seed)
    ids, number = np.unique(np.concatenate(rankings), return_inverse=True)
    numbers = number[: len(rankings[0])], number[len(rankings[0]) :]
    mix = _team_draft if method == "team-draft" else _probabilistic
    documents, teams, chances = mix(numbers, size, decay, rng)
    return Interleaved(ids[documents], np.array(teams), np.array(chances))


def _team_draft(
    rankings: tuple[np.ndarray, np.ndarray], size: int, decay: float, rng: np.random.Generator
) -> tuple[list[int], list[int], list[float]]:
    """Documents, teams and chances; a pair of picks a round."""
    documents: list[int] = []
    teams: list[int] = []
    taken: set[int] = set()
    ranked = [ranking.tolist() for ranking in rankings]
    following = [0, 0]
    while len(documents) < size:
        begins = int(rng.integers(2))
        for team in (begins, 1 - begins):
            if len(documents) < size:
                while ranked[team][following[team]] in taken:
                    following[team] += 1
                document = ranked[team][following[team]]
                taken.add(document)
                documents.append(document)
                teams.append(team + 1)
    return documents, teams, [float(team == 1) for team in teams]


def _probabilistic(
    rankings: tuple[np.ndarray, np.ndarray], size: int, decay: float, rng: np.random.Generator
) -> tuple[list[int], list[int], list[float]]:
    """Documents, teams and chances; a coin a rank."""
    logs = np.full((2, max(int(ranking.max()) for ranking in rankings) + 1), -np.inf)
    for weight, ranking in zip(logs, rankings, strict=True):
        weight[ranking] = -decay * np.log(np.arange(1.0, len(ranking) + 1))
    documents: list[int] = []
    teams: list[int] = []
    chances: list[float] = []
    for _ in range(size):
        shares = np.exp(logs - logs.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        team = int(rng.integers(2))
        document = int(rng.choice(len(shares[0]), p=shares[team]))
        documents.append(document)
        teams.append(team + 1)
        chances.append(float(shares[0, document] / shares[:, document].sum()))
        logs[:, document] = -np.inf
    return documents, teams, chances


def _checked_ranking(name: str, ids: Any) -> np.ndarray:
    found = known_ids(name, ids)
    if found.ndim != 1 or not len(found):
        raise ValueError(f"{name} must be the ids of a ranking, at least one; got shape {found.shape}")
    if len(np.unique(found)) < len(found):
        raise ValueError(f"{name} must rank each document once")
    return found


@dataclass(frozen=True)
class Preference:
    """What interleaved sessions say of two rankers.

    Attributes:
        wins: the number of sessions that the first ranker won.
        losses: the number that the second won.
        ties: the number of the others.
        value: `test="sign"`: the share of the first ranker's wins among the sessions that one of them won, 1/2 if there is none.
            `test="mean"`: the mean outcome.
        low: the lower end of its confidence interval.
        high: the upper end.
        confidence: the level.
        p: the two-sided p-value of the hypothesis that users prefer neither.

    >>> compare_interleaved([1] * 15 + [0] * 60 + [-1] * 5)
    Preference(wins=15, losses=5, ties=60, value=0.75, low=0.508..., high=0.913..., confidence=0.95, p=0.041...)
    """

    wins: int
    losses: int
    ties: int
    value: float
    low: float
    high: float
    confidence: float
    p: float


def compare_interleaved(
    outcomes: Any, *, test: Literal["sign", "mean"] = "sign", confidence: float = 0.95
) -> Preference:
    """Decide which of two rankers users prefer.

    Args:
        outcomes: `[sessions]`, of `Interleaved.outcome`, or of `expected_outcome` with `test="mean"`, of sessions that are
            independent of each other: add up those of a user who has many, and take the sign.
        test: `"sign"`, the exact binomial test over the sessions that are not ties, and the Clopper-Pearson interval: of tests at
            a level, at most this share errs if users prefer neither. `"mean"`, the t-test and a bootstrap interval of the mean,
            which hold for many sessions.
        confidence: the level of the interval.

    Raises:
        ValueError: no session; outcomes that are not from -1 to 1, or for the sign test -1, 0 or 1.

    Source: Chapelle, Joachims, Radlinski, Yue, "Large-Scale Validation and Analysis of Interleaved Search Evaluation", TOIS 2012
    (tests); Clopper and Pearson, Biometrika 1934.

    >>> compare_interleaved([0.5, 0.25, -0.125, 1, 0.5, 0], test="mean").value
    0.354...
    """
    found = as_numbers("outcomes", outcomes).astype(np.float64)
    if found.ndim != 1 or not len(found) or not (np.abs(found) <= 1).all():
        raise ValueError(
            f"outcomes must be numbers from -1 to 1, one per session, at least one; got shape {found.shape}"
        )
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be above 0 and below 1, got {confidence}")
    if test not in ("sign", "mean"):
        raise ValueError(f"test must be 'sign' or 'mean', got {test!r}")
    wins, losses = int((found > 0).sum()), int((found < 0).sum())
    summary: tuple[float, float, float, float]
    if test == "mean":
        low, high = bootstrap_interval(found, confidence)
        summary = float(found.mean()), low, high, paired_p_value(found, np.zeros(len(found)), "t")
    else:
        if not np.isin(found, (-1, 0, 1)).all():
            raise ValueError("outcomes of the sign test must be -1, 0 or 1; for expected ones pass test='mean'")
        summary = _sign_test(wins, losses, confidence)
    value, low, high, p = summary
    return Preference(wins, losses, len(found) - wins - losses, value, low, high, confidence, p)


def _sign_test(wins: int, losses: int, confidence: float) -> tuple[float, float, float, float]:
    """The share of wins, its interval, and the p-value."""
    if not wins + losses:
        return 0.5, 0.0, 1.0, 1.0
    import scipy.stats

    found = scipy.stats.binomtest(wins, wins + losses)
    interval = found.proportion_ci(confidence, "exact")
    return wins / (wins + losses), float(interval.low), float(interval.high), float(found.pvalue)
