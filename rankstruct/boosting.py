"""The losses as custom objectives of LightGBM and XGBoost, and the measures as their evaluation functions.

A round of boosting fits a tree to Newton steps: the value of a leaf is minus the sum of its documents' gradients over the sum of
their second derivatives. The losses give

    gradient    of the mean loss over lists, times the number of documents: a document weighs as much as in a regression
    Hessian     its diagonal. Of a smooth convex loss (squared, logistic, of ListNet, of ListMLE, LambdaLoss) the true one. Others
                are linear in pieces or not convex; smoothed by standard normal noise z, their second derivative is E[g_i z_i],
                by Stein's lemma, and so at most the root mean square of the gradient, E[g_i^2]^(1/2), which stands for it,
                taken once, around equal scores: for the hinge of a pair about the weight of the pair. It is never below |g_i|,
                so that no document goes farther in a step than 1, the margin.

Source of the Newton step: Chen and Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016, equations 5 and 6.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankstruct.losses import StructuredHingeLoss, takes_groups
from rankstruct.measures import Measure, evaluate, parse_measure

__all__ = ["BoostingMetric", "BoostingObjective", "boosting_metric", "boosting_objective"]

_DRAWS = 16  # of noise; documents with the same label in a list share what they find


def boosting_objective(loss: nn.Module | Measure | str, *, groups: Any = None) -> BoostingObjective:
    """Any loss of the library as the custom objective of LightGBM or XGBoost.

    Args:
        loss: a loss module; or a measure or its name, for its structured hinge. Parameters of its own stay as they are.
        groups: `[documents]`, the group (host, topic) of each training document, for a loss over diverse rankings.

    Raises:
        ValueError: a loss over diverse rankings without groups; a name that is no measure.

    Where objectives are given, it is one: `lightgbm.train({"objective": objective}, data)`, `LGBMRanker(objective=objective)`,
    `xgboost.train(params, data, obj=objective)` with `"base_score": 0`. The data need their lists, `group=` of sizes (XGBoost's
    `qid=` too), and may have weights, one a list. XGBRanker takes no custom objective, and CatBoost's sees blocks of documents
    that cut lists apart.

    >>> objective = boosting_objective("AUC")
    >>> gradient, hessian = objective(np.array([1.0, 0.0, 0.0]), np.zeros(3), None, np.array([3]))
    >>> gradient, hessian.round(1)
    (array([-6.,  3.,  3.]), array([6., 3., 3.]))
    """
    return BoostingObjective(loss, groups=groups)


def boosting_metric(measure: Measure | str) -> BoostingMetric:
    """A measure of the library as the evaluation function of LightGBM or XGBoost: its mean over lists, higher is better.

    It goes where theirs go: `lightgbm.train(..., feval=metric)`, `LGBMRanker().fit(..., eval_metric=metric)`,
    `xgboost.train(..., custom_metric=metric)`, which has to be told `maximize=True` where it stops early.

    >>> boosting_metric("AP")(np.array([1.0, 0.0]), np.array([0.5, 0.7]), None, np.array([2]))
    ('AP', 0.5, True)
    """
    return BoostingMetric(measure)


class BoostingObjective:
    """A loss as a function of what a library of boosted trees gives; see `boosting_objective`.

    Called with (predictions, data set) or (labels, predictions, weights, sizes of the lists), it gives gradient and second
    derivatives, `[documents]` each.
    """

    def __init__(self, loss: nn.Module | Measure | str, *, groups: Any = None) -> None:
        self.loss = copy.deepcopy(loss) if isinstance(loss, nn.Module) else StructuredHingeLoss(loss)
        self.groups = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
        if takes_groups(self.loss) and groups is None:
            raise ValueError(f"{type(self.loss).__name__} needs groups=, one id a training document: its host or topic")
        for module in self.loss.modules():
            if hasattr(module, "reduction"):
                module.reduction = "none"  # type: ignore[assignment]
        self._lists: tuple[np.ndarray, ...] = ()
        self._spread: Tensor | None = None  # of the lists that were seen last

    def __repr__(self) -> str:
        """As it is made."""
        return f"boosting_objective({self.loss!r})"

    def __call__(self, first: Any, second: Any, weight: Any = None, group: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and second derivatives; raises ValueError where lists, labels or weights are not what they have to be."""
        predictions, labels, weight, sizes = _given(first, second, weight, group)
        scores = torch.as_tensor(predictions)
        lists = {"labels": torch.as_tensor(labels), "offsets": torch.tensor(np.concatenate([[0], sizes.cumsum()]))}
        if self.groups is not None:
            if len(self.groups) != len(labels):
                raise ValueError(f"groups are {len(self.groups)}, one a training document; there are {len(labels)}")
            lists["groups"] = torch.as_tensor(self.groups)
        if not (self._lists and np.array_equal(self._lists[0], labels) and np.array_equal(self._lists[1], sizes)):
            self._lists, self._spread = (np.array(labels), sizes), None
        factors = np.repeat(_list_weights(weight, sizes) * (len(labels) / len(sizes)), sizes)
        gradient = _gradient(self.loss, scores, lists)
        known = getattr(self.loss, "second_derivatives", lambda *_: None)(scores, lists["labels"], lists["offsets"])
        if known is None:
            if self._spread is None:
                self._spread = _spread(self.loss, scores, lists)
            known = torch.maximum(self._spread, gradient.abs())
        return gradient.numpy() * factors, known.numpy() * factors


class BoostingMetric:
    """A measure as a function of what a library of boosted trees gives; see `boosting_metric`."""

    def __init__(self, measure: Measure | str) -> None:
        self.measure = parse_measure(measure)

    def __repr__(self) -> str:
        """As it is made."""
        return f"boosting_metric({self.measure.name!r})"

    def __call__(self, first: Any, second: Any, weight: Any = None, group: Any = None) -> tuple:
        """Name, mean over lists and, for LightGBM, that higher is better."""
        predictions, labels, weight, sizes = _given(first, second, weight, group)
        offsets = np.concatenate([[0], sizes.cumsum()])
        values = evaluate(predictions, labels, [self.measure], offsets=offsets)[self.measure.name].numpy()
        found = self.measure.name, float(np.average(values, weights=_list_weights(weight, sizes)))
        return found if hasattr(second, "get_base_margin") else (*found, True)


def _given(first: Any, second: Any, weight: Any, group: Any) -> tuple[np.ndarray, np.ndarray, Any, np.ndarray]:
    """Predictions, labels, weights and the sizes of the lists, of both ways to call."""
    labels, predictions = first, second
    if hasattr(second, "get_label"):
        predictions, labels, weight, group = first, second.get_label(), second.get_weight(), second.get_group()
    if group is None or not len(group):
        raise ValueError(
            "the lists are not known; give the training data group=, the sizes of the lists in their order"
        )
    sizes = np.asarray(group, np.int64)
    if sizes.sum() != len(labels):
        raise ValueError(f"group must be the sizes of the lists, which add up to {len(labels)}; got {sizes.sum()}")
    return np.asarray(predictions), np.asarray(labels), weight, sizes


def _list_weights(weight: Any, sizes: np.ndarray) -> np.ndarray:
    """One a list, of what is one a list or the same for all documents of a list."""
    if weight is None or not len(weight):
        return np.ones(len(sizes))
    weight = np.asarray(weight, float)
    if len(weight) == len(sizes):
        return weight
    starts = sizes.cumsum() - sizes
    if len(weight) != sizes.sum() or not np.array_equal(weight, np.repeat(weight[starts], sizes)):
        raise ValueError("weights must be one a list, or the same for all documents of each list")
    return weight[starts]


def _gradient(loss: nn.Module, scores: Tensor, lists: dict[str, Tensor]) -> Tensor:
    """Of the sum of a loss over lists, `[documents]`."""
    leaf = scores.detach().clone().requires_grad_()
    given = lists if takes_groups(loss) else {name: lists[name] for name in ("labels", "offsets")}
    (gradient,) = torch.autograd.grad(loss(leaf, **given).sum(), leaf)
    return gradient


def _spread(loss: nn.Module, scores: Tensor, lists: dict[str, Tensor]) -> Tensor:
    """The root mean square of the gradient at standard normal scores, over draws and documents of one label in a list."""
    noise = torch.randn(_DRAWS, len(scores), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    squares = torch.stack([_gradient(loss, each.to(scores), lists) for each in noise]).square().mean(0).numpy()
    lengths = lists["offsets"].diff()
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    _, kind = np.unique(np.stack([numbers, lists["labels"].numpy()]), axis=1, return_inverse=True)
    means = np.bincount(kind, squares) / np.bincount(kind)
    return torch.from_numpy(np.sqrt(means[kind])).to(scores)
