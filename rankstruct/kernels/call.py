"""The arguments and results of a loop of the compiled core."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankstruct.kernels import core

#: Task loss, value and direction.
Answer = tuple[Tensor, Tensor, Tensor]

# The values of `Type` in lists.hpp.
SCORES = {torch.float32: 0, torch.float64: 1}
LABELS = {torch.float32: 0, torch.float64: 1, torch.int64: 2, torch.int32: 3, torch.uint8: 4, torch.bool: 4}


class Call(NamedTuple):
    """A loop of the compiled core and its arguments besides the lists.

    Attributes:
        loop: a loop of `kernels.core`.
        options: the result of `loop.options`.
        min_relevant: the lowest relevant label; NaN: labels above 0 are relevant.
        thresholds, threshold_weights: float64; the loop sums the results of several lowest relevant labels.
        check: `(batch, place)` raises the error for a document that the loop refuses although its numbers are valid.
    """

    loop: core.Loop
    options: ctypes.Structure
    min_relevant: float = math.nan
    thresholds: Tensor | None = None
    threshold_weights: Tensor | None = None
    check: Callable[[Any, int], None] | None = None
