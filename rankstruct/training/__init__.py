"""Training with Lightning: module, data module, callbacks."""

from rankstruct.training.callbacks import AtomicCheckpoints, AverageWeights, PredictionWriter, TrainingBoard
from rankstruct.training.datamodule import RankingDataModule
from rankstruct.training.module import RankingModule
from rankstruct.training.regression import fit_regression
from rankstruct.training.rounds import AnnealSigma, DCRounds

__all__ = [
    "AnnealSigma",
    "AtomicCheckpoints",
    "AverageWeights",
    "DCRounds",
    "PredictionWriter",
    "RankingDataModule",
    "RankingModule",
    "TrainingBoard",
    "fit_regression",
]
