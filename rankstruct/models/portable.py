"""What a scorer computes, in the terms of search engines: dense layers or trees on raw float32 features.

Preparation is folded in. Standardised features are a mean and a deviation per raw feature, which engines have as normalisers.
A split of a prepared feature is a split of the raw one, because every step but the indicators of categories is monotone: its
threshold is the largest float32 number that goes left, found by bisection with the steps themselves, so that no formula is
inverted, and rounding moves no document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rankstruct.models.scorers import (
    LinearScorer,
    MeanScorer,
    MLPScorer,
    PreparedScorer,
    ProbabilityScorer,
    TreeScorer,
    is_by_list,
)
from rankstruct.preparation import Append, Encode, LeaveLast, Preparation, Standardize

_LARGEST = 0x7F7FFFFF  # the bits of the largest finite float32 number
_DEEPEST = 300  # levels of a tree, which are nested in files; parsers of JSON in engines stop at 500


class Layers(NamedTuple):
    """Dense layers, ReLU between them, on standardised features; a single layer is a linear model. Arrays are float64.

    Attributes:
        mean, deviation: `[d]`, of each raw feature.
        layers: weights `[out, in]` and biases `[out]`; the last layer has one output.
    """

    mean: np.ndarray
    deviation: np.ndarray
    layers: list[tuple[np.ndarray, np.ndarray]]


class Trees(NamedTuple):
    """Binary trees; node arrays are of all trees together.

    Attributes:
        roots: the first node of each tree.
        feature: the raw feature that a node looks at, -1 for a leaf.
        threshold: float32; a document goes left if its feature is at most this.
        missing_left: whether a missing feature goes left.
        left: the left child; the right one follows it.
        value: float64, the score of a leaf.
        saw_missing: whether they have learned what to do with a missing feature.
    """

    roots: list[int]
    feature: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    left: np.ndarray
    value: np.ndarray
    saw_missing: bool

    def sends_missing_as_zero(self) -> bool:
        """Whether a missing feature goes wherever 0 does at each node."""
        return bool(((self.threshold >= 0) == self.missing_left)[self.feature >= 0].all())

    def missing_is_zero(self) -> bool:
        """Whether a missing feature may count as 0: it goes wherever 0 does, or training had none."""
        return not self.saw_missing or self.sends_missing_as_zero()


def portable(scorer: nn.Module) -> Layers | Trees:
    """The layers or trees of a scorer of raw features.

    Raises:
        ValueError: engines cannot compute these scores; the message has the reason and the nearest model that they can.
    """
    if isinstance(scorer, ProbabilityScorer):
        raise _refused(
            "engines compute scores, whose order is that of the probabilities",
            "export the scorer within, or write .onnx",
        )
    if is_by_list(scorer):
        raise _refused(
            "scores depend on the other documents of the list, and engines score one document at a time",
            "train a model without context=, query- steps and ensembles of standardised scores, such as BoostedRanker()",
        )
    preparation = Preparation()
    while isinstance(scorer, PreparedScorer):
        inner: Any = scorer
        scorer, preparation = inner.scorer, preparation.then(inner.preparation)
    parts = list(scorer.scorers) if isinstance(scorer, MeanScorer) else [scorer]
    if isinstance(scorer, TreeScorer):
        trees = _trees(scorer, preparation)
        found: Layers | Trees = trees
        numbers = [trees.value]
    elif all(type(each) in (LinearScorer, MLPScorer) for each in parts):
        found = _layers(parts, preparation)
        numbers = [found.mean, found.deviation, *(each for layer in found.layers for each in layer)]
    else:
        raise _refused(
            f"a {type(scorer).__name__} is neither linear nor one of trees nor an MLP",
            "train LinearRanker(), BoostedRanker() without start=, or for Solr MLPRanker(), or write .onnx",
        )
    with np.errstate(over="ignore"):
        if not all(np.isfinite(each.astype(np.float32)).all() for each in numbers):
            raise ValueError(
                "the scorer has weights that are NaN or infinite in float32, so nothing is written; train it again, on features "
                "of common size"
            )
    if isinstance(found, Layers) and not found.layers[0][0].any():
        raise ValueError("all weights of the scorer are 0, so that it ranks nothing, and nothing is written; train it")
    return found


def _of_categories(preparation: Preparation, sources: np.ndarray) -> bool:
    """Whether one of these raw features is a category."""
    return preparation.columns is not None and bool(np.isin(sources, preparation.columns.categorical).any())


def _refused(reason: str, way_out: str) -> ValueError:
    return ValueError(f"the scorer cannot be exported: {reason}; {way_out}")


def _layers(parts: Sequence[nn.Module], preparation: Preparation) -> Layers:
    models = [_dense(each) for each in parts]
    if len({len(each) for each in models}) > 1:
        raise _refused("it is the mean of MLPs of different depth", "average MLPs of one depth, or write .onnx")
    width = models[0][0][0].shape[1]
    mean, deviation, sources = _standardised(preparation, width)
    d = preparation.num_features or width
    shared = np.zeros(d), np.ones(d)
    for at in reversed(range(width)):  # those of the first column of each feature
        if np.isfinite(mean[at]) and np.isfinite(deviation[at]):
            shared[0][sources[at]], shared[1][sources[at]] = mean[at], deviation[at]
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for depth, same in enumerate(zip(*models, strict=True)):
        weights, biases = [each[0] for each in same], [each[1] for each in same]
        if depth == 0:
            used = np.abs(np.concatenate(weights)).sum(0) > 0
            if _of_categories(preparation, sources[used]):
                raise _refused("it uses categories, which engines do not have", "train it on numbers alone")
            if np.isnan(mean[used]).any():
                raise _refused(
                    "missing cells become medians with an indicator, for which there is no normaliser",
                    "train BoostedRanker(), or fill the cells before training as the engine does, with 0",
                )
            weights, biases = map(
                list, zip(*[_folded(w, b, mean, deviation, sources, shared) for w, b in same], strict=True)
            )
        if depth == len(models[0]) - 1:  # the mean
            joined = np.concatenate(weights, 1) if depth else np.sum(weights, 0)
            found.append((joined / len(models), np.sum(biases, 0) / len(models)))
        else:
            joined = np.concatenate(weights) if depth == 0 else _block_diagonal(weights)
            found.append((joined, np.concatenate(biases)))
    return Layers(*shared, found)


def _folded(
    weights: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray,
    sources: np.ndarray,
    shared: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """A layer of prepared features, (x - mean) / deviation, as one of features with the shared mean and deviation."""
    of_raw, bias = np.zeros((len(weights), len(shared[0]))), bias.copy()
    for at in np.flatnonzero(np.isfinite(mean) & np.isfinite(deviation)):
        each = weights[:, at] / deviation[at]
        of_raw[:, sources[at]] += each * shared[1][sources[at]]
        bias += each * (shared[0][sources[at]] - mean[at])
    return of_raw, bias


def _block_diagonal(blocks: Sequence[np.ndarray]) -> np.ndarray:
    found = np.zeros((sum(len(each) for each in blocks), sum(each.shape[1] for each in blocks)))
    row = column = 0
    for each in blocks:
        found[row : row + len(each), column : column + each.shape[1]] = each
        row, column = row + len(each), column + each.shape[1]
    return found


def _dense(scorer: nn.Module) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights and biases of the layers of a linear scorer or an MLP."""
    if isinstance(scorer, MLPScorer) and scorer.normalize:
        raise _refused("its layer norm mixes features", "train an MLPScorer with normalize=False, as MLPRanker does")
    found = []
    for layer in scorer.modules():
        if isinstance(layer, nn.Linear):
            bias = torch.zeros(layer.out_features) if layer.bias is None else layer.bias
            found.append((_array(layer.weight), _array(bias)))
    return found


def _array(values: Tensor) -> np.ndarray:
    found: np.ndarray = values.detach().double().cpu().numpy()
    return found


def _standardised(preparation: Preparation, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and deviation such that prepared features are (x - mean) / deviation of the raw ones, and these raw ones.

    The deviation of a constant feature is infinite; the mean of an indicator of missing cells is NaN.
    """
    d = preparation.num_features or width
    mean, deviation = np.zeros(d), np.ones(d)
    for name, step in zip(preparation.names, preparation.steps, strict=True):
        mean, deviation = _after(name, step, mean, deviation)
    return mean, deviation, preparation.sources(d).numpy()


def _after(name: str, step: nn.Module, mean: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(step, LeaveLast):
        last = mean[-step.untouched :], deviation[-step.untouched :]
        first = _after(name, step.step, mean[: -step.untouched], deviation[: -step.untouched])
        return np.concatenate([first[0], last[0]]), np.concatenate([first[1], last[1]])
    if isinstance(step, Append):
        other = _after(name, step.step, mean, deviation)
        return np.concatenate([mean, other[0]]), np.concatenate([deviation, other[1]])
    if isinstance(step, Encode):
        numbers, indicators = step.numeric.long().numpy(), step.untouched
        marked = np.full(indicators, np.nan)
        return np.concatenate([mean[numbers], marked]), np.concatenate([deviation[numbers], np.ones(indicators)])
    if not isinstance(step, Standardize):
        raise _refused(
            f"linear models and MLPs after the step {name!r} have no normaliser in engines",
            "train it with prepare=['standardize'], or BoostedRanker() with any steps, or write .onnx",
        )
    m, s = step.mean.numpy(), step.deviation.numpy()
    safe = np.where(s == 0, 1.0, s)
    finite = np.where(np.isfinite(deviation), deviation, 0.0)
    return mean + m * finite, np.where(s == 0, np.inf, deviation * safe)


def _trees(scorer: TreeScorer, preparation: Preparation) -> Trees:
    if not scorer.num_trees:
        raise ValueError("the scorer has 0 trees, so nothing is written; train it with n_estimators= of 1 or more")
    if scorer.depth > _DEEPEST:
        raise _refused(
            f"a tree has {scorer.depth} levels, and parsers of engines read about {_DEEPEST}",
            "train with fewer, options={'max_depth': 30}, or write .onnx",
        )
    column, left = (each.numpy().astype(np.int64) for each in scorer.branch.unbind(-1))
    inner = column < scorer.num_columns
    d = preparation.num_features or scorer.num_features
    sources = preparation.sources(d)[scorer.feature].numpy()
    if scorer.num_categories or _of_categories(preparation, sources[np.unique(column[inner])]):
        raise _refused(
            "its trees split categories, which engines do not have", "train it on numbers alone, or write .onnx"
        )
    if not bool((scorer.at_zero == 0).all()):
        raise _refused(
            "its trees take 0 for a missing cell (zero_as_missing, or XGBoost on sparse features or bins)",
            "train it without this option, on dense features without bins, or write .onnx",
        )
    pairs, number = np.unique(np.stack([column[inner], scorer.threshold.numpy()[inner]]), axis=1, return_inverse=True)
    columns = pairs[0].astype(np.int64)
    raw = sources[columns]
    order = np.argsort(raw, kind="stable")
    rank = np.empty(len(raw), np.int64)
    counts = np.bincount(raw, minlength=d)
    rank[order] = np.arange(len(raw)) - np.repeat(counts.cumsum() - counts, counts)

    def goes_left(values: np.ndarray) -> np.ndarray:
        """Whether documents with this raw feature go left, of each pair of a column and a threshold."""
        rows = np.zeros((max(counts.max(initial=0), 1), d), np.float32)
        rows[rank, raw] = values
        prepared = preparation(torch.from_numpy(rows))
        # As in `TreeScorer.reached`: float32 features are compared in float64.
        compared = scorer.compared(prepared.to(scorer.threshold.dtype)).numpy()
        return compared[rank, columns] <= pairs[1]

    low, high = np.full(len(raw), -_LARGEST - 1), np.full(len(raw), _LARGEST)
    with torch.no_grad():
        while (low < high).any():
            middle = (low + high + 1) >> 1
            left_of = goes_left(_number(middle))
            low, high = np.where(left_of, middle, low), np.where(left_of, high, middle - 1)
        missing = goes_left(np.full(len(raw), np.nan, np.float32))
    feature, threshold = np.full(len(column), -1), np.zeros(len(column), np.float32)
    missing_left = np.zeros(len(column), bool)
    feature[inner] = raw[number.ravel()]
    threshold[inner] = _number(np.maximum(low, -_LARGEST))[number.ravel()]
    missing_left[inner] = missing[number.ravel()]
    value = np.where(inner, 0.0, scorer.threshold.numpy())
    saw_missing = preparation.encodes or bool((scorer.at_missing != 0).any())  # 0: LightGBM without missing cells
    return Trees(scorer.root.tolist(), feature, threshold, missing_left, left, value, saw_missing)


def _number(keys: np.ndarray) -> np.ndarray:
    """The float32 number of each integer; these are in the same order."""
    return np.copysign(np.abs(keys).astype(np.uint32).view(np.float32), keys).astype(np.float32)
