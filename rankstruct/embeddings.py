"""Losses on embeddings: any loss of lists on the similarities of queries and documents, with a memory bank and several processes.

A query's list is all documents at hand. What a loss needs of it is `[queries, documents]` numbers, which a product of matrices
has; everything else, from AP to InfoNCE (`SoftmaxLoss`), is as for any scorer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import normalize

from rankstruct.data.errors import check_least
from rankstruct.losses import RankingLoss, StructuredHingeLoss
from rankstruct.losses.checks import check_choice, check_positive
from rankstruct.losses.reduction import reduce_lists
from rankstruct.processes import find_team
from rankstruct.scoring import sliced_scores

__all__ = ["EmbeddingLoss", "MemoryBank", "SimilarityLoss"]

Similarity = Literal["cosine", "dot"]
_Lists = Callable[[Tensor], tuple[Tensor, Tensor | None]]  # rows of the queries to their labels and `where`


class SimilarityLoss(nn.Module):
    """A loss of lists on similarities of query and document embeddings, for retrieval models; the batch gives the negatives.

    Args:
        loss: of lists; the structured hinge of AP if None. `SoftmaxLoss()` makes it InfoNCE.
        similarity: `"cosine"`, or `"dot"` for the product as it is.
        temperature: similarities are divided by it, above 0; to a hinge, whose margin is about 1, it matters as to a softmax.
        learn_temperature: whether its logarithm is a parameter.
        gather: whether the documents of all processes of `torch.distributed` are in each query's list; each has as many.
        queries_at_once: how many queries' similarities are kept; the backward pass computes them again. All if None.

    Raises:
        ValueError: an option that is none of these; (called) shapes that do not fit.

    >>> import rankstruct as rs
    >>> loss = rs.SimilarityLoss(rs.StructuredHingeLoss("AP"), temperature=0.1)
    >>> queries, documents = torch.eye(4)[:3], torch.eye(4)
    >>> loss(queries, documents)  # document i is that of query i, the others are negatives
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
        check_positive("temperature", temperature)
        check_least(1, queries_at_once=queries_at_once)
        self.loss = loss_of_lists(loss)
        self.similarity, self.gather, self.queries_at_once = similarity, gather, queries_at_once
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)), requires_grad=learn_temperature)

    @property
    def temperature(self) -> float:
        """What similarities are divided by, now."""
        return float(self.log_temperature.detach().exp())

    def extra_repr(self) -> str:
        """The options that tell losses apart."""
        learned = " (learned)" if self.log_temperature.requires_grad else ""
        return f"similarity={self.similarity}, temperature={self.temperature:g}{learned}"

    def forward(
        self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, where: Tensor | None = None
    ) -> Tensor:
        """The loss of the queries, reduced as `loss` does.

        Args:
            queries: `[queries, d]`.
            documents: `[documents, d]`, at least as many as queries where `labels` are None.
            labels: `[queries, documents]`, grades; None says that document i is the relevant one of query i.
            where: `[queries, documents]` bool, which documents are in a query's list; all are if None.
        """
        _check_embeddings("queries", queries)
        _check_embeddings("documents", documents, width=queries.shape[1])
        if labels is None and len(documents) < len(queries):
            raise ValueError(
                f"without labels document i is that of query i; got {len(queries)} queries and {len(documents)} documents"
            )
        if self.gather and not (labels is None and where is None):
            raise ValueError("with gather=True document i is that of query i; give neither labels nor where")
        ready = self._ready(documents)
        first = 0
        if self.gather:
            first, ready = find_team().rank * len(documents), gathered(ready)
        columns = torch.arange(len(ready), device=queries.device)

        def lists(rows: Tensor) -> tuple[Tensor, Tensor | None]:
            told = columns == (first + rows).unsqueeze(1) if labels is None else labels[rows]
            return told, None if where is None else where[rows]

        return self._reduced(self._ready(queries), [ready], lists)

    def _ready(self, embeddings: Tensor) -> Tensor:
        """Embeddings of which products are similarities."""
        return normalize(embeddings, dim=-1) if self.similarity == "cosine" else embeddings

    def _reduced(self, queries: Tensor, documents: Sequence[Tensor], lists: _Lists) -> Tensor:
        """The loss of all queries on all documents, both as `_ready` made them."""

        def of_some(rows: Tensor) -> Tensor:
            if self.queries_at_once is not None and versions != [each._version for each in documents]:
                raise RuntimeError("a memory bank took in the next batch before backward(): call backward() first")
            labels, where = lists(rows)
            similarities = torch.cat([scaled[rows] @ each.T for each in documents], dim=-1)
            values = self.loss(similarities, labels, where=where, reduction="none")
            counted = torch.ones_like(values) if where is None else where.any(-1).to(values)
            return torch.stack([values, counted], dim=-1)

        scaled = queries * torch.exp(-self.log_temperature).to(queries.dtype)
        every = torch.arange(len(queries), device=queries.device)
        documents = [each.view_as(each) for each in documents]  # queries, which may be the same, do not depend on these
        versions = [each._version for each in documents] if self.queries_at_once is not None else []
        captured = [scaled, *documents, *self.loss.parameters()]
        found = sliced_scores(of_some, every, self.queries_at_once, captured)
        return reduce_lists(found[:, 0], where=found[:, 1:] > 0, reduction=self.loss.reduction)


class MemoryBank(nn.Module):
    """The latest embeddings of earlier batches and their classes, to be negatives and positives of the next.

    A ring of constant size, in the module's state; without gradient. What is added is written when the bank is next looked at, so
    that a loss can be differentiated until then: call `backward` before the next batch.

    Args:
        size: how many embeddings it holds, at least 1.
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
        check_least(1, size=size, dimension=dimension)
        self.register_buffer("held", torch.zeros(size, dimension))
        self.register_buffer("classes", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("added", torch.zeros((), dtype=torch.int64))
        self._new: list[tuple[Tensor, Tensor]] = []

    def __len__(self) -> int:
        self._write()
        return min(int(self.added), len(self.classes))

    @property
    def embeddings(self) -> Tensor:
        """`[held now, d]`."""
        return self.held[: len(self)]

    @property
    def labels(self) -> Tensor:
        """`[held now]`."""
        return self.classes[: len(self)]

    def add(self, embeddings: Tensor, labels: Tensor) -> None:
        """Take in embeddings `[documents, d]` with their classes `[documents]`, whole numbers; the oldest make room."""
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
        """Its size and the dimension."""
        return f"size={self.held.shape[0]}, dimension={self.held.shape[1]}"

    def _save_to_state_dict(self, *args: Any, **options: Any) -> None:
        self._write()
        super()._save_to_state_dict(*args, **options)


class EmbeddingLoss(SimilarityLoss):
    """A loss of lists for metric learning: each embedding is a query, and those of its class are the relevant documents.

    The documents of a query are the other embeddings of the batch and those of a reference. A query for which none of them is
    relevant is left out. Classes may be of any sizes. Arguments and errors are those of `SimilarityLoss`.

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
        """The loss of a batch, reduced as `loss` does.

        Args:
            embeddings: `[batch, d]`.
            labels: `[batch]`, whole numbers, the classes.
            reference: more documents: a bank, which takes the batch in afterwards, or embeddings and classes.
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
            return reference.embeddings, reference.labels
        if not isinstance(reference, tuple | list) or len(reference) != 2:
            raise TypeError(
                f"reference must be a MemoryBank or a pair of embeddings and their classes; got {type(reference).__name__}"
            )
        return self._ready(reference[0]), reference[1]


def loss_of_lists(loss: RankingLoss | None) -> RankingLoss:
    """The loss, or the structured hinge of AP if None.

    Raises:
        TypeError: no module, such as a measure's name.
    """
    if loss is not None and not isinstance(loss, nn.Module):
        raise TypeError(f"loss must be a loss of lists, such as rs.StructuredHingeLoss('AP'); got {loss!r}")
    return StructuredHingeLoss("AP") if loss is None else loss


def gathered(values: Tensor) -> Tensor:
    """The values of all processes, one after another, with the gradient of each; all must call this with as many."""
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
        raise TypeError(f"{name} must be a tensor of floating point numbers, got {_kind(embeddings)}")
    if embeddings.dim() != 2 or width not in (None, embeddings.shape[1]):
        wanted = "d" if width is None else str(width)
        raise ValueError(f"{name} must have shape [documents, {wanted}], got {tuple(embeddings.shape)}")


def _check_classes(labels: Tensor, embeddings: Tensor) -> None:
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"labels must be a tensor of whole numbers, the classes, got {_kind(labels)}")
    if labels.shape != embeddings.shape[:1]:
        raise ValueError(f"labels must have one class an embedding, ({len(embeddings)},); got {tuple(labels.shape)}")


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
