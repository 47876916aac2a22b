"""What a run shows and writes: TensorBoard curves and figures, predictions; and checkpoints that are whole or absent."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO
from lightning_fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from matplotlib.figure import Figure
from pytorch_lightning.callbacks import ModelCheckpoint, TQDMProgressBar, WeightAveraging
from pytorch_lightning.loggers import TensorBoardLogger
from torch import Tensor

from rankstruct.data import Batch, BatchLoader, write_run, write_scores
from rankstruct.files import whole_file
from rankstruct.metric import RankingMetric
from rankstruct.processes import summed
from rankstruct.training.module import RankingModule

__all__ = ["AtomicCheckpoints", "AverageWeights", "PredictionWriter", "TrainingBoard"]

_HISTOGRAM_SCORES = 100_000


class AtomicCheckpoints(TorchCheckpointIO):
    """Checkpoints written beside their place, flushed to the disk and renamed; a killed run leaves the one before."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write `checkpoint` to `path`."""
        with whole_file(path, "wb") as file:
            torch.save(checkpoint, file)


class AverageWeights(WeightAveraging):
    """Validate, test and save an average of the weights over all steps, not the last ones.

    Late iterates count more: iterate t enters with weight (decay + 1) / (t + decay), so the bad first ones fade without
    a start epoch to be tuned (Shamir and Zhang, "Stochastic Gradient Descent for Non-smooth Optimization", ICML 2013).

    Args:
        decay: how fast early iterates fade; 0 is the plain mean.
    """

    def __init__(self, decay: float = 3.0) -> None:
        super().__init__(
            use_buffers=False, avg_fn=lambda mean, new, t: mean + (new - mean) * ((decay + 1) / (t + 1 + decay))
        )

    def on_load_checkpoint(self, trainer: pl.Trainer, *args: Any) -> None:
        """Restore both sets of weights for training; a test after it keeps the average, which was just loaded."""
        if trainer.state.fn == "fit":
            super().on_load_checkpoint(trainer, *args)


class ProgressBar(TQDMProgressBar):
    """A bar with the loss of the last step and the first validation measure, narrow enough for 80 columns."""

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        """The two numbers."""
        metrics = super().get_metrics(trainer, pl_module)
        shown = {"loss": metrics["train/loss_step"]} if "train/loss_step" in metrics else {}
        return {**shown, **{name: value for name, value in metrics.items() if name.startswith("val/")}}


class StepCheckpoint(ModelCheckpoint):
    """Save `last.ckpt` every so many `steps`, but not at an epoch's last one.

    A run that is resumed from there would not validate that epoch, and so not know its best one; the checkpoint that
    follows the validation is near.
    """

    def __init__(self, steps: int) -> None:
        super().__init__(filename="last", every_n_train_steps=steps, enable_version_counter=False)

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Save if it is time."""
        if not trainer.is_last_batch:
            super().on_train_batch_end(trainer, *args)


class Farewell(pl.Callback):
    """When a run is interrupted, say how to go on with it."""

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Print the command, if there is a checkpoint to go on from."""
        if not trainer.is_global_zero:
            return
        # trainer.log_dir would ask the other processes, which may be gone.
        folder = Path((trainer.logger and trainer.logger.log_dir) or trainer.default_root_dir)
        if (folder / "checkpoints" / "last.ckpt").is_file():
            print(f"\nstopped in epoch {trainer.current_epoch}; to go on: rankstruct fit --run {folder}", flush=True)


class Terminable(pl.Callback):
    """Let SIGTERM end each of several processes at once; Lightning's answer waits for the others, and may wait for ever."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """When Lightning has set its answer."""
        environment = getattr(trainer.strategy, "cluster_environment", None)
        if trainer.world_size > 1 and isinstance(environment, LightningEnvironment | TorchElasticEnvironment):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    on_validation_start = on_test_start = on_predict_start = on_train_start


class TrainingBoard(pl.Callback):
    """Log what tells whether a run learns: objective, weights, scores, nDCG along the cut-off.

    At each validation, with the weights that are validated: the exact objective over `objective_batches` (all training
    lists, whole), the same relative to w = 0, where a run that is stuck stays at 1; ||w||^2; the distribution of the
    validation scores (of several processes, those of the first one's lists); and, every `figure_every` epochs, a figure of
    nDCG@1..10.

    Args:
        objective_batches: the training lists in any order; None leaves the objective out.
        figure_every: epochs between figures and histograms.
    """

    def __init__(self, objective_batches: BatchLoader | None = None, figure_every: int = 5) -> None:
        self._batches, self._figure_every = objective_batches, figure_every
        self._at_zero = math.nan
        self._curve = RankingMetric([f"nDCG@{k}" for k in range(1, 11)])
        self._scores: list[Tensor] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the objective at w = 0."""
        assert isinstance(pl_module, RankingModule)
        if self._batches is not None:
            self._at_zero = pl_module.objective_at_zero(self._batches)

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Batch, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Before the first batch: the objective and ||w||^2 of the weights that are validated."""
        if batch_idx > 0 or dataloader_idx > 0 or trainer.state.fn != "fit":
            return
        assert isinstance(pl_module, RankingModule)
        values = {"train/squared_norm": float(pl_module.squared_norm())}
        if self._batches is not None:
            values["train/objective"] = objective = pl_module.objective(self._batches)
            values["train/objective_over_zero"] = objective / self._at_zero if self._at_zero else math.nan
        for optimizer in trainer.optimizers:
            values["train/learning_rate"] = optimizer.param_groups[0]["lr"]
        pl_module.log_dict(values, on_step=False, on_epoch=True, batch_size=1, sync_dist=True)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, *args: Any
    ) -> None:
        """Collect scores and the curve."""
        if self._draws(trainer):
            self._curve.to(pl_module.device).update(outputs, batch.labels, batch.where)
            if sum(map(len, self._scores)) < _HISTOGRAM_SCORES:
                self._scores.append(outputs[batch.where].detach().float().cpu())

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw the figure and the histogram."""
        if not self._draws(trainer) or not self._scores:
            return
        values = [float(value) for value in self._curve.compute().values()]  # by all processes, of the lists of all
        if trainer.is_global_zero:
            board = trainer.logger.experiment  # type: ignore[union-attr]
            board.add_histogram("val/scores", torch.cat(self._scores), trainer.global_step)
            board.add_figure("val/nDCG at 1 to 10", _cutoff_figure(values), trainer.global_step)
        self._curve.reset()
        self._scores.clear()

    def _draws(self, trainer: pl.Trainer) -> bool:
        return (
            trainer.state.fn == "fit"
            and isinstance(trainer.logger, TensorBoardLogger)
            and trainer.current_epoch % self._figure_every == 0
        )


def _cutoff_figure(values: list[float]) -> Figure:
    """A curve of nDCG at the cut-offs 1, 2, ...; `values` are its means, in order."""
    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(range(1, len(values) + 1), values, marker="o")
    axes.set(xlabel="cut-off k", ylabel="mean nDCG@k", ylim=(0, 1), xticks=range(1, len(values) + 1))
    axes.grid(alpha=0.3)
    return figure


class PredictionWriter(pl.Callback):
    """After `predict`, write `scores.txt` (one number a line, in the order of the data) and `run.txt` (TREC format).

    Args:
        folder: where to write; the run's folder if None.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self._batches: list[tuple[Tensor, Tensor]] = []

    def on_predict_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *args: Any
    ) -> None:
        """Collect a batch's scores."""
        positions, scores = outputs
        self._batches.append((positions.cpu(), scores.float().cpu()))

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write both files."""
        data = trainer.datamodule.predict_data  # type: ignore[attr-defined]
        scores, seen = torch.zeros(2, data.num_documents)
        for positions, found in self._batches:
            scores[positions], seen[positions] = found, 1.0
        self._batches.clear()
        scores, seen = summed(torch.stack([scores, seen]))
        scores[seen == 0] = math.nan
        folder = Path(self.folder or trainer.log_dir or trainer.default_root_dir)  # all processes must ask
        if not trainer.is_global_zero:
            return
        write_scores(folder / "scores.txt", scores.numpy())
        write_run(folder / "run.txt", data, scores.numpy(), tag="rankstruct")
        print(f"scores of {data.num_documents} documents: {folder / 'scores.txt'}")
        print(f"TREC run of {data.num_lists} lists: {folder / 'run.txt'}")
