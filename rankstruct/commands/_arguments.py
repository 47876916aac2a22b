"""What every command does with its arguments: configs are found by name and looked at before parsing, messages are one line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn

from rankstruct.messages import did_you_mean

_CONFIGS = ("-c", "--config", "--configs")


def shipped_configs() -> dict[str, Path]:
    """The configs that come with the package, by name; in a checkout those of its folder `configs`."""
    package = Path(__file__).parents[1]
    folder = next((each for each in (package / "configs", package.parent / "configs") if each.is_dir()), package)
    return {path.stem: path for path in sorted(folder.glob("*.yaml"), key=lambda path: path.stem)}


def find_configs(args: Sequence[str]) -> list[str]:
    """The arguments with the paths of shipped configs for their names: `--config quickstart`, `--configs 'letor-*'`.

    A file of that name comes first. What does not look like a name is left to the command.

    Raises:
        ValueError: a name that no config has.
    """
    found: list[str] = []
    for arg, option, value in _with_options(args):
        paths = _by_name(value) if value and option in _CONFIGS else [value]
        found += [arg] if paths == [value] else paths if arg == value else [option, *paths]
    return found


def _by_name(name: str) -> list[str]:
    if Path(name).is_file() or not re.fullmatch(r"[\w*?-]+(\.yaml)?", name):
        return [name]
    shipped = shipped_configs()
    stem = name.removesuffix(".yaml")
    found = [str(path) for each, path in shipped.items() if fnmatchcase(each, stem)]
    if not found:
        hint = did_you_mean(stem, shipped, most=3, least=0.5)
        raise ValueError(f"{name} is neither a file nor a config of `rankstruct configs`{hint}")
    return found


def as_typed(args: Sequence[str]) -> list[str]:
    """The words of a command for a result file: `rankstruct`, its name, and shipped configs by their names again."""
    names = {str(path): name for name, path in shipped_configs().items()}
    return ["rankstruct", *(names.get(arg, arg) for arg in args)]


def check_configs(args: Sequence[str]) -> None:
    """Look at the config files that a command line names, also parts of configs (`--model FILE.yaml`) and those of earlier runs.

    Raises:
        ValueError: as `rankstruct.configs.check_config`.
    """
    for _, option, value in _with_options(args):
        path = Path(value, "config.yaml") if option == "--run" else Path(value)
        if value and (option in (*_CONFIGS, "--run") or _is_part(option, path)) and path.is_file():
            from rankstruct.configs import check_config  # with YAML, which `--help` starts without

            check_config(path)


def configs_in(args: Sequence[str]) -> list[str]:
    """The config files that a command line names, in order."""
    named = [value for _, option, value in _with_options(args) if option in _CONFIGS]
    return [value for value in named if value and Path(value).is_file()]


def _is_part(option: str, path: Path) -> bool:
    return option.startswith("--") and path.suffix in (".yaml", ".yml")


def _with_options(args: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Each argument, the option that it is or belongs to, and the value it gives to it, if any."""
    option = ""
    for arg in args:
        if arg.startswith("-"):
            option, equals, value = arg.partition("=")
            yield arg, option, value
            option = "" if equals else option
        else:
            yield arg, option, arg


class CommandParser(argparse.ArgumentParser):
    """The parser of a command: names are written whole, an option is given once, what is unknown is answered with the nearest."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})
        self._given: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and refuse what is given twice, of which the first would be lost, and what is nearly an option of its own."""
        self._given = [arg.partition("=")[0] for arg in args if arg.startswith("--") and arg != "--"]
        once = [
            name
            for each in self._actions
            if not isinstance(each, argparse._AppendAction)
            for name in each.option_strings
        ]
        if empty := next((arg for arg in args if re.fullmatch(r"--[\w-]+=--", arg)), None):
            self.error(f"argument {empty.partition('=')[0]}: expected a value, got '--'")
        for name in dict.fromkeys(self._given):
            if name in once and self._given.count(name) > 1:
                self.error(f"{name} is given twice; give it once, with all its values")
        found, rest = super().parse_known_args(args, namespace)
        for name in rest:
            if name.startswith("--") and (hint := self._hint(name.partition("=")[0], 0.75)):
                self.error(f"unrecognized arguments: {name}{hint}")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """End the program as argparse does, with what may be meant."""
        if chosen := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += did_you_mean(chosen[1], re.findall(r"[^\s',]+", chosen[2]))
        elif "did you mean" not in message:  # an option that is missing may be there under another name
            known = {name for each in self._actions for name in each.option_strings}
            message += next((hint for name in self._given if name not in known and (hint := self._hint(name, 0.6))), "")
        super().error(message)

    def _hint(self, name: str, least: float) -> str:
        return did_you_mean(name, [each for each in self._option_string_actions if each.startswith("--")], least=least)
