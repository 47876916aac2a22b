"""How every compiled CPU loop of the project is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compile_kernel(function: _Function) -> _Function:
    """Compile at first call, without the GIL, cached on disk; where no cache can be written, in memory alone.

    numba keeps the cache beside the module, or in the user's cache folder, or in `NUMBA_CACHE_DIR`; when it can write to none
    of them it refuses, and each process compiles for itself.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # "cannot cache function: no locator available"
        return numba.njit(**options)(function)
