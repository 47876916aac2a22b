"""The Lightning module: a scorer, a loss, measures; nothing here knows a measure by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from rankstruct.data import Batch
from rankstruct.losses import StructuredHingeLoss
from rankstruct.measures import RankingMetric
from rankstruct.models.saving import describe_scorer

OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def _adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.0)


class RankingModule(pl.LightningModule):
    """Train a scorer to minimise `regularization / 2 ||w||^2 + mean over lists of the loss`.

    Args:
        scorer: features `[..., list_size, d]` to scores `[..., list_size]`.
        loss: called as `loss(scores, labels, where=where)`, a mean over lists; SVMmap's if None.
        measures: what validation and test report; training is steered by the first.
        regularization: lambda of the objective, applied to all weights of the scorer. KDD 2008's C is 1 / lambda.
        optimizer: from parameters to an optimizer; AdamW with learning rate 0.01 and no weight decay if None.
        schedule: `"constant"` keeps the optimizer's learning rate; `"online"` takes eta_t = 1 / (lambda (t + t0)) at
            step t, for SGD (Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 4.4).
        t0: the offset of the online schedule, which bounds its first steps.

    Raises:
        ValueError: a negative regularization, or an online schedule without one.

    >>> import rankstruct as rs
    >>> module = RankingModule(rs.LinearScorer(3), rs.StructuredHingeLoss("AP"), regularization=0.1)
    """

    def __init__(
        self,
        scorer: nn.Module,
        loss: nn.Module | None = None,
        measures: Sequence[str] = ("AP", "nDCG@10", "RR@10"),
        regularization: float = 0.0,
        optimizer: OptimizerFactory | None = None,
        schedule: Literal["constant", "online"] = "constant",
        t0: float = 100.0,
    ) -> None:
        super().__init__()
        if regularization < 0:
            raise ValueError(f"regularization must be >= 0, got {regularization}")
        if schedule not in ("constant", "online"):
            raise ValueError(f"schedule must be 'constant' or 'online', got {schedule!r}")
        if schedule == "online" and not (regularization > 0 and t0 > 0):
            raise ValueError(
                "the online schedule 1 / (regularization (t + t0)) needs regularization > 0 and t0 > 0; "
                f"got regularization {regularization} and t0 {t0}"
            )
        self.scorer = scorer
        self.loss = StructuredHingeLoss("AP") if loss is None else loss
        self.regularization = regularization
        self.schedule = schedule
        self.t0 = t0
        self._optimizer = _adamw if optimizer is None else optimizer
        self.validation_metric = RankingMetric(list(measures))
        self.test_metric = RankingMetric(list(measures))
        #: For each stage and measure, how many lists it was not defined for at the last evaluation.
        self.empty_lists: dict[str, dict[str, int]] = {}
        self._random_state: Tensor | None = None

    def forward(self, features: Tensor) -> Tensor:
        """Scores `[..., list_size]` of features `[..., list_size, d]`."""
        return self.scorer(features)

    def squared_norm(self) -> Tensor:
        """||w||^2 over all weights of the scorer, a scalar."""
        return torch.stack([weight.square().sum() for weight in self.scorer.parameters()]).sum()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The regularised loss of one batch."""
        slack = self.loss(self(batch.features), batch.labels, where=batch.where)
        self.log("train/loss", slack, prog_bar=True, on_step=True, on_epoch=True, batch_size=len(batch.labels))
        return slack + 0.5 * self.regularization * self.squared_norm() if self.regularization else slack

    def validation_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Update the measures; returns the scores for whoever watches."""
        scores = self(batch.features)
        self.validation_metric.update(scores, batch.labels, batch.where)
        return scores

    def on_validation_epoch_end(self) -> None:
        """Log every measure, the first one in the progress bar too."""
        self._log_measures("val", self.validation_metric)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Update the measures."""
        self.test_metric.update(self(batch.features), batch.labels, batch.where)

    def on_test_epoch_end(self) -> None:
        """Log every measure."""
        self._log_measures("test", self.test_metric)

    def predict_step(self, batch: Batch, batch_idx: int) -> tuple[Tensor, Tensor]:
        """`(positions, scores)` of the real documents of a batch, both flat."""
        scores = self(batch.features)
        return batch.positions[batch.where], scores[batch.where]

    def _log_measures(self, stage: str, metric: RankingMetric) -> None:
        for number, (name, value) in enumerate(metric.compute().items()):
            self.log(f"{stage}/{name}", value.float(), prog_bar=number == 0)
        self.empty_lists[stage] = metric.empty_lists()
        metric.reset()

    def configure_optimizers(self) -> Any:
        """The optimizer, with the online schedule if asked for."""
        optimizer = self._optimizer([*self.scorer.parameters(), *self.loss.parameters()])
        if self.schedule == "constant":
            return optimizer
        for group in optimizer.param_groups:  # the schedule multiplies, so that it alone decides
            group["lr"] = 1.0 / self.regularization
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (step + self.t0))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the scorer as `load_scorer` reads it, and torch's random state, which dropout draws from."""
        checkpoint.update(describe_scorer(self.scorer))
        checkpoint["random_state"] = torch.get_rng_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Remember the random state until training starts."""
        self._random_state = checkpoint.get("random_state")

    def on_train_start(self) -> None:
        """Go on with the random state of the checkpoint, if there was one."""
        if self._random_state is not None:
            torch.set_rng_state(self._random_state.cpu())
            self._random_state = None
