"""Click models, to simulate users: which documents of a ranking they click."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankstruct.arrays import as_numbers
from rankstruct.clicks.log import ClickLog

__all__ = ["CascadeModel", "ClickModel", "DynamicBayesianModel", "PositionModel", "TrustModel", "simulate_clicks"]


@dataclass(frozen=True, kw_only=True)
class ClickModel:
    """Base class: how attractive a document is by its label.

    A document attracts with probability `irrelevant + (relevant - irrelevant) g`, g = (2^label - 1) / (2^highest - 1), at most 1:
    with binary labels, `relevant` or `irrelevant`.

    Args:
        relevant: the probability that a document with the highest label attracts a click when it is examined.
        irrelevant: the same of one with label 0: noise.
        highest: the highest label, above 0.

    >>> ClickModel(irrelevant=0.1, highest=2).attraction(np.array([0, 1, 2])).round(2)
    array([0.1, 0.4, 1. ])
    """

    relevant: float = 1.0
    irrelevant: float = 0.1
    highest: float = 1.0

    def __post_init__(self) -> None:
        for name in ("relevant", "irrelevant"):
            _check_probability(name, getattr(self, name))
        if not self.highest > 0:
            raise ValueError(f"highest must be a label above 0, got {self.highest}")

    def attraction(self, labels: np.ndarray) -> np.ndarray:
        """The probability of a click on examined documents, by their labels."""
        share = np.clip((np.exp2(labels) - 1) / (np.exp2(self.highest) - 1), 0, 1)
        return self.irrelevant + (self.relevant - self.irrelevant) * share

    def click(
        self, labels: np.ndarray, position: np.ndarray, starts: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Draw the clicks, bool `[rows]`.

        Args:
            labels: `[rows]`, of the documents shown, session by session and by position.
            position: `[rows]`, from 1.
            starts: `[sessions + 1]`, the rows of session s are `[starts[s], starts[s + 1])`.
            rng: draws the random numbers.
        """
        raise NotImplementedError(f"{type(self).__name__} must define click")


@dataclass(frozen=True, kw_only=True)
class PositionModel(ClickModel):
    """Position-based model: a document is clicked if it is examined, with a probability by its rank, and attracts.

    Args:
        eta: the propensity of rank k is k^-eta; 0 for no position bias.
        relevant, irrelevant, highest: see `ClickModel`.

    Source: Richardson, Dominowska, Ragno, "Predicting Clicks", WWW 2007; Joachims, Swaminathan, Schnabel, WSDM 2017 (k^-eta).

    >>> PositionModel(eta=2).propensities(3).round(3)
    array([1.   , 0.25 , 0.111])
    """

    eta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.eta < np.inf:
            raise ValueError(f"eta must be a finite number of 0 or more, got {self.eta}")

    def propensities(self, ranks: int) -> np.ndarray:
        """`[ranks]`, the probability that each rank is examined."""
        return np.arange(1.0, ranks + 1) ** -self.eta

    def click(
        self, labels: np.ndarray, position: np.ndarray, starts: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Draw the clicks, each by itself."""
        chance = self.attraction(labels)
        chance *= self.propensities(int(position.max(initial=1)))[position - 1]
        return rng.random(len(labels)) < chance


@dataclass(frozen=True, kw_only=True)
class TrustModel(PositionModel):
    """Position-based model with trust bias: users trust the first ranks, and click there on what they find irrelevant, too.

    An examined document at rank k is clicked with probability e+_k if it attracts and e-_k if not, where e-_k = trust / k and
    e+_k = 1 - miss (k - 1): the probability of a click is a_k x attraction + b_k; `affine` returns a and b.

    Args:
        trust: e-_1, from 0 to 1.
        miss: by how much e+ falls from a rank to the next, >= 0; e+ is never below e-.
        eta, relevant, irrelevant, highest: see `PositionModel`; `irrelevant` is 0 by default.

    Source: Agarwal, Wang, Li, Bendersky, Najork, "Addressing Trust Bias for Unbiased Learning-to-Rank", WWW 2019; Vardasbi,
    Oosterhuis, de Rijke, CIKM 2020.

    >>> a, b = TrustModel(eta=0, trust=0.6).affine(3)
    >>> a.round(2), b.round(2)
    (array([0.4 , 0.68, 0.76]), array([0.6, 0.3, 0.2]))
    """

    irrelevant: float = 0.0
    trust: float = 0.65
    miss: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_probability("trust", self.trust)
        if not self.miss >= 0:
            raise ValueError(f"miss must be 0 or more, got {self.miss}")

    def affine(self, ranks: int) -> tuple[np.ndarray, np.ndarray]:
        """`(a, b)`, `[ranks]` each: a document at rank k is clicked with probability a_k x attraction + b_k."""
        numbers = np.arange(1.0, ranks + 1)
        low = self.trust / numbers
        high = np.maximum(1 - self.miss * (numbers - 1), low)
        seen = self.propensities(ranks)
        return seen * (high - low), seen * low

    def click(
        self, labels: np.ndarray, position: np.ndarray, starts: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Draw the clicks, each by itself."""
        slope, base = self.affine(int(position.max(initial=1)))
        return rng.random(len(labels)) < slope[position - 1] * self.attraction(labels) + base[position - 1]


@dataclass(frozen=True, kw_only=True)
class DynamicBayesianModel(ClickModel):
    """Dynamic Bayesian network: users go down the ranking until a document satisfies them, or they give up.

    An examined document is clicked if it attracts; a clicked one satisfies with a probability by its label, as attraction does
    between 0 and `satisfaction`, and ends the session; otherwise the next rank is examined with probability `persistence`.

    Args:
        satisfaction: the probability that a clicked document with the highest label satisfies.
        persistence: the probability to go on.
        relevant, irrelevant, highest: see `ClickModel`.

    Source: Chapelle and Zhang, "A Dynamic Bayesian Network Click Model for Web Search Ranking", WWW 2009.

    >>> DynamicBayesianModel(persistence=1.0, satisfaction=0.0)
    DynamicBayesianModel(relevant=1.0, irrelevant=0.1, highest=1.0, satisfaction=0.0, persistence=1.0)
    """

    satisfaction: float = 0.9
    persistence: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("satisfaction", "persistence"):
            _check_probability(name, getattr(self, name))

    def satisfies(self, labels: np.ndarray) -> np.ndarray:
        """The probability that a clicked document ends the session, by its label."""
        return self.satisfaction * np.clip((np.exp2(labels) - 1) / (np.exp2(self.highest) - 1), 0, 1)

    def click(
        self, labels: np.ndarray, position: np.ndarray, starts: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Draw the clicks, rank by rank for all sessions."""
        clicks = np.zeros(len(labels), bool)
        going = starts[:-1][np.diff(starts) > 0]  # the next row of each session that goes on
        ends = starts[1:][np.diff(starts) > 0]
        while len(going):
            clicked = rng.random(len(going)) < self.attraction(labels[going])
            clicks[going] = clicked
            done = clicked & (rng.random(len(going)) < self.satisfies(labels[going]))
            stays = ~done & (rng.random(len(going)) < self.persistence) & (going + 1 < ends)
            going, ends = going[stays] + 1, ends[stays]
        return clicks


@dataclass(frozen=True, kw_only=True)
class CascadeModel(DynamicBayesianModel):
    """Cascade model: users go down the ranking to the first click, and no further.

    Args:
        relevant, irrelevant, highest: see `ClickModel`.

    Source: Craswell, Zoeter, Taylor, Ramsey, "An Experimental Comparison of Click Position-Bias Models", WSDM 2008.

    >>> log = simulate_clicks(CascadeModel(), [2.0, 1.0, 0.0], [1, 1, 0], [0, 3], sessions=100)
    >>> int(log.click.sum())  # the first document is relevant, so each session has one click
    100
    """

    persistence: float = 1.0

    def satisfies(self, labels: np.ndarray) -> np.ndarray:
        """1: every click ends the session."""
        return np.ones(len(labels))


def simulate_clicks(
    model: ClickModel,
    scores: Any,
    labels: Any,
    offsets: Any,
    *,
    sessions: int,
    cutoff: int | None = None,
    swap: Sequence[int] = (),
    temperature: float = 0.0,
    seed: int = 0,
) -> ClickLog:
    """Simulate sessions: a query at random, its documents ranked by the scores of the production ranker, and clicks on them.

    Args:
        model: the click model.
        scores: `[documents]`, of the production ranker, flat lists; equal scores rank in input order. `[rankers, documents]` for
            several rankers, of which each session has one at random, as for intervention harvesting.
        labels: `[documents]`, relevance, 0 or more.
        offsets: `[lists + 1]`, the documents of list i are `[offsets[i], offsets[i + 1])`.
        sessions: their number.
        cutoff: how many documents are shown; None for all.
        swap: ranks one of which, at random, is exchanged with rank 1 in half of the sessions, as for randomised swaps.
        temperature: above 0 for random rankings, by scores plus Gumbel noise of this scale (a Plackett-Luce policy), which takes
            O(rows) more time and memory; 0 for none.
        seed: of all random numbers.

    Returns:
        The log; query i is list i, and the number of a document is its index in `scores`.

    Raises:
        ValueError: wrong shapes, negative labels, no list with a document, or a rank of `swap` that is not shown.

    >>> log = simulate_clicks(PositionModel(), [3.0, 2.0, 1.0], [0, 1, 0], [0, 3], sessions=1000, cutoff=2)
    >>> log
    ClickLog(sessions=1000, queries=1, rows=2000, clicks=623, longest=2)
    >>> log.click_rates().round(1)
    array([0.1, 0.5])
    """
    rng = np.random.default_rng(seed)
    score, label, bounds = _checked_lists(scores, labels, offsets)
    sizes = np.diff(bounds)
    shown = _checked_sizes(sizes, sessions, cutoff, swap)
    query = rng.choice(np.flatnonzero(shown > 0), sessions).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(shown[query])])
    session = np.repeat(np.arange(sessions, dtype=np.int32), shown[query])
    position = (np.arange(starts[-1]) - starts[session] + 1).astype(np.int32)
    ranker = rng.integers(len(score), size=sessions)
    if temperature > 0:
        document = _sampled(score, ranker, bounds, query, shown, temperature, rng)
    else:
        order = _orders(score, sizes)
        document = order[ranker[session], bounds[query][session] + position - 1]
    if len(swap):
        _swap(document, starts, swap, rng)
    clicks = model.click(label[document], position, starts, rng)
    names = np.arange(len(sizes)), np.arange(len(label))
    return ClickLog(session, query[session], document, position, clicks, *names, of_table=True)


def _checked_sizes(sizes: np.ndarray, sessions: int, cutoff: int | None, swap: Sequence[int]) -> np.ndarray:
    """How many documents of each list are shown."""
    shown = sizes if cutoff is None else np.minimum(sizes, cutoff)
    if not (sessions >= 1 and (shown > 0).any()):
        raise ValueError("sessions must be 1 or more, and a list must have a document to show")
    if any(not 2 <= rank <= shown.max() for rank in swap):
        raise ValueError(f"swap must be ranks from 2 to {shown.max()}, which are shown; got {tuple(swap)}")
    return shown


def _swap(document: np.ndarray, starts: np.ndarray, swap: Sequence[int], rng: np.random.Generator) -> None:
    """Exchange the documents at rank 1 and at one of the ranks in half of the sessions, in place."""
    drawn = rng.integers(2 * len(swap), size=len(starts) - 1)
    for number, rank in enumerate(swap):
        rows = starts[:-1][(drawn == number) & (np.diff(starts) >= rank)]
        document[rows], document[rows + rank - 1] = document[rows + rank - 1], document[rows].copy()


def _checked_lists(scores: Any, labels: Any, offsets: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores `[rankers, documents]` and labels, float64, and offsets."""
    score, label = as_numbers("scores", scores).astype(np.float64), as_numbers("labels", labels).astype(np.float64)
    score = score[None] if score.ndim == 1 else score
    bounds = np.asarray(offsets, np.int64)
    if score.ndim != 2 or label.shape != score.shape[1:]:
        raise ValueError(
            "scores must have shape [documents] or [rankers, documents] and labels [documents]; got "
            f"{np.shape(scores)} and {label.shape}"
        )
    if bounds.ndim != 1 or bounds[0] != 0 or bounds[-1] != len(label) or (np.diff(bounds) < 0).any():
        raise ValueError(f"offsets must rise from 0 to the number of documents, {len(label)}")
    if not (np.isfinite(score).all() and (label >= 0).all() and np.isfinite(label).all()):
        raise ValueError("scores must be finite, and labels finite and 0 or more")
    return score, label, bounds


def _orders(score: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The documents of each list by score, `[rankers, documents]`."""
    list_of = np.repeat(np.arange(len(sizes)), sizes)
    return np.stack([np.lexsort((-each, list_of)) for each in score]).astype(np.int32)


def _sampled(
    score: np.ndarray,
    ranker: np.ndarray,
    bounds: np.ndarray,
    query: np.ndarray,
    shown: np.ndarray,
    temperature: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """The documents of Plackett-Luce rankings, session by session, in blocks of sessions."""
    sizes, block, parts = np.diff(bounds), 2**12, []
    for first in range(0, len(query), block):
        its = query[first : first + block]
        of = np.repeat(np.arange(len(its)), sizes[its])
        begin = np.concatenate([[0], np.cumsum(sizes[its])])[:-1]
        document = np.arange(len(of)) - begin[of] + bounds[its][of]
        noisy = score[ranker[first : first + block][of], document] + temperature * rng.gumbel(size=len(of))
        order = np.lexsort((-noisy, of))
        parts.append(document[order][np.arange(len(of)) - begin[of] < shown[its][of]].astype(np.int32))
    return np.concatenate(parts)


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be a probability, from 0 to 1; got {value}")
