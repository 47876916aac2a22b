"""`rankstruct tune`: tune the hyperparameters of a config with Optuna and test the best.

A cell is one trial: the values proposed by Optuna, trained on one fold after another. Only the cells are saved; a resumed search
replays them to Optuna. Trials are proposed in rounds of a few and pruned by those of earlier rounds, so that the search does not
depend on the number of processes, up to the size of a round.

With a storage of Optuna, several commands, also on several machines, search together: Optuna hands out each trial once, and keeps
what it came to. The trials of a command that was killed are run again, by whichever is there, if the storage tells (a database
does, by a heartbeat; a journal file does not).
"""

from __future__ import annotations

import json
import math
import shlex
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml
from pytorch_lightning.callbacks import ModelCheckpoint

from rankstruct.checks import check_integers
from rankstruct.commands._options import parser_of
from rankstruct.commands.cells import Cell, CellFolders, Key, different_names
from rankstruct.commands.cluster import cluster
from rankstruct.commands.cross_validate import SELECTION, Run, asked, check_values, cross_validate
from rankstruct.commands.fit import RankingCLI, complete_config
from rankstruct.configs import load_yaml
from rankstruct.files import write_text
from rankstruct.messages import import_extra, one_line
from rankstruct.progress import stage
from rankstruct.statistics import spread
from rankstruct.text_tables import format_table
from rankstruct.training.board import Board

_ROUND = 4  # trials proposed together
_SHOWN = 10  # trials in the table
_BEAT = 10  # seconds between two signs of life of a trial in a database; after two without, it is run again


def _optuna() -> Any:
    optuna = import_extra("optuna", "tune", "tune", ValueError)
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

    def run_rounds(self, store: CellFolders, trials: int, size: int, run: Callable[[Any], dict[Key, Any]]) -> None:
        """Run trials in rounds of this size, given a function that runs those of some names and values."""
        while (first := len(self.found)) < trials:
            names = map("trial-{:04}".format, range(first, min(first + size, trials)))
            self.tell(run(self.ask({name: store.request(name) for name in names}).items()))


class _TrialFailed(Exception):
    """Training a trial is not possible; the search continues."""


class _SharedSearch(_Search):
    """A study in a storage, which several commands may work on at the same time.

    Args:
        distributions: distributions by config key.
        storage: URL of a database, or else a journal file.
        name: of the study.
        request: what all results depend on.
        trials: number of trials of all commands together.

    Raises:
        ValueError: the storage cannot be opened, or its study of this name had another request.
    """

    def __init__(self, distributions: dict[str, Any], storage: str, name: str, request: Any, trials: int) -> None:
        super().__init__(distributions, 0)
        optuna = _optuna()
        self._trials, self._beats = trials, "://" in storage
        try:
            if self._beats:
                with _quiet():
                    retry = optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=1)
                    beat = {"heartbeat_interval": _BEAT, "heartbeat_stale_trial_callback": retry}
                    opened = optuna.storages.RDBStorage(storage, **beat)
            else:
                opened = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))
            found = {"study_name": name, "storage": opened, "load_if_exists": True}
            self._study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(), **found)
        except Exception as error:  # of the database's driver
            raise ValueError(f"storage {storage}: {one_line(str(error))}") from error
        request = json.loads(json.dumps(request))
        known = self._study.user_attrs.get("request", request)
        if differs := [key for key in request if known.get(key) != request[key]]:
            raise ValueError(
                f"storage {storage}: its study {name} differs in {', '.join(differs)}; use another storage, or rename the config"
            )
        self._study.set_user_attr("request", request)

    def run(self, attempt: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        """Run trials, one after another, until all commands together have run theirs.

        Args:
            attempt: runs a trial, given its name and its values.
        """
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # trials that fail are in the table
        states = optuna.trial.TrialState

        def objective(trial: Any) -> float:
            told = self._study.get_trials(deepcopy=False)
            if len([each for each in told[: trial.number] if not _lost(each)]) >= self._trials:
                trial.study.stop()
                raise optuna.TrialPruned  # others were faster
            self._read()
            point = {key: _suggested(trial, key, each) for key, each in self._distributions.items()}
            result = attempt(f"trial-{trial.number:04}", point)
            trial.set_user_attr("result", result)
            for step, value in enumerate(value for curve in result.get("curves", []) for value in curve):
                trial.report(value, step)
            if result["state"] != "complete":
                raise optuna.TrialPruned if result["state"] == "pruned" else _TrialFailed(result["error"])
            return float(result["validation"])

        while True:
            with _quiet():
                optuna.storages.fail_stale_trials(self._study)
            told = [each for each in self._study.get_trials(deepcopy=False) if not _lost(each)]
            if len(told) < self._trials or any(each.state == states.WAITING for each in told):
                self._study.optimize(objective, n_trials=1, catch=(_TrialFailed,))
            elif self._beats and any(each.state == states.RUNNING for each in told):
                time.sleep(1)  # another command may die, and leave its trial to this one
            else:
                break
        self._read()
        if not self.complete:
            raise ValueError(
                f"no trial is complete: {next((e['error'] for e in self.found if 'error' in e), 'none ran')}"
            )

    def _read(self) -> None:
        """Read what the trials of all commands came to."""
        ended = [each for each in self._study.get_trials(deepcopy=False) if "result" in each.user_attrs]
        self.found = [
            {"trial": f"trial-{each.number:04}", "point": each.params} | each.user_attrs["result"] for each in ended
        ]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's warning that its signs of life are experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", _optuna().exceptions.ExperimentalWarning)
        yield


def _lost(trial: Any) -> bool:
    """Whether nothing came of a trial: its command died, or was stopped, or others were faster."""
    return bool(trial.state.is_finished()) and "result" not in trial.user_attrs


def _suggested(trial: Any, key: str, distribution: Any) -> Any:
    if choices := getattr(distribution, "choices", None):
        return trial.suggest_categorical(key, choices)
    suggest = trial.suggest_int if isinstance(distribution.low, int) else trial.suggest_float
    return suggest(key, distribution.low, distribution.high, log=distribution.log)


def tune(
    config: str | Path,
    space: Sequence[str],
    *,
    output: str | Path,
    trials: int = 30,
    folds: Sequence[int | None] = (None,),
    options: Sequence[str] = (),
    processes: int | None = None,
    seed: int = 0,
    seeds: int = 1,
    prune: bool = True,
    storage: str | None = None,
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
        processes: number of trials trained in parallel, one thread each; see `CellFolders.run`.
        seed: seed of Optuna's proposals.
        seeds: number of seeds with which the best trial is tested; see `cross_validate`.
        prune: whether trials below the median are stopped early.
        storage: the storage of Optuna by which several such calls, each with its own `output`, search together: the URL of a
            database, such as `sqlite:///study.db`, or a journal file. Each call trains one trial at a time. With a database, all
            wait for the others and test the same best trial. The study has the name of the config; its proposals differ from run
            to run.

    Returns:
        `{"best": {"trial", "point", "validation"}, "trials": [{"trial", "point", "state", "validation", ...}, ...], "test"}`;
        `test` is the result of `cross_validate` for the best trial's config.

    Raises:
        ValueError: Optuna is not installed; space or data are invalid; the folder has another search; all trials failed.
        CellsFailed: trials ended by an error that may be transient; the others are saved.
    """
    distributions = parse_space(space)
    search = _Search(distributions, seed)
    check_integers(1, trials=trials)
    different_names([config])
    root = Path(output)
    fit, request, unchanged = asked(config, folds, root, options)
    search.check(["fit", "--config", str(config), *options])
    request |= {"space": list(space), "folds": list(folds), "seed": seed, "prune": prune}
    with CellFolders(root) as store:
        write_text(root / "config.yaml", request["config"])
        given: dict[str, Any] = {"fit": fit, "folds": folds, "request": request, "prune": prune, "trials": trials}
        search = _searched(
            search, store, distributions, storage, processes, unchanged, study=Path(config).stem, **given
        )
        report = search.report | {"test": _test(search.complete[0], store, fit, folds, processes, seeds)}
        write_text(root / "tune.json", json.dumps(report, indent=2))
    return report


def _searched(
    search: _Search,
    store: CellFolders,
    distributions: dict[str, Any],
    storage: str | None,
    processes: int | None,
    unchanged: Callable[[Cell], bool],
    *,
    fit: Sequence[str],
    folds: Sequence[int | None],
    request: dict[str, Any],
    prune: bool,
    trials: int,
    study: str,
) -> _Search:
    """Run the trials, with others if there is a storage; returns the search with what came of them."""

    def cell(name: str, point: dict[str, Any]) -> Cell:
        others = [each["curves"] for each in search.complete] if prune else None
        return Cell(name, request | {"point": point}, (fit, str(store.folder / name), point, folds, others))

    def run(cells: list[Cell]) -> dict[Key, Any]:
        shown: dict[str, Any] = {"what": "trials", "note": search.so_far, "before": len(search.found), "total": trials}
        return store.run(_try, cells, processes=processes, unchanged=unchanged, **shown).results

    if storage is not None:
        search = shared = _SharedSearch(distributions, storage, study, request, trials)
        shared.run(lambda name, point: run([cell(name, point)])[name, None, None])
    else:
        search.run_rounds(
            store, trials, max(_ROUND, processes or 1), lambda points: run([cell(*each) for each in points])
        )
    return search


def _test(
    best: dict[str, Any],
    store: CellFolders,
    fit: Sequence[str],
    folds: Sequence[int | None],
    processes: int | None,
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
    on, address = vars(options).pop("on"), vars(options).pop("address")
    with cluster(on, address):
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
