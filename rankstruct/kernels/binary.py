"""Operators of the feature maps that see relevant and irrelevant documents alone.

Each takes `min_relevant`, from which on labels are relevant, or above 0 if None; or `thresholds` and their weights, at which
labels are relevant one after another: the results are summed, and on the CPU a list is sorted once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels.core import Loop
from rankstruct.kernels.dispatch import Answer, Call, CpuLists, ListOperator, PaddedLists
from rankstruct.measures.ranked import is_relevant

NO_CUTOFF = 2**62


class Method(NamedTuple):
    """One way to find the most violated ranking, in its two implementations.

    Attributes:
        name: how it works, in a few words.
        cost: its cost for a list of n documents, p of them relevant and m not.
        loop: the loop of the compiled core.
        padded: the twin in torch, `(PaddedLists, relevant, *options)` to the answer.
    """

    name: str
    cost: str
    loop: Loop
    padded: Callable[..., Answer]


def binary_kernel(
    name: str, options: str, method: Callable[..., tuple[Method, tuple[Any, ...]]], *, gains: bool = False
) -> ListOperator:
    """The operator `rankstruct::<name>`.

    Args:
        name: of the operator.
        options: the schema of what it takes beside the lists and what is relevant.
        method: `(longest, *options)` to the method, and the options of its loop and its twin.
        gains: whether labels are what documents gain, one gain above 0 a list.
    """

    def compiled(
        longest: int, min_relevant: float | None, thresholds: Tensor | None, weights: Tensor | None, *given: Any
    ) -> Call:
        chosen, own = method(longest, *given)
        from_label = math.nan if min_relevant is None else min_relevant
        check = _refuse_several_gains if gains else None
        return Call(chosen.loop, chosen.loop.options(*own), from_label, thresholds, weights, check)

    def padded(
        lists: PaddedLists, min_relevant: float | None, thresholds: Tensor | None, weights: Tensor | None, *given: Any
    ) -> Answer:
        chosen, own = method(lists.scores.shape[-1], *given)
        if thresholds is None or weights is None:
            return chosen.padded(lists, is_relevant(lists.labels, min_relevant), *own)
        return sum_over_thresholds(chosen, own, lists, thresholds, weights)

    schema = f"float? min_relevant, Tensor? thresholds, Tensor? weights{', ' if options else ''}{options}"
    return ListOperator(name, schema, compiled, padded, gains=gains)


def sum_over_thresholds(
    method: Method, options: tuple[Any, ...], lists: PaddedLists, thresholds: Tensor, weights: Tensor
) -> Answer:
    """What a method's twin finds at each threshold, each with a copy of the lists, summed with their weights."""
    count, device = thresholds.shape[0], lists.scores.device
    if count == 0:
        nothing = lists.scores.new_zeros(lists.scores.shape[0])
        return nothing, nothing.clone(), torch.zeros_like(lists.scores)
    reached = lists.labels >= thresholds.to(device).view(-1, 1, 1)
    scores, labels, where = (each.repeat(count, 1) for each in lists[:3])
    many = PaddedLists(scores, labels, where, None if lists.chosen is None else lists.chosen.repeat(count, 1))
    answers = method.padded(many, reached.flatten(0, 1), *options)
    # Not a product of matrices, which may be rounded to fewer digits.
    shares = (each.unflatten(0, (count, -1)) for each in answers)
    task_loss, value, direction = (
        (each * weights.to(device).view(-1, *[1] * (each.dim() - 1))).sum(0) for each in shares
    )
    return task_loss, value, direction


def _refuse_several_gains(lists: CpuLists) -> None:
    """Refuse relevant documents of different gains: these maps take binary relevance."""
    _, labels, where, offsets = lists.given[:4]
    gains = labels.double().numpy().reshape(-1)
    real = np.ones(gains.shape, bool) if where is None else where.numpy().reshape(-1)
    bounds = np.arange(lists.count + 1) * lists.longest if offsets is None else offsets.numpy()
    for first, last in pairwise(bounds):
        positions = first + np.flatnonzero(real[first:last] & (gains[first:last] > 0))
        other = positions[gains[positions] != gains[positions[:1]]] if positions.size else positions
        if other.size:
            raise ValueError(
                "labels have more than one grade above zero, and the pairwise map takes binary relevance: "
                f"{lists.place(int(positions[0]))} has gain {gains[positions[0]]:g}, {lists.place(int(other[0]))} has gain "
                f"{gains[other[0]]:g}. Give min_relevant= to the measure, such as nDCG(min_relevant=1), or take the "
                "positional map, feature_map='positional'"
            )
