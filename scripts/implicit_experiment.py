"""Losses for top-k recommendation over the full catalogue, from implicit feedback: one factorisation, one protocol, many losses.

The data are a folder with `train.txt`, `valid.txt` and `test.txt`, lines `user item item ...`; measures rank all items but those
that a user has in training. Each loss gets the same settings of temperature, dropout and item biases, in the same order, of
which the validation items choose by nDCG@10, as they do the epoch; further seeds are run with the chosen setting. Losses are
compared with the first by paired tests over test users, of the means over seeds. Times are seconds of one CPU thread per epoch,
with validation; memory is the greatest of the process. Every result is kept in the folder `--output`, and what is there is not
run again; prints the tables, and writes them with `--json`:

    python scripts/implicit_experiment.py --data FOLDER --output runs/implicit

With `--first_calls`, no losses are tuned: models with their defaults are fitted to the training items, and the validation items
judge them, so that defaults can be developed without the test; those of the package implicit are there if it is installed. On
small sets, other options of `Recommender` are tried too. `--data` may be several folders then.
"""

from __future__ import annotations

import importlib.util
import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import rankstruct as rs
from benchmarks.catalogue import Factors
from papers.significance import holm
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser, add_cell_options
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.data.source import digest_of
from rankstruct.files import write_result
from rankstruct.recommenders import (
    InteractionsSource,
    Negatives,
    Ratings,
    Recommender,
    coverage,
    ease,
    evaluate_catalogue,
    novelty,
    popularity,
    recommend,
)
from rankstruct.recommenders.splits import RatingsParts
from rankstruct.statistics import bootstrap_interval, compare_paired
from rankstruct.text_tables import format_table

MEASURES = ("nDCG@10", "R@10", "nDCG@20", "R@20")
_HAS_IMPLICIT = importlib.util.find_spec("implicit") is not None
#: The settings that every loss is tried with, the first ones first; `Recommender` has the rest.
SETTINGS = tuple(
    {"temperature": temperature, "dropout": dropout, "item_bias": item_bias}
    for item_bias, temperature, dropout in product((True, False), (0.1, 0.15, 0.25, 0.07, 0.05), (0.0, 0.3))
)
PATIENCE = 4  # epochs: the validation measure of averaged weights rises and falls once
_OWN: dict[str, Any] = {"temperature": 1.0}  # cosines
_PAIRS: dict[str, Any] = {"negatives": Negatives("uniform", pairs=True)}
_GRAPH: dict[str, Any] = {"layers": 2, "lists_per_batch": 256}  # as each step propagates
#: By loss: a function that makes it, of the temperature if that is its own, and options of `Recommender`.
LOSSES: dict[str, tuple[Callable[..., torch.nn.Module], dict[str, Any]]] = {
    "AP ramp": (lambda: rs.StructuredHingeLoss("AP", reference="predicted"), {}),
    "softmax": (rs.SoftmaxLoss, {}),
    "AP hinge": (lambda: rs.StructuredHingeLoss("AP"), {}),
    "AP@300 ramp": (lambda: rs.StructuredHingeLoss("AP@300", reference="predicted"), {}),
    "nDCG@300 hinge": (lambda: rs.StructuredHingeLoss("nDCG@300", feature_map="pairwise"), {}),
    **{
        f"SL@20, weight temperature {each:g}": (partial(rs.losses.TopKSoftmaxLoss, 20, weight_temperature=each), {})
        for each in (1.0, 4.0, 16.0)
    },
    "PSL (tanh)": (lambda temperature: rs.losses.PairwiseSoftmaxLoss("tanh", temperature, scale=2), _OWN),
    "PSL (relu)": (lambda temperature: rs.losses.PairwiseSoftmaxLoss("relu", temperature, scale=2), _OWN),
    "BSL": (rs.losses.BilateralSoftmaxLoss, {}),
    "LLPAUC": (rs.losses.LowerLeftAUCLoss, {}),
    "WARP": (rs.losses.WARPLoss, {}),
    "nDCG ramp": (lambda: rs.StructuredHingeLoss("nDCG", reference="predicted"), {}),
    "BPR": (rs.RankNetLoss, _PAIRS),
    "BPR, random start": (rs.RankNetLoss, {**_PAIRS, "start": "random"}),
    "softmax, sampled": (rs.SoftmaxLoss, {"negatives": Negatives("uniform", number=512, correct=True)}),
    "AP ramp, sampled": (
        lambda: rs.StructuredHingeLoss("AP", reference="predicted"),
        {"negatives": Negatives("uniform", number=512)},
    ),
    "softmax, in-batch": (
        rs.SoftmaxLoss,
        {"negatives": Negatives("in-batch", pairs=True, correct=True), "lists_per_batch": 1024},
    ),
    "RankNet": (rs.RankNetLoss, {}),
    "partial AUC hinge": (lambda: rs.StructuredHingeLoss("pAUC(low=0, high=0.05)"), {}),
    "nDCG@20 hinge": (lambda: rs.StructuredHingeLoss("nDCG@20"), {}),
    "nDCG@20 hinge, random start": (lambda: rs.StructuredHingeLoss("nDCG@20"), {"start": "random"}),
    "AP ramp, random start": (lambda: rs.StructuredHingeLoss("AP", reference="predicted"), {"start": "random"}),
    "softmax, random start": (rs.SoftmaxLoss, {"start": "random"}),
    "softmax, 256 users a step": (rs.SoftmaxLoss, {"lists_per_batch": 256}),
    "AP ramp, LightGCN": (lambda: rs.StructuredHingeLoss("AP", reference="predicted"), _GRAPH),
    "softmax, LightGCN": (rs.SoftmaxLoss, _GRAPH),
}
BASELINES: dict[str, Sequence[Callable[[Ratings], Any]]] = {
    "popularity": (popularity,),
    "EASE": [partial(ease, regularization=strength) for strength in (200.0, 500.0, 1000.0, 2000.0)],
}


def _recommender(known: Ratings, loss: Any = None, **options: Any) -> Any:
    return Recommender(loss, **options).fit(known).scorer_


class _Neighbours:
    """Scores of items by the similar ones that users know, as `ItemSimilarity` with a sparse matrix."""

    def __init__(self, known: Any, similarity: Any) -> None:
        self.known, self.similarity = known, similarity

    def item_scores(self, users: torch.Tensor) -> torch.Tensor:
        """Scores of all items, `[users, items]`."""
        return torch.from_numpy((self.known[users.numpy()] @ self.similarity).toarray()).float()


def _of_implicit(name: str) -> Callable[[Ratings], Any]:
    def fit(known: Ratings) -> Any:
        import implicit

        makers = {
            "ALS": implicit.als.AlternatingLeastSquares,
            "BPR": implicit.bpr.BayesianPersonalizedRanking,
            "ItemKNN": implicit.nearest_neighbours.CosineRecommender,
        }
        model, matrix = makers[name](num_threads=1), sp.csr_matrix(known.to_csr())
        with warnings.catch_warnings():  # of conversions that it makes itself
            warnings.simplefilter("ignore")
            model.fit(matrix, show_progress=False)
        if name == "ItemKNN":
            return _Neighbours(matrix, model.similarity)
        return Factors(model.user_factors, model.item_factors)

    return fit


#: Models with their defaults; the first one is compared with the others.
FIRST_CALLS: dict[str, Callable[[Ratings], Any]] = {
    "Recommender": _recommender,
    "popularity": popularity,
    **({f"{name}, implicit": _of_implicit(name) for name in ("ItemKNN", "ALS", "BPR")} if _HAS_IMPLICIT else {}),
    "EASE": ease,
}
_RAMP = LOSSES["AP ramp"][0]
#: Other options of `Recommender`, tried on sets of at most `GRID_CELLS` users x items, with EASE for other regularizations.
GRID: dict[str, Callable[[Ratings], Any]] = {
    "EASE, regularization=100": partial(ease, regularization=100.0),
    "neighbours=True": partial(_recommender, neighbours=True),
    "neighbours=True, rank=64": partial(_recommender, neighbours=True, rank=64),
    "neighbours=False": partial(_recommender, neighbours=False),
    "rank=64, neighbours=False": partial(_recommender, rank=64, neighbours=False),
    "rank=128, neighbours=False": partial(_recommender, rank=128, neighbours=False),
    "rank=512, neighbours=False": partial(_recommender, rank=512, neighbours=False),
    "AP ramp": lambda known: _recommender(known, _RAMP()),
    "learning_rate=.01": partial(_recommender, learning_rate=0.01, neighbours=False),
    "temperature=.2": partial(_recommender, temperature=0.2),
    "temperature=.1": partial(_recommender, temperature=0.1),
    "temperature=.1, AP ramp": lambda known: _recommender(known, _RAMP(), temperature=0.1),
}
GRID_CELLS = 10**7
EASE_SIDE = 20_000  # no EASE for more users and items


def first_calls(name: str, parts: RatingsParts) -> list[list[str]]:
    """Rows of models by nDCG@10 of the validation items of a set, with 95 % intervals of differences from the first."""
    rows, first = [], None
    shape = parts.train.num_users, parts.train.num_items
    grid = {} if shape[0] * shape[1] > GRID_CELLS else GRID
    for model_name, fit in (FIRST_CALLS | grid).items():
        if model_name == "EASE" and min(shape) > EASE_SIDE:
            continue
        begin = time.process_time()
        model = fit(parts.train)
        seconds = time.process_time() - begin
        values = evaluate_catalogue(model, parts.vali, MEASURES[:1], exclude=parts.train)[MEASURES[0]].numpy()
        first = values if first is None else first
        low, high = bootstrap_interval(first - values, resamples=999)
        told = "" if values is first else f"{(first - values).mean():+.4f} [{low:+.4f}, {high:+.4f}]"
        rows.append([name, model_name, f"{values.mean():.4f}", told, f"{seconds:.1f}"])
        print(*rows[-1], flush=True)
    return rows


def first_calls_by_set(rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """One row for each set of `first_calls`: the values of the models, the best other option, and CPU seconds."""
    models = [*FIRST_CALLS]
    names = [model.removesuffix(", implicit") for model in models]
    header = ["set", *names, "less EASE", "less ItemKNN", "best other option", "which is"]
    header += [f"CPU s, {name}" for name in ("Recommender", "EASE", "ALS")]
    table = []
    for name in dict.fromkeys(row[0] for row in rows):
        found = {row[1]: row[2:] for row in rows if row[0] == name}
        row = [name, *(found[model][0] if model in found else "" for model in models)]
        row += [found[model][1] if model in found else "" for model in ("EASE", "ItemKNN, implicit")]
        others = [model for model in found if model not in models and "EASE" not in model]
        best = max(others, key=lambda model: float(found[model][0])) if others else ""
        row += [found[best][0] if best else "", best]
        table.append(
            row + [found[model][2] if model in found else "" for model in ("Recommender", "EASE", "ALS, implicit")]
        )
    return header, table


@cache
def read(path: str) -> RatingsParts:
    """The data of a folder."""
    return InteractionsSource(path=path).read()


def train(path: str, loss: str, setting: dict[str, Any], seed: int, epochs: int, device: str) -> dict[str, Any]:
    """Validation value, measures of the test users, time and memory of one training."""
    torch.set_num_threads(1)
    parts = read(path)
    make, options = LOSSES[loss]
    begin = time.process_time()
    own = [setting["temperature"]] if "temperature" in options else []
    schedule: dict[str, Any] = {"max_epochs": epochs, "patience": PATIENCE, "random_state": seed, "device": device}
    model = Recommender(make(*own), **{**setting, **options}, **schedule)
    model.fit(parts.train, validation=parts.vali)
    seconds = (time.process_time() - begin) / len(model.history_)
    return {
        "vali": max(each["validation"] for each in model.history_),
        "epoch": model.best_epoch_,
        "seconds": seconds,
        "megabytes": megabytes(device),
        **tested(model.scorer_, parts),
    }


def megabytes(device: str) -> float:
    """The most memory that the process, or on a CUDA device its tensors, ever took."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def best_baseline(candidates: Sequence[Callable[[Ratings], Any]], parts: RatingsParts) -> Any:
    """The model that the validation items choose by the first measure."""
    models = [fit(parts.train) for fit in candidates]
    measured = [
        evaluate_catalogue(model, parts.vali, MEASURES[:1], exclude=parts.train)[MEASURES[0]] for model in models
    ]
    return models[int(np.argmax([float(values.mean()) for values in measured]))]


def tested(model: Any, parts: RatingsParts) -> dict[str, Any]:
    """Measures of the test users, coverage and novelty of a model's ten items."""
    values = evaluate_catalogue(model, parts.test, MEASURES, exclude=parts.train)
    items, _ = recommend(model, torch.arange(parts.train.num_users), 10, exclude=parts.train)
    told = {"coverage": coverage(items, parts.train.num_items), "novelty": novelty(items, parts.train)}
    return {"test": {name: value.tolist() for name, value in values.items()}, **told}


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("implicit", compare, args, program="implicit_experiment.py")


def compare(args: Sequence[str]) -> None:
    """Train what the folder does not hold yet, and print the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--data", required=True, nargs="+", help="folder with train.txt, valid.txt and test.txt")
    add_cell_options(parser, "training runs", "runs/implicit")
    parser.add_argument("--losses", nargs="+", default=[*LOSSES], choices=[*LOSSES], metavar="LOSS")
    parser.add_argument("--settings", type=int, default=len(SETTINGS), help="number of settings tried for each loss")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the chosen setting")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--device", default="cpu", help="such as cuda; times are of a device's own process there")
    parser.add_argument("--first_calls", action="store_true", help="compare models with their defaults instead")
    parser.add_argument("--json", type=Path, help="write the tables to this file, for the documentation")
    given = parser.parse_args(args)
    if given.first_calls:
        torch.set_num_threads(1)
        _recommender(InteractionsSource(builtin="synthetic").read().train)  # what is loaded only once does not count
        header = ["set", "model", MEASURES[0], "Recommender less this", "CPU s"]
        rows: list[list[str]] = []
        for path in given.data:
            rows += first_calls(Path(path).name, read(path))
            _report(given, args, {"first calls, sets": first_calls_by_set(rows), "first calls": (header, rows)})
        return
    if len(given.data) > 1:
        parser.error(f"--data must be one folder without --first_calls, got {len(given.data)}")
    (given.data,) = given.data
    content = "".join(digest_of(str(path)) for path in InteractionsSource(path=given.data).files())

    def make(loss: str, number: int, fold: None, seed: int | None) -> Cell:
        setting = SETTINGS[number]
        limits = {"epochs": given.epochs, "patience": PATIENCE}
        request = {"loss": loss, **setting, "seed": seed, **limits, "content": content}
        name = (
            f"{loss.replace(', ', '-').replace(' ', '-')}/{'-'.join(f'{value:g}' for value in setting.values())}-{seed}"
        )
        return Cell(
            name, request, (given.data, loss, setting, seed, given.epochs, given.device), (loss, number), fold, seed
        )

    with CellFolders(given.output) as store:
        found = store.select(
            train,
            make,
            {loss: [*range(min(given.settings, len(SETTINGS)))] for loss in given.losses},
            folds=[None],
            seeds=[*range(given.seeds)],
            validation=lambda result: result["vali"],
            processes=given.processes,
            what="training runs",
        )
    parts = read(given.data)
    small = parts.train.num_items <= 20_000
    reached = {name: [tested(best_baseline(each, parts), parts)] for name, each in BASELINES.items() if small}
    reached |= {loss: [found.results[loss, None, seed] for seed in range(given.seeds)] for loss in given.losses}
    settings = {loss: SETTINGS[found.settings[loss, None]] for loss in given.losses}
    _report(given, args, {"means": _means(reached, settings), "paired": _paired(reached, given.losses)})
    print(f"\nwritten: {given.output}")


def _report(given: Any, args: Sequence[str], tables: dict[str, tuple[list[str], list[list[str]]]]) -> None:
    """Print tables, and write them if asked."""
    for header, rows in tables.values():
        print(f"\n{format_table(header, rows)}")
    if given.json:
        ours = ("--output", "--json", "--processes")  # of this machine
        kept = [word for at, word in enumerate(args) if not {word, args[at - 1] if at else ""} & {*ours}]
        folders = {path: Path(path).name if given.first_calls else "FOLDER" for path in _listed(given.data)}
        words = [folders.get(word, word) for word in kept]
        write_result(given.json, ["python", "scripts/implicit_experiment.py", *words], tables)


def _listed(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def _means(reached: dict[str, list[dict]], settings: dict[str, dict]) -> tuple[list[str], list[list[str]]]:
    header = [
        "loss",
        *MEASURES,
        "coverage@10",
        "novelty@10",
        "temperature",
        "dropout",
        "item bias",
        "epoch",
        "s an epoch",
        "MB",
    ]
    rows = []
    for name, runs in reached.items():
        row = [name]
        for measure in MEASURES:
            means = [float(np.mean(each["test"][measure])) for each in runs]
            row.append(f"{np.mean(means):.4f}" + (f" ± {np.std(means, ddof=1):.4f}" if len(means) > 1 else ""))
        row += [
            f"{np.mean([each['coverage'] for each in runs]):.2f}",
            f"{np.mean([each['novelty'] for each in runs]):.2f}",
        ]
        if name in settings:
            row += [f"{settings[name][key]:g}" for key in ("temperature", "dropout")]
            row.append("yes" if settings[name]["item_bias"] else "no")
            row += [
                f"{np.mean([each['epoch'] for each in runs]):.0f}",
                f"{np.mean([each['seconds'] for each in runs]):.1f}",
            ]
            row.append(f"{max(each['megabytes'] for each in runs):.0f}")
        rows.append(row + [""] * (len(header) - len(row)))
    return header, rows


def _paired(reached: dict[str, list[dict]], losses: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    measure, first = MEASURES[0], losses[0]
    values = {loss: np.mean([each["test"][measure] for each in reached[loss]], 0) for loss in losses}
    pairs = [compare_paired(values[first], values[other]) for other in losses[1:]]
    corrected = holm([pair.p for pair in pairs]) if pairs else []
    header = [f"{measure} of {first} against", "difference", "users won", "users lost", "p (Wilcoxon, Holm)"]
    return header, [
        [other, f"{pair.difference:+.4f}", str(pair.wins), str(pair.losses), f"{p:.2g}"]
        for other, pair, p in zip(losses[1:], pairs, corrected, strict=True)
    ]


if __name__ == "__main__":
    import implicit_experiment  # so that other processes, which run the cells, find its cached functions by name

    sys.exit(implicit_experiment.main())
