"""`rankstruct fit-exact`: train linear and kernel rankers to the optimum, along a path of C and over folds.

It writes tables, diagnostic plots (see `rankstruct.diagnostics`), TensorBoard logs and rankers. A cell is one config on one fold.
"""

from __future__ import annotations

import copy
import pickle
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from rankstruct.commands._arguments import as_typed, named_files
from rankstruct.commands._options import parser_of
from rankstruct.commands.cells import Cell, CellFolders, different_names
from rankstruct.commands.cluster import cluster
from rankstruct.commands.cross_validate import refuse_twice
from rankstruct.configs import HelpfulParser, instantiate, read_config
from rankstruct.data import RankingData, Source
from rankstruct.data.pipeline import check_preparation
from rankstruct.diagnostics import draw_paths, fit_path
from rankstruct.estimators import LinearRanker
from rankstruct.files import naming, whole_file, write_result
from rankstruct.models import save_scorer
from rankstruct.processes import Team, find_team, joined
from rankstruct.solvers import Status
from rankstruct.text_tables import format_table


def _parse(config: str | Path, overrides: Sequence[str] = ()) -> tuple[LinearRanker, Source, list[str]]:
    """Ranker, data and measures of a config; raises ValueError with a one-line message if it is invalid."""

    def add(parser: HelpfulParser) -> None:
        parser.add_subclass_arguments(LinearRanker, "ranker", required=True)
        parser.add_class_arguments(Source, "data")
        parser.add_argument("--measures", type=list[str], default=["AP", "nDCG@10", "RR@10"])

    found = instantiate(config, overrides, add)
    check_preparation(found.data.prepare)
    return found.ranker, found.data, found.measures


def _fit_cell(
    ranker: LinearRanker, source: Source, measures: list[str], fold: int | None, folder: str
) -> dict[str, Any]:
    """Fit one config on one fold; returns the content of `result.json`. Distributed processes share the training lists."""
    ranker, team = copy.deepcopy(ranker), find_team()  # a copy, since cells may share a process
    start = time.perf_counter()
    # The ranker's own preparation is fitted here too, once, to the lists of all processes.
    # Data that the config prepares get no default preparation on top.
    raw = source.read_raw()
    own = () if ranker.prepare is None and source.prepare else ranker.steps(raw.train.features)
    (train, vali, test), steps = source.prepare_splits(raw, own)
    ranker.set_params(prepare=())
    read = time.perf_counter()
    lists = {"lists": train.num_lists}
    if team.world_size > 1:
        ranker, train = _share(ranker, train, team)
    path = fit_path(ranker, train, vali, test, measures)
    seconds = {"read_seconds": read - start, "seconds": time.perf_counter() - read}
    lists["left_out"] = ranker.left_out_
    if team.rank:
        return {}  # the first one writes
    if team.world_size > 1:
        ranker.set_params(distributed=False)
    ranker.prepend(steps.preparation)
    names, features = source.feature_names(), raw.train.num_features
    if names is not None and len(names) == features:
        ranker.feature_names_in_ = np.array(names, dtype=object)
    with whole_file(Path(folder) / "ranker.pkl", "wb") as file:  # saved before anything else can fail
        pickle.dump(ranker, file)
    if type(ranker) is LinearRanker:
        scorer = ranker.to_scorer()
        if names is not None:
            setattr(scorer, "feature_names", tuple(names))  # noqa: B010 - a module may have attributes of any type
        save_scorer(scorer, Path(folder) / "scorer.pt")
    _write_board(Path(folder), ranker, path)
    reading = {name: value for name, value in source.reading.items() if name != "cache"}
    return {"path": path, "fold": fold, **lists, **seconds, "features": features, "feature_names": names, **reading}


def _share(ranker: LinearRanker, train: RankingData, team: Team) -> tuple[LinearRanker, RankingData]:
    """A distributed ranker, and the lists of this process."""
    if type(ranker) is not LinearRanker:
        raise ValueError(f"distributed training needs a LinearRanker, got {type(ranker).__name__}; use --processes")
    if train.num_lists < team.world_size:
        raise ValueError(
            f"{team.world_size} processes cannot share {train.num_lists} training lists; start fewer processes"
        )
    return ranker.set_params(distributed=True), train.select(np.arange(team.rank, train.num_lists, team.world_size))


def _write_board(folder: Path, ranker: LinearRanker, path: list[dict[str, Any]]) -> None:
    """Log the gap over iterations and the diagnostics over C to TensorBoard."""
    from torch.utils.tensorboard import SummaryWriter

    with naming(folder), SummaryWriter(str(folder)) as board:
        for row, solution in zip(path, ranker.path_, strict=True):
            for step, record in enumerate(solution.history):
                board.add_scalar(f"C={row['C']:g}/objective", record.objective, step)
                if np.isfinite(record.lower_bound):
                    board.add_scalar(f"C={row['C']:g}/lower_bound", record.lower_bound, step)
        for step, row in enumerate(path):
            if row["status"] == str(Status.NO_BETTER_THAN_ZERO):
                board.add_text("status", f"C = {row['C']:g}: {row['status']}", step)
            for name in ("slack", "objective_over_zero", "squared_norm", "planes", "iterations"):
                if row[name] is not None:
                    board.add_scalar(f"path/{name}", row[name], step)
            for part in ("validation", "test"):
                for name, value in row[part].items():
                    board.add_scalar(f"path/{part} {name}", value, step)


def _lead(*arguments: Any) -> dict[str, Any]:
    """Fit a cell with all processes."""
    find_team().hand_out(arguments)
    return _fit_cell(*arguments)


def fit_exact(
    configs: Sequence[str | Path],
    *,
    folds: Sequence[int] | None,
    output: str | Path,
    overrides: Sequence[str] = (),
    processes: int | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Fit every config on every fold.

    Args:
        configs: files with `ranker`, `data` and `measures`, with different names.
        folds: fold numbers, or None for data without folds.
        output: the output folder; cells are in `<config>/fold<n>`, and finished ones are reused.
        overrides: options that override values of the configs, such as `["--data.path", folder]`.
        processes: number of parallel cells, one thread each; see `CellFolders.run`. With `torch.distributed`, all processes work
            together on one cell after the other.

    Returns:
        The cells by config name, in the order of the folds: `fold`, `seconds`, `path` (see `fit_path`). With `torch.distributed`,
        only the first process returns them; the others return nothing.

    Raises:
        ValueError: two configs of the same name, an invalid config, missing data, or a folder with cells of another request.
        CellsFailed: fits failed; the others are saved.
    """
    team = find_team()
    if team.world_size > 1 and processes not in (None, 1):
        raise ValueError(f"{team.world_size} processes work on one cell together; remove --processes {processes}")
    if team.rank:
        while (arguments := team.hand_out(None)) is not None:
            _fit_cell(*arguments)
        return {}
    try:
        return _fit_cells(configs, folds, Path(output), overrides, processes)
    finally:
        with suppress(RuntimeError):  # the other processes have ended
            team.hand_out(None)


def _fit_cells(
    configs: Sequence[str | Path],
    folds: Sequence[int] | None,
    root: Path,
    overrides: Sequence[str],
    processes: int | None,
) -> dict[str, list[dict[str, Any]]]:
    names = different_names(configs)
    refuse_twice("folds", folds or ())
    numbers: list[int | None] = [None] if folds is None else list(folds)
    cells = []
    for name, config in zip(names, configs, strict=True):
        ranker, source, measures = _parse(config, overrides)
        if folds is not None and source.builtin is not None:
            raise ValueError(f"{config}: the built-in data set {source.builtin} has no folds")
        text = Path(config).read_text(encoding="utf-8")
        files = named_files([read_config(config), *overrides])
        for fold in numbers:
            mine = source if fold is None else source.with_fold(fold)
            mine.check()  # before anything runs
            request: dict[str, Any] = {"config": text, "overrides": list(overrides), "fold": fold}
            request |= {"content": source.digest(now=True), "files": files}
            folder = f"{name}/{'all' if fold is None else f'fold{fold}'}"
            # The parsed config, so that editing the file meanwhile does not affect waiting cells.
            arguments = (ranker, mine, measures, fold, str(root / folder))
            outputs = ("ranker.pkl", "scorer.pt") if type(ranker) is LinearRanker else ("ranker.pkl",)
            cells.append(Cell(folder, request, arguments, name, fold, outputs=outputs))
    with CellFolders(root) as store:
        work, processes = (_lead, 0) if find_team().world_size > 1 else (_fit_cell, processes)
        given = {"processes": processes, "what": "exact fits", "unchanged": _unchanged}
        found = store.run(work, cells, **given).results
    return {name: [found[name, fold, None] for fold in numbers] for name in names}


def _unchanged(cell: Cell) -> bool:
    source: Source = cell.arguments[1]
    files: dict[str, str] = cell.request["files"]
    return source.digest(now=True) == cell.request["content"] and named_files(list(files)) == files


_MEANS = ("objective", "slack", "objective_over_zero", "squared_norm", "gap", "iterations", "planes", "seconds")


def path_table(cells: list[dict[str, Any]]) -> tuple[list[str], list[list]]:
    """Header and rows, one per value of C: means over the folds."""
    measures = list(cells[0]["path"][0]["test"])
    rows = []
    for number, first in enumerate(cells[0]["path"]):
        of_folds = [cell["path"][number] for cell in cells]
        values = [[each[name] for each in of_folds] for name in _MEANS]
        means = ["" if None in of_name else float(np.mean(of_name)) for of_name in values]
        tests = [float(np.mean([each["test"][name] for each in of_folds])) for name in measures]
        rows.append([f"{first['C']:g}", *means, *tests, sum(each["chosen"] for each in of_folds)])
    return ["C", *_MEANS, *(f"test {name}" for name in measures), "chosen in folds"], rows


def paths_table(found: dict[str, list[dict[str, Any]]]) -> tuple[list[str], list[list]]:
    """The rows of `path_table` for all configs; cells of measures that a config lacks are empty."""
    tables = {name: path_table(cells) for name, cells in found.items()}
    header = list(dict.fromkeys(column for columns, _ in tables.values() for column in columns))
    rows = []
    for name, (columns, its) in tables.items():
        rows += [[name, *(dict(zip(columns, row, strict=True)).get(column, "") for column in header)] for row in its]
    return ["config", *header], rows


def selected_table(found: dict[str, list[dict[str, Any]]]) -> tuple[list[str], list[list]]:
    """Header and rows, one per config: mean test measures with C selected on each fold, and the time of all fits."""
    measures = list(dict.fromkeys(m for cells in found.values() for m in cells[0]["path"][0]["test"]))
    rows = []
    for name, cells in found.items():
        chosen = [next(row for row in cell["path"] if row["chosen"]) for cell in cells]
        tests = [float(np.mean([row["test"][m] for row in chosen])) if m in chosen[0]["test"] else "" for m in measures]
        seconds = sum(cell["seconds"] for cell in cells)
        time_of = {k: sum(row[k] for cell in cells for row in cell["path"]) for k in ("oracle_seconds", "qp_seconds")}
        total = max(sum(row["seconds"] for cell in cells for row in cell["path"]), 1e-9)
        shares = [f"{spent / total:.0%}" for spent in time_of.values()]
        rows.append([name, *tests, " ".join(f"{row['C']:g}" for row in chosen), round(seconds, 1), *shares])
    return ["config", *(f"test {m}" for m in measures), "C by fold", "seconds", "in argmax", "in QP"], rows


def left_out_note(cells: list[dict[str, Any]]) -> str:
    """A note on training lists that do not count, or "" if all do; results of older versions lack the number."""
    counts = [(cell["left_out"], cell["lists"]) for cell in cells if cell.get("left_out")]
    if not counts:
        return ""
    shown = ", ".join(dict.fromkeys(f"{left} of {lists}" for left, lists in counts))
    factor = float(np.mean([lists / (lists - left) for left, lists in counts]))
    return (
        f"training lists left out, since all of their labels are equal: {shown}; the loss is the mean over the others, so C "
        f"corresponds to {factor:.3g} C if the mean is over all lists, as in the papers"
    )


def stuck_note(cells: list[dict[str, Any]]) -> str:
    """A note on fits whose selected C learned nothing, or "" if there are none."""
    said = [row["status"] for cell in cells for row in cell["path"] if row["chosen"]]
    stuck = said.count(str(Status.NO_BETTER_THAN_ZERO))
    return f"{stuck} of {len(said)} fits are {Status.NO_BETTER_THAN_ZERO}" if stuck else ""


def main(args: Sequence[str]) -> None:
    """Print the tables; write `exact.json`, `exact.png`, rankers and TensorBoard logs."""
    options, rest = parser_of("fit-exact").parse_known_args(args[1:])
    start = time.perf_counter()
    given = {"folds": options.folds, "output": options.output, "processes": options.processes}
    with joined() as team, cluster(options.on, options.address):
        if team.world_size > 1 and options.on:
            raise ValueError(f"{team.world_size} processes work on one cell together; remove --on {options.on}")
        found = fit_exact(options.config, overrides=rest, **given)
    if team.rank:
        return
    for name, cells in found.items():
        print(f"\n{name}" + (f", means over {len(cells)} folds" if len(cells) > 1 else ""))
        print(format_table(*path_table(cells)))
        for note in filter(None, (left_out_note(cells), stuck_note(cells))):
            print(note)
    print("\nC selected on validation data")
    print(format_table(*selected_table(found)))
    output = Path(options.output)
    tables = {"along C": paths_table(found)}
    write_result(output / "exact.json", as_typed(args), tables | {"chosen": selected_table(found)}, configs=found)
    with whole_file(output / "exact.png", "wb") as file:
        draw_paths(found).savefig(file, format="png", dpi=120)
    print(f"took {time.perf_counter() - start:.1f} s; written: {output / 'exact.json'}, {output / 'exact.png'}")
    print(
        f"rankers and TensorBoard logs: {output}/<config>/<fold>  (to open them: tensorboard --logdir {shlex.quote(str(output))})"
    )
