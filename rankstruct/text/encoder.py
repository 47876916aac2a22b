"""A cross-encoder as a scorer: pairs of query and document as rows of tokens, which any list of the library can hold.

A token of a row is `id + 2^22 segment`, -1 behind the end: whole numbers that float32 holds exactly. So lists of text are lists
of features as any other, and everything that reads, samples, batches and scores lists takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankstruct.data.errors import check_least
from rankstruct.scoring import sliced_scores

__all__ = ["CrossEncoderScorer", "encode_pairs", "load_tokenizer"]

_SEGMENT = 2**22
_TOKENIZED = 8192  # pairs at a time


def load_tokenizer(encoder: str | Path, *, fetch: bool = False) -> Any:
    """The tokenizer of an encoder: a local folder, or the name of one in a hub.

    Raises:
        ValueError: it is not here, and `fetch` does not ask to fetch it.
    """
    return _loaded("AutoTokenizer", encoder, fetch)


def encode_pairs(tokenizer: Any, queries: Sequence[str], documents: Sequence[str], max_length: int = 128) -> np.ndarray:
    """Pairs as rows of tokens, `[pairs, longest pair]` float32; see the module. Longer pairs lose the end of the document.

    Raises:
        ValueError: the vocabulary is too large to be held so, or a query alone fills a pair.
    """
    check_least(8, max_length=max_length)
    if len(tokenizer) >= _SEGMENT:
        raise ValueError(f"a vocabulary may have at most {_SEGMENT} tokens here, got {len(tokenizer)}")
    rows = np.full((len(queries), max_length), -1, np.float32)
    longest = 1
    for first in range(0, len(queries), _TOKENIZED):
        part = slice(first, first + _TOKENIZED)
        told = {"truncation": "only_second", "max_length": max_length, "return_attention_mask": False}
        try:
            found = tokenizer(list(queries[part]), list(documents[part]), **told)
        except Exception as error:  # of the tokenizer's own kind where nothing of the document is left
            raise ValueError(f"a query has {max_length} tokens or more; give a larger max_length") from error
        segments = found.get("token_type_ids") or [None] * len(found["input_ids"])
        for at, (ids, types) in enumerate(zip(found["input_ids"], segments, strict=True), first):
            rows[at, : len(ids)] = np.asarray(ids) + _SEGMENT * np.asarray(0 if types is None else types)
            longest = max(longest, len(ids))
    return np.ascontiguousarray(rows[:, :longest])


class CrossEncoderScorer(nn.Module):
    """A transformer that reads query and document together and gives one score.

    Args:
        encoder: a local folder or the name in a hub of a model of transformers, whose head is taken if it has one with one output
            and made anew otherwise; or the content of its `config.json`, for weights to be loaded into.
        documents_at_once: how many documents are scored at once: in training memory is that of so many, at the cost of one more
            forward pass (see `rankstruct.sliced_scores`); all at once if None.
        frozen_layers: how many of the first layers, and with any the embeddings, are not trained.
        fetch: whether a model that is not here is fetched from the hub.

    Raises:
        ValueError: there is no such model here, or it has fewer layers.

    Shapes: rows of tokens `[..., list_size, tokens]`, as `encode_pairs` makes them, to scores `[..., list_size]`; a row without a
    token, which is padding, has score 0.
    """

    #: What it scores are no quantities that could be rounded.
    takes_tokens = True

    def __init__(
        self,
        encoder: str | dict[str, Any],
        documents_at_once: int | None = 32,
        frozen_layers: int = 0,
        fetch: bool = False,
    ) -> None:
        super().__init__()
        self.model: Any  # of transformers
        check_least(1, documents_at_once=documents_at_once)
        check_least(0, frozen_layers=frozen_layers)
        self.model = _make_model(encoder, fetch).train()
        self.documents_at_once, self.frozen_layers, self.fetch = documents_at_once, frozen_layers, False
        if frozen_layers:
            self._freeze(frozen_layers)

    @property
    def encoder(self) -> dict[str, Any]:
        """What the same architecture is made from, without weights."""
        described: dict[str, Any] = self.model.config.to_dict()
        return described

    def _freeze(self, layers: int) -> None:
        body = self.model.base_model
        stacks = [each for each in body.modules() if isinstance(each, nn.ModuleList)]
        known = list(max(stacks, key=len, default=[]))
        if len(known) < layers:
            raise ValueError(f"frozen_layers must be at most {len(known)}, the model's layers; got {layers}")
        embeddings = [each for name, each in body.named_children() if "embed" in name]
        for part in [*embeddings, *known[:layers]]:
            part.requires_grad_(False)

    def forward(self, rows: Tensor) -> Tensor:
        """Scores `[..., list_size]`."""
        flat = rows.reshape(-1, rows.shape[-1])
        lengths = (flat >= 0).sum(-1)
        real = (lengths > 0).nonzero().squeeze(-1)
        order = real[lengths[real].argsort()]  # neighbours in length have little padding
        scores = flat.new_zeros(len(flat), dtype=torch.float32)
        if len(order):
            found = sliced_scores(self._of_some, flat[order], self.documents_at_once, self.model.parameters())
            scores = scores.to(found.dtype).index_copy(0, order, found)
        return scores.reshape(rows.shape[:-1])

    def _of_some(self, rows: Tensor) -> Tensor:
        rows = rows[:, : int((rows >= 0).sum(-1).max())].long()
        there = rows >= 0
        ids = torch.where(there, rows % _SEGMENT, self.model.config.pad_token_id or 0)
        given = {"input_ids": ids, "attention_mask": there.long()}
        if getattr(self.model.config, "type_vocab_size", 0) > 1:
            given["token_type_ids"] = torch.where(there, rows // _SEGMENT, 0)
        return self.model(**given).logits.squeeze(-1)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model as transformers and sentence-transformers' `CrossEncoder(folder)` read it."""
        quietly(self.model.save_pretrained, folder)


def _make_model(encoder: str | dict[str, Any], fetch: bool) -> nn.Module:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    if isinstance(encoder, dict):
        kind = dict(encoder)
        config = AutoConfig.for_model(kind.pop("model_type"), **kind)
        return AutoModelForSequenceClassification.from_config(config)
    config = _loaded("AutoConfig", encoder, fetch)
    config.num_labels = 1
    model = _loaded("AutoModelForSequenceClassification", encoder, fetch, config=config, ignore_mismatched_sizes=True)
    model.config.problem_type = None
    return model


def _loaded(kind: str, encoder: str | Path, fetch: bool, **options: Any) -> Any:
    import transformers

    try:
        return quietly(getattr(transformers, kind).from_pretrained, str(encoder), local_files_only=not fetch, **options)
    except (OSError, ValueError) as error:
        told = " ".join(str(error).split())[:200]
        way_out = "" if fetch else "; give a local folder, or fetch=True (data.fetch) to fetch it from the hub"
        raise ValueError(f"{encoder}: no model of transformers can be read there{way_out} ({told})") from error


def quietly(call: Any, *args: Any, **options: Any) -> Any:
    """Call without transformers' bars and reports of the head that is made anew."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        return call(*args, **options)
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
