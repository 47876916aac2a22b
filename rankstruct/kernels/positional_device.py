"""Most violated rankings under the positional map on a CUDA device: `positional_cpu`'s own functions, a list a thread.

numba compiles them once more, for the device; here is only their scratch, which torch allocates for all lists at once from
shapes and the cut-off, so that nothing is read back. Sums over ranks take the residual sweep from its greedy start, where the
tables have room for the list's distinct gains, and the prices where they have not or it takes too many steps: both are exact.
In numba's simulator (`NUMBA_ENABLE_CUDASIM=1`) tensors of the CPU take the same way.
"""

from __future__ import annotations

import logging
from functools import cache
from math import isqrt
from typing import Any, NamedTuple

import numba.cuda
import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels.assignment_cpu import SweepSpace, by_prices, first_by_score, greedy, sweep, sweep_near
from rankstruct.kernels.compilation import compile_kernel, compile_part
from rankstruct.kernels.dispatch import Answer, DeviceLists, discount_table
from rankstruct.kernels.positional_cpu import (
    IDEAL,
    NOTHING,
    RECIPROCAL,
    Batch,
    RankLists,
    begin,
    problem_of,
    rank_classes,
    score,
    solve_reciprocal,
)
from rankstruct.kernels.sorting import COUNTED_CLASSES

cuda: Any = numba.cuda
settings: Any = numba.config

_MOST_CLASSES = 8  # distinct gains of a list for which the sweep's tables have room
_MOST_NUMBERS = 2**26  # of the largest table: half a gigabyte
_FEWEST_BLOCKS = 128  # for fewer numba warns that a device could do more


class Scratch(NamedTuple):
    """Scratch of all lists; list i has the columns from `offsets[i] + i COUNTED_CLASSES` on.

    Attributes:
        integers: int64 `[14, columns]`, of which the first five are the batch's.
        keys: uint64 `[2, columns]`.
        reals: float64 `[12, columns]`, of which the first two are the batch's.
        of_lists: int64 `[6, lists]`, the batch's.
        ideal: float64 `[lists]`, the batch's.
        histograms: uint64 `[lists, 256]`.
        of_classes: int64 `[lists, 9, classes]`.
        reach: int64 `[lists, classes, classes]`.
        inside, best, through: int64 `[positions, classes]` twice, and `[positions, classes, classes]`.
        stack: int64 `[2 positions + 2 lists, 3]`.
        cut: how many positions each list has; 0 if as many as documents.
    """

    integers: Any
    keys: Any
    reals: Any
    of_lists: Any
    ideal: Any
    histograms: Any
    of_classes: Any
    reach: Any
    inside: Any
    best: Any
    through: Any
    stack: Any
    cut: int


@compile_part
def _solve_sum(batch, index, integers, reals, scratch):
    """Fill `rank` of a list whose measure is a sum over ranks."""
    problem = problem_of(batch, index, (reals[0:2], integers[0], integers[1:4]))
    class_score, starts, gain, c, a, members, classes = problem
    start, n, groups, k = batch.lists.offsets[index], members.shape[0], gain.shape[0], batch.cut[index]
    group, places = batch.group[start : start + n], batch.rank[start : start + n]
    pointer, margin = integers[4], reals[4]
    known = greedy(classes, k, class_score, starts, gain, c, a, pointer, margin, places, reals[5:7]) and k == n
    solved = known
    if not solved and groups <= scratch.inside.shape[1]:
        at = index * scratch.cut if scratch.cut else start
        tables = scratch.inside[at:], scratch.best[at:], scratch.through[at:], scratch.stack[2 * (at + index) :]
        space = SweepSpace(reals[2:7], integers[5:7], scratch.of_classes[index], scratch.reach[index], tables)
        solved = k == n and sweep_near(classes, margin, class_score, starts, gain, c, a, 3 * n, space)
        if not solved:
            greedy(classes, k, class_score, starts, gain, c, a, pointer, margin, places, reals[5:7])
            k = k if k < n else first_by_score(class_score, starts, group, gain, c, a, pointer)
            solved = sweep(classes, k, group, class_score, starts, gain, c, a, 3 * n, space)
    if not solved:
        k = n
        by_prices(batch.score[start : start + n], group, gain, c, a, classes, (reals[2:10], integers[5:9]))
    if not known:
        rank_classes(batch, index, starts, classes, k, integers[2:4])


@compile_kernel
def solve_list(lists, scratch, index, reference, results):
    """All steps for one list; NaN where a number is not finite or a gain is below 0."""
    task_loss, value, direction = results
    integers, reals, of_lists = scratch.integers, scratch.reals, scratch.of_lists
    batch = Batch(
        lists,
        integers[0], integers[1], integers[2], integers[3], integers[4],
        reals[0], reals[1],
        of_lists[0], of_lists[1], of_lists[2], of_lists[3], of_lists[4], of_lists[5],
        scratch.ideal,
    )  # fmt: skip
    first = lists.offsets[index] + index * COUNTED_CLASSES
    last = lists.offsets[index + 1] + (index + 1) * COUNTED_CLASSES
    integers, reals = scratch.integers[5:, first:last], scratch.reals[2:, first:last]
    space = scratch.keys[:, first:last], integers[0:2], scratch.histograms[index]
    wrong = begin(batch, index, index + 1, space, integers[2:6])
    if batch.method[index] == RECIPROCAL:
        solve_reciprocal(batch, index, index + 1, reals[0], integers[0:2])
    elif batch.method[index] != NOTHING:
        _solve_sum(batch, index, integers, reals, scratch)
    score(batch, index, index + 1, reference, task_loss, value, direction, space, integers[2:9], reals[0:2])
    if wrong != -1:
        task_loss[index] = value[index] = np.nan


@cuda.jit
def _solve_lists(lists, scratch, reference, results):
    index = cuda.grid(1)
    if index < lists.offsets.shape[0] - 1:
        solve_list(lists, scratch, index, reference, results)


@cache
def reaches(device: torch.device) -> bool:
    """Whether numba compiles for the device and starts kernels there; in the simulator, on the CPU."""
    if device.type != "cuda":
        return bool(settings.ENABLE_CUDASIM) and device.type == "cpu"
    one, bounds = torch.zeros(1, dtype=torch.float64, device=device), torch.arange(2, device=device)
    lists = DeviceLists(one, one, one.byte(), bounds, one[:0], bounds[:0].view(torch.uint64), 1)
    try:
        solve_on_device(lists, torch.ones(1), torch.ones(1), 0, False, False, IDEAL)
    except Exception as error:  # of as many kinds as there are ways in which a toolkit may be broken
        logging.getLogger(__name__).debug("lists of %s make a round trip to the CPU: %s", device, error)
        return False
    return True


def start(kernel: Any, device: torch.device, lists: int, *given: Any) -> None:
    """Start a kernel behind what torch has to do. Each thread is a block: lists go different ways, and need not wait."""
    if device.type == "cpu":
        kernel[lists, 1](*map(_view, given))
        return
    blocks = max(lists, _FEWEST_BLOCKS)
    with torch.cuda.device(device):
        stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
        kernel[blocks, 1, stream](*map(_view, given))


def _view(value: Any) -> Any:
    """What numba takes for a tensor, or for those of a tuple."""
    if isinstance(value, tuple):
        views = map(_view, value)
        return type(value)(*views) if hasattr(value, "_fields") else tuple(views)
    if not isinstance(value, Tensor):
        return value
    return value.numpy() if value.device.type == "cpu" else cuda.as_cuda_array(value, sync=False)


def rank_lists(lists: DeviceLists, decay: Tensor, weights: Tensor, *kind: Any) -> RankLists:
    """What the kernels read."""
    tables = [torch.from_numpy(discount_table(each, lists.longest)) for each in (decay, weights)]
    c, a = (each.to(lists.scores.device, non_blocking=True) for each in tables)
    arrays = (lists.scores, lists.labels, lists.groups, lists.where, lists.offsets, lists.chosen)
    return RankLists(*arrays, c, a, int(tables[1].count_nonzero()), *kind)


def empty_results(lists: DeviceLists) -> Answer:
    """Task loss and hinge `[lists]`, to be filled, and direction `[documents]`, 0."""
    count = lists.offsets.shape[0] - 1
    return lists.scores.new_empty(count), lists.scores.new_empty(count), torch.zeros_like(lists.scores)


def solve_on_device(lists: DeviceLists, *given: Any) -> Answer:
    """Task loss and hinge `[lists]`, and direction `[documents]`; `given` as `oracles.positional.rank_oracle` says."""
    device, documents, count = lists.scores.device, lists.scores.shape[0], lists.offsets.shape[0] - 1
    read, results = rank_lists(lists, *given[:-1]), empty_results(lists)
    cut = 0 if read.reciprocal else min(read.cutoff, lists.longest)
    start(_solve_lists, device, count, read, _allocate(documents, count, cut, device), given[-1], results)
    return results


def _allocate(documents: int, lists: int, cut: int, device: torch.device) -> Scratch:
    """Scratch for so many documents in so many lists, of whose ranks the first `cut` are looked at."""
    positions, cut = (lists * cut, cut) if lists * cut < documents else (documents, 0)
    columns = documents + lists * COUNTED_CLASSES
    most = max(2, min(_MOST_CLASSES, isqrt(_MOST_NUMBERS // max(positions, 1))))

    def empty(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    return Scratch(
        empty(14, columns),
        empty(2, columns, dtype=torch.uint64),
        empty(12, columns, dtype=torch.float64),
        empty(6, lists),
        empty(lists, dtype=torch.float64),
        empty(lists, 256, dtype=torch.uint64),
        empty(lists, 9, most),
        empty(lists, most, most),
        empty(positions, most),
        empty(positions, most),
        empty(positions, most, most),
        empty(2 * positions + 2 * lists, 3),
        cut,
    )
