"""Losses: one value a list, each as a function and as a thin module with the same arguments."""

from rankstruct.losses.listwise import (
    ApproxNDCGLoss,
    ListMLELoss,
    ListNetLoss,
    approx_ndcg_loss,
    listmle_loss,
    listnet_loss,
)
from rankstruct.losses.pairwise import LambdaLoss, RankNetLoss, RankSVMLoss, lambda_loss, ranknet_loss, ranksvm_loss
from rankstruct.losses.pointwise import (
    ClassificationLoss,
    OrdinalLoss,
    SquaredLoss,
    classification_loss,
    ordinal_loss,
    squared_loss,
)
from rankstruct.losses.structured_hinge import StructuredHingeLoss, structured_hinge_loss

__all__ = [
    "ApproxNDCGLoss",
    "ClassificationLoss",
    "LambdaLoss",
    "ListMLELoss",
    "ListNetLoss",
    "OrdinalLoss",
    "RankNetLoss",
    "RankSVMLoss",
    "SquaredLoss",
    "StructuredHingeLoss",
    "approx_ndcg_loss",
    "classification_loss",
    "lambda_loss",
    "listmle_loss",
    "listnet_loss",
    "ordinal_loss",
    "ranknet_loss",
    "ranksvm_loss",
    "squared_loss",
    "structured_hinge_loss",
]
