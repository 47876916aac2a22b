"""A cross-encoder as a scorer of query-document pairs, which are stored as rows of tokens in the library's lists.

A token of a row is `id + 2^22 segment`, padded with -1: integers that float32 represents exactly. Lists of text are therefore
ordinary lists of features for all code that reads, samples, batches and scores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankstruct.checks import check_integers
from rankstruct.data.errors import DataError
from rankstruct.messages import import_extra
from rankstruct.scoring import sliced_scores

__all__ = ["CrossEncoderScorer", "encode_pairs", "load_tokenizer"]

_SEGMENT = 2**22
_TOKENIZED = 8192  # pairs per call
ENCODERS = "text", "a tokenizer or an encoder of text", DataError


def load_tokenizer(encoder: str | Path, *, fetch: bool = False) -> Any:
    """Load the tokenizer of an encoder, given by a local folder or a name in a hub.

    Raises:
        ValueError: it is not available locally, and `fetch` is False.
    """
    return _loaded("AutoTokenizer", encoder, fetch)


def encode_pairs(tokenizer: Any, queries: Sequence[str], documents: Sequence[str], max_length: int = 128) -> np.ndarray:
    """Encode pairs as rows of tokens, `[pairs, longest pair]` float32; see the module. Documents are truncated to `max_length`.

    Raises:
        ValueError: the vocabulary is too large for this encoding, or a query alone fills a pair.
    """
    check_integers(8, max_length=max_length)
    if len(tokenizer) >= _SEGMENT:
        raise ValueError(f"the vocabulary must have at most {_SEGMENT} tokens, got {len(tokenizer)}")
    rows = np.full((len(queries), max_length), -1, np.float32)
    longest = 1
    for first in range(0, len(queries), _TOKENIZED):
        part = slice(first, first + _TOKENIZED)
        told = {"truncation": "only_second", "max_length": max_length, "return_attention_mask": False}
        try:
            found = tokenizer(list(queries[part]), list(documents[part]), **told)
        except Exception as error:  # a tokenizer's own type, if truncation leaves nothing of the document
            raise ValueError(f"a query has {max_length} tokens or more; use a larger max_length") from error
        segments = found.get("token_type_ids") or [None] * len(found["input_ids"])
        for at, (ids, types) in enumerate(zip(found["input_ids"], segments, strict=True), first):
            rows[at, : len(ids)] = np.asarray(ids) + _SEGMENT * np.asarray(0 if types is None else types)
            longest = max(longest, len(ids))
    return np.ascontiguousarray(rows[:, :longest])


class CrossEncoderScorer(nn.Module):
    """A transformer that encodes query and document jointly and returns one score.

    Args:
        encoder: a transformers model, as a local folder or a name in a hub, whose head is used if it has a single output and
            newly initialised otherwise; or the content of its `config.json`, to load weights into.
        documents_at_once: number of documents scored at once, which bounds the memory of training at the cost of one more forward
            pass (see `rankstruct.sliced_scores`); all if None.
        frozen_layers: number of first layers that are not trained, and with any, the embeddings.
        fetch: whether to download a model that is not available locally.

    Raises:
        ValueError: the model is not available, or has fewer layers.

    Shapes: rows of tokens `[..., list_size, tokens]`, as from `encode_pairs`, to scores `[..., list_size]`; a row without a
    token, which is padding, has score 0.

    >>> import pytest
    >>> _ = pytest.importorskip("transformers")
    >>> from rankstruct.text import TextSource
    >>> from rankstruct.text.candidates import TextLists
    >>> lists = TextLists(TextSource(builtin="questions", depth=12, max_length=48))
    >>> data, scorer = lists.splits.test, CrossEncoderScorer(lists.encoder)
    >>> rows = torch.as_tensor(data.features[:12])
    >>> scorer(rows).shape
    torch.Size([12])
    """

    #: Inputs are tokens, which must not be rounded.
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
        check_integers(1, optional=True, documents_at_once=documents_at_once)
        check_integers(0, frozen_layers=frozen_layers)
        self.model = _make_model(encoder, fetch).train()
        self.documents_at_once, self.frozen_layers, self.fetch = documents_at_once, frozen_layers, False
        if frozen_layers:
            self._freeze(frozen_layers)

    @property
    def encoder(self) -> dict[str, Any]:
        """The configuration that builds the same architecture, without weights."""
        described: dict[str, Any] = self.model.config.to_dict()
        return described

    def _freeze(self, layers: int) -> None:
        body = self.model.base_model
        stacks = [each for each in body.modules() if isinstance(each, nn.ModuleList)]
        known = list(max(stacks, key=len, default=[]))
        if len(known) < layers:
            raise ValueError(
                f"frozen_layers must be at most {len(known)}, the number of layers of the model; got {layers}"
            )
        embeddings = [each for name, each in body.named_children() if "embed" in name]
        for part in [*embeddings, *known[:layers]]:
            part.requires_grad_(False)

    def forward(self, rows: Tensor) -> Tensor:
        """Return scores `[..., list_size]` of rows of tokens `[..., list_size, tokens]`."""
        flat = rows.reshape(-1, rows.shape[-1])
        lengths = (flat >= 0).sum(-1)
        real = (lengths > 0).nonzero().squeeze(-1)
        order = real[lengths[real].argsort()]  # similar lengths need little padding
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
        """Save the model in a format that transformers and sentence-transformers' `CrossEncoder(folder)` read."""
        quietly(self.model.save_pretrained, folder)


def _make_model(encoder: str | dict[str, Any], fetch: bool) -> nn.Module:
    if isinstance(encoder, dict):
        kind, transformers = dict(encoder), import_extra("transformers", *ENCODERS)
        config = transformers.AutoConfig.for_model(kind.pop("model_type"), **kind)
        untrained: nn.Module = transformers.AutoModelForSequenceClassification.from_config(config)
        return untrained
    config = _loaded("AutoConfig", encoder, fetch)
    config.num_labels = 1
    model = _loaded("AutoModelForSequenceClassification", encoder, fetch, config=config, ignore_mismatched_sizes=True)
    model.config.problem_type = None
    return model


def _loaded(kind: str, encoder: str | Path, fetch: bool, **options: Any) -> Any:
    transformers = import_extra("transformers", *ENCODERS)
    try:
        return quietly(getattr(transformers, kind).from_pretrained, str(encoder), local_files_only=not fetch, **options)
    except (OSError, ValueError) as error:
        told = " ".join(str(error).split())[:200]
        way_out = "" if fetch else "; use a local folder, or fetch=True (data.fetch) to download it from the hub"
        raise ValueError(f"{encoder}: cannot load a transformers model{way_out} ({told})") from error


def quietly(call: Any, *args: Any, **options: Any) -> Any:
    """Call a function without transformers' progress bars and warnings about a newly initialised head."""
    logging = import_extra("transformers", *ENCODERS).utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        return call(*args, **options)
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
