"""Lightning callbacks: progress output, atomic checkpoints, interruption and predictions."""

from __future__ import annotations

import copy
import math
import os
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from inspect import signature
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO
from lightning_fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint, TQDMProgressBar
from torch import Tensor

from rankstruct.checks import check_integers, check_numbers
from rankstruct.constraints import Constraints, report_under
from rankstruct.data import Batch
from rankstruct.data.dataset import columns_for_rules
from rankstruct.data.predictions import write_predictions
from rankstruct.files import whole_file
from rankstruct.losses import rules_of
from rankstruct.measures import AP, RR, DiscountedGain, Measure, nDCG
from rankstruct.metric import RankingMetric
from rankstruct.models import update_averages
from rankstruct.processes import summed
from rankstruct.progress import announce
from rankstruct.training.module import check_columns

try:
    from pytorch_lightning.callbacks import WeightAveraging
except ImportError:  # before Lightning 2.6
    WeightAveraging = None  # type: ignore[assignment, misc]

__all__ = ["AtomicCheckpoints", "AverageWeights", "PredictionWriter", "RankingMeasures", "RuleWatch"]


def is_trial(trainer: pl.Trainer) -> bool:
    """Whether `trainer.fast_dev_run` is set, so that nothing is saved."""
    return bool(getattr(trainer, "fast_dev_run", False))


class AtomicCheckpoints(TorchCheckpointIO):
    """Checkpoints written to a temporary file, flushed and renamed, so that a killed run leaves the previous one intact.

    >>> trainer = pl.Trainer(plugins=[AtomicCheckpoints()], logger=False, enable_checkpointing=False)
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write `checkpoint` to `path`."""
        with whole_file(path, "wb") as file:
            torch.save(checkpoint, file)


class AverageWeights(WeightAveraging or pl.Callback):  # type: ignore[misc]
    """Validate, test and save an average of the weights over all steps instead of the last ones.

    Args:
        decay: how fast early iterates fade, see `polynomial_average`.

    Raises:
        ImportError: pytorch-lightning before 2.6, which has no averages.

    >>> trainer = pl.Trainer(callbacks=[AverageWeights(decay=3)], logger=False, enable_checkpointing=False)
    """

    def __init__(self, decay: float = 3.0) -> None:
        if WeightAveraging is None:
            raise ImportError(
                f"averages of weights need pytorch-lightning 2.6 or later, this is {pl.__version__}: "
                "pip install 'pytorch-lightning>=2.6', or train without them, --average_weights false"
            )
        super().__init__(use_buffers=False, multi_avg_fn=partial(update_averages, decay=decay))

    def on_load_checkpoint(self, trainer: pl.Trainer, *args: Any) -> None:
        """Restore both sets of weights for training; for testing, keep the average, which was just loaded."""
        if trainer.state.fn == "fit":
            super().on_load_checkpoint(trainer, *args)


#: Entries of the outputs of a step that `RankingMetric.update` takes, or refuses with what to pass instead.
_COLUMNS = {*signature(RankingMetric.update).parameters} - {"self", "scores", "labels"} | {
    "mask",
    "lengths",
    "indexes",
    "query_ids",
}


class RankingMeasures(pl.Callback):
    """Log means of measures over lists for any LightningModule, as `RankingModule` does: `val/nDCG@10`, `test/nDCG@10` and so on.

    `validation_step` and `test_step` return a dictionary with `scores` and `labels` and the other arguments of
    `RankingMetric.update`, such as `where`, `offsets` or `judged`; others are ignored, but for `mask`, an error. All documents of
    a list must be in one batch. With several processes, means are over the lists of all; Lightning's own sampler repeats lists if
    the processes would have unequal numbers. With several loaders, names end in `/dataloader_0` and so on.

    Args:
        measures: names or objects.
        options: `ties`, `empty` and `convention` of `RankingMetric`.

    Raises:
        ValueError: unknown measures or options; (in validation or test) a step that returns no scores and labels.

    >>> trainer = pl.Trainer(callbacks=[RankingMeasures(["nDCG@10", "AP"])], logger=False, enable_checkpointing=False)
    """

    def __init__(self, measures: str | Measure | Iterable[str | Measure] = ("nDCG@10",), **options: Any) -> None:
        self._metric = RankingMetric(measures, **options)
        self._metrics: list[RankingMetric] = []

    def _start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """One metric for each loader, in all processes."""
        batches = trainer.num_test_batches if trainer.testing else trainer.num_val_batches
        self._metrics = [copy.deepcopy(self._metric).to(pl_module.device) for _ in batches]

    def _add(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if not isinstance(outputs, Mapping) or not {"scores", "labels"} <= outputs.keys():
            step = "test_step" if trainer.testing else "validation_step"
            given = sorted(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
            raise ValueError(f"{step} must return a dictionary with scores and labels for RankingMeasures; got {given}")
        columns = {name: each for name, each in outputs.items() if name in _COLUMNS}
        self._metrics[dataloader_idx].update(outputs["scores"], outputs["labels"], **columns)

    def _end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        stage = "test" if trainer.testing else "val"
        for loader, metric in enumerate(self._metrics):
            suffix = f"/dataloader_{loader}" if len(self._metrics) > 1 else ""
            for name, value in metric.compute().items():
                pl_module.log(f"{stage}/{name}{suffix}", value.float(), sync_dist=True, add_dataloader_idx=False)
        self._metrics = []

    on_validation_epoch_start = on_test_epoch_start = _start
    on_validation_batch_end = on_test_batch_end = _add
    on_validation_epoch_end = on_test_epoch_end = _end


class ProgressBar(TQDMProgressBar):
    """A progress bar with the loss of the last step and the first validation measure, for 80 columns."""

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        """Return both values."""
        metrics = super().get_metrics(trainer, pl_module)
        return {name.removeprefix("optimisation/"): value for name, value in metrics.items() if name != "v_num"}


class EpochLines(pl.Callback):
    """One line per epoch on stderr instead of progress bars: mean training loss, two validation measures, seconds."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock; on_train_epoch_start is not called when resuming within an epoch."""
        self._start = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print the line."""
        metrics = trainer.callback_metrics  # by all processes, which sum them
        if not trainer.is_global_zero:
            return
        shown = [name for name in metrics if name.startswith("val/") and name != "val/loss"]
        steering = [each.monitor for each in trainer.early_stopping_callbacks]
        shown.sort(key=lambda name: (name not in steering, name.startswith(("val/broken/", "val/gap"))))
        values = [f"{name} {float(metrics[name]):.4f}" for name in shown[:2]]
        if "train/loss" in metrics:
            values.insert(0, f"loss {float(metrics['train/loss']):.4f}")
        now = time.perf_counter()
        fold = getattr(getattr(getattr(trainer, "datamodule", None), "source", None), "fold", None)
        where = f"epoch {trainer.current_epoch}" + ("" if fold is None else f", fold {fold}")
        line = f"{where}: {', '.join(values)} ({now - self._start:.1f} s)"
        print(line, file=sys.stderr, flush=True)
        self._start = now


class Announcements(pl.Callback):
    """Announce each epoch of a run that is one of many, for the progress of all."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Announce it."""
        announce(f"epoch {trainer.current_epoch}")


class LastCheckpoint(ModelCheckpoint):
    """Save `last.ckpt` after each epoch or validation, at the end of training, and every `steps` steps.

    The last step of an epoch is left out of these: a run resumed from there would not validate the epoch, and so might miss the
    best one. A checkpoint follows right after the validation.
    """

    def __init__(self, steps: int = 0) -> None:
        check_integers(0, save_every_steps=steps)
        super().__init__(filename="last", enable_version_counter=False)
        self._steps, self._trained, self._step = steps, False, 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Record the step at which training starts."""
        super().on_train_start(trainer, pl_module)
        self._step = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Record that there is something to save; save it if it is time."""
        self._trained = True
        super().on_train_batch_end(trainer, *args)
        before, self._step = self._step, trainer.global_step
        stepped = self._step != before  # otherwise within an accumulation, whose gradients a checkpoint does not have
        is_due = self._steps and stepped and self._step % self._steps == 0 and not trainer.is_last_batch
        if is_due and not self._should_skip_saving_checkpoint(trainer):
            saved = self._last_global_step_saved
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))
            self._last_global_step_saved = saved  # a validation after this step is saved too

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the final weights, if they have not been saved."""
        super().on_train_end(trainer, pl_module)
        unsaved = self._trained and trainer.global_step != self._last_global_step_saved
        if unsaved and not is_trial(trainer):
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))


class Ends(pl.Callback):
    """Refuse, before training, a run that would end before its first validation; keep one ended by early stopping ended."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check the state from the checkpoint; count the steps until validation, and the test batches."""
        stopping = trainer.early_stopping_callback
        if isinstance(stopping, EarlyStopping) and stopping.stopped_epoch:
            trainer.should_stop = True  # Lightning would train another epoch at each resuming
        if is_trial(trainer) or trainer.global_step:
            return
        steps_of_epoch = math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches)
        limits = trainer.max_steps, (trainer.max_epochs or -1) * steps_of_epoch
        most = min((limit for limit in limits if limit >= 0), default=math.inf)
        if trainer.val_check_batch is not None:  # otherwise time-based
            first = math.ceil(trainer.val_check_batch / trainer.accumulate_grad_batches)
            first += ((trainer.check_val_every_n_epoch or 1) - 1) * steps_of_epoch
            if most < first:
                raise ValueError(
                    f"the run ends after {most} steps, before the first validation after {first} steps, which selects the best "
                    "checkpoint; train longer (trainer.max_epochs, trainer.max_steps), or validate earlier "
                    "(trainer.val_check_interval, trainer.check_val_every_n_epoch)"
                )
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        batches, share = len(data.test_dataloader()), trainer.limit_test_batches
        if isinstance(share, float) and 0 < share * batches < 1:
            raise ValueError(
                f"trainer.limit_test_batches must be at least {1 / batches:g}, one of {batches} batches, or 0 for no test; got "
                f"{share:g}"
            )


class ResumeHint(pl.Callback):
    """When a run is interrupted, print how to resume it."""

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Print the command, if there is a checkpoint to resume from."""
        if not trainer.is_global_zero:
            return
        # trainer.log_dir would communicate with the other processes, which may be gone.
        folder = Path((trainer.logger and trainer.logger.log_dir) or trainer.default_root_dir)
        if (folder / "checkpoints" / "last.ckpt").is_file():
            print(
                f"\nstopped in epoch {trainer.current_epoch}; to resume: rankstruct fit --run {shlex.quote(str(folder))}",
                flush=True,
            )


class Stoppable(pl.Callback):
    """Ctrl-C ends a run before its next batch; pressed again, immediately. SIGTERM ends each of several processes immediately.

    Interrupting at arbitrary points occasionally breaks TensorBoard's queue, so that closing it hangs, or a checkpoint being
    written. Lightning's handler of SIGTERM waits for the other processes, possibly forever.
    """

    def __init__(self) -> None:
        self._pressed = self._speaks = False
        self._usual: Any = None

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self._pressed:
            self._usual(number, frame)
        self._pressed = True
        if self._speaks:
            with suppress(OSError):  # print() may be what was interrupted
                os.write(2, b"\nstopping before the next batch; press Ctrl-C again to stop immediately\n")

    def _stop(self, *args: Any, **options: Any) -> None:
        if self._pressed:
            raise KeyboardInterrupt

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Handle Ctrl-C until Lightning restores the previous signal handlers at the end."""
        if threading.current_thread() is not threading.main_thread():  # such as that of a worker of Ray
            return
        usual = signal.getsignal(signal.SIGINT)
        if callable(usual) and usual != self._press:
            self._usual, self._pressed, self._speaks = usual, False, trainer.is_global_zero
            signal.signal(signal.SIGINT, self._press)
        environment = getattr(trainer.strategy, "cluster_environment", None)
        if trainer.world_size > 1 and isinstance(environment, LightningEnvironment | TorchElasticEnvironment):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Set the cause of an error that followed because another process stopped first: commands treat it like Ctrl-C."""
        if self._pressed and trainer.world_size > 1 and isinstance(exception, RuntimeError):
            exception.__cause__ = KeyboardInterrupt()

    on_validation_start = on_test_start = on_predict_start = on_train_start
    on_train_batch_start = on_validation_batch_start = on_test_batch_start = on_predict_batch_start = teardown = _stop


class RuleWatch(pl.Callback):
    """Log how far the validation or test lists are from a page that keeps rules, as share of lists and as a measure.

    For each rule `val/broken/RULE` is the share of lists whose ranking by score breaks it; under rules none does. `val/MEASURE
    under rules` is the first measure of a `RankingModule`, or nDCG@10 if that has no best ranking under rules; see
    `evaluate_under`. With several rules, whose groups may overlap, `val/gap` is how far a ranking may be from the best, at most,
    see `rank_certified`. The steps of other modules return scores, or a dictionary with `scores`, for batches with the columns of
    rankstruct's data modules.

    Args:
        rules: one or several, such as `["host <= 1 @ 10"]`, about columns of the data, see `RankingDataModule`; None for those of
            the loss.
        time_limit: seconds for each list and ranking whose groups overlap; 0 for the relaxation alone, without a programme.
        selects: whether this measure selects checkpoints and stops training, where the first measure of the module did.

    Raises:
        ValueError: a text is no rule; when training starts, the data lack a column, or the loss has no rules.

    >>> trainer = pl.Trainer(callbacks=[RuleWatch(["host <= 1 @ 10"])], logger=False, enable_checkpointing=False)
    """

    def __init__(self, rules: str | list[str] | None = None, time_limit: float = 0.0, *, selects: bool = False) -> None:
        self.constraints = None if rules is None else Constraints.of(rules)
        check_numbers(">= 0 and <= inf", time_limit=time_limit)
        self.time_limit, self.selects = time_limit, selects
        self._sums = torch.zeros(0, dtype=torch.float64)  # broken lists by rule, measure, lists
        self._gap = torch.zeros((), dtype=torch.float64)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the rules, and check that the data have their columns."""
        if self.constraints is None:
            loss = getattr(pl_module, "loss", None)
            of_loss = rules_of(loss) if isinstance(loss, torch.nn.Module) else []
            rules = [rule for each in of_loss for rule in each.constraints.rules]
            if not rules:
                raise ValueError(
                    "RuleWatch needs rules: pass some, such as RuleWatch(['host <= 1 @ 10']), or a loss that has them"
                )
            self.constraints = Constraints([*dict.fromkeys(rules)])
        self._sums = torch.zeros(len(self.constraints.rules) + 2, dtype=torch.float64)
        data: Any = getattr(trainer, "datamodule", None)
        if hasattr(data, "part"):
            lists = data.part("test" if stage == "test" else "vali")
            check_columns("RuleWatch", self.constraints, columns_for_rules(lists))
        if self.selects:
            metric = getattr(pl_module, "validation_metric", None)
            if not isinstance(metric, RankingMetric):
                raise ValueError(
                    "selects=True takes the place of the first measure of a RankingModule, and this module has none: pass "
                    f"monitor='val/{self._measure(pl_module).name} under rules' to its callbacks instead"
                )
            before = f"val/{metric.measures[0].name}"
            steered: list[Any] = [*trainer.early_stopping_callbacks, *trainer.checkpoint_callbacks]
            for callback in steered:
                if getattr(callback, "monitor", None) == before:
                    callback.monitor = f"val/{self._measure(pl_module).name} under rules"

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, *args: Any
    ) -> None:
        """Count the lists of a batch."""
        assert self.constraints is not None
        check_columns("RuleWatch", self.constraints, batch.columns)
        measure, scores = self._measure(pl_module), outputs["scores"] if isinstance(outputs, Mapping) else outputs
        if not isinstance(scores, Tensor):
            raise ValueError(
                f"RuleWatch needs a step that returns scores, or a dictionary with them, got {type(outputs).__name__}"
            )
        given: dict[str, Any] = {"where": batch.where, "time_limit": self.time_limit}
        with warnings.catch_warnings():  # of the gap, which is logged
            warnings.simplefilter("ignore")
            found = report_under(scores, batch.labels, measure, self.constraints, batch.columns, **given)
        real = batch.where.any(-1)
        values = found.values[measure.name][real.cpu()]
        counts = [*found.before.values(), float(values.sum()), len(values)]
        self._sums += torch.tensor(counts, dtype=torch.float64)
        self._gap = torch.maximum(self._gap, found.gaps.max()) if len(found.gaps) else self._gap

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the shares and the measure."""
        stage = "test" if trainer.testing else "val"
        assert self.constraints is not None
        *broken, value, lists = summed(self._sums).tolist()
        self._sums.zero_()
        names = [f"{self._measure(pl_module).name} under rules", *(f"broken/{rule}" for rule in self.constraints.rules)]
        for name, total in zip(names, [value, *broken], strict=True):
            pl_module.log(f"{stage}/{name}", total / max(lists, 1), sync_dist=True)
        if len(self.constraints.rules) > 1:
            pl_module.log(f"{stage}/gap", self._gap, sync_dist=True, reduce_fx="max")
        self._gap = torch.zeros_like(self._gap)

    on_test_batch_end, on_test_epoch_end = on_validation_batch_end, on_validation_epoch_end  # type: ignore[assignment]

    @staticmethod
    def _measure(pl_module: pl.LightningModule) -> Measure:
        metric = getattr(pl_module, "validation_metric", None)
        first = metric.measures[0] if isinstance(metric, RankingMetric) else None
        return first if isinstance(first, DiscountedGain | AP | RR) else nDCG(10)


class _Scores(pl.Callback):
    """Scores of documents, collected batch by batch."""

    def __init__(self) -> None:
        self._batches: list[tuple[Tensor, Tensor]] = []

    def add(self, positions: Tensor, scores: Tensor) -> None:
        """Add a batch, both `[documents]`."""
        self._batches.append((positions.cpu(), scores.detach().float().cpu()))

    def take(self, documents: int) -> Tensor:
        """Return the scores of all processes, `[documents]`, NaN for missing ones, and reset."""
        scores, seen = torch.zeros(2, documents)
        for positions, found in self._batches:
            scores[positions], seen[positions] = found, 1.0
        self._batches.clear()
        scores, seen = summed(torch.stack([scores, seen]))
        scores[seen == 0] = math.nan
        return scores


class HeldOutScores(_Scores):
    """Collect the scores of the documents of `test`, or of `validate`, in `scores`, `[documents]`, in the order of the data."""

    scores: Tensor

    def on_test_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, *args: Any
    ) -> None:
        """Collect a batch's scores."""
        self.add(batch.positions[batch.where], outputs[batch.where])

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Combine the batches."""
        self.scores = self.take(trainer.datamodule.part("test").num_documents)  # type: ignore[attr-defined]

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, *args: Any
    ) -> None:
        """Collect a batch's scores, except during training."""
        if trainer.state.fn == "validate":
            self.add(batch.positions[batch.where], outputs[batch.where])

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Combine the batches, except during training."""
        if trainer.state.fn == "validate":
            self.scores = self.take(trainer.datamodule.part("vali").num_documents)  # type: ignore[attr-defined]


class PredictionWriter(_Scores):
    """After `predict`, write `scores.txt` (one number per line, in the order of the data) and `run.txt` (TREC format).

    With a module whose checkpoint is calibrated, also `probabilities.txt`.

    Args:
        folder: the output folder; the run's folder if None.

    >>> import tempfile
    >>> import rankstruct as rs
    >>> from rankstruct.training import RankingDataModule, RankingModule
    >>> quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = RankingDataModule(builtin="digits")
    ...     module = RankingModule(rs.LinearScorer(data.part("train").num_features), rs.StructuredHingeLoss("AP"))
    ...     trainer = pl.Trainer(callbacks=[PredictionWriter(folder)], accelerator="cpu", **quiet)
    ...     _ = trainer.predict(module, data)
    scores of 5000 documents: ...scores.txt
    TREC run of 50 lists: ...run.txt
    """

    def __init__(self, folder: str | None = None) -> None:
        super().__init__()
        self.folder = folder

    def on_predict_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *args: Any
    ) -> None:
        """Collect a batch's scores."""
        self.add(*outputs)

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write both files."""
        module = trainer.datamodule  # type: ignore[attr-defined]
        data = module.predict_data
        scores = self.take(data.num_documents)
        folder = Path(self.folder or trainer.log_dir or trainer.default_root_dir)  # all processes must evaluate this
        if not trainer.is_global_zero:
            return
        if told := getattr(module, "nothing_to_predict", ""):
            for name in ("scores.txt", "run.txt", "probabilities.txt"):  # of other lists
                (folder / name).unlink(missing_ok=True)
            print(f"no scores and no TREC run: {told}")
            return
        for line in write_predictions(folder, data, scores.numpy(), getattr(pl_module, "calibration", None)):
            print(line)
