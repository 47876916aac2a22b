"""Linear rankers, trained to the optimum.

    minimise  1/(2 C) ||w - w0||^2 + (1/Q) sum over lists of the loss of their scores X w

A convex loss is minimised to a certified gap; bounds whose reference depends on the scores by rounds of DC programming; smoothed
measures by L-BFGS with annealing.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import nn
from typing_extensions import Self

from rankstruct.checks import check_choice
from rankstruct.constraints.pages import Packed
from rankstruct.data import RankingData
from rankstruct.data.clean import keep_documents
from rankstruct.estimators.base import PREPARE, Ranker, check_groups_of, named_loss, quantiles_of, recording_gradients
from rankstruct.estimators.ensemble import deal_lists
from rankstruct.estimators.from_clicks import CLICK_COSTS
from rankstruct.estimators.training_data import TrainingData, check_ids, dense, gather, whole
from rankstruct.feature_maps import FeatureMap
from rankstruct.kernels.dispatch import ArrayOracle
from rankstruct.lists import Lists
from rankstruct.losses import (
    AdditiveRankLoss,
    GradedLoss,
    SmoothLoss,
    StructuredHingeLoss,
    convex_part,
    is_convex,
    takes_columns,
    takes_groups,
    takes_reference_scores,
)
from rankstruct.losses.hinge import HingeLoss
from rankstruct.measures import DiscountedGain, Diverse, Measure, evaluate, nDCG
from rankstruct.models import LinearScorer
from rankstruct.models.scorers import split_preparation
from rankstruct.oracles.registry import Reference
from rankstruct.preparation import Preparation, encoded_first
from rankstruct.processes import Team, find_team
from rankstruct.solvers import (
    DC,
    Annealing,
    Bundle,
    CuttingPlane,
    FrankWolfe,
    LinearRisk,
    NoTerms,
    RowsOf,
    Solution,
    Solver,
    Status,
    group_regression,
    linear_scores,
    solve_together,
)

__all__ = ["LinearRanker"]

_START_CS = (0.01, 0.1, 1.0, 10.0)  # of `start="auc"`; the last C without validation lists
_USUAL_C, _OTHER_COSTS = 10.0, (0.01, 0.1, 1.0, 10.0, 100.0)
#: Of choices by clicks: the number of folds, the tolerance of training, documents up to which all lists are used, and standard
#: errors by which another candidate must beat the one that stands.
_FOLDS, _ROUGHLY, _ENOUGH, _ERRORS = 3, 1e-2, 20_000, 2.0
_SCALES = 1e5  # ratio of feature ranges above which a warning is issued
_SOLVERS = {"bundle": Bundle, "cutting-plane": CuttingPlane, "frank-wolfe": FrankWolfe}


@recording_gradients()
def ranking_risk(loss: nn.Module, lists: RankingData, *, reference_scores: np.ndarray | None = None) -> LinearRisk:
    """The mean of a loss over lists, as a function of the weights w of a linear scorer, for the solvers.

    The reduction of the loss is ignored. Features are not copied; reference scores are `[documents]`. Weights of the lists, which
    multiply the losses, and of documents are those of `TrainingData`, if it is that.

    Raises:
        ValueError: the loss needs groups, and there are none.
        TypeError: on evaluation, item weights with a loss that does not accept them.

    >>> lists = RankingData.from_arrays([[0.0], [1.0], [2.0]], [0, 0, 1], ["a", "a", "a"])
    >>> ranking_risk(StructuredHingeLoss("AUC"), lists)(np.array([0.1]))
    (0.7..., array([-3.]))
    """
    check_groups_of(loss, lists.diversity_groups)
    loss = copy.deepcopy(loss)  # of `PerturbedLoss` and the like, the reduction is that of the loss within
    loss.reduction = "none"  # type: ignore[assignment]
    weights, item_weights = (lists.weights, lists.item_weights) if isinstance(lists, TrainingData) else (None, None)
    labels, offsets = torch.tensor(lists.labels), torch.tensor(lists.offsets)
    under_rules = takes_columns(loss)
    columns = {"diversity_groups": lists.diversity_groups if takes_groups(loss) or under_rules else None}
    columns |= {"item_weights": item_weights, "reference_scores": reference_scores}
    flat = Lists(
        labels, offsets=offsets, **{name: torch.tensor(each) for name, each in columns.items() if each is not None}
    )

    @recording_gradients()
    def ask(scores: np.ndarray, of: Lists = flat) -> tuple[Any, Any]:
        leaf = torch.from_numpy(scores).requires_grad_()
        given = of.given()
        if under_rules and "diversity_groups" in given:
            given["columns"] = Packed(given.pop("diversity_groups"))
        values = loss(leaf, of.labels, **given)
        (direction,) = torch.autograd.grad(values.sum(), leaf)
        return values.detach().numpy(), direction.numpy()

    def terms(scores: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        lengths = offsets.diff()[indices]
        bounds = torch.cat([offsets[:1], lengths.cumsum(0)])
        rows = torch.arange(len(scores)) + torch.repeat_interleave(offsets[indices] - bounds[:-1], lengths)
        return ask(scores, flat.documents(lambda column: column[rows])._replace(offsets=bounds))

    oracle: ArrayOracle = ask
    plain = item_weights is None and reference_scores is None
    if type(loss) in (StructuredHingeLoss, GradedLoss) and plain:  # a subclass may override `of_lists`
        groups = flat.diversity_groups if under_rules else None
        oracle = cast(HingeLoss, loss).at_once(Lists(labels, offsets=offsets, diversity_groups=groups), ask)
    return LinearRisk(lists, oracle, weights, term_oracle=terms)


def _warn_of_scales(X: Any) -> None:
    """Warn if some features have so much larger ranges than others that regularisation suppresses the latter."""
    X = X.X if isinstance(X, RowsOf) else X
    highest, lowest = (np.ravel(dense(each)) for each in (X.max(axis=0), X.min(axis=0)))
    ranges = np.subtract(highest, lowest, dtype=np.float64)
    narrow, wide = np.where(ranges > 0, ranges, np.inf).argmin(), ranges.argmax()
    how = "prepare=['log'], or dense features" if sp.issparse(X) else "prepare=['standardize']"
    if ranges[wide] > _SCALES * ranges[narrow] > 0:
        warnings.warn(
            f"features have very different scales (feature {wide} has range {ranges[wide]:.3g}, feature {narrow} has "
            f"{ranges[narrow]:.3g}, counting from 0), so a linear ranker gives the small ones hardly any weight; use "
            f"{how}",
            stacklevel=7,
        )


class LinearRanker(Ranker):
    """A linear ranker, trained to the optimum of a ranking loss.

    Args:
        measure: the measure to optimise, or its name; a `Diverse` one by the hinge over diverse rankings. It also selects C, and
            `score` reports it. None is the measure of a loss over diverse rankings, and otherwise `measure_`: nDCG@10 for graded
            labels and AP for binary ones; the loss is then the hinge of AP (SVMmap), for graded labels that at every grade,
            `GradedLoss("AP")`, or at 8 quantiles of real-valued ones. It is convex, several times as fast as the bound of
            nDCG@10, and the safer one on few lists; the page "What the first calls do" compares them. With item weights
            it is `GradedLoss("AUC")`.
        C: the weight of the loss against the regulariser, 1 / lambda; or several values, one of which is selected on the
            validation lists passed to `fit`. They are trained in ascending order from the previous solution (or from `start`,
            if the problem is not convex and that is better). The page "Which bound is the default" compares 1, 10 and 100.
            Large values overfit: on 63 training lists of OHSUMED, from C = 10 to 1000, nDCG@10 rises in training and falls in
            validation, with this bound and with the graded AUC hinge. None is 10; from clicks, held-out lists select C.
        feature_map: the feature map of rankings; the measure's default if None.
        reference: the reference ranking of the bound; the measure's default if None. `"ideal"` is convex, but the optimum may be
            w = 0 for a measure of the top only; `"ideal-tied"` and `"predicted"` are tighter and solved by rounds of DC
            programming, as is `"below-window"` of pAUC.
        loss: any loss of rankstruct in place of the structured hinge of `measure`, a module such as `CombinedLoss` (SVMcombo),
            `SmoothLoss` or `SoftRankLoss`, or its name and arguments, such as `"GradedLoss('AUC')"`; `feature_map` and
            `reference` are then ignored. From clicks they are ignored, too; None is then `AdditiveRankLoss` with the linear or
            the logarithmic discount, whichever is better on held-out lists.
        prepare: preparation steps, fitted to the training documents, such as `["append-log", "standardize"]`; see
            `rankstruct.preparation.Preparation`. `()` trains on raw features. None is `("append-quantile", "standardize")`, so
            that units and heavy tails do not matter; sparse features stay raw, since these steps do not keep zeros. The page
            "Which preparation is the default" compares them.
        solver: `"bundle"`, `"cutting-plane"` (n-slack), `"frank-wolfe"`, or a configured solver of `rankstruct.solvers`,
            including `DC` and `Annealing` for the losses that need them.
        tolerance: relative gap to stop at. Not used for a `SmoothLoss`; pass `solver=Annealing(...)` for its options.
        max_iterations: of the solver; not used for a `SmoothLoss`.
        start: `"zero"`, `"regression"` (least squares on the gains) or `"auc"` (the optimum of `GradedLoss("AUC")` to a gap of
            1e-2, for the C from 0.01 to 10 that is best on the validation lists, 10 without them). None is `"auc"` for a bound
            that is not convex, except `AdditiveRankLoss`, and regression for a `SmoothLoss`.
        regularize_towards: `"zero"` or the `"start"`; None is the start for a bound that is not convex, and zero otherwise.
        drop_empty: skip lists whose labels are all equal, as training with Lightning does.
        verbose: show a progress bar with the gap.
        distributed: whether each process of `torch.distributed` passes its share of the lists to `fit`, and all processes fit one
            ranker to all lists; each must call `fit`, and also `mean_loss` and `objective`.

    Attributes:
        measure_: the measure, `measure` unless that is None.
        preparation_: the fitted preparation.
        coef_: `[d]`, the weights of prepared features: of the raw ones with `prepare=()`; with the default, first of the
            standardised features and then of their standardised quantiles.
        C_: the selected C.
        solution_: its `Solution`, with `objective`, `lower_bound`, `gap`, `status`, `history`.
        path_: one `Solution` per C, ascending; from clicks only that of the C chosen, unless there are validation lists.
        Cs_: the values of C of `path_`.
        validation_: the measure on the validation lists for each C; None without them, and from clicks the value of C_
            by cross-validation, if there was a choice. If there are several C, the value of C_ is optimistic for new lists.
        loss_: from clicks where `loss` is None, the name and arguments of the loss that was chosen; None otherwise.
        w0_: `[d]`, of prepared features, the point that the regulariser pulls towards.
        left_out_: number of training lists skipped by `drop_empty`.
        n_features_in_: number of raw features.

    Documents of one `qid` form a list, wherever their rows are. Routing of `qid` through scikit-learn is requested by default:

    >>> import sklearn
    >>> from sklearn.model_selection import GridSearchCV, GroupKFold
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(200, 3)), np.repeat(np.arange(20), 10)
    >>> y = (X[:, 0] + 0.5 * rng.normal(size=200) > 1).astype(int)
    >>> ranker = LinearRanker("AP", C=10.0).fit(X, y, qid)
    >>> print(ranker.solution_.status, ranker.solution_.gap <= 1e-3)
    converged True
    >>> hosts = rng.choice(["a.org", "b.org", "c.org"], size=200)
    >>> diverse = LinearRanker("diverse_nDCG@2", reference="predicted").fit(X, y, qid, diversity_groups=hosts)
    >>> diverse.score(X, y, qid, diversity_groups=hosts) > 0.5
    True
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     search = GridSearchCV(LinearRanker("AP"), {"C": [0.1, 10.0]}, cv=GroupKFold(4)).fit(X, y, qid=qid, groups=qid)
    >>> bool(search.best_score_ > 0.5)
    True
    """

    #: Whether clicks on held-out lists choose what is not given.
    chooses_by_clicks: bool = True
    trains_under_rules = True

    def __init__(
        self,
        measure: str | Measure | None = None,
        *,
        C: float | Sequence[float] | None = None,
        feature_map: str | FeatureMap | None = None,
        reference: Reference | None = None,
        loss: str | nn.Module | None = None,
        prepare: Sequence[str] | None = None,
        solver: str | Solver | DC | Annealing = "bundle",
        tolerance: float = 1e-3,
        max_iterations: int = 10_000,
        start: str | None = None,
        regularize_towards: str | None = None,
        drop_empty: bool = True,
        verbose: bool = False,
        distributed: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.measure, self.feature_map, self.reference, self.loss = measure, feature_map, reference, loss
        self.C, self.solver, self.tolerance, self.max_iterations = C, solver, tolerance, max_iterations
        self.prepare, self.start, self.regularize_towards = prepare, start, regularize_towards
        self.drop_empty, self.verbose, self.distributed = drop_empty, verbose, distributed

    def _check_fit_options(self, has_validation: bool) -> None:
        self._costs()

    def _fit(self, train: TrainingData, valid: TrainingData | None) -> str | None:
        self.loss_: str | None = None
        self.validation_: list[float] | None
        chooses = self.from_clicks and self.chooses_by_clicks
        if (number := len(self._costs())) > 1 and valid is None and not chooses:
            raise ValueError(f"C has {number} values; pass X_valid, y_valid and qid_valid to select one, or a single C")
        chosen = self._choose_by_clicks(train, valid) if chooses else None
        stopped = self._fit_path(train, valid, self._costs() if chosen is None else [chosen[0]])
        if chosen is not None:
            self.validation_ = [chosen[1]]
        if stopped is None and self.solution_.status is Status.NO_BETTER_THAN_ZERO:
            warnings.warn(f"{type(self).__name__}, C = {self.C_:g}: {self.solution_.status}", stacklevel=4)
        return stopped

    def _fit_path(self, train: TrainingData, valid: TrainingData | None, Cs: list[float]) -> str | None:
        """Train with each C, and use the best on the validation lists; returns as `_fit`."""
        lists, self.Cs_ = self._fitted_lists(train), Cs
        self.path_: list[Solution] = []
        self.validation_ = None if valid is None else []
        loss = self.ranking_loss(weighted=lists.item_weights is not None)
        start = self._start(loss, lists, valid)
        self.w0_ = start if self._draws_to_start(loss) else np.zeros(lists.features.shape[1])
        self.left_out_ = self._total(train.num_lists - lists.num_lists)
        # With all scores tied, a smoothed measure bounds nothing.
        risk, at_zero = _risk(loss, lists), math.inf
        if not isinstance(loss, SmoothLoss):
            at_zero = self._mean(risk, np.zeros(lists.num_features))
        solution, chosen = None, 0
        for number, C in enumerate(Cs):
            solution = self._solve(loss, lists, risk, C, start, solution)
            self.path_.append(self._judged(loss, solution, C, at_zero, lists))
            self.use_path(number)
            if solution.status is Status.INTERRUPTED:
                return f"stopped at C = {C:g}; coef_ has the best weights so far"
            if self.validation_ is not None and valid is not None:
                self.validation_.append(self._validated(valid))
                chosen = number if self.validation_[number] > self.validation_[chosen] else chosen
        self.use_path(chosen)
        return None

    def _validated(self, valid: TrainingData) -> float:
        """The mean measure of the present weights over the validation lists of all processes."""
        values = self._values_of(valid)
        return self._total(float(values.sum())) / self._total(len(values))

    def _values_of(self, lists: TrainingData) -> torch.Tensor:
        scores = self._scores(whole(lists.features), lists.ids)
        return self._values(scores, lists.labels, offsets=lists.offsets, **lists.optional)

    def _choose_by_clicks(self, train: TrainingData, valid: TrainingData | None) -> tuple[float, float] | None:
        """Set `loss_`; returns C and its value on held-out lists; None if C is given and there is one, or `valid` chooses it.

        The measure of a held-out list is that of its clicks, weighted as those of training, and counts by its number of sessions,
        as in `evaluate_from_clicks`. Few lists cannot tell much; so the middle C of the first loss stands unless another one is
        better by more than two standard errors of the difference, paired by list. Of values of C that the caller gave, the best
        one is taken. If there are many lists, some are enough to choose; of one list with clicks, the value is NaN.
        """
        losses: list[str | None] = [None]
        if self.loss is None:
            losses = [f"AdditiveRankLoss({discount!r})" for discount in CLICK_COSTS]
        self.loss_ = losses[0]
        Cs = self._costs()
        if len(losses) == 1 and (len(Cs) == 1 or (valid is not None and self.C is not None)):
            return None
        middle = len(Cs) // 2 if self.C is None else None
        # there is nothing to hold out
        if valid is None and (np.maximum.reduceat(train.labels, train.offsets[:-1]) > 0).sum() < 2:
            if middle is None and len(Cs) > 1:
                raise ValueError(
                    f"C has {len(Cs)} values, and only one list has clicks, so none is held out to select one; pass a single C"
                )
            return None if middle is None else (Cs[middle], math.nan)
        if valid is None and self._team().world_size > 1:
            raise ValueError(
                "distributed=True cannot choose the loss and C by held-out clicks: pass loss=AdditiveRankLoss('linear') and C=, "
                "or validation lists"
            )
        pairs = [] if valid is None else [(train, valid)]
        if valid is None:
            train = _some_lists(train)
            parts = deal_lists(train, _FOLDS, 0, from_clicks=True)
            masks = [parts == part for part in range(parts.max() + 1)]
            pairs = [(keep_documents(train, ~mask), keep_documents(train, mask)) for mask in masks]
        held = [held_out for _, held_out in pairs]
        weights = np.concatenate([np.ones(each.num_lists) if each.weights is None else each.weights for each in held])
        candidates: list[tuple[str | None, float]] = []
        values: list[np.ndarray] = []
        for self.loss_ in losses:
            found = [self._values_of_path(*pair) for pair in pairs]
            candidates += [(self.loss_, C) for C in self._costs()]
            values += list(np.concatenate(found, 1) * weights / weights.mean())
        chosen = _best_of(values, middle)
        self.loss_, C = candidates[chosen]
        return (C, float(values[chosen].mean())) if self.C is None or valid is None else None

    def _values_of_path(self, train: TrainingData, held_out: TrainingData) -> np.ndarray:
        """The measure of each held-out list for each C, `[Cs, lists]`, of a copy trained roughly."""
        trained = copy.copy(self)
        trained.tolerance = max(self.tolerance, _ROUGHLY)
        if trained._fit_path(train, None, self._costs()) is not None:
            raise KeyboardInterrupt("stopped while clicks on held-out lists chose the loss and C; nothing was kept")
        return np.stack([trained.use_path(at)._values_of(held_out).numpy() for at in range(len(trained.path_))])

    def _loss(self, usual: Callable[[], nn.Module], labels: np.ndarray | None = None) -> nn.Module:
        chosen = self.loss_ if self.from_clicks and self.loss is None and getattr(self, "loss_", None) else None
        return super()._loss(usual, labels) if chosen is None else cast(nn.Module, named_loss(chosen))

    def _judged(self, loss: nn.Module, solution: Solution, C: float, at_zero: float, lists: TrainingData) -> Solution:
        """Set the status of a solution that is no better than w = 0 or ties all documents of each list. For a bound with local
        optima, whose value may be unrelated to the ranking, the measure is checked too.
        """
        scores, starts = linear_scores(lists.features, solution.w), lists.offsets[:-1]
        apart = np.minimum.reduceat(scores, starts) < np.maximum.reduceat(scores, starts) if len(starts) else starts
        learned = self._total(int(apart.sum())) > 0
        if learned and solution.status is Status.CONVERGED:
            learned = solution.objective < (at_zero + float(self.w0_ @ self.w0_) / (2 * C)) * (1 - 1e-9)
            learned = learned or (not is_convex(loss) and self._ranks(scores, lists))
        return solution if learned else replace(solution, status=Status.NO_BETTER_THAN_ZERO)

    def _ranks(self, scores: np.ndarray, lists: TrainingData) -> bool:
        """Whether the training measure exceeds that of tied scores, and is not two standard errors below that of w0."""
        measure = self._measure()
        if measure.takes_groups and lists.diversity_groups is None:
            return False
        given: dict[str, Any] = {"offsets": lists.offsets, "diversity_groups": lists.diversity_groups}
        found, tied, begun = (
            evaluate(each, lists.labels, [measure], **given)[measure.name].numpy()
            for each in (scores, np.zeros_like(scores), linear_scores(lists.features, self.w0_))
        )
        lost = begun - found
        sums = [(found - tied).sum(), lost.sum(), np.square(lost).sum(), len(lost)]
        gained, total, squares, number = self._team().sum(np.array(sums, float)).tolist()
        return gained > 0 and total <= 2 * math.sqrt(max(squares - total**2 / number, 0.0))

    def use_path(self, number: int) -> Self:
        """Use the solution of another C of the path, the `number`-th in ascending order, from 0; returns the ranker itself.

        Its scores are not calibrated.
        """
        solution = self.path_[number]
        Cs = getattr(self, "Cs_", None) or self._costs()  # not stored by earlier versions
        self.solution_, self.C_, self.coef_ = solution, Cs[number], solution.w
        self.n_iter_ = solution.iterations
        if hasattr(self, "calibration_"):  # of other scores
            del self.calibration_
        return self

    def _team(self) -> Team:
        return find_team() if self.distributed else Team()

    def _costs(self) -> list[float]:
        Cs: list[float] = []
        with suppress(TypeError, ValueError, OverflowError):  # not a number
            Cs = sorted(np.ravel(np.asarray(self._usual_costs() if self.C is None else self.C, dtype=float)).tolist())
        if not Cs or not all(np.isfinite(C) and C > 0 for C in Cs):
            raise ValueError(f"C must be one or more positive numbers, got {self.C!r}")
        check_choice("start", self.start, (None, "zero", "regression", "auc"))
        check_choice("regularize_towards", self.regularize_towards, (None, "zero", "start"))
        return Cs

    def _usual_costs(self) -> Sequence[float]:
        """The values of C where none is given."""
        if not self.from_clicks:
            return (_USUAL_C,)
        loss = named_loss(getattr(self, "loss_", None) if self.loss is None else self.loss)
        return CLICK_COSTS[loss.discount] if isinstance(loss, AdditiveRankLoss) else _OTHER_COSTS

    def steps(self, X: Any) -> Sequence[str]:
        """Return the preparation steps that `fit` would use for features: `prepare`, or the default for it."""
        if self.prepare is not None:
            return self.prepare
        return () if sp.issparse(X) else PREPARE

    def _fit_preparation(self, lists: TrainingData) -> TrainingData:
        X = lists.features.X if isinstance(lists.features, RowsOf) else lists.features
        if self.distributed and self._total(len(encoded_first(self.steps(X), X, self.preparation_.columns))):
            raise ValueError(
                "with distributed=True, prepare the documents first, also missing values and categories, and pass prepare=(): no "
                "process has all of them to fit the steps to"
            )
        return super()._fit_preparation(lists)

    def _fitted_lists(self, train: TrainingData) -> TrainingData:
        prepared = self._fit_preparation(train)
        return self._training_lists(replace(prepared, features=self._fit_features(prepared)))

    def _fit_features(self, lists: TrainingData) -> Any:
        """The features that the weights apply to, for training lists."""
        if not self.preparation_.names:
            _warn_of_scales(lists.features)
        return lists.features

    def _features(self, X: Any) -> Any:
        """The features that the weights apply to."""
        return X

    def ranking_loss(self, labels: np.ndarray | None = None, *, weighted: bool = False) -> nn.Module:
        """Return the loss that `fit` minimises: `loss`, or the structured hinge of `measure`; raises ValueError if invalid.

        If `measure` is None it is the hinge of AP, for graded labels at every grade. `labels` are those of training, which decide
        on this before `fit`; without them it is AP. AP takes no item weights: if documents are `weighted`, it is
        the graded AUC hinge.
        """
        measure, options = self._measure(labels), {"feature_map": self.feature_map, "reference": self.reference}

        def usual() -> nn.Module:
            if self.measure is None and not any(options.values()) and (weighted or measure.name != "AP"):
                return GradedLoss("AUC" if weighted else "AP")
            return StructuredHingeLoss(measure, **options)  # type: ignore[arg-type]

        loss = self._loss(usual, labels)
        if any(True for _ in loss.parameters()):
            raise ValueError(f"{type(loss).__name__} has learnable parameters, which only training by SGD fits")
        return loss

    def _draws_to_start(self, loss: nn.Module) -> bool:
        towards = self.regularize_towards
        return towards == "start" or (towards is None and not is_convex(loss) and takes_reference_scores(loss))

    def _start(self, loss: nn.Module, lists: TrainingData, valid: TrainingData | None = None) -> np.ndarray:
        from_zero = is_convex(loss) or isinstance(loss, AdditiveRankLoss)
        kind = self.start or ("zero" if from_zero else "auc" if takes_reference_scores(loss) else "regression")
        if kind == "zero" and isinstance(loss, SmoothLoss):
            raise ValueError("start must not be 'zero' for a SmoothLoss: its gradient is 0 if all scores tie")
        if kind == "zero":
            return np.zeros(lists.features.shape[1])
        if kind == "auc":
            return self._best_auc(lists, valid)
        measure = getattr(loss, "measure", None)
        measure = measure.plain if isinstance(measure, Diverse) else measure
        gains = (measure if isinstance(measure, DiscountedGain) else nDCG()).document_gains(torch.tensor(lists.labels))
        return self._team().hand_out(
            group_regression(lists.features, gains.numpy(), lists.offsets, self._team(), lists.weights)
        )

    def _best_auc(self, lists: TrainingData, valid: TrainingData | None) -> np.ndarray:
        """The optimum for `GradedLoss("AUC")`, a reliable convex bound; validation lists select its C."""
        risk = _risk(GradedLoss("AUC", grades=quantiles_of(self._grades(lists.labels))), lists)
        team, solver = self._team(), Bundle(tolerance=1e-2)
        found: list[tuple[float, np.ndarray]] = []
        for C in _START_CS if valid is not None else _START_CS[-1:]:

            def solve(risks: Sequence[Any], C: float = C) -> Solution:
                return solver.minimise(risks[0], C)

            solution = solve_together([risk], solve, team)
            if solution.status is Status.INTERRUPTED:
                raise KeyboardInterrupt("stopped before the first C")
            if valid is None:
                return solution.w
            self.path_ = [solution]
            found.append((self.use_path(0)._validated(valid), solution.w))
        self.path_ = []
        return max(found, key=lambda each: each[0])[1]

    def _solve(
        self,
        loss: nn.Module,
        lists: TrainingData,
        risk: LinearRisk | NoTerms,
        C: float,
        start: np.ndarray,
        before: Solution | None,
    ) -> Solution:
        starts, risks, w0 = [start] if before is None else [before.w, start], [risk], self.w0_
        if is_convex(loss):
            solver = self._solver()

            def solve(risks: Sequence[Any]) -> Solution:
                return solver.minimise(risks[0], C, w0=w0, warm_start=start if before is None else before)

        elif isinstance(loss, AdditiveRankLoss):
            if self._team().world_size > 1:
                raise ValueError(
                    f"distributed=True does not support {loss!r}; use discount='linear' or a single process"
                )

            def bound_at(w: np.ndarray) -> LinearRisk:
                return ranking_risk(loss, lists, reference_scores=linear_scores(lists.features, w))

            def solve(risks: Sequence[Any]) -> Solution:
                at = _lowest(risks[0], C, w0, starts)
                return self._rounds().minimise_bounds(risks[0], bound_at, C, w0=w0, start=at)

        elif takes_reference_scores(loss):
            risks = [_risk(convex_part(loss), lists), risk]

            def solve(risks: Sequence[Any]) -> Solution:
                convex, true = risks

                def concave(w: np.ndarray) -> tuple[float, np.ndarray]:
                    (value, gradient), (whole, slope) = convex(w), true(w)
                    return value - whole, gradient - slope

                return self._rounds().minimise(convex, concave, C, w0=w0, start=_lowest(true, C, w0, starts))

        elif isinstance(loss, SmoothLoss):
            annealing = self._annealing(loss)
            risks = [_risk(loss.with_sigma(sigma), lists) for sigma in annealing.sigmas]

            def solve(risks: Sequence[Any]) -> Solution:
                smooth = dict(zip(annealing.sigmas, risks, strict=True))
                return annealing.minimise(smooth.__getitem__, C, w0=w0, start=_lowest(risks[-1], C, w0, starts))

        else:
            raise ValueError(
                f"{type(loss).__name__} is neither convex, nor a bound with a reference, nor a SmoothLoss; use "
                "MLPRanker, which is linear with hidden=[], or Lightning"
            )
        return solve_together(risks, solve, self._team()) if self.distributed else solve(risks)

    def _rounds(self) -> DC:
        return self.solver if isinstance(self.solver, DC) else DC(solver=self._solver(), progress=self.verbose)

    def _solver(self) -> Solver:
        if isinstance(self.solver, Solver):
            return self.solver
        if self.solver not in _SOLVERS:
            raise ValueError(
                f"solver must be one of {', '.join(map(repr, _SOLVERS))} or a solver object that supports the loss, "
                f"got {self.solver!r}"
            )
        kind = _SOLVERS[self.solver]
        return kind(tolerance=self.tolerance, max_iterations=self.max_iterations, progress=self.verbose)

    def _scores(self, X: Any, qid: np.ndarray | None) -> np.ndarray:
        return linear_scores(self._prepared(X, qid), self.coef_)

    def to_scorer(self) -> nn.Module:
        """Return a PyTorch scorer of raw features with these weights, float32, as Lightning trains it."""
        check_is_fitted(self)
        scorer = LinearScorer(len(self.coef_)).float()
        with torch.no_grad():
            scorer.linear.weight.copy_(torch.as_tensor(self.coef_))
        return self._as_scorer(scorer)

    @classmethod
    def from_scorer(cls, scorer: nn.Module, **options: Any) -> LinearRanker:
        """Create a ranker with a copy of the weights of a linear scorer, for example one trained with Lightning.

        Options are those of the ranker, except `prepare`, which is taken from the scorer.

        >>> LinearRanker.from_scorer(LinearScorer(2)).predict(np.ones((1, 2)))
        array([0.])
        """
        ranker = cls(**options)
        scorer, preparation = split_preparation(scorer)
        if not isinstance(scorer, LinearScorer):
            raise TypeError(
                f"scorer must be a LinearScorer, with or without preparation; got a {type(scorer).__name__}"
            )
        ranker.preparation_ = Preparation()
        ranker.coef_ = scorer.linear.weight.detach().double().cpu().numpy()[0].copy()
        ranker.n_features_in_ = len(ranker.coef_)
        return ranker.prepend(preparation)

    def risk(
        self, X: Any, y: Any, qid: Any, *, diversity_groups: Any = None, columns: Mapping[str, Any] | None = None
    ) -> LinearRisk:
        """Return the mean loss over the lists that `fit` trains on, as a function of the weights, for `rankstruct.solvers`."""
        lists = self._lists_of(X, y, qid, diversity_groups, columns)
        return ranking_risk(self.ranking_loss(lists.labels), lists)

    def mean_loss(
        self,
        w: np.ndarray,
        X: Any,
        y: Any,
        qid: Any,
        *,
        diversity_groups: Any = None,
        columns: Mapping[str, Any] | None = None,
    ) -> float:
        """Return the mean loss at any weights `[d]` of prepared features, over the lists that `fit` trains on.

        A `SmoothLoss` is evaluated with the last sigma of the annealing, like `solution_.objective`.
        """
        lists = self._lists_of(X, y, qid, diversity_groups, columns)
        loss = self.ranking_loss(lists.labels)
        if isinstance(loss, SmoothLoss):
            loss = loss.with_sigma(self._annealing(loss).last_sigma)
        return self._mean(_risk(loss, lists), np.asarray(w, np.float64))

    def _mean(self, risk: LinearRisk | NoTerms, w: np.ndarray) -> float:
        """The risk at `w` over the lists of all processes."""
        value = risk(w)[0]
        return self._total(value * risk.terms) / self._total(risk.terms) if self.distributed else value

    def objective(
        self,
        w: np.ndarray,
        X: Any,
        y: Any,
        qid: Any,
        C: float | None = None,
        *,
        diversity_groups: Any = None,
        columns: Mapping[str, Any] | None = None,
    ) -> float:
        """Return the objective of `fit` at any weights `[d]` of prepared features, such as those of a scorer trained by SGD."""
        away, lists = np.asarray(w, np.float64), self._lists_of(X, y, qid, diversity_groups, columns)
        loss = self.ranking_loss(lists.labels)
        if self._draws_to_start(loss):
            away = away - (self.w0_ if hasattr(self, "w0_") else self._start(loss, lists))
        usual = self.C_ if self.C is None and hasattr(self, "C_") else self._costs()[0]
        C = usual if C is None else C
        return float(away @ away) / (2 * C) + self.mean_loss(
            w, X, y, qid, diversity_groups=diversity_groups, columns=columns
        )

    def _lists_of(
        self, X: Any, y: Any, qid: Any, diversity_groups: Any, columns: Mapping[str, Any] | None
    ) -> TrainingData:
        fitted = hasattr(self, "coef_")
        ranker = self if fitted else clone(self)
        X, y = ranker._check(X, y, reset=not fitted)
        qid, diversity_groups = check_ids(X, qid, diversity_groups)
        lists = gather(X, y, qid, self._packed(columns, qid, diversity_groups))
        if not fitted:
            return ranker._fitted_lists(lists)
        prepared = self._prepared_lists(lists)
        return self._training_lists(replace(prepared, features=self._features(prepared.features)))

    def _annealing(self, loss: SmoothLoss) -> Annealing:
        if isinstance(self.solver, Annealing):
            return self.solver
        self._solver()  # checks the options as for other losses
        return Annealing(sigma=float(loss.sigma), progress=self.verbose)


def _best_of(values: Sequence[np.ndarray], standing: int | None) -> int:
    """The candidate with the best mean, if it is better than the `standing` one by more than two standard errors."""
    best = int(np.argmax([each.mean() for each in values]))
    if standing is None:
        return best
    ahead = values[best] - values[standing]
    error = float(ahead.std(ddof=1)) / len(ahead) ** 0.5 if len(ahead) > 1 else np.inf
    return best if ahead.mean() > _ERRORS * error else standing


def _some_lists(lists: TrainingData) -> TrainingData:
    """All lists, or some drawn at random, with about as many documents as `_ENOUGH`."""
    share = min(1.0, _ENOUGH / max(lists.num_documents, 1))
    drawn = np.random.default_rng(0).permutation(lists.num_lists)[: max(2, round(share * lists.num_lists))]
    return lists.select(np.isin(lists.places, drawn))


def _risk(loss: nn.Module, lists: TrainingData) -> LinearRisk | NoTerms:
    """The mean loss over the lists of this process, if it has any."""
    return ranking_risk(loss, lists) if lists.num_lists else NoTerms(lists.num_features)


def _lowest(risk: Any, C: float, w0: np.ndarray, points: Sequence[np.ndarray]) -> np.ndarray:
    """The point with the lowest regularised risk: the solution for a small C may be a bad start for a larger one."""
    if len(points) == 1:
        return points[0]
    return min(points, key=lambda w: float((w - w0) @ (w - w0)) / (2 * C) + risk(w)[0])
