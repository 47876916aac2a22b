"""Losses on embeddings: any ranking loss on query-document similarities, with a memory bank and several processes.

The list of a query is all available documents, and its scores are a row of the similarity matrix `[queries, documents]`; any
loss, from AP to InfoNCE (`SoftmaxLoss`), then applies as for any scorer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import normalize

from rankstruct.checks import check_choice, check_integers, check_numbers
from rankstruct.lists import Lists
from rankstruct.losses import RankingLoss, SoftmaxLoss
from rankstruct.losses.reduction import reduce_lists
from rankstruct.processes import find_team
from rankstruct.scoring import sliced_scores

__all__ = ["EmbeddingLoss", "MemoryBank", "SimilarityLoss"]

Similarity = Literal["cosine", "dot"]
_Lists = Callable[[Tensor], tuple[Tensor, Tensor | None]]  # rows of the queries to their labels and `where`


class SimilarityLoss(nn.Module):
    """A ranking loss on similarities of query and document embeddings, for retrieval models, with in-batch negatives.

    Args:
        loss: a ranking loss; the softmax loss if None, which is InfoNCE.
        similarity: `"cosine"` or `"dot"`.
        temperature: divisor of the similarities, above 0; it matters for a hinge, whose margin is about 1, as for a softmax.
        learn_temperature: whether the logarithm of the temperature is a learnable parameter.
        gather: whether lists have the documents of all `torch.distributed` processes, which must have the same number of them.
        queries_at_once: number of queries whose similarities are held in memory; the backward pass recomputes them. All if None.

    Raises:
        ValueError: an invalid option; (on call) inconsistent shapes.

    >>> import rankstruct as rs
    >>> queries, documents = torch.eye(4)[:3], torch.eye(4)
    >>> rs.SimilarityLoss(temperature=0.5)(queries, documents)  # document i is that of query i, the others are negatives
    tensor(0.3408)
    >>> rs.SimilarityLoss(rs.StructuredHingeLoss("AP"), temperature=0.5)(queries, documents)
    tensor(0.)
    """

    def __init__(
        self,
        loss: RankingLoss | None = None,
        *,
        similarity: Similarity = "cosine",
        temperature: float = 0.05,
        learn_temperature: bool = False,
        gather: bool = False,
        queries_at_once: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("similarity", similarity, get_args(Similarity))
        check_numbers("> 0", temperature=temperature)
        check_integers(1, optional=True, queries_at_once=queries_at_once)
        self.loss = loss_of_lists(loss)
        self.similarity, self.gather, self.queries_at_once = similarity, gather, queries_at_once
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)), requires_grad=learn_temperature)

    @property
    def temperature(self) -> float:
        """The current temperature."""
        return float(self.log_temperature.detach().exp())

    def extra_repr(self) -> str:
        """The options, for `repr`."""
        learned = " (learned)" if self.log_temperature.requires_grad else ""
        return f"similarity={self.similarity}, temperature={self.temperature:g}{learned}"

    def forward(
        self,
        queries: Tensor,
        documents: Tensor,
        labels: Tensor | None = None,
        where: Tensor | None = None,
        log_probabilities: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of the queries, with the reduction of `loss`.

        Args:
            queries: `[queries, d]`.
            documents: `[documents, d]`, at least as many as queries if `labels` is None.
            labels: `[queries, documents]`, grades; if None, document i is the relevant one of query i.
            where: `[queries, documents]` bool, the documents in each query's list; all if None.
            log_probabilities: `[documents]`, the logarithm of each document's probability to be in a batch, such as its share of
                the training pairs; subtracted from its similarities divided by the temperature. Corrects the softmax for batches
                in which popular documents are frequent negatives (logQ correction; Yi et al., "Sampling-Bias-Corrected Neural
                Modeling for Large Corpus Item Recommendations", RecSys 2019).
        """
        _check_embeddings("queries", queries)
        _check_embeddings("documents", documents, width=queries.shape[1])
        if labels is None and len(documents) < len(queries):
            raise ValueError(
                f"without labels, document i belongs to query i; got {len(queries)} queries, but {len(documents)} documents"
            )
        if self.gather and not (labels is None and where is None):
            raise ValueError("with gather=True, document i belongs to query i; pass neither labels nor where")
        if log_probabilities is not None and log_probabilities.shape != documents.shape[:1]:
            raise ValueError(
                f"log_probabilities must be one per document, ({len(documents)},); got {tuple(log_probabilities.shape)}"
            )
        ready = self._ready(documents)
        first = 0
        if self.gather:
            first, ready = find_team().rank * len(documents), gathered(ready)
            log_probabilities = None if log_probabilities is None else gathered(log_probabilities)
        columns = torch.arange(len(ready), device=queries.device)

        def lists(rows: Tensor) -> tuple[Tensor, Tensor | None]:
            told = columns == (first + rows).unsqueeze(1) if labels is None else labels[rows]
            return told, None if where is None else where[rows]

        return self._reduced(self._ready(queries), [ready], lists, log_probabilities)

    def _ready(self, embeddings: Tensor) -> Tensor:
        """Embeddings whose inner products are the similarities."""
        return normalize(embeddings, dim=-1) if self.similarity == "cosine" else embeddings

    def _reduced(
        self, queries: Tensor, documents: Sequence[Tensor], lists: _Lists, log_probabilities: Tensor | None = None
    ) -> Tensor:
        """The loss of all queries on all documents, both after `_ready`."""

        def of_some(rows: Tensor) -> Tensor:
            if self.queries_at_once is not None and versions != [each._version for each in documents]:
                raise RuntimeError(
                    "a memory bank was updated with the next batch before backward(): call backward() first"
                )
            labels, where = lists(rows)
            similarities = torch.cat([scaled[rows] @ each.T for each in documents], dim=-1)
            if log_probabilities is not None:
                similarities = similarities - log_probabilities.detach()
            values = self.loss(similarities, labels, where=where, reduction="none")
            counted = torch.ones_like(values) if where is None else where.any(-1).to(values)
            return torch.stack([values, counted], dim=-1)

        scaled = queries * torch.exp(-self.log_temperature).to(queries.dtype)
        every = torch.arange(len(queries), device=queries.device)
        documents = [
            each.view_as(each) for each in documents
        ]  # separate from the queries, which may be the same tensor
        versions = [each._version for each in documents] if self.queries_at_once is not None else []
        captured = [scaled, *documents, *self.loss.parameters()]
        found = sliced_scores(of_some, every, self.queries_at_once, captured)
        return reduce_lists(found[:, 0], Lists(found, found[:, 1:] > 0), self.loss.reduction)


class MemoryBank(nn.Module):
    """A queue of the latest embeddings and classes of earlier batches, as negatives and positives for the next ones.

    The queue is a ring buffer in the module's state, without gradient. Added embeddings are written when the bank is next
    read. Until then a loss can be differentiated, so call `backward` before the next batch.

    Args:
        size: number of embeddings, at least 1.
        dimension: d of an embedding.

    Source: Wang, Zhang, Huang, Scott, "Cross-Batch Memory for Embedding Learning", CVPR 2020.

    >>> bank = MemoryBank(size=3, dimension=2)
    >>> bank.add(torch.ones(2, 2), torch.tensor([0, 1]))
    >>> bank.add(torch.zeros(2, 2), torch.tensor([2, 3]))
    >>> len(bank), bank.labels
    (3, tensor([3, 1, 2]))
    """

    held: Tensor
    classes: Tensor
    added: Tensor

    def __init__(self, size: int, dimension: int) -> None:
        super().__init__()
        check_integers(1, size=size, dimension=dimension)
        self.register_buffer("held", torch.zeros(size, dimension))
        self.register_buffer("classes", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("added", torch.zeros((), dtype=torch.int64))
        self._new: list[tuple[Tensor, Tensor]] = []

    def __len__(self) -> int:
        self._write()
        return min(int(self.added), len(self.classes))

    @property
    def embeddings(self) -> Tensor:
        """The stored embeddings, `[len(bank), d]`."""
        return self.held[: len(self)]

    @property
    def labels(self) -> Tensor:
        """The stored classes, `[len(bank)]`."""
        return self.classes[: len(self)]

    def add(self, embeddings: Tensor, labels: Tensor) -> None:
        """Add embeddings `[documents, d]` with their integer classes `[documents]`, replacing the oldest."""
        _check_embeddings("embeddings", embeddings, width=self.held.shape[1])
        _check_classes(labels, embeddings)
        self._new.append((embeddings.detach().clone(), labels.clone()))

    @torch.no_grad()
    def _write(self) -> None:
        size = len(self.classes)
        for embeddings, labels in self._new:
            places = (int(self.added) + torch.arange(len(labels), device=self.held.device))[-size:] % size
            self.held[places] = embeddings[-size:].to(self.held)
            self.classes[places] = labels[-size:].to(self.classes)
            self.added += len(labels)
        self._new.clear()

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        self._new.clear()
        super()._load_from_state_dict(*args, **options)

    def extra_repr(self) -> str:
        """Size and dimension, for `repr`."""
        return f"size={self.held.shape[0]}, dimension={self.held.shape[1]}"

    def _save_to_state_dict(self, *args: Any, **options: Any) -> None:
        self._write()
        super()._save_to_state_dict(*args, **options)


class EmbeddingLoss(SimilarityLoss):
    """A ranking loss for metric learning: an embedding is a query, and the others of its class are the relevant documents.

    The documents of a query are the other embeddings of the batch and those of a reference, such as a memory bank. Queries
    without a relevant document are skipped. Classes may have any sizes. Arguments and errors are those of `SimilarityLoss`.

    >>> import rankstruct as rs
    >>> loss = EmbeddingLoss(rs.StructuredHingeLoss("AP"))
    >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> loss(embeddings, torch.tensor([0, 0, 1, 1]))
    tensor(0.)
    >>> bank = MemoryBank(size=1000, dimension=2)
    >>> loss(embeddings, torch.tensor([0, 1, 0, 1]), bank) > 1, len(bank)
    (tensor(True), 4)
    """

    def forward(  # type: ignore[override]
        self, embeddings: Tensor, labels: Tensor, reference: MemoryBank | tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Compute the loss of a batch, with the reduction of `loss`.

        Args:
            embeddings: `[batch, d]`.
            labels: `[batch]`, integer classes.
            reference: more documents: a bank, to which the batch is then added, or embeddings and classes.
        """
        _check_embeddings("embeddings", embeddings)
        _check_classes(labels, embeddings)
        ready, classes, first = self._ready(embeddings), labels, 0
        documents = [ready]
        if self.gather:
            first = find_team().rank * len(labels)
            documents, classes = [gathered(ready)], gathered(labels)
        batch, batch_classes = documents[0], classes
        if reference is not None:
            more, more_classes = self._known(reference)
            _check_embeddings("reference", more, width=embeddings.shape[1])
            _check_classes(more_classes, more)
            documents.append(more.to(ready))
            classes = torch.cat([classes, more_classes.to(classes)])
        columns = torch.arange(len(classes), device=labels.device)

        def lists(rows: Tensor) -> tuple[Tensor, Tensor]:
            others = columns != (first + rows).unsqueeze(1)
            relevant = (classes == labels[rows].unsqueeze(1)) & others
            return relevant, others & relevant.any(-1, keepdim=True)

        value = self._reduced(ready, documents, lists)
        if isinstance(reference, MemoryBank):
            reference.add(batch, batch_classes)
        return value

    def _known(self, reference: MemoryBank | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        if isinstance(reference, MemoryBank):
            return self._ready(reference.embeddings), reference.labels
        if not isinstance(reference, tuple | list) or len(reference) != 2:
            raise TypeError(
                f"reference must be a MemoryBank or a pair of embeddings and their classes; got {type(reference).__name__}"
            )
        return self._ready(reference[0]), reference[1]


def loss_of_lists(loss: RankingLoss | None, *, fixed: bool = False) -> RankingLoss:
    """The loss, or the softmax loss if None; `fixed` for trainers that want one number and train no parameters of a loss.

    Raises:
        TypeError: not a module, such as the name of a measure.
        ValueError: a fixed loss that has a value for each list, or parameters.
    """
    if loss is not None and not isinstance(loss, nn.Module):
        raise TypeError(f"loss must be a ranking loss, such as rs.SoftmaxLoss(); got {loss!r}")
    loss = SoftmaxLoss() if loss is None else loss
    if not fixed:
        return loss
    if getattr(loss, "reduction", "mean") == "none":
        raise ValueError(f"the trainer needs one number, so the loss must have reduction='mean' or 'sum'; got {loss!r}")
    if learned := [name for name, each in loss.named_parameters() if each.requires_grad]:
        raise ValueError(
            f"the trainer would not train the parameters of the loss, {', '.join(learned)}: set them and call "
            f"loss.requires_grad_(False), or take a loss that has none; got {loss!r}"
        )
    return loss


def gathered(values: Tensor) -> Tensor:
    """Concatenate the values of all processes, differentiably; each must call this with the same number of values."""
    if find_team().world_size == 1:
        return values
    if values.requires_grad:
        from torch.distributed.nn.functional import all_gather

        return torch.cat(all_gather(values))
    found = [torch.empty_like(values) for _ in range(find_team().world_size)]
    distributed.all_gather(found, values.contiguous())
    return torch.cat(found)


def _check_embeddings(name: str, embeddings: Tensor, width: int | None = None) -> None:
    if not isinstance(embeddings, Tensor) or not embeddings.is_floating_point():
        raise TypeError(f"{name} must be a floating point tensor, got {_kind(embeddings)}")
    if embeddings.dim() != 2 or width not in (None, embeddings.shape[1]):
        wanted = "d" if width is None else str(width)
        raise ValueError(f"{name} must have shape [documents, {wanted}], got {tuple(embeddings.shape)}")


def _check_classes(labels: Tensor, embeddings: Tensor) -> None:
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"labels must be a tensor of integer classes, got {_kind(labels)}")
    if labels.shape != embeddings.shape[:1]:
        raise ValueError(f"labels must have one class per embedding, ({len(embeddings)},); got {tuple(labels.shape)}")


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
