"""What every command does with its arguments: configs are found by name and looked at before parsing, messages are one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

_CONFIGS = ("-c", "--config", "--configs")
_MOST_BYTES, _MOST_VALUES = 2**20, 100_000
_LONGEST = 600


def one_line(message: str) -> str:
    r"""A message without line breaks and names of types, and without its middle if it is very long.

    >>> one_line("Parser key x:\n  Expected a typing.Literal[1, 2]. Got value: 3")
    'Parser key x: Expected one of 1, 2. Got value: 3'
    >>> len(one_line("x" * 10_000))
    605
    """
    text = re.sub(r"a typing\.Literal\[([^]]*)\]", r"one of \1", " ".join(message.split()))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 200]} ... {text[-200:]}"


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
        found += [arg] if paths == [value] else [path if arg == value else f"{option}={path}" for path in paths]
    return found


def _by_name(name: str) -> list[str]:
    if Path(name).is_file() or not re.fullmatch(r"[\w*?-]+(\.yaml)?", name):
        return [name]
    shipped = shipped_configs()
    stem = name.removesuffix(".yaml")
    found = [str(path) for each, path in shipped.items() if fnmatchcase(each, stem)]
    if not found:
        near = difflib.get_close_matches(stem, shipped, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"{name} is neither a file nor a config of `rankstruct configs`{hint}")
    return found


def as_typed(args: Sequence[str]) -> list[str]:
    """The words of a command for a result file: `rankstruct`, its name, and shipped configs by their names again."""
    names = {str(path): name for name, path in shipped_configs().items()}
    return ["rankstruct", *(names.get(arg, arg) for arg in args)]


def check_configs(args: Sequence[str]) -> None:
    """Look at the config files that a command line names, also those of earlier runs.

    Raises:
        ValueError: a file is no text, no YAML, too large, nested too deeply, or has more values than any config when its aliases
            (`*name`) are written out, each of which may stand for many others.
    """
    for _, option, value in _with_options(args):
        path = Path(value, "config.yaml") if option == "--run" else Path(value)
        if value and option in (*_CONFIGS, "--run") and path.is_file():
            check_config(path)


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


def check_config(path: Path) -> None:
    """Look at one file; see `check_configs`."""
    import yaml

    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"{path} is no config: larger than {_MOST_BYTES:,} bytes")
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        values = _values(root, {})
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no config: not text in UTF-8 ({error.reason} at byte {error.start})") from None
    except RecursionError:
        raise ValueError(f"{path} is no config: nested too deeply") from None
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ValueError(f"{path} is no config: not YAML ({one_line(problem)}{place})") from None
    if values > _MOST_VALUES:
        raise ValueError(f"{path} is no config: its aliases stand for more than {_MOST_VALUES:,} values")


def _values(node: Any, known: dict[int, float]) -> float:
    """How many values a node has, aliases written out; infinite where it is part of itself. Each node is looked at once."""
    children = node.value if isinstance(getattr(node, "value", None), list) else []
    if id(node) not in known:
        known[id(node)] = float("inf")
        pairs = (child if isinstance(child, tuple) else (child,) for child in children)
        known[id(node)] = 1 + sum(_values(each, known) for pair in pairs for each in pair)
    return known[id(node)]
