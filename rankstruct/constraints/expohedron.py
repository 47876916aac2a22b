"""The expohedron: the exposures that mixtures of rankings give to the documents of a list.

With the discounts w_1 >= w_2 >= ... of the positions, a ranking gives each document the discount of its position, and a mixture
of rankings the mean. All of these together are the convex hull of the permutations of w, a permutahedron. An exposure is in it if
and only if its m largest entries sum to at most w_1 + ... + w_m for each m, and all of them to the sum of w (majorisation). A
face is an ordered partition of the documents in blocks: those of the first block share the first positions, and so on.

- Projection is isotonic regression of the sorted point minus w (pool adjacent violators): blocks move by a constant.
- An exposure is decomposed by going from a vertex of its face through it to the border, where the face is smaller
  (Carathéodory): at most n rankings, each found by a few sorts.
- The best mixtures of utility r . e and distance |e - t|^2 are the projections of t + a r for a >= 0, a path of straight pieces:
  in a piece each document moves by r minus its block's mean. It ends where a block leaves its face, or where two blocks meet. For
  targets in the order of r, blocks are only split.

Here all exposures are in units of the first discount.

Source: Kletti, Renders, Loiseau, "Introducing the Expohedron for Efficient Pareto-optimal Fairness-Utility Amortizations in
Repeated Rankings", WSDM 2022.
"""

from __future__ import annotations

import numpy as np

_CLOSE = 1e-13  # exposures
_SAME = 1e-10  # exposures of bends
_LEAST = 1e-12  # movements, relative to the largest
_STEP = 1e-10  # how far beyond a bend the next piece is determined, relative to its place
_FAR = 1e8  # of the path; merits that differ by less than 1 / _FAR of their range are told apart at its end only


def blocks_of(points: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """The face onto which points are projected: the number of each document's block `[n]`, the first positions' first."""
    order = np.argsort(-points, kind="stable")
    means: list[float] = []
    sizes: list[int] = []
    for value in (points[order] - worth).tolist():
        size = 1
        while means and means[-1] <= value:
            before = sizes.pop()
            value = (means.pop() * before + value * size) / (before + size)
            size += before
        means.append(value)
        sizes.append(size)
    found = np.empty(len(points), np.int64)
    found[order] = np.repeat(np.arange(len(sizes)), sizes)
    return found


def _centred(values: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Values minus the mean of their block, exact even where they are almost equal."""
    first = np.unique(block, return_index=True)[1]
    apart = values - values[first][block]
    return apart - (np.bincount(block, apart) / np.bincount(block))[block]


def _shares(worth: np.ndarray, block: np.ndarray) -> np.ndarray:
    """The mean discount of the positions of each document's block."""
    sizes = np.bincount(block)
    of_position = np.repeat(np.arange(len(sizes)), sizes)
    return (np.bincount(of_position, worth) / sizes)[block]


def project(points: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """The exposures in the expohedron that are closest to points `[n]`."""
    block = blocks_of(points, worth)
    return _centred(points, block) + _shares(worth, block)


def _exit(
    point: np.ndarray, direction: np.ndarray, block: np.ndarray, worth: np.ndarray
) -> tuple[float, np.ndarray | None]:
    """How far a point of a face can go in a direction within it, and the smaller face there: its blocks `[n]`, or None.

    Newton's method: each step is a sort.
    """
    inside = np.repeat(np.cumsum(np.bincount(block)), np.bincount(block)) - 1 != np.arange(len(block))
    least, reached, cut = _LEAST * np.abs(direction).max(initial=0), np.inf, None
    key, second = -direction, -point
    for _ in range(200):
        order = np.lexsort((second, key, block))
        rate = np.cumsum(direction[order])
        rising = np.flatnonzero(inside & (rate > least))
        if not len(rising):
            break
        slack = np.cumsum(worth - point[order])
        steps = slack[rising] / rate[rising]
        step = max(float(steps.min()), 0.0)
        if not step < reached * (1 - 1e-15):
            break
        reached = step
        ends = ~inside
        ends[rising] |= slack[rising] - reached * rate[rising] <= _CLOSE
        cut = np.empty_like(block)
        cut[order] = np.cumsum(ends) - ends
        key, second = -(point + reached * direction), -direction
    return reached, cut


def decompose(exposure: np.ndarray, worth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rankings `[m, n]`, the document at each position, and their weights `[m]`, whose mean exposure is the one given; m <= n."""
    point, left = exposure, 1.0
    block: np.ndarray | None = _face_of(point, worth)
    rankings, weights = [], []
    while block is not None:
        order = np.lexsort((-point, block))
        vertex = np.empty_like(point)
        vertex[order] = worth
        away = point - vertex
        far, block = _exit(point, away, block, worth) if np.abs(away).max(initial=0) > _CLOSE else (np.inf, None)
        share = 1.0 if block is None else far / (1 + far)
        rankings.append(order)
        weights.append(left * share)
        if block is not None:
            left, point = left * (1 - share), point + far * away
    kept = np.array(weights) > _CLOSE
    chosen = np.array(weights)[kept]
    return np.array(rankings)[kept], chosen / chosen.sum()


def _face_of(point: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """The smallest face with a point: a block ends where the largest exposures so far sum to those of w."""
    order = np.argsort(-point, kind="stable")
    ends = np.cumsum(worth - point[order]) <= _CLOSE * np.sqrt(len(point))
    found = np.empty(len(point), np.int64)
    found[order] = np.cumsum(ends) - ends
    return found


def pareto_path(target: np.ndarray, merits: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """The bends `[b, n]` of the path from the projected target to the highest utility, closest to the target first."""
    points = [project(target, worth)]
    gains = _relative(merits)
    if not gains.any():
        return np.array(points)
    at = 0.0
    while at < _FAR:
        ahead = at + _STEP * max(at, 1e-3)
        start, movement, step = _piece(target, gains, worth, ahead)
        if step == np.inf:
            break
        at = ahead + step
        points.append(start + at * movement)
    points.append(_most_useful(target, gains, worth))
    return _bends(np.array(points))


def _relative(merits: np.ndarray) -> np.ndarray:
    """Merits from 0 to 1, all 0 if they are equal."""
    apart = merits / max(np.abs(merits).max(initial=0), np.finfo(float).tiny)
    apart = apart - apart.min(initial=np.inf)
    return apart / max(apart.max(initial=0), np.finfo(float).tiny)


def _piece(target: np.ndarray, gains: np.ndarray, worth: np.ndarray, at: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The piece of the path at a place: its start and movement `[n]`, and how much further it goes.

    Blocks that are to be split or joined at once are so, since sums that differ by less than their rounding hide it.
    """
    block, least = blocks_of(target + at * gains, worth), _STEP * max(at, 1e-3)
    for _ in range(4 * len(target)):
        movement = _centred(gains, block)
        movement[np.abs(movement) <= _CLOSE] = 0
        start = _centred(target, block) + _shares(worth, block)
        far, cut = _exit(start + at * movement, movement, block, worth)
        near, joined = _meeting(target, gains, worth, block, at)
        if min(far, near) > least:
            break
        block = joined if cut is None or near < far else cut
    return start, movement, min(far, near)


def _meeting(
    target: np.ndarray, gains: np.ndarray, worth: np.ndarray, block: np.ndarray, at: float
) -> tuple[float, np.ndarray]:
    """How far ahead the first two adjacent blocks meet, and the blocks after it."""
    sizes = np.bincount(block)
    means = [np.bincount(block, values) / sizes for values in (target - _shares(worth, block), gains)]
    apart, closing = -np.diff(means[0]) - at * np.diff(means[1]), np.diff(means[1])
    meets = np.flatnonzero(closing > _LEAST)
    if not len(meets):
        return np.inf, block
    steps = (apart[meets] / closing[meets]).clip(0)
    first = meets[steps.argmin()]
    return float(steps.min()), block - (block > first)


def _most_useful(target: np.ndarray, gains: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """Of the exposures with the highest utility the closest to the target: documents of equal merit share their positions."""
    found, order = np.empty_like(target), np.argsort(-gains, kind="stable")
    begins = np.flatnonzero(np.diff(gains[order], prepend=np.inf))
    for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
        tied = order[begin:end]
        found[tied] = project(target[tied], worth[begin:end])
    return found


def _bends(points: np.ndarray) -> np.ndarray:
    """Points of a path without those that are repeated or within a straight piece."""
    kept = [points[0]]
    for index in range(1, len(points)):
        after = points[index + 1] if index + 1 < len(points) else None
        ahead = points[index] - kept[-1]
        apart = np.abs(ahead).max() > _SAME
        if after is None:
            if apart:
                kept.append(points[index])
            elif len(kept) > 1:
                kept[-1] = points[index]
            continue
        further = after - points[index]
        cross = ahead * np.linalg.norm(further) - further * np.linalg.norm(ahead)
        if apart and np.abs(cross).max() > 1e-9 * np.linalg.norm(ahead) * np.linalg.norm(further):
            kept.append(points[index])
    return np.array(kept)


def best_of_groups(
    aims: np.ndarray, group: np.ndarray, merits: np.ndarray, worth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rankings `[m, n]` and weights `[m]` of the highest utility that give each group `[n]` its exposure `[groups]`.

    A linear programme over all rankings, which are made as they are needed: with prices of the groups, the best ranking is a sort
    by merit minus price. m is at most the number of groups.
    """
    from scipy.optimize import linprog

    gains = _relative(merits)
    sizes = np.bincount(group)
    # Any mixture that keeps the aims: documents of a group, in the order of their gains, at each place of the group alike.
    rankings = list(decompose(project((aims / sizes)[group], worth), worth)[0])
    for at, order in enumerate(rankings):
        rankings[at] = _sorted_within(order, group, gains)
    for _ in range(100 * len(aims) + 1000):
        given = np.array([np.bincount(group[order], worth, len(aims)) for order in rankings])
        value = np.array([gains[order] @ worth for order in rankings])
        found = linprog(
            -value,
            A_eq=np.vstack([given.T, np.ones(len(rankings))]),
            b_eq=[*aims, 1.0],
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if found.x is None:
            raise RuntimeError(f"the programme of the groups' exposures failed: {found.message}")
        prices = -found.eqlin.marginals
        net = gains - prices[:-1][group]
        order = np.argsort(-net, kind="stable")
        if net[order] @ worth <= prices[-1] + 1e-10 * len(merits):
            break
        rankings.append(order)
    used = found.x > 1e-11
    weights = np.linalg.lstsq(np.vstack([given[used].T, np.ones(used.sum())]), np.array([*aims, 1.0]), rcond=None)[0]
    return np.array(rankings)[used], weights.clip(0) / weights.clip(0).sum()


def path_of_two_groups(fair: np.ndarray, group: np.ndarray, merits: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """The bends `[b, n]` of the path from a fair exposure, the best at its groups' exposures, to the highest utility.

    On the way a price that the documents of one of the two groups pay falls to 0. Between two prices at which documents of both
    groups are equal, the best ranking stays the same.
    """
    gains, payer = _relative(merits), group == 0
    if payer.all():
        return fair[None]
    least = [
        np.lexsort((side, -gains)) for side in (payer, ~payer)
    ]  # among equals the other group first, or the payers
    bounds = [worth[payer[order]].sum() for order in least]
    share = fair[payer].sum()
    if bounds[0] - _SAME <= share <= bounds[1] + _SAME:
        return fair[None]
    if share > bounds[1]:  # the others are to gain, so they pay
        payer = ~payer
        share = fair[payer].sum()
    prices = np.unique(np.subtract.outer(gains[payer], gains[~payer]))
    prices = np.concatenate([[0.0], prices[prices > 0]])
    points = [fair]
    for price in ((prices[1:] + prices[:-1]) / 2)[::-1]:
        order = np.argsort(-(gains - price * payer), kind="stable")
        gained = worth[payer[order]].sum()
        if gained > share + _SAME:
            share = gained
            points.append(np.empty_like(fair))
            points[-1][order] = worth
    return np.array(points)


def _sorted_within(order: np.ndarray, group: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """A ranking whose documents of each group are in the order of their gains, at the positions that the group had."""
    found = order.copy()
    for each in np.unique(group):
        places = np.flatnonzero(group[order] == each)
        members = order[places]
        found[places] = members[np.argsort(-gains[members], kind="stable")]
    return found
