"""The sort that every list goes through, the grades of a list and what ties share, by themselves."""

import numpy as np
import pytest
from sorting_problems import KINDS, LENGTHS, draw_values, order_of, sorts

TYPES = ["float32", "float64"]


@pytest.fixture(scope="module")
def parts(compiled):
    return compiled("sorting.cpp")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_sorted_and_ties_keep_their_order(kind, dtype, parts):
    rng = np.random.default_rng(0)
    for n in LENGTHS:
        for _ in range(60 if n < 200 else 6):
            values = draw_values(rng, kind, n, dtype)
            assert sorts(parts, values), (n, values)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_long_lists_are_sorted(kind, dtype, parts):
    rng = np.random.default_rng(0)
    for n in (99_999, 100_000, 100_001, 300_000):
        assert sorts(parts, draw_values(rng, kind, n, dtype)), n


@pytest.mark.parametrize("dtype", TYPES)
def test_scratch_that_was_used_sorts_again(dtype, parts):
    rng = np.random.default_rng(1)
    for n in (5, 100, 600):
        for turn in range(8):
            values = draw_values(rng, KINDS[turn % len(KINDS)], n, dtype)
            found = [np.full(n, -1) for _ in range(3)]
            for times, order in enumerate(found, 1):
                getattr(parts, {"float32": "sort_floats", "float64": "sort_doubles"}[dtype])(values, order, times)
                assert np.array_equal(order, order_of(values))


def grades_of(parts, values):
    n = len(values)
    number, starts, order, pointer = (np.full(n + 1, -1, np.int32) for _ in range(4))
    value = np.empty(n + 1)
    count = parts.grades_of(values, number[:n], value, starts, order[:n], pointer)
    return number[:n], value[:count], starts[: count + 1], order[:n]


@pytest.mark.parametrize("count", [1, 2, 5, 8, 63, 64, 65, 66, 200])
def test_grades_are_numbered_whatever_they_are(count, parts):
    """Few, some of which fall into one slot of the table, many, and as many as there are documents."""
    rng = np.random.default_rng(count)
    for turn in range(200):
        whole = rng.choice(512, count, replace=False) / rng.choice([1, 2])
        grades = rng.choice([whole, rng.random(count) * 9, -whole, rng.normal(size=count) * 1e300, whole * 5e-324])
        values = rng.choice(grades, count if turn == 0 else rng.integers(1, 400))
        values = np.where(rng.random(len(values)) < 0.3, -0.0, values) if turn % 4 == 1 else values
        number, value, starts, order = grades_of(parts, values)
        expected = -np.unique(-values + 0.0)
        assert np.array_equal(value, expected)
        assert np.array_equal(number, np.searchsorted(-expected, -values))
        assert np.array_equal(starts, [0, *((values >= each).sum() for each in expected)])
        assert np.array_equal(order, np.argsort(-values, kind="stable"))


def test_tied_documents_of_one_label_share_what_they_have(parts):
    """The mean of all of one score; where scores choose, of those that are neighbours and have one chosen score."""
    rng = np.random.default_rng(2)
    for turn in range(300):
        n, span = int(rng.integers(0, 30)), int(rng.integers(1, 12))
        score = -np.sort(rng.integers(0, span, n)).astype(float)
        chosen = rng.integers(0, 3, n).astype(float) if turn % 2 else np.empty(0)
        ranks = np.flatnonzero(rng.random(n) < 0.7).astype(np.int32)
        coefficient = rng.normal(size=n)
        expected, begin = coefficient.copy(), 0
        keys = [(score[rank], *chosen[rank : rank + 1]) for rank in ranks]
        for end in range(1, len(ranks) + 1):
            if end == len(ranks) or keys[end] != keys[begin]:
                expected[ranks[begin:end]] = coefficient[ranks[begin:end]].mean()
                begin = end
        tied = parts.share(score, chosen, ranks, coefficient)
        np.testing.assert_allclose(coefficient, expected, rtol=1e-14, atol=1e-14)
        assert tied == (len(np.unique(score)) < n)
