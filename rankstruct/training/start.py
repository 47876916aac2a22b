"""Least-squares regression on gains, as a start for nonconvex methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from rankstruct.data import Batch
from rankstruct.models import LinearScorer
from rankstruct.models.scorers import scores_of
from rankstruct.solvers import group_regression

__all__ = ["fit_regression"]

_MOST_FEATURES = 5000  # for the closed form: a matrix of 200 MB


def fit_regression(
    scorer: nn.Module,
    batches: Iterable[Batch],
    gains: Callable[[Tensor], Tensor],
    *,
    epochs: int = 20,
    learning_rate: float = 0.01,
) -> None:
    """Fit a scorer in place by least squares, so that score differences within a list approximate those of the gains.

    Scores and gains are centred within each list, since a constant does not affect rankings. A `LinearScorer` is fitted exactly,
    to the minimum-norm solution if there are several; any other scorer by a short run of Adam.

    Args:
        scorer: maps features `[..., list_size, d]` to scores `[..., list_size]`.
        batches: the training lists; read once for a linear scorer, `epochs` times for another.
        gains: maps labels to gains, such as `rankstruct.nDCG().document_gains`.
        epochs: passes over the batches.
        learning_rate: of Adam.

    Raises:
        ValueError: there are no batches.
    """
    weight = next(scorer.parameters())
    batches = [batch.to(weight.device) for batch in batches]
    if not batches:
        raise ValueError("there is no list to fit the regression to")
    if isinstance(scorer, LinearScorer) and scorer.num_features <= _MOST_FEATURES:
        _solve(scorer, batches, gains)
        return
    optimizer = torch.optim.Adam(scorer.parameters(), lr=learning_rate)
    for _ in range(epochs):
        for batch in batches:
            optimizer.zero_grad()
            scores = _centred(scores_of(scorer, batch.features.to(weight.dtype), batch.where), batch.where)
            target = _centred(gains(batch.labels).to(scores), batch.where)
            ((scores - target).square().sum() / batch.where.sum().clamp(min=1)).backward()
            optimizer.step()
    optimizer.zero_grad()


def _solve(scorer: LinearScorer, batches: list[Batch], gains: Callable[[Tensor], Tensor]) -> None:
    features = torch.cat([batch.features[batch.where] for batch in batches])
    targets = torch.cat([gains(batch.labels[batch.where]) for batch in batches])
    lengths = torch.cat([batch.where.sum(-1) for batch in batches])
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    solution = group_regression(features.cpu().numpy(), targets.cpu().numpy(), offsets.cpu().numpy())
    with torch.no_grad():
        scorer.linear.weight.copy_(torch.from_numpy(solution))


def _centred(values: Tensor, where: Tensor) -> Tensor:
    """Values minus the mean of their list; 0 in the padding."""
    mean = torch.where(where, values, 0.0).sum(-1, keepdim=True) / where.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(where, values - mean, 0.0)
