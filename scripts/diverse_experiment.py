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

import numpy as np
from torch import nn

from rankstruct.data import DataError, RankingData, fit_preparation, read_splits, read_svmlight
from rankstruct.data.dataset import concatenate
from rankstruct.estimators import LinearRanker
from rankstruct.feature_maps import Positional
from rankstruct.files import write_result
from rankstruct.losses import StructuredHingeLoss, is_convex
from rankstruct.measures import Diverse, Measure, StRecall, alpha_nDCG, diverse_nDCG, evaluate, nDCG
from rankstruct.oracles.registry import REFERENCES
from rankstruct.progress import Progress
from rankstruct.solvers import DC, Bundle
from rankstruct.statistics import TESTS, compare_paired
from rankstruct.tables import format_table

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
        return LinearRanker(measure, C=costs, loss=loss, solver=Bundle(tolerance=tolerance))
    rounds = DC(solver=Bundle(tolerance=tolerance), tolerance=tolerance)
    return LinearRanker(measure, C=costs, loss=loss, solver=rounds, regularize_towards="start")


def split_lists(lists: int, folds: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Lists dealt out at random to `folds` parts of about one size."""
    return [np.sort(part) for part in np.array_split(rng.permutation(lists), folds)]


def compare_losses(
    data: RankingData,
    losses: Mapping[str, nn.Module],
    measures: Sequence[Measure],
    *,
    costs: Sequence[float] = COSTS,
    folds: int = 5,
    seed: int = 0,
) -> dict[str, dict[str, np.ndarray]]:
    """Cross-validate each loss over queries, on the same folds.

    Args:
        data: lists with groups.
        losses: by name.
        measures: what is reported; the first chooses C.
        costs: values of C.
        folds: number of folds; C is chosen by as many less one within the rest.
        seed: of the folds.

    Returns:
        `{loss: {measure: [lists]}}`, each list's value being that under the weights trained without its fold.

    Raises:
        ValueError: fewer than three folds, or more than lists.
    """
    if not 3 <= folds <= data.num_lists:
        raise ValueError(f"folds must be from 3 to the number of lists, {data.num_lists}; got {folds}")
    parts = split_lists(data.num_lists, folds, np.random.default_rng(seed))
    found = {name: {measure.name: np.empty(data.num_lists) for measure in measures} for name in losses}
    for name, loss in losses.items():
        for number, part in enumerate(Progress(parts, desc=name, unit="fold")):
            rest = [other for at, other in enumerate(parts) if at != number]
            chosen = np.zeros(len(costs))
            for at, inner in enumerate(rest):
                train = data.select(np.concatenate([each for other, each in enumerate(rest) if other != at]))
                held = data.select(inner)
                ranker = make_ranker(loss, measures[0], costs).fit(
                    *_arrays(train),
                    diversity_groups=train.diversity_groups,
                    X_valid=held.features,
                    y_valid=held.labels,
                    qid_valid=held.list_numbers,
                    diversity_groups_valid=held.diversity_groups,
                )
                chosen += np.array(ranker.validation_) * held.num_lists
            train, test = data.select(np.concatenate(rest)), data.select(part)
            ranker = make_ranker(loss, measures[0], [costs[int(chosen.argmax())]])
            scores = ranker.fit(*_arrays(train), diversity_groups=train.diversity_groups).predict(test.features)
            measured = evaluate(
                scores, test.labels, measures, offsets=test.offsets, diversity_groups=test.diversity_groups
            )
            for measure, values in measured.items():
                found[name][measure][part] = values
    return found


def _arrays(data: RankingData) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return data.features, data.labels, data.list_numbers


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
    parser = argparse.ArgumentParser(
        prog="diverse_experiment.py",
        description="Train linear scorers with the diverse loss and without it, re-rank both diversely, and compare the diverse "
        "nDCG@k by cross-validation over queries.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--data", help="SVMlight/LETOR file with a host in each comment, or a folder with a *train*.txt"
    )
    source.add_argument("--synthetic", action="store_true", help="the built-in synthetic lists with hosts")
    parser.add_argument("--host", default=HOST, help="regular expression that finds the host (default: %(default)s)")
    parser.add_argument("--prepare", nargs="*", default=["query-minmax"], help="preparation (default: %(default)s)")
    parser.add_argument("--k", type=int, default=5, help="documents shown (default: %(default)s)")
    parser.add_argument(
        "--gain", choices=["exponential", "linear"], default="exponential", help="(default: %(default)s)"
    )
    parser.add_argument("--decay", default="i^-0.5", help="of the feature map (default: %(default)s)")
    parser.add_argument("--references", nargs="+", choices=REFERENCES, default=list(REFERENCES), help="(default: all)")
    parser.add_argument("--C", nargs="+", type=float, default=list(COSTS), help="grid (default: %(default)s)")
    parser.add_argument("--folds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=1, help="other folds, averaged by query (default: %(default)s)")
    parser.add_argument("--test", choices=TESTS, default=TESTS[0], help="paired test (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the folds (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write tables and values per query to this file")
    return parser


def main(args: Sequence[str] | None = None) -> int:
    """Print the table for each reference; write JSON if asked; returns the exit status."""
    options = build_parser().parse_args(args)
    try:
        run(options)
    except (ValueError, OSError) as error:
        print(f"diverse_experiment: {error}", file=sys.stderr)
        return 1
    return 0


def run(options: argparse.Namespace) -> None:
    """Train, compare, print the tables and write them."""
    data = (
        read_splits(builtin="synthetic-groups").train if options.synthetic else read_hosts(options.data, options.host)
    )
    data = fit_preparation(options.prepare, data)[1]
    judge: list[Measure] = [diverse_nDCG(options.k, gain=options.gain), nDCG(options.k, gain=options.gain)]
    judge += [alpha_nDCG(options.k), StRecall(options.k)]
    tables, values = {}, {}
    for reference in options.references:
        losses = build_losses(options.k, reference, options.gain, options.decay)
        repeats = [
            compare_losses(data, losses, judge, costs=sorted(options.C), folds=options.folds, seed=options.seed + each)
            for each in range(options.repeats)
        ]
        found = {
            name: {m.name: np.mean([repeat[name][m.name] for repeat in repeats], axis=0) for m in judge}
            for name in losses
        }
        header = ["loss", *(m.name for m in judge), "difference", "wins", "losses", "p"]
        tables[reference] = header, report_rows(found, judge[0].name, options.test)
        values[reference] = {name: {m: each.tolist() for m, each in its.items()} for name, its in found.items()}
        print(f"\nreference {reference}; {data.num_lists} queries, {options.folds} folds x {options.repeats}")
        print(format_table(*tables[reference]))
    print(
        f"\ndifference: of the diverse loss, in {judge[0].name}, with a two-sided paired {options.test} test over queries;"
        f"\n{judge[0].name} is of the list re-ranked diversely, the other measures are of the list by score"
    )
    if options.json:
        write_result(options.json, ["python", *sys.argv], tables, values=values)


if __name__ == "__main__":
    sys.exit(main())
