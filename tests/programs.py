"""The commands of rankstruct and the scripts of the repository that follow the same policy, by one name each."""

from collections.abc import Sequence
from pathlib import Path

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
