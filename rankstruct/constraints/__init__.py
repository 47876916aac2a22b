"""Rankings under rules: caps and quotas of groups within the first positions, and documents at given positions."""

from rankstruct.constraints.documents import *
from rankstruct.constraints.evaluation import *
from rankstruct.constraints.exposure import *
from rankstruct.constraints.fairness import *
from rankstruct.constraints.ranking import *
from rankstruct.constraints.rules import *
