"""Speed, as ratios against something public in the same run: one thread, calls interleaved, quartiles and medians."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from rankstruct.losses import structured_hinge_loss
from rankstruct.tables import format_table

SHAPES = ((256, 100), (64, 1000), (8, 10_000))
SHARES = (0.05, 0.3)
MEASURES = ("AP", "AUC")


@dataclass(frozen=True)
class Timing:
    """One call's time over that of `torch.sort` on the same tensor.

    Attributes:
        what: the call.
        lists, list_size: the shape of the scores.
        relevant: the share of relevant documents.
        threads: of torch, which the kernels follow.
        lower_quartile, median: of the ratio, round by round.
        microseconds: the call's own median time.
    """

    what: str
    lists: int
    list_size: int
    relevant: float
    threads: int
    lower_quartile: float
    median: float
    microseconds: float


def interleaved_ratios(
    calls: dict[str, Callable[[], object]], base: str, rounds: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Time every call once a round, in turn, so that a change of the machine's speed meets all of them alike.

    Returns:
        For each call its seconds `[rounds]` and their ratio to `base`'s seconds of the same round.
    """
    seconds = {name: np.empty(rounds) for name in calls}
    for call in calls.values():  # compile kernels, fill caches
        call()
        call()
    for i in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name][i] = time.perf_counter() - start
    return {name: (its, its / seconds[base]) for name, its in seconds.items()}


def benchmark_oracles(
    measures: Sequence[str] = MEASURES,
    shapes: Sequence[tuple[int, int]] = SHAPES,
    shares: Sequence[float] = SHARES,
    threads: Sequence[int] = (1, 2),
    rounds: int = 100,
    seed: int = 0,
) -> list[Timing]:
    """Structured hinge loss, forward and backward, over `torch.sort` of the same float32 scores; np.argsort beside it."""
    generator = torch.Generator().manual_seed(seed)
    before = torch.get_num_threads()
    timings = []
    cases = [(t, shape, share) for t in threads for shape in shapes for share in shares]
    try:
        for count, (lists, size), share in tqdm(cases, desc="benchmark", unit="case", leave=False):
            torch.set_num_threads(count)
            scores = torch.randn(lists, size, generator=generator)
            labels = (torch.rand(lists, size, generator=generator) < share).long()
            calls: dict[str, Callable[[], object]] = {
                "torch.sort": partial(torch.sort, scores, dim=-1, descending=True),
                "np.argsort": partial(np.argsort, scores.numpy(), axis=-1),
            }
            for measure in measures:
                calls[f"{measure} loss"] = partial(_both_ways, scores, labels, measure)
            for name, (its, ratio) in interleaved_ratios(calls, "torch.sort", rounds).items():
                lower, median = (float(q) for q in np.percentile(ratio, [25, 50]))
                seconds = float(np.median(its))
                timings.append(Timing(name, lists, size, share, count, lower, median, seconds * 1e6))
    finally:
        torch.set_num_threads(before)
    return timings


def _both_ways(scores: Tensor, labels: Tensor, measure: str) -> None:
    leaf = scores.detach().requires_grad_()
    structured_hinge_loss(leaf, labels, measure).backward()


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    return {
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def as_rows(timings: Sequence[Timing]) -> tuple[list[str], list[list[object]]]:
    """Header and rows for a table."""
    header = ["call", "lists x size", "relevant", "threads", "lower quartile", "median", "median µs"]
    rows: list[list[object]] = [
        [
            t.what,
            f"{t.lists}x{t.list_size}",
            f"{t.relevant:.0%}",
            t.threads,
            f"{t.lower_quartile:.2f}",
            f"{t.median:.2f}",
            f"{t.microseconds:.0f}",
        ]
        for t in timings
    ]
    return header, rows


def as_json(timings: Sequence[Timing]) -> dict[str, object]:
    """All timings with what they were measured on, for a file."""
    return {"machine": machine(), "timings": [asdict(t) for t in timings]}


def main(args: Sequence[str]) -> int:
    """`rankstruct benchmark oracles`: print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(
        prog="rankstruct benchmark",
        description="Time losses, forward and backward, as ratios over torch.sort of the same scores.",
    )
    parser.add_argument("what", choices=["oracles"], help="what to time")
    parser.add_argument("--measures", nargs="+", default=list(MEASURES), help="measures (default: %(default)s)")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="thread counts (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=100, help="rounds, every call once each (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of scores and labels (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    options = parser.parse_args(args)
    timings = benchmark_oracles(options.measures, threads=options.threads, rounds=options.rounds, seed=options.seed)
    print("ratios over torch.sort of the same float32 scores, round by round; one call of each in turn")
    print(format_table(*as_rows(timings)))
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    if options.json:
        options.json.write_text(json.dumps(as_json(timings), indent=2) + "\n")
    return 0
