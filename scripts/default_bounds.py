"""Which bound each measure should take by default: the papers' convex one, the two that are not convex, and where they begin.

Linear scorers on raw features, five folds, documents shuffled within each query, C chosen on the validation lists by the measure
that is trained for. Writes every value to a JSON file and a table to the standard output:

    python scripts/default_bounds.py --path OHSUMED MQ2008 --output bounds.json
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import warnings
from pathlib import Path

import torch
from tqdm import tqdm

import rankstruct as rs
from rankstruct.data import Source, shuffle_documents
from rankstruct.diagnostics import arrays_of, mean_measures
from rankstruct.files import whole_file
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
}


def test_value(path: str, fold: int, measure: str, options: dict) -> float:
    """The test measure of the C that the validation lists choose; NaN where the bound does not take the labels."""
    parts = Source(path=path, fold=fold).read()
    train, vali, test = (shuffle_documents(part, seed=3 * fold + at) for at, part in enumerate(parts))
    ranker = rs.LinearRanker(measure, C=COSTS, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a bound stays at w = 0 is what the table shows
        try:
            ranker.fit(**arrays_of(train), **arrays_of(vali, "_valid"))
        except ValueError as error:
            if "more than one grade" not in str(error):
                raise
            return float("nan")
    return mean_measures(ranker.predict(test.features), test, [measure])[measure]


def main(arguments: list[str] | None = None) -> int:
    """Run what the file does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", nargs="+", required=True, help="folders with Fold1 ... Fold5")
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--output", default="bounds.json", help="the values; what it holds already is not run again")
    given = parser.parse_args(arguments)
    output, values = Path(given.output), {}
    if output.exists():
        values = json.loads(output.read_text())["values"]
    torch.set_num_threads(1)
    cells = [(path, m, b, f) for path in given.path for m in MEASURES for b in BOUNDS for f in given.folds]
    for path, measure, bound, fold in tqdm(cells, desc="bounds", disable=None):
        key = f"{Path(path).name} | {measure} | {bound} | {fold}"
        if key not in values:
            values[key] = test_value(path, fold, measure, BOUNDS[bound])
            made = f"{datetime.date.today()}, rankstruct {rs.__version__}, torch {torch.__version__}"
            with whole_file(output) as file:
                json.dump({"made": made, "values": values}, file, indent=1)
    print(f"{json.loads(output.read_text())['made']}; means of folds {', '.join(map(str, given.folds))}\n")
    names = [Path(path).name for path in given.path]
    rows = []
    for bound in BOUNDS:
        row = [bound]
        for name in names:
            for measure in MEASURES:
                found = [values[f"{name} | {measure} | {bound} | {fold}"] for fold in given.folds]
                row.append(f"{sum(found) / len(found):.4f}".replace("nan", "refused"))
        rows.append(row)
    print(markdown_table(["bound", *(f"{name} {measure}" for name in names for measure in MEASURES)], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
