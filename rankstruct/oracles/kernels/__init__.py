"""The door to the kernels: compiled loops for CPU tensors, vectorised torch for the others, the same answers from both.

What comes in has been checked for types and shapes; values are checked here, where that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.lists import pad
from rankstruct.measures.ranked import is_relevant
from rankstruct.oracles.kernels.flat import FlatLists, discount_table
from rankstruct.oracles.kernels.threads import run_lists

_NO_NUMBERS = np.empty(0, np.float64)
NO_CUTOFF = 2**62

Answer = tuple[Tensor, Tensor, Tensor]


class Parameters(NamedTuple):
    """What an oracle knows of its measure.

    Attributes:
        cutoff: ranks beyond it earn nothing; larger than any list for none.
        weights: float64 `[longest list]`, the discount of each rank, 0 beyond the cut-off; empty where the measure is not
            discount times gain.
        gains: float64 `[documents]` flat, the gain of each document, 0 for an irrelevant one; empty as `weights`.
        normalized: whether the measure is divided by that of the best ranking.
    """

    cutoff: int
    weights: Any
    gains: Any
    normalized: bool


class Method(NamedTuple):
    """One way to find the most violated ranking, in its two implementations.

    Attributes:
        name: how it works, in a few words.
        cost: its cost for a list of n documents, p of them relevant and m not.
        compiled: the loop over lists, see `pairwise_cpu`.
        padded: `(scores, relevant, where, parameters)`, two-dimensional, to `(task_loss, value, direction)`.
    """

    name: str
    cost: str
    compiled: Callable[..., int]
    padded: Callable[[Tensor, Tensor, Tensor, Parameters], Answer]


class ListKernel(NamedTuple):
    """An oracle: from what is known of the measure and the longest list, the method; then the method's answers.

    Attributes:
        plan: `(parameters, longest list)` to the method and the parameters that it gets.
    """

    plan: Callable[[Parameters, int], tuple[Method, Parameters]]

    def __call__(
        self,
        scores: Tensor,
        labels: Tensor,
        where: Tensor | None,
        offsets: Tensor | None,
        min_relevant: float | None,
        cutoff: int | None,
        weights: Tensor | None,
        normalized: bool,
    ) -> Answer:
        """`(task_loss [...], value [...], direction [..., list_size])` with the dtype and device of `scores`.

        Arguments are those of `most_violated` and the fields of `Parameters`. With `weights`, which are on the CPU where they
        can be read at no cost, labels are gains; otherwise those from `min_relevant` on are relevant, or above 0 if None.

        Raises:
            ValueError: on the CPU, a real document's score or label is not finite, `offsets` are not in order, relevant
                documents have different gains. On other devices the loss and value of such a list are NaN.
            ValueError: weights are not a discount.
        """
        compute = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
        cutoff = NO_CUTOFF if cutoff is None else cutoff
        answer = self._on_cpu if scores.device.type == "cpu" else self._on_device
        task_loss, value, direction = answer(compute, labels, where, offsets, min_relevant, cutoff, weights, normalized)
        return task_loss.to(scores.dtype), value.to(scores.dtype), direction.to(scores.dtype)

    def _on_cpu(
        self,
        scores: Tensor,
        labels: Tensor,
        where: Tensor | None,
        offsets: Tensor | None,
        min_relevant: float | None,
        cutoff: int,
        weights: Tensor | None,
        normalized: bool,
    ) -> Answer:
        flat = FlatLists.of(scores, labels, where, offsets)
        relevant = is_relevant(flat.labels, min_relevant)
        table = _NO_NUMBERS if weights is None else discount_table(weights, flat.longest)
        method, parameters = self.plan(Parameters(cutoff, table, _NO_NUMBERS, normalized), flat.longest)
        if weights is not None:
            _check_binary(flat, relevant)
            parameters = parameters._replace(gains=flat.labels)
        inputs = (flat.scores, flat.bits, relevant.view(np.uint8), flat.where, flat.bounds)
        answer, results = flat.empty_answer()
        wrong = run_lists(lambda first, last: method.compiled(*inputs, first, last, parameters, *results), flat.bounds)
        if wrong != -1:
            flat.refuse_score(wrong)
        return answer

    def _on_device(
        self,
        scores: Tensor,
        labels: Tensor,
        where: Tensor | None,
        offsets: Tensor | None,
        min_relevant: float | None,
        cutoff: int,
        weights: Tensor | None,
        normalized: bool,
    ) -> Answer:
        if labels.dtype.is_floating_point:  # a label that is no number makes the list's value no number
            scores = torch.where(torch.isfinite(labels), scores, torch.nan)
        if where is None:
            where = torch.ones(labels.shape, dtype=torch.bool, device=labels.device)
        rows = where.shape
        if offsets is not None:
            offsets = offsets.to(scores.device)
            (scores, where), (labels, _) = pad(scores, offsets), pad(labels, offsets)
        size = scores.shape[-1]
        flat = (int(np.prod(scores.shape[:-1])), size)
        scores, labels, real = scores.reshape(flat), labels.reshape(flat), where.reshape(flat)
        relevant = is_relevant(labels, min_relevant)
        method, parameters = self.plan(
            Parameters(
                cutoff, _NO_NUMBERS if weights is None else discount_table(weights, size), _NO_NUMBERS, normalized
            ),
            size,
        )
        if weights is not None:
            highest = torch.where(real, labels, 0).amax(-1, keepdim=True) if size else labels[:, :1]
            mixed = (real & relevant & (labels != highest)).any(-1, keepdim=True)
            scores = scores.masked_fill(mixed, torch.nan)  # several gains: see `__call__`
            discounts = torch.as_tensor(parameters.weights, device=scores.device)
            parameters = parameters._replace(weights=discounts, gains=highest.double())
        task_loss, value, direction = method.padded(scores, relevant, real, parameters)
        if offsets is not None:
            return task_loss, value, direction[where]
        return task_loss.view(rows[:-1]), value.view(rows[:-1]), direction.view(rows)


def _check_binary(flat: FlatLists, relevant: np.ndarray) -> None:
    """Refuse relevant documents of different gains: the pairwise map takes binary relevance."""
    if flat.labels.size == 0 or not (relevant & (flat.labels != flat.labels.max())).any():
        return  # the usual case, at the cost of a comparison
    positions = np.flatnonzero(flat.real(relevant))
    gains = flat.labels[positions]
    if positions.size and (gains != gains[0]).any():
        other = int(np.argmax(gains != gains[0]))
        raise ValueError(
            "labels have more than one grade above zero, and the pairwise map takes binary relevance: "
            f"{flat.place(int(positions[0]))} has gain {gains[0]:g}, {flat.place(int(positions[other]))} has gain "
            f"{gains[other]:g}. Give min_relevant= to the measure, such as nDCG(min_relevant=1), or take the "
            "positional map, feature_map='positional'"
        )
