"""Rankers in the feature space of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import nn
from typing_extensions import Self

from rankstruct.estimators.base import RandomState, as_seed
from rankstruct.estimators.linear import LinearRanker
from rankstruct.estimators.training_data import TrainingData, whole
from rankstruct.measures import Measure
from rankstruct.models import KernelScorer
from rankstruct.solvers import Kernel, KernelMap

__all__ = ["KernelRanker"]


class KernelRanker(LinearRanker):
    """A ranker in the feature space of a kernel, trained to the optimum of a ranking loss.

    Args:
        measure: as in `LinearRanker`, like all arguments that are not listed here; C defaults to 100.
        kernel: `"rbf"`, `"polynomial"`, `"linear"` or `"precomputed"` (X then holds the kernel values with all training rows).
        gamma: of the RBF and the polynomial kernel; 1 / number of prepared features if None.
        degree: of the polynomial, a positive integer.
        offset: of the polynomial.
        exact_up_to: the maximum number of training rows for an exact kernel; with more rows the kernel is approximated by
            Nystroem.
        landmarks: number of rows that Nystroem samples.
        random_state: seed of the sample; None or a random state of NumPy draws one.

    Attributes:
        map_: the `KernelMap`; `map_.exact` is False if Nystroem was used.
        dual_coef_: `[basis]`, the score of x is `sum_j dual_coef_[j] k(x_j, x)` over the basis rows.
        coef_: the weights in the feature space of `map_`.

    Pickles and other files store the basis rows and their coefficients, without the kernel matrix of the basis.

    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(200, 2)), np.repeat(np.arange(20), 10)
    >>> y = (np.square(X).sum(1) < 0.5).astype(int)           # documents near the origin are relevant
    >>> ranker = KernelRanker("AP", kernel="rbf", C=100.0).fit(X, y, qid)
    >>> ranker.score(X, y, qid) > 0.85 > 0.5 > LinearRanker("AP").fit(X, y, qid).score(X, y, qid)
    True
    """

    chooses_by_clicks = False  # a precomputed kernel has no rows to hold out

    def __init__(
        self,
        measure: str | Measure | None = None,
        *,
        kernel: str = "rbf",
        gamma: float | None = None,
        degree: int = 3,
        offset: float = 1.0,
        exact_up_to: int = 3000,
        landmarks: int = 1000,
        random_state: RandomState = 0,
        C: float | Sequence[float] = 100.0,
        **options: Any,
    ) -> None:
        super().__init__(measure, C=C, **options)
        self.kernel, self.gamma, self.degree, self.offset = kernel, gamma, degree, offset
        self.exact_up_to, self.landmarks, self.random_state = exact_up_to, landmarks, random_state

    def _check_fit_options(self, has_validation: bool) -> None:
        if self.distributed:
            raise ValueError("KernelRanker fits the lists of one process: omit distributed, or use LinearRanker")
        super()._check_fit_options(has_validation)

    def __sklearn_tags__(self) -> Tags:
        """Declare pairwise features for a precomputed kernel."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def _takes_tables(self) -> bool:
        return self.kernel != "precomputed"

    def steps(self, X: Any) -> Sequence[str]:
        """Return the preparation steps that `fit` would use for features; none by default for a precomputed kernel."""
        return () if self.prepare is None and self.kernel == "precomputed" else super().steps(X)

    def _takes_sparse(self) -> bool:
        return super()._takes_sparse() and self.kernel != "precomputed"

    def _without_weight_zero(self, lists: TrainingData) -> TrainingData:
        if self.kernel == "precomputed" and not lists.item_weights.all():
            raise ValueError(
                "with kernel='precomputed', remove documents of item weight 0 from the rows and columns of X"
            )
        return super()._without_weight_zero(lists)

    def _fit_features(self, lists: TrainingData) -> Any:
        # Landmarks are drawn by row, and the columns of a precomputed kernel are the rows as they were passed.
        X, rows = whole(lists.features), lists.rows
        X = X if rows is None else X[np.argsort(rows)]
        kernel = Kernel(self.kernel, gamma=self.gamma, degree=self.degree, offset=self.offset)
        sizes = {"exact_up_to": self.exact_up_to, "landmarks": self.landmarks}
        self.map_ = KernelMap.fit(kernel, X, **sizes, seed=as_seed(self.random_state))
        Z = self.map_(X)
        return Z if rows is None else Z[np.argsort(np.argsort(rows))]

    def _features(self, X: Any) -> Any:
        return self.map_(X)

    def _scores(self, X: Any, qid: np.ndarray | None) -> np.ndarray:
        return self.map_.scores(self._prepared(X, qid), self.dual_coef_)

    def use_path(self, number: int) -> Self:
        """Use the solution of another C; see `LinearRanker.use_path`."""
        super().use_path(number)
        if self.map_.projection is not None:
            self._duals = [self.map_.representer(solution.w) for solution in self.path_]
        self.dual_coef_ = self._duals[number]
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Drop the matrix over pairs of basis rows: the restored ranker predicts, but has no `objective` or `risk`."""
        state = super().__getstate__()
        if "map_" in state:
            state["map_"] = replace(self.map_, projection=None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a ranker; one of an earlier version has the projection instead of the coefficients."""
        super().__setstate__(state)
        if hasattr(self, "coef_") and not hasattr(self, "dual_coef_"):
            self._duals = [self.map_.representer(solution.w) for solution in self.path_]
            self.dual_coef_ = self.map_.representer(self.coef_)

    @classmethod
    def from_scorer(cls, scorer: nn.Module, **options: Any) -> LinearRanker:
        """Not supported: raises ValueError."""
        raise ValueError("a linear scorer has no kernel; use LinearRanker.from_scorer")

    def to_scorer(self) -> nn.Module:
        """Return a PyTorch scorer of raw features, with the basis rows and their coefficients; it computes in float64.

        Raises:
            ValueError: the kernel is precomputed, so the score is not a function of features.
        """
        check_is_fitted(self)
        if self.map_.basis is None:
            raise ValueError("a precomputed kernel is not a function of features, so it has no scorer; use predict")
        kernel, basis = self.map_.kernel, self.map_.basis
        basis = torch.tensor(basis.toarray() if sp.issparse(basis) else basis, dtype=torch.float64)
        options: dict[str, Any] = {"gamma": kernel.gamma, "degree": int(kernel.degree), "offset": kernel.offset}
        scorer = KernelScorer(basis.shape[1], len(basis), kernel.name, **options)
        scorer.load_state_dict({"basis": basis, "coefficients": torch.tensor(self.dual_coef_)})
        return self._as_scorer(scorer)
