"""What the losses share: one way in (checks, padding, precision), one module around a function.

Every loss is a function `(scores, labels, *options, *, where, offsets, weights, reduction)` and a module with the same
options. Losses written in plain torch are functions of padded lists; `list_loss` brings flat ones into that form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from rankstruct.lists import batch_first, check_lists, check_offsets
from rankstruct.losses.reduction import check_reduction, reduce_lists
from rankstruct.losses.refusal import refuse
from rankstruct.measures import DiscountedGain, Measure, parse_measure

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
            order. On other devices the loss of such a list is NaN.
    """
    check_reduction(reduction)
    check_lists(scores, labels, where, offsets)
    dtype = scores.dtype
    real = check_values(scores.detach(), labels.detach(), where, offsets)
    scores = scores.float() if dtype in (torch.float16, torch.bfloat16) else scores
    labels = labels.detach().to(scores.dtype)
    if offsets is not None:
        positions = _positions(offsets.to(scores.device), scores.shape[0])
        real = positions >= 0
        source = positions.clamp(min=0)
        if scores.shape[0]:
            scores, labels = scores[source], labels[source]
        else:
            scores, labels = scores.sum().expand(real.shape), labels.sum().expand(real.shape)
    if offsets is None and scores.shape[-1] == 0:
        values = scores.sum(-1)
    else:
        values = per_list(torch.where(real, scores, 0.0), torch.where(real, labels, 0.0), real)
    if scores.device.type != "cpu":  # where nothing is read back, a list with a number that is not finite costs NaN
        broken = real & ~(scores.isfinite() & labels.isfinite())
        values = torch.where(broken.any(-1), torch.nan, values)
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
    #: Whether the loss of a list is a convex function of its scores.
    convex: ClassVar[bool] = False

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
        shown = {**self.options, "reduction": self.reduction}
        return ", ".join(f"{name}={getattr(value, 'name', value)}" for name, value in shown.items())


class _Piecewise(torch.autograd.Function):
    """A value and its direction, both found before: the gradient of a list is its direction times what comes back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, value: Tensor, direction: Tensor, offsets: Tensor | None) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        _, _, direction, offsets = inputs
        ctx.save_for_backward(direction, offsets)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        direction, offsets = ctx.saved_tensors
        if offsets is None:
            each = grads[0].unsqueeze(-1)
        else:
            lengths = offsets.diff().to(direction.device)
            each = grads[0].repeat_interleave(lengths, output_size=direction.shape[0])
        return each * direction, None, None, None


def with_gradient(scores: Tensor, value: Tensor, direction: Tensor, offsets: Tensor | None = None) -> Tensor:
    """`value`, one a list, as a function of `scores` `[..., list_size]`, or flat with `offsets`, with gradient `direction`."""
    return _Piecewise.apply(scores, value, direction, offsets)


def differs(values: Tensor, where: Tensor) -> Tensor:
    """`[...]` bool: whether two real documents of the list have different values."""
    highest = torch.where(where, values, -torch.inf).amax(-1)
    return highest > torch.where(where, values, torch.inf).amin(-1)


def normalized_measure(measure: str | Measure, loss: str) -> DiscountedGain:
    """The measure, which must be a discounted gain divided by that of the best ranking.

    Raises:
        ValueError: it is another one.
    """
    measure = parse_measure(measure)
    if not isinstance(measure, DiscountedGain) or not measure.normalized:
        raise ValueError(f"{loss} takes nDCG or another normalised discounted gain, got {measure.name}")
    return measure


def checked_gains(measure: DiscountedGain, labels: Tensor, where: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gains of the documents, float64, 0 in the padding; the value of the best ranking; which lists a ranking can get wrong.

    Returns:
        `[..., list_size]`, `[...]` and bool `[...]`.

    Raises:
        ValueError: on the CPU, a gain is negative or not finite; on other devices it is NaN.
    """
    gains = torch.where(where, measure.document_gains(labels), 0.0)
    gains = refuse(
        gains,
        ~((gains >= 0) & gains.isfinite()),
        f"labels must have finite gains >= 0 under {measure.name} (shift them, or choose another gain= or min_relevant=)",
    )
    discounts = measure.unchecked_weights(labels.shape[-1], labels.device)
    kept = labels.shape[-1] if measure.cutoff is None else min(measure.cutoff, labels.shape[-1])
    best = gains.topk(kept, dim=-1).values @ discounts[:kept]
    is_last = torch.arange(labels.shape[-1], device=labels.device) == where.sum(-1, keepdim=True) - 1
    falls = torch.where(is_last, discounts[0] - discounts, 0.0).sum(-1) > 0
    return gains, best, differs(gains, where) & (best > 0) & falls


def normalized_gains(measure: DiscountedGain, labels: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """`checked_gains` over the value of the best ranking, `[..., list_size]`, and which lists a ranking can get wrong."""
    gains, best, proper = checked_gains(measure, labels, where)
    return gains / torch.where(best > 0, best, 1.0).unsqueeze(-1), proper


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    """Raise ValueError unless `value` is one of `known`."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless `value` is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")


@torch.library.custom_op("rankstruct::checked_lists", mutates_args=())
def check_values(scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None) -> Tensor:
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


@check_values.register_fake
def _(scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None) -> Tensor:
    return scores.new_empty(scores.shape, dtype=torch.bool)


@check_values.register_vmap
def _(info: Any, in_dims: Any, scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None) -> Any:
    front = partial(batch_first, size=info.batch_size)
    if offsets is not None:
        offsets = offsets if in_dims[3] is None else offsets.movedim(in_dims[3], 0)[0]
        flat = front(scores, in_dims[0]), front(labels, in_dims[1])
        return torch.stack([check_values(s, y, None, offsets) for s, y in zip(*flat, strict=True)]), 0
    where = None if where is None else front(where, in_dims[2])
    return check_values(front(scores, in_dims[0]), front(labels, in_dims[1]), where, None), 0


@torch.library.custom_op("rankstruct::list_positions", mutates_args=())
def _positions(offsets: Tensor, documents: int) -> Tensor:
    """`[lists, longest list]` the flat position of each document, -1 for padding; never without a column."""
    lengths = offsets.diff()
    columns = torch.arange(max(int(lengths.max()), 1) if lengths.numel() else 1, device=offsets.device)
    positions = offsets[:-1].unsqueeze(1) + columns
    return torch.where(columns < lengths.unsqueeze(1), positions, -1).long()


@_positions.register_fake
def _(offsets: Tensor, documents: int) -> Tensor:
    longest = torch.library.get_ctx().new_dynamic_size(min=1)
    return offsets.new_empty((offsets.shape[0] - 1, longest), dtype=torch.int64)
