"""A page and an upper bound for rules about overlapping groups, by Lagrangian relaxation.

Each rule has a price: what a document of its group costs within its prefix, or earns if the rule is a quota. For any prices >= 0
the best page at these prices, an assignment of documents to positions, is worth at least as much as the best page that keeps the
rules. Subgradient steps towards the best page known, of Polyak's length, lower this bound. Pages on the way are repaired by
replacing one document at a time.

The dual variables of the assignment tell how much the bound falls if a document must be at a position: if it falls below the page
known, no better page has the document there.

Sources: Held, Wolfe, Crowder, "Validation of subgradient optimization", Mathematical Programming 6, 1974; Fisher, "The Lagrangian
relaxation method for solving integer programming problems", Management Science 27, 1981.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_STEPS = 300
_STALLED = 8  # steps without a better bound, after which the length is halved
_SHORTEST = 0.01  # of the length, as a share of Polyak's
_BETTER = 1e-6  # by which a bound must fall to count
CLOSE = 1e-9  # relative; what is left is for the programme, and nothing to tell of
EXACT = 1e-6  # of gains from 0 to 1e6, as HiGHS's tolerances


class OneSided(NamedTuple):
    """Rules as `sign * number of documents <= sign * bound`, `[rules]`: sign 1 for caps, -1 for quotas."""

    members: list[np.ndarray]
    prefix: np.ndarray
    sign: np.ndarray
    bound: np.ndarray

    @classmethod
    def of(cls, rules: Sequence[tuple[np.ndarray, int, int, int | None]]) -> OneSided:
        """Of rules (members, prefix, lower, upper), without those that every page keeps."""
        found = [
            (members, prefix, sign, bound)
            for members, prefix, lower, upper in rules
            for sign, bound in ((1, upper), (-1, lower))
            if bound is not None and (bound < min(prefix, members.sum()) if sign > 0 else bound > 0)
        ]
        members, *numbers = zip(*found, strict=True) if found else ((), (), (), ())
        prefix, sign, bound = (np.array(each, np.int64) for each in numbers)
        return cls(list(members), prefix, sign, sign * bound)


class Relaxed(NamedTuple):
    """What the relaxation found.

    Attributes:
        page: `[positions]`, the document at each.
        value: of the page.
        bound: no page is worth more.
        below: `[documents, positions]`, by how much the bound falls if the document is there.
    """

    page: np.ndarray
    value: float
    bound: float
    below: np.ndarray


class Relaxation:
    """Pages with a document at each position, of the largest gain.

    Args:
        gains: `[documents, positions]`; -inf where a document must not be. In each row they decrease, in each column too.
        rules: of the documents.
    """

    def __init__(self, gains: np.ndarray, rules: OneSided) -> None:
        from scipy.sparse import csr_array

        self.gains, self.rules = gains, rules
        many, self.end = gains.shape
        places = [np.flatnonzero(each) for each in rules.members]
        starts = np.cumsum([0, *map(len, places)])
        columns = np.concatenate([*places, np.zeros(0, np.int64)])
        of_rule = csr_array((np.ones(len(columns)), columns, starts), shape=(len(places), many))
        self.of_document = of_rule.T.tocsr()  # [documents, rules]
        self.within = rules.prefix[:, None] > np.arange(self.end)  # [rules, positions]
        segment = np.searchsorted(np.unique(rules.prefix), np.arange(self.end), side="right")
        # Of equal use for the rules: the positions of a segment that are free.
        free = np.isfinite(gains).sum(0) > 1
        self.segments = [np.flatnonzero((segment == each) & free) for each in np.unique(segment)]

    def solve(self, page: np.ndarray, time_limit: float = math.inf) -> Relaxed:
        """From a page that keeps the rules, lower the bound until it is the value of one, or falls no more, or time ends."""
        ends = time.perf_counter() + time_limit
        prices = np.zeros(len(self.rules.bound))
        lowest, at_lowest = np.inf, (prices, self.gains, np.zeros(0, np.int64))
        best, value, seen = page, self._value(page), set()
        length, stalled, direction = 1.0, 0, prices
        for _ in range(_STEPS):
            net, page, bound = self._priced(prices)
            stalled = 0 if bound < lowest - _BETTER * abs(bound) else stalled + 1
            if bound < lowest:
                lowest, at_lowest = bound, (prices, net, page)
            if page.tobytes() not in seen:
                seen.add(page.tobytes())
                repaired = self.repaired(page)
                if repaired is not None and self._value(repaired) > value:
                    best, value = repaired, self._value(repaired)
            late = time.perf_counter() > ends
            if lowest - value <= max(EXACT, CLOSE * lowest) or length < _SHORTEST or late:
                break
            if stalled == _STALLED:
                length, stalled, direction, bound = length / 2, 0, np.zeros_like(direction), lowest
                prices, _, page = at_lowest
            direction = direction / 2 + self._excess(page)
            step = np.where((prices <= 0) & (direction < 0), 0, direction)
            if not step.any():
                break
            prices = np.maximum(0, prices + length * max(bound - value, EXACT) / (step @ step) * step)
        return Relaxed(best, value, lowest, _reduced(*at_lowest[1:]).T)

    def _value(self, page: np.ndarray) -> float:
        return float(self.gains[page, np.arange(self.end)].sum())

    def _priced(self, prices: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Gains less prices `[positions, documents]`, the best page by these, and the bound."""
        from scipy.optimize import linear_sum_assignment

        net = (self.gains - self.of_document @ (self.within * (prices * self.rules.sign)[:, None])).T
        page = linear_sum_assignment(net, maximize=True)[1]
        return net, page, float(net[np.arange(self.end), page].sum() + prices @ self.rules.bound)

    def _excess(self, page: np.ndarray) -> np.ndarray:
        """By how many documents a page breaks each rule; negative if there is room."""
        counts = (self.of_document[page].toarray().T * self.within).sum(1)
        return self.rules.sign * counts - self.rules.bound

    def repaired(self, page: np.ndarray) -> np.ndarray | None:
        """A page that keeps the rules, from one that need not: documents are replaced one by one, by whichever breaks least and
        then gains most, while that is better; None if rules are still broken.
        """
        page, positions, sign = page.copy(), np.arange(self.end), self.rules.sign[:, None]
        for _ in range(4 * self.end):
            for segment in self.segments:
                page[segment] = np.sort(page[segment])
            excess = self._excess(page)
            broken = np.maximum(excess, 0).sum()
            # Without the document of each position `[rules, positions]`, and what one of the group adds to that.
            without = excess[:, None] - sign * self.of_document[page].toarray().T * self.within
            left = np.maximum(without, 0)
            added = (np.maximum(without + sign, 0) - left) * self.within
            then = np.where(np.isfinite(self.gains), self.of_document @ added + left.sum(0), np.inf)
            then[page] = np.inf
            least = then.min()
            if least > broken:
                break
            gained = np.where(then == least, self.gains, -np.inf) - self.gains[page, positions]
            document, position = divmod(int(gained.argmax()), self.end)
            if least == broken and gained[document, position] <= EXACT:
                break
            page[position] = document
        return page if broken == 0 else None


def _reduced(net: np.ndarray, page: np.ndarray) -> np.ndarray:
    """The reduced costs of an assignment problem at its best page, `[positions, documents]`, >= 0.

    Each position has a value and each document of the page a price p >= 0, the least ones: others want a document of the page no
    more than their own. They are longest paths along the positions, since net gain - price is largest at one's own document.
    """
    own = net[np.arange(len(page)), page]
    more = net[:, page] - own[:, None]
    price = np.zeros(len(page))
    for _ in page:
        price = np.maximum(price, (more + price[:, None]).max(0))
    prices = np.zeros(net.shape[1])
    prices[page] = price
    return np.maximum((own - price)[:, None] + prices - net, 0)
