"""The commands of rankstruct and the scripts of the repository that follow the same policy, by one name each."""

from collections.abc import Sequence

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
