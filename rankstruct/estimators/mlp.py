"""MLP rankers, trained on any loss in mini-batches of lists, with early stopping on a measure."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from rankstruct.arrays import as_single
from rankstruct.estimators.base import (
    PREPARE,
    Documents,
    FlatLists,
    Ranker,
    bring_together,
    check_groups_of,
    dense,
    is_number,
    named_loss,
)
from rankstruct.kernels.threads import threads_of_torch
from rankstruct.lists import group_documents, to_tensor
from rankstruct.losses import GradedLoss, takes_groups
from rankstruct.measures import Measure, evaluate
from rankstruct.models import ContextScorer, DeepSetScorer, MeanScorer, MLPScorer, polynomial_average
from rankstruct.models.scorers import widths, with_preparation
from rankstruct.progress import Progress, announce

__all__ = ["MLPRanker"]

_DOCUMENTS = 2**16  # scored per call
_WORTH_THREADS = 2**18  # size of a layer's output, for all documents of a batch
_SCORERS: dict[str | None, Callable[..., nn.Module]] = {
    None: MLPScorer,
    "attention": ContextScorer,
    "mean": DeepSetScorer,
}


class MLPRanker(Ranker):
    """A multilayer perceptron, or the mean score of several, trained on a ranking loss.

    Training lists are shuffled each epoch; batches are flat, without padding. The model is the average of the weights over all
    steps, with more weight on later ones (see `polynomial_average`), at the epoch with the best validation measure.

    Args:
        measure: a measure or its name, which selects the epoch and which `score` reports. None is nDCG@10 for graded labels and
            AP for binary ones.
        loss: any loss of rankstruct, a module or its name with arguments, such as `"LambdaLoss('nDCG@10')"`; the hinge of the
            ROC area at every threshold of the grades, `GradedLoss("AUC")`, if None.
        prepare: preparation steps, fitted to the training documents; see `rankstruct.preparation.Preparation`.
        hidden: the widths of the hidden layers; a number for a single one.
        dropout: the dropout probability of hidden units.
        context: whether a network sees the other documents of the list: `"attention"` is a `ContextScorer`, `"mean"` a
            `DeepSetScorer`, and a callable makes the scorer from `(num_features, hidden, dropout=, noise=)`, such as
            `functools.partial(ContextScorer, blocks=2)`. `predict` then needs the lists. If None, each document is scored alone.
        noise: standard deviation of normal noise that training adds to the prepared features.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        lists_per_batch: lists per step.
        max_epochs: the maximum number of epochs.
        patience: epochs without improvement of the validation measure before training stops.
        seeds: number of networks whose scores are averaged, with seeds from `random_state` on.
        validation_share: fraction of the lists held out if `fit` is given no validation lists; 0 trains on all lists for
            `max_epochs` epochs.
        drop_empty: skip training lists whose labels are all equal.
        device: such as `"cpu"` or `"cuda:1"`; if None, the first GPU, or the CPU without one.
        random_state: seed of weights, batches, dropout and the held-out lists.
        verbose: show a progress bar with the validation measure.

    Attributes:
        measure_: the measure, `measure` unless that is None.
        preparation_: the fitted preparation.
        scorer_: the network for prepared features, on the CPU; a `MeanScorer` of several.
        history_: for each network, `{"epoch", "loss", "validation"}` of each epoch; validation is None without such lists. The
            value of the selected epoch is optimistic for new lists.
        best_epochs_: the selected epoch of each network, from 1.
        n_features_in_: number of raw features.

    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 2)), np.repeat(np.arange(40), 10)
    >>> y = (np.square(X).sum(1) < 0.5).astype(int)           # documents near the origin are relevant
    >>> ranker = MLPRanker(seeds=2, max_epochs=30, device="cpu").fit(X, y, qid)
    >>> ranker.score(X, y, qid) > 0.85, ranker.to_scorer()(torch.zeros(5, 2)).shape
    (True, torch.Size([5]))
    """

    def __init__(
        self,
        measure: str | Measure | None = None,
        *,
        loss: str | nn.Module | None = None,
        prepare: Sequence[str] = PREPARE,
        hidden: int | Sequence[int] = (64, 32),
        dropout: float = 0.5,
        context: str | Callable[..., nn.Module] | None = None,
        noise: float = 0.0,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-2,
        lists_per_batch: int = 8,
        max_epochs: int = 100,
        patience: int = 20,
        seeds: int = 1,
        validation_share: float = 0.2,
        drop_empty: bool = True,
        device: str | torch.device | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.measure, self.loss, self.prepare = measure, loss, prepare
        self.hidden, self.dropout, self.context, self.noise = hidden, dropout, context, noise
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.lists_per_batch, self.max_epochs, self.patience = lists_per_batch, max_epochs, patience
        self.seeds, self.validation_share, self.drop_empty = seeds, validation_share, drop_empty
        self.device, self.random_state, self.verbose = device, random_state, verbose

    def _fit(self, train: Documents, valid: Documents | None) -> None:
        check_groups_of(loss := self.ranking_loss(), train.diversity_groups)
        train, valid = self._divided(train, valid)
        features = dense(self._fit_preparation(train.X, train.qid))
        lists = _Tensors(self._training_lists(features, *train[1:]), self._place())
        held_out = None
        if valid is not None:
            features = dense(self._prepared(valid.X, valid.qid))
            held_out = _Tensors(bring_together(features, *valid[1:]), self._place())
        # One thread is faster for small work, and several times faster next to other processes.
        documents = len(lists.X) / max(len(lists.lengths), 1) * self.lists_per_batch
        small = documents * max(lists.X.shape[1], *widths(self.hidden), 1) < _WORTH_THREADS
        with threads_of_torch(1) if small else nullcontext():
            self._train(loss, lists, held_out)

    def _check_fit_options(self, has_validation: bool) -> None:
        for name, least in (("lists_per_batch", 1), ("max_epochs", 1), ("patience", 1), ("seeds", 1)):
            value = getattr(self, name)
            if not (isinstance(value, Integral) and least <= int(value) < 2**31):
                raise ValueError(f"{name} must be an integer from {least} to {2**31 - 1}, got {value!r}")
        if not (callable(self.context) or self.context in list(_SCORERS)):
            raise ValueError(f"context must be None, 'attention', 'mean' or a callable, got {self.context!r}")
        if not (is_number(self.noise, 0) and self.noise < math.inf):
            raise ValueError(f"noise must be a finite number of at least 0, got {self.noise!r}")
        for name in ("dropout", "validation_share"):
            if not (is_number(getattr(self, name), 0) and getattr(self, name) < 1):
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)!r}")
        rate, decay = self.learning_rate, self.weight_decay
        if not (is_number(rate, 0) and 0 < rate < math.inf and is_number(decay, 0)):
            raise ValueError(f"learning_rate must be above 0 and weight_decay at least 0; got {rate!r} and {decay!r}")

    def ranking_loss(self) -> nn.Module:
        """Return the loss that `fit` minimises; raises ValueError if `loss` is invalid."""
        loss = copy.deepcopy(named_loss(self.loss))
        return GradedLoss("AUC") if loss is None else loss

    @property
    def by_list(self) -> bool:  # type: ignore[override]
        """Whether the scores depend on the other documents of the list."""
        return self.context is not None

    def _place(self) -> torch.device:
        try:
            found = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        except RuntimeError as error:
            raise ValueError(
                f"device must be a PyTorch device, such as 'cpu' or 'cuda:0', got {self.device!r}: {error}"
            ) from error
        if found.type == "cuda" and not torch.cuda.is_available():
            raise ValueError(f"device={self.device!r} was requested, but PyTorch finds no GPU; omit device")
        return found

    def _train(self, loss: nn.Module, lists: _Tensors, valid: _Tensors | None) -> None:
        scorers = []
        self.history_: list[list[dict[str, float | None]]] = []
        self.best_epochs_: list[int] = []
        devices = [lists.X.device] if lists.X.device.type == "cuda" else []
        for number in range(self.seeds):
            with torch.random.fork_rng(devices):
                torch.manual_seed(self.random_state + number)
                network = _Network(self, copy.deepcopy(loss), lists, self.random_state + number)
                shown = {"disable": not self.verbose, "desc": f"network {number + 1} of {self.seeds}", "leave": False}
                with Progress(range(self.max_epochs), unit=" epochs", **shown) as bar:
                    for epoch in bar:
                        announce(f"epoch {epoch + 1}")
                        if not network.learn(valid):
                            break
                        bar.set_postfix_str(
                            "" if network.best is None else f"{self._measure().name} {network.best:.4f}"
                        )
            scorers.append(network.kept.cpu().eval())
            self.history_.append(network.history)
            self.best_epochs_.append(network.best_epoch)
        self.scorer_ = scorers[0] if len(scorers) == 1 else MeanScorer(scorers)

    def _score_as_one_list(self, documents: int, longest: int) -> None:
        raise ValueError(
            f"qid is missing: with context={self.context!r} a score depends on the list, and {documents} documents are not one, "
            f"since no training list has more than {longest}; pass qid=, one id per document, or group=, the sizes of the lists "
            f"(group=[{documents}] for one list)"
        )

    def _scores(self, X: Any, qid: np.ndarray | None) -> np.ndarray:
        # In float64, so that a score does not depend on how many documents are scored together.
        features = torch.tensor(dense(self._prepared(X, qid)), dtype=torch.float64)
        scorer = copy.deepcopy(self.scorer_).double()
        if not self.by_list:
            return _scores(scorer, features).numpy()
        order, offsets = group_documents(np.zeros(len(features), np.int64) if qid is None else qid)
        if order is None:
            return _scores(scorer, features, torch.tensor(offsets)).numpy()
        return _scores(scorer, features[order], torch.tensor(offsets)).numpy()[np.argsort(order)]

    def to_scorer(self) -> nn.Module:
        """Return the networks as a PyTorch scorer of raw features, float32; see `save_scorer`."""
        check_is_fitted(self)
        return with_preparation(copy.deepcopy(self.scorer_), self.preparation_)


class _Tensors:
    """Documents grouped by list, on a device."""

    def __init__(self, lists: FlatLists, device: torch.device) -> None:
        self.X = to_tensor(np.asarray(lists.X)).to(device, torch.float32)
        self.labels = to_tensor(as_single("y", lists.labels)).to(device)
        groups = lists.diversity_groups
        self.diversity_groups = None if groups is None else torch.as_tensor(groups, device=device)
        self.weights = None if lists.weights is None else torch.as_tensor(lists.weights, device=device)
        self.item_weights = (
            None
            if lists.item_weights is None
            else torch.as_tensor(lists.item_weights, dtype=torch.float32, device=device)
        )
        self.starts, self.lengths = lists.offsets[:-1], np.diff(lists.offsets)
        self.offsets = torch.as_tensor(lists.offsets, device=device)

    def batch(self, numbers: np.ndarray) -> tuple[Tensor, dict[str, Tensor]]:
        """Features and loss arguments of some lists."""
        lengths = self.lengths[numbers]
        offsets = np.concatenate([[0], lengths.cumsum()])
        rows = np.arange(offsets[-1]) + np.repeat(self.starts[numbers] - offsets[:-1], lengths)
        at = torch.as_tensor(rows, device=self.X.device)
        # Offsets are on the CPU, so that losses need not synchronise to read them.
        given = {"labels": self.labels[at], "offsets": torch.as_tensor(offsets)}
        if self.diversity_groups is not None:
            given["diversity_groups"] = self.diversity_groups[at]
        if self.item_weights is not None:
            given["item_weights"] = self.item_weights[at]
        if self.weights is not None:
            given["weights"] = self.weights[torch.as_tensor(numbers, device=self.X.device)]
        return self.X[at], given


class _Network:
    """One network in training: its weights, their average, and the best average so far."""

    def __init__(self, options: MLPRanker, loss: nn.Module, lists: _Tensors, seed: int) -> None:
        self.options, self.loss, self.lists = options, loss.to(lists.X.device), lists
        make = options.context if callable(options.context) else _SCORERS[options.context]
        network = make(lists.X.shape[1], options.hidden, dropout=options.dropout, noise=options.noise)
        self.scorer = network.to(lists.X.device)
        self.average = AveragedModel(self.scorer, avg_fn=polynomial_average).eval()
        self.kept = copy.deepcopy(self.scorer)
        weights = [*self.scorer.parameters(), *self.loss.parameters()]
        self.optimizer = torch.optim.AdamW(
            weights, lr=options.learning_rate, weight_decay=options.weight_decay, fused=True
        )
        self.order = np.random.default_rng(seed)
        self.history: list[dict[str, float | None]] = []
        self.best: float | None = None
        self.best_epoch = 0

    def learn(self, valid: _Tensors | None) -> bool:
        """Train for an epoch and evaluate on the validation lists; returns whether to continue."""
        epoch, losses = len(self.history) + 1, []
        numbers = self.order.permutation(len(self.lists.lengths))
        self.scorer.train()
        for first in range(0, len(numbers), self.options.lists_per_batch):
            features, given = self.lists.batch(numbers[first : first + self.options.lists_per_batch])
            value = self._loss(self.scorer(features, offsets=given["offsets"]), **given)
            self.optimizer.zero_grad()
            value.backward()
            self.optimizer.step()
            self.average.update_parameters(self.scorer)
            losses.append(value.detach())
        found = None if valid is None else self._measured(valid)
        self.history.append({"epoch": epoch, "loss": float(torch.stack(losses).mean()), "validation": found})
        if found is None or self.best is None or found > self.best:
            self.best, self.best_epoch = found, epoch
            self.kept.load_state_dict(self.average.module.state_dict())
        return epoch - self.best_epoch < self.options.patience

    def _loss(self, scores: Tensor, labels: Tensor, diversity_groups: Tensor | None = None, **lists: Tensor) -> Tensor:
        more = {"diversity_groups": diversity_groups} if takes_groups(self.loss) else {}
        value = self.loss(scores, labels, **lists, **more)
        return (
            value * lists["weights"].mean().to(value) if "weights" in lists else value
        )  # batches weigh as their lists do

    def _measured(self, valid: _Tensors) -> float:
        lists = valid.offsets if self.options.by_list else None
        measure, scores = self.options._measure(), _scores(self.average, valid.X, lists)
        values = evaluate(
            scores, valid.labels, [measure], offsets=valid.offsets, diversity_groups=valid.diversity_groups
        )
        return float(values[measure.name].mean())


@torch.no_grad()
def _scores(scorer: nn.Module, features: Tensor, offsets: Tensor | None = None) -> Tensor:
    """Scores `[documents]`; offsets are those of the lists, if the scores depend on them."""
    if offsets is not None:
        found: Tensor = scorer(features, offsets=offsets)
        return found
    parts = [scorer(part) for part in features.split(_DOCUMENTS)]
    return torch.cat(parts) if parts else features.new_zeros(0)
