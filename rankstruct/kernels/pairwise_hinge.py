"""The pairwise hinge over all pairs of grades (RankSVM), as an operator over lists."""

from __future__ import annotations

from rankstruct.kernels import core
from rankstruct.kernels.dispatch import ListOperator

#: Mean hinge over the pairs of each list with different labels, weighted by the product of their item weights, and its gradient;
#: the task loss is 0.
pairwise_hinge = ListOperator.of_loop(core.pairwise_hinge, weighted=True)
