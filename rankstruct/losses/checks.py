"""Validation of options and of the numbers in lists."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rankstruct.checks import check_integers, check_numbers
from rankstruct.lists import Lists, batch_first, check_entries, check_offsets, is_plain
from rankstruct.measures import Measure
from rankstruct.measures.ranked import is_relevant

_PADDING = -100  # torch's ignore_index
_MOST_GRADES = 2**20
_LONG = 2000  # documents of a list that may be a catalogue


def check_size(name: str, value: Any) -> None:
    """Raise ValueError for a number that overflows float32 or is none, or an integer that float64 does not represent."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        check_numbers(**{name: value})
        if abs(value) > torch.finfo(torch.float32).max:
            raise ValueError(f"{name} must be at most {torch.finfo(torch.float32).max:.3g} in size, got {value:g}")


def check_grades(grades: int) -> None:
    """Raise ValueError unless `grades`, the number of grades, each of which has a threshold, is an integer of at least 2."""
    check_integers(2, _MOST_GRADES, grades=grades)


def check_values(scores: Tensor, lists: Lists, signed: bool) -> Tensor:
    """The mask of real documents; on the CPU, where that is cheap, their values are checked.

    Negative labels raise ValueError unless `signed`.
    """
    given = (scores.detach(), lists.labels.detach(), lists.where, lists.offsets)
    # An operator, so that `torch.compile` does not inspect the values; its wrappers take as long as sorting a list.
    plain = all(each is None or is_plain(each) for each in given)
    return _check_plain(*given, signed) if plain else _checked_lists(*given, signed)


@torch.library.custom_op("rankstruct::checked_lists", mutates_args=())
def _checked_lists(
    scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None, signed: bool
) -> Tensor:
    return _check_plain(scores, labels, where, offsets, signed)


def _check_plain(scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None, signed: bool) -> Tensor:
    real = torch.ones(scores.shape, dtype=torch.bool, device=scores.device) if where is None else where.clone()
    if scores.device.type == "cpu":
        check_entries("scores", scores, real, -math.inf)
        check_entries("labels", labels, real, -math.inf if signed else 0.0)
        if signed:
            _warn_of_padding(labels, real)
    if offsets is not None:
        check_offsets(offsets, scores.shape[0])
    return real


def _warn_of_padding(labels: Tensor, real: Tensor) -> None:
    """Warn of -100 among labels >= 0 if labels may be negative: torch and others pad with it."""
    if labels.dtype.is_signed and labels.numel() and labels.amin() <= _PADDING:
        below = labels[real & (labels < 0)]
        if len(below) and bool((below == _PADDING).all()):
            warnings.warn(
                f"{len(below)} labels are {_PADDING} and no other is negative: this loss treats them as targets. If they are "
                "padding, mask it with where=labels >= 0",
                stacklevel=2,
            )


def warn_of_cutoff(measure: Measure, labels: Tensor, where: Tensor | None, offsets: Tensor | None) -> None:
    """Warn if most lists are long and have more relevant documents than the cut-off of the measure."""
    cutoff, long = measure.cutoff, labels.dim() > 0 and labels.shape[-1] >= _LONG
    if cutoff is None or not long:
        return
    relevant = is_relevant(labels, getattr(measure, "min_relevant", None))
    real = torch.ones_like(relevant) if where is None else where
    found, sizes = (each.cumsum(-1) for each in (relevant & real, real))
    if offsets is None:
        found, sizes = found[..., -1], sizes[..., -1]
    else:
        found, sizes = (torch.nn.functional.pad(each, (1, 0))[offsets].diff() for each in (found, sizes))
    neglects = (sizes >= _LONG) & (found > cutoff)
    if 2 * int(neglects.sum()) > neglects.numel():
        warnings.warn(
            f"most lists have more relevant documents than {measure.name} depends on, among thousands: its losses learn some "
            f"{cutoff} of each list and neglect the others, and with them held-out documents. "
            "StructuredHingeLoss('AP', reference='predicted') learns all; so does, with binary labels, a higher cut-off than "
            "relevant documents with the pairwise map, such as StructuredHingeLoss('nDCG@300', feature_map='pairwise')",
            stacklevel=2,
        )


@_checked_lists.register_fake
def _(scores: Tensor, labels: Tensor, where: Tensor | None, offsets: Tensor | None, signed: bool) -> Tensor:
    return scores.new_empty(scores.shape, dtype=torch.bool)


@_checked_lists.register_vmap
def _(
    info: Any,
    in_dims: Any,
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    signed: bool,
) -> Any:
    front = partial(batch_first, size=info.batch_size)
    if offsets is not None:
        offsets = offsets if in_dims[3] is None else offsets.movedim(in_dims[3], 0)[0]
        flat = front(scores, in_dims[0]), front(labels, in_dims[1])
        return torch.stack([check_values(s, Lists(y, None, offsets), signed) for s, y in zip(*flat, strict=True)]), 0
    where = None if where is None else front(where, in_dims[2])
    return check_values(front(scores, in_dims[0]), Lists(front(labels, in_dims[1]), where), signed), 0
