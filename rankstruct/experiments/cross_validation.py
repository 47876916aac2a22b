"""Cross-validation over official folds: train each (fold, grid point), select on validation, report the test folds.

A cell is one training run in its own folder; a finished cell is not trained again, so a killed run goes on where it
stopped, and a larger grid keeps what is there. The point that is chosen for a fold may be trained with further seeds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from rankstruct.files import whole_file
from rankstruct.statistics import spread
from rankstruct.tables import format_table


@dataclass(frozen=True)
class Cell:
    """One training run: a fold, the config values of a grid point, and a seed; None is that of the config."""

    fold: int
    point: tuple[tuple[str, str], ...]
    seed: int | None = None

    @property
    def name(self) -> str:
        """The folder's name, such as `fold1_regularization=0.01`."""
        values = [*self.point, *([] if self.seed is None else [("seed", str(self.seed))])]
        return "_".join([f"fold{self.fold}", *(f"{key.rpartition('.')[2]}={value}" for key, value in values)])


def _train(cell: Cell, config: str, options: Sequence[str], folder: str) -> dict:
    """Train one cell unless its result is there already; returns its `metrics.json` with the seconds it took."""
    target = _result(folder, cell)
    if not target.is_file():
        import torch

        from rankstruct.training.cli import RankingCLI

        torch.set_num_threads(1)
        run = target.parent / "run"
        values = [part for key, value in cell.point for part in (f"--{key}", value)]
        values += [] if cell.seed is None else ["--seed_everything", str(cell.seed)]
        quiet = ["--trainer.enable_progress_bar", "false"]
        start, cpu = time.perf_counter(), time.process_time()
        RankingCLI(
            ["fit", "--config", config, *quiet, *options, "--data.fold", str(cell.fold), *values],
            run_folder=run,
            quiet=True,
        )
        result = json.loads((run / "metrics.json").read_text())
        result["seconds"] = time.perf_counter() - start
        result["cpu_seconds"] = time.process_time() - cpu
        with whole_file(target) as file:
            json.dump(result, file, indent=2)
    return json.loads(target.read_text())


def _result(folder: str | Path, cell: Cell) -> Path:
    return Path(folder) / cell.name / "result.json"  # written last: what is there is finished


def _claim(cell: Cell, config: str | Path, options: Sequence[str], folder: str | Path) -> bool:
    """Note what a cell is asked for; returns whether its result is there already.

    Raises:
        ValueError: the folder holds the cell of another request.
    """
    wanted = {
        "config": Path(config).read_text(),
        "options": list(options),
        "point": dict(cell.point),
        "fold": cell.fold,
    }
    wanted |= {} if cell.seed is None else {"seed": cell.seed}
    note = Path(folder) / cell.name / "request.json"
    if note.is_file():
        present = json.loads(note.read_text())
        differs = [key for key in wanted if present.get(key) != wanted[key]]
        if differs:
            raise ValueError(
                f"{note.parent} holds a run with another {', '.join(differs)}; choose another --output, or delete it"
            )
    else:
        with whole_file(note) as file:
            json.dump(wanted, file, indent=2)
    return _result(folder, cell).is_file()


def cross_validate(
    config: str | Path,
    *,
    folds: Sequence[int],
    grid: dict[str, Sequence[str]],
    output: str | Path,
    options: Sequence[str] = (),
    processes: int = 1,
    seeds: int = 1,
) -> dict:
    """Train every cell of folds x grid and select, for each fold, the point with the best validation measure.

    With more seeds than one, the chosen point of each fold is trained again with the seeds 1001, 1002, ..., and test measures are
    means over seeds.

    Args:
        config: a training config; `data.fold` is set by the fold.
        folds: numbers of the folds.
        grid: config keys and their values, such as `{"model.regularization": ["0.1", "0.01"]}`.
        output: the folder of all cells; finished ones are reused.
        options: further command-line options of every cell, such as `["--data.path", folder]`.
        processes: cells trained at once, one thread each.
        seeds: how many seeds test measures are averaged over; the config's own is the first, and it alone selects.

    Returns:
        `{"folds": [{"fold", "point", "validation", "test": {measure: value}}, ...], "mean": {measure: value}, "by_seed":
        {measure: values}, "seconds", "cpu_seconds"}`: the mean over folds and that of each seed; the seconds of training all
        cells, the `reused` ones of `runs` included, and those of the processor, which do not count what else the machine did.

    Raises:
        ValueError: `seeds` is below 1; the output folder holds runs of another config, other options or another grid point of the
            same name.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    points = [tuple(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    results: dict[Cell, dict] = {}
    reused = 0
    # A fresh interpreter each: a forked one would inherit torch's threads in an unknown state.
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:

        def train(cells: Sequence[Cell], what: str) -> None:
            nonlocal reused
            reused += sum([_claim(cell, config, options, output) for cell in cells])
            jobs = {pool.submit(_train, cell, str(config), tuple(options), str(output)): cell for cell in cells}
            for job in tqdm(as_completed(jobs), total=len(jobs), desc=what, unit="run"):
                results[jobs[job]] = job.result()

        train([Cell(fold, point) for fold in folds for point in points], "training runs")
        best = [max((Cell(f, p) for p in points), key=lambda c: results[c]["best"]["validation"]) for f in folds]
        again = [[cell, *(replace(cell, seed=1000 + seed) for seed in range(1, seeds))] for cell in best]
        if seeds > 1:
            train([cell for cells in again for cell in cells[1:]], "further seeds")
    names = list(results[best[0]]["test"])
    tests = {name: np.array([[results[cell]["test"][name] for cell in cells] for cells in again]) for name in names}
    chosen = [
        {
            "fold": cell.fold,
            "point": dict(cell.point),
            "epoch": results[cell]["best"]["epoch"],
            "validation": results[cell]["best"]["validation"],
            "test": {name: float(values[row].mean()) for name, values in tests.items()},
        }
        for row, cell in enumerate(best)
    ]
    return {
        "folds": chosen,
        "mean": {name: float(values.mean()) for name, values in tests.items()},
        "by_seed": {name: values.mean(0).tolist() for name, values in tests.items()},
        "seconds": sum(result["seconds"] for result in results.values()),
        "cpu_seconds": sum(result["cpu_seconds"] for result in results.values()),
        "runs": len(results),
        "reused": reused,
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what every command that trains over folds and a grid takes."""
    parser.add_argument("--folds", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="folds (default: %(default)s)")
    parser.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="KEY=VALUE,VALUE",
        help="a config key and the values to try, such as model.regularization=0.1,0.01; may be repeated",
    )
    parser.add_argument("--output", required=True, help="folder of all runs; finished ones are reused")
    parser.add_argument("--processes", type=int, default=1, help="runs at once, one thread each (default: %(default)s)")
    parser.add_argument(
        "--seeds",
        type=int,
        default=1,
        help="train what is chosen with so many seeds, and show the mean and the standard deviation (default: %(default)s)",
    )


def parse_grid(parser: argparse.ArgumentParser, entries: Sequence[str]) -> dict[str, Sequence[str]]:
    """The values of each key, from what `--grid` was given; a wrong entry ends the program."""
    grid: dict[str, Sequence[str]] = {}
    for entry in entries:
        key, equals, values = entry.partition("=")
        if not equals or not values:
            parser.error(f"--grid takes KEY=VALUE,VALUE, got {entry!r}")
        grid[key] = values.split(",")
    return grid


def main(args: Sequence[str]) -> int:
    """`rankstruct cross-validate`: print the table, write `cross_validation.json`."""
    parser = argparse.ArgumentParser(
        prog="rankstruct cross-validate",
        description="Train over folds and a grid, select on validation, report the test folds. "
        "Options that are not listed here go to every training run, such as --data.path FOLDER.",
    )
    parser.add_argument("--config", required=True, help="training config")
    add_options(parser)
    options, rest = parser.parse_known_args(args)
    grid = parse_grid(parser, options.grid)
    try:
        found = cross_validate(
            options.config,
            folds=options.folds,
            grid=grid,
            output=options.output,
            options=rest,
            processes=options.processes,
            seeds=options.seeds,
        )
    except (ValueError, OSError) as error:
        print(f"rankstruct cross-validate: {error}", file=sys.stderr)
        return 1
    names = list(found["mean"])
    rows = [
        [
            str(each["fold"]),
            " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in each["point"].items()),
            each["epoch"],
            each["validation"],
            *(each["test"][name] for name in names),
        ]
        for each in found["folds"]
    ]
    validation = float(np.mean([each["validation"] for each in found["folds"]]))
    rows.append(["mean", "", "", validation, *(str(spread(found["by_seed"][name])) for name in names)])
    print(format_table(["fold", "chosen", "epoch", "validation", *(f"test {name}" for name in names)], rows))
    print(
        f"training took {found['seconds']:.0f} s ({found['cpu_seconds']:.0f} s of processor time), summed over "
        f"{found['runs']} runs, {found['reused']} of them reused"
    )
    target = Path(options.output) / "cross_validation.json"
    with whole_file(target) as file:
        json.dump(found, file, indent=2)
    print(f"written: {target}")
    return 0
