"""Oracles of the pairwise feature map: merging two sorted lists.

Documents of the same label never need to be swapped, so a ranking is determined by the number of irrelevant documents above each
relevant one, b_1 <= ... <= b_p, and with S(b) the sum of the b highest irrelevant scores and s_i the i-th highest relevant one

    Delta + F(r) - F(r*) = Delta + 2/(p m) sum_i ( S(b_i) - b_i s_i )

With item weights only AUC has an oracle: a pair counts as often as the product of its two weights, in Delta and F alike, so it is
still swapped or not by itself.

`ideal` and `ideal-tied` are the same reference here: relevant documents first, since F does not depend on the order within each
class. The ranking with the highest F is by score.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from rankstruct.feature_maps import FeatureMap, Pairwise
from rankstruct.kernels import core
from rankstruct.kernels.binary import NO_CUTOFF, ArgmaxMethod, binary_kernel
from rankstruct.kernels.dispatch import Answer, ListOperator, Prepared, discount_table
from rankstruct.lists import Lists
from rankstruct.measures import AP, AUC, RR, DiscountedGain, Measure
from rankstruct.oracles.gains import known_gains, solve_gains
from rankstruct.oracles.registry import REFERENCES, Oracle, register_oracle

_AUC = ArgmaxMethod("each pair by itself, counted by a merge", "O(n log n)", core.pairwise_auc)
_BY_MERGING = "monotone divide and conquer over the irrelevant documents", "O(n log n)"
_TO_CUTOFF = (
    "running-maximum program over the irrelevant documents above each relevant one, to the cut-off k",
    "O(n log n + min(k, p) min(k, m))",
)
_PRECISION = ArgmaxMethod(*_BY_MERGING, core.pairwise_average_precision)
_PRECISION_AT_CUTOFF = ArgmaxMethod(*_TO_CUTOFF, core.pairwise_precision_at_cutoff)
_CONVEX = ArgmaxMethod(*_BY_MERGING, core.pairwise_convex_discount)
_ANY_DISCOUNT = ArgmaxMethod(*_TO_CUTOFF, core.pairwise_discount_at_cutoff)
_FIRST = ArgmaxMethod("every rank of the first relevant document", "O(n log n)", core.pairwise_reciprocal_rank)


def least_label(measure: Measure) -> float:
    """The lowest label that a measure supports."""
    return -np.inf if measure.takes_negative_labels else 0.0


def binary_oracle(
    operator: ListOperator,
    options: Any,
    explain: Any,
    references: tuple[str, ...] = REFERENCES,
    by_scores: Callable[[str], bool] = lambda reference: reference == "predicted",
    takes_item_weights: bool = False,
) -> Oracle:
    """The oracle of an operator of `kernels.binary`.

    Args:
        operator: the result of `binary_kernel`.
        options: `(measure, feature_map, reference)` to the options of the operator.
        explain: `(measure, list_size)` to the method.
        references: the supported references.
        by_scores: `(reference)` to whether it depends on scores.
        takes_item_weights: whether the operator does.
    """

    def solve(
        scores: Tensor,
        lists: Lists,
        measure: Measure,
        feature_map: FeatureMap,
        reference: str,
        thresholds: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Answer:
        least = least_label(measure) if thresholds is None else -np.inf
        lists = lists if by_scores(reference) else lists._replace(reference_scores=None)
        at = measure.min_relevant, thresholds, weights
        return operator(scores, lists, least, *at, *options(measure, feature_map, reference))

    def prepare(
        measure: Measure, feature_map: FeatureMap, reference: str, longest: int, *thresholds: Tensor
    ) -> Prepared:
        at = thresholds or (None, None)
        call = operator.call(longest, measure.min_relevant, *at, *options(measure, feature_map, reference))
        return Prepared(call, least_label(measure))

    def explain_method(measure: Measure, feature_map: FeatureMap, list_size: int, grades: int) -> ArgmaxMethod:
        return explain(measure, list_size)

    return Oracle(
        solve,
        explain_method,
        references,
        takes_reference_scores=True,
        takes_item_weights=takes_item_weights,
        refuses_negative=True,
        prepare=prepare,
        solve_grades=solve,
        loops_take_item_weights=takes_item_weights,
    )


def _precision_method(longest: int, cutoff: int | None, predicted: bool) -> tuple[ArgmaxMethod, tuple[Any, ...]]:
    if cutoff is None or cutoff >= longest:
        return _PRECISION, (predicted,)
    return _PRECISION_AT_CUTOFF, (cutoff, predicted)


def _first_method(longest: int, cutoff: int | None, predicted: bool) -> tuple[ArgmaxMethod, tuple[Any, ...]]:
    return _FIRST, (NO_CUTOFF if cutoff is None else cutoff, predicted)


def _discounted_method(
    longest: int, weights: Tensor, normalized: bool, predicted: bool
) -> tuple[ArgmaxMethod, tuple[Any, ...]]:
    table = discount_table(weights, longest)
    # A discount may be 0 after some rank without a cut-off.
    options = (table, int(np.count_nonzero(table)), normalized, predicted)
    return (_CONVEX if _falls_ever_more_slowly(table) else _ANY_DISCOUNT), options


def _falls_ever_more_slowly(weights: np.ndarray) -> bool:
    """Whether a discount `[ranks]` is convex, so that the divide and conquer is exact."""
    # By rounding, equal differences may differ in the last digit of the weights.
    return bool((np.diff(weights, 2) >= -4e-16 * weights[:1].sum()).all())


_auc = binary_kernel("pairwise_auc", "bool predicted", lambda longest, predicted: (_AUC, (predicted,)), weighted=True)
_precision = binary_kernel("pairwise_average_precision", "SymInt? cutoff, bool predicted", _precision_method)
_reciprocal_rank = binary_kernel("pairwise_reciprocal_rank", "SymInt? cutoff, bool predicted", _first_method)
_discounted = binary_kernel(
    "pairwise_discounted", "Tensor discounts, bool normalized, bool predicted", _discounted_method, gains=True
)


def _predicted(measure: Measure, feature_map: FeatureMap, reference: str) -> tuple[bool]:
    return (reference == "predicted",)


def _cutoff_and_predicted(measure: Measure, feature_map: FeatureMap, reference: str) -> tuple[int | None, bool]:
    return measure.cutoff, reference == "predicted"


def _solve_discounted(
    scores: Tensor, lists: Lists, measure: Measure, feature_map: FeatureMap, reference: str
) -> Answer:
    assert isinstance(measure, DiscountedGain)
    lists = lists if reference == "predicted" else lists._replace(reference_scores=None)
    options = _discounted_options(measure, max(scores.shape[-1], 1), reference)
    return solve_gains(_discounted, measure, measure.document_gains, scores, lists, options)


def _discounted_options(measure: DiscountedGain, longest: int, reference: str) -> tuple[Any, ...]:
    weights = measure.unchecked_weights(longest)
    return None, None, None, weights, type(measure).normalized, reference == "predicted"


def _prepare_discounted(
    measure: DiscountedGain, feature_map: FeatureMap, reference: str, longest: int
) -> Prepared | None:
    known = known_gains(measure)
    if known is None:
        return None
    return Prepared(_discounted.call(longest, *_discounted_options(measure, longest, reference)), 0.0, known)


def _explain_discounted(measure: Measure, feature_map: FeatureMap, list_size: int, grades: int) -> ArgmaxMethod:
    assert isinstance(measure, DiscountedGain)
    return _discounted_method(list_size, measure.position_weights(list_size), False, False)[0]


# SVMauc: Joachims, "A Support Vector Method for Multivariate Performance Measures", ICML 2005.
register_oracle(
    AUC,
    Pairwise,
    binary_oracle(_auc, _predicted, lambda measure, size: _AUC, takes_item_weights=True),
    default="ideal",
)
# SVMmap: Yue, Finley, Radlinski, Joachims, "A Support Vector Method for Optimizing Average Precision", SIGIR 2007.
register_oracle(
    AP,
    Pairwise,
    binary_oracle(
        _precision, _cutoff_and_predicted, lambda measure, size: _precision_method(size, measure.cutoff, False)[0]
    ),
    default="ideal",
)
# SVMndcg and its like: Chakrabarti, Khanna, Sawant, Bhattacharyya, "Structured Learning for Non-Smooth Ranking Losses",
# KDD 2008. Their greedy method (fact 3.4) is not exact; these are.
register_oracle(
    DiscountedGain,  # type: ignore[type-abstract]  # the oracle of all its subclasses
    Pairwise,
    Oracle(
        _solve_discounted,
        _explain_discounted,
        REFERENCES,
        takes_reference_scores=True,
        refuses_negative=True,
        prepare=_prepare_discounted,
    ),
)
register_oracle(RR, Pairwise, binary_oracle(_reciprocal_rank, _cutoff_and_predicted, lambda measure, size: _FIRST))
