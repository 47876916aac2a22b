"""Scorers, from features to scores, and their files."""

from rankstruct.models.factorization import ItemScorer, MatrixFactorization
from rankstruct.models.saving import load_scorer, save_scorer
from rankstruct.models.scorers import LinearScorer, MLPScorer

__all__ = ["ItemScorer", "LinearScorer", "MLPScorer", "MatrixFactorization", "load_scorer", "save_scorer"]
