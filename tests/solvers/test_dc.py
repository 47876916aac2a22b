"""DC rounds for the bound with a predicted reference: monotone, and no worse than the start."""

import itertools

import numpy as np
import pytest
import torch
from brute_force import decay
from solvers.examples import flat_lists, linear_risk, random_data

import rankstruct as rs
from rankstruct.solvers import DC, Bundle, CuttingPlane, LinearRisk, Status
from rankstruct.solvers.dc import _Tilted

FEATURE_MAP = rs.Positional("i^-0.5")


def psi_by_score(scores, offsets):
    """The positional feature map of the rankings by score."""
    result = np.empty(len(scores))
    for a, b in itertools.pairwise(offsets):
        result[a + np.argsort(-scores[a:b], kind="stable")] = decay("i^-0.5", None, b - a, [])
    return result


def problem(seed):
    X, y, offsets = random_data(np.random.default_rng(seed), dimension=4, lists=12, longest=8, grades=2)
    predicted = linear_risk(X, y, offsets, "nDCG@3", FEATURE_MAP, "predicted")
    ideal = linear_risk(X, y, offsets, "nDCG@3", FEATURE_MAP, "ideal")
    lengths = np.diff(offsets)

    def concave(w):
        """The score of the rankings by score, less that of the ideal ones; its mean over lists."""
        direction = psi_by_score(X @ w, offsets) - psi_by_score(y, offsets)
        return direction @ (X @ w) / len(lengths), X.T @ direction / len(lengths)

    assert (lengths > 0).all()
    return ideal, concave, lambda w: predicted(w)[0], X, y, offsets


def test_the_linearised_problem_bounds_the_true_one_and_touches_it():
    rng = np.random.default_rng(0)
    convex, concave, true_risk, *_ = problem(0)
    for _ in range(10):
        v, w = rng.normal(size=(2, 4)) * 3
        value, gradient = concave(v)
        assert convex(v)[0] - value == pytest.approx(true_risk(v))
        tilted = _Tilted(convex, gradient, value - gradient @ v)
        assert tilted(v)[0] == pytest.approx(true_risk(v))
        assert tilted(w)[0] >= true_risk(w) - 1e-12
        planes, term = tilted.term_planes(w, np.arange(convex.terms))
        assert planes.mean() == pytest.approx(tilted(w)[0])
        np.testing.assert_allclose(term.mean(0), tilted(w)[1])


def test_planes_of_one_round_lie_below_the_next_one():
    convex, concave, *_ = problem(0)
    rng = np.random.default_rng(1)
    first, second = (_Tilted(convex, concave(v)[1], concave(v)[0]) for v in rng.normal(size=(2, 4)))
    planes = Bundle(tolerance=1e-6).minimise(first, 10.0).planes
    moved = second.moved(first.moved(planes, 1.0), -1.0)
    for w in rng.normal(size=(20, 4)) * 3:
        assert (moved.gradients @ w + moved.intercepts).max() <= second(w)[0] + 1e-9
    assert (moved.gradients @ w + moved.intercepts).max() != pytest.approx(
        (planes.gradients @ w + planes.intercepts).max()
    )


@pytest.mark.parametrize(
    "solver", [Bundle(), CuttingPlane(), Bundle(tolerance=0.3)], ids=["bundle", "n-slack", "loose"]
)
def test_monotone_and_no_worse_than_the_start(solver):
    for seed in range(4):
        convex, concave, true_risk, X, y, _ = problem(seed)
        start = np.linalg.lstsq(X, 2.0**y - 1, rcond=None)[0]
        rounds = []
        solution = DC(solver=solver, callback=lambda record, w, seen=rounds: seen.append(record.objective)).minimise(
            convex, concave, 100.0, w0=start
        )
        assert solution.status is Status.CONVERGED
        objectives = [record.objective for record in solution.history]
        assert objectives == sorted(objectives, reverse=True)
        assert objectives[0] == pytest.approx(true_risk(start))
        assert rounds == objectives[1:]
        away = solution.w - start
        assert solution.objective == pytest.approx(away @ away / 200 + true_risk(solution.w))
        assert solution.lower_bound == -np.inf


def test_the_frozen_reference_is_what_the_loss_calls_predicted():
    *_, true_risk, X, y, offsets = problem(1)
    w = np.array([1.0, -2.0, 0.5, 3.0])
    loss = rs.StructuredHingeLoss("nDCG@3", feature_map=FEATURE_MAP, reference="predicted")(
        torch.tensor(X @ w), torch.tensor(y), offsets=torch.tensor(offsets)
    )
    assert true_risk(w) == pytest.approx(loss.item())


def test_limits_interrupts_and_errors():
    convex, concave, *_ = problem(2)
    w0 = np.zeros(4)
    assert DC(max_rounds=1, tolerance=0).minimise(convex, concave, 1e3, w0=w0).iterations == 1
    assert DC(max_seconds=1e-9, tolerance=0).minimise(convex, concave, 1e3, w0=w0).status in (
        Status.TIME,
        Status.CONVERGED,
    )
    calls = []

    def interrupted(w):
        calls.append(w)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return concave(w)

    solution = DC(tolerance=0).minimise(convex, interrupted, 1e3, w0=w0)
    assert (solution.status, solution.iterations) == (Status.INTERRUPTED, 1)
    with pytest.raises(ValueError, match="C must be"):
        DC().minimise(convex, concave, 0.0, w0=w0)
    with pytest.raises(ValueError, match="concave part must be finite"):
        DC().minimise(convex, lambda w: (np.nan, w), 1.0, w0=w0)
    with pytest.raises(ValueError, match="max_rounds"):
        DC(max_rounds=0)


def test_bounds_that_touch_a_risk_lower_it_to_what_gradients_find():
    """SVM PropDCG of a small problem, as its tangents, never rises and ends at a stationary point."""
    rng = np.random.default_rng(0)
    X, offsets = rng.normal(size=(120, 3)), np.arange(0, 121, 12)
    relevant = np.arange(120)[X[:, 0] + rng.normal(size=120) > 1]

    def behind(scores, i):
        its = np.arange(i // 12 * 12, i // 12 * 12 + 12)
        hinges = np.maximum(0, 1 + scores[its] - scores[i]) * (its != i)
        slope = np.zeros(120)
        slope[its] = hinges > 0
        slope[i] = -(hinges > 0).sum()
        return hinges.sum(), slope

    def risk_at(fixed=None):
        def oracle(scores):
            values, direction = np.zeros(10), np.zeros(120)
            for i in relevant:
                (cost, slope), at = behind(scores, i), behind(scores if fixed is None else X @ fixed, i)[0]
                values[i // 12] += np.sqrt(1 + at) + (cost - at) / 2 / np.sqrt(1 + at)
                direction += slope / 2 / np.sqrt(1 + at)
            return values, direction

        return LinearRisk(flat_lists(X, offsets), oracle)

    found = DC(solver=Bundle(tolerance=1e-6), tolerance=1e-9).minimise_bounds(risk_at(), risk_at, 5.0)
    objectives = [record.objective for record in found.history]
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(objectives))
    assert found.status is Status.CONVERGED
    assert found.lower_bound == -np.inf
    values = [
        w @ w / 10 + risk_at()(w)[0] for w in (found.w, *(found.w + 0.02 * rng.normal(size=3) for _ in range(50)))
    ]
    assert values[0] == pytest.approx(found.objective)
    assert min(values) >= values[0] - 1e-6
