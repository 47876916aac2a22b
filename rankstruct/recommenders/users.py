"""Factors of users with the items fixed: of all users side by side, and of new ones.

With V fixed, the problem of a matrix factorisation separates into independent problems of the users, solved in parallel:

    loss(scores of the rated items) + lambda_U/2 ||u||^2

Common arguments: `scorer` is the factorisation; `lists` have one list per user, see `Ratings.to_lists`; `loss` is the loss module
used in training, whose reduction is ignored; `regularization` is lambda_U, above 0; `method` is that of `solve_users`;
`tolerance` is the relative gap at which a problem counts as solved. Options out of range raise ValueError.

Source: Weimer, Karatzoglou, Le, Smola, "CoFiRank", NIPS 2007; Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures",
section 7.2.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from rankstruct.checks import check_choice, check_numbers
from rankstruct.data import RankingData
from rankstruct.losses import is_convex, takes_reference_scores
from rankstruct.recommenders.factorization import MatrixFactorization
from rankstruct.solvers import SeparableSolution, minimise_separable

__all__ = ["adopt_users", "new_user", "solve_users", "user_method"]

Method = Literal["bundle", "dc", "lbfgs"]
METHODS = get_args(Method)
_DC_ROUNDS = 5


def solve_users(
    scorer: MatrixFactorization,
    lists: RankingData,
    loss: nn.Module,
    *,
    regularization: float = 1.0,
    method: Method = "bundle",
    tolerance: float = 1e-3,
    max_iterations: int = 60,
) -> SeparableSolution:
    """The optimal factor u of each user, minimising loss + lambda_U/2 ||u||^2 with the items fixed; the scorer is not changed.

    Methods are `"bundle"` for convex losses, with a certified gap; `"dc"` for a hinge whose reference depends on the scores, by
    rounds of the bundle method with the reference fixed; `"lbfgs"` for smooth losses. The last two have no certificate (the lower
    bound is 0), but no objective exceeds its initial value in the scorer. `user_method` selects one. `max_iterations` limits the
    evaluations of the loss, per round for `"dc"`.

    Returns:
        `w` is `[lists, rank]`, one factor per list, or `[lists, rank + 1]` if users have biases, the bias last.

    Raises:
        ValueError: the loss is not convex, for `"bundle"`, or its reference does not depend on the scores, for `"dc"`.
    """
    check_choice("method", method, METHODS)
    check_numbers("> 0", regularization=regularization)
    options = {"tolerance": tolerance, "max_iterations": max_iterations}
    problems = _UserProblems(scorer, lists, loss, regularization, options)
    if method == "lbfgs":
        return _descend(problems)
    if method == "bundle":
        check_convex(loss)
        return problems.solve(problems.start)
    if not takes_reference_scores(loss):
        raise ValueError(
            f"method 'dc' requires a loss whose reference depends on the scores, reference='predicted'; got {loss!r}"
        )
    start, iterations = problems.start, 0
    for _ in range(_DC_ROUNDS):
        found = problems.solve(start, problems.scores(start, problems.every, problems.lengths))
        moved = torch.from_numpy(found.w)
        iterations += found.iterations
        if torch.equal(moved, start):
            break
        start = moved
    return SeparableSolution(start.numpy(), problems.objectives(start).numpy(), np.zeros(len(start)), iterations)


class _UserProblems:
    """The problems of the users: factors w, `[rank]` or with the bias as an additional entry, for fixed items, in float64."""

    def __init__(
        self,
        scorer: MatrixFactorization,
        lists: RankingData,
        loss: nn.Module,
        regularization: float,
        options: dict[str, Any],
    ) -> None:
        self.loss, self.regularization, self.options = each_list(loss), regularization, options
        users = torch.from_numpy(users_of(lists))
        items = torch.from_numpy(lists.features[:, 1].astype(np.int64))
        self.labels = torch.from_numpy(lists.labels.astype(np.float64))
        self.lengths = torch.from_numpy(lists.lengths)
        self.every = torch.arange(len(items))
        with torch.no_grad():
            self.factors = scorer.item_factors.weight.double()[items]
            self.biases = self.factors.new_zeros(len(items))
            if scorer.item_offsets is not None:
                self.biases = scorer.item_offsets.weight.double()[items, 0]
            self.start = scorer.user_factors.weight.double()[users]
            if scorer.user_offsets is not None:
                self.factors = torch.cat([self.factors, self.factors.new_ones(len(items), 1)], 1)
                self.start = torch.cat([self.start, scorer.user_offsets.weight.double()[users]], 1)

    def scores(self, w: Tensor, rows: Tensor, sizes: Tensor) -> Tensor:
        """The scores of the ratings `rows`, of which each user has `sizes`."""
        return (self.factors[rows] * w.repeat_interleave(sizes, 0)).sum(-1) + self.biases[rows]

    def losses(self, w: Tensor, rows: Tensor, sizes: Tensor, reference: Tensor | None = None) -> Tensor:
        """The loss of each user, with a fixed reference if given."""
        held = {} if reference is None else {"reference_scores": reference[rows]}
        offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        return self.loss(self.scores(w, rows, sizes), self.labels[rows], offsets=offsets, **held)

    def objectives(self, w: Tensor) -> Tensor:
        """The regularised objective of each user."""
        return self.losses(w, self.every, self.lengths) + 0.5 * self.regularization * w.square().sum(1)

    def solve(self, start: Tensor, reference: Tensor | None = None) -> SeparableSolution:
        """Run the bundle method from `start`."""

        def oracle(w: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            chosen = torch.zeros(len(self.lengths), dtype=torch.bool)
            chosen[torch.from_numpy(indices)] = True  # indices ascend
            rows = chosen.repeat_interleave(self.lengths).nonzero().squeeze(1)
            leaf = torch.from_numpy(w).requires_grad_()
            values = self.losses(leaf, rows, self.lengths[chosen], reference)
            (slopes,) = torch.autograd.grad(values.sum(), leaf)
            return values.detach().numpy(), slopes.numpy()

        return minimise_separable(oracle, start.numpy(), self.regularization, **self.options)


def user_method(loss: nn.Module) -> Method:
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
    method: Method | None = None,
) -> None:
    """Fit the factors of users not seen in training to some of their ratings, in place, with the items fixed.

    This is strong generalisation: the users have rows in the scorer, whose values are replaced. Arguments are those of
    `solve_users`; `method` None is `user_method(loss)`.
    """
    users, start = users_of(lists), copy.deepcopy(scorer)
    put_users(start, np.zeros((1, scorer.rank + 1)), users)  # in a copy, since solving may fail
    with torch.inference_mode(False), torch.enable_grad():  # Lightning validates without gradients
        solved = solve_users(
            start, lists, loss, regularization=regularization, method=method or user_method(loss), tolerance=1e-2
        )
    put_users(scorer, solved.w, users)


def new_user(
    scorer: MatrixFactorization,
    items: Sequence[int] | np.ndarray,
    labels: Sequence[float] | np.ndarray,
    loss: nn.Module,
    *,
    regularization: float = 1.0,
    method: Method = "bundle",
) -> Tensor:
    """Fit the factor `[rank]` of a user that is not in the scorer to some ratings; see `solve_users`.

    The scores of all items are `scorer.factor_scores(factor)`. `items` `[rated]` are item indices, and `labels` `[rated]` the
    labels for the loss; the other arguments are those of `solve_users`.
    """
    if not len(items):
        return torch.zeros(scorer.rank)
    lists = RankingData.from_arrays(np.column_stack([np.zeros(len(items)), items]), labels, ["new user"] * len(items))
    biases = {"user_bias": scorer.user_bias, "item_bias": scorer.item_bias}
    alone = MatrixFactorization(1, scorer.num_items, scorer.rank, **biases, scale=0.0)
    alone.item_factors, alone.item_offsets = scorer.item_factors, scorer.item_offsets
    solved = solve_users(alone, lists, loss, regularization=regularization, method=method)
    return torch.from_numpy(solved.w[0, : scorer.rank]).to(scorer.item_factors.weight.dtype)


def check_convex(loss: nn.Module) -> None:
    if not is_convex(loss):
        raise ValueError(
            f"the bundle method requires a loss that is convex in the scores, got {loss!r}; use reference='ideal', or train with "
            "FactorizationModule, or for users only another method, see user_method(loss)"
        )


def each_list(loss: nn.Module) -> nn.Module:
    """The loss without reduction."""
    loss = copy.deepcopy(loss)
    loss.reduction = "none"  # type: ignore[assignment]
    return loss


def users_of(lists: RankingData) -> np.ndarray:
    """The user of each list."""
    return lists.features[lists.offsets[:-1], 0].astype(np.int64)


def put_rows(
    factors: nn.Embedding, biases: nn.Embedding | None, values: np.ndarray, rows: np.ndarray | slice = slice(None)
) -> None:
    """Set rows of the factors and, if any, of the biases, which are the last column of `values`."""
    rank = factors.embedding_dim
    with torch.no_grad():
        for embedding, columns in ((factors, values[:, :rank]), (biases, values[:, rank:])):
            if embedding is not None:
                embedding.weight[rows] = torch.tensor(columns, dtype=embedding.weight.dtype)


def put_users(scorer: MatrixFactorization, values: np.ndarray, users: np.ndarray) -> None:
    put_rows(scorer.user_factors, scorer.user_offsets, values, users)


def _descend(problems: _UserProblems) -> SeparableSolution:
    """L-BFGS on the sum of all problems, with a common line search; no objective exceeds its initial value."""
    start = problems.start
    w = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([w], max_iter=problems.options["max_iterations"], line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = problems.objectives(w).sum()
        total.backward()
        return total

    optimizer.step(closure)
    with torch.no_grad():
        before, after = problems.objectives(start), problems.objectives(w)
        kept = torch.where((after <= before).unsqueeze(1), w, start)
    evaluations = int(optimizer.state[w]["func_evals"])
    return SeparableSolution(kept.numpy(), torch.minimum(before, after).numpy(), np.zeros(len(start)), evaluations)
