"""Perceptrons for ordinal grades: PRank for each user separately, and JRank over pairs of user and item.

The grade of an item with score f is the number of thresholds `b[0], ..., b[grades - 2]` that are not above f. Ratings are
processed one at a time. If the predicted grade is not y, each threshold at or on the wrong side of f moves by 1 to the right side
(below f for the first y of them, above for the others), and f moves by the sum of these in the opposite direction. Thresholds
stay in order.

In dual form `f(user, item) = sum over ratings of a K(user', user) L(item', item)`: PRank is K = 1 for the same user and 0
otherwise, with separate thresholds for each user.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from sklearn.metrics.pairwise import cosine_similarity, pairwise_kernels
from torch import Tensor

from papers.gaussian import Kernel, kernel_mean
from rankstruct.checks import check_integers
from rankstruct.models.scorers import Scorer
from rankstruct.recommenders.ratings import Ratings

__all__ = ["OrdinalScorer", "joint_kernels", "jrank", "prank"]


class OrdinalScorer(Scorer):
    """A score for every user and item, and thresholds that divide them into grades; built by `prank` and `jrank`.

    Args:
        num_users: number of users.
        num_items: number of items.
        num_grades: number of grades.

    Attributes:
        scores: `[users, items]`.
        thresholds: `[users, num_grades - 1]`, never decreasing.
        history: the sum of absolute errors of the predicted grades in each pass. It is not saved.

    >>> OrdinalScorer(3, 5, 2)(torch.tensor([[0.0, 4.0], [0.0, 1.0]]))
    tensor([0., 0.])
    """

    scores: Tensor
    thresholds: Tensor

    def __init__(self, num_users: int, num_items: int, num_grades: int) -> None:
        super().__init__()
        check_integers(1, num_users=num_users, num_items=num_items)
        check_integers(2, num_grades=num_grades)
        self.num_users, self.num_items, self.num_grades = num_users, num_items, num_grades
        self.history: tuple[int, ...] = ()
        self.register_buffer("scores", torch.zeros(num_users, num_items))
        self.register_buffer("thresholds", torch.zeros(num_users, num_grades - 1))

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
        """Scores `[..., list_size]` of features `[..., list_size, 2]`, user and item."""
        user, item = features.long().unbind(-1)
        return self.scores[user, item]

    def item_scores(self, users: Tensor) -> Tensor:
        """Scores of all items, `[..., items]`, for the users with numbers `[...]`."""
        return self.scores[users]


def prank(
    ratings: Ratings,
    *,
    features: np.ndarray | None = None,
    kernel: Kernel = "linear",
    epochs: int = 1,
    averaged: bool = False,
    seed: int | None = None,
) -> OrdinalScorer:
    """PRank, a perceptron with separate weights and thresholds for each user.

    Args:
        ratings: the known ratings.
        features: `[items, d]`, features of the items; None for their ratings by all users, minus each user's mean, at length 1.
        kernel: kernel of the features: `"linear"`, the published method, `"rbf"`, or a function of two rows.
        epochs: passes over the ratings.
        averaged: whether to average scores and thresholds over all steps, instead of using the last ones.
        seed: seed of the order of the ratings in each pass; None for the given order.

    Raises:
        ValueError: epochs below 1, or features of another number of items.

    Source: Crammer and Singer, "Pranking with Ranking", NIPS 2001.

    >>> ratings = Ratings.from_arrays(["ann", "ann"], ["x", "y"], [5, 1], scale="stars")
    >>> prank(ratings, features=np.array([[1.0], [-1.0]])).item_scores(torch.tensor(0))
    tensor([ 4., -4.])
    """
    if features is None:
        return _perceptron(ratings, None, _cosines(ratings)[1], epochs, averaged, seed)
    _check_rows("features", len(features), ratings.num_items)
    matrix = pairwise_kernels(np.asarray(features, np.float64), metric=kernel)
    return _perceptron(ratings, None, matrix, epochs, averaged, seed)


def jrank(
    ratings: Ratings,
    *,
    user_kernel: np.ndarray | None = None,
    item_kernel: np.ndarray | None = None,
    epochs: int = 1,
    averaged: bool = False,
    seed: int | None = None,
) -> OrdinalScorer:
    """JRank, a kernel perceptron over pairs of user and item with shared thresholds.

    A step takes O(users + items), and O(users^2 + items^2 + users items) memory in all.

    Args:
        ratings: the known ratings.
        user_kernel: `[users, users]`; None for that of `joint_kernels`.
        item_kernel: `[items, items]`; the same. The kernel of a pair is the product.
        epochs, averaged: as for `prank`.
        seed: as for `prank`; without a seed, users are processed one after another.

    Raises:
        ValueError: epochs below 1, or a kernel of another size.

    Source: Basilico and Hofmann, "Unifying Collaborative and Content-Based Filtering", ICML 2004.

    >>> from rankstruct.recommenders import synthetic_ratings
    >>> scorer = jrank(synthetic_ratings(users=30, items=20, rated=10), epochs=5, seed=0)
    >>> scorer.history[0] > scorer.history[-1]
    True
    """
    if user_kernel is None or item_kernel is None:
        both = joint_kernels(ratings)
        user_kernel = both[0] if user_kernel is None else user_kernel
        item_kernel = both[1] if item_kernel is None else item_kernel
    _check_rows("user_kernel", len(user_kernel), ratings.num_users)
    _check_rows("item_kernel", len(item_kernel), ratings.num_items)
    return _perceptron(ratings, user_kernel, item_kernel, epochs, averaged, seed)


def joint_kernels(
    ratings: Ratings,
    *,
    user_features: np.ndarray | None = None,
    item_features: np.ndarray | None = None,
    kernel: Kernel = "linear",
) -> tuple[np.ndarray, np.ndarray]:
    """Kernels of users and of items for `jrank`.

    Each is the mean of a constant, the identity, the cosine of ratings minus the user's mean, and the kernel of features.

    Args:
        ratings: the known ratings.
        user_features: `[users, d]`.
        item_features: `[items, d]`.
        kernel: kernel of the features, scaled to mean variance 1.

    Raises:
        ValueError: features of another number of users or items.

    >>> ratings = Ratings.from_arrays(["ann", "bob"], ["x", "y"], [5, 3], scale="stars")
    >>> joint_kernels(ratings)[0].tolist()
    [[0.6666666666666666, 0.3333333333333333], [0.3333333333333333, 0.6666666666666666]]
    """
    users, items = _cosines(ratings)
    user_kernel = kernel_mean("users", ratings.num_users, users, features=user_features, kernel=kernel)
    return user_kernel, kernel_mean("items", ratings.num_items, items, features=item_features, kernel=kernel)


def _cosines(ratings: Ratings) -> tuple[np.ndarray, np.ndarray]:
    """Cosines between users, and between items, of ratings minus the user's mean; missing ratings are 0."""
    counts = np.diff(ratings.offsets)
    sums = np.bincount(ratings.user, ratings.rating, minlength=ratings.num_users)
    centred = ratings.rating - (sums / np.maximum(counts, 1))[ratings.user]
    matrix = sparse.csr_matrix((centred, ratings.item, ratings.offsets), shape=(ratings.num_users, ratings.num_items))
    return cosine_similarity(matrix), cosine_similarity(matrix.T)


def _check_rows(name: str, got: int, wanted: int) -> None:
    if got != wanted:
        raise ValueError(f"{name} must have {wanted} rows, got {got}")


def _perceptron(
    ratings: Ratings,
    user_kernel: np.ndarray | None,
    item_kernel: np.ndarray,
    epochs: int,
    averaged: bool,
    seed: int | None,
) -> OrdinalScorer:
    """The perceptron in dual form; without a kernel of users, each user is trained separately, with its own thresholds.

    `half` is the item kernel times the coefficients of the ratings, `[items, users]`: a step changes one column, and a score is
    one row times the user's row of its kernel. `early` is the sum of the steps times their numbers: the mean over all steps is
    the sum of the steps minus `early` divided by their number.
    """
    check_integers(1, epochs=epochs)
    grades, own = ratings.num_grades, user_kernel is None
    user, item, grade = ratings.user.tolist(), ratings.item.tolist(), ratings.grades().astype(int).tolist()
    above = np.where(np.arange(grades)[:, None] > np.arange(grades - 1), 1.0, -1.0)
    half, cuts = np.zeros((ratings.num_items, ratings.num_users)), np.zeros((ratings.num_users, grades - 1))
    early, early_cuts = np.zeros_like(half), np.zeros_like(cuts)
    rng, count, history = np.random.default_rng(seed), 0, []
    for _ in range(epochs):
        off = 0
        for at in range(len(user)) if seed is None else rng.permutation(len(user)).tolist():
            u, i, y = user[at], item[at], grade[at]
            score = half[i, u] if user_kernel is None else half[i] @ user_kernel[u]
            row = u if own else 0
            predicted = int((cuts[row] <= score).sum())
            if predicted != y:
                wrong = above[y] * ((score - cuts[row]) * above[y] <= 0)
                cuts[row] -= wrong
                early_cuts[row] -= count * wrong
                change = wrong.sum() * item_kernel[i]
                half[:, u] += change
                early[:, u] += count * change
                off += abs(predicted - y)
            count += 1
        history.append(off)
    if averaged and count:
        half, cuts = half - early / count, cuts - early_cuts / count
    scorer = OrdinalScorer(ratings.num_users, ratings.num_items, grades)
    scores = half.T if user_kernel is None else user_kernel @ half.T
    scorer.scores.copy_(torch.from_numpy(scores))
    scorer.thresholds.copy_(torch.from_numpy(cuts if own else cuts[:1]))
    scorer.history = tuple(history)
    return scorer
