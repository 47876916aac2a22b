"""Diagnostics of exact fits: a path of C, the distance of other weights from the optimum, and whether a loss learns.

The diagnostics are those of Chakrabarti, Khanna, Sawant, Bhattacharyya, KDD 2008, figures 4 to 8, and of ORM's table 2: slack,
objective over that at w = 0, ||w||^2, number of planes, and the shares of time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from rankstruct.calibration import evaluate_probabilities, reliability
from rankstruct.checks import check_numbers
from rankstruct.data import DataError, RankingData
from rankstruct.estimators import LinearRanker
from rankstruct.losses import is_convex, takes_groups
from rankstruct.measures import Measure, evaluate, parse_measure
from rankstruct.messages import shortened
from rankstruct.models import LinearScorer
from rankstruct.solvers import Solution

__all__ = ["Certificate", "certify", "health_check", "mean_measures"]


def arrays_of(data: RankingData, suffix: str = "") -> dict[str, Any]:
    """Arguments of `LinearRanker.fit` by name: `X`, `y`, `qid`, `diversity_groups`, with the suffix `"_valid"` for validation."""
    found = {
        "X": data.table,
        "y": data.labels,
        "qid": data.list_numbers,
        "diversity_groups": data.diversity_groups,
    }
    return {f"{name}{suffix}": value for name, value in found.items()}


def fit_path(
    ranker: LinearRanker, train: RankingData, vali: RankingData, test: RankingData, measures: Sequence[str]
) -> list[dict[str, Any]]:
    """Fit a ranker for each value of C, each from the previous solution, and describe every solution.

    Args:
        ranker: the ranker to fit; afterwards it has the C with the best validation value of its own measure.
        train: training lists.
        vali: validation lists, which select C.
        test: test lists.
        measures: the measures to report for validation and test lists.

    Raises:
        ValueError: the loss or a measure needs groups, and the data have none.

    Returns:
        A row per value of C, ascending: `C`, `objective`, `lower_bound` and `gap` (None if the problem is not convex), `status`,
        `iterations`, `passes` (evaluations of the mean loss), `planes`, `support` (those with a multiplier above 0), `seconds`,
        `oracle_seconds`, `qp_seconds`, `slack` (mean loss), `loss_at_zero` (mean loss at w = 0), `objective_at_zero` (this plus
        the regulariser, which is not 0 if w0 is not), `objective_over_zero`, `squared_norm` (||w||^2), `validation` and `test`
        (means by measure), `selected` (the ranker's measure on the validation lists), and `chosen` (bool).
    """
    needy = [type(loss).__name__ for loss in [ranker.ranking_loss()] if takes_groups(loss)]
    needy += [measure.name for measure in map(parse_measure, measures) if measure.takes_groups]
    if needy and train.diversity_groups is None:
        raise ValueError(
            f"{needy[0]} needs groups, but the data have none; set data.diversity_groups to a regular expression for the "
            "comments or to a column number"
        )
    check_measures({"the validation lists": vali, "the test lists": test}, measures)
    held_out = arrays_of(vali, "_valid") if ranker.C is not None and np.size(ranker.C) > 1 else {}
    if held_out:
        check_measures({"the validation lists": vali}, [ranker._measure(train.labels)], "ranker.measure")
    lists = arrays_of(train)
    ranker.fit(**lists, **held_out)
    Cs = ranker.Cs_
    rows = []
    loss_at_zero = ranker.mean_loss(np.zeros(len(ranker.coef_)), **lists)
    chosen = ranker.C_
    for number, (C, solution) in enumerate(zip(Cs, ranker.path_, strict=True)):
        ranker.use_path(number)
        at_zero = loss_at_zero + float(ranker.w0_ @ ranker.w0_) / (2 * C)
        rows.append(
            describe(solution, C, ranker.w0_)
            | {
                "loss_at_zero": loss_at_zero,
                "objective_at_zero": at_zero,
                "objective_over_zero": solution.objective / at_zero if at_zero else None,
                "validation": mean_measures(ranker.predict(vali.table, vali.list_numbers), vali, measures),
                "test": mean_measures(ranker.predict(test.table, test.list_numbers), test, measures),
                "selected": None if ranker.validation_ is None else ranker.validation_[number],
                "chosen": chosen == C,
            }
        )
    ranker.use_path(Cs.index(chosen))
    return rows


def describe(solution: Solution, C: float, w0: np.ndarray) -> dict[str, Any]:
    """The entries of a `fit_path` row that depend on the solution alone, ready for JSON."""
    last = solution.history[-1]
    squared_norm = float(solution.w @ solution.w)
    convex = np.isfinite(solution.lower_bound)
    planes = solution.planes
    return {
        "C": C,
        "objective": solution.objective,
        "lower_bound": solution.lower_bound if convex else None,
        "gap": solution.gap if convex else None,
        "status": str(solution.status),
        "iterations": solution.iterations,
        "passes": last.passes,
        "planes": last.planes,
        "support": None if planes is None else int((planes.multipliers > 0).sum()),
        "seconds": last.seconds,
        "oracle_seconds": last.oracle_seconds,
        "qp_seconds": last.qp_seconds,
        "slack": solution.objective - float((solution.w - w0) @ (solution.w - w0)) / (2 * C),
        "squared_norm": squared_norm,
    }


def mean_measures(scores: np.ndarray, data: RankingData, measures: Sequence[str | Measure]) -> dict[str, float]:
    """The means of measures over the lists of `data`, scores `[documents]`."""
    values = evaluate(scores, data.labels, list(measures), offsets=data.offsets, diversity_groups=data.diversity_groups)
    return {name: float(value.mean()) for name, value in values.items()}


def check_measures(
    parts: Mapping[str, RankingData], measures: Sequence[str | Measure], chosen_by: str = "measures"
) -> None:
    """Check, before training, that the measures accept the labels and groups of lists.

    Args:
        parts: lists by their name in messages, such as the path of their file.
        measures: the measures that will be computed.
        chosen_by: the option that sets the measures.

    Raises:
        DataError: a measure does not accept them; the message names the part and the query.

    >>> data = RankingData.from_arrays([[1.0], [2.0]], [0, 2000], ["a", "a"])
    >>> check_measures({"test.txt": data}, ["AP"])
    """
    for name, data in parts.items():
        scores = -np.arange(data.num_documents, dtype=np.float64)  # without ties, for which some measures have no value
        try:
            mean_measures(scores, data, measures)
        except (TypeError, ValueError) as error:
            raise DataError(f"{name}: {_with_names(str(error), data)} ({chosen_by} sets the measures)") from error


def _with_names(message: str, data: RankingData) -> str:
    """Replace list numbers in a message by query ids, and count documents from 1."""

    def named(found: re.Match[str]) -> str:
        if int(found[1]) >= data.num_lists:
            return found[0]
        document = f", document {int(found[2]) + 1}" if found[2] else ""
        return f"query {shortened(data.qids[int(found[1])])}{document}"

    return re.sub(r"\blist (\d+)(?:, document (\d+))?", named, message)


@dataclass(frozen=True)
class Certificate:
    """Certified bounds on a linear scorer's objective.

    Attributes:
        objective: of the scorer, over all training lists.
        lower_bound: no linear scorer has a lower objective.
        optimum: the lowest objective found.
        gap: `(objective - lower_bound) / |objective|`.
        distance: ||w - w*|| / ||w*||, with w* the best weights found.

    >>> import rankstruct as rs
    >>> data = rs.data.digits()[0]
    >>> found, _ = certify(rs.LinearScorer(data.num_features), rs.StructuredHingeLoss("AP"), data, 1.0)
    >>> found.lower_bound <= found.optimum <= found.objective
    True
    """

    objective: float
    lower_bound: float
    optimum: float
    gap: float
    distance: float


def certify(
    scorer: nn.Module, loss: nn.Module, data: RankingData, regularization: float, *, tolerance: float = 1e-3
) -> tuple[Certificate, Solution]:
    """Compare a linear scorer with the optimum of `regularization / 2 ||w||^2 + mean loss`.

    Args:
        scorer: a linear scorer, trained by any method.
        loss: a convex loss.
        data: the training lists, with groups for a loss over diverse rankings; lists whose labels are all equal are skipped, as
            in training.
        regularization: lambda, above 0.
        tolerance: relative gap of the optimum.

    Returns:
        The certificate and the solution that it is based on.

    Raises:
        ValueError: the scorer is not linear, the loss not convex, or lambda not above 0.
    """
    if not isinstance(scorer, LinearScorer):
        raise ValueError(f"only a LinearScorer has a certified optimum, got {type(scorer).__name__}")
    if not is_convex(loss):
        raise ValueError(f"a lower bound needs a convex loss; {type(loss).__name__} with these options is not convex")
    check_numbers("> 0", regularization=regularization)
    lists = arrays_of(data)
    w = scorer.linear.weight.detach().double().numpy()[0]
    ranker = LinearRanker(loss=loss, C=1 / regularization, prepare=(), tolerance=tolerance)
    ranker.fit(**lists)
    best = ranker.solution_
    objective = ranker.objective(w, **lists)
    bound = min(best.lower_bound, objective)
    norm = float(np.linalg.norm(best.w))
    return Certificate(
        objective,
        bound,
        min(best.objective, objective),
        (objective - bound) / abs(objective) if objective else 0.0,
        float(np.linalg.norm(w - best.w)) / norm if norm else float(np.linalg.norm(w)),
    ), best


def health_check(ranker: LinearRanker, X: Any, y: Any, qid: Any, *, diversity_groups: Any = None) -> str:
    """Report whether a fitted ranker's bound learns from these data, in a sentence or two with advice.

    The minimum of a convex bound can be at or near w = 0, where all documents tie: the objective is then that of w = 0 for any C,
    and raising C does not help. This is known of reciprocal rank with the first-relevant map and of the positional map's convex
    bound.

    Args:
        ranker: fitted on these documents.
        X: `[documents, d]`, as in `fit`.
        y: `[documents]`.
        qid: `[documents]`.
        diversity_groups: `[documents]`, if the ranker was fitted with groups.

    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(100, 2)), np.repeat(np.arange(10), 10)
    >>> y = (X[:, 0] > 1).astype(int)
    >>> health_check(LinearRanker("AP").fit(X, y, qid), X, y, qid)
    'learning: the objective is 29 % of that at w = 0'
    """
    at_zero = ranker.mean_loss(np.zeros(len(ranker.coef_)), X, y, qid, diversity_groups=diversity_groups)
    at_zero += float(ranker.w0_ @ ranker.w0_) / (2 * ranker.C_)
    share = ranker.solution_.objective / at_zero if at_zero else 1.0
    if share < 0.99:
        return f"learning: the objective is {share:.0%} of that at w = 0".replace("%", " %")
    advice = "another feature map (pairwise), reference='predicted' with its regression start, or a CombinedLoss with AP or AUC"
    if share < 1 - 1e-6:
        return (
            f"barely learning: the objective is {share:.2%} of that at w = 0 with C = {ranker.C_:g}; try a larger C, or {advice}"
        ).replace("%", " %")
    return f"stuck at w = 0, where the objective is lowest for C = {ranker.C_:g}; a larger C may not help; try {advice}"


_PANELS = {
    "slack": "average slack",
    "objective": "objective",
    "objective_over_zero": "objective / objective at w = 0",
    "squared_norm": "||w||²",
    "iterations": "iterations",
    "planes": "planes held",
    "seconds": "seconds",
}


def panels(number: int, columns: int, height: float) -> tuple[Any, Any]:
    """A matplotlib figure with `number` panels in rows of `columns`, each 4 by `height` inches, and the panels."""
    from matplotlib.figure import Figure

    lines = -(-number // columns)
    figure = Figure(figsize=(4 * columns, height * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for axis in axes[number:]:
        axis.set_axis_off()
    return figure, axes[:number]


def draw_paths(found: dict[str, list[dict[str, Any]]]) -> Any:
    """Plot the diagnostics against C with matplotlib: means over folds, one line per config; missing ones are omitted."""
    rows = [row for cells in found.values() for row in cells[0]["path"]]
    known = {key: title for key, title in _PANELS.items() if all(key in row for row in rows)}
    if "objective_over_zero" in known:
        del known["objective"]
    measures = dict.fromkeys(m for row in rows for m in row.get("test", ()))
    shown = [*known.items(), *((m, f"test {m}") for m in measures)]
    figure, axes = panels(len(shown), 3, 2.8)
    for axis, (key, title) in zip(axes, shown, strict=True):
        for name, cells in found.items():
            Cs = [row["C"] for row in cells[0]["path"]]
            values = [
                float(np.mean([(row["test"] if key in measures else row)[key] for row in rows]))
                for rows in zip(*(cell["path"] for cell in cells), strict=True)
            ]
            axis.plot(Cs, values, marker="o", ms=3, label=name)
        axis.set(xscale="log", title=title, xlabel="C")
        if key == "squared_norm":
            axis.set_yscale("symlog", linthresh=1e-3)  # ||w||^2 may be 0
            axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    if len(found) > 1:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", fontsize=8, ncols=3)
    return figure


def judge_probabilities(probabilities: np.ndarray, lists: RankingData) -> dict[str, Any]:
    """How true probabilities of the documents of lists are, and the points of a reliability diagram."""
    given = (probabilities, lists.labels)
    values = evaluate_probabilities(*given, offsets=lists.offsets)
    return {
        "values": {name: list(each) for name, each in values.items()},
        "reliability": reliability(*given, offsets=lists.offsets).tolist(),
    }


def draw_reliability(judged: dict[str, Any]) -> Any:
    """A reliability diagram of what `judge_probabilities` finds: the share that is relevant against the mean probability."""
    _, mean, share = np.array(judged["reliability"]).T
    value, *ends = judged["values"]["ECE"]
    figure, (axis,) = panels(1, 1, 4.0)
    axis.plot([0, 1], [0, 1], color="grey", linestyle="--", label="well calibrated")
    axis.plot(mean, share, marker="o", label=f"ECE {value:.3f} ({ends[0]:.3f} to {ends[1]:.3f})")
    axis.set(xlabel="mean probability", ylabel="share relevant", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axis.grid(alpha=0.3)
    axis.legend(loc="upper left", fontsize=8)
    return figure
