"""The Lightning data module for text, used by `task: text`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from rankstruct.data import BatchLoader, RankingData, Splits
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
        seed: int = 0,
        **source: Any,
    ) -> None:
        self.lists = TextSource(path=path, builtin=builtin, encoder=encoder, seed=seed, **source).read()
        training = {"lists_per_batch": lists_per_batch, "max_list_size": max_list_size, "keep_relevant": keep_relevant}
        super().__init__({**training, "drop_empty": True}, seed)

    @property
    def splits(self) -> Splits:
        """Training, validation and test lists, whose features are tokens."""
        return self.lists.splits

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
