"""Scores as large and as small as their dtype holds: losses and gradients are finite, or an error says what is too large."""

import re

import pytest
import torch
from losses.test_all_losses import GROUPS, LOSSES, both_ways, case

import rankstruct as rs
from rankstruct import losses

#: With small and large units of the scores, by which they are divided.
UNITS = [
    *((f"Softmax-{t}", case(rs.SoftmaxLoss, "share", temperature=t)) for t in (0.05, 20.0)),
    ("Softmax-unique-0.05", case(rs.SoftmaxLoss, temperature=0.05, against="lower")),
    ("SL@K-0.1", case(losses.TopKSoftmaxLoss, 4, 0.1, 0.1, held=True)),
    ("BSL-0.1", case(losses.BilateralSoftmaxLoss, 0.1, 0.2)),
    ("NeuralNDCG-0.1-scaled", case(rs.NeuralNDCGLoss, temperature=0.1, scalings=2)),
    ("NeuralNDCG-20-scaled", case(rs.NeuralNDCGLoss, temperature=20.0, scalings=2)),
    ("ApproxNDCG-0.001", case(rs.ApproxNDCGLoss, temperature=0.001)),
    ("RankNet-20", case(rs.RankNetLoss, 20.0)),
]
CASES = [*LOSSES, *UNITS]
#: Losses of at most 1, which no score makes larger.
BOUNDED = {
    name
    for name, _ in CASES
    if re.match("NeuralNDCG|ApproxNDCG|ApproxMRR|SmoothAP|FidelityLoss|Smooth-|SoftRank|Lambda-zero", name)
}
SIZES = {torch.float32: (1e-45, 1e19, 1e38, 3.4e38), torch.float64: (5e-324, 1e154, 1.7e308)}


def extreme_lists(dtype):
    """Scores and labels of lists: signs, a few large ones, all large; labels that differ, and equal ones, which cost nothing."""
    drawn = torch.randn(6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.randint(0, 3, drawn.shape, generator=torch.Generator().manual_seed(1))
    labels[4], labels[5] = 0, 1
    shapes = drawn.sign(), (drawn > 1).double(), drawn / drawn.abs().max(), torch.ones_like(drawn)
    for size in SIZES[dtype]:
        for shape in shapes:
            yield (shape * size).to(dtype), labels


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "its"), CASES, ids=[name for name, _ in CASES])
@pytest.mark.parametrize("dtype", SIZES, ids=["float32", "float64"])
def test_extreme_scores_are_finite_or_a_named_error(name, its, dtype):
    loss = its.make(reduction="none")
    for scores, labels in extreme_lists(dtype):
        for rows in (slice(0, 4), slice(4, 6)):
            refused = None
            try:
                value, slope = both_ways(loss, scores[rows], labels[rows], **its.groups(GROUPS[rows, :8]))
            except ValueError as error:
                refused = str(error)
            if refused is not None:
                assert re.search("too large|too far|must be finite; document .* is -?inf", refused)
                continue
            assert value.isfinite().all()
            assert slope.isfinite().all()
            if name in BOUNDED:
                assert (value >= -1e-6).all()
                assert (value <= 1 + 1e-6).all()


@pytest.mark.parametrize("dtype", SIZES, ids=["float32", "float64"])
def test_what_is_bounded_needs_no_error(dtype):
    for name in (
        "ApproxNDCG",
        "SmoothAP",
        "NeuralNDCG@3-scaled",
        "NeuralNDCG-0.1-scaled",
        "NeuralNDCG-20-scaled",
        "Lambda-zero-one",
    ):
        loss = dict(CASES)[name].make(reduction="none")
        for scores, labels in extreme_lists(dtype):
            value, slope = both_ways(loss, scores, labels)
            assert ((value >= -1e-6) & (value <= 1 + 1e-6)).all()
            assert slope.isfinite().all()
