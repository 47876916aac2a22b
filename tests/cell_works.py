"""What workers do in the tests of cells; a module that a fresh interpreter can import."""

import os
import time
from pathlib import Path


def square(number, folder):
    """The square, and a note of who was asked; 13 fails."""
    Path(folder, f"asked-{number}-{os.getpid()}").touch()
    if number == 13:
        raise ValueError("thirteen")
    if number == 14:
        raise SystemExit("fourteen")
    return {"cell": [str(number)], "request": "r", "square": number**2}


def sleep(seconds, folder):
    """Sleep, with a note of the process."""
    Path(folder, f"pid-{os.getpid()}").touch()
    time.sleep(seconds)
    return {"slept": seconds}
