"""Reference rankings: the order of the bounds, frozen references, ties."""

import lanes
import numpy as np
import pytest
import torch
from brute_force import hinges, random_list
from combinations import legal_combinations

import rankstruct as rs
from rankstruct.oracles.registry import find_oracle

PAIRS = list(
    dict.fromkeys((m, f) for m, f, _ in legal_combinations(cutoffs=(None, 2, 4), decays=("i^-1/2", "discount")))
)
REFERENCES = ("predicted", "ideal-tied", "ideal")


def value(scores, labels, measure, feature_map, **options):
    return rs.most_violated(scores, labels, measure, feature_map=feature_map, **options).value


def test_the_bounds_are_ordered():
    """Task loss of the ranking by score <= predicted <= ideal-tied <= ideal."""
    rng = np.random.default_rng(0)
    for measure, feature_map in PAIRS:
        graded = isinstance(feature_map, rs.Positional)
        scores = torch.tensor(rng.normal(size=(30, 8)) * 10.0 ** rng.integers(-2, 3))
        labels = torch.tensor(rng.integers(0, 4 if graded else 2, size=(30, 8))).double()
        regret = measure.best_value(labels) - rs.evaluate(scores, labels, [measure])[measure.name]
        predicted, tied, ideal = (value(scores, labels, measure, feature_map, reference=r) for r in REFERENCES)
        slack = 1e-9 * max(1.0, float(scores.abs().max()))
        if not isinstance(feature_map, rs.FirstRelevant):  # that map prefers another ranking than the one by score
            assert (regret <= predicted + slack).all()
        assert (predicted <= tied + slack).all()
        assert (tied <= ideal + slack).all()
        assert (predicted >= 0).all()


@pytest.mark.parametrize("device_path", [False, True])
def test_a_frozen_reference_equals_enumeration(device_path, monkeypatch):
    if device_path:
        lanes.use(monkeypatch)
    rng = np.random.default_rng(1)
    # Decays without ties, so that F prefers one ranking alone.
    pairs = [(m, f) for m, f in PAIRS if not isinstance(f, rs.Positional) or f == rs.Positional("i^-1/2")]
    for measure, feature_map in pairs[::4] if device_path else pairs * 10:
        scores, labels, size = random_list(rng, isinstance(feature_map, rs.Positional), 5)
        chosen = rng.normal(size=len(scores))
        expected = hinges(measure, feature_map, labels, scores, chosen)
        for reference in find_oracle(measure, feature_map).references[1:]:
            given = (torch.tensor(scores), torch.tensor(labels), measure)
            found = rs.most_violated(
                *given, feature_map=feature_map, reference=reference, reference_scores=torch.tensor(chosen)
            )
            context = (measure.name, feature_map.name, reference, scores.tolist(), labels.tolist(), chosen.tolist())
            assert abs(found.value.item() - expected[reference]) <= 1e-9 * size, context
            by_direction = found.task_loss + (found.direction * given[0]).sum()
            assert abs(by_direction.item() - expected[reference]) <= 4e-9 * size, context


def test_own_scores_as_reference_scores_change_nothing():
    rng = np.random.default_rng(2)
    for measure, feature_map in PAIRS:
        for rounded in (False, True):
            scores = torch.tensor(rng.normal(size=(6, 9)))
            scores = scores.round() if rounded else scores
            labels = torch.tensor(rng.integers(0, 3 if isinstance(feature_map, rs.Positional) else 2, size=(6, 9)))
            where = torch.tensor(rng.random((6, 9)) < 0.8)
            scores = torch.where(where, scores, torch.nan)
            for reference in find_oracle(measure, feature_map).references[1:]:
                options = {"feature_map": feature_map, "reference": reference, "where": where}
                own = rs.most_violated(scores, labels, measure, **options)
                frozen = rs.most_violated(scores, labels, measure, reference_scores=scores, **options)
                torch.testing.assert_close(own.value, frozen.value, atol=1e-9, rtol=1e-9)
                torch.testing.assert_close(own.task_loss, frozen.task_loss)
                if reference in ("predicted", "below-window"):
                    torch.testing.assert_close(own.direction, frozen.direction)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("device_path", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_documents_of_one_label_and_one_score_have_one_direction(frozen, device_path, monkeypatch):
    """Else a scorer that begins at zero learns the order of the file."""
    if device_path:
        lanes.use(monkeypatch)
    rng = np.random.default_rng(6)
    for measure, feature_map in list(PAIRS)[::4] if device_path else PAIRS:
        graded, shape = isinstance(feature_map, rs.Positional), (2 if device_path else 8, 14)
        by_order = graded or isinstance(feature_map, rs.PredictedPositive)  # an ideal ranking by the order of the list
        for reference in find_oracle(measure, feature_map).references[by_order:]:
            if frozen and reference == "ideal":
                continue
            scores = torch.tensor(np.round(rng.normal(size=shape)) * rng.integers(0, 2, size=(shape[0], 1)))
            labels, where = (
                torch.tensor(rng.integers(0, 3 if graded else 2, size=shape)),
                torch.tensor(rng.random(shape) < 0.9),
            )
            options = {"reference_scores": -scores} if frozen else {}
            found = rs.most_violated(
                scores, labels, measure, feature_map=feature_map, reference=reference, where=where, **options
            )
            by_direction = found.task_loss + (found.direction * scores).sum(1)
            torch.testing.assert_close(by_direction.clamp(min=0), found.value)
            alike = (scores[:, :, None] == scores[:, None]) & (labels[:, :, None] == labels[:, None])
            alike &= where[:, :, None] & where[:, None]
            gap = (found.direction[:, :, None] - found.direction[:, None]).abs()[alike].max()
            assert gap < 1e-12, (measure.name, feature_map.name, reference)


@pytest.mark.parametrize("measure", ["AP", "nDCG@3", "RR", "DCG", "WTA"])
def test_flat_padded_float32_and_half_agree(measure):
    generator = torch.Generator().manual_seed(0)
    scores, chosen = torch.randn(2, 4, 9, generator=generator, dtype=torch.float64)
    labels = (torch.rand(4, 9, generator=generator) < 0.4).long()
    offsets = torch.tensor([0, 9, 9, 18, 27, 36])
    options = {"measure": measure, "reference": "predicted"}
    padded = rs.most_violated(scores, labels, reference_scores=chosen, **options)
    flat = rs.most_violated(
        scores.flatten(), labels.flatten(), reference_scores=chosen.flatten(), offsets=offsets, **options
    )
    torch.testing.assert_close(flat.value[[0, 2, 3, 4]], padded.value)
    assert flat.value[1] == 0
    torch.testing.assert_close(flat.direction.view(4, 9), padded.direction)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.05)):
        rough = rs.most_violated(scores.to(dtype), labels, reference_scores=chosen, **options)
        assert rough.value.dtype == rough.direction.dtype == dtype
        torch.testing.assert_close(rough.value.double(), padded.value, atol=tolerance, rtol=tolerance)


def test_large_scores_leave_small_differences():
    scores = torch.tensor([[1e8 + 0.25, 1e8, 1e8 - 0.5]], dtype=torch.float64)
    labels = torch.tensor([[0, 1, 0]])
    for measure in ("AP", "nDCG"):
        near = rs.StructuredHingeLoss(measure, reference="predicted")(scores - 1e8, labels)
        torch.testing.assert_close(rs.StructuredHingeLoss(measure, reference="predicted")(scores, labels), near)


def test_tied_reference_scores_take_the_best_documents_first():
    """With all scores tied, F prefers every ranking; the one that is taken is ideal, whatever the input order."""
    labels = torch.tensor([[0, 2, 0, 1, 0]])
    scores = torch.randn(1, 5, dtype=torch.float64)
    for measure in ("AP", "DCG", "DCG@2", "RR"):
        loss = rs.StructuredHingeLoss(measure, reference="predicted")
        torch.testing.assert_close(
            loss(scores, labels, reference_scores=torch.zeros(1, 5)),
            rs.StructuredHingeLoss(measure, reference="ideal")(scores, labels),
        )


def test_reference_scores_have_no_gradient_and_pass_through_the_module():
    scores, chosen = torch.randn(2, 3, 6, requires_grad=True).unbind()
    scores, chosen = scores.detach().requires_grad_(), chosen.detach().requires_grad_()
    labels = torch.tensor([[0, 1, 0, 1, 0, 0]]).expand(3, 6)
    loss = rs.StructuredHingeLoss("AP", reference="predicted")
    loss(scores, labels, reference_scores=chosen).backward()
    assert chosen.grad is None
    assert scores.grad.abs().sum() > 0


def test_what_is_refused():
    scores, labels = torch.zeros(2, 3), torch.tensor([[0, 1, 0]] * 2)
    with pytest.raises(ValueError, match="'ideal' does not depend on scores"):
        rs.most_violated(scores, labels, "AP", reference_scores=scores)
    with pytest.raises(ValueError, match="shape and device of scores"):
        rs.most_violated(scores, labels, "AP", reference="predicted", reference_scores=scores[:1])
    with pytest.raises(TypeError, match=r"reference_scores must be a torch\.Tensor, got list"):
        rs.most_violated(scores, labels, "AP", reference="predicted", reference_scores=[0.0])
    with pytest.raises(ValueError, match="finite"):
        rs.most_violated(scores, labels, "DCG", reference="predicted", reference_scores=scores / 0)
    for measure in ("AP", "RR"):
        with pytest.raises(ValueError, match="reference_scores must be finite"):
            rs.most_violated(scores, labels, measure, reference="predicted", reference_scores=scores / 0)
    with pytest.raises(ValueError, match="reference must be one of 'ideal', 'ideal-tied', 'predicted'"):
        rs.most_violated(scores, labels, "AP", reference="best")
