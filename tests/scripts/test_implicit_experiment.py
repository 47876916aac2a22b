"""The experiment with losses for implicit feedback: settings chosen on validation, tables, nothing run twice."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scripts_by_path import script

from rankstruct.recommenders import InteractionsSource

experiment = script("implicit_experiment")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, parts = tmp_path_factory.mktemp("data"), InteractionsSource(builtin="synthetic").read()
    for name, part in (("train", parts.train), ("valid", parts.vali), ("test", parts.test)):
        users = np.split(part.item, part.offsets[1:-1])
        lines = (f"{u} {' '.join(map(str, items))}\n" for u, items in enumerate(users))
        (folder / f"{name}.txt").write_text("".join(lines))
    return folder


def test_first_calls_are_compared_on_validation_items(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(experiment, "GRID", {"neighbours=True": experiment.GRID["neighbours=True"]})
    command = ["--data", str(data), "--first_calls", "--json", str(tmp_path / "found.json")]
    assert experiment.main(command) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    rows = {row[1]: float(row[2]) for row in found["tables"]["first calls"]["rows"]}
    assert rows["Recommender"] > 0.97 * rows["EASE"] > rows["popularity"]
    assert rows["neighbours=True"] > 0.97 * rows["EASE"]
    assert str(data) not in found["command"]
    with pytest.raises(SystemExit):
        experiment.main(["--data", str(data), str(data)])
    assert "--data must be one folder without --first_calls, got 2" in capsys.readouterr().err


def test_settings_are_chosen_and_kept_results_are_reused(data, tmp_path, capsys, monkeypatch):
    command = [
        "--data",
        str(data),
        "--output",
        str(tmp_path / "out"),
        "--processes",
        "0",
        "--seeds",
        "2",
        "--epochs",
        "3",
    ]
    command += ["--settings", "2", "--losses", "softmax", "BPR", "--json", str(tmp_path / "found.json")]
    assert experiment.main(command) == 0
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    means = {
        row[0]: dict(zip(found["tables"]["means"]["header"], row, strict=True))
        for row in found["tables"]["means"]["rows"]
    }
    assert [*means] == ["popularity", "EASE", "softmax", "BPR"]
    assert str(data) not in found["command"]
    runs = {loss: [*(tmp_path / "out" / loss).glob("*/result.json")] for loss in ("softmax", "BPR")}
    for loss, files in runs.items():
        assert len(files) == 3  # two settings, and the second seed of the better one
        values = {path.parent.name: json.loads(path.read_text()) for path in files}
        first = {name: each["vali"] for name, each in values.items() if name.endswith("-0")}
        chosen = max(first, key=first.get).removesuffix("-0")
        mean = np.mean([np.mean(each["test"]["nDCG@10"]) for name, each in values.items() if name.startswith(chosen)])
        assert means[loss]["nDCG@10"].startswith(f"{mean:.4f} ±")
        bias = {"yes": 1, "no": 0}[means[loss]["item bias"]]
        assert f"{means[loss]['temperature']}-{means[loss]['dropout']}-{bias}" == chosen
    assert float(means["EASE"]["nDCG@10"]) > float(means["popularity"]["nDCG@10"])
    monkeypatch.setattr(experiment, "train", None)  # nothing is run again
    assert experiment.main(command) == 0
    assert capsys.readouterr().out == printed


def test_a_script_trains_in_other_processes(data, tmp_path):
    given = ["--data", str(data), "--output", str(tmp_path), "--processes", "1", "--seeds", "1", "--epochs", "1"]
    command = [sys.executable, experiment.__file__, *given, "--settings", "1", "--losses", "softmax"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"written: {tmp_path}" in done.stdout


SCRIPTS = Path(experiment.__file__).parent


@pytest.mark.parametrize(
    "name",
    [
        path.stem
        for path in SCRIPTS.glob("*.py")
        if {"@cache", "CellFolders"} <= {*re.split(r"[\s(]", path.read_text())}
    ],
)
def test_cached_functions_of_a_script_have_a_module_that_other_processes_import(name):
    """`__main__` is another module in each process, and cached functions are pickled by name."""
    assert f"{name}.main()" in (SCRIPTS / f"{name}.py").read_text()
