"""Evaluation from clicks has the right expected value, over all patterns of clicks, and intervals that cover the truth."""

import itertools

import numpy as np
import pytest

import rankstruct as rs
from papers.click_models import PositionModel, TrustModel, simulate_clicks
from rankstruct.clicks import ClickLog, evaluate_from_clicks, harvest_propensities, propensities_by_context
from rankstruct.statistics import bootstrap_interval, compare_paired

ATTRACTION = np.array([0.9, 0.2, 0.6, 0.3, 0.7])  # of two queries, with 3 and 2 documents
SHOWN = [(0, 1, 2), (2, 0, 1), (4, 3)]
QUERY = np.array([0, 0, 0, 1, 1])
PROPENSITY, BASE = np.array([0.9, 0.5, 0.25]), np.array([0.1, 0.05, 0.02])
SCORES = np.array([1.0, 3.0, 2.0, 0.5, 0.5])  # ranks 1, 2, 0 and the others tied
DISCOUNTS = 1 / np.log2(1 + np.arange(1.0, 4))
VALUES = [DISCOUNTS @ ATTRACTION[[1, 2, 0]], ATTRACTION[3:].mean() * DISCOUNTS[:2].sum()]
TRUTH = (2 * VALUES[0] + VALUES[1]) / 3  # two sessions of the first query, one of the other
WRONG = np.array([0.3, 0.7, 0.1, 0.5, 0.5])


def expected(cutoff=3, base=None, propensities=PROPENSITY, measure="DCG", **options):
    """The expected estimate over all patterns of clicks."""
    shown = [ranking[:cutoff] for ranking in SHOWN]
    document = np.concatenate(shown)
    session = np.repeat(np.arange(3), [len(each) for each in shown])
    position = np.concatenate([np.arange(1, len(each) + 1) for each in shown])
    chance = PROPENSITY[position - 1] * ATTRACTION[document] + (0 if base is None else base[position - 1])
    given = {"base": base, "query": QUERY, "document": np.arange(5), **options}
    total = 0.0
    for pattern in itertools.product([False, True], repeat=len(document)):
        clicks = np.array(pattern)
        log = ClickLog(session, QUERY[document], document, position, clicks, np.arange(2), np.arange(5), of_table=True)
        found = evaluate_from_clicks(log, SCORES, measure, propensities, **given)
        total += np.where(clicks, chance, 1 - chance).prod() * found.value
    return total


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"policy_aware": True},
        {"prediction": WRONG},
        {"prediction": WRONG, "policy_aware": True},
        {"prediction": ATTRACTION, "clip": 0.6},
        {"prediction": ATTRACTION, "exposure": [0.9, 0.2, 0.1, 0.5, 0.3]},
        {"prediction": ATTRACTION, "cutoff": 2},
        {"prediction": ATTRACTION, "cutoff": 1},
    ],
)
@pytest.mark.parametrize("base", [None, BASE])
def test_the_expected_value_is_the_truth(options, base, monkeypatch):
    monkeypatch.setattr("rankstruct.clicks.evaluation.bootstrap_interval", lambda *_, **__: (0, 0))
    assert expected(base=base, **options) == pytest.approx(TRUTH, abs=1e-9)


def test_what_is_biased_is_so(monkeypatch):
    monkeypatch.setattr("rankstruct.clicks.evaluation.bootstrap_interval", lambda *_, **__: (0, 0))
    assert expected(clip=0.6) < TRUTH - 0.05
    assert expected(cutoff=2, policy_aware=False) < TRUTH - 0.05
    assert abs(expected(clip=0.6, prediction=WRONG) - TRUTH) > 0.02
    assert expected(propensities=PROPENSITY**2, prediction=ATTRACTION) > TRUTH + 0.05


def simulated(model, sessions=4000, queries=300, seed=0, **options):
    """A log, labels and scores of a better ranker than production's; eight documents per query."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(8 * queries) < 0.3).astype(float)
    production, new = labels + 2 * rng.normal(size=labels.size), labels + 0.7 * rng.normal(size=labels.size)
    lists = labels, np.arange(0, labels.size + 1, 8)
    return simulate_clicks(model, production, *lists, sessions=sessions, seed=seed, **options), labels, new


def ids(labels):
    return {"query": np.arange(len(labels)) // 8, "document": np.arange(len(labels))}


def truth_of(log, scores, attraction, measure):
    """The mean over sessions of the measure with attraction as the gain, and of all attraction."""
    values = rs.evaluate(scores, attraction, [measure], group=[8] * len(log.queries))
    (of_queries,) = (value.numpy() for value in values.values())
    sessions = log.sessions_of_queries()
    return sessions @ of_queries / log.sessions, sessions @ attraction.reshape(-1, 8).sum(1) / log.sessions


@pytest.mark.parametrize("measure", ["DCG(gain='linear')@3", "DCG(gain='linear')"])
def test_a_simulated_log_gives_the_value(measure):
    model = PositionModel(eta=1, relevant=0.9, irrelevant=0.1)
    log, labels, new = simulated(model, sessions=60_000)
    value, total = truth_of(log, new, model.attraction(labels), measure)
    found = evaluate_from_clicks(log, new, measure, model.propensities(8))
    assert found.value == pytest.approx(value, rel=0.02)
    assert found.values.mean() == pytest.approx(found.value)
    assert found.low < found.value < found.high
    assert (found.low, found.high) == bootstrap_interval(found.values)
    normalized = evaluate_from_clicks(log, new, measure, model.propensities(8), normalize="weights")
    assert normalized.value == pytest.approx(value / total, rel=0.02)
    robust = evaluate_from_clicks(
        log, new, measure, model.propensities(8), clip=0.5, prediction=model.attraction(labels)
    )
    assert robust.value == pytest.approx(value, rel=0.02)


def test_behind_a_cut_off_with_random_rankings():
    model = TrustModel(eta=1)
    log, labels, new = simulated(model, sessions=60_000, temperature=2.0, cutoff=4)
    slope, base = model.affine(4)
    value, _ = truth_of(log, new, model.attraction(labels), "DCG(gain='linear')@5")
    found = evaluate_from_clicks(log, new, "DCG@5", slope, base=base, policy_aware=True, **ids(labels))
    assert found.value == pytest.approx(value, rel=0.03)


def test_two_rankers_are_compared_on_one_log():
    model = PositionModel()
    log, _, new = simulated(model)
    first, second = (evaluate_from_clicks(log, each, "DCG@3", model.propensities(8)) for each in (new, -new))
    found = compare_paired(first.values, second.values, "t")
    assert found.difference == pytest.approx(first.value - second.value)
    assert found.difference > 0
    assert found.p < 0.001


@pytest.mark.soak
@pytest.mark.parametrize(
    "options",
    [{}, {"normalize": "weights"}, {"clip": 0.4, "prediction": True}, {"estimated": True}],
)
def test_intervals_cover_the_value_over_all_queries(options):
    """Queries are drawn anew by each seed; the truth is the mean over very many."""
    model, covered = PositionModel(eta=1, relevant=0.9, irrelevant=0.1), []
    log, labels, new = simulated(model, sessions=1, queries=200_000, seed=10**6)
    attraction = model.attraction(labels)
    value = rs.evaluate(new, attraction, ["DCG(gain='linear')@3"], offsets=np.arange(0, len(new) + 1, 8))
    truth = float(next(iter(value.values())).mean())
    if options.get("normalize"):
        truth /= 8 * attraction.mean()
    for seed in range(200):
        log, labels, new = simulated(model, seed=seed)
        given = dict(options)
        if given.pop("prediction", False):
            given["prediction"] = model.attraction(labels)
        propensities = model.propensities(8)
        if given.pop("estimated", False):
            other = np.random.default_rng(seed).normal(size=(3, len(labels)))
            lists = other, labels, np.arange(0, len(labels) + 1, 8)
            propensities = harvest_propensities(simulate_clicks(model, *lists, sessions=40_000, seed=seed))
        found = evaluate_from_clicks(log, new, "DCG@3", propensities, **given)
        covered.append(found.low <= truth <= found.high)
    assert 0.90 <= np.mean(covered) <= 0.98


def small(clicks=(1, 0, 0, 1)):
    return ClickLog.from_arrays(["a", "a", "b", "b"], [7, 8, 7, 9], [1, 2, 1, 2], clicks)


def test_candidates_are_found_by_their_ids_in_any_order():
    log = small()
    plain = evaluate_from_clicks(log.with_documents(), [0.0, 1, 1, 0], "DCG", [1, 0.5])  # 7 and 8 of a, 7 and 9 of b
    assert plain.value == pytest.approx((DISCOUNTS[1] * 1 + DISCOUNTS[1] * 2) / 2)
    given = {"query": ["b", "c", "a", "a", "b"], "document": [9, 7, 8, 7, 7]}
    assert evaluate_from_clicks(log, [0, 5, 1, 0, 1], "DCG", [1, 0.5], **given).value == plain.value
    written = {"query": given["query"], "document": [str(each) for each in given["document"]]}
    assert evaluate_from_clicks(log, [0, 5, 1, 0, 1], "DCG", [1, 0.5], **written).value == plain.value
    more = {"query": ["b", "b", "a", "a", "b"], "document": [9, 5, 8, 7, 7]}  # 5 of b was not shown and is ranked first
    lower = evaluate_from_clicks(log, [0, 5, 1, 0, 1], "DCG", [1, 0.5], **more)
    assert lower.value == pytest.approx((DISCOUNTS[1] * 1 + DISCOUNTS[2] * 2) / 2)
    predicted = evaluate_from_clicks(
        log, [0, 5, 1, 0, 1], "DCG", [1, 0.5], **more, prediction=[0.1, 0.4, 0.1, 0.1, 0.1]
    )
    assert predicted.value == pytest.approx(lower.value + 0.4 / 2)
    assert predicted.queries.tolist() == ["a", "b"]


def test_the_order_of_the_rows_does_not_matter():
    log, labels, new = simulated(PositionModel(), sessions=2000, queries=20, temperature=1.0)
    rows = {name: getattr(log, name) for name in ("query", "document", "position", "click", "session")}
    order = np.random.default_rng(0).permutation(len(log))
    shuffled = ClickLog.from_arrays(**{name: values[order] for name, values in rows.items()})
    given = PositionModel().propensities(8)
    found, same = (evaluate_from_clicks(each, new, "DCG@3", given, **ids(labels)) for each in (log, shuffled))
    np.testing.assert_allclose(same.values, found.values, rtol=1e-12)
    context = np.random.default_rng(1).normal(size=(20, 1))
    first, second = (propensities_by_context(each, context, np.arange(20)) for each in (log, shuffled))
    np.testing.assert_allclose(second.coefficients, first.coefficients, rtol=1e-9)


def test_all_clicks_or_none():
    assert evaluate_from_clicks(small((0, 0, 0, 0)).with_documents(), [0.0, 1, 1, 0], "P@1", [1, 0.5]).value == 0
    found = evaluate_from_clicks(small((1, 1, 1, 1)).with_documents(), [0.0, 1, 1, 0], "P@1", [1, 1])
    assert (found.value, found.low, found.high) == (1, 1, 1)
    with pytest.raises(ValueError, match="the log has no clicks, or too few; use normalize='sessions'"):
        evaluate_from_clicks(small((0, 0, 0, 0)).with_documents(), [0.0, 1, 1, 0], "P@1", [1, 0.5], normalize="weights")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measure": "nDCG@10"}, "nDCG@10 cannot be estimated from clicks without bias"),
        ({"measure": "AP"}, "AP cannot be estimated from clicks without bias, .* use DCG, P, RBP or WTA"),
        ({"measure": "DCG(min_relevant=2)"}, "needs grades, which clicks do not have; leave out min_relevant"),
        ({"propensities": [1, 0]}, "propensities must be above 0 and at most 1; that of rank 2 is 0"),
        ({"propensities": [1, 2]}, "propensities must be above 0 and at most 1; that of rank 2 is 2"),
        ({"propensities": [1]}, "propensities must be finite numbers for ranks 1 to 2, which the log has; got 1"),
        ({"scores": [1, 2, 3]}, "scores must be a finite number for each of the 4 documents"),
        ({"scores": [1, 2, 3, np.nan]}, "scores must be a finite number for each of the 4 documents"),
        ({"prediction": [1, 2]}, "prediction must be a finite number for each of the 4 scores"),
        ({"prediction": [1, 2, np.inf, 0]}, "prediction must be a finite number for each of the 4 scores"),
        ({"normalize": "none"}, "normalize must be one of 'sessions', 'weights', got 'none'"),
        ({"confidence": 95}, "level must be a finite number above 0 and below 1"),
        ({"log": ClickLog.from_arrays([], [], [], [])}, "the log has no rows"),
        ({"query": ["a", "a", "b", "b"]}, "pass both query= and document=, the ids of each score, or neither"),
        ({"query": ["a", "a", "b"], "document": [7, 8, 7]}, "scores, query and document one per candidate; got"),
        ({"query": ["a", "a", "b", "b"], "document": [7, 8, 7, 5]}, "document 9 of query b is not: give what the"),
        (
            {"query": ["a", "a", "b", "b"], "document": [7, 8, 7, 7]},
            "document 7 of query b occurs twice in the table, in rows 2 and 3",
        ),
        ({"query": ["c", "c", "d", "d"], "document": [7, 8, 7, 9]}, "document 7 of query a is not"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    given = {
        "log": small().with_documents(),
        "scores": [0.0, 1, 1, 0],
        "measure": "DCG",
        "propensities": [1, 0.5],
    } | change
    with pytest.raises(ValueError, match=message):
        evaluate_from_clicks(given.pop("log"), given.pop("scores"), given.pop("measure"), **given)


def test_documents_never_shown_need_their_query():
    log = simulate_clicks(PositionModel(), [3, 2, 1], [1, 1, 1], [0, 3], sessions=20, cutoff=2)
    with pytest.raises(
        ValueError, match="document 2 was never shown, so its query is unknown; pass query= and document="
    ):
        evaluate_from_clicks(log, [3, 2, 1], "DCG", [1, 0.5])
