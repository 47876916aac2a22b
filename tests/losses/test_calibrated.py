"""RCR and JRC, against their formulas in NumPy. `test_all_losses` has masks, flat lists, weights, dtypes and the rest."""

import numpy as np
import pytest
import torch

from rankstruct.losses import JRCLoss, RCRLoss


def sigmoid(s):
    return 1 / (1 + np.exp(-s))


def by_hand(kind, s, t, r):
    """The formula, document by document."""
    p, n = sigmoid(s), len(s)
    entropy = np.mean([-t[i] * np.log(p[i]) - (1 - t[i]) * np.log(1 - p[i]) for i in range(n)])
    if kind is RCRLoss:
        ranked = -sum(t[i] * np.log(p[i] / p.sum()) for i in range(n)) / t.sum() if t.any() else 0.0
    else:
        u, v = np.exp(s / 2), np.exp(-s / 2)
        ranked = np.mean([-t[i] * np.log(u[i] / u.sum()) - (1 - t[i]) * np.log(v[i] / v.sum()) for i in range(n)])
    return (1 - r) * entropy + r * ranked


@pytest.mark.parametrize("kind", [RCRLoss, JRCLoss])
@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({}, lambda y: (y > 0).astype(float)),
        ({"min_relevant": 2}, lambda y: (y >= 2).astype(float)),
        ({"grades": 4}, lambda y: y / 3),
        ({"grades": 4, "target": "gain"}, lambda y: (2.0**y - 1) / 7),
    ],
)
def test_values_are_those_of_the_formula(kind, options, target):
    rng = np.random.default_rng(0)
    s, y = 3 * rng.normal(size=(6, 5)), rng.integers(0, 4, size=(6, 5))
    s[0, 1], y[1] = s[0, 0], 0  # a tie, and nothing relevant
    found = kind(ranking=0.3, **options)(torch.tensor(s), torch.tensor(y), reduction="none")
    np.testing.assert_allclose(
        found, [by_hand(kind, *each, 0.3) for each in zip(s, target(y), strict=True)], rtol=1e-12
    )


@pytest.mark.parametrize(("ranking", "slack"), [(0.0, 1e-12), (0.9, 0.05)])
def test_the_expected_rcr_is_nearly_least_at_the_true_probabilities(ranking, slack):
    wanted = torch.tensor([0.1, 0.3, 0.8], dtype=torch.float64)
    scores = wanted.logit().requires_grad_()
    draws = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3).double()
    chance = torch.where(draws > 0, wanted, 1 - wanted).prod(-1)
    values = RCRLoss(ranking=ranking, reduction="none")(scores.expand(8, 3), draws)
    (gradient,) = torch.autograd.grad((chance * values).sum(), scores)
    assert gradient.abs().max() < slack  # the division by T moves it a little


@pytest.mark.parametrize("kind", [RCRLoss, JRCLoss])
def test_gradients_and_curvature(kind):
    s = torch.tensor([[0.5, -1.0, 2.0, 0.0], [1.0, 1.0, -3.0, 0.2]], dtype=torch.float64, requires_grad=True)
    y, where = torch.tensor([[2, 1, 0, 0], [0, 0, 2, 1]]), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    loss = kind(grades=3, reduction="none")
    assert torch.autograd.gradcheck(lambda each: loss(each, y, where=where), (s,))
    hessian = torch.autograd.functional.hessian(lambda each: loss(each, y, where=where).sum(), s.detach())
    diagonal = hessian.reshape(8, 8).diagonal().reshape(2, 4)
    offsets = torch.tensor([0, 3, 7])
    found = loss.second_derivatives(s.detach()[where], y[where], offsets)
    torch.testing.assert_close(found, diagonal[where])


def test_options_that_contradict_or_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="ranking must be a finite number of at least 0 and at most 1"):
        RCRLoss(ranking=1.5)
    assert RCRLoss(ranking=np.float32(0.5)).ranking == 0.5
    with pytest.raises(ValueError, match="min_relevant is for binary relevance"):
        JRCLoss(grades=3, min_relevant=1)
    with pytest.raises(ValueError, match=r"labels must be grades from 0 to 1 \(grades= minus 1\)"):
        RCRLoss(grades=2)(torch.zeros(3), torch.tensor([0, 2, 1]))
