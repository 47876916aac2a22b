"""Oracles of the partial ROC area: SVMpAUC and its tighter bound.

With the pairwise map, where all pairs vote, this is SVMpAUC; with the partial pairwise map, where only pairs of the window vote,
SVMpAUC^tight. `ideal` and `ideal-tied` are the same reference in both. `predicted`, the ranking by score, is the tightest, a
difference of convex functions. `below-window`, for the partial pairwise map, is the most violated ranking of the area from 0 to
`low`, weighted by low / (high - low), while that of the area from 0 to `high` is weighted by high / (high - low): the mean over
the pairs of the window of `max(0, 1 - 2 (difference of scores))`, a difference of convex functions too. With `low=0` it is
`ideal`.

Source: Narasimhan and Agarwal, "A Structural SVM Based Approach for Optimizing Partial AUC", ICML 2013; "SVM_pAUC^tight: A New
Support Vector Method for Optimizing Partial AUC Based on a Tight Convex Upper Bound", KDD 2013; "Support Vector Algorithms for
Optimizing the Partial Area under the ROC Curve", Neural Computation 2017.

>>> import torch
>>> import rankstruct as rs
>>> scores, labels = torch.tensor([2.0, 1.0, 0.0, -1.0]), torch.tensor([0, 1, 0, 0])
>>> for feature_map in ("pairwise", "partial-pairwise"):
...     r = rs.most_violated(scores, labels, "pAUC(high=0.5)", feature_map=feature_map, reference="ideal")
...     print(feature_map, r.value, r.direction)
pairwise tensor(1.3333) tensor([ 0.6667, -0.6667,  0.0000,  0.0000])
partial-pairwise tensor(2.) tensor([ 1.3333, -1.3333,  0.0000,  0.0000])
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rankstruct.feature_maps import FeatureMap, Pairwise, PartialPairwise
from rankstruct.kernels import core
from rankstruct.kernels.binary import ArgmaxMethod, binary_kernel
from rankstruct.measures import Measure, pAUC
from rankstruct.oracles.pairwise import binary_oracle
from rankstruct.oracles.registry import REFERENCES, register_oracle

_BELOW = "below-window"
_BY_MERGING = "each relevant document by itself, counted by a merge before and one inside the window", "O(n log n)"
_METHOD = ArgmaxMethod(*_BY_MERGING, core.partial_area)
_OF_WINDOW = ArgmaxMethod(*_BY_MERGING, core.partial_area_of_window)


def _method(longest: int, restricted: bool, *window: Any) -> tuple[ArgmaxMethod, tuple[Any, ...]]:
    return (_OF_WINDOW, window) if restricted else (_METHOD, window[:-1])


_partial_area = binary_kernel(
    "partial_area", "bool restricted, float low, float high, float min_tpr, bool predicted, bool below", _method
)


def _window(measure: Measure, feature_map: FeatureMap, reference: str) -> tuple[Any, ...]:
    assert isinstance(measure, pAUC)
    rates = float(measure.low), float(measure.high), float(measure.min_tpr)
    return isinstance(feature_map, PartialPairwise), *rates, reference == "predicted", reference == _BELOW


def _by_scores(reference: str) -> bool:
    return reference in ("predicted", _BELOW)


_oracle = binary_oracle(_partial_area, _window, lambda measure, size: _METHOD, by_scores=_by_scores)
register_oracle(pAUC, Pairwise, _oracle)
# If a linear scorer separates poorly, the convex bounds are minimal at w = 0: see the results in the documentation.
register_oracle(pAUC, PartialPairwise, replace(_oracle, references=(*REFERENCES, _BELOW)), default="predicted")
