"""The expected discount of a rank that is a sum of independent coins (SoftRank), by compiled loops over CPU tensors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels import core
from rankstruct.kernels.threads import share_lists

__all__ = ["expected_discounts"]

_WORTH_A_THREAD = 200_000  # numbers of the recursion


def expected_discounts(above: Tensor, below: Tensor, discounts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mean of `discounts[r]` over the rank r, and its slopes by `above` and `below`.

    Args:
        above, below: `[..., n]`, the chances of each coin; both are on the CPU and have no gradient.
        discounts: `[k]`, of the first ranks; those of others are 0.

    Returns:
        `[...]`, and twice `[..., n]`, of the dtype of `above`.

    >>> expected_discounts(torch.tensor([0.5, 0.0]), torch.tensor([0.5, 1.0]), torch.tensor([1.0, 0.5]))
    (tensor(0.7500), tensor([0.5000, 0.0000]), tensor([1., 0.]))
    """
    shape = above.shape
    coins = [each.reshape(-1, shape[-1]).contiguous() for each in (above, below.to(above.dtype))]
    rows, table = len(coins[0]), discounts.double().contiguous()
    value, raised, kept = coins[0].new_empty(rows), torch.empty_like(coins[0]), torch.empty_like(coins[0])
    given = (*(each.data_ptr() for each in (*coins, table)), shape[-1], len(table), above.dtype == torch.float64)
    results = [each.data_ptr() for each in (value, raised, kept)]
    threads = min(torch.get_num_threads(), above.numel() * len(table) // _WORTH_A_THREAD, rows)

    def of(first: int, last: int) -> int:
        return int(core.expected_discounts(*given, first, last, *results))

    if (of(0, rows) if threads < 2 else share_lists(of, np.arange(rows + 1), threads)) != -1:
        raise MemoryError(f"no memory for the expected discounts of {shape[-1]} documents")
    return value.view(shape[:-1]), raised.view(shape), kept.view(shape)
