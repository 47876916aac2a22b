"""Averages of weights over the steps of training."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

__all__ = ["polynomial_average", "update_averages"]


def polynomial_average(mean: Tensor, new: Tensor, count: Tensor | int, decay: float = 3.0) -> Tensor:
    """The average of `count` + 1 iterates: an `avg_fn` of `torch.optim.swa_utils.AveragedModel`.

    Late iterates weigh more: iterate t has weight (decay + 1) / (t + decay), so poor early ones fade without a tuned start epoch
    (Shamir and Zhang, "Stochastic Gradient Descent for Non-smooth Optimization", ICML 2013).

    Args:
        mean: the average so far.
        new: the next iterate.
        count: the number of iterates in `mean`.
        decay: how fast early iterates fade; 0 is the plain mean.

    >>> import torch
    >>> polynomial_average(torch.tensor(1.0), torch.tensor(2.0), 1, decay=0.0)
    tensor(1.5000)
    """
    return mean + (new - mean) * _weight(count, decay)


def update_averages(means: Sequence[Tensor], new: Sequence[Tensor], count: Tensor | int, decay: float = 3.0) -> None:
    """Replace averages by `polynomial_average` in place, without allocating memory: a `multi_avg_fn` of `AveragedModel`.

    Args:
        means: the averages so far, tensors of any shapes.
        new: the next iterates, of the same shapes.
        count, decay: as in `polynomial_average`.

    >>> import torch
    >>> means = [torch.tensor(1.0)]
    >>> update_averages(means, [torch.tensor(2.0)], 1, decay=0.0)
    >>> means
    [tensor(1.5000)]
    """
    weight = _weight(count, decay)
    for mean, iterate in zip(means, new, strict=True):
        mean.lerp_(iterate, weight.to(mean) if isinstance(weight, Tensor) else weight)


def _weight(count: Tensor | int, decay: float) -> Tensor | float:
    return (decay + 1) / (count + 1 + decay)
