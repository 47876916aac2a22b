"""What rankers share that hold out lists, and of their iterations keep the one with the best measure on these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from rankstruct.checks import check_integers, check_numbers
from rankstruct.data.clean import keep_documents
from rankstruct.estimators.base import RandomState, Ranker, as_seed
from rankstruct.estimators.training_data import TrainingData
from rankstruct.losses import GradedLoss
from rankstruct.measures import Measure

__all__: list[str] = []


class EarlyStoppingRanker(Ranker):
    """A ranker of several models with early stopping; subclasses say in which iterations they are trained."""

    patience: Any  # an integer, which only `BoostedRanker` may leave open

    def __init__(
        self,
        measure: str | Measure | None = None,
        *,
        loss: str | nn.Module | None = None,
        prepare: Sequence[str] = (),
        patience: int | None,
        seeds: int = 1,
        validation_share: float | None = 0.2,
        drop_empty: bool = True,
        random_state: RandomState = 0,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.measure, self.loss, self.prepare, self.patience, self.seeds = measure, loss, prepare, patience, seeds
        self.validation_share, self.drop_empty = validation_share, drop_empty
        self.random_state, self.verbose = random_state, verbose

    def _check_fit_options(self, has_validation: bool) -> None:
        check_integers(1, 2**31 - 1, seeds=self.seeds)
        check_numbers(">= 0 and < 1", validation_share=self._share())

    def ranking_loss(self) -> nn.Module:
        """Return the loss that `fit` minimises; raises ValueError if `loss` is invalid."""
        return self._loss(lambda: GradedLoss("AUC"))

    def _share(self) -> Any:
        """The fraction of the lists that are held out."""
        return self.validation_share

    def _divided(self, train: TrainingData, valid: TrainingData | None) -> tuple[TrainingData, TrainingData | None]:
        """Training and validation lists: those passed to `fit`, or held-out ones; None if their share is 0.

        Their item weights count in the measure if they are those of clicks. Of a single list, some documents are held out.
        """
        part = self._share()
        if valid is not None or not part:
            return train, valid
        number = train.num_documents if train.num_lists == 1 else train.num_lists
        drawn = self._drawn(number)
        held = np.isin(np.arange(number) if train.num_lists == 1 else np.repeat(train.places, train.lengths), drawn)
        rest, valid = keep_documents(train, ~held), keep_documents(train, held)
        name = "the measure that selects on clicks"
        if not self.from_clicks:
            valid, name = replace(valid, item_weights=None), f"validation_share={part:g}"
        self._check_judged(name, valid, rest)
        return rest, valid

    def _drawn(self, number: int) -> np.ndarray:
        """The numbers of those of so many lists that are held out."""
        part = self._share()
        share = round(part * number)
        if not 0 < share < number:
            raise ValueError(
                f"validation_share {part:g} of {number} lists is {share} lists; pass X_valid, y_valid and "
                "qid_valid, or validation_share=0 to train without validation"
            )
        return np.random.default_rng(as_seed(self.random_state)).permutation(number)[:share]
