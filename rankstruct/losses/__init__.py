"""Losses: one value a list, each as a function and as a thin module with the same arguments."""

from rankstruct.losses.assignment import (
    AssignmentHingeLoss,
    AssignmentLayer,
    assignment_hinge_loss,
    match,
)
from rankstruct.losses.combined import (
    CombinedLoss,
    convex_part,
    is_convex,
    takes_groups,
    takes_reference_scores,
)
from rankstruct.losses.direct import (
    DirectLoss,
    PerturbedLoss,
    direct_loss,
)
from rankstruct.losses.diverse_hinge import (
    DiverseHingeLoss,
    diverse_hinge_loss,
)
from rankstruct.losses.graded import (
    GradedLoss,
    graded_loss,
)
from rankstruct.losses.listwise import (
    ApproxNDCGLoss,
    ListMLELoss,
    ListNetLoss,
    approx_ndcg_loss,
    listmle_loss,
    listnet_loss,
)
from rankstruct.losses.pairwise import (
    LambdaLoss,
    RankNetLoss,
    RankSVMLoss,
    lambda_loss,
    ranknet_loss,
    ranksvm_loss,
)
from rankstruct.losses.pointwise import (
    ClassificationLoss,
    OrdinalLoss,
    SquaredLoss,
    classification_loss,
    ordinal_loss,
    squared_loss,
)
from rankstruct.losses.smooth import (
    SmoothLoss,
    smooth_loss,
)
from rankstruct.losses.structured_hinge import (
    StructuredHingeLoss,
    structured_hinge_loss,
)

__all__ = [
    "ApproxNDCGLoss",
    "AssignmentHingeLoss",
    "AssignmentLayer",
    "ClassificationLoss",
    "CombinedLoss",
    "DirectLoss",
    "DiverseHingeLoss",
    "GradedLoss",
    "LambdaLoss",
    "ListMLELoss",
    "ListNetLoss",
    "OrdinalLoss",
    "PerturbedLoss",
    "RankNetLoss",
    "RankSVMLoss",
    "SmoothLoss",
    "SquaredLoss",
    "StructuredHingeLoss",
    "approx_ndcg_loss",
    "assignment_hinge_loss",
    "classification_loss",
    "convex_part",
    "direct_loss",
    "diverse_hinge_loss",
    "graded_loss",
    "is_convex",
    "lambda_loss",
    "listmle_loss",
    "listnet_loss",
    "match",
    "ordinal_loss",
    "ranknet_loss",
    "ranksvm_loss",
    "smooth_loss",
    "squared_loss",
    "structured_hinge_loss",
    "takes_groups",
    "takes_reference_scores",
]
