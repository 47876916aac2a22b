"""Pointwise losses against loops in plain Python."""

import math

import pytest
import torch

import rankstruct as rs


def draw(lists=5, size=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(lists, size, generator=generator, dtype=torch.float64)
    return scores, torch.randint(0, 3, (lists, size), generator=generator)


@pytest.mark.parametrize("target", ["grade", "gain"])
def test_squared_loss_equals_its_definition(target):
    scores, labels = draw()
    found = rs.SquaredLoss(target, reduction="none")(scores, labels)
    for row in range(5):
        both = list(zip(scores[row].tolist(), labels[row].tolist(), strict=True))
        each = [(s - (2**y - 1 if target == "gain" else y)) ** 2 for s, y in both]
        assert found[row].item() == pytest.approx(sum(each) / 8, rel=1e-12)


@pytest.mark.parametrize("min_relevant", [None, 2])
@pytest.mark.parametrize("options", [{}, {"relevant_weight": 3.0}, {"balance": "lists"}])
@pytest.mark.parametrize(("margin", "threshold"), [(1.0, 0.0), (0.5, -0.7)])
def test_classification_loss_equals_its_definition(min_relevant, options, margin, threshold):
    scores, labels = draw()
    labels[3], labels[4] = 0, 2
    loss = rs.ClassificationLoss(min_relevant, margin=margin, threshold=threshold, reduction="none", **options)
    found = loss(scores, labels)
    for row in range(5):
        good, bad = [], []
        for s, y in zip(scores[row].tolist(), labels[row].tolist(), strict=True):
            if y >= (1 if min_relevant is None else min_relevant):
                good.append(max(0, margin - (s - threshold)))
            else:
                bad.append(max(0, margin + (s - threshold)))
        if options.get("balance") == "lists":
            means = [sum(kind) / len(kind) for kind in (good, bad) if kind]
            expected = sum(means) / len(means)
        else:
            expected = (options.get("relevant_weight", 1.0) * sum(good) + sum(bad)) / 8
        assert found[row].item() == pytest.approx(expected, rel=1e-12)


def test_relevant_and_irrelevant_documents_weigh_the_same_in_balance():
    scores = torch.zeros(10, requires_grad=True)
    rs.ClassificationLoss(balance="lists")(scores, torch.tensor([1, 1] + [0] * 8)).backward()
    torch.testing.assert_close(scores.grad, torch.tensor([-0.25] * 2 + [1 / 16] * 8))


def with_thresholds(loss, first, *steps):
    """The loss in float64 with these thresholds: the first, and how much each next one is higher."""
    loss = loss.double()
    with torch.no_grad():
        loss.first.fill_(first)
        loss.steps.copy_(torch.tensor(steps, dtype=torch.float64).expm1().log())
    return loss


@pytest.mark.parametrize("surrogate", ["logistic", "hinge"])
def test_ordinal_loss_equals_its_definition(surrogate):
    scores, labels = draw()
    loss = with_thresholds(rs.OrdinalLoss(3, surrogate, reduction="none"), -0.3, 1.2)
    torch.testing.assert_close(loss.thresholds().tolist(), [-0.3, 0.9], rtol=1e-15, atol=0)
    found = loss(scores, labels)
    for row in range(5):
        total = 0.0
        for s, y in zip(scores[row].tolist(), labels[row].tolist(), strict=True):
            for k, theta in enumerate((-0.3, 0.9)):
                z = (s - theta) if y > k else (theta - s)
                total += max(0, 1 - z) if surrogate == "hinge" else math.log(1 + math.exp(-z))
        assert found[row].item() == pytest.approx(total / 8, rel=1e-12)


def test_ordinal_thresholds_are_learned_and_stay_in_order():
    scores = torch.tensor([[-3.0, -1.0, 1.0, 3.0]])
    labels = torch.tensor([[0, 1, 1, 3]])
    loss = rs.OrdinalLoss(grades=4)
    torch.testing.assert_close(loss.thresholds().detach(), torch.tensor([-1.0, 0.0, 1.0]))
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.5)
    before = loss(scores, labels).item()
    for _ in range(200):
        optimizer.zero_grad()
        loss(scores, labels).backward()
        optimizer.step()
    thresholds = loss.thresholds().detach()
    assert loss(scores, labels) < 0.7 * before
    assert (thresholds.diff() >= 0).all()
    assert -3 < thresholds[0] < -1
    with torch.no_grad():
        loss.steps.copy_(torch.tensor([-300.0, 5.0]))
    assert (loss.thresholds().diff() >= 0).all()
    scores, labels = draw()
    loss = with_thresholds(rs.OrdinalLoss(3), -0.3, 1.2)

    def of_parameters(first, steps):
        return torch.func.functional_call(loss, {"first": first, "steps": steps}, (scores, labels))

    assert torch.autograd.gradcheck(of_parameters, tuple(loss.parameters()))
    assert rs.OrdinalLoss(grades=2).thresholds().tolist() == [0.0]


def test_thresholds_take_the_precision_of_the_scores():
    scores = torch.tensor([[0.3, 0.1]], dtype=torch.bfloat16, requires_grad=True)
    loss = rs.OrdinalLoss(grades=3)
    loss(scores, torch.tensor([[2, 0]])).backward()
    assert loss.first.grad.dtype == torch.float32
    assert scores.grad.dtype == torch.bfloat16


def test_options_and_labels_are_checked():
    scores, labels = torch.zeros(2, 2), torch.tensor([[1, 0], [2, 3]])
    with pytest.raises(ValueError, match="balance must be one of 'none', 'lists', got 'classes'"):
        rs.ClassificationLoss(balance="classes")
    with pytest.raises(ValueError, match="leave relevant_weight at 1, got 2"):
        rs.ClassificationLoss(balance="lists", relevant_weight=2)
    with pytest.raises(ValueError, match=r"grades must be an integer from 2 to \d+, got 1"):
        rs.OrdinalLoss(grades=1)
    with pytest.raises(ValueError, match=r"labels must be grades from 0 to 2, .*; that of document \[1, 1\] is 3"):
        rs.OrdinalLoss(grades=3)(scores, labels)


def test_labels_of_minus_100_are_warned_of_where_they_look_like_padding():
    scores = torch.zeros(2, 3)
    warned = r"^2 labels are -100 and no other is negative: .* mask it with where=labels >= 0$"
    labels = torch.tensor([[2, 1, -100], [0, -100, -100]])
    real = torch.tensor([[True, True, True], [True, True, False]])
    for kind in (torch.int64, torch.float32, torch.float64):
        with pytest.warns(UserWarning, match=warned):
            rs.SquaredLoss()(scores, labels.to(kind), where=real)
    with pytest.warns(UserWarning, match=warned):
        torch.compile(rs.SquaredLoss(), fullgraph=True, backend="eager")(scores, labels, where=real)
    torch._dynamo.reset()
    for targets in ([[2.0, -1.0, -100.0]], [[-100.5, 3.0, 1.0]], [[-99.0, 1.0, 0.0]], [[1.0, -1.0, 0.0]]):
        rs.SquaredLoss()(scores[:1], torch.tensor(targets))  # which is no warning
    rs.SquaredLoss()(scores, labels, where=labels >= 0)
    rs.SquaredLoss()(scores[:, :0], labels[:, :0])


def best_thresholds(scores, labels, grades, mass):
    """The least cost of thresholds that lie at a kink, for it is piecewise linear."""
    total = 0.0
    documents = list(zip(scores, labels, mass, strict=True))
    for k in range(grades - 1):
        total += min(
            sum(m * max(0, 1 - (1 if y > k else -1) * (s - theta)) for s, y, m in documents)
            for theta in [s + side for s in scores for side in (-1, 1)]
        )
    return total / sum(mass)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("fraction", [0.0, 0.5])
def test_list_ordinal_loss_is_the_least_over_thresholds(weighted, tied, fraction):
    scores, labels = draw(lists=20)
    scores = scores.round() if tied else scores
    labels = labels + fraction
    mass = torch.rand(20, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64) if weighted else None
    found = rs.ListOrdinalLoss(grades=4, reduction="none")(scores, labels, item_weights=mass)
    for row in range(20):
        each = [1.0] * 8 if mass is None else mass[row].tolist()
        expected = best_thresholds(scores[row].tolist(), labels[row].tolist(), 4, each)
        assert found[row].item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_list_ordinal_gradient_is_that_of_finite_differences():
    scores, labels = draw()
    loss = rs.ListOrdinalLoss(grades=3)
    assert torch.autograd.gradcheck(lambda s: loss(s, labels), scores.requires_grad_())


def test_list_ordinal_gradient_is_a_subgradient_at_ties():
    generator = torch.Generator().manual_seed(3)
    scores, labels = (
        torch.zeros(1, 8, dtype=torch.float64, requires_grad=True),
        torch.tensor([[0, 0, 0, 0, 1, 2, 2, 1]]),
    )
    loss = rs.ListOrdinalLoss(grades=3)
    value = loss(scores, labels)
    (gradient,) = torch.autograd.grad(value, scores)
    for _ in range(100):
        other = torch.randn(1, 8, dtype=torch.float64, generator=generator)
        assert loss(other, labels) >= value + (gradient * other).sum() - 1e-12
    assert gradient.sum().abs() < 1e-12


def test_list_ordinal_loss_of_one_document_or_equal_labels_is_0_and_other_grades_are_refused():
    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    found = rs.ListOrdinalLoss(reduction="none")(scores, torch.tensor([[0] * 4, [2] * 4, [4] * 4]))
    assert found.abs().max() < 1e-6
    assert rs.ListOrdinalLoss()(torch.tensor([3.0]), torch.tensor([1])) == 0
    with pytest.raises(ValueError, match="grades from 0 to 1"):
        rs.ListOrdinalLoss(grades=2)(scores, torch.full((3, 4), 2))
    with pytest.raises(ValueError, match="integer from 2"):
        rs.ListOrdinalLoss(grades=1)
