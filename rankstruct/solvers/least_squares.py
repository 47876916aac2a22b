"""Least squares on differences within groups: a start for nonconvex methods, and a baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from rankstruct.solvers.shared import Peers

__all__ = ["group_regression"]

_BLOCK = 2**20  # numbers converted to float64 per block


def group_regression(
    X: Any,
    targets: np.ndarray,
    offsets: np.ndarray,
    team: Peers | None = None,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Return the w `[d]` that minimises the squares of `X w - targets`, both centred within each group.

    Args:
        X: `[documents, d]`, an array or a CSR array, float32 or float64; converted in blocks.
        targets: `[documents]`.
        offsets: `[groups + 1]`, group i is `[offsets[i], offsets[i + 1])`.
        team: the processes that hold the other groups, all of which must call this; see `solve_together`.
        weights: `[groups]`, the weights of the groups; 1 each if None.

    Returns:
        The solution, of minimum norm if there are several. O(documents d^2) time, O(d^2) memory.

    >>> X = np.array([[0.0], [1.0], [5.0], [7.0]])
    >>> group_regression(X, np.array([0.0, 2.0, 100.0, 104.0]), np.array([0, 2, 4])).round(6)
    array([2.])
    """
    offsets = np.asarray(offsets, np.intp)
    size = int(X.shape[1])
    gram, moment = np.zeros((size, size)), np.zeros(size)
    # sum over a group of (x - mean)(x - mean)^T = sum of x x^T - n mean mean^T, but the difference suffers from cancellation:
    # so groups are centred explicitly, in blocks.
    widest = max(1, _BLOCK // max(1, size))
    first, groups = 0, len(offsets) - 1
    while first < groups:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + widest, side="right")) - 1)
        last = min(last, groups)
        start, stop = offsets[first], offsets[last]
        rows = X[start:stop]
        rows = (rows.toarray() if sp.issparse(rows) else rows).astype(np.float64)
        values = np.asarray(targets[start:stop], np.float64)
        lengths = np.diff(offsets[first : last + 1])
        number = np.repeat(np.arange(last - first), lengths)
        inverse = 1.0 / np.maximum(lengths, 1)
        means = sp.csr_array(
            (np.repeat(inverse, lengths), np.arange(stop - start), offsets[first : last + 1] - start),
            shape=(last - first, stop - start),
        )
        rows -= (means @ rows)[number]
        values -= (means @ values)[number]
        if weights is not None:
            roots = np.sqrt(np.asarray(weights, np.float64)[first:last])[number]
            rows, values = rows * roots[:, None], values * roots
        gram += rows.T @ rows
        moment += rows.T @ values
        first = last
    if team is not None:
        gram, moment = team.sum(gram), team.sum(moment)
    eigenvalues, vectors = scipy.linalg.eigh(gram)
    kept = eigenvalues > 1e-10 * max(float(eigenvalues[-1]), 0.0) if size else np.zeros(0, bool)
    return vectors[:, kept] @ ((vectors[:, kept].T @ moment) / eigenvalues[kept])
