"""Any ranking loss in the trainers of text models: sentence-transformers, Hugging Face's Trainer, or a custom loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rankstruct.checks import check_integers
from rankstruct.embeddings import SimilarityLoss, loss_of_lists
from rankstruct.lists import pad
from rankstruct.losses import RankingLoss
from rankstruct.messages import shortened
from rankstruct.scoring import sliced_scores

__all__ = ["ListCollator", "RerankerLoss", "RetrievalLoss", "TrainerLoss"]

PADDING = -100  # of labels, as in the trainers of text models


class RerankerLoss(nn.Module):
    """Any ranking loss with the interface of sentence-transformers' `CrossEncoder` losses.

    Lists may have any length: documents are scored in slices, and the backward pass processes one slice at a time (see
    `sliced_scores`), so that a list of 1,000 passages needs the memory of one slice.

    Args:
        model: a `CrossEncoder` with one output.
        loss: a ranking loss; the softmax loss if None.
        activation_fn: applied to the model's outputs; none if None.
        mini_batch_size: number of documents scored at once. All if None, which is faster for long lists but needs more memory.
        in_batch_negatives: number of documents of the batch's other queries added to each list with label 0, sampled on each call
            with torch's global generator from those that are not in the list.

    Raises:
        TypeError: the loss was passed in place of the model.
        ValueError: a model with several outputs; (on call) inputs that are not queries with lists, or labels that do not match.

    Inputs are (query, [document, ...]), labels [grade, ...], as in the `"labeled-list"` format of `mine_hard_negatives`.

        loss = rs.text.RerankerLoss(model, rs.SoftmaxLoss(), in_batch_negatives=31)
        CrossEncoderTrainer(model=model, train_dataset=dataset, loss=loss).train()

    >>> class Model(nn.Module):  # stands for a CrossEncoder; longer documents score higher
    ...     num_labels, device = 1, torch.device("cpu")
    ...     def preprocess(self, pairs, **options):
    ...         return {"lengths": torch.tensor([float(len(document)) for _, document in pairs])}
    ...     def forward(self, tokens):
    ...         return {"scores": tokens["lengths"]}
    >>> RerankerLoss(Model(), mini_batch_size=None)([["query"], [["long", "text"]]], [torch.tensor([0, 1])])
    tensor(0.6931)
    """

    def __init__(
        self,
        model: nn.Module,
        loss: RankingLoss | None = None,
        *,
        activation_fn: nn.Module | None = None,
        mini_batch_size: int | None = 32,
        in_batch_negatives: int = 0,
    ) -> None:
        super().__init__()
        if not hasattr(model, "num_labels"):
            raise TypeError(
                f"RerankerLoss expects a CrossEncoder and a loss, in this order; got {type(model).__name__}"
            )
        if model.num_labels != 1:
            raise ValueError(
                f"RerankerLoss expects a model with one output, CrossEncoder(..., num_labels=1); got {model.num_labels}"
            )
        check_integers(1, optional=True, mini_batch_size=mini_batch_size)
        check_integers(0, in_batch_negatives=in_batch_negatives)
        self.model: Any = model  # of sentence-transformers
        self.mini_batch_size, self.in_batch_negatives = mini_batch_size, in_batch_negatives
        self.loss = loss_of_lists(loss)
        self.activation_fn = nn.Identity() if activation_fn is None else activation_fn

    def forward(
        self, inputs: Sequence[Any], labels: Sequence[Tensor], prompt: str | None = None, task: str | None = None
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            inputs: queries, and a list of documents per query.
            labels: per query, a grade per document.
            prompt, task: passed to the model's preprocessing.
        """
        queries, lists = _checked(inputs, labels)
        lists, labels = _with_negatives(lists, labels, self.in_batch_negatives)
        pairs = [(query, document) for query, documents in zip(queries, lists, strict=True) for document in documents]
        order = list(range(len(pairs)))
        if self.mini_batch_size is not None:  # similar lengths need little padding
            order.sort(key=lambda at: sum(map(len, map(str, pairs[at]))))
        scores = sliced_scores(
            lambda part: self._scored([pairs[at] for at in part], prompt, task),
            order,
            self.mini_batch_size,
            self.model.parameters(),
        )
        scores = self.activation_fn(scores[torch.tensor(order, device=scores.device).argsort()].float())
        offsets = torch.tensor([0, *map(len, lists)]).cumsum(0)
        grades = torch.cat([torch.as_tensor(each).flatten() for each in labels]).to(scores.device)
        return _of_lists(self.loss, scores, *pad(grades, offsets))

    def _scored(self, pairs: Sequence[Any], prompt: str | None, task: str | None) -> Tensor:
        tokens = self.model.preprocess(pairs, prompt=prompt, task=task)
        device = self.model.device
        return self.model(
            {name: each.to(device) if isinstance(each, Tensor) else each for name, each in tokens.items()}
        )["scores"].view(-1)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the options for the model card."""
        return {
            "loss": repr(self.loss),
            "activation_fn": type(self.activation_fn).__name__,
            "mini_batch_size": self.mini_batch_size,
            "in_batch_negatives": self.in_batch_negatives,
        }

    @property
    def citation(self) -> str:
        """BibTeX entry for the model card."""
        return CITATION


class RetrievalLoss(nn.Module):
    """Any ranking loss with the interface of sentence-transformers' bi-encoder losses.

    Inputs are (query, document), with more columns for hard negatives: the document of the first column is relevant to its query,
    all others of the batch are not. `MultipleNegativesRankingLoss` is this with the default loss.

    Args:
        model: a `SentenceTransformer`.
        loss: a ranking loss; the softmax loss if None.
        options: of `rankstruct.SimilarityLoss`: temperature, gather and so on.

    Raises:
        TypeError: a CrossEncoder, or a loss that is not a module.
        ValueError: options that `SimilarityLoss` refuses; (on call) a single column.

    With sentence-transformers' trainer:

        loss = rs.text.RetrievalLoss(model, rs.SoftmaxLoss(), learn_temperature=True)
        SentenceTransformerTrainer(model=model, train_dataset=dataset, loss=loss).train()

    >>> class Encoder(nn.Module):  # stands for a SentenceTransformer
    ...     def forward(self, features):
    ...         return {"sentence_embedding": features["inputs"]}
    >>> loss = RetrievalLoss(Encoder(), temperature=1.0)
    >>> loss([{"inputs": torch.eye(2)}, {"inputs": torch.eye(2)}])
    tensor(0.3133)
    """

    def __init__(self, model: nn.Module, loss: RankingLoss | None = None, **options: Any) -> None:
        super().__init__()
        if hasattr(model, "num_labels"):
            raise TypeError(
                f"RetrievalLoss expects a SentenceTransformer; got {type(model).__name__}: use RerankerLoss"
            )
        self.model, self.similarity_loss = model, SimilarityLoss(loss, **options)

    def forward(self, sentence_features: Sequence[Mapping[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch; `sentence_features` has one entry per column, `labels` are ignored."""
        queries, *documents = [self.model(dict(each))["sentence_embedding"] for each in sentence_features]
        if not documents:
            raise ValueError("RetrievalLoss needs at least the columns (query, document); got one column")
        return self.similarity_loss(queries, torch.cat(documents))

    def get_config_dict(self) -> dict[str, Any]:
        """Return the options for the model card."""
        return {"loss": repr(self.similarity_loss.loss), "temperature": self.similarity_loss.temperature}

    @property
    def citation(self) -> str:
        """BibTeX entry for the model card."""
        return CITATION


class ListCollator:
    """Collate lists of text into one batch of tokens, for Hugging Face's `Trainer` or a custom loop.

    Called with examples `{"query": text, "docs": [text, ...], "labels": [grade, ...]}`, it returns the tokenizer's output for all
    pairs, `[pairs, tokens]`, and `labels` `[lists, longest list]`, padded with -100.

    Args:
        tokenizer: of transformers.
        max_length: maximum number of tokens of a pair, beyond which documents are truncated; the tokenizer's default if None.
        in_batch_negatives: as in `RerankerLoss`.

        trainer = Trainer(model, args, train_dataset=examples, data_collator=rs.text.ListCollator(tokenizer),
                          compute_loss_func=rs.text.TrainerLoss(rs.StructuredHingeLoss("nDCG@10")))

    >>> import pytest
    >>> _ = pytest.importorskip("transformers")
    >>> from rankstruct.text.candidates import TextLists, TextSource
    >>> collate = ListCollator(TextLists(TextSource(builtin="questions")).tokenizer)
    >>> collate([{"query": "who", "docs": ["she", "a tree"], "labels": [1, 0]}])["labels"]
    tensor([[1., 0.]])
    """

    def __init__(self, tokenizer: Any, max_length: int | None = None, *, in_batch_negatives: int = 0) -> None:
        check_integers(1, optional=True, max_length=max_length)
        check_integers(0, in_batch_negatives=in_batch_negatives)
        self.tokenizer, self.max_length, self.in_batch_negatives = tokenizer, max_length, in_batch_negatives

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the batch."""
        for at, example in enumerate(examples):
            if missing := {"query", "docs", "labels"} - set(example):
                raise ValueError(
                    f"each example must have query, docs and labels; example {at} has no {', '.join(sorted(missing))} "
                    "(Trainer removes columns that are not arguments of the model unless remove_unused_columns=False)"
                )
        given = [_grades(at, example["labels"]) for at, example in enumerate(examples)]
        asked, lists = _checked(([each["query"] for each in examples], [each["docs"] for each in examples]), given)
        for at, (query, documents, grades) in enumerate(zip(asked, lists, given, strict=True)):
            if strange := [text for text in (query, *documents) if not isinstance(text, str)]:
                raise ValueError(f"query and docs must be text; example {at} has {strange[0]!r}")
            if (grades == PADDING).any():
                raise ValueError(f"labels must not be {PADDING}, which is padding; example {at} has {grades.tolist()}")
        lists, labels = _with_negatives(lists, given, self.in_batch_negatives)
        queries = [query for query, documents in zip(asked, lists, strict=True) for _ in documents]
        documents = [document for each in lists for document in each]
        options = {"padding": True, "truncation": "only_second", "max_length": self.max_length, "return_tensors": "pt"}
        try:
            tokens = self.tokenizer(queries, documents, **options)
        except Exception as error:  # a tokenizer's own type, if truncation leaves nothing of the document
            raise ValueError(f"the tokenizer cannot encode these pairs: {error}; try a larger max_length") from error
        return {**tokens, "labels": torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=PADDING)}


class TrainerLoss(nn.Module):
    """Any ranking loss as `compute_loss_func` of Hugging Face's `Trainer`, or for the outputs of a model in a custom loop.

    If the trainer accumulates gradients or has several processes, the batches of a step are weighted by their documents, whose
    number it passes: it takes the loss of a batch as its part of the mean over all of them.

    Args:
        loss: a ranking loss; the softmax loss if None.

    Raises:
        ValueError: a loss with a value for each list, or with parameters to learn, which `Trainer` would not train; (on call) the
            model does not have one output per document, or there are no labels.

    >>> import rankstruct as rs
    >>> loss = TrainerLoss(rs.StructuredHingeLoss("AP"))
    >>> outputs = {"logits": torch.tensor([[2.0], [0.0], [1.0]])}  # two lists, the second with one document
    >>> loss(outputs, torch.tensor([[1.0, 0.0], [1.0, -100.0]]))
    tensor(0.)
    """

    def __init__(self, loss: RankingLoss | None = None) -> None:
        super().__init__()
        self.loss = loss_of_lists(loss, fixed=True)

    def forward(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Any = None) -> Tensor:
        """Compute the loss of `outputs` with `logits` `[pairs, 1]`, or of the logits; labels as from `ListCollator`.

        With `num_items_in_batch`, the documents of all batches of a step, it is multiplied by this batch's share of them.
        """
        if labels is None:
            raise ValueError("a batch must have labels, as from ListCollator; Trainer found none among its columns")
        logits = outputs if isinstance(outputs, Tensor) else outputs["logits"]
        where = labels != PADDING
        if logits.numel() != int(where.sum()):
            raise ValueError(
                f"the model must have one output per document; got {tuple(logits.shape)} for {int(where.sum())} documents"
            )
        value = _of_lists(self.loss, logits.reshape(-1).float(), torch.where(where, labels, 0), where)
        return value if num_items_in_batch is None else value * (where.sum() / num_items_in_batch)


def _of_lists(loss: nn.Module, scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
    """The loss of flat scores `[documents]`, in the order of the lists; labels and where are `[lists, longest list]`."""
    padded = scores.new_zeros(where.shape).masked_scatter(where, scores)
    return loss(padded, labels, where=where)


def _with_negatives(
    lists: Sequence[Sequence[Any]], labels: Sequence[Any], count: int
) -> tuple[Sequence[Sequence[Any]], list[Tensor]]:
    """Append `count` documents of the other lists to each, or all there are, with label 0."""
    grades = [torch.as_tensor(each).flatten() for each in labels]
    if not count:
        return lists, grades
    every = {str(document): document for documents in lists for document in documents}
    longer = []
    for at, documents in enumerate(lists):
        own = set(map(str, documents))
        others = [text for text in every if text not in own]
        drawn = torch.randperm(len(others))[:count].tolist()
        longer.append([*documents, *(every[others[each]] for each in drawn)])
        grades[at] = torch.cat([grades[at], grades[at].new_zeros(len(drawn))])
    return longer, grades


def _grades(at: int, labels: Any) -> Tensor:
    """The labels of an example, `[documents]` float32; raises ValueError if they are no numbers."""
    try:
        return torch.as_tensor(labels, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"labels must be numbers, one per document; example {at} has {shortened(labels)}") from None


def _checked(inputs: Sequence[Any], labels: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Sequence[Any]]]:
    """Check queries, lists of documents and one label per document."""
    if isinstance(labels, Tensor) or len(inputs) != 2:
        raise ValueError(
            f"each sample must be a query, a list of documents and a list of labels; got {len(inputs)} columns and labels of "
            f"type {type(labels).__name__}"
        )
    queries, lists = inputs
    if any(isinstance(each, str) for each in lists):
        raise ValueError("each query must have a list of documents; got a string (for one document, pass [text])")
    if not any(len(each) for each in lists):
        raise ValueError(f"a batch must have at least one document; all {len(lists)} lists are empty")
    sizes, told = [len(each) for each in lists], [len(each) for each in labels]
    if sizes != told:
        at = next((at for at, (size, number) in enumerate(zip(sizes, told, strict=False)) if size != number), -1)
        raise ValueError(f"each document must have a label; list {at} has {sizes[at]} documents, but {told[at]} labels")
    return queries, lists


CITATION = """
@misc{rankstruct,
  title = {rankstruct: differentiable ranking for PyTorch},
  note = {Structured hinge losses: Yue, Finley, Radlinski and Joachims, SIGIR 2007; Chakrabarti et al., KDD 2008;
          Le, Smola, Chapelle and Teo, 2010}
}
"""
