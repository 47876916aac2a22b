"""Kernels of the feature maps that see relevant and irrelevant documents alone: pairwise and first-relevant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.kernels.dispatch import Answer, FlatLists, PaddedLists, define_kernel, discount_table, load_kernel
from rankstruct.measures.ranked import is_relevant

NO_NUMBERS = np.empty(0, np.float64)
NO_CUTOFF = 2**62
NOT_SORTED = np.empty(0, np.int64)  # for the loops to do


class Parameters(NamedTuple):
    """What a kernel knows beside the lists.

    Attributes:
        cutoff: ranks beyond it earn nothing; larger than any list for none.
        weights: float64 `[longest list]`, the discount of each rank, 0 beyond the cut-off; empty where the measure is not
            discount times gain.
        gains: float64 `[documents]` flat, the gain of each document, 0 for an irrelevant one; empty as `weights`.
        normalized: whether the measure is divided by that of the best ranking.
        predicted: whether the reference is the ranking that the chosen scores prefer, not the ideal one.
        chosen: float64 `[documents]` flat, the scores that choose it, and `chosen_bits`, the same memory as unsigned integers;
            empty where they are the scores themselves.
    """

    cutoff: int
    weights: Any
    gains: Any = NO_NUMBERS
    normalized: bool = False
    predicted: bool = False
    chosen: Any = NO_NUMBERS
    chosen_bits: Any = NO_NUMBERS


class Method(NamedTuple):
    """One way to find the most violated ranking, in its two implementations.

    Attributes:
        name: how it works, in a few words.
        cost: its cost for a list of n documents, p of them relevant and m not.
        compiled: the loop over lists, as `load_kernel` takes it; see `pairwise_cpu`.
        padded: the twin, `(PaddedLists, relevant, Parameters)` to the answer.
    """

    name: str
    cost: str
    compiled: str
    padded: str


Plan = Callable[[Parameters, int], tuple[Method, Parameters]]


def binary_kernel(name: str, plan: Plan) -> Callable[..., Answer]:
    """The operator of a plan: from what is known of the measure and the longest list, the method and what it gets.

    With `weights`, which are on the CPU where they can be read at no cost, labels are gains; otherwise those from
    `min_relevant` on are relevant, or above 0 if None.
    """

    def flat(
        lists: FlatLists,
        results: tuple[np.ndarray, ...],
        min_relevant: float | None,
        cutoff: int | None,
        weights: Tensor | None,
        normalized: bool,
        predicted: bool,
    ) -> int:
        relevant, gains = is_relevant(lists.labels, min_relevant), NO_NUMBERS
        table = _table(weights, lists.longest)
        if weights is not None:
            gains = lists.labels
            _check_one_gain(lists, relevant)
        cutoff = NO_CUTOFF if cutoff is None else cutoff
        parameters = Parameters(cutoff, table, gains, normalized, predicted, *_chosen(lists))
        return _run(*plan(parameters, lists.longest), lists, relevant, results)

    def padded(
        lists: PaddedLists,
        min_relevant: float | None,
        cutoff: int | None,
        weights: Tensor | None,
        normalized: bool,
        predicted: bool,
    ) -> Answer:
        size = lists.scores.shape[-1]
        cutoff = NO_CUTOFF if cutoff is None else cutoff
        parameters = Parameters(cutoff, _table(weights, size), NO_NUMBERS, normalized, predicted)
        method, parameters = plan(parameters, size)
        relevant = is_relevant(lists.labels, min_relevant)
        solve = load_kernel(method.padded)
        if weights is None:
            return solve(lists, relevant, parameters)
        labels = lists.labels
        highest = torch.where(lists.where, labels, 0).amax(-1, keepdim=True)
        mixed = (lists.where & relevant & (labels != highest)).any(-1)
        discounts = torch.as_tensor(parameters.weights, device=labels.device)
        parameters = parameters._replace(weights=discounts, gains=highest.double())
        task_loss, value, direction = solve(lists, relevant, parameters)
        # Relevant documents of several gains, which the CPU refuses.
        return task_loss.masked_fill(mixed, torch.nan), value.masked_fill(mixed, torch.nan), direction

    schema = "float? min_relevant, SymInt? cutoff, Tensor? weights, bool normalized, bool predicted"
    return define_kernel(name, schema, flat, padded)


def fixed_kernel(name: str, schema: str, method: Method, kind: Callable[..., Any]) -> Callable[..., Answer]:
    """The operator of one method, whatever the lists are.

    Args:
        name: of the operator.
        schema: of what it takes beside the lists and `min_relevant`, from which on documents are relevant, or above 0 if None.
        method: how the most violated ranking is found.
        kind: makes what the method gets of these arguments, then of `chosen` and `chosen_bits`, as `Parameters` has them; the
            padded twin is given none.
    """

    def flat(lists: FlatLists, results: tuple[np.ndarray, ...], min_relevant: float | None, *options: Any) -> int:
        relevant = is_relevant(lists.labels, min_relevant)
        return _run(method, kind(*options, *_chosen(lists)), lists, relevant, results)

    def padded(lists: PaddedLists, min_relevant: float | None, *options: Any) -> Answer:
        return load_kernel(method.padded)(lists, is_relevant(lists.labels, min_relevant), kind(*options))

    return define_kernel(name, f"float? min_relevant, {schema}", flat, padded)


def grades_kernel(name: str, schema: str, prepare: Callable[..., tuple[Method, Any]]) -> Callable[..., Answer]:
    """The operator of a method at each of `thresholds` `[T]` of the labels, summed with their `weights` `[T]`, both float64.

    Documents whose label is a threshold or more are relevant there. On the CPU a list is sorted once.

    Args:
        name: of the operator.
        schema: of what it takes beside the lists, the thresholds and their weights.
        prepare: makes the method and what it gets of the longest list's size and these arguments, then of `chosen` and
            `chosen_bits`, as `Parameters` has them; the padded twin is given none.
    """

    def flat(
        lists: FlatLists, results: tuple[np.ndarray, ...], thresholds: Tensor, weights: Tensor, *options: Any
    ) -> int:
        method, parameters = prepare(lists.longest, *options, *_chosen(lists))
        order, sort = np.empty(lists.scores.shape[0], np.int64), load_kernel("pairwise_cpu.order_lists")
        lists.run(lambda first, last: sort(lists.bits, lists.where, lists.bounds, first, last, order))
        labels, shares = lists.labels.astype(np.float64, copy=False), tuple(np.empty_like(result) for result in results)
        for result in results:
            result[:] = 0.0
        for threshold, weight in zip(thresholds.tolist(), weights.tolist(), strict=True):
            refuse_scores(lists, _run(method, parameters, lists, labels >= threshold, shares, order))
            with np.errstate(over="ignore", invalid="ignore"):  # which the loss refuses
                for result, share in zip(results, shares, strict=True):
                    result += share if weight == 1.0 else weight * share
        return -1

    def padded(lists: PaddedLists, thresholds: Tensor, weights: Tensor, *options: Any) -> Answer:
        method, parameters = prepare(lists.scores.shape[-1], *options)
        return solve_padded_grades(method.padded, parameters, lists, thresholds, weights)

    return define_kernel(f"{name}_grades", f"Tensor thresholds, Tensor weights, {schema}", flat, padded)


def solve_padded_grades(solve: str, parameters: Any, lists: PaddedLists, thresholds: Tensor, weights: Tensor) -> Answer:
    """What a method's twin finds at each threshold, each with a copy of the lists, summed with their weights."""
    count, device = thresholds.shape[0], lists.scores.device
    if count == 0:
        nothing = lists.scores.new_zeros(lists.scores.shape[0])
        return nothing, nothing.clone(), torch.zeros_like(lists.scores)
    reached = lists.labels >= thresholds.to(device).view(-1, 1, 1)
    scores, labels, where = (each.repeat(count, 1) for each in lists[:3])
    many = PaddedLists(scores, labels, where, None if lists.chosen is None else lists.chosen.repeat(count, 1))
    answers = load_kernel(solve)(many, reached.flatten(0, 1), parameters)
    # Not a product of matrices, which may be rounded to fewer digits.
    shares = (each.unflatten(0, (count, -1)) for each in answers)
    task_loss, value, direction = (
        (each * weights.to(device).view(-1, *[1] * (each.dim() - 1))).sum(0) for each in shares
    )
    return task_loss, value, direction


def refuse_scores(lists: FlatLists, wrong: int) -> None:
    """Raise ValueError for the score that a loop stumbled over, whatever its label, which may be below 0 here; -1 is none."""
    if wrong != -1:
        lists._replace(labels=np.zeros_like(lists.labels)).refuse(wrong)


def _chosen(lists: FlatLists) -> tuple[np.ndarray, np.ndarray]:
    """The scores that choose the reference, and the same memory as unsigned integers."""
    return lists.chosen, lists.chosen.view(lists.bits.dtype)


def _run(
    method: Method,
    parameters: Any,
    lists: FlatLists,
    relevant: np.ndarray,
    results: Sequence[np.ndarray],
    order: np.ndarray = NOT_SORTED,
) -> int:
    inputs = (lists.scores, lists.bits, order, relevant.view(np.uint8), lists.where, lists.bounds)
    loop = load_kernel(method.compiled)
    return lists.run(lambda first, last: loop(*inputs, first, last, parameters, *results))


def _table(weights: Tensor | None, longest: int) -> np.ndarray:
    return NO_NUMBERS if weights is None else discount_table(weights, longest)


def _check_one_gain(lists: FlatLists, relevant: np.ndarray) -> None:
    """Refuse relevant documents of different gains: these maps take binary relevance."""
    labels = lists.labels
    if labels.size == 0 or not (relevant & (labels != labels.max())).any():
        return  # the usual case, at the cost of a comparison
    positions = np.flatnonzero(lists.real(relevant))
    gains = labels[positions]
    if positions.size and (gains != gains[0]).any():
        other = int(np.argmax(gains != gains[0]))
        raise ValueError(
            "labels have more than one grade above zero, and the pairwise map takes binary relevance: "
            f"{lists.place(int(positions[0]))} has gain {gains[0]:g}, {lists.place(int(positions[other]))} has gain "
            f"{gains[other]:g}. Give min_relevant= to the measure, such as nDCG(min_relevant=1), or take the "
            "positional map, feature_map='positional'"
        )
