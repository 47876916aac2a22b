"""Oracles: the most violated ranking of a list, exactly, for each (measure, feature map) pair."""

from rankstruct.oracles import pairwise  # registers its oracles
from rankstruct.oracles.registry import (
    MostViolated,
    Oracle,
    default_feature_map,
    find_oracle,
    most_violated,
    register_oracle,
    resolve,
)

__all__ = [
    "MostViolated",
    "Oracle",
    "default_feature_map",
    "find_oracle",
    "most_violated",
    "pairwise",
    "register_oracle",
    "resolve",
]
