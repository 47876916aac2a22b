"""Atomic writes: a file is complete or absent."""

from __future__ import annotations

import glob
import json
import os
import platform
import re
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

#: The ends of temporary names, with the number of the process.
LEFT_BEHIND = re.compile(r"\.(\d{1,9})-[0-9a-f]+\.part$")


@contextmanager
def whole_file(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Write a file atomically: write to a temporary file next to `path`, flush it to disk, rename it to `path`.

    If the process is killed or the block raises, `path` is left unchanged.

    Args:
        path: the file; its folder is created if needed.
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
    partial = _temporary(path)
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
def folder_beside(path: Path) -> Iterator[Path]:
    """A hidden folder for what a file or folder is made of, which is gone after the block, as are those of killed processes."""
    hidden = path.with_name(f".{path.name}")
    remove_left_behind(hidden)
    made = _temporary(hidden)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """The place of a file or folder while this process writes it."""
    return path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")


def remove_left_behind(path: Path) -> None:
    """Remove what processes that were killed left of a file or folder while they wrote it."""
    for each in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
        if (process := LEFT_BEHIND.search(each.name)) and not _is_running(int(process[1])):
            shutil.rmtree(each, ignore_errors=True) if each.is_dir() else each.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's, or not a process number
        return True
    return True


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add a file or folder to an OSError of the block that has none, such as that of a write to a full disk."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        found = error.__context__ if isinstance(error, RuntimeError) else error  # torch.save replaces it by its own
        if not isinstance(found, OSError):
            raise
        if found.errno is not None and found.filename is None:
            found.filename = str(path)
        raise found from None


def check_room(folder: str | os.PathLike[str], size: int) -> None:
    """Raise OSError if the disk of a folder has less than `size` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise OSError(
            f"{folder}: expected {size / 1e6:.1f} MB of free disk space, got {free / 1e6:.1f} MB; free some, or use another disk"
        )


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically, see `whole_file`."""
    with whole_file(path) as file:
        file.write(text)


def newest_run(folder: str | os.PathLike[str]) -> Path:
    """The newest of the runs in a folder, whose names are their times; the folder itself if it is a run or has none.

    Raises:
        ValueError: the folder has the runs of a command that trains several, such as cross-validate, of which none is the newest.
    """
    path = Path(folder)
    runs = [] if (path / "config.yaml").is_file() else sorted(each.parent for each in path.glob("*/config.yaml"))
    run = runs[-1] if runs else path
    if several := sorted(each.parent for each in run.glob("*/request.json")):
        raise ValueError(
            f"{run} is not a run but has {len(several)}, of a command that trains several; give one of them, such as {several[0]}"
        )
    return run


def versions() -> dict[str, str]:
    """Versions of the packages that results depend on, by name."""
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
    """Write the results of a command as JSON: `date`, `versions`, `command`, `tables` and the keyword arguments.

    `scripts/write_results.py` writes the result tables of the documentation from such files.

    Args:
        path: the file.
        command: the command line, program first.
        tables: header and rows, by name.
        found: further entries, such as unrounded values.
    """
    shown = {
        name: {"header": list(header), "rows": [list(row) for row in rows]} for name, (header, rows) in tables.items()
    }
    made = {"date": str(date.today()), "versions": versions(), "command": shlex.join(command)}
    write_text(path, json.dumps(made | {"tables": shown} | found, indent=2))
