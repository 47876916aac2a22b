"""Rankings drawn from a Plackett-Luce policy, PL-Rank-3 and its curvature, by compiled loops over CPU tensors."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels import core, dispatch
from rankstruct.kernels.call import Call
from rankstruct.kernels.dispatch import CpuLists
from rankstruct.kernels.threads import share_lists
from rankstruct.lists import Lists

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
    placed = torch.empty((len(random), *scores.shape[:-1], k), dtype=torch.int64)
    return placed if _solved(draw, scores, where, placed, random=random.double()) else None


def policy_gradient(scores: Tensor, where: Tensor, placed: Tensor, worth: Tensor, rewards: Tensor) -> Tensor | None:
    """The mean of the gradient estimates of sampled rankings, float64 `[..., list_size]`.

    None if the scores of a list differ too much for the loop.

    Args:
        scores, where, rewards: `[..., list_size]`, on the CPU, without a gradient.
        placed: int64 `[samples, ..., k]`, as from `draw_rankings`.
        worth: the worth of each rank, broadcast to `[..., k]`.
    """
    return _estimated(core.policy_gradient, scores, where, placed, worth, rewards)


def policy_curvature(scores: Tensor, where: Tensor, placed: Tensor, worth: Tensor, rewards: Tensor) -> Tensor | None:
    """The same for second derivatives, of each document in its own score, float64 `[..., list_size]`."""
    return _estimated(core.policy_curvature, scores, where, placed, worth, rewards)


def _estimated(
    estimate: Any, scores: Tensor, where: Tensor, placed: Tensor, worth: Tensor, rewards: Tensor
) -> Tensor | None:
    worth = worth.double().expand(*scores.shape[:-1], placed.shape[-1])
    found = torch.empty(scores.shape, dtype=torch.float64)
    arrays = {"worth": worth, "rewards": rewards.double(), "found": found}
    return found if _solved(estimate, scores, where, placed.contiguous(), **arrays) else None


def _solved(loop: Any, scores: Tensor, where: Tensor, placed: Tensor, **arrays: Tensor) -> bool:
    """Whether a loop over rankings solved all lists."""
    arrays |= {"scores": scores.double(), "where": where, "placed": placed}
    given = {name: each.contiguous().numpy() for name, each in arrays.items()}
    lists, n, (samples, *_, k) = scores.shape[:-1].numel(), scores.shape[-1], placed.shape
    rankings = core.rankings.options(*map(given.get, core.ROWS), lists, n, samples, k)
    threads = min(torch.get_num_threads(), samples * lists * n // _WORTH_A_THREAD, lists)
    bounds = np.arange(lists + 1) * n
    found = share_lists(lambda first, last: int(loop(ctypes.byref(rankings), first, last)), bounds, threads)
    if found == core.OUT_OF_MEMORY:
        raise MemoryError(f"no memory for the scratch of lists of {n} documents")
    return found == -1


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
    options = core.policy_loss.options(uniform.numpy().ravel(), discounts, len(uniform), k, few)
    if batch.run(Call(core.policy_loss, options), len(uniform)) != -1 or (found := batch.mean()) is None:
        return None
    return PolicyLoss(batch.value, batch.direction, *found)
