"""Statistical significance: tests of two systems and confidence intervals.

Values `[n]` are finite, larger is better; paired values have the same shape and order, and a difference within rounding is a tie,
see `differences`. Anything else raises ValueError. P-values are two-sided, never NaN, and 1 if fewer than two values remain or
nothing differs.

`scipy.stats` takes half a second to import, so each function that needs it does so itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from rankstruct.arrays import as_numbers
from rankstruct.checks import check_choice, check_numbers

__all__ = ["PairedComparison", "bootstrap_interval", "compare_paired", "paired_p_value"]

Test = Literal["randomization", "wilcoxon", "t"]
TESTS = get_args(Test)
ROUNDING = 1e-12
"""Values that differ by less, relative to the larger of them or to 1, are considered equal."""


@dataclass(frozen=True)
class PairedComparison:
    """Result of comparing two systems on the same queries or trials.

    Attributes:
        difference: the mean of the first minus that of the second.
        wins: the number of values for which the first is better.
        losses: the number for which it is worse; the rest are ties, see `differences`.
        p: the p-value of the difference.

    >>> found = compare_paired([0.4, 0.5, 0.7, 0.9, 0.6, 0.8], [0.3, 0.3, 0.4, 0.5, 0.1, 0.9])
    >>> found.wins, found.losses, round(found.difference, 3)
    (5, 1, 0.233)
    """

    difference: float
    wins: int
    losses: int
    p: float


def compare_paired(first: ArrayLike, second: ArrayLike, test: Test = "wilcoxon", seed: int = 0) -> PairedComparison:
    """Compare paired values: wins, losses and the p-value, by default of Wilcoxon's signed-rank test, which ignores ties.

    Source of the layout (means, W/L, stars): Yue, Finley, Radlinski, Joachims, SIGIR 2007, tables 6 to 11.

    >>> compare_paired([0.4, 0.5, 0.7, 0.9, 0.6, 0.8], [0.3, 0.3, 0.4, 0.5, 0.1, 0.9])
    PairedComparison(difference=0.2333..., wins=5, losses=1, p=0.09375)
    """
    difference = differences(first, second)
    mean = float(difference.mean()) if len(difference) else 0.0
    p = paired_p_value(first, second, test, seed)
    return PairedComparison(mean, int((difference > 0).sum()), int((difference < 0).sum()), p)


def differences(first: ArrayLike, second: ArrayLike) -> np.ndarray:
    """`first - second` of paired values `[n]`, exactly 0 if they differ within rounding: such a pair is a tie.

    >>> differences([0.9, 0.5], [0.9000000000000001, 0.25])
    array([0.  , 0.25])
    """
    a, b = _values("first", first), _values("second", second)
    if a.shape != b.shape:
        raise ValueError(f"paired values must have the same shape; got {a.shape} and {b.shape}")
    with np.errstate(over="ignore"):
        difference = a - b
    if not np.isfinite(difference).all():
        raise ValueError(
            f"the difference of paired values {np.flatnonzero(~np.isfinite(difference))[0]} overflows float64"
        )
    difference[np.abs(difference) <= _rounding(a, b)] = 0
    return difference


def _rounding(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The rounding error of the difference of each pair."""
    return ROUNDING * np.maximum(1, np.maximum(np.abs(first), np.abs(second)))


def paired_p_value(first: ArrayLike, second: ArrayLike, test: Test = "randomization", seed: int = 0) -> float:
    """The p-value of the hypothesis that two systems' values per query `[queries]` differ by chance alone.

    Args:
        first: one system's values.
        second: the other's.
        test: `"randomization"`, signs of the differences flipped at random 9,999 times, or in all ways if there are fewer
            (Smucker, Allan, Carterette, CIKM 2007); `"wilcoxon"`, the signed-rank test; `"t"`, the paired t-test.
        seed: random seed of the randomization test.

    Raises:
        ValueError: an unknown test.

    >>> round(paired_p_value(np.arange(8.0), np.arange(8.0) - 1.0), 4)
    0.0078
    """
    check_choice("test", test, TESTS)
    difference = differences(first, second)
    if len(difference) < 2 or not np.any(difference):
        return 1.0
    import scipy.stats

    rounding = _rounding(_values("first", first), _values("second", second))
    ranked = np.sign(difference) * _places(np.abs(difference), rounding)
    if test == "wilcoxon":
        return float(scipy.stats.wilcoxon(ranked).pvalue)
    unit = _unit(difference)
    difference = difference / unit
    if test == "t":
        return 0.0 if np.ptp(ranked) == 0 else float(scipy.stats.ttest_1samp(difference, 0.0).pvalue)
    observed, near = difference.mean(), rounding.mean() / unit

    def mean(flipped: np.ndarray, axis: int) -> np.ndarray:
        """The mean; the observed one within rounding. SciPy's own tolerance is relative to that, and nothing near 0."""
        found = np.mean(flipped, axis=axis)
        return np.where(np.abs(found - observed) <= near, observed, found)

    options = {"permutation_type": "samples", "n_resamples": 9999, "rng": np.random.default_rng(seed)}
    return float(scipy.stats.permutation_test((difference,), mean, vectorized=True, **options).pvalue)


def _places(distances: np.ndarray, rounding: np.ndarray) -> np.ndarray:
    """The 1-based rank of each distance, ascending; neighbours that differ within rounding share a rank."""
    order = np.argsort(distances, kind="stable")
    apart = np.diff(distances[order]) > np.maximum(rounding[order][1:], rounding[order][:-1])
    places = np.empty(len(order))
    places[order] = np.cumsum(np.append(1, apart))
    return places


def _unit(values: np.ndarray) -> float:
    """A power of 2 near the largest value: dividing by it is exact and keeps squares in range."""
    largest = float(np.abs(values).max())
    return float(np.ldexp(1.0, np.frexp(largest)[1] - 1)) if largest else 1.0


def bootstrap_interval(
    values: ArrayLike,
    level: float = 0.95,
    *,
    of_means: Callable[[np.ndarray], np.ndarray] | None = None,
    resamples: int = 9999,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap confidence interval of the mean, or of a function of means, `(low, high)`.

    Args:
        values: `[n]`, at least one; or, with `of_means`, `[n, k]`.
        level: confidence level, between 0 and 1.
        of_means: a function of the means of k columns, `[any, k]` to `[any]`, such as a ratio.
        resamples: number of samples of n values drawn with replacement.
        seed: random seed.

    >>> low, high = bootstrap_interval(np.arange(100.0))
    >>> 43 < low < 45 and 54 < high < 56
    True
    """
    a = _values("values", values, "an interval", ndim=1 if of_means is None else 2)
    check_numbers("> 0 and < 1", level=level)
    if of_means is None and np.ptp(a) == 0:
        return float(a[0]), float(a[0])
    import scipy.stats

    def statistic(drawn: np.ndarray, axis: int) -> np.ndarray:
        assert of_means is not None
        return of_means(a[drawn.astype(np.int64)].mean(-2))

    if of_means is not None and len(a) == 1:
        only = float(of_means(a.mean(0)))
        return only, only
    sample, measure = (a, np.mean) if of_means is None else (np.arange(len(a)), statistic)
    options = {"method": "percentile", "batch": max(1, 2**22 // a.size), "rng": np.random.default_rng(seed)}
    found = scipy.stats.bootstrap((sample,), measure, confidence_level=level, n_resamples=resamples, **options)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def with_interval(values: np.ndarray, resamples: int = 9999) -> str:
    """The mean of differences `[n]` with its `bootstrap_interval`, for tables; empty if all are 0, as of a row and itself.

    >>> with_interval(np.full(3, 0.5)), with_interval(np.zeros(3))
    ('+0.5000 (+0.5000 to +0.5000)', '')
    """
    if not values.any():
        return ""
    low, high = bootstrap_interval(values, resamples=resamples)
    return f"{values.mean():+.4f} ({low:+.4f} to {high:+.4f})"


@dataclass(frozen=True)
class Spread:
    """Summary of a result over several seeds.

    Attributes:
        mean: the mean over the seeds.
        deviation: the standard deviation with n - 1; 0 for one seed.
        low: the minimum.
        high: the maximum.
        seeds: the number of seeds.

    >>> found = spread([0.25, 0.35])
    >>> round(found.mean, 3), round(found.deviation, 3), found.seeds
    (0.3, 0.071, 2)
    """

    mean: float
    deviation: float
    low: float
    high: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.4f}" + (f" ± {self.deviation:.4f}" if self.seeds > 1 else "")


def spread(values: ArrayLike) -> Spread:
    """Mean, standard deviation and range of a result over seeds `[seeds]`.

    >>> print(spread([0.25, 0.35]))
    0.3000 ± 0.0707
    """
    a = _values("values", values, "a spread")
    deviation = float((a / _unit(a)).std(ddof=1)) * _unit(a) if len(a) > 1 else 0.0
    return Spread(float(a.mean()), deviation, float(a.min()), float(a.max()), len(a))


def _values(name: str, values: ArrayLike, what: str | None = None, ndim: int = 1) -> np.ndarray:
    """Values `[n]`, or `[n, k]`, as an array; at least one if `what` is computed from them."""
    try:
        a = as_numbers(name, values).astype(np.float64)
    except TypeError as error:
        raise ValueError(str(error)) from None
    if a.ndim != ndim:
        raise ValueError(f"{name} must have shape {'[n]' if ndim == 1 else '[n, k]'}, got {a.shape}")
    if not (fine := np.isfinite(a)).all():
        at = np.argwhere(~fine)[0].tolist()
        raise ValueError(f"{name} must be finite, got {a[~fine][0]} at {at[0] if ndim == 1 else at}")
    if what and not len(a):
        raise ValueError(f"{what} needs at least one value, got none")
    return a
