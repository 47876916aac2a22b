"""Oracles of the positional map (DORM, ORM): a rank-two assignment problem, solved by its structure.

    maximise over rankings   sum_i ( c_i s_{r(i)} - a_i b_{r(i)} )

with the decay c of the map, the discount a and the gains b of the measure. Documents of one gain stay in score order. The
method is chosen list by list: sorting where c is proportional to a; a programme over counts for a cut-off; a lattice
programme for two gains; the residual sweep otherwise; SciPy's general assignment beyond 64 distinct gains.

Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures" (equations 20 to 22 for the references); Le and Smola,
"Direct Optimization of Ranking Measures", 2007.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from rankstruct.feature_maps import Positional
from rankstruct.lists import pad
from rankstruct.measures import RR, DiscountedGain, Measure
from rankstruct.oracles.kernels import NO_CUTOFF, Answer, relevance
from rankstruct.oracles.kernels import positional_cpu as cpu
from rankstruct.oracles.kernels.flat import FlatLists, discount_table
from rankstruct.oracles.kernels.positional_reference import reference_direction
from rankstruct.oracles.kernels.threads import run_lists
from rankstruct.oracles.operators import register_lists
from rankstruct.oracles.registry import Oracle, register_oracle

_REFERENCES = {"ideal": cpu.IDEAL, "ideal-tied": cpu.IDEAL_TIED, "predicted": cpu.PREDICTED}


class _Method(NamedTuple):
    name: str
    cost: str


_METHODS = {
    cpu.PROPORTIONAL: _Method("sort by s - b a / c", "O(n log n)"),
    cpu.COUNTS: _Method(
        "programme over how many documents of each of L gains stand in the first k ranks",
        "O(n k + C(k + L, L) k L) after the sort",
    ),
    cpu.LATTICE: _Method("lattice programme over the two gains", "O(p m) after the sort"),
    cpu.SWEEP: _Method("residual sweep from a multilevel start", "about O(n L^2) after the sort"),
    cpu.TOO_MANY_CLASSES: _Method("general assignment (SciPy)", "O(n^3)"),
}
_RECIPROCAL = _Method("every rank of the highest-scored relevant document", "O(n + min(k, m) p) after the sort")


@torch.library.custom_op("rankstruct::positional", mutates_args=())
def _operator(
    scores: Tensor,
    gains: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    decay: Tensor,
    weights: Tensor | None,
    cutoff: int | None,
    normalized: bool,
    reference: str,
) -> tuple[Tensor, Tensor, Tensor]:
    # The sweep does not vectorise: tensors of another device make a round trip, one copy each way for the whole batch.
    # All in float64, so that one compiled loop serves every dtype: these are the largest ones.
    where, offsets = (None if mask is None else mask.cpu() for mask in (where, offsets))
    flat = FlatLists.of(scores.double().cpu(), gains.double().cpu(), where, offsets)
    task_loss, value, direction = _solve(flat, decay, weights, cutoff, normalized, _REFERENCES[reference])
    return task_loss.to(scores), value.to(scores), direction.to(scores)


register_lists(_operator)


@torch.library.custom_op("rankstruct::positional_reference", mutates_args=())
def _reference_operator(
    scores: Tensor,
    gains: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    decay: Tensor,
    weights: Tensor | None,
    reference: str,
) -> tuple[Tensor, Tensor, Tensor]:
    real = torch.ones(scores.shape, dtype=torch.bool, device=scores.device) if where is None else where
    padded = real
    if offsets is not None:
        bounds = offsets.to(scores.device)
        (scores, padded), (gains, _) = pad(scores, bounds), pad(gains, bounds)
    lists, size = scores.shape[:-1], scores.shape[-1]
    scores, gains, rows = (t.reshape(lists.numel(), size) for t in (scores, gains, padded))
    if scores.device.type == "cpu" and not bool((scores.isfinite() | ~rows).all()):
        raise ValueError("reference_scores must be finite")
    weights = None if weights is None else weights.to(scores.device)
    direction = reference_direction(scores, gains, rows, decay.to(scores.device), weights, reference)
    direction = direction[rows] if offsets is not None else direction.view(real.shape)
    return direction.new_zeros(lists), direction.new_zeros(lists), direction


register_lists(_reference_operator)


def _solve(
    flat: FlatLists, decay: Tensor, weights: Tensor | None, cutoff: int | None, normalized: bool, reference: int
) -> Answer:
    if (flat.labels < 0).any() and flat.real(flat.labels < 0).any():
        at = int(np.flatnonzero(flat.real(flat.labels < 0))[0])
        raise ValueError(f"gains must be >= 0; {flat.place(at)} has gain {flat.labels[at]:g}")
    c = discount_table(decay, flat.longest)
    is_reciprocal = weights is None
    a = c if weights is None else discount_table(weights, flat.longest)
    k = (NO_CUTOFF if cutoff is None else cutoff) if is_reciprocal else int(np.count_nonzero(a))
    lists = (flat.scores, flat.bits, flat.labels, flat.labels.view(np.uint64), flat.where, flat.bounds)
    rank = np.empty(flat.scores.shape[0], np.int64)
    kept = np.empty((2, flat.scores.shape[0]), np.int64)
    unsolved = np.zeros(len(flat.bounds) - 1, np.bool_)
    argmax = cpu.reciprocal_ranks if is_reciprocal else cpu.discounted_ranks
    wrong = run_lists(
        lambda first, last: argmax(*lists, first, last, c, a, k, normalized, rank, unsolved, kept), flat.bounds
    )
    if wrong != -1:
        flat.refuse_score(wrong)
    for index in np.flatnonzero(unsolved):
        _assign(flat, int(index), c, a, normalized, rank)
    answer, results = flat.empty_answer()
    run_lists(
        lambda first, last: cpu.score_lists(
            flat.scores,
            flat.labels,
            flat.bounds,
            first,
            last,
            c,
            a,
            k,
            normalized,
            is_reciprocal,
            reference,
            rank,
            kept,
            *results,
        ),
        flat.bounds,
    )
    return answer


def _assign(flat: FlatLists, index: int, c: np.ndarray, a: np.ndarray, normalized: bool, rank: np.ndarray) -> None:
    """One list by SciPy's general assignment, where there are too many distinct gains for anything better."""
    start, stop = flat.bounds[index : index + 2]
    documents = np.arange(start, stop)
    if flat.where.size:
        documents = documents[flat.where[start:stop] == 1]
    n = len(documents)
    gains = flat.labels[documents]
    if normalized:
        gains = gains / (a[:n] @ np.sort(gains)[::-1])
    scores = flat.scores[documents].astype(np.float64)
    cost = np.outer(scores - scores.max(), c[:n]) - np.outer(gains, a[:n])
    rows, columns = linear_sum_assignment(cost, maximize=True)
    rank[documents[rows]] = columns


def _solve_discounted(
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    measure: DiscountedGain,
    feature_map: Positional,
    reference: str,
) -> Answer:
    gains, decay, weights = _discounted(scores, labels, measure, feature_map)
    return _operator(scores, gains, where, offsets, decay, weights, None, type(measure).normalized, reference)


def _prefer_discounted(
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    measure: DiscountedGain,
    feature_map: Positional,
    reference: str,
) -> Tensor:
    gains, decay, weights = _discounted(scores, labels, measure, feature_map)
    return _reference_operator(scores, gains, where, offsets, decay, weights, reference)[2]


def _discounted(
    scores: Tensor, labels: Tensor, measure: DiscountedGain, feature_map: Positional
) -> tuple[Tensor, Tensor, Tensor]:
    """Gains of the documents, decays and discounts of the ranks."""
    size = max(scores.shape[-1], 1)
    weights = measure.unchecked_weights(size)
    return measure.document_gains(labels), feature_map.unchecked_weights(size, weights, measure.cutoff), weights


def _solve_reciprocal(
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    measure: Measure,
    feature_map: Positional,
    reference: str,
) -> Answer:
    gains, decay = _reciprocal(scores, labels, measure, feature_map)
    return _operator(scores, gains, where, offsets, decay, None, measure.cutoff, False, reference)


def _prefer_reciprocal(
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    measure: Measure,
    feature_map: Positional,
    reference: str,
) -> Tensor:
    gains, decay = _reciprocal(scores, labels, measure, feature_map)
    return _reference_operator(scores, gains, where, offsets, decay, None, reference)[2]


def _reciprocal(scores: Tensor, labels: Tensor, measure: Measure, feature_map: Positional) -> tuple[Tensor, Tensor]:
    """1 for the relevant documents, and the decays of the ranks."""
    size = max(scores.shape[-1], 1)
    ranks = torch.arange(1, size + 1, dtype=torch.float64)
    weights = 1.0 / ranks if measure.cutoff is None else torch.where(ranks <= measure.cutoff, 1.0 / ranks, 0.0)
    decay = feature_map.unchecked_weights(size, weights, measure.cutoff)
    gains = relevance(labels, measure.min_relevant).double()
    return torch.where(torch.isfinite(labels), gains, torch.nan) if labels.dtype.is_floating_point else gains, decay


def _explain_discounted(measure: DiscountedGain, feature_map: Positional, list_size: int, grades: int) -> _Method:
    a = measure.position_weights(list_size).numpy()
    c = feature_map.unchecked_weights(list_size, torch.from_numpy(a), measure.cutoff).numpy()
    proportional = bool((c * a[0] == a * c[0]).all() and c[0] > 0)
    pairs = (list_size // 2) ** 2
    return _METHODS[cpu.choose_method(list_size, grades, pairs, int(np.count_nonzero(a)), proportional)]


register_oracle(
    DiscountedGain,  # type: ignore[type-abstract]  # the oracle of all its subclasses
    Positional,
    Oracle(_solve_discounted, _explain_discounted, tuple(_REFERENCES), _prefer_discounted),
    default=True,
)
register_oracle(
    RR,
    Positional,
    Oracle(_solve_reciprocal, lambda *_: _RECIPROCAL, tuple(_REFERENCES), _prefer_reciprocal),
)
