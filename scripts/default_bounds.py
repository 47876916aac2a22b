"""Which bound each measure should take by default: the papers' convex one, the two that are not convex, and where they begin.

Linear scorers on raw features, five folds, documents shuffled within each query, C chosen on the validation lists by the measure
that is trained for. Every value is kept in the folder `--output`, and what is there is not run again; prints a table, and writes
it as `bounds.json`:

    python scripts/default_bounds.py --path OHSUMED MQ2008 --output runs/bounds
"""

from __future__ import annotations

import argparse
import datetime
import sys
import warnings
from pathlib import Path

import torch

import rankstruct as rs
from rankstruct.commands.cells import Cell, CellFolders, CellsFailed
from rankstruct.data import Source, shuffle_documents
from rankstruct.diagnostics import arrays_of, mean_measures
from rankstruct.files import write_result
from rankstruct.tables import markdown_table

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
REFUSED = ("more than one grade", "must have one gain", "TopSurrogateLoss takes")  # words of the messages


def test_value(path: str, fold: int, measure: str, bound: str) -> float | None:
    """The test measure of the C that the validation lists choose; None where the bound does not take measure or labels."""
    torch.set_num_threads(1)
    parts = Source(path=path, fold=fold).read()
    train, vali, test = (shuffle_documents(part, seed=3 * fold + at) for at, part in enumerate(parts))
    options = dict(BOUNDS[bound])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a bound stays at w = 0 is what the table shows
        try:
            if "surrogate" in options:
                options["loss"] = rs.TopSurrogateLoss(measure, options.pop("surrogate"))
            ranker = rs.LinearRanker(measure, C=COSTS, **options)
            ranker.fit(**arrays_of(train), **arrays_of(vali, "_valid"))
        except ValueError as error:
            if not any(words in str(error) for words in REFUSED):
                raise
            return None
    return mean_measures(ranker.predict(test.features), test, [measure])[measure]


def run_cell(path: str, folds: list[int], measure: str, bound: str) -> dict:
    """The values of all folds, and what made them."""
    made = f"{datetime.date.today()}, rankstruct {rs.__version__}, torch {torch.__version__}"
    return {"made": made, "values": [test_value(path, fold, measure, bound) for fold in folds]}


def main(arguments: list[str] | None = None) -> int:
    """Run what the folder does not hold yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", nargs="+", required=True, help="folders with Fold1 ... Fold5")
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--output", default="runs/bounds", help="folder of the values (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="cells at once (default: %(default)s)")
    given = parser.parse_args(arguments)
    cells = {}
    for path in given.path:
        content = Source(path=path, fold=given.folds[0]).digest()
        for measure in MEASURES:
            for number, bound in enumerate(BOUNDS):
                request = {"bound": bound, "folds": given.folds, "content": content}
                name = f"{Path(path).name}/{measure}/{number}"
                cells[path, measure, bound] = Cell(name, request, (path, given.folds, measure, bound))
    try:
        with CellFolders(Path(given.output)) as store:
            results = store.run(run_cell, list(cells.values()), processes=given.processes, what="bounds").results
    except (ValueError, OSError, CellsFailed) as error:
        print(f"default_bounds: {error}", file=sys.stderr)
        return 1
    found = {key: results[cell.name] for key, cell in cells.items()}
    print(f"{max(each['made'] for each in found.values())}; means of folds {', '.join(map(str, given.folds))}\n")
    columns = [(path, measure) for path in given.path for measure in MEASURES]
    rows = [[bound, *(_mean(found[path, measure, bound]["values"]) for path, measure in columns)] for bound in BOUNDS]
    header = ["bound", *(f"{Path(path).name} {measure}" for path, measure in columns)]
    print(markdown_table(header, rows))
    words = ["python", "scripts/default_bounds.py", *(sys.argv[1:] if arguments is None else arguments)]
    write_result(Path(given.output) / "bounds.json", words, {"bounds": (header, rows)})
    return 0


def _mean(values: list[float | None]) -> str:
    return "refused" if None in values else f"{sum(values) / len(values):.4f}"


if __name__ == "__main__":
    sys.exit(main())
