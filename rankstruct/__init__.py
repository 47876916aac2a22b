"""rankstruct: differentiable ranking for PyTorch.

Train search, recommendation and re-ranking models on the measure they are judged by. The last dimension of `scores` and
`labels` is the list, all others are batch; `where` marks real documents; flat lists come with `offsets` instead.
"""

from rankstruct._version import __version__
from rankstruct.feature_maps import FeatureMap, FirstRelevant, Pairwise, Positional
from rankstruct.losses import StructuredHingeLoss, structured_hinge_loss
from rankstruct.measures import (
    AP,
    AUC,
    DCG,
    ERU,
    RR,
    WTA,
    DiscountedGain,
    MeanNDCG,
    Measure,
    P,
    RankingMetric,
    evaluate,
    mWTA,
    nDCG,
    nERU,
    parse_measure,
    register_measure,
)
from rankstruct.models import LinearScorer, MLPScorer, load_scorer, save_scorer
from rankstruct.oracles import MostViolated, explain_oracle, most_violated, register_oracle

__all__ = [
    "AP",
    "AUC",
    "DCG",
    "ERU",
    "RR",
    "WTA",
    "DiscountedGain",
    "FeatureMap",
    "FirstRelevant",
    "LinearScorer",
    "MLPScorer",
    "MeanNDCG",
    "Measure",
    "MostViolated",
    "P",
    "Pairwise",
    "Positional",
    "RankingMetric",
    "StructuredHingeLoss",
    "__version__",
    "evaluate",
    "explain_oracle",
    "load_scorer",
    "mWTA",
    "most_violated",
    "nDCG",
    "nERU",
    "parse_measure",
    "register_measure",
    "register_oracle",
    "save_scorer",
    "structured_hinge_loss",
]
