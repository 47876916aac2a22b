"""`rankstruct experiment`: whole experiments from one config, with tables, plots and a report.

When a cell is done, one line with the test values of every query is appended to `results.jsonl`. What is written does not depend
on the order in which cells end, nor on earlier kills.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rankstruct.commands._arguments import CommandParser, as_typed
from rankstruct.commands.cells import Cell, CellLines, CellsFailed
from rankstruct.configs import load_json
from rankstruct.data.source import content_digest
from rankstruct.experiments.plan import Plan, PlanCell, read_plan, run_cell
from rankstruct.experiments.report import write_report
from rankstruct.messages import did_you_mean

__all__ = ["Results", "read_results", "run_experiment"]

_RECORD = ("cell", "request", "choice", "seconds", "documents", "removed", "qids", "values")


class Results(NamedTuple):
    """Finished cells.

    Attributes:
        records: by `PlanCell.key`, those that the plan asks for.
        unused: how many lines of the file belong to another request.
    """

    records: dict[tuple, dict[str, Any]]
    unused: int


def read_results(output: str | Path, plan: Plan) -> Results:
    """The finished cells of a plan in a folder's `results.jsonl`, which need not exist; a last line that was cut off is left out.

    Raises:
        ValueError: a line is no finished cell; the message names it.
    """
    found = CellLines(output, _parse_record).read()
    wanted = {(_name(cell), plan.request(cell)): cell.key for cell in plan.cells()}
    records = {key: found[place] for place, key in wanted.items() if place in found}
    return Results(records, len(found) - len(records))


def _name(cell: PlanCell) -> str:
    return " ".join(map(str, cell.key))


def _parse_record(line: bytes, place: str) -> tuple[str, str, dict[str, Any]]:
    try:
        record = load_json(line)
        kept = {name: record[name] for name in _RECORD} | {name: record.get(name, []) for name in ("path", "remarks")}
        kept["cpu_seconds"] = record.get("cpu_seconds", float("nan"))  # older cells have none
        return " ".join(map(str, record["cell"])), record["request"], kept
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{place}: no finished cell; delete the line, and the cell is run again") from None


def run_experiment(plan: Plan, output: str | Path, *, processes: int = 1) -> Results:
    """Run every cell that is not finished.

    Args:
        plan: what to run.
        output: the folder, with `results.jsonl`.
        processes: cells at once, one thread each.

    Raises:
        ValueError: the data are not there, or another process is writing to the folder.
        CellsFailed: cells failed; the message names them, and the finished ones are kept.
    """
    plan.check_data()
    content_digest.cache_clear()  # the data of now, not those of an earlier experiment of this process
    cells = [Cell(_name(cell), plan.request(cell), (plan, cell)) for cell in plan.cells()]
    with CellLines(output, _parse_record) as store:
        store.run(run_cell, cells, processes=processes, unchanged=_unchanged)
    return read_results(output, plan)


def _unchanged(cell: Cell) -> bool:
    plan, asked = cell.arguments
    source = plan.data.of(asked.set_name, asked.fold)
    return bool(source.digest(now=True) == source.digest())


def main(args: Sequence[str]) -> None:
    """Run, print the tables, write them, plots and `report.html`."""
    parser = CommandParser(
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
    only = "only these, and the config's baselines and reference"
    parser.add_argument("--trainers", nargs="+", metavar="NAME", help=only)
    options, rest = parser.parse_known_args(args[1:])
    output = Path(options.output or Path("runs") / Path(options.config).stem)
    start, failure = time.perf_counter(), None
    plan = read_plan(options.config, rest)
    if options.trainers:
        plan = _only(plan, options.trainers)
    try:
        results = run_experiment(plan, output, processes=options.processes)
    except CellsFailed as error:
        failure, results = error, read_results(output, plan)
    print(write_report(plan, results.records, output, title=Path(options.config).stem, command=as_typed(args)))
    if results.unused:
        print(f"{results.unused} finished cells of other requests are in {output / 'results.jsonl'} and not used")
    training = sum(record["seconds"] for record in results.records.values())
    took = f"took {time.perf_counter() - start:.0f} s; training took {training:.0f} s"
    print(f"{took}, summed over {len(results.records)} cells")
    print(f"written: {output / 'report.html'}, {output / 'tables'}, {output / 'figures'}")
    if failure is not None:
        raise failure


def _only(plan: Plan, names: Sequence[str]) -> Plan:
    for name in names:
        if name not in plan.trainers:
            hint = did_you_mean(name, plan.trainers)
            raise ValueError(f"--trainers: {name!r} is none of {', '.join(plan.trainers)}{hint}")
    kept = {name: entry for name, entry in plan.trainers.items() if name in (*names, *plan.baselines, plan.reference)}
    return replace(plan, trainers=kept)
