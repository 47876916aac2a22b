"""The linear risk: values and gradients equal those of the loss, in every form of X, without a copy of it."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from solvers.examples import flat_lists, linear_risk, random_data

import rankstruct as rs
from rankstruct.solvers import LinearRisk, Risk
from rankstruct.solvers import risk as module

RNG = np.random.default_rng(0)
X, Y, OFFSETS = random_data(RNG, dimension=5, lists=6, longest=9)
OFFSETS = np.concatenate([OFFSETS[:3], OFFSETS[2:]])  # one empty list
WEIGHTS = RNG.random(7)
W = RNG.normal(size=5) * 3


@pytest.mark.parametrize("form", ["float64", "float32", "fortran", "csr64", "csr32"])
@pytest.mark.parametrize("by_term", [False, True])
@pytest.mark.parametrize("block", [None, 7])
def test_equals_the_loss_and_the_sum_of_its_terms(form, by_term, block, monkeypatch):
    if block:
        monkeypatch.setattr(module, "_BLOCK", block)
    given = np.where(np.abs(X) < 0.3, 0, X).astype(np.float32)
    features = {
        "float64": given.astype(float),
        "float32": given,
        "fortran": np.asfortranarray(given),
        "csr64": sp.csr_array(given.astype(float)),
        "csr32": sp.csr_array(given),
    }[form]
    risk = linear_risk(features, Y, OFFSETS, "AP", weights=WEIGHTS, by_term=by_term)
    assert isinstance(risk, Risk)
    assert risk.lists.features is features
    value, gradient = risk(W)

    w = torch.tensor(W, requires_grad=True)
    each = rs.StructuredHingeLoss("AP", reduction="none")(
        torch.tensor(given, dtype=torch.float64) @ w,
        torch.tensor(Y),
        offsets=torch.tensor(OFFSETS),
        weights=torch.tensor(WEIGHTS),
    )
    each.mean().backward()
    assert value == pytest.approx(each.mean().item(), rel=1e-12)
    np.testing.assert_allclose(gradient, w.grad.numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(risk.scores(W), given.astype(float) @ W, rtol=1e-12)

    values, gradients = risk.term_planes(W, np.arange(7))
    np.testing.assert_allclose(values, each.detach().numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gradients.mean(0), gradient, rtol=1e-10, atol=1e-12)
    some = np.array([4, 2, 0])
    np.testing.assert_allclose(risk.term_planes(W, some)[0], values[some], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(risk.term_planes(W, some)[1], gradients[some], rtol=1e-10, atol=1e-12)


def oracle(scores):
    return np.zeros(2), np.zeros(len(scores))


def test_an_oracle_of_the_wrong_shape():
    with pytest.raises(ValueError, match="oracle must return values"):
        LinearRisk(flat_lists(np.zeros((3, 1)), [0, 1, 2, 3]), oracle)(np.zeros(1))


@pytest.mark.parametrize("sparse", [False, True])
def test_float32_features_are_never_copied_whole(sparse):
    features = np.ones((80_000, 50), np.float32)
    features = sp.csr_array(features) if sparse else features
    size = 80_000 * 50 * 4
    risk = LinearRisk(
        flat_lists(features, np.arange(0, 80_001, 100)),
        lambda scores: (np.add.reduceat(scores, np.arange(0, 80_000, 100)), scores),
    )
    w = np.ones(50)
    risk(w)
    tracemalloc.start()
    risk(w)
    risk.term_planes(w, np.arange(800))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 2
