"""How every compiled CPU loop of the project is compiled."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _cache_folder() -> str:
    """A folder of its own for this state of the package's sources.

    numba keeps a compiled loop until its own file changes; but loops call loops of other files, which are compiled into
    them. So the folder's name is a digest of all sources that compile something.
    """
    package = Path(__file__).parents[1]
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted([*package.glob("kernels/*.py"), *package.glob("data/*.py")]):
        code = source.read_bytes()
        digest.update(code if b"compile_" in code else b"")
    folder = os.environ.get("NUMBA_CACHE_DIR")
    if folder is None:
        caches = os.environ.get("XDG_CACHE_HOME", "~/.cache")
        # os.path leaves the ~ of a user without a home as it is, where pathlib raises.
        folder = os.path.expanduser(os.path.join(os.environ.get("RANKSTRUCT_CACHE", f"{caches}/rankstruct"), "kernels"))
    return os.path.join(folder, digest.hexdigest())


_FOLDER = _cache_folder()


@contextmanager
def _caching_in(folder: str) -> Iterator[None]:
    # numba looks where to keep its cache when a function is decorated.
    settings: Any = numba.config
    before, settings.CACHE_DIR = settings.CACHE_DIR, folder
    try:
        yield
    finally:
        settings.CACHE_DIR = before


def compile_kernel(function: _Function, **options: Any) -> _Function:
    """Compile at first call, without the GIL, cached on disk; where no cache can be written, in memory alone.

    The cache is in `NUMBA_CACHE_DIR`, or `kernels` in `RANKSTRUCT_CACHE` or the user's cache folder; where that cannot be
    written to, numba looks for another place.
    """
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        with _caching_in(_FOLDER):
            return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # "cannot cache function: no locator available"
        return numba.njit(**options)(function)


def compile_part(function: _Function) -> _Function:
    """`compile_kernel` for what only other kernels call: without the wrappers for Python, which take long to compile."""
    return compile_kernel(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)
