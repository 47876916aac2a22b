"""End worker processes with the process that launched them.

This module does not import torch, which takes seconds in which the launcher may be killed.
"""

from __future__ import annotations

import atexit
import os
import threading

_LAUNCHER, _NAME = "RANKSTRUCT_LAUNCHER", "rankstruct-launcher"
_LOOK = 0.2  # seconds between two checks that the launcher is alive


def end_with_launcher() -> None:
    """End this process when its launcher ends, even if that is killed.

    The launcher is `torchrun`, or with Lightning the first process. A process without a launcher only sets an environment
    variable, since it may become one.
    """
    launcher = os.environ.get(_LAUNCHER)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        parent = os.getppid()
    elif launcher is not None and os.environ.get("LOCAL_RANK", "0") != "0":
        parent = int(launcher)
    else:
        os.environ[_LAUNCHER] = str(os.getpid())
        return
    end_with(parent)


def end_with(parent: int) -> None:
    """End this process when its parent ends, even if that is killed; nothing if this is told already.

    Args:
        parent: the process that started this one.
    """
    if any(thread.name == _NAME for thread in threading.enumerate()):
        return

    done = threading.Event()

    def watch() -> None:
        while os.getppid() == parent:
            if done.wait(_LOOK):
                return
        os._exit(1)

    def leave() -> None:  # a thread that wakes during interpreter shutdown may abort the process
        done.set()
        thread.join()

    thread = threading.Thread(target=watch, daemon=True, name=_NAME)
    thread.start()
    atexit.register(leave)
