"""The comparison of estimates from clicks: biases that theory expects, and those that it does not."""

import json

import pytest
from scripts_by_path import script

estimates = script("click_evaluation")
pytestmark = pytest.mark.soak


def test_right_propensities_are_unbiased_and_others_are_not(tmp_path, capsys):
    given = ["--queries", "60", "--sessions", "6000", "--seeds", "6", "--many", "20000", "--output", str(tmp_path)]
    assert estimates.main(given) == 0
    assert "| doubly robust, policy-aware " in capsys.readouterr().out
    found = json.loads((tmp_path / "click-evaluation.json").read_text())
    assert found["seeds"] == 6
    assert 0 < found["truth"]["weights"] < 1 < found["truth"]["sessions"]
    full, behind = (
        {tuple(row[:2]): float(row[3]) for row in found["tables"][name]["rows"]} for name in ("full lists", "cut-off")
    )
    assert found["tables"]["cut-off"]["header"] == estimates.HEADER
    for unbiased in ("IPS", "SNIPS"):
        for propensities in ("true", "estimated"):
            assert abs(full[unbiased, propensities]) < 8
    assert full["no correction", "all 1"] < -40
    assert full["IPS, clipped", "true"] < full["doubly robust, clipped", "true"]
    assert behind["IPS", "true"] < -40
    assert abs(behind["IPS, policy-aware", "true"]) < 8
    assert abs(behind["doubly robust, policy-aware", "true"]) < 8


def test_interleaving_finds_the_better_ranker(tmp_path):
    given = ["--tables", "interleaving", "--queries", "50", "--sessions", "400", "--seeds", "3", "--many", "100"]
    assert estimates.main([*given, "--output", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "click-evaluation.json").read_text())["tables"]
    assert [*found] == ["interleaving"]
    for _, sessions, better, equal in found["interleaving"]["rows"]:
        assert sessions == "400"
        assert float(better) > 60 > float(equal)
