"""Feature maps: how a ranking scores, one coefficient psi_j(r) a document, so that F(r) = sum_j psi_j(r) s_j."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FeatureMap:
    """Base of all feature maps: an immutable description; the oracles know what to do with it."""

    @property
    def name(self) -> str:
        """The name that `parse_feature_map` maps back to an equal object."""
        raise NotImplementedError


@dataclass(frozen=True)
class Pairwise(FeatureMap):
    """Every pair of a relevant and an irrelevant document votes for the one that stands higher.

    With p relevant and m irrelevant documents, a relevant one has the coefficient (irrelevant below it - irrelevant
    above it) / (p m), an irrelevant one (relevant below it - relevant above it) / (p m).

    Source: Yue, Finley, Radlinski, Joachims, "A Support Vector Method for Optimizing Average Precision", SIGIR 2007
    (with the factor 1 / (p m) that its equation 5 lacks); phi_po in Chakrabarti, Khanna, Sawant, Bhattacharyya,
    "Structured Learning for Non-Smooth Ranking Losses", KDD 2008.

    >>> Pairwise().name
    'pairwise'
    """

    @property
    def name(self) -> str:
        """`pairwise`."""
        return "pairwise"


_NAMED: dict[str, FeatureMap] = {"pairwise": Pairwise()}


def parse_feature_map(feature_map: str | FeatureMap) -> FeatureMap:
    """A feature map from its name; a feature map is returned as it is.

    Raises:
        ValueError: no feature map has this name.
        TypeError: neither a name nor a feature map.

    >>> parse_feature_map("pairwise")
    Pairwise()
    """
    if isinstance(feature_map, FeatureMap):
        return feature_map
    if not isinstance(feature_map, str):
        raise TypeError(f"feature_map must be a name or a FeatureMap, got {type(feature_map).__name__}")
    found = _NAMED.get(feature_map.strip().lower())
    if found is None:
        raise ValueError(f"unknown feature map {feature_map!r}; there are: {', '.join(sorted(_NAMED))}")
    return found
