"""Which bound each measure should take by default: the papers' convex one, the two that are not convex, and where they begin;
which C, where there are no validation lists to choose it; and what becomes of the bounds in a plain loop of SGD from zero.

Linear scorers, five folds, documents shuffled within each query. Bounds are compared on raw features by their test values, C
chosen on the validation lists by the measure that is trained for; single C of the default bound by what the validation lists,
which chose nothing, say; loops by the best and by the last of their epochs on the validation lists. Every value is kept in the
folder `--output`, and what is there is not run again; prints three tables, and writes them as `bounds.json`:

    python scripts/default_bounds.py --path OHSUMED MQ2008 --output runs/bounds
"""

from __future__ import annotations

import datetime
import sys
import warnings
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

import torch

import rankstruct as rs
from papers.sources import shuffle_documents
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser, add_cell_options
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.data import BatchLoader, Source
from rankstruct.diagnostics import arrays_of, mean_measures
from rankstruct.files import write_result
from rankstruct.text_tables import markdown_table

MEASURES = ("nDCG@10", "P@10", "RR@10")
COSTS = (0.01, 0.1, 1.0, 10.0, 100.0)
OLD = {"start": "regression", "regularize_towards": "zero"}
BOUNDS = {
    "default": {},
    "positional, ideal (convex)": {"feature_map": "positional", "reference": "ideal"},
    "positional, ideal-tied, from regression": {"feature_map": "positional", "reference": "ideal-tied", **OLD},
    "positional, predicted, from regression": {"feature_map": "positional", "reference": "predicted", **OLD},
    "positional, predicted, from the best AUC": {"feature_map": "positional", "reference": "predicted"},
    "pairwise, ideal (convex)": {"feature_map": "pairwise", "reference": "ideal"},
    "graded AUC alone": {"loss": rs.GradedLoss("AUC")},
    "average surrogate (convex)": {"surrogate": "average"},
    "max surrogate (convex)": {"surrogate": "max"},
}
#: Rankers with their default bound and one C, judged on the validation lists.
SINGLE = {
    f"{C:g}{', standardized features' if prepare else ''}": {"C": C, "prepare": prepare}
    for prepare in ([], ["standardize"])
    for C in (1.0, 10.0, 100.0)
}
#: Losses of a loop for nDCG@10.
LOSSES = {
    "the default": lambda: rs.StructuredHingeLoss("nDCG@10"),
    'reference="predicted"': lambda: rs.StructuredHingeLoss("nDCG@10", reference="predicted"),
    "the same + 0.1 graded AUC": lambda: rs.CombinedLoss(
        [rs.StructuredHingeLoss("nDCG@10", reference="predicted"), rs.GradedLoss("AUC")], weights=[1, 0.1]
    ),
    'nDCG, reference="predicted"': lambda: rs.StructuredHingeLoss("nDCG", reference="predicted"),
    'GradedLoss("AUC")': lambda: rs.GradedLoss("AUC"),
    'LambdaLoss("nDCG@10")': lambda: rs.LambdaLoss("nDCG@10"),
}
LOOPS = {f"{name}, lr={rate:g}": (loss, rate) for rate in (0.1, 0.01) for name, loss in LOSSES.items()}
EPOCHS = 60
EPOCH_OF = {"best epoch": max, "last epoch": lambda curve: curve[-1]}
REFUSED = ("more than one grade", "must have one gain", "TopSurrogateLoss takes")  # words of the messages


def value(path: str, fold: int, measure: str, name: str) -> float | None:
    """The test measure of the C that the validation lists choose, or the validation measure of a single C; None where the bound
    does not take measure or labels.
    """
    torch.set_num_threads(1)
    parts = Source(path=path, fold=fold).read()
    train, vali, test = (shuffle_documents(part, seed=3 * fold + at) for at, part in enumerate(parts))
    options = {"C": COSTS, "prepare": (), **BOUNDS[name]} if name in BOUNDS else dict(SINGLE[name])
    judges, chooses = (test, arrays_of(vali, "_valid")) if name in BOUNDS else (vali, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a bound stays at w = 0 is what the table shows
        try:
            if "surrogate" in options:
                options["loss"] = rs.TopSurrogateLoss(measure, options.pop("surrogate"))
            ranker = rs.LinearRanker(measure, **options).fit(**arrays_of(train), **chooses)
        except ValueError as error:
            if not any(words in str(error) for words in REFUSED):
                raise
            return None
    return mean_measures(ranker.predict(judges.features), judges, [measure])[measure]


def curve(path: str, fold: int, measure: str, name: str) -> list[float]:
    """The measure on the validation lists after each epoch of a loop with a linear scorer on raw features, 16 lists a step."""
    torch.set_num_threads(1)
    parts = Source(path=path, fold=fold).read()
    train, vali = (shuffle_documents(part, seed=3 * fold + at) for at, part in enumerate(parts[:2]))
    torch.manual_seed(fold)
    make, rate = LOOPS[name]
    loss, scorer = make(), rs.LinearScorer(train.num_features)
    optimizer, found = torch.optim.Adam(scorer.parameters(), lr=rate), []
    loader = BatchLoader(train, lists_per_batch=16, shuffle=True, seed=fold)
    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            loss(scorer(batch.features), batch.labels, where=batch.where).backward()
            optimizer.step()
        with torch.no_grad():
            scores = scorer(torch.tensor(vali.features)).numpy()
        found.append(mean_measures(scores, vali, [measure])[measure])
    return found


def run_cell(path: str, folds: list[int], measure: str, name: str) -> dict:
    """The values of all folds, and what made them."""
    made = f"{datetime.date.today()}, rankstruct {rs.__version__}, torch {torch.__version__}"
    found = curve if name in LOOPS else value
    return {"made": made, "values": [found(path, fold, measure, name) for fold in folds]}


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("default_bounds", compare_bounds, args, program="default_bounds.py")


def compare_bounds(args: Sequence[str]) -> None:
    """Run what the folder does not hold yet, and print the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--path", nargs="+", required=True, help="folders with Fold1 ... Fold5")
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    add_cell_options(parser, "cells", "runs/bounds")
    given = parser.parse_args(args)
    kinds = {"bound": (MEASURES, BOUNDS), "single C": (("AP", *MEASURES), SINGLE), "loop": (MEASURES[:1], LOOPS)}
    cells = []
    for path in given.path:
        content = Source(path=path, fold=given.folds[0]).digest()
        for kind, (measures, names) in kinds.items():
            for measure, (number, name) in product(measures, enumerate(names)):
                request = {kind: name, "folds": given.folds, "content": content}
                folder = f"{Path(path).name}/{measure}/{number if kind == 'bound' else f'{kind}-{number}'}"
                cells.append(Cell(folder, request, (path, given.folds, measure, name), (path, measure, name)))
    with CellFolders(given.output) as store:
        results = store.run(run_cell, cells, processes=given.processes, what="bounds").results
    found = {config: result for (config, *_), result in results.items()}
    print(f"{max(each['made'] for each in found.values())}; means of folds {', '.join(map(str, given.folds))}")
    bounds, single, loops = (
        _table(kind, found, names, [(path, measure) for path in given.path for measure in measures])
        for kind, (measures, names) in kinds.items()
    )
    tables = {"bounds": bounds, "single C": single, "loops": loops}
    for header, rows in tables.values():
        print(f"\n{markdown_table(header, rows)}")
    write_result(Path(given.output) / "bounds.json", ["python", "scripts/default_bounds.py", *args], tables)


def _table(kind: str, found: dict, names: Iterable[str], columns: list[tuple[str, str]]) -> tuple[list, list]:
    chosen = EPOCH_OF if kind == "loop" else {None: lambda value: value}
    header = [f"{Path(path).name} {epoch or measure}" for path, measure in columns for epoch in chosen]
    rows = [
        [
            name,
            *(
                _mean([choose(value) for value in found[path, measure, name]["values"]])
                for path, measure in columns
                for choose in chosen.values()
            ),
        ]
        for name in names
    ]
    return [kind, *header], rows


def _mean(values: list[float | None]) -> str:
    return "refused" if None in values else f"{sum(values) / len(values):.4f}"


if __name__ == "__main__":
    sys.exit(main())
