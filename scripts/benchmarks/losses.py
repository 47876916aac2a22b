"""Every loss, forward and backward: time over `torch.sort` and a squared loss of the same scores, and the peak of its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.timing import both_ways, check_known, environment, figures, interleaved_ratios, rounded
from rankstruct import losses as rl
from rankstruct.commands._options import loss_names
from rankstruct.kernels.threads import threads_of_torch
from rankstruct.measures import nDCG
from rankstruct.progress import Progress

SHAPE = (64, 1000)
SHARES = (0.05, 0.3)

_CONVEX = partial(rl.StructuredHingeLoss, reference="ideal")


class _Diverse(nn.Module):
    """A loss over diverse rankings of lists whose documents are of groups drawn at random, four of a group on average."""

    def __init__(self, measure: str) -> None:
        super().__init__()
        self._loss, self._groups = rl.StructuredHingeLoss(f"diverse_{measure}"), torch.empty(0)

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        if self._groups.shape != scores.shape or self._groups.device != scores.device:
            generator = torch.Generator().manual_seed(0)
            groups = torch.randint(max(scores.shape[-1] // 4, 1), scores.shape, generator=generator)
            self._groups = groups.to(scores.device)
        return self._loss(scores, labels, diversity_groups=self._groups)


def _with_defaults() -> dict[str, Callable[[], nn.Module]]:
    """The losses of lists that need no argument, by the name of the class without `Loss`."""
    kinds = {name: getattr(rl, name) for name in loss_names() if name != "StructuredHingeLoss"}  # by measures below
    needed = {
        name
        for name, kind in kinds.items()
        for each in signature(kind).parameters.values()
        if each.default is each.empty
    }
    return {name.removesuffix("Loss"): kind for name, kind in kinds.items() if name not in needed}


#: What is timed; what needs an argument, or is interesting with others, is one line here.
LOSSES: dict[str, Callable[[], nn.Module]] = {
    "AP (SVMmap)": partial(rl.StructuredHingeLoss, "AP"),
    "AUC (SVMauc)": partial(rl.StructuredHingeLoss, "AUC"),
    "pAUC (SVMpAUC)": partial(_CONVEX, "pAUC(high=0.1)", feature_map="pairwise"),
    "F1": partial(rl.StructuredHingeLoss, "F1"),
    "R@10": partial(rl.StructuredHingeLoss, "R@10"),
    "nDCG@10 (SVMndcg)": partial(_CONVEX, nDCG(10, min_relevant=1), feature_map="pairwise"),
    "nDCG@10 positional (ORM)": partial(_CONVEX, "nDCG@10", feature_map="positional"),
    "nDCG@10": partial(rl.StructuredHingeLoss, "nDCG@10"),
    "ERU positional (ORM)": partial(_CONVEX, "ERU(d=0,half_life=5)"),
    "RR@10 (SVMmrr)": partial(_CONVEX, "RR@10", feature_map="first-relevant"),
    "classification, classes balanced": partial(rl.ClassificationLoss, balance="lists"),
    "ordinal, 5 grades": partial(rl.OrdinalLoss, 5),
    "unique softmax": partial(rl.SoftmaxLoss, "gain", against="lower"),
    "poly-1 softmax": partial(rl.SoftmaxLoss, "share", epsilon=1.0),
    "Kullback-Leibler": partial(rl.SoftmaxLoss, "teacher", divergence=True),
    "pairwise soft zero-one": partial(rl.LambdaLoss, scheme="uniform", surrogate="zero-one"),
    "LambdaRank on a hinge": partial(rl.LambdaLoss, scheme="lambdarank", surrogate="hinge"),
    "ApproxMRR": partial(rl.ApproxNDCGLoss, "RR"),
    "DCG hinge": partial(rl.ApproxNDCGLoss, ranks="hinge"),
    "RankDistil, k=10": partial(rl.RankDistilLoss, k=10),
    "PL-Rank nDCG@10, 1 sample": partial(rl.PLRankLoss, "nDCG@10", samples=1),
    "P@10 average surrogate": partial(rl.TopSurrogateLoss, "P@10"),
    "AP predicted": partial(rl.StructuredHingeLoss, "AP", reference="predicted"),
    "nDCG@10 positional predicted": partial(
        rl.StructuredHingeLoss, "nDCG@10", feature_map="positional", reference="predicted"
    ),
    "diverse nDCG@10": partial(_Diverse, "nDCG@10"),
    "SVMcombo (AP, RR@10)": lambda: rl.CombinedLoss([rl.StructuredHingeLoss("AP"), LOSSES["RR@10 (SVMmrr)"]()]),
    "SmoothGrad nDCG": partial(rl.SmoothLoss, "nDCG"),
    "direct nDCG@10 both sides": partial(rl.DirectLoss, "nDCG@10", feature_map="positional", side="both"),
    **_with_defaults(),
}

# Run as a program of its own. Linux lets a process forget its peak, which imports and compilation may have set high.
_PEAK = """
import contextlib, json, sys, torch
from pathlib import Path
from benchmarks import losses as b
from benchmarks.timing import peak_kilobytes
name, lists, size, share, seed, grades = json.loads(sys.argv[1])
torch.set_num_threads(1)
b.both_ways(b.LOSSES[name](), *b.draw(2, 20, share, seed, grades))
scores, labels = b.draw(lists, size, share, seed, grades)
loss = b.LOSSES[name]()
with contextlib.suppress(OSError):
    Path("/proc/self/clear_refs").write_text("5")
before = peak_kilobytes()
b.both_ways(loss, scores, labels)
print(peak_kilobytes(before) - before)
"""


def draw(lists: int, size: int, share: float, seed: int, grades: int = 2) -> tuple[Tensor, Tensor]:
    """Random float32 scores and labels `[lists, size]`, this share of them relevant, of the grades 1 to `grades` - 1."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(lists, size, generator=generator)
    relevant = torch.rand(lists, size, generator=generator) < share
    return scores, torch.where(relevant, torch.randint(1, grades, (lists, size), generator=generator), 0)


def peak_megabytes(name: str, lists: int, size: int, share: float, seed: int = 0, grades: int = 2) -> float:
    """By how many megabytes one call of the loss, forward and backward, raises the peak of a fresh process.

    0 where it stays under the peak of the start.
    """
    given = json.dumps([name, lists, size, share, seed, grades])
    command = [sys.executable, "-c", _PEAK, given]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    kilobytes = int(done.stdout.split()[-1])
    return kilobytes / (1024 * 1024 if sys.platform == "darwin" else 1024)


@threads_of_torch(1)
def benchmark_losses(
    names: Sequence[str] = tuple(LOSSES),
    shape: tuple[int, int] = SHAPE,
    shares: Sequence[float] = SHARES,
    rounds: int = 10,
    seed: int = 0,
    *,
    grades: int = 2,
    memory: bool = True,
) -> list[dict[str, Any]]:
    """Time the losses in turn, one thread, and measure the memory of each, at the first share, in a process of its own.

    Returns:
        A row a loss, `torch.sort` among them, and share: `loss`, `lists`, `list_size`, `relevant` (the share),
        `benchmarks.timing.figures`, `over_squared` (the median of its time over that of the squared loss; None if that was not
        timed), and `peak_megabytes` (by how much it raised the peak of a fresh process; None if that was not measured).

    Raises:
        ValueError: a name that is not in `LOSSES`, fewer grades than 2 or more than 5.
    """
    if not 2 <= grades <= 5:
        raise ValueError(f"grades must be 2 to 5, got {grades}")
    check_known("loss", names, LOSSES)
    timings = []
    for share in Progress(shares, desc="benchmark", unit="case", leave=False):
        scores, labels = draw(*shape, share, seed, grades)
        calls: dict[str, Callable[[], object]] = {"torch.sort": partial(torch.sort, scores, dim=-1, descending=True)}
        calls |= {name: partial(both_ways, LOSSES[name](), scores, labels) for name in names}
        results = interleaved_ratios(calls, "torch.sort", rounds)
        squared = results["Squared"][0] if "Squared" in results else None
        for name, (seconds, ratio) in results.items():
            case = {"loss": name, "lists": shape[0], "list_size": shape[1], "relevant": share}
            measured = memory and name in LOSSES and share == shares[0]
            peak = peak_megabytes(name, *shape, share, seed, grades) if measured else None
            over = None if squared is None else float(np.median(seconds / squared))
            timings.append(case | figures(seconds, ratio) | {"over_squared": over, "peak_megabytes": peak})
    return timings


def as_rows(timings: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """Header and rows for a table."""
    header = ["loss", "lists x size", "relevant", "lower quartile", "median", "over squared", "median µs", "peak MB"]
    digits = {"lower_quartile": 2, "median": 2, "over_squared": 2, "microseconds": 0, "peak_megabytes": 1}
    rows: list[list[object]] = [
        [t["loss"], f"{t['lists']}x{t['list_size']}", f"{t['relevant']:.0%}", *rounded(t, **digits)] for t in timings
    ]
    return header, rows


def by_share(timings: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """Header and rows of the medians: a row a loss, a column a share of relevant documents, and the peak of memory."""
    shares = list(dict.fromkeys(t["relevant"] for t in timings))
    rows: list[list[object]] = []
    for loss in dict.fromkeys(t["loss"] for t in timings):
        mine = [t for t in timings if t["loss"] == loss]
        over = [cell for name in ("median", "over_squared") for t in mine for cell in rounded(t, **{name: 2})]
        rows.append([loss, *over, *rounded(mine[0], peak_megabytes=1)])
    columns = [f"over {what}, {share:.0%} relevant" for what in ("sort", "squared") for share in shares]
    return ["loss", *columns, "peak MB"], rows
