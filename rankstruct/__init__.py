"""rankstruct: differentiable ranking for PyTorch.

Train search, recommendation and re-ranking models on the measure they are evaluated with. The last dimension of `scores` and
`labels` is the list, all others are batch dimensions; `where` marks real documents; flat lists come with `offsets` instead.

The public names are those of the modules below. A module is imported when one of its names is first used, so that
`import rankstruct` is cheap.
"""

from typing import TYPE_CHECKING

from rankstruct._version import __version__ as __version__

if TYPE_CHECKING:
    from rankstruct import data as data
    from rankstruct import diagnostics as diagnostics
    from rankstruct import losses as losses
    from rankstruct import measures as measures
    from rankstruct import models as models
    from rankstruct import oracles as oracles
    from rankstruct import recommenders as recommenders
    from rankstruct import solvers as solvers
    from rankstruct import statistics as statistics
    from rankstruct import training as training
    from rankstruct.boosting import *
    from rankstruct.embeddings import *
    from rankstruct.estimators import *
    from rankstruct.feature_maps import *
    from rankstruct.losses import *
    from rankstruct.measures import *
    from rankstruct.metric import *
    from rankstruct.models import *
    from rankstruct.oracles import *
    from rankstruct.preparation import *
    from rankstruct.recommenders.factorization import *
    from rankstruct.scoring import *
else:
    from rankstruct._lazy import attach

    # Modules that are slow to import come last.
    __getattr__, __dir__ = attach(
        __name__,
        "feature_maps",
        "preparation",
        "measures",
        "oracles",
        "losses",
        "models",
        "scoring",
        "embeddings",
        "estimators",
        "boosting",
        "recommenders.factorization",
        "metric",
    )
