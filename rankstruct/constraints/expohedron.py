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
- Where groups share a target, the path is one of mixtures of at most as many rankings as groups, as a parametric quadratic
  programme over all rankings, which are made as they are needed: with the prices that groups pay for exposure, the best ranking
  is a sort. It bends where a ranking's weight falls to 0 or another ranking becomes as good.

Here all exposures are in units of the first discount.

Source: Kletti, Renders, Loiseau, "Introducing the Expohedron for Efficient Pareto-optimal Fairness-Utility Amortizations in
Repeated Rankings", WSDM 2022. Groups: Wolfe, "Finding the nearest point in a polytope", Mathematical Programming 11, 1976.
"""

from __future__ import annotations

from collections.abc import Iterable

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


def mixed(rankings: Iterable[np.ndarray], weights: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """The mean exposures `[n]` of rankings with these weights."""
    found = np.zeros(len(worth))
    for ranking, weight in zip(rankings, weights, strict=True):
        found[ranking] += weight * worth
    return found


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
    rankings = list(decompose(project((aims / sizes)[group], worth), worth)[0])  # of any mixture that keeps the aims
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


class _Corral:
    """Rankings, affinely independent in the exposures of groups, whose mixtures are the best on a piece of a path.

    At a place a of the path, a mixture with exposures e of the groups, relative to the roots of their sizes, and utility u has
    the value a u - |e - t|^2 / 2. Near it, a ranking has that of its point (e, u) times the key (t - e of the mixture, a).

    Attributes:
        rankings: the documents at each position.
        points: `[rankings, groups + 1]`, their exposures of groups and their utility.
        weights: those at the last place.
    """

    def __init__(self, aims: np.ndarray, group: np.ndarray, gains: np.ndarray, worth: np.ndarray) -> None:
        self.root = np.sqrt(np.bincount(group))
        self.aims, self.group, self.gains, self.worth = aims / self.root, group, gains, worth
        self.rankings: list[np.ndarray] = []
        self.points, self.weights = np.empty((0, len(aims) + 1)), np.empty(0)

    def add(self, ranking: np.ndarray, weight: float = 0.0) -> None:
        """Take a ranking. If mixtures of the others have its exposures, one without weight takes the place of one of them."""
        point = self._point(ranking)
        if len(self.rankings) and not weight:
            known = np.append(self.points[:, :-1], np.ones((len(self.points), 1)), 1)
            same = np.linalg.lstsq(known.T, [*point[:-1], 1.0], rcond=None)[0]
            if np.abs(same @ known - [*point[:-1], 1.0]).max() < _SAME:
                shares = np.divide(self.weights, same, out=np.full(len(same), np.inf), where=same > _LEAST)
                weight, out = float(shares.min()), int(shares.argmin())
                self.weights = self.weights - weight * same
                self._keep(np.arange(len(same)) != out)
        self.rankings.append(ranking)
        self.points, self.weights = np.vstack([self.points, point]), np.append(self.weights, weight)

    def settle(self, at: float, first: np.ndarray | None = None) -> None:
        """Find the best mixture at a place, from the one there is; if `first` is given, of rankings by it.

        Wolfe's algorithm for the nearest point of a polytope.
        """
        place = np.array([1.0, at])
        for _ in range(1000):
            while ((best := place @ (lines := self._lines())) < 0).any():
                below = best < 0
                share = float((self.weights[below] / (self.weights - best)[below]).min().clip(0, 1))
                self.weights = self.weights + share * (best - self.weights)
                self._keep(~below | (self.weights > _CLOSE))
            self.weights, key = best, place @ self._keys(lines)
            ranking, room = self._best(key, first)
            if self._point(ranking) @ key <= (self.points @ key).max() + 1e-16 * room:
                return
            self.add(ranking)

    def reach(self) -> float:
        """The place to which the piece of the path goes. Newton's method: each step is a sort."""
        start, rate = lines = self._lines()
        keys, falling = self._keys(lines), rate < 0
        end = float((-start[falling] / rate[falling]).min(initial=np.inf))
        while True:
            place = np.array([0.0, 1.0] if end == np.inf else [1.0, end])
            ranking, room = self._best(place @ keys)
            ahead = keys @ (self._point(ranking) - self.points[0])  # at place 0, and its change
            if not (place @ ahead > _LEAST * room and -ahead[0] / ahead[1] < end):
                return end
            end = float(-ahead[0] / ahead[1])

    def mixture(self, at: float) -> np.ndarray:
        """The exposures of the documents at a place of the piece."""
        return mixed(self.rankings, np.array([1.0, at]) @ self._lines(), self.worth)

    def _point(self, ranking: np.ndarray) -> np.ndarray:
        sums = np.bincount(self.group[ranking], self.worth, len(self.root))
        return np.append(sums / self.root, self.gains[ranking] @ self.worth)

    def _keep(self, kept: np.ndarray) -> None:
        self.rankings = [each for each, stays in zip(self.rankings, kept, strict=True) if stays]
        self.points, self.weights = self.points[kept], self.weights[kept]

    def _lines(self) -> np.ndarray:
        """The best weights, also below 0, at place 0, and how they change with the place, `[2, rankings]`."""
        apart = self.points[1:] - self.points[0]
        q, r = np.linalg.qr(apart[:, :-1].T)
        start = np.linalg.solve(r, q.T @ (self.aims - self.points[0, :-1]))
        rate = np.linalg.solve(r, np.linalg.solve(r.T, apart[:, -1]))
        return np.array([[1 - start.sum(), *start], [-rate.sum(), *rate]])

    def _keys(self, lines: np.ndarray) -> np.ndarray:
        """The key of mixtures with these weights at place 0, and how it changes, `[2, groups + 1]`."""
        keys = -lines @ self.points
        keys[0, :-1] += self.aims
        keys[:, -1] = [0.0, 1.0]
        return keys

    def _best(self, key: np.ndarray, first: np.ndarray | None = None) -> tuple[np.ndarray, float]:
        """The best ranking for a key, and how large its value may be."""
        net = key[-1] * self.gains + (key[:-1] / self.root)[self.group]
        ranking = np.lexsort((-net,) if first is None else (-net, -first))
        return ranking, float(np.abs(net).max() * len(net))


def path_of_groups(
    aims: np.ndarray, fair: tuple[np.ndarray, np.ndarray], group: np.ndarray, merits: np.ndarray, worth: np.ndarray
) -> np.ndarray:
    """The bends `[b, n]` of the path from the fairest mixture, of these rankings and weights, to the highest utility.

    Its places a >= 0 have the best mixtures for the value a r . e - |e - t|^2 / 2, where e and t count by group.
    """
    gains = _relative(merits)
    corral = _Corral(aims, group, gains, worth)
    for ranking, weight in zip(*fair, strict=True):
        corral.add(ranking, float(weight))
    points = [mixed(*fair, worth)]
    at, leap = 0.0, _STEP
    while at < _FAR:
        ahead = at + leap * max(at, 1.0)
        corral.settle(ahead)
        end = corral.reach()
        if end == np.inf:
            break
        if end > ahead:
            at, leap = end, _STEP
            points.append(corral.mixture(at))
        else:  # rankings that are better hardly so
            leap *= 4
    else:
        corral = _Corral(aims, group, gains, worth)
        corral.add(np.argsort(-gains, kind="stable"), 1.0)
        corral.settle(0.0, gains)
        points.append(corral.mixture(0.0))
    return _bends(np.array(points))
