# The public names of the package, in the order in which they are documented. `rankstruct/_lazy.py` reads this file, so that a name
# is listed once, for type checkers and at run time. All other names are in the modules below.
from rankstruct import (
    arrays as arrays,
    clicks as clicks,
    data as data,
    diagnostics as diagnostics,
    embeddings as embeddings,
    estimators as estimators,
    feature_maps as feature_maps,
    hub as hub,
    losses as losses,
    measures as measures,
    models as models,
    oracles as oracles,
    recommenders as recommenders,
    solvers as solvers,
    statistics as statistics,
    training as training,
)
from rankstruct._version import __version__ as __version__
from rankstruct.measures import (
    evaluate as evaluate,
    AP as AP,
    nDCG as nDCG,
    DCG as DCG,
    RR as RR,
    AUC as AUC,
    pAUC as pAUC,
    ERR as ERR,
    ERU as ERU,
    Diverse as Diverse,
    Measure as Measure,
    DiscountedGain as DiscountedGain,
    parse_measure as parse_measure,
    register_measure as register_measure,
)
from rankstruct.measures import AP as MAP, RR as MRR, nDCG as NDCG  # as other libraries call them
from rankstruct.metric import RankingMetric as RankingMetric
from rankstruct.calibration import Calibration as Calibration
from rankstruct.constraints import Constraints as Constraints, rank_under as rank_under, rerank_diverse as rerank_diverse
from rankstruct.cut_off import CutOff as CutOff
from rankstruct.losses import (
    StructuredHingeLoss as StructuredHingeLoss,
    GradedLoss as GradedLoss,
    LambdaLoss as LambdaLoss,
    RankNetLoss as RankNetLoss,
    RankSVMLoss as RankSVMLoss,
    FidelityLoss as FidelityLoss,
    CircleLoss as CircleLoss,
    grade_pair_weights as grade_pair_weights,
    ListNetLoss as ListNetLoss,
    ListMLELoss as ListMLELoss,
    SoftmaxLoss as SoftmaxLoss,
    ApproxNDCGLoss as ApproxNDCGLoss,
    SmoothAPLoss as SmoothAPLoss,
    NeuralNDCGLoss as NeuralNDCGLoss,
    NeuralSortLoss as NeuralSortLoss,
    SmoothLoss as SmoothLoss,
    SoftRankLoss as SoftRankLoss,
    PLRankLoss as PLRankLoss,
    ExposureLoss as ExposureLoss,
    TopSurrogateLoss as TopSurrogateLoss,
    DirectLoss as DirectLoss,
    PerturbedLoss as PerturbedLoss,
    CombinedLoss as CombinedLoss,
    SquaredLoss as SquaredLoss,
    ClassificationLoss as ClassificationLoss,
    OrdinalLoss as OrdinalLoss,
    ListOrdinalLoss as ListOrdinalLoss,
    MarginMSELoss as MarginMSELoss,
    RankDistilLoss as RankDistilLoss,
    DiscountedRankMSELoss as DiscountedRankMSELoss,
    AssignmentHingeLoss as AssignmentHingeLoss,
    assign_positions as assign_positions,
    RankingLoss as RankingLoss,
)
from rankstruct.feature_maps import (
    FeatureMap as FeatureMap,
    Pairwise as Pairwise,
    PartialPairwise as PartialPairwise,
    FirstRelevant as FirstRelevant,
    PredictedPositive as PredictedPositive,
    Positional as Positional,
    register_feature_map as register_feature_map,
)
from rankstruct.oracles import (
    most_violated as most_violated,
    explain_oracle as explain_oracle,
    Oracle as Oracle,
    register_oracle as register_oracle,
    set_default_bound as set_default_bound,
)
from rankstruct.models import (
    LinearScorer as LinearScorer,
    MLPScorer as MLPScorer,
    ContextScorer as ContextScorer,
    save_scorer as save_scorer,
    load_scorer as load_scorer,
)
from rankstruct.estimators import (
    LinearRanker as LinearRanker,
    KernelRanker as KernelRanker,
    MLPRanker as MLPRanker,
    EnsembleRanker as EnsembleRanker,
    AutoRanker as AutoRanker,
)
from rankstruct.preparation import Preparation as Preparation
from rankstruct.estimators.boosting import (
    BoostedRanker as BoostedRanker,
    boosting_objective as boosting_objective,
    boosting_metric as boosting_metric,
)
from rankstruct.embeddings import (
    SimilarityLoss as SimilarityLoss,
    EmbeddingLoss as EmbeddingLoss,
    MemoryBank as MemoryBank,
)
from rankstruct.scoring import sliced_scores as sliced_scores, preference_scores as preference_scores
from rankstruct.recommenders import MatrixFactorization as MatrixFactorization, Recommender as Recommender
