"""Oracles of the positional map (DORM, ORM): a rank-two assignment problem, solved by its structure.

    maximise over rankings   sum_i ( c_i s_{r(i)} - a_i b_{r(i)} )

with the decay c of the map, the discount a and the gains b of the measure. Documents of one gain stay in score order. The
method is chosen list by list: sorting where c is proportional to a; a lattice programme for two gains and few documents;
the residual sweep otherwise, of the ranks up to the cut-off; SciPy's general assignment beyond 64 distinct gains.

Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures" (equations 20 to 22 for the references); Le and Smola,
"Direct Optimization of Ranking Measures", 2007.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from rankstruct.feature_maps import Positional
from rankstruct.lists import pad
from rankstruct.measures import RR, DiscountedGain, Measure, mWTA
from rankstruct.measures.ranked import is_relevant
from rankstruct.oracles.kernels import Answer
from rankstruct.oracles.kernels import positional_cpu as cpu
from rankstruct.oracles.kernels.flat import FlatLists, discount_table
from rankstruct.oracles.kernels.positional_reference import reference_direction
from rankstruct.oracles.kernels.threads import run_lists
from rankstruct.oracles.operators import define_operator
from rankstruct.oracles.registry import Oracle, register_oracle

_REFERENCES = {"ideal": cpu.IDEAL, "ideal-tied": cpu.IDEAL_TIED, "predicted": cpu.PREDICTED}


class _Method(NamedTuple):
    name: str
    cost: str


_METHODS = {
    cpu.PROPORTIONAL: _Method("sort by s - b a / c", "O(n log n)"),
    cpu.LATTICE: _Method("lattice programme over the two gains", "O(p m) after the sort"),
    cpu.SWEEP: _Method(
        "residual sweep of the first k ranks", "about O(n + k L^2) after the sort; k is n without a cut-off"
    ),
    cpu.TOO_MANY_CLASSES: _Method("general assignment (SciPy)", "O(n^3)"),
    cpu.RECIPROCAL: _Method("every rank of the highest-scored relevant document", "O(n + min(k, m) p) after the sort"),
}
_LOOPS = {
    cpu.PROPORTIONAL: cpu.proportional_lists,
    cpu.LATTICE: cpu.lattice_lists,
    cpu.SWEEP: cpu.sweep_lists,
    cpu.RECIPROCAL: cpu.reciprocal_lists,
}


def _answer(
    scores: Tensor,
    gains: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    decay: Tensor,
    weights: Tensor,
    least_cutoff: int,
    normalized: bool,
    reciprocal: bool,
    reference: str,
) -> tuple[Tensor, Tensor, Tensor]:
    # The sweep does not vectorise: tensors of another device make a round trip, one copy each way for the whole batch.
    # All in float64, so that one compiled loop serves every dtype: these are the largest ones.
    where, offsets = (None if mask is None else mask.cpu() for mask in (where, offsets))
    flat = FlatLists.of(scores.double().cpu(), gains.double().cpu(), where, offsets)
    task_loss, value, direction = _solve(
        flat, decay, weights, least_cutoff, normalized, reciprocal, _REFERENCES[reference]
    )
    return task_loss.to(scores), value.to(scores), direction.to(scores)


_operator = define_operator("positional", _answer)


def _reference(
    scores: Tensor,
    gains: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    decay: Tensor,
    weights: Tensor,
    least_cutoff: int,
    reciprocal: bool,
    reference: str,
) -> tuple[Tensor, Tensor, Tensor]:
    real = torch.ones(scores.shape, dtype=torch.bool, device=scores.device) if where is None else where
    rows = real
    if offsets is not None:
        bounds = offsets.to(scores.device)
        (scores, rows), (gains, _) = pad(scores, bounds), pad(gains, bounds)
    lists, size = scores.shape[:-1], scores.shape[-1]
    scores, gains, rows = (values.reshape(lists.numel(), size) for values in (scores, gains, rows))
    if scores.device.type == "cpu" and not bool((scores.isfinite() | ~rows).all()):
        raise ValueError("reference_scores must be finite")
    tables = decay.to(scores.device), weights.to(scores.device)
    direction = reference_direction(scores, gains, rows, *tables, least_cutoff, reciprocal, reference)
    direction = direction[rows] if offsets is not None else direction.view(real.shape)
    return direction.new_zeros(lists), direction.new_zeros(lists), direction


_reference_operator = define_operator("positional_reference", _reference)


def _solve(
    flat: FlatLists,
    decay: Tensor,
    weights: Tensor,
    least_cutoff: int,
    normalized: bool,
    reciprocal: bool,
    reference: int,
) -> Answer:
    a = discount_table(weights, flat.longest)
    documents, lists = flat.scores.shape[0], len(flat.bounds) - 1
    indices, numbers = np.empty((4, documents), np.int64), np.empty((2, documents))
    size, classes, cut, method = np.empty((4, lists), np.int64)
    batch = cpu.Batch(
        scores=flat.scores,
        bits=flat.bits,
        gains=flat.labels,
        gain_bits=flat.labels.view(np.uint64),
        where=flat.where,
        offsets=flat.bounds,
        decay=discount_table(decay, flat.longest),
        weights=a,
        cutoff=int(np.count_nonzero(a)),
        least_cutoff=least_cutoff,
        normalized=normalized,
        reciprocal=reciprocal,
        by_score=indices[0],
        by_gain=indices[1],
        rank=indices[2],
        group=indices[3],
        score=numbers[0],
        gain=numbers[1],
        size=size,
        classes=classes,
        cut=cut,
        method=method,
    )
    wrong = run_lists(lambda first, last: cpu.begin_lists(batch, first, last), flat.bounds)
    if wrong != -1 and flat.labels[wrong] < 0:
        raise ValueError(f"gains must be >= 0; {flat.place(wrong)} has gain {flat.labels[wrong]:g}")
    if wrong != -1:
        flat.refuse_score(wrong)
    for number in set(method.tolist()):
        if number == cpu.TOO_MANY_CLASSES:
            for index in np.flatnonzero(method == number):
                _assign(batch, int(index))
        elif number != cpu.NOTHING:
            loop = _LOOPS[number]
            run_lists(lambda first, last, loop=loop: loop(batch, first, last), flat.bounds)  # type: ignore[misc]
    answer, results = flat.empty_answer()
    run_lists(lambda first, last: cpu.score_lists(batch, first, last, reference, *results), flat.bounds)
    return answer


def _assign(batch: cpu.Batch, index: int) -> None:
    """One list by SciPy's general assignment, where there are too many distinct gains for anything better."""
    start, n, cut = batch.offsets[index], batch.size[index], batch.cut[index]
    here = slice(start, start + n)
    gains = batch.gain[here][batch.group[here]]
    weights = np.where(np.arange(n) < cut, batch.weights[:n], 0.0)
    cost = np.outer(batch.score[here], batch.decay[:n]) - np.outer(gains, weights)
    rows, columns = linear_sum_assignment(cost, maximize=True)
    batch.rank[batch.by_score[here][rows]] = columns


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
        # torch.func has no public way to ask.
        if any(map(torch._C._functorch.is_functorch_wrapped_tensor, tables)):
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
        assert isinstance(measure, DiscountedGain | mWTA)  # what is registered below
        weights = measure.unchecked_weights(size)
    return weights, feature_map.unchecked_weights(size, weights, measure.cutoff)


def _solve_discounted(
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    measure: DiscountedGain | mWTA,
    feature_map: Positional,
    reference: str,
    least_cutoff: int = 0,
) -> Answer:
    weights, decay = rank_tables(measure, feature_map, scores)
    gains, normalized = measure.document_gains(labels), type(measure).normalized
    return _operator(scores, gains, where, offsets, decay, weights, least_cutoff, normalized, False, reference)


def _solve_reciprocal(
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    measure: Measure,
    feature_map: Positional,
    reference: str,
) -> Answer:
    weights, decay = rank_tables(measure, feature_map, scores)
    gains = binary_gains(labels, measure)
    return _operator(scores, gains, where, offsets, decay, weights, 0, False, True, reference)


def binary_gains(labels: Tensor, measure: Measure) -> Tensor:
    """1 for a relevant document and 0 for another, float64; NaN where the label is not finite."""
    gains = is_relevant(labels, measure.min_relevant).double()
    return torch.where(torch.isfinite(labels), gains, torch.nan) if labels.dtype.is_floating_point else gains


def _prefer(
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    measure: Measure,
    feature_map: Positional,
    reference: str,
    least_cutoff: int = 0,
) -> Tensor:
    weights, decay = rank_tables(measure, feature_map, scores)
    reciprocal = isinstance(measure, RR)
    gains = binary_gains(labels, measure) if reciprocal else measure.document_gains(labels)  # type: ignore[attr-defined]
    lists = (scores, gains, where, offsets)
    return _reference_operator(*lists, decay, weights, least_cutoff, reciprocal, reference)[2]


def _explain_discounted(
    measure: DiscountedGain | mWTA, feature_map: Positional, list_size: int, grades: int
) -> _Method:
    a = measure.unchecked_weights(list_size).numpy()
    if isinstance(measure, mWTA):  # for the usual list, in which two grades are among the three highest
        a[mWTA.least_cutoff :] = 0
    c = feature_map.unchecked_weights(list_size, torch.from_numpy(a), measure.cutoff).numpy()
    proportional = bool((c * a[0] == a * c[0]).all() and c[0] > 0)
    pairs = (list_size // 2) ** 2
    return _METHODS[cpu.choose_method(list_size, grades, pairs, int(np.count_nonzero(a)), proportional)]


register_oracle(
    DiscountedGain,  # type: ignore[type-abstract]  # the oracle of all its subclasses
    Positional,
    Oracle(_solve_discounted, _explain_discounted, tuple(_REFERENCES), _prefer),
    default=True,
)
# DORM section 6.4.
register_oracle(
    mWTA,
    Positional,
    Oracle(
        partial(_solve_discounted, least_cutoff=mWTA.least_cutoff),
        _explain_discounted,
        tuple(_REFERENCES),
        partial(_prefer, least_cutoff=mWTA.least_cutoff),
    ),
    default=True,
)
register_oracle(
    RR, Positional, Oracle(_solve_reciprocal, lambda *_: _METHODS[cpu.RECIPROCAL], tuple(_REFERENCES), _prefer)
)
