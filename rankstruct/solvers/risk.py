"""Risks for the solvers: the mean of convex, piecewise linear terms of w.

    R(w) = (1/Q) sum_q h_q(w),      h_q(w) = max_i ( b_qi + <g_qi, w> )

A subgradient at v defines a plane, `h_q(w) >= h_q(v) + <g, w - v>` for all w, the basis of the certified gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

__all__ = ["LinearRisk", "Risk", "RowsOf", "linear_scores"]

_BLOCK = 2**18  # numbers converted to float64 per block: 2 MiB


@runtime_checkable
class Risk(Protocol):
    """A convex risk; all arrays are float64.

    The bundle method needs only `__call__`; the n-slack and Frank-Wolfe methods also need `term_planes`.

    >>> class Absolute:  # R(w) = |w - 1|, and a subgradient
    ...     terms, dimension = 1, 1
    ...     def __call__(self, w):
    ...         return abs(float(w[0]) - 1), np.sign(w - 1)
    >>> Absolute()(np.array([3.0]))
    (2.0, array([1.]))
    """

    @property
    def terms(self) -> int:
        """Q, the number of terms."""

    @property
    def dimension(self) -> int:
        """d, the length of w."""

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return R(w) and a subgradient `[d]` of R at w; neither may alias memory that a later call changes."""

    def term_planes(self, w: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return h_q(w) `[k]` and subgradients `[k, d]` of the terms q in `indices` `[k]`, distinct, in their order.

        They are not divided by Q: `__call__` returns their means over all terms.
        """


Oracle = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
TermOracle = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class RowsOf:
    """A lazy selection of rows, gathered on access, to avoid a copy of a large or memory-mapped `X`.

    >>> RowsOf(np.eye(3), np.array([2, 0]))[0:1]
    array([[0., 0., 1.]])
    """

    def __init__(self, X: Any, rows: np.ndarray) -> None:
        self.X: Any = X.X if isinstance(X, RowsOf) else X
        self.rows: np.ndarray = X.rows[rows] if isinstance(X, RowsOf) else rows
        self.dtype, self.ndim, self.shape = X.dtype, 2, (len(rows), X.shape[1])

    def __getitem__(self, chosen: Any) -> np.ndarray:
        return self.X[self.rows[chosen]]


class LinearRisk:
    """The risk of a linear model whose terms are functions of the scores `X w` of their documents.

    h_q(w) = weight_q f_q(s_q), s_q the scores of documents [offsets[q], offsets[q + 1]), each f_q convex. `X` is not copied;
    products are accumulated in float64, with float32 `X` converted in blocks, and only once if it is a single block.

    Args:
        lists: `RankingData`, of which `features` and `offsets` are used: `[documents, d]`, an array or a CSR array of floats, or
            `RowsOf` an array, and `[Q + 1]`. A list may be empty.
        oracle: maps scores float64 `[documents]` to `(values [Q], direction [documents])`: f_q and a subgradient of each f_q
            with respect to its scores.
        weights: `[Q]` float64, >= 0, or None for 1 each. The mean divides by Q, not by their sum.
        term_oracle: maps `(scores, indices)` to the same for only the terms in `indices`; `scores` are those of their documents,
            concatenated. If None, `term_planes` calls `oracle` with all documents.

    Raises:
        ValueError: no lists, or weights of another shape, negative or not finite.

    >>> from rankstruct.data import RankingData
    >>> lists = RankingData.from_arrays([[1.0], [3.0], [2.0]], [0, 1, 0], ["a", "a", "b"])
    >>> def oracle(scores):                               # max(0, 1 - s) per document, two terms
    ...     values = np.maximum(0, 1 - scores)
    ...     return np.array([values[:2].sum(), values[2]]), np.where(scores < 1, -1.0, 0.0)
    >>> risk = LinearRisk(lists, oracle)
    >>> risk(np.array([0.25]))
    (0.75, array([-3.]))
    >>> risk.term_planes(np.array([0.25]), np.array([0]))
    (array([1.]), array([[-4.]]))
    """

    def __init__(
        self,
        lists: Any,
        oracle: Oracle,
        weights: np.ndarray | None = None,
        *,
        term_oracle: TermOracle | None = None,
    ) -> None:
        if len(lists.offsets) < 2:
            raise ValueError("lists must not be empty")
        if weights is not None and not (
            weights.shape == (len(lists.offsets) - 1,) and (np.isfinite(weights) & (weights >= 0)).all()
        ):
            got = np.array2string(weights, threshold=8)
            raise ValueError(f"weights must be {len(lists.offsets) - 1} finite numbers >= 0, one a list; got {got}")
        self.lists, self.weights = lists, weights
        self.terms, self.dimension = len(lists.offsets) - 1, int(lists.features.shape[1])
        self._of_documents = None if weights is None else np.repeat(weights, np.diff(lists.offsets))
        self._wide = _in_float64(lists.features)
        self.oracle, self.term_oracle = oracle, term_oracle

    def scores(self, w: np.ndarray) -> np.ndarray:
        """Return X w, float64 `[documents]`."""
        return linear_scores(self.lists.features if self._wide is None else self._wide, w)

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return R(w) and a subgradient `[d]`."""
        values, direction = self._ask(self.scores(w))
        if self.weights is not None:
            values, direction = values * self.weights, direction * self._of_documents
        if self._wide is not None:
            gradient = self._wide.T @ direction
        else:
            gradient = np.zeros(self.dimension)
            for first, last in _blocks(self.lists.features):
                gradient += _rows(self.lists.features, first, last).T @ direction[first:last]
        return float(values.mean()), gradient / self.terms

    def term_planes(self, w: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return h_q(w) `[k]` and subgradients `[k, d]` of the terms in `indices`; see `Risk`."""
        indices = np.asarray(indices, np.intp)
        X, offsets = self.lists.features, self.lists.offsets
        starts, lengths = offsets[indices], np.diff(offsets)[indices]
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        everything = len(indices) == self.terms and (np.diff(indices) > 0).all()
        documents = None if everything else np.repeat(starts - bounds[:-1], lengths) + np.arange(bounds[-1])
        if documents is not None and self.term_oracle is not None:
            parts = [_rows(X, a, a + n) @ w for a, n in zip(starts, lengths, strict=True)]
            values, direction = self.term_oracle(np.concatenate(parts or [[]]), indices)
        else:
            values, direction = self._ask(self.scores(w))
            if documents is not None:
                values, direction = values[indices], direction[documents]
        gradients = np.empty((len(indices), self.dimension))
        step = max(1, _BLOCK // max(1, self.dimension))
        cuts = np.unique(np.searchsorted(bounds, np.arange(0, bounds[-1], step)[1:], side="right"))
        for a, b in zip([0, *cuts], [*cuts, len(indices)], strict=True):
            first, last = bounds[a], bounds[b]
            rows = _rows(X, first, last) if documents is None else X[documents[first:last]]
            rows = rows.astype(np.float64, copy=False)
            select = sp.csr_array(
                (np.asarray(direction[first:last], float), np.arange(last - first), bounds[a : b + 1] - first),
                shape=(b - a, last - first),
            )
            product = select @ rows
            gradients[a:b] = product.toarray() if sp.issparse(product) else product
        values = np.asarray(values, float)
        if self.weights is not None:
            values = values * self.weights[indices]
            gradients *= self.weights[indices, None]
        return values, gradients

    def _ask(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, direction = self.oracle(scores)
        values, direction = np.asarray(values, float), np.asarray(direction, float)
        if values.shape != (self.terms,) or direction.shape != scores.shape:
            raise ValueError(
                f"oracle must return values [Q] = ({self.terms},) and direction [documents] = {scores.shape}, "
                f"got {values.shape} and {direction.shape}"
            )
        return values, direction


def linear_scores(X: Any, w: np.ndarray) -> np.ndarray:
    """Return X w, float64 `[documents]`; a float32 or float16 `X` is converted in blocks.

    >>> linear_scores(np.ones((2, 3), np.float32), np.array([0.1, 0.2, 0.3])).round(9)
    array([0.6, 0.6])
    """
    if (wide := _in_float64(X)) is not None:
        scores: np.ndarray = wide @ w
        return scores
    scores = np.empty(X.shape[0])
    for first, last in _blocks(X):
        scores[first:last] = _rows(X, first, last) @ w
    return scores


def _in_float64(X: Any) -> Any:
    """X in float64 if it is that, or small enough for a copy; None otherwise."""
    if X.dtype == np.float64 and not isinstance(X, RowsOf):
        return X
    single = not sp.issparse(X) and X.shape[0] * X.shape[1] <= _BLOCK
    return X[:].astype(np.float64) if single else None


def _blocks(X: Any) -> Iterator[tuple[int, int]]:
    """The first and the last row of blocks of about `_BLOCK` numbers."""
    documents = int(X.shape[0])
    width = X.nnz / max(1, documents) if sp.issparse(X) else X.shape[1]
    step = max(1, int(_BLOCK // max(1.0, width)))
    for first in range(0, documents, step):
        yield first, min(first + step, documents)


def _rows(X: Any, first: int, last: int) -> Any:
    """Rows [first, last) in float64."""
    if not sp.issparse(X):
        return X[first:last].astype(np.float64, copy=False)
    bounds = X.indptr[first : last + 1]
    inner = slice(bounds[0], bounds[-1])
    return sp.csr_array(
        (X.data[inner].astype(np.float64, copy=False), X.indices[inner], bounds - bounds[0]),
        shape=(last - first, X.shape[1]),
    )
