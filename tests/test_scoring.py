"""Scores in slices and scores of preferences."""

import copy
import gc
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


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("kind", ["tensor", "mapping", "sequence"])
def test_inputs_that_need_a_gradient_get_one(size, kind):
    torch.manual_seed(0)
    encoder, head = torch.nn.Linear(2, 3).double(), torch.nn.Linear(3, 1).double()
    features, direction = torch.randn(7, 2, dtype=torch.float64), torch.arange(7.0, dtype=torch.float64)

    def score(part):
        part = part["x"] if kind == "mapping" else torch.stack(part) if isinstance(part, list) else part
        return head(part).squeeze(-1)

    def gradients(found):
        encoder.zero_grad(set_to_none=True)
        head.zero_grad(set_to_none=True)
        (found @ direction).backward()
        return [each.grad for each in (*encoder.parameters(), *head.parameters())]

    encoded = encoder(features)
    inputs = {"tensor": encoded, "mapping": {"x": encoded}, "sequence": list(encoded)}[kind]
    found = gradients(rs.sliced_scores(score, inputs, size, head.parameters()))
    torch.testing.assert_close(found, gradients(head(encoder(features)).squeeze(-1)))


def sliced_and_plain():
    """Scores of 9 documents in slices and at once, by two equal models."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).double()
    unused = torch.nn.Parameter(torch.ones(2))
    other, features = copy.deepcopy(model), torch.randn(9, 3, dtype=torch.float64)
    return model, rs.sliced_scores(model, features, 2, [*model.parameters(), unused]), unused, other, other(features)


def assert_same_gradients(model, other):
    for each, wanted in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(each.grad, wanted.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("hooked", [False, True])
def test_gradients_add_to_those_that_are_there(hooked):
    model, scores, unused, other, expected = sliced_and_plain()
    seen = []
    for each in (*model.parameters(), *other.parameters()):
        each.grad = torch.ones_like(each)
    if hooked:  # they are called once, with the gradient of all slices
        model[0].weight.register_hook(lambda grad: seen.append(grad) or 2 * grad)
        model[2].weight.register_post_accumulate_grad_hook(lambda weight: seen.append(weight.grad.clone()))
        other[0].weight.register_hook(lambda grad: 2 * grad)
    (scores.square().sum() + model[0].weight.sum()).backward()
    (expected.square().sum() + other[0].weight.sum()).backward()
    assert_same_gradients(model, other)
    assert unused.grad is None
    assert len(seen) == (2 if hooked else 0)


def test_gradients_that_are_asked_for_are_added_nowhere_else():
    model, scores, _, other, expected = sliced_and_plain()
    found = torch.autograd.grad(scores.sum(), [*model.parameters()], retain_graph=True)
    for each, wanted in zip(found, torch.autograd.grad(expected.sum(), [*other.parameters()]), strict=True):
        torch.testing.assert_close(each, wanted)
    assert all(each.grad is None for each in model.parameters())
    scores.sum().backward(inputs=[model[2].bias], retain_graph=True)
    assert float(model[2].bias.grad) == 9
    assert model[0].weight.grad is None


def test_gradients_that_share_their_memory_are_added_apart():
    """autograd hands out one tensor for both terms of a sum."""
    bias, other = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    scores = rs.sliced_scores(lambda part: part + bias + other, torch.zeros(6), 2, [bias, other])
    grads = torch.autograd.grad(scores @ torch.arange(6.0), [bias, other])
    assert [each.tolist() for each in grads] == [[6.0, 9.0]] * 2


def test_no_second_set_of_gradients_is_held():
    counts, weight = [], torch.nn.Parameter(torch.ones(7, 11))

    def score(part):
        tensors = (each for each in gc.get_objects() if type(each) in (torch.Tensor, torch.nn.Parameter))
        counts.append(sum(each.shape == weight.shape for each in tensors))
        return part @ weight.sum(-1)

    weight.grad = torch.zeros(7, 11)
    rs.sliced_scores(score, torch.randn(8, 7), 2, [weight]).sum().backward()
    assert counts == [counts[0]] * 8


def test_sizes_that_make_no_slices_are_refused():
    with pytest.raises(ValueError, match="size must be an integer from 1"):
        rs.sliced_scores(torch.Tensor.sum, torch.zeros(3), 0)
    with pytest.raises(TypeError, match=r"needs parameters= to differentiate, such as model.parameters\(\)"):
        rs.sliced_scores(torch.Tensor.sum, torch.zeros(3), 1)
    with pytest.raises(ValueError, match="the same number of documents"):
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
    assert float(rs.RankNetLoss()(scores, torch.tensor([1, 0]))) == pytest.approx(expected, abs=1e-6, rel=1e-6)


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
    with pytest.raises(TypeError, match=r"log_probability must be a torch.Tensor, got list; use torch.as_tensor"):
        rs.preference_scores([-1.0, -2.0], torch.zeros(2))
