"""Rules as text, how often rankings break them, and FA*IR's quotas."""

import math

import numpy as np
import pytest

import rankstruct as rs
from rankstruct.constraints import Rule
from rankstruct.constraints.rules import _fails


@pytest.mark.parametrize("text", ["seller <= 2 @ 10", "new=1 >= 3 @ 10", "a b=x y == 1 @ 5", "topic <= 4", "é=-1 >= 1"])
def test_text_comes_back(text):
    assert str(Rule.parse(text)) == text
    assert Rule.parse(text.replace(" <= ", "<=").replace(" >= ", ">=").replace(" @ ", "@")) == Rule.parse(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seller < 2", "not a rule: 'seller < 2'; write"),
        ("", "not a rule"),
        ("seller <= -1 @ 3", "not a rule"),
        ("seller <= 1.5", "not a rule"),
        ("seller <= 2 @ 0", "at least 1 position"),
        ("new=1 >= 3 @ 2", "wants 3 documents in 2 positions"),
        (
            "seller >= 1 @ 10",
            "about each group of 'seller'; name the one that needs 1, as in \"seller=VALUE >= 1 @ 10\"",
        ),
    ],
)
def test_what_is_no_rule(text, told):
    with pytest.raises(ValueError, match=told.replace("(", r"\(")):
        rs.Constraints(text)


def test_rules_that_contradict_each_other():
    with pytest.raises(ValueError, match="'new=1 >= 3 @ 5' and 'new <= 2 @ 10' contradict"):
        rs.Constraints("new=1 >= 3 @ 5", "new <= 2 @ 10")
    rs.Constraints("new=1 >= 3 @ 10", "new <= 2 @ 5")
    with pytest.raises(ValueError, match="at least one rule"):
        rs.Constraints()
    assert rs.Constraints(["a <= 1"]) == rs.Constraints("a <= 1")
    assert len({rs.Constraints("a <= 1"), rs.Constraints("a<=1")}) == 1


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (("", None, 0, 1, 1), "must be a name, got ''"),
        (("a", 1, 0, 1, 1), "must be text, or None for each group, got 1"),
        (("a", None, -1, 1, 1), "lower of a rule must be at least 0 documents, got -1"),
        (("a", None, 0, 1.5, 1), "upper of a rule must be at least 0 documents, got 1.5"),
        (("a", None, 0, 1, 0), "prefix of a rule must be at least 1 position, got 0"),
        (("a", "1", 1, 3, 5), "write two for 1 to 3"),
        (("a", "1", 3, None, 2), "wants 3 documents in 2 positions"),
        (("a", None, 1, None, 2), 'name the one that needs 1, as in "a=VALUE >= 1 @ 2"'),
    ],
)
def test_rules_that_no_text_says(fields, told):
    with pytest.raises((TypeError, ValueError)) as error:
        Rule(*fields)
    assert told in str(error.value)
    assert Rule("a", None, 0, np.int64(2), np.int64(5)) == Rule.parse("a <= 2 @ 5")


def test_violations_are_counted_by_list():
    rules = rs.Constraints("a <= 1 @ 2", "b=1 >= 1 @ 2", "b=0 <= 1")
    ranks = [[1, 2, 3], [3, 1, 2], [0, 0, 0]]
    columns = {"a": [[0, 0, 1]] * 3, "b": [[0, 0, 1]] * 3}
    assert rs.constraints.violations(ranks, rules, columns) == {"a <= 1 @ 2": 1, "b=1 >= 1 @ 2": 1, "b=0 <= 1": 2}


@pytest.mark.parametrize("ranks", [[0.9, 0.8, 0.7], [1, 1, 2], [-1, 1, 2], [2, 3, 0]])
def test_violations_of_what_are_no_ranks(ranks):
    with pytest.raises((TypeError, ValueError), match="ranks must be"):
        rs.constraints.violations(ranks, rs.Constraints("seller <= 1 @ 2"), {"seller": ["a", "a", "b"]})


def test_violations_by_their_definition():
    rng = np.random.default_rng(0)
    group, ranks = rng.integers(0, 5, (50, 7)), rng.permuted(np.tile(np.arange(7), (50, 1)), axis=1)  # 0: not shown
    within = (ranks > 0) & (ranks <= 4)
    counts = np.stack([(within & (group == each)).sum(1) for each in range(5)])
    found = rs.constraints.violations(ranks, rs.Constraints("g <= 2 @ 4", "g=2 == 1 @ 4", "g=3 >= 2 @ 4"), {"g": group})
    expected = [(counts > 2).any(0), counts[2] != 1, counts[3] < 2]
    assert list(found.values()) == [each.sum() for each in expected]


@pytest.mark.parametrize("share", [0.1, 0.4, 0.5, 0.7, 0.95])
def test_fair_quotas_by_their_definition(share):
    def at_most(t, k):
        return sum(math.comb(k, i) * share**i * (1 - share) ** (k - i) for i in range(t + 1))

    expected = [next(t for t in range(k + 1) if at_most(t, k) > 0.1) for k in range(1, 26)]
    assert rs.constraints.fair_quotas(25, share) == expected


#: The README and the tests of fairsearchcore, by the authors of FA*IR: k, share, alpha, runs of the least numbers 0, 1, 2, ... .
LIBRARY = [(10, 0.2, 0.15, [8, 2]), (20, 0.25, 0.1, [8, 6, 5, 1]), (30, 0.3, 0.05, [8, 5, 5, 5, 4, 3])]
#: There, with alpha adjusted, and the probability that a fair ranking fails.
ADJUSTED = [
    (10, 0.2, 0.15, [8, 2], 0.134217728),
    (20, 0.25, 0.1, [8, 7, 5], 0.10515247355),
    (30, 0.3, 0.05, [10, 6, 5, 4, 5], 0.04877730797),
]


def runs(lengths):
    return np.repeat(np.arange(len(lengths)), lengths).tolist()


@pytest.mark.parametrize(("k", "share", "alpha", "lengths"), LIBRARY)
def test_fair_quotas_of_the_authors_library(k, share, alpha, lengths):
    assert rs.constraints.fair_quotas(np.int64(k), share, alpha=alpha) == runs(lengths)


@pytest.mark.parametrize(("k", "share", "alpha", "lengths", "fails"), ADJUSTED)
def test_adjusted_quotas_of_the_authors_library(k, share, alpha, lengths, fails):
    assert _fails(np.array(runs(lengths)), share) == pytest.approx(fails, abs=1e-10)
    table = rs.constraints.fair_quotas(k, share, alpha=alpha, adjusted=True)
    assert _fails(np.array(table), share) <= alpha
    # Where the library's table fails more fair rankings than alpha, this one is the next that does not.
    assert (table == runs(lengths)) == (fails <= alpha)
    assert (np.array(table) <= runs(lengths)).all()


def test_adjusted_quotas_hold_together():
    rng = np.random.default_rng(0)
    table = np.array(rs.constraints.fair_quotas(40, 0.5, adjusted=True))
    assert (table <= rs.constraints.fair_quotas(40, 0.5)).all()
    passing = (np.cumsum(rng.random((40_000, 40)) < 0.5, axis=1) >= table).all(1).mean()
    assert 0.89 <= passing <= 1
    assert (np.cumsum(rng.random((40_000, 40)) < 0.5, axis=1) >= rs.constraints.fair_quotas(40, 0.5)).all(
        1
    ).mean() < 0.85


@pytest.mark.parametrize("call", [{"k": 0}, {"k": 2.0}, {"share": 1}, {"alpha": 0}, {"share": "half"}])
def test_quotas_of_wrong_numbers(call):
    with pytest.raises(ValueError, match=next(iter(call))):
        rs.constraints.fair_quotas(**({"k": 3, "share": 0.5} | call))


def test_fair_quotas_are_rules():
    quotas = rs.constraints.fair_quotas(10, 0.5)
    rules = rs.Constraints([f"protected=1 >= {least} @ {at}" for at, least in enumerate(quotas, 1) if least])
    protected = np.arange(20) >= 12
    ranks = rs.rank_under(-np.arange(20.0), rules, {"protected": protected}, k=10)
    first = np.argsort(np.where(ranks > 0, ranks, 99))[:10]
    assert np.cumsum(protected[first]).tolist() == quotas  # no more of the lower-scored than the test demands
