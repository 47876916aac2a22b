"""Kernels as features: with K = Z Z^T, a linear problem in Z is the kernel problem, with norm ||w||.

Exact: Z = U L^(1/2) from the eigendecomposition K = U L U^T over all training rows. Nystroem: the same over
landmark rows M, and k(x, M) U L^(-1/2) for every row x, including training rows. Both are functions

    score(x) = <w, z(x)> = sum_j alpha_j k(x_j, x),      alpha = U L^(-1/2) w

over basis rows x_j, the representer form.

Source: Schoelkopf, Herbrich, Smola, "A Generalized Representer Theorem", COLT 2001; Williams and Seeger, "Using the
Nystroem Method to Speed Up Kernel Machines", NIPS 2000.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from rankstruct.checks import check_choice, check_integers, check_numbers

__all__ = ["Kernel", "KernelMap"]

KERNELS = ("linear", "rbf", "polynomial", "precomputed")
_BLOCK = 2**22  # kernel values per block: 32 MiB


@dataclass(frozen=True)
class Kernel:
    """A kernel function of two rows.

    Args:
        name: `linear` <x, y>; `rbf` exp(-gamma ||x - y||^2); `polynomial` (gamma <x, y> + offset)^degree; `precomputed`,
            with rows of kernel values.
        gamma: positive; None for 1 / number of features.
        degree: of the polynomial, a positive integer.
        offset: of the polynomial, >= 0.

    >>> Kernel("rbf", gamma=0.5)(np.array([[0.0], [1.0]]), np.array([[1.0]])).round(4)
    array([[0.6065],
           [1.    ]])
    """

    name: str = "rbf"
    gamma: float | None = None
    degree: int = 3
    offset: float = 1.0

    def __post_init__(self) -> None:
        check_choice("kernel", self.name, KERNELS)
        check_numbers("> 0", optional=True, gamma=self.gamma)
        check_integers(1, 2**31 - 1, degree=self.degree)
        check_numbers(">= 0", offset=self.offset)  # the kernel is positive semidefinite

    def __call__(self, X: Any, Y: Any) -> np.ndarray:
        """Return kernel values `[rows of X, rows of Y]`, float64, of arrays or CSR arrays with the same columns."""
        if self.name == "precomputed":
            raise ValueError("a precomputed kernel is not a function; pass its values as X")
        if X.shape[1] != Y.shape[1]:
            raise ValueError(f"rows must have the same number of features, got {X.shape[1]} and {Y.shape[1]}")
        from sklearn.metrics.pairwise import pairwise_kernels  # slow to import

        options = {"gamma": self.gamma, "degree": int(self.degree), "coef0": self.offset}
        return pairwise_kernels(_float64(X), _float64(Y), metric=self.name, filter_params=True, **options)


@dataclass(frozen=True)
class KernelMap:
    """Features whose inner products are kernel values; created by `KernelMap.fit`.

    Attributes:
        kernel: the kernel.
        basis: the rows x_j of the representer form; None for a precomputed kernel.
        indices: their indices among the training rows.
        projection: `[basis, r]`, U L^(-1/2); z(x) = k(x, basis) projection. None if loaded from a file, for `scores` only.
        exact: whether every training row is in the basis.

    >>> X = np.random.default_rng(0).normal(size=(20, 3))
    >>> mapped = KernelMap.fit(Kernel("rbf"), X)
    >>> Z = mapped(X)
    >>> bool(np.allclose(Z @ Z.T, Kernel("rbf")(X, X))), mapped.exact
    (True, True)
    """

    kernel: Kernel
    basis: Any = field(repr=False)
    indices: np.ndarray = field(repr=False)
    projection: np.ndarray | None = field(repr=False)
    exact: bool

    @classmethod
    def fit(
        cls,
        kernel: Kernel,
        X: Any,
        *,
        exact_up_to: int = 3000,
        landmarks: int = 1000,
        seed: int = 0,
        tolerance: float = 1e-10,
    ) -> KernelMap:
        """Fit the map to training rows.

        Args:
            kernel: the kernel.
            X: `[n, d]`, an array or a CSR array; for a precomputed kernel the symmetric `[n, n]` values.
            exact_up_to: the most rows for which all are in the basis, at O(n^3) time and O(n^2) memory.
            landmarks: number of rows sampled for Nystroem if there are more.
            seed: of the sample.
            tolerance: eigenvalues below this fraction of the largest are dropped.

        Raises:
            ValueError: no rows, wrong shapes, or kernel values that are not finite or have a clearly negative eigenvalue.
        """
        n = X.shape[0]
        if n == 0:
            raise ValueError("a kernel map needs at least one training row, got none")
        precomputed = kernel.name == "precomputed"
        if precomputed and (sp.issparse(X) or X.shape != (n, n)):
            raise ValueError(f"precomputed kernel values must be an array [n, n], got shape {X.shape}")
        check_integers(1, landmarks=landmarks)
        check_integers(0, exact_up_to=exact_up_to)
        exact = n <= max(exact_up_to, landmarks)
        rng = np.random.default_rng(seed)
        indices = np.arange(n) if exact else np.sort(rng.choice(n, landmarks, replace=False))
        basis = None if precomputed else X[indices]
        values = np.asarray(X, np.float64)[np.ix_(indices, indices)] if precomputed else kernel(basis, basis)
        if not np.isfinite(values).all():
            raise ValueError("kernel values must be finite; check the features, or scale them before a polynomial")
        size = np.abs(values).max()
        if precomputed and np.abs(values - values.T).max() > 1e-6 * size:
            raise ValueError("precomputed kernel values must be symmetric; for new rows call the map with [rows, n]")
        eigenvalues, vectors = scipy.linalg.eigh((values + values.T) / 2, check_finite=False)
        largest = max(float(eigenvalues[-1]), 0.0)
        if eigenvalues[0] < -1e-5 * max(largest, size):
            raise ValueError(
                f"kernel values must be positive semidefinite, got eigenvalues from {eigenvalues[0]:g} to {largest:g}"
            )
        kept = eigenvalues > tolerance * largest
        return cls(kernel, basis, indices, vectors[:, kept] / np.sqrt(eigenvalues[kept]), exact)

    def values(self, X: Any) -> np.ndarray:
        """Return k(x, x_j) `[rows, basis]`; for a precomputed kernel, the columns of the basis in X `[rows, n]`."""
        if self.kernel.name != "precomputed":
            return self.kernel(X, self.basis)
        if X.shape[1] <= self.indices[-1]:
            raise ValueError(f"X must hold the kernel values with all training rows, got {X.shape[1]} columns")
        return np.asarray(X[:, self.indices], np.float64)

    def __call__(self, X: Any) -> np.ndarray:
        """Return z(x) `[rows, r]`, float64, for training or new rows."""
        return self._by_blocks(X, self._projection())

    def representer(self, w: np.ndarray) -> np.ndarray:
        """Return the alpha `[basis]` with <w, z(x)> = sum_j alpha_j k(x_j, x)."""
        return self._projection() @ w

    def _projection(self) -> np.ndarray:
        if self.projection is None:
            raise ValueError(
                "this kernel map was loaded from a file, which stores only what scoring needs: fit it again"
            )
        return self.projection

    def scores(self, X: Any, alpha: np.ndarray) -> np.ndarray:
        """Return scores sum_j alpha_j k(x_j, x) `[rows]`, the representer form."""
        return self._by_blocks(X, alpha)

    def _by_blocks(self, X: Any, right: np.ndarray) -> np.ndarray:
        result = np.empty((X.shape[0], *right.shape[1:]))
        step = max(1, _BLOCK // len(self.indices))
        for first in range(0, X.shape[0], step):
            result[first : first + step] = self.values(X[first : first + step]) @ right
        return result


def _float64(X: Any) -> Any:
    return X.astype(np.float64, copy=False) if sp.issparse(X) else np.asarray(X, np.float64)
