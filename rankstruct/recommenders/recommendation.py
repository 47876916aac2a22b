"""Top-k recommendation and its evaluation over the full catalogue, and baselines: popularity, mean ratings and EASE.

Scores are computed for blocks of users, so that no matrix of all users and items is ever in memory. Items with equal scores come
in arbitrary order. Interactions are those of `interactions`, which also converts a SciPy matrix or a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor, nn

from rankstruct.checks import check_integers, check_numbers
from rankstruct.data.errors import DataError
from rankstruct.lists import Lists
from rankstruct.measures import Measure
from rankstruct.measures.base import ByMeasure, measure_lists, parse_measures
from rankstruct.messages import shortened
from rankstruct.models.scorers import evaluating
from rankstruct.processes import stacked
from rankstruct.recommenders.factorization import ItemScorer
from rankstruct.recommenders.ratings import Ratings, as_ratings, interactions
from rankstruct.recommenders.tables import Table

__all__ = [
    "CatalogueModel",
    "ItemSimilarity",
    "UserSimilarity",
    "coverage",
    "ease",
    "evaluate_catalogue",
    "item_means",
    "novelty",
    "popularity",
    "recommend",
    "top_lists",
]

_BLOCK = 2**24  # scores at once, 64 MB


class CatalogueModel(Protocol):
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
    model: CatalogueModel,
    users: int | Sequence[int] | Tensor,
    k: int = 10,
    *,
    exclude: Any = None,
    items: Sequence[int] | np.ndarray | None = None,
) -> tuple[Tensor, Tensor]:
    """The k items with the highest scores for one or more users, given by index `[users]`, best first.

    Items that a user rated in `exclude`, such as the training ratings, are not recommended to that user. A module in training
    mode is evaluated without dropout. `items` are the indices of the only items to rank; None for all.

    Returns:
        `(items, scores)`, both `[users, k]`, or `[k]` for one user, k at most the number of items to rank; padded with -1 and
        -inf if fewer are left for a user.

    Raises:
        TypeError: not a model.
        ValueError: k is not an integer from 1, or a user is no index of the model and `exclude`; `exclude` has other items than
            the model; a score is NaN.

    >>> ratings = Ratings.from_arrays(["ann", "ann", "bob"], ["x", "y", "y"], [5, 4, 1], scale="stars")
    >>> recommend(popularity(ratings), [0, 1], k=1, exclude=ratings)[0]
    tensor([[-1],
            [ 0]])
    """
    exclude = None if exclude is None else as_ratings(exclude)
    numbers = _as_indices(users)
    found, values = _best(model, numbers.reshape(-1), k, exclude=exclude, ranked=items)
    return found.reshape(*numbers.shape, found.shape[1]), values.reshape(*numbers.shape, found.shape[1])


def _best(
    model: CatalogueModel,
    users: Tensor,
    k: int,
    *,
    exclude: Ratings | None,
    test: Ratings | None = None,
    ranked: Any = None,
) -> tuple[Tensor, Tensor]:
    """`recommend` for `[users]`; `test` must have the users and items of the model too."""
    if not hasattr(model, "item_scores"):
        raise TypeError(
            "model must have item_scores(users), as the catalogue_model() of a fitted recommender has, got "
            f"{type(model).__name__}"
        )
    check_integers(1, k=k)
    parts = {name: part for name, part in (("test", test), ("exclude", exclude)) if part is not None}
    sizes = {"the model": getattr(model, "num_users", None)} | {name: part.num_users for name, part in parts.items()}
    for who, its in sizes.items():
        if its is not None and len(users) and not 0 <= int(users.min()) <= int(users.max()) < its:
            raise ValueError(f"users must be from 0 to {its - 1}, those of {who}; got {shortened(str(users.tolist()))}")
    if len(users) and int(users.min()) < 0:
        raise ValueError(f"users must be from 0, got {shortened(str(users.tolist()))}")
    found, table = [], _split_table(model)
    with torch.no_grad(), evaluating(model):
        for block, scores in _score_blocks(model, users):
            number, own = (scores.shape[1], slice(0, scores.shape[1])) if table is None else (table.total, table.own)
            for name, part in parts.items():
                if number != part.num_items:
                    raise ValueError(f"{name} must have the {number} items of the model, got {part.num_items}")
            if ranked is not None:
                chosen = np.unique(_recommended(np.asarray(ranked, np.int64 if not len(ranked) else None), number))
                number = len(chosen)
                others = np.setdiff1d(np.arange(own.start, own.stop), chosen) - own.start
                scores[:, torch.from_numpy(others).to(scores.device)] = -torch.inf
            if exclude is not None:
                rated, counts = exclude.items_of(block.numpy())
                rows = np.repeat(np.arange(len(block)), counts)
                here = (rated >= own.start) & (rated < own.stop)
                left_out = (torch.from_numpy(each).to(scores.device) for each in (rows[here], rated[here] - own.start))
                scores[tuple(left_out)] = -torch.inf
            values, items = scores.topk(min(k, number, scores.shape[1]), dim=1)
            found.append((values, items) if table is None else _merged(values, items + own.start, min(k, number)))
    values, items = (torch.cat(each) for each in zip(*found, strict=True))
    if values.isnan().any():  # NaN comes first
        raise ValueError("scores of the model must be numbers, got NaN")
    return torch.where(values == -torch.inf, -1, items), values


def _split_table(model: Any) -> Table | None:
    """The table of items of a model, if its rows are split over processes."""
    table = getattr(model, "item_factors", None)
    return table if isinstance(table, Table) and table.is_split else None


def _merged(values: Tensor, items: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest of the scores of all processes, whose items ascend by process; the same in all."""
    more = k - values.shape[1]
    every_value = torch.cat([*stacked(nn.functional.pad(values, (0, more), value=-torch.inf))], 1)
    every_item = torch.cat([*stacked(nn.functional.pad(items, (0, more)))], 1)
    best, order = every_value.sort(dim=1, descending=True, stable=True)
    return best[:, :k].contiguous(), every_item.gather(1, order[:, :k])


def _as_indices(users: Any) -> Tensor:
    """Users as int64."""
    try:
        numbers = torch.as_tensor(users)
    except (TypeError, ValueError, RuntimeError):
        numbers = torch.ones(1)
    if numbers.numel() and (numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool):
        raise ValueError(
            f"users must be indices, positions in the user_names of ratings, got {shortened(str(users))}; the recommend() of a "
            "Recommender takes names"
        )
    return numbers.long()


def _score_blocks(model: CatalogueModel, users: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks of users and their scores of all items, which may be changed; of factorisations, vectors are computed once."""
    vectors = getattr(model, "vectors", None) if getattr(model, "has_vectors", True) else None
    if vectors is None:
        first = torch.as_tensor(model.item_scores(users[:1]))
    else:
        of_users, of_items = vectors(users)
        first = of_items[:, :1].T
    table = _split_table(model)
    size = max(_BLOCK // max(first.shape[1] if table is None else table.most, 1), 1)
    for start in range(0, max(len(users), 1), size):
        block = users[start : start + size].cpu()
        if vectors is None:
            scores = torch.as_tensor(model.item_scores(users[start : start + size]))
            yield block, scores.clone() if scores.is_floating_point() else scores.double()
        else:
            yield block, of_users[start : start + size] @ of_items.T


def top_lists(
    model: CatalogueModel,
    users: Tensor,
    relevant: Ratings,
    k: int,
    *,
    exclude: Ratings | None = None,
    items: Any = None,
    missed: np.ndarray | None = None,
) -> tuple[Tensor, Lists]:
    """The lists that measures with cut-offs up to k judge, `(scores, lists)`, for users by index `[users]`.

    The first k documents are the recommended items, labelled 1 if they are in `relevant`, or labelled 0 in place of missing ones;
    the relevant items that were not recommended follow. A relevant item in `exclude` cannot be recommended, but counts. Other
    arguments are those of `evaluate_catalogue`.

    >>> from rankstruct.recommenders import interactions
    >>> train, test = interactions([0], [0], item_names=range(3)), interactions([0, 0], [0, 2], item_names=range(3))
    >>> top_lists(popularity(train), torch.tensor([0]), test, 1, exclude=train)[1].labels
    tensor([[0., 1., 1.]])
    """
    users = users.cpu()
    best = _best(model, users, k, exclude=exclude, test=relevant, ranked=items)[0].cpu()
    best = nn.functional.pad(best, (0, k - best.shape[1]), value=-1)
    keys = (users[:, None] * relevant.num_items + best).numpy()
    held = relevant.keys()
    at = np.searchsorted(held, keys).clip(max=max(len(held) - 1, 0))
    hit = torch.from_numpy(held[at] == keys if len(held) else np.zeros(keys.shape, bool)) & (best >= 0)
    missing = torch.from_numpy(_num_relevant(relevant, missed))[users] - hit.sum(1)
    rest = torch.arange(int(missing.max()) if len(users) else 0) < missing[:, None]
    scores = -torch.arange(k + rest.shape[1], dtype=torch.float32).repeat(len(users), 1)
    return scores, Lists(torch.cat([hit, rest], 1).float(), torch.cat([torch.ones_like(hit), rest], 1))


def _num_relevant(relevant: Ratings, missed: np.ndarray | None) -> np.ndarray:
    """`[users]`: the number of relevant items of each user."""
    counts = np.diff(relevant.offsets)
    return counts if missed is None else counts + missed


def evaluate_catalogue(
    model: CatalogueModel,
    test: Any,
    measures: str | Measure | Iterable[str | Measure] = ("nDCG@10", "R@10"),
    *,
    exclude: Any = None,
    items: Sequence[int] | np.ndarray | None = None,
    missed: np.ndarray | None = None,
) -> dict[str, Tensor]:
    """Evaluate the top of the full catalogue for each user with test interactions: `{name: [users] float64}`.

    `R@k` divides by the number of relevant items, `nDCG@k` by the DCG of min(k, number of relevant items) relevant items, and
    `AP@k` by the number of relevant items; `Success@k` is the hit rate, and `DCG@k`, over the constant sum of its discounts,
    the nDCG that always divides by k relevant items. Items with equal scores come in arbitrary order; `evaluate` takes the mean
    over their orders.

    Args:
        model: the model, see `recommend`.
        test: interactions with relevant items; a user with none is left out.
        measures: measures with a cut-off.
        exclude: items not to rank for a user, such as the training interactions, with the same user and item indices.
        items: the indices of the only items to rank; None for all.
        missed: `[users]`, the number of further relevant items of each user, which the model does not know; None for none.

    Raises:
        ValueError: no measure, or one without a cut-off; `test` and `exclude` differ in the number of users or items; or as
            `recommend`.
        DataError: `test` has ratings that are not interactions; see `implicit`.

    >>> from rankstruct.recommenders import interactions
    >>> train, test = interactions([0, 1, 1], [0, 0, 1]), interactions([0], [1], user_names=range(2), item_names=range(2))
    >>> evaluate_catalogue(popularity(train), test, ["nDCG@1", "R@1"], exclude=train)
    {'nDCG@1': tensor([1.], dtype=torch.float64), 'R@1': tensor([1.], dtype=torch.float64)}
    """
    parsed = parse_measures(measures)
    k = longest_cutoff(parsed)
    test, exclude = interactions(test), None if exclude is None else as_ratings(exclude)
    sizes = [(each.num_users, each.num_items) for each in (test, exclude) if each is not None]
    if sizes[0] != sizes[-1]:
        raise ValueError(
            f"test and exclude must have the same numbers of users and items, got {sizes[0]} and {sizes[1]}"
        )
    if exclude is not None and not _share_indices(test, exclude):
        raise DataError(
            "test and exclude must have the same users and items, got other names; read them together, or pass user_names and "
            "item_names of one to the other"
        )
    users = torch.from_numpy(np.flatnonzero(_num_relevant(test, missed)))
    parts = [
        measure_lists(parsed, *top_lists(model, block, test, k, exclude=exclude, items=items, missed=missed))
        for block in users.split(2**14)
    ]
    values = map(torch.cat, zip(*parts, strict=True))
    return ByMeasure({measure.name: each for measure, each in zip(parsed, values, strict=True)})


def _share_indices(one: Ratings, other: Ratings) -> bool:
    """Whether users and items have the same names, or one has only indices."""
    for mine, its in ((one.user_names, other.user_names), (one.item_names, other.item_names)):
        if mine is not its and (names := mine.tolist()) != its.tolist():
            indices = list(map(str, range(len(names))))
            if indices not in (names, its.tolist()):
                return False
    return True


def longest_cutoff(measures: Iterable[Measure]) -> int:
    """The greatest cut-off; raises ValueError if a measure has none."""
    cutoffs = [(measure.name, getattr(measure, "cutoff", None)) for measure in measures]
    if endless := [name for name, cutoff in cutoffs if cutoff is None]:
        raise ValueError(f"measures of a catalogue need a cut-off, such as nDCG@10 or R@20; {endless[0]} has none")
    if not cutoffs:
        raise ValueError("expected at least one measure, got none")
    return max(int(cutoff) for _, cutoff in cutoffs if cutoff is not None)


def coverage(items: Tensor | np.ndarray, num_items: int) -> float:
    """The fraction of the catalogue that is recommended to anyone; `items` `[users, k]` are those of `recommend`.

    >>> coverage(torch.tensor([[0, 1], [1, -1]]), 4)
    0.5
    """
    return len(np.unique(_recommended(items, num_items))) / num_items


def _recommended(items: Any, num_items: int) -> np.ndarray:
    """The indices of recommended items, without padding."""
    found = items.cpu().numpy() if isinstance(items, Tensor) else np.asarray(items)
    if found.dtype.kind not in "iu":
        raise ValueError(
            f"items must be indices, as recommend returns them, got {shortened(str(found.reshape(-1)[:1]))}"
        )
    if found.max(initial=-1) >= num_items:
        raise ValueError(f"items must be from 0 to {num_items - 1}, got {found.max()}")
    return found[found >= 0]


def novelty(items: Tensor | np.ndarray, known: Any) -> float:
    """The mean of -log2 of the fraction of users with the item in `known`, over the recommended items `[users, k]`.

    An item without users counts as one with a single user. NaN if nothing is recommended.

    Source: Zhou et al., "Solving the apparent diversity-accuracy dilemma of recommender systems", PNAS 2010.

    >>> from rankstruct.recommenders import interactions
    >>> novelty(torch.tensor([[0], [1]]), interactions([0, 1], [0, 0], item_names=range(2)))
    0.5
    """
    known = interactions(known)
    counts = np.bincount(known.item, minlength=known.num_items).clip(min=1)
    found = -np.log2(counts[_recommended(items, known.num_items)] / max(known.num_users, 1))
    return float(found.mean()) if len(found) else math.nan


def popularity(ratings: Any) -> ItemScorer:
    """Score items by their number of ratings or interactions.

    >>> popularity(Ratings.from_arrays(["ann", "bob"], ["x", "x"], [1, 1], scale="stars")).scores
    tensor([2.])
    """
    ratings = as_ratings(ratings)
    if ratings.scale == "binary":
        ratings = interactions(ratings)
    scorer = ItemScorer(ratings.num_items)
    scorer.scores += torch.from_numpy(np.bincount(ratings.item, minlength=ratings.num_items))
    return scorer


def item_means(ratings: Ratings, *, prior: float = 5.0) -> ItemScorer:
    """Score items by their mean rating, shrunk towards the global mean by `prior` >= 0 pseudo-ratings.

    >>> item_means(Ratings.from_arrays(["ann", "bob"], ["x", "y"], [5, 3], scale="stars"), prior=1.0).scores
    tensor([4.5000, 3.5000])
    """
    check_numbers(">= 0", prior=prior)
    counts = np.bincount(ratings.item, minlength=ratings.num_items)
    sums = np.bincount(ratings.item, ratings.rating, minlength=ratings.num_items)
    mean = float(ratings.rating.mean()) if ratings.num_ratings else 0.0
    known = counts + prior > 0
    scores = np.full(ratings.num_items, mean)
    scores[known] = (sums + prior * mean)[known] / (counts + prior)[known]
    scorer = ItemScorer(ratings.num_items)
    scorer.scores += torch.from_numpy(scores).float()
    return scorer


class ItemSimilarity(nn.Module):
    """Score the items of users by the sum of their similarities to what each user knows; see `ease`.

    Args:
        similarity: `[items, items]`, row i the similarities of the others to item i.
        known: the known interactions of the users.

    >>> from rankstruct.recommenders import interactions
    >>> model = ItemSimilarity(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), interactions([0], [1], item_names=range(2)))
    >>> model.item_scores(torch.tensor([0]))
    tensor([[1., 0.]])
    """

    similarity: Tensor

    def __init__(self, similarity: Tensor, known: Ratings) -> None:
        super().__init__()
        self.register_buffer("similarity", similarity)
        self._known = known.to_csr()

    def item_scores(self, users: Tensor) -> Tensor:
        """Scores of all items, `[users, items]`, for users given by index `[users]`."""
        rows = self._known[users.cpu().numpy()]
        return torch.from_numpy(rows @ self.similarity.cpu().numpy()).to(self.similarity.device)


class UserSimilarity(nn.Module):
    """Score the items of users by what similar users know, plus 1 for what they know themselves; see `ease`.

    Args:
        similarity: `[users, users]`, row u the similarities of the others to user u.
        item_weights: `[items]`, factors of the sums of similarities.
        known: the known interactions of the users.

    >>> from rankstruct.recommenders import interactions
    >>> known = interactions([0, 1], [0, 1], item_names=range(2))
    >>> model = UserSimilarity(torch.tensor([[0.0, 0.5], [0.5, 0.0]]), torch.ones(2), known)
    >>> model.item_scores(torch.tensor([0]))
    tensor([[1.0000, 0.5000]])
    """

    similarity: Tensor
    item_weights: Tensor

    def __init__(self, similarity: Tensor, item_weights: Tensor, known: Ratings) -> None:
        super().__init__()
        self.register_buffer("similarity", similarity)
        self.register_buffer("item_weights", item_weights)
        self._known = known.to_csr()

    def item_scores(self, users: Tensor) -> Tensor:
        """Scores of all items, `[users, items]`, for users given by index `[users]`."""
        rows = users.cpu().numpy()
        sums = self.similarity.cpu().numpy()[rows] @ self._known
        return torch.from_numpy(self._known[rows] + sums * self.item_weights.cpu().numpy()).to(self.similarity.device)


def ease(known: Any, *, regularization: float = 500.0) -> ItemSimilarity | UserSimilarity:
    """A linear item-to-item model in closed form, a strong baseline for catalogues of up to some 20,000 items or users.

    It solves min ||X - X B||^2 + regularization ||B||^2 over matrices B with diagonal 0, X the binary matrix of users and items:
    O(n^3) time and O(n^2) memory, n the smaller number of the two. With more items than users, B is not computed. With
    M = (X X^T + regularization I)^-1, the scores are X B = X - M X D, D the diagonal matrix with
    regularization / (1 - x_i^T M x_i) for each column x_i of X, by the matrix inversion lemma.

    Raises:
        ValueError: regularization is not above 0.
        DataError: more than 30,000 items, and users.

    Source: Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019.

    >>> from rankstruct.recommenders import interactions
    >>> known = interactions([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], item_names=range(3))
    >>> recommend(ease(known, regularization=1.0), 2, k=1, exclude=known)[0]
    tensor([1])
    """
    check_numbers("> 0", regularization=regularization)
    known = interactions(known)
    if not known.num_ratings:
        raise DataError("EASE needs interactions, got none")
    if min(known.num_items, known.num_users) > 30_000:
        raise DataError(
            "EASE needs a dense matrix of items x items or users x users, at most 30,000 of one of them, got "
            f"{known.num_items} items and {known.num_users} users"
        )
    matrix = known.to_csr().astype(np.float64)
    if known.num_items <= known.num_users:
        inverse = _regularised_inverse(matrix.T @ matrix, regularization)
        inverse /= -np.diag(inverse)
        np.fill_diagonal(inverse, 0.0)
        return ItemSimilarity(torch.from_numpy(inverse.astype(np.float32)), known)
    inverse, columns = _regularised_inverse(matrix @ matrix.T, regularization), matrix.T.tocsr()
    explained = np.zeros(known.num_items)  # x_i^T M x_i
    size = max(_BLOCK // known.num_users, 1)
    for start in range(0, known.num_items, size):
        block = columns[start : start + size]
        explained[start : start + size] = block.multiply(block @ inverse).sum(1)
    weights = -regularization / (1.0 - explained)
    return UserSimilarity(
        torch.from_numpy(inverse.astype(np.float32)), torch.from_numpy(weights.astype(np.float32)), known
    )


def _regularised_inverse(gram: Any, regularization: float) -> np.ndarray:
    """The inverse of a sparse symmetric matrix plus a multiple of the identity, in the memory of one dense matrix."""
    dense = gram.toarray(order="F")
    dense[np.diag_indices_from(dense)] += regularization
    factor, failed = lapack.dpotrf(dense, lower=True, overwrite_a=True)
    inverse, singular = lapack.dpotri(factor, lower=True, overwrite_c=True)
    if failed or singular:
        raise ValueError(
            f"regularization must be large enough for a positive definite matrix, got {regularization}; try a larger one"
        )
    for start in range(0, len(inverse), 1024):  # LAPACK leaves the upper triangle as it was
        rows, rest = slice(start, start + 1024), slice(start + 1024, None)
        inverse[rows, rest] = inverse[rest, rows].T
        inverse[rows, rows] = np.tril(inverse[rows, rows]) + np.tril(inverse[rows, rows], -1).T
    return inverse
