"""`rankstruct compare`: cross-validate several training configs on the same folds, one line of a table for each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankstruct.commands._arguments import as_typed
from rankstruct.commands.cells import CellsFailed, different_names, locked
from rankstruct.commands.cross_validate import add_options, cross_validate, keywords
from rankstruct.files import write_result, write_text
from rankstruct.statistics import spread
from rankstruct.tables import format_table, markdown_table


def compare_configs(
    configs: Sequence[str | Path], *, output: str | Path, command: Sequence[str] = (), **arguments: Any
) -> dict[str, dict]:
    """Run `cross_validate` for each config.

    After every config the results so far are written to `comparison.json` and, as a table, `comparison.md`; finished runs are
    reused, so a comparison that was stopped goes on where it was.

    Args:
        configs: training configs with different file names, which name the lines.
        output: the folder; each config has one of its own in it.
        command: the words that led here, for `comparison.json`.
        arguments: the others of `cross_validate`.

    Returns:
        What `cross_validate` returned, by the config's name.

    Raises:
        ValueError: two configs have one name, or as `cross_validate`.
        CellsFailed: runs failed, the others are kept; the configs without a failure are compared.
    """
    names = different_names(configs)
    root = Path(output)
    found: dict[str, dict] = {}
    failed: list[str] = []
    with locked(root):
        for number, (name, config) in enumerate(zip(names, configs, strict=True), start=1):
            print(f"[{number}/{len(names)}] {name}", file=sys.stderr, flush=True)
            try:
                found[name] = cross_validate(config, output=root / name, **arguments)
            except CellsFailed as error:
                failed.append(f"{name}: {error}")
                continue
            table = comparison_table(found)
            write_result(root / "comparison.json", command, {"comparison": table}, configs=found)
            write_text(root / "comparison.md", markdown_table(*table) + "\n")
    if failed:
        raise CellsFailed("; ".join(failed))
    return found


def comparison_table(found: dict[str, dict]) -> tuple[list[str], list[list]]:
    """Header and rows: each config's mean test measures and the processor time of all its runs."""
    measures = list(dict.fromkeys(name for each in found.values() for name in each["mean"]))
    rows = []
    for name, each in found.items():
        means = [str(spread(each["by_seed"][measure])) if measure in each["mean"] else "" for measure in measures]
        rows.append([name, *means, round(each["cpu_seconds"])])
    return ["config", *(f"test {measure}" for measure in measures), "CPU seconds"], rows


def main(args: Sequence[str]) -> None:
    """Print the table, write `comparison.json` and `comparison.md`."""
    parser = argparse.ArgumentParser(
        prog="rankstruct compare",
        description="Cross-validate several training configs on the same folds and print one line for each. Options that are "
        "not listed here go to every training run, such as --data.path FOLDER or --model.measures '[nDCG@10, AP]', whose "
        "first measure selects.",
    )
    parser.add_argument("--configs", nargs="+", required=True, help="training configs")
    add_options(parser)
    options, rest = parser.parse_known_args(args[1:])
    found = compare_configs(options.configs, command=as_typed(args), **keywords(options, rest))
    print(format_table(*comparison_table(found)))
    print(f"written: {Path(options.output) / 'comparison.json'} and comparison.md")
