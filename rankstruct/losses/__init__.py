"""Losses: one value a list, each as a function and as a thin module with the same arguments."""

from rankstruct.losses.structured_hinge import StructuredHingeLoss, structured_hinge_loss

__all__ = ["StructuredHingeLoss", "structured_hinge_loss"]
