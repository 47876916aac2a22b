"""Rankers in the feature space of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import nn

from rankstruct.estimators.linear import LinearRanker
from rankstruct.feature_maps import FeatureMap
from rankstruct.measures import Measure
from rankstruct.oracles.registry import Reference
from rankstruct.solvers import DC, Annealing, Kernel, KernelMap, Solver

__all__ = ["KernelRanker"]


class KernelRanker(LinearRanker):
    """A ranker in the feature space of a kernel, trained to the optimum of a ranking loss.

    Args:
        measure: as in `LinearRanker`, and so are all arguments that are not listed here.
        kernel: `"rbf"`, `"polynomial"`, `"linear"` or `"precomputed"` (X then holds the kernel values with all training rows).
        gamma: of the first two; 1 / number of features if None.
        degree: of the polynomial.
        offset: of the polynomial.
        exact_up_to: with so many training rows or fewer the kernel is exact; beyond, by Nystroem.
        landmarks: rows that Nystroem takes.
        random_state: seed of their choice.

    Attributes:
        map_: the `KernelMap`; `map_.exact` says whether Nystroem was needed.
        dual_coef_: `[basis]`, the score of x is `sum_j dual_coef_[j] k(x_j, x)` over the basis rows.
        coef_: the weights in the space of `map_`.

    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(200, 2)), np.repeat(np.arange(20), 10)
    >>> y = (np.square(X).sum(1) < 0.5).astype(int)           # relevant is what is near the origin
    >>> ranker = KernelRanker("AP", kernel="rbf", C=100.0).fit(X, y, qid)
    >>> ranker.score(X, y, qid) > 0.85 > 0.5 > LinearRanker("AP").fit(X, y, qid).score(X, y, qid)
    True
    """

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
        random_state: int = 0,
        C: float | Sequence[float] = 100.0,
        feature_map: str | FeatureMap | None = None,
        reference: Reference | None = None,
        loss: str | nn.Module | None = None,
        prepare: Sequence[str] = (),
        solver: str | Solver | DC | Annealing = "bundle",
        tolerance: float = 1e-3,
        max_iterations: int = 10_000,
        start: str | None = None,
        regularize_towards: str | None = None,
        drop_empty: bool = True,
        verbose: bool = False,
    ) -> None:
        super().__init__(measure, C=C, feature_map=feature_map, reference=reference, loss=loss, solver=solver)
        self.tolerance, self.max_iterations, self.start = tolerance, max_iterations, start
        self.prepare = prepare
        self.regularize_towards, self.drop_empty, self.verbose = regularize_towards, drop_empty, verbose
        self.kernel, self.gamma, self.degree, self.offset = kernel, gamma, degree, offset
        self.exact_up_to, self.landmarks, self.random_state = exact_up_to, landmarks, random_state

    def _fit_features(self, X: Any) -> Any:
        kernel = Kernel(self.kernel, gamma=self.gamma, degree=self.degree, offset=self.offset)
        sizes = {"exact_up_to": self.exact_up_to, "landmarks": self.landmarks}
        self.map_ = KernelMap.fit(kernel, X, **sizes, seed=self.random_state)
        return self.map_(X)

    def _features(self, X: Any) -> Any:
        return self.map_(X)

    def predict(self, X: Any, qid: Any = None) -> np.ndarray:
        """Scores `[documents]`, float64; as in `LinearRanker`."""
        check_is_fitted(self)
        return self.map_.predict(self._prepared(self._check(X, reset=False), qid), self.coef_)

    @property
    def dual_coef_(self) -> np.ndarray:
        """`[basis]`, the coefficients of the representer form."""
        check_is_fitted(self)
        return self.map_.representer(self.coef_)

    @classmethod
    def from_scorer(cls, scorer: nn.Module, **options: Any) -> LinearRanker:
        """There is none: raises ValueError."""
        raise ValueError("a linear scorer has no kernel; use LinearRanker.from_scorer")

    def to_scorer(self) -> nn.Module:
        """There is none: raises ValueError."""
        raise ValueError("a KernelRanker is no linear function of the features; use its predict")
