"""Least-squares regression on gains: the start of methods that are not convex."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from rankstruct.data import Batch
from rankstruct.models import LinearScorer

_MOST_FEATURES = 5000  # of a closed form: a matrix of 200 MB


def fit_regression(
    scorer: nn.Module,
    batches: Iterable[Batch],
    gains: Callable[[Tensor], Tensor],
    *,
    epochs: int = 20,
    learning_rate: float = 0.01,
) -> None:
    """Fit a scorer, in place, so that score differences within a list are those of the gains, by least squares.

    Scores and gains are taken relative to their list's mean, since no ranking sees a constant. A `LinearScorer` gets the exact
    solution, the shortest one if there are several; any other scorer a short run of Adam.

    Args:
        scorer: features `[..., list_size, d]` to scores `[..., list_size]`.
        batches: the training lists; they are gone through once for a linear scorer, `epochs` times for another.
        gains: what a label is worth, such as `rankstruct.nDCG().document_gains`.
        epochs: passes over the batches.
        learning_rate: of Adam.

    Raises:
        ValueError: there are no batches.
    """
    device = next(scorer.parameters()).device
    batches = [batch.to(device) for batch in batches]
    if not batches:
        raise ValueError("there is no list to fit the regression on")
    if isinstance(scorer, LinearScorer) and scorer.num_features <= _MOST_FEATURES:
        _solve(scorer, batches, gains)
        return
    optimizer = torch.optim.Adam(scorer.parameters(), lr=learning_rate)
    for _ in range(epochs):
        for batch in batches:
            optimizer.zero_grad()
            scores = _centred(scorer(batch.features), batch.where)
            target = _centred(gains(batch.labels).to(scores), batch.where)
            ((scores - target).square().sum() / batch.where.sum().clamp(min=1)).backward()
            optimizer.step()
    optimizer.zero_grad()


def _solve(scorer: LinearScorer, batches: list[Batch], gains: Callable[[Tensor], Tensor]) -> None:
    size = scorer.num_features
    weight = scorer.linear.weight
    gram = torch.zeros(size, size, dtype=torch.float64)
    moment = torch.zeros(size, dtype=torch.float64)
    for batch in batches:
        where = batch.where.cpu()
        features = batch.features.cpu().double()
        mean = (features * where.unsqueeze(-1)).sum(-2, keepdim=True) / _count(where).unsqueeze(-1)
        features = torch.where(where.unsqueeze(-1), features - mean, 0.0).flatten(0, -2)
        target = _centred(gains(batch.labels.cpu()).double(), where).flatten()
        gram += features.T @ features
        moment += features.T @ target
    solution = torch.linalg.lstsq(gram, moment.unsqueeze(-1), driver="gelsd").solution
    with torch.no_grad():
        weight.copy_(solution.T)


def _centred(values: Tensor, where: Tensor) -> Tensor:
    """Less the list's mean; 0 in the padding."""
    mean = torch.where(where, values, 0.0).sum(-1, keepdim=True) / _count(where)
    return torch.where(where, values - mean, 0.0)


def _count(where: Tensor) -> Tensor:
    return where.sum(-1, keepdim=True).clamp(min=1)
