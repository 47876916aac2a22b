"""Exact training from config files, along a path of C, over folds: tables, diagnostic plots, TensorBoard, saved rankers.

A cell is one config on one fold; its results are written last, so a finished one is not fitted again. The diagnostics are those
of Chakrabarti, Khanna, Sawant, Bhattacharyya, KDD 2008, figures 4 to 8, and of ORM's table 2: slack, objective over that at the
start, ||w||^2, number of planes, and the shares of time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pickle
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonargparse
import numpy as np
import torch
from tqdm import tqdm

from rankstruct.data import RankingData, Source
from rankstruct.estimators import LinearRanker
from rankstruct.files import whole_file
from rankstruct.losses import takes_groups
from rankstruct.measures import evaluate, parse_measure
from rankstruct.models import save_scorer
from rankstruct.solvers import Solution
from rankstruct.tables import format_table


@dataclass
class DataSource:
    """Where the lists of an exact run come from; see `rankstruct.data.read_splits`.

    Args:
        path: a folder of LETOR files.
        builtin: `digits`, `synthetic` or `synthetic-groups`, in place of a path.
        prepare: preparation steps by name.
        labels: `grades` or `real`.
        seed: of a built-in set.
        cache: whether parsed files are kept.
        groups: of documents, from a regular expression for the comments or the number of a column; see `grouped_by`.
    """

    path: str | None = None
    builtin: str | None = None
    prepare: list[str] = field(default_factory=list)
    labels: str = "grades"
    seed: int = 0
    cache: bool = True
    groups: int | str | None = None


def _parse(config: str | Path, overrides: Sequence[str] = ()) -> tuple[LinearRanker, DataSource, list[str]]:
    """Ranker, data and measures of a config; raises ValueError with one line where it is wrong."""
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--config", action="config")
    parser.add_subclass_arguments(LinearRanker, "ranker", required=True)
    parser.add_class_arguments(DataSource, "data")
    parser.add_argument("--measures", type=list[str], default=["AP", "nDCG@10", "RR@10"])
    try:
        found = parser.instantiate_classes(parser.parse_args(["--config", str(config), *overrides]))
    except (jsonargparse.ArgumentError, TypeError) as error:
        raise ValueError(f"{config}: {error}") from error
    return found.ranker, found.data, found.measures


def fit_path(
    ranker: LinearRanker,
    train: RankingData,
    vali: RankingData,
    test: RankingData,
    measures: Sequence[str],
) -> list[dict[str, Any]]:
    """Fit a ranker for each of its C, each from the solution before, and describe every solution.

    Args:
        ranker: what to fit; afterwards it is that of the C with the best validation value of its own measure.
        train: training lists.
        vali: validation lists, which choose C.
        test: test lists.
        measures: what is reported of validation and test lists.

    Raises:
        ValueError: the loss or a measure needs groups, and the data have none.

    Returns:
        A row a value of C, ascending: `C`, `objective`, `lower_bound` and `gap` (None where the problem is not convex), `status`,
        `iterations`, `passes` (evaluations of the mean loss), `planes`, `support` (those with a multiplier above 0), `seconds`,
        `oracle_seconds`, `qp_seconds`, `slack` (mean loss), `objective_at_zero` (mean loss at w = 0), `objective_over_zero`,
        `squared_norm` (||w||^2), `validation` and `test` (means by measure), `selected`, and `chosen` (bool).
    """
    needy = [type(loss).__name__ for loss in [ranker._loss()] if takes_groups(loss)]
    needy += [measure.name for measure in map(parse_measure, measures) if measure.takes_groups]
    if needy and train.groups is None:
        raise ValueError(
            f"{needy[0]} needs groups and the data have none; give data.groups, a regular expression for the comments or the "
            "number of a column"
        )
    held_out = {"X_valid": vali.features, "y_valid": vali.labels, "qid_valid": vali.list_numbers}
    held_out = held_out | {"groups_valid": vali.groups} if np.size(ranker.C) > 1 else {}
    lists = (train.features, train.labels, train.list_numbers)
    ranker.fit(*lists, groups=train.groups, **held_out)
    Cs = sorted(np.ravel(np.asarray(ranker.C, float)).tolist())
    rows = []
    at_zero = ranker.mean_loss(np.zeros(len(ranker.coef_)), *lists, groups=train.groups)
    chosen = ranker.C_
    for number, (C, solution) in enumerate(zip(Cs, ranker.path_, strict=True)):
        ranker._use(solution, C)
        rows.append(
            describe(solution, C, ranker.w0_)
            | {
                "objective_at_zero": at_zero,
                "objective_over_zero": solution.objective / at_zero if at_zero else None,
                "validation": mean_measures(ranker.predict(vali.features), vali, measures),
                "test": mean_measures(ranker.predict(test.features), test, measures),
                "selected": None if ranker.validation_ is None else ranker.validation_[number],
                "chosen": chosen == C,
            }
        )
    ranker._use(ranker.path_[Cs.index(chosen)], chosen)
    return rows


def describe(solution: Solution, C: float, w0: np.ndarray) -> dict[str, Any]:
    """What `fit_path` tells of one solution, but for `objective_at_zero` and what is measured on lists; ready for JSON."""
    last = solution.history[-1]
    squared_norm = float(solution.w @ solution.w)
    convex = np.isfinite(solution.lower_bound)
    planes = solution.planes
    return {
        "C": C,
        "objective": solution.objective,
        "lower_bound": solution.lower_bound if convex else None,
        "gap": solution.gap if convex else None,
        "status": str(solution.status),
        "iterations": solution.iterations,
        "passes": last.passes,
        "planes": last.planes,
        "support": None if planes is None else int((planes.multipliers > 0).sum()),
        "seconds": last.seconds,
        "oracle_seconds": last.oracle_seconds,
        "qp_seconds": last.qp_seconds,
        "slack": solution.objective - float((solution.w - w0) @ (solution.w - w0)) / (2 * C),
        "squared_norm": squared_norm,
    }


def mean_measures(scores: np.ndarray, data: RankingData, measures: Sequence[str]) -> dict[str, float]:
    """The means of measures over the lists of `data`, scores `[documents]`."""
    values = evaluate(
        torch.tensor(scores),
        torch.tensor(data.labels),
        list(measures),
        offsets=torch.tensor(data.offsets),
        groups=data.groups,
    )
    return {name: float(value.mean()) for name, value in values.items()}


def _fit_cell(config: str, fold: int | None, overrides: Sequence[str], folder: str) -> dict[str, Any]:
    """Fit one config on one fold unless it is done; returns its `result.json`."""
    target = Path(folder) / "result.json"
    if not target.is_file():
        torch.set_num_threads(1)
        ranker, source, measures = _parse(config, overrides)
        start = time.perf_counter()
        train, vali, test = Source(**vars(source), fold=fold).read()
        read = time.perf_counter()
        path = fit_path(ranker, train, vali, test, measures)
        result = {"path": path, "fold": fold, "read_seconds": read - start, "seconds": time.perf_counter() - read}
        with whole_file(Path(folder) / "ranker.pkl", "wb") as file:
            pickle.dump(ranker, file)
        if type(ranker) is LinearRanker:
            save_scorer(ranker.to_scorer(), Path(folder) / "scorer.pt")
        _write_board(Path(folder), ranker, path)
        with whole_file(target) as file:
            json.dump(result, file, indent=2)
    return json.loads(target.read_text())


def _write_board(folder: Path, ranker: LinearRanker, path: list[dict[str, Any]]) -> None:
    """The gap along the iterations, and the diagnostics along C, for TensorBoard."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as board:
        for row, solution in zip(path, ranker.path_, strict=True):
            for step, record in enumerate(solution.history):
                board.add_scalar(f"C={row['C']:g}/objective", record.objective, step)
                if np.isfinite(record.lower_bound):
                    board.add_scalar(f"C={row['C']:g}/lower_bound", record.lower_bound, step)
        for step, row in enumerate(path):
            for name in ("slack", "objective_over_zero", "squared_norm", "planes", "iterations"):
                if row[name] is not None:
                    board.add_scalar(f"path/{name}", row[name], step)
            for part in ("validation", "test"):
                for name, value in row[part].items():
                    board.add_scalar(f"path/{part} {name}", value, step)


def fit_exact(
    configs: Sequence[str | Path],
    *,
    folds: Sequence[int] | None,
    output: str | Path,
    overrides: Sequence[str] = (),
    processes: int = 1,
) -> dict[str, list[dict[str, Any]]]:
    """Fit every config on every fold.

    Args:
        configs: files with `ranker`, `data` and `measures`; their names tell them apart.
        folds: numbers of the folds, or None for data without folds.
        output: the folder; cells are in `<config>/fold<n>`, and finished ones are reused.
        overrides: values in place of the configs' own, such as `["--data.path", folder]`.
        processes: cells at once, one thread each.

    Returns:
        By config name a list of cells, in the order of the folds: `fold`, `seconds`, `path` (see `fit_path`).

    Raises:
        ValueError: two configs of one name, a config that is wrong, or a folder that holds cells of another request.
    """
    names = [Path(config).stem for config in configs]
    if len(set(names)) < len(names):
        raise ValueError(f"configs are told apart by their file names; got {', '.join(names)}")
    numbers: list[int | None] = [None] if folds is None else list(folds)
    cells = []
    for name, config in zip(names, configs, strict=True):
        _, source, _ = _parse(config, overrides)  # what is wrong is said before anything runs
        if folds is not None and source.builtin is not None:
            raise ValueError(f"{config}: the built-in data {source.builtin} have no folds")
        for fold in numbers:
            folder = Path(output) / name / ("all" if fold is None else f"fold{fold}")
            _claim(folder, {"config": Path(config).read_text(), "overrides": list(overrides)})
            cells.append((name, str(config), fold, str(folder)))
    found: dict[tuple[str, int | None], dict[str, Any]] = {}
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = {
            pool.submit(_fit_cell, config, fold, tuple(overrides), folder): (name, fold)
            for name, config, fold, folder in cells
        }
        for job in tqdm(as_completed(jobs), total=len(jobs), desc="exact fits", unit="fit"):
            found[jobs[job]] = job.result()
    return {name: [found[name, fold] for fold in numbers] for name in names}


def _claim(folder: Path, wanted: dict[str, Any]) -> None:
    note = folder / "request.json"
    if note.is_file():
        if json.loads(note.read_text()) != wanted:
            raise ValueError(
                f"{folder} holds a fit of another config or other options; choose another --output, or delete it"
            )
        return
    with whole_file(note) as file:
        json.dump(wanted, file, indent=2)


_MEANS = ("objective", "slack", "objective_over_zero", "squared_norm", "gap", "iterations", "planes", "seconds")


def path_table(cells: list[dict[str, Any]]) -> tuple[list[str], list[list]]:
    """Header and rows, one a value of C: means over the folds."""
    measures = list(cells[0]["path"][0]["test"])
    rows = []
    for number, first in enumerate(cells[0]["path"]):
        of_folds = [cell["path"][number] for cell in cells]
        row: list[Any] = [f"{first['C']:g}"]
        for name in _MEANS:
            values = [each[name] for each in of_folds]
            row.append("" if None in values else float(np.mean(values)))
        row += [float(np.mean([each["test"][name] for each in of_folds])) for name in measures]
        row.append(sum(each["chosen"] for each in of_folds))
        rows.append(row)
    return ["C", *_MEANS, *(f"test {name}" for name in measures), "chosen in folds"], rows


def selected_table(found: dict[str, list[dict[str, Any]]]) -> tuple[list[str], list[list]]:
    """Header and rows, one a config: mean test measures with each fold's own choice of C, and seconds of all fits."""
    measures = list(dict.fromkeys(m for cells in found.values() for m in cells[0]["path"][0]["test"]))
    rows = []
    for name, cells in found.items():
        chosen = [next(row for row in cell["path"] if row["chosen"]) for cell in cells]
        tests = [float(np.mean([row["test"][m] for row in chosen])) if m in chosen[0]["test"] else "" for m in measures]
        seconds = sum(cell["seconds"] for cell in cells)
        time_of = {k: sum(row[k] for cell in cells for row in cell["path"]) for k in ("oracle_seconds", "qp_seconds")}
        total = max(sum(row["seconds"] for cell in cells for row in cell["path"]), 1e-9)
        rows.append(
            [
                name,
                *tests,
                " ".join(f"{row['C']:g}" for row in chosen),
                round(seconds, 1),
                f"{time_of['oracle_seconds'] / total:.0%}",
                f"{time_of['qp_seconds'] / total:.0%}",
            ]
        )
    return ["config", *(f"test {m}" for m in measures), "C by fold", "seconds", "in argmax", "in QP"], rows


_PANELS = {
    "slack": "average slack",
    "objective": "objective",
    "objective_over_zero": "objective / objective at w = 0",
    "squared_norm": "||w||²",
    "iterations": "iterations",
    "planes": "planes held",
    "seconds": "seconds",
}


def draw_paths(found: dict[str, list[dict[str, Any]]]) -> Any:
    """The diagnostics along C as a matplotlib figure: means over folds, a line a config; what no row has is left out."""
    from matplotlib.figure import Figure

    rows = [row for cells in found.values() for row in cells[0]["path"]]
    known = {key: title for key, title in _PANELS.items() if all(key in row for row in rows)}
    if "objective_over_zero" in known:
        del known["objective"]
    measures = dict.fromkeys(m for row in rows for m in row.get("test", ()))
    panels = [*known.items(), *((m, f"test {m}") for m in measures)]
    columns = 3
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(4 * columns, 2.8 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis, (key, title) in zip(axes.flat, panels, strict=False):
        for name, cells in found.items():
            Cs = [row["C"] for row in cells[0]["path"]]
            values = [
                float(np.mean([(row["test"] if key in measures else row)[key] for row in rows]))
                for rows in zip(*(cell["path"] for cell in cells), strict=True)
            ]
            axis.plot(Cs, values, marker="o", ms=3, label=name)
        axis.set(xscale="log", title=title, xlabel="C")
        if key == "squared_norm":
            axis.set_yscale("symlog", linthresh=1e-3)  # ||w||^2 may be 0
            axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    if len(found) > 1:
        figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper center", fontsize=8, ncols=3)
    return figure


def main(args: Sequence[str]) -> int:
    """`rankstruct fit-exact`: print the tables, write `exact.json`, `exact.png`, rankers and TensorBoard logs."""
    parser = argparse.ArgumentParser(
        prog="rankstruct fit-exact",
        description="Train to the optimum, along the C of each config, over folds; C is chosen on each fold's validation part. "
        "Options that are not listed here replace values of the configs, such as --data.path FOLDER or --ranker.C '[1, 10]'.",
    )
    parser.add_argument(
        "--config", nargs="+", required=True, help="one or more configs, compared in one table and figure"
    )
    parser.add_argument("--folds", nargs="+", type=int, help="numbers of the folds; none for data without folds")
    parser.add_argument(
        "--output", default="runs/exact", help="folder of all fits; finished ones are reused (default: %(default)s)"
    )
    parser.add_argument("--processes", type=int, default=1, help="fits at once, one thread each (default: %(default)s)")
    options, rest = parser.parse_known_args(args)
    start = time.perf_counter()
    try:
        found = fit_exact(
            options.config, folds=options.folds, output=options.output, overrides=rest, processes=options.processes
        )
    except (ValueError, OSError) as error:
        print(f"rankstruct fit-exact: {error}", file=sys.stderr)
        return 1
    for name, cells in found.items():
        print(f"\n{name}" + (f", means over {len(cells)} folds" if len(cells) > 1 else ""))
        print(format_table(*path_table(cells)))
    print("\nC chosen on validation")
    print(format_table(*selected_table(found)))
    output = Path(options.output)
    with whole_file(output / "exact.json") as file:
        json.dump(found, file, indent=2)
    with whole_file(output / "exact.png", "wb") as file:
        draw_paths(found).savefig(file, format="png", dpi=120)
    print(f"took {time.perf_counter() - start:.1f} s; written: {output / 'exact.json'}, {output / 'exact.png'}")
    print(f"rankers and TensorBoard logs: {output}/<config>/<fold>  (to open them: tensorboard --logdir {output})")
    return 0
