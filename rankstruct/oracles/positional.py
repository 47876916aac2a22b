"""Oracles of the positional map (DORM, ORM): a rank-two assignment problem, solved by its structure.

    maximise over rankings   sum_i ( c_i s_{r(i)} - a_i b_{r(i)} )

with the decay c of the map, the discount a and the gains b of the measure. Documents of one gain stay in score order. The
method is chosen list by list: sorting where c is proportional to a; a lattice programme for two gains; the
residual sweep of a few gains, of the ranks up to the cut-off; prices of the positions for many, or for few documents. Those that
no best ranking has before the cut-off keep their ranks by score, and are not looked at.

Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures" (equations 20 to 22 for the references); Le and Smola,
"Direct Optimization of Ranking Measures", 2007.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.feature_maps import FeatureMap, Positional
from rankstruct.kernels.dispatch import Answer, DeviceLists, FlatLists, define_kernel, discount_table, load_kernel
from rankstruct.lists import is_plain
from rankstruct.measures import RR, DiscountedGain, Diverse, Measure, mWTA
from rankstruct.measures.ranked import is_relevant
from rankstruct.oracles.registry import REFERENCES, Oracle, register_oracle

if TYPE_CHECKING:
    from rankstruct.kernels.positional_cpu import RankLists


class RankMethod(NamedTuple):
    """How a list is solved, at what cost, and the loop that does."""

    name: str
    cost: str
    loop: str = ""


# In the order of their numbers in `positional_cpu`; the first is for lists that no ranking can get wrong.
_METHODS = (
    RankMethod("nothing to solve", "O(n)"),
    RankMethod("sort by s - b a / c", "O(n log n)", "proportional_lists"),
    RankMethod(
        "lattice programme over the two gains",
        "about O(n + k), at worst O(k p), after the sort; k is n without a cut-off",
        "lattice_lists",
    ),
    RankMethod(
        "residual sweep of the first k ranks",
        "about O(n + k L^2) after the sort; k is n without a cut-off",
        "sweep_lists",
    ),
    RankMethod("prices from thresholds, then shortest augmenting paths", "O(n^2), at worst O(n^3)", "price_lists"),
    RankMethod(
        "every rank of the highest-scored relevant document",
        "about O(n), at worst O(n + min(k, m) p), after the sort",
        "reciprocal_lists",
    ),
)
_RECIPROCAL = _METHODS[-1]


def rank_oracle(
    name: str,
    flat: Callable[..., int],
    explain: Callable[..., RankMethod],
    device: Callable[..., Answer] | None = None,
) -> Oracle:
    """An oracle whose kernel `(FlatLists, results, RankLists, number of the reference)` knows rankings by their ranks.

    `device` takes `(DeviceLists, decay, weights, least_cutoff, normalized, reciprocal, number of the reference)`.

    Its operator is `rankstruct::<name>`. None of these loops vectorises. All in float64, so that one compiled loop serves every
    dtype: these are the largest ones.
    """

    def body(lists: FlatLists, results: tuple[np.ndarray, ...], *given: Any) -> int:
        from rankstruct.kernels.positional_cpu import RankLists

        decay, weights, *kind, reference = given
        c, a = discount_table(decay, lists.longest), discount_table(weights, lists.longest)
        arrays = (lists.scores, lists.labels, lists.groups, lists.where, lists.bounds, lists.chosen)
        return flat(
            lists, results, RankLists(*arrays, c, a, int(np.count_nonzero(a)), *kind), REFERENCES.index(reference)
        )

    def on_device(lists: DeviceLists, *given: Any) -> Answer:
        assert device is not None
        return device(lists, *given[:-1], REFERENCES.index(given[-1]))

    schema = "Tensor decay, Tensor weights, SymInt least_cutoff, bool normalized, bool reciprocal, str reference"
    operator = define_kernel(name, schema, body, device=None if device is None else on_device, precise=True)

    def solve(
        scores: Tensor,
        labels: Tensor,
        where: Tensor | None,
        offsets: Tensor | None,
        measure: Measure,
        feature_map: Positional,
        reference: str,
        *,
        reference_scores: Tensor | None = None,
        groups: Tensor | None = None,
    ) -> Answer:
        plain = measure.plain if isinstance(measure, Diverse) else measure
        weights, decay = rank_tables(plain, feature_map, scores)
        kind = getattr(plain, "least_cutoff", 0), bool(getattr(plain, "normalized", False)), isinstance(plain, RR)
        lists = (scores, _gains(plain, labels), where, offsets, reference_scores, groups)
        return operator(*lists, decay, weights, *kind, reference)

    return Oracle(solve, explain, REFERENCES, takes_reference_scores=True)


class _Scratch(threading.local):
    """What a thread's calls fill, kept from one to the next: the system clears fresh memory, which takes as long as the loops."""

    def __init__(self) -> None:
        self._kept: dict[str, np.ndarray] = {}

    def rows(self, name: str, count: int, size: int) -> np.ndarray:
        """Int64 `[count, size]`, each row in one piece."""
        found = self._kept.get(name)
        if found is None or found.shape[1] < size:
            found = np.empty((count, size), np.int64)
            if size <= _MOST_KEPT:
                self._kept[name] = found
        return found[:, :size]


_SCRATCH, _MOST_KEPT = _Scratch(), 2**18  # documents, of 56 bytes


def _solve_flat(flat: FlatLists, results: tuple[np.ndarray, ...], lists: RankLists, reference: int) -> int:
    from rankstruct.kernels import positional_cpu as cpu

    documents, count = flat.scores.shape[0], len(flat.bounds) - 1
    by_document, by_list = _SCRATCH.rows("by_document", 7, documents), _SCRATCH.rows("by_list", 7, count)
    batch = cpu.Batch(lists, *by_document[:5], *by_document[5:].view(float), *by_list[:6], *by_list[6:].view(float))
    wrong = flat.run(lambda first, last: cpu.begin_lists(batch, first, last))
    if wrong != -1:
        return wrong
    for number in set(batch.method.tolist()) - {cpu.NOTHING}:
        loop = getattr(cpu, _METHODS[number].loop)
        flat.run(lambda first, last, loop=loop: loop(batch, first, last))  # type: ignore[misc]
    return flat.run(lambda first, last: cpu.score_lists(batch, first, last, reference, *results))


def _solve_on_device(lists: DeviceLists, *given: Any) -> Answer:
    return load_kernel("positional_device.solve_on_device")(lists, *given)


_TABLES: OrderedDict[tuple[Measure, Positional, int], tuple[Tensor, Tensor]] = OrderedDict()
_MOST_TABLES = 16
_LARGEST_TABLE = 10_000  # ranks; making a longer one is little beside the sort of the list


def rank_tables(measure: Measure, feature_map: Positional, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Discounts and decay for lists as long as `scores` `[..., list_size]`, kept from one call to the next."""
    size = max(scores.shape[-1], 1)
    # Tensors of a tracer, a fake device, inference mode or torch.func must not outlive the call that they were made for.
    plain = type(scores) is Tensor and not torch.compiler.is_compiling() and not torch.is_inference_mode_enabled()
    if not plain or size > _LARGEST_TABLE:
        return _make_tables(measure, feature_map, size)
    key = (measure, feature_map, size)
    try:
        tables = _TABLES.get(key)
    except TypeError:  # a measure or decay that cannot be a key
        return _make_tables(measure, feature_map, size)
    if tables is None:
        tables = _make_tables(measure, feature_map, size)
        if not all(map(is_plain, tables)):
            return tables
        _TABLES[key] = tables
        if len(_TABLES) > _MOST_TABLES:
            _TABLES.popitem(last=False)
    return tables


def _make_tables(measure: Measure, feature_map: Positional, size: int) -> tuple[Tensor, Tensor]:
    if isinstance(measure, RR):
        ranks = torch.arange(1, size + 1, dtype=torch.float64)
        weights = 1.0 / ranks if measure.cutoff is None else torch.where(ranks <= measure.cutoff, 1.0 / ranks, 0.0)
    else:
        assert isinstance(measure, DiscountedGain | mWTA)
        weights = measure.unchecked_weights(size)
    return weights, feature_map.unchecked_weights(size, weights, measure.cutoff)


def _gains(measure: Measure, labels: Tensor) -> Tensor:
    """What each document gains, float64: of reciprocal rank 1 or 0, NaN where the label is not finite."""
    if not isinstance(measure, RR):
        assert isinstance(measure, DiscountedGain | mWTA)  # what is registered below
        return measure.document_gains(labels).double()
    gains = is_relevant(labels, measure.min_relevant).double()
    return torch.where(torch.isfinite(labels), gains, torch.nan) if labels.dtype.is_floating_point else gains


def _explain(measure: Measure, feature_map: FeatureMap, list_size: int, grades: int) -> RankMethod:
    if isinstance(measure, RR):
        return _RECIPROCAL
    assert isinstance(measure, DiscountedGain | mWTA)
    assert isinstance(feature_map, Positional)
    a = measure.unchecked_weights(list_size).numpy()
    if isinstance(measure, mWTA):  # for the usual list, in which two grades are among the three highest
        a[mWTA.least_cutoff :] = 0
    c = feature_map.unchecked_weights(list_size, torch.from_numpy(a), measure.cutoff).numpy()
    proportional = bool((c * a[0] == a * c[0]).all() and c[0] > 0)
    choose = load_kernel("positional_cpu.choose_method")
    return _METHODS[choose(list_size, grades, int(np.count_nonzero(a)), proportional)]


_ORACLE = rank_oracle("positional", _solve_flat, _explain, _solve_on_device)
register_oracle(DiscountedGain, Positional, _ORACLE, default="ideal-tied")  # type: ignore[type-abstract]  # and all its subclasses
register_oracle(mWTA, Positional, _ORACLE, default="ideal-tied")  # DORM section 6.4
register_oracle(RR, Positional, _ORACLE, default="ideal-tied")
