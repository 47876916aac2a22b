"""Oracles of the pairwise feature map: merging two sorted lists.

Documents of the same label never need to be swapped, so a ranking is the number of bads above each good,
b_1 <= ... <= b_p, and with S(b) the sum of the b highest bad scores

    Delta + F(r) - F(r*) = Delta + 2/(p m) sum_i ( S(b_i) - b_i s(g_i) )

Each oracle is a custom operator, so that `torch.compile`, vmap and fake tensors treat it as one step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rankstruct.feature_maps import FeatureMap, Pairwise
from rankstruct.measures import AP, AUC, Measure
from rankstruct.oracles.kernels import Answer, ListKernel
from rankstruct.oracles.kernels.pairwise_cpu import auc_lists, average_precision_lists
from rankstruct.oracles.kernels.pairwise_device import auc_padded, average_precision_padded
from rankstruct.oracles.registry import Oracle, register_oracle


def _binary_operator(name: str, kernel: ListKernel) -> Callable[..., Answer]:
    """The custom operator of an oracle on binary relevance: (scores, labels, where, offsets, min_relevant)."""

    @torch.library.custom_op(f"rankstruct::{name}", mutates_args=())
    def operator(
        scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None, min_relevant: float | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        return kernel(scores, labels, min_relevant, where, offsets)

    @operator.register_fake
    def _(scores, labels, where, offsets, min_relevant):
        lists = scores.shape[:-1] if offsets is None else (offsets.shape[0] - 1,)
        return scores.new_empty(lists), scores.new_empty(lists), scores.new_empty(scores.shape)

    @operator.register_vmap
    def _(info, in_dims, scores, labels, where, offsets, min_relevant):
        size = info.batch_size

        def front(value: Tensor, dim: int | None) -> Tensor:
            return value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)

        scores, labels = front(scores, in_dims[0]), front(labels, in_dims[1])
        if offsets is None:
            where = None if where is None else front(where, in_dims[2])
            return operator(scores, labels, where, None, min_relevant), (0, 0, 0)
        # The same lists again and again, one behind the other.
        documents = scores.shape[1]
        each = front(offsets, in_dims[3])
        shift = torch.arange(size, device=each.device, dtype=each.dtype).unsqueeze(1) * documents
        joined = torch.cat([(each[:, :-1] + shift).flatten(), each.new_full((1,), size * documents)])
        task_loss, value, direction = operator(scores.flatten(), labels.flatten(), None, joined, min_relevant)
        return (task_loss.view(size, -1), value.view(size, -1), direction.view(size, documents)), (0, 0, 0)

    return operator


_auc = _binary_operator("pairwise_auc", ListKernel(auc_lists, auc_padded))
_average_precision = _binary_operator(
    "pairwise_average_precision", ListKernel(average_precision_lists, average_precision_padded)
)


def _solve_with(operator: Callable[..., Answer]) -> Callable[..., Answer]:
    def solve(
        scores: Tensor,
        labels: Tensor,
        where: Tensor | None,
        offsets: Tensor | None,
        measure: Measure,
        feature_map: FeatureMap,
        reference: str,
    ) -> Answer:
        # `ideal` and `ideal-tied` are the same here: all goods above all bads, and F does not see the order within.
        return operator(scores, labels, where, offsets, measure.min_relevant)

    return solve


# SVMauc: Joachims, "A Support Vector Method for Multivariate Performance Measures", ICML 2005.
register_oracle(
    AUC,
    Pairwise,
    Oracle(
        _solve_with(_auc),
        method="each pair by itself, counted by a merge",
        cost="O(n) after an O(n) radix sort",
        references=("ideal", "ideal-tied"),
    ),
    default=True,
)

# SVMmap: Yue, Finley, Radlinski, Joachims, "A Support Vector Method for Optimizing Average Precision", SIGIR 2007.
register_oracle(
    AP,
    Pairwise,
    Oracle(
        _solve_with(_average_precision),
        method="monotone divide and conquer over the irrelevant documents",
        cost="O(n + p log m) after an O(n) radix sort",
        references=("ideal", "ideal-tied"),
        serves=lambda measure: measure.cutoff is None,
    ),
    default=True,
)
