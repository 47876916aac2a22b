"""Share a batch of lists among threads.

A compiled loop releases the GIL, so Python threads suffice: they wait without spinning, are recreated after a fork, and can be
used by several callers at once.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch

_SHARES = 4  # shares per thread

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def _forget_pool() -> None:
    """After a fork: the parent's threads do not exist in the child, and its lock may be held by one of them."""
    global _lock, _pool, _pool_size
    _lock, _pool, _pool_size = threading.Lock(), None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _get_pool(threads: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < threads:
            # A smaller pool finishes its tasks and gets no new ones.
            _pool, _pool_size = ThreadPoolExecutor(threads, thread_name_prefix="rankstruct"), threads
        return _pool


def share_lists(loop: Callable[[int, int], int], offsets: np.ndarray, threads: int) -> int:
    """Call `loop(first, last)` for shares of all lists in several threads; returns a result that is not -1, or -1.

    Each list is processed by a single call, so the result does not depend on the number of threads.
    """
    if threads < 2:
        return loop(0, len(offsets) - 1)
    lists, documents = len(offsets) - 1, int(offsets[-1])
    # More shares than threads, because other work on its core may slow a thread down.
    cuts = np.unique(np.searchsorted(offsets, np.linspace(0, documents, _SHARES * threads + 1)[1:-1]))
    shares = deque(pairwise([0, *map(int, cuts), lists]))
    answers: list[int] = []

    def work() -> None:
        while shares:
            try:
                first, last = shares.popleft()
            except IndexError:  # another thread took the last share
                return
            answers.append(loop(first, last))

    pool = _get_pool(threads)
    others = [pool.submit(work) for _ in range(threads - 1)]
    work()
    for other in others:
        other.result()
    return next((answer for answer in answers if answer != -1), -1)


@contextmanager
def threads_of_torch(count: int) -> Iterator[None]:
    """Set the number of threads of torch, which the kernels use too."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
