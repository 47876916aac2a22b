"""Ordinal perceptrons: the updates by hand and in primal form, the bound on mistakes, kernels of pairs."""

import numpy as np
import pytest
import torch
from small_ratings import planted

import rankstruct as rs
from papers.perceptron import joint_kernels, jrank, prank
from rankstruct.recommenders import (
    Ratings,
    item_means,
    synthetic_ratings,
)


def primal(features, stars, epochs):
    """PRank as it is published: ranks 1 to 5, a vector w, thresholds b; w and b after each example."""
    w, b, states, off = np.zeros(features.shape[1]), np.zeros(4), [], 0
    for _ in range(epochs):
        for x, y in zip(features, stars, strict=True):
            predicted = next((r for r in range(1, 5) if w @ x - b[r - 1] < 0), 5)
            off += abs(predicted - y)
            moves = np.zeros(4)
            if predicted != y:
                for r in range(1, 5):
                    side = -1 if y <= r else 1
                    if (w @ x - b[r - 1]) * side <= 0:
                        moves[r - 1] = side
            w, b = w + moves.sum() * x, b - moves
            states.append((w, b))
    return states, off


def test_two_updates_by_hand():
    ratings = Ratings.from_arrays(["a", "a"], ["x", "y"], [3, 1], scale="stars")
    features = np.array([[1.0, 0], [1, 1]])
    # x: all scores and thresholds are 0, so 5 is predicted for 3: thresholds 1 and 2 fall, 3 and 4 rise, w stays 0.
    # y: the score 0 is not below -1, -1, and below 1, 1, so 3 is predicted for 1: 1 and 2 rise to 0, and w falls by 2 y.
    scorer = prank(ratings, features=features)
    assert scorer.thresholds.tolist() == [[0.0, 0.0, 1.0, 1.0]]
    assert scorer.item_scores(torch.tensor([0])).tolist() == [[-2.0, -4.0]]
    assert scorer.history == (4,)
    averaged = prank(ratings, features=features, averaged=True)
    assert averaged.thresholds.tolist() == [[-0.5, -0.5, 1.0, 1.0]]
    assert averaged.scores.tolist() == [[-1.0, -2.0]]


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("averaged", [False, True])
def test_the_dual_form_is_the_primal_one_for_each_user(epochs, averaged):
    ratings = synthetic_ratings(users=6, items=15, rated=12)
    features = np.random.default_rng(0).integers(-3, 4, (15, 4)).astype(float)
    scorer = prank(ratings, features=features, epochs=epochs, averaged=averaged)
    total = 0
    for user in range(6):
        mine = ratings.user == user
        states, off = primal(features[ratings.item[mine]], ratings.rating[mine], epochs)
        w, b = states[-1]
        if averaged:
            # 72 steps a pass: before the first of a user w = 0, and the last of a pass lasts while the others are seen.
            counts = np.ones(len(states))
            counts[11::12] += 60
            counts[-1] -= 12 * user
            assert counts.sum() == 72 * epochs - 12 * user
            w, b = (sum(c * s[i] for c, s in zip(counts, states, strict=True)) / (72 * epochs) for i in range(2))
        np.testing.assert_allclose(scorer.scores[user], features @ w, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(scorer.thresholds[user], b, rtol=1e-5, atol=1e-5)
        assert (np.diff(scorer.thresholds[user]) >= 0).all()
        total += off
    assert sum(scorer.history) == total


@pytest.mark.parametrize("seed", range(3))
def test_mistakes_are_bounded_and_end_where_thresholds_separate(seed):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((60, 3))
    w, b = rng.standard_normal(3), np.sort(rng.standard_normal(4))
    scores = features @ w
    kept = np.abs(scores[:, None] - b).min(1) > 0.1
    features, scores = features[kept], scores[kept]
    stars = 1 + (scores[:, None] >= b).sum(1)
    ratings = Ratings.from_arrays([0] * len(stars), np.arange(len(stars)), stars, scale="stars")
    scorer = prank(ratings, features=features, epochs=500)
    margin = np.abs(scores[:, None] - b).min() / np.sqrt(w @ w + b @ b)
    radius = (features**2).sum(1).max()
    assert 0 < sum(scorer.history) <= 4 * (radius + 1) / margin**2
    assert scorer.history[-1] == 0
    graded = (scorer.scores[0][:, None] >= scorer.thresholds[0]).sum(1)
    assert graded.tolist() == (stars - 1).tolist()


def test_jrank_of_one_user_and_a_linear_kernel_is_prank():
    ratings = synthetic_ratings(users=1, items=30, rated=25)
    features = np.random.default_rng(1).standard_normal((30, 5))
    ours, theirs = (
        jrank(ratings, user_kernel=np.ones((1, 1)), item_kernel=features @ features.T, epochs=3),
        prank(ratings, features=features, epochs=3),
    )
    torch.testing.assert_close(ours.scores, theirs.scores)
    torch.testing.assert_close(ours.thresholds, theirs.thresholds)
    assert ours.history == theirs.history


def test_jrank_is_the_primal_perceptron_on_products_of_features():
    ratings = synthetic_ratings(users=5, items=12, rated=8)
    rng = np.random.default_rng(2)
    users, items = rng.integers(-2, 3, (5, 2)).astype(float), rng.integers(-2, 3, (12, 3)).astype(float)
    pairs = np.einsum("ua,ib->uiab", users, items).reshape(5, 12, 6)
    states, off = primal(pairs[ratings.user, ratings.item], ratings.rating, 2)
    w, b = states[-1]
    scorer = jrank(ratings, user_kernel=users @ users.T, item_kernel=items @ items.T, epochs=2)
    np.testing.assert_allclose(scorer.scores, pairs @ w, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(scorer.thresholds, np.tile(b, (5, 1)), rtol=1e-5)
    assert sum(scorer.history) == off


def test_they_rank_planted_ratings_that_were_not_seen():
    train, value = planted()
    base = value(item_means(train))
    assert value(prank(train, epochs=3, averaged=True)) > base - 0.05
    assert value(jrank(train, epochs=5, averaged=True, seed=0)) > base


def test_kernels_of_pairs_are_positive_and_have_the_parts():
    ratings = synthetic_ratings(users=9, items=14, rated=5)
    features = np.random.default_rng(0).standard_normal((14, 3))
    users, items = joint_kernels(ratings, item_features=features)
    assert users.shape == (9, 9)
    for matrix in (users, items):
        np.testing.assert_allclose(matrix, matrix.T)
        assert np.linalg.eigvalsh(matrix).min() > 0
    means = np.array([ratings.rating[ratings.user == u].mean() for u in range(9)])
    table = np.zeros((9, 14))
    table[ratings.user, ratings.item] = ratings.rating - means[ratings.user]
    dot = table[0] @ table[1] / np.sqrt((table[0] @ table[0]) * (table[1] @ table[1]))
    assert users[0, 1] == pytest.approx((1 + dot) / 3, abs=1e-6)


@pytest.mark.parametrize("fit", [prank, jrank])
def test_saved_scores_missing_ratings_and_errors(fit, tmp_path):
    ratings = synthetic_ratings(users=6, items=10, rated=4)
    scorer = fit(ratings, epochs=2, seed=1)
    pairs = torch.tensor([[[2.0, 1], [0, 3]], [[1, 0], [0, 0]]])
    table = scorer.item_scores(torch.arange(6))
    torch.testing.assert_close(scorer(pairs), table[[[2, 0], [1, 0]], [[1, 3], [0, 0]]])
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    again = rs.load_scorer(tmp_path / "scorer.pt", trusted=["papers"])
    assert torch.equal(again.scores, scorer.scores)
    assert torch.equal(again.thresholds, scorer.thresholds)
    empty = fit(ratings.select(np.zeros(ratings.num_ratings, bool)), averaged=True)
    assert not empty.scores.any()
    with pytest.raises(ValueError, match="epochs must be an integer from 1"):
        fit(ratings, epochs=0)
    with pytest.raises(ValueError, match="features must have 10 rows, got 3"):
        prank(ratings, features=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="item_kernel must have 10 rows, got 3"):
        jrank(ratings, item_kernel=np.zeros((3, 3)))
