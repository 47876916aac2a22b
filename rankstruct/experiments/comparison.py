"""Cross-validate several training configs on the same folds: one line of a table for each."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rankstruct.experiments.cross_validation import add_options, cross_validate, parse_grid
from rankstruct.files import whole_file
from rankstruct.statistics import spread
from rankstruct.tables import format_table


def compare(
    configs: Sequence[str | Path],
    *,
    folds: Sequence[int],
    grid: dict[str, Sequence[str]],
    output: str | Path,
    options: Sequence[str] = (),
    processes: int = 1,
    seeds: int = 1,
) -> dict[str, dict]:
    """Run `cross_validate` for each config; see there for the arguments, errors and values.

    After every config the results so far are written to `comparison.json` and, as a table, `comparison.md`; finished runs are
    reused, so a comparison that was stopped goes on where it was.

    Args:
        configs: training configs with different file names, which name the lines.
        folds: numbers of the folds.
        grid: config keys and their values.
        output: the folder; each config has one of its own in it.
        options: further command-line options of every run.
        processes: runs at once.
        seeds: of the chosen points.

    Returns:
        What `cross_validate` returned, by the config's name.

    Raises:
        ValueError: two configs have one name.
    """
    names = [Path(config).stem for config in configs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"configs are told apart by their file names; there are several of {', '.join(twice)}")
    found: dict[str, dict] = {}
    for number, (name, config) in enumerate(zip(names, configs, strict=True), start=1):
        print(f"[{number}/{len(names)}] {name}", file=sys.stderr, flush=True)
        found[name] = cross_validate(
            config,
            folds=folds,
            grid=grid,
            output=Path(output) / name,
            options=options,
            processes=processes,
            seeds=seeds,
        )
        with whole_file(Path(output) / "comparison.json") as file:
            json.dump(found, file, indent=2)
        with whole_file(Path(output) / "comparison.md") as file:
            file.write(_markdown(*comparison_table(found)))
    return found


def comparison_table(found: dict[str, dict]) -> tuple[list[str], list[list]]:
    """Header and rows: each config's mean test measures and the processor time of all its runs."""
    measures = list(dict.fromkeys(name for each in found.values() for name in each["mean"]))
    rows = [
        [
            name,
            *(str(spread(each["by_seed"][measure])) if measure in each["mean"] else "" for measure in measures),
            round(each["cpu_seconds"]),
        ]
        for name, each in found.items()
    ]
    return ["config", *(f"test {measure}" for measure in measures), "CPU seconds"], rows


def _markdown(header: list[str], rows: list[list]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def main(args: Sequence[str]) -> int:
    """`rankstruct compare`: print the table, write `comparison.json` and `comparison.md`."""
    parser = argparse.ArgumentParser(
        prog="rankstruct compare",
        description="Cross-validate several training configs on the same folds and print one line for each. Options that are "
        "not listed here go to every training run, such as --data.path FOLDER or --model.measures '[nDCG@10, AP]', whose "
        "first measure selects.",
    )
    parser.add_argument("--configs", nargs="+", required=True, help="training configs")
    add_options(parser)
    options, rest = parser.parse_known_args(args)
    try:
        found = compare(
            options.configs,
            folds=options.folds,
            grid=parse_grid(parser, options.grid),
            output=options.output,
            options=rest,
            processes=options.processes,
            seeds=options.seeds,
        )
    except (ValueError, OSError) as error:
        print(f"rankstruct compare: {error}", file=sys.stderr)
        return 1
    print(format_table(*comparison_table(found)))
    print(f"written: {Path(options.output) / 'comparison.json'} and comparison.md")
    return 0
