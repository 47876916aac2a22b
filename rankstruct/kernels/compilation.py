"""How every compiled CPU loop of the project is compiled, and kept on disk.

A file of the cache ends in a digest of what stands before it, and says what it was compiled for. One that was cut short,
damaged or written for something else counts as absent: the loop is compiled again and the file replaced, whole, by a rename. So
any number of processes may share a folder, and each may be killed, or find the disk full, at any time.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile

from rankstruct.progress import shows_bars

_Function = TypeVar("_Function", bound=Callable[..., Any])

# An index that was read from an array: numba looks whether a signed one counts from the end, which takes as long as the access.
unsigned = np.uint64


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


_DIGEST_BYTES = 16


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


class _SoundFiles(IndexDataCacheFile):
    """numba's index and data files, with a digest at the end of each, which pickle does not read."""

    def save(self, key: Any, data: Any) -> None:
        """Keep `data`, and the `key` beside it."""
        super().save(key, (key, data))

    def load(self, key: Any) -> Any:
        """What was saved for `key`, or None."""
        # Two processes that save at the same time may give one name to the data of two keys.
        found = super().load(key)
        return found[1] if found is not None and found[0] == key else None

    def _load_index(self) -> dict[Any, str]:
        return super()._load_index() if self._is_whole(self._index_path) else {}

    def _load_data(self, name: str) -> Any:
        return super()._load_data(name) if self._is_whole(self._data_path(name)) else None

    @staticmethod
    def _is_whole(path: str) -> bool:
        try:
            content = Path(path).read_bytes()
        except OSError:
            return False
        return content[-_DIGEST_BYTES:] == _digest(content[:-_DIGEST_BYTES])

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        content = io.BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(content.getvalue() + _digest(content.getvalue()))


class _SoundCache(FunctionCache):
    """numba's cache of one function, on sound files."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        impl = self._impl
        self._cache_file = _SoundFiles(self._cache_path, impl.filename_base, impl.locator.get_source_stamp())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was compiled before, or None: then a terminal is told what it waits for."""
        found = super().load_overload(sig, target_context)
        if found is None:
            _tell_of_compilation()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write what was compiled; where that cannot be, the process has it in memory."""
        with suppress(OSError):
            super().save_overload(sig, data)


NOTICE = "rankstruct compiles its loops for this machine, which takes some seconds the first time"
_told = False


def _tell_of_compilation() -> None:
    global _told
    if not _told and sys.stderr is not None and shows_bars():
        print(NOTICE, file=sys.stderr)
        _told = True


def compile_kernel(function: _Function, **options: Any) -> _Function:
    """Compile at first call, without the GIL, cached on disk; where no cache can be written, in memory alone.

    The cache is in `NUMBA_CACHE_DIR`, or `kernels` in `RANKSTRUCT_CACHE` or the user's cache folder; where that cannot be
    written to, numba looks for another place.
    """
    # What is not said is taken from the caller that is compiled at the time.
    options = {"nogil": True, "error_model": "numpy", "_nrt": True, **options}
    compiled = numba.njit(**options)(function)
    with suppress(RuntimeError), _caching_in(_FOLDER):  # "cannot cache function: no locator available"
        compiled._cache = _SoundCache(function)  # as numba's own `enable_caching` does
    return compiled


def compile_part(function: _Function, **options: Any) -> _Function:
    """`compile_kernel` for what only other kernels call: without the wrappers for Python, which take long to compile, and without
    the counts of references to arrays, which took a fifth of a hinge's time.

    So a part must allocate nothing, and may hand arrays back to parts alone, which count as little.
    """
    return compile_kernel(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False, **options)


def compile_vectorised(function: _Function) -> _Function:
    """`compile_part` for a loop over finite numbers, which vector instructions may take several at a time."""
    return compile_part(function, fastmath={"nnan", "nsz", "reassoc", "contract"})
