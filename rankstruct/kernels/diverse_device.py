"""Most violated diverse rankings on a CUDA device: `diverse_cpu`'s own functions, a list a thread, as in `positional_device`."""

from __future__ import annotations

from typing import Any

import numba.cuda
import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels.compilation import compile_kernel
from rankstruct.kernels.dispatch import Answer, DeviceLists
from rankstruct.kernels.diverse_cpu import INTEGERS, REALS, Space, solve_list
from rankstruct.kernels.group_assignment_cpu import kept_rows
from rankstruct.kernels.positional_device import empty_results, rank_lists, start

cuda: Any = numba.cuda


@compile_kernel
def solve_part(lists, scratch, index, reference, results):
    """One list, in its columns of the scratch of all; NaN where a number is not finite or a gain is below 0."""
    task_loss, value, direction = results
    first, last = lists.offsets[index], lists.offsets[index + 1]
    rows = scratch.table.shape[0] // scratch.reals.shape[1]
    integers, reals = scratch.integers[:, first:last], scratch.reals[:, first:last]
    keys, histograms = scratch.sort
    sort = keys[:, first:last], integers[INTEGERS:], histograms[index]
    space = Space(integers, reals, scratch.table[rows * first : rows * last], sort)
    if solve_list(lists, index, reference, task_loss, value, direction, space) != -1:
        task_loss[index] = value[index] = np.nan


@cuda.jit
def _solve_lists(lists, scratch, reference, results):
    index = cuda.grid(1)
    if index < lists.offsets.shape[0] - 1:
        solve_part(lists, scratch, index, reference, results)


def solve_on_device(lists: DeviceLists, *given: Any) -> Answer:
    """Task loss and hinge `[lists]`, and direction `[documents]`; `given` as `oracles.positional.rank_oracle` says."""
    device, documents, count = lists.scores.device, lists.scores.shape[0], lists.offsets.shape[0] - 1
    read, results = rank_lists(lists, *given[:-1]), empty_results(lists)
    read = read._replace(chosen=read.chosen if read.chosen.numel() else read.scores)

    def empty(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    scratch = Space(
        empty(INTEGERS + 2, documents, dtype=torch.int64),
        empty(REALS, documents),
        empty(kept_rows(read.cutoff, lists.longest, documents) * documents),
        (empty(2, documents, dtype=torch.uint64), empty(count, 256, dtype=torch.uint64)),
    )
    start(_solve_lists, device, count, read, scratch, given[-1], results)
    return results
