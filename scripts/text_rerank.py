"""Re-rank text with our losses and those of sentence-transformers: same start, lists, steps and learning rates.

A sentence encoder stays frozen; its embeddings of query and document (their product and cosine) and BM25's score, standardised
within the list, go through a perceptron of one hidden layer, which is what is trained. Our losses are called through
`rankstruct.text.RerankerLoss`, theirs as they are. BM25's top 100 are re-ranked; training lists are sampled anew each epoch:
the relevant documents, and negatives of the first stage. Learning rate by seed 0 and nDCG@10 of the validation queries, which
choose the epoch too; then all seeds. Measures count what BM25 did not find. Every run is kept in `--output`, and what is there
is not run again:

    python scripts/text_rerank.py --collection SCIFACT CRANFIELD --encoder MODEL --output runs/text-rerank

`--grades 5` turns codes that run downwards around: the grade is 5 less the code, and a code below 0 leaves the document out.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.cross_encoder import CrossEncoder, losses
from torch import nn

import rankstruct as rs
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser, add_cell_options
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.data import join_run
from rankstruct.files import write_result
from rankstruct.measures import evaluate
from rankstruct.statistics import compare_paired
from rankstruct.text import TextSource, candidate_lists, read_collection
from rankstruct.text_tables import format_table

MEASURES = ("nDCG@10", "RR@10")
RATES = (3e-4, 1e-3, 3e-3)
EPOCHS, LISTS, LIST_SIZE, HIDDEN, DEPTH = 15, 16, 32, 64, 100


def _ours(make: Callable[..., rs.losses.RankingLoss], *args: str, in_batch: int = 0, **options: str) -> Any:
    adapter = partial(rs.text.RerankerLoss, mini_batch_size=None, in_batch_negatives=in_batch)
    return lambda model: adapter(model, make(*args, **options))


def _theirs(name: str, **options: Any) -> Any:
    return lambda model: getattr(losses, name)(model, **options)


LOSSES = {
    "AP hinge": _ours(rs.StructuredHingeLoss, "AP"),
    "nDCG@10 hinge": _ours(rs.StructuredHingeLoss, "nDCG@10"),
    "RR@10 hinge": _ours(rs.StructuredHingeLoss, "RR@10"),
    "graded AUC hinge": _ours(rs.GradedLoss, "AUC"),
    "ORM nDCG@10": _ours(rs.StructuredHingeLoss, "nDCG@10", feature_map="positional", reference="predicted"),
    "LambdaLoss nDCG@10": _ours(rs.LambdaLoss, "nDCG@10"),
    "softmax (InfoNCE)": _ours(getattr(rs, "SoftmaxLoss", None)),
    "AP hinge, in-batch": _ours(rs.StructuredHingeLoss, "AP", in_batch=LIST_SIZE - 1),
    "graded AUC hinge, in-batch": _ours(rs.GradedLoss, "AUC", in_batch=LIST_SIZE - 1),
    "LambdaLoss nDCG@10, in-batch": _ours(rs.LambdaLoss, "nDCG@10", in_batch=LIST_SIZE - 1),
    "softmax (InfoNCE), in-batch": _ours(getattr(rs, "SoftmaxLoss", None), in_batch=LIST_SIZE - 1),
    "theirs: ListNetLoss": _theirs("ListNetLoss", mini_batch_size=-1),
    "theirs: LambdaLoss": _theirs("LambdaLoss", mini_batch_size=-1),
    "theirs: PListMLELoss": _theirs("PListMLELoss", mini_batch_size=-1),
    "theirs: RankNetLoss": _theirs("RankNetLoss", mini_batch_size=-1),
    "theirs: MultipleNegatives": _theirs("MultipleNegativesRankingLoss", num_negatives=LIST_SIZE - 1),
}
PAIRS = ("theirs: MultipleNegatives",)  # called with query, relevant document, a negative; more from the batch


class Head(CrossEncoder):
    """What is trained, with what a CrossEncoder's losses ask of their model; a pair is (query's name, document's name)."""

    num_labels = 1
    device = torch.device("cpu")

    def __init__(self, features: Features) -> None:
        nn.Module.__init__(self)  # there is no encoder in it
        self.features = features
        self.layers = nn.Sequential(nn.Linear(features.width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def preprocess(self, pairs: Any, prompt: str | None = None, task: str | None = None) -> dict[str, torch.Tensor]:
        """Features of pairs."""
        return {"features": self.features(pairs)}

    def forward(self, tokens: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Scores of pairs, `[pairs, 1]`."""
        return {"scores": self.layers(tokens["features"])}


class Features:
    """Frozen embeddings and BM25's scores, of any pairs of a collection."""

    def __init__(self, queries: dict[str, np.ndarray], documents: dict[str, np.ndarray], run: Any) -> None:
        self._queries, self._documents, self._run = queries, documents, run
        self._scale = {q: (np.mean([*f.values()]), np.std([*f.values()]) + 1e-6) for q, f in run.items() if f}
        self.width = len(next(iter(documents.values()))) + 2

    def __call__(self, pairs: Any) -> torch.Tensor:
        """`[pairs, width]`."""
        asked = np.stack([self._queries[query] for query, _ in pairs])
        found = np.stack([self._documents[document] for _, document in pairs])
        product = asked * found * np.sqrt(asked.shape[1])
        first = np.array([self._bm25(*pair) for pair in pairs])
        return torch.from_numpy(np.column_stack([product, 5 * product.mean(1), first]).astype(np.float32))

    def _bm25(self, query: str, document: str) -> float:
        mean, deviation = self._scale.get(query, (0.0, 1.0))
        lowest = min(self._run.get(query, {}).values(), default=0.0)
        return (self._run.get(query, {}).get(document, lowest) - mean) / deviation


@cache
def embedded(
    collection: str, encoder: str, store: str, device: str = "cpu"
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Embeddings of queries and documents by name, kept in a file."""
    read = read_collection(collection)
    file = kept_file("embeddings", collection, encoder, store, ".npz")
    if not file.is_file():
        model = loaded(encoder, device)
        texts = [*read.queries.values(), *read.documents.values()]
        found = model.encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=sys.stderr.isatty())
        np.savez(file.with_suffix(".part.npz"), found)
        file.with_suffix(".part.npz").rename(file)
    values = np.load(file)["arr_0"]
    known = len(read.queries)
    return dict(zip(read.queries, values[:known], strict=True)), dict(zip(read.documents, values[known:], strict=True))


def kept_file(what: str, collection: str, encoder: str, store: str, suffix: str) -> Path:
    """The file of what an encoder makes of a collection."""
    kind = hashlib.sha256(f"{Path(collection).resolve()} {Path(encoder).resolve()}".encode()).hexdigest()[:12]
    return Path(store) / f"{what}-{kind}{suffix}"


def loaded(encoder: str, device: str) -> Any:
    """The sentence encoder of a local folder."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(encoder, device=device, local_files_only=True)


@cache
def prepared(collection: str, encoder: str, store: str, fold: int, grades: int) -> Any:
    """Features, the lists of the three parts with their judgements, and BM25's run."""
    lists = TextSource(path=collection, encoder=encoder, depth=DEPTH, fold=fold).read()
    features = Features(*embedded(collection, encoder, store), lists.run)
    parts = []
    for number, judged in enumerate(lists.judged):
        qrels = graded(judged, grades)
        parts.append((qrels, candidate_lists(qrels, lists.run, DEPTH, add_relevant=number == 0)))
    return features, parts, lists.run


def graded(judged: dict[str, dict[str, float]], turned: int) -> dict[str, dict[str, float]]:
    """Judgements with codes turned around; a code below 0 stays."""
    return {q: {d: g if not turned or g < 0 else turned - g for d, g in each.items()} for q, each in judged.items()}


def train(
    collection: str, encoder: str, store: str, fold: int, grades: int, loss: str, setting: tuple[float], seed: int
) -> dict:
    """One run: the best epoch's validation nDCG@10, and the test measures of each query."""
    torch.set_num_threads(1)
    (rate,) = setting
    features, parts, _ = prepared(collection, encoder, store, fold, grades)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = Head(features)
    loss_of = LOSSES[loss](model)
    epochs = ((loss_of(*batch) for batch in batches(parts[0][1], rng, loss in PAIRS)) for _ in range(EPOCHS))
    best = best_epoch([*model.parameters()], rate, epochs, lambda: measured(model, *parts[1])["nDCG@10"])
    return {"vali": best, "test": {name: each.tolist() for name, each in measured(model, *parts[2]).items()}}


def best_epoch(
    weights: list[torch.Tensor], rate: float, epochs: Iterable[Iterable[torch.Tensor]], validate: Callable[[], Any]
) -> float:
    """Minimise the losses of each epoch's steps by AdamW; keep the weights of the epoch that is best on validation data."""
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.01)
    best, kept = -1.0, weights
    for losses_of_epoch in epochs:
        for value in losses_of_epoch:
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        reached = float(validate().mean())
        if reached > best:
            best, kept = reached, [each.detach().clone() for each in weights]
    with torch.no_grad():
        for each, value in zip(weights, kept, strict=True):
            each.copy_(value)
    return best


def batches(lists: Any, rng: np.random.Generator, pairs: bool) -> Any:
    """Sampled training lists of one epoch, as the losses take them."""
    for chosen in sampled(lists, rng, LIST_SIZE, LIST_SIZE - 1):
        queries, names, grades = zip(*chosen, strict=True)
        if pairs:  # the other documents of the batch are the negatives
            yield [list(queries), *([its[place] for its in names] for place in (0, -1))], None
        else:
            yield [list(queries), list(names)], [torch.tensor(y).float() for y in grades]


def sampled(
    lists: Any, rng: np.random.Generator, size: int, relevant: int
) -> Iterator[list[tuple[Any, list[Any], np.ndarray]]]:
    """Batches of one epoch: queries, documents of which at most `relevant` are so, these first, and their grades."""
    queries, documents, labels = lists
    order = [at for at in rng.permutation(len(queries)) if 0 < sum(y > 0 for y in labels[at]) < len(labels[at])]
    for first in range(0, len(order), LISTS):
        chosen = []
        for at in order[first : first + LISTS]:
            grades = np.array(labels[at])
            good, bad = (rng.permutation(np.flatnonzero((grades > 0) == kind)) for kind in (True, False))
            taken = np.concatenate([good[:relevant], bad[: size - min(len(good), relevant)]])
            chosen.append((queries[at], [documents[at][i] for i in taken], grades[taken]))
        yield chosen


def measured(model: Head, qrels: Any, lists: Any) -> dict[str, np.ndarray]:
    """Measures of each query, over all that is judged relevant."""
    run = {}
    with torch.no_grad():
        for query, documents, _ in zip(*lists, strict=True):
            scores = model(model.preprocess([(query, each) for each in documents]))["scores"].view(-1)
            run[query] = dict(zip(documents, scores.tolist(), strict=True))
    return of_run(run, qrels)


def of_run(run: Any, qrels: Any) -> dict[str, np.ndarray]:
    """Measures of each query of the judgements; one that has no list counts 0."""
    found = {query: run.get(query) or {"": 0.0} for query in qrels}
    values = evaluate(measures=list(MEASURES), **join_run(found, qrels).arguments)
    return {name: each.numpy() for name, each in values.items()}


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("text_rerank", rerank, args, program="text_rerank.py")


def rerank(args: Sequence[str]) -> None:
    """Run what the folder does not hold yet, print the tables."""
    given = parser_of(__doc__, LOSSES, "runs/text-rerank").parse_args(args)
    name, folds, store = opened(given)
    reached = best_runs(train, given, folds, name, {"rate": RATES}, MEASURES)
    rows = [*_starts(given, store, folds), *mean_rows(reached)]
    tables = {f"{name} means": (["loss", *MEASURES], rows), f"{name} tests": _tests(reached)}
    report(tables, store / f"text-rerank-{name}.json", "text_rerank.py", args)


def parser_of(said: str | None, losses: Any, output: str) -> argparse.ArgumentParser:
    """The arguments of an experiment on a collection."""
    parser = CommandParser(description=said)
    parser.add_argument("--collection", required=True, help="a folder in BEIR's form")
    parser.add_argument("--encoder", required=True, help="a sentence encoder: a local folder")
    parser.add_argument("--grades", type=int, default=0, help="turn codes around: the grade is this less the code")
    add_cell_options(parser, "runs", output)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--losses", nargs="+", default=list(losses), choices=list(losses), metavar="LOSS")
    return parser


def opened(given: argparse.Namespace, prepare: Callable[..., Any] = embedded) -> tuple[str, Sequence[int], Path]:
    """Name and folds of the collection, and the folder of the values, which has what `prepare` keeps then."""
    folds = range(1, 6) if "all" in read_collection(given.collection).judgements else (1,)
    store = Path(given.output)
    store.mkdir(parents=True, exist_ok=True)
    prepare(given.collection, given.encoder, str(store))
    return Path(given.collection).resolve().name, folds, store


def kind(loss: str) -> str:
    """The name of a loss as a folder."""
    return loss.replace(": ", "-").replace(" ", "-").replace("(", "").replace(")", "").replace(",", "")


def best_runs(
    work: Callable[..., dict],
    given: argparse.Namespace,
    folds: Sequence[int],
    folder: str,
    grid: Mapping[str, Sequence[float]],
    measures: Sequence[str],
) -> dict[str, dict[str, np.ndarray]]:
    """Measures of the test queries of all folds, `[seeds, queries]`, by measure and loss: each at its best setting.

    That is the one with the best validation queries by seed 0.
    """
    where = given.collection, given.encoder, given.output

    def make(loss: str, setting: tuple[float, ...], fold: int, seed: int | None) -> Cell:
        asked = {"loss": loss, **dict(zip(grid, setting, strict=True)), "seed": seed, "fold": fold}
        file = f"{folder}/{kind(loss)}/{fold}-{'-'.join(f'{value:g}' for value in setting)}-{seed}"
        arguments = (*where, fold, given.grades, loss, setting, seed)
        return Cell(file, asked | {"grades": given.grades}, arguments, (loss, setting), fold, seed)

    with CellFolders(given.output) as cells:
        found = cells.select(
            work,
            make,
            {loss: [*product(*grid.values())] for loss in given.losses},
            folds=folds,
            seeds=range(given.seeds),
            validation=lambda result: result["vali"],
            processes=given.processes,
            what="training runs",
            note=f", {Path(given.collection).resolve().name}",
        ).results

    def joined(loss: str, measure: str) -> np.ndarray:
        each = [[found[loss, fold, seed]["test"][measure] for fold in folds] for seed in range(given.seeds)]
        return np.stack([np.concatenate(parts) for parts in each])

    return {m: {x: joined(x, m) for x in given.losses} for m in measures}


def mean_rows(reached: dict[str, dict[str, np.ndarray]]) -> list[list[str]]:
    """Mean and deviation over seeds, a row a loss."""
    rows = []
    for loss in next(iter(reached.values())):
        means = [each[loss].mean(1) for each in reached.values()]
        rows.append([loss, *(f"{mean.mean():.4f} ± {mean.std(ddof=1):.4f}" for mean in means)])
    return rows


def paired_row(reached: dict[str, dict[str, np.ndarray]], measure: str, loss: str, other: str) -> list[Any]:
    """A comparison of two losses: means over seeds, by query."""
    values = reached[measure]
    pair = compare_paired(values[loss].mean(0), values[other].mean(0))
    return [loss, measure, other, f"{pair.difference:+.4f}", pair.wins, pair.losses, f"{pair.p:.3f}"]


def report(tables: dict[str, Any], file: Path, script: str, typed: Sequence[str]) -> None:
    """Print the tables and write them."""
    for header, rows in tables.values():
        print(format_table(header, rows), end="\n\n")
    write_result(file, ["python", f"scripts/{script}", *(Path(w).name if "/" in w else w for w in typed)], tables)


def _starts(given: argparse.Namespace, store: Path, folds: Sequence[int]) -> list[list[str]]:
    """What is there without training."""
    first: dict[str, list[np.ndarray]] = {m: [] for m in MEASURES}
    cosine: dict[str, list[np.ndarray]] = {m: [] for m in MEASURES}
    for fold in folds:
        features, parts, run = prepared(given.collection, given.encoder, str(store), fold, given.grades)
        qrels, lists = parts[2]
        listed = {q: {d: run[q][d] for d in its} for q, its in zip(lists[0], lists[1], strict=True)}
        close = {
            q: dict(zip(its, features([(q, d) for d in its])[:, -2].tolist(), strict=True)) for q, its in listed.items()
        }
        for kept, of in ((first, listed), (cosine, close)):
            for m, each in of_run(of, qrels).items():
                kept[m].append(each)
    named = (("BM25", first), ("cosine of the embeddings", cosine))
    return [[title, *(f"{np.concatenate(kept[m]).mean():.4f}" for m in MEASURES)] for title, kept in named]


def _tests(reached: dict[str, dict[str, np.ndarray]]) -> Any:
    """Each of our losses compared with the best of theirs."""
    theirs = {
        m: max((x for x in each if x.startswith("theirs")), key=lambda x, each=each: each[x].mean())
        for m, each in reached.items()
    }
    ours = [x for x in next(iter(reached.values())) if not x.startswith("theirs")]
    rows = [paired_row(reached, m, loss, theirs[m]) for loss in ours for m in MEASURES]
    return ["ours", "measure", "best of theirs by the test mean", "difference", "wins", "losses", "p (Wilcoxon)"], rows


if __name__ == "__main__":
    import text_rerank  # so that other processes, which run the cells, find its cached functions by name

    sys.exit(text_rerank.main())
