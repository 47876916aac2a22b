"""Slow twins of the oracles: every ranking of a small list, straight from the definitions. Shares no code with rankstruct."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np


@functools.cache
def all_rankings(p: int, m: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """All rankings of p relevant documents (0..p-1) and m others: psi - psi(r*) and the task loss of each measure.

    Returns `difference` [rankings, documents] of the pairwise feature map and `{measure: task loss [rankings]}`.
    """
    n = p + m
    orders = np.array(list(itertools.permutations(range(n))), dtype=int).reshape(math.factorial(n), n)
    rank = np.empty_like(orders)
    np.put_along_axis(rank, orders, np.arange(1, n + 1)[None].repeat(len(orders), 0), axis=1)
    psi = np.zeros(rank.shape)
    swapped = np.zeros(len(orders))
    for good in range(p):
        for bad in range(p, n):
            proper = rank[:, good] < rank[:, bad]
            psi[:, good] += np.where(proper, 1, -1) / (p * m)
            psi[:, bad] -= np.where(proper, 1, -1) / (p * m)
            swapped += ~proper
    ideal = np.concatenate([np.full(p, m), np.full(m, -p)]) / max(p * m, 1)
    precision = np.zeros(len(orders))
    for good in range(p):
        precision += (rank[:, :p] <= rank[:, good, None]).sum(1) / rank[:, good]
    both = p > 0 and m > 0
    losses = {
        "AUC": swapped / (p * m) if both else np.zeros(len(orders)),
        "AP": 1 - precision / p if both else np.zeros(len(orders)),
    }
    return psi - ideal if both else np.zeros(psi.shape), losses


def hinge_by_enumeration(scores: np.ndarray, p: int, measure: str) -> np.ndarray:
    """The structured hinge of lists [lists, documents] whose first p documents are relevant, over all rankings."""
    difference, losses = all_rankings(p, scores.shape[1] - p)
    return (losses[measure][:, None] + difference @ scores.T).max(0)


def average_precision_credit(p: int, i: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What good i (1-based) adds to average precision with b bads above it."""
    return i / (p * (i + b))


def roc_area_credit(p: int, m: int, i: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What good i (1-based) adds to the ROC area with b bads above it."""
    return (m - b) / (p * m)


def hinge_by_programme(scores: np.ndarray, relevant: np.ndarray, measure: str) -> float:
    """The structured hinge of one list by the O(p m) programme over the number of bads above each good."""
    good = np.sort(scores[relevant])[::-1]
    bad = np.sort(scores[~relevant])[::-1]
    p, m = len(good), len(bad)
    if p == 0 or m == 0:
        return 0.0
    b = np.arange(m + 1)
    bad_sum = np.concatenate([[0], np.cumsum(bad)])
    table = np.zeros(m + 1)
    for i in range(1, p + 1):
        credit = average_precision_credit(p, i, b) if measure == "AP" else roc_area_credit(p, m, i, b)
        table = np.maximum.accumulate(table) + 2 / (p * m) * (bad_sum - b * good[i - 1]) - credit
    return 1.0 + table.max()
