"""Every legal combination of measure, feature map and reference, for tests and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankstruct.feature_maps import FeatureMap, FirstRelevant, Pairwise, Positional
from rankstruct.measures import AP, AUC, DCG, ERU, RR, WTA, DiscountedGain, Measure, P, mWTA, nDCG, nERU
from rankstruct.oracles.registry import REFERENCES, find_oracle

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
    2103
    """
    measures: list[Measure] = [AUC(), WTA()]
    for k in cutoffs:
        measures += [AP(k), RR(k), nERU(k, d=0.0, half_life=3.0), ERU(k, d=0.0, half_life=5.0)]
        measures += [kind(k, discount=discount) for kind in (nDCG, DCG) for discount in ("log2", "letor")]
        measures += [P(k)] if k is not None else []
    measures += [mWTA(discount=discount) for discount in ("log2", "letor")]
    for measure in measures:
        maps: list[FeatureMap] = [] if isinstance(measure, mWTA) else [Pairwise()]
        if isinstance(measure, RR):
            maps.append(FirstRelevant())
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
