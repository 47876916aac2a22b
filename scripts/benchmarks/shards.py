"""An epoch on shards against the same rows in one memory-mapped file: seconds, rows a second, memory.

Each epoch runs in a process of its own, in turn, so that its peak of memory is its own; see `benchmarks.large`.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.large import timed
from benchmarks.timing import environment, rounded, status_kilobytes
from rankstruct.data import BatchLoader, convert_lists, read_lists
from rankstruct.losses import StructuredHingeLoss
from rankstruct.models import LinearScorer
from rankstruct.processes import find_team, joined

FEATURES = 20
KINDS = ("shards", "file")
_LIST, _LISTS = 50, 1000  # documents of a list, and lists that are drawn at once
_STEP = 50_000  # documents of a step, of all processes together


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
    weights = np.random.default_rng(seed).normal(size=FEATURES).astype(np.float32)
    columns = [f"f{at}" for at in range(FEATURES)]
    stored = {"compression": "none", "use_dictionary": ["qid", "label"]}  # random bits do not get smaller
    for number, lists in enumerate(np.array_split(np.arange(rows // _LIST), shards)):
        writer = None
        for some in np.split(lists, np.flatnonzero(np.diff(lists // _LISTS)) + 1):
            rng = np.random.default_rng([seed, int(some[0]) // _LISTS])
            skip = (int(some[0]) % _LISTS) * _LIST
            size = (int(some[-1]) % _LISTS + 1) * _LIST
            X = rng.standard_normal((FEATURES, _LISTS * _LIST), np.float32)
            noise = rng.standard_normal(_LISTS * _LIST, np.float32)
            grades = np.clip(np.round(weights @ X / 3 + noise / 2), 0, 4).astype(np.int8)
            rows_of = {"qid": np.repeat(some, _LIST), "label": grades[skip:size]}
            table = pa.table(rows_of | dict(zip(columns, X[:, skip:size].astype(np.float16), strict=True)))
            writer = writer or pq.ParquetWriter(Path(folder, f"part-{number:04}.parquet"), table.schema, **stored)
            writer.write_table(table)
        if writer is not None:
            writer.close()


def train(path: str, minutes: float = np.inf, documents_per_batch: int = 4096) -> dict[str, Any]:
    """Train a linear scorer one epoch, or some minutes of it, on the AP hinge loss, on the batches of `RankingDataModule`.

    `anonymous_mb` is the most memory that was not a file's, by a look every ten batches; `rows` are those trained on. As one of
    several processes, it trains on its share of the lists, with the gradients of all, by DDP.
    """
    torch.set_num_threads(1)
    team, data = find_team(), read_lists(path)
    scorer: nn.Module = LinearScorer(data.num_features)
    scorer = scorer if team.world_size == 1 else nn.parallel.DistributedDataParallel(scorer)
    optimizer, loss = torch.optim.Adam(scorer.parameters(), 1e-3), StructuredHingeLoss("AP")
    place: dict[str, Any] = {"rank": team.rank, "world_size": team.world_size}
    loader = BatchLoader(data, documents_per_batch=documents_per_batch, shuffle=True, drop_empty=True, **place)
    team.gathered(None)  # all have read the lists

    def epoch() -> tuple[int, int, int]:
        anonymous, rows, end = 0, 0, time.monotonic() + 60 * minutes
        for number, batch in enumerate(loader, 1):
            optimizer.zero_grad()
            loss(scorer(batch.features), batch.labels, where=batch.where).backward()
            optimizer.step()
            rows += int(batch.where.sum())
            if number % 10 == 0:
                anonymous = max(anonymous, status_kilobytes("RssAnon"))
            if time.monotonic() > end:
                break
        return anonymous, rows, number

    (anonymous, rows, batches), found = timed(epoch)
    return {**found, "anonymous_mb": anonymous * 1024 / 1e6, "rows": rows, "batches": batches}


def benchmark_shards(
    folder: str | os.PathLike[str],
    rows: int,
    shards: int,
    rounds: int,
    seed: int = 0,
    kinds: Sequence[str] = KINDS,
    minutes: float | None = None,
) -> list[dict[str, Any]]:
    """Draw the rows, if they are not there, and train in turn, after the first reading of the shards, which also checks them.

    Returns:
        The first reading and a row an epoch: `kind`, `round`, `seconds`, `cpu_seconds`, `peak_mb`, `anonymous_mb`, `rows`,
        `batches`.
    """
    drawn = Path(folder) / f"shards-{rows}-{shards}-{seed}"
    mapped = Path(folder) / f"shards-{rows}-{shards}-{seed}.rankdata"
    if not drawn.exists():
        write_drawn(drawn, rows, shards, seed)
    if "file" in kinds and not mapped.exists():
        convert_lists(drawn, mapped, dtype="float16")
    variables = environment(OMP_NUM_THREADS="1", RANKSTRUCT_CACHE=str(Path(folder) / "cache"))
    found = []
    for number, kind in [(0, "first reading"), *itertools.product(range(rounds), kinds)]:
        path = mapped if kind == "file" else drawn
        command = [
            sys.executable,
            "-m",
            "benchmarks.shards",
            kind,
            str(path),
            str(np.inf if minutes is None else minutes),
        ]
        run = subprocess.run(command, capture_output=True, text=True, env=variables, check=True)
        found.append({"kind": kind, "round": number, **json.loads(run.stdout.splitlines()[-1])})
    return found


def benchmark_workers(
    folder: str | os.PathLike[str], rows: int, shards: int, rounds: int, workers: Sequence[int], seed: int = 0
) -> list[dict[str, Any]]:
    """Draw the rows, if they are not there, and train on the shards in several processes of this machine, in turn.

    A step is of the same number of documents for all, of which each process has its share.

    Returns:
        A row an epoch: `workers`, `round`, `load` (that of the machine before, processes that ran or waited in the last minute),
        `seconds` of the slowest process, `cpu_seconds` of all, `peak_mb` of the largest, `rows` of all.
    """
    drawn = Path(folder) / f"shards-{rows}-{shards}-{seed}"
    if not drawn.exists():
        write_drawn(drawn, rows, shards, seed)
    cache = {"OMP_NUM_THREADS": "1", "RANKSTRUCT_CACHE": str(Path(folder) / "cache")}
    command = [sys.executable, "-m", "benchmarks.shards"]
    subprocess.run(
        [*command, "first reading", str(drawn), "inf"], env=environment(**cache), check=True, capture_output=True
    )
    found = []
    for number, world in itertools.product(range(rounds), workers):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(world)}
        load = os.getloadavg()[0]
        given = [environment(**cache, **meeting, RANK=str(rank)) for rank in range(world)]
        runs = [
            subprocess.Popen(
                [*command, "shards", str(drawn), "inf", str(_STEP // world)],
                env=each,
                stdout=subprocess.PIPE,
                text=True,
            )
            for each in given
        ]
        ends = [json.loads(run.communicate()[0].splitlines()[-1]) for run in runs]
        its = {name: [each[name] for each in ends] for name in ("seconds", "cpu_seconds", "peak_mb", "rows")}
        sums = {"cpu_seconds": sum(its["cpu_seconds"]), "rows": sum(its["rows"])}
        highest = {"seconds": max(its["seconds"]), "peak_mb": max(its["peak_mb"])}
        found.append({"workers": world, "round": number, "load": load, **highest, **sums})
    return found


def as_workers(found: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Header and rows for a table: medians, and the ratio of seconds to those of the first number of workers."""
    header = ["processes", "rows", "seconds", "times as fast", "CPU s of all", "peak MB of one", "load before"]
    names = ("seconds", "cpu_seconds", "peak_mb", "rows", "load")
    worlds = list(dict.fromkeys(row["workers"] for row in found))
    medians = {
        world: {name: float(np.median([row[name] for row in found if row["workers"] == world])) for name in names}
        for world in worlds
    }
    first = medians[worlds[0]]["seconds"]
    return header, [
        [
            world,
            int(its["rows"]),
            *rounded(its, seconds=1),
            f"{first / its['seconds']:.2f}",
            *rounded(its, cpu_seconds=1, peak_mb=0, load=1),
        ]
        for world, its in medians.items()
    ]


def read_first(path: str) -> dict[str, Any]:
    """Read and check shards; all but their features is kept in the cache."""
    data, found = timed(lambda: read_lists(path))
    return {**found, "anonymous_mb": status_kilobytes("RssAnon") * 1024 / 1e6, "rows": data.num_documents}


def as_rows(found: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Header and rows for a table: medians."""
    header = ["data", "rows", "seconds", "CPU s", "rows / CPU s", "of the file's", "peak MB", "anonymous MB"]
    names = ("seconds", "cpu_seconds", "peak_mb", "anonymous_mb", "rows")
    medians = {
        kind: {name: float(np.median([row[name] for row in found if row["kind"] == kind])) for name in names}
        for kind in dict.fromkeys(row["kind"] for row in found)
    }
    rates = {kind: its["rows"] / its["cpu_seconds"] for kind, its in medians.items()}
    rows = []
    for kind, its in medians.items():
        share = f"{rates[kind] / rates['file']:.2f}" if kind in KINDS and "file" in rates else "-"
        times = [*rounded(its, seconds=1, cpu_seconds=1), f"{rates[kind]:.0f}", share]
        rows.append([kind, int(its["rows"]), *times, *rounded(its, peak_mb=0, anonymous_mb=0)])
    return header, rows


if __name__ == "__main__":
    kind, path, minutes, *documents = sys.argv[1:]
    with joined():
        found = train(path, float(minutes), *map(int, documents)) if kind in KINDS else read_first(path)
        print(json.dumps(found))
