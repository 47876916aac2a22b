"""`rankstruct tune`: tune the hyperparameters of a config with Optuna and test the best.

A cell is one trial: the values proposed by Optuna, trained on one fold after another. Only the cells are saved; a resumed search
replays them to Optuna. Trials are proposed in rounds of a few and pruned by those of earlier rounds, so that the search does not
depend on the number of processes, up to the size of a round.
"""

from __future__ import annotations

import importlib
import json
import math
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml
from pytorch_lightning.callbacks import ModelCheckpoint

from rankstruct.commands._options import parser_of
from rankstruct.commands.cells import Cell, CellFolders, Key, different_names
from rankstruct.commands.cross_validate import SELECTION, Run, asked, check_values, cross_validate
from rankstruct.commands.fit import RankingCLI, complete_config
from rankstruct.configs import load_yaml
from rankstruct.files import write_text
from rankstruct.messages import one_line
from rankstruct.progress import stage
from rankstruct.statistics import spread
from rankstruct.text_tables import format_table
from rankstruct.training.board import Board

_ROUND = 4  # trials proposed together
_SHOWN = 10  # trials in the table


def _optuna() -> Any:
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise ValueError("tune requires Optuna, which is not installed: pip install 'rankstruct[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class _Pruning(pl.Callback):
    """End a fold whose best validation measure is below the median of at least five finished trials at the same epoch.

    Args:
        before: the best values of the trial's earlier folds; curves are means over the folds so far.
        others: curves of the finished trials for this fold; None disables pruning.
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
        """Record the measure monitored by early stopping, and stop if the trial is pruned."""
        value = float(trainer.callback_metrics[trainer.early_stopping_callback.monitor])  # type: ignore[union-attr]
        mean = (sum(self._before) + value) / (len(self._before) + 1)
        self._trial.report(mean, len(self.curve))
        self.curve.append(mean)
        if self._trial.should_prune():
            trainer.should_stop = self.pruned = True


class _TrialCLI(RankingCLI):
    """A training run without checkpoints and test; its values and best measure are logged to TensorBoard."""

    def __init__(self, args: Sequence[str], folder: Path, point: dict[str, Any], pruning: _Pruning) -> None:
        self._point, self._pruning = point, pruning
        super().__init__(args, folder, quiet=True)

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[pl.Callback]) -> pl.Trainer:
        trainer = super()._instantiate_trainer(config, callbacks)
        kept = [each for each in trainer.callbacks if not isinstance(each, ModelCheckpoint)]  # type: ignore[attr-defined]
        trainer.callbacks = [*kept, self._pruning]  # type: ignore[attr-defined]
        return trainer

    def after_fit(self) -> None:
        """Log the values and the best measure."""
        assert isinstance(self.trainer.logger, Board)
        best = {self.model.validation_metric.measures[0].name: max(self._pruning.curve, default=math.nan)}
        self.trainer.logger.log_result(self._point, {"best": best}, self.trainer.global_step)


def _arguments(fold: int | None, point: dict[str, Any]) -> list[str]:
    return Run(fold, tuple((key, str(value)) for key, value in point.items())).arguments


def _try(
    fit: Sequence[str],
    folder: str,
    point: dict[str, Any],
    folds: Sequence[int | None],
    others: Sequence[Sequence[Sequence[float]]] | None,
) -> dict[str, Any]:
    """Train one trial; returns its curves, one per fold, of means over the folds so far."""
    start, pruned = time.process_time(), False
    curves: list[list[float]] = []
    bests: list[float] = []
    for number, fold in enumerate(folds):
        pruning = _Pruning(bests, None if others is None else [curves[number] for curves in others])
        try:
            run = Run(fold, ())
            with stage(run.name):
                _TrialCLI([*fit, *_arguments(fold, point)], Path(folder) / run.name, point, pruning)
            if not pruning.curve:
                raise ValueError("no epoch was validated")
        except ValueError as error:  # such as scores that are no longer finite: the search continues
            return {"state": "failed", "error": one_line(str(error)), "cpu_seconds": time.process_time() - start}
        curves.append(pruning.curve)
        bests.append(max(pruning.curve) * (number + 1) - sum(bests))
        if pruned := pruning.pruned:
            break
    state = "pruned" if pruned else "complete"
    found = {"validation": max(curves[-1]), "epochs": sum(map(len, curves)), "curves": curves}
    return {"state": state, "cpu_seconds": time.process_time() - start} | found


def parse_space(entries: Sequence[str]) -> dict[str, Any]:
    """Parse a search space to Optuna's distributions, by config key.

    Args:
        entries: `KEY=log:LOW,HIGH`, `KEY=uniform:LOW,HIGH`, `KEY=int:LOW,HIGH` or `KEY=choice:VALUE,VALUE`; values are YAML.

    Raises:
        ValueError: an invalid entry, an empty range, or a duplicate key.
    """
    distributions, space = _optuna().distributions, {}
    for entry in entries:
        key, _, rest = entry.partition("=")
        kind, _, text = rest.partition(":")
        try:
            load_yaml(f"[{text}]")  # raises for a duplicate key
            values = yaml.safe_load(f"[{text}]")
            if not key or key in space or not values:
                raise ValueError("expected a new key with values")
            if kind == "choice":
                values = [value if isinstance(value, str) else json.dumps(value) for value in values]
                if len(set(values)) < len(values):
                    raise ValueError("duplicate value")
                space[key] = distributions.CategoricalDistribution(values)
                continue
            low, high = map(int if kind == "int" else float, values)
            if kind not in ("log", "uniform", "int") or not (math.isfinite(low) and low < high < math.inf):
                raise ValueError("unknown kind, or an empty range")
            ranged = distributions.IntDistribution if kind == "int" else distributions.FloatDistribution
            space[key] = ranged(low, high, log=kind == "log")
        except (ValueError, TypeError, yaml.YAMLError) as error:
            raise ValueError(
                "--space takes KEY=log:LOW,HIGH, KEY=uniform:LOW,HIGH, KEY=int:LOW,HIGH or KEY=choice:VALUE,VALUE, "
                f"got {entry!r} ({error})"
            ) from error
    if not space:
        raise ValueError("empty search space: give --space KEY=log:LOW,HIGH")
    return space


class _Search:
    """Optuna's study, rebuilt from the saved trials, and their results.

    Args:
        distributions: distributions by config key.
        seed: seed of the proposals; each trial has its own sampler, which depends only on the results of earlier trials.
    """

    def __init__(self, distributions: dict[str, Any], seed: int) -> None:
        self.found: list[dict[str, Any]] = []
        self._distributions, self._seed = distributions, seed
        self._study = _optuna().create_study(direction="maximize")
        self._asked: dict[str, Any] = {}

    @property
    def complete(self) -> list[dict[str, Any]]:
        """The completed trials, best first."""
        complete = [each for each in self.found if each["state"] == "complete"]
        return sorted(complete, key=lambda each: -each["validation"])

    @property
    def so_far(self) -> str:
        """The best trial so far, for the progress bar."""
        return f", best {self.complete[0]['validation']:.4f}" if self.complete else ""

    @property
    def report(self) -> dict[str, Any]:
        """The trials, as returned by `tune`."""
        best = {key: self.complete[0][key] for key in ("trial", "point", "validation")}
        return {"best": best, "trials": self.found}

    def check(self, fit: Sequence[str]) -> None:
        """Let the parser reject keys and values that the config of a training command does not accept."""
        ends = {
            key: getattr(each, "choices", None) or (each.low, each.high) for key, each in self._distributions.items()
        }
        check_values(fit, ends)

    def ask(self, begun: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """The values of the next trials; trials started earlier keep their values."""
        self._asked = {}
        for number, (name, request) in enumerate(begun.items(), start=len(self.found)):
            if request is not None:
                self._study.enqueue_trial(request.get("point", {}))
            self._study.sampler = _optuna().samplers.TPESampler(seed=10_000 * self._seed + number)
            self._asked[name] = self._study.ask(self._distributions)
        return {name: trial.params for name, trial in self._asked.items()}

    def tell(self, results: dict[Key, dict[str, Any]]) -> None:
        """Report results to Optuna; for a pruned trial it uses the last value.

        Raises:
            ValueError: no trial has completed so far.
        """
        states = _optuna().trial.TrialState
        for name, trial in self._asked.items():
            result = results[name, None, None]
            self.found.append({"trial": name, "point": trial.params} | result)
            for step, value in enumerate(value for curve in result.get("curves", []) for value in curve):
                trial.report(value, step)
            state = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}[result["state"]]
            self._study.tell(trial, result["validation"] if state == states.COMPLETE else None, state)
        if not self.complete:
            raise ValueError(f"all of the first {len(self.found)} trials failed: {self.found[0]['error']}")


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
    """Tune the hyperparameters of a config on validation data, and test the best.

    Args:
        config: a training config; the first of its `model.measures` is maximised.
        space: the search space, see `parse_space`.
        output: the folder of all trials; finished ones are reused, and a search can be extended. Its `best.yaml` is the complete
            config of the best trial.
        trials: number of trials, including those already in the folder.
        folds: each trial is trained on all folds and scored by the mean; `[None]` uses the config's own fold.
        options: further command-line options of every training run, such as `["--data.path", folder]`.
        processes: number of trials trained in parallel, one thread each.
        seed: seed of Optuna's proposals.
        seeds: number of seeds with which the best trial is tested; see `cross_validate`.
        prune: whether trials below the median are stopped early.

    Returns:
        `{"best": {"trial", "point", "validation"}, "trials": [{"trial", "point", "state", "validation", ...}, ...], "test"}`;
        `test` is the result of `cross_validate` for the best trial's config.

    Raises:
        ValueError: Optuna is not installed; space or data are invalid; the folder has another search; all trials failed.
        CellsFailed: trials ended by an error that may be transient; the others are saved.
    """
    search = _Search(parse_space(space), seed)
    if trials < 1:
        raise ValueError(f"trials must be at least 1, got {trials}")
    different_names([config])
    root = Path(output)
    fit, request, unchanged = asked(config, folds, root, options)
    search.check(["fit", "--config", str(config), *options])
    request |= {"space": list(space), "folds": list(folds), "seed": seed, "prune": prune}
    with CellFolders(root) as store:
        write_text(root / "config.yaml", request["config"])
        while (first := len(search.found)) < trials:
            last = min(first + max(_ROUND, processes), trials)
            points = search.ask({name: store.request(name) for name in map("trial-{:04}".format, range(first, last))})
            given = folds, [each["curves"] for each in search.complete] if prune else None
            cells = [
                Cell(name, request | {"point": point}, (fit, str(root / name), point, *given))
                for name, point in points.items()
            ]
            shown = {"what": "trials", "note": search.so_far, "before": first, "total": trials}
            search.tell(store.run(_try, cells, processes=processes, unchanged=unchanged, **shown).results)
        report = search.report | {"test": _test(search.complete[0], store, fit, folds, processes, seeds)}
        write_text(root / "tune.json", json.dumps(report, indent=2))
    return report


def _test(
    best: dict[str, Any],
    store: CellFolders,
    fit: Sequence[str],
    folds: Sequence[int | None],
    processes: int,
    seeds: int,
) -> dict[str, Any]:
    """Write the best trial's config, train it as `rankstruct fit` does, and test it."""
    config, output = store.folder / "best.yaml", store.folder / best["trial"] / "best"
    shown = ["--trainer.enable_progress_bar", "true", *_arguments(folds[0], best["point"])]
    write_text(config, complete_config([*fit, *shown]))
    if len(folds) * seeds == 1:  # no worker process
        processes = 0
    return cross_validate(config, folds=folds, grid={}, output=output, processes=processes, seeds=seeds, store=store)


def main(args: Sequence[str]) -> None:
    """Print the best trials and the test measures of the best one."""
    options, rest = parser_of("tune").parse_known_args(args[1:])
    found = tune(**vars(options), options=rest)
    _print_report(found)
    best = Path(options.output) / "best.yaml"
    print(f"TensorBoard's table of all trials: tensorboard --logdir {shlex.quote(str(options.output))}")
    print(f"best config: {best}  (to train it: rankstruct fit --config {best})")


def _print_report(found: dict[str, Any]) -> None:
    states = [each["state"] for each in found["trials"]]
    trained = [each for each in found["trials"] if "validation" in each]
    ranked = sorted(trained, key=lambda each: (each["state"] != "complete", -len(each["curves"]), -each["validation"]))
    rows = []
    for each in ranked[:_SHOWN]:
        values = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in each["point"].values()]
        rows.append([each["trial"], each["state"], each["validation"], each["epochs"], *values])
    keys = [key.rpartition(".")[2] for key in found["best"]["point"]]
    print(format_table(["trial", "state", "validation", "epochs", *keys], rows))
    print(SELECTION)
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("complete", "pruned", "failed"))
    print(f"{len(states)} trials: {counts}; best: {found['best']['trial']}\n")
    rows = []
    for name, values in found["test"]["by_seed"].items():
        ends = found["test"]["interval"][name]
        rows.append([name, str(spread(values)), "" if ends is None else f"{ends[0]:.4f} to {ends[1]:.4f}"])
    print(format_table(["measure", "test", "95 %"], rows))
