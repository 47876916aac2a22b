"""The comparison of rules that combine models: what each rule takes, means, differences and seconds of its models."""

import numpy as np
import pytest
from scripts_by_path import script

from rankstruct.estimators.training_data import gather
from rankstruct.statistics import bootstrap_interval

pytest.importorskip("lightgbm")
pytest.importorskip("catboost")
combination = script("default_combination")


def test_rules_take_what_they_say():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200).astype(float)
    lists = gather(np.zeros((200, 1)), y, np.repeat(np.arange(20), 10))
    names = [*combination.auto.MEMBERS, combination.OLD_TREES, combination.PEER]
    seen = {name: combination._z_scores(rng.normal(size=200) + (name == combination.YETI) * y, lists) for name in names}
    rules = combination._weights(seen, lists, 1)
    assert rules["the best model"][1].tolist() == [0, 0, 0, 0, 0, 1]
    members, weights = rules[combination.NOW]
    assert dict(zip(members, weights, strict=True))[combination.YETI] > 0.5
    assert combination.OLD_TREES in rules[combination.BEFORE][0]
    assert combination.TREES not in rules[combination.BEFORE][0]
    assert rules[combination.NINE_RULE][0] == list(combination.NINE)
    assert all(weights.sum() == pytest.approx(1) for _, weights in rules.values())


def test_a_table_has_means_differences_and_the_seconds_of_the_models_that_a_rule_needs():
    now, before = combination.NOW, combination.BEFORE
    rng, names = np.random.default_rng(1), [*combination.auto.MEMBERS, combination.OLD_TREES, combination.PEER]
    values = {rule: {each: rng.random(9).tolist() for each in combination.MEASURES} for rule in (now, before)}
    seconds = {name: 2.0**number for number, name in enumerate(names)}
    header, rows = combination.table_of({"a": [{"values": values, "seconds": seconds}]}, [now, before], before)
    assert header[:2] == ["nDCG@10", "a"]
    apart = np.subtract(values[now]["nDCG@10"], values[before]["nDCG@10"])
    low, high = bootstrap_interval(apart)
    assert rows[0][1:3] == [
        f"{np.mean(values[now]['nDCG@10']):.4f}",
        f"{apart.mean():+.4f} ({low:+.4f} to {high:+.4f})",
    ]
    assert [row[-1] for row in rows] == ["63.0", f"{63 - 4 + 64:.1f}"]
