"""The average and the max surrogate of measures of the top, as an operator over lists; see `losses.top_surrogate`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from rankstruct.kernels.binary import NOT_SORTED
from rankstruct.kernels.dispatch import Answer, FlatLists, PaddedLists, define_kernel, discount_table, load_kernel

__all__ = ["swap_surrogate"]


class Options(NamedTuple):
    """Of a surrogate: how many ranks earn anything; whether over the value of the best ranking; its kind and rescaling."""

    cutoff: int
    normalized: bool
    average: bool
    slack: bool


def _flat(
    lists: FlatLists, results: tuple[np.ndarray, ...], weights: Tensor, normalized: bool, average: bool, slack: bool
) -> int:
    gains = lists.labels.astype(np.float64, copy=False)
    inputs = (lists.scores, lists.bits, NOT_SORTED, gains > 0, lists.where, lists.bounds)
    loop, table = load_kernel("swap_surrogate_cpu.surrogate_lists"), discount_table(weights, lists.longest)
    options = Options(int(np.count_nonzero(table)), normalized, average, slack)
    return lists.run(lambda first, last: loop(*inputs, first, last, gains, table, options, *results))


def _padded(lists: PaddedLists, weights: Tensor, normalized: bool, average: bool, slack: bool) -> Answer:
    return load_kernel("swap_surrogate_device.surrogate_padded")(lists, weights, normalized, average, slack)


#: The surrogate of each list, its gradient, and as task loss the regret of its most violated ranking. Labels are the gains of a
#: measure, one above 0 a list, and `weights` its discounts.
swap_surrogate = define_kernel(
    "swap_surrogate", "Tensor weights, bool normalized, bool average, bool slack", _flat, _padded
)
