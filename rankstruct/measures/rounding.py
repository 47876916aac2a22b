"""Bitwise reproducible arithmetic for the measures, so that equal rankings have exactly equal values.

A vectorised loop of torch leaves the end of a tensor, or of a thread's share of it, to a scalar loop that may round differently;
and the order of summation in a row depends on the shape of the tensor. Neither may affect results on the CPU: labels, gains and
values are compared by `==`. (Other devices use one function for all elements, but sum in any order.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rankstruct.lists import is_plain

_VECTORS, _SHARE = 64, 32768  # a multiple of any vector width; a size that torch does not split between threads


def row_sums(values: Tensor) -> Tensor:
    """Sum the rows of `values` `[..., n]` from left to right, so that trailing zeros change nothing.

    >>> row_sums(torch.tensor([[0.5, 0.25, 0.0]]))
    tensor([0.7500])
    """
    return values.cumsum(-1)[..., -1] if values.shape[-1] else values.sum(-1)


def elementwise(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """`function(values)` for an elementwise function, with results that do not depend on the position in the tensor."""
    if not is_plain(values):
        return function(values)
    flat, size = values.reshape(-1), values.numel()
    filled = values.new_empty(size + -size % _VECTORS)
    filled[:size] = flat
    filled[size:] = flat[:1]
    for share in filled.split(_SHARE) if size else ():
        found = function(share)
        if not (isinstance(found, Tensor) and found.shape in ((), share.shape)):
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise TypeError(
                "a function of labels or ranks, such as a gain or discount, must return a tensor of the shape of its argument, "
                f"one number for each; got {got}"
            )
        share.copy_(found)
    return filled[:size].view(values.shape)


def by_label(function: Callable[[Tensor], Tensor], labels: Tensor) -> Tensor:
    """`function(labels)` for a user's elementwise function, called only on distinct labels; when traced, called directly.

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
    """2^label - 1 for real labels of any shape and dtype, float64.

    >>> exponential_gain(torch.tensor([0.0, 2.0]))
    tensor([0., 3.], dtype=torch.float64)
    """
    if is_plain(labels):
        return _exponential_gain(labels)
    return _traced_gain(labels) if labels.device.type == "cpu" else torch.exp2(labels.double()) - 1


def _exponential_gain(labels: Tensor) -> Tensor:
    """`elementwise` for one function, in place: it is on the hot path of losses."""
    size = labels.numel()
    filled = labels.new_empty(size + -size % _VECTORS, dtype=torch.float64)
    gains = filled[:size].view(labels.shape).copy_(labels)
    for share in filled.split(_SHARE) if size > _SHARE else (filled,):
        share.exp2_()
    return gains.sub_(1)


@torch.library.custom_op("rankstruct::exponential_gain", mutates_args=())
def _traced_gain(labels: Tensor) -> Tensor:
    """The same as an operator, which `torch.compile` leaves unchanged."""
    return _exponential_gain(labels)


@_traced_gain.register_fake
def _(labels: Tensor) -> Tensor:
    return labels.new_empty(labels.shape, dtype=torch.float64)


@_traced_gain.register_vmap
def _(info: Any, in_dims: Any, labels: Tensor) -> Any:
    return _traced_gain(labels), in_dims[0]
