"""Training from a config file, and what is done with the trained model.

`rankstruct fit`: train a ranker, or a factorisation of ratings, from a config file and test the best checkpoint.
`rankstruct validate`: evaluate a checkpoint on the validation lists.
`rankstruct test`: evaluate a checkpoint on the test lists.
`rankstruct predict`: write scores and a TREC run file (for a factorisation, recommendations too).

A run is a folder with `config.yaml`, TensorBoard events, `checkpoints/best.ckpt` and `last.ckpt`, `metrics.json`, and
`data.json`: names, digests and options of the training data.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import re
import shlex
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from jsonargparse import Namespace
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.callbacks import Callback, EarlyStopping, ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from rankstruct.arrays import LARGEST
from rankstruct.calibration import Calibration, Method
from rankstruct.commands import predict_shards, rank
from rankstruct.commands._arguments import configs_in, options_in
from rankstruct.commands._options import TASKS, check_effects, cluster_parser, loss_names, scorer_names
from rankstruct.commands._parser import Parser, with_full_losses
from rankstruct.commands.cells import locked
from rankstruct.commands.cluster import ray_at
from rankstruct.configs import misused, read_config
from rankstruct.data import Source
from rankstruct.data.record import KEY, check_unchanged, write_record
from rankstruct.data.shards import absolute
from rankstruct.data.source import digest_of
from rankstruct.diagnostics import check_measures, draw_reliability, judge_probabilities
from rankstruct.feature_maps import FeatureMap
from rankstruct.files import naming, newest_run, write_text
from rankstruct.launcher import end_with_launcher
from rankstruct.measures import Measure, parse_measure
from rankstruct.messages import did_you_mean
from rankstruct.models.saving import keep_calibration, read_checkpoint
from rankstruct.progress import shows_bars
from rankstruct.recommenders.reading import InteractionsSource, RatingsSource
from rankstruct.recommenders.training import (
    CatalogueModule,
    FactorizationModule,
    InteractionsDataModule,
    RatingsDataModule,
    RecommendationWriter,
    SplitRatingsDataModule,
)
from rankstruct.text_tables import format_table, markdown_table
from rankstruct.training.board import Board, TrainingBoard, log_test_lists, with_scores
from rankstruct.training.callbacks import (
    Announcements,
    AtomicCheckpoints,
    AverageWeights,
    Ends,
    EpochLines,
    HeldOutScores,
    LastCheckpoint,
    PredictionWriter,
    ProgressBar,
    ResumeHint,
    Stoppable,
    is_trial,
)
from rankstruct.training.datamodule import ListsDataModule, RankingDataModule
from rankstruct.training.module import STUCK, RankingModule


def _monitored(measures: Sequence[str]) -> str:
    try:
        return f"val/{parse_measure(measures[0]).name}"
    except (ValueError, IndexError):  # the module reports the error
        return "val/"


class _Task(NamedTuple):
    """A training task: its module and data, the data properties its scorer is built from, and the output of `predict`."""

    module: type[RankingModule]
    data: type[ListsDataModule]
    links: dict[str, str]
    source: type[Source] | type[Any]
    base: type[ListsDataModule] = ListsDataModule  # of data modules that a config names by class path
    writers: tuple[type[PredictionWriter] | type[RecommendationWriter], ...] = (PredictionWriter,)


_SIZES = {"data.num_users": "num_users", "data.num_items": "num_items"}
_BOTH = (PredictionWriter, RecommendationWriter)
_TASKS = {
    "ranking": _Task(RankingModule, RankingDataModule, {"data.num_features": "num_features"}, Source),
    "ratings": _Task(FactorizationModule, SplitRatingsDataModule, _SIZES, RatingsSource, RatingsDataModule, _BOTH),
    "implicit": _Task(
        CatalogueModule, InteractionsDataModule, _SIZES, InteractionsSource, RatingsDataModule, (RecommendationWriter,)
    ),
}


def task_of(name: str) -> _Task:
    """A task by its name; what is not of `rankstruct` alone is imported for the task that needs it."""
    if name != "text":
        return _TASKS[name]
    source, data = import_module("rankstruct.text").TextSource, import_module("rankstruct.text.loading").TextDataModule
    return _Task(RankingModule, data, {"data.encoder": "encoder", "data.fetch": "fetch"}, source, data)


_TRAINER = {"num_sanity_val_steps": 0, "log_every_n_steps": 10, "max_epochs": 100, "enable_model_summary": False}


def _find_task(args: Sequence[str]) -> str:
    """The task of a command, which determines its options: from `--task` or the configs."""
    task = "ranking"
    for option, value in options_in(args):
        if option == "--task":
            task = value or task
        elif option in ("-c", "--config") and Path(value).is_file():
            content = read_config(value)
            task = content.get("task", task) if isinstance(content, dict) else task
    if not isinstance(task, str) or task not in TASKS:
        misused(f"task must be one of {', '.join(TASKS)}, got {task!r}{did_you_mean(str(task), TASKS)}")
    return task


def _names_data(args: Sequence[str]) -> bool:
    """Whether a command line or one of its configs names the class of the data module."""
    files = configs_in(args)
    for option, value in options_in(args):
        if option == "--data.class_path" or (option == "--data" and value and not Path(value).exists()):
            return True
        files += [value] if option == "--data" and Path(value).is_file() else []
    contents = [content for content in map(read_config, files) if isinstance(content, dict)]
    data = [content.get("data", content) for content in contents]
    return any(isinstance(each, str) or (isinstance(each, dict) and "class_path" in each) for each in data)


class _SaveConfig(SaveConfigCallback):
    """Write `config.yaml` to the run's folder, atomically: without it the run could not be used again."""

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Get the folder, in all processes; then the first one writes."""
        self._folder = Path(str(trainer.log_dir))
        super().setup(trainer, pl_module, stage)

    def save_config(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Write the config, and show its non-default values in TensorBoard."""
        write_text(self._folder / "config.yaml", self.parser.dump(self.config, skip_none=False))
        if isinstance(trainer.logger, Board):
            chosen = self.parser.dump(self.config, skip_default=True)
            trainer.logger.experiment.add_text("config", f"```\n{chosen}```")


class RankingCLI(LightningCLI):
    """LightningCLI with a folder, checkpoints and a report for each run; see `main`."""

    def __init__(self, args: Sequence[str], run_folder: Path | None = None, *, quiet: bool = False) -> None:
        self._run_folder = run_folder
        self._quiet = quiet
        self._command = args[0]
        self._args = args
        self._task_name = _find_task(args)
        self._task = task_of(self._task_name)
        self._names_data = _names_data(args)
        _silence(everything=quiet)
        with ExitStack() as self._held:  # the lock of the folder of a run that trains
            super().__init__(
                self._task.module,
                self._task.base if self._names_data else self._task.data,
                subclass_mode_data=self._names_data,
                # The other commands do not overwrite the run's own.
                save_config_callback=_SaveConfig if args[0] == "fit" else None,
                save_config_kwargs={"save_to_log_dir": False},
                seed_everything_default=0,
                auto_configure_optimizers=False,
                parser_class=Parser,
                trainer_defaults=_TRAINER,
                args=with_full_losses(args),
            )

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Only the requested one: describing the options of all takes longer than parsing."""
        every = LightningCLI.subcommands()
        return {self._command: every[self._command]} if self._command in every else every

    def init_parser(self, **options: Any) -> LightningArgumentParser:
        """A parser with the config files registered."""
        parser = super().init_parser(**options)
        assert isinstance(parser, Parser)
        parser.look_at(configs_in(self._args), self._args)
        return parser

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the options of a run other than those of module, data and trainer."""
        task = (
            "Rank documents by features or by text, or train a factorisation of ratings, or of interactions (implicit)."
        )
        parser.add_argument(
            "--task", type=Literal["ranking", "ratings", "implicit", "text"], default=self._task_name, help=task
        )
        output = "Folder in which the run's folder, named by the time, is created."
        named = Path(configs[-1]).stem if (configs := configs_in(self._args)) else "rankstruct"
        parser.add_argument("--output", type=str, default=f"runs/{named}", help=output)
        run = "Folder of an earlier run, or of several, such as runs/quickstart, of which the newest is resumed (fit) or used."
        parser.add_argument("--run", type=str | None, default=None, help=run)
        average = "Validate, test and save an average of the weights."
        parser.add_argument("--average_weights", type=bool, default=False, help=average)
        calibrate = "Also learn probabilities of relevance from the validation lists; the best checkpoint keeps them."
        parser.add_argument("--calibrate", type=Method | None, default=None, help=calibrate)
        steps = "Also save last.ckpt every N steps, for long epochs; 0 saves it only after each epoch."
        parser.add_argument("--save_every_steps", type=int, default=0, help=steps)
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.add_lightning_class_args(EarlyStopping, "early_stopping")
        parser.set_defaults(
            {
                "checkpoint.filename": "best",
                "checkpoint.mode": "max",
                "checkpoint.enable_version_counter": False,
                "early_stopping.mode": "max",
                "early_stopping.patience": 20,
                "early_stopping.strict": False,  # a run may end before its first validation
            }
        )
        if self._names_data:  # the short keys of a config remain those of the task's own class
            own = f"{self._task.data.__module__}.{self._task.data.__qualname__}"
            parser.set_defaults({"data": {"class_path": own}})
        seed = "data.init_args.seed" if self._names_data else "data.seed"
        parser.link_arguments("seed_everything", seed, compute_fn=int)
        parser.link_arguments("model.measures", "checkpoint.monitor", compute_fn=_monitored)
        parser.link_arguments("model.measures", "early_stopping.monitor", compute_fn=_monitored)
        for source, argument in self._task.links.items():
            parser.link_arguments(source, f"model.scorer.init_args.{argument}", apply_on="instantiate")

    def _set_seed(self) -> None:
        seed = self.config[self.config.subcommand].seed_everything
        if seed is not None and seed is not True and not 0 <= seed < 2**32:
            raise ValueError(f"seed_everything must be from 0 to {2**32 - 1}, got {seed}")
        super()._set_seed()

    def before_instantiate_classes(self) -> None:
        """Make the data's path absolute, and require a checkpoint if the command needs one."""
        config = self.config[self.config.subcommand]
        if config.data.get("path") is not None:
            config.data.path = absolute(config.data.path)
        self._check_scorer(config.model.get("scorer"))
        _check_options(config, self.config.subcommand)
        given = dict(options_in(self._args))  # the last value of each; null resets a value of the config
        typed = [name.strip("-").rstrip("+") for name, value in given.items() if value not in ("null", "None")]
        check_effects(self.config.subcommand, typed, config)
        if self._quiet:
            _refuse_checkpoint(config)
        if self.config.subcommand != "fit" and config.ckpt_path is None:
            raise ValueError(f"{self.config.subcommand} needs a trained model: give --run FOLDER or --ckpt_path FILE")
        if config.ckpt_path is not None:
            self._keep_names(config)

    def _check_scorer(self, scorer: Any) -> None:
        """Raise ValueError for a scorer that does not take the sizes of the data."""
        path, sizes = (scorer or {}).get("class_path"), set(self._task.links.values())
        if not isinstance(path, str):
            return
        missing = sizes - set(vars(scorer.get("init_args", Namespace())))
        if missing:
            raise ValueError(
                f"model.scorer: the constructor of {path} has no argument {' or '.join(sorted(missing))}, which the data set; "
                f"scorers of this task: {', '.join(scorer_names(self._task_name))}"
            )

    def _keep_names(self, config: Any) -> None:
        """Let the data take the names of the checkpoint, or if training goes on, check that they are those of before."""
        own = "class_path" not in config.data
        if self.config.subcommand == "fit" and own:
            folder = shlex.quote(str(self._run_folder or "FOLDER"))
            anew = f"rankstruct fit --config {folder}/config.yaml --ckpt_path null"
            advice = f"training goes on only with the same data: restore them, or train a new run: {anew}"
            check_unchanged(_source_of(config), read_checkpoint(config.ckpt_path).get(KEY, {}), advice)
        options = config.data if own else config.data.get("init_args", {})
        if self.config.subcommand != "fit" and "trained_on" in options:
            options.trained_on = config.ckpt_path

    def instantiate_classes(self) -> None:
        """Instantiate the config; a value of a wrong type, or one that needs a package that is not there, raises ValueError."""
        try:
            super().instantiate_classes()
        except TypeError as error:
            raise ValueError(f"a class of the config cannot be instantiated with its values: {error}") from error
        except ImportError as error:  # a package, or a version of it, that a value of the config needs
            raise ValueError(str(error)) from error

    def _parse_ckpt_path(self) -> None:
        """Check that the checkpoint can be read, before anything is built."""
        path = self.config[self.config.subcommand].ckpt_path
        if path is None:
            return
        if not Path(path).is_file():
            raise ValueError(f"checkpoint {path} does not exist")
        read_checkpoint(path)

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        if subcommand in ("test", "validate"):
            parser.set_defaults({"verbose": False})  # rankstruct prints the table
        assert isinstance(parser, Parser)
        parser.name(subcommand, {"model.scorer": scorer_names(self._task_name), "model.loss": loss_names()})
        return parser

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """A trainer that logs to the run's folder and writes checkpoints atomically."""
        folder = self._run_folder
        logger: Board | bool
        if self.subcommand != "fit":
            logger = False  # log and checkpoints are those of training
            kwargs["enable_checkpointing"] = False
        else:
            if folder is None:
                folder = _claim_folder(Path(self._get(self.config, "output")))
                self._held.callback(_remove_unused, folder)
            if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0":
                self._held.enter_context(locked(folder))
            measure = _monitored(self._get(self.config, "model.measures")).removeprefix("val/")
            logger = Board(folder, measure, _options_of(self.model.loss)["loss"])
        return super().instantiate_trainer(logger=logger, plugins=[AtomicCheckpoints()], **kwargs)

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[Callback]) -> pl.Trainer:
        data = self.datamodule
        callbacks = [*callbacks, Stoppable()]
        # Lightning's bars are on stdout.
        bars = not self._quiet and config.get("enable_progress_bar") is not False and shows_bars(sys.stdout, sys.stderr)
        config["enable_progress_bar"] = bars
        if self._quiet and config.get("devices") == "auto":
            config["devices"] = 1  # one of many runs
        if self.subcommand == "fit":
            if self._get(self.config, "average_weights"):
                callbacks = [AverageWeights(), *callbacks]
            # The first checkpoint callback is that of the best model; it writes before last.ckpt is written.
            callbacks.append(LastCheckpoint(self._get(self.config, "save_every_steps")))
            self._held_out_scores = HeldOutScores()
            if data.complete:
                callbacks += [TrainingBoard(data.objective_batches()), self._held_out_scores]
            callbacks += [Ends(), ResumeHint()]
            callbacks.append(Announcements() if self._quiet else ProgressBar() if bars else EpochLines())
        else:
            callbacks = [c for c in callbacks if not isinstance(c, EarlyStopping | ModelCheckpoint)]
            if self.subcommand == "predict":
                checkpoint = Path(self._get(self.config, "ckpt_path")).parent
                run = checkpoint.parent if checkpoint.name == "checkpoints" else checkpoint
                callbacks += [writer(str(run)) for writer in self._task.writers]
        _check_processes(config)
        try:
            trainer = super()._instantiate_trainer(config, callbacks)
        except (TypeError, ImportError) as error:
            raise ValueError(f"trainer: {error}") from error
        if self._quiet and trainer.world_size > 1:
            raise ValueError(
                "trainer.devices must be 1 when many runs are trained; use --processes to train several in parallel"
            )
        return trainer

    def before_fit(self) -> None:
        """Check that the measures can be computed for the lists, before training."""
        data = self.datamodule
        self.model.check_data(data)
        if (method := self._get(self.config, "calibrate")) is not None:
            if not data.complete or self._task_name in ("ratings", "implicit"):
                raise ValueError(
                    f"calibrate needs validation lists of documents in memory, which {data.data_name} has not; remove calibrate"
                )
            held_out = data.part("vali")
            try:  # whether it can be learned from them
                Calibration(method).fit(held_out.labels, held_out.labels, offsets=held_out.offsets)
            except ValueError as error:
                raise ValueError(f"calibrate: the validation lists of {data.data_name}: {error}") from None
        if not data.complete:
            return
        for what, part, metric in (
            ("validation", "vali", self.model.validation_metric),
            ("test", "test", self.model.test_metric),
        ):
            check_measures(
                {f"the {what} lists of {data.data_name}": data.part(part)}, metric.measures, "model.measures"
            )
        steering, lists = self.model.validation_metric.measures[0], data.part("vali")
        places, labels = np.arange(lists.num_documents, dtype=np.float64), np.asarray(lists.labels, np.float64)
        given: dict[str, Any] = {"offsets": lists.offsets, "diversity_groups": lists.diversity_groups, "ties": "input"}
        values = [steering(sign * each, labels, **given) for each in (places, labels) for sign in (1, -1)]
        if all(torch.equal(values[0], each) for each in values):
            raise ValueError(
                f"{data.data_name}: expected validation lists whose {steering.name} depends on the ranking, since it selects the "
                f"best checkpoint, got {lists.num_lists} lists for which it does not, such as lists of equal labels; use another "
                "first measure, or other lists"
            )

    def _run_subcommand(self, subcommand: str) -> None:
        board = self.trainer.logger  # whose errors name no file
        with naming(str(board.log_dir) if board else self.trainer.default_root_dir):
            super()._run_subcommand(subcommand)

    @property
    def folder(self) -> Path:
        """The run's folder."""
        assert isinstance(self.trainer.logger, Board)
        return Path(self.trainer.logger.log_dir)

    def after_fit(self) -> None:
        """Test the best checkpoint, print the table and the paths of all outputs."""
        checkpoint = self.trainer.checkpoint_callback
        assert isinstance(checkpoint, ModelCheckpoint)
        stopping, score = self.trainer.early_stopping_callback, checkpoint.best_model_score
        stopped = ""  # lost in the test, which loads the best checkpoint's state
        if isinstance(stopping, EarlyStopping) and stopping.stopped_epoch:
            reason = f"{stopping.monitor} did not improve for {stopping.patience} epochs"
            stopped = f"stopped in epoch {stopping.stopped_epoch}: {reason}"
            # the checkpoint callback loses its score if the folder was renamed
            score = stopping.best_score if score is None else score
        if not checkpoint.best_model_path or score is None:
            self._report_untested()
            return
        state = read_checkpoint(checkpoint.best_model_path)
        best = {"epoch": state["epoch"], "step": state["global_step"], "validation": score.item()}
        loggers, self.trainer.loggers = self.trainer.loggers, []  # final values are not part of curves
        given = {"datamodule": self.datamodule, "ckpt_path": checkpoint.best_model_path, "verbose": False}
        try:
            calibration = self._calibrated(given)
            if self.trainer.limit_test_batches:
                self.trainer.test(self.model, **given)
            self.trainer.loggers = loggers
            measures = self._measures("test")
            if not self.trainer.is_global_zero:
                return
            with naming(self.folder):
                self._save_report(best, measures, calibration)
                kept = self.datamodule.keep(self.model.scorer, self.folder)
        except (ValueError, OSError) as error:
            raise ValueError(f"{error}; the model is trained and saved in {checkpoint.best_model_path}") from error
        if not self._quiet:
            if stopped:
                print(stopped)
            if measures:
                self._print_report("test", measures)
            else:
                print(f"\nno test: trainer.limit_test_batches is {self.trainer.limit_test_batches}")
            print(
                f"TensorBoard log: {self.folder}  (to open it: tensorboard --logdir {shlex.quote(str(self.folder.parent))})"
            )
            print(f"best checkpoint: {checkpoint.best_model_path}  (epoch {best['epoch']})")
            if calibration is not None:
                print("it has probabilities of relevance, which predict writes; how true they are is in metrics.json")
            if kept:
                print(kept)
            print(f"to use the run again: rankstruct fit, test or predict --run {shlex.quote(str(self.folder))}")

    def _calibrated(self, given: dict[str, Any]) -> Calibration | None:
        """The step of `calibrate`, fitted to the validation lists and kept in the best checkpoint."""
        if (method := self._get(self.config, "calibrate")) is None:
            return None
        self.trainer.validate(self.model, **given)
        lists, scores = with_scores(self.datamodule.part("vali"), self._held_out_scores.scores)
        calibration = Calibration(method).fit(scores, lists.labels, offsets=lists.offsets)
        if self.trainer.is_global_zero:
            keep_calibration(given["ckpt_path"], calibration)
        return calibration

    def _report_untested(self) -> None:
        """Report the outputs of a run without a best checkpoint."""
        if is_trial(self.trainer):
            told = "trainer.fast_dev_run: training, validation and test ran; nothing is saved"
        elif not self.trainer.global_step:
            raise ValueError(
                f"no training step was completed; trainer.max_time is {self._get(self.config, 'trainer.max_time')}"
            )
        else:
            last = self.folder / "checkpoints" / "last.ckpt"
            told = f"no validated checkpoint was saved, so there is no best one to test; the last weights are in {last}"
        if self.trainer.is_global_zero and not self._quiet:
            print(told)

    def after_test(self) -> None:
        """Print the table."""
        self._print_report("test", self._measures("test"))

    def after_validate(self) -> None:
        """Print the table."""
        self._print_report("val", self._measures("val"))
        if self.trainer.is_global_zero:
            print("the checkpoint was selected on these lists: their means overestimate those of new lists")

    def _measures(self, stage: str) -> dict[str, float]:
        metrics = self.trainer.callback_metrics.items()
        return {name.removeprefix(f"{stage}/"): float(v) for name, v in metrics if name.startswith(f"{stage}/")}

    def _print_report(self, stage: str, measures: dict[str, float]) -> None:
        if not self.trainer.is_global_zero:
            return
        lists = self.model.judged[stage]
        empty = self.model.empty_lists[stage]
        rows = [[name, value, empty.get(name, 0)] for name, value in measures.items()]
        part = "validation" if stage == "val" else stage
        judged, columns = f"\nmeans over {lists} {part} lists", ["measure", "mean"]
        if any(empty.values()):
            judged, columns = f"{judged}; a list for which a measure is undefined counts as 0", [*columns, "undefined"]
        print(judged)
        print(format_table(columns, [row[: len(columns)] for row in rows]))
        if self.model.stuck.get(stage):
            print(STUCK)
        for remark in self.datamodule.remarks():
            print(remark)

    def _save_report(
        self, best: dict[str, Any], measures: dict[str, float], calibration: Calibration | None = None
    ) -> None:
        """Write the results to `metrics.json` and to TensorBoard."""
        module, data, board = self.model, self.datamodule, self.trainer.logger
        optimizers = [(type(each).__name__, each.param_groups[0]) for each in module.trainer.optimizers]
        used = (
            {"optimizer": name, "learning_rate": group.get("initial_lr", group["lr"])} for name, group in optimizers
        )
        parameters = {**module.describe(), **next(used, {"optimizer": ""}), **data.describe()}
        report = {"best": best, "test": measures, "parameters": parameters}
        judged = None
        if calibration is not None and measures:
            lists, scores = with_scores(data.part("test"), self._held_out_scores.scores)
            report["probabilities"] = judged = judge_probabilities(calibration.predict(scores).numpy(), lists)
        write_text(self.folder / "metrics.json", json.dumps(report, indent=2))
        write_record(self.folder, data.record, data.names)
        if isinstance(board, Board):
            steering = module.validation_metric.measures[0]
            shown = parameters | _options_of(module.loss)
            selected = str(self.trainer.checkpoint_callback.monitor).removeprefix("val/")  # type: ignore[union-attr]
            board.log_result(shown, {"best": {selected: best["validation"]}, "test": measures}, best["step"])
            empty = module.empty_lists.get("test", {})
            rows = [[name, f"{value:.4f}", str(empty.get(name, 0))] for name, value in measures.items()]
            table = markdown_table(["measure", "test mean", "lists where it is undefined"], rows)
            told = f"validation {selected} {best['validation']:.4f} in epoch {best['epoch']}, which it selected (optimistic)"
            board.experiment.add_text("result", f"{table}\n\n{told}")
            if module.stuck.get("test"):
                board.experiment.add_text("status", STUCK)
            if measures and data.complete:
                log_test_lists(board.experiment, data.part("test"), self._held_out_scores.scores, steering)
            if judged is not None:
                board.experiment.add_figure("test/reliability", draw_reliability(judged))
            board.save()


def _options_of(loss: torch.nn.Module) -> dict[str, str]:
    """Measure, name and printed options of a loss, in the order of importance for a table."""
    pairs = (each.rpartition("=") for each in re.split(r", (?=\w+=)", loss.extra_repr()) if each)
    options = {name or "measure": value for name, _, value in pairs} | {"reduction": None}
    if parts := [repr(each) for each in getattr(loss, "losses", [])]:  # of a combination
        options["parts"] = ", ".join(parts)
    name = f"{options.pop('measure', '')} {type(loss).__name__}".strip()
    return {"loss": name} | {f"loss.{option}": value for option, value in options.items() if value is not None}


#: Base classes of the classes that a config may name, in addition to Lightning's own.
_CONFIGURABLE = (
    torch.nn.Module,
    torch.optim.Optimizer,
    torch.optim.lr_scheduler.LRScheduler,
    Callback,
    Logger,
    pl.LightningDataModule,
    Measure,
    FeatureMap,
)
_PACKAGES = ("rankstruct.", "pytorch_lightning.", "lightning_fabric.")


def _check_values(config: Any) -> None:
    """Raise ValueError for an integer that is not exact in float64, or a class of another kind than those of a config.

    The class would be called with values. The parser checks classes against the types of arguments, but arguments of custom
    classes or in `**kwargs` may have none.
    """
    for name, value in _walk(config):
        if isinstance(value, int) and abs(value) > LARGEST:
            raise ValueError(
                f"{name} must be at most 2^53 in absolute value, got an integer of {value.bit_length()} bits"
            )
        if name.endswith("class_path") and isinstance(value, str) and not _is_known_kind(value):
            raise ValueError(
                f"{value} is not a Module, Optimizer, learning rate scheduler, Callback, Logger, data module, measure or feature "
                "map; a config may not name other classes"
            )


def _walk(config: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All values of a config with their full names."""
    if isinstance(config, dict | Namespace):
        for key, each in dict(config.items() if isinstance(config, dict) else vars(config)).items():
            yield from _walk(each, f"{name}.{key}".lstrip("."))
    elif isinstance(config, list | tuple):
        for each in config:
            yield from _walk(each, name)
    else:
        yield name, config


def _is_known_kind(path: str) -> bool:
    if path.startswith(_PACKAGES):
        return True
    module, _, name = path.rpartition(".")
    kind = getattr(sys.modules.get(module), name, None)  # the parser has imported what an argument's type allows
    if not isinstance(kind, type):  # a factory function
        kind = getattr(kind, "__annotations__", {}).get("return")
    return isinstance(kind, type) and issubclass(kind, _CONFIGURABLE)


#: The least and the greatest values of options that nothing else checks.
_BOUNDS = {
    **dict.fromkeys(("data.lists_per_batch", "data.documents_per_batch", "data.max_list_size"), (-math.inf, 2**31)),
    **dict.fromkeys(("trainer.check_val_every_n_epoch", "trainer.accumulate_grad_batches"), (1, math.inf)),
    **dict.fromkeys(("trainer.gradient_clip_val", "early_stopping.patience"), (0, math.inf)),
}
#: Options that a run sets itself, with the values that they may have.
_OWN = {"trainer.enable_checkpointing": True, "trainer.logger": True, "trainer.barebones": False}
#: The values of options of the trainer with which Ray's workers may train.
_ON_RAY = {
    "strategy": ("auto", "ddp", "ddp_find_unused_parameters_true"),
    "devices": ("auto", "1"),
    "num_nodes": ("1",),
}
_NEEDED = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",), "predict": ("predict",)}


def _check_options(config: Any, command: str) -> None:
    """Raise ValueError for options, not checked elsewhere, with which nothing would be trained or everything lost."""
    _check_values(config)
    values = dict(_walk(config))
    for name, (least, most) in _BOUNDS.items():
        if (value := values.get(name)) is not None and not least <= value <= most:
            bound = f"at least {least}" if most == math.inf else f"at most {most}"
            raise ValueError(f"{name} must be {bound}, got {value}")
    for name in (f"trainer.limit_{part}_batches" for part in _NEEDED[command]):
        if values[name] == 0:
            raise ValueError(f"{name} must be above 0: {command} needs these lists")
    if command == "predict" and (
        config.trainer.limit_predict_batches not in (None, 1.0) or config.trainer.fast_dev_run
    ):
        raise ValueError("predict scores all documents; remove trainer.limit_predict_batches and trainer.fast_dev_run")
    for name, default in _OWN.items() if command == "fit" else ():
        if values.get(name, "a class") not in (None, default):
            raise ValueError(f"{name} must not be set: a run manages its own checkpoints and log")
    for name in ("trainer.max_epochs", "trainer.max_steps", "trainer.val_check_interval") if command == "fit" else ():
        if values[name] == 0:
            raise ValueError(f"{name} must not be 0: nothing would be trained or validated")
    for name in ("checkpoint.mode", "early_stopping.mode") if command == "fit" else ():
        if values[name] == "min":
            raise ValueError(f"{name} must be max: higher measures are better")
    file = config.checkpoint.filename
    if file is not None and (Path(file).is_absolute() or ".." in Path(file).parts):
        raise ValueError(
            f"checkpoint.filename must stay in the run's folder, got {file!r}; to write elsewhere, set checkpoint.dirpath"
        )


def _check_processes(config: dict[str, Any]) -> None:
    """Raise ValueError for more processes than CPU cores, unless the config sets a strategy."""
    wanted = str(config.get("devices"))
    cores = os.cpu_count() or 1
    if config.get("strategy") != "auto" or not wanted.isdigit() or int(wanted) <= cores:
        return
    if config.get("accelerator") == "cpu" or not torch.accelerator.is_available():
        raise ValueError(
            f"trainer.devices {wanted} would start {wanted} processes on {cores} cores; use fewer, or "
            "--trainer.strategy ddp to start them anyway"
        )


def _claim_folder(output: Path) -> Path:
    """Create and return a folder in `output` whose name is the time, such as `2026-11-26_14-03-59`.

    Runs that start in the same second get different folders. In a distributed run the first process creates it, and Lightning
    broadcasts it to the others.
    """
    folder = output / time.strftime("%Y-%m-%d_%H-%M-%S")
    if getattr(rank_zero_only, "rank", 0) != 0:
        return folder
    for number in itertools.count(2):
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
        folder = folder.with_name(f"{folder.name[:19]}_{number:02}")
    return folder


def _remove_unused(folder: Path) -> None:
    """Remove the folder of a run that wrote nothing, such as one refused before training."""
    if folder.is_dir() and {each.name for each in folder.iterdir()} <= {".lock"}:
        (folder / ".lock").unlink(missing_ok=True)
        folder.rmdir()


_ADVERTISED = ("litlogger", "litmodels", "Found current_model_state")


def _silence(*, everything: bool) -> None:
    """Silence messages of no use to users of rankstruct; all of Lightning's if `everything`."""
    for message in (
        "LightningCLI's args parameter is intended to run from within Python",
        r"`isinstance\(treespec, LeafSpec\)` is deprecated",
        "Checkpoint directory .* exists and is not empty",
        "The number of training batches .* is smaller than the logging interval",
        "Be aware that when using `ckpt_path`, callbacks used to create the checkpoint",
    ):
        warnings.filterwarnings("ignore", message=message)
    zero = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    if everything:
        for logger in (logging.getLogger("pytorch_lightning"), logging.getLogger("lightning_fabric"), zero):
            logger.setLevel(logging.ERROR)
    elif not zero.filters:
        zero.addFilter(lambda record: not any(word in record.getMessage() for word in _ADVERTISED))


class _Parsed(RankingCLI):
    """A command line that is only parsed."""

    def _set_seed(self) -> None:
        pass

    def _keep_names(self, config: Any) -> None:
        """Look at no checkpoint."""

    def instantiate_classes(self) -> None:
        """Build nothing."""

    def _run_subcommand(self, subcommand: str) -> None:
        pass


def complete_config(args: Sequence[str]) -> str:
    """The complete config of a training command, such as `["fit", "--config", FILE]`, as YAML."""
    cli = _Parsed(args)
    return cli._parser(cli.subcommand).dump(cli.config[cli.subcommand], skip_none=False)


def check_data(args: Sequence[str], folds: Sequence[int | None]) -> str:
    """Check that the data of a training command exist for each fold; returns a digest of their content.

    Of a data module that the config names by class path, nothing is known: its digest is empty.

    Args:
        args: the command line, such as `["fit", "--config", FILE]`.
        folds: fold numbers; None is the command's own.

    Raises:
        ValueError: data are missing; the message is one line.
    """
    cli = _Parsed(args)
    config = cli.config[cli.subcommand]
    _check_options(config, "fit")
    if config.trainer.fast_dev_run:
        raise ValueError("trainer.fast_dev_run saves nothing to report; remove it")
    _refuse_checkpoint(config)
    if "class_path" in config.data:  # only the module knows its files
        return ""
    source = _source_of(config)
    for fold in folds:
        if fold is not None and (not hasattr(source, "fold") or source.builtin is not None):
            whose = source.builtin or f"the task {config.task}"
            raise ValueError(f"data of {whose} have no folds, got fold {fold}; leave out the folds")
        (source if fold is None else replace(source, fold=fold)).check()
    if isinstance(source, Source):
        return source.digest(now=True)
    if source.path is None:
        return ""
    root = Path(source.path)
    files = sorted(filter(Path.is_file, root.rglob("*"))) if root.is_dir() else [root]
    return " ".join(digest_of(str(file)) for file in files)


def _source_of(config: Any) -> Any:
    """The source of the data that a config describes."""
    kind = task_of(config.task).source
    return kind(**{each.name: config.data[each.name] for each in fields(kind) if each.name in config.data})


def has_folds(args: Sequence[str]) -> bool:
    """Whether the data of a training command, such as `["fit", "--config", FILE]`, may come in folds."""
    cli = _Parsed(args)
    config = cli.config[cli.subcommand]
    kind = task_of(config.task).source
    if config.data.get("builtin") is not None:
        return False
    return hasattr(kind, "fold") and (kind is not RatingsSource or config.data.get("split") == "fold")


def _refuse_checkpoint(config: Any) -> None:
    """Raise ValueError if many runs would start from a checkpoint."""
    if config.ckpt_path is not None:
        raise ValueError(
            f"ckpt_path must not be set when many runs are trained and compared, got {config.ckpt_path}: the checkpoint may have "
            "been trained on the lists that they are evaluated on"
        )


def expand_run(args: Sequence[str]) -> tuple[list[str], Path | None]:
    """Replace `--run FOLDER` by the folder's config and checkpoint: the last one for `fit`, the best one otherwise.

    If it holds several runs, the newest is taken.

    Raises:
        ValueError: the folder has no run, or no such checkpoint.
    """
    args, folder = _without_run(args)
    if folder is None:
        return args, None
    if (newest := newest_run(folder)) != folder:
        print(f"newest run in {folder}: {newest.name}", file=sys.stderr)
        folder = newest
    checkpoint = folder / "checkpoints" / ("last.ckpt" if args[0] == "fit" else "best.ckpt")
    for needed in (folder / "config.yaml", checkpoint):
        if not needed.is_file():
            used = f"; use it with rankstruct predict or rs.load_scorer({str(folder)!r})"
            hint = used if rank.has_scorer(folder) else ""
            raise ValueError(f"{folder} is not the folder of a run: {needed} is missing{hint}")
    return [args[0], "--config", str(folder / "config.yaml"), "--ckpt_path", str(checkpoint), *args[1:]], folder


def _without_run(args: Sequence[str]) -> tuple[list[str], Path | None]:
    """The command line without `--run FOLDER`, and the folder."""
    args = list(args)
    at = next((i for i, arg in enumerate(args) if arg == "--run" or arg.startswith("--run=")), None)
    if at is None:
        return args, None
    given = args.pop(at)
    if given == "--run" and at >= len(args):
        misused("--run needs the folder of a run, such as runs/quickstart")
    return args, Path(args.pop(at) if given == "--run" else given.removeprefix("--run="))


def main(args: Sequence[str]) -> RankingCLI | None:
    """Run `fit`, `validate`, `test` or `predict`, the first of `args`.

    `--config FILE` is the config; options after it override its values, as in `--model.regularization 0.01`. With
    `task: ratings` in the config a factorisation of ratings is trained, with `task: implicit` one of interactions, with
    `task: text` a text re-ranker, otherwise a ranker. `--run FOLDER` resumes (`fit`) or uses (`test`, `predict`) an earlier run
    instead; `predict` accepts those of `rank` too, and with `--output` scores shards, see `predict_shards`. `fit --on ray` trains
    on a cluster.
    """
    end_with_launcher()
    place = Namespace(on=None)
    if args[0] == "fit":
        place, rest = cluster_parser().parse_known_args(args[1:])
        args = ["fit", *rest]
    rest, folder = _without_run(args)
    if args[0] == "predict" and any(option == "--output" for option, _ in options_in(rest)):
        predict_shards.predict(folder, rest[1:])
        return None
    if args[0] == "predict" and folder is not None and rank.has_scorer(folder):
        rank.predict(folder, rest[1:])
        return None
    expanded, folder = expand_run(args)
    starts = ("-c", "--config", "--model", "-h", "--help", "--print_config")
    if not any(arg.startswith(starts) or arg.endswith(".help") for arg in expanded):
        hints = (did_you_mean(arg.partition("=")[0], ["--config", "--run"], least=0.75) for arg in expanded)
        misused(
            f"{expanded[0]} needs --config (a file, or a name from `rankstruct configs` such as quickstart) or --run FOLDER"
            f"{next(filter(None, hints), '')}"
        )
    if place.on is None:
        return run_cli(RankingCLI, expanded, folder)
    _fit_on_ray(expanded, folder, place)
    return None


def run_cli(kind: type[RankingCLI], args: Sequence[str], folder: Path | None) -> RankingCLI:
    """Run a command of a kind; errors of Lightning become those of commands."""
    try:
        return kind(args, folder)
    except MisconfigurationException as error:
        raise ValueError(str(error)) from error
    except SystemExit as end:  # raised by Lightning on Ctrl-C
        if isinstance(end.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


def _fit_on_ray(args: Sequence[str], folder: Path | None, place: Any) -> None:
    """Check what can be checked here, and let workers of Ray train."""
    with ray_at(place.address) as ray, ExitStack() as held:
        config = _Parsed(args).config["fit"]
        _check_trainer(config.trainer, place.gpu)
        if "class_path" not in config.data:  # only the module knows its files
            _source_of(config).check()
        kind = "GPU" if place.gpu else "CPU"
        room = int(ray.cluster_resources().get(kind, 0))
        if room < place.workers:
            raise ValueError(
                f"--workers {place.workers} needs a {kind} for each, but the cluster has {room}; use fewer, or a larger cluster"
            )
        if folder is None:
            folder = _claim_folder(Path(config.output))
            held.callback(_remove_unused, folder)
        train = import_module("rankstruct.commands.on_ray").train
        train(args, Path(os.path.realpath(folder)), place)


def _check_trainer(trainer: Any, gpu: bool) -> None:
    """Raise ValueError for options of the trainer that contradict those of Ray's workers."""
    kinds = ("auto", "gpu", "cuda") if gpu else ("auto", "cpu")
    for name, allowed in (_ON_RAY | {"accelerator": kinds}).items():
        if str(value := trainer[name]) not in allowed:
            raise ValueError(
                f"trainer.{name} must be {' or '.join(allowed)} with --on ray{' --gpu' if gpu else ''}, got {value!r}: "
                "--workers and --gpu determine the processes"
            )
