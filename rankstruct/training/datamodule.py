"""The Lightning data module: files or built-in sets, prepared, in batches of similar length."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from torch import nn

from rankstruct.data import BatchLoader, RankingData, Source, Splits, Steps, parse_steps
from rankstruct.data.predictions import read_for_model
from rankstruct.preparation import Preparation, full_name

__all__ = ["RankingDataModule"]


class ListsDataModule(pl.LightningDataModule):
    """Training, validation and test lists in batches; a module of one's own says how they are read, in `splits`.

    Args:
        training: options of the training `BatchLoader`, but for `shuffle`, `seed`, `rank` and `world_size`.
        seed: of shuffling and sampling, which depend on it and the epoch alone.
    """

    evaluation_documents = 50_000  # a batch where nothing is learned
    #: Whether the labels that are learned are those that are measured.
    same_labels = True

    def __init__(self, training: dict[str, Any], seed: int) -> None:
        super().__init__()
        self.training, self.seed = training, seed

    @property
    def splits(self) -> Splits:
        """Training, validation and test lists."""
        raise NotImplementedError

    def part(self, name: str) -> RankingData:
        """The lists of `"train"`, `"vali"` or `"test"`."""
        lists: RankingData = getattr(self.splits, name)
        return lists

    @property
    def predict_data(self) -> RankingData:
        """The lists that `predict` scores."""
        return self.part("test")

    @property
    def data_name(self) -> str:
        """What the data are called in reports."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """What a report says of the data."""
        return {"data": self.data_name, "seed": self.seed}

    def remarks(self) -> list[str]:
        """What a reader of the test measures has to know of the data."""
        return []

    def keep(self, scorer: nn.Module, folder: Path) -> str:
        """Write what users of the trained scorer need beside the checkpoints into the run's folder; returns what to say of it."""
        return ""

    def train_dataloader(self) -> BatchLoader:
        """Shuffled batches; their order depends on the seed and the epoch alone.

        Raises:
            ValueError: no training list is left.
        """
        lists = self.part("train")
        loader = BatchLoader(lists, shuffle=True, seed=self.seed, **self._place(), **self.training)
        if len(loader) == 0 and loader.left_out < lists.num_lists:
            raise ValueError(
                f"{self.data_name} has {lists.num_lists - loader.left_out} training lists that a ranking can get wrong, fewer "
                f"than the {loader.world_size} processes; train with so many, or give trainer.devices"
            )
        if len(loader) == 0:
            raise ValueError(
                f"{self.data_name} has no training list that a ranking can get wrong: {loader.left_out} of "
                f"{lists.num_lists} were left out, because all of a list's labels are equal"
            )
        return loader

    def objective_batches(self) -> BatchLoader:
        """The training lists in large batches, whole and in fixed order, the same ones that training sees."""
        dropped = {name: value for name, value in self.training.items() if name == "drop_empty"}
        return BatchLoader(self.part("train"), documents_per_batch=self.evaluation_documents, **dropped)

    def val_dataloader(self) -> BatchLoader:
        """All validation lists, each once; of several processes this one's share of them."""
        return self._evaluated(self.part("vali"))

    def test_dataloader(self) -> BatchLoader:
        """All test lists, each once; of several processes this one's share of them."""
        return self._evaluated(self.part("test"))

    def predict_dataloader(self) -> BatchLoader:
        """All lists to predict, each once; of several processes this one's share of them."""
        return self._evaluated(self.predict_data)

    def _evaluated(self, lists: RankingData) -> BatchLoader:
        return BatchLoader(lists, documents_per_batch=self.evaluation_documents, **self._place())

    def _place(self) -> dict[str, Any]:
        return {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size} if self.trainer else {}


class RankingDataModule(ListsDataModule):
    """Lists from a folder of files, or from a built-in set; what configs name.

    Args:
        path: a folder with `train.txt`, `vali.txt` and `test.txt` (or another suffix, see `read_lists`), or with `Fold1` and so
            on; or give `builtin`.
        fold: which `Fold<n>` of the folder, where it has them.
        builtin: `"digits"` (real), `"synthetic"` or `"synthetic-groups"` (with groups), which need no files.
        lists_per_batch: how many lists a training batch holds, 8 by default; or give `documents_per_batch`.
        documents_per_batch: how many documents, padding included, a training batch may hold.
        max_list_size: longer training lists are sampled down to it, anew each epoch; how many is said in the test report.
        keep_relevant: whether such a sample has all relevant documents; else it is even.
        drop_empty: leave out training lists that no ranking can get wrong.
        predict_path: a file to predict; the test part if None.
        seed: of shuffling and sampling, which depend on it and the epoch alone, and of `source`.
        source: more arguments of `rankstruct.data.Source`.

    Raises:
        ValueError: options that do not fit together, an unknown name, or a path that does not exist; one line.
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
            raise ValueError("give lists_per_batch or documents_per_batch, not both")
        if lists_per_batch is None and documents_per_batch is None:
            lists_per_batch = 8
        size = {"lists_per_batch": lists_per_batch, "documents_per_batch": documents_per_batch}
        sampling = {"max_list_size": max_list_size, "keep_relevant": keep_relevant}
        super().__init__({**size, **sampling, "drop_empty": drop_empty}, seed)
        self.predict_path, self._steps = predict_path, Steps()

    @cached_property
    def splits(self) -> Splits:
        """Training, validation and test lists, read and prepared at first use."""
        splits, self._steps = self.source.prepare_splits(self.source.read_raw())
        return splits

    @property
    def preparation(self) -> Preparation:
        """What raw features go through, as fitted to the training lists or taken by `use_preparation`."""
        _ = self.splits  # which are what it is fitted to
        return self._steps.preparation

    def use_preparation(self, preparation: Preparation | None) -> None:
        """Prepare the lists as a model's were; None is that of an earlier version, of which a checkpoint does not tell.

        Raises:
            ValueError: it has other steps than the data.
        """
        mine = self.preparation
        if preparation is None:  # where a logarithm's unit was 1
            names = [name.replace(full_name("log"), "log:1") for name in mine.names]
            preparation = Preparation(names, mine.num_features, mine.fitted)
        if preparation.equals(mine):
            return
        self._steps = self._steps.with_preparation(preparation)
        self.splits = self.source.prepare_parts(Splits(*map(self._steps, self.source.read_raw())))

    @property
    def data_name(self) -> str:
        """What the data are called in reports: the built-in set's name or the folder's."""
        return self.source.builtin or Path(str(self.source.path)).resolve().name

    def describe(self) -> dict[str, Any]:
        """What a report says of the data."""
        return super().describe() | ({} if self.source.fold is None else {"fold": self.source.fold})

    def remarks(self) -> list[str]:
        """How many of the lists that are trained on were sampled."""
        most, train = self.training["max_list_size"], self.part("train")
        lengths = train.lengths[~train.same_labels()] if self.training["drop_empty"] else train.lengths
        longer = 0 if most is None else int((lengths > most).sum())
        kept = "all relevant documents among them" if self.training["keep_relevant"] else "evenly"
        told = f"{longer} of {len(lengths)} training lists have more than {most} documents and were sampled each epoch, {kept}"
        return [told] if longer else []

    @property
    def num_features(self) -> int:
        """d, the number of features of a prepared document."""
        return self.splits.train.num_features

    @cached_property
    def predict_data(self) -> RankingData:
        """The lists that `predict` scores: `predict_path`, or else the test part."""
        if self.predict_path is None:
            return self.splits.test
        num_features = self.preparation.num_features or self.splits.train.num_features
        names, cache = self.source.feature_names(), self.source.cache
        lists = read_for_model(self.predict_path, names, num_features, cache=cache, zero_based=self.source.zero_based)
        return parse_steps(self.source.prepare_test)(self._steps(lists))
