"""Measures of the exposure of documents under a Plackett-Luce policy."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rankstruct.lists import check_lists
from rankstruct.losses import expected_exposure, target_exposure
from rankstruct.measures import Measure

__all__ = ["ExposureTerms", "measure_exposure"]


class ExposureTerms(NamedTuple):
    """Result of `measure_exposure`: one value per list, `[...]` each.

    >>> _ = torch.manual_seed(0)
    >>> terms = measure_exposure(torch.tensor([9.0, 0.0, -9.0]), torch.tensor([2, 1, 0]))
    >>> terms._fields
    ('distance', 'disparity', 'relevance')
    """

    distance: Tensor
    disparity: Tensor
    relevance: Tensor


@torch.no_grad()
def measure_exposure(
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None = None,
    *,
    measure: str | Measure = "nDCG",
    samples: int = 256,
) -> ExposureTerms:
    """Measure whether a Plackett-Luce policy gives documents of equal gain equal exposure, without bias from sampling.

    With e the exposures of the documents and e* their targets (`expected_exposure`, `target_exposure`): the distance
    sum_d (e_d - e*_d)^2 (EE-L), which is the disparity sum_d e_d^2 (EE-D, high if always the same documents are seen) minus twice
    the relevance sum_d e_d e*_d (EE-R), plus a constant of the list.

    Args:
        scores, labels: `[..., list_size]`; where: bool, True for a real document.
        measure: as in `expected_exposure`; its discount is the browsing model, geometric for `"nERU(d=0,half_life=2)"`.
        samples: number of rankings sampled per list, at least 2.

    Returns:
        `distance`, `disparity` and `relevance`, `[...]` each.

    Raises:
        TypeError, ValueError: wrong types or shapes; a measure without discount and gains; samples below 2.

    Source: Diaz, Mitra, Ekstrand, Biega, Carterette, CIKM 2020.

    >>> _ = torch.manual_seed(0)
    >>> labels = torch.tensor([1, 1, 0])
    >>> for scores in (torch.tensor([9.0, -9.0, -99.0]), torch.tensor([9.0, 9.0, -99.0])):  # the same first, and fair
    ...     measure_exposure(scores, labels, samples=10_000).distance.round(decimals=2)
    tensor(0.0700)
    tensor(0.)
    """
    check_lists(scores, labels, where)
    if samples < 2:
        raise ValueError(f"samples must be at least 2, since they are split into two halves, got {samples}")
    halves = (samples + 1) // 2, samples // 2
    one, other = (expected_exposure(scores, where, measure=measure, samples=half) for half in halves)
    wanted = target_exposure(labels, where, measure=measure).to(scores.dtype)
    spread, agreed, constant = (each.sum(-1) for each in (one * other, (one + other) / 2 * wanted, wanted.square()))
    return ExposureTerms(spread - 2 * agreed + constant, spread, agreed)
