"""The bookkeeping of the benchmark of trees; speed itself is never asserted."""

import json

import pytest

from benchmark import main as benchmark


def test_trees_are_timed(tmp_path, capsys, monkeypatch):
    pytest.importorskip("lightgbm")
    monkeypatch.setattr("benchmarks.trees.SHAPES", ((50, 9, 3, 4),))
    assert benchmark(["trees", "--rounds", "2", "--json", str(tmp_path / "trees.json")]) == 0
    assert "over LightGBM's predict" in capsys.readouterr().out
    rows = json.loads((tmp_path / "trees.json").read_text())["rows"]
    assert [(row["documents"], row["trees"], row["dtype"]) for row in rows] == [(50, 3, "float64"), (50, 3, "float32")]
    assert all(0 < row["lower_quartile"] <= row["median"] for row in rows)
