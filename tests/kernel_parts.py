"""Parts of the compiled core that no public function reaches alone, in C++ of the tests that is built against its headers."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rankstruct.kernels import core

COMPILER = shutil.which("c++")
HEADERS = Path(core.__file__).parent
SOURCES = Path(__file__).parent / "kernels"
KERNELS_CPP = (HEADERS / "kernels.cpp").read_text()
#: The lines that export a loop, by its name, and the kernel of each in C++.
EXPORTS = {line[5:].split(",")[0]: line for line in re.findall(r"^LOOP\([^)]*\)", KERNELS_CPP, re.MULTILINE)}
KERNELS = {name: line.split(", ")[1] for name, line in EXPORTS.items()}


def build(source: Path, library: Path, *flags: str, headers: Path = HEADERS) -> Path:
    """Compile a file to a shared library that stops at an index outside, private members within reach."""
    fixed = ["-std=c++20", "-ffp-contract=off", "-fno-access-control", "-DRANKSTRUCT_CHECKED", "-fPIC", "-shared"]
    command = [str(COMPILER), *fixed, *flags, "-I", str(headers), "-I", str(SOURCES), str(source), "-o", str(library)]
    subprocess.run(command, check=True, timeout=600)
    return library


class _Span(ctypes.Structure):
    """`Span` of base.hpp."""

    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_longlong)]


class Parts:
    """The functions of a library that take spans and numbers and return a whole number; arrays go as spans, and are filled."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = self._library[name]
        function.restype = ctypes.c_longlong
        return lambda *given: function(*map(_argument, given))


def _argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        span = _Span(value.ctypes.data, value.size)
        span.array = value  # as long as its address
        return span
    return ctypes.c_double(value) if isinstance(value, float) else ctypes.c_longlong(int(value))
