"""Scores in slices and scores of preferences."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rankstruct as rs


@pytest.mark.parametrize("size", [None, 1, 3, 7, 100])
@pytest.mark.parametrize("documents", [0, 1, 7])
@pytest.mark.parametrize("kind", ["tensor", "mapping", "sequence"])
def test_slices_change_nothing(size, documents, kind):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).double()
    features = torch.randn(documents, 3, dtype=torch.float64)
    inputs = {"tensor": features, "mapping": {"x": features}, "sequence": list(features)}[kind]

    def score(part):
        part = part["x"] if kind == "mapping" else part
        return model(torch.stack(part) if isinstance(part, list) and part else torch.as_tensor(part)).squeeze(-1)

    if kind == "sequence" and documents == 0:
        inputs = features  # nothing to stack
    found = rs.sliced_scores(score, inputs, size, model.parameters())
    expected = model(features).squeeze(-1)
    torch.testing.assert_close(found, expected)
    direction = torch.arange(documents, dtype=torch.float64)
    mine = torch.autograd.grad(found @ direction, list(model.parameters()))
    wanted = torch.autograd.grad(expected @ direction, list(model.parameters()))
    for each, other in zip(mine, wanted, strict=True):
        torch.testing.assert_close(each, other)


def test_sizes_that_make_no_slices_are_refused():
    with pytest.raises(ValueError, match="size must be at least 1"):
        rs.sliced_scores(torch.Tensor.sum, torch.zeros(3), 0)
    with pytest.raises(TypeError, match=r"needs parameters=, such as model.parameters\(\)"):
        rs.sliced_scores(torch.Tensor.sum, torch.zeros(3), 1)
    with pytest.raises(ValueError, match="as many documents"):
        rs.sliced_scores(torch.Tensor.sum, {"a": torch.zeros(3), "b": torch.zeros(2)}, 1)


@settings(deadline=None)
@given(st.lists(st.floats(-50, 0), min_size=4, max_size=4), st.floats(0.01, 5))
def test_two_responses_and_the_logistic_loss_are_dpo(numbers, beta):
    chosen, rejected, reference_chosen, reference_rejected = numbers
    scores = rs.preference_scores(
        torch.tensor([chosen, rejected], dtype=torch.float64),
        torch.tensor([reference_chosen, reference_rejected], dtype=torch.float64),
        beta,
    )
    margin = beta * ((chosen - reference_chosen) - (rejected - reference_rejected))
    expected = math.log1p(math.exp(-margin)) if margin > -700 else -margin
    assert float(rs.ranknet_loss(scores, torch.tensor([1, 0]))) == pytest.approx(expected, abs=1e-6, rel=1e-6)


def test_the_reference_takes_no_gradient():
    given, reference = torch.zeros(2, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    rs.preference_scores(given, reference, 0.5).sum().backward()
    assert reference.grad is None
    assert given.grad.tolist() == [[0.5] * 3] * 2
    torch.testing.assert_close(rs.preference_scores(given, None, 0.5), 0.5 * given)


@pytest.mark.parametrize("beta", [0, -1, math.inf, math.nan, "x"])
def test_what_preferences_refuse(beta):
    with pytest.raises(ValueError, match="beta must be a finite number above 0"):
        rs.preference_scores(torch.zeros(2), None, beta)
    with pytest.raises(ValueError, match="must have the shape of log_probability"):
        rs.preference_scores(torch.zeros(2), torch.zeros(3))
