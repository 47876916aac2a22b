"""Are scores good probabilities, and what do losses that calibrate cost in nDCG@10?

Five folds of folders with Fold1 ... Fold5, relevance being a grade of 1 or more; and clicks drawn once on every document of the
last folder, by a click model in which all documents are examined.

The design was fixed before its only run. Training and validation lists of a fold are one set, of which each quarter in turn is
held out: copies of a ranker learn from the other three, and held-out lists stop their training. The scores of the held-out lists
select settings by nDCG@10, and fit the calibration; the mean of the four copies scores the test lists. So as many as four
networks are averaged, and four times as many lists select as the validation part alone has. Every loss has the same six settings:
a network without hidden layer; an MLP with two learning rates for each of two forms of the loss; and boosted trees. A row "best
on held-out lists" takes for each fold the scorer and settings of the loss that the held-out lists prefer, without a look at test
lists: the aim is judged by these rows. The other rows are of one scorer and loss.

The values are of the test lists of all folds, nDCG@10 by grades, also of models of clicks, and log loss and ECE (10 bins of equal
mass) by relevance or clicks, with bootstrap intervals over lists. Prints the tables, and writes them as `calibration.json`:

    python scripts/calibration.py --path OHSUMED MQ2008 --output runs/calibration
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator

import rankstruct as rs
from papers.click_models import ClickModel
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.data import Source
from rankstruct.diagnostics import arrays_of
from rankstruct.estimators.base import PREPARE
from rankstruct.estimators.ensemble import deal_lists, fit_by_parts
from rankstruct.estimators.training_data import TrainingData
from rankstruct.files import write_result
from rankstruct.preparation import Preparation
from rankstruct.statistics import with_interval
from rankstruct.text_tables import markdown_table

NOISE, BEST_CLICKS = 0.1, 0.9  # probabilities of a click on a document of the lowest and of the highest grade
CLICKS = ", clicks"
LIGHTGBM, CHOSEN = "LGBMRanker(objective='lambdarank')", "best on held-out lists"
PARTS = 4  # each is held out in turn
#: Of each loss: whether it calibrates, its forms, and options of estimators.
LOSSES = {
    "LambdaLoss": (False, ("LambdaLoss('nDCG@10')", "LambdaLoss('nDCG@30')"), ""),
    "GradedLoss": (False, ("GradedLoss('AUC')", "GradedLoss('AP')"), ""),
    "RCRLoss": (True, ("RCRLoss(ranking=0.9)", "RCRLoss(ranking=0.9, grades=3, target='gain')"), ", drop_empty=False"),
    "JRCLoss": (True, ("JRCLoss(ranking=0.9)", "JRCLoss(ranking=0.9, grades=3, target='gain')"), ", drop_empty=False"),
}
OF_CLICKS = "ranking=0.9, grades=3, target='gain'", "ranking=0.5"  # clicks have no grades
NETWORK = "rs.MLPRanker(loss=losses.{0}{1}, hidden={2}, learning_rate={3}, prepare=(), **NETWORKS)"
NETWORKS = {"lists_per_batch": 16, "max_epochs": 60, "patience": 10, "device": "cpu"}
RATES = 2e-3, 8e-3


def settings_of(model: str, clicked: bool) -> list[str]:
    """The calls from which the held-out lists select."""
    if model == LIGHTGBM:
        return [f"LGBMRanker(num_leaves={n}, min_child_samples={least})" for n in (7, 15, 31) for least in (20, 50)]
    scorer, loss = model.split(", ")
    _, forms, more = LOSSES[loss]
    forms = tuple(form.replace(*OF_CLICKS) if clicked else form for form in forms)
    if scorer == "trees":
        return [f"rs.BoostedRanker(loss=losses.{forms[0]}{more}, n_jobs=1)"]
    if scorer == "linear":
        return [NETWORK.format(forms[0], more, (), RATES[1])]
    return [NETWORK.format(form, more, (64, 32), rate) for form in forms for rate in RATES]


MODELS = (LIGHTGBM, *(f"{scorer}, {loss}" for loss in LOSSES for scorer in ("trees", "linear", "MLP")))


class Learned(NamedTuple):
    """The lists of a fold."""

    lists: TrainingData  # to learn from
    prepared: TrainingData  # with features for networks
    test: dict[str, Any]
    for_networks: np.ndarray  # features of the test documents
    grades: np.ndarray  # of the test documents, whose labels may be clicks


@cache
def lists(path: str, fold: int, clicked: bool) -> Learned:
    """The lists of a fold; labels may be clicks."""
    parts = Source(path, fold=fold).read()
    found = {name: arrays_of(getattr(parts, name)) for name in ("train", "vali", "test")}
    grades = found["test"]["y"]
    if clicked:
        rng, model = np.random.default_rng(fold), ClickModel(relevant=BEST_CLICKS, irrelevant=NOISE, highest=2.0)
        for each in found.values():
            each["y"] = (rng.random(len(each["y"])) < model.attraction(each["y"])).astype(int)
    X, y, qid = (np.concatenate([found[name][of] for name in ("train", "vali")]) for of in ("X", "y", "qid"))
    offsets = np.append(0, np.cumsum(sizes(qid)))
    of_lists = TrainingData(X, y, offsets, np.arange(len(offsets) - 1))
    preparation, test = Preparation.fit(PREPARE, X), found["test"]
    ready, for_networks = (preparation(torch.as_tensor(each)).numpy() for each in (X, test["X"]))
    return Learned(of_lists, replace(of_lists, features=ready), test, for_networks, grades)


class LGBMRanker(BaseEstimator):
    """LightGBM's own ranker, with early stopping."""

    def __init__(self, num_leaves: int = 31, min_child_samples: int = 20) -> None:
        self.num_leaves, self.min_child_samples = num_leaves, min_child_samples

    def fit(self, X: Any, y: Any, qid: Any, X_valid: Any, y_valid: Any, qid_valid: Any) -> LGBMRanker:
        """Train on consecutive lists."""
        import lightgbm as lgb

        options = {"n_estimators": 1000, "learning_rate": 0.05, "random_state": 0, "n_jobs": 1, "verbose": -1}
        self.model_ = lgb.LGBMRanker(objective="lambdarank", **options, **self.get_params())
        stop, valid = lgb.early_stopping(50, verbose=False), {"eval_set": [(X_valid, y_valid)], "eval_at": [10]}
        self.model_.fit(X, y, group=sizes(qid), **valid, eval_group=[sizes(qid_valid)], callbacks=[stop])
        return self

    def predict(self, X: Any, qid: Any) -> np.ndarray:
        """The scores."""
        return np.asarray(self.model_.predict(X))


def sizes(qid: np.ndarray) -> np.ndarray:
    """The sizes of consecutive lists."""
    starts = np.flatnonzero(np.append(True, qid[1:] != qid[:-1]))
    return np.diff(np.append(starts, len(qid)))


def train(path: str, fold: int, clicked: bool, call: str) -> dict[str, Any]:
    """Scores of the held-out and of the test lists."""
    of = lists(path, fold, clicked)
    ranker = eval(call, {"rs": rs, "losses": rs.losses, "LGBMRanker": LGBMRanker, "NETWORKS": NETWORKS})
    network = isinstance(ranker, rs.MLPRanker)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightgbm")
        copies, held_out = fit_by_parts(ranker, of.prepared if network else of.lists, deal_lists(of.lists, PARTS, fold))
        X = of.for_networks if network else of.test["X"]
        test = np.mean([copy.predict(X, of.test["qid"]) for copy in copies], 0)
    value = rs.evaluate(held_out, of.lists.labels, ["nDCG@10"], offsets=of.lists.offsets)["nDCG@10"].mean()
    return {"validation": float(value), "held out": held_out.tolist(), "test": test.tolist()}


def cell_of(config: tuple[str, bool, str], setting: str, fold: int, seed: int | None) -> Cell:
    """One training run."""
    path, clicked, model = config
    number = settings_of(model, clicked).index(setting)
    name = f"{Path(path).name}{'-clicks' if clicked else ''}/{model}-{number}-{fold}".replace(", ", "-")
    name = name.replace(LIGHTGBM, "LGBMRanker")
    request = {"content": Source(path, fold=fold).digest(), "clicked": clicked, "fold": fold, "call": setting}
    return Cell(name, request, (path, fold, clicked, setting), (path, clicked, model, setting), fold, seed)


def with_chosen(results: Any, path: str, clicked: bool, models: Sequence[str], folds: Sequence[int]) -> dict[str, Any]:
    """The results of each model by fold, before them those of the scorer that the held-out lists prefer, for each loss."""
    by_model = {model: [results[(path, clicked, model), fold, 0] for fold in folds] for model in models}
    chosen = {
        f"{CHOSEN}, {loss}": [max(each, key=lambda result: result["validation"]) for each in zip(*found, strict=True)]
        for loss in LOSSES
        if (found := [by_model[model] for model in models if model.endswith(f", {loss}")])
    }
    return chosen | by_model


def rows_of(by_model: dict[str, Any], of_folds: Sequence[Learned]) -> list[list[Any]]:
    """A row for each model and calibration; differences are from the best model of the same kind."""
    ranked, judged = {}, []
    for model, found in by_model.items():
        pairs = [
            rs.evaluate(np.array(result["test"]), of.grades, ["nDCG@10"], qid=of.test["qid"])["nDCG@10"].numpy()
            for result, of in zip(found, of_folds, strict=True)
        ]
        ranked[model] = np.concatenate(pairs)
    labels = np.concatenate([of.test["y"] for of in of_folds])
    group = np.concatenate([sizes(of.test["qid"]) for of in of_folds])
    for model, values in ranked.items():
        alike = [other for other in ranked if other.startswith(CHOSEN) == model.startswith(CHOSEN)]
        best = max(alike, key=lambda other: ranked[other].mean())
        own = ["none", "temperature"] if LOSSES.get(model.split(", ")[-1], [False])[0] else []
        for method in [*own, "sigmoid", "isotonic"]:
            p = [probabilities(method, *each) for each in zip(by_model[model], of_folds, strict=True)]
            values_of = rs.calibration.evaluate_probabilities(np.concatenate(p), labels, group=group, resamples=2000)
            shown = [f"{value:.4f} ({low:.4f} to {high:.4f})" for value, low, high in values_of.values()]
            ahead = with_interval(values - ranked[best], resamples=2000) if model != best else ""
            judged.append([model, method, f"{values.mean():.4f}", ahead, shown[1], shown[0], shown[2]])
    return judged


def probabilities(method: str, result: dict[str, Any], of: Learned) -> np.ndarray:
    """Those of the test documents of a fold, by a calibration that is fitted to the held-out lists."""
    test = np.array(result["test"])
    if method == "none":
        return 1 / (1 + np.exp(-test))
    step = rs.Calibration(method).fit(np.array(result["held out"]), of.lists.labels, offsets=of.lists.offsets)
    return step.predict(test).numpy()


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
            settings = {(path, clicked, model): settings_of(model, clicked) for model in given.models}
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
            by_model = with_chosen(found.results, path, clicked, given.models, given.folds)
            tables[name] = (header, rows_of(by_model, [lists(path, fold, clicked) for fold in given.folds]))
            print(f"\n{name}\n\n{markdown_table(*tables[name])}", flush=True)
    typed = [Path(word).name if "/" in word else word for word in args]
    write_result(Path(given.output) / "calibration.json", ["python", "scripts/calibration.py", *typed], tables)


if __name__ == "__main__":
    import calibration  # so that other processes, which run the cells, find its cached functions by name

    sys.exit(calibration.main())
