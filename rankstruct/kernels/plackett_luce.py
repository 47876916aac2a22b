"""Rankings drawn from a Plackett-Luce policy, PL-Rank-3's gradient and its curvature, by compiled loops over CPU tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels.dispatch import load_kernel
from rankstruct.kernels.threads import share_lists

__all__ = ["draw_few_ranks", "draw_rankings", "policy_curvature", "policy_gradient"]

_WORTH_A_THREAD = 20_000  # documents of all samples


def draw_rankings(scores: Tensor, where: Tensor, noise: Tensor, k: int) -> Tensor | None:
    """The first k documents of each ranking, int64 `[samples, ..., k]`, padding last.

    None where scores of a list are too far apart for what the loop does.

    Args:
        scores, where: `[..., list_size]`, on the CPU, without a gradient.
        noise: float64 `[samples, ..., list_size]`, drawn from the exponential distribution.
        k: at most the size of the lists.

    >>> draw_rankings(torch.tensor([0.0, 2.0]), torch.tensor([True, True]), torch.ones(1, 2).double(), 2)
    tensor([[1, 0]])
    """
    return _drawn("draw_lists", scores, where, noise, k)


def draw_few_ranks(scores: Tensor, where: Tensor, uniform: Tensor) -> Tensor | None:
    """`draw_rankings` from uniform numbers in [0, 1), float64 `[samples, ..., k]`: sooner where k is small.

    >>> draw_few_ranks(torch.tensor([0.0, 2.0]), torch.tensor([True, True]), torch.tensor([[0.1]]).double())
    tensor([[0]])
    """
    return _drawn("draw_few", scores, where, uniform, uniform.shape[-1])


def _drawn(name: str, scores: Tensor, where: Tensor, random: Tensor, k: int) -> Tensor | None:
    rows = _rows(scores, where)
    samples = len(random)
    placed = np.empty((samples, len(rows[0]), k), np.int64)
    loop = load_kernel(f"plackett_luce_cpu.{name}")
    numbers = random.reshape(samples, len(rows[0]), random.shape[-1]).numpy()
    near = _run(lambda first, last: loop(*rows, numbers, first, last, placed), rows[0], samples)
    return torch.from_numpy(placed).view(samples, *scores.shape[:-1], k) if near else None


def policy_gradient(scores: Tensor, where: Tensor, placed: Tensor, worth: Tensor, rewards: Tensor) -> Tensor | None:
    """The mean over drawn rankings of what each estimates the gradient by, float64 `[..., list_size]`.

    None where scores of a list are too far apart for what the loop does.

    Args:
        scores, where, rewards: `[..., list_size]`, on the CPU, without a gradient.
        placed: int64 `[samples, ..., k]`, as from `draw_rankings`.
        worth: what broadcasts to `[..., k]`, of each rank.
    """
    return _over_rankings("gradient_lists", scores, where, placed, worth, rewards)


def policy_curvature(scores: Tensor, where: Tensor, placed: Tensor, worth: Tensor, rewards: Tensor) -> Tensor | None:
    """`policy_gradient` of the second derivatives, each document's by its own score, float64 `[..., list_size]`."""
    return _over_rankings("curvature_lists", scores, where, placed, worth, rewards)


def _over_rankings(
    name: str, scores: Tensor, where: Tensor, placed: Tensor, worth: Tensor, rewards: Tensor
) -> Tensor | None:
    rows = _rows(scores, where)
    samples, k = len(placed), placed.shape[-1]
    given = (
        placed.reshape(samples, len(rows[0]), k).numpy(),
        worth.double().expand(*scores.shape[:-1], k).reshape(len(rows[0]), k).numpy(),
        rewards.double().reshape(rows[0].shape).numpy(),
    )
    found = np.empty(rows[0].shape)
    loop = load_kernel(f"plackett_luce_cpu.{name}")
    near = _run(lambda first, last: loop(*rows, *given, first, last, found), rows[0], samples)
    return torch.from_numpy(found).view(scores.shape) if near else None


def _rows(scores: Tensor, where: Tensor) -> tuple[np.ndarray, np.ndarray]:
    shape = (scores.shape[:-1].numel(), scores.shape[-1])
    return scores.double().reshape(shape).numpy(), where.reshape(shape).numpy()


def _run(loop: Callable[[int, int], int], rows: np.ndarray, samples: int) -> bool:
    """Whether the loop could do all lists."""
    lists, size = rows.shape
    threads = min(torch.get_num_threads(), samples * rows.size // _WORTH_A_THREAD, lists)
    if threads < 2:
        return loop(0, lists) == -1
    return share_lists(loop, np.arange(lists + 1) * size, threads) == -1
