"""How `AutoRanker` should combine its models, and which ones; compared with each model alone and with an ensemble of libraries.

For every set of `default_first_calls.py`, each model is cross-fitted on the training lists of a fold as in `AutoRanker`. Scores
of lists that a copy was not trained on choose weights; the fold's validation lists, which no model has seen, judge them. Test
lists are not read. "Nine of libraries" are three copies each of LightGBM's lambdarank, CatBoost's QueryRMSE and YetiRank with
equal weights. Intervals are bootstrap intervals of 95 % over the lists of all sets. AP is not compared where all labels are above
0.
Every cell is kept in `--output`, and finished ones are not run again; prints the tables, and writes them as `combination.json`:

    python scripts/default_combination.py --path OHSUMED MQ2008 web_hosts.txt lightgbm.train --output runs/combination
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import lightgbm
import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator

import rankstruct as rs
from default_first_calls import DRAWN, LARGE, read
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser, add_cell_options
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.estimators import auto
from rankstruct.estimators.base import measured
from rankstruct.estimators.ensemble import all_weights, bagged_weights
from rankstruct.files import write_result
from rankstruct.measures import parse_measure
from rankstruct.statistics import differences, with_interval
from rankstruct.text_tables import markdown_table

MEASURES = ("nDCG@10", "AP")
OLD_TREES, PEER = "trees, before", "LightGBM, lambdarank"
LINEAR, LAMBDA, TREES, AUC, SQUARES, YETI = auto.MEMBERS
NINE = (PEER, SQUARES, YETI)
BEFORE, NOW = (
    "before: equal weights, or what is two standard errors better",
    "AutoRanker: mean of the best weights of samples",
)
NINE_RULE = "nine of libraries, equal weights"


class Peer(BaseEstimator):
    """LightGBM's own ranker, with early stopping; real-valued labels become 31 grades."""

    def fit(self, X: Any, y: Any, qid: Any, **valid: Any) -> Peer:
        """Fit to training lists, validated by others."""
        grades = np.arange(32)
        parts = [(X, y, qid), (valid["X_valid"], valid["y_valid"], valid["qid_valid"])]
        most = max(labels.max() for _, labels, _ in parts)
        real = any((labels % 1).any() for _, labels, _ in parts)
        given = {"label_gain": (2 ** (grades / 31 * most) - 1).tolist()} if real else {}
        of = [np.rint(labels / most * 31).astype(int) if real else labels for _, labels, _ in parts]
        sizes = [np.diff(np.flatnonzero(np.r_[True, ids[1:] != ids[:-1], True])) for *_, ids in parts]
        stop = lightgbm.early_stopping(20, verbose=False)
        self.model_ = lightgbm.LGBMRanker(n_estimators=200, n_jobs=1, verbose=-1, **given).fit(
            X,
            of[0],
            group=sizes[0],
            eval_set=[(parts[1][0], of[1])],
            eval_group=[sizes[1]],
            eval_at=10,
            callbacks=[stop],
        )
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X: Any, qid: Any = None) -> np.ndarray:
        """Scores of documents."""
        return np.asarray(self.model_.predict(X))


def _old_trees(of: Any, lists: Any) -> Any:
    given = {**auto._SMALL, "options": auto._BINS, "n_jobs": 1}
    return rs.BoostedRanker(of._measure(lists.labels), loss="LambdaLoss('nDCG@10')", **given)


class Members(rs.AutoRanker):
    """The cross-fitted models of `AutoRanker` and others, not combined."""

    def _take_best(self, copies: Any, scores: Any, lists: Any) -> None:
        self.copies, self.lists, self.columns = copies, lists, scores
        self.reason_ = ""


def run_cell(data: str, path: str | None, fold: int) -> dict[str, Any]:
    """Each measure of each validation list by model and by rule, CPU seconds of the models, and estimates of the ensemble."""
    torch.set_num_threads(1)
    train, vali, _ = read(data, path, fold)
    more = {OLD_TREES: _old_trees, PEER: lambda of, lists: Peer()}
    clock = SimpleNamespace(perf_counter=time.process_time)
    with warnings.catch_warnings(), mock.patch.object(auto, "time", clock):
        warnings.simplefilter("ignore")
        with mock.patch.object(auto, "MEMBERS", auto.MEMBERS | more):
            models = Members(device="cpu", random_state=fold).fit(train.X, train.labels, group=train.sizes)
    qid = np.repeat(np.arange(len(vali.sizes)), vali.sizes)
    offsets = np.concatenate([[0], vali.sizes.cumsum()])
    own, seen = {}, {}
    for name, copies in models.copies.items():
        frozen = rs.EnsembleRanker([FrozenEstimator(each) for each in copies])
        models.ranker_ = frozen.fit(models.lists.features, models.lists.labels, models.lists.ids)
        own[name], seen[name] = models.predict(vali.X, qid), _z_scores(models.columns[name], models.lists)
    found = {}
    for name, (members, weights) in _weights(seen, models.lists, fold).items():
        scores = sum(weight * own[member] for member, weight in zip(members, weights, strict=True))
        values = rs.evaluate(scores, vali.labels, list(MEASURES), offsets=offsets)
        found[name] = {measure: [round(value, 6) for value in values[measure].tolist()] for measure in MEASURES}
    kept = [name for name in auto.MEMBERS if name in seen]
    columns = np.stack([seen[name] for name in kept], axis=1)
    weights, unseen = bagged_weights(columns, models.lists, parse_measure(MEASURES[0]), fold)
    estimates = [_mean(scores, models.lists) for scores in (unseen, columns @ weights)]
    seconds = {row["model"]: row["seconds"] for row in models.results_}
    shares = dict(zip(kept, weights.tolist(), strict=True))
    return {"values": found, "seconds": seconds, "estimates": estimates, "weights": shares}


def _z_scores(scores: np.ndarray, lists: Any) -> np.ndarray:
    return rs.estimators.ensemble.mean_scores(scores[:, None], (1.0,), lists.ids)


def _mean(scores: np.ndarray, lists: Any) -> float:
    return float(_values(scores, lists).mean())


def _values(scores: np.ndarray, lists: Any) -> np.ndarray:
    """nDCG@10 of each list."""
    return measured(scores, lists, [parse_measure(MEASURES[0])])[MEASURES[0]]


def _weights(seen: dict[str, np.ndarray], lists: Any, seed: int) -> dict[str, tuple[list[str], np.ndarray]]:
    """The members and the weights of each rule."""
    found = {name: ([name], np.ones(1)) for name in seen}
    of_now = [name for name in auto.MEMBERS if name in seen]
    old = [OLD_TREES if name == TREES else name for name in auto.MEMBERS]
    for members, rule in ((of_now, "now"), ([name for name in old if name in seen], "before")):
        columns, number = np.stack([seen[name] for name in members], axis=1), len(members)
        equal = np.full(number, 1 / number)
        candidates = [equal if each is None else np.array(each) / sum(each) for each in all_weights(number)]
        values = np.stack([_values(columns @ weights, lists) for weights in candidates])
        best = int(values.mean(1).argmax())
        ahead = values[best] - values[0]
        clear = ahead.mean() > 2 * ahead.std(ddof=1) / len(ahead) ** 0.5
        standing = candidates[best] if clear else equal
        if rule == "before":
            found[BEFORE] = members, standing
            continue
        alone = np.eye(number)[np.argmax([_mean(column, lists) for column in columns.T])]
        found["the same rule, trees of now"] = members, standing
        found["equal weights"] = members, equal
        found["the best model"] = members, alone
        found["the best weights"] = members, candidates[best]
        found[NOW] = members, bagged_weights(columns, lists, parse_measure(MEASURES[0]), seed)[0]
    nine = [name for name in NINE if name in seen]
    found[NINE_RULE] = nine, np.full(len(nine), 1 / len(nine))
    fast = [LINEAR, LAMBDA]
    columns = np.stack([seen[name] for name in fast], axis=1)
    found["fast mode"] = fast, bagged_weights(columns, lists, parse_measure(MEASURES[0]), seed)[0]
    return found


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("default_combination", compare_rules, args, program="default_combination.py")


def compare_rules(args: Sequence[str]) -> None:
    """Run the unfinished cells, and print the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--path", nargs="*", default=[], help="folders and files of lists")
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2], help="folds, and seeds of the drawn sets")
    add_cell_options(parser, "cells", "runs/combination")
    given = parser.parse_args(args)
    sets: dict[str, str | None] = {Path(path).stem: path for path in given.path} | dict.fromkeys(DRAWN, None)
    cells = []
    for data, path in sets.items():
        for fold in given.folds[:1] if data == LARGE else given.folds:
            request = {"members": list(auto.MEMBERS), "folds": 3}
            cells.append(Cell(f"{data}/{fold}", request, (data, path, fold), (data,), fold, 0))
    with CellFolders(given.output) as store:
        results = store.run(run_cell, cells, processes=given.processes, what="sets").results
    found: dict[str, list[dict[str, Any]]] = {}
    for ((data,), *_), result in results.items():
        found.setdefault(data, []).append(result)
    names = list(next(iter(found.values()))[0]["values"])
    rules = [name for name in names if name not in (*auto.MEMBERS, OLD_TREES, PEER)]
    members = [name for name in names if name not in rules]
    tables = {
        "rules": table_of(found, rules, BEFORE),
        "above nine": table_of(found, [NOW, NINE_RULE], NINE_RULE),
        "models": table_of(found, members, NOW),
        "estimates": estimates_of(found),
    }
    for name, (header, rows) in tables.items():
        print(f"\n{name}\n\n{markdown_table(header, rows)}")
    lists = {data: sum(len(each["values"][NOW]["AP"]) for each in of) for data, of in found.items()}
    command = ["python", "scripts/default_combination.py", *args]
    write_result(Path(given.output) / "combination.json", command, tables, lists=lists)


def _all(results: list[dict[str, Any]], name: str, measure: str) -> np.ndarray:
    return np.concatenate([each["values"][name][measure] for each in results])


def _seconds(result: dict[str, Any], name: str) -> float:
    """CPU seconds of a model, or of those that a rule needs."""
    if name in result["seconds"]:
        return float(result["seconds"][name])
    needed: Sequence[str] = {NINE_RULE: NINE, "fast mode": (LINEAR, LAMBDA)}.get(name, tuple(auto.MEMBERS))
    if name == BEFORE:
        needed = [OLD_TREES if each == TREES else each for each in needed]
    return float(sum(result["seconds"][each] for each in needed))


def table_of(found: dict[str, list[dict[str, Any]]], names: Sequence[str], other: str) -> tuple[list, list]:
    """Means of nDCG@10 by set, differences in both measures from another row over all lists, and CPU seconds of a set's fold."""
    rows = []
    for name in names:
        row = [name, *(f"{_all(each, name, MEASURES[0]).mean():.4f}" for each in found.values())]
        for measure in MEASURES:
            judged = [of for of in found.values() if not (_all(of, other, measure) == 1).all()]
            row.append(
                with_interval(
                    np.concatenate([differences(*(_all(of, each, measure) for each in (name, other))) for of in judged])
                )
            )
        rows.append([*row, f"{np.mean([_seconds(each, name) for of in found.values() for each in of]):.1f}"])
    return ["nDCG@10", *found, *(f"{measure}, above '{other}'" for measure in MEASURES), "CPU s"], rows


def estimates_of(found: dict[str, list[dict[str, Any]]]) -> tuple[list, list]:
    """nDCG@10 of the ensemble by lists outside the samples, by those that chose the weights, and on the validation lists."""
    rows = []
    for data, of in found.items():
        means = np.mean([each["estimates"] for each in of], axis=0)
        vali = np.mean([np.mean(each["values"][NOW][MEASURES[0]]) for each in of])
        shares = ", ".join(
            f"{name} {np.mean([each['weights'].get(name, 0) for each in of]):.2f}" for name in auto.MEMBERS
        )
        rows.append([data, *(f"{mean:.4f}" for mean in (*means, vali)), shares])
    return ["set", "estimate of results_", "lists that chose", "validation lists", "mean weights"], rows


if __name__ == "__main__":
    sys.exit(main())
