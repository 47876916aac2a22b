"""Training with Lightning: module, data module, callbacks, command line."""

from rankstruct.training.callbacks import AtomicCheckpoints, AverageWeights, PredictionWriter, TrainingBoard
from rankstruct.training.datamodule import RankingDataModule
from rankstruct.training.module import RankingModule

__all__ = [
    "AtomicCheckpoints",
    "AverageWeights",
    "PredictionWriter",
    "RankingDataModule",
    "RankingModule",
    "TrainingBoard",
]
