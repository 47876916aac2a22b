"""SVMcombo and the hinge over all thresholds, against sums by hand."""

import pytest
import torch

import rankstruct as rs


def make(seed=0, lists=5, size=9):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(lists, size, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (lists, size), generator=generator)
    where = torch.rand(lists, size, generator=generator) < 0.8
    return scores, labels, where


def test_separate_and_shared_slacks():
    scores, labels, where = make()
    parts = [rs.StructuredHingeLoss("AP"), rs.StructuredHingeLoss("RR@10"), rs.SmoothLoss("nDCG@10")]
    each = []
    for part in parts:
        part.reduction = "none"
        each.append(part(scores, labels, where=where))
    stacked = torch.stack([1.0 * each[0], 0.1 * each[1], 2.0 * each[2]])
    for slack, expected in (("separate", stacked.sum(0)), ("shared", stacked.max(0).values)):
        loss = rs.CombinedLoss(parts, [1.0, 0.1, 2.0], slack=slack, reduction="none")
        torch.testing.assert_close(loss(scores, labels, where=where), expected)
        assert {name: pytest.approx(value.item()) for name, value in loss.slacks.items()} == {
            "0-AP": each[0].mean().item(),
            "1-RR@10": each[1].mean().item(),
            "2-nDCG@10": each[2].mean().item(),
        }
    named = rs.CombinedLoss({"map": parts[0], "mrr": parts[1]})
    named(scores, labels, where=where)
    assert list(named.slacks) == ["map", "mrr"]


def test_shared_slack_has_the_gradient_of_the_largest():
    scores, labels, _ = make()
    scores.requires_grad_()
    ap, rr = (rs.StructuredHingeLoss(m, reduction="none") for m in ("AP", "RR"))
    loss = rs.CombinedLoss([ap, rr], slack="shared", reduction="sum")
    (found,) = torch.autograd.grad(loss(scores, labels), scores)
    gradients = [torch.autograd.grad(part(scores, labels).sum(), scores)[0] for part in (ap, rr)]
    larger = (rr(scores, labels) > ap(scores, labels)).unsqueeze(-1)
    torch.testing.assert_close(found, torch.where(larger, gradients[1], gradients[0]))


def test_the_parts_that_were_given_are_left_alone():
    part = rs.StructuredHingeLoss("AP", reduction="sum")
    rs.CombinedLoss([part])
    assert part.reduction == "sum"


def test_reference_scores_reach_the_bounds_that_take_them():
    scores, labels, where = make()
    chosen = torch.randn_like(scores)
    convex, ramp = rs.StructuredHingeLoss("AP"), rs.StructuredHingeLoss("DCG@3", reference="predicted")
    loss = rs.CombinedLoss([convex, ramp])
    expected = convex(scores, labels, where=where) + ramp(scores, labels, where=where, reference_scores=chosen)
    torch.testing.assert_close(loss(scores, labels, where=where, reference_scores=chosen), expected)


def test_weights_by_name_are_those_of_the_losses():
    scores, labels = torch.tensor([[0.5, 2.0, 1.0, -1.0]]), torch.tensor([[2, 0, 1, 0]])
    parts = {"list": rs.ListNetLoss(), "pairs": rs.RankNetLoss()}
    expected = rs.CombinedLoss(list(parts.values()), [0.5, 2.0])(scores, labels)
    for losses in (parts, torch.nn.ModuleDict(parts)):
        torch.testing.assert_close(rs.CombinedLoss(losses, {"pairs": 2.0, "list": 0.5})(scores, labels), expected)


def test_components_learn_the_parameters_of_the_losses_given():
    scores, labels = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[0, 1, 2]])
    ordinal, smooth = rs.OrdinalLoss(3), rs.SmoothLoss("nDCG", sigma=torch.nn.Parameter(torch.tensor(1.0)))
    fixed = rs.SmoothLoss("nDCG", sigma=1.0)
    combined = rs.CombinedLoss([ordinal, rs.CombinedLoss([smooth, fixed])])
    combined(scores, labels).backward()
    assert ordinal.first.grad.abs().sum() > 0
    assert smooth.sigma.grad != 0
    assert {*combined.parameters()} == {*ordinal.parameters(), *smooth.parameters()}
    assert ordinal.reduction == smooth.reduction == "mean"
    combined.losses[1].losses[1].sigma.fill_(0.5)  # an option
    assert fixed.sigma == 1


def test_a_component_without_a_value_for_each_list_is_refused():
    combined = rs.CombinedLoss([rs.ListNetLoss(), torch.nn.MSELoss()])
    with pytest.raises(TypeError, match="unexpected keyword argument 'where'"):
        combined(torch.zeros(2, 3), torch.ones(2, 3), where=torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(
        ValueError, match=r"MSELoss with reduction 'none' must have one value per list, \(2,\); got \(2, 3\)"
    ):
        combined(torch.zeros(2, 3), torch.ones(2, 3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "at least one loss"),
        (([rs.StructuredHingeLoss("AP")], [1.0, 2.0]), "weights must be 1 numbers"),
        (([rs.StructuredHingeLoss("AP")], [-1.0]), r"weights\[0\] must be a finite number of at least 0"),
        (([rs.StructuredHingeLoss("AP")], {"AP": 1.0}), "weights must have a weight for each of 0-AP"),
        (([rs.StructuredHingeLoss("AP")], torch.nn.Parameter(torch.ones(1))), "plain numbers, which are not learned"),
        (([torch.nn.Linear(1, 1)],), "Linear has no reduction"),
        (
            (rs.StructuredHingeLoss("AP"), rs.ListNetLoss()),
            r"losses must be a list or mapping of losses, such as \[loss",
        ),
        (("AP",), "losses must be a list or mapping of losses"),
    ],
)
def test_combinations_that_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        rs.CombinedLoss(*arguments)
    with pytest.raises(ValueError, match="slack must be"):
        rs.CombinedLoss([rs.StructuredHingeLoss("AP")], slack="both")


@pytest.mark.parametrize("measure", ["AUC", "AP", "AP@3", "nDCG@3", "RR", "P@2"])
@pytest.mark.parametrize("reference", ["ideal", "ideal-tied", "predicted"])
def test_graded_is_the_sum_over_thresholds(measure, reference):
    scores, labels, where = make()
    scores.requires_grad_()
    chosen = torch.randn_like(scores) if reference == "predicted" else None
    weights = [1.0, 0.5, 0.25]
    options, lists = {"reference": reference, "reduction": "none"}, {"where": where, "reference_scores": chosen}
    hinge = rs.StructuredHingeLoss(measure, **options)
    expected = sum(
        weight * hinge(scores, (labels >= grade).long(), **lists)
        for grade, weight in zip((1, 2, 3), weights, strict=True)
    )
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), where.sum(1).cumsum(0)])
    flat = {"reference_scores": None if chosen is None else chosen[where], "offsets": offsets}
    (gradient,) = torch.autograd.grad(expected.sum(), scores, retain_graph=True)
    for loss in (
        rs.GradedLoss(measure, grades=[1, 2, 3], grade_weights=weights, **options)(scores, labels, **lists),
        rs.GradedLoss(measure, grade_weights=weights, **options)(scores, labels, **lists),
        rs.GradedLoss(measure, grades=[3, 1, 2], grade_weights=[0.25, 1.0, 0.5], **options)(scores, labels, **lists),
        rs.GradedLoss(measure, grade_weights=weights, **options)(scores[where], labels[where], **flat),
    ):
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(torch.autograd.grad(loss.sum(), scores, retain_graph=True)[0], gradient)


def test_graded_refusals():
    scores, labels, _ = make()
    with pytest.raises(ValueError, match="the thresholds replace min_relevant"):
        rs.GradedLoss("nDCG(min_relevant=1)@10")
    with pytest.raises(ValueError, match="grade_weights must be 2 numbers"):
        rs.GradedLoss("AP", grades=[1, 2], grade_weights=[1.0])
    with pytest.raises(ValueError, match="labels go up to 3, grade_weights to 1"):
        rs.GradedLoss("AP", grade_weights=[1.0])(scores, labels)
    with pytest.raises(ValueError, match="labels must be finite"):
        rs.GradedLoss("AP")(scores, torch.full(scores.shape, torch.nan))
