"""Oracle of pages under rules: caps and quotas of groups (sellers, hosts, topics) among the first ranks.

    maximise over pages   sum_{i <= k} ( c_i s_{r(i)} - a_i b_{r(i)} )

with the decay c of the positional map, cut to 0 after k, and the discount a and gains b of a measure with a cut-off k. A page
shows as many documents as the rules allow, at most `length`; the others have no rank. The reference, the best value and the
argmax are all over pages.

Groups are nested or disjoint. The argmax is a flow of one unit from each rank to a document and up the tree of the groups, in
which a quota is an arc of its own (see page_flow.hpp), by shortest augmenting paths among the documents that compete: at most
`length` of each grade. If the measure's discount reaches 0 before its cut-off, or it is WTA, k is the last rank with a discount.
Reciprocal rank uses the best of k + 1 such flows, with 0 to k leading irrelevant documents.

`paged` puts it in place of the oracle of rankings, for `StructuredHingeLoss(constraints=...)`.

Diverse rankings are the pages of one rule, at most one document of each group. Ranks are then assigned to groups, where the value
of a group at a rank is the maximum of c_i s - a_i b over its documents, by exchanges, rarely by shortest augmenting paths. For
mWTA, k depends on the list, see `Diverse`.

Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 7.1 (diverse rankings).

>>> import rankstruct as rs
>>> scores, labels, hosts = torch.tensor([2.0, 1.0, 0.0]), torch.tensor([0, 0, 1]), torch.tensor([7, 7, 8])
>>> r = rs.most_violated(scores, labels, "diverse_nDCG@2", diversity_groups=hosts)
>>> r.task_loss, r.value, r.direction
(tensor(0.3691), tensor(0.9549), tensor([ 0.2929,  0.0000, -0.2929]))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.feature_maps import Positional
from rankstruct.kernels import core
from rankstruct.kernels.dispatch import Answer, Call, CpuLists, ListOperator, Prepared
from rankstruct.lists import Lists
from rankstruct.measures import RR, Diverse, Measure
from rankstruct.measures.ranked import RankedLists
from rankstruct.oracles.gains import known_gains, solve_gains
from rankstruct.oracles.positional import RANK_SCHEMA, RankMethod, gains_of, kind_of, rank_options
from rankstruct.oracles.registry import REFERENCES, Oracle, Resolved, register_oracle


class PageRule(NamedTuple):
    """A rule: the attribute that it is about, the number of its group there, or whether it is about each, and its bounds."""

    attribute: int
    which: int
    each_group: bool
    lower: int
    upper: int


class PageAttribute(NamedTuple):
    """Where an attribute's number is among the bits of a document's group, and the number of no group."""

    shift: int
    mask: int
    none: int


@dataclass(frozen=True)
class OnPage(Measure):
    """A measure of pages under rules, for the oracle only.

    Attributes:
        plain: a discounted gain or reciprocal rank with a cut-off.
        length: the most documents of a page.
        rules, attributes: what it keeps.
    """

    plain: Measure
    length: int
    rules: tuple[PageRule, ...]
    attributes: tuple[PageAttribute, ...]
    cutoff: int | None = field(default=None, init=False)

    takes_groups: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """That of the plain measure."""
        return self.plain.name

    @property
    def takes_negative_labels(self) -> bool:
        """Whether the plain measure accepts negative labels."""
        return self.plain.takes_negative_labels

    @cached_property
    def tables(self) -> tuple[Tensor, Tensor]:
        """Rules and attributes, int64, a row each."""
        return torch.tensor(self.rules, dtype=torch.int64), torch.tensor(self.attributes, dtype=torch.int64)

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """Pages are measured by `evaluate_under`."""
        raise NotImplementedError


def _compiled(longest: int, decay: Tensor, weights: Tensor, *given: Any) -> Call:
    *kind, length, rules, attributes = given
    options = rank_options(longest, decay, weights, *kind)
    table, places = (each.reshape(-1, size).T.numpy().copy() for each, size in ((rules, 5), (attributes, 3)))
    attribute, which, each_group, lower, upper = table
    prefix = np.full_like(lower, length)
    loop = core.page_hinge
    return Call(
        loop,
        loop.options(*options, attribute, which, each_group, prefix, lower, upper, len(places[0]), length, *places),
        check=_refuse_page,
    )


class NoFlow(ValueError):
    """No page of a list keeps all rules, or their groups overlap."""


def _refuse_page(batch: CpuLists, at: int) -> None:
    """The error of a list without a page, whose first document by score is refused; of scores too far apart a low one is."""
    scores, _, where = batch.given[:3]
    index = int(np.searchsorted(batch.bounds, at, side="right")) - 1
    here = slice(*batch.bounds[index : index + 2].tolist())
    real = scores.view(-1)[here] if where is None else scores.view(-1)[here][where.view(-1)[here]]
    if bool(scores.view(-1)[at] == real.max()):
        raise NoFlow(
            "no page of a list keeps all rules, or their groups overlap; call the loss eagerly, not in torch.compile or "
            "torch.func, which finds the page, or names the list and the rules in conflict"
        )


_PAGES = ListOperator(
    "page_hinge", f"{RANK_SCHEMA}, SymInt length, Tensor rules, Tensor attributes", _compiled, gains=True
)
#: At most one document of each group, in the rows of `OnPage.tables`.
_ONE_OF_EACH = torch.tensor([PageRule(0, 0, True, 0, 1)]), torch.tensor([PageAttribute(0, -1, -(2**63))])


def _options(measure: OnPage | Diverse, feature_map: Positional, reference: str, scores: Tensor) -> tuple[Any, ...]:
    length, tables = (2**31, _ONE_OF_EACH) if isinstance(measure, Diverse) else (measure.length, measure.tables)
    return *kind_of(measure.plain, feature_map, reference, scores), length, *tables


def _solve(scores: Tensor, lists: Lists, measure: OnPage | Diverse, feature_map: Positional, reference: str) -> Answer:
    plain, options = measure.plain, _options(measure, feature_map, reference, scores)
    return solve_gains(_PAGES, plain, partial(gains_of, plain), scores, lists, options)


def _prepare(measure: OnPage | Diverse, feature_map: Positional, reference: str, longest: int) -> Prepared | None:
    known = known_gains(measure.plain)
    if known is None:
        return None
    return Prepared(_PAGES.call(longest, *_options(measure, feature_map, reference, torch.empty(longest))), 0.0, known)


def paged(resolved: Resolved, length: int, rules: Iterable[Any], attributes: Iterable[Any]) -> Resolved:
    """The search for pages of these rules, in place of that for rankings."""
    measure = OnPage(
        resolved.measure,
        length,
        tuple(PageRule(*each) for each in rules),
        tuple(PageAttribute(*each) for each in attributes),
    )
    assert len(measure.tables) == 2  # made here, never while torch traces
    return Resolved(measure, resolved.feature_map, _ORACLE)


# For pages under rules, then for diverse rankings; of each, the second is for reciprocal rank.
_METHODS = (
    RankMethod("flow from ranks to documents and up the groups", "about O(n) after the sort, at worst O(k^3 L^2)"),
    RankMethod("such a flow for each number of irrelevant documents that lead", "at worst k times as much"),
    RankMethod("assignment of ranks to groups by exchanges", "about O(n m + m^2), at worst O(n m + m^2 G)"),
    RankMethod("such an assignment for each number of irrelevant documents that lead", "at worst O(n m + m^3 G)"),
)


def _explain(measure: OnPage | Diverse, feature_map: Positional, list_size: int, grades: int) -> RankMethod:
    return _METHODS[2 * isinstance(measure, Diverse) + isinstance(measure.plain, RR)]


_ORACLE = Oracle(_solve, _explain, REFERENCES, takes_reference_scores=True, refuses_negative=True, prepare=_prepare)
register_oracle(OnPage, Positional, _ORACLE, default="ideal-tied")
register_oracle(Diverse, Positional, _ORACLE, default="ideal-tied")
