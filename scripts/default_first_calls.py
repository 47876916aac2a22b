"""What the first call of `BoostedRanker` and `LinearRanker` should do where nothing is given, compared with other libraries.

Every ranker is trained on the training lists of a fold and judged on its validation lists, which choose among the options, and on
its test lists, which choose nothing. `--path` has folders with Fold1 ... Fold5, files of lists, which are split into five, and
collections of text, whose documents are BM25's with the features of `rankstruct.text.TermFeatures`. Two sets are drawn: a table
with categories and missing cells, and lists with real-valued labels from 0 to 1. LightGBM's ranker takes no such labels; it gets
the 31 grades that are nearest, with their gains; and XGBoost's the whole numbers that are nearest to 1,000 times their gains.
CatBoost's 1,000 trees are grown on sets of at most 10,000 training documents. Few lists for trees are drawn from the first fold,
with another seed each time, which is also the seed of the ranker; those for linear rankers from each fold in turn, of every set
that has more. Every cell is kept in `--output`, and finished ones are not run again; prints the tables, and writes them as
`first-calls.json`:

    python scripts/default_first_calls.py --path OHSUMED MQ2008 web_hosts.txt rank.train SCIFACT --output runs/first-calls

Cranfield's judgements are codes from 1, the best, to 4; `--grades CRANFIELD=5` trains and judges on 5 less the code. A code below
0 leaves the document out.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import pandas as pd
import torch

import rankstruct as rs
from papers.sources import shuffle_documents
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser, add_cell_options
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.data import RankingData, Source, Splits
from rankstruct.files import write_result
from rankstruct.statistics import differences, with_interval
from rankstruct.text import TERM_FEATURES, TextSource
from rankstruct.text_tables import markdown_table

MEASURE = "nDCG@10"
#: What `BoostedRanker()` was before it had the defaults of this comparison.
BEFORE: dict[str, Any] = {
    "loss": "GradedLoss('AUC')",
    "learning_rate": 0.05,
    "num_leaves": 7,
    "n_estimators": 1000,
    "validation_share": 0.2,
    "noise": 0.5,
    "subsample": 0.8,
    "colsample_bytree": 0.5,
}
PEER, OWN, OLD = "LGBMRanker()", "BoostedRanker()", "BoostedRanker(), before"
PEERS = (PEER, "XGBRanker()", "CatBoostRanker()")
SLOW, MOST = "CatBoostRanker()", 10_000  # training documents
#: The rankers of trees by the name of a row; options of `BoostedRanker`, None for the libraries' own.
TREES: dict[str, dict[str, Any] | None] = {
    PEER: None,
    OLD: BEFORE,
    OWN: {},
    "7 leaves": {"num_leaves": 7},
    "15 leaves": {"num_leaves": 15},
    "31 leaves": {"num_leaves": 31},
    "200 trees": {"n_estimators": 200},
    "graded AUC": {"loss": "GradedLoss('AUC')"},
    "half of the features": {"colsample_bytree": 0.5},
    "100 trees": {"n_estimators": 100},
    **dict.fromkeys(PEERS[1:]),
}
FIRST = (PEER, OLD, OWN)
COSTS = (1.0, 3.0, 10.0)
#: Losses of `LinearRanker`, each trained with every C.
LOSSES: dict[str, str | None] = {
    "bound of nDCG@10": None,
    "graded AP": "GradedLoss('AP')",
    "graded AUC": "GradedLoss('AUC')",
}
FIRST_LOSS = "graded AP"  # of `LinearRanker()`, with the last of `COSTS`
#: Models of text by name that are fitted to the collection; of the rankers by the name of a row, None for BM25.
TEXTS: dict[str, list[str] | None] = {"BM25": None, "words": [], "words and two cosines": ["lsa", "char-ngrams"]}
VALI, TEST = 120, 240  # lists of a drawn set
KINDS = (4, 12, 40)  # numbers of values of the three columns of categories


class Part(NamedTuple):
    """Features, an array or a frame, labels and the sizes of the lists."""

    X: Any
    labels: np.ndarray
    sizes: np.ndarray

    def select(self, lists: np.ndarray) -> Part:
        """Some of the lists."""
        rows = np.flatnonzero(np.isin(np.repeat(np.arange(len(self.sizes)), self.sizes), lists))
        return Part(
            self.X.iloc[rows] if hasattr(self.X, "iloc") else self.X[rows], self.labels[rows], self.sizes[lists]
        )


def draw_table(seed: int, lists: int) -> Part:
    """Lists of 25 documents with eight numbers, of which 15 % are missing, three categories, and four grades.

    The grades depend on products, thresholds, and a category of the document with one of the query.
    """
    rng, fixed = np.random.default_rng([seed, 77]), np.random.default_rng(5)
    query = np.repeat(np.arange(lists), 25)
    z = rng.normal(size=(len(query), 8))
    z[:, :3] += rng.normal(size=(lists, 3))[query]
    kinds = np.stack([rng.integers(0, number, len(query)) for number in KINDS], axis=1)
    kinds[:, 1] = rng.integers(0, KINDS[1], lists)[query]
    effects = [fixed.normal(size=number) for number in KINDS]
    both = fixed.normal(size=KINDS[:2])[kinds[:, 0], kinds[:, 1]]
    utilities = np.sin(2 * z[:, 0]) + z[:, 1] * (z[:, 2] > 0) + 0.7 * np.abs(z[:, 3]) + 0.5 * z[:, 4]
    utilities += effects[0][kinds[:, 0]] + 0.8 * both + 0.6 * effects[2][kinds[:, 2]]
    utilities += 0.8 * rng.normal(size=len(query))
    labels = np.searchsorted(np.quantile(utilities, [0.7, 0.85, 0.95]), utilities)
    z[rng.random(z.shape) < 0.15] = np.nan
    frame = pd.DataFrame(z, columns=[f"number {at}" for at in range(z.shape[1])])
    for at, number in enumerate(KINDS):
        frame[f"kind {at}"] = pd.Categorical(
            [f"k{kind}" for kind in kinds[:, at]], [f"k{kind}" for kind in range(number)]
        )
    return Part(frame, labels.astype(float), np.full(lists, 25))


def draw_real(seed: int, lists: int) -> Part:
    """Lists of 20 documents with 15 numbers and labels from 0 to 1, no two of which are equal."""
    rng, fixed = np.random.default_rng([seed, 78]), np.random.default_rng(9)
    query = np.repeat(np.arange(lists), 20)
    X = rng.normal(size=(len(query), 15))
    X[:, :5] += rng.normal(size=(lists, 5))[query]
    weights = fixed.normal(size=15)
    utilities = X @ weights / np.linalg.norm(weights) + 0.4 * X[:, 0] * X[:, 1] + 0.8 * rng.normal(size=len(query))
    return Part(X.astype(np.float32), 1 / (1 + np.exp(2 - 2 * utilities)), np.full(lists, 20))


LARGE = "mixed table, large"  # for trees alone
#: Drawn sets, and their numbers of training lists.
DRAWN: dict[str, tuple[Callable[[int, int], Part], int]] = {
    "mixed table": (draw_table, 120),
    LARGE: (draw_table, 1000),
    "real-valued": (draw_real, 120),
}


@cache
def read(data: str, path: str | None, fold: int, models: tuple[str, ...] = (), grades: int = 0) -> list[Part]:
    """Training, validation and test lists of a fold, in shuffled order within each list; of text also with models' scores, and
    with codes turned around into `grades` less the code.
    """
    if path is None:
        draw, number = DRAWN[data]
        bounds = np.cumsum([0, number, VALI, TEST])
        drawn = draw(fold, bounds[-1])
        return [drawn.select(np.arange(*pair)) for pair in pairwise(bounds.tolist())]
    if _is_text(path):
        parts = TextSource(path=path, fold=fold).read_terms(models)
        if grades:  # the documents without a code have grade 0
            turned = [np.where(each.labels > 0, grades - each.labels, each.labels) for each in parts]
            parts = Splits(*(replace(each, labels=labels) for each, labels in zip(parts, turned, strict=True)))
    elif Path(path).is_dir():
        parts = Source(path=path, fold=fold).read()
    else:
        parts = Source(path=path, fold=fold, protocol="cross-validation", labels="real").read()
    return [_part(shuffle_documents(each, seed=fold + 100 * at)) for at, each in enumerate(parts)]


def _part(lists: RankingData) -> Part:
    X = lists.features
    return Part(np.asarray(X.toarray() if hasattr(X, "toarray") else X), lists.labels.astype(float), lists.lengths)


def run_cell(
    data: str, path: str | None, fold: int, few: int, seed: int, kind: str, name: str, grades: int = 0
) -> dict[str, Any]:
    """The measure of each validation and test list, for a linear ranker one row per C, and the CPU seconds of training."""
    torch.set_num_threads(1)
    train, *judges = read(data, path, fold, tuple(TEXTS[name] or ()) if kind == "text" else (), grades)
    if few:
        train = train.select(np.sort(np.random.default_rng([seed, few]).permutation(len(train.sizes))[:few]))
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a bound that stays at w = 0 is what the table shows
        if kind == "text":
            score = _words(train, TEXTS[name])
        else:
            score = _linear(train, LOSSES[name]) if kind == "linear" else _trees(train, name, seed)
    seconds = time.process_time() - start
    found = {
        part: [_values(each, scores) for scores in score(each.X)]
        for part, each in zip(("vali", "test"), judges, strict=True)
    }
    return {"seconds": seconds, **found}


def _values(part: Part, scores: np.ndarray) -> list[float]:
    offsets = np.concatenate([[0], part.sizes.cumsum()])
    values = rs.evaluate(scores, part.labels, [MEASURE], offsets=offsets)[MEASURE]
    return [round(value, 6) for value in values.tolist()]


def _trees(train: Part, name: str, seed: int) -> Callable[[Any], list[np.ndarray]]:
    X, y, sizes = train
    options = TREES[name]
    if options is not None:
        model = rs.BoostedRanker(n_jobs=1, random_state=seed, **options).fit(X, y, group=sizes)
    elif name == SLOW:
        import catboost

        model = catboost.CatBoostRanker(thread_count=1, random_seed=seed, verbose=False, allow_writing_files=False)
        kinds = [column for column in getattr(X, "columns", ()) if X[column].dtype == "category"]
        model.fit(X, y, group_id=np.repeat(np.arange(len(sizes)), sizes), cat_features=kinds or None)
    elif name == "XGBRanker()":
        import xgboost

        given: dict[str, Any] = {}
        if (y % 1).any():  # whole numbers that are near the gains
            gains = 2**y - 1
            y, given = np.rint(gains / gains.max() * 1000), {"ndcg_exp_gain": False}
        model = xgboost.XGBRanker(n_jobs=1, random_state=seed, enable_categorical=True, **given)
        model.fit(X, y, group=sizes)
    else:
        given = {}
        if (y % 1).any():
            grades = np.arange(32)
            given = {"label_gain": (2 ** (grades / 31 * y.max()) - 1).tolist()}
            y = np.rint(y / y.max() * 31).astype(int)
        model = lightgbm.LGBMRanker(n_jobs=1, random_state=seed, verbose=-1, **given).fit(X, y, group=sizes)
    return lambda X: [model.predict(X)]


def _linear(train: Part, loss: str | None) -> Callable[[Any], list[np.ndarray]]:
    models = [rs.LinearRanker(MEASURE, C=C, loss=loss).fit(train.X, train.labels, group=train.sizes) for C in COSTS]
    return lambda X: [model.predict(X) for model in models]


def _words(train: Part, models: list[str] | None) -> Callable[[Any], list[np.ndarray]]:
    if models is None:
        return lambda X: [X[:, TERM_FEATURES.index("BM25")]]
    model = rs.LinearRanker(MEASURE, loss=LOSSES[FIRST_LOSS]).fit(train.X, train.labels, group=train.sizes)
    return lambda X: [model.predict(X)]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("default_first_calls", compare_calls, args, program="default_first_calls.py")


def compare_calls(args: Sequence[str]) -> None:
    """Run the unfinished cells, and print the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--path", nargs="*", default=[], help="folders, files of lists and collections of text")
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2], help="folds, and seeds of the drawn sets")
    parser.add_argument("--few", type=int, nargs="*", default=[18, 60], help="numbers of lists of small training sets")
    parser.add_argument(
        "--few-of", nargs="*", default=["mixed table"], help="the sets, by file or folder, that these are of"
    )
    parser.add_argument("--seeds", type=int, default=10, help="number of these of each size")
    parser.add_argument(
        "--few-linear", type=int, nargs="*", default=[18, 60, 200], help="these numbers, for linear rankers"
    )
    parser.add_argument("--draws", type=int, default=4, help="number of these of each size")
    parser.add_argument(
        "--kinds", nargs="+", choices=("trees", "linear", "text"), default=["trees", "linear", "text"], help="rankers"
    )
    parser.add_argument(
        "--grades", nargs="*", default=[], metavar="SET=NUMBER", help="turn a collection's codes: NUMBER less the code"
    )
    add_cell_options(parser, "cells", "runs/first-calls")
    given = parser.parse_args(args)
    sets: dict[str, str | None] = {Path(path).stem: path for path in given.path} | dict.fromkeys(DRAWN, None)
    turned = turned_codes(given.grades, [data for data, path in sets.items() if _is_text(path)])
    cells = []
    for data, path in sets.items():
        single = path is not None and (Path(path) / "qrels_train.tsv").exists()
        folds = given.folds[:1] if single else given.folds
        draws = [(folds[seed % len(folds)], seed) for seed in range(given.draws)]
        wanted: list[tuple[str, int, Sequence[tuple[int, int]], Sequence[str]]] = []
        if "trees" in given.kinds:
            small = len(read(data, path, folds[0], (), turned.get(data, 0))[0].labels) <= MOST
            rankers = [name for name in TREES if name != SLOW or small]
            wanted.append(("trees", 0, [(fold, 0) for fold in folds], rankers))
            few_runs = [(folds[0], seed) for seed in range(given.seeds)]
            wanted += [("trees", few, few_runs, FIRST) for few in given.few if data in given.few_of]
        if "linear" in given.kinds and data != LARGE:
            wanted.append(("linear", 0, [(fold, 0) for fold in folds], list(LOSSES)))
            lists = len(read(data, path, folds[0])[0].sizes)
            wanted += [("linear", few, draws, list(LOSSES)) for few in given.few_linear if few < lists]
        if "text" in given.kinds and _is_text(path):
            wanted.append(("text", 0, [(fold, 0) for fold in (folds if single else range(1, 6))], list(TEXTS)))
        for kind, few, runs, names in wanted:
            for at, name in enumerate(names):
                options: Any = {"loss": LOSSES[name], "C": list(COSTS)} if kind == "linear" else None
                options = options or {"trees": TREES, "text": TEXTS}[kind][name]
                request = {"kind": kind, "ranker": name, "options": options, "few": few}
                request |= {"grades": turned[data]} if data in turned else {}
                for fold, seed in runs:
                    arguments = (data, path, fold, few, seed, kind, name, turned.get(data, 0))
                    folder = f"{data}/{few}/{kind}/{at}/{fold}-{seed}"
                    cells.append(Cell(folder, request, arguments, (data, few, kind, name), fold, seed))
    cells.sort(key=lambda cell: (cell.arguments[5] == "linear", cell.arguments[3] > 0))
    with CellFolders(given.output) as store:
        results = store.run(run_cell, cells, processes=given.processes, what="rankers").results
    found: dict[tuple, dict[tuple, dict[str, Any]]] = {}
    for (config, *run_of), result in results.items():
        found.setdefault(config, {})[tuple(run_of)] = result
    tables = {}
    if "trees" in given.kinds:
        tables["trees"] = first_table(found, list(sets))
        tables["other libraries"] = peer_table(found, list(sets))
        tables["options of trees"] = options_table(found, list(sets))
        tables["few lists"] = spread_table(found, given.few_of, given.few)
    if "linear" in given.kinds:
        judged = [data for data in sets if data != LARGE]
        tables["linear rankers"] = linear_table(found, judged)
        tables["losses"] = loss_table(found, judged, [0])
        tables["losses, few lists"] = loss_table(found, judged, given.few_linear)
    if texts := [data for data in sets if (data, 0, "text", "BM25") in found]:
        tables["words alone"] = text_table(found, texts)
    for name, (header, rows) in tables.items():
        print(f"\n{name}\n\n{markdown_table(header, rows)}")
    lists = {data: len(_all(of, "test")) for (data, few, kind, _), of in found.items() if not few and kind != "text"}
    command = ["python", "scripts/default_first_calls.py", *args]
    write_result(Path(given.output) / "first-calls.json", command, tables, lists=lists, seeds=given.seeds)


def turned_codes(given: Sequence[str], texts: Sequence[str]) -> dict[str, int]:
    """What codes are subtracted from, by collection; raises ValueError for anything but SET=NUMBER of these collections.

    >>> turned_codes(["CRANFIELD=5"], ["CRANFIELD", "SCIFACT"])
    {'CRANFIELD': 5}
    """
    found = {}
    for each in given:
        data, _, number = each.rpartition("=")
        if data not in texts or not number.isdecimal() or int(number) < 2:
            known = f"a collection of --path ({', '.join(texts) or 'there is none'})"
            raise ValueError(f"--grades must be SET=NUMBER with {known} and a number from 2, got {each!r}")
        found[data] = int(number)
    return found


def _is_text(path: str | None) -> bool:
    return path is not None and (Path(path) / "corpus.jsonl").exists()


def _all(results: dict[tuple, dict[str, Any]], part: str, at: int = 0) -> np.ndarray:
    """The values of all lists, of the same list in several draws their mean."""
    of_fold: dict[int, list[list[float]]] = {}
    for (fold, _), result in results.items():
        of_fold.setdefault(fold, []).append(result[part][at])
    return np.concatenate([np.mean(each, 0) for each in of_fold.values()])


def first_table(found: dict, sets: Sequence[str]) -> tuple[list, list]:
    """Test means of the first calls and of the options that the validation lists prefer, differences, and CPU seconds."""
    rows = []
    for data in sets:
        results = {name: found[data, 0, "trees", name] for name in TREES if name != SLOW}
        test = {name: _all(each, "test") for name, each in results.items()}
        best = max(
            (name for name in results if name not in (*PEERS, OLD)), key=lambda name: _all(results[name], "vali").mean()
        )
        seconds = [f"{np.mean([each['seconds'] for each in results[name].values()]):.2f}" for name in FIRST]
        apart = [with_interval(differences(test[OWN], test[other])) for other in (PEER, OLD)]
        means = [f"{test[name].mean():.4f}" for name in (*FIRST, best)]
        above = with_interval(differences(test[best], test[OWN]))
        rows.append([data, *means[:3], *apart, means[3], best, above, *seconds])
    header = ["set", *FIRST, f"above {PEER}", "above before", "best by validation", "which is", f"above {OWN}"]
    return [*header, *(f"CPU s, {name}" for name in FIRST)], rows


def peer_table(found: dict, sets: Sequence[str]) -> tuple[list, list]:
    """Test means of the first calls of three libraries, how far the own one is above each, and CPU seconds."""
    names = [*PEERS, OWN]
    rows = []
    for data in sets:
        results = {name: found.get((data, 0, "trees", name)) for name in names}
        test = {name: _all(each, "test") for name, each in results.items() if each}
        means = [f"{test[name].mean():.4f}" if name in test else "-" for name in names]
        apart = [with_interval(differences(test[OWN], test[name])) if name in test else "-" for name in PEERS]
        seconds = [
            f"{np.mean([result['seconds'] for result in each.values()]):.2f}" if each else "-"
            for each in results.values()
        ]
        rows.append([data, *means, *apart, *seconds])
    return ["set", *names, *(f"above {name}" for name in PEERS), *(f"CPU s, {name}" for name in names)], rows


def options_table(found: dict, sets: Sequence[str]) -> tuple[list, list]:
    """Validation means of all options, and the difference from the first call over the lists of all sets."""
    own = {data: _all(found[data, 0, "trees", OWN], "vali") for data in sets}
    rows = []
    for name in (name for name in TREES if name != SLOW):
        each = {data: _all(found[data, 0, "trees", name], "vali") for data in sets}
        apart = np.concatenate([differences(each[data], own[data]) for data in sets])
        mean = np.mean([each[data].mean() for data in sets])
        rows.append([name, *(f"{each[data].mean():.4f}" for data in sets), f"{mean:.4f}", with_interval(apart)])
    return ["trees", *sets, "mean of sets", f"above {OWN}, all lists"], rows


def spread_table(found: dict, sets: Sequence[str], sizes: Sequence[int]) -> tuple[list, list]:
    """Mean and standard deviation of the mean test measure over draws of few lists, and the ratio of two deviations with a
    bootstrap interval over draws, which both rankers share.
    """
    rows = []
    for few in sizes:
        for data in sets:
            means = np.array(
                [[np.mean(each["test"][0]) for each in found[data, few, "trees", name].values()] for name in FIRST]
            )
            spreads = means.std(1, ddof=1) if means.shape[1] > 1 else np.zeros(len(FIRST))
            shown = [f"{mean:.4f} ± {spread:.4f}" for mean, spread in zip(means.mean(1), spreads, strict=True)]
            rows.append([data, few, *shown, _ratio(means[FIRST.index(OWN)], means[FIRST.index(PEER)])])
    return ["set", "lists", *FIRST, f"± {OWN} / ± {PEER}"], rows


def _ratio(first: np.ndarray, second: np.ndarray) -> str:
    if len(first) < 3:
        return ""
    drawn = np.random.default_rng(0).integers(0, len(first), (10_000, len(first)))
    with np.errstate(divide="ignore", invalid="ignore"):  # the same draw throughout
        low, high = np.nanquantile(first[drawn].std(1) / second[drawn].std(1), [0.025, 0.975])
    return f"{first.std() / second.std():.2f} ({low:.2f} to {high:.2f})"


def linear_table(found: dict, sets: Sequence[str]) -> tuple[list, list]:
    """Test means of the first call and of the loss and C that the validation lists prefer, and CPU seconds for all C."""
    rows = []
    for data in sets:
        results = {name: found[data, 0, "linear", name] for name in LOSSES}
        choices = [(name, number) for name in LOSSES for number in range(len(COSTS))]
        name, number = max(choices, key=lambda choice: _all(results[choice[0]], "vali", choice[1]).mean())
        own, best = _all(results[FIRST_LOSS], "test", -1), _all(results[name], "test", number)
        seconds = [f"{np.mean([each['seconds'] for each in results[of].values()]):.2f}" for of in LOSSES]
        chosen = f"{name}, C = {COSTS[number]:g}"
        rows.append(
            [data, f"{own.mean():.4f}", f"{best.mean():.4f}", chosen, with_interval(differences(best, own)), *seconds]
        )
    header = ["set", "LinearRanker()", "best by validation", "which is", "above LinearRanker()"]
    return [*header, *(f"CPU s, {name}" for name in LOSSES)], rows


def loss_table(found: dict, sets: Sequence[str], sizes: Sequence[int]) -> tuple[list, list]:
    """Validation means of the losses of linear rankers, for each single C, and differences from the first call."""
    rows = []
    for few in sizes:
        known = [data for data in sets if (data, few, "linear", FIRST_LOSS) in found]
        for number, C in enumerate(COSTS):
            for name in LOSSES if known else ():
                values = {data: _all(found[data, few, "linear", name], "vali", number) for data in known}
                own = [_all(found[data, few, "linear", FIRST_LOSS], "vali", -1) for data in known]
                apart = np.concatenate([differences(*pair) for pair in zip(values.values(), own, strict=True)])
                means = [values[data].mean() if data in values else np.nan for data in sets]
                shown = ["-" if np.isnan(mean) else f"{mean:.4f}" for mean in means]
                rows.append([few or "all", f"{C:g}", name, *shown, f"{np.nanmean(means):.4f}", with_interval(apart)])
    return ["lists", "C", "loss", *sets, "mean of sets", "above LinearRanker(), all lists"], rows


def text_table(found: dict, sets: Sequence[str]) -> tuple[list, list]:
    """Means of rankers of words of text, and differences from BM25, on validation and test queries."""
    rows = []
    for data in sets:
        for name in TEXTS:
            row = [data, name]
            for part in ("vali", "test"):
                bm25, own = (_all(found[data, 0, "text", of], part) for of in ("BM25", name))
                row += [f"{own.mean():.4f}", with_interval(differences(own, bm25))]
            rows.append(row)
    return ["set", "ranker", "validation", "above BM25", "test", "above BM25, test"], rows


if __name__ == "__main__":
    import default_first_calls  # so that other processes, which run the cells, find its cached functions by name

    sys.exit(default_first_calls.main())
