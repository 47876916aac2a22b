"""Fine-tune the last two layers of a sentence encoder for retrieval: our losses, and those of sentence-transformers.

The embeddings and the lower layers stay frozen: their hidden states of all texts are computed once, kept in half precision, and
given to a SentenceTransformer of the last two layers, which is what is trained. A batch has 16 queries, each with 4 documents: up
to 2 relevant ones, and negatives drawn from the 100 that the frozen encoder ranks first. Our losses are called through
`SimilarityLoss`, with the grades of all documents of the batch for each query; `MultipleNegativesRankingLoss` with one relevant
document of each query and its negatives, those of the other queries are negatives too; `CoSENTLoss` with pairs and their grades.
Measures are over the whole corpus. Learning rate and temperature (the inverse of their scale), of one grid for all, by seed 0 and
nDCG@10 of the validation queries, which choose the epoch too, the start being one; then all seeds, which draw batches and
dropout. "New documents" are the test queries to which no document is relevant that is so to a training query. Every run is kept
in `--output`, and what is there is not run again:

    python scripts/text_finetune.py --collection SCIFACT --encoder MODEL --output runs/text-finetune --seeds 3 --device cuda
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer import losses as theirs
from torch import Tensor, nn
from torch.nn.functional import normalize

import rankstruct as rs
from rankstruct.cli import run
from rankstruct.measures import evaluate
from rankstruct.text import read_collection
from text_rerank import (
    best_epoch,
    best_runs,
    embedded,
    kept_file,
    loaded,
    mean_rows,
    opened,
    paired_row,
    parser_of,
    report,
    sampled,
)
from text_retrieval import MEASURES, START, Part, prepared, started
from text_retrieval import measured as measured_frozen

TRAINED, EPOCHS, LIST_SIZE, RELEVANT, DEPTH = 2, 3, 4, 2, 100
AT_ONCE, AT_ONCE_IN_TRAINING = 256, 16
PEER = "theirs: MultipleNegatives"


def _ours(make: Callable[[], rs.losses.RankingLoss]) -> Callable[..., Any]:
    return lambda model, temperature: rs.SimilarityLoss(make(), temperature=temperature)


#: By loss: a function of model and temperature that makes it.
LOSSES: dict[str, Callable[..., Any]] = {
    "softmax (InfoNCE)": _ours(lambda: rs.SoftmaxLoss()),
    "AP hinge": _ours(lambda: rs.StructuredHingeLoss("AP")),
    "AP ramp": _ours(lambda: rs.StructuredHingeLoss("AP", reference="predicted")),
    "nDCG@10 hinge": _ours(lambda: rs.StructuredHingeLoss("nDCG@10")),
    "graded AUC hinge": _ours(lambda: rs.GradedLoss("AUC")),
    PEER: lambda model, temperature: theirs.MultipleNegativesRankingLoss(model, scale=1 / temperature),
    "theirs: CoSENT": lambda model, temperature: theirs.CoSENTLoss(model, scale=1 / temperature),
}


class Hidden:
    """Hidden states before the trained layers, queries first, then documents."""

    def __init__(self, states: np.ndarray, lengths: np.ndarray, queries: int, device: str) -> None:
        self._states = torch.from_numpy(states).to(device)
        self.lengths, self.queries = torch.from_numpy(lengths), queries
        self._begins = self.lengths.cumsum(0) - self.lengths

    def __call__(self, rows: Any) -> dict[str, Tensor]:
        """What the trained layers take."""
        rows = torch.as_tensor(rows)
        place = torch.arange(int(self.lengths[rows].max()))
        mask = place < self.lengths[rows].unsqueeze(1)
        taken = (self._begins[rows].unsqueeze(1) + place).where(mask, 0).to(self._states.device)
        return {"inputs_embeds": self._states[taken].float(), "attention_mask": mask.long().to(taken.device)}


class Given(nn.Module):
    """In place of the embeddings and the lower layers: their output is the input."""

    def forward(self, inputs_embeds: Tensor, **rest: Any) -> Tensor:
        """The states."""
        return inputs_embeds


@cache
def hidden(collection: str, encoder: str, store: str, device: str = "cpu") -> Hidden:
    """The hidden states of a collection, kept in files."""
    read = read_collection(collection)
    states, lengths = (kept_file(what, collection, encoder, store, ".npy") for what in ("hidden", "lengths"))
    if not states.is_file():
        embedded(collection, encoder, store, device)
        model = loaded(encoder, device)
        layers = model[0].auto_model.encoder
        layers.layer = layers.layer[:-TRAINED]
        texts = [*read.queries.values(), *read.documents.values()]
        found = model.encode(texts, output_value="token_embeddings", show_progress_bar=sys.stderr.isatty())
        np.save(lengths, np.array([len(each) for each in found]))
        np.save(states.with_suffix(".part.npy"), torch.cat([each.half().cpu() for each in found]).numpy())
        states.with_suffix(".part.npy").rename(states)
    return Hidden(np.load(states, mmap_mode="c"), np.load(lengths), len(read.queries), device)


def half(device: str) -> torch.autocast:
    """Matrix products in bfloat16, which many processors multiply several times as fast."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16)


def last_layers(encoder: str, device: str) -> Any:
    """A SentenceTransformer of the layers to train, which takes hidden states."""
    model = loaded(encoder, device)
    trained = model[0].auto_model
    trained.encoder.layer, trained.embeddings = trained.encoder.layer[-TRAINED:], Given()
    return model


@cache
def training_lists(collection: str, encoder: str, store: str, fold: int, grades: int) -> Any:
    """Training queries, the documents relevant to each and those that the frozen encoder ranks first, and their grades."""
    documents, (training, _, _) = prepared(collection, encoder, store, fold, grades)
    scores = (training.queries @ documents.T).masked_fill(~training.where, -torch.inf)
    first = scores.topk(min(DEPTH, len(documents))).indices
    listed = [torch.cat([y.nonzero().view(-1), of]).unique() for y, of in zip(training.labels, first, strict=True)]
    labels = [y[of].numpy() for y, of in zip(training.labels, listed, strict=True)]
    return training.rows.tolist(), [of.tolist() for of in listed], labels


def train(
    collection: str,
    encoder: str,
    store: str,
    fold: int,
    grades: int,
    loss: str,
    setting: tuple[float, float],
    seed: int,
    device: str = "cpu",
) -> dict[str, Any]:
    """One run: the best epoch's validation nDCG@10, the start's, and the test measures of each query."""
    torch.set_num_threads(1)
    where, begin = (collection, encoder, store), time.perf_counter()
    documents, (training, *others) = prepared(*where, fold, grades)
    texts, lists = hidden(*where, device), training_lists(*where, fold, grades)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model, (rate, temperature) = last_layers(encoder, device), setting
    loss_of = LOSSES[loss](model, temperature).to(device)
    unchanged = documents.new_zeros(documents.shape[1], documents.shape[1])
    start = [measured_frozen(unchanged, documents, each, MEASURES) for each in others]
    reached: list[list[dict[str, Tensor]]] = []

    def losses(epoch: int) -> Iterator[Tensor]:
        model.train()
        for batch in sampled(lists, rng, LIST_SIZE, 1 if loss == PEER else RELEVANT) if epoch else ():
            with half(device):
                value = loss_of_batch(loss_of, model, texts, training, batch)
            yield value

    def validate() -> Tensor:  # the test queries too: the corpus is encoded once
        reached.append(measured(model, texts, others) if reached else start)
        return reached[-1][0]["nDCG@10"]

    best = best_epoch([*model[0].auto_model.encoder.parameters()], rate, map(losses, range(EPOCHS + 1)), validate)
    epochs = [float(validation["nDCG@10"].mean()) for validation, _ in reached]
    return {
        "vali": best,
        "epochs": epochs,
        "test": {name: each.tolist() for name, each in reached[epochs.index(best)][1].items()},
        "seconds": time.perf_counter() - begin,
    }


def loss_of_batch(loss: nn.Module, model: Any, texts: Hidden, training: Part, batch: Any) -> Tensor:
    """The loss of a batch of `sampled`, called in its own way."""
    rows, documents, grades = zip(*batch, strict=True)
    first, device, listed = texts.queries, model.device, torch.tensor([each for its in documents for each in its])
    if isinstance(loss, theirs.MultipleNegativesRankingLoss):
        columns = [texts(rows), *(texts(first + torch.tensor(column)) for column in zip(*documents, strict=True))]
        return loss(columns, None)
    if isinstance(loss, theirs.CoSENTLoss):
        asked = [row for row, its in zip(rows, documents, strict=True) for _ in its]
        pairs = [texts(asked), texts(first + listed)]
        return loss(pairs, torch.from_numpy(np.concatenate(grades)).to(device))
    listed = listed.unique()
    at = [(training.rows == row).nonzero().item() for row in rows]
    labels, where = (each[at][:, listed].to(device) for each in (training.labels, training.where))
    asked, found = (encoded(model, texts, its, AT_ONCE_IN_TRAINING) for its in (torch.tensor(rows), first + listed))
    return loss(asked, found, labels, where)


def encoded(model: Any, texts: Hidden, rows: Tensor, at_once: int) -> Tensor:
    """Embeddings of texts of norm 1, `[rows, d]`; those of similar lengths are encoded together."""
    order = texts.lengths[rows].argsort()
    parts = [model(texts(rows[some]))["sentence_embedding"] for some in order.split(at_once)]
    return normalize(torch.cat(parts)[order.argsort().to(model.device)])


def measured(model: Any, texts: Hidden, parts: Sequence[Part]) -> list[dict[str, Tensor]]:
    """Measures of each query of each part over the whole corpus."""
    model.eval()
    with torch.no_grad(), half(model.device.type):
        documents = encoded(model, texts, torch.arange(texts.queries, len(texts.lengths)), AT_ONCE).float()
        queries = [encoded(model, texts, part.rows, AT_ONCE).float() for part in parts]
    scores = [(each @ documents.T).cpu() for each in queries]
    return [{**evaluate(s, part.labels, MEASURES, where=part.where)} for s, part in zip(scores, parts, strict=True)]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("text_finetune", finetune, args, program="text_finetune.py")


def finetune(args: Sequence[str]) -> None:
    """Run what the folder does not hold yet, print the tables."""
    parser = parser_of(__doc__, LOSSES, "runs/text-finetune")
    parser.add_argument("--rates", nargs="+", type=float, default=[1e-5, 5e-5], help="learning rates")
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.05, 0.2], help="of the similarities")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; processes share it")
    parser.add_argument("--json", type=Path, help="the file of the tables (default: one in the folder of the runs)")
    given = parser.parse_args(args)
    name, folds, store = opened(given, partial(hidden, device=given.device))
    where = (given.collection, given.encoder, given.output)
    grid = {"rate": given.rates, "temperature": given.temperatures}
    reached = best_runs(partial(train, device=given.device), given, folds, f"finetune-{name}", grid, MEASURES)
    start, new = started(where, folds, given.grades)
    for measure, each in reached.items():
        each[START] = start[measure][START]
    reached["nDCG@10, new documents"] = {x: each[:, new] for x, each in reached["nDCG@10"].items()}
    begun = [START, *(f"{each[START].mean():.4f}" for each in reached.values())]
    means = mean_rows({m: {x: each[x] for x in given.losses} for m, each in reached.items()})
    pairs = [
        (x, other) for other in (START, PEER) for x in given.losses if other in (START, *given.losses) and x != other
    ]
    tests = [paired_row(reached, m, x, other) for x, other in pairs for m in ("nDCG@10", "RR@10")]
    header = ["loss", "measure", "compared with", "difference", "wins", "losses", "p (Wilcoxon)"]
    tables = {f"{name} means": (["loss", *reached], [begun, *means]), f"{name} tests": (header, tests)}
    report(tables, given.json or store / f"text-finetune-{name}.json", "text_finetune.py", args)


if __name__ == "__main__":
    sys.exit(main())
