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
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.cross_encoder import CrossEncoder, losses
from torch import nn

import rankstruct as rs
from rankstruct.commands.cells import Cell, CellFolders, CellsFailed
from rankstruct.data import join_run
from rankstruct.files import write_result
from rankstruct.measures import evaluate
from rankstruct.statistics import compare_paired
from rankstruct.tables import format_table
from rankstruct.text import TextSource, candidate_lists, read_collection

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
def embedded(collection: str, encoder: str, store: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Embeddings of queries and documents by name, kept in a file."""
    read = read_collection(collection)
    kind = hashlib.sha256(f"{Path(collection).resolve()} {Path(encoder).resolve()}".encode()).hexdigest()[:12]
    file = Path(store) / f"embeddings-{kind}.npz"
    if not file.is_file():
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(encoder, device="cpu", local_files_only=True)
        texts = [*read.queries.values(), *read.documents.values()]
        found = model.encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=sys.stderr.isatty())
        np.savez(file.with_suffix(".part.npz"), found)
        file.with_suffix(".part.npz").rename(file)
    values = np.load(file)["arr_0"]
    known = len(read.queries)
    return dict(zip(read.queries, values[:known], strict=True)), dict(zip(read.documents, values[known:], strict=True))


@cache
def prepared(collection: str, encoder: str, store: str, fold: int, grades: int) -> Any:
    """Features, the lists of the three parts with their judgements, and BM25's run."""
    lists = TextSource(path=collection, encoder=encoder, depth=DEPTH, fold=fold).read()
    features = Features(*embedded(collection, encoder, store), lists.run)
    parts = []
    for number, judged in enumerate(lists.judged):
        qrels = {q: {d: _grade(g, grades) for d, g in each.items()} for q, each in judged.items()}
        parts.append((qrels, candidate_lists(qrels, lists.run, DEPTH, add_relevant=number == 0)))
    return features, parts, lists.run


def _grade(grade: float, turned: int) -> float:
    return grade if not turned or grade < 0 else turned - grade


def train(collection: str, encoder: str, store: str, fold: int, grades: int, loss: str, rate: float, seed: int) -> dict:
    """One run: the best epoch's validation nDCG@10, and the test measures of each query."""
    torch.set_num_threads(1)
    features, parts, _ = prepared(collection, encoder, store, fold, grades)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = Head(features)
    loss_of = LOSSES[loss](model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    best, kept = -1.0, model.state_dict()
    for _ in range(EPOCHS):
        for batch in batches(parts[0][1], rng, pairs=loss in PAIRS):
            value = loss_of(*batch)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        reached = float(measured(model, *parts[1])["nDCG@10"].mean())
        if reached > best:
            best, kept = reached, {name: each.clone() for name, each in model.state_dict().items()}
    model.load_state_dict(kept)
    return {"vali": best, "test": {name: each.tolist() for name, each in measured(model, *parts[2]).items()}}


def batches(lists: Any, rng: np.random.Generator, pairs: bool) -> Any:
    """Sampled training lists of one epoch, as the losses take them."""
    queries, documents, labels = lists
    order = [at for at in rng.permutation(len(queries)) if 0 < sum(y > 0 for y in labels[at]) < len(labels[at])]
    for first in range(0, len(order), LISTS):
        chosen = []
        for at in order[first : first + LISTS]:
            grades = np.array(labels[at])
            good, bad = (rng.permutation(np.flatnonzero((grades > 0) == kind)) for kind in (True, False))
            taken = np.concatenate([good[: LIST_SIZE - 1], bad[: max(LIST_SIZE - len(good), 1)]])
            chosen.append((queries[at], [(queries[at], documents[at][i]) for i in taken], grades[taken]))
        if pairs:  # the other documents of the batch are the negatives
            columns = ([its[place][1] for _, its, _ in chosen] for place in (0, -1))
            yield [[query for query, _, _ in chosen], *columns], None
        else:
            names = [[document for _, document in its] for _, its, _ in chosen]
            yield [[query for query, _, _ in chosen], names], [torch.tensor(y).float() for _, _, y in chosen]


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
    joined = join_run(found, qrels)
    values = evaluate(
        joined.scores, joined.labels, list(MEASURES), offsets=joined.offsets, ideal_labels=joined.ideal_labels
    )
    return {name: each.numpy() for name, each in values.items()}


def main(arguments: list[str] | None = None) -> int:
    """Run what the folder does not hold yet, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collection", required=True, help="a folder in BEIR's form")
    parser.add_argument("--encoder", required=True, help="a sentence encoder: a local folder")
    parser.add_argument("--grades", type=int, default=0, help="turn codes around: the grade is this less the code")
    parser.add_argument("--output", default="runs/text-rerank", help="folder of the values (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=list(LOSSES), metavar="LOSS")
    parser.add_argument("--processes", type=int, default=1, help="runs at once (default: %(default)s)")
    given = parser.parse_args(arguments)
    name = Path(given.collection).resolve().name
    folds = range(1, 6) if "all" in read_collection(given.collection).judgements else (1,)
    store = Path(given.output)
    store.mkdir(parents=True, exist_ok=True)
    embedded(given.collection, given.encoder, str(store))

    def cell(fold: int, loss: str, rate: float, seed: int) -> Cell:
        request = {"loss": loss, "rate": rate, "seed": seed, "fold": fold, "grades": given.grades}
        where = (given.collection, given.encoder, str(store), fold, given.grades)
        kind = loss.replace(": ", "-").replace(" ", "-").replace("(", "").replace(")", "").replace(",", "")
        return Cell(f"{name}/{kind}/{fold}-{rate:g}-{seed}", request, (*where, loss, rate, seed))

    try:
        with CellFolders(store) as cells:
            options = {"processes": given.processes, "what": f"{name}, text"}
            tried = {(f, x, r): cell(f, x, r, 0) for f in folds for x in given.losses for r in RATES}
            first = cells.run(train, list(tried.values()), **options).results
            rates = {
                (f, x): max(RATES, key=lambda r, f=f, x=x: first[tried[f, x, r].name]["vali"])
                for f in folds
                for x in given.losses
            }
            rest = {(f, x, s): cell(f, x, rates[f, x], s) for f, x in rates for s in range(given.seeds)}
            found = cells.run(train, list(rest.values()), **options).results
    except (ValueError, OSError, CellsFailed) as error:
        print(f"text_rerank: {error}", file=sys.stderr)
        return 1
    values = {
        x: {m: np.mean([_joined(found, rest, folds, x, s, m) for s in range(given.seeds)], 0) for m in MEASURES}
        for x in given.losses
    }
    means = {
        x: {m: [_joined(found, rest, folds, x, s, m).mean() for s in range(given.seeds)] for m in MEASURES}
        for x in given.losses
    }
    tables = {f"{name} means": _means(given, store, folds, means), f"{name} tests": _tests(values)}
    for header, rows in tables.values():
        print(format_table(header, rows), end="\n\n")
    typed = sys.argv[1:] if arguments is None else arguments
    words = ["python", "scripts/text_rerank.py", *(Path(word).name if "/" in word else word for word in typed)]
    write_result(store / f"text-rerank-{name}.json", words, tables)
    return 0


def _joined(found: Any, cells: Any, folds: Any, loss: str, seed: int, measure: str) -> np.ndarray:
    """A measure of the test queries of all folds."""
    return np.concatenate([found[cells[fold, loss, seed].name]["test"][measure] for fold in folds])


def _means(given: Any, store: Path, folds: Any, means: Any) -> Any:
    rows: list[list[Any]] = []
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
    for title, kept in (("BM25", first), ("cosine of the embeddings", cosine)):
        rows.append([title, *(f"{np.concatenate(kept[m]).mean():.4f}" for m in MEASURES)])
    for loss, each in means.items():
        rows.append([loss, *(f"{np.mean(each[m]):.4f} ± {np.std(each[m], ddof=1):.4f}" for m in MEASURES)])
    return ["loss", *MEASURES], rows


def _tests(values: Any) -> Any:
    """The best of ours, and each of ours, beside the best of theirs: means over seeds, query by query."""
    rows = []
    theirs = {
        m: max((x for x in values if x.startswith("theirs")), key=lambda x, m=m: values[x][m].mean()) for m in MEASURES
    }
    for loss in (x for x in values if not x.startswith("theirs")):
        for m in MEASURES:
            pair = compare_paired(values[loss][m], values[theirs[m]][m])
            rows.append([loss, m, theirs[m], f"{pair.difference:+.4f}", pair.wins, pair.losses, f"{pair.p:.3f}"])
    return ["ours", "measure", "best of theirs by the test mean", "difference", "wins", "losses", "p (Wilcoxon)"], rows


if __name__ == "__main__":
    sys.exit(main())
