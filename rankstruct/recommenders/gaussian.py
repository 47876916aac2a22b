"""Gaussian processes over items: regression for each user by itself, and with a covariance that all users share.

A user's ratings are `f + noise`, and f, one value an item, is normal with mean m and covariance K. Given what a user rated, I,
the scores are the posterior means `m + K[:, I] (K[I, I] + noise)^-1 (y - m[I])`. GPR takes m constant and K from features of the
items; CGPR estimates both from the ratings of all users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from sklearn.metrics.pairwise import pairwise_kernels
from torch import Tensor

from rankstruct.data.errors import check_least
from rankstruct.models.scorers import Scorer
from rankstruct.recommenders.ratings import Ratings

__all__ = ["GaussianProcessScorer", "collaborative_gaussian_process", "gaussian_process"]

Kernel = Literal["linear", "rbf"] | Callable[[np.ndarray, np.ndarray], np.ndarray]


class GaussianProcessScorer(Scorer):
    """Scores of items by their posterior mean, given the ratings of each user; made by `gaussian_process` and its sibling.

    Args:
        num_users: number of users.
        num_items: number of items.
        num_ratings: number of ratings that are known of all users.
        noise: the variance of a rating around its user's value.

    Attributes:
        mean: `[items]`, of the prior.
        covariance: `[items, items]`, of the prior.
        history: what EM ascends, after each step; empty without EM. It is not saved.

    >>> ratings = Ratings.from_arrays(["ann", "ann", "bob"], ["x", "y", "x"], [5, 3, 1], scale="stars")
    >>> gaussian_process(ratings).item_scores(torch.tensor([0, 1])).shape
    torch.Size([2, 2])
    """

    mean: Tensor
    covariance: Tensor
    offsets: Tensor
    items: Tensor
    weights: Tensor

    def __init__(self, num_users: int, num_items: int, num_ratings: int, noise: float) -> None:
        super().__init__()
        check_least(1, num_users=num_users, num_items=num_items)
        check_least(0, num_ratings=num_ratings)
        self.num_users, self.num_items, self.num_ratings, self.noise = num_users, num_items, num_ratings, noise
        self.history: tuple[float, ...] = ()
        self.register_buffer("mean", torch.zeros(num_items, dtype=torch.float64))
        self.register_buffer("covariance", torch.zeros(num_items, num_items, dtype=torch.float64))
        self.register_buffer("offsets", torch.zeros(num_users + 1, dtype=torch.int64))
        self.register_buffer("items", torch.zeros(num_ratings, dtype=torch.int64))
        self.register_buffer("weights", torch.zeros(num_ratings, dtype=torch.float64))

    def forward(self, features: Tensor) -> Tensor:
        """Scores `[..., list_size]` of features `[..., list_size, 2]`, user and item."""
        user, item = features.long().unbind(-1)
        users, row = user.unique(return_inverse=True)
        return self.item_scores(users)[row, item]

    def item_scores(self, users: Tensor) -> Tensor:
        """Scores of all items, `[..., items]`, for the users with numbers `[...]`; the prior mean for one without ratings."""
        rows = users.reshape(-1)
        sizes = self.offsets[rows + 1] - self.offsets[rows]
        each = torch.arange(len(rows), device=rows.device).repeat_interleave(sizes)
        within = torch.arange(len(each), device=rows.device) - (sizes.cumsum(0) - sizes)[each]
        at = self.offsets[rows][each] + within
        weights = self.mean.new_zeros(len(rows), self.num_items)
        weights[each, self.items[at]] = self.weights[at]
        scores = self.mean + weights @ self.covariance
        return scores.float().reshape(*users.shape, self.num_items)

    def given(self, ratings: Ratings) -> GaussianProcessScorer:
        """The same prior with these ratings as all that is known of users, new ones too; raises ValueError for other items."""
        if ratings.num_items != self.num_items:
            raise ValueError(f"ratings must be of {self.num_items} items, got {ratings.num_items}")
        mean, covariance = self.mean.cpu().numpy(), self.covariance.cpu().numpy()
        return _scorer(ratings, mean, covariance, self.noise, self.history).to(self.mean.device)


def gaussian_process(
    ratings: Ratings, *, features: np.ndarray | None = None, kernel: Kernel = "linear", noise: float = 0.5
) -> GaussianProcessScorer:
    """Gaussian process regression for each user by itself (GPR).

    The prior mean is that of all ratings. The prior variance is that of all ratings too, in equal parts a constant (the user's
    own level), each item by itself, and the kernel of the features. Without features it knows nothing of how items relate: all
    that a user did not rate get one score, its level.

    Args:
        ratings: what is known.
        features: `[items, d]` of the items.
        kernel: `"linear"`, `"rbf"` of scikit-learn's default width, or a function of two rows; scaled to mean variance 1.
        noise: above 0, the variance of the noise as a share of the ratings' variance.

    Raises:
        ValueError: noise not above 0, or features of another number of items.

    Source: Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, chapter 2.

    >>> ratings = Ratings.from_arrays(["ann", "ann", "bob"], ["x", "y", "z"], [5, 1, 3], scale="stars")
    >>> scorer = gaussian_process(ratings, features=np.array([[1.0], [-1.0], [1.0]]))
    >>> scorer.item_scores(torch.tensor(0))
    tensor([4.3333, 1.6667, 3.8889])
    """
    mean, covariance, variance = _base(ratings, features, kernel, noise)
    return _scorer(ratings, mean, covariance, variance)


def collaborative_gaussian_process(
    ratings: Ratings,
    *,
    features: np.ndarray | None = None,
    kernel: Kernel = "linear",
    noise: float = 1.0,
    shrinkage: float = 10.0,
    steps: int = 50,
) -> GaussianProcessScorer:
    """Gaussian process regression with the mean and the covariance of items that all users share (CGPR), by exact EM.

    It starts from the prior of `gaussian_process`, and is drawn to it as by `shrinkage` further users with that mean and
    covariance (a normal-inverse-Wishart prior). The scorer's `history` is the log likelihood with that prior, up to a constant;
    it never falls. A step takes O(items^3) and the cube of each user's number of ratings, and O(items^2) memory.

    Args:
        ratings: what is known.
        features: `[items, d]` of the items, for the prior.
        kernel: as for `gaussian_process`.
        noise: likewise; it is kept.
        shrinkage: above 0, how many users the prior is worth.
        steps: of EM, at least 1; the mean takes tens of them where ratings are few.

    Raises:
        ValueError: noise or shrinkage not above 0, steps below 1, or features of another number of items.

    Source: Yu, Tresp, Schwaighofer, "Learning Gaussian Processes from Multiple Tasks", ICML 2005.

    >>> from rankstruct.recommenders import synthetic_ratings
    >>> scorer = collaborative_gaussian_process(synthetic_ratings(users=30, items=20, rated=10), steps=3)
    >>> scorer.history[0] < scorer.history[1] < scorer.history[2]
    True
    """
    check_least(1, steps=steps)
    if not shrinkage > 0:
        raise ValueError(f"shrinkage must be above 0, got {shrinkage}")
    base_mean, base, variance = _base(ratings, features, kernel, noise)
    mean, covariance = base_mean, base
    users = max(int((np.diff(ratings.offsets) > 0).sum()), 1)
    history = []
    _, first, second, _ = _posterior(ratings, mean, covariance, variance)
    for _ in range(steps):
        shift = covariance @ first / users
        # The users' second moments around the old mean, then around the new one.
        moments = users * covariance + covariance @ second @ covariance
        total = shrinkage + users
        new_mean = (shrinkage * base_mean + users * (mean + shift)) / total
        moved, off = new_mean - mean, new_mean - base_mean
        moments += users * (np.outer(moved, moved) - np.outer(moved, shift) - np.outer(shift, moved))
        moments += shrinkage * (base + np.outer(off, off))
        mean, covariance = new_mean, (moments + moments.T) / (2 * total)
        _, first, second, likelihood = _posterior(ratings, mean, covariance, variance)
        history.append(likelihood + shrinkage * _log_prior(mean - base_mean, covariance, base))
    return _scorer(ratings, mean, covariance, variance, tuple(history))


def _base(
    ratings: Ratings, features: np.ndarray | None, kernel: Kernel, noise: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and covariance of the prior, and the variance of the noise."""
    if not noise > 0:
        raise ValueError(f"noise must be above 0, got {noise}")
    mean = float(ratings.rating.mean()) if ratings.num_ratings else ratings.neutral
    variance = float(ratings.rating.var(dtype=np.float64)) if ratings.num_ratings else 0.0
    variance = variance or 1.0
    parts = [np.ones((ratings.num_items, ratings.num_items)), np.eye(ratings.num_items)]
    if features is not None:
        if len(features) != ratings.num_items:
            raise ValueError(f"features must have one row for each of {ratings.num_items} items, got {len(features)}")
        matrix = pairwise_kernels(np.asarray(features, np.float64), metric=kernel)
        parts.append(matrix / (np.trace(matrix) / len(matrix) or 1.0))
    return np.full(ratings.num_items, mean), variance * np.mean(parts, axis=0), noise * variance


def _posterior(
    ratings: Ratings, mean: np.ndarray, covariance: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """What the users' posteriors are made of.

    With G = (K[I, I] + noise)^-1 and w = G (y - m[I]): every w `[ratings]`, their sum by items `[items]`, the sum of
    w w' - G `[items, items]`, and the log likelihood.
    """
    offsets = ratings.offsets
    weights = np.zeros(ratings.num_ratings)
    second = np.zeros_like(covariance)
    likelihood = 0.0
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        if start == end:
            continue
        items, block = ratings.item[start:end], np.ix_(ratings.item[start:end], ratings.item[start:end])
        residual = ratings.rating[start:end] - mean[items]
        root = np.linalg.cholesky(covariance[block] + noise * np.eye(end - start))
        half = solve_triangular(root, np.eye(end - start), lower=True, check_finite=False)
        inverse = half.T @ half
        weights[start:end] = w = inverse @ residual
        second[block] += np.outer(w, w) - inverse
        likelihood -= 0.5 * float(residual @ w + (end - start) * np.log(2 * np.pi)) + float(np.log(np.diag(root)).sum())
    return weights, np.bincount(ratings.item, weights, minlength=len(mean)), second, likelihood


def _log_prior(off: np.ndarray, covariance: np.ndarray, base: np.ndarray) -> float:
    """Log density of one user of the prior, up to a constant: `-(log |K| + tr K^-1 (K0 + off off')) / 2`."""
    root = cho_factor(covariance, lower=True, check_finite=False)
    spread = np.trace(cho_solve(root, base + np.outer(off, off), check_finite=False))
    return -float(np.log(np.diag(root[0])).sum()) - 0.5 * float(spread)


def _scorer(
    ratings: Ratings, mean: np.ndarray, covariance: np.ndarray, noise: float, history: tuple[float, ...] = ()
) -> GaussianProcessScorer:
    scorer = GaussianProcessScorer(ratings.num_users, ratings.num_items, ratings.num_ratings, noise)
    weights = _posterior(ratings, mean, covariance, noise)[0]
    parts = {"mean": mean, "covariance": covariance, "offsets": ratings.offsets, "items": ratings.item}
    scorer.load_state_dict({name: torch.from_numpy(part) for name, part in (parts | {"weights": weights}).items()})
    scorer.history = history
    return scorer
