"""Gaussian processes over items: regression for each user separately, or with a covariance shared by all users.

A user's ratings are `f + noise`, and f, one value per item, is normal with mean m and covariance K. Given the rated items I, the
scores are the posterior means `m + K[:, I] (K[I, I] + noise)^-1 (y - m[I])`. GPR takes m constant and K from features of the
items; CGPR estimates both from the ratings of all users.

In the ordinal processes, GPOR and CGPOR, the grade is y if `f + noise` is between the thresholds `b[y - 1]` and `b[y]`, with
`-inf = b[-1] < b[0] < ... < b[grades - 1] = inf`. The Laplace approximation replaces the posterior mean by the mode,
`m + K[:, I] w` with the derivatives w of the log likelihood at the mode, and 1 / noise by their negative derivatives W, in the
covariance `K - K[:, I] (K[I, I] + W^-1)^-1 K[I, :]`. Otherwise it is the same as regression. Scores are f, on an arbitrary scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import log_ndtr, ndtri
from sklearn.metrics.pairwise import pairwise_kernels
from torch import Tensor

from rankstruct.checks import check_integers
from rankstruct.models.scorers import Scorer
from rankstruct.recommenders.ratings import Ratings
from rankstruct.recommenders.recommendation import item_means

__all__ = ["GaussianProcessScorer", "collaborative_gaussian_process", "gaussian_process"]

Likelihood = Literal["gaussian", "ordinal"]
Kernel = Literal["linear", "rbf"] | Callable[[np.ndarray, np.ndarray], np.ndarray]


class GaussianProcessScorer(Scorer):
    """Scores of items by their posterior mean, given the ratings of each user; see `gaussian_process`.

    Args:
        num_users: number of users.
        num_items: number of items.
        num_ratings: number of known ratings of all users.
        noise: the variance of a rating around the user's value.
        num_thresholds: number of grades minus 1 for an ordinal process; 0 for regression.

    Attributes:
        mean: `[items]`, the prior mean.
        covariance: `[items, items]`, the prior covariance.
        thresholds: `[num_thresholds]`, ascending.
        history: the objective of EM after each step; empty without EM. It is not saved.

    >>> ratings = Ratings.from_arrays(["ann", "ann", "bob"], ["x", "y", "x"], [5, 3, 1], scale="stars")
    >>> gaussian_process(ratings).item_scores(torch.tensor([0, 1])).shape
    torch.Size([2, 2])
    """

    mean: Tensor
    covariance: Tensor
    thresholds: Tensor
    offsets: Tensor
    items: Tensor
    weights: Tensor

    def __init__(self, num_users: int, num_items: int, num_ratings: int, noise: float, num_thresholds: int = 0) -> None:
        super().__init__()
        check_integers(1, num_users=num_users, num_items=num_items)
        check_integers(0, num_ratings=num_ratings, num_thresholds=num_thresholds)
        self.num_users, self.num_items, self.num_ratings, self.noise = num_users, num_items, num_ratings, noise
        self.num_thresholds = num_thresholds
        self.history: tuple[float, ...] = ()
        self.register_buffer("mean", torch.zeros(num_items, dtype=torch.float64))
        self.register_buffer("covariance", torch.zeros(num_items, num_items, dtype=torch.float64))
        self.register_buffer("thresholds", torch.zeros(num_thresholds, dtype=torch.float64))
        self.register_buffer("offsets", torch.zeros(num_users + 1, dtype=torch.int64))
        self.register_buffer("items", torch.zeros(num_ratings, dtype=torch.int64))
        self.register_buffer("weights", torch.zeros(num_ratings, dtype=torch.float64))

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
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
        """The same prior, conditioned only on these ratings, also of new users; raises ValueError for other items."""
        if ratings.num_items != self.num_items:
            raise ValueError(f"ratings must be of {self.num_items} items, got {ratings.num_items}")
        mean, covariance = self.mean.cpu().numpy(), self.covariance.cpu().numpy()
        cuts = self.thresholds.cpu().numpy() if self.num_thresholds else None
        return _scorer(ratings, mean, covariance, _Noise(self.noise, cuts), self.history).to(self.mean.device)


def gaussian_process(
    ratings: Ratings,
    *,
    features: np.ndarray | None = None,
    kernel: Kernel = "linear",
    noise: float = 0.5,
    likelihood: Likelihood = "gaussian",
) -> GaussianProcessScorer:
    """Gaussian process regression (GPR), or ordinal regression (GPOR), for each user separately.

    The prior mean and variance are those of all ratings. The variance consists in equal parts of a constant (the user's level),
    an independent part per item, and the kernel of the features. Without features, all items that a user has not rated get the
    same score, the user's level.

    GPOR's prior mean is 0 and its variance 1; its thresholds give each grade its frequency among the ratings. The mode is found
    by Newton's method.

    Args:
        ratings: the known ratings.
        features: `[items, d]`, features of the items.
        kernel: `"linear"`, `"rbf"` of scikit-learn's default width, or a function of two rows; scaled to mean variance 1.
        noise: above 0, the variance of the noise relative to the ratings' variance, or to the prior's if ordinal.
        likelihood: `"gaussian"` for GPR, `"ordinal"` for GPOR.

    Raises:
        ValueError: noise not above 0, features of another number of items, or an unknown likelihood.

    Source: Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, chapter 2, and algorithm 3.1; Chu and
    Ghahramani, "Gaussian Processes for Ordinal Regression", JMLR 2005 (the likelihood and its Laplace approximation).

    >>> ratings = Ratings.from_arrays(["ann", "ann", "bob"], ["x", "y", "z"], [5, 1, 3], scale="stars")
    >>> scorer = gaussian_process(ratings, features=np.array([[1.0], [-1.0], [1.0]]))
    >>> scorer.item_scores(torch.tensor(0))
    tensor([4.3333, 1.6667, 3.8889])
    """
    return _scorer(ratings, *_base(ratings, features, kernel, noise, likelihood))


def collaborative_gaussian_process(
    ratings: Ratings,
    *,
    features: np.ndarray | None = None,
    kernel: Kernel = "linear",
    noise: float = 1.0,
    shrinkage: float = 10.0,
    steps: int = 50,
    likelihood: Likelihood = "gaussian",
) -> GaussianProcessScorer:
    """Gaussian process regression (CGPR) or ordinal regression (CGPOR) with mean and covariance shared by all users, by EM.

    It starts from the covariance of `gaussian_process` and from `item_means`, and is regularised towards both by a
    normal-inverse-Wishart prior, which counts as `shrinkage` users. The scorer's `history` is the log likelihood with that prior,
    up to a constant; it never decreases. EM is exact except for CGPOR, which uses the Laplace approximation and fixed thresholds:
    there `history` may decrease. A step takes O(items^3) plus the cube of each user's number of ratings, and O(items^2) memory.

    Args:
        ratings: the known ratings.
        features: `[items, d]`, features of the items, for the prior.
        kernel: as for `gaussian_process`.
        noise: as for `gaussian_process`; it is fixed.
        shrinkage: above 0, the weight of the prior as a number of users.
        steps: EM steps, at least 1.
        likelihood: `"gaussian"` for CGPR, `"ordinal"` for CGPOR.

    Raises:
        ValueError: noise or shrinkage not above 0, steps below 1, features of another number of items, or an unknown likelihood.

    Source: Yu, Tresp, Schwaighofer, "Learning Gaussian Processes from Multiple Tasks", ICML 2005; Yu, Yu, Tresp, Kriegel,
    "Collaborative Ordinal Regression", ICML 2006.

    >>> from rankstruct.recommenders import synthetic_ratings
    >>> scorer = collaborative_gaussian_process(synthetic_ratings(users=30, items=20, rated=10), steps=3)
    >>> scorer.history[0] < scorer.history[1] < scorer.history[2]
    True
    """
    check_integers(1, steps=steps)
    if not shrinkage > 0:
        raise ValueError(f"shrinkage must be above 0, got {shrinkage}")
    base_mean, base, noises = _base(ratings, features, kernel, noise, likelihood)
    if ratings.num_ratings:
        base_mean = base_mean + _item_offsets(ratings, noises)
    mean, covariance, history = _expectation_maximisation(ratings, base_mean, base, noises, shrinkage, steps)
    return _scorer(ratings, mean, covariance, noises, history)


def _expectation_maximisation(
    ratings: Ratings, base_mean: np.ndarray, base: np.ndarray, noise: _Noise, shrinkage: float, steps: int
) -> tuple[np.ndarray, np.ndarray, tuple[float, ...]]:
    """Mean and covariance after a number of EM steps from the prior, and the objective after each step."""
    mean, covariance = base_mean, base
    users = max(int((np.diff(ratings.offsets) > 0).sum()), 1)
    history = []
    weights, first, second, _ = _posterior(ratings, mean, covariance, noise)
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
        weights, first, second, value = _posterior(ratings, mean, covariance, noise, weights)
        history.append(value + shrinkage * _log_prior(mean - base_mean, covariance, base))
    return mean, covariance, tuple(history)


class _Noise(NamedTuple):
    """The variance of a rating around its user's value, and the thresholds of an ordinal process."""

    variance: float
    thresholds: np.ndarray | None


def kernel_mean(
    what: str,
    size: int,
    *parts: np.ndarray,
    features: np.ndarray | None = None,
    kernel: Kernel = "linear",
) -> np.ndarray:
    """`[size, size]`, the mean of a constant, the identity, further parts, and the features' kernel with mean variance 1."""
    found = [np.ones((size, size)), np.eye(size), *parts]
    if features is not None:
        if len(features) != size:
            raise ValueError(f"features must have one row for each of {size} {what}, got {len(features)}")
        matrix = pairwise_kernels(np.asarray(features, np.float64), metric=kernel)
        found.append(matrix / (np.trace(matrix) / len(matrix) or 1.0))
    return np.mean(found, axis=0)


def _base(
    ratings: Ratings, features: np.ndarray | None, kernel: Kernel, noise: float, likelihood: Likelihood
) -> tuple[np.ndarray, np.ndarray, _Noise]:
    """Mean and covariance of the prior, and the noise."""
    if not noise > 0:
        raise ValueError(f"noise must be above 0, got {noise}")
    if likelihood not in get_args(Likelihood):
        raise ValueError(f"likelihood must be one of {', '.join(get_args(Likelihood))}, got {likelihood!r}")
    covariance = kernel_mean("items", ratings.num_items, features=features, kernel=kernel)
    if likelihood == "ordinal":
        counts = 1.0 + np.bincount(ratings.grades().astype(int), minlength=ratings.num_grades)
        cuts = np.sqrt(1 + noise) * ndtri(counts.cumsum()[:-1] / counts.sum())
        return np.zeros(ratings.num_items), covariance, _Noise(noise, cuts)
    mean = float(ratings.rating.mean()) if ratings.num_ratings else ratings.neutral
    variance = float(ratings.rating.var(dtype=np.float64)) if ratings.num_ratings else 0.0
    variance = variance or 1.0
    return np.full(ratings.num_items, mean), variance * covariance, _Noise(noise * variance, None)


def _item_offsets(ratings: Ratings, noise: _Noise) -> np.ndarray:
    """`item_means` minus the overall mean; for ordinal processes in units of the ratings' standard deviation."""
    off = item_means(ratings).scores.double().numpy() - float(ratings.rating.mean())
    if noise.thresholds is None:
        return off
    return off * np.sqrt(1 + noise.variance) / (float(ratings.rating.std(dtype=np.float64)) or 1.0)


def _posterior(
    ratings: Ratings, mean: np.ndarray, covariance: np.ndarray, noise: _Noise, start: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """The components of the users' posteriors.

    With G = (K[I, I] + noise)^-1 and w = G (y - m[I]), or their Laplace approximations: all w `[ratings]`, their sum by item
    `[items]`, the sum of w w' - G `[items, items]`, and the log likelihood. The search for the mode starts from `start`.
    """
    offsets = ratings.offsets
    weights = np.zeros(ratings.num_ratings)
    second = np.zeros_like(covariance)
    likelihood = 0.0
    labels = ratings.rating if noise.thresholds is None else ratings.grades().astype(int)
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        if begin == end:
            continue
        items, block = ratings.item[begin:end], np.ix_(ratings.item[begin:end], ratings.item[begin:end])
        if noise.thresholds is None:
            w, inverse, value = _regression(labels[begin:end] - mean[items], covariance[block], noise.variance)
        else:
            before = np.zeros(end - begin) if start is None else start[begin:end]
            w, inverse, value = _laplace(labels[begin:end], mean[items], covariance[block], noise, before)
        weights[begin:end] = w
        second[block] += np.outer(w, w) - inverse
        likelihood += value
    return weights, np.bincount(ratings.item, weights, minlength=len(mean)), second, likelihood


def _regression(residual: np.ndarray, covariance: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray, float]:
    """`(w, G, log likelihood)` of one user."""
    size = len(residual)
    root = np.linalg.cholesky(covariance + noise * np.eye(size))
    half = solve_triangular(root, np.eye(size), lower=True, check_finite=False)
    inverse = half.T @ half
    w = inverse @ residual
    value = -0.5 * float(residual @ w + size * np.log(2 * np.pi)) - float(np.log(np.diag(root)).sum())
    return w, inverse, value


def _laplace(
    grades: np.ndarray, mean: np.ndarray, covariance: np.ndarray, noise: _Noise, w: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """`(w, G, log likelihood)` of one user of an ordinal process, by Newton's method on f = m + K w from a first w.

    The posterior is log-concave; a step that would lower it is halved.
    """

    def value(w: np.ndarray) -> float:
        f = covariance @ w
        return float(_ordinal(f + mean, grades, noise)[0].sum() - 0.5 * (w @ f))

    reached = value(w)
    while True:
        f = covariance @ w
        _, slope, curvature = _ordinal(f + mean, grades, noise)
        sides = np.sqrt(curvature)
        root = np.linalg.cholesky(np.eye(len(f)) + sides[:, None] * covariance * sides)
        half = solve_triangular(root, np.diag(sides), lower=True, check_finite=False)
        inverse = half.T @ half
        target = curvature * f + slope
        move = target - inverse @ (covariance @ target) - w
        step, gain = 1.0, value(w + move) - reached
        least = 1e-9 + 1e-12 * abs(reached)
        while gain < -least:
            step /= 2
            gain = value(w + step * move) - reached
        if abs(gain) <= least:
            return w + step * move, inverse, reached - float(np.log(np.diag(root)).sum())
        w, reached = w + step * move, reached + gain


def _ordinal(f: np.ndarray, grades: np.ndarray, noise: _Noise) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log likelihood of each grade, its derivative in f, and its negative second derivative, which is nonnegative."""
    assert noise.thresholds is not None
    deviation = np.sqrt(noise.variance)
    cuts = np.concatenate([[-np.inf], noise.thresholds, [np.inf]])
    lower, upper = (cuts[grades] - f) / deviation, (cuts[grades + 1] - f) / deviation
    # By symmetry, differences of the distribution function are computed on the left, where they keep their precision.
    left = lower + upper <= 0
    far, near = log_ndtr(np.where(left, lower, -upper)), log_ndtr(np.where(left, upper, -lower))
    value = near + np.log1p(-np.exp(far - near))
    below, above = (np.exp(-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - value) for z in (lower, upper))
    pull = [np.where(np.isfinite(z), z, 0.0) * share for z, share in ((lower, below), (upper, above))]
    slope = below - above
    return value, slope / deviation, np.maximum(slope**2 + pull[1] - pull[0], 0.0) / noise.variance


def _log_prior(off: np.ndarray, covariance: np.ndarray, base: np.ndarray) -> float:
    """Log density of one user under the prior, up to a constant: `-(log |K| + tr K^-1 (K0 + off off')) / 2`."""
    root = cho_factor(covariance, lower=True, check_finite=False)
    spread = np.trace(cho_solve(root, base + np.outer(off, off), check_finite=False))
    return -float(np.log(np.diag(root[0])).sum()) - 0.5 * float(spread)


def _scorer(
    ratings: Ratings, mean: np.ndarray, covariance: np.ndarray, noise: _Noise, history: tuple[float, ...] = ()
) -> GaussianProcessScorer:
    cuts = np.zeros(0) if noise.thresholds is None else noise.thresholds
    sizes = ratings.num_users, ratings.num_items, ratings.num_ratings
    scorer = GaussianProcessScorer(*sizes, noise.variance, len(cuts))
    weights = _posterior(ratings, mean, covariance, noise)[0]
    parts = {"mean": mean, "covariance": covariance, "thresholds": cuts, "offsets": ratings.offsets}
    parts |= {"items": ratings.item, "weights": weights}
    scorer.load_state_dict({name: torch.from_numpy(part) for name, part in parts.items()})
    scorer.history = history
    return scorer
