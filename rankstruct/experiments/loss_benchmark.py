"""Every loss, forward and backward: time over `torch.sort` and a squared loss of the same scores, and the peak of its memory."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from rankstruct import losses as rl
from rankstruct.experiments.benchmarks import interleaved_ratios, machine
from rankstruct.files import whole_file
from rankstruct.measures import nDCG
from rankstruct.tables import format_table

SHAPE = (64, 1000)
SHARES = (0.05, 0.3)

#: What is timed; a new loss is one line here.
LOSSES: dict[str, Callable[[], nn.Module]] = {
    "AP (SVMmap)": partial(rl.StructuredHingeLoss, "AP"),
    "AUC (SVMauc)": partial(rl.StructuredHingeLoss, "AUC"),
    "nDCG@10 (SVMndcg)": partial(rl.StructuredHingeLoss, nDCG(10, min_relevant=1)),
    "nDCG@10 positional (ORM)": partial(rl.StructuredHingeLoss, "nDCG@10", feature_map="positional"),
    "ERU positional (ORM)": partial(rl.StructuredHingeLoss, "ERU(d=0,half_life=5)"),
    "RR@10 (SVMmrr)": partial(rl.StructuredHingeLoss, "RR@10"),
    "RankSVM": rl.RankSVMLoss,
    "squared": rl.SquaredLoss,
    "classification": partial(rl.ClassificationLoss, balance="lists"),
    "ordinal": partial(rl.OrdinalLoss, 5),
    "ListNet": rl.ListNetLoss,
    "ListMLE": rl.ListMLELoss,
    "RankNet": rl.RankNetLoss,
    "LambdaLoss ndcg2": rl.LambdaLoss,
    "ApproxNDCG": rl.ApproxNDCGLoss,
    "AP predicted": partial(rl.StructuredHingeLoss, "AP", reference="predicted"),
    "nDCG@10 positional predicted": partial(
        rl.StructuredHingeLoss, "nDCG@10", feature_map="positional", reference="predicted"
    ),
    "graded AUC": partial(rl.GradedLoss, "AUC"),
    "SVMcombo (AP, RR@10)": lambda: rl.CombinedLoss([rl.StructuredHingeLoss("AP"), rl.StructuredHingeLoss("RR@10")]),
    "SmoothGrad nDCG@10": partial(rl.SmoothLoss, "nDCG@10"),
    "SmoothGrad nDCG": partial(rl.SmoothLoss, "nDCG"),
    "direct AP": partial(rl.DirectLoss, "AP"),
    "direct nDCG@10 both sides": partial(rl.DirectLoss, "nDCG@10", feature_map="positional", side="both"),
}

# Run as a program of its own. Linux lets a process forget its peak, which imports and compilation may have set high; there it is
# read from the status, since ru_maxrss begins at that of the parent.
_PEAK = """
import contextlib, json, resource, sys, torch
from pathlib import Path
from rankstruct.experiments import loss_benchmark as b
name, lists, size, share, seed, grades = json.loads(sys.argv[1])
torch.set_num_threads(1)
b.both_ways(b.LOSSES[name](), *b.draw(2, 20, share, seed, grades))
scores, labels = b.draw(lists, size, share, seed, grades)
loss = b.LOSSES[name]()
def peak():
    with contextlib.suppress(OSError, StopIteration):
        return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with contextlib.suppress(OSError):
    Path("/proc/self/clear_refs").write_text("5")
before = peak()
b.both_ways(loss, scores, labels)
print(peak() - before)
"""


@dataclass(frozen=True)
class LossTiming:
    """One loss, forward and backward, one thread.

    Attributes:
        loss: its name in `LOSSES`, or `torch.sort`, the unit.
        lists, list_size: the shape of the scores.
        relevant: the share of relevant documents.
        lower_quartile, median: of its time over that of `torch.sort` on the same scores, round by round.
        microseconds: its own median time.
        over_squared: the median of its time over that of the squared loss, round by round; None if that was not timed.
        peak_megabytes: by how much it raised the peak of a fresh process; measured for the first share alone, else None.
    """

    loss: str
    lists: int
    list_size: int
    relevant: float
    lower_quartile: float
    median: float
    microseconds: float
    over_squared: float | None
    peak_megabytes: float | None


def draw(lists: int, size: int, share: float, seed: int, grades: int = 2) -> tuple[Tensor, Tensor]:
    """Random float32 scores and labels `[lists, size]`, this share of them relevant, of the grades 1 to `grades` - 1."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(lists, size, generator=generator)
    relevant = torch.rand(lists, size, generator=generator) < share
    return scores, torch.where(relevant, torch.randint(1, grades, (lists, size), generator=generator), 0)


def both_ways(loss: nn.Module, scores: Tensor, labels: Tensor) -> None:
    """The loss forward and backward."""
    loss(scores.detach().requires_grad_(), labels).backward()


def peak_megabytes(name: str, lists: int, size: int, share: float, seed: int = 0, grades: int = 2) -> float:
    """By how many megabytes one call of the loss, forward and backward, raises the peak of a fresh process.

    0 where it stays under the peak of the start.
    """
    given = json.dumps([name, lists, size, share, seed, grades])
    done = subprocess.run([sys.executable, "-c", _PEAK, given], capture_output=True, text=True, check=True)
    kilobytes = int(done.stdout.split()[-1])
    return kilobytes / (1024 * 1024 if sys.platform == "darwin" else 1024)


def benchmark_losses(
    names: Sequence[str] = tuple(LOSSES),
    shape: tuple[int, int] = SHAPE,
    shares: Sequence[float] = SHARES,
    rounds: int = 10,
    seed: int = 0,
    *,
    grades: int = 2,
    memory: bool = True,
) -> list[LossTiming]:
    """Time the losses in turn, one thread, and measure the memory of each, at the first share, in a process of its own.

    Raises:
        ValueError: a name that is not in `LOSSES`, fewer grades than 2 or more than 5.
    """
    if not 2 <= grades <= 5:
        raise ValueError(f"grades must be 2 to 5, got {grades}")
    for name in names:
        if name not in LOSSES:
            raise ValueError(f"unknown loss {name!r}; there are: {', '.join(LOSSES)}")
    timings = []
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for share in tqdm(shares, desc="benchmark", unit="case", leave=False):
            scores, labels = draw(*shape, share, seed, grades)
            calls: dict[str, Callable[[], object]] = {
                "torch.sort": partial(torch.sort, scores, dim=-1, descending=True)
            }
            calls |= {name: partial(both_ways, LOSSES[name](), scores, labels) for name in names}
            results = interleaved_ratios(calls, "torch.sort", rounds)
            squared = results["squared"][0] if "squared" in results else None
            for name, (seconds, ratio) in results.items():
                lower, median = (float(q) for q in np.percentile(ratio, [25, 50]))
                peak = (
                    peak_megabytes(name, *shape, share, seed, grades)
                    if memory and name in LOSSES and share == shares[0]
                    else None
                )
                own = float(np.median(seconds)) * 1e6
                over = None if squared is None else float(np.median(seconds / squared))
                timings.append(LossTiming(name, *shape, share, lower, median, own, over, peak))
    finally:
        torch.set_num_threads(before)
    return timings


def main(args: Sequence[str]) -> int:
    """`rankstruct benchmark losses`: print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(
        prog="rankstruct benchmark losses",
        description="Time every loss, forward and backward, as a ratio over torch.sort of the same scores and over a squared "
        "loss of them, one thread.",
    )
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), metavar="NAME", help="losses (default: all)")
    parser.add_argument(
        "--shape", nargs=2, type=int, default=SHAPE, metavar=("LISTS", "SIZE"), help="of the scores (default: 64 1000)"
    )
    parser.add_argument("--relevant", nargs="+", type=float, default=SHARES, help="shares of relevant documents")
    parser.add_argument("--grades", type=int, default=2, help="grades of the labels, 2 to 5 (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds, every loss once each (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of scores and labels (default: %(default)s)")
    parser.add_argument("--no-memory", action="store_true", help="leave out memory, which takes a process a loss")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    options = parser.parse_args(args)
    try:
        timings = benchmark_losses(
            options.losses,
            tuple(options.shape),
            options.relevant,
            options.rounds,
            options.seed,
            grades=options.grades,
            memory=not options.no_memory and sys.platform != "win32",
        )
    except ValueError as error:
        parser.error(str(error))
    print("losses, forward and backward, over torch.sort of the same float32 scores, round by round, one thread")
    header = ["loss", "lists x size", "relevant", "lower quartile", "median", "over squared", "median µs", "peak MB"]
    rows: list[list[object]] = [
        [
            t.loss,
            f"{t.lists}x{t.list_size}",
            f"{t.relevant:.0%}",
            f"{t.lower_quartile:.2f}",
            f"{t.median:.2f}",
            "" if t.over_squared is None else f"{t.over_squared:.2f}",
            f"{t.microseconds:.0f}",
            "" if t.peak_megabytes is None else f"{t.peak_megabytes:.1f}",
        ]
        for t in timings
    ]
    print(format_table(header, rows))
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    if options.json:
        with whole_file(options.json) as file:
            json.dump({"machine": machine(), "timings": [asdict(t) for t in timings]}, file, indent=2)
    return 0
