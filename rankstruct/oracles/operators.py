"""Oracles as custom operators: what `torch.compile`, vmap and fake tensors see of them.

All have one signature, `(scores, labels, where, offsets, min_relevant, cutoff, weights, normalized)`; see
`kernels.ListKernel` for what it means.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from rankstruct.feature_maps import FeatureMap
from rankstruct.lists import batch_first
from rankstruct.measures import DiscountedGain, Measure
from rankstruct.oracles.kernels import NO_CUTOFF, Answer, ListKernel, Method, Parameters
from rankstruct.oracles.registry import Oracle


def define_operator(name: str, function: Callable[..., Answer], per_document: int = 0) -> Callable[..., Answer]:
    """The custom operator `rankstruct::<name>` of a function `(scores, labels, where, offsets, *parameters)` over lists.

    The first `per_document` of the parameters have the shape of `scores`, or are None.

    As `torch.library.custom_op` would make it, without its wrappers in Python: for one list they take as long as its sort. No
    argument of ours is changed or needs a gradient, which is what they look after.
    """
    qualified = f"rankstruct::{name}"
    torch.library.define(qualified, torch.library.infer_schema(function, mutates_args=()))
    torch.library.impl(qualified, "default", func=function)
    operator = getattr(torch.ops.rankstruct, name).default
    _register_lists(qualified, operator, per_document)
    return operator


def list_operator(name: str, kernel: ListKernel) -> Callable[..., Answer]:
    """The custom operator `rankstruct::<name>` of a kernel."""

    def function(
        scores: Tensor,
        labels: Tensor,
        where: Tensor | None,
        offsets: Tensor | None,
        min_relevant: float | None,
        cutoff: int | None,
        weights: Tensor | None,
        normalized: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        return kernel(scores, labels, where, offsets, min_relevant, cutoff, weights, normalized)

    return define_operator(name, function)


def _register_lists(qualified: str, operator: Callable[..., Answer], per_document: int) -> None:
    """Fake and vmap rules of an operator over lists."""

    @torch.library.register_fake(qualified)
    def _(scores, labels, where, offsets, *parameters):
        lists = scores.shape[:-1] if offsets is None else (offsets.shape[0] - 1,)
        return scores.new_empty(lists), scores.new_empty(lists), scores.new_empty(scores.shape)

    @torch.library.register_vmap(qualified)
    def _(info, in_dims, scores, labels, where, offsets, *parameters):
        size = info.batch_size

        front = partial(batch_first, size=size)
        scores, labels = front(scores, in_dims[0]), front(labels, in_dims[1])
        each_document = [
            None if value is None else front(value, dim)
            for value, dim in zip(parameters[:per_document], in_dims[4 : 4 + per_document], strict=True)
        ]
        rest = parameters[per_document:]
        if offsets is None:
            where = None if where is None else front(where, in_dims[2])
            return operator(scores, labels, where, None, *each_document, *rest), (0, 0, 0)
        # The same lists again and again, one behind the other.
        documents = scores.shape[1]
        each = front(offsets, in_dims[3])
        if bool((each[:, 0] != 0).any() | (each[:, -1] != documents).any()):
            raise ValueError(
                f"offsets must go from 0 to the number of documents, {documents}, for every example of vmap"
            )
        shift = torch.arange(size, device=each.device, dtype=each.dtype).unsqueeze(1) * documents
        joined = torch.cat([(each[:, :-1] + shift).flatten(), each.new_full((1,), size * documents)])
        task_loss, value, direction = operator(
            scores.flatten(),
            labels.flatten(),
            None,
            joined,
            *(None if value is None else value.flatten() for value in each_document),
            *rest,
        )
        return (task_loss.view(size, -1), value.view(size, -1), direction.view(size, documents)), (0, 0, 0)


def list_oracle(name: str, kernel: ListKernel, prefer: Callable[..., Answer], *, discounted: bool = False) -> Oracle:
    """The oracle of a kernel, as the custom operator `rankstruct::<name>`, for maps that like all ideal rankings alike.

    A kernel of discounted gains gets gains and discounts; others get the labels as they are. `prefer` is the operator whose
    ranking is the one that F prefers.
    """
    solver = _solve_discounted if discounted else _solve_binary
    operator = list_operator(name, kernel)
    solve, solve_preferred = solver(operator), solver(prefer)

    def explain(measure: Measure, feature_map: FeatureMap, list_size: int, grades: int) -> Method:
        weights = measure.position_weights(list_size).numpy() if isinstance(measure, DiscountedGain) else np.empty(0)
        cutoff = NO_CUTOFF if measure.cutoff is None else measure.cutoff
        return kernel.plan(Parameters(cutoff, weights, np.empty(0), False), list_size)[0]

    def preferred(
        scores: Tensor,
        labels: Tensor,
        where: Tensor | None,
        offsets: Tensor | None,
        measure: Measure,
        feature_map: FeatureMap,
        reference: str,
    ) -> Tensor:
        if reference != "predicted":
            return torch.zeros_like(scores)
        return solve_preferred(scores, labels, where, offsets, measure, feature_map, reference)[2]

    return Oracle(solve, explain, ("ideal", "ideal-tied"), preferred)


def _solve_binary(operator: Callable[..., Answer]) -> Callable[..., Answer]:

    def solve(
        scores: Tensor,
        labels: Tensor,
        where: Tensor | None,
        offsets: Tensor | None,
        measure: Measure,
        feature_map: FeatureMap,
        reference: str,
    ) -> Answer:
        return operator(scores, labels, where, offsets, measure.min_relevant, measure.cutoff, None, False)

    return solve


def _solve_discounted(operator: Callable[..., Answer]) -> Callable[..., Answer]:

    def solve(
        scores: Tensor,
        labels: Tensor,
        where: Tensor | None,
        offsets: Tensor | None,
        measure: DiscountedGain,
        feature_map: FeatureMap,
        reference: str,
    ) -> Answer:
        gains = measure.document_gains(labels)
        weights = measure.unchecked_weights(max(scores.shape[-1], 1))
        return operator(scores, gains, where, offsets, None, measure.cutoff, weights, type(measure).normalized)

    return solve
