"""Outer loops of training as callbacks: rounds of DC programming, annealing of SmoothGrad."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from rankstruct.checks import check_integers, check_numbers
from rankstruct.losses import SmoothLoss, takes_reference_scores
from rankstruct.models.scorers import evaluating
from rankstruct.training.module import RankingModule

__all__ = ["AnnealSigma", "DCRounds"]


class DCRounds(pl.Callback):
    """DC programming (the concave-convex procedure) in rounds: fix the reference rankings, train, update them.

    At the start of a round, a copy of the scorer determines the reference ranking of every list; the loss, with
    `reference="predicted"`, is then convex in the scores and bounds the nonconvex objective from above, with equality at the
    copy. After `epochs` the round ends with the best weights at the end of an epoch or at the start of the round, so the
    nonconvex objective never increases between rounds. Without this callback the reference is updated at each step (online DC
    programming). Works with any scorer.

    Logs `dc/objective` to TensorBoard (nonconvex, over all training lists, at the end of each epoch), and `dc/before` and
    `dc/after` of each round.

    Args:
        epochs: epochs per round.
        tolerance: training stops when a round lowers the objective by less than this fraction of it.

    Attributes:
        history: a row per finished round, `{"round", "before", "after"}`.

    Raises:
        ValueError: epochs below 1 or a negative tolerance; when training starts, a loss whose reference does not depend on the
            scores.

    Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", Algorithm 2; Yuille and Rangarajan, "The
    Concave-Convex Procedure", Neural Computation 2003.

    >>> DCRounds(epochs=10).epochs
    10
    """

    _state = ("history", "_epoch", "_before", "_best", "_weights", "_reference")  # the state of a round

    def __init__(self, epochs: int = 5, tolerance: float = 1e-3) -> None:
        check_integers(1, epochs=epochs)
        check_numbers(">= 0", tolerance=tolerance)
        self.epochs, self.tolerance = epochs, tolerance
        self.history: list[dict[str, float]] = []
        self._epoch = 0  # in this round
        self._before, self._best = math.nan, math.inf
        self._weights: dict[str, Tensor] = {}
        self._reference: dict[str, Tensor] = {}
        self._loaded = False  # from a checkpoint, and not resumed yet

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the first round, or resume that of the checkpoint."""
        assert isinstance(pl_module, RankingModule)
        if not takes_reference_scores(pl_module.loss):
            raise ValueError(
                "DCRounds needs a loss whose reference depends on the scores, reference='predicted' or 'ideal-tied'; "
                f"got {pl_module.loss}"
            )
        if self._loaded:
            self._loaded = False
            frozen = copy.deepcopy(pl_module.scorer)
            frozen.load_state_dict(self._reference)
            pl_module.freeze_reference(frozen)
        else:
            self.history = []
            self._begin(pl_module, self._objective(pl_module))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Let the current scores determine the reference again."""
        assert isinstance(pl_module, RankingModule)
        pl_module.freeze_reference(None)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Record the best weights; at the end of a round, start the next one from them, or stop."""
        assert isinstance(pl_module, RankingModule)
        objective = self._objective(pl_module)
        if objective < self._best:
            self._best, self._weights = objective, copy.deepcopy(pl_module.scorer.state_dict())
        logged = {"dc/objective": objective}
        self._epoch += 1
        if self._epoch == self.epochs:
            pl_module.scorer.load_state_dict(self._weights)
            self.history.append({"round": len(self.history), "before": self._before, "after": self._best})
            logged |= {"dc/before": self._before, "dc/after": self._best}
            if self._before - self._best <= self.tolerance * abs(self._before):
                trainer.should_stop = True
            self._begin(pl_module, self._best)
        pl_module.log_dict(logged, on_step=False, on_epoch=True, batch_size=1, sync_dist=True)

    def _begin(self, module: RankingModule, objective: float) -> None:
        self._epoch, self._before, self._best = 0, objective, objective
        self._weights = self._reference = copy.deepcopy(module.scorer.state_dict())
        module.freeze_reference(module.scorer)

    @staticmethod
    def _objective(module: RankingModule) -> float:
        with evaluating(module):
            return module.objective(module.training_lists())

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the round, for the checkpoint."""
        return {name.lstrip("_"): getattr(self, name) for name in self._state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the round of a checkpoint."""
        for name in self._state:
            setattr(self, name, state_dict[name.lstrip("_")])
        self._loaded = True


class AnnealSigma(pl.Callback):
    """Halve the sigma of a `SmoothLoss` or `SoftRankLoss` when training has converged or used its epochs; finally stop.

    Training has converged if the mean training loss did not fall by a fraction `tolerance` for `patience` epochs. The patience of
    early stopping is reset at each halving, since the next sigma may be better. Logged as `optimisation/sigma`.

    Args:
        patience: epochs without progress before the next halving.
        tolerance: the smallest relative progress that counts.
        epochs: the maximum at one sigma; small steps may lower the loss slightly for hundreds of epochs.
        factor: the factor for sigma, between 0 and 1.
        lowest: training stops instead of decreasing sigma below this.

    Raises:
        ValueError: an argument out of its range; when training starts, a loss that is not a `SmoothLoss`.

    Source: Chapelle and Wu, Information Retrieval 2010; Le, Smola, Chapelle, Teo, Algorithm 4 (annealing by halving).

    >>> AnnealSigma(patience=2).factor
    0.5
    """

    def __init__(
        self,
        patience: int = 3,
        tolerance: float = 1e-3,
        factor: float = 0.5,
        lowest: float = 2.0**-6,
        epochs: int = 10,
    ) -> None:
        if patience < 1 or tolerance < 0 or not 0 < factor < 1 or lowest <= 0 or epochs < 1:
            raise ValueError(
                "AnnealSigma needs patience >= 1, tolerance >= 0, 0 < factor < 1, lowest > 0 and epochs >= 1; got "
                f"{patience}, {tolerance}, {factor}, {lowest}, {epochs}"
            )
        self.patience, self.tolerance, self.factor, self.lowest = patience, tolerance, factor, lowest
        self.epochs = epochs
        self._best, self._waited, self._epoch = math.inf, 0, 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check the loss."""
        if not isinstance(pl_module.loss, SmoothLoss):
            raise ValueError(f"AnnealSigma needs a SmoothLoss, got {type(pl_module.loss).__name__}")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Halve sigma, or stop, if it is time."""
        loss = pl_module.loss
        assert isinstance(loss, SmoothLoss)
        sigma = loss.get_buffer("sigma")
        current = float(trainer.callback_metrics["train/loss"])
        pl_module.log("optimisation/sigma", sigma.clone(), on_step=False, on_epoch=True, batch_size=1, sync_dist=True)
        self._epoch += 1
        if current < self._best - self.tolerance * abs(self._best) or math.isinf(self._best):
            self._best, self._waited = current, 0
        else:
            self._waited += 1
        if self._waited < self.patience and self._epoch < self.epochs:
            return
        if float(sigma) * self.factor < self.lowest:
            trainer.should_stop = True
            return
        with torch.no_grad():
            sigma.mul_(self.factor)
        self._best, self._waited, self._epoch = math.inf, 0, 0  # another objective
        for callback in trainer.early_stopping_callbacks:
            callback.wait_count = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the counters, for the checkpoint; sigma is saved with the loss."""
        return {"best": self._best, "waited": self._waited, "epoch": self._epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the counters."""
        self._best, self._waited = state_dict["best"], state_dict["waited"]
        self._epoch = state_dict.get("epoch", 0)  # absent in checkpoints of earlier versions
