"""Measures straight from their definitions, one ranking at a time, in plain Python. Shares no code with rankstruct."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence

Ranking = Sequence[float]  # the labels in rank order
Slow = Callable[[Ranking], "float | None"]  # None where the measure is undefined


def log2_discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def letor_discount(rank: int) -> float:
    return 1.0 if rank <= 2 else 1 / math.log2(rank)


def exponential(label: float) -> float:
    return 2**label - 1


def linear(label: float) -> float:
    return label


def binary(label: float, at: float | None) -> bool:
    return label > 0 if at is None else label >= at


def average_precision(k: int | None = None, at: float | None = None) -> Slow:
    def measure(ranking: Ranking) -> float | None:
        hits = [binary(label, at) for label in ranking]
        if not any(hits):
            return None
        precisions = [sum(hits[:rank]) / rank for rank in range(1, len(hits) + 1) if hits[rank - 1]]
        kept = sum(hits[:k]) if k else len(precisions)
        return sum(precisions[:kept]) / sum(hits)

    return measure


def reciprocal_rank(k: int | None = None, at: float | None = None) -> Slow:
    def measure(ranking: Ranking) -> float | None:
        hits = [binary(label, at) for label in ranking]
        if not any(hits):
            return None
        rank = hits.index(True) + 1
        return 1 / rank if k is None or rank <= k else 0.0

    return measure


def roc_area(at: float | None = None) -> Slow:
    def measure(ranking: Ranking) -> float | None:
        hits = [binary(label, at) for label in ranking]
        pairs = [(i, j) for i in range(len(hits)) for j in range(len(hits)) if hits[i] and not hits[j]]
        return sum(i < j for i, j in pairs) / len(pairs) if pairs else None

    return measure


def partial_roc_area(low: float, high: float, min_tpr: float = 0, at: float | None = None) -> Slow:
    def inside(cell: int, start: float, end: float) -> float:
        return max(0.0, min(cell + 1, end) - max(cell, start))

    def measure(ranking: Ranking) -> float | None:
        hits = [binary(label, at) for label in ranking]
        p, m = sum(hits), len(hits) - sum(hits)
        if not p or not m:
            return None
        area, j, above = 0.0, 0, 0
        for hit in hits:
            if hit:
                above += 1
            else:  # height of the curve above min_tpr, times the width of this step inside the window
                area += inside(j, low * m, high * m) * max(0.0, above - min_tpr * p)
                j += 1
        return area / ((high - low) * m * (1 - min_tpr) * p)

    return measure


def discounted(
    discount: Callable[[int], float],
    gain: Callable[[float], float],
    k: int | None = None,
    *,
    normalized: bool = False,
    zero_if_short: bool = False,
) -> Slow:
    def total(gains: list[float]) -> float:
        return sum(discount(rank) * g for rank, g in enumerate(gains, 1) if k is None or rank <= k)

    def measure(ranking: Ranking) -> float | None:
        gains = [gain(label) for label in ranking]
        if not any(g > 0 for g in gains):
            return None
        if zero_if_short and len(ranking) < k:
            return 0.0
        return total(gains) / total(sorted(gains, reverse=True)) if normalized else total(gains)

    return measure


def precision(k: int, at: float | None = None) -> Slow:
    return discounted(lambda rank: 1 / k, lambda label: float(binary(label, at)), k)


def recall(k: int, at: float | None = None) -> Slow:
    def measure(ranking: Ranking) -> float | None:
        hits = [binary(label, at) for label in ranking]
        return sum(hits[:k]) / sum(hits) if any(hits) else None

    return measure


def success(k: int, at: float | None = None) -> Slow:
    def measure(ranking: Ranking) -> float | None:
        hits = [binary(label, at) for label in ranking]
        return float(any(hits[:k])) if any(hits) else None

    return measure


def f_measure(k: int, beta: float = 1, at: float | None = None) -> Slow:
    def measure(ranking: Ranking) -> float | None:
        hits = [binary(label, at) for label in ranking]
        if not any(hits):
            return None
        found = sum(hits[:k])
        if not found:
            return 0.0
        precision, share = found / len(hits[:k]), found / sum(hits)
        return (1 + beta**2) * precision * share / (beta**2 * precision + share)

    return measure


def mean_ndcg(discount: Callable[[int], float], gain: Callable[[float], float]) -> Slow:
    def measure(ranking: Ranking) -> float | None:
        values = [discounted(discount, gain, k, normalized=True)(ranking) for k in range(1, len(ranking) + 1)]
        return None if not values or values[0] is None else sum(values) / len(values)

    return measure


def winner_takes_all_for_grades(discount: Callable[[int], float], gain: Callable[[float], float]) -> Slow:
    def measure(ranking: Ranking) -> float | None:
        ordered = sorted(map(gain, ranking), reverse=True)
        k = 3
        if len(set(ordered[:3])) < 2:
            lower = [rank for rank, g in enumerate(ordered, 1) if g < ordered[0]]
            k = lower[0] if lower else None
        return discounted(discount, gain, k, normalized=True)(ranking)

    return measure


def expected_rank_utility(d: float, half_life: float, k: int | None = None, *, normalized: bool = False) -> Slow:
    return discounted(
        lambda rank: 0.5 ** ((rank - 1) / (half_life - 1)), lambda label: max(label - d, 0), k, normalized=normalized
    )


def expected_reciprocal_rank(k: int | None = None, top: float = 4) -> Slow:
    def measure(ranking: Ranking) -> float | None:
        value, going = 0.0, 1.0
        for rank, label in enumerate(ranking, 1):
            stop = (2**label - 1) / 2**top
            value += going * stop / rank if k is None or rank <= k else 0.0
            going *= 1 - stop
        return value if any(label > 0 for label in ranking) else None

    return measure


def r_precision(at: float | None = None) -> Slow:
    def measure(ranking: Ranking) -> float | None:
        hits = [binary(label, at) for label in ranking]
        return sum(hits[: sum(hits)]) / sum(hits) if any(hits) else None

    return measure


def rank_biased(patience: float, k: int | None = None) -> Slow:
    return discounted(lambda rank: (1 - patience) * patience ** (rank - 1), lambda label: float(label > 0), k)


def average_position(at: float | None = None) -> Slow:
    def measure(ranking: Ranking) -> float | None:
        gains = [label if at is None else float(label >= at) for label in ranking]
        return -sum(gain * rank for rank, gain in enumerate(gains, 1)) / sum(gains) if any(gains) else None

    return measure


def ordered_pairs(ranking: Ranking) -> float | None:
    pairs = [(i, j) for i in range(len(ranking)) for j in range(len(ranking)) if ranking[i] > ranking[j]]
    return sum(i < j for i, j in pairs) / len(pairs) if pairs else None


def binary_preference(at: float | None = None) -> Slow:
    """Labels below 0 are unjudged documents."""

    def measure(ranking: Ranking) -> float | None:
        judged = [binary(label, at) for label in ranking if label >= 0]
        hits, misses = sum(judged), len(judged) - sum(judged)
        if not hits:
            return None
        above, value = 0, 0.0
        for hit in judged:
            if hit:
                value += 1 - min(above, hits) / min(misses, hits) if above else 1.0
            else:
                above += 1
        return value / hits

    return measure


def inferred_precision(ranking: Ranking) -> float | None:
    """Label -1 is an unjudged document of the pool, -2 one outside the pool."""
    value, hits, misses, waiting, epsilon = 0.0, 0, 0, 0, 0.00001
    for above, label in enumerate(ranking):
        if label > 0:
            share = (hits + epsilon) / (hits + misses + 2 * epsilon)
            value += (1 + (hits + misses + waiting) * share) / (above + 1)
            hits += 1
        misses += label == 0
        waiting += label == -1
    return value / hits if hits else None


def at_least(grade: float, gain: Callable[[float], float] = linear) -> Callable[[float], float]:
    return lambda label: gain(1.0 if label >= grade else 0.0)


MEASURES: dict[str, Slow] = {
    "AP": average_precision(),
    "AP@1": average_precision(1),
    "AP@3": average_precision(3),
    "AP(min_relevant=2)": average_precision(at=2),
    "AP(min_relevant=2)@2": average_precision(2, at=2),
    "RR": reciprocal_rank(),
    "RR@2": reciprocal_rank(2),
    "RR(min_relevant=2)": reciprocal_rank(at=2),
    "RR(min_relevant=2)@4": reciprocal_rank(4, at=2),
    "AUC": roc_area(),
    "AUC(min_relevant=2)": roc_area(2),
    "pAUC(high=0.3)": partial_roc_area(0, 0.3),
    "pAUC(high=1)": roc_area(),
    "pAUC(low=0.2,high=0.7)": partial_roc_area(0.2, 0.7),
    "pAUC(high=0.6,min_tpr=0.5)": partial_roc_area(0, 0.6, 0.5),
    "pAUC(min_relevant=2,low=0.25,high=0.9,min_tpr=0.4)": partial_roc_area(0.25, 0.9, 0.4, at=2),
    "P@1": precision(1),
    "P@3": precision(3),
    "P@10": precision(10),
    "P(min_relevant=3)@2": precision(2, at=3),
    "R@1": recall(1),
    "R@3": recall(3),
    "R(min_relevant=2)@2": recall(2, at=2),
    "Success@1": success(1),
    "Success@3": success(3),
    "Success(min_relevant=2)@2": success(2, at=2),
    "F1@2": f_measure(2),
    "F(beta=2)@4": f_measure(4, 2),
    "F(min_relevant=2,beta=0.5)@10": f_measure(10, 0.5, at=2),
    "WTA": precision(1),
    "WTA(min_relevant=2)": precision(1, at=2),
    "DCG": discounted(log2_discount, exponential),
    "DCG@2": discounted(log2_discount, exponential, 2),
    "DCG(discount='letor',gain='linear')@3": discounted(letor_discount, linear, 3),
    "nDCG": discounted(log2_discount, exponential, normalized=True),
    "nDCG@1": discounted(log2_discount, exponential, 1, normalized=True),
    "nDCG@3": discounted(log2_discount, exponential, 3, normalized=True),
    "nDCG@10": discounted(log2_discount, exponential, 10, normalized=True),
    "nDCG(gain='linear')@4": discounted(log2_discount, linear, 4, normalized=True),
    "nDCG(discount='letor')": discounted(letor_discount, exponential, normalized=True),
    "nDCG(discount='letor')@3": discounted(letor_discount, exponential, 3, normalized=True),
    "nDCG(min_relevant=2)": discounted(log2_discount, at_least(2), normalized=True),
    "nDCG(min_relevant=2,discount='letor')@3": discounted(letor_discount, at_least(2), 3, normalized=True),
    "mWTA": winner_takes_all_for_grades(log2_discount, exponential),
    "mWTA(discount='letor',gain='linear')": winner_takes_all_for_grades(letor_discount, linear),
    "mWTA(min_relevant=2)": winner_takes_all_for_grades(log2_discount, at_least(2)),
    "MeanNDCG": mean_ndcg(log2_discount, exponential),
    "MeanNDCG(discount='letor')": mean_ndcg(letor_discount, exponential),
    "ERU(d=1,half_life=3)": expected_rank_utility(1, 3),
    "ERU(d=0.5,half_life=2)@2": expected_rank_utility(0.5, 2, 2),
    "nERU(d=1,half_life=3)": expected_rank_utility(1, 3, normalized=True),
    "nERU(d=0.5,half_life=2.5)@3": expected_rank_utility(0.5, 2.5, 3, normalized=True),
    "ERR": expected_reciprocal_rank(),
    "ERR@2": expected_reciprocal_rank(2),
    "ERR(max_grade=5)@4": expected_reciprocal_rank(4, 5),
    "Rprec": r_precision(),
    "Rprec(min_relevant=2)": r_precision(2),
    "RBP": rank_biased(0.8),
    "RBP(patience=0.5)@3": rank_biased(0.5, 3),
    "ARP": average_position(),
    "ARP(min_relevant=2)": average_position(2),
    "OPA": ordered_pairs,
    "Bpref": binary_preference(),
    "Bpref(min_relevant=2)": binary_preference(2),
    "infAP": inferred_precision,
}
"""By canonical name."""

LETOR: dict[str, Slow] = {
    "nDCG@1": discounted(letor_discount, exponential, 1, normalized=True, zero_if_short=True),
    "nDCG@3": discounted(letor_discount, exponential, 3, normalized=True, zero_if_short=True),
    "nDCG": discounted(letor_discount, exponential, normalized=True),
    "nDCG(gain='linear')@2": discounted(letor_discount, linear, 2, normalized=True, zero_if_short=True),
    "DCG@3": discounted(letor_discount, exponential, 3),
    "MeanNDCG": mean_ndcg(letor_discount, exponential),
    "mWTA": winner_takes_all_for_grades(letor_discount, exponential),
    "P@3": precision(3),
    "AP": average_precision(),
}
"""What the names mean under the LETOR tool's convention."""


def rankings(scores: Sequence[float], labels: Sequence[float]) -> Counter[tuple[float, ...]]:
    """The label sequences of all orders of the documents by descending score, with how many orders give each."""
    diversity_groups: dict[float, list[int]] = {}
    for document, score in enumerate(scores):
        diversity_groups.setdefault(score, []).append(document)
    blocks = [diversity_groups[score] for score in sorted(diversity_groups, reverse=True)]
    orders = itertools.product(*map(itertools.permutations, blocks))
    return Counter(tuple(labels[document] for block in order for document in block) for order in orders)


def mean(measure: Slow, counted: Counter[tuple[float, ...]]) -> float | None:
    """The mean over counted rankings; None where the measure is undefined."""
    values = [(measure(ranking), count) for ranking, count in counted.items()]
    if any(value is None for value, _ in values):
        return None
    return math.fsum(value * count for value, count in values) / sum(counted.values())


def best(measure: Slow, labels: Sequence[float]) -> float:
    """The best value over all rankings; 0 where there is none."""
    values = [measure(order) for order in set(itertools.permutations(labels))]
    return max((value for value in values if value is not None), default=0.0)
