"""Reduction of one value per list to a loss."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from rankstruct.checks import check_choice
from rankstruct.lists import Lists, check_tensor, copied_to, is_plain, refuse

HALVES = (torch.float16, torch.bfloat16)

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = get_args(Reduction)


def reduce_lists(
    values: Tensor, lists: Lists, reduction: Reduction = "mean", dtype: torch.dtype | None = None
) -> Tensor:
    """Weighted mean or sum over the lists that are not all padding, or the weighted values themselves.

    Args:
        values: `[...]`, one per list.
        lists: where, offsets, and weights, broadcastable to `[...]`, as passed to the loss; or both where and offsets.
        reduction: `mean` is `sum(w l) / sum(w)`, and 0 if no list is left or all weights are 0.
        dtype: dtype of the result; that of the values if None.

    Raises:
        ValueError: unknown reduction, weights of the wrong shape, or (on the CPU; elsewhere the loss is NaN) negative or not
            finite; a loss that overflows the dtype (on the CPU, outside `torch.compile` and torch.func; elsewhere it is inf or
            NaN).
    """
    if reduction not in REDUCTIONS:
        check_choice("reduction", reduction, REDUCTIONS)
    where, offsets, weights = lists.where, lists.offsets, lists.weights
    dtype, plain = values.dtype if dtype is None else dtype, is_plain(values)
    if values.dtype in HALVES:  # half precision cannot count to 70,000
        values = values.float()
    if weights is not None:
        weights = _checked_weights(weights, values, plain)
    if reduction != "mean":
        reduced = values if weights is None else values * weights
        reduced = reduced.sum() if reduction == "sum" else reduced
    elif where is None and offsets is None and weights is None:
        reduced = values.mean() if values.numel() else values.sum()
    else:
        counted = torch.ones_like(values) if weights is None else weights
        if (real := _real_lists(where, offsets)) is not None:
            counted = counted * copied_to(values.device, real)
        total = counted.sum()
        reduced = (values * counted).sum() / torch.where(total == 0, 1.0, total)
    reduced = reduced.to(dtype)
    if plain and not (reduced.dim() == 0 and math.isfinite(reduced.item())):
        _refuse_overflow(reduced.detach(), values.detach())
    return reduced


def _checked_weights(weights: Tensor, values: Tensor, plain: bool) -> Tensor:
    """The weights in the shape and dtype of the values; raises an error if they are not numbers of 0 or more."""
    if not isinstance(weights, Tensor):
        check_tensor("weights", weights)
    try:
        weights = weights.to(values).expand(values.shape)
    except RuntimeError:
        raise ValueError(
            f"weights must be one per list, shape {tuple(values.shape)}; got {tuple(weights.shape)} (to weight documents, "
            "use item_weights)"
        ) from None
    if plain and weights.numel():
        lowest, highest = weights.detach().aminmax()  # NaN if there is one
        if lowest.item() >= 0 and highest.item() < math.inf:
            return weights
    return refuse(weights, ~((weights >= 0) & weights.isfinite()), "weights must be finite and >= 0", "list")


def _real_lists(where: Tensor | None, offsets: Tensor | None) -> Tensor | None:
    """Which lists are not all padding, `[...]`; None if this is known of all."""
    if where is None:
        return None if offsets is None else offsets.diff() > 0
    if offsets is None:
        return where.any(-1)
    before, offsets = torch.nn.functional.pad(where.cumsum(0), (1, 0)), copied_to(where.device, offsets)
    return before[offsets[1:]] > before[offsets[:-1]]


def shares_of_lists(value: Tensor, lists: Lists) -> tuple[Tensor, Tensor, Tensor] | None:
    """The mean of eager values, the weight of each list in it, and their sum, as `reduce_lists` computes them.

    None if the mean overflows or the weights have a gradient of their own.
    """
    assert lists.weights is not None
    counted = _checked_weights(lists.weights, value, True)
    if counted.requires_grad or not value.numel():
        return None
    if lists.where is not None or lists.offsets is not None:
        real = _real_lists(lists.where, lists.offsets)
        assert real is not None
        counted = counted * real
    total = counted.sum()
    if total.item() == 0:
        total = torch.ones_like(total)
    mean = (value * counted).sum() / total
    return (mean, counted, total) if math.isfinite(mean.item()) else None


def mean_of_values(value: Tensor, lists: Lists) -> tuple[float, int]:
    """The mean over the lists that are not all padding, and their number: `reduce_lists` by NumPy."""
    real, values = _real_lists(lists.where, lists.offsets), value.numpy()
    count = values.size if real is None else max(int(np.count_nonzero(real.numpy())), 1)
    # In the order of the compiled loops, which add up the same numbers.
    mean = float(np.add.accumulate(values.ravel(), dtype=np.float64)[-1]) / count
    if not abs(mean) <= torch.finfo(value.dtype).max:
        _refuse_overflow(value.new_tensor(mean), value)
    return mean, count


def _refuse_overflow(reduced: Tensor, values: Tensor) -> None:
    if reduced.dim() and bool(reduced.isfinite().all()):
        return
    broken = (~(values.to(reduced.dtype) if reduced.dim() == 0 else reduced).isfinite()).nonzero()
    at = broken[0].tolist() if len(broken) else []
    place = f" of list {at[0] if len(at) == 1 else at} is" if at else " of all lists together is"
    found = float(values[tuple(at)]) if at else math.inf
    raise ValueError(
        f"the loss{place} {found:g}: scores, labels or weights are too large for {reduced.dtype}. "
        "Is the learning rate too high? Scale them down, or use float64"
    )


def weighted_mean(each: Tensor, chosen: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean over the selected documents of a list, weighted by item weights if given; 0 if none are selected."""
    if weights is None:
        return torch.where(chosen, each, 0.0).sum(-1) / chosen.sum(-1).clamp(min=1)
    weights = torch.where(chosen, weights, 0.0)
    total = weights.sum(-1)
    return torch.where(chosen, weights * each, 0.0).sum(-1) / torch.where(total > 0, total, 1.0)


def first_share(ranked: Tensor, mass: Tensor, amount: Tensor | float) -> Tensor:
    """The share of each document, 0 to 1, among the first of its list that together have the mass `amount`.

    Documents of equal value, which the order would cut between, have equal shares.

    Args:
        ranked: `[..., list_size]`, values in either order, without gradient.
        mass: the same shape, 0 or more, and 0 in the padding, which comes last and has some share.
        amount: broadcasts to `[..., 1]`.

    >>> first_share(torch.tensor([1.0, 2.0, 2.0]), torch.ones(3), 2.0)
    tensor([1.0000, 0.5000, 0.5000])
    """
    room = amount - (mass.cumsum(-1) - mass)
    share = (room / mass.clamp(min=torch.finfo(mass.dtype).tiny)).clamp(0, 1)
    tied = ranked[..., 1:] == ranked[..., :-1]
    cut = tied & (share[..., 1:] != share[..., :-1])
    if is_plain(cut) and not bool(cut.any()):  # the usual case
        return share
    begins = torch.nn.functional.pad(~tied, (1, 0), value=True).expand(share.shape)
    total = mean_of_runs(mass, begins)
    return torch.where(total > 0, mean_of_runs(share * mass, begins) / total, share)


def mean_of_runs(values: Tensor, begins: Tensor) -> Tensor:
    """The mean over each run of neighbours, which starts where `begins`; both `[..., list_size]`, the first one True.

    >>> mean_of_runs(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([True, False, True]))
    tensor([2., 2., 5.])
    """
    if is_plain(begins) and bool(begins.all()):  # the usual case
        return values
    run = begins.cumsum(-1) - 1
    count = torch.zeros_like(values).scatter_add(-1, run, torch.ones_like(values)).gather(-1, run)
    return torch.zeros_like(values).scatter_add(-1, run, values / count).gather(-1, run)


def relative(weights: Tensor) -> Tensor:
    """Weights divided by the largest of the list, so that products of two neither overflow nor underflow."""
    return weights / weights.amax(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
