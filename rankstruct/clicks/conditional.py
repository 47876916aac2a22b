"""The likelihood of the ranks at which documents are clicked, given how often each is clicked.

If a document at rank k is clicked with probability p_k a, and was shown there n_k times, a click of it is at rank k with
probability n_k p_k / sum_j n_j p_j: its own attraction a cancels, so many documents with few clicks do not bias the estimates.
This is exact for clicks that are Poisson; for others the equations of the maximum still have the expected value 0. With log p_k
linear in features, and 0 at rank 1, the logarithm of the likelihood is concave.

Source: Hausman, Hall, Griliches, "Econometric Models for Count Data with an Application to the Patents-R&D Relationship",
Econometrica 1984; Wooldridge, "Distribution-Free Estimation of Some Nonlinear Panel Data Models", Journal of Econometrics 1999.
"""

from __future__ import annotations

import numpy as np


def maximise(shown: np.ndarray, clicked: np.ndarray, design: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Maximise the likelihood by Newton's method, with steps halved until it rises.

    Args:
        shown: `[documents, ranks]`, how often each document was shown at each rank.
        clicked: likewise, how often it was clicked there.
        design: `[documents, d]`, the features of its query and a constant.

    Returns:
        The coefficients of ranks from 2 on, `[ranks - 1, d]`; the distribution of the clicks of each document over the ranks,
        `[documents, ranks]`; and the inverse of the information, `[(ranks - 1) d, (ranks - 1) d]`.

    Raises:
        ValueError: the maximum is not unique, or at infinity.
    """
    ranks, size = shown.shape[1], design.shape[1]
    products = (design[:, :, None] * design[:, None]).reshape(len(design), -1)
    coefficients = np.zeros((ranks - 1, size))
    value, chances = _likelihood(coefficients, shown, clicked, design)
    for _ in range(100):
        gradient = residuals(clicked, chances)[:, 1:].T @ design
        hessian = _hessian(clicked.sum(1), chances, products)
        if np.linalg.eigvalsh(hessian)[0] < 1e-4:  # less than the information of a ten thousandth of a click
            break
        step = np.linalg.solve(hessian, gradient.ravel()).reshape(gradient.shape)
        if (step * gradient).sum() < 1e-13 * max(1e5, clicked.sum()):
            return coefficients + step, chances, np.linalg.inv(hessian)
        for halved in 0.5 ** np.arange(30):
            tried, after = _likelihood(coefficients + halved * step, shown, clicked, design)
            if tried > value:
                break
        coefficients, value, chances = coefficients + halved * step, tried, after
    raise ValueError(
        "the clicks do not determine the propensities: a rank has too few of them (in some contexts), or a context feature is a "
        "combination of others; log more sessions, or use fewer features"
    )


def _likelihood(
    coefficients: np.ndarray, shown: np.ndarray, clicked: np.ndarray, design: np.ndarray
) -> tuple[float, np.ndarray]:
    """The log likelihood of the ranks of clicks, and their distribution `[documents, ranks]`."""
    logs = np.concatenate([np.zeros((len(design), 1)), design @ coefficients.T], 1)
    chances = shown * np.exp(logs - logs.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    return float((clicked * np.log(np.where(clicked > 0, chances, 1))).sum()), chances


def residuals(clicked: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """The clicks at each rank minus those expected, `[documents, ranks]`."""
    return clicked - clicked.sum(1, keepdims=True) * chances


def _hessian(clicks: np.ndarray, chances: np.ndarray, products: np.ndarray) -> np.ndarray:
    """The second derivatives of the negative log likelihood, over ranks from 2 and features."""
    ranks, size = chances.shape[1] - 1, round(products.shape[1] ** 0.5)
    blocks = np.empty((ranks, ranks, size, size))
    for rank in range(ranks):
        weight = -(clicks * chances[:, rank + 1])[:, None] * chances[:, 1:]
        weight[:, rank] += clicks * chances[:, rank + 1]
        blocks[rank] = (weight.T @ products).reshape(ranks, size, size)
    return blocks.transpose(0, 2, 1, 3).reshape(ranks * size, ranks * size)
