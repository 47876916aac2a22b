r"""Training with the diverse loss against training without it, both re-ranked diversely: cross-validation over queries.

Linear scorers, trained to the optimum (or by rounds of DC programming) along the same path of C. For each fold C is chosen on
the other folds, by cross-validation within them, as the one with the best diverse measure, for every loss alike; then all
other folds train with it, and the fold is tested.

Data: a SVMlight/LETOR file whose comments name each document's host, such as `# host = a.org`. Labels may be means of several
judges' grades; their gain is 2^y - 1 at the mean y, which is that of the grade where the judges agree and rises in between, or
y itself under the linear gain.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from torch import nn

from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser, add_cell_options
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.data import DataError, RankingData, Source, read_svmlight
from rankstruct.data.dataset import concatenate
from rankstruct.data.pipeline import fit_preparation
from rankstruct.diagnostics import arrays_of
from rankstruct.estimators import LinearRanker
from rankstruct.feature_maps import Positional
from rankstruct.files import write_result
from rankstruct.losses import StructuredHingeLoss, is_convex
from rankstruct.measures import Diverse, Measure, StRecall, alpha_nDCG, diverse_nDCG, evaluate, nDCG
from rankstruct.oracles.registry import REFERENCES
from rankstruct.solvers import DC, Bundle
from rankstruct.statistics import TESTS, compare_paired
from rankstruct.text_tables import format_table

HOST = r"host = (\S+)"
COSTS = (0.01, 0.1, 1.0, 10.0, 100.0)


def read_hosts(path: str | Path, expression: str = HOST) -> RankingData:
    """A SVMlight/LETOR file with real labels and a host in each comment; in a folder, all its data files one after another.

    Args:
        path: a file, or a folder whose `*train*.txt` is read.
        expression: finds the host in a comment.

    Raises:
        DataError: no such file, or a comment without a host.
    """
    path = Path(path)
    files = sorted(path.glob("*train*.txt")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise DataError(f"{path}: expected a file, or a folder with a *train*.txt, got none")
    data = concatenate([read_svmlight(file, labels="real") for file in files])
    return data.with_groups(comment=expression)


def build_losses(k: int, reference: str, gain: str = "exponential", decay: str = "i^-0.5") -> dict[str, nn.Module]:
    """What is compared: the diverse hinge of nDCG@k; without groups with the same decay; and with the decay not cut at k.

    >>> list(build_losses(5, "ideal"))
    ['diverse', 'without groups', 'without groups, decay not cut']
    """
    measure = nDCG(k, gain=gain)
    return {
        "diverse": StructuredHingeLoss(Diverse(measure), feature_map=Positional(decay), reference=reference),
        "without groups": StructuredHingeLoss(measure, feature_map=Positional(decay, cutoff=k), reference=reference),
        "without groups, decay not cut": StructuredHingeLoss(
            measure, feature_map=Positional(decay), reference=reference
        ),
    }


def make_ranker(loss: nn.Module, measure: Measure, costs: Sequence[float], tolerance: float = 1e-2) -> LinearRanker:
    """A ranker for one or several C; if the loss is not convex, DC programming regularised towards least squares on the gains."""
    if is_convex(loss):
        return LinearRanker(measure, C=costs, loss=loss, prepare=(), solver=Bundle(tolerance=tolerance))
    rounds = DC(solver=Bundle(tolerance=tolerance), tolerance=tolerance)
    return LinearRanker(measure, C=costs, loss=loss, prepare=(), solver=rounds, regularize_towards="start")


def run_fold(
    data: RankingData,
    loss: nn.Module,
    measures: Sequence[Measure],
    costs: Sequence[float],
    folds: int,
    fold: int,
    seed: int,
) -> dict[str, Any]:
    """The lists of a fold and their values by each measure; C is chosen by cross-validation within the other folds."""
    parts = [np.sort(part) for part in np.array_split(np.random.default_rng(seed).permutation(data.num_lists), folds)]
    part = parts.pop(fold)
    chosen = np.zeros(len(costs))
    for number, inner in enumerate(parts):
        train = data.select(np.concatenate([each for other, each in enumerate(parts) if other != number]))
        ranker = make_ranker(loss, measures[0], costs)
        ranker.fit(**arrays_of(train), **arrays_of(data.select(inner), "_valid"))
        chosen += np.array(ranker.validation_) * len(inner)
    train, test = data.select(np.concatenate(parts)), data.select(part)
    ranker = make_ranker(loss, measures[0], [costs[int(chosen.argmax())]]).fit(**arrays_of(train))
    scores = ranker.predict(test.features)
    values = evaluate(scores, test.labels, measures, offsets=test.offsets, diversity_groups=test.diversity_groups)
    return {"lists": part.tolist(), "values": {measure: each.tolist() for measure, each in values.items()}}


def compare_losses(
    data: RankingData,
    losses: Mapping[str, nn.Module],
    measures: Sequence[Measure],
    *,
    output: str | Path,
    costs: Sequence[float] = COSTS,
    folds: int = 5,
    seeds: Sequence[int] = (0,),
    processes: int = 0,
) -> dict[str, dict[str, np.ndarray]]:
    """Cross-validate each loss over queries, on the same folds.

    Args:
        data: lists with groups.
        losses: by name.
        measures: what is reported; the first chooses C.
        output: folder of the cells, a loss on a fold each; finished ones are reused.
        costs: values of C.
        folds: number of folds; C is chosen by as many less one within the rest.
        seeds: of the folds; values are means over seeds.
        processes: cells at once.

    Returns:
        `{loss: {measure: [lists]}}`, each list's value being that under the weights trained without its fold.

    Raises:
        ValueError: fewer than three folds, or more than lists.
        CellsFailed: cells failed; the others are saved.
    """
    if not 3 <= folds <= data.num_lists:
        raise ValueError(f"folds must be from 3 to the number of lists, {data.num_lists}; got {folds}")
    found = {name: {measure.name: np.zeros(data.num_lists) for measure in measures} for name in losses}
    request = {"costs": list(costs), "folds": folds, "measures": list(map(str, measures)), "data": joblib.hash(data)}
    cells = [
        Cell(
            f"{name}/fold{fold}_seed{seed}",
            request | {"loss": repr(loss)},
            (data, loss, measures, costs, folds, fold, seed),
            name,
            fold,
            seed,
        )
        for name, loss in losses.items()
        for seed in seeds
        for fold in range(folds)
    ]
    with CellFolders(output) as store:
        results = store.run(run_fold, cells, processes=processes, what="folds").results
    for (name, _, _), result in results.items():
        for measure, values in result["values"].items():
            found[name][measure][result["lists"]] += np.array(values) / len(seeds)
    return found


def report_rows(found: Mapping[str, Mapping[str, np.ndarray]], measure: str, test: str = "randomization") -> list[list]:
    """A row a loss: all means, then the first loss' difference to it in `measure`, wins, losses and the paired p-value."""
    names = list(found)
    first = found[names[0]][measure]
    rows = []
    for name in names:
        means = [float(values.mean()) for values in found[name].values()]
        other = found[name][measure]
        if name == names[0]:
            rows.append([name, *means, "", "", "", ""])
        else:
            against = compare_paired(first, other, test)
            rows.append([name, *means, f"{against.difference:+.4f}", against.wins, against.losses, f"{against.p:.4f}"])
    return rows


def build_parser() -> argparse.ArgumentParser:
    """The options of this script."""
    parser = CommandParser(
        description="Train linear scorers with the diverse loss and without it, re-rank both diversely, and compare the diverse "
        "nDCG@k by cross-validation over queries.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--data", help="SVMlight/LETOR file with a host in each comment, or a folder with a *train*.txt"
    )
    source.add_argument("--synthetic", action="store_true", help="the built-in synthetic lists with hosts")
    parser.add_argument("--host", default=HOST, help="regular expression that finds the host")
    parser.add_argument("--prepare", nargs="*", default=["query-minmax"], help="preparation")
    parser.add_argument("--k", type=int, default=5, help="documents shown")
    parser.add_argument("--gain", choices=["exponential", "linear"], default="exponential", help="of a label")
    parser.add_argument("--decay", default="i^-0.5", help="of the feature map")
    parser.add_argument("--references", nargs="+", choices=REFERENCES, default=list(REFERENCES), help="(default: all)")
    parser.add_argument("--C", nargs="+", type=float, default=list(COSTS), help="grid")
    parser.add_argument("--folds", type=int, default=5, help="number of folds")
    parser.add_argument("--repeats", type=int, default=1, help="other folds, averaged by query")
    parser.add_argument("--test", choices=TESTS, default=TESTS[0], help="paired test")
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    add_cell_options(parser, "cells", "runs/diverse")
    parser.add_argument("--json", type=Path, help="write tables and values per query to this file")
    return parser


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("diverse", compare, args, program="diverse_experiment.py")


def compare(args: Sequence[str]) -> None:
    """Run what the folder does not hold yet; print the table of each reference; write JSON if asked."""
    options = build_parser().parse_args(args)
    data = (
        Source(builtin="synthetic-groups").read().train if options.synthetic else read_hosts(options.data, options.host)
    )
    data = fit_preparation(options.prepare, data)[1]
    judge: list[Measure] = [diverse_nDCG(options.k, gain=options.gain), nDCG(options.k, gain=options.gain)]
    judge += [alpha_nDCG(options.k), StRecall(options.k)]
    losses = {
        reference: build_losses(options.k, reference, options.gain, options.decay) for reference in options.references
    }
    found = compare_losses(
        data,
        {f"{reference}/{name}": loss for reference, each in losses.items() for name, loss in each.items()},
        judge,
        output=options.output,
        costs=sorted(options.C),
        folds=options.folds,
        seeds=range(options.seed, options.seed + options.repeats),
        processes=options.processes,
    )
    tables, values = {}, {}
    for reference, names in losses.items():
        its = {name: found[f"{reference}/{name}"] for name in names}
        header = ["loss", *(m.name for m in judge), "difference", "wins", "losses", "p"]
        tables[reference] = header, report_rows(its, judge[0].name, options.test)
        values[reference] = {name: {m: each.tolist() for m, each in by.items()} for name, by in its.items()}
        print(f"\nreference {reference}; {data.num_lists} queries, {options.folds} folds x {options.repeats}")
        print(format_table(*tables[reference]))
    print(
        f"\ndifference: of the diverse loss, in {judge[0].name}, with a two-sided paired {options.test} test over queries;"
        f"\n{judge[0].name} is of the list re-ranked diversely, the other measures are of the list by score"
    )
    if options.json:
        write_result(options.json, ["python", "scripts/diverse_experiment.py", *args], tables, values=values)


if __name__ == "__main__":
    sys.exit(main())
