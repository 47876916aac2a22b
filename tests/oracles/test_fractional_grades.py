"""Fractional grades: documents with the same label have bitwise equal gains anywhere in a tensor.

A vectorised 2^label may differ between the body of a tensor and its tail, and the oracles tell gains apart by ==.
"""

import numpy as np
import pytest
import torch
from brute_force import hinges

import rankstruct as rs

GRADES = (0.5, 1.5, 0.07, 2.83)
SIZES = range(1, 81)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lists", [1, 3])
@pytest.mark.parametrize("grade", GRADES)
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_a_list_of_one_grade_costs_nothing(grade, lists):
    losses = [
        rs.StructuredHingeLoss("nDCG@10", feature_map="positional"),
        rs.StructuredHingeLoss("mWTA"),
        rs.StructuredHingeLoss("nDCG@10"),
        rs.DirectLoss("DCG@5", feature_map="positional", side="both"),
        rs.SmoothLoss("nDCG@10"),
        rs.LambdaLoss("nDCG@10"),
        rs.ApproxNDCGLoss("nDCG@10"),
        rs.StructuredHingeLoss("diverse_nDCG@5"),
    ]
    generator = torch.Generator().manual_seed(0)
    for size in SIZES:
        scores = torch.randn(lists, size, generator=generator, dtype=torch.float64)
        labels = torch.full((lists, size), grade, dtype=torch.float64)
        diversity_groups = {"diversity_groups": torch.arange(size).expand(lists, size)}
        for loss in losses:
            assert loss(scores, labels, **(diversity_groups if loss.takes_groups else {})) == 0, (loss, size)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("measure", ["nDCG@10", "nDCG", "DCG@3", "nERU(d=0,half_life=3)"])
@pytest.mark.parametrize("grade", GRADES)
def test_one_fractional_grade_is_binary_relevance(grade, measure):
    """Under the pairwise map it is no second grade, and a normalised measure is that of labels 0 and 1."""
    generator = torch.Generator().manual_seed(1)
    for size in SIZES:
        scores = torch.randn(2, size, generator=generator, dtype=torch.float64)
        relevant = torch.rand(2, size, generator=generator) < 0.5
        found = rs.most_violated(scores, torch.where(relevant, grade, 0.0).double(), measure, feature_map="pairwise")
        if measure != "DCG@3" and not measure.startswith("nERU"):
            binary = rs.most_violated(scores, relevant, measure, feature_map="pairwise")
            torch.testing.assert_close(found.value, binary.value)


@pytest.mark.parametrize("many", [False, True], ids=["one list", "many in a tensor"])
@pytest.mark.parametrize("measure", ["nDCG@3", "DCG", "mWTA", "nDCG(discount='letor')@2"])
def test_fractional_grades_equal_enumeration(measure, many):
    rng = np.random.default_rng(2)
    parsed, feature_map = rs.parse_measure(measure), rs.Positional()
    for _ in range(10):
        lists = 30 if many else 1  # enough for every place in a vectorised loop
        scores, labels = rng.normal(size=(lists, 5)), rng.choice([0.0, 0.5, 1.5, 2.83], size=(lists, 5))
        for reference in ("ideal", "ideal-tied", "predicted"):
            found = rs.most_violated(
                torch.tensor(scores), torch.tensor(labels), parsed, feature_map=feature_map, reference=reference
            ).value
            expected = [hinges(parsed, feature_map, y, s)[reference] for s, y in zip(scores, labels, strict=True)]
            np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)
