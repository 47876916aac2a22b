"""Top-k recommendation, and baselines: popularity and mean ratings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rankstruct.data.errors import check_least
from rankstruct.recommenders.factorization import ItemScorer
from rankstruct.recommenders.ratings import Ratings

__all__ = ["Recommender", "item_means", "popularity", "recommend"]


class Recommender(Protocol):
    """The interface required by `recommend`: `MatrixFactorization`, the baselines, or a custom class.

    >>> class Constant:  # a custom model of two items
    ...     def item_scores(self, users):
    ...         return torch.tensor([1.0, 2.0]).expand(len(users), 2)
    >>> recommend(Constant(), 0, k=2)
    (tensor([1, 0]), tensor([2., 1.]))
    """

    def item_scores(self, users: Tensor) -> Tensor:
        """Scores of all items, `[users, items]`, for users given by index `[users]`."""


def recommend(
    model: Recommender, users: int | Sequence[int] | Tensor, k: int = 10, *, exclude: Ratings | None = None
) -> tuple[Tensor, Tensor]:
    """The k items with the highest scores for one or more users, given by index `[users]`, best first.

    Items that a user rated in `exclude`, such as the training ratings, are not recommended to that user.

    Returns:
        `(items, scores)`, both `[users, k]`, or `[k]` for one user; padded with -1 and -inf if fewer items are left.

    Raises:
        ValueError: k is below 1, or a user is not in `exclude`.

    >>> ratings = Ratings.from_arrays(["ann", "ann", "bob"], ["x", "y", "y"], [5, 4, 1], scale="stars")
    >>> recommend(popularity(ratings), [0, 1], k=1, exclude=ratings)[0]
    tensor([[-1],
            [ 0]])
    """
    check_least(1, k=k)
    numbers = torch.as_tensor(users, dtype=torch.int64)
    rows = numbers.reshape(-1)
    with torch.no_grad():
        scores = model.item_scores(rows).clone()
    if exclude is not None:
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < exclude.num_users:
            raise ValueError(f"users must be from 0 to {exclude.num_users - 1}, those of exclude; got {rows.tolist()}")
        offsets = torch.from_numpy(exclude.offsets)
        sizes = offsets[rows + 1] - offsets[rows]
        each = torch.arange(len(rows)).repeat_interleave(sizes)
        within = torch.arange(len(each)) - (sizes.cumsum(0) - sizes)[each]
        rated = torch.from_numpy(exclude.item)[offsets[rows][each] + within]
        scores[each.to(scores.device), rated.to(scores.device)] = -torch.inf
    best = scores.topk(min(k, scores.shape[1]), dim=1)
    values = torch.nn.functional.pad(best.values, (0, k - best.values.shape[1]), value=-torch.inf)
    items = torch.nn.functional.pad(best.indices, (0, k - best.values.shape[1]), value=-1)
    items = torch.where(values == -torch.inf, -1, items)
    return items.reshape(*numbers.shape, k), values.reshape(*numbers.shape, k)


def popularity(ratings: Ratings) -> ItemScorer:
    """Score items by their number of ratings.

    >>> popularity(Ratings.from_arrays(["ann", "bob"], ["x", "x"], [1, 1], scale="stars")).scores
    tensor([2.])
    """
    scorer = ItemScorer(ratings.num_items)
    scorer.scores += torch.from_numpy(np.bincount(ratings.item, minlength=ratings.num_items))
    return scorer


def item_means(ratings: Ratings, *, prior: float = 5.0) -> ItemScorer:
    """Score items by their mean rating, shrunk towards the global mean by `prior` >= 0 pseudo-ratings.

    >>> item_means(Ratings.from_arrays(["ann", "bob"], ["x", "y"], [5, 3], scale="stars"), prior=1.0).scores
    tensor([4.5000, 3.5000])
    """
    if prior < 0:
        raise ValueError(f"prior must be >= 0, got {prior}")
    counts = np.bincount(ratings.item, minlength=ratings.num_items)
    sums = np.bincount(ratings.item, ratings.rating, minlength=ratings.num_items)
    mean = float(ratings.rating.mean()) if ratings.num_ratings else 0.0
    known = counts + prior > 0
    scores = np.full(ratings.num_items, mean)
    scores[known] = (sums + prior * mean)[known] / (counts + prior)[known]
    scorer = ItemScorer(ratings.num_items)
    scorer.scores += torch.from_numpy(scores).float()
    return scorer
