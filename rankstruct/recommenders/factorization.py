"""Scorers of recommenders: the features of a document are the indices of its user and item."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rankstruct.data.errors import check_least
from rankstruct.lists import check_tensor
from rankstruct.models.scorers import Scorer

__all__ = ["ItemScorer", "MatrixFactorization"]


class MatrixFactorization(Scorer):
    """Matrix factorisation: scores `<u, v> + biases` with factors u of the user and v of the item.

    Features are `[..., 2]`, the indices of user and item, see `Ratings.to_lists`. A list ranks the items of one user.

    Args:
        num_users: number of users.
        num_items: number of items.
        rank: dimension of the factors.
        user_bias: whether users have biases, which do not affect rankings, but losses that predict ratings.
        item_bias: whether items have biases.
        sparse: whether gradients are sparse, with the rows of a batch only, for `torch.optim.SGD` or `SparseAdam` and many items.
        scale: standard deviation of the initial factors; biases are initialised to 0.
        seed: seed of the initial factors.

    Raises:
        ValueError: `num_users`, `num_items` or `rank` is below 1.

    Source: Weimer, Karatzoglou, Le, Smola, "CoFiRank", NIPS 2007; Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures",
    section 7.2.

    >>> scorer = MatrixFactorization(3, 5, rank=2)
    >>> scorer(torch.tensor([[0.0, 4.0], [0.0, 1.0]])).shape, scorer.item_scores(torch.tensor([0, 2])).shape
    (torch.Size([2]), torch.Size([2, 5]))
    """

    def __init__(
        self,
        num_users: int,
        num_items: int,
        rank: int = 10,
        user_bias: bool = False,
        item_bias: bool = True,
        sparse: bool = False,
        scale: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_least(1, num_users=num_users, num_items=num_items, rank=rank)
        self.num_users, self.num_items, self.rank = num_users, num_items, rank
        self.user_bias, self.item_bias, self.sparse = user_bias, item_bias, sparse
        self.scale, self.seed = scale, seed
        generator = torch.Generator().manual_seed(seed)

        def drawn(rows: int) -> nn.Embedding:
            return nn.Embedding(rows, rank, sparse=sparse, _weight=scale * torch.randn(rows, rank, generator=generator))

        def zeros(rows: int, wanted: bool) -> nn.Embedding | None:
            return nn.Embedding(rows, 1, sparse=sparse, _weight=torch.zeros(rows, 1)) if wanted else None

        self.user_factors, self.item_factors = drawn(num_users), drawn(num_items)
        self.user_offsets, self.item_offsets = zeros(num_users, user_bias), zeros(num_items, item_bias)

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
        """Scores `[..., list_size]` of features `[..., list_size, 2]`.

        Raises:
            ValueError: features have another shape.
            IndexError: on the CPU, a user or item does not exist.
        """
        check_tensor("features", features)
        if features.dim() < 1 or features.shape[-1] != 2:
            raise ValueError(
                f"features must have shape [..., list_size, 2], user and item, got {tuple(features.shape)}"
            )
        user, item = features.long().unbind(-1)
        scores = (self.user_factors(user) * self.item_factors(item)).sum(-1)
        if self.user_offsets is not None:
            scores = scores + self.user_offsets(user).squeeze(-1)
        if self.item_offsets is not None:
            scores = scores + self.item_offsets(item).squeeze(-1)
        return scores

    def factor_scores(self, factors: Tensor) -> Tensor:
        """Scores of all items, `[..., items]`, for user factors `[..., rank]`, possibly of new users; without user biases."""
        scores = factors @ self.item_factors.weight.T
        return scores if self.item_offsets is None else scores + self.item_offsets.weight.squeeze(-1)

    def item_scores(self, users: Tensor) -> Tensor:
        """Scores of all items, `[..., items]`, for users given by index `[...]`."""
        scores = self.factor_scores(self.user_factors(users))
        return scores if self.user_offsets is None else scores + self.user_offsets(users)


class ItemScorer(Scorer):
    """A scorer of items independent of the user, such as by popularity or mean rating.

    Args:
        num_items: number of items; their scores, in the buffer `scores`, are initialised to 0.

    >>> ItemScorer(3)(torch.tensor([[0.0, 2.0]]))
    tensor([0.])
    """

    scores: Tensor

    def __init__(self, num_items: int) -> None:
        super().__init__()
        self.num_items = num_items
        self.register_buffer("scores", torch.zeros(num_items))

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
        """Scores `[..., list_size]` of features `[..., list_size, 2]`, user and item."""
        return self.scores[features[..., 1].long()]

    def item_scores(self, users: Tensor) -> Tensor:
        """Scores of all items, `[..., items]`, for users given by index `[...]`."""
        return self.scores.expand(*users.shape, self.num_items)
