"""The Lightning data module: prepared lists from files or built-in sets, in batches of similar length."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from torch import nn

from rankstruct.data import BatchLoader, Pipeline, RankingData, Source, Splits, parse_steps
from rankstruct.data.predictions import read_for_model
from rankstruct.preparation import Preparation, full_name

__all__ = ["ListsDataModule", "RankingDataModule"]


class ListsDataModule(pl.LightningDataModule):
    """Training, validation and test lists in batches; a data module of your own implements `splits`.

    A config takes it by class path, with the arguments of its constructor: `rankstruct fit --data my_package.MyDataModule`. A
    `seed` among them is set from `seed_everything`, a `fold` by `rankstruct cross-validate`.

    Args:
        training: options of the training `BatchLoader`, except `shuffle`, `seed`, `rank` and `world_size`; batches of 8 lists if
            None.
        seed: of shuffling and sampling, which depend only on it and the epoch.

    >>> import rankstruct as rs
    >>> class Digits(ListsDataModule):
    ...     def __init__(self, lists_per_batch: int = 8, seed: int = 0):
    ...         super().__init__({"lists_per_batch": lists_per_batch}, seed)
    ...     @cached_property
    ...     def splits(self):
    ...         return rs.data.digits()                         # three `RankingData`: training, validation, test
    >>> data = Digits(lists_per_batch=4)
    >>> data.num_features, next(iter(data.train_dataloader())).labels.shape
    (64, torch.Size([4, 100]))
    """

    evaluation_documents = 50_000  # per evaluation batch
    #: Whether training and evaluation use the same labels.
    same_labels = True
    #: Whether the lists have all documents that are ranked; otherwise the module ranks more, such as a catalogue.
    complete = True

    def __init__(self, training: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__()
        self.training: dict[str, Any] = {"lists_per_batch": 8} if training is None else training
        self.seed = seed

    @property
    def splits(self) -> Splits:
        """Training, validation and test lists."""
        raise NotImplementedError

    def part(self, name: str) -> RankingData:
        """Return the lists of `"train"`, `"vali"` or `"test"`."""
        lists: RankingData = getattr(self.splits, name)
        return lists

    @property
    def predict_data(self) -> RankingData:
        """The lists that `predict` scores."""
        return self.part("test")

    @property
    def data_name(self) -> str:
        """The name of the data in reports, by default that of the class."""
        return type(self).__name__

    @property
    def num_features(self) -> int:
        """d, the number of features that the scorer takes."""
        return self.part("train").num_features

    def describe(self) -> dict[str, Any]:
        """Return a description of the data for reports."""
        return {"data": self.data_name, "seed": self.seed}

    def remarks(self) -> list[str]:
        """Return comments on the data that matter for interpreting the test measures."""
        return []

    def keep(self, scorer: nn.Module, folder: Path) -> str:
        """Save files that users of the scorer need in addition to checkpoints; returns a message about them."""
        return ""

    def train_dataloader(self) -> BatchLoader:
        """Return shuffled batches, whose order depends only on the seed and the epoch.

        Raises:
            ValueError: no training list is left.
        """
        lists = self.part("train")
        loader = BatchLoader(lists, shuffle=True, seed=self.seed, **self._place(), **self.training)
        if len(loader) == 0 and loader.left_out < lists.num_lists:
            raise ValueError(
                f"{self.data_name} has {lists.num_lists - loader.left_out} training lists with different labels, fewer than the "
                f"{loader.world_size} processes; reduce the number of processes, for example with trainer.devices"
            )
        if len(loader) == 0:
            raise ValueError(
                f"no training list of {self.data_name} can be learned from: {loader.left_out} of {lists.num_lists} were skipped, "
                "because all labels of a list are equal"
            )
        return loader

    def objective_batches(self) -> BatchLoader:
        """Return the lists used for training, complete, in large batches and in fixed order."""
        dropped = {name: value for name, value in self.training.items() if name == "drop_empty"}
        return BatchLoader(self.part("train"), documents_per_batch=self.evaluation_documents, **dropped)

    def val_dataloader(self) -> BatchLoader:
        """Return all validation lists once; with several processes, this process's share of them."""
        return self._evaluated(self.part("vali"))

    def test_dataloader(self) -> BatchLoader:
        """Return all test lists once; with several processes, this process's share of them."""
        return self._evaluated(self.part("test"))

    def predict_dataloader(self) -> BatchLoader:
        """Return all lists to predict once; with several processes, this process's share of them."""
        return self._evaluated(self.predict_data)

    def _evaluated(self, lists: RankingData) -> BatchLoader:
        return BatchLoader(lists, documents_per_batch=self.evaluation_documents, **self._place())

    def _place(self) -> dict[str, Any]:
        return {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size} if self.trainer else {}


class RankingDataModule(ListsDataModule):
    """Lists from a folder of files, or from a built-in set, as configured.

    Args:
        path: a folder with `train.txt`, `vali.txt` and `test.txt` (or another suffix, see `read_lists`), or with `Fold1` and so
            on; or set `builtin`.
        fold: the number n of the subfolder `Fold<n>`, if there are any.
        builtin: `"digits"` (real), `"synthetic"` or `"synthetic-groups"` (with groups), which need no files.
        lists_per_batch: lists per training batch, 8 by default; or set `documents_per_batch`.
        documents_per_batch: the maximum number of documents per training batch, including padding.
        max_list_size: longer training lists are subsampled to this size in each epoch; the test report includes their number.
        keep_relevant: whether such a sample has all relevant documents; otherwise it is uniform.
        drop_empty: skip training lists whose labels are all equal.
        predict_path: a file to predict; the test part if None.
        seed: of shuffling and sampling, which depend only on it and the epoch, and of `source`.
        source: more arguments of `rankstruct.data.Source`.

    Raises:
        ValueError: inconsistent options, an unknown name, or a path that does not exist; one line.

    >>> data = RankingDataModule(builtin="digits", lists_per_batch=16)
    >>> data.part("train").num_features, len(next(iter(data.train_dataloader())).labels)
    (64, 16)
    """

    def __init__(
        self,
        path: str | None = None,
        fold: int | None = None,
        builtin: str | None = None,
        lists_per_batch: int | None = None,
        documents_per_batch: int | None = None,
        max_list_size: int | None = None,
        drop_empty: bool = True,
        keep_relevant: bool = True,
        predict_path: str | None = None,
        seed: int = 0,
        **source: Any,
    ) -> None:
        self.source = Source(path=path, fold=fold, builtin=builtin, seed=seed, **source)
        self.source.check()
        if lists_per_batch is not None and documents_per_batch is not None:
            raise ValueError("set lists_per_batch or documents_per_batch, not both")
        if lists_per_batch is None and documents_per_batch is None:
            lists_per_batch = 8
        size = {"lists_per_batch": lists_per_batch, "documents_per_batch": documents_per_batch}
        sampling = {"max_list_size": max_list_size, "keep_relevant": keep_relevant}
        super().__init__({**size, **sampling, "drop_empty": drop_empty}, seed)
        self.predict_path, self._steps = predict_path, Pipeline()

    @cached_property
    def splits(self) -> Splits:
        """Training, validation and test lists, read and prepared on first use."""
        splits, self._steps = self.source.prepare_splits(self.source.read_raw())
        return splits

    @property
    def preparation(self) -> Preparation:
        """The preparation of raw features, fitted to the training lists or set by `use_preparation`."""
        _ = self.splits  # fits it
        return self._steps.preparation

    def use_preparation(self, preparation: Preparation | None) -> None:
        """Use the preparation of a trained model; None for a checkpoint of an earlier version, which does not contain it.

        Raises:
            ValueError: its steps differ from those of the data.
        """
        mine = self.preparation
        if preparation is None:  # the unit of the logarithm was 1 then
            names = [name.replace(full_name("log"), "log:1") for name in mine.names]
            preparation = Preparation(names, mine.num_features, mine.fitted)
        if preparation.equals(mine):
            return
        self._steps = self._steps.with_preparation(preparation)
        raw = (part.recoded(preparation.columns) for part in self.source.read_raw())
        self.splits = self.source.prepare_parts(Splits(*map(self._steps, raw)))

    @property
    def data_name(self) -> str:
        """The name of the data in reports, that of the built-in set or the folder."""
        return self.source.builtin or Path(str(self.source.path)).resolve().name

    def describe(self) -> dict[str, Any]:
        """Return a description of the data for reports."""
        return super().describe() | ({} if self.source.fold is None else {"fold": self.source.fold})

    def remarks(self) -> list[str]:
        """Report how many training lists were subsampled."""
        most, train = self.training["max_list_size"], self.part("train")
        lengths = train.lengths[~train.same_labels()] if self.training["drop_empty"] else train.lengths
        longer = 0 if most is None else int((lengths > most).sum())
        kept = "keeping all relevant documents" if self.training["keep_relevant"] else "uniformly"
        told = f"{longer} of {len(lengths)} training lists have more than {most} documents and were subsampled each epoch, {kept}"
        return [told] if longer else []

    @cached_property
    def predict_data(self) -> RankingData:
        """The lists that `predict` scores: `predict_path`, or the test part."""
        if self.predict_path is None:
            return self.splits.test
        num_features = self.preparation.num_features or self.splits.train.num_features
        names, columns = self.source.feature_names(), self.preparation.columns
        lists = read_for_model(self.predict_path, names, num_features, columns, **self.source.reading)
        return parse_steps(self.source.prepare_test)(self._steps(lists))
