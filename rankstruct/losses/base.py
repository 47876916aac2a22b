"""What the losses share: one way in (checks, padding, precision), one module around a function.

Every loss is a function `(scores, labels, *options, *, where, offsets, weights, reduction)` and a module with the same
options. Losses written in plain torch are functions of padded lists; `list_loss` brings flat ones into that form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from rankstruct.lists import check_lists, check_offsets
from rankstruct.losses.reduction import check_reduction, reduce_lists

PerList = Callable[[Tensor, Tensor, Tensor], Tensor]


def list_loss(
    per_list: PerList,
    scores: Tensor,
    labels: Tensor,
    *,
    where: Tensor | None,
    offsets: Tensor | None,
    weights: Tensor | None,
    reduction: str,
) -> Tensor:
    """Apply a loss of padded lists to what a user gave, and reduce it.

    Args:
        per_list: `(scores, labels, where)` to one value a list `[...]`; all `[..., list_size]`, scores and labels float32 or
            float64 and 0 in the padding, `where` bool.
        scores: `[..., list_size]`, or `[documents]` with `offsets`.
        labels: graded relevance, the shape of `scores`.
        where: bool, the shape of `scores`, True for a real document.
        offsets: int64 `[lists + 1]`, for flat input.
        weights: `[...]`, one weight a list.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        TypeError, ValueError: types or shapes do not fit; on the CPU, a score or label that is not finite, or offsets out of
            order.
    """
    check_reduction(reduction)
    check_lists(scores, labels, where, offsets)
    dtype = scores.dtype
    real = _checked(scores.detach(), labels.detach(), where, offsets)
    scores = scores.float() if dtype in (torch.float16, torch.bfloat16) else scores
    labels = labels.detach().to(scores.dtype)
    if offsets is not None:
        positions = _positions(offsets.to(scores.device), scores.shape[0])
        real = positions >= 0
        source = positions.clamp(min=0)
        scores, labels = (scores[source], labels[source]) if scores.shape[0] else (scores.expand(real.shape),) * 2
    values = per_list(torch.where(real, scores, 0.0), torch.where(real, labels, 0.0), real)
    return reduce_lists(values, where=real, offsets=None, weights=weights, reduction=reduction).to(dtype)


class RankingLoss(torch.nn.Module):
    """A loss function and its options as a module.

    Args:
        reduction: `"mean"`, `"sum"` or `"none"`.
        options: what else the function takes.

    Shapes:
        scores, labels and where `[..., list_size]`, weights `[...]`; or scores and labels `[documents]`, offsets `[lists + 1]`,
        weights `[lists]`.
    """

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, reduction: str = "mean", **options: Any) -> None:
        super().__init__()
        check_reduction(reduction)
        self.reduction = reduction
        self.options = options

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        *,
        where: Tensor | None = None,
        offsets: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The loss; a scalar, or one value a list with reduction `"none"`."""
        return type(self).function(
            scores, labels, where=where, offsets=offsets, weights=weights, reduction=self.reduction, **self.options
        )

    def extra_repr(self) -> str:
        """The options and the reduction."""
        return ", ".join(f"{name}={value}" for name, value in {**self.options, "reduction": self.reduction}.items())


@torch.library.custom_op("rankstruct::checked_lists", mutates_args=())
def _checked(scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None) -> Tensor:
    """Which documents are real; on the CPU, where that costs nothing, their numbers are checked.

    An operator, so that `torch.compile` does not look at the values.
    """
    real = torch.ones(scores.shape, dtype=torch.bool, device=scores.device) if where is None else where.clone()
    if scores.device.type == "cpu":
        for name, values in (("score", scores), ("label", labels)):
            if values.dtype.is_floating_point and not bool(values.isfinite().all()):
                broken = (real & ~values.isfinite()).nonzero()
                if len(broken):
                    at = broken[0].tolist()
                    place = f"document {at[0] if len(at) == 1 else at}"
                    raise ValueError(
                        f"{name}s must be finite; {place} is {float(values[tuple(at)])}. Padding belongs in where"
                    )
    if offsets is not None:
        check_offsets(offsets, scores.shape[0])
    return real


@_checked.register_fake
def _(scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None) -> Tensor:
    return scores.new_empty(scores.shape, dtype=torch.bool)


@_checked.register_vmap
def _(info: Any, in_dims: Any, scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None) -> Any:
    def front(value: Tensor, dim: int | None) -> Tensor:
        return value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)

    if offsets is not None:
        offsets = offsets if in_dims[3] is None else offsets.movedim(in_dims[3], 0)[0]
        flat = front(scores, in_dims[0]), front(labels, in_dims[1])
        return torch.stack([_checked(s, y, None, offsets) for s, y in zip(*flat, strict=True)]), 0
    where = None if where is None else front(where, in_dims[2])
    return _checked(front(scores, in_dims[0]), front(labels, in_dims[1]), where, None), 0


@torch.library.custom_op("rankstruct::list_positions", mutates_args=())
def _positions(offsets: Tensor, documents: int) -> Tensor:
    """`[lists, longest list]` the flat position of each document, -1 for padding."""
    lengths = offsets.diff()
    columns = torch.arange(int(lengths.max()) if lengths.numel() else 0, device=offsets.device)
    positions = offsets[:-1].unsqueeze(1) + columns
    return torch.where(columns < lengths.unsqueeze(1), positions, -1).long()


@_positions.register_fake
def _(offsets: Tensor, documents: int) -> Tensor:
    longest = torch.library.get_ctx().new_dynamic_size()
    return offsets.new_empty((offsets.shape[0] - 1, longest), dtype=torch.int64)
