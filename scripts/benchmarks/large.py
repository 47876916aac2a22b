"""Data of MSLR-WEB10K's shape at growing scales: conversion, exact training, an epoch of SGD, scikit-learn, LightGBM, AutoRanker.

Each stage runs in a process of its own, so that its peak of memory is its own: `VmHWM`, what was resident at most, mapped
files included. Seconds are those on the clock and those of the processor, since a machine may have other work; the load of
the machine before a stage is given with them.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.timing import check_known, environment, peak_kilobytes, rounded
from rankstruct.checks import check_numbers
from rankstruct.data import BatchLoader, convert_lists, read_lists
from rankstruct.files import whole_file
from rankstruct.progress import Progress

_WEB_FEATURES = 136
_WEB_CUTS = (0.05, 0.994, 1.881, 2.366)  # of a normal number, for the shares of the grades
SCALES = (0.1, 1 / 3, 1.0)
DOCUMENTS = (10_000, 50_000, 200_000)  # of `RANKERS`
LABELS = {
    "convert": "conversion",
    "scikit-learn": "scikit-learn's reader",
    "exact": "exact SVMmap, gap 1e-2",
    "mlp": "MLP (256, 128), AP hinge, one epoch",
    "lightgbm": "LightGBM lambdarank, 100 trees",
    "auto": "AutoRanker",
    "auto-fast": "AutoRanker, fast",
    "lightgbm-3": "LambdaMART, mean of 3",
}


def _convert(text: Path, options: dict[str, Any]) -> dict[str, Any]:
    made, seconds = timed(lambda: convert_lists(text))
    return {**seconds, "documents": made.documents, "megabytes": text.stat().st_size / 1e6}


def _read_by_scikit_learn(text: Path, options: dict[str, Any]) -> dict[str, Any]:
    from sklearn.datasets import load_svmlight_file

    found, seconds = timed(lambda: load_svmlight_file(str(text), query_id=True, dtype=np.float32))
    return {**seconds, "documents": found[0].shape[0], "megabytes": text.stat().st_size / 1e6}


def _exact(text: Path, options: dict[str, Any]) -> dict[str, Any]:
    from rankstruct.estimators import LinearRanker  # each stage imports what it needs alone, which counts as its memory

    data = read_lists(text.with_suffix(".rankdata"))
    ranker = LinearRanker("AP", C=options["C"], prepare=(), tolerance=options["tolerance"])
    few = data.select(np.arange(2))
    ranker.fit(few.features, few.labels, few.list_numbers)  # compile
    _, seconds = timed(lambda: ranker.fit(data.features, data.labels, data.list_numbers))
    found = {name: getattr(ranker.solution_, name) for name in ("objective", "gap", "iterations")}
    status = str(ranker.solution_.status)
    return {**seconds, **found, "status": status, "left_out": ranker.left_out_, "documents": data.num_documents}


def _mlp(text: Path, options: dict[str, Any]) -> dict[str, Any]:
    from rankstruct.losses import StructuredHingeLoss
    from rankstruct.models import MLPScorer

    data = read_lists(text.with_suffix(".rankdata"))
    torch.manual_seed(0)
    scorer, loss = MLPScorer(data.num_features, (256, 128)), StructuredHingeLoss("AP")
    optimizer = torch.optim.Adam(scorer.parameters(), 1e-3)
    losses: list[float] = []

    def epoch() -> None:
        for batch in BatchLoader(data, documents_per_batch=4096, shuffle=True, drop_empty=True):
            optimizer.zero_grad()
            value = loss(scorer(batch.features), batch.labels, where=batch.where)
            value.backward()
            optimizer.step()
            losses.append(float(value.detach()))

    _, seconds = timed(epoch)
    tenth = max(1, len(losses) // 10)
    means = {"first_loss": float(np.mean(losses[:tenth])), "last_loss": float(np.mean(losses[-tenth:]))}
    return {**seconds, **means, "batches": len(losses), "documents": data.num_documents}


def _lightgbm(text: Path, options: dict[str, Any]) -> dict[str, Any]:
    import lightgbm

    data = read_lists(text.with_suffix(".rankdata"))
    given = {"objective": "lambdarank", "num_threads": torch.get_num_threads(), "seed": 0, "verbose": -1}

    def fit() -> object:
        lists = lightgbm.Dataset(data.features, data.labels, group=data.lengths)
        return lightgbm.train(given, lists, num_boost_round=100)

    return {**timed(fit)[1], "documents": data.num_documents}


def _rank(options: dict[str, Any], text: Path, _: dict[str, Any]) -> dict[str, Any]:
    """Train on eight tenths of the lists, select on one, and test on one."""
    from papers.baselines import make_trainer
    from rankstruct.diagnostics import arrays_of
    from rankstruct.measures import evaluate

    data = read_lists(text.with_suffix(".rankdata"))
    *train, valid, test = np.array_split(np.arange(data.num_lists), 10)
    given = {**arrays_of(data.select(np.concatenate(train))), **arrays_of(data.select(valid), "_valid")}
    ranker = make_trainer(select="nDCG@10", **options)
    _, found = timed(lambda: ranker.fit(**given))
    held_out = data.select(test)
    scores = ranker.predict(held_out.features, held_out.list_numbers)
    value = evaluate(scores, held_out.labels, ["nDCG@10"], offsets=held_out.offsets)["nDCG@10"].mean()
    return {**found, "nDCG@10": float(value), "documents": data.num_documents}


_Stages = dict[str, Callable[[Path, dict[str, Any]], dict[str, Any]]]
_AUTO = {"name": "auto", "measure": "nDCG@10"}
RANKERS: _Stages = {
    "auto": partial(_rank, _AUTO),
    "auto-fast": partial(_rank, {**_AUTO, "mode": "fast"}),
    "lightgbm-3": partial(_rank, {"name": "ensemble", "members": [{"trainer": "lambdamart", "rounds": 100}]}),
}
STAGES: _Stages = {
    "convert": _convert,
    "scikit-learn": _read_by_scikit_learn,
    "exact": _exact,
    "mlp": _mlp,
    "lightgbm": _lightgbm,
}


def benchmark_large(
    folder: str | os.PathLike[str],
    scales: Sequence[float] = SCALES,
    stages: Sequence[str] = tuple(STAGES),
    *,
    C: float = 100.0,
    tolerance: float = 1e-2,
    threads: int = 2,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Run every stage at every scale.

    Args:
        folder: where the lists are written, up to 1.4 GB in all at scale 1; those that are there are used again.
        scales: of `write_web_lists`.
        stages: of `STAGES` and `RANKERS`; conversion is needed by those after it.
        C: of the exact fit.
        tolerance: relative gap of the exact fit.
        threads: that each stage may use.
        seed: of the lists.

    Returns:
        A row a stage and scale: `stage`, `scale`, `documents`, `seconds`, `cpu_seconds`, `peak_mb`, `base_mb` (before the stage
        began), `load` (of the machine, before), and what is the stage's own, such as `megabytes` or `gap`.

    Raises:
        ValueError: an unknown stage.
        RuntimeError: a stage failed; the message is the last line of what it said.
    """
    check_known("stage", stages, STAGES | RANKERS)
    rows = []
    options = {"C": C, "tolerance": tolerance}
    variables = environment(OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))
    with Progress(total=len(scales) * len(stages), desc="benchmark", unit="stage", leave=False) as bar:
        for scale, stage in itertools.product(scales, stages):
            text = Path(folder) / f"web-{scale:.3f}-{seed}.txt"
            if not text.exists():
                bar.set_postfix_str(f"writing lists, scale {scale:g}")
                write_web_lists(text, scale, seed)
            bar.set_postfix_str(f"{LABELS[stage]}, scale {scale:g}")
            load = os.getloadavg()[0]
            command = [sys.executable, "-m", "benchmarks.large", stage, str(text), json.dumps(options)]
            run = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
            if run.returncode:
                raise RuntimeError(f"{stage} at scale {scale:g}: {(run.stderr.strip().splitlines() or ['killed'])[-1]}")
            rows.append({"stage": stage, "scale": scale, "load": load, **json.loads(run.stdout.splitlines()[-1])})
            bar.update()
    return rows


def as_rows(found: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Header and rows for a table."""
    header = ["stage", "documents", "seconds", "CPU s", "MB/s", "peak MB", "load", "remark"]
    rows = []
    for row in found:
        rate = f"{row['megabytes'] / row['seconds']:.0f}" if "megabytes" in row else ""
        remark = f"gap {row['gap']:.1e}, {row['iterations']} iterations" if "gap" in row else ""
        if "batches" in row:
            remark = f"{row['batches']} batches, loss {row['first_loss']:.3f} to {row['last_loss']:.3f}"
        seconds = [f"{row[name]:.1f}" for name in ("seconds", "cpu_seconds")]
        peak, load = f"{row['peak_mb']:.0f}", f"{row['load']:.1f}"
        rows.append([LABELS[row["stage"]], row["documents"], *seconds, rate, peak, load, remark])
    return header, rows


def as_rankers(found: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of the table of `RANKERS`."""
    rows = [row for row in found if "nDCG@10" in row]
    cells = [
        [LABELS[row["stage"]], row["documents"], *rounded(row, **{"nDCG@10": 4}, cpu_seconds=1, peak_mb=0, base_mb=0)]
        for row in rows
    ]
    return ["ranker", "documents", "nDCG@10", "CPU seconds", "peak MB", "MB before"], cells


def draw_growth(found: Sequence[dict[str, Any]]) -> Any:
    """Processor seconds against documents, a line a stage, both axes logarithmic, with a line of proportion."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for stage in dict.fromkeys(row["stage"] for row in found):
        points = [(row["documents"], row["cpu_seconds"]) for row in found if row["stage"] == stage]
        axes.loglog(*zip(*points, strict=True), marker="o", label=LABELS[stage])
        x, y = points[0]
        ends = [each for each, _ in points]
        axes.loglog(ends, [y * each / x for each in ends], color="0.8", linewidth=1, zorder=0)
    axes.set(xlabel="documents", ylabel="processor seconds", title="136 features; grey: in proportion")
    axes.legend()
    return figure


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """The result of a call, with its seconds and the peak of memory of the process."""
    base = peak_kilobytes()
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - processor}
    megabytes = {"base_mb": base * 1024 / 1e6, "peak_mb": peak_kilobytes(base) * 1024 / 1e6}
    return result, seconds | megabytes


if __name__ == "__main__":
    print(json.dumps((STAGES | RANKERS)[sys.argv[1]](Path(sys.argv[2]), json.loads(sys.argv[3]))))


def write_web_lists(path: str | os.PathLike[str], scale: float = 1.0, seed: int = 0) -> tuple[int, int]:
    """Write an SVMlight file of the shape of MSLR-WEB10K's training set, to benchmark large data.

    At scale 1 it has 6,000 lists, 720,000 documents and 136 features, about 1 GB; the numbers of lists and documents are
    returned. Lists have very different lengths, and grades 0 to 4 have about that set's frequencies (52, 32, 13, 2 and 1
    percent). A third of the features are counts, the others numbers from 0 to 1 with six digits. Each is a noisy view of the
    variable that determines the grade, so that there is something to learn. The file is written atomically, and the same seed
    writes the same bytes.

    Source: T. Qin and T.-Y. Liu, "Introducing LETOR 4.0 Datasets", 2013, and the set's own page.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_web_lists(f"{folder}/train.txt", scale=0.001)
    (6, 720)
    """
    check_numbers(">= 0.001", scale=scale)
    lists, documents = max(1, round(6000 * scale)), max(2, round(720_000 * scale))
    rng = np.random.default_rng(seed)
    shares = np.cumsum(rng.lognormal(sigma=0.6, size=lists))
    ends = np.arange(1, lists + 1) + np.round(shares / shares[-1] * (documents - lists)).astype(np.int64)
    signal = rng.uniform(-0.3, 0.3, _WEB_FEATURES)
    counts = rng.permutation(_WEB_FEATURES) < _WEB_FEATURES // 3
    line = "%d qid:%d " + " ".join(f"{at}:%d" if count else f"{at}:%.6f" for at, count in enumerate(counts, 1)) + "\n"
    with whole_file(path) as file:
        for number, length in enumerate(np.diff(ends, prepend=0).tolist(), 1):
            grade = np.sqrt(0.15) * rng.standard_normal() + np.sqrt(0.85) * rng.standard_normal(length)
            views = signal * grade[:, None] + np.sqrt(1 - signal**2) * rng.standard_normal((length, _WEB_FEATURES))
            values = np.where(counts, np.floor(1.5 * np.exp(views)), 1 / (1 + np.exp(-views)))
            labels = np.searchsorted(_WEB_CUTS, grade)
            rows = np.column_stack([labels, np.full(length, number), values]).tolist()
            file.writelines(line % tuple(row) for row in rows)
    return lists, documents
