"""Files that are whole or not there at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def whole_file(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file for writing beside `path`; on leaving, flush it to the disk and rename it to `path`.

    A process that is killed, or an error inside the block, leaves what was at `path` before.

    Args:
        path: the file; its folder is made if it is not there.
        mode: `"w"` for text (UTF-8) or `"wb"`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(f"{folder}/a.txt") as file:
    ...         _ = file.write("hello")
    ...     Path(folder, "a.txt").read_text()
    'hello'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with open(partial, mode.replace("w", "x"), encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file as `whole_file` does."""
    with whole_file(path) as file:
        file.write(text)


def add_to_digest(digest: Any, path: str | os.PathLike[str]) -> int:
    """Update a digest of `hashlib` with all bytes of a file, a block at a time; returns how many they are."""
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
        return file.tell()
