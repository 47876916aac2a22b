"""Rankings under rules (caps, quotas, given positions), mixtures of rankings with fair exposure, and measures of fairness."""

from rankstruct.constraints.documents import *
from rankstruct.constraints.evaluation import *
from rankstruct.constraints.exposure import *
from rankstruct.constraints.fairness import *
from rankstruct.constraints.ranking import *
from rankstruct.constraints.rules import *
