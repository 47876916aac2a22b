"""The command line of training: `fit`, `validate`, `test`, `predict`, from a config file.

A run lives in one folder: `config.yaml`, TensorBoard's events, `checkpoints/best.ckpt` and `last.ckpt`, `metrics.json`.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping, ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from pytorch_lightning.loggers import TensorBoardLogger

from rankstruct.files import whole_file
from rankstruct.measures import parse_measure
from rankstruct.tables import format_table
from rankstruct.training.callbacks import AtomicCheckpoints, AverageWeights, PredictionWriter, TrainingBoard
from rankstruct.training.datamodule import RankingDataModule
from rankstruct.training.module import RankingModule


def _monitored(measures: Sequence[str]) -> str:
    return f"val/{parse_measure(measures[0]).name}"


class RankingCLI(LightningCLI):
    """LightningCLI with a run's folder, its checkpoints and its report; see `main`."""

    def __init__(self, args: Sequence[str], run_folder: Path | None = None, *, quiet: bool = False) -> None:
        self._run_folder = run_folder
        self._quiet = quiet
        _hush(everything=quiet)
        super().__init__(
            RankingModule,
            RankingDataModule,
            save_config_callback=_SaveConfig,
            save_config_kwargs={"overwrite": True},
            seed_everything_default=0,
            auto_configure_optimizers=False,
            trainer_defaults={
                "num_sanity_val_steps": 0,
                "log_every_n_steps": 10,
                "max_epochs": 100,
                "enable_model_summary": False,
            },
            args=list(args),
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add what a run has beside module, data and trainer."""
        parser.add_argument(
            "--output", type=str, default="runs/rankstruct", help="Folder that the run's own folder is made in."
        )
        parser.add_argument(
            "--average_weights", type=bool, default=False, help="Validate, test and keep an average of the weights."
        )
        parser.add_argument(
            "--save_every_steps",
            type=int,
            default=0,
            help="Also save last.ckpt every so many steps, for long epochs; 0 saves it at the end of epochs alone.",
        )
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.add_lightning_class_args(EarlyStopping, "early_stopping")
        parser.set_defaults(
            {
                "checkpoint.filename": "best",
                "checkpoint.save_last": True,
                "checkpoint.mode": "max",
                "checkpoint.enable_version_counter": False,
                "early_stopping.mode": "max",
                "early_stopping.patience": 20,
            }
        )
        parser.link_arguments("seed_everything", "data.seed", compute_fn=int)
        parser.link_arguments("model.measures", "checkpoint.monitor", compute_fn=_monitored)
        parser.link_arguments("model.measures", "early_stopping.monitor", compute_fn=_monitored)
        parser.link_arguments("data.num_features", "model.scorer.init_args.num_features", apply_on="instantiate")

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        if subcommand in ("test", "validate"):
            parser.set_defaults({"verbose": False})  # the table is ours
        return parser

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """A trainer that logs into the run's folder and writes checkpoints whole."""
        folder = self._run_folder
        if folder is None:
            logger = TensorBoardLogger(self._get(self.config, "output"), name="", default_hp_metric=False)
        else:
            logger = TensorBoardLogger(folder.parent, name="", version=folder.name, default_hp_metric=False)
        return super().instantiate_trainer(logger=logger, plugins=[AtomicCheckpoints()], **kwargs)

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[Callback]) -> pl.Trainer:
        data = self.datamodule
        if self.subcommand == "fit":
            if self._get(self.config, "average_weights"):
                callbacks = [AverageWeights(), *callbacks]
            if steps := self._get(self.config, "save_every_steps"):
                callbacks.append(
                    ModelCheckpoint(filename="last", every_n_train_steps=steps, enable_version_counter=False)
                )
            callbacks = [*callbacks, TrainingBoard(data.objective_batches())]
        else:
            callbacks = [c for c in callbacks if not isinstance(c, EarlyStopping | ModelCheckpoint)]
            if self.subcommand == "predict":
                callbacks.append(PredictionWriter())
        return super()._instantiate_trainer(config, callbacks)

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.trainer.log_dir or self.trainer.default_root_dir)

    def after_fit(self) -> None:
        """Test the best checkpoint, print the table and say where everything is."""
        checkpoint = self.trainer.checkpoint_callback
        assert isinstance(checkpoint, ModelCheckpoint)
        if not checkpoint.best_model_path or checkpoint.best_model_score is None:
            return
        state = torch.load(checkpoint.best_model_path, weights_only=True, map_location="cpu")
        best = {"epoch": state["epoch"], "step": state["global_step"], "validation": checkpoint.best_model_score.item()}
        self.trainer.test(self.model, datamodule=self.datamodule, ckpt_path="best", verbose=False)
        measures = self._measures("test")
        self._save_report(best, measures)
        if not self._quiet:
            self._print_report("test", measures)
            print(f"TensorBoard log: {self.folder}  (to open it: tensorboard --logdir {self.folder.parent})")
            print(f"best checkpoint: {checkpoint.best_model_path}  (epoch {best['epoch']})")
            print(f"to use the run again: rankstruct fit, test or predict --run {self.folder}")

    def after_test(self) -> None:
        """Print the table."""
        self._print_report("test", self._measures("test"))

    def after_validate(self) -> None:
        """Print the table."""
        self._print_report("val", self._measures("val"))

    def _measures(self, stage: str) -> dict[str, float]:
        metrics = self.trainer.callback_metrics.items()
        return {name.removeprefix(f"{stage}/"): float(v) for name, v in metrics if name.startswith(f"{stage}/")}

    def _print_report(self, stage: str, measures: dict[str, float]) -> None:
        lists = (self.datamodule.splits.test if stage == "test" else self.datamodule.splits.vali).num_lists
        print(f"\nmeans over {lists} {stage} lists; where a measure is not defined it counts as 0")
        rows = [[name, value, self.model.empty_lists[stage][name]] for name, value in measures.items()]
        print(format_table(["measure", "mean", "not defined"], rows))

    def _save_report(self, best: dict[str, float], measures: dict[str, float]) -> None:
        """Write hyper-parameters and final measures for TensorBoard's table, and `metrics.json` for programs."""
        module, data = self.model, self.datamodule
        parameters = {
            "loss": repr(module.loss),
            "scorer": type(module.scorer).__name__,
            "regularization": module.regularization,
            "schedule": module.schedule,
            "optimizer": type(module.trainer.optimizers[0]).__name__ if module.trainer.optimizers else "",
            "data": data.data_name,
            "fold": data.fold or 0,
            "seed": data.seed,
        }
        if isinstance(self.trainer.logger, TensorBoardLogger):
            self.trainer.logger.log_hyperparams(parameters, {f"final/{name}": v for name, v in measures.items()})
        report = {"best": best, "test": measures, "parameters": parameters}
        with whole_file(self.folder / "metrics.json") as file:
            json.dump(report, file, indent=2)


def _hush(*, everything: bool) -> None:
    """Silence what tells a user of rankstruct nothing; all of Lightning's messages if `everything`."""
    for message in (
        "LightningCLI's args parameter is intended to run from within Python",
        r"`isinstance\(treespec, LeafSpec\)` is deprecated",
        "Checkpoint directory .* exists and is not empty",
        "Be aware that when using `ckpt_path`, callbacks used to create the checkpoint",
    ):
        warnings.filterwarnings("ignore", message=message)
    zero = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    if everything:
        logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
        logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
        zero.setLevel(logging.ERROR)
    elif not zero.filters:
        zero.addFilter(lambda record: "litlogger" not in record.getMessage())


class _SaveConfig(SaveConfigCallback):
    """Save the config once per run; test and predict leave the run's own config alone."""

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if stage == "fit":
            super().setup(trainer, pl_module, stage)


def expand_run(args: Sequence[str]) -> tuple[list[str], Path | None]:
    """Replace `--run FOLDER` by the folder's config and its checkpoint: the last one for `fit`, else the best.

    Raises:
        SystemExit: the folder holds no run, or no such checkpoint.
    """
    args = list(args)
    at = next((i for i, arg in enumerate(args) if arg == "--run" or arg.startswith("--run=")), None)
    if at is None:
        return args, None
    given = args.pop(at)
    if given == "--run":
        if at >= len(args):
            raise SystemExit("--run needs the folder of a run, such as runs/quickstart/version_0")
        folder = Path(args.pop(at))
    else:
        folder = Path(given.removeprefix("--run="))
    command = args[0] if args else "fit"
    checkpoint = folder / "checkpoints" / ("last.ckpt" if command == "fit" else "best.ckpt")
    for needed in (folder / "config.yaml", checkpoint):
        if not needed.is_file():
            raise SystemExit(f"{folder} is not a run that can be continued: {needed} is missing")
    return [command, "--config", str(folder / "config.yaml"), "--ckpt_path", str(checkpoint), *args[1:]], folder


def main(args: Sequence[str] | None = None) -> RankingCLI:
    """Run `fit`, `validate`, `test` or `predict`.

    `--config FILE` names the config; any of its values can be given after it, as in `--model.regularization 0.01`.
    `--run FOLDER` continues (`fit`) or uses (`test`, `predict`) an earlier run instead.
    """
    expanded, folder = expand_run(sys.argv[1:] if args is None else args)
    return RankingCLI(expanded, folder)
