"""What all benchmarks time with: calls in turn, threads for the time of a run, the machine's name."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankstruct.messages import did_you_mean


def environment(**variables: str) -> dict[str, str]:
    """The environment of a process that imports these benchmarks, with the variables given."""
    path = filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **variables}


def interleaved_ratios(
    calls: Mapping[str, Callable[[], object]], base: str, rounds: int
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


def check_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError for the first name that is not known."""
    there = list(known)
    for name in names:
        if name not in there:
            raise ValueError(f"unknown {what} {name!r}; there are: {', '.join(there)}{did_you_mean(name, there)}")


def both_ways(loss: Callable[[Tensor, Tensor], Tensor], scores: Tensor, labels: Tensor) -> None:
    """The loss forward and backward."""
    loss(scores.detach().requires_grad_(), labels).backward()


def figures(seconds: np.ndarray, ratio: np.ndarray) -> dict[str, float]:
    """The lower quartile and the median of a ratio, and the median time in microseconds."""
    lower, median = (float(q) for q in np.percentile(ratio, [25, 50]))
    return {"lower_quartile": lower, "median": median, "microseconds": float(np.median(seconds)) * 1e6}


def rounded(row: Mapping[str, Any], **digits: int) -> list[str]:
    """Some numbers of a row with as many digits as given; `-` for one that is missing."""
    return ["-" if row[name] is None else f"{row[name]:.{number}f}" for name, number in digits.items()]


def peak_kilobytes(at_least: int = 0) -> int:
    """What this process had resident at most, by what the system says, and by an earlier reading, `at_least`.

    On Linux it is read from the status: there `ru_maxrss` begins at that of the parent. Linux sums up counts of several
    processors without stopping them, so that a later reading may be some pages lower.
    """
    import resource

    with suppress(OSError, StopIteration):
        return max(at_least, status_kilobytes("VmHWM"))
    return max(at_least, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def status_kilobytes(name: str) -> int:
    """A figure of this process's status on Linux, such as `RssAnon`: what is resident now and no file's."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(name))


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    return {
        "cores": str(os.cpu_count()),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
