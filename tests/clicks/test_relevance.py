"""Relevance from clicks has the right expected value, over all patterns of clicks and all rankings."""

import itertools

import numpy as np
import pytest

from rankstruct.clicks import ClickLog, PositionModel, Propensities, TrustModel, estimate_relevance, simulate_clicks

ATTRACTION = np.array([0.9, 0.2, 0.6])
RANKINGS = [(0, 1, 2), (2, 0, 1), (1, 2, 0)]
PROPENSITY, BASE = np.array([0.9, 0.5, 0.25]), np.array([0.1, 0.05, 0.02])


def expected(chance, cutoff=3, rankings=RANKINGS, **options):
    """The expected estimate of two sessions of a query, with rankings by turns, over all patterns of clicks."""
    total = np.zeros(3)
    documents = np.array([ranking[:cutoff] for ranking in rankings])
    rows = documents.size
    position = np.tile(np.arange(1, cutoff + 1), len(rankings))
    session = np.repeat(np.arange(len(rankings)), cutoff)
    probability = chance(documents.ravel(), position - 1)
    for pattern in itertools.product([0, 1], repeat=rows):
        clicks = np.array(pattern)
        log = ClickLog.from_arrays([5] * rows, documents.ravel(), position, clicks, session)
        found = np.zeros(3)
        found[log.documents] = estimate_relevance(log, PROPENSITY[:cutoff], **options)
        total += np.where(clicks, probability, 1 - probability).prod() * found
    return total


def by_position(document, rank):
    return PROPENSITY[rank] * ATTRACTION[document]


def test_inverse_propensities_are_unbiased():
    np.testing.assert_allclose(expected(by_position), ATTRACTION, atol=1e-12)
    np.testing.assert_allclose(expected(by_position, normalize="none"), 3 * ATTRACTION, atol=1e-12)
    np.testing.assert_allclose(expected(by_position, policy_aware=True), ATTRACTION, atol=1e-12)


def test_the_affine_correction_is_unbiased_under_trust_bias():
    def trusting(document, rank):
        return PROPENSITY[rank] * ATTRACTION[document] + BASE[rank]

    np.testing.assert_allclose(expected(trusting, base=BASE), ATTRACTION, atol=1e-12)
    np.testing.assert_allclose(expected(trusting, base=BASE, policy_aware=True), ATTRACTION, atol=1e-12)
    assert (expected(trusting) > ATTRACTION + 0.05).all()


def test_behind_a_cut_off_only_policy_aware_propensities_are_unbiased():
    rankings = [(0, 1, 2), (2, 0, 1), (0, 2, 1)]
    plain = expected(by_position, cutoff=2, rankings=rankings)
    np.testing.assert_allclose(plain, ATTRACTION * [1, 1 / 3, 2 / 3], atol=1e-12)
    aware = expected(by_position, cutoff=2, rankings=rankings, policy_aware=True)
    np.testing.assert_allclose(aware, ATTRACTION, atol=1e-12)


def test_clipping_lowers_the_weight_of_low_ranks():
    clipped = expected(by_position, clip=0.5)
    np.testing.assert_allclose(clipped, ATTRACTION * np.mean([1, 1, 0.5]), atol=1e-12)


def test_self_normalised_estimates_add_up_to_the_clicks():
    log = simulate_clicks(PositionModel(), [2, 1, 0] * 9, [0, 1, 1] * 9, range(0, 28, 3), sessions=300)
    found = estimate_relevance(log, PositionModel().propensities(3), normalize="weights")
    assert found.sum() == pytest.approx(log.click.sum())
    plain = estimate_relevance(log, PositionModel().propensities(3), normalize="none")
    np.testing.assert_allclose(found / found.sum(), plain / plain.sum())


def test_a_simulated_log_gives_back_the_attraction():
    model = TrustModel(highest=2, irrelevant=0.1)
    labels = np.array([0, 1, 2, 2, 0])
    log = simulate_clicks(model, [3, 2, 1, 1, 2], labels, [0, 3, 5], sessions=60_000, temperature=2.0, cutoff=2)
    a, b = model.affine(2)
    found = estimate_relevance(log, a, base=b, policy_aware=True)
    np.testing.assert_allclose(found, model.attraction(labels), atol=0.03)


def test_a_document_that_was_never_shown_has_estimate_0():
    log = simulate_clicks(PositionModel(), [3, 2, 1], [1, 1, 1], [0, 3], sessions=20, cutoff=1)
    for policy_aware in (False, True):
        assert estimate_relevance(log, [1.0], policy_aware=policy_aware)[1:].tolist() == [0, 0]


def test_estimated_propensities_above_1_count_as_1():
    log = simulate_clicks(PositionModel(), [3, 2, 1], [1, 1, 1], [0, 3], sessions=20)
    values = np.array([1.0, 1.02, 0.5])
    estimated = Propensities(values, values, values, 0.95)
    np.testing.assert_array_equal(estimate_relevance(log, estimated), estimate_relevance(log, np.minimum(values, 1)))


@pytest.mark.parametrize(
    ("propensities", "options", "message"),
    [
        ([1.0, 0.0, 0.2], {}, "propensities must be above 0 and at most 1; that of rank 2 is 0"),
        ([1.0, 0.5, 1.2], {}, "propensities must be above 0 and at most 1; that of rank 3 is 1.2"),
        ([1.0, 0.5], {}, "propensities must be finite numbers for ranks 1 to 3, which the log has; got 2"),
        ([1.0, np.nan, 0.5], {}, "propensities must be finite numbers"),
        ([1.0, 0.5, 0.2], {"base": [0.1]}, "base must be finite numbers for ranks 1 to 3"),
        ([1.0, 0.5, 0.2], {"clip": 0}, "clip must be above 0 and at most 1, got 0"),
        ([1.0, 0.5, 0.2], {"normalize": "self"}, "normalize must be 'sessions', 'weights' or 'none', got 'self'"),
        ([1.0, 0.5, 0.2], {"normalize": "weights", "policy_aware": True}, "normalize='weights' is for plain inverse"),
    ],
)
def test_what_is_wrong_is_named(propensities, options, message):
    log = simulate_clicks(PositionModel(), [3, 2, 1], [1, 1, 1], [0, 3], sessions=20)
    with pytest.raises(ValueError, match=message):
        estimate_relevance(log, propensities, **options)
