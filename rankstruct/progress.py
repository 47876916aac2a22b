"""Progress of long operations: a bar in a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tqdm import tqdm

__all__: list[str] = []

_PAUSE = 10.0  # least seconds between two lines of a log
LOOK = 0.5  # seconds between two looks at what other processes announce
_STAGES: ContextVar[tuple[str, ...]] = ContextVar("stages", default=())
_LISTENER: ContextVar[Callable[[str], object] | None] = ContextVar("listener", default=None)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Name what the block works on, such as a model or `fold 2`, in bars that begin in it and in what it announces.

    >>> with listening(print), stage("MLP"), stage("fold 2"):
    ...     announce("epoch 7")
    MLP, fold 2, epoch 7
    """
    token = _STAGES.set((*_STAGES.get(), name))
    try:
        yield
    finally:
        _STAGES.reset(token)


@contextmanager
def listening(listener: Callable[[str], object]) -> Iterator[None]:
    """Call the listener with what the block announces, instead of an outer one."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def looking(look: Callable[[], object]) -> Iterator[None]:
    """Call a function twice a second in a thread while the block runs, and once more at its end."""

    def repeat() -> None:
        ended = False
        while not ended:
            ended = end.wait(LOOK)
            look()

    end, thread = threading.Event(), threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def is_heard() -> bool:
    """Whether there is a listener to what is announced."""
    return _LISTENER.get() is not None


def announce(text: str) -> None:
    """Tell the listener, if any, what is being done: the stages, and `text`."""
    if (listener := _LISTENER.get()) is not None:
        listener(", ".join((*_STAGES.get(), text)))


def shows_bars(*files: Any) -> bool:
    """Whether all of these files (stderr if none) can show bars: terminals and notebook cells can, logs cannot."""
    return all(file.isatty() or type(file).__module__.startswith("ipykernel") for file in files or (sys.stderr,))


class Progress(tqdm):
    """A tqdm bar, with tqdm's arguments; if stderr cannot show bars, a line at most every ten seconds and one at the end.

    Its description begins with the stages, see `stage`. With `leave=False`, work that ends before the first line is due prints
    none.

    >>> import sys
    >>> sum(Progress(range(3), disable=True))
    3
    """

    _is_made = False

    def __init__(self, *args: Any, **options: Any) -> None:
        self._plain, self._kept = not shows_bars(), options.get("leave", True)
        self._said, self._due = "", float("inf")
        options["desc"] = ", ".join(filter(None, (*_STAGES.get(), options.get("desc"))))
        if self._plain:
            options |= {"leave": False, "mininterval": _PAUSE, "maxinterval": float("inf")}
        super().__init__(*args, **options)
        if self._plain and not self.disable:
            self._due = self.start_t + _PAUSE
        self._is_made = True

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Show the bar or, in a log, a line if one is due and has changed."""
        if not self._plain:
            return bool(super().display(msg, pos))
        if msg is None and self._time() >= self._due and (line := self._line()) != self._said:
            self._said, self._due = line, self._time() + _PAUSE
            self.fp.write(f"{line}\n")
            self.fp.flush()
        return False

    def clear(self, *args: Any, **options: Any) -> None:
        """Clear the bar; lines stay."""
        if not self._plain:
            super().clear(*args, **options)

    def close(self) -> None:
        """Close the bar; a log gets its last line. One interrupted during construction has nothing to close."""
        if not self._is_made:
            return
        last = self._plain and not self.disable and (self._kept or self._said)
        super().close()
        if last:
            self._due = 0.0
            self.display()

    def _line(self) -> str:
        number = tqdm.format_sizeof if self.unit_scale else str
        count = (
            f"{number(self.n)} {self.unit.strip()}"
            if self.total is None
            else f"{number(self.n)} of {number(self.total)}"
        )
        elapsed, done = self.format_dict["elapsed"], self.n - self.initial
        parts = [count, tqdm.format_interval(elapsed)]
        if self.total is not None and done > 0 and self.n < self.total:
            parts.append(f"about {tqdm.format_interval(elapsed * (self.total - self.n) / done)} left")
        parts += [self.postfix] if self.postfix else []
        name = self.desc.removesuffix(": ")
        return (f"{name}: " if name else "") + ", ".join(parts)
