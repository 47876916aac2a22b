"""Ranking factorisation against squared-loss factorisation of the same rank, item means and popularity, on MovieLens and Jester.

Of the training ratings of each user a fifth is held out; on it the regularisation and the number of epochs are chosen, for each
method and each measure by itself. Then the method is trained on all training ratings as chosen, and measured on the test ratings:
one list for each user over the items it rated there. Methods that start from the squared loss start from the factorisation that
was chosen for its nDCG@10 on the same ratings, as Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", start from
regression.

A result is written as soon as it is known, and one that is there is not computed again.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from tqdm.auto import tqdm

from rankstruct.data import Ratings, hold_out, read_movielens_fold, read_ratings, weak_split
from rankstruct.experiments.evaluation import paired_p_value
from rankstruct.feature_maps import Positional
from rankstruct.files import whole_file
from rankstruct.losses import ListNetLoss, SmoothLoss, SquaredLoss, StructuredHingeLoss
from rankstruct.measures import ERU, evaluate, nERU
from rankstruct.models import MatrixFactorization, load_scorer, save_scorer
from rankstruct.recommenders import item_means, popularity
from rankstruct.tables import format_table
from rankstruct.training import FactorizationModule, RatingsDataModule

HALF_LIFE = 5
MEASURES = ("nDCG@10", "ERU")


@dataclass(frozen=True)
class Recipe:
    """How a factorisation is trained.

    Attributes:
        loss: from the neutral vote to the loss.
        labels: what it sees: `"grade"`, `"rating"`, or `"standardised"`, the rating with mean 0 and variance 1 over all.
        from_squared: whether it starts from the factorisation of the squared loss.
        regularizations: the values of lambda that are tried.
        learning_rate: of Adam.
        epochs: at most.
    """

    loss: Callable[[float], nn.Module]
    labels: str = "grade"
    from_squared: bool = True
    regularizations: tuple[float, ...] = (0.1, 0.3)
    learning_rate: float = 0.003
    epochs: int = 8


def _hinge_eru(neutral: float) -> nn.Module:
    measure = nERU(d=neutral, half_life=HALF_LIFE)
    return StructuredHingeLoss(measure, feature_map=Positional("discount"), reference="predicted")


# The losses have gradients of different size, so the values of lambda differ.
RECIPES = {
    "squared": Recipe(
        lambda _: SquaredLoss(), "standardised", False, (0.1, 0.3, 1.0, 3.0), learning_rate=0.01, epochs=12
    ),
    "ORM nDCG@10": Recipe(
        lambda _: StructuredHingeLoss("nDCG@10", feature_map=Positional("discount"), reference="predicted"),
        regularizations=(0.3, 1.0, 3.0),
    ),
    "ORM nERU": Recipe(_hinge_eru, "rating", regularizations=(0.3, 1.0, 3.0)),
    "SmoothGrad nDCG@10": Recipe(lambda _: SmoothLoss("nDCG@10", sigma=0.3), regularizations=(0.03, 0.1, 0.3)),
    "ListNet": Recipe(lambda _: ListNetLoss(), regularizations=(0.1, 0.3, 1.0)),
    "ListNet, random start": Recipe(
        lambda _: ListNetLoss(), "grade", False, (0.1, 0.3, 1.0), learning_rate=0.01, epochs=12
    ),
}
BASELINES = {"popularity": popularity, "item means": item_means}


def measure_users(scorer: nn.Module, ratings: Ratings) -> dict[str, np.ndarray]:
    """`{"nDCG@10": [users], "ERU": [users]}` of the users with ratings: nDCG of the grades, ERU of the ratings themselves."""
    lists = ratings.to_lists()
    with torch.no_grad():
        scores = scorer(torch.from_numpy(lists.features))
    offsets = torch.from_numpy(lists.offsets)
    eru = ERU(d=ratings.neutral, half_life=HALF_LIFE)
    gains = evaluate(scores, torch.from_numpy(lists.labels), "nDCG@10", offsets=offsets)
    utility = evaluate(scores, torch.from_numpy(ratings.labels("rating")), eru, offsets=offsets)
    return {"nDCG@10": gains["nDCG@10"].numpy(), "ERU": utility[eru.name].numpy()}


@dataclass
class _Curve(pl.Callback):
    """Measure the validation ratings after every epoch."""

    ratings: Ratings
    keep: dict[str, tuple[float, int]]

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for name, values in measure_users(pl_module.scorer, self.ratings).items():  # type: ignore[arg-type]
            value = float(values.mean())
            if name not in self.keep or value > self.keep[name][0]:
                self.keep[name] = (value, trainer.current_epoch + 1)


def train(
    recipe: Recipe,
    ratings: Ratings,
    regularization: float,
    epochs: int,
    *,
    rank: int = 10,
    seed: int = 0,
    start: MatrixFactorization | None = None,
    vali: Ratings | None = None,
) -> tuple[MatrixFactorization, dict[str, tuple[float, int]]]:
    """Train by a recipe; with validation ratings, also the best value of each measure on them and the epoch it was reached in.

    Args:
        recipe: how.
        ratings: to learn from.
        regularization: lambda.
        epochs: how many.
        rank: of the factors.
        seed: of the start and the order of users.
        start: what to start from, not changed; None for a random one.
        vali: validation ratings.
    """
    mean, deviation = float(ratings.rating.mean()), float(ratings.rating.std())
    standardised = recipe.labels == "standardised"
    labels: Any = (lambda rating: (rating - mean) / deviation) if standardised else recipe.labels
    scorer = (
        MatrixFactorization(ratings.num_users, ratings.num_items, rank, user_bias=True, seed=seed)
        if start is None
        else copy.deepcopy(start)
    )
    scorer.train()
    found: dict[str, tuple[float, int]] = {}
    data = RatingsDataModule(ratings, users_per_batch=64, labels=labels, seed=seed)
    module = FactorizationModule(
        scorer,
        recipe.loss(ratings.neutral),
        regularization=regularization,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=recipe.learning_rate),
    )
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        callbacks=[] if vali is None else [_Curve(vali, found)],
    )
    trainer.fit(module, data)
    return scorer, found


@dataclass(frozen=True)
class _Cell:
    """One method on one split, with what was chosen on validation for one measure."""

    part: str
    method: str
    measure: str
    value: float
    validation: float | None
    regularization: float | None
    epochs: int | None
    seconds: float


class _Record:
    """Results of an experiment in a folder: `results.jsonl`, a line each, and the values of all users in `values/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "results.jsonl"
        self.cells: dict[tuple[str, str, str], _Cell] = {}
        if self.path.is_file():
            for line in self.path.read_text().splitlines():
                try:
                    cell = _Cell(**json.loads(line))
                except ValueError:  # the last line of a run that was killed
                    continue
                self.cells[cell.part, cell.method, cell.measure] = cell

    def add(self, cell: _Cell, values: np.ndarray) -> None:
        with whole_file(self._values(cell.part, cell.method, cell.measure), "wb") as file:
            np.save(file, values)
        self.cells[cell.part, cell.method, cell.measure] = cell
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(cell)) + "\n")

    def values(self, part: str, method: str, measure: str) -> np.ndarray:
        return np.load(self._values(part, method, measure))

    def scorer(self, part: str, method: str, stage: str) -> Path:
        return self.folder / "scorers" / f"{part}-{_plain(method)}-{stage}.pt"

    def _values(self, part: str, method: str, measure: str) -> Path:
        return self.folder / "values" / f"{part}-{_plain(method)}-{_plain(measure)}.npy"


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)


def _run_method(
    record: _Record, part: str, method: str, train_ratings: Ratings, test: Ratings, rank: int, seed: int
) -> None:
    """Tune, train and measure one factorisation, unless its results are there."""
    missing = [name for name in MEASURES if (part, method, name) not in record.cells]
    if not missing:
        return
    recipe = RECIPES[method]
    start_time = time.perf_counter()
    fit_part, vali = hold_out(train_ratings, 0.2, seed=seed)
    starts: dict[str, Any] = {}
    if recipe.from_squared:
        starts = {stage: load_scorer(record.scorer(part, "squared", stage)) for stage in ("tuning", "final")}
    options: dict[str, Any] = {"rank": rank, "seed": seed}
    best: dict[str, tuple[float, int, float]] = {}
    for regularization in recipe.regularizations:
        _, found = train(
            recipe, fit_part, regularization, recipe.epochs, vali=vali, start=starts.get("tuning"), **options
        )
        for name, (value, epochs) in found.items():
            if name not in best or value > best[name][0]:
                best[name] = (value, epochs, regularization)
    for name in missing:
        value, epochs, regularization = best[name]
        scorer, _ = train(recipe, train_ratings, regularization, epochs, start=starts.get("final"), **options)
        if method == "squared" and name == MEASURES[0]:  # others start from it
            save_scorer(scorer, record.scorer(part, method, "final"))
            tuned, _ = train(recipe, fit_part, regularization, epochs, **options)
            save_scorer(tuned, record.scorer(part, method, "tuning"))
        values = measure_users(scorer, test)[name]
        seconds = time.perf_counter() - start_time
        record.add(
            _Cell(part, method, name, float(values.mean()), value, regularization, epochs, round(seconds, 1)), values
        )


def recommender_experiment(
    parts: dict[str, Callable[[], tuple[Ratings, Ratings]]],
    output: str | Path,
    *,
    methods: Sequence[str] = tuple(RECIPES),
    rank: int = 10,
    seed: int = 0,
) -> tuple[list[str], list[list]]:
    """Train and measure all methods on all parts; see the module.

    Args:
        parts: by name, functions that read training and test ratings.
        output: the folder of the results, which goes on from what it holds.
        methods: names of `RECIPES`; those that start from the squared loss need it.
        rank: of the factors.
        seed: of everything random.

    Returns:
        Header and rows of a table, see `result_table`.

    Raises:
        ValueError: an unknown method, or a folder with results of another rank, seed or data.
    """
    unknown = [name for name in methods if name not in RECIPES]
    if unknown:
        raise ValueError(f"methods must be of {', '.join(RECIPES)}; got {', '.join(unknown)}")
    if "squared" not in methods:
        methods = ["squared", *methods]
    methods = sorted(methods, key=lambda name: name != "squared")
    folder = Path(output)
    note, wanted = folder / "request.json", {"rank": rank, "seed": seed, "parts": sorted(parts)}
    if note.is_file():
        if json.loads(note.read_text()) != wanted:
            raise ValueError(
                f"{folder} holds results of another rank, seed or data; choose another --output, or delete it"
            )
    else:
        with whole_file(note) as file:
            json.dump(wanted, file)
    record = _Record(folder)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with warnings.catch_warnings(), tqdm(total=len(parts) * (len(methods) + len(BASELINES)), unit="fit") as bar:
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        warnings.filterwarnings("ignore", message="`isinstance.treespec, LeafSpec.` is deprecated")
        for part, read in parts.items():
            train_ratings, test = read()
            for method in [*BASELINES, *methods]:
                bar.set_description(f"{part}, {method}")
                if method in BASELINES:
                    for name, values in measure_users(BASELINES[method](train_ratings), test).items():
                        if (part, method, name) not in record.cells:
                            record.add(_Cell(part, method, name, float(values.mean()), None, None, None, 0.0), values)
                else:
                    _run_method(record, part, method, train_ratings, test, rank, seed)
                bar.update()
    return result_table(record, list(parts), [*BASELINES, *methods])


def result_table(record: _Record, parts: Sequence[str], methods: Sequence[str]) -> tuple[list[str], list[list]]:
    """Header and rows, a method each: means over the parts, difference to the squared loss, p, parts where it is better.

    p is of a paired t-test over the users of all parts together.
    """
    header = ["method"]
    rows: list[list] = [[method] for method in methods]
    for name in MEASURES:
        header += [f"test {name}", "vs squared", "p", "parts won"]
        base = [record.values(part, "squared", name) for part in parts]
        for row in rows:
            values = [record.values(part, row[0], name) for part in parts]
            mean = float(np.mean([each.mean() for each in values]))
            row.append(mean)
            if row[0] == "squared":
                row += ["", "", ""]
                continue
            p = paired_p_value(np.concatenate(values), np.concatenate(base), "t")
            won = sum(one.mean() > other.mean() for one, other in zip(values, base, strict=True))
            row += [f"{mean - float(np.mean([each.mean() for each in base])):+.4f}", f"{p:.2g}", f"{won}/{len(parts)}"]
    return header, rows


def read_parts(
    folder: str | Path, *, folds: Sequence[int] = (1, 2, 3, 4, 5), num_train: int = 20, seed: int = 0
) -> dict[str, Callable[[], tuple[Ratings, Ratings]]]:
    """The parts of an experiment: MovieLens 100K's folds, or a weak split of Jester.

    Args:
        folder: with `u1.base` and so on, or with `ratings.txt` in Jester's form.
        folds: of MovieLens.
        num_train: ratings a user to learn from, of Jester.
        seed: of the split of Jester.

    Raises:
        ValueError: the folder is neither.
    """
    folder = Path(folder)
    if (folder / "u1.base").is_file():
        return {f"u{fold}": lambda fold=fold: read_movielens_fold(folder, fold) for fold in folds}  # type: ignore[misc]
    if not (folder / "ratings.txt").is_file():
        raise ValueError(f"{folder} has neither u1.base (MovieLens 100K) nor ratings.txt (Jester)")

    def read() -> tuple[Ratings, Ratings]:
        split = weak_split(read_ratings(folder / "ratings.txt", "jester"), num_train, seed=seed)
        if split.left_out:
            print(f"{split.left_out} users have fewer than {num_train} + 10 ratings and are left out", file=sys.stderr)
        return split.train, split.test

    return {f"weak{num_train}": read}


def main(args: Sequence[str]) -> int:
    """`scripts/recommender_experiment.py`."""
    parser = argparse.ArgumentParser(prog="recommender_experiment.py", description=__doc__)
    parser.add_argument("--data", required=True, help="folder of MovieLens 100K or Jester")
    parser.add_argument("--output", default="runs/recommenders", help="folder of the results; one for each data set")
    parser.add_argument("--methods", nargs="+", default=list(RECIPES), choices=list(RECIPES), metavar="METHOD")
    parser.add_argument("--folds", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="of MovieLens")
    parser.add_argument("--train-ratings", type=int, default=20, help="ratings a user to learn from, of Jester")
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(args)
    try:
        parts = read_parts(options.data, folds=options.folds, num_train=options.train_ratings, seed=options.seed)
        header, rows = recommender_experiment(
            parts, options.output, methods=options.methods, rank=options.rank, seed=options.seed
        )
    except (ValueError, OSError) as error:
        print(f"recommender_experiment.py: {error}", file=sys.stderr)
        return 1
    print(format_table(header, rows))
    print(f"written: {Path(options.output) / 'results.jsonl'}")
    return 0
