"""The compiled core compared with brute force, so that a deliberate fault in it is noticed.

A comparison draws random lists, solves them by brute force, and makes checks, each of which calls the core. Run by
itself this is a server: it reads names of comparisons and paths of libraries, and for each forks a child that takes the library
and says whether every check holds. Brute-force results are computed once.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from assignment_problems import HARD, draw_hard_problem, draw_long_problem, draw_problem, draw_uneven_problem, solve
from brute_force import (
    diverse_decay,
    diverse_hinges,
    graded_auc_by_pairs,
    hinge_by_program,
    hinges,
    random_list,
    ranksvm_by_loop,
    surrogates_of_lists,
)
from diverse_problems import check_assignment, draw_assignment, draw_grouped, draw_reciprocal, reciprocal_hinges
from kernel_parts import EXPORTS, KERNELS_CPP, SOURCES, Parts, build
from scipy.optimize import linear_sum_assignment
from sorting_problems import KINDS, LENGTHS, draw_values, order_of, sorts
from tree_problems import TINY, draw_forest, draw_rows, score_by_walks, scorer_of

import rankstruct as rs
from rankstruct.kernels import core
from rankstruct.lists import Lists
from rankstruct.oracles.registry import find_oracle

#: Whether the core agrees; it gets parts of the core if the comparison is of these.
Check = Callable[[Any], Any]
SECONDS = 8  # of a processor, for all checks, which take one or two: what takes longer does not end


def _near(found: Any, expected: Any, allowed: float) -> bool:
    return bool((np.abs(np.asarray(found) - expected) <= allowed).all())  # nor where it is NaN


def _lay_out(
    rng: np.random.Generator, lists: list[tuple[np.ndarray, ...]]
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor], Any]:
    """Arrays of several lists as padded or flat tensors; how they are laid out; and what gives the numbers of list i back."""
    sizes = [len(each[0]) for each in lists]
    if len(lists) == 1:
        return [torch.tensor(each) for each in lists[0]], {}, lambda found, i: found
    if rng.random() < 0.5:
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        flat = [torch.tensor(np.concatenate(each)) for each in zip(*lists, strict=True)]
        return flat, {"offsets": torch.tensor(bounds)}, lambda found, i: found[bounds[i] : bounds[i + 1]]
    where = np.zeros((len(lists), max(sizes) + int(rng.integers(0, 3))), bool)
    for row, size in zip(where, sizes, strict=True):
        row[rng.permutation(len(row))[:size]] = True
    padded = []
    for each in zip(*lists, strict=True):
        values = np.full(where.shape, np.nan if each[0].dtype.kind == "f" else 7, each[0].dtype)
        values[where] = np.concatenate(each)
        padded.append(torch.tensor(values))
    return padded, {"where": torch.tensor(where)}, lambda found, i: found[i][torch.tensor(where[i])]


def _solved(
    rng: np.random.Generator,
    lists: list[tuple[np.ndarray, ...]],
    names: tuple[str, ...],
    expected: list[dict[str, float]],
    sizes: list[float],
    measure: rs.Measure,
    feature_map: rs.FeatureMap,
    references: tuple[str, ...],
) -> Check:
    """Value and direction are those of enumeration, under every reference, and documents that tie are treated alike.

    Each list is its scores, its labels and what `names` says.
    """
    (scores, labels, *others), layout, of = _lay_out(rng, lists)
    more = {**dict(zip(names, others, strict=True)), **layout}

    def check(_: Any) -> bool:
        for reference in references:
            options = {
                name: value for name, value in more.items() if name != "reference_scores" or reference != "ideal"
            }
            found = rs.most_violated(scores, labels, measure, feature_map=feature_map, reference=reference, **options)
            for i, (each, its, size) in enumerate(zip(lists, expected, sizes, strict=True)):
                value, task_loss = (float(values.reshape(-1)[i]) for values in (found.value, found.task_loss))
                direction = of(found.direction, i).numpy()
                # Of a reference that other scores choose, so bad that the hinge would be below 0, the value is 0.
                own = task_loss + direction @ each[0] if its[reference] > 0 or "reference_scores" not in more else 0.0
                if not _near([value, own], max(its[reference], 0.0), 1e-9 * size):
                    return False
                fixed = reference == "ideal" and not isinstance(feature_map, rs.Pairwise | rs.PartialPairwise)
                if not (
                    fixed or "diversity_groups" in more or "reference_scores" in more or _are_fair(*each[:2], direction)
                ):
                    return False
            if "where" in more and bool(found.direction[~more["where"]].any()):
                return False
        return True

    return check


def _are_fair(scores: np.ndarray, labels: np.ndarray, direction: np.ndarray) -> bool:
    """Whether documents of one score and one label are treated alike."""
    same = (scores[:, None] == scores) & (labels[:, None] == labels)
    return bool((np.abs(direction[:, None] - direction)[same] < 1e-12).all())


def _enumerated(measures: list[str], maps: list[rs.FeatureMap], most: int = 5) -> Callable[..., Iterator[Check]]:
    """Short lists, one alone or several together, at times with scores that choose the reference."""
    parsed = [rs.parse_measure(name) for name in measures]

    def draw(rng: np.random.Generator) -> Iterator[Check]:
        while True:
            measure, feature_map = parsed[rng.integers(len(parsed))], maps[rng.integers(len(maps))]
            lists, expected, sizes = [], [], []
            references = find_oracle(measure, feature_map).references
            chooses = rng.random() < 0.3
            for _ in range(rng.choice([1, 1, 3])):
                scores, labels, size = random_list(rng, isinstance(feature_map, rs.Positional), most)
                other = rng.permutation(len(scores)).astype(float)
                chosen = hinges(measure, feature_map, labels, scores, other) if chooses else {}
                expected.append(
                    {
                        **hinges(measure, feature_map, labels, scores),
                        **{key: chosen[key] for key in chosen if key != "ideal"},
                    }
                )
                lists.append((scores, labels, other) if chooses else (scores, labels))
                sizes.append(size)
            names = ("reference_scores",) if chooses else ()
            yield _solved(rng, lists, names, expected, sizes, measure, feature_map, references)

    return draw


def _programmed(measures: list[str], feature_map: rs.FeatureMap) -> Callable[..., Iterator[Check]]:
    """Longer lists of binary relevance, by a dynamic program."""

    def draw(rng: np.random.Generator) -> Iterator[Check]:
        while True:
            measure = rs.parse_measure(str(rng.choice(measures)))
            scores = rng.normal(size=int(rng.integers(10, 70))) * rng.choice([0.03, 0.3, 3.0])
            labels = (rng.random(len(scores)) < rng.choice([0.1, 0.3, 0.9])).astype(float)
            value = hinge_by_program(scores, labels > 0, measure, isinstance(feature_map, rs.PartialPairwise))
            yield _solved(rng, [(scores, labels)], (), [{"ideal": value}], [10.0], measure, feature_map, ("ideal",))

    return draw


def _by_turns(*draws: Callable[..., Iterator[Check]]) -> Callable[..., Iterator[Check]]:
    def draw(rng: np.random.Generator) -> Iterator[Check]:
        each = [its(rng) for its in draws]
        while True:
            for its in each:
                yield next(its)

    return draw


def _weighted_thresholds(rng: np.random.Generator) -> Iterator[Check]:
    """Graded labels, relevant at one threshold after another: the sum of what each is."""
    while True:
        name, reference = (("AP", "ideal"), ("AP@2", "ideal"), ("AUC", "predicted"), ("AP", "predicted"))[
            rng.integers(4)
        ]
        scores, labels, size = random_list(rng, True, 5)
        thresholds, weights = [0.7, 1.0, 2.0, 3.0][rng.integers(0, 2) :], rng.choice([0.5, 1.0, 2.0], 4)
        weights = weights[: len(thresholds)]
        measure, pairs = rs.parse_measure(name), rs.Pairwise()
        each = [hinges(measure, pairs, 1.0 * (labels >= t), scores)[reference] for t in thresholds]
        solve_grades = find_oracle(measure, pairs).solve_grades
        given = torch.tensor(scores), Lists(torch.tensor(labels)), measure, pairs, reference
        options = {"thresholds": torch.tensor(thresholds, dtype=torch.float64), "weights": torch.tensor(weights)}

        def check(
            _: Any, solve=solve_grades, given=given, options=options, scores=scores, expected=weights @ each, size=size
        ) -> bool:
            task_loss, value, direction = solve(*given, **options)
            return _near([value, task_loss + direction.numpy() @ scores], expected, 1e-8 * size)

        yield check


def _fractional_thresholds(rng: np.random.Generator) -> Iterator[Check]:
    """A label 0.7 is relevant from 0.7 on, in whatever precision either came."""
    while True:
        scores, grades = torch.tensor(rng.normal(size=8)), rng.integers(1, 10, 8)
        labels, least = (
            torch.tensor(grades / 10, dtype=[torch.float32, torch.float64][rng.integers(2)]),
            int(rng.integers(1, 10)),
        )

        relevant = torch.tensor(grades >= least)

        def check(_: Any, scores=scores, labels=labels, least=least, relevant=relevant) -> bool:
            found = rs.most_violated(scores, labels, rs.AP(min_relevant=least / 10), feature_map="pairwise")
            return torch.equal(found.value, rs.most_violated(scores, relevant, "AP", feature_map="pairwise").value)

        yield check


def _long_pairwise(rng: np.random.Generator) -> Iterator[Check]:
    """Lists of thousands of documents with few relevant ones; at times scores tie, one is far from the others, or one is NaN."""
    measure, rules = rs.AP(), (("ideal", False), ("predicted", True))
    for turn in count():
        n, p = int(rng.integers(4096, 5000)), int(rng.choice([1, 2, 5, 30]))
        relevant = rng.permutation(n) < p
        scores = (rng.normal(size=n) + rng.choice([0.0, 1.0, 3.0]) * relevant) * rng.choice([0.05, 1.0, 20.0, 3000.0])
        if turn % 3 == 1:
            scores = scores.round(int(rng.integers(0, 2)))
        if turn % 7 == 1:
            scores[0] = rng.choice([-1, 1]) * 1e5
        value = hinge_by_program(scores, relevant, measure)
        swapped = (scores[~relevant] - scores[relevant][:, None]).clip(min=0).sum() * 2 / (p * (n - p))
        expected, size = {"ideal": value, "predicted": value - swapped}, 1 + np.abs(scores).max()
        given = torch.tensor(scores), torch.tensor(relevant.astype(rng.choice(["f4", "f8", "i4", "i8", "u1"])))
        wrong = [torch.tensor(scores), torch.tensor(relevant.astype(float))]
        wrong[turn % 2][int(rng.integers(n))] = np.nan

        def check(_: Any, given=given, scores=scores, expected=expected, size=size, wrong=wrong) -> bool:
            for reference, predicted in rules:
                options = {"measure": measure, "feature_map": rs.Pairwise(), "reference": reference}
                found = rs.most_violated(*given, **options)
                direction = found.direction.numpy()
                same = rs.most_violated(*given, where=torch.ones(len(scores), dtype=torch.bool), **options).direction
                own = float(found.task_loss) + direction @ scores
                if not _near([float(found.value), own], expected[reference], 1e-12 * size):
                    return False
                if not _near(direction, same.numpy(), 1e-15) or not (predicted or direction.any()):
                    return False
            return _says("finite", *wrong, **options)

        yield check


def _long_positional(rng: np.random.Generator) -> Iterator[Check]:
    """SciPy's value; few gains and many, with a cut-off and without."""
    names = ["nDCG", "nDCG@5", "DCG(discount='letor')@20", "nDCG(gain='linear')@3", "DCG(gain='linear')", "P@7"]
    while True:
        measure, decay = (
            rs.parse_measure(str(rng.choice(names))),
            rs.Positional(["i^-1/3", "i^-1", "discount"][rng.integers(3)]),
        )
        n = int(rng.integers(17, 60))
        labels = rng.integers(0, rng.choice([2, 4, 9]), n).astype(float) if rng.random() < 0.5 else rng.random(n) * 3
        scores = rng.normal(size=n) * rng.choice([0.1, 1.0]) + labels * rng.choice([-0.5, 0.0, 0.5])
        a = measure.position_weights(n).numpy()
        c = decay.weights(n, torch.tensor(a), measure.cutoff).numpy()
        gains = measure.document_gains(torch.tensor(labels)).numpy()
        best = np.sort(gains)[::-1] @ a
        unit = best if measure.normalized and best > 0 else 1.0
        cost = np.outer(scores, c) - np.outer(gains, a) / unit
        value = cost[linear_sum_assignment(cost, maximize=True)].sum() + best / unit - np.sort(scores)[::-1] @ c
        value = value if best > 0 and len(set(gains)) > 1 and a[0] > a[-1] else 0.0
        yield _solved(rng, [(scores, labels)], (), [{"predicted": value}], [10.0], measure, decay, ("predicted",))


def _long_reciprocal(rng: np.random.Generator) -> Iterator[Check]:
    """Reciprocal rank under the positional map: SciPy's assignment for every number of irrelevant documents that lead."""
    while True:
        n, k = int(rng.integers(6, 25)), int(rng.choice([1, 3, 10, 100]))
        c, labels = np.arange(1, n + 1) ** -0.5, (rng.random(n) < rng.choice([0.1, 0.3, 0.7])).astype(float)
        labels[:2] = 1, 0
        scores = rng.normal(size=n) * rng.choice([0.03, 0.3, 3.0])
        best = -np.inf
        for r in range(min(int((labels == 0).sum()), k) + 1):
            cost = np.outer(scores, c) - 1e6 * np.outer(labels, np.arange(n) < r)
            best = max(
                best, 1.0 - (1.0 / (1 + r) if r < k else 0.0) + cost[linear_sum_assignment(cost, maximize=True)].sum()
            )
        value = best - np.sort(scores)[::-1] @ c
        decay = rs.Positional("i^-0.5")
        yield _solved(rng, [(scores, labels)], (), [{"predicted": value}], [10.0], rs.RR(k), decay, ("predicted",))


def _tied(diverse: bool) -> Callable[..., Iterator[Check]]:
    """Where all scores tie every reference is an ideal ranking."""

    def draw(rng: np.random.Generator) -> Iterator[Check]:
        while True:
            shown, diversity_groups, labels = (
                int(rng.integers(2, 6)),
                rng.permutation(np.repeat(np.arange(8), 3)),
                np.zeros(24, np.int64),
            )
            for grade in range(1, shown + 1):  # of groups 0, 1, ..., among others of grade 0
                labels[rng.choice(np.flatnonzero(diversity_groups == grade - 1))] = grade
            measure = f"{'diverse_' * diverse}nDCG@{shown}"
            given = torch.zeros(24, dtype=torch.float64), torch.tensor(labels), measure
            options = {"diversity_groups": torch.tensor(diversity_groups)} if diverse else {}

            def check(_: Any, given=given, options=options, graded=labels > 0) -> bool:
                ideal, *others = (
                    rs.most_violated(*given, feature_map="positional", reference=reference, **options).direction[graded]
                    for reference in ("ideal", "ideal-tied", "predicted")
                )
                return all(torch.equal(ideal, other) for other in others)

            yield check

    return draw


DIVERSE = [
    *(f"{kind}@{k}" for kind in ("nDCG", "DCG(discount='letor')", "P") for k in (1, 2, 3, 10)),
    *("DCG@3", "nDCG(discount='letor')@4", "ERU(d=1,half_life=3)@3", "nERU(d=0,half_life=2)@2", "WTA"),
    *(f"RR@{k}" for k in (1, 2, 3, 4, 10)),
    *("mWTA", "mWTA(discount='letor')") * 3,
]


def _diverse(rng: np.random.Generator) -> Iterator[Check]:
    """Short lists of any measure, and longer ones of reciprocal rank."""
    while True:
        scores, labels, diversity_groups, k = draw_reciprocal(rng)
        measure, decay, lists = rs.Diverse(rs.RR(k)), rs.Positional("i^-1/2"), [(scores, labels, diversity_groups)]
        expected = reciprocal_hinges(scores, labels, diversity_groups, k)
        yield _solved(rng, lists, ("diversity_groups",), [expected], [1.0], measure, decay, tuple(expected))
        plain, lists, expected, sizes = rs.parse_measure(str(rng.choice(DIVERSE))), [], [], []
        chooses = rng.random() < 0.2 and not isinstance(plain, rs.measures.mWTA)
        for _ in range(rng.choice([1, 1, 3])):
            scores, labels, diversity_groups, size = draw_grouped(rng)
            other = rng.permutation(len(scores)).astype(float)
            c = diverse_decay(plain, decay.name.partition("(")[2][:-1], len(scores) + 1)
            its = diverse_hinges(plain, c, labels, diversity_groups, scores)
            by_other = diverse_hinges(plain, c, labels, diversity_groups, scores, other)
            expected.append({**its, **{key: by_other[key] for key in ("ideal-tied", "predicted")}} if chooses else its)
            lists.append((scores, labels, diversity_groups, other) if chooses else (scores, labels, diversity_groups))
            sizes.append(1e3 * size * max(1.0, its["best"]))
        names = ("diversity_groups", "reference_scores") if chooses else ("diversity_groups",)
        references = ("ideal", "ideal-tied", "predicted")
        yield _solved(rng, lists, names, expected, sizes, rs.Diverse(plain), decay, references)


def _surrogates(rng: np.random.Generator) -> Iterator[Check]:
    """Values by enumeration; and each direction is a subgradient, by the values of the other lists."""
    names = [*(f"{name}@{k}" for name in ("P", "nDCG(min_relevant=1)", "DCG") for k in (1, 2, 3, 10)), "WTA"]
    while True:
        name, kind = str(rng.choice(names)), str(rng.choice(["average", "max"]))
        rescaling = "slack" if name.startswith(("P", "WTA")) and rng.random() < 0.4 else "margin"
        measure, n = rs.parse_measure(name), int(rng.integers(0, 6))
        p = int(rng.integers(0, n + 1))
        scores = rng.normal(size=(8, n)) * rng.choice([0.1, 1.0, 10.0], size=(8, 1))
        expected = surrogates_of_lists(measure, kind, rescaling, p, scores)
        order = rng.permuted(np.tile(np.arange(n), (8, 1)), axis=1)
        given = torch.tensor(np.take_along_axis(scores, order, 1), requires_grad=True)
        labels = torch.tensor((order < p).astype(float))

        def check(
            _: Any,
            given=given,
            labels=labels,
            name=name,
            kinds=(kind, rescaling),
            expected=expected,
            order=order,
            scores=scores,
        ) -> bool:
            found = rs.TopSurrogateLoss(name, *kinds, reduction="none")(given, labels)
            size = max(1.0, np.abs(scores).max(initial=0))
            if not _near(found.detach(), expected, 1e-9 * size):
                return False
            (slope,) = torch.autograd.grad(found.sum(), given)
            slopes = np.empty_like(scores)
            np.put_along_axis(slopes, order, slope.numpy(), 1)
            line = expected[:, None] + slopes @ scores.T - (slopes * scores).sum(1)[:, None]
            return bool((line <= expected + 1e-8 * size).all())

        yield check


def _graded_auc(rng: np.random.Generator) -> Iterator[Check]:
    """Value and gradient pair by pair and threshold by threshold; few thresholds and many."""
    while True:
        n, number = int(rng.integers(1, 20)), int(rng.integers(1, 12))
        scores = rng.normal(size=n) * rng.choice([0.1, 1.0])
        scores = np.round(scores * 4) / 4 if rng.random() < 0.3 else scores
        labels, weights = rng.integers(0, number + 2, n).astype(float), rng.choice([0.0, 0.5, 1.0, 2.0], number)
        thresholds = rng.permutation(number) + 1.0
        expected = graded_auc_by_pairs(scores, labels, thresholds, weights)
        given = torch.tensor(scores, requires_grad=True), torch.tensor(labels)
        options = {"grades": thresholds.tolist(), "grade_weights": weights.tolist()}

        def check(_: Any, given=given, options=options, expected=expected) -> bool:
            found = rs.GradedLoss("AUC", **options)(*given)
            (slope,) = torch.autograd.grad(found, given[0])
            return _near(found.item(), expected[0], 1e-9) and _near(slope, expected[1], 1e-12)

        yield check


def _ranksvm(rng: np.random.Generator) -> Iterator[Check]:
    """Value and gradient pair by pair; few grades and many."""
    while True:
        n, margin = int(rng.integers(1, 150)), float(rng.choice([0.25, 1.0]))
        scores, labels = np.round(rng.normal(size=n) * 8) / 8, rng.integers(0, rng.choice([2, 5, 100, 1000]), n)
        expected = ranksvm_by_loop(scores, labels, margin)
        given = torch.tensor(scores, requires_grad=True), torch.tensor(labels)

        def check(_: Any, given=given, margin=margin, expected=expected) -> bool:
            found = rs.RankSVMLoss(margin)(*given)
            (slope,) = torch.autograd.grad(found, given[0])
            return _near(found.item(), expected[0], 1e-9) and _near(slope, expected[1], 1e-12)

        yield check


_LABELS = ((np.float32, 0), (np.float64, 1), (np.int64, 2), (np.int32, 3), (np.uint8, 4))


def _batches(rng: np.random.Generator) -> Iterator[Check]:
    """AUC's loop as Python calls it: some lists of a batch of any layout and types; nothing else is written; what is refused."""
    while True:
        count, flat = int(rng.integers(1, 5)), rng.random() < 0.5
        sizes = rng.integers(0, 50, count) if flat else np.full(count, rng.integers(1, 50))
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        score_type, (label_dtype, label_type) = int(rng.integers(2)), _LABELS[rng.integers(5)]
        scores = rng.normal(size=bounds[-1]).astype([np.float32, np.float64][score_type])
        labels = rng.integers(0, 3, bounds[-1]).astype(label_dtype)
        where = (rng.random(bounds[-1]) < 0.7).astype(np.uint8) if rng.random() < 0.6 else None
        gains = np.array([0.0, 3.0, 0.0]) if rng.random() < 0.4 else None
        first = int(rng.integers(0, count))
        last = int(rng.integers(first, count)) + 1
        real = np.ones(bounds[-1], bool) if where is None else where == 1
        wrong = -1
        here = np.flatnonzero(real[bounds[first] : bounds[last]]) + bounds[first]
        if rng.random() < 0.4 and len(here):
            places = np.sort(rng.choice(here, min(2, len(here)), replace=False))
            wrong = int(places[0])
            spoilt = "scores" if gains is not None or label_dtype == np.uint8 or rng.random() < 0.5 else "labels"
            if spoilt == "scores":
                scores[places] = rng.choice([np.nan, np.inf, -np.inf], len(places))
            else:
                labels[places] = -1
            of_list = np.searchsorted(bounds, places, side="right")
            if len(places) == 2 and of_list[0] == of_list[1] and spoilt == "labels":
                scores[places] = rng.permutation([-1e3, 1e3])  # the first as given, not by score
        gained = labels.astype(float) if gains is None else gains[labels.astype(int).clip(0)]
        expected = (
            [
                graded_auc_by_pairs(
                    scores[a:b][real[a:b]].astype(float), 1.0 * (gained[a:b][real[a:b]] > 0), [1.0], [1.0]
                )
                for a, b in pairwise(bounds)
            ]
            if wrong < 0
            else []
        )

        def check(
            _: Any,
            arrays=(scores, labels, where, bounds if flat else None, gains),
            numbers=(count, 0 if flat else int(sizes[0]), score_type, label_type, first, last),
            bounds=bounds,
            real=real,
            expected=expected,
            wrong=wrong,
        ) -> bool:
            return _do_some(arrays, numbers, bounds, real, expected, wrong)

        yield check


def _do_some(arrays: Any, numbers: Any, bounds: np.ndarray, real: np.ndarray, expected: list, wrong: int) -> bool:
    scores, labels, where, offsets, gains = arrays
    count, size, score_type, label_type, first, last = numbers
    task_loss, value, direction = (np.full(n, np.nan, scores.dtype) for n in (count, count, len(scores)))
    address = [None if each is None else each.ctypes.data for each in (scores, labels, where, offsets)]
    results = (each.ctypes.data for each in (task_loss, value, direction))
    table = None if gains is None else gains.ctypes.data
    batch = core.CoreBatch(*address, None, None, table, None, None, None, *results)
    batch.lists, batch.size, batch.grades = count, size, 0 if gains is None else len(gains)
    batch.min_relevant, batch.score_type, batch.label_type = np.nan, score_type, label_type
    found = core.pairwise_auc(batch, first, last, core.pairwise_auc.options(0))
    if wrong >= 0:
        return found == wrong
    allowed = 1e-6 if score_type == 0 else 1e-12
    total, lists = 0.0, 0
    for i in range(count):
        a, b = bounds[i], bounds[i + 1]
        its = direction[a:b]
        if not first <= i < last:
            if not np.isnan([*its, value[i], task_loss[i]]).all():
                return False
            continue
        whole, slope = expected[i]
        if not (
            _near(value[i], whole, 20 * allowed)
            and _near(its[real[a:b]], slope, allowed)
            and _near(its[~real[a:b]], 0, 0)
        ):
            return False
        total, lists = total + value[i], lists + bool(real[a:b].any())
    return found == -1 and batch.real_lists == lists and abs(batch.sum - total) <= 1e-5


def _refused(rng: np.random.Generator) -> Iterator[Check]:
    """What cannot be is refused, and the right document named; what can be is not."""
    chosen = {"reference": "predicted", "reference_scores": torch.tensor([0.0, 1, torch.nan, 3])}
    lists, diversity_groups = (
        torch.tensor([[0.0, 1, 2, 3], [3, 0, 1, 2]]),
        {"diversity_groups": torch.tensor([0, 1, 2, 3])},
    )
    cases: list[tuple[str, tuple, dict[str, Any]]] = [
        ("document 2 is nan", (lists[0], [0, 1, 0, 1], "AP"), chosen),
        ("far apart .* document 1", ([0.0, -1e308, 1e308], [0, 1, 1], "AP"), {}),
        ("far apart .* document 2", ([0.0, 1.0, -1e302], [0, 1, 1], "DCG"), {}),
        ("document 0 has gain 1, document 3 has gain 3", (lists[0], [1, 0, 0, 2], "nDCG"), {"feature_map": "pairwise"}),
        ("", ([0.0, -1e300, -1e300, 1.0], [0, 1, 0, 2], "DCG"), {}),
        ("", (lists[1], [1, 0, 0, 1], "nDCG"), {"feature_map": "pairwise"}),
        (
            "far apart .* document 2",
            ([1e300, 0.0, -9e300, 0.0], [0, 1, 0, 1], "diverse_nDCG@3"),
            {"feature_map": "positional(k+1-i)"} | diversity_groups,
        ),
    ]
    while True:
        for message, (scores, labels, measure), options in cases:
            given = torch.as_tensor(scores, dtype=torch.float64), torch.as_tensor(labels), measure

            def check(_: Any, given=given, options=options, message=message) -> bool:
                return _says(message, *given, **options)

            yield check


def _says(message: str, *given: Any, **options: Any) -> bool:
    import re

    try:
        rs.most_violated(*given, **options)
    except ValueError as error:
        return bool(message) and re.search(message, str(error)) is not None
    return not message


def _known_gains(rng: np.random.Generator) -> Iterator[Check]:
    """Gains that are known by grade are those of whole labels alone."""
    while True:
        scores, labels = torch.tensor(rng.normal(size=(2, 9))), torch.tensor(rng.integers(0, 9, (2, 9)) / 2)
        whole = labels.floor()

        def check(_: Any, scores=scores, labels=labels, whole=whole) -> bool:
            rs.most_violated(scores, whole, "DCG")  # from now on known
            found, gained = rs.most_violated(scores, labels, "DCG").value, rs.DCG().document_gains(labels)
            return torch.allclose(found, rs.most_violated(scores, gained, "DCG(gain='linear')").value, rtol=1e-12)

        yield check


def _sorting(rng: np.random.Generator) -> Iterator[Check]:
    while True:
        for kind in KINDS:
            n, dtype = int(rng.choice(LENGTHS)), str(rng.choice(["float32", "float64"]))
            values = draw_values(rng, kind, n, dtype)
            yield lambda parts, values=values: sorts(parts, values)


def _grades(rng: np.random.Generator) -> Iterator[Check]:
    while True:
        count = int(rng.choice([1, 2, 5, 20, 64, 65, 100]))
        values = rng.choice((rng.permutation(210)[:count] - 9) / rng.choice([1, 7]), int(rng.integers(1, 400)))
        values = np.where(rng.random(len(values)) < 0.2, -0.0, values)
        expected = -np.unique(-values + 0.0)

        def check(parts: Any, values=values, expected=expected) -> bool:
            n = len(values)
            number, starts, order, pointer = (np.full(n + 1, -1, np.int32) for _ in range(4))
            value = np.empty(n + 1)
            found = parts.grades_of(values, number[:n], value, starts, order[:n], pointer)
            behind = [0, *((values >= each).sum() for each in expected)]
            return (
                found == len(expected)
                and np.array_equal(value[:found], expected)
                and np.array_equal(number[:n], np.searchsorted(-expected, -values))
                and np.array_equal(starts[: found + 1], behind)
                and np.array_equal(order[:n], order_of(values))
            )

        yield check


def _trees(rng: np.random.Generator) -> Iterator[Check]:
    while True:
        single, d, documents = (
            bool(rng.random() < 0.3),
            int(rng.integers(1, 6)),
            int(rng.choice([0, 1, 15, 16, 17, 64, 65, 150])),
        )
        forest, dtype = draw_forest(rng, d, single), str(rng.choice(["float32", "float64"]))
        rows = draw_rows(rng, forest, documents, d, dtype)
        expected = score_by_walks(forest, rows, single)
        buffers = [each.numpy() for each in scorer_of(forest, d, single).buffers()]

        def check(parts: Any, rows=rows, expected=expected, buffers=buffers, single=single) -> bool:
            found = np.full(len(rows), np.nan)
            score = parts.score_floats if rows.dtype == np.float32 else parts.score_doubles
            assert score(rows, rows.shape[1], *buffers, -1.0 if single else TINY, single, found)
            return np.array_equal(found, expected)

        yield check


def _ties(rng: np.random.Generator) -> Iterator[Check]:
    """Where scores choose, documents that are neighbours and have one chosen score share what they have."""
    while True:
        n = int(rng.integers(1, 12))
        score, chosen = -np.sort(rng.integers(0, 3, n)).astype(float), rng.integers(0, 2, n).astype(float)
        given, expected, begin = rng.normal(size=n), np.empty(n), 0
        for end in range(1, n + 1):
            if end == n or (score[end], chosen[end]) != (score[begin], chosen[begin]):
                expected[begin:end] = given[begin:end].mean()
                begin = end

        def check(parts: Any, score=score, chosen=chosen, given=given, expected=expected) -> bool:
            found = given.copy()
            parts.share(score, chosen, np.arange(len(score), dtype=np.int32), found)
            return _near(found, expected, 1e-12)

        yield check


def _assignment(rng: np.random.Generator) -> Iterator[Check]:
    """Every method that takes a problem."""
    turn = 0
    while True:
        turn += 1
        n = int(rng.integers(9, 60))
        k = int(rng.integers(1, n + 1)) if rng.random() < 0.5 else n
        draws: list[tuple[Any, int]] = [
            (draw_problem(rng, n, int(rng.choice([2, 3, 5, 9])), k), k),
            (draw_hard_problem(rng, HARD[turn % len(HARD)], n, k)[0], k),
        ]
        uneven = draw_uneven_problem(rng, int(rng.choice([2, 3, 5])), turn)
        draws.append((uneven, len(uneven.score)))
        if turn % 20 == 0:
            k = int(rng.choice([40, 150, 300]))
            draws.append((draw_long_problem(rng, int(rng.integers(6)), k, float(rng.choice([1.5, 50.0]))), k))
        for problem, cut in draws:
            size, best = max(np.abs(problem.score).max(), problem.gain.max()), problem.best_value()

            def check(parts: Any, problem=problem, cut=cut, expected=best, size=size) -> bool:
                return all(
                    _near(problem.value(classes), expected, 1e-10 * size)
                    for classes in solve(parts, problem, cut).values()
                )

            yield check


def _groups(rng: np.random.Generator) -> Iterator[Check]:
    """Ranks assigned to groups, with and without a table; with 0, 1, ... leading ranks; bounds between them."""
    while True:
        problem, seed = draw_assignment(rng), int(rng.integers(2**31))
        expected = [problem.best(lead) for lead in range(problem.most_leads() + 1)]

        def check(parts: Any, problem=problem, seed=seed, expected=expected) -> bool:
            return check_assignment(np.random.default_rng(seed), parts, problem, expected)

        yield check


@dataclass(frozen=True)
class Comparison:
    """What is compared, with which brute force, how often.

    Attributes:
        draw: `(rng)` to checks without an end.
        checks: how many are made.
        loops: of the core, that the checks call.
        source: or the file of parts that they call.
    """

    draw: Callable[[np.random.Generator], Iterator[Check]]
    checks: int
    loops: tuple[str, ...] = ()
    source: str = ""


_DISCOUNTS = [
    "nDCG",
    "nDCG@2",
    "DCG@3",
    "DCG(discount='letor')",
    "nDCG(discount='letor')",
    "RBP@3",
    "P@1",
    "P@3",
    "WTA",
]
_PAIRWISE = ["AUC", "AP", "AP@1", "AP@3", "RR", "RR@2", *_DISCOUNTS]
_LONG = ["AUC", "AP", "AP@5", "RR@3", "nDCG", "nDCG@9", "DCG(discount='letor')@20", "P@4"]
_AREAS = [
    "pAUC(high=0.3)",
    "pAUC(high=0.7,min_tpr=0.4)",
    "pAUC(low=0.2,high=0.7)",
    "pAUC(low=0.25,high=0.5,min_tpr=0.5)",
]
_SETS = ["R@2", "Rprec", "Success@2", "Success@1", "F1", "F(beta=3)", "F1@3", "Accuracy", "P@3"]
_GAINS = [
    "nDCG",
    "nDCG@2",
    "DCG(discount='letor')@3",
    "ERU(d=1,half_life=3)",
    "P@2",
    "WTA",
    "mWTA",
    "mWTA(discount='letor')",
]
_MAPS = [rs.Positional(decay) for decay in ("i^-1/2", "i^-2", "discount")]

COMPARISONS = {
    "pairwise": Comparison(
        _by_turns(_enumerated(_PAIRWISE, [rs.Pairwise()]), _programmed(_LONG, rs.Pairwise())),
        1200,
        tuple(
            f"pairwise_{name}"
            for name in (
                "auc",
                "average_precision",
                "precision_at_cutoff",
                "convex_discount",
                "discount_at_cutoff",
                "reciprocal_rank",
            )
        ),
    ),
    "long lists": Comparison(_long_pairwise, 40, ("pairwise_average_precision",)),
    "thresholds": Comparison(
        _by_turns(_weighted_thresholds, _fractional_thresholds),
        400,
        ("pairwise_auc", "pairwise_average_precision", "pairwise_precision_at_cutoff"),
    ),
    "partial area": Comparison(
        _by_turns(
            _enumerated(_AREAS, [rs.Pairwise(), rs.PartialPairwise()]),
            _programmed(_AREAS, rs.Pairwise()),
            _programmed(_AREAS, rs.PartialPairwise()),
        ),
        1200,
        ("partial_area", "partial_area_of_window"),
    ),
    "contingency": Comparison(_enumerated(_SETS, [rs.PredictedPositive()], 6), 800, ("contingency",)),
    "first relevant": Comparison(_enumerated(["RR", "RR@2", "RR@3"], [rs.FirstRelevant()]), 400, ("first_relevant",)),
    "surrogates": Comparison(_surrogates, 400, ("top_surrogate",)),
    "graded AUC": Comparison(_graded_auc, 300, ("pairwise_auc",)),
    "ranksvm": Comparison(_ranksvm, 150, ("pairwise_hinge",)),
    "positional": Comparison(
        _by_turns(
            _enumerated(_GAINS, _MAPS),
            _enumerated(["RR", "RR@2"], _MAPS),
            _long_positional,
            _long_reciprocal,
            _tied(False),
        ),
        2000,
        ("positional",),
    ),
    "diverse": Comparison(_by_turns(_diverse, _diverse, _tied(True)), 3600, ("page_hinge",)),
    "batches": Comparison(_batches, 500, ("pairwise_auc",)),
    "refusals": Comparison(
        _refused,
        7,
        ("pairwise_average_precision", "pairwise_convex_discount", "positional", "page_hinge"),
    ),
    "known gains": Comparison(_known_gains, 20, ("positional",)),
    "sorting": Comparison(_sorting, 400, source="sorting.cpp"),
    "grades": Comparison(_grades, 200, source="sorting.cpp"),
    "ties": Comparison(_ties, 50, source="sorting.cpp"),
    "assignment": Comparison(_assignment, 1500, source="assignment.cpp"),
    "groups": Comparison(_groups, 600, source="diverse.cpp"),
    "trees": Comparison(_trees, 100, source="trees.cpp"),
}


def build_library(name: str, headers: Path, folder: Path) -> Path:
    """What a comparison calls, built from these headers."""
    comparison, source = COMPARISONS[name], folder / "core.cpp"
    if comparison.source:
        source = SOURCES / comparison.source
    else:
        before = KERNELS_CPP[: KERNELS_CPP.index(next(iter(EXPORTS.values())))]
        source.write_text("\n".join([before, *(EXPORTS[loop] for loop in comparison.loops), ""]))
    return build(source, folder / "core.so", "-O0", headers=headers)


def _agrees(comparison: Comparison, checks: list[Check], path: Path) -> bool:
    if comparison.source:
        parts = Parts(path)
        return all(check(parts) for check in checks)
    library = ctypes.CDLL(str(path))
    for name in comparison.loops:
        loop = getattr(core, name)
        function = library[f"rankstruct_{name}"]
        function.argtypes, function.restype = loop.function.argtypes, loop.function.restype
        loop.function = function
    return all(check(None) for check in checks)


def serve() -> None:
    """Answer each line, `name<tab>path of a library`, by `agrees` or `differs`."""
    import resource  # which Windows lacks, as it lacks fork

    torch.set_num_threads(1)  # of which no fork loses any
    made: dict[str, list[Check]] = {}
    for line in sys.stdin:
        name, path = line.rstrip("\n").split("\t")
        comparison = COMPARISONS[name]
        if name not in made:
            made[name] = list(islice(comparison.draw(np.random.default_rng(0)), comparison.checks))
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            try:
                os._exit(0 if _agrees(comparison, made[name], Path(path)) else 1)
            except BaseException:
                os._exit(2)
        print("agrees" if os.waitpid(child, 0)[1] == 0 else "differs", flush=True)


if __name__ == "__main__":
    serve()
