"""Whole experiments from one config: trainers x folds x seeds, in parallel, restartable, with tables, plots and a report.

A cell is one trainer on one fold with one seed. When it is done, one line with the test values of every query is appended to
`results.jsonl` and flushed to the disk. A killed run is started again by the same command, which runs what is missing; a line
that was cut off is removed first. What is written does not depend on the order in which cells end, nor on earlier kills.

Documents are shuffled within their list before anything sees them: in some files their order tells the labels.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jsonargparse
import numpy as np
import torch
from tqdm import tqdm

from rankstruct.data import Source as ListSource
from rankstruct.data import Splits, check_preparation, parse_preparation, shuffle_documents
from rankstruct.data.protocols import PROTOCOLS
from rankstruct.experiments.baselines import choice_of, is_stochastic, make_trainer, path_of, trainer_options
from rankstruct.measures import evaluate, parse_measure
from rankstruct.statistics import TESTS

_SPECIAL = ("trainer", "prepare")  # keys of a trainer's entry that are not its options


@dataclass
class Source:
    """Where the lists of an experiment come from.

    Args:
        path: a folder of sets, each with `Fold1` and so on; or, without `sets`, the set itself.
        sets: names of sets in that folder, such as `[OHSUMED, MQ2008]`.
        builtin: `digits` or `synthetic`, in place of a path; a fold is then a seed.
        folds: numbers of the folds, or of the trials.
        protocol: `folds` (the official ones), `cross-validation` over as many folds as there are, or `trials`.
        sizes: lists of training, validation and test, for trials.
        queries: of each part of an ARFF file of classes, which is a set too (such as `letter.arff`).
        documents: of such a query.
        relevant: the class that is relevant; the rarest if None.
        prepare: preparation steps by name, for all parts.
        prepare_train: more steps, for the training lists alone.
        prepare_test: more steps, for validation and test lists alone.
        labels: `grades` or `real`.
        cache: whether parsed files are kept.
    """

    path: str | None = None
    sets: list[str] = field(default_factory=list)
    builtin: str | None = None
    folds: list[int] = field(default_factory=lambda: [1, 2, 3, 4, 5])
    protocol: str = "folds"
    sizes: list[int] = field(default_factory=lambda: [10, 5, 35])
    queries: int = 50
    documents: int = 100
    relevant: str | None = None
    prepare: list[str] = field(default_factory=list)
    prepare_train: list[str] = field(default_factory=list)
    prepare_test: list[str] = field(default_factory=list)
    labels: str = "grades"
    cache: bool = True


@dataclass
class Vary:
    """One option over several values, a curve a trainer.

    Args:
        option: of the trainers; those that do not have it run once. `lists` is the number of training lists, for all.
        values: what it takes.
    """

    option: str
    values: list[Any]

    def __post_init__(self) -> None:
        self.values = [_frozen(value) for value in self.values]
        if not self.values or len({json.dumps(value) for value in self.values}) < len(self.values):
            raise ValueError(f"vary.values must be one or more different values, got {self.values}")
        if self.option == "lists" and not all(isinstance(n, int) and n > 0 for n in self.values):
            raise ValueError(f"vary.values: numbers of lists must be whole numbers above 0, got {self.values}")


def _frozen(value: Any) -> Any:
    """Lists as tuples, so that a value may name a row."""
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


@dataclass
class Plan:
    """An experiment.

    Args:
        trainers: by the name they have in tables: `trainer`, one of `baselines.TRAINERS`; `prepare`, steps for it alone; and
            the trainer's options.
        data: where the lists come from.
        measures: what is measured on the test lists.
        cutoffs: nDCG at 1 to this cut-off is measured too, for curves; 0 for none.
        select: the measure that chooses settings on validation lists; None leaves it to the trainers, some of which take the
            measure that they optimise.
        C: what trainers with an option `C` take if they have none of their own.
        baselines: names among `trainers`; the others are tested against the best of these, measure by measure.
        reference: the trainer of the table of wins and losses; the first if None.
        seeds: how often a trainer that is random is run; its values are averaged query by query.
        vary: one option over several values.
        test: the paired test: `wilcoxon`, `t` or `randomization`.
        pairs: what is paired: `query`, or `fold` (means), where folds are trials that share queries.
    """

    trainers: dict[str, dict[str, Any]]
    data: Source = field(default_factory=Source)
    measures: list[str] = field(default_factory=lambda: ["AUC", "AP", "nDCG@10", "nDCG", "RR", "P@10"])
    cutoffs: int = 0
    select: str | None = None
    C: list[float] | None = None
    baselines: list[str] = field(default_factory=list)
    reference: str | None = None
    seeds: int = 5
    vary: Vary | None = None
    test: str = "wilcoxon"
    pairs: str = "query"

    def __post_init__(self) -> None:
        if not self.trainers:
            raise ValueError("trainers: name at least one")
        for name in [*self.baselines, *filter(None, [self.reference])]:
            if name not in self.trainers:
                raise ValueError(
                    f"baselines and reference: {name!r} is none of the trainers {', '.join(self.trainers)}"
                )
        for name, choices, value in (
            ("test", TESTS, self.test),
            ("pairs", ("query", "fold"), self.pairs),
            ("data.protocol", PROTOCOLS, self.data.protocol),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
        if self.seeds < 1 or self.cutoffs < 0:
            raise ValueError(f"seeds must be at least 1 and cutoffs at least 0, got {self.seeds} and {self.cutoffs}")
        if (self.data.path is None) == (self.data.builtin is None):
            raise ValueError("give data.path (--data.path FOLDER) or data.builtin, one of them")
        if self.data.builtin is not None and self.data.sets:
            raise ValueError("data.sets names folders in data.path; a built-in set has none")
        if self.data.builtin is not None and self.data.protocol != "folds":
            raise ValueError(
                f"data.protocol {self.data.protocol!r} goes with data.path; of a built-in set a fold is a seed"
            )
        self.measures = [parse_measure(name).name for name in self.measures]
        for name, entries in (
            ("data.folds", self.data.folds),
            ("data.sets", self.data.sets),
            ("measures", self.measures),
        ):
            if len(set(entries)) < len(entries):
                raise ValueError(f"{name} has an entry twice: {entries}")
        for name, entries in (("data.folds", self.data.folds), ("measures", self.measures)):
            if not entries:
                raise ValueError(f"{name} must have an entry")
        for name in self.trainers:
            if not isinstance(name, str) or not name.strip() or name.startswith("_") or "$" in name:
                raise ValueError(f"trainers: {name!r} is no name; one is text without $, not beginning with _")
        check_preparation(self.data.prepare)
        for steps in (self.data.prepare_train, self.data.prepare_test):
            parse_preparation(steps)
        if self.vary is not None and self.vary.option != "lists":
            kinds = [str(entry.get("trainer")) for entry in self.trainers.values() if isinstance(entry, Mapping)]
            if not any(self.vary.option in trainer_options(kind) for kind in kinds):
                raise ValueError(f"vary.option: no trainer has the option {self.vary.option!r}")
        for cell in self.cells():
            check_preparation(cell.spec.get("prepare", []))
            try:
                make_trainer(cell.spec["trainer"], select=self.select, **cell.options)
            except (ValueError, TypeError) as error:
                raise ValueError(f"trainers.{cell.name}: {error}") from error

    @property
    def all_measures(self) -> list[str]:
        """Measures with those of the curves, each once."""
        return list(dict.fromkeys([*self.measures, *self.curve]))

    @property
    def curve(self) -> list[str]:
        """The measures of the curve of cut-offs."""
        return [parse_measure(f"nDCG@{k}").name for k in range(1, self.cutoffs + 1)]

    def cells(self) -> list[Cell]:
        """All cells, those that a reader of the table meets first, first."""
        found = []
        for set_name in self.data.sets or [""]:
            for name, entry in self.trainers.items():
                if not isinstance(entry, Mapping) or "trainer" not in entry:
                    raise ValueError(f"trainers.{name}: give `trainer` and its options, got {entry!r}")
                options = trainer_options(str(entry["trainer"]))
                values: list[Any] = [None]
                if self.vary is not None and self.vary.option in ("lists", *options):
                    values = self.vary.values
                for value in values:
                    spec = dict(entry)
                    if self.C is not None and "C" in options:
                        spec.setdefault("C", self.C)
                    if value is not None and self.vary is not None:
                        spec[self.vary.option] = value
                    drawn = is_stochastic(entry["trainer"]) and "random_state" not in entry
                    seeds = range(self.seeds if drawn else 1)
                    runs = itertools.product(self.data.folds, seeds)
                    found += [Cell(set_name, name, value, fold, seed, spec) for fold, seed in runs]
        return found

    def request(self, cell: Cell) -> str:
        """What a cell's result depends on, as a short digest."""
        settings = {k: v for k, v in asdict(self.data).items() if k not in ("sets", "folds", "cache")}
        if self.data.protocol == "cross-validation":
            settings["folds"] = max(self.data.folds)
        wanted: dict[str, Any] = {
            "spec": cell.spec,
            "data": settings,
            "measures": sorted(self.all_measures),
            "select": self.select,
        }
        wanted["cell"] = [cell.set_name, cell.fold, cell.seed]
        if self.data.path is not None:
            wanted["content"] = ListSource(str(Path(self.data.path) / cell.set_name)).digest()
        return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Cell:
    """One trainer on one fold with one seed.

    Attributes:
        set_name: the folder of the set; "" for a single one.
        name: the trainer's name in tables.
        value: of the option that varies, or None.
        fold: its number.
        seed: from 0.
        spec: the trainer's entry.
    """

    set_name: str
    name: str
    value: Any
    fold: int
    seed: int
    spec: dict[str, Any]

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """What tells cells of an experiment apart."""
        return self.set_name, self.name, json.dumps(self.value), self.fold, self.seed

    @property
    def options(self) -> dict[str, Any]:
        """The trainer's options."""
        taken = trainer_options(self.spec["trainer"])
        return {k: v for k, v in self.spec.items() if k not in _SPECIAL and (k != "lists" or k in taken)}


def read_plan(config: str | Path, overrides: Sequence[str] = ()) -> Plan:
    """A plan from a config file.

    Raises:
        ValueError: an unknown key, trainer, option, measure or step; the message is one line.
    """
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--config", action="config")
    parser.add_class_arguments(Plan, None)
    try:
        found = parser.parse_args(["--config", str(config), *overrides])
        values = parser.instantiate_classes(found).as_dict()
        values.pop("config", None)
        return Plan(**values)
    except (jsonargparse.ArgumentError, TypeError, ValueError) as error:
        raise ValueError(f"{config}: {error}") from error


def run_cell(plan: Plan, cell: Cell) -> dict[str, Any]:
    """Train and test one cell.

    Returns:
        What is kept of it, ready for JSON: `cell` (its key), `request`, `choice`, `path` (`baselines.path_of`), `seconds` of
        training, `documents` and `removed` of the three parts, `qids`, and `values`, a list a measure with one number a test
        query.
    """
    settings = asdict(plan.data) | {"path": str(Path(plan.data.path) / cell.set_name) if plan.data.path else None}
    source = ListSource(**{k: v for k, v in settings.items() if k not in ("sets", "folds")}, parts=max(plan.data.folds))
    raw = source.with_fold(cell.fold).read_raw()
    shuffled = Splits(*(shuffle_documents(part, seed=3 * cell.seed + at) for at, part in enumerate(raw)))
    prepared = source.prepare_splits(shuffled, cell.spec.get("prepare", []))
    train, vali, test = prepared
    if "lists" in cell.spec and "lists" not in cell.options:
        number = int(cell.spec["lists"])
        if number > train.num_lists:
            raise ValueError(f"lists: there are {train.num_lists} training lists, not {number}")
        chosen = np.random.default_rng([cell.seed, cell.fold]).permutation(train.num_lists)[:number]
        train = train.select(np.sort(chosen))
    trainer = make_trainer(cell.spec["trainer"], seed=cell.seed, select=plan.select, **cell.options)
    start = time.perf_counter()
    trainer.fit(
        train.features,
        train.labels,
        train.list_numbers,
        X_valid=vali.features,
        y_valid=vali.labels,
        qid_valid=vali.list_numbers,
    )
    seconds = time.perf_counter() - start
    values = evaluate(
        torch.tensor(trainer.predict(test.features)),
        torch.tensor(test.labels),
        plan.all_measures,
        offsets=torch.tensor(test.offsets),
    )
    return {
        "cell": list(cell.key),
        "request": plan.request(cell),
        "choice": {k: v.item() if isinstance(v, np.generic) else v for k, v in choice_of(trainer).items()},
        "path": path_of(trainer),
        "seconds": seconds,
        "documents": [train.num_documents, vali.num_documents, test.num_documents],
        "removed": [b.num_documents - a.num_documents for a, b in zip(prepared, raw, strict=True)],
        "qids": test.qids.tolist(),
        "values": {name: value.tolist() for name, value in values.items()},
    }


_RECORD = ("cell", "request", "choice", "seconds", "documents", "removed", "qids", "values")


class CellsFailed(RuntimeError):
    """Some cells failed; the others are kept."""


class Results(NamedTuple):
    """Finished cells.

    Attributes:
        records: by `Cell.key`, those that the plan asks for.
        unused: how many lines of the file belong to another request.
    """

    records: dict[tuple, dict[str, Any]]
    unused: int


def read_results(path: str | Path, plan: Plan) -> Results:
    """The finished cells of a plan in a file of results, which need not exist; a last line that was cut off is left out."""
    wanted = {(cell.key, plan.request(cell)) for cell in plan.cells()}
    records, unused = {}, 0
    text = Path(path).read_bytes() if Path(path).is_file() else b""
    for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(), start=1):
        record = _parse_record(line, f"{path}, line {number}")
        key = tuple(record["cell"])
        if (key, record["request"]) in wanted:
            records[key] = record
        else:
            unused += 1
    return Results(records, unused)


def _parse_record(line: bytes, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
        return {name: record[name] for name in _RECORD} | {"path": record.get("path", [])}
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{place}: no finished cell; delete the line, and the cell is run again") from None


@contextmanager
def _results_file(path: Path) -> Iterator[int]:
    """A file of lines to append to, held by one process, its end whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        try:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows
            pass
        except OSError as error:
            raise ValueError(
                f"{path}: another experiment is writing to it; wait, or choose another --output"
            ) from error
        text = path.read_bytes()
        os.ftruncate(handle, text.rfind(b"\n") + 1)
        yield handle
    finally:
        os.close(handle)


def _append(handle: int, record: Mapping[str, Any]) -> None:
    line = json.dumps(record).encode() + b"\n"
    while line:
        line = line[os.write(handle, line) :]
    os.fsync(handle)


def _begin_worker() -> None:
    """One thread; and end with the parent, also where that is killed."""
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def run_experiment(plan: Plan, output: str | Path, *, processes: int = 1) -> Results:
    """Run every cell that is not finished.

    Args:
        plan: what to run.
        output: the folder, with `results.jsonl`.
        processes: cells at once, one thread each.

    Raises:
        ValueError: another experiment is writing to the folder.
        CellsFailed: cells failed; the message names them, and the finished ones are kept.
    """
    target = Path(output) / "results.jsonl"
    failed: dict[str, str] = {}
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # of the processes that are started below
    with _results_file(target) as handle:
        finished = read_results(target, plan).records
        cells = plan.cells()
        missing = [cell for cell in cells if cell.key not in finished]
        with tqdm(total=len(cells), initial=len(cells) - len(missing), desc="cells", unit="cell") as bar:
            if missing:
                context = multiprocessing.get_context("spawn")
                with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin_worker) as pool:
                    jobs = {pool.submit(run_cell, plan, cell): cell for cell in missing}
                    try:
                        for job in as_completed(jobs):
                            error = job.exception()
                            if error is None:
                                _append(handle, job.result())
                            else:
                                failed[" ".join(map(str, jobs[job].key))] = f"{type(error).__name__}: {error}"
                            bar.update()
                    except BaseException:
                        pool.shutdown(cancel_futures=True)
                        raise
    if failed:
        first = "; ".join(f"{cell}: {error}" for cell, error in list(failed.items())[:3])
        raise CellsFailed(
            f"{len(failed)} of {len(cells)} cells failed; the others are kept, and the same command runs what is missing: {first}"
        )
    return read_results(target, plan)


def main(args: Sequence[str]) -> int:
    """`rankstruct experiment`: run, print the tables, write them, plots and `report.html`."""
    from rankstruct.experiments.report import write_report

    parser = argparse.ArgumentParser(
        prog="rankstruct experiment",
        description="Run an experiment from a config: trainers over folds and seeds, tables with significance, plots, a report. "
        "Finished cells are kept: after a kill the same command goes on. "
        "Options that are not listed here replace values of the config, such as --data.path FOLDER.",
    )
    parser.add_argument("--config", required=True, help="config of the experiment")
    parser.add_argument("--output", help="folder of results (default: runs/<name of the config>)")
    parser.add_argument(
        "--processes", type=int, default=1, help="cells at once, one thread each (default: %(default)s)"
    )
    parser.add_argument(
        "--trainers", nargs="+", metavar="NAME", help="only these, and the config's baselines and reference"
    )
    options, rest = parser.parse_known_args(args)
    output = Path(options.output or Path("runs") / Path(options.config).stem)
    start, failure = time.perf_counter(), None
    try:
        plan = read_plan(options.config, rest)
        if options.trainers:
            plan = _only(plan, options.trainers)
        try:
            results = run_experiment(plan, output, processes=options.processes)
        except CellsFailed as error:
            failure, results = error, read_results(output / "results.jsonl", plan)
        report = write_report(plan, results.records, output, title=Path(options.config).stem)
    except (ValueError, OSError) as error:
        print(f"rankstruct experiment: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"rankstruct experiment: stopped; the same command goes on ({output})", file=sys.stderr)
        return 130
    print(report)
    if results.unused:
        print(f"{results.unused} finished cells of other requests are in {output / 'results.jsonl'} and not used")
    training = sum(record["seconds"] for record in results.records.values())
    print(
        f"took {time.perf_counter() - start:.0f} s; training took {training:.0f} s, summed over {len(results.records)} cells"
    )
    print(f"written: {output / 'report.html'}, {output / 'tables'}, {output / 'figures'}")
    if failure is not None:
        print(f"rankstruct experiment: {failure}", file=sys.stderr)
        return 1
    return 0


def _only(plan: Plan, names: Sequence[str]) -> Plan:
    for name in names:
        if name not in plan.trainers:
            raise ValueError(f"--trainers: {name!r} is none of {', '.join(plan.trainers)}")
    kept = {name: entry for name, entry in plan.trainers.items() if name in (*names, *plan.baselines, plan.reference)}
    return replace(plan, trainers=kept)
