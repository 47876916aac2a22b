"""Cross-validation: cells are trained once, selection is by validation, a finished cell is reused."""

import json

import pytest

from rankstruct.data import synthetic
from rankstruct.experiments.cross_validation import cross_validate, main

CONFIG = """
seed_everything: 0
model: {scorer: rankstruct.LinearScorer, measures: [AP, RR@10]}
data: {lists_per_batch: 10, cache: false}
trainer: {max_epochs: 2}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folds")
    for fold in (1, 2):
        (folder / f"Fold{fold}").mkdir()
        _, weights = synthetic(features=4, seed=0)
        for number, part in enumerate(("train", "vali", "test")):
            data, _ = synthetic(lists=12, features=4, seed=10 * fold + number, weights=weights)
            with (folder / f"Fold{fold}" / f"{part}.txt").open("w") as file:
                for q, (a, b) in enumerate(zip(data.offsets, data.offsets[1:], strict=False)):
                    for i in range(a, b):
                        values = " ".join(f"{j + 1}:{x:.5f}" for j, x in enumerate(data.features[i]))
                        file.write(f"{int(data.labels[i])} qid:{q + 1} {values}\n")
    (folder / "config.yaml").write_text(CONFIG)
    return folder


def run(folder, grid):
    return cross_validate(
        folder / "config.yaml",
        folds=[1, 2],
        grid=grid,
        output=folder / "out",
        options=["--data.path", str(folder)],
        processes=2,
    )


def test_selects_by_validation_and_reuses_finished_cells(folder, capsys):
    found = run(folder, {"model.regularization": ["0.01", "1000000"]})
    cells = {p.parent.name: json.loads(p.read_text()) for p in folder.glob("out/*/result.json")}
    assert set(cells) == {f"fold{fold}_regularization={value}" for fold in (1, 2) for value in ("0.01", "1000000")}
    for each in found["folds"]:
        mine = {name: cell for name, cell in cells.items() if name.startswith(f"fold{each['fold']}_")}
        best = max(mine.values(), key=lambda cell: cell["best"]["validation"])
        assert each["validation"] == best["best"]["validation"]
        assert each["test"] == best["test"]
    assert found["mean"]["AP"] == pytest.approx(sum(each["test"]["AP"] for each in found["folds"]) / 2)
    assert 0.5 < found["mean"]["AP"] <= 1

    # A cell that is there is taken as it is, whatever it says.
    target = folder / "out" / "fold1_regularization=0.01" / "result.json"
    report = json.loads(target.read_text())
    report["best"]["validation"], report["test"] = 2.0, {"AP": 0.123, "RR@10": 0.5}
    target.write_text(json.dumps(report))
    again = run(folder, {"model.regularization": ["0.01", "1000000"]})
    assert again["folds"][0]["test"]["AP"] == 0.123
    assert again["folds"][1] == found["folds"][1]

    # Runs of another config are not taken for those asked for.
    arguments = ["--config", str(folder / "config.yaml"), "--output", str(folder / "out"), "--folds", "1"]
    other = [*arguments, "--grid", "model.regularization=0.01", "--data.path", str(folder), "--trainer.max_epochs", "3"]
    assert main(other) == 1
    assert "holds a run with another options" in capsys.readouterr().err

    arguments = ["--config", str(folder / "config.yaml"), "--folds", "1", "2", "--output", str(folder / "out")]
    grid = ["--grid", "model.regularization=0.01,1000000", "--data.path", str(folder)]
    assert main([*arguments, *grid]) == 0
    out = capsys.readouterr().out
    assert "0.1230" in out
    assert "4 runs, 4 of them reused" in out
    assert json.loads((folder / "out" / "cross_validation.json").read_text())["folds"] == again["folds"]


def test_malformed_grid_is_refused(folder, capsys):
    with pytest.raises(SystemExit):
        main(["--config", "c", "--output", "o", "--grid", "model.regularization"])
    assert "--grid takes KEY=VALUE,VALUE" in capsys.readouterr().err
