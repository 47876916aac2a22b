"""Rankers together: each one's scores are standardised within each list, and averaged."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted
from torch import nn
from typing_extensions import Self

from rankstruct.estimators.base import Documents, Ranker, bring_together, group_documents
from rankstruct.measures import Measure, evaluate
from rankstruct.models.scorers import EnsembleScorer, check_weights, mean_of_z_scores, with_preparation

__all__ = ["EnsembleRanker"]

_PARTS = 4  # into which "validation" divides the weight
_MOST = 6  # members whose weights it tries


class EnsembleRanker(Ranker):
    """The weighted mean of several rankers' scores, each with mean 0 and standard deviation 1 within each list.

    Args:
        rankers: with scikit-learn's conventions, which `fit` trains copies of. One that is fitted already and is to stay as it is
            goes in as `sklearn.frozen.FrozenEstimator(ranker)`.
        weights: `"equal"`; `"validation"`, the best on the validation lists given to `fit`, where quarters of the whole are
            divided among at most six members and equal weights win a draw; or one number a ranker.
        measure: what chooses the weights and what `score` reports, a measure or its name; AP if None.
        prepare: steps that raw features go through before any ranker sees them; see `rankstruct.preparation.Preparation`.

    Attributes:
        rankers_: as fitted.
        weights_: one a ranker, with sum 1.
        validation_: the measure on the validation lists, with these weights; None without them.
        preparation_: the steps, as fitted.
        n_features_in_: how many a raw document has.

    >>> from rankstruct.estimators import LinearRanker, MLPRanker
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 2)), np.repeat(np.arange(40), 10)
    >>> y = (X[:, 0] + np.square(X[:, 1]) > 1.5).astype(int)
    >>> ranker = EnsembleRanker([LinearRanker("AP"), MLPRanker(max_epochs=20, device="cpu")]).fit(X, y, qid)
    >>> ranker.score(X, y, qid) > 0.8, ranker.to_scorer()(torch.zeros(5, 2)).shape
    (True, torch.Size([5]))
    """

    loss, drop_empty = None, False

    def __init__(
        self,
        rankers: Sequence[Any],
        *,
        weights: str | Sequence[float] = "equal",
        measure: str | Measure | None = None,
        prepare: Sequence[str] = (),
    ) -> None:
        self.rankers, self.weights, self.measure, self.prepare = rankers, weights, measure, prepare

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments; `deep` with those of the rankers, such as `rankers__0__C`."""
        found = super().get_params(deep=False)
        for number, ranker in enumerate(self.rankers if deep and isinstance(self.rankers, list | tuple) else ()):
            options = ranker.get_params() if hasattr(ranker, "get_params") else {}
            found |= {f"rankers__{number}__{name}": value for name, value in options.items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set arguments, by the names that `get_params` gives; returns the ranker itself."""
        nested = {name: value for name, value in params.items() if name.startswith("rankers__")}
        super().set_params(**{name: value for name, value in params.items() if name not in nested})
        known = self.get_params()
        for name, value in nested.items():
            if name not in known:
                raise ValueError(f"invalid parameter {name!r}; there are {', '.join(map(repr, known))}")
            number, _, option = name.removeprefix("rankers__").partition("__")
            self.rankers[int(number)].set_params(**{option: value})
        return self

    @property
    def finite(self) -> bool | str:  # type: ignore[override]
        """Missing features are the rankers' to take, where all do and nothing looks at them before."""
        taken = all(get_tags(ranker).input_tags.allow_nan for ranker in self.rankers)
        return "allow-nan" if taken and len(self.rankers) and not len(self.prepare) else True

    def _takes_sparse(self) -> bool:
        return super()._takes_sparse() and all(get_tags(ranker).input_tags.sparse for ranker in self.rankers)

    def _fit(self, train: Documents, valid: Documents | None) -> None:
        train = train._replace(X=self._fit_preparation(train.X, train.qid))
        given: dict[str, Any] = train.options
        if valid is not None:
            valid = valid._replace(X=self._prepared(valid.X, valid.qid))
            given |= valid.as_validation
        self.rankers_ = [clone(ranker).fit(*train[:3], **given) for ranker in self.rankers]
        self.validation_: float | None = None
        if valid is not None:
            self._choose_weights(self._member_scores(valid.X, valid.qid), valid)
        else:
            self.weights_ = check_weights(None if self.weights == "equal" else self.weights, len(self.rankers))  # type: ignore[arg-type]

    def _check_fit_options(self, has_validation: bool) -> None:
        if not len(self.rankers):
            raise ValueError("rankers must be one or more")
        if not isinstance(self.weights, str):
            check_weights(self.weights, len(self.rankers))
        elif self.weights not in ("equal", "validation"):
            raise ValueError(
                f"weights must be 'equal', 'validation' or {len(self.rankers)} numbers, got {self.weights!r}"
            )
        elif self.weights == "validation" and not has_validation:
            raise ValueError("weights='validation' needs X_valid, y_valid and qid_valid; give them, or take 'equal'")
        elif self.weights == "validation" and len(self.rankers) > _MOST:
            raise ValueError(
                f"weights='validation' is for at most {_MOST} rankers, got {len(self.rankers)}; take 'equal'"
            )

    def _choose_weights(self, scores: np.ndarray, valid: Documents) -> None:
        """The best of the candidates on validation lists, the first of equals; sets `weights_` and `validation_`."""
        members = scores.shape[1]
        candidates: Iterator[Any] = iter([None if self.weights == "equal" else self.weights])
        if self.weights == "validation":
            candidates = itertools.chain([None], _divisions(_PARTS, members))
        for candidate in candidates:
            weights = check_weights(candidate, members)
            lists = bring_together(_mean_scores(scores, weights, valid.qid), *valid[1:])
            tensors = torch.tensor(lists.X), torch.tensor(lists.labels)
            values = evaluate(*tensors, [self._measure()], offsets=torch.tensor(lists.offsets), groups=lists.groups)
            found = float(values[self._measure().name].mean())
            if self.validation_ is None or found > self.validation_ + 1e-12:
                self.validation_, self.weights_ = found, weights

    def _member_scores(self, X: Any, qid: np.ndarray) -> np.ndarray:
        """Scores `[documents, members]` of prepared documents."""
        return np.stack([ranker.predict(X, qid) for ranker in self.rankers_], axis=1)

    def _scores(self, X: Any, qid: np.ndarray | None) -> np.ndarray:
        qid = np.zeros(X.shape[0], np.int64) if qid is None else qid
        return _mean_scores(self._member_scores(self._prepared(X, qid), qid), self.weights_, qid)

    def to_scorer(self) -> nn.Module:
        """The rankers as one scorer for torch, float32, which takes raw features too; see `save_scorer`.

        Raises:
            ValueError: a ranker that is none, such as one with a kernel.
        """
        check_is_fitted(self)
        scorers = [ranker.to_scorer() for ranker in self.rankers_]
        return with_preparation(EnsembleScorer(scorers, self.weights_), self.preparation_)


def _mean_scores(scores: np.ndarray, weights: Sequence[float], qid: np.ndarray) -> np.ndarray:
    """The mean `[documents]` of scores `[documents, members]`, rows of a list being anywhere."""
    order, offsets = group_documents(qid)
    lists = torch.tensor(scores if order is None else scores[order], dtype=torch.float64)
    found: np.ndarray = mean_of_z_scores(lists, weights, torch.tensor(np.diff(offsets))).numpy()
    return found if order is None else found[np.argsort(order)]


def _divisions(parts: int, members: int) -> Iterator[list[int]]:
    """All ways to give some parts to members."""
    for bars in itertools.combinations(range(parts + members - 1), members - 1):
        ends = [-1, *bars, parts + members - 1]
        yield [right - left - 1 for left, right in itertools.pairwise(ends)]
