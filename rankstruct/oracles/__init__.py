"""Oracles: the most violated ranking of a list, exactly, for each (measure, feature map) pair."""

from rankstruct.oracles import (  # noqa: F401  # they register their oracles
    diverse,
    f1,
    pairwise,
    partial_auc,
    positional,
    reciprocal_rank,
)
from rankstruct.oracles.most_violated import *
from rankstruct.oracles.registry import *
