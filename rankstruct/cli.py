"""The console command `rankstruct`: a table of commands, and one policy for errors, Ctrl-C and exit codes.

A command is a module of `rankstruct.commands` with `main(args)`, which gets its own name first, and a line of `COMMANDS`. It does
its work and raises: ValueError, OSError and `CellsFailed` are said in one line, exit code 1; wrong usage is argparse's, exit code
2; Ctrl-C says what was kept, exit code 130. Each imports what it needs: `--help` and `--version` start without torch.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence

from rankstruct._version import __version__
from rankstruct.commands._advice import as_options
from rankstruct.commands._arguments import check_configs, find_configs
from rankstruct.launcher import end_with_launcher
from rankstruct.messages import did_you_mean, one_line

#: Module of `rankstruct.commands` and what it does; a new command is one line here.
COMMANDS: dict[str, tuple[str, str]] = {
    "fit": (
        "fit",
        "train a ranker, or a factorisation of ratings, from a config file, then test the best checkpoint",
    ),
    "validate": ("fit", "measure a checkpoint on the validation lists"),
    "test": ("fit", "measure a checkpoint on the test lists"),
    "predict": ("fit", "write scores and a TREC run file; of a factorisation also recommendations"),
    "cross-validate": ("cross_validate", "train over folds and a grid, select on validation, report the test folds"),
    "compare": ("compare", "cross-validate several configs, one line of a table each"),
    "rank": ("rank", "train the best of a few recipes on files of lists, test it, write one folder with a model card"),
    "tune": ("tune", "search the values of a config with Optuna, test what validation chooses"),
    "fit-exact": ("fit_exact", "train linear and kernel rankers to the optimum, along C and over folds"),
    "certify": ("certify", "how far a run of SGD is from the optimum of its objective"),
    "experiment": (
        "experiment",
        "whole experiments: trainers and baselines over folds, tables with significance, plots, a report",
    ),
    "evaluate": ("evaluate", "measure scores or a run against labels or qrels; compare two"),
    "convert": ("convert", "write lists of any size as files that are mapped, in bounded memory"),
    "configs": ("configs", "list the configs that come with the package; print or copy one"),
    "cache": ("cache", "look at the parsed files that are kept, and remove them"),
    "benchmark": ("benchmark", "time oracles, losses or exact training"),
}

#: What other tools call it.
_ELSEWHERE = {"train": "fit", "score": "predict", "search": "tune", "list": "configs"}


def usage() -> str:
    """What `rankstruct --help` prints."""
    lines = "\n".join(f"  {name:<16} {what}" for name, (_, what) in COMMANDS.items())
    return (
        f"usage: rankstruct COMMAND [OPTIONS]\n\n{lines}\n\n"
        "fit, validate, test and predict take --config, a file or a name of `rankstruct configs`, or --run, a folder.\n"
        "`rankstruct COMMAND --help` tells the options.\n"
    )


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
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
    end_with_launcher()
    try:
        args = find_configs(args)
        check_configs(args)
        importlib.import_module(f"rankstruct.commands.{COMMANDS[name][0]}").main(args)
    except KeyboardInterrupt as stop:
        return _say(name, str(stop) or "stopped", 130)
    except (ImportError, RuntimeError) as error:
        if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            return _say(name, "stopped", 130)  # Ctrl-C while an extension module was loaded, or torch.save wrote
        if not re.search("out of memory|can't allocate memory|[Ss]torage size calculation overflowed", str(error)):
            raise
        return _say(name, f"out of memory: {error}", 1)  # of torch, on whatever device
    except BrokenPipeError as error:
        try:
            print(flush=True)
        except BrokenPipeError:  # who read what it prints has seen enough, as `head` has; another pipe is an error
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
            )  # nor may the interpreter complain as it ends
            return 1
        return _say(name, str(error), 1)
    except (ValueError, OSError) as error:
        return _say(name, str(error), 1)
    except MemoryError as error:
        return _say(name, f"out of memory: {error}" if str(error) else "out of memory", 1)
    return 0


def _meant(name: str) -> str:
    return f"; did you mean {_ELSEWHERE[name]}?" if name in _ELSEWHERE else did_you_mean(name, COMMANDS)


def _say(name: str, message: str, status: int) -> int:
    print(f"rankstruct {name}: {one_line(as_options(name, message))}", file=sys.stderr)
    return status
