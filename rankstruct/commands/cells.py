"""The loop of every long-running command: cells of (config, fold, seed), run in parallel and resumable.

A command makes the cells, `CellFolders.run` runs those that are not finished, and returns a table of the results by (config,
fold, seed), which the command prints. `CellFolders.select` runs all settings of some configs, and further seeds of the best on
validation data. A cell has a request (plain data: everything its result depends on, including a digest of the data files) and the
arguments of its function, which runs in a separate process. A folder of cells is used by one process at a time. Finished cells
are not run again; results are saved atomically as soon as they are available; failed cells are reported at the end, after the
others. Ctrl-C, and the death of this process by any means, end the workers at once. A cell whose process dies is run once more.

joblib runs the cells: in processes of this machine, or on the cluster of an active backend, see `rankstruct.commands.cluster`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from socket import gethostname
from types import FrameType
from typing import Any, NamedTuple

from joblib import Parallel, delayed
from joblib.parallel import LokyBackend, get_active_backend

from rankstruct._version import __version__
from rankstruct.commands.cluster import Futures, Outcome, end_workers, workers
from rankstruct.configs import load_json
from rankstruct.files import write_text
from rankstruct.progress import LOOK, Progress, listening, looking, stage

__all__ = ["Cell", "CellFolders", "CellsFailed", "Finished", "Key", "Selected", "different_names", "locked"]

_MOST_PROCESSES = 10_000

#: The config, fold and seed of a cell; None where a command has only one.
Key = tuple[Hashable, Hashable, int | None]


class CellsFailed(ValueError):
    """Some cells failed; the results of the others are saved."""

    @classmethod
    def of(cls, failed: Mapping[str, str], total: str) -> CellsFailed:
        """The error for cells and what they failed by, of a number of cells, such as `"5 trials"`."""
        first = "; ".join(f"{name}: {error}" for name, error in list(failed.items())[:3])
        return cls(
            f"{len(failed)} of {total} failed; those that finished are saved, and the same command runs the missing ones: {first}"
        )


class Cell(NamedTuple):
    """One piece of work: a config on a fold with a seed.

    Attributes:
        name: a unique name for messages; with `CellFolders` also its folder.
        request: everything the result depends on, as JSON, with options that were not given too: a finished cell of another
            request, or of one with fewer entries, is another cell.
        arguments: the arguments of its function.
        config: what is trained; the name if None.
        fold: the fold, or another part of the data.
        seed: the seed.
        outputs: the files that its function writes to its folder for later use.
    """

    name: str
    request: Any
    arguments: tuple[Any, ...]
    config: Hashable = None
    fold: Hashable = None
    seed: int | None = None
    outputs: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """Config, fold and seed."""
        return self.name if self.config is None else self.config, self.fold, self.seed


class Finished(NamedTuple):
    """Results by config, fold and seed, and the number of those reused from an earlier run."""

    results: dict[Key, Any]
    reused: int


class Selected(NamedTuple):
    """The selected settings of some configs.

    Attributes:
        settings: by config and fold.
        results: of the selected settings, by config, fold and seed.
        every: all results, those of the other settings included.
        reused: the number of those reused from an earlier run.
    """

    settings: dict[tuple[Hashable, Hashable], Any]
    results: dict[Key, Any]
    every: list[Any]
    reused: int


def different_names(configs: Sequence[str | Path]) -> list[str]:
    """The names of config files, by which their results are identified.

    Raises:
        ValueError: two files have the same name, or one does not exist.
    """
    for config in configs:
        if not Path(config).is_file():
            raise ValueError(f"config {config} does not exist")
    names = [Path(config).stem for config in configs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"configs need different file names; several are named {', '.join(twice)}")
    return names


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Lock a folder, created if needed, against other processes; the system releases the lock if this one dies.

    Raises:
        ValueError: another process has locked it.
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
            raise ValueError(f"{folder}: another process is writing to it; wait, or use another --output") from error
        yield


_RECORD, _RESULT, _ANNOUNCED = "request.json", "result.json", ".announced"


class CellFolders:
    """The cells of a folder, one folder each; a context manager that locks the folder and ends the workers.

    A cell's folder has the record of its request, the files that its function writes, and its result. The record,
    `request.json`, is `{"version", "request", "outputs"}`: the version of this package, and the digests of `result.json` and of
    the files of `Cell.outputs`, written last. A cell is finished if version and request are equal and these files are as they
    were.

    Args:
        folder: the folder of all results.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._held = ExitStack()
        self._has_workers = False

    def __enter__(self) -> Any:
        self._held.enter_context(locked(self.folder))
        return self

    def __exit__(self, *error: object) -> None:
        if self._has_workers:
            end_workers()
        self._held.__exit__(*error)  # type: ignore[arg-type]

    def run(
        self,
        work: Callable[..., Any],
        cells: Sequence[Cell],
        *,
        processes: int | None = None,
        what: str = "cells",
        note: str = "",
        before: int = 0,
        total: int | None = None,
        unchanged: Callable[[Cell], bool] = lambda cell: True,
    ) -> Finished:
        """Run the unfinished cells.

        Args:
            work: a module-level function, called with a cell's arguments; returns its result.
            cells: cells with different names.
            processes: number of parallel workers, each a fresh interpreter with one thread; 0 runs the cells in this process;
                None is one on this machine, and on a cluster as many as it has room for.
            what: what a cell is to the user, in the plural, such as `"trials"`: for messages and the progress bar.
            note: what follows it in the progress bar.
            before: number of cells that were run by earlier calls of the same command.
            total: number of cells of the whole command; those of this call and of `before` if None.
            unchanged: whether a cell's request still holds, such as its digest of the data; called before a result is saved.

        Raises:
            CellsFailed: some cells failed, which the message names; the results of the others are saved.
            KeyboardInterrupt: the message reports what is saved.
        """
        if not cells:  # no bar
            return Finished({}, 0)
        found = {cell.key: self.find(cell) for cell in cells}
        missing = [cell for cell in cells if found[cell.key] is None]
        for cell in missing:
            self.begin(cell)
        failed: dict[str, str] = {}
        total = before + len(cells) if total is None else total
        reused = len(cells) - len(missing)
        with Progress(total=total, initial=before + reused, desc=what + note, unit="cell") as bar:
            try:
                with closing(self._outcomes(work, missing, processes, bar.set_postfix_str)) as outcomes:
                    for number, result, why in outcomes:
                        cell = missing[number]
                        if why := why or ("" if unchanged(cell) else "its data changed while it ran"):
                            failed[cell.name] = why
                            self.give_up(cell)
                        else:
                            self.keep(cell, result)
                            found[cell.key] = result
                        bar.update()
                bar.set_postfix_str("", refresh=False)
            except KeyboardInterrupt:
                done = before + sum(result is not None for result in found.values())
                raise KeyboardInterrupt(
                    f"stopped; {done} of {total} {what} are finished and saved in {self.folder}, the same command resumes"
                ) from None
        if failed:
            raise CellsFailed.of(failed, f"{total} {what}")
        return Finished(found, reused)

    def select(
        self,
        work: Callable[..., Any],
        make: Callable[[Any, Any, Any, int | None], Cell],
        settings: Mapping[Any, Sequence[Any]],
        *,
        folds: Sequence[Any],
        seeds: Sequence[int | None],
        validation: Callable[[Any], float],
        **options: Any,
    ) -> Selected:
        """Run all settings with the first seed, then the best of each config and fold with the other seeds.

        Args:
            work: as for `run`.
            make: makes the cell of a config, a setting, a fold and a seed.
            settings: the settings to select from, by config.
            folds: the folds.
            seeds: the seeds; the first is used for selection.
            validation: the value of a result that selects, the higher the better.
            options: of `run`.

        Raises:
            ValueError: no seed.
            CellsFailed: as `run`.
        """
        if not seeds:
            raise ValueError("seeds: give at least one")
        tried = {(c, s, f): make(c, s, f, seeds[0]) for f in folds for c in settings for s in settings[c]}
        total = len(tried) + len(folds) * len(settings) * (len(seeds) - 1)
        first = self.run(work, list(tried.values()), total=total, **options)
        best = {}
        for fold, config in itertools.product(folds, settings):
            values = {s: validation(first.results[tried[config, s, fold].key]) for s in settings[config]}
            best[config, fold] = max(values, key=values.__getitem__)
        chosen = {(c, f, seed): make(c, s, f, seed) for (c, f), s in best.items() for seed in seeds}
        more = self.run(
            work,
            [cell for key, cell in chosen.items() if key[2] != seeds[0]],
            before=len(tried),
            total=total,
            **options,
        )
        every = first.results | more.results
        results = {key: every[cell.key] for key, cell in chosen.items()}
        return Selected(best, results, list(every.values()), first.reused + more.reused)

    def _outcomes(
        self, work: Callable[..., Any], cells: Sequence[Cell], processes: int | None, show: Callable[[str], object]
    ) -> Generator[Outcome, None, None]:
        """What each cell came to, in order of completion; meanwhile, what the newest one announces is shown."""
        if processes == 0:
            for number, cell in enumerate(cells):
                try:
                    with _stopping(), listening(show), stage(cell.name):
                        outcome = Outcome(number, work(*cell.arguments))
                except SystemExit as end:  # Lightning answers Ctrl-C by exit(1)
                    if end.code != 1:
                        raise
                    raise KeyboardInterrupt from None
                except Exception as error:
                    outcome = Outcome.of_failure(number, error)
                yield outcome
            return
        if processes is not None and not 1 <= processes <= _MOST_PROCESSES:
            raise ValueError(f"processes must be at least 1 and at most {_MOST_PROCESSES}, got {processes}")
        left, alone = dict(enumerate(cells)), list[int]()
        while left:
            # One at a time after a death: one that ends its process again is known by it, and ends no other.
            now = alone[:1] or list(left)
            with _showing(self.folder.resolve() / _ANNOUNCED, show) as folder:
                shared = {"place": (os.getcwd(), folder), "work": work}
                given = [{"number": n, "name": left[n].name, "arguments": left[n].arguments, **shared} for n in now]
                try:
                    with closing(self._parallel(given, processes)) as outcomes:
                        for outcome in outcomes:
                            del left[outcome.number]
                            yield outcome
                except BrokenProcessPool as error:
                    if alone:
                        codes = "".join(re.findall(r"\{(.*)\}", str(error)))
                        told = f"died twice, {codes}, such as for want of memory" if codes else f"failed twice: {error}"
                        del left[alone[0]]
                        yield Outcome(alone[0], None, f"its process {told}")
                    else:
                        began = sorted(int(path.name) for path in folder.iterdir())
                        alone = [number for number in began if number in left] or now[:1]
            alone = [number for number in alone if number in left]

    def _parallel(self, given: Sequence[dict[str, Any]], processes: int | None) -> Generator[Outcome, None, None]:
        """Let joblib's active backend run `_work`, by default processes of this machine, which later calls use again."""
        backend, _ = get_active_backend()
        if isinstance(backend, LokyBackend):  # the default
            processes = processes or 1
            backend = workers(processes)
            self._has_workers = True
        elif not isinstance(backend, Futures):
            raise ValueError(
                f"cells do not run on joblib's {type(backend).__name__}; use its default, or `rankstruct.commands.cluster`"
            )
        given_out = {"n_jobs": processes or -1, "pre_dispatch": processes or "all", "batch_size": 1}
        parallel = Parallel(backend=backend, return_as="generator_unordered", **given_out)
        with ExitStack() as stack:
            with _ignoring_ctrl_c():
                outcomes = parallel(delayed(_work)(**each) for each in given)
                stack.callback(_close, outcomes)
            for outcome in outcomes:  # noqa: UP028 - `yield from` would close them with a warning
                yield outcome

    def find(self, cell: Cell) -> Any:
        """The result of a finished cell, or None.

        Raises:
            ValueError: the folder belongs to another request or an earlier version, or its files were damaged. A folder with only
                a record, whose run came to nothing, counts as empty.
        """
        return _read_json(self.folder / cell.name / _RESULT) if _RESULT in self.outputs(cell) else None

    def outputs(self, cell: Cell) -> dict[str, str]:
        """The digests of the files that a cell has written completely, by name; raises as `find`."""
        folder = self.folder / cell.name
        if not folder.resolve().is_relative_to(self.folder.resolve()):
            raise ValueError(
                f"{cell.name!r} is not a valid folder name in {self.folder}; values of --grid become part of it"
            )
        record = self._record(cell.name)
        if record is None or {path.name for path in folder.iterdir()} <= {_RECORD, ".lock"}:
            return {}
        outputs = record.get("outputs")
        if "request" not in record or not isinstance(outputs, dict):  # then the record was the request itself
            raise ValueError(
                f"{folder} holds a run of an earlier version, which did not record all that a result depends on; use another "
                "--output, or delete it to run it again"
            )
        wanted = {"version": __version__, "request": json.loads(json.dumps(cell.request)), "outputs": outputs}
        if differs := _differences(record, wanted):
            names = ", ".join(name.removeprefix("request.") for name in differs)
            raise ValueError(f"{folder} holds a run that differs in {names}; use another --output, or delete it")
        self.check_outputs(cell.name)
        return outputs

    def check_outputs(self, name: str) -> None:
        """Raise ValueError if a file that a cell has written is not as it was; earlier versions recorded none."""
        folder, outputs = self.folder / name, (self._record(name) or {}).get("outputs")
        for file, digest in outputs.items() if isinstance(outputs, dict) else ():
            if not (folder / file).is_file():
                raise _damaged(folder / file, "it is missing")
            if _digest(folder / file) != digest:
                raise _damaged(folder / file, "it has changed since it was written")

    def begin(self, cell: Cell) -> None:
        """Note that a cell is started, since its function may write files; those of the same request are kept."""
        if not self.outputs(cell):
            self._write(cell, {})

    def give_up(self, cell: Cell) -> None:
        """Forget a cell that failed without having written anything."""
        folder = self.folder / cell.name
        if folder.is_dir() and {path.name for path in folder.iterdir()} <= {_RECORD, ".lock"}:
            (folder / _RECORD).unlink(missing_ok=True)

    def request(self, name: str) -> Any:
        """The request of a cell that was started, or None."""
        return (self._record(name) or {}).get("request")

    def written(self, name: str) -> list[str]:
        """The files that a cell has written completely, whatever its request."""
        return list((self._record(name) or {}).get("outputs") or [])

    def keep(self, cell: Cell, result: Any) -> None:
        """Save a result atomically."""
        write_text(self.folder / cell.name / _RESULT, json.dumps(result, indent=2))
        self.seal(cell, [_RESULT, *cell.outputs])

    def seal(self, cell: Cell, names: Sequence[str]) -> None:
        """Record that these files of a cell are complete."""
        folder = self.folder / cell.name
        self._write(cell, {name: _digest(folder / name) for name in names})

    def _write(self, cell: Cell, outputs: dict[str, str]) -> None:
        record = {"version": __version__, "request": cell.request, "outputs": outputs}
        write_text(self.folder / cell.name / _RECORD, json.dumps(record, indent=2))

    def _record(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name / _RECORD
        if not path.is_file():
            return None
        record = _read_json(path)
        if not isinstance(record, dict):
            raise _damaged(path, "expected an object")
        return record


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _differences(present: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """The entries that differ, or that only one of both has, such as `options.seed`."""
    names: list[str] = []
    for key in present.keys() | wanted.keys():
        if key not in present or key not in wanted:
            names.append(key)
        elif isinstance(present[key], dict) and isinstance(wanted[key], dict):
            names += [f"{key}.{name}" for name in _differences(present[key], wanted[key])]
        elif present[key] != wanted[key]:
            names.append(key)
    return sorted(names)


def _read_json(path: Path) -> Any:
    try:
        return load_json(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, reason: str) -> ValueError:
    return ValueError(f"{path} is damaged ({reason}); delete its folder to run the cell again")


@contextmanager
def _stopping(*, at_once: bool = True) -> Iterator[None]:
    """Raise KeyboardInterrupt at the end if Ctrl-C was pressed, and `at_once` too: solvers catch it to return early."""
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
def _ignoring_ctrl_c() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, even during import; this process is not interrupted before all are started."""
    with _stopping(at_once=False):  # any thread may get a signal, whatever this one blocks
        if not hasattr(signal, "pthread_sigmask"):  # Windows
            yield
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _showing(folder: Path, show: Callable[[str], object]) -> Iterator[Path]:
    """Show the newest of what cells announce, each in a file of this folder, which is there for the block."""

    def look() -> None:
        newest = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns, default=None)
        if newest is not None and (text := newest.read_text(encoding="utf-8")):
            show(text)

    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
    folder.mkdir()
    try:
        with looking(look):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _close(outcomes: Generator[Outcome, None, None]) -> None:
    """Stop what runs; joblib warns of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes.close()


def _work(
    *, number: int, name: str, arguments: Sequence[Any], place: tuple[str, Path], work: Callable[..., Any]
) -> Outcome:
    """Do the work of a cell in a worker, and announce what it does."""
    directory, folder = place
    said, due = "", 0.0

    def write() -> None:
        (folder / str(number)).write_text(said, encoding="utf-8")

    def hear(text: str) -> None:
        nonlocal said, due
        said = text
        if time.monotonic() >= due:
            due = time.monotonic() + LOOK
            write()

    try:
        os.chdir(directory)
        write()
    except OSError as error:
        return Outcome(number, None, f"{error}, on {gethostname()}; all machines need the same folders: share them")
    try:
        with listening(hear), stage(name):
            return Outcome(number, work(*arguments))
    except BaseException as error:
        return Outcome.of_failure(number, error)
    finally:
        with suppress(OSError):  # the folder is gone
            write()
