"""The same number for the same thing, to the last bit: what a measure is computed with so that equal rankings tie.

A vectorised loop of torch leaves the end of a tensor, or of one thread's share of it, to a scalar loop that may round
otherwise; and the order in which a row is added up depends on the shape around it. Neither may show on the CPU: labels,
gains and values are compared by `==`. (Other devices have one function for all elements, but add up as they like.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rankstruct.lists import is_plain

_VECTORS, _SHARE = 64, 32768  # a whole number of vectors, however wide; what torch does not divide between threads


def row_sums(values: Tensor) -> Tensor:
    """The sums of the rows of `values` `[..., n]`, added from left to right, so that zeros behind a row change nothing.

    >>> row_sums(torch.tensor([[0.5, 0.25, 0.0]]))
    tensor([0.7500])
    """
    return values.cumsum(-1)[..., -1] if values.shape[-1] else values.sum(-1)


def elementwise(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """`function(values)` of any shape for an elementwise function, each result of its value alone and not of its place."""
    if not is_plain(values):
        return function(values)
    flat, size = values.reshape(-1), values.numel()
    filled = values.new_empty(size + -size % _VECTORS)
    filled[:size] = flat
    filled[size:] = flat[:1]
    for share in filled.split(_SHARE) if size else ():
        share.copy_(function(share))
    return filled[:size].view(values.shape)


def by_label(function: Callable[[Tensor], Tensor], labels: Tensor) -> Tensor:
    """`function(labels)` for an elementwise function of others, called once a distinct label; traced, as it is.

    >>> by_label(lambda labels: labels**2, torch.tensor([[0.0, 3.0], [3.0, 0.5]]))
    tensor([[0.0000, 9.0000],
            [9.0000, 0.2500]])
    """
    if not is_plain(labels) or not labels.numel():
        return function(labels)
    low, high = labels.aminmax()
    places = labels.long() if low >= 0 and high < 256 else None
    if places is not None and torch.equal(places.to(labels.dtype), labels):  # grades, which need no sort
        present = torch.bincount(places.reshape(-1)).nonzero().view(-1)
        found = elementwise(function, present.to(labels.dtype))
        table = found.new_zeros(int(high) + 1).index_copy(0, present, found)
    else:
        distinct, places = labels.unique(return_inverse=True)
        table = elementwise(function, distinct)
    return table.index_select(0, places.reshape(-1)).view(labels.shape)


def exponential_gain(labels: Tensor) -> Tensor:
    """2^label - 1 of real labels of any shape and kind, float64.

    >>> exponential_gain(torch.tensor([0.0, 2.0]))
    tensor([0., 3.], dtype=torch.float64)
    """
    if is_plain(labels):
        return _exponential_gain(labels)
    return _traced_gain(labels) if labels.device.type == "cpu" else torch.exp2(labels.double()) - 1


def _exponential_gain(labels: Tensor) -> Tensor:
    """`elementwise` of one function, in place: it stands in the hot path of losses."""
    size = labels.numel()
    filled = labels.new_empty(size + -size % _VECTORS, dtype=torch.float64)
    gains = filled[:size].view(labels.shape).copy_(labels)
    for share in filled.split(_SHARE) if size > _SHARE else (filled,):
        share.exp2_()
    return gains.sub_(1)


@torch.library.custom_op("rankstruct::exponential_gain", mutates_args=())
def _traced_gain(labels: Tensor) -> Tensor:
    """The same as an operator, which `torch.compile` leaves as it is."""
    return _exponential_gain(labels)


@_traced_gain.register_fake
def _(labels: Tensor) -> Tensor:
    return labels.new_empty(labels.shape, dtype=torch.float64)


@_traced_gain.register_vmap
def _(info: Any, in_dims: Any, labels: Tensor) -> Any:
    return _traced_gain(labels), in_dims[0]
