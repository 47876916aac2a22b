"""Oracles of the partial ROC area: SVMpAUC and its tighter bound.

Under the pairwise map, where all pairs vote, this is SVMpAUC; under the partial pairwise map, where those of the window alone do,
SVMpAUC^tight. `ideal` and `ideal-tied` are the same reference in both. `predicted`, the ranking by score, is the tightest, a
difference of convex functions. `below-window`, of the partial pairwise map, is the most violated ranking of the area from 0 to
`low`, times low / (high - low) as that of the area from 0 to `high` is times high / (high - low): the mean over the window's own
pairs of `max(0, 1 - 2 (difference of scores))`, a difference of convex functions too. With `low=0` it is `ideal`.

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

from torch import Tensor

from rankstruct.feature_maps import FeatureMap, Pairwise, PartialPairwise
from rankstruct.kernels.binary import Method
from rankstruct.kernels.dispatch import Answer
from rankstruct.kernels.roc_window import METHOD, partial_area
from rankstruct.measures import pAUC
from rankstruct.oracles.registry import REFERENCES, Oracle, register_oracle

_BELOW = "below-window"


def _solve(
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    measure: pAUC,
    feature_map: FeatureMap,
    reference: str,
    reference_scores: Tensor | None = None,
) -> Answer:
    predicted, below = reference == "predicted", reference == _BELOW
    lists = (scores, labels, where, offsets, reference_scores if predicted or below else None, None)
    window = (float(measure.low), float(measure.high), float(measure.min_tpr))
    return partial_area(
        *lists, measure.min_relevant, *window, isinstance(feature_map, PartialPairwise), predicted, below
    )


def _explain(measure: pAUC, feature_map: FeatureMap, list_size: int, grades: int) -> Method:
    return METHOD


register_oracle(pAUC, Pairwise, Oracle(_solve, _explain, REFERENCES, takes_reference_scores=True))
# Where a linear scorer separates little, the convex bounds are lowest at w = 0: see the documentation's results.
_ORACLE = Oracle(_solve, _explain, (*REFERENCES, _BELOW), takes_reference_scores=True)
register_oracle(pAUC, PartialPairwise, _ORACLE, default="predicted")
