"""Scorers of recommenders: the features of a document are the indices of its user and item."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.extmath import randomized_svd
from torch import Tensor, nn

from rankstruct.checks import check_choice, check_integers, check_numbers
from rankstruct.lists import check_tensor
from rankstruct.models.scorers import Scorer
from rankstruct.processes import Team
from rankstruct.recommenders.ratings import Ratings, interactions
from rankstruct.recommenders.tables import Table, drawn_rows

__all__ = ["ItemScorer", "LightGCN", "LinearFactors", "MatrixFactorization", "NeighbourFactorization", "Start"]

Start = Literal["linear", "spectral", "random"]
_DENSE = 2**28  # entries, 1 GiB

_LENGTH = 3.0  # of spectral factors: inner products up to 9, and a few steps of Adam do not turn them round
_SCALE = 30.0  # of linear scores, mostly between 0 and 1/2, for losses on the scale of logits
_PROBES = 128
_FITTED = 50_000  # users, to which the factors of new ones are fitted


class LinearFactors:
    """The leading singular vectors of interactions, from which EASE follows for any rank and regularization.

    With X = U S V^T, the scores X B of EASE are those of `ease` in the span of the leading left singular vectors: factors U S of
    users, and (1 - d_i / (s_k^2 + regularization)) v_ik of item i in direction k. The diagonal d needs
    x_i^T (X X^T + regularization I)^-1 x_i for each column x_i of X. The leading directions give their part of it. The rest of
    x_i counts as one direction, whose eigenvalue is its Rayleigh quotient, estimated by random probes: a lower bound, by Jensen's
    inequality. And d_i is at most regularization + users of the item. With all singular vectors the scores are those of EASE,
    without a dense inverse. O((interactions + (users + items) rank) rank) time.

    Args:
        known: the interactions.
        rank: number of singular vectors.
        seed: of the randomised decomposition.

    Source: Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019, for the model.

    >>> from rankstruct.recommenders import interactions
    >>> known = interactions([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], item_names=range(3))
    >>> users, items = LinearFactors(known, 2).factors(regularization=1.0)
    >>> (users @ items.T).shape
    (3, 3)
    """

    def __init__(self, known: Any, rank: int, seed: int = 0) -> None:
        matrix = interactions(known).to_csr()
        rank = min(rank, *matrix.shape)
        self.left, self.values, right = randomized_svd(matrix, rank, n_iter=3, random_state=seed % 2**32)
        self.right = right.T
        self.counts = np.asarray(matrix.sum(0), np.float64).ravel()
        self.rest = np.maximum(self.counts - ((self.right * self.values) ** 2).sum(1), 1e-9)
        probes = matrix @ np.random.default_rng(seed).standard_normal((matrix.shape[1], _PROBES)).astype(np.float32)
        probes -= self.left @ (self.left.T @ probes)
        self.quotient = ((matrix.T @ probes) ** 2).mean(1) / self.rest

    def kept(self, rank: int | None = None) -> np.ndarray:
        """The leading singular values in float64; 0 for those that are rounding errors, in directions of no interactions."""
        values = self.values[:rank].astype(np.float64)
        return np.where(values > 1e-5 * values.max(initial=0.0), values, 0.0)

    def factors(self, rank: int | None = None, regularization: float = 200.0) -> tuple[np.ndarray, np.ndarray]:
        """Factors `[users, rank]` and `[items, rank]`, whose products are the scores of EASE; all that there are if rank is None.

        Both have the roots of the singular values.
        """
        shifted = self.values[:rank].astype(np.float64) ** 2 + regularization
        roots = np.sqrt(self.kept(rank))
        weights = roots * (1.0 - self._diagonal(regularization)[:, None] / shifted)
        return self.left[:, :rank] * roots, self.right[:, :rank] * weights

    def neighbours(
        self, rank: int | None = None, regularization: float = 200.0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What EASE scores beyond the leading directions, without more of them: `(of_items, weights, own)`.

        With the regularization r, EASE applies 1 / (s^2 + r) to the squared singular values. Between 0 and the last one of the
        leading directions, the chord of this function, a - b s^2, is close to it. So the other directions add a - b X^T X, a
        sparse matrix. The scores of a user with the row x of X are then P Q^T + x N, where P are the factors of users, Q is
        `of_items` `[items, rank]`, which replaces those of items, and N is X^T X with the columns times `weights` `[items]`, but
        with the diagonal `own` `[items]`.

        >>> from rankstruct.recommenders import ease, interactions
        >>> known = interactions([0, 0, 1, 1, 2], [0, 1, 1, 2, 2])
        >>> linear = LinearFactors(known, 3)
        >>> (users, _), (of_items, weights, own) = linear.factors(2, 9.0), linear.neighbours(2, 9.0)
        >>> x = known.to_csr().toarray()
        >>> near = x.T @ x * weights
        >>> np.fill_diagonal(near, own)
        >>> scores = users @ of_items.T + x @ near
        >>> np.allclose(scores, ease(known, regularization=9.0).item_scores(torch.arange(3)), atol=1e-2)
        True
        """
        values, diagonal = self.kept(rank), self._diagonal(regularization)
        slope = 1.0 / (regularization * (regularization + values.min(initial=np.inf) ** 2))
        on_values = 1.0 / regularization - slope * values**2 - 1.0 / (values**2 + regularization)
        of_items = self.right[:, :rank] * (np.sqrt(values) * on_values) * diagonal[:, None]
        own = 1.0 - diagonal / regularization + slope * diagonal * self.counts
        return of_items, slope * diagonal, own

    def _diagonal(self, regularization: float) -> np.ndarray:
        """`[items]`: regularization / (1 - d), see the class."""
        shifted = self.values.astype(np.float64) ** 2 + regularization
        explained = ((self.right * self.values) ** 2 / shifted).sum(1) + self.rest / (self.quotient + regularization)
        return np.minimum(regularization / np.maximum(1.0 - explained, 1e-9), regularization + self.counts)


def linear_folding(linear: LinearFactors, known: Ratings, of_users: np.ndarray) -> dict[str, np.ndarray]:
    """What `folded` needs to give factors to new users of a model that has a linear start, and may have been trained.

    Factors of users are linear in what they know: U S^(1/2) = X V S^(-1/2) for X = U S V^T. Training moves them; the linear map
    that is closest to where it took the users of `known` follows.

    Args:
        linear: of `known`, of at least the rank of the factors.
        known: the interactions of the users.
        of_users: their factors, `[users, rank]`.

    >>> from rankstruct.recommenders import interactions
    >>> known = interactions([0, 0, 1, 1, 2], [0, 1, 0, 1, 2])
    >>> linear, scorer = LinearFactors(known, 2), MatrixFactorization(3, 3, rank=2)
    >>> scorer.start_from_interactions(known, "linear", linear=linear)
    >>> of_users = scorer.user_factors.weight.detach().numpy()
    >>> np.allclose(folded(linear_folding(linear, known, of_users), known), of_users, atol=1e-4)
    True
    """
    rank = of_users.shape[1]
    values = linear.kept(rank)
    values = np.where(values > 0, values, np.inf)  # directions without interactions say nothing of new users
    of_items = np.zeros((known.num_items, rank))
    of_items[:, : len(values)] = linear.right[:, :rank] / np.sqrt(values)
    some = slice(None, None, max(1, known.num_users // _FITTED))
    start = known.to_csr()[some] @ of_items
    moved, *_ = np.linalg.lstsq(start.T @ start, start.T @ of_users[some].astype(np.float64), rcond=1e-9)
    squares = np.full(rank, np.inf)
    squares[: len(values)] = values**2
    return {"of_items": of_items.astype(np.float32), "squares": squares, "moved": moved}


def folded(folding: dict[str, np.ndarray], new: Any) -> np.ndarray:
    """The factors `[new users, rank]` of users with other interactions, with the first items of `linear_folding` or all."""
    matrix = interactions(new).to_csr()
    start = matrix @ folding["of_items"][: matrix.shape[1]].astype(np.float64)
    return np.asarray(start @ folding["moved"], np.float32)


def with_new_items(folding: dict[str, np.ndarray], known: Ratings) -> dict[str, np.ndarray]:
    """As `folding`, with rows for the further items of `known`, by their users: v = X^T U / S."""
    of_items, matrix = folding["of_items"], known.to_csr()
    if known.num_items == len(of_items):
        return folding
    start = matrix[:, : len(of_items)] @ of_items.astype(np.float64)
    further = matrix[:, len(of_items) :].T @ (start / folding["squares"])
    return folding | {"of_items": np.concatenate([of_items, further.astype(np.float32)])}


class MatrixFactorization(Scorer):
    """Matrix factorisation: scores `<u, v> + biases` with factors u of the user and v of the item, or their scaled cosine.

    Features are `[..., 2]`, the indices of user and item, see `Ratings.to_lists`. A list ranks the items of one user.

    Args:
        num_users: number of users.
        num_items: number of items.
        rank: dimension of the factors.
        user_bias: whether users have biases. They do not affect rankings, but losses that predict ratings need them.
        item_bias: whether items have biases.
        sparse: whether gradients are sparse, with the rows of a batch only, for `torch.optim.SGD` or `SparseAdam` and many items.
        scale: standard deviation of the initial factors; biases are initialised to 0.
        seed: seed of the initial factors.
        temperature: the scores are `cos(u, v) / temperature + biases`, so that popular items do not get long factors; 0.1 to
            0.2 suits losses over a catalogue. None for inner products.
        dropout: the dropout probability of the (normalised) user factors' entries in training.

    Raises:
        ValueError: `num_users`, `num_items` or `rank` is below 1, the temperature not above 0, or dropout not in [0, 1).

    Source: Weimer, Karatzoglou, Le, Smola, "CoFiRank", NIPS 2007; Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures",
    section 7.2.

    >>> scorer = MatrixFactorization(3, 5, rank=2)
    >>> scorer(torch.tensor([[0.0, 4.0], [0.0, 1.0]])).shape, scorer.item_scores(torch.tensor([0, 2])).shape
    (torch.Size([2]), torch.Size([2, 5]))
    """

    _team = Team()  # whose processes have the rows of the tables

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
        temperature: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_integers(1, num_users=num_users, num_items=num_items, rank=rank)
        check_numbers(">= 0 and < 1", dropout=dropout)
        check_numbers("> 0", optional=True, temperature=temperature)
        check_numbers(">= 0", scale=scale)
        check_integers(0, seed=seed)
        self.temperature, self.dropout = temperature, dropout
        self.num_users, self.num_items, self.rank = num_users, num_items, rank
        self.user_bias, self.item_bias, self.sparse = user_bias, item_bias, sparse
        self.scale, self.seed = scale, seed
        generator = torch.Generator().manual_seed(seed)

        def drawn(rows: int) -> Table:
            return Table(rows, scale * drawn_rows(rows, rank, self._team, generator), self._team, sparse=sparse)

        def zeros(rows: int, wanted: bool) -> Table | None:
            own = self._team.share(rows)
            return Table(rows, torch.zeros(own.stop - own.start, 1), self._team, sparse=sparse) if wanted else None

        self.user_factors, self.item_factors = drawn(num_users), drawn(num_items)
        self.user_offsets, self.item_offsets = zeros(num_users, user_bias), zeros(num_items, item_bias)

    def start_from_interactions(
        self,
        known: Any,
        start: Start = "spectral",
        *,
        linear: LinearFactors | None = None,
        regularization: float = 200.0,
    ) -> None:
        """Set the factors to directions in which users and items already agree, and item biases to the logarithm of popularity.

        The directions of `"spectral"` are the leading singular vectors, times the roots of their values, of the matrix with
        1 / sqrt(items of the user x users of the item) for each interaction. From such a start, losses that only see the head of
        a ranking learn too. Those of `"linear"` are `LinearFactors`, which rank as EASE does: without a temperature, the scores
        are 30 times those of EASE, and biases 0. Items without interactions keep their factors. The factors of users without
        interactions are 0, so that their scores are the biases; with `start="random"`, this is all that is set.

        Args:
            known: the interactions.
            start: where to start.
            linear: the `LinearFactors` of the interactions, of at least the rank of the factors; computed if None.
            regularization: of `"linear"`.

        Raises:
            ValueError: other numbers of users or items than those of the factors.

        >>> from rankstruct.recommenders import interactions
        >>> known = interactions([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 2, 3])
        >>> scorer = MatrixFactorization(3, 4, rank=2, temperature=0.1)
        >>> scorer.start_from_interactions(known)
        >>> scorer.item_scores(torch.tensor([0, 2])).topk(2).indices.sort().values
        tensor([[0, 1],
                [2, 3]])
        """
        check_choice("start", start, get_args(Start))
        known = self._own(known)
        with torch.no_grad():
            if start == "spectral":
                self._start_from_singular_vectors(known)
            if start == "linear":
                linear = LinearFactors(known, self.rank, self.seed) if linear is None else linear
                self._start_from(*linear.factors(self.rank, regularization), known, self.temperature is not None)
            self.user_factors.weight[torch.from_numpy(np.diff(known.offsets)[self.user_factors.own] == 0)] = 0.0

    def _own(self, known: Any) -> Ratings:
        """Interactions, if they are of as many users and items as the factors."""
        known = interactions(known)
        if (known.num_users, known.num_items) != (self.num_users, self.num_items):
            raise ValueError(
                f"known must have the {self.num_users} users and {self.num_items} items of the factorisation, got "
                f"{known.num_users} and {known.num_items}"
            )
        return known

    def _start_from_singular_vectors(self, known: Ratings) -> None:
        matrix = known.to_csr()
        degrees = [np.asarray(matrix.sum(axis)).ravel() for axis in (1, 0)]
        scales = [sparse.diags_array(np.maximum(each, 1) ** -0.5) for each in degrees]
        found = partial(randomized_svd, n_components=min(self.rank, *matrix.shape), random_state=self.seed % 2**32)
        left, values, right = self._team.computed(lambda: found(scales[0] @ matrix @ scales[1]))
        roots = np.sqrt(values)
        self._start_from(left * roots, right.T * roots, known, True)

    def _start_from(self, of_users: np.ndarray, of_items: np.ndarray, known: Ratings, are_directions: bool) -> None:
        """Set factors to vectors, or to their directions, then with biases; without interactions factors stay as they are."""
        counts = np.bincount(known.item, minlength=known.num_items)
        for table, vectors, degree in (
            (self.user_factors, of_users, np.diff(known.offsets)),
            (self.item_factors, of_items, counts),
        ):
            found = torch.zeros_like(table.weight)
            found[:, : vectors.shape[1]] = torch.from_numpy(vectors[table.own]).to(found)
            found = _LENGTH * nn.functional.normalize(found) if are_directions else _SCALE**0.5 * found
            kept = (found == 0).all(-1, keepdim=True) | (torch.from_numpy(degree[table.own]).to(found)[:, None] == 0)
            table.weight.copy_(torch.where(kept, table.weight, found))
        if self.item_offsets is not None and are_directions:
            popularity = torch.from_numpy(np.log(np.maximum(counts, 0.5))).to(self.item_offsets.weight)
            self.item_offsets.weight.copy_((popularity - popularity.mean())[self.item_offsets.own, None])

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
        return self.pair_scores(user, item)

    def pair_scores(self, user: Tensor, item: Tensor) -> Tensor:
        """Scores of pairs of users and items, by index, whose shapes are broadcast, such as `[users, 1]` and `[users, items]`."""
        of_users, of_items = self._rows(user, item)
        scores = (self._directed(of_users, users=True) * self._directed(of_items)).sum(-1)
        if self.user_offsets is not None:
            scores = scores + self.user_offsets(user).squeeze(-1)
        if self.item_offsets is not None:
            scores = scores + self.item_offsets(item).squeeze(-1)
        return scores

    def _rows(self, user: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
        """The factors of users and items by index."""
        return self.user_factors(user), self.item_factors(item)

    def _tables(self, users: Tensor | None) -> tuple[Tensor, Tensor]:
        """The factors of some or all users, and of all items."""
        return self.user_factors.weight if users is None else self.user_factors(users), self.item_factors.weight

    def _directed(self, factors: Tensor, *, users: bool = False) -> Tensor:
        """Factors whose products are the scores, apart from biases."""
        if self.temperature is not None:
            factors = _UnitRows.apply(factors)[0]
        if not users:
            return factors
        factors = nn.functional.dropout(factors, self.dropout, self.training)
        return factors if self.temperature is None else factors / self.temperature

    def vectors(self, users: Tensor | None = None, *, factors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Vectors `[users, d]` of some or all users and `[items, d]` of all items, whose products are the scores.

        Biases are an additional column, with a 1 on the other side. An index of item vectors for maximum inner product search
        needs nothing else. `factors` `[users, rank]` are those of new users, see `fold_in`, who have no biases.

        >>> scorer = MatrixFactorization(3, 5, rank=2, temperature=0.1)
        >>> users, items = scorer.vectors()
        >>> torch.allclose(users @ items.T, scorer.item_scores(torch.arange(3)))
        True
        """
        users = None if users is None else users.to(self.item_factors.weight.device)
        of_users, of_items = self._tables(users)
        of_users = self._directed(of_users if factors is None else factors, users=True)
        of_items = self._directed(of_items)
        if self.item_offsets is not None:
            ones = of_users.new_ones(*of_users.shape[:-1], 1)
            of_users, of_items = torch.cat([of_users, ones], -1), torch.cat([of_items, self.item_offsets.weight], -1)
        if self.user_offsets is not None and factors is None:
            biases = self.user_offsets.weight if users is None else self.user_offsets(users)
            ones = of_items.new_ones(len(of_items), 1)
            of_users, of_items = torch.cat([of_users, biases], -1), torch.cat([of_items, ones], -1)
        return of_users, of_items

    def factor_scores(self, factors: Tensor) -> Tensor:
        """Scores of all items, `[..., items]`, for user factors `[..., rank]`, possibly of new users; without user biases."""
        return self.scores_of(factors, self._tables(None)[1])

    def scores_of(self, factors: Tensor, items: Tensor) -> Tensor:
        """`factor_scores` from the factors `[items, rank]` of all items, which LightGCN has propagated."""
        scores = self._directed(factors, users=True) @ self._directed(items).T
        return scores if self.item_offsets is None else scores + self.item_offsets.weight.squeeze(-1)

    def item_scores(self, users: Tensor) -> Tensor:
        """Scores of all items, `[..., items]`, for users given by index `[...]`."""
        scores = self.factor_scores(self._tables(users)[0])
        return scores if self.user_offsets is None else scores + self.user_offsets(users)


class SplitFactorization(MatrixFactorization):
    """A factorisation whose tables are split by rows over the processes of `torch.distributed`, which make all calls together.

    `pair_scores` and the vectors of given users are the same in all processes. The vectors of all items, or of all users, are
    those of the rows that a process has.

    Args:
        team: the processes.
        options: as in `MatrixFactorization`.
    """

    def __init__(self, team: Team, **options: Any) -> None:
        self._team = team  # before the tables are made
        super().__init__(**options)

    def scores_of(self, factors: Tensor, items: Tensor) -> Tensor:
        """Raise ValueError: no process has the factors of all items."""
        raise ValueError(
            "scores of all items need all of their factors, which are split over processes; save them by save_shards, and load "
            "them by load_shards in one process"
        )


class _UnitRows(torch.autograd.Function):
    """`normalize(rows, dim=-1)`, and the norms, with a third of its passes over memory in the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor) -> tuple[Tensor, Tensor]:
        norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp(min=1e-12)
        return rows / norms, norms

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Tensor | None:
        (unit, norms), (given, of_norms) = ctx.saved_tensors, grads
        found = None
        if given is not None:
            along = torch.linalg.vecdot(given, unit).unsqueeze(-1)
            found = torch.addcmul(given, unit, along, value=-1).div_(norms)
        if of_norms is not None:  # in derivatives of the gradient
            found = of_norms * unit if found is None else found + of_norms * unit
        return found


class _OfGraph(MatrixFactorization):
    """A factorisation that keeps the interactions of training, `graph` `[2, interactions]`, and what is computed from them."""

    graph: Tensor

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register_buffer("graph", torch.zeros(2, 0, dtype=torch.int64))
        self._matrix: Any = None

    def set_graph(self, known: Any) -> None:
        """Set the graph to the interactions of training; raises ValueError if their numbers of users or items differ."""
        known = self._own(known)
        pairs = np.stack([known.user, known.item])
        self.graph, self._matrix = torch.from_numpy(pairs).to(self.item_factors.weight.device), None

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
        if (graph := state.get(f"{prefix}graph")) is not None:
            self.graph, self._matrix = self.graph.new_zeros(graph.shape), None
        super()._load_from_state_dict(state, prefix, *others)


class LightGCN(_OfGraph):
    """LightGCN: a factorisation whose factors are averaged over the graph of users and their items.

    The factors are the mean of the given ones and those after 1, ..., `layers` steps, each of which replaces the factors of a
    user by the sum of those of its items over sqrt(items of the user x users of the item), and likewise for items. `set_graph`,
    which `InteractionsDataModule` and `Recommender` call before training, sets the graph, which is saved with the factors.

    Args:
        layers: number of steps of propagation.
        options: as in `MatrixFactorization`.

    Source: He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation", SIGIR 2020.

    >>> from rankstruct.recommenders import interactions
    >>> scorer = LightGCN(2, 3, rank=4, layers=1)
    >>> scorer.set_graph(interactions([0, 1, 1], [0, 0, 2], user_names=range(2), item_names=range(3)))
    >>> scorer.item_scores(torch.tensor([0])).shape
    torch.Size([1, 3])
    """

    def __init__(
        self,
        num_users: int,
        num_items: int,
        rank: int = 10,
        user_bias: bool = False,
        item_bias: bool = True,
        scale: float = 0.1,
        seed: int = 0,
        temperature: float | None = None,
        dropout: float = 0.0,
        layers: int = 3,
    ) -> None:
        super().__init__(
            num_users,
            num_items,
            rank,
            user_bias,
            item_bias,
            scale=scale,
            seed=seed,
            temperature=temperature,
            dropout=dropout,
        )
        check_integers(1, layers=layers)
        self.layers = layers

    def _propagated(self) -> tuple[Tensor, Tensor]:
        start = torch.cat([self.user_factors.weight, self.item_factors.weight])
        if self._matrix is None or (self._matrix.device, self._matrix.dtype) != (start.device, start.dtype):
            user, item = self.graph.to(start.device)
            ends = torch.stack([torch.cat([user, item + self.num_users]), torch.cat([item + self.num_users, user])])
            degree = torch.bincount(ends[0], minlength=len(start)).double()
            values = (degree[ends[0]] * degree[ends[1]]).rsqrt().to(start.dtype)
            with warnings.catch_warnings():  # that they are in beta, and not validated
                warnings.simplefilter("ignore")
                self._matrix = torch.sparse_coo_tensor(ends, values, (len(start), len(start))).to_sparse_csr()
        total = layer = start
        for _ in range(self.layers):
            layer = _Symmetric.apply(self._matrix, layer)
            total = total + layer
        of_users, of_items = (total / (self.layers + 1)).split([self.num_users, self.num_items])
        return of_users, of_items

    def _rows(self, user: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
        of_users, of_items = self._propagated()
        return of_users[user], of_items[item]

    def _tables(self, users: Tensor | None) -> tuple[Tensor, Tensor]:
        of_users, of_items = self._propagated()
        return of_users if users is None else of_users[users], of_items


class NeighbourFactorization(_OfGraph):
    """The linear start without training, and what it leaves out: scores of items that share users with those of a user.

    `start_from_interactions` sets all of it. The scores are those of `LinearFactors.neighbours`, times 30. They are not products
    of vectors alone: `vectors`, `factor_scores` and losses over the catalogue are errors. Factors are those of the linear start.

    Args:
        num_users: number of users.
        num_items: number of items.
        rank: dimension of the factors.
        scale: standard deviation of the initial factors.
        seed: seed of the initial factors.

    >>> from rankstruct.recommenders import interactions
    >>> known = interactions([0, 0, 1, 1, 2], [0, 1, 0, 1, 2])
    >>> scorer = NeighbourFactorization(3, 3, rank=1)
    >>> scorer.start_from_interactions(known, "linear")
    >>> scorer.item_scores(torch.tensor([0, 2])).shape
    torch.Size([2, 3])
    """

    has_vectors = False
    served: Tensor
    weights: Tensor
    own: Tensor
    fitted: Tensor

    def __init__(self, num_users: int, num_items: int, rank: int = 10, scale: float = 0.1, seed: int = 0) -> None:
        super().__init__(num_users, num_items, rank, item_bias=False, scale=scale, seed=seed)
        self.register_buffer("served", torch.zeros(num_items, rank))
        self.register_buffer("weights", torch.zeros(num_items))
        self.register_buffer("own", torch.zeros(num_items))
        # interactions whose items share users; the others are later ones
        self.register_buffer("fitted", torch.tensor(0))

    def start_from_interactions(
        self,
        known: Any,
        start: Start = "linear",
        *,
        linear: LinearFactors | None = None,
        regularization: float = 200.0,
    ) -> None:
        """As that of the base class, for `"linear"`, and everything else.

        Raises:
            ValueError: another start, or other numbers of users or items than those of the factors.
        """
        if start != "linear":
            raise ValueError(f"start must be 'linear' with neighbours, got {start!r}")
        linear = LinearFactors(known, self.rank, self.seed) if linear is None else linear
        super().start_from_interactions(known, start, linear=linear, regularization=regularization)
        self.set_graph(known)
        of_items, weights, own = linear.neighbours(self.rank, regularization)
        self.served.zero_()[:, : of_items.shape[1]] = torch.from_numpy(_SCALE**0.5 * of_items)
        self.weights.copy_(torch.from_numpy(_SCALE * weights))
        self.own.copy_(torch.from_numpy(_SCALE * own))
        self.fitted.fill_(self.graph.shape[1])

    def similar_to(self, rows: Any) -> Tensor:
        """`[users, items]`: what the items of rows `[users, items]`, a SciPy matrix, add to the scores of others."""
        near = as_dense(rows @ self._of_graph()[1]) * self.weights.cpu().numpy()
        user, item = rows.nonzero()
        near[user, item] += rows[user, item] * self.own.cpu().numpy()[item]
        return torch.from_numpy(near).to(self.weights)

    def scores_of_rows(self, factors: Tensor, rows: Any) -> Tensor:
        """Scores of all items, `[users, items]`, for users with these factors and rows of interactions, possibly new ones."""
        return factors @ self.served.T + self.similar_to(rows)

    def item_scores(self, users: Tensor) -> Tensor:
        """Scores of all items, `[..., items]`, for users given by index `[...]`."""
        rows = self._of_graph()[0][users.reshape(-1).cpu().numpy()]
        users = users.to(self.served.device)
        scores = self.scores_of_rows(self.user_factors.weight[users.reshape(-1)].detach(), rows)
        return scores.reshape(*users.shape, self.num_items)

    def pair_scores(self, user: Tensor, item: Tensor) -> Tensor:
        """Scores of pairs of users and items, by index, whose shapes are broadcast."""
        distinct, at = user.unique(return_inverse=True)
        return self.item_scores(distinct)[at, item]

    def vectors(self, users: Tensor | None = None, *, factors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Raise ValueError: there are none."""
        raise ValueError(
            "scores with neighbours are not products of vectors; fit a Recommender with neighbours=False for vectors to index"
        )

    def scores_of(self, factors: Tensor, items: Tensor) -> Tensor:
        """Raise ValueError: factors are not enough."""
        raise ValueError(
            "scores with neighbours need what users know, not only factors; use item_scores or scores_of_rows"
        )

    def extended(self, scorer: MatrixFactorization, before: Ratings, known: Ratings) -> NeighbourFactorization:
        """The factors of `scorer`, with further interactions, users and items, and the neighbours of before.

        New items have none: only the products of factors rank them.
        """
        grown = NeighbourFactorization(known.num_users, known.num_items, self.rank, self.scale, self.seed)
        grown.load_state_dict(scorer.state_dict(), strict=False)
        grown = grown.to(self.served.device).eval()
        further = known.select(~np.isin(known.keys(), before.user * known.num_items + before.item))
        pairs = torch.from_numpy(np.stack([further.user, further.item])).to(self.graph)
        grown.graph, grown.fitted = torch.cat([self.graph, pairs], 1), self.fitted
        old = self.num_items
        grown.served[:old], grown.served[old:] = self.served, grown.item_factors.weight[old:].detach()
        grown.weights[:old], grown.own[:old] = self.weights, self.own
        return grown

    def _of_graph(self) -> tuple[Any, Any]:
        """The matrix `[users, items]` of all interactions, and `shared_users` of those that were fitted."""
        if self._matrix is None:
            shape, (user, item) = (self.num_users, self.num_items), self.graph.cpu().numpy()
            ones, fitted = np.ones(len(user), np.float32), slice(int(self.fitted))
            rows = sparse.csr_array((ones, (user, item)), shape)
            self._matrix = rows, shared_users(sparse.csr_array((ones[fitted], (user[fitted], item[fitted])), shape))
        return self._matrix


def shared_users(matrix: Any) -> Any:
    """X^T X `[items, items]` of a matrix `[users, items]`, with diagonal 0; dense if it has many entries, for faster products.

    A large dense one takes up to eight times the memory, so only small ones are made dense for the time alone.
    """
    found = (matrix.T @ matrix).tocsr()
    found.setdiag(0.0)
    entries = found.shape[0] ** 2
    return found.toarray() if found.nnz > entries / (16 if entries <= _DENSE else 2) else found


def as_dense(matrix: Any) -> np.ndarray:
    """A matrix of SciPy or NumPy as one of NumPy."""
    return matrix.toarray() if sparse.issparse(matrix) else matrix


class _Symmetric(torch.autograd.Function):
    """The product with a symmetric sparse matrix, whose gradient is the product with the same matrix."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, dense: Tensor) -> Tensor:
        ctx.save_for_backward(matrix)
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, ctx.saved_tensors[0] @ grads[0]


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
