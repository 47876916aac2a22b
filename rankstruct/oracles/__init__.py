"""Oracles: the exact most violated ranking of a list, for each (measure, feature map) pair."""

from rankstruct.oracles import (  # noqa: F401  # imported to register their oracles
    f1,
    pages,
    pairwise,
    partial_auc,
    positional,
    reciprocal_rank,
)
from rankstruct.oracles.most_violated import *
from rankstruct.oracles.registry import *
