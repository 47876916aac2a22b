"""Ranking factorisation against squared-loss factorisation of the same rank, item means, popularity, Gaussian processes and
ordinal perceptrons, on MovieLens and Jester.

Weak generalisation: of each user N ratings, drawn anew for each seed, are known, and the others predicted. Strong generalisation:
some users are new, their N known ratings give them a factor with the items fixed, and the others are predicted. A quarter of the
users, always the same, is there for tuning alone: their other ratings choose regularisation and number of steps,
for each method and each measure by itself, and are never tested. The regularisation is chosen with the first seed and kept.

The squared loss goes first, from random factors. The other methods start from its best factors (Le, Smola, Chapelle, Teo,
"Optimization of Ranking Measures", start from regression), and so does a second stage of the squared loss itself, with the same
learning rate and as many steps, so that none has more training than the baseline. The alternating scheme (section 7.2 there)
solves the users side by side with the items fixed, then the items by the bundle method.

Gaussian processes (GPR, GPOR, and CGPR and CGPOR, which all users share) and perceptrons (PRank, JRank) are fitted whole; their
noise, or passes, is tuned as the regularisation is. GPR and GPOR need features of items: MovieLens' genres.

A finished cell, one method on one part, is not run again.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn

from papers.gaussian import collaborative_gaussian_process, gaussian_process
from papers.perceptron import joint_kernels, jrank, prank
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser
from rankstruct.commands.cells import Cell, CellFolders, Key
from rankstruct.data import RankingData
from rankstruct.feature_maps import Positional
from rankstruct.files import write_result
from rankstruct.losses import ListNetLoss, ListOrdinalLoss, RankNetLoss, SmoothLoss, SquaredLoss, StructuredHingeLoss
from rankstruct.measures import ERU, evaluate, nERU
from rankstruct.models import load_scorer, save_scorer
from rankstruct.recommenders import (
    MatrixFactorization,
    Ratings,
    RatingsParts,
    adopt_users,
    alternate,
    item_means,
    merge,
    popularity,
    read_genres,
    read_movielens_fold,
    read_ratings,
    standardised,
    weak_split,
)
from rankstruct.recommenders.ratings import Labels
from rankstruct.recommenders.training import FactorizationModule, RatingsDataModule
from rankstruct.statistics import differences, paired_p_value
from rankstruct.text_tables import format_table

HALF_LIFE = 5
MEASURES = ("nDCG@10", "ERU")
START = "squared, first stage"
# Looks at the validation ratings in a training, and users a batch: new users have to be solved for, and lists are long.
_WEAK, _STRONG = (20, 500), (4, 250)


@dataclass(frozen=True)
class Settings:
    """How a factorisation is trained.

    Attributes:
        loss: from the neutral vote to the loss.
        labels: what it sees: `"grade"`, `"rating"`, or `"standardised"`, the rating with mean 0 and variance 1 over all.
        regularizations: the values of lambda that are tried.
        given_regularizations: those for the factors of new users with the items fixed.
        scale: what the scores of the start are multiplied by.
        learning_rate: of Adam.
        steps: at most; of the alternating scheme the rounds.
        max_items: items sampled from longer lists for each step.
        keep_start: whether the start is a candidate.
        alternating: whether users and items are solved in turns.
        new_user_loss: the loss that new users' factors are found with, as `loss`; None for the same.
        new_user_method: see `solve_users`.
    """

    loss: Callable[[float], nn.Module]
    labels: str = "grade"
    regularizations: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    given_regularizations: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    scale: float = 1.0
    learning_rate: float = 0.002
    steps: int = 100
    max_items: int | None = 60
    keep_start: bool = False
    alternating: bool = False
    new_user_loss: Callable[[float], nn.Module] | None = None
    new_user_method: str = "lbfgs"


def _orm(reference: str) -> Callable[[float], nn.Module]:
    return lambda _: StructuredHingeLoss("nDCG@10", feature_map=Positional("discount"), reference=reference)


def _orm_eru(reference: str) -> Callable[[float], nn.Module]:
    return lambda neutral: StructuredHingeLoss(
        nERU(d=neutral, half_life=HALF_LIFE), feature_map=Positional("discount"), reference=reference
    )


FACTORIZATIONS = {
    START: Settings(
        lambda _: SquaredLoss(),
        "standardised",
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.85, 1.1, 1.5, 2.0, 2.7, 3.6, 4.8),
        learning_rate=0.02,
        steps=360,
        max_items=None,
    ),
    "squared": Settings(
        lambda _: SquaredLoss(), "standardised", (0.03, 0.1, 0.3, 1.0), max_items=None, keep_start=True
    ),
    "ORM nDCG@10": Settings(
        _orm("predicted"),
        given_regularizations=(1.0, 3.0, 10.0, 30.0),
        new_user_loss=_orm("ideal"),
        new_user_method="bundle",
    ),
    "ORM nERU": Settings(
        _orm_eru("predicted"),
        "rating",
        given_regularizations=(1.0, 3.0, 10.0, 30.0),
        new_user_loss=_orm_eru("ideal"),
        new_user_method="bundle",
    ),
    "SmoothGrad nDCG@10": Settings(lambda _: SmoothLoss("nDCG@10", sigma=0.3), regularizations=(0.01, 0.1, 0.3)),
    "ListNet": Settings(lambda _: ListNetLoss()),
    "RankNet": Settings(lambda _: RankNetLoss(), scale=2.0, max_items=20),
    "MMMF": Settings(lambda _: ListOrdinalLoss(grades=5), scale=2.0, new_user_method="bundle"),
    "alternating ORM": Settings(
        _orm("ideal"),
        regularizations=(2.0, 8.0, 30.0, 100.0),
        given_regularizations=(1.0, 3.0, 10.0, 30.0),
        steps=3,
        alternating=True,
        new_user_method="bundle",
    ),
    "alternating RankNet": Settings(
        lambda _: RankNetLoss(),
        regularizations=(0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2),
        scale=2.0,
        steps=3,
        alternating=True,
    ),
}


class Comparator(NamedTuple):
    """A method that is fitted whole, by one function.

    Attributes:
        fit: from the training ratings, these with what new users gave, and features of items, to a scorer; with a setting.
        settings: that are tried.
        needs_features: whether it has nothing to say without them.
    """

    fit: Callable[..., nn.Module]
    settings: tuple[dict[str, Any], ...]
    needs_features: bool = False


def _alone(train: Ratings, known: Ratings, features: np.ndarray | None, **setting: Any) -> nn.Module:
    return gaussian_process(known, features=features, **setting)


def _shared(train: Ratings, known: Ratings, features: np.ndarray | None, **setting: Any) -> nn.Module:
    return collaborative_gaussian_process(train, features=features, **setting).given(known)


def _prank(train: Ratings, known: Ratings, features: np.ndarray | None, **setting: Any) -> nn.Module:
    return prank(known, **setting)


def _jrank(train: Ratings, known: Ratings, features: np.ndarray | None, **setting: Any) -> nn.Module:
    users, items = joint_kernels(known, item_features=features)
    return jrank(known, user_kernel=users, item_kernel=items, seed=0, **setting)


BASELINES = {
    "popularity": Comparator(lambda train, known, features: popularity(train), ({},)),
    "item means": Comparator(lambda train, known, features: item_means(train), ({},)),
}


def _noises(*values: float, **more: Any) -> tuple[dict[str, Any], ...]:
    return tuple({"noise": value, **more} for value in values)


_PASSES = (
    {"epochs": 1},
    {"epochs": 5},
    *({"epochs": epochs, "averaged": True} for epochs in (1, 5)),
)
COMPARATORS = {
    "GPR": Comparator(_alone, _noises(0.5, 2.0, 8.0), True),
    "CGPR": Comparator(_shared, _noises(1.0, 2.0, 4.0, steps=6)),
    "GPOR": Comparator(_alone, _noises(0.5, 2.0, 8.0, likelihood="ordinal"), True),
    "CGPOR": Comparator(_shared, _noises(1.0, 2.0, 4.0, steps=6, likelihood="ordinal")),
    "PRank": Comparator(_prank, _PASSES),
    "JRank": Comparator(_jrank, _PASSES),
}


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


class Found(NamedTuple):
    """What is best on the validation ratings by one measure: the value there, those of the test users, and the setting."""

    validation: float
    values: np.ndarray
    setting: Mapping[str, Any]


class _Training:
    """A factorisation on one part; keeps the best by each measure.

    Args:
        settings: how it is trained.
        parts: the ratings.
        rank: of the factors.
        seed: of the factors and batches.
        before: the settings chosen on another part, by measure; if empty, all are tried.
    """

    def __init__(
        self, settings: Settings, parts: RatingsParts, rank: int, seed: int, before: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.settings, self.parts, self.rank, self.seed, self.before = settings, parts, rank, seed, before
        self.labels: Labels = standardised(parts.train) if settings.labels == "standardised" else settings.labels  # type: ignore[assignment]
        self.loss = settings.loss(parts.train.neutral)
        self._vali_given = self._lists(parts.vali_given)
        self.best: dict[str, tuple[float, MatrixFactorization, dict[str, Any]]] = {}

    def run(self, start: MatrixFactorization | None) -> dict[str, Found]:
        """Train with every lambda, or with those chosen before, and test the best; by measure."""
        for regularization in self._tried("regularization", self.settings.regularizations):
            scorer = self._begin(start)
            if self.settings.keep_start:
                self._look(regularization, scorer, 0)
            train = self._alternate if self.settings.alternating else self._descend
            train(scorer, regularization, partial(self._look, regularization))
        return {name: Found(best[0], self._test(*best[1:])[name], best[2]) for name, best in self.best.items()}

    def _tried(self, name: str, values: Sequence[float]) -> Sequence[float]:
        return sorted({each[name] for each in self.before.values()}) or values

    def _test(self, scorer: MatrixFactorization, setting: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The test measures of each user, by measure."""
        scorer = copy.deepcopy(scorer)
        self._adopt(scorer, self._lists(self.parts.test_given), setting["given_regularization"])
        return measure_users(scorer, self.parts.test)

    def _lists(self, ratings: Ratings) -> RankingData | None:
        return ratings.to_lists(self.labels) if ratings.num_ratings else None

    def _begin(self, start: MatrixFactorization | None) -> MatrixFactorization:
        users, items = self.parts.train.num_users, self.parts.train.num_items
        scorer = MatrixFactorization(users, items, self.rank, user_bias=not self.settings.alternating, seed=self.seed)
        if start is not None:
            weights = copy.deepcopy(start.state_dict())
            root = math.sqrt(self.settings.scale)
            for name, factor in (("user_factors", root), ("item_factors", root), ("item_offsets", self.settings.scale)):
                weights[f"{name}.weight"] *= factor
            scorer.load_state_dict({name: weights[name] for name in scorer.state_dict()})
        return scorer.train()

    def _adopt(self, scorer: MatrixFactorization, given: RankingData | None, regularization: float | None) -> None:
        if given is None or regularization is None:
            return
        loss = self.loss
        if self.settings.new_user_loss is not None:
            loss = self.settings.new_user_loss(self.parts.train.neutral)
        adopt_users(scorer, given, loss, regularization=regularization, method=self.settings.new_user_method)

    def _look(self, regularization: float, scorer: MatrixFactorization, steps: int) -> None:
        """Measure the validation ratings; keep what is the best so far."""
        tried: Sequence[float | None] = [None]
        if self._vali_given is not None:
            tried = self._tried("given_regularization", self.settings.given_regularizations)
        for value in tried:
            if self._vali_given is not None:
                scorer = copy.deepcopy(scorer)
                self._adopt(scorer, self._vali_given, value)
            chosen = {"regularization": regularization, "given_regularization": value}
            for name, values in measure_users(scorer, self.parts.vali).items():
                mean, wanted = float(values.mean()), self.before.get(name, chosen)
                if chosen.items() <= wanted.items() and (name not in self.best or mean > self.best[name][0]):
                    self.best[name] = mean, copy.deepcopy(scorer), chosen | {"steps": steps}

    def _descend(self, scorer: MatrixFactorization, regularization: float, look: Callable[..., None]) -> None:
        settings = self.settings
        looks, users_per_batch = _WEAK if self._vali_given is None else _STRONG
        data = RatingsDataModule(
            self.parts.train,
            users_per_batch=users_per_batch,
            labels=self.labels,
            max_items=settings.max_items,
            seed=self.seed,
        )
        module = FactorizationModule(
            scorer,
            self.loss,
            regularization=regularization,
            optimizer=lambda parameters: torch.optim.Adam(parameters, lr=settings.learning_rate),
        )
        trainer = pl.Trainer(
            max_steps=settings.steps,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=0,
            callbacks=[_Looks(look, max(1, settings.steps // looks))],
        )
        trainer.fit(module, data)

    def _alternate(self, scorer: MatrixFactorization, regularization: float, look: Callable[..., None]) -> None:
        for round_number in range(1, self.settings.steps + 1):
            alternate(
                scorer,
                self.parts.train,
                self.loss,
                regularization=regularization,
                rounds=1,
                labels=self.labels,
                tolerance=0.02,
                max_iterations=30,
            )
            look(scorer, round_number)


class _Looks(pl.Callback):
    """Call a function at regular steps."""

    def __init__(self, look: Callable[..., None], every: int) -> None:
        self.look, self.every = look, every

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any) -> None:
        if trainer.global_step % self.every == 0:
            self.look(pl_module.scorer, trainer.global_step)


def _fit_comparator(
    comparator: Comparator, parts: RatingsParts, features: np.ndarray | None, before: Mapping[str, Mapping[str, Any]]
) -> dict[str, Found]:
    """By measure the best on validation, or what was chosen before."""
    known = merge([parts.train, parts.vali_given, parts.test_given])
    best: dict[str, Found] = {}
    for setting in comparator.settings:
        wanted = [name for name in MEASURES if before.get(name, setting) == setting]
        if not wanted:
            continue
        scorer = comparator.fit(parts.train, known, features, **setting)
        steering, tested = measure_users(scorer, parts.vali), measure_users(scorer, parts.test)
        for name in wanted:
            value = float(steering[name].mean())
            if name not in best or value > best[name].validation:
                best[name] = Found(value, tested[name], setting)
    return best


def _run_method(
    method: str,
    read: Callable[[], RatingsParts],
    features: np.ndarray | None,
    rank: int,
    seed: int,
    before: Mapping[str, Mapping[str, Any]],
    start: Path,
) -> dict[str, Any]:
    """Tune, or take the settings chosen before; train and test one method on one part. `start`: file of the first stage."""
    ratings = read()
    began = time.process_time()
    if method in FACTORIZATIONS:
        training = _Training(FACTORIZATIONS[method], ratings, rank, seed, before)
        found = training.run(None if method == START else load_scorer(start))  # type: ignore[arg-type]
        if method == START:
            save_scorer(training.best[MEASURES[0]][1], start)
    else:
        found = _fit_comparator({**BASELINES, **COMPARATORS}[method], ratings, features, before)
    measures = {name: {**each._asdict(), "values": each.values.tolist()} for name, each in found.items()}
    seconds = round(time.process_time() - began, 1)
    return {"users": np.unique(ratings.test.user).tolist(), "seconds": seconds, "measures": measures}


def recommender_experiment(
    groups: Mapping[str, Sequence[Callable[[], RatingsParts]]],
    output: str | Path,
    *,
    methods: Sequence[str] | None = None,
    rank: int = 10,
    features: np.ndarray | None = None,
) -> dict[str, tuple[list[str], list[list]]]:
    """Train and measure all methods on all parts; see the module.

    Args:
        groups: by name of the split, functions that make its parts, one a seed or fold; regularisation is tuned on the first.
        output: the folder of the results; finished ones are kept.
        methods: names of `FACTORIZATIONS` and `COMPARATORS`; None for all.
        rank: of the factors.
        features: `[items, d]` of the items; without them the comparators that need some are left out.

    Returns:
        By group, header and rows of a table, see `result_table`.

    Raises:
        ValueError: an unknown method, a folder with results of another rank or other data, or one that another process writes
            to.
        CellsFailed: trainings failed; the others are kept.
    """
    every = _names(methods, features is not None)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    root = Path(output)

    def make(group: str, number: int, read: Callable[[], RatingsParts], method: str, before: Mapping[str, Any]) -> Cell:
        folder, start = f"{group}-{number}", root / f"{group}-{number}" / "first-stage.pt"
        arguments = (method, read, features, rank, number, before, start)
        request = {"rank": rank, "data": digest_of_parts(read(), features), "before": before}
        return Cell(f"{folder}/{_plain(method)}", request, arguments, method, group, number)

    with warnings.catch_warnings(), CellFolders(root) as store:
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        warnings.filterwarnings("ignore", message="`isinstance.treespec, LeafSpec.` is deprecated")
        parts = [(group, n, cache(read)) for group, readers in groups.items() for n, read in enumerate(readers)]
        first = [make(*part, method, {}) for part in parts if part[1] == 0 for method in every]
        options = {
            "processes": 0,
            "what": "fits",
            "total": len(parts) * len(every),
        }  # in turn: all start from the first stage
        found = store.run(_run_method, first, **options).results
        chosen = {
            key[:2]: {name: each["setting"] for name, each in result["measures"].items()}
            for key, result in found.items()
        }
        rest = [make(*part, method, chosen[method, part[0]]) for part in parts if part[1] for method in every]
        found |= store.run(_run_method, rest, before=len(first), **options).results
    return {group: result_table(found, group, len(readers), every) for group, readers in groups.items()}


def digest_of_parts(parts: RatingsParts, features: np.ndarray | None = None) -> str:
    """A digest of all ratings, names and features that a method sees, sixteen characters."""
    digest = hashlib.sha256(b"" if features is None else np.ascontiguousarray(features).tobytes())
    for part in parts[:-1]:
        arrays = part.user, part.item, part.rating, *(names.offsets for names in (part.user_names, part.item_names))
        for array in (*arrays, part.user_names.text, part.item_names.text):
            digest.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)


def _names(methods: Sequence[str] | None, with_features: bool) -> list[str]:
    """All methods that run, the baselines and the squared loss among them."""
    known = [*FACTORIZATIONS, *COMPARATORS]
    unknown = [name for name in methods or () if name not in known]
    if unknown:
        raise ValueError(f"methods must be of {', '.join(known)}; got {', '.join(unknown)}")
    idle = [name for name, each in COMPARATORS.items() if each.needs_features and not with_features]
    wanted = known if methods is None else {START, "squared", *methods}
    return [*BASELINES, *(name for name in known if name in wanted and name not in idle)]


def result_table(
    found: Mapping[Key, Mapping[str, Any]], group: str, parts: int, methods: Sequence[str]
) -> tuple[list[str], list[list]]:
    """Header and rows, a method each: mean and standard error over the parts, difference to the squared loss, p, parts won.

    p is of a paired t-test over users, the values of a user being averaged over the parts it is tested in.
    """
    header = ["method"]
    rows: list[list] = [[method] for method in methods]
    users = np.concatenate([found["squared", group, number]["users"] for number in range(parts)])

    def values_of(method: str, measure: str) -> list[np.ndarray]:
        return [np.array(found[method, group, number]["measures"][measure]["values"]) for number in range(parts)]

    for name in MEASURES:
        header += [name, "vs squared", "p", "parts won"]
        base = values_of("squared", name)
        for row in rows:
            values = values_of(row[0], name)
            means = np.array([each.mean() for each in values])
            spread = f" ± {means.std(ddof=1) / math.sqrt(parts):.4f}" if parts > 1 else ""
            row.append(f"{means.mean():.4f}{spread}")
            if row[0] == "squared":
                row += ["", "", ""]
                continue
            ours, theirs = (_by_user(users, np.concatenate(each)) for each in (values, base))
            p = paired_p_value(ours, theirs, "t")
            won = int((differences(means, [each.mean() for each in base]) > 0).sum())
            difference = means.mean() - float(np.mean([each.mean() for each in base]))
            row += [f"{difference:+.4f}", f"{p:.2g}", f"{won}/{parts}"]
    return header, rows


def page_table(
    tables: Mapping[str, tuple[list[str], list[list]]], groups: Sequence[str]
) -> tuple[list[str], list[list]]:
    """Header and rows for a page: of each group, whose number is N, means with standard errors and marks.

    `++` and `--` are better and worse than the squared loss with p < 0.01, `+` and `-` with p < 0.05.
    """
    header, rows = ["method"], [[row[0]] for row in tables[groups[0]][1]]
    for group in groups:
        number = group.removeprefix("weak").removeprefix("strong")
        for at, name in enumerate(MEASURES):
            header.append(f"N = {number} {name}" if number.isdigit() else f"{group} {name}")
            for row, (_, value, difference, p, _) in zip(
                rows, ([each[0], *each[1 + 4 * at : 5 + 4 * at]] for each in tables[group][1]), strict=True
            ):
                sign = "" if p == "" or float(p) >= 0.05 else difference[0]
                row.append(f"{value} {sign * (2 if sign and float(p) < 0.01 else 1)}".strip())
    return header, rows


def _by_user(users: np.ndarray, values: np.ndarray) -> np.ndarray:
    _, number = np.unique(users, return_inverse=True)
    return np.bincount(number, values) / np.bincount(number)


def tuning_users(num_users: int) -> np.ndarray:
    """A quarter of the users, always the same, for tuning alone."""
    return np.random.default_rng(0).permutation(num_users)[: num_users // 4]


def weak_parts(ratings: Ratings, num_train: int, seed: int) -> RatingsParts:
    """Of each user `num_train` ratings to learn from; of the tuning users the others for validation, of the rest for the test."""
    split = weak_split(ratings, num_train, seed=seed)
    return _tuned_apart(split.train, split.test, split.left_out)


def strong_parts(ratings: Ratings, num_train: int, seed: int) -> RatingsParts:
    """New users, given `num_train` ratings: at validation the tuning users, at the test a third of the others, by `seed`."""
    split = weak_split(ratings, num_train, seed=seed)
    tuning = np.intersect1d(tuning_users(ratings.num_users), split.train.user)
    others = np.setdiff1d(split.train.user, tuning)
    new = np.random.default_rng([seed, 2]).permutation(others)[: max(1, len(others) // 3)]
    apart = np.isin(ratings.user, np.concatenate([tuning, new]))
    return RatingsParts(
        ratings.select(~apart),
        split.train.select_users(tuning),
        split.test.select_users(tuning),
        split.train.select_users(new),
        split.test.select_users(new),
        split.left_out,
    )


def fold_parts(folder: str | Path, fold: int) -> RatingsParts:
    """MovieLens 100K's own fold: of the tuning users the test ratings are for validation."""
    base, test = read_movielens_fold(folder, fold)
    return _tuned_apart(base, test, 0)


def _tuned_apart(train: Ratings, test: Ratings, left_out: int) -> RatingsParts:
    tuning = np.isin(test.user, tuning_users(test.num_users))
    nothing = train.select(np.zeros(train.num_ratings, bool))
    return RatingsParts(train, nothing, test.select(tuning), nothing, test.select(~tuning), left_out)


def read_groups(
    folder: str | Path,
    *,
    splits: Sequence[str] = ("weak", "strong"),
    num_train: Sequence[int] = (10, 20, 50),
    seeds: int = 5,
) -> dict[str, list[Callable[[], RatingsParts]]]:
    """The groups of an experiment on MovieLens 100K or Jester.

    Args:
        folder: with `u.data` (and `u1.base` and so on for the split `"folds"`), or with `ratings.txt` in Jester's form.
        splits: `"weak"`, `"strong"` or `"folds"`.
        num_train: values of N, ratings of a user that are known.
        seeds: draws of each weak and strong split.

    Raises:
        ValueError: the folder is neither, or has no folds; a number below 1.
    """
    folder = Path(folder)
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    groups: dict[str, list[Callable[[], RatingsParts]]] = {}
    drawn = [split for split in splits if split != "folds"]
    if "folds" in splits:
        if not (folder / "u1.base").is_file():
            raise ValueError(f"{folder} has no u1.base; the split folds is for MovieLens 100K")
        groups["folds"] = [lambda fold=fold: fold_parts(folder, fold) for fold in range(1, 6)]  # type: ignore[misc]
    if not drawn:
        return groups
    if (folder / "u.data").is_file():
        ratings = read_ratings(folder / "u.data", "movielens100k")
    elif (folder / "ratings.txt").is_file():
        ratings = read_ratings(folder / "ratings.txt", "jester")
    else:
        raise ValueError(f"{folder} has neither u.data (MovieLens 100K) nor ratings.txt (Jester)")
    make = {"weak": weak_parts, "strong": strong_parts}
    for split in drawn:
        for number in num_train:
            groups[f"{split}{number}"] = [
                lambda seed=seed, number=number, split=split: make[split](ratings, number, seed)  # type: ignore[misc]
                for seed in range(seeds)
            ]
    return groups


def _told(words: Sequence[str], folder: str) -> list[str]:
    """The words of the command line without where it writes, and with another name for where it reads."""
    kept = [word for at, word in enumerate(words) if not {word, words[at - 1] if at else ""} & {"--output", "--json"}]
    return ["FOLDER" if word == folder else word for word in kept]


def _genres(folder: str, groups: Mapping[str, Sequence[Callable[[], RatingsParts]]]) -> np.ndarray | None:
    """Features of the items of MovieLens 100K, whose numbers are the same in all parts except the folds."""
    path = Path(folder) / "u.item"
    if not path.is_file() or "folds" in groups:
        return None
    return read_genres(path, next(iter(groups.values()))[0]().train.item_names)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("recommenders", compare, args, program="recommender_experiment.py")


def compare(args: Sequence[str]) -> None:
    """Train what the folder does not hold yet, and print the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder of MovieLens 100K or Jester")
    parser.add_argument("--output", default="runs/recommenders", help="folder of the results; one for each data set")
    parser.add_argument("--methods", nargs="+", default=None, choices=[*FACTORIZATIONS, *COMPARATORS], metavar="METHOD")
    parser.add_argument("--splits", nargs="+", default=["weak", "strong"], choices=["weak", "strong", "folds"])
    parser.add_argument("--train-ratings", nargs="+", type=int, default=[10, 20, 50], help="N, known ratings of a user")
    parser.add_argument("--seeds", type=int, default=5, help="draws of each weak and strong split")
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write a table for each split to this file, for the documentation")
    options = parser.parse_args(args)
    groups = read_groups(options.data, splits=options.splits, num_train=options.train_ratings, seeds=options.seeds)
    tables = recommender_experiment(
        groups, options.output, methods=options.methods, rank=options.rank, features=_genres(options.data, groups)
    )
    for group, (header, rows) in tables.items():
        print(f"\n{group}: {len(groups[group])} parts")
        print(format_table(header, rows))
    if options.json:
        kinds = {kind: [group for group in tables if group.startswith(kind)] for kind in options.splits}
        shown = {kind: page_table(tables, names) for kind, names in kinds.items()}
        words = _told(args, options.data)
        write_result(options.json, ["python", "scripts/recommender_experiment.py", *words], shown, draws=options.seeds)
    print(f"\nwritten: {options.output}")


if __name__ == "__main__":
    sys.exit(main())
