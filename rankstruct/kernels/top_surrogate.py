"""The average and the max surrogate of measures of the top, as an operator; see `losses.top_surrogate`."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from rankstruct.kernels import core
from rankstruct.kernels.dispatch import Call, ListOperator, discount_table


def _compiled(longest: int, weights: Tensor, normalized: bool, average: bool, slack: bool) -> Call:
    table, loop = discount_table(weights, longest), core.top_surrogate
    return Call(loop, loop.options(table, int(np.count_nonzero(table)), normalized, average, slack))


#: The surrogate of each list, its gradient, and as task loss the regret of its most violated ranking. Labels are the gains of a
#: measure, at most one above 0 per list, and `weights` its discounts.
swap_surrogate = ListOperator(
    "swap_surrogate", "Tensor weights, bool normalized, bool average, bool slack", _compiled, gains=True
)
