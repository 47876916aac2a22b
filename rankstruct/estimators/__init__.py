"""Rankers with the conventions of scikit-learn: `fit(X, y, qid)`, `predict(X)`."""

from rankstruct.estimators.auto import *
from rankstruct.estimators.boosting import *
from rankstruct.estimators.ensemble import *
from rankstruct.estimators.kernel import *
from rankstruct.estimators.linear import *
from rankstruct.estimators.mlp import *
