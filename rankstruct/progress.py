"""Progress of what takes long: a bar in a terminal, plain lines in a log. Which of the two it is, is decided here alone."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

__all__ = ["Progress", "shows_bars"]

_PAUSE = 10.0  # seconds between two lines of a log, at least


def shows_bars(*files: Any) -> bool:
    """Whether all of these files, stderr if none is named, show bars: terminals and a notebook's cells do, logs do not."""
    return all(file.isatty() or type(file).__module__.startswith("ipykernel") for file in files or (sys.stderr,))


class Progress(tqdm):
    """A bar of tqdm, with its arguments; where stderr shows no bars, a line at most every ten seconds, and one at the end.

    With `leave=False`, which takes a bar away when it is done, what was done before the first line was due leaves none.
    """

    _is_made = False

    def __init__(self, *args: Any, **options: Any) -> None:
        self._plain, self._kept = not shows_bars(), options.get("leave", True)
        self._said, self._due = "", float("inf")
        if self._plain:
            options |= {"leave": False, "mininterval": _PAUSE, "maxinterval": float("inf")}
        super().__init__(*args, **options)
        if self._plain and not self.disable:
            self._due = self.start_t + _PAUSE
        self._is_made = True

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Show the bar or, in a log, a line if it is time and says anything new."""
        if not self._plain:
            return bool(super().display(msg, pos))
        if msg is None and self._time() >= self._due and (line := self._line()) != self._said:
            self._said, self._due = line, self._time() + _PAUSE
            self.fp.write(f"{line}\n")
            self.fp.flush()
        return False

    def clear(self, *args: Any, **options: Any) -> None:
        """Take the bar away; lines stay."""
        if not self._plain:
            super().clear(*args, **options)

    def close(self) -> None:
        """Take the bar away, or leave it; a log has its last line. One interrupted while it was made has nothing to close."""
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
