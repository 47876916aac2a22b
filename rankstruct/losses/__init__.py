"""Losses: one value a list, each as a function and as a thin module with the same arguments."""

from rankstruct.losses.combined import CombinedLoss
from rankstruct.losses.direct import DirectLoss, PerturbedLoss, direct_loss
from rankstruct.losses.graded import GradedLoss, graded_loss
from rankstruct.losses.smooth import SmoothLoss, smooth_loss
from rankstruct.losses.structured_hinge import StructuredHingeLoss, structured_hinge_loss

__all__ = [
    "CombinedLoss",
    "DirectLoss",
    "GradedLoss",
    "PerturbedLoss",
    "SmoothLoss",
    "StructuredHingeLoss",
    "direct_loss",
    "graded_loss",
    "smooth_loss",
    "structured_hinge_loss",
]
