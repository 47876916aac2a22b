"""What the recommenders of a catalogue have in common: top items under rules, for users known and new, and their evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from rankstruct.checks import check_choice, check_integers
from rankstruct.constraints import Constraints, rank_under
from rankstruct.constraints.rules import RulesLike, checked_columns, unknown_groups
from rankstruct.data import DataError
from rankstruct.data.errors import check_matched, naming_lists
from rankstruct.measures import Measure
from rankstruct.messages import explaining, shortened
from rankstruct.recommenders.index import Index
from rankstruct.recommenders.ratings import Ratings, interactions
from rankstruct.recommenders.recommendation import evaluate_catalogue, popularity, recommend
from rankstruct.recommenders.splits import hold_out, without

__all__ = ["CatalogueRecommender"]

_SAME = "every ranking is equally good, since all or none of the items that they do not know are relevant"
_KEPT = "fit keeps what users know; for users with other interactions use recommend_new"
_TIMES = "there is no times=; pass a table with a column of times, or interactions(users, items, times=...)"
#: Arguments of other libraries, such as implicit, and what to pass here.
OTHER_NAMES = {
    "user_items": f"there is no user_items=; {_KEPT}",
    "recalculate_user": "there is no recalculate_user=; use recommend_new, or Recommender.partial_fit to keep the result",
    "userid": "there is no userid=; the first argument is one user or several",
    "itemid": "there is no itemid=; the first argument is one item or several",
    "N": "there is no N=; pass k=, the number of results",
    "n": "there is no n=; pass k=, the number of results",
    "K": "there is no K=; append the cut-off to the measure's name, such as 'P@10'",
    "filter_already_liked_items": "there is no filter_already_liked_items=; pass exclude_known=",
    "filter_items": "there is no filter_items=; pass exclude=, items that are left out",
    "filter_viewed": "there is no filter_viewed=; pass exclude_known=",
    "dataset": f"there is no dataset=; {_KEPT}",
    "times": _TIMES,
    "timestamps": _TIMES,
    "sample_weight": "there is no sample_weight=, as all interactions count alike; leave out those that should not count",
    "filter_users": "there is no filter_users=; pass exclude=, users that are left out",
}
refusing = explaining(OTHER_NAMES)
_LISTED = 2**22  # scores that are sorted at once for rankings under rules


class CatalogueRecommender(BaseEstimator):
    """The base of the recommenders: a subclass fits, and gives a `CatalogueModel` of its users, and one of new users.

    Attributes:
        known_: the interactions of `fit`, which are not recommended again.

    >>> from rankstruct.recommenders import SessionKNN, evaluate_catalogue, hold_out, interactions
    >>> data = interactions(["ann", "ann", "bob", "bob"], ["x", "y", "x", "z"], times=range(4))
    >>> train, test = hold_out(data, 1, latest=True)
    >>> model = SessionKNN(decay=1.0, neighbours=1).fit(train)
    >>> evaluate_catalogue(model.catalogue_model(), test, "R@3", exclude=train)
    {'R@3': tensor([1., 1.], dtype=torch.float64)}
    """

    measure: str | Measure
    known_: Ratings
    _index: Index

    def _divide(
        self, index: Index, validation: Any, share: float, *, seed: int = 0, what: str = "setting"
    ) -> tuple[Ratings, Ratings | None, np.ndarray | None]:
        """The interactions to learn from, those of validation, if there is any, and its further ones, see `Index.held`.

        Validation selects `what`. Without any, a share of each user's interactions is, or so many, see `hold_out`; the latest
        if they have an order.
        """
        train = index.known
        if validation is not None:
            held, missed = index.held(validation, "validation")
            held = without(held, train)
            if not held.num_ratings and not missed.any():
                otherwise = ", or validation_share=0 to train without" if "validation_share" in vars(self) else ""
                raise DataError(f"validation has no interactions that are not in X too; pass others{otherwise}")
            if not _can_judge(held, train, index, what):
                raise DataError(f"validation: for each user {_SAME}; pass others, or None to hold out some of X")
            return train, held, missed
        if not share:
            return train, None, None
        known, held = hold_out(train, share, latest=index.is_ordered, seed=seed)
        if not held.num_ratings:  # too few interactions for a share of them
            known, held = hold_out(train, 1, latest=index.is_ordered, seed=seed)
        if held.num_ratings and not _can_judge(held, known, index, what):
            warnings.warn(f"for each user with held-out interactions {_SAME}; no {what} is selected", stacklevel=4)
            return train, None, None
        return known, held if held.num_ratings else None, None

    def catalogue_model(self) -> Any:
        """The `CatalogueModel` of the users of `fit`, such as for `evaluate_catalogue`, by their index in `known_`."""
        raise NotImplementedError

    def _model_of_new(self, known: Ratings) -> Any:
        """The `CatalogueModel` of new users, from what they know of the items of `fit`."""
        raise NotImplementedError

    def _check_whole(self, what: str) -> None:
        """Raise ValueError if this process has only some rows of the tables."""

    def vectors_to_index(self) -> tuple[np.ndarray, np.ndarray]:
        """The indices `[n]` of the items with interactions, and their vectors `[n, d]`; raises ValueError if there are none."""
        raise ValueError(
            f"{type(self).__name__} has no vectors of items to index; omit index, which computes all scores"
        )

    def _searched(
        self, index: Any, users: Tensor, k: int, known: Ratings | None, ranked: np.ndarray | None
    ) -> tuple[Tensor, Tensor]:
        """As `recommendation.recommend`, from an index."""
        self.vectors_to_index()
        raise NotImplementedError

    @refusing
    def recommend(
        self,
        users: Any,
        k: int = 10,
        *,
        exclude_known: bool = True,
        items: Any = None,
        exclude: Any = None,
        unknown: Literal["error", "popular"] = "error",
        index: Any = None,
        constraints: RulesLike | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k items with the highest scores for users of `fit`, best first.

        Args:
            users: `[users]` or one user: row indices if `fit` got a matrix, otherwise names.
            k: number of items; all with interactions if there are fewer.
            exclude_known: whether to leave out what the user knows.
            items, exclude: the only items to rank, in the same form, None for all; and items to leave out for all users.
            unknown: whether users that are not in `fit` are an `"error"`, or get the most `"popular"` items, whose scores are
                their numbers of users; then several users of whom none is known are an error.
            index: an index of the items by `item_index`, or another with faiss's `search`, `d` and `ntotal`, which finds the
                items instead of computing all scores; an approximate one may miss some. It is searched for as many more items
                as are left out.
            constraints: rules that the items of each user keep, `Constraints` or texts, see `rank_under`; they may leave fewer
                than k items.
            columns: for each column of the rules the groups: a mapping from items to groups, in which items may be missing, or
                an array `[items]` if `fit` got a matrix; or a pandas data frame, indexed by item.

        Returns:
            Items and scores, `[users, k]`, or `[k]` for one user: column indices, padded with -1, if `fit` got a matrix,
            otherwise names (integers if those of `fit` were), padded with None; the scores of padding are -inf.

        Raises:
            ValueError: a user is unknown; see `recommend_new`. None of `items` or `exclude` is in `fit`; if only some are not,
                this is a warning. An index of another model.
        """
        check_is_fitted(self)
        if sp.issparse(k):
            raise TypeError(f"k must be the number of items, got a matrix; {_KEPT}")
        check_choice("unknown", unknown, ("error", "popular"))
        ranked = self._index.ranked(items, exclude)
        one, names, rows = self._index.rows("users", users)
        if (rows < 0).any() and unknown == "error":
            raise ValueError(
                f"users must be those of fit, got {shortened(names[int(rows.argmin())])}; for users with other interactions use "
                "recommend_new, or pass unknown='popular'"
            )
        if len(rows) > 1:
            advice = "they get the most popular items"
            check_matched(rows >= 0, names, what="users", source="the users of fit", advice=advice)
        known, at = self.known_ if exclude_known else None, torch.from_numpy(np.maximum(rows, 0))
        rank = self._unruled
        if constraints is not None or columns is not None:
            rank = partial(self._under, Constraints.of(constraints), {} if columns is None else columns, names)
        found, scores = rank(at, rows, k, known, ranked, index)
        return self._index.answer("items", found, scores, one)

    def _unruled(
        self, users: Tensor, rows: np.ndarray, k: int, known: Ratings | None, ranked: np.ndarray | None, index: Any
    ) -> tuple[Tensor, Tensor]:
        """As `recommendation.recommend`, also from an index: users with negative `rows` get popular items."""
        if index is None:
            found, scores = recommend(self.catalogue_model(), users, k, exclude=known, items=ranked)
        else:
            found, scores = self._searched(index, users, k, known, ranked)
        if (rows < 0).any():
            popular, counts = recommend(popularity(self.known_), 0, k, items=ranked)
            found[rows < 0], scores[rows < 0] = popular, counts.to(scores)
        return found, scores

    def _under(
        self,
        constraints: Constraints,
        columns: Mapping[str, Any],
        names: Any,
        users: Tensor,
        rows: np.ndarray,
        k: int,
        known: Ratings | None,
        ranked: np.ndarray | None,
        index: Any,
    ) -> tuple[Tensor, Tensor]:
        """As `_unruled`, under rules; errors have the names of users."""
        check_integers(1, k=k)
        if index is not None:
            raise ValueError("constraints need the scores of all items, which an index does not compute; omit index")
        self._check_whole("constraints require the factors of all items")
        columns = checked_columns(constraints.columns, columns)
        number = len(self._index.seen["items"])
        groups = {name: self._index.groups_of_items(name, columns[name]) for name in constraints.columns}
        for said in unknown_groups(constraints, groups, quotas=True):
            raise ValueError(said.replace("no document", "no item", 1))
        k = min(k, number if ranked is None else len(ranked))
        found, scores = torch.full((len(users), k), -1), torch.full((len(users), k), -torch.inf)
        popular = popularity(self.known_)
        for block in torch.arange(len(users)).split(max(_LISTED // max(number, 1), 1)):
            items, values = recommend(self.catalogue_model(), users[block], number, exclude=known, items=ranked)
            items, values = items.cpu(), values.cpu()
            for at in np.flatnonzero(rows[block] < 0):
                items[at], counts = recommend(popular, 0, number, items=ranked)
                values[at] = counts.to(values)
            where, places = items >= 0, items.numpy()
            here = {name: each.at(places) for name, each in groups.items()}
            try:
                ranks = rank_under(values, constraints, here, k=k, where=where)
            except ValueError as error:
                raise ValueError(naming_lists(str(error), "user", names[int(block[0]) :])) from None
            user, item = (ranks > 0).nonzero(as_tuple=True)
            found[block[user], ranks[user, item] - 1] = items[user, item]
            scores[block[user], ranks[user, item] - 1] = values[user, item].float()
        return found, scores

    @refusing
    def recommend_new(
        self, X: Any, k: int = 10, *, items: Any = None, exclude: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `recommend`, for users who were not in `fit`, from what they know of its items; factors are those of `fold_in`.

        Args:
            X: interactions, in the form that `fit` got, of other users; or a list of the items of one user, or a list of such
                lists. Items that are not in `fit` are left out, with a warning; an error if none is.
            k, items, exclude: as in `recommend`.

        Returns:
            Items and scores, `[users, k]`, in the order of the users in X: rows, lists, or sorted names; `[k]` for the items of
            one user.
        """
        check_is_fitted(self)
        self._check_whole("recommend_new requires the factors of all items")
        ranked = self._index.ranked(items, exclude)
        one, known = self._index.of_new_users(X)
        model, users = self._model_of_new(known), torch.arange(known.num_users)
        return self._index.answer("items", *recommend(model, users, k, exclude=known, items=ranked), one)

    @refusing
    def evaluate(
        self,
        X: Any,
        measures: str | Measure | Iterable[str | Measure] = ("nDCG@10", "R@10"),
        *,
        unknown_items: Literal["miss", "drop"] = "miss",
    ) -> dict[str, float]:
        """Means over users of measures over the full catalogue, without what users know from `fit`; see `evaluate_catalogue`.

        Args:
            X: interactions, in the form that `fit` got. Those that `fit` got too, which are not recommended, are left out, with a
                warning that has their number; an error if all are. So are users who are not in `fit`; an error if none is.
            measures: measures with a cut-off.
            unknown_items: whether an item without interactions in `fit`, which cannot be recommended, counts as a `"miss"`, or is
                left out (`"drop"`). In both cases, a warning has their share; an error if all are.
        """
        check_is_fitted(self)
        check_choice("unknown_items", unknown_items, ("miss", "drop"))
        test, missed = self._index.held(X, "X", unknown_items)
        if not test.num_ratings and not missed.any():
            raise DataError("expected interactions to evaluate on, got none")
        number, test = test.num_ratings, without(test, self.known_)
        if not test.num_ratings and not missed.any():
            raise DataError(
                f"all {number} interactions of X are in fit too, which are not recommended; pass others, such as those that "
                "hold_out leaves out"
            )
        if again := number - test.num_ratings:
            said = f"{again} of the {number} interactions of X are in fit too, which are not recommended: they are left out"
            warnings.warn(said, stacklevel=3)
        model = self.catalogue_model()
        options: dict[str, Any] = {"exclude": self.known_, "items": self._index.ranked(None, None), "missed": missed}
        with of_any_size(test.num_items):
            found = evaluate_catalogue(model, test, measures, **options)
        return {name: float(values.mean()) for name, values in found.items()}

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `measure`, as `evaluate` gives it; `y` are items if X are users."""
        (value,) = self.evaluate(X if y is None else interactions(X, y), [self.measure]).values()
        return value


@contextmanager
def of_any_size(num_items: int) -> Iterator[None]:
    """No warning that lists have one document if the catalogue has one item."""
    with warnings.catch_warnings():
        if num_items == 1:
            warnings.filterwarnings("ignore", "scores of shape .* are lists of one document")
        yield


def _can_judge(held: Ratings, known: Ratings, index: Index, what: str) -> bool:
    """Whether some ranking of the items is better than another for any validation user; warns if for half of them none is."""
    users = np.unique(held.user)
    to_rank = index.seen["items"].sum() - np.diff(known.offsets)[users]
    relevant = np.diff(held.offsets)[users]
    same = int(((relevant == 0) | (relevant == to_rank)).sum())
    if len(users) > same >= len(users) / 2:
        warnings.warn(
            f"for {same} of {len(users)} validation users {_SAME}; the others select the {what}", stacklevel=5
        )
    return same < len(users)
