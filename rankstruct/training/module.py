"""The Lightning module: trains a scorer on a loss and evaluates measures."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor, nn

from rankstruct.calibration import Calibration
from rankstruct.checks import check_numbers
from rankstruct.constraints import Constraints
from rankstruct.constraints.rules import Groups, unknown_groups
from rankstruct.data import Batch, BatchLoader, record
from rankstruct.data.dataset import columns_for_rules
from rankstruct.data.errors import naming_lists
from rankstruct.losses import StructuredHingeLoss, rules_of, takes_columns, takes_groups
from rankstruct.losses.gains import differs
from rankstruct.measures import DiscountedGain, nDCG
from rankstruct.measures.base import parse_measures
from rankstruct.messages import did_you_mean
from rankstruct.metric import RankingMetric
from rankstruct.models.saving import describe_scorer, described_calibration
from rankstruct.models.scorers import scores_of
from rankstruct.processes import copy_from_first, find_team, summed
from rankstruct.solvers import Status
from rankstruct.training.start import fit_regression

__all__ = ["RankingModule"]

STUCK = f"the model is {Status.NO_BETTER_THAN_ZERO}, or another scorer"


def check_columns(name: str, constraints: Constraints, known: Mapping[str, Groups]) -> None:
    """Raise ValueError unless the columns that rules are about are known; `name` is what has the rules."""
    if missing := [each for each in constraints.columns if each not in known]:
        raise ValueError(
            f"the rules of {name} are about {missing[0]!r}, and the data have {', '.join(map(repr, known)) or 'no columns'}"
            f"{did_you_mean(missing[0], known)}; set data.columns to {{{missing[0]}: HOW}}, a regular expression for the "
            "comments, the name of a column of a table, or a column number"
        )


OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def _adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.0)


class RankingModule(pl.LightningModule):
    """Train a scorer to minimise `regularization / 2 ||w - w0||^2 + mean over lists of the loss`.

    With several processes, measures and objectives are over all lists, each counted once, if the lists come from a data module of
    rankstruct or a `BatchLoader`; with other loaders, Lightning's sampler repeats some lists to equalise the shares.

    Args:
        scorer: maps features `[..., list_size, d]` to scores `[..., list_size]`.
        loss: called as `loss(scores, labels, where=where)`, with `diversity_groups=` if it needs them, and `columns=`
            if it has rules; returns a mean over lists.
            SVMmap's loss if None.
        measures: one or several measures for validation and test; the first controls training.
        regularization: lambda of the objective, applied to all weights of the scorer. KDD 2008's C is 1 / lambda.
        optimizer: maps parameters to an optimizer; AdamW with learning rate 0.01 and no weight decay if None.
        schedule: `"constant"` keeps the optimizer's learning rate; `"online"` is eta_t = 1 / (lambda (t + t0)) at step t, for SGD
            (Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 4.4).
        t0: the offset of the online schedule, which bounds its first steps.
        start: `"given"` starts from the scorer's weights; `"regression"` from least squares on the gains, those of the loss's
            measure if it has gains and 2^label - 1 otherwise; see `fit_regression`.
        regularize_towards: w0 of the objective: `"zero"`, or the `"start"`, which suits nonconvex losses.

    Raises:
        ValueError: a regularization that is not finite and >= 0, or 0 with the online schedule; no measure; an unknown option.

    >>> import rankstruct as rs
    >>> module = RankingModule(rs.LinearScorer(3), rs.StructuredHingeLoss("AP"), regularization=0.1)
    """

    #: Whether to log by names that MLflow and W&B accept, such as `val/nDCG_10` for `val/nDCG@10`, also in `monitor=`.
    plain_names = False

    def __init__(
        self,
        scorer: nn.Module,
        loss: nn.Module | None = None,
        measures: Sequence[str] = ("AP", "nDCG@10", "RR@10"),
        regularization: float = 0.0,
        optimizer: OptimizerFactory | None = None,
        schedule: Literal["constant", "online"] = "constant",
        t0: float = 100.0,
        start: Literal["given", "regression"] = "given",
        regularize_towards: Literal["zero", "start"] = "zero",
    ) -> None:
        super().__init__()
        check_numbers(">= 0", regularization=regularization)
        if not isinstance(loss, nn.Module | None):
            raise TypeError(f"loss must be a module, such as rs.StructuredHingeLoss('AP'); got {loss!r}")
        parsed = parse_measures(measures)
        if not parsed:
            raise ValueError("measures must not be empty: the first one controls training")
        for name, value, known in (
            ("schedule", schedule, ("constant", "online")),
            ("start", start, ("given", "regression")),
            ("regularize_towards", regularize_towards, ("zero", "start")),
        ):
            if value not in known:
                raise ValueError(f"{name} must be {known[0]!r} or {known[1]!r}, got {value!r}")
        if schedule == "online" and not (regularization > 0 and t0 > 0):
            raise ValueError(
                "the online schedule 1 / (regularization (t + t0)) needs regularization > 0 and t0 > 0; "
                f"got regularization {regularization} and t0 {t0}"
            )
        self.scorer = scorer
        self.loss = StructuredHingeLoss("AP") if loss is None else loss
        self.regularization, self.schedule, self.t0, self.start = regularization, schedule, t0, start
        #: The regulariser's w0, one tensor per parameter of the scorer; empty for zero.
        self.anchor = nn.ParameterList()
        if regularize_towards == "start":
            self.anchor.extend(nn.Parameter(w.detach().clone(), requires_grad=False) for w in scorer.parameters())
        self._reference: list[nn.Module] = []  # in a list, so that it is not registered as a submodule
        self._optimizer = _adamw if optimizer is None else optimizer
        self.validation_metric, self.test_metric = RankingMetric(parsed), RankingMetric(parsed)
        #: By stage and measure, the number of lists it was not defined for in the last evaluation.
        self.empty_lists: dict[str, dict[str, int]] = {}
        self.stuck: dict[str, bool] = {}  # by stage, whether the scores of every list tied
        self.judged: dict[str, int] = {}  # by stage, the number of evaluated lists
        self._apart: Tensor | float = 0.0  # lists without all scores tied, in this stage so far
        self._judged: Tensor | float = 0.0  # lists in this stage so far
        self._random_state: Tensor | None = None
        self.calibration: Calibration | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> RankingModule:
        """Copy without the trainer; the optimizer factory is shared, since one from a config refers to the complete program."""
        copied = memo[id(self)] = type(self).__new__(type(self))
        memo[id(self._optimizer)] = self._optimizer
        copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return copied

    def describe(self) -> dict[str, Any]:
        """Return a description of the module for reports."""
        described = {"loss": repr(self.loss), "scorer": type(self.scorer).__name__}
        return {**described, "regularization": self.regularization, "schedule": self.schedule}

    def check_data(self, data: Any) -> None:
        """Raise ValueError for a data module that this module cannot be trained on, before training begins."""

    def forward(self, features: Tensor, where: Tensor | None = None) -> Tensor:
        """Return scores `[..., list_size]` of features `[..., list_size, d]`; `where` marks the real documents."""
        return scores_of(self.scorer, self.as_input(features), where)

    def as_input(self, features: Tensor) -> Tensor:
        """Convert features to the dtype of the scorer's weights, set by `Trainer(precision=...)`; tokens are unchanged."""
        if getattr(self.scorer, "takes_tokens", False):
            return features
        weight = next((weight for weight in self.scorer.parameters() if weight.is_floating_point()), features)
        return features.to(weight.dtype) if features.is_floating_point() else features

    def squared_norm(self) -> Tensor:
        """Return ||w - w0||^2 over all weights of the scorer, a scalar; w0 is 0 unless `regularize_towards="start"`."""
        weights = list(self.scorer.parameters())
        if len(self.anchor):
            weights = [weight - start for weight, start in zip(weights, self.anchor, strict=True)]
        return torch.stack([weight.square().sum() for weight in weights]).sum()

    def mean_loss(
        self,
        batches: Iterable[Batch],
        score: Callable[[Tensor, Tensor], Tensor] | None = None,
        metric: RankingMetric | None = None,
    ) -> float:
        """Return the mean loss over all lists of `batches`, without the regulariser and without frozen references.

        Scores are those of the module unless `score` is given; `metric` is updated with them. With several processes, all must
        call this; they share a `BatchLoader` of all lists.
        """
        if isinstance(batches, BatchLoader) and batches.world_size == 1:
            batches = batches.share(*find_team())
        total, lists = 0.0, 0
        with torch.no_grad():
            for batch in batches:
                batch = batch.to(self.device)
                size = int(batch.where.any(-1).sum())
                if size:
                    scores = (score or self)(batch.features, batch.where)
                    total += float(self.slack(scores, batch)) * size
                    lists += size
                    if metric is not None:
                        metric.update(scores, batch.labels, where=batch.where, diversity_groups=batch.diversity_groups)
        total, lists = summed(torch.tensor([total, lists], dtype=torch.float64)).tolist()
        return total / max(lists, 1)

    def objective(self, batches: Iterable[Batch], metric: RankingMetric | None = None) -> float:
        """Return the training objective over all lists of `batches`; `metric` is updated with their scores."""
        with torch.no_grad():
            return self.mean_loss(batches, metric=metric) + 0.5 * self.regularization * float(self.squared_norm())

    def objective_at_zero(self, batches: Iterable[Batch]) -> float:
        """Return the training objective if all weights, and therefore all scores, are 0."""
        anchor = sum(float(start.square().sum()) for start in self.anchor)
        slack = self.mean_loss(batches, lambda features, where: features.new_zeros(where.shape))
        return slack + 0.5 * self.regularization * anchor

    def freeze_reference(self, scorer: nn.Module | None) -> None:
        """Determine the reference rankings of the loss by a copy of `scorer`, or by the current scores if None."""
        self._reference = [] if scorer is None else [copy.deepcopy(scorer).eval().requires_grad_(False)]

    def on_fit_start(self) -> None:
        """Fit the start, unless the run is resumed from a checkpoint; before, check that the data have what the rules need."""
        data: Any = getattr(self.trainer, "datamodule", None)
        if hasattr(data, "part"):
            self.check_columns(columns := columns_for_rules(data.part("train")))
            for rules in rules_of(self.loss):
                for said in unknown_groups(rules.constraints, columns, quotas=True):
                    raise ValueError(said)
        if self.trainer.ckpt_path is None:
            if self.start == "regression":
                measure = getattr(self.loss, "measure", None)
                gains = (measure if isinstance(measure, DiscountedGain) else nDCG()).document_gains
                if find_team().rank == 0:
                    fit_regression(self.scorer, self.training_lists(), gains)
                copy_from_first([*self.scorer.parameters(), *self.scorer.buffers()])
            with torch.no_grad():
                for start, weight in zip(self.anchor, self.scorer.parameters(), strict=False):
                    start.copy_(weight)

    def training_lists(self) -> Iterable[Batch]:
        """Return all training lists, complete and in fixed order if the data module supports it."""
        data = getattr(self.trainer, "datamodule", None)
        if data is not None and hasattr(data, "objective_batches"):
            return data.objective_batches()
        self.trainer.fit_loop.setup_data()
        loader: Iterable[Batch] = self.trainer.train_dataloader  # type: ignore[assignment]
        return loader

    def log(self, name: str, *args: Any, **options: Any) -> None:
        """Log a value as Lightning does, by its plain name if `plain_names`."""
        super().log(re.sub(r"[^\w./: -]+", "_", name) if self.plain_names else name, *args, **options)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the regularised loss of one batch."""
        slack = self.batch_loss(batch)
        size = len(batch.labels)
        self.log("train/loss", slack, on_step=False, on_epoch=True, batch_size=size, sync_dist=True)
        self.log("optimisation/loss", slack.detach(), prog_bar=True, on_step=True, on_epoch=False, sync_dist=True)
        for name, value in getattr(self.loss, "slacks", {}).items():  # of a combined loss
            self.log(f"train/slack/{name}", value, on_step=False, on_epoch=True, batch_size=size, sync_dist=True)
        return slack + 0.5 * self.regularization * self.squared_norm() if self.regularization else slack

    def batch_loss(self, batch: Batch) -> Tensor:
        """Return the loss of a training batch, without the regulariser; a scalar."""
        chosen = {}
        if self._reference:
            with torch.no_grad():
                chosen["reference_scores"] = scores_of(self._reference[0], self.as_input(batch.features), batch.where)
        return self.slack(self(batch.features, batch.where), batch, **chosen)

    def slack(self, scores: Tensor, batch: Batch, **chosen: Tensor) -> Tensor:
        """Return the loss of a batch with scores `[lists, list_size]`, without the regulariser; a scalar."""
        given: dict[str, Any] = {"where": batch.where, **chosen}
        if takes_columns(self.loss):
            self.check_columns(batch.columns)
            given["columns"] = batch.columns
        if takes_groups(self.loss):
            given["diversity_groups"] = self._groups_of(batch)
        try:
            value: Tensor = self.loss(scores, batch.labels, **given)
        except ValueError as error:
            if "columns" not in given:
                raise
            raise ValueError(naming_lists(str(error), "list", batch.index.tolist())) from None
        return value

    def _groups_of(self, batch: Batch) -> Tensor:
        if batch.diversity_groups is None:
            raise ValueError(
                f"{type(self.loss).__name__} needs groups, but the data have none; set data.diversity_groups to a regular "
                "expression for the comments or to a column number"
            )
        return batch.diversity_groups

    def check_columns(self, known: Mapping[str, Any]) -> None:
        """Raise ValueError unless the columns that the rules of the loss are about are known, if it has any."""
        for rules in rules_of(self.loss):
            check_columns(type(self.loss).__name__, rules.constraints, known)

    def validation_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Update the measures; returns the scores for callbacks."""
        return self._evaluate(batch, self.validation_metric)

    def on_validation_epoch_end(self) -> None:
        """Log every measure, and the first one in the progress bar."""
        self._log_measures("val", self.validation_metric)

    def test_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Update the measures; returns the scores for callbacks."""
        return self._evaluate(batch, self.test_metric)

    def on_test_epoch_end(self) -> None:
        """Log every measure."""
        self._log_measures("test", self.test_metric)

    def predict_step(self, batch: Batch, batch_idx: int) -> tuple[Tensor, Tensor]:
        """Return `(positions, scores)` of the real documents of a batch, both flat."""
        scores = self(batch.features, batch.where)
        return batch.positions[batch.where], scores[batch.where]

    def _evaluate(self, batch: Batch, metric: RankingMetric) -> Tensor:
        scores = self(batch.features, batch.where)
        self._apart = self._apart + differs(scores, batch.where).sum()
        self._judged = self._judged + batch.where.any(-1).sum()
        metric.update(scores, batch.labels, where=batch.where, diversity_groups=batch.diversity_groups)
        return scores

    def _log_measures(self, stage: str, metric: RankingMetric) -> None:
        for number, (name, value) in enumerate(metric.compute().items()):
            self.log(f"{stage}/{name}", value.float(), prog_bar=number == 0, sync_dist=True)
        self.empty_lists[stage] = metric.empty_lists()
        counts = summed(torch.as_tensor([self._apart, self._judged], device=self.device, dtype=torch.float64)).tolist()
        self.stuck[stage], self.judged[stage] = counts[0] == 0, int(counts[1])
        self._apart = self._judged = 0.0
        metric.reset()

    def on_train_end(self) -> None:
        """Warn if nothing was learned."""
        if self.stuck.get("val"):
            rank_zero_warn(STUCK)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, *args: Any, **options: Any) -> None:
        """Take an optimizer step; an error of the optimizer is reported with its learning rate."""
        try:
            super().optimizer_step(epoch, batch_idx, optimizer, *args, **options)
        except RuntimeError as error:
            frame = error.__traceback__
            while frame is not None and frame.tb_next is not None:
                frame = frame.tb_next
            if frame is None or not frame.tb_frame.f_globals.get("__name__", "").startswith("torch.optim."):
                raise  # an error of the loss or the scorer
            name, rate = type(getattr(optimizer, "optimizer", optimizer)).__name__, optimizer.param_groups[0]["lr"]
            raise ValueError(f"{name} with learning rate {rate:g} cannot take a step: {error}") from error

    def configure_optimizers(self) -> Any:
        """Return the optimizer, with the online schedule if configured."""
        try:
            optimizer = self._optimizer([*self.scorer.parameters(), *self.loss.parameters()])
        except TypeError as error:  # such as a string for a number
            raise ValueError(f"the optimizer cannot be created: {error}") from error
        if self.schedule == "constant":
            return optimizer
        for group in optimizer.param_groups:  # the schedule multiplies the learning rate
            group["lr"] = 1.0 / self.regularization
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (step + self.t0))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add scorer, preparation and names, a record of the data, and torch's random states, which dropout uses."""
        data = getattr(self.trainer, "datamodule", None)
        kept = (getattr(data, name, None) for name in ("preparation", "feature_names"))
        checkpoint.update(describe_scorer(self.scorer, *kept))
        if found := getattr(data, "record", None):
            checkpoint[record.KEY] = found
        checkpoint["random_state"], *others = find_team().gathered(torch.get_rng_state())
        if others:
            checkpoint["random_states_of_others"] = others

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the random state of this process until training starts, and use the checkpoint's names for the data."""
        data: Any = getattr(self.trainer, "datamodule", None)
        if hasattr(data, "restore"):
            data.restore(checkpoint, resumed=self.trainer.state.fn == "fit")
        self.calibration = described_calibration(checkpoint)  # of the checkpoint, and not of one that training writes
        states = [checkpoint.get("random_state"), *checkpoint.get("random_states_of_others", [])]
        rank = find_team().rank
        self._random_state = states[rank if rank < len(states) else 0]

    def on_train_start(self) -> None:
        """Restore the random state of the checkpoint, if there is one."""
        if self._random_state is not None:
            torch.set_rng_state(self._random_state.cpu())
            self._random_state = None
