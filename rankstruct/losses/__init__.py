"""Losses: one value a list, each as a function and as a thin module with the same arguments; `base` says what all keep."""

from rankstruct.losses.assignment import *
from rankstruct.losses.base import *
from rankstruct.losses.combined import *
from rankstruct.losses.direct import *
from rankstruct.losses.distillation import *
from rankstruct.losses.diverse_hinge import *
from rankstruct.losses.graded import *
from rankstruct.losses.listwise import *
from rankstruct.losses.neural_sort import *
from rankstruct.losses.pairs import *
from rankstruct.losses.pointwise import *
from rankstruct.losses.policy import *
from rankstruct.losses.smooth import *
from rankstruct.losses.soft_rank import *
from rankstruct.losses.structured_hinge import *
from rankstruct.losses.top_surrogate import *
