"""The most violated page under rules where it is no flow: groups overlap, or rules are about several prefixes.

    maximise over pages   sum_{i <= k} ( c_i s_{r(i)} - a_i b_{r(i)} )

Here a document has to keep to one rank, to the rules about its group of one kind and to those of another: with three kinds of
groups, a page of distinct ones is a 3-dimensional matching, so that even to find one is NP-hard. With several prefixes it has to
keep to one rank, and to the rules of its group within each prefix. Of disjoint groups the best page by score alone has the
documents of a group in one order (see windows.py), but this one weighs scores against gains, and has no such order.

The programme without whole numbers has mixtures of pages that keep the rules on average. It is solved by HiGHS, for the documents
that compete: of the same groups as many as a page may show, and of these the ones that dual prices do not rule out. Its maximum
is at least that of pages, and nearly always the best mixture is one page. Else a programme of whole numbers closes the gap, for
the documents that the prices leave; if that takes more than `_NODES` nodes, the hinge is bounded from above by the mixture, which
is a subgradient of the bound, and a warning tells the gap.

Reciprocal rank is no sum over ranks. With t leading ranks that show irrelevant documents, and any at the next, it is charged as
if that were relevant; the maximum over t is that of pages, as a page that is charged too much is better with more leaders.

The reference is a page: the best one by the measure, or by score, as `rank_under` finds it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from rankstruct.constraints.program import GroupRule, conflict, solve_program
from rankstruct.constraints.relaxation import OneSided

_SECONDS = 10.0  # for the page of a reference
_FEW = 60  # documents that the programme begins with
_SURE = 1e-9  # of values between -1 and 0
_SCALE = 1e6  # of these values in a programme of whole numbers, for HiGHS's absolute tolerance of 1e-6
_NODES = 1000
_MOST_IDEALS = 4096


class NoPage(ValueError):
    """No page of a list keeps all rules."""


class PageWorth(NamedTuple):
    """What ranks are worth.

    Attributes:
        decay, discount: c and a of the ranks that are measured.
        normalized: whether the best page is worth 1.
        reciprocal: whether the first relevant document counts, one with a gain above 0, and not the sum.
    """

    decay: np.ndarray
    discount: np.ndarray
    normalized: bool
    reciprocal: bool


class Ideal(NamedTuple):
    """A best page by the measure, the value that no page exceeds, and whether all pages have the same."""

    page: np.ndarray
    best: float
    alike: bool


class Violated(NamedTuple):
    """A mixture of pages `[documents, ranks]`, its measure, and by how much it may be better than any page."""

    mixture: np.ndarray
    measured: float
    gap: float


class ListBound(NamedTuple):
    """Of one list: task loss and hinge, its gradient `[documents]`, and how much lower the hinge may be."""

    task_loss: float
    value: float
    direction: np.ndarray
    gap: float


class PageBound:
    """The hinge, or the bound, of lists under the same rules.

    Args:
        length: the most documents of a page.
        worth: of the ranks.
        reference: `"ideal"`, `"ideal-tied"`, where of the documents that neither rules nor gains tell apart those with the
            highest scores come first, or `"predicted"`.
    """

    def __init__(self, length: int, worth: PageWorth, reference: str) -> None:
        self.length, self.worth, self.reference = length, worth, reference

    def of_list(self, scores: np.ndarray, gains: np.ndarray, chosen: np.ndarray, rules: list[GroupRule]) -> ListBound:
        """The hinge of a list of at least one document; `chosen` are the scores that determine the reference.

        Raises:
            NoPage: no page keeps the rules; the message names those in conflict.
        """
        ideal, nothing = self._ideal(gains, rules), ListBound(0.0, 0.0, np.zeros(len(scores)), 0.0)
        if ideal.best <= 0 or ideal.alike:
            return nothing
        page = self._reference(ideal.page, gains, chosen, rules)
        unit = ideal.best if self.worth.normalized else 1.0
        found = self._most_violated(scores, gains / unit, page, rules)
        task_loss, gap = max(ideal.best / unit - found.measured, 0.0), found.gap
        c = self.worth.decay[: len(page)]
        direction = found.mixture[:, : len(c)] @ c
        direction[page[: len(c)]] -= c
        return ListBound(task_loss, max(task_loss + float(direction @ scores), 0.0), direction, gap)

    def _most_violated(
        self, scores: np.ndarray, gains: np.ndarray, page: np.ndarray, rules: list[GroupRule]
    ) -> Violated:
        """The page, or mixture, with the largest difference of score and measure; this page keeps the rules."""
        ranks = min(len(self.worth.decay), len(page))
        c, a = self.worth.decay[:ranks], self.worth.discount[:ranks]
        if not self.worth.reciprocal:
            mixture, gap = best_mixture(scores, gains, c, a, page, rules)
            return Violated(mixture, float(gains @ mixture[:, :ranks] @ a), gap)
        best, largest, bound = None, -np.inf, -np.inf
        for lead in range(ranks + 1):
            mixture, gap = best_mixture(scores, gains, c, 0 * a, page, rules, lead)
            if gap == 0 and (mixture[gains > 0, :lead] > 0.5).any():  # no page has so many
                break
            total, charge = float(scores @ mixture[:, :ranks] @ c), float(a[lead]) if lead < ranks else 0.0
            bound = max(bound, total - charge)
            if total - charge == bound:
                best = Violated(mixture, charge, 0.0)
            largest = max(largest, total - charge - gap)
            if total <= largest:
                break
        assert best is not None
        return best._replace(gap=bound - largest)

    def _page(self, scores: np.ndarray, weights: np.ndarray, rules: list[GroupRule]) -> tuple[np.ndarray, float]:
        """The best page by weighted scores, and the share by which another may be better."""
        size = min(self.length, len(scores))
        at = np.zeros(size)
        at[: len(weights)] = weights[:size]
        found = solve_program(scores, rules, None, at, _SECONDS)
        if found is None:
            raise NoPage(conflict(rules, None, size))
        order = np.argsort(found.ranks, kind="stable")
        return order[(found.ranks == 0).sum() :], found.gap

    def _ideal(self, gains: np.ndarray, rules: list[GroupRule]) -> Ideal:
        """The best page by the measure; kept, since it does not depend on the scores."""
        digest = hashlib.blake2b(bytes([self.worth.reciprocal]), digest_size=16)
        given = [gains, self.worth.discount, *(np.packbits(rule.members) for rule in rules)]
        sides = [(rule.prefix or 0, rule.lower, -1 if rule.upper is None else rule.upper) for rule in rules]
        bounds = np.array([(self.length, len(gains), 0), *sides])
        for each in (*given, bounds):
            digest.update(each.tobytes())
        key = digest.digest()
        found = _IDEALS.get(key)
        if found is None:
            found = self._find_ideal(gains, rules)
            if len(_IDEALS) >= _MOST_IDEALS:
                _IDEALS.popitem(last=False)
            _IDEALS[key] = found
        return found

    def _find_ideal(self, gains: np.ndarray, rules: list[GroupRule]) -> Ideal:
        page, gap = self._page(gains, self.worth.discount, rules)
        ranks = min(len(self.worth.discount), len(page))
        a = self.worth.discount[:ranks]
        if not ranks:
            return Ideal(page, 0.0, True)
        if self.worth.reciprocal:
            return self._earliest(gains, page, rules, a)
        value, least = float(a @ gains[page[:ranks]]), float(a.sum() * gains.min())
        best = value if gap == 0 else least + (value - least) / (1 - gap)
        worst, _ = best_mixture(np.zeros_like(gains), gains, 0 * a, a, page, rules)
        return Ideal(page, best, best - float(gains @ worst[:, :ranks] @ a) <= _SURE * max(best, 1.0))

    def _earliest(self, gains: np.ndarray, page: np.ndarray, rules: list[GroupRule], a: np.ndarray) -> Ideal:
        """The page with a relevant document as early as may be; this one keeps the rules."""
        worst = self._most_violated(np.zeros_like(gains), gains, page, rules).measured
        for rank in range(len(a)):
            only = np.arange(len(a)) == rank
            mixture, _ = best_mixture(np.zeros_like(gains), -gains, 0 * a, 1.0 * only, page, rules)
            if (found := float(gains @ mixture[:, rank])) > 1 - _SURE:
                return Ideal(mixture.argmax(0), float(a[rank]), bool(worst >= a[rank]))
            if found > _SURE:  # of a mixture: whether a page is so early is not known
                return Ideal(page, float(a[rank]), False)
        return Ideal(page, 0.0, True)

    def _reference(
        self, ideal: np.ndarray, gains: np.ndarray, chosen: np.ndarray, rules: list[GroupRule]
    ) -> np.ndarray:
        if self.reference == "predicted":
            return self._page(chosen, self.worth.decay, rules)[0]
        if self.reference == "ideal":
            return ideal
        page = ideal.copy()
        alike = np.unique(np.stack([_kinds(rules, len(gains)), gains]), axis=1, return_inverse=True)[1].reshape(-1)
        for each in np.unique(alike[page]):
            its = np.flatnonzero(alike == each)
            ranks = np.flatnonzero(alike[page] == each)
            page[ranks] = its[np.argsort(-chosen[its], kind="stable")[: len(ranks)]]
        return page


_IDEALS: OrderedDict[bytes, Ideal] = OrderedDict()


def _kinds(rules: list[GroupRule], documents: int) -> np.ndarray:
    """Numbers of documents; those that no rule tells apart have the same."""
    told = np.packbits(np.array([rule.members for rule in rules], bool).reshape(len(rules), documents), axis=0)
    return np.unique(told, axis=1, return_inverse=True)[1].reshape(-1) if len(rules) else np.zeros(documents, np.int64)


def _competing(scores: np.ndarray, gains: np.ndarray, kinds: np.ndarray, most: np.ndarray) -> np.ndarray:
    """The documents that are needed: fewer than `most` of the same kind have no lower score and no higher gain.

    Otherwise one of these is not shown, and is worth no less at the same rank.
    """
    kept = np.zeros(len(scores), bool)
    for level in np.unique(gains):
        some = np.flatnonzero(gains <= level)
        order = some[np.lexsort((gains[some], -scores[some], kinds[some]))]
        nth = np.arange(len(order)) - np.searchsorted(kinds[order], kinds[order])
        kept[order[(nth < most[order]) & (gains[order] == level)]] = True
    return np.flatnonzero(kept)


def best_mixture(
    scores: np.ndarray,
    gains: np.ndarray,
    c: np.ndarray,
    a: np.ndarray,
    page: np.ndarray,
    rules: list[GroupRule],
    lead: int = 0,
) -> tuple[np.ndarray, float]:
    """How often each document is at each rank `[documents, ranks]`, in the best mixture, or the best page, and the gap.

    `page` keeps the rules. The first `lead` ranks show documents with a gain above 0 only where there is no other page.
    """
    length = len(page)
    c, a = (np.pad(each, (0, length - len(each))) for each in (c, a))
    most = np.full(len(scores), length)
    for rule in rules:
        if rule.upper is not None and (rule.prefix or length) >= length:
            most[rule.members] = np.minimum(most[rule.members], rule.upper)
    competing = np.union1d(_competing(scores, gains, _kinds(rules, len(scores)), most), page)
    worth = np.outer(scores[competing], c) - np.outer(gains[competing], a)
    worth -= worth.max(0)
    unit = max(float(-worth.min()), np.finfo(float).tiny)
    worth /= unit
    worth[gains[competing] > 0, :lead] -= 2 * length + 2  # more than all ranks are worth
    best, gap = _Programme(worth, Told.of(rules, len(scores), length).among(competing)).solve(
        np.searchsorted(competing, page)
    )
    mixture = np.zeros((len(scores), length))
    mixture[competing] = best
    return mixture, gap * unit


class Told(NamedTuple):
    """What rules say: `[rules]` sums over documents `[rules, documents]` and ranks `[rules, ranks]`, at most `bound`."""

    members: np.ndarray
    within: np.ndarray
    bound: np.ndarray

    @classmethod
    def of(cls, rules: list[GroupRule], documents: int, length: int) -> Told:
        """Of so many documents and a page of this length; members of a quota count -1."""
        sides = OneSided.of([(its.members, min(its.prefix or length, length), its.lower, its.upper) for its in rules])
        members = np.array(sides.members, float).reshape(len(sides.bound), documents) * sides.sign[:, None]
        return cls(members, np.arange(length) < sides.prefix[:, None], sides.bound)

    def among(self, places: np.ndarray) -> Told:
        """Of some of the documents."""
        return self._replace(members=self.members[:, places])


class _Programme:
    """Documents at ranks, each once at most, worth -1 to 0 `[documents, ranks]`."""

    def __init__(self, worth: np.ndarray, told: Told) -> None:
        self.worth, self.told = worth, told

    def solve(self, page: np.ndarray) -> tuple[np.ndarray, float]:
        """The best page `[documents, ranks]`, or a mixture that is better by the gap; this page keeps the rules."""
        some = np.union1d(np.argsort(-self.worth.max(1), kind="stable")[:_FEW], page)
        while True:
            mixture, prices = self._mixture(some)
            # by how much a page that has the document may be better than the mixture
            better = (self.worth - prices).max(1)
            more = np.setdiff1d(np.flatnonzero(better > _SURE), some)
            if not len(more):
                break
            some = np.union1d(some, more[np.argsort(-better[more], kind="stable")[:_FEW]])
        if ((mixture < _SURE) | (mixture > 1 - _SURE)).all():
            return mixture, 0.0
        bound, value = (mixture * self.worth).sum(), float(self.worth[page, np.arange(len(page))].sum())
        for _ in range(2):
            found, is_best = self._page(some)
            if found is not None:
                value = max(value, (found * self.worth).sum())
            needed = np.flatnonzero(better >= value - bound - _SURE)
            if not is_best or np.isin(needed, some).all():
                break
            some = np.union1d(some, needed)
        return (found, 0.0) if found is not None and is_best else (mixture, bound - value)

    def _rows(self, some: np.ndarray) -> tuple[Any, np.ndarray, Any]:
        """Coefficients and bounds of these documents and of the rules, and coefficients of the ranks, which are filled."""
        from scipy.sparse import csr_array, eye_array, kron, vstack

        members, within, bound = self.told.among(some)
        ranks, rows = self.worth.shape[1], [kron(eye_array(len(some)), np.ones((1, self.worth.shape[1])))]
        if len(bound):
            rows.append(csr_array((members[:, :, None] * within[:, None, :]).reshape(len(bound), -1)))
        filled = kron(np.ones((1, len(some))), eye_array(ranks)).tocsr()
        return vstack(rows, format="csr"), np.concatenate([np.ones(len(some)), bound]), filled

    def _mixture(self, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best mixture of these documents, and what any document has to be worth at each rank to be in a better one."""
        from scipy.optimize import linprog

        rows, bounds, filled = self._rows(some)
        ones = np.ones(self.worth.shape[1])
        found = linprog(-self.worth[some].ravel(), rows, bounds, filled, ones, (0, None), method="highs-ds")
        assert found.x is not None, found.message
        members, within, _ = self.told
        prices = -found.eqlin.marginals - (members * found.ineqlin.marginals[len(some) :, None]).T @ within
        return self._among_all(some, np.where(found.x > _SURE, found.x, 0.0)), prices

    def _page(self, some: np.ndarray) -> tuple[np.ndarray | None, bool]:
        """The best page of these documents that `_NODES` nodes find, and whether there is none better."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        rows, bounds, filled = self._rows(some)
        found = milp(
            -self.worth[some].ravel() * _SCALE,
            integrality=np.ones(self.worth[some].size),
            bounds=Bounds(0, 1),
            constraints=[LinearConstraint(rows, -np.inf, bounds), LinearConstraint(filled, 1, 1)],
            options={"node_limit": _NODES, "mip_rel_gap": 0.0},
        )
        return None if found.x is None else self._among_all(some, found.x.round()), found.status == 0

    def _among_all(self, some: np.ndarray, found: np.ndarray) -> np.ndarray:
        """A solution for some documents as one of all."""
        mixture = np.zeros(self.worth.shape)
        mixture[some] = found.reshape(len(some), -1)
        return mixture
