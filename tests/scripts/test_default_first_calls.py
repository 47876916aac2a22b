"""The comparison of first calls: drawn sets, every cell once, and what is chosen on validation and judged on test lists."""

import json

import numpy as np
import pytest
from scripts_by_path import script

import rankstruct as rs
from rankstruct.statistics import bootstrap_interval

pytest.importorskip("lightgbm")
calls = script("default_first_calls")


def test_drawn_sets_have_what_they_are_for():
    table = calls.draw_table(1, 40)
    assert table.X.isna().to_numpy().mean() == pytest.approx(0.15 * 8 / 11, abs=0.02)
    assert [len(each.cat.categories) for _, each in table.X.select_dtypes("category").items()] == [4, 12, 40]
    assert set(table.labels) == {0, 1, 2, 3}
    real = calls.draw_real(1, 40)
    assert 0 < real.labels.min() < real.labels.max() < 1
    assert len(np.unique(real.labels)) == len(real.labels) == 800
    part = table.select(np.array([3, 5]))
    assert part.labels.tolist() == [*table.labels[75:100], *table.labels[125:150]]
    assert part.X.index.tolist() == [*range(75, 100), *range(125, 150)]


def test_validation_lists_choose_and_test_lists_judge(tmp_path, capsys, monkeypatch):
    quick = {"n_estimators": 5}
    monkeypatch.setattr(calls, "TREES", {calls.PEER: None, calls.OLD: {**calls.BEFORE, **quick}, calls.OWN: quick})
    monkeypatch.setitem(calls.TREES, "7 leaves", {**quick, "num_leaves": 7})
    monkeypatch.setattr(calls, "LOSSES", {"graded AP": "GradedLoss('AP')"})
    monkeypatch.setattr(calls, "DRAWN", {"real-valued": (calls.draw_real, 12)})
    given = ["--folds", "1", "--few", "8", "--few-of", "real-valued", "--seeds", "2"]
    given += ["--few-linear", "8", "--draws", "2", "--output", str(tmp_path), "--processes", "0"]
    assert calls.main(given) == 0
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "first-calls.json").read_text())
    assert found["lists"] == {"real-valued": calls.TEST}

    def cell(row, part="test", few=0, seed=0, kind="trees"):
        folder = tmp_path / f"real-valued/{few}/{kind}/{row}/1-{seed}"
        return np.array(json.loads((folder / "result.json").read_text())[part])

    (row,) = found["tables"]["trees"]["rows"]
    assert row[1:4] == [f"{cell(at).mean():.4f}" for at in range(3)]
    apart = (cell(2) - cell(0))[0]
    low, high = bootstrap_interval(apart)
    assert row[4] == f"{apart.mean():+.4f} ({low:+.4f} to {high:+.4f})"
    best = max((2, 3), key=lambda at: cell(at, "vali").mean())
    assert row[6:8] == [f"{cell(best).mean():.4f}", [calls.OWN, "7 leaves"][best - 2]]
    (few,) = found["tables"]["few lists"]["rows"]
    means = [cell(2, few=8, seed=seed).mean() for seed in range(2)]
    assert few[-2] == f"{np.mean(means):.4f} ± {np.std(means, ddof=1):.4f}"

    train, _, test = calls.read("real-valued", None, 1)
    ranker = rs.LinearRanker("nDCG@10", C=10.0, loss="GradedLoss('AP')").fit(train.X, train.labels, group=train.sizes)
    value = ranker.score(test.X, test.labels, group=test.sizes)
    assert cell(0, kind="linear")[-1].mean() == pytest.approx(value, abs=1e-5)
    (linear,) = found["tables"]["linear rankers"]["rows"]
    assert linear[1] == f"{cell(0, kind='linear')[-1].mean():.4f}"
    *_, drawn = found["tables"]["losses, few lists"]["rows"]
    means = [cell(0, "vali", few=8, seed=seed, kind="linear")[-1].mean() for seed in range(2)]
    assert drawn[:5] == [8, "10", "graded AP", f"{np.mean(means):.4f}", f"{np.mean(means):.4f}"]

    monkeypatch.setattr(calls, "run_cell", None)  # nothing is run again
    assert calls.main(given) == 0
    assert capsys.readouterr().out == printed
