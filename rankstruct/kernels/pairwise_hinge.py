"""The pairwise hinge over all pairs of grades (RankSVM), as an operator over lists."""

from __future__ import annotations

from rankstruct.kernels import core
from rankstruct.kernels.dispatch import Call, ListOperator

__all__ = ["pairwise_hinge"]


def _compiled(longest: int, margin: float) -> Call:
    return Call(core.pairwise_hinge, core.pairwise_hinge.options(margin))


#: Mean hinge over the pairs of each list with different labels, weighted by the product of their item weights, and its gradient;
#: the task loss is 0.
pairwise_hinge = ListOperator("pairwise_hinge", "float margin", _compiled, weighted=True)
