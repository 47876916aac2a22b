"""Recommenders: factors of users with the items fixed, the best items, baselines."""

import numpy as np
import pytest
import torch

import rankstruct as rs
from rankstruct.recommenders import (
    Ratings,
    adopt_users,
    item_means,
    new_user,
    popularity,
    recommend,
    solve_users,
    synthetic_ratings,
    user_method,
)


def small(**options):
    return synthetic_ratings(users=40, items=30, rank=2, rated=15, **options)


def test_solved_users_are_no_worse_than_gradient_descent():
    ratings, loss = small(), rs.ListNetLoss()
    scorer = rs.MatrixFactorization(40, 30, rank=3, scale=0.5)
    lists = ratings.to_lists()
    smooth = solve_users(scorer, lists, loss, regularization=0.1, method="lbfgs", max_iterations=200)
    exact = solve_users(scorer, lists, loss, regularization=0.1, tolerance=1e-4, max_iterations=100)
    assert exact.gap < 1e-3
    assert (exact.lower_bound <= smooth.objective + 1e-9).all()
    np.testing.assert_allclose(smooth.objective, exact.objective, rtol=1e-2)


def test_a_new_user_gets_the_factor_that_training_would_give():
    ratings, loss = small(), rs.StructuredHingeLoss("AUC")
    scorer = rs.MatrixFactorization(40, 30, rank=3, scale=0.5)
    lists = ratings.to_lists()
    solved = solve_users(scorer, lists, loss, regularization=0.5, tolerance=1e-5, max_iterations=200)
    rated = slice(*ratings.offsets[7:9])
    factor = new_user(scorer, ratings.item[rated], ratings.grades()[rated], loss, regularization=0.5)
    np.testing.assert_allclose(factor, solved.w[7], atol=0.05)
    assert scorer.factor_scores(factor).shape == (30,)
    assert not new_user(scorer, [], [], loss).any()


def test_recommend_leaves_out_what_was_rated():
    ratings = small()
    scorer = rs.MatrixFactorization(40, 30, rank=3)
    users = [3, 0, 39]
    items, scores = recommend(scorer, users, k=20, exclude=ratings)
    for row, user in enumerate(users):
        every = scorer(torch.stack([torch.full((30,), float(user)), torch.arange(30.0)], 1)).detach()
        rated = set(ratings.item[ratings.user == user].tolist())
        order = [item for item in every.argsort(descending=True).tolist() if item not in rated]
        assert items[row].tolist() == order + [-1] * 5
        torch.testing.assert_close(scores[row, :15], every[order])
        assert (scores[row, 15:] == -torch.inf).all()
    alone, _ = recommend(scorer, 3, k=20, exclude=ratings)
    assert torch.equal(alone, items[0])
    assert recommend(scorer, 3, k=50)[0].shape == (30,)  # all items
    with pytest.raises(ValueError, match="k must be"):
        recommend(scorer, 3, k=0)
    with pytest.raises(ValueError, match="users must be from 0 to 39"):
        recommend(popularity(ratings), 40, exclude=ratings)


def test_baselines():
    ratings = Ratings.from_arrays(
        [1, 1, 2], ["a", "b", "a"], [5, 3, 2], scale="stars", item_names=np.array(["a", "b", "c"])
    )
    assert popularity(ratings).scores.tolist() == [2, 1, 0]
    torch.testing.assert_close(item_means(ratings, prior=0.0).scores, torch.tensor([3.5, 3.0, 10 / 3]))
    features = torch.from_numpy(ratings.to_lists().features)
    assert popularity(ratings)(features).tolist() == [2, 1, 2]


@pytest.mark.parametrize(
    ("loss", "method"),
    [
        (rs.StructuredHingeLoss("AUC"), "bundle"),
        (rs.SmoothLoss("nDCG@10"), "lbfgs"),
        (rs.StructuredHingeLoss("nDCG@5", feature_map="positional", reference="predicted"), "dc"),
    ],
)
def test_the_method_of_a_loss_lowers_every_users_objective(loss, method):
    assert user_method(loss) == method
    scorer = rs.MatrixFactorization(40, 30, rank=3, scale=0.5)
    lists = small().to_lists()

    def objective(w):
        rows = torch.from_numpy(w).repeat_interleave(torch.from_numpy(lists.lengths), 0)
        items = torch.from_numpy(lists.features[:, 1]).long()
        scores = (rows * scorer.item_factors.weight.detach().double()[items]).sum(1)
        found = [
            float(loss(scores[rows], torch.from_numpy(lists.labels[rows])))
            for rows in (slice(*lists.offsets[i : i + 2]) for i in range(lists.num_lists))
        ]
        return np.array(found) + 0.05 * np.square(w).sum(1)

    before = objective(scorer.user_factors.weight.detach().double().numpy())
    solved = solve_users(scorer, lists, loss, regularization=0.1, method=method)
    np.testing.assert_allclose(solved.objective, objective(solved.w), rtol=1e-5)
    assert (solved.objective <= before + 1e-6).all()
    assert solved.objective.mean() < before.mean() - 0.02


def test_dc_needs_a_reference_that_scores_choose():
    with pytest.raises(ValueError, match="method 'dc' requires a loss whose reference depends on the scores"):
        solve_users(rs.MatrixFactorization(40, 30), small().to_lists(), rs.ListNetLoss(), method="dc")


@pytest.mark.parametrize("user_bias", [False, True])
def test_adopted_users_have_the_factors_of_least_squares(user_bias):
    ratings = small()
    scorer = rs.MatrixFactorization(40, 30, rank=3, user_bias=user_bias, scale=0.5)
    kept = scorer.user_factors.weight[20:].clone(), scorer.item_factors.weight.clone()
    chosen = ratings.select_users(np.arange(20))
    adopt_users(scorer, chosen.to_lists(), rs.SquaredLoss(), regularization=0.2, method="lbfgs")
    assert torch.equal(scorer.user_factors.weight[20:], kept[0])
    assert torch.equal(scorer.item_factors.weight, kept[1])
    for user in range(20):
        rated = slice(*ratings.offsets[user : user + 2])
        V = scorer.item_factors.weight.detach().double().numpy()[ratings.item[rated]]
        V = np.concatenate([V, np.ones((len(V), 1))], 1) if user_bias else V
        exact = np.linalg.solve(
            2 * V.T @ V / len(V) + 0.2 * np.eye(V.shape[1]), 2 * V.T @ ratings.grades()[rated] / len(V)
        )
        np.testing.assert_allclose(scorer.user_factors.weight[user].detach(), exact[:3], atol=1e-2)
        if user_bias:
            assert scorer.user_offsets.weight[user].item() == pytest.approx(exact[3], abs=1e-2)
            factor = new_user(
                scorer, ratings.item[rated], ratings.grades()[rated], rs.SquaredLoss(), regularization=0.2
            )
            np.testing.assert_allclose(factor, exact[:3], atol=0.1)


def test_new_users_keep_their_factors_if_solving_fails():
    ratings = small()
    scorer = rs.MatrixFactorization(40, 30, rank=3)
    before = scorer.user_factors.weight.clone()
    with pytest.raises(ValueError, match="regularization must be a finite number above 0"):
        adopt_users(scorer, ratings.to_lists(), rs.ListNetLoss(), regularization=0)
    assert torch.equal(scorer.user_factors.weight, before)
