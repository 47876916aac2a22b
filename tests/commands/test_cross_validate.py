"""Cross-validation: cells are trained once, selection is by validation, a finished cell is reused."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from cell_works import replace_result

import rankstruct as rs
from rankstruct.cli import main as rankstruct
from rankstruct.commands import cross_validate as module
from rankstruct.commands.cells import CellFolders, CellsFailed, locked
from rankstruct.commands.compare import difference_table
from rankstruct.commands.cross_validate import SELECTION, cross_validate
from rankstruct.data import Source, read_scores, synthetic

pytestmark = pytest.mark.usefixtures("no_pictures_here")

CONFIG = """
seed_everything: 0
model: {scorer: rankstruct.LinearScorer, measures: [AP, RR@10]}
data: {lists_per_batch: 10, cache: false}
trainer: {max_epochs: 2}
"""


def main(arguments, processes=0):
    return rankstruct(["cross-validate", *arguments, "--processes", str(processes)])


def compare(arguments, processes=0):
    return rankstruct(["compare", *arguments, "--processes", str(processes)])


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
        processes=0,
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
    low, high = found["interval"]["AP"]
    assert low < found["mean"]["AP"] < high

    # Every run keeps its scores, with which it is measured again.
    for name, cell in cells.items():
        data = Source(str(folder), fold=int(name[4]), cache=False).read().test
        scores = read_scores(folder / "out" / name / "run" / "test-scores.txt")
        values = rs.evaluate(scores, data.labels, "AP", offsets=data.offsets)["AP"]
        assert float(values.mean()) == pytest.approx(cell["test"]["AP"], abs=1e-6)
        assert cell["test_values"]["AP"] == pytest.approx(values.tolist(), abs=1e-9)

    # A cell that is there is taken as it is, whatever it says.
    target = folder / "out" / "fold1_regularization=0.01" / "result.json"
    report = json.loads(target.read_text())
    report["best"]["validation"], report["test"] = 2.0, {"AP": 0.123, "RR@10": 0.5}
    replace_result(target.parent, report)
    again = run(folder, {"model.regularization": ["0.01", "1000000"]})
    assert again["folds"][0]["test"]["AP"] == 0.123
    assert again["folds"][1] == found["folds"][1]

    # Runs of another config are not taken for those asked for.
    arguments = ["--config", str(folder / "config.yaml"), "--output", str(folder / "out"), "--folds", "1"]
    other = [*arguments, "--grid", "model.regularization=0.01", "--data.path", str(folder), "--trainer.max_epochs", "3"]
    assert main(other) == 1
    assert "holds a run that differs in options" in capsys.readouterr().err

    arguments = ["--config", str(folder / "config.yaml"), "--folds", "1", "2", "--output", str(folder / "out")]
    grid = ["--grid", "model.regularization=0.01,1000000", "--data.path", str(folder)]
    assert main([*arguments, *grid]) == 0
    out = capsys.readouterr().out
    assert "0.1230" in out
    assert f"{low:.4f} to {high:.4f}" in out
    assert "4 runs, 4 of them reused" in out
    assert f"\n{SELECTION}\n" in out
    result = json.loads((folder / "out" / "cross_validation.json").read_text())
    assert result["folds"] == again["folds"]
    assert result["tables"]["folds"]["rows"][-2][0] == "mean"
    assert result["versions"]["rankstruct"] == rs.__version__

    # What was trained before may know what judges it.
    checkpoint = str(folder / "out" / "fold1_regularization=0.01" / "run" / "checkpoints" / "best.ckpt")
    for given in (["--ckpt_path", checkpoint], ["--grid", f"ckpt_path={checkpoint}"]):
        assert main([*arguments[:-1], str(folder / "again"), "--data.path", str(folder), *given]) == 1
        assert "ckpt_path must not be set when many runs are trained and compared, got " in capsys.readouterr().err


@pytest.mark.soak
def test_further_seeds_train_what_was_chosen_and_show_the_spread(folder, capsys):
    arguments = ["--config", str(folder / "config.yaml"), "--folds", "1", "2", "--output", str(folder / "seeds")]
    more = ["--grid", "model.regularization=0.01,1000000", "--data.path", str(folder), "--data.lists_per_batch", "3"]
    assert main([*arguments, *more, "--seeds", "3"], processes=2) == 0
    out = capsys.readouterr().out
    assert "8 runs, 0 of them reused" in out
    found = json.loads((folder / "seeds" / "cross_validation.json").read_text())
    chosen = {each["fold"]: each["point"]["model.regularization"] for each in found["folds"]}
    values = []
    for seed in ("", "_seed=1001", "_seed=1002"):
        cells = [folder / "seeds" / f"fold{f}_regularization={chosen[f]}{seed}" / "result.json" for f in (1, 2)]
        values.append(np.mean([json.loads(cell.read_text())["test"]["AP"] for cell in cells]))
    assert len(set(values)) == 3  # the order of batches depends on the seed
    assert found["by_seed"]["AP"] == pytest.approx(values)
    assert found["mean"]["AP"] == pytest.approx(np.mean(values))
    assert f"{np.mean(values):.4f} ± {np.std(values, ddof=1):.4f}" in out
    assert main([*arguments, *more, "--seeds", "1"]) == 0
    assert "4 runs, 4 of them reused" in capsys.readouterr().out
    with pytest.raises(ValueError, match="seeds must be at least 1 and at most 10000, got 0"):
        cross_validate(folder / "config.yaml", grid={}, output=folder / "seeds", seeds=0)


def test_malformed_grid_is_refused(folder, capsys):
    with pytest.raises(SystemExit):
        main(["--config", "./c", "--output", "o", "--grid", "model.regularization"])
    assert "--grid takes KEY=VALUE,VALUE" in capsys.readouterr().err


def test_configs_are_tested_against_the_first_list_by_list():
    found = {
        name: {"mean": {"AP": np.mean(values), "RR": 0.5}, "values": {"AP": values, "RR": None}}
        for name, values in {"a": [0.1, 0.2, 0.3, 0.4], "b": [0.2, 0.4, 0.5, 0.4], "c": [0.1, 0.2, 0.3, 0.4]}.items()
    }
    header, rows = difference_table(found)
    assert header == ["less a", "test AP", "test RR"]
    assert rows[0][0] == "b"
    assert rows[0][1].startswith("+0.1250 (+0.0")
    assert rows[0][1].endswith("), p 0.25")  # two of the eight ways to flip three signs
    assert rows[1:] == [["c", "+0.0000 (+0.0000 to +0.0000), p 1", ""]]


@pytest.mark.soak
def test_compare_has_a_line_for_each_config(folder, capsys):
    other = folder / "other.yaml"
    other.write_text(CONFIG.replace("measures:", "loss: rankstruct.SmoothLoss, measures:"))
    arguments = ["--configs", str(folder / "config.yaml"), str(other), "--output", str(folder / "compared")]
    more = ["--folds", "1", "2", "--grid", "model.regularization=0.1,0.01", "--data.path", str(folder)]
    assert compare([*arguments, *more, "--model.measures", "[RR@10, AP]"], processes=1) == 0
    printed = capsys.readouterr().out
    result = json.loads((folder / "compared" / "comparison.json").read_text())
    assert result["command"].startswith("rankstruct compare --configs ")
    found = result["configs"]
    assert list(found) == ["config", "other"]
    assert [row[0] for row in result["tables"]["comparison"]["rows"]] == ["config", "other"]
    assert [row[0] for row in result["tables"]["differences"]["rows"]] == ["other"]
    assert "values" not in found["other"]
    alone = cross_validate(
        other,
        folds=[1, 2],
        grid={"model.regularization": ["0.1", "0.01"]},
        output=folder / "compared" / "other",
        options=["--data.path", str(folder), "--model.measures", "[RR@10, AP]"],
    )
    assert alone["reused"] == 4
    assert alone["mean"] == found["other"]["mean"]
    assert f"{found['other']['mean']['AP']:.4f}" in printed
    table = (folder / "compared" / "comparison.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert cells[0] == ["config", "test RR@10", "test AP", "CPU seconds"]
    assert cells[3][:2] == ["other", f"{found['other']['mean']['RR@10']:.4f}"]
    again = folder / "elsewhere" / "config.yaml"
    again.parent.mkdir()
    again.write_text(CONFIG)
    assert compare(["--configs", str(folder / "config.yaml"), str(again), "--output", str(folder / "x")]) == 1
    assert "several are named config" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_of_data_that_changed_are_refused(folder, tmp_path, capsys):
    data = shutil.copytree(folder / "Fold1", tmp_path / "data" / "Fold1").parent
    arguments = ["--config", str(folder / "config.yaml"), "--folds", "1", "--output", str(tmp_path / "out")]
    arguments += ["--data.path", str(data), "--trainer.max_epochs", "1"]
    assert main(arguments) == 0
    (request,) = tmp_path.glob("out/*/request.json")
    lines = (data / "Fold1" / "test.txt").read_text().splitlines()
    (data / "Fold1" / "test.txt").write_text("\n".join(lines[:-1]) + "\n")
    capsys.readouterr()
    assert main(arguments) == 1
    assert "holds a run that differs in content" in capsys.readouterr().err
    note = json.loads(request.read_text())
    del note["request"]["content"]  # what is not known to be the same is not
    request.write_text(json.dumps(note))
    assert main(arguments) == 1
    assert "holds a run that differs in content" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_fails_is_named_after_the_others(folder, tmp_path, capsys):
    arguments = ["--config", str(folder / "config.yaml"), "--folds", "1", "--output", str(tmp_path / "out")]
    grid = ["--grid", "model.regularization=-1,0.1", "--data.path", str(folder)]
    assert main([*arguments, *grid]) == 1
    error = capsys.readouterr().err
    assert "1 of 2 training runs of config failed; those that finished are saved" in error
    assert "fold1_regularization=-1: ArgumentError: regularization must be a finite number of at least 0" in error
    assert (tmp_path / "out" / "fold1_regularization=0.1" / "result.json").is_file()


@pytest.mark.slow
def test_cells_that_wait_do_not_see_what_happens_to_config_and_data(folder, tmp_path, monkeypatch, capsys):
    """An edit of the config, made after the first cell, is not seen by the second; one of the data fails it."""
    data, config = tmp_path / "data", tmp_path / "config.yaml"
    for fold in (1, 2):
        shutil.copytree(folder / f"Fold{fold}", data / f"Fold{fold}")
    config.write_text(CONFIG.replace("max_epochs: 2", "max_epochs: 1"))
    keep = CellFolders.keep

    def keep_and_edit(store, cell, result):
        keep(store, cell, result)
        config.write_text(CONFIG.replace("measures: [AP, RR@10]", "measures: [RR@10]"))

    monkeypatch.setattr(CellFolders, "keep", keep_and_edit)
    given = {"folds": [1, 2], "grid": {}, "options": ["--data.path", str(data)], "processes": 0}
    found = cross_validate(config, output=tmp_path / "out", **given)
    assert list(found["mean"]) == ["AP", "RR@10"]
    monkeypatch.setattr(CellFolders, "keep", keep)
    test = data / "Fold2" / "test.txt"
    monkeypatch.setattr("tqdm.tqdm.update", lambda *_: test.write_text(test.read_text() + "1 qid:99 1:0.5\n"))
    with pytest.raises(CellsFailed, match="fold2: its data changed while it ran"):
        cross_validate(config, output=tmp_path / "other", **given)


@pytest.mark.slow
def test_a_folder_that_another_process_writes_to_is_left_alone(folder, tmp_path, capsys):
    pytest.importorskip("fcntl")
    arguments = [
        "--folds",
        "1",
        "--output",
        str(tmp_path / "out"),
        "--data.path",
        str(folder),
        "--trainer.max_epochs",
        "1",
    ]
    config = str(folder / "config.yaml")
    with locked(tmp_path / "out"):
        assert main(["--config", config, *arguments]) == 1
        assert compare(["--configs", config, *arguments]) == 1
    assert capsys.readouterr().err.count("another process is writing to it; wait, or use another --output") == 2
    assert main(["--config", config, *arguments]) == 0
    with locked(tmp_path / "out" / "fold1" / "run"):  # a cell is a run, which `fit` may go on with
        assert rankstruct(["fit", "--run", str(tmp_path / "out" / "fold1" / "run")]) == 1
    assert "another process is writing to it" in capsys.readouterr().err


OTHERS = {
    "config": ["--config", "{folder}/other.yaml"],
    "folds": ["--folds", "2"],
    "grid": ["--grid", "model.regularization=0.5"],
    "seeds": ["--seeds", "2"],
    "an option of training": ["--trainer.max_epochs", "7"],
    "a file that an option names": ["--trainer.callbacks", "{folder}/named.yaml"],
}


@pytest.mark.parametrize("option", OTHERS)
def test_a_finished_folder_answers_its_own_request_only(option, folder, tmp_path, monkeypatch, capsys):
    def pretend(arguments, target):  # a result that depends on all that a run is given
        known = [Path(each).read_text() for each in arguments if Path(each).is_file()]
        others = [each for each in arguments if not Path(each).is_file()]
        value = int(hashlib.sha256(repr((known, others)).encode()).hexdigest()[:8], 16) / 2**32
        return {"best": {"validation": value, "epoch": 1}, "test": {"AP": value}, "seconds": 1.0, "cpu_seconds": 1.0}

    monkeypatch.setattr(module, "_train", pretend)
    monkeypatch.setattr(module, "check_values", lambda *_: None)
    monkeypatch.setattr(module, "check_data", lambda *_: "content")
    shutil.copyfile(folder / "config.yaml", tmp_path / "config.yaml")
    (tmp_path / "other.yaml").write_text((folder / "config.yaml").read_text() + "\n# another\n")
    named = tmp_path / "named.yaml"
    named.write_text("a: 1\n")
    base = {"--config": ["{folder}/config.yaml"], "--folds": ["1"], "--data.path": [str(folder)]}

    def answer(more, output):
        merged = base | ({more[0]: more[1:]} if more else {})
        words = [each.format(folder=tmp_path) for name, values in merged.items() for each in (name, *values)]
        status = main([*words, "--output", str(tmp_path / str(output))])
        result = tmp_path / str(output) / "cross_validation.json"
        return json.loads(result.read_text())["folds"] if status == 0 else capsys.readouterr().err

    changed = option in ("config", "an option of training", "a file that an option names")
    for number, (one, other) in enumerate((([], OTHERS[option]), (OTHERS[option], []))):
        assert isinstance(answer(one, number), list)
        if one and "{folder}/named.yaml" in one:
            named.write_text("a: 2\n")
            other = one
        found, expected = answer(other, number), answer(other, f"fresh{number}")
        if changed:
            assert "fold1 holds a run that differs in" in found
        else:
            assert found == expected
