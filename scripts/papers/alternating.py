"""Alternating exact training of matrix factorisations.

    objective(U, V) = sum over users of loss(scores of the rated items) + lambda_U/2 ||U||^2 + lambda_V/2 ||V||^2

With V fixed, the problem separates into independent problems of the users, see `rankstruct.recommenders.solve_users`; with U
fixed, it is a convex problem in V, solved by the bundle method. V has the item biases as an additional column, for which every
user has a 1.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from rankstruct.checks import check_integers
from rankstruct.data import RankingData
from rankstruct.estimators.linear import ranking_risk
from rankstruct.estimators.training_data import TrainingData
from rankstruct.recommenders import MatrixFactorization, Ratings, solve_users
from rankstruct.recommenders.ratings import Labels
from rankstruct.recommenders.users import check_convex, each_list, put_rows, put_users, users_of
from rankstruct.solvers import Bundle

__all__ = ["Alternation", "alternate"]


@dataclass(frozen=True, eq=False)
class Alternation:
    """The result of `alternate`; the factors are in the scorer.

    Attributes:
        objectives: the objective before the first round and after each half round, in float64, which never increases.
        user_gaps: certified relative gap of the users' problems, per round.
        item_gaps: certified relative gap of the problem in V, per round.

    >>> import rankstruct as rs
    >>> from rankstruct.recommenders import synthetic_ratings
    >>> ratings = synthetic_ratings(users=10, rated=8)
    >>> scorer = rs.MatrixFactorization(ratings.num_users, ratings.num_items, rank=2)
    >>> found = alternate(scorer, ratings, rs.ListNetLoss(), rounds=2)
    >>> found.objectives[-1] <= found.objectives[0]
    True
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
    """Train the factors, in float64 and in place, alternating between all users with V fixed and V with the users fixed.

    Factors that start at 0 remain 0.

    Args:
        scorer: the factorisation, without user biases.
        ratings: of its users and items.
        loss: convex in the scores; its reduction is ignored.
        regularization: lambda_U, above 0.
        item_regularization: lambda_V; lambda_U if None.
        rounds: number of rounds.
        labels: those for the loss: `"grade"`, `"rating"`, or a function of the ratings.
        tolerance: the relative gap at which a problem counts as solved.
        max_iterations: limit of the bundle method of users and of V in each round.

    Raises:
        ValueError: the loss is not convex, or the scorer has user biases or another size.

    Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 7.2; Weimer, Karatzoglou, Le, Smola, "CoFiRank",
    NIPS 2007.
    """
    penalties = (regularization, regularization if item_regularization is None else item_regularization)
    _check_alternation(scorer, ratings, loss, penalties, rounds)
    lists = ratings.to_lists(labels)
    exact = copy.deepcopy(scorer).double()
    put_users(exact, np.zeros((1, scorer.rank)), np.setdiff1d(np.arange(scorer.num_users), users_of(lists)))
    found = Alternation([_objective(exact, lists, loss, *penalties)])

    def keep(changed: MatrixFactorization) -> None:
        nonlocal exact
        value = _objective(changed, lists, loss, *penalties)
        if value <= found.objectives[-1]:  # otherwise the step only changed rounding
            exact = changed
        found.objectives.append(min(value, found.objectives[-1]))

    options: dict[str, Any] = {"tolerance": tolerance, "max_iterations": max_iterations}
    for _ in range(rounds):
        changed = copy.deepcopy(exact)
        solved = solve_users(changed, lists, loss, regularization=penalties[0], **options)
        put_users(changed, solved.w, users_of(lists))
        found.user_gaps.append(solved.gap)
        keep(changed)
        changed = copy.deepcopy(exact)
        found.item_gaps.append(_solve_items(changed, lists, loss, penalties[1], Bundle(**options)))
        keep(changed)
    scorer.load_state_dict(exact.state_dict())
    return found


def _check_alternation(
    scorer: MatrixFactorization, ratings: Ratings, loss: nn.Module, penalties: tuple[float, float], rounds: int
) -> None:
    if not min(penalties) > 0:
        raise ValueError(f"regularization must be above 0, got {penalties[0]} and {penalties[1]}")
    check_integers(1, rounds=rounds)
    if scorer.user_offsets is not None:
        raise ValueError("alternating training does not support user biases; use MatrixFactorization(user_bias=False)")
    if (scorer.num_users, scorer.num_items) != (ratings.num_users, ratings.num_items):
        raise ValueError(
            f"the scorer has {scorer.num_users} users and {scorer.num_items} items, the ratings {ratings.num_users} and "
            f"{ratings.num_items}"
        )
    check_convex(loss)


def _solve_items(
    scorer: MatrixFactorization, lists: RankingData, loss: nn.Module, regularization: float, solver: Bundle
) -> float:
    """Set the scorer's V to the optimum with the users fixed; returns the certified gap."""
    before = _item_matrix(scorer)
    flat = TrainingData(_item_features(scorer, lists), lists.labels.astype(np.float64), lists.offsets, lists.qids)
    risk = ranking_risk(loss, flat)
    solution = solver.minimise(risk, lists.num_lists / regularization, warm_start=before.ravel())
    put_rows(scorer.item_factors, scorer.item_offsets, solution.w.reshape(before.shape))
    return solution.gap


def _objective(
    scorer: MatrixFactorization, lists: RankingData, loss: nn.Module, regularization: float, item_regularization: float
) -> float:
    with torch.no_grad():
        scores = scorer(torch.from_numpy(lists.features))
        labels, offsets = torch.from_numpy(lists.labels).to(scores.dtype), torch.from_numpy(lists.offsets)
        values = each_list(loss)(scores, labels, offsets=offsets)
        of_users = scorer.user_factors.weight.square().sum()
        of_items = float(np.square(_item_matrix(scorer)).sum())
    return float(values.sum() + 0.5 * regularization * of_users) + 0.5 * item_regularization * of_items


def _item_matrix(scorer: MatrixFactorization) -> np.ndarray:
    """V, float64 `[items, rank]`, with the biases, if any, as an additional column."""
    parts = [part.weight.detach() for part in (scorer.item_factors, scorer.item_offsets) if part is not None]
    return torch.cat(parts, 1).double().numpy()


def _item_features(scorer: MatrixFactorization, lists: RankingData) -> sp.csr_array:
    """`[ratings, items * width]`: the row of a rating has its user's factor, and 1 for the bias, in the columns of its item."""
    user, item = lists.features.T.astype(np.int64)
    values = scorer.user_factors.weight.detach().double().numpy()[user]
    if scorer.item_offsets is not None:
        values = np.column_stack([values, np.ones(len(values))])
    width = values.shape[1]
    columns = item[:, None] * width + np.arange(width)
    starts = np.arange(len(values) + 1) * width
    return sp.csr_array((values.ravel(), columns.ravel(), starts), shape=(len(values), scorer.num_items * width))
