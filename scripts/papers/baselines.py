"""The baselines of the experiments, with the interface of `LinearRanker`: fit(X, y, qid, X_valid=...), predict(X).

`make_trainer(name, **options)` builds any of them, and the rankers of rankstruct. If a setting has several values, one is
selected by the measure `select` on the validation lists, and so is the number of boosting rounds, up to `rounds`, evaluated at
every `every` rounds and the last. `C` is the weight of the mean loss relative to the regulariser; `bias` is the value of the
constant feature, for which a large value leaves thresholds nearly unregularised; `tolerance` is the relative gap of a solver.
Random trainers take `random_state`.

External libraries are used where they are good: trees and ridge regression from scikit-learn, LambdaMART from LightGBM
(`pip install rankstruct[experiments]`), `CatBoost` from the library of that name (`rankstruct[catboost]`). Linear max-margin
baselines are trained to a certified gap by `LinearRanker`.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import minimize
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted, check_X_y
from torch import nn

from rankstruct.diagnostics import describe
from rankstruct.estimators import AutoRanker, EnsembleRanker, LinearRanker, MLPRanker
from rankstruct.estimators.base import are_given
from rankstruct.estimators.boosting import BoostedRanker
from rankstruct.estimators.linear import ranking_risk
from rankstruct.estimators.training_data import TrainingData, dense
from rankstruct.feature_maps import Positional
from rankstruct.ids import group_documents
from rankstruct.lists import Lists, pad
from rankstruct.losses import (
    ClassificationLoss,
    CombinedLoss,
    FidelityLoss,
    LambdaLoss,
    ListNetLoss,
    OrdinalLoss,
    RankNetLoss,
    RankSVMLoss,
    SmoothLoss,
    StructuredHingeLoss,
    grade_pair_weights,
    is_convex,
)
from rankstruct.losses.reduction import Reduction, reduce_lists
from rankstruct.measures import RR, P, evaluate, nDCG, parse_measure, pAUC
from rankstruct.messages import did_you_mean
from rankstruct.oracles.registry import Reference
from rankstruct.solvers import DC, Annealing, Bundle, Solution

Several = float | Sequence[float]
TIGHT = 1e-6
"""The gap of the classifiers: their optimum may be nearly the constant one, and a looser gap would rank by what is left."""
NOISE = 20  # from MQ2008, where the optimum is the constant classifier: scores differ by 5 to 9 gaps for any tolerance
DEFAULT_C = (1.0, 10.0, 100.0, 1000.0, 10_000.0)


class Trainer(Protocol):
    """The interface of trainers in an experiment."""

    def fit(self, X: Any, y: Any, qid: Any = None, **more: Any) -> Any:
        """Train on documents `[documents, d]`, labels and lists `[documents]`; see `LinearRanker.fit` for the keywords."""

    def predict(self, X: Any, qid: Any = None) -> np.ndarray:
        """Scores `[documents]`, float64; some trainers use the lists."""


class HeldOut(NamedTuple):
    """Validation lists: documents, labels, lists, and groups if there are any."""

    X: Any
    y: Any
    qid: Any
    diversity_groups: Any = None

    def measure(self, scores: Any, name: str) -> float:
        """The mean of a measure over them, scores `[documents]`."""
        return mean_measure(scores, self.y, self.qid, name, self.diversity_groups)


def mean_measure(scores: np.ndarray, y: Any, qid: Any, measure: str, diversity_groups: Any = None) -> float:
    """The mean of a measure over the lists of `qid`; rows of a list need not be neighbours."""
    (values,) = evaluate(np.asarray(scores, float), y, [measure], qid=qid, diversity_groups=diversity_groups).values()
    return float(values.mean())


def best_stage(
    stages: Iterable[tuple[int, np.ndarray | None]], held_out: HeldOut | None, select: str, every: int = 1
) -> int:
    """The number of the best stage on the validation lists, the first among ties; without them the last.

    Args:
        stages: numbers from 1 and the scores of the validation documents, None without them.
        held_out: the validation lists.
        select: the measure.
        every: the interval of the stages to evaluate; the last one is always included.
    """
    values: dict[int, float] = {}
    last, scores = 0, None
    for last, scores in stages:
        if held_out is not None and last % every == 0:
            values[last] = held_out.measure(scores, select)
    if held_out is None or not last:
        return last
    if last not in values:
        values[last] = held_out.measure(scores, select)
    return max(values, key=lambda number: values[number])


class _Baseline(BaseEstimator):
    """Checks the input and makes the rows of each list contiguous."""

    def fit(
        self,
        X: Any,
        y: Any,
        qid: Any = None,
        *,
        diversity_groups: Any = None,
        X_valid: Any = None,
        y_valid: Any = None,
        qid_valid: Any = None,
        diversity_groups_valid: Any = None,
    ) -> Any:
        """Train, with the arguments of `LinearRanker.fit`; settings are selected on the validation lists.

        Baselines do not train on `diversity_groups`; `diversity_groups_valid` are for selection by a measure of diversity.

        Raises:
            ValueError: shapes that do not fit, or `qid` missing.
        """
        X, y = check_X_y(X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        if qid is None or np.shape(qid) != y.shape:
            raise ValueError(f"qid must have one entry a document, shape {y.shape}; got {np.shape(qid)}")
        order, offsets = group_documents(np.asarray(qid))
        if order is not None:
            X, y = X[order], y[order]
        held_out = None
        if are_given(X_valid, y_valid, qid_valid):
            held_out = HeldOut(self._rows(X_valid), np.asarray(y_valid), np.asarray(qid_valid), diversity_groups_valid)
        self.choice_: dict[str, Any] = {}
        self._fit(X, y, offsets, held_out)
        self.n_features_in_ = X.shape[1]
        return self

    def _fit(self, X: Any, y: np.ndarray, offsets: np.ndarray, held_out: HeldOut | None) -> None:
        """Set `coef_`, or what `_score` needs; lists are contiguous."""

    def predict(self, X: Any, qid: Any = None) -> np.ndarray:
        """Scores `[documents]`, float64: higher is better, comparable within a list. Baselines do not use `qid`."""
        check_is_fitted(self, "n_features_in_")
        X = self._rows(X)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(f"X must have the {self.n_features_in_} features of training, got {X.shape[1]}")
        return np.asarray(self._score(X), np.float64)

    def _score(self, X: Any) -> np.ndarray:
        return X @ self.coef_

    def _rows(self, X: Any) -> Any:
        return check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])


def with_constant(X: Any, value: float) -> Any:
    """Features `[documents, d]` with an additional constant one, whose weight is the threshold."""
    constant = np.full((X.shape[0], 1), value, X.dtype)
    return sp.hstack([X, constant], format="csr") if sp.issparse(X) else np.hstack([X, constant])


@dataclass(eq=False, repr=False)
class Selected(_Baseline):
    """The best of several trainers on the validation lists; the first among ties.

    Args:
        candidates: pairs of a setting, for the record, and a trainer that has it.

    Attributes:
        best_: the trainer chosen.
        choice_: its setting, and what it selected itself.
        validation_: the measure of every candidate.
    """

    candidates: Sequence[tuple[Mapping[str, Any], Any]]
    select: str = "nDCG@10"

    def fit(self, X: Any, y: Any, qid: Any = None, **more: Any) -> Selected:
        """Train all, keep the best; see `LinearRanker.fit`."""
        held_out = HeldOut(*(more.get(f"{name}_valid") for name in HeldOut._fields))
        if len(self.candidates) > 1 and held_out.X is None:
            raise ValueError(f"there are {len(self.candidates)} settings; give X_valid, y_valid and qid_valid")
        self.validation_: list[float] = []
        for setting, trainer in self.candidates:
            trainer.fit(X, y, qid, **more)
            value = np.nan
            if held_out.X is not None:
                value = held_out.measure(trainer.predict(held_out.X), self.select)
            if not self.validation_ or value > max(self.validation_):
                self.best_, self.choice_ = trainer, {**setting, **choice_of(trainer)}
            self.validation_.append(value)
        self.n_features_in_ = np.shape(X)[1]
        return self

    def _score(self, X: Any) -> np.ndarray:
        return self.best_.predict(X)


def choice_of(trainer: Any) -> dict[str, Any]:
    """The settings that a fitted trainer selected on the validation lists."""
    if isinstance(trainer, LinearRanker):
        return {"C": trainer.C_}
    if isinstance(trainer, AutoRanker):
        return {"model": trainer.selected_}
    if isinstance(trainer, BoostedRanker):
        return {"trees": trainer.best_iterations_}
    if isinstance(trainer, EnsembleRanker):
        choices = [choice_of(ranker) for ranker in trainer.rankers_]
        names = dict.fromkeys(itertools.chain.from_iterable(choices))
        return {name: [choice[name] for choice in choices if name in choice] for name in names}
    return dict(getattr(trainer, "choice_", {}))


def path_of(trainer: Any) -> list[dict[str, Any]]:
    """The path of a fitted max-margin trainer, one row per value of C; empty for other trainers.

    See `rankstruct.diagnostics.describe` for the rows; if another setting was selected too, they are those of the selected one.

    >>> trainer = make_trainer("hinge", measure="AUC", C=10.0).fit(np.array([[0.0], [1.0]]), [0, 1], [7, 7])
    >>> [(row["C"], row["status"]) for row in path_of(trainer)]
    [(10.0, 'converged')]
    """
    for inner in ("best_", "ranker_"):
        trainer = getattr(trainer, inner, trainer)
    if isinstance(trainer, LinearRanker):
        Cs, w0 = np.sort(np.ravel(np.asarray(trainer.C, float))).tolist(), trainer.w0_
    elif isinstance(trainer, MulticlassSVM):
        Cs, w0 = trainer.Cs_, np.zeros(1)
    else:
        return []
    return [describe(solution, C, w0) for C, solution in zip(Cs, trainer.path_, strict=True)]


def _grid(make: Callable[..., Any], select: str, /, **settings: Any) -> Any:
    """One trainer, or the best of all combinations if settings have several values."""
    several = {k: list(v) for k, v in settings.items() if isinstance(v, Sequence) and not isinstance(v, str)}
    fixed = {k: v for k, v in settings.items() if k not in several}
    points = [dict(zip(several, values, strict=True)) for values in itertools.product(*several.values())]
    if not points:
        raise ValueError(f"a setting has no value: {settings}")
    if points == [{}]:
        return make(**fixed)
    return Selected([(point, make(**fixed, **point)) for point in points], select)


class AllPairsLoss(RankSVMLoss):
    """RankSVM as svm_rank has it by default: the sum of max(0, 1 - (s_i - s_j)) over the pairs of a list, not their mean.

    A list then counts by its number of pairs. With the mean over lists, C is svm_rank's `-c` (its 1/2 ||w||^2 + c/n sum over n
    lists).

    >>> AllPairsLoss()(torch.tensor([[0.5, 0.0, 2.0]]), torch.tensor([[1, 0, 0]]))
    tensor(3.)
    """

    takes_item_weights = False

    def of_lists(self, scores: torch.Tensor, lists: Lists, reduction: Reduction) -> torch.Tensor:
        """The reduced sums over pairs."""
        values = super().of_lists(scores, lists._replace(weights=None), "none")
        labels, where, offsets = lists[:3]
        rows, real = (labels, where) if offsets is None else pad(labels, offsets)
        real = torch.ones_like(rows, dtype=torch.bool) if real is None else real
        each = zip(rows.reshape(-1, rows.shape[-1]), real.reshape(-1, rows.shape[-1]), strict=True)
        pairs = [_pairs(row[mask].numpy()) for row, mask in each]
        return reduce_lists(values * torch.tensor(pairs, dtype=values.dtype).reshape(values.shape), lists, reduction)


def _pairs(labels: np.ndarray) -> int:
    """The number of pairs of different labels."""
    counts = np.unique(labels, return_counts=True)[1]
    return int((counts.sum() ** 2 - (counts**2).sum()) // 2)


def warn_of_noise(trainer: BaseEstimator, scores: np.ndarray, solution: Solution) -> None:
    """Warn if scores `[documents]` differ by no more than the solver's tolerance, in units of the margin 1."""
    if np.std(scores) <= NOISE * (solution.objective - solution.lower_bound):
        warnings.warn(
            f"{type(trainer).__name__}: the classifier is nearly constant: its scores spread by no more than {NOISE} times the "
            "solver's gap, so that they rank by what it left open; if a lower tolerance does not help, nothing is learned",
            stacklevel=4,
        )


@dataclass(eq=False, repr=False)
class LinearClassifier(_Baseline):
    """SVMacc: a linear SVM for relevant and irrelevant documents with equal weights, by a certified bundle method.

    SVMacc2 weighs the relevant documents by the number of irrelevant ones over that of relevant ones. SVMacc3 and SVMacc4 are
    SVMacc on percentile and on query-level min-max features, which are preparation steps.

    Args:
        balanced: SVMacc2.

    Source: Yue, Finley, Radlinski, Joachims, SIGIR 2007, section 5.2.
    """

    C: Several = DEFAULT_C
    _: KW_ONLY
    balanced: bool = False
    bias: float = 10.0
    tolerance: float = TIGHT
    select: str = "nDCG@10"

    def _fit(self, X: Any, y: np.ndarray, offsets: np.ndarray, held_out: HeldOut | None) -> None:
        relevant = int((y > 0).sum())
        if not 0 < relevant < len(y):
            raise ValueError(f"both relevant and irrelevant documents are needed; got {relevant} of {len(y)} relevant")
        loss = ClassificationLoss(relevant_weight=(len(y) - relevant) / relevant if self.balanced else 1.0)
        self.ranker_ = LinearRanker(self.select, C=self.C, loss=loss, prepare=(), tolerance=self.tolerance)
        valid: dict[str, Any] = {}
        if held_out is not None:
            held_out = held_out._replace(X=with_constant(held_out.X, self.bias))
            valid = {f"{name}_valid": value for name, value in held_out._asdict().items()}
        self.ranker_.fit(with_constant(X, self.bias), y, np.zeros(len(y), int), **valid)  # all documents are one list
        self.choice_, self.coef_ = choice_of(self.ranker_), self.ranker_.coef_[:-1]  # the threshold ranks nothing
        warn_of_noise(self, X @ self.coef_, self.ranker_.solution_)


@dataclass(eq=False, repr=False)
class RankSVMforIR(_Baseline):
    """SVM-IR: RankSVM with pairs weighted by their grades and equal weights of queries, by a certified bundle method.

    Args:
        measure: the measure for which `grade_pair_weights` computes the weights of pairs from the training lists.

    Attributes:
        pair_weights_: of the training lists.

    Source: Cao, Xu, Liu, Li, Huang, Hon, "Adapting Ranking SVM to Document Retrieval", SIGIR 2006.
    """

    C: Several = DEFAULT_C
    _: KW_ONLY
    measure: str = "nDCG@10"
    tolerance: float = 1e-3
    select: str = "nDCG@10"

    def _fit(self, X: Any, y: np.ndarray, offsets: np.ndarray, held_out: HeldOut | None) -> None:
        self.pair_weights_ = grade_pair_weights(torch.tensor(y), torch.tensor(offsets), self.measure)
        loss = RankSVMLoss(pair_weights=self.pair_weights_)
        self.ranker_ = LinearRanker(self.select, C=self.C, loss=loss, prepare=(), tolerance=self.tolerance)
        valid = {} if held_out is None else {f"{name}_valid": value for name, value in held_out._asdict().items()}
        self.ranker_.fit(X, y, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), **valid)
        self.choice_, self.coef_ = choice_of(self.ranker_), self.ranker_.coef_


class MulticlassRisk:
    """The mean over documents of Crammer and Singer's hinge, max over grades g of `[g is not y] + w_g x - w_y x`.

    Args:
        X: `[documents, d]`, an array or a SciPy CSR array.
        classes: `[documents]` integers from 0.
        number: the number of classes.

    A `rankstruct.solvers.Risk` of the weights `[classes * d]`, those of the first class first:

    >>> MulticlassRisk(np.array([[1.0], [2.0]]), np.array([0, 1]), 2)(np.array([0.0, 0.0]))
    (1.0, array([ 0.5, -0.5]))
    """

    def __init__(self, X: Any, classes: np.ndarray, number: int) -> None:
        self.X, self.classes, self.number = X, classes, number
        self.terms, self.dimension = X.shape[0], number * X.shape[1]

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean hinge and a subgradient."""
        scores = np.asarray(self.X @ w.reshape(self.number, -1).T, np.float64)
        rows = np.arange(self.terms)
        right = scores[rows, self.classes]
        scores += 1
        scores[rows, self.classes] -= 1
        worst = scores.argmax(1)
        value = float((scores[rows, worst] - right).mean())
        share = np.zeros_like(scores)
        share[rows, worst] += 1 / self.terms
        share[rows, self.classes] -= 1 / self.terms
        return value, np.asarray(self.X.T @ share, np.float64).T.ravel()

    def term_planes(self, w: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hinges and subgradients of some documents."""
        found = [MulticlassRisk(self.X[[i]], self.classes[[i]], self.number)(w) for i in indices]
        return np.array([value for value, _ in found]), np.stack([gradient for _, gradient in found])


@dataclass(eq=False, repr=False)
class MulticlassSVM(_Baseline):
    """Multi-class SVM over the grades with equal weights of documents, by a certified bundle method.

    The score of a document is `sum_g g w_g x`: McRank's expected grade with scores instead of probabilities. With two grades, it
    ranks as their SVM does.

    Source: Crammer and Singer, "On the Algorithmic Implementation of Multiclass Kernel-based Vector Machines", JMLR 2001.
    """

    C: Several = DEFAULT_C
    _: KW_ONLY
    bias: float = 10.0
    tolerance: float = TIGHT
    select: str = "nDCG@10"

    def _fit(self, X: Any, y: np.ndarray, offsets: np.ndarray, held_out: HeldOut | None) -> None:
        grades, classes = np.unique(y, return_inverse=True)
        if len(grades) < 2:
            raise ValueError(f"two different labels at least are needed; all documents have {grades[0]:g}")
        Cs = np.sort(np.ravel(np.asarray(self.C, float)))
        if not len(Cs) or not (np.isfinite(Cs) & (Cs > 0)).all():
            raise ValueError(f"C must be a positive number or several, got {self.C!r}")
        if len(Cs) > 1 and held_out is None:
            raise ValueError(f"C has {len(Cs)} values; give X_valid, y_valid and qid_valid to choose among them")
        risk = MulticlassRisk(with_constant(X, self.bias), classes, len(grades))
        solver, solution = Bundle(tolerance=self.tolerance), None
        self.path_: list[Solution] = []
        for C in Cs:
            solution = solver.minimise(risk, C, warm_start=solution)
            self.path_.append(solution)
        coefs = [grades @ solution.w.reshape(len(grades), -1)[:, :-1] for solution in self.path_]
        scores = [None if held_out is None else held_out.X @ coef for coef in coefs]
        chosen = best_stage(enumerate(scores, 1), held_out, self.select) - 1
        self.coef_, self.choice_, self.Cs_ = coefs[chosen], {"C": float(Cs[chosen])}, Cs.tolist()
        warn_of_noise(self, X @ self.coef_, self.path_[chosen])


@dataclass(eq=False, repr=False)
class Regression(_Baseline):
    """Ridge regression on the labels (scikit-learn's), with equal weights of documents.

    Args:
        alpha: the weight of the squared norm relative to the sum of squares.
        target: `"gain"`, 2^y - 1, which is consistent for DCG; or `"grade"`, y.

    Source: Cossock and Zhang, "Subset Ranking Using Regression", COLT 2006.
    """

    alpha: float = 1.0
    _: KW_ONLY
    target: str = "gain"

    def _fit(self, X: Any, y: np.ndarray, offsets: np.ndarray, held_out: HeldOut | None) -> None:
        from sklearn.linear_model import Ridge

        if self.target not in ("gain", "grade"):
            raise ValueError(f"target must be 'gain' or 'grade', got {self.target!r}")
        wanted = np.exp2(y) - 1 if self.target == "gain" else y
        self.model_ = Ridge(alpha=self.alpha).fit(X.astype(np.float64), wanted)

    def _score(self, X: Any) -> np.ndarray:
        return self.model_.predict(X)


@dataclass(eq=False, repr=False)
class PairwiseRegression(_Baseline):
    """Least squares over pairs: the mean over the lists of the mean over their pairs of (1 - (s_i - s_j))^2, plus alpha ||w||^2.

    Pairs are those of a relevant and an irrelevant document of a list; lists without one are left out. The mean over pairs only
    depends on the means and covariances of both kinds.

    Args:
        alpha: the weight of the squared norm.

    Source: Gao, Jin, Zhu, Zhou, "One-Pass AUC Optimization", ICML 2013.
    """

    alpha: float = 1.0

    def _fit(self, X: Any, y: np.ndarray, offsets: np.ndarray, held_out: HeldOut | None) -> None:
        d = X.shape[1]
        second, first, lists = np.zeros((d, d)), np.zeros(d), 0
        for start, stop in itertools.pairwise(offsets):
            rows, relevant = dense(X[start:stop]).astype(np.float64), y[start:stop] > 0
            if relevant.all() or not relevant.any():
                continue
            kinds = rows[relevant], rows[~relevant]
            margin = kinds[0].mean(0) - kinds[1].mean(0)
            second += sum((each - each.mean(0)).T @ (each - each.mean(0)) / len(each) for each in kinds)
            second += np.outer(margin, margin)
            first += margin
            lists += 1
        if not lists:
            raise ValueError("there is no list with a relevant and an irrelevant document")
        self.coef_ = np.linalg.solve(second / lists + self.alpha * np.eye(d), first / lists)


@dataclass(eq=False, repr=False)
class OrdinalRegression(_Baseline):
    """Cumulative link model: one weight vector and ascending thresholds between the grades, by L-BFGS.

    Args:
        surrogate: `"logistic"` or `"hinge"`.

    Source: McCullagh, "Regression Models for Ordinal Data", 1980 (logistic); see `rankstruct.OrdinalLoss`.
    """

    C: float = 100.0
    _: KW_ONLY
    surrogate: str = "logistic"

    def _fit(self, X: Any, y: np.ndarray, offsets: np.ndarray, held_out: HeldOut | None) -> None:
        loss = OrdinalLoss(max(int(y.max()) + 1, 2), self.surrogate).double()  # type: ignore[arg-type]
        labels, bounds, d = torch.tensor(np.round(y)), torch.tensor(offsets), X.shape[1]
        thresholds = list(loss.parameters())

        def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
            w = z[:d]
            with torch.no_grad():
                torch.nn.utils.vector_to_parameters(torch.tensor(z[d:]), thresholds)
            scores = torch.tensor(np.asarray(X @ w, np.float64), requires_grad=True)
            value = loss(scores, labels, offsets=bounds)
            slope, *rest = torch.autograd.grad(value, [scores, *thresholds])
            others = torch.nn.utils.parameters_to_vector(rest).numpy() if rest else np.zeros(0)
            return value.item() + w @ w / (2 * self.C), np.concatenate([X.T @ slope.numpy() + w / self.C, others])

        start = torch.nn.utils.parameters_to_vector(thresholds).detach().numpy()
        z = np.concatenate([np.zeros(d), start])
        self.coef_ = minimize(objective, z, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x[:d]


@dataclass(eq=False, repr=False)
class GradientRanker(_Baseline):
    """A linear scorer and any differentiable loss: L-BFGS if the loss is convex, else all lists at once with Adam.

    Args:
        loss: a loss module, such as `ListNetLoss` or `RankNetLoss`.
        steps: most iterations.
        learning_rate: of Adam.
        select: with Adam the weights of the best step, of every tenth and the last, on the validation lists are kept.
    """

    loss: nn.Module
    C: float = 100.0
    _: KW_ONLY
    steps: int = 200
    learning_rate: float = 0.03
    select: str = "nDCG@10"

    def _fit(self, X: Any, y: np.ndarray, offsets: np.ndarray, held_out: HeldOut | None) -> None:
        risk = ranking_risk(self.loss, TrainingData(X, y, offsets, np.arange(len(offsets) - 1)))

        def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = risk(w)
            return value + w @ w / (2 * self.C), gradient + w / self.C

        if is_convex(self.loss):
            w = np.zeros(X.shape[1])
            self.coef_ = minimize(objective, w, jac=True, method="L-BFGS-B", options={"maxiter": self.steps}).x
            return
        weights = torch.zeros(X.shape[1], dtype=torch.float64, requires_grad=True)
        adam = torch.optim.Adam([weights], lr=self.learning_rate)
        reached: dict[int, np.ndarray] = {}

        def descend() -> Iterator[tuple[int, Any]]:
            for step in range(1, self.steps + 1):
                weights.grad = torch.tensor(objective(weights.detach().numpy())[1])
                adam.step()
                reached[step] = weights.detach().numpy().copy()
                yield step, None if held_out is None else held_out.X @ reached[step]

        steps = best_stage(descend(), held_out, self.select, every=10)
        self.choice_, self.coef_ = {"steps": steps}, reached[steps]


@dataclass(eq=False, repr=False)
class _Boosted(_Baseline):
    """Rounds, the number of which the validation lists choose."""

    rounds: int = 200
    _: KW_ONLY
    every: int = 5
    select: str = "nDCG@10"

    def _fit(self, X: Any, y: np.ndarray, offsets: np.ndarray, held_out: HeldOut | None) -> None:
        rounds = self._boost(X, y, offsets)
        if held_out is not None:
            rounds = best_stage(self._stages(held_out.X), held_out, self.select, self.every)
        self.choice_ = {"rounds": rounds}

    def _boost(self, X: Any, y: np.ndarray, offsets: np.ndarray) -> int:
        """Make the rounds; returns how many there are."""
        raise NotImplementedError

    def _stages(self, X: Any) -> Iterator[tuple[int, np.ndarray]]:
        """Numbers of rounds, from 1, and the scores after them."""
        raise NotImplementedError

    def _score(self, X: Any) -> np.ndarray:
        stages = (scores for number, scores in self._stages(X) if number == self.choice_["rounds"])
        return next(stages, np.zeros(X.shape[0]))


@dataclass(eq=False, repr=False)
class McRank(_Boosted):
    """Boosted trees (scikit-learn's) for the probabilities of the grades; the score is the expected grade.

    Nothing in it is random: no rows or features are drawn, and the number of rounds is chosen by the validation lists.

    Args:
        learning_rate: of boosting.
        leaves: most leaves of a tree.

    Source: Li, Burges, Wu, "McRank: Learning to Rank Using Multiple Classification and Gradient Boosting", NIPS 2007.
    """

    rounds: int = 100
    _: KW_ONLY
    learning_rate: float = 0.05
    leaves: int = 8

    def _boost(self, X: Any, y: np.ndarray, offsets: np.ndarray) -> int:
        from sklearn.ensemble import HistGradientBoostingClassifier

        self.model_ = HistGradientBoostingClassifier(
            max_iter=self.rounds,
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.leaves,
            early_stopping=False,
            random_state=0,
        ).fit(dense(X), y)
        return self.rounds

    def _stages(self, X: Any) -> Iterator[tuple[int, np.ndarray]]:
        stages = self.model_.staged_predict_proba(dense(X))
        return enumerate((shares @ self.model_.classes_ for shares in stages), 1)


@dataclass(eq=False, repr=False)
class LambdaMART(_Boosted):
    """LambdaMART by LightGBM, one thread; rows and features are drawn at random, so it has a seed.

    Args:
        learning_rate: of boosting.
        leaves: most leaves of a tree.
        least_documents: of a leaf.
        share: of the documents and of the features that a tree sees.

    Raises:
        ImportError: LightGBM is not installed.

    Source: Burges, "From RankNet to LambdaRank to LambdaMART: An Overview", 2010; Ke et al., "LightGBM", NIPS 2017.
    """

    _: KW_ONLY
    learning_rate: float = 0.05
    leaves: int = 8
    least_documents: int = 50
    share: float = 0.8
    random_state: int = 0

    def _boost(self, X: Any, y: np.ndarray, offsets: np.ndarray) -> int:
        try:
            import lightgbm
        except ImportError as error:
            raise ImportError(
                "LambdaMART is LightGBM's, which is not installed: pip install 'rankstruct[experiments]'"
            ) from error
        options = {
            "objective": "lambdarank",
            "learning_rate": self.learning_rate,
            "num_leaves": self.leaves,
            "min_data_in_leaf": self.least_documents,
            "bagging_fraction": self.share,
            "bagging_freq": 1,
            "feature_fraction": self.share,
            "seed": self.random_state,
            "deterministic": True,
            "num_threads": 1,
            "verbosity": -1,
        }
        data = lightgbm.Dataset(X, np.round(y), group=np.diff(offsets), params={"verbosity": -1})
        self.model_ = lightgbm.train(options, data, num_boost_round=self.rounds)
        return self.rounds

    def _stages(self, X: Any) -> Iterator[tuple[int, np.ndarray]]:
        sums = np.zeros(X.shape[0])
        for start in range(0, self.rounds, self.every):
            stop = min(start + self.every, self.rounds)
            sums = sums + self.model_.predict(X, start_iteration=start, num_iteration=stop - start)
            yield stop, sums

    def _score(self, X: Any) -> np.ndarray:
        return np.asarray(self.model_.predict(X, num_iteration=self.choice_["rounds"]))


@dataclass(eq=False, repr=False)
class XGBoost(_Boosted):
    """LambdaMART by XGBoost, one thread; rows and features are drawn at random, so it has a seed.

    Args:
        learning_rate: of boosting.
        leaves: most leaves of a tree.
        share: of the documents and of the features that a tree sees.

    Raises:
        ImportError: XGBoost is not installed.

    Source: Chen and Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016.
    """

    _: KW_ONLY
    learning_rate: float = 0.05
    leaves: int = 8
    share: float = 0.8
    random_state: int = 0

    def _boost(self, X: Any, y: np.ndarray, offsets: np.ndarray) -> int:
        import xgboost

        options = {
            "objective": "rank:ndcg",
            "eta": self.learning_rate,
            "grow_policy": "lossguide",
            "max_depth": 0,
            "max_leaves": self.leaves,
            "subsample": self.share,
            "colsample_bytree": self.share,
            "seed": self.random_state,
            "nthread": 1,
        }
        data = xgboost.DMatrix(X, np.round(y), group=np.diff(offsets), nthread=1)
        self.model_ = xgboost.train(options, data, num_boost_round=self.rounds)
        return self.rounds

    def _stages(self, X: Any) -> Iterator[tuple[int, np.ndarray]]:
        sums = np.zeros(X.shape[0])
        for start in range(0, self.rounds, self.every):
            stop = min(start + self.every, self.rounds)
            sums = sums + self.model_.inplace_predict(X, iteration_range=(start, stop))
            yield stop, sums

    def _score(self, X: Any) -> np.ndarray:
        return np.asarray(self.model_.inplace_predict(X, iteration_range=(0, self.choice_["rounds"])))


@dataclass(eq=False, repr=False)
class CatBoost(_Boosted):
    """CatBoost's trees on one of its losses of lists, one thread; documents are drawn at random, so it has a seed.

    Args:
        loss: by CatBoost's name, such as `"QueryRMSE"` or `"YetiRank"`.
        learning_rate: of boosting.
        depth: of a tree.

    Raises:
        ImportError: CatBoost is not installed.

    Source: Prokhorenkova, Gusev, Vorobev, Dorogush, Gulin, "CatBoost: Unbiased Boosting with Categorical Features", NeurIPS
    2018; Gulin, Kuralenok, Pavlov, "Winning the Transfer Learning Track of Yahoo!'s Learning to Rank Challenge with YetiRank",
    JMLR W&CP 14, 2011.
    """

    _: KW_ONLY
    loss: str = "QueryRMSE"
    learning_rate: float = 0.05
    depth: int = 6
    random_state: int = 0

    def _boost(self, X: Any, y: np.ndarray, offsets: np.ndarray) -> int:
        try:
            import catboost
        except ImportError as error:
            raise ImportError("CatBoost is not installed: pip install catboost") from error
        options = {
            "loss_function": self.loss,
            "iterations": self.rounds,
            "learning_rate": self.learning_rate,
            "depth": self.depth,
            "random_seed": self.random_state,
            "thread_count": 1,
            "verbose": False,
            "allow_writing_files": False,
        }
        lists = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        self.model_ = catboost.CatBoost(options).fit(catboost.Pool(dense(X), y, group_id=lists))
        return self.rounds

    def _stages(self, X: Any) -> Iterator[tuple[int, np.ndarray]]:
        stages = self.model_.staged_predict(dense(X), eval_period=self.every, thread_count=1)
        return ((min(number * self.every, self.rounds), scores) for number, scores in enumerate(stages, 1))

    def _score(self, X: Any) -> np.ndarray:
        return self.model_.predict(dense(X), ntree_end=self.choice_["rounds"], thread_count=1)


@dataclass(eq=False, repr=False)
class RankBoost(_Boosted):
    """RankBoost: a weighted vote of thresholded features, boosted over all pairs of documents of different grade.

    A round takes the threshold with the largest |r|, r = sum over pairs of D (h(better) - h(worse)), weighs it by
    1/2 ln((1 + r)/(1 - r)), and multiplies D by exp(-alpha (h(better) - h(worse))).

    Args:
        thresholds: a feature, at its quantiles.

    Source: Freund, Iyer, Schapire, Singer, "An Efficient Boosting Algorithm for Combining Preferences", JMLR 2003.
    """

    _: KW_ONLY
    thresholds: int = 50

    def _boost(self, X: Any, y: np.ndarray, offsets: np.ndarray) -> int:
        X = dense(X)
        better, worse = _ordered_pairs(y, offsets)
        if not len(better):
            raise ValueError("there is no pair of documents of one list with different labels")
        documents, d = X.shape
        width = self.thresholds + 1
        cuts = np.quantile(X, np.linspace(0, 1, width + 1)[1:-1], axis=0).T.astype(
            X.dtype
        )  # [d, thresholds], ascending
        codes = np.stack([np.searchsorted(cuts[f], X[:, f], side="left") for f in range(d)], axis=1)
        codes = (codes + width * np.arange(d)).ravel()
        D = np.full(len(better), 1.0 / len(better))
        self.votes_: list[tuple[int, float, float]] = []
        for _ in range(self.rounds):
            potential = np.bincount(better, D, documents) - np.bincount(worse, D, documents)
            mass = np.bincount(codes, np.repeat(potential, d), width * d).reshape(d, width)
            above = mass[:, ::-1].cumsum(1)[:, ::-1][:, 1:]  # [d, thresholds]: of the documents above each threshold
            feature, cut = np.unravel_index(np.abs(above).argmax(), above.shape)
            r = float(np.clip(above[feature, cut], -1 + 1e-9, 1 - 1e-9))
            if abs(r) < 1e-12:
                break
            alpha, threshold = 0.5 * np.log((1 + r) / (1 - r)), float(cuts[feature, cut])
            self.votes_.append((int(feature), threshold, alpha))
            h = (X[:, feature] > threshold).astype(float)
            D *= np.exp(-alpha * (h[better] - h[worse]))
            D /= D.sum()
        return len(self.votes_)

    def _stages(self, X: Any) -> Iterator[tuple[int, np.ndarray]]:
        X, sums = dense(X), np.zeros(X.shape[0])
        for number, (feature, threshold, alpha) in enumerate(self.votes_, 1):
            sums = sums + alpha * (X[:, feature] > threshold)
            yield number, sums


def _ordered_pairs(y: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the better and of the worse document of every pair of one list with different labels."""
    better, worse = [], []
    for start, stop in itertools.pairwise(offsets):
        i, j = np.nonzero(y[start:stop, None] > y[None, start:stop])
        better.append(i + start)
        worse.append(j + start)
    return np.concatenate(better), np.concatenate(worse)


@dataclass(eq=False, repr=False)
class SingleFeature(_Baseline):
    """One feature as the score: a base retrieval function, such as BM25; or the best of all.

    Args:
        feature: its column, from 0; None takes that with the best training measure, in the better of both directions.
        sign: 1 or -1, for a given feature.
    """

    feature: int | None = None
    _: KW_ONLY
    sign: int = 1
    select: str = "nDCG@10"

    def _fit(self, X: Any, y: np.ndarray, offsets: np.ndarray, held_out: HeldOut | None) -> None:
        self.choice_ = {"feature": self.feature, "sign": self.sign}
        if self.feature is None:
            qid = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            best = -np.inf
            for feature, sign in itertools.product(range(X.shape[1]), (1, -1)):
                value = mean_measure(sign * dense(X[:, [feature]]).ravel(), y, qid, self.select)
                if value > best:
                    best, self.choice_ = value, {"feature": feature, "sign": sign}
        elif not 0 <= self.feature < X.shape[1]:
            raise ValueError(f"feature must be a column from 0 to {X.shape[1] - 1}, got {self.feature}")

    def _score(self, X: Any) -> np.ndarray:
        return self.choice_["sign"] * dense(X[:, [self.choice_["feature"]]]).ravel()


@dataclass(eq=False, repr=False)
class RandomRanker(_Baseline):
    """Scores at random."""

    random_state: int = 0

    def _score(self, X: Any) -> np.ndarray:
        return np.random.default_rng(self.random_state).random(X.shape[0])


def _hinge(
    measure: str = "AP",
    C: Several = DEFAULT_C,
    *,
    feature_map: str | None = None,
    decay: str | None = None,
    reference: Reference = "ideal",
    max_rounds: int | None = None,
    tolerance: float = 1e-3,
    select: str | None = None,
) -> LinearRanker:
    loss = _papers_bound(measure, feature_map if decay is None else Positional(decay), reference)
    solver: Any = "bundle" if max_rounds is None else DC(solver=Bundle(tolerance=tolerance), max_rounds=max_rounds)
    begin: dict[str, Any] = {} if is_convex(loss) else {"start": "regression", "regularize_towards": "zero"}
    return LinearRanker(select or measure, C=C, loss=loss, prepare=(), solver=solver, tolerance=tolerance, **begin)


def _papers_bound(
    measure: str, feature_map: str | Positional | None = None, reference: Reference = "ideal"
) -> StructuredHingeLoss:
    """The bound that the papers have for a measure, where the library's default is one that learns more often."""
    if feature_map is None:
        kind = parse_measure(measure)
        feature_map = (
            "pairwise" if isinstance(kind, nDCG | P | pAUC) else "first-relevant" if isinstance(kind, RR) else None
        )
    return StructuredHingeLoss(measure, feature_map=feature_map, reference=reference)


def _smooth(
    measure: str = "nDCG@10",
    C: Several = DEFAULT_C,
    *,
    sigma: float = 1.0,
    stages: int = 4,
    max_iterations: int = 60,
    select: str | None = None,
) -> LinearRanker:
    annealing = Annealing(sigma=sigma, stages=stages, max_iterations=max_iterations)
    return LinearRanker(select or measure, C=C, loss=SmoothLoss(measure, sigma=sigma), prepare=(), solver=annealing)


def _combination(
    measures: Sequence[str] = ("AP", "nDCG(min_relevant=1)", "RR"),
    weights: Sequence[Any] = (1.0, 1.0, 0.1),
    C: Several = DEFAULT_C,
    *,
    tolerance: float = 1e-3,
    select: str = "nDCG@10",
) -> Any:
    several = [list(each) for each in weights] if np.ndim(weights[0]) else [list(weights)]

    def make(weights: list[float]) -> LinearRanker:
        loss = CombinedLoss([_papers_bound(m) for m in measures], weights)
        return LinearRanker(select, C=C, loss=loss, prepare=(), tolerance=tolerance)

    if len(several) == 1:
        return make(several[0])
    return Selected([({"weights": each}, make(each)) for each in several], select)


def _ranksvm(
    C: Several | None = None, *, pairs: str = "mean", tolerance: float = 1e-3, select: str = "nDCG@10"
) -> LinearRanker:
    if pairs not in ("mean", "all"):
        raise ValueError(f"pairs must be 'mean' (of each list) or 'all' (svm_rank's sum), got {pairs!r}")
    default = DEFAULT_C if pairs == "mean" else tuple(C / 1000 for C in DEFAULT_C)
    loss = RankSVMLoss() if pairs == "mean" else AllPairsLoss()
    return LinearRanker(select, C=default if C is None else C, loss=loss, prepare=(), tolerance=tolerance)


def _ensemble(
    members: Sequence[Mapping[str, Any]],
    *,
    seeds: int = 3,
    folds: int = 1,
    random_state: int = 0,
    select: str = "nDCG@10",
) -> EnsembleRanker:
    """Standardised scores averaged: of each member, `trainer` and its options, with as many seeds if it is random."""
    if seeds < 1 or not members:
        raise ValueError(f"an ensemble needs a member and a seed at least; got {len(members)} and {seeds}")
    rankers = []
    for member in members:
        drawn = "trainer" in member and is_stochastic(member["trainer"])
        numbers = range(random_state, random_state + (seeds if drawn else 1))
        rankers += [_nested("members", member, number, select) for number in numbers]
    return EnsembleRanker(rankers, measure=select, folds=folds, random_state=random_state)


def _nested(option: str, entry: Mapping[str, Any], seed: int, select: str | None) -> Any:
    """A trainer in an option of another, `trainer` and its options."""
    if "trainer" not in entry:
        raise ValueError(f"{option}: give `trainer` and its options, got {entry!r}")
    given = dict(entry)
    return make_trainer(given.pop("trainer"), seed=seed, select=select, **given)


#: Trainers by name; a new one is one line here.
TRAINERS: dict[str, Callable[..., Any]] = {
    "hinge": _hinge,  # SVMauc, SVMmap, SVMndcg, SVMmrr, precision@k; DORM and ORM with the positional map
    "combination": _combination,  # SVMcombo
    "smoothgrad": _smooth,
    "ranksvm": _ranksvm,
    "svm-ir": RankSVMforIR,
    "svmacc": LinearClassifier,
    "multiclass": MulticlassSVM,
    "ordinal": OrdinalRegression,
    "regression": Regression,
    "pairwise-regression": PairwiseRegression,
    "mcrank": McRank,
    "lambdamart": LambdaMART,
    "xgboost": XGBoost,
    "catboost": CatBoost,
    "rankboost": RankBoost,
    "listnet": functools.partial(GradientRanker, ListNetLoss()),
    "ranknet": functools.partial(GradientRanker, RankNetLoss()),
    "fidelity": functools.partial(GradientRanker, FidelityLoss()),  # FRank is `boosted`, on it
    "lambdarank": functools.partial(GradientRanker, LambdaLoss(measure="nDCG", scheme="lambdarank")),
    "linear": functools.partial(LinearRanker, prepare=()),  # on any loss; the plan prepares the features
    "mlp": functools.partial(MLPRanker, prepare=()),
    "boosted": functools.partial(BoostedRanker, n_jobs=1),
    "auto": functools.partial(AutoRanker, measure="AP"),  # which prepares the features itself
    "ensemble": _ensemble,  # of any of these, with several seeds
    "feature": SingleFeature,
    "random": RandomRanker,
}

#: Any option of these trainers may have several values; one that is not given has these.
TUNED: dict[str, dict[str, Any]] = {
    **{name: {"C": (1.0, 100.0, 10_000.0)} for name in ("ordinal", "listnet", "ranknet", "fidelity", "lambdarank")},
    **{name: {"leaves": (4, 8, 16)} for name in ("mcrank", "lambdamart", "xgboost")},
    "pairwise-regression": {"alpha": (1e-6, 1e-4, 0.01, 1.0)},
    "regression": {"alpha": (0.01, 1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0)},
}

#: Defaults that were others before: results of older versions are not taken for those of now.
CHANGED_DEFAULTS: dict[str, dict[str, Any]] = {name: {"tolerance": TIGHT} for name in ("svmacc", "multiclass")}


def make_trainer(name: str, *, seed: int = 0, select: str | None = None, **options: Any) -> Any:
    """A trainer by name.

    Args:
        name: one of `TRAINERS`.
        seed: for those that are random (`is_stochastic`).
        select: the measure that chooses settings by the validation lists, where there is one; None leaves the trainer's own
            choice, for `hinge` and `smoothgrad` the measure that they are trained for.
        options: of that trainer.

    Raises:
        ValueError: an unknown name or option, or an option's value.

    >>> make_trainer("hinge", measure="AP", C=10.0).C
    10.0
    >>> make_trainer("hinge", measure="AP", D=1.0)
    Traceback (most recent call last):
    ...
    ValueError: trainer 'hinge' has no option 'D'; it has measure, C, feature_map, decay, reference, max_rounds, tolerance, select
    """
    known = trainer_options(name)
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known)
            raise ValueError(f"trainer {name!r} has no option {option!r}; it has {', '.join(known)}{hint}")
    if is_stochastic(name):
        options.setdefault("random_state", seed)
    if select is not None and "select" in known:
        options.setdefault("select", select)
    if "select" in options:
        options["select"] = parse_measure(options["select"]).name
    for option in ("start", "leaf_ranker"):  # of boosted trees
        if isinstance(options.get(option), Mapping):
            options[option] = _nested(option, options[option], seed, select)
    if name not in TUNED:
        return TRAINERS[name](**options)
    given = {"select": "nDCG@10"} | TUNED[name] | options
    select = given["select"] if "select" in inspect.signature(TRAINERS[name]).parameters else given.pop("select")
    return _grid(TRAINERS[name], select, **given)


def trainer_options(name: str) -> list[str]:
    """The names of a trainer's options."""
    if name not in TRAINERS:
        raise ValueError(f"unknown trainer {name!r}; there are {', '.join(TRAINERS)}{did_you_mean(name, TRAINERS)}")
    own = inspect.signature(TRAINERS[name]).parameters
    return list(dict.fromkeys([*own, "select"] if name in TUNED else own))


def is_stochastic(name: str) -> bool:
    """Whether a trainer's result depends on a seed."""
    return "random_state" in trainer_options(name)
