"""`rankstruct configs`: list the configs shipped with the package; print or copy one."""

from __future__ import annotations

from collections.abc import Sequence
from errno import EEXIST
from pathlib import Path

from rankstruct.commands._arguments import shipped_configs
from rankstruct.commands._options import parser_of
from rankstruct.files import write_text
from rankstruct.messages import did_you_mean
from rankstruct.text_tables import format_table


def main(args: Sequence[str]) -> None:
    """Print the list, or a config."""
    given = parser_of("configs").parse_args(args[1:])
    shipped = shipped_configs()
    if given.name is None:
        print(format_table(["config", "what it does"], [[name, _first_line(path)] for name, path in shipped.items()]))
        return
    name = given.name.removesuffix(".yaml")
    if name not in shipped:
        hint = did_you_mean(name, shipped, most=3, least=0.5)
        raise ValueError(f"unknown config {given.name!r}; `rankstruct configs` lists them{hint}")
    text = shipped[name].read_text(encoding="utf-8")
    if given.output is None:
        print(text, end="")
        return
    if given.output.exists():
        raise FileExistsError(EEXIST, "File exists", str(given.output))
    write_text(given.output, text)
    print(f"wrote {given.output}")


def _first_line(path: Path) -> str:
    """The first comment, without the command after it."""
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    return first.removeprefix("# ").split(": rankstruct ")[0]
