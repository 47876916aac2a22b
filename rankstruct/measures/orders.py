"""The mean of a measure over all orders of tied documents, by enumeration, for measures without a closed form."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rankstruct.measures.ranked import RankedLists
from rankstruct.measures.rounding import row_sums

MOST = 5000
"""Maximum number of orders per list. Documents with the same label and group are interchangeable: their orders count once."""


def mean_over_orders(
    compute: Callable[[RankedLists], tuple[Tensor, Tensor]], lists: RankedLists, name: str
) -> tuple[Tensor, Tensor]:
    """Average the values of `compute`, which does not support ties, over all orders of the tied documents.

    Raises:
        ValueError: a list has more than `MOST` orders; the message names the measure and the alternatives.
    """
    assert lists.first is not None
    assert lists.last is not None
    values, defined = compute(replace(lists, first=None, last=None))
    values = values.clone()
    for row in torch.ne(lists.first, lists.last).any(-1).nonzero().view(-1).tolist():
        orders = torch.as_tensor(_orders(lists, row, name), device=lists.order.device)
        each = compute(lists.select(orders.new_full((len(orders),), row)).reordered(orders))[0]
        values[row] = row_sums(each.sort().values) / len(orders)
    return values, defined


def _orders(lists: RankedLists, row: int, name: str) -> np.ndarray:
    """The distinct orders of a list's documents, `[orders, list_size]`, as indices into the current ranking."""
    assert lists.first is not None
    told_apart = (lists.labels, lists.diversity_groups, lists.judged, lists.pooled, lists.weights)
    alike = torch.stack([each[row].double() for each in told_apart if each is not None])
    kinds = alike.unique(dim=1, return_inverse=True)[1].cpu().numpy()
    starts, sizes = np.unique(lists.first[row].cpu().numpy(), return_counts=True)
    blocks = [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    count = math.prod(_count(kinds[block.start : block.stop]) for block in blocks)
    if count > MOST:
        raise ValueError(
            f"{name} has no closed form for tied scores, and the tied documents of list {int(lists.index[row])} have "
            f"{count:,} different orders, more than the limit of {MOST:,}; choose ties='input', 'worst' or 'docid', or write a "
            "compute that supports tied documents and declare under_ties = 'closed form'"
        )
    choices = [list(_arrangements([*block], kinds)) for block in blocks]
    return np.array([list(itertools.chain(*chosen)) for chosen in itertools.product(*choices)])


def _count(kinds: np.ndarray) -> int:
    return math.factorial(len(kinds)) // math.prod(map(math.factorial, Counter(kinds.tolist()).values()))


def _arrangements(block: list[int], kinds: np.ndarray) -> Iterator[list[int]]:
    """The indices of a block in all orders that differ in their kinds."""
    alike = [place for place in block if kinds[place] == kinds[block[0]]]
    others = [place for place in block if kinds[place] != kinds[block[0]]]
    for rest in _arrangements(others, kinds) if others else [[]]:
        for positions in itertools.combinations(range(len(block)), len(alike)):
            order = [*rest]
            for position, place in zip(positions, alike, strict=True):
                order.insert(position, place)
            yield order
