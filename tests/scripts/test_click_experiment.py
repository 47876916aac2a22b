"""The experiment with clicks: added up as simulated, tables from kept cells, nothing run twice."""

import json

import numpy as np
import pytest
from scripts_by_path import script

import rankstruct as rs
from papers.click_models import simulate_clicks
from rankstruct.clicks import estimate_relevance
from rankstruct.data import Source

experiment = script("click_experiment")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two folds of a small set with grades to 2."""
    root = tmp_path_factory.mktemp("set")
    for fold in (1, 2):
        (root / f"Fold{fold}").mkdir()
        for number, part in enumerate(("train", "vali", "test")):
            rng = np.random.default_rng(10 * fold + number)
            X = rng.normal(size=(160, 4))
            y = np.clip(np.round(X[:, 0] + 0.5 * X[:, 1]), 0, 2).astype(int)
            lines = [
                f"{y[i]} qid:{i // 8} " + " ".join(f"{k + 1}:{v:.4f}" for k, v in enumerate(X[i])) for i in range(160)
            ]
            (root / f"Fold{fold}" / f"{part}.txt").write_text("\n".join(lines) + "\n")
    return root


def test_clicks_are_added_up_over_sessions(folder):
    source, setting = Source(path=str(folder), fold=1), experiment.Setting(0.1, 5, 1)
    made, found = experiment.simulation(source, setting), experiment.counted(source, setting, (50, 500), "train")
    lists = made.parts["train"]
    log = simulate_clicks(
        made.model,
        made.scores["train"],
        lists.labels,
        lists.offsets,
        sessions=experiment._SESSIONS,
        cutoff=5,
        seed=[1, 0, 0],
    )
    for clicks, counted in found.items():
        last = np.searchsorted(np.bincount(log.session, log.click).cumsum(), clicks)
        rows = log.session <= last
        first = rs.clicks.ClickLog.from_arrays(
            log.query[rows], log.document[rows], log.position[rows], log.click[rows], log.session[rows]
        )
        assert clicks <= first.click.sum() < clicks + 5
        known = made.propensities(8)
        relevance = estimate_relevance(first, known)
        np.testing.assert_allclose(counted.relevance(known)[first.documents], relevance)
        assert not counted.clicks[np.setdiff1d(np.arange(160), first.documents)].any()


def test_estimated_propensities_are_near_the_true_ones(folder):
    source, setting = Source(path=str(folder), fold=1), experiment.Setting(0.1, None, 1)
    found = experiment.estimated(source, setting)
    np.testing.assert_allclose(np.log(found), np.log(1 / np.arange(1, 9)), atol=0.15)


@pytest.mark.soak
def test_tables_are_those_of_the_kept_cells(folder, tmp_path, capsys, monkeypatch):
    pytest.importorskip("lightgbm")
    command = ["--data", str(folder), "--output", str(tmp_path / "out"), "--processes", "0", "--seeds", "2"]
    command += ["--noise", "0.1", "--cutoffs", "0", "--clicks", "100", "20000", "--json", str(tmp_path / "found.json")]
    command += ["--methods", "PropRank", "LambdaMART"]
    assert experiment.main(command) == 0
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert str(folder) not in found["command"]
    setting = "noise 0.1, all shown"
    curves = {row[0]: row[1:] for row in found["tables"][f"nDCG@10, {setting}"]["rows"]}

    def mean(method, weights, clicks):
        cells = [
            tmp_path / "out" / folder.name / f"0.1-all-{seed}" / f"{method}-{weights}-{clicks}" / "result.json"
            for seed in (1, 2)
        ]
        return np.mean([json.loads(cell.read_text())["nDCG@10"] for cell in cells])

    for weights in ("naive", "true", "estimated"):
        for column, clicks in enumerate((100, 20000)):
            cell = curves[f"PropRank, {weights}"][column]
            assert cell.startswith(f"{mean('PropRank', weights, clicks):.4f} ±")
    # Trees have at most 10,000 clicks.
    assert curves["LambdaMART, position"][1].startswith(f"{mean('LambdaMART', 'position', 10000):.4f} ±")
    last = {row[0]: row[1] for row in found["tables"][f"against labels, {setting}"]["rows"]}
    ratio = 100 * (mean("PropRank", "true", 20000) / mean("PropRank", "labels", 0) - 1)
    assert last["PropRank, true"].startswith(f"{ratio:+.1f} %")
    monkeypatch.setattr(experiment, "train", None)  # nothing is run again
    assert experiment.main(command) == 0
    assert capsys.readouterr().out == printed
