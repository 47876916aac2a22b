"""SmoothGrad against its definition, its limit and its gradient."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rankstruct as rs
from rankstruct.losses import smooth


def by_definition(scores, labels, a, normalized, sigma, gain):
    """One list, with loops."""
    gains = [gain(y) for y in labels]
    best = sum(w * g for w, g in zip(a, sorted(gains, reverse=True), strict=True))
    if best == 0 or a[0] == a[-1] or len(set(gains)) == 1:
        return 0.0
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    total = 0.0
    for j, at in enumerate(order):
        near = [math.exp(-((s - scores[at]) ** 2) / (2 * sigma**2)) for s in scores]
        total += a[j] * sum(g * h for g, h in zip(gains, near, strict=True)) / sum(near)
    return 1 - total / best if normalized else best - total


MEASURES = {
    "nDCG": (lambda n: [1 / math.log2(2 + i) for i in range(n)], True, lambda y: 2**y - 1),
    "nDCG@3": (lambda n: [1 / math.log2(2 + i) if i < 3 else 0.0 for i in range(n)], True, lambda y: 2**y - 1),
    "DCG@2": (lambda n: [1 / math.log2(2 + i) if i < 2 else 0.0 for i in range(n)], False, lambda y: 2**y - 1),
    "P@2": (lambda n: [0.5 if i < 2 else 0.0 for i in range(n)], False, lambda y: float(y > 0)),
    "WTA": (lambda n: [float(i == 0) for i in range(n)], False, lambda y: float(y > 0)),
}


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(0, 7),
    sigma=st.sampled_from([0.05, 1.0, 20.0]),
    measure=st.sampled_from(list(MEASURES)),
    block=st.sampled_from([1, 2**24]),
)
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_equals_its_definition(seed, n, sigma, measure, block):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, n, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (4, n), generator=generator)
    discount, normalized, gain = MEASURES[measure]
    original = smooth._BLOCK
    smooth._BLOCK = block  # of one position at a time, and of all
    try:
        loss = rs.SmoothLoss(measure, sigma=sigma, reduction="none")
        found, sigma = loss(scores, labels), float(loss.sigma)
    finally:
        smooth._BLOCK = original
    for row in range(4):
        table = discount(n)
        expected = (
            by_definition(scores[row].tolist(), labels[row].tolist(), table, normalized, sigma, gain) if n else 0.0
        )
        assert found[row].item() == pytest.approx(expected, abs=1e-12)


def test_blocks_have_the_same_gradient(monkeypatch):
    scores = torch.randn(3, 20, dtype=torch.float64, requires_grad=True)
    labels, loss = torch.randint(0, 4, (3, 20)), rs.SmoothLoss("nDCG")
    (whole,) = torch.autograd.grad(loss(scores, labels), scores)
    monkeypatch.setattr(smooth, "_BLOCK", 200)
    (blocks,) = torch.autograd.grad(loss(scores, labels), scores)
    torch.testing.assert_close(blocks, whole)


@pytest.mark.parametrize("measure", MEASURES)
def test_tends_to_the_measure(measure):
    scores = torch.randn(20, 12, dtype=torch.float64)
    scores[10:] = (2 * scores[10:]).round() / 2  # ties: expected values
    labels = torch.randint(0, 3, (20, 12))
    where = torch.rand(20, 12) < 0.8
    parsed = rs.parse_measure(measure)
    regret = parsed.best_value(labels, where) - rs.evaluate(scores, labels, [measure], where=where)[parsed.name]
    wide, narrow = (
        (rs.SmoothLoss(measure, sigma=sigma, reduction="none")(scores, labels, where=where) - regret).abs().max()
        for sigma in (1.0, 1e-5)
    )
    assert narrow < 1e-9 < 1e-2 < wide


def test_gradient_and_second_derivative():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(3, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 3, (3, 6), generator=generator)
    where = torch.rand(3, 6, generator=generator) < 0.8
    for measure in MEASURES:
        loss = partial(rs.SmoothLoss(measure, sigma=0.7, reduction="none"), labels=labels, where=where)
        assert torch.autograd.gradcheck(loss, scores)
        assert torch.autograd.gradgradcheck(loss, scores)


@pytest.mark.parametrize("kind", [rs.SmoothLoss, rs.SoftRankLoss])
def test_sigma_may_be_learned(kind):
    """A parameter, which is trained with the scorer, or what is computed from one."""
    scores = torch.randn(3, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels = torch.tensor([[0, 2, 1, 0, 0, 1]]).expand(3, 6)
    learned = torch.nn.Parameter(torch.tensor(0.7, dtype=torch.float64))
    loss = kind("nDCG@3", sigma=learned)
    assert list(loss.parameters()) == [learned]
    assert "sigma=0.7" in repr(loss)
    loss(scores, labels).backward()
    high, low = (loss.with_sigma(sigma)(scores, labels) for sigma in (0.7 + 1 / 64, 0.7 - 1 / 64))
    assert learned.grad == pytest.approx(32 * (high - low).item(), rel=1e-2)
    constant = loss.with_options(sigma=torch.tensor(0.7))
    assert constant.state_dict().keys() == {"sigma"}
    assert not list(constant.parameters())
    assert torch.autograd.gradcheck(lambda sigma: kind("nDCG", sigma=sigma.exp())(scores, labels), learned)


@pytest.mark.filterwarnings("ignore:most lists have more relevant documents")
def test_memory_at_a_cutoff_is_linear():
    """A list of 100,000 documents: n x n numbers would be 40 GB."""
    scores = torch.randn(100_000, requires_grad=True)
    rs.SmoothLoss("nDCG@10")(scores, torch.randint(0, 2, (100_000,))).backward()
    assert scores.grad.isfinite().all()


def test_sigma_is_saved_and_what_is_refused():
    loss = rs.SmoothLoss("nDCG@10", sigma=0.25)
    other = rs.SmoothLoss("nDCG@10")
    other.load_state_dict(loss.state_dict())
    assert other.sigma == 0.25
    with pytest.raises(ValueError, match="AP is not a discounted gain"):
        rs.SmoothLoss("AP")
    with pytest.raises(ValueError, match="sigma must be a finite number above 0, got 0"):
        rs.SmoothLoss("nDCG", sigma=0)


def test_where_all_scores_tie_the_gradient_goes_up_with_the_label():
    """That of the smoothed measure is 0 there; the value is the measure's own."""
    scores = torch.full((2, 5), 3.0, requires_grad=True)
    labels, where = torch.tensor([[0, 1, 2, 0, 1], [1, 1, 1, 1, 0]]), torch.tensor([[True] * 5, [True] * 4 + [False]])
    loss = rs.SmoothLoss("nDCG", reduction="sum")
    value = loss(scores, labels, where=where)
    value.backward()
    assert (scores.grad[0].argsort().diff() != 0).all()
    assert scores.grad[0, 2] < scores.grad[0, 1] < 0 < scores.grad[0, 0]
    assert scores.grad[0].sum() == pytest.approx(0, abs=1e-7)
    assert torch.equal(scores.grad[1], torch.zeros(5))
    expected = loss(scores.detach() + 1e-4 * torch.arange(5), labels, where=where)
    assert value.item() == pytest.approx(expected.item(), abs=1e-3)
