"""The losses of the oracles over `torch.sort` of the same scores; growth with the list; the assignment over SciPy's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from benchmarks.timing import both_ways, figures, interleaved_ratios, rounded
from rankstruct.feature_maps import Positional
from rankstruct.kernels.threads import threads_of_torch
from rankstruct.losses import StructuredHingeLoss
from rankstruct.measures import DiscountedGain, parse_measure
from rankstruct.oracles import most_violated
from rankstruct.progress import Progress

SHAPES = ((256, 100), (64, 1000), (8, 10_000))
SHARES = (0.05, 0.3, 5)  # of relevant documents; or as many grades, all alike
MEASURES = ("AP", "AUC", "pAUC(high=0.1)", "pAUC(low=0.02,high=0.1)", "F1", "R@10", "nDCG", "nDCG@10", "RR@10", "P@10")
DENSE = "all pairs, dense torch"
MOST_DENSE_BYTES = 2e9
ARRANGEMENTS = ("random", "near-sorted", "anti-sorted", "tied", "real-valued labels")


@threads_of_torch(1)
def benchmark_oracles(
    measures: Sequence[str] = MEASURES,
    shapes: Sequence[tuple[int, int]] = SHAPES,
    shares: Sequence[float] = SHARES,
    threads: Sequence[int] = (1, 2),
    rounds: int = 100,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Structured hinge loss, forward and backward, over `torch.sort` of the same float32 scores.

    Also np.argsort, and a hinge over all pairs in dense torch, with a tenth of the rounds; that one is
    left out where its matrices need more than 2 GB.

    Returns:
        One row per call: `what`, `lists`, `list_size`, `relevant` (the share of relevant documents; from 2 on, the number of
        grades), `threads` (of torch, which the kernels follow), and `benchmarks.timing.figures`, None where it is left out.
    """
    generator = torch.Generator().manual_seed(seed)
    timings = []
    cases = [(t, shape, share) for t in threads for shape in shapes for share in shares]
    for count, (lists, size), share in Progress(cases, desc="benchmark", unit="case", leave=False):
        case = {"lists": lists, "list_size": size, "relevant": share, "threads": count}
        torch.set_num_threads(count)
        scores = torch.randn(lists, size, generator=generator)
        labels = (
            torch.randint(0, int(share), (lists, size), generator=generator)
            if share > 1
            else (torch.rand(lists, size, generator=generator) < share).long()
        )
        calls: dict[str, Callable[[], object]] = {
            "torch.sort": partial(torch.sort, scores, dim=-1, descending=True),
            "np.argsort": partial(np.argsort, scores.numpy(), axis=-1),
        }
        for measure in measures:
            calls[f"{measure} loss"] = partial(both_ways, _loss(measure), scores, labels)
        results = interleaved_ratios(calls, "torch.sort", rounds)
        # A few float32 matrices of all pairs: the margins, their positive part, the mask and the gradient.
        if 16 * lists * size**2 <= MOST_DENSE_BYTES:
            dense = partial(both_ways, _all_pairs, scores, labels)
            pair = interleaved_ratios(
                {"torch.sort": calls["torch.sort"], DENSE: dense}, "torch.sort", max(rounds // 10, 1)
            )
            results[DENSE] = pair[DENSE]
        else:
            missing = dict.fromkeys(("lower_quartile", "median", "microseconds"))
            timings.append({"what": DENSE, **case, **missing})
        for name, (its, ratio) in results.items():
            timings.append({"what": name, **case, **figures(its, ratio)})
    return timings


def _loss(measure: str) -> Callable[[Tensor, Tensor], Tensor]:
    return StructuredHingeLoss(measure)


def _all_pairs(scores: Tensor, labels: Tensor) -> Tensor:
    """A pairwise hinge over all pairs of a relevant and an irrelevant document at once, O(n^2)."""
    margins = 1 - (scores.unsqueeze(-1) - scores.unsqueeze(-2))
    pairs = (labels.unsqueeze(-1) > 0) & (labels.unsqueeze(-2) == 0)
    return (margins.clamp(min=0) * pairs).sum()


@threads_of_torch(1)
def benchmark_one_list(
    measures: Sequence[str] = MEASURES, size: int = 4, rounds: int = 2000, seed: int = 0
) -> list[dict[str, float | str]]:
    """A list of a few documents, forward and backward, where the call itself is all that costs, one thread.

    Returns:
        Rows of loss, median microseconds, and their ratio to `softmax(scores) . labels` in plain torch.
    """
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, generator=generator)
    labels = (torch.arange(size) % 2).long()
    weights = labels.float()
    calls: dict[str, Callable[[], object]] = {
        "softmax . labels": partial(
            both_ways, lambda scores, labels: (scores.softmax(-1) * weights).sum(), scores, labels
        )
    }
    for measure in measures:
        calls[measure] = partial(both_ways, _loss(measure), scores, labels)
    results = interleaved_ratios(calls, "softmax . labels", rounds)
    return [
        {"loss": name, "µs": round(float(np.median(its)) * 1e6, 1), "over softmax": round(float(np.median(ratio)), 2)}
        for name, (its, ratio) in results.items()
    ]


@threads_of_torch(1)
def benchmark_growth(
    measures: Sequence[str] = MEASURES,
    small: int = 1_000,
    large: int = 100_000,
    relevant: float = 0.01,
    rounds: int = 20,
    seed: int = 0,
) -> list[dict[str, float | str]]:
    """One list of `large` documents against one of `small`, forward and backward, one thread: time and memory.

    Returns:
        Rows of measure, median microseconds of both, their ratio, and the megabytes by which the process' peak grew over the
        large list's runs (0 where it stayed under an earlier peak).
    """
    import resource  # not on Windows, where the rest of the benchmark runs

    generator = torch.Generator().manual_seed(seed)
    rows: list[dict[str, float | str]] = []
    for measure in measures:
        medians = []
        for size in (small, large):
            scores = torch.randn(1, size, generator=generator)
            labels = (torch.rand(1, size, generator=generator) < relevant).long()
            both_ways(_loss(measure), scores[:, :small], labels[:, :small])
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            calls = {"loss": partial(both_ways, _loss(measure), scores, labels)}
            medians.append(float(np.median(interleaved_ratios(calls, "loss", rounds)["loss"][0])) * 1e6)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
        rows.append(
            {
                "measure": measure,
                f"n = {small}, µs": round(medians[0]),
                f"n = {large}, µs": round(medians[1]),
                "ratio": round(medians[1] / medians[0], 1),
                "peak MB": round(grown, 1),
            }
        )
    return rows


@threads_of_torch(1)
def benchmark_assignment(
    cases: Sequence[tuple[str, int]] = (("nDCG@10", 1000), ("nDCG", 500), ("nDCG", 1000)),
    alone: Sequence[tuple[str, int]] = (("nDCG", 2000), ("nDCG", 5000)),
    rounds: int = 5,
    seed: int = 0,
) -> list[dict[str, float | str]]:
    """The positional map's argmax (five grades, decay i^-0.5) against SciPy's assignment on the same list, one thread.

    `alone` are lists for which SciPy would take minutes. Every arrangement of scores: random, near-sorted by label, the
    reverse of it, and tied.

    Returns:
        Rows of measure, size, arrangement, both median milliseconds, their ratio, and the relative difference of the values.
    """
    rng = np.random.default_rng(seed)
    rows: list[dict[str, float | str]] = []
    for (name, size), with_scipy in [*((case, True) for case in cases), *((case, False) for case in alone)]:
        measure, decay = parse_measure(name), Positional("i^-0.5")
        assert isinstance(measure, DiscountedGain)
        a, c = measure.position_weights(size).numpy(), decay.weights(size).numpy()
        for arrangement in ARRANGEMENTS:
            labels: np.ndarray = rng.choice(5, p=[0.5, 0.2, 0.15, 0.1, 0.05], size=size)
            if arrangement == "real-valued labels":
                labels = rng.random(size)
            noise = rng.normal(size=size)
            scores = {
                "random": noise,
                "near-sorted": labels + 0.1 * noise,
                "anti-sorted": -labels + 0.1 * noise,
                "tied": np.round(noise),
                "real-valued labels": noise,
            }[arrangement]
            given = torch.tensor(scores), torch.tensor(labels)
            call = partial(most_violated, *given, measure, feature_map=decay, reference="predicted")
            row: dict[str, float | str] = {"measure": name, "n": size, "scores": arrangement}
            ours = np.median(interleaved_ratios({"ours": call}, "ours", rounds)["ours"][0]) * 1e3
            row["ms"] = round(float(ours), 3)
            if with_scipy:
                gains = measure.document_gains(given[1]).numpy()
                gains = gains / (a @ np.sort(gains)[::-1])
                start = time.perf_counter()
                value = np.outer(scores, c) - np.outer(gains, a)
                where = linear_sum_assignment(value, maximize=True)
                theirs = (time.perf_counter() - start) * 1e3
                best = 1 + value[where].sum() - np.sort(scores)[::-1] @ c
                row["SciPy ms"] = round(theirs, 1)
                row["times faster"] = round(theirs / float(ours))
                row["difference"] = f"{abs(call().value.item() - best) / max(1.0, abs(best)):.0e}"
            rows.append(row)
    return rows


def as_rows(timings: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """Header and rows for a table."""
    header = ["call", "lists x size", "relevant", "threads", "lower quartile", "median", "median µs"]
    digits = {"lower_quartile": 2, "median": 2, "microseconds": 0}
    rows: list[list[object]] = [
        [t["what"], f"{t['lists']}x{t['list_size']}", _labels(t["relevant"]), t["threads"], *rounded(t, **digits)]
        for t in timings
    ]
    return header, rows


def _labels(relevant: float) -> str:
    return f"{relevant:g} grades" if relevant > 1 else f"{relevant:.0%}"


def by_case(timings: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """Header and rows of the medians at the first number of threads: a row a shape and share, a column a call."""
    mine = [t for t in timings if t["threads"] == timings[0]["threads"] and t["what"] != "torch.sort"]
    # In order of time, but the calls that the losses are compared with come last.
    calls = sorted(dict.fromkeys(t["what"] for t in mine), key=lambda what: not what.endswith(" loss"))
    found = {(t["lists"], t["list_size"], t["relevant"], t["what"]): t["median"] for t in mine}
    cases = dict.fromkeys(key[:3] for key in found)
    rows: list[list[object]] = []
    for lists, size, relevant in cases:
        medians = [found[lists, size, relevant, what] for what in calls]
        shown = ["-" if value is None else f"{value:.{2 if value < 10 else 0}f}" for value in medians]
        rows.append([f"{lists} x {size}", _labels(relevant), *shown])
    return ["lists x documents", "relevant", *(what.removesuffix(" loss") for what in calls)], rows
