"""Propensities by context: near what was planted, with intervals that cover it as often as they say."""

from dataclasses import replace

import numpy as np
import pytest

from papers.click_models import PositionModel, simulate_clicks
from rankstruct.clicks import ClickLog, Propensities, estimate_relevance, harvest_propensities, propensities_by_context

MODEL, RANKS = PositionModel(eta=1, relevant=0.8, irrelevant=0.1), 10
CONTEXTS = np.array([[0.0, 0], [1, 1], [-1, 0], [0, 1]])


def eta(context):
    return 0.8 + 0.2 * context[:, 0] + 0.4 * context[:, 1]


def truth(context):
    return np.arange(1.0, RANKS + 1) ** -eta(context)[:, None]


def planted(seed, sessions):
    """A log of 200 queries, of three rankers, and the contexts of the queries: eta is linear in them."""
    rng = np.random.default_rng(1000 + seed)
    labels = (rng.random(4000) < 0.3).astype(float)
    lists = labels + rng.normal(size=(3, 4000)), labels, np.arange(0, 4001, 20)
    log = simulate_clicks(MODEL, *lists, sessions=sessions, cutoff=RANKS, seed=seed)
    context = np.stack([rng.normal(size=200), rng.random(200) < 0.5], 1)
    chance = truth(context)[log.query, log.position - 1] * MODEL.attraction(labels)[log.document]
    return replace(log, click=rng.random(len(log)) < chance), context


def by_context(log, context, **options):
    """With contexts in the order of the log."""
    return propensities_by_context(log, context, log.queries, **options)


def test_planted_propensities_are_recovered():
    log, context = planted(0, 80_000)
    assert 90_000 < log.click.sum() < 130_000
    found = by_context(log, context, confidence=0.999).predict(CONTEXTS)
    assert (found.values[:, 0] == 1).all()
    assert np.abs(np.log(found.values / truth(CONTEXTS))).mean() < 0.05
    assert ((found.low <= truth(CONTEXTS)) & (truth(CONTEXTS) <= found.high)).all()
    one = by_context(log, context).predict(CONTEXTS[1])
    np.testing.assert_allclose(one.values, found.values[1])
    assert (found.low[1, 1:] < one.low[1:]).all()
    assert repr(found) == "Propensities(queries=4, ranks=10; 99.9 % confidence)"
    plain = harvest_propensities(log).values  # a mixture, which is wrong for every context
    assert np.abs(np.log(plain / truth(CONTEXTS[1:3]))).mean() > 0.15


@pytest.mark.soak
@pytest.mark.parametrize("sessions", [80_000, 8000])
def test_intervals_cover_what_was_planted(sessions):
    covered, errors, expected = [], [], truth(CONTEXTS)[:, 1:]
    for seed in range(100):
        found = by_context(*planted(seed, sessions)).predict(CONTEXTS)
        covered.append((found.low[:, 1:] <= expected) & (expected <= found.high[:, 1:]))
        errors.append(np.log(found.values[:, 1:] / expected))
    assert 0.90 <= np.mean(covered) <= 0.98
    assert np.abs(np.mean(errors)) < 0.005
    if sessions == 80_000:
        assert np.abs(errors).mean() < 0.03
        assert (np.abs(errors) < 0.05).mean() > 0.9


def test_without_features_they_are_those_of_harvesting():
    rng = np.random.default_rng(0)
    labels = (rng.random(4000) < 0.3).astype(float)
    lists = rng.normal(size=(3, 4000)), labels, np.arange(0, 4001, 20)
    log = simulate_clicks(MODEL, *lists, sessions=20_000, cutoff=RANKS)
    found = by_context(log, np.zeros((200, 0))).predict(np.zeros(0))
    harvested = harvest_propensities(log)
    np.testing.assert_allclose(found.values, harvested.values, rtol=1e-9)
    wide, other = (np.log(each.high[1:] / each.low[1:]) for each in (found, harvested))
    np.testing.assert_allclose(wide, other, rtol=0.25)


def test_the_units_of_features_do_not_matter():
    log, context = planted(0, 4000)
    found = by_context(log, context).predict(context)
    other = by_context(log, 1e6 * context + 3e6).predict(1e6 * context + 3e6)
    np.testing.assert_allclose(other.values, found.values, rtol=1e-6)
    np.testing.assert_allclose(other.low, found.low, rtol=1e-6)


def test_they_are_propensities_of_relevance_estimates():
    log, context = planted(0, 80_000)
    found = by_context(log, context).predict(context, log.queries)
    true = truth(context)
    estimated = estimate_relevance(log, found, policy_aware=True)
    right = estimate_relevance(log, Propensities(true, true, true, 0.95, log.queries), policy_aware=True)
    plain = estimate_relevance(log, harvest_propensities(log), policy_aware=True)
    assert np.abs(estimated - right).mean() < 0.2 * np.abs(plain - right).mean()


def small(clicks=(1, 0, 1, 1), positions=(1, 2, 2, 1), queries=(1, 2)):
    """The same sessions of each query."""
    n = len(queries)
    return ClickLog.from_arrays(
        np.repeat(queries, 4), ["x", "y", "x", "y"] * n, positions * n, clicks * n, np.repeat(np.arange(2 * n), 2)
    )


NOTHING = np.zeros((2, 0))


def test_a_ratio_of_click_rates():
    found = by_context(small(), NOTHING).predict(NOTHING)
    np.testing.assert_allclose(found.values, [[1, 0.5]] * 2)


def test_all_clicks_say_that_all_ranks_are_examined_alike():
    found = by_context(small(clicks=(1, 1, 1, 1)), NOTHING).predict(NOTHING)
    np.testing.assert_allclose(found.values, [[1, 1]] * 2)


def test_one_rank_needs_no_estimate():
    log = ClickLog.from_arrays([1, 2], [5, 6], [1, 1], [0, 1])
    assert by_context(log, [[0.5], [1]]).predict([0.7]).high.tolist() == [1]


@pytest.mark.parametrize(
    ("log", "context", "message"),
    [
        (small(clicks=(0, 0, 0, 0)), NOTHING, "rank 2 cannot be compared with rank 1"),
        (small(positions=(1, 2, 1, 2)), NOTHING, "rank 2 cannot be compared with rank 1"),
        (small(positions=(1, 3, 3, 1)), NOTHING, "shows no document at rank 2, but at rank 3"),
        (small(clicks=(1, 0, 0, 1)), NOTHING, "the clicks do not determine the propensities: a rank has too few"),
        (ClickLog.from_arrays([], [], [], []), np.zeros((0, 1)), "the log has no rows"),
        (small(), [[1.0], [1.0]], "context feature 0 is the same for all queries"),
        (small(), [1.0], r"context must have a row of finite features for each id of query; got shapes \(1,\)"),
        (small(), [[np.nan], [1]], "context must have a row of finite features"),
        (small(), np.zeros((3, 0)), r"for each id of query; got shapes \(3, 0\) and \(2,\)"),
        (small(queries=(1,)), np.zeros((1, 0)), "but only one has documents at several ranks"),
    ],
)
def test_what_cannot_be_estimated_is_refused(log, context, message):
    with pytest.raises(ValueError, match=message):
        by_context(log, context)


def test_features_that_others_determine_are_refused():
    log, context = planted(0, 4000)
    with pytest.raises(ValueError, match="a context feature is a combination of others"):
        by_context(log, np.c_[context, context.sum(1)])
    with pytest.raises(ValueError, match="confidence must be a finite number above 0 and below 1, got 95"):
        by_context(log, context, confidence=95)
    with pytest.raises(
        ValueError, match=r"context must have 2 finite features per query, as in the log; got shape \(3,\)"
    ):
        by_context(log, context).predict([1, 2, 3])
