"""The console command `rankstruct`: a table of commands, and one policy for errors, Ctrl-C and exit codes.

A command is a module of `rankstruct.commands` with `main(args)`, which gets its own name first; a script of the repository
follows the same policy by `run`. A command reports failure by raising: ValueError, OSError and `CellsFailed` are printed in one
line, exit code 1; usage errors are argparse's, exit code 2; Ctrl-C reports what was saved, exit code 130. Imports are lazy:
`--help` and `--version` start without torch.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rankstruct._version import __version__
from rankstruct.commands._arguments import check_configs, find_commands, find_configs, options_in
from rankstruct.commands._options import as_option, parser_of
from rankstruct.launcher import end_with_launcher
from rankstruct.messages import SPELLING, did_you_mean, one_line

COMMANDS = find_commands()

#: Names of these commands in other tools.
_ELSEWHERE = {"train": "fit", "score": "predict", "search": "tune", "list": "configs"}
#: What torch says, on whatever device.
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "torage size calculation overflowed")
#: Scripts of the repository, which are not in the package.
_SCRIPTS = ("experiment", "benchmark")


def usage() -> str:
    """The text of `rankstruct --help`."""
    lines = "\n".join(f"  {name:<16} {what}" for name, (_, what) in COMMANDS.items())
    return (
        f"usage: rankstruct COMMAND [OPTIONS]\n\n{lines}\n\n"
        "fit, validate, test and predict need --config (a file, or a name from `rankstruct configs`) or --run (a folder).\n"
        "`rankstruct COMMAND --help` lists the options.\n"
    )


def main(args: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    args = list(sys.argv[1:] if args is None else args)
    name = args[0] if args else ""
    if name in ("", "-h", "--help"):
        print(usage())
        return 0 if args else 2
    if name == "--version":
        print(f"rankstruct {__version__}")
        return 0
    if name not in COMMANDS:
        print(f"rankstruct: unknown command {name!r}{_meant(name) or '; see rankstruct --help'}", file=sys.stderr)
        return 2

    def work(args: list[str]) -> object:
        if not {"-h", "--help"}.isdisjoint(args):  # before anything heavy is imported
            parser_of(name, args).parse_args(["--help"])
        given = dict(options_in(args))
        if (on := given.get("--on")) in ("ray", "dask"):  # before what takes long, too
            importlib.import_module("rankstruct.commands.cluster").check_address(on, given.get("--address"))
        return importlib.import_module(f"rankstruct.commands.{COMMANDS[name][0]}").main(args)

    return run(name, work, args)


def run(
    name: str,
    work: Callable[[list[str]], object],
    args: Sequence[str] | None = None,
    *,
    program: str = "",
    configs: Mapping[str, Path] | None = None,
) -> int:
    """Do the work of a command by the policy of this module; returns the exit status.

    Args:
        name: of the command, whose options error messages name instead of arguments.
        work: called with the arguments, in which paths stand for the names of configs.
        args: of the command; those of this process if None.
        program: how error messages begin; `rankstruct NAME` by default.
        configs: by name; those of the package by default.
    """
    program = program or f"rankstruct {name}"

    def say(message: str, status: int) -> int:
        print(f"{program}: {one_line(message)}", file=sys.stderr)
        return status

    def as_line(message: Warning | str, category: type[Warning], *place: object, **more: Any) -> str:
        if not issubclass(category, UserWarning):
            return usual(message, category, *place, **more)
        return f"{program}: warning: {one_line(str(message))}\n"

    end_with_launcher()
    usual: Any = warnings.formatwarning
    warnings.formatwarning = as_line
    spelling = SPELLING.set(partial(as_option, name))
    try:
        args = find_configs(sys.argv[1:] if args is None else args, configs)
        check_configs(args)
        work(args)
    except KeyboardInterrupt as stop:
        return say(str(stop) or "stopped", 130)
    except (ImportError, RuntimeError) as error:
        if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            return say("stopped", 130)  # Ctrl-C while an extension module was loaded, or torch.save wrote
        if not any(told in str(error) for told in _OUT_OF_MEMORY):
            raise
        return say(f"out of memory: {error}", 1)
    except BrokenPipeError as error:
        return 1 if _is_stdout_closed() else say(str(error), 1)
    except (ValueError, OSError) as error:
        return say(str(error), 1)
    except MemoryError as error:
        return say(f"out of memory: {error}" if str(error) else "out of memory", 1)
    finally:
        warnings.formatwarning = usual
        SPELLING.reset(spelling)
    return 0


def _is_stdout_closed() -> bool:
    """Whether the reader of stdout has closed it, as `head` does; if so, the interpreter will not complain as it ends."""
    try:
        print(flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def _meant(name: str) -> str:
    if name in _SCRIPTS:
        return f"; it is a script of the repository: python scripts/{name}.py"
    return f"; did you mean {_ELSEWHERE[name]}?" if name in _ELSEWHERE else did_you_mean(name, COMMANDS)
