"""Many small problems at once, against one after the other."""

import numpy as np
import pytest

from rankstruct.solvers import Bundle, minimise_separable


class Piecewise:
    """The greatest of 0 and some random planes, one set for each problem."""

    def __init__(self, problems=12, planes=7, dimension=3, seed=0):
        rng = np.random.default_rng(seed)
        self.slopes = rng.normal(size=(problems, planes, dimension))
        self.constants = rng.normal(size=(problems, planes))

    def __call__(self, w, indices):
        values = np.einsum("qpd,qd->qp", self.slopes[indices], w) + self.constants[indices]
        best = values.argmax(1)
        rows = np.arange(len(indices))
        slopes = self.slopes[indices][rows, best]
        return np.maximum(values[rows, best], 0), np.where(values[rows, best, None] > 0, slopes, 0)


class One:
    """One of the problems as a risk."""

    terms = 1
    dimension = 3

    def __init__(self, oracle, number):
        self.oracle, self.number = oracle, np.array([number])

    def __call__(self, w):
        values, slopes = self.oracle(w[None], self.number)
        return float(values[0]), slopes[0]


@pytest.mark.parametrize("regularization", [0.01, 1.0, 30.0])
def test_is_the_bundle_method_for_each(regularization):
    oracle = Piecewise()
    found = minimise_separable(oracle, np.zeros((12, 3)), regularization, tolerance=1e-5, max_iterations=200)
    assert found.gap <= 1e-5
    assert (found.lower_bound <= found.objective).all()
    values, _ = oracle(found.w, np.arange(12))
    np.testing.assert_allclose(found.objective, values + 0.5 * regularization * (found.w**2).sum(1))
    for number in range(12):
        alone = Bundle(tolerance=1e-6).minimise(One(oracle, number), 1 / regularization)
        assert found.lower_bound[number] <= alone.objective + 1e-9
        assert alone.lower_bound <= found.objective[number] + 1e-9
        assert found.objective[number] <= alone.objective * (1 + 1e-4) + 1e-9


def test_one_evaluation_is_the_start_and_none_is_worse():
    oracle, start = Piecewise(), np.random.default_rng(1).normal(size=(12, 3))
    first = minimise_separable(oracle, start, 0.1, max_iterations=1)
    np.testing.assert_array_equal(first.w, start)
    later = minimise_separable(oracle, start, 0.1, max_iterations=5)
    assert (later.objective <= first.objective).all()
    assert (later.lower_bound >= first.lower_bound - 1e-12).all()


def test_no_problems():
    found = minimise_separable(Piecewise(), np.zeros((0, 3)), 1.0)
    assert found.w.shape == (0, 3)
    assert found.gap == 0


@pytest.mark.parametrize("options", [{"regularization": 0.0}, {"regularization": 1.0, "max_iterations": 0}])
def test_options(options):
    with pytest.raises(ValueError, match="must be"):
        minimise_separable(Piecewise(), np.zeros((12, 3)), **options)
