"""Rules as text, how often rankings break them, and FA*IR's quotas."""

import math

import numpy as np
import pytest

import rankstruct as rs
from rankstruct.constraints import Rule


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


def test_violations_are_counted_by_list():
    rules = rs.Constraints("a <= 1 @ 2", "b=1 >= 1 @ 2", "b=0 <= 1")
    ranks = [[1, 2, 3], [3, 1, 2], [0, 0, 0]]
    columns = {"a": [[0, 0, 1]] * 3, "b": [[0, 0, 1]] * 3}
    assert rs.constraints.violations(ranks, rules, columns) == {"a <= 1 @ 2": 1, "b=1 >= 1 @ 2": 1, "b=0 <= 1": 2}


@pytest.mark.parametrize("share", [0.1, 0.4, 0.5, 0.7, 0.95])
def test_fair_quotas_by_their_definition(share):
    def at_most(t, k):
        return sum(math.comb(k, i) * share**i * (1 - share) ** (k - i) for i in range(t + 1))

    expected = [next(t for t in range(k + 1) if at_most(t, k) > 0.1) for k in range(1, 26)]
    assert rs.constraints.fair_quotas(25, share) == expected


def test_fair_quotas_of_the_authors_library():
    # The README of fairsearchcore, by the authors of FA*IR.
    table = rs.constraints.fair_quotas(np.int64(20), 0.25)
    assert table == [0] * 8 + [1] * 6 + [2] * 5 + [3]


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
