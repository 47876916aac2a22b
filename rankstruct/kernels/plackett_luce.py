"""Rankings drawn from a Plackett-Luce policy, PL-Rank-3 and its curvature, by compiled loops over CPU tensors."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels import core, dispatch
from rankstruct.kernels.dispatch import CpuLists
from rankstruct.kernels.threads import share_lists
from rankstruct.lists import Lists

__all__ = [
    "PolicyLoss",
    "draw_few_ranks",
    "draw_rankings",
    "log_sums",
    "policy_curvature",
    "policy_gradient",
    "policy_loss",
]

_WORTH_A_THREAD = 20_000  # documents in all samples


@torch.library.custom_op("rankstruct::log_sums", mutates_args=())
def log_sums(values: Tensor, sums: Tensor | None = None, slopes: Tensor | None = None) -> Tensor:
    """`values.logcumsumexp(-1)` on a device with kernels; or, given the result and a gradient in it, that in the values."""
    kernels = dispatch.kernels_of(values.device)
    assert kernels is not None
    found: Tensor = kernels.log_sums(values, sums, slopes)
    return found


@log_sums.register_fake
def _(values: Tensor, sums: Tensor | None = None, slopes: Tensor | None = None) -> Tensor:
    return torch.empty_like(values)


def draw_rankings(scores: Tensor, where: Tensor, noise: Tensor, k: int) -> Tensor | None:
    """The first k documents of each ranking, int64 `[samples, ..., k]`, padding last.

    None if the scores of a list differ too much for the loop.

    Args:
        scores, where: `[..., list_size]`, on the CPU, without a gradient.
        noise: float64 `[samples, ..., list_size]`, drawn from the exponential distribution.
        k: at most the size of the lists.

    >>> draw_rankings(torch.tensor([0.0, 2.0]), torch.tensor([True, True]), torch.ones(1, 2).double(), 2)
    tensor([[1, 0]])
    """
    return _drawn(core.draw_rankings, scores, where, noise, k)


def draw_few_ranks(scores: Tensor, where: Tensor, uniform: Tensor) -> Tensor | None:
    """`draw_rankings` from uniform numbers in [0, 1), float64 `[samples, ..., k]`: faster for small k.

    >>> draw_few_ranks(torch.tensor([0.0, 2.0]), torch.tensor([True, True]), torch.tensor([[0.1]]).double())
    tensor([[0]])
    """
    return _drawn(core.draw_few, scores, where, uniform, uniform.shape[-1])


def _drawn(draw: Any, scores: Tensor, where: Tensor, random: Tensor, k: int) -> Tensor | None:
    rows = _Rows.of(scores, where, len(random))
    placed = torch.empty((rows.samples, rows.lists, k), dtype=torch.int64)
    numbers = random.double().contiguous()
    given = (*rows.addresses, numbers.data_ptr(), rows.lists, rows.size, rows.samples, k, rows.is_double)
    near = rows.run(lambda first, last: draw(*given, first, last, placed.data_ptr()))
    return placed.view(rows.samples, *scores.shape[:-1], k) if near else None


def policy_gradient(scores: Tensor, where: Tensor, placed: Tensor, worth: Tensor, rewards: Tensor) -> Tensor | None:
    """The mean of the gradient estimates of sampled rankings, float64 `[..., list_size]`.

    None if the scores of a list differ too much for the loop.

    Args:
        scores, where, rewards: `[..., list_size]`, on the CPU, without a gradient.
        placed: int64 `[samples, ..., k]`, as from `draw_rankings`.
        worth: the worth of each rank, broadcast to `[..., k]`.
    """
    return _over_rankings(False, scores, where, placed, worth, rewards)


def policy_curvature(scores: Tensor, where: Tensor, placed: Tensor, worth: Tensor, rewards: Tensor) -> Tensor | None:
    """The same for second derivatives, of each document in its own score, float64 `[..., list_size]`."""
    return _over_rankings(True, scores, where, placed, worth, rewards)


def _over_rankings(
    twice: bool, scores: Tensor, where: Tensor, placed: Tensor, worth: Tensor, rewards: Tensor
) -> Tensor | None:
    rows, k = _Rows.of(scores, where, len(placed)), placed.shape[-1]
    worth = worth.double().expand(*scores.shape[:-1], k).contiguous()
    arrays = (placed.contiguous(), worth, rewards.double().contiguous())
    found = torch.empty((rows.lists, rows.size), dtype=torch.float64)
    given = (*rows.addresses, *(each.data_ptr() for each in arrays), rows.lists, rows.size, rows.samples, k)
    near = rows.run(
        lambda first, last: core.policy_derivative(*given, rows.is_double, twice, first, last, found.data_ptr())
    )
    return found.view(scores.shape) if near else None


class PolicyLoss(NamedTuple):
    """The result of `policy_loss`.

    Attributes:
        values: `[...]`, one per list.
        direction: the gradient of each value in the list's scores.
        mean: the mean value over the lists that are not all padding.
        lists: the number of these, at least 1.
    """

    values: Tensor
    direction: Tensor
    mean: float
    lists: int


def policy_loss(
    scores: Tensor, lists: Lists, uniform: Tensor, discounts: np.ndarray, k: int, few: bool, gains: np.ndarray | None
) -> PolicyLoss | None:
    """1 - the discounted gain of sampled rankings relative to the best one, and its gradient, in one pass.

    None if the scores of a list differ too much for the loop, or a gain is invalid or unknown.

    Args:
        scores, lists: eager tensors.
        uniform: float64 numbers in [0, 1), `[samples, ..., longest list]`, or `[samples, ..., k]` if `few`.
        discounts: float64 `[longest list]`.
        k: ranks after it are worth nothing.
        few: whether to sample like `draw_few_ranks`, not like `draw_rankings`.
        gains: float64, the gains of integer labels from 0, if known; None: labels are gains.
    """
    batch = CpuLists(scores, lists, 0.0, gains)
    given = uniform.data_ptr(), discounts.ctypes.data, len(discounts), len(uniform), k, few
    shares: list[core.CoreBatch] = []

    def loop(first: int, last: int) -> int:
        own = core.CoreBatch.from_buffer_copy(batch.batch)
        shares.append(own)
        return int(core.policy_loss(ctypes.addressof(own), *given, first, last))

    offsets = lists.offsets
    bounds = np.arange(batch.count + 1) * batch.longest if offsets is None else offsets.numpy()
    if _share(loop, bounds, len(uniform)) != -1:
        return None
    count = max(sum(share.real_lists for share in shares), 1)
    return PolicyLoss(batch.value, batch.direction, math.fsum(share.sum for share in shares) / count, count)


def _share(loop: Callable[[int, int], int], bounds: np.ndarray, samples: int) -> int:
    """The result of a loop over several rankings of each list, with threads if there is enough work."""
    lists, documents = len(bounds) - 1, int(bounds[-1])
    threads = min(torch.get_num_threads(), samples * documents // _WORTH_A_THREAD, lists)
    found = loop(0, lists) if threads < 2 else share_lists(loop, bounds, threads)
    if found == core.OUT_OF_MEMORY:
        raise MemoryError(f"no memory for the scratch of lists of {int(np.diff(bounds).max())} documents")
    return found


class _Rows(NamedTuple):
    """Lists as rows, and the number of rankings of each."""

    scores: Tensor
    where: Tensor
    lists: int
    size: int
    samples: int

    @classmethod
    def of(cls, scores: Tensor, where: Tensor, samples: int) -> _Rows:
        shape = (scores.shape[:-1].numel(), scores.shape[-1])
        wide = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
        return cls(wide.reshape(shape).contiguous(), where.reshape(shape).contiguous(), *shape, samples)

    @property
    def addresses(self) -> tuple[int, int]:
        """The addresses of scores and where."""
        return self.scores.data_ptr(), self.where.data_ptr()

    @property
    def is_double(self) -> bool:
        """Whether the scores are float64."""
        return self.scores.dtype == torch.float64

    def run(self, loop: Callable[[int, int], int]) -> bool:
        """Run the loop; returns whether it solved all lists."""
        return _share(loop, np.arange(self.lists + 1) * self.size, self.samples) == -1
