"""What CUDA devices do, on the CPU: the same functions of cuda.hpp, compiled for the host, one block after another."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rankstruct.kernels import core, cuda, dispatch

LOOPS = [value for value in vars(core).values() if isinstance(value, core.Loop)]
COMPILER = shutil.which("c++")

_LOOP = """
extern "C" void {name}(Index blocks, const Batch& batch, const {kind}& loop, const Scratch& scratch) {{
    for (Index block = 0; block < blocks; ++block)
        if (batch.score_type == FLOAT32)
            solve_block<float>(batch, loop, scratch, block, blocks);
        else
            solve_block<double>(batch, loop, scratch, block, blocks);
}}
"""


def build(folder: Path, *flags: str) -> ctypes.CDLL:
    """The emulation of all loops, built in a folder."""
    code = '#include "cuda.hpp"\nusing namespace rankstruct;\n'
    code += "".join(_LOOP.format(name=loop.name, kind=loop.kind) for loop in LOOPS)
    (folder / "emulation.cpp").write_text(code)
    headers = Path(cuda.__file__).parent
    options = ["-std=c++20", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-I", str(headers), *flags]
    command = [str(COMPILER), *options, str(folder / "emulation.cpp"), "-o", str(folder / "emulation.so")]
    subprocess.run(command, check=True, timeout=600)
    return ctypes.CDLL(str(folder / "emulation.so"))


def emulate(library: ctypes.CDLL, replace: Callable[[Any, str, Any], None] = setattr) -> list[str]:
    """Send tensors of the CPU where those of CUDA devices go; returns the loops that are called from then on."""
    called: list[str] = []

    def start(device: torch.device, blocks: int, loop: core.Loop, *given: ctypes.Structure) -> None:
        called.append(loop.name)
        library[loop.name](ctypes.c_longlong(blocks), *map(ctypes.byref, given))

    replace(dispatch, "has_loops", lambda device: False)
    replace(dispatch, "has_kernels", lambda device: True)
    replace(cuda, "start", start)
    return called
