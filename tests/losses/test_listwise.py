"""Listwise losses against loops in plain Python."""

import itertools
import math

import pytest
import torch

import rankstruct as rs


def softmax(values):
    total = sum(math.exp(v) for v in values)
    return [math.exp(v) / total for v in values]


def draw(lists=5, size=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(lists, size, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (lists, size), generator=generator)
    labels[:, 0], labels[:, 1] = 2, 0
    return scores, labels


@pytest.mark.parametrize("target", ["grade", "gain"])
def test_listnet_equals_its_definition(target):
    scores, labels = draw()
    found = rs.ListNetLoss(target, reduction="none")(scores, labels)
    for row in range(len(scores)):
        y = labels[row].tolist()
        p = softmax([2**label - 1 for label in y] if target == "gain" else y)
        q = softmax(scores[row].tolist())
        expected = -sum(a * math.log(b) for a, b in zip(p, q, strict=True))
        assert found[row].item() == pytest.approx(expected, rel=1e-12)


def test_listmle_is_the_likelihood_of_the_likeliest_ranking_that_the_labels_allow():
    scores, labels = draw(size=6)
    found = rs.ListMLELoss(reduction="none")(scores, labels)
    for row in range(len(scores)):
        s, y = scores[row].tolist(), labels[row].tolist()
        costs = [
            -sum(math.log(softmax([s[i] for i in order[r:]])[0]) for r in range(6))
            for order in itertools.permutations(range(6))
            if all(y[a] >= y[b] for a, b in itertools.pairwise(order))
        ]
        assert found[row].item() == pytest.approx(min(costs), rel=1e-12)


def test_listmle_averages_the_gradient_over_the_orders_of_ties_of_label_and_score():
    scores, labels = torch.zeros(3, requires_grad=True), torch.tensor([1, 1, 0])
    rs.ListMLELoss()(scores, labels).backward()
    first, second = 1 / 3 - 1, 1 / 3 + 1 / 2 - 1
    torch.testing.assert_close(scores.grad, torch.tensor([(first + second) / 2, (first + second) / 2, 1 / 3 + 1 / 2]))
    curved = rs.ListMLELoss().curvature(torch.zeros(1, 3), labels[None], torch.ones(1, 3).bool())
    torch.testing.assert_close(curved, torch.tensor([[2 / 9 + 1 / 8, 2 / 9 + 1 / 8, 2 / 9 + 1 / 4]]))


def test_listmle_ranks_ties_by_item_weight():
    scores, labels = torch.zeros(3), torch.tensor([1, 1, 0])
    values = [
        rs.ListMLELoss()(scores, labels, item_weights=torch.tensor(each)) for each in ([2.0, 1.0, 1.0], [1.0, 2.0, 1.0])
    ]
    assert values[0] == values[1] == pytest.approx(2 * math.log(3) + math.log(2))


@pytest.mark.parametrize("cutoff", [None, 1, 3])
@pytest.mark.parametrize("temperature", [0.1, 2.0])
def test_approx_ndcg_equals_its_definition(cutoff, temperature):
    def sigmoid(x):
        return 1 / (1 + math.exp(-x))

    scores, labels = draw()
    loss = rs.ApproxNDCGLoss(rs.nDCG(cutoff), temperature=temperature, reduction="none")
    found = loss(scores, labels)
    for row in range(len(scores)):
        s, y = scores[row].tolist(), labels[row].tolist()
        value = 0.0
        for i in range(len(s)):
            rank = 1 + sum(sigmoid((s[j] - s[i]) / temperature) for j in range(len(s)) if j != i)
            kept = 1.0 if cutoff is None else sigmoid((cutoff + 0.5 - rank) / temperature)
            value += (2 ** y[i] - 1) / math.log2(1 + rank) * kept
        counted = sorted(y, reverse=True)[:cutoff]
        best = sum((2**label - 1) / math.log2(2 + r) for r, label in enumerate(counted))
        assert found[row].item() == pytest.approx(1 - value / best, rel=1e-9)


@pytest.mark.parametrize("measure", ["nDCG", "nDCG@3", "nDCG(gain='linear')", "nERU(d=0,half_life=3)"])
def test_approx_ndcg_tends_to_the_measure(measure):
    scores, labels = draw(lists=20)
    exact = 1 - rs.evaluate(scores, labels, [measure])[rs.parse_measure(measure).name]
    gaps = []
    for temperature in (0.1, 0.01, 1e-4):
        loss = rs.ApproxNDCGLoss(measure, temperature, reduction="none")
        gaps.append((loss(scores, labels) - exact).abs().max().item())
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-6


def test_options_are_checked():
    with pytest.raises(ValueError, match="target must be one of 'grade', 'gain', got 'label'"):
        rs.ListNetLoss("label")
    with pytest.raises(ValueError, match="temperature must be a finite number above 0, got -1"):
        rs.ApproxNDCGLoss(temperature=-1)
    with pytest.raises(ValueError, match="ApproxNDCGLoss requires nDCG or another normalised discounted gain, got DCG"):
        rs.ApproxNDCGLoss("DCG")
    with pytest.raises(ValueError, match=r"labels must be 0 or more .*; that of document 1 is -1"):
        rs.ApproxNDCGLoss()(torch.zeros(2), torch.tensor([1, -1]))
