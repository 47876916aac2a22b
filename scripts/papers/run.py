"""Running an experiment: unfinished cells, several in parallel, and their results.

A finished cell appends one line to `results.jsonl`, with the test values of every query. The results do not depend on the order
in which cells finish, or on interruptions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from papers.plan import Plan, PlanCell, run_cell
from rankstruct.commands.cells import Cell, CellLines
from rankstruct.data.source import content_digest

__all__ = ["Results", "read_results", "run_experiment"]

_RECORD = ("cell", "request", "choice", "seconds", "documents", "removed", "qids", "values")


class Results(NamedTuple):
    """Finished cells.

    Attributes:
        records: the cells of the plan by `PlanCell.key`.
        unused: number of lines in the file that belong to another request.
    """

    records: dict[tuple, dict[str, Any]]
    unused: int


def read_results(output: str | Path, plan: Plan) -> Results:
    """The finished cells of a plan in a folder's `results.jsonl`, which need not exist; a truncated last line is ignored.

    Raises:
        ValueError: a line is not a finished cell; the message names it.
    """
    found = CellLines(output, _parse).read()
    wanted = {(_name(cell), plan.request(cell)): cell.key for cell in plan.cells()}
    records = {key: found[place] for place, key in wanted.items() if place in found}
    return Results(records, len(found) - len(records))


def _name(cell: PlanCell) -> str:
    return " ".join(map(str, cell.key))


def _parse(record: Any) -> tuple[str, str, dict[str, Any]]:
    older = {"path": [], "remarks": [], "cpu_seconds": float("nan")}  # what cells of older versions lack
    kept = {name: record[name] for name in _RECORD} | {name: record.get(name, each) for name, each in older.items()}
    return " ".join(map(str, record["cell"])), record["request"], kept


def run_experiment(plan: Plan, output: str | Path, *, processes: int = 1) -> Results:
    """Run all unfinished cells.

    Args:
        plan: the experiment.
        output: the folder with `results.jsonl`.
        processes: number of cells in parallel, one thread each.

    Raises:
        ValueError: the data do not exist, or another process is writing to the folder.
        CellsFailed: cells failed; the message names them, and the finished ones are kept.
    """
    plan.check_data()
    content_digest.cache_clear()  # do not reuse data cached by an earlier experiment in this process
    cells = [
        Cell(_name(cell), plan.request(cell), (plan, cell), cell.key[:3], cell.fold, cell.seed) for cell in plan.cells()
    ]
    with CellLines(output, _parse) as store:
        store.run(run_cell, cells, processes=processes, unchanged=_unchanged)
    return read_results(output, plan)


def _unchanged(cell: Cell) -> bool:
    plan, asked = cell.arguments
    source = plan.data.of(asked.set_name, asked.fold)
    return bool(source.digest(now=True) == source.digest())
