"""Lightning training of recommenders: data modules of ratings and interactions, their modules, and recommendations."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from rankstruct.checks import check_choice, check_integers, check_numbers
from rankstruct.data import Batch, BatchLoader, DataError, Names, RankingData, Splits
from rankstruct.data.errors import check_matched
from rankstruct.data.record import (
    EARLIER,
    KEY,
    check_not_learned,
    check_split,
    check_unchanged,
    describe_source,
    is_same_place,
)
from rankstruct.files import whole_file
from rankstruct.losses import SoftmaxLoss
from rankstruct.messages import did_you_mean
from rankstruct.metric import RankingMetric
from rankstruct.models import load_scorer
from rankstruct.models.saving import described_argument, read_checkpoint, scorer_file
from rankstruct.recommenders.catalogue import Kind, Negatives, TrainingLists
from rankstruct.recommenders.factorization import LightGCN, MatrixFactorization, Start
from rankstruct.recommenders.ratings import Labels, Ratings, merge, numbers_of, places_of, standardised
from rankstruct.recommenders.reading import InteractionsSource, RatingsSource
from rankstruct.recommenders.recommendation import evaluate_catalogue, longest_cutoff, recommend, top_lists
from rankstruct.recommenders.splits import RatingsParts, nothing
from rankstruct.recommenders.users import adopt_users
from rankstruct.training.datamodule import ListsDataModule
from rankstruct.training.module import OptimizerFactory, RankingModule

__all__ = [
    "CatalogueModule",
    "FactorizationModule",
    "InteractionsDataModule",
    "RatingsDataModule",
    "RecommendationWriter",
    "SplitRatingsDataModule",
]

_PRIOR = 5.0  # ratings


class RatingsDataModule(ListsDataModule):
    """Ratings in batches of users, one list of rated items per user.

    Validation and test users that are not in training have known ratings, `given`, to which `FactorizationModule` fits their
    factors with the items fixed (strong generalisation).

    Args:
        train: training ratings.
        vali: validation ratings; None for none, with `Trainer(limit_val_batches=0)`.
        test: test ratings; None for none.
        given: known ratings of users that are not in `train`, by `"vali"` and `"test"`; None for none.
        users_per_batch: number of users per training batch.
        labels: training labels: `"grade"`, `"rating"`, `"standardised"` (by mean and standard deviation over `train`; some are
            negative, which only `SquaredLoss` accepts), or a function of the ratings. Validation and test labels are grades.
        max_items: number of ratings sampled, differently in each epoch, from users with more.
        recommend: number of items that `predict` recommends to each user.
        seed: seed of shuffling and sampling.

    >>> from rankstruct.recommenders import RatingsSource
    >>> parts = RatingsSource(builtin="synthetic").read()
    >>> data = RatingsDataModule(parts.train, parts.vali, parts.test, users_per_batch=10)
    >>> data.data_name
    'ratings'
    """

    source: Any = (
        None  #: Where the ratings come from, a `RatingsSource` or an `InteractionsSource`; None if they are in memory.
    )
    _trained: Mapping[str, Any] = MappingProxyType({})  # the record of the model that they are for

    def __init__(
        self,
        train: Ratings,
        vali: Ratings | None = None,
        test: Ratings | None = None,
        *,
        given: Mapping[str, Ratings] | None = None,
        users_per_batch: int = 64,
        labels: Labels | Literal["standardised"] = "grade",
        max_items: int | None = None,
        recommend: int = 10,
        seed: int = 0,
    ) -> None:
        super().__init__({"lists_per_batch": users_per_batch, "max_list_size": max_items}, seed)
        self.recommend = recommend
        self.same_labels = labels == "grade"
        if labels == "standardised":
            labels = standardised(train)
        given = given or {}
        for stage in given:
            if stage not in ("vali", "test"):
                near = did_you_mean(str(stage), ("vali", "test"))
                raise ValueError(f"given must have the keys 'vali' and 'test' only, got {stage!r}{near}")
        measured = {"vali": vali, "test": test}
        self._parts = {stage: part.to_lists() for stage, part in measured.items() if part is not None}
        self._parts["train"] = train.to_lists(labels)
        #: Known ratings of new users, by stage.
        self.given = {stage: part.to_lists(labels) for stage, part in given.items()}
        #: All ratings except those of the test, which are not recommended.
        self.known = merge([part for part in (train, given.get("vali"), vali, given.get("test")) if part is not None])
        self.item_counts = np.bincount(train.item, minlength=train.num_items)

    @cached_property
    def record(self) -> dict[str, Any]:
        """The names of users and items, what the users knew, and known ratings of new users; of files, their digests too."""
        known = torch.from_numpy(np.stack([self.known.user, self.known.item]).astype(np.int32))
        names = {"users": _packed(self.known.user_names), "items": _packed(self.known.item_names)}
        given = {stage: _packed_lists(lists) for stage, lists in self.given.items()}
        source = {} if self.source is None else describe_source(self.source)
        return {**source, **names, "known": known, "given": given, "remarks": self.remarks()}

    @property
    def names(self) -> dict[str, Any]:
        """The names of `users` and `items`."""
        return {"users": list(self.known.user_names), "items": list(self.known.item_names)}

    def restore(self, checkpoint: dict[str, Any], *, resumed: bool = False) -> None:
        """Check that users and items, and if training goes on, their ratings, are those of a trained model.

        Raises:
            DataError: they are others.
        """
        record = checkpoint.get(KEY, {})
        if resumed and self.source is not None:
            check_unchanged(self.source, record)
        if record:
            users, items, known = _unpacked(record)
            same = np.array_equal(users, self.known.user_names) and np.array_equal(items, self.known.item_names)
            if not same or (resumed and not np.array_equal(self.known.keys(), known.keys())):
                raise DataError(
                    "the ratings have other users or items than those that the model was trained on; read them by the names "
                    "of the checkpoint (trained_on=), or give Ratings user_names= and item_names= of training"
                )

    def test_dataloader(self) -> BatchLoader:
        """Return all test lists; raises DataError if the model has learned from some of them."""
        self._check_test()
        return super().test_dataloader()

    def val_dataloader(self) -> BatchLoader:
        """Return all validation lists; raises DataError if the test lists show that the data were divided otherwise."""
        self._check_test()
        return super().val_dataloader()

    def _check_test(self) -> None:
        if "again" in self._trained:
            check_not_learned(self._trained["again"], "test ratings", self.source, self._trained)

    def _only_known(self, record: dict[str, Any], told: str) -> None:
        """Take what users knew in training from a record, since there are no ratings, for the reason told."""
        self._parts, self.nothing_to_predict = {}, told
        _, items, self.known = _unpacked(record)
        self.given = {stage: _unpacked_lists(given, self.known) for stage, given in record["given"].items()}
        self.item_counts = np.bincount(self.known.item, minlength=len(items))

    @property
    def predict_data(self) -> RankingData:
        """The test lists; without them, one list, since Lightning calls nothing that writes recommendations otherwise."""
        if not self.nothing_to_predict:
            return self.part("test")
        return self.known.select_users(self.known.user[:1]).to_lists()

    @property
    def lists(self) -> RankingData:
        """The training lists."""
        return self.part("train")

    @property
    def num_users(self) -> int:
        """Number of users, including new ones."""
        return self.known.num_users

    @property
    def num_items(self) -> int:
        """Number of items."""
        return self.known.num_items

    def part(self, name: str) -> RankingData:
        """The lists of `"train"`, `"vali"` or `"test"`; raises ValueError if there are none."""
        if self.nothing_to_predict:
            raise DataError(self.nothing_to_predict)
        if name not in self._parts:
            raise ValueError(
                f"RatingsDataModule has no {name} ratings; pass some, or train with Trainer(limit_val_batches=0)"
            )
        return self._parts[name]

    @property
    def splits(self) -> Splits:
        """Training, validation and test lists; raises ValueError if one is missing."""
        return Splits(*map(self.part, Splits._fields))

    @property
    def data_name(self) -> str:
        """The name of the data in reports, that of the built-in set, file or folder if there is one."""
        if self.source is None:
            return "ratings"
        return self.source.builtin or Path(str(self.source.path)).resolve().name


class SplitRatingsDataModule(RatingsDataModule):
    """Ratings from a file or built in, split for training, validation and test, in batches of users; for configs.

    Args:
        path: a file of ratings, or a folder with `u.data` (MovieLens 100K) or `ratings.dat` (1M); or set `builtin`.
        builtin: `"synthetic"`, ratings from a known factorisation, which needs no file.
        users_per_batch: number of users per training batch.
        labels: training labels: `"grade"`, `"rating"` or `"standardised"`; see `RatingsDataModule`.
        max_items: number of ratings sampled, differently in each epoch, from users with more.
        recommend: number of items that `predict` recommends to each user.
        trained_on: a checkpoint, by whose names ratings are read; if the files have changed since, only what users knew in
            training is there, as `predict` needs it.
        seed: seed of the built-in set, the split, shuffling and sampling.
        source: further arguments of `RatingsSource`, for reading and splitting.

    Raises:
        ValueError: inconsistent options, or a malformed file; the message has file and line.

    >>> SplitRatingsDataModule(builtin="synthetic").splits.test.num_lists
    400
    """

    def __init__(
        self,
        path: str | None = None,
        builtin: str | None = None,
        users_per_batch: int = 64,
        labels: Literal["grade", "rating", "standardised"] = "grade",
        max_items: int | None = None,
        recommend: int = 10,
        trained_on: str | None = None,
        seed: int = 0,
        **source: Any,
    ) -> None:
        check_integers(1, **{"data.users_per_batch": users_per_batch})
        self.source = RatingsSource(path=path, builtin=builtin, seed=seed, **source)
        parts, record, told = _read_parts(self.source, trained_on)
        given = {"vali": parts.vali_given, "test": parts.test_given}
        batches: dict[str, Any] = {"users_per_batch": users_per_batch, "max_items": max_items, "seed": seed}
        labels = "grade" if told else labels  # of no ratings
        super().__init__(
            parts.train, parts.vali, parts.test, given=given, labels=labels, recommend=recommend, **batches
        )
        self.left_out = parts.left_out
        self._trained = record
        if told:
            self._only_known(record, told)

    def describe(self) -> dict[str, Any]:
        """Parameters of the data for reports."""
        names = ("split", "fold" if self.source.split == "fold" else "num_train")
        return super().describe() | {name: getattr(self.source, name) for name in names}

    def remarks(self) -> list[str]:
        """A note on the number of users left out."""
        few = f"{self.source.num_train} + {self.source.min_test}"
        return [f"{self.left_out} users have fewer than {few} ratings and are left out"] if self.left_out else []


class _UserBatches(BatchLoader):
    """Batches of lists in random order, not of similar length, since padding costs little next to the rest of the catalogue."""

    by_length = False


class InteractionsDataModule(RatingsDataModule):
    """Interactions from a file or folder, or built in, in batches of users or of single interactions; for `CatalogueModule`.

    Args:
        path: a folder with `train.txt`, `valid.txt` and `test.txt`, or a file to split, see `InteractionsSource`.
        builtin: `"synthetic"`, which needs no file; or set `path`.
        users_per_batch: number of users per training batch, whose lists have all that they know; on devices other than the CPU,
            memory is users x items.
        pairs_per_batch: number of interactions per training batch instead, each a list of one known item (sampled negatives).
        exclude_validation: whether validation items are not ranked in the test; published figures often exclude only training.
        recommend: number of items that `predict` recommends to each user.
        trained_on: a checkpoint, as for `SplitRatingsDataModule`.
        seed: seed of the built-in set, the split and shuffling.
        source: further arguments of `InteractionsSource`, for reading and splitting.

    Raises:
        ValueError: inconsistent options, or a malformed file; the message has file and line.

    >>> data = InteractionsDataModule(builtin="synthetic", users_per_batch=100)
    >>> data.num_users, data.num_items, len(data.train_dataloader())
    (387, 150, 4)
    """

    complete = False

    def __init__(
        self,
        path: str | None = None,
        builtin: str | None = None,
        users_per_batch: int | None = None,
        pairs_per_batch: int | None = None,
        exclude_validation: bool = False,
        recommend: int = 10,
        trained_on: str | None = None,
        seed: int = 0,
        **source: Any,
    ) -> None:
        if users_per_batch is not None and pairs_per_batch is not None:
            raise ValueError("set data.users_per_batch or data.pairs_per_batch, not both")
        check_integers(
            1, optional=True, **{"data.users_per_batch": users_per_batch, "data.pairs_per_batch": pairs_per_batch}
        )
        self.source = InteractionsSource(path=path, builtin=builtin, seed=seed, **source)
        parts, record, told = _read_parts(self.source, trained_on)
        train, _, vali, _, test, _ = parts
        size = pairs_per_batch or users_per_batch or 64
        super().__init__(train, vali, test, recommend=recommend, users_per_batch=size, seed=seed)
        self.train_ratings, self.test_ratings = train, {"val": vali, "test": test}
        self.exclude = {"val": train, "test": self.known if exclude_validation else train}
        self.pairs = pairs_per_batch is not None
        if self.pairs:
            self._parts["train"] = train.to_pairs()
        self._trained = record
        if told:
            self._only_known(record, told)

    def setup(self, stage: str) -> None:
        """Set the graph of LightGCN, before callbacks copy the module."""
        scorer = getattr(self.trainer and self.trainer.lightning_module, "scorer", None)
        if stage == "fit" and isinstance(scorer, LightGCN):
            scorer.set_graph(self.train_ratings)

    def train_dataloader(self) -> BatchLoader:
        """Return shuffled batches of users, or of single interactions."""
        return _UserBatches(self.part("train"), shuffle=True, seed=self.seed, **self._place(), **self.training)

    def describe(self) -> dict[str, Any]:
        """Parameters of the data for reports."""
        return super().describe() | {"lists_per_batch": self.training["lists_per_batch"]}

    def keep(self, scorer: nn.Module, folder: Path) -> str:
        """Save the vectors of items, for an index of maximum inner products, and the item names in their order."""
        assert isinstance(scorer, MatrixFactorization)
        with torch.no_grad(), whole_file(folder / "item_vectors.npy", "wb") as file:
            np.save(file, scorer.vectors()[1].cpu().numpy())
        with whole_file(folder / "item_names.txt") as file:
            file.writelines(re.sub(r"[\r\n]", " ", name) + "\n" for name in self.known.item_names)  # one line each
        return f"item vectors: {folder / 'item_vectors.npy'}  (in the order of item_names.txt)"


class FactorizationModule(RankingModule):
    """Train a factorisation to minimise `(sum over users of the loss + lambda_U/2 ||U||^2 + lambda_V/2 ||V||^2) / users`.

    U and V have the biases of users and items as an additional column. A step uses the norms of the batch's users and, with
    sparse factors, of the batch's items, each weighted by one over the number of users that rated it, so that the mean over all
    batches is that of the objective.

    Before validation, test and prediction, the factors of users with known ratings that are not in training are fitted with the
    items fixed; see `adopt_users`.

    Args:
        scorer: the factorisation.
        loss: called as `loss(scores, labels, where=where)`, a mean over users.
        measures: measures of validation and test; the first one is monitored.
        regularization: lambda_U.
        item_regularization: lambda_V; lambda_U if None.
        start_from: the folder of a run, or a file of `save_scorer`, with the initial factorisation, such as one trained on the
            squared loss; users and items are matched by name, if the run has kept them, and others, like biases that one of the
            two lacks, are unchanged. Validation and test measures are only meaningful if it was trained on the same split, with
            the same seed. None starts from `scorer`.
        item_means: whether item biases are initialised to mean labels, minus the global mean and shrunk to 0 by five
            pseudo-ratings; a hinge that learns from few items of a list requires this, or `start_from`.
        optimizer: a function from parameters to an optimizer; AdamW with learning rate 0.01 and no weight decay if None. Sparse
            factors require `torch.optim.SGD` or `SparseAdam`.

    Raises:
        ValueError: a negative regularization; `item_means` without item biases, or with `start_from`; at validation or test, no
            regularization for the factors of new users; at the start of training, a factorisation of another size in
            `start_from`.

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
        start_from: str | None = None,
        item_means: bool = False,
        optimizer: OptimizerFactory | None = None,
    ) -> None:
        super().__init__(scorer, loss, measures, optimizer=optimizer)
        check_numbers(">= 0", regularization=regularization)
        check_numbers(">= 0", optional=True, item_regularization=item_regularization)
        self.user_regularization = regularization
        self.item_regularization = regularization if item_regularization is None else item_regularization
        if item_means and (start_from is not None or scorer.item_offsets is None):
            raise ValueError("item_means requires a scorer with item_bias, and no start_from")
        self.start_from, self.item_means = start_from, item_means
        self._users = 0
        self._item_weights: Tensor | None = None

    def as_input(self, features: Tensor) -> Tensor:
        """Keep the indices of users and items: bfloat16 cannot represent 257."""
        return features

    def norms(self, users: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """||U||^2, of some or all users, and ||V||^2, including biases."""
        of_users = _squared(self.scorer.user_factors, self.scorer.user_offsets, users).sum()
        return of_users, _squared(self.scorer.item_factors, self.scorer.item_offsets).sum()

    def objective(self, batches: Iterable[Batch], metric: RankingMetric | None = None) -> float:
        """The training objective over all users of `batches`; their scores also update a metric, if given."""
        batches = list(batches)
        users = torch.cat([torch.zeros(0), *(batch.features[:, 0, 0].cpu() for batch in batches)]).long()
        with torch.no_grad():
            of_users, of_items = self.norms(users.to(self.device))
            penalty = self.user_regularization * of_users + self.item_regularization * of_items
        return self.mean_loss(batches, metric=metric) + 0.5 * float(penalty) / max(len(users), 1)

    def describe(self) -> dict[str, Any]:
        """Parameters of the module for reports."""
        return {
            **super().describe(),
            "rank": self.scorer.rank,
            "regularization": self.user_regularization,
            "item_regularization": self.item_regularization,
            "start_from": self.start_from or "",
        }

    def on_validation_start(self) -> None:
        """Fit the factors of new users."""
        self._adopt("vali")

    def on_test_start(self) -> None:
        """Fit the factors of new users."""
        self._adopt("test")

    def on_predict_start(self) -> None:
        """Fit the factors of all new users."""
        self._adopt("vali")
        self._adopt("test")

    def _adopt(self, stage: str) -> None:
        data = getattr(self.trainer, "datamodule", None)
        lists = data.given.get(stage) if isinstance(data, RatingsDataModule) else None
        if lists is None or not lists.num_lists:
            return
        if not self.user_regularization > 0:
            raise ValueError(
                f"the factors of new users require regularization above 0, got {self.user_regularization}; or use the weak split"
            )
        adopt_users(self.scorer, lists, self.loss, regularization=self.user_regularization)

    def on_fit_start(self) -> None:
        """Count users and the ratings of each item, and initialise the factors by `start_from` and `item_means`."""
        super().on_fit_start()
        data = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, RatingsDataModule):
            raise ValueError(f"FactorizationModule requires a RatingsDataModule, got {type(data).__name__}")
        self._users = data.lists.num_lists
        counts = torch.from_numpy(data.item_counts).to(self.device)
        self._item_weights = 1 / counts.clamp(min=1)
        if self.trainer.ckpt_path is not None:
            return
        if self.start_from is not None:
            _copy_factors(self.start_from, self.scorer, data.known)
        if self.item_means and self.scorer.item_offsets is not None:
            labels = data.lists.labels - data.lists.labels.mean()
            sums = np.bincount(data.lists.features[:, 1].astype(np.int64), labels, minlength=len(counts))
            with torch.no_grad():
                self.scorer.item_offsets.weight[:, 0] = torch.from_numpy(sums).to(self.device) / (counts + _PRIOR)

    def penalty(self, batch: Batch) -> Tensor:
        """The regularisation of a batch of users; its mean over batches is that of the objective."""
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


class CatalogueModule(FactorizationModule):
    """Train a factorisation on interactions: lists over the whole catalogue, or with sampled negatives; measures over all items.

    Validation and test rank all items except those that the user knows from training, see `evaluate_catalogue`. The data module
    is an `InteractionsDataModule`.

    Args:
        scorer: the factorisation.
        loss: any loss of rankstruct, called as `loss(scores, labels, where=where)`; the softmax loss if None.
        measures: measures of validation and test, with cut-offs; the first one is monitored.
        negatives: `"all"` items that the user does not know, or sampled ones, `"uniform"`, `"popularity"` or `"in-batch"`; see
            `Negatives`, as for the next two.
        number: number of sampled items per list.
        correct: whether scores of sampled items are corrected.
        start: initial factors: `"spectral"` or `"linear"`, see `MatrixFactorization.start_from_interactions`, or `"random"`.
        start_from: the run with the initial factorisation, see `FactorizationModule`.
        options: further arguments of `FactorizationModule`, but `item_means`.

    >>> import rankstruct as rs
    >>> module = CatalogueModule(rs.MatrixFactorization(3, 5, temperature=0.2), rs.SoftmaxLoss())
    """

    def __init__(
        self,
        scorer: MatrixFactorization,
        loss: nn.Module | None = None,
        measures: Sequence[str] = ("nDCG@10", "R@10"),
        negatives: Kind = "all",
        number: int = 1,
        correct: bool = False,
        start: Start = "spectral",
        start_from: str | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(scorer, MatrixFactorization):
            raise TypeError(f"scorer must be a MatrixFactorization or a LightGCN, got {type(scorer).__name__}")
        loss = SoftmaxLoss() if loss is None else loss
        super().__init__(scorer, loss, measures, start_from=start_from, item_means=False, **options)
        check_choice("start", start, get_args(Start))
        self.negatives = Negatives(negatives, number, correct)
        self.first_factors: Start = start if start_from is None else "random"
        self._cutoff = longest_cutoff(self.validation_metric.measures)
        self._lists: TrainingLists | None = None

    def check_data(self, data: Any) -> None:
        """Raise ValueError for batches of single interactions with all negatives."""
        if self.negatives.kind == "all" and data.pairs:
            raise ValueError(
                "pairs_per_batch requires sampled negatives, such as uniform; with all, a list has all items"
            )

    def on_fit_start(self) -> None:
        """Prepare the training lists and the initial factors; then as in the base class."""
        ratings = self._data().train_ratings
        self.check_data(self._data())
        if self.trainer.ckpt_path is None:
            self.scorer.start_from_interactions(ratings, self.first_factors)
        self._lists = TrainingLists(ratings, self.negatives)
        super().on_fit_start()

    def batch_loss(self, batch: Batch) -> Tensor:
        """The loss of the training lists of a batch of users or interactions."""
        assert self._lists is not None  # known from on_fit_start
        user, item = batch.features.long().unbind(-1)
        return self._lists.mean_loss(self.scorer, self.loss, user[:, 0], item, batch.where)

    def _evaluate(self, batch: Batch, metric: RankingMetric) -> Tensor:
        data, stage = self._data(), "val" if metric is self.validation_metric else "test"
        users = batch.features[:, 0, 0].long()[batch.where.any(-1)]
        exclude = data.exclude[stage]
        scores, lists = top_lists(self.scorer, users, data.test_ratings[stage], self._cutoff, exclude=exclude)
        scores, lists = scores.to(self.device), lists.documents(lambda values: values.to(self.device))
        self._apart, self._judged = self._apart + len(users), self._judged + len(users)
        metric.update(scores, lists.labels, where=lists.where)
        return scores

    def test_values(self, data: InteractionsDataModule) -> dict[str, Tensor]:
        """The measures of each test user, `{name: [users]}`."""
        measures = self.test_metric.measures
        return evaluate_catalogue(self.scorer, data.test_ratings["test"], measures, exclude=data.exclude["test"])

    def predict_step(self, batch: Batch, batch_idx: int) -> tuple[Tensor, Tensor]:
        """Return nothing, of both kinds: `RecommendationWriter` does all."""
        return batch.positions[:0, 0], batch.labels[:0, 0]

    def describe(self) -> dict[str, Any]:
        """Parameters of the module for reports."""
        kind, number, correct = self.negatives.kind, self.negatives.number, self.negatives.correct
        sampled = {} if kind == "all" else {"number": number, "correct": correct}
        begun = {} if self.first_factors == "random" else {"start": self.first_factors}
        return {**super().describe(), **begun, "negatives": kind, **sampled}

    def _data(self) -> InteractionsDataModule:
        data = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, InteractionsDataModule):
            raise ValueError(f"CatalogueModule requires an InteractionsDataModule, got {type(data).__name__}")
        return data


class RecommendationWriter(pl.Callback):
    """After `predict`, write `recommendations.csv`: user, rank, item and score of the top unrated items of each user.

    Test ratings count as unrated.

    Args:
        folder: the output folder; the run's folder if None.

    >>> trainer = pl.Trainer(callbacks=[RecommendationWriter("out")], logger=False, enable_checkpointing=False)
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the file."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(data, RatingsDataModule)
        assert isinstance(pl_module, FactorizationModule)
        folder = Path(self.folder or trainer.log_dir or trainer.default_root_dir)  # all processes must evaluate this
        if not trainer.is_global_zero:
            return
        known = data.known
        if data.nothing_to_predict:
            print(f"recommendations by what users knew in training: {data.nothing_to_predict}")
        users = np.unique(known.user)
        rows = torch.from_numpy(users).to(pl_module.device)
        items, scores = recommend(pl_module.scorer, rows, data.recommend, exclude=known)
        path, written = folder / "recommendations.csv", np.zeros(len(users), np.int64)
        with whole_file(path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["user", "rank", "item", "score"])
            for at, (user, best, values) in enumerate(zip(users, items.tolist(), scores.tolist(), strict=True)):
                for rank, (item, value) in enumerate(zip(best, values, strict=True), start=1):
                    if item >= 0:
                        written[at] += 1
                        writer.writerow([known.user_names[user], rank, known.item_names[item], f"{value:.6g}"])
        fewer = int((written < data.recommend).sum())
        note = f", fewer for {fewer} users, for whom no more are left" if fewer else ""
        print(f"{data.recommend} items for each of {len(users) - fewer} users{note}: {path}")


def _read_parts(
    source: RatingsSource | InteractionsSource, trained_on: str | None
) -> tuple[RatingsParts, dict[str, Any], str]:
    """The parts of a source, with the users and items of a checkpoint if given; its record; why there are no ratings, or "".

    The record also says which test ratings the model has learned from, by `again`.

    There are none if the files have changed since training: they would be split otherwise.
    """
    if trained_on is None:
        return source.read(), {}, ""
    checkpoint = read_checkpoint(trained_on)
    record: dict[str, Any] = checkpoint.get(KEY, {})
    if not record:
        return _read_by_order(source, checkpoint), {}, ""
    users, items, known = _unpacked(record)
    try:
        check_split(source, record)
        parts = source.read()
    except DataError as error:
        if not is_same_place(source, record):
            raise
        none = nothing(known)
        return RatingsParts(none, none, none, none, none, 0), record, str(error)
    places = []
    for what, names, trained in (("users", parts.train.user_names, users), ("items", parts.train.item_names, items)):
        at = {name: number for number, name in enumerate(trained)}
        places.append(np.array([at.get(name, -1) for name in names], np.int64))
        what = f"{what} of {source.path or source.builtin}"
        check_matched(places[-1] >= 0, names, what=what, source="the training data", advice="they are left out")
    ratings: dict[str, Any] = {
        name: _by_names(getattr(parts, name), places[0], places[1], users, items) for name in parts._fields[:-1]
    }
    return parts._replace(**ratings), record | {"again": np.isin(ratings["test"].keys(), known.keys())}, ""


def _read_by_order(source: RatingsSource | InteractionsSource, checkpoint: dict[str, Any]) -> RatingsParts:
    """The parts of a source for a checkpoint without names; raises DataError if their users or items are not as many."""
    parts = source.read()
    sizes = parts.train.num_users, parts.train.num_items
    trained = tuple(described_argument(checkpoint, name) for name in ("num_users", "num_items"))
    if sizes != trained:
        raise DataError(
            f"{EARLIER}, which kept no names: it has {trained[0]} users and {trained[1]} items, the data have {sizes[0]} and "
            f"{sizes[1]}; restore the data it was trained on, or train again"
        )
    warnings.warn(f"{EARLIER}, which kept no names: users and items are matched by order", stacklevel=5)
    return parts


def _by_names(part: Ratings, user_at: np.ndarray, item_at: np.ndarray, user_names: Names, item_names: Names) -> Ratings:
    """Ratings in other indices of users and items, without those whose index is -1."""
    part = part.select((user_at[part.user] >= 0) & (item_at[part.item] >= 0))
    user, item = user_at[part.user], item_at[part.item]
    order = np.argsort(user, kind="stable")
    time = None if part.time is None else part.time[order]
    values: dict[str, Any] = {"user": user[order], "item": item[order], "rating": part.rating[order], "time": time}
    return replace(part, **values, user_names=user_names, item_names=item_names)


def _packed(names: Names) -> dict[str, Tensor]:
    return {name: torch.tensor(getattr(names, name)) for name in ("text", "offsets")}


def _unpacked(record: dict[str, Any]) -> tuple[Names, Names, Ratings]:
    """The names of users and items in a record, and what the users knew in training, as interactions."""
    users, items = (Names(*(record[kind][name].numpy() for name in ("text", "offsets"))) for kind in ("users", "items"))
    user, item = record["known"].long().numpy()
    return users, items, Ratings(user, item, np.ones(len(user), np.float32), users, items, "binary")


def _packed_lists(lists: RankingData) -> dict[str, Tensor]:
    return {name: torch.tensor(np.asarray(getattr(lists, name))) for name in ("features", "labels", "offsets")}


def _unpacked_lists(given: dict[str, Tensor], known: Ratings) -> RankingData:
    features, labels, offsets = (given[name].numpy() for name in ("features", "labels", "offsets"))
    users, items = features.astype(np.int64).T
    return RankingData(features, labels, offsets, known.user_names[users[offsets[:-1]]], known.item_names[items])


def _copy_factors(name: str, target: MatrixFactorization, known: Ratings) -> None:
    """Set the factors and biases of users and items to those of another run, by their names if it has kept them."""
    source: Any = load_scorer(name)
    record = read_checkpoint(scorer_file(name)).get(KEY, {})
    wanted = (target.num_users, target.num_items, target.rank)
    found = tuple(getattr(source, attribute, None) for attribute in ("num_users", "num_items", "rank"))
    if found[2] != wanted[2] or not (record or found == wanted):
        raise ValueError(
            f"{name} has a {type(source).__name__} with users, items and rank {found}; start_from requires {wanted}"
        )
    others = _unpacked(record)[:2] if record else (known.user_names, known.item_names)
    weights, theirs = target.state_dict(), source.state_dict()
    for kind, names, before in zip(("user", "item"), (known.user_names, known.item_names), others, strict=True):
        at = places_of(names, numbers_of(before))
        advice = "they keep their initial factors"
        check_matched(at >= 0, names, what=f"{kind}s of the data", source=name, advice=advice)
        for key in (f"{kind}_factors.weight", f"{kind}_offsets.weight"):
            if key in weights and key in theirs:
                weights[key][torch.from_numpy(at >= 0)] = theirs[key][at[at >= 0]].to(weights[key])
    target.load_state_dict(weights)


def _squared(factors: nn.Embedding, biases: nn.Embedding | None, rows: Tensor | None = None) -> Tensor:
    """Squared norms of some or all rows, including biases."""
    found = [part.weight if rows is None else part(rows) for part in (factors, biases) if part is not None]
    return torch.stack([values.square().sum(-1) for values in found]).sum(0)
