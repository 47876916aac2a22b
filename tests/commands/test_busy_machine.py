"""The same command gives the same model on an idle machine and on one whose cores all have other work."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import rankstruct as rs

pytestmark = pytest.mark.soak
TUNED = """
seed_everything: 0
model:
  scorer: rankstruct.MLPScorer
  measures: [AP]
  optimizer: {class_path: torch.optim.Adam, init_args: {lr: 0.1}}
data: {builtin: synthetic, lists_per_batch: 50}
trainer: {max_epochs: 2}
"""


@contextmanager
def busy() -> Iterator[None]:
    """A process for each core, which counts up."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def without_times(value):
    """A result without seconds, dates and paths."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if not re.search("seconds|date|command|folder", key)}
        return {key: without_times(each) for key, each in kept.items()}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def outcome(args, output, number):
    """What a command writes: result, weights of the scorer, and the first line on the screen."""
    folder = output / number
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}  # all cores
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "rankstruct", *args, "--output", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    kind = args[0]
    if kind == "rank":
        model, result = folder, folder / "result.json"
    else:
        result = folder / "tune.json"
        (model,) = {path.parent for path in folder.rglob("metrics.json")}
    weights = {name: each.numpy().tobytes() for name, each in rs.load_scorer(model).state_dict().items()}
    return without_times(json.loads(result.read_text())), weights, done.stdout.splitlines()[0]


@pytest.mark.parametrize("kind", ["rank", pytest.param("tune", marks=pytest.mark.needs("optuna"))])
def test_the_model_does_not_depend_on_the_load(kind, tmp_path):
    if kind == "rank":  # time for the linear ranker and one MLP
        rng = np.random.default_rng(0)
        X = rng.normal(size=(240, 5))
        y = (X[:, 0] + np.abs(X[:, 1]) > 1.5).astype(int)
        lines = [
            f"{label} qid:{at // 8} " + " ".join(f"{k + 1}:{x:.4f}" for k, x in enumerate(row))
            for at, (label, row) in enumerate(zip(y, X, strict=True))
        ]
        (tmp_path / "train.txt").write_text("\n".join(lines) + "\n")
        train = str(tmp_path / "train.txt")
        args = ["rank", "--train", train, "--test", train, "--time-budget", "0.2"]
    else:
        (tmp_path / "config.yaml").write_text(TUNED)
        space = "model.optimizer.init_args.lr=log:1e-4,1"
        args = ["tune", "--config", str(tmp_path / "config.yaml"), "--space", space, "--trials", "2"]
    idle = outcome(args, tmp_path, "idle")
    with busy():
        loaded = outcome(args, tmp_path, "loaded")
    assert loaded[0] == idle[0]
    assert loaded[1] == idle[1] != {}
    if kind == "rank":
        assert loaded[2] == idle[2]
        assert idle[2].startswith("left out by the time budget of 0.2 s: ")
        notes = [each["note"] for each in idle[0]["models"] if not each["model"].startswith("ensemble")]
        assert len(list(filter(None, notes))) <= len(notes) - 2  # the linear ranker and another one
