"""Ordinal Gaussian processes: derivatives of the likelihood, modes that are stationary, evidence, the collaborative form."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from small_ratings import planted, tiny

import rankstruct as rs
from papers.gaussian import _laplace, _Noise, _ordinal, collaborative_gaussian_process, gaussian_process
from rankstruct.recommenders import (
    Ratings,
    item_means,
    synthetic_ratings,
)

CUTS = np.array([-1.5, -0.5, 0.1, 1.4])


def log_likelihood(f, grade, scorer):
    cuts = np.concatenate([[-np.inf], scorer.thresholds.numpy(), [np.inf]])
    root = np.sqrt(scorer.noise)
    return np.log(norm.cdf((cuts[grade + 1] - f) / root) - norm.cdf((cuts[grade] - f) / root))


@pytest.mark.parametrize("variance", [0.1, 1.0, 3.0])
def test_derivatives_by_finite_differences_and_grades_add_up_to_1(variance):
    noise = _Noise(variance, CUTS)
    f, step = np.linspace(-3, 3, 41), 1e-5
    total = 0.0
    for grade in range(5):
        grades = np.full(len(f), grade)
        value, slope, curvature = _ordinal(f, grades, noise)
        up, down = _ordinal(f + step, grades, noise), _ordinal(f - step, grades, noise)
        np.testing.assert_allclose(slope, (up[0] - down[0]) / (2 * step), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(curvature, -(up[1] - down[1]) / (2 * step), rtol=1e-5, atol=1e-6)
        total += np.exp(value)
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)


def test_far_from_the_thresholds_it_stays_finite():
    far = np.array([-300.0, -30, 30, 300])
    for grade in range(5):
        value, slope, curvature = _ordinal(far, np.full(4, grade), _Noise(0.5, CUTS))
        assert np.isfinite(value).all()
        assert np.isfinite(slope).all()
        assert ((curvature >= 0) & (curvature < 2.1)).all()
        if 0 < grade < 4:  # the log likelihood falls as a parabola
            np.testing.assert_allclose(slope[[0, -1]], (CUTS[[grade - 1, grade]] - far[[0, -1]]) / 0.5, rtol=1e-3)


@pytest.mark.parametrize("variance", [0.05, 1.0])
@pytest.mark.parametrize("size", [1, 7, 40])
def test_the_mode_is_stationary_whatever_the_start(size, variance):
    rng = np.random.default_rng(size)
    root = rng.standard_normal((size, 5))
    covariance, mean = root @ root.T + 0.3 * np.eye(size), rng.standard_normal(size)
    grades, noise = rng.integers(0, 5, size), _Noise(variance, CUTS)
    found = [_laplace(grades, mean, covariance, noise, start) for start in (np.zeros(size), rng.standard_normal(size))]
    for w, inverse, _ in found:
        _, slope, curvature = _ordinal(mean + covariance @ w, grades, noise)
        np.testing.assert_allclose(w, slope, atol=1e-5)
        np.testing.assert_allclose(inverse @ (covariance + np.diag(1 / curvature)), np.eye(size), atol=1e-3)
    assert found[0][2] == pytest.approx(found[1][2], abs=1e-4)


def test_of_one_rating_mode_and_evidence_are_near_those_by_quadrature():
    ratings = Ratings.from_arrays(["a"], ["x"], [5], scale="stars")
    scorer = gaussian_process(ratings, likelihood="ordinal", noise=1.0)

    def density(f):
        return norm.pdf(f) * np.exp(log_likelihood(f, 4, scorer))

    mass = quad(density, -5, 5)[0]
    mean = quad(lambda f: f * density(f), -5, 5)[0] / mass
    assert scorer.item_scores(torch.tensor(0)).item() == pytest.approx(mean, abs=0.1)
    evidence = _laplace(
        np.array([4]), np.zeros(1), np.ones((1, 1)), _Noise(1.0, scorer.thresholds.numpy()), np.zeros(1)
    )[2]
    assert evidence == pytest.approx(np.log(mass), abs=0.1)


def test_thresholds_are_where_the_prior_expects_the_grades():
    ratings = synthetic_ratings(users=60, items=40, rated=20)
    for noise in (0.3, 2.0):
        cuts = gaussian_process(ratings, likelihood="ordinal", noise=noise).thresholds.numpy()
        shares = np.bincount(ratings.rating.astype(int), minlength=6)[1:] / ratings.num_ratings
        expected = np.diff(norm.cdf(cuts / np.sqrt(1 + noise)), prepend=0, append=1)
        np.testing.assert_allclose(expected, shares, atol=0.005)


@pytest.mark.parametrize("fit", [gaussian_process, collaborative_gaussian_process])
def test_scores_are_the_mode_of_the_joint_posterior(fit):
    ratings = tiny()
    scorer = fit(ratings, features=np.array([[1.0, 0], [-1, 1], [0, 2], [1, 1]]), likelihood="ordinal")
    scores = scorer.item_scores(torch.arange(3)).double().numpy()
    mean, precision = scorer.mean.numpy(), np.linalg.inv(scorer.covariance.numpy())

    def log_posterior(f, user):
        mine = ratings.user == user
        known = sum(
            log_likelihood(f[i], int(r) - 1, scorer)
            for i, r in zip(ratings.item[mine], ratings.rating[mine], strict=True)
        )
        return known - 0.5 * (f - mean) @ precision @ (f - mean)

    for user in range(3):
        best = log_posterior(scores[user], user)
        for way in np.concatenate([np.eye(4), -np.eye(4)]):
            assert log_posterior(scores[user] + 0.01 * way, user) < best
    np.testing.assert_allclose(scores[2], mean, rtol=1e-6)


def test_collaborative_form_learns_known_and_new_users_and_is_saved(tmp_path):
    train, value = planted()
    half = train.select_users(np.arange(100))
    scorer = collaborative_gaussian_process(half, steps=8, likelihood="ordinal").given(train)
    assert value(scorer) > value(item_means(train)) + 0.03
    assert len(scorer.history) == 8
    assert scorer.history[-1] > scorer.history[0]
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    again = rs.load_scorer(tmp_path / "scorer.pt", trusted=["papers"])
    users = torch.arange(5)
    assert torch.equal(again.given(train).item_scores(users), scorer.item_scores(users))


def test_without_ratings_and_errors():
    nothing = tiny().select(np.zeros(5, bool))
    assert not collaborative_gaussian_process(nothing, likelihood="ordinal").item_scores(torch.arange(3)).any()
    with pytest.raises(ValueError, match="likelihood must be one of gaussian, ordinal, got 'probit'"):
        gaussian_process(tiny(), likelihood="probit")
