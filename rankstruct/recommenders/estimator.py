"""`Recommender`: a factorisation of implicit feedback on any loss of the library, in scikit-learn's manner."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from numbers import Integral
from typing import Any, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from typing_extensions import Self

from rankstruct.data import DataError, Names
from rankstruct.data.errors import check_least, shortened
from rankstruct.estimators.base import RandomState, as_seed, is_number, named_loss
from rankstruct.lists import known_ids
from rankstruct.losses import SoftmaxLoss
from rankstruct.losses.checks import check_choice
from rankstruct.measures import Measure, parse_measure
from rankstruct.models import update_averages
from rankstruct.progress import Progress, announce
from rankstruct.recommenders.catalogue import Negatives, TrainingLists, UserBatches, fold_in
from rankstruct.recommenders.factorization import LightGCN, MatrixFactorization, Start
from rankstruct.recommenders.ratings import Ratings, columns_of, interactions
from rankstruct.recommenders.recommendation import evaluate_catalogue, recommend
from rankstruct.recommenders.splits import hold_out, without

__all__ = ["Recommender"]


class Recommender(BaseEstimator):
    """Top-k recommendations from implicit feedback, by a factorisation trained on a loss over the full catalogue.

    `fit` takes what `interactions` does: a SciPy sparse matrix `[users, items]`, whose values above 0 count as interactions, or a
    table with columns `user` and `item`. Some interactions of each user are held out and select the epoch. The model is the
    average of the weights over all steps, with more weight on later ones (see `polynomial_average`). Users without interactions
    get the most popular items.

    Args:
        loss: any loss of rankstruct, a module or its name with arguments; the softmax loss if None.
        rank: dimension of the factors.
        temperature: scores are cosines over this; None for plain inner products. Worth trying from 0.05, for ramps and for
            catalogues of which users know little, to 0.3.
        dropout: the dropout probability of the entries of user factors; 0.3 is worth trying for hinges and ramps.
        item_bias: whether items have biases, the popularity that users' tastes do not explain.
        layers: steps of LightGCN's propagation; 0 for a plain factorisation.
        start: initial factors: `"spectral"`, see `MatrixFactorization.start_from_interactions`, or `"random"`.
        negatives: `"all"` items that a user does not know, or sampled `"uniform"`, `"popularity"` or `"in-batch"`, see
            `TrainingLists`.
        number: number of sampled items per list.
        correct: whether scores of sampled items are corrected.
        pairs: whether a list has a single known item, as pairwise training has it, for sampled negatives.
        lists_per_batch: lists per step; 64 users or, with `pairs`, 4096 interactions if None. Memory is this times the size of a
            list with sampled negatives, and on devices other than the CPU.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        max_epochs: the maximum number of epochs.
        patience: epochs without improvement of the validation measure before training stops.
        measure: the measure that selects the epoch, with a cut-off.
        validation_share: fraction of each user's interactions held out if `fit` gets no validation; 0 trains on all for
            `max_epochs`.
        device: such as `"cuda"`; the CPU if None.
        random_state: seed of factors, batches and held-out interactions; None or a random state of NumPy draws one.
        verbose: show a progress bar with the validation measure.

    Attributes:
        scorer_: the factorisation; `scorer_.vectors()` are those of users and items.
        known_: the interactions that are not recommended: all given to `fit`.
        history_: `{"epoch", "loss", "validation"}` of each epoch.
        best_epoch_: the selected epoch, from 1.

    >>> from rankstruct.recommenders import implicit, synthetic_ratings
    >>> matrix = implicit(synthetic_ratings(users=60, items=40, rated=30), 4).to_csr()
    >>> model = Recommender(rank=8, max_epochs=20).fit(matrix)
    >>> items, scores = model.recommend([0, 5], k=3)
    >>> items.shape, matrix.toarray()[0, items[0]]
    ((2, 3), array([0., 0., 0.], dtype=float32))
    """

    def __init__(
        self,
        loss: str | nn.Module | None = None,
        *,
        rank: int = 64,
        temperature: float | None = 0.2,
        dropout: float = 0.0,
        item_bias: bool = True,
        layers: int = 0,
        start: Start = "spectral",
        negatives: Negatives = "all",
        number: int = 1,
        correct: bool = False,
        pairs: bool = False,
        lists_per_batch: int | None = None,
        learning_rate: float = 0.01,
        weight_decay: float = 0.01,
        max_epochs: int = 100,
        patience: int = 10,
        measure: str | Measure = "nDCG@10",
        validation_share: float = 0.1,
        device: str | torch.device | None = None,
        random_state: RandomState = 0,
        verbose: bool = False,
    ) -> None:
        self.loss, self.rank, self.temperature, self.dropout = loss, rank, temperature, dropout
        self.item_bias, self.layers, self.start = item_bias, layers, start
        self.negatives, self.number = negatives, number
        self.correct, self.pairs, self.lists_per_batch = correct, pairs, lists_per_batch
        self.learning_rate, self.weight_decay, self.max_epochs, self.patience = (
            learning_rate,
            weight_decay,
            max_epochs,
            patience,
        )
        self.measure, self.validation_share, self.device = measure, validation_share, device
        self.random_state, self.verbose = random_state, verbose

    def fit(self, X: Any, y: Any = None, *, validation: Any = None) -> Self:
        """Fit the factors to interactions; `y` is ignored.

        Args:
            X: interactions, see the class.
            validation: interactions of the same users with the same items, in the same form, that select the epoch; those that
                are in X too do not count.

        Raises:
            DataError, ValueError: malformed interactions, see `interactions`; an option out of range; nothing to learn from, or
                to validate with.
        """
        check_choice("start", self.start, get_args(Start))
        check_least(1, max_epochs=self.max_epochs, patience=self.patience, lists_per_batch=self.lists_per_batch)
        check_least(0, layers=self.layers)
        if not (is_number(self.validation_share, 0) and self.validation_share < 1):
            raise ValueError(f"validation_share must be a fraction from 0 and below 1, got {self.validation_share!r}")
        if self.pairs and self.negatives == "all":
            raise ValueError(
                "pairs requires sampled negatives, such as negatives='uniform'; with 'all' a list has all items"
            )
        self._seed = as_seed(self.random_state)
        self.known_ = train = interactions(X)
        self._by_index, self._of_integers = hasattr(X, "tocsr"), _has_integer_items(X)
        if not train.num_ratings:
            raise DataError("expected interactions to learn from, got none")
        held = None
        if validation is not None:
            held = without(self._of_fit(validation), train)
            if not held.num_ratings:
                raise DataError("validation has no interactions that are not in X too; None holds out some of X")
        elif self.validation_share:
            train, held = hold_out(self.known_, self.validation_share, seed=self._seed)
            if not held.num_ratings:  # too few interactions for a share of them
                train, held = hold_out(self.known_, 1, seed=self._seed)
        with torch.random.fork_rng([]):
            torch.manual_seed(self._seed)
            self._train(train, held if held is not None and held.num_ratings else None)
        return self

    def ranking_loss(self) -> nn.Module:
        """Return the loss that `fit` minimises; raises ValueError if `loss` is invalid."""
        found = copy.deepcopy(named_loss(self.loss))
        return SoftmaxLoss() if found is None else found

    def _train(self, train: Ratings, held: Ratings | None) -> None:
        loss = self.ranking_loss()
        options: dict[str, Any] = {"item_bias": self.item_bias, "seed": self._seed}
        options |= {"temperature": self.temperature, "dropout": self.dropout}
        if self.layers:
            scorer: MatrixFactorization = LightGCN(
                train.num_users, train.num_items, self.rank, layers=self.layers, **options
            )
        else:
            scorer = MatrixFactorization(train.num_users, train.num_items, self.rank, **options)
        device = torch.device(self.device or "cpu")
        scorer, loss = scorer.to(device), loss.to(device)
        if isinstance(scorer, LightGCN):
            scorer.set_graph(train)
        scorer.start_from_interactions(train, self.start)
        lists = TrainingLists(train, self.negatives, number=self.number, correct=self.correct)
        rows, size = (train.to_pairs(), 4096) if self.pairs else (train.to_lists(), 64)
        size = self.lists_per_batch or size
        batches = UserBatches(rows, lists_per_batch=size, shuffle=True, seed=self._seed)
        weights = [*scorer.parameters(), *loss.parameters()]
        optimizer = torch.optim.AdamW(weights, lr=self.learning_rate, weight_decay=self.weight_decay, fused=True)
        average = AveragedModel(scorer, multi_avg_fn=update_averages).eval()
        averaged: Any = average.module
        measure, best = parse_measure(self.measure), None
        self.history_: list[dict[str, float | None]] = []
        scorer.train()
        with Progress(range(self.max_epochs), unit=" epochs", disable=not self.verbose, leave=False) as bar:
            for epoch in bar:
                announce(f"epoch {epoch + 1}")
                total = torch.zeros((), device=device)  # a list of small tensors would scatter the heap
                for batch in batches:
                    users, items = batch.features.to(device).long().unbind(-1)
                    value = lists.mean_loss(scorer, loss, users[:, 0], items, batch.where.to(device))
                    optimizer.zero_grad()
                    value.backward()
                    optimizer.step()
                    average.update_parameters(scorer)
                    total += value.detach()
                found = None
                if held is not None:
                    values = evaluate_catalogue(averaged, held, [measure], exclude=train)[measure.name]
                    found = float(values.mean())
                    bar.set_postfix_str(f"{measure.name} {found:.4f}")
                self.history_.append({"epoch": epoch + 1, "loss": float(total) / len(batches), "validation": found})
                if found is None or best is None or found > best:
                    best, self.best_epoch_ = found, epoch + 1
                    kept = copy.deepcopy(averaged.state_dict())
                elif epoch + 1 - self.best_epoch_ >= self.patience:
                    break
        scorer.load_state_dict(kept)
        self.scorer_ = scorer.eval()

    def recommend(self, users: Any, k: int = 10, *, exclude_known: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """The k items with the highest scores for users of `fit`, best first.

        Args:
            users: `[users]` or one user: row indices if `fit` got a matrix, otherwise names.
            k: number of items.
            exclude_known: whether to leave out what the user knows.

        Returns:
            Items and scores, `[users, k]`, or `[k]` for one user: column indices, padded with -1, if `fit` got a matrix,
            otherwise names (integers if those of `fit` were), padded with None; the scores of padding are -inf.

        Raises:
            ValueError: a user is unknown; see `recommend_new`.
        """
        check_is_fitted(self)
        one = isinstance(users, str) or np.ndim(users) == 0
        rows = self._users([users] if one else users)
        items, scores = recommend(self.scorer_, rows, k, exclude=self.known_ if exclude_known else None)
        return self._named(items[0] if one else items), (scores[0] if one else scores).cpu().numpy()

    def recommend_new(self, X: Any, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """As `recommend`, for users who were not in `fit`, from their interactions with its items; see `fold_in`.

        Args:
            X: interactions, in the form that `fit` got; other users, the same items.
            k: number of items.

        Returns:
            Items and scores, `[users, k]`, in the order of the users in X: rows, or sorted names.
        """
        check_is_fitted(self)
        known = self._of_fit(X, new_users=True)
        factors = fold_in(self.scorer_, known, self.ranking_loss())
        items, scores = recommend(_Folded(self.scorer_, factors), torch.arange(known.num_users), k, exclude=known)
        return self._named(items), scores.cpu().numpy()

    def evaluate(
        self, X: Any, measures: str | Measure | Iterable[str | Measure] = ("nDCG@10", "R@10")
    ) -> dict[str, float]:
        """Means over users of measures over the full catalogue, without what users know from `fit`; see `evaluate_catalogue`.

        Users and items of X must be those of `fit`.
        """
        check_is_fitted(self)
        test = self._of_fit(X)
        if not test.num_ratings:
            raise DataError("expected interactions to evaluate on, got none")
        found = evaluate_catalogue(self.scorer_, test, measures, exclude=self.known_)
        return {name: float(values.mean()) for name, values in found.items()}

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `measure`, as `evaluate` gives it; `y` is ignored."""
        (value,) = self.evaluate(X, [self.measure]).values()
        return value

    def _users(self, users: Any) -> Tensor:
        numbers = {name: number for number, name in enumerate(self.known_.user_names)}
        try:
            names = Names.of(known_ids("users", users)).tolist()
        except ValueError as error:
            raise ValueError(str(error).replace("document", "user")) from None
        if unknown := [name for name in names if name not in numbers]:
            raise ValueError(
                f"users must be those of fit, got {shortened(unknown[0])}; for users with other interactions use recommend_new"
            )
        return torch.tensor([numbers[name] for name in names], dtype=torch.int64)

    def _of_fit(self, X: Any, *, new_users: bool = False) -> Ratings:
        """Interactions with the items of `fit`, and its users unless they are new."""
        if not self._by_index and hasattr(X, "tocsr"):
            raise DataError(
                "expected names of users and items, as in fit, got a matrix, whose rows and columns have none"
            )
        names: dict[str, Any] = {} if self._by_index else {"item_names": self.known_.item_names}
        if not (self._by_index or new_users):
            names["user_names"] = self.known_.user_names
        try:
            found = interactions(X, **names)
        except DataError as error:
            raise DataError(str(error).replace("those given", "those of fit")) from None
        users = found.num_users if new_users else self.known_.num_users
        if (found.num_users, found.num_items) != (users, self.known_.num_items):
            raise DataError(
                f"expected {users} users and {self.known_.num_items} items, as in fit, got {found.num_users} and "
                f"{found.num_items}"
            )
        same = new_users or np.array_equal(found.user_names, self.known_.user_names)
        if not (same and np.array_equal(found.item_names, self.known_.item_names)):
            raise DataError("expected the users and items of fit, got others")
        return found

    def _named(self, items: Tensor) -> np.ndarray:
        indices = items.cpu().numpy()
        if self._by_index:
            return indices
        names: Any = self.known_.item_names.tolist()
        if self._of_integers:
            names = list(map(int, names))
        found = np.array([*names, None], object)[indices]  # the last is that of -1
        whole = self._of_integers and not (indices < 0).any() and max(names) < 2**63
        return found.astype(np.int64) if whole else found


def _has_integer_items(X: Any) -> bool:
    """Whether the items of interactions, which are valid, are a column of integers."""
    if isinstance(X, Ratings) or hasattr(X, "tocsr"):
        return False
    found = known_ids("items", columns_of(X)[1])
    return found.dtype.kind in "iu" or (found.dtype.kind == "O" and all(isinstance(each, Integral) for each in found))


class _Folded:
    """A model of new users, by their factors."""

    def __init__(self, scorer: MatrixFactorization, factors: Tensor) -> None:
        self.scorer, self.factors = scorer, factors

    def item_scores(self, users: Tensor) -> Tensor:
        return self.scorer.factor_scores(self.factors[users.to(self.factors.device)])
