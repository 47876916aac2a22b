"""The Lightning data module: prepared lists from files or built-in sets, in batches of similar length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch import nn

from rankstruct.data import BatchLoader, RankingData, Source, Splits
from rankstruct.data.errors import check_selecting
from rankstruct.data.folds import find_parts
from rankstruct.data.pipeline import Pipeline
from rankstruct.data.predictions import read_for_model
from rankstruct.data.record import KEY, check_not_learned, check_split, check_unchanged, describe_source, list_marks
from rankstruct.data.shards import absolute
from rankstruct.models.saving import described_argument, described_names, described_preparation, read_checkpoint
from rankstruct.preparation import Preparation, full_name

__all__ = ["ListsDataModule", "RankingDataModule"]

#: The parts that a model has learned from, or was selected by, when a part is evaluated.
_BEFORE = {"train": (), "vali": ("train",), "test": ("train", "vali")}


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
    #: Why there are no lists to predict, if there are none.
    nothing_to_predict = ""

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

    @property
    def record(self) -> dict[str, Any]:
        """What a checkpoint keeps of the data, plain values and tensors, from which `restore` takes names; nothing by default."""
        return {}

    @property
    def names(self) -> dict[str, Any]:
        """The names that a model is tied to, such as those of features, for reports; none by default."""
        return {}

    def restore(self, checkpoint: dict[str, Any], *, resumed: bool = False) -> None:
        """Use the names and the preparation in a checkpoint for all lists that are read from now on; does nothing by default.

        Args:
            checkpoint: the content of the checkpoint.
            resumed: whether training goes on, which requires the same data.
        """

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
        """Return all validation lists once; with several processes, this process's share of them.

        Raises:
            ValueError: training would be controlled by lists of which every ranking is equally good.
        """
        lists = self.part("vali")
        if self.complete and self.trainer and self.trainer.state.fn == "fit":
            self._check_judged(lists)
        return self._evaluated(lists)

    def _check_judged(self, lists: RankingData) -> None:
        """Raise ValueError if all labels are equal in each validation list; warn if in half of them."""
        if lists.diversity_groups is None:
            check_selecting(
                int(lists.same_labels().sum()),
                lists.num_lists,
                "all labels are equal, so that every ranking is equally good",
                "pass others, or train without, with trainer.limit_val_batches=0",
                what=f"validation lists of {self.data_name}",
                warn=rank_zero_warn,
            )

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
            on; or set `builtin`. Parts may be folders of Parquet files, and `path` then a URL: features are read as training
            goes.
        fold: the number n of the subfolder `Fold<n>`, if there are any.
        builtin: `"digits"` (real), `"synthetic"` or `"synthetic-groups"` (with groups), which need no files.
        lists_per_batch: lists per training batch, 8 by default; or set `documents_per_batch`.
        documents_per_batch: the maximum number of documents per training batch, including padding.
        max_list_size: longer training lists are subsampled to this size in each epoch; the test report includes their number.
        keep_relevant: whether such a sample has all relevant documents; otherwise it is uniform.
        drop_empty: skip training lists whose labels are all equal.
        predict_path: a file to predict; the test part if None.
        trained_on: a checkpoint, whose names of features and preparation are used; the training file is then not read, and may
            have changed.
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
        trained_on: str | None = None,
        seed: int = 0,
        **source: Any,
    ) -> None:
        self.source = Source(path=path, fold=fold, builtin=builtin, seed=seed, **source)
        self.source.check(files=trained_on is None)
        if lists_per_batch is not None and documents_per_batch is not None:
            raise ValueError("set lists_per_batch or documents_per_batch, not both")
        if lists_per_batch is None and documents_per_batch is None:
            lists_per_batch = 8
        size = {"lists_per_batch": lists_per_batch, "documents_per_batch": documents_per_batch}
        sampling = {"max_list_size": max_list_size, "keep_relevant": keep_relevant}
        super().__init__({**size, **sampling, "drop_empty": drop_empty}, seed)
        self.predict_path, self._steps = predict_path, Pipeline()
        self._model: _Model | None = None  # whose features are read; otherwise those of the training file
        self._parts: dict[str, RankingData] = {}  # read for it
        if trained_on is not None:
            self.restore(read_checkpoint(trained_on))

    @cached_property
    def splits(self) -> Splits:
        """Training, validation and test lists, read and prepared on first use."""
        if self._model is not None:
            return Splits(*map(self.part, Splits._fields))
        raw = self.source.read_raw()
        splits, self._steps = self.source.prepare_splits(raw)
        learned = {part: torch.tensor(list_marks(getattr(raw, part)).view(np.int64)) for part in ("train", "vali")}
        record = describe_source(self.source) | {"num_features": raw.train.num_features, "learned": learned}
        self._own = _Model(self.source.feature_names(), raw.train.num_features, self._steps.preparation, record)
        return splits

    def part(self, name: str) -> RankingData:
        """Return the lists of `"train"`, `"vali"` or `"test"`; for a trained model, only their file is read."""
        if self._model is None:
            return super().part(name)
        if name not in self._parts:
            self._parts[name] = self._part_for(self._model, name)
        return self._parts[name]

    def _part_for(self, model: _Model, name: str) -> RankingData:
        source = self.source
        if source.path is None or source.protocol != "folds":
            check_split(source, model.record)
            data: RankingData = getattr(source.read_raw(model.reader(source)), name)
        else:
            file = find_parts(source.path, source.fold, [name])[name]
            assert file is not None  # it is required
            data = source.grouped(model.reader(source)(file))
        learned = model.record.get("learned", {})
        if known := [learned[part].numpy() for part in _BEFORE[name] if part in learned]:
            marks = list_marks(data).view(np.int64)
            check_not_learned((marks != 0) & np.isin(marks, np.concatenate(known)), "lists", source, model.record)
        return self._steps(data)

    def _trained(self) -> _Model:
        """What a model is trained on: that of a checkpoint, or the training lists."""
        if self._model is None:
            _ = self.splits
        return self._own if self._model is None else self._model

    @property
    def preparation(self) -> Preparation:
        """The preparation of raw features, fitted to the training lists or that of a checkpoint."""
        return self._trained().preparation

    @property
    def feature_names(self) -> list[str] | None:
        """The names of the raw features; None if they have only numbers."""
        return self._trained().names

    @property
    def names(self) -> dict[str, Any]:
        """The names of the raw features, as `feature_names`."""
        return {"feature_names": self.feature_names}

    @property
    def num_features(self) -> int:
        """d, the number of prepared features that the scorer takes."""
        return super().num_features if self._model is None else self._model.width

    @property
    def record(self) -> dict[str, Any]:
        """The path of the data, digests of their files, the options of their split, the number of raw features and remarks."""
        record = self._trained().record
        if self._model is None and "remarks" not in record:
            record["remarks"] = self.remarks()
        return record

    def restore(self, checkpoint: dict[str, Any], *, resumed: bool = False) -> None:
        """Use the names of features and the preparation of a trained model; training files are then not read.

        Raises:
            ValueError: the steps of its preparation differ from those of the data.
            DataError: `resumed`, and the data are not those that the model was trained on.
        """
        record: dict[str, Any] = checkpoint.get(KEY, {})
        if resumed:
            check_unchanged(self.source, record)
        preparation = described_preparation(checkpoint)
        if preparation is None:  # of a version that kept none; the unit of the logarithm was 1 then
            mine = self.preparation
            units = [name.replace(full_name("log"), "log:1") for name in mine.names]
            preparation = Preparation(units, mine.num_features, mine.fitted)
        names = described_names(checkpoint)
        if names is None and preparation.columns is not None:
            names = preparation.columns.names
        width = record.get("num_features", preparation.num_features) or described_argument(checkpoint, "num_features")
        if width is None:
            raise ValueError(
                "the checkpoint, of an earlier version, does not say how many features there were; train again"
            )
        model = _Model(names, width, preparation, record)
        known = self._model or (self._own if "splits" in self.__dict__ else None)
        if known is not None and model.equals(known):
            return
        self._steps, self._model = Pipeline.of(self.source.prepare, preparation), model
        self._parts.clear()
        for name in ("splits", "predict_data"):  # read for others
            self.__dict__.pop(name, None)

    @property
    def data_name(self) -> str:
        """The name of the data in reports, that of the built-in set or the folder."""
        return self.source.builtin or Path(absolute(str(self.source.path))).name

    def describe(self) -> dict[str, Any]:
        """Return a description of the data for reports."""
        return super().describe() | ({} if self.source.fold is None else {"fold": self.source.fold})

    def remarks(self) -> list[str]:
        """Report how many training lists were subsampled."""
        if self._model is not None:
            return list(self._model.record.get("remarks", []))
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
            return self.part("test")
        lists = self._trained().reader(self.source, labels="optional")(Path(self.predict_path))
        return self._steps(lists)


@dataclass(frozen=True)
class _Model:
    """What the lists of a model are read by: names and number of raw features, their preparation, the record of the data."""

    names: list[str] | None
    num_features: int
    preparation: Preparation
    record: dict[str, Any]

    @property
    def width(self) -> int:
        """The number of prepared features."""
        return self.preparation.width if self.preparation.names else self.num_features

    def reader(self, source: Source, labels: str | None = None) -> Callable[[Path], RankingData]:
        """A reader of files, with the options of a source."""
        names, columns = self.names, self.preparation.columns
        labels = source.labels if labels is None else labels
        return lambda file: read_for_model(file, names, self.num_features, columns, labels=labels, **source.reading)

    def equals(self, other: _Model) -> bool:
        """Whether lists are the same for another model; an earlier version kept no names."""
        same = self.num_features == other.num_features and self.preparation.equals(other.preparation)
        return same and (not self.record or self.names == other.names)
