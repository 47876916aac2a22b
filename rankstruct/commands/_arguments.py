"""What the command lines of all commands share: the table of commands, configs by name, and the parser.

Configs are found by name and checked before parsing. An option is declared with what it has no effect without, see `Need`.
Messages are one line.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rankstruct.messages import did_you_mean

CLUSTERS = ("dask", "ray")
_CONFIGS = ("-c", "--config", "--configs")


@cache
def find_commands() -> dict[str, tuple[str, str]]:
    """Module and summary of each command, from a line "`rankstruct NAME`: summary." of the module's docstring.

    Nothing is imported. `fit` and its relatives come first.
    """
    files = sorted(Path(__file__).parent.glob("[!_]*.py"), key=lambda file: (file.stem != "fit", file.stem))
    about = {file.stem: file.read_text(encoding="utf-8").split('"""')[1] for file in files}
    return {
        name: (module, summary)
        for module, text in about.items()
        for name, summary in re.findall(r"^`rankstruct ([\w-]+)`: (.+)\.$", text, re.MULTILINE)
    }


def described(command: str) -> str:
    """The summary of a command, as a sentence."""
    summary = find_commands()[command][1]
    return f"{summary[0].upper()}{summary[1:]}."


def shipped_configs() -> dict[str, Path]:
    """The configs shipped with the package, by name; in a checkout, those in its folder `configs` that commands take."""
    package = Path(__file__).parents[1]
    folder = next((each for each in (package / "configs", package.parent / "configs") if each.is_dir()), package)
    return {name: path for name, path in configs_of(folder).items() if not name.startswith("experiment-")}


def configs_of(folder: Path, pattern: str = "*") -> dict[str, Path]:
    """The configs in a folder whose names match a pattern, by name."""
    return {path.stem: path for path in sorted(folder.glob(f"{pattern}.yaml"), key=lambda path: path.stem)}


def find_configs(args: Sequence[str], configs: Mapping[str, Path] | None = None) -> list[str]:
    """Replace names of configs by their paths, as in `--config quickstart` or `--configs 'letor-*'`.

    A file of that name has precedence. Values that do not look like names are left to the command.

    Args:
        args: of a command.
        configs: by name; those shipped with the package by default.

    Raises:
        ValueError: an unknown name.
    """
    found: list[str] = []
    for arg, option, value in _with_options(args):
        paths = _by_name(value, configs) if value and option in _CONFIGS else [value]
        found += [arg] if paths == [value] else paths if arg == value else [option, *paths]
    return found


def _by_name(name: str, configs: Mapping[str, Path] | None) -> list[str]:
    if Path(name).is_file() or not re.fullmatch(r"[\w*?-]+(\.yaml)?", name):
        return [name]
    known = shipped_configs() if configs is None else configs
    stem = name.removesuffix(".yaml")
    found = [str(path) for each, path in known.items() if fnmatchcase(each, stem)]
    if not found:
        where = "a config listed by `rankstruct configs`" if configs is None else "one of this command's configs"
        raise ValueError(f"{name} is neither a file nor {where}{did_you_mean(stem, known, most=3, least=0.5)}")
    return found


def as_typed(args: Sequence[str]) -> list[str]:
    """The command line for a result file: `rankstruct`, the command, and shipped configs by name."""
    return ["rankstruct", *with_names(args, shipped_configs())]


def with_names(args: Sequence[str], configs: Mapping[str, Path]) -> list[str]:
    """Replace paths of configs by their names again, for a result file."""
    names = {str(path): name for name, path in configs.items()}
    return [names.get(arg, arg) for arg in args]


def check_configs(args: Sequence[str]) -> None:
    """Check the config files of a command line, including partial configs (`--model FILE.yaml`) and those of earlier runs.

    Raises:
        ValueError: as `rankstruct.configs.check_config`.
    """
    for _, option, value in _with_options(args):
        path = Path(value, "config.yaml") if option == "--run" else Path(value)
        is_part = option.startswith("--") and path.suffix in (".yaml", ".yml")
        if value and (option in (*_CONFIGS, "--run") or is_part) and path.is_file():
            from rankstruct.configs import check_config  # imports YAML, which `--help` does not need

            check_config(path)


def configs_in(args: Sequence[str]) -> list[str]:
    """The config files of a command line, in order."""
    named = [value for _, option, value in _with_options(args) if option in _CONFIGS]
    return [value for value in named if value and Path(value).is_file()]


def options_in(args: Sequence[str]) -> list[tuple[str, str]]:
    """The options of a command line with their values, "" where there is none; a further value is listed once more."""
    return [(option, value) for _, option, value in _with_options(args)]


def named_files(values: Any) -> dict[str, str]:
    """Digests of the files that values of a config or a command line name, by their paths; nested lists and objects are searched.

    >>> named_files(["--trainer.max_epochs=3", {"data": {"path": "no-such-file.txt"}}])
    {}
    """
    from rankstruct.data.source import digest_of  # imports torch, which `rankstruct --help` does not need

    if isinstance(values, str):
        paths = [path for path in (values, values.partition("=")[2]) if os.path.isfile(path)]
        return {path: digest_of(path) for path in paths}
    nested = values.values() if isinstance(values, Mapping) else values if isinstance(values, list | tuple) else ()
    return {path: digest for value in nested for path, digest in named_files(value).items()}


def _with_options(args: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Each argument, the option that it is or belongs to, and its value, if any."""
    option = ""
    for arg in args:
        if arg.startswith("-"):
            option, equals, value = arg.partition("=")
            yield arg, option, value
            option = "" if equals else option
        else:
            yield arg, option, arg


def whole_number(least: int) -> Callable[[str], int]:
    """The type of every integer option of `argparse`: a number from `least` on.

    >>> whole_number(1)("0")
    Traceback (most recent call last):
        ...
    argparse.ArgumentTypeError: expected an integer from 1, got '0'
    """

    def parse(text: str) -> int:
        if not re.fullmatch("[0-9]{1,18}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected an integer from {least}, got {text[:30]!r}")
        return int(text)

    return parse


def add_cell_options(parser: argparse.ArgumentParser, cells: str, output: str | None = None) -> None:
    """Add the options of a command that runs cells: `--output`, required if it has no default, and `--processes`."""
    kept = f"folder of all {cells}; finished ones are reused"
    parser.add_argument("--output", required=output is None, default=output, help=kept)
    parallel = f"parallel {cells}, one thread each; 0 runs them in this process (default: 1, or all that a cluster has room for)"
    parser.add_argument("--processes", type=whole_number(0), help=parallel)


def add_cluster_options(parser: CommandParser) -> None:
    """Add `--on` and `--address`, the arguments of `rankstruct.commands.cluster.cluster`."""
    engine = "run on a cluster, whose machines share the data and the output folder (default: on this machine)"
    apart = Need("with --processes 0, in this process", lambda values: values.processes != 0)
    parser.add_argument("--on", choices=CLUSTERS, help=engine, needs=[apart])
    add_address(parser)


def add_address(parser: CommandParser) -> None:
    """Add `--address`, of the cluster of `--on`."""
    where = "HOST:PORT of the cluster (default for Ray: the one it finds, or a new one on this machine)"
    on = Need("without --on", lambda values: values.on)
    parser.add_argument("--address", help=where, needs=[on])


class Need(NamedTuple):
    """What an option has no effect without; told of the parsed options, or of a config."""

    lacking: str
    is_met: Callable[[Any], object]

    def refused(self, option: str, values: Any) -> str:
        """What is said of an option that was typed, or ""; a config may hold options for several commands."""
        return "" if self.is_met(values) else f"{option} has no effect {self.lacking}; remove it"


class _Formatter(argparse.HelpFormatter):
    """The default of each option that has one, and descriptions of several lines as they are."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        shown = default not in (None, argparse.SUPPRESS, []) and not isinstance(default, bool) and "default" not in text
        return f"{text} (default: %(default)s)" if shown else text

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class CommandParser(argparse.ArgumentParser):
    """The parser of a command: no abbreviations, no repeated options, none without effect; a suggestion for an unknown option."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._typed: list[str] = []
        self._needs: dict[str, Sequence[Need]] = {}
        super().__init__(*args, **{"allow_abbrev": False, "formatter_class": _Formatter, **options})

    @classmethod
    def of(cls, command: str, more: str) -> CommandParser:
        """The parser of a command of `rankstruct`, described by its summary and more."""
        return cls(prog=f"rankstruct {command}", description=f"{described(command)} {more}")

    def add_argument(self, *names: Any, needs: Sequence[Need] = (), **options: Any) -> argparse.Action:
        """Add an option, with its scope."""
        self._needs.update(dict.fromkeys(names, needs))
        return super().add_argument(*names, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and reject repeated options, whose first value would be lost, and probable misspellings.

        Raises:
            ValueError: an option has no effect.
        """
        args = sys.argv[1:] if args is None else args
        self._typed = [arg.partition("=")[0] for arg in args if arg.startswith("--") and arg != "--"]
        once = {
            name
            for each in self._actions
            if not isinstance(each, argparse._AppendAction)
            for name in each.option_strings
        }
        if empty := next((arg for arg in args if arg.startswith("--") and arg.endswith("=--")), None):
            self.error(f"argument {empty.removesuffix('=--')}: expected a value, got '--'")
        for name in dict.fromkeys(self._typed):
            if name in once and self._typed.count(name) > 1:
                self.error(f"{name} is given twice; give it once, with all of its values")
        options, rest = super().parse_known_args(args, namespace)
        for name in rest:
            if name.startswith("--") and (hint := self._hint(name.partition("=")[0], 0.75)):
                self.error(f"unrecognized arguments: {name}{hint}")
        for name in self._typed:
            for need in self._needs.get(name, ()):
                if said := need.refused(name, options):
                    raise ValueError(said)
        return options, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggest the choice that was meant."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(str(value), map(str, action.choices or ()))
            raise

    def error(self, message: str) -> NoReturn:
        """Exit as argparse does; a missing option may have been misspelt."""
        known = self._option_string_actions
        typed = self._typed if self.add_help else []  # a parser without help has only some of the command's options
        hints = (self._hint(name, 0.6) for name in typed if name not in known)
        super().error(message if "did you mean" in message else message + next(filter(None, hints), ""))

    def _hint(self, name: str, least: float) -> str:
        return did_you_mean(name, [each for each in self._option_string_actions if each.startswith("--")], least=least)
