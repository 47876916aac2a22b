"""Rankings under rules: caps and quotas of groups within the first positions, and documents at given positions."""

from rankstruct.constraints.documents import violations
from rankstruct.constraints.evaluation import evaluate_under
from rankstruct.constraints.ranking import rank_under
from rankstruct.constraints.rules import Constraints, Rule, fair_quotas

__all__ = ["Constraints", "Rule", "evaluate_under", "fair_quotas", "rank_under", "violations"]
