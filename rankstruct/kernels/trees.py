"""Scores of documents by a sum of binary trees: a compiled loop over CPU tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels import core
from rankstruct.kernels.threads import share_lists
from rankstruct.lists import is_eager

_BLOCK = 64  # documents that are done at a time
_WORTH_A_THREAD = 100_000  # descents, of one document in one tree


def score_trees(features: Tensor, forest: Iterable[Tensor], single: bool) -> Tensor:
    """The scores, float64 `[documents]`, of features `[documents, d]` of any real dtype, all on the CPU.

    Args:
        features: of the documents.
        forest: the buffers of a `rankstruct.models.TreeScorer`, which checks their indices.
        single: whether features are rounded to float32 first, and tiny ones are not zeros.
    """
    score: Any = _score if is_eager(features) else _operator
    return score(features, *forest, single)


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
    rows = features if features.dtype in (torch.float32, torch.float64) else features.double()
    tables = (threshold, branch, root, feature, at_missing, at_zero, bounds, member)
    zero = 0.0 if single else 1.0000000180025095e-35  # LightGBM's: 1e-35 in float32
    forest = core.forest.options(*(each.contiguous().numpy() for each in tables), zero, single)
    rows = rows.contiguous()
    documents, width = rows.shape
    scores = torch.empty(documents, dtype=torch.float64)
    given = ctypes.byref(forest), rows.data_ptr(), width, rows.dtype == torch.float64
    starts = np.append(np.arange(0, documents, _BLOCK), documents)

    def loop(first: int, last: int) -> int:
        return int(core.score_trees(*given, starts[first], starts[last], scores.data_ptr()))

    threads = min(torch.get_num_threads(), documents * len(root) // _WORTH_A_THREAD, len(starts) - 1)
    if share_lists(loop, starts, threads) == core.OUT_OF_MEMORY:
        raise MemoryError(f"no memory for {_BLOCK} documents as trees compare them, {len(feature)} numbers each")
    return scores


_operator = torch.library.custom_op("rankstruct::score_trees", _score, mutates_args=())


@_operator.register_fake
def _fake(features: Tensor, *rest: Any) -> Tensor:
    return features.new_empty(features.shape[0], dtype=torch.float64)


@_operator.register_vmap
def _vmap(info: Any, in_dims: Any, *given: Any) -> tuple[Tensor, int]:
    def example(at: int) -> Tensor:
        pairs = zip(given, in_dims, strict=True)
        return _operator(*(value if dim is None else value.select(dim, at) for value, dim in pairs))

    return torch.stack([example(at) for at in range(info.batch_size)]), 0
