"""rankstruct: differentiable ranking for PyTorch.

Train search, recommendation and re-ranking models on the measure they are judged by. The last dimension of `scores` and
`labels` is the list, all others are batch; `where` marks real documents; flat lists come with `offsets` instead.
"""

from typing import TYPE_CHECKING

from rankstruct._version import (
    __version__,
)
from rankstruct.feature_maps import (
    FeatureMap,
    FirstRelevant,
    Pairwise,
    Positional,
)
from rankstruct.losses import (
    ApproxNDCGLoss,
    AssignmentHingeLoss,
    AssignmentLayer,
    ClassificationLoss,
    CombinedLoss,
    DirectLoss,
    DiverseHingeLoss,
    GradedLoss,
    LambdaLoss,
    ListMLELoss,
    ListNetLoss,
    OrdinalLoss,
    PerturbedLoss,
    RankNetLoss,
    RankSVMLoss,
    SmoothLoss,
    SquaredLoss,
    StructuredHingeLoss,
    approx_ndcg_loss,
    assignment_hinge_loss,
    classification_loss,
    direct_loss,
    diverse_hinge_loss,
    graded_loss,
    lambda_loss,
    listmle_loss,
    listnet_loss,
    match,
    ordinal_loss,
    ranknet_loss,
    ranksvm_loss,
    smooth_loss,
    squared_loss,
    structured_hinge_loss,
)
from rankstruct.measures import (
    AP,
    AUC,
    DCG,
    ERU,
    RR,
    WTA,
    DiscountedGain,
    Diverse,
    MeanNDCG,
    Measure,
    P,
    RankingMetric,
    StRecall,
    alpha_nDCG,
    diverse_nDCG,
    evaluate,
    mWTA,
    nDCG,
    nERU,
    parse_measure,
    register_measure,
    rerank_diverse,
)
from rankstruct.models import (
    LinearScorer,
    MLPScorer,
    load_scorer,
    save_scorer,
)
from rankstruct.oracles import (
    MostViolated,
    explain_oracle,
    most_violated,
    most_violated_diverse,
    register_oracle,
)

if TYPE_CHECKING:
    from rankstruct.estimators import KernelRanker, LinearRanker
    from rankstruct.recommenders import MatrixFactorization

__all__ = [
    "AP",
    "AUC",
    "DCG",
    "ERU",
    "RR",
    "WTA",
    "ApproxNDCGLoss",
    "AssignmentHingeLoss",
    "AssignmentLayer",
    "ClassificationLoss",
    "CombinedLoss",
    "DirectLoss",
    "DiscountedGain",
    "Diverse",
    "DiverseHingeLoss",
    "FeatureMap",
    "FirstRelevant",
    "GradedLoss",
    "KernelRanker",
    "LambdaLoss",
    "LinearRanker",
    "LinearScorer",
    "ListMLELoss",
    "ListNetLoss",
    "MLPScorer",
    "MatrixFactorization",
    "MeanNDCG",
    "Measure",
    "MostViolated",
    "OrdinalLoss",
    "P",
    "Pairwise",
    "PerturbedLoss",
    "Positional",
    "RankNetLoss",
    "RankSVMLoss",
    "RankingMetric",
    "SmoothLoss",
    "SquaredLoss",
    "StRecall",
    "StructuredHingeLoss",
    "__version__",
    "alpha_nDCG",
    "approx_ndcg_loss",
    "assignment_hinge_loss",
    "classification_loss",
    "direct_loss",
    "diverse_hinge_loss",
    "diverse_nDCG",
    "evaluate",
    "explain_oracle",
    "graded_loss",
    "lambda_loss",
    "listmle_loss",
    "listnet_loss",
    "load_scorer",
    "mWTA",
    "match",
    "most_violated",
    "most_violated_diverse",
    "nDCG",
    "nERU",
    "ordinal_loss",
    "parse_measure",
    "ranknet_loss",
    "ranksvm_loss",
    "register_measure",
    "register_oracle",
    "rerank_diverse",
    "save_scorer",
    "smooth_loss",
    "squared_loss",
    "structured_hinge_loss",
]


def __getattr__(name: str) -> object:
    """What needs the estimators, imported when it is first asked for: scikit-learn takes longer than all the rest."""
    if name in ("KernelRanker", "LinearRanker"):
        from rankstruct import estimators

        return getattr(estimators, name)
    if name == "MatrixFactorization":
        from rankstruct import recommenders

        return recommenders.MatrixFactorization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
