"""An epoch on shards against the same rows in one memory-mapped file: seconds, rows a second, memory.

Each epoch runs in a process of its own, in turn, so that its peak of memory is its own; see `benchmarks.large`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.large import timed
from benchmarks.timing import environment
from rankstruct.data import BatchLoader, convert_lists, read_lists
from rankstruct.losses import StructuredHingeLoss
from rankstruct.models import LinearScorer

FEATURES = 20
_LIST, _LISTS = 50, 1000  # documents of a list, and lists that are drawn at once


def write_drawn(folder: str | os.PathLike[str], rows: int, shards: int, seed: int = 0) -> None:
    """Write shards of lists of 50 documents with float16 features; the rows do not depend on the number of shards.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_drawn(folder, 1000, 3)
    ...     read_lists(folder, cache=False).num_lists
    20
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    Path(folder).mkdir(parents=True, exist_ok=True)
    weights = np.random.default_rng(seed).normal(size=FEATURES)
    for number, lists in enumerate(np.array_split(np.arange(rows // _LIST), shards)):
        writer = None
        for some in np.split(lists, np.flatnonzero(np.diff(lists // _LISTS)) + 1):
            rng = np.random.default_rng([seed, int(some[0]) // _LISTS])
            skip = (int(some[0]) % _LISTS) * _LIST
            size = (int(some[-1]) % _LISTS + 1) * _LIST
            X = rng.normal(size=(_LISTS * _LIST, FEATURES))
            grades = np.clip(np.round(X @ weights / 3 + rng.normal(size=len(X)) / 2), 0, 4)
            X, grades = X[skip:size].astype(np.float16), grades[skip:size].astype(np.int8)
            columns = {"qid": np.repeat(some, _LIST), "label": grades}
            table = pa.table(columns | {f"f{at}": X[:, at] for at in range(FEATURES)})
            writer = writer or pq.ParquetWriter(Path(folder, f"part-{number:04}.parquet"), table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()


def train(path: str, documents_per_batch: int = 4096) -> dict[str, Any]:
    """Train a linear scorer one epoch on the AP hinge loss."""
    torch.set_num_threads(1)
    data = read_lists(path)
    scorer, loss = LinearScorer(data.num_features), StructuredHingeLoss("AP")
    optimizer = torch.optim.Adam(scorer.parameters(), 1e-3)
    loader = BatchLoader(data, documents_per_batch=documents_per_batch, shuffle=True, drop_empty=True)

    def epoch() -> None:
        for batch in loader:
            optimizer.zero_grad()
            loss(scorer(batch.features), batch.labels, where=batch.where).backward()
            optimizer.step()

    _, found = timed(epoch)
    return {**found, "rows": data.num_documents, "batches": len(loader)}


def benchmark_shards(
    folder: str | os.PathLike[str], rows: int, shards: int, rounds: int, seed: int = 0
) -> list[dict[str, Any]]:
    """Draw the rows, if they are not there, and train in turn; the first epoch on shards, which also checks them, is left out.

    Returns:
        A row an epoch: `kind`, `round`, `seconds`, `cpu_seconds`, `peak_mb`, `rows`, `batches`.
    """
    drawn = Path(folder) / f"shards-{rows}-{shards}-{seed}"
    mapped = Path(folder) / f"shards-{rows}-{shards}-{seed}.rankdata"
    if not drawn.exists():
        write_drawn(drawn, rows, shards, seed)
    if not mapped.exists():
        convert_lists(drawn, mapped, dtype="float16")
    variables = environment(OMP_NUM_THREADS="1", RANKSTRUCT_CACHE=str(Path(folder) / "cache"))
    read_lists(drawn, cache=Path(folder) / "cache")
    found = []
    for number in range(rounds):
        for kind, path in (("shards", drawn), ("file", mapped)):
            command = [sys.executable, "-m", "benchmarks.shards", str(path)]
            run = subprocess.run(command, capture_output=True, text=True, env=variables, check=True)
            found.append({"kind": kind, "round": number, **json.loads(run.stdout.splitlines()[-1])})
    return found


def as_rows(found: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Header and rows for a table: medians."""
    header, rows = ["data", "rows", "seconds", "CPU s", "rows / CPU s", "peak MB"], []
    for kind in dict.fromkeys(row["kind"] for row in found):
        own = [row for row in found if row["kind"] == kind]
        seconds, cpu, peak = (
            float(np.median([row[name] for row in own])) for name in ("seconds", "cpu_seconds", "peak_mb")
        )
        rows.append(
            [kind, own[0]["rows"], f"{seconds:.1f}", f"{cpu:.1f}", f"{own[0]['rows'] / cpu:.0f}", f"{peak:.0f}"]
        )
    return header, rows


if __name__ == "__main__":
    print(json.dumps(train(sys.argv[1])))
