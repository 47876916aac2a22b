"""The Lightning data module of text: what `task: text` trains on."""

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

_MEASURED = 64  # training lists of which the objective is shown


class TextDataModule(ListsDataModule):
    """Candidates of a first stage, in tokens, as lists; what configs name.

    Args:
        path: a folder with `corpus.jsonl`, `queries.jsonl` and `qrels*.tsv`, BEIR's form; or give `builtin`.
        builtin: `"questions"`, a small made-up collection.
        encoder: a local folder or the name in a hub of a model of transformers; None is a tiny untrained one, for `builtin`.
        lists_per_batch: how many lists a training batch holds.
        max_list_size: longer training lists are sampled down to it, anew each epoch: the relevant documents and, as negatives,
            some that the first stage mistook.
        keep_relevant: whether such a sample has all relevant documents; else it is even.
        seed: of dividing, shuffling and sampling.
        source: more arguments of `rankstruct.text.TextSource`: `run`, `depth`, `max_length`, `fold`, `fetch`.

    Raises:
        ValueError: options that do not fit together, or a path that does not exist; one line.
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
        """Whether an encoder that is not here is fetched from the hub."""
        return self.lists.source.fetch

    @property
    def data_name(self) -> str:
        """The collection's name: the built-in one's or the folder's."""
        source = self.lists.source
        return source.builtin or Path(str(source.path)).resolve().name

    def describe(self) -> dict[str, Any]:
        """What a report says of the data."""
        source = self.lists.source
        fold = {} if source.fold is None else {"fold": source.fold}
        return {**super().describe(), "encoder": source.encoder or "tiny", "depth": source.depth, **fold}

    def remarks(self) -> list[str]:
        """How much of what is relevant the first stage found."""
        stage = "BM25" if self.lists.source.run is None else "the run"
        return [
            f"{stage} found {self.lists.found:.1%} of the test queries' relevant documents; what it found is ranked here"
        ]

    def keep(self, scorer: nn.Module, folder: Path) -> str:
        """Write model and tokenizer as transformers and sentence-transformers read them."""
        if not isinstance(scorer, CrossEncoderScorer):
            return ""
        scorer.save_pretrained(folder / "model")
        self.lists.tokenizer.save_pretrained(str(folder / "model"))
        return f"for sentence-transformers: CrossEncoder({str(folder / 'model')!r})"

    def objective_batches(self) -> BatchLoader:
        """Some training lists in fixed order: to score all of them would take longer than to train on them."""
        lists: RankingData = self.part("train")
        some = np.sort(np.random.default_rng(self.seed).permutation(lists.num_lists)[:_MEASURED])
        size = self.training["max_list_size"]
        return BatchLoader(lists.select(some), lists_per_batch=1, max_list_size=size, keep_relevant=True)
