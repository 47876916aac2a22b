"""Scorers, from features to scores, and their files."""

from rankstruct.models.saving import load_scorer, save_scorer
from rankstruct.models.scorers import LinearScorer, MLPScorer

__all__ = ["LinearScorer", "MLPScorer", "load_scorer", "save_scorer"]
