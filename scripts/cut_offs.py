"""Does the guarantee of `CutOff` hold, and are its lists shorter than a fixed number of documents of the same recall?

The scores are those of `LinearRanker()` for the test lists of each fold, of folders with Fold1 ... Fold5; and BM25's, of
collections of text. In each resplit half of the lists are held out, for `CutOff`, and half are new. The fixed number of
documents is the one with the same mean recall on the new lists, interpolated between two numbers; it knows their labels. Shifted
sets are those whose held-out lists are of another kind than the new ones: their guarantee is void. Prints the tables, and writes
them as `cut-offs.json`:

    python scripts/cut_offs.py --path OHSUMED MQ2008 SCIFACT CRANFIELD --output runs/cut-offs
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rankstruct as rs
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser, whole_number
from rankstruct.data import RankingData, Source
from rankstruct.diagnostics import arrays_of
from rankstruct.files import write_result
from rankstruct.text import TERM_FEATURES, TextSource
from rankstruct.text_tables import markdown_table

RECALL, CONFIDENCE = 0.9, 0.9
RULES = ("softmax", "rank", "score")


class Scored(NamedTuple):
    """Scores, labels and sizes of lists with something relevant."""

    scores: np.ndarray
    labels: np.ndarray
    sizes: np.ndarray

    def select(self, lists: np.ndarray) -> Scored:
        """Some of the lists, in this order."""
        ends = np.cumsum(self.sizes)
        rows = np.concatenate([np.arange(ends[at] - self.sizes[at], ends[at]) for at in lists])
        return Scored(self.scores[rows], self.labels[rows], self.sizes[lists])

    def recalls(self, shown: np.ndarray) -> np.ndarray:
        """The recall of each list `[lists]` for the documents shown."""
        first = np.cumsum(self.sizes) - self.sizes
        good = self.labels > 0
        return np.add.reduceat((shown & good).astype(float), first) / np.add.reduceat(good.astype(float), first)

    def fixed(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean recall and mean number of documents of each fixed number of documents, from 0."""
        first = np.cumsum(self.sizes) - self.sizes
        of_list = np.repeat(np.arange(len(self.sizes)), self.sizes)
        order = np.lexsort((-self.scores, of_list))
        rank = np.arange(len(order)) - first[of_list]
        good = self.labels[order] > 0
        share = good / np.add.reduceat(good.astype(float), first)[of_list]
        size = int(self.sizes.max())
        counts = [np.bincount(rank, each, size) for each in (share, np.ones(len(rank)))]
        recall, many = (np.append(0, np.cumsum(each)) / len(self.sizes) for each in counts)
        return recall, many


def kept(scores: list[np.ndarray], labels: list[np.ndarray], sizes: list[np.ndarray]) -> Scored:
    """The lists with something relevant."""
    every = Scored(np.concatenate(scores), np.concatenate(labels), np.concatenate(sizes))
    first = np.cumsum(every.sizes) - every.sizes
    return every.select(np.flatnonzero(np.add.reduceat((every.labels > 0).astype(float), first)))


def from_folds(path: str, ranker: Any) -> Scored:
    """Test lists of all folds, scored by a ranker that is trained on the fold."""
    found: tuple[list, list, list] = ([], [], [])
    for fold in range(1, 6):
        splits = Source(path, fold=fold).read()
        ranker.fit(**arrays_of(splits.train), **arrays_of(splits.vali, "_valid"))
        for each, value in zip(found, scored(ranker, splits.test), strict=True):
            each.append(value)
    return kept(*found)


def scored(ranker: Any, data: RankingData) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and sizes of lists."""
    given = arrays_of(data)
    return ranker.predict(given["X"], given["qid"]), data.labels, np.diff(data.offsets)


def from_text(path: str) -> Scored:
    """The test queries of a collection, or those of five folds, with BM25's scores."""
    found: tuple[list, list, list] = ([], [], [])
    one = (Path(path) / "qrels.tsv").is_file()
    for fold in range(1, 6) if one else (None,):
        for part in TextSource(path=path, **({"fold": fold} if one else {})).read_terms()[2:]:
            values = (part.features[:, TERM_FEATURES.index("BM25")], part.labels, np.diff(part.offsets))
            for each, value in zip(found, values, strict=True):
                each.append(value)
    return kept(*found)


def outcome(held: Scored, new: Scored, rule: str, confidence: float | None) -> tuple[float, float, float]:
    """Mean recall and mean number of documents shown on the new lists, and those of the fixed number with that recall."""
    cut_off = rs.CutOff(recall=RECALL, rule=rule, confidence=confidence)
    cut_off.fit(held.scores, held.labels, group=held.sizes)
    shown = cut_off.predict(new.scores, group=new.sizes).numpy()
    recall = float(new.recalls(shown).mean())
    return recall, shown.sum() / len(new.sizes), float(np.interp(recall, *new.fixed()))


def row_of(name: str, sets: Sequence[tuple[Scored, Scored]], rule: str, confidence: float | None) -> list[Any]:
    """A row of a table: means over the resplits."""
    found = np.array([outcome(held, new, rule, confidence) for held, new in sets])
    recall, many, fixed = found.mean(0)
    error = found[:, 0].std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0.0
    share = f"{(found[:, 0] >= RECALL).mean():.1%}"
    return [
        name,
        rule,
        "in expectation" if confidence is None else f"probability {confidence}",
        f"{recall:.4f} ± {error:.4f}",
        share,
        f"{many:.1f}",
        f"{fixed:.1f}",
        f"{many / fixed - 1:+.1%}",
    ]


def halves(lists: Scored, resplits: int) -> list[tuple[Scored, Scored]]:
    """Held-out and new lists of each resplit."""
    rng, half = np.random.default_rng(0), len(lists.sizes) // 2
    orders = [rng.permutation(len(lists.sizes)) for _ in range(resplits)]
    return [(lists.select(each[:half]), lists.select(each[half:])) for each in orders]


def overfitted(path: str) -> tuple[Scored, Scored, Scored]:
    """Training, validation and test lists of a fold, scored by trees that are trained on the first of them."""
    splits = Source(path, fold=1).read()
    ranker = rs.BoostedRanker(random_state=0)
    ranker.fit(**arrays_of(splits.train))
    train, vali, test = (kept(*([each] for each in scored(ranker, part))) for part in splits)
    return train, vali, test


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("cut_offs", work, args, program="cut_offs.py")


def work(args: Sequence[str]) -> None:
    """Score the lists, resplit them, print and write the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--path", nargs="+", required=True, help="folders with folds, and collections of text")
    parser.add_argument("--resplits", type=whole_number(2), default=1000, help="number of resplits")
    parser.add_argument("--output", default="runs/cut-offs", help="folder of cut-offs.json")
    given = parser.parse_args(args)
    header = [
        "lists",
        "rule",
        "guarantee",
        "recall ± standard error",
        f"resplits with recall >= {RECALL}",
        "documents shown",
        "fixed number of equal recall",
        "difference",
    ]
    rows, shifted, sets = [], [], {}
    for path in given.path:
        name, is_text = Path(path).resolve().name, (Path(path) / "corpus.jsonl").is_file()
        sets[name] = lists = from_text(path) if is_text else from_folds(path, rs.LinearRanker())
        splits = halves(lists, given.resplits)
        for rule, confidence in [*((rule, None) for rule in RULES), (RULES[0], CONFIDENCE)]:
            rows.append(row_of(name, splits, rule, confidence))
            print(rows[-1], flush=True)
        if not is_text:
            by_size = np.argsort(lists.sizes, kind="stable")
            short, long = (lists.select(each) for each in np.array_split(by_size, 2))
            shifted.append(
                row_of(f"{name}: learned from the shorter lists, used on the longer", [(short, long)], *RULES[:1], None)
            )
            train, vali, test = overfitted(path)
            shifted.append(
                row_of(f"{name}: learned from the lists that trained the trees", [(train, test)], *RULES[:1], None)
            )
            shifted.append(
                row_of(f"{name}: the same trees, learned from validation lists", [(vali, test)], *RULES[:1], None)
            )
    texts = [name for name in sets if name.lower() in ("scifact", "cranfield")]
    for one, other in pairwise(texts):
        shifted.append(row_of(f"learned from {one}, used on {other}", [(sets[one], sets[other])], *RULES[:1], None))
    plain = [[row[0], row[3].partition(" ")[0], *row[5:]] for row in shifted]
    tables = {
        "cut-offs": (header, rows),
        "shifted": ([header[0], "recall", *header[5:]], plain),
    }
    for name, (titles, each) in tables.items():
        print(f"\n{name}\n\n{markdown_table(titles, each)}")
    typed = [Path(word).name if "/" in word else word for word in args]
    counts = {name: len(lists.sizes) for name, lists in sets.items()}
    Path(given.output).mkdir(parents=True, exist_ok=True)
    write_result(Path(given.output) / "cut-offs.json", ["python", "scripts/cut_offs.py", *typed], tables, lists=counts)


if __name__ == "__main__":
    sys.exit(main())
