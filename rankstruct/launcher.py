"""The end of a process that was started as one of several: it goes with the one that started it.

Without torch, whose import takes seconds in which that one may be killed.
"""

from __future__ import annotations

import atexit
import os
import threading

_LAUNCHER, _NAME = "RANKSTRUCT_LAUNCHER", "rankstruct-launcher"
_LOOK = 0.2  # seconds between two looks whether the launcher is there


def end_with_launcher() -> None:
    """Let this process end with the one that started it as one of several, even if that is killed.

    What starts the others is `torchrun`, or the first of them for Lightning. A process that nothing of the kind started only
    leaves word that it may be such a first one.
    """
    launcher = os.environ.get(_LAUNCHER)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        parent = os.getppid()
    elif launcher is not None and os.environ.get("LOCAL_RANK", "0") != "0":
        parent = int(launcher)
    else:
        os.environ[_LAUNCHER] = str(os.getpid())
        return
    if any(thread.name == _NAME for thread in threading.enumerate()):
        return

    done = threading.Event()

    def watch() -> None:
        while os.getppid() == parent:
            if done.wait(_LOOK):
                return
        os._exit(1)

    def leave() -> None:  # a thread that wakes while the interpreter comes down may abort the process
        done.set()
        thread.join()

    thread = threading.Thread(target=watch, daemon=True, name=_NAME)
    thread.start()
    atexit.register(leave)
