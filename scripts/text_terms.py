"""Re-rank text by features: matching words, and these with the cosine of a frozen sentence encoder, compared with BM25.

The features are those of `rankstruct.text.TermFeatures`. The ranker is `AutoRanker("nDCG@10", mode="fast")`, fitted to the top
100 of BM25 for the training and validation queries. Measures count what BM25 did not find. Every run is kept in `--output`, and
what is there is not run again:

    python scripts/text_terms.py --collection SCIFACT --encoder MODEL --output runs/text-terms --seeds 3
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

import rankstruct as rs
from rankstruct.cli import run
from rankstruct.text import TermFeatures, TextSource, candidate_lists, read_collection
from text_rerank import (
    DEPTH,
    MEASURES,
    best_runs,
    embedded,
    graded,
    mean_rows,
    of_run,
    opened,
    paired_row,
    parser_of,
    report,
)

FEATURES = ("terms", "terms and cosine")
BM25, COSINE = "BM25", "cosine of the embeddings"


class Stored:
    """A sentence encoder whose embeddings of a collection are in a file."""

    def __init__(self, collection: str, encoder: str, store: str) -> None:
        read, (queries, documents) = read_collection(collection), embedded(collection, encoder, store)
        self._queries = {read.queries[name]: each for name, each in queries.items()}
        self._documents = {read.documents[name]: each for name, each in documents.items()}

    def encode_query(self, texts: list[str]) -> np.ndarray:
        """Embeddings of queries."""
        return np.stack([self._queries[text] for text in texts])

    def encode_document(self, texts: list[str]) -> np.ndarray:
        """Embeddings of documents."""
        return np.stack([self._documents[text] for text in texts])


@cache
def prepared(collection: str, encoder: str, store: str, fold: int, grades: int) -> list[Any]:
    """Judgements, queries, documents and labels of the lists, and features, of the three parts."""
    lists = TextSource(path=collection, encoder=encoder, depth=DEPTH, fold=fold).read()
    features = TermFeatures(lists.collection, [Stored(collection, encoder, store)])
    parts = []
    for judged in lists.judged:
        qrels = graded(judged, grades)
        queries, documents, labels = candidate_lists(qrels, lists.run, DEPTH)
        asked = [query for query, each in zip(queries, documents, strict=True) for _ in each]
        parts.append((qrels, queries, documents, np.concatenate(labels), features(asked, np.concatenate(documents))))
    return parts


def columns(features: str, found: np.ndarray) -> np.ndarray:
    """The features, or only those of words."""
    return found if features == "terms and cosine" else found[:, : len(rs.text.TERM_FEATURES)]


def train(
    collection: str, encoder: str, store: str, fold: int, grades: int, features: str, setting: tuple[()], seed: int
) -> dict[str, Any]:
    """One run: the test measures of each query."""
    torch.set_num_threads(1)
    parts = prepared(collection, encoder, store, fold, grades)
    given = []
    for _, _, documents, labels, found in parts[:2]:
        given += [columns(features, found), labels, np.repeat(np.arange(len(documents)), [*map(len, documents)])]
    ranker = rs.AutoRanker("nDCG@10", mode="fast", random_state=seed)
    ranker.fit(*given[:3], X_valid=given[3], y_valid=given[4], qid_valid=given[5])
    qid = np.repeat(np.arange(len(parts[2][2])), [*map(len, parts[2][2])])
    test = measured(parts[2], ranker.predict(columns(features, parts[2][4]), qid))
    return {
        "vali": ranker.results_[-1]["validation"]["nDCG@10"],
        "test": {m: each.tolist() for m, each in test.items()},
    }


def measured(part: Any, scores: np.ndarray) -> dict[str, np.ndarray]:
    """Measures of each query of a part, re-ranked by scores."""
    qrels, queries, documents, _, _ = part
    of_lists = np.split(scores, np.cumsum([*map(len, documents)])[:-1])
    return of_run(
        {
            query: dict(zip(names, each.tolist(), strict=True))
            for query, names, each in zip(queries, documents, of_lists, strict=True)
        },
        qrels,
    )


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("text_terms", rerank, args, program="text_terms.py")


def rerank(args: Sequence[str]) -> None:
    """Run what the folder does not hold yet, print the tables."""
    given = parser_of(__doc__, FEATURES, "runs/text-terms").parse_args(args)
    name, folds, store = opened(given)
    reached = best_runs(train, given, folds, f"terms-{name}", {}, MEASURES)
    tests = [prepared(given.collection, given.encoder, given.output, fold, given.grades)[2] for fold in folds]
    starts = []
    for start, column in ((BM25, rs.text.TERM_FEATURES.index("BM25")), (COSINE, -1)):
        values = [measured(part, part[4][:, column]) for part in tests]
        for measure, each in reached.items():
            each[start] = np.concatenate([value[measure] for value in values])[None]
        starts.append([start, *(f"{each[start].mean():.4f}" for each in reached.values())])
    shown = {m: {x: each[x] for x in given.losses} for m, each in reached.items()}
    others = [(x, BM25) for x in given.losses] + [tuple(FEATURES[::-1])] * (len(given.losses) == len(FEATURES))
    rows = [paired_row(reached, m, x, other) for x, other in others for m in MEASURES]
    tables = {
        f"{name} means": (["features", *MEASURES], [*starts, *mean_rows(shown)]),
        f"{name} tests": (
            ["features", "measure", "compared with", "difference", "wins", "losses", "p (Wilcoxon)"],
            rows,
        ),
    }
    report(tables, store / f"text-terms-{name}.json", "text_terms.py", args)


if __name__ == "__main__":
    sys.exit(main())
