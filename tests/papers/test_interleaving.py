"""Interleaving favours neither ranker under random clicks, and finds the better one as often as its test's theory says."""

import itertools
from collections import Counter

import numpy as np
import pytest
import scipy.stats

from papers.click_models import PositionModel
from papers.interleaving import Interleaved, compare_interleaved, interleave

METHODS = ["team-draft", "probabilistic"]
FIRST, SECOND = ["a", "b", "c", "d"], ["b", "c", "a", "e"]


def test_team_drafts_are_those_of_all_coins():
    expected = Counter()
    for coins in itertools.product([0, 1], repeat=2):
        taken, teams = [], []
        for coin in coins:
            for team in (coin, 1 - coin):
                ranking = (FIRST, SECOND)[team]
                taken.append(next(each for each in ranking if each not in taken))
                teams.append(team + 1)
        expected["".join(taken), tuple(teams)] += 1
    assert len(expected) == 4
    found = Counter()
    for seed in range(4000):
        shown = interleave(FIRST, SECOND, seed=seed)
        found["".join(shown.documents), tuple(shown.teams.tolist())] += 1
    assert found.keys() == expected.keys()
    assert max(abs(count - 1000) for count in found.values()) < 130  # 4.7 standard deviations


def probabilities(decay, length):
    """The probability of each list with each assignment to the rankers."""
    found = {}
    for shown in itertools.permutations("abcde", length):
        for teams in itertools.product([1, 2], repeat=length):
            chance = 1.0
            for at, (document, team) in enumerate(zip(shown, teams, strict=True)):
                ranking = (FIRST, SECOND)[team - 1]
                weights = {d: (1 + ranking.index(d)) ** -decay for d in ranking if d not in shown[:at]}
                chance *= weights.get(document, 0) / sum(weights.values()) / 2
            if chance:
                found[shown, teams] = chance
    return found


@pytest.mark.soak
def test_probabilistic_lists_have_their_probabilities_and_favour_neither():
    decay, length = 1.5, 3
    joint = probabilities(decay, length)
    assert sum(joint.values()) == pytest.approx(1)
    lists = Counter()
    for (shown, _), chance in joint.items():
        lists[shown] += chance
    first = {
        shown: [sum(c for (s, t), c in joint.items() if s == shown and t[at] == 1) / lists[shown] for at in range(3)]
        for shown in lists
    }
    found = Counter()
    for seed in range(4000):
        shown = interleave(FIRST, SECOND, length=length, method="probabilistic", decay=decay, seed=seed)
        found[tuple(shown.documents)] += 1
        np.testing.assert_allclose(shown.chances, first[tuple(shown.documents)], atol=1e-12)
    off = [(found[shown] - 4000 * chance) ** 2 / (4000 * chance) for shown, chance in lists.items()]
    assert scipy.stats.chi2.sf(sum(off), len(off) - 1) > 1e-4
    for clicks in itertools.product([0, 1], repeat=length):
        total = 0.0
        for shown, chance in lists.items():
            one = Interleaved(np.array(shown), np.ones(length, int), np.array(first[shown]))
            by_hand = sum(
                c * np.sign(sum(clicks[at] * (3 - 2 * t[at]) for at in range(length)))
                for (s, t), c in joint.items()
                if s == shown
            )
            assert one.expected_outcome(clicks) == pytest.approx(by_hand / chance, abs=1e-12)
            total += chance * one.expected_outcome(clicks)
        assert total == pytest.approx(0, abs=1e-12)


def outcomes(method, attraction, sessions, expected=False):
    """Of sessions of users who click by position and attraction, on 6 documents, 4 of which are shown."""
    rng = np.random.default_rng(0)
    first, second = [0, 1, 2, 3, 4, 5], [3, 0, 5, 1, 4, 2]
    found = np.empty(sessions)
    seen = PositionModel(eta=0.5).propensities(4)
    for session in range(sessions):
        shown = interleave(first, second, length=4, method=method, seed=rng)
        clicks = rng.random(4) < seen * attraction[shown.documents]
        found[session] = shown.expected_outcome(clicks) if expected else shown.outcome(clicks)
    return found


@pytest.mark.soak
@pytest.mark.parametrize("method", METHODS)
def test_the_sign_test_errs_as_often_as_its_level_under_random_clicks(method):
    found = outcomes(method, np.full(6, 0.4), 10_000).reshape(100, 100)
    results = [compare_interleaved(each) for each in found]
    errors = sum(each.p < 0.05 for each in results)
    assert errors <= scipy.stats.binom.ppf(0.999, 100, 0.05)
    covered = sum(each.low <= 0.5 <= each.high for each in results)
    assert covered == sum(each.p >= 0.05 for each in results) >= 88
    assert abs(found.mean()) < 4 * found.std() / np.sqrt(found.size)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("method", "attraction"),
    [("team-draft", [0.6, 0.5, 0.5, 0.4, 0.3, 0.3]), ("probabilistic", [0.7, 0.6, 0.6, 0.2, 0.1, 0.1])],
)
def test_the_better_ranker_is_found_as_often_as_theory_says(method, attraction):
    found = outcomes(method, np.array(attraction), 10_000)
    wins, decided = (found > 0).sum(), (found != 0).sum()
    assert wins / decided > 0.55
    by_test = found.reshape(100, 100)
    power = np.mean([power_of(wins / decided, (each != 0).sum()) for each in by_test])
    assert 0.1 < power < 0.99
    results = [compare_interleaved(each) for each in by_test]
    right, wrong = (sum(each.p < 0.05 and sign * (each.value - 0.5) > 0 for each in results) for sign in (1, -1))
    assert abs(right / 100 - power) < 4 * np.sqrt(power * (1 - power) / 100) + 0.005
    assert wrong <= 2
    assert 88 <= sum(each.low <= wins / decided <= each.high for each in results) <= 100


def power_of(chance, decided):
    """The probability that the sign test at level 0.05 finds the first ranker better."""
    counts = np.arange(decided + 1)
    p = np.minimum(1, 2 * scipy.stats.binom.sf(counts - 1, decided, 0.5))
    return scipy.stats.binom.pmf(counts, decided, chance)[p < 0.05].sum()


@pytest.mark.soak
def test_expected_outcomes_vary_less_and_agree():
    attraction = np.array([0.7, 0.6, 0.6, 0.2, 0.1, 0.1])
    drawn, expected = (outcomes("probabilistic", attraction, 1000, each) for each in (False, True))
    assert expected.std() < 0.9 * drawn.std()
    assert expected.mean() == pytest.approx(drawn.mean(), abs=4 * drawn.std() / np.sqrt(1000))
    found = compare_interleaved(expected, test="mean")
    assert found.low < found.value < found.high
    assert found.p < 0.001
    at_random = outcomes("probabilistic", np.full(6, 0.4), 1000, True).reshape(20, 50)
    assert sum(compare_interleaved(each, test="mean").p < 0.05 for each in at_random) <= 5


def test_equal_rankings_and_equal_seeds():
    ranking = list(range(10))
    for method in METHODS:
        shown, same = (interleave(ranking, ranking, method=method, seed=3) for _ in range(2))
        assert shown.documents.tolist() == same.documents.tolist()
        assert shown.teams.tolist() == same.teams.tolist()
        assert sorted(shown.documents.tolist()) == ranking
    assert interleave(ranking, ranking).documents.tolist() == ranking
    far = interleave(list(range(500)), list(range(500))[::-1], method="probabilistic", decay=400, length=500, seed=0)
    assert len(set(far.documents.tolist())) == 500
    assert np.isfinite(far.chances).all()
    apart = interleave([1, 2], [3, 4], method="probabilistic", seed=0)
    assert (apart.chances == (apart.teams == 1)).all()


def test_no_session_decides_without_clicks():
    shown = interleave(FIRST, SECOND, seed=0)
    assert shown.outcome([0, 0, 0, 0]) == shown.outcome([1, 1, 1, 1]) == 0
    found = compare_interleaved([0, 0, 0])
    assert (found.value, found.low, found.high, found.p, found.ties) == (0.5, 0, 1, 1, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: interleave([], [1]), "first must be the ids of a ranking, at least one"),
        (lambda: interleave([1, 2], [1, 1]), "second must rank each document once"),
        (lambda: interleave([1, None], [1, 2]), "first must not be missing"),
        (
            lambda: interleave([1, 2, 3], [1, 2], length=3),
            "length must be from 1 to 2, the length of the shorter ranking",
        ),
        (lambda: interleave([1], [1], length=0), "length must be from 1 to 1"),
        (
            lambda: interleave([1], [1], method="balanced"),
            "method must be 'team-draft' or 'probabilistic', got 'balanced'",
        ),
        (lambda: interleave([1], [1], decay=0), "decay must be a finite number above 0, got 0"),
        (
            lambda: interleave([1, 2], [2, 1]).outcome([1]),
            r"clicks must be 0 or 1 for each of the 2 documents shown; got",
        ),
        (lambda: interleave([1, 2], [2, 1]).outcome([1, 2]), "clicks must be 0 or 1 for each of the 2 documents shown"),
        (lambda: interleave([1, 2], [2, 1]).expected_outcome([1, np.nan]), "clicks must be 0 or 1"),
        (lambda: compare_interleaved([]), "outcomes must be numbers from -1 to 1, one per session, at least one"),
        (lambda: compare_interleaved([1, 2]), "outcomes must be numbers from -1 to 1"),
        (lambda: compare_interleaved([1, np.nan]), "outcomes must be numbers from -1 to 1"),
        (
            lambda: compare_interleaved([1, 0.5]),
            "outcomes of the sign test must be -1, 0 or 1; for expected ones pass test",
        ),
        (lambda: compare_interleaved([1], test="t"), "test must be 'sign' or 'mean', got 't'"),
        (
            lambda: compare_interleaved([1], confidence=95),
            "confidence must be above 0 and below 1, got 95",
        ),
    ],
)
def test_what_is_wrong_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
