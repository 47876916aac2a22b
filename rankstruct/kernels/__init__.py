"""Kernels: compiled loops for CPU tensors and their vectorised twins for the others, behind one door, `dispatch.define_kernel`.

What stands above this floor sees custom operators alone: the oracles make theirs, and losses call `pairwise_hinge` and
`pairwise_logistic`.
"""

from rankstruct.kernels.dispatch import *
from rankstruct.kernels.pairwise_hinge import *
from rankstruct.kernels.pairwise_logistic import *
