"""Oracles of the positional map (DORM, ORM): a rank-two assignment problem, solved by exploiting its structure.

    maximise over rankings   sum_i ( c_i s_{r(i)} - a_i b_{r(i)} )

with the decay c of the map, the discount a and the gains b of the measure. Documents of equal gain stay in score order. The
method is selected for each list: sorting if c is proportional to a; a residual sweep of the ranks up to the cut-off for a few
distinct gains; prices of the positions for many gains, or few documents. Documents that are after the cut-off in every optimal
ranking keep their ranks by score, and are skipped.

Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures" (equations 20 to 22 for the references); Le and Smola,
"Direct Optimization of Ranking Measures", 2007.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.feature_maps import FeatureMap, Positional
from rankstruct.kernels import core
from rankstruct.kernels.dispatch import Answer, Call, ListOperator, Prepared, discount_table
from rankstruct.lists import Lists, is_plain
from rankstruct.measures import RR, DiscountedGain, Measure, mWTA
from rankstruct.oracles.gains import hits, known_gains, solve_gains
from rankstruct.oracles.registry import REFERENCES, Oracle, register_oracle


class RankMethod(NamedTuple):
    """How a list is solved, and at what cost."""

    name: str
    cost: str


# In the order of their numbers in positional.hpp; the first is for lists whose rankings are all equally good.
_METHODS = (
    RankMethod("nothing to solve", "O(n)"),
    RankMethod("sort by s - b a / c", "O(n log n)"),
    RankMethod(
        "residual sweep of the first k ranks",
        "about O(n + k L^2) after the sort; k is n without a cut-off",
    ),
    RankMethod("prices from thresholds, then shortest augmenting paths", "O(n^2), at worst O(n^3)"),
    RankMethod(
        "every rank of the highest-scored relevant document",
        "about O(n), at worst O(n + min(k, m) p), after the sort",
    ),
)
_RECIPROCAL = _METHODS[-1]


def rank_options(longest: int, decay: Tensor, weights: Tensor, least: int, *kind: Any) -> tuple[Any, ...]:
    """The options of `ByRank` in lists.hpp."""
    c, a = discount_table(decay, longest), discount_table(weights, longest)
    *flags, reference = kind
    return c, a, int(np.count_nonzero(a)), least, *flags, REFERENCES.index(reference)


class RankTables(NamedTuple):
    """Decay of a feature map and discounts of a measure, `[longest list]` each."""

    decay: Tensor
    weights: Tensor


_TABLES: OrderedDict[tuple[Measure, Positional, int], RankTables] = OrderedDict()
_MOST_TABLES = 16
_LARGEST_TABLE = 10_000  # ranks; computing a longer one is cheap compared with sorting the list


def rank_tables(measure: Measure, feature_map: Positional, scores: Tensor) -> RankTables:
    """Discounts and decay for lists as long as `scores` `[..., list_size]`, cached between calls."""
    size = max(scores.shape[-1], 1)
    # Tensors of a tracer, a fake device, inference mode or torch.func must not outlive the call.
    plain = type(scores) is Tensor and not torch.compiler.is_compiling() and not torch.is_inference_mode_enabled()
    if not plain or size > _LARGEST_TABLE:
        return _make_tables(measure, feature_map, size)
    key = (measure, feature_map, size)
    try:
        tables = _TABLES.get(key)
    except TypeError:  # an unhashable measure or decay
        return _make_tables(measure, feature_map, size)
    if tables is None:
        tables = _make_tables(measure, feature_map, size)
        if not all(map(is_plain, tables)):
            return tables
        with suppress(ValueError):  # flat lists are shorter than all of them together
            for each in tables:
                each.checked = discount_table(each, size).copy()  # type: ignore[attr-defined]
        _TABLES[key] = tables
        if len(_TABLES) > _MOST_TABLES:
            _TABLES.popitem(last=False)
    return tables


def _make_tables(measure: Measure, feature_map: Positional, size: int) -> RankTables:
    if isinstance(measure, RR):
        ranks = torch.arange(1, size + 1, dtype=torch.float64)
        weights = 1.0 / ranks if measure.cutoff is None else torch.where(ranks <= measure.cutoff, 1.0 / ranks, 0.0)
    else:
        assert isinstance(measure, DiscountedGain | mWTA)
        weights = measure.unchecked_weights(size)
    return RankTables(feature_map.unchecked_weights(size, weights, measure.cutoff), weights)


def gains_of(measure: Measure, labels: Tensor) -> Tensor:
    """The gain of each document, float64; for reciprocal rank 1 or 0, NaN if the label is not finite."""
    if not isinstance(measure, RR):
        assert isinstance(measure, DiscountedGain | mWTA)  # those registered below
        return measure.document_gains(labels).double()
    return hits(labels, measure.min_relevant)


def _explain(measure: Measure, feature_map: FeatureMap, list_size: int, grades: int) -> RankMethod:
    if isinstance(measure, RR):
        return _RECIPROCAL
    assert isinstance(measure, DiscountedGain | mWTA)
    assert isinstance(feature_map, Positional)
    a = measure.unchecked_weights(list_size).numpy()
    if isinstance(measure, mWTA):  # for typical lists, with two grades among the three highest labels
        a[mWTA.least_cutoff :] = 0
    c = feature_map.unchecked_weights(list_size, torch.from_numpy(a), measure.cutoff).numpy()
    proportional = bool((c * a[0] == a * c[0]).all() and c[0] > 0)
    return _METHODS[core.choose_method(list_size, grades, int(np.count_nonzero(a)), proportional)]


def _compiled(longest: int, decay: Tensor, weights: Tensor, *kind: Any) -> Call:
    return Call(core.positional, core.positional.options(*rank_options(longest, decay, weights, *kind)))


RANK_SCHEMA = "Tensor decay, Tensor weights, SymInt least_cutoff, bool normalized, bool reciprocal, str reference"
POSITIONAL = ListOperator("positional", RANK_SCHEMA, _compiled, gains=True, weighted=True)


def kind_of(measure: Measure, feature_map: Positional, reference: str, scores: Tensor) -> tuple[Any, ...]:
    """The arguments of `RANK_SCHEMA`, for lists as long as `scores` `[..., list_size]`."""
    kind = getattr(measure, "least_cutoff", 0), bool(getattr(measure, "normalized", False)), isinstance(measure, RR)
    return *rank_tables(measure, feature_map, scores), *kind, reference


def _solve(scores: Tensor, lists: Lists, measure: Measure, feature_map: Positional, reference: str) -> Answer:
    options = kind_of(measure, feature_map, reference, scores)
    return solve_gains(POSITIONAL, measure, partial(gains_of, measure), scores, lists, options)


def _prepare(measure: Measure, feature_map: Positional, reference: str, longest: int) -> Prepared | None:
    known = known_gains(measure)
    if known is None:
        return None
    return Prepared(
        POSITIONAL.call(longest, *kind_of(measure, feature_map, reference, torch.empty(longest))), 0.0, known
    )


_ORACLE = Oracle(
    _solve,
    _explain,
    REFERENCES,
    takes_reference_scores=True,
    takes_item_weights=True,
    refuses_negative=True,
    loops_take_item_weights=True,
    prepare=_prepare,
)
register_oracle(DiscountedGain, Positional, _ORACLE, default="ideal-tied")  # type: ignore[type-abstract]  # and all its subclasses
register_oracle(mWTA, Positional, _ORACLE, default="ideal-tied")  # DORM section 6.4
register_oracle(RR, Positional, _ORACLE, default="ideal-tied")
