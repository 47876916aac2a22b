"""Every legal combination of measure, feature map and reference, for tests and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankstruct.feature_maps import FeatureMap, FirstRelevant, Pairwise, PartialPairwise, Positional, PredictedPositive
from rankstruct.measures import (
    AP,
    AUC,
    DCG,
    ERU,
    RBP,
    RR,
    WTA,
    Accuracy,
    DiscountedGain,
    F,
    Measure,
    P,
    R,
    Rprec,
    Success,
    mWTA,
    nDCG,
    nERU,
    pAUC,
)
from rankstruct.oracles.registry import REFERENCES, find_oracle

#: Of partial ROC areas: false positive rates, and the lowest true positive rate.
WINDOWS = ((0.0, 0.3, 0.0), (0.0, 0.7, 0.4), (0.2, 0.7, 0.0), (0.25, 0.5, 0.5), (0.4, 1.0, 0.3))
#: The decays of the papers.
DECAYS = (
    *(f"i^-{power}" for power in ("1/4", "1/3", "1/2", "1", "2", "3")),
    "1/log2(i+1)",
    "1/log2(log2(i+1)+1)",
    "k+1-i",
    "discount",
)


def legal_combinations(
    cutoffs: Sequence[int | None] = (None, 1, 3, 10), decays: Sequence[str] = DECAYS
) -> Iterator[tuple[Measure, FeatureMap, str]]:
    """`(measure, feature map, reference)` for all measures with oracles, both discounts, these cut-offs and decays.

    The pairwise and first-relevant maps take binary labels, the positional map any grades.

    >>> sum(1 for _ in legal_combinations())
    2453
    """
    measures: list[Measure] = [AUC(), WTA(), *(pAUC(low=a, high=b, min_tpr=c) for a, b, c in WINDOWS)]
    for k in cutoffs:
        measures += [AP(k), RR(k), nERU(k, d=0.0, half_life=3.0), ERU(k, d=0.0, half_life=5.0), RBP(k)]
        measures += [kind(k, discount=discount) for kind in (nDCG, DCG) for discount in ("log2", "letor")]
        measures += [P(k), R(k), Success(k)] if k is not None else []
        measures += [F(k), F(k, beta=0.5), F(k, beta=3)]
    measures += [Accuracy(), Rprec(), *(mWTA(discount=discount) for discount in ("log2", "letor"))]
    for measure in measures:
        of_sets = isinstance(measure, R | Rprec | Success | F | Accuracy)
        maps: list[FeatureMap] = [] if of_sets or isinstance(measure, mWTA) else [Pairwise()]
        if of_sets or isinstance(measure, P):
            maps.append(PredictedPositive())
        if isinstance(measure, RR):
            maps.append(FirstRelevant())
        if isinstance(measure, pAUC):
            maps.append(PartialPairwise())
        if isinstance(measure, RR | DiscountedGain | mWTA):
            for decay in decays:
                if decay != "k+1-i" or measure.cutoff is not None:
                    maps += [Positional(decay), Positional(decay, cutoff=4)]
        for feature_map in maps:
            for reference in find_oracle(measure, feature_map).references:
                yield measure, feature_map, reference


def diverse_combinations(
    cutoffs: Sequence[int] = (1, 3, 10), decays: Sequence[str] = DECAYS
) -> Iterator[tuple[Measure, Positional, str]]:
    """`(measure, feature map, reference)` for all measures that have diverse rankings, both discounts, these cut-offs and decays.

    >>> sum(1 for _ in diverse_combinations())
    801
    """
    measures: list[Measure] = [WTA(), *(mWTA(discount=discount) for discount in ("log2", "letor"))]
    for k in cutoffs:
        measures += [RR(k), P(k), nERU(k, d=0.0, half_life=3.0), ERU(k, d=0.0, half_life=5.0)]
        measures += [kind(k, discount=discount) for kind in (nDCG, DCG) for discount in ("log2", "letor")]
    for measure in measures:
        for decay in decays:
            if decay != "k+1-i" or measure.cutoff is not None:
                for reference in REFERENCES:
                    yield measure, Positional(decay), reference


def references_of_pairs() -> dict[tuple[Measure, FeatureMap, bool], list[str]]:
    """The references of each measure and feature map, of all rankings and, with True, of the diverse ones alone."""
    pairs: dict[tuple[Measure, FeatureMap, bool], list[str]] = {}
    for diverse, combinations in ((False, legal_combinations()), (True, diverse_combinations())):
        for measure, feature_map, reference in combinations:
            pairs.setdefault((measure, feature_map, diverse), []).append(reference)
    return pairs
