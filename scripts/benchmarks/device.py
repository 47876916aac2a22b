"""Every loss on a device, over `torch.sort` there: time, memory, and whether a step waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.losses import LOSSES, draw
from benchmarks.oracles import MEASURES
from benchmarks.timing import both_ways, check_known, interleaved_ratios, rounded
from rankstruct.losses import StructuredHingeLoss
from rankstruct.progress import Progress

SHAPES = ("64x100", "64x1000", "8x10000", "8x100000")
PRECISIONS = ("float32", "bfloat16")
RELEVANT, GRADES = 0.1, 5
FIGURES = ("median", "microseconds", "peak_megabytes", "waits")

#: What is timed: every loss, and the hinge of every measure as its name alone gives it.
CALLS: dict[str, Callable[[], nn.Module]] = {
    **{name: partial(StructuredHingeLoss, name) for name in MEASURES},
    **LOSSES,
}


def check_device(name: str) -> torch.device:
    """The device of this name; raises ValueError where it is not here."""
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # how torch refuses, by its build
        raise ValueError(
            f"there is no device {name!r} here ({str(error).splitlines()[0]}); --device cpu tries the command out"
        ) from error
    return device


def benchmark_device(
    device: str = "cuda",
    names: Sequence[str] = tuple(CALLS),
    shapes: Sequence[str] = SHAPES,
    precisions: Sequence[str] = PRECISIONS,
    rounds: int = 20,
    seed: int = 0,
    relevant: float = RELEVANT,
) -> list[dict[str, Any]]:
    """Time losses on a device, each in turn with `torch.sort` of the same scores, and measure their memory there.

    Args:
        device: as torch names it.
        names: of losses in `CALLS`.
        shapes: `"LISTSxSIZE"` each.
        precisions: dtypes of the scores, as torch names them.
        rounds: calls of each.
        seed: of scores and labels.
        relevant: the share of documents with a label above 0.

    Returns:
        A row a loss, shape and precision: `loss`, `shape`, `precision` (half precision is under autocast), `median` (of its time
        over that of `torch.sort` of the same scores, round by round), `microseconds` (its own median time), `peak_megabytes`
        (what it allocates at most) and `waits` (whether a step reads the device back, which stalls it). None where memory did not
        suffice; the last two also where the device does not tell.

    Raises:
        ValueError: no such device, loss, shape or precision.
    """
    there = check_device(device)
    check_known("loss", names, CALLS)
    cases = [(shape, *_sizes(shape), each, _dtype(each)) for shape in shapes for each in precisions]
    timings = []
    for shape, lists, size, precision, dtype in Progress(cases, desc="benchmark", unit="case", leave=False):
        drawn, labels = draw(lists, size, relevant, seed, GRADES)
        scores, labels = drawn.to(there, dtype), labels.to(there)
        for name in names:
            try:
                figures = dict(zip(FIGURES, _measure(CALLS[name](), scores, labels, rounds), strict=True))
            except torch.cuda.OutOfMemoryError:
                figures = dict.fromkeys(FIGURES)
            timings.append({"loss": name, "shape": shape, "precision": precision, **figures})
    return timings


def _sizes(shape: str) -> tuple[int, int]:
    parts = shape.split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"a shape is LISTSxSIZE, such as 64x100; got {shape!r}")
    return int(parts[0]), int(parts[1])


def _dtype(precision: str) -> torch.dtype:
    dtype = getattr(torch, precision, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"a precision is a floating point dtype of torch, such as bfloat16; got {precision!r}")
    return dtype


def _measure(loss: nn.Module, scores: Tensor, labels: Tensor, rounds: int) -> tuple[Any, ...]:
    half = scores.dtype in (torch.float16, torch.bfloat16)

    def step() -> None:
        with torch.autocast(scores.device.type, dtype=scores.dtype if half else torch.bfloat16, enabled=half):
            both_ways(loss, scores, labels)

    calls: dict[str, Callable[[], object]] = {"torch.sort": partial(torch.sort, scores, dim=-1, descending=True)}
    calls["loss"] = step
    timed = {name: partial(_finish, call, scores.device) for name, call in calls.items()}
    seconds, ratio = interleaved_ratios(timed, "torch.sort", rounds)["loss"]
    peak, waits = _on_cuda(step, scores.device) if scores.device.type == "cuda" else (None, None)
    return float(np.median(ratio)), float(np.median(seconds)) * 1e6, peak, waits


def _finish(call: Callable[[], object], device: torch.device) -> None:
    """Call, and wait until the device has done it."""
    call()
    getattr(torch, device.type).synchronize()


def _on_cuda(step: Callable[[], None], device: torch.device) -> tuple[float, bool]:
    """The megabytes that a step allocates at most, and whether it waits for the device."""
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    peak = (torch.cuda.max_memory_allocated(device) - before) / 2**20
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError:  # what torch raises where a step would wait
        return peak, True
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return peak, False


def by_shape(timings: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """Header and rows: a row a loss, a column a shape and precision; then the most memory of any, and whether it waits."""
    cases = dict.fromkeys((t["shape"], t["precision"]) for t in timings)
    rows: list[list[object]] = []
    for loss in dict.fromkeys(t["loss"] for t in timings):
        mine = [t for t in timings if t["loss"] == loss]
        peaks = [t["peak_megabytes"] for t in mine if t["peak_megabytes"] is not None]
        waits = {t["waits"] for t in mine} - {None}
        shown = [cell for t in mine for cell in rounded(t, median=2)]
        rows.append(
            [loss, *shown, f"{max(peaks):.1f}" if peaks else "-", "yes" if True in waits else "no" if waits else "-"]
        )
    return ["loss", *(f"{shape} {precision}" for shape, precision in cases), "peak MB", "waits"], rows
