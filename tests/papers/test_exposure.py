"""Measures of exposure, against an enumeration of the rankings."""

import itertools
import math

import pytest
import torch
from brute_force import probability

import rankstruct as rs
from papers.exposure import measure_exposure
from rankstruct.measures import parse_measure


@pytest.mark.parametrize("measure", ["nDCG", "nDCG@2", "nERU(d=0,half_life=2)"])
def test_exposure_is_measured_as_the_enumeration_says(measure):
    """Fractional grades that tie, padding in another list."""
    scores = torch.tensor([[0.5, 0.0, -0.4, 0.2], [1.0, 0.3, math.nan, math.nan]], dtype=torch.float64)
    labels = torch.tensor([[0.1, 1.5, 0.1, 1.5], [1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    where = ~scores.isnan()
    torch.manual_seed(3)
    found = measure_exposure(scores, labels, where, measure=measure, samples=200_000)
    wanted = rs.losses.target_exposure(labels, where, measure=measure)
    discounts = parse_measure(measure).position_weights(4)
    for row, size in enumerate((4, 2)):
        exposure = torch.zeros(4, dtype=torch.float64)
        for order in itertools.permutations(range(size)):
            exposure[list(order)] += probability(order, scores[row, :size]) * discounts[:size]
        goal = wanted[row]
        exact = ((exposure - goal) ** 2).sum(), (exposure**2).sum(), (exposure * goal).sum()
        for value, it in zip(found, exact, strict=True):
            assert value[row].item() == pytest.approx(it.item(), abs=0.01)
    with pytest.raises(ValueError, match="samples must be at least 2"):
        measure_exposure(scores, labels, where, samples=1)
