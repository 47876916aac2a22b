"""Time oracles, losses, training or the scorer of trees against something public in the same run; print tables, write JSON.

python scripts/benchmark.py oracles --json oracles.json
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import catalogue, device, exact, large, losses, oracles, shards, trees
from benchmarks.timing import machine
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser
from rankstruct.data import read_folds
from rankstruct.files import whole_file, write_result
from rankstruct.text_tables import format_table

PROGRAM = "benchmark.py"

Table = tuple[list[str], list[list[object]]]


def _oracles(options: argparse.Namespace) -> dict[str, Any]:
    # Growth comes first: the matrices of all pairs would hide its peak of memory.
    growth = [] if options.brief else oracles.benchmark_growth(options.measures, seed=options.seed)
    given = {"threads": options.threads, "rounds": options.rounds, "seed": options.seed}
    timings = oracles.benchmark_oracles(options.measures, **given)
    print("loss, forward and backward, over torch.sort of the same float32 scores, round by round, calls in turn;")
    print(
        f"{oracles.DENSE}: a hinge over all relevant-irrelevant pairs as one matrix a list, - where that needs over 2 GB"
    )
    print(format_table(*oracles.as_rows(timings)))
    tables = {"oracles": oracles.by_case(timings)}
    report: dict[str, Any] = {"timings": timings, "tables": tables}
    if not options.brief:
        report["one list"] = oracles.benchmark_one_list(options.measures, seed=options.seed)
        print("\none list of 4 documents, forward and backward, over a softmax in plain torch, one thread")
        tables["one list"] = _print_rows(report["one list"])
        report["growth"] = growth
        print("\none list of 1,000 and one of 100,000 documents, 1 % relevant, one thread")
        tables["growth"] = _print_rows(growth)
        report["assignment"] = oracles.benchmark_assignment(seed=options.seed)
        print("\nmost violated ranking, positional map i^-0.5, five grades, one thread, against SciPy's assignment")
        tables["assignment"] = _print_rows(report["assignment"])
    return report


def _losses(options: argparse.Namespace) -> dict[str, Any]:
    timings = losses.benchmark_losses(
        options.losses,
        tuple(options.shape),
        options.relevant,
        options.rounds,
        options.seed,
        grades=options.grades,
        memory=not options.no_memory and sys.platform != "win32",
    )
    print("losses, forward and backward, over torch.sort of the same float32 scores, round by round, one thread")
    print(format_table(*losses.as_rows(timings)))
    return {"timings": timings, "tables": {"losses": losses.by_share(timings)}}


def _device(options: argparse.Namespace) -> dict[str, Any]:
    given = options.losses, options.shapes, options.precision, options.rounds, options.seed, options.relevant
    timings = device.benchmark_device(options.device, *given)
    name = torch.cuda.get_device_name(options.device) if options.device.startswith("cuda") else options.device
    print(f"losses on {name}, forward and backward, over torch.sort of the same scores there, round by round")
    table = device.by_shape(timings)
    print(format_table(*table))
    return {"device": name, "timings": timings, "tables": {"device": table}}


def _exact(options: argparse.Namespace) -> dict[str, Any]:
    names = options.rankers or list(exact.RANKERS)
    if options.rankers is None and importlib.util.find_spec("lightgbm") is not None:
        names.append(exact.LIGHTGBM)
    folds = [read_folds(options.data, fold) for fold in options.folds]
    rows = exact.benchmark_exact(folds, names, exact.CS, options.tolerance)
    print(f"{len(exact.CS)} values of C on {len(folds)} folds, relative gap {options.tolerance:g}, one thread")
    table = exact.as_rows(rows)
    print(format_table(*table))
    return {"rows": rows, "tables": {"exact": table}}


def _shards(options: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(options, name) for name in ("rows", "shards", "rounds", "seed")}
    if options.workers:
        workers = shards.benchmark_workers(options.folder, **given, workers=options.workers)
        print(f"an epoch on shards by DDP in processes of one thread on {os.cpu_count()} cores; medians")
        table = shards.as_workers(workers)
        print(format_table(*table))
        return {"epochs": workers, "tables": {"workers": table}, **given}
    given |= {"kinds": options.kinds}
    found = shards.benchmark_shards(options.folder, **given, minutes=options.minutes)
    print(f"an epoch of a linear scorer, {shards.FEATURES} float16 features; one thread, a process each; medians")
    table = shards.as_rows(found)
    print(format_table(*table))
    return {"epochs": found, "tables": {"shards": table}, **given}


def _large(options: argparse.Namespace) -> dict[str, Any]:
    names = list(large.STAGES) if options.stages is None else options.stages
    if options.stages is None and importlib.util.find_spec("lightgbm") is None:
        names.remove("lightgbm")
    given = {"C": options.C, "tolerance": options.tolerance, "threads": options.threads, "seed": options.seed}
    rows = large.benchmark_large(options.folder, options.scales, names, **given)
    print(f"the shape of MSLR-WEB10K, 136 features; {options.threads} threads; a process each, with its peak of memory")
    table = large.as_rows(rows)
    print(format_table(*table))
    if options.plot:
        with whole_file(options.plot, "wb") as file:
            large.draw_growth(rows).savefig(file, format="png", dpi=120)
    return {"rows": rows, "tables": {"large": table}, **given}


def _rankers(options: argparse.Namespace) -> dict[str, Any]:
    scales = [documents / 720_000 for documents in options.documents]
    given = {"threads": 1, "seed": options.seed}
    rows = large.benchmark_large(options.folder, scales, ["convert", *large.RANKERS], **given)
    print("rankers with their grids on lists of the shape of MSLR-WEB10K, 136 features; a process each, one thread")
    table = large.as_rankers(rows)
    print(format_table(*table))
    return {"rows": rows, "tables": {"rankers": table}}


def _catalogue(options: argparse.Namespace) -> dict[str, Any]:
    names = catalogue.installed_stages() if options.stages is None else options.stages
    given = {"threads": options.threads, "rounds": options.rounds}
    rows, products = catalogue.benchmark_catalogue(options.data, names, **given)
    tables = catalogue.as_tables(rows, products)
    print(f"{options.threads} threads; a process each, medians of {options.rounds} rounds in turn")
    for table in tables.values():
        print(f"\n{format_table(*table)}")
    return {"rows": rows, "products": products, "tables": tables, **given}


def _trees(options: argparse.Namespace) -> dict[str, Any]:
    rows = trees.benchmark_trees(trees.SHAPES, options.rounds, options.seed)
    print("scorer of boosted trees over LightGBM's predict of the same model, round by round, one thread")
    return {"rows": rows, "tables": {"trees": _print_rows(rows)}}


def _print_rows(rows: Sequence[dict[str, float | str]]) -> Table:
    header = list(dict.fromkeys(key for row in rows for key in row))
    cells: list[list[object]] = [[str(row.get(key, "")) for key in header] for row in rows]
    print(format_table(header, cells))
    return header, cells


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog=PROGRAM, description="Time, against something public in the same run.")
    kinds = parser.add_subparsers(required=True, metavar="WHAT")

    def kind(name: str, run: Any, what: str) -> argparse.ArgumentParser:
        added = kinds.add_parser(name, help=what, description=what)
        added.set_defaults(run=run)
        added.add_argument("--json", type=Path, help="file to write the figures to")
        return added

    def rounds(added: argparse.ArgumentParser, number: int) -> None:
        added.add_argument("--rounds", type=int, default=number, help="every call once each")
        added.add_argument("--seed", type=int, default=0, help="seed of scores and labels")

    one = kind("oracles", _oracles, "Losses of the oracles, forward and backward, over torch.sort of the same scores.")
    rounds(one, 100)
    one.add_argument("--measures", nargs="+", default=list(oracles.MEASURES), help="measures")
    one.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="thread counts")
    one.add_argument("--brief", action="store_true", help="leave out growth and the comparison with SciPy")

    one = kind("losses", _losses, "Every loss over torch.sort and over a squared loss of the same scores, one thread.")
    rounds(one, 10)
    one.add_argument("--losses", nargs="+", default=list(losses.LOSSES), metavar="NAME", help="losses (default: all)")
    shape: dict[str, Any] = {"default": losses.SHAPE, "metavar": ("LISTS", "SIZE")}
    one.add_argument("--shape", nargs=2, type=int, help="of the scores (default: 64 1000)", **shape)
    one.add_argument("--relevant", nargs="+", type=float, default=losses.SHARES, help="shares of relevant documents")
    one.add_argument("--grades", type=int, default=2, help="grades of the labels, 2 to 5")
    one.add_argument("--no-memory", action="store_true", help="leave out memory, which takes a process a loss")

    there = "Every loss on a device over torch.sort there: time, memory, and whether a step waits for the device."
    one = kind("device", _device, there)
    rounds(one, 20)
    one.add_argument("--device", default="cuda", help="as torch names it")
    one.add_argument("--losses", nargs="+", default=list(device.CALLS), metavar="NAME", help="losses (default: all)")
    one.add_argument("--shapes", nargs="+", default=device.SHAPES, metavar="LISTSxSIZE", help="of the scores")
    one.add_argument("--relevant", type=float, default=device.RELEVANT, help="share of documents with a label above 0")
    one.add_argument("--precision", nargs="+", default=device.PRECISIONS, metavar="DTYPE", help="dtypes of the scores")

    along = "Every linear ranker, trained to the optimum along C = 1 to 10000, over folds; one thread."
    one = kind("exact", _exact, along)
    one.add_argument("--data", required=True, help="folder of LETOR files with Fold1, Fold2, ...")
    one.add_argument("--folds", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="folds")
    one.add_argument("--rankers", nargs="+", help="names; all, and LightGBM where it is installed, if not given")
    one.add_argument("--tolerance", type=float, default=1e-3, help="relative gap")

    same = "The scorer of boosted trees over LightGBM's own predict of the same model, one thread."
    rounds(kind("trees", _trees, same), 30)

    items = "One epoch on implicit feedback, and evaluation over all items, against PyTorch, NumPy, implicit, ranx, RecTools."
    one = kind("catalogue", _catalogue, items)
    one.add_argument("--data", required=True, help="folder with train.txt, valid.txt and test.txt")
    one.add_argument("--stages", nargs="+", choices=list(catalogue.STAGES), help="all that can run, if not given")
    one.add_argument("--threads", type=int, default=1, help="of each stage")
    one.add_argument("--rounds", type=int, default=3, help="every stage once each")

    _add_growing(kind)
    return parser


def _add_growing(kind: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands on drawn lists of growing number."""
    grown = "AutoRanker and LambdaMART on growing lists of MSLR-WEB10K's shape: quality, CPU seconds and memory."
    one = kind("rankers", _rankers, grown)
    one.add_argument("--folder", required=True, help="where the lists are written, some 300 MB")
    one.add_argument("--documents", nargs="+", type=int, default=large.DOCUMENTS, help="numbers of documents")
    one.add_argument("--seed", type=int, default=0, help="of the lists")

    parts = "An epoch on Parquet shards against the same rows in one memory-mapped file: time and memory."
    one = kind("shards", _shards, parts)
    one.add_argument("--folder", required=True, help="where the rows are written, 80 bytes a row in all")
    one.add_argument("--rows", type=int, default=10**7, help="number of rows")
    one.add_argument("--shards", type=int, default=20, help="number of files")
    one.add_argument("--rounds", type=int, default=3, help="an epoch on each in every round")
    one.add_argument(
        "--kinds", nargs="+", choices=shards.KINDS, default=shards.KINDS, help="what to train on (default: both)"
    )
    one.add_argument(
        "--workers", nargs="+", type=int, help="on shards alone, by so many processes of this machine each"
    )
    one.add_argument("--minutes", type=float, help="of each epoch, at most (default: the whole)")
    one.add_argument("--seed", type=int, default=0, help="of the rows")

    web = "Conversion, exact training and SGD on lists of MSLR-WEB10K's shape, and scikit-learn and LightGBM."
    one = kind("large", _large, web)
    one.add_argument("--folder", required=True, help="where the lists are written, some 1.6 GB at scale 1")
    one.add_argument("--scales", nargs="+", type=float, default=large.SCALES, help="1 is 720,000 documents")
    one.add_argument("--stages", nargs="+", choices=list(large.STAGES), help="all that can run, if not given")
    one.add_argument("--C", type=float, default=100.0, help="of the exact fit")
    one.add_argument("--tolerance", type=float, default=1e-2, help="relative gap")
    one.add_argument("--threads", type=int, default=2, help="of each stage")
    one.add_argument("--seed", type=int, default=0, help="of the lists")
    one.add_argument("--plot", type=Path, help="file to draw the growth to")


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("benchmark", benchmark, args, program=PROGRAM)


def benchmark(args: Sequence[str]) -> None:
    """Time what was asked for."""
    options = _parser().parse_args(args)
    report = options.run(options)
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    if options.json:
        typed = ["python", "scripts/benchmark.py", *args]
        write_result(options.json, typed, report.pop("tables"), machine=machine(), **report)


if __name__ == "__main__":
    sys.exit(main())
