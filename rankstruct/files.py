"""Files that are whole or not there at all."""

from __future__ import annotations

import json
import os
import platform
import secrets
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from rankstruct._version import __version__


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
        with naming(path):
            with open(partial, mode.replace("w", "x"), encoding=None if "b" in mode else "utf-8") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let an OSError of the block name a file or folder, if it names none, as that of a write to a full disk."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        found = (
            error.__context__ if isinstance(error, RuntimeError) else error
        )  # torch.save answers it with one of its own
        if not isinstance(found, OSError):
            raise
        if found.errno is not None and found.filename is None:
            found.filename = str(path)
        raise found from None


def check_room(folder: str | os.PathLike[str], size: int) -> None:
    """Raise OSError where the disk of a folder has less room than what is to be written there, before it is made."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise OSError(
            f"{folder}: expected room for {size / 1e6:.1f} MB on its disk, got {free / 1e6:.1f} MB; make room, or take another"
        )


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file as `whole_file` does."""
    with whole_file(path) as file:
        file.write(text)


def versions() -> dict[str, str]:
    """The versions that a result depends on, by name."""
    found = {"rankstruct": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "scipy", "scikit-learn", "lightgbm", "catboost"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def write_result(
    path: str | os.PathLike[str],
    command: Sequence[str],
    tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[object]]]],
    **found: Any,
) -> None:
    """Write what a command found, as JSON: `date`, `versions`, `command`, `tables`, and what else is given by name.

    The documentation's tables of results are written from such files by `scripts/write_results.py`.

    Args:
        path: the file.
        command: the words that were typed, the program first.
        tables: header and rows by name.
        found: the rest, such as values that the tables round.
    """
    shown = {
        name: {"header": list(header), "rows": [list(row) for row in rows]} for name, (header, rows) in tables.items()
    }
    made = {"date": str(date.today()), "versions": versions(), "command": shlex.join(command)}
    write_text(path, json.dumps(made | {"tables": shown} | found, indent=2))


def add_to_digest(digest: Any, path: str | os.PathLike[str]) -> int:
    """Update a digest of `hashlib` with all bytes of a file, a block at a time; returns how many they are."""
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
        return file.tell()
