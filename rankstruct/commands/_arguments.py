"""What every command does with its arguments: config files are looked at before they are parsed, messages are one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_OPTIONS = ("-c", "--config", "--configs", "--run")
_MOST_BYTES, _MOST_VALUES = 2**20, 100_000
_LONGEST = 600


def one_line(message: str) -> str:
    r"""A message without line breaks, and without its middle if it is very long.

    >>> one_line("Parser key x:\n  - expected a number")
    'Parser key x: - expected a number'
    >>> len(one_line("x" * 10_000))
    605
    """
    text = " ".join(message.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 200]} ... {text[-200:]}"


def check_configs(args: Sequence[str]) -> None:
    """Look at the config files that a command line names, also those of earlier runs.

    Raises:
        ValueError: a file is no text, too large, nested too deeply, or has more values than any config when its aliases (`*name`)
            are written out, each of which may stand for many others.
    """
    for path in _named(args):
        if path.is_file():
            check_config(path)


def _named(args: Sequence[str]) -> Iterator[Path]:
    option = ""
    for arg in args:
        name, equals, value = arg.partition("=")
        if name.startswith("-"):
            option = name
        elif option in _OPTIONS:
            value = arg
        if option in _OPTIONS and value:
            yield Path(value, "config.yaml") if option == "--run" else Path(value)
        if equals:
            option = ""


def check_config(path: Path) -> None:
    """Look at one file; see `check_configs`. What is no YAML is left to who parses it."""
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
    except yaml.YAMLError:
        return
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
