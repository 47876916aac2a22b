"""Matching: the argmax against enumeration and SciPy by value, the gradient against permutation matrices."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

import rankstruct as rs

SIZES = [(1, 1), (1, 3), (3, 1), (3, 3), (2, 4), (4, 3), (4, 4)]


def every_matching(documents, positions):
    """All matrices of matchings that place as many as possible."""
    placed = min(documents, positions)
    for chosen in itertools.combinations(range(documents), placed):
        for order in itertools.permutations(range(positions), placed):
            matrix = torch.zeros(documents, positions, dtype=torch.float64)
            matrix[list(chosen), list(order)] = 1
            yield matrix


def matrix_of(row, positions):
    matrix = torch.zeros(len(row), positions, dtype=torch.float64)
    for document, position in enumerate(row.tolist()):
        if position >= 0:
            matrix[document, position] = 1
    return matrix


def draw(documents, positions, seed=0, lists=5):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(lists, documents, positions, generator=generator, dtype=torch.float64)
    cost = torch.rand(lists, documents, positions, generator=generator, dtype=torch.float64)
    return scores, cost


def both(scores, *given, reference="ideal", **lists):
    leaf = scores.detach().clone().requires_grad_()
    value = rs.AssignmentHingeLoss(reference=reference, reduction="none")(leaf, *given, **lists)
    value.sum().backward()
    return value.detach(), leaf.grad


@pytest.mark.parametrize("reference", ["ideal", "predicted"])
@pytest.mark.parametrize(("documents", "positions"), SIZES)
def test_value_is_that_of_enumeration_and_gradient_a_difference_of_matrices(documents, positions, reference):
    for seed in range(5):
        scores, cost = draw(documents, positions, seed)
        values, gradients = both(scores, cost, reference=reference)
        for s, c, value, gradient in zip(scores, cost, values, gradients, strict=True):
            matchings = list(every_matching(documents, positions))
            ideal = min(matchings, key=lambda p: (c * p).sum())
            chosen = ideal if reference == "ideal" else max(matchings, key=lambda p: (s * p).sum())
            worst = max(matchings, key=lambda p: ((s + c) * p).sum())
            torch.testing.assert_close(value, (c * (worst - ideal)).sum() + (s * (worst - chosen)).sum())
            torch.testing.assert_close(gradient, worst - chosen)  # maximisers are unique here
            predicted = max(matchings, key=lambda p: (s * p).sum())
            assert value >= (c * (predicted - ideal)).sum() - 1e-12


@pytest.mark.parametrize(("documents", "positions"), [(30, 30), (40, 12), (12, 40)])
def test_argmax_is_scipys_by_value(documents, positions):
    scores, _ = draw(documents, positions)
    for s, row in zip(scores, rs.assign_positions(scores), strict=True):
        rows, columns = linear_sum_assignment(-s)
        torch.testing.assert_close((s * matrix_of(row, positions)).sum(), s[rows, columns].sum())
        assert (row >= 0).sum() == min(documents, positions)


@pytest.mark.parametrize("reference", ["ideal", "predicted"])
def test_a_given_target_and_no_cost_counts_documents_at_wrong_positions(reference):
    scores, _ = draw(4, 4)
    target = torch.stack([torch.randperm(4) for _ in scores])
    values, gradients = both(scores, target=target, reference=reference)
    for s, row, value, gradient in zip(scores, target, values, gradients, strict=True):
        ideal = matrix_of(row, 4)
        matchings = list(every_matching(4, 4))
        chosen = ideal if reference == "ideal" else max(matchings, key=lambda p: (s * p).sum())
        worst = max(matchings, key=lambda p: (s * p).sum() - (ideal * p).sum())
        torch.testing.assert_close(value, 4 - (ideal * worst).sum() + (s * (worst - chosen)).sum())
        torch.testing.assert_close(gradient, worst - chosen)


def test_right_by_a_margin_costs_nothing():
    target = torch.tensor([[1, -1, 0]])
    scores = 3 * matrix_of(target[0], 2).unsqueeze(0)
    for reference in ("ideal", "predicted"):
        values, gradients = both(scores, target=target, reference=reference)
        assert values.tolist() == [0]
        assert not gradients.any()


@pytest.mark.parametrize("reference", ["ideal", "predicted"])
@pytest.mark.parametrize("given", ["cost", "target"])
def test_mask_equals_truncation_whatever_the_padding_holds(reference, given):
    scores, cost = draw(5, 6)
    where = torch.tensor([True, False, True, True, False]).expand(5, 5)
    where_positions = torch.tensor([True, True, False, True, True, False]).expand(5, 6)
    rows, columns = [0, 2, 3], [0, 1, 3, 4]
    padding = ~(where[:, :, None] & where_positions[:, None, :])
    for junk in (torch.nan, torch.inf, -1e30):
        poisoned = scores.masked_fill(padding, junk), cost.masked_fill(padding, -junk)
        masks = {"where": where, "where_positions": where_positions, "reference": reference}
        inner = scores[:, rows][:, :, columns], cost[:, rows][:, :, columns]
        if given == "cost":
            value, gradient = both(*poisoned, **masks)
            alone, its_gradient = both(*inner, reference=reference)
        else:
            value, gradient = both(poisoned[0], target=torch.tensor([4, 77, 0, 1, -1]), **masks)
            alone, its_gradient = both(inner[0], target=torch.tensor([3, 0, 1]), reference=reference)
        torch.testing.assert_close(value, alone)
        torch.testing.assert_close(gradient[:, rows][:, :, columns], its_gradient)
        assert not gradient[padding].any()
        found = rs.assign_positions(poisoned[0], where=where, where_positions=where_positions)
        assert (found[:, [1, 4]] == -1).all()
        assert (found[:, rows] >= 0).all()


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 3), (2, 3, 0), (0, 0), (2, 0, 0)])
def test_nothing_to_match_costs_nothing(shape):
    scores = torch.zeros(shape, requires_grad=True)
    loss = rs.AssignmentHingeLoss()(scores, torch.zeros(shape))
    loss.backward()
    assert loss == 0
    assert rs.assign_positions(scores).shape == shape[:-1]
    assert rs.AssignmentHingeLoss()(scores, target=torch.full(shape[:-1], -1)) == 0


def test_padding_alone_is_not_counted():
    scores, cost = draw(3, 3)
    where = torch.ones(5, 3, dtype=torch.bool)
    where[2] = False
    each = rs.AssignmentHingeLoss(reduction="none")(scores, cost, where=where)
    assert each[2] == 0
    torch.testing.assert_close(rs.AssignmentHingeLoss()(scores, cost, where=where), each.sum() / 4)
    weights = torch.tensor([1.0, 0, 3, 2, 0], dtype=torch.float64)
    torch.testing.assert_close(
        rs.AssignmentHingeLoss()(scores, cost, where=where, weights=weights), (each * weights).sum() / 3
    )


def test_gradcheck_and_convexity():
    scores, cost = draw(4, 3, lists=2)
    loss = rs.AssignmentHingeLoss()
    assert torch.autograd.gradcheck(lambda s: loss(s, cost), scores.requires_grad_())
    other, _ = draw(4, 3, seed=1, lists=2)
    middle = loss((scores + other) / 2, cost)
    assert loss.convex
    assert middle <= (loss(scores, cost) + loss(other, cost)) / 2


@pytest.mark.parametrize("given", ["cost", "target"])
def test_compiles_and_maps(given):
    scores, cost = draw(4, 3)
    options = {"cost": cost} if given == "cost" else {"target": torch.tensor([1, -1, 0, 2]).expand(5, 4)}
    loss = rs.AssignmentHingeLoss()
    plain = loss(scores, **options, reduction="none")
    mapped = torch.func.vmap(lambda s, o: loss(s, **{given: o}))(scores, options[given])
    torch.testing.assert_close(mapped, plain)
    leaf = scores.clone().requires_grad_()
    compiled = torch.compile(lambda s: loss(s, **options), fullgraph=True, backend="aot_eager")
    value = compiled(leaf)
    value.backward()
    torch.testing.assert_close(value, plain.mean())
    torch.testing.assert_close(leaf.grad, both(scores, **options)[1] / 5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtype_follows_the_scores(dtype):
    scores, cost = draw(4, 4)
    leaf = scores.to(dtype).requires_grad_()
    loss = rs.AssignmentHingeLoss()(leaf, cost)
    loss.backward()
    assert loss.dtype == leaf.grad.dtype == dtype
    torch.testing.assert_close(loss, rs.AssignmentHingeLoss()(leaf.detach().double(), cost).to(dtype))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass cost"),
        ({"cost": torch.zeros(2, 2)}, r"cost must have shape \(2, 3\)"),
        ({"cost": torch.full((2, 3), torch.nan)}, "must be finite; document 0 at position 0"),
        ({"cost": torch.full((2, 3), torch.inf)}, "must be finite; document 0 at position 0 of matrix 0 has inf"),
        ({"target": torch.tensor([0, 3])}, "real positions from 0 to 2, or -1; got 3"),
        ({"target": torch.tensor([0, 0])}, "each position to at most one document"),
        ({"target": torch.tensor([0, -1])}, "as many documents as possible, 2 in matrix 0; it places 1"),
        ({"target": torch.tensor([0, 1]), "where": torch.ones(3) > 0}, r"where must have shape \(2,\)"),
        (
            {"target": torch.tensor([0, 1]), "where_positions": torch.tensor([True, False, True])},
            "or -1; got 1",
        ),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        rs.AssignmentHingeLoss()(torch.zeros(2, 3), **options)


def test_types():
    with pytest.raises(ValueError, match="reference must be one of 'ideal', 'predicted', got 'tied'"):
        rs.AssignmentHingeLoss(reference="tied")
    with pytest.raises(TypeError, match=r"'offsets'; .* this loss accepts target, where, where_positions"):
        rs.AssignmentHingeLoss()(torch.zeros(2, 2), torch.zeros(2, 2), offsets=[0, 2])
    with pytest.raises(TypeError, match="'labels'; in addition to scores and cost, this loss accepts target, where"):
        rs.AssignmentHingeLoss()(torch.zeros(2, 2), labels=torch.zeros(2))
    loss = rs.AssignmentHingeLoss()
    for call in (rs.assign_positions, rs.losses.AssignmentLayer(), lambda scores: loss(scores, torch.eye(2))):
        for scores in (np.eye(2), [[1.0, 0.0], [0.0, 1.0]]):
            with pytest.raises(TypeError, match=r"scores must be a torch.Tensor, got \w+; use torch.as_tensor"):
                call(scores)
    with pytest.raises(TypeError, match="target must be integers"):
        rs.AssignmentHingeLoss()(torch.zeros(2, 2), target=torch.zeros(2))
    with pytest.raises(TypeError, match="where must be boolean"):
        rs.assign_positions(torch.zeros(2, 2), where=torch.ones(2))


def descend(model, loss, steps, lr=0.1):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def test_learns_which_section_of_a_page_an_article_belongs_to():
    """Four named sections prefer different topics; articles are noisy mixtures, more of them than sections."""
    generator = torch.Generator().manual_seed(0)
    tastes = torch.randn(4, 6, generator=generator)
    articles = torch.randn(60, 6, 6, generator=generator)
    cost = -(articles @ tastes.T)  # what a section loses with an article
    model = torch.nn.Linear(6, 4, bias=False)
    torch.nn.init.zeros_(model.weight)
    loss = rs.AssignmentHingeLoss()
    descend(model, lambda: loss(model(articles[:30]), cost[:30]), 60)

    def regret(scores, cost):
        chosen, best = matrices(rs.assign_positions(scores), 4), matrices(rs.assign_positions(-cost), 4)
        return float((cost * (chosen - best)).sum((-1, -2)).mean())

    def matrices(rows, positions):
        return (rows.unsqueeze(-1) == torch.arange(positions)).float()

    assert regret(model(articles[30:]), cost[30:]) < 0.1 * regret(torch.zeros(30, 6, 4), cost[30:])


def test_convex_part_of_the_predicted_reference():
    scores, cost = torch.tensor([[0.5, 0.0], [1.0, 0.3]]), torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    part = rs.losses.convex_part(rs.AssignmentHingeLoss(reference="predicted"))
    assert part.convex
    assert torch.equal(part(scores, cost), rs.AssignmentHingeLoss()(scores, cost))


def test_learns_to_match_the_nodes_of_two_graphs():
    """Nodes have attributes, some of which are noise; a weight each is learned from matched pairs of graphs."""
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randn(40, 7, 5, generator=generator)
    order = torch.stack([torch.randperm(7, generator=generator) for _ in nodes])
    noise = torch.tensor([0.1, 0.1, 3, 3, 3])
    moved = nodes + noise * torch.randn(nodes.shape, generator=generator)
    shuffled = torch.empty_like(nodes).scatter_(1, order.unsqueeze(-1).expand_as(nodes), moved)
    pairs = -(nodes.unsqueeze(2) - shuffled.unsqueeze(1)).square()  # [graphs, node, node of the other, attribute]
    model = torch.nn.Linear(5, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    before = (rs.assign_positions(model(pairs[20:]).squeeze(-1)) == order[20:]).float().mean()
    loss = rs.AssignmentHingeLoss()
    descend(model, lambda: loss(model(pairs[:20]).squeeze(-1), target=order[:20]), 100)
    after = (rs.assign_positions(model(pairs[20:]).squeeze(-1)) == order[20:]).float().mean()
    assert before < 0.6
    assert after > 0.95
