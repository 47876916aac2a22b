"""Oracles: the most violated ranking of a list, exactly, for each (measure, feature map) pair."""

from rankstruct.oracles import diverse, first_relevant, pairwise, positional  # noqa: F401  # they register their oracles
from rankstruct.oracles.most_violated import *
from rankstruct.oracles.registry import *
