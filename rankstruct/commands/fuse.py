"""`rankstruct fuse`: fuse the runs of several systems into one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankstruct.commands._options import EVALUATED, parser_of
from rankstruct.commands.evaluate import Evaluated, evaluate_run
from rankstruct.data import RankingData, read_run, write_run
from rankstruct.fusion import fuse_runs
from rankstruct.text_tables import format_table


def main(args: Sequence[str]) -> None:
    """Write the fused run; with qrels, print the measures of it and of each run."""
    parser = parser_of("fuse")
    given = parser.parse_args(args[1:])
    if len(given.runs) < 2:
        parser.error("expected two or more runs, got 1")
    options = {name: getattr(given, name) for name in ("normalisation", "k") if getattr(given, name) is not None}
    fused = fuse_runs([read_run(path) for path in given.runs], given.method, **options)
    names = [(query, docid, score) for query, found in fused.items() for docid, score in found.items()]
    qids, docids, scores = zip(*names, strict=True)
    data = RankingData.from_arrays(np.zeros((len(names), 1)), np.zeros(len(names)), qids, docids=docids)
    write_run(given.output, data, scores, tag=given.method)
    print(f"fused {len(given.runs)} runs of {len(fused)} queries, {len(names)} documents: {given.output}")
    if given.qrels:
        measures = given.measures or EVALUATED
        systems = [evaluate_run(path, given.qrels, measures) for path in (*given.runs, given.output)]
        print(format_table(["run", *measures, "queries"], [_row(each) for each in systems]))
        print(f"`rankstruct evaluate {given.output} {given.runs[0]} --qrels {given.qrels}` tests the difference of two")


def _row(system: Evaluated) -> list[str | float | int]:
    return [system.name, *system.means().values(), len(system.qids)]
