"""Recommenders that count, from interactions in an order of time, and blends of them with others.

Settings that are None are chosen by the last interaction of each user, one after another, then everything is counted. Of repeated
interactions the last one counts, see `interactions`; those of a user at the same time are in the order of the items.

>>> users, items = ["ann", "ann", "bob", "bob", "eve"], ["x", "y", "x", "y", "x"]
>>> model = TransitionRecommender(decay=0.5, normalise="none").fit(users, items)  # rows are in order of time
>>> model.recommend("eve", k=1)[0]
array(['y'], dtype=object)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from typing_extensions import Self

from rankstruct.checks import check_choice, check_flags, check_integers, check_numbers
from rankstruct.data import DataError
from rankstruct.estimators.base import all_or_nothing
from rankstruct.measures import Measure, parse_measure
from rankstruct.messages import explaining
from rankstruct.recommenders.base import OTHER_NAMES, CatalogueRecommender, of_any_size, refusing
from rankstruct.recommenders.index import Index
from rankstruct.recommenders.ratings import Ratings
from rankstruct.recommenders.recommendation import evaluate_catalogue, longest_cutoff

__all__ = ["BlendRecommender", "SequenceRecommender", "SessionKNN", "TransitionRecommender"]

Normalisation = Literal["root", "none", "sum"]
_TIES = 1e-10  # the weight of popularity, relative to a score
_BLOCK = 2**24  # cosines between users at once
_JUDGED = 20_000  # users, at most, choose settings
_NEIGHBOURS = ("k", "n_neighbors", "neighbors", "n_neighbours")  # of other libraries


class SequenceRecommender(CatalogueRecommender):
    """The base of recommenders of interactions in an order of time: a subclass counts, and has values of settings to try.

    Attributes:
        settings_: the settings, with those that were chosen.
        known_: the interactions of `fit`, which are not recommended again.

    >>> TransitionRecommender(decay=0.5, normalise="sum").fit(["ann", "ann", "bob"], ["x", "y", "x"]).settings_
    {'decay': 0.5, 'normalise': 'sum'}
    """

    settings_: Mapping[str, Any]

    @refusing
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        validation: Any = None,
        user: str | None = None,
        item: str | None = None,
        time: str | None = None,
        min_rating: float | None = None,
    ) -> Self:
        """Choose the settings that are None, then count all interactions.

        Args:
            X: a table, whose rows are in order of time if it has no column of times; `Ratings` with times; or the users of
                interactions, `[interactions]`, in order of time.
            y: the items of interactions, if X are users.
            validation: interactions of the same users, in the same form, that choose the settings, as in `Recommender.fit`; if
                None, the last one of each user with several.
            user, item, time: the columns of a table, here and in later calls, if they have other names.
            min_rating: only rows of a table with at least this rating count, here and in later calls; see `interactions`.

        Raises:
            DataError, ValueError: malformed interactions; a matrix, or others that have no order; a setting out of range.
        """
        with all_or_nothing(self):
            self._check_options()
            measure = parse_measure(self.measure)
            longest_cutoff([measure])
            columns = {"user": user, "item": item, "time": time, "min_rating": min_rating}
            index = Index.of(X, y, columns, is_ordered=self._is_ordered())
            if not index.known.num_ratings:
                raise DataError("expected interactions to count, got none")
            is_open = any(getattr(self, name) is None for name in self._grid())
            train, held, missed = self._divide(index, validation, 1 if is_open else 0)
            if held is not None and missed is None:
                held = held.select_users(np.random.default_rng(0).permutation(np.unique(held.user))[:_JUDGED])
            options: dict[str, Any] = {"exclude": train, "items": index.ranked(None, None), "missed": missed}
            parts = lru_cache(1)(self._parts)

            def value(settings: Mapping[str, Any]) -> float:
                self._count(train, settings, parts(train))
                (values,) = evaluate_catalogue(self.catalogue_model(), held, [measure], **options).values()
                return float(values.mean())

            with of_any_size(index.known.num_items):
                chosen = self._chosen(None if held is None else value)
                self._count(index.known, chosen, parts(index.known))
            self._index = index
        return self

    def _chosen(self, value: Callable[[Mapping[str, Any]], float] | None) -> dict[str, Any]:
        """The settings, the best in turn of those that are None; without a value the defaults."""
        grid = {name: values for name, values in self._grid().items() if getattr(self, name) is None}
        chosen = {name: getattr(self, name) for name in self._grid()} | {name: each[0] for name, each in grid.items()}
        if value is None:
            return chosen
        known = cache(lambda settings: value(dict(settings)))
        for name, values in grid.items():
            tried = [chosen | {name: each} for each in values]
            chosen = max(tried, key=lambda settings: known(tuple(settings.items())))
        return chosen

    def _is_ordered(self) -> bool:
        """Whether the order of interactions counts."""
        return True

    def _grid(self) -> Mapping[str, Sequence[Any]]:
        """The values to try of each setting, the default first."""
        raise NotImplementedError

    def _check_options(self) -> None:
        """Raise ValueError for a setting out of range."""
        raise NotImplementedError

    def _parts(self, known: Ratings) -> Any:
        """What `_count` needs and no setting changes, computed once."""

    def _count(self, known: Ratings, settings: Mapping[str, Any], parts: Any) -> None:
        """Set the attributes of a fit."""
        self.known_, self.settings_ = known, dict(settings)

    def catalogue_model(self) -> Any:
        """The `CatalogueModel` of the users of `fit`, such as for `evaluate_catalogue`, by their index in `known_`."""
        return _Counted(partial(self._scores, self.known_, False), self.known_)

    def _model_of_new(self, known: Ratings) -> Any:
        """The `CatalogueModel` of new users."""
        return _Counted(partial(self._scores, known, True), self.known_)

    def _scores(self, known: Ratings, are_new: bool, users: np.ndarray) -> sp.csr_array:
        """The scores `[users, items]` of users by their index in `known`, from 0."""
        raise NotImplementedError


class TransitionRecommender(SequenceRecommender):
    """Recommend what followed the last items of a user, in the sequences of all: a Markov chain with decay, a strong baseline.

    The weight of a transition from item i to item j is the sum of `decay ** (gap - 1)` over the users who had j at the gap 1, the
    next one, 2 and so on after i. The score of an item is the sum of the weights from the items of a user, whose gap to the next
    item is known: the last has the factor 1, the one before `decay`. Popularity decides among equal scores, so that users whose
    items nothing followed get popular ones.

    Args:
        decay: in (0, 1]; if None, .6, .3, .8 or 1.
        window: the greatest gap that counts.
        normalise: the weights of transitions from an item are divided by their sum (`"sum"`), its square root (`"root"`) or not
            (`"none"`); if None, the best of these.
        measure: the measure that chooses settings, with a cut-off.

    Attributes:
        transitions_: `[items, items]` sparse, row i the weights from item i.

    >>> model = TransitionRecommender(decay=0.5, normalise="none").fit(["ann"] * 3 + ["bob"] * 2, ["x", "y", "z", "z", "x"])
    >>> model.transitions_.toarray()
    array([[0. , 1. , 0.5],
           [0. , 0. , 1. ],
           [1. , 0. , 0. ]])
    >>> model.recommend_new(["z"], k=2)[0]
    array(['x', 'y'], dtype=object)
    """

    @explaining({**OTHER_NAMES, "normalize": "there is no normalize=; pass normalise="})
    def __init__(
        self,
        *,
        decay: float | None = None,
        window: int = 20,
        normalise: Normalisation | None = None,
        measure: str | Measure = "nDCG@10",
    ) -> None:
        self.decay, self.window, self.normalise, self.measure = decay, window, normalise, measure

    def _grid(self) -> Mapping[str, Sequence[Any]]:
        return {"decay": (0.6, 0.3, 0.8, 1.0), "normalise": get_args(Normalisation)}

    def _check_options(self) -> None:
        check_numbers("> 0 and <= 1", optional=True, decay=self.decay)
        check_integers(1, window=self.window)
        check_choice("normalise", self.normalise, (*get_args(Normalisation), None))

    def _parts(self, known: Ratings) -> list[sp.csr_array]:
        """`[items, items]` for each gap from 1: the number of users with that gap between two items."""
        items, ends = _in_order(known, np.arange(known.num_users))
        user, shape = np.repeat(np.arange(known.num_users), np.diff(ends)), (known.num_items, known.num_items)
        longest = int(np.diff(ends).max(initial=0))
        firsts = [(gap, np.flatnonzero(user[gap:] == user[:-gap])) for gap in range(1, min(self.window + 1, longest))]
        return [sp.csr_array((np.ones(len(at)), (items[at], items[at + gap])), shape) for gap, at in firsts]

    def _count(self, known: Ratings, settings: Mapping[str, Any], parts: list[sp.csr_array]) -> None:
        super()._count(known, settings, parts)
        counts = sp.csr_array((known.num_items, known.num_items))
        for gap, pairs in enumerate(parts):
            counts = counts + settings["decay"] ** gap * pairs
        powers = {"none": 0.0, "root": 0.5, "sum": 1.0}
        sums = np.repeat(np.asarray(counts.sum(1)).ravel(), np.diff(counts.indptr))
        counts.data /= sums ** powers[settings["normalise"]]
        self.transitions_ = counts

    def _scores(self, known: Ratings, are_new: bool, users: np.ndarray) -> sp.csr_array:
        return _recent(known, users, self.settings_["decay"], self.window) @ self.transitions_


class SessionKNN(SequenceRecommender):
    """Recommend the items of the users with the most similar recent items.

    Users are vectors of their items, with the weight 1 of the last, `decay` of the one before and so on. The score of an item is
    the sum of the cosines between the user and those of the most similar ones who have it. Popularity decides among equal scores.

    Args:
        decay: in (0, 1]; if None, .8, .6 or 1.
        neighbours: the number of similar users; if None, 100, 50, 200 or 500.
        measure: the measure that chooses settings, with a cut-off.

    >>> model = SessionKNN(decay=0.5, neighbours=1).fit(["ann"] * 3 + ["bob"] * 2, ["x", "y", "z", "z", "w"])
    >>> model.recommend_new(["y"], k=1)[0]  # as ann
    array(['z'], dtype=object)
    """

    @explaining({**OTHER_NAMES, **{name: f"there is no {name}=; pass neighbours=" for name in _NEIGHBOURS}})
    def __init__(
        self, *, decay: float | None = None, neighbours: int | None = None, measure: str | Measure = "nDCG@10"
    ) -> None:
        self.decay, self.neighbours, self.measure = decay, neighbours, measure

    def _grid(self) -> Mapping[str, Sequence[Any]]:
        return {"decay": (0.8, 0.6, 1.0), "neighbours": (100, 50, 200, 500)}

    def _check_options(self) -> None:
        check_numbers("> 0 and <= 1", optional=True, decay=self.decay)
        check_integers(1, optional=True, neighbours=self.neighbours)

    def _count(self, known: Ratings, settings: Mapping[str, Any], parts: Any) -> None:
        super()._count(known, settings, parts)
        self._vectors = _unit(_recent(known, np.arange(known.num_users), settings["decay"]))

    def _scores(self, known: Ratings, are_new: bool, users: np.ndarray) -> sp.csr_array:
        vectors = _unit(_recent(known, users, self.settings_["decay"])) if are_new else self._vectors[users]
        size = max(_BLOCK // self.known_.num_users, 1)
        firsts = range(0, max(len(users), 1), size)
        near = [self._nearest(vectors[at : at + size], None if are_new else users[at : at + size]) for at in firsts]
        return sp.vstack(near, "csr") @ self.known_.to_csr()

    def _nearest(self, vectors: sp.csr_array, users: np.ndarray | None) -> sp.csr_array:
        """`[n, users]`: the cosines of the nearest users to vectors `[n, items]`, which may be those of `users`."""
        cosines, number = sp.csr_array(vectors @ self._vectors.T), self.settings_["neighbours"]
        if users is not None:
            cosines.data[cosines.indices == np.repeat(users, np.diff(cosines.indptr))] = 0.0
        for start, end in pairwise(cosines.indptr):
            own = cosines.data[start:end]
            if len(own) > number:
                last = np.partition(own, -number)[-number]
                tied = np.flatnonzero(own == last)
                tied = tied[np.argsort(cosines.indices[start:end][tied])]  # the first users among equals
                own[own < last] = own[tied[len(tied) - ((own >= last).sum() - number) :]] = 0.0
        cosines.eliminate_zeros()
        return cosines


class BlendRecommender(SequenceRecommender):
    """Blend two recommenders, such as a counter and a trained one: the weighted mean of their scores.

    The scores of each member are first mapped, for each user, to the range from 0, the least of all items, to 1. A counter that
    has no scores for a user, whose items nothing followed, only decides among equal scores, by popularity.

    Args:
        first, second: the members, any of the recommenders of this module and `Recommender`; `fit` fits copies of them.
        weight: that of the first, in [0, 1]; if None, 0, .25, .5, .75 or 1, chosen with the last interactions held out, after
            which members are fitted again.
        prefit: whether the members are fitted already, on the same X; then they are used as they are, and the weight is chosen by
            `fit(X, validation=...)`.
        measure: the measure that chooses the weight, with a cut-off.

    Attributes:
        members_: the fitted members.

    >>> users, items = ["ann", "ann", "bob", "bob", "eve"], ["x", "y", "x", "y", "x"]
    >>> members = TransitionRecommender(decay=0.5, normalise="none"), SessionKNN(decay=1.0, neighbours=5)
    >>> BlendRecommender(*members, weight=0.5).fit(users, items).recommend("eve", k=1)[0]
    array(['y'], dtype=object)
    """

    @explaining(
        {**OTHER_NAMES, "weights": "there is no weights=; pass weight=, that of the first; blend blends for more"}
    )
    def __init__(
        self,
        first: CatalogueRecommender,
        second: CatalogueRecommender,
        *,
        weight: float | None = None,
        prefit: bool = False,
        measure: str | Measure = "nDCG@10",
    ) -> None:
        self.first, self.second, self.weight, self.prefit, self.measure = first, second, weight, prefit, measure

    @refusing
    def fit(self, X: Any, y: Any = None, *, validation: Any = None, **columns: Any) -> Self:
        """Fit the members and choose the weight; see `SequenceRecommender.fit`.

        Raises:
            ValueError: as there; `prefit` members that are not fitted on X, or without validation and weight.
        """
        if self.prefit and self.weight is None and validation is None:
            raise ValueError(
                "prefit=True needs interactions that choose the weight: pass fit(X, validation=...), or weight="
            )
        return super().fit(X, y, validation=validation, **columns)

    def _grid(self) -> Mapping[str, Sequence[Any]]:
        return {"weight": (0.5, 0.25, 0.75, 0.0, 1.0)}

    def _check_options(self) -> None:
        check_flags(prefit=self.prefit)
        for name, member in (("first", self.first), ("second", self.second)):
            if not isinstance(member, CatalogueRecommender):
                raise TypeError(f"{name} must be a recommender, such as Recommender(), got {type(member).__name__}")
            if self.prefit:
                check_is_fitted(member)
        check_numbers(">= 0 and <= 1", optional=True, weight=self.weight)

    def _is_ordered(self) -> bool:
        members = [each for each in (self.first, self.second) if isinstance(each, SequenceRecommender)]
        return any(each._is_ordered() for each in members)

    def _parts(self, known: Ratings) -> list[CatalogueRecommender]:
        """The fitted members."""
        members = [self.first, self.second]
        if not self.prefit:
            return [clone(member).fit(known) for member in members]
        if not all(_are_same(member.known_, known) for member in members):
            raise ValueError("prefit=True needs members that were fitted on X, got others; pass the same interactions")
        return members

    def _count(self, known: Ratings, settings: Mapping[str, Any], parts: list[CatalogueRecommender]) -> None:
        super()._count(known, settings, parts)
        self.members_ = parts

    def catalogue_model(self) -> Any:
        """As in `CatalogueRecommender`, with the weighted means of scores."""
        return _Blend([member.catalogue_model() for member in self.members_], self.settings_["weight"])

    def _model_of_new(self, known: Ratings) -> Any:
        return _Blend([member._model_of_new(known) for member in self.members_], self.settings_["weight"])


class _Counted:
    """A model of sparse scores, among equal ones of which popularity decides."""

    def __init__(self, scores: Callable[[np.ndarray], sp.csr_array], known: Ratings) -> None:
        counts = np.bincount(known.item, minlength=known.num_items)
        self.scores, self.ties = scores, _TIES * counts / counts.max(initial=1)

    def item_scores(self, users: Tensor) -> Tensor:
        """`[users, items]`; those of users who have none are at most `_TIES`."""
        scores = self.scores(users.cpu().numpy())
        scores.eliminate_zeros()
        counts = np.diff(scores.indptr)
        least = np.ones(len(users))
        if scores.nnz:
            least[counts > 0] = np.minimum.reduceat(scores.data, scores.indptr[:-1][counts > 0])
        found = np.multiply.outer(least, self.ties)
        found[np.repeat(np.arange(len(users)), counts), scores.indices] = scores.data * (1 + self.ties[scores.indices])
        return torch.from_numpy(found)


class _Blend:
    """The weighted mean of the scores of two models, each from 0 to 1."""

    def __init__(self, models: Sequence[Any], weight: float) -> None:
        self.models, self.weights = models, (weight, 1 - weight)

    def item_scores(self, users: Tensor) -> Tensor:
        parts = zip(self.models, self.weights, strict=True)
        return torch.stack([weight * self._of_member(model, users) for model, weight in parts]).sum(0)

    def _of_member(self, model: Any, users: Tensor) -> Tensor:
        scores = model.item_scores(users)
        scaled = _scaled(scores)
        if isinstance(model, _Counted):  # whose popularity decides among equal scores alone
            scaled = scaled.where(scores.amax(1, keepdim=True) > _TIES, scores)
        return scaled


def _scaled(scores: Tensor) -> Tensor:
    """Scores `[users, items]` mapped to the range from 0 to 1 for each user; 0 if all are equal."""
    scores = scores.detach().cpu().double()
    least, most = scores.amin(1, keepdim=True), scores.amax(1, keepdim=True)
    spread = most - least
    return (scores - least) / torch.where(spread > 1e-14 * most.abs(), spread, 1.0)  # not of rounding alone


def _are_same(one: Ratings, other: Ratings) -> bool:
    """Whether interactions are of the same users and items, with the same indices."""
    return (
        one.user_names.tolist() == other.user_names.tolist()
        and one.item_names.tolist() == other.item_names.tolist()
        and np.array_equal(one.keys(), other.keys())
    )


def _in_order(known: Ratings, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The items of some users in order of time, one user after another, and where those of each begin and the last ends."""
    assert known.time is not None  # Index requires it
    items, counts = known.items_of(users)
    ends = np.append(0, counts.cumsum())
    at = np.arange(len(items)) + np.repeat(known.offsets[users] - ends[:-1], counts)
    order = np.lexsort((items, known.time[at], np.repeat(np.arange(len(users)), counts)))
    return items[order], ends


def _recent(known: Ratings, users: np.ndarray, decay: float, window: int | None = None) -> sp.csr_array:
    """`[users, items]`: the items of some users, with weights 1 of the last, `decay` of the one before, up to `window` items."""
    items, ends = _in_order(known, users)
    age = np.repeat(ends[1:] - 1, np.diff(ends)) - np.arange(len(items))
    if window is not None:
        items, age, ends = items[age < window], age[age < window], np.append(0, np.diff(ends).clip(max=window).cumsum())
    return sp.csr_array((decay ** age.astype(np.float64), items, ends), (len(users), known.num_items))


def _unit(rows: sp.csr_array) -> sp.csr_array:
    """Sparse rows, not of 0, divided by their norms."""
    norms = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel())
    return sp.csr_array((rows.data / np.repeat(norms, np.diff(rows.indptr)), rows.indices, rows.indptr), rows.shape)
