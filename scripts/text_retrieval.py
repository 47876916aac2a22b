"""Retrieval on frozen embeddings, compared with Smooth-AP and InfoNCE: a map of the queries, trained with each loss.

A sentence encoder stays frozen, and so do the documents' embeddings, as in an index. A query's embedding q becomes q + W q, W
beginning at 0, so that the start is the encoder itself. The list of a query is what is relevant to any query of the batch and
1000 documents, drawn for each batch; losses are called through `SimilarityLoss`, measures are over the whole corpus. Learning
rate and temperature, of one grid for all, by seed 0 and nDCG@10 of the validation queries, which choose the epoch too; then all
seeds, which draw batches and documents. "New documents" are the test queries to which no document is relevant that is so to a
training query. Every run is kept in `--output`, and what is there is not run again:

    python scripts/text_retrieval.py --collection SCIFACT --encoder MODEL --output runs/text-retrieval
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import rankstruct as rs
from rankstruct.cli import run
from rankstruct.measures import evaluate
from rankstruct.text import TextSource
from text_rerank import best_epoch, best_runs, embedded, graded, mean_rows, opened, paired_row, parser_of, report

MEASURES = ("nDCG@10", "RR@10", "AP", "R@100")
RATES, TEMPERATURES = (5e-4, 2e-3, 5e-3), (0.01, 0.03, 0.1, 0.3)
EPOCHS, LISTS, DOCUMENTS = 4, 32, 1000
LOSSES = {
    "AP hinge": lambda: rs.StructuredHingeLoss("AP"),
    "nDCG@10 hinge": lambda: rs.StructuredHingeLoss("nDCG@10"),
    "graded AUC hinge": lambda: rs.GradedLoss("AUC"),
    "LambdaLoss nDCG@10": lambda: rs.LambdaLoss("nDCG@10"),
    "Smooth-AP": lambda: rs.SmoothAPLoss(temperature=1.0),  # the similarities are divided by a temperature already
    "softmax (InfoNCE)": lambda: rs.SoftmaxLoss(),
}
START = "start: cosine of the embeddings"
PEERS = ("Smooth-AP", "softmax (InfoNCE)")


class Part(NamedTuple):
    """Queries: their places in the collection, embeddings, grades of all documents, and `where`."""

    rows: Tensor
    queries: Tensor
    labels: Tensor
    where: Tensor


@cache
def prepared(collection: str, encoder: str, store: str, fold: int, grades: int) -> tuple[Tensor, list[Part]]:
    """Embeddings of the documents; the queries for training, validation and test."""
    queries, documents = embedded(collection, encoder, store)
    asked, place = ({name: at for at, name in enumerate(names)} for names in (queries, documents))
    parts = []
    for judged in TextSource(path=collection, encoder=encoder, fold=fold).read().judged:
        qrels = graded(judged, grades)
        labels = torch.zeros(len(qrels), len(place))
        for row, each in enumerate(qrels.values()):
            for document, grade in each.items():
                labels[row, place[document]] = grade
        found = torch.from_numpy(np.stack([queries[name] for name in qrels]))
        rows = torch.tensor([asked[name] for name in qrels])
        parts.append(Part(rows, found, labels.clamp(min=0), labels >= 0))
    return torch.from_numpy(np.stack([*documents.values()])), parts


def train(
    collection: str,
    encoder: str,
    store: str,
    fold: int,
    grades: int,
    loss: str,
    setting: tuple[float, float],
    seed: int,
) -> dict:
    """One run: the best epoch's validation nDCG@10, and the test measures of each query."""
    torch.set_num_threads(1)
    documents, (training, validation, test) = prepared(collection, encoder, store, fold, grades)
    torch.manual_seed(seed)
    rate, temperature = setting
    change = torch.zeros(documents.shape[1], documents.shape[1], requires_grad=True)
    loss_of = rs.SimilarityLoss(LOSSES[loss](), temperature=temperature)

    def losses(epoch: int) -> Iterator[Tensor]:
        for rows in torch.randperm(len(training.rows)).split(LISTS) if epoch else ():  # the first epoch is the start
            _, queries, labels, where = (each[rows] for each in training)
            relevant = (labels > 0).any(0).nonzero().view(-1)
            listed = torch.cat([relevant, torch.randperm(len(documents))[:DOCUMENTS]]).unique()
            yield loss_of(queries + queries @ change, documents[listed], labels[:, listed], where[:, listed])

    def validate() -> Tensor:
        return measured(change, documents, validation, MEASURES[:1])["nDCG@10"]

    best = best_epoch([change], rate, map(losses, range(EPOCHS + 1)), validate)
    found = measured(change, documents, test, MEASURES)
    return {"vali": best, "test": {name: each.tolist() for name, each in found.items()}}


def measured(change: Tensor, documents: Tensor, part: Part, measures: Any) -> dict[str, Tensor]:
    """Measures of each query over the whole corpus."""
    with torch.no_grad():
        scores = (part.queries + part.queries @ change) @ documents.T
        return {**evaluate(scores, part.labels, list(measures), where=part.where)}


def started(
    where: tuple[str, str, str], folds: Any, grades: int
) -> tuple[dict[str, dict[str, np.ndarray]], np.ndarray]:
    """Measures of the test queries of all folds without training, `[1, queries]`; which of them have new documents alone."""
    found, new = [], []
    for fold in folds:
        documents, (training, _, test) = prepared(*where, fold, grades)
        found.append(measured(documents.new_zeros(documents.shape[1], documents.shape[1]), documents, test, MEASURES))
        new.append(~((test.labels > 0) & (training.labels > 0).any(0)).any(1))
    joined = {m: {START: torch.cat([each[m] for each in found]).numpy()[None]} for m in MEASURES}
    return joined, torch.cat(new).numpy()


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("text_retrieval", retrieve, args, program="text_retrieval.py")


def retrieve(args: Sequence[str]) -> None:
    """Run what the folder does not hold yet, print the tables."""
    given = parser_of(__doc__, LOSSES, "runs/text-retrieval").parse_args(args)
    name, folds, store = opened(given)
    where = (given.collection, given.encoder, given.output)
    grid = {"rate": RATES, "temperature": TEMPERATURES}
    reached = best_runs(train, given, folds, f"retrieval-{name}", grid, MEASURES)
    start, new = started(where, folds, given.grades)
    for measures in (start, reached):
        measures["nDCG@10, new documents"] = {x: each[:, new] for x, each in measures["nDCG@10"].items()}
    begun = [START, *(f"{each[START].mean():.4f}" for each in start.values())]
    pairs = [(x, peer) for peer in PEERS for x in given.losses if x not in PEERS and peer in given.losses]
    tests = [paired_row(reached, m, x, peer) for x, peer in pairs for m in ("nDCG@10", "AP")]
    tables = {
        f"{name} means": (["loss", *reached], [begun, *mean_rows(reached)]),
        f"{name} tests": (["loss", "measure", "beside", "difference", "wins", "losses", "p (Wilcoxon)"], tests),
        f"{name} queries": (["test queries", "with new documents alone"], [[str(len(new)), str(new.sum())]]),
    }
    report(tables, store / f"text-retrieval-{name}.json", "text_retrieval.py", args)


if __name__ == "__main__":
    sys.exit(main())
