"""Learned fusion of runs compared with the formulas and with the best single run, on collections of text.

The runs need no download: BM25, a language model, the cosines of latent semantic analysis and of character n-grams, each of its
own top 100 of all documents. Everything learned is cross-fitted in five folds of the judged queries by `learn_fusion`, so that no
query is scored by a ranker that was fitted to it. The best single run and the best formula are the best on all queries, which
favours them. Measures count the relevant documents that no run retrieved. Prints the tables, and writes them as `fusion.json`:

    python scripts/fusion.py --path SCIFACT CRANFIELD --turned CRANFIELD --output runs/fusion
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rankstruct as rs
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser
from rankstruct.data import join_run
from rankstruct.files import write_result
from rankstruct.fusion import fuse_runs, learn_fusion
from rankstruct.statistics import compare_paired
from rankstruct.text import TERM_FEATURES, Collection, TermFeatures, read_collection
from rankstruct.text_tables import markdown_table
from text_rerank import graded

DEPTH, BLOCK = 100, 200  # documents of a run; queries that are scored against all documents at once
MEASURES = ("nDCG@10", "AP", "R@100")
SYSTEMS = {"BM25": "BM25", "language model": "language model, Dirichlet", "LSA": -2, "character n-grams": -1}
FORMULAS = {
    "RRF": {"method": "rrf"},
    "CombSUM, min-max": {"method": "combsum"},
    "CombMNZ, min-max": {"method": "combmnz"},
}
RANKERS: dict[str, Callable[[], Any]] = {
    "linear, AP hinge (default)": rs.LinearRanker,
    "linear, nDCG@10 hinge": lambda: rs.LinearRanker("nDCG@10", loss=rs.StructuredHingeLoss("nDCG@10")),
    "linear, graded AUC": lambda: rs.LinearRanker("nDCG@10", loss=rs.GradedLoss("AUC")),
    "linear, softmax": lambda: rs.LinearRanker("nDCG@10", loss=rs.SoftmaxLoss()),
    "trees, LambdaLoss nDCG@10": lambda: rs.BoostedRanker("nDCG@10", loss=rs.LambdaLoss("nDCG@10"), random_state=0),
}
Run = dict[str, dict[str, float]]


def retrieved(collection: Collection, queries: Sequence[str]) -> dict[str, Run]:
    """The top documents of all, by each of the systems."""
    features = TermFeatures(collection, ["lsa", "char-ngrams"])
    documents = list(collection.documents)
    columns = {name: TERM_FEATURES.index(at) if isinstance(at, str) else at for name, at in SYSTEMS.items()}
    found: dict[str, Run] = {name: {} for name in SYSTEMS}
    for first in range(0, len(queries), BLOCK):
        some = queries[first : first + BLOCK]
        values = features([query for query in some for _ in documents], documents * len(some))
        for at, query in enumerate(some):
            block = values[at * len(documents) : (at + 1) * len(documents)]
            for name, column in columns.items():
                best = np.argsort(-block[:, column], kind="stable")[:DEPTH]
                found[name][query] = {documents[place]: float(block[place, column]) for place in best}
    return found


def judged(collection: Collection, turned: int) -> Run:
    """The judgements of all queries, with codes turned around as in `text_rerank.py`."""
    every = {query: each for part in collection.judgements.values() for query, each in part.items()}
    return graded(every, turned)


def without_excluded(found: Run, qrels: Run) -> Run:
    """A run without documents of a grade below 0."""
    return {
        query: {name: score for name, score in each.items() if qrels[query].get(name, 0) >= 0}
        for query, each in found.items()
    }


def measured(fused: Run, qrels: Run) -> dict[str, np.ndarray]:
    """Measures of each query, in the order of the qrels."""
    joined = join_run({query: fused[query] for query in qrels}, qrels)
    found = rs.evaluate(measures=list(MEASURES), **joined.arguments)
    return {name: each.numpy() for name, each in found.items()}


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("fusion", work, args, program="fusion.py")


def work(args: Sequence[str]) -> None:
    """Retrieve, fuse, print and write the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--path", nargs="+", required=True, help="collections of text, in BEIR's format")
    parser.add_argument(
        "--turned",
        nargs="*",
        default=[],
        help="collections with codes from 1, the best, to 4: the grade is 5 less the code",
    )
    parser.add_argument("--output", default="runs/fusion", help="folder of fusion.json")
    given = parser.parse_args(args)
    means, tests = [], []
    for path in given.path:
        name = Path(path).name
        collection = read_collection(path)
        qrels = judged(collection, 5 if name in given.turned else 0)
        runs = {system: without_excluded(each, qrels) for system, each in retrieved(collection, list(qrels)).items()}
        fused = {system: ("run", one) for system, one in runs.items()}
        several = list(runs.values())
        fused |= {how: ("formula", fuse_runs(several, **options)) for how, options in FORMULAS.items()}
        fused |= {how: ("learned", learn_fusion(several, qrels, make()).fused) for how, make in RANKERS.items()}
        values = {how: measured(one, qrels) for how, (_, one) in fused.items()}
        for how, (kind, _) in fused.items():
            means.append([name, kind, how, *(f"{values[how][measure].mean():.4f}" for measure in MEASURES)])
            print(means[-1], flush=True)
        best = max(runs, key=lambda how: values[how]["nDCG@10"].mean())
        formula = max(FORMULAS, key=lambda how: values[how]["nDCG@10"].mean())
        default, *others = RANKERS
        pairs = [("RRF", best), *((default, each) for each in dict.fromkeys(("RRF", formula, best)))]
        for how, other in [*pairs, *((each, "RRF") for each in others)]:
            for measure in MEASURES[:2]:
                found = compare_paired(values[how][measure], values[other][measure], "randomization")
                tests.append(
                    [name, how, other, measure, f"{found.difference:+.4f}", found.wins, found.losses, f"{found.p:.4f}"]
                )
    tables = {
        "fusion": (["collection", "kind", "run", *MEASURES], means),
        "fusion tests": (
            ["collection", "fused by", "compared with", "measure", "difference", "wins", "losses", "p (randomization)"],
            tests,
        ),
    }
    for title, (header, rows) in tables.items():
        print(f"\n{title}\n\n{markdown_table(header, rows)}")
    typed = [Path(word).name if "/" in word else word for word in args]
    Path(given.output).mkdir(parents=True, exist_ok=True)
    write_result(Path(given.output) / "fusion.json", ["python", "scripts/fusion.py", *typed], tables)


if __name__ == "__main__":
    sys.exit(main())
