"""Are scores good probabilities, and what do losses that calibrate cost in nDCG@10?

Five folds of folders with Fold1 ... Fold5, relevance being a grade of 1 or more; and clicks drawn once on every document of the
last folder, by a click model in which all documents are examined. For each model and fold nDCG@10 on the validation lists selects
the settings, and the same lists fit the calibration. The values are of the test lists of all folds, nDCG@10 by grades, also of
models of clicks, and log loss and ECE (10 bins of equal mass) by relevance or clicks, with bootstrap intervals over lists. Prints
the tables, and writes them as `calibration.json`:

    python scripts/calibration.py --path OHSUMED MQ2008 --output runs/calibration
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import rankstruct as rs
from papers.click_models import ClickModel
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.data import Source
from rankstruct.diagnostics import arrays_of
from rankstruct.files import write_result
from rankstruct.statistics import with_interval
from rankstruct.text_tables import markdown_table

NOISE, BEST_CLICKS = 0.1, 0.9  # probabilities of a click on a document of the lowest and of the highest grade
CLICKS = ", clicks"
LIGHTGBM = "LGBMRanker(objective='lambdarank')"
GAIN = "grades=3, target='gain'"
#: Of losses that calibrate: share of the ranking loss, and the target.
TARGETS = ("ranking=0.5", "ranking=0.9", f"ranking=0.9, {GAIN}")
COSTS = [0.1, 1.0, 10.0, 100.0, 1000.0]
#: The settings of each model, from which validation lists select: calls in which clicks have no grades.
MODELS: dict[str, tuple[str, ...]] = {
    LIGHTGBM: tuple(
        f"LGBMRanker(num_leaves={leaves}, min_child_samples={least})" for leaves in (7, 15, 31) for least in (20, 50)
    ),
    "trees, LambdaLoss": tuple(
        f"rs.BoostedRanker(loss=losses.LambdaLoss('nDCG@30'), num_leaves={leaves}, n_jobs=1)" for leaves in (7, 10, 15)
    ),
    "MLP, LambdaLoss": ("rs.MLPRanker(loss=losses.LambdaLoss('nDCG@10'), device='cpu')",),
    "MLP, GradedLoss": ("rs.MLPRanker(loss=losses.GradedLoss('AUC'), device='cpu')",),
    "linear, GradedLoss": ("rs.LinearRanker(loss=losses.GradedLoss('AUC'), C=COSTS)",),
    **{
        f"{model}, {loss}Loss": tuple(
            call.format(f"losses.{loss}Loss({target}), drop_empty=False") for target in targets
        )
        for model, call, losses, targets in (
            ("trees", "rs.BoostedRanker(loss={}, n_jobs=1)", ("RCR", "JRC"), TARGETS),
            ("MLP", "rs.MLPRanker(loss={}, device='cpu')", ("RCR", "JRC"), TARGETS[1:]),
            ("linear", "rs.MLPRanker(loss={}, device='cpu', hidden=())", ("RCR",), TARGETS),
            ("linear", "rs.LinearRanker(loss={}, C=COSTS)", ("JRC",), TARGETS),
        )
        for loss in losses
    },
}


@cache
def lists(path: str, fold: int, clicked: bool) -> tuple[dict[str, dict[str, Any]], np.ndarray]:
    """Arrays of the three parts, whose labels may be clicks, and the grades of the test documents."""
    parts = Source(path, fold=fold).read()
    found = {name: arrays_of(getattr(parts, name)) for name in ("train", "vali", "test")}
    grades = found["test"]["y"]
    if clicked:
        rng, model = np.random.default_rng(fold), ClickModel(relevant=BEST_CLICKS, irrelevant=NOISE, highest=2.0)
        for each in found.values():
            each["y"] = (rng.random(len(each["y"])) < model.attraction(each["y"])).astype(int)
    return found, grades


class LGBMRanker:
    """LightGBM's own ranker, with early stopping."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def fit(self, X: Any, y: Any, qid: Any, X_valid: Any, y_valid: Any, qid_valid: Any, **_: Any) -> LGBMRanker:
        """Train on consecutive lists."""
        import lightgbm as lgb

        options = {"n_estimators": 1000, "learning_rate": 0.05, "random_state": 0, "n_jobs": 1, "verbose": -1}
        self.model = lgb.LGBMRanker(objective="lambdarank", **options, **self.options)
        stop, valid = lgb.early_stopping(50, verbose=False), {"eval_set": [(X_valid, y_valid)], "eval_at": [10]}
        self.model.fit(X, y, group=sizes(qid), **valid, eval_group=[sizes(qid_valid)], callbacks=[stop])
        return self

    def predict(self, X: Any, qid: Any) -> np.ndarray:
        """The scores."""
        return np.asarray(self.model.predict(X))


def sizes(qid: np.ndarray) -> np.ndarray:
    """The sizes of consecutive lists."""
    starts = np.flatnonzero(np.append(True, qid[1:] != qid[:-1]))
    return np.diff(np.append(starts, len(qid)))


def train(path: str, fold: int, clicked: bool, call: str) -> dict[str, Any]:
    """Scores of validation and test lists."""
    parts, _ = lists(path, fold, clicked)
    valid = {f"{name}_valid": value for name, value in parts["vali"].items()}
    names = {"rs": rs, "losses": rs.losses, "LGBMRanker": LGBMRanker, "COSTS": COSTS}
    ranker = eval(call, names).fit(**parts["train"], **valid)
    scores = {name: ranker.predict(parts[name]["X"], parts[name]["qid"]) for name in ("vali", "test")}
    by = {"qid": parts["vali"]["qid"]}
    value = float(rs.evaluate(scores["vali"], parts["vali"]["y"], ["nDCG@10"], **by)["nDCG@10"].mean())
    return {"validation": value, **{name: each.tolist() for name, each in scores.items()}}


def cell_of(config: tuple[str, bool, str], setting: str, fold: int, seed: int | None) -> Cell:
    """One training run."""
    path, clicked, model = config
    number = MODELS[model].index(setting)
    name = f"{Path(path).name}{'-clicks' if clicked else ''}/{model}-{number}-{fold}".replace(", ", "-")
    name = name.replace(LIGHTGBM, "LGBMRanker")
    request = {"content": Source(path, fold=fold).digest(), "clicked": clicked, "fold": fold, "call": setting}
    return Cell(name, request, (path, fold, clicked, setting), (path, clicked, model, setting), fold, seed)


def rows_of(results: Any, path: str, clicked: bool, models: Sequence[str], folds: Sequence[int]) -> list[list[Any]]:
    """A row for each model and calibration."""
    ranked, judged = {}, []
    for model in models:
        ndcg = []
        for fold in folds:
            (parts, grades), found = lists(path, fold, clicked), results[(path, clicked, model), fold, 0]
            by = {"qid": parts["test"]["qid"]}
            ndcg.append(rs.evaluate(np.array(found["test"]), grades, ["nDCG@10"], **by)["nDCG@10"].numpy())
        ranked[model] = np.concatenate(ndcg)
    best = max(ranked, key=lambda model: ranked[model].mean())
    for model, values in ranked.items():
        own = ["none", "temperature"] if model.endswith(("RCRLoss", "JRCLoss")) else []
        for method in [*own, "sigmoid", "isotonic"]:
            p, y, group = [], [], []
            for fold in folds:
                (parts, _), found = lists(path, fold, clicked), results[(path, clicked, model), fold, 0]
                scores = {name: np.array(found[name]) for name in ("vali", "test")}
                if method == "none":
                    p.append(1 / (1 + np.exp(-scores["test"])))
                else:
                    step = rs.Calibration(method).fit(scores["vali"], parts["vali"]["y"], qid=parts["vali"]["qid"])
                    p.append(step.predict(scores["test"]).numpy())
                y.append(parts["test"]["y"])
                group.append(sizes(parts["test"]["qid"]))
            given = {"group": np.concatenate(group), "resamples": 2000}
            values_of = rs.calibration.evaluate_probabilities(np.concatenate(p), np.concatenate(y), **given)
            shown = [f"{value:.4f} ({low:.4f} to {high:.4f})" for value, low, high in values_of.values()]
            ahead = with_interval(values - ranked[best], resamples=2000) if model != best else ""
            judged.append([model, method, f"{values.mean():.4f}", ahead, shown[1], shown[0], shown[2]])
    return judged


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("calibration", work, args, program="calibration.py")


def work(args: Sequence[str]) -> None:
    """Train what the folder does not hold yet, and print and write the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--path", nargs="+", required=True, help="folders with Fold1 ... Fold5")
    parser.add_argument("--models", nargs="+", default=[*MODELS], choices=MODELS, metavar="MODEL")
    parser.add_argument("--folds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--output", default="runs/calibration", help="folder of training runs and calibration.json")
    given = parser.parse_args(args)
    header = ["model", "calibration", "nDCG@10", "difference from the best", "log loss", "ECE", "Brier"]
    tables = {}
    with CellFolders(given.output) as store:
        for path, clicked in [*((path, False) for path in given.path), (given.path[-1], True)]:
            settings = {
                (path, clicked, model): [call for call in MODELS[model] if not (clicked and GAIN in call)]
                for model in given.models
            }
            found = store.select(
                train,
                cell_of,
                settings,
                folds=given.folds,
                seeds=[0],
                validation=lambda result: result["validation"],
                processes=0,
                what="training runs",
            )
            name = Path(path).resolve().name + (CLICKS if clicked else "")
            tables[name] = (header, rows_of(found.results, path, clicked, given.models, given.folds))
            print(f"\n{name}\n\n{markdown_table(*tables[name])}", flush=True)
    typed = [Path(word).name if "/" in word else word for word in args]
    write_result(Path(given.output) / "calibration.json", ["python", "scripts/calibration.py", *typed], tables)


if __name__ == "__main__":
    sys.exit(main())
