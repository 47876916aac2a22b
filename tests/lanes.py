"""Triton's language in NumPy, for the kernels of `rankstruct.kernels.gpu`: 20 times as fast as Triton's interpreter, and strict.

What an interpreter does not see is an error here: an access out of bounds, one without a barrier since another lane wrote or read
the number, and one to what another program wrote.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch

from rankstruct.kernels import dispatch


class Memory:
    """The numbers of a tensor, and in which epoch, between two barriers, and by which lane each was written or read."""

    def __init__(self, tensor: torch.Tensor) -> None:
        tensor = tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor
        tensor = tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
        self.numbers = tensor.numpy().reshape(-1)
        self.written, self.read, self.program = (np.zeros(self.numbers.shape, np.int64) for _ in range(3))
        self.writer, self.reader = (np.full(self.numbers.shape, -1, np.int64) for _ in range(2))


class Pointer:
    def __init__(self, memory: Memory, offset: Any = 0) -> None:
        self.memory, self.offset = memory, np.asarray(offset, np.int64)[()]

    def __add__(self, by: Any) -> Pointer:
        return Pointer(self.memory, self.offset + by)

    def __sub__(self, by: Any) -> Pointer:
        return Pointer(self.memory, self.offset - by)

    def at(self, mask: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Indices of the numbers, their lanes, and which lanes take part."""
        offset, mask = np.asarray(self.offset), np.asarray(True if mask is None else mask)
        if offset.shape != mask.shape:
            offset, mask = np.broadcast_arrays(offset, mask)
        index = offset[mask]
        assert not index.size or (index.min() >= 0 and index.max() < self.memory.numbers.size), "out of bounds"
        lanes = np.arange(mask.size).reshape(mask.shape)[mask] if mask.ndim else np.full(index.shape, -1)
        return index, lanes, mask


class Lanes:
    """The epoch and the program that runs; `checks` can be turned off."""

    epoch, program, checks = 1, 0, True


def load(pointer: Pointer, mask: Any = None, other: Any = None) -> Any:
    if not Lanes.checks and pointer.memory.numbers.size:
        values = pointer.memory.numbers.take(pointer.offset, mode="clip")
        return values if mask is None else np.where(mask, values, 0 if other is None else other)[()]
    memory, (index, lanes, mask) = pointer.memory, pointer.at(mask)
    if Lanes.checks:
        assert not (memory.written[index] == Lanes.epoch).any(), "read without a barrier after it was written"
        assert np.isin(memory.program[index], (0, Lanes.program)).all(), "read what another program wrote"
        first, lanes = (
            memory.read[index] != Lanes.epoch,
            lanes - (lanes < 0),
        )  # a scalar is read by all lanes, and written by one
        memory.reader[index] = np.where(first | (memory.reader[index] == lanes), lanes, -2)
        memory.read[index] = Lanes.epoch
    values = np.full(mask.shape, 0 if other is None else other, memory.numbers.dtype)
    values[mask] = memory.numbers[index]
    return values if values.ndim else values[()]


def store(pointer: Pointer, value: Any, mask: Any = None) -> None:
    value = np.asarray(value)
    if value.ndim and not np.ndim(pointer.offset):
        pointer = Pointer(pointer.memory, np.broadcast_to(pointer.offset, value.shape))
    if not Lanes.checks and np.shape(mask) == np.shape(pointer.offset):
        pointer.memory.numbers[pointer.offset[mask]] = value if value.ndim == 0 else value[mask]
        return
    memory, (index, lanes, mask) = pointer.memory, pointer.at(mask)
    if Lanes.checks:
        assert len(np.unique(index)) == len(index), "two lanes write one number"
        again = memory.written[index] == Lanes.epoch
        assert not (again & (memory.writer[index] != lanes)).any(), "written twice without a barrier"
        known = memory.read[index] == Lanes.epoch
        assert not (known & (memory.reader[index] != lanes)).any(), (
            "written without a barrier after another lane read it"
        )
        assert np.isin(memory.program[index], (0, Lanes.program)).all(), "written by two programs"
        memory.written[index], memory.writer[index], memory.program[index] = Lanes.epoch, lanes, Lanes.program
    memory.numbers[index] = np.broadcast_to(value, mask.shape)[mask]


def debug_barrier() -> None:
    Lanes.epoch += 1


class Kernel:
    def __init__(self, function: Any) -> None:
        self.function, self.__name__ = function, function.__name__

    def __call__(self, *given: Any) -> Any:
        return self.function(*given)

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(
            *given: Any, num_warps: int = 4, enable_fp_fusion: bool = True, maxnreg: int = 255, **constants: Any
        ) -> None:
            known = [Pointer(Memory(each)) if isinstance(each, torch.Tensor) else each for each in given]
            with np.errstate(all="ignore"):
                for program in np.random.default_rng(0).permutation(grid[0]):  # in any order
                    Lanes.program, Lanes.at = int(program) + 1, np.int64(program)
                    debug_barrier()
                    self.function(*known, **constants)

        return launch


class Constant(int):
    @property
    def value(self) -> int:
        return int(self)


def constant(value: Any) -> Any:
    return Constant(value) if isinstance(value, int) else value


def scan(values: Any, axis: int, combine: Any) -> Any:
    if isinstance(values, tuple):
        step = 1
        while step < len(values[0]):
            more = combine(*(each[:-step] for each in values), *(each[step:] for each in values))
            values = tuple(np.append(each[:step], rest) for each, rest in zip(values, more, strict=True))
            step *= 2
        return values
    assert combine(1, 2) == 2, "only the maximum"
    return np.maximum.accumulate(values, axis)


def language() -> ModuleType:
    """A stand-in for `triton.language`."""
    made = ModuleType("triton.language")
    for name in ("int32", "int64", "float32", "float64"):
        setattr(made, name, getattr(np, name))
    made.erf, made.gather = np.vectorize(math.erf, otypes=[float]), np.take_along_axis
    made.constexpr = constant
    made.load, made.store, made.debug_barrier = load, store, debug_barrier
    made.program_id = lambda axis: Lanes.at
    made.arange = lambda first, last: np.arange(first, last, dtype=np.int32)
    made.cast = lambda value, dtype: np.asarray(value).astype(dtype)[()]
    made.full = lambda shape, value, dtype: np.full(shape, value, dtype)[()]
    made.zeros_like = lambda value: np.zeros_like(value)[()]
    made.associative_scan = scan
    made.cumsum = lambda values, axis: np.cumsum(values, axis, dtype=values.dtype)
    for name in ("where", "minimum", "maximum", "abs", "ceil", "min", "exp", "log", "sqrt", "expand_dims"):
        setattr(made, name, getattr(np, name))
    made.static_range = range
    made.sum = lambda values, axis, keep_dims=False: np.sum(values, axis, dtype=values.dtype, keepdims=keep_dims)
    made.max = lambda values, axis, keep_dims=False: np.max(values, axis, keepdims=keep_dims)
    return made


@contextmanager
def imported_anew(stand_in: ModuleType | None = None) -> Iterator[ModuleType]:
    """`rankstruct.kernels.gpu` as it is imported now, with Triton or what stands in for it."""
    mine = ("rankstruct.kernels.gpu", *(("triton",) if stand_in else ()))

    def take() -> dict[str, ModuleType]:
        names = [name for name in sys.modules if name in mine or name.startswith(tuple(f"{each}." for each in mine))]
        return {name: sys.modules.pop(name) for name in names}

    kept = take()
    if stand_in:
        sys.modules.update({"triton": stand_in, "triton.language": stand_in.language})
    try:
        yield importlib.import_module("rankstruct.kernels.gpu")
    finally:
        take()
        sys.modules.update(kept)


@cache
def kernels() -> ModuleType:
    """The kernels in NumPy."""
    triton = ModuleType("triton")
    triton.jit = lambda function=None, **options: Kernel(function) if function else Kernel
    triton.language, triton.cdiv = language(), lambda a, b: -(-a // b)
    with imported_anew(triton) as made:
        return made


def use(patch: Any, made: ModuleType | None = None) -> None:
    """Until `patch`, a `pytest.MonkeyPatch`, ends, tensors of the CPU go where those of CUDA devices go, to these kernels."""
    patch.setattr(dispatch, "has_loops", lambda device: False)
    patch.setattr(dispatch, "kernels_of", lambda device: made or kernels())


@contextmanager
def use_triton(patch: Any) -> Iterator[None]:
    """As `use`, with the kernels as Triton compiles or interprets them."""
    with imported_anew() as made, np.errstate(all="ignore"):
        use(patch, made)
        yield


#: The names of dtypes in Triton's signatures.
DTYPES = {torch.float64: "*fp64", torch.float32: "*fp32", torch.int64: "*i64", torch.int32: "*i32", torch.bool: "*i1"}
SM_80, SM_90, GFX942 = ("cuda", 80, 32), ("cuda", 90, 32), ("hip", "gfx942", 64)


@contextmanager
def compiled_ahead(target: tuple[Any, ...], patch: Any, capfd: Any) -> Iterator[list[tuple[int, ...]]]:
    """What tensors of the CPU would launch is compiled for a target and not run; gives the registers of each kernel."""
    from triton import knobs

    used: list[tuple[int, ...]] = []
    patch.setattr(knobs.nvidia, "dump_ptxas_log", True)
    patch.setattr(knobs.compilation, "always_compile", True)  # for the log
    with compiled_for(target, patch, lambda binary: used.append(registers(binary, target, capfd.readouterr().out))):
        yield used


@contextmanager
def compiled_for(target: tuple[Any, ...], patch: Any, take: Callable[[Any], None]) -> Iterator[None]:
    """As `compiled_ahead`; `take` is called with each program."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    def run(kernel: Any, *given: Any, grid: Any, warmup: bool, **options: Any) -> None:
        constants = {name: options.pop(name) for name in kernel.arg_names[len(given) :]}
        values = [*given, *constants.values()]
        fixed = [each is None or parameter.is_constexpr for each, parameter in zip(values, kernel.params, strict=True)]
        kinds = {
            name: "constexpr" if known else DTYPES[each.dtype] if isinstance(each, torch.Tensor) else "i32"
            for name, each, known in zip(kernel.arg_names, values, fixed, strict=True)
        }
        constant = {(at,): each for at, (each, known) in enumerate(zip(values, fixed, strict=True)) if known}
        if target[0] == "hip":
            del options["maxnreg"]
        take(compile(ASTSource(kernel, kinds, constant), target=GPUTarget(*target), options=options))

    with launched_by(run, patch):
        yield


@contextmanager
def launched_by(run: Any, patch: Any) -> Iterator[None]:
    """As `use_triton`, with `run` in place of a launch."""
    from triton.runtime.jit import JITFunction

    patch.delenv("TRITON_INTERPRET", raising=False)
    with use_triton(patch):
        patch.setattr(JITFunction, "run", run)
        patch.setattr(torch, "empty_like", torch.zeros_like)  # no kernel writes a result
        yield


@contextmanager
def programs(patch: Any) -> Iterator[dict[str, set[str]]]:
    """What tensors of the CPU would launch is not run; gives what each kernel would be compiled for, by Triton's own keys."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    found: dict[str, set[str]] = {}

    def run(kernel: Any, *given: Any, grid: Any, warmup: bool, **options: Any) -> None:
        bind = create_function_from_signature(kernel.signature, kernel.params, make_backend(GPUTarget(*SM_90)))
        found.setdefault(kernel.__name__, set()).add(str(bind(*given, **options)[1:]))

    with launched_by(run, patch):
        yield found


def registers(binary: Any, target: tuple[Any, ...], log: str) -> tuple[int, ...]:
    """The registers of a thread, and the bytes or registers that are spilled."""
    if target[0] == "hip":
        patterns, log = (r"\.vgpr_count:\s+(\d+)", r"\.vgpr_spill_count:\s+(\d+)"), binary.asm["amdgcn"]
    else:
        patterns = r"Used (\d+) registers", r"(\d+) bytes spill stores"
    return tuple(int(found[1]) for found in (re.search(pattern, log) for pattern in patterns) if found)
