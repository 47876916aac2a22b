"""The Lightning data module for text, used by `task: text`."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from rankstruct.data import BatchLoader, DataError, RankingData, Splits
from rankstruct.data.record import KEY, changed_files, check_unchanged, describe_source, is_same_place, told_change
from rankstruct.models.saving import read_checkpoint
from rankstruct.text.candidates import TextSource
from rankstruct.text.encoder import CrossEncoderScorer
from rankstruct.training.datamodule import ListsDataModule

__all__ = ["TextDataModule"]

_MEASURED = 64  # training lists for the logged objective


class TextDataModule(ListsDataModule):
    """Lists of tokenized first-stage candidates, as configured.

    Args:
        path: a folder with `corpus.jsonl`, `queries.jsonl` and `qrels*.tsv`, BEIR's format; or set `builtin`.
        builtin: `"questions"`, a small synthetic collection.
        encoder: a transformers model, as a local folder or a name in a hub; None is a tiny untrained one, for `builtin`.
        lists_per_batch: lists per training batch.
        max_list_size: longer training lists are subsampled to this size in each epoch: the relevant documents and, as hard
            negatives, some first-stage results.
        keep_relevant: whether such a sample has all relevant documents; otherwise it is uniform.
        trained_on: a checkpoint; judgements of training that have changed since are not read.
        seed: of the splits, shuffling and sampling.
        source: more arguments of `rankstruct.text.TextSource`: `run`, `depth`, `max_length`, `fold`, `fetch`.

    Raises:
        ValueError: inconsistent options, or a path that does not exist; one line.

    >>> import pytest
    >>> _ = pytest.importorskip("transformers")
    >>> data = TextDataModule(builtin="questions", lists_per_batch=4, depth=12, max_length=48)
    >>> data.part("test").num_lists
    48
    """

    evaluation_documents = 4096

    def __init__(
        self,
        path: str | None = None,
        builtin: str | None = None,
        encoder: str | None = None,
        lists_per_batch: int = 4,
        max_list_size: int | None = 16,
        keep_relevant: bool = True,
        trained_on: str | None = None,
        seed: int = 0,
        **source: Any,
    ) -> None:
        given = TextSource(path=path, builtin=builtin, encoder=encoder, seed=seed, **source)
        checkpoint = {} if trained_on is None else read_checkpoint(trained_on)
        record = checkpoint.get(KEY)
        self._changed = changed_files(given, record) if record and is_same_place(given, record) else {}
        self.lists = given.read(trained=bool(self._changed))
        training = {"lists_per_batch": lists_per_batch, "max_list_size": max_list_size, "keep_relevant": keep_relevant}
        super().__init__({**training, "drop_empty": True}, seed)
        self.restore(checkpoint)

    @property
    def splits(self) -> Splits:
        """Training, validation and test lists, whose features are tokens."""
        return self.lists.splits

    def part(self, name: str) -> RankingData:
        """Return the lists of a part; raises DataError for one that is divided off files that have changed since training."""
        judged = self.lists.collection.judgements if self._changed else {}
        if self._changed and ({"all", "qrels.tsv"} <= {*judged, *self._changed} or not {name, "all"} & set(judged)):
            raise DataError(
                f"{told_change(self.lists.source, self._changed)}, so that there are no {name} lists; restore it"
            )
        return self.lists.part(name)

    @cached_property
    def record(self) -> dict[str, Any]:
        """The path of the data, digests of their files and of the tokenizer, and the options of their split."""
        return {**describe_source(self.lists.source), "tokenizer": self.lists.tokenizer_digest()}

    def restore(self, checkpoint: dict[str, Any], *, resumed: bool = False) -> None:
        """Check that words have the tokens that a model was trained on.

        Raises:
            DataError: they have others; or `resumed`, and the data have changed.
        """
        record = checkpoint.get(KEY, {})
        if resumed:
            check_unchanged(self.lists.source, record)
        if record and record["tokenizer"] != self.lists.tokenizer_digest():
            raise DataError(
                f"{self.lists.source.encoder}: the tokenizer of the encoder is not that of training, so that words would have "
                "other tokens; restore it, or set data.encoder to the folder `model` of the run"
            )

    @property
    def encoder(self) -> str:
        """The encoder's folder or name."""
        return self.lists.encoder

    @property
    def fetch(self) -> bool:
        """Whether to download an encoder that is not available locally."""
        return self.lists.source.fetch

    @property
    def data_name(self) -> str:
        """The name of the collection in reports, that of the built-in one or the folder."""
        source = self.lists.source
        return source.builtin or Path(str(source.path)).resolve().name

    def describe(self) -> dict[str, Any]:
        """Return a description of the data for reports."""
        source = self.lists.source
        fold = {} if source.fold is None else {"fold": source.fold}
        return {**super().describe(), "encoder": source.encoder or "tiny", "depth": source.depth, **fold}

    def remarks(self) -> list[str]:
        """Report the recall of the first stage."""
        stage = "BM25" if self.lists.source.run is None else "the run"
        return [
            f"{stage} retrieved {self.lists.found:.1%} of the relevant documents of the test queries; only these are ranked"
        ]

    def keep(self, scorer: nn.Module, folder: Path) -> str:
        """Save model and tokenizer in a format that transformers and sentence-transformers read."""
        if not isinstance(scorer, CrossEncoderScorer):
            return ""
        scorer.save_pretrained(folder / "model")
        self.lists.tokenizer.save_pretrained(str(folder / "model"))
        return f"for sentence-transformers: CrossEncoder({str(folder / 'model')!r})"

    def objective_batches(self) -> BatchLoader:
        """Return a sample of training lists in fixed order, since scoring all would take longer than training on them."""
        lists: RankingData = self.part("train")
        some = np.sort(np.random.default_rng(self.seed).permutation(lists.num_lists)[:_MEASURED])
        size = self.training["max_list_size"]
        return BatchLoader(lists.select(some), lists_per_batch=1, max_list_size=size, keep_relevant=True)
