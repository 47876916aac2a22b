"""AUC's hinge over all thresholds in one sweep: against all rankings, pair by pair, and threshold by threshold."""

import lanes
import numpy as np
import pytest
import torch
from brute_force import graded_auc_by_pairs, hinges_of_lists

import rankstruct as rs


def draw(rng, most=30):
    """Lists padded in random places, with ties and margins of exactly 1/2, thresholds in any order, few and many."""
    lists, size, number = int(rng.integers(1, 6)), int(rng.integers(1, most)), int(rng.integers(1, 13))
    scores = rng.normal(size=(lists, size)) * 10.0 ** rng.integers(-3, 4, size=(lists, 1))
    scores = np.where(rng.random((lists, 1)) < 0.4, np.round(scores * 2) / 2, scores).astype(np.float32).astype(float)
    thresholds = rng.choice([rng.permutation(number) + 1.0, rng.normal(size=number)])
    labels = rng.choice([rng.integers(0, number + 2, size=(lists, size)) * 1.0, rng.normal(size=(lists, size))])
    labels = labels if thresholds.min() <= 0 else abs(labels)
    return scores, labels, rng.random((lists, size)) < 0.8, thresholds, rng.choice([0.0, 0.5, 1.0, 2.0], size=number)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("device", [False, True])
@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_value_and_gradient_are_those_of_the_pairs(dtype, device, monkeypatch):
    if device:
        lanes.use(monkeypatch)
    rng = np.random.default_rng(0)
    for _ in range(4 if device else 150):
        scores, labels, where, thresholds, weights = draw(rng)
        expected = [
            graded_auc_by_pairs(s[w], y[w], thresholds, weights) for s, y, w in zip(scores, labels, where, strict=True)
        ]
        scale = 1 + abs(scores).max(1)
        given = torch.tensor(scores, dtype=dtype).masked_fill(~torch.tensor(where), torch.nan).requires_grad_()
        padded = torch.tensor(labels).masked_fill(~torch.tensor(where), torch.nan)
        options = {"grades": thresholds.tolist(), "grade_weights": weights.tolist(), "reduction": "none"}
        loss = rs.GradedLoss("AUC", **options)
        value = loss(given, padded, where=torch.tensor(where))
        (gradient,) = torch.autograd.grad(value.sum(), given)
        tolerance = 1e-9 if dtype == torch.float64 else 1e-5
        assert (abs(value.detach().double().numpy() - [each for each, _ in expected]) <= tolerance * 12 * scale).all()
        for list_gradient, (_, its), real in zip(gradient.double().numpy(), expected, where, strict=True):
            assert abs(list_gradient[real] - its).max(initial=0) <= tolerance * 12
            assert (list_gradient[~real] == 0).all()
        bounds = [0, *where.sum(1).cumsum().tolist()]
        flat = loss(given[torch.tensor(where)], padded[torch.tensor(where)], offsets=bounds)
        torch.testing.assert_close(flat, value)


@pytest.mark.filterwarnings("ignore:scores .* are lists of one document")
def test_value_is_that_of_all_rankings():
    rng, auc, compared = np.random.default_rng(1), rs.parse_measure("AUC"), 0
    while compared < 2000:
        n, grades = int(rng.integers(0, 7)), int(rng.integers(1, 10))
        scores = rng.normal(size=(40, n)) * 10.0 ** rng.integers(-2, 3, size=(40, 1))
        labels = np.sort(rng.integers(0, grades + 1, size=n))[::-1].copy()  # the first p reach each threshold
        each = [hinges_of_lists(auc, rs.Pairwise(), int((labels >= t).sum()), scores) for t in range(1, grades + 1)]
        found = rs.GradedLoss("AUC", reduction="none")(torch.tensor(scores), torch.tensor(labels).expand(40, n))
        np.testing.assert_allclose(found, np.sum(each, axis=0), atol=1e-9 * (1 + abs(scores).max(initial=0)) * grades)
        compared += 40


def test_many_documents_and_many_thresholds():
    rng = np.random.default_rng(2)
    scores, labels = torch.tensor(rng.normal(size=(2, 3000))), torch.tensor(rng.integers(0, 200, size=(2, 3000)))
    found = rs.GradedLoss("AUC", reduction="none")(scores, labels)
    each = [rs.StructuredHingeLoss("AUC", reduction="none")(scores, (labels >= t).long()) for t in range(1, 200)]
    torch.testing.assert_close(found, torch.stack(each).sum(0))


def test_a_pair_that_leads_by_enough_costs_exactly_nothing():
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.5, 0.0]]).requires_grad_()
    loss = rs.GradedLoss("AUC")(scores, torch.tensor([[4, 3, 2, 1, 0]]))
    loss.backward()
    assert loss == 0
    assert torch.equal(scores.grad, torch.zeros(1, 5))


@pytest.mark.parametrize("grades", [[1, 2], [2, 1], None])
def test_weights_by_grade_are_those_in_order(grades):
    scores, labels = torch.tensor([0.5, 2.0, 1.0, -1.0]), torch.tensor([2, 0, 1, 0])
    expected = rs.GradedLoss("AUC", grades=[1, 2], grade_weights=[1.0, 5.0])(scores, labels)
    assert rs.GradedLoss("AUC", grades=grades, grade_weights={2: 5.0, 1: 1.0})(scores, labels) == expected


@pytest.mark.parametrize("measure", ["AUC", "AP"])
def test_what_is_wrong_is_named(measure):
    labels = torch.tensor([[2, 1, 0]])
    with pytest.raises(ValueError, match=r"scores must be finite; document \[0, 1\] is inf"):
        rs.GradedLoss(measure)(torch.tensor([[0.0, torch.inf, 0.0]]), labels)
    with pytest.raises(ValueError, match="reference 'ideal' does not depend on scores"):
        rs.GradedLoss(measure)(torch.zeros(1, 3), labels, reference_scores=torch.zeros(1, 3))
    with pytest.raises(ValueError, match=r"grades\[1\] must be a finite number, got nan"):
        rs.GradedLoss(measure, grades=[1.0, torch.nan])
    for wrong in (4, {1: 1.0, 2: 5.0}, "12"):
        with pytest.raises(TypeError, match=r"grades must be a sequence of numbers, such as \[1, 2\]"):
            rs.GradedLoss(measure, grades=wrong)
    with pytest.raises(ValueError, match=r"a weight for each of the grades \[1, 2\]"):
        rs.GradedLoss(measure, grades=[1, 2], grade_weights={1: 1.0})
    with pytest.raises(ValueError, match=r"grade_weights must be 2 numbers"):
        rs.GradedLoss(measure, grades=[1, 2], grade_weights=[1.0])
    with pytest.raises(ValueError, match="that of document"):
        rs.GradedLoss(measure, grades=[1.0])(torch.zeros(1, 3), torch.tensor([[2.0, -1.0, 0.0]]))
    far, signed = torch.tensor([[1.5e308, -1.5e308, 0.0]], dtype=torch.float64), torch.tensor([[0, -1, -2]])
    with pytest.raises(ValueError, match="scores of a list are too far apart"):
        rs.GradedLoss(measure, grades=[-1, 0])(far, signed)
    with pytest.raises(ValueError, match="is inf: scores, labels or weights are too large for"):
        rs.GradedLoss(measure, grade_weights=[1e300])(torch.tensor([[0.0, 1.0]]), torch.tensor([[1, 0]]))
    assert (
        rs.GradedLoss(measure, grades=[-1.0])(torch.zeros(1, 3), torch.tensor([[2.0, -1.0, 0.0]])) == 0
    )  # all reach it


def test_an_oracle_of_ones_own_is_asked_for_each_threshold():
    from dataclasses import replace

    from rankstruct.oracles.registry import find_oracle, register_oracle

    own, asked = find_oracle(rs.parse_measure("AUC"), rs.Pairwise()), []

    def solve(*given, **more):
        asked.append(given)
        return own.solve(*given, **more)

    scores, labels = torch.tensor([[1.0, 0.2, 0.0]]), torch.tensor([[0, 2, 1]])
    expected = rs.GradedLoss("AUC")(scores, labels)
    register_oracle(rs.AUC, rs.Pairwise, replace(own, solve=solve, solve_grades=None))
    try:
        torch.testing.assert_close(rs.GradedLoss("AUC")(scores, labels), expected)
    finally:
        register_oracle(rs.AUC, rs.Pairwise, own)
    assert len(asked) == 1
    assert asked[0][0].shape[0] == 2


@pytest.mark.parametrize("device", [False, True])
def test_without_a_threshold_nothing_costs_anything(device, monkeypatch):
    if device:
        lanes.use(monkeypatch)
    scores = torch.randn(2, 5, requires_grad=True)
    for labels, grades in ((torch.zeros(2, 5, dtype=torch.long), None), (torch.ones(2, 5), [])):
        loss = rs.GradedLoss("AUC", grades=grades)(scores, labels)
        assert loss == 0
        assert not torch.autograd.grad(loss, scores)[0].any()


@pytest.mark.soak
@pytest.mark.parametrize("measure", ["AUC", "AP"])
def test_grades_and_weights_of_any_numbers_compile(measure):
    scores, labels = torch.randn(4, 12), torch.randint(0, 4, (4, 12))
    torch.compiler.reset()  # it limits how often one function is compiled
    for grades, weights in (([1.0, 2.0], None), ([0.5, 2.0], None), ([2, 1], [0.5, 1.5])):
        loss = rs.GradedLoss(measure, grades=grades, grade_weights=weights)
        for dynamic in (None, True):
            traced = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)
            torch.testing.assert_close(traced(scores, labels), loss(scores, labels))


@pytest.mark.parametrize(
    ("measure", "options"),
    [
        ("AUC", {}),
        pytest.param("AP", {"grade_weights": [1.0, 0.5, 2.0]}, marks=pytest.mark.soak),
        pytest.param("nDCG@10", {}, marks=pytest.mark.soak),
        pytest.param("R@5", {"grade_weights": [1.0, 0.5, 2.0]}, marks=pytest.mark.soak),
    ],
)
def test_all_grades_of_the_labels_compile_and_map(measure, options):
    scores, where = torch.randn(4, 12, requires_grad=True), torch.rand(4, 12) < 0.8
    loss = rs.GradedLoss(measure, **options)
    torch.compiler.reset()
    traced = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for number, labels in enumerate((torch.randint(0, 4, (4, 12)), torch.randint(0, 2, (4, 12)), torch.zeros(4, 12))):
        for real in (None, where) if number == 0 else (where,):
            found, expected = traced(scores, labels, where=real), loss(scores, labels, where=real)
            torch.testing.assert_close(found, expected)
            gradients = [torch.autograd.grad(each, scores)[0] for each in (found, expected)]
            torch.testing.assert_close(*gradients)
        each = rs.GradedLoss(measure, reduction="none", **options)
        mapped = torch.func.vmap(lambda s, y, w, each=each: each(s, y, where=w))(scores, labels, where)
        torch.testing.assert_close(mapped, each(scores, labels, where=where))
    with pytest.raises(ValueError, match="pass grades="):
        torch.func.vmap(loss)(scores, labels + 10**6)


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize("measure", ["AP", "AUC", "RR", "P@3", "F1", "nDCG@3", "pAUC(high=0.5)"])
def test_without_a_threshold_there_is_nothing_to_sum(measure, device, monkeypatch):
    """No grades, or labels of which none reaches the first whole one."""
    if device:
        lanes.use(monkeypatch)
    scores, where = torch.randn(4, 6, requires_grad=True), torch.rand(4, 6) < 0.9
    for reference in (None, "predicted"):
        for options, labels in (({"grades": []}, torch.randint(0, 3, (4, 6))), ({}, torch.rand(4, 6))):
            loss = rs.GradedLoss(measure, reference=reference, reduction="none", **options)
            for given in ({}, {"where": where}):
                value = loss(scores, labels, **given)
                assert not value.any()
                assert not torch.autograd.grad(value.sum(), scores)[0].any()
            assert loss(scores.flatten(), labels.flatten(), offsets=[0, 6, 24]).tolist() == [0, 0]
