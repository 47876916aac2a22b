"""Whether MLPs that see the whole list rank better than those that score each document alone, and by which options.

Each network is trained by `MLPRanker` on the training lists of a fold, a fifth of which end the training and select the epoch,
and is judged on the fold's validation lists, which no network has seen; test lists are not read. Values are means over seeds.
Every cell is kept in `--output`, and finished ones are not run again; prints tables of means and of paired differences to the
plain MLP with bootstrap intervals of 95 %, and writes them as `context.json`:

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
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser, add_cell_options
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.data import Source, shuffle_documents
from rankstruct.diagnostics import arrays_of
from rankstruct.files import write_result
from rankstruct.models import DeepSetScorer
from rankstruct.statistics import bootstrap_interval, differences
from rankstruct.text_tables import markdown_table

MEASURES = ("nDCG@10", "AP")
#: Options of `MLPRanker` by the name of a row; the first is what the others are compared with.
NETWORKS: dict[str, dict[str, Any]] = {
    "MLP": {},
    "mean": {"context": "mean"},
    "attention": {"context": "attention"},
    "MLP, noise 0.1": {"noise": 0.1},
    "mean, noise 0.1": {"context": "mean", "noise": 0.1},
    "attention, noise 0.1": {"context": "attention", "noise": 0.1},
    "mean and maximum": {"context": partial(DeepSetScorer, pool=("mean", "max"))},
    "attention, gate": {"context": partial(rs.ContextScorer, combine="gate")},
    "attention alone": {"context": partial(rs.ContextScorer, combine="attention")},
    "attention, two blocks": {"context": partial(rs.ContextScorer, blocks=2)},
    "attention, width 64, four heads": {"context": partial(rs.ContextScorer, width=64, heads=4)},
}


def run_cell(source: Source, network: str, seed: int) -> dict[str, Any]:
    """Each measure of each validation list of a fold, and the CPU seconds of training."""
    torch.set_num_threads(1)
    parts = source.read()
    train, vali = shuffle_documents(parts.train, seed=seed), shuffle_documents(parts.vali, seed=seed + 100)
    start = time.process_time()
    ranker = rs.MLPRanker(MEASURES[0], device="cpu", random_state=seed, **NETWORKS[network]).fit(**arrays_of(train))
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
    cells = []
    for seed in given.seeds:
        for row, network in enumerate(NETWORKS):
            for path in given.path:
                for fold in given.folds:
                    protocol = {} if Path(path).is_dir() else {"protocol": "cross-validation", "labels": "real"}
                    source, data = Source(path=path, fold=fold, **protocol), Path(path).stem
                    request = {"network": repr(NETWORKS[network]), "content": source.digest()}
                    arguments = (source, network, seed)
                    name = f"{data}/{row}/{fold}-{seed}"
                    cells.append(Cell(name, request, arguments, (data, network), fold, seed))
    with CellFolders(given.output) as store:
        results = store.run(run_cell, cells, processes=given.processes, what="networks").results
    found = {
        (data, network): [[results[(data, network), fold, seed] for fold in given.folds] for seed in given.seeds]
        for data, network in dict.fromkeys(key[0] for key in results)
    }
    tables = {measure: table_of(found, measure) for measure in MEASURES}
    for measure, (header, rows) in tables.items():
        print(f"\n{measure}\n\n{markdown_table(header, rows)}")
    lists = {data: sum(len(each[MEASURES[0]]) for each in of[0]) for (data, name), of in found.items() if name == "MLP"}
    command = ["python", "scripts/default_context.py", *args]
    write_result(Path(given.output) / "context.json", command, tables, lists=lists, seeds=given.seeds)


def table_of(found: dict[tuple[str, str], list[list[dict[str, Any]]]], measure: str) -> tuple[list, list]:
    """A row per network: means and differences by set, the difference over all lists, and CPU seconds per set of five folds."""
    sets = list(dict.fromkeys(data for data, _ in found))
    first, *_ = NETWORKS

    def values(data: str, network: str) -> np.ndarray:
        return np.mean([np.concatenate([fold[measure] for fold in seed]) for seed in found[data, network]], axis=0)

    rows: list[list[Any]] = []
    for network in NETWORKS:
        row, every, seconds = [network], [], 0.0
        for data in sets:
            each = differences(values(data, network), values(data, first))
            every.append(each)
            row += [f"{values(data, network).mean():.4f}", "" if network == first else _interval(each)]
            seconds += sum(fold["seconds"] for seed in found[data, network] for fold in seed)
        networks = sum(len(seed) for data in sets for seed in found[data, network])
        rows.append([*row, "" if network == first else _interval(np.concatenate(every)), f"{seconds / networks:.1f}"])
    header = ["network", *(name for data in sets for name in (data, "difference")), "all lists", "CPU s"]
    return header, rows


def _interval(values: np.ndarray) -> str:
    low, high = bootstrap_interval(values)
    return f"{values.mean():+.4f} ({low:+.4f} to {high:+.4f})"


if __name__ == "__main__":
    sys.exit(main())
