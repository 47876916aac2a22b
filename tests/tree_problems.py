"""Random trees, a plain walk down each, and the scorer of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rankstruct.estimators.boosting import _Split, _tree_scorer
from rankstruct.models import TreeScorer

TINY = float(np.float32(1e-35))  # LightGBM takes what is not larger for 0


class Node(NamedTuple):
    """An inner node, as LightGBM describes one: features that are missing are none of them, NaN, or NaN and zeros."""

    feature: int
    threshold: float
    missing: str  # None, NaN, Zero
    to_left: bool
    categories: frozenset[int]  # where there are any, these go left
    left: Node | float
    right: Node | float


def draw_forest(rng: np.random.Generator, d: int, single: bool = False) -> list[Node | float]:
    """A few trees, some of them a leaf."""
    return [_draw(rng, d, single, int(rng.integers(0, 7))) for _ in range(rng.integers(1, 8))]


def _draw(rng: np.random.Generator, d: int, single: bool, most: int) -> Node | float:
    if most == 0 or rng.random() < 0.2:
        return float(rng.normal())
    below = _draw(rng, d, single, most - 1), _draw(rng, d, single, most - 1)
    threshold = float(rng.choice([0.0, TINY, -TINY, 1e30, math.inf, *rng.normal(size=4)]))
    missing = "NaN" if single else str(rng.choice(["None", "NaN", "Zero"]))
    categories = frozenset(
        rng.integers(0, 40, rng.integers(1, 6)).tolist() if not single and rng.random() < 0.3 else []
    )
    return Node(int(rng.integers(d)), float(np.float32(threshold)) if single else threshold, missing,
                bool(rng.random() < 0.5), categories, *below)  # fmt: skip


def draw_rows(rng: np.random.Generator, forest: list[Node | float], documents: int, d: int, dtype: str) -> np.ndarray:
    """Features `[documents, d]` in which everything occurs that nodes tell apart."""
    edges = [math.nan, math.inf, -math.inf, 0.0, -0.0, TINY, -TINY, 2 * TINY, -0.5, -1.0, 1e300, -1e300, 3e9]
    thresholds = [each for tree in forest for each in _thresholds(tree)]
    near = [side for each in thresholds for side in (each, np.nextafter(each, np.inf), np.nextafter(each, -np.inf))]
    values = rng.choice([*edges, *near, *range(40), *rng.normal(size=20)], size=(documents, d))
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _thresholds(node: Node | float) -> list[float]:
    return [] if isinstance(node, float) else [node.threshold, *_thresholds(node.left), *_thresholds(node.right)]


def score_by_walks(forest: list[Node | float], rows: np.ndarray, single: bool) -> np.ndarray:
    """The scores, float64 `[documents]`, a document and a tree at a time."""
    with np.errstate(over="ignore"):
        wide = (rows.astype(np.float32) if single else rows).astype(np.float64)
    return np.array([_add(_walk(tree, row, single) for tree in forest) for row in wide.tolist()])


def _add(values) -> float:
    total = 0.0
    for value in values:  # in this order, each sum rounded: sum() of Python 3.12 is more exact
        total += value
    return total


def _walk(node: Node | float, row: list[float], single: bool) -> float:
    while isinstance(node, Node):
        value = row[node.feature]
        if not single and abs(value) <= TINY:
            value = 0.0
        node = node.left if _goes_left(node, value) else node.right
    return node


def _goes_left(node: Node, value: float) -> bool:
    if node.categories:
        return abs(value) < 2**31 and value > -1 and int(value) in node.categories
    if math.isnan(value) and node.missing == "None":
        value = 0.0
    if math.isnan(value) or (node.missing == "Zero" and value == 0.0):
        return node.to_left
    return value <= node.threshold


def scorer_of(forest: list[Node | float], d: int, single: bool) -> TreeScorer:
    """The trees as a scorer."""
    return _tree_scorer([(tree, _look) for tree in forest], d, 1, single)


def _look(node: Node | float) -> _Split | float:
    if isinstance(node, float):
        return node
    below = node.left, node.right
    if node.categories:
        return _Split((node.feature, math.nan, 0.0, tuple(sorted(node.categories))), 0.0, below)
    side = -math.inf if node.to_left else math.nan
    instead = {"None": (0.0, 0.0), "NaN": (side, 0.0), "Zero": (side, side)}[node.missing]
    return _Split((node.feature, *instead, ()), node.threshold, below)
