"""TensorBoard logging of a run: training and validation curves, results, and differences between test lists."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.utilities import rank_zero_only, rank_zero_warn
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from rankstruct.data import Batch, BatchLoader, RankingData
from rankstruct.measures import Measure, evaluate
from rankstruct.metric import RankingMetric
from rankstruct.processes import summed
from rankstruct.text_tables import markdown_table
from rankstruct.training.module import RankingModule

__all__ = ["Board", "TrainingBoard"]

_HISTOGRAM_SCORES = 100_000
_SHOWN_LISTS = 10  # of the worst, and of the best


class _LastingFile:
    """A file that TensorBoard writes, begun again with its folder if that is deleted meanwhile.

    It is written by a thread, which would print a traceback: an error, such as a full disk, is kept in `error` for the next call
    of the logger, and the file ends there.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, content: bytes) -> None:
        try:
            self._keeping(self._file.write, content)
        except FileNotFoundError:
            Path(os.fsdecode(self._file.filename)).parent.mkdir(parents=True, exist_ok=True)
            self._keeping(self._file.write, content)

    def flush(self) -> None:
        self._keeping(self._file.flush)

    def close(self) -> None:
        self._keeping(self._file.close)

    def _keeping(self, call: Callable[..., Any], *args: Any) -> None:
        if self.error is not None:
            return
        try:
            call(*args)
        except FileNotFoundError:
            raise
        except OSError as error:
            self.error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _lasting(writer: SummaryWriter) -> SummaryWriter:
    """The same writer, for which a folder that is deleted while it writes is no error, which would end the run.

    Raises:
        OSError: it could not write before.
    """
    if isinstance(writer, SummaryWriter):  # processes but the first have none
        records = writer._get_file_writer().event_writer._async_writer._writer
        if not isinstance(records._writer, _LastingFile):
            records._writer = _LastingFile(records._writer)
        if records._writer.error is not None:
            raise records._writer.error
    return writer


class Board(TensorBoardLogger):
    """A TensorBoard logger that shows training, validation and test in one chart.

    `train/AP` and `val/AP` become one chart of two subruns, `train` and `val`; others are `test` and `best`, the best of
    validation. The first measure, which controls training, comes first, as `curves/AP`; the other measures are `measures/...`.
    Values of different losses are not comparable: each loss has a chart of its own, such as `loss/AP StructuredHingeLoss`, and
    so has each part of a combined one. Other names stay unchanged. The epoch number is not logged.

    Args:
        folder: of the run.
        measure: name of the first measure.
        loss: name of the loss.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     board = Board(folder, "nDCG@10", "AP hinge")
    ...     board.log_metrics({"val/nDCG@10": 0.5}, step=1)
    ...     board.finalize("success")
    """

    _PARTS = ("train", "val", "best", "test")

    def __init__(self, folder: str | Path, measure: str, loss: str) -> None:
        super().__init__(Path(folder).parent, name="", version=Path(folder).name, default_hp_metric=False)
        self._measure, self._loss = measure, loss
        self._writers: dict[str, SummaryWriter] = {}
        self._resumed = False

    @property
    def experiment(self) -> SummaryWriter:
        """The writer of the run's own folder."""
        return _lasting(super().experiment)

    def _tag(self, part: str, name: str) -> str:
        if name == "loss" or name.startswith("slack/"):
            return f"loss/{self._loss} {name.removeprefix('slack/').removeprefix('loss')}".strip()
        return f"{'curves' if part == 'train' or name == self._measure else 'measures'}/{name}"

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log a value of each metric."""
        for name, value in metrics.items():
            part, _, rest = name.partition("/")
            if part in self._PARTS:
                if part not in self._writers:
                    again = step if self._resumed else None
                    self._writers[part] = SummaryWriter(str(Path(self.log_dir) / part), purge_step=again)
                _lasting(self._writers[part]).add_scalar(self._tag(part, rest), float(value), step)
            elif name != "epoch":
                tag = f"optimisation/{self._loss}" if name == "optimisation/loss" else name
                super().log_metrics({tag: value}, step)

    @rank_zero_only
    def resume(self, step: int) -> None:
        """Discard values of this step and later ones from before the run was resumed, since they will be logged again."""
        self._resumed = True
        for writer in (self.experiment, *self._writers.values()):
            again = Event(step=step, session_log=SessionLog(status=SessionLog.START))
            writer._get_file_writer().add_event(again, step)

    @rank_zero_only
    def log_result(self, parameters: Mapping[str, Any], measures: Mapping[str, Mapping[str, float]], step: int) -> None:
        """Log the results as this run's row in the table of runs, and as points of the curves.

        Args:
            parameters: hyperparameters, the columns of the table.
            measures: by part, such as `{"best": {"AP": 0.5}, "test": {"AP": 0.4}}`, and name.
            step: of the evaluated weights.
        """
        named = {f"{part}/{name}": value for part, values in measures.items() for name, value in values.items()}
        self.log_metrics(named, step)
        texts = {name: " ".join(value.split()) for name, value in parameters.items() if isinstance(value, str)}
        about, *session = hparams({**parameters, **texts}, named)
        place = about.value[0].metadata.plugin_data
        data = HParamsPluginData.FromString(place.content)
        for info in data.experiment.metric_infos:  # torch assumes that they are in the run itself
            part, _, name = info.name.tag.partition("/")
            info.name.group, info.name.tag, info.display_name = part, self._tag(part, name), f"{part} {name}"
        place.content = data.SerializeToString()
        for each in (about, *session):
            self.experiment._get_file_writer().add_summary(each)
        self.save()

    @rank_zero_only
    def save(self) -> None:
        """Flush to disk."""
        super().save()
        for writer in self._writers.values():
            writer.flush()
        for writer in (self.experiment, *self._writers.values()):
            _lasting(writer)  # what was just written

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Flush and close the files, which are reopened if needed."""
        super().finalize(status)
        for writer in self._writers.values():
            writer.close()


class TrainingBoard(pl.Callback):
    """Log the progress of training: loss and first measure of training and validation, objective, weights, scores, nDCG.

    Each validation logs, for the validated weights: over `objective_batches` (all complete training lists) the exact objective,
    its ratio to that at w = 0, which stays at 1 if nothing is learned, and the first measure; the validation loss; ||w||^2; the
    distribution of the validation scores (with several processes, of the first one's lists); and, every `figure_every` epochs,
    a figure of nDCG@1..10. If the data module has different labels for training (`same_labels` is False), the training measure
    and the validation loss are omitted.

    Args:
        objective_batches: the training lists in any order; None omits objective and training measure.
        figure_every: epochs between figures and histograms.

    >>> trainer = pl.Trainer(callbacks=[TrainingBoard(figure_every=10)], logger=False, enable_checkpointing=False)
    """

    def __init__(self, objective_batches: BatchLoader | None = None, figure_every: int = 5) -> None:
        self._batches, self._figure_every = objective_batches, figure_every
        self._at_zero = math.nan
        self._curve = RankingMetric([f"nDCG@{k}" for k in range(1, 11)])
        self._scores: list[Tensor] = []
        self._comparable = True
        self._loss = torch.zeros(2, dtype=torch.float64)  # of the validation lists so far: sum, number

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compute the objective at w = 0."""
        assert isinstance(pl_module, RankingModule)
        if isinstance(trainer.logger, Board) and trainer.global_step:
            trainer.logger.resume(trainer.global_step)
        self._comparable = getattr(getattr(trainer, "datamodule", None), "same_labels", True)
        if self._batches is not None:
            self._at_zero = pl_module.objective_at_zero(self._batches)

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Batch, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Before the first batch, log objective, measure and ||w||^2 of the validated weights."""
        if batch_idx > 0 or dataloader_idx > 0 or trainer.state.fn != "fit":
            return
        assert isinstance(pl_module, RankingModule)
        values = {"optimisation/squared_norm": float(pl_module.squared_norm())}
        if self._batches is not None:
            metric = (
                RankingMetric(pl_module.validation_metric.measures[0]).to(pl_module.device)
                if self._comparable
                else None
            )
            values["optimisation/objective"] = objective = pl_module.objective(self._batches, metric)
            values["optimisation/objective_over_zero"] = objective / self._at_zero if self._at_zero else math.nan
            if metric is not None:
                values |= {f"train/{name}": float(value) for name, value in metric.compute().items()}
        for optimizer in trainer.optimizers:
            values["optimisation/learning_rate"] = optimizer.param_groups[0]["lr"]
        pl_module.log_dict(values, on_step=False, on_epoch=True, batch_size=1, sync_dist=True)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, *args: Any
    ) -> None:
        """Accumulate loss, scores and the nDCG curve."""
        assert isinstance(pl_module, RankingModule)
        if trainer.state.fn == "fit" and self._comparable and (lists := int(batch.where.any(-1).sum())):
            try:
                self._loss += torch.tensor([float(pl_module.slack(outputs, batch)) * lists, lists], dtype=torch.float64)
            except ValueError as error:  # such as a grade absent from training
                self._loss[0] = math.nan
                rank_zero_warn(f"the validation lists have no loss: {error}")
        if self._draws(trainer):
            self._curve.to(pl_module.device).update(outputs, batch.labels, where=batch.where)
            if sum(map(len, self._scores)) < _HISTOGRAM_SCORES:
                self._scores.append(outputs[batch.where].detach().float().cpu())

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the loss, the figure and the histogram."""
        total, lists = summed(self._loss).tolist()
        self._loss.zero_()
        if lists and not math.isnan(total):
            pl_module.log("val/loss", total / lists, sync_dist=True)
        if not self._draws(trainer) or not self._scores:
            return
        values = [float(value) for value in self._curve.compute().values()]  # by all processes, of the lists of all
        if trainer.is_global_zero:
            board = trainer.logger.experiment  # type: ignore[union-attr]
            step = max(trainer.global_step - 1, 0)  # of Lightning's own points
            board.add_histogram("val/scores", torch.cat(self._scores), step)
            board.add_figure("val/nDCG at 1 to 10", _cutoff_figure(values), step)
        self._curve.reset()
        self._scores.clear()

    def _draws(self, trainer: pl.Trainer) -> bool:
        return (
            trainer.state.fn == "fit"
            and isinstance(trainer.logger, TensorBoardLogger)
            and trainer.current_epoch % self._figure_every == 0
        )


def _new_figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5, 3), layout="constrained")
    return figure, figure.add_subplot()


def _cutoff_figure(values: list[float]) -> Figure:
    """A curve of mean nDCG at the cut-offs 1, 2, ..."""
    figure, axes = _new_figure()
    axes.plot(range(1, len(values) + 1), values, marker="o")
    axes.set(xlabel="cut-off k", ylabel="mean nDCG@k", ylim=(0, 1), xticks=range(1, len(values) + 1))
    axes.grid(alpha=0.3)
    return figure


def log_test_lists(board: SummaryWriter, lists: RankingData, scores: Tensor, measure: Measure) -> None:
    """Log how the test lists differ: the worst and the best, the distribution of the measure, the scores by grade.

    Args:
        board: the writer to log to.
        lists: the test lists.
        scores: `[documents]`; NaN for lists that were not tested.
        measure: the measure to show.
    """
    lists, scores = with_scores(lists, scores)
    given: dict[str, Any] = {"offsets": lists.offsets, "diversity_groups": lists.diversity_groups, "empty": "skip"}
    (values,) = (each.numpy() for each in evaluate(scores, lists.labels, [measure], **given).values())
    order = np.argsort(values, kind="stable")[: np.isfinite(values).sum()]  # undefined ones are last
    half = min(_SHOWN_LISTS, len(order) // 2)
    starts = lists.offsets[:-1]
    relevant = np.add.reduceat(np.append(lists.labels > 0, False), starts) * (lists.lengths > 0)
    for title, chosen in ("worst", order[: len(order) - half][:_SHOWN_LISTS]), ("best", order[::-1][:half]):
        rows = [[lists.qids[i], f"{values[i]:.4f}", str(lists.lengths[i]), str(relevant[i])] for i in chosen]
        header = ["list", f"test {measure.name}", "documents", "label above 0"]
        board.add_text(f"test/{title} lists", markdown_table(header, rows))
    defined = values[order]
    if len(defined):
        board.add_figure(f"test/{measure.name} by list", _distribution_figure(defined, measure.name))
        board.add_figure("test/score by grade", _grades_figure(lists, scores.numpy()))


def with_scores(lists: RankingData, scores: Tensor) -> tuple[RankingData, Tensor]:
    """The lists without those whose scores `[documents]` are NaN, which were not tested, and the others' scores."""
    if not bool((unseen := scores.isnan()).any()):
        return lists, scores
    tested = np.bincount(lists.list_numbers, unseen.numpy(), lists.num_lists) == 0
    return lists.select(np.flatnonzero(tested)), scores[torch.from_numpy(tested[lists.list_numbers])]


def _distribution_figure(values: np.ndarray, name: str) -> Figure:
    """Histogram of a measure over lists, `[lists]`."""
    figure, axes = _new_figure()
    axes.hist(values, bins=20, range=(min(0.0, values.min()), max(1.0, values.max())))
    axes.axvline(values.mean(), color="black", linestyle="--", label=f"mean {values.mean():.3f}")
    axes.axvline(np.median(values), color="black", linestyle=":", label=f"median {np.median(values):.3f}")
    axes.set(xlabel=f"test {name}", ylabel="lists", title=f"{len(values)} test lists")
    axes.legend()
    return figure


def _grades_figure(lists: RankingData, scores: np.ndarray) -> Figure:
    """Box plot of centred scores by label, with whiskers from 5 to 95 %; more than ten labels are binned into ten ranges."""
    means = np.bincount(lists.list_numbers, scores, lists.num_lists) / np.maximum(lists.lengths, 1)
    centred, labels = scores - means[lists.list_numbers], lists.labels
    grades = np.unique(labels)
    names = [f"{grade:g}" for grade in grades]
    if len(grades) > 10:
        edges = np.linspace(grades[0], grades[-1], 11)
        names = [f"{low:.3g} to {high:.3g}" for low, high in itertools.pairwise(edges)]
        labels, grades = np.clip(np.searchsorted(edges, labels, "right") - 1, 0, 9), np.arange(10)
    figure, axes = _new_figure()
    boxes = [centred[labels == grade] for grade in grades]
    axes.boxplot(boxes, whis=(5, 95), showfliers=False)
    counted = [f"{name}\n{len(box)}" for name, box in zip(names, boxes, strict=True)]
    axes.set_xticks(range(1, len(names) + 1), counted, fontsize=9 if len(names) < 6 else 7)
    axes.set(xlabel="label, number of documents", ylabel="score minus its list's mean", title="test documents")
    axes.grid(alpha=0.3, axis="y")
    return figure
