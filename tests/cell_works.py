"""What workers do in the tests of cells; a module that a fresh interpreter can import."""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from rankstruct.progress import announce


def square(number, folder):
    """The square, and a note of who was asked; 13 fails."""
    Path(folder, f"asked-{number}-{os.getpid()}").touch()
    if number == 13:
        raise ValueError("thirteen")
    if number == 14:
        raise SystemExit("fourteen")
    return {"cell": [str(number)], "request": "r", "square": number**2}


def train(epochs):
    """Epochs, each announced."""
    for epoch in range(epochs):
        announce(f"epoch {epoch}")
    return {"epochs": epochs}


def sleep(seconds, folder):
    """Sleep, with a note of the process."""
    Path(folder, f"pid-{os.getpid()}").touch()
    time.sleep(seconds)
    return {"slept": seconds}


def die(number, times, folder):
    """End the process, as often as told, as the system does when memory is short."""
    if len(list(Path(folder).glob(f"died-{number}-*"))) < times:
        Path(folder, f"died-{number}-{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"number": number}


def best_so_far(folder):
    """What a solver does at Ctrl-C, which comes at once."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        Path(folder, "stopped").touch()
    return {"best": "so far"}


def deaf(_):
    """Whether Ctrl-C was out of this process' hearing before it could be told to ignore it."""
    return {"deaf": signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())}


def begin_slowly(parent):
    """A worker that imports for long before it can watch its parent."""
    time.sleep(60)


def answer_ctrl_c():
    """As Lightning answers it."""
    sys.exit(1)


def replace_result(folder, result):
    """Another result of a finished cell, as if its run had given it, to see that it is read and not computed again."""
    text = json.dumps(result)
    (folder / "result.json").write_text(text)
    record = json.loads((folder / "request.json").read_text())
    record["outputs"]["result.json"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "request.json").write_text(json.dumps(record))


def unfinished(folder):
    """A finished cell as a kill before its last step would have left it."""
    (folder / "result.json").unlink()
    record = json.loads((folder / "request.json").read_text())
    (folder / "request.json").write_text(json.dumps(record | {"outputs": {}}))
