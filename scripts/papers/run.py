"""Running an experiment: unfinished cells, several in parallel, and their results.

A finished cell appends one line to `results.jsonl`, with the test values of every query. The results do not depend on the order
in which cells finish, or on interruptions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from papers.plan import Plan, PlanCell, run_cell
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.configs import load_json
from rankstruct.data.source import content_digest
from rankstruct.files import naming

__all__ = ["CellLines", "Results", "read_results", "run_experiment"]

_RECORD = ("cell", "request", "choice", "seconds", "documents", "removed", "qids", "values")


class CellLines(CellFolders):
    """One line of JSON per cell in `results.jsonl`; lines of other requests stay there.

    Args:
        folder: the folder of the file.
        parse: maps the content of a line to the cell's name, request and result.
    """

    def __init__(self, folder: str | Path, parse: Callable[[Any], tuple[str, Any, Any]]) -> None:
        super().__init__(folder)
        self.path = self.folder / "results.jsonl"
        self._parse = parse
        self._finished: dict[tuple[str, Any], Any] | None = None

    def __enter__(self) -> Any:
        super().__enter__()
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._held.callback(os.close, self._handle)
        os.ftruncate(self._handle, self.path.read_bytes().rfind(b"\n") + 1)  # a line that was cut off
        return self

    def read(self) -> dict[tuple[str, Any], Any]:
        """The results of all complete lines by name and request; the last one of a repeated cell.

        Raises:
            ValueError: a line is not a finished cell; the message names it.
        """
        text = self.path.read_bytes() if self.path.is_file() else b""
        found = {}
        for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(), start=1):
            try:
                name, request, result = self._parse(load_json(line))
            except (ValueError, TypeError, KeyError):
                raise ValueError(
                    f"{self.path}, line {number}: no finished cell; delete the line, and the cell is run again"
                ) from None
            found[name, request] = result
        return found

    def find(self, cell: Cell) -> Any:
        """The result of a finished cell, or None."""
        if self._finished is None:
            self._finished = self.read()
        return self._finished.get((cell.name, cell.request))

    def begin(self, cell: Cell) -> None:
        """Do nothing: a line has no other files."""

    def give_up(self, cell: Cell) -> None:
        """Do nothing: nothing was noted."""

    def keep(self, cell: Cell, result: Mapping[str, Any]) -> None:
        """Append the line of a result."""
        line = json.dumps(result).encode() + b"\n"
        with naming(self.path):
            while line:
                line = line[os.write(self._handle, line) :]
            os.fsync(self._handle)


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


def run_experiment(plan: Plan, output: str | Path, *, processes: int | None = None) -> Results:
    """Run all unfinished cells.

    Args:
        plan: the experiment.
        output: the folder with `results.jsonl`.
        processes: number of cells in parallel, one thread each; see `CellFolders.run`.

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
