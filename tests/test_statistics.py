"""Each statistic against SciPy's or its definition."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankstruct.statistics import (
    TESTS,
    bootstrap_interval,
    compare_paired,
    differences,
    paired_p_value,
    spread,
)


@pytest.fixture
def pair():
    rng = np.random.default_rng(3)
    first = rng.normal(size=25)
    return first, first + 0.3 + 0.5 * rng.normal(size=25)


def test_paired_tests_equal_scipy(pair):
    first, second = pair
    assert compare_paired(first, second).p == scipy.stats.wilcoxon(first, second).pvalue
    assert compare_paired(first, second, "t").p == scipy.stats.ttest_rel(first, second).pvalue


def test_signed_rank_equals_all_sign_flips():
    difference = np.array([0.3, -0.1, 0.45, 0.2, 0.6, -0.05, 0.7])
    ranks = scipy.stats.rankdata(np.abs(difference))
    observed = ranks[difference > 0].sum()
    sums = [ranks[np.array(signs)].sum() for signs in itertools.product([True, False], repeat=len(ranks))]
    centre = ranks.sum() / 2
    p = np.mean(np.abs(np.array(sums) - centre) >= abs(observed - centre) - 1e-9)
    assert compare_paired(difference, np.zeros(7)).p == pytest.approx(p)


def test_randomization_equals_all_sign_flips():
    difference = np.array([0.3, -0.1, 0.45, 0.2, 0.6, -0.05])
    means = [np.mean(difference * signs) for signs in itertools.product([1, -1], repeat=6)]
    p = np.mean(np.abs(means) >= abs(difference.mean()) - 1e-12)
    assert compare_paired(difference, np.zeros(6), "randomization").p == pytest.approx(p)


@settings(deadline=None, max_examples=100)
@example([-1, 7, 3, 6, -9, 7, -6, -3, -4], 0.1)
@given(st.lists(st.integers(-9, 9), min_size=2, max_size=9), st.sampled_from([0.1, 0.01, 1 / 3, 1 / 7, 1e-6, 1e6]))
def test_randomization_counts_ties_as_integers_do(numbers, unit):
    """Sums of tenths differ by rounding where those of integers are equal, near a mean of 0 too."""
    flips = np.array([np.dot(signs, numbers) for signs in itertools.product([1, -1], repeat=len(numbers))])
    p = min(1.0, 2 * min(np.mean(flips >= sum(numbers)), np.mean(flips <= sum(numbers))))
    assert paired_p_value(np.array(numbers) * unit, np.zeros(len(numbers))) == pytest.approx(p, abs=1e-12)


def test_other_tests_are_scipys_and_ties_are_no_evidence():
    rng = np.random.default_rng(1)
    a, b = rng.random(30), rng.random(30)
    assert paired_p_value(a, b, "t") == pytest.approx(scipy.stats.ttest_rel(a, b).pvalue)
    assert paired_p_value(a, b, "wilcoxon") == pytest.approx(scipy.stats.wilcoxon(a, b).pvalue)
    assert 0 < paired_p_value(a, a + 1) < 0.001
    for test in ("randomization", "wilcoxon", "t"):
        assert paired_p_value(a, a, test) == 1.0
        assert paired_p_value(np.zeros(0), np.zeros(0), test) == 1.0
        assert paired_p_value(np.ones(1), np.zeros(1), test) == 1.0
    with pytest.raises(ValueError, match="test must be one of"):
        paired_p_value(a, b, "sign")
    with pytest.raises(ValueError, match="the same shape"):
        paired_p_value(a, b[:3])


@pytest.mark.parametrize("test", ["randomization", "wilcoxon", "t"])
def test_differences_within_rounding_are_draws(test):
    first, second = np.full(8, 0.9), np.full(8, 0.9000000000000001)
    found = compare_paired(first, second, test)
    assert (found.wins, found.losses, found.difference, found.p) == (0, 0, 0.0, 1.0)
    won = compare_paired(np.append(first, 0.6), np.append(second, 0.5), test)
    assert (won.wins, won.losses) == (1, 0)
    assert won.p == compare_paired([0.0] * 8 + [0.1], np.zeros(9), test).p > 0.2


def test_rounding_is_relative_to_large_values_and_nothing_more_is_a_draw():
    assert differences([1e6, 1e6, 1.0], [1e6 + 1e-7, 1e6 + 1e-5, 1 + 1e-11]).tolist() == pytest.approx(
        [0, -1e-5, -1e-11], rel=1e-3
    )
    assert differences([1e6], [1e6 + 1e-7])[0] == 0


SCALES = st.one_of(st.just(1.0), st.floats(-300, 300).map(lambda power: 10.0**power))


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(1, 9))
@pytest.mark.filterwarnings(
    "ignore:Precision loss", "ignore:overflow encountered"
)  # SciPy looks for nearly constant values
def test_p_is_a_number_whatever_the_scales_and_1_where_nothing_differs(data, number):
    """Scales are mixed, values tie, differences are within rounding or not, of all signs; their order is no matter."""
    scales = np.array(
        data.draw(st.one_of(st.lists(SCALES, min_size=number, max_size=number), SCALES.map(lambda s: [s] * number)))
    )
    tenths = st.lists(st.integers(-3, 3), min_size=number, max_size=number)
    factors = st.lists(st.sampled_from([1, 1 + 1e-15, 1 + 1e-9]), min_size=number, max_size=number)
    first = scales * np.array(data.draw(tenths)) / 10
    second = np.where(data.draw(st.booleans()), first * data.draw(factors), scales * np.array(data.draw(tenths)) / 10)
    close = 1e-12 * np.maximum(1, np.maximum(abs(first), abs(second)))
    for test in TESTS:
        found, turned = compare_paired(first, second, test), compare_paired(second, first, test)
        assert (found.wins, found.losses) == ((first - second > close).sum(), (second - first > close).sum())
        assert (found.wins, found.losses, found.p) == (turned.losses, turned.wins, pytest.approx(turned.p, abs=1e-9))
        assert 0 <= found.p <= 1
        assert (number > 1 and found.wins + found.losses > 0) or found.p == 1
    assert np.isfinite(spread(first).deviation)


def test_a_value_on_another_scale_is_one_more_pair():
    """As it is where the largest has the largest difference: by ranks it counts as any other that is."""
    small = np.array([0.3, -0.1, 0.45, 0.2, 0.6, -0.05, 0.7])
    for large in (1.0, 1e12, 1e300):
        found = compare_paired(np.append(small, large), np.zeros(8))
        assert found.p == compare_paired(np.append(small, 1.0), np.zeros(8)).p < 0.06
        assert (
            compare_paired(np.append(small, large), np.append(np.zeros(7), large)).p
            == compare_paired(small, np.zeros(7)).p
        )
    values = np.random.default_rng(0).random((2, 12))
    for scale in (1e-300, 1e-150, 1e150, 1e300):
        assert spread(values[0] * scale).deviation == pytest.approx(spread(values[0]).deviation * scale)
        if scale > 1:
            for test in TESTS:
                assert paired_p_value(*(values * scale), test) == pytest.approx(paired_p_value(*values, test), rel=1e-6)


def test_signed_rank_gives_equal_distances_one_rank_whatever_their_rounding():
    rng = np.random.default_rng(5)
    first, second = rng.integers(0, 11, size=(2, 40))
    wanted = scipy.stats.wilcoxon(first - second).pvalue
    assert len(np.unique(np.abs(first / 10 - second / 10))) > len(np.unique(np.abs(first - second)))
    assert paired_p_value(first / 10, second / 10, "wilcoxon") == pytest.approx(wanted, rel=1e-12)


def test_counts_wins_and_losses_and_leaves_ties_out():
    found = compare_paired([1.0, 2.0, 3.0, 4.0], [0.0, 2.0, 4.0, 1.0])
    assert (found.wins, found.losses, found.difference) == (2, 1, pytest.approx(0.75))
    first, second = np.random.default_rng(4).normal(size=(2, 60))  # many enough for SciPy's normal approximation
    tied = compare_paired(np.append(first, [1.0, 2.0]), np.append(second, [1.0, 2.0]))
    assert tied.p == compare_paired(first, second).p
    assert compare_paired([1.0, 1.0], [1.0, 1.0]).p == 1.0


def test_bootstrap_interval_is_the_percentiles_of_resampled_means(pair):
    values = pair[0]
    low, high = bootstrap_interval(values, resamples=20_000)
    rng = np.random.default_rng(99)
    means = values[rng.integers(len(values), size=(20_000, len(values)))].mean(1)
    assert [low, high] == pytest.approx(np.percentile(means, [2.5, 97.5]), abs=0.02)
    assert bootstrap_interval(np.ones(4)) == (1.0, 1.0)


def test_spread():
    found = spread([1.0, 2.0, 6.0])
    assert (found.mean, found.low, found.high, found.seeds) == (3.0, 1.0, 6.0, 3)
    assert found.deviation == pytest.approx(np.std([1, 2, 6], ddof=1))
    assert str(spread([0.5])) == "0.5000"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare_paired([1.0, np.nan], [1.0, 2.0]), "first must be finite, got nan at 1"),
        (lambda: compare_paired([1.0], [1.0, 2.0]), "the same shape"),
        (
            lambda: differences([0.0, 1.7e308], [0.0, -1.7e308]),
            "the difference of paired values 1 overflows float64",
        ),
        (lambda: bootstrap_interval([]), "got none"),
        (lambda: bootstrap_interval([1.0, 2.0], 95), "level"),
        (lambda: bootstrap_interval([1.0, 2.0], of_means=lambda m: m), r"values must have shape \[n, k\], got \(2,\)"),
        (
            lambda: bootstrap_interval([[1.0, np.nan], [2.0, 3.0]], of_means=lambda m: m[..., 0]),
            r"values must be finite, got nan at \[0, 1\]",
        ),
    ],
)
def test_wrong_values_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
