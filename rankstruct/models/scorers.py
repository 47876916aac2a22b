"""Scorers: features `[..., list_size, d]` to scores `[..., list_size]`; most score each document independently.

A `PreparedScorer` accepts raw features, whose preparation may depend on complete lists. All scorers have the same signature:
`where` marks real documents, or `offsets` separates the lists of flat features `[documents, d]`; scorers of independent
documents, whose `by_list` is False, ignore both.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankstruct.calibration import Calibration
from rankstruct.checks import check_choice, check_integers, check_numbers
from rankstruct.ids import group_documents
from rankstruct.kernels.trees import score_trees
from rankstruct.lists import as_offsets, check_offsets, check_tensor, is_under_autocast
from rankstruct.preparation import Preparation, QueryZScore, check_exported, equal_lengths, is_exporting
from rankstruct.table_scorer import ScoresTables, TableScorer, feature_columns, matrix

__all__ = [
    "EnsembleScorer",
    "KernelScorer",
    "LinearScorer",
    "MLPScorer",
    "MeanScorer",
    "PreparedScorer",
    "ProbabilityScorer",
    "SumScorer",
    "TreeScorer",
]


_TREE_NODES = 2**20  # documents times trees per block
_LIGHTGBM_ZERO = 1.0000000180025095e-35  # 1e-35 in float32; smaller values count as zero


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """The model in evaluation mode, if it is a module; then in the mode that it was in."""
    if not isinstance(model, nn.Module):
        yield
        return
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


class Scorer(ScoresTables, nn.Module):
    """Base of the scorers, with a typed `__call__`.

    Attributes:
        by_list: whether scores depend on the other documents of the list, so that the lists must be passed.
        feature_names: the names of the raw features in their order, if training had names; None otherwise.

    One that was calibrated has its step as `calibration`.
    """

    __call__: Callable[..., Tensor]
    by_list: bool = False
    feature_names: tuple[str, ...] | None = None

    def _table_scorer(self, qid: str | None, features: Sequence[str] | None, output: str) -> TableScorer:
        columns = getattr(getattr(self, "preparation", None), "columns", None)
        names = feature_columns(trained_names(self), features)

        def score(table: Any, ids: np.ndarray | None) -> np.ndarray:
            X = torch.tensor(matrix(table) if columns is None else columns.encode(table), dtype=torch.float32)
            order, offsets = (None, np.array([0, len(X)])) if ids is None else group_documents(ids)
            with torch.inference_mode():
                found = self(X if order is None else X[order], offsets=torch.tensor(offsets)).double().numpy()
            return found if order is None else found[np.argsort(order)]

        return TableScorer(score, names, self.by_list, qid, output)


class _Several(Scorer):
    """Base of combinations of one or more `scorers`; that of their scores `[scorers, ...]` is `_combine`."""

    _combine: Callable[[Tensor], Tensor]

    def __init__(self, scorers: Sequence[nn.Module]) -> None:
        super().__init__()
        if not scorers:
            raise ValueError("scorers must not be empty")
        self.scorers = nn.ModuleList(scorers)
        self.by_list = any(map(is_by_list, scorers))

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
        """Return scores `[..., list_size]` of features `[..., list_size, d]`; lists as in `PreparedScorer`."""
        return self._combine(torch.stack([scores_of(scorer, features, where, offsets) for scorer in self.scorers]))


class LinearScorer(Scorer):
    """A linear scorer `<w, x>`, without a bias, which does not affect rankings.

    Args:
        num_features: d, the number of features of a document.

    The weights are initialised to zero, where all documents tie and a convex objective has its reference value.

    >>> import torch
    >>> LinearScorer(3)(torch.ones(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.linear = nn.Linear(num_features, 1, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
        """Return scores `[..., list_size]` of features `[..., list_size, d]`; raises ValueError, or TypeError for the dtype."""
        check_features(features, self.num_features, next(self.parameters(), None))
        return self.linear(features).squeeze(-1)


class MLPScorer(Scorer):
    """An MLP that scores documents one by one.

    Args:
        num_features: d, the number of features of a document.
        hidden: the widths of the hidden layers; a number for a single one.
        dropout: the dropout probability of hidden units.
        normalize: whether to apply a layer norm to the features first.
        noise: standard deviation of normal noise that training adds to the features.

    >>> import torch
    >>> MLPScorer(3, hidden=(8, 4))(torch.ones(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    def __init__(
        self,
        num_features: int,
        hidden: int | Sequence[int] = (64, 32),
        dropout: float = 0.0,
        normalize: bool = False,
        noise: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_features, self.hidden, self.dropout = num_features, widths(hidden), dropout
        self.normalize, self.noise = normalize, noise
        first: list[nn.Module] = [] if noise == 0 else [Noise(noise)]
        first += [nn.LayerNorm(num_features)] if normalize else []
        layers, last = hidden_layers(num_features, self.hidden, dropout)
        self.layers = nn.Sequential(*first, *layers, nn.Linear(last, 1))

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
        """Return scores `[..., list_size]` of features `[..., list_size, d]`; raises ValueError, or TypeError for the dtype."""
        check_features(features, self.num_features, next(self.parameters(), None))
        return self.layers(features).squeeze(-1)


class Noise(nn.Module):
    """Normal noise, added to features in training.

    Args:
        deviation: its standard deviation; none if 0.
    """

    def __init__(self, deviation: float) -> None:
        super().__init__()
        check_numbers(">= 0", noise=deviation)
        self.deviation = deviation

    def forward(self, features: Tensor) -> Tensor:
        """Return the features, with noise in training."""
        if not (self.training and self.deviation):
            return features
        return features + self.deviation * torch.randn_like(features)


class KernelScorer(Scorer):
    """A kernel scorer `sum_j c_j k(x_j, x)` over basis rows x_j, in float64; scores have the dtype of the features.

    Args:
        num_features: d, the number of features of a document.
        num_basis: number of basis rows.
        kernel: `"rbf"`, exp(-gamma ||x - y||^2); `"polynomial"`, (gamma <x, y> + offset)^degree; or `"linear"`, <x, y>.
        gamma: 1 / d if None.
        degree: of the polynomial.
        offset: of the polynomial.

    Rows and coefficients are buffers, initially 0; `KernelRanker.to_scorer` fills them.

    >>> import torch
    >>> KernelScorer(3, num_basis=10)(torch.ones(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    basis: Tensor
    coefficients: Tensor

    def __init__(
        self,
        num_features: int,
        num_basis: int,
        kernel: str = "rbf",
        *,
        gamma: float | None = None,
        degree: int = 3,
        offset: float = 1.0,
    ) -> None:
        super().__init__()
        check_choice("kernel", kernel, ("rbf", "polynomial", "linear"))
        self.num_features, self.num_basis, self.kernel = num_features, num_basis, kernel
        self.gamma = 1 / num_features if gamma is None else gamma
        self.degree, self.offset = degree, offset
        self.register_buffer("basis", torch.zeros(num_basis, num_features, dtype=torch.float64))
        self.register_buffer("coefficients", torch.zeros(num_basis, dtype=torch.float64))

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
        """Return scores `[..., list_size]` of features `[..., list_size, d]`; raises ValueError for another d."""
        check_features(features, self.num_features)
        rows = features.to(self.basis.dtype)
        values = rows @ self.basis.T
        if self.kernel == "rbf":
            squares = rows.square().sum(-1, keepdim=True) + self.basis.square().sum(-1) - 2 * values
            values = (-self.gamma * squares.clamp(min=0)).exp()
        elif self.kernel == "polynomial":
            values = (self.gamma * values + self.offset) ** self.degree
        return (values @ self.coefficients).to(features.dtype)


class TreeScorer(Scorer):
    """A sum of binary trees, evaluated in float64 exactly as by the library that grew them.

    A document goes left if its feature is not above the threshold; with a missing feature (NaN) it goes to the default side of
    the node. As in LightGBM, a node may also treat zeros as missing, or nothing; and it may send a set of categories, which are
    integers from 0, to the left, and all else to the right.

    Args:
        num_features: d, the number of features of a document.
        num_trees: number of trees.
        num_nodes: number of nodes of all trees, leaves included.
        num_columns: number of features as nodes look at them: of one feature several, if nodes treat missing ones differently or
            compare it with several sets of categories.
        depth: the maximum number of steps from a root to a leaf.
        single: whether features are rounded to float32 first, as in XGBoost, and tiny ones are not zeros, as in LightGBM.
        num_categories: number of entries of `member`.

    Trees are buffers, which `BoostedRanker.to_scorer` fills. A column has its `feature`, and `at_missing` and `at_zero`, which
    replace missing features and zeros: 0, or minus infinity or NaN for documents that go left or right. Column c is one of
    categories if `bounds[c] < bounds[c + 1]`; category i then goes left if `member[bounds[c] + i]`. A node has its `branch`:
    its column and its left child, followed by the right one, and a `threshold`; children come after their parents. A
    leaf is its own left child, has `num_columns` as its column, and its score as its threshold. `root` is the first node of each
    tree.

    A compiled loop evaluates the trees on the CPU; vectorised torch does on other devices and in exported programs.
    `export_scorer` writes them to ONNX as a `TreeEnsembleRegressor`.

    >>> import torch
    >>> TreeScorer(3, num_trees=2, num_nodes=6, num_columns=2, depth=2)(torch.ones(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    threshold: Tensor
    branch: Tensor
    root: Tensor
    feature: Tensor
    at_missing: Tensor
    at_zero: Tensor
    bounds: Tensor
    member: Tensor

    def __init__(
        self,
        num_features: int,
        num_trees: int,
        num_nodes: int,
        num_columns: int,
        depth: int,
        single: bool = False,
        num_categories: int = 0,
    ) -> None:
        super().__init__()
        self.num_features, self.num_trees, self.num_nodes = num_features, num_trees, num_nodes
        self.num_columns, self.depth, self.single, self.num_categories = num_columns, depth, single, num_categories
        self.register_buffer("threshold", torch.zeros(num_nodes, dtype=torch.float64))
        leaves = torch.stack([torch.full((num_nodes,), num_columns), torch.arange(num_nodes)], -1)
        self.register_buffer("branch", leaves.int())
        self.register_buffer("root", torch.zeros(num_trees, dtype=torch.int64))
        self.register_buffer("feature", torch.zeros(num_columns, dtype=torch.int64))
        self.register_buffer("at_missing", torch.zeros(num_columns, dtype=torch.float64))
        self.register_buffer("at_zero", torch.zeros(num_columns, dtype=torch.float64))
        self.register_buffer("bounds", torch.zeros(num_columns + 1, dtype=torch.int64))
        self.register_buffer("member", torch.zeros(num_categories, dtype=torch.bool))
        self.register_load_state_dict_post_hook(_check_trees)

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
        """Return scores `[..., list_size]` of features `[..., list_size, d]`; raises ValueError for another d."""
        check_features(features, self.num_features)
        rows = features.detach().reshape(-1, self.num_features)
        exact = self.threshold.dtype == torch.float64  # not after scorer.float()
        if exact and rows.device.type == self.threshold.device.type == "cpu" and not is_exporting():
            found = score_trees(rows, self.buffers(), self.single)
        elif is_exporting() and (trees := ONNX_TREES.get()) is not None:
            found = self._onnx_node(rows, trees)
        elif torch.compiler.is_compiling():  # their number may be unknown
            found = self._sums(rows)
        else:
            step = max(1, _TREE_NODES // max(self.num_trees, 1))
            found = torch.cat([self._sums(part) for part in rows.split(step)])
        return found.reshape(features.shape[:-1]).to(features.dtype)

    def compared(self, rows: Tensor) -> Tensor:
        """What nodes compare with their thresholds, of rows `[documents, d]`: `[documents, num_columns]` in the same dtype."""
        values = rows[:, self.feature]
        zero = 0.0 if self.single else _LIGHTGBM_ZERO
        values = torch.where(values.abs() <= zero, self.at_zero.to(values), values)
        values = torch.where(values.isnan(), self.at_missing.to(values), values)
        if self.num_categories:
            sizes = self.bounds.diff()
            known = (values > -1) & (values < sizes) & (sizes > 0)
            member = self.member[torch.where(known, self.bounds[:-1] + torch.where(known, values, 0.0).long(), 0)]
            side = torch.where(known & member, float("-inf"), float("inf")).to(values.dtype)
            values = torch.where(sizes > 0, side, values)
        return values

    @property
    def leaves(self) -> Tensor:
        """The nodes that are leaves, int64."""
        return (self.branch[:, 0] == self.num_columns).nonzero().squeeze(-1)

    def reached(self, rows: Tensor) -> Tensor:
        """Return the leaf, a node, that each row `[documents, d]` reaches in each tree: int64 `[documents, num_trees]`."""
        values = self.compared((rows.float() if self.single else rows).to(self.threshold.dtype))
        values = nn.functional.pad(values, (0, 1), value=float("-inf"))  # the column of leaves, where documents stay
        at = self.root.expand(values.shape[0], -1)
        for _ in range(self.depth):
            column, left = self.branch[at].long().unbind(-1)
            at = left + ~(values.gather(-1, column) <= self.threshold[at])
        return at

    def _sums(self, rows: Tensor) -> Tensor:
        return self.threshold[self.reached(rows)].sum(-1)

    def _onnx_node(self, rows: Tensor, trees: list[TreeScorer]) -> Tensor:
        """The scores of float32 rows by one node of ONNX; its attributes, too many for torch, are those of `trees` here."""
        trees.append(self)
        # Without a split there is no column; the node still needs an input.
        values = self.compared(rows) if self.num_columns else rows[:, :1]
        given: dict[str, Any] = {"n_targets": 1, "nodes_treeids": [len(trees) - 1]}
        shape = (values.shape[0], 1)
        domain = "ai.onnx.ml::TreeEnsembleRegressor"
        return torch.onnx.ops.symbolic(domain, (values,), given, dtype=torch.float32, shape=shape, version=3).squeeze(
            -1
        )

    def onnx_attributes(self) -> dict[str, list[Any]]:
        """The trees as attributes of a `TreeEnsembleRegressor`, whose features are `compared` float32 ones."""
        (column, left), leaf = self.branch.long().unbind(-1), torch.zeros(self.num_nodes, dtype=torch.bool)
        leaf[self.leaves] = True
        tree = torch.bucketize(torch.arange(self.num_nodes), self.root, right=True) - 1  # nodes follow their root
        number, below = torch.arange(self.num_nodes) - self.root[tree], left - self.root[tree]
        nodes = {
            "nodes_treeids": tree,
            "nodes_nodeids": number,
            "nodes_featureids": torch.where(leaf, 0, column),
            "nodes_values": torch.where(leaf, 0.0, round_down(self.threshold)),
            "nodes_truenodeids": torch.where(leaf, 0, below),
            "nodes_falsenodeids": torch.where(leaf, 0, below + 1),
            "target_treeids": tree[leaf],
            "target_nodeids": number[leaf],
            "target_ids": torch.zeros_like(number[leaf]),
            "target_weights": self.threshold[leaf].float(),
        }
        modes = ["LEAF" if each else "BRANCH_LEQ" for each in leaf.tolist()]
        return {name: values.tolist() for name, values in nodes.items()} | {"nodes_modes": modes}


#: The trees of an export to ONNX that is going on, `rankstruct.models.export_scorer`, in order; None otherwise.
ONNX_TREES: ContextVar[list[TreeScorer] | None] = ContextVar("ONNX_TREES", default=None)


def round_down(values: Tensor) -> Tensor:
    """The largest float32 number that is not above each value: a float32 number is at most both or neither.

    >>> round_down(torch.tensor([0.1, -0.1], dtype=torch.float64)).double() <= torch.tensor([0.1, -0.1], dtype=torch.float64)
    tensor([True, True])
    """
    single = values.float()
    return torch.where(single.double() > values, single.nextafter(single.new_tensor(float("-inf"))), single)


def _check_trees(scorer: TreeScorer, _: Any) -> None:
    """Refuse trees of a file whose indices the compiled loop could not trust, or in which a descent would not end."""
    (column, left), nodes = scorer.branch.unbind(-1), torch.arange(scorer.num_nodes, device=scorer.branch.device)
    leaf = (column == scorer.num_columns) & (left == nodes)
    inner = _is_index(column, scorer.num_columns) & (left > nodes) & (left + 1 < scorer.num_nodes)
    sizes = scorer.bounds.diff(
        prepend=scorer.bounds.new_zeros(1), append=scorer.bounds.new_tensor([len(scorer.member)])
    )
    sound = (
        leaf | inner,
        _is_index(scorer.root, scorer.num_nodes),
        _is_index(scorer.feature, scorer.num_features),
        (sizes >= 0) & (scorer.bounds[-1] == len(scorer.member)),
        ~scorer.threshold.isnan(),
    )
    if not all(each.all() for each in sound):
        raise ValueError("the trees are damaged: a node, feature or category does not exist, or a number is NaN")


def _is_index(values: Tensor, size: int) -> Tensor:
    return (values >= 0) & (values < size)


class SumScorer(_Several):
    """The sum of the scores of several scorers.

    Args:
        scorers: scorers of the same features.

    >>> import torch
    >>> SumScorer([MLPScorer(3), LinearScorer(3)])(torch.ones(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    _combine = staticmethod(partial(torch.sum, dim=0))


class MeanScorer(_Several):
    """The mean score of several scorers.

    Args:
        scorers: scorers of the same features.

    >>> import torch
    >>> MeanScorer([MLPScorer(3), MLPScorer(3)])(torch.ones(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    _combine = staticmethod(partial(torch.mean, dim=0))


class PreparedScorer(Scorer):
    """A scorer together with its preparation, for raw features.

    Args:
        scorer: maps prepared features `[..., list_size, any]` to scores `[..., list_size]`.
        preparation: fitted to the training data.

    >>> import torch
    >>> preparation = Preparation.fit(["standardize"], torch.randn(9, 3).numpy())
    >>> PreparedScorer(LinearScorer(3), preparation)(torch.ones(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    def __init__(self, scorer: nn.Module, preparation: Preparation) -> None:
        super().__init__()
        self.scorer, self.preparation = scorer, preparation
        self.by_list = preparation.by_list or is_by_list(scorer)

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
        """Return scores `[..., list_size]` of raw features `[..., list_size, d]`.

        If they depend on complete lists (`by_list`), `where` marks real documents, or `offsets` separates
        the lists of flat features `[documents, d]`; without both, the last dimension but one is the list.

        Raises:
            ValueError: a different number of features, or inconsistent shapes.
        """
        return scores_of(self.scorer, self.preparation(features, where=where, offsets=offsets), where, offsets)


class ProbabilityScorer(Scorer):
    """The probabilities of a calibrated scorer in place of its scores, such as for export to ONNX.

    Args:
        scorer: of raw features, such as `ranker.to_scorer()` or `load_scorer(path)`.
        calibration: the fitted step; that of the scorer if None.

    Raises:
        ValueError: the scorer has none.

    >>> import torch
    >>> calibration = Calibration("sigmoid").fit([[1.0, 0.0, -1.0]], [[1, 0, 0]])
    >>> ProbabilityScorer(LinearScorer(3), calibration)(torch.ones(5, 3)).shape
    torch.Size([5])
    """

    def __init__(self, scorer: nn.Module, calibration: Calibration | None = None) -> None:
        super().__init__()
        calibration = getattr(scorer, "calibration", None) if calibration is None else calibration
        if calibration is None:
            raise ValueError("the scorer was not calibrated; train the ranker with calibrate=, or pass a calibration")
        self.scorer, self.calibration = scorer, calibration
        self.by_list, self.feature_names = is_by_list(scorer), getattr(scorer, "feature_names", None)

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
        """Return probabilities `[..., list_size]` of features `[..., list_size, d]`; lists as in `PreparedScorer`."""
        return self.calibration(scores_of(self.scorer, features, where, offsets))


class EnsembleScorer(_Several):
    """The weighted mean of several scorers, each standardised to mean 0 and standard deviation 1 within each list.

    Args:
        scorers: scorers of the same features.
        weights: one per scorer, scaled to sum 1; all equal if None. Scorers of weight 0 are not evaluated.

    >>> import torch
    >>> EnsembleScorer([MLPScorer(3), LinearScorer(3)])(torch.ones(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    def __init__(self, scorers: Sequence[nn.Module], weights: Sequence[float] | None = None) -> None:
        super().__init__(scorers)
        self.weights, self.by_list = check_weights(weights, len(scorers)), True

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
        """Return scores `[..., list_size]` of features `[..., list_size, d]`.

        `where` marks real documents, or `offsets` separates the lists of flat features `[documents, d]`; without both, the last
        dimension but one is the list. Padding scores 0.

        Raises:
            ValueError: inconsistent shapes.
        """
        check_exported(where, offsets)
        asked = zip(self.scorers, self.weights, strict=True)
        scores = [scores_of(scorer, features, where, offsets) for scorer, weight in asked if weight]
        weights = [weight for weight in self.weights if weight]
        if offsets is not None:
            offsets = as_offsets(offsets)
            check_offsets(offsets, len(features))
            return mean_of_z_scores(torch.stack(scores, -1), weights, offsets.diff())
        if where is None:
            lists = scores[0].reshape(-1, scores[0].shape[-1])
            found = mean_of_z_scores(torch.stack(scores, -1).flatten(0, -2), weights, equal_lengths(lists))
            return found.reshape(scores[0].shape)
        real = torch.stack([each[where] for each in scores], -1)
        found = mean_of_z_scores(real, weights, where.sum(-1).flatten())
        return found.new_zeros(where.shape).masked_scatter(where, found)


def scores_of(
    scorer: nn.Module, features: Tensor, where: Tensor | None = None, offsets: Tensor | None = None
) -> Tensor:
    """Scores of a scorer; one that is not a `Scorer` is called without the lists."""
    return scorer(features, where=where, offsets=offsets) if isinstance(scorer, Scorer) else scorer(features)


def is_by_list(scorer: Any) -> bool:
    """Whether the scores depend on the other documents of the list."""
    return bool(getattr(scorer, "by_list", False))


def mean_of_z_scores(scores: Tensor, weights: Sequence[float], lengths: Tensor) -> Tensor:
    """The weighted mean `[documents]` of scores `[documents, members]`, each standardised within each list of these lengths.

    A member whose scores are all equal in a list contributes 0. A nonfinite score makes all scores of its list NaN.

    >>> mean_of_z_scores(torch.tensor([[0.0, 7.0], [1.0, 7.0]]), [0.5, 0.5], torch.tensor([2]))
    tensor([-0.5000,  0.5000])
    """
    wide = scores.to(torch.float32 if scores.device.type == "mps" else torch.float64)
    return (QueryZScore()(wide, lengths) @ wide.new_tensor(weights)).to(scores.dtype)


def widths(hidden: int | Sequence[int]) -> tuple[int, ...]:
    """The widths of one or more hidden layers; raises ValueError for invalid ones."""
    found = tuple(hidden) if isinstance(hidden, Iterable) else (hidden,)
    for each in found:
        check_integers(1, 2**31 - 1, hidden=each)
    return found


def hidden_layers(num_features: int, hidden: Sequence[int], dropout: float) -> tuple[list[nn.Module], int]:
    """The hidden layers of an MLP and the width of the last one; raises ValueError for an invalid dropout."""
    check_numbers(">= 0 and < 1", dropout=dropout)
    layers: list[nn.Module] = []
    for before, units in itertools.pairwise((num_features, *hidden)):
        layers += [nn.Linear(before, units), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
    return layers, (num_features, *hidden)[-1]


def check_weights(weights: Sequence[float] | None, members: int) -> tuple[float, ...]:
    """One weight per member, scaled to sum 1; raises ValueError for a wrong number, negative ones, or only zeros."""
    found = [1.0] * members if weights is None else [float(each) for each in weights]
    if len(found) != members or not all(0 <= each < float("inf") for each in found) or not sum(found):
        raise ValueError(
            f"weights must be {members} nonnegative numbers, one per member and not all 0; got {weights!r}"
        )
    return tuple(each / sum(found) for each in found)


def with_preparation(scorer: nn.Module, preparation: Preparation) -> nn.Module:
    """The scorer with its preparation, or the scorer itself if there is no step and no categorical column."""
    return PreparedScorer(scorer, preparation) if preparation.names or preparation.columns is not None else scorer


def split_preparation(scorer: nn.Module) -> tuple[nn.Module, Preparation]:
    """The scorer of prepared features and the preparation, which may have no step."""
    return (scorer.scorer, scorer.preparation) if isinstance(scorer, PreparedScorer) else (scorer, Preparation())


def names_of_features(scorer: nn.Module, num_features: int, given: Sequence[str] | None = None) -> list[str]:
    """The names of the raw features: `given` ones, those of training, or numbers.

    Raises:
        ValueError: the wrong number of names, or names that are not unique.

    >>> names_of_features(LinearScorer(2), 2)
    ['feature_1', 'feature_2']
    """
    if isinstance(given, str):
        raise ValueError(f"feature_names must be a list of names, got the text {given!r}; write [{given!r}]")
    known = trained_names(scorer) if given is None else given
    found = [f"feature_{at + 1}" for at in range(num_features)] if known is None else list(map(str, known))
    if len(found) != num_features or len({*found}) != num_features or not all(map(str.strip, found)):
        raise ValueError(
            f"feature_names must be {num_features} different names, none of them empty, got {found!r:.200}"
        )
    return found


def trained_names(scorer: nn.Module) -> Sequence[str] | None:
    """The names of the raw features in training; None if it had none."""
    columns = split_preparation(scorer)[1].columns
    return getattr(scorer, "feature_names", None) or (None if columns is None else columns.names)


def check_features(features: Tensor, num_features: int, weights: Tensor | None = None) -> None:
    check_tensor("features", features)
    if features.dim() < 1 or features.shape[-1] != num_features:
        raise ValueError(
            f"features must have shape [..., list_size, {num_features}], with the scorer's number of features last; "
            f"got {tuple(features.shape)}"
        )
    if weights is None or features.dtype == weights.dtype or is_under_autocast(features):
        return
    raise TypeError(
        f"features are {features.dtype} and the scorer's weights {weights.dtype}; use features.to({weights.dtype}), or "
        f"scorer.to({features.dtype})"
    )
