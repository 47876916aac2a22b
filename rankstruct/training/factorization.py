"""Training of recommenders: ratings in batches of users, and a module with the Frobenius norms of the factors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from rankstruct.data import Batch, BatchLoader, RankingData, Ratings
from rankstruct.data.ratings import Labels
from rankstruct.models import MatrixFactorization
from rankstruct.training.module import OptimizerFactory, RankingModule

_EVALUATION_DOCUMENTS = 200_000


class RatingsDataModule(pl.LightningDataModule):
    """Ratings in batches of users, one list a user over its rated items.

    Args:
        train: ratings to learn from.
        vali: ratings that steer the training; None for none, with `Trainer(limit_val_batches=0)`.
        test: ratings to be judged by; None for none.
        users_per_batch: how many users a training batch holds.
        labels: what training predicts: `"grade"`, `"rating"`, or a function of the ratings.
        measured_labels: what validation and test measure, as `labels`.
        max_items: of users with more ratings so many are sampled, anew each epoch.
        seed: of shuffling and sampling.
    """

    def __init__(
        self,
        train: Ratings,
        vali: Ratings | None = None,
        test: Ratings | None = None,
        *,
        users_per_batch: int = 64,
        labels: Labels = "grade",
        measured_labels: Labels = "grade",
        max_items: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.lists = train.to_lists(labels)
        self.vali = None if vali is None else vali.to_lists(measured_labels)
        self.test = None if test is None else test.to_lists(measured_labels)
        self.item_counts = np.bincount(train.item, minlength=train.num_items)
        self.users_per_batch, self.max_items, self.seed = users_per_batch, max_items, seed

    def train_dataloader(self) -> BatchLoader:
        """Shuffled batches of users."""
        trainer = self.trainer
        return BatchLoader(
            self.lists,
            lists_per_batch=self.users_per_batch,
            max_list_size=self.max_items,
            shuffle=True,
            seed=self.seed,
            rank=trainer.global_rank if trainer else 0,
            world_size=trainer.world_size if trainer else 1,
        )

    def objective_batches(self) -> BatchLoader:
        """The training lists in large batches, whole and in fixed order."""
        return BatchLoader(self.lists, documents_per_batch=_EVALUATION_DOCUMENTS)

    def val_dataloader(self) -> BatchLoader:
        """All validation lists."""
        return BatchLoader(_given(self.vali, "vali"), documents_per_batch=_EVALUATION_DOCUMENTS)

    def test_dataloader(self) -> BatchLoader:
        """All test lists."""
        return BatchLoader(_given(self.test, "test"), documents_per_batch=_EVALUATION_DOCUMENTS)


class FactorizationModule(RankingModule):
    """Train a factorisation to minimise `(sum over users of the loss + lambda_U/2 ||U||^2 + lambda_V/2 ||V||^2) / users`.

    U and V have the biases of users and items as a further column. A step takes the norms of the batch's users, and with
    sparse factors those of the batch's items, each weighted by one over the number of users that rated it, so that the mean over
    all batches is the objective's.

    Args:
        scorer: the factorisation.
        loss: called as `loss(scores, labels, where=where)`, a mean over users.
        measures: what validation and test report; training is steered by the first.
        regularization: lambda_U.
        item_regularization: lambda_V; as lambda_U if None.
        optimizer: from parameters to an optimizer; AdamW with learning rate 0.01 and no weight decay if None. Sparse factors
            need `torch.optim.SGD` or `SparseAdam`.

    Raises:
        ValueError: a negative regularization.

    >>> import rankstruct as rs
    >>> module = FactorizationModule(rs.MatrixFactorization(3, 5), rs.StructuredHingeLoss("AUC"), regularization=0.1)
    """

    scorer: MatrixFactorization

    def __init__(
        self,
        scorer: MatrixFactorization,
        loss: nn.Module | None = None,
        measures: Sequence[str] = ("nDCG@10",),
        regularization: float = 0.0,
        item_regularization: float | None = None,
        optimizer: OptimizerFactory | None = None,
    ) -> None:
        super().__init__(scorer, loss, measures, optimizer=optimizer)
        self.user_regularization = regularization
        self.item_regularization = regularization if item_regularization is None else item_regularization
        if min(self.user_regularization, self.item_regularization) < 0:
            raise ValueError(
                f"regularization must be >= 0, got {regularization} and item_regularization {item_regularization}"
            )
        self._users = 0
        self._item_weights: Tensor | None = None

    def norms(self) -> tuple[Tensor, Tensor]:
        """||U||^2 and ||V||^2, with the biases."""
        return _squared(self.scorer.user_factors, self.scorer.user_offsets).sum(), _squared(
            self.scorer.item_factors, self.scorer.item_offsets
        ).sum()

    def objective(self, batches: Iterable[Batch]) -> float:
        """What training minimises, over all users of `batches`."""
        batches = list(batches)
        users = max(sum(len(batch.labels) for batch in batches), 1)
        with torch.no_grad():
            of_users, of_items = self.norms()
            penalty = self.user_regularization * of_users + self.item_regularization * of_items
        return self.mean_loss(batches) + 0.5 * float(penalty) / users

    def on_fit_start(self) -> None:
        """Look how many users there are, and how many of them rated each item."""
        super().on_fit_start()
        data = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, RatingsDataModule):
            raise ValueError(f"FactorizationModule needs a RatingsDataModule to fit, got {type(data).__name__}")
        self._users = data.lists.num_lists
        counts = torch.from_numpy(data.item_counts).to(self.device)
        self._item_weights = 1 / counts.clamp(min=1)

    def penalty(self, batch: Batch) -> Tensor:
        """Of a batch of users, the part of the objective that is not the loss; in the mean over batches, all of it."""
        scorer, size = self.scorer, len(batch.labels)
        user = batch.features[:, 0, 0].long()
        total = 0.5 * self.user_regularization / size * _squared(scorer.user_factors, scorer.user_offsets, user).sum()
        if not scorer.sparse:
            norm = _squared(scorer.item_factors, scorer.item_offsets).sum()
            return total + 0.5 * self.item_regularization / self._users * norm
        assert self._item_weights is not None  # known from on_fit_start
        item = batch.features[..., 1].long()[batch.where]
        norms = _squared(scorer.item_factors, scorer.item_offsets, item) * self._item_weights[item]
        return total + 0.5 * self.item_regularization / size * norms.sum()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The regularised loss of one batch."""
        loss = super().training_step(batch, batch_idx)
        regularized = self.user_regularization or self.item_regularization
        return loss + self.penalty(batch) if regularized else loss


def _given(lists: RankingData | None, name: str) -> RankingData:
    if lists is None:
        raise ValueError(
            f"RatingsDataModule was given no {name} ratings; give some, or train with Trainer(limit_val_batches=0)"
        )
    return lists


def _squared(factors: nn.Embedding, biases: nn.Embedding | None, rows: Tensor | None = None) -> Tensor:
    """Squared norms of some rows, or all, with the biases as a further column."""
    values = factors.weight if rows is None else factors(rows)
    total = values.square().sum(-1)
    if biases is None:
        return total
    return total + (biases.weight if rows is None else biases(rows)).square().sum(-1)
