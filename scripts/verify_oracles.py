"""Compare every oracle with all rankings of random short lists: `python scripts/verify_oracles.py --lists 100000`.

The oracles of diverse rankings are compared with all diverse ones; those with item weights, on as many lists again and in both
precisions, with all rankings; the surrogates of measures of the top, likewise, with all rankings that swap their intruders. The
brute-force code is in tests/brute_force.py, so this runs from a checkout.
"""

import logging
import sys
import time
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import rankstruct as rs
from rankstruct.commands._arguments import CommandParser
from rankstruct.files import write_result
from rankstruct.oracles.registry import resolve
from rankstruct.progress import Progress
from rankstruct.text_tables import format_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import lanes
from brute_force import hinges, random_problem, random_weighted_problem, surrogates_of_lists
from combinations import legal_combinations, references_of_pairs

BINARY = "nDCG(min_relevant=1"
MEASURES = [f"{name}@{k}" for name in ("P", f"{BINARY})", "DCG") for k in (1, 3, 10)]
MEASURES += ["WTA", f"{BINARY})", f"{BINARY},discount='letor')@3", "nERU(d=0,half_life=3)@3"]
#: Measure, surrogate, rescaling.
SURROGATES = [
    *((measure, kind, "margin") for measure in MEASURES for kind in ("average", "max")),
    *((measure, kind, "slack") for measure in ("P@1", "P@2", "P@3", "P@10", "WTA") for kind in ("average", "max")),
]


_ALL = "every measure, discount, cut-off, decay and reference, diverse ones included"
_SURROGATES = "the surrogates of precision at k, in both precisions"
_WEIGHTED = "the same with item weights, for the measures that take them, in both precisions"


def verify_surrogates(rng: np.random.Generator, lists: int, most: int) -> dict[tuple[str, str], list[float]]:
    """Counts as the table has them: lists, comparisons, failures and the largest error of each surrogate and precision."""
    counts: dict[tuple[str, str], list[float]] = {}
    bar, done = Progress(total=lists, unit="list"), 0
    while done < lists:
        for measure, kind, rescaling in SURROGATES:
            batch, n = int(rng.integers(1, 65)), int(rng.integers(0, most + 1))
            p, size = int(rng.integers(0, n + 1)), n + int(rng.integers(0, 3))
            scores = rng.normal(size=(batch, n)) * 10.0 ** rng.integers(-3, 4, size=(batch, 1))
            scores = np.where(rng.random((batch, 1)) < 0.4, np.round(scores * 2) / 2, scores)
            scores = scores.astype(np.float32).astype(float)
            expected = surrogates_of_lists(rs.parse_measure(measure), kind, rescaling, p, scores)
            largest = np.maximum(1, np.abs(scores).max(1, initial=0))
            real, given, labels = np.arange(size) < n, np.full((batch, size), np.nan), rng.normal(size=(batch, size))
            given[:, :n], labels[:, :n] = scores, np.arange(n) < p
            if not measure.startswith(("DCG", "nERU")):  # of the same relevance
                labels[:, :n] *= rng.integers(2, 9, size=(batch, n)) / 2
            places = rng.permuted(np.tile(np.arange(size), (batch, 1)), axis=1)
            given, labels = (np.take_along_axis(values, places, 1) for values in (given, labels))
            for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
                loss = rs.TopSurrogateLoss(measure, kind, rescaling, reduction="none")
                found = loss(torch.tensor(given, dtype=dtype), torch.tensor(labels), where=torch.tensor(real[places]))
                errors = np.abs(found.numpy() - expected) / largest
                row = counts.setdefault((f"{kind}, {rescaling}", str(dtype).removeprefix("torch.")), [0, 0, 0, 0.0])
                row[0] += batch
                row[1] += batch
                row[2] += int((errors > tolerance).sum())
                row[3] = max(row[3], errors.max())
                if (errors > tolerance).any():
                    at = int(errors.argmax())
                    print(f"FAILED {measure} {kind} {rescaling} {dtype}: {scores[at].tolist()}, the first {p} relevant")
            done += batch
            bar.update(batch)
    bar.close()
    return counts


def verify_weighted(rng: np.random.Generator, lists: int, most: int) -> dict[tuple[str, str], list[float]]:
    """Counts as the table has them: lists, comparisons, failures and the largest error of each measure with item weights."""
    counts: dict[tuple[str, str], list[float]] = {}
    bar, done = Progress(total=lists, unit="list"), 0
    pairs = {(m, f): its for (m, f, diverse), its in references_of_pairs().items() if not diverse}
    pairs = {pair: its for pair, its in pairs.items() if resolve(*pair).takes_item_weights}
    while done < lists:
        for (measure, feature_map), references in pairs.items():
            scores, labels, weights, expected, size = random_weighted_problem(rng, measure, feature_map, most)
            dtype, tolerance = ((torch.float64, 4e-9), (torch.float32, 4e-5))[int(rng.random() < 0.3)]
            given = torch.tensor(scores, dtype=dtype)
            if dtype == torch.float32:
                expected = hinges(measure, feature_map, labels, given.double().numpy(), weights=weights)
            row = counts.setdefault((type(measure).__name__, str(dtype).removeprefix("torch.")), [0, 0, 0, 0.0])
            for reference in references:
                found = rs.most_violated(
                    given,
                    torch.tensor(labels),
                    measure,
                    feature_map=feature_map,
                    reference=reference,
                    item_weights=torch.tensor(weights),
                )
                by_direction = float(found.task_loss.double() + found.direction.double() @ given.double())
                error = max(abs(each - expected[reference]) for each in (found.value.item(), by_direction)) / size
                row[1] += 1
                row[2] += error > tolerance
                row[3] = max(row[3], error)
                if error > tolerance:
                    what = scores.tolist(), labels.tolist(), weights.tolist()
                    print(f"FAILED {measure.name} {feature_map.name} {reference} {dtype}: {what}")
            row[0] += 1
            done += 1
            bar.update()
    bar.close()
    return counts


def verify_kernels(lists: int, seconds: float, seed: int, only: Sequence[str] | None) -> int:
    """Compare the kernels of devices with the core, a few lists at a time: values, and what their directions are worth."""
    rng, start, done, failures, worst, others = np.random.default_rng(seed), time.monotonic(), 0, 0, 0.0, 0
    pairs = [each for each in legal_combinations(cutoffs=(None, 1, 3)) if not only or type(each[0]).__name__ in only]
    kernels, bar = lanes.kernels(), Progress(total=lists, unit="list")
    logging.getLogger("rankstruct.kernels.gpu").setLevel(logging.ERROR)  # NumPy takes long, as if it compiled
    while done < lists and time.monotonic() - start < seconds:
        for measure, feature_map, reference in pairs:
            batch, size, block = (int(rng.integers(*ends)) for ends in ((1, 9), (0, 13), (3, 17)))
            size *= 1 + 3 * int(rng.random() < 0.02)  # longer than several blocks
            kernels.DeviceBatch.block = block  # so that short lists have several
            lanes.Lanes.checks = rng.random() < 0.1
            scores = rng.normal(size=(batch, size)) * 10.0 ** rng.integers(-3, 4, size=(batch, 1))
            tied = rng.random((batch, 1)) < 0.4
            dtype, tolerance = ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.1))[
                int(rng.choice(3, p=[0.9, 0.05, 0.05]))
            ]
            given = torch.tensor(np.where(tied, np.round(scores * 2) / 2, scores)).to(dtype)
            labels = torch.tensor((rng.random((batch, size)) < rng.random((batch, 1))) * 1.0)
            options = {"feature_map": feature_map, "reference": reference}
            if isinstance(feature_map, rs.Positional):  # any grades, some of them many, and halves
                labels *= torch.tensor(rng.integers(1, rng.choice([2, 5, 9]), size=(batch, size)) / rng.choice([1, 2]))
            options["where"] = torch.tensor(rng.random((batch, size)) < rng.choice([0.6, 1.0]))
            frozen = ("predicted", "below-window", *["ideal-tied"] * isinstance(feature_map, rs.Positional))
            if reference in frozen and rng.random() < 0.5:
                options["reference_scores"] = torch.tensor(rng.normal(size=(batch, size)).round(1))
            if resolve(measure, feature_map).takes_item_weights and rng.random() < 0.5:
                options["item_weights"] = torch.tensor(rng.integers(1, 4, size=(batch, size)) / 2)
            if size and rng.random() < 0.2:  # as flat lists of other lengths
                cuts = np.sort(rng.integers(0, batch * size + 1, size=batch - 1))
                del options["where"]
                options = {name: each.flatten() if torch.is_tensor(each) else each for name, each in options.items()}
                options["offsets"] = torch.tensor([0, *cuts, batch * size])
                given, labels = given.flatten(), labels.flatten()
            expected = rs.most_violated(given, labels, measure, **options)
            with pytest.MonkeyPatch.context() as patch:
                lanes.use(patch)
                found = rs.most_violated(given, labels, measure, **options)
            ends = options.get("offsets", torch.arange(batch + 1) * size).tolist()
            exact = given.double().flatten()
            largest = torch.stack([exact[a:b].abs().amax() if b > a else exact.new_ones(()) for a, b in pairwise(ends)])
            products = (found.direction.double() - expected.direction.double()).flatten() * exact
            products = torch.stack([products[a:b].sum() for a, b in pairwise(ends)])
            products += (found.task_loss.double() - expected.task_loss.double()).flatten()
            errors = torch.maximum((found.value.double() - expected.value.double()).flatten().abs(), products.abs())
            errors = errors / largest.clamp(min=1)
            wrong = ~(errors < tolerance)
            errors *= dtype == torch.float64
            others += int(((found.direction - expected.direction).abs() > tolerance).any())
            worst, failures, done = max(worst, float(errors.max())), failures + int(wrong.sum()), done + batch
            bar.update(batch)
            if wrong.any():
                at = int(wrong.nonzero()[0])
                print(
                    f"FAILED {measure.name} {feature_map.name} {reference}, list {at}:",
                    *(given.tolist(), labels.tolist(), options),
                )
    bar.close()
    print(
        f"{done:,} lists, {failures} wrong; largest error {worst:.1e}; another ranking as good: {others}; seed {seed}"
    )
    return failures


def main() -> int:
    """Compare, and write what was found."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--lists", type=int, default=100_000, help="random lists in all")
    parser.add_argument("--seconds", type=float, default=1800, help="stop after this time")
    parser.add_argument("--most", type=int, default=5, help="documents of the longest list")
    parser.add_argument("--seed", type=int, default=0, help="of the lists")
    only = "of these measures alone, such as pAUC F, and no surrogates"
    parser.add_argument("--measures", nargs="+", metavar="NAME", help=only)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the counts to this file, as `write_results.py` reads them"
    )
    kernels = "kernels: those of devices, with NumPy in place of Triton, against the core"
    parser.add_argument("--device", choices=["cpu", "kernels"], default="cpu", help=kernels)
    options = parser.parse_args()
    oracles_alone = bool(options.measures) or options.device != "cpu"
    if options.json and oracles_alone:
        parser.error("--json is for all measures on the CPU; leave out --measures and --device")
    if options.device == "kernels":
        failures = verify_kernels(options.lists, options.seconds, options.seed, options.measures)
        return int(failures > 0)
    wanted = options.measures or [type(measure).__name__ for measure, *_ in references_of_pairs()]
    pairs = {key: value for key, value in references_of_pairs().items() if type(key[0]).__name__ in wanted}
    counts: dict[tuple[str, str], list[float]] = {}
    rng = np.random.default_rng(options.seed)
    start, done = time.monotonic(), 0
    bar = Progress(total=options.lists, unit="list")
    while done < options.lists and time.monotonic() - start < options.seconds:
        for (measure, feature_map, diverse), references in pairs.items():
            scores, labels, diversity_groups, expected, size = random_problem(
                rng, measure, feature_map, diverse, options.most
            )
            given = {} if diversity_groups is None else {"diversity_groups": torch.tensor(diversity_groups)}
            judged = rs.Diverse(measure) if diverse else measure
            name = "diverse " * diverse + type(feature_map).__name__
            row = counts.setdefault((type(measure).__name__, name), [0, 0, 0, 0.0])
            for reference in references:
                found = rs.most_violated(
                    torch.tensor(scores),
                    torch.tensor(labels),
                    judged,
                    feature_map=feature_map,
                    reference=reference,
                    **given,
                )
                by_direction = found.task_loss.item() + float(found.direction.numpy() @ scores)
                error = (
                    max(abs(found.value.item() - expected[reference]), abs(by_direction - expected[reference])) / size
                )
                row[1] += 1
                row[2] += error > 1e-9
                row[3] = max(row[3], error)
                if error > 1e-9:
                    print(
                        f"FAILED {name} {measure.name} {feature_map.name} {reference}: {scores.tolist()} {labels.tolist()}"
                    )
                    print(*(f"{key} {value.tolist()}" for key, value in given.items()))
            row[0] += 1
            done += 1
            bar.update()
    bar.close()
    tables = {"measures": table(("measure", "feature map"), counts)}
    failures = print_table(tables["measures"])
    print(f"{len(pairs)} pairs of measure and feature map, {done} lists, {comparisons(counts)} comparisons")
    if oracles_alone:
        return 1 if failures else 0
    warnings.filterwarnings("ignore", message="scores .* are lists of one document")  # as some of them are
    weighted = verify_weighted(rng, options.lists, options.most)
    tables["item weights"] = table(("measure", "scores"), weighted)
    failures += print_table(tables["item weights"])
    surrogates = verify_surrogates(rng, options.lists, options.most)
    tables["surrogates"] = table(("surrogate", "scores"), surrogates)
    failures += print_table(tables["surrogates"])
    print(f"{len(SURROGATES)} surrogates, {comparisons(surrogates) // 2} lists, {comparisons(surrogates)} comparisons")
    print(f"failures: {failures}")
    if options.json:
        write_result(
            options.json, ["python", *sys.argv], {"verification": summary(counts, done, surrogates, weighted), **tables}
        )
    return 1 if failures else 0


def table(names: tuple[str, str], counts: dict[tuple[str, str], list[float]]) -> tuple[list[str], list[list]]:
    """Header and a row for each two names."""
    rows = [[*name, int(a), int(b), int(c), f"{d:.1e}"] for name, (a, b, c, d) in counts.items()]
    return [*names, "lists", "comparisons", "failures", "largest error"], rows


def print_table(shown: tuple[list[str], list[list]]) -> int:
    """Returns the failures."""
    print(format_table(*shown))
    return sum(row[4] for row in shown[1])


def summary(counts: dict, lists: int, surrogates: dict, weighted: dict) -> tuple[list[str], list[list]]:
    """Header and rows of the documentation's table: all measures, all with item weights, all surrogates."""
    each = (
        (counts, lists, _ALL),
        (weighted, int(sum(row[0] for row in weighted.values())), _WEIGHTED),
        (surrogates, comparisons(surrogates) // 2, _SURROGATES),
    )
    rows = [
        [what, f"{number:,}", f"{comparisons(found):,}", str(int(sum(row[2] for row in found.values())))]
        for found, number, what in each
    ]
    return ["what is compared with all rankings", "lists", "comparisons", "failures"], rows


def comparisons(counts: dict[tuple[str, str], list[float]]) -> int:
    """All comparisons of a table."""
    return int(sum(row[1] for row in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
