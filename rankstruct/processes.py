"""Distributed training: the process group of `torch.distributed`, and sums over its processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed

from rankstruct.launcher import end_with_launcher

__all__: list[str] = []


class Team(NamedTuple):
    """The process group, as seen by one process; all processes must call its methods in the same order.

    Attributes:
        rank: the rank of this process, from 0.
        world_size: the number of processes.

    >>> team = find_team()  # None in a single process
    """

    rank: int = 0
    world_size: int = 1

    def sum(self, vector: np.ndarray) -> np.ndarray:
        """The sum of an array over all processes, bitwise equal on all."""
        return vector if self.world_size == 1 else summed(torch.from_numpy(vector)).numpy()

    def gathered(self, value: Any) -> list[Any]:
        """The values of all processes, by rank; any picklable object."""
        found = [value] * self.world_size
        if self.world_size > 1:
            distributed.all_gather_object(found, value)
        return found

    def share(self, total: int) -> slice:
        """The rows of a table of `total` rows that this process has; the first ones have one more if they differ.

        >>> Team(1, 3).share(8)
        slice(3, 6, None)
        """
        each, more = divmod(total, self.world_size)
        first = self.rank * each + min(self.rank, more)
        return slice(first, first + each + (self.rank < more))

    def computed(self, function: Callable[[], Any]) -> Any:
        """The value of a function that only the first process calls, broadcast to all; any picklable object."""
        return self.hand_out(function() if self.rank == 0 else None)

    def hand_out(self, value: Any) -> Any:
        """The value of the first process, broadcast to all; any picklable object."""
        given = [value]
        if self.world_size > 1:
            distributed.broadcast_object_list(given, 0)
        return given[0]


def find_team() -> Team:
    """The processes of `torch.distributed`; only this one if that is not initialised.

    >>> find_team()
    Team(rank=0, world_size=1)
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return Team()
    return Team(distributed.get_rank(), distributed.get_world_size())


@contextmanager
def joined() -> Iterator[Team]:
    """Join the processes started by `torchrun` (or anything that sets RANK and WORLD_SIZE) for a block; otherwise only this one.

    They communicate on the CPU, by gloo.
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
    """The sum of `values` over all processes, bitwise equal on all; each must call this, with the same shape and dtype."""
    return _reduced(values, "SUM")


def highest(values: Tensor) -> Tensor:
    """As `summed`, the greatest of the values."""
    return _reduced(values, "MAX")


def stacked(values: Tensor) -> Tensor:
    """The values of all processes, `[processes, ...]`, on all; each must call this, with the same shape and dtype."""
    sent = _where_it_is_sent(values.detach()).contiguous()
    found = [torch.empty_like(sent) for _ in range(find_team().world_size)]
    distributed.all_gather(found, sent)
    return torch.stack(found).to(values.device)


def _reduced(values: Tensor, by: str) -> Tensor:
    if find_team().world_size == 1:
        return values
    total = _where_it_is_sent(values.detach().clone())
    distributed.all_reduce(total, getattr(distributed.ReduceOp, by))
    return total.to(values.device)


def copy_from_first(tensors: Iterable[Tensor]) -> None:
    """Broadcast the tensors of the first process to all, in place; all processes must call this."""
    if find_team().world_size == 1:
        return
    with torch.no_grad():
        for tensor in tensors:
            sent = _where_it_is_sent(tensor.detach().clone())
            distributed.broadcast(sent, 0)
            tensor.copy_(sent)


def _where_it_is_sent(values: Tensor) -> Tensor:
    return values.cuda() if distributed.get_backend() == "nccl" else values
