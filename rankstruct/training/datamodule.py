"""The Lightning data module: files or built-in sets, prepared, in batches of similar length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl

from rankstruct.data import (
    BatchLoader,
    RankingData,
    Splits,
    parse_preparation,
    read_splits,
    read_svmlight,
)
from rankstruct.data.source import check_source

_EVALUATION_DOCUMENTS = 50_000  # documents a batch where nothing is learned


class RankingDataModule(pl.LightningDataModule):
    r"""Training, validation and test lists from a folder of SVMlight/LETOR files, or from a built-in set.

    Args:
        path: a folder with `train.txt`, `vali.txt` and `test.txt`, or with `Fold1` and so on; or give `builtin`.
        fold: which `Fold<n>` of the folder, where it has them.
        builtin: `"digits"` (real), `"synthetic"` or `"synthetic-hosts"` (with groups), which need no files.
        prepare: preparation steps by name, such as `["query-minmax"]` or `["append-log"]`.
        labels: `"grades"` takes non-negative integers alone, `"real"` any number.
        lists_per_batch: how many lists a training batch holds; or give `documents_per_batch`.
        documents_per_batch: how many documents, padding included, a training batch may hold.
        max_list_size: longer training lists are sampled down to it, anew each epoch.
        drop_empty: leave out training lists that no ranking can get wrong.
        seed: of shuffling and sampling, which depend on it and the epoch alone.
        cache: whether parsed files are kept in the cache folder.
        predict_path: a file to predict; the test part if None.
        groups: where documents' groups come from, for losses and measures of diversity: a regular expression with one pair of
            parentheses for the comments of the files, such as `"host = (\S+)"`, or the number of a column before any
            preparation, from 0. None for no groups, or those that a built-in set has.
    """

    def __init__(
        self,
        path: str | None = None,
        fold: int | None = None,
        builtin: Literal["digits", "synthetic", "synthetic-hosts"] | None = None,
        prepare: Sequence[str] = (),
        labels: Literal["grades", "real"] = "grades",
        lists_per_batch: int | None = None,
        documents_per_batch: int | None = None,
        max_list_size: int | None = None,
        drop_empty: bool = True,
        seed: int = 0,
        cache: bool = True,
        predict_path: str | None = None,
        groups: int | str | None = None,
    ) -> None:
        super().__init__()
        check_source(path, builtin)
        if lists_per_batch is not None and documents_per_batch is not None:
            raise ValueError("give lists_per_batch or documents_per_batch, not both")
        if lists_per_batch is None and documents_per_batch is None:
            lists_per_batch = 8
        self.path, self.fold, self.builtin = path, fold, builtin
        self.prepare = parse_preparation(list(prepare))
        self.labels = labels
        self.lists_per_batch, self.documents_per_batch = lists_per_batch, documents_per_batch
        self.max_list_size = max_list_size
        self.drop_empty = drop_empty
        self.seed = seed
        self.cache = cache
        self.predict_path = predict_path
        self.groups = groups
        self._splits: Splits | None = None
        self._raw_num_features = 0
        self._predict_data: RankingData | None = None

    @property
    def splits(self) -> Splits:
        """Training, validation and test lists, read and prepared at first use."""
        if self._splits is None:
            raw = read_splits(
                self.path, self.fold, builtin=self.builtin, labels=self.labels, seed=self.seed, cache=self.cache
            )
            self._raw_num_features = raw.train.num_features
            self._splits = Splits(*(self.prepare(part.grouped_by(self.groups)) for part in raw))
        return self._splits

    @property
    def data_name(self) -> str:
        """What the data are called in reports: the built-in set's name or the folder's."""
        return self.builtin if self.builtin is not None else Path(str(self.path)).resolve().name

    def describe(self) -> dict[str, Any]:
        """What a report says of the data."""
        return {"data": self.data_name, "fold": self.fold or 0, "seed": self.seed}

    def remarks(self) -> list[str]:
        """What a reader of the test measures has to know of the data."""
        return []

    @property
    def num_features(self) -> int:
        """d, the number of features of a prepared document."""
        return self.splits.train.num_features

    @property
    def predict_data(self) -> RankingData:
        """The lists that `predict` scores: `predict_path`, or else the test part."""
        if self.predict_path is None:
            return self.splits.test
        if self._predict_data is None:
            assert self.splits is not None  # read, so that the number of raw features is known
            raw = read_svmlight(
                self.predict_path, num_features=self._raw_num_features, labels=self.labels, cache=self.cache
            )
            self._predict_data = self.prepare(raw)
        return self._predict_data

    def train_dataloader(self) -> BatchLoader:
        """Shuffled batches; their order depends on the seed and the epoch alone."""
        trainer = self.trainer
        loader = BatchLoader(
            self.splits.train,
            lists_per_batch=self.lists_per_batch,
            documents_per_batch=self.documents_per_batch,
            max_list_size=self.max_list_size,
            shuffle=True,
            seed=self.seed,
            drop_empty=self.drop_empty,
            rank=trainer.global_rank if trainer else 0,
            world_size=trainer.world_size if trainer else 1,
        )
        if len(loader) == 0:
            raise ValueError(
                f"{self.data_name} has no training list that a ranking can get wrong: {loader.left_out} of "
                f"{self.splits.train.num_lists} were left out, because all of a list's labels are equal"
            )
        return loader

    def objective_batches(self) -> BatchLoader:
        """The training lists in large batches, whole and in fixed order, the same ones that training sees."""
        return BatchLoader(self.splits.train, documents_per_batch=_EVALUATION_DOCUMENTS, drop_empty=self.drop_empty)

    def val_dataloader(self) -> BatchLoader:
        """All validation lists."""
        return BatchLoader(self.splits.vali, documents_per_batch=_EVALUATION_DOCUMENTS)

    def test_dataloader(self) -> BatchLoader:
        """All test lists."""
        return BatchLoader(self.splits.test, documents_per_batch=_EVALUATION_DOCUMENTS)

    def predict_dataloader(self) -> BatchLoader:
        """All lists to predict."""
        return BatchLoader(self.predict_data, documents_per_batch=_EVALUATION_DOCUMENTS)
