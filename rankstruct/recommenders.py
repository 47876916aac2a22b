"""Recommenders: exact training in turns of users and items, factors of new users, the best items of a user, baselines.

    objective(U, V) = sum over users of loss(scores of the rated items) + lambda_U/2 ||U||^2 + lambda_V/2 ||V||^2

With V fixed the users are problems of their own, solved side by side; with U fixed it is one convex problem in V, for the bundle
method. V has the items' biases as a further column, for which every user has a 1.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from rankstruct.data import RankingData, Ratings
from rankstruct.data.ratings import Labels
from rankstruct.estimators import ranking_risk
from rankstruct.losses import is_convex, takes_reference_scores
from rankstruct.models import ItemScorer, MatrixFactorization
from rankstruct.solvers import Bundle, SeparableSolution, minimise_separable

METHODS = ("bundle", "dc", "lbfgs")
_DC_ROUNDS = 5


class Recommender(Protocol):
    """What `recommend` needs: `MatrixFactorization`, the baselines, or a class of your own."""

    def item_scores(self, users: Tensor) -> Tensor:
        """Scores of all items, `[users, items]`, for the users with numbers `[users]`."""


@dataclass(frozen=True, eq=False)
class Alternation:
    """What `alternate` did; the factors are in the scorer.

    Attributes:
        objectives: before the first round, and after each half of a round; they never increase.
        user_gaps: certified relative gap of the users' problems, a round each.
        item_gaps: certified relative gap of the problem in V, a round each.
    """

    objectives: list[float]
    user_gaps: list[float] = field(default_factory=list)
    item_gaps: list[float] = field(default_factory=list)


def alternate(
    scorer: MatrixFactorization,
    ratings: Ratings,
    loss: nn.Module,
    *,
    regularization: float = 1.0,
    item_regularization: float | None = None,
    rounds: int = 5,
    labels: Labels = "grade",
    tolerance: float = 1e-2,
    max_iterations: int = 50,
) -> Alternation:
    """Train the factors in place: all users with V fixed, then V with the users fixed, and again.

    Args:
        scorer: the factorisation, as it starts; factors that are all 0 stay so.
        ratings: one list a user.
        loss: a loss module that is convex in the scores; its reduction does not count.
        regularization: lambda_U of the objective, a sum over users.
        item_regularization: lambda_V; as lambda_U if None.
        rounds: how often.
        labels: what the loss sees: `"grade"`, `"rating"`, or a function of the ratings.
        tolerance: relative gap at which a problem counts as solved.
        max_iterations: of the users' and of V's bundle method, each round.

    Raises:
        ValueError: a loss that is not convex, a scorer with biases of users or of another size, an option outside its range.

    Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 7.2; Weimer, Karatzoglou, Le, Smola, "CoFiRank",
    NIPS 2007.
    """
    item_regularization = regularization if item_regularization is None else item_regularization
    if not (regularization > 0 and item_regularization > 0):
        raise ValueError(f"regularization must be above 0, got {regularization} and {item_regularization}")
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    if scorer.user_offsets is not None:
        raise ValueError("the alternating scheme takes no biases of users; use MatrixFactorization(user_bias=False)")
    if (scorer.num_users, scorer.num_items) != (ratings.num_users, ratings.num_items):
        raise ValueError(
            f"the scorer has {scorer.num_users} users and {scorer.num_items} items, the ratings {ratings.num_users} and "
            f"{ratings.num_items}"
        )
    _check_convex(loss)
    lists = ratings.to_lists(labels)
    users = lists.features[lists.offsets[:-1], 0].astype(np.int64)
    with torch.no_grad():
        idle = np.setdiff1d(np.arange(scorer.num_users), users)
        scorer.user_factors.weight[torch.from_numpy(idle)] = 0.0  # of users without ratings 0 is best
    found = Alternation([_objective(scorer, lists, loss, regularization, item_regularization)])
    solver = Bundle(tolerance=tolerance, max_iterations=max_iterations)
    for _ in range(rounds):
        solved = solve_users(
            scorer, lists, loss, regularization=regularization, tolerance=tolerance, max_iterations=max_iterations
        )
        _put(scorer.user_factors, solved.w, users)
        found.user_gaps.append(solved.gap)
        found.objectives.append(_objective(scorer, lists, loss, regularization, item_regularization))
        before = _item_matrix(scorer)
        risk = ranking_risk(loss, _item_features(scorer, lists), lists.labels.astype(np.float64), lists.offsets)
        solution = solver.minimise(risk, lists.num_lists / item_regularization, warm_start=before.ravel())
        matrix = solution.w.reshape(before.shape)
        _put(scorer.item_factors, matrix[:, : scorer.rank])
        if scorer.item_offsets is not None:
            _put(scorer.item_offsets, matrix[:, scorer.rank :])
        found.item_gaps.append(solution.gap)
        found.objectives.append(_objective(scorer, lists, loss, regularization, item_regularization))
    return found


def solve_users(
    scorer: MatrixFactorization,
    lists: RankingData,
    loss: nn.Module,
    *,
    regularization: float = 1.0,
    method: str = "bundle",
    tolerance: float = 1e-3,
    max_iterations: int = 60,
) -> SeparableSolution:
    """The best factor of every user with the items fixed; the scorer is not changed.

    Args:
        scorer: the factorisation, whose item factors and biases count; a user that it has starts from its factor there.
        lists: one list a user, as `Ratings.to_lists` makes them.
        loss: a loss module; its reduction does not count.
        regularization: lambda_U, above 0: a user's factor u minimises loss + lambda_U/2 ||u||^2.
        method: `"bundle"` for convex losses, with a certified gap; `"dc"` for a hinge whose reference the scores choose, in
            rounds of the bundle method with the reference held; `"lbfgs"` for smooth losses. The last two have no certificate
            (the lower bound is 0), and leave no user worse than it began. `user_method` says which one fits.
        tolerance: relative gap at which a user counts as solved.
        max_iterations: evaluations of the loss at most, those of a round with `"dc"`.

    Returns:
        `w` is `[lists, rank]`, one factor a list, or `[lists, rank + 1]` if users have biases, the bias last.

    Raises:
        ValueError: an option outside its range, a loss that is not convex for the bundle method, or one whose reference the
            scores do not choose for `"dc"`.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    if not regularization > 0:
        raise ValueError(f"regularization must be above 0, got {regularization}")
    loss = copy.deepcopy(loss)
    loss.reduction = "none"  # type: ignore[assignment]
    users = torch.from_numpy(lists.features[lists.offsets[:-1], 0].astype(np.int64))
    items = torch.from_numpy(lists.features[:, 1].astype(np.int64))
    labels = torch.from_numpy(lists.labels.astype(np.float64))
    with torch.no_grad():
        factors = scorer.item_factors.weight.double()[items]
        biases = torch.zeros(len(items), dtype=torch.float64)
        if scorer.item_offsets is not None:
            biases = scorer.item_offsets.weight.double()[items, 0]
        start = scorer.user_factors.weight.double()[users]
        if scorer.user_offsets is not None:
            factors = torch.cat([factors, torch.ones(len(items), 1, dtype=torch.float64)], 1)
            start = torch.cat([start, scorer.user_offsets.weight.double()[users]], 1)
    lengths = torch.from_numpy(lists.lengths)

    def score(w: Tensor, rows: Tensor, sizes: Tensor) -> Tensor:
        return (factors[rows] * w.repeat_interleave(sizes, 0)).sum(-1) + biases[rows]

    def losses(w: Tensor, rows: Tensor, sizes: Tensor, reference: Tensor | None = None) -> Tensor:
        held = {} if reference is None else {"reference_scores": reference[rows]}
        offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        return loss(score(w, rows, sizes), labels[rows], offsets=offsets, **held)

    def solve(start: Tensor, reference: Tensor | None = None) -> SeparableSolution:
        def oracle(w: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            chosen = torch.zeros(len(lengths), dtype=torch.bool)
            chosen[torch.from_numpy(indices)] = True  # indices ascend
            rows = chosen.repeat_interleave(lengths).nonzero().squeeze(1)
            leaf = torch.from_numpy(w).requires_grad_()
            values = losses(leaf, rows, lengths[chosen], reference)
            (slopes,) = torch.autograd.grad(values.sum(), leaf)
            return values.detach().numpy(), slopes.numpy()

        return minimise_separable(
            oracle, start.numpy(), regularization, tolerance=tolerance, max_iterations=max_iterations
        )

    every = torch.arange(len(items))
    if method == "lbfgs":
        return _descend(lambda w: losses(w, every, lengths), start, regularization, max_iterations)
    if method == "bundle":
        _check_convex(loss)
        return solve(start)
    if not takes_reference_scores(loss):
        raise ValueError(
            f"method 'dc' needs a loss whose reference the scores choose, reference='predicted'; got {loss!r}"
        )
    iterations = 0
    for _ in range(_DC_ROUNDS):
        found = solve(start, score(start, every, lengths))
        moved = torch.from_numpy(found.w)
        iterations += found.iterations
        if torch.equal(moved, start):
            break
        start = moved
    objective = losses(start, every, lengths) + 0.5 * regularization * start.square().sum(1)
    return SeparableSolution(start.numpy(), objective.numpy(), np.zeros(len(start)), iterations)


def user_method(loss: nn.Module) -> str:
    """The method of `solve_users` for a loss.

    >>> import rankstruct as rs
    >>> user_method(rs.ListNetLoss()), user_method(rs.SmoothLoss("nDCG@10"))
    ('bundle', 'lbfgs')
    """
    if is_convex(loss):
        return "bundle"
    return "dc" if takes_reference_scores(loss) else "lbfgs"


def adopt_users(
    scorer: MatrixFactorization,
    lists: RankingData,
    loss: nn.Module,
    *,
    regularization: float = 1.0,
    method: str | None = None,
) -> None:
    """Give users that were not trained the factors that are best for some of their ratings, in place; items stay.

    This is strong generalisation: the users have rows in the scorer, whose values do not count.

    Args:
        scorer: the factorisation.
        lists: one list a user, as `Ratings.to_lists` makes them.
        loss: the loss it was trained with.
        regularization: lambda_U.
        method: see `solve_users`; None for `user_method(loss)`.
    """
    users = lists.features[lists.offsets[:-1], 0].astype(np.int64)
    rows = torch.from_numpy(users)
    with torch.no_grad():
        scorer.user_factors.weight[rows] = 0.0
        if scorer.user_offsets is not None:
            scorer.user_offsets.weight[rows] = 0.0
    with torch.inference_mode(False), torch.enable_grad():  # Lightning validates without gradients
        solved = solve_users(
            scorer, lists, loss, regularization=regularization, method=method or user_method(loss), tolerance=1e-2
        )
    _put(scorer.user_factors, solved.w[:, : scorer.rank], users)
    if scorer.user_offsets is not None:
        _put(scorer.user_offsets, solved.w[:, scorer.rank :], users)


def new_user(
    scorer: MatrixFactorization,
    items: Sequence[int] | np.ndarray,
    labels: Sequence[float] | np.ndarray,
    loss: nn.Module,
    *,
    regularization: float = 1.0,
    method: str = "bundle",
) -> Tensor:
    """The factor `[rank]` of a user that is not in the scorer, from some ratings; see `solve_users`.

    Its scores of all items are `scorer.factor_scores(factor)`.

    Args:
        scorer: the trained factorisation.
        items: `[rated]`, the numbers of the items.
        labels: `[rated]`, what the loss sees of the ratings.
        loss: the loss it was trained with.
        regularization: lambda_U.
        method: see `solve_users`.
    """
    features = np.zeros((len(items), 2), np.float32)
    features[:, 1] = items
    lists = RankingData(
        features, np.asarray(labels, np.float32), np.array([0, len(items)], np.int64), np.array(["new user"])
    )
    if not len(items):
        return torch.zeros(scorer.rank)
    solved = solve_users(_from_zero(scorer), lists, loss, regularization=regularization, method=method)
    return torch.from_numpy(solved.w[0, : scorer.rank]).to(scorer.item_factors.weight.dtype)


def recommend(
    model: Recommender, users: int | Sequence[int] | Tensor, k: int = 10, *, exclude: Ratings | None = None
) -> tuple[Tensor, Tensor]:
    """The k items of highest score for each user, best first.

    Args:
        model: what scores all items for users.
        users: the numbers of the users, `[users]`, or one number.
        k: how many.
        exclude: ratings whose items are not recommended to the users who gave them, such as those trained on.

    Returns:
        `(items, scores)`, both `[users, k]`, or `[k]` for one user. Where fewer are left, items end with -1 and scores with -inf.

    Raises:
        ValueError: k is below 1, or a user is not in `exclude`.

    >>> ratings = Ratings.from_arrays(["ann", "ann", "bob"], ["x", "y", "y"], [5, 4, 1], scale="stars")
    >>> recommend(popularity(ratings), [0, 1], k=1, exclude=ratings)[0]
    tensor([[-1],
            [ 0]])
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
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
    """Each item's number of ratings as its score.

    >>> popularity(Ratings.from_arrays(["ann", "bob"], ["x", "x"], [1, 1], scale="stars")).scores
    tensor([2.])
    """
    scorer = ItemScorer(ratings.num_items)
    scorer.scores += torch.from_numpy(np.bincount(ratings.item, minlength=ratings.num_items))
    return scorer


def item_means(ratings: Ratings, *, prior: float = 5.0) -> ItemScorer:
    """Each item's mean rating as its score, drawn to the mean of all as by `prior` further ratings of that size.

    Raises:
        ValueError: a negative prior.

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


def _check_convex(loss: nn.Module) -> None:
    if not is_convex(loss):
        raise ValueError(
            f"the bundle method needs a loss that is convex in the scores, got {loss!r}; take reference='ideal', or train with "
            "FactorizationModule, or for users alone another method, see user_method(loss)"
        )


def _objective(
    scorer: MatrixFactorization, lists: RankingData, loss: nn.Module, regularization: float, item_regularization: float
) -> float:
    loss = copy.deepcopy(loss)
    loss.reduction = "none"  # type: ignore[assignment]
    with torch.no_grad():
        scores = scorer(torch.from_numpy(lists.features)).double()
        values = loss(scores, torch.from_numpy(lists.labels), offsets=torch.from_numpy(lists.offsets))
        of_users = scorer.user_factors.weight.double().square().sum()
        of_items = float(np.square(_item_matrix(scorer)).sum())
    return float(values.sum() + 0.5 * regularization * of_users) + 0.5 * item_regularization * of_items


def _item_matrix(scorer: MatrixFactorization) -> np.ndarray:
    """V, float64 `[items, rank]`, with the biases as a further column if there are some."""
    parts = [scorer.item_factors.weight.detach()]
    if scorer.item_offsets is not None:
        parts.append(scorer.item_offsets.weight.detach())
    return torch.cat(parts, 1).double().numpy()


def _item_features(scorer: MatrixFactorization, lists: RankingData) -> sp.csr_array:
    """`[ratings, items * width]`: a rating's row has its user's factor, and 1 for the bias, at the place of its item."""
    user, item = lists.features.T.astype(np.int64)
    values = scorer.user_factors.weight.detach().double().numpy()[user]
    if scorer.item_offsets is not None:
        values = np.concatenate([values, np.ones((len(values), 1))], axis=1)
    width = values.shape[1]
    columns = item[:, None] * width + np.arange(width)
    starts = np.arange(len(values) + 1) * width
    return sp.csr_array((values.ravel(), columns.ravel(), starts), shape=(len(values), scorer.num_items * width))


def _put(embedding: nn.Embedding, values: np.ndarray, rows: np.ndarray | None = None) -> None:
    with torch.no_grad():
        given = torch.from_numpy(np.ascontiguousarray(values)).to(embedding.weight.dtype)
        if rows is None:
            embedding.weight.copy_(given)
        else:
            embedding.weight[torch.from_numpy(rows)] = given


def _from_zero(scorer: MatrixFactorization) -> MatrixFactorization:
    """The scorer with one user, whose factor is 0."""
    biases = {"user_bias": scorer.user_bias, "item_bias": scorer.item_bias}
    alone = MatrixFactorization(1, scorer.num_items, scorer.rank, **biases, scale=0.0)
    alone.item_factors, alone.item_offsets = scorer.item_factors, scorer.item_offsets
    return alone


def _descend(
    losses: Callable[[Tensor], Tensor], start: Tensor, regularization: float, max_iterations: int
) -> SeparableSolution:
    """L-BFGS on the sum of all problems, which shares its line search among them; no problem ends worse than it began."""
    w = start.clone().requires_grad_()

    def each(w: Tensor) -> Tensor:
        return losses(w) + 0.5 * regularization * w.square().sum(1)

    optimizer = torch.optim.LBFGS([w], max_iter=max_iterations, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = each(w).sum()
        total.backward()
        return total

    optimizer.step(closure)
    with torch.no_grad():
        before, after = each(start), each(w)
        kept = torch.where((after <= before).unsqueeze(1), w, start)
    state = optimizer.state[w]
    return SeparableSolution(
        kept.numpy(), torch.minimum(before, after).numpy(), np.zeros(len(start)), int(state["func_evals"])
    )
