"""Which preparation of features the exact rankers should take by default, and which C where nothing selects it.

Each ranker is trained on raw features prepared by each candidate, for several C, on real sets and on drawn ones with features of
units from 1e-6 to 1e6 and heavy tails. Everything is judged on validation lists, which are the folds' own or those of a split;
test lists are not read. Candidates are compared with the best one on each set by paired tests over lists, once with C selected on
the validation lists and once for each single C. Every cell is kept in `--output`, and finished ones are not run again; prints the
tables, and writes them as `preparation.json`:

    python scripts/default_preparation.py --path OHSUMED MQ2008 web_hosts.txt lightgbm.train --output runs/preparation
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rankstruct as rs
from papers.sources import shuffle_documents
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser, add_cell_options
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.data import RankingData, Source
from rankstruct.diagnostics import arrays_of
from rankstruct.files import write_result
from rankstruct.statistics import compare_paired
from rankstruct.text_tables import markdown_table

#: Steps by the name of a row.
CANDIDATES: dict[str, tuple[str, ...]] = {
    ", ".join(steps) or "none": steps
    for steps in (
        (),
        ("standardize",),
        ("quantile",),
        ("append-quantile", "standardize"),
        ("append-log", "standardize"),
        ("query-zscore",),
        ("append-query-zscore", "standardize"),
    )
}
COSTS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
#: Rankers by name, each with the measure that judges it.
RANKERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "AP hinge": ("AP", lambda **given: rs.LinearRanker("AP", **given)),
    "nDCG@10 hinge": ("nDCG@10", lambda **given: rs.LinearRanker("nDCG@10", **given)),
    "graded AUC hinge": ("nDCG@10", lambda **given: rs.LinearRanker("nDCG@10", loss=rs.GradedLoss("AUC"), **given)),
    "RBF kernel, AP hinge": ("AP", lambda **given: rs.KernelRanker("AP", exact_up_to=1500, landmarks=400, **given)),
}
LEVEL = 0.05  # of a difference that is marked


def _scales(z: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return z


def _tails(z: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return np.exp(2 * z)


def _counts(z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.poisson(np.exp(1.5 * z - 1)).astype(float)


#: Features of utilities that are linear in normal numbers z, or, for "outliers", in the features.
DRAWN = {"units": _scales, "heavy tails": _tails, "counts": _counts, "outliers": _scales}


def draw(kind: str, seed: int) -> tuple[RankingData, RankingData]:
    """Training lists and validation lists, 60 and 150 of 20 documents with 20 features and grades from 0 to 2."""
    rng = np.random.default_rng([seed, *kind.encode()])
    size, d = (210, 20), 20
    z = rng.standard_t(2, (*size, d)) if kind == "outliers" else rng.normal(size=(*size, d))
    z[..., : d // 2] += rng.normal(size=(size[0], 1, d // 2))  # half of the features also vary by query
    weights = rng.normal(size=d)
    noise = 0.7 * rng.normal(size=size)
    utilities = z @ weights / np.linalg.norm(weights) + noise
    labels = np.searchsorted(np.quantile(utilities, [0.8, 0.95]), utilities)
    X = DRAWN[kind](z, rng) * 10.0 ** rng.permutation(np.linspace(-6, 6, d))
    qid = np.repeat(np.arange(size[0]), size[1])
    both = RankingData.from_arrays(X.reshape(-1, d).astype(np.float32), labels.ravel(), list(map(str, qid)))
    return both.select(np.arange(60)), both.select(np.arange(60, 210))


def read(data: str, path: str | None, fold: int) -> tuple[RankingData, RankingData]:
    """Training and validation lists of a fold, in shuffled order within each list."""
    if data in DRAWN:
        return draw(data, fold)
    if path is None:
        parts = Source(builtin=data, seed=fold).read()
    elif Path(path).is_dir():
        parts = Source(path=path, fold=fold).read()
    else:
        parts = Source(path=path, fold=fold, protocol="cross-validation", labels="real").read()
    return shuffle_documents(parts.train, seed=fold), shuffle_documents(parts.vali, seed=fold + 100)


def run_cell(data: str, path: str | None, fold: int, name: str, candidate: str) -> dict[str, Any]:
    """The measure of each validation list for every C, and the CPU seconds."""
    torch.set_num_threads(1)
    train, vali = read(data, path, fold)
    measure, make = RANKERS[name]
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scales, and bounds that stay at w = 0, are what the table shows
        ranker = make(C=COSTS, prepare=CANDIDATES[candidate]).fit(**arrays_of(train), **arrays_of(vali, "_valid"))
        values = []
        for number in range(len(COSTS)):
            scores = ranker.use_path(number).predict(vali.features, group=np.diff(vali.offsets))
            each = rs.evaluate(scores, vali.labels, [measure], offsets=vali.offsets)[measure]
            values.append([round(value, 6) for value in each.tolist()])
    return {"values": values, "seconds": time.process_time() - start}


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("default_preparation", compare_candidates, args, program="default_preparation.py")


def compare_candidates(args: Sequence[str]) -> None:
    """Run the unfinished cells, and print the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument(
        "--path",
        nargs="*",
        default=[],
        help="folders with Fold1 ... Fold5, or files of lists, which are split into five",
    )
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="folds of these")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2], help="seeds of digits and of the drawn sets")
    add_cell_options(parser, "cells", "runs/preparation")
    given = parser.parse_args(args)
    sets: dict[str, tuple[str | None, list[int]]] = {Path(path).stem: (path, given.folds) for path in given.path}
    sets |= dict.fromkeys(("digits", *DRAWN), (None, given.seeds))
    cells = []
    for data, (path, folds) in sets.items():
        for fold in folds:
            content = "" if path is None else Source(path=path, fold=fold, protocol=_protocol(path)).digest()
            for row, name in enumerate(RANKERS):
                if "kernel" in name and fold != folds[0]:
                    continue
                for column, candidate in enumerate(CANDIDATES):
                    request = {"ranker": name, "candidate": candidate, "C": list(COSTS), "content": content}
                    arguments = (data, path, fold, name, candidate)
                    cells.append(
                        Cell(f"{data}/{row}/{fold}-{column}", request, arguments, (data, name, candidate), fold)
                    )
    with CellFolders(given.output) as store:
        results = store.run(run_cell, cells, processes=given.processes, what="preparations").results
    found: dict[tuple[str, str, str], list[list[list[float]]]] = {}
    for (config, *_), result in results.items():
        found.setdefault(config, []).append(result["values"])
    tables = tables_of(found, list(sets))
    for name, (header, rows) in tables.items():
        print(f"\n{name}\n\n{markdown_table(header, rows)}")
    seconds = sum(result["seconds"] for result in results.values())
    lists = {name: sum(len(each[0]) for each in found[name, "AP hinge", "none"]) for name in sets}
    command = ["python", "scripts/default_preparation.py", *args]
    write_result(Path(given.output) / "preparation.json", command, tables, lists=lists, seconds=seconds)


def _protocol(path: str) -> Any:
    return "folds" if Path(path).is_dir() else "cross-validation"


def tables_of(found: dict, sets: Sequence[str]) -> dict[str, tuple[list, list]]:
    """For each ranker a table of the sets with C selected, and one of all preparations and single C over the sets."""
    tables = {}
    for name in RANKERS:
        best = {data: _best(found, data, name) for data in sets}
        rows = [
            [candidate, *(_marked(_selected(found[data, name, candidate]), best[data]) for data in sets)]
            for candidate in CANDIDATES
        ]
        tables[name] = ["preparation", *sets], rows
        singles = []
        for candidate in CANDIDATES:
            for number, C in enumerate(COSTS):
                each = {d: np.concatenate([fold[number] for fold in found[d, name, candidate]]) for d in sets}
                lost = {data: float((best[data] - values).mean()) for data, values in each.items()}
                worse = [data for data in sets if _is_worse(each[data], best[data])]
                worst = max(lost, key=lost.__getitem__)
                row = [candidate, f"{C:g}", float(np.mean(list(lost.values()))), lost[worst], worst, len(worse)]
                singles.append(row)
        header = ["preparation", "C", "mean loss", "largest loss", "on", "sets significantly below"]
        tables[f"{name}, single C"] = header, singles
    return tables


def _selected(folds: list[list[list[float]]]) -> np.ndarray:
    """Values of all lists, for the best C of each fold."""
    return np.concatenate([max(fold, key=np.mean) for fold in folds])


def _best(found: dict, data: str, name: str) -> np.ndarray:
    """Values of the candidate with the highest mean, with C selected."""
    return max((_selected(found[data, name, candidate]) for candidate in CANDIDATES), key=np.mean)


def _is_worse(values: np.ndarray, best: np.ndarray) -> bool:
    compared = compare_paired(values, best, "t")
    return compared.difference < 0 and compared.p < LEVEL


def _marked(values: np.ndarray, best: np.ndarray) -> str:
    return f"{values.mean():.4f}{' *' if _is_worse(values, best) else ''}"


if __name__ == "__main__":
    sys.exit(main())
