"""Relevance from clicks has the right expected value, over all patterns of clicks and all rankings."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.click_models import PositionModel, TrustModel, simulate_clicks
from rankstruct.clicks import ClickLog, Propensities, estimate_relevance

ATTRACTION = np.array([0.9, 0.2, 0.6])
RANKINGS = [(0, 1, 2), (2, 0, 1), (1, 2, 0)]
PROPENSITY, BASE = np.array([0.9, 0.5, 0.25]), np.array([0.1, 0.05, 0.02])


def expected(chance, cutoff=3, rankings=RANKINGS, propensities=PROPENSITY, **options):
    """The expected estimate of sessions of a query, with rankings by turns, over all patterns of clicks."""
    total = np.zeros(3)
    documents = np.array([ranking[:cutoff] for ranking in rankings])
    rows = documents.size
    position = np.tile(np.arange(1, cutoff + 1), len(rankings))
    session = np.repeat(np.arange(len(rankings)), cutoff)
    probability = chance(documents.ravel(), position - 1)
    for pattern in itertools.product([0, 1], repeat=rows):
        clicks = np.array(pattern)
        query = np.zeros(rows, np.int32)
        log = ClickLog(
            session, query, documents.ravel(), position, clicks > 0, np.array([5]), np.arange(3), of_table=True
        )
        found = estimate_relevance(log, propensities[:cutoff], **options)
        total += np.where(clicks, probability, 1 - probability).prod() * found
    return total


def by_position(document, rank):
    return PROPENSITY[rank] * ATTRACTION[document]


def test_inverse_propensities_are_unbiased():
    np.testing.assert_allclose(expected(by_position), ATTRACTION, atol=1e-12)
    np.testing.assert_allclose(expected(by_position, normalize="none"), 3 * ATTRACTION, atol=1e-12)
    np.testing.assert_allclose(expected(by_position, policy_aware=True), ATTRACTION, atol=1e-12)


def test_the_affine_correction_is_unbiased_under_trust_bias():
    np.testing.assert_allclose(expected(trusting, base=BASE), ATTRACTION, atol=1e-12)
    np.testing.assert_allclose(expected(trusting, base=BASE, policy_aware=True), ATTRACTION, atol=1e-12)
    assert (expected(trusting) > ATTRACTION + 0.05).all()


def trusting(document, rank):
    return PROPENSITY[rank] * ATTRACTION[document] + BASE[rank]


WRONG = np.array([0.3, 0.7, 0.1])
RIGHT_OPTIONS = [
    {"prediction": ATTRACTION, "clip": 0.6},  # wrong weights, right prediction
    {"prediction": WRONG},  # right weights, wrong prediction
    {"prediction": WRONG, "policy_aware": True},
    {"prediction": ATTRACTION, "policy_aware": True, "clip": 0.6},
    {"prediction": ATTRACTION, "exposure": [0.9, 0.1, 0.4]},
    {"prediction": WRONG, "exposure": [PROPENSITY.mean()] * 3},
    {"exposure": [PROPENSITY.mean()] * 3},
]


@pytest.mark.parametrize("options", RIGHT_OPTIONS)
@pytest.mark.parametrize("base", [None, BASE])
def test_doubly_robust_estimates_are_unbiased_if_prediction_or_weights_are_right(options, base):
    chance = by_position if base is None else trusting
    np.testing.assert_allclose(expected(chance, base=base, **options), ATTRACTION, atol=1e-12)


def test_doubly_robust_estimates_are_biased_if_prediction_and_weights_are_wrong():
    for wrong in ({"clip": 0.6}, {"exposure": [0.9, 0.1, 0.4]}):
        assert np.abs(expected(by_position, prediction=WRONG, **wrong) - ATTRACTION).min() > 0.02


def test_a_right_prediction_does_not_make_up_for_wrong_propensities():
    found = expected(by_position, propensities=PROPENSITY**2, prediction=ATTRACTION)
    assert (found > ATTRACTION + 0.05).all()


def test_a_prediction_stands_in_for_what_a_cut_off_hides():
    rankings = [(0, 1, 2), (2, 0, 1), (0, 2, 1)]
    found = expected(by_position, cutoff=2, rankings=rankings, prediction=ATTRACTION)
    np.testing.assert_allclose(found, ATTRACTION, atol=1e-12)
    shown = np.array([1, 1 / 3, 2 / 3])
    found = expected(by_position, cutoff=2, rankings=rankings, prediction=WRONG, policy_aware=False)
    np.testing.assert_allclose(found, ATTRACTION * shown + WRONG * (1 - shown), atol=1e-12)
    # One of the three random rankings in each session, drawn alike: by the expected exposure the estimate is right again.
    exposure = [sum(PROPENSITY[ranking.index(d)] for ranking in rankings if ranking.index(d) < 2) / 3 for d in range(3)]
    drawn = [
        expected(by_position, 2, each, exposure=exposure, prediction=WRONG)
        for each in itertools.product(rankings, repeat=2)
    ]
    np.testing.assert_allclose(np.mean(drawn, axis=0), ATTRACTION, atol=1e-12)


def test_without_a_cut_off_and_clip_the_prediction_cancels():
    log = simulate_clicks(PositionModel(), [2, 1, 0] * 9, [0, 1, 1] * 9, range(0, 28, 3), sessions=300)
    p = PositionModel().propensities(3)
    given = [estimate_relevance(log, p, prediction=np.full(27, each)) for each in (0.1, 0.8)]
    np.testing.assert_allclose(*given, atol=1e-12)


def test_a_doubly_robust_estimate_varies_less_than_a_plain_one():
    model, lists = PositionModel(), (np.zeros(20), [1, 0] * 10, [0, 20])
    found = {"plain": [], "robust": []}
    exposure = np.full(20, model.propensities(5).sum() / 20)
    for seed in range(200):
        log = simulate_clicks(model, *lists, sessions=100, cutoff=5, temperature=1.0, seed=seed)
        for name, prediction in (("plain", None), ("robust", [0.9, 0.2] * 10)):
            given = {"exposure": exposure, "prediction": prediction}
            found[name].append(estimate_relevance(log, model.propensities(5), **given))
    np.testing.assert_allclose(np.mean(found["robust"], axis=0), [1, 0.1] * 10, atol=0.1)
    assert np.var(found["robust"], axis=0)[::2].mean() < 0.8 * np.var(found["plain"], axis=0)[::2].mean()


def test_propensities_by_query():
    rng = np.random.default_rng(0)
    log = simulate_clicks(PositionModel(), rng.normal(size=12), [0, 1, 1] * 4, range(0, 13, 3), sessions=400)
    table, order = rng.uniform(0.2, 1, (4, 3)), rng.permutation(4)
    shuffled = table[order]
    found = estimate_relevance(log, Propensities(shuffled, shuffled, shuffled, 0.95, queries=order))
    for query in range(4):
        np.testing.assert_array_equal(
            found[3 * query : 3 * query + 3], estimate_relevance(log, table[query])[3 * query : 3 * query + 3]
        )


def test_behind_a_cut_off_only_policy_aware_propensities_are_unbiased():
    rankings = [(0, 1, 2), (2, 0, 1), (0, 2, 1)]
    plain = expected(by_position, cutoff=2, rankings=rankings, policy_aware=False)
    np.testing.assert_allclose(plain, ATTRACTION * [1, 1 / 3, 2 / 3], atol=1e-12)
    aware = expected(by_position, cutoff=2, rankings=rankings, policy_aware=True)
    np.testing.assert_allclose(aware, ATTRACTION, atol=1e-12)


def test_clipping_lowers_the_weight_of_low_ranks():
    clipped = expected(by_position, clip=0.5, policy_aware=False)
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


def by_query(*values, queries):
    return Propensities(np.array(values), np.array(values), np.array(values), 0.95, queries)


@pytest.mark.parametrize(
    ("propensities", "options", "message"),
    [
        ([1.0, 0.0, 0.2], {}, "propensities must be above 0 and at most 1; that of rank 2 is 0"),
        ([1.0, 0.5, 1.2], {}, "propensities must be above 0 and at most 1; that of rank 3 is 1.2"),
        ([1.0, 0.5], {}, "propensities must be finite numbers for ranks 1 to 3, which the log has; got 2"),
        ([1.0, np.nan, 0.5], {}, "propensities must be finite numbers"),
        ([1.0, 0.5, 0.2], {"base": [0.1]}, "base must be finite numbers for ranks 1 to 3"),
        ([1.0, 0.5, 0.2], {"clip": 0}, "clip must be a finite number above 0 and at most 1, got 0"),
        ([1.0, 0.5, 0.2], {"normalize": "self"}, "normalize must be one of 'sessions', 'weights', 'none', got 'self'"),
        ([1.0, 0.5, 0.2], {"normalize": "weights", "policy_aware": True}, "normalize='weights' is for plain inverse"),
        (
            [1.0, 0.5, 0.2],
            {"normalize": "weights", "prediction": [0, 0, 0]},
            "normalize='weights' is for plain inverse",
        ),
        ([1.0, 0.5, 0.2], {"policy_aware": True, "exposure": [1, 1, 1]}, "pass it or exposure=, not both"),
        (
            [1.0, 0.5, 0.2],
            {"exposure": [1, 0, 1]},
            "exposure must be above 0 for documents that were shown, and at most",
        ),
        ([1.0, 0.5, 0.2], {"exposure": [1, 1, 1.5]}, "exposure must be .* at most 1; that of document 2 is 1.5"),
        ([1.0, 0.5, 0.2], {"prediction": [0.5]}, "prediction must be a finite number for each of the 3 documents; got"),
        ([1.0, 0.5, 0.2], {"prediction": [0.5, 0, np.nan]}, "prediction must be a finite number .* NaN or infinite"),
        ([[1.0, 0.5, 0.2]], {}, "propensities that differ by query need the names of the queries"),
        (
            by_query([1.0, 0.5, 0.2], queries=None),
            {},
            "propensities that differ by query need the names of the queries",
        ),
        (by_query([1.0, 0.5, 0.2], queries=[1]), {}, "one row for each query of the log, and there is none for 0"),
        (by_query([1.0, 0.5, 0.2], [1.0, 0.5, 0.2], queries=[0, 0]), {}, "must have one row for each query of the log"),
        (by_query([1.0, 0.5, 0], queries=[0]), {}, "that of rank 3 and query 0 is 0"),
    ],
)
def test_what_is_wrong_is_named(propensities, options, message):
    log = simulate_clicks(PositionModel(), [3, 2, 1], [1, 1, 1], [0, 3], sessions=20)
    with pytest.raises(ValueError, match=message):
        estimate_relevance(log, propensities, **options)


@settings(max_examples=40, deadline=None)
@given(
    rankings=st.lists(st.permutations(range(3)), min_size=1, max_size=3),
    cutoff=st.integers(1, 3),
    attraction=st.lists(st.floats(0, 1), min_size=3, max_size=3),
)
def test_the_default_has_the_true_expectation_whatever_was_shown(rankings, cutoff, attraction):
    attraction = np.array(attraction)

    def chance(document, rank):
        return PROPENSITY[rank] * attraction[document]

    shown = np.isin(np.arange(3), [document for ranking in rankings for document in ranking[:cutoff]])
    found = expected(chance, cutoff=cutoff, rankings=rankings)
    np.testing.assert_allclose(found, np.where(shown, attraction, 0), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_log_of_two_rankers_with_a_cut_off_converges_to_the_truth_by_default(seed):
    rng = np.random.default_rng(seed)
    labels, offsets, model = rng.integers(0, 2, 200), np.arange(0, 201, 20), PositionModel(relevant=0.8)
    log = simulate_clicks(model, rng.normal(size=(2, 200)), labels, offsets, sessions=40_000, cutoff=5, seed=seed)
    shown, truth = log.query_of_document >= 0, model.attraction(labels)
    found = estimate_relevance(log, model.propensities(5))
    assert found[shown].sum() == pytest.approx(truth[shown].sum(), rel=0.04)
    assert np.abs(found - truth)[shown].max() < 0.15
    assert not found[~shown].any()
