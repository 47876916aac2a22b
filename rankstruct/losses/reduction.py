"""From one value a list to what `reduction` asks for; every loss ends here."""

from __future__ import annotations

import torch
from torch import Tensor

from rankstruct.losses.refusal import refuse

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(reduction: str) -> None:
    """Raise ValueError unless `reduction` is one that `reduce_lists` knows."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, got {reduction!r}")


def reduce_lists(
    values: Tensor,
    *,
    where: Tensor | None,
    offsets: Tensor | None,
    weights: Tensor | None,
    reduction: str,
) -> Tensor:
    """Weighted mean or sum over the lists that are not all padding, or the weighted values themselves.

    Args:
        values: `[...]`, one a list.
        where: `[..., list_size]` or None, as given to the loss.
        offsets: `[lists + 1]` or None, as given to the loss.
        weights: `[...]` or what broadcasts to it, one a list, or None for 1 each.
        reduction: `mean` is `sum(w l) / sum(w)`, and 0 where no list is left or all weights are 0.

    Raises:
        ValueError: unknown reduction, weights of another shape, or (on the CPU; elsewhere the loss is NaN) below 0 or not finite.
    """
    check_reduction(reduction)
    dtype = values.dtype
    if dtype in (torch.float16, torch.bfloat16):  # half precision cannot count to 70,000
        values = values.float()
    return _reduced(values, where, offsets, weights, reduction).to(dtype)


def _reduced(
    values: Tensor, where: Tensor | None, offsets: Tensor | None, weights: Tensor | None, reduction: str
) -> Tensor:
    if weights is not None:
        if not isinstance(weights, Tensor):
            raise TypeError(
                f"weights must be a torch.Tensor, got {type(weights).__name__}; use torch.as_tensor(weights)"
            )
        try:
            weights = weights.to(values).expand(values.shape)
        except RuntimeError:
            raise ValueError(
                f"weights must be one a list, shape {tuple(values.shape)}; got {tuple(weights.shape)}"
            ) from None
        weights = refuse(weights, ~((weights >= 0) & weights.isfinite()), "weights must be finite and >= 0", "list")
    if reduction != "mean":
        weighted = values if weights is None else values * weights
        return weighted.sum() if reduction == "sum" else weighted
    if where is None and offsets is None and weights is None:
        return values.mean() if values.numel() else values.sum()
    counted = torch.ones_like(values) if weights is None else weights
    if where is not None:
        counted = counted * where.any(-1)
    elif offsets is not None:
        counted = counted * (offsets.diff() > 0).to(values.device)
    total = counted.sum()
    return (values * counted).sum() / torch.where(total == 0, 1.0, total)
