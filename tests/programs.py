"""The commands of rankstruct and the scripts of the repository that follow the same policy, by one name each."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

import benchmark
import experiment
from rankstruct import cli

SCRIPTS = {"benchmark": benchmark, "experiment": experiment}


def main(args: Sequence[str]) -> int:
    """Run `rankstruct ARGS`, or a script where the first word is its name; returns the exit status."""
    name, *rest = args
    return SCRIPTS[name].main(rest) if name in SCRIPTS else cli.main(args)


def shown(name: str) -> str:
    """How messages of a command or a script begin."""
    return f"{name}.py" if name in SCRIPTS else f"rankstruct {name}"


def run_in(folder: Path, number: int | None = None) -> Path:
    """The folder of the one run in a folder; or by its number in the order of time."""
    runs = sorted(folder.glob("[0-9]*_*"))
    if number is None:
        (run,) = runs
        return run
    return runs[number]


def awaited_checkpoint(folder: Path) -> Path:
    """The last checkpoint of the run in a folder, once it is there."""
    deadline = time.monotonic() + 180  # on a busy machine, starting takes most of it
    while not (found := list(folder.glob("*/checkpoints/last.ckpt"))):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found[0]


def assert_a_killed_fit_resumes_to_the_same_bits(command: Sequence[str], folder: Path) -> None:
    """SIGKILL at a random checkpoint of the first ten; resumed, the weights equal those of a run left alone.

    `command` is `rankstruct fit` without `--output`, with averaged weights and many more checkpoints than ten.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])
    runs = {
        name: subprocess.Popen([*command, "--output", str(folder / name)], env=environment, stdout=subprocess.DEVNULL)
        for name in ("whole", "killed")
    }
    last = awaited_checkpoint(folder / "killed")
    for _ in range(random.randrange(10)):
        before = last.stat().st_ino  # each is written beside and put in its place
        while last.stat().st_ino == before and runs["killed"].poll() is None:
            time.sleep(0.001)
    runs["killed"].send_signal(signal.SIGKILL)
    assert runs["killed"].wait() == -signal.SIGKILL
    reached = torch.load(last, weights_only=True)["global_step"]
    resume = [sys.executable, "-m", "rankstruct", "fit", "--run", str(last.parents[1])]
    subprocess.run(resume, env=environment, check=True, capture_output=True)
    assert runs["whole"].wait() == 0
    assert_the_same_end(folder / "killed", folder / "whole", reached)


def assert_the_same_end(resumed: Path, whole: Path, reached: int) -> None:
    """The runs in two folders ended with the same weights and measures, one of them resumed at a step."""
    ends = [run_in(folder) / "checkpoints" / "last.ckpt" for folder in (resumed, whole)]
    found, expected = (torch.load(path, weights_only=True) for path in ends)
    assert found["global_step"] == expected["global_step"] > reached
    for key in ("state_dict", "current_model_state", "averaging_state"):
        assert found[key].keys() == expected[key].keys()
        for name, value in expected[key].items():
            assert torch.equal(found[key][name], value), (key, name, reached)
    reports = [json.loads((path.parents[1] / "metrics.json").read_text()) for path in ends]
    assert reports[0] == reports[1]
