"""Brute force for the oracles: every ranking of a short list, from the definitions; and a dynamic program for long ones.

Shares no code with rankstruct: measures and feature maps are written out again here, by class name and parameters.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import torch


def random_list(rng, graded: bool, most: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Scores of scales 1e-3 to 1e3, often tied, labels, and the size that errors are measured by."""
    n = int(rng.integers(0, most + 1))
    scale = 10.0 ** rng.integers(-3, 4)
    scores = rng.normal(size=n) * scale
    if rng.random() < 0.4:
        scores = np.round(scores * 2) / 2
    labels = rng.integers(0, (rng.integers(1, 5) if graded else 1) + 1, size=n).astype(float)
    return scores, labels, max(1.0, np.abs(scores).max(initial=0))


@functools.cache
def all_ranks(n: int) -> np.ndarray:
    """The 1-based rank of every document in every ranking, [rankings, documents]."""
    return np.array(list(itertools.permutations(range(1, n + 1))), dtype=int).reshape(math.factorial(n), n)


def probability(order, scores):
    """Of a ranking, of its first ranks or of all, by the Plackett-Luce policy of scores; a tensor that can be differentiated."""
    value = torch.ones((), dtype=torch.float64)
    left = list(range(len(scores)))
    for document in order:
        value = value * torch.exp(scores[document] - torch.logsumexp(scores[left], 0))
        left.remove(document)
    return value


def measure_values(measure, labels: np.ndarray, ranks: np.ndarray, weights=1.0) -> np.ndarray:
    """The measure of one list under each ranking [rankings], of AUC and discounted gains also with item weights."""
    kind, k = type(measure).__name__, measure.cutoff or 10**9
    n = len(labels)
    weights = np.ones(n) * weights
    good = labels > 0 if measure.min_relevant is None else labels >= measure.min_relevant
    p = good.sum()
    if kind in ("AUC", "pAUC", "AP", "RR") and p == 0:
        return np.zeros(len(ranks))
    if kind == "pAUC":
        weights, right = window_pairs(measure, ranks, good, measure.low)
        return (weights * right).sum((1, 2)) if p < n else np.zeros(len(ranks))
    if kind == "AUC":
        pairs = [(i, j) for i in np.flatnonzero(good) for j in np.flatnonzero(~good)]
        right = sum((ranks[:, i] < ranks[:, j]) * weights[i] * weights[j] for i, j in pairs)
        return right / sum(weights[i] * weights[j] for i, j in pairs) if pairs else np.zeros(len(ranks))
    if kind == "AP":
        total = np.zeros(len(ranks))
        for i in np.flatnonzero(good):
            hits = (ranks[:, good] <= ranks[:, [i]]).sum(1)
            total += np.where(ranks[:, i] <= k, hits / ranks[:, i], 0)
        return total / p
    if kind == "RR":
        nearest = ranks[:, good].min(1)
        return np.where(nearest <= k, 1 / nearest, 0)
    if kind in ("nDCG", "DCG", "mWTA"):
        gains = np.exp2(labels) - 1
        discount = [
            1 / math.log2(1 + r) if measure.discount == "log2" else 1 / math.log2(max(r, 2)) for r in range(1, n + 1)
        ]
    elif kind in ("ERU", "nERU"):
        gains = np.maximum(labels - measure.d, 0)
        discount = [2 ** ((1 - r) / (measure.half_life - 1)) for r in range(1, n + 1)]
    elif kind == "P":
        gains, discount = good.astype(float), [1 / k] * n
    elif kind == "RBP":
        gains, going = good.astype(float), measure.patience
        discount = [(1 - going) * going ** (r - 1) for r in range(1, n + 1)]
    else:
        assert kind == "WTA"
        gains, discount = good.astype(float), [1.0] + [0.0] * (n - 1)
    if kind == "mWTA":
        k = list_cutoff(labels)
    table = np.array([d if r < k else 0.0 for r, d in enumerate(discount)] or [0.0])
    values = (table[ranks - 1] * (gains * weights)).sum(1)
    if kind in ("nDCG", "nERU", "mWTA"):
        best = values.max(initial=0)
        return values / best if best > 0 else values * 0
    return values


def overlap(position, low: float, high: float):
    """The part of [position, position + 1) between two numbers."""
    return np.clip(np.minimum(position + 1, high) - np.maximum(position, low), 0, None)


def window_pairs(measure, ranks: np.ndarray, good: np.ndarray, low: float) -> tuple[np.ndarray, np.ndarray]:
    """How much each pair [rankings, goods, bads] counts in a partial area from `low`, all together 1; which are in order."""
    of_good, of_bad = ranks[:, good], ranks[:, ~good]
    p, m = of_good.shape[1], of_bad.shape[1]
    goods_above, bads_above = ((each[:, :, None] > each[:, None, :]).sum(2) for each in (of_good, of_bad))
    counted = (
        overlap(goods_above, measure.min_tpr * p, p)[:, :, None]
        * overlap(bads_above, low * m, measure.high * m)[:, None]
    )
    area = p * (1 - measure.min_tpr) * m * (measure.high - low)
    return counted / max(area, 1e-300), of_good[:, :, None] < of_bad[:, None, :]


def list_cutoff(labels: np.ndarray) -> int:
    """mWTA's: 3 if two grades are among the three highest labels, else the first rank of a lower grade by label."""
    ordered = sorted(labels, reverse=True)
    if len(set(ordered[:3])) >= 2:
        return 3
    lower = [rank for rank, label in enumerate(ordered, 1) if label < ordered[0]]
    return lower[0] if lower else 10**9


def decay(name: str, k: int | None, n: int, discount: list[float]) -> np.ndarray:
    """The decay of a name at ranks 1 to n."""
    ranks = range(1, n + 1)
    if name == "discount":
        return np.array(discount)
    if name == "k+1-i":
        return np.array([max(k + 1 - i, 0) for i in ranks], dtype=float)
    if name == "1/log2(i+1)":
        return np.array([1 / math.log2(i + 1) for i in ranks])
    if name == "1/log2(log2(i+1)+1)":
        return np.array([1 / math.log2(math.log2(i + 1) + 1) for i in ranks])
    top, _, bottom = name.removeprefix("i^-").partition("/")
    return np.array([i ** -(float(top) / float(bottom or 1)) for i in ranks])


def psi(feature_map, measure, labels: np.ndarray, ranks: np.ndarray, weights=1.0) -> np.ndarray:
    """The feature map of each ranking [rankings, documents], the pairwise one also with item weights."""
    n = len(labels)
    weights = np.ones(n) * weights
    good = labels > 0 if measure.min_relevant is None else labels >= measure.min_relevant
    kind = type(feature_map).__name__
    result = np.zeros(ranks.shape)
    if kind == "Pairwise":
        for i in np.flatnonzero(good):
            for j in np.flatnonzero(~good):
                share = weights[i] * weights[j] / (weights[good].sum() * weights[~good].sum())
                sign = np.where(ranks[:, i] < ranks[:, j], share, -share)
                result[:, i] += sign
                result[:, j] -= sign
    elif kind == "PartialPairwise":
        if 0 < good.sum() < n:
            weights, right = window_pairs(measure, ranks, good, 0.0)
            result[:, good] = -2 * (weights * ~right).sum(2)
            result[:, ~good] = 2 * (weights * ~right).sum(1)
    elif kind == "FirstRelevant":
        if good.any():
            nearest = ranks[:, good].min(1)
            result[ranks < nearest[:, None]] = 1
            result -= (ranks == nearest[:, None]) * (nearest[:, None] - 1)
    else:
        discount = []
        if feature_map.decay == "discount":
            ones = np.zeros(n)
            for r in range(n):  # the measure's discount at rank r + 1: one document of gain 1 there, 0 elsewhere
                ones[r] = single_discount(measure, r + 1)
            discount = list(ones)
        c = decay(feature_map.decay, measure.cutoff, n, discount)
        if feature_map.cutoff is not None:
            c[feature_map.cutoff :] = 0
        result = c[ranks - 1] if n else result
    return result


def single_discount(measure, rank: int) -> float:
    """What rank `rank` is worth to a discounted measure, or 1/rank for reciprocal rank."""
    kind, k = type(measure).__name__, measure.cutoff or 10**9
    if rank > k:
        return 0.0
    return {
        "RR": lambda: 1 / rank,
        "nDCG": lambda: 1 / math.log2(1 + rank) if measure.discount == "log2" else 1 / math.log2(max(rank, 2)),
        "DCG": lambda: 1 / math.log2(1 + rank) if measure.discount == "log2" else 1 / math.log2(max(rank, 2)),
        "mWTA": lambda: 1 / math.log2(1 + rank) if measure.discount == "log2" else 1 / math.log2(max(rank, 2)),
        "ERU": lambda: 2 ** ((1 - rank) / (measure.half_life - 1)),
        "nERU": lambda: 2 ** ((1 - rank) / (measure.half_life - 1)),
        "RBP": lambda: (1 - measure.patience) * measure.patience ** (rank - 1),
        "P": lambda: 1 / k,
        "WTA": lambda: float(rank == 1),
    }[kind]()


def hinges(
    measure, feature_map, labels: np.ndarray, scores: np.ndarray, reference_scores=None, weights=1.0
) -> dict[str, float]:
    """The structured hinge of one list under each reference, over all rankings; 0 where no ranking can be wrong.

    With `reference_scores` they choose the reference ranking; they must not tie. `weights` are item weights above 0.
    """
    if type(feature_map).__name__ == "PredictedPositive":
        return labelling_hinges(measure, labels, scores, reference_scores, weights)
    n = len(labels)
    ranks = all_ranks(n)
    values = measure_values(measure, labels, ranks, weights)
    loss = values.max() - values
    if n < 2 or loss.max() < 1e-12:
        return dict.fromkeys(("ideal", "ideal-tied", "predicted", "below-window"), 0.0)
    coefficients = psi(feature_map, measure, labels, ranks, weights)
    ranking_score = coefficients @ scores
    choosing = ranking_score if reference_scores is None else coefficients @ reference_scores
    if type(feature_map).__name__ == "Positional":
        # By what a label is worth; where that is 0 for several, in input order.
        kind = type(measure).__name__
        worth = np.maximum(labels - measure.d, 0) if kind in ("ERU", "nERU") else labels
        worth = (labels > 0).astype(float) if kind in ("RR", "P", "RBP", "WTA") else worth
        worth = (np.exp2(worth) - 1 if kind in ("nDCG", "DCG") else worth) * weights
    else:
        worth = (labels > 0).astype(float) if measure.min_relevant is None else (labels >= measure.min_relevant) * 1.0
    ideal = np.empty(n, int)
    ideal[np.argsort(-worth, kind="stable")] = np.arange(1, n + 1)
    at_ideal = int(np.flatnonzero((ranks == ideal).all(1))[0])
    best = np.flatnonzero(loss < 1e-12)
    references = {
        "ideal": ranking_score[at_ideal],
        "ideal-tied": ranking_score[best[choosing[best].argmax()]],
        "predicted": ranking_score[choosing.argmax()],
    }
    if type(feature_map).__name__ != "Positional":  # always all goods above all bads
        references["ideal-tied"] = references["ideal"]
    found = {name: float((loss + ranking_score).max() - value) for name, value in references.items()}
    if type(feature_map).__name__ == "PartialPairwise":
        found["below-window"] = below_window(measure, feature_map, labels, scores, reference_scores)
    return found


def below_window(measure, feature_map, labels: np.ndarray, scores: np.ndarray, reference_scores=None) -> float:
    """The most violated ranking of the window from 0 on less that of what lies below the window, by its share each."""
    ranks = all_ranks(len(labels))
    chosen = scores if reference_scores is None else reference_scores
    total = 0.0
    for end, by, sign in ((measure.high, scores, 1), (measure.low, chosen, -1)):
        if end > 0:
            whole = replace(measure, low=0.0, high=end)
            values, coefficients = measure_values(whole, labels, ranks), psi(feature_map, whole, labels, ranks)
            at = (coefficients @ by - values).argmax()
            total += sign * end * (1 - values[at] + coefficients[at] @ scores)
    return float(total / (measure.high - measure.low))


def labelling_values(measure, good: np.ndarray, positive: np.ndarray, weights=1.0) -> np.ndarray:
    """The measure of each labelling [labellings, documents], of P and R also with item weights."""
    kind, p = type(measure).__name__, (good * weights).sum()
    hits, size = ((positive & good) * weights).sum(1), positive.sum(1)
    if kind == "Accuracy":
        return (positive == good).mean(1) if len(good) else np.zeros(len(positive))
    if p == 0:
        return np.zeros(len(positive))
    if kind == "F":
        recall, precision = hits / p, hits / np.maximum(size, 1)
        square = measure.beta**2
        return (1 + square) * precision * recall / np.maximum(square * precision + recall, 1e-300)
    if kind in ("R", "Rprec"):
        return hits / p
    return {"P": lambda: hits / measure.cutoff, "Success": lambda: (hits > 0) * 1.0}[kind]()


def labelling_hinges(
    measure, labels: np.ndarray, scores: np.ndarray, reference_scores=None, weights=1.0
) -> dict[str, float]:
    """The hinge of one list under each reference, over all sets of positive documents."""
    n, k = len(labels), measure.cutoff
    good = labels > 0 if measure.min_relevant is None else labels >= measure.min_relevant
    every = np.array(list(itertools.product([False, True], repeat=n)), dtype=bool).reshape(2**n, n)
    k = good.sum() if type(measure).__name__ == "Rprec" else k
    every = every if k is None else every[every.sum(1) == min(k, n)]
    values = labelling_values(measure, good, every, weights)
    loss = values.max() - values
    if loss.max() < 1e-12:
        return dict.fromkeys(("ideal", "ideal-tied", "predicted"), 0.0)
    by = every @ scores
    choosing = by if reference_scores is None else every @ reference_scores
    first = np.argsort(-(good * weights), kind="stable")[: good.sum() if k is None else k]
    ideal = every[(every == np.isin(np.arange(n), first)).all(1).argmax()]
    best = np.flatnonzero(loss < 1e-12)
    references = {
        "ideal": ideal @ scores,
        "ideal-tied": by[best[choosing[best].argmax()]],
        "predicted": by[choosing.argmax()],
    }
    return {name: float((loss + by).max() - value) for name, value in references.items()}


def hinge_by_program(scores: np.ndarray, relevant: np.ndarray, measure, partial: bool = False) -> float:
    """The pairwise hinge of one list by the O(p m) dynamic program over the number of bads above each good.

    `partial` is the partial pairwise map.
    """
    good = np.sort(scores[relevant])[::-1]
    bad = np.sort(scores[~relevant])[::-1]
    p, m = len(good), len(bad)
    if p == 0 or m == 0:
        return 0.0
    kind, k = type(measure).__name__, measure.cutoff or 10**9
    b = np.arange(m + 1)
    bad_sum = np.concatenate([[0], np.cumsum(bad)])
    scale = np.full(p, 2 / (p * m))
    if kind == "pAUC":
        weight = overlap(np.arange(p), measure.min_tpr * p, p) / (p * (1 - measure.min_tpr))
        missed = np.concatenate([[0], np.cumsum(overlap(np.arange(m), measure.low * m, measure.high * m))])
    if partial:
        cells = overlap(np.arange(m), 0, measure.high * m)
        b, bad_sum = (np.concatenate([[0], np.cumsum(each)]) for each in (cells, cells * bad))
        scale = 2 * weight / (m * measure.high)
    discount = np.array(
        [0.0] if kind in ("AUC", "pAUC", "AP", "RR") else [single_discount(measure, r) for r in range(1, p + m + 1)]
    )
    unit = 1 / discount[:p].sum() if kind in ("nDCG", "nERU") else 1.0
    best, table = 0.0, np.zeros(m + 1)
    for i in range(1, p + 1):
        if kind == "AP":
            credit = np.where(i + b <= k, i / (p * (i + b)), 0)
        elif kind == "AUC":
            credit = (m - b) / (p * m)
        elif kind == "pAUC":
            credit = weight[i - 1] * (1 - missed / missed[-1])
        elif kind == "RR":
            credit = np.where((i == 1) & (i + b <= k), 1 / (i + b), 0)
        else:
            credit = discount[i + b - 1] * unit
        best += credit[0]
        table = np.maximum.accumulate(table) + scale[i - 1] * (bad_sum - b * good[i - 1]) - credit
    return best + table.max()


def hinges_of_lists(measure, feature_map, p: int, scores: np.ndarray) -> np.ndarray:
    """The hinge, reference `ideal`, of many lists [lists, documents] whose first p documents are relevant."""
    n = scores.shape[1]
    labels, ranks = (np.arange(n) < p).astype(float), all_ranks(n)
    if p in (0, n):
        return np.zeros(len(scores))
    values = measure_values(measure, labels, ranks)
    coefficients = psi(feature_map, measure, labels, ranks)
    difference = coefficients - coefficients[0]  # the first ranking is by index: relevant documents first
    return ((values.max() - values)[:, None] + difference @ scores.T).max(0)


def surrogates_of_lists(measure, kind: str, rescaling: str, p: int, scores: np.ndarray) -> np.ndarray:
    """The average or max surrogate of many lists [lists, documents] whose first p documents have grade 1, others 0."""
    rows = _perfected(measure, kind, p, scores.shape[1])
    regret, margin = rows[:, :1], rows[:, 1:] @ scores.T
    return (regret + margin if rescaling == "margin" else regret * (1 + margin)).max(0)


@functools.cache
def _perfected(measure, kind: str, p: int, n: int) -> np.ndarray:
    """Each ranking, and each perfect one that swaps its intruders with missed documents: regret, F(r) - F(r*) by document."""
    labels, ranks = (np.arange(n) < p).astype(float), all_ranks(n)
    values = measure_values(measure, labels, ranks)
    best = values.max()
    a = np.array([single_discount(measure, rank) for rank in range(1, n + 1)])
    first = min(int((a > 0).sum()), p)
    a /= a[:p].sum() if type(measure).__name__ in ("nDCG", "nERU") and p else 1
    rows = set()
    for rank_of, value in zip(ranks, values, strict=True):
        document = np.argsort(rank_of)
        intruders = [i for i in range(first) if document[i] >= p]
        missed = [i for i in range(first, n) if document[i] < p]
        for partners in itertools.permutations(missed, len(intruders)):
            perfect, margin = document.copy(), np.zeros(n)
            perfect[[*intruders, *partners]] = document[[*partners, *intruders]]
            assert measure_values(measure, labels, 1 + np.argsort(perfect)[None])[0] > best - 1e-12
            if kind == "max":
                np.add.at(margin, document, a)
                np.add.at(margin, perfect, -a)
            for i, j in zip(intruders, partners, strict=True) if kind == "average" else ():
                margin[document[i]] += a[i] - a[j]
                margin[document[missed]] -= (a[i] - a[j]) / len(missed)
            rows.add((round(best - value, 13), *margin.round(13)))
    return np.array(sorted(rows))


def graded_auc_by_pairs(scores: np.ndarray, labels: np.ndarray, thresholds, weights) -> tuple[float, np.ndarray]:
    """AUC's hinge at thresholds of a list, O(n^2 T), and its gradient: a pair costs 1 - 2 (s_i - s_j) or 0, over their number."""
    value, gradient = 0.0, np.zeros(len(scores))
    for threshold, weight in zip(thresholds, weights, strict=True):
        relevant = labels >= threshold
        pairs = relevant.sum() * (~relevant).sum()
        for i in np.flatnonzero(relevant):
            for j in np.flatnonzero(~relevant):
                if scores[i] - scores[j] < 0.5:
                    value += weight * (1 - 2 * (scores[i] - scores[j])) / pairs
                    gradient[i] -= 2 * weight / pairs
                    gradient[j] += 2 * weight / pairs
    return value, gradient


def ranksvm_by_loop(scores: np.ndarray, labels: np.ndarray, margin: float) -> tuple[float, np.ndarray]:
    """The mean hinge over the pairs of one list that differ in their labels, and its gradient."""
    value, gradient = 0.0, np.zeros(len(scores))
    pairs = [(i, j) for i in range(len(labels)) for j in range(len(labels)) if labels[i] > labels[j]]
    for i, j in pairs:
        if scores[j] > scores[i] - margin:
            value += (margin - (scores[i] - scores[j])) / len(pairs)
            gradient[i] -= 1 / len(pairs)
            gradient[j] += 1 / len(pairs)
    return value, gradient


def diverse_rankings(diversity_groups, k: int) -> list[tuple[int, ...]]:
    """Every way to show min(k, number of groups) documents, no two of one group: documents by rank."""
    m = min(k, len(set(diversity_groups)))
    return [
        shown
        for shown in itertools.permutations(range(len(diversity_groups)), m)
        if len({diversity_groups[j] for j in shown}) == m
    ]


def random_groups(rng, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Groups, and labels of which at times several groups have the highest, which mWTA counts."""
    if rng.random() < 0.3:
        labels = np.where(rng.random(len(labels)) < 0.6, labels.max(initial=0), labels)
        return rng.integers(0, 6, size=len(labels)), labels
    return rng.integers(-2, rng.integers(-1, 4), size=len(labels)), labels


def diverse_decay(measure, name: str, n: int) -> np.ndarray:
    """The decay with a given name at ranks 1 to n, for a measure."""
    return decay(name, measure.cutoff, n, [single_discount(measure, rank) for rank in range(1, n + 1)])


def diverse_cutoff(measure, labels, diversity_groups) -> int:
    """The number of documents shown with a given number of groups; mWTA uses the best document of each."""
    kind = type(measure).__name__
    if kind == "mWTA":
        return list_cutoff(
            np.array(
                [max(y for y, h in zip(labels, diversity_groups, strict=True) if h == g) for g in set(diversity_groups)]
            )
        )
    return 1 if kind == "WTA" else measure.cutoff


def document_gains(measure, labels: np.ndarray) -> np.ndarray:
    """What each label is worth to a measure."""
    kind = type(measure).__name__
    if kind in ("ERU", "nERU"):
        return np.maximum(labels - measure.d, 0)
    return np.exp2(labels) - 1 if kind in ("nDCG", "DCG", "mWTA") else (labels > 0).astype(float)


def diverse_values(measure, labels: np.ndarray, diversity_groups) -> tuple[np.ndarray, np.ndarray]:
    """Every diverse ranking [rankings, shown], and what the measure gives it, divided by the best where it is normalised."""
    kind = type(measure).__name__
    rankings = np.array(diverse_rankings(diversity_groups, diverse_cutoff(measure, labels, diversity_groups)))
    gains = document_gains(measure, labels)[rankings]
    discounts = np.array([single_discount(measure, rank) for rank in range(1, rankings.shape[1] + 1)])
    if kind == "RR":
        first = [next((rank for rank, gain in enumerate(row, 1) if gain), None) for row in gains]
        return rankings, np.array([0.0 if rank is None else 1 / rank for rank in first])
    values = gains @ discounts
    if kind in ("nDCG", "nERU", "mWTA") and values.max() > 0:
        values = values / values.max()
    return rankings, values


def diverse_hinges(measure, c: np.ndarray, labels, diversity_groups, scores, reference_scores=None) -> dict[str, float]:
    """The hinge of one list over all diverse rankings under each reference, and their best value; c the decay by rank."""
    result = dict.fromkeys(("ideal", "ideal-tied", "predicted", "best"), 0.0)
    if not len(labels):
        return result
    rankings, values = diverse_values(measure, labels, diversity_groups)
    m = rankings.shape[1]
    best = values.max()
    result["best"] = best
    loss = best - values
    if loss.max() < 1e-12:
        return result
    by = scores[rankings] @ c[:m]
    choosing = by if reference_scores is None else reference_scores[rankings] @ c[:m]
    ideal: list[int] = []
    for j in np.argsort(-document_gains(measure, labels), kind="stable"):
        if len(ideal) < m and diversity_groups[j] not in [diversity_groups[i] for i in ideal]:
            ideal.append(int(j))
    optima = np.flatnonzero(loss < 1e-12)
    references = {
        "ideal": scores[ideal] @ c[:m],
        "ideal-tied": by[optima[choosing[optima].argmax()]],
        "predicted": by[choosing.argmax()],
    }
    assert loss[(rankings == ideal).all(1)] < 1e-12
    return {**result, **{name: float((loss + by).max() - value) for name, value in references.items()}}


def random_weighted_problem(rng, measure, feature_map, most: int):
    """Scores, labels and item weights, the hinge of each reference, and the size that errors are measured by, of one list."""
    scores, labels, size = random_list(rng, type(feature_map).__name__ == "Positional", most)
    n = len(scores)
    # Products with labels are equal exactly, or not at all: rounding decides no tie.
    weights = rng.random(n) + 0.1 if rng.random() < 0.5 else rng.integers(1, 4, size=n) / 2.0
    weights = weights * 2.0 ** rng.integers(-6, 7)
    found = hinges(measure, feature_map, labels, scores, weights=weights)
    return scores, labels, weights, found, size * max(1.0, weights.max(initial=0))


def ranksvm_by_pairs(
    scores: np.ndarray, labels: np.ndarray, margin: float, weights: np.ndarray
) -> tuple[float, np.ndarray]:
    """`ranksvm_by_loop` with item weights: the mean weighted by the product of a pair's two weights."""
    value, total, gradient = 0.0, 0.0, np.zeros(len(scores))
    for i, j in itertools.permutations(range(len(scores)), 2):
        if labels[i] > labels[j]:
            weight = weights[i] * weights[j]
            total += weight
            if scores[j] > scores[i] - margin:
                value += weight * (margin - (scores[i] - scores[j]))
                gradient += weight * (np.arange(len(scores)) == j) - weight * (np.arange(len(scores)) == i)
    return value / max(total, 1e-300), gradient / max(total, 1e-300)


def random_problem(rng, measure, feature_map, diverse: bool, most: int):
    """Scores, labels, groups or None, the hinge of each reference, and the size that errors are measured by, of one list."""
    scores, labels, size = random_list(rng, type(feature_map).__name__ == "Positional", most)
    if not diverse:
        return scores, labels, None, hinges(measure, feature_map, labels, scores), size
    diversity_groups, labels = random_groups(rng, labels)
    c = diverse_decay(measure, feature_map.decay, len(labels))
    return scores, labels, diversity_groups, diverse_hinges(measure, c, labels, diversity_groups, scores), size
