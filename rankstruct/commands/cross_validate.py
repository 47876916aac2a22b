"""`rankstruct cross-validate`: train over folds and a grid, select on validation data, report test measures.

A cell is one training run in its own folder; extending the grid reuses finished runs. The grid point selected for a fold may be
trained with further seeds.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankstruct.commands._arguments import as_typed, named_files
from rankstruct.commands._options import parser_of
from rankstruct.commands.cells import Cell, CellFolders, Selected, different_names
from rankstruct.commands.cluster import cluster
from rankstruct.commands.fit import RankingCLI, check_data, complete_config, has_folds
from rankstruct.configs import load_json, read_config
from rankstruct.data.runs import write_scores
from rankstruct.files import write_result, write_text
from rankstruct.measures import evaluate
from rankstruct.recommenders.training import CatalogueModule
from rankstruct.statistics import bootstrap_interval, spread
from rankstruct.text_tables import format_table
from rankstruct.training.module import RankingModule

#: The note under tables with a column "validation".
SELECTION = (
    "validation: the score by which the epoch and the tested model were selected, hence optimistic; test measures estimate the "
    "performance on new lists"
)


_MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Run:
    """One training run: a fold, the config values of a grid point, and a seed; None means the config's own."""

    fold: int | None
    point: tuple[tuple[str, str], ...]
    seed: int | None = None

    @property
    def name(self) -> str:
        """The name of its folder, such as `fold1_regularization=0.01`."""
        values = [*self.point, *([] if self.seed is None else [("seed", str(self.seed))])]
        fold = "run" if self.fold is None else f"fold{self.fold}"
        return "_".join([fold, *(f"{key.rpartition('.')[2]}={value}" for key, value in values)])

    @property
    def arguments(self) -> list[str]:
        """Its options for `rankstruct fit`."""
        values = [] if self.fold is None else [("data.fold", str(self.fold))]
        values += self.point
        values += [] if self.seed is None else [("seed_everything", str(self.seed))]
        return [part for key, value in values for part in (f"--{key}", value)]

    def cell(self, fit: Sequence[str], request: dict[str, Any], folder: Path, root: Path) -> Cell:
        """Its cell, in `folder` within the folder of all cells."""
        wanted = request | {"point": dict(self.point), "fold": self.fold, "seed": self.seed}
        arguments = [*fit, *self.arguments], str(folder / self.name / "run")
        return Cell(str((folder / self.name).relative_to(root)), wanted, arguments, self.point, self.fold, self.seed)


def _train(arguments: Sequence[str], folder: str) -> dict[str, Any]:
    """Train one cell; returns its `metrics.json` with the training time."""
    start, cpu = time.perf_counter(), time.process_time()
    cli = RankingCLI(arguments, run_folder=Path(folder), quiet=True)
    metrics = Path(folder) / "metrics.json"
    if not metrics.is_file():
        raise ValueError("no epoch was validated")
    result = load_json(metrics.read_text(encoding="utf-8"))
    seconds = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    return result | seconds | {"test_values": _keep_scores(cli, Path(folder))}


def _keep_scores(cli: RankingCLI, folder: Path) -> dict[str, list[float]]:
    """Write the scores of validation and test documents, unless lists are whole catalogues; returns the measures of test lists.

    The model is that of the best checkpoint.
    """
    module, data = cli.model, cli.datamodule
    values: dict[str, torch.Tensor] = {}
    if not isinstance(module, RankingModule):
        return {}
    module.eval()
    if isinstance(module, CatalogueModule):
        return {name: each.tolist() for name, each in module.test_values(data).items()}
    for part, loader in (("vali", data.val_dataloader()), ("test", data.test_dataloader())):
        lists = data.part(part)
        scores = torch.zeros(lists.num_documents)
        with torch.no_grad():
            for batch in loader:
                places, found = module.predict_step(batch, 0)
                scores[places] = found
        write_scores(folder / f"{part}-scores.txt", scores)
        diversity_groups = None if lists.diversity_groups is None else torch.tensor(lists.diversity_groups)
        given = scores, torch.tensor(lists.labels), module.test_metric.measures  # copies: memory maps are read-only
        values = evaluate(*given, offsets=torch.tensor(lists.offsets), diversity_groups=diversity_groups)
    return {name: each.tolist() for name, each in values.items()}


def cross_validate(
    config: str | Path,
    *,
    grid: dict[str, Sequence[str]],
    output: str | Path,
    folds: Sequence[int | None] | None = None,
    options: Sequence[str] = (),
    processes: int | None = None,
    seeds: int = 1,
    store: CellFolders | None = None,
) -> dict[str, Any]:
    """Train every cell of folds x grid and select, for each fold, the grid point with the best validation measure.

    With several seeds, the selected point of each fold is retrained with seeds 1001, 1002, ..., and test measures are averaged.

    Args:
        config: a training config; `data.fold` is set to each fold.
        folds: fold numbers; `[None]` uses the config's own fold only; None is 1 to 5, or `[None]` if its data have no folds.
        grid: values by config key, such as `{"model.regularization": ["0.1", "0.01"]}`.
        output: the folder of all cells; finished ones are reused.
        options: further command-line options of every cell, such as `["--data.path", folder]`.
        processes: number of cells trained in parallel, one thread each; see `CellFolders.run`.
        seeds: number of seeds over which test measures are averaged; only the first, the config's own, is used for selection.
        store: open cells of a folder that contains `output`, whose worker processes are reused.

    Returns:
        `{"folds": [{"fold", "point", "validation", "test": {measure: value}}, ...], "mean": {measure: value}, "by_seed":
        {measure: values}, "values": {measure: values}, "interval": {measure: [low, high]}, "seconds", "cpu_seconds"}`: the mean
        over folds, overall and per seed; the value of each test list, fold by fold, and their 95 % bootstrap interval; the wall
        and CPU time of training all cells, including the `reused` ones of `runs`. Each run's folder has the scores of its
        validation and test documents, `vali-scores.txt` and `test-scores.txt`.

    Raises:
        ValueError: `seeds` is below 1; a fold is repeated; the config does not accept a key or value; the data do not exist; the
            output folder has runs of another config, other options or data, or another grid point of the same name.
        CellsFailed: runs failed; the others are saved.
    """
    if not 1 <= seeds <= _MOST_SEEDS:
        raise ValueError(f"seeds must be at least 1 and at most {_MOST_SEEDS}, got {seeds}")
    (name,), root = different_names([config]), Path(output)
    command = ["fit", "--config", str(config), *options]
    folds = (range(1, 6) if has_folds(command) else [None]) if folds is None else folds
    fit, request, unchanged = asked(config, folds, root, options, list(grid.values()))
    check_values(command, grid)
    points = [tuple(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    with CellFolders(output) if store is None else nullcontext(store) as store:
        write_text(root / "config.yaml", request["config"])
        found = store.select(
            _train,
            lambda _, point, fold, seed: Run(fold, point, seed).cell(fit, request, root, store.folder),
            {name: points},
            folds=folds,
            seeds=[None, *range(1001, 1000 + seeds)],
            validation=lambda result: float(result["best"]["validation"]),
            processes=processes,
            what=f"training runs of {name}",
            unchanged=unchanged,
        )
    return _gather(found)


def asked(
    config: str | Path,
    folds: Sequence[int | None],
    output: Path,
    options: Sequence[str],
    values: Sequence[Any] = (),
) -> tuple[list[str], dict[str, Any], Callable[[Cell], bool]]:
    """The training command of many runs, the request they share, and a check that a cell's data have not changed.

    Cells read a copy of the config, to be written to `output`, so that editing the config meanwhile does not affect waiting
    cells. The request has the digests of the data and of all files that the config, the options or `values` name.
    """
    refuse_twice("folds", folds)
    text = Path(config).read_text(encoding="utf-8")
    quiet = ["--trainer.enable_progress_bar", "false", *options]
    content = check_data(["fit", "--config", str(config), *quiet], folds)
    fit = ["fit", "--config", str(output / "config.yaml"), *quiet]
    files = named_files([read_config(config), *options, *values])
    request = {"config": text, "options": list(options), "content": content, "files": files}
    return fit, request, lambda cell: check_data(fit, folds) == content and named_files(list(files)) == files


def refuse_twice(name: str, values: Sequence[Any]) -> None:
    """Raise ValueError for a repeated value, which would count twice or replace the first."""
    if twice := next((value for at, value in enumerate(values) if value in values[:at]), None):
        raise ValueError(f"{name}: {twice} is given twice; give it once")


def check_values(fit: Sequence[str], values: Mapping[str, Sequence[Any]]) -> None:
    """Let the parser reject keys and values that the config of a training command does not accept, before any training."""
    first = {key: each[0] for key, each in values.items()}
    for key, each in values.items():
        refuse_twice(key, [str(value) for value in each])
        for value in each:
            point = tuple((name, str(one)) for name, one in (first | {key: value}).items())
            complete_config([*fit, *Run(None, point).arguments])


def _gather(found: Selected) -> dict[str, Any]:
    """The result of `cross_validate`."""
    by_fold = [[result for key, result in found.results.items() if key[:2] == place] for place in found.settings]
    names = list(by_fold[0][0]["test"])
    tests = {name: np.array([[each["test"][name] for each in results] for results in by_fold]) for name in names}
    folds = [
        {
            "fold": fold,
            "point": dict(point),
            "epoch": results[0]["best"]["epoch"],
            "validation": results[0]["best"]["validation"],
            "test": {name: float(values[row].mean()) for name, values in tests.items()},
        }
        for row, (((_, fold), point), results) in enumerate(zip(found.settings.items(), by_fold, strict=True))
    ]
    lists = {name: _values(name, by_fold) for name in names}
    return {
        "folds": folds,
        "mean": {name: float(values.mean()) for name, values in tests.items()},
        "by_seed": {name: values.mean(0).tolist() for name, values in tests.items()},
        "values": lists,
        "interval": {name: each and list(bootstrap_interval(each)) for name, each in lists.items()},
        **{clock: sum(result[clock] for result in found.every) for clock in ("seconds", "cpu_seconds")},
        "runs": len(found.every),
        "reused": found.reused,
    }


def _values(name: str, by_fold: Sequence[Sequence[dict[str, Any]]]) -> list[float] | None:
    """A measure of the test lists of all folds, averaged over seeds; None if these have other lists, or a cell lacks it."""
    kept = [[result.get("test_values", {}).get(name) for result in results] for results in by_fold]
    if any(values is None for results in kept for values in results):
        return None
    if any(len(values) != len(results[0]) for results in kept for values in results):
        return None  # the seed draws the split too
    return [float(value) for results in kept for value in np.mean(results, axis=0)]


def keywords(options: argparse.Namespace, rest: Sequence[str]) -> dict[str, Any]:
    """The arguments of `cross_validate` from the parsed options of the command."""
    names = ("folds", "output", "processes", "seeds")
    refuse_twice("--grid", [key for key, _ in options.grid])
    return {"grid": dict(options.grid), "options": rest} | {name: getattr(options, name) for name in names}


def main(args: Sequence[str]) -> None:
    """Print the table and write `cross_validation.json`."""
    options, rest = parser_of("cross-validate").parse_known_args(args[1:])
    with cluster(options.on, options.address):
        found = cross_validate(options.config, **keywords(options, rest))
    names = list(found["mean"])
    del found["values"]
    rows = []
    for each in found["folds"]:
        point = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in each["point"].items())
        tests = [each["test"][name] for name in names]
        rows.append(
            ["" if each["fold"] is None else str(each["fold"]), point, each["epoch"], each["validation"], *tests]
        )
    validation = float(np.mean([each["validation"] for each in found["folds"]]))
    rows.append(["mean", "", "", validation, *(str(spread(found["by_seed"][name])) for name in names)])
    if any(found["interval"].values()):
        ends = [found["interval"][name] for name in names]
        rows.append(["95 %", "", "", "", *("" if each is None else f"{each[0]:.4f} to {each[1]:.4f}" for each in ends)])
    header = ["fold", "selected", "epoch", "validation", *(f"test {name}" for name in names)]
    print(format_table(header, rows))
    print(SELECTION)
    print(
        f"training took {found['seconds']:.0f} s ({found['cpu_seconds']:.0f} s of CPU time), summed over "
        f"{found['runs']} runs, {found['reused']} of them reused"
    )
    target = Path(options.output) / "cross_validation.json"
    write_result(target, as_typed(args), {"folds": (header, rows)}, **found)
    print(f"written: {target}")
