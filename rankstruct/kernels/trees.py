"""Scores of documents by a sum of binary trees: a compiled loop over CPU tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels import core
from rankstruct.kernels.threads import share_lists
from rankstruct.lists import is_eager

__all__ = ["score_trees"]

_BLOCK = 64  # documents: no thread has a part of one
_WORTH_A_THREAD = 100_000  # descents of a tree by a document
# Of what a forest is made of.
_KINDS = (
    *(torch.float64, torch.int32, torch.int64),
    *(torch.int64, torch.float64, torch.float64, torch.int64, torch.bool),
)


def score_trees(
    features: Tensor,
    threshold: Tensor,
    branch: Tensor,
    root: Tensor,
    feature: Tensor,
    at_missing: Tensor,
    at_zero: Tensor,
    bounds: Tensor,
    member: Tensor,
    single: bool,
) -> Tensor:
    """The scores, float64 `[documents]`; what trees are made of is that of `rankstruct.models.TreeScorer`, all on the CPU.

    Indices are not checked.

    Args:
        features: `[documents, d]`, of any real dtype.
        threshold, branch: of the nodes of all trees, `[nodes]` and `[nodes, 2]`.
        root: `[trees]`, nodes.
        feature, at_missing, at_zero: of the columns, `[columns]` each.
        bounds, member: `[columns + 1]` and `[categories]`, of the categories of each column.
        single: whether features are rounded to float32 first, and none counts as zero but 0.
    """
    score = _score if is_eager(features) else _operator
    return score(features, threshold, branch, root, feature, at_missing, at_zero, bounds, member, single)


def _score(
    features: Tensor,
    threshold: Tensor,
    branch: Tensor,
    root: Tensor,
    feature: Tensor,
    at_missing: Tensor,
    at_zero: Tensor,
    bounds: Tensor,
    member: Tensor,
    single: bool,
) -> Tensor:
    given = (threshold, branch, root, feature, at_missing, at_zero, bounds, member)
    forest = [each.to(kind).contiguous() for each, kind in zip(given, _KINDS, strict=True)]
    rows = features if features.dtype in (torch.float32, torch.float64) else features.double()
    rows = rows.contiguous()
    documents, width = rows.shape
    scores = torch.empty(documents, dtype=torch.float64)
    arrays = [each.data_ptr() for each in (rows, *forest)]
    counts = (width, len(threshold), len(root), len(feature), len(member), rows.dtype == torch.float64, single)

    def loop(first: int, last: int) -> int:
        return int(core.score_trees(*arrays, *counts, first, min(last, documents), scores.data_ptr()))

    blocks = -(-documents // _BLOCK)
    threads = min(torch.get_num_threads(), documents * len(root) // _WORTH_A_THREAD, blocks)
    if threads < 2:
        found = loop(0, documents)
    else:
        found = share_lists(lambda first, last: loop(first * _BLOCK, last * _BLOCK), np.arange(blocks + 1), threads)
    if found == core.OUT_OF_MEMORY:
        raise MemoryError(f"no memory for a block of documents with {len(feature)} features that trees look at")
    return scores


_operator = torch.library.custom_op("rankstruct::score_trees", _score, mutates_args=())


@_operator.register_fake
def _fake(features: Tensor, *forest: Any) -> Tensor:
    return features.new_empty(features.shape[0], dtype=torch.float64)


@_operator.register_vmap
def _vmap(info: Any, in_dims: Any, *given: Any) -> tuple[Tensor, int]:
    each = [
        score_trees(*(value if dim is None else value.select(dim, at) for value, dim in zip(given, in_dims, strict=True)))
        for at in range(info.batch_size)
    ]
    return torch.stack(each), 0
