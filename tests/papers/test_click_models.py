"""Simulated clicks have the probabilities of their models."""

import numpy as np
import pytest

from papers.click_models import (
    CascadeModel,
    ClickModel,
    DynamicBayesianModel,
    PositionModel,
    TrustModel,
    simulate_clicks,
)

LABELS, OFFSETS = [0, 2, 1, 0, 1], [0, 3, 3, 5]
SCORES = [0.1, 0.3, 0.2, 1.0, 2.0]  # ranks documents 1, 2, 0 and 4, 3


def rates(model, **options):
    """The share of clicks by list and rank."""
    log = simulate_clicks(model, SCORES, LABELS, OFFSETS, sessions=60_000, **options)
    return [
        log.click[(log.query == q) & (log.position == k)].mean() for q, k in ((0, 1), (0, 2), (0, 3), (2, 1), (2, 2))
    ]


def near(expected):
    return pytest.approx(expected, abs=0.012)


def test_the_order_is_that_of_the_scores_up_to_the_cut_off():
    log = simulate_clicks(PositionModel(), SCORES, LABELS, OFFSETS, sessions=50, cutoff=2)
    assert set(log.query.tolist()) == {0, 2}
    for q, documents in ((0, [1, 2]), (2, [4, 3])):
        assert log.document[log.query == q].reshape(-1, 2).tolist() == [documents] * (
            log.query == q
        ).sum().__floordiv__(2)
    tied = simulate_clicks(PositionModel(), np.zeros(5), LABELS, OFFSETS, sessions=50)
    assert tied.document[tied.query == 0][:3].tolist() == [0, 1, 2]


def test_a_seed_gives_the_same_log_and_another_one_another():
    first, same, other = (
        simulate_clicks(PositionModel(), SCORES, LABELS, OFFSETS, sessions=500, seed=s) for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.click, same.click)
    np.testing.assert_array_equal(first.query, same.query)
    assert not np.array_equal(first.query, other.query)


def test_position_model():
    model = PositionModel(eta=2, relevant=0.9, irrelevant=0.3, highest=2)
    assert rates(model) == near([0.9, 0.5 / 4, 0.3 / 9, 0.5, 0.3 / 4])


def test_trust_model_is_affine_in_attraction():
    model = TrustModel(eta=0.5, trust=0.6, miss=0.1, highest=2)
    a, b = model.affine(3)
    assert rates(model) == near([a[0] + b[0], a[1] / 3 + b[1], b[2], a[0] / 3 + b[0], b[1]])


def test_cascade_ends_at_the_first_click():
    model = CascadeModel(relevant=0.6, irrelevant=0.2, highest=1)
    assert rates(model) == near([0.6, 0.4 * 0.6, 0.4 * 0.4 * 0.2, 0.6, 0.4 * 0.2])
    log = simulate_clicks(model, SCORES, LABELS, OFFSETS, sessions=2000)
    assert np.bincount(log.session, log.click).max() == 1


def test_dynamic_bayesian_model():
    model = DynamicBayesianModel(relevant=0.8, irrelevant=0.2, satisfaction=0.5, persistence=0.7)
    on = 0.7 * (1 - 0.8 * 0.5)
    assert rates(model) == near([0.8, on * 0.8, on * on * 0.2, 0.8, on * 0.2])


def test_swaps_exchange_rank_1_with_each_rank_as_often():
    log = simulate_clicks(PositionModel(), [3, 2, 1, 0], [0] * 4, [0, 4], sessions=40_000, swap=[2, 4])
    shown = log.document.reshape(-1, 4)
    assert (shown[:, 2] == 2).all()
    assert ((shown == [1, 0, 2, 3]).all(1).mean(), (shown == [3, 1, 2, 0]).all(1).mean()) == near((0.25, 0.25))


def test_random_rankings_are_those_of_plackett_and_luce():
    log = simulate_clicks(
        PositionModel(), np.log([3, 2, 1]), [0] * 3, [0, 3], sessions=40_000, temperature=1.0, cutoff=1
    )
    assert (np.bincount(log.document) / 40_000).tolist() == near([3 / 6, 2 / 6, 1 / 6])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [1.0]}, r"scores must have shape \[documents\]"),
        ({"labels": [0, -1, 1, 0, 1]}, "labels finite and 0 or more"),
        ({"offsets": [0, 3, 4]}, "offsets must rise from 0 to the number of documents, 5"),
        ({"sessions": 0}, "sessions must be 1 or more"),
        ({"swap": [1]}, r"swap must be ranks from 2 to 3, which are shown; got \(1,\)"),
        ({"cutoff": 2, "swap": [3]}, "swap must be ranks from 2 to 2"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    given = {"scores": SCORES, "labels": LABELS, "offsets": OFFSETS, "sessions": 5} | change
    with pytest.raises(ValueError, match=message):
        simulate_clicks(PositionModel(), **given)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PositionModel(eta=-1), "eta must be a finite number of 0 or more"),
        (lambda: ClickModel(relevant=1.5), "relevant must be a probability, from 0 to 1; got 1.5"),
        (lambda: ClickModel(highest=0), "highest must be a label above 0"),
        (lambda: TrustModel(trust=-0.1), "trust must be a probability"),
        (lambda: DynamicBayesianModel(persistence=2), "persistence must be a probability"),
    ],
)
def test_models_check_their_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()
