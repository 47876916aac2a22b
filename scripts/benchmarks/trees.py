"""The scorer of boosted trees against LightGBM's own `predict` of the same model, one thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import rankstruct as rs
from benchmarks.timing import figures, interleaved_ratios
from rankstruct.kernels.threads import threads_of_torch

#: Documents, features, trees and leaves of each.
SHAPES = ((10_000, 50, 300, 31), (1000, 136, 100, 63), (100, 136, 100, 63))


def benchmark_trees(
    shapes: Sequence[tuple[int, int, int, int]] = SHAPES, rounds: int = 30, seed: int = 0
) -> list[dict[str, Any]]:
    """A row per shape and dtype of the features: lower quartile and median of the ratio, microseconds of the scorer."""
    return [row for shape in shapes for row in _time(*shape, rounds, seed)]


def _time(documents: int, d: int, trees: int, leaves: int, rounds: int, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    X, qid = rng.normal(size=(max(documents, 10_000), d)), np.arange(max(documents, 10_000)) // 20
    y = (np.square(X[:, :8]).sum(1) + rng.normal(size=len(X)) > 10).astype(int)
    ranker = rs.BoostedRanker(n_estimators=trees, num_leaves=leaves, validation_share=0.0, n_jobs=1).fit(X, y, qid)
    scorer, rows = ranker.to_scorer(), []
    for dtype in ("float64", "float32"):
        features = X[:documents].astype(dtype)
        given = torch.tensor(features)
        calls = {
            "scorer": lambda given=given: scorer(given),
            "lightgbm": lambda features=features: ranker.models_[0].predict(features, raw_score=True, num_threads=1),
        }
        with threads_of_torch(1):
            found = figures(*interleaved_ratios(calls, "lightgbm", rounds)["scorer"])
        shape = {"documents": documents, "features": d, "trees": trees, "leaves": leaves, "dtype": dtype}
        rows.append(shape | {name: round(value, 3) for name, value in found.items()})
    return rows
