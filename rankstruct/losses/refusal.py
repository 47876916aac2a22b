"""Wrong numbers: an error where reading them back is free, NaN where it would stall every step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def refuse(values: Tensor, wrong: Tensor, rule: str, what: str = "document") -> Tensor:
    """`values` if nothing is `wrong` (bool, same shape); else a ValueError with the rule on the CPU, NaN on other devices.

    >>> refuse(torch.tensor([1.0, -2.0]), torch.tensor([False, True]), "weights must be >= 0", "list")
    Traceback (most recent call last):
    ...
    ValueError: weights must be >= 0; that of list 1 is -2
    """
    return torch.where(_refuse(values.detach(), wrong, rule, what), torch.nan, values)


# An operator, so that `torch.compile` does not look at the values.
@torch.library.custom_op("rankstruct::refuse", mutates_args=())
def _refuse(values: Tensor, wrong: Tensor, rule: str, what: str) -> Tensor:
    if values.device.type == "cpu" and bool(wrong.any()):
        at = wrong.nonzero()[0].tolist()
        place = f" {at[0] if len(at) == 1 else at}" if at else ""
        raise ValueError(f"{rule}; that of {what}{place} is {float(values[tuple(at)]):g}")
    return wrong.clone()


@_refuse.register_fake
def _(values: Tensor, wrong: Tensor, rule: str, what: str) -> Tensor:
    return torch.empty_like(wrong)


@_refuse.register_vmap
def _(info: Any, in_dims: Any, values: Tensor, wrong: Tensor, rule: str, what: str) -> Any:
    both = (
        given.expand(info.batch_size, *given.shape) if dim is None else given.movedim(dim, 0)
        for given, dim in zip((values, wrong), in_dims[:2], strict=True)
    )
    return _refuse(*both, rule, what), 0
