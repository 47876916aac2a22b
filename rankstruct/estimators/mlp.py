"""MLP rankers, trained on any loss in mini-batches of lists, with early stopping on a measure."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from rankstruct.arrays import as_single
from rankstruct.blocks import Blocks, SomeLists
from rankstruct.checks import check_integers, check_numbers
from rankstruct.constraints.pages import Packed
from rankstruct.data.shards import ShardedFeatures
from rankstruct.estimators.base import PREPARE, as_device, as_seed, check_groups_of
from rankstruct.estimators.early_stopping import EarlyStoppingRanker
from rankstruct.estimators.training_data import TrainingData, dense
from rankstruct.ids import group_documents
from rankstruct.kernels.threads import threads_of_torch
from rankstruct.lists import to_tensor
from rankstruct.losses import draws, takes_columns, takes_groups
from rankstruct.measures import Measure, evaluate
from rankstruct.models import ContextScorer, DeepSetScorer, MeanScorer, MLPScorer, polynomial_average
from rankstruct.models.scorers import widths
from rankstruct.models.trainer import Trainer, random_state, set_random_state
from rankstruct.preparation import Preparation, check_names, full_name

__all__ = ["MLPRanker"]

_DOCUMENTS = 2**13  # scored per call
_WORTH_THREADS = 2**18  # size of a layer's output, for all documents of a batch
_SCORERS: dict[str | None, Callable[..., nn.Module]] = {
    None: MLPScorer,
    "attention": ContextScorer,
    "mean": DeepSetScorer,
}


class MLPRanker(EarlyStoppingRanker):
    """A multilayer perceptron, or the mean score of several, trained on a ranking loss.

    Training lists are shuffled each epoch; batches are flat, without padding. The model is the average of the weights over all
    steps, with more weight on later ones (see `polynomial_average`), at the epoch with the best validation measure.

    Shards, which `read_lists` returns for a folder of Parquet files, are read as training goes, unless there are item weights,
    clicks or `calibrate`: each batch then has lists of one window of 64 MB of prepared features, see `BatchLoader`.

    Args:
        measure: a measure or its name, which selects the epoch and which `score` reports. None is nDCG@10 for graded labels and
            AP for binary ones.
        loss: any loss of rankstruct, a module or its name with arguments, such as `"LambdaLoss('nDCG@10')"`; None is
            `GradedLoss("AUC")`, the hinge of the ROC area at every threshold of the grades, and from clicks
            `AdditiveRankLoss`.
        prepare: preparation steps, fitted to the training documents; see `rankstruct.preparation.Preparation`. For tables, whose
            labels depend on thresholds and bends of the features, add `"append-piecewise"` as the last step: it is then
            computed for the documents of each step of training, without memory for those of all.
        hidden: the widths of the hidden layers; a number for a single one.
        dropout: the dropout probability of hidden units, rounded to a multiple of 1/256.
        context: whether a network sees the other documents of the list: `"attention"` is a `ContextScorer`, `"mean"` a
            `DeepSetScorer`, and a callable makes the scorer from `(num_features, hidden, dropout=, noise=)`, such as
            `functools.partial(ContextScorer, blocks=2)`. `predict` then needs the lists. If None, each document is scored alone.
        noise: standard deviation of normal noise that training adds to the prepared features.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        lists_per_batch: lists per step.
        max_epochs: the maximum number of epochs.
        patience: epochs without improvement of the validation measure before training stops.
        validate_every: epochs between evaluations on the validation lists. The best evaluated epoch is selected; the last
            epoch is always evaluated.
        seeds: number of networks whose scores are averaged, with seeds from `random_state` on. Up to rounding, they are the
            networks that these seeds give one by one on the same training and validation lists.
        validation_share: fraction of the lists that are held out if `fit` gets no validation lists; 0 trains on all lists for
            `max_epochs` epochs.
        drop_empty: skip training lists whose labels are all equal.
        device: such as `"cpu"` or `"cuda:1"`; if None, the first GPU, or the CPU without one.
        random_state: seed of weights, batches, dropout and the held-out lists; None or a random state of NumPy draws one.
        verbose: show a progress bar with the validation measure.

    Attributes:
        measure_: the measure, `measure` unless that is None.
        preparation_: the fitted preparation.
        scorer_: the network for prepared features, on the CPU; a `MeanScorer` of several.
        history_: for each network, `{"epoch", "loss", "validation"}` of each epoch; validation is None where not evaluated. The
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

    reads_shards = True
    trains_under_rules = True

    def __init__(
        self,
        measure: str | Measure | None = None,
        *,
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
        validate_every: int = 1,
        device: str | torch.device | None = None,
        **options: Any,
    ) -> None:
        super().__init__(measure, prepare=prepare, patience=patience, **options)
        self.hidden, self.dropout, self.context, self.noise = hidden, dropout, context, noise
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.lists_per_batch, self.max_epochs = lists_per_batch, max_epochs
        self.validate_every, self.device = validate_every, device

    def _fit(self, train: TrainingData, valid: TrainingData | None) -> None:
        check_groups_of(self.ranking_loss(), train.diversity_groups)
        if isinstance(train.features, Blocks):
            self._fit_shards(train, valid)
            return
        train, valid = self._divided(train, valid)
        steps, last = self._divided_steps()
        train = self._fit_steps(train, steps)
        embedding = Preparation.fit(last, train.features, after=self.preparation_) if last else Preparation()
        lists = _on(self._place(), self._training_lists(train))
        held_out = None if valid is None else _on(self._place(), self._prepared_lists(valid))
        judged = np.arange(0 if held_out is None else held_out.num_lists)
        self._train([self], lists, [np.arange(lists.num_lists)], held_out, [judged], embedding)
        self.preparation_ = self.preparation_.then(embedding)

    def _fit_shards(self, train: TrainingData, valid: TrainingData | None) -> None:
        """As `_fit`, for lists whose features are not in memory: training and held-out lists are numbers of theirs."""
        held = np.zeros(train.num_lists, bool)
        if valid is None and self._share():
            held[self._drawn(train.num_lists)] = True
            labels = replace(train, features=np.empty((train.num_documents, 0), np.float32))
            self._check_judged(f"validation_share={self._share():g}", labels.select(held), labels)
        learned = self._learned(train, ~held)
        steps, last = self._divided_steps()
        fitted = self._fit_steps(replace(train, features=SomeLists(train.features, ~held, train.lengths)), steps)
        embedding = Preparation.fit(last, fitted.features, after=self.preparation_) if last else Preparation()
        lists = _on(self._place(), self._prepared_lists(self._weighed(train, learned)))
        judged, of = np.flatnonzero(held), lists if held.any() else None
        if valid is not None:
            judged, of = np.arange(valid.num_lists), _on(self._place(), self._prepared_lists(valid))
        self._train([self], lists, [np.flatnonzero(learned)], of, [judged], embedding)
        self.preparation_ = self.preparation_.then(embedding)

    def _divided_steps(self) -> tuple[list[str], list[str]]:
        """The steps that prepare all documents at once, and the last one, if it is for the documents of each step of training.

        Piecewise-linear encodings are so many numbers that those of all documents would take several times the memory.
        """
        steps = [*check_names(self.prepare or ())]
        number = len(steps) - (steps[-1:] != [] and full_name(steps[-1]).startswith("append-piecewise:"))
        return steps[:number], steps[number:]

    @staticmethod
    def _fit_folds(
        copies: Sequence[MLPRanker], lists: TrainingData, parts: np.ndarray, weigh_valid: bool, after: Preparation
    ) -> None:
        """Fit copies of a ranker to lists that `after` prepared, each to those outside its fold, which validates it.

        The networks of all copies are trained together, which takes less time and memory than `fit` of each. Of `prepare` they
        have at most an embedding, which is fitted to all lists. Item weights count in validation if `weigh_valid`.
        """
        check_groups_of((first := copies[0]).ranking_loss(), lists.diversity_groups)
        last = first._divided_steps()[1]
        embedding = Preparation.fit(last, lists.features, after=after) if last else Preparation()
        starts = lists.offsets[:-1]
        folds = parts[starts]
        varied = np.minimum.reduceat(lists.labels, starts) < np.maximum.reduceat(lists.labels, starts)
        for number, each in enumerate(copies):
            each._check_fit_options(True)
            each.preparation_, each.n_features_in_ = embedding, lists.num_features
            each._begin(replace(lists, features=parts).select(folds != number))
        lists = _on(first._place(), lists)
        trained = [
            np.flatnonzero((folds != number) & (varied | (not first.drop_empty))) for number in range(len(copies))
        ]
        judged = lists if weigh_valid else replace(lists, item_weights=None)
        held_out = [np.flatnonzero(folds == number) for number in range(len(copies))]
        first._train(copies, lists, trained, judged, held_out, embedding)

    def _check_fit_options(self, has_validation: bool) -> None:
        super()._check_fit_options(has_validation)
        names = ("lists_per_batch", "max_epochs", "patience", "validate_every")
        check_integers(1, 2**31 - 1, **{name: getattr(self, name) for name in names})
        if not (callable(self.context) or self.context in list(_SCORERS)):
            raise ValueError(f"context must be None, 'attention', 'mean' or a callable, got {self.context!r}")
        check_numbers("> 0", learning_rate=self.learning_rate)
        check_numbers(">= 0", weight_decay=self.weight_decay, noise=self.noise)
        check_numbers(">= 0 and < 1", dropout=self.dropout)

    @property
    def by_list(self) -> bool:  # type: ignore[override]
        """Whether the scores depend on the other documents of the list."""
        return self.context is not None

    def _place(self) -> torch.device:
        return as_device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))

    def _train(
        self,
        copies: Sequence[MLPRanker],
        lists: TrainingData,
        trained: Sequence[np.ndarray],
        valid: TrainingData | None,
        held_out: Sequence[np.ndarray],
        embedding: Preparation,
    ) -> None:
        """Train the networks of this ranker, or of copies that differ in their lists and seeds.

        They see the features after `embedding`, which has at most one step.
        """
        seeds = [as_seed(each.random_state) + number for each in copies for number in range(self.seeds)]
        trained, held_out = ([each for each in of for _ in range(self.seeds)] for of in (trained, held_out))
        # One thread is faster for small work, and several times faster next to other processes.
        documents = len(lists.features) / max(lists.num_lists, 1) * self.lists_per_batch * len(seeds)
        features = embedding.width if embedding.names else lists.num_features
        small = documents * max(features, *widths(self.hidden), 1) < _WORTH_THREADS
        devices = [lists.labels.device] if lists.labels.device.type == "cuda" else []
        with threads_of_torch(1) if small else nullcontext(), torch.random.fork_rng(devices):
            networks = _Networks(self, lists, valid, trained, held_out, seeds, embedding)
            networks.run(self._measure().name, desc=f"{len(seeds)} networks", disable=not self.verbose)
            scorers = networks.scorers()
        for number, each in enumerate(copies):
            own = slice(number * self.seeds, (number + 1) * self.seeds)
            each.scorer_ = scorers[own][0] if self.seeds == 1 else MeanScorer(scorers[own])
            each.history_, each.best_epochs_ = networks.history[own], networks.best_epochs[own]

    def _score_as_one_list(self, documents: int, longest: int) -> None:
        raise ValueError(
            f"qid is missing: with context={self.context!r} a score depends on the list, and {documents} documents are not one, "
            f"since no training list has more than {longest}; pass qid=, one id per document, or group=, the sizes of the lists "
            f"(group=[{documents}] for one list)"
        )

    def _scores(self, X: Any, qid: np.ndarray | None) -> np.ndarray:
        # In float64, so that a score does not depend on how many documents are scored together.
        scorer = copy.deepcopy(self.scorer_).double()
        if not (self.by_list or self.preparation_.by_list):  # embeddings of all documents would be large
            parts = [X[at : at + _DOCUMENTS] for at in range(0, X.shape[0], _DOCUMENTS)]
            found = [_scores(scorer, to_tensor(dense(self._prepared(each, None)))).numpy() for each in parts]
            return np.concatenate(found) if found else np.zeros(0)
        features = to_tensor(dense(self._prepared(X, qid)))
        if not self.by_list:
            return _scores(scorer, features).numpy()
        order, offsets = group_documents(np.zeros(len(features), np.int64) if qid is None else qid)
        if order is None:
            return _scores(scorer, features, torch.tensor(offsets)).numpy()
        return _scores(scorer, features[order], torch.tensor(offsets)).numpy()[np.argsort(order)]

    def to_scorer(self) -> nn.Module:
        """Return the networks as a PyTorch scorer of raw features, float32; see `save_scorer`."""
        check_is_fitted(self)
        return self._as_scorer(copy.deepcopy(self.scorer_))


def _on(device: torch.device, lists: TrainingData) -> TrainingData:
    """The lists as tensors on a device, in single precision."""
    tensors: dict[str, Any] = {name: torch.as_tensor(each, device=device) for name, each in lists.optional.items()}
    if lists.item_weights is not None:
        tensors["item_weights"] = tensors["item_weights"].float()
    if lists.weights is not None:
        tensors["weights"] = torch.as_tensor(lists.weights, device=device)
    X = lists.features
    X = X if isinstance(X, Blocks) else to_tensor(np.asarray(dense(X))).to(device, torch.float32)
    return replace(lists, features=X, labels=to_tensor(as_single("y", lists.labels)).to(device), **tensors)


def _windows(lists: TrainingData, some: np.ndarray) -> list[np.ndarray]:
    """Some lists, in parts whose features may be in memory together."""
    return lists.features.windows(some, some) if isinstance(lists.features, ShardedFeatures) else [some]


def _hold(lists: TrainingData, some: np.ndarray) -> None:
    """Read the features of some lists, if they are in shards."""
    if isinstance(lists.features, ShardedFeatures):
        lists.features.hold(some)


class _Networks(Trainer):
    """Networks of one shape in training, each on its lists: their weights, the averages of these, and the best averages so far.

    A step of all of them is one batched product per layer, or one call of each network that sees whole lists, and one call of the
    loss, or of each loss that has parameters or draws random numbers. Each network draws its own, so that it is the same alone
    and among others, up to rounding. If the copies of a ranker are trained on different lists, those of a seed keep the epoch
    with the best measure on the validation lists of all.
    """

    def __init__(
        self,
        options: MLPRanker,
        lists: TrainingData,
        valid: TrainingData | None,
        trained: Sequence[np.ndarray],
        held_out: Sequence[np.ndarray],
        seeds: Sequence[int],
        embedding: Preparation,
    ) -> None:
        self.options, self.lists, self.valid, self.held_out = options, lists, valid, held_out
        self.device = device = lists.labels.device
        # The lists of each network, in parts whose features are in memory together; those of shards are alike for all networks.
        self.windows = [trained]
        if isinstance(lists.features, ShardedFeatures):
            windows = lists.features.windows(lists.features.shuffled(trained[0], 0), trained[0])
            self.windows = [[np.sort(window)] * len(seeds) for window in windows]
        self.embedding = [copy.deepcopy(each).to(device, torch.float32) for each in embedding.steps]
        self.width = embedding.width if self.embedding else lists.num_features
        loss = options.ranking_loss().to(device)
        # A loss with parameters has its own for each network, and one that draws random numbers is called for each.
        self.one_loss = not (any(True for _ in loss.parameters()) or draws(loss))
        self.own_losses = [loss] if self.one_loss else [copy.deepcopy(loss) for _ in seeds]
        self.weights: list[nn.Parameter] = []
        self.random_states: list[list[Tensor]] = []
        for seed in seeds:
            torch.manual_seed(seed)
            flat = nn.utils.parameters_to_vector(self._scorer().parameters())
            self.weights.append(nn.Parameter(flat.detach().to(device)))
            self.scorer = self._scorer().to(device)  # with the weights of any of them
            self.random_states.append(random_state(device))
        self.shapes = {name: each.shape for name, each in self.scorer.named_parameters()}
        self.units = widths(options.hidden)
        self.averages = [each.detach() for each in self.weights]
        self.kept = self.averages.copy()
        self.orders = [np.random.default_rng(seed) for seed in seeds]
        self.noise = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        super().__init__(
            [*self.weights, *(each for loss in self.own_losses for each in loss.parameters())],
            [range(first, len(seeds), options.seeds) for first in range(options.seeds)],
            learning_rate=options.learning_rate,
            weight_decay=options.weight_decay,
            max_epochs=options.max_epochs,
            patience=options.patience,
            validate_every=options.validate_every,
            is_validated=valid is not None,
        )

    def _scorer(self) -> nn.Module:
        options = self.options
        make = options.context if callable(options.context) else _SCORERS[options.context]
        return make(self.width, options.hidden, dropout=options.dropout, noise=options.noise).float()

    @contextmanager
    def _drawing(self, number: int) -> Iterator[None]:
        """Random numbers of a network's own, so that it is the same alone and among others."""
        set_random_state(self.random_states[number], self.device)
        yield
        self.random_states[number] = random_state(self.device)

    def scorers(self) -> list[nn.Module]:
        """The best networks."""
        found = [self._scorer().eval() for _ in self.kept]
        for scorer, weights in zip(found, self.kept, strict=True):
            nn.utils.vector_to_parameters(weights.cpu(), scorer.parameters())
        return found

    def batches(self) -> Iterator[Sequence[np.ndarray]]:
        """The lists of each active network for each step of an epoch."""
        for at in np.random.default_rng(self.steps).permutation(len(self.windows)):
            window = self.windows[at]
            _hold(self.lists, window[0])
            steps = -(-max(len(window[number]) for number in self.active) // self.options.lists_per_batch)
            orders = [self.orders[number].permutation(window[number]) for number in self.active]
            yield from zip(*(np.array_split(order, steps) for order in orders), strict=True)

    def losses(self, batch: Sequence[np.ndarray]) -> Tensor:
        """The mean loss of each network on some of its lists, `[networks]`."""
        device = self.device
        rows = [self.lists.documents_of(each) for each in batch]
        longest = max(map(len, rows))
        real = np.concatenate([np.arange(len(each)) + number * longest for number, each in enumerate(rows)])
        padded = np.full(len(rows) * longest, np.concatenate(rows)[0])
        padded[real] = np.concatenate(rows)
        numbers, at = np.concatenate(batch), torch.as_tensor(real, device=device)
        documents = torch.as_tensor(padded, device=device)
        if self.options.by_list:
            self.scorer.train()
            found = []
            for number, *of in zip(self.active, batch, rows, strict=True):
                with self._drawing(number):
                    found.append(self._list_scores(self.weights[number], self.lists, *of))
            scores = torch.cat(found)
        else:
            features = self._embedded(self._features(self.lists, documents)).view(len(rows), longest, -1)
            self._add_noise(features, list(map(len, rows)))
            weights = torch.stack([self.weights[number] for number in self.active])
            scores = self._scores(weights, features, self._units(rows, longest)).flatten()[at]
        parts = [numbers] if self.one_loss else batch
        values, first = [], 0
        for number, part in zip(self.active, parts, strict=False):
            last = first + int(self.lists.offsets_of(part)[-1])
            with self._drawing(number):
                loss = self.own_losses[0 if self.one_loss else number]
                values.append(self._values(loss, scores[first:last], part, documents[at[first:last]]))
            first = last
        counts = list(map(len, batch))
        shares = torch.as_tensor(1 / np.repeat(counts, counts), dtype=scores.dtype, device=device)
        if self.lists.weights is not None:
            shares = shares * self.lists.weights[torch.as_tensor(numbers, device=device)].to(shares)
        into = torch.as_tensor(np.repeat(self.active, counts), device=device)
        return scores.new_zeros(len(self.kept)).index_add(0, into, torch.cat(values).to(scores) * shares)

    def average(self) -> None:
        """Add the weights to the averages."""
        for number in self.active:
            self.averages[number] = polynomial_average(self.averages[number], self.weights[number].detach(), self.steps)

    def keep(self, number: int) -> None:
        """Keep the average of a network."""
        self.kept[number] = self.averages[number]

    def _values(self, loss: nn.Module, scores: Tensor, numbers: np.ndarray, rows: Tensor) -> Tensor:
        """The loss of each of some lists, for the scores of their documents."""
        given = self._given(self.lists, numbers, rows)
        if takes_columns(loss):
            given["columns"] = Packed(given.pop("diversity_groups"))
        elif not takes_groups(loss):
            given.pop("diversity_groups", None)
        found: Tensor = loss(scores, **given, reduction="none")
        return found

    def _given(self, lists: TrainingData, numbers: np.ndarray, rows: Tensor) -> dict[str, Any]:
        """The arguments of losses and measures for some lists and their documents."""
        offsets = torch.as_tensor(lists.offsets_of(numbers))
        return {"labels": lists.labels[rows], "offsets": offsets} | {
            n: each[rows] for n, each in lists.optional.items()
        }

    def _features(self, lists: TrainingData, rows: Tensor) -> Tensor:
        """The features of documents of some lists, `[rows, d]`."""
        if isinstance(lists.features, ShardedFeatures):
            return torch.from_numpy(lists.features[rows.cpu().numpy()]).to(self.device)
        found: Tensor = lists.features[rows]
        return found

    def _embedded(self, features: Tensor) -> Tensor:
        """What the networks see of prepared features `[documents, d]`."""
        for step in self.embedding:
            features = step(features, features)  # it does not depend on the lists
        return features

    def _add_noise(self, features: Tensor, documents: Sequence[int]) -> None:
        """Add the noise of training to features `[networks, longest, d]`."""
        if self.options.noise:
            for place, (number, count) in enumerate(zip(self.active, documents, strict=True)):
                real = features[place, :count]
                real += self.options.noise * torch.empty_like(real).normal_(generator=self.noise[number])

    def _units(self, rows: Sequence[np.ndarray], longest: int) -> Sequence[Tensor] | None:
        """The factors of the hidden units under dropout, for each layer `[networks, longest, units]`: 0, or for a kept unit the
        inverse of the share of those.
        """
        # Random bytes, so the probability is a multiple of 1/256: torch's dropout took as long as the products of the layers.
        dropped = min(round(256 * self.options.dropout), 255)
        if not dropped or not self.units:
            return None
        each = sum(self.units)
        noise = torch.zeros(len(rows), longest, each, dtype=torch.uint8, device=self.device)
        for place, (number, documents) in enumerate(zip(self.active, map(len, rows), strict=True)):
            words = noise.new_empty(-(-documents * each // 8), dtype=torch.int64)
            words.random_(-(2**63), None, generator=self.noise[number])
            noise[place, :documents] = words.view(torch.uint8)[: documents * each].view(documents, each)
        return ((noise >= dropped).float() * (256 / (256 - dropped))).split(self.units, 2)

    def _scores(self, weights: Tensor, features: Tensor, units: Sequence[Tensor] | None = None) -> Tensor:
        """Scores `[networks, documents]` of features `[networks, documents, d]` by flat weights, one row per network."""
        flat = weights.split([shape.numel() for shape in self.shapes.values()], 1)
        parts = [each.view(-1, *shape) for each, shape in zip(flat, self.shapes.values(), strict=True)]
        for layer, (matrix, bias) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
            if layer:
                features = features.relu() if units is None else features.relu() * units[layer - 1]
            features = torch.baddbmm(bias.unsqueeze(1), features, matrix.mT)
        return features.squeeze(-1)

    def _list_scores(self, weights: Tensor, lists: TrainingData, numbers: np.ndarray, rows: np.ndarray) -> Tensor:
        """Scores of the documents of some lists by a network that sees the whole list."""
        parts = weights.split([shape.numel() for shape in self.shapes.values()])
        named = {name: part.view(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}
        offsets = torch.as_tensor(lists.offsets_of(numbers))
        features = self._embedded(self._features(lists, torch.as_tensor(rows, device=self.device)))
        found: Tensor = torch.func.functional_call(self.scorer, named, (features,), {"offsets": offsets})
        return found

    @torch.no_grad()
    def validation(self, group: Sequence[int]) -> float:
        """The mean measure of the averages of some networks, each on its validation lists."""
        assert self.valid is not None
        measure, values = self.options._measure(), []
        self.scorer.eval()
        for number, lists in [(own, part) for own in group for part in _windows(self.valid, self.held_out[own])]:
            _hold(self.valid, lists)
            rows = self.valid.documents_of(lists)
            at = torch.as_tensor(rows, device=self.device)
            if self.options.by_list:
                scores = self._list_scores(self.averages[number], self.valid, lists, rows)
            else:
                weights, parts = self.averages[number].unsqueeze(0), at.split(_DOCUMENTS)
                seen = [self._embedded(self._features(self.valid, part)).unsqueeze(0) for part in parts]
                scores = torch.cat([self._scores(weights, each).squeeze(0) for each in seen])
            given = self._given(self.valid, lists, at)
            if not measure.takes_groups:
                given.pop("diversity_groups", None)
            values.append(evaluate(scores, measures=[measure], **given)[measure.name])
        return float(torch.cat(values).mean())


@torch.no_grad()
def _scores(scorer: nn.Module, features: Tensor, offsets: Tensor | None = None) -> Tensor:
    """Scores in float64; offsets are those of the lists, if the scores depend on them."""
    if offsets is not None:
        found: Tensor = scorer(features.double(), offsets=offsets)
        return found
    parts = [scorer(part.double()) for part in features.split(_DOCUMENTS)]
    return torch.cat(parts) if parts else features.new_zeros(0)
