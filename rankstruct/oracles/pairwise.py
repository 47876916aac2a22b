"""Oracles of the pairwise feature map: merging two sorted lists.

Documents of the same label never need to be swapped, so a ranking is the number of irrelevant documents above each relevant
one, b_1 <= ... <= b_p, and with S(b) the sum of the b highest irrelevant scores and s_i the i-th highest relevant one

    Delta + F(r) - F(r*) = Delta + 2/(p m) sum_i ( S(b_i) - b_i s_i )

`ideal` and `ideal-tied` are the same reference here: everything relevant first, and F does not see the order within. The
ranking that F prefers is by score.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from rankstruct.feature_maps import FeatureMap, Pairwise
from rankstruct.kernels.binary import NO_CUTOFF, NO_NUMBERS, Method, Parameters, Plan, binary_kernel, grades_kernel
from rankstruct.kernels.dispatch import Answer
from rankstruct.kernels.graded_auc import graded_auc
from rankstruct.measures import AP, AUC, RR, DiscountedGain, Measure
from rankstruct.oracles.registry import REFERENCES, Oracle, register_oracle

_AUC = Method(
    "each pair by itself, counted by a merge", "O(n log n)", "pairwise_cpu.auc_lists", "pairwise_device.auc_padded"
)
_CONVEX = Method(
    "monotone divide and conquer over the irrelevant documents",
    "O(n log n)",
    "pairwise_cpu.convex_lists",
    "pairwise_device.convex_padded",
)
_PROGRAMME = Method(
    "running-maximum programme over the irrelevant documents above each relevant one, to the cut-off k",
    "O(n log n + min(k, p) min(k, m))",
    "pairwise_cpu.programme_lists",
    "pairwise_device.programme_padded",
)
_FIRST = Method(
    "every rank of the first relevant document",
    "O(n log n)",
    "pairwise_cpu.reciprocal_rank_lists",
    "pairwise_device.reciprocal_rank_padded",
)


def binary_oracle(name: str, plan: Plan, *, discounted: bool = False) -> Oracle:
    """The oracle of a plan, as the operator `rankstruct::<name>`, for maps that like all ideal rankings alike.

    The kernels of discounted gains get gains and discounts; the others get the labels as they are.
    """
    operator = binary_kernel(name, plan)

    def prepare(longest: int, cutoff: int | None, predicted: bool, *chosen: Any) -> tuple[Method, Parameters]:
        cutoff = NO_CUTOFF if cutoff is None else cutoff
        return plan(Parameters(cutoff, NO_NUMBERS, NO_NUMBERS, False, predicted, *chosen), longest)

    graded = None if discounted else grades_kernel(name, "SymInt? cutoff, bool predicted", prepare)

    def solve(
        scores: Tensor,
        labels: Tensor,
        where: Tensor | None,
        offsets: Tensor | None,
        measure: Measure,
        feature_map: FeatureMap,
        reference: str,
        reference_scores: Tensor | None = None,
    ) -> Answer:
        predicted, min_relevant, weights, normalized = reference == "predicted", measure.min_relevant, None, False
        if discounted:
            assert isinstance(measure, DiscountedGain)
            labels, min_relevant = measure.document_gains(labels), None
            weights, normalized = measure.unchecked_weights(max(scores.shape[-1], 1)), type(measure).normalized
        chosen = reference_scores if predicted else None
        return operator(
            *(scores, labels, where, offsets, chosen, None),
            *(min_relevant, measure.cutoff, weights, normalized, predicted),
        )

    def solve_grades(
        *given: Any, thresholds: Tensor, weights: Tensor, reference_scores: Tensor | None = None
    ) -> Answer:
        assert graded is not None
        *lists, measure, _, reference = given
        predicted = reference == "predicted"
        chosen = reference_scores if predicted else None
        return graded(*lists, chosen, None, thresholds, weights, measure.cutoff, predicted)

    def explain(measure: Measure, feature_map: FeatureMap, list_size: int, grades: int) -> Method:
        weights = measure.position_weights(list_size).numpy() if isinstance(measure, DiscountedGain) else np.empty(0)
        return plan(Parameters(NO_CUTOFF if measure.cutoff is None else measure.cutoff, weights), list_size)[0]

    several = None if graded is None else solve_grades
    return Oracle(solve, explain, REFERENCES, takes_reference_scores=True, solve_grades=several)


def only(method: Method) -> Plan:
    """The plan that always takes one method."""
    return lambda parameters, longest: (method, parameters)


def _plan_precision(parameters: Parameters, longest: int) -> tuple[Method, Parameters]:
    return (_CONVEX if parameters.cutoff >= longest else _PROGRAMME), parameters


def _plan_discounted(parameters: Parameters, longest: int) -> tuple[Method, Parameters]:
    if _falls_ever_more_slowly(parameters.weights):
        return _CONVEX, parameters
    # A discount may be 0 from some rank on without a cut-off.
    return _PROGRAMME, parameters._replace(cutoff=int(np.count_nonzero(parameters.weights)))


def _falls_ever_more_slowly(weights: np.ndarray) -> bool:
    """Whether a discount `[ranks]` is convex, so that the divide and conquer is exact."""
    # Rounding makes equal falls differ by as much as the last digit of the weights themselves.
    return bool((np.diff(weights, 2) >= -4e-16 * weights[:1].sum()).all())


def _auc_oracle() -> Oracle:
    """That of AUC, which has a faster way for all thresholds against the ideal ranking."""
    oracle = binary_oracle("pairwise_auc", only(_AUC))
    one_by_one = oracle.solve_grades
    assert one_by_one is not None

    def solve_grades(*given: Any, thresholds: Tensor, weights: Tensor, **more: Tensor) -> Answer:
        *lists, _, _, reference = given
        if reference == "predicted":
            return one_by_one(*given, thresholds=thresholds, weights=weights, **more)
        return graded_auc(*lists, None, None, thresholds, weights)

    return replace(oracle, solve_grades=solve_grades)


# SVMauc: Joachims, "A Support Vector Method for Multivariate Performance Measures", ICML 2005.
register_oracle(AUC, Pairwise, _auc_oracle(), default="ideal")
# SVMmap: Yue, Finley, Radlinski, Joachims, "A Support Vector Method for Optimizing Average Precision", SIGIR 2007.
register_oracle(AP, Pairwise, binary_oracle("pairwise_average_precision", _plan_precision), default="ideal")
# SVMndcg and its like: Chakrabarti, Khanna, Sawant, Bhattacharyya, "Structured Learning for Non-Smooth Ranking Losses",
# KDD 2008. Their greedy method (fact 3.4) is not exact; these are.
register_oracle(
    DiscountedGain,  # type: ignore[type-abstract]  # the oracle of all its subclasses
    Pairwise,
    binary_oracle("pairwise_discounted", _plan_discounted, discounted=True),
)
register_oracle(RR, Pairwise, binary_oracle("pairwise_reciprocal_rank", only(_FIRST)))
