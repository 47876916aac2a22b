"""Assignment of documents to distinct positions: the structured hinge over matchings.

There are n documents, m positions and a score for each pair. A matching pi places min(n, m) documents at different
positions; P(pi) is its 0/1 matrix `[n, m]`. With a cost C(i, j) of document i at position j, and none for unplaced documents,

    Delta(pi) = <C, P(pi)> - <C, P(pi*)>,     pi* the target
    hinge(S)  = max over pi of ( Delta(pi) + <S, P(pi)> ) - <S, P(reference)>
    gradient  = P(pi^) - P(reference),        pi^ the maximiser, a linear assignment problem with the values S + C

Padding is never matched, so n and m are the numbers of real documents and positions. SciPy solves each argmax on the CPU, in
O(n^3) for n documents and positions.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypedDict, Unpack

from rankstruct.lists import Lists, check_tensor, is_under_autocast, vmap_rule
from rankstruct.losses.autograd import with_gradient
from rankstruct.losses.base import RankingLoss
from rankstruct.losses.reduction import HALVES, Reduction, reduce_lists

__all__ = ["AssignmentHingeLoss", "AssignmentLayer", "assign_positions"]


class AssignmentOptions(TypedDict, total=False):
    """Keyword arguments of the loss of a matching."""

    target: Tensor | None
    where: Tensor | None
    where_positions: Tensor | None
    weights: Tensor | None
    reduction: Reduction


class AssignmentHingeLoss(RankingLoss):
    """Structured hinge loss of a matching: an upper bound of the excess cost of the best-scored matching over the target.

    Unlike the losses of lists, it is called with `loss(scores, cost, target=..., where=..., where_positions=..., weights=...,
    reduction=...)`:

        scores      `[..., documents, positions]`, any real numbers
        cost        C, broadcastable to the shape of `scores`; C(i, j) is the cost of document i at position j. If None, it is 1
                    unless j is the target of i: the task loss counts the documents at wrong positions
        target      `[..., documents]` integers, the position of each document, -1 for none; it must place as many documents as
                    possible. If None, the first matching of minimum cost that the solver finds. Matchings cheaper than the
                    target have a negative task loss
        where       bool `[..., documents]`, True for a real document. Padding may have any value, even NaN, and has zero gradient
        where_positions  bool `[..., positions]`, True for a real position
        weights     `[...]`, one weight per matrix
        reduction   as in the list contract; a matrix without a real pair has loss 0 and is not counted

    Args:
        reference: `"ideal"` is the target: the loss is convex and never negative; `"predicted"` is the matching of highest
            score: a tighter bound that is not convex, and never negative if the target is the cheapest.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        TypeError, ValueError: neither cost nor target; wrong types or shapes; a score or cost that is not finite; a target that
            is not a position, a position with two documents, or fewer documents placed than possible.

    Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 7.3; Crouse, "On implementing 2D rectangular
    assignment algorithms", IEEE TAES 2016 (the solver).

    >>> loss = AssignmentHingeLoss()
    >>> loss
    AssignmentHingeLoss(reference=ideal, reduction=mean)
    >>> loss(torch.tensor([[0.0, 0.2]]), torch.tensor([[0.0, 1.0]]))            # the second position costs 1
    tensor(1.2000)
    >>> scores = torch.tensor([[0.5, 0.0], [1.0, 0.0]], requires_grad=True)     # two documents, two positions
    >>> value = loss(scores, target=torch.tensor([0, 1]))
    >>> value.backward()
    >>> value.item(), scores.grad
    (2.5, tensor([[-1.,  1.],
            [ 1., -1.]]))
    """

    call_options = AssignmentOptions

    _: KW_ONLY
    reference: Literal["ideal", "predicted"] = "ideal"

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether the loss is a convex function of the scores."""
        return self.reference == "ideal"

    def forward(self, scores: Tensor, cost: Tensor | None = None, **lists: Unpack[AssignmentOptions]) -> Tensor:
        """The loss: a scalar, or one value per matrix with reduction `"none"`."""
        if isinstance(scores, Tensor) and is_under_autocast(scores):
            with torch.autocast(scores.device.type, enabled=False):
                return self.forward(scores.float() if scores.dtype in HALVES else scores, cost, **lists)
        return self._reduced(scores, cost, **self.checked_options(scores, cost, {**lists}))

    def checked_options(self, scores: Any, labels: Any, options: dict[str, Any]) -> dict[str, Any]:
        """The arguments beyond scores and cost; raises TypeError for others."""
        known = self.call_options.__annotations__
        for name in options:
            if name not in known:
                raise TypeError(
                    f"unexpected keyword argument {name!r}; in addition to scores and cost, this loss accepts {', '.join(known)}"
                )
        return super().checked_options(scores, labels, options)

    def _reduced(
        self,
        scores: Tensor,
        cost: Tensor | None,
        *,
        reduction: Reduction,
        target: Tensor | None = None,
        where: Tensor | None = None,
        where_positions: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        if cost is None and target is None:
            raise ValueError(
                "pass cost (one number per document and position), target (one position per document), or both"
            )
        real = _check_shapes(scores, cost, target, where, where_positions)
        exact = torch.where(real, scores.detach(), 0.0).double()
        target = None if target is None else _checked_target(target.expand(scores.shape[:-1]), real)
        costs = 1 - _matrix(target, scores) if cost is None else cost.detach().double().expand(scores.shape)  # type: ignore[arg-type]
        costs = torch.where(real, costs, 0.0)
        ideal = _matrix(_assign(costs, real, cheapest=True) if target is None else target, scores)
        chosen = ideal if self.reference == "ideal" else _matrix(_assign(exact, real), scores)
        worst = _matrix(_assign(exact + costs, real), scores)
        direction = worst - chosen
        value = (costs * (worst - ideal)).sum((-1, -2)) + (exact * direction).sum((-1, -2))
        if self.reference == "ideal":
            value = value.clamp(min=0.0)  # of rounding, for the target is one of the matchings
        flat = with_gradient(scores.flatten(-2), value.to(scores.dtype), direction.to(scores.dtype).flatten(-2))
        return reduce_lists(flat, Lists(costs, real.flatten(-2), weights=weights), reduction)


def assign_positions(scores: Tensor, *, where: Tensor | None = None, where_positions: Tensor | None = None) -> Tensor:
    """The matching of highest score: the position of each document, -1 if it is not placed.

    As many documents as possible are placed, whatever the signs of the scores; for a matching of minimum cost pass `-cost`.

    Args:
        scores: `[..., documents, positions]`.
        where: bool `[..., documents]`, True for a real document.
        where_positions: bool `[..., positions]`, True for a real position.

    Returns:
        `[..., documents]` int64, without gradient.

    Raises:
        TypeError, ValueError: wrong types or shapes, or a score that is not finite.

    >>> assign_positions(torch.tensor([[0.5, 0.0], [1.0, 0.0], [0.1, 0.2]]))
    tensor([-1,  0,  1])
    """
    real = _check_shapes(scores, None, None, where, where_positions)
    return _assign(scores.detach(), real)


class AssignmentLayer(torch.nn.Module):
    """`assign_positions` as the last layer of a model, for prediction.

    >>> AssignmentLayer()(torch.tensor([[0.0, 1.0], [0.0, 2.0]]))
    tensor([0, 1])
    """

    def forward(self, scores: Tensor, *, where: Tensor | None = None, where_positions: Tensor | None = None) -> Tensor:
        """Positions `[..., documents]` of scores `[..., documents, positions]`."""
        return assign_positions(scores, where=where, where_positions=where_positions)


def _matrix(positions: Tensor, like: Tensor) -> Tensor:
    """P of positions `[..., documents]`, float64 `[..., documents, positions]`."""
    return (positions.unsqueeze(-1) == torch.arange(like.shape[-1], device=positions.device)).double()


def _check_shapes(
    scores: Tensor, cost: Tensor | None, target: Tensor | None, where: Tensor | None, where_positions: Tensor | None
) -> Tensor:
    """Check types and shapes; returns the mask of real pairs, in the shape of scores."""
    given = {"cost": cost, "target": target, "where": where, "where_positions": where_positions}
    for name, value in {"scores": scores, **given}.items():
        if value is not None:
            check_tensor(name, value)
        if value is not None and value.device != scores.device:
            raise ValueError(f"{name} must be on the device of scores, {scores.device}; got {value.device}")
    if not scores.dtype.is_floating_point:
        raise TypeError(f"scores must be floating point, got {scores.dtype}; use scores.float()")
    if scores.dim() < 2:
        raise ValueError(f"scores must have shape [..., documents, positions], got {tuple(scores.shape)}")
    if target is not None and target.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"target must be integers, positions from 0 or -1 for none; got {target.dtype}")
    shapes = {
        "cost": scores.shape,
        "target": scores.shape[:-1],
        "where": scores.shape[:-1],
        "where_positions": (*scores.shape[:-2], scores.shape[-1]),
    }
    for name, value in given.items():
        if value is None:
            continue
        if name.startswith("where") and value.dtype != torch.bool:
            raise TypeError(f"{name} must be boolean (True = real), got {value.dtype}; use {name}.bool()")
        try:
            value.expand(shapes[name])
        except RuntimeError:
            raise ValueError(
                f"{name} must have shape {tuple(shapes[name])} for scores [..., documents, positions] = {tuple(scores.shape)}; "
                f"got {tuple(value.shape)}"
            ) from None
    real = torch.ones(scores.shape, dtype=torch.bool, device=scores.device)
    if where is not None:
        real = real & where.unsqueeze(-1)
    return real if where_positions is None else real & where_positions.unsqueeze(-2)


@torch.library.custom_op("rankstruct::assign", mutates_args=())
def _assign(values: Tensor, real: Tensor, cheapest: bool = False) -> Tensor:
    """Positions `[..., documents]` that maximise the sum of `values` over a matching of the real pairs, or minimise it; -1 if not
    placed.
    """
    from scipy.optimize import linear_sum_assignment

    documents, positions = values.shape[-2:]
    found = np.full((values.shape[:-2].numel(), documents), -1, np.int64)
    matrices = values.detach().double().cpu().numpy().reshape(-1, documents, positions) if values.numel() else ()
    masks = real.cpu().numpy().reshape(-1, documents, positions) if values.numel() else ()
    for number, (matrix, mask) in enumerate(zip(matrices, masks, strict=True)):
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        chosen = matrix[np.ix_(rows, columns)]
        if not np.isfinite(chosen).all():
            row, column = np.argwhere(~np.isfinite(chosen))[0]
            raise ValueError(
                f"scores and costs must be finite; document {rows[row]} at position {columns[column]} of matrix {number} has "
                f"{chosen[row, column]}. Padding belongs in where"
            )
        first, second = linear_sum_assignment(chosen, maximize=not cheapest)
        found[number, rows[first]] = columns[second]
    return torch.from_numpy(found.reshape(values.shape[:-1])).to(values.device)


@_assign.register_fake
def _(values: Tensor, real: Tensor, cheapest: bool = False) -> Tensor:
    return values.new_empty(values.shape[:-1], dtype=torch.int64)


@torch.library.custom_op("rankstruct::checked_assignment", mutates_args=())
def _checked_target(target: Tensor, real: Tensor) -> Tensor:
    """`target` `[..., documents]` with -1 for padding; ValueError unless it is a complete matching of the real pairs."""
    documents, positions = real.shape[-2:]
    if real.numel() == 0:
        return torch.full(target.shape, -1, dtype=torch.int64, device=target.device)
    target = torch.where(real.any(-1), target.long(), -1)
    rows = target.reshape(-1, documents).cpu().numpy()
    masks = real.cpu().numpy().reshape(-1, documents, positions)
    for number, (row, mask) in enumerate(zip(rows, masks, strict=True)):
        placed = row[row != -1]
        open_positions = np.asarray(mask.any(0))
        inside = (placed >= 0) & (placed < positions)
        if not inside.all() or not open_positions[placed].all():
            wrong = placed[~inside][0] if not inside.all() else placed[~open_positions[placed]][0]
            raise ValueError(
                f"target must be real positions from 0 to {positions - 1}, or -1; got {wrong} in matrix {number}"
            )
        if len(np.unique(placed)) < len(placed):
            raise ValueError(
                f"target must assign each position to at most one document; that of matrix {number} is {row.tolist()}"
            )
        full = min(int(mask.any(1).sum()), int(open_positions.sum()))
        if len(placed) != full:
            raise ValueError(
                f"target must place as many documents as possible, {full} in matrix {number}; it places {len(placed)}"
            )
    return target


@_checked_target.register_fake
def _(target: Tensor, real: Tensor) -> Tensor:
    return target.new_empty(target.shape, dtype=torch.int64)


_assign.register_vmap(vmap_rule(_assign))
_checked_target.register_vmap(vmap_rule(_checked_target))
