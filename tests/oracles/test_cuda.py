"""On a GPU: the same answers as on the CPU, gradients there, nothing that is not finite passes unseen."""

import pytest
import torch
from combinations import diverse_combinations, legal_combinations

import rankstruct as rs

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_every_combination_agrees_with_the_cpu():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 40, generator=generator, dtype=torch.float64)
    where = torch.rand(5, 40, generator=generator) < 0.8
    for measure, feature_map, reference in legal_combinations(cutoffs=(None, 3)):
        grades = 4 if isinstance(feature_map, rs.Positional) else 2
        labels = torch.randint(0, grades, (5, 40), generator=generator)
        options = {"feature_map": feature_map, "reference": reference}
        there = rs.most_violated(scores.cuda(), labels.cuda(), measure, where=where.cuda(), **options)
        here = rs.most_violated(scores, labels, measure, where=where, **options)
        assert there.value.device.type == "cuda"
        torch.testing.assert_close(there.value.cpu(), here.value, atol=1e-9, rtol=1e-9)


def test_every_diverse_combination_agrees_with_the_cpu():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 40, generator=generator, dtype=torch.float64)
    labels, diversity_groups = (torch.randint(0, most, (5, 40), generator=generator) for most in (4, 25))
    for measure, feature_map, reference in diverse_combinations(cutoffs=(3,)):
        options = {"measure": rs.Diverse(measure), "feature_map": feature_map, "reference": reference}
        there = rs.most_violated(scores.cuda(), labels.cuda(), diversity_groups=diversity_groups.cuda(), **options)
        here = rs.most_violated(scores, labels, diversity_groups=diversity_groups, **options)
        assert there.value.device.type == "cuda"
        torch.testing.assert_close(there.value.cpu(), here.value, atol=1e-9, rtol=1e-9)


def test_training_step_flat_and_padded():
    scores = torch.randn(6, 30, device="cuda", requires_grad=True)
    labels = torch.randint(0, 2, (6, 30), device="cuda")
    for measure in ("AP", "AUC", "nDCG@5", "RR@5", "DCG@5"):
        loss = rs.StructuredHingeLoss(measure)(scores, labels)
        (gradient,) = torch.autograd.grad(loss, scores)
        offsets = torch.arange(7, device="cuda") * 30
        flat = rs.StructuredHingeLoss(measure)(scores.flatten(), labels.flatten(), offsets=offsets)
        (again,) = torch.autograd.grad(flat, scores)
        torch.testing.assert_close(loss, flat)
        torch.testing.assert_close(gradient, again)
        assert gradient.device.type == "cuda"


def test_scores_that_are_not_finite_show():
    scores = torch.tensor([[0.0, float("nan")], [0.0, 1.0]], device="cuda")
    labels = torch.tensor([[0, 1], [0, 1]], device="cuda")
    assert rs.StructuredHingeLoss("AP", reduction="none")(scores, labels).isnan().tolist() == [True, False]


def test_compiled_and_autocast():
    model, loss = rs.MLPScorer(4).cuda(), rs.StructuredHingeLoss("AP")
    features = torch.randn(3, 20, 4, device="cuda")
    labels = torch.randint(0, 2, (3, 20), device="cuda")

    def step(x, y):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            scores = model(x)
        return loss(scores, y)

    torch.compile(step, fullgraph=True, backend="aot_eager")(features, labels).backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())
