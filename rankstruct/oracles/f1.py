"""Oracles of contingency-table measures: F, recall, precision, success, accuracy (error rate), break-even point.

A solution labels documents positive: k of them for a measure with a cut-off k, otherwise any number. `ideal` selects the relevant
documents, then others, by input order; `ideal-tied` the best labelling with the highest score, which for measures without a
cut-off is the same; `predicted` the k highest scores, or those above 0.

The published argmax tries all contingency tables, O(n^2). Here, the best number of relevant documents among the positive ones
never decreases with the number of positive ones, so a single pass finds all: O(n) after the sort.

With item weights relevant documents are no longer interchangeable. P@k and R@k add up what the k positive documents earn, so they
are those with the highest scores minus that: the positional oracle with a decay of 1 up to rank k, O(n log n).

Source: Joachims, "A Support Vector Method for Multivariate Performance Measures", ICML 2005. His labels 1 and -1 instead of 1
and 0 are equivalent to scores twice as large.

>>> import torch
>>> import rankstruct as rs
>>> r = rs.most_violated(torch.tensor([0.2, 0.1, -0.3]), torch.tensor([0, 1, 0]), "F1")
>>> r.task_loss, r.value, r.direction
(tensor(1.), tensor(1.1000), tensor([ 1., -1.,  0.]))
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from rankstruct.feature_maps import FeatureMap, PredictedPositive
from rankstruct.kernels import core
from rankstruct.kernels.binary import ArgmaxMethod, binary_kernel
from rankstruct.kernels.dispatch import Answer
from rankstruct.lists import Lists, sums_of_lists
from rankstruct.measures import Accuracy, F, Measure, P, R, Rprec, Success
from rankstruct.measures.ranked import is_relevant
from rankstruct.oracles.gains import hits, solve_gains
from rankstruct.oracles.pairwise import binary_oracle
from rankstruct.oracles.positional import POSITIONAL
from rankstruct.oracles.registry import REFERENCES, Oracle, register_oracle

PRECISION, RECALL, SUCCESS, F_MEASURE, ACCURACY, BREAK_EVEN = range(6)  # the measures by their numbers in f1.hpp

_METHOD = ArgmaxMethod(
    "for each number of positive documents the best number of relevant ones, which never falls: a walk",
    "O(n log n)",
    core.contingency,
)
_contingency = binary_kernel(
    "contingency", "int kind, int cutoff, float beta, int reference", lambda longest, *table: (_METHOD, table)
)


def contingency_oracle(kind: int) -> Oracle:
    """The oracle of a measure, given its number."""

    def options(measure: Measure, feature_map: FeatureMap, reference: str) -> tuple[int, int, float, int]:
        return kind, measure.cutoff or 0, float(getattr(measure, "beta", 1.0)), REFERENCES.index(reference)

    found = binary_oracle(
        _contingency, options, lambda measure, size: _METHOD, by_scores=lambda reference: reference != "ideal"
    )
    if kind not in (PRECISION, RECALL):
        return found

    def solve(
        scores: Tensor, lists: Lists, measure: Measure, feature_map: FeatureMap, reference: str, *at: Tensor
    ) -> Answer:
        if lists.item_weights is None:
            return found.solve(scores, lists, measure, feature_map, reference, *at)
        return _solve_weighted(scores, lists, measure, reference)

    return replace(found, solve=solve, takes_item_weights=True)


def _solve_weighted(scores: Tensor, lists: Lists, measure: Measure, reference: str) -> Answer:
    """P@k or R@k with item weights."""
    assert measure.cutoff is not None
    assert lists.item_weights is not None
    first = (torch.arange(max(scores.shape[-1], 1)) < measure.cutoff).double()
    if isinstance(measure, R):
        relevant = is_relevant(lists.labels, measure.min_relevant)
        relevant = relevant if lists.where is None else relevant & lists.where
        total = sums_of_lists(torch.where(relevant, lists.item_weights.double(), 0.0), lists.offsets)
        lists, worth = lists._replace(item_weights=lists.item_weights / torch.where(total == 0, 1.0, total)), first
    else:
        worth = first / measure.cutoff
    if reference == "ideal":
        lists = lists._replace(reference_scores=None)
    gains = partial(hits, min_relevant=measure.min_relevant)
    return solve_gains(POSITIONAL, measure, gains, scores, lists, (first, worth, 0, False, False, reference))


register_oracle(P, PredictedPositive, contingency_oracle(PRECISION))
register_oracle(R, PredictedPositive, contingency_oracle(RECALL), default="ideal-tied")
register_oracle(Success, PredictedPositive, contingency_oracle(SUCCESS), default="ideal-tied")
register_oracle(F, PredictedPositive, contingency_oracle(F_MEASURE), default="ideal")
register_oracle(Rprec, PredictedPositive, contingency_oracle(BREAK_EVEN), default="ideal-tied")
register_oracle(Accuracy, PredictedPositive, contingency_oracle(ACCURACY), default="ideal")
