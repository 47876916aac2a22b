"""Annealing towards a convex hinge ends where the exact solver does."""

import numpy as np
import pytest
from solvers.examples import flat_lists

from rankstruct.solvers import Annealing, Bundle, LinearRisk, Status

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
SIGNS = np.sign(X @ RNG.normal(size=4) + 0.5 * RNG.normal(size=60))
C = 5.0


def hinge(scores):
    margins = 1 - SIGNS * scores
    return np.maximum(margins, 0), np.where(margins > 0, -SIGNS, 0.0)


RISK = LinearRisk(flat_lists(X, np.arange(61)), hinge)


def make_smooth(sigma):
    def smooth(w):
        margins = (1 - SIGNS * (X @ w)) / sigma
        slope = 0.5 * (1 + np.tanh(margins / 2))
        return (sigma * np.logaddexp(0, margins)).mean(), X.T @ (-SIGNS * slope) / len(X)

    return smooth


def true_risk(w):
    return RISK(w)[0]


def test_annealing_tends_to_the_optimum():
    exact = Bundle(tolerance=1e-8).minimise(RISK, C)
    solution = Annealing(sigma=1.0, stages=12).minimise(make_smooth, C, w0=np.zeros(4), true_risk=true_risk)
    assert solution.status is Status.CONVERGED
    assert exact.lower_bound <= solution.objective <= exact.objective * (1 + 1e-3)
    assert len(solution.history) == 12
    objectives = [record.objective for record in solution.history]
    assert objectives == sorted(objectives, reverse=True)
    last = Annealing(sigma=1.0, stages=12).minimise(make_smooth, C, w0=np.zeros(4))
    smooth_objective = last.w @ last.w / (2 * C) + make_smooth(2.0**-11)(last.w)[0]
    assert last.objective == pytest.approx(smooth_objective)


def test_one_stage_is_plain_and_finds_a_stationary_point():
    w0 = np.ones(4)
    solution = Annealing(stages=1, tolerance=1e-8).minimise(make_smooth, C, w0=w0, start=np.zeros(4))
    gradient = (solution.w - w0) / C + make_smooth(1.0)(solution.w)[1]
    assert np.abs(gradient).max() < 1e-6


def test_limits_interrupts_and_errors():
    assert Annealing(max_iterations=1).minimise(make_smooth, C, w0=np.zeros(4)).status is Status.ITERATIONS
    assert Annealing(max_seconds=1e-9).minimise(make_smooth, C, w0=np.zeros(4)).status is Status.TIME
    stopped = Annealing(callback=lambda record, w: True).minimise(make_smooth, C, w0=np.zeros(4))
    assert (stopped.status, len(stopped.history)) == (Status.CALLBACK, 1)

    def interrupted(sigma):
        calls = []

        def smooth(w):
            calls.append(w)
            if len(calls) > 3:
                raise KeyboardInterrupt
            return make_smooth(sigma)(w)

        return smooth

    solution = Annealing().minimise(interrupted, C, w0=np.zeros(4))
    assert solution.status is Status.INTERRUPTED
    assert solution.objective <= make_smooth(1.0)(np.zeros(4))[0]
    with pytest.raises(ValueError, match="must be finite"):
        Annealing().minimise(lambda sigma: lambda w: (np.nan, w), C, w0=np.zeros(4))
    with pytest.raises(ValueError, match="sigma"):
        Annealing(sigma=0)
    with pytest.raises(ValueError, match="stages"):
        Annealing(stages=0)


def test_a_flat_first_stage_does_not_end_the_search_where_all_later_gradients_are_zero():
    def make_wells(sigma):  # wells around +-1.4 that the first stage does not see; 0 is stationary for all
        def wells(w):
            if sigma == 1.0:
                return 0.0, np.zeros(1)
            square = w[0] ** 2
            return -2 * square / (sigma**2 + square), -4 * w * sigma**2 / (sigma**2 + square) ** 2

        return wells

    flat = Annealing(sigma=1.0, stages=1).minimise(make_wells, 1.0, w0=np.zeros(1), start=np.ones(1))
    assert flat.w == 0
    solution = Annealing(sigma=1.0, stages=2).minimise(make_wells, 1.0, w0=np.zeros(1), start=np.ones(1))
    assert solution.w[0] > 0.4
    assert solution.objective < -0.5


def make_detour(sigma):  # the first stage leads from the one well of the last stage out to where that is flat
    def detour(w):
        if sigma == 1.0:
            return float((w[0] - 9) ** 2), 2 * (w - 9)
        depth = np.exp(-(w[0] ** 2))
        return float(1 - depth), 2 * w * depth

    return detour


def test_the_result_is_never_worse_than_the_start_by_the_last_stage():
    solution = Annealing(sigma=1.0, stages=2).minimise(make_detour, 1e6, w0=np.zeros(1), start=np.array([0.3]))
    assert solution.w == pytest.approx(np.zeros(1), abs=1e-3)
    assert solution.objective == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("options", [{"max_seconds": 1e-9}, {"callback": lambda record, w: True}])
def test_the_objective_is_that_of_the_last_stage_whenever_it_stops(options):
    start = np.array([1.0])
    found = Annealing(sigma=1.0, stages=2, **options).minimise(make_detour, 10.0, w0=np.zeros(1), start=start)
    assert found.status in (Status.TIME, Status.CALLBACK)
    assert found.objective == pytest.approx(found.w[0] ** 2 / 20 + 1 - np.exp(-(found.w[0] ** 2)))
    assert found.objective <= 1 / 20 + 1 - np.exp(-1.0) + 1e-12
