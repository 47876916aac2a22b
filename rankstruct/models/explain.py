r"""Why a document is ranked above another: the contribution of each raw feature to the difference of their scores.

The other document is the baseline, so no average document has to be chosen, and a feature that both have alike contributes 0.
A contribution says what it means to this model that the feature is as in A and not as in B; contributions sum to the difference.

    linear  the weight times the difference of the prepared feature: exact
    trees   Shapley values of the game in which a set of features is as in A, and the others as in B: exact, from the leaves that
            such mixtures reach. A leaf whose path needs p features of A and q of B, and whose value is v, gives
            $v (p - 1)! q! / (p + q)!$ to each of the p, and takes $v p! (q - 1)! / (p + q)!$ from each of the q
    others  integrated gradients along the straight line from B to A, for prepared features. Intervals of the line are halved
            until the gradient at their middle explains how much the score rises in each

Several prepared features of one raw feature, such as its quantile, the indicators of a category or of missing cells, are one
player of the game, or are added up. What depends on the list, as `query-` steps and the spread of scores in an ensemble, is
computed from the whole list and held.

Sources: Lundberg et al., "From local explanations to global understanding with explainable AI for trees", Nature Machine
Intelligence 2020 (interventional TreeSHAP, here of one reference); Sundararajan, Taly, Yan, "Axiomatic Attribution for Deep
Networks", ICML 2017.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import comb
from torch import Tensor, nn

from rankstruct.columns import Columns
from rankstruct.models.scorers import (
    EnsembleScorer,
    LinearScorer,
    MeanScorer,
    PreparedScorer,
    SumScorer,
    TreeScorer,
    evaluating,
    is_by_list,
    names_of_features,
    split_preparation,
)

__all__ = ["Contributions", "explain_scorer"]

_INTERVALS, _HALVINGS = 16, 40  # of the line between two documents
_TOLERANCE = 1e-8  # of what the first intervals explain
_MOST_ERROR = 1e-3  # of the contributions' sizes
_TREES = 256  # at a time


@dataclass(frozen=True, eq=False)
class Contributions:
    """Why document A scores as it does next to document B; `print` shows it as a table.

    Attributes:
        documents: the names, or rows, of A and B.
        scores: their scores.
        names: `[d]`, the raw features, by the size of their contribution.
        contributions: `[d]`, float64, in this order; positive ones speak for A. They sum to `scores[0] - scores[1]`.
        values: `[d]`, the values of A and B: numbers, categories as text, None for a missing cell.
        error: the sum of the contributions less the difference of scores; of rounding alone but for integrated gradients.

    >>> import rankstruct as rs
    >>> ranker = rs.LinearRanker(prepare=()).fit([[0.0, 1.0], [2.0, 0.0]], [0, 1], group=[2])
    >>> why = ranker.explain([[0.0, 1.0], [2.0, 0.0]], 1, 0, group=[2])
    >>> bool(abs(why.contributions.sum() - (why.scores[0] - why.scores[1])) < 1e-9)
    True
    """

    documents: tuple[Any, Any]
    scores: tuple[float, float]
    names: tuple[str, ...]
    contributions: np.ndarray
    values: tuple[tuple[Any, Any], ...]
    error: float

    def table(self, most: int = 10) -> list[tuple[str, ...]]:
        """Rows `(feature, value of A, value of B, contribution)` of the `most` largest contributions, and one of the rest."""
        shown = [at for at, each in enumerate(self.contributions) if each]
        values = [tuple(f"{v:.4g}" if isinstance(v, float) else str(v or "-") for v in each) for each in self.values]
        rows = [(self.names[at], *values[at], f"{self.contributions[at]:+.4g}") for at in shown[:most]]
        if rest := shown[most:]:
            rows.append((f"{len(rest)} more", "", "", f"{self.contributions[rest].sum():+.4g}"))
        return rows

    def __str__(self) -> str:
        """The table, and the sum."""
        (first, second), difference = self.documents, self.scores[0] - self.scores[1]
        head = ("feature", str(first), str(second), "contribution")
        foot = ("score", *(f"{each:.4g}" for each in self.scores), f"{difference:+.4g}")
        rows = [head, *self.table(), foot]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        )


def explain_scorer(
    scorer: nn.Module,
    features: Any,
    pairs: Sequence[tuple[int, int]],
    *,
    feature_names: Sequence[str] | None = None,
    documents: Sequence[Any] | None = None,
) -> list[Contributions]:
    """What each raw feature contributes to the difference of the scores of two documents, for each of several pairs.

    Args:
        scorer: of raw features, as from `ranker.to_scorer()` or `load_scorer`.
        features: `[documents, d]`, those of one list; of a scorer that scores documents one by one, of any documents.
        pairs: rows of documents, A before B.
        feature_names: of the raw features; those of training if None, or `feature_1` and so on.
        documents: `[documents]`, their names; their rows if None.

    Raises:
        ValueError: rows that are not there; a scorer that compares the documents of a list, or is not differentiable; scores that
            are not finite, as those of missing cells where training had none.

    >>> scorer = LinearScorer(2)
    >>> _ = scorer.linear.weight.data.copy_(torch.tensor([[2.0, -1.0]]))
    >>> (why,) = explain_scorer(scorer, np.array([[1.0, 3.0], [0.5, 7.0]]), [(0, 1)], feature_names=["bm25", "age"])
    >>> print(why)
    feature    0    1  contribution
    age        3    7            +4
    bm25       1  0.5            +1
    score     -1   -6            +5
    """
    features = torch.as_tensor(features)
    if features.dim() != 2:
        raise ValueError(f"features must be those of one list, [documents, d], got {tuple(features.shape)}")
    for pair in pairs:
        if len(pair) != 2 or not all(0 <= row < len(features) for row in pair):
            raise ValueError(f"pairs must have two rows from 0 to {len(features) - 1}, got {tuple(pair)}")
    names, columns = names_of_features(scorer, features.shape[1], feature_names), split_preparation(scorer)[1].columns
    with evaluating(scorer):
        exact = copy.deepcopy(scorer).double()
        scores, found = _explained(exact, features, torch.arange(features.shape[1]), pairs)
    found_for = zip(pairs, found.numpy(), strict=True)
    return [_explanation(pair, scores, each, features, names, columns, documents) for pair, each in found_for]


def _explanation(
    pair: tuple[int, int],
    scores: Tensor,
    contributions: np.ndarray,
    features: Tensor,
    names: Sequence[str],
    columns: Columns | None,
    documents: Sequence[Any] | None,
) -> Contributions:
    """The checked contributions, by their size."""
    a, b = pair
    both = float(scores[a]), float(scores[b])
    error, size = float(contributions.sum()) - (both[0] - both[1]), float(np.abs(contributions).sum())
    if not np.isfinite(size + error):
        raise ValueError(f"the scores of the documents {a} and {b} are not finite, got {both}; check their features")
    if abs(error) > _MOST_ERROR * max(size, abs(both[0] - both[1])):
        raise ValueError(
            f"the contributions of the documents {a} and {b} miss the difference of their scores by {error:.2g}: the scorer "
            "is not differentiable, or looks at other documents"
        )
    order = np.argsort(-np.abs(contributions), kind="stable")
    cells = features[[a, b]].double().T.tolist()
    values = tuple((_cell(columns, at, cells[at][0]), _cell(columns, at, cells[at][1])) for at in order.tolist())
    chosen = (a, b) if documents is None else (documents[a], documents[b])
    return Contributions(chosen, both, tuple(names[at] for at in order), contributions[order], values, error)


def _cell(columns: Columns | None, at: int, value: float) -> Any:
    """A raw feature as in the table: a number, the name of a category, or None for a missing cell."""
    categories = None if columns is None else list(columns.categories.values())[at]
    if np.isnan(value):
        return None
    return value if categories is None else categories[int(value)] if value >= 0 else "(unseen)"


def _explained(
    scorer: nn.Module, features: Tensor, raw: Tensor, pairs: Sequence[tuple[int, int]]
) -> tuple[Tensor, Tensor]:
    """Scores `[documents]` and contributions `[pairs, d]` of the features `[documents, d]` of one list, all in float64.

    `raw` `[d]` is the raw feature of each; where several are of one, only the sum of their contributions is meant.
    """
    inner: Any = scorer
    if isinstance(scorer, PreparedScorer):
        prepared = inner.preparation(features, offsets=torch.tensor([0, len(features)]))
        sources = inner.preparation.sources(features.shape[1])
        scores, found = _explained(inner.scorer, prepared, raw[sources], pairs)
        return scores, found.new_zeros(len(pairs), features.shape[1]).index_add(1, sources, found)
    if isinstance(scorer, EnsembleScorer | MeanScorer | SumScorer):
        both = [_explained(each, features, raw, pairs) for each in inner.scorers]
        scores, found = (torch.stack(each) for each in zip(*both, strict=True))
        weights = torch.full((len(both), 1), 1 / len(both) if isinstance(scorer, MeanScorer) else 1.0).double()
        if isinstance(scorer, EnsembleScorer):
            scores = scores - scores.mean(1, keepdim=True)
            spread = torch.where(scores.amin(1) == scores.amax(1), torch.inf, scores.std(1, correction=0))
            weights = (torch.tensor(inner.weights).double() / spread)[:, None]
        return (weights * scores).sum(0), (weights[:, None] * found).sum(0)
    if is_by_list(scorer):
        raise ValueError(
            f"a {type(scorer).__name__} compares the documents of a list, so the features of two do not explain their scores; "
            "explain a ranker that scores documents one by one, such as BoostedRanker() or MLPRanker() without context="
        )
    rows = features.double()
    with torch.no_grad():
        scores = inner(rows)
    found = rows.new_zeros(len(pairs), rows.shape[1])
    for at, (a, b) in enumerate(pairs):
        if isinstance(scorer, LinearScorer):
            found[at] = inner.linear.weight.detach()[0] * (rows[a] - rows[b])
        elif isinstance(scorer, TreeScorer):
            found[at] = torch.from_numpy(_shapley_values(scorer, rows[[b, a]], raw.numpy()))
        else:
            found[at] = _along_the_line(scorer, rows[a], rows[b])
    return scores, found


def _along_the_line(scorer: nn.Module, high: Tensor, low: Tensor) -> Tensor:
    """Integrated gradients `[d]` from document `low` to `high`."""
    step, found = high - low, torch.zeros_like(high)
    cuts = torch.linspace(0, 1, _INTERVALS + 1, dtype=torch.float64)
    begin, end, tolerance = cuts[:-1, None], cuts[1:, None], None
    for halving in range(_HALVINGS):
        middle = (begin + end) / 2
        points = (low + middle * step).requires_grad_()
        with torch.enable_grad():
            total = scorer(points).sum()
            if not total.requires_grad:
                raise ValueError(f"a {type(scorer).__name__} is not differentiable, so it has no integrated gradients")
            (slope,) = torch.autograd.grad(total, points)
        parts = slope * step * (end - begin)
        with torch.no_grad():
            rise = scorer(low + end * step) - scorer(low + begin * step)
        tolerance = _TOLERANCE * float(parts.abs().sum()) if tolerance is None else tolerance
        missed = ((parts.sum(1) - rise).abs() > tolerance) & (halving < _HALVINGS - 1)
        found += parts[~missed].sum(0)
        if not missed.any():
            break
        begin, end = torch.cat([begin[missed], middle[missed]]), torch.cat([middle[missed], end[missed]])
    return found


def _shapley_values(scorer: TreeScorer, rows: Tensor, raw: np.ndarray) -> np.ndarray:
    """Shapley values `[d]` of trees for two documents `[2, d]`, B before A, with the first column of each raw feature.

    Mixtures of the two go down all trees at once. They divide at a node that sends A and B to different sides, by a feature that
    is not yet as in A (1) or B (-1).
    """
    value, (column, left) = scorer.threshold.numpy(), scorer.branch.long().numpy().T
    compared = scorer.compared(rows.float().double() if scorer.single else rows).numpy()
    compared = np.pad(compared, ((0, 0), (0, 1)), constant_values=-np.inf)  # the column of leaves, which stay
    of_b, of_a = left + ~(compared[:, column] <= value)
    _, first, player = np.unique(raw, return_index=True, return_inverse=True)
    player = player[scorer.feature.numpy()]
    divide = np.flatnonzero(of_a != of_b)
    playing, number = np.unique(player[column[divide]], return_inverse=True)
    which = np.full(len(column), -1)
    which[divide] = number
    found = np.zeros(len(raw))
    for roots in scorer.root.split(_TREES):
        node = roots.numpy()
        taken = np.zeros((len(node), len(playing) + 1), np.int8)  # the last column is of nodes that do not divide
        for _ in range(scorer.depth):
            rows_, who = np.arange(len(node)), which[node]
            new = np.flatnonzero((who >= 0) & (taken[rows_, who] == 0))
            node, taken = np.append(node, node[new]), np.append(taken, taken[new], 0)
            taken[new, who[new]], taken[len(who) :][np.arange(len(new)), who[new]] = -1, 1
            as_a = taken[np.arange(len(node)), which[node]] == 1
            node = np.where(as_a, of_a[node], of_b[node])
        given, lacking = (taken == 1), (taken == -1)
        p, q = given.sum(1), lacking.sum(1)
        share = value[node] / comb(p + q, p)
        gains = (share / np.maximum(p, 1)) @ given - (share / np.maximum(q, 1)) @ lacking
        found[first[playing]] += gains[: len(playing)]
    return found
