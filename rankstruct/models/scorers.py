"""Scorers: features `[..., list_size, d]` to scores `[..., list_size]`; each document is scored by itself."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

__all__ = ["LinearScorer", "MLPScorer"]


class LinearScorer(nn.Module):
    """Scores `<w, x>`, without a bias, which no ranking would see.

    Args:
        num_features: d, the number of features of a document.

    The weights start at zero, where all documents tie and a convex objective has its reference value.

    >>> import torch
    >>> LinearScorer(3)(torch.ones(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.linear = nn.Linear(num_features, 1, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Scores `[..., list_size]` of features `[..., list_size, d]`; raises ValueError for another d."""
        _check_features(features, self.num_features)
        return self.linear(features).squeeze(-1)


class MLPScorer(nn.Module):
    """Scores by a multilayer perceptron, the same for every document.

    Args:
        num_features: d, the number of features of a document.
        hidden: the widths of the hidden layers.
        dropout: the probability that a hidden unit is left out in training.
        normalize: whether the features pass a layer norm first.

    >>> import torch
    >>> MLPScorer(3, hidden=(8, 4))(torch.ones(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    def __init__(
        self, num_features: int, hidden: Sequence[int] = (64, 32), dropout: float = 0.0, normalize: bool = False
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.hidden = tuple(hidden)
        self.dropout = dropout
        self.normalize = normalize
        layers: list[nn.Module] = [nn.LayerNorm(num_features)] if normalize else []
        width = num_features
        for units in hidden:
            layers += [nn.Linear(width, units), nn.ReLU()]
            if dropout:
                layers.append(nn.Dropout(dropout))
            width = units
        layers.append(nn.Linear(width, 1))
        self.layers = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """Scores `[..., list_size]` of features `[..., list_size, d]`; raises ValueError for another d."""
        _check_features(features, self.num_features)
        return self.layers(features).squeeze(-1)


def _check_features(features: Tensor, num_features: int) -> None:
    if features.dim() < 1 or features.shape[-1] != num_features:
        raise ValueError(
            f"features must have shape [..., list_size, {num_features}], the scorer's number of features last; "
            f"got {tuple(features.shape)}"
        )
