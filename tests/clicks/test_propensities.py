"""Estimates of propensities: near what was planted, with intervals that cover it as often as they say."""

import numpy as np
import pytest

from papers.click_models import PositionModel, simulate_clicks
from rankstruct.clicks import ClickLog, harvest_propensities, propensities_by_em, propensities_by_swaps

MODEL, RANKS = PositionModel(eta=1, relevant=0.8, irrelevant=0.1), 10
ESTIMATORS = [propensities_by_swaps, harvest_propensities, propensities_by_em]


def planted(estimator, seed, sessions):
    """A log of 200 queries, with swaps or of three rankers."""
    rng = np.random.default_rng(1000 + seed)
    labels = (rng.random(4000) < 0.3).astype(float)
    rankers = labels + rng.normal(size=(3, 4000))
    swap = range(2, RANKS + 1) if estimator is propensities_by_swaps else ()
    scores = rankers[0] if swap else rankers
    lists = scores, labels, np.arange(0, 4001, 20)
    return simulate_clicks(MODEL, *lists, sessions=sessions, cutoff=RANKS, swap=swap, seed=seed)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_planted_propensities_are_recovered(estimator):
    log = planted(estimator, 0, 80_000)
    assert 90_000 < log.click.sum() < 130_000
    found, truth = estimator(log), MODEL.propensities(RANKS)
    assert found.values[0] == found.low[0] == found.high[0] == 1
    assert np.abs(np.log(found.values / truth)).mean() < 0.05
    wider = estimator(log, confidence=0.999)
    assert ((wider.low <= truth) & (truth <= wider.high)).all()
    assert (wider.low <= found.low).all()
    np.testing.assert_allclose(wider.values, found.values)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("estimator", "sessions"), [(each, 80_000) for each in ESTIMATORS] + [(e, 4000) for e in ESTIMATORS[:2]]
)
def test_intervals_cover_what_was_planted(estimator, sessions):
    truth, covered, errors = MODEL.propensities(RANKS)[1:], [], []
    for seed in range(100):
        found = estimator(planted(estimator, seed, sessions))
        covered.append((found.low[1:] <= truth) & (truth <= found.high[1:]))
        errors.append(np.log(found.values[1:] / truth))
    assert 0.90 <= np.mean(covered) <= 0.98
    if sessions == 80_000:
        assert np.abs(errors).mean() < 0.03
        assert (np.abs(errors) < 0.05).mean() > 0.9


def test_harvesting_is_not_biased_by_rare_clicks():
    """800 clicks: the mean of the log ratios of all pairs of ranks, many of which have no clicks, would be 0.2 too high."""
    found = [harvest_propensities(planted(harvest_propensities, seed, 500)).values for seed in range(60)]
    off = np.log(found).mean(0) - np.log(MODEL.propensities(RANKS))
    assert abs(off[5:].mean()) < 0.1


@pytest.mark.soak
def test_regression_em_needs_no_swaps():
    """One ranker that shows everything at one rank; attraction is a function of two features, the ranker knows another one."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(3000, 2))
    labels = (features[:, 0] > 0.5).astype(float)
    log = simulate_clicks(MODEL, rng.normal(size=3000), labels, np.arange(0, 3001, 6), sessions=60_000)
    with pytest.raises(ValueError, match="rank 2 cannot be compared with rank 1, not even by way of other ranks"):
        propensities_by_em(log)
    found = propensities_by_em(log, features)
    np.testing.assert_allclose(found.values, MODEL.propensities(6), rtol=0.1)
    with pytest.raises(ValueError, match="features must have a row for each document of the log, 3000; got"):
        propensities_by_em(log, features[:5])


def small(clicks=(1, 0, 1, 1), positions=(1, 2, 2, 1)):
    return ClickLog.from_arrays([1] * 4, ["x", "y", "x", "y"], positions, clicks, [0, 0, 1, 1])


def test_a_ratio_of_click_rates():
    log = small()
    for estimator in ESTIMATORS[:2]:
        assert estimator(log).values.tolist() == pytest.approx([1, 0.5])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_what_cannot_be_estimated_is_refused(estimator):
    with pytest.raises(ValueError, match=r"no clicks|cannot be compared"):
        estimator(small(clicks=(0, 0, 0, 0)))
    with pytest.raises(ValueError, match="rank 2 cannot be compared with rank 1"):
        estimator(small(positions=(1, 2, 1, 2)))
    with pytest.raises(ValueError, match="shows no document at rank 2, but at rank 3"):
        estimator(small(positions=(1, 3, 3, 1)))
    with pytest.raises(ValueError, match="the log has no rows"):
        estimator(ClickLog.from_arrays([], [], [], []))
    with pytest.raises(ValueError, match="confidence must be a finite number above 0 and below 1"):
        estimator(small(), confidence=95)


def test_all_clicks_say_that_all_ranks_are_examined_alike():
    for estimator in ESTIMATORS:
        assert estimator(small(clicks=(1, 1, 1, 1))).values == pytest.approx([1, 1], abs=1e-6)
