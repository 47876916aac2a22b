"""The quadratic program: certified by its own duality gap, recomputed here, and against SciPy at small sizes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solvers.examples import optimum_by_slsqp, random_planes

from rankstruct.solvers import PlaneQP


def load(planes):
    qp = PlaneQP(planes.dimension, np.full(planes.terms, 1 / planes.terms))
    qp.add(planes.gradients, planes.intercepts, planes.groups)
    return qp


def certify(qp, result, C, w0, tolerance):
    """Feasible multipliers whose dual value equals the primal one at w: optimal, by weak duality alone."""
    alpha = qp.multipliers
    assert (alpha >= 0).all()
    np.testing.assert_allclose(np.bincount(qp.groups, alpha, len(qp.masses)), qp.masses, rtol=1e-12)
    values = qp.intercepts + qp.gradients @ result.w
    primal = ((result.w - w0) ** 2).sum() / (2 * C)
    primal += sum(m * values[qp.groups == g].max() for g, m in enumerate(qp.masses))
    combined = alpha @ qp.gradients
    dual = alpha @ (qp.intercepts + qp.gradients @ w0) - C / 2 * combined @ combined
    size = np.abs(qp.intercepts + qp.gradients @ w0).max()
    assert result.value == pytest.approx(primal, rel=1e-9, abs=1e-9 * size)
    assert result.lower_bound == pytest.approx(dual, rel=1e-9, abs=1e-9 * size)
    assert primal - dual <= tolerance * max(size, abs(primal)), (primal, dual)


@pytest.mark.parametrize("terms", [1, 3])
def test_equals_slsqp(terms):
    rng = np.random.default_rng(terms)
    for _ in range(15):
        planes = random_planes(rng, terms=terms)
        C, w0 = 10.0 ** rng.integers(-2, 3), rng.normal(size=4)
        result = load(planes).solve(C, w0)
        expected = optimum_by_slsqp(planes, C, w0)
        assert result.value == pytest.approx(expected, rel=1e-6, abs=1e-8)


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    exponent=st.integers(-3, 6),
    scale=st.integers(-3, 3),
    terms=st.integers(1, 4),
    kind=st.sampled_from(["plain", "integers", "doubled", "nearly doubled", "flat", "two scales"]),
)
def test_certified_from_small_to_large_c(seed, exponent, scale, terms, kind):
    rng = np.random.default_rng(seed)
    planes = random_planes(rng, terms, int(rng.integers(terms, 25)), int(rng.integers(1, 8)), 10.0**scale)
    g = planes.gradients
    half = len(g) // 2
    if kind == "integers":
        planes.gradients = np.round(g)
    elif kind in ("doubled", "nearly doubled"):
        g[half : 2 * half] = g[:half] * (1 if kind == "doubled" else 1 + 1e-9)
    elif kind == "flat":
        g[::2] = 0
    elif kind == "two scales":
        g[:, : max(1, planes.dimension // 2)] *= 1e-4
    C, w0 = 10.0**exponent, rng.normal(size=planes.dimension) * 10.0 ** rng.integers(-2, 2)
    qp = load(planes)
    certify(qp, qp.solve(C, w0), C, w0, 1e-8)


def test_warm_solves_after_adding_removing_and_another_c():
    rng = np.random.default_rng(0)
    for terms in (1, 4):
        planes = random_planes(rng, terms, 120, 9)
        qp = PlaneQP(9, np.full(terms, 1 / terms))
        for first in range(0, 120, 8):
            qp.add(planes.gradients[first:][:8], planes.intercepts[first:][:8], planes.groups[first:][:8])
            if terms == 1 or first:
                C = 10.0 ** rng.integers(-3, 7)
                certify(qp, qp.solve(C), C, np.zeros(9), 1e-9)
                before = qp.solve(C).value
                qp.forget(40)
                assert qp.size <= 40 + 9 + terms
                assert qp.solve(C).value == pytest.approx(before, rel=1e-9)  # the support was kept


def test_a_column_that_depends_on_the_others_is_exchanged():
    qp = PlaneQP(1, [1.0])
    qp.add([[1.0], [-1.0]], [0.0, 0.0])
    qp.solve(1e6)
    qp.add([[2.0], [-3.0], [0.0]], [0.5, 0.5, 0.6])
    result = qp.solve(1e6)
    certify(qp, result, 1e6, np.zeros(1), 1e-12)
    assert result.value == pytest.approx(0.6, abs=1e-6)


def test_no_features_and_errors():
    qp = PlaneQP(0, [1.0])
    qp.add(np.zeros((2, 0)), [1.0, 2.0])
    assert qp.solve(1.0).value == 2
    assert 2 - 1e-13 < qp.solve(1.0).lower_bound <= 2
    two = PlaneQP(1, [0.5, 0.5])
    two.add([[1.0]], [0.0], 0)
    with pytest.raises(ValueError, match="group 1 has no plane"):
        two.solve(1.0)
    with pytest.raises(ValueError, match="masses"):
        PlaneQP(1, [0.0])


@pytest.mark.parametrize("terms", [1, 3])
def test_many_features(terms):
    """Held in a basis, which grows with the planes and shrinks when they are removed; the answer is that of the plain form."""
    rng = np.random.default_rng(terms)
    wide = random_planes(rng, terms, 90, 300)
    wide.gradients[10:20] = wide.gradients[:10]  # nothing new for the basis
    wide.gradients[20] = 0
    narrow = np.linalg.qr(wide.gradients.T)[1].T  # the same inner products, in 90 features
    w0 = rng.normal(size=300)
    qp, plain = PlaneQP(300, np.full(terms, 1 / terms)), PlaneQP(90, np.full(terms, 1 / terms))
    for first in range(0, 90, 9):
        part = slice(first, first + 9)
        qp.add(wide.gradients[part], wide.intercepts[part], wide.groups[part])
        plain.add(narrow[part], wide.intercepts[part], wide.groups[part])
        for C in (1e-3, 1.0, 1e5):
            assert qp.solve(C).value == pytest.approx(plain.solve(C).value, rel=1e-8, abs=1e-9)
            certify(qp, qp.solve(C, w0), C, w0, 1e-8)
        np.testing.assert_allclose(qp.values(w0), qp.intercepts + qp.gradients @ w0, atol=1e-10)
    np.testing.assert_allclose(qp.gradients, wide.gradients, atol=1e-12)
    before = qp.solve(1e-3, w0)
    qp.forget(30)
    assert qp.size <= 45  # the support was small
    after = qp.solve(1e-3, w0)
    assert after.value == pytest.approx(before.value, rel=1e-9)
    np.testing.assert_allclose(after.w, before.w, atol=1e-8)
    qp.add(wide.gradients, wide.intercepts, wide.groups)
    certify(qp, qp.solve(1e3, w0), 1e3, w0, 1e-8)


def test_the_support_cannot_be_removed():
    planes = random_planes(np.random.default_rng(4), 3, 60, 9)
    qp = load(planes)
    before = qp.solve(1e3).value
    support = int((qp.multipliers > 0).sum())
    qp.keep(np.zeros(60, bool))
    assert qp.size == support
    assert qp.solve(1e3).value == pytest.approx(before, rel=1e-9)


def test_restored_multipliers():
    for terms in (1, 4):
        planes = random_planes(np.random.default_rng(terms), terms, 80, 9)
        first, second = load(planes), load(planes)
        first.solve(100.0)
        second.restore(first.multipliers)
        again = second.solve(100.0)
        certify(second, again, 100.0, np.zeros(9), 1e-9)
        assert again.steps <= 1
        for wrong in (np.zeros(80), np.ones(80), np.random.default_rng(0).random(80) - 0.8):
            second.restore(wrong)
            certify(second, second.solve(1e4), 1e4, np.zeros(9), 1e-9)


def test_a_limit_of_steps_still_gives_bounds():
    planes = random_planes(np.random.default_rng(3), 2, 60, 10)
    qp = load(planes)
    best = load(planes).solve(100.0)
    for limit in range(0, 40, 3):
        result = qp.solve(100.0, max_steps=limit)
        assert result.lower_bound <= best.value + 1e-12
        assert result.value >= best.lower_bound - 1e-12
