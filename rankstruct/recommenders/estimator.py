"""`Recommender`: a factorisation of implicit feedback on any loss of the library, in scikit-learn's manner."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Literal, cast, get_args
from zlib import crc32

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, distributed, nn
from torch.optim.swa_utils import AveragedModel
from typing_extensions import Self

from rankstruct.checks import check_choice, check_flags, check_integers, check_numbers
from rankstruct.data import DataError
from rankstruct.estimators.base import RandomState, all_or_nothing, as_device, as_plain, as_seed, from_plain, named_loss
from rankstruct.losses import SoftmaxLoss
from rankstruct.measures import Measure, parse_measure
from rankstruct.messages import explaining, shortened
from rankstruct.models import update_averages
from rankstruct.models.trainer import Checkpoints, Trainer, checkpoint_folder, random_state, set_random_state
from rankstruct.processes import Team, find_team
from rankstruct.recommenders.base import OTHER_NAMES, CatalogueRecommender, of_any_size
from rankstruct.recommenders.catalogue import Kind, Negatives, TrainingLists, fold_in
from rankstruct.recommenders.factorization import (
    LightGCN,
    LinearFactors,
    MatrixFactorization,
    NeighbourFactorization,
    SplitFactorization,
    Start,
    as_dense,
    folded,
    linear_folding,
    shared_users,
    with_new_items,
)
from rankstruct.recommenders.index import Index
from rankstruct.recommenders.ratings import Ratings
from rankstruct.recommenders.recommendation import evaluate_catalogue, longest_cutoff, popularity, recommend
from rankstruct.recommenders.tables import check_enough, loss_of_rows

__all__ = ["Recommender"]

#: Arguments of other libraries, such as implicit, and what to pass here.
_OTHER_NAMES = {
    **OTHER_NAMES,
    "factors": "there is no factors=; pass rank=",
    "n_factors": "there is no n_factors=; pass rank=",
    "n_epochs": "there is no n_epochs=; pass max_epochs=",
    "embedding_size": "there is no embedding_size=; pass rank=",
    "iterations": "there is no iterations=; pass max_epochs=",
    "epochs": "there is no epochs=; pass max_epochs=",
    "regularization": "there is no regularization=: held-out interactions choose it; for AdamW pass weight_decay=",
    "alpha": "there is no alpha=, as all interactions count alike; leave out those that should not count",
    "use_gpu": "there is no use_gpu=; pass device='cuda'",
    "num_threads": "there is no num_threads=; call torch.set_num_threads",
    "show_progress": "there is no show_progress=; pass verbose= to the Recommender",
    "callback": "there is no callback=; history_ has the loss and the validation measure of each epoch",
    "number": "there is no number=; pass negatives=Negatives('uniform', number=...)",
    "correct": "there is no correct=; pass negatives=Negatives('uniform', correct=True)",
    "pairs": "there is no pairs=; pass negatives=Negatives('uniform', pairs=True)",
}
#: Attributes of other libraries, and what there is here.
_OTHER_ATTRIBUTES = {
    "user_factors": "scorer_.vectors() returns the vectors of users and items, with neighbours=False",
    "item_factors": "scorer_.vectors() returns the vectors of users and items, with neighbours=False",
    "partial_fit_users": "use partial_fit with all interactions of these users",
    "partial_fit_items": "use partial_fit with the interactions of these items",
    "recommend_all": "use recommend with all users, such as model.known_.user_names",
    "rank_items": "use recommend with items=",
    "explain": "there is no explain: scores are products of factors, not sums over known items, see ease for such a model",
    "save": "use joblib.dump(model, path), pickle or skops; if split over processes, recommenders.save_shards",
    "load": "use joblib.load(path), pickle or skops",
}
#: Options that need whole tables, and why.
_WHOLE = {
    "layers": "averages factors over the graph of all users and items",
    "neighbours": "needs all items that share users",
}
_refusing = explaining(_OTHER_NAMES)
_RANKS, _DECAY = (256, 128, 64), 0.01
_JUDGED = 2**23, 4000  # at least so many scores, or held-out interactions, choose neighbours, regularization, rank
_SEARCHED = 256  # users searched at once in an index
_PAIRS = 10**8  # of items that a user knows: neighbours are tried up to here, for the memory and time that they take
_LEFT_OUT = 0.25  # share of the interactions that the leading directions leave out, from which neighbours are tried


class Recommender(CatalogueRecommender):
    """Top-k recommendations from implicit feedback, by a factorisation trained on a loss over the full catalogue.

    `fit` takes what `interactions` does: a SciPy sparse matrix `[users, items]`, whose values above 0 count as interactions, a
    table with columns `user` and `item`, or two columns. Some interactions of every user are held out to select the epoch. The
    model is the average of the weights over all steps, with more weight on later ones (see `polynomial_average`). Users
    without interactions get the most popular items; items without interactions, such as empty columns of a matrix, are treated
    like items that `fit` has not seen, and are not recommended. If a fit fails, the estimator remains as it was before.

    By default the factors start from EASE, which is hard to beat: `start="linear"`, with inner products as scores. The held-out
    interactions choose its regularization and rank, and how many epochs improve on it, if any; then all interactions are fitted
    so. Where users know little of a large catalogue, a factorisation leaves out much of EASE: if it is better there,
    `neighbours` add it and nothing is trained. With a temperature, `layers` or sampled negatives, the start is `"spectral"`, and
    cosines are trained for longer.

    Args:
        loss: any loss of rankstruct, a module or its name with arguments; the softmax loss if None.
        rank: dimension of the factors. If None, 256, 128 or 64 by the held-out interactions with the linear start, or 128
            without; 256 with neighbours; otherwise 64.
        temperature: scores are cosines divided by this; None for plain inner products; "auto" for inner products with the linear
            start and .2 otherwise. Try values from 0.05, for ramps and if users know little of the catalogue, to 0.3.
        dropout: the dropout probability of the entries of user factors; 0.3 is worth trying for hinges and ramps.
        item_bias: whether items have biases, the popularity that users' tastes do not explain; if None, unless inner products
            have the linear start, which knows popularity.
        layers: steps of LightGCN's propagation; 0 for a plain factorisation.
        start: initial factors: `"linear"` or `"spectral"`, see `MatrixFactorization.start_from_interactions`, or `"random"`; if
            None, linear with `temperature="auto"`, no layers and `negatives="all"`, otherwise spectral.
        neighbours: whether the scores of the linear start also have a sum over items that share users with those of the user,
            see `NeighbourFactorization`; then nothing is trained, and there are no `scorer_.vectors()`. If None, held-out
            interactions choose, unless an option of training is given, such as `loss` or `max_epochs`, or users know so many
            items that it would be slow.
        negatives: `"all"` items that a user does not know, or sampled `"uniform"`, `"popularity"` or `"in-batch"`; `Negatives`
            have further options, such as `pairs` for BPR.
        lists_per_batch: lists per step; 64 users or, with `pairs`, 4096 interactions if None. With sampled negatives, and on
            devices other than the CPU, memory is proportional to this times the size of a list.
        learning_rate: of AdamW; if None, .002 for inner products from the linear start, otherwise .01.
        weight_decay: of AdamW.
        max_epochs: the maximum number of epochs; if None 100, but 2 if nothing is held out with the linear start.
        patience: epochs without improvement of the validation measure before training stops; if None, 1 with the linear start,
            otherwise 10.
        measure: the measure that selects the epoch, with a cut-off.
        shards: `"processes"`: all processes of `torch.distributed` call `fit` with the same interactions, each keeps its rows of
            the tables of users and items and of the optimiser's state, and `recommend` and `evaluate`, which all call too, merge
            their best items. With `negatives="all"`, losses are `SoftmaxLoss` or `TopKSoftmaxLoss`. The linear and the spectral
            start need the singular vectors of all items in every process; only `start="random"` needs no whole table. The
            result is saved by `save_shards`. None to train in one process.
        validation_share: fraction of each user's interactions held out if `fit` gets no validation; 0 trains on all for
            `max_epochs`, from a linear start with the regularization 200.
        device: such as `"cuda"`; the CPU if None.
        random_state: seed of factors, batches and held-out interactions; None or a random state of NumPy draws one.
        verbose: show a progress bar with the validation measure.

    Attributes:
        scorer_: the factorisation; `scorer_.vectors()` are those of users and items, without neighbours.
        known_: the interactions of `fit`, which are not recommended again.
        history_: `{"epoch", "loss", "validation"}` of each epoch.
        best_epoch_: the selected epoch, from 1; 0 is the start, which only the linear one can win.
        regularization_: that of the linear start; None for other starts.

    >>> from rankstruct.recommenders import implicit, synthetic_ratings
    >>> matrix = implicit(synthetic_ratings(users=60, items=40, rated=30), 4).to_csr()
    >>> model = Recommender(rank=8, max_epochs=20).fit(matrix)
    >>> items, scores = model.recommend([0, 5], k=3)
    >>> items.shape, matrix.toarray()[0, items[0]]
    ((2, 3), array([0., 0., 0.], dtype=float32))
    """

    @_refusing
    def __init__(
        self,
        loss: str | nn.Module | None = None,
        *,
        rank: int | None = None,
        temperature: float | Literal["auto"] | None = "auto",
        dropout: float = 0.0,
        item_bias: bool | None = None,
        layers: int = 0,
        start: Start | None = None,
        neighbours: bool | None = None,
        negatives: Negatives | Kind = "all",
        lists_per_batch: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float = _DECAY,
        max_epochs: int | None = None,
        patience: int | None = None,
        measure: str | Measure = "nDCG@10",
        validation_share: float = 0.1,
        shards: Literal["processes"] | None = None,
        device: str | torch.device | None = None,
        random_state: RandomState = 0,
        verbose: bool = False,
    ) -> None:
        self.loss, self.rank, self.temperature, self.dropout = loss, rank, temperature, dropout
        self.item_bias, self.layers, self.start, self.neighbours = item_bias, layers, start, neighbours
        self.negatives, self.lists_per_batch = negatives, lists_per_batch
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.max_epochs, self.patience = max_epochs, patience
        self.measure, self.validation_share, self.device = measure, validation_share, device
        self.shards, self.random_state, self.verbose = shards, random_state, verbose

    def __getattr__(self, name: str) -> Any:
        advice = f"; {_OTHER_ATTRIBUTES[name]}" if name in _OTHER_ATTRIBUTES else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    def __getstate__(self) -> dict[str, Any]:
        """Convert the factorisation to plain data, which serialisers other than pickle can write too.

        Raises:
            ValueError: its tables are split over processes.
        """
        self._check_whole("pickle, joblib and skops save a model of one process")
        return {name: as_plain(value) if name == "scorer_" else value for name, value in super().__getstate__().items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Rebuild the factorisation."""
        super().__setstate__({n: from_plain(value) if n == "scorer_" else value for n, value in state.items()})

    @_refusing
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        validation: Any = None,
        user: str | None = None,
        item: str | None = None,
        time: str | None = None,
        min_rating: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Fit the factors to interactions.

        Args:
            X: interactions, see the class; or the users of interactions, `[interactions]`.
            y: the items of interactions, if X are users.
            validation: interactions of the same users with the same items, in the same form, that select the epoch; those that
                are in X too do not count. Users and items that are not in X are a warning, and an error if none is; such users
                are left out, such items count as misses. So are users for whom every ranking is equally good: a warning if they
                are half, an error if they are all. If None, some of X are held out; an item that is left without others is
                still part of the catalogue: a negative in training, ranked in validation, and recommended. If every ranking is
                equally good for all held-out interactions, no epoch is selected.
            user, item, time: the columns of a table, here and in later calls, if they have other names.
            min_rating: only rows of a table with at least this rating count, here and in later calls; see `interactions`.
            checkpoint: a folder, in which the state of training is saved after each epoch. If it has one, of a fit that was
                killed, the same call goes on there, and ends with the same weights; the start is computed again. This needs
                a `random_state`, since None draws another seed. With `shards`, each process has a file in it.

        Raises:
            DataError, ValueError: malformed interactions, see `interactions`; an option out of range; nothing to learn from, or
                to validate with.
        """
        with all_or_nothing(self):
            self._check_options()
            measure, loss = parse_measure(self.measure), self.ranking_loss()
            longest_cutoff([measure])
            folder = None if checkpoint is None else checkpoint_folder(checkpoint)
            team = self._processes()
            seed = team.hand_out(as_seed(self.random_state))
            index = Index.of(X, y, {"user": user, "item": item, "time": time, "min_rating": min_rating})
            if not index.known.num_ratings:
                raise DataError("expected interactions to learn from, got none")
            train, held, missed = self._divide(index, validation, self.validation_share, seed=seed, what="epoch")
            self._check_shards(team, loss, train, held)
            request = repr((self._request(train, held), seed))
            saved = None if folder is None else partial(Checkpoints, folder, request, team)
            options: dict[str, Any] = {"exclude": train, "items": index.ranked(None, None), "missed": missed}
            at_last = index.known if validation is None and held is not None else None
            with torch.random.fork_rng([]), of_any_size(index.known.num_items):
                torch.manual_seed(seed)
                learned = self._train(train, held, at_last, loss, measure, options, seed, team, saved)
            self._index, self.known_ = index, index.known
            self.scorer_, self.history_, self.best_epoch_, self._folding, self.regularization_ = learned
        return self

    def _train(
        self,
        train: Ratings,
        held: Ratings | None,
        at_last: Ratings | None,
        loss: nn.Module,
        measure: Measure,
        options: Mapping[str, Any],
        seed: int,
        team: Team,
        saved: Callable[[str], Checkpoints] | None,
    ) -> tuple[MatrixFactorization, list[dict[str, float | None]], int, dict[str, np.ndarray] | None, float | None]:
        """The factorisation, its history and best epoch, what folds in new users if that is linear, and the regularization.

        A linear start is fitted again to all interactions `at_last`, with what the held-out ones have chosen.
        """

        def validate(scorer: MatrixFactorization) -> float:
            (values,) = evaluate_catalogue(_Served(scorer, train), held, [measure], **options).values()
            return float(values.mean())

        plan = self._resolved(is_validated=held is not None)
        begin: dict[str, Any] = {}
        if plan.start == "linear":
            start = partial(plan._linear_start, train, held, measure, options, seed)  # sets the others
            chosen = team.computed(lambda: (start(), plan.rank, plan.neighbours, plan.max_epochs))
            begin, plan.rank, plan.neighbours, plan.max_epochs = chosen
        is_judged = held is not None and not plan.neighbours  # with neighbours no epoch is selected
        model = _Training(plan, train, loss, begin, validate if is_judged else None, seed, team)
        model.run(measure.name, saved and saved("selection"), disable=not self.verbose)
        history, best = model.history[0], model.best_epochs[0]
        if begin and at_last is not None:
            train, plan.max_epochs = at_last, best
            begin["linear"] = team.computed(lambda: LinearFactors(train, cast(int, plan.rank), seed))
            model = _Training(plan, train, self.ranking_loss(), begin, None, seed, team)
            model.run(measure.name, saved and saved("final"), disable=not self.verbose)
        model.scorer.load_state_dict(model.kept)
        scorer, folding = model.scorer.eval(), None
        if begin and plan.temperature is None and not (plan.layers or scorer.item_factors.is_split):
            folding = linear_folding(begin["linear"], train, scorer.user_factors.weight.detach().cpu().numpy())
        return scorer, history, best, folding, begin.get("regularization")

    def _resolved(self, *, is_validated: bool) -> Self:
        """A copy with the options that follow from others in place of None and `"auto"`, but for the rank of a linear start."""
        plan = type(self)(**self.get_params(deep=False))
        by_default = self.temperature == "auto" and not self.layers and Negatives.of(self.negatives).kind == "all"
        plan.start = self.start or ("linear" if by_default else "spectral")
        can_have = plan.start == "linear" and self.temperature in ("auto", None) and not (self.layers or self.item_bias)
        if self.neighbours and not can_have:
            raise ValueError(
                "neighbours=True needs the linear start without temperature, layers and item_bias: omit these, and pass "
                "start='linear' with temperature=None"
            )
        options = ("loss", "lists_per_batch", "learning_rate", "max_epochs", "patience")
        given = {name: getattr(self, name) is not None for name in options}
        given |= {"dropout": self.dropout > 0, "weight_decay": self.weight_decay != _DECAY}
        given["negatives"] = Negatives.of(self.negatives).kind != "all"
        of_training = [name for name, is_given in given.items() if is_given]
        if self.neighbours and of_training:
            raise ValueError(
                f"neighbours=True trains nothing, so {of_training[0]} would have no effect; omit one of them"
            )
        plan.neighbours = self.neighbours if can_have and not (of_training or self.shards) else False
        if self.temperature == "auto":
            plan.temperature = None if plan.start == "linear" and not self.layers else 0.2
        usual: dict[str, Any] = {"item_bias": True, "learning_rate": 0.01, "max_epochs": 100, "patience": 10}
        if plan.start == "linear" and plan.temperature is None:
            usual = {"item_bias": False, "learning_rate": 0.002, "patience": 1}
            usual["max_epochs"] = 100 if is_validated else 2
        if plan.start != "linear":
            usual["rank"] = 64
        for name, value in usual.items():
            if getattr(self, name) is None:
                setattr(plan, name, value)
        return plan

    def _linear_start(
        self, train: Ratings, held: Ratings | None, measure: Measure, options: Mapping[str, Any], seed: int
    ) -> dict[str, Any]:
        """Set rank and neighbours of a resolved copy that has none, and return arguments of `start_from_interactions`.

        Held-out interactions choose neighbours, the regularization, and without neighbours the rank; some users are enough.
        With neighbours, nothing is trained.
        """
        most = min(train.num_users, train.num_items)
        ranks = [min(rank, most) for rank in _RANKS] if self.rank is None else [self.rank]
        linear, regularization = LinearFactors(train, ranks[0], seed), 200.0
        if held is None:
            self.rank, self.neighbours = ranks[0 if self.neighbours else len(ranks) // 2], bool(self.neighbours)
            self.max_epochs = 0 if self.neighbours else self.max_epochs
            return {"linear": linear, "regularization": regularization}
        users = np.unique(held.user)
        number = max(_JUDGED[0] // train.num_items, _JUDGED[1] * len(users) // max(held.num_ratings, 1), 500)
        some = held.select_users(np.random.default_rng(seed).permutation(users)[:number])
        known = train.to_csr()

        @cache
        def near() -> Any:
            return shared_users(known)

        @cache
        def value(regularization: float, neighbours: bool, rank: int) -> float:
            of_users, of_items = linear.factors(rank, regularization)
            if neighbours:
                of_items, weights, _ = linear.neighbours(rank, regularization)
                model: Any = _Products(of_users, of_items, partial(_near, known, near(), weights))
            else:
                model = _Products(of_users, of_items)
            (values,) = evaluate_catalogue(_Served(model, train), some, [measure], **options).values()
            return float(values.mean())

        is_sparse = linear.rest.sum() > _LEFT_OUT * train.num_ratings
        if self.neighbours is None and is_sparse and (np.diff(train.offsets) ** 2).sum() <= _PAIRS:
            self.neighbours = value(regularization, True, ranks[0]) > value(regularization, False, ranks[0])
        self.neighbours = chosen = bool(self.neighbours)
        for step in (3.0, 1 / 3):
            while 1 < regularization < 5000:
                if value(step * regularization, chosen, ranks[0]) <= value(regularization, chosen, ranks[0]):
                    break
                regularization *= step
        if chosen:
            self.rank, self.max_epochs = ranks[0], 0
        else:
            self.rank = max(ranks, key=lambda rank: value(regularization, False, rank))
        return {"linear": linear, "regularization": regularization}

    def _check_options(self) -> None:
        """Raise ValueError for an option out of range."""
        if self.start is not None:
            check_choice("start", self.start, get_args(Start))
        names = ("rank", "max_epochs", "patience", "lists_per_batch")
        check_integers(1, optional=True, **{name: getattr(self, name) for name in names})
        check_integers(0, layers=self.layers)
        if not (isinstance(self.temperature, str) and self.temperature == "auto"):
            check_numbers("> 0", optional=True, temperature=self.temperature)
        check_numbers("> 0", optional=True, learning_rate=self.learning_rate)
        check_numbers(">= 0", weight_decay=self.weight_decay)
        check_numbers(">= 0 and < 1", dropout=self.dropout, validation_share=self.validation_share)
        check_flags(verbose=self.verbose)
        check_flags(optional=True, item_bias=self.item_bias, neighbours=self.neighbours)

    def _processes(self) -> Team:
        """The processes that share the tables.

        Raises:
            ValueError: `torch.distributed` is not initialised, or an option that needs whole tables.
        """
        if self.shards is None:
            return Team()
        check_choice("shards", self.shards, ("processes",))
        if not (distributed.is_available() and distributed.is_initialized()):
            raise ValueError(
                "shards='processes' requires the processes of torch.distributed, which is not initialised: start the program by "
                "torchrun, and call torch.distributed.init_process_group('gloo') first"
            )
        for name, reason in _WHOLE.items():
            if getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} {reason}, which shards='processes' splits; omit one of them"
                )
        return find_team()

    def _check_shards(self, team: Team, loss: nn.Module, train: Ratings, held: Ratings | None) -> None:
        """Raise ValueError if the tables cannot be split over the processes, or these have not been called alike."""
        if team.world_size == 1:
            return
        check_enough(team, train.num_users, train.num_items)
        if Negatives.of(self.negatives).kind == "all":
            loss_of_rows(loss)
        if len(others := {repr(each): None for each in team.gathered(self._request(train, held))}) > 1:
            raise ValueError(
                "all processes of shards='processes' must call fit with the same interactions and options, got "
                f"{len(others)} different ones; read them in the same order in each, and pass the same seed"
            )

    def _request(self, train: Ratings, held: Ratings | None) -> tuple[dict[str, Any], dict[str, str]]:
        """What the result of a fit depends on, but for the seed."""
        left_out = ("random_state", "verbose")
        options = {name: repr(value) for name, value in self.get_params(deep=False).items() if name not in left_out}
        parts = {"train": train, "validation": held}
        return {
            name: part and (part.num_users, part.num_items, crc32(part.keys().tobytes()))
            for name, part in parts.items()
        }, options

    def _check_whole(self, what: str) -> None:
        """Raise ValueError if this process has only some rows of the tables."""
        scorer = vars(self).get("scorer_")
        if scorer is not None and scorer.item_factors.is_split:
            raise ValueError(
                f"{what}, but this one is split over processes: call rankstruct.recommenders.save_shards(model, folder) in all, "
                "and load_shards(folder) in one"
            )

    @_refusing
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add interactions, with new users and items, without training again.

        The factors of the items of `fit` stay as they are, and those of users who are not in X. A new item gets the mean
        direction of the factors of its users, the mean length, and the bias of items with as many users. Then the users of X,
        new or not, are fitted to all that they know, as `recommend_new` does; those who only know new items that nobody else
        knows get the most popular ones. Call `fit` with all interactions from time to time: it alone moves the others.

        Args:
            X: interactions, in the form that `fit` got; a matrix has the rows and columns of `fit` first, then new ones.
            y: the items of interactions, if X are users.

        Raises:
            DataError: malformed interactions, a matrix that is smaller than that of `fit`, or ids such as "007" that are not
                integers, if those of `fit` were.
            ValueError: a model with `layers`, whose graph would change.
        """
        check_is_fitted(self)
        self._check_whole("partial_fit requires the factors of all items")
        if isinstance(self.scorer_, LightGCN):
            raise ValueError("partial_fit requires a plain factorisation, layers=0; call fit with all interactions")
        index, fitted = self._index.extended(X, y)
        with of_any_size(index.known.num_items):
            folding = None if self._folding is None else with_new_items(self._folding, index.known)
            scorer = _grown(self.scorer_, self.known_, index.known, fitted, partial(self._fold_in, folding))
        self._index, self.known_, self.scorer_, self._folding = index, index.known, scorer, folding
        return self

    def ranking_loss(self) -> nn.Module:
        """Return the loss that `fit` minimises; raises ValueError if `loss` is invalid."""
        found = copy.deepcopy(named_loss(self.loss))
        return SoftmaxLoss() if found is None else found

    def _start(
        self, train: Ratings, device: torch.device, begin: Mapping[str, Any], seed: int, team: Team
    ) -> MatrixFactorization:
        """The factorisation before training."""
        sizes = {"num_users": train.num_users, "num_items": train.num_items}
        options: dict[str, Any] = {**sizes, "rank": self.rank, "seed": seed}
        kind: Callable[..., MatrixFactorization] = NeighbourFactorization
        if not self.neighbours:
            kind = LightGCN if self.layers else MatrixFactorization
            options |= {"item_bias": self.item_bias, "temperature": self.temperature, "dropout": self.dropout}
        if self.layers:
            options["layers"] = self.layers
        if team.world_size > 1:
            kind = partial(SplitFactorization, team)
        scorer = kind(**options)
        scorer = scorer.to(device)
        if isinstance(scorer, LightGCN):
            scorer.set_graph(train)
        scorer.start_from_interactions(train, cast(Start, self.start), **begin)
        return scorer

    def vectors_to_index(self) -> tuple[np.ndarray, np.ndarray]:
        """The indices `[n]` of the items with interactions, and their vectors `[n, d]`; raises ValueError if there are none."""
        self._check_whole("an index requires the factors of all items")
        with torch.no_grad():
            of_items = self.scorer_.vectors(torch.zeros(0, dtype=torch.int64))[1].cpu().numpy()
        items = np.flatnonzero(self._index.seen["items"])
        return items, of_items[items]

    def _searched(
        self, index: Any, users: Tensor, k: int, known: Ratings | None, ranked: np.ndarray | None
    ) -> tuple[Tensor, Tensor]:
        """As `recommendation.recommend`, from an index; users of whom nothing was learnt get their items without it."""
        check_integers(1, k=k)
        self._check_whole("an index requires the factors of all items")
        with torch.no_grad():
            vectors = self.scorer_.vectors(users)[0].cpu().numpy()
        seen = self._index.seen["items"]
        if (index.d, index.ntotal) != (vectors.shape[1], seen.sum()):
            raise ValueError(
                f"index must have the {seen.sum()} items of this model, as vectors of {vectors.shape[1]} numbers, got "
                f"{index.ntotal} of {index.d}; build it again by item_index(model)"
            )
        allowed = np.isin(np.arange(len(seen)), np.flatnonzero(seen) if ranked is None else ranked)
        width = min(k, int(allowed.sum()))
        found, scores = np.full((len(users), width), -1), np.full((len(users), width), -np.inf, np.float32)
        nothing: np.ndarray = np.logical_not(vectors.any(-1))
        if nothing.any():
            served = _Served(self.scorer_, self.known_)
            found[nothing], scores[nothing] = recommend(
                served, users[torch.from_numpy(nothing)], k, exclude=known, items=np.flatnonzero(allowed)
            )
        left_out = int(seen.sum() - allowed.sum()) + (0 if known is None else np.diff(known.offsets)[users.numpy()])
        numbers = np.minimum(k + np.broadcast_to(left_out, len(users)), index.ntotal)
        order = np.argsort(numbers, kind="stable")  # users who know many items together
        for block in np.split(order, range(_SEARCHED, len(order), _SEARCHED)):
            rows = block[~nothing[block]]
            if not len(rows):
                continue
            values, items = index.search(np.ascontiguousarray(vectors[rows], np.float32), int(numbers[rows].max()))
            good = (items >= 0) & allowed[items]
            if known is not None:
                keys, pairs = known.keys(), users.numpy()[rows, None] * known.num_items + items
                good &= keys[np.searchsorted(keys, pairs).clip(max=len(keys) - 1)] != pairs
            at = np.argsort(~good, axis=1, kind="stable")[:, :width]
            is_good = np.take_along_axis(good, at, 1)
            found[rows, : at.shape[1]] = np.where(is_good, np.take_along_axis(items, at, 1), -1)
            scores[rows, : at.shape[1]] = np.where(is_good, np.take_along_axis(values, at, 1), -np.inf)
        return torch.from_numpy(found), torch.from_numpy(scores)

    def catalogue_model(self) -> Any:
        """As in `CatalogueRecommender`, with the factors of `fit`."""
        return _Served(self.scorer_, self.known_)

    def _model_of_new(self, known: Ratings) -> _Served:
        """The factorisation with the factors of new users, see `fold_in`."""
        with of_any_size(known.num_items):
            factors = self._fold_in(self._folding, self.scorer_, known)
        return _Served(self.scorer_, self.known_, factors, known)

    def _fold_in(self, folding: dict[str, np.ndarray] | None, scorer: MatrixFactorization, new: Any) -> Tensor:
        """The factors of new users: by `folding`, or without it see `fold_in`."""
        if folding is None:
            return fold_in(scorer, new, self.ranking_loss())
        return torch.from_numpy(folded(folding, new)).to(scorer.user_factors.weight)

    @_refusing
    def similar_items(
        self, item: Any, k: int = 10, *, items: Any = None, exclude: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k items whose factors have the highest cosines with those of an item, without the item itself, best first.

        Args:
            item: one item, or several `[items]`: column indices if `fit` got a matrix, otherwise names.
            k: number of similar items; all if there are fewer.
            items: the only items that may be similar; None for all.
            exclude: items to leave out.

        Returns:
            Items and cosines, `[items, k]`, or `[k]` for one item, padded as in `recommend`.

        Raises:
            ValueError: an item is unknown or has no interactions; or as in `recommend`.

        >>> from rankstruct.recommenders import interactions
        >>> users, items = ["ann", "ann", "bob", "bob", "eve"], ["x", "y", "x", "y", "z"]
        >>> model = Recommender(rank=2, max_epochs=1, validation_share=0).fit(users, items)
        >>> model.similar_items("x", k=1)[0]
        array(['y'], dtype=object)
        """
        return self._similar("items", item, k, items, exclude)

    @_refusing
    def similar_users(
        self, user: Any, k: int = 10, *, users: Any = None, exclude: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k users whose factors have the highest cosines with those of a user, as `similar_items` for items."""
        return self._similar("users", user, k, users, exclude)

    def _similar(self, what: str, given: Any, k: int, among: Any, exclude: Any) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        self._check_whole(f"similar_{what} requires the factors of all {what}")
        seen, (one, names, rows) = self._index.seen[what], self._index.rows(what, given)
        wrong = (rows < 0) | ~seen[rows]
        if wrong.any():
            raise ValueError(
                f"{what} must be those of fit, with interactions, got {shortened(names[int(wrong.argmax())])}"
            )
        ranked = self._index.ranked(among, exclude, what)
        allowed = np.isin(np.arange(len(seen)), np.arange(len(seen)) if ranked is None else ranked)
        table = self.scorer_._tables(None)[what == "items"].detach()
        found, cosines = recommend(_Cosines(table), torch.from_numpy(rows), k, items=ranked)
        width = int((allowed.sum() - allowed[rows]).max(initial=0))
        return self._index.answer(what, found[:, :width], cosines[:, :width], one)


class _Training(Trainer):
    """A factorisation in training on interactions; `validate` gives the validation measure of the averages, None without one.

    A batch has users, their known items `[lists, known]`, and which of these are no padding. A list is a user or, with pairs, an
    interaction.
    """

    kept: dict[str, Tensor]

    def __init__(
        self,
        options: Recommender,
        train: Ratings,
        loss: nn.Module,
        begin: Mapping[str, Any],
        validate: Callable[[MatrixFactorization], float] | None,
        seed: int,
        team: Team,
    ) -> None:
        device = as_device(options.device)
        scorer = options._start(train, device, begin, seed, team)
        self.scorer, self.loss, self.train = scorer.train(), loss.to(device), train
        self.lists = TrainingLists(train, options.negatives)
        self.validate, self.seed = validate, seed
        self.size = options.lists_per_batch or (4096 if self.lists.negatives.pairs else 64)
        self.averaged = AveragedModel(scorer, multi_avg_fn=update_averages).eval()
        super().__init__(
            [*scorer.parameters(), *loss.parameters()],
            [[0]],
            learning_rate=cast(float, options.learning_rate),
            weight_decay=options.weight_decay,
            max_epochs=cast(int, options.max_epochs),
            patience=cast(int, options.patience),
            is_validated=validate is not None,
        )
        self.keep(0)
        if begin and validate is not None:  # a good model, which training may not improve
            self.best[0] = self.validation([0])

    def batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Batches of an epoch, in an order that depends on seed and epoch alone."""
        train, pairs = self.train, self.lists.negatives.pairs
        rng = np.random.default_rng([self.seed, len(self.history[0])])
        rows = rng.permutation(train.num_ratings if pairs else np.flatnonzero(np.diff(train.offsets)))
        for batch in rng.permutation(-(-len(rows) // self.size)).tolist():
            users = rows[batch * self.size : (batch + 1) * self.size]
            if pairs:
                users, known, counts = train.user[users], train.item[users], np.ones(len(users), np.int64)
            else:
                known, counts = train.items_of(users)
            real = np.arange(counts.max()) < counts[:, None]
            items = np.zeros(real.shape, np.int64)
            items[real] = known
            yield torch.from_numpy(users), torch.from_numpy(items), torch.from_numpy(real)

    def losses(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """The loss of a batch, `[1]`."""
        device = self.scorer.item_factors.weight.device
        users, items, real = (part.to(device) for part in batch)
        return self.lists.mean_loss(self.scorer, self.loss, users, items, real).unsqueeze(0)

    def average(self) -> None:
        """Add the factors to their average."""
        self.averaged.update_parameters(self.scorer)

    def validation(self, group: Sequence[int]) -> float:
        """The mean measure of the validation users."""
        assert self.validate is not None
        return self.validate(cast(MatrixFactorization, self.averaged.module))

    def state_dict(self) -> dict[str, Any]:
        """See `Trainer`, with averages, and the states of random numbers."""
        averages = {"averaged": self.averaged.state_dict(), "kept": self.kept}
        return super().state_dict() | averages | {"random": random_state(self.scorer.item_factors.weight.device)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Trainer`."""
        super().load_state_dict(state)
        self.averaged.load_state_dict(state["averaged"])
        self.kept = state["kept"]
        set_random_state(state["random"], self.scorer.item_factors.weight.device)

    def keep(self, number: int) -> None:
        """Keep the averages."""
        self.kept = copy.deepcopy(self.averaged.module.state_dict())


class _Served:
    """A factorisation, with the factors of new users if they are given; without biases, users of whom it has learnt nothing,
    whose factors are 0, get the popular items, not all with a score of 0.
    """

    def __init__(self, scorer: Any, known: Ratings, factors: Tensor | None = None, new: Ratings | None = None) -> None:
        self.scorer, self.known, self.factors, self.new = scorer, known, factors, new
        self.has_vectors = getattr(scorer, "has_vectors", True)
        self.item_factors = getattr(scorer, "item_factors", None)

    def vectors(self, users: Tensor) -> tuple[Tensor, Tensor]:
        if self.factors is None:
            of_users, of_items = self.scorer.vectors(users)
        else:
            of_users, of_items = self.scorer.vectors(factors=self.factors[users.to(self.factors.device)])
        nothing = ~of_users.any(-1, keepdim=True)
        if nothing.any():
            own = slice(None) if self.item_factors is None else self.item_factors.own
            counts = popularity(self.known).scores.to(of_items)[own, None]
            of_users, of_items = torch.cat([of_users, nothing.to(of_users)], -1), torch.cat([of_items, counts], -1)
        return of_users, of_items

    def item_scores(self, users: Tensor) -> Tensor:
        if self.has_vectors:
            of_users, of_items = self.vectors(users)
            return of_users @ of_items.T
        if self.factors is None or self.new is None:
            scores = self.scorer.item_scores(users)
        else:
            rows = self.new.to_csr()[users.cpu().numpy()]
            scores = self.scorer.scores_of_rows(self.factors[users.to(self.factors.device)], rows)
        nothing = ~scores.any(-1, keepdim=True)
        return torch.where(nothing, popularity(self.known).scores.to(scores), scores) if nothing.any() else scores


class _Products:
    """A model whose scores are products of factors, plus what `near` gives for users."""

    def __init__(
        self, users: np.ndarray, items: np.ndarray, near: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> None:
        self.users, self.items = (torch.from_numpy(each.astype(np.float32)) for each in (users, items))
        self.near, self.has_vectors = near, near is None

    def vectors(self, users: Tensor) -> tuple[Tensor, Tensor]:
        return self.users[users], self.items

    def item_scores(self, users: Tensor) -> Tensor:
        assert self.near is not None  # otherwise there are vectors
        return torch.from_numpy(self.near(users.numpy())).addmm_(self.users[users], self.items.T)


def _near(known: Any, near: Any, weights: np.ndarray, users: np.ndarray) -> np.ndarray:
    """`[users, items]`: the sums of rows of a matrix `[items, items]` over the items of users, with weights."""
    return as_dense(known[users] @ near) * weights.astype(np.float32)


class _Cosines:
    """A model whose scores are the cosines between rows of a table, without those of a row with itself."""

    def __init__(self, table: Tensor) -> None:
        self.unit = nn.functional.normalize(table, dim=-1)

    def item_scores(self, users: Tensor) -> Tensor:
        users = users.to(self.unit.device)
        scores = self.unit[users] @ self.unit.T
        scores[torch.arange(len(users)), users] = -torch.inf
        return scores


def _grown(
    scorer: MatrixFactorization,
    before: Ratings,
    known: Ratings,
    users: np.ndarray,
    fold: Callable[[MatrixFactorization, Any], Tensor],
) -> MatrixFactorization:
    """A factorisation with the rows of `scorer`, new ones, and the factors of `users` by `fold`; see `partial_fit`."""
    options: dict[str, Any] = {
        name: getattr(scorer, name) for name in ("rank", "user_bias", "item_bias", "sparse", "scale", "seed")
    }
    grown = MatrixFactorization(
        known.num_users, known.num_items, **options, temperature=scorer.temperature, dropout=scorer.dropout
    )
    old = scorer.state_dict()
    weights = {name: torch.cat([old[name].cpu(), rows[len(old[name]) :]]) for name, rows in grown.state_dict().items()}
    counts = np.bincount(before.item, minlength=known.num_items)
    new_items = np.flatnonzero((counts == 0) & (np.bincount(known.item, minlength=known.num_items) > 0))
    own = known.to_csr()
    device = scorer.item_factors.weight.device
    has_factors = np.isin(np.arange(known.num_users), np.unique(before.user))
    new_users = users[~has_factors[users]]
    weights["user_factors.weight"][before.num_users :] = 0
    if len(new_users):  # those of the items that have factors
        weights["user_factors.weight"][new_users] = fold(scorer, own[new_users][:, : before.num_items]).cpu()
    if len(new_items):
        _set_items(weights, counts, new_items, own[:, new_items])
    grown.load_state_dict(weights)
    grown = grown.to(device).eval()
    with torch.no_grad():
        told = own[users] @ grown.item_factors.weight.any(-1).cpu().numpy() > 0  # by an item with users who know others
        grown.user_factors.weight[torch.from_numpy(users[~told]).to(device)] = 0
        if told.any():
            grown.user_factors.weight[torch.from_numpy(users[told]).to(device)] = fold(grown, own[users[told]])
    return grown if not isinstance(scorer, NeighbourFactorization) else scorer.extended(grown, before, known)


def _set_items(weights: dict[str, Tensor], counts: np.ndarray, new: np.ndarray, known: Any) -> None:
    """Set the rows of new items, whose users are the columns of `known`, in place; `counts` are the users of the others."""
    table, seen = weights["item_factors.weight"], torch.from_numpy(np.flatnonzero(counts))
    directions = nn.functional.normalize(weights["user_factors.weight"], dim=-1)
    sums = torch.from_numpy((known.T @ directions.numpy()).astype(np.float32))
    table[torch.from_numpy(new)] = nn.functional.normalize(sums, dim=-1) * table[seen].norm(dim=-1).mean()
    if (biases := weights.get("item_offsets.weight")) is not None:
        users, inverse = np.unique(counts[counts > 0], return_inverse=True)
        means = np.bincount(inverse, biases[seen, 0].numpy()) / np.bincount(inverse)
        of_new = np.interp(np.log(np.asarray(known.sum(0)).ravel()), np.log(users), means)
        biases[torch.from_numpy(new), 0] = torch.from_numpy(of_new).float()
