"""Resumable cells: what every long command is cut into.

A cell has a name, a request (plain data: all that its result depends on, a digest of the data files included) and the arguments
of the function that works on it in a process of its own. A folder of cells belongs to one process at a time. What is finished is
not run again; a result is kept as soon as it is there, whole or not at all; a cell that fails is named at the end, after the
others. Ctrl-C, and the death of this process by whatever means, end the workers at once.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from rankstruct.configs import load_json
from rankstruct.files import naming, write_text
from rankstruct.progress import Progress

__all__ = ["Cell", "CellFolders", "CellLines", "Cells", "CellsFailed", "Finished", "different_names", "locked"]


_MOST_PROCESSES = 10_000


class CellsFailed(ValueError):
    """Some cells failed; the others are kept."""


class Cell(NamedTuple):
    """One piece of work.

    Attributes:
        name: what it is called in messages, different for each; of `CellFolders` its folder.
        request: what the result depends on; a finished cell with another request is another cell.
        arguments: of the function that works on it.
    """

    name: str
    request: Any
    arguments: tuple[Any, ...]


class Finished(NamedTuple):
    """Results by the cells' names, and how many of them were there before."""

    results: dict[str, Any]
    reused: int


def different_names(configs: Sequence[str | Path]) -> list[str]:
    """The names of config files, which tell their results apart.

    Raises:
        ValueError: two have one name, or a file is absent.
    """
    for config in configs:
        if not Path(config).is_file():
            raise ValueError(f"there is no config {config}")
    names = [Path(config).stem for config in configs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"configs are told apart by their file names; there are several of {', '.join(twice)}")
    return names


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Hold a folder, which is made if need be, against other processes; the system lets go of it if this one dies.

    Raises:
        ValueError: another process holds it.
    """
    path = Path(folder) / ".lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows
            pass
        except OSError as error:
            raise ValueError(f"{folder}: another process is writing to it; wait, or choose another --output") from error
        yield


class Cells(ABC):
    """Finished cells in a folder, to be used as a context, which locks it and ends the workers.

    Args:
        folder: of everything.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._held = ExitStack()
        self._pools: dict[
            int, ProcessPoolExecutor
        ] = {}  # kept from one run to the next: a fresh interpreter takes seconds

    def __enter__(self) -> Any:
        self._held.enter_context(locked(self.folder))
        return self

    def __exit__(self, *error: object) -> None:
        self._pools.clear()
        self._held.__exit__(*error)  # type: ignore[arg-type]

    @abstractmethod
    def find(self, cell: Cell) -> Any:
        """The result of a finished cell, else None."""

    @abstractmethod
    def keep(self, cell: Cell, result: Any) -> None:
        """Keep a result; after a kill it is there whole or not at all."""

    def run(
        self,
        work: Callable[..., Any],
        cells: Sequence[Cell],
        *,
        processes: int = 1,
        what: str = "cells",
        unchanged: Callable[[Cell], bool] = lambda cell: True,
    ) -> Finished:
        """Run what is missing.

        Args:
            work: called with a cell's arguments, returns its result; a function of a module.
            cells: of different names.
            processes: cells at once, each in a fresh interpreter with one thread; 0 runs them here, one after another.
            what: title of the bar.
            unchanged: whether a cell's request is still true, such as its digest of the data; asked before a result is kept.

        Raises:
            CellsFailed: some failed, the message names them; the others are kept.
            KeyboardInterrupt: the message says what is kept.
        """
        if not cells:  # no bar
            return Finished({}, 0)
        found = {cell.name: self.find(cell) for cell in cells}
        missing = [cell for cell in cells if found[cell.name] is None]
        failed: dict[str, str] = {}
        with Progress(total=len(cells), initial=len(cells) - len(missing), desc=what, unit="cell") as bar:
            try:
                with closing(self._outcomes(work, missing, processes)) as outcomes:
                    for cell, outcome in outcomes:
                        if isinstance(outcome, BaseException):
                            failed[cell.name] = f"{type(outcome).__name__}: {outcome}"
                        elif not unchanged(cell):
                            failed[cell.name] = "its data changed while it ran"
                        else:
                            self.keep(cell, outcome)
                            found[cell.name] = outcome
                        bar.update()
            except KeyboardInterrupt:
                done = sum(result is not None for result in found.values())
                raise KeyboardInterrupt(
                    f"stopped; {done} of {len(cells)} cells are finished and kept in {self.folder}, the same command goes on"
                ) from None
        if failed:
            first = "; ".join(f"{name}: {error}" for name, error in list(failed.items())[:3])
            raise CellsFailed(
                f"{len(failed)} of {len(cells)} cells failed; the others are kept, and the same command runs what is "
                f"missing: {first}"
            )
        return Finished(found, len(cells) - len(missing))

    def _outcomes(
        self, work: Callable[..., Any], cells: Sequence[Cell], processes: int
    ) -> Generator[tuple[Cell, Any], None, None]:
        """Each cell with its result or its exception, in the order in which they end."""
        if processes == 0:
            for cell in cells:
                try:
                    with _stopped_for_good():
                        outcome = work(*cell.arguments)
                except Exception as error:
                    outcome = error
                yield cell, outcome
            return
        if not 1 <= processes <= _MOST_PROCESSES:
            raise ValueError(f"processes must be at least 1 and at most {_MOST_PROCESSES}, got {processes}")
        if not cells:
            return
        if processes not in self._pools:
            self._pools[processes] = self._held.enter_context(_workers(processes))
        with _deaf():
            jobs = {self._pools[processes].submit(work, *cell.arguments): cell for cell in cells}
        for job in as_completed(jobs):
            yield jobs[job], job.exception() or job.result()


class CellFolders(Cells):
    """A folder a cell: `request.json`, what the work writes beside it, and at last `result.json`."""

    def find(self, cell: Cell) -> Any:
        """See `Cells.find`.

        Raises:
            ValueError: the folder holds the cell of another request. What an older request does not name counts as the same, and
                a folder with nothing but a request, whose work came to nothing, as empty.
        """
        if not (self.folder / cell.name).resolve().is_relative_to(self.folder.resolve()):
            raise ValueError(
                f"{cell.name!r} is no name of a folder in {self.folder}; values of --grid become part of it"
            )
        note, target = self.folder / cell.name / "request.json", self.folder / cell.name / "result.json"
        present = self.request(cell.name)
        differs = _differences(present or {}, cell.request)
        if present is None or (differs and {path.name for path in note.parent.iterdir()} <= {note.name, ".lock"}):
            write_text(note, json.dumps(cell.request, indent=2))
            return None
        if differs:
            raise ValueError(
                f"{note.parent} holds a run that differs in {', '.join(differs)}; choose another --output, or delete it"
            )
        return _read_json(target) if target.is_file() else None

    def request(self, name: str) -> Any:
        """The request of a cell that was begun, else None."""
        note = self.folder / name / "request.json"
        return _read_json(note) if note.is_file() else None

    def keep(self, cell: Cell, result: Any) -> None:
        """See `Cells.keep`."""
        write_text(self.folder / cell.name / "result.json", json.dumps(result, indent=2))


def _differences(present: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """What both name and is not the same, such as `options.seed`."""
    found: list[str] = []
    for key in wanted.keys() & present.keys():
        one, other = present[key], wanted[key]
        if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            found += [f"{key}.{name}" for name in _differences(one, other)]
        elif one != other:
            found.append(key)
    return sorted(found)


def _read_json(path: Path) -> Any:
    try:
        return load_json(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}); delete its folder, and the cell is run again") from error


class CellLines(Cells):
    """A line of JSON a cell in `results.jsonl`; those of other requests stay there.

    Args:
        folder: of the file.
        parse: a line's bytes and its place for messages, to the cell's name, its request and its result.
    """

    def __init__(self, folder: str | Path, parse: Callable[[bytes, str], tuple[str, Any, Any]]) -> None:
        super().__init__(folder)
        self.path = self.folder / "results.jsonl"
        self._parse = parse
        self._finished: dict[tuple[str, Any], Any] | None = None

    def __enter__(self) -> Any:
        super().__enter__()
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._held.callback(os.close, self._handle)
        os.ftruncate(self._handle, self.path.read_bytes().rfind(b"\n") + 1)  # a line that was cut off
        return self

    def read(self) -> dict[tuple[str, Any], Any]:
        """The results of all whole lines by name and request; of a cell that is there twice the last."""
        text = self.path.read_bytes() if self.path.is_file() else b""
        found = {}
        for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(), start=1):
            name, request, result = self._parse(line, f"{self.path}, line {number}")
            found[name, request] = result
        return found

    def find(self, cell: Cell) -> Any:
        """See `Cells.find`."""
        if self._finished is None:
            self._finished = self.read()
        return self._finished.get((cell.name, cell.request))

    def keep(self, cell: Cell, result: Mapping[str, Any]) -> None:
        """See `Cells.keep`."""
        line = json.dumps(result).encode() + b"\n"
        with naming(self.path):
            while line:
                line = line[os.write(self._handle, line) :]
            os.fsync(self._handle)


@contextmanager
def _stopped_for_good(*, at_once: bool = True) -> Iterator[None]:
    """Raise KeyboardInterrupt at the end if Ctrl-C was pressed, and `at_once` too: a solver answers it with the best so far."""
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        if at_once:
            usual(number, frame)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if stopped:
            raise KeyboardInterrupt


@contextmanager
def _deaf() -> Iterator[None]:
    """What is started here does not hear Ctrl-C, not even while it imports; nor is this process stopped before all are."""
    with _stopped_for_good(at_once=False):  # any thread may get a signal, whatever this one blocks
        if not hasattr(signal, "pthread_sigmask"):  # Windows
            yield
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _workers(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that are started as they are needed; an error ends them at once."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # of the processes that are started below
    # A fresh interpreter each: a forked one would inherit torch's threads in an unknown state.
    context = multiprocessing.get_context("spawn")
    # Nothing is ever sent. The workers hold the one end: when the other is closed, by us or by our death, they end.
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_begin_worker, initargs=(theirs,))
    with ours, theirs, pool:
        try:
            yield pool
        except BaseException:
            ours.close()
            pool.shutdown(cancel_futures=True)
            raise


def _begin_worker(alive: Any) -> None:
    """One thread; deaf to Ctrl-C, which is the parent's to answer; and end with the parent, also where that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
    import torch

    torch.set_num_threads(1)


def _end_with(alive: Any) -> None:
    with suppress(OSError):
        alive.poll(None)  # until the other end is closed
    os._exit(1)
