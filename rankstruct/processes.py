"""Several processes of `torch.distributed` that share the lists: which one this is, sums over all of them, and their end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, distributed

__all__ = ["Place", "copy_from_first", "end_with_launcher", "find_place", "gather", "summed"]

_LAUNCHER = "RANKSTRUCT_LAUNCHER"
_LOOK = 0.5  # seconds between two looks whether the launcher is there


class Place(NamedTuple):
    """One of several processes.

    Attributes:
        rank: its number, from 0.
        world_size: how many there are.
    """

    rank: int
    world_size: int


def find_place() -> Place:
    """Where this process stands among those of `torch.distributed`; alone where that was not initialised.

    >>> find_place()
    Place(rank=0, world_size=1)
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return Place(0, 1)
    return Place(distributed.get_rank(), distributed.get_world_size())


def summed(values: Tensor) -> Tensor:
    """The sum of `values`, of one shape and dtype, over all processes, each of which must call this; the same bits on all."""
    if find_place().world_size == 1:
        return values
    total = _where_it_is_sent(values.detach().clone())
    distributed.all_reduce(total)
    return total.to(values.device)


def copy_from_first(tensors: Iterable[Tensor]) -> None:
    """Overwrite tensors, in place, with those of the first process; all processes must call this."""
    if find_place().world_size == 1:
        return
    with torch.no_grad():
        for tensor in tensors:
            sent = _where_it_is_sent(tensor.detach().clone())
            distributed.broadcast(sent, 0)
            tensor.copy_(sent)


def gather(values: Tensor) -> list[Tensor]:
    """`values` of one shape and dtype of all processes, in order, each of which must call this."""
    size = find_place().world_size
    if size == 1:
        return [values]
    sent = _where_it_is_sent(values.detach())
    found = [torch.empty_like(sent) for _ in range(size)]
    distributed.all_gather(found, sent)
    return [one.to(values.device) for one in found]


def _where_it_is_sent(values: Tensor) -> Tensor:
    return values.cuda() if distributed.get_backend() == "nccl" else values


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

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="rankstruct-launcher").start()
