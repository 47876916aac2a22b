"""Kernels and their feature maps: against scikit-learn's kernels, and inner products that give the kernel back."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import pairwise
from solvers.examples import linear_risk, random_data

from rankstruct.solvers import Bundle, Kernel, KernelMap

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 5))
NEW = RNG.normal(size=(7, 5))


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Kernel("linear"), pairwise.linear_kernel(X, NEW)),
        (Kernel("rbf"), pairwise.rbf_kernel(X, NEW)),
        (Kernel("rbf", gamma=2.0), pairwise.rbf_kernel(X, NEW, gamma=2.0)),
        (Kernel("polynomial", degree=2, gamma=0.5, offset=2.0), pairwise.polynomial_kernel(X, NEW, 2, 0.5, 2.0)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_values_and_exact_map(kernel, expected):
    np.testing.assert_allclose(kernel(X, NEW), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(kernel(sp.csr_array(X), sp.csr_array(NEW)), expected, rtol=1e-10, atol=1e-12)
    mapped = KernelMap.fit(kernel, X)
    assert mapped.exact
    Z, new = mapped(X), mapped(NEW)
    np.testing.assert_allclose(Z @ Z.T, kernel(X, X), atol=1e-7 * np.abs(expected).max())
    np.testing.assert_allclose(Z @ new.T, expected, atol=1e-6 * np.abs(expected).max())
    w = RNG.normal(size=Z.shape[1])
    np.testing.assert_allclose(mapped.scores(NEW, mapped.representer(w)), new @ w, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(kernel(NEW, X) @ mapped.representer(w), new @ w, rtol=1e-6, atol=1e-6)


def test_precomputed_equals_the_kernel_itself():
    kernel = Kernel("rbf")
    values, new = kernel(X, X), kernel(NEW, X)
    for options in ({}, {"exact_up_to": 10, "landmarks": 15}):
        direct, given = KernelMap.fit(kernel, X, **options), KernelMap.fit(Kernel("precomputed"), values, **options)
        # The signs of eigenvectors are arbitrary; inner products are not.
        np.testing.assert_allclose(given(new) @ given(values).T, direct(NEW) @ direct(X).T, atol=1e-8)


def test_a_linear_problem_in_the_features_is_the_kernel_problem():
    data, y, offsets = random_data(np.random.default_rng(1), dimension=3, lists=8, longest=8)
    plain = Bundle(tolerance=1e-7).minimise(linear_risk(data, y, offsets, "AP"), 10.0)
    mapped = KernelMap.fit(Kernel("linear"), data)
    Z = mapped(data)
    assert Z.shape[1] == 3
    kernel = Bundle(tolerance=1e-7).minimise(linear_risk(Z, y, offsets, "AP"), 10.0)
    assert kernel.objective == pytest.approx(plain.objective, rel=1e-6)
    np.testing.assert_allclose(mapped.scores(data, mapped.representer(kernel.w)), data @ plain.w, atol=2e-3)
    rbf = KernelMap.fit(Kernel("rbf", gamma=5.0), data)
    fitted = Bundle(tolerance=1e-4).minimise(linear_risk(rbf(data), y, offsets, "AP"), 1e4)
    assert fitted.objective < plain.objective / 2


def test_nystroem_is_drawn_by_seed_and_exact_with_enough_landmarks():
    low_rank = RNG.normal(size=(300, 4)) @ RNG.normal(size=(4, 6))
    first, same, other = (
        KernelMap.fit(Kernel("linear"), low_rank, exact_up_to=100, landmarks=20, seed=s) for s in (0, 0, 1)
    )
    assert not first.exact
    np.testing.assert_array_equal(first.indices, same.indices)
    assert not np.array_equal(first.indices, other.indices)
    Z = first(low_rank)
    np.testing.assert_allclose(Z @ Z.T, low_rank @ low_rank.T, atol=1e-8 * 100)
    sparse = KernelMap.fit(Kernel("linear"), sp.csr_array(low_rank), exact_up_to=100, landmarks=20)
    np.testing.assert_allclose(sparse(sp.csr_array(low_rank)), Z, atol=1e-8)


def test_errors():
    for options in (
        {"name": "sigmoid"},
        {"gamma": 0.0},
        {"degree": 1.5},
        {"degree": np.inf},
        {"degree": "3"},
        {"offset": -1.0},
    ):
        with pytest.raises(ValueError, match=next(iter(options)).replace("name", "kernel")):
            Kernel(**options)
    with pytest.raises(ValueError, match="at least one training row"):
        KernelMap.fit(Kernel(), np.zeros((0, 3)))
    with pytest.raises(ValueError, match="positive semidefinite"):
        KernelMap.fit(Kernel("precomputed"), -np.eye(3))
    with pytest.raises(ValueError, match="symmetric"):
        KernelMap.fit(Kernel("precomputed"), np.array([[1.0, 0.5], [0.0, 1.0]]))
    with pytest.raises(ValueError, match=r"array \[n, n\]"):
        KernelMap.fit(Kernel("precomputed"), np.ones((3, 2)))
    with pytest.raises(ValueError, match="same number of features"):
        KernelMap.fit(Kernel(), X)(NEW[:, :3])
    with pytest.raises(ValueError, match="all training rows"):
        KernelMap.fit(Kernel("precomputed"), np.eye(3))(np.ones((1, 2)))
    assert KernelMap.fit(Kernel("linear"), np.zeros((4, 2)))(np.ones((3, 2))).shape == (3, 0)
