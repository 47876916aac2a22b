"""The compiled loops on CUDA devices: the same C++, compiled at run time by NVRTC through NVIDIA's cuda-core, one block per
list.

Lists are sorted by torch. Nothing is read back, so no step waits for the device: a list with an invalid number has the value NaN,
and the scratch is bounded by sizes known on the host.
"""

from __future__ import annotations

import ctypes
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels import core
from rankstruct.kernels.call import LABELS, SCORES, Answer, Call
from rankstruct.lists import Lists, list_of_each, longest_list

_MOST_SCRATCH = 2**30  # bytes
_FEWEST_BLOCKS = 256  # at least, if there are as many lists; fewer leave a device idle


def source(loop: core.Loop, single: bool) -> str:
    """The C++ of a loop, for scores in single or double precision."""
    return f"""#include "cuda.hpp"
using namespace rankstruct;
extern "C" __global__ void solve(Batch batch, {loop.kind} loop, Scratch scratch) {{
    solve_block<{"float" if single else "double"}>(batch, loop, scratch, blockIdx.x, gridDim.x);
}}
"""


@cache
def compile_loop(loop: core.Loop, single: bool, arch: str) -> Any:
    """The `ObjectCode` of a loop for an architecture such as `sm_90`; as on the CPU, without fused multiply-adds.

    This takes seconds; the result is in cuda-core's program cache.
    """
    from cuda.core import ObjectCode, Program, ProgramOptions
    from cuda.core.utils import FileStreamProgramCache, make_program_cache_key

    code, folder, target = source(loop, single), Path(__file__).parent, "cubin"
    options = ProgramOptions(
        std="c++20",
        arch=arch,
        include_path=str(folder),
        fma=False,
        device_as_default_execution_space=True,  # NVRTC 13.0 takes some lambdas in device functions for host functions
        diag_suppress=554,
    )
    headers = sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.hpp")))).digest()
    key = make_program_cache_key(code=code, code_type="c++", options=options, target_type=target, extra_digest=headers)
    program = None
    with suppress(OSError), FileStreamProgramCache() as kept:  # the cache may not be writable
        program = kept.get(key)
        if program is None:
            kept[key] = program = bytes(Program(code, "c++", options).compile(target).code)
    return Program(code, "c++", options).compile(target) if program is None else ObjectCode.from_cubin(program)


@cache
def reaches(device: torch.device) -> bool:
    """Whether loops can be compiled for the device and start there; `logging` at level DEBUG says why not."""
    one, loop = torch.zeros(1, 1, device=device), core.pairwise_auc
    try:
        solve(one, Lists(one), -math.inf, lambda longest: Call(loop, loop.options(0)), ())
    except Exception as error:  # a broken toolkit raises errors of many kinds
        logging.getLogger(__name__).debug("%s does without compiled loops: %s", device, error)
        return False
    return True


def start(device: torch.device, blocks: int, loop: core.Loop, batch: core.Batch, *rest: ctypes.Structure) -> None:
    """Launch a loop in torch's current stream; `rest` are its options and the scratch."""
    from cuda.bindings import driver
    from cuda.core import Device

    with torch.cuda.device(device):
        there = Device(torch.cuda.current_device())
        there.set_current()
        kernel = compile_loop(loop, batch.score_type == 0, f"sm_{there.arch}").get_kernel("solve")
        parameters = (batch, *rest)  # by value, which cuda-core's own launch does not support
        addresses = (ctypes.c_void_p * len(parameters))(*map(ctypes.addressof, parameters))
        grid, block, shared = (blocks, 1, 1), (1, 1, 1), 0
        stream = torch.cuda.current_stream().cuda_stream
        (error,) = driver.cuLaunchKernel(
            int(kernel.handle), *grid, *block, shared, stream, ctypes.addressof(addresses), 0
        )
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"a loop did not start on {device}: {error}")


def solve(
    scores: Tensor, lists: Lists, least_label: float, compiled: Callable[..., Call], options: Sequence[Any]
) -> Answer | None:
    """The results for tensors of one device, with offsets there or on the CPU; None if it would need too much scratch.

    Task loss and value are NaN for lists with an invalid number or a label below `least_label`, and for all lists if offsets on
    the device are out of order.
    """
    labels, where, offsets, reference_scores, groups, item_weights, *_ = lists
    shape, device = scores.shape, scores.device
    scores = (scores if scores.dtype in SCORES else scores.float()).contiguous()
    labels = (labels if labels.dtype in LABELS else labels.double()).contiguous()
    where = None if where is None else where.contiguous()
    reference_scores = None if reference_scores is None else reference_scores.double().contiguous()
    groups = None if groups is None else groups.long().contiguous()
    item_weights = None if item_weights is None else item_weights.double().contiguous()
    documents, in_order = scores.numel(), None
    many: tuple[int, ...]
    if offsets is None:
        many, longest = shape[:-1], shape[-1]
    else:
        many, longest = (offsets.shape[0] - 1,), documents
        if is_known(offsets):
            longest = longest_list(offsets, documents)
            offsets = offsets.long().to(device, non_blocking=True)
        else:
            in_order = (offsets[0] == 0) & (offsets[-1] == documents) & (offsets.diff() >= 0).all()
            offsets = torch.where(in_order, offsets, 0).long()
    task_loss, value, direction = scores.new_zeros(many), scores.new_zeros(many), torch.zeros_like(scores)
    if documents and value.numel():
        call = compiled(longest, *options)
        order = _order(scores, where, offsets)
        *known, count = call.threshold_tables() or (None, None, 0)
        thresholds = [None if table is None else _there(table, device) for table in known]
        given = scores, labels, where, offsets, reference_scores, groups, None, *thresholds, item_weights
        kept = *given, task_loss, value, direction
        batch = core.Batch(
            *(None if each is None else each.data_ptr() for each in kept),
            *(value.numel(), longest if offsets is None else 0, 0, count),
            *(call.min_relevant, least_label, SCORES[scores.dtype], LABELS[labels.dtype]),
        )
        batch.order = order.data_ptr()
        room = _room(call, batch, longest, documents)
        if room is None:
            return None
        scratch, blocks, size = room
        memory = torch.empty(size, dtype=torch.uint8, device=device)
        scratch.memory = memory.data_ptr()
        tables: list[Tensor] = []

        def address(table: np.ndarray) -> int:
            tables.append(_table(np.asarray(table, np.float64).tobytes(), device))
            return tables[-1].data_ptr()

        start(device, blocks, call.loop, batch, call.loop.elsewhere(call.options, address), scratch)
    if in_order is not None:
        task_loss, value = (torch.where(in_order, each, math.nan) for each in (task_loss, value))
    return task_loss, value, direction.view(shape)


def is_known(offsets: Tensor) -> bool:
    """Whether offsets can be read without waiting for a device; tests override this."""
    return offsets.device.type == "cpu"


def _order(scores: Tensor, where: Tensor | None, offsets: Tensor | None) -> Tensor:
    """The positions of each list's documents, int32: real documents by descending score, ties in input order, then padding."""
    keys = (scores if where is None else torch.where(where, scores, -math.inf)) + 0.0  # -0.0 is 0.0
    order = keys.sort(dim=-1, descending=True, stable=True).indices
    if offsets is not None:
        its_list = list_of_each(offsets, len(keys))
        order = order[its_list[order].sort(stable=True).indices]
        order = order - offsets[its_list[order]]
    return order.int().contiguous()


def _room(call: Call, batch: core.Batch, longest: int, documents: int) -> tuple[core.Scratch, int, int] | None:
    """The layout of the scratch, the number of blocks, and its bytes; None if that is too much."""
    scratch = call.loop.scratch(batch, longest, call.options)
    blocks = batch.lists if batch.offsets else min(batch.lists, _MOST_SCRATCH // scratch.fixed)
    size = blocks * scratch.fixed + documents * scratch.per_document
    enough = blocks >= min(batch.lists, _FEWEST_BLOCKS) and size <= _MOST_SCRATCH
    return (scratch, blocks, size) if enough else None


def _there(values: Tensor, device: torch.device) -> Tensor:
    """A float64 table on the device; a table on the CPU is cached there, and copied once."""
    if values.device.type == "cpu":
        return _table(values.detach().double().numpy().tobytes(), device)
    return values.to(device, torch.float64).contiguous()


@lru_cache(maxsize=64)
def _table(values: bytes, device: torch.device) -> Tensor:
    # Wait for the copy, since any stream may read it.
    return torch.from_numpy(np.frombuffer(values).copy()).to(device)
