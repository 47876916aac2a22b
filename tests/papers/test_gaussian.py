"""Gaussian processes over items: posteriors by the formula, monotone EM, unrated items."""

import numpy as np
import pytest
import torch
from small_ratings import planted, tiny

import rankstruct as rs
from papers.gaussian import collaborative_gaussian_process, gaussian_process
from rankstruct.recommenders import (
    Ratings,
    item_means,
    synthetic_ratings,
)


def explicit(scorer, ratings, user):
    """The posterior mean of a user, by the joint covariance of all items."""
    mean, covariance = scorer.mean.numpy(), scorer.covariance.numpy()
    known = ratings.user == user
    pick = np.eye(len(mean))[ratings.item[known]]
    joint = pick @ covariance @ pick.T + scorer.noise * np.eye(known.sum())
    return mean + covariance @ pick.T @ np.linalg.solve(joint, ratings.rating[known] - pick @ mean)


@pytest.mark.parametrize("fit", [gaussian_process, collaborative_gaussian_process])
@pytest.mark.parametrize("kernel", [None, "linear", "rbf"])
def test_scores_are_the_posterior_mean(fit, kernel):
    ratings = tiny()
    features = np.array([[1.0, 0], [-1, 1], [0, 2], [1, 1]])
    scorer = fit(ratings) if kernel is None else fit(ratings, features=features, kernel=kernel)
    scores = scorer.item_scores(torch.arange(3))
    for user in range(3):
        np.testing.assert_allclose(scores[user].numpy(), explicit(scorer, ratings, user), rtol=1e-5)
    torch.testing.assert_close(scores[2], scorer.mean.float())
    assert scores.isfinite().all()
    pairs = torch.tensor([[[2.0, 1], [0, 3]], [[1, 0], [0, 0]]])
    torch.testing.assert_close(scorer(pairs), scores[[[2, 0], [1, 0]], [[1, 3], [0, 0]]])
    torch.testing.assert_close(scorer.item_scores(torch.tensor(1)), scores[1])


def test_one_step_of_em_is_the_moments_of_the_posteriors():
    ratings, shrinkage = tiny(), 2.0
    before, after = (
        gaussian_process(ratings),
        collaborative_gaussian_process(ratings, noise=0.5, shrinkage=shrinkage, steps=1),
    )
    base_mean, base = item_means(ratings).scores.double().numpy(), before.covariance.numpy()
    before.mean.copy_(torch.from_numpy(base_mean))
    means, spreads = [], []
    for user in range(2):
        pick = np.eye(4)[ratings.item[ratings.user == user]]
        joint = pick @ base @ pick.T + before.noise * np.eye(len(pick))
        means.append(explicit(before, ratings, user))
        spreads.append(base - base @ pick.T @ np.linalg.solve(joint, pick @ base))
    mean = (shrinkage * base_mean + sum(means)) / (shrinkage + 2)
    moments = sum(np.outer(m - mean, m - mean) + c for m, c in zip(means, spreads, strict=True))
    covariance = shrinkage * (base + np.outer(mean - base_mean, mean - base_mean)) + moments
    np.testing.assert_allclose(after.mean.numpy(), mean, rtol=1e-10)
    np.testing.assert_allclose(after.covariance.numpy(), covariance / (shrinkage + 2), rtol=1e-10)


@pytest.mark.parametrize("shrinkage", [0.1, 10.0])
@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_em_never_falls(noise, shrinkage):
    ratings = synthetic_ratings(users=60, items=25, rated=12)
    scorer = collaborative_gaussian_process(ratings, noise=noise, shrinkage=shrinkage, steps=15)
    gains = np.diff(scorer.history)
    assert len(gains) == 14
    assert (gains > -1e-8 * np.abs(scorer.history[1:])).all()
    assert scorer.history[-1] > scorer.history[0]


def test_it_beats_item_means_on_planted_ratings_for_known_and_new_users():
    train, value = planted()
    base = value(item_means(train))
    assert value(collaborative_gaussian_process(train, steps=15)) > base + 0.03
    half = train.select_users(np.arange(100))
    assert value(collaborative_gaussian_process(half, steps=15).given(train)) > base + 0.03


def test_saved_scores(tmp_path):
    scorer = collaborative_gaussian_process(tiny(), steps=2)
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    again = rs.load_scorer(tmp_path / "scorer.pt", trusted=["papers"])
    assert torch.equal(again.item_scores(torch.arange(3)), scorer.item_scores(torch.arange(3)))


def test_without_ratings_and_with_equal_ones():
    nothing = tiny().select(np.zeros(5, bool))
    assert collaborative_gaussian_process(nothing).item_scores(torch.arange(3)).tolist() == [[3.0] * 4] * 3
    same = Ratings.from_arrays(["a", "b"], ["x", "y"], [4, 4], scale="stars")
    torch.testing.assert_close(gaussian_process(same).item_scores(torch.arange(2)), torch.full((2, 2), 4.0))


def test_errors():
    for wrong, message in (({"noise": 0.0}, "noise"), ({"shrinkage": 0.0}, "shrinkage"), ({"steps": 0}, "steps")):
        with pytest.raises(ValueError, match=message):
            collaborative_gaussian_process(tiny(), **wrong)
    with pytest.raises(ValueError, match="features must have one row for each of 4 items, got 3"):
        gaussian_process(tiny(), features=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="ratings must be of 4 items"):
        gaussian_process(tiny()).given(synthetic_ratings(users=5, rated=10))
