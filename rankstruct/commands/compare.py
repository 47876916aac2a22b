"""`rankstruct compare`: cross-validate several configs and compare them in one table.

A second table tests each config against the first, query by query.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankstruct.commands._arguments import as_typed
from rankstruct.commands._options import parser_of
from rankstruct.commands.cells import CellFolders, CellsFailed, different_names
from rankstruct.commands.cluster import cluster
from rankstruct.commands.cross_validate import cross_validate, keywords
from rankstruct.files import write_result, write_text
from rankstruct.statistics import bootstrap_interval, differences, paired_p_value, spread
from rankstruct.text_tables import format_table, markdown_table


def compare_configs(
    configs: Sequence[str | Path], *, output: str | Path, command: Sequence[str] = (), **arguments: Any
) -> dict[str, dict]:
    """Run `cross_validate` for each config.

    After each config the results so far are written to `comparison.json` and, as a table, `comparison.md`; finished runs are
    reused, so an interrupted comparison can be resumed.

    Args:
        configs: training configs with different file names, which label the rows.
        output: the output folder, with a subfolder per config.
        command: the command line, for `comparison.json`.
        arguments: further arguments of `cross_validate`.

    Returns:
        The results of `cross_validate`, by config name.

    Raises:
        ValueError: two configs have the same name, or as `cross_validate`.
        CellsFailed: runs failed; the others are saved, and the configs without failures are compared.
    """
    names = different_names(configs)
    root = Path(output)
    found: dict[str, dict] = {}
    failed: list[str] = []
    with CellFolders(root) as store:
        for number, (name, config) in enumerate(zip(names, configs, strict=True), start=1):
            print(f"[{number}/{len(names)}] {name}", file=sys.stderr, flush=True)
            try:
                found[name] = cross_validate(config, output=root / name, store=store, **arguments)
            except CellsFailed as error:
                failed.append(f"{name}: {error}")
                continue
            tables = comparison_tables(found)
            kept = {each: {k: v for k, v in result.items() if k != "values"} for each, result in found.items()}
            write_result(root / "comparison.json", command, tables, configs=kept)
            write_text(root / "comparison.md", "\n".join(f"{markdown_table(*table)}\n" for table in tables.values()))
    if failed:
        raise CellsFailed("; ".join(failed))
    return found


def comparison_tables(found: dict[str, dict]) -> dict[str, tuple[list[str], list[list]]]:
    """The tables `comparison`, mean test measures and the CPU time of all runs, and `differences`, for two or more configs."""
    measures = list(dict.fromkeys(name for each in found.values() for name in each["mean"]))
    rows = []
    for name, each in found.items():
        means = [str(spread(each["by_seed"][measure])) if measure in each["mean"] else "" for measure in measures]
        rows.append([name, *means, round(each["cpu_seconds"])])
    tables = {"comparison": (["config", *(f"test {measure}" for measure in measures), "CPU seconds"], rows)}
    return tables if len(found) < 2 else {**tables, "differences": difference_table(found)}


def difference_table(found: dict[str, dict]) -> tuple[list[str], list[list]]:
    """Header and rows: each config minus the first one, over the test lists of all folds, averaged over seeds.

    A cell has the mean, its 95 % paired bootstrap interval and the p-value of a paired randomization test, not corrected for
    multiple tests. It is empty if the lists differ, or a run of an earlier version lacks the values.
    """
    first, *others = found
    names = list(found[first]["mean"])
    rows = [[name, *(_difference(found[name], found[first], measure) for measure in names)] for name in others]
    return [f"less {first}", *(f"test {measure}" for measure in names)], rows


def _difference(config: dict, first: dict, measure: str) -> str:
    ours, theirs = config["values"].get(measure), first["values"][measure]
    if ours is None or theirs is None or len(ours) != len(theirs):
        return ""
    difference = differences(ours, theirs)
    low, high = bootstrap_interval(difference)
    return f"{difference.mean():+.4f} ({low:+.4f} to {high:+.4f}), p {paired_p_value(ours, theirs):.2g}"


def main(args: Sequence[str]) -> None:
    """Print the tables, write `comparison.json` and `comparison.md`."""
    options, rest = parser_of("compare").parse_known_args(args[1:])
    with cluster(options.on, options.address):
        found = compare_configs(options.configs, command=as_typed(args), **keywords(options, rest))
    print("\n\n".join(format_table(*table) for table in comparison_tables(found).values()))
    print(f"written: {Path(options.output) / 'comparison.json'} and comparison.md")
