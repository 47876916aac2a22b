"""Operators for feature maps of binary relevance.

Each takes `min_relevant`, the lowest relevant label (above 0 if None), or several `thresholds` with weights, whose results are
summed; on the CPU a list is sorted once for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from rankstruct.kernels.core import Loop
from rankstruct.kernels.dispatch import Call, CpuLists, ListOperator

NO_CUTOFF = 2**62


class ArgmaxMethod(NamedTuple):
    """A method to find the most violated ranking.

    Attributes:
        name: a short description.
        cost: its cost for a list of n documents, p of them relevant and m not.
        loop: the loop of the compiled core.
    """

    name: str
    cost: str
    loop: Loop


def binary_kernel(
    name: str,
    options: str,
    method: Callable[..., tuple[ArgmaxMethod, tuple[Any, ...]]],
    *,
    gains: bool = False,
    weighted: bool = False,
) -> ListOperator:
    """The operator `rankstruct::<name>`.

    Args:
        name: its name.
        options: the schema of its options, besides the lists and the definition of relevance.
        method: from `(longest, *options)` to the method, and the options of its loop.
        gains: whether labels are gains, at most one gain above 0 per list.
        weighted: whether documents may have item weights.
    """

    def compiled(
        longest: int, min_relevant: float | None, thresholds: Tensor | None, weights: Tensor | None, *given: Any
    ) -> Call:
        found, own = method(longest, *given)
        from_label = math.nan if min_relevant is None else min_relevant
        check = _refuse_several_gains if gains else None
        return Call(found.loop, found.loop.options(*own), from_label, thresholds, weights, check)

    schema = f"float? min_relevant, Tensor? thresholds, Tensor? weights{', ' if options else ''}{options}"
    return ListOperator(name, schema, compiled, gains=gains, weighted=weighted)


def _refuse_several_gains(lists: CpuLists, _place: int) -> None:
    """Refuse relevant documents of different gains: these maps take binary relevance."""
    _, labels, where = lists.given[:3]
    gains = labels.double().numpy().reshape(-1)
    relevant = gains > 0 if where is None else (gains > 0) & where.numpy().reshape(-1)
    for first, last in pairwise(lists.bounds):
        positions = first + np.flatnonzero(relevant[first:last])
        other = positions[gains[positions] != gains[positions[:1]]]
        if other.size:
            raise ValueError(
                "labels have more than one grade above zero, and the pairwise map takes binary relevance: "
                f"{lists.place(int(positions[0]))} has gain {gains[positions[0]]:g}, {lists.place(int(other[0]))} has gain "
                f"{gains[other[0]]:g}. Give min_relevant= to the measure, such as nDCG(min_relevant=1), or take the "
                "positional map, feature_map='positional'"
            )
