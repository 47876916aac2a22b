"""Whether MLPs that see the whole list rank better than those that score each document alone, and by which options.

Each network is trained by `MLPRanker` on the training lists of a fold, a fifth of which end the training and select the epoch,
and is judged on the fold's validation lists, which no network has seen; test lists are not read. Values of each list are means
over seeds. Further options are compared with the default ones of their kind, by networks of the first seed. Every cell is kept in
`--output`, and finished ones are not run again; prints tables of means and of paired differences with bootstrap intervals of
95 %, and writes them as `context.json`:

    python scripts/default_context.py --path OHSUMED MQ2008 web_hosts.txt --output runs/context
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rankstruct as rs
from papers.sources import shuffle_documents
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser, add_cell_options
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.data import Source
from rankstruct.diagnostics import arrays_of
from rankstruct.files import write_result
from rankstruct.models import DeepSetScorer
from rankstruct.statistics import differences, with_interval
from rankstruct.text_tables import markdown_table

MEASURES = ("nDCG@10", "AP")
#: Options of `MLPRanker` by the name of a row; the first is what the others are compared with.
KINDS: dict[str, dict[str, Any]] = {
    "MLP": {},
    "mean": {"context": "mean"},
    "attention": {"context": "attention"},
    "MLP, noise 0.1": {"noise": 0.1},
    "mean, noise 0.1": {"context": "mean", "noise": 0.1},
    "attention, noise 0.1": {"context": "attention", "noise": 0.1},
}
#: Options other than the default ones, which they are compared with, by the kind and the name of a row.
OPTIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("mean", "mean and maximum"): {"context": partial(DeepSetScorer, pool=("mean", "max"))},
    ("attention", "gate"): {"context": partial(rs.ContextScorer, combine="gate")},
    ("attention", "attention alone"): {"context": partial(rs.ContextScorer, combine="attention")},
    ("attention", "two blocks"): {"context": partial(rs.ContextScorer, blocks=2)},
    ("attention", "width 64, four heads"): {"context": partial(rs.ContextScorer, width=64, heads=4)},
}


def run_cell(source: Source, options: dict[str, Any], seed: int) -> dict[str, Any]:
    """Each measure of each validation list of a fold, and the CPU seconds of training."""
    torch.set_num_threads(1)
    parts = source.read()
    train, vali = shuffle_documents(parts.train, seed=seed), shuffle_documents(parts.vali, seed=seed + 100)
    start = time.process_time()
    ranker = rs.MLPRanker(MEASURES[0], device="cpu", random_state=seed, **options).fit(**arrays_of(train))
    seconds = time.process_time() - start
    scores = ranker.predict(vali.features, group=vali.lengths)
    found = rs.evaluate(scores, vali.labels, list(MEASURES), offsets=vali.offsets)
    return {"seconds": seconds, **{name: [round(value, 6) for value in found[name].tolist()] for name in MEASURES}}


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("default_context", compare_networks, args, program="default_context.py")


def compare_networks(args: Sequence[str]) -> None:
    """Run the unfinished cells, and print the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument(
        "--path",
        nargs="+",
        required=True,
        help="folders with Fold1 ... Fold5, or files of lists, which are split into five",
    )
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="folds of these")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2], help="seeds of the networks")
    add_cell_options(parser, "cells", "runs/context")
    given = parser.parse_args(args)
    networks = {name: options for (_, name), options in OPTIONS.items()}
    planned = [(name, KINDS[name], seed) for seed in given.seeds for name in KINDS]
    planned += [(name, networks[name], given.seeds[0]) for name in networks]
    rows, cells = [*KINDS, *networks], []
    for network, options, seed in planned:
        for path in given.path:
            for fold in given.folds:
                protocol = {} if Path(path).is_dir() else {"protocol": "cross-validation", "labels": "real"}
                source, data = Source(path=path, fold=fold, **protocol), Path(path).stem
                request = {"network": repr(options), "content": source.digest()}
                name = f"{data}/{rows.index(network)}/{fold}-{seed}"
                cells.append(Cell(name, request, (source, options, seed), (data, network), fold, seed))
    with CellFolders(given.output) as store:
        results = store.run(run_cell, cells, processes=given.processes, what="networks").results
    sets = [Path(path).stem for path in given.path]

    def lists_of(network: str, seeds: Sequence[int]) -> list[list[list[dict[str, Any]]]]:
        return [[[results[(data, network), fold, seed] for fold in given.folds] for seed in seeds] for data in sets]

    first, *_ = KINDS
    kinds = {name: (lists_of(name, given.seeds), lists_of(first, given.seeds)) for name in KINDS}
    options = {name: (lists_of(name, given.seeds[:1]), lists_of(kind, given.seeds[:1])) for kind, name in OPTIONS}
    tables = {measure: table_of(kinds, sets, measure) for measure in MEASURES}
    tables |= {f"{measure}, options": table_of(options, sets, measure) for measure in MEASURES}
    header, rows = tables[MEASURES[0]]
    shown = [at for at, name in enumerate(header) if name not in sets]  # without means and without noise
    tables["summary"] = (
        [header[at] for at in shown],
        [[row[at] for at in shown] for row in rows if "noise" not in row[0]],
    )
    for name, (header, rows) in tables.items():
        print(f"\n{name}\n\n{markdown_table(header, rows)}")
    lists = {
        data: sum(len(fold[MEASURES[0]]) for fold in of[0]) for data, of in zip(sets, kinds[first][0], strict=True)
    }
    command = ["python", "scripts/default_context.py", *args]
    write_result(Path(given.output) / "context.json", command, tables, lists=lists, seeds=given.seeds)


def table_of(found: dict[str, tuple[list, list]], sets: Sequence[str], measure: str) -> tuple[list, list]:
    """A row per network: means and differences from another by set, the difference over all lists, and CPU seconds of training.

    Args:
        found: results of each network and of the other, by set, seed and fold.
        sets: the names of the sets.
        measure: the measure.
    """
    rows: list[list[Any]] = []
    for network, (own, other) in found.items():
        values, compared = ([_values(each, measure) for each in some] for some in (own, other))
        apart = [differences(*pair) for pair in zip(values, compared, strict=True)]
        row = [network]
        for each, difference in zip(values, apart, strict=True):
            row += [f"{each.mean():.4f}", with_interval(difference)]
        seconds = [fold["seconds"] for each in own for seed in each for fold in seed]
        rows.append([*row, with_interval(np.concatenate(apart)), f"{np.mean(seconds):.1f}"])
    header = ["network", *(name for data in sets for name in (data, f"{data}, difference")), "all lists", "CPU s"]
    return header, rows


def _values(seeds: list[list[dict[str, Any]]], measure: str) -> np.ndarray:
    """The mean over seeds of each list's value."""
    return np.mean([np.concatenate([fold[measure] for fold in folds]) for folds in seeds], axis=0)


if __name__ == "__main__":
    sys.exit(main())
