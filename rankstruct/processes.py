"""Several processes of `torch.distributed` that share the lists: which one this is, and sums over all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed

from rankstruct.launcher import end_with_launcher

__all__ = ["Team", "copy_from_first", "find_team", "joined", "summed"]


class Team(NamedTuple):
    """The processes that share the work, as one of them sees them; all must do the same calls of its methods in the same order.

    Attributes:
        rank: the number of this process, from 0.
        world_size: how many there are.
    """

    rank: int = 0
    world_size: int = 1

    def sum(self, vector: np.ndarray) -> np.ndarray:
        """The sum of an array over all processes, the same bits on all."""
        return vector if self.world_size == 1 else summed(torch.from_numpy(vector)).numpy()

    def gathered(self, value: Any) -> list[Any]:
        """What each process gave, in order; any object that can be pickled."""
        found = [value] * self.world_size
        if self.world_size > 1:
            distributed.all_gather_object(found, value)
        return found

    def hand_out(self, value: Any) -> Any:
        """What the first process gave; any object that can be pickled."""
        given = [value]
        if self.world_size > 1:
            distributed.broadcast_object_list(given, 0)
        return given[0]


def find_team() -> Team:
    """The processes of `torch.distributed`; this one alone where that was not initialised.

    >>> find_team()
    Team(rank=0, world_size=1)
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return Team()
    return Team(distributed.get_rank(), distributed.get_world_size())


@contextmanager
def joined() -> Iterator[Team]:
    """The processes that `torchrun` started (or whatever else sets RANK and WORLD_SIZE), joined for a block; else this one alone.

    What they send each other is on the CPU.
    """
    started = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ
    if not started or find_team().world_size > 1:
        yield find_team()
        return
    end_with_launcher()
    distributed.init_process_group("gloo")
    try:
        yield find_team()
    finally:
        distributed.destroy_process_group()


def summed(values: Tensor) -> Tensor:
    """The sum of `values`, of one shape and dtype, over all processes, each of which must call this; the same bits on all."""
    if find_team().world_size == 1:
        return values
    total = _where_it_is_sent(values.detach().clone())
    distributed.all_reduce(total)
    return total.to(values.device)


def copy_from_first(tensors: Iterable[Tensor]) -> None:
    """Overwrite tensors, in place, with those of the first process; all processes must call this."""
    if find_team().world_size == 1:
        return
    with torch.no_grad():
        for tensor in tensors:
            sent = _where_it_is_sent(tensor.detach().clone())
            distributed.broadcast(sent, 0)
            tensor.copy_(sent)


def _where_it_is_sent(values: Tensor) -> Tensor:
    return values.cuda() if distributed.get_backend() == "nccl" else values
