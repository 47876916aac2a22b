"""Ranking losses, one class each; `rankstruct.losses.base` describes how they are called."""

from rankstruct.losses.additive import *
from rankstruct.losses.assignment import *
from rankstruct.losses.base import *
from rankstruct.losses.calibrated import *
from rankstruct.losses.combined import *
from rankstruct.losses.direct import *
from rankstruct.losses.distillation import *
from rankstruct.losses.graded import *
from rankstruct.losses.hinge import *
from rankstruct.losses.listwise import *
from rankstruct.losses.neural_sort import *
from rankstruct.losses.pairwise import *
from rankstruct.losses.plackett_luce import *
from rankstruct.losses.pointwise import *
from rankstruct.losses.recommendation import *
from rankstruct.losses.smooth import *
from rankstruct.losses.soft_rank import *
from rankstruct.losses.top_surrogate import *
