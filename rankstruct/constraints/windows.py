"""The best page for rules about disjoint groups, caps and quotas at any prefixes: an assignment problem.

Of two documents of a group, the rules tell neither from the other, so that a best page has them in the order of scores. The t-th
document of a group then comes after position p if a cap allows fewer than t in the first p, and by position p if a quota demands
t or more there. Conversely, a page in which every document is within this window keeps the rules: only as many documents of the
group as the cap allows may come within p at all, and those that the quota demands must. So the best page is an assignment of
documents to positions, with windows.
"""

from __future__ import annotations

import heapq

import numpy as np

from rankstruct.constraints.relaxation import OneSided


def are_disjoint(rules: OneSided) -> bool:
    """Whether no document is in the groups of two rules, unless these are about the same group."""
    groups = {each.tobytes(): each for each in rules.members}
    return not groups or np.sum(list(groups.values()), axis=0).max(initial=0) <= 1


def best_in_windows(gains: np.ndarray, rules: OneSided, positions: np.ndarray) -> np.ndarray | None:
    """The document at each position, as many as can be filled; None if no page keeps the rules.

    Args:
        gains: `[documents, positions]`, documents by score, finite.
        rules: about disjoint groups of the documents.
        positions: the position that a document must have, from 1; 0 for any.
    """
    from scipy.optimize import linear_sum_assignment

    end = gains.shape[1]
    windows = _windows(rules, positions, end)
    length = None if windows is None else _filled(*windows, positions, end)
    if windows is None or length is None:
        return None
    release, deadline = windows
    at = np.arange(1, length + 1)
    inside = (release[:, None] <= at) & (at <= deadline[:, None])
    # Documents with a deadline must be in: together they are worth more than all else.
    wanted = np.where(deadline <= end, gains.max(0, initial=0).sum() + 1, 0)[:, None]
    page = linear_sum_assignment(np.where(inside, gains[:, :length] + wanted, -np.inf).T, maximize=True)[1]
    for each in {each.tobytes(): each for each in rules.members}.values():  # equal scores in the order given
        its = np.flatnonzero(each[page] & (positions[page] == 0))
        page[its] = np.sort(page[its])
    return page


def _windows(rules: OneSided, positions: np.ndarray, end: int) -> tuple[np.ndarray, np.ndarray] | None:
    """The first and last position of each document; `end + 1` as the last if it need not be shown.

    None if the documents with a position, or those without, are too many or too few for a rule.
    """
    release, deadline = np.ones(len(positions), np.int64), np.full(len(positions), end + 1)
    for members, prefix, sign, bound in zip(*rules, strict=True):
        free = np.flatnonzero(members & (positions == 0))
        fixed = int((members & (positions > 0) & (positions <= prefix)).sum())
        within = abs(int(bound)) - fixed
        if within < 0 < sign or (sign < 0 and within > len(free)):
            return None
        if sign > 0:
            release[free[within:]] = np.maximum(release[free[within:]], prefix + 1)
        elif within > 0:
            deadline[free[:within]] = np.minimum(deadline[free[:within]], prefix)
    pinned = positions > 0
    release[pinned] = deadline[pinned] = positions[pinned]
    return release, deadline


def _filled(release: np.ndarray, deadline: np.ndarray, positions: np.ndarray, end: int) -> int | None:
    """How many positions can be filled, by the document with the earliest deadline at each; None if one is missed.

    That misses none if any order does (Jackson's rule), and ends only where all that may come have come.
    """
    taken = {int(at): int(at) for at in positions[positions > 0]}
    waiting: list[int] = []
    order = np.argsort(release, kind="stable")
    order = order[positions[order] == 0]
    head, placed = 0, 0
    for at in range(1, end + 1):
        while head < len(order) and release[order[head]] <= at:
            heapq.heappush(waiting, int(deadline[order[head]]))
            head += 1
        if at in taken:
            placed += 1
            continue
        if not waiting:
            break
        if heapq.heappop(waiting) < at:
            return None
        placed += 1
    missed = min(waiting, default=end + 1) <= end or (deadline[order[head:]] <= end).any()
    return None if missed or max(taken, default=0) > placed else placed
