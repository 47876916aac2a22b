"""Autograd functions for values whose gradients have already been computed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rankstruct.lists import copied_to, is_eager, list_of_each


def with_gradient(scores: Tensor, value: Tensor, direction: Tensor, offsets: Tensor | None = None) -> Tensor:
    """`value`, one per list, as a function of `scores` `[..., list_size]`, or flat with `offsets`, with gradient `direction`."""
    if torch.compiler.is_compiling():
        return _GivenGradient.apply(scores, value, direction, offsets)
    function = _GivenGradientEager if is_eager(scores) else _GivenGradientForward
    return function.apply(scores, value, direction, offsets)


def with_curvature(
    scores: Tensor, value: Tensor, direction: Tensor, offsets: Tensor | None, again: Callable[[Tensor], Tensor]
) -> Tensor:
    """`with_gradient` for a smooth function; `again` recomputes it in torch, for higher-order derivatives."""
    return _SmoothGradient.apply(scores, value, direction, offsets, again)


def differentiable_once(gradient: Tensor, *inputs: Tensor) -> Tensor:
    """`gradient`, computed in a backward pass from `inputs`, as a function of these whose derivative is an error.

    torch's `once_differentiable` leaves it unconnected to them, so that in a sum with other terms the second derivatives of this
    one would be missing in silence.
    """
    gradient = gradient.detach()
    return _Once.apply(gradient, *inputs) if torch.is_grad_enabled() else gradient  # create_graph=True


class _Once(torch.autograd.Function):
    """Its first argument, as a function of all others."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, *inputs: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError(
            "this is differentiable once only: its gradient is estimated from samples or computed slice by slice, without a "
            "graph; for second derivatives use another loss, such as ApproxNDCGLoss, or sliced_scores(..., size=None)"
        )


class _GivenGradient(torch.autograd.Function):
    """A precomputed value and direction: the gradient of a list is its direction times the incoming gradient.

    The path of `torch.compile`, and with forward mode that of torch.func; `_GivenGradientEager` is the fast one.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, value: Tensor, direction: Tensor, offsets: Tensor | None) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        _, _, direction, offsets = inputs
        ctx.save_for_backward(direction, offsets)
        ctx.save_for_forward(direction, offsets)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        direction, offsets = ctx.saved_tensors
        each = grads[0].unsqueeze(-1) if offsets is None else _repeat_per_document(grads[0], direction, offsets)
        return each * direction, None, None, None


class _GivenGradientForward(_GivenGradient):
    """`_GivenGradient` with forward mode, which `torch.compile` refuses to trace."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        """The direction times the tangent of the scores, summed over each list."""
        direction, offsets = ctx.saved_tensors
        each = direction * tangents[0]
        if offsets is None:
            return each.sum(-1)
        its_list = copied_to(each.device, list_of_each(offsets, each.shape[0]))
        return each.new_zeros(offsets.shape[0] - 1).index_add(0, its_list, each)


# Set once; otherwise it is found at every call, which takes as long as sorting a list.
_GivenGradient.forward.__signature__ = inspect.signature(_GivenGradient.forward)  # type: ignore[attr-defined]


class _GivenGradientEager(torch.autograd.Function):
    """The fast path: `_GivenGradient` in eager mode, in half the time, since no arguments are bound and no context is set up."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, direction: Tensor, offsets: Tensor | None) -> Tensor:
        ctx.save_for_backward(direction, offsets)
        return value.clone()

    backward = _GivenGradient.backward


class _MeanGivenGradient(torch.autograd.Function):
    """The fast path of a mean: `_GivenGradientEager` and the mean over `count` lists in one node.

    An autograd node takes as long as sorting several lists.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, mean: float, count: int, direction: Tensor) -> Tensor:
        ctx.save_for_backward(direction)
        ctx.count = count
        return torch.scalar_tensor(mean, dtype=direction.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.saved_tensors[0] * (grads[0] / ctx.count), None, None, None


class _WeightedMeanGivenGradient(torch.autograd.Function):
    """As `_MeanGivenGradient`, with weights of the lists, which add up to `total`."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        mean: Tensor,
        weights: Tensor,
        total: Tensor,
        direction: Tensor,
        offsets: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(weights, total, direction, offsets)
        return mean.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        weights, total, direction, offsets = ctx.saved_tensors
        each = grads[0] / total * weights
        each = each.unsqueeze(-1) if offsets is None else _repeat_per_document(each, direction, offsets)
        return each * direction, None, None, None, None, None


#: `with_gradient` for eager scores.
eager_with_gradient = _GivenGradientEager.apply
#: The mean of `count` values as a function of the scores, with gradient `direction / count`.
mean_with_gradient = _MeanGivenGradient.apply
#: The same with weights of the lists.
weighted_mean_with_gradient = _WeightedMeanGivenGradient.apply


class _SmoothGradient(torch.autograd.Function):
    """`_GivenGradient` for a smooth function: higher-order derivatives are those of `again(scores)`, of the same values."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        value: Tensor,
        direction: Tensor,
        offsets: Tensor | None,
        again: Callable[[Tensor], Tensor],
    ) -> Tensor:
        ctx.save_for_backward(scores, direction, offsets)
        ctx.again = again
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        scores, direction, offsets = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            return *torch.autograd.grad(ctx.again(scores), scores, grads[0], create_graph=True), None, None, None, None
        each = grads[0].unsqueeze(-1) if offsets is None else _repeat_per_document(grads[0], direction, offsets)
        return each * direction, None, None, None, None


def _repeat_per_document(values: Tensor, documents: Tensor, offsets: Tensor) -> Tensor:
    """Repeat one value per list for each of its documents."""
    return values.repeat_interleave(copied_to(documents.device, offsets.diff()), output_size=documents.shape[0])
