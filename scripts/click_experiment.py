"""Rankers trained from simulated clicks, with and without inverse propensities, against the same rankers trained on labels.

The semi-synthetic protocol of Joachims, Swaminathan and Schnabel (WSDM 2017) on the folds of LETOR sets: a production ranker,
trained on 1 % of the training queries, ranks the others, and users click by the position-based model with propensity 1 / rank.
A document with label y attracts with probability e + (1 - e) (2^y - 1) / (2^max - 1), where e is the noise. Each seed has a fold
of its own, with its own production ranker. C of linear rankers, and the epoch of MLPs, are chosen on clicks on the validation
queries, with the same propensities as in training; a single setting is used for trees. Measures are those of the test queries.

    naive        every click counts the same
    true         weight 1 / propensity, with the propensities of the simulation
    estimated    with propensities from a log of 100,000 clicks on randomised swaps of rank 1 with ranks to 20, or to the
                 cut-off; beyond these ranks the power of the rank that fits them best
    labels       the same loss with the gains of the labels in place of clicks: the skyline

    default      `LinearRanker().fit(X, log)`, which has the training clicks only; the propensities are harvested from the log, or
                 with one production ranker, whose log does not tell them, estimated as above

With a cut-off, documents that were never shown are left out of training from clicks. With two production rankers, each trained on
other queries, a session has one of them at random. Clicks are added up over sessions before training, so that a million cost as
much as a thousand, except for LightGBM's `position`, which needs every session: it has sessions with at most `--tree-clicks`
clicks. Every cell is kept in `--output`, and finished ones are not run again; prints the tables, and writes
them with `--json`:

    python scripts/click_experiment.py --data OHSUMED --output runs/clicks
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import rankstruct as rs
from papers.click_models import PositionModel, simulate_clicks
from rankstruct.cli import run
from rankstruct.clicks import ClickLog, propensities_by_swaps
from rankstruct.commands._arguments import CommandParser, add_cell_options
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.data import RankingData, Source
from rankstruct.files import write_result
from rankstruct.losses import AdditiveRankLoss
from rankstruct.statistics import bootstrap_interval
from rankstruct.text_tables import format_table

MEASURES = ("nDCG@10", "AP")
METHODS = ("PropRank", "PropDCG", "PropDCG, MLP", "LambdaMART", "LinearRanker")
#: By method, the weights of clicks; "position" is LightGBM's own correction.
WEIGHTS = dict.fromkeys(METHODS[:3], ("naive", "true", "estimated", "labels")) | {
    "LambdaMART": ("naive", "position", "labels"),
    "LinearRanker": ("default", "labels"),
}
#: Of PropRank the loss is larger, so that smaller C correspond.
COSTS = {"PropRank": [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0], "PropDCG": [0.1, 1.0, 10.0, 100.0, 1000.0]}
_SESSIONS, _SWAP_CLICKS, _SWAP_RANKS = 20_000, 100_000, 20


class Setting(NamedTuple):
    """One simulation: noise, number of documents shown (None for all), seed, which is also the fold, and production rankers."""

    noise: float
    cutoff: int | None
    seed: int
    rankers: int = 1

    @property
    def name(self) -> str:
        """How tables call it, without the seed."""
        shown = f"noise {self.noise:g}, {'all' if self.cutoff is None else f'top {self.cutoff}'} shown"
        return shown if self.rankers == 1 else f"{shown}, {self.rankers} rankers"


class Counted(NamedTuple):
    """Clicks of some lists, added up.

    Attributes:
        shown: `[documents, ranks]`, how often each was shown at each rank.
        clicks: `[documents]`, their number.
        sessions: `[documents]`, how often their query was shown.
    """

    shown: np.ndarray
    clicks: np.ndarray
    sessions: np.ndarray

    def relevance(self, propensities: np.ndarray) -> np.ndarray:
        """The estimates of `estimate_relevance`."""
        exposure = self.shown @ propensities[: self.shown.shape[1]]
        return np.divide(self.clicks, exposure, out=np.zeros(len(exposure)), where=exposure > 0)


class Simulation(NamedTuple):
    """What all methods share: the lists of a fold, the production ranker's scores, and the clicks.

    Attributes:
        parts: lists by part.
        scores: of the training and the validation lists; `[rankers, documents]` for several.
        model: the click model.
    """

    parts: dict[str, RankingData]
    scores: dict[str, np.ndarray]
    model: PositionModel

    def propensities(self, ranks: int) -> np.ndarray:
        """The true ones."""
        return self.model.propensities(ranks)


@cache
def simulation(source: Source, setting: Setting) -> Simulation:
    """The lists, production ranker and click model of a setting."""
    read = source.read()
    parts = {name: getattr(read, name) for name in ("train", "vali", "test")}
    train, rng = parts["train"], np.random.default_rng(setting.seed)
    lists = np.repeat(np.arange(train.num_lists), train.lengths)
    low, high = (each.reduceat(train.labels, train.offsets[:-1]) for each in (np.minimum, np.maximum))
    size = max(1, round(train.num_lists / 100))
    few = rng.choice(np.flatnonzero(low < high), size * setting.rankers, replace=False)
    production = []
    for queries in np.split(few, setting.rankers):
        chosen = np.isin(lists, queries)
        production.append(rs.LinearRanker("nDCG@10", loss="GradedLoss('AUC')", C=1.0))
        production[-1].fit(train.features[chosen], train.labels[chosen], lists[chosen])
    scores = {}
    for name in ("train", "vali"):
        each = np.stack([ranker.predict(parts[name].features) for ranker in production])
        scores[name] = each if setting.rankers > 1 else each[0]
    return Simulation(parts, scores, PositionModel(irrelevant=setting.noise, highest=float(train.labels.max())))


@cache
def counted(source: Source, setting: Setting, sizes: tuple[int, ...], part: str) -> dict[int, Counted]:
    """By size, at least as many clicks on the training lists, or their share on the validation lists; each adds to the last."""
    made = simulation(source, setting)
    lists, scores = made.parts[part], made.scores[part]
    share = lists.num_lists / made.parts["train"].num_lists
    list_of, ranks = np.repeat(np.arange(lists.num_lists), lists.lengths), setting.cutoff or int(lists.lengths.max())
    shown, clicks, sessions = np.zeros((len(list_of), ranks)), np.zeros(len(list_of)), np.zeros(lists.num_lists)
    done, found = 0, {}
    left, block = sorted(sizes), 0
    while left:
        log = simulate_clicks(
            made.model,
            scores,
            lists.labels,
            lists.offsets,
            sessions=_SESSIONS,
            cutoff=setting.cutoff,
            seed=[setting.seed, part == "vali", block],  # type: ignore[arg-type]
        )
        block += 1
        of_session = np.bincount(log.session, log.click, log.sessions).cumsum()
        query = log.query[np.flatnonzero(np.diff(log.session, prepend=-1))]
        while left and done + of_session[-1] >= (wanted := max(round(left[0] * share), 1)):
            last = int(np.searchsorted(of_session + done, wanted)) + 1
            rows = log.session < last
            kept = log.click & rows
            found[left.pop(0)] = Counted(
                shown + _cells(log.document[rows], log.position[rows], shown.shape),
                clicks + np.bincount(log.document[kept], minlength=len(list_of)),
                (sessions + np.bincount(query[:last], minlength=lists.num_lists))[list_of],
            )
        shown += _cells(log.document, log.position, shown.shape)
        clicks += np.bincount(log.document[log.click], minlength=len(list_of))
        sessions += np.bincount(query, minlength=lists.num_lists)
        done += of_session[-1]
    return found


def _cells(document: np.ndarray, position: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """How often each document was shown at each rank."""
    cell = document.astype(np.int64) * shape[1] + position - 1
    return np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)


def logged(source: Source, setting: Setting, clicks: int) -> ClickLog:
    """A log of the training lists with at least as many clicks."""
    made = simulation(source, setting)
    lists, sessions = made.parts["train"], clicks
    while True:
        log = simulate_clicks(
            made.model,
            made.scores["train"],
            lists.labels,
            lists.offsets,
            sessions=sessions,
            cutoff=setting.cutoff,
            seed=[setting.seed, 0, 0],  # type: ignore[arg-type]
        )
        of_session = np.bincount(log.session, log.click).cumsum()
        if of_session[-1] >= clicks:
            return _first_sessions(log, int(np.searchsorted(of_session, clicks)) + 1)
        sessions *= 2


def _first_sessions(log: ClickLog, number: int) -> ClickLog:
    kept = log.session < number
    rows = ("session", "query", "document", "position", "click")
    return replace(log, **{name: getattr(log, name)[kept] for name in rows})


@cache
def estimated(source: Source, setting: Setting) -> np.ndarray:
    """Propensities from randomised swaps; beyond the ranks swapped, the power of the rank that fits them best."""
    made = simulation(source, setting)
    lists = made.parts["train"]
    ranks = min(setting.cutoff or _SWAP_RANKS, _SWAP_RANKS, int(lists.lengths.max()))
    log = simulate_clicks(
        made.model,
        made.scores["train"],
        lists.labels,
        lists.offsets,
        sessions=_SWAP_CLICKS,
        cutoff=ranks,
        swap=range(2, ranks + 1),
        seed=setting.seed + 100,
    )
    enough = int(np.searchsorted(np.bincount(log.session, log.click).cumsum(), _SWAP_CLICKS)) + 1
    found = propensities_by_swaps(_first_sessions(log, enough))
    steps, logs = np.log(np.arange(2.0, ranks + 1)), np.log(found.values[1:])
    weights = np.log(found.high[1:] / found.low[1:]) ** -2.0
    power = (weights * steps * logs).sum() / (weights * steps**2).sum()
    longest = max(int(each.lengths.max()) for each in made.parts.values())
    values = np.arange(1.0, longest + 1) ** power
    values[:ranks] = np.minimum(found.values, 1)
    return values


def train(
    source: Source, setting: Setting, sizes: tuple[int, ...], clicks: int, method: str, weights: str
) -> dict[str, Any]:
    """Each measure of each test list after training, and what was chosen."""
    torch.set_num_threads(1)
    made = simulation(source, setting)
    if method == "LambdaMART":
        scores, chosen = boosted(source, setting, clicks, weights)
    elif method == "LinearRanker":
        scores, chosen = by_default(source, setting, clicks, weights)
    else:
        scores, chosen = by_our_loss(source, setting, sizes, clicks, method, weights)
    test = made.parts["test"]
    found = rs.evaluate(scores, test.labels, list(MEASURES), offsets=test.offsets)
    return {"chosen": chosen, **{name: [round(value, 6) for value in found[name].tolist()] for name in MEASURES}}


def by_our_loss(
    source: Source, setting: Setting, sizes: tuple[int, ...], clicks: int, method: str, weights: str
) -> tuple[np.ndarray, Any]:
    """Scores of the test documents by a ranker of rankstruct, and its C or epoch."""
    made = simulation(source, setting)
    longest = max(int(each.lengths.max()) for each in made.parts.values())
    known = {"naive": np.ones(longest), "true": made.propensities(longest)}
    given: dict[str, Any] = {}
    for part, end in (("train", ""), ("vali", "_valid")):
        lists = made.parts[part]
        if weights == "labels":
            relevance = np.expm1(np.log(2) * lists.labels) / np.expm1(np.log(2) * made.model.highest)
        else:
            propensities = estimated(source, setting) if weights == "estimated" else known[weights]
            seen = counted(source, setting, sizes, part)[clicks]
            relevance = seen.relevance(propensities)
            given |= {} if end else {"sample_weight": seen.sessions}
        given |= {f"X{end}": lists.features, f"y{end}": (relevance > 0).astype(float)}
        given |= {f"qid{end}": np.repeat(np.arange(lists.num_lists), lists.lengths)}
        shown = weights == "labels" or setting.cutoff is None or seen.shown.any(1)
        given |= {f"item_weights{end}": np.where(shown, np.where(relevance > 0, relevance, 1.0), 0.0)}
    loss = AdditiveRankLoss("linear" if method == "PropRank" else "log2")
    ranker: Any
    if method == "PropDCG, MLP":
        ranker = rs.MLPRanker("DCG@10", loss=loss, drop_empty=False, device="cpu", random_state=setting.seed).fit(
            **given
        )
        chosen = ranker.best_epochs_[0]
    else:
        ranker = rs.LinearRanker("DCG@10", loss=loss, C=COSTS[method], drop_empty=False).fit(**given)
        chosen = ranker.C_
    return ranker.predict(made.parts["test"].features), chosen


def by_default(source: Source, setting: Setting, clicks: int, weights: str) -> tuple[np.ndarray, Any]:
    """Scores of the test documents by a linear ranker with its defaults, trained on a log or labels, and its loss and C."""
    made = simulation(source, setting)
    lists, ranker = made.parts["train"], rs.LinearRanker()
    if weights == "labels":
        ranker.fit(lists.features, lists.labels, np.repeat(np.arange(lists.num_lists), lists.lengths))
    else:
        known = estimated(source, setting) if setting.rankers == 1 else None
        ranker.fit(lists.features, logged(source, setting, clicks), propensity=known)
    return ranker.predict(made.parts["test"].features), [ranker.loss_, ranker.C_]


def boosted(source: Source, setting: Setting, clicks: int, weights: str) -> tuple[np.ndarray, Any]:
    """Scores of the test documents by LightGBM's LambdaMART, trained on sessions or labels."""
    import lightgbm

    made = simulation(source, setting)
    lists = made.parts["train"]
    parameters = {"objective": "lambdarank", "num_leaves": 7, "learning_rate": 0.1, "verbose": -1, "num_threads": 1}
    if weights == "labels":
        data = lightgbm.Dataset(lists.features, lists.labels, group=lists.lengths)
    else:
        log = logged(source, setting, clicks)
        kept = np.bincount(log.session, log.click)[log.session] > 0
        sizes = np.unique(log.session[kept], return_counts=True)[1]
        own = {"position": log.position[kept]} if weights == "position" else {}
        data = lightgbm.Dataset(lists.features[log.document[kept]], log.click[kept].astype(int), group=sizes, **own)
    trees = lightgbm.train(parameters, data, num_boost_round=100)
    return trees.predict(made.parts["test"].features), None


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("clicks", compare, args, program="click_experiment.py")


def compare(args: Sequence[str]) -> None:
    """Train what the folder does not hold yet, and print the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder with Fold1, Fold2, ...")
    add_cell_options(parser, "training runs", "runs/clicks")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.1, 0.3])
    parser.add_argument("--cutoffs", type=int, nargs="+", default=[0, 10], help="documents shown; 0 for all")
    parser.add_argument("--clicks", type=int, nargs="+", default=[100, 1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, of which each has a fold")
    parser.add_argument("--first-seed", type=int, default=1, metavar="N", help="the first of them")
    parser.add_argument(
        "--rankers", type=int, nargs="+", default=[1], help="production rankers, of which sessions have one"
    )
    parser.add_argument("--tree-clicks", type=int, default=10_000, help="the most clicks for LambdaMART")
    parser.add_argument("--methods", nargs="+", default=[*METHODS[:4]], choices=METHODS, metavar="METHOD")
    parser.add_argument("--json", type=Path, help="write the tables to this file, for the documentation")
    given = parser.parse_args(args)
    sizes = tuple(given.clicks)
    cells, seeds = [], range(given.first_seed, given.first_seed + given.seeds)
    used = {
        method: min(given.tree_clicks, max(sizes)) if method == "LambdaMART" else max(sizes) for method in given.methods
    }
    for noise, cutoff, rankers in itertools.product(given.noise, given.cutoffs, given.rankers):
        for seed in seeds:
            setting = Setting(noise, cutoff or None, seed, rankers)
            cells += cells_of(given.data, setting, sizes, used)
    with CellFolders(given.output) as store:
        results = store.run(train, cells, processes=given.processes, what="training runs").results
    settings = list(dict.fromkeys(setting for setting, *_ in (cell.config for cell in cells)))  # type: ignore[misc]
    tables = {}
    for setting in settings:
        for measure in MEASURES:
            tables[f"{measure}, {setting}"] = _curves(results, setting, sizes, used, seeds, measure)
        tables[f"against labels, {setting}"] = _against_labels(results, setting, max(sizes), used, seeds)
        if {"LinearRanker", "LambdaMART"} <= {*used}:
            tables[f"the default, {setting}"] = _of_default(results, setting, sizes, used, seeds)
    for name, (header, rows) in tables.items():
        print(f"\n{name}\n\n{format_table(header, rows)}")
    if given.json:
        ours = ("--output", "--json", "--processes")  # of this machine
        kept = [word for at, word in enumerate(args) if not {word, args[at - 1] if at else ""} & {*ours}]
        words = [Path(given.data).name if word == given.data else word for word in kept]
        write_result(given.json, ["python", "scripts/click_experiment.py", *words], tables)
    print(f"\nwritten: {given.output}")


def cells_of(data: str, setting: Setting, sizes: tuple[int, ...], methods: dict[str, int]) -> list[Cell]:
    """The cells of a setting and seed."""
    source, cells = Source(path=data, fold=setting.seed), []
    request = {"content": source.digest(), "noise": setting.noise, "cutoff": setting.cutoff, "seed": setting.seed}
    request |= {} if setting.rankers == 1 else {"rankers": setting.rankers}
    several = "" if setting.rankers == 1 else f"-{setting.rankers}-rankers"
    folder = f"{Path(data).name}/{setting.noise:g}-{setting.cutoff or 'all'}-{setting.seed}{several}"
    for method in methods:
        for weights in WEIGHTS[method]:
            for clicks in dict.fromkeys(_used(methods[method], weights, clicks) for clicks in sizes):
                name = f"{folder}/{method}-{weights}-{clicks}".replace(", ", "-")
                its = {**request, "method": method, "weights": weights, "clicks": clicks, "C": COSTS.get(method)}
                arguments = (source, setting, sizes, clicks, method, weights)
                cells.append(Cell(name, its, arguments, (setting.name, method, weights, clicks), None, setting.seed))
    return cells


def _used(most: int, weights: str, clicks: int) -> int:
    """The number of clicks that is used of so many."""
    return 0 if weights == "labels" else min(clicks, most)


def _values(results: Any, key: tuple, seeds: Sequence[int], measure: str) -> np.ndarray:
    """The measure of each test list of all seeds."""
    return np.concatenate([results[key, None, seed][measure] for seed in seeds])


def _curves(
    results: Any, setting: str, sizes: Sequence[int], methods: dict[str, int], seeds: Sequence[int], measure: str
) -> tuple[list[str], list[list[str]]]:
    """Means by number of clicks, with half of the 95 % interval over test lists."""
    rows = []
    for method in methods:
        for weights in WEIGHTS[method]:
            row = [f"{method}, {weights}"]
            for clicks in sizes:
                values = _values(
                    results, (setting, method, weights, _used(methods[method], weights, clicks)), seeds, measure
                )
                low, high = bootstrap_interval(values)
                row.append(f"{values.mean():.4f} ± {(high - low) / 2:.4f}")
            rows.append(row)
    return ["clicks", *map(str, sizes)], rows


def _against_labels(
    results: Any, setting: str, clicks: int, methods: dict[str, int], seeds: Sequence[int]
) -> tuple[list[str], list[list[str]]]:
    """The percentage by which each is above or below the same method trained on labels, with 95 % paired intervals."""
    rows = []
    for method in methods:
        for weights in WEIGHTS[method][:-1]:
            row = [f"{method}, {weights}"]
            for measure in MEASURES:
                own = _values(
                    results, (setting, method, weights, _used(methods[method], weights, clicks)), seeds, measure
                )
                best = _values(results, (setting, method, "labels", 0), seeds, measure)
                low, high = bootstrap_interval(own - best)
                scale = 100 / best.mean()
                row.append(f"{(own - best).mean() * scale:+.1f} % ({low * scale:+.1f} to {high * scale:+.1f})")
            rows.append(row)
    return [f"{clicks:,} clicks", *MEASURES], rows


def _of_default(
    results: Any, setting: str, sizes: Sequence[int], methods: dict[str, int], seeds: Sequence[int]
) -> tuple[list[str], list[list[str]]]:
    """The default's nDCG@10 minus that with fewer clicks, and minus LightGBM's `position`, with 95 % paired intervals."""

    def values(method: str, weights: str, clicks: int) -> np.ndarray:
        key = (setting, method, weights, _used(methods[method], weights, clicks))
        return _values(results, key, seeds, "nDCG@10")

    own = [values("LinearRanker", "default", clicks) for clicks in sizes]
    trees = [values("LambdaMART", "position", clicks) for clicks in sizes]
    rows = [
        ["minus fewer clicks", "", *(_difference(more, less) for less, more in itertools.pairwise(own))],
        ["minus LambdaMART, position", *(_difference(one, other) for one, other in zip(own, trees, strict=True))],
    ]
    return ["clicks", *map(str, sizes)], rows


def _difference(one: np.ndarray, other: np.ndarray) -> str:
    low, high = bootstrap_interval(one - other)
    return f"{(one - other).mean():+.4f} ({low:+.4f} to {high:+.4f})"


if __name__ == "__main__":
    import click_experiment  # so that other processes, which run the cells, find its cached functions by name

    sys.exit(click_experiment.main())
