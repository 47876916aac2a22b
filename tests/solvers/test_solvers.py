"""Every solver of the convex problem: the optimum over all rankings, its bounds, and how it stops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solvers.examples import (
    MaxOfPlanes,
    all_rankings,
    linear_risk,
    objective_of,
    optimum_by_slsqp,
    random_data,
    random_planes,
)

import rankstruct as rs
from rankstruct.solvers import Bundle, CuttingPlane, FrankWolfe, Status
from rankstruct.solvers.base import relative_gap

SOLVERS = [Bundle, CuttingPlane, FrankWolfe]
PAIRS = [
    (rs.AP(), rs.Pairwise(), 1),
    (rs.AUC(), rs.Pairwise(), 1),
    (rs.nDCG(2), rs.Pairwise(), 1),
    (rs.RR(), rs.FirstRelevant(), 1),
    (rs.nDCG(3), rs.Positional("i^-0.5"), 2),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("measure", "feature_map", "grades"), PAIRS, ids=lambda value: getattr(value, "name", None))
def test_the_optimum_over_all_rankings(measure, feature_map, grades):
    rng = np.random.default_rng(0)
    for trial, C in enumerate((0.1, 3.0, 30.0)):
        data = random_data(rng, grades=grades, longest=4 if trial else 5)
        w0 = rng.normal(size=3) if trial == 1 else np.zeros(3)
        planes = all_rankings(*data, measure, feature_map)
        expected = optimum_by_slsqp(planes, C, w0)
        risk = linear_risk(*data, measure, feature_map, by_term=True)
        for solver in (
            Bundle(tolerance=1e-7),
            CuttingPlane(tolerance=1e-7),
            FrankWolfe(tolerance=2e-2, max_iterations=1000),  # its rate is 1/iterations
        ):
            solution = solver.minimise(risk, C, w0=w0)
            assert solution.status is Status.CONVERGED, (solver, solution)
            assert solution.gap <= solver.tolerance
            assert solution.objective == pytest.approx(objective_of(planes, solution.w, C, w0), rel=1e-9)
            assert solution.objective <= expected * (1 + 2 * solver.tolerance) + 1e-7
            assert solution.lower_bound <= expected + 1e-9
            assert solution.objective >= expected - 1e-6


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "solver", [Bundle(tolerance=1e-6), CuttingPlane(tolerance=1e-6)], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize(("measure", "feature_map", "grades"), PAIRS, ids=lambda value: getattr(value, "name", None))
def test_certified_from_small_to_large_c(solver, measure, feature_map, grades):
    """Planes that lie below the risk of all rankings, and a dual value from them: a certificate that needs no other solver."""
    rng = np.random.default_rng(1)
    data = random_data(rng, dimension=4, lists=4, longest=5, grades=grades)
    everything = all_rankings(*data, measure, feature_map)
    risk = linear_risk(*data, measure, feature_map)
    warm = None
    for C in 10.0 ** np.arange(-3, 7):
        for start in (None, warm):
            solution = solver.minimise(risk, C, warm_start=start)
            assert solution.status is Status.CONVERGED, (C, solution)
            assert solution.objective == pytest.approx(objective_of(everything, solution.w, C), rel=1e-9)
            planes = solution.planes
            for w in rng.normal(size=(5, 4)) * 10.0 ** rng.integers(-2, 3, (5, 1)):
                values = planes.intercepts + planes.gradients @ w
                ceilings = everything.term_planes(w, np.arange(4))[0] if planes.num_groups > 1 else everything(w)[0]
                above = values - (ceilings[planes.groups] if planes.num_groups > 1 else ceilings)
                assert above.max() <= 1e-9 * max(1, np.abs(w).max())
            alpha = planes.multipliers
            assert (alpha >= 0).all()
            combined = alpha @ planes.gradients
            dual = alpha @ planes.intercepts - C / 2 * combined @ combined
            assert solution.lower_bound <= solution.objective
            assert dual >= solution.objective * (1 - 1e-5) - 1e-9
        warm = solution


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    exponent=st.integers(-3, 3),
    kind=st.sampled_from(SOLVERS),
    iterations=st.integers(1, 12),
    elsewhere=st.booleans(),
)
def test_bounds_hold_whenever_it_stops(seed, exponent, kind, iterations, elsewhere):
    rng = np.random.default_rng(seed)
    risk = random_planes(rng, int(rng.integers(1, 5)), 20, int(rng.integers(1, 6)), 10.0 ** rng.integers(-2, 2))
    C = 10.0**exponent
    w0 = rng.normal(size=risk.dimension) if elsewhere else None
    best = Bundle(tolerance=1e-10, max_iterations=3000).minimise(risk, C, w0=w0)
    solution = kind(tolerance=1e-12, max_iterations=iterations).minimise(risk, C, w0=w0)
    slack = 1e-8 * max(1.0, abs(best.objective))
    assert solution.lower_bound <= best.objective + slack
    assert solution.objective >= best.lower_bound - slack
    assert solution.lower_bound <= solution.objective
    assert (np.diff([record.lower_bound for record in solution.history]) >= -1e-12 * abs(best.objective)).all()
    assert (np.diff([record.objective for record in solution.history]) <= 0).all()


@pytest.mark.parametrize("kind", SOLVERS)
def test_a_warm_start_has_the_same_optimum(kind):
    rng = np.random.default_rng(5)
    risk = random_planes(rng, 4, 60, 5)
    tolerance = 1e-2 if kind is FrankWolfe else 1e-7
    solver = kind(tolerance=tolerance)
    earlier = solver.minimise(risk, 1.0, w0=np.ones(5))
    cold = solver.minimise(risk, 5.0)
    for start in (earlier, earlier.w, Bundle().minimise(risk, 2.0), CuttingPlane().minimise(risk, 2.0)):
        warm = solver.minimise(risk, 5.0, warm_start=start)
        assert warm.status is Status.CONVERGED
        assert relative_gap(warm.objective, cold.lower_bound) <= 3 * tolerance
        assert relative_gap(cold.objective, warm.lower_bound) <= 3 * tolerance
    again = solver.minimise(risk, 5.0, warm_start=cold)
    assert again.iterations <= max(2, cold.iterations // 2)


@pytest.mark.parametrize("kind", SOLVERS)
@pytest.mark.parametrize("after", [0, 1, 4])
def test_an_interrupt_returns_the_best_so_far(kind, after):
    risk = random_planes(np.random.default_rng(6), 3, 200, 8)
    seen = []

    class Interrupted:
        terms, dimension = risk.terms, risk.dimension

        def term_planes(self, w, indices):
            if len(seen) >= after and len(indices) > 1:
                raise KeyboardInterrupt
            seen.append(w)
            return risk.term_planes(w, indices)

        def __call__(self, w):
            values, gradients = self.term_planes(w, np.arange(risk.terms))
            return values.mean(), gradients.mean(0)

    solver = kind(tolerance=1e-9)
    if after == 0:
        with pytest.raises(KeyboardInterrupt):  # nothing was found yet
            solver.minimise(Interrupted(), 1e4)
        return
    solution = solver.minimise(Interrupted(), 1e4)
    assert solution.status is Status.INTERRUPTED
    assert "warm_start" in str(solution.status)
    assert solution.objective == pytest.approx(objective_of(risk, solution.w, 1e4))
    assert solution.lower_bound <= Bundle(tolerance=1e-8).minimise(risk, 1e4).objective
    assert kind(tolerance=1e-2).minimise(risk, 1.0, warm_start=solution).status is Status.CONVERGED


@pytest.mark.parametrize("kind", SOLVERS)
def test_limits_callback_and_progress(kind, capsys):
    risk = random_planes(np.random.default_rng(7), 3, 200, 8)
    limited = kind(tolerance=1e-12, max_iterations=2).minimise(risk, 1e4)
    assert (limited.status, limited.iterations, len(limited.history)) == (Status.ITERATIONS, 2, 2)
    assert "raise max_iterations" in str(limited.status)
    assert kind(tolerance=1e-12, max_seconds=1e-9).minimise(risk, 1e4).status is Status.TIME
    seen = []
    stopped = kind(tolerance=1e-12, callback=lambda record, w: seen.append((record, w)) or len(seen) == 2).minimise(
        risk, 1e4
    )
    assert stopped.status is Status.CALLBACK
    assert [record for record, _ in seen] == list(stopped.history)
    assert objective_of(risk, seen[-1][1], 1e4) == pytest.approx(stopped.objective)
    capsys.readouterr()
    kind(max_iterations=3, progress=True).minimise(risk, 10.0)
    assert "gap=" in capsys.readouterr().err
    record = limited.history[-1]
    assert record.oracle_seconds > 0
    assert record.planes > 0
    assert record.seconds >= record.oracle_seconds + record.qp_seconds


@pytest.mark.parametrize("kind", SOLVERS)
def test_bad_input(kind):
    risk = random_planes(np.random.default_rng(8))
    for C in (0, -1.0, np.nan, np.inf, "1", None):
        with pytest.raises(ValueError, match="C must be a finite number above 0"):
            kind().minimise(risk, C)
    with pytest.raises(ValueError, match=r"w0 must have shape \[d\] = \(4,\), got \(3,\)"):
        kind().minimise(risk, 1.0, w0=np.zeros(3))
    with pytest.raises(ValueError, match=r"warm_start must be finite, got nan at warm_start\[0\]"):
        kind().minimise(risk, 1.0, warm_start=np.full(4, np.nan))
    broken = MaxOfPlanes(risk.gradients, np.full(len(risk.intercepts), np.nan), risk.groups)
    with pytest.raises(ValueError, match="must be finite, got nan"):
        kind().minimise(broken, 1.0)
    for options in ({"tolerance": 0}, {"max_iterations": 0}, {"max_seconds": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            kind(**options)


@pytest.mark.parametrize("kind", SOLVERS)
def test_degenerate_risks(kind):
    """Zero everywhere, no features, one plane a term, duplicate and all-zero rows, lists with nothing to learn."""
    zero = MaxOfPlanes(np.zeros((2, 3)), np.zeros(2), np.array([0, 1]))
    solution = kind().minimise(zero, 1.0)
    assert (solution.objective, solution.gap, solution.status) == (0.0, 0.0, Status.CONVERGED)
    assert kind().minimise(MaxOfPlanes(np.zeros((2, 0)), np.ones(2), np.array([0, 1])), 1.0).objective == 1
    single = MaxOfPlanes(np.array([[1.0, 2.0]]), np.array([1.0]), np.array([0]))
    assert kind(tolerance=1e-9).minimise(single, 0.1).w == pytest.approx([-0.1, -0.2])

    rng = np.random.default_rng(9)
    X, y, offsets = random_data(rng, dimension=5, lists=6, longest=6)
    X[:, 1] = 1  # constant
    X[:, 2] = 0
    X[:, 3] = X[:, 0]  # the same feature twice
    X[offsets[1] : offsets[1] + 2] = X[offsets[1]]  # the same document, relevant and not
    y[offsets[2] : offsets[3]] = 0
    X[offsets[3] : offsets[4]] = 0
    for C in (1e-3, 1.0) if kind is FrankWolfe else (1e-3, 1.0, 1e3, 1e6):
        solution = kind(tolerance=1e-2).minimise(linear_risk(X, y, offsets, "AP", by_term=True), C)
        assert solution.status is Status.CONVERGED
        assert solution.w[2] == 0
        assert solution.w[0] == pytest.approx(solution.w[3])


def test_no_progress_is_told():
    risk = random_planes(np.random.default_rng(10), 3, 100, 6, 1e3)
    for kind in (Bundle, CuttingPlane):
        solution = kind(tolerance=1e-300, max_iterations=5000).minimise(risk, 1e6)
        assert solution.status in (Status.STALLED, Status.CONVERGED)
        assert solution.gap < 1e-8


def test_few_planes_are_enough():
    risk = random_planes(np.random.default_rng(11), 1, 2000, 8)
    free, bounded = (Bundle(tolerance=1e-5, max_planes=limit).minimise(risk, 1e3) for limit in (400, 12))
    assert bounded.status is Status.CONVERGED
    assert bounded.history[-1].planes <= 12 + 9 + 1
    assert bounded.objective == pytest.approx(free.objective, rel=2e-5)
    risk = random_planes(np.random.default_rng(12), 20, 2000, 8)
    bounded = CuttingPlane(tolerance=1e-5, planes_per_term=2).minimise(risk, 1e3)
    assert bounded.status is Status.CONVERGED
    assert max(record.planes for record in bounded.history) <= 20 * 3 + 28


def test_frank_wolfe_blocks_and_seed():
    risk = random_planes(np.random.default_rng(13), 10, 100, 5)
    one, same, block = (FrankWolfe(seed=s, block_size=k).minimise(risk, 1.0) for s, k in ((1, 1), (1, 1), (2, 4)))
    np.testing.assert_array_equal(one.w, same.w)
    assert relative_gap(block.objective, one.lower_bound) <= 2e-3
    with pytest.raises(ValueError, match="block_size"):
        FrankWolfe(block_size=0)


def test_the_bundle_method_on_letor(data_root):
    """SVMmap on one fold of OHSUMED: passes over the data along a path of C, and the same optimum from n slacks."""
    from rankstruct.data import read_folds

    train = read_folds(data_root / "letor" / "OHSUMED", 1).train
    risk = linear_risk(train.features, train.labels.copy(), train.offsets.copy(), "AP")
    solution, iterations = None, 0
    for C in (1.0, 100.0, 10_000.0):
        solution = Bundle().minimise(risk, C, warm_start=solution)
        assert solution.status is Status.CONVERGED
        iterations += solution.iterations
    assert iterations < 150
    other = CuttingPlane().minimise(risk, 10_000.0)
    assert relative_gap(solution.objective, other.lower_bound) <= 2e-3
    assert relative_gap(other.objective, solution.lower_bound) <= 2e-3
