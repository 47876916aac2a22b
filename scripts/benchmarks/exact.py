"""Exact training with every oracle, over C and folds, and LightGBM's lambdarank if installed, timed in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.timing import check_known
from rankstruct import losses as rl
from rankstruct.data import Splits
from rankstruct.diagnostics import arrays_of, fit_path, mean_measures
from rankstruct.estimators import LinearRanker
from rankstruct.kernels.threads import threads_of_torch
from rankstruct.measures import Measure, nDCG
from rankstruct.progress import Progress

CS = (1.0, 10.0, 100.0, 1000.0, 10000.0)
MEASURES = ("AP", "nDCG@10", "RR@10")


def _convex(measure: str | Measure, feature_map: str = "pairwise") -> LinearRanker:
    return LinearRanker(measure, feature_map=feature_map, reference="ideal")


def _ramp(measure: str | Measure, feature_map: str = "positional") -> LinearRanker:
    begin: dict[str, Any] = {"start": "regression", "regularize_towards": "zero"}
    return LinearRanker(measure, feature_map=feature_map, reference="predicted", **begin)


#: What is timed: a name, and a ranker of which C is set.
RANKERS: dict[str, Callable[[], LinearRanker]] = {
    "AP (SVMmap)": lambda: LinearRanker("AP"),
    "AUC (SVMauc)": lambda: LinearRanker("AUC"),
    "pAUC (SVMpAUC)": lambda: _convex("pAUC(high=0.1)"),
    "nDCG@10 (SVMndcg)": lambda: _convex(nDCG(10, min_relevant=1)),
    "nDCG (SVMndcg-nc)": lambda: _convex(nDCG(min_relevant=1)),
    "P@10": lambda: _convex("P@10"),
    "RR@10 (SVMmrr)": lambda: _convex("RR@10", "first-relevant"),
    "RR@10, pairwise map": lambda: _convex("RR@10"),
    "AP + 0.01 RR@10 (SVMcombo)": lambda: LinearRanker(
        loss=rl.CombinedLoss(
            [_convex(m, f).ranking_loss() for m, f in (("AP", "pairwise"), ("RR@10", "first-relevant"))], [1.0, 0.01]
        )
    ),
    "graded AUC": lambda: LinearRanker(loss=rl.GradedLoss("AUC")),
    "nDCG@10 (ORM, convex)": lambda: _convex("nDCG@10", "positional"),
    "nDCG@10 (ORM, DC)": lambda: _ramp("nDCG@10"),
    "nDCG (ORM, DC)": lambda: _ramp("nDCG"),
    "WTA (ORM, DC)": lambda: _ramp("WTA"),
    "mWTA (ORM, DC)": lambda: _ramp("mWTA"),
    "ERU (ORM, DC)": lambda: _ramp("ERU(d=0,half_life=5)"),
    "nDCG@10 (SVMndcg, DC)": lambda: _ramp(nDCG(10, min_relevant=1), "pairwise"),
    "RR@10, pairwise map, DC": lambda: _ramp("RR@10", "pairwise"),
    "RankSVM, all pairs": lambda: LinearRanker(loss=rl.RankSVMLoss()),
}
LIGHTGBM = "LightGBM lambdarank"


@threads_of_torch(1)
def benchmark_exact(
    folds: Sequence[Splits], names: Sequence[str] = tuple(RANKERS), Cs: Sequence[float] = CS, tolerance: float = 1e-3
) -> list[dict[str, Any]]:
    """Fit every ranker for every C on every fold, one thread, C chosen on validation lists by AP.

    Args:
        folds: training, validation and test lists of each fold.
        names: of `RANKERS`, and `LIGHTGBM`, which is left out with a note where it is not installed.
        Cs: the path.
        tolerance: relative gap of every fit.

    Returns:
        A row a ranker: `name`, `seconds` of all fits, `passes` (evaluations of the mean loss over all lists), `argmax` and `qp`
        (shares of the time), `converged` (how many of the fits), `fits`, and the mean test measures.

    Raises:
        ValueError: an unknown name.
    """
    check_known("ranker", names, [*RANKERS, LIGHTGBM])
    return [
        _lightgbm(folds) if name == LIGHTGBM else _ranker(name, folds, Cs, tolerance)
        for name in Progress(names, desc="exact training", unit="ranker", leave=False)
    ]


def _ranker(name: str, folds: Sequence[Splits], Cs: Sequence[float], tolerance: float) -> dict[str, Any]:
    few = folds[0].train.select(np.arange(min(5, folds[0].train.num_lists)))
    RANKERS[name]().fit(**arrays_of(few))  # compile
    rows, tests, seconds = [], [], 0.0
    for train, vali, test in folds:
        ranker = RANKERS[name]().set_params(C=list(Cs), prepare=(), tolerance=tolerance)
        start = time.perf_counter()
        path = fit_path(ranker, train, vali, test, MEASURES)
        seconds += time.perf_counter() - start
        rows += path
        best = max(path, key=lambda row: row["validation"]["AP"])
        tests.append(best["test"])
    spent = max(sum(row["seconds"] for row in rows), 1e-9)
    return {
        "name": name,
        "seconds": seconds,
        "passes": sum(row["passes"] for row in rows),
        "argmax": sum(row["oracle_seconds"] for row in rows) / spent,
        "qp": sum(row["qp_seconds"] for row in rows) / spent,
        "converged": sum(row["status"].startswith(("converged", "no better than w = 0")) for row in rows),
        "fits": len(rows),
        **{measure: float(np.mean([test[measure] for test in tests])) for measure in MEASURES},
    }


def _lightgbm(folds: Sequence[Splits]) -> dict[str, Any]:
    """500 trees with LightGBM's defaults, stopped when 50 trees did not raise validation nDCG@10; one thread."""
    import lightgbm

    tests, seconds = [], 0.0
    for train, vali, test in folds:
        start = time.perf_counter()
        lists = lightgbm.Dataset(train.features, train.labels, group=train.lengths)
        model = lightgbm.train(
            {"objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "num_threads": 1, "seed": 0, "verbose": -1},
            lists,
            num_boost_round=500,
            valid_sets=[lightgbm.Dataset(vali.features, vali.labels, group=vali.lengths, reference=lists)],
            callbacks=[lightgbm.early_stopping(50, verbose=False)],
        )
        scores = model.predict(test.features)
        seconds += time.perf_counter() - start
        tests.append(mean_measures(np.asarray(scores), test, MEASURES))
    means = {measure: float(np.mean([test[measure] for test in tests])) for measure in MEASURES}
    return {"name": LIGHTGBM, "seconds": seconds, "fits": len(folds), **means}


def as_rows(found: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Header and rows for a table."""
    header = ["ranker", "seconds", "passes", "in argmax", "in QP", "converged", *(f"test {m}" for m in MEASURES)]
    rows = []
    for row in found:
        exact = (
            [f"{row['passes']:.0f}", f"{row['argmax']:.0%}", f"{row['qp']:.0%}"] if "passes" in row else ["", "", ""]
        )
        converged = f"{row['converged']} of {row['fits']}" if "passes" in row else ""
        tests = (row[measure] for measure in MEASURES)
        rows.append([row["name"], f"{row['seconds']:.1f}", *exact, converged, *tests])
    return header, rows
