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
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.feature_maps import FeatureMap, Positional
from rankstruct.kernels.dispatch import Answer, DeviceLists, FlatLists, define_kernel, discount_table, load_kernel
from rankstruct.lists import is_eager, is_plain, refuse_negative
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
    *,
    check_labels: bool = True,
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
    operator = define_kernel(
        name, schema, body, device=None if device is None else on_device, precise=True, check_labels=check_labels
    )

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
        tables = rank_tables(plain, feature_map, scores)
        kind = getattr(plain, "least_cutoff", 0), bool(getattr(plain, "normalized", False)), isinstance(plain, RR)
        gains = _gains_of_grades(plain, labels, where, tables.gains)
        return operator(scores, gains, where, offsets, reference_scores, groups, *tables[:2], *kind, reference)

    return Oracle(solve, explain, REFERENCES, takes_reference_scores=True, refuses_negative=True)


class _Scratch(threading.local):
    """What a thread's calls fill, kept from one to the next: the system clears fresh memory, which takes as long as the loops."""

    def __init__(self) -> None:
        self._rows = [np.empty((7, 0), np.int64)] * 2
        self._sizes: tuple[int, ...] = (-1, -1)
        self._arrays: list[np.ndarray] = []

    def arrays(self, documents: int, lists: int) -> list[np.ndarray]:
        """Those of `Batch`: five of int64 and two of float64 `[documents]`, five of int64 and one of float64 `[lists]`."""
        if (documents, lists) == self._sizes:
            return self._arrays
        rows = [self._rows_for(at, size) for at, size in enumerate((documents, lists))]
        (by_document, by_list), floats = rows, [each.view(np.float64) for each in rows]
        arrays = [*by_document[:5], *floats[0][5:], *by_list[:6], floats[1][6]]
        if max(documents, lists) <= _MOST_KEPT:
            self._arrays, self._sizes = arrays, (documents, lists)
        return arrays

    def _rows_for(self, at: int, size: int) -> np.ndarray:
        found = self._rows[at]
        if found.shape[1] < size:
            found = np.empty((7, size), np.int64)
            if size <= _MOST_KEPT:
                self._rows[at] = found
        return found[:, :size]


_SCRATCH, _MOST_KEPT = _Scratch(), 2**18  # documents, of 56 bytes


def _solve_flat(flat: FlatLists, results: tuple[np.ndarray, ...], lists: RankLists, reference: int) -> int:
    from rankstruct.kernels import positional_cpu as cpu

    batch = cpu.Batch(lists, *_SCRATCH.arrays(flat.scores.shape[0], len(flat.bounds) - 1))
    wrong = flat.run(lambda first, last: cpu.begin_lists(batch, first, last))
    if wrong != -1:
        return wrong
    for number in set(batch.method.tolist()) - {cpu.NOTHING}:
        loop = getattr(cpu, _METHODS[number].loop)
        flat.run(lambda first, last, loop=loop: loop(batch, first, last))  # type: ignore[misc]
    return flat.run(lambda first, last: cpu.score_lists(batch, first, last, reference, *results))


def _solve_on_device(lists: DeviceLists, *given: Any) -> Answer:
    return load_kernel("positional_device.solve_on_device")(lists, *given)


class RankTables(NamedTuple):
    """Of a measure and a map: `weights` and `decay` `[longest list]`, and what grades gain, as far as it is known."""

    decay: Tensor
    weights: Tensor
    gains: np.ndarray | None


_TABLES: OrderedDict[tuple[Measure, Positional, int], RankTables] = OrderedDict()
_MOST_TABLES = 16
_LARGEST_TABLE = 10_000  # ranks; making a longer one is little beside the sort of the list
_GRADES = 256


def rank_tables(measure: Measure, feature_map: Positional, scores: Tensor) -> RankTables:
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
        if not all(map(is_plain, tables[:2])):
            return tables
        with suppress(ValueError):  # flat lists are shorter than all of them together
            for each in tables[:2]:
                each.checked = discount_table(each, size).copy()  # type: ignore[attr-defined]
        if _gains_stay(measure):
            tables = tables._replace(gains=np.full(_GRADES, np.nan))
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
    return RankTables(feature_map.unchecked_weights(size, weights, measure.cutoff), weights, None)


def _gains_stay(measure: Measure) -> bool:
    """Whether a grade always gains the same: a function of a user's, or a measure, may remember, and may equal another."""
    return type(measure).__module__.startswith("rankstruct.") and not callable(getattr(measure, "gain", None))


_TABLED = (torch.int64, torch.float32, torch.float64)  # loops are compiled for each


def _gains_of_grades(measure: Measure, labels: Tensor, where: Tensor | None, table: np.ndarray | None) -> Tensor:
    """`_gains`, or by `table`, which learns; refuses labels below 0 that the measure gives no meaning."""
    if table is None or labels.dtype not in _TABLED or not is_eager(labels):
        return _gains(measure, labels if measure.takes_negative_labels else refuse_negative(labels, where))
    flat = labels.numpy().reshape(-1)
    real = _ALL_REAL if where is None else where.numpy().reshape(-1).view(np.uint8)
    found = np.empty(labels.shape)
    if load_kernel("gains_cpu.look_up")(flat, real, table, found.reshape(-1)):
        return torch.from_numpy(found)
    gains = _gains(measure, labels if measure.takes_negative_labels else refuse_negative(labels, where))
    load_kernel("gains_cpu.keep")(flat, real, gains.numpy().reshape(-1), table)
    return gains


_ALL_REAL = np.empty(0, np.uint8)


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


_ORACLE = rank_oracle("positional", _solve_flat, _explain, _solve_on_device, check_labels=False)
register_oracle(DiscountedGain, Positional, _ORACLE, default="ideal-tied")  # type: ignore[type-abstract]  # and all its subclasses
register_oracle(mWTA, Positional, _ORACLE, default="ideal-tied")  # DORM section 6.4
register_oracle(RR, Positional, _ORACLE, default="ideal-tied")
