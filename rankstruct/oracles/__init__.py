"""Oracles: the most violated ranking of a list, exactly, for each (measure, feature map) pair."""

from rankstruct.oracles import first_relevant, pairwise, positional  # they register their oracles
from rankstruct.oracles.diverse import most_violated_diverse, resolve_diverse, solve_diverse
from rankstruct.oracles.registry import (
    Explanation,
    MostViolated,
    Oracle,
    default_feature_map,
    explain_oracle,
    find_oracle,
    most_violated,
    register_oracle,
    resolve,
    set_default_feature_map,
    solve_lists,
)

__all__ = [
    "Explanation",
    "MostViolated",
    "Oracle",
    "default_feature_map",
    "explain_oracle",
    "find_oracle",
    "first_relevant",
    "most_violated",
    "most_violated_diverse",
    "pairwise",
    "positional",
    "register_oracle",
    "resolve",
    "resolve_diverse",
    "set_default_feature_map",
    "solve_diverse",
    "solve_lists",
]
