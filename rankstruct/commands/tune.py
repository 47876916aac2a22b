"""`rankstruct tune`: search the values of a config with Optuna, by validation; test what is chosen, and nothing else.

A cell is one trial: the values that Optuna proposed, trained on one fold after another. The cells are all that is kept: who goes
on tells them to Optuna again. Trials are proposed a few at a time and pruned by those of the rounds before, so they are the same
for any number of processes up to that.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml
from pytorch_lightning.callbacks import ModelCheckpoint

from rankstruct.commands._arguments import one_line
from rankstruct.commands.cells import Cell, CellFolders, different_names
from rankstruct.commands.cross_validate import Run, asked, cross_validate
from rankstruct.commands.train import RankingCLI, complete_config
from rankstruct.files import write_text
from rankstruct.statistics import spread
from rankstruct.tables import format_table

_ROUND = 4  # trials that are proposed together
_SHOWN = 10  # trials in the table


def _optuna() -> Any:
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise ValueError("tune needs Optuna, which is not installed: pip install 'rankstruct[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class _Pruning(pl.Callback):
    """End a fold whose best validation measure is below the median of the finished trials, five at least, at this epoch.

    Args:
        before: the best values of the trial's earlier folds; a curve is of means over the folds so far.
        others: curves of the finished trials for this fold; None prunes nothing.
    """

    def __init__(self, before: Sequence[float], others: Sequence[Sequence[float]] | None) -> None:
        optuna = _optuna()
        self.curve: list[float] = []
        self.pruned = False
        self._before = before
        pruner = optuna.pruners.MedianPruner(n_warmup_steps=5) if others else optuna.pruners.NopPruner()
        study = optuna.create_study(direction="maximize", pruner=pruner)
        for curve in others or []:
            kept = optuna.trial.create_trial(value=max(curve), intermediate_values=dict(enumerate(curve)))
            study.add_trial(kept)
        self._trial = study.ask()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note the measure that steers early stopping, and look whether there is hope."""
        value = float(trainer.callback_metrics[trainer.early_stopping_callback.monitor])  # type: ignore[union-attr]
        self._trial.report((sum(self._before) + value) / (len(self._before) + 1), len(self.curve))
        self.curve.append((sum(self._before) + value) / (len(self._before) + 1))
        if self._trial.should_prune():
            trainer.should_stop = self.pruned = True


class _TrialCLI(RankingCLI):
    """A training run that keeps no checkpoint and tests nothing; TensorBoard's table shows its values and its best measure."""

    def __init__(self, args: Sequence[str], folder: Path, point: dict[str, Any], pruning: _Pruning) -> None:
        self._point, self._pruning = point, pruning
        super().__init__(args, folder, quiet=True)

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[pl.Callback]) -> pl.Trainer:
        trainer = super()._instantiate_trainer(config, callbacks)
        kept = [each for each in trainer.callbacks if not isinstance(each, ModelCheckpoint)]  # type: ignore[attr-defined]
        trainer.callbacks = [*kept, self._pruning]  # type: ignore[attr-defined]
        return trainer

    def after_fit(self) -> None:
        """Log what was tried."""
        assert self.trainer.logger is not None
        best = max(self._pruning.curve, default=math.nan)
        self.trainer.logger.log_hyperparams(self._point, {"final/validation": best})


def _try(
    fit: Sequence[str],
    folder: str,
    folds: Sequence[int | None],
    point: dict[str, Any],
    others: Sequence[Sequence[Sequence[float]]] | None,
) -> dict[str, Any]:
    """Train one trial; returns its curves of means over the folds so far, one a fold."""
    start, pruned = time.process_time(), False
    curves: list[list[float]] = []
    bests: list[float] = []
    for number, fold in enumerate(folds):
        pruning = _Pruning(bests, None if others is None else [curves[number] for curves in others])
        run = Run(fold, tuple((key, str(value)) for key, value in point.items()))
        try:
            _TrialCLI([*fit, *run.arguments], Path(folder) / Run(fold, ()).name, point, pruning)
            if not pruning.curve:
                raise ValueError("no epoch was validated")
        except ValueError as error:  # such as scores that are not finite any more: the search goes on elsewhere
            return {"state": "failed", "error": one_line(str(error)), "cpu_seconds": time.process_time() - start}
        curves.append(pruning.curve)
        bests.append(max(pruning.curve) * (number + 1) - sum(bests))
        if pruned := pruning.pruned:
            break
    state = "pruned" if pruned else "complete"
    found = {"validation": max(curves[-1]), "epochs": sum(map(len, curves)), "curves": curves}
    return {"state": state, "cpu_seconds": time.process_time() - start} | found


def parse_space(entries: Sequence[str]) -> dict[str, Any]:
    """Optuna's distributions by the config's keys.

    Args:
        entries: `KEY=log:LOW,HIGH`, `KEY=uniform:LOW,HIGH`, `KEY=int:LOW,HIGH` or `KEY=choice:VALUE,VALUE`; values as in YAML.

    Raises:
        ValueError: another form, a range that is empty, or a key that is there twice.
    """
    distributions, space = _optuna().distributions, {}
    for entry in entries:
        key, _, rest = entry.partition("=")
        kind, _, text = rest.partition(":")
        try:
            values = yaml.safe_load(f"[{text}]")
            if not key or key in space or not values:
                raise ValueError("a key is given once, with values")
            if kind == "choice":
                values = [value if isinstance(value, str) else json.dumps(value) for value in values]
                if len(set(values)) < len(values):
                    raise ValueError("a value is there twice")
                space[key] = distributions.CategoricalDistribution(values)
                continue
            low, high = map(int if kind == "int" else float, values)
            if kind not in ("log", "uniform", "int") or not (math.isfinite(low) and low < high < math.inf):
                raise ValueError("no such kind, or an empty range")
            ranged = distributions.IntDistribution if kind == "int" else distributions.FloatDistribution
            space[key] = ranged(low, high, log=kind == "log")
        except (ValueError, TypeError, yaml.YAMLError) as error:
            raise ValueError(
                "--space takes KEY=log:LOW,HIGH, KEY=uniform:LOW,HIGH, KEY=int:LOW,HIGH or KEY=choice:VALUE,VALUE, "
                f"got {entry!r} ({error})"
            ) from error
    if not space:
        raise ValueError("there is nothing to search: give --space KEY=log:LOW,HIGH")
    return space


def tune(
    config: str | Path,
    space: Sequence[str],
    *,
    output: str | Path,
    trials: int = 30,
    folds: Sequence[int | None] = (None,),
    options: Sequence[str] = (),
    processes: int = 1,
    seed: int = 0,
    seeds: int = 1,
    prune: bool = True,
) -> dict[str, Any]:
    """Search the values of a config that are best on validation, and test those.

    Args:
        config: a training config; the first of its `model.measures` is what is searched for.
        space: see `parse_space`.
        output: the folder of all trials; finished ones are reused, and more may be asked for. `best.yaml` in it is the best
            trial's config with every value written out.
        trials: how many, those that are there included.
        folds: each trial is trained on all of them, and judged by the mean; `[None]` is the config's own.
        options: further command-line options of every training run, such as `["--data.path", folder]`.
        processes: trials trained at once, one thread each.
        seed: of what Optuna proposes.
        seeds: how many seeds the best trial is tested with; see `cross_validate`.
        prune: whether trials that are below the median are ended early.

    Returns:
        `{"best": {"trial", "point", "validation"}, "test", "trials": [{"trial", "point", "state", "validation", ...}, ...]}`;
        `test` is what `cross_validate` returns for the best trial's config.

    Raises:
        ValueError: Optuna is not installed; a space, a key or a number is no such; there are no such data; the output folder
            holds trials of another search; no trial could be trained.
        CellsFailed: trials ended by what may not happen again; the others are kept.
    """
    distributions = parse_space(space)
    if trials < 1:
        raise ValueError(f"trials must be at least 1, got {trials}")
    different_names([config])
    root = Path(output)
    fit, request, unchanged = asked(config, folds, root, options)
    for key, ends in distributions.items():  # the parser refuses what the config does not know
        for value in getattr(ends, "choices", None) or (ends.low, ends.high):
            complete_config(["fit", "--config", str(config), *options, f"--{key}", str(value)])
    request |= {"space": list(space), "folds": list(folds), "seed": seed, "prune": prune}
    with CellFolders(root) as store:
        write_text(root / "config.yaml", request["config"])
        found: list[dict[str, Any]] = []
        study = _optuna().create_study(direction="maximize")
        together = max(_ROUND, processes)
        for first in range(0, trials, together):
            others = [each["curves"] for each in found if each["state"] == "complete"] if prune else None
            asks, cells = [], []
            for number in range(first, min(first + together, trials)):
                name = f"trial-{number:04}"
                if (begun := store.request(name)) is not None:
                    study.enqueue_trial(begun.get("point", {}))
                study.sampler = _optuna().samplers.TPESampler(seed=10_000 * seed + number)
                asks.append(study.ask(distributions))
                point, wanted = asks[-1].params, request | {"point": asks[-1].params}
                cells.append(Cell(name, wanted, (fit, str(root / name), folds, point, others)))
            best = max((each["validation"] for each in found if each["state"] == "complete"), default=math.nan)
            what = f"trials {first + 1} to {first + len(cells)} of {trials}, best {best:.4f}"
            done = store.run(_try, cells, processes=processes, what=what, unchanged=unchanged)
            for trial, cell in zip(asks, cells, strict=True):
                found.append({"trial": cell.name, "point": trial.params} | done.results[cell.name])
                _tell(study, trial, found[-1])
            if not any(each["state"] == "complete" for each in found):
                raise ValueError(f"none of the first {len(found)} trials could be trained: {found[0]['error']}")
        return _test_best(root, found, fit, folds, processes, seeds)


def _tell(study: Any, trial: Any, found: dict[str, Any]) -> None:
    """Tell Optuna how a trial went; of one that was pruned it takes the last value."""
    states = _optuna().trial.TrialState
    for step, value in enumerate(value for curve in found.get("curves", []) for value in curve):
        trial.report(value, step)
    if found["state"] == "complete":
        study.tell(trial, found["validation"])
    else:
        study.tell(trial, state=states.PRUNED if found["state"] == "pruned" else states.FAIL)


def _test_best(
    root: Path,
    found: list[dict[str, Any]],
    fit: Sequence[str],
    folds: Sequence[int | None],
    processes: int,
    seeds: int,
) -> dict[str, Any]:
    """Write the best trial's config, train it as `rankstruct fit` does, and test it."""
    best = max((each for each in found if each["state"] == "complete"), key=lambda each: each["validation"])
    run = Run(folds[0], tuple((key, str(value)) for key, value in best["point"].items()))
    shown = ["--trainer.enable_progress_bar", "true"]
    write_text(root / "best.yaml", complete_config([*fit, *shown, *run.arguments]))
    if len(folds) * seeds == 1:  # no process of its own
        processes = 0
    target = root / best["trial"] / "best"
    test = cross_validate(root / "best.yaml", folds=folds, grid={}, output=target, processes=processes, seeds=seeds)
    report = {"best": {key: best[key] for key in ("trial", "point", "validation")}, "test": test, "trials": found}
    write_text(root / "tune.json", json.dumps(report, indent=2))
    return report


def main(args: Sequence[str]) -> None:
    """Print the table of the best trials and the test measures of the best one."""
    parser = argparse.ArgumentParser(
        prog="rankstruct tune",
        description="Search the values of a training config with Optuna, by validation; write the best config and test it. "
        "Options that are not listed here go to every training run, such as --data.path FOLDER.",
    )
    parser.add_argument("--config", required=True, help="training config")
    what = "what is searched: KEY=log:LOW,HIGH, uniform:LOW,HIGH, int:LOW,HIGH or choice:VALUE,VALUE; may be repeated"
    parser.add_argument("--space", action="append", default=[], metavar="KEY=KIND:VALUES", help=what)
    parser.add_argument("--output", required=True, help="folder of all trials; finished ones are reused")
    parser.add_argument("--trials", type=int, default=30, help="how many in all (default: %(default)s)")
    parser.add_argument(
        "--folds", nargs="+", type=int, default=[None], help="folds of each trial (default: the config's)"
    )
    parser.add_argument(
        "--processes", type=int, default=1, help="trials at once, one thread each (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is proposed (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="test the best with so many seeds (default: %(default)s)")
    parser.add_argument("--no-prune", dest="prune", action="store_false", help="train every trial to its end")
    options, rest = parser.parse_known_args(args[1:])
    found = tune(**vars(options), options=rest)
    states = [each["state"] for each in found["trials"]]
    ranked = sorted((each for each in found["trials"] if "validation" in each), key=lambda each: -each["validation"])
    rows = [
        [each["trial"], each["state"], each["validation"], each["epochs"], *map(_shown, each["point"].values())]
        for each in ranked[:_SHOWN]
    ]
    keys = [key.rpartition(".")[2] for key in found["best"]["point"]]
    print(format_table(["trial", "state", "validation", "epochs", *keys], rows))
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("complete", "pruned", "failed"))
    print(f"{len(states)} trials: {counts}; best: {found['best']['trial']}\n")
    test = found["test"]
    ends = [test["interval"][name] for name in test["mean"]]
    print(
        format_table(
            ["measure", "test", "95 %"],
            [
                [name, str(spread(values)), "" if each is None else f"{each[0]:.4f} to {each[1]:.4f}"]
                for (name, values), each in zip(test["by_seed"].items(), ends, strict=True)
            ],
        )
    )
    best = Path(options.output) / "best.yaml"
    print(f"TensorBoard's table of all trials: tensorboard --logdir {options.output}")
    print(f"best config: {best}  (to train it: rankstruct fit --config {best})")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
